//! `import --from-tidesdb`, with a fake of TidesDB's library compiled by the tests
//! (`tests/foreign/fake_tidesdb.c`), and with the real library if the environment variable
//! TIDESDB_LIB is set to its path.
#![allow(clippy::unwrap_used)]

mod common;

use common::TestDir;
use perigee::{Db, KeyComparator, Options};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/foreign")
}

/// Compiles a file of `tests/foreign` with the C compiler.
fn compiled(file: &str, name: &str, args: &[&str]) -> PathBuf {
    let dir =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("foreign-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let out = dir.join(name);
    let cc = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let done = Command::new(cc)
        .arg("-O1")
        .arg(sources().join(file))
        .args(args)
        .arg("-o")
        .arg(&out)
        .status()
        .unwrap();
    assert!(done.success(), "cc {file}");
    out
}

fn fake_library() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT
        .get_or_init(|| compiled("fake_tidesdb.c", "libtidesdb.so.9.9.9", &["-shared", "-fPIC"]))
        .clone()
}

fn maker_program() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| compiled("make_tidesdb.c", "make", &["-ldl"])).clone()
}

/// Returns the fake library, and the real one if it is available.
fn libraries() -> Vec<PathBuf> {
    [Some(fake_library()), std::env::var_os("TIDESDB_LIB").map(PathBuf::from)]
        .into_iter()
        .flatten()
        .collect()
}

/// Creates a database with `commands` (see `make_tidesdb.c`).
fn make_source(w: &TestDir, library: &Path, dir: &str, unified: bool, commands: &str) {
    let mut child = Command::new(maker_program())
        .arg(library)
        .arg(w.path(dir))
        .arg(if unified { "1" } else { "0" })
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(commands.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "{commands}");
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// Returns every file below a directory.
fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(files(&path));
        } else {
            all.insert(path.clone(), std::fs::read(&path).unwrap());
        }
    }
    all
}

type ExpectedEntries = Vec<(Vec<u8>, Vec<u8>, Option<u64>)>;

/// Appends `put` commands for these keys. Returns the entries expected after the import.
fn puts(keys: &[Vec<u8>], commands: &mut String) -> ExpectedEntries {
    let until =
        |i: usize| if i.is_multiple_of(3) { None } else { Some(now() + 5000 + i as u64 * 7) };
    let wanted: ExpectedEntries = keys
        .iter()
        .enumerate()
        .map(|(i, key)| {
            (
                key.clone(),
                vec![b'a' + (i % 26) as u8; if i % 5 == 1 { 3000 } else { 1 + i % 9 }],
                until(i),
            )
        })
        .collect();
    for (k, v, until) in &wanted {
        let until = until.map_or("-1".into(), |u| u.to_string());
        commands.push_str(&format!("put {} {} {until}\n", hex(k), hex(v)));
    }
    wanted
}

/// Returns the entries of a column family of the target.
fn read(db: &Db, family: &str) -> ExpectedEntries {
    let mut cursor = db.family(family).unwrap().cursor().unwrap();
    let mut all = Vec::new();
    cursor.seek_to_first().unwrap();
    while cursor.is_valid() {
        let until = cursor.expires_at_ms().map(|ms| ms / 1000);
        all.push((cursor.key().to_vec(), cursor.value().unwrap().to_vec(), until));
        cursor.next().unwrap();
    }
    all
}

fn import(w: &TestDir, library: &Path, source: &str, to: &str, more: &[&str]) -> Vec<Value> {
    let lib = library.to_str().unwrap();
    w.run_json(
        &[&["import", "--from-tidesdb", source, "--tidesdb-lib", lib, "--to", to], more].concat(),
    )
}

