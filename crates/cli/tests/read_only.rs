//! Commands that read: beside a program that has the database open, on a database whose program crashed, where nothing may be
//! written; and that they change nothing, neither bytes nor names nor times.
//!
//! The story: they took the lock, wrote the manifest anew and deleted a log segment. So `perigee stats` failed beside a running
//! program, and the first look at a crashed database changed it.
#![allow(clippy::unwrap_used)]

mod common;

use common::World;
use perigee::{Db, FamilyOptions, Options};
use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Commands that read, as one line each; `{klog}` is the name of a table.
const READERS: [&str; 34] = [
    "get db key000",
    "get db key000 --json",
    "get db nothing",
    "get db a --family other",
    "scan db",
    "scan db --json --reverse",
    "scan db --prefix key00 --keys-only",
    "count db",
    "count db --family other --json",
    "stats db",
    "stats db --all",
    "stats db --json",
    "stats db --json --all",
    "levels db --files",
    "levels db --json",
    "metrics db",
    "metrics db --json",
    "explain db key000",
    "explain db key001 --again --json",
    "verify db",
    "verify db --json",
    "options db",
    "options db --toml",
    "options db --json",
    "families db",
    "families db --json",
    "export db",
    "export db --format csv",
    "dump db",
    "dump db MANIFEST",
    "dump db {klog} --json",
    "manifest db",
    "manifest db --json",
    "sst db/{klog}",
];

/// Commands that change something, or need the lock for what they make.
const WRITERS: [&str; 13] = [
    "put db k v",
    "delete db key000",
    "delete db key --prefix",
    "compact db",
    "purge db",
    "import db in --format tree",
    "load db in --format tree",
    "families db --create x",
    "families db --drop other",
    "families db --clear other",
    "options db --apply perigee.toml",
    "checkpoint db copy",
    "backup create db backup",
];

/// Name, bytes, modification time, inode and mode of everything in a directory, and of itself.
fn picture(dir: &Path) -> BTreeMap<String, (Vec<u8>, (i64, i64), u64, u32)> {
    let mut all = BTreeMap::new();
    let mut todo = vec![dir.to_owned()];
    while let Some(path) = todo.pop() {
        let meta = std::fs::symlink_metadata(&path).unwrap();
        let bytes = if meta.is_file() { std::fs::read(&path).unwrap() } else { Vec::new() };
        if meta.is_dir() {
            todo.extend(std::fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()));
        }
        let times = (meta.mtime(), meta.mtime_nsec());
        all.insert(path.to_string_lossy().into(), (bytes, times, meta.ino(), meta.mode()));
    }
    all
}

fn small() -> FamilyOptions {
    FamilyOptions::new().memtable_bytes(64 << 10).value_threshold(512)
}

/// A database with tables, value logs, entries that are only in the log, two families, and a log that is kept for readers.
fn open(path: &Path) -> Db {
    let options = Options::new().log_retention(1 << 20).default_family(small()).family("other", small());
    let db = Db::open(path, options).unwrap();
    for n in 0..300u32 {
        db.put(format!("key{n:03}"), vec![n as u8; (n % 700) as usize]).unwrap();
    }
    db.compact().unwrap();
    for n in 0..20u32 {
        db.put(format!("key{n:03}"), format!("new {n}")).unwrap();
    }
    db.delete_range("key200".as_bytes().to_vec().."key210".as_bytes().to_vec()).unwrap();
    db.family("other").unwrap().put("a", "b").unwrap();
    db.put_with_ttl("short", "life", std::time::Duration::from_secs(1 << 30)).unwrap();
    db.wait_idle().unwrap();
    db
}

