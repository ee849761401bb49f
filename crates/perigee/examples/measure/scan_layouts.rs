//! Benchmarks scans, ranges and seeks in three layouts: as loaded in random order (`loaded`), in
//! one sorted run (`compacted`), and with recent overwrites in the memtable (`beside`). `cargo run
//! --profile perf -p perigeedb --example scan_layouts -- [ENTRIES] [ROUNDS] [CACHE_MIB] [LAYOUT]
//! [WHAT]`
//!
//! 16-byte keys in random order, 100-byte values that are half random; by default the cache is half
//! the size of the data. One thread; prints the CPU time in nanoseconds per entry (scans) or per
//! operation, the best of ROUNDS.

mod common;

use common::scans::{fill, scan_entries, thread_cpu_ns};
use common::{key, value};
use perigee::{Db, Durability, Options, Result};

fn arg<T: std::str::FromStr>(i: usize, or: T) -> T {
    std::env::args().nth(i).and_then(|a| a.parse().ok()).unwrap_or(or)
}

fn scramble(i: u64) -> u64 {
    let x = (i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (x ^ x >> 31).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 8
}

fn measure_op(what: &str, per: u64, mut work: impl FnMut() -> Result<u64>) -> Result<()> {
    if !what.contains(&arg(5, String::new())) {
        return Ok(());
    }
    let mut best = f64::MAX;
    for _ in 0..arg(2, 2) {
        let cpu = thread_cpu_ns();
        let done = work()?;
        assert_eq!(done, per, "{what}");
        best = best.min((thread_cpu_ns() - cpu) as f64 / per as f64);
    }
    print!("  {what} {best:.0}");
    Ok(())
}

fn measure(db: &Db, n: u64, name: &str) -> Result<()> {
    if !name.contains(&arg(4, String::new())) {
        return Ok(());
    }
    print!("{name:<9}");
    measure_op("iterate", n, || {
        let mut c = db.default_family().cursor()?;
        c.seek_to_first()?;
        scan_entries(&mut c, u64::MAX, true)
    })?;
    measure_op("back", n, || {
        let mut c = db.default_family().cursor()?;
        c.seek_to_last()?;
        scan_entries(&mut c, u64::MAX, false)
    })?;
    let r = n / 20;
    for (what, len) in [("range100", 100), ("range1000", 1000)] {
        let r = r * 20 / len;
        measure_op(what, r, || {
            for i in 0..r {
                let mut c = db.default_family().cursor()?;
                c.seek(key(scramble(i + 99) % n))?;
                scan_entries(&mut c, len, true)?;
            }
            Ok(r)
        })?;
    }
    let mut sorted: Vec<u64> = (0..n).collect();
    sorted.sort_by_key(|i| key(*i));
    let m = n / 10;
    let mut c = db.default_family().cursor()?;
    let mut seeks = |what: &str, of: &dyn Fn(u64) -> u64, exists: bool| {
        measure_op(what, m, || {
            for i in 0..m {
                let mut target = key(of(i));
                target[15] ^= u8::from(!exists);
                c.seek(target)?;
                if exists {
                    assert_eq!(c.key(), target);
                    std::hint::black_box(c.entry()?.1[0]);
                }
            }
            Ok(m)
        })
    };
    seeks("seek_seq", &|i| sorted[(m + i) as usize], true)?;
    seeks("seek_step20", &|i| sorted[(i * 7) as usize], true)?;
    seeks("seek", &|i| scramble(i) % n, true)?;
    seeks("seek_missing", &|i| scramble(i + 7) % n, false)?;
    println!();
    Ok(())
}

fn main() -> Result<()> {
    let n: u64 = arg(1, 1_000_000);
    let dir = std::env::temp_dir().join(format!("perigee-scan-layouts-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    let cache = arg(3, (n * 64) >> 20).max(1);
    let options = Options::new()
        .durability(Durability::None)
        .block_cache_bytes(cache << 20)
        .memory_budget(4 << 30);
    let db = Db::open(&dir, options)?;
    fill(&db, 0..n, key, value)?;
    db.admin().flush()?;
    db.admin().wait_idle()?;
    measure(&db, n, "loaded")?;
    db.admin().compact()?;
    measure(&db, n, "compacted")?;
    fill(&db, (0..n / 20).map(|i| scramble(i * 3 + 77) % n), key, value)?;
    measure(&db, n, "beside")?;
    db.close()?;
    let _ = std::fs::remove_dir_all(&dir);
    Ok(())
}
