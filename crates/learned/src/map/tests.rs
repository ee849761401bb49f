//! The map beside `BTreeMap`, over many kinds of keys.

use super::*;
use crate::testing::{KINDS, Rng, key};
use std::collections::BTreeMap;

fn memory_is_bounded(map: &Map<u64, u64>, factor: usize) {
    let bound = factor * map.len() * 18 + (8 << 10) + 16 * 8;
    assert!(map.memory_bytes() <= bound, "{} bytes for {} entries", map.memory_bytes(), map.len());
}

fn same(map: &Map<u64, u64>, model: &BTreeMap<u64, u64>) {
    map.all.check();
    assert_eq!(map.len(), model.len());
    assert!(map.iter().map(|(k, &v)| (k, v)).eq(model.iter().map(|(&k, &v)| (k, v))));
    assert!(map.iter().rev().map(|(k, &v)| (k, v)).eq(model.iter().rev().map(|(&k, &v)| (k, v))));
}

fn ranges_agree(map: &Map<u64, u64>, model: &BTreeMap<u64, u64>, a: u64, b: u64, rng: &mut Rng) {
    let (a, b) = (a.min(b), a.max(b));
    let pick = |k, n| match n {
        0 => Bound::Included(k),
        1 => Bound::Excluded(k),
        _ => Bound::Unbounded,
    };
    let (from, to) = (pick(a, rng.below(3)), pick(b, rng.below(3)));
    if matches!((from, to), (Bound::Excluded(x), Bound::Excluded(y)) if x == y) {
        assert_eq!(map.range((from, to)).next(), None); // BTreeMap panics here
        return;
    }
    let (mut mine, mut theirs) = (map.range((from, to)), model.range((from, to)));
    // Both ends in any order, until they meet.
    for _ in 0..60 {
        if rng.below(2) == 0 {
            assert_eq!(mine.next(), theirs.next().map(|(&k, v)| (k, v)));
        } else {
            assert_eq!(mine.next_back(), theirs.next_back().map(|(&k, v)| (k, v)));
        }
    }
}

#[test]
fn it_is_a_btree_map() {
    for (k, kind) in KINDS.iter().enumerate() {
        for seed in 0..4 {
            let mut rng = Rng::new(1000 * k as u64 + seed);
            let (mut map, mut model) = (Map::new(), BTreeMap::new());
            // Phases that grow and phases that shrink; keys of other kinds mixed in.
            for i in 0..30_000u64 {
                let other = KINDS[rng.below(KINDS.len() as u64) as usize];
                let kind = if seed == 3 && rng.below(10) == 0 { other } else { kind };
                let now = key(kind, i, &mut rng);
                let grows = i / 10_000 != 1;
                // Of those that are there, and near them.
                let there = model.range(now..).next().map_or(now, |(&k, _)| k);
                match rng.below(100) {
                    0..70 if grows => assert_eq!(map.insert(now, i), model.insert(now, i)),
                    0..60 => assert_eq!(map.remove(there), model.remove(&there)),
                    60..70 => assert_eq!(map.insert(there, i), model.insert(there, i)),
                    70..80 => assert_eq!(map.remove(there), model.remove(&there)),
                    80..84 => {
                        *map.entry(now).and_modify(|v| *v += 1).or_insert(i) += 3;
                        *model.entry(now).and_modify(|v| *v += 1).or_insert(i) += 3;
                    }
                    84..98 => {
                        assert_eq!(map.get(now), model.get(&now));
                        assert_eq!(map.get_mut(there), model.get_mut(&there));
                        assert_eq!(map.contains(there), model.contains_key(&there));
                    }
                    _ => ranges_agree(&map, &model, now, there.wrapping_add(rng.next() >> 8), &mut rng),
                }
                if i % 3000 == 2999 {
                    same(&map, &model);
                    memory_is_bounded(&map, 3);
                }
            }
            assert_eq!(map.first().map(|e| e.0), model.keys().next().copied());
            assert_eq!(map.last().map(|e| e.0), model.keys().next_back().copied());
            assert!(map.clone().into_iter().eq(model.clone()));
            // To nothing, and on.
            while let Some((k, _)) = model.pop_first() {
                assert!(map.remove(k).is_some());
            }
            assert!(map.is_empty() && map.iter().next().is_none() && map.memory_bytes() < 1000);
            map.insert(7, 7);
            assert_eq!(map.get(7), Some(&7));
        }
    }
}

#[test]
fn memory_stays_bounded_while_loading_and_emptying() {
    for kind in KINDS {
        let mut rng = Rng::new(9);
        let mut map = Map::new();
        for i in 0..60_000 {
            map.insert(key(kind, i, &mut rng), i);
            if i % 1000 == 0 {
                memory_is_bounded(&map, 2);
            }
        }
        map.all.check();
        // All but every hundredth: leaves that are nearly empty must join.
        let keys: Vec<u64> = map.iter().map(|e| e.0).collect();
        for (i, k) in keys.iter().enumerate().filter(|(i, _)| i % 100 != 0) {
            assert!(map.remove(*k).is_some());
            if i % 1000 == 1 {
                memory_is_bounded(&map, 3);
            }
        }
        map.all.check();
        assert_eq!(map.len(), keys.len().div_ceil(100));
        memory_is_bounded(&map, 3);
    }
}

#[test]
fn sorted_loads_are_what_inserts_are() {
    for kind in KINDS {
        for n in [0, 1, 2, 1000, 1228, 1229, 40_000] {
            let mut rng = Rng::new(n);
            let model: BTreeMap<u64, u64> = (0..n).map(|i| (key(kind, i, &mut rng), i)).collect();
            let map = Map::from_sorted(model.clone());
            same(&map, &model);
            memory_is_bounded(&map, 2);
        }
        // Out of order from somewhere on.
        let mut rng = Rng::new(3);
        let entries: Vec<(u64, u64)> =
            (0..3000).map(|i| (i, i)).chain((0..3000).map(|i| (key(kind, i, &mut rng), i))).collect();
        same(&entries.iter().copied().collect(), &entries.iter().copied().collect());
    }
}

#[test]
fn values_are_dropped_once() {
    use std::rc::Rc;
    let one = Rc::new(());
    let mut rng = Rng::new(5);
    let mut map = Map::new();
    for i in 0..20_000 {
        map.insert(key("lognormal", i, &mut rng), one.clone());
        if i % 3 == 0 {
            map.remove(key("lognormal", i, &mut rng));
            let some = map.range(rng.next() >> 34..).next().map(|e| e.0);
            some.map(|k| map.remove(k));
        }
    }
    assert_eq!(Rc::strong_count(&one), map.len() + 1);
    let other = map.clone();
    map.clear();
    assert_eq!(Rc::strong_count(&one), other.len() + 1);
    assert_eq!(other.into_iter().take(10).count(), 10);
    assert_eq!(Rc::strong_count(&one), 1);
}

#[test]
fn values_without_size_and_keys_of_other_types() {
    let mut set: Map<i16, ()> = Map::new();
    (i16::MIN..=i16::MAX).rev().step_by(3).for_each(|k| assert_eq!(set.insert(k, ()), None));
    assert!(set.iter().map(|e| e.0).is_sorted());
    assert_eq!(set.range(-5..5).count(), (-5..5).filter(|k| set.contains(*k)).count());
    assert_eq!(set.range(-5..5).count(), 4);
}
