//! When an entry ends: an absolute time in milliseconds, so that no arithmetic on it can overflow
//! later, and the question what time it is, which only the engine can answer. Must not know where
//! the time comes from.

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
    pub fn after_ttl(now_ms: u64, ttl_ms: u128) -> Expiry {
        Expiry(now_ms.saturating_add(u64::try_from(ttl_ms).unwrap_or(u64::MAX)))
    }
    /// Whether the entry is gone at `now_ms`.
    #[inline]
    pub fn is_expired(self, now_ms: u64) -> bool {
        self.0 <= now_ms
    }
    /// The bytes on disk.
    pub fn encode(self) -> [u8; Expiry::BYTES] {
        self.0.to_le_bytes()
    }
    /// Splits a stored value into its end and the rest.
    #[inline]
    pub fn split_value(stored: &[u8]) -> Result<(Expiry, &[u8])> {
        match stored.split_first_chunk::<{ Expiry::BYTES }>() {
            Some((ms, rest)) => Ok((Expiry(u64::from_le_bytes(*ms)), rest)),
            None => Err(Error::corruption("an expiring entry is too short for its time")
                .expected(format_args!("at least {}", Expiry::BYTES), stored.len())),
        }
    }
}

/// What time it is, for entries that expire. Asked only where one is met.
pub trait ExpiryClock: Debug + Send + Sync {
    /// The time that reads go by, in milliseconds since the Unix epoch.
    fn now_ms(&self) -> u64;
    /// The time by which an entry may be destroyed: it does not follow a clock that has just jumped
    /// forward.
    fn confirmed_ms(&self) -> u64;
}

/// A time that stands still: for rewrites and views in tests.
#[derive(Clone, Copy, Debug, Default)]
pub struct FixedClock(pub u64);

impl ExpiryClock for FixedClock {
    fn now_ms(&self) -> u64 {
        self.0
    }
    fn confirmed_ms(&self) -> u64 {
        self.0
    }
}

/// The time of the first question, kept for those that follow: whoever asks about one entry twice
/// gets one answer.
#[derive(Debug)]
pub struct CachedClock {
    clock: Arc<dyn ExpiryClock>,
    now_ms: OnceLock<u64>,
    confirmed_ms: OnceLock<u64>,
}

impl CachedClock {
    /// Of that clock, not yet asked.
    pub fn new(clock: &Arc<dyn ExpiryClock>) -> CachedClock {
        CachedClock {
            clock: Arc::clone(clock),
            now_ms: OnceLock::new(),
            confirmed_ms: OnceLock::new(),
        }
    }
}

impl ExpiryClock for CachedClock {
    fn now_ms(&self) -> u64 {
        *self.now_ms.get_or_init(|| self.clock.now_ms())
    }
    fn confirmed_ms(&self) -> u64 {
        *self.confirmed_ms.get_or_init(|| self.clock.confirmed_ms())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ttl_saturates_and_stored_expiry_splits() {
        assert_eq!(Expiry::after_ttl(5, 7), Expiry(12));
        assert_eq!(Expiry::after_ttl(u64::MAX - 1, 7), Expiry(u64::MAX));
        assert_eq!(Expiry::after_ttl(5, u128::MAX), Expiry(u64::MAX));
        assert!(Expiry(5).is_expired(5) && !Expiry(5).is_expired(4));
        let stored = [&Expiry(258).encode()[..], b"v"].concat();
        assert_eq!(Expiry::split_value(&stored).unwrap(), (Expiry(258), &b"v"[..]));
        assert!(Expiry::split_value(&stored[..7]).is_err());
    }
}
