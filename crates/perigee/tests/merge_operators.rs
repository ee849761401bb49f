//! Merge operators checked against a model, on every path that handles operands.
#![allow(clippy::unwrap_used)]

use crate::common::Rng;
use crate::manual_clock::ManualClock;
use perigee::changes::CommitOperation;
use perigee::env::Env;
use perigee::env::fs::memory::SimDisk;
use perigee::{
    Db, Durability, Error, ErrorKind, Family, FamilyOptions, Isolation, KeyComparator,
    MergeOperator, MergeRule, Options, Result, Snapshot, TxnOptions, WriteBatch,
};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn append() -> MergeRule {
    MergeRule::Append(",".into())
}

fn small(rule: MergeRule) -> FamilyOptions {
    FamilyOptions::new()
        .merge_operator(rule)
        .memtable_bytes(8 << 10)
        .block_bytes(128)
        .target_file_bytes(4 << 10)
        .level1_bytes(8 << 10)
        .level_ratio(3)
}

fn open_with(disk: &Arc<SimDisk>, family: FamilyOptions) -> Db {
    let options = Options::in_env(Env { fs: disk.clone(), ..Env::real() });
    Db::open("/db", options.durability(Durability::None).default_family(family)).unwrap()
}

fn counter(db: &Db, name: &str) -> u64 {
    db.admin().stats().counter(name).unwrap()
}

fn text(db: &Db, key: &str) -> String {
    String::from_utf8(db.get(key).unwrap().unwrap_or_else(|| b"-".to_vec())).unwrap()
}

/// Expected operands or value of each key.
type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn merge_into(model: &mut Model, key: &[u8], operand: &[u8]) {
    match model.get_mut(key) {
        Some(value) => {
            value.push(b',');
            value.extend_from_slice(operand);
        }
        None => drop(model.insert(key.to_vec(), operand.to_vec())),
    }
}

/// Compares every read path with the model.
fn compare(family: &Family, snapshot: Option<&Snapshot>, model: &Model, keys: u64) {
    let entry = |e: Result<(perigee::Slice, perigee::Slice)>| {
        e.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap()
    };
    let iter = || match snapshot {
        Some(s) => s.iter(family).unwrap(),
        None => family.iter().unwrap(),
    };
    let mut want: Vec<_> = model.clone().into_iter().collect();
    let comparator = family.options().comparator;
    want.sort_by(|a, b| comparator.cmp(&a.0, &b.0));
    assert_eq!(iter().map(entry).collect::<Vec<_>>(), want);
    want.reverse();
    assert_eq!(iter().rev().map(entry).collect::<Vec<_>>(), want);
    let all: Vec<Vec<u8>> = (0..keys).map(key).collect();
    let many = match snapshot {
        Some(s) => s.multi_get(family, &all),
        None => family.multi_get(&all),
    };
    for (k, got) in all.iter().zip(many) {
        assert_eq!(got.unwrap().as_deref(), model.get(k).map(|v| &v[..]));
        let (one, there) = match snapshot {
            Some(s) => (s.get(family, k).unwrap(), s.contains(family, k).unwrap()),
            None => (family.get(k).unwrap(), family.contains(k).unwrap()),
        };
        assert_eq!(one.as_ref(), model.get(k));
        assert_eq!(there, one.is_some());
    }
    let mut cursor = match snapshot {
        Some(s) => s.cursor(family).unwrap(),
        None => family.cursor().unwrap(),
    };
    for k in &all {
        cursor.seek(k).unwrap();
        let at = want.iter().rev().find(|(other, _)| comparator.cmp(other, k).is_ge());
        assert_eq!(cursor.is_valid().then(|| cursor.key()), at.map(|(k, _)| &k[..]));
        let shown = cursor.is_valid().then(|| cursor.value().unwrap().to_vec());
        assert_eq!(shown.as_ref(), at.map(|(_, v)| v));
        cursor.prev().unwrap();
        cursor.seek_for_prev(k).unwrap();
        let at = want.iter().find(|(other, _)| comparator.cmp(other, k).is_le());
        let shown = cursor.is_valid().then(|| cursor.value().unwrap().to_vec());
        assert_eq!(shown.as_ref(), at.map(|(_, v)| v));
    }
}

fn key(n: u64) -> Vec<u8> {
    n.to_le_bytes()[..].to_vec()
}

