//! The key provider of an encrypted file system, with the keys that it has supplied: makes and
//! reads headers.

use super::cipher::{FileCipher, MasterKey, NONCE_BYTES};
use super::header::CryptHeader;
use super::keys::{EncryptionKey, KeyId, KeyProvider};
use crate::rand::Rand;
use perigee_base::{Error, ErrorKind, Result};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Keys by id, expanded.
pub(super) struct KeyCache {
    provider: Arc<dyn KeyProvider>,
    rand: Arc<dyn Rand>,
    keys: Mutex<BTreeMap<KeyId, Arc<MasterKey>>>,
}

/// The key of a new file.
#[derive(Clone)]
pub(super) struct CurrentKey {
    id: KeyId,
    key: Arc<MasterKey>,
}

impl KeyCache {
    pub fn new(provider: Arc<dyn KeyProvider>, rand: Arc<dyn Rand>) -> KeyCache {
        KeyCache { provider, rand, keys: Mutex::default() }
    }

    fn lock_keys(&self) -> MutexGuard<'_, BTreeMap<KeyId, Arc<MasterKey>>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn insert(&self, id: KeyId, key: &EncryptionKey) -> Arc<MasterKey> {
        let key = Arc::new(MasterKey::new(key));
        self.lock_keys().insert(id, Arc::clone(&key));
        key
    }

    /// Returns the key for a new file; `None` if new files are not encrypted.
    pub fn current(&self) -> Result<Option<CurrentKey>> {
        if !self.provider.encrypts_new_files() {
            return Ok(None);
        }
        let (id, key) = self.provider.current().map_err(|e| {
            let kind = e.kind();
            e.wrap(kind, "the encryption key for new files is not available")
        })?;
        // Not from the cache: the provider's answer is newer.
        Ok(Some(CurrentKey { id, key: self.insert(id, &key) }))
    }

    /// Returns the header and the cipher of a new file.
    pub fn new_file(&self, current: &CurrentKey) -> (CryptHeader, Arc<FileCipher>) {
        let mut nonce = [0; NONCE_BYTES];
        self.rand.fill_unique(&mut nonce);
        nonce[NONCE_BYTES - 1] = 0;
        let cipher = current.key.derive(&nonce);
        let header = CryptHeader { key: current.id, nonce, check_value: cipher.check_value() };
        check_slow!(
            header.check_key(&cipher).is_ok(),
            "a file can be read with the key that it is written with",
            current.id
        );
        (header, Arc::new(cipher))
    }

    /// Returns the cipher of the file with this header.
    ///
    /// # Errors
    /// `InvalidArgument` if the key is missing or wrong; any other error of the provider.
    pub fn cipher_of(&self, header: &CryptHeader) -> Result<Arc<FileCipher>> {
        let known = self.lock_keys().get(&header.key).cloned();
        let key = match known {
            Some(key) => key,
            None => self.insert(header.key, &self.fetch(header.key)?),
        };
        let cipher = key.derive(&header.nonce);
        header.check_key(&cipher).inspect_err(|_| {
            // The provider may be corrected before the next attempt.
            self.lock_keys().remove(&header.key);
        })?;
        Ok(Arc::new(cipher))
    }

    fn fetch(&self, id: KeyId) -> Result<EncryptionKey> {
        self.provider.key(id).map_err(|e| {
            let kind = match e.kind() {
                ErrorKind::NotFound => ErrorKind::InvalidArgument,
                other => other,
            };
            let text = format!(
                "encryption key {id}, which the file was written with, is not available; supply it \
                 and open the database again"
            );
            e.wrap(kind, &text)
        })
    }
}

impl fmt::Debug for KeyCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyCache")
    }
}

/// Returns the error for a keystream that cannot go on, which ends all writes to the file.
pub(super) fn exhausted_error() -> Error {
    Error::new(
        ErrorKind::Io,
        "the end of this encrypted file was rolled back too often; reopen the database, which \
         continues in a new file",
    )
}
