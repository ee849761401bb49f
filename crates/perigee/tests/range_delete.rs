//! Range and single deletes checked against a map over a tiny key space: snapshots, both
//! directions, flushes, compactions and reopens in between; and tables that compaction drops
//! without reading them.
#![allow(clippy::unwrap_used)]

use crate::common::Rng;
use perigee::env::Env;
use perigee::env::fs::memory::SimDisk;
use perigee::{
    Db, Durability, ErrorKind, FamilyOptions, HistoryPolicy, Options, Snapshot, WriteBatch,
};
use std::collections::BTreeMap;
use std::ops::Bound;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;
type Range = (Bound<Vec<u8>>, Bound<Vec<u8>>);

impl Rng {
    fn tiny_key(&mut self) -> Vec<u8> {
        let n = self.below(3) as usize;
        (0..n).map(|_| [0, 1, 2, 3, 4, 5, 254, 255][self.below(8) as usize]).collect()
    }
    fn random_bound(&mut self) -> Bound<Vec<u8>> {
        match self.below(5) {
            0 => Bound::Unbounded,
            1 | 2 => Bound::Included(self.tiny_key()),
            _ => Bound::Excluded(self.tiny_key()),
        }
    }
}

fn in_range((low, high): &Range, k: &Vec<u8>) -> bool {
    let above = match low {
        Bound::Unbounded => true,
        Bound::Included(l) => k >= l,
        Bound::Excluded(l) => k > l,
    };
    above
        && match high {
            Bound::Unbounded => true,
            Bound::Included(h) => k <= h,
            Bound::Excluded(h) => k < h,
        }
}

fn open(disk: &std::sync::Arc<SimDisk>, x: u64) -> Db {
    let family = FamilyOptions::new()
        .memtable_bytes(2 << 10)
        .block_bytes(64)
        .target_file_bytes(1 << 10)
        .level1_bytes(2 << 10)
        .level_ratio(2)
        .filter_bits([0, 10][(x % 2) as usize])
        .value_threshold([16, 4096][(x / 2 % 2) as usize]);
    let env = Env { fs: disk.clone(), ..Env::real() };
    Db::open("/erase", Options::in_env(env).default_family(family)).unwrap()
}

fn check(db: &Db, snapshot: Option<&Snapshot>, map: &Map, rng: &mut Rng) {
    let family = db.default_family();
    let range = (rng.random_bound(), rng.random_bound());
    let iter = |range: Range| match snapshot {
        Some(s) => s.range(&family, range).unwrap(),
        None => family.range(range).unwrap(),
    };
    let pair = |e: perigee::Result<(perigee::Slice, perigee::Slice)>| {
        let (k, v) = e.unwrap();
        (k.to_vec(), v.to_vec())
    };
    let want: Vec<_> = map
        .iter()
        .filter(|(k, _)| in_range(&range, k))
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    assert_eq!(iter(range.clone()).map(pair).collect::<Vec<_>>(), want);
    assert_eq!(
        iter(range).rev().map(pair).collect::<Vec<_>>(),
        want.into_iter().rev().collect::<Vec<_>>()
    );
    for _ in 0..6 {
        let k = rng.tiny_key();
        let got = match snapshot {
            Some(s) => s.get(&family, &k).unwrap(),
            None => db.get(&k).unwrap(),
        };
        assert_eq!(got.as_ref(), map.get(&k), "{k:?}");
    }
    let mut cursor = match snapshot {
        Some(s) => s.cursor(&family).unwrap(),
        None => db.default_family().cursor().unwrap(),
    };
    let k = rng.tiny_key();
    cursor.seek(&k).unwrap();
    let mut here = map.range(k..).next().map(|(k, _)| k.clone());
    for _ in 0..8 {
        assert_eq!(cursor.is_valid().then(|| cursor.key().to_vec()), here);
        let Some(k) = here else { break };
        if rng.below(2) == 0 {
            cursor.next().unwrap();
            here = map.range((Bound::Excluded(k), Bound::Unbounded)).next().map(|(k, _)| k.clone());
        } else {
            cursor.prev().unwrap();
            here = map.range(..k).next_back().map(|(k, _)| k.clone());
        }
    }
}

