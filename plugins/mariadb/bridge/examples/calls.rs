//! Measures the calls that the handler makes for each row, beside the same calls of the engine:
//! `cargo run --release -p perigeedb-mariadb-bridge --example calls`.
#![allow(unsafe_code)] // The measured functions are C functions.
#![allow(clippy::unwrap_used)] // A failure ends the measurement.

use perigee::{Db, Options};
use perigee_mariadb_bridge::engine::*;
use perigee_mariadb_bridge::ffi::Slice;
use perigee_mariadb_bridge::read::*;
use perigee_mariadb_bridge::status::Status;
use perigee_mariadb_bridge::table::*;
use perigee_mariadb_bridge::txn::*;
use std::ffi::CString;
use std::ptr::null_mut;
use std::time::Instant;

const ROWS: u64 = 100_000;
const BATCH: u64 = 1000;

fn key(i: u64) -> [u8; 9] {
    let mut key = [1; 9];
    key[1..].copy_from_slice(&(i * 76_543 % ROWS).to_be_bytes());
    key
}

/// Prints the shortest of three runs of `calls` calls, in nanoseconds for each.
fn measure(name: &str, calls: u64, mut run: impl FnMut()) {
    let mut best = f64::MAX;
    for _ in 0..3 {
        let started = Instant::now();
        run();
        best = best.min(started.elapsed().as_nanos() as f64 / calls as f64);
    }
    println!("{name:<45} {best:8.0} ns");
}

fn ok(status: Status) {
    assert_eq!(status, Status::OK, "{}", perigee_mariadb_bridge::status::last_error());
}

