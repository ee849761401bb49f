//! Compaction filters and commit hooks: user code, whose errors and panics must not damage the
//! database.
#![allow(clippy::unwrap_used)]

use perigee::changes::CommitOperation;
use perigee::env::Env;
use perigee::env::fs::memory::SimDisk;
use perigee::{
    CompactionFilter, Db, Durability, ErrorKind, FamilyOptions, FilterDecision, FilterEntry,
    Options, Result, WriteBatch,
};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

/// Drops keys that start with `d`, changes the values of those with `c`, reads the value of those
/// with `v`, and panics on `p`.
#[derive(Default)]
struct TestFilter {
    armed: AtomicBool,
    calls: AtomicU64,
}

impl CompactionFilter for TestFilter {
    fn name(&self) -> &str {
        "sample"
    }
    fn decide(&self, e: &FilterEntry<'_>) -> Result<FilterDecision> {
        self.calls.fetch_add(1, SeqCst);
        assert!(e.level() > 0);
        Ok(match e.key().first() {
            Some(b'd') => FilterDecision::Drop,
            Some(b'c') => FilterDecision::Change([b"changed ", &e.value()?[..]].concat()),
            Some(b'v') if e.value()?.len() as u64 != e.value_len() => FilterDecision::Drop,
            Some(b'p') if self.armed.load(SeqCst) => panic!("as planned"),
            _ => FilterDecision::Keep,
        })
    }
}

fn options(disk: &Arc<SimDisk>) -> Options {
    let family = FamilyOptions::new().value_threshold(64).memtable_bytes(16 << 10);
    Options::in_env(Env { fs: disk.clone(), ..Env::real() })
        .durability(Durability::None)
        .default_family(family)
}

fn fill(db: &Db) {
    for key in ["c", "d", "k", "v"] {
        db.put(key, key.repeat(100)).unwrap();
    }
    db.admin().flush().unwrap();
}

#[test]
fn filter_drops_and_changes_compacted_entries() {
    let disk = SimDisk::new(1);
    let filter = Arc::new(TestFilter::default());
    let db = Db::open("/db", options(&disk).compaction_filter("default", filter.clone())).unwrap();
    fill(&db);
    assert_eq!(filter.calls.load(SeqCst), 0, "a flush does not call the filter");
    assert!(db.contains("d").unwrap());
    db.admin().compact().unwrap();
    assert_eq!(db.get("d").unwrap(), None);
    assert_eq!(db.get("c").unwrap().unwrap(), [b"changed ".to_vec(), b"c".repeat(100)].concat());
    assert_eq!(db.get("k").unwrap().unwrap(), b"k".repeat(100));
    assert_eq!(db.get("v").unwrap().unwrap().len(), 100);
    assert!(filter.calls.load(SeqCst) >= 4);
    assert!(db.admin().verify().unwrap().errors.is_empty());
}

#[test]
fn filter_skips_versions_visible_to_snapshots() {
    let disk = SimDisk::new(2);
    let filter = Arc::new(TestFilter::default());
    let db = Db::open("/db", options(&disk).compaction_filter("default", filter)).unwrap();
    let family = db.default_family();
    fill(&db);
    let then = db.snapshot().unwrap();
    db.put("d", "newer").unwrap();
    db.put("d2", "newer").unwrap();
    db.admin().compact().unwrap();
    assert_eq!(
        then.get(&family, "d").unwrap().unwrap(),
        b"d".repeat(100),
        "the version visible to the snapshot"
    );
    assert_eq!(then.get(&family, "c").unwrap().unwrap(), b"c".repeat(100));
    assert_eq!(
        db.get("d").unwrap(),
        None,
        "the newer version was dropped, but still hides the older one"
    );
    assert_eq!(db.get("d2").unwrap(), None);
    assert_eq!(
        db.get("c").unwrap().unwrap(),
        b"c".repeat(100),
        "the only version is visible to the snapshot"
    );
    assert_eq!(db.iter().unwrap().count(), 3);
    drop(then);
    db.admin().compact().unwrap();
    assert!(db.get("c").unwrap().unwrap().starts_with(b"changed"));
    assert_eq!(db.get("d").unwrap(), None);
    assert_eq!(db.iter().unwrap().count(), 3);
}

#[test]
fn filter_panic_fails_the_compaction() {
    let disk = SimDisk::new(3);
    let filter = Arc::new(TestFilter::default());
    let db = Db::open("/db", options(&disk).compaction_filter("default", filter.clone())).unwrap();
    filter.armed.store(true, SeqCst);
    fill(&db);
    db.put("p", "x").unwrap();
    let e = db.admin().compact().unwrap_err();
    assert!(e.to_string().contains("as planned"), "{e}");
    assert!(db.contains("d").unwrap(), "the failed compaction changed nothing");
    db.put("more", "writes").unwrap();
    filter.armed.store(false, SeqCst);
    db.admin().compact().unwrap();
    assert_eq!(db.get("d").unwrap(), None);
    assert_eq!(db.get("p").unwrap().unwrap(), b"x");
}

/// A filter with a different name.
struct OtherFilter;

