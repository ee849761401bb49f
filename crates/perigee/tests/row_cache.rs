//! The row cache never returns a stale row: readers beside writers of every kind, in many
//! interleavings of the simulated scheduler; and its limits, statistics and exceptions.
#![allow(clippy::unwrap_used)]

use crate::common::Rng;
use crate::manual_clock::ManualClock;
use perigee::env::Env;
use perigee::env::fs::memory::SimDisk;
use perigee::env::sim::SimWorld;
use perigee::{
    CompactionFilter, Db, Durability, ErrorKind, Family, FamilyOptions, FilterDecision,
    FilterEntry, Isolation, KeyComparator, MergeRule, Options, TxnOptions, WriteBatch,
    WriteOptions,
};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

const KEYS: usize = 4;

fn key(i: usize) -> String {
    format!("key {i}")
}

/// A value that contains its version; long ones do not fit in the memory of a transaction.
fn value(version: usize, len: usize) -> Vec<u8> {
    let mut value = format!("{version}|").into_bytes();
    value.resize(len.max(value.len()), b'.');
    value
}

fn version_of(value: &[u8]) -> usize {
    let digits = value.split(|b| *b == b'|').next().unwrap();
    std::str::from_utf8(digits).unwrap().parse().unwrap()
}

/// The states of a key, one per version: true if the key has a value.
#[derive(Debug, Default)]
struct KeyHistory {
    states: Vec<bool>,
    /// The newest version whose write has returned, or that a reader has seen.
    confirmed: usize,
}

/// The histories of the keys of a column family, which one thread writes.
#[derive(Clone)]
struct History {
    name: &'static str,
    keys: Arc<[Mutex<KeyHistory>; KEYS]>,
}

impl History {
    fn new(name: &'static str) -> History {
        let absent = || Mutex::new(KeyHistory { states: vec![false], confirmed: 0 });
        History { name, keys: Arc::new(std::array::from_fn(|_| absent())) }
    }
    /// Registers a write that is about to begin; returns its version.
    fn begin(&self, i: usize, exists: bool) -> usize {
        let states = &mut self.keys[i].lock().unwrap().states;
        states.push(exists);
        states.len() - 1
    }
    fn begin_all(&self, exists: bool) {
        for i in 0..KEYS {
            self.begin(i, exists);
        }
    }
    fn confirm(&self, i: usize, version: usize) {
        let mut history = self.keys[i].lock().unwrap();
        history.confirmed = history.confirmed.max(version);
    }
    fn confirm_all(&self) {
        (0..KEYS).for_each(|i| {
            let newest = self.keys[i].lock().unwrap().states.len() - 1;
            self.confirm(i, newest);
        });
    }
    /// Checks that a read that began when `oldest` was confirmed may return this value.
    fn check(&self, i: usize, oldest: usize, found: Option<&[u8]>, how: &str) {
        let states = self.keys[i].lock().unwrap().states.clone();
        let matches = |v: &usize| match found {
            Some(value) => states[*v] && version_of(value) == *v,
            None => !states[*v],
        };
        let seen = (oldest..states.len()).find(matches);
        let text = found.map(|v| version_of(v).to_string());
        let seen = seen.unwrap_or_else(|| {
            panic!("{how} of {}/{i} is {text:?}, confirmed {oldest}: {states:?}", self.name)
        });
        self.confirm(i, seen);
    }
    fn confirmed(&self, i: usize) -> usize {
        self.keys[i].lock().unwrap().confirmed
    }
}

