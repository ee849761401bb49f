//! Compares the learned map with other ordered maps: `cargo run --release -p perigeedb-learned
//! --example maps -- [ENTRIES] [REPS]`.
//!
//! Each cell is measured in a separate process, interleaved, in CPU time. Prints the median of the
//! repetitions in nanoseconds per operation, and the growth of resident memory in bytes per entry.
//! Values are u64.

use perigee_learned::Map;
use std::collections::{BTreeMap, HashMap};
use std::hint::black_box;
use std::ops::Bound;
use std::process::Command;

const MAPS: [&str; 4] = ["learned", "btreemap", "blart", "indexset"];
const KEYS: [&str; 6] = ["ascending", "descending", "random", "lognormal", "heavy", "clustered"];
const METRICS: [&str; 7] = ["insert", "get", "miss", "range100", "iterate", "remove", "bytes"];

/// Operations of every measured map.
trait BenchMap: Default {
    fn put(&mut self, k: u64, v: u64);
    fn lookup(&self, k: u64) -> Option<u64>;
    fn delete(&mut self, k: u64);
    fn xor_range(&self, from: u64, n: usize) -> u64;
}
impl BenchMap for Map<u64, u64> {
    fn put(&mut self, k: u64, v: u64) {
        self.insert(k, v);
    }
    fn lookup(&self, k: u64) -> Option<u64> {
        self.get(k).copied()
    }
    fn delete(&mut self, k: u64) {
        self.remove(k);
    }
    fn xor_range(&self, from: u64, n: usize) -> u64 {
        self.range(from..).take(n).fold(0, |a, (k, v)| a ^ k ^ v)
    }
}
impl BenchMap for BTreeMap<u64, u64> {
    fn put(&mut self, k: u64, v: u64) {
        self.insert(k, v);
    }
    fn lookup(&self, k: u64) -> Option<u64> {
        self.get(&k).copied()
    }
    fn delete(&mut self, k: u64) {
        self.remove(&k);
    }
    fn xor_range(&self, from: u64, n: usize) -> u64 {
        self.range(from..).take(n).fold(0, |a, (k, v)| a ^ k ^ v)
    }
}
#[derive(Default)]
struct BlartMap(blart::TreeMap<[u8; 8], u64>);
impl BenchMap for BlartMap {
    fn put(&mut self, k: u64, v: u64) {
        let _ = self.0.try_insert(k.to_be_bytes(), v);
    }
    fn lookup(&self, k: u64) -> Option<u64> {
        self.0.get(&k.to_be_bytes()).copied()
    }
    fn delete(&mut self, k: u64) {
        self.0.remove(&k.to_be_bytes());
    }
    fn xor_range(&self, from: u64, n: usize) -> u64 {
        let range = (Bound::Included(from.to_be_bytes()), Bound::Unbounded);
        self.0.range(range).take(n).fold(0, |a, (k, v)| a ^ u64::from_be_bytes(*k) ^ v)
    }
}
impl BenchMap for indexset::BTreeMap<u64, u64> {
    fn put(&mut self, k: u64, v: u64) {
        self.insert(k, v);
    }
    fn lookup(&self, k: u64) -> Option<u64> {
        self.get(&k).copied()
    }
    fn delete(&mut self, k: u64) {
        self.remove(&k);
    }
    fn xor_range(&self, from: u64, n: usize) -> u64 {
        self.range(from..).take(n).fold(0, |a, (k, v)| a ^ k ^ v)
    }
}

struct BenchRng(u64);
impl BenchRng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        let z = (z ^ (z >> 29)).wrapping_mul(0xA24B_AED4_963E_E407);
        z ^ (z >> 32)
    }
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
    fn normal(&mut self) -> f64 {
        (-2.0 * (1.0 - self.unit()).ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
    }
}

fn generate_keys(kind: &str, n: u64) -> Vec<u64> {
    let mut r = BenchRng(7);
    let one = |i: u64, r: &mut BenchRng| match kind {
        "ascending" => i,
        "descending" => n - i,
        "random" => r.next(),
        // As in the ALEX paper: mu 0, sigma 2, times 10^9.
        "lognormal" => ((r.normal() * 2.0).exp() * 1e9) as u64,
        // Pareto with exponent 1/3: most keys are small, the largest fill the whole range.
        "heavy" => ((1.0 / (1.0 - r.unit())).powi(3) * 1e6) as u64,
        // A thousand dense clusters, far apart.
        _ => ((r.next() % 1000) * 0x40_0000_0000_0000 / 16) ^ (r.next() % (n / 100 + 1)),
    };
    (0..n).map(|i| one(i, &mut r)).collect()
}

