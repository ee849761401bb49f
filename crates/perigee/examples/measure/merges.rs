//! Benchmarks counters: increments by merge, by get and put, and in transactions, and reads of
//! them.
//!
//! ```text
//! cargo run --profile perf -p perigeedb --example merges -- [INCREMENTS] [KEYS]
//! ```
//! Durability `None`, one thread, 8-byte values. Prints the wall time per increment, and per key
//! for reads of all keys.
#![allow(clippy::unwrap_used)]

use perigee::{Db, Durability, FamilyOptions, MergeRule, Options, TxnOptions};
use std::time::Instant;

fn main() -> perigee::Result<()> {
    let mut args =
        std::env::args().skip(1).map(|a| a.parse::<u64>().expect("arguments are numbers"));
    let (increments, keys) = (args.next().unwrap_or(200_000), args.next().unwrap_or(1000));
    for method in ["merge", "get and put", "transaction"] {
        let dir = std::env::temp_dir().join(format!("perigee-merges-{}", std::process::id()));
        let counters = FamilyOptions::new().merge_operator(MergeRule::Counter);
        let options = Options::new().durability(Durability::None).default_family(counters);
        let db = Db::open(&dir, options)?;
        let started = Instant::now();
        increment(&db, method, increments, keys)?;
        let elapsed = started.elapsed();
        let (fresh, sum) = read_all(&db, keys)?;
        let (again, sum_again) = read_all(&db, keys)?;
        assert_eq!((sum, sum_again), (increments as i64, increments as i64));
        db.admin().flush()?;
        let flushed = read_all(&db, keys)?.0;
        db.admin().compact()?;
        let compacted = read_all(&db, keys)?.0;
        println!(
            "{method:12} {:6.2} us per increment; per read {fresh:6.2} us from the memtable, \
             {again:5.2} again, {flushed:5.2} flushed, {compacted:5.2} compacted",
            elapsed.as_secs_f64() * 1e6 / increments as f64
        );
        db.close()?;
        std::fs::remove_dir_all(&dir).unwrap();
    }
    Ok(())
}

fn key(i: u64, keys: u64) -> String {
    format!("counter {:08}", i.wrapping_mul(0x9E37_79B9_7F4A_7C15) % keys)
}

fn number(value: Option<&[u8]>) -> i64 {
    value.map_or(0, |v| i64::from_le_bytes(v.try_into().expect("8 bytes")))
}

fn increment(db: &Db, method: &str, increments: u64, keys: u64) -> perigee::Result<()> {
    let family = db.default_family();
    for i in 0..increments {
        let key = key(i, keys);
        match method {
            "merge" => family.merge(&key, 1i64.to_le_bytes())?,
            "get and put" => {
                let n = number(family.get_pinned(&key)?.as_deref());
                family.put(&key, (n + 1).to_le_bytes())?;
            }
            _ => db.write_txn(TxnOptions::new(), |txn| {
                let n = number(txn.get(&family, &key)?.as_deref());
                txn.put(&family, &key, (n + 1).to_le_bytes())
            })?,
        }
    }
    Ok(())
}

/// Reads all counters; returns the microseconds per key, and the sum.
fn read_all(db: &Db, keys: u64) -> perigee::Result<(f64, i64)> {
    let started = Instant::now();
    let mut sum = 0;
    for i in 0..keys {
        sum += number(db.get_pinned(format!("counter {i:08}"))?.as_deref());
    }
    Ok((started.elapsed().as_secs_f64() * 1e6 / keys as f64, sum))
}
