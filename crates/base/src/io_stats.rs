//! I/O counters per activity: how many calls and bytes each activity read and wrote. Atomics are
//! relaxed, as in all counters; read counters are striped, so that concurrent readers do not
//! contend on one cache line.

use crate::thread_stripe::StripedCounter;
use crate::units::Bytes;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The activity that causes an I/O call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoActivity {
    /// The write-ahead log.
    Wal,
    /// The manifest.
    Manifest,
    /// Flushes of memtables to tables.
    Flush,
    /// Compactions, including value-log garbage collection.
    Compaction,
    /// Point reads.
    Get,
    /// Iterators and cursors.
    Scan,
}

/// All activities, in the order of their discriminants.
pub const IO_ACTIVITIES: [IoActivity; 6] = [
    IoActivity::Wal,
    IoActivity::Manifest,
    IoActivity::Flush,
    IoActivity::Compaction,
    IoActivity::Get,
    IoActivity::Scan,
];

const _: () = {
    let mut i = 0;
    while i < IO_ACTIVITIES.len() {
        assert!(IO_ACTIVITIES[i] as usize == i, "an activity is the index of its counters");
        i += 1;
    }
};
impl IoActivity {
    /// Returns the name used in statistics.
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

/// I/O totals of one activity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoTotals {
    /// Number of read calls.
    pub reads: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Number of write calls.
    pub writes: u64,
    /// Bytes written.
    pub bytes_written: u64,
}

#[derive(Debug, Default)]
struct ActivityCounters {
    reads: [StripedCounter; 2],
    writes: [AtomicU64; 2],
}

/// I/O counters of all activities.
#[derive(Debug, Default)]
pub struct IoCounters([ActivityCounters; IO_ACTIVITIES.len()]);

impl IoCounters {
    /// Counts one read call of `bytes` bytes.
    pub fn record_read(&self, activity: IoActivity, bytes: u64) {
        let [calls, total] = &self.0[activity as usize].reads;
        calls.add(1);
        total.add(bytes);
    }
    /// Counts `calls` write calls of `bytes` bytes in total.
    pub fn record_writes(&self, activity: IoActivity, calls: u64, bytes: Bytes) {
        let counters = &self.0[activity as usize].writes;
        counters[0].fetch_add(calls, Relaxed);
        counters[1].fetch_add(bytes.0, Relaxed);
    }
    /// Returns the totals of every activity.
    pub fn totals(&self) -> Vec<(IoActivity, IoTotals)> {
        let activity_totals = |c: IoActivity| {
            let ActivityCounters { reads: [reads, bytes_read], writes: write_counters } =
                &self.0[c as usize];
            let (reads, bytes_read) = (reads.get(), bytes_read.get());
            let [writes, bytes_written] = [0, 1].map(|i: usize| write_counters[i].load(Relaxed));
            IoTotals { reads, bytes_read, writes, bytes_written }
        };
        IO_ACTIVITIES.iter().map(|c| (*c, activity_totals(*c))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn activities_are_counted_separately() {
        let io = IoCounters::default();
        io.record_read(IoActivity::Scan, 100);
        io.record_writes(IoActivity::Wal, 2, Bytes(30));
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
