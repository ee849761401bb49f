//! What the way to a blocking thread and back costs, and how to make many calls at once:
//! `cargo run --release -p perigeedb-tokio --example async_calls [DIR]`.

use futures_util::TryStreamExt;
use perigee::{Durability, Options, WriteBatch};
use perigee_tokio::Db;
use std::time::Instant;

const ENTRIES: u32 = 100_000;
const CALLS: u32 = 20_000;

fn key(i: u32) -> [u8; 4] {
    i.to_be_bytes()
}

fn report(what: &str, calls: u32, since: Instant) {
    let each = since.elapsed().as_secs_f64() * 1e6 / f64::from(calls);
    println!("{what:40} {each:8.2} us each");
}

#[tokio::main]
async fn main() -> perigee::Result<()> {
    let dir = std::env::args_os().nth(1);
    let dir = dir.map_or_else(|| std::env::temp_dir().join("perigee-async-calls"), Into::into);
    let db = Db::open(&dir, Options::new().durability(Durability::None)).await?;
    let family = db.default_family();
    let mut batch = WriteBatch::new();
    for i in 0..ENTRIES {
        batch.put(family.blocking(), key(i), [b'v'; 100])?;
    }
    db.write(batch).await?;

    let random = |i: u32| key(i.wrapping_mul(2_654_435_761) % ENTRIES);
    let start = Instant::now();
    for i in 0..CALLS {
        db.blocking().get(random(i))?;
    }
    report("get, blocking call", CALLS, start);
    let start = Instant::now();
    for i in 0..CALLS {
        db.get(random(i)).await?;
    }
    report("get, awaited one by one", CALLS, start);
    let start = Instant::now();
    for from in (0..CALLS).step_by(100) {
        family.multi_get((from..from + 100).map(random)).await?;
    }
    report("multi_get of 100 keys, per key", CALLS, start);
    let start = Instant::now();
    let mut entries = family.range::<&[u8]>(..);
    let mut count = 0;
    while entries.try_next().await?.is_some() {
        count += 1;
    }
    report("stream over all entries, per entry", count, start);
    let start = Instant::now();
    for i in 0..CALLS {
        db.put(key(i), [b'w'; 100]).await?;
    }
    report("put, awaited one by one, not synced", CALLS, start);
    db.close().await?;
    let _ = std::fs::remove_dir_all(dir);
    Ok(())
}
