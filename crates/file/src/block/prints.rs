//! Fingerprints: one byte of each key's hash, side by side, so that a look-up in a block that is asked often reads a few
//! neighbouring lines of memory and one key, where a binary search meets a new line at every step. Made on the way, once a
//! block was asked a few times: most blocks that are read never are. Must not know blocks.
//!
//! A fingerprint never answers: it says where to look first. Whole keys are compared, and where nothing is found the
//! search goes the long way.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// A block has fingerprints from this look-up on: making them costs as much as five to ten searches save.
pub const WORTH: u8 = 8;

/// The fingerprints of a block, when there are any.
#[derive(Debug, Default)]
pub struct Prints {
    asked: AtomicU8,
    bytes: OnceLock<Box<[u8]>>,
}

/// A copy begins without any.
impl Clone for Prints {
    fn clone(&self) -> Prints {
        Prints::default()
    }
}

impl Prints {
    /// The entries that may have the key of that hash, in order; `None` if there are no fingerprints. `hashes` makes them: the
    /// hash of every entry's key.
    #[inline]
    pub fn candidates<I: Iterator<Item = u64>>(
        &self,
        hash: u64,
        hashes: impl FnOnce() -> I,
    ) -> Option<impl Iterator<Item = usize>> {
        let prints = match self.bytes.get() {
            Some(prints) => prints,
            None => self.begin(hashes)?,
        };
        Some(memchr::memchr_iter(print(hash), prints))
    }

    /// Counts a look-up; the fingerprints, if it is time for them.
    #[cold]
    fn begin<I: Iterator<Item = u64>>(&self, hashes: impl FnOnce() -> I) -> Option<&[u8]> {
        let asked = self.asked.load(Relaxed).saturating_add(1);
        self.asked.store(asked, Relaxed); // a count that gets lost costs nothing
        (asked >= WORTH).then(|| &**self.bytes.get_or_init(|| hashes().map(print).collect()))
    }
}

/// Any byte of the hash will do: within a block, what the filter asked says little.
#[inline]
fn print(hash: u64) -> u8 {
    hash as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_come_with_the_eighth_question_and_miss_nobody() {
        let prints = Prints::default();
        let hashes = [7, 300, 44, 7 + 256, u64::MAX];
        let ask = |hash| prints.candidates(hash, || hashes.into_iter()).map(|c| c.collect::<Vec<_>>());
        assert!((1..WORTH).all(|_| ask(7).is_none()));
        assert_eq!(ask(7), Some(vec![0, 3]), "256 hashes share a fingerprint");
        assert_eq!(ask(44), Some(vec![1, 2]));
        assert_eq!(ask(5), Some(vec![]));
        assert!(prints.clone().candidates(7, || hashes.into_iter()).is_none());
    }
}