/// Random merges, puts, deletes, range deletes, batches, snapshots, flushes, compactions and
/// reopens, checked against a map.
fn random_history(seed: u64, comparator: KeyComparator, threshold: usize) {
    let mut rng = Rng(seed);
    let disk = SimDisk::new(seed);
    let options = || small(append()).comparator(comparator).value_threshold(threshold);
    let mut db = open_with(&disk, options());
    let (keys, mut model) = (12, Model::new());
    let mut snapshots: Vec<(Snapshot, Model)> = Vec::new();
    for step in 0..900u64 {
        let family = db.default_family();
        let (k, operand) = (key(rng.below(keys)), format!("{step}").repeat(rng.below(4) as usize));
        match rng.below(40) {
            0..20 => {
                family.merge(&k, &operand).unwrap();
                merge_into(&mut model, &k, operand.as_bytes());
            }
            20..24 => {
                family.put(&k, &operand).unwrap();
                model.insert(k, operand.into_bytes());
            }
            24..26 => {
                if rng.below(2) == 0 { family.delete(&k) } else { family.single_delete(&k) }
                    .unwrap();
                model.remove(&k);
            }
            26 => {
                let (mut k, mut end) = (k, key(rng.below(keys)));
                if comparator.cmp(&k, &end).is_gt() {
                    std::mem::swap(&mut k, &mut end);
                }
                family.delete_range(&k[..]..&end[..]).unwrap();
                model.retain(|key, _| {
                    comparator.cmp(key, &k).is_lt() || comparator.cmp(key, &end).is_ge()
                });
            }
            27..30 => {
                let mut batch = WriteBatch::new();
                for n in 0..rng.below(5) {
                    let (k, operand) = (key(rng.below(keys)), format!("{step}.{n}"));
                    if n == 2 {
                        batch.delete(&family, &k).unwrap();
                        model.remove(&k);
                    } else {
                        batch.merge(&family, &k, &operand).unwrap();
                        merge_into(&mut model, &k, operand.as_bytes());
                    }
                }
                db.write(batch).unwrap();
            }
            30..32 => family.flush().unwrap(),
            32 => family.compact().unwrap(),
            33 => snapshots.push((db.snapshot().unwrap(), model.clone())),
            34 if !snapshots.is_empty() => {
                drop(snapshots.swap_remove(rng.below(snapshots.len() as u64) as usize))
            }
            35 if step % 8 == 0 => {
                snapshots.clear();
                db.close().unwrap();
                db = open_with(&disk, options());
            }
            36 => compare(&family, None, &model, keys),
            37 => {
                if let Some((snapshot, then)) = snapshots.last() {
                    compare(&family, Some(snapshot), then, keys);
                }
            }
            _ => {}
        }
    }
    let family = db.default_family();
    for (snapshot, then) in &snapshots {
        compare(&family, Some(snapshot), then, keys);
    }
    snapshots.truncate(1);
    db.admin().compact().unwrap();
    for (snapshot, then) in &snapshots {
        compare(&family, Some(snapshot), then, keys);
    }
    compare(&family, None, &model, keys);
    snapshots.clear();
    db.admin().compact().unwrap();
    compare(&family, None, &model, keys);
    assert!(db.admin().verify().unwrap().errors.is_empty());
    // No newer level and no snapshot is left, so that only values remain.
    let entries: u64 = db.admin().files().iter().map(|f| f.entries).sum();
    assert_eq!(entries as usize, model.len());
}

#[test]
fn reads_return_merged_values() {
    let short_first = |a: &[u8], b: &[u8]| a.len().cmp(&b.len()).then_with(|| a.cmp(b));
    let _ = KeyComparator::register("merges short first", short_first);
    use KeyComparator as K;
    let comparators = [K::Bytes, K::Reverse, K::U64, K::I64, K::CaseInsensitive, K::Lexicographic];
    // Keys have eight bytes; the last two comparators treat some as equal, so they are tested
    // below.
    for (i, comparator) in comparators[..4].iter().enumerate() {
        for threshold in [4096, 6] {
            random_history(1 + i as u64 * 7 + threshold as u64, *comparator, threshold);
        }
    }
    for comparator in &comparators[4..] {
        let disk = SimDisk::new(3);
        let db = open_with(&disk, small(append()).comparator(*comparator));
        for (n, k) in ["Tide", "tide\0a", "tide", "TIDE\0b"].iter().enumerate() {
            db.default_family().merge(k, n.to_string()).unwrap();
        }
        let want =
            if *comparator == KeyComparator::CaseInsensitive { ["0,2", "1"] } else { ["1,2", "3"] };
        for _ in 0..2 {
            let (one, other) = if *comparator == KeyComparator::CaseInsensitive {
                (text(&db, "tIDe"), text(&db, "TIDE\0A"))
            } else {
                (text(&db, "tide"), text(&db, "TIDE"))
            };
            assert_eq!([one, other], want);
            db.admin().flush().unwrap();
        }
        db.admin().compact().unwrap();
        let values = db.iter().unwrap().map(|e| String::from_utf8(e.unwrap().1.to_vec()).unwrap());
        let mut values: Vec<_> = values.collect();
        values.sort();
        assert!(values.contains(&want[0].to_string()), "{values:?}");
    }
}