/// Writes to one column family in every way.
fn write(db: &Db, history: &History, rng: &mut Rng, count: u64) {
    let family = || db.family(history.name).unwrap();
    for n in 0..count {
        let (i, f) = (rng.below(KEYS as u64) as usize, family());
        match rng.below(12) {
            0..3 => {
                let v = history.begin(i, true);
                let durability = [Durability::None, Durability::Full][rng.below(2) as usize];
                let options = WriteOptions::new().durability(durability);
                f.put_with(key(i), value(v, 8), options).unwrap();
            }
            3 | 4 => {
                history.begin(i, false);
                f.delete(key(i)).unwrap();
            }
            5 => {
                history.begin_all(false);
                if rng.below(2) == 0 {
                    f.delete_range("key".."kez").unwrap();
                } else {
                    let mut batch = WriteBatch::new();
                    let tail = |i: usize| key(i)..=key(i);
                    (0..KEYS).for_each(|i| batch.delete_range(&f, tail(i)).unwrap());
                    db.write(batch).unwrap();
                }
            }
            6 => {
                let mut batch = WriteBatch::new();
                for i in [i, (i + 1) % KEYS] {
                    batch.put(&f, key(i), value(history.begin(i, true), 8)).unwrap();
                }
                db.write(batch).unwrap();
            }
            7 => {
                let txn = db.begin(TxnOptions::new().isolation(Isolation::RepeatableRead)).unwrap();
                txn.put(&f, key(i), value(history.begin(i, true), 8)).unwrap();
                txn.commit().unwrap();
            }
            8 => {
                let gid = format!("{} {n}", history.name);
                let txn = db.begin(TxnOptions::new()).unwrap();
                txn.put(&f, key(i), value(history.begin(i, true), 8)).unwrap();
                txn.prepare(&gid).unwrap();
                db.two_phase().commit(&gid).unwrap();
            }
            9 => {
                let mut load = f.bulk_load().unwrap();
                let end = i + 1 + rng.below((KEYS - i) as u64) as usize;
                for i in i..end {
                    load.put(key(i), value(history.begin(i, true), 8)).unwrap();
                }
                load.finish().unwrap();
            }
            // More than the memory of a transaction.
            10 => {
                let txn = db.begin(TxnOptions::new()).unwrap();
                for i in 0..KEYS {
                    txn.put(&f, key(i), value(history.begin(i, true), 5000)).unwrap();
                }
                txn.commit().unwrap();
            }
            _ => {
                history.begin_all(false);
                if rng.below(2) == 0 {
                    db.admin().clear_family(history.name).unwrap();
                } else {
                    db.drop_family(history.name).unwrap();
                    db.create_family(history.name, small()).unwrap();
                }
            }
        }
        history.confirm_all();
        if rng.below(6) == 0 {
            let f = family();
            if rng.below(2) == 0 { f.flush() } else { f.compact() }.unwrap();
        }
    }
}

/// Returns the value of a key without the row cache: cursors do not use it.
fn find_uncached(mut cursor: perigee::Cursor, key: &str) -> perigee::Result<Option<Vec<u8>>> {
    cursor.seek(key)?;
    if !cursor.is_valid() || cursor.key() != key.as_bytes() {
        return Ok(None);
    }
    Ok(Some(cursor.value()?.to_vec()))
}

/// Reads in every way, and checks what is found.
fn read(db: &Db, histories: &[History], rng: &mut Rng, count: u64) {
    for _ in 0..count {
        let history = &histories[rng.below(histories.len() as u64) as usize];
        // Dropped, and not created again yet.
        let Ok(family) = db.family(history.name) else { continue };
        let i = rng.below(KEYS as u64) as usize;
        if let Err(e) = read_once(db, &family, history, i, rng.below(6)) {
            assert_eq!(e.kind(), ErrorKind::NotFound, "{e}");
        }
    }
}

fn read_once(
    db: &Db,
    family: &Family,
    history: &History,
    i: usize,
    kind: u64,
) -> perigee::Result<()> {
    let oldest = history.confirmed(i);
    match kind {
        0..3 => history.check(i, oldest, family.get(key(i))?.as_deref(), "get"),
        3 => {
            let found = find_uncached(family.cursor()?, &key(i))?;
            history.check(i, oldest, found.as_deref(), "cursor");
        }
        // A snapshot shows the same with and without the cache, now and later.
        _ => {
            let snapshot = db.snapshot()?;
            for i in [i, (i + 1) % KEYS, i] {
                let cached = snapshot.get(family, key(i))?;
                let found = find_uncached(snapshot.cursor(family)?, &key(i))?;
                assert_eq!(cached, found, "snapshot of {}/{i}", history.name);
                assert_eq!(snapshot.contains(family, key(i))?, found.is_some());
                if kind == 5 {
                    let _ = family.get(key(i))?;
                }
            }
        }
    }
    Ok(())
}

fn small() -> FamilyOptions {
    FamilyOptions::new().memtable_bytes(4 << 10)
}

fn options(env: Env) -> Options {
    Options::in_env(env)
        .memory_budget(256 << 10)
        .row_cache_bytes(64 << 10)
        .durability(Durability::None)
        .default_family(small())
}

