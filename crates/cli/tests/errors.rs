//! Error messages and exit codes of the tool, and that a failing command changes nothing.
#![allow(clippy::unwrap_used)]

use crate::common::TestDir;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

/// Commands that need an existing database: none of them may create anything.
const EXISTING_DB_COMMANDS: [&[&str]; 17] = [
    &["get", "db", "k"],
    &["delete", "db", "k"],
    &["scan", "db"],
    &["count", "db"],
    &["families", "db"],
    &["stats", "db"],
    &["tables", "db"],
    &["levels", "db"],
    &["verify", "db"],
    &["compact", "db"],
    &["purge", "db"],
    &["metrics", "db"],
    &["export", "db"],
    &["explain", "db", "k"],
    &["options", "db"],
    &["checkpoint", "db", "copy"],
    &["backup", "create", "db", "backup"],
];

#[test]
fn reading_never_creates_a_database() {
    let w = TestDir::new();
    for args in EXISTING_DB_COMMANDS {
        let e = w.run_failing(2, "db does not exist", args);
        assert_eq!(e["kind"], "not found");
        assert!(!w.path("db").exists(), "{args:?} created something");
    }
    std::fs::create_dir(w.path("db")).unwrap();
    for args in EXISTING_DB_COMMANDS {
        w.run_failing(2, "holds no database", args);
        assert!(w.file_names("db").is_empty(), "{args:?} left {:?}", w.file_names("db"));
    }
    w.run_failing(2, "nowhere does not exist", &["dump", "nowhere"]);
}

#[test]
fn file_is_refused_as_database() {
    let w = TestDir::new();
    w.write("db", b"I am a file");
    for args in EXISTING_DB_COMMANDS {
        w.run_failing(2, "is a file", args);
    }
    w.run_failing(2, "is a file", &["put", "db", "k", "v"]);
    w.run_failing(2, "is a file", &["dump", "db"]);
    assert_eq!(std::fs::read(w.path("db")).unwrap(), b"I am a file");
}

#[test]
fn foreign_directory_is_unchanged() {
    let w = TestDir::new();
    w.write("home/letter.txt", b"dear moon");
    w.write("in/a", b"1");
    w.run_failing(2, "letter.txt", &["put", "home", "k", "v"]);
    w.run_failing(2, "letter.txt", &["import", "home", "in"]);
    assert_eq!(w.file_names("home"), ["letter.txt"]);
}

#[test]
fn other_engines_databases_are_refused_with_import_hint() {
    let w = TestDir::new();
    let engines: [(&[&str], &str); 3] = [
        (&["LOCK", "users/config.ini", "users/MANIFEST"], "perigee import --tidesdb-lib"),
        (&["CURRENT", "IDENTITY", "MANIFEST-000005"], "perigee import --from-rocksdb"),
        (&["data.mdb", "lock.mdb"], "perigee import --from-lmdb"),
    ];
    for (i, (files, hint)) in engines.into_iter().enumerate() {
        let db = format!("theirs{i}");
        for file in files {
            w.write(&format!("{db}/{file}"), b"theirs");
        }
        let before = w.file_names(&db);
        for words in EXISTING_DB_COMMANDS {
            let args: Vec<&str> =
                words.iter().map(|a| if *a == "db" { db.as_str() } else { a }).collect();
            let e = w.run_failing(2, hint, &args);
            assert_eq!(e["kind"], "not found");
        }
        assert_eq!(w.run_failing(2, hint, &["put", &db, "k", "v"])["kind"], "invalid argument");
        w.run_failing(2, hint, &["repair", &db, "repaired"]);
        assert_eq!(w.file_names(&db), before);
        assert!(!w.path("repaired").exists());
    }
}

#[test]
fn usage_error_is_reported_in_full() {
    let w = TestDir::new();
    let e = w.run_failing(2, "<KEY>", &["get"]);
    let message = e["message"].as_str().unwrap();
    assert!(
        message.contains("required arguments were not provided") && message.contains("<DB> <KEY>"),
        "{e}"
    );
    let e = w.run_failing(2, "--prefx", &["scan", "db", "--prefx", "a"]);
    let (message, hint) = (e["message"].as_str().unwrap(), e["hint"].as_str().unwrap());
    assert!(
        message.contains("unexpected argument '--prefx'") && hint.contains("'--prefix'"),
        "{e}"
    );
    let e = w.run_failing(2, "maybe", &["import", "db", "x", "--durability", "maybe"]);
    assert!(e["message"].as_str().unwrap().contains("interval 100 ms"), "{e}");
}

#[test]
fn usage_error_exits_with_code_2() {
    let w = TestDir::new();
    w.run_ok(&["put", "db", "k", "v"]);
    for args in [
        &["gett", "db", "k"][..],
        &["get", "db"],
        &["scan", "db", "--limit", "many"],
        &["get", "db", "k", "--hex", "--escaped"],
        &["import", "db"],
        &["import", "db", "x", "--durability", "maybe"],
        &[],
    ] {
        assert_eq!(w.run(args).code, 2, "{args:?}");
    }
    w.run_failing(2, "hexadecimal", &["get", "db", "--hex", "xyz"]);
    w.run_failing(2, "escape", &["get", "db", "--escaped", "a\\q"]);
    let e = w.run_failing(2, "unexpected argument", &["stats", "db", "--nonsense"]);
    assert_eq!(e["kind"], "usage");
}

