//! Measures write and space amplification of random overwrites, on a data set ten times as large as
//! a memtable: `cargo run --release -p perigeedb --example overwrites [ENTRIES [ROUNDS [SPACE
//! [VALUE_BYTES [PAUSE_MS]]]]]`
//!
//! 16-byte keys, values of 100 bytes (or VALUE_BYTES: from 4096 on they are in value logs) that are
//! half random, batches of 100, one thread. SPACE is the option `space_amplification`; PAUSE_MS
//! follows each round.

mod common;

use common::cpu_s;
use perigee::{Db, Durability, FamilyOptions, Options, WriteBatch};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

fn bytes_written(db: &Db) -> u64 {
    let wanted = ["flush_bytes_written", "compaction_bytes_written"];
    db.admin().stats().counters.iter().filter(|c| wanted.contains(&c.name)).map(|c| c.value).sum()
}

/// Returns the bytes of all klog and vlog files, including outputs of running compactions.
fn disk_bytes(dir: &std::path::Path) -> u64 {
    let files = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let tables = files.filter(|f| f.path().extension().is_some_and(|e| e == "klog" || e == "vlog"));
    tables.filter_map(|f| f.metadata().ok()).map(|m| m.len()).sum()
}

/// Formats the runs and bytes of each level.
fn level_summary(db: &Db) -> String {
    let stats = db.admin().stats();
    let level = |(i, l): (usize, &perigee::stats::LevelStats)| {
        (l.runs > 0).then(|| format!("{i}: {}: {} MB", l.runs, l.bytes / 1_000_000))
    };
    stats.families[0].levels.iter().enumerate().filter_map(level).collect::<Vec<_>>().join(", ")
}

fn main() -> perigee::Result<()> {
    let number = |i: usize| std::env::args().nth(i).and_then(|a| a.parse::<u64>().ok());
    let (n, rounds) = (number(1).unwrap_or(1_000_000), number(2).unwrap_or(8));
    let options = Options::new().durability(Durability::None);
    let settle_ms = number(5).unwrap_or(0);
    let value_bytes = number(4).unwrap_or(100) as usize;
    let entry_bytes = value_bytes as u64 + 16;
    let options = match number(3) {
        Some(percent) => options.space_amplification(percent as u32),
        None => options,
    };
    let dir = std::env::temp_dir().join(format!("perigee-overwrites-{}", std::process::id()));
    let family = FamilyOptions::new()
        .memtable_bytes(n * entry_bytes / 10)
        .target_file_bytes(n * entry_bytes / 10)
        .level1_bytes(n * entry_bytes * 4 / 10);
    let db = Db::open(&dir, options.default_family(family))?;
    let mut x = 7u64;
    let mut random = move || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x
    };
    let (peak, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let sampled = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(SeqCst) {
                peak.fetch_max(disk_bytes(&dir), SeqCst);
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let mut rounds_done = || -> perigee::Result<()> {
            let mut live = 0;
            for round in 0..=rounds {
                let (start, cpu, before) = (Instant::now(), cpu_s(), bytes_written(&db));
                for i in (0..n).step_by(100) {
                    let mut batch = WriteBatch::new();
                    for j in i..i + 100 {
                        let k = if round == 0 { j } else { random() % n };
                        let key = k.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes();
                        let mut value = vec![b'v'; value_bytes];
                        value[..value_bytes / 16 * 8]
                            .chunks_exact_mut(8)
                            .for_each(|c| c.copy_from_slice(&random().to_le_bytes()));
                        batch.put(&db.default_family(), [key, k.to_be_bytes()].concat(), value)?;
                    }
                    db.write(batch)?;
                }
                let seconds = start.elapsed().as_secs_f64();
                std::thread::sleep(Duration::from_millis(settle_ms));
                if round == 0 {
                    db.admin().compact()?;
                    live = disk_bytes(&dir).max(1);
                } else {
                    // Table bytes written per byte of live data, and space per byte of live data.
                    println!(
                        "round {round}: {:.0} per second, {:.2} us CPU each, write amplification \
                         {:.2}, space {:.2} (peak {:.2}), levels (runs: bytes) {}",
                        n as f64 / seconds,
                        (cpu_s() - cpu) * 1e6 / n as f64,
                        (bytes_written(&db) - before) as f64 / live as f64,
                        disk_bytes(&dir) as f64 / live as f64,
                        peak.load(SeqCst) as f64 / live as f64,
                        level_summary(&db)
                    );
                }
                peak.store(0, SeqCst);
            }
            Ok(())
        };
        let done = rounds_done();
        stop.store(true, SeqCst);
        done
    });
    sampled?;
    for s in &db.admin().stats().stalls {
        println!(
            "stall ({}): delayed {} ms, stopped {} ms",
            s.reason,
            s.delay_us / 1000,
            s.stop_us / 1000
        );
    }
    db.close()?;
    if std::env::var_os("KEEP").is_some() {
        println!("{}", dir.display());
        return Ok(());
    }
    let _ = std::fs::remove_dir_all(&dir);
    Ok(())
}
