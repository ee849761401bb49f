//! Measures the overhead of the C interface: the same operations through Rust's API and through
//! C's, interleaved, in CPU time per operation.
//!
//! ```text
//! cargo run --profile perf -p perigeedb-capi --example ffi_overhead -- [DIR] [ROUNDS]
//! ```
#![allow(clippy::unwrap_used, clippy::print_stdout)]
#![allow(unsafe_code)] // It calls the C functions.

use perigee::{Db, Durability, Family, FamilyOptions, Isolation, Options, TxnOptions};
use std::ffi::CString;
use std::hint::black_box;
use std::ptr::null_mut;
use tidesdb::abi::{Config, Handle};
use tidesdb::{database as d, families as f, iter as i, txn as t};

const KEYS: u64 = 100_000;
const OPS: u64 = 100_000;

fn cpu_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is valid for writing.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn key(n: u64) -> [u8; 16] {
    let mut key = *b"key-000000000000";
    key[8..].copy_from_slice(&(n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % KEYS).to_be_bytes());
    key
}

const VALUE: [u8; 100] = [b'v'; 100];

struct RustApi {
    db: Db,
    family: Family,
}

struct CApi {
    db: Handle,
    family: Handle,
}

impl RustApi {
    fn open(dir: &str) -> RustApi {
        let options = Options::new().durability(Durability::None).block_cache_bytes(64 << 20);
        let db = Db::open(dir, options).unwrap();
        let family = db.create_family("f", FamilyOptions::new().value_threshold(512)).unwrap();
        RustApi { db, family }
    }
    fn begin(&self) -> perigee::Txn {
        self.db.begin(TxnOptions::new().isolation(Isolation::ReadCommitted)).unwrap()
    }
    fn put(&self) {
        let txn = self.begin();
        for n in 0..OPS {
            txn.put(&self.family, key(n), VALUE).unwrap();
            txn.commit_in_place(None).unwrap();
            txn.reset().unwrap();
        }
    }
    fn put_begin(&self) {
        for n in 0..OPS {
            let txn = self.begin();
            txn.put(&self.family, key(n), VALUE).unwrap();
            txn.commit().unwrap();
        }
    }
    fn put_100(&self) {
        for n in 0..OPS / 100 {
            let txn = self.begin();
            for m in 0..100 {
                txn.put(&self.family, key(n * 100 + m), VALUE).unwrap();
            }
            txn.commit().unwrap();
        }
    }
    fn get(&self) {
        let txn = self.begin();
        for n in 0..OPS {
            black_box(txn.get(&self.family, key(n)).unwrap().unwrap());
        }
    }
    fn scan(&self) {
        let txn = self.begin();
        let mut cursor = txn.cursor(&self.family).unwrap();
        cursor.seek_to_first().unwrap();
        while cursor.is_valid() {
            black_box(cursor.entry().unwrap());
            cursor.next().unwrap();
        }
    }
    fn flush(&self) {
        self.family.flush().unwrap();
    }
}

