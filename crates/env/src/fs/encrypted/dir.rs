//! A directory whose files are encrypted.

use super::EncryptionSettings;
use super::files::{
    EncryptedRandomAccessFile, EncryptedWritableFile, FileEncryption, StoredForm, read_header,
    stored_form,
};
use super::header::HEADER_BYTES;
use crate::fs::{Dir, DirLock, RandomAccessFile, WritableFile};
use perigee_base::Result;
use std::path::Path;
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct EncryptedDir {
    inner: Arc<dyn Dir>,
    settings: EncryptionSettings,
}

impl EncryptedDir {
    pub fn new(inner: Arc<dyn Dir>, settings: EncryptionSettings) -> EncryptedDir {
        EncryptedDir { inner, settings }
    }
    fn is_plain(&self, name: &str) -> bool {
        (self.settings.is_plain)(name)
    }
}

impl Dir for EncryptedDir {
    fn path(&self) -> &Path {
        self.inner.path()
    }
    fn is_located_at(&self, path: &Path) -> Result<bool> {
        self.inner.is_located_at(path)
    }
    fn list(&self) -> Result<Vec<String>> {
        self.inner.list()
    }
    fn list_non_files(&self) -> Result<Vec<String>> {
        self.inner.list_non_files()
    }
    /// The length of the contents.
    fn file_len(&self, name: &str) -> Result<Option<u64>> {
        let Some(stored) = self.inner.file_len(name)? else { return Ok(None) };
        if stored == 0 || self.is_plain(name) {
            return Ok(Some(stored));
        }
        Ok(Some(match stored_form(&*self.inner.open(name)?)? {
            StoredForm::Plain => stored,
            StoredForm::Unfinished => 0,
            StoredForm::Encrypted => stored.saturating_sub(HEADER_BYTES as u64),
        }))
    }
    fn create(&self, name: &str) -> Result<Arc<dyn WritableFile>> {
        if self.is_plain(name) {
            return self.inner.create(name);
        }
        let Some(current) = self.settings.keys.current().map_err(|e| e.in_file(name))? else {
            return self.inner.create(name);
        };
        let inner = self.inner.create(name)?;
        let keys = &self.settings.keys;
        Ok(Arc::new(EncryptedWritableFile::create(inner, name, keys, current)))
    }
    fn append_to(&self, name: &str) -> Result<Arc<dyn WritableFile>> {
        if self.is_plain(name) {
            return self.inner.append_to(name);
        }
        let keys = &self.settings.keys;
        // Closed before the file is opened for writing.
        let found = read_header(&*self.inner.open(name)?, name, keys)?;
        match found {
            FileEncryption::Plain | FileEncryption::Empty => self.inner.append_to(name),
            FileEncryption::Encrypted(header) => {
                let inner = self.inner.append_to(name)?;
                Ok(Arc::new(EncryptedWritableFile::append_to(inner, name, keys, header)))
            }
        }
    }
    fn open(&self, name: &str) -> Result<Arc<dyn RandomAccessFile>> {
        let inner = self.inner.open(name)?;
        if self.is_plain(name) {
            return Ok(inner);
        }
        let opened = match read_header(&*inner, name, &self.settings.keys)? {
            FileEncryption::Plain => return Ok(inner),
            FileEncryption::Empty => None,
            FileEncryption::Encrypted(opened) => Some(opened),
        };
        Ok(Arc::new(EncryptedRandomAccessFile::new(inner, name, opened)))
    }
    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.inner.rename(from, to)
    }
    fn remove(&self, name: &str) -> Result<()> {
        self.inner.remove(name)
    }
    fn sync(&self) -> Result<()> {
        self.inner.sync()
    }
    fn sync_files(&self, files: &[Arc<dyn WritableFile>]) -> Result<()> {
        self.inner.sync_files(files)
    }
    fn free_space(&self) -> Result<u64> {
        self.inner.free_space()
    }
    fn lock(&self, name: &str) -> Result<Box<dyn DirLock>> {
        self.inner.lock(name)
    }
    fn subdir(&self, name: &str) -> Result<Arc<dyn Dir>> {
        Ok(Arc::new(EncryptedDir::new(self.inner.subdir(name)?, self.settings.clone())))
    }
    fn move_into(&self, name: &str, subdir: &str) -> Result<()> {
        self.inner.move_into(name, subdir)
    }
    /// Plain files are not linked: their copies are encrypted.
    fn link_into(&self, name: &str, target: &dyn Dir) -> Result<bool> {
        if !self.is_plain(name)
            && self.settings.keys.current()?.is_some()
            && stored_form(&*self.inner.open(name)?)? != StoredForm::Encrypted
        {
            return Ok(false);
        }
        self.inner.link_into(name, target)
    }
}