impl CompactionFilter for OtherFilter {
    fn name(&self) -> &str {
        "other"
    }
    fn decide(&self, _: &FilterEntry<'_>) -> Result<FilterDecision> {
        Ok(FilterDecision::Keep)
    }
}

#[test]
fn filter_name_is_stored_and_checked_at_open() {
    let disk = SimDisk::new(4);
    let sample = || Arc::new(TestFilter::default());
    let with = |f: Arc<dyn CompactionFilter>| options(&disk).compaction_filter("f", f);
    let db = Db::open("/db", with(sample())).unwrap();
    let f = db.create_family("f", FamilyOptions::new()).unwrap();
    f.put("d", "1").unwrap();
    f.compact().unwrap();
    assert_eq!(f.get("d").unwrap(), None);
    drop(f);
    db.close().unwrap();
    let e = Db::open("/db", options(&disk)).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidArgument);
    assert!(e.to_string().contains("sample") && e.to_string().contains("without_filter"), "{e}");
    let e = Db::open("/db", with(Arc::new(OtherFilter))).unwrap_err();
    assert!(e.to_string().contains("another compaction filter"), "{e}");
    Db::open("/db", with(sample())).unwrap().close().unwrap();
    // The filter is removed explicitly: from then on the column family opens without a filter or
    // with another one.
    let db = Db::open("/db", options(&disk).without_filter("f")).unwrap();
    let f = db.family("f").unwrap();
    f.put("d", "2").unwrap();
    f.compact().unwrap();
    assert_eq!(f.get("d").unwrap().unwrap(), b"2");
    drop(f);
    db.close().unwrap();
    Db::open("/db", options(&disk)).unwrap().close().unwrap();
    Db::open("/db", with(Arc::new(OtherFilter))).unwrap().close().unwrap();
    assert!(Db::open("/db", with(sample())).is_err());
}

#[test]
fn commit_hook_receives_each_batch_once_in_order() {
    let db = Db::open("/db", options(&SimDisk::new(5))).unwrap();
    let events: Arc<Mutex<Vec<(u64, usize)>>> = Arc::default();
    let log = Arc::clone(&events);
    let family = db.default_family();
    let other = db.create_family("other", FamilyOptions::new()).unwrap();
    family.on_commit(move |c| log.lock().unwrap().push((c.sequence(), c.operations().count())));
    let writers: Vec<_> = (0..4)
        .map(|w| {
            let (db, family, other) = (db.clone(), family.clone(), other.clone());
            std::thread::spawn(move || {
                for i in 0..200 {
                    let mut batch = WriteBatch::new();
                    batch.put(&other, "not reported", "x").unwrap();
                    batch.put(&family, format!("{w}/{i}"), "x").unwrap();
                    batch.delete(&family, "gone").unwrap();
                    db.write(batch).unwrap();
                }
            })
        })
        .collect();
    writers.into_iter().for_each(|w| w.join().unwrap());
    // The last events may still be delivered by another writer's thread; all writers have returned.
    let events = events.lock().unwrap();
    assert_eq!(events.len(), 800);
    assert!(events.windows(2).all(|w| w[0].0 < w[1].0), "in commit order");
    assert!(events.iter().all(|(_, n)| *n == 2));
}

#[test]
fn commit_hook_may_write_and_panic() {
    let db = Db::open("/db", options(&SimDisk::new(6))).unwrap();
    let events: Arc<Mutex<Vec<String>>> = Arc::default();
    let (log, inner) = (Arc::clone(&events), db.clone());
    db.default_family().on_commit(move |c| {
        for op in c.operations() {
            let (CommitOperation::Put { key, .. } | CommitOperation::Delete { key, .. }) = op
            else {
                continue;
            };
            let key = key.escape_ascii().to_string();
            log.lock().unwrap().push(key.clone());
            // The batch is visible already; commits made here are reported after this call.
            match &key[..] {
                "a" => {
                    assert!(inner.contains("a").unwrap());
                    inner.put("from the hook", key).unwrap();
                    assert_eq!(log.lock().unwrap().len(), 1);
                }
                "bad" => panic!("as planned"),
                _ => {}
            }
        }
    });
    db.put("a", "1").unwrap();
    assert_eq!(*events.lock().unwrap(), ["a", "from the hook"]);
    db.put("bad", "1").unwrap();
    assert_eq!(db.admin().commit_hook_panics(), 1);
    db.delete("a").unwrap();
    assert_eq!(*events.lock().unwrap(), ["a", "from the hook", "bad", "a"]);
    assert!(db.contains("bad").unwrap(), "the commit is not affected");
    db.default_family().clear_commit_hook();
    db.put("b", "1").unwrap();
    assert_eq!(events.lock().unwrap().len(), 4);
    let ranges: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = Arc::clone(&ranges);
    db.default_family().on_commit(move |c| {
        c.operations().for_each(|op| log.lock().unwrap().push(format!("{op:?}")))
    });
    db.default_family().delete_range("a".."c").unwrap();
    let said = ranges.lock().unwrap()[0].clone();
    assert!(said.contains("DeleteRange") && said.contains("Included(\"a\")"), "{said}");
    assert!(said.contains("Excluded(\"c\")"), "{said}");
}