fn main() {
    let dir = std::env::temp_dir().join(format!("perigee-calls-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    let path = CString::new(dir.join("bridge").to_str().unwrap()).unwrap();
    std::fs::create_dir_all(&dir).unwrap();
    // SAFETY: all pointers are valid, and objects are released before the database.
    unsafe { measure_bridge(&path) };
    measure_engine(&dir.join("engine"));
    std::fs::remove_dir_all(&dir).unwrap();
}

fn measure_engine(path: &std::path::Path) {
    let db = Db::open(path, Options::new().memory_budget(512 << 20)).unwrap();
    let family = db.create_family("d/t", Default::default()).unwrap();
    let value = [7; 100];
    let mut load = family.bulk_load().unwrap();
    (0..ROWS).for_each(|i| load.put(key(i), value).unwrap());
    load.finish().unwrap();
    measure("engine: get_pinned", ROWS, || {
        (0..ROWS).for_each(|i| drop(family.get_pinned(key(i)).unwrap()));
    });
    measure("engine: cursor next and entry", ROWS, || {
        let mut cursor = family.cursor().unwrap();
        cursor.seek_to_first().unwrap();
        while cursor.is_valid() {
            std::hint::black_box(cursor.entry().unwrap());
            cursor.next().unwrap();
        }
    });
    db.close().unwrap();
}

unsafe fn measure_bridge(path: &CString) {
    let options = EngineOptions {
        memory_budget: 512 << 20,
        max_open_files: 0,
        background_threads: 0,
        log_to_stderr: 0,
        keys: perigee_mariadb_bridge::keys::ServerKeys::NONE,
    };
    let (mut engine, mut table, mut trx) = (null_mut(), null_mut(), null_mut());
    let value = [7; 100];
    let value = Slice::new(&value);
    // SAFETY: all pointers are valid.
    unsafe {
        ok(pgb_engine_open(path.as_ptr(), &raw const options, &raw mut engine));
        let defaults = TableOptions::default();
        ok(pgb_table_create(engine, c"d/t".as_ptr(), 3, &raw const defaults, &raw mut table));
        ok(pgb_trx_begin(engine, 1_000_000, &raw mut trx));
    }
    let write = |name: &str, put: &dyn Fn(Slice)| {
        measure(name, ROWS, || {
            for batch in 0..ROWS / BATCH {
                (batch * BATCH..(batch + 1) * BATCH).for_each(|i| put(Slice::new(&key(i))));
                // SAFETY: the transaction is live.
                ok(unsafe { pgb_trx_commit(trx, Durability::NO_SYNC) });
            }
        });
    };
    let buffer = pgb_buffer_new();
    // SAFETY: all objects are live.
    unsafe {
        write("put (1000 in a transaction)", &|k| ok(pgb_trx_put(trx, table, k, value, 0)));
        write("put_locked (1000 in a transaction)", &|k| {
            ok(pgb_trx_put_locked(trx, table, k, value, 0));
        });
        write("get_locked and put_locked", &|k| {
            let mut found = Slice::NULL;
            ok(pgb_get_locked(trx, table, k, 1, buffer, &raw mut found));
            ok(pgb_trx_put_locked(trx, table, k, value, 0));
        });
        write("lock_key", &|k| ok(pgb_lock_key(trx, table, k, 1)));
        measure("transaction of one put_locked", ROWS, || {
            for i in 0..ROWS {
                ok(pgb_trx_put_locked(trx, table, Slice::new(&key(i)), value, 0));
                ok(pgb_trx_commit(trx, Durability::NO_SYNC));
            }
        });
        measure("transaction of get_locked and put_locked", ROWS, || {
            for i in 0..ROWS {
                let (mut found, k) = (Slice::NULL, key(i));
                ok(pgb_get_locked(trx, table, Slice::new(&k), 1, buffer, &raw mut found));
                ok(pgb_trx_put_locked(trx, table, Slice::new(&k), value, 0));
                ok(pgb_trx_commit(trx, Durability::NO_SYNC));
            }
        });
        ok(pgb_table_compact(table));
        measure("snapshot_take and release", ROWS, || {
            for _ in 0..ROWS {
                let mut view = null_mut();
                ok(pgb_snapshot_take(engine, &raw mut view));
                pgb_snapshot_release(view);
            }
        });
        let mut view = null_mut();
        ok(pgb_snapshot_take(engine, &raw mut view));
        let get = |name: &str, view: *mut Snapshot| {
            measure(name, ROWS, || {
                for i in 0..ROWS {
                    let (mut found, k) = (Slice::NULL, key(i));
                    ok(pgb_get(trx, view, table, Slice::new(&k), buffer, &raw mut found));
                }
            });
        };
        let scan = |name: &str, view: *mut Snapshot| {
            measure(name, ROWS, || {
                let (mut cursor, mut k, mut v) = (null_mut(), Slice::NULL, Slice::NULL);
                let none = Slice::NULL;
                ok(pgb_cursor_open(trx, view, table, none, none, &raw mut cursor));
                ok(pgb_cursor_first(cursor, &raw mut k, &raw mut v));
                let mut rows = 1;
                while pgb_cursor_next(cursor, &raw mut k, &raw mut v) == Status::OK {
                    rows += 1;
                }
                assert_eq!(rows, ROWS);
                pgb_cursor_close(cursor);
            });
        };
        get("get", null_mut());
        get("get of a snapshot", view);
        scan("cursor_next", view);
        measure("cursor open, seek, close", ROWS, || {
            for i in 0..ROWS {
                let (mut cursor, mut k, mut v) = (null_mut(), Slice::NULL, Slice::NULL);
                let begin = key(i);
                let end = [2];
                let (begin, end) = (Slice::new(&begin), Slice::new(&end));
                ok(pgb_cursor_open(trx, view, table, begin, end, &raw mut cursor));
                ok(pgb_cursor_first(cursor, &raw mut k, &raw mut v));
                pgb_cursor_close(cursor);
            }
        });
        // With a write of its own, reads go through the transaction.
        ok(pgb_trx_put(trx, table, Slice::new(&key(7)), value, 0));
        get("get after an own write", null_mut());
        get("get of a snapshot after an own write", view);
        scan("cursor_next after an own write", view);
        pgb_snapshot_release(view);
        pgb_buffer_free(buffer);
        pgb_trx_free(trx);
        pgb_table_release(table);
        ok(pgb_engine_close(engine));
    }
}
