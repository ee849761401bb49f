//! Encryption keys, from the key management of the server.

use perigee::encryption::{EncryptionKey, KEY_BYTES, KeyId, KeyProvider};
use perigee::{Error, ErrorKind, Result};

/// Returned instead of a version if there is no such key.
const NO_VERSION: u32 = u32::MAX;

/// Where the keys come from, `pgb_keys` in C.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)] // Documented in `bridge.h`.
pub struct ServerKeys {
    pub latest_version: Option<unsafe extern "C" fn(key_id: u32) -> u32>,
    pub get: Option<
        unsafe extern "C" fn(key_id: u32, version: u32, key: *mut u8, size: *mut u32) -> u32,
    >,
    pub key_id: u32,
    pub encrypt: u8,
}

impl ServerKeys {
    /// Keys of a server without key management.
    pub const NONE: ServerKeys =
        ServerKeys { latest_version: None, get: None, key_id: 0, encrypt: 0 };
}

fn missing(what: std::fmt::Arguments<'_>) -> Error {
    Error::new(
        ErrorKind::NotFound,
        format!(
            "the server has no {what}: load its encryption plugin (for example \
             file_key_management) with this key"
        ),
    )
}

impl KeyProvider for ServerKeys {
    fn current(&self) -> Result<(KeyId, EncryptionKey)> {
        // SAFETY: a function of the server, without conditions.
        let version =
            self.latest_version.map_or(NO_VERSION, |latest| unsafe { latest(self.key_id) });
        if version == NO_VERSION {
            return Err(missing(format_args!("encryption key with id {}", self.key_id)));
        }
        let id = KeyId { id: self.key_id, version };
        Ok((id, self.key(id)?))
    }

    fn key(&self, id: KeyId) -> Result<EncryptionKey> {
        let none = || missing(format_args!("encryption key {id}"));
        let get = self.get.ok_or_else(none)?;
        let mut bytes = [0; KEY_BYTES];
        let mut size = KEY_BYTES as u32;
        // SAFETY: writes at most `size` bytes to the buffer, which has that size.
        let failed = unsafe { get(id.id, id.version, bytes.as_mut_ptr(), &raw mut size) };
        let size = size as usize;
        if failed != 0 || size == 0 || size > KEY_BYTES {
            return Err(none());
        }
        // A shorter key is repeated.
        (size..KEY_BYTES).for_each(|i| bytes[i] = bytes[i - size]);
        Ok(EncryptionKey::new(bytes))
    }

    fn encrypts_new_files(&self) -> bool {
        self.encrypt != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" fn latest(key_id: u32) -> u32 {
        if key_id == 1 { 7 } else { NO_VERSION }
    }
    unsafe extern "C" fn get(key_id: u32, version: u32, key: *mut u8, size: *mut u32) -> u32 {
        // SAFETY: the buffer holds 32 bytes.
        unsafe {
            *size = 16;
            key.write_bytes(version as u8, 16);
        }
        u32::from(key_id != 1)
    }

    #[test]
    fn keys_come_from_the_server() {
        let keys =
            ServerKeys { latest_version: Some(latest), get: Some(get), key_id: 1, encrypt: 1 };
        assert_eq!(keys.current().unwrap().0, KeyId { id: 1, version: 7 });
        let other = ServerKeys { key_id: 2, ..keys };
        let e = other.current().unwrap_err();
        assert!(e.to_string().contains("encryption key with id 2"), "{e}");
        assert!(keys.key(KeyId { id: 2, version: 7 }).is_err());
        assert!(ServerKeys::NONE.current().is_err());
        assert!(ServerKeys::NONE.key(KeyId { id: 1, version: 1 }).is_err());
        assert!(keys.encrypts_new_files() && !ServerKeys::NONE.encrypts_new_files());
    }
}
