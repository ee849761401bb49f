//! What the steps of a bulk load cost: one million rows with 16 bytes of value, in ascending and in
//! random order of their keys, into a new table each time.
//!
//! ```text
//! cargo run --profile perf -p perigeedb-tables --example table_loads [ROUNDS] [sorted|unsorted]
//! ```
//!
//! Prints nanoseconds of time for a row: the fastest of the rounds.

use perigee::{Durability, Options};
use perigee_tables::{Row, TableDb};
use std::time::Instant;

const ROWS: u64 = 1_000_000;

#[derive(Row)]
struct Item {
    #[key]
    id: u64,
    value: Vec<u8>,
}

/// Returns the nth id in an order that looks random.
fn shuffled(n: u64) -> u64 {
    n * 7_919 % ROWS
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rounds = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(5);
    let directory = std::env::temp_dir().join(format!("perigee-loads-{}", std::process::id()));
    let only = std::env::args().nth(2).unwrap_or_default();
    for (what, sorted) in [("sorted", true), ("unsorted", false)] {
        if !only.is_empty() && only != what {
            continue;
        }
        let mut fastest = f64::MAX;
        for _ in 0..rounds {
            let options = Options::new().durability(Durability::None).memory_budget(512 << 20);
            let db = perigee::Db::open(&directory, options)?;
            let items = db.table::<Item>("items")?;
            let row = |id: u64| {
                let noise = (id + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
                Item { id, value: [noise, noise ^ noise >> 29].map(u64::to_be_bytes).concat() }
            };
            let started = Instant::now();
            if sorted {
                items.load_sorted((0..ROWS).map(row))?;
            } else {
                items.load((0..ROWS).map(|n| row(shuffled(n))))?;
            }
            fastest = fastest.min(started.elapsed().as_secs_f64() * 1e9 / ROWS as f64);
            db.close()?;
            std::fs::remove_dir_all(&directory)?;
        }
        println!("{what:<8} {fastest:>8.1}");
    }
    Ok(())
}
