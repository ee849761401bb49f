//! Runs locks of one thread, to count their instructions: `valgrind --tool=callgrind
//! target/perf/examples/locks WHAT N`, with two values of N; the difference is the cost.
//!
//! WHAT: `key` (a lock and the end of the transaction), `ten` (ten locks and the end), `gaps`
//! (1,000 gap locks and 1,000 locks between them, and the end), `insert` (an exclusive lock, then a
//! lock to insert the key, and the end), `end` (an empty transaction with one savepoint).
#![allow(unsafe_code)] // The measured functions are C functions.
#![allow(clippy::unwrap_used)] // A failure ends the measurement.

use perigee_mariadb_bridge::engine::*;
use perigee_mariadb_bridge::ffi::Slice;
use perigee_mariadb_bridge::status::Status;
use perigee_mariadb_bridge::table::*;
use perigee_mariadb_bridge::txn::*;
use std::ffi::CString;
use std::ptr::null_mut;

fn key(i: u64) -> [u8; 9] {
    let mut key = [1; 9];
    key[1..].copy_from_slice(&i.to_be_bytes());
    key
}

fn ok(status: Status) {
    assert_eq!(status, Status::OK, "{}", perigee_mariadb_bridge::status::last_error());
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (what, n) = (arguments.next().unwrap(), arguments.next().unwrap().parse::<u64>().unwrap());
    let dir = std::env::temp_dir().join(format!("perigee-locks-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    let path = CString::new(dir.to_str().unwrap()).unwrap();
    let options = EngineOptions {
        memory_budget: 64 << 20,
        max_open_files: 0,
        background_threads: 0,
        log_to_stderr: 0,
        keys: perigee_mariadb_bridge::keys::ServerKeys::NONE,
    };
    let (mut engine, mut table, mut trx) = (null_mut(), null_mut(), null_mut());
    // SAFETY: all pointers are valid, and objects are released before the database.
    unsafe {
        ok(pgb_engine_open(path.as_ptr(), &raw const options, &raw mut engine));
        let defaults = TableOptions::default();
        ok(pgb_table_create(engine, c"d/t".as_ptr(), 3, &raw const defaults, &raw mut table));
        ok(pgb_trx_begin(engine, 1_000_000, &raw mut trx));
        let lock = |i: u64, mode| ok(pgb_lock_key(trx, table, Slice::new(&key(i)), mode));
        for i in 0..n {
            match what.as_str() {
                "key" => lock(i, 1),
                "ten" => (0..10).for_each(|k| lock(i * 10 + k, 1)),
                "gaps" => (0..1000).for_each(|k| {
                    let (begin, end) = (key(k * 10 + 1), key(k * 10 + 9));
                    lock(k * 10, 1);
                    ok(pgb_lock_range(trx, table, Slice::new(&begin), Slice::new(&end), 2));
                }),
                "insert" => [1, 3].into_iter().for_each(|mode| lock(i, mode)),
                "end" => ok(pgb_trx_savepoint(trx, 1)),
                other => panic!("unknown: {other}"),
            }
            pgb_trx_rollback(trx);
        }
        pgb_trx_free(trx);
        pgb_table_release(table);
        ok(pgb_engine_close(engine));
    }
    std::fs::remove_dir_all(&dir).unwrap();
}