#[test]
fn all_families_import_with_comparators_and_ttls() {
    let text = |n: usize| -> Vec<Vec<u8>> {
        (0..n).map(|i| format!("Key{:03}\0", i * 7 % n).into_bytes()).collect()
    };
    let numbers: Vec<Vec<u8>> = (0..40u64).map(|i| (i * i * 9973).to_le_bytes().to_vec()).collect();
    let families: [(&str, KeyComparator, Vec<Vec<u8>>); 6] = [
        ("memcmp", KeyComparator::Bytes, text(60)),
        ("uint64", KeyComparator::U64, numbers.clone()),
        (
            "int64",
            KeyComparator::I64,
            numbers.iter().map(|k| k.iter().map(|b| !b).collect()).collect(),
        ),
        ("reverse", KeyComparator::Reverse, text(30)),
        ("case_insensitive", KeyComparator::CaseInsensitive, text(30)),
        ("lexicographic", KeyComparator::Lexicographic, text(30)),
    ];
    for (library, leave) in libraries().iter().flat_map(|l| [(l, false), (l, true)]) {
        let w = TestDir::new();
        let (mut commands, mut wanted) = (String::new(), Vec::new());
        for (n, (name, comparator, keys)) in families.iter().enumerate() {
            let family = if n == 0 { "default".to_owned() } else { format!("f_{name}") };
            commands.push_str(&format!(
                "family {family} {name} {} {}\n",
                n % 2,
                [2, 0, 1, 2, 0, 2][n]
            ));
            let half = keys.len() / 2;
            let mut all = puts(&keys[..half], &mut commands);
            commands.push_str("flush\n");
            // Put some of them again, with other expiry times.
            all.drain(1..3);
            all.extend(puts(&[&keys[1..3], &keys[half..]].concat(), &mut commands));
            all.sort_by(|a, b| comparator.cmp(&a.0, &b.0));
            wanted.push((family, *comparator, all));
        }
        // The fake has no log: without a close it loses what was not flushed.
        if leave && *library != fake_library() {
            commands.push_str("leave\n");
        }
        make_source(&w, library, "source", false, &commands);
        let before = files(&w.path("source"));
        let report = import(&w, library, "source", "db", &[]);
        assert_eq!(files(&w.path("source")), before, "the source is unchanged");
        assert_eq!(w.file_names(""), ["db", "source"], "nothing else is left");
        assert_eq!(report[0]["imported"]["families"].as_array().unwrap().len(), 6);
        let db = Db::open(w.path("db"), Options::new().create_if_missing(false)).unwrap();
        for (family, comparator, all) in &wanted {
            assert_eq!(db.family(family).unwrap().options().comparator, *comparator, "{family}");
            assert_eq!(&read(&db, family), all, "{family} of {}", library.display());
        }
        assert_eq!(db.family("f_reverse").unwrap().options().value_threshold, 512);
        // The settings are stored as crates/capi does.
        let stored = db.family("tidesdb.settings").unwrap().get("f_uint64").unwrap().unwrap();
        let stored = String::from_utf8(stored.to_vec()).unwrap();
        for line in ["[family]", "value_threshold = 512", "comparator_name = uint64"] {
            assert!(stored.lines().any(|l| l == line), "{line} in {stored}");
        }
    }
}

#[test]
fn unified_memtable_is_imported() {
    let Some(library) = std::env::var_os("TIDESDB_LIB").map(PathBuf::from) else { return };
    let w = TestDir::new();
    let mut commands = "family a memcmp 0 2\n".to_owned();
    let keys: Vec<Vec<u8>> = (0..50).map(|i| format!("k{i:02}").into_bytes()).collect();
    let a = puts(&keys, &mut commands);
    commands.push_str("family b memcmp 0 2\n");
    let b = puts(&keys[..20], &mut commands);
    commands.push_str("leave\n");
    make_source(&w, &library, "source", true, &commands);
    import(&w, &library, "source", "db", &[]);
    let db = Db::open(w.path("db"), Options::new()).unwrap();
    assert_eq!((read(&db, "a"), read(&db, "b")), (a, b));
}