#[test]
fn flush_merges_operands_not_split_by_snapshot() {
    let disk = SimDisk::new(4);
    let db = open_with(&disk, FamilyOptions::new().merge_operator(MergeRule::Counter));
    let one = 1i64.to_le_bytes();
    (0..1000).for_each(|_| db.default_family().merge("hot", one).unwrap());
    let snapshot = db.snapshot().unwrap();
    (0..500).for_each(|_| db.default_family().merge("hot", one).unwrap());
    db.admin().flush().unwrap();
    let entries = |db: &Db| db.admin().files().iter().map(|f| f.entries).sum::<u64>();
    assert_eq!(entries(&db), 2, "one entry per snapshot stripe");
    db.admin().wait_idle().unwrap();
    assert_eq!(counter(&db, "operands_merged"), 1498);
    let read = |v: Option<Vec<u8>>| i64::from_le_bytes(v.unwrap().try_into().unwrap());
    let family = db.default_family();
    let hot = || (read(db.get("hot").unwrap()), read(snapshot.get(&family, "hot").unwrap()));
    assert_eq!(hot(), (1500, 1000));
    db.admin().compact().unwrap();
    assert_eq!(hot(), (1500, 1000));
    drop(snapshot);
    db.default_family().merge("other", one).unwrap();
    db.admin().compact().unwrap();
    assert_eq!((entries(&db), read(db.get("hot").unwrap())), (2, 1500));
}

/// Concatenates operands, and fails or panics if an operand requests it.
struct FailingOperator {
    fails: AtomicBool,
}

impl MergeOperator for FailingOperator {
    fn name(&self) -> &str {
        "flaky"
    }
    fn merge(&self, _: &[u8], left: Option<&[u8]>, right: &[u8], out: &mut Vec<u8>) -> Result<()> {
        if self.fails.load(SeqCst) && right.contains(&b'!') {
            return Err(Error::new(ErrorKind::InvalidArgument, "failed as planned"));
        }
        assert!(!self.fails.load(SeqCst) || !right.contains(&b'?'), "as planned");
        out.extend_from_slice(left.unwrap_or_default());
        out.extend_from_slice(right);
        Ok(())
    }
    fn check(&self, operand: &[u8]) -> Result<()> {
        if operand.is_empty() { Err(Error::invalid("empty operand")) } else { Ok(()) }
    }
}

