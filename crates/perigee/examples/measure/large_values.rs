//! Benchmarks large values beside plain files: `cargo run --profile perf -p perigeedb --example
//! large_values -- [MIB [ROUNDS [none|lz4]]]`
//!
//! In turn, ROUNDS times: writes a value of MIB MiB of incompressible bytes to a file and syncs it,
//! puts it in parts and in one piece, reads the file and the value in parts and as a whole, and
//! reads 64 KiB from random positions. Prints the median of the throughputs, and the highest memory
//! of the process while a value is written and read in parts, above what it was before.

use perigee::{Compression, Db, FamilyOptions, Options};
use std::fs::File;
use std::hint::black_box;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Instant;

const PART: usize = 1 << 20;

/// Returns a part of the value that does not compress.
fn part(number: u64) -> Vec<u8> {
    let mut x = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x.to_le_bytes()
    };
    std::iter::repeat_with(next).take(PART / 8).flatten().collect()
}

/// Returns a number of kilobytes from `/proc/self/status`.
fn memory_kib(field: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(field)).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or(0)
}
fn reset_peak() {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// The results of all rounds.
#[derive(Default)]
struct Results(Vec<(&'static str, Vec<f64>)>);

impl Results {
    /// Measures `work` on `bytes` bytes, in MiB per second.
    fn measure<T>(&mut self, what: &'static str, bytes: u64, work: impl FnOnce() -> T) -> T {
        let started = Instant::now();
        let result = work();
        let speed = bytes as f64 / f64::from(1 << 20) / started.elapsed().as_secs_f64();
        match self.0.iter_mut().find(|(name, _)| *name == what) {
            Some((_, all)) => all.push(speed),
            None => self.0.push((what, vec![speed])),
        }
        result
    }
    fn print(mut self) {
        println!("{:<34} {:>8} {:>8} {:>8}", "MiB/s", "median", "min", "max");
        for (what, all) in &mut self.0 {
            all.sort_by(f64::total_cmp);
            let (min, max) = (all[0], all[all.len() - 1]);
            println!("{what:<34} {:>8.0} {min:>8.0} {max:>8.0}", all[all.len() / 2]);
        }
    }
}

fn write_file(path: &Path, parts: &[Vec<u8>], count: u64) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    for n in 0..count {
        file.write_all(&parts[n as usize % parts.len()])?;
    }
    file.sync_all()
}
fn read_parts(source: &mut impl Read, buf: &mut [u8]) -> std::io::Result<u64> {
    let mut total = 0;
    loop {
        let read = source.read(buf)?;
        if read == 0 {
            return Ok(total);
        }
        black_box(&buf[..read]);
        total += read as u64;
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let argument = |n: usize| std::env::args().nth(n).and_then(|a| a.parse::<u64>().ok());
    let (count, rounds) = (argument(1).unwrap_or(1024), argument(2).unwrap_or(5));
    let is_lz4 = std::env::args().nth(3).is_none_or(|codec| codec == "lz4");
    let codec = if is_lz4 { Compression::Lz4 } else { Compression::None };
    let dir = std::env::temp_dir().join(format!("perigee-large-values-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir)?;
    let options = Options::new().default_family(FamilyOptions::new().compression(codec));
    let db = Db::open(dir.join("db"), options)?;
    let family = db.default_family();
    let parts: Vec<Vec<u8>> = (0..16).map(part).collect();
    let (bytes, path) = (count * PART as u64, dir.join("file"));
    let (mut results, mut buf) = (Results::default(), vec![0; PART]);
    let whole: Vec<u8> = match bytes <= 1 << 30 {
        true => (0..count).flat_map(|n| parts[n as usize % parts.len()].clone()).collect(),
        false => Vec::new(),
    };
    let (mut write_peak, mut read_peak) = (0, 0);
    for _ in 0..rounds {
        results.measure("file: write, sync", bytes, || write_file(&path, &parts, count))?;
        reset_peak();
        let before = memory_kib("VmRSS");
        results.measure("value: put in parts", bytes, || {
            let mut writer = family.writer("v")?;
            for n in 0..count {
                writer.write_all(&parts[n as usize % parts.len()])?;
            }
            Ok::<_, Box<dyn std::error::Error>>(writer.finish()?)
        })?;
        write_peak = memory_kib("VmHWM").saturating_sub(before).max(write_peak);
        if !whole.is_empty() {
            results.measure("value: put in one piece", bytes, || family.put("w", &whole))?;
            db.admin().flush()?;
        }
        results.measure("file: read", bytes, || read_parts(&mut File::open(&path)?, &mut buf))?;
        reset_peak();
        let before = memory_kib("VmRSS");
        results.measure("value: read in parts", bytes, || {
            let mut reader = family.reader("v")?.ok_or("no value")?;
            Ok::<_, Box<dyn std::error::Error>>(read_parts(&mut reader, &mut buf)?)
        })?;
        read_peak = memory_kib("VmHWM").saturating_sub(before).max(read_peak);
        results.measure("value: get", bytes, || family.get_pinned("v"))?;
        results.measure("file: get", bytes, || std::fs::read(&path))?;
        let (mut file, mut reader) = (File::open(&path)?, family.reader("v")?.ok_or("no value")?);
        let mut positions = (1..200u64).map(|n| n.wrapping_mul(0x9E37_79B9_7F4A_7C15) % bytes);
        let positions: Vec<u64> = positions.by_ref().collect();
        let total = positions.len() as u64 * (64 << 10);
        results.measure("file: 64 KiB, random", total, || random_reads(&mut file, &positions))?;
        results
            .measure("value: 64 KiB, random", total, || random_reads(&mut reader, &positions))?;
        family.delete("v")?;
        family.delete("w")?;
        db.admin().compact()?;
    }
    results.print();
    println!(
        "memory above the start, MiB: writing {}, reading {}",
        write_peak >> 10,
        read_peak >> 10
    );
    db.close()?;
    std::fs::remove_dir_all(&dir)?;
    Ok(())
}

fn random_reads(source: &mut (impl Read + Seek), positions: &[u64]) -> std::io::Result<()> {
    let mut buf = vec![0; 64 << 10];
    for position in positions {
        source.seek(SeekFrom::Start(*position))?;
        black_box(source.read(&mut buf)?);
    }
    Ok(())
}