/// Copies the files of a database that is open, as a crash of its program leaves them.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(|e| e.unwrap()) {
        if entry.file_type().unwrap().is_file() {
            std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

fn args_of(line: &str, w: &World) -> Vec<String> {
    let klog = w.names("db").into_iter().find(|n| n.ends_with(".klog")).unwrap();
    line.replace("{klog}", &klog).split(' ').map(str::to_owned).collect()
}

/// Runs a reading command, which must work.
fn read(w: &World, line: &str) -> String {
    let args = args_of(line, w);
    let run = w.run(&args.iter().map(String::as_str).collect::<Vec<_>>());
    let expected = i32::from(line.contains("nothing"));
    assert_eq!(run.code, expected, "{line}: {} {}", String::from_utf8_lossy(&run.stdout), run.stderr);
    String::from_utf8_lossy(&run.stdout).into()
}

#[test]
fn reading_commands_change_nothing() {
    let w = World::new();
    let db = open(&w.path("db"));
    copy(&w.path("db"), &w.path("crashed"));
    db.close().unwrap();
    copy(&w.path("db"), &w.path("closed"));
    // The crash came in the middle of an append: the last record is cut short.
    copy(&w.path("crashed"), &w.path("torn"));
    let mut logs = w.names("torn").into_iter().filter(|n| n.ends_with(".wal"));
    let written = |name: &String| {
        let bytes = std::fs::read(w.path("torn").join(name)).unwrap();
        bytes.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1)
    };
    let last = logs.rfind(|n| written(n) > 200).unwrap();
    let end = written(&last) - 5;
    let file = std::fs::OpenOptions::new().write(true).open(w.path("torn").join(&last)).unwrap();
    file.set_len(end as u64).unwrap();
    // What a manifest that was being replaced leaves, and a file that nothing names.
    w.write("torn/MANIFEST.tmp", b"half a manifest");
    w.write("torn/000999.klog", b"half a table");
    for state in ["closed", "crashed", "torn"] {
        std::fs::remove_dir_all(w.path("db")).unwrap();
        copy(&w.path(state), &w.path("db"));
        let before = picture(&w.path("db"));
        for line in READERS {
            read(&w, line);
            assert!(picture(&w.path("db")) == before, "{line} changed the {state} database");
        }
        let scan = read(&w, "scan db");
        assert!(scan.contains("key000\tnew 0\n") && !scan.contains("key205"), "{state}: {scan}");
        let last_put = scan.contains("short\tlife");
        assert_eq!(last_put, state != "torn", "{state}: {scan}");
        read(&w, "export db out");
        assert_eq!(std::fs::read(w.path("out/key001")).unwrap(), b"new 1");
        std::fs::remove_dir_all(w.path("out")).unwrap();
        assert!(picture(&w.path("db")) == before, "export to files changed the {state} database");
    }
}

#[test]
fn reading_commands_work_beside_a_program_that_writes() {
    let w = World::new();
    w.write("in/a", b"1");
    w.write("perigee.toml", b"");
    let db = Arc::new(open(&w.path("db")));
    let (stop, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let writer = {
        let (db, stop, rounds) = (Arc::clone(&db), Arc::clone(&stop), Arc::clone(&rounds));
        let large = FamilyOptions::new().memtable_bytes(256 << 20);
        let busy = db.create_family("busy", large).unwrap();
        // Into a memtable that is never full: the log changes all the time, the manifest does not.
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                let n = rounds.fetch_add(1, Ordering::Relaxed);
                busy.put(format!("{:05}", n % 10_000), n.to_le_bytes()).unwrap();
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        })
    };
    for line in READERS {
        let from = rounds.load(Ordering::Relaxed);
        while rounds.load(Ordering::Relaxed) == from {
            std::thread::yield_now();
        }
        read(&w, line);
    }
    stop.store(true, Ordering::Relaxed);
    writer.join().unwrap();
    db.put("last", "words").unwrap();
    assert_eq!(read(&w, "get db last"), "words");
    for line in WRITERS {
        let args = args_of(line, &w);
        let e = w.fails(2, "locked", &args.iter().map(String::as_str).collect::<Vec<_>>());
        let hint = e["hint"].as_str().unwrap();
        match line.split(' ').next().unwrap() {
            "checkpoint" => {
                assert!(hint.contains("db.checkpoint(") && hint.contains("tidesdb_checkpoint"), "{hint}")
            }
            "backup" => assert!(hint.contains("db.backup(") && hint.contains("tidesdb_backup"), "{hint}"),
            _ => assert!(hint.contains("fuser") && hint.contains("`scan`"), "{hint}"),
        }
    }
    assert!(!w.path("copy").exists() && !w.path("backup").exists(), "nothing was begun");
    db.close().unwrap();
    read(&w, "verify db");
}

