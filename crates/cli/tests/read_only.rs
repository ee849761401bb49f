//! Commands that only read work while a program has the database open, after a crash, and without
//! write permission, and they change no file content, name or time.
//!
//! Regression tests: these commands once took the lock, rewrote the manifest and deleted a log
//! segment. So `perigee stats` failed while a program was running, and changed a crashed database.
#![allow(clippy::unwrap_used)]

use crate::common::TestDir;
use perigee::{Db, FamilyOptions, Options};
use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Commands that only read; `{klog}` is replaced by the name of a table.
const READING_COMMANDS: [&str; 35] = [
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
    "tables db",
    "stats db --all",
    "stats db --json",
    "stats db --json --all",
    "levels db --files",
    "levels db --json",
    "metrics db",
    "metrics db --json",
    "explain db key000",
    "explain db key001 --warm --json",
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

/// Commands that change something or need the lock for another reason.
const WRITING_COMMANDS: [&str; 13] = [
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

/// Returns name, contents, modification time, inode and mode of a directory and everything in it.
fn directory_state(dir: &Path) -> BTreeMap<String, (Vec<u8>, (i64, i64), u64, u32)> {
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

fn small_family_options() -> FamilyOptions {
    FamilyOptions::new().memtable_bytes(64 << 10).value_threshold(512)
}

/// Opens a new database with tables, value logs, entries that are only in the log, two column
/// families, and a log that is retained for readers.
fn open_sample(path: &Path) -> Db {
    let options = Options::new()
        .log_retention(1 << 20)
        .default_family(small_family_options())
        .family("other", small_family_options());
    let db = Db::open(path, options).unwrap();
    for n in 0..300u32 {
        db.put(format!("key{n:03}"), vec![n as u8; (n % 700) as usize]).unwrap();
    }
    db.admin().compact().unwrap();
    for n in 0..20u32 {
        db.put(format!("key{n:03}"), format!("new {n}")).unwrap();
    }
    db.default_family()
        .delete_range("key200".as_bytes().to_vec().."key210".as_bytes().to_vec())
        .unwrap();
    db.family("other").unwrap().put("a", "b").unwrap();
    db.default_family()
        .put_with_ttl("short", "life", std::time::Duration::from_secs(1 << 30))
        .unwrap();
    db.admin().wait_idle().unwrap();
    db
}

/// Copies the files of an open database, as they would be after a crash.
fn copy_files(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(|e| e.unwrap()) {
        if entry.file_type().unwrap().is_file() {
            std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

fn args_of(line: &str, w: &TestDir) -> Vec<String> {
    let klog = w.file_names("db").into_iter().find(|n| n.ends_with(".klog")).unwrap();
    line.replace("{klog}", &klog).split(' ').map(str::to_owned).collect()
}

/// Runs a reading command, which must succeed (or find no key, for the key `nothing`).
fn read(w: &TestDir, line: &str) -> String {
    let args = args_of(line, w);
    let run = w.run(&args.iter().map(String::as_str).collect::<Vec<_>>());
    let expected = i32::from(line.contains("nothing"));
    assert_eq!(
        run.code,
        expected,
        "{line}: {} {}",
        String::from_utf8_lossy(&run.stdout),
        run.stderr
    );
    String::from_utf8_lossy(&run.stdout).into()
}

#[test]
fn reading_commands_change_nothing() {
    let w = TestDir::new();
    let db = open_sample(&w.path("db"));
    copy_files(&w.path("db"), &w.path("crashed"));
    db.close().unwrap();
    copy_files(&w.path("db"), &w.path("closed"));
    // A crash in the middle of an append: the last record is truncated.
    copy_files(&w.path("crashed"), &w.path("torn"));
    let mut logs = w.file_names("torn").into_iter().filter(|n| n.ends_with(".wal"));
    let written = |name: &String| {
        let bytes = std::fs::read(w.path("torn").join(name)).unwrap();
        bytes.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1)
    };
    let last = logs.rfind(|n| written(n) > 200).unwrap();
    let end = written(&last) - 5;
    let file = std::fs::OpenOptions::new().write(true).open(w.path("torn").join(&last)).unwrap();
    file.set_len(end as u64).unwrap();
    // Remains of a manifest replacement, and a file that the manifest does not list.
    w.write("torn/MANIFEST.tmp", b"half a manifest");
    w.write("torn/000999.klog", b"half a table");
    for state in ["closed", "crashed", "torn"] {
        std::fs::remove_dir_all(w.path("db")).unwrap();
        copy_files(&w.path(state), &w.path("db"));
        let before = directory_state(&w.path("db"));
        for line in READING_COMMANDS {
            read(&w, line);
            assert!(
                directory_state(&w.path("db")) == before,
                "{line} changed the {state} database"
            );
        }
        let scan = read(&w, "scan db");
        assert!(scan.contains("key000\tnew 0\n") && !scan.contains("key205"), "{state}: {scan}");
        let last_put = scan.contains("short\tlife");
        assert_eq!(last_put, state != "torn", "{state}: {scan}");
        read(&w, "export db out");
        assert_eq!(std::fs::read(w.path("out/key001")).unwrap(), b"new 1");
        std::fs::remove_dir_all(w.path("out")).unwrap();
        assert!(
            directory_state(&w.path("db")) == before,
            "export to files changed the {state} database"
        );
    }
}

#[test]
fn reading_commands_work_beside_a_writer() {
    let w = TestDir::new();
    w.write("in/a", b"1");
    w.write("perigee.toml", b"");
    let db = Arc::new(open_sample(&w.path("db")));
    let (stop, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let writer = {
        let (db, stop, rounds) = (Arc::clone(&db), Arc::clone(&stop), Arc::clone(&rounds));
        let large = FamilyOptions::new().memtable_bytes(256 << 20);
        let busy = db.create_family("busy", large).unwrap();
        // Writes to a memtable that never fills up: the log changes constantly, the manifest does
        // not.
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                let n = rounds.fetch_add(1, Ordering::Relaxed);
                busy.put(format!("{:05}", n % 10_000), n.to_le_bytes()).unwrap();
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        })
    };
    for line in READING_COMMANDS {
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
    for line in WRITING_COMMANDS {
        let args = args_of(line, &w);
        let e = w.run_failing(2, "locked", &args.iter().map(String::as_str).collect::<Vec<_>>());
        let hint = e["hint"].as_str().unwrap();
        match line.split(' ').next().unwrap() {
            "checkpoint" => {
                assert!(
                    hint.contains("db.checkpoint(") && hint.contains("tidesdb_checkpoint"),
                    "{hint}"
                )
            }
            "backup" => {
                assert!(hint.contains("db.backup(") && hint.contains("tidesdb_backup"), "{hint}")
            }
            _ => assert!(hint.contains("fuser") && hint.contains("`scan`"), "{hint}"),
        }
    }
    assert!(!w.path("copy").exists() && !w.path("backup").exists(), "nothing was created");
    db.close().unwrap();
    read(&w, "verify db");
}

#[test]
fn reading_commands_list_unknown_fields() {
    let w = TestDir::new();
    let db = open_sample(&w.path("db"));
    let stats = &w.run_json(&["stats", "db"])[0];
    assert_eq!(stats["read_only"], true);
    let unknown: Vec<&str> =
        stats["unknown"].as_array().unwrap().iter().map(|v| v.as_str().unwrap()).collect();
    for name in ["counters", "snapshots", "latency", "families[].immutable_memtables"] {
        assert!(unknown.contains(&name), "{name}: {unknown:?}");
    }
    assert!(
        stats["counters"].is_null() && stats["families"][0]["immutable_memtables"].is_null(),
        "{stats}"
    );
    // Statistics of the files are known, and equal to those of the program.
    let own = db.admin().stats();
    assert_eq!(stats["last_sequence"], own.last_sequence);
    // The manifest lists the log segment that is created ahead; the program counts it once it is
    // used.
    let segments = stats["wal"]["segments"].as_u64().unwrap();
    assert!(
        segments == own.wal.segments as u64 || segments == own.wal.segments as u64 + 1,
        "{stats}"
    );
    assert_eq!(stats["tables"], own.tables);
    assert!(stats["disk_bytes"].as_u64().unwrap() >= own.disk_bytes, "{stats} {}", own.disk_bytes);
    assert!(stats["wal"]["bytes"].as_u64().unwrap() >= own.wal.bytes, "{stats}");
    let text = w.run_ok(&["stats", "db"]);
    assert!(
        text.contains("not known to a read-only open") && !text.contains("wal_syncs"),
        "{text}"
    );
    let all = w.run_ok(&["stats", "db", "--all"]);
    assert!(all.contains("of this read-only open alone") && all.contains("wal_syncs"), "{all}");
    let metrics = w.run_ok(&["metrics", "db"]);
    assert!(
        metrics.contains("\nperigee_read_only_open 1\n")
            && metrics.contains("perigee_level_files{"),
        "{metrics}"
    );
    assert!(
        !metrics.contains("perigee_gets_total") && metrics.contains("perigee_gets, "),
        "{metrics}"
    );
    db.close().unwrap();
}

/// A read-only open keeps every file open; the tool raises the usual soft limit of 1,024 files.
#[test]
fn many_files_open_under_a_low_soft_limit() {
    let w = TestDir::new();
    let tables =
        FamilyOptions::new().target_file_bytes(4 << 10).memtable_bytes(64 << 10).block_bytes(256);
    let tables = tables.compression(perigee::Compression::None);
    let db = Db::open(
        w.path("db"),
        Options::new().durability(perigee::Durability::None).default_family(tables),
    )
    .unwrap();
    for n in 0..200u32 {
        db.put(format!("key{n:03}"), [n as u8; 2000]).unwrap();
    }
    db.admin().compact().unwrap();
    let files = db.admin().files().len();
    assert!(files > 60, "{files} files");
    db.close().unwrap();
    let script = "ulimit -Sn 40; exec \"$@\"";
    let run = Command::new("sh")
        .args(["-c", script, "sh", env!("CARGO_BIN_EXE_perigee"), "count", "db"])
        .current_dir(w.path(""))
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&run.stderr).into_owned();
    assert_eq!((String::from_utf8_lossy(&run.stdout).as_ref(), stderr.as_str()), ("200\n", ""));
}

#[test]
fn verify_reads_the_retained_log() {
    let w = TestDir::new();
    let db = open_sample(&w.path("db"));
    db.close().unwrap();
    let edits = w.run_ok(&["manifest", "db"]);
    let retained = edits.split("log retained: file ").nth(1).expect("a retained segment");
    let number: u64 = retained.split(',').next().unwrap().parse().unwrap();
    w.flip_bit(&format!("db/{number:06}.wal"), 300);
    let run = w.run(&["verify", "db"]);
    let text = String::from_utf8_lossy(&run.stdout).into_owned();
    assert!(run.code == 3 && text.contains(&format!("{number:06}.wal")), "{text} {}", run.stderr);
}

/// Runs the tool as a user with read permission only. Returns an error if that is not possible on
/// this machine.
fn run_as_other_user(w: &TestDir, args: &[String]) -> Result<Output, String> {
    let tool = env!("CARGO_BIN_EXE_perigee");
    if std::fs::metadata("/proc/self").map_or(1, |m| m.uid()) != 0 {
        // Not root: the modes of the files prevent writing.
        return Command::new(tool)
            .args(args)
            .current_dir(w.path(""))
            .output()
            .map_err(|e| e.to_string());
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
fn reading_commands_work_without_write_permission() {
    let w = TestDir::new();
    let db = open_sample(&w.path("db"));
    copy_files(&w.path("db"), &w.path("crashed"));
    db.close().unwrap();
    std::fs::remove_dir_all(w.path("db")).unwrap();
    std::fs::rename(w.path("crashed"), w.path("db")).unwrap();
    for entry in std::fs::read_dir(w.path("db")).unwrap().map(|e| e.unwrap().path()) {
        std::fs::set_permissions(entry, std::fs::Permissions::from_mode(0o444)).unwrap();
    }
    std::fs::set_permissions(w.path("db"), std::fs::Permissions::from_mode(0o555)).unwrap();
    if let Err(why) = run_as_other_user(&w, &["--version".to_owned()]) {
        println!("skipped: the tool cannot be run as another user: {why}");
        return;
    }
    let before = directory_state(&w.path("db"));
    for line in READING_COMMANDS {
        let output = run_as_other_user(&w, &args_of(line, &w)).unwrap();
        let expected = i32::from(line.contains("nothing"));
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(expected), "{line}: {stderr}");
    }
    assert!(directory_state(&w.path("db")) == before);
    let output = run_as_other_user(&w, &args_of("put db k v", &w)).unwrap();
    assert_eq!(output.status.code(), Some(2), "the write permission is really missing");
    assert!(directory_state(&w.path("db")) == before);
    std::fs::set_permissions(w.path("db"), std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// Script run in a separate mount namespace: remounts the database read-only, then runs a command.
const READ_ONLY_MOUNT_SCRIPT: &str =
    "mount --bind db db && mount -o remount,bind,ro db || exit 99; exec \"$@\"";

#[test]
fn reading_commands_work_on_a_read_only_mount() {
    let w = TestDir::new();
    let db = open_sample(&w.path("db"));
    copy_files(&w.path("db"), &w.path("crashed"));
    db.close().unwrap();
    std::fs::remove_dir_all(w.path("db")).unwrap();
    std::fs::rename(w.path("crashed"), w.path("db")).unwrap();
    let mounted = |args: &[String]| {
        let mut command = Command::new("unshare");
        command
            .args(["-rm", "sh", "-c", READ_ONLY_MOUNT_SCRIPT, "sh", env!("CARGO_BIN_EXE_perigee")])
            .args(args);
        command.current_dir(w.path("")).output()
    };
    match mounted(&["--version".to_owned()]) {
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            return println!(
                "skipped: no read-only mount: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Err(e) => return println!("skipped: no read-only mount: {e}"),
    }
    for line in READING_COMMANDS {
        let output = mounted(&args_of(line, &w)).unwrap();
        let expected = i32::from(line.contains("nothing"));
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(expected), "{line}: {stderr}");
    }
    let output = mounted(&args_of("put db k v", &w)).unwrap();
    assert_eq!(output.status.code(), Some(2), "the mount is really read-only");
}
