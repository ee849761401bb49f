//! Sequence numbers of commits, reads at a past sequence number, named snapshots.
#![allow(clippy::unwrap_used)]

use crate::common::Rng;
use perigee::env::Env;
use perigee::env::fs::memory::{Crash, SimDisk};
use perigee::env::sim::SimWorld;
use perigee::{
    Db, Durability, ErrorKind, Family, FamilyOptions, HistoryPolicy, Options, Snapshot, TxnOptions,
    WriteBatch, WriteOptions,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

#[test]
fn commit_returns_its_sequence_number() {
    SimWorld::new(1).run(SimDisk::new(1), |env| {
        let db = Db::open("/db", Options::in_env(env.clone())).unwrap();
        let family = db.default_family();
        assert_eq!(
            db.write(WriteBatch::new()).unwrap(),
            0,
            "an empty batch returns the current sequence number"
        );
        let mut batch = WriteBatch::new();
        batch.put(&family, "a", "1").unwrap();
        batch.put(&family, "b", "1").unwrap();
        assert_eq!(db.write(batch).unwrap(), 2);
        let txn = db.begin(TxnOptions::new()).unwrap();
        txn.put(&family, "c", "1").unwrap();
        assert_eq!((txn.commit().unwrap(), db.history().latest_seq()), (3, 3));
        assert_eq!(db.begin(TxnOptions::new()).unwrap().commit().unwrap(), 3);
        let threads: Vec<_> = (0..4u8)
            .map(|t| {
                let (db, family, numbers) =
                    (db.clone(), family.clone(), Arc::new(std::sync::Mutex::new(Vec::new())));
                let reported = Arc::clone(&numbers);
                let body = move || {
                    for i in 0..20u8 {
                        let mut batch = WriteBatch::new();
                        batch.put(&family, [t, i], "v").unwrap();
                        batch.put(&family, [t, i, 1], "v").unwrap();
                        let how = if i % 3 == 0 { Durability::None } else { Durability::Full };
                        let seq =
                            db.write_with(batch, WriteOptions::new().durability(how)).unwrap();
                        assert!(db.history().latest_seq() >= seq);
                        reported.lock().unwrap().push(seq);
                    }
                };
                (env.spawn.spawn("writer", Box::new(body)).unwrap(), numbers)
            })
            .collect();
        let mut all = Vec::new();
        for (thread, numbers) in threads {
            thread.join().unwrap();
            all.extend(numbers.lock().unwrap().iter().copied());
        }
        all.sort_unstable();
        assert_eq!(
            all,
            (1..=80).map(|i| 3 + 2 * i).collect::<Vec<u64>>(),
            "every commit has its own sequence number, without gaps"
        );
    });
}

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn small(env: &Env, history: HistoryPolicy) -> Options {
    let family = FamilyOptions::new()
        .memtable_bytes(2 << 10)
        .target_file_bytes(2 << 10)
        .level1_bytes(4 << 10);
    Options::in_env(env.clone())
        .default_family(family.level_ratio(2).value_threshold(60))
        .history(history)
}

/// Commits a few operations to the column family, and to the model of every sequence number.
fn write(db: &Db, family: &Family, rng: &mut Rng, states: &mut BTreeMap<u64, Map>) {
    let mut map = states.values().last().cloned().unwrap_or_default();
    let mut batch = WriteBatch::new();
    for _ in 0..=rng.below(4) {
        let key = format!("{:02}", rng.below(40)).into_bytes();
        match rng.below(8) {
            0 => {
                batch.delete(family, &key).unwrap();
                map.remove(&key);
            }
            1 => {
                let end = key.clone().max(format!("{:02}", rng.below(40)).into_bytes());
                batch.delete_range(family, key.clone()..end.clone()).unwrap();
                map.retain(|k, _| *k < key || *k >= end);
            }
            _ => {
                let value = vec![rng.below(256) as u8; rng.below(120) as usize];
                batch.put(family, &key, &value).unwrap();
                map.insert(key, value);
            }
        }
    }
    states.insert(db.write(batch).unwrap(), map);
}

fn check(snapshot: &Snapshot, family: &Family, want: &Map) {
    let got: Map = snapshot
        .iter(family)
        .unwrap()
        .map(|e| e.unwrap())
        .map(|(k, v)| (k.to_vec(), v.to_vec()))
        .collect();
    assert_eq!(got, *want, "at {}", snapshot.sequence());
    for key in ["00", "07", "23"] {
        assert_eq!(snapshot.get(family, key).unwrap().as_ref(), want.get(key.as_bytes()));
    }
}

/// A read at a sequence number returns the state at that time, or an error that it is no longer
/// readable.
#[test]
fn snapshot_at_reads_past_state() {
    let histories = [
        HistoryPolicy::None,
        HistoryPolicy::Operations(60),
        HistoryPolicy::Operations(1 << 40),
        HistoryPolicy::Time(Duration::from_millis(40)),
    ];
    for seed in 1..17u64 {
        let history = histories[seed as usize % histories.len()];
        SimWorld::new(seed).run(SimDisk::new(seed), move |env| {
            let mut rng = Rng(seed * 31);
            let mut db = Db::open("/db", small(&env, history)).unwrap();
            let (mut family, mut states) = (db.default_family(), BTreeMap::from([(0, Map::new())]));
            let mut held: Vec<Snapshot> = Vec::new();
            let (mut read, mut refused, mut oldest_readable) = (0, 0, 0);
            let mut written: Vec<(u64, u64)> = Vec::new();
            for _ in 0..500 {
                match rng.below(40) {
                    0 => db.admin().flush().unwrap(),
                    1 => db.admin().compact().unwrap(),
                    2 => held.clear(),
                    3 => {
                        held.clear();
                        db.close().unwrap();
                        db = Db::open("/db", small(&env, history)).unwrap();
                        family = db.default_family();
                        written.clear(); // time counts while it is open
                    }
                    4 => env.clock.sleep_us(rng.below(30_000)),
                    5..=12 => {
                        let at =
                            *states.keys().nth(rng.below(states.len() as u64) as usize).unwrap();
                        let at = if rng.below(3) == 0 {
                            db.history().latest_seq() - (db.history().latest_seq() - at).min(30)
                        } else {
                            at
                        };
                        let Some((seq, want)) = states.range(..=at).next_back() else { continue };
                        let now = env.clock.monotonic_us();
                        let must = match history {
                            HistoryPolicy::Operations(n) => db.history().latest_seq() - seq <= n,
                            // It was the current state a short while ago.
                            HistoryPolicy::Time(t) => written.iter().any(|(time, last)| {
                                last == seq && now - time < t.as_micros() as u64 / 2
                            }),
                            _ => false,
                        };
                        match db.history().snapshot_at(*seq) {
                            Ok(snapshot) => {
                                check(&snapshot, &family, want);
                                read += 1;
                                held.truncate(3);
                                held.push(snapshot);
                            }
                            Err(e) => {
                                assert_eq!(e.kind(), ErrorKind::NotFound);
                                assert!(
                                    *seq < db.history().oldest_readable_seq() && !must,
                                    "{history:?}: {e}"
                                );
                                refused += 1;
                            }
                        }
                    }
                    _ => {
                        write(&db, &family, &mut rng, &mut states);
                        written.push((env.clock.monotonic_us(), db.history().latest_seq()));
                    }
                }
                assert!(
                    db.history().oldest_readable_seq() >= oldest_readable,
                    "the oldest readable sequence number never decreases"
                );
                oldest_readable = db.history().oldest_readable_seq();
                for snapshot in &held {
                    check(snapshot, &family, &states[&snapshot.sequence()]);
                }
            }
            assert!(read > 3, "{history:?}: {read}");
            match history {
                HistoryPolicy::Operations(n) if n > 1000 => {
                    assert_eq!((refused, oldest_readable), (0, 0))
                }
                // The retention period starts again at each open.
                HistoryPolicy::Time(_) => {}
                _ => assert!(refused > 0, "{history:?}"),
            }
            db.close().unwrap();
        });
    }
}

#[test]
fn snapshot_at_refuses_future_sequence_numbers() {
    SimWorld::new(1).run(SimDisk::new(1), |env| {
        let db = Db::open("/db", small(&env, HistoryPolicy::None)).unwrap();
        assert_eq!(db.history().snapshot_at(1).unwrap_err().kind(), ErrorKind::InvalidArgument);
        assert_eq!(
            db.history().snapshot_at(0).unwrap().iter(&db.default_family()).unwrap().count(),
            0
        );
    });
}

/// A column family that was cleared, cloned or loaded since then must not be returned as empty, or
/// in its current state.
#[test]
fn snapshot_at_reports_replaced_family() {
    SimWorld::new(1).run(SimDisk::new(1), |env| {
        let open = || Db::open("/db", small(&env, HistoryPolicy::Operations(1 << 30))).unwrap();
        let mut db = open();
        let family = db.create_family("f", FamilyOptions::new()).unwrap();
        family.put("a", "1").unwrap();
        let before = db.history().latest_seq();
        db.history().create_snapshot("before").unwrap();
        db.admin().clear_family("f").unwrap();
        let clone = db.admin().clone_family("f", "g").unwrap();
        let after = db.history().latest_seq();
        assert!(after > before, "these operations have their own sequence numbers");
        let mut load = family.bulk_load().unwrap();
        load.put("b", "2").unwrap();
        load.finish().unwrap();
        drop((family, clone));
        for _ in 0..2 {
            for name in ["f", "g"] {
                let family = db.family(name).unwrap();
                for then in [
                    db.history().snapshot_at(before).unwrap(),
                    db.history().named_snapshot("before").unwrap(),
                ] {
                    assert_eq!(
                        then.get(&family, "a").unwrap_err().kind(),
                        ErrorKind::NotFound,
                        "{name}"
                    );
                    assert_eq!(
                        then.iter(&family).unwrap_err().kind(),
                        ErrorKind::NotFound,
                        "{name}"
                    );
                }
                assert_eq!(
                    db.history().snapshot_at(after).unwrap().get(&family, "b").unwrap(),
                    None,
                    "before the load"
                );
            }
            assert!(db.family("f").unwrap().contains("b").unwrap());
            db.close().unwrap();
            db = open();
        }
        db.close().unwrap();
    });
}

#[test]
fn named_snapshots_survive_restart_until_dropped() {
    for seed in 1..9 {
        let disk = SimDisk::new(seed);
        let left = SimWorld::new(seed).run(disk.clone(), move |env| {
            let mut rng = Rng(seed * 7);
            let mut db = Db::open("/db", small(&env, HistoryPolicy::None)).unwrap();
            let (mut family, mut states) = (db.default_family(), BTreeMap::from([(0, Map::new())]));
            let mut named: BTreeMap<String, u64> = BTreeMap::new();
            for step in 0..250 {
                match rng.below(30) {
                    0 => db.admin().flush().unwrap(),
                    1 => db.admin().compact().unwrap(),
                    2 => {
                        db.close().unwrap();
                        db = Db::open("/db", small(&env, HistoryPolicy::None)).unwrap();
                        family = db.default_family();
                    }
                    3 | 4 => {
                        let name = format!("snapshot {step}");
                        named.insert(name.clone(), db.history().create_snapshot(&name).unwrap());
                        assert_eq!(
                            db.history().create_snapshot(&name).unwrap_err().kind(),
                            ErrorKind::AlreadyExists
                        );
                    }
                    5 if named.len() > 2 => {
                        let name = named.keys().next().unwrap().clone();
                        named.remove(&name);
                        db.history().drop_snapshot(&name).unwrap();
                        assert_eq!(
                            db.history().drop_snapshot(&name).unwrap_err().kind(),
                            ErrorKind::NotFound
                        );
                        assert_eq!(
                            db.history().named_snapshot(&name).unwrap_err().kind(),
                            ErrorKind::NotFound
                        );
                    }
                    6 if step % 2 == 0 => {
                        let target = format!("/checkpoint-{step}");
                        db.backups().checkpoint(&target).unwrap();
                        let other = Db::open(&target, small(&env, HistoryPolicy::None)).unwrap();
                        other.admin().compact().unwrap();
                        check_named_snapshots(&other, &named, &states);
                        other.close().unwrap();
                    }
                    _ => write(&db, &family, &mut rng, &mut states),
                }
                if step % 8 == 0 {
                    check_named_snapshots(&db, &named, &states);
                }
            }
            // An open snapshot continues to work after its name is dropped.
            let reader = named.keys().next().map(|name| db.history().named_snapshot(name).unwrap());
            let all: Vec<String> = named.keys().skip(1).cloned().collect();
            all.iter().for_each(|name| db.history().drop_snapshot(name).unwrap());
            named.retain(|name, _| !all.contains(name));
            db.admin().compact().unwrap();
            if let Some(snapshot) = reader {
                check(&snapshot, &family, &states[&snapshot.sequence()]);
            }
            let tables: u64 = db.admin().files().iter().map(|f| f.entries).sum();
            if named.is_empty() {
                assert_eq!(
                    tables,
                    states.values().last().unwrap().len() as u64,
                    "no snapshot pins older versions"
                );
            }
            (named, states)
        });
        // A power cut: acknowledged changes survive.
        SimWorld::new(seed).run(disk.crash_clone(seed, Crash::Power), move |env| {
            let db = Db::open("/db", small(&env, HistoryPolicy::None)).unwrap();
            db.admin().compact().unwrap();
            check_named_snapshots(&db, &left.0, &left.1);
            db.close().unwrap();
        });
    }
}

fn check_named_snapshots(db: &Db, named: &BTreeMap<String, u64>, states: &BTreeMap<u64, Map>) {
    let all: Vec<(String, u64)> = named.iter().map(|(name, seq)| (name.clone(), *seq)).collect();
    let listed = db.history().named_snapshots().into_iter().map(|s| (s.name, s.sequence));
    assert_eq!(listed.collect::<Vec<_>>(), all);
    for (name, seq) in named {
        let snapshot = db.history().named_snapshot(name).unwrap();
        assert_eq!(snapshot.sequence(), *seq);
        check(&snapshot, &db.default_family(), states.range(..=seq).next_back().unwrap().1);
        check(
            &db.history().snapshot_at(*seq).unwrap(),
            &db.default_family(),
            &states[states.range(..=seq).next_back().unwrap().0],
        );
    }
}
