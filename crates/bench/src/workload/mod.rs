//! The workloads: a table of plain descriptions, and the code that asks any engine for what they describe.
//!
//! Names are stable; results under one name stay comparable.

pub mod run;
mod bulk;
mod replay;
mod series;
pub mod txns;

pub use replay::Replay;
pub use series::visible;

use crate::settings::{Pattern, Sync};

/// In which order keys are loaded and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Ascending.
    Sequential,
    /// As `--keys` says.
    Scattered,
    /// Ascending times with irregular gaps.
    Timestamp,
    /// Descending.
    Reverse,
}

/// Which key an operation takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    /// All, in the order they were numbered.
    InOrder,
    Uniform,
    /// Exponent 0.99, hot keys scattered.
    Zipf,
    /// The newest inserted are the most frequent.
    Latest,
    /// Uniform among a few keys, scattered, whose blocks a cache holds.
    Hot,
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Act {
    Write,
    /// Everything at once, in the way that the engine has for it.
    Bulk,
    Delete,
    Read,
    /// Reads in one view (snapshot, read transaction).
    ReadView,
    /// Reads of keys that were never written.
    ReadMissing,
    /// A cursor finds a key.
    Seek,
    /// A new cursor finds a key and reads so many entries.
    Range(usize),
    /// Everything, once for each thread.
    Iterate,
    /// Operations drawn by percent: read, update, insert, scan of 1 to 100, read-modify-write.
    Mix {
        read: u8,
        update: u8,
        insert: u8,
        scan: u8,
    },
    /// Insert at the tail, find the head by scanning, delete it.
    Queue,
    /// Batches at the tail of a series whose entries expire, and looks at the newest.
    Series,
    /// Transactions, of the level that the settings say.
    Txn(txns::Kind),
    /// What a trace says.
    Replay,
}

/// One workload.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    pub name: &'static str,
    pub about: &'static str,
    pub layout: Layout,
    /// Whether all keys are there before measuring begins.
    pub loaded: bool,
    pub act: Act,
    pub pick: Pick,
    pub batch: usize,
    pub key_bytes: usize,
    pub value_bytes: usize,
    /// Keys in the database, for `--num`.
    pub keys: fn(u64) -> u64,
    /// Operations, for `--num`.
    pub ops: fn(u64) -> u64,
    /// Whether keys are spread over `--families`.
    pub families: bool,
    /// Whether values have `--giant-bytes`.
    pub giant: bool,
    /// Whether it insists on a durability.
    pub sync: Option<Sync>,
}

const PLAIN: Workload = Workload {
    name: "",
    about: "",
    layout: Layout::Scattered,
    loaded: true,
    act: Act::Read,
    pick: Pick::Uniform,
    batch: 1,
    key_bytes: 16,
    value_bytes: 100,
    keys: |n| n,
    ops: |n| n,
    families: false,
    giant: false,
    sync: None,
};

const fn write(name: &'static str, about: &'static str, batch: usize) -> Workload {
    Workload { name, about, loaded: false, act: Act::Write, pick: Pick::InOrder, batch, ..PLAIN }
}

const fn read(name: &'static str, about: &'static str, act: Act, pick: Pick) -> Workload {
    Workload { name, about, act, pick, ..PLAIN }
}

const fn mix(name: &'static str, about: &'static str, pick: Pick, percent: [u8; 4]) -> Workload {
    let [read, update, insert, scan] = percent;
    Workload { name, about, act: Act::Mix { read, update, insert, scan }, pick, ..PLAIN }
}

const fn giant(name: &'static str, about: &'static str, loaded: bool, act: Act, ops: u8) -> Workload {
    let ops: fn(u64) -> u64 = match ops {
        2 => |_| 2,
        4 => |_| 4,
        _ => |_| 8,
    };
    Workload { name, about, loaded, act, pick: Pick::InOrder, keys: |_| 4, ops, giant: true, ..PLAIN }
}

const fn txn(name: &'static str, about: &'static str, kind: txns::Kind) -> Workload {
    Workload { name, about, act: Act::Txn(kind), keys: |n| (n / 4).max(2), ops: |n| (n / 2).max(1), ..PLAIN }
}

const fn counters(name: &'static str, about: &'static str, hot: u64) -> Workload {
    txn(name, about, txns::Kind::Rmw { hot })
}

