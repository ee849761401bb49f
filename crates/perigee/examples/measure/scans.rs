//! Benchmarks seeks, ranges and scans: `cargo run --release -p perigeedb --example scans [ENTRIES]
//! [ROUNDS] [WHAT]`
//!
//! 16-byte keys in random order, 100-byte values that are half random; several sorted runs and a
//! memtable, once with a cache for all data and once for an eighth of it. One thread; prints the
//! CPU time of that thread.

mod common;

use common::scans::{fill, scan_entries, thread_cpu_ns};
use perigee::{Db, Durability, FamilyOptions, Options, Result};

fn scramble(i: u64) -> u64 {
    let x = (i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (x ^ x >> 31).wrapping_mul(0xBF58_476D_1CE4_E5B9)
}

fn key(i: u64) -> [u8; 16] {
    let mut k = [0; 16];
    k[..8].copy_from_slice(&scramble(i).to_be_bytes());
    k[8..].copy_from_slice(&i.to_be_bytes());
    k
}

fn value(i: u64) -> [u8; 100] {
    let mut v = [b'v'; 100];
    v[..48]
        .chunks_mut(8)
        .enumerate()
        .for_each(|(j, c)| c.copy_from_slice(&scramble(i * 7 + j as u64).to_le_bytes()));
    v
}

fn measure_op(what: &str, n: u64, mut work: impl FnMut() -> Result<u64>) -> Result<()> {
    if std::env::args().nth(3).is_some_and(|only| !what.contains(&only)) {
        return Ok(());
    }
    let rounds: u64 = std::env::args().nth(2).and_then(|a| a.parse().ok()).unwrap_or(3);
    let mut best = f64::MAX;
    for _ in 0..rounds {
        let cpu = thread_cpu_ns();
        let done = work()?;
        assert_eq!(done, n, "{what}");
        best = best.min((thread_cpu_ns() - cpu) as f64 / n as f64);
    }
    println!("{what:<28} {best:>10.1} ns");
    Ok(())
}

fn measure(db: &Db, n: u64, name: &str) -> Result<()> {
    let m = n / 10;
    let mut c = db.default_family().cursor()?;
    let mut seeks = |what: &str, of: &dyn Fn(u64) -> u64| {
        measure_op(&format!("{name} {what}"), m, || {
            for i in 0..m {
                c.seek(key(of(i)))?;
                assert_eq!(c.key(), key(of(i)));
                std::hint::black_box(c.value()?[0]);
            }
            Ok(m)
        })
    };
    seeks("seek random", &|i| scramble(i) % n)?;
    seeks("seek hot", &|i| scramble(i % 1000) % n)?;
    let mut sorted: Vec<u64> = (0..n).collect();
    sorted.sort_by_key(|i| key(*i));
    seeks("seek ascending", &|i| sorted[(m + i) as usize])?;
    measure_op(&format!("{name} seek missing"), m, || {
        for i in 0..m {
            c.seek(scramble(i + 7777).to_le_bytes())?;
            std::hint::black_box(c.is_valid());
        }
        Ok(m)
    })?;
    let r = m / 20;
    for (len, forward, what) in [
        (1, true, "range1"),
        (10, true, "range10"),
        (100, true, "range100"),
        (100, false, "range100 back"),
    ] {
        measure_op(&format!("{name} {what}"), r, || {
            for i in 0..r {
                let mut c = db.default_family().cursor()?;
                c.seek(key(scramble(i + 99) % n))?;
                scan_entries(&mut c, len, forward)?;
            }
            Ok(r)
        })?;
    }
    for (what, forward) in [("iterate forward", true), ("iterate back", false)] {
        measure_op(&format!("{name} {what}"), n, || {
            let mut c = db.default_family().cursor()?;
            if forward {
                c.seek_to_first()?
            } else {
                c.seek_to_last()?
            }
            scan_entries(&mut c, u64::MAX, forward)
        })?;
    }
    Ok(())
}

fn main() -> Result<()> {
    let n: u64 = std::env::args().nth(1).and_then(|a| a.parse().ok()).unwrap_or(1_000_000);
    let dir = std::env::temp_dir().join(format!("perigee-scans-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    for (name, cache) in [("cached", n * 200), ("missing", n * 14)] {
        let family = FamilyOptions::new().memtable_bytes(16 << 20).level1_bytes(24 << 20);
        let options = Options::new()
            .durability(Durability::None)
            .block_cache_bytes(cache)
            .memory_budget(4 << 30);
        let db = Db::open(&dir, options.default_family(family))?;
        if name == "cached" {
            fill(&db, 0..n, key, value)?;
            db.admin().flush()?;
            db.admin().wait_idle()?;
            for round in 0..3u64 {
                fill(&db, (0..n / 40).map(|i| scramble(i * 3 + round) % n), key, value)?;
                db.admin().flush()?;
            }
        }
        fill(&db, (0..n / 40).map(|i| scramble(i * 3 + 77) % n), key, value)?;
        measure(&db, n, name)?;
        db.close()?;
    }
    let _ = std::fs::remove_dir_all(&dir);
    Ok(())
}
