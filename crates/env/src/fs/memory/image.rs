//! Access to the raw bytes of the disk, for tests that damage them and for inspection.

use super::dir_tree::{ROOT_DIR, SimDirEntry, SimFile};
use super::pages::Pages;
use super::{SimDisk, SimDiskState, path_components};
use perigee_base::{Error, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;

impl SimDisk {
    /// Returns the paths of all files, sorted.
    pub fn paths(&self) -> Vec<PathBuf> {
        self.core.state().tree.files().into_iter().map(|(path, _)| path.into()).collect()
    }

    /// Returns the contents of a file, as the kernel shows them.
    ///
    /// # Panics
    /// If the file does not exist.
    pub fn read_raw(&self, path: impl AsRef<Path>) -> Vec<u8> {
        let path = path.as_ref();
        let file = find_file(&self.core.state(), path);
        let file = file.unwrap_or_else(|| {
            panic!("file {} does not exist on the simulated disk", path.display())
        });
        file.pages().bytes().to_vec()
    }

    /// Replaces the cached and durable contents of a file, under every open handle; creates the
    /// file if missing.
    ///
    /// # Panics
    /// If the directory does not exist.
    pub fn write_raw(&self, path: impl AsRef<Path>, bytes: Vec<u8>) {
        let path = path.as_ref();
        let mut state = self.core.state();
        if let Some(file) = find_file(&state, path) {
            *file.pages() = Pages::durable(bytes);
            return;
        }
        let location = path_components(path).ok().and_then(|names| {
            let (name, dirs) = names.split_last()?;
            Some((state.resolve_path(dirs).ok()?, (*name).to_owned()))
        });
        let (dir, name) = location
            .unwrap_or_else(|| panic!("the directory of {} does not exist", path.display()));
        state.tree.add_durable(dir, &name, bytes);
    }

    /// Returns the total length of all files, in bytes.
    pub fn total_bytes(&self) -> u64 {
        self.core.state().total_bytes()
    }

    /// Writes every file below the real directory `target`: `/db/x` becomes `target/db/x`.
    pub fn to_real_dir(&self, target: &Path) -> Result<()> {
        for path in self.paths() {
            let real = target.join(path.strip_prefix("/").unwrap_or(&path));
            let write = || {
                std::fs::create_dir_all(real.parent().unwrap_or(target))?;
                std::fs::write(&real, self.read_raw(&path))
            };
            write().map_err(|e| Error::io(format_args!("write {}", real.display()), &e))?;
        }
        Ok(())
    }

    /// Creates a disk that durably contains every file below the real directory `source`:
    /// `source/db/x` becomes `/db/x`.
    pub fn from_real_dir(source: &Path) -> Result<Arc<SimDisk>> {
        let disk = SimDisk::new(0);
        load_dir(&mut disk.core.state(), ROOT_DIR, source)
            .map_err(|e| Error::io(format_args!("read {}", source.display()), &e))?;
        Ok(disk)
    }
}

fn find_file(state: &SimDiskState, path: &Path) -> Option<Arc<SimFile>> {
    let names = path_components(path).ok()?;
    let (name, dirs) = names.split_last()?;
    state.tree.get(state.resolve_path(dirs).ok()?, name).and_then(SimDirEntry::file).cloned()
}

fn load_dir(state: &mut SimDiskState, dir: u64, source: &Path) -> std::io::Result<()> {
    let mut entries = std::fs::read_dir(source)?.collect::<std::io::Result<Vec<_>>>()?;
    // Sorted, so that the disk is the same each time.
    entries.sort_by_key(|e| e.file_name());
    for entry in entries {
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type()?.is_dir() {
            let inside = state.tree.make_dir(dir, &name);
            load_dir(state, inside, &entry.path())?;
        } else {
            state.tree.add_durable(dir, &name, std::fs::read(entry.path())?);
        }
    }
    state.tree.sync(dir);
    Ok(())
}
