//! A simple measurement of loads, reads and scans: `cargo run --release -p perigeedb --example
//! measure [ENTRIES]`
//!
//! 16-byte keys in random order, 100-byte values that are half random, batches of 1000 and of 1
//! operations, one thread. For comparisons with other engines, and for realistic workloads, use
//! `perigee-bench`.

mod common;

use common::{cpu_s, key, value};
use perigee::{Db, Durability, Options, WriteBatch, WriteOptions};
use std::time::Instant;

fn measure(what: &str, n: u64, work: impl FnOnce() -> perigee::Result<()>) -> perigee::Result<()> {
    let (start, cpu) = (Instant::now(), cpu_s());
    work()?;
    let s = start.elapsed().as_secs_f64();
    let each = (cpu_s() - cpu) * 1e6 / n as f64;
    println!("{what:<34} {:>10.0} per second {each:>8.2} us CPU each", n as f64 / s);
    Ok(())
}

fn main() -> perigee::Result<()> {
    let n: u64 = std::env::args().nth(1).and_then(|a| a.parse().ok()).unwrap_or(1_000_000);
    let dir = std::env::temp_dir().join(format!("perigee-measure-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    let db = Db::open(&dir, Options::new().durability(Durability::None))?;
    let family = db.default_family();
    measure("write random, batch 1000", n, || {
        for start in (0..n).step_by(1000) {
            let mut batch = WriteBatch::new();
            for i in start..(start + 1000).min(n) {
                batch.put(&family, key(i), value(i))?;
            }
            db.write(batch)?;
        }
        Ok(())
    })?;
    measure("write random, batch 1", n / 10, || {
        (0..n / 10).try_for_each(|i| db.put(key(i * 10), value(i * 10)))
    })?;
    measure("write random, batch 1, synced", 500, || {
        let full = WriteOptions::new().durability(Durability::Full);
        (0..500).try_for_each(|i| family.put_with(key(i), value(i), full))
    })?;
    measure("flush and wait for idle", n, || {
        db.admin().flush().and_then(|()| db.admin().wait_idle())
    })?;
    measure("read random (64 MiB cache)", n / 2, || {
        for i in (0..n / 2).map(|i| (i * 7919) % n) {
            assert_eq!(db.get_pinned(key(i))?.as_deref(), Some(&value(i)[..]));
        }
        Ok(())
    })?;
    measure("read missing", n / 2, || {
        (n..n + n / 2).try_for_each(|i| db.get_pinned(key(i)).map(|v| assert!(v.is_none())))
    })?;
    let mut cursor = db.default_family().cursor()?;
    measure("seek random", n / 10, || {
        for i in (0..n / 10).map(|i| (i * 7919) % n) {
            cursor.seek(key(i))?;
            assert_eq!(cursor.key(), key(i));
        }
        Ok(())
    })?;
    measure("full scan", n, || {
        assert_eq!(db.iter()?.try_fold(0, |c, e| e.map(|_| c + 1))?, n);
        Ok(())
    })?;
    measure("full scan backward", n, || {
        assert_eq!(db.iter()?.rev().try_fold(0, |c, e| e.map(|_| c + 1))?, n);
        Ok(())
    })?;
    let s = db.admin().stats();
    println!(
        "database {:.1} MB for {:.1} MB of keys and values",
        s.disk_bytes as f64 / 1e6,
        n as f64 * 116.0 / 1e6
    );
    db.close()?;
    measure("open", 1, || Db::open(&dir, Options::new()).map(drop))?;
    let _ = std::fs::remove_dir_all(&dir);
    Ok(())
}
