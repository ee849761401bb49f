//! Delays writers while the load is high: one token bucket for all of them, so that eight writers
//! together are as fast as one. It does not depend on the load or its cause; `admit` does the
//! waiting.
//!
//! Small debts accumulate: a writer that owes less than the minimum wait continues, and a later one
//! waits for all. So a delay of three microseconds for each of many small commits does not cost a
//! system call per commit.

use crate::limits::{THROTTLE_DEBT_NS_MAX, THROTTLE_WAIT_NS_MIN};
use perigee_base::{Bytes, Micros};
use std::sync::{Mutex, PoisonError};

/// The time until which everything admitted so far is paid for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteTokenBucket {
    paid_until_ns: u64,
}

impl WriteTokenBucket {
    /// Charges `cost_ns` at `now_ns`; returns how long the caller must wait.
    #[must_use]
    fn charge(self, now_ns: u64, cost_ns: u64) -> (WriteTokenBucket, u64) {
        let debt = self
            .paid_until_ns
            .saturating_sub(now_ns)
            .saturating_add(cost_ns)
            .min(THROTTLE_DEBT_NS_MAX);
        (
            WriteTokenBucket { paid_until_ns: now_ns.saturating_add(debt) },
            if debt < THROTTLE_WAIT_NS_MIN { 0 } else { debt },
        )
    }
}

/// The delay for each chunk of bytes.
#[derive(Clone, Copy, Debug)]
pub struct ChunkDelay {
    /// Size of the chunk.
    pub chunk: Bytes,
    /// Its delay.
    pub delay: Micros,
}

/// The token bucket: bytes admitted above the target rate and not yet paid for. The mutex is taken
/// only while there is a delay; no I/O while it is held.
#[derive(Debug, Default)]
pub struct WriteThrottle(Mutex<WriteTokenBucket>);

impl WriteThrottle {
    /// Charges `bytes` at the price `per_chunk`; returns how long the caller must wait.
    pub fn charge(&self, now: Micros, bytes: Bytes, per_chunk: ChunkDelay) -> Micros {
        let ChunkDelay { chunk, delay } = per_chunk;
        let cost_ns = u128::from(delay.0) * 1000 * u128::from(bytes.0) / u128::from(chunk.0.max(1));
        check_slow!(
            delay.0 > 0 && chunk.0 > 0,
            "only writers with a delay are charged",
            chunk,
            delay
        );
        let mut bucket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (after, wait_ns) =
            bucket.charge(now.0.saturating_mul(1000), u64::try_from(cost_ns).unwrap_or(u64::MAX));
        *bucket = after;
        Micros(wait_ns / 1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the bytes that `writers` together write in ten seconds, and the longest wait.
    fn simulate_writers(writers: usize, batch: u64) -> (u64, u64) {
        let throttle = WriteThrottle::default();
        let (mut free, mut bytes, mut longest) = (vec![0u64; writers], 0, 0);
        loop {
            let (next, now) = free.iter().copied().enumerate().min_by_key(|(_, t)| *t).unwrap();
            if now >= 10_000_000 {
                return (bytes, longest);
            }
            let per_chunk = ChunkDelay { chunk: Bytes(64 << 10), delay: Micros(1000) };
            let wait = throttle.charge(Micros(now), Bytes(batch), per_chunk).0;
            (free[next], bytes, longest) = (now + 1 + wait, bytes + batch, longest.max(wait));
        }
    }

    #[test]
    fn writers_share_one_rate_with_short_waits() {
        for writers in [1, 2, 8] {
            for batch in [200, 20_000, 120_000, 4_000_000] {
                let (bytes, longest) = simulate_writers(writers, batch);
                assert!(
                    (bytes >> 20).abs_diff(625) < 20 + ((batch * writers as u64) >> 20),
                    "{writers} {batch}: {} MiB",
                    bytes >> 20
                );
                assert!(
                    longest < 600 + 17 * batch / 1000 * writers as u64,
                    "{writers} {batch}: {longest}"
                );
            }
        }
    }

    #[test]
    fn debt_is_bounded_and_decays_over_time() {
        let (b, wait) = WriteTokenBucket::default().charge(5, u64::MAX);
        assert_eq!(wait, THROTTLE_DEBT_NS_MAX);
        assert_eq!(b.charge(5 + THROTTLE_DEBT_NS_MAX, 0).1, 0);
        assert_eq!(WriteTokenBucket::default().charge(u64::MAX, 7).1, 0, "no overflow");
    }
}
