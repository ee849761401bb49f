//! Shared by the benchmarks of scans: filling a database, reading entries with a cursor, and the
//! CPU time of a thread.
#![allow(dead_code)]

use perigee::{Cursor, Db, Result, WriteBatch};

/// Returns the CPU time of this thread in nanoseconds.
pub fn thread_cpu_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    stat.split_whitespace().next().and_then(|f| f.parse().ok()).unwrap_or(0)
}

/// Writes the entries with these numbers, in batches of 1000.
pub fn fill<K: AsRef<[u8]>, V: AsRef<[u8]>>(
    db: &Db,
    numbers: impl Iterator<Item = u64>,
    key: impl Fn(u64) -> K,
    value: impl Fn(u64) -> V,
) -> Result<()> {
    let family = db.default_family();
    let mut batch = WriteBatch::new();
    for (n, i) in numbers.enumerate() {
        batch.put(&family, key(i), value(i))?;
        if n % 1000 == 999 {
            db.write(std::mem::take(&mut batch))?;
        }
    }
    db.write(batch).map(drop)
}

/// Reads up to `n` entries from the current position; returns how many there were.
pub fn scan_entries(c: &mut Cursor, n: u64, forward: bool) -> Result<u64> {
    let mut count = 0;
    while c.is_valid() && count < n {
        let (key, value) = c.entry()?;
        std::hint::black_box((key[0], value[0]));
        count += 1;
        if forward { c.next()? } else { c.prev()? }
    }
    Ok(count)
}
