//! Options from JavaScript. Options of databases and column families arrive as the text of an
//! options file, which the engine checks; its messages suggest the nearest known option.

use napi_derive::napi;
use perigee::{Durability, Error, FamilyOptions, Isolation, LockMode, Result, TxnOptions};
use std::time::Duration;

/// Options of a transaction.
#[napi(object)]
pub struct NativeTxnOptions {
    /// Isolation level: `read committed`, `repeatable read`, `snapshot` or `serializable`.
    pub isolation: Option<String>,
    /// Rejects writes.
    pub read_only: Option<bool>,
    /// Locks keys before writing them.
    pub pessimistic: Option<bool>,
    /// Longest wait for a lock, in milliseconds.
    pub lock_timeout: Option<f64>,
    /// Longest duration of the transaction, in milliseconds.
    pub timeout: Option<f64>,
    /// Limit in bytes for the writes.
    pub max_bytes: Option<f64>,
    /// Bytes of writes kept in memory.
    pub spill_bytes: Option<f64>,
}

impl NativeTxnOptions {
    /// Converts to the options of the engine.
    pub fn to_engine(&self) -> Result<TxnOptions> {
        let mut options = TxnOptions::new()
            .read_only(self.read_only.unwrap_or(false))
            .pessimistic(self.pessimistic.unwrap_or(false));
        if let Some(name) = &self.isolation {
            options = options.isolation(name.parse::<Isolation>()?);
        }
        if let Some(ms) = self.lock_timeout {
            options = options.lock_timeout(milliseconds("lockTimeout", ms)?);
        }
        if let Some(ms) = self.timeout {
            options = options.timeout(milliseconds("timeout", ms)?);
        }
        if let Some(bytes) = self.max_bytes {
            options = options.max_bytes(byte_count("maxBytes", bytes)?);
        }
        if let Some(bytes) = self.spill_bytes {
            options = options.spill_bytes(byte_count("spillBytes", bytes)?);
        }
        Ok(options)
    }
}

/// Converts a number of milliseconds; `Infinity` means no limit.
pub fn milliseconds(name: &str, ms: f64) -> Result<Duration> {
    if ms == f64::INFINITY {
        return Ok(Duration::MAX);
    }
    Duration::try_from_secs_f64(ms / 1000.0).map_err(|_| {
        Error::invalid(format!("{name} must be a number of milliseconds, at least 0, not {ms}"))
    })
}

fn byte_count(name: &str, bytes: f64) -> Result<u64> {
    if bytes >= 0.0 && bytes <= u64::MAX as f64 {
        return Ok(bytes as u64);
    }
    Err(Error::invalid(format!("{name} must be a number of bytes, at least 0, not {bytes}")))
}

/// Converts the durability of a single write; `None`: that of the database.
pub fn durability(name: Option<&str>) -> Result<Option<Durability>> {
    match name {
        None => Ok(None),
        Some("full") => Ok(Some(Durability::Full)),
        Some("none") => Ok(Some(Durability::None)),
        Some(other) => Err(Error::invalid(format!(
            "the durability of a write must be \"full\" or \"none\", not {other:?}"
        ))),
    }
}

/// Converts the mode of a lock.
pub fn lock_mode(name: &str) -> Result<LockMode> {
    match name {
        "exclusive" => Ok(LockMode::Exclusive),
        "shared" => Ok(LockMode::Shared),
        other => Err(Error::invalid(format!(
            "the mode of a lock must be \"exclusive\" or \"shared\", not {other:?}"
        ))),
    }
}

/// Parses the options of one column family: the lines of its table in an options file.
pub fn family_options(lines: &str) -> Result<FamilyOptions> {
    let parsed = perigee::Options::from_toml(&format!("[family.options]\n{lines}"))?;
    Ok(parsed.families.get("options").cloned().unwrap_or_default())
}