#[test]
fn reading_commands_say_what_they_cannot_know() {
    let w = World::new();
    let db = open(&w.path("db"));
    let stats = &w.json(&["stats", "db"])[0];
    assert_eq!(stats["read_only"], true);
    let unknown: Vec<&str> =
        stats["unknown"].as_array().unwrap().iter().map(|v| v.as_str().unwrap()).collect();
    for name in ["counters", "snapshots", "latency", "families[].sealed"] {
        assert!(unknown.contains(&name), "{name}: {unknown:?}");
    }
    assert!(stats["counters"].is_null() && stats["families"][0]["sealed"].is_null(), "{stats}");
    // What lies in the files is known, and the same as the program says.
    let own = db.stats();
    assert_eq!(stats["last_sequence"], own.last_sequence);
    // The manifest lists the log segment that is created ahead; the program counts it once it is used.
    let segments = stats["wal"]["segments"].as_u64().unwrap();
    assert!(segments == own.wal.0 as u64 || segments == own.wal.0 as u64 + 1, "{stats}");
    assert_eq!(stats["tables"], own.tables);
    assert!(stats["disk_bytes"].as_u64().unwrap() >= own.disk_bytes, "{stats} {}", own.disk_bytes);
    assert!(stats["wal"]["bytes"].as_u64().unwrap() >= own.wal.1, "{stats}");
    let text = w.ok(&["stats", "db"]);
    assert!(text.contains("not known to a read-only open") && !text.contains("wal_syncs"), "{text}");
    let all = w.ok(&["stats", "db", "--all"]);
    assert!(all.contains("of this read-only open alone") && all.contains("wal_syncs"), "{all}");
    let metrics = w.ok(&["metrics", "db"]);
    assert!(
        metrics.contains("\nperigee_read_only_open 1\n") && metrics.contains("perigee_level_files{"),
        "{metrics}"
    );
    assert!(!metrics.contains("perigee_gets_total") && metrics.contains("perigee_gets, "), "{metrics}");
    db.close().unwrap();
}

/// A read-only open holds every file open: the usual limit of 1,024 is soft, and the tool raises it.
#[test]
fn a_database_of_many_files_opens_under_a_low_soft_limit() {
    let w = World::new();
    let tables = FamilyOptions::new().target_file_bytes(4 << 10).memtable_bytes(64 << 10).block_bytes(256);
    let tables = tables.compression(perigee::Compression::None);
    let db =
        Db::open(w.path("db"), Options::new().durability(perigee::Durability::None).default_family(tables))
            .unwrap();
    for n in 0..200u32 {
        db.put(format!("key{n:03}"), [n as u8; 2000]).unwrap();
    }
    db.compact().unwrap();
    let files = db.files().len();
    assert!(files > 60, "{files} files");
    db.close().unwrap();
    let script = "ulimit -Sn 40; exec \"$@\"";
    let run = Command::new("sh")
        .args(["-c", script, "sh", env!("CARGO_BIN_EXE_perigee"), "count", "db"])
        .current_dir(w.path(""))
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&run.stderr).into_owned();
    assert_eq!((String::from_utf8_lossy(&run.stdout).as_ref(), told.as_str()), ("200\n", ""));
}

