//! Checkpoints and backups through the public interface, on real files and on the simulated disk.
#![allow(clippy::unwrap_used)]

use perigee::backup::BackupDir;
use perigee::env::Env;
use perigee::env::fs::memory::SimDisk;
use perigee::{Db, ErrorKind, FamilyOptions, Options};
use std::path::Path;
use std::sync::Arc;

fn new_env() -> (Arc<SimDisk>, Env) {
    let disk = SimDisk::new(1);
    (disk.clone(), Env { fs: disk, ..Env::real() })
}

fn small() -> FamilyOptions {
    FamilyOptions::new()
        .memtable_bytes(4 << 10)
        .target_file_bytes(4 << 10)
        .block_bytes(256)
        .value_threshold(64)
}

fn open(env: &Env, path: &str) -> Db {
    Db::open(path, Options::in_env(env.clone()).default_family(small())).unwrap()
}

fn fill(db: &Db, from: u32, to: u32) {
    for n in from..to {
        db.put(format!("k{n:05}"), vec![n as u8; (n % 150) as usize]).unwrap();
    }
}

fn dump(db: &Db) -> Vec<(String, Vec<u8>, Vec<u8>)> {
    let mut all = Vec::new();
    for name in db.families() {
        for entry in db.family(&name).unwrap().iter().unwrap() {
            let (key, value) = entry.unwrap();
            all.push((name.clone(), key.to_vec(), value.to_vec()));
        }
    }
    all
}

