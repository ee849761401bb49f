//! Input and output by cause: for whom bytes were read and written. Relaxed atomics, as all
//! counters; reads are striped, so that threads that read at once do not meet at a counter.

use crate::thread_stripe::StripedCounter;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// For whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoActivity {
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
pub const IO_ACTIVITIES: [IoActivity; 6] = [
    IoActivity::Wal,
    IoActivity::Manifest,
    IoActivity::Flush,
    IoActivity::Compaction,
    IoActivity::Get,
    IoActivity::Scan,
];

impl IoActivity {
    /// Its name in statistics.
    pub fn name(self) -> &'static str {
        match self {
            IoActivity::Wal => "wal",
            IoActivity::Manifest => "manifest",
            IoActivity::Flush => "flush",
            IoActivity::Compaction => "compaction",
            IoActivity::Get => "get",
            IoActivity::Scan => "scan",
        }
    }
}

/// What one cause has moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoTotals {
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
struct ActivityCounters {
    reads: [StripedCounter; 2],
    writes: [AtomicU64; 2],
}

/// What every cause has moved.
#[derive(Debug, Default)]
pub struct IoCounters([ActivityCounters; IO_ACTIVITIES.len()]);

impl IoCounters {
    /// One read call.
    pub fn record_read(&self, cause: IoActivity, bytes: u64) {
        let [calls, all] = &self.0[cause as usize].reads;
        calls.add(1);
        all.add(bytes);
    }
    /// Some write calls.
    pub fn record_writes(&self, cause: IoActivity, calls: u64, bytes: u64) {
        let cells = &self.0[cause as usize].writes;
        cells[0].fetch_add(calls, Relaxed);
        cells[1].fetch_add(bytes, Relaxed);
    }
    /// All causes.
    pub fn totals(&self) -> Vec<(IoActivity, IoTotals)> {
        let moved = |c: IoActivity| {
            let ActivityCounters { reads: [reads, bytes_read], writes: wrote } =
                &self.0[c as usize];
            let (reads, bytes_read) = (reads.get(), bytes_read.get());
            let [writes, bytes_written] = [0, 1].map(|i: usize| wrote[i].load(Relaxed));
            IoTotals { reads, bytes_read, writes, bytes_written }
        };
        IO_ACTIVITIES.iter().map(|c| (*c, moved(*c))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn activities_are_counted_separately() {
        let io = IoCounters::default();
        io.record_read(IoActivity::Scan, 100);
        io.record_writes(IoActivity::Wal, 2, 30);
        let all = io.totals();
        assert_eq!(
            all[IoActivity::Scan as usize].1,
            IoTotals { reads: 1, bytes_read: 100, ..IoTotals::default() }
        );
        assert_eq!(
            all[IoActivity::Wal as usize].1,
            IoTotals { writes: 2, bytes_written: 30, ..IoTotals::default() }
        );
        assert!(IO_ACTIVITIES.iter().enumerate().all(|(i, c)| *c as usize == i));
    }
}