#[test]
fn verify_reads_the_log_that_is_kept_for_readers() {
    let w = World::new();
    let db = open(&w.path("db"));
    db.close().unwrap();
    let edits = w.ok(&["manifest", "db"]);
    let kept = edits.split("log kept for readers: file ").nth(1).expect("a kept segment");
    let number: u64 = kept.split(',').next().unwrap().parse().unwrap();
    w.flip(&format!("db/{number:06}.wal"), 300);
    let run = w.run(&["verify", "db"]);
    let text = String::from_utf8_lossy(&run.stdout).into_owned();
    assert!(run.code == 3 && text.contains(&format!("{number:06}.wal")), "{text} {}", run.stderr);
}

/// Runs the tool as a user who may read the database and write nothing in it; why not, if that is not possible here.
fn as_another(w: &World, args: &[String]) -> Result<Output, String> {
    let tool = env!("CARGO_BIN_EXE_perigee");
    if std::fs::metadata("/proc/self").map_or(1, |m| m.uid()) != 0 {
        // The files are ours, but their modes forbid writing.
        return Command::new(tool).args(args).current_dir(w.path("")).output().map_err(|e| e.to_string());
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--", tool]).args(args);
    let output = command.current_dir(w.path("")).output().map_err(|e| format!("setpriv: {e}"))?;
    match output.status.code() {
        Some(126 | 127) | None => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        _ => Ok(output),
    }
}

#[test]
fn reading_commands_work_without_the_right_to_write() {
    let w = World::new();
    let db = open(&w.path("db"));
    copy(&w.path("db"), &w.path("crashed"));
    db.close().unwrap();
    std::fs::remove_dir_all(w.path("db")).unwrap();
    std::fs::rename(w.path("crashed"), w.path("db")).unwrap();
    for entry in std::fs::read_dir(w.path("db")).unwrap().map(|e| e.unwrap().path()) {
        std::fs::set_permissions(entry, std::fs::Permissions::from_mode(0o444)).unwrap();
    }
    std::fs::set_permissions(w.path("db"), std::fs::Permissions::from_mode(0o555)).unwrap();
    if let Err(why) = as_another(&w, &["--version".to_owned()]) {
        println!("skipped: the tool cannot be run as another user: {why}");
        return;
    }
    let before = picture(&w.path("db"));
    for line in READERS {
        let output = as_another(&w, &args_of(line, &w)).unwrap();
        let expected = i32::from(line.contains("nothing"));
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(expected), "{line}: {told}");
    }
    assert!(picture(&w.path("db")) == before);
    let output = as_another(&w, &args_of("put db k v", &w)).unwrap();
    assert_eq!(output.status.code(), Some(2), "the right to write is missing indeed");
    assert!(picture(&w.path("db")) == before);
    std::fs::set_permissions(w.path("db"), std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// A script for a mount namespace of its own: the database read-only, then one command.
const MOUNT: &str = "mount --bind db db && mount -o remount,bind,ro db || exit 99; exec \"$@\"";

#[test]
fn reading_commands_work_on_a_read_only_mount() {
    let w = World::new();
    let db = open(&w.path("db"));
    copy(&w.path("db"), &w.path("crashed"));
    db.close().unwrap();
    std::fs::remove_dir_all(w.path("db")).unwrap();
    std::fs::rename(w.path("crashed"), w.path("db")).unwrap();
    let mounted = |args: &[String]| {
        let mut command = Command::new("unshare");
        command.args(["-rm", "sh", "-c", MOUNT, "sh", env!("CARGO_BIN_EXE_perigee")]).args(args);
        command.current_dir(w.path("")).output()
    };
    match mounted(&["--version".to_owned()]) {
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            return println!("skipped: no read-only mount: {}", String::from_utf8_lossy(&output.stderr));
        }
        Err(e) => return println!("skipped: no read-only mount: {e}"),
    }
    for line in READERS {
        let output = mounted(&args_of(line, &w)).unwrap();
        let expected = i32::from(line.contains("nothing"));
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(expected), "{line}: {told}");
    }
    let output = mounted(&args_of("put db k v", &w)).unwrap();
    assert_eq!(output.status.code(), Some(2), "the mount is read-only indeed");
}