#[test]
fn checkpoint_is_independent_database() {
    let (_, env) = new_env();
    let db = open(&env, "/db");
    db.create_family("b", small()).unwrap().put("x", "y").unwrap();
    fill(&db, 0, 400);
    let expected = dump(&db);
    let report = db.backups().checkpoint("/copy").unwrap();
    assert!(report.linked_files > 0 && report.copied_files == 0, "{report:?}");
    assert_eq!(report.sequence, db.admin().stats().last_sequence);
    fill(&db, 200, 600);
    db.admin().compact().unwrap();
    let copy = open(&env, "/copy");
    assert_eq!(dump(&copy), expected);
    assert!(copy.admin().verify().unwrap().errors.is_empty());
    copy.put("only", "here").unwrap();
    copy.admin().compact().unwrap();
    assert_eq!(db.get("only").unwrap(), None);
    assert!(db.admin().verify().unwrap().errors.is_empty());
    assert_eq!(db.backups().checkpoint("/copy").unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(db.backups().checkpoint("/no/such").unwrap_err().kind(), ErrorKind::NotFound);
    copy.close().unwrap();
    assert!(dump(&open(&env, "/copy")).iter().any(|e| e.1 == b"only"));
}

#[test]
fn checkpoint_copies_without_hard_links() {
    let (disk, env) = new_env();
    let db = open(&env, "/db");
    fill(&db, 0, 300);
    disk.set_links_supported(false);
    let report = db.backups().checkpoint("/copy").unwrap();
    assert!(report.linked_files == 0 && report.copied_files > 0, "{report:?}");
    assert_eq!(dump(&open(&env, "/copy")), dump(&db));
}

#[test]
fn checkpoint_links_and_backup_restores_real_files() {
    let root = std::env::temp_dir().join(format!("perigee-safety-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&root);
    std::fs::create_dir(&root).unwrap();
    let db = Db::open(root.join("db"), Options::new().default_family(small())).unwrap();
    fill(&db, 0, 300);
    let report = db.backups().checkpoint(root.join("copy")).unwrap();
    assert!(report.linked_files > 0, "{report:?}");
    let copy = Db::open(root.join("copy"), Options::new()).unwrap();
    assert_eq!(dump(&copy), dump(&db));
    db.backups().create(root.join("backup")).unwrap();
    fill(&db, 300, 400);
    db.backups().create(root.join("backup")).unwrap();
    let backups = BackupDir::open(root.join("backup"));
    backups.restore(Some(1), root.join("first")).unwrap();
    backups.restore(None, root.join("second")).unwrap();
    assert_eq!(dump(&Db::open(root.join("first"), Options::new()).unwrap()), dump(&copy));
    assert_eq!(dump(&Db::open(root.join("second"), Options::new()).unwrap()), dump(&db));
    assert!(
        db.backups().create(root.join("db")).is_err(),
        "a database directory is not a backup directory"
    );
    // Windows removes no directory in which a file is open.
    drop((db, copy));
    std::fs::remove_dir_all(&root).unwrap();
}

#[test]
fn backup_generations_share_files_and_prune_keeps_them() {
    let (_, env) = new_env();
    let db = open(&env, "/db");
    let mut expected = Vec::new();
    let mut reports = Vec::new();
    for i in 0..4 {
        fill(&db, i * 200, i * 200 + 300);
        db.admin().flush().unwrap();
        db.admin().wait_idle().unwrap();
        expected.push(dump(&db));
        reports.push(
            db.backups()
                .create_with(
                    "/backup",
                    perigee::backup::BackupOptions::new().reread(true),
                    |_, _| {},
                )
                .unwrap(),
        );
    }
    let again = db.backups().create("/backup").unwrap();
    assert!(
        again.new_files == 0 && again.shared_files > 0,
        "an unchanged database copies nothing: {again:?}"
    );
    let backups = BackupDir::open_in(env.clone(), "/backup");
    assert_eq!(
        backups.list().unwrap().iter().map(|g| g.generation).collect::<Vec<_>>(),
        [1, 2, 3, 4, 5]
    );
    assert!(backups.verify(None).unwrap().errors.is_empty());
    assert_eq!(backups.prune(0).unwrap_err().kind(), ErrorKind::InvalidArgument);
    let pruned = backups.prune(3).unwrap();
    assert_eq!((pruned.removed, pruned.kept), (vec![1, 2], vec![3, 4, 5]));
    assert!(backups.verify(None).unwrap().errors.is_empty());
    for (generation, expected) in [(3, &expected[2]), (4, &expected[3]), (5, &expected[3])] {
        let target = format!("/restored{generation}");
        backups.restore(Some(generation), &target).unwrap();
        assert_eq!(&dump(&open(&env, &target)), expected);
    }
    assert_eq!(backups.restore(Some(1), "/gone").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(backups.restore(Some(3), "/db").unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(backups.prune(3).unwrap().files, 0, "a second prune removes nothing");
}

#[test]
fn backup_verify_names_damaged_file() {
    let (disk, env) = new_env();
    let db = open(&env, "/db");
    fill(&db, 0, 300);
    db.admin().flush().unwrap();
    db.backups().create("/backup").unwrap();
    fill(&db, 300, 500);
    db.backups().create("/backup").unwrap();
    let backups = BackupDir::open_in(env.clone(), "/backup");
    for path in
        disk.paths().into_iter().filter(|p| p.starts_with("/backup") && !p.ends_with("LOCK"))
    {
        let good = disk.read_raw(&path);
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let mut bad = good.clone();
        bad[good.len() / 2] ^= 4;
        disk.write_raw(&path, bad);
        let errors = backups.verify(None).unwrap().errors;
        assert_eq!(errors.len(), 1, "{name}");
        assert_eq!(errors[0].error.file(), Some(&name[..]));
        let broken = errors[0].generations[0];
        let e = backups.restore(Some(broken), "/restored").unwrap_err();
        assert!(e.is_corruption() && e.file() == Some(&name[..]), "{e}");
        let there = env.fs.open_dir(Path::new("/restored"), perigee::env::DirOpenMode::Existing);
        assert_eq!(
            there.unwrap_err().kind(),
            ErrorKind::NotFound,
            "a failed restore leaves no directory"
        );
        if name.ends_with(".generation") {
            assert!(backups.list().unwrap_err().is_corruption());
            assert!(
                backups.prune(1).unwrap_err().is_corruption(),
                "the files that the damaged backup needs are unknown"
            );
            assert_eq!(disk.read_raw(&path).len(), good.len());
        }
        disk.write_raw(&path, good);
    }
    assert!(backups.verify(None).unwrap().errors.is_empty());
}

#[test]
fn damaged_source_fails_backup() {
    let (disk, env) = new_env();
    let db = open(&env, "/db");
    fill(&db, 0, 300);
    db.admin().flush().unwrap();
    db.admin().wait_idle().unwrap();
    db.backups().create("/backup").unwrap();
    fill(&db, 300, 600);
    db.admin().flush().unwrap();
    db.admin().wait_idle().unwrap();
    let newest = disk
        .paths()
        .into_iter()
        .rfind(|p| p.starts_with("/db") && p.extension().is_some_and(|e| e == "klog"));
    let newest = newest.unwrap();
    let mut bytes = disk.read_raw(&newest);
    bytes[100] ^= 1;
    disk.write_raw(&newest, bytes);
    let e = db.backups().create("/backup").unwrap_err();
    assert!(e.is_corruption() && e.file().is_some_and(|f| newest.ends_with(f)), "{e}");
    let backups = BackupDir::open_in(env, "/backup");
    assert_eq!(backups.list().unwrap().len(), 1);
    assert!(backups.verify(None).unwrap().errors.is_empty());
}

#[test]
fn concurrent_attempts_at_one_target_are_refused() {
    let (_, env) = new_env();
    let db = open(&env, "/db");
    fill(&db, 0, 300);
    db.admin().flush().unwrap();
    db.backups().create("/backup").unwrap();
    let backups = BackupDir::open_in(env.clone(), "/backup");
    let mut inner = None;
    backups
        .restore_with(Some(1), "/target", |_, _| {
            inner.get_or_insert_with(|| backups.restore(Some(1), "/target").unwrap_err().kind());
        })
        .unwrap();
    assert_eq!(
        inner,
        Some(ErrorKind::Locked),
        "the second attempt is refused while the first is running"
    );
    assert_eq!(dump(&open(&env, "/target")), dump(&db));
    assert_eq!(backups.restore(Some(1), "/target").unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(dump(&open(&env, "/target")), dump(&db), "a refused restore changes nothing");
}

#[test]
fn checkpoint_target_paths_are_checked() {
    let root = std::env::temp_dir().join(format!("perigee-paths-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&root);
    std::fs::create_dir_all(root.join("full/inside")).unwrap();
    std::fs::create_dir(root.join("empty")).unwrap();
    let db = Db::open(root.join("db"), Options::new()).unwrap();
    fill(&db, 0, 50);
    for slash in ["empty/", "new/", "plain"] {
        db.backups().checkpoint(root.join(slash)).unwrap();
        assert_eq!(
            dump(&Db::open(root.join(slash), Options::new()).unwrap()),
            dump(&db),
            "{slash}"
        );
    }
    assert_eq!(
        db.backups().checkpoint(root.join("full/")).unwrap_err().kind(),
        ErrorKind::AlreadyExists
    );
    assert!(root.join("full/inside").is_dir());
    assert_eq!(db.backups().checkpoint("..").unwrap_err().kind(), ErrorKind::InvalidArgument);
    let left: Vec<_> = std::fs::read_dir(&root).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().contains("incomplete")), "{left:?}");
    assert_eq!(
        db.backups().create(root.join("db/trash")).unwrap_err().kind(),
        ErrorKind::InvalidArgument
    );
    drop(db);
    std::fs::remove_dir_all(&root).unwrap();
}

#[test]
fn one_backup_directory_holds_two_databases() {
    let (_, env) = new_env();
    let (a, b) = (open(&env, "/a"), open(&env, "/b"));
    fill(&a, 0, 10);
    fill(&b, 10, 20);
    for db in [&a, &a, &b] {
        db.backups().create("/backup").unwrap();
    }
    let backups = BackupDir::open_in(env.clone(), "/backup");
    assert_eq!(
        backups.restore(None, "/x").unwrap_err().kind(),
        ErrorKind::InvalidArgument,
        "ambiguous: the directory holds backups of two databases"
    );
    let pruned = backups.prune(1).unwrap();
    assert_eq!(
        (pruned.removed, pruned.kept),
        (vec![1], vec![2, 3]),
        "one backup of each database is kept"
    );
    backups.restore(Some(2), "/x").unwrap();
    assert_eq!(dump(&open(&env, "/x")), dump(&a));
}
