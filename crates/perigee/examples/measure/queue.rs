//! Benchmarks a queue: insert at the tail, find the head, delete it. `cargo run --profile perf -p
//! perigee --example queue [LIVE [TURNS [held]]]`
//!
//! The queue has LIVE entries (16-byte keys, 100-byte values). After every tenth of TURNS, prints
//! the CPU time per turn, the tombstones skipped per search for the head, and the flushes and
//! compactions so far. All lines are similar if the cost of the scan does not grow. With `held`, an
//! open snapshot needs all deleted entries.

mod common;

use common::cpu_s;
use perigee::{Db, Durability, Options};

fn main() -> perigee::Result<()> {
    let number =
        |i: usize, or: u64| std::env::args().nth(i).and_then(|a| a.parse().ok()).unwrap_or(or);
    let (live, turns) = (number(1, 100), number(2, 100_000));
    let dir = std::env::temp_dir().join(format!("perigee-queue-{}", std::process::id()));
    let db = Db::open(&dir, Options::new().durability(Durability::None))?;
    let key = |i: u64| [[0u8; 8], i.to_be_bytes()].concat();
    (0..live).try_for_each(|i| db.put(key(i), [b'v'; 100]))?;
    let counter = |name: &str| db.admin().stats().counter(name).unwrap_or(0);
    let _snapshot = if std::env::args().nth(3).is_some() { Some(db.snapshot()?) } else { None };
    let (mut cpu, mut skipped) = (cpu_s(), 0);
    for turn in 0..turns {
        db.put(key(live + turn), [b'v'; 100])?;
        let mut cursor = db.default_family().cursor()?;
        cursor.seek_to_first()?;
        assert_eq!(cursor.key(), &key(turn)[..], "the head of the queue");
        drop(cursor);
        db.delete(key(turn))?;
        let each = (turns / 10).max(1);
        if (turn + 1) % each == 0 {
            let (now, all) = (cpu_s(), counter("tombstones_skipped"));
            println!(
                "{} turns: {:.2} us CPU each, {} tombstones skipped each, {} flushes, \
                 {} compactions",
                turn + 1,
                (now - cpu) * 1e6 / each as f64,
                (all - skipped) / each,
                counter("flushes"),
                counter("compactions")
            );
            (cpu, skipped) = (now, all);
        }
    }
    db.close()?;
    let _ = std::fs::remove_dir_all(&dir);
    Ok(())
}
