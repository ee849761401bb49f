//! Input and output by cause: for whom bytes were read and written. Relaxed atomics, as all counters; reads are striped, so
//! that threads that read at once do not meet at a counter.

use crate::stripe::StripedCounter;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// For whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The write-ahead log.
    Wal,
    /// The manifest.
    Manifest,
    /// Memtables becoming tables.
    Flush,
    /// Compactions, value-log collection included.
    Compaction,
    /// Point reads.
    Get,
    /// Iterators and cursors.
    Scan,
}

/// Every cause.
pub const CAUSES: [Cause; 6] =
    [Cause::Wal, Cause::Manifest, Cause::Flush, Cause::Compaction, Cause::Get, Cause::Scan];

impl Cause {
    /// Its name in statistics.
    pub fn name(self) -> &'static str {
        match self {
            Cause::Wal => "wal",
            Cause::Manifest => "manifest",
            Cause::Flush => "flush",
            Cause::Compaction => "compaction",
            Cause::Get => "get",
            Cause::Scan => "scan",
        }
    }
}

/// What one cause has moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Read calls.
    pub reads: u64,
    /// Bytes they read.
    pub bytes_read: u64,
    /// Write calls.
    pub writes: u64,
    /// Bytes they wrote.
    pub bytes_written: u64,
}

#[derive(Debug, Default)]
struct Cells {
    read: [StripedCounter; 2],
    wrote: [AtomicU64; 2],
}

/// What every cause has moved.
#[derive(Debug, Default)]
pub struct Io([Cells; CAUSES.len()]);

impl Io {
    /// One read call.
    pub fn read(&self, cause: Cause, bytes: u64) {
        let [calls, all] = &self.0[cause as usize].read;
        calls.add(1);
        all.add(bytes);
    }
    /// Some write calls.
    pub fn wrote(&self, cause: Cause, calls: u64, bytes: u64) {
        let cells = &self.0[cause as usize].wrote;
        cells[0].fetch_add(calls, Relaxed);
        cells[1].fetch_add(bytes, Relaxed);
    }
    /// All causes.
    pub fn all(&self) -> Vec<(Cause, Moved)> {
        let moved = |c: Cause| {
            let Cells { read: [reads, bytes_read], wrote } = &self.0[c as usize];
            let (reads, bytes_read) = (reads.get(), bytes_read.get());
            let [writes, bytes_written] = [0, 1].map(|i: usize| wrote[i].load(Relaxed));
            Moved { reads, bytes_read, writes, bytes_written }
        };
        CAUSES.iter().map(|c| (*c, moved(*c))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_kept_apart() {
        let io = Io::default();
        io.read(Cause::Scan, 100);
        io.wrote(Cause::Wal, 2, 30);
        let all = io.all();
        assert_eq!(all[Cause::Scan as usize].1, Moved { reads: 1, bytes_read: 100, ..Moved::default() });
        assert_eq!(all[Cause::Wal as usize].1, Moved { writes: 2, bytes_written: 30, ..Moved::default() });
        assert!(CAUSES.iter().enumerate().all(|(i, c)| *c as usize == i));
    }
}
