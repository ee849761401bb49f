//! A record: all data about one repetition of one workload on one engine. Reports read nothing
//! else.

use crate::engine::EffectiveOptions;
use crate::settings::Settings;
use crate::sys::Host;
use serde::{Deserialize, Serialize};

/// One repetition. Latencies are per call (a batch is one call), in microseconds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Record {
    /// Suite that it was run for; empty for single runs.
    pub suite: String,
    pub engine: String,
    pub engine_version: String,
    pub workload: String,
    pub threads: usize,
    pub rep: u32,
    /// Number of operations that succeeded.
    pub ops: u64,
    /// Transactions that lost a conflict and were retried.
    pub aborts: u64,
    /// Keys in the database, operations per batch, bytes per key and value, as actually used.
    pub num: u64,
    pub batch: usize,
    pub key_bytes: usize,
    pub value_bytes: usize,
    pub seconds: f64,
    pub ops_per_sec: f64,
    /// CPU time of all threads, in the measured phase and until the engine was idle afterwards.
    pub cpu_us_per_op: f64,
    pub cpu_system_us_per_op: f64,
    /// CPU time of the measured phase alone.
    pub cpu_asked_us_per_op: f64,
    pub avg_us: f64,
    pub p50_us: f64,
    pub p95_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    pub p9999_us: f64,
    pub max_us: f64,
    /// Coefficient of variation of the latency.
    pub cv: f64,
    /// Latency at percentiles, for the chart.
    pub curve: Vec<(f64, f64)>,
    /// Operations in each tenth of a second.
    pub timeline: Vec<u64>,
    /// Longest call, in microseconds, that ended in each tenth of a second.
    pub worst: Vec<f64>,
    /// Latency of the writes alone, in workloads that read and write.
    pub writes: Option<TailLatency>,
    /// Tenths of a second without a completed operation.
    pub stalls: u64,
    /// Largest resident size while measuring and until idle; and without mapped files.
    pub peak_rss_mb: f64,
    pub peak_anon_mb: f64,
    /// Bytes written until closed, per byte submitted.
    pub write_amp: f64,
    pub written_bytes: u64,
    pub read_bytes: u64,
    /// Bytes of keys and values submitted for writing, and returned by reads.
    pub user_bytes: u64,
    pub seen_bytes: u64,
    /// Bytes read from storage while measuring, per byte returned.
    pub read_amp: f64,
    /// Amplification over time, if all keys existed from the start.
    pub amplification: Vec<AmplificationSample>,
    /// Disk bytes per byte of live keys and values.
    pub space_amp: f64,
    /// Largest space amplification at any tenth of a second while keys were overwritten.
    pub space_peak: f64,
    pub db_bytes: u64,
    pub load_seconds: f64,
    pub settle_seconds: f64,
    pub close_ms: f64,
    pub open_ms: f64,
    /// Calls that the engine refused.
    pub errors: u64,
    /// Wrong answers.
    pub wrong: u64,
    pub first_failure: Option<String>,
    /// Why it was not run: the engine lacks a feature, or the machine a resource. Not a failure.
    pub skipped: Option<String>,
    /// Why it was killed: it exceeded the memory or the time that it was allowed. Not a failure.
    pub killed: Option<String>,
    /// Fraction of the operations done within the time limit, if less than all.
    pub cut_short: Option<f64>,
    /// Parts of an operation with their time in microseconds, if they were measured.
    pub parts: Vec<(String, f64)>,
    pub options: EffectiveOptions,
    pub notes: Vec<String>,
    /// Command line of the run.
    pub command: String,
    pub settings: Option<Settings>,
    pub host: Host,
}

/// Latency percentiles of some of the calls, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TailLatency {
    pub p50_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    pub max_us: f64,
}

/// Amplification at one point in time: of writes and reads since the previous sample, and of space
/// at that time.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AmplificationSample {
    pub seconds: f64,
    /// Operations completed by then.
    pub ops: u64,
    /// Bytes written and bytes read per byte submitted since the previous sample.
    pub write: f64,
    pub read: f64,
    /// Disk bytes per byte of live keys and values.
    pub space: f64,
}