// SAFETY of all calls below: handles come from the library, keys and values outlive the calls.
impl CApi {
    fn open(dir: &str) -> CApi {
        let path = CString::new(dir).unwrap();
        let config = Config { db_path: path.as_ptr(), log_level: 3, ..d::tidesdb_default_config() };
        let (mut db, settings) = (null_mut(), d::tidesdb_default_column_family_config());
        // SAFETY: see above.
        unsafe {
            assert_eq!(d::tidesdb_open(&raw const config, &raw mut db), 0);
            assert_eq!(f::tidesdb_create_column_family(db, c"f".as_ptr(), &raw const settings), 0);
            CApi { db, family: f::tidesdb_get_column_family(db, c"f".as_ptr()) }
        }
    }
    fn begin(&self) -> Handle {
        let mut txn = null_mut();
        // SAFETY: see above.
        assert_eq!(unsafe { t::tidesdb_txn_begin(self.db, &raw mut txn) }, 0);
        txn
    }
    fn put_one(&self, txn: Handle, n: u64) {
        let key = key(n);
        // SAFETY: see above.
        let code = unsafe {
            t::tidesdb_txn_put(
                txn,
                self.family,
                key.as_ptr(),
                key.len(),
                VALUE.as_ptr(),
                VALUE.len(),
                -1,
            )
        };
        assert_eq!(code, 0);
    }
    fn put(&self) {
        let txn = self.begin();
        for n in 0..OPS {
            self.put_one(txn, n);
            assert_eq!(t::tidesdb_txn_commit(txn), 0);
            assert_eq!(t::tidesdb_txn_reset(txn, 1), 0);
        }
        t::tidesdb_txn_free(txn);
    }
    fn put_begin(&self) {
        for n in 0..OPS {
            let txn = self.begin();
            self.put_one(txn, n);
            assert_eq!(t::tidesdb_txn_commit(txn), 0);
            t::tidesdb_txn_free(txn);
        }
    }
    fn put_100(&self) {
        for n in 0..OPS / 100 {
            let txn = self.begin();
            for m in 0..100 {
                self.put_one(txn, n * 100 + m);
            }
            assert_eq!(t::tidesdb_txn_commit(txn), 0);
            t::tidesdb_txn_free(txn);
        }
    }
    fn get(&self) {
        let txn = self.begin();
        for n in 0..OPS {
            let (key, mut value, mut size) = (key(n), null_mut(), 0);
            // SAFETY: see above.
            unsafe {
                let code = t::tidesdb_txn_get(
                    txn,
                    self.family,
                    key.as_ptr(),
                    key.len(),
                    &raw mut value,
                    &raw mut size,
                );
                assert_eq!(code, 0);
                d::tidesdb_free(black_box(value).cast());
            }
        }
        t::tidesdb_txn_free(txn);
    }
    fn scan(&self) {
        let (txn, mut iter) = (self.begin(), null_mut());
        let (mut key, mut key_size, mut value, mut value_size) = (null_mut(), 0, null_mut(), 0);
        // SAFETY: see above.
        unsafe {
            assert_eq!(i::tidesdb_iter_new(txn, self.family, &raw mut iter), 0);
            i::tidesdb_iter_seek_to_first(iter);
            while i::tidesdb_iter_valid(iter) != 0 {
                let code = i::tidesdb_iter_key_value(
                    iter,
                    &raw mut key,
                    &raw mut key_size,
                    &raw mut value,
                    &raw mut value_size,
                );
                assert_eq!(code, 0);
                black_box((key, value));
                i::tidesdb_iter_next(iter);
            }
        }
        i::tidesdb_iter_free(iter);
        t::tidesdb_txn_free(txn);
    }
    fn flush(&self) {
        assert_eq!(tidesdb::maintenance::tidesdb_flush_memtable(self.family), 0);
    }
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn compare(what: &str, rounds: usize, rust: impl Fn(), c: impl Fn()) {
    let time = |work: &dyn Fn()| {
        let before = cpu_ns();
        work();
        (cpu_ns() - before) as f64 / OPS as f64
    };
    let (mut by_rust, mut by_c, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        let (r, c) = if round % 2 == 0 {
            let r = time(&rust);
            (r, time(&c))
        } else {
            let c = time(&c);
            (time(&rust), c)
        };
        by_rust.push(r);
        by_c.push(c);
        ratios.push(c / r);
    }
    let (r, c, ratio) = (median(by_rust), median(by_c), median(ratios));
    println!("{what:<28} rust {r:8.1} ns   c {c:8.1} ns   ratio {ratio:.3}");
}

fn main() {
    let mut args = std::env::args().skip(1);
    let dir = args.next().unwrap_or_else(|| "/dev/shm/ffi_overhead".into());
    let rounds = args.next().map_or(7, |n| n.parse().unwrap());
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    let (rust, c) = (RustApi::open(&format!("{dir}/rust")), CApi::open(&format!("{dir}/c")));
    compare("put, commit, reset", rounds, || rust.put(), || c.put());
    compare("begin, put, commit, free", rounds, || rust.put_begin(), || c.put_begin());
    compare("put, 100 in a transaction", rounds, || rust.put_100(), || c.put_100());
    compare("get, in memory", rounds, || rust.get(), || c.get());
    compare("scan, in memory", rounds, || rust.scan(), || c.scan());
    rust.flush();
    c.flush();
    compare("get, in tables (cached)", rounds, || rust.get(), || c.get());
    compare("scan, in tables (cached)", rounds, || rust.scan(), || c.scan());
    assert_eq!(d::tidesdb_close(c.db), 0);
    rust.db.close().unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
}
