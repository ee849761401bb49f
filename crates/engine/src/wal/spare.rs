//! The segment that comes next, made before it is needed: a rotation is then a switch, without a system call in the commit section.
//!
//! Must not know how a segment is made, or by whom. Its lock is taken after the commit section's and before the manifest's; whoever
//! makes a segment holds it, so that segments come into the manifest in the order in which they are used.

use perigee_env::sync::{Mutex, MutexGuard};
use perigee_file::log::LogWriter;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// No more is allocated for a segment when it is made; what it takes beyond that it allocates on the way.
const ALLOCATED_MAX: u64 = 64 << 20;

/// A segment in waiting.
#[derive(Debug)]
pub struct Spare {
    made: Mutex<Option<LogWriter>>,
    /// Bytes that the next one will hold, about (0: nobody has asked for one).
    wanted: AtomicU64,
}

impl Spare {
    /// None, and nobody asks.
    pub fn new() -> Spare {
        Spare { made: Mutex::new(None), wanted: AtomicU64::new(0) }
    }
    /// Asks for one of so many bytes.
    pub fn ask(&self, bytes: u64) {
        self.wanted.store(bytes.clamp(1, ALLOCATED_MAX), SeqCst);
    }
    /// The bytes that were asked for, once.
    pub fn asked(&self) -> Option<u64> {
        Some(self.wanted.swap(0, SeqCst)).filter(|bytes| *bytes > 0)
    }
    /// The segment, if there is one; nobody makes another meanwhile.
    pub fn hold(&self) -> MutexGuard<'_, Option<LogWriter>> {
        self.made.lock()
    }
}

/// Segments with less in them need no successor soon: whoever flushed them did not do so because they were full.
const ASK_BYTES_MIN: u64 = 512;

/// A segment of `expected` bytes is so full when the next one is asked for.
pub fn ask_at(expected: u64) -> u64 {
    (expected / 2).max(ASK_BYTES_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_question_is_answered_once() {
        let spare = Spare::new();
        assert_eq!(spare.asked(), None);
        spare.ask(0);
        assert_eq!((spare.asked(), spare.asked()), (Some(1), None));
        spare.ask(u64::MAX);
        assert_eq!(spare.asked(), Some(ALLOCATED_MAX));
        assert!(spare.hold().is_none());
    }
}
