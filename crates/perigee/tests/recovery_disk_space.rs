//! An open needs no free space for a copy of the log.
//!
//! Regression test: a file system of 3 MB was full. After other files had been deleted, the
//! database could still not be opened, because the open copied the log, which was larger than the
//! freed space.
#![allow(clippy::unwrap_used)]

use perigee::env::Env;
use perigee::env::fs::memory::{Crash, SimDisk};
use perigee::{Db, Durability, ErrorKind, Options};
use std::sync::Arc;

const MIB: u64 = 1 << 20;

fn options(disk: &Arc<SimDisk>) -> Options {
    Options::in_env(Env { fs: disk.clone(), ..Env::real() }).min_free_space(0)
}

/// Writes until a disk of 2 MB is full, and kills the process. Returns the number of acknowledged
/// writes, and the disk.
fn fill(durability: Durability) -> (usize, Arc<SimDisk>) {
    let disk = SimDisk::new(1);
    disk.set_capacity(2 * MIB);
    let db = Db::open("/db", options(&disk).durability(durability)).unwrap();
    let full = (0..10_000u32).find(|i| match db.put(i.to_be_bytes(), [7; 1000]) {
        Ok(()) => false,
        Err(e) if e.kind() == ErrorKind::NoSpace => true,
        Err(e) => panic!("{e}"),
    });
    // Ignore everything the process does after this point.
    (full.unwrap() as usize, disk.crash_clone(1, Crash::Process))
}

#[test]
fn recovery_opens_log_larger_than_free_space() {
    for durability in [Durability::None, Durability::Full] {
        let (written, killed) = fill(durability);
        assert!(written > 1500, "{written}");
        // Free 1 MB, as if another file had been deleted.
        killed.set_capacity(killed.total_bytes() + MIB);
        let db = Db::open("/db", options(&killed)).unwrap();
        assert_eq!(db.iter().unwrap().count(), written, "{durability:?}");
        // Entries that the open recovered survive a power cut, whether or not they were synced
        // before.
        let cut = killed.crash_clone(2, Crash::Power);
        drop(db);
        let db = Db::open("/db", options(&cut)).unwrap();
        assert_eq!(db.iter().unwrap().count(), written, "{durability:?}, after a power cut");
        db.close().unwrap();
    }
}

#[test]
fn read_only_open_accepts_log_larger_than_budget() {
    let (written, killed) = fill(Durability::None);
    let db = Db::open("/db", options(&killed).memory_budget(MIB).read_only(true)).unwrap();
    assert_eq!(db.iter().unwrap().count(), written);
    let held: u64 = db.admin().stats().memory_bytes();
    assert!(
        held > db.admin().stats().memory_budget,
        "the log is replayed into memory and accounted there: {:?}",
        db.admin().stats().memory
    );
}
