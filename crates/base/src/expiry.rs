//! When an entry ends: an absolute time in milliseconds, so that no arithmetic on it can overflow later, and
//! the question what time it is, which only the engine can answer. Must not know where the time comes from.

use crate::{Error, Result};
use std::fmt::Debug;
use std::sync::{Arc, OnceLock};

/// The first millisecond since the Unix epoch at which the entry is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Expiry(pub u64);

impl Expiry {
    /// Bytes of it in front of a stored value: u64, little-endian.
    pub const BYTES: usize = 8;

    /// So long after `now_ms`; at the end of time if that is too far.
    #[must_use]
    pub fn after(now_ms: u64, ttl_ms: u128) -> Expiry {
        Expiry(now_ms.saturating_add(u64::try_from(ttl_ms).unwrap_or(u64::MAX)))
    }
    /// Whether the entry is gone at `now_ms`.
    #[inline]
    pub fn passed(self, now_ms: u64) -> bool {
        self.0 <= now_ms
    }
    /// The bytes on disk.
    pub fn encode(self) -> [u8; Expiry::BYTES] {
        self.0.to_le_bytes()
    }
    /// Splits a stored value into its end and the rest.
    #[inline]
    pub fn split(stored: &[u8]) -> Result<(Expiry, &[u8])> {
        match stored.split_first_chunk::<{ Expiry::BYTES }>() {
            Some((ms, rest)) => Ok((Expiry(u64::from_le_bytes(*ms)), rest)),
            None => Err(Error::corruption("an expiring entry is too short for its time")
                .expected(format_args!("at least {}", Expiry::BYTES), stored.len())),
        }
    }
}

/// What time it is, for entries that expire. Asked only where one is met.
pub trait Now: Debug + Send + Sync {
    /// The time that reads go by, in milliseconds since the Unix epoch.
    fn now_ms(&self) -> u64;
    /// The time by which an entry may be destroyed: it does not follow a clock that has just jumped forward.
    fn settled_ms(&self) -> u64;
}

/// A time that stands still: for rewrites and views in tests.
#[derive(Clone, Copy, Debug, Default)]
pub struct Frozen(pub u64);

impl Now for Frozen {
    fn now_ms(&self) -> u64 {
        self.0
    }
    fn settled_ms(&self) -> u64 {
        self.0
    }
}

/// The time of the first question, kept for those that follow: whoever asks about one entry twice gets one answer.
#[derive(Debug)]
pub struct Kept {
    of: Arc<dyn Now>,
    now_ms: OnceLock<u64>,
    settled_ms: OnceLock<u64>,
}

impl Kept {
    /// Of that clock, not yet asked.
    pub fn of(clock: &Arc<dyn Now>) -> Kept {
        Kept { of: Arc::clone(clock), now_ms: OnceLock::new(), settled_ms: OnceLock::new() }
    }
}

impl Now for Kept {
    fn now_ms(&self) -> u64 {
        *self.now_ms.get_or_init(|| self.of.now_ms())
    }
    fn settled_ms(&self) -> u64 {
        *self.settled_ms.get_or_init(|| self.of.settled_ms())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_saturate_and_split() {
        assert_eq!(Expiry::after(5, 7), Expiry(12));
        assert_eq!(Expiry::after(u64::MAX - 1, 7), Expiry(u64::MAX));
        assert_eq!(Expiry::after(5, u128::MAX), Expiry(u64::MAX));
        assert!(Expiry(5).passed(5) && !Expiry(5).passed(4));
        let stored = [&Expiry(258).encode()[..], b"v"].concat();
        assert_eq!(Expiry::split(&stored).unwrap(), (Expiry(258), &b"v"[..]));
        assert!(Expiry::split(&stored[..7]).is_err());
    }
}