/// Every workload.
pub const WORKLOADS: &[Workload] = &[
    Workload {
        layout: Layout::Sequential,
        ..write("write_seq", "ascending keys into an empty database", 1000)
    },
    Workload {
        layout: Layout::Timestamp,
        ..write("write_timestamp", "keys that begin with ascending times, into an empty database", 1000)
    },
    Workload {
        layout: Layout::Reverse,
        ..write("write_reverse", "descending keys into an empty database", 1000)
    },
    Workload {
        layout: Layout::Sequential,
        act: Act::Bulk,
        ..write("bulk_seq", "ascending keys, by the engine's own way to fill a database", 1)
    },
    Workload {
        act: Act::Bulk,
        ..write("bulk_random", "scattered keys, by the engine's own way to fill a database", 1)
    },
    write("write_random", "scattered keys, each once, into an empty database", 1000),
    Workload {
        ops: |n| (n / 4).max(1),
        ..write("write_random_b1", "scattered keys, each once, one at a time", 1)
    },
    Workload {
        ops: |n| (n / 2).max(1),
        ..write("write_random_b10", "scattered keys, each once, ten at a time", 10)
    },
    write("write_random_b100", "scattered keys, each once, a hundred at a time", 100),
    Workload {
        pick: Pick::Zipf,
        ..write("write_zipf", "hot keys again and again, into an empty database", 1000)
    },
    read("read_random", "uniform reads of keys that are there", Act::Read, Pick::Uniform),
    read("read_zipf", "Zipfian reads of keys that are there", Act::Read, Pick::Zipf),
    read(
        "read_hot",
        "reads of a few keys whose blocks the cache holds (`--cache` / 16 KiB of them)",
        Act::Read,
        Pick::Hot,
    ),
    read(
        "read_view",
        "uniform reads in one snapshot or read transaction for each thread",
        Act::ReadView,
        Pick::Uniform,
    ),
    read("read_missing", "reads of keys that were never written", Act::ReadMissing, Pick::Uniform),
    read("seek_random", "a cursor goes to uniform keys", Act::Seek, Pick::Uniform),
    Workload {
        layout: Layout::Sequential,
        ..read("seek_seq", "a cursor goes to ascending keys", Act::Seek, Pick::InOrder)
    },
    read("seek_zipf", "a cursor goes to Zipfian keys", Act::Seek, Pick::Zipf),
    Workload {
        ops: |n| (n / 20).max(1),
        ..read(
            "range100_random",
            "a new cursor reads 100 entries from a uniform key",
            Act::Range(100),
            Pick::Uniform,
        )
    },
    Workload {
        ops: |n| (n / 200).max(1),
        ..read(
            "range1000_random",
            "a new cursor reads 1000 entries from a uniform key",
            Act::Range(1000),
            Pick::Uniform,
        )
    },
    Workload {
        batch: 1000,
        ..read("delete_b1000", "every key deleted, a thousand at a time", Act::Delete, Pick::InOrder)
    },
    Workload {
        ops: |n| (n / 4).max(1),
        ..read("delete_b1", "keys deleted one at a time", Act::Delete, Pick::InOrder)
    },
    mix("mixed_random", "half reads, half overwrites, uniform, one at a time", Pick::Uniform, [50, 50, 0, 0]),
    read("iterate", "everything in order, once for each thread", Act::Iterate, Pick::InOrder),
    Workload {
        key_bytes: 256,
        value_bytes: 4096,
        keys: |n| (n / 10).max(1),
        ops: |n| (n / 10).max(1),
        ..write("large_4k", "256-byte keys with 4 KB values, scattered, a tenth as many", 1000)
    },
    Workload { value_bytes: 64, ..write("small_64", "64-byte values, scattered", 1000) },
    giant("giant_put", "values of 1 GB (`--giant-bytes`), put one at a time", false, Act::Write, 4),
    giant("giant_get", "values of 1 GB, each read twice", true, Act::Read, 8),
    giant("giant_range", "a new cursor reads two values of 1 GB", true, Act::Range(2), 2),
    mix("ycsb_a", "YCSB A: half reads, half updates, Zipfian", Pick::Zipf, [50, 50, 0, 0]),
    mix("ycsb_b", "YCSB B: 95 % reads, 5 % updates, Zipfian", Pick::Zipf, [95, 5, 0, 0]),
    mix("ycsb_c", "YCSB C: reads, Zipfian", Pick::Zipf, [100, 0, 0, 0]),
    mix("ycsb_d", "YCSB D: 95 % reads of the latest, 5 % inserts", Pick::Latest, [95, 0, 5, 0]),
    Workload {
        ops: |n| (n / 20).max(1),
        ..mix("ycsb_e", "YCSB E: 95 % scans of 1 to 100, 5 % inserts", Pick::Zipf, [0, 0, 5, 95])
    },
    mix("ycsb_f", "YCSB F: half reads, half read-modify-writes, Zipfian", Pick::Zipf, [50, 0, 0, 0]),
    Workload {
        ops: |n| n * 4,
        batch: 100,
        ..read(
            "churn",
            "every key overwritten four times over, uniform, batches of 100",
            Act::Write,
            Pick::Uniform,
        )
    },
    Workload {
        layout: Layout::Sequential,
        loaded: false,
        ops: |n| (n / 4).max(1),
        ..read("queue", "insert at the tail, scan for the head, delete it", Act::Queue, Pick::InOrder)
    },
    Workload {
        families: true,
        ..write("families_write", "scattered keys over 1,000 families (`--families`), in batches of 100", 100)
    },
    Workload {
        families: true,
        ..read("families_read", "uniform reads over 1,000 families", Act::Read, Pick::Uniform)
    },
    Workload {
        layout: Layout::Timestamp,
        loaded: false,
        batch: 100,
        ops: |n| n * 2,
        ..read(
            "series_ttl",
            "a time series whose entries expire (`--ttl`): batches of 100 at the tail, looks at the newest",
            Act::Series,
            Pick::InOrder,
        )
    },
    Workload {
        ops: |n| (n / 500).max(1),
        sync: Some(Sync::Full),
        ..write("write_durable_b1", "single commits, each on the disk before it is acknowledged", 1)
    },
    Workload {
        ops: |n| (n / 4).max(1),
        sync: Some(Sync::Full),
        ..write(
            "write_durable_b1000",
            "commits of a thousand, each on the disk before it is acknowledged",
            1000,
        )
    },
    counters("txn_rmw_1", "transactions that count two keys up: always the same one, and any", 1),
    counters("txn_rmw_4", "transactions that count two keys up: one of 4, and any", 4),
    counters("txn_rmw_16", "transactions that count two keys up: one of 16, and any", 16),
    counters("txn_rmw_64", "transactions that count two keys up: one of 64, and any", 64),
    counters("txn_rmw", "transactions that count any two keys up", u64::MAX),
    txn(
        "txn_smallbank",
        "SmallBank: six kinds of transactions over two families, nine tenths of them on 1,000 customers",
        txns::Kind::SmallBank,
    ),
    txn(
        "txn_neworder",
        "as TPC-C: orders of 5 to 15 lines and payments by halves, over six families",
        txns::Kind::NewOrder,
    ),
    Workload {
        loaded: true,
        ..read(
            REPLAY,
            "the operations of `--trace FILE`, in their order, by one thread",
            Act::Replay,
            Pick::InOrder,
        )
    },
];

