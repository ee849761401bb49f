//! Keys of encrypted files, and the interface that supplies them.

use perigee_base::{Error, ErrorKind, Result};
use std::collections::BTreeMap;
use std::fmt;
use zeroize::Zeroizing;

/// Size of a key, in bytes.
pub const KEY_BYTES: usize = 32;

/// Identifies a key: the number of a key, and its version, which changes at each rotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId {
    /// The number of the key.
    pub id: u32,
    /// Its version.
    pub version: u32,
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} version {}", self.id, self.version)
    }
}

/// A key of 32 bytes, for AES-256. It is erased from memory when it is dropped, and never printed.
#[derive(Clone)]
pub struct EncryptionKey(Zeroizing<[u8; KEY_BYTES]>);

impl EncryptionKey {
    /// Returns the key made of these bytes, which should be random.
    pub fn new(bytes: [u8; KEY_BYTES]) -> EncryptionKey {
        EncryptionKey(Zeroizing::new(bytes))
    }
    pub(super) fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }
}

impl fmt::Debug for EncryptionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EncryptionKey(..)")
    }
}

/// Supplies the keys of an encrypted database, for example from a key management service. Called
/// when a file is created or opened; the keys of files that were opened are remembered until the
/// database is closed. Must not call the database.
pub trait KeyProvider: Send + Sync {
    /// Returns the key of new files: the newest version, so that a rotated key is used for every
    /// file that is created from then on.
    ///
    /// # Errors
    /// Any; the file is not created.
    fn current(&self) -> Result<(KeyId, EncryptionKey)>;
    /// Returns the key of an existing file.
    ///
    /// # Errors
    /// Any, usually `NotFound`; the file is not opened.
    fn key(&self, id: KeyId) -> Result<EncryptionKey>;
    /// Returns false if new files are not encrypted, only existing ones decrypted, so that
    /// rewriting a database decrypts it.
    fn encrypts_new_files(&self) -> bool {
        true
    }
}

/// A fixed set of keys; new files use the one with the highest version.
#[derive(Clone, Debug)]
pub struct KeyRing {
    id: u32,
    versions: BTreeMap<u32, EncryptionKey>,
}

impl KeyRing {
    /// Returns a ring with one key, version 1 of key 1.
    pub fn new(key: [u8; KEY_BYTES]) -> KeyRing {
        KeyRing { id: 1, versions: BTreeMap::from([(1, EncryptionKey::new(key))]) }
    }
    /// Adds a version of the key, or replaces it.
    #[must_use]
    pub fn with_version(mut self, version: u32, key: [u8; KEY_BYTES]) -> KeyRing {
        self.versions.insert(version, EncryptionKey::new(key));
        self
    }
}

impl KeyProvider for KeyRing {
    fn current(&self) -> Result<(KeyId, EncryptionKey)> {
        let newest = self.versions.last_key_value();
        let (version, key) = newest.ok_or_else(|| Error::internal("a key ring without keys"))?;
        Ok((KeyId { id: self.id, version: *version }, key.clone()))
    }
    fn key(&self, id: KeyId) -> Result<EncryptionKey> {
        let key = self.versions.get(&id.version).filter(|_| id.id == self.id);
        key.cloned().ok_or_else(|| Error::new(ErrorKind::NotFound, "it is not in the key ring"))
    }
}
