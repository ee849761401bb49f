//! The suites that each answer one question: growth, inside, sqlite, latency, churn, threads,
//! transactions. What they run; the tables and pictures made of it are in `report::views`.
//!
//! Where reads only need what a write left, they run on its database, so that each is loaded once.

use crate::job::ReadStep;
use crate::keys::KeyChoice;
use crate::parent::RunRequest;
use crate::settings::{Level, Settings};
use crate::values::ValueChoice;

/// What the user gave for all of them.
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
    asked: SuiteArgs<'_>,
    reps: u32,
    workloads: &[&str],
    settings: Settings,
) -> RunRequest {
    RunRequest {
        suite: suite.to_owned(),
        engines: asked.engines.to_vec(),
        workloads: workloads.iter().map(|w| (*w).to_owned()).collect(),
        read_steps: Vec::new(),
        reps: asked.reps.unwrap_or(reps),
        settings,
    }
}

fn with_read_steps(order: RunRequest, steps: &[&str], ops: u64) -> RunRequest {
    let step = |w: &&str| ReadStep { workload: (*w).to_owned(), ops: Some(ops.max(1)) };
    RunRequest { read_steps: steps.iter().map(step).collect(), ..order }
}

/// Random keys, half-compressible values, a limit of time; reads are measured when they are warm.
fn realistic_settings(asked: SuiteArgs<'_>, num: u64, seconds: u64) -> Settings {
    Settings {
        num,
        keys: KeyChoice::Random,
        values: ValueChoice::Half,
        seconds: asked.settings.seconds.or(Some(seconds)),
        warm: true,
        ..asked.settings.clone()
    }
}

/// Writes and reads as the number of keys grows under the same memtable and cache.
pub fn growth(asked: SuiteArgs<'_>) -> Vec<RunRequest> {
    let of = |num: &u64| {
        let write = suite_request(
            "growth",
            asked,
            1,
            &["write_random"],
            realistic_settings(asked, *num, 150),
        );
        with_read_steps(write, &["read_random", "read_hot"], (*num).min(500_000))
    };
    asked.nums.iter().map(of).collect()
}

/// Every engine in the same memory, page cache included: four times as much data as 216 MB.
pub fn inside(asked: SuiteArgs<'_>) -> Vec<RunRequest> {
    let num = asked.num.unwrap_or(4_000_000);
    let settings = Settings {
        values: ValueChoice::Random,
        value_bytes: asked.settings.value_bytes.or(Some(200)),
        memory: asked.settings.memory.or(Some(512 << 20)),
        // What reads would warm is the memory itself.
        warm: false,
        ..realistic_settings(asked, num, 60)
    };
    let write = suite_request("inside", asked, 1, &["write_random"], settings);
    vec![with_read_steps(write, &["read_random", "read_zipf"], num / 10)]
}

/// Perigee beside SQLite: loads, transactions, warm reads, durable commits.
pub fn sqlite(asked: SuiteArgs<'_>) -> Vec<RunRequest> {
    let num = asked.num.unwrap_or(500_000);
    // A cache that holds everything, so that warm reads are warm in both.
    let cache = asked.settings.cache.max(256 << 20);
    let one = Settings { threads: 1, cache, ..realistic_settings(asked, num, 60) };
    let eight = Settings { threads: 8, ..one.clone() };
    let reads = ["read_view", "read_random", "read_zipf", "read_missing", "range100_random"];
    let write = suite_request("sqlite", asked, 3, &["write_random"], one.clone());
    vec![
        suite_request("sqlite", asked, 3, &["bulk_seq", "bulk_random", "write_seq"], one.clone()),
        with_read_steps(write, &reads, num),
        suite_request("sqlite", asked, 3, &["write_durable_b1"], one),
        suite_request("sqlite", asked, 3, &["write_durable_b1"], eight),
    ]
}

/// Latencies up to the longest, with memtables small enough that flushes and compactions are due
/// all the time.
pub fn latency(asked: SuiteArgs<'_>) -> Vec<RunRequest> {
    let num = asked.num.unwrap_or(1_000_000);
    let small = |threads| Settings {
        threads,
        memtable: asked.settings.memtable / 4,
        cache: asked.settings.cache / 4,
        ..realistic_settings(asked, num, 30)
    };
    let all = ["write_random", "write_random_b1", "large_4k", "mixed_random"];
    let mut orders = vec![suite_request("latency", asked, 1, &all, small(2))];
    // Writers that take turns.
    orders.extend(
        [1, 4, 8].map(|t| suite_request("latency", asked, 1, &["write_random_b1"], small(t))),
    );
    orders
}

/// Overwrites without end, of ten times the memtable.
pub fn churn(asked: SuiteArgs<'_>) -> Vec<RunRequest> {
    let num = asked.num.unwrap_or(1_000_000);
    let bytes = num * 116;
    let settings = Settings {
        memtable: (bytes / 10).max(64 << 10),
        cache: (bytes / 10).max(64 << 10),
        ops: asked.settings.ops.or(Some(10 * num)),
        ..realistic_settings(asked, num, 60)
    };
    vec![suite_request("churn", asked, 1, &["churn"], settings)]
}

/// The price of 1, 2, 4, 8 threads in one table.
pub fn threads(asked: SuiteArgs<'_>) -> Vec<RunRequest> {
    let num = asked.num.unwrap_or(1_000_000);
    let of = |threads| {
        let settings = Settings { threads, ..realistic_settings(asked, num, 30) };
        let write = suite_request("threads", asked, 1, &["write_random"], settings.clone());
        let mixed = Settings { ops: settings.ops.or(Some(num / 4)), ..settings.clone() };
        [
            with_read_steps(write, &["read_random", "read_hot", "seek_random"], num / 2),
            suite_request("threads", asked, 1, &["write_random_b1", "mixed_random"], mixed),
        ]
    };
    [1, 2, 4, 8].into_iter().flat_map(of).collect()
}

/// Transactions of more threads than there are processors, so that they meet, at each level.
pub fn transactions(asked: SuiteArgs<'_>) -> Vec<RunRequest> {
    let num = asked.num.unwrap_or(1_000_000);
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
        let threads = asked.settings.threads.max(4);
        suite_request(
            "transactions",
            asked,
            1,
            &all,
            Settings { threads, level, ..realistic_settings(asked, num, 5) },
        )
    };
    [Level::Snapshot, Level::Serializable, Level::Locks].map(of).to_vec()
}