/// The workload that needs a trace, and is not part of `all`.
pub const REPLAY: &str = "replay";

/// The workload of that name.
pub fn find(name: &str) -> Option<&'static Workload> {
    WORKLOADS.iter().find(|w| w.name == name)
}

impl Workload {
    /// This workload with the order and choice of keys that a pattern asks for, where it leaves them open.
    pub fn with(mut self, pattern: Option<Pattern>) -> Workload {
        let Some(pattern) = pattern else { return self };
        if matches!(self.act, Act::Queue | Act::Series | Act::Txn(_) | Act::Replay) {
            return self;
        }
        let (layout, pick) = match pattern {
            Pattern::Seq => (Layout::Sequential, Pick::InOrder),
            Pattern::Random => (Layout::Scattered, self.pick),
            Pattern::Zipfian => (Layout::Scattered, Pick::Zipf),
            Pattern::Uniform => (Layout::Scattered, Pick::Uniform),
            Pattern::Timestamp => (Layout::Timestamp, self.pick),
            Pattern::Reverse => (Layout::Reverse, self.pick),
        };
        self.layout = layout;
        if !matches!(self.act, Act::Bulk | Act::Delete | Act::Iterate) {
            self.pick = pick;
        }
        self
    }
    /// Whether the measured phase reads and writes, one at a time.
    pub fn mixed(&self) -> bool {
        matches!(self.act, Act::Mix { read, scan, .. } if read + scan > 0 && read + scan < 100)
    }
    /// Whether the measured phase changes the database.
    pub fn writes(&self) -> bool {
        match self.act {
            Act::Write | Act::Bulk | Act::Delete | Act::Queue | Act::Series | Act::Txn(_) | Act::Replay => {
                true
            }
            Act::Mix { read, scan, .. } => read + scan < 100,
            _ => false,
        }
    }
}
