//! What a commit costs: `cargo run --profile perf -p perigee --example commits -- [THREADS] [BATCH]
//! [OPERATIONS] [none|interval|full] [DIR] [timeline] [MIB] [VALUE_BYTES]`
//!
//! 16-byte keys in random order, values of 100 bytes (or VALUE_BYTES) of which half are random.
//! Prints throughput, CPU time of an operation (all threads), and how long a commit took: median,
//! 99th and 99.9th percentile, the longest; then what held writers up. With `timeline` (else `-`)
//! also the operations of every tenth of a second; with MIB (0: no limit), background work moves so
//! many MiB a second at most, so that writers have to wait for it.

mod common;

use common::{cpu_s, key, value};
use perigee::{Db, Durability, Options, WriteBatch};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A value of so many bytes.
fn value_of(i: u64, bytes: usize) -> Vec<u8> {
    let mut v = Vec::with_capacity(bytes + 100);
    let mut part = i;
    while v.len() < bytes {
        v.extend_from_slice(&value(part));
        part = part.wrapping_mul(6364136223846793005).wrapping_add(i);
    }
    v.truncate(bytes);
    v
}

/// One thread's part: every commit's time in nanoseconds.
fn write(
    db: &Db,
    range: std::ops::Range<u64>,
    (batch, bytes): (u64, usize),
    done: &AtomicU64,
) -> perigee::Result<Vec<u64>> {
    let family = db.default_family();
    let mut took = Vec::with_capacity(((range.end - range.start) / batch) as usize + 1);
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
        took.push(start.elapsed().as_nanos() as u64);
        done.fetch_add(end - at, Relaxed);
        at = end;
    }
    Ok(took)
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
        db.set_background_rate(Some(mib << 20));
    }
    let (done, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let (start, cpu) = (Instant::now(), cpu_s());
    let (mut took, seconds) = std::thread::scope(|scope| -> perigee::Result<(Vec<u64>, f64)> {
        let parts: Vec<_> = (0..threads)
            .map(|t| {
                let range = n * t / threads..n * (t + 1) / threads;
                scope.spawn(|| write(&db, range, (batch, bytes), &done))
            })
            .collect();
        if args.get(5).is_some_and(|a| a == "timeline") {
            scope.spawn(|| {
                let mut before = 0;
                while !over.load(Relaxed) {
                    std::thread::sleep(Duration::from_millis(100));
                    let now = done.load(Relaxed);
                    print!("{} ", (now - before) / 100);
                    before = now;
                }
                println!("thousand operations a second, each tenth of one");
            });
        }
        let mut all = Vec::new();
        for part in parts {
            all.extend(part.join().expect("a writer does not panic")?);
        }
        over.store(true, Relaxed);
        Ok((all, start.elapsed().as_secs_f64()))
    })?;
    let front = cpu_s() - cpu;
    db.set_background_rate(None);
    db.flush()?;
    db.wait_idle()?;
    let all = cpu_s() - cpu;
    took.sort_unstable();
    let at = |permille: usize| took[(took.len() - 1) * permille / 1000] as f64 / 1000.0;
    let s = db.stats();
    let counter = |name: &str| s.counters.iter().find(|(n, _)| *n == name).map_or(0, |(_, v)| *v);
    println!(
        "threads {threads} batch {batch}: {:.0} thousand/s, CPU {:.2} us ({:.2} with flushes and compactions settled), commit us p50 {:.1} p99 {:.1} \
         p99.9 {:.1} max {:.0}; delayed {} ms, stopped {} ms, syncs {}",
        n as f64 / seconds / 1e3,
        front * 1e6 / n as f64,
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
