//! Repair of a database with merges: whole with its manifest, and without it nothing is taken for
//! certain.
#![allow(clippy::unwrap_used)]

use perigee::env::Env;
use perigee::env::fs::memory::SimDisk;
use perigee::{Db, Durability, FamilyOptions, MergeRule, Options, Result};

#[test]
fn repair_keeps_operands_and_warns_without_manifest() {
    let disk = SimDisk::new(12);
    let append = || FamilyOptions::new().merge_operator(MergeRule::Append(",".into()));
    let env = Env { fs: disk.clone(), ..Env::real() };
    let options = || Options::in_env(env.clone()).durability(Durability::None);
    let key = |k: u64| k.to_be_bytes();
    let db = Db::open("/db", options().default_family(append())).unwrap();
    let mut snapshots = Vec::new();
    for round in 0..3 {
        for k in 0..5u64 {
            db.put(key(k), "base").unwrap();
            // Compactions merge no operand with a value that a snapshot needs: operands stay.
            snapshots.push(db.snapshot());
            db.default_family().merge(key(k), format!("{round}.1")).unwrap();
            db.admin().flush().unwrap();
            db.default_family().merge(key(k), format!("{round}.2")).unwrap();
        }
    }
    let want: Vec<_> =
        db.iter().unwrap().map(|e| e.unwrap()).map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
    db.backups().checkpoint("/copy").unwrap();
    drop(snapshots);
    db.close().unwrap();
    let report = perigee::repair_in(&env, "/copy", "/whole", |_, _| {}).unwrap();
    assert!(report.lost.is_empty() && report.warnings.is_empty(), "{report:?}");
    let whole = Db::open("/whole", options()).unwrap();
    let found: Vec<_> = whole.iter().unwrap().map(|e| e.unwrap()).collect();
    let found: Vec<_> = found.into_iter().map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
    assert_eq!(found, want);

    env.fs
        .open_dir("/copy".as_ref(), perigee::env::DirOpenMode::Existing)
        .unwrap()
        .remove("MANIFEST")
        .unwrap();
    let report = perigee::repair_in(&env, "/copy", "/guessed", |_, _| {}).unwrap();
    assert!(report.warnings.iter().any(|w| w.contains("operands of merges")), "{report:?}");
    // Without a manifest the operator is unknown: the caller specifies it again.
    let guessed = Db::open("/guessed", options().default_family(append())).unwrap();
    let found: Result<Vec<_>> = guessed.iter().unwrap().collect();
    assert_eq!(found.unwrap().len(), want.len());
    guessed.admin().compact().unwrap();
    assert!(guessed.admin().verify().unwrap().errors.is_empty());
}
