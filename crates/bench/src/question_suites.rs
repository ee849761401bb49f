//! Suites that each answer one question: growth, inside, sqlite, latency, churn, threads,
//! transactions, large values. Defines what they run; `report::views` defines their tables and
//! charts.
//!
//! Reads run on the database that a write workload left where possible, so that each database is
//! loaded only once.

use crate::job::ReadStep;
use crate::keys::KeyChoice;
use crate::parent::RunRequest;
use crate::settings::{Level, Settings};
use crate::values::ValueChoice;

/// Options common to all suites.
#[derive(Clone, Copy, Debug)]
pub struct SuiteArgs<'a> {
    pub engines: &'a [String],
    pub reps: Option<u32>,
    pub num: Option<u64>,
    pub nums: &'a [u64],
    pub settings: &'a Settings,
}

fn suite_request(
    suite: &str,
    args: SuiteArgs<'_>,
    reps: u32,
    workloads: &[&str],
    settings: Settings,
) -> RunRequest {
    RunRequest {
        suite: suite.to_owned(),
        engines: args.engines.to_vec(),
        workloads: workloads.iter().map(|w| (*w).to_owned()).collect(),
        read_steps: Vec::new(),
        reps: args.reps.unwrap_or(reps),
        settings,
    }
}

fn with_read_steps(request: RunRequest, steps: &[&str], ops: u64) -> RunRequest {
    let step = |w: &&str| ReadStep { workload: (*w).to_owned(), ops: Some(ops.max(1)) };
    RunRequest { read_steps: steps.iter().map(step).collect(), ..request }
}

/// Random keys, half-compressible values and a time limit; reads are measured after a warm-up.
fn realistic_settings(args: SuiteArgs<'_>, num: u64, seconds: u64) -> Settings {
    Settings {
        num,
        keys: KeyChoice::Random,
        values: ValueChoice::Half,
        seconds: args.settings.seconds.or(Some(seconds)),
        warm: true,
        ..args.settings.clone()
    }
}

/// Writes and reads as the number of keys grows, with constant memtable and cache.
pub fn growth(args: SuiteArgs<'_>) -> Vec<RunRequest> {
    let of = |num: &u64| {
        let write = suite_request(
            "growth",
            args,
            1,
            &["write_random"],
            realistic_settings(args, *num, 150),
        );
        with_read_steps(write, &["read_random", "read_hot"], (*num).min(500_000))
    };
    args.nums.iter().map(of).collect()
}

/// All engines within the same memory, page cache included: four times as much data as 216 MB.
pub fn inside(args: SuiteArgs<'_>) -> Vec<RunRequest> {
    let num = args.num.unwrap_or(4_000_000);
    let settings = Settings {
        values: ValueChoice::Random,
        value_bytes: args.settings.value_bytes.or(Some(200)),
        memory: args.settings.memory.or(Some(512 << 20)),
        // A warm-up would fill the limited memory, which is what is measured.
        warm: false,
        ..realistic_settings(args, num, 60)
    };
    let write = suite_request("inside", args, 1, &["write_random"], settings);
    vec![with_read_steps(write, &["read_random", "read_zipf"], num / 10)]
}

/// Perigee beside SQLite: loads, transactions, warm reads, durable commits.
pub fn sqlite(args: SuiteArgs<'_>) -> Vec<RunRequest> {
    let num = args.num.unwrap_or(500_000);
    // The cache holds everything, so that warm reads hit it in both engines.
    let cache = args.settings.cache.max(256 << 20);
    let one = Settings { threads: 1, cache, ..realistic_settings(args, num, 60) };
    let eight = Settings { threads: 8, ..one.clone() };
    let reads = ["read_view", "read_random", "read_zipf", "read_missing", "range100_random"];
    let write = suite_request("sqlite", args, 3, &["write_random"], one.clone());
    vec![
        suite_request("sqlite", args, 3, &["bulk_seq", "bulk_random", "write_seq"], one.clone()),
        with_read_steps(write, &reads, num),
        suite_request("sqlite", args, 3, &["write_durable_b1"], one),
        suite_request("sqlite", args, 3, &["write_durable_b1"], eight),
    ]
}

