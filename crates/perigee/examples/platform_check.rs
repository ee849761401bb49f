//! Checks that the database works on this platform and file system: what differs between operating
//! systems, with real files and processes. Prints one line per check and fails at the first one
//! that does not hold. See `docs/platforms.md`.
//!
//! `cargo run --example platform_check [DIRECTORY]` (by default in the temporary directory)

use perigee::{Db, Durability, ErrorKind, Options, WriteBatch, WriteOptions};
use std::error::Error;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

type CheckResult = Result<(), Box<dyn Error>>;

fn main() -> CheckResult {
    let args: Vec<String> = std::env::args().collect();
    match args.get(1).map(String::as_str) {
        Some("--write-until-killed") => return write_until_killed(Path::new(&args[2])),
        Some("--open") => return open_in_second_process(Path::new(&args[2])),
        _ => {}
    }
    let parent = args.get(1).map_or_else(std::env::temp_dir, Into::into);
    let scratch = parent.join(format!("perigee-platform-check-{}", std::process::id()));
    std::fs::create_dir(&scratch)?;
    println!("directory: {}", scratch.display());
    let checks: [(&str, fn(&Path) -> CheckResult); 5] = [
        ("entries are found after a reopen", reopen),
        ("a second process is refused", second_process),
        ("synced writes survive the end of a process", killed_process),
        ("checkpoint, backup and restore", copies),
        ("files are replaced while they are read", compaction_under_readers),
    ];
    for (name, check) in checks {
        check(&scratch)?;
        println!("passed: {name}");
    }
    std::fs::remove_dir_all(&scratch)?;
    Ok(())
}

fn key(n: u32) -> String {
    format!("key{n:08}")
}

fn fill(db: &Db, entries: u32, value: &str) -> CheckResult {
    let family = db.default_family();
    for first in (0..entries).step_by(1000) {
        let mut batch = WriteBatch::new();
        for n in first..entries.min(first + 1000) {
            batch.put(&family, key(n).as_bytes(), format!("{value}{n}").as_bytes())?;
        }
        db.write(batch)?;
    }
    Ok(())
}

/// Fails unless the database contains exactly what [`fill`] wrote.
fn check_entries(db: &Db, entries: u32, value: &str) -> CheckResult {
    let mut found = 0;
    for entry in db.iter()? {
        let (k, v) = entry?;
        if *k != *key(found).as_bytes() || *v != *format!("{value}{found}").as_bytes() {
            return Err(format!("entry {found}: {k:?} = {v:?}").into());
        }
        found += 1;
    }
    if found == entries { Ok(()) } else { Err(format!("{found} entries, not {entries}").into()) }
}

fn reopen(scratch: &Path) -> CheckResult {
    let path = scratch.join("reopen");
    let db = Db::open(&path, Options::new())?;
    fill(&db, 50_000, "a")?;
    db.admin().flush()?;
    fill(&db, 50_000, "b")?;
    db.close()?;
    for _ in 0..2 {
        let db = Db::open(&path, Options::new())?;
        check_entries(&db, 50_000, "b")?;
        db.admin().verify()?;
        db.close()?;
    }
    Ok(())
}

/// Runs this program with other arguments.
fn run_self(mode: &str, path: &Path) -> Result<Child, Box<dyn Error>> {
    let mut command = Command::new(std::env::current_exe()?);
    Ok(command.arg(mode).arg(path).stdout(Stdio::piped()).spawn()?)
}