/// Returns the CPU time of this thread, in nanoseconds.
fn cpu_ns() -> u64 {
    let line =
        std::fs::read_to_string("/proc/thread-self/schedstat").expect("/proc is available (Linux)");
    line.split(' ').next().and_then(|w| w.parse().ok()).expect("a number")
}
fn resident_bytes() -> u64 {
    let line = std::fs::read_to_string("/proc/self/statm").expect("/proc is available (Linux)");
    line.split(' ').nth(1).and_then(|w| w.parse::<u64>().ok()).expect("a number") * 4096
}

fn measure<M: BenchMap>(kind: &str, n: u64) {
    let all = generate_keys(kind, n);
    let mut order = all.clone();
    let mut r = BenchRng(99);
    (1..order.len()).rev().for_each(|i| order.swap(i, (r.next() % (i as u64 + 1)) as usize));
    let mut map = M::default();
    let time = |ops: u64, work: &mut dyn FnMut()| {
        let start = cpu_ns();
        work();
        print!("{:.1} ", (cpu_ns() - start) as f64 / ops as f64);
    };
    let before = resident_bytes();
    time(n, &mut || all.iter().enumerate().for_each(|(i, &k)| map.put(k, i as u64)));
    let bytes = resident_bytes() - before;
    time(n, &mut || order.iter().for_each(|&k| assert!(black_box(map.lookup(k)).is_some())));
    time(n, &mut || {
        order.iter().for_each(|&k| {
            black_box(map.lookup(k ^ 0x1234_5678_9abc));
        })
    });
    time(n / 10, &mut || {
        order.iter().take(n as usize / 10).for_each(|&k| {
            black_box(map.xor_range(k, 100));
        })
    });
    time(10 * n, &mut || {
        (0..10).for_each(|_| {
            black_box(map.xor_range(0, n as usize));
        })
    });
    time(n / 2, &mut || order.iter().take(n as usize / 2).for_each(|&k| map.delete(k)));
    drop(map);
    let mut all = all;
    all.sort_unstable();
    all.dedup();
    println!("{:.1}", bytes as f64 / all.len() as f64);
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let [_, map, kind, n] = &args[..] {
        let n = n.parse().expect("a number of entries");
        return match &map[..] {
            "learned" => measure::<Map<u64, u64>>(kind, n),
            "btreemap" => measure::<BTreeMap<u64, u64>>(kind, n),
            "blart" => measure::<BlartMap>(kind, n),
            _ => measure::<indexset::BTreeMap<u64, u64>>(kind, n),
        };
    }
    let number = |i: usize, or: u64| args.get(i).map_or(or, |a| a.parse().expect("a number"));
    let (n, reps) = (number(1, 1_000_000), number(2, 3));
    let me = std::env::current_exe().expect("the path of this program is known");
    println!("{n} entries; ns of CPU per operation, resident bytes per entry\n");
    println!("| keys | map | {} |\n|---|---|{}", METRICS.join(" | "), "---|".repeat(METRICS.len()));
    for kind in KEYS {
        let mut all: HashMap<&str, Vec<Vec<f64>>> = HashMap::new();
        for map in (0..reps).flat_map(|_| MAPS) {
            let out = Command::new(&me)
                .args([map, kind, &n.to_string()])
                .output()
                .expect("the measuring process starts");
            let text = String::from_utf8_lossy(&out.stdout);
            let row: Vec<f64> = text.split_whitespace().filter_map(|w| w.parse().ok()).collect();
            assert_eq!(
                row.len(),
                METRICS.len(),
                "{map} {kind}: {}",
                String::from_utf8_lossy(&out.stderr)
            );
            all.entry(map).or_default().push(row);
        }
        for map in MAPS {
            let median = |f: usize| {
                let mut values: Vec<f64> = all[map].iter().map(|r| r[f]).collect();
                values.sort_by(f64::total_cmp);
                format!("{:.0}", values[values.len() / 2])
            };
            println!(
                "| {kind} | {map} | {} |",
                (0..METRICS.len()).map(median).collect::<Vec<_>>().join(" | ")
            );
        }
    }
}
