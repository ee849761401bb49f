//! Imports a directory tree: the path below the directory, separated by `/`, is the key; the
//! contents of the file are the value.
//!
//! Invariant: the order of files is deterministic (names sorted bytewise within a directory), so
//! that `demo` knows which files a killed import had acknowledged.

use crate::failure::{Failure, Result, show_path};
use perigee::limits;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use walkdir::{DirEntry, WalkDir};

use super::loader::Loader;

/// An item found while traversing a tree.
pub enum TreeItem {
    /// A regular file: its path, its key below the root, its length.
    File { path: PathBuf, key: Vec<u8>, bytes: u64 },
    /// A symbolic link.
    Link,
    /// A device, socket or pipe.
    Special,
    /// An entry that could not be inspected, with the reason.
    Unreadable(String),
}

/// Returns the items of a tree, or a single file, in a deterministic order.
pub fn walk_tree(root: &Path) -> impl Iterator<Item = TreeItem> {
    let base = root.to_path_buf();
    WalkDir::new(root)
        .follow_links(false)
        .follow_root_links(true)
        .sort_by(|a, b| a.file_name().cmp(b.file_name()))
        .into_iter()
        .filter_map(move |entry| tree_item(&base, entry))
}

fn tree_item(base: &Path, entry: walkdir::Result<DirEntry>) -> Option<TreeItem> {
    let entry = match entry {
        Ok(entry) => entry,
        Err(e) => return Some(TreeItem::Unreadable(crate::text::escape(e.to_string().as_bytes()))),
    };
    let kind = entry.file_type();
    if kind.is_dir() {
        return None;
    }
    if kind.is_symlink() {
        return Some(TreeItem::Link);
    }
    if !kind.is_file() {
        return Some(TreeItem::Special);
    }
    let bytes = match entry.metadata() {
        Ok(meta) => meta.len(),
        Err(e) => return Some(TreeItem::Unreadable(crate::text::escape(e.to_string().as_bytes()))),
    };
    let key = key_of(base, entry.path(), entry.depth());
    Some(TreeItem::File { path: entry.into_path(), key, bytes })
}

/// Returns the path below the root; for a root that is a file, its name.
fn key_of(base: &Path, path: &Path, depth: usize) -> Vec<u8> {
    let below =
        if depth == 0 { path.file_name().map(Path::new) } else { path.strip_prefix(base).ok() };
    let mut key = below.unwrap_or(path).as_os_str().as_encoded_bytes().to_vec();
    if cfg!(windows) {
        // No file name contains a separator.
        key.iter_mut().filter(|byte| **byte == b'\\').for_each(|byte| *byte = b'/');
    }
    key
}

/// Returns the last component of a path, for `--with-name`.
pub fn last_path_part(path: &Path) -> Result<Vec<u8>> {
    let name = match path.file_name() {
        Some(name) => name.to_owned(),
        None => match path.canonicalize() {
            Ok(full) => full.file_name().unwrap_or_default().to_owned(),
            Err(e) => return Err(Failure::file("open", path, &e)),
        },
    };
    Ok(name.as_encoded_bytes().to_vec())
}

/// Imports every file.
pub fn import_tree(root: &Path, loader: &mut Loader<'_>) -> Result<()> {
    // A root that cannot be read is an error, not merely counted as failed.
    std::fs::metadata(root).map_err(|e| Failure::file("import", root, &e))?;
    loader.add_expected_bytes(total_bytes(root));
    for item in walk_tree(root) {
        match item {
            TreeItem::File { path, key, bytes } => import_file(&path, &key, bytes, loader)?,
            TreeItem::Link => loader.count_link(),
            TreeItem::Special => loader.count_special_file(),
            TreeItem::Unreadable(reason) => loader.report_failure(&reason)?,
        }
    }
    Ok(())
}

/// Returns the total bytes of all files, for the progress bar; 0 (unknown) if no bar is shown.
fn total_bytes(root: &Path) -> u64 {
    use std::io::IsTerminal;
    if !std::io::stderr().is_terminal() {
        return 0;
    }
    walk_tree(root)
        .map(|item| if let TreeItem::File { bytes, .. } = item { bytes } else { 0 })
        .sum()
}

fn import_file(path: &Path, key: &[u8], bytes: u64, loader: &mut Loader<'_>) -> Result<()> {
    if bytes > limits::VALUE_BYTES_MAX as u64 {
        return loader.report_too_large(&|| show_path(path));
    }
    if loader.should_skip(key, bytes)? {
        return Ok(());
    }
    match read_file(path, bytes) {
        Ok(value) => loader.put(key, &value, &|| show_path(path)),
        Err(e) => loader.report_failure(&format!("{}: {e}", show_path(path))),
    }
}

/// Reads a file whose expected length is `bytes`; at most one byte more than the maximum value
/// size.
pub fn read_file(path: &Path, bytes: u64) -> std::io::Result<Vec<u8>> {
    let mut value = Vec::new();
    value.try_reserve_exact(bytes as usize + 1).map_err(|_| std::io::ErrorKind::OutOfMemory)?;
    File::open(path)?.take(limits::VALUE_BYTES_MAX as u64 + 1).read_to_end(&mut value)?;
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn walk_is_ordered_and_skips_links() {
        let root = std::env::temp_dir().join(format!("perigee-cli-walk-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        fs::create_dir_all(root.join("b/c")).unwrap();
        for name in ["b/c/two", "b/one", "a", "z"] {
            fs::write(root.join(name), name).unwrap();
        }
        #[cfg(unix)]
        std::os::unix::fs::symlink("/etc", root.join("link")).unwrap();
        let mut keys = Vec::new();
        let mut links = 0;
        for item in walk_tree(&root) {
            match item {
                TreeItem::File { key, .. } => keys.push(String::from_utf8(key).unwrap()),
                TreeItem::Link => links += 1,
                _ => panic!("unexpected item"),
            }
        }
        assert_eq!(keys, ["a", "b/c/two", "b/one", "z"]);
        assert_eq!(links, usize::from(cfg!(unix)));
        let single: Vec<_> = walk_tree(&root.join("z")).collect();
        assert!(matches!(&single[..], [TreeItem::File { key, .. }] if key == b"z"));
        assert_eq!(last_path_part(&root.join("b/")).unwrap(), b"b");
        fs::remove_dir_all(&root).unwrap();
    }
}
