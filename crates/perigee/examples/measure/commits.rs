//! Benchmarks commits: `cargo run --profile perf -p perigeedb --example commits -- [THREADS]
//! [BATCH] [OPERATIONS] [none|interval|full] [DIR] [timeline] [MIB] [VALUE_BYTES]`
//!
//! 16-byte keys in random order; values of 100 bytes (or VALUE_BYTES), half of them random. Prints
//! throughput, CPU time per operation (all threads), commit latency (p50, p99, p99.9, maximum), and
//! the time that writers were stalled. With `timeline` (otherwise `-`) also prints the throughput
//! of every 100 ms. MIB limits background work to this many MiB per second (0: no limit), so that
//! writers are stalled.

mod common;

use common::{cpu_s, key, value};
use perigee::{Db, Durability, Options, WriteBatch};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Returns a value of `bytes` bytes.
fn value_of(i: u64, bytes: usize) -> Vec<u8> {
    let mut v = Vec::with_capacity(bytes + 100);
    let mut seed = i;
    while v.len() < bytes {
        v.extend_from_slice(&value(seed));
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(i);
    }
    v.truncate(bytes);
    v
}

/// Writes the keys of one thread; returns the latency of every commit in nanoseconds.
fn write(
    db: &Db,
    range: std::ops::Range<u64>,
    (batch, bytes): (u64, usize),
    done: &AtomicU64,
) -> perigee::Result<Vec<u64>> {
    let family = db.default_family();
    let mut latencies = Vec::with_capacity(((range.end - range.start) / batch) as usize + 1);
    let mut at = range.start;
    while at < range.end {
        let end = (at + batch).min(range.end);
        let start = Instant::now();
        if batch == 1 {
            family.put(key(at), value_of(at, bytes))?;
        } else {
            let mut ops = WriteBatch::new();
            (at..end).try_for_each(|i| ops.put(&family, key(i), value_of(i, bytes)))?;
            db.write(ops)?;
        }
        latencies.push(start.elapsed().as_nanos() as u64);
        done.fetch_add(end - at, Relaxed);
        at = end;
    }
    Ok(latencies)
}

fn main() -> perigee::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize, or: u64| args.get(i).and_then(|a| a.parse().ok()).unwrap_or(or);
    let (threads, batch, n) = (number(0, 2).max(1), number(1, 1).max(1), number(2, 500_000));
    let bytes = number(7, 100) as usize;
    let durability = match args.get(3).map(String::as_str) {
        Some("full") => Durability::Full,
        Some("interval") => Durability::Interval(Duration::from_secs(1)),
        _ => Durability::None,
    };
    let parent = args.get(4).map_or_else(std::env::temp_dir, Into::into);
    let dir = parent.join(format!("perigee-commits-{}", std::process::id()));
    let db = Db::open(&dir, Options::new().durability(durability))?;
    if let Some(mib) = args.get(6).and_then(|a| a.parse::<u64>().ok()).filter(|mib| *mib > 0) {
        db.admin().set_background_rate(Some(mib << 20));
    }
    let (done, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let (start, cpu) = (Instant::now(), cpu_s());
    let (mut latencies, seconds) =
        std::thread::scope(|scope| -> perigee::Result<(Vec<u64>, f64)> {
            let writers: Vec<_> = (0..threads)
                .map(|t| {
                    let range = n * t / threads..n * (t + 1) / threads;
                    scope.spawn(|| write(&db, range, (batch, bytes), &done))
                })
                .collect();
            if args.get(5).is_some_and(|a| a == "timeline") {
                scope.spawn(|| {
                    let mut before = 0;
                    while !stop.load(Relaxed) {
                        std::thread::sleep(Duration::from_millis(100));
                        let now = done.load(Relaxed);
                        print!("{} ", (now - before) / 100);
                        before = now;
                    }
                    println!("(thousand operations per second, every 100 ms)");
                });
            }
            let mut all = Vec::new();
            for writer in writers {
                all.extend(writer.join().expect("a writer does not panic")?);
            }
            stop.store(true, Relaxed);
            Ok((all, start.elapsed().as_secs_f64()))
        })?;
    let writing = cpu_s() - cpu;
    db.admin().set_background_rate(None);
    db.admin().flush()?;
    db.admin().wait_idle()?;
    let all = cpu_s() - cpu;
    latencies.sort_unstable();
    let at = |permille: usize| latencies[(latencies.len() - 1) * permille / 1000] as f64 / 1000.0;
    let s = db.admin().stats();
    let counter = |name: &str| s.counter(name).unwrap_or(0);
    println!(
        "threads {threads} batch {batch}: {:.0} thousand/s, CPU {:.2} us ({:.2} with all flushes \
         and compactions), commit us p50 {:.1} p99 {:.1} p99.9 {:.1} max {:.0}; delayed {} ms, \
         stopped {} ms, syncs {}",
        n as f64 / seconds / 1e3,
        writing * 1e6 / n as f64,
        all * 1e6 / n as f64,
        at(500),
        at(990),
        at(999),
        at(1000),
        counter("delay_us") / 1000,
        counter("stop_us") / 1000,
        counter("wal_syncs"),
    );
    db.close()?;
    let _ = std::fs::remove_dir_all(&dir);
    Ok(())
}
