//! Encryption at rest: a file system that encrypts the contents of the files of another one.
//!
//! Every file has a header of its own and is recognized by it, so encrypted and plain files can be
//! mixed: plain files are read as they are. File names, lengths and times are not encrypted.
//! See `docs/format/encryption.md`.

mod keys;
mod cipher;
mod header;
mod key_cache;
mod files;
mod dir;

use crate::fs::{Dir, DirOpenMode, Fs, OpenFileLimiter};
use crate::rand::Rand;
use dir::EncryptedDir;
pub use header::fuzz_header;
use key_cache::KeyCache;
pub use keys::{EncryptionKey, KEY_BYTES, KeyId, KeyProvider, KeyRing};
use perigee_base::Result;
use std::path::Path;
use std::sync::Arc;

/// A file system that encrypts.
#[derive(Debug)]
pub struct EncryptedFs {
    inner: Arc<dyn Fs>,
    shared: EncryptionSettings,
}

/// How the files of a directory are encrypted.
#[derive(Clone)]
pub(super) struct EncryptionSettings {
    keys: Arc<KeyCache>,
    /// Returns true for the names of files that are never encrypted.
    is_plain: fn(&str) -> bool,
}

impl std::fmt::Debug for EncryptionSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EncryptionSettings")
    }
}

impl EncryptedFs {
    /// Returns `fs` with encryption: new files are encrypted with the current key of `keys`, except
    /// those for whose names `is_plain` returns true. `rand` supplies nonces. If `fs` encrypts
    /// already, its keys are replaced.
    pub fn wrap(
        fs: &Arc<dyn Fs>,
        keys: Arc<dyn KeyProvider>,
        rand: Arc<dyn Rand>,
        is_plain: fn(&str) -> bool,
    ) -> Arc<dyn Fs> {
        let inner = fs.without_encryption().unwrap_or_else(|| Arc::clone(fs));
        let keys = Arc::new(KeyCache::new(keys, rand));
        Arc::new(EncryptedFs { inner, shared: EncryptionSettings { keys, is_plain } })
    }
}

impl Fs for EncryptedFs {
    fn open_dir(&self, path: &Path, mode: DirOpenMode) -> Result<Arc<dyn Dir>> {
        let inner = self.inner.open_dir(path, mode)?;
        Ok(Arc::new(EncryptedDir::new(inner, self.shared.clone())))
    }
    fn boot_id(&self) -> u64 {
        self.inner.boot_id()
    }
    fn memory_limit_bytes(&self) -> Option<u64> {
        self.inner.memory_limit_bytes()
    }
    fn resident_bytes(&self) -> Option<u64> {
        self.inner.resident_bytes()
    }
    fn trim_heap(&self) {
        self.inner.trim_heap();
    }
    fn open_file_limit(&self) -> Option<u64> {
        self.inner.open_file_limit()
    }
    fn open_file_limiter(&self) -> Arc<OpenFileLimiter> {
        self.inner.open_file_limiter()
    }
    fn rename_dir(&self, from: &Path, to: &Path) -> Result<()> {
        self.inner.rename_dir(from, to)
    }
    fn remove_dir(&self, path: &Path) -> Result<()> {
        self.inner.remove_dir(path)
    }
    fn without_encryption(&self) -> Option<Arc<dyn Fs>> {
        Some(Arc::clone(&self.inner))
    }
}

#[cfg(all(test, feature = "sim"))]
mod tests;
