//! Benchmarks reads that miss the block cache: `cargo run --profile perf -p perigeedb --example
//! uncached_reads -- [ENTRIES] [BLOCK_BYTES] [half|ramp|random] [CACHE_MIB]`
//!
//! 16-byte random keys, 100-byte values, one thread. Prints the CPU time of the process in
//! microseconds per operation, and the size of the database.

mod common;

use common::cpu_s;
use perigee::{Db, Durability, FamilyOptions, Options, WriteBatch};

fn scramble(i: u64) -> u64 {
    let x = (i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB) ^ x >> 31
}

fn key(i: u64) -> [u8; 16] {
    let mut k = [0; 16];
    k[..8].copy_from_slice(&scramble(i).to_be_bytes());
    k[8..].copy_from_slice(&scramble(!i).to_be_bytes());
    k
}

fn value(i: u64, kind: &str) -> [u8; 100] {
    let mut v = [b'v'; 100];
    let noise = match kind {
        "half" => 48,
        "random" => 100,
        _ => {
            (0..100).for_each(|n| v[n] = (i as usize + n) as u8);
            0
        }
    };
    let mut x = scramble(i);
    for chunk in v[..noise].chunks_mut(8) {
        x = scramble(x);
        chunk.copy_from_slice(&x.to_le_bytes()[..chunk.len()]);
    }
    v
}

fn measure(what: &str, n: u64, work: impl FnOnce() -> perigee::Result<()>) -> perigee::Result<()> {
    let cpu = cpu_s();
    work()?;
    print!("{what} {:.2}  ", (cpu_s() - cpu) * 1e6 / n as f64);
    Ok(())
}

fn main() -> perigee::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize, or: u64| args.get(i).and_then(|a| a.parse().ok()).unwrap_or(or);
    let (n, block, cache) = (number(0, 1_000_000), number(1, 0), number(3, 64));
    let kind = args.get(2).map_or("half", String::as_str);
    let dir = std::env::temp_dir().join(format!("perigee-uncached-reads-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    let mut family = FamilyOptions::new();
    if block > 0 {
        family = family.block_bytes(block as usize);
    }
    let options = Options::new()
        .durability(Durability::None)
        .block_cache_bytes(cache << 20)
        .default_family(family);
    let db = Db::open(&dir, options)?;
    let family = db.default_family();
    measure("write", n, || {
        for start in (0..n).step_by(1000) {
            let mut batch = WriteBatch::new();
            for i in start..(start + 1000).min(n) {
                batch.put(&family, key(i), value(i, kind))?;
            }
            db.write(batch)?;
        }
        db.admin().flush()?;
        db.admin().wait_idle()
    })?;
    let random_index = |i: u64| scramble(i ^ 0x5555) % n;
    let reads = n.min(1_000_000);
    measure("get", reads, || {
        for i in (0..reads).map(random_index) {
            assert_eq!(db.get_pinned(key(i))?.as_deref(), Some(&value(i, kind)[..]));
        }
        Ok(())
    })?;
    let mut cursor = db.default_family().cursor()?;
    measure("seek", reads / 2, || {
        for i in (0..reads / 2).map(|i| random_index(i + n)) {
            cursor.seek(key(i))?;
            assert_eq!(cursor.key(), key(i));
        }
        Ok(())
    })?;
    measure("range100", reads / 100, || {
        for i in (0..reads / 100).map(|i| random_index(i + 2 * n)) {
            cursor.seek(key(i))?;
            for _ in 0..100 {
                if !cursor.is_valid() {
                    break;
                }
                assert_eq!(cursor.value()?.len(), 100);
                cursor.next()?;
            }
        }
        Ok(())
    })?;
    measure("scan", 2 * n, || {
        for _ in 0..2 {
            assert_eq!(db.iter()?.try_fold(0, |c, e| e.map(|_| c + 1))?, n);
        }
        Ok(())
    })?;
    measure("back", n, || {
        assert_eq!(db.iter()?.rev().try_fold(0, |c, e| e.map(|_| c + 1))?, n);
        Ok(())
    })?;
    let s = db.admin().stats();
    println!("MB {:.1} of {:.1}", s.disk_bytes as f64 / 1e6, n as f64 * 116.0 / 1e6);
    db.close()?;
    let _ = std::fs::remove_dir_all(&dir);
    Ok(())
}
