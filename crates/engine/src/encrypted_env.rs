//! Which files of a database are encrypted.

use perigee_env::Env;
use perigee_env::encryption::{EncryptedFs, KeyProvider};
use perigee_file::filename;
use std::sync::Arc;

/// Returns the environment `env` with encryption at rest: new files are encrypted with the current
/// key of `keys`, except the lock file, the info log, the ballast, and options files (`*.toml`).
/// Encryption that `env` has already is replaced.
pub fn encrypt_env(env: Env, keys: Arc<dyn KeyProvider>) -> Env {
    let fs = EncryptedFs::wrap(&env.fs, keys, Arc::clone(&env.rand), is_plain_file);
    Env { fs, ..env }
}

/// Returns true for files without keys, values or metadata of a database.
fn is_plain_file(name: &str) -> bool {
    [filename::LOCK, filename::BALLAST].contains(&name)
        || filename::is_info_log_name(name)
        || name.ends_with(".toml")
        || name.ends_with(".toml.tmp")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_with_data_are_not_plain() {
        for name in ["MANIFEST", "MANIFEST.tmp", "000001.wal", "000002.klog", "000003.vlog", "x"] {
            assert!(!is_plain_file(name), "{name}");
        }
        for name in ["LOCK", "LOG", "LOG.1", "BALLAST", "perigee.toml"] {
            assert!(is_plain_file(name), "{name}");
        }
    }
}
