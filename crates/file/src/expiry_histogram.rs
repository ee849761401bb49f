//! A histogram of the times at which the entries of a table expire, in at most 32 buckets, as fine
//! as that allows. Independent of the current time.
//!
//! ```text
//! raw  varint shift | (varint step, varint count) for each bucket that has entries, ascending
//! ```
//! Bucket *n* holds the times from `n << shift` up to but excluding `(n + 1) << shift`, in
//! milliseconds. A step is the difference to the previous bucket number; the first is the bucket
//! number itself. The shift is the smallest that needs no more than 32 buckets, in whatever order
//! the times were added.

use crate::limits::{EXPIRY_BUCKETS_MAX, EXPIRY_SHIFT_MAX};
use perigee_base::codec::{Decoder, put_varint};
use perigee_base::{Error, Expiry, Result};

const _: () = assert!(
    EXPIRY_SHIFT_MAX + EXPIRY_BUCKETS_MAX.ilog2() as u64 >= 63,
    "every expiry has a bucket"
);

/// Number of entries by expiry time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExpiryHistogram {
    shift: u32,
    /// Bucket number and count; numbers ascend, counts are above 0.
    buckets: Vec<(u64, u64)>,
}

impl ExpiryHistogram {
    /// Returns true if no entry expires.
    pub fn is_empty(&self) -> bool {
        self.buckets.is_empty()
    }
    /// Counts an entry.
    pub fn add(&mut self, at: Expiry) {
        let n = at.0 >> self.shift;
        match self.buckets.binary_search_by_key(&n, |(n, _)| *n) {
            Ok(i) => self.buckets[i].1 += 1,
            Err(i) => self.buckets.insert(i, (n, 1)),
        }
        while self.buckets.len() > EXPIRY_BUCKETS_MAX {
            self.coarsen();
        }
        check_slow!(self.is_valid(), "the buckets of a histogram ascend and are few", self);
    }
    fn is_valid(&self) -> bool {
        u64::from(self.shift) <= EXPIRY_SHIFT_MAX
            && self.buckets.len() <= EXPIRY_BUCKETS_MAX
            && self.buckets.windows(2).all(|w| w[0].0 < w[1].0)
            && self.buckets.iter().all(|(_, count)| *count > 0)
    }

    fn coarsen(&mut self) {
        self.shift += 1;
        let mut coarse: Vec<(u64, u64)> = Vec::with_capacity(self.buckets.len());
        for (n, count) in &self.buckets {
            match coarse.last_mut() {
                Some((last, sum)) if *last == n >> 1 => *sum += count,
                _ => coarse.push((n >> 1, *count)),
            }
        }
        let total =
            |all: &[(u64, u64)]| all.iter().map(|(_, count)| u128::from(*count)).sum::<u128>();
        check_slow!(
            total(&coarse) == total(&self.buckets),
            "coarser buckets count the same entries"
        );
        self.buckets = coarse;
    }

