//! The workloads: a table of plain descriptions, and the code that runs them on any engine.
//!
//! Names are stable; results under one name stay comparable.

pub mod worker;
mod bulk;
mod replay;
mod series;
pub mod txns;

pub use replay::TraceReplay;
pub use series::count_visible;

use crate::settings::{Pattern, Sync};

/// Order in which keys are loaded and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyLayout {
    /// Ascending.
    Sequential,
    /// Scattered as `--keys` says.
    Scattered,
    /// Ascending timestamps with irregular gaps.
    Timestamp,
    /// Descending.
    Reverse,
}

/// How an operation chooses its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyDistribution {
    /// All keys, in the order of their numbers.
    InOrder,
    Uniform,
    /// Zipfian with exponent 0.99, hot keys scattered.
    Zipf,
    /// Most recently inserted keys are the most frequent.
    Latest,
    /// Uniform among a few scattered keys whose blocks fit into the cache.
    Hot,
}

/// Kind of operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OpKind {
    Write,
    /// Loads everything at once, with the engine's bulk load.
    Bulk,
    Delete,
    Read,
    /// Reads in one view (snapshot, read transaction).
    ReadSharedView,
    /// Reads of keys that were never written.
    ReadMissing,
    /// Seeks with a cursor.
    Seek,
    /// Seeks with a new cursor and reads this many entries.
    Range(usize),
    /// Reads everything in order, once per thread.
    Iterate,
    /// Random mix by percent: read, update, insert, scan of 1 to 100 entries, read-modify-write.
    Mix {
        read: u8,
        update: u8,
        insert: u8,
        scan: u8,
    },
    /// Inserts at the tail, finds the head by scanning, deletes it.
    Queue,
    /// Appends batches to a time series whose entries expire, and reads the newest.
    Series,
    /// Transactions, at the level of the settings.
    Txn(txns::TxnKind),
    /// Operations of a trace.
    Replay,
}

/// One workload.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    pub name: &'static str,
    pub about: &'static str,
    pub layout: KeyLayout,
    /// True if all keys are there before measuring begins.
    pub preloaded: bool,
    pub op_kind: OpKind,
    pub distribution: KeyDistribution,
    pub batch: usize,
    pub key_bytes: usize,
    pub value_bytes: usize,
    /// Number of keys in the database, as a function of `--num`.
    pub keys: fn(u64) -> u64,
    /// Number of operations, as a function of `--num`.
    pub ops: fn(u64) -> u64,
    /// True if keys are spread over `--families`.
    pub families: bool,
    /// True if values have `--giant-bytes`.
    pub giant: bool,
    /// Durability that the workload requires.
    pub sync: Option<Sync>,
}

const DEFAULT_WORKLOAD: Workload = Workload {
    name: "",
    about: "",
    layout: KeyLayout::Scattered,
    preloaded: true,
    op_kind: OpKind::Read,
    distribution: KeyDistribution::Uniform,
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
    Workload {
        name,
        about,
        preloaded: false,
        op_kind: OpKind::Write,
        distribution: KeyDistribution::InOrder,
        batch,
        ..DEFAULT_WORKLOAD
    }
}

const fn read(
    name: &'static str,
    about: &'static str,
    act: OpKind,
    pick: KeyDistribution,
) -> Workload {
    Workload { name, about, op_kind: act, distribution: pick, ..DEFAULT_WORKLOAD }
}

const fn mix(
    name: &'static str,
    about: &'static str,
    pick: KeyDistribution,
    percent: [u8; 4],
) -> Workload {
    let [read, update, insert, scan] = percent;
    Workload {
        name,
        about,
        op_kind: OpKind::Mix { read, update, insert, scan },
        distribution: pick,
        ..DEFAULT_WORKLOAD
    }
}

const fn giant(
    name: &'static str,
    about: &'static str,
    loaded: bool,
    act: OpKind,
    ops: u8,
) -> Workload {
    let ops: fn(u64) -> u64 = match ops {
        2 => |_| 2,
        4 => |_| 4,
        _ => |_| 8,
    };
    Workload {
        name,
        about,
        preloaded: loaded,
        op_kind: act,
        distribution: KeyDistribution::InOrder,
        keys: |_| 4,
        ops,
        giant: true,
        ..DEFAULT_WORKLOAD
    }
}

const fn txn(name: &'static str, about: &'static str, kind: txns::TxnKind) -> Workload {
    Workload {
        name,
        about,
        op_kind: OpKind::Txn(kind),
        keys: |n| (n / 4).max(2),
        ops: |n| (n / 2).max(1),
        ..DEFAULT_WORKLOAD
    }
}

const fn counters(name: &'static str, about: &'static str, hot: u64) -> Workload {
    txn(name, about, txns::TxnKind::Rmw { hot })
}