#[test]
fn failing_operator_loses_no_operands() {
    let disk = SimDisk::new(5);
    let failing = Arc::new(FailingOperator { fails: AtomicBool::new(false) });
    let options = |disk: &Arc<SimDisk>| {
        let family = small(MergeRule::User("flaky".into())).value_threshold(3);
        Options::in_env(Env { fs: disk.clone(), ..Env::real() })
            .durability(Durability::None)
            .default_family(family)
    };
    let db = Db::open("/db", options(&disk).register_merge_operator(failing.clone())).unwrap();
    failing.fails.store(true, SeqCst);
    for k in ["a", "b"] {
        db.put(k, "base ").unwrap();
        let bad = if k == "a" { "2!" } else { "2?" };
        for operand in ["1", bad, "3", "four"] {
            db.default_family().merge(k, operand).unwrap();
            if operand == "3" {
                db.admin().flush().unwrap();
            }
        }
    }
    db.default_family().merge("c", "fine").unwrap();
    let failed = |e: Error, key: &str| {
        let message = e.to_string();
        assert!(message.contains("\"user:flaky\" failed") && message.contains(key), "{message}");
    };
    for _ in 0..3 {
        failed(db.get("a").unwrap_err(), "key \"a\"");
        failed(db.get_pinned("b").unwrap_err(), "it panicked");
        assert!(db.contains("a").unwrap(), "`contains` does not merge");
        assert_eq!(text(&db, "c"), "fine");
        assert!(
            db.default_family().multi_get(["a", "c"])[0].is_err()
                && db.default_family().multi_get(["a", "c"])[1].is_ok()
        );
        let mut iter = db.iter().unwrap();
        failed(iter.next().unwrap().unwrap_err(), "key \"a\"");
        db.admin().compact().unwrap();
    }
    assert!(counter(&db, "operands_unmerged") > 0);
    assert!(db.admin().verify().unwrap().errors.is_empty());
    assert!(
        db.default_family().merge("a", "").unwrap_err().to_string().contains("empty operand"),
        "invalid operands are refused at write"
    );
    failing.fails.store(false, SeqCst);
    assert_eq!((text(&db, "a"), text(&db, "b")), ("base 12!3four".into(), "base 12?3four".into()));
    db.admin().compact().unwrap();
    assert_eq!((text(&db, "a"), text(&db, "b")), ("base 12!3four".into(), "base 12?3four".into()));
    failing.fails.store(true, SeqCst);
    db.put("a", "anew").unwrap();
    assert_eq!(
        (text(&db, "a"), text(&db, "b")),
        ("anew".into(), "base 12?3four".into()),
        "compaction merged the operands into one value"
    );

    db.default_family().merge("c", "!").unwrap();
    db.close().unwrap();
    let refused = Db::open("/db", options(&disk)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
    assert!(refused.to_string().contains("\"flaky\" is not registered"), "{refused}");
    let reader = Db::open("/db", options(&disk).read_only(true));
    assert!(reader.is_err(), "the options name the operator");
    let mut plain = options(&disk).read_only(true);
    plain.default_family = None;
    let reader = Db::open("/db", plain).unwrap();
    assert_eq!(text(&reader, "a"), "anew", "values are readable without the operator");
    assert!(reader.get("c").unwrap_err().to_string().contains("\"flaky\" is not registered"));
}

#[test]
fn family_operator_can_be_set_but_not_changed() {
    let disk = SimDisk::new(6);
    let db = open_with(&disk, FamilyOptions::new());
    db.put("k", "0").unwrap();
    let e = db.default_family().merge("k", "1").unwrap_err();
    assert!(
        e.kind() == ErrorKind::InvalidArgument && e.to_string().contains("no merge operator"),
        "{e}"
    );
    assert!(WriteBatch::new().merge(&db.default_family(), "k", "1").is_err());
    assert!(db.begin(TxnOptions::new()).unwrap().merge(&db.default_family(), "k", "1").is_err());
    let family = db.default_family();
    family.set_options(family.options().merge_operator(append())).unwrap();
    db.default_family().merge("k", "1").unwrap();
    assert_eq!(text(&db, "k"), "0,1");
    let refuse = |e: Error| assert!(e.to_string().contains("cannot be changed or removed"), "{e}");
    refuse(family.set_options(family.options().merge_operator(MergeRule::Counter)).unwrap_err());
    refuse(family.set_options(FamilyOptions::new()).unwrap_err());
    let unknown = MergeRule::User("not registered".into());
    assert!(db.create_family("x", FamilyOptions::new().merge_operator(unknown)).is_err());
    let clone = db.admin().clone_family("default", "copy").unwrap();
    clone.merge("k", "2").unwrap();
    assert_eq!(clone.get("k").unwrap().unwrap(), b"0,1,2");
    db.close().unwrap();
    let options = || Options::in_env(Env { fs: disk.clone(), ..Env::real() });
    let other = FamilyOptions::new().merge_operator(MergeRule::Counter);
    refuse(Db::open("/db", options().default_family(other)).unwrap_err());
    let db = Db::open("/db", options()).unwrap();
    assert_eq!(
        db.default_family().options().merge_operator,
        Some(append()),
        "the operator is stored with the column family"
    );
    db.default_family().merge("k", "3").unwrap();
    assert_eq!(text(&db, "k"), "0,1,3");
    assert_eq!(db.family("copy").unwrap().get("k").unwrap().unwrap(), b"0,1,2");
}

#[test]
fn transaction_reads_own_operands_over_snapshot() {
    let disk = SimDisk::new(7);
    let db = open_with(&disk, small(append()));
    let family = db.default_family();
    db.put("k", "base").unwrap();
    db.default_family().merge("k", "1").unwrap();
    use Isolation as I;
    for level in [I::ReadCommitted, I::RepeatableRead, I::Snapshot, I::Serializable] {
        let txn = db.begin(TxnOptions::new().isolation(level)).unwrap();
        let read =
            |k: &str| txn.get(&family, k).unwrap().map(|v| String::from_utf8(v.to_vec()).unwrap());
        txn.merge(&family, "k", "own").unwrap();
        assert_eq!(read("k").unwrap(), "base,1,own");
        txn.savepoint("s").unwrap();
        // Enough operands that the transaction reads them through a memtable.
        for n in 0..40 {
            txn.merge(&family, "new", n.to_string()).unwrap();
        }
        txn.merge(&family, "k", "more").unwrap();
        assert_eq!(read("k").unwrap(), "base,1,own,more");
        assert!(
            read("new").unwrap().starts_with("0,1,2,") && read("new").unwrap().ends_with(",39")
        );
        let seen = |back: bool| -> Vec<String> {
            let iter = txn.iter(&family).unwrap();
            let value = |e: Result<(perigee::Slice, perigee::Slice)>| {
                String::from_utf8(e.unwrap().1.to_vec()).unwrap()
            };
            if back { iter.rev().map(value).collect() } else { iter.map(value).collect() }
        };
        assert_eq!(seen(false)[0], "base,1,own,more");
        assert_eq!(seen(true).last().unwrap(), "base,1,own,more");
        txn.rollback_to("s").unwrap();
        assert_eq!((read("k").unwrap(), read("new")), ("base,1,own".into(), None));
        assert_eq!(seen(false), ["base,1,own"]);
        txn.delete(&family, "k").unwrap();
        txn.merge(&family, "k", "alone").unwrap();
        assert_eq!(read("k").unwrap(), "alone");
        txn.delete_range(&family, "a".."z").unwrap();
        txn.merge(&family, "k", "again").unwrap();
        assert_eq!((read("k").unwrap(), seen(true)), ("again".into(), vec!["again".to_string()]));
        txn.rollback_to("s").unwrap();

        let other = db.begin(TxnOptions::new()).unwrap();
        other.merge(&family, "k", "other").unwrap();
        other.rollback();
        assert_eq!(read("k").unwrap(), "base,1,own", "no other transaction committed");
        db.default_family().merge("k", "x").unwrap();
        let conflict = txn.commit();
        if level == Isolation::ReadCommitted {
            conflict.unwrap();
            assert_eq!(text(&db, "k"), "base,1,x,own");
        } else {
            let e = conflict.unwrap_err();
            assert_eq!(
                (e.kind(), e.key()),
                (ErrorKind::Conflict, Some(&b"k"[..])),
                "{level:?}: a merge is a write"
            );
        }
        db.put("k", "base").unwrap();
        db.default_family().merge("k", "1").unwrap();
        db.admin().flush().unwrap();
    }
    // Reading below a transaction's own operand counts as a read.
    let txn = db.begin(TxnOptions::new().isolation(Isolation::Serializable)).unwrap();
    txn.merge(&family, "sum", "1").unwrap();
    assert_eq!(txn.get(&family, "sum").unwrap().as_deref(), Some(&b"1"[..]));
    txn.commit().unwrap();
    assert_eq!(text(&db, "sum"), "1");
}

#[test]
fn operands_survive_expiry_of_base_value() {
    for compacted in [false, true] {
        let disk = SimDisk::new(8);
        let hand = Arc::new(ManualClock(AtomicU64::new(1_000_000)));
        let env = Env { fs: disk.clone(), clock: hand.clone(), ..Env::real() };
        let options =
            Options::in_env(env).durability(Durability::None).default_family(small(append()));
        let db = Db::open("/db", options).unwrap();
        let family = db.default_family();
        family.put_with_ttl("k", "short", Duration::from_secs(60)).unwrap();
        db.default_family().merge("k", "1").unwrap();
        let snapshot = db.snapshot().unwrap();
        db.default_family().merge("k", "2").unwrap();
        let work = || {
            if compacted {
                db.admin().compact().unwrap();
            }
        };
        work();
        assert_eq!(text(&db, "k"), "short,1,2");
        assert_eq!(
            family.get_with_ttl("k").unwrap().unwrap().expires_at_ms,
            None,
            "a value without expiry never expires"
        );
        hand.0.fetch_add(60_000, SeqCst);
        assert_eq!(text(&db, "k"), "1,2");
        assert_eq!(snapshot.get(&family, "k").unwrap().unwrap(), b"1");
        work();
        assert_eq!(text(&db, "k"), "1,2");
        drop(snapshot);
        db.default_family().merge("k", "3").unwrap();
        work();
        assert_eq!(text(&db, "k"), "1,2,3");
        let cursor = family.iter().unwrap().map(|e| e.unwrap().1.to_vec()).collect::<Vec<_>>();
        assert_eq!(cursor, [b"1,2,3".to_vec()]);
    }
}

#[test]
fn hooks_receive_operands_and_operands_apply_to_loads() {
    let disk = SimDisk::new(9);
    let db = open_with(&disk, small(append()));
    let family = db.default_family();
    let events = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&events);
    family.on_commit(move |commit| {
        for op in commit.operations() {
            if let CommitOperation::Merge { sequence, key, operand } = op {
                log.lock().unwrap().push((sequence, key.to_vec(), operand.to_vec()));
            }
        }
    });
    db.default_family().merge("k", "1").unwrap();
    assert_eq!(*events.lock().unwrap(), [(1, b"k".to_vec(), b"1".to_vec())]);
    let mut load = family.bulk_load().unwrap();
    load.put("k", "loaded").unwrap();
    load.put("l", "loaded").unwrap();
    load.finish().unwrap();
    assert_eq!(text(&db, "k"), "loaded", "a load is newer than existing operands");
    db.default_family().merge("k", "2").unwrap();
    db.default_family().merge("l", "3").unwrap();
    assert_eq!((text(&db, "k"), text(&db, "l")), ("loaded,2".into(), "loaded,3".into()));
    db.admin().compact().unwrap();
    assert_eq!((text(&db, "k"), text(&db, "l")), ("loaded,2".into(), "loaded,3".into()));
}

