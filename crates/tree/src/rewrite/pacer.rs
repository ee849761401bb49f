//! Pacing of rewrites: at intervals, a rewrite calls its pacer, which delays or cancels it.
//! Independent of clocks, limits and the cause of a cancellation, which belong to the job.
//!
//! Invariant: an error of the pacer ends the rewrite as any other error does; its outputs are
//! unusable.

use crate::limits::{QUANTUM_BYTES, QUANTUM_ENTRIES};
use perigee_base::{Bytes, Result, ValueRef};

/// Work of a rewrite since it last called its pacer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RewriteProgress {
    /// Entries read from the source.
    pub entries: u64,
    /// Bytes of their keys and inline values.
    pub read_bytes: u64,
    /// Bytes of tables and value logs written.
    pub written_bytes: u64,
    /// Memory that the outputs hold at present (not a difference).
    pub memory_bytes: u64,
}

/// Called after every quantum: at most [`QUANTUM_BYTES`] or [`QUANTUM_ENTRIES`], or one larger
/// entry.
pub trait RewritePacer: std::fmt::Debug {
    /// Returns when the rewrite may continue.
    ///
    /// # Errors
    /// If the rewrite must stop.
    fn throttle(&self, moved: RewriteProgress) -> Result<()>;
    /// Records the last quantum, at the end of the rewrite, without waiting: the delay is carried
    /// over to the next caller.
    fn record_final(&self, moved: RewriteProgress);
}

/// A pacer that never waits and never fails.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoPacing;

impl RewritePacer for NoPacing {
    fn throttle(&self, _: RewriteProgress) -> Result<()> {
        Ok(())
    }
    fn record_final(&self, _: RewriteProgress) {}
}

/// What the outputs of a rewrite hold, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct OutputBytes {
    /// Bytes written so far.
    pub written: u64,
    /// Memory held at present.
    pub memory: u64,
}

/// Bytes of the key and the inline value of an entry. A separated value either is not moved, or is
/// counted when it is written.
#[inline]
pub fn key_and_inline_bytes(key_bytes: usize, value: &ValueRef<'_>) -> u64 {
    (key_bytes + value.inline_bytes().map_or(0, <[u8]>::len)) as u64
}

/// Accumulates progress until a quantum is full.
#[derive(Debug, Default)]
pub struct Quantum {
    progress: RewriteProgress,
    written_before: u64,
}

impl Quantum {
    /// Adds one entry of `bytes` bytes.
    pub fn add(&mut self, bytes: u64) {
        self.progress.entries += 1;
        self.progress.read_bytes += bytes;
    }
    /// Adds several entries with `bytes` in total.
    pub fn add_all(&mut self, entries: u64, bytes: Bytes) {
        self.progress.entries += entries;
        self.progress.read_bytes += bytes.0;
    }
    /// Returns true if the pacer is to be called.
    pub fn is_full(&self) -> bool {
        self.progress.read_bytes >= QUANTUM_BYTES || self.progress.entries >= QUANTUM_ENTRIES
    }
    /// Returns the progress for the pacer and starts the next quantum.
    pub fn take(&mut self, outputs: OutputBytes) -> RewriteProgress {
        let written_bytes = outputs.written.saturating_sub(self.written_before);
        let progress =
            RewriteProgress { written_bytes, memory_bytes: outputs.memory, ..self.progress };
        *self = Quantum { progress: RewriteProgress::default(), written_before: outputs.written };
        progress
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantum_is_full_by_entries_or_bytes() {
        let mut q = Quantum::default();
        (1..QUANTUM_ENTRIES).for_each(|_| q.add(1));
        assert!(!q.is_full());
        q.add(1);
        assert!(q.is_full());
        assert_eq!(
            q.take(OutputBytes { written: 500, memory: 7 }),
            RewriteProgress {
                entries: QUANTUM_ENTRIES,
                read_bytes: QUANTUM_ENTRIES,
                written_bytes: 500,
                memory_bytes: 7
            }
        );
        q.add(QUANTUM_BYTES);
        assert!(q.is_full());
        assert_eq!(
            q.take(OutputBytes { written: 700, memory: 8 }),
            RewriteProgress {
                entries: 1,
                read_bytes: QUANTUM_BYTES,
                written_bytes: 200,
                memory_bytes: 8
            }
        );
        assert!(!q.is_full());
    }
}
