//! Measures memory: what a family costs, and whether a budget is kept. Not a test: it prints figures of this machine.
//!
//! `memory families N [DIR]`: N families with one small write each. `memory load BUDGET_MIB GB [DIR]`: so much written and read.

use perigee::{Db, Durability, Options, WriteBatch};
use std::time::Instant;

type Done = Result<(), Box<dyn std::error::Error>>;

fn main() -> Done {
    let args: Vec<String> = std::env::args().collect();
    let number = |i: usize| args.get(i).and_then(|a| a.parse::<u64>().ok());
    let dir = std::env::temp_dir().join(format!("perigee-memory-{}", std::process::id()));
    match (args.get(1).map(String::as_str), number(2), number(3)) {
        (Some("families"), Some(n), _) => families(&dir, n)?,
        (Some("load"), Some(budget), gb) => load(&dir, budget << 20, gb.unwrap_or(1))?,
        _ => println!("memory families N | memory load BUDGET_MIB GB"),
    }
    let _ = std::fs::remove_dir_all(&dir);
    Ok(())
}

fn status(field: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix(field)).unwrap_or("0");
    line.trim_matches([':', ' ', '\t']).trim_end_matches(" kB").parse().unwrap_or(0)
}

fn families(dir: &std::path::Path, n: u64) -> Done {
    let db = Db::open(dir, Options::new().durability(Durability::None).min_free_space(0))?;
    let (start, before) = (Instant::now(), status("VmRSS"));
    let families: Vec<_> = (0..n)
        .map(|i| db.create_family(&format!("family {i}"), Default::default()))
        .collect::<Result<_, _>>()?;
    let (made, created_s) = (status("VmRSS"), start.elapsed().as_secs_f64());
    for f in &families {
        f.put("key", "a small value")?;
    }
    let written = status("VmRSS");
    println!("{n} families: created in {created_s:.1} s");
    let each = |kib: u64| kib as f64 * 1024.0 / n as f64;
    println!("bytes each: empty {:.0}, with one entry {:.0}", each(made - before), each(written - before));
    println!("{:?}", db.stats().memory);
    let start = Instant::now();
    db.flush()?;
    println!(
        "flushed in {:.1} s, bytes each {:.0}",
        start.elapsed().as_secs_f64(),
        each(status("VmRSS") - before)
    );
    db.close()?;
    drop((families, db));
    let start = Instant::now();
    let db = Db::open(dir, Options::new().max_open_files(64))?;
    println!("reopened in {:.1} s, open files {:?}", start.elapsed().as_secs_f64(), db.stats().open_files);
    Ok(db.close()?)
}

fn load(dir: &std::path::Path, budget: u64, gb: u64) -> Done {
    let db = Db::open(dir, Options::new().durability(Durability::None).memory_budget(budget))?;
    let before = status("VmRSS");
    let (mut state, mut most, mut sum) = (7u64, 0, 0);
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let batches = (gb << 30) / (1000 * 120);
    let start = Instant::now();
    for i in 0..batches {
        let mut batch = WriteBatch::new();
        let value: Vec<u8> = (0..13).flat_map(|_| random().to_le_bytes()).collect();
        for _ in 0..1000 {
            batch.put(&db.default_family(), (random() % 20_000_000).to_be_bytes(), &value)?;
        }
        db.write(batch)?;
        for _ in 0..100 {
            db.get((random() % 20_000_000).to_be_bytes())?;
        }
        if i % 50 == 0 {
            most = most.max(status("VmRSS"));
            let m = db.stats().memory;
            let held = m.iter().map(|(_, bytes)| bytes).sum();
            sum = sum.max(held);
            assert!(held <= budget / 10 * 11, "{m:?}");
        }
    }
    println!("{gb} GiB written, {} reads, in {:.0} s", batches * 100, start.elapsed().as_secs_f64());
    println!("accounted at most {:.1} MiB of {:.1}", mib(sum), mib(budget));
    println!("resident at open {:.1} MiB, at most {:.1}", mib(before * 1024), mib(most * 1024));
    println!("{:?}", db.stats().memory);
    Ok(db.close()?)
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
