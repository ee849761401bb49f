//! Benchmarks gets of data that is completely in memory: `cargo run --profile perf -p perigeedb
//! --example cached_reads -- [ENTRIES [GETS [WHAT]]]`
//!
//! 16-byte keys, 100-byte values, and a cache larger than the data. After a flush, once background
//! work is idle, it measures random gets of existing keys (copied, pinned, into a buffer), of
//! missing keys, and of 64 hot keys, on 1, 2 and 8 threads. Prints the CPU time per get, which on a
//! shared machine is the only reliable figure. WHAT selects one measurement.

mod common;

use common::{key, value};
use perigee::{Db, Durability, Options, WriteBatch};
use std::hint::black_box;

/// Runs `work` with pseudo-random numbers on `threads` threads; prints the CPU time per call.
fn measure(what: &str, threads: u64, gets: u64, work: impl Fn(u64) + Sync) {
    if std::env::args().nth(3).is_some_and(|only| only != what) {
        return;
    }
    let each = gets / threads;
    let cpu_ns: u64 = std::thread::scope(|s| {
        let run = |t: u64| {
            let mut x = t + 1;
            let start = thread_cpu_ns();
            for _ in 0..each {
                x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                work(x >> 20);
            }
            thread_cpu_ns() - start
        };
        let all: Vec<_> = (0..threads).map(|t| s.spawn(move || run(t))).collect();
        all.into_iter().map(|h| h.join().unwrap_or(0)).sum()
    });
    println!(
        "{what:<12} {threads} threads {:>7.0} ns CPU each",
        cpu_ns as f64 / (each * threads) as f64
    );
}

/// Returns the CPU time of this thread in nanoseconds.
fn thread_cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|f| f.parse().ok()).unwrap_or(0)
}

fn main() -> perigee::Result<()> {
    let argument = |n: usize| std::env::args().nth(n).and_then(|a| a.parse::<u64>().ok());
    let (n, gets) = (argument(1).unwrap_or(1_000_000), argument(2).unwrap_or(2_000_000));
    let dir = std::env::temp_dir().join(format!("perigee-cached-reads-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    let options = Options::new()
        .durability(Durability::None)
        .block_cache_bytes(1 << 30)
        .memory_budget(2 << 30);
    let db = Db::open(&dir, options)?;
    let family = db.default_family();
    for start in (0..n).step_by(1000) {
        let mut batch = WriteBatch::new();
        for i in start..(start + 1000).min(n) {
            batch.put(&family, key(i), value(i))?;
        }
        db.write(batch)?;
    }
    db.admin().flush()?;
    db.admin().wait_idle()?;
    for i in 0..n {
        assert_eq!(db.get_pinned(key(i))?.as_deref(), Some(&value(i)[..]));
    }
    println!("{n} entries");
    for threads in [1, 2, 8] {
        measure("nothing", threads, gets, |x| {
            black_box(key(x % n));
        });
        measure("get", threads, gets, |x| {
            assert!(db.get(key(x % n)).is_ok_and(|v| v.is_some()));
        });
        measure("get_pinned", threads, gets, |x| {
            assert!(db.get_pinned(key(x % n)).is_ok_and(|v| v.is_some()));
        });
        measure("get_into", threads, gets, |x| {
            let mut buf = [0; 128];
            assert!(
                db.default_family().get_into(key(x % n), &mut buf).is_ok_and(|v| v == Some(100))
            );
            black_box(buf);
        });
        measure("missing", threads, gets, |x| {
            assert!(db.get_pinned(key(n + x % n)).is_ok_and(|v| v.is_none()));
        });
        measure("hot", threads, gets, |x| {
            assert!(db.get_pinned(key(x % 64)).is_ok_and(|v| v.is_some()));
        });
    }
    let s = db.admin().stats();
    println!("cache {:?}", s.cache);
    db.close()?;
    let _ = std::fs::remove_dir_all(&dir);
    Ok(())
}
