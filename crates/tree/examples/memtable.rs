//! Benchmark of the memtable on its own: `cargo run --profile perf -p perigeedb-tree --example
//! memtable [ENTRIES]`
//!
//! 16-byte keys, 100-byte values; nanoseconds of this thread's CPU time per operation
//! (`/proc/thread-self/schedstat`).
#![allow(clippy::unwrap_used)]

use perigee_base::{FamilyId, KeyComparator, OpIndex, SeqNo};
use perigee_file::log::{Batch, BatchOp, BatchOps};
use perigee_tree::Memtable;
use std::hint::black_box;
use std::sync::Arc;

/// A batch and its operations.
type BatchWithOps = (Arc<Vec<u8>>, Vec<(BatchOp, OpIndex)>);

fn cpu_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    stat.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0)
}

fn time<T>(what: &str, n: u64, work: impl FnOnce() -> T) -> T {
    let start = cpu_ns();
    let out = work();
    println!("{what:<44} {:>9.1} ns", (cpu_ns() - start) as f64 / n as f64);
    out
}

fn random(i: u64) -> [u8; 16] {
    let mixed = (i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    key(mixed ^ mixed >> 29, i)
}
fn ascending(i: u64) -> [u8; 16] {
    key(0, i)
}
fn key(high: u64, low: u64) -> [u8; 16] {
    let mut k = [0; 16];
    k[..8].copy_from_slice(&high.to_be_bytes());
    k[8..].copy_from_slice(&low.to_be_bytes());
    k
}

fn batches(n: u64, each: u64, key: impl Fn(u64) -> [u8; 16]) -> Vec<BatchWithOps> {
    let one = |start: u64| {
        let mut b = Batch::new();
        (start..(start + each).min(n))
            .for_each(|i| b.put(FamilyId(0), &key(i), &[b'v'; 100]).unwrap());
        let f = b.finish();
        let ops = BatchOps::new(&f.buf, f.payload_range()).enumerate();
        let ops = ops.map(|(i, op)| (op.unwrap(), OpIndex(start + 1 + i as u64))).collect();
        (Arc::new(f.buf), ops)
    };
    (0..n).step_by(each as usize).map(one).collect()
}

fn insert(t: &Memtable, batches: &[BatchWithOps]) {
    batches.iter().for_each(|(buf, ops)| t.insert(buf, SeqNo::ZERO, ops).unwrap());
}

fn scan(t: &Arc<Memtable>) -> u64 {
    let mut c = t.cursor();
    c.seek_first();
    let mut sum = 0;
    while c.valid() {
        sum += c.entry().key.len() as u64;
        c.next();
    }
    sum
}

fn main() {
    let n: u64 = std::env::args().nth(1).and_then(|a| a.parse().ok()).unwrap_or(1_000_000);
    let comparator = KeyComparator::Bytes;
    for (name, key) in [("random", random as fn(u64) -> [u8; 16]), ("ascending", ascending)] {
        let thousands = batches(n, 1000, key);
        let t = Arc::new(Memtable::new(comparator));
        time(&format!("{name}: insert, batch 1000"), n, || insert(&t, &thousands));
        let sized = Memtable::with_expected_keys(comparator, n);
        time(&format!("{name}: insert, batch 1000, presized"), n, || insert(&sized, &thousands));
        drop(sized);
        time(&format!("{name}: overwrite, batch 1000"), n, || insert(&t, &thousands));
        drop(t);
        let t = Arc::new(Memtable::new(comparator));
        insert(&t, &thousands);
        let get = |i: u64| t.get(black_box(&key(i)), SeqNo::MAX);
        time(&format!("{name}: get, hit"), n, || {
            (0..n).for_each(|i| assert!(get(i * 7919 % n).is_some()))
        });
        time(&format!("{name}: get, miss"), n, || {
            (n..2 * n).for_each(|i| assert!(get(i).is_none()))
        });
        time(&format!("{name}: first seek (sorts)"), n, || t.cursor().seek_first());
        time(&format!("{name}: scan"), n, || assert_eq!(scan(&t), 16 * n));
        println!("{:<44} {:>9.1} bytes", "  memory per entry", t.bytes() as f64 / n as f64);
        drop((t, thousands));
    }
    let single_op_batches = batches(n / 4, 1, random);
    let t = Arc::new(Memtable::new(comparator));
    time("random: insert, batch 1", n / 4, || insert(&t, &single_op_batches));
    for every in [1000, 1] {
        let t = Arc::new(Memtable::new(comparator));
        time(&format!("insert, batch 1, one seek per {every}"), n / 4, || {
            for (i, chunk) in single_op_batches.chunks(every).enumerate() {
                insert(&t, chunk);
                let mut c = t.cursor();
                c.seek(&random((i as u64 * 7919) % (n / 4)), SeqNo::MAX);
                black_box(c.valid());
            }
        });
    }
    let mut c = t.cursor();
    time("seek, sorted", n, || (0..n).for_each(|i| c.seek(&random(i * 7919 % n), SeqNo::MAX)));
    time("cursor and seek, sorted", n, || {
        (0..n).for_each(|i| t.cursor().seek(&random(i * 7919 % n), SeqNo::MAX));
    });
}
