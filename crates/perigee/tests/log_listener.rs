//! The log listener: receives the lines of the file `LOG` from open to close, and cannot affect the
//! database.
#![allow(clippy::unwrap_used)]

use perigee::env::fs::memory::SimDisk;
use perigee::env::{DirOpenMode, Env};
use perigee::{Db, ErrorKind, FamilyOptions, LogLevel, Options};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Timeout for events that must happen. It only ends a test that hangs, and decides no result.
const LAST_RESORT: Duration = Duration::from_secs(600);

type ReceivedLines = Arc<Mutex<Vec<(LogLevel, String)>>>;

fn new_env() -> (Env, Arc<SimDisk>) {
    let disk = SimDisk::new(1);
    (Env { fs: disk.clone(), ..Env::real() }, disk)
}

fn open_with_listener(env: &Env, level: LogLevel) -> (Options, ReceivedLines) {
    let received = ReceivedLines::default();
    let list = Arc::clone(&received);
    let listen =
        move |level: LogLevel, line: &str| list.lock().unwrap().push((level, line.to_owned()));
    (Options::in_env(env.clone()).log_listener(level, listen), received)
}

fn run_workload(db: &Db) {
    for i in 0..200u32 {
        db.put(i.to_be_bytes(), [1; 100]).unwrap();
    }
    db.create_family("side\nways", FamilyOptions::new()).unwrap();
    db.admin().compact().unwrap();
    db.drop_family("side\nways").unwrap();
    drop(db.admin().pause_background_work().unwrap());
}

#[test]
fn listener_receives_every_log_line() {
    let (env, _) = new_env();
    let (options, received) = open_with_listener(&env, LogLevel::Info);
    let db = Db::open("/db", options).unwrap();
    assert!(
        received.lock().unwrap()[0].1.starts_with("open "),
        "received before the open returned"
    );
    run_workload(&db);
    db.close().unwrap();
    let dir = env.fs.open_dir("/db".as_ref(), DirOpenMode::Existing).unwrap();
    let file = dir.open("LOG").unwrap();
    let mut text = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(&mut text, 0).unwrap();
    let text = String::from_utf8(text).unwrap();
    let written: Vec<&str> = text.lines().map(|line| line.split_once("Z ").unwrap().1).collect();
    let received = received.lock().unwrap();
    let lines: Vec<&str> = received.iter().map(|(_, line)| line.as_str()).collect();
    assert_eq!(lines.len(), written.len(), "{lines:#?} {written:#?}");
    // Two threads that log at the same time may write their lines in one order and queue them in
    // the other.
    let (mut a, mut b) = (lines.clone(), written);
    a.sort_unstable();
    b.sort_unstable();
    assert_eq!(a, b);
    assert!(received.iter().all(|(level, _)| *level == LogLevel::Info));
    assert!(lines.last().unwrap().starts_with("close "));
}

#[test]
fn listener_filters_by_level_without_log_file() {
    let (env, disk) = new_env();
    let (options, received) = open_with_listener(&env, LogLevel::Debug);
    let db = Db::open("/db", options.log_file_bytes(0)).unwrap();
    run_workload(&db);
    db.put("k", "v").unwrap();
    drop(db);
    let begun = |word: &str| {
        received.lock().unwrap().iter().any(|(l, s)| *l == LogLevel::Debug && s.contains(word))
    };
    assert!(begun("flush of column family") && begun("compaction of column family"));
    assert!(
        received.lock().unwrap().last().unwrap().1.starts_with("close "),
        "dropping the last handle closes the database"
    );
    let dir = env.fs.open_dir("/db".as_ref(), DirOpenMode::Existing).unwrap();
    assert!(!dir.list().unwrap().contains(&"LOG".to_string()));

    let (options, warned) = open_with_listener(&env, LogLevel::Warn);
    let db = Db::open("/db", options.clone()).unwrap();
    db.admin().flush().unwrap();
    // A second open is refused, and an error is logged.
    assert_eq!(Db::open("/db", options.clone()).unwrap_err().kind(), ErrorKind::Locked);
    {
        let warned = warned.lock().unwrap();
        assert_eq!((warned.len(), warned[0].0), (1, LogLevel::Error));
        assert!(warned[0].1.starts_with("error      open: "), "{}", warned[0].1);
    }
    db.close().unwrap();
    assert_eq!(warned.lock().unwrap().len(), 1);

    // A read-only open calls the listener but does not write the file.
    let (options, received) = open_with_listener(&env, LogLevel::Info);
    let db = Db::open("/db", options.read_only(true)).unwrap();
    db.close().unwrap();
    let lines: Vec<String> =
        received.lock().unwrap().iter().map(|(_, line)| line.clone()).collect();
    assert!(
        lines.len() == 2 && lines[0].starts_with("open ") && lines[1].starts_with("close "),
        "{lines:?}"
    );
    drop(disk);
}

#[test]
fn listener_may_panic_and_use_the_database() {
    let (env, _) = new_env();
    let slot: Arc<Mutex<Option<Db>>> = Arc::default();
    let mine = Arc::clone(&slot);
    let (refused, refusals) = channel();
    let listen = move |_: LogLevel, line: &str| {
        let db = mine.lock().unwrap().clone();
        if let Some(db) = db {
            db.put("received", line).unwrap();
            assert!(db.admin().stats().last_sequence > 0);
            assert_eq!(db.close().unwrap_err().kind(), ErrorKind::InvalidArgument);
            let _ = refused.send(());
        }
        panic!("panics after every line");
    };
    let small = FamilyOptions::new().memtable_bytes(8 << 10);
    let options =
        Options::in_env(env.clone()).default_family(small).log_listener(LogLevel::Debug, listen);
    let db = Db::open("/db", options).unwrap();
    *slot.lock().unwrap() = Some(db.clone());
    run_workload(&db);
    db.admin().wait_idle().unwrap();
    // The listener has a thread of its own, which may be far behind. A flush, a family that was
    // created and dropped, and a pause are more than three lines.
    for call in 0..4 {
        assert!(
            refusals.recv_timeout(LAST_RESORT).is_ok(),
            "only {call} calls reached the refused close"
        );
    }
    assert!(db.get("received").unwrap().is_some());
    db.close().unwrap();
    slot.lock().unwrap().take();
    drop(db);
    assert_eq!(Db::open("/db", Options::in_env(env)).unwrap().iter().unwrap().count(), 201);
}

#[test]
fn listener_is_not_called_after_close() {
    let (env, _) = new_env();
    for _ in 0..20 {
        let (open, late) = (Arc::new(AtomicU64::new(1)), Arc::new(AtomicU64::new(0)));
        let (is_open, too_late) = (Arc::clone(&open), Arc::clone(&late));
        let listen = move |_: LogLevel, _: &str| {
            std::thread::yield_now();
            too_late.fetch_add(u64::from(is_open.load(SeqCst) == 0), SeqCst);
        };
        let small = FamilyOptions::new().memtable_bytes(1 << 10);
        let options = Options::in_env(env.clone())
            .default_family(small)
            .log_listener(LogLevel::Debug, listen);
        let db = Db::open("/db", options).unwrap();
        std::thread::scope(|s| {
            for _ in 0..2 {
                s.spawn(|| while db.put("k", [0; 300]).is_ok() {});
            }
            while db.admin().stats().last_sequence < 100 {
                std::thread::yield_now();
            }
            db.close().unwrap();
            open.store(0, SeqCst);
        });
        drop(db);
        assert_eq!(late.load(SeqCst), 0);
    }
}
