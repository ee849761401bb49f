//! Reads of a large memtable: the first seek after many writes, steps, the flush, and a loop that
//! writes and reads in turn.
//!
//! ```text
//! cargo run --release -p perigeedb --example memtable_reads [ENTRIES]     default: 1 million
//! ```

use perigee::{Db, Durability, FamilyOptions, Options, WriteBatch};
use std::hint::black_box;
use std::time::{Duration, Instant};

fn key(n: u64, ascending: bool) -> [u8; 16] {
    let n = if ascending { n } else { n.wrapping_mul(0x9E37_79B9_7F4A_7C15) };
    let mut key = [b'k'; 16];
    key[8..].copy_from_slice(&n.to_be_bytes());
    key
}

fn main() -> perigee::Result<()> {
    let entries: u64 = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(1_000_000);
    for ascending in [true, false] {
        println!("{entries} entries, {} keys", if ascending { "ascending" } else { "random" });
        let directory =
            std::env::temp_dir().join(format!("perigee-memtable-{}", std::process::id()));
        let options = Options::new()
            .durability(Durability::None)
            .memory_budget(64 << 30)
            .default_family(FamilyOptions::new().memtable_bytes(2 << 30));
        let db = Db::open(&directory, options)?;
        let started = Instant::now();
        for first in (0..entries).step_by(100) {
            let mut batch = WriteBatch::new();
            for n in first..first + 100 {
                batch.put(&db.default_family(), key(n, ascending), [7; 100])?;
            }
            db.write(batch)?;
        }
        println!("  write            {:8.3} us per entry", per(started.elapsed(), entries));

        let immutable = db.admin().stats().background.immutable_memtables;
        assert_eq!(immutable, 0, "everything is in one memtable");
        let started = Instant::now();
        let mut cursor = db.default_family().cursor()?;
        cursor.seek([&key(5, ascending)[..], b"+"].concat())?; // no entry: a scan, not a point read
        assert!(cursor.is_valid());
        println!("  first seek       {:8.3} ms", started.elapsed().as_secs_f64() * 1e3);

        let started = Instant::now();
        cursor.seek_to_first()?;
        let mut bytes = 0;
        while cursor.is_valid() {
            bytes += cursor.key().len() + cursor.value()?.len();
            cursor.next()?;
        }
        black_box(bytes);
        println!("  step             {:8.3} us", per(started.elapsed(), entries));
        drop(cursor);

        let (mut times, rounds) = (Vec::new(), 20_000);
        for round in 0..rounds {
            let started = Instant::now();
            db.put(key(entries + round, ascending), [8; 100])?;
            let mut cursor = db.default_family().cursor()?;
            cursor.seek([&key(round * 37 % entries, ascending)[..], b"+"].concat())?;
            for _ in 0..10 {
                black_box(cursor.key().len() + cursor.value()?.len());
                cursor.next()?;
                if !cursor.is_valid() {
                    break;
                }
            }
            times.push(started.elapsed());
        }
        let total: Duration = times.iter().sum();
        times.sort();
        println!(
            "  put, seek, steps {:8.3} us, median {:.1}, p99.9 {:.1}, longest {:.1}",
            per(total, rounds),
            us(times[times.len() / 2]),
            us(times[times.len() * 999 / 1000]),
            us(times[times.len() - 1])
        );

        let started = Instant::now();
        db.admin().flush()?;
        println!("  flush            {:8.3} us per entry", per(started.elapsed(), entries));
        drop(db);
        let _ = std::fs::remove_dir_all(&directory);
    }
    Ok(())
}

fn us(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn per(time: Duration, entries: u64) -> f64 {
    us(time) / entries as f64
}