fn read_beside_writers(env: &Env, seed: u64) -> u64 {
    let db = Db::open("/db", options(env.clone())).unwrap();
    let histories = ["a", "b"].map(History::new);
    for h in &histories {
        db.create_family(h.name, small()).unwrap();
    }
    let mut threads = Vec::new();
    for (n, history) in histories.iter().enumerate() {
        let (db, history, mut rng) = (db.clone(), history.clone(), Rng(seed * 8 + 1 + n as u64));
        let body = move || write(&db, &history, &mut rng, 12);
        threads.push(env.spawn.spawn("writer", Box::new(body)).unwrap());
    }
    for n in 0..3 {
        let (db, histories) = (db.clone(), histories.clone());
        let mut rng = Rng(seed * 8 + 4 + n);
        let body = move || read(&db, &histories, &mut rng, 60);
        threads.push(env.spawn.spawn("reader", Box::new(body)).unwrap());
    }
    threads.into_iter().for_each(|t| t.join().unwrap());
    let hits = db.admin().stats().row_cache.hits;
    read(&db, &histories, &mut Rng(seed + 1), 20);
    db.close().unwrap();
    hits
}

#[test]
fn rows_are_never_stale_in_any_interleaving() {
    let mut hits = 0;
    for seed in 0..250 {
        hits += SimWorld::new(seed).run(SimDisk::new(seed), |env| read_beside_writers(&env, seed));
    }
    assert!(hits > 250 * 10, "the cache is used: {hits} hits");
}

#[test]
fn rows_are_never_stale_beside_real_threads() {
    for seed in 0..8 {
        let env = Env { fs: SimDisk::new(seed), ..Env::real() };
        let db = Db::open("/db", options(env)).unwrap();
        let histories = ["a", "b"].map(History::new);
        for h in &histories {
            db.create_family(h.name, small()).unwrap();
        }
        std::thread::scope(|scope| {
            for (n, history) in histories.iter().enumerate() {
                let (db, mut rng) = (&db, Rng(seed * 8 + 1 + n as u64));
                scope.spawn(move || write(db, history, &mut rng, 150));
            }
            for n in 0..3 {
                let (db, histories, mut rng) = (&db, &histories, Rng(seed * 8 + 4 + n));
                scope.spawn(move || read(db, histories, &mut rng, 5000));
            }
        });
        db.close().unwrap();
    }
}

#[test]
fn cached_rows_expire() {
    let clock = Arc::new(ManualClock(AtomicU64::new(1_700_000_000_000)));
    let env = Env { fs: SimDisk::new(1), clock: clock.clone(), ..Env::real() };
    let db = Db::open("/db", options(env)).unwrap();
    let family = db.default_family();
    family.put_with_ttl("k", "v", std::time::Duration::from_millis(100)).unwrap();
    let snapshot = db.snapshot().unwrap();
    let get =
        || (family.get("k").unwrap().is_some(), snapshot.get(&family, "k").unwrap().is_some());
    assert_eq!((get(), get()), ((true, true), (true, true)));
    assert!(db.admin().stats().row_cache.hits >= 3);
    clock.0.fetch_add(99, SeqCst);
    assert_eq!(get(), (true, true));
    clock.0.fetch_add(1, SeqCst);
    assert_eq!((get(), get()), ((false, false), (false, false)));
    // Not cached as absent: a clock that jumped forward may return.
    assert_eq!(db.admin().stats().row_cache.rows, 0);
    family.put("k", "w").unwrap();
    assert_eq!(get(), (true, false));
}

fn open(with: impl FnOnce(Options) -> Options) -> Db {
    let env = Env { fs: SimDisk::new(1), ..Env::real() };
    Db::open("/db", with(options(env))).unwrap()
}

fn hits(db: &Db) -> u64 {
    db.admin().stats().row_cache.hits
}

#[test]
fn all_handles_share_one_cache_with_statistics() {
    let db = open(|o| o);
    let (one, two) = (db.default_family(), db.clone().family("default").unwrap());
    one.put("k", "v").unwrap();
    assert_eq!(one.get("k").unwrap().as_deref(), Some(&b"v"[..]));
    assert_eq!(two.get("k").unwrap().as_deref(), Some(&b"v"[..]));
    one.delete("gone").unwrap();
    assert_eq!((two.get("gone").unwrap(), one.get("gone").unwrap()), (None, None));
    let stats = db.admin().stats().row_cache;
    assert_eq!((stats.rows, stats.hits, stats.misses), (2, 2, 2));
    assert_eq!(stats.hit_rate(), 0.5);
    assert!(stats.capacity <= 64 << 10 && stats.used > 0 && stats.used < stats.capacity);
    let memory = db.admin().stats().memory;
    let rows = memory.iter().find(|m| m.owner == "row cache").unwrap();
    assert_eq!(rows.bytes, stats.used);
    two.delete("k").unwrap();
    assert_eq!((one.get("k").unwrap(), two.get("k").unwrap()), (None, None));
    assert_eq!(db.admin().stats().row_cache.invalidations, 1);
}

