//! When the entries of a table expire: a histogram of at most 32 stretches of time, as fine as that allows. Must not know what
//! time it is.
//!
//! ```text
//! raw  varint shift | (varint step, varint count) for each stretch that has entries, ascending
//! ```
//! Stretch *n* holds the times from `n << shift` up to before `(n + 1) << shift`, in milliseconds. A step is the difference to the
//! stretch before; for the first it is its number. The shift is the smallest with which there are no more than 32 stretches,
//! whatever order the times came in.

use perigee_base::codec::{Decoder, put_varint};
use perigee_base::{Error, Expiry, Result};

/// Most stretches.
const STRETCHES_MAX: usize = 32;
/// With a larger shift there would be fewer stretches than 32 in all of time.
const SHIFT_MAX: u64 = 59;

/// How many entries expire when.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expiries {
    shift: u32,
    /// Number and count, numbers ascending, counts above 0.
    stretches: Vec<(u64, u64)>,
}

impl Expiries {
    /// Whether nothing expires.
    pub fn is_empty(&self) -> bool {
        self.stretches.is_empty()
    }
    /// Counts an entry.
    pub fn add(&mut self, at: Expiry) {
        let n = at.0 >> self.shift;
        match self.stretches.binary_search_by_key(&n, |(n, _)| *n) {
            Ok(i) => self.stretches[i].1 += 1,
            Err(i) => self.stretches.insert(i, (n, 1)),
        }
        while self.stretches.len() > STRETCHES_MAX {
            self.coarsen();
        }
    }

    fn coarsen(&mut self) {
        self.shift += 1;
        let mut coarse: Vec<(u64, u64)> = Vec::with_capacity(self.stretches.len());
        for (n, count) in &self.stretches {
            match coarse.last_mut() {
                Some((last, sum)) if *last == n >> 1 => *sum += count,
                _ => coarse.push((n >> 1, *count)),
            }
        }
        self.stretches = coarse;
    }

    /// The last time of a stretch.
    fn end_ms(&self, n: u64) -> u64 {
        let end = ((u128::from(n) + 1) << self.shift) - 1;
        u64::try_from(end).unwrap_or(u64::MAX)
    }
    /// How many entries have certainly expired by `now_ms`.
    pub fn passed(&self, now_ms: u64) -> u64 {
        let over = self.stretches.iter().take_while(|(n, _)| self.end_ms(*n) <= now_ms);
        over.fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }
    /// When so many have certainly expired; `None`: there are not so many.
    pub fn when(&self, count: u64) -> Option<u64> {
        let mut sum = 0u64;
        self.stretches.iter().find_map(|(n, more)| {
            sum = sum.saturating_add(*more);
            (sum >= count).then(|| self.end_ms(*n))
        })
    }
    /// Memory beside itself.
    pub fn memory_bytes(&self) -> u64 {
        (self.stretches.capacity() * size_of::<(u64, u64)>()) as u64
    }

    /// The raw form.
    pub fn encode(&self) -> Vec<u8> {
        let (mut out, mut before) = (Vec::new(), 0);
        put_varint(&mut out, u64::from(self.shift));
        for (n, count) in &self.stretches {
            put_varint(&mut out, n - before);
            put_varint(&mut out, *count);
            before = *n;
        }
        out
    }
    /// Decodes it.
    ///
    /// # Errors
    /// `Corruption` if it is none.
    pub fn decode(raw: &[u8]) -> Result<Expiries> {
        let wrong = || Error::corruption("the times at which entries expire make no sense");
        let mut d = Decoder::new(raw);
        let shift = d.varint()?;
        let mut stretches: Vec<(u64, u64)> = Vec::new();
        while !d.is_empty() {
            let (step, count) = (d.varint()?, d.varint()?);
            let n = match stretches.last() {
                Some((last, _)) if step > 0 => last.checked_add(step).ok_or_else(wrong)?,
                Some(_) => return Err(wrong()),
                None => step,
            };
            if count == 0 || stretches.len() == STRETCHES_MAX {
                return Err(wrong());
            }
            stretches.push((n, count));
        }
        let last = stretches.last().ok_or_else(wrong)?.0;
        if shift > SHIFT_MAX || last > u64::MAX >> shift {
            return Err(wrong());
        }
        Ok(Expiries { shift: shift as u32, stretches })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(times: impl IntoIterator<Item = u64>) -> Expiries {
        let mut e = Expiries::default();
        times.into_iter().for_each(|ms| e.add(Expiry(ms)));
        e
    }

    #[test]
    fn few_times_are_exact() {
        let e = of([50, 7, 50, u64::MAX]);
        assert_eq!([6, 7, 49, 50, u64::MAX - 1].map(|now| e.passed(now)), [0, 1, 1, 3, 3]);
        assert_eq!([1, 2, 3, 4, 5].map(|n| e.when(n)), [Some(7), Some(50), Some(50), Some(u64::MAX), None]);
        assert_eq!((of([]).passed(u64::MAX), of([]).when(1), of([]).is_empty()), (0, None, true));
    }

    /// What is said to have expired has, and what is not said is at most a stretch late; in whatever order they came.
    #[test]
    fn many_times_are_about_right_and_never_early() {
        let at = |i: u64| 1_000_000 + i.wrapping_mul(0x9E37_79B9) % 1_000_000;
        let times: Vec<u64> = (0..20_000).map(at).collect();
        let e = of(times.iter().copied());
        assert_eq!(e, of(times.iter().rev().copied()));
        for now in (900_000..2_100_000).step_by(10_000) {
            let expired = |by: u64| times.iter().filter(|t| **t <= by).count() as u64;
            assert!(e.passed(now) <= expired(now) && e.passed(now) >= expired(now - 65_536), "{now}");
            if e.passed(now) > 0 {
                assert!(e.when(e.passed(now)).unwrap() <= now);
            }
        }
        assert_eq!(e.when(20_000).map(|ms| e.passed(ms)), Some(20_000));
        assert_eq!(of((0..64).map(|i| u64::MAX << i)).when(64), Some(u64::MAX));
    }

    #[test]
    fn the_raw_form_says_all_and_other_bytes_are_refused() {
        for e in [of([5]), of([0, u64::MAX]), of((0..1000).map(|i| i * i * 977))] {
            let raw = e.encode();
            assert_eq!(Expiries::decode(&raw).unwrap(), e);
            assert!(raw.len() < 200);
        }
        let bad: [&[u8]; 7] = [&[], &[0], &[60, 1, 1], &[0, 1, 0], &[0, 1, 1, 0, 1], &[1, 1], &[0xff; 12]];
        for raw in bad {
            assert!(Expiries::decode(raw).is_err(), "{raw:?}");
        }
    }
}
