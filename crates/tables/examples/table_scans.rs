//! What a scan of a table costs beside a scan of its column family: ranges of 10, 100 and 10,000
//! rows of one million, with 16 bytes of value, in the block cache; loaded in key order, or written
//! in random order.
//!
//! ```text
//! cargo run --profile perf -p perigeedb-tables --example table_scans [ROUNDS] [loaded|written]
//! ```
//!
//! Prints nanoseconds of time for a row: the fastest of the rounds, because other work on the
//! machine makes rounds slower and none faster.

use perigee::{Durability, Options, Result};
use perigee_tables::{Row, TableDb};
use std::hint::black_box;
use std::time::Instant;

const ROWS: u64 = 1_000_000;

#[derive(Row)]
struct Item {
    #[key]
    id: u64,
    value: Vec<u8>,
}

/// Prints the time for a row in ranges of `len` rows from random places.
fn measure(what: &str, rounds: u64, len: u64, mut range: impl FnMut(u64)) {
    let ranges = ROWS / 10 / len;
    let mut x = 88_172_645_463_325_252;
    let mut time = || {
        let started = Instant::now();
        for _ in 0..ranges {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            range(x % (ROWS - len));
        }
        started.elapsed().as_secs_f64() * 1e9 / (ranges * len) as f64
    };
    let fastest = (0..rounds).map(|_| time()).fold(f64::MAX, f64::min);
    println!("{what:<24} {len:>6} {fastest:>8.1}");
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let rounds = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(20);
    let directory = std::env::temp_dir().join(format!("perigee-scans-{}", std::process::id()));
    let options = Options::new().durability(Durability::None).memory_budget(1 << 30);
    let db = perigee::Db::open(&directory, options)?;
    let items = db.table::<Item>("items")?;
    let item = |id: u64| Item { id, value: id.to_be_bytes().repeat(2) };
    if std::env::args().nth(2).is_some_and(|layout| layout == "written") {
        for first in (0..ROWS).step_by(1000) {
            items.write(|table| {
                (first..first + 1000).try_for_each(|n| table.put(&item(n * 7_919 % ROWS)))
            })?;
        }
        db.admin().flush()?;
        db.admin().wait_idle()?;
    } else {
        items.load((0..ROWS).map(item))?;
    }
    let family = db.family("@table/items")?;
    println!("{:<24} {:>6} {:>8}", "range", "rows", "ns/row");
    for len in [10, 100, 10_000] {
        measure("rows of the table", rounds, len, |from| {
            let rows = items.range(from..).expect("a range").take(len as usize);
            let ids = rows.map(|row| black_box(row.expect("a row")).id);
            assert!(ids.eq(from..from + len));
        });
        let mut row = Item { id: 0, value: Vec::new() };
        measure("rows, read into one", rounds, len, |from| {
            let mut rows = items.range(from..).expect("a range");
            for id in from..from + len {
                assert!(rows.read_into(&mut row).expect("a row") && row.id == id);
                black_box(&row);
            }
        });
        measure("entries of the family", rounds, len, |from| {
            let read = || -> Result<()> {
                let start = [&[1u8][..], &from.to_be_bytes()].concat();
                let mut cursor = family.cursor_within(start..)?;
                cursor.seek_to_first()?;
                for _ in 0..len {
                    black_box(cursor.entry()?);
                    cursor.next()?;
                }
                Ok(())
            };
            read().expect("entries");
        });
    }
    db.close()?;
    std::fs::remove_dir_all(&directory)?;
    Ok(())
}
