//! Selects the files that the demo imports: a given directory, or files that any machine with a
//! Rust toolchain has.

use crate::commands::import::tree::{self, TreeItem};
use crate::failure::{Failure, Result, show_path};
use perigee::limits;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Number of files at which no further directory is added.
const FILES_ENOUGH: u64 = 20_000;

/// The selected directories.
pub struct Sources {
    /// Each with its number of files and bytes. Their last components differ, because keys start
    /// with them.
    pub roots: Vec<(PathBuf, u64, u64)>,
    /// Total number of files.
    pub files: u64,
    /// Total number of bytes.
    pub bytes: u64,
}

/// A source file: path, key, length.
pub type SourceFile = (PathBuf, Vec<u8>, u64);

impl Sources {
    /// Returns every file that the import reads, in the same order.
    pub fn source_files(&self) -> impl Iterator<Item = SourceFile> {
        self.roots.iter().flat_map(|(root, _, _)| {
            let name = tree::last_path_part(root).unwrap_or_default();
            tree::walk_tree(root).filter_map(move |item| match item {
                TreeItem::File { path, key, bytes } if bytes <= limits::VALUE_BYTES_MAX as u64 => {
                    Some((path, [&name[..], b"/", &key].concat(), bytes))
                }
                _ => None,
            })
        })
    }

    /// Returns a prefix shared by some of the keys: the directory of the middle file.
    pub fn sample_prefix(&self) -> Vec<u8> {
        let middle = self
            .source_files()
            .nth((self.files / 2) as usize)
            .map(|(_, key, _)| key)
            .unwrap_or_default();
        let end = middle.iter().rposition(|&b| b == b'/').map_or(0, |slash| slash + 1);
        middle[..end].to_vec()
    }
}

/// Selects all files of a directory.
pub fn from_dir(dir: &Path) -> Result<Sources> {
    let root = dir.canonicalize().map_err(|e| Failure::file("open", dir, &e))?;
    let (files, bytes) = measure_dir(&root);
    if files == 0 {
        return Err(Failure::usage(format!("there are no files in {}", show_path(dir))));
    }
    Ok(Sources { roots: vec![(root, files, bytes)], files, bytes })
}

/// Selects files found on this machine, within the limits.
pub fn find_on_machine(max_files: u64, max_bytes: u64) -> Result<Sources> {
    let mut sources = Sources { roots: Vec::new(), files: 0, bytes: 0 };
    for root in candidate_dirs() {
        if sources.files >= FILES_ENOUGH {
            break;
        }
        if !add_root(&root, max_files, max_bytes, &mut sources) {
            for child in subdirectories(&root) {
                add_root(&child, max_files, max_bytes, &mut sources);
            }
        }
    }
    if sources.files == 0 {
        return Err(Failure::usage("found no files to import")
            .hint("specify a directory: perigee demo --dir DIR"));
    }
    Ok(sources)
}

/// Returns directories to try: the Rust toolchain, downloaded crates, then common system
/// directories.
fn candidate_dirs() -> Vec<PathBuf> {
    let mut roots = Vec::new();
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output().ok();
    if let Some(text) = sysroot.and_then(|o| String::from_utf8(o.stdout).ok()) {
        roots.push(PathBuf::from(text.trim()));
    }
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let cargo = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| home.map(|h| h.join(".cargo")));
    roots.extend(cargo.map(|c| c.join("registry/src")));
    roots.extend(
        ["/usr/include", "/usr/share/doc", "/usr/lib/python3", "/usr/share", "/usr/lib"]
            .map(PathBuf::from),
    );
    roots.retain(|r| r.is_absolute() && r.is_dir());
    roots
}

/// Adds a directory if it fits the limits. Returns false only if it does not fit; an empty or
/// duplicate directory is skipped and returns true.
fn add_root(root: &Path, max_files: u64, max_bytes: u64, sources: &mut Sources) -> bool {
    let inside = sources.roots.iter().any(|(r, _, _)| root.starts_with(r) || r.starts_with(root));
    if inside || sources.roots.iter().any(|(r, _, _)| r.file_name() == root.file_name()) {
        return true;
    }
    let (files, bytes) = measure_dir(root);
    if files == 0 {
        return true;
    }
    if sources.files + files > max_files || sources.bytes + bytes > max_bytes {
        return false;
    }
    sources.roots.push((root.to_path_buf(), files, bytes));
    sources.files += files;
    sources.bytes += bytes;
    true
}

fn subdirectories(root: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(root) else { return Vec::new() };
    let real_dir = |e: &std::fs::DirEntry| e.file_type().is_ok_and(|t| t.is_dir());
    let mut dirs: Vec<PathBuf> = entries.flatten().filter(real_dir).map(|e| e.path()).collect();
    dirs.retain(|d| d.file_name() != Some(OsStr::new("tmp")));
    dirs.sort();
    dirs
}

fn measure_dir(root: &Path) -> (u64, u64) {
    tree::walk_tree(root).fold((0, 0), |(files, all), item| match item {
        TreeItem::File { bytes, .. } if bytes <= limits::VALUE_BYTES_MAX as u64 => {
            (files + 1, all + bytes)
        }
        _ => (files, all),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn directories_are_added_within_limits() {
        let base = std::env::temp_dir().join(format!("perigee-cli-sources-{}", std::process::id()));
        let _ = fs::remove_dir_all(&base);
        for (name, files) in [("a", 3), ("b", 5), ("c", 2)] {
            fs::create_dir_all(base.join(name)).unwrap();
            for i in 0..files {
                fs::write(base.join(name).join(i.to_string()), b"12345").unwrap();
            }
        }
        let mut sources = Sources { roots: Vec::new(), files: 0, bytes: 0 };
        assert!(!add_root(&base, 6, 1000, &mut sources), "ten files are too many");
        for child in subdirectories(&base) {
            add_root(&child, 6, 1000, &mut sources);
        }
        assert_eq!((sources.files, sources.bytes), (5, 25));
        let keys: Vec<Vec<u8>> = sources.source_files().map(|(_, key, _)| key).collect();
        assert_eq!(keys, [b"a/0", b"a/1", b"a/2", b"c/0", b"c/1"]);
        assert_eq!(sources.sample_prefix(), b"a/");
        fs::remove_dir_all(&base).unwrap();
    }
}
