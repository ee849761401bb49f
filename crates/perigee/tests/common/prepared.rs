//! Shared by the tests of two-phase commit.

use perigee::env::Env;
use perigee::env::fs::memory::SimDisk;
use perigee::{Db, FamilyOptions};
use std::sync::Arc;

/// Returns an environment on a simulated disk.
pub fn env(disk: &Arc<SimDisk>) -> Env {
    Env { fs: disk.clone(), ..Env::real() }
}
/// Returns options with small memtables and files.
pub fn small() -> FamilyOptions {
    FamilyOptions::new().memtable_bytes(4 << 10).target_file_bytes(4 << 10).block_bytes(256)
}
/// Returns the identifiers of the prepared transactions.
pub fn gids(db: &Db) -> Vec<String> {
    db.two_phase()
        .prepared()
        .unwrap()
        .into_iter()
        .map(|p| String::from_utf8(p.gid).unwrap())
        .collect()
}
