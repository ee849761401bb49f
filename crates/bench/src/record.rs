//! A record: everything known about one repetition of one workload on one engine. Data; reports
//! read nothing else.

use crate::engine::EffectiveOptions;
use crate::settings::Settings;
use crate::sys::Host;
use serde::{Deserialize, Serialize};

/// One repetition. Latencies are of calls (a batch is one call), in microseconds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Record {
    /// The suite that it was run for; nothing for single runs.
    pub suite: String,
    pub engine: String,
    pub engine_version: String,
    pub workload: String,
    pub threads: usize,
    pub rep: u32,
    /// Operations that succeeded.
    pub ops: u64,
    /// Transactions that lost to another and were tried again.
    pub aborts: u64,
    /// Keys in the database, operations in a batch, bytes of keys and values as they were.
    pub num: u64,
    pub batch: usize,
    pub key_bytes: usize,
    pub value_bytes: usize,
    pub seconds: f64,
    pub ops_per_sec: f64,
    /// CPU of all threads, in the measured phase and while it settled afterwards.
    pub cpu_us_per_op: f64,
    pub cpu_system_us_per_op: f64,
    /// CPU of the measured phase alone.
    pub cpu_asked_us_per_op: f64,
    pub avg_us: f64,
    pub p50_us: f64,
    pub p95_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    pub p9999_us: f64,
    pub max_us: f64,
    /// Coefficient of variation of latency.
    pub cv: f64,
    /// Latency at percentiles, for the curve.
    pub curve: Vec<(f64, f64)>,
    /// Operations in each tenth of a second.
    pub timeline: Vec<u64>,
    /// The longest call, in microseconds, of those that ended in each tenth of a second.
    pub worst: Vec<f64>,
    /// Latency of the writes alone, in workloads that read and write.
    pub writes: Option<TailLatency>,
    /// Tenths of a second without a single operation.
    pub stalls: u64,
    /// Largest resident size while measuring and settling; and without mapped files.
    pub peak_rss_mb: f64,
    pub peak_anon_mb: f64,
    /// Bytes written, until closed, for each byte given.
    pub write_amp: f64,
    pub written_bytes: u64,
    pub read_bytes: u64,
    /// Bytes of keys and values given to be written, and shown by reads.
    pub user_bytes: u64,
    pub seen_bytes: u64,
    /// Bytes read, while measuring, for each byte shown.
    pub read_amp: f64,
    /// Amplification second by second, where every key was there from the beginning.
    pub amplification: Vec<AmplificationSample>,
    /// Disk bytes for each byte of live keys and values.
    pub space_amp: f64,
    /// The largest that it was at any tenth of a second while keys were overwritten.
    pub space_peak: f64,
    pub db_bytes: u64,
    pub load_seconds: f64,
    pub settle_seconds: f64,
    pub close_ms: f64,
    pub open_ms: f64,
    /// Calls that the engine refused.
    pub errors: u64,
    /// Answers that were wrong.
    pub wrong: u64,
    pub first_failure: Option<String>,
    /// Why it was not run: the engine lacks something, or the machine does. Not a failure.
    pub skipped: Option<String>,
    /// Why it did not live to its end: the memory or the time that it was allowed were too little
    /// for it. Not a failure.
    pub killed: Option<String>,
    /// The part of its operations that it did in the seconds it had, where that is less than all.
    pub cut_short: Option<f64>,
    pub options: EffectiveOptions,
    pub notes: Vec<String>,
    /// The command line of the run.
    pub command: String,
    pub settings: Option<Settings>,
    pub host: Host,
}

/// Latencies of some calls, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TailLatency {
    pub p50_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    pub max_us: f64,
}

/// Amplification at a moment: of writes and reads in the time since the sample before, of space as
/// it is.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AmplificationSample {
    pub seconds: f64,
    /// Operations done by then.
    pub ops: u64,
    /// Bytes written and bytes read for each byte given in this time.
    pub write: f64,
    pub read: f64,
    /// Disk bytes for each byte of live keys and values.
    pub space: f64,
}
