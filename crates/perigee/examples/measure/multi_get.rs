//! Compares single gets with `multi_get`, cold and cached: `cargo run --release -p perigeedb
//! --example multi_get [ENTRIES]`
//!
//! 16-byte keys, 100-byte values; sets of 1000 keys, spread over the whole column family or from
//! one narrow key range. "Cold" means that neither the block cache nor the page cache of the
//! operating system contains any blocks (`dd` with `nocache` drops them).

use perigee::{Db, Durability, Options, WriteBatch};
use std::path::Path;
use std::time::Instant;

fn scramble(i: u64) -> u64 {
    let x = (i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    x ^ (x >> 29)
}

fn key(i: u64) -> String {
    format!("{i:016}")
}

/// Returns a value with 64 random bytes, so that compression does not shrink blocks too much.
fn value(i: u64) -> Vec<u8> {
    let mut v: Vec<u8> = (0..8).flat_map(|n| scramble(i * 8 + n).to_be_bytes()).collect();
    v.resize(100, b'v');
    v
}

/// Drops all files of the database from the page cache of the operating system.
fn drop_page_cache(dir: &Path) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let of = format!("of={}", entry.path().display());
        let args =
            [of.as_str(), "oflag=nocache", "conv=notrunc,fdatasync", "count=0", "status=none"];
        if entry.path().is_file() {
            let _ = std::process::Command::new("dd").args(args).status();
        }
    }
}

fn measure(dir: &Path, what: &str, cold: bool, sets: &[Vec<String>]) -> perigee::Result<()> {
    let mut each = Vec::new();
    for many in [false, true] {
        let db = Db::open(dir, Options::new())?;
        let mut seconds = f64::MAX;
        for _ in 0..if cold { 1 } else { 20 } {
            if cold {
                drop_page_cache(dir);
            }
            let start = Instant::now();
            for set in sets {
                if many {
                    for value in db.default_family().multi_get(set) {
                        assert!(value?.is_some());
                    }
                } else {
                    for key in set {
                        assert!(db.get_pinned(key)?.is_some());
                    }
                }
            }
            seconds = start.elapsed().as_secs_f64().min(seconds); // best round
        }
        db.close()?;
        each.push(seconds * 1e6 / sets.iter().map(Vec::len).sum::<usize>() as f64);
    }
    println!(
        "{what:<32} get {:>8.2} us   multi_get {:>8.2} us   {:>5.1} x",
        each[0],
        each[1],
        each[0] / each[1]
    );
    Ok(())
}

fn main() -> perigee::Result<()> {
    let n: u64 = std::env::args().nth(1).and_then(|a| a.parse().ok()).unwrap_or(1_000_000);
    let dir = std::env::temp_dir().join(format!("perigee-multi-get-{}", std::process::id()));
    let db = Db::open(&dir, Options::new().durability(Durability::None))?;
    for start in (0..n).step_by(1000) {
        let mut batch = WriteBatch::new();
        for i in start..(start + 1000).min(n) {
            batch.put(&db.default_family(), key(i), value(i))?;
        }
        db.write(batch)?;
    }
    db.admin().compact()?;
    db.close()?;
    let spread = |s: u64| (0..1000).map(|i| key(scramble(s * 1000 + i) % n)).collect();
    let near =
        |s: u64| (0..1000).map(|i| key((scramble(s) % n + scramble(i) % 4000) % n)).collect();
    let spread: Vec<Vec<String>> = (0..10).map(spread).collect();
    let near: Vec<Vec<String>> = (0..10).map(near).collect();
    measure(&dir, "cold, spread over everything", true, &spread)?;
    measure(&dir, "cold, 1000 of 4000 neighbours", true, &near)?;
    measure(&dir, "cached, spread", false, &spread[..1])?;
    measure(&dir, "cached, 1000 of 4000 neighbours", false, &near)?;
    let _ = std::fs::remove_dir_all(&dir);
    Ok(())
}
