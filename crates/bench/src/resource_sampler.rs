//! Samples ten times a second while threads work: memory, progress, the longest call,
//! amplification.

use crate::meter::ProgressCounter;
use crate::record::AmplificationSample;
use crate::sys;
use crate::workload::OpKind;
use crate::workload::worker::WorkloadPlan;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Interval between samples of memory and progress.
const SAMPLE_PERIOD: Duration = Duration::from_millis(100);
/// Number of these samples per sample of amplification.
const TICKS_PER_SAMPLE: usize = 5;

/// Samples taken while the threads ran.
#[derive(Debug, Default)]
pub struct ResourceSampler {
    pub peak_rss: AtomicU64,
    pub peak_anon: AtomicU64,
    stop: AtomicBool,
}

/// For each tenth of a second: operations, and the longest call that ended in it, in microseconds.
#[derive(Debug, Default)]
pub struct Timeline {
    pub ops: Vec<u64>,
    pub worst: Vec<f64>,
}

impl ResourceSampler {
    pub fn sample_memory(&self) {
        let (rss, anon) = sys::resident();
        self.peak_rss.fetch_max(rss, Ordering::Relaxed);
        self.peak_anon.fetch_max(anon, Ordering::Relaxed);
    }
    /// Stops sampling.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }
    /// Samples until stopped.
    pub fn run(
        &self,
        counters: &[ProgressCounter],
        amplification: &mut Option<AmplificationTracker<'_>>,
    ) -> Timeline {
        let start = Instant::now();
        let (mut seen, mut before) = (Timeline::default(), 0);
        while !self.stop.load(Ordering::Acquire) {
            let due = SAMPLE_PERIOD * (seen.ops.len() as u32 + 1);
            std::thread::sleep(due.saturating_sub(start.elapsed()));
            self.sample_memory();
            let now = counters.iter().map(ProgressCounter::ops_done).sum();
            seen.ops.push(now - before);
            seen.worst.push(
                counters.iter().map(ProgressCounter::take_worst).max().unwrap_or(0) as f64 / 1e3,
            );
            before = now;
            if let Some(a) = amplification {
                a.sample(start.elapsed(), now, seen.ops.len().is_multiple_of(TICKS_PER_SAMPLE));
            }
        }
        seen
    }
}

/// Tracks amplification over time.
pub struct AmplificationTracker<'d> {
    dir: &'d Path,
    /// Bytes submitted per operation, and bytes of the keys and values that are live throughout.
    bytes_per_op: f64,
    live_bytes: f64,
    ops: u64,
    io: sys::Io,
    pub samples: Vec<AmplificationSample>,
    /// Largest number of disk bytes per live byte in any sample.
    pub space_peak: f64,
}

impl<'d> AmplificationTracker<'d> {
    /// Returns a tracker for workloads that overwrite existing keys; in others the live bytes are
    /// not known at all times.
    pub fn for_plan(plan: &WorkloadPlan, dir: &'d Path) -> Option<Self> {
        let share = match plan.workload.op_kind {
            OpKind::Write if plan.workload.preloaded => 1.0,
            OpKind::Mix { read, insert: 0, scan, .. } if read + scan < 100 => {
                f64::from(100 - read - scan) / 100.0
            }
            _ => return None,
        };
        let given = plan.entry_bytes() as f64 * share;
        let live = plan.entry_bytes() as f64 * plan.n as f64;
        Some(AmplificationTracker {
            dir,
            bytes_per_op: given,
            live_bytes: live,
            ops: 0,
            io: sys::io(),
            samples: Vec::new(),
            space_peak: 0.0,
        })
    }
    /// Samples the disk space and, if `keep` is set, adds an amplification sample.
    pub fn sample(&mut self, at: Duration, ops: u64, keep: bool) {
        let space = sys::disk_bytes(self.dir) as f64 / self.live_bytes;
        self.space_peak = self.space_peak.max(space);
        // The last interval may be too short to be meaningful.
        if !keep || self.samples.last().is_some_and(|s| at.as_secs_f64() - s.seconds < 0.25) {
            return;
        }
        let (io, given) = (sys::io(), (ops - self.ops) as f64 * self.bytes_per_op);
        let since = io.since(self.io);
        // Without a write in this interval there is no divisor: its I/O counts towards the next
        // one.
        if given <= 0.0 {
            return;
        }
        self.samples.push(AmplificationSample {
            seconds: at.as_secs_f64(),
            ops,
            write: since.wchar.max(since.written) as f64 / given,
            read: since.rchar.max(since.read) as f64 / given,
            space,
        });
        (self.ops, self.io) = (ops, io);
    }
}
