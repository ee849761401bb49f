//! Named sets of workloads with their settings.

use crate::keys::KeyChoice;
use crate::parent::RunRequest;
use crate::question_suites::{self, SuiteArgs};
use crate::settings::Settings;
use crate::table_suite;
use crate::values::ValueChoice;
use crate::workload::WORKLOADS;
use clap::ValueEnum;

/// The suites.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Suite {
    /// Run by `make bench`: the main workloads on every default engine, with data four times the
    /// memtable and cache (which are an eighth of the options), in under ten minutes
    Quick,
    /// TidesDB's own benchmark: counter keys and ramp values, then random keys with
    /// half-compressible values
    Benchtool,
    /// YCSB A to F
    Ycsb,
    /// Perigee beside SQLite, with typical SQLite operations: bulk loads, transactions of a
    /// thousand rows, warm reads with and without one transaction, durable commits with 1 and 8
    /// threads, bytes per row (about 3 minutes)
    Sqlite,
    /// Rows of the crate perigeedb-tables beside SQLite and redb, with values of 16 and 200
    /// bytes at three levels of durability; `--row-keys` chooses the primary keys (about an hour)
    Tables,
    /// Cost of writes, reads and cached reads at 1 and 10 million entries (`--nums`) with the same
    /// cache (about 2 minutes per engine, 10 with 50M, which needs 20 GB of disk)
    Growth,
    /// Every engine within the same memory, page cache included (512M, by a cgroup): 4 million
    /// entries of 216 bytes written, then read; an engine that is killed is shown as killed (1 to 3
    /// minutes per engine)
    Inside,
    /// p50, p99, p99.9 and maximum latency of writes and of mixed reads and writes, per tenth of a
    /// second; concurrent writers, 1 to 8 (about a minute per engine)
    Latency,
    /// Ten million overwrites of a million keys, ten times the memtable: write, read and space
    /// amplification over time, with the peak (30 to 90 seconds per engine)
    Churn,
    /// Cost of 1, 2, 4 and 8 threads on one table (1 to 3 minutes per engine)
    Threads,
    /// Transactions: read-modify-writes with 1 to 64 hot keys and with none, SmallBank, orders as
    /// in TPC-C; checked at commit, serializable, with locks; commits and aborts (2 minutes per
    /// engine)
    Transactions,
    /// Values of 1 KiB to 1 MiB (half a GiB of each), written, read, iterated and overwritten;
    /// values of 64 MiB and 1 GiB (3 to 5 minutes per engine)
    Large,
    /// Incompressible data several times the memory (512M, by a cgroup)
    LargerThanMemory,
    /// Workloads that other benchmarks omit: churn to a steady state, a queue, a thousand families,
    /// a time series with expiry, giant values
    Beyond,
    /// All suites
    All,
}

const QUICK: &[&str] = &[
    "write_seq",
    "write_random",
    "write_random_b1",
    "read_random",
    "read_zipf",
    "read_missing",
    "seek_random",
    "range100_random",
    "delete_b1000",
    "mixed_random",
    "iterate",
    "write_durable_b1",
];
const BEYOND: &[&str] = &["churn", "queue", "families_write", "families_read", "series_ttl"];
const GIANT: &[&str] = &["giant_put", "giant_get", "giant_range"];
const LARGE: &[&str] =
    &["write_random", "read_random", "read_zipf", "seek_random", "range100_random", "churn"];

fn plain_request(
    engines: &[String],
    workloads: &[&str],
    reps: u32,
    settings: Settings,
) -> RunRequest {
    let workloads = workloads.iter().map(|w| (*w).to_owned()).collect();
    RunRequest::without_suite(engines.to_vec(), workloads, reps, settings)
}

/// Returns the requests of a suite with the user's settings; `num` and `reps` are the suite's own
/// unless the user gave them.
pub fn suite_requests(suite: Suite, args: SuiteArgs<'_>) -> Vec<RunRequest> {
    let SuiteArgs { engines, reps, num, settings: s, .. } = args;
    let with = |n: u64| Settings { num: num.unwrap_or(n), ..s.clone() };
    let half = |s: Settings| Settings { keys: KeyChoice::Random, values: ValueChoice::Half, ..s };
    match suite {
        Suite::Quick => {
            // Data several times the buffers: an engine whose data fits into its memtable always
            // looks fast.
            let small =
                Settings { memtable: s.memtable / 8, cache: s.cache / 8, ..half(with(300_000)) };
            vec![plain_request(engines, QUICK, reps.unwrap_or(3), small)]
        }
        Suite::Benchtool => {
            let names: Vec<_> =
                WORKLOADS.iter().map(|w| w.name).filter(|n| !beyond_benchtool(n)).collect();
            vec![
                plain_request(engines, &names, reps.unwrap_or(3), with(1_000_000)),
                plain_request(engines, &names, reps.unwrap_or(3), half(with(1_000_000))),
            ]
        }
        Suite::Ycsb => {
            let names: Vec<_> =
                WORKLOADS.iter().map(|w| w.name).filter(|n| n.starts_with("ycsb")).collect();
            let settings = half(with(500_000));
            let settings = Settings { value_bytes: s.value_bytes.or(Some(1000)), ..settings };
            vec![plain_request(engines, &names, reps.unwrap_or(3), settings)]
        }
        Suite::Sqlite => question_suites::sqlite(args),
        Suite::Tables => table_suite::requests(engines, reps, num, s),
        Suite::Growth => question_suites::growth(args),
        Suite::Inside => question_suites::inside(args),
        Suite::Latency => question_suites::latency(args),
        Suite::Churn => question_suites::churn(args),
        Suite::Threads => question_suites::threads(args),
        Suite::Transactions => question_suites::transactions(args),
        Suite::Large => question_suites::large(args),
        Suite::LargerThanMemory => {
            let memory = s.memory.unwrap_or(512 << 20);
            let settings = Settings {
                keys: KeyChoice::Random,
                values: ValueChoice::Random,
                value_bytes: s.value_bytes.or(Some(200)),
                memory: Some(memory),
                // A size chosen by the user is meant to be quick.
                ops: s.ops.or(num.is_none().then_some(1_000_000)),
                ..with(memory * 5 / 2 / 216)
            };
            vec![plain_request(engines, LARGE, reps.unwrap_or(1), settings)]
        }
        Suite::Beyond => vec![
            plain_request(engines, BEYOND, reps.unwrap_or(3), half(with(1_000_000))),
            plain_request(
                engines,
                GIANT,
                reps.unwrap_or(1),
                Settings { threads: 1, ..half(with(1)) },
            ),
        ],
        Suite::All => [
            Suite::Quick,
            Suite::Benchtool,
            Suite::Ycsb,
            Suite::Sqlite,
            Suite::Tables,
            Suite::Beyond,
            Suite::Large,
            Suite::LargerThanMemory,
            Suite::Growth,
            Suite::Inside,
            Suite::Latency,
            Suite::Churn,
            Suite::Threads,
            Suite::Transactions,
        ]
        .iter()
        .flat_map(|suite| suite_requests(*suite, args))
        .collect(),
    }
}

fn beyond_benchtool(name: &str) -> bool {
    let beyond = [
        "ycsb",
        "bulk",
        "read_hot",
        "read_view",
        "churn",
        "queue",
        "write_durable",
        "read_zipf",
        "families",
        "series",
        "giant",
        "txn",
        "replay",
    ];
    beyond.iter().any(|p| name.starts_with(p))
}
