//! Entry expiry: an absolute time in milliseconds, so that later arithmetic on it cannot overflow,
//! and the clock interface that the engine implements to evaluate it.

use crate::{Error, Result};
use std::fmt::Debug;
use std::sync::{Arc, OnceLock};

/// First millisecond since the Unix epoch at which the entry is expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Expiry(pub u64);

impl Expiry {
    /// Length of the encoded expiry that precedes a stored value: u64, little-endian.
    pub const BYTES: usize = 8;

    /// Returns the expiry `ttl_ms` after `now_ms`, saturating at `u64::MAX`.
    #[must_use]
    pub fn after_ttl(now_ms: u64, ttl_ms: u128) -> Expiry {
        Expiry(now_ms.saturating_add(u64::try_from(ttl_ms).unwrap_or(u64::MAX)))
    }
    /// Returns true if the entry is expired at `now_ms`.
    #[inline]
    pub fn is_expired(self, now_ms: u64) -> bool {
        self.0 <= now_ms
    }
    /// Returns the encoded form.
    pub fn encode(self) -> [u8; Expiry::BYTES] {
        self.0.to_le_bytes()
    }
    /// Splits a stored value into its expiry and the remaining bytes.
    #[inline]
    pub fn split_value(stored: &[u8]) -> Result<(Expiry, &[u8])> {
        match stored.split_first_chunk::<{ Expiry::BYTES }>() {
            Some((ms, rest)) => Ok((Expiry(u64::from_le_bytes(*ms)), rest)),
            None => Err(Error::corruption("an expiring entry is too short for its expiry")
                .expected(format_args!("at least {}", Expiry::BYTES), stored.len())),
        }
    }
}

/// Clock for entries that expire. Read only when an expiring entry is met.
pub trait ExpiryClock: Debug + Send + Sync {
    /// Returns the time used by reads, in milliseconds since the Unix epoch.
    fn now_ms(&self) -> u64;
    /// Returns the time used to decide whether an expired entry may be dropped, in milliseconds
    /// since the Unix epoch. It does not follow a clock that has just jumped forward.
    fn confirmed_ms(&self) -> u64;
}

/// A clock that does not advance, for tests of compactions and reads.
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

/// A clock that always returns its first reading, so that two checks of one entry agree.
#[derive(Debug)]
pub struct CachedClock {
    clock: Arc<dyn ExpiryClock>,
    now_ms: OnceLock<u64>,
    confirmed_ms: OnceLock<u64>,
}

impl CachedClock {
    /// Creates a cached clock over `clock`, which is first read when needed.
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