#[test]
fn ttls_are_ignored_on_request() {
    for library in libraries() {
        let w = TestDir::new();
        let mut commands = "family a memcmp 0 2\n".to_owned();
        let keys: Vec<Vec<u8>> = (0..9u8).map(|i| vec![b'a' + i]).collect();
        let wanted = puts(&keys, &mut commands);
        make_source(&w, &library, "source", false, &commands);
        let report = import(&w, &library, "source", "db", &["--ignore-ttl"]);
        assert_eq!(report[0]["imported"]["families"][0]["expiring"], 0);
        let db = Db::open(w.path("db"), Options::new()).unwrap();
        assert_eq!(
            read(&db, "a"),
            wanted.into_iter().map(|(k, v, _)| (k, v, None)).collect::<ExpectedEntries>()
        );
    }
}

#[test]
fn custom_comparator_needs_a_built_in_one_and_is_checked() {
    for library in libraries() {
        let w = TestDir::new();
        make_source(
            &w,
            &library,
            "source",
            false,
            "family f mine 0 2\nput 61 31 -1\nput 62 32 -1\nput 63 33 -1\nflush\n",
        );
        let lib = library.to_str().unwrap();
        let start = ["import", "--from-tidesdb", "source", "--tidesdb-lib", lib, "--to", "db"];
        w.run_failing(2, "the comparator \"mine\"", &start);
        w.run_failing(
            2,
            "cannot be imported in place",
            &[&start[..], &["--comparator", "f=memcmp", "--in-place"]].concat(),
        );
        w.run_failing(
            2,
            "which does not exist",
            &[&start[..], &["--comparator", "g=memcmp"]].concat(),
        );
        w.run_failing(2, "is not FAMILY=NAME", &[&start[..], &["--comparator", "f=mine"]].concat());
        assert_eq!(w.file_names(""), ["source"], "nothing was created");
        w.run_ok(&[&start[..], &["--comparator", "f=memcmp"]].concat());
        assert_eq!(w.run_ok(&["count", "db", "--family", "f"]).trim(), "3");
    }
}

/// Runs an import with a fault of the fake library. It must fail with this word in its message,
/// leave the source unchanged and create no database.
fn assert_refused(fault: &str, word: &str, commands: &str, more: &[&str]) {
    let w = TestDir::new();
    make_source(&w, &fake_library(), "source", false, commands);
    let before = files(&w.path("source"));
    let lib = fake_library();
    let args = [
        "import",
        "--from-tidesdb",
        "source",
        "--tidesdb-lib",
        lib.to_str().unwrap(),
        "--to",
        "db",
    ];
    let done = w.command().args(args).args(more).env("FAKE", fault).output().unwrap();
    let stderr = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(2), "{fault}: {stderr}");
    assert!(stderr.starts_with("perigee: ") && stderr.contains(word), "{fault}: {stderr}");
    assert_eq!(files(&w.path("source")), before, "{fault}");
    assert!(!w.path("db").exists() && !w.path("db.importing-source").exists(), "{fault}");
}

const USERS: &str = "family users memcmp 0 2\nput 2162 31 -1\nput 62 32 -1\nput 63 33 -1\nflush\n";

#[test]
fn library_with_unreadable_ttls_is_refused() {
    assert_refused("hidden", "were not found in its iterators", USERS, &[]);
    assert_refused("shifting", "were not found in its iterators", USERS, &[]);
    assert_refused("strange", "its expiry time is not where it is", USERS, &[]);
    assert_refused("garbled", "12345 is not a plausible expiry time", USERS, &[]);
}

#[test]
fn errors_during_import_are_reported() {
    assert_refused("broken", "input or output failed", USERS, &[]);
    assert_refused("forgetful", "differs from the second pass", USERS, &[]);
    assert_refused("locked", "locked by another process", USERS, &["--in-place"]);
    assert_refused("blind", "without its column family \"users\"", USERS, &[]);
    assert_refused("misshapen", "not laid out", USERS, &[]);
}

