//! Measures memory: the cost of a column family, and whether the database stays within the memory
//! budget. Commands:
//!
//! - `memory families N`: N column families with one small write each.
//! - `memory load BUDGET_MIB MIB [READERS [FAMILIES]]`: writes MIB and reads, with READERS open
//!   iterators and snapshots, over FAMILIES column families.
//! - `memory bulk BUDGET_MIB MIB`: bulk-loads MIB of unsorted entries.
//! - `memory txn BUDGET_MIB WRITES [BATCH]`: WRITES writes in one transaction, or in batches of
//!   BATCH.
//! - `memory log MIB FAMILIES DIRECTORY`: writes MIB without a flush, syncs the log, and aborts.
//! - `memory open BUDGET_MIB READ_ONLY DIRECTORY`: opens that database (BUDGET_MIB 0: default
//!   budget; READ_ONLY 1: read-only) and prints the memory used by recovery.

use cap::Cap;
use perigee::{Db, Durability, FamilyOptions, Options, TxnOptions, WriteBatch};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

/// Counts allocated bytes, to separate unaccounted memory from the overhead of the allocator.
#[global_allocator]
static HEAP: Cap<std::alloc::System> = Cap::new(std::alloc::System, usize::MAX);

type MainResult = Result<(), Box<dyn std::error::Error>>;

fn main() -> MainResult {
    let args: Vec<String> = std::env::args().collect();
    let number = |i: usize| args.get(i).and_then(|a| a.parse::<u64>().ok());
    let dir = std::env::temp_dir().join(format!("perigee-memory-{}", std::process::id()));
    match (args.get(1).map(String::as_str), number(2), number(3)) {
        (Some("families"), Some(n), _) => measure_families(&dir, n)?,
        (Some("load"), Some(budget), mb) => {
            let (readers, families) = (number(4).unwrap_or(0) as usize, number(5).unwrap_or(1));
            measure_load(&dir, budget << 20, mb.unwrap_or(1024), readers, families)?;
        }
        (Some("txn"), Some(budget), n) => {
            measure_txn(&dir, budget << 20, n.unwrap_or(1_000_000), number(4).unwrap_or(0))?;
        }
        (Some("log"), Some(mb), families) => write_log(args.get(4), mb, families.unwrap_or(1))?,
        (Some("open"), Some(budget), read_only) => {
            open_log(args.get(4), budget << 20, read_only == Some(1))?
        }
        (Some("bulk"), Some(budget), mb) => {
            measure_bulk_load(&dir, budget << 20, mb.unwrap_or(1024))?
        }
        _ => println!(
            "memory families N\n\
             memory load BUDGET_MIB MIB [READERS [FAMILIES]]\n\
             memory bulk BUDGET_MIB MIB\n\
             memory txn BUDGET_MIB WRITES [BATCH]\n\
             memory log MIB FAMILIES DIRECTORY\n\
             memory open BUDGET_MIB READ_ONLY DIRECTORY"
        ),
    }
    let _ = std::fs::remove_dir_all(&dir);
    Ok(())
}

fn process_status(field: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix(field)).unwrap_or("0");
    line.trim_matches([':', ' ', '\t']).trim_end_matches(" kB").parse().unwrap_or(0)
}

