//! Shared by the benchmark examples: keys, values, and the CPU time of the process.
#![allow(dead_code)] // not every example uses every function

pub mod scans;
pub mod sets;

/// Returns a 16-byte key; consecutive numbers give keys in random order.
pub fn key(i: u64) -> [u8; 16] {
    let mut k = [0; 16];
    let mixed = (i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    k[..8].copy_from_slice(&(mixed ^ mixed >> 29).to_be_bytes());
    k[8..].copy_from_slice(&i.to_be_bytes());
    k
}

/// Returns a 100-byte value; 48 bytes are random.
pub fn value(i: u64) -> [u8; 100] {
    let mut v = [b'v'; 100];
    let mut x = i + 1;
    for chunk in v[..48].chunks_mut(8) {
        x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        chunk.copy_from_slice(&x.to_le_bytes());
    }
    v
}

/// Returns the CPU time of this process, all threads, in seconds.
pub fn cpu_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks = |i: usize| fields.get(i).and_then(|f| f.parse::<u64>().ok()).unwrap_or(0);
    (ticks(11) + ticks(12)) as f64 / 100.0
}