#[test]
fn range_deletes_match_model() {
    for seed in 1..=60u64 {
        let mut rng = Rng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let disk = SimDisk::new(seed);
        let mut db = open(&disk, seed);
        let (mut map, mut held): (Map, Vec<(Snapshot, Map)>) = (Map::new(), Vec::new());
        for step in 0..250u64 {
            match rng.below(30) {
                0..=13 => {
                    let (k, v) = (rng.tiny_key(), vec![step as u8; rng.below(40) as usize]);
                    db.put(&k, &v).unwrap();
                    map.insert(k, v);
                }
                14..=17 => {
                    let range = (rng.random_bound(), rng.random_bound());
                    match db.default_family().delete_range(range.clone()) {
                        Ok(()) => map.retain(|k, _| !in_range(&range, k)),
                        Err(e) => assert_eq!(e.kind(), ErrorKind::InvalidArgument),
                    }
                }
                18 => {
                    let prefix = rng.tiny_key();
                    db.default_family().delete_prefix(&prefix).unwrap();
                    map.retain(|k, _| !k.starts_with(&prefix));
                }
                19 => {
                    let (family, k) = (db.default_family(), rng.tiny_key());
                    let mut batch = WriteBatch::new();
                    batch.put(&family, &k, b"before").unwrap();
                    batch.delete_prefix(&family, &k).unwrap();
                    batch.put(&family, &k, b"after").unwrap();
                    db.write(batch).unwrap();
                    map.retain(|other, _| !other.starts_with(&k));
                    map.insert(k, b"after".to_vec());
                }
                20 | 21 => {
                    let k = rng.tiny_key();
                    db.delete(&k).unwrap();
                    map.remove(&k);
                }
                22 => held.push((db.snapshot().unwrap(), map.clone())),
                23 if !held.is_empty() => drop(held.remove(rng.below(held.len() as u64) as usize)),
                24 | 25 => db.admin().flush().unwrap(),
                26 => db.admin().compact().unwrap(),
                27 => db.admin().wait_idle().unwrap(),
                28 => {
                    held.clear();
                    db.close().unwrap();
                    db = open(&disk, seed);
                }
                _ => assert!(db.admin().verify().unwrap().errors.is_empty()),
            }
            check(&db, None, &map, &mut rng);
            if let Some((snapshot, then)) = held.last() {
                check(&db, Some(snapshot), then, &mut rng);
            }
        }
        held.clear();
        db.default_family().delete_range::<&[u8]>(..).unwrap();
        db.admin().compact().unwrap();
        db.admin().wait_idle().unwrap();
        assert!(db.admin().files().is_empty(), "neither deleted entries nor tombstones remain");
    }
}

fn counter(db: &Db, name: &str) -> u64 {
    db.admin().stats().counter(name).unwrap()
}

#[test]
fn covered_tables_are_dropped_without_reading() {
    let disk = SimDisk::new(5);
    let db = open(&disk, 1);
    for i in 0..2000u32 {
        db.put(i.to_be_bytes(), [7; 20]).unwrap();
    }
    db.admin().compact().unwrap();
    let files = db.admin().files().len();
    let snapshot = db.snapshot().unwrap();
    db.default_family().delete_range(100u32.to_be_bytes()..1900u32.to_be_bytes()).unwrap();
    db.admin().flush().unwrap();
    db.admin().wait_idle().unwrap();
    assert_eq!(counter(&db, "dropped_tables"), 0, "the snapshot still reads the tables");
    assert_eq!(snapshot.iter(&db.default_family()).unwrap().count(), 2000);
    assert_eq!(db.iter().unwrap().count(), 200);
    drop(snapshot);
    db.put(5000u32.to_be_bytes(), "").unwrap();
    db.admin().flush().unwrap();
    db.admin().wait_idle().unwrap();
    let dropped = counter(&db, "dropped_tables");
    assert!(dropped as usize > files * 3 / 4, "{dropped} of {files}");
    assert_eq!(db.iter().unwrap().count(), 201);
    assert!(db.admin().verify().unwrap().errors.is_empty());
    db.close().unwrap();
    assert_eq!(open(&disk, 1).iter().unwrap().rev().count(), 201);
}

#[test]
fn single_delete_cancels_exactly_one_put() {
    let disk = SimDisk::new(6);
    let db = open(&disk, 1);
    for round in 0..3u8 {
        for i in 0..50u8 {
            db.put([i], [round; 30]).unwrap();
        }
        let snapshot = (round == 1).then(|| db.snapshot().unwrap());
        if round != 2 {
            db.admin().flush().unwrap();
        }
        for i in 0..50u8 {
            db.default_family().single_delete([i]).unwrap();
            assert_eq!(db.get([i]).unwrap(), None);
        }
        db.admin().flush().unwrap();
        if let Some(s) = snapshot {
            assert_eq!(s.iter(&db.default_family()).unwrap().count(), 50);
        }
        assert_eq!(db.iter().unwrap().count(), 0);
    }
    db.admin().wait_idle().unwrap(); // a job updates its counters after its tables are installed
    // The pair is dropped together, or each entry separately in the last level.
    assert!(counter(&db, "dropped_cancelled") + counter(&db, "dropped_tombstones") > 0);
    db.admin().compact().unwrap();
    assert!(db.admin().files().is_empty());
}

