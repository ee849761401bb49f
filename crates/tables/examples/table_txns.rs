//! What transactions of many rows cost: one million rows with 16 bytes of value, in random order of
//! their keys, 1,000 in each transaction, into a new table each time.
//!
//! ```text
//! cargo run --profile perf -p perigeedb-tables --example table_txns [ROUNDS] [insert|put] [SYNC]
//! ```
//!
//! SYNC: `full` to sync each commit. Prints nanoseconds for a row, the fastest of the rounds: in
//! the transactions and in their commits.

use perigee::{Durability, Options};
use perigee_tables::{Row, TableDb};
use std::time::{Duration, Instant};

const ROWS: u64 = 1_000_000;
const ROWS_PER_TXN: u64 = 1_000;

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
    let argument = |n: usize| std::env::args().nth(n).unwrap_or_default();
    let rounds = argument(1).parse().unwrap_or(5);
    let only = argument(2);
    let durability = if argument(3) == "full" { Durability::Full } else { Durability::None };
    let directory = std::env::temp_dir().join(format!("perigee-txns-{}", std::process::id()));
    for (what, inserts) in [("insert", true), ("put", false)] {
        if !only.is_empty() && only != what {
            continue;
        }
        let mut fastest = (f64::MAX, f64::MAX);
        for _ in 0..rounds {
            let options = Options::new().durability(durability).memory_budget(512 << 20);
            let db = perigee::Db::open(&directory, options)?;
            let items = db.table::<Item>("items")?;
            let (started, mut commits) = (Instant::now(), Duration::ZERO);
            let mut item = Item { id: 0, value: vec![0; 16] };
            for first in (0..ROWS).step_by(ROWS_PER_TXN as usize) {
                let tx = db.begin_tables(Default::default())?;
                let table = tx.on(&items);
                for n in first..first + ROWS_PER_TXN {
                    item.id = shuffled(n);
                    item.value[..8].copy_from_slice(&item.id.to_be_bytes());
                    if inserts { table.insert(&item)? } else { table.put(&item)? }
                }
                let before = Instant::now();
                tx.commit()?;
                commits += before.elapsed();
            }
            let per_row = |time: Duration| time.as_secs_f64() * 1e9 / ROWS as f64;
            let all = (per_row(started.elapsed() - commits), per_row(commits));
            if all.0 + all.1 < fastest.0 + fastest.1 {
                fastest = all;
            }
            db.close()?;
            std::fs::remove_dir_all(&directory)?;
        }
        println!("{what:<8} {:>8.1} {:>8.1}", fastest.0, fastest.1);
    }
    Ok(())
}