/// Writes a log without flushing it to tables, and aborts without closing the database.
fn write_log(dir: Option<&String>, mb: u64, families: u64) -> MainResult {
    let large = FamilyOptions::new().memtable_bytes(1 << 30);
    let options =
        Options::new().durability(Durability::None).min_free_space(0).memory_budget(64 << 30);
    let db =
        Db::open(dir.ok_or("the directory is missing")?, options.default_family(large.clone()))?;
    let families: Vec<_> = (0..families)
        .map(|i| {
            if i == 0 {
                Ok(db.default_family())
            } else {
                db.create_family(&format!("f{i}"), large.clone())
            }
        })
        .collect::<Result<_, _>>()?;
    for i in 0..(mb << 20) / 120 / 100 {
        let mut batch = WriteBatch::new();
        for j in i * 100..i * 100 + 100 {
            let family =
                &families[(j.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize % families.len()];
            batch.put(family, j.to_be_bytes(), [j as u8; 104])?;
        }
        db.write(batch)?;
    }
    db.sync()?;
    std::process::abort();
}

fn open_log(dir: Option<&String>, budget: u64, read_only: bool) -> MainResult {
    let (dir, start) = (dir.ok_or("the directory is missing")?, Instant::now());
    let options = if budget > 0 { Options::new().memory_budget(budget) } else { Options::new() };
    let db = Db::open(dir, options.read_only(read_only))?;
    let (s, peak, now) =
        (start.elapsed().as_secs_f64(), process_status("VmHWM"), process_status("VmRSS"));
    let stats = db.admin().stats();
    let accounted: u64 = stats.memory_bytes();
    println!(
        "opened in {s:.1} s; budget {} MiB, log {} bytes in {} segments",
        stats.memory_budget >> 20,
        stats.wal.bytes,
        stats.wal.segments
    );
    println!(
        "resident: peak {} MiB, now {} MiB; accounted {} MiB",
        peak >> 10,
        now >> 10,
        accounted >> 20
    );
    println!("{:?}", stats.recovery);
    std::thread::sleep(std::time::Duration::from_secs(3));
    println!(
        "3 s later: resident {} MiB, {:?}",
        process_status("VmRSS") >> 10,
        db.admin().stats().memory
    );
    let names = db.families();
    let counted: Result<Vec<_>, _> =
        names.iter().map(|n| Ok::<_, perigee::Error>(db.family(n)?.iter()?.count())).collect();
    println!(
        "{} entries in {} column families; peak resident {} MiB",
        counted?.iter().sum::<usize>(),
        names.len(),
        process_status("VmHWM") >> 10
    );
    Ok(db.close()?)
}

fn measure_families(dir: &std::path::Path, n: u64) -> MainResult {
    let db = Db::open(dir, Options::new().durability(Durability::None).min_free_space(0))?;
    let (start, before, heap) = (Instant::now(), process_status("VmRSS"), HEAP.allocated());
    let families: Vec<_> = (0..n)
        .map(|i| db.create_family(&format!("family {i}"), Default::default()))
        .collect::<Result<_, _>>()?;
    let (made, created_s) = (process_status("VmRSS"), start.elapsed().as_secs_f64());
    for f in &families {
        f.put("key", "a small value")?;
    }
    let written = process_status("VmRSS");
    println!("{n} column families: created in {created_s:.1} s");
    let each = |kib: u64| kib as f64 * 1024.0 / n as f64;
    println!(
        "bytes per column family: empty {:.0}, with one entry {:.0}",
        each(made - before),
        each(written - before)
    );
    println!("{:?}", db.admin().stats().memory);
    for round in 1..=3 {
        let start = Instant::now();
        db.admin().flush()?;
        let (s, resident) = (start.elapsed().as_secs_f64(), each(process_status("VmRSS") - before));
        let allocated = (HEAP.allocated() - heap) as u64 / n;
        let accounted = db.admin().stats().memory_bytes() / n;
        println!(
            "flush {round} took {s:.1} s; bytes per column family: resident {resident:.0}, \
             allocated {allocated}, accounted {accounted}"
        );
        for f in families.iter().filter(|_| round < 3) {
            f.put("key", "a small value")?;
        }
    }
    db.close()?;
    drop((families, db));
    let start = Instant::now();
    let db = Db::open(dir, Options::new().max_open_files(64))?;
    println!(
        "reopened in {:.1} s, open files {:?}",
        start.elapsed().as_secs_f64(),
        db.admin().stats().open_files
    );
    Ok(db.close()?)
}

/// Samples the process every 5 ms; returns the peak resident size, and the bytes allocated then.
fn sample_peak(stop: &AtomicBool) -> (u64, u64) {
    let mut peak = (0, 0);
    while !stop.load(Relaxed) {
        std::thread::sleep(std::time::Duration::from_millis(5));
        peak = peak.max((process_status("VmRSS") * 1024, HEAP.allocated() as u64));
    }
    peak
}

/// Writes in batches with random reads in between, to `families` column families; prints accounted,
/// allocated and resident memory over time. `readers` iterators and snapshots are open at any time,
/// each for a tenth of the run.
fn measure_load(
    dir: &std::path::Path,
    budget: u64,
    mb: u64,
    readers: usize,
    families: u64,
) -> MainResult {
    let start = (process_status("VmRSS") * 1024, HEAP.allocated() as u64);
    let options = Options::new().durability(Durability::None).memory_budget(budget);
    let db = Db::open(dir, options)?;
    let families: Vec<_> = (0..families)
        .map(|i| {
            if i == 0 {
                Ok(db.default_family())
            } else {
                db.create_family(&format!("f{i}"), Default::default())
            }
        })
        .collect::<Result<_, _>>()?;
    let (opened, stop) = (process_status("VmRSS") * 1024, AtomicBool::new(false));
    let (mut state, mut sum) = (7u64, 0);
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let batches = (mb << 20) / (1000 * 120);
    let started = Instant::now();
    let mut open = std::collections::VecDeque::new();
    println!(
        "resident before open {:.1} MiB, after open {:.1}; budget {:.1}",
        mib(start.0),
        mib(opened),
        mib(budget)
    );
    println!("{:>5} {:>10} {:>10} {:>10}", "%", "accounted", "heap", "resident");
    let peak = std::thread::scope(|s| -> Result<_, Box<dyn std::error::Error>> {
        let sampler = s.spawn(|| sample_peak(&stop));
        for i in 0..batches {
            let mut batch = WriteBatch::new();
            let value: Vec<u8> = (0..13).flat_map(|_| random().to_le_bytes()).collect();
            for _ in 0..1000 {
                let family = &families[(random() % families.len() as u64) as usize];
                batch.put(family, (random() % 20_000_000).to_be_bytes(), &value)?;
            }
            db.write(batch)?;
            for _ in 0..100 {
                families[(random() % families.len() as u64) as usize]
                    .get((random() % 20_000_000).to_be_bytes())?;
            }
            if readers > 0 && i % (batches / 10 / readers as u64).max(1) == 0 {
                let (mut iter, snapshot) = (db.iter()?, db.snapshot()?);
                iter.next().transpose()?;
                open.push_back((iter, snapshot));
                if open.len() > readers {
                    open.pop_front();
                }
            }
            if i % (batches / 200).max(1) == 0 {
                sum = sum.max(db.admin().stats().memory_bytes());
            }
            if i % (batches / 10).max(1) == 0 {
                let accounted: u64 = db.admin().stats().memory_bytes();
                let heap = HEAP.allocated() as u64 - start.1;
                let row = [mib(accounted), mib(heap), mib(process_status("VmRSS") * 1024)];
                println!(
                    "{:>5} {:>10.1} {:>10.1} {:>10.1}",
                    i * 100 / batches,
                    row[0],
                    row[1],
                    row[2]
                );
            }
        }
        stop.store(true, Relaxed);
        Ok(sampler.join().expect("the sampling thread does not panic"))
    })?;
    println!(
        "{mb} MiB written, {} reads, in {:.0} s",
        batches * 100,
        started.elapsed().as_secs_f64()
    );
    let flushes = db.admin().stats().counter("flushes").unwrap_or(0);
    println!("peak accounted {:.1} MiB of {:.1}; flushes {}", mib(sum), mib(budget), flushes);
    print_memory(&db, peak, start, budget);
    drop((open, families));
    Ok(db.close()?)
}

/// Bulk-loads unsorted entries, and reads half of them back.
fn measure_bulk_load(dir: &std::path::Path, budget: u64, mb: u64) -> MainResult {
    let start = (process_status("VmRSS") * 1024, HEAP.allocated() as u64);
    let db = Db::open(dir, Options::new().durability(Durability::None).memory_budget(budget))?;
    let stop = AtomicBool::new(false);
    let n = (mb << 20) / 112;
    let key = |i: u64| i.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes();
    let peak = std::thread::scope(|s| -> Result<_, Box<dyn std::error::Error>> {
        let sampler = s.spawn(|| sample_peak(&stop));
        let mut load = db.default_family().bulk_load()?;
        (0..n).try_for_each(|i| load.put(key(i), [i as u8; 104]))?;
        load.finish()?;
        (0..n / 2).try_for_each(|i| db.get(key(i)).map(drop))?;
        stop.store(true, Relaxed);
        Ok(sampler.join().expect("the sampling thread does not panic"))
    })?;
    println!("{mb} MiB loaded, {} reads; budget {:.1}", n / 2, mib(budget));
    print_memory(&db, peak, start, budget);
    Ok(db.close()?)
}

/// Returns the CPU time of this process in seconds.
fn cpu_s() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> =
        text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |i: usize| fields.get(i).and_then(|t| t.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / 100.0
}

/// Writes random keys, in one transaction or (`each` > 0) in batches; reads one key per ten writes.
fn measure_txn(dir: &std::path::Path, budget: u64, n: u64, each: u64) -> MainResult {
    let start = (process_status("VmRSS") * 1024, HEAP.allocated() as u64);
    let db = Db::open(dir, Options::new().durability(Durability::None).memory_budget(budget))?;
    let family = db.default_family();
    let stop = AtomicBool::new(false);
    let key = |i: u64| i.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes();
    let value = |i: u64| {
        let mut value = [i as u8; 100];
        value[..50]
            .iter_mut()
            .enumerate()
            .for_each(|(at, b)| *b = (i.wrapping_mul(at as u64 * 7 + 3) >> 3) as u8);
        value
    };
    let (started, cpu) = (Instant::now(), cpu_s());
    let mut before_commit = (0.0, 0.0);
    let peak = std::thread::scope(|s| -> Result<_, Box<dyn std::error::Error>> {
        let sampler = s.spawn(|| sample_peak(&stop));
        if each == 0 {
            let txn = db.begin(TxnOptions::new())?;
            for i in 0..n {
                txn.put(&family, key(i), value(i))?;
                if i % 10 == 0 {
                    txn.get_untracked(&family, key(i / 2))?;
                }
            }
            before_commit = (started.elapsed().as_secs_f64(), cpu_s() - cpu);
            txn.commit()?;
        } else {
            let mut batch = WriteBatch::new();
            for i in 0..n {
                batch.put(&family, key(i), value(i))?;
                if (i + 1) % each == 0 || i + 1 == n {
                    db.write(std::mem::take(&mut batch))?;
                }
                if i % 10 == 0 {
                    family.get(key(i / 2))?;
                }
            }
        }
        stop.store(true, Relaxed);
        Ok(sampler.join().expect("the sampling thread does not panic"))
    })?;
    let (wall, cpu_all) = (started.elapsed().as_secs_f64(), cpu_s() - cpu);
    println!(
        "{n} writes: {wall:.1} s, CPU {cpu_all:.1} s; before the commit {:.1} s, CPU {:.1} s",
        before_commit.0, before_commit.1
    );
    print_memory(&db, peak, start, budget);
    Ok(db.close()?)
}

fn print_memory(db: &Db, peak: (u64, u64), start: (u64, u64), budget: u64) {
    println!(
        "peak resident {:.1} MiB, allocated then {:.1}; peak minus resident before open {:.1} \
         ({:.0} % of the budget)",
        mib(peak.0),
        mib(peak.1.saturating_sub(start.1)),
        mib(peak.0 - start.0),
        (peak.0 - start.0) as f64 * 100.0 / budget as f64
    );
    println!("{:?}", db.admin().stats().memory);
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