#[test]
fn too_long_key_is_refused() {
    let w = TestDir::new();
    let key = "k".repeat(65_537);
    let e = w.run_failing(2, "too long", &["put", "db", &key, "v"]);
    assert_eq!(e["kind"], "invalid argument");
    let fits = "k".repeat(65_536);
    w.run_ok(&["put", "db", &fits, "v"]);
    assert_eq!(w.run_ok(&["get", "db", &fits]), "v");
    assert_eq!(w.run(&["get", "db", &key]).code & !1, 0, "a key that is too long is missing");
}

#[test]
fn second_process_gets_a_lock_error() {
    let w = TestDir::new();
    w.run_ok(&["put", "db", "k", "v"]);
    // An import that waits for stdin keeps the database locked.
    let mut holder = w
        .command()
        .args(["import", "db", "-", "--format", "tsv", "--batch-ops", "5000", "--progress-lines"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = holder.stdin.take().unwrap();
    // More input than the read buffer holds, so that the import commits before the end of input.
    let rows: String = (0..20_000).map(|i| format!("row{i:06}\tvalue\n")).collect();
    stdin.write_all(format!("id\tname\n{rows}").as_bytes()).unwrap();
    stdin.flush().unwrap();
    let mut stdout = BufReader::new(holder.stdout.take().unwrap()).lines();
    let line = stdout.next().unwrap().unwrap();
    assert!(line.contains("committed"), "{line}");
    // Drain the rest of its output in a thread, so that the import does not block.
    let drain = std::thread::spawn(move || stdout.map(|l| l.unwrap()).last().unwrap_or_default());

    let e = w.run_failing(2, "fuser", &["delete", "db", "k"]);
    assert_eq!(e["kind"], "locked");
    w.run_failing(2, "locked", &["put", "db", "k", "v"]);
    assert_eq!(w.run_ok(&["get", "db", "k"]), "v", "reading works while it is locked");
    let list = w.run_ok(&["dump", "db"]);
    assert!(list.contains("MANIFEST"), "{list}");
    let text = w.run_ok(&["dump", "db", "MANIFEST"]);
    assert!(text.contains("family added"), "{text}");

    drop(stdin);
    assert!(holder.wait().unwrap().success());
    assert!(drain.join().unwrap().contains("\"entries\":20000"));
    assert_eq!(w.run_ok(&["get", "db", "k"]), "v");
    assert_eq!(w.run_ok(&["count", "db"]), "20001\n");
}

#[test]
fn damage_exits_with_code_3_and_location() {
    let w = TestDir::new();
    for i in 0..200 {
        w.write(&format!("in/{i:03}"), format!("value {i}").repeat(50).as_bytes());
    }
    w.run_ok(&["import", "db", "in"]);
    w.run_ok(&["compact", "db"]);
    let klog = w.file_names("db").into_iter().find(|n| n.ends_with(".klog")).unwrap();
    w.flip_bit(&format!("db/{klog}"), 200);
    let before = std::fs::read(w.path("db").join(&klog)).unwrap();

    let run = w.run(&["verify", "db"]);
    assert_eq!(run.code, 3, "{}", run.stderr);
    let output = format!("{}{}", String::from_utf8_lossy(&run.stdout), run.stderr);
    assert!(output.contains(&klog) && output.contains("corruption"), "{output}");
    let run = w.run(&["verify", "db", "--json"]);
    assert_eq!(run.code, 3);
    let value: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
    assert_eq!(value["ok"], false);
    assert_eq!(value["errors"][0]["file"], klog.as_str());
    assert!(value["errors"][0]["offset"].is_u64());

    let e = w.run_failing(3, "perigee verify", &["export", "db", "out.d"]);
    assert_eq!(e["kind"], "corruption");
    assert_eq!(e["file"], klog.as_str());
    let run = w.run(&["dump", "db", &klog]);
    assert_eq!(run.code, 3);
    assert!(String::from_utf8_lossy(&run.stdout).contains("DAMAGED"));
    assert_eq!(std::fs::read(w.path("db").join(&klog)).unwrap(), before, "nothing was changed");
}

#[test]
fn damaged_manifest_stops_all_commands_but_dump() {
    let w = TestDir::new();
    w.run_ok(&["put", "db", "k", "v"]);
    w.flip_bit("db/MANIFEST", 100);
    let before = w.file_names("db");
    let e = w.run_failing(3, "MANIFEST", &["get", "db", "k"]);
    assert_eq!(e["kind"], "corruption");
    assert!(e["offset"].is_u64(), "{e}");
    w.run_failing(3, "dump", &["verify", "db"]);
    assert_eq!(w.file_names("db"), before);
    let run = w.run(&["dump", "db", "MANIFEST"]);
    assert!(run.code == 0 || run.code == 3, "{}", run.stderr);
}

#[test]
fn newer_format_is_refused() {
    let w = TestDir::new();
    w.run_ok(&["put", "db", "k", "v"]);
    let path = w.path("db/MANIFEST");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[8] = 9;
    let id = perigee_base::FileId(u64::from_le_bytes(bytes[32..40].try_into().unwrap()));
    let sum = perigee_base::checksum::checksum(id, 0, &bytes[..64]);
    bytes[64..72].copy_from_slice(&sum.to_le_bytes());
    std::fs::write(&path, bytes).unwrap();
    let e = w.run_failing(2, "version 9", &["get", "db", "k"]);
    assert_eq!(e["kind"], "format too new");
}
