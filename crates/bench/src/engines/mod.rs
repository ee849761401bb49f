//! The engines of this build: one file each, knowing nothing of workloads. To add one: a file, and
//! a line in the list.

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

/// An engine that can be asked for by name.
pub struct EngineEntry {
    pub name: &'static str,
    pub about: &'static str,
    /// Opens or creates.
    pub open: OpenEngine,
    /// Not in lists and not part of `all`.
    pub hidden: bool,
}

/// The engine whose library the user names.
pub const TIDESDB: &str = "tidesdb";

/// Every engine of this build.
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
        about: "perigee, with a wrong answer now and then",
        open: faulty::open,
        hidden: true,
    },
];

/// The engine of that name.
pub fn find_engine(name: &str) -> Option<&'static EngineEntry> {
    ENGINES.iter().find(|e| e.name == name)
}

/// Version of a crate that this build uses, from its lock file.
fn locked_version(package: &str) -> String {
    let lock = include_str!("../../../../Cargo.lock");
    let entry =
        lock.split("[[package]]").find(|p| p.contains(&format!("\nname = \"{package}\"\n")));
    let version = entry.and_then(|e| e.split("version = \"").nth(1)?.split('"').next());
    version.unwrap_or("unknown").to_owned()
}