#[test]
fn oversized_merge_result_is_an_error_and_keeps_operands() {
    /// Reports a result larger than the maximum.
    struct OversizedOperator(AtomicBool);
    impl MergeOperator for OversizedOperator {
        fn name(&self) -> &str {
            "huge"
        }
        fn merge(
            &self,
            _: &[u8],
            left: Option<&[u8]>,
            right: &[u8],
            out: &mut Vec<u8>,
        ) -> Result<()> {
            let bytes = if self.0.load(SeqCst) { perigee::limits::VALUE_BYTES_MAX + 1 } else { 1 };
            // Untouched zero pages need no memory.
            *out = vec![0; bytes];
            let _ = (left, right);
            Ok(())
        }
    }
    let disk = SimDisk::new(10);
    let huge = Arc::new(OversizedOperator(AtomicBool::new(true)));
    let options = Options::in_env(Env { fs: disk, ..Env::real() }).durability(Durability::None);
    let family = small(MergeRule::User("huge".into()));
    let db = Db::open("/db", options.register_merge_operator(huge.clone()).default_family(family))
        .unwrap();
    db.default_family().merge("k", "a").unwrap();
    db.default_family().merge("k", "b").unwrap();
    assert!(db.get("k").unwrap_err().to_string().contains("too long"));
    db.admin().compact().unwrap();
    assert!(db.get("k").unwrap_err().to_string().contains("too long"));
    huge.0.store(false, SeqCst);
    assert_eq!(text(&db, "k"), "\0");
}

#[test]
fn thousands_of_operands_merge_in_one_pass() {
    let disk = SimDisk::new(11);
    // No flush in between.
    let db = open_with(&disk, FamilyOptions::new().merge_operator(append()));
    for n in 0..5000u64 {
        db.default_family().merge("k", format!("{n:04}")).unwrap();
    }
    let want = (0..5000u64).map(|n| format!("{n:04}")).collect::<Vec<_>>().join(",");
    assert_eq!(text(&db, "k"), want);
    db.admin().flush().unwrap();
    assert_eq!(db.admin().files().iter().map(|f| f.entries).sum::<u64>(), 1);
    assert_eq!(text(&db, "k"), want);
    let e = db.default_family().explain("k").unwrap();
    assert!(e.steps.iter().any(|s| s.outcome == "operand"), "{e:?}");
}
