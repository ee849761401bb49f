//! The suite `tables`: the crate `perigeedb-tables` beside SQLite and redb, with rows of one table.
//!
//! A repetition runs in a process of its own, like that of other workloads (`crate::job`): a
//! workload that fills the table, then others on the same table. All databases get the same rows in
//! the same order, and every value read is compared.

mod dataset;
mod store;
mod perigee;
mod sqlite;
mod redb;
mod operations;
mod run;
#[cfg(test)]
mod store_tests;

use crate::job::ReadStep;
use crate::parent::RunRequest;
use crate::settings::{RowDurability, RowSettings, Settings};

pub use run::run;

/// Engines of the suite.
pub const ENGINES: [&str; 3] = ["perigee", "sqlite", "redb"];
/// Prefix of the names of the workloads.
const PREFIX: &str = "rows_";
/// Sizes of values that the suite measures if the user gives none.
const VALUE_BYTES: [usize; 2] = [16, 200];
/// Time limit of a phase with durable commits, in seconds.
const COMMIT_SECONDS: u64 = 4;

/// What a workload does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowWorkload {
    /// Fills the table by a bulk load, in key order or in random order.
    Load { sorted: bool },
    /// Fills the table in transactions of 1,000 rows in random order.
    Transactions,
    /// Gets of random rows.
    Get { keys: GetKeys, in_txn: bool },
    /// Ranges of this many rows.
    Range { rows: u64 },
    /// Gets and puts of single rows; percentage of puts.
    Mixed { puts: u64 },
    /// Opens the database and gets one row.
    Open,
    /// Inserts of single rows into a loaded table.
    Commits,
}

/// Which keys are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GetKeys {
    Uniform,
    Zipf,
    Missing,
}

/// Workloads by name.
const WORKLOADS: [(&str, RowWorkload); 16] = [
    ("rows_load_sorted", RowWorkload::Load { sorted: true }),
    ("rows_load_random", RowWorkload::Load { sorted: false }),
    ("rows_txn_1000", RowWorkload::Transactions),
    ("rows_get_txn", RowWorkload::Get { keys: GetKeys::Uniform, in_txn: true }),
    ("rows_get", RowWorkload::Get { keys: GetKeys::Uniform, in_txn: false }),
    ("rows_zipf_txn", RowWorkload::Get { keys: GetKeys::Zipf, in_txn: true }),
    ("rows_zipf", RowWorkload::Get { keys: GetKeys::Zipf, in_txn: false }),
    ("rows_missing_txn", RowWorkload::Get { keys: GetKeys::Missing, in_txn: true }),
    ("rows_missing", RowWorkload::Get { keys: GetKeys::Missing, in_txn: false }),
    ("rows_range_10", RowWorkload::Range { rows: 10 }),
    ("rows_range_100", RowWorkload::Range { rows: 100 }),
    ("rows_range_10000", RowWorkload::Range { rows: 10_000 }),
    ("rows_mix_95", RowWorkload::Mixed { puts: 5 }),
    ("rows_mix_50", RowWorkload::Mixed { puts: 50 }),
    ("rows_open", RowWorkload::Open),
    ("rows_commit", RowWorkload::Commits),
];

/// Workloads that run on the table that `rows_txn_1000` has filled, in this order.
const STEPS: [&str; 12] = [
    "rows_get_txn",
    "rows_get",
    "rows_zipf_txn",
    "rows_zipf",
    "rows_missing_txn",
    "rows_missing",
    "rows_range_10",
    "rows_range_100",
    "rows_range_10000",
    "rows_mix_95",
    "rows_mix_50",
    "rows_open",
];

/// Returns true if this is a workload of the suite.
pub fn is_row_workload(name: &str) -> bool {
    name.starts_with(PREFIX)
}

fn find_workload(name: &str) -> Option<RowWorkload> {
    WORKLOADS.iter().find(|(n, _)| *n == name).map(|(_, workload)| *workload)
}

/// Returns the requests of the suite. `num` is the number of rows, if the user gave one.
pub fn requests(
    engines: &[String],
    reps: Option<u32>,
    num: Option<u64>,
    s: &Settings,
) -> Vec<RunRequest> {
    let num = num.unwrap_or(1_000_000);
    let sizes = s.value_bytes.map_or(VALUE_BYTES.to_vec(), |bytes| vec![bytes]);
    let engines: Vec<String> =
        engines.iter().filter(|e| ENGINES.contains(&e.as_str())).cloned().collect();
    let mut requests = Vec::new();
    for bytes in sizes {
        let settings = |durability, threads| Settings {
            num,
            threads,
            value_bytes: Some(bytes),
            // The cache holds everything, so that warm reads hit it in all.
            cache: s.cache.max(256 << 20).max(num * (bytes as u64 + 80)),
            seconds: s.seconds.or(Some(90)),
            rows: RowSettings { durability, ..s.rows.clone() },
            ..s.clone()
        };
        let request = |workloads: &[&str], steps: &[&str], settings: Settings| RunRequest {
            suite: "tables".to_owned(),
            engines: engines.clone(),
            workloads: workloads.iter().map(|w| (*w).to_owned()).collect(),
            read_steps: (steps.iter())
                .map(|w| ReadStep { workload: (*w).to_owned(), ops: settings.ops })
                .collect(),
            reps: reps.unwrap_or(5),
            settings,
        };
        let loads = ["rows_load_sorted", "rows_load_random"];
        requests.push(request(&loads, &[], settings(RowDurability::Power, 1)));
        for durability in [RowDurability::Power, RowDurability::Crash, RowDurability::Close] {
            let steps: &[&str] = if durability == RowDurability::Crash { &STEPS } else { &[] };
            requests.push(request(&["rows_txn_1000"], steps, settings(durability, 1)));
        }
        for durability in [RowDurability::Power, RowDurability::Crash, RowDurability::Close] {
            for threads in [1, 8] {
                let seconds = Some(s.seconds.unwrap_or(COMMIT_SECONDS));
                let settings = Settings { seconds, ..settings(durability, threads) };
                requests.push(request(&["rows_commit"], &[], settings));
            }
        }
    }
    requests
}