#[test]
fn invalid_import_is_refused_before_any_write() {
    let w = TestDir::new();
    let lib = fake_library();
    let lib = lib.to_str().unwrap();
    make_source(&w, &fake_library(), "source", false, USERS);
    w.run_ok(&["put", "ours", "a", "b"]);
    w.write("empty/readme", b"");
    w.write("taken/file", b"mine");
    w.write("text.so", b"no library");
    let other = compiled("../foreign/other.c", "libother.so", &["-shared", "-fPIC"]);
    let ours = compiled("../foreign/ours.c", "libtidesdb.so.9", &["-shared", "-fPIC"]);
    let ten = w.path("libtidesdb.so.10.0.1");
    std::fs::copy(fake_library(), &ten).unwrap();
    let from = |source: &str, lib: &str, to: &str, word: &str| {
        let before = files(&w.path(""));
        let error = w.run_failing(
            2,
            word,
            &["import", "--from-tidesdb", source, "--tidesdb-lib", lib, "--to", to],
        );
        assert!(error["hint"].is_string() || word == "open ", "{error}");
        assert_eq!(files(&w.path("")), before);
    };
    from("nowhere", lib, "db", "open ");
    from("text.so", lib, "db", "it is a file");
    from("empty", lib, "db", "no directory in it has a config.ini");
    from("ours", lib, "db", "is a Perigee or RocksDB database");
    from("source", "nowhere.so", "db", "open ");
    from("source", "text.so", "db", "cannot be loaded");
    from("source", other.to_str().unwrap(), "db", "it has no tidesdb_init, tidesdb_default_config");
    from("source", ours.to_str().unwrap(), "db", "is Perigee's own library");
    from("source", ten.to_str().unwrap(), "db", "of major version 10");
    from("source", lib, "source/new", "is inside source");
    from("source", lib, "source/users/new", "is inside source");
    from("source", lib, "taken", "already exists");
    from("source", lib, "ours", "already exists");
    w.write("db.importing/half", b"");
    from("source", lib, "db", "already exists");
}

#[test]
fn database_open_elsewhere_is_refused() {
    let w = TestDir::new();
    for library in libraries() {
        let mut child = Command::new(maker_program())
            .arg(&library)
            .arg(w.path("source"))
            .arg("0")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child
            .stdin
            .as_mut()
            .unwrap()
            .write_all(b"family f memcmp 0 2\nput 61 62 -1\nwait\n")
            .unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0; 5]).unwrap();
        let lib = library.to_str().unwrap();
        let args = ["import", "--from-tidesdb", "source", "--tidesdb-lib", lib, "--to", "db"];
        if library != fake_library() {
            w.run_failing(2, "another process has the TidesDB database", &args);
            w.run_failing(
                2,
                "another process has the TidesDB database",
                &[&args[..], &["--in-place"]].concat(),
            );
            assert_eq!(w.file_names(""), ["source"]);
        }
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
        w.run_ok(&args);
        std::fs::remove_dir_all(w.path("db")).unwrap();
        w.run_ok(&[&args[..], &["--in-place"]].concat());
        std::fs::remove_dir_all(w.path("db")).unwrap();
        std::fs::remove_dir_all(w.path("source")).unwrap();
    }
}

#[test]
fn killed_import_leaves_no_database() {
    let w = TestDir::new();
    make_source(&w, &fake_library(), "source", false, USERS);
    let lib = fake_library();
    let args = [
        "import",
        "--from-tidesdb",
        "source",
        "--tidesdb-lib",
        lib.to_str().unwrap(),
        "--to",
        "db",
    ];
    // The library kills the process in the middle of the iteration.
    let killed = w.command().args(args).env("FAKE", "deadly").output().unwrap();
    assert_eq!(killed.status.code(), None);
    assert_eq!(w.file_names(""), ["db.importing", "db.importing-source", "source"]);
    w.run_failing(2, "db.importing already exists", &args);
    std::fs::remove_dir_all(w.path("db.importing")).unwrap();
    w.run_failing(2, "db.importing-source already exists", &args);
    std::fs::remove_dir_all(w.path("db.importing-source")).unwrap();
    w.run_ok(&args);
    // With another directory for the copy.
    std::fs::create_dir(w.path("elsewhere")).unwrap();
    let more = ["--scratch", "elsewhere", "--to", "db2"];
    w.run_ok(&[&args[..5], &more].concat());
    assert_eq!(w.file_names("elsewhere").len(), 0);
    assert_eq!(w.run_ok(&["count", "db2", "--family", "users"]).trim(), "3");
}