fn second_process(scratch: &Path) -> CheckResult {
    let path = scratch.join("locked");
    let db = Db::open(&path, Options::new())?;
    db.put(b"k", b"v")?;
    let outcome = |child: Child| {
        let output = child.wait_with_output()?;
        Ok::<_, Box<dyn Error>>(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let refused = outcome(run_self("--open", &path)?)?;
    if !refused.contains("Locked") || !refused.contains("another process") {
        return Err(format!("the second process printed {refused:?}").into());
    }
    db.close()?;
    match outcome(run_self("--open", &path)?)? {
        opened if opened == "opened" => Ok(()),
        other => Err(format!("after the close it printed {other:?}").into()),
    }
}

fn open_in_second_process(path: &Path) -> CheckResult {
    match Db::open(path, Options::new()) {
        Ok(_) => println!("opened"),
        Err(e) => println!("{:?}: {e}", e.kind()),
    }
    Ok(())
}

/// The writer prints a number after its write was synced; it is killed in the middle of that.
fn killed_process(scratch: &Path) -> CheckResult {
    let path = scratch.join("killed");
    for round in 0..3 {
        let mut child = run_self("--write-until-killed", &path)?;
        let mut lines = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
        let mut last = 0;
        for line in lines.by_ref().take(40) {
            last = line?.trim().parse::<u32>()?;
        }
        child.kill()?;
        // Numbers that were printed before the end of the process count, too.
        for line in lines {
            last = line?.trim().parse().unwrap_or(last);
        }
        child.wait()?;
        let db = Db::open(&path, Options::new())?;
        let missing = (0..=last).find(|n| !matches!(db.get(key(*n).as_bytes()), Ok(Some(_))));
        if let Some(n) = missing {
            return Err(format!("round {round}: {n} of {last} is missing").into());
        }
        db.close()?;
    }
    Ok(())
}

fn write_until_killed(path: &Path) -> CheckResult {
    let db = Db::open(path, Options::new())?;
    for n in 0.. {
        let mut batch = WriteBatch::new();
        batch.put(&db.default_family(), key(n).as_bytes(), [b'x'; 10_000])?;
        db.write_with(batch, WriteOptions::new().durability(Durability::Full))?;
        println!("{n}");
    }
    Ok(())
}

fn copies(scratch: &Path) -> CheckResult {
    let db = Db::open(scratch.join("original"), Options::new())?;
    fill(&db, 20_000, "c")?;
    db.admin().flush()?;
    let report = db.backups().checkpoint(scratch.join("checkpoint"))?;
    println!("checkpoint: {} files linked, {} copied", report.linked_files, report.copied_files);
    db.backups().create(scratch.join("backup"))?;
    fill(&db, 20_000, "d")?;
    db.backups().create(scratch.join("backup"))?;
    db.backups().dir(scratch.join("backup")).verify(None)?;
    db.backups().dir(scratch.join("backup")).restore(None, scratch.join("restored"))?;
    for (name, value) in [("checkpoint", "c"), ("restored", "d")] {
        let copy = Db::open(scratch.join(name), Options::new())?;
        check_entries(&copy, 20_000, value)?;
        copy.close()?;
    }
    match db.backups().checkpoint(scratch.join("restored")) {
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
        other => return Err(format!("a checkpoint over a database: {other:?}").into()),
    }
    Ok(db.close()?)
}

/// Compactions delete tables and value logs that iterators are reading.
fn compaction_under_readers(scratch: &Path) -> CheckResult {
    let path = scratch.join("readers");
    let db = Db::open(&path, Options::new())?;
    fill(&db, 30_000, "e")?;
    db.admin().flush()?;
    let mut before = db.iter()?;
    before.next().ok_or("no entry")??;
    for value in ["f", "g", "h"] {
        fill(&db, 30_000, value)?;
        db.admin().flush()?;
        db.admin().compact()?;
    }
    let rest = before.try_fold(1, |n, entry| entry.map(|(_, v)| n + u32::from(v[0] == b'e')))?;
    if rest != 30_000 {
        return Err(format!("the iterator read {rest} of its entries").into());
    }
    db.admin().purge()?;
    check_entries(&db, 30_000, "h")?;
    db.close()?;
    let db = Db::open(&path, Options::new())?;
    check_entries(&db, 30_000, "h")?;
    Ok(db.close()?)
}
