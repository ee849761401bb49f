//! An open needs no room for a copy of the log.
//!
//! The story: a file system of 3 MB had been full. Its other files were deleted, but the database
//! could not be opened: an open copied the log, which was larger than the space that had become
//! free.
#![allow(clippy::unwrap_used)]

use perigee::env::Env;
use perigee::env::fs::memory::{Crash, SimDisk};
use perigee::{Db, Durability, ErrorKind, Options};
use std::sync::Arc;

const MIB: u64 = 1 << 20;

fn options(disk: &Arc<SimDisk>) -> Options {
    Options::in_env(Env { fs: disk.clone(), ..Env::real() }).min_free_space(0)
}

/// Writes until a disk of 2 MB is full, and kills the process. How many writes were acknowledged,
/// and what is left.
fn fill(durability: Durability) -> (usize, Arc<SimDisk>) {
    let disk = SimDisk::new(1);
    disk.set_capacity(2 * MIB);
    let db = Db::open("/db", options(&disk).durability(durability)).unwrap();
    let full = (0..10_000u32).find(|i| match db.put(i.to_be_bytes(), [7; 1000]) {
        Ok(()) => false,
        Err(e) if e.kind() == ErrorKind::NoSpace => true,
        Err(e) => panic!("{e}"),
    });
    // What the process does afterwards does not count.
    (full.unwrap() as usize, disk.crash_clone(1, Crash::Process))
}

#[test]
fn recovery_opens_log_larger_than_free_space() {
    for durability in [Durability::None, Durability::Full] {
        let (written, killed) = fill(durability);
        assert!(written > 1500, "{written}");
        // Another file of 1 MB was deleted.
        killed.set_capacity(killed.total_bytes() + MIB);
        let db = Db::open("/db", options(&killed)).unwrap();
        assert_eq!(db.iter().unwrap().count(), written, "{durability:?}");
        // What the open has answered for survives a power cut, whether it had been synced before or
        // not.
        let cut = killed.crash_clone(2, Crash::Power);
        drop(db);
        let db = Db::open("/db", options(&cut)).unwrap();
        assert_eq!(db.iter().unwrap().count(), written, "{durability:?}, after a power cut");
        db.close().unwrap();
    }
}

#[test]
fn read_only_open_of_log_larger_than_budget() {
    let (written, killed) = fill(Durability::None);
    let db = Db::open("/db", options(&killed).memory_budget(MIB).read_only(true)).unwrap();
    assert_eq!(db.iter().unwrap().count(), written);
    let held: u64 = db.stats().memory.iter().map(|(_, bytes)| bytes).sum();
    assert!(
        held > db.stats().memory_budget,
        "it is in memory, and stats says so: {:?}",
        db.stats().memory
    );
}
