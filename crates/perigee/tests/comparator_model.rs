//! All factors that affect what a cursor sees, under five comparators, checked against a sorted
//! list: bounds, both directions, changes of direction, nearby seeks, held snapshots.
#![allow(clippy::unwrap_used)]

use crate::common::Rng;
use perigee::env::Env;
use perigee::env::fs::memory::SimDisk;
use perigee::{Db, FamilyOptions, Options};
use std::sync::Arc;

fn options(disk: &Arc<SimDisk>) -> Options {
    Options::in_env(Env { fs: disk.clone(), ..Env::real() })
}

type Model = Vec<(Vec<u8>, Vec<u8>)>;

fn search(o: perigee::KeyComparator, m: &Model, k: &[u8]) -> Result<usize, usize> {
    m.binary_search_by(|(a, _)| o.cmp(a, k))
}

fn make_key(o: perigee::KeyComparator, n: u64) -> Vec<u8> {
    match o {
        perigee::KeyComparator::U64 | perigee::KeyComparator::I64 => {
            (n.wrapping_sub(150).wrapping_mul(0x0101_0101)).to_le_bytes().to_vec()
        }
        perigee::KeyComparator::CaseInsensitive => {
            if n % 2 == 0 { format!("Key/{n:04}") } else { format!("kEY/{n:04}") }.into_bytes()
        }
        _ => match n % 3 {
            0 => format!("common/beginning/{n:04}").into_bytes(),
            1 => format!("common/beginning/{:04}/and/more", n / 3).into_bytes(),
            _ => (n as u32 * 77_777).to_be_bytes().to_vec(),
        },
    }
}

struct HeldSnapshot {
    snap: Option<perigee::Snapshot>,
    cursor: perigee::Cursor,
    within: (std::ops::Bound<Vec<u8>>, std::ops::Bound<Vec<u8>>),
    model: Model,
    at: Option<usize>,
}

fn check_random_moves(o: perigee::KeyComparator, h: &mut HeldSnapshot, rng: &mut Rng, case: &str) {
    use std::ops::Bound::*;
    let inside = |k: &[u8]| {
        (match &h.within.0 {
            Included(a) => o.cmp(k, a).is_ge(),
            Excluded(a) => o.cmp(k, a).is_gt(),
            Unbounded => true,
        }) && (match &h.within.1 {
            Included(a) => o.cmp(k, a).is_le(),
            Excluded(a) => o.cmp(k, a).is_lt(),
            Unbounded => true,
        })
    };
    let m: Vec<&(Vec<u8>, Vec<u8>)> = h.model.iter().filter(|(k, _)| inside(k)).collect();
    let check = |c: &mut perigee::Cursor, at: Option<usize>, what: &str, how: u64| {
        assert_eq!(c.is_valid(), at.is_some(), "{case} {what} {at:?}");
        if let Some(i) = at {
            assert_eq!(c.key(), &m[i].0[..], "{case} {what}");
            if how == 0 {
                assert_eq!(&c.value().unwrap()[..], &m[i].1[..], "{case} {what}");
            } else if how == 1 {
                let (k, v) = c.entry().unwrap();
                assert_eq!((k, v), (&m[i].0[..], &m[i].1[..]), "{case} {what}");
            }
        }
    };
    for _ in 0..6 {
        match rng.below(9) {
            0 => {
                h.cursor.seek_to_first().unwrap();
                h.at = (!m.is_empty()).then_some(0);
            }
            1 => {
                h.cursor.seek_to_last().unwrap();
                h.at = m.len().checked_sub(1);
            }
            2 => {
                let k = make_key(o, rng.below(300));
                h.cursor.seek(&k).unwrap();
                h.at =
                    Some(m.partition_point(|(a, _)| o.cmp(a, &k).is_lt())).filter(|i| *i < m.len());
            }
            3 => {
                let k = make_key(o, rng.below(300));
                h.cursor.seek_for_prev(&k).unwrap();
                h.at = m.partition_point(|(a, _)| o.cmp(a, &k).is_le()).checked_sub(1);
            }
            // Several seeks to nearby keys.
            4 => {
                for _ in 0..6 {
                    let Some(i) = h.at else { break };
                    let to = (i + rng.below(8) as usize).min(m.len() - 1);
                    let mut k = m[to].0.clone();
                    if rng.below(3) == 0 && o == perigee::KeyComparator::Bytes {
                        k.push(0);
                    }
                    h.cursor.seek(&k).unwrap();
                    h.at = Some(m.partition_point(|(a, _)| o.cmp(a, &k).is_lt()))
                        .filter(|i| *i < m.len());
                    check(&mut h.cursor, h.at, "seek on", rng.below(4));
                }
            }
            5 | 6 => {
                for _ in 0..rng.below(60) {
                    h.cursor.next().unwrap();
                    h.at = h.at.map(|i| i + 1).filter(|i| *i < m.len());
                    check(&mut h.cursor, h.at, "next", rng.below(4));
                }
            }
            _ => {
                for _ in 0..rng.below(60) {
                    h.cursor.prev().unwrap();
                    h.at = h.at.and_then(|i| i.checked_sub(1));
                    check(&mut h.cursor, h.at, "prev", rng.below(4));
                }
            }
        }
        check(&mut h.cursor, h.at, "step", rng.below(3));
    }
}