#[test]
fn there_is_no_row_cache_unless_asked_for() {
    let db = open(|o| o.row_cache_bytes(0));
    db.put("k", "v").unwrap();
    (0..3).for_each(|_| assert!(db.get("k").unwrap().is_some()));
    assert_eq!(db.admin().stats().row_cache, Default::default());
}

#[test]
fn a_full_cache_stays_within_its_capacity() {
    let db = open(|o| o.memory_budget(1 << 20));
    let family = db.default_family();
    for id in 0..3000u32 {
        family.put(id.to_be_bytes(), [b'v'; 50]).unwrap();
    }
    for round in 0..6 {
        for id in 0..3000u32 {
            let id = if round % 2 == 0 { id } else { id % 100 };
            assert_eq!(family.get(id.to_be_bytes()).unwrap().as_deref(), Some(&[b'v'; 50][..]));
        }
    }
    let stats = db.admin().stats();
    assert!(stats.row_cache.evictions > 0 && stats.row_cache.used <= stats.row_cache.capacity);
    assert!(stats.memory_bytes() <= 1 << 20);
}

/// A transaction reads its own writes and its own snapshot.
#[test]
fn transactions_do_not_see_newer_cached_rows() {
    let db = open(|o| o);
    let family = db.default_family();
    family.put("k", "old").unwrap();
    let txn = db.begin(TxnOptions::new().isolation(Isolation::Snapshot)).unwrap();
    let snapshot = db.snapshot().unwrap();
    family.put("k", "new").unwrap();
    (0..2).for_each(|_| assert_eq!(family.get("k").unwrap().as_deref(), Some(&b"new"[..])));
    assert_eq!(txn.get(&family, "k").unwrap().as_deref(), Some(&b"old"[..]));
    assert_eq!(snapshot.get(&family, "k").unwrap().as_deref(), Some(&b"old"[..]));
    txn.put(&family, "own", "1").unwrap();
    assert_eq!(family.get("own").unwrap(), None);
    assert_eq!(txn.get(&family, "own").unwrap().as_deref(), Some(&b"1"[..]));
    txn.commit().unwrap();
    assert_eq!(family.get("own").unwrap().as_deref(), Some(&b"1"[..]));
}

#[test]
fn rows_whose_value_is_computed_are_not_cached() {
    let fold = small().comparator(KeyComparator::CaseInsensitive);
    let merges = small().merge_operator(MergeRule::Append(",".into()));
    let db = open(|o| o);
    let (fold, merges) =
        (db.create_family("fold", fold).unwrap(), db.create_family("merges", merges).unwrap());
    fold.put("Key", "1").unwrap();
    assert!(fold.get("kEY").unwrap().is_some() && fold.get("key").unwrap().is_some());
    fold.delete("KEY").unwrap();
    assert_eq!(fold.get("key").unwrap(), None);
    merges.merge("k", "a").unwrap();
    for operand in ["b", "c"] {
        merges.get("k").unwrap().unwrap();
        merges.merge("k", operand).unwrap();
    }
    assert_eq!(merges.get("k").unwrap().as_deref(), Some(&b"a,b,c"[..]));
    assert_eq!(hits(&db), 0);
    merges.put("k", "x").unwrap();
    (0..2).for_each(|_| assert_eq!(merges.get("k").unwrap().as_deref(), Some(&b"x"[..])));
    assert_eq!(hits(&db), 1);
    merges.merge("k", "y").unwrap();
    assert_eq!(merges.get("k").unwrap().as_deref(), Some(&b"x,y"[..]));
}

struct DropAll;

impl CompactionFilter for DropAll {
    fn name(&self) -> &str {
        "drop all"
    }
    fn decide(&self, _: &FilterEntry<'_>) -> perigee::Result<FilterDecision> {
        Ok(FilterDecision::Drop)
    }
}

/// A compaction filter removes rows without a write.
#[test]
fn rows_under_a_compaction_filter_are_not_cached() {
    let db = open(|o| o.compaction_filter("default", Arc::new(DropAll)));
    let family = db.default_family();
    family.put("k", "v").unwrap();
    (0..2).for_each(|_| assert!(family.get("k").unwrap().is_some()));
    family.compact().unwrap();
    assert_eq!((family.get("k").unwrap(), hits(&db)), (None, 0));
}

/// Separated values are cached, too.
#[test]
fn separated_values_are_cached() {
    let db = open(|o| o.default_family(small().value_threshold(16)));
    let family = db.default_family();
    family.put("k", [b'v'; 500]).unwrap();
    family.flush().unwrap();
    (0..3).for_each(|_| assert_eq!(family.get("k").unwrap().as_deref(), Some(&[b'v'; 500][..])));
    assert_eq!(hits(&db), 2);
}
