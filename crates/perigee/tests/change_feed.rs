//! The change feed, replayed into a mirror that must equal the database.
#![allow(clippy::unwrap_used)]

use crate::common::Rng;
use perigee::changes::{ChangeFeed, ChangeKind, FamilyChangeKind, FeedEvent};
use perigee::env::Env;
use perigee::env::fs::memory::{Crash, SimDisk};
use perigee::env::sim::SimWorld;
use perigee::{Db, Durability, ErrorKind, FamilyOptions, Options, WriteBatch};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// State that a consumer builds from the changes: column families by id, with their names.
#[derive(Clone, Debug, Default, PartialEq)]
struct Mirror {
    families: BTreeMap<u32, (String, Map)>,
    position: u64,
    commits: usize,
}

impl Mirror {
    fn new() -> Mirror {
        Mirror {
            families: BTreeMap::from([(0, ("default".into(), Map::new()))]),
            ..Mirror::default()
        }
    }
    fn map(&mut self, id: u32) -> &mut Map {
        &mut self
            .families
            .get_mut(&id)
            .unwrap_or_else(|| panic!("the feed never reported column family {id}"))
            .1
    }
    /// Applies one change. The contents of a bulk load are read from the database.
    fn apply(&mut self, db: &Db, change: &FeedEvent) {
        assert!(change.sequence() > self.position, "in order: {change:?}");
        match change {
            FeedEvent::Commit(commit) => {
                self.commits += 1;
                for op in commit.operations() {
                    assert_eq!(
                        self.families[&op.family].0, op.family_name,
                        "column family name at the time of the change"
                    );
                    let map = self.map(op.family);
                    match op.kind {
                        ChangeKind::Put { key, value, .. } => {
                            drop(map.insert(key.to_vec(), value.to_vec()))
                        }
                        ChangeKind::Delete { key } | ChangeKind::SingleDelete { key } => {
                            drop(map.remove(key))
                        }
                        ChangeKind::DeleteRange { start, end } => {
                            map.retain(|k, _| !in_range(k, start, end));
                        }
                        other => panic!("{other:?}"),
                    }
                }
            }
            FeedEvent::Family(change) => match &change.kind {
                FamilyChangeKind::Created { name } => {
                    self.families.entry(change.family).or_insert((name.clone(), Map::new()));
                }
                FamilyChangeKind::Dropped { .. } => drop(self.families.remove(&change.family)),
                FamilyChangeKind::Renamed { to, .. } => {
                    self.families.get_mut(&change.family).unwrap().0 = to.clone();
                }
                FamilyChangeKind::Cleared => self.map(change.family).clear(),
                FamilyChangeKind::Cloned { name, source } => {
                    let map = self.map(*source).clone();
                    self.families.insert(change.family, (name.clone(), map));
                }
                FamilyChangeKind::Loaded => {
                    let name = self.families[&change.family].0.clone();
                    // The database may contain later writes than the load; the changes that follow
                    // apply them again.
                    *self.map(change.family) =
                        db.family(&name).map(|f| contents(&f)).unwrap_or_default();
                }
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
        self.position = change.sequence();
    }
    fn apply_all(&mut self, db: &Db, changes: &mut ChangeFeed) {
        while let Some(change) = changes.next_change().unwrap() {
            self.apply(db, &change);
        }
        assert!(changes.position() >= self.position);
        self.position = changes.position();
    }
    fn check(&self, db: &Db) {
        let mut names: Vec<String> = self.families.values().map(|(name, _)| name.clone()).collect();
        names.sort();
        assert_eq!(names, db.families());
        for (name, map) in self.families.values() {
            assert_eq!(*map, contents(&db.family(name).unwrap()), "{name}");
        }
    }
}

fn in_range(key: &[u8], start: Bound<&[u8]>, end: Bound<&[u8]>) -> bool {
    let after_start = match start {
        Bound::Included(from) => key >= from,
        Bound::Excluded(from) => key > from,
        Bound::Unbounded => true,
    };
    after_start
        && match end {
            Bound::Included(to) => key <= to,
            Bound::Excluded(to) => key < to,
            Bound::Unbounded => true,
        }
}

fn contents(family: &perigee::Family) -> Map {
    family.iter().unwrap().map(|e| e.unwrap()).map(|(k, v)| (k.to_vec(), v.to_vec())).collect()
}

fn options(env: &Env, retention: u64) -> Options {
    let family = FamilyOptions::new()
        .memtable_bytes(2 << 10)
        .target_file_bytes(2 << 10)
        .level1_bytes(4 << 10);
    Options::in_env(env.clone()).default_family(family).log_retention(retention)
}

fn write(db: &Db, rng: &mut Rng) {
    let families: Vec<_> = db.families().iter().map(|name| db.family(name).unwrap()).collect();
    let mut batch = WriteBatch::new();
    for _ in 0..=rng.below(5) {
        let family = &families[rng.below(families.len() as u64) as usize];
        let key = format!("{:02}", rng.below(60));
        match rng.below(8) {
            0 => batch.delete(family, key).unwrap(),
            1 => batch.delete_range(family, key.clone()..format!("{key}~")).unwrap(),
            2 => {
                batch.put_with_ttl(family, key, "ends late", Duration::from_secs(1 << 40)).unwrap()
            }
            _ => batch.put(family, key, vec![b'v'; rng.below(90) as usize]).unwrap(),
        }
    }
    let seq = db.write(batch).unwrap();
    assert!(db.history().latest_seq() >= seq);
}

#[test]
fn replayed_feed_equals_database() {
    for seed in 1..12 {
        SimWorld::new(seed).run(SimDisk::new(seed), move |env| {
            let mut rng = Rng(seed * 977);
            let mut db = Db::open("/db", options(&env, 1 << 30)).unwrap();
            let (mut mirror, mut late) = (Mirror::new(), Mirror::new());
            let mut changes = db.history().changes(0).unwrap();
            for step in 0..500 {
                match rng.below(60) {
                    0 => db.admin().flush().unwrap(),
                    1 => db.admin().compact().unwrap(),
                    2 => drop(db.create_family(
                        &format!("f{step}"),
                        options(&env, 0).default_family.unwrap(),
                    )),
                    3 | 4 if db.families().len() > 1 => {
                        let name = db.families().pop().unwrap();
                        match rng.below(4) {
                            0 => db.drop_family(&name).unwrap(),
                            1 => db.admin().clear_family(&name).unwrap(),
                            2 => db.admin().rename_family(&name, &format!("n{step}")).unwrap(),
                            _ => drop(db.admin().clone_family(&name, &format!("c{step}")).unwrap()),
                        }
                    }
                    5 => {
                        mirror.apply_all(&db, &mut changes);
                        drop(changes);
                        db.close().unwrap();
                        db = Db::open("/db", options(&env, 1 << 30)).unwrap();
                        changes = db.history().changes(mirror.position).unwrap();
                    }
                    6 | 7 => {
                        mirror.apply_all(&db, &mut changes);
                        mirror.check(&db);
                    }
                    _ => write(&db, &mut rng),
                }
            }
            mirror.apply_all(&db, &mut changes);
            mirror.check(&db);
            late.apply_all(&db, &mut db.history().changes(0).unwrap());
            late.check(&db);
            assert_eq!(
                (late.commits, late.position),
                (mirror.commits, mirror.position),
                "seed {seed}"
            );
            assert!(db.admin().verify().unwrap().errors.is_empty());
            db.close().unwrap();
        });
    }
}

#[test]
fn feed_reports_bulk_loads() {
    let env = Env { fs: SimDisk::new(1), ..Env::real() };
    let db = Db::open("/db", options(&env, 1 << 20)).unwrap();
    let (family, mut mirror) = (db.default_family(), Mirror::new());
    db.put("a", "1").unwrap();
    let mut load = family.bulk_load().unwrap();
    load.put("b", "2").unwrap();
    let at = load.finish().unwrap().sequence;
    db.delete("a").unwrap();
    let mut changes = db.history().changes(0).unwrap();
    let delivered: Vec<(u64, bool)> = std::iter::from_fn(|| changes.next_change().unwrap())
        .map(|c| (c.sequence(), matches!(c, FeedEvent::Family(_))))
        .collect();
    assert_eq!(delivered, [(1, false), (at, true), (3, false)]);
    mirror.apply_all(&db, &mut db.history().changes(0).unwrap());
    mirror.check(&db);
    assert_eq!(
        db.history().changes(at).unwrap().next_change().unwrap().unwrap().sequence(),
        3,
        "the position is behind the load"
    );
    let before = db.history().changes(at - 1).unwrap().next_change().unwrap().unwrap();
    assert!(matches!(before, FeedEvent::Family(f) if f.kind == FamilyChangeKind::Loaded));
}

/// Regression test: all changes of a load into several column families had one sequence number, so
/// the position stayed before it until all of them were delivered, and a consumer that reopened the
/// feed after every change read the first one forever.
#[test]
fn feed_resumes_at_stored_position_exactly_once() {
    let env = Env { fs: SimDisk::new(1), ..Env::real() };
    let db = Db::open("/db", options(&env, 1 << 20)).unwrap();
    let mut families: Vec<_> = ["f", "g", "h"]
        .iter()
        .map(|name| db.create_family(name, FamilyOptions::new()).unwrap())
        .collect();
    let load = |families: &[perigee::Family]| {
        let mut loads: Vec<_> = families.iter().map(|f| f.bulk_load().unwrap()).collect();
        loads.iter_mut().for_each(|load| load.put("a", "1").unwrap());
        perigee::load::BulkLoad::finish_all(&mut loads).unwrap()[0].sequence
    };
    db.put("before", "1").unwrap();
    let first = load(&families);
    assert_eq!((first, db.history().latest_seq()), (7, 7));
    for seq in 5..=first {
        // The whole load is visible at each of feed_db sequence numbers.
        let then = db.history().snapshot_at(seq).unwrap();
        assert!(families.iter().all(|f| then.contains(f, "a").unwrap()), "at {seq}");
    }
    let second = load(&families[1..]);
    let mut batch = WriteBatch::new();
    for f in &families {
        batch.put(f, "b", "2").unwrap();
    }
    db.write(batch).unwrap();
    families.swap(0, 2);
    load(&families);
    let one_feed: Vec<String> = {
        let mut changes = db.history().changes(0).unwrap();
        std::iter::from_fn(|| changes.next_change().unwrap()).map(|c| format!("{c:?}")).collect()
    };
    let (mut position, mut reopened) = (0, Vec::new());
    while let Some((change, next)) = {
        let mut changes = db.history().changes(position).unwrap();
        changes.next_change().unwrap().map(|c| (c, changes.position()))
    } {
        assert_eq!(change.sequence(), next, "the position is the sequence number of the change");
        assert!(next > position, "the position advances with every change");
        reopened.push(format!("{change:?}"));
        position = next;
    }
    assert_eq!(reopened, one_feed);
    assert_eq!((reopened.len(), position), (3 + 1 + 3 + 2 + 1 + 3, db.history().latest_seq()));
    assert_eq!(second, 9);
}

#[test]
fn feed_behind_retained_log_reports_oldest_position() {
    for retention in [0, 5_000] {
        let env = Env { fs: SimDisk::new(1), ..Env::real() };
        let db = Db::open("/db", options(&env, retention)).unwrap();
        let mut slow = db.history().changes(0).unwrap();
        for i in 0..200u32 {
            db.put(i.to_be_bytes(), vec![0; 100]).unwrap();
        }
        db.admin().flush().unwrap();
        for e in [db.history().changes(0).unwrap_err(), slow.next_change().unwrap_err()] {
            assert_eq!(e.kind(), ErrorKind::NotFound, "{e}");
            let oldest: u64 = e
                .to_string()
                .split("continue from is ")
                .nth(1)
                .unwrap()
                .split(';')
                .next()
                .unwrap()
                .parse()
                .unwrap();
            let mut changes = db.history().changes(oldest).unwrap();
            let left = std::iter::from_fn(|| changes.next_change().unwrap()).count() as u64;
            assert_eq!(left, 200 - oldest, "retention {retention}");
            assert_eq!(
                retention > 0,
                left > 10,
                "{left} changes left with {retention} bytes retained"
            );
            assert_eq!(
                db.history().changes(oldest - 1).unwrap_err().kind(),
                ErrorKind::NotFound,
                "older positions are refused"
            );
        }
        assert_eq!(db.history().changes(201).unwrap_err().kind(), ErrorKind::InvalidArgument);
        let bytes: u64 = env
            .fs
            .open_dir("/db".as_ref(), perigee::env::DirOpenMode::Existing)
            .map(|dir| {
                let logs = dir.list().unwrap().into_iter().filter(|f| f.ends_with(".wal"));
                logs.map(|f| dir.file_len(&f).unwrap().unwrap()).sum()
            })
            .unwrap();
        assert!(bytes < retention + 20_000, "{bytes}");
    }
}

#[test]
fn feed_delivers_only_durable_commits() {
    for seed in 1..40 {
        let disk = SimDisk::new(seed);
        let delivered = SimWorld::new(seed).run(disk.clone(), move |env| {
            let mut rng = Rng(seed);
            let db = Db::open("/db", options(&env, 1 << 20).durability(Durability::None)).unwrap();
            let (mut mirror, mut changes) = (Mirror::new(), db.history().changes(0).unwrap());
            for _ in 0..rng.below(80) {
                write(&db, &mut rng);
                if rng.below(20) == 0 {
                    db.sync().unwrap();
                    mirror.apply_all(&db, &mut changes);
                    mirror.check(&db);
                }
                mirror.apply_all(&db, &mut changes);
            }
            mirror
        });
        let after = disk.crash_clone(seed, Crash::Power);
        SimWorld::new(seed).run(after, move |env| {
            let db = Db::open("/db", options(&env, 1 << 20)).unwrap();
            assert!(
                db.history().latest_seq() >= delivered.position,
                "seed {seed}: delivered changes were lost"
            );
            let mut mirror = delivered;
            mirror.apply_all(&db, &mut db.history().changes(mirror.position).unwrap());
            mirror.check(&db);
            db.put("z", "after").unwrap();
            mirror.apply_all(&db, &mut db.history().changes(mirror.position).unwrap());
            mirror.check(&db);
            db.close().unwrap();
        });
    }
}

#[test]
fn waiting_feed_wakes_on_commit_and_close() {
    SimWorld::new(7).run(SimDisk::new(7), |env| {
        let db = Db::open("/db", options(&env, 0)).unwrap();
        let (feed_db, clock) = (db.clone(), Arc::clone(&env.clock));
        let body = move || {
            let mut changes = feed_db.history().changes(0).unwrap();
            let began = clock.monotonic_us();
            assert!(changes.wait(Duration::from_millis(3)).unwrap().is_none());
            assert!(clock.monotonic_us() - began >= 3_000);
            let change = changes.wait(Duration::from_secs(3600)).unwrap().unwrap();
            assert_eq!(change.sequence(), 1);
            assert!(clock.monotonic_us() - began < 1_000_000, "the commit woke the feed");
            assert_eq!(
                changes.wait(Duration::from_secs(3600)).unwrap_err().kind(),
                ErrorKind::Closed
            );
        };
        let thread = env.spawn.spawn("consumer", Box::new(body)).unwrap();
        env.clock.sleep_us(10_000);
        db.put("a", "1").unwrap();
        env.clock.sleep_us(10_000);
        db.close().unwrap();
        thread.join().unwrap();
    });
}
