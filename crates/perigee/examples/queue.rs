//! A queue: insert at the tail, look for the head, delete it. `cargo run --profile perf -p perigee
//! --example queue [LIVE [SPINS_MAX [held]]]`
//!
//! LIVE entries lie in the queue (16-byte keys, 100-byte values). After every tenth of TURNS: CPU
//! time of a turn, tombstones that a look for the head passed, flushes and compactions so far. With
//! a flat scan cost all lines are alike. `held`: a snapshot is held all the time, which needs all
//! that is deleted.

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
    let counter =
        |name: &str| db.stats().counters.iter().find(|(n, _)| *n == name).map_or(0, |(_, v)| *v);
    let _held = if std::env::args().nth(3).is_some() { Some(db.snapshot()?) } else { None };
    let (mut cpu, mut passed) = (cpu_s(), 0);
    for turn in 0..turns {
        db.put(key(live + turn), [b'v'; 100])?;
        let mut cursor = db.cursor()?;
        cursor.seek_to_first()?;
        assert_eq!(cursor.key(), &key(turn)[..], "the head of the queue");
        drop(cursor);
        db.delete(key(turn))?;
        let each = (turns / 10).max(1);
        if (turn + 1) % each == 0 {
            let (now, all) = (cpu_s(), counter("tombstones_passed"));
            println!(
                "{} turns: {:.2} us CPU each, {} tombstones passed each, {} flushes, {} compactions",
                turn + 1,
                (now - cpu) * 1e6 / each as f64,
                (all - passed) / each,
                counter("flushes"),
                counter("compactions")
            );
            (cpu, passed) = (now, all);
        }
    }
    db.close()?;
    let _ = std::fs::remove_dir_all(&dir);
    Ok(())
}