#[test]
fn invalid_ranges_are_refused() {
    let disk = SimDisk::new(7);
    let db = open(&disk, 1);
    db.put("k", "v").unwrap();
    let e = db.default_family().delete_range("z".."a").unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidArgument);
    assert!(e.to_string().contains("is after its end"), "{e}");
    let long = vec![b'k'; perigee::limits::KEY_BYTES_MAX + 1];
    let mut batch = WriteBatch::new();
    assert!(batch.delete_range(&db.default_family(), long..).is_err() && batch.is_empty());
    db.default_family().delete_range("k".."k").unwrap();
    db.default_family().delete_range::<&str>((Bound::Excluded("k"), Bound::Unbounded)).unwrap();
    assert!(db.contains("k").unwrap());
    db.default_family().delete_range("k"..="k").unwrap();
    assert!(!db.contains("k").unwrap());
}

fn open_queue(history: HistoryPolicy) -> Db {
    let env = Env { fs: SimDisk::new(1), ..Env::real() };
    Db::open("/queue", Options::in_env(env).durability(Durability::None).history(history)).unwrap()
}

fn queue_key(n: u32) -> [u8; 4] {
    n.to_be_bytes()
}

/// The consumer of a queue deletes everything up to its position: each delete covers all before.
#[test]
fn readers_of_the_past_see_what_a_queue_held() {
    const N: u32 = 450;
    let db = open_queue(HistoryPolicy::None);
    let family = db.default_family();
    for n in 0..N {
        db.put(queue_key(n), "message").unwrap();
    }
    let mut snapshots = Vec::new();
    for n in 0..N {
        if n % 50 == 0 {
            snapshots.push((n, db.snapshot().unwrap()));
        }
        family.delete_range(queue_key(0)..queue_key(n + 1)).unwrap();
    }
    assert_eq!(db.iter().unwrap().count(), 0);
    let number = |e: perigee::Result<(perigee::Slice, perigee::Slice)>| {
        u32::from_be_bytes((*e.unwrap().0).try_into().unwrap())
    };
    for (first, snapshot) in &snapshots {
        let forward: Vec<u32> = snapshot.iter(&family).unwrap().map(number).collect();
        assert_eq!(forward, (*first..N).collect::<Vec<_>>());
        let backward: Vec<u32> = snapshot.iter(&family).unwrap().rev().map(number).collect();
        assert_eq!(backward, (*first..N).rev().collect::<Vec<_>>());
        for n in (0..N).step_by(7) {
            assert_eq!(snapshot.get(&family, queue_key(n)).unwrap().is_some(), n >= *first);
        }
    }
    db.admin().flush().unwrap();
    for (first, snapshot) in &snapshots {
        assert_eq!(snapshot.iter(&family).unwrap().count() as u32, N - first);
    }
    drop(snapshots);
    db.close().unwrap();
}

/// With history, every one of them may still be seen: the memtable is flushed before their
/// fragments take much memory.
#[test]
fn overlapping_range_deletes_are_flushed_early() {
    const N: u32 = 3_000;
    for history in [HistoryPolicy::None, HistoryPolicy::Operations(u64::from(N))] {
        let db = open_queue(history);
        let family = db.default_family();
        for n in 0..N {
            db.put(queue_key(n), "message").unwrap();
            family.delete_range(queue_key(0)..queue_key(n)).unwrap();
        }
        db.admin().wait_idle().unwrap();
        assert!(db.admin().stats().counter("flushes").unwrap() >= 4);
        assert_eq!(db.iter().unwrap().count(), 1);
        db.close().unwrap();
    }
    // Range deletes that do not overlap stay in the memtable.
    let db = open_queue(HistoryPolicy::None);
    for n in 0..N {
        db.default_family().delete_range(queue_key(2 * n)..queue_key(2 * n + 1)).unwrap();
    }
    db.admin().wait_idle().unwrap();
    assert_eq!(db.admin().stats().counter("flushes").unwrap(), 0);
    db.close().unwrap();
}