/// All workloads.
pub const WORKLOADS: &[Workload] = &[
    Workload {
        layout: KeyLayout::Sequential,
        ..write("write_seq", "ascending keys into an empty database", 1000)
    },
    Workload {
        layout: KeyLayout::Timestamp,
        ..write(
            "write_timestamp",
            "keys that begin with ascending timestamps, into an empty database",
            1000,
        )
    },
    Workload {
        layout: KeyLayout::Reverse,
        ..write("write_reverse", "descending keys into an empty database", 1000)
    },
    Workload {
        layout: KeyLayout::Sequential,
        op_kind: OpKind::Bulk,
        ..write("bulk_seq", "ascending keys, with the engine's bulk load", 1)
    },
    Workload {
        op_kind: OpKind::Bulk,
        ..write("bulk_random", "scattered keys, with the engine's bulk load", 1)
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
        distribution: KeyDistribution::Zipf,
        ..write("write_zipf", "Zipfian keys, repeatedly overwritten, into an empty database", 1000)
    },
    read("read_random", "uniform reads of existing keys", OpKind::Read, KeyDistribution::Uniform),
    read("read_zipf", "Zipfian reads of existing keys", OpKind::Read, KeyDistribution::Zipf),
    read(
        "read_hot",
        "reads of a few keys whose blocks the cache holds (`--cache` / 16 KiB of them)",
        OpKind::Read,
        KeyDistribution::Hot,
    ),
    read(
        "read_view",
        "uniform reads in one snapshot or read transaction per thread",
        OpKind::ReadSharedView,
        KeyDistribution::Uniform,
    ),
    read(
        "read_missing",
        "reads of keys that were never written",
        OpKind::ReadMissing,
        KeyDistribution::Uniform,
    ),
    read("seek_random", "cursor seeks to uniform keys", OpKind::Seek, KeyDistribution::Uniform),
    Workload {
        layout: KeyLayout::Sequential,
        ..read("seek_seq", "cursor seeks to ascending keys", OpKind::Seek, KeyDistribution::InOrder)
    },
    read("seek_zipf", "cursor seeks to Zipfian keys", OpKind::Seek, KeyDistribution::Zipf),
    Workload {
        ops: |n| (n / 20).max(1),
        ..read(
            "range100_random",
            "a new cursor reads 100 entries from a uniform key",
            OpKind::Range(100),
            KeyDistribution::Uniform,
        )
    },
    Workload {
        ops: |n| (n / 200).max(1),
        ..read(
            "range1000_random",
            "a new cursor reads 1000 entries from a uniform key",
            OpKind::Range(1000),
            KeyDistribution::Uniform,
        )
    },
    Workload {
        batch: 1000,
        ..read(
            "delete_b1000",
            "every key deleted, a thousand at a time",
            OpKind::Delete,
            KeyDistribution::InOrder,
        )
    },
    Workload {
        ops: |n| (n / 4).max(1),
        ..read("delete_b1", "keys deleted one at a time", OpKind::Delete, KeyDistribution::InOrder)
    },
    mix(
        "mixed_random",
        "half reads, half overwrites, uniform, one at a time",
        KeyDistribution::Uniform,
        [50, 50, 0, 0],
    ),
    read(
        "iterate",
        "everything in order, once per thread",
        OpKind::Iterate,
        KeyDistribution::InOrder,
    ),
    Workload {
        key_bytes: 256,
        value_bytes: 4096,
        keys: |n| (n / 10).max(1),
        ops: |n| (n / 10).max(1),
        ..write("large_4k", "256-byte keys with 4 KiB values, scattered, a tenth as many", 1000)
    },
    Workload { value_bytes: 64, ..write("small_64", "64-byte values, scattered", 1000) },
    giant(
        "giant_put",
        "values of 1 GB (`--giant-bytes`), put one at a time",
        false,
        OpKind::Write,
        4,
    ),
    giant("giant_get", "values of 1 GB, each read twice", true, OpKind::Read, 8),
    giant("giant_range", "a new cursor reads two values of 1 GB", true, OpKind::Range(2), 2),
    mix(
        "ycsb_a",
        "YCSB A: half reads, half updates, Zipfian",
        KeyDistribution::Zipf,
        [50, 50, 0, 0],
    ),
    mix("ycsb_b", "YCSB B: 95 % reads, 5 % updates, Zipfian", KeyDistribution::Zipf, [95, 5, 0, 0]),
    mix("ycsb_c", "YCSB C: reads, Zipfian", KeyDistribution::Zipf, [100, 0, 0, 0]),
    mix(
        "ycsb_d",
        "YCSB D: 95 % reads of the latest, 5 % inserts",
        KeyDistribution::Latest,
        [95, 0, 5, 0],
    ),
    Workload {
        ops: |n| (n / 20).max(1),
        ..mix(
            "ycsb_e",
            "YCSB E: 95 % scans of 1 to 100, 5 % inserts",
            KeyDistribution::Zipf,
            [0, 0, 5, 95],
        )
    },
    mix(
        "ycsb_f",
        "YCSB F: half reads, half read-modify-writes, Zipfian",
        KeyDistribution::Zipf,
        [50, 0, 0, 0],
    ),
    Workload {
        ops: |n| n * 4,
        batch: 100,
        ..read(
            "churn",
            "every key overwritten four times, uniform, batches of 100",
            OpKind::Write,
            KeyDistribution::Uniform,
        )
    },
    Workload {
        layout: KeyLayout::Sequential,
        preloaded: false,
        ops: |n| (n / 4).max(1),
        ..read(
            "queue",
            "insert at the tail, scan for the head, delete it",
            OpKind::Queue,
            KeyDistribution::InOrder,
        )
    },
    Workload {
        families: true,
        ..write(
            "families_write",
            "scattered keys over 1,000 families (`--families`), in batches of 100",
            100,
        )
    },
    Workload {
        families: true,
        ..read(
            "families_read",
            "uniform reads over 1,000 families",
            OpKind::Read,
            KeyDistribution::Uniform,
        )
    },
    Workload {
        layout: KeyLayout::Timestamp,
        preloaded: false,
        batch: 100,
        ops: |n| n * 2,
        ..read(
            "series_ttl",
            "a time series whose entries expire (`--ttl`): batches of 100 at the tail, reads of the newest",
            OpKind::Series,
            KeyDistribution::InOrder,
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
    counters("txn_rmw_1", "transactions that increment two keys: always the same one, and any", 1),
    counters("txn_rmw_4", "transactions that increment two keys: one of 4, and any", 4),
    counters("txn_rmw_16", "transactions that increment two keys: one of 16, and any", 16),
    counters("txn_rmw_64", "transactions that increment two keys: one of 64, and any", 64),
    counters("txn_rmw", "transactions that increment any two keys", u64::MAX),
    txn(
        "txn_smallbank",
        "SmallBank: six kinds of transactions over two families, nine tenths of them on 1,000 customers",
        txns::TxnKind::SmallBank,
    ),
    txn(
        "txn_neworder",
        "as in TPC-C: half orders of 5 to 15 lines, half payments, over six families",
        txns::TxnKind::NewOrder,
    ),
    Workload {
        preloaded: true,
        ..read(
            REPLAY,
            "the operations of `--trace FILE`, in order, by one thread",
            OpKind::Replay,
            KeyDistribution::InOrder,
        )
    },
];

/// Name of the workload that needs a trace and is not part of `all`.
pub const REPLAY: &str = "replay";

/// Returns the workload of that name.
pub fn find_workload(name: &str) -> Option<&'static Workload> {
    WORKLOADS.iter().find(|w| w.name == name)
}

impl Workload {
    /// Returns this workload with the key order and distribution of a pattern, where it does not
    /// fix them itself.
    pub fn with_pattern(mut self, pattern: Option<Pattern>) -> Workload {
        let Some(pattern) = pattern else { return self };
        if matches!(self.op_kind, OpKind::Queue | OpKind::Series | OpKind::Txn(_) | OpKind::Replay)
        {
            return self;
        }
        let (layout, pick) = match pattern {
            Pattern::Seq => (KeyLayout::Sequential, KeyDistribution::InOrder),
            Pattern::Random => (KeyLayout::Scattered, self.distribution),
            Pattern::Zipfian => (KeyLayout::Scattered, KeyDistribution::Zipf),
            Pattern::Uniform => (KeyLayout::Scattered, KeyDistribution::Uniform),
            Pattern::Timestamp => (KeyLayout::Timestamp, self.distribution),
            Pattern::Reverse => (KeyLayout::Reverse, self.distribution),
        };
        self.layout = layout;
        if !matches!(self.op_kind, OpKind::Bulk | OpKind::Delete | OpKind::Iterate) {
            self.distribution = pick;
        }
        self
    }
    /// Returns true if the measured phase both reads and writes, one at a time.
    pub fn is_mixed(&self) -> bool {
        matches!(self.op_kind, OpKind::Mix { read, scan, .. } if read + scan > 0 && read + scan < 100)
    }
    /// Returns true if the measured phase changes the database.
    pub fn is_writing(&self) -> bool {
        match self.op_kind {
            OpKind::Write
            | OpKind::Bulk
            | OpKind::Delete
            | OpKind::Queue
            | OpKind::Series
            | OpKind::Txn(_)
            | OpKind::Replay => true,
            OpKind::Mix { read, scan, .. } => read + scan < 100,
            _ => false,
        }
    }
}
