//! The file system of the operating system: the same type on every platform. What differs between
//! them is in `posix` and `windows`, modules with the same functions; only one is compiled.

#[cfg(unix)]
use super::posix as platform;
#[cfg(windows)]
use super::windows as platform;

use super::open_file_limiter::OpenFileLimiter;
use super::{Dir, DirOpenMode, Fs};
use crate::rand::{Rand, RealRand};
use perigee_base::Result;
use std::path::Path;
use std::sync::Arc;

/// The file system of the operating system.
#[derive(Debug)]
pub struct RealFs {
    boot_id: u64,
}

impl RealFs {
    /// Creates the file system, reads the boot id and installs the fork handler.
    pub fn new() -> Self {
        crate::fork::install_fork_handler();
        // A random number differs from every stored one, so the reader assumes that the system may
        // have stopped in between, which is safe. (0 for "unknown" would be equal to itself.)
        let boot_id = platform::boot_id().unwrap_or_else(|| RealRand::new().next_u64());
        RealFs { boot_id }
    }
}

impl Default for RealFs {
    fn default() -> Self {
        Self::new()
    }
}

impl Fs for RealFs {
    /// A symbolic link to a directory is followed: the owner decides where a database is stored.
    fn open_dir(&self, path: &Path, mode: DirOpenMode) -> Result<Arc<dyn Dir>> {
        platform::open_dir(path, mode)
    }

    fn boot_id(&self) -> u64 {
        self.boot_id
    }

    fn memory_limit_bytes(&self) -> Option<u64> {
        platform::memory_limit_bytes()
    }

    fn resident_bytes(&self) -> Option<u64> {
        platform::resident_bytes()
    }

    fn trim_heap(&self) {
        platform::trim_heap();
    }

    fn open_file_limit(&self) -> Option<u64> {
        platform::open_file_limit()
    }

    fn open_file_limiter(&self) -> Arc<OpenFileLimiter> {
        OpenFileLimiter::process_wide()
    }

    fn rename_dir(&self, from: &Path, to: &Path) -> Result<()> {
        platform::rename_dir(from, to)
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        platform::remove_dir(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_the_process_are_plausible() {
        let fs = RealFs::new();
        assert!(fs.memory_limit_bytes().is_none_or(|n| n > 1 << 20));
        assert!(fs.resident_bytes().is_none_or(|n| n > 100 << 10));
        assert!(fs.open_file_limit().is_none_or(|n| n > 10));
        let known = cfg!(any(target_os = "linux", target_os = "macos", windows));
        assert!(!known || fs.memory_limit_bytes().is_some() && fs.resident_bytes().is_some());
    }
}
