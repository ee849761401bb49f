//! Measures the cost of 10,000 range tombstones for gets and scans, compared with none: `cargo run
//! --profile proof --example range_tombstones`. The tombstones are between existing keys: every
//! read has to check them, and they hide nothing. Then the cost of range deletes that overlap each
//! other, by their number, as of a queue whose consumer deletes everything up to its position.
#![allow(clippy::unwrap_used)]

use perigee::{Db, Durability, FamilyOptions, Options};
use std::path::Path;
use std::time::Instant;

const KEYS: u64 = 400_000;
const RANGES: u64 = 10_000;
const GETS: u64 = 200_000;

fn key(i: u64, tail: u8) -> Vec<u8> {
    [&(i * 0x1_0000).to_be_bytes()[..], &[tail]].concat()
}

fn measure(db: &Db, what: &str) {
    let start = Instant::now();
    let mut x = 1u64;
    for _ in 0..GETS {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        assert!(db.get_pinned(key((x >> 20) % KEYS, 0)).unwrap().is_some());
    }
    let get = start.elapsed().as_nanos() as u64 / GETS;
    let mut scan = [0; 2];
    for (forward, ns) in [true, false].into_iter().zip(&mut scan) {
        let mut cursor = db.default_family().cursor().unwrap();
        let start = Instant::now();
        if forward { cursor.seek_to_first() } else { cursor.seek_to_last() }.unwrap();
        let mut n = 0;
        while cursor.is_valid() {
            n += 1;
            if forward { cursor.next() } else { cursor.prev() }.unwrap();
        }
        assert_eq!(n, KEYS);
        *ns = start.elapsed().as_nanos() as u64 / KEYS;
    }
    println!(
        "{what:34} get {get:6} ns   scan {:5} ns per entry   backward {:5} ns",
        scan[0], scan[1]
    );
}

/// Returns the range that delete number `i` of `n` deletes.
type DeletedRange = fn(i: u64, n: u64) -> (u64, u64);

fn measure_overlapping(dir: &Path, what: &str, deleted: DeletedRange) {
    for n in [1_000, 4_000, 16_000, 64_000] {
        let _ = std::fs::remove_dir_all(dir);
        let family = FamilyOptions::new().memtable_bytes(1 << 30);
        let options = Options::new().durability(Durability::None).memory_budget(8 << 30);
        let db = Db::open(dir, options.default_family(family)).unwrap();
        let family = db.default_family();
        let start = Instant::now();
        for i in 0..n {
            let (begin, end) = deleted(i, n);
            family.put(key(end, 1), [7; 20]).unwrap();
            family.delete_range(key(begin, 0)..key(end, 0)).unwrap();
        }
        let each = start.elapsed().as_nanos() as u64 / n;
        let memtables = db.admin().stats().families[0].memtable.bytes;
        let start = Instant::now();
        for i in 0..n {
            let _ = family.get_pinned(key(i, 0)).unwrap();
        }
        let get = start.elapsed().as_nanos() as u64 / n;
        let start = Instant::now();
        db.admin().flush().unwrap();
        println!(
            "{what:22} {n:6} deletes   put and delete {each:8} ns   memtables {:7} KiB   get {get:6} ns   flush {:6} ms",
            memtables >> 10,
            start.elapsed().as_millis()
        );
        db.close().unwrap();
    }
}

fn main() {
    let dir = std::env::temp_dir().join(format!("perigee-range-tombstones-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    let options = Options::new().durability(Durability::None).block_cache_bytes(256 << 20);
    let db = Db::open(&dir, options).unwrap();
    for i in 0..KEYS {
        db.put(key(i, 0), [7; 100]).unwrap();
    }
    db.admin().compact().unwrap();
    db.iter().unwrap().for_each(drop);
    measure(&db, "no range tombstones");
    let start = Instant::now();
    for r in 0..RANGES {
        let i = r * (KEYS / RANGES);
        db.default_family().delete_range(key(i, 1)..key(i, 255)).unwrap();
    }
    let each = start.elapsed().as_nanos() as u64 / RANGES;
    measure(&db, "10,000 in the memtable");
    db.admin().flush().unwrap();
    measure(&db, "10,000 in a level-0 table");
    db.admin().compact().unwrap();
    measure(&db, "after compaction, which drops them");
    let start = Instant::now();
    db.default_family().delete_range(key(0, 0)..key(KEYS / 2, 0)).unwrap();
    let one = start.elapsed().as_nanos();
    let start = Instant::now();
    assert!(db.iter().unwrap().next().is_some());
    println!(
        "delete_range: {each} ns; over 200,000 keys: {one} ns; seek to the key after it: {} us",
        start.elapsed().as_micros()
    );
    db.close().unwrap();
    measure_overlapping(&dir, "queue", |i, _| (0, i + 1));
    measure_overlapping(&dir, "nested, growing", |i, n| (n - i, n + i + 1));
    measure_overlapping(&dir, "nested, shrinking", |i, n| (i, 2 * n - i));
    measure_overlapping(&dir, "window of 100", |i, _| (i, i + 100));
    measure_overlapping(&dir, "random", |i, n| {
        let begin = i.wrapping_mul(0x9E37_79B9_7F4A_7C15) % n;
        (begin, begin + 1 + begin.wrapping_mul(0xD1B5_4A32_D192_ED03) % n)
    });
    std::fs::remove_dir_all(&dir).unwrap();
}