#[test]
fn random_operations_match_model_under_comparators() {
    use perigee::KeyComparator;
    let (first, cases) = (0, 40);
    for case in first..first + cases {
        let rng = &mut Rng(0x9E37_79B9_7F4A_7C15 ^ ((case + 1) * 7919));
        let o = [
            KeyComparator::Bytes,
            KeyComparator::Bytes,
            KeyComparator::Reverse,
            KeyComparator::U64,
            KeyComparator::I64,
            KeyComparator::CaseInsensitive,
        ][rng.below(6) as usize];
        let disk = SimDisk::new(case);
        let family = FamilyOptions::new()
            .comparator(o)
            .memtable_bytes(4 << 10)
            .target_file_bytes(8 << 10)
            .block_bytes([128, 512, 2048][rng.below(3) as usize])
            .value_threshold([40, 1 << 20][rng.below(2) as usize]);
        let mut db = Db::open("/db", options(&disk)).unwrap();
        let mut f = db.create_family("f", family.clone()).unwrap();
        let mut model = Model::new();
        let mut held: Vec<HeldSnapshot> = Vec::new();
        for step in 0..500u64 {
            let what = format!("case {case} step {step} {o:?}");
            match rng.below(40) {
                0..=15 => {
                    let from = rng.below(300);
                    for n in from..(from + rng.below(25)).min(300) {
                        let (k, v) = (make_key(o, n), vec![step as u8; rng.below(60) as usize]);
                        f.put(&k, &v).unwrap();
                        match search(o, &model, &k) {
                            Ok(i) => model[i] = (k, v),
                            Err(i) => model.insert(i, (k, v)),
                        }
                    }
                }
                16..=18 => {
                    let k = make_key(o, rng.below(300));
                    f.delete(&k).unwrap();
                    if let Ok(i) = search(o, &model, &k) {
                        model.remove(i);
                    }
                }
                19 => {
                    let (a, b) = (make_key(o, rng.below(300)), make_key(o, rng.below(300)));
                    let (a, b) = if o.cmp(&a, &b).is_gt() { (b, a) } else { (a, b) };
                    if o.cmp(&a, &b).is_lt() {
                        f.delete_range(a.clone()..b.clone()).unwrap();
                        model.retain(|(k, _)| o.cmp(k, &a).is_lt() || o.cmp(k, &b).is_ge());
                    }
                }
                20 | 21 => {
                    let mut load = f.bulk_load().unwrap();
                    let from = rng.below(300);
                    for n in from..(from + rng.below(60)).min(300) {
                        let (k, v) = (make_key(o, n), vec![step as u8; rng.below(60) as usize]);
                        load.put(&k, &v).unwrap();
                        match search(o, &model, &k) {
                            Ok(i) => model[i] = (k, v),
                            Err(i) => model.insert(i, (k, v)),
                        }
                    }
                    load.finish().unwrap();
                }
                22 | 23 => f.flush().unwrap(),
                24 => f.compact().unwrap(),
                25 => {
                    let (a, b) = (make_key(o, rng.below(300)), make_key(o, rng.below(300)));
                    let (a, b) = if o.cmp(&a, &b).is_gt() { (b, a) } else { (a, b) };
                    f.compact_range(a..b).unwrap();
                }
                26 => db.admin().wait_idle().unwrap(),
                27 if rng.below(4) == 0 => {
                    held.clear();
                    drop(f);
                    db.close().unwrap();
                    db = Db::open("/db", options(&disk)).unwrap();
                    f = db.family("f").unwrap();
                }
                28..=30 => {
                    use std::ops::Bound::*;
                    let bound = |rng: &mut Rng| match rng.below(5) {
                        0 => Included(make_key(o, rng.below(300))),
                        1 => Excluded(make_key(o, rng.below(300))),
                        _ => Unbounded,
                    };
                    let within = (bound(rng), bound(rng));
                    let ok = match (&within.0, &within.1) {
                        (Included(a) | Excluded(a), Included(b) | Excluded(b)) => {
                            o.cmp(a, b).is_lt()
                        }
                        _ => true,
                    };
                    if ok {
                        let snap = (rng.below(2) == 0).then(|| db.snapshot().unwrap());
                        let cursor = f.cursor_within(within.clone()).unwrap();
                        held.push(HeldSnapshot {
                            snap,
                            cursor,
                            within,
                            model: model.clone(),
                            at: None,
                        });
                    }
                    if held.len() > 5 {
                        held.remove(0);
                    }
                }
                31 => {
                    if let Some(h) = held.last_mut()
                        && let Some(s) = &h.snap
                    {
                        h.cursor = s.cursor_within(&f, h.within.clone()).unwrap();
                        h.at = None;
                    }
                }
                32 => {
                    // Check all entries by `get`.
                    for n in 0..300 {
                        let k = make_key(o, n);
                        let want = search(o, &model, &k).ok().map(|i| model[i].1.clone());
                        assert_eq!(f.get(&k).unwrap(), want, "{what}");
                        for h in held.iter().filter(|h| h.snap.is_some()) {
                            let want = search(o, &h.model, &k).ok().map(|i| h.model[i].1.clone());
                            assert_eq!(
                                h.snap.as_ref().unwrap().get(&f, &k).unwrap(),
                                want,
                                "{what}"
                            );
                        }
                    }
                }
                _ => held.iter_mut().for_each(|h| check_random_moves(o, h, rng, &what)),
            }
        }
        held.clear();
        assert!(db.admin().verify().unwrap().errors.is_empty());
    }
}