/// Latencies up to the maximum, with memtables small enough that flushes and compactions run
/// constantly.
pub fn latency(args: SuiteArgs<'_>) -> Vec<RunRequest> {
    let num = args.num.unwrap_or(1_000_000);
    let small = |threads| Settings {
        threads,
        memtable: args.settings.memtable / 4,
        cache: args.settings.cache / 4,
        ..realistic_settings(args, num, 30)
    };
    let all = ["write_random", "write_random_b1", "large_4k", "mixed_random"];
    let mut requests = vec![suite_request("latency", args, 1, &all, small(2))];
    // Concurrent writers.
    requests.extend(
        [1, 4, 8].map(|t| suite_request("latency", args, 1, &["write_random_b1"], small(t))),
    );
    requests
}

/// Continuous overwrites of ten times the memtable.
pub fn churn(args: SuiteArgs<'_>) -> Vec<RunRequest> {
    let num = args.num.unwrap_or(1_000_000);
    let bytes = num * 116;
    let settings = Settings {
        memtable: (bytes / 10).max(64 << 10),
        cache: (bytes / 10).max(64 << 10),
        ops: args.settings.ops.or(Some(10 * num)),
        ..realistic_settings(args, num, 60)
    };
    vec![suite_request("churn", args, 1, &["churn"], settings)]
}

/// Values of 1 KiB to 1 MiB, as many as fill half a GiB: written, read, iterated, overwritten. Then
/// values of 64 MiB and 1 GiB, one at a time.
pub fn large(args: SuiteArgs<'_>) -> Vec<RunRequest> {
    const TOTAL_BYTES: u64 = 512 << 20;
    let with_values = |bytes: usize, threads| {
        let num = args.num.unwrap_or(TOTAL_BYTES / bytes as u64);
        let settings =
            Settings { value_bytes: Some(bytes), threads, ..realistic_settings(args, num, 30) };
        let write = suite_request("large", args, 1, &["write_random"], settings.clone());
        let overwrite = Settings { ops: args.settings.ops.or(Some(3 * num)), ..settings };
        [
            with_read_steps(write, &["read_random", "iterate"], num),
            suite_request("large", args, 1, &["churn"], overwrite),
        ]
    };
    let sizes = [(1 << 10, 2), (4 << 10, 2), (4 << 10, 8), (64 << 10, 2), (1 << 20, 2)];
    let mut requests: Vec<_> =
        sizes.into_iter().flat_map(|(bytes, threads)| with_values(bytes, threads)).collect();
    requests.extend([64 << 20, 1 << 30].map(|giant_bytes| {
        let settings = Settings { giant_bytes, threads: 1, ..realistic_settings(args, 1, 60) };
        suite_request("large", args, 1, &["giant_put", "giant_get", "giant_range"], settings)
    }));
    requests
}

/// Cost of 1, 2, 4 and 8 threads on one table.
pub fn threads(args: SuiteArgs<'_>) -> Vec<RunRequest> {
    let num = args.num.unwrap_or(1_000_000);
    let of = |threads| {
        let settings = Settings { threads, ..realistic_settings(args, num, 30) };
        let write = suite_request("threads", args, 1, &["write_random"], settings.clone());
        let mixed = Settings { ops: settings.ops.or(Some(num / 4)), ..settings.clone() };
        [
            with_read_steps(write, &["read_random", "read_hot", "seek_random"], num / 2),
            suite_request("threads", args, 1, &["write_random_b1", "mixed_random"], mixed),
        ]
    };
    [1, 2, 4, 8].into_iter().flat_map(of).collect()
}

/// Transactions at each level, with more threads than processors, so that they conflict.
pub fn transactions(args: SuiteArgs<'_>) -> Vec<RunRequest> {
    let num = args.num.unwrap_or(1_000_000);
    let all = [
        "txn_rmw_1",
        "txn_rmw_4",
        "txn_rmw_16",
        "txn_rmw_64",
        "txn_rmw",
        "txn_smallbank",
        "txn_neworder",
    ];
    let of = |level| {
        let threads = args.settings.threads.max(4);
        suite_request(
            "transactions",
            args,
            1,
            &all,
            Settings { threads, level, ..realistic_settings(args, num, 5) },
        )
    };
    [Level::Snapshot, Level::Serializable, Level::Locks].map(of).to_vec()
}
