//! What a table whose rows are resident in a learned index would gain: gets of one million rows
//! through the block cache, through the row cache, and from a `learned::Map` beside the table.
//!
//! ```text
//! cargo run --profile perf -p perigeedb-tables --example resident_gets
//! ```
//!
//! The map is an upper bound: no writes, no transactions, no snapshots, one lock for readers.

use perigee::{Durability, Options};
use perigee_learned::Map;
use perigee_tables::{Row, TableDb};
use std::hint::black_box;
use std::sync::RwLock;
use std::time::Instant;

const ROWS: u64 = 1_000_000;
const GETS: u64 = 2_000_000;

#[derive(Row, Clone)]
struct Item {
    #[key]
    id: u64,
    value: Vec<u8>,
}

/// Returns the time of a get of random rows, in nanoseconds; the median of five rounds.
fn measure(mut get: impl FnMut(u64) -> usize) -> f64 {
    let mut rounds: Vec<f64> = (0..6)
        .map(|round| {
            let mut x = 88_172_645_463_325_252 + round;
            let started = Instant::now();
            for _ in 0..GETS {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                black_box(get(x % ROWS * 3));
            }
            started.elapsed().as_secs_f64() * 1e9 / GETS as f64
        })
        .skip(1) // warms up
        .collect();
    rounds.sort_by(f64::total_cmp);
    rounds[rounds.len() / 2]
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for value_bytes in [16, 200] {
        let row = |id: u64| Item { id, value: vec![id as u8; value_bytes] };
        println!("{ROWS} rows with a value of {value_bytes} bytes");
        for row_cache in [0, 512 << 20] {
            let directory =
                std::env::temp_dir().join(format!("perigee-resident-{}", std::process::id()));
            let options = Options::new()
                .durability(Durability::None)
                .memory_budget(2 << 30)
                .row_cache_bytes(row_cache);
            let db = perigee::Db::open(&directory, options)?;
            let items = db.table::<Item>("items")?;
            items.load((0..ROWS).map(|n| row(n * 3)))?;
            if row_cache > 0 {
                (0..ROWS).try_for_each(|n| items.get(n * 3).map(drop))?;
            }
            let get = measure(|id| items.get(id).ok().flatten().map_or(0, |row| row.value.len()));
            let through = if row_cache > 0 { "row cache" } else { "block cache" };
            println!("  get through the {through:12} {get:6.0} ns");
            if row_cache == 0 {
                let started = Instant::now();
                let mut rows = Vec::new();
                for row in items.range(0..)? {
                    let row = row?;
                    rows.push((row.id, row.value.into_boxed_slice()));
                }
                let scan = started.elapsed();
                let map = Map::from_sorted(rows);
                let built = started.elapsed();
                let bytes = map.memory_bytes() as u64 / ROWS + value_bytes as u64;
                let map = RwLock::new(map);
                let get = measure(|id| {
                    let map = map.read().unwrap_or_else(std::sync::PoisonError::into_inner);
                    let row = map.get(id).map(|value| Item { id, value: value.to_vec() });
                    row.map_or(0, |row| row.value.len())
                });
                println!(
                    "  get from a learned map       {get:6.0} ns, {bytes} bytes per row, built at open in {:.0} ms \
                     ({:.0} ms of them for the scan)",
                    built.as_secs_f64() * 1e3,
                    scan.as_secs_f64() * 1e3
                );
            }
            drop(items);
            drop(db);
            std::fs::remove_dir_all(&directory)?;
        }
    }
    Ok(())
}
