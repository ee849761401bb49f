//! Named sets of workloads with the settings that belong to them.

use crate::keys::KeyChoice;
use crate::parent::Order;
use crate::settings::Settings;
use crate::values::ValueChoice;
use crate::workload::WORKLOADS;
use clap::ValueEnum;

/// The suites.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Suite {
    /// What `make bench` runs: the main workloads, every default engine, data four times memtable and
    /// cache (which are an eighth of what the options say), under ten minutes
    Quick,
    /// The seed benchmark: its counter keys and ramp values, then random keys with half-compressible values
    Seed,
    /// YCSB A to F
    Ycsb,
    /// Bulk loads, durable commits, warm reads, reopening: perigee beside sqlite
    Sqlite,
    /// Data several times the memory (512M, by a cgroup), incompressible
    LargeThanMemory,
    /// What the others leave out: churn to a steady state, a queue, a thousand families, a series whose
    /// entries expire, giant values
    Beyond,
    /// All of them
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
const SQLITE: &[&str] = &[
    "write_seq",
    "write_random",
    "write_durable_b1000",
    "write_durable_b1",
    "read_random",
    "read_zipf",
    "read_missing",
    "range100_random",
];
const BEYOND: &[&str] = &["churn", "queue", "families_write", "families_read", "series_ttl"];
const GIANT: &[&str] = &["giant_put", "giant_get", "giant_range"];
const LARGE: &[&str] =
    &["write_random", "read_random", "read_zipf", "seek_random", "range100_random", "churn"];

fn order(engines: &[String], workloads: &[&str], reps: u32, settings: Settings) -> Order {
    Order {
        engines: engines.to_vec(),
        workloads: workloads.iter().map(|w| (*w).to_owned()).collect(),
        reps,
        settings,
    }
}

/// What a suite runs, given the user's settings; `num` and `reps` are the suite's own unless the user gave them.
pub fn orders(
    suite: Suite,
    engines: &[String],
    reps: Option<u32>,
    num: Option<u64>,
    s: &Settings,
) -> Vec<Order> {
    let with = |n: u64| Settings { num: num.unwrap_or(n), ..s.clone() };
    let half = |s: Settings| Settings { keys: KeyChoice::Random, values: ValueChoice::Half, ..s };
    match suite {
        Suite::Quick => {
            // Data several times the buffers: in a database that fits into its memtable everybody looks good.
            let small = Settings { memtable: s.memtable / 8, cache: s.cache / 8, ..half(with(300_000)) };
            vec![order(engines, QUICK, reps.unwrap_or(3), small)]
        }
        Suite::Seed => {
            let names: Vec<_> = WORKLOADS.iter().map(|w| w.name).filter(|n| !beyond_seed(n)).collect();
            vec![
                order(engines, &names, reps.unwrap_or(3), with(1_000_000)),
                order(engines, &names, reps.unwrap_or(3), half(with(1_000_000))),
            ]
        }
        Suite::Ycsb => {
            let names: Vec<_> = WORKLOADS.iter().map(|w| w.name).filter(|n| n.starts_with("ycsb")).collect();
            let settings = half(with(500_000));
            let settings = Settings { value_bytes: s.value_bytes.or(Some(1000)), ..settings };
            vec![order(engines, &names, reps.unwrap_or(3), settings)]
        }
        Suite::Sqlite => {
            let settings = half(with(500_000));
            let more = Settings { threads: 8, ..settings.clone() };
            let one = Settings { threads: 1, ..settings };
            let durable = ["write_durable_b1"];
            vec![
                order(engines, SQLITE, reps.unwrap_or(3), one),
                order(engines, &durable, reps.unwrap_or(3), more),
            ]
        }
        Suite::LargeThanMemory => {
            let memory = s.memory.unwrap_or(512 << 20);
            let settings = Settings {
                keys: KeyChoice::Random,
                values: ValueChoice::Random,
                value_bytes: s.value_bytes.or(Some(200)),
                memory: Some(memory),
                // A size of the user's own is there to be quick.
                ops: s.ops.or(num.is_none().then_some(1_000_000)),
                ..with(memory * 5 / 2 / 216)
            };
            vec![order(engines, LARGE, reps.unwrap_or(1), settings)]
        }
        Suite::Beyond => vec![
            order(engines, BEYOND, reps.unwrap_or(3), half(with(1_000_000))),
            order(engines, GIANT, reps.unwrap_or(1), Settings { threads: 1, ..half(with(1)) }),
        ],
        Suite::All => {
            [Suite::Quick, Suite::Seed, Suite::Ycsb, Suite::Sqlite, Suite::Beyond, Suite::LargeThanMemory]
                .iter()
                .flat_map(|suite| orders(*suite, engines, reps, num, s))
                .collect()
        }
    }
}

fn beyond_seed(name: &str) -> bool {
    let beyond =
        ["ycsb", "churn", "queue", "write_durable", "read_zipf", "families", "series", "giant", "replay"];
    beyond.iter().any(|p| name.starts_with(p))
}
