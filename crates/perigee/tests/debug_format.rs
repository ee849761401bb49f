//! `{:?}` of every public type is short, however much data the database contains.
//!
//! Regression test: a service logged an iterator with `{:?}` and wrote 27 MB into its log, because
//! the derived output descended into the memtable. A scan of the sources ensures that the list of
//! handles is complete.
#![allow(clippy::unwrap_used)]

#[path = "common/sources.rs"]
mod sources;

use perigee::backup::BackupDir;
use perigee::changes::FeedEvent;
use perigee::env::Env;
use perigee::env::fs::memory::SimDisk;
use perigee::load::TableWriter;
use perigee::{
    CompactionFilter, Db, FamilyOptions, FilterDecision, FilterEntry, Isolation, LockMode,
    MergeRule, Options, Result, TxnOptions, WriteBatch,
};
use sources::rust_files;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::Path;
use std::sync::{Arc, Mutex};

const LIMIT: usize = 500;
const LONG: usize = 60_000;

#[derive(Default)]
struct DebugLengths(BTreeMap<&'static str, usize>);

impl DebugLengths {
    fn check(&mut self, name: &'static str, it: &dyn Debug) {
        for text in [format!("{it:?}"), format!("{it:#?}")] {
            assert!(text.len() < LIMIT, "{name} takes {} bytes: {}", text.len(), &text[..LIMIT]);
        }
        let longest = self.0.entry(name).or_default();
        *longest = (*longest).max(format!("{it:?}").len());
    }
}

struct KeepAll(Arc<Mutex<usize>>);

impl CompactionFilter for KeepAll {
    fn name(&self) -> &str {
        "keep all"
    }
    fn decide(&self, entry: &FilterEntry<'_>) -> Result<FilterDecision> {
        let mut longest = self.0.lock().unwrap();
        *longest = (*longest).max(format!("{entry:?}").len());
        Ok(FilterDecision::Keep)
    }
}

fn open(env: &Env, longest: &Arc<Mutex<usize>>) -> Db {
    let family =
        FamilyOptions::new().merge_operator(MergeRule::Append(",".into())).value_threshold(100_000);
    let options = Options::in_env(env.clone()).default_family(family);
    Db::open("/db", options.compaction_filter("default", Arc::new(KeepAll(Arc::clone(longest)))))
        .unwrap()
}

fn fill(db: &Db) {
    for n in 0..10 {
        let mut batch = WriteBatch::new();
        for i in 0..1000 {
            batch.put(&db.default_family(), format!("{n}{i:04}"), [7; 100]).unwrap();
        }
        db.write(batch).unwrap();
    }
    db.put(vec![b'k'; LONG], vec![0; LONG]).unwrap();
}

fn check_handles(db: &Db, shown: &mut DebugLengths) {
    let family = db.default_family();
    shown.check("Db", db);
    shown.check("Family", &family);
    shown.check("Snapshot", &db.snapshot().unwrap());
    let mut writer = family.writer(vec![b'k'; LONG]).unwrap();
    writer.append(&vec![b'v'; LONG]).unwrap();
    shown.check("ValueWriter", &writer);
    let key = family.first().unwrap().unwrap().0;
    shown.check("ValueReader", &family.reader(&key[..]).unwrap().unwrap());
    let mut cursor = db.default_family().cursor().unwrap();
    shown.check("Cursor", &cursor);
    cursor.seek_to_last().unwrap();
    assert_eq!(cursor.key().len(), LONG);
    shown.check("Cursor", &cursor);
    shown.check("Slice", &cursor.value().unwrap());
    let mut iter = db.range(vec![b'0'; LONG]..).unwrap();
    iter.next_back().unwrap().unwrap();
    iter.next().unwrap().unwrap();
    shown.check("Iter", &iter);
    shown.check(
        "ValueWithTtl",
        &db.default_family().get_with_ttl(vec![b'k'; LONG]).unwrap().unwrap(),
    );
    let mut batch = WriteBatch::new();
    batch.put(&family, vec![b'k'; LONG], vec![0; LONG]).unwrap();
    shown.check("WriteBatch", &batch);
    shown.check("PauseGuard", &db.admin().pause_background_work().unwrap());
    let mut load = family.bulk_load().unwrap();
    load.put(vec![b'l'; LONG], vec![0; LONG]).unwrap();
    shown.check("BulkLoad", &load);
    shown.check("LoadProgress", &load.progress());
    shown.check("LoadReport", &load.finish().unwrap());
    shown.check("RangeEstimate", &db.default_family().estimate_range::<&str>(..).unwrap());
    shown.check("RangeCost", &db.default_family().range_cost::<&str>(..).unwrap());
    shown.check("Cardinality", &db.default_family().cardinality().unwrap());
    shown.check("ClockStatus", &db.admin().clock());
    let report =
        db.backups().checkpoint(format!("/checkpoint {}", db.history().latest_seq())).unwrap();
    shown.check("CheckpointReport", &report);
}

fn check_transactions(db: &Db, shown: &mut DebugLengths) {
    let family = db.default_family();
    let txn = db.begin(TxnOptions::new().isolation(Isolation::Serializable)).unwrap();
    for i in 0..1000u32 {
        txn.put(&family, format!("t{i}"), [1; 100]).unwrap();
    }
    txn.get_for_update(&family, vec![b'k'; LONG], LockMode::Exclusive).unwrap();
    let mut cursor = txn.cursor(&family).unwrap();
    cursor.seek_to_first().unwrap();
    shown.check("Cursor", &cursor);
    let mut iter = txn.iter(&family).unwrap();
    iter.next().unwrap().unwrap();
    shown.check("Iter", &iter);
    drop((cursor, iter));
    shown.check("Txn", &txn);
    shown.check("TxnFamily", &txn.family(&family));
    let snapshot = db.snapshot().unwrap();
    shown.check("TxnFamily at a snapshot", &txn.family_at(&family, &snapshot));
    shown.check("SnapshotFamily", &snapshot.family(&family));
    shown.check("Keys", &family.keys().unwrap());
    shown.check("Values", &family.values().unwrap());
    let changed = db.default_family().compare_and_swap("none", Some(b"x"), Some(b"y")).unwrap();
    shown.check("CompareAndSwapError", &changed.unwrap_err());
    shown.check("TxnHandle", &txn.handle());
    txn.prepare(vec![0xff; 255]).unwrap();
    shown.check("PreparedTxnInfo", &db.two_phase().prepared().unwrap()[0]);
    db.two_phase().rollback(vec![0xff; 255]).unwrap();
}

fn check_change_feed(db: &Db, shown: &mut DebugLengths) {
    let mut batch = WriteBatch::new();
    let key = || vec![b'f'; LONG];
    batch.put(&db.default_family(), key(), key()).unwrap();
    batch.put_until(&db.default_family(), key(), key(), u64::MAX - 1).unwrap();
    batch.merge(&db.default_family(), key(), key()).unwrap();
    batch.delete(&db.default_family(), key()).unwrap();
    batch.delete_range(&db.default_family(), key()..vec![b'g'; LONG]).unwrap();
    let position = db.history().latest_seq();
    let events = Arc::new(Mutex::new(Vec::new()));
    let event_log = Arc::clone(&events);
    db.default_family().on_commit(move |commit| {
        let mut events = event_log.lock().unwrap();
        events.push(("CommitEvent", format!("{commit:?}").len()));
        events.extend(commit.operations().map(|op| ("CommitOperation", format!("{op:?}").len())));
    });
    db.write(batch).unwrap();
    db.default_family().clear_commit_hook();
    let events = events.lock().unwrap();
    assert_eq!(events.len(), 6);
    for (name, bytes) in events.iter() {
        assert!(*bytes < LIMIT, "{name} takes {bytes} bytes");
        shown.0.insert(name, *bytes);
    }
    let mut changes = db.history().changes(position).unwrap();
    let change = changes.next_change().unwrap().unwrap();
    shown.check("ChangeFeed", &changes);
    shown.check("FeedEvent", &change);
    let FeedEvent::Commit(commit) = &change else { panic!("{change:?}") };
    shown.check("CommittedBatch", commit);
    for op in commit.operations() {
        shown.check("ChangeOperation", &op);
        shown.check("ChangeKind", &op.kind);
    }
}

fn check_tables(env: &Env, shown: &mut DebugLengths) {
    let mut table = TableWriter::create_in(env.clone(), "/table", FamilyOptions::new()).unwrap();
    for i in 0..10_000 {
        table.put(format!("{i:05}"), [7; 100]).unwrap();
    }
    table.put(vec![b'k'; LONG], "").unwrap();
    shown.check("TableWriter", &table);
    shown.check("TableSummary", &table.finish().unwrap());
    shown.check("BackupDir", &BackupDir::open_in(env.clone(), "/backups"));
}

/// Plain data: reports and options, whose output grows with their own contents, not with the
/// database.
const PLAIN_DATA_TYPES: &[&str] = &[
    "BackupFile",
    "BackupInfo",
    "BackupOptions",
    "BackupReport",
    "BackupVerifyReport",
    "RestoreReport",
    "PruneReport",
    "FamilyChange",
    "FamilyChangeKind",
    "Explanation",
    "ExplainStep",
    "ExplainedBlock",
    "NamedSnapshot",
    "HistoryPolicy",
    "StoredFamily",
    "OptionValue",
    "Durability",
    "Compression",
    "Options",
    "FamilyOptions",
    "WriteOptions",
    "RepairReport",
    "DataLoss",
    "Stats",
    "TransactionStats",
    "BackgroundStats",
    "CacheStats",
    "IoStats",
    "LatencyStats",
    "StallStats",
    "JobStats",
    "FamilyStats",
    "MemtableStats",
    "LevelStats",
    "FileStats",
    "RecoveryReport",
    "VerifyReport",
    "Isolation",
    "TxnOptions",
];

#[test]
fn debug_output_of_public_types_is_short() {
    let env = Env { fs: SimDisk::new(1), ..Env::real() };
    let longest = Arc::new(Mutex::new(0));
    let db = open(&env, &longest);
    let mut shown = DebugLengths::default();
    fill(&db);
    // Data in the memtable and in tables.
    check_handles(&db, &mut shown);
    check_transactions(&db, &mut shown);
    check_change_feed(&db, &mut shown);
    db.admin().compact().unwrap();
    check_handles(&db, &mut shown);
    check_transactions(&db, &mut shown);
    check_change_feed(&db, &mut shown);
    check_tables(&env, &mut shown);
    let filtered = *longest.lock().unwrap();
    assert!((1..LIMIT).contains(&filtered), "FilterEntry takes {filtered} bytes");
    db.close().unwrap();
    shown.check("Db", &db);
    shown.check("Admin", &db.admin());
    shown.check("Backups", &db.backups());
    shown.check("History", &db.history());
    shown.check("TwoPhaseCommit", &db.two_phase());
    shown.check("DirectoryLock", &perigee::DirectoryLock::default());

    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let files = rust_files(&src);
    assert!(files.len() > 30, "only {} files were read", files.len());
    for file in files {
        let text = std::fs::read_to_string(file).unwrap();
        for line in text.lines() {
            let Some(rest) =
                line.strip_prefix("pub struct ").or_else(|| line.strip_prefix("pub enum "))
            else {
                continue;
            };
            let name = rest.split(|c: char| !c.is_alphanumeric()).next().unwrap();
            assert!(
                shown.0.contains_key(name) || PLAIN_DATA_TYPES.contains(&name),
                "add the public type {name} to this test"
            );
        }
    }
}
