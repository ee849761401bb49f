//! How a rewrite asks, now and then, whether and how fast it may go on. It knows no clock, no limit
//! and nobody who cancels: those are the job's.
//!
//! Invariant: an error of the pace ends the rewrite as any other error does; its outputs are
//! worthless.

use perigee_base::Result;

/// What a rewrite has moved since it last asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RewriteProgress {
    /// Entries of the source.
    pub entries: u64,
    /// Bytes of their keys and inline values.
    pub read_bytes: u64,
    /// Bytes of tables and value logs written.
    pub written_bytes: u64,
    /// Memory that the outputs hold now: not since, but altogether.
    pub memory_bytes: u64,
}

/// Asked after every quantum: at most [`QUANTUM_BYTES`] or [`QUANTUM_ENTRIES`], or one larger
/// entry.
pub trait RewritePacer: std::fmt::Debug {
    /// Returns when the rewrite may go on.
    ///
    /// # Errors
    /// If it must give up.
    fn throttle(&self, moved: RewriteProgress) -> Result<()>;
    /// The same at the end, when there is nothing left to wait for: what it would have to wait is
    /// left to whoever is next.
    fn record_final(&self, moved: RewriteProgress);
}

/// Bytes after which a rewrite asks.
pub const QUANTUM_BYTES: u64 = 64 << 10;
/// Entries after which a rewrite asks.
pub const QUANTUM_ENTRIES: u64 = 64;

/// Never waits, never gives up.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoPacing;

impl RewritePacer for NoPacing {
    fn throttle(&self, _: RewriteProgress) -> Result<()> {
        Ok(())
    }
    fn record_final(&self, _: RewriteProgress) {}
}

/// Gathers what was moved until a quantum is full.
#[derive(Debug, Default)]
pub struct Quantum {
    progress: RewriteProgress,
    written_before: u64,
}

impl Quantum {
    /// One more entry of so many bytes.
    pub fn add(&mut self, bytes: u64) {
        self.progress.entries += 1;
        self.progress.read_bytes += bytes;
    }
    /// So many entries more, together of so many bytes.
    pub fn add_all(&mut self, entries: u64, bytes: u64) {
        self.progress.entries += entries;
        self.progress.read_bytes += bytes;
    }
    /// Whether it is time to ask.
    pub fn is_full(&self) -> bool {
        self.progress.read_bytes >= QUANTUM_BYTES || self.progress.entries >= QUANTUM_ENTRIES
    }
    /// What to ask with, given all bytes written so far and the memory held now; starts the next
    /// quantum.
    pub fn take(&mut self, (written, held_bytes): (u64, u64)) -> RewriteProgress {
        let written_bytes = written.saturating_sub(self.written_before);
        let moved = RewriteProgress { written_bytes, memory_bytes: held_bytes, ..self.progress };
        *self = Quantum { progress: RewriteProgress::default(), written_before: written };
        moved
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
            q.take((500, 7)),
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
            q.take((700, 8)),
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
