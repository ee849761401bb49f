//! Long scans checked against a sorted map. A scan returns consecutive entries of one run without
//! comparing all sources while that run is ahead of all others, so everything that can end such a
//! sequence is tested at every position: older versions, tombstones, entries newer than the
//! snapshot, other runs, the memtable, bounds, block ends and changes of direction. Also seeks
//! relative to the current position of the cursor.
#![allow(clippy::unwrap_used)]

use crate::common::Rng;
use perigee::env::Env;
use perigee::env::fs::memory::SimDisk;
use perigee::{Cursor, Db, FamilyOptions, Options, Snapshot};
use std::collections::BTreeMap;
use std::ops::Bound;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// Returns key `i` of one of three kinds: numbers, numbers behind a path, and a mix of both.
fn key(kind: u64, i: u64) -> Vec<u8> {
    match (kind, i % 3) {
        (0, _) | (2, 0) => i.to_be_bytes()[5..].to_vec(),
        _ => format!("a/path/to/many/rows/{i:06}").into_bytes(),
    }
}

/// A database of several runs and a memtable, with its expected contents at several snapshots.
struct World {
    db: Db,
    kind: u64,
    moments: Vec<(Snapshot, Map)>,
}

const KEYS: u64 = 2000;

fn build_database(rng: &mut Rng, seed: u64) -> World {
    let block = [200, 1000, 4096][seed as usize % 3];
    let family = FamilyOptions::new().block_bytes(block).level1_bytes(1 << 20);
    let options =
        Options::in_env(Env { fs: SimDisk::new(seed), ..Env::real() }).default_family(family);
    let db = Db::open("/scans", options).unwrap();
    let (kind, mut map, mut moments) = (seed / 3 % 3, Map::new(), Vec::new());
    let (interleaved, mix) = (seed > 9, |i: u64| (i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40);
    for round in 0..6 {
        // Long sequences of keys from one round, and single entries among those of other rounds.
        let (start, len) =
            if round == 0 { (0, KEYS) } else { (rng.below(KEYS), 1 + rng.below(KEYS / 2)) };
        let step = [1, 1, 2, 17][rng.below(4) as usize];
        // For some seeds each run has its own keys, interleaved with those of the other runs.
        let (start, len, step) = if interleaved { (0, KEYS, 1) } else { (start, len, step) };
        for i in (start..start + len).step_by(step) {
            if interleaved && mix(i) % 7 != u64::from(round) && mix(i + seed) % 50 > 0 {
                continue;
            }
            let k = key(kind, i % KEYS);
            let seldom = [1000, 10, 3][rng.below(3) as usize];
            if rng.below(seldom) == 1 {
                db.delete(&k).unwrap();
                map.remove(&k);
            } else {
                let v = vec![round; rng.below(60) as usize];
                db.put(&k, &v).unwrap();
                map.insert(k, v);
            }
        }
        if round % 2 == 1 {
            moments.push((db.snapshot().unwrap(), map.clone()));
        }
        match rng.below(8) {
            0 => db.admin().compact().unwrap(),
            1 => {}
            _ => db.admin().flush().unwrap(),
        }
    }
    moments.push((db.snapshot().unwrap(), map));
    World { db, kind, moments }
}

fn check(c: &mut Cursor, want: Option<(&Vec<u8>, &Vec<u8>)>) {
    assert_eq!(c.is_valid(), want.is_some());
    if let Some((k, v)) = want {
        assert_eq!(c.key(), &k[..]);
        assert_eq!(c.entry().unwrap(), (&k[..], &v[..]));
        assert_eq!(&c.value().unwrap()[..], &v[..]);
    }
}

#[test]
fn long_scans_match_model() {
    for seed in 1..=18u64 {
        let mut rng = Rng(seed * 7919);
        let w = build_database(&mut rng, seed);
        for turn in 0..40 {
            let (snapshot, map) = &w.moments[rng.below(w.moments.len() as u64) as usize];
            let mut ends = [key(w.kind, rng.below(KEYS)), key(w.kind, rng.below(KEYS))];
            ends.sort();
            let [low, high] = ends;
            let bounds = match rng.below(3) {
                0 => (Bound::Unbounded, Bound::Unbounded),
                1 => (Bound::Included(low), Bound::Excluded(high)),
                _ => (Bound::Excluded(low), Bound::Unbounded),
            };
            let map: Map = map
                .iter()
                .filter(|(k, _)| std::ops::RangeBounds::contains(&bounds, *k))
                .map(|(k, v)| (k.clone(), v.clone()))
                .collect();
            let mut c = snapshot.cursor_within(&w.db.default_family(), bounds).unwrap();
            let mut here: Option<Vec<u8>> = None;
            for _ in 0..20 {
                let to = key(w.kind, rng.below(KEYS));
                let n = rng.below([3, 20, 200][turn % 3]);
                match rng.below(6) {
                    0 | 1 => {
                        c.seek(&to).unwrap();
                        here = map.range(to..).next().map(|(k, _)| k.clone());
                    }
                    2 => {
                        c.seek_for_prev(&to).unwrap();
                        here = map.range(..=to).next_back().map(|(k, _)| k.clone());
                    }
                    3 => {
                        for _ in 0..n {
                            c.next().unwrap();
                            let Some(k) = here.take() else { break };
                            here = map
                                .range((Bound::Excluded(k), Bound::Unbounded))
                                .next()
                                .map(|(k, _)| k.clone());
                            check(&mut c, here.as_ref().map(|k| (k, &map[k])));
                        }
                    }
                    4 => {
                        for _ in 0..n {
                            c.prev().unwrap();
                            let Some(k) = here.take() else { break };
                            here = map.range(..k).next_back().map(|(k, _)| k.clone());
                            check(&mut c, here.as_ref().map(|k| (k, &map[k])));
                        }
                    }
                    _ => {
                        // Several seeks to nearby keys, some of which do not exist.
                        for _ in 0..n / 2 {
                            let Some(k) = here.take() else { break };
                            let mut to = map
                                .range(k..)
                                .nth(rng.below(4) as usize)
                                .map_or(vec![255], |(k, _)| k.clone());
                            if rng.below(3) == 0 {
                                to.push(0);
                            }
                            c.seek(&to).unwrap();
                            here = map.range(to..).next().map(|(k, _)| k.clone());
                            check(&mut c, here.as_ref().map(|k| (k, &map[k])));
                        }
                    }
                }
                check(&mut c, here.as_ref().map(|k| (k, &map[k])));
            }
        }
        drop(w.moments);
        w.db.close().unwrap();
    }
}
