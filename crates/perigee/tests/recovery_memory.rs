//! An open stays within the memory budget, however large the log is and however many column
//! families it contains: a log of ten times the budget, written by a process that crashes, is
//! opened under a counting allocator. Each open is a separate process, because the allocator counts
//! its peak once per process.
//!
//! Regression test: with 400 MB of log and a budget of 64 MiB, 458 MiB were resident until the next
//! write; a log of 600 MB could not be opened at all in a container of 256 MB.
#![allow(clippy::unwrap_used)]

use cap::Cap;
use perigee::{Db, Durability, FamilyOptions, Options, WriteBatch};
use std::path::{Path, PathBuf};
use std::process::Command;

#[global_allocator]
static HEAP: Cap<std::alloc::System> = Cap::new(std::alloc::System, usize::MAX);

/// The task of a child process of this test.
const WRITE: &str = "PERIGEE_TEST_WRITE_LOG";
const OPEN: &str = "PERIGEE_TEST_OPEN_LOG";
/// Allowance for memory without an owner: threads, handles, buffers of this test.
const SMALL: u64 = 1 << 20;

struct Case {
    budget: u64,
    log: u64,
    families: u64,
}

const CASES: [Case; 3] = [
    Case { budget: 4 << 20, log: 40 << 20, families: 1 },
    Case { budget: 12 << 20, log: 30 << 20, families: 1000 },
    // In proportion to 10,000 column families in 64 MiB: the fixed memory of column families and
    // tables alone exceeded such a budget.
    Case { budget: (64 << 20) / 10, log: 5 << 20, families: 1000 },
];

/// Runs this test again as a child process with `variable` set.
fn run(variable: &str, case: usize, dir: &Path) -> std::process::Output {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "recovery_stays_within_memory_budget", "--nocapture"]);
    child.env(variable, format!("{case} {}", dir.display())).output().unwrap()
}

fn task(variable: &str) -> Option<(Case, PathBuf)> {
    let text = std::env::var(variable).ok()?;
    let (case, dir) = text.split_once(' ').unwrap();
    let case = CASES.into_iter().nth(case.parse().unwrap()).unwrap();
    Some((case, dir.into()))
}

#[test]
fn recovery_stays_within_memory_budget() {
    if let Some((case, dir)) = task(WRITE) {
        return write(&case, &dir);
    }
    if let Some((case, dir)) = task(OPEN) {
        return open(&case, &dir);
    }
    for case in 0..CASES.len() {
        let dir =
            std::env::temp_dir().join(format!("perigee-recovery-{}-{case}", std::process::id()));
        let written = run(WRITE, case, &dir);
        assert!(!written.status.success(), "the writer crashes");
        let opened = run(OPEN, case, &dir);
        let text =
            [opened.stdout, opened.stderr].map(|out| String::from_utf8_lossy(&out).into_owned());
        assert!(opened.status.success(), "case {case}: {}", text.concat());
        std::fs::remove_dir_all(dir).unwrap();
    }
}

/// Writes with a large memory budget, so that nothing is flushed, and crashes.
fn write(case: &Case, dir: &Path) {
    let large = FamilyOptions::new().memtable_bytes(1 << 30);
    let options =
        Options::new().durability(Durability::None).memory_budget(4 << 30).min_free_space(0);
    let db = Db::open(dir, options.default_family(large.clone())).unwrap();
    let families: Vec<_> = (0..case.families)
        .map(|i| db.create_family(&format!("f{i}"), large.clone()).unwrap())
        .collect();
    for i in 0..case.log / 120 / 50 {
        let mut batch = WriteBatch::new();
        for j in i * 50..i * 50 + 50 {
            let family =
                &families[(j.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize % families.len()];
            batch.put(family, j.to_be_bytes(), [j as u8; 100]).unwrap();
        }
        db.write(batch).unwrap();
    }
    std::process::abort();
}

/// Returns the peak resident memory of this process in bytes; 0 where the system does not report
/// it.
fn resident_peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse().ok());
    kib.unwrap_or(0u64) << 10
}

fn open(case: &Case, dir: &Path) {
    let options = Options::new().memory_budget(case.budget).min_free_space(0);
    let db = Db::open(dir, options).unwrap();
    let (peak, left) = (HEAP.max_allocated() as u64, HEAP.allocated() as u64);
    let resident = resident_peak();
    let stats = db.admin().stats();
    let memtables: u64 =
        stats.memory.iter().filter(|m| m.owner.contains("memtables")).map(|m| m.bytes).sum();
    assert!(peak <= case.budget / 10 * 11 + SMALL, "at most {peak} allocated, {:?}", stats.memory);
    assert!(left <= case.budget / 10 * 11 + SMALL, "{left} allocated");
    // Pages are partly used, and the code is resident too: only a leak exceeds this margin.
    assert!(resident <= case.budget / 10 * 11 + (16 << 20), "at most {resident} resident");
    assert!(memtables <= case.budget / 2, "{:?}", stats.memory);
    assert!(stats.recovery.peak_bytes <= case.budget / 2, "{:?}", stats.recovery);
    drop(stats);
    let (mut n, mut scanned) = (0, 0);
    for name in db.families() {
        n += db.family(&name).unwrap().iter().unwrap().count();
        scanned = scanned.max(HEAP.allocated() as u64);
    }
    assert!(scanned <= case.budget / 10 * 11 + SMALL, "{scanned} allocated during a scan");
    assert_eq!(n as u64, case.log / 120 / 50 * 50);
    db.close().unwrap();
}
