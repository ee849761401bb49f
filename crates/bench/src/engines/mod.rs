//! The engines of this build: one file each, independent of workloads. To add an engine, add a file
//! and an entry in the list.

pub mod fjall;
#[allow(unsafe_code)]
pub mod lmdb;
pub mod perigee;
pub mod redb;
#[cfg(feature = "rocksdb")]
pub mod rocksdb;
#[cfg(feature = "rocksdb")]
pub mod rocksdb_txn;
pub mod sqlite;
#[allow(unsafe_code)]
pub mod tidesdb;
pub mod recorder;
pub mod faulty;

use crate::engine::OpenEngine;

/// An engine that can be selected by name.
pub struct EngineEntry {
    pub name: &'static str,
    pub about: &'static str,
    /// Opens or creates a database.
    pub open: OpenEngine,
    /// True if it is not listed and not part of `all`.
    pub hidden: bool,
}

/// Name of the engine whose library the user supplies.
pub const TIDESDB: &str = "tidesdb";

/// All engines of this build.
pub const ENGINES: &[EngineEntry] = &[
    EngineEntry {
        name: "perigee",
        about: "this project's engine: an LSM tree",
        open: perigee::open,
        hidden: false,
    },
    EngineEntry {
        name: "lmdb",
        about: "memory-mapped copy-on-write B+tree, in C (heed)",
        open: lmdb::open,
        hidden: false,
    },
    EngineEntry {
        name: "sqlite",
        about: "B-tree with a write-ahead log, in C (rusqlite)",
        open: sqlite::open,
        hidden: false,
    },
    EngineEntry { name: "fjall", about: "LSM tree, in Rust", open: fjall::open, hidden: false },
    EngineEntry {
        name: "redb",
        about: "copy-on-write B+tree, in Rust",
        open: redb::open,
        hidden: false,
    },
    #[cfg(feature = "rocksdb")]
    EngineEntry { name: "rocksdb", about: "LSM tree, in C++", open: rocksdb::open, hidden: false },
    EngineEntry {
        name: TIDESDB,
        about: "LSM tree, in C; needs --tidesdb-lib PATH",
        open: tidesdb::open,
        hidden: false,
    },
    EngineEntry {
        name: "liar",
        about: "perigee with occasional wrong answers",
        open: faulty::open,
        hidden: true,
    },
];

/// Returns the engine of that name.
pub fn find_engine(name: &str) -> Option<&'static EngineEntry> {
    ENGINES.iter().find(|e| e.name == name)
}

/// Returns the version of a crate in this build, from the lock file.
pub fn locked_version(package: &str) -> String {
    let lock = include_str!("../../../../Cargo.lock");
    let entry =
        lock.split("[[package]]").find(|p| p.contains(&format!("\nname = \"{package}\"\n")));
    let version = entry.and_then(|e| e.split("version = \"").nth(1)?.split('"').next());
    version.unwrap_or("unknown").to_owned()
}