    /// Returns the last millisecond of a bucket.
    fn bucket_end_ms(&self, n: u64) -> u64 {
        let end = ((u128::from(n) + 1) << self.shift) - 1;
        u64::try_from(end).unwrap_or(u64::MAX)
    }
    /// Returns the number of entries that have certainly expired by `now_ms`; a lower bound.
    pub fn expired_count(&self, now_ms: u64) -> u64 {
        let over = self.buckets.iter().take_while(|(n, _)| self.bucket_end_ms(*n) <= now_ms);
        over.fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }
    /// Returns the time by which at least `count` entries have certainly expired; `None` if fewer
    /// expire.
    pub fn nth_expiry_ms(&self, count: u64) -> Option<u64> {
        let mut sum = 0u64;
        self.buckets.iter().find_map(|(n, more)| {
            sum = sum.saturating_add(*more);
            (sum >= count).then(|| self.bucket_end_ms(*n))
        })
    }
    /// Returns the heap memory, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        (self.buckets.capacity() * size_of::<(u64, u64)>()) as u64
    }

    /// Encodes the raw form.
    pub fn encode(&self) -> Vec<u8> {
        let (mut out, mut before) = (Vec::new(), 0);
        put_varint(&mut out, u64::from(self.shift));
        for (n, count) in &self.buckets {
            put_varint(&mut out, n - before);
            put_varint(&mut out, *count);
            before = *n;
        }
        check_slow!(
            self.is_empty() || ExpiryHistogram::decode(&out).is_ok_and(|read| read == *self),
            "a histogram decodes to itself",
            self
        );
        out
    }
    /// Decodes the raw form.
    ///
    /// # Errors
    /// `Corruption` if it is malformed.
    pub fn decode(raw: &[u8]) -> Result<ExpiryHistogram> {
        let malformed = || Error::corruption("malformed expiry histogram");
        let mut d = Decoder::new(raw);
        let shift = d.varint()?;
        let mut buckets: Vec<(u64, u64)> = Vec::new();
        while !d.is_empty() {
            let (step, count) = (d.varint()?, d.varint()?);
            let n = match buckets.last() {
                Some((last, _)) if step > 0 => last.checked_add(step).ok_or_else(malformed)?,
                Some(_) => return Err(malformed()),
                None => step,
            };
            if count == 0 || buckets.len() == EXPIRY_BUCKETS_MAX {
                return Err(malformed());
            }
            buckets.push((n, count));
        }
        let last = buckets.last().ok_or_else(malformed)?.0;
        if shift > EXPIRY_SHIFT_MAX || last > u64::MAX >> shift {
            return Err(malformed());
        }
        Ok(ExpiryHistogram { shift: shift as u32, buckets })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram_of(times: impl IntoIterator<Item = u64>) -> ExpiryHistogram {
        let mut e = ExpiryHistogram::default();
        times.into_iter().for_each(|ms| e.add(Expiry(ms)));
        e
    }

    #[test]
    fn few_expiry_times_are_exact() {
        let e = histogram_of([50, 7, 50, u64::MAX]);
        assert_eq!([6, 7, 49, 50, u64::MAX - 1].map(|now| e.expired_count(now)), [0, 1, 1, 3, 3]);
        assert_eq!(
            [1, 2, 3, 4, 5].map(|n| e.nth_expiry_ms(n)),
            [Some(7), Some(50), Some(50), Some(u64::MAX), None]
        );
        assert_eq!(
            (
                histogram_of([]).expired_count(u64::MAX),
                histogram_of([]).nth_expiry_ms(1),
                histogram_of([]).is_empty()
            ),
            (0, None, true)
        );
    }

    /// Entries counted as expired have expired, and the others are counted at most one bucket
    /// later, in whatever order they were added.
    #[test]
    fn many_expiry_times_are_approximate_and_never_early() {
        let at = |i: u64| 1_000_000 + i.wrapping_mul(0x9E37_79B9) % 1_000_000;
        let times: Vec<u64> = (0..20_000).map(at).collect();
        let e = histogram_of(times.iter().copied());
        assert_eq!(e, histogram_of(times.iter().rev().copied()));
        for now in (900_000..2_100_000).step_by(10_000) {
            let expired = |by: u64| times.iter().filter(|t| **t <= by).count() as u64;
            assert!(
                e.expired_count(now) <= expired(now)
                    && e.expired_count(now) >= expired(now - 65_536),
                "{now}"
            );
            if e.expired_count(now) > 0 {
                assert!(e.nth_expiry_ms(e.expired_count(now)).unwrap() <= now);
            }
        }
        assert_eq!(e.nth_expiry_ms(20_000).map(|ms| e.expired_count(ms)), Some(20_000));
        assert_eq!(histogram_of((0..64).map(|i| u64::MAX << i)).nth_expiry_ms(64), Some(u64::MAX));
    }

    #[test]
    fn raw_form_round_trips_and_bad_forms_are_refused() {
        for e in [
            histogram_of([5]),
            histogram_of([0, u64::MAX]),
            histogram_of((0..1000).map(|i| i * i * 977)),
        ] {
            let raw = e.encode();
            assert_eq!(ExpiryHistogram::decode(&raw).unwrap(), e);
            assert!(raw.len() < 200);
        }
        let bad: [&[u8]; 7] =
            [&[], &[0], &[60, 1, 1], &[0, 1, 0], &[0, 1, 1, 0, 1], &[1, 1], &[0xff; 12]];
        for raw in bad {
            assert!(ExpiryHistogram::decode(raw).is_err(), "{raw:?}");
        }
    }
}
