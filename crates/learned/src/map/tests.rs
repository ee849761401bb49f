//! Tests the map against `BTreeMap`, over many key distributions.

use super::*;
use crate::testing::{KEY_KINDS, LearnedTestRng, key_of_kind};
use std::collections::BTreeMap;

fn assert_memory_bounded(map: &Map<u64, u64>, factor: usize) {
    let bound = factor * map.len() * 18 + (8 << 10) + 16 * 8;
    assert!(map.memory_bytes() <= bound, "{} bytes for {} entries", map.memory_bytes(), map.len());
}

fn assert_same(map: &Map<u64, u64>, model: &BTreeMap<u64, u64>) {
    map.directory.check();
    assert_eq!(map.len(), model.len());
    assert!(map.iter().map(|(k, &v)| (k, v)).eq(model.iter().map(|(&k, &v)| (k, v))));
    assert!(map.iter().rev().map(|(k, &v)| (k, v)).eq(model.iter().rev().map(|(&k, &v)| (k, v))));
}

fn assert_same_range(
    map: &Map<u64, u64>,
    model: &BTreeMap<u64, u64>,
    a: u64,
    b: u64,
    rng: &mut LearnedTestRng,
) {
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
    // Advances both ends in random order until they meet.
    for _ in 0..60 {
        if rng.below(2) == 0 {
            assert_eq!(mine.next(), theirs.next().map(|(&k, v)| (k, v)));
        } else {
            assert_eq!(mine.next_back(), theirs.next_back().map(|(&k, v)| (k, v)));
        }
    }
}

#[test]
fn map_matches_btree_map() {
    for (k, kind) in KEY_KINDS.iter().enumerate() {
        for seed in 0..4 {
            let mut rng = LearnedTestRng::new(1000 * k as u64 + seed);
            let (mut map, mut model) = (Map::new(), BTreeMap::new());
            // Alternates phases of growth and shrinking, with keys of other distributions mixed in.
            for i in 0..30_000u64 {
                let other = KEY_KINDS[rng.below(KEY_KINDS.len() as u64) as usize];
                let kind = if seed == 3 && rng.below(10) == 0 { other } else { kind };
                let now = key_of_kind(kind, i, &mut rng);
                let grows = i / 10_000 != 1;
                // An existing key near the new one.
                let existing = model.range(now..).next().map_or(now, |(&k, _)| k);
                match rng.below(100) {
                    0..70 if grows => assert_eq!(map.insert(now, i), model.insert(now, i)),
                    0..60 => assert_eq!(map.remove(existing), model.remove(&existing)),
                    60..70 => assert_eq!(map.insert(existing, i), model.insert(existing, i)),
                    70..80 => assert_eq!(map.remove(existing), model.remove(&existing)),
                    80..84 => {
                        *map.entry(now).and_modify(|v| *v += 1).or_insert(i) += 3;
                        *model.entry(now).and_modify(|v| *v += 1).or_insert(i) += 3;
                    }
                    84..98 => {
                        assert_eq!(map.get(now), model.get(&now));
                        assert_eq!(map.get_mut(existing), model.get_mut(&existing));
                        assert_eq!(map.contains(existing), model.contains_key(&existing));
                    }
                    _ => assert_same_range(
                        &map,
                        &model,
                        now,
                        existing.wrapping_add(rng.next() >> 8),
                        &mut rng,
                    ),
                }
                if i % 3000 == 2999 {
                    assert_same(&map, &model);
                    assert_memory_bounded(&map, 3);
                }
            }
            assert_eq!(map.first().map(|e| e.0), model.keys().next().copied());
            assert_eq!(map.last().map(|e| e.0), model.keys().next_back().copied());
            assert!(map.clone().into_iter().eq(model.clone()));
            // Empties the map, then uses it again.
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
    for kind in KEY_KINDS {
        let mut rng = LearnedTestRng::new(9);
        let mut map = Map::new();
        for i in 0..60_000 {
            map.insert(key_of_kind(kind, i, &mut rng), i);
            if i % 1000 == 0 {
                assert_memory_bounded(&map, 2);
            }
        }
        map.directory.check();
        // Removes all but every hundredth key: nearly empty leaves must be merged.
        let keys: Vec<u64> = map.iter().map(|e| e.0).collect();
        for (i, k) in keys.iter().enumerate().filter(|(i, _)| i % 100 != 0) {
            assert!(map.remove(*k).is_some());
            if i % 1000 == 1 {
                assert_memory_bounded(&map, 3);
            }
        }
        map.directory.check();
        assert_eq!(map.len(), keys.len().div_ceil(100));
        assert_memory_bounded(&map, 3);
    }
}

#[test]
fn from_sorted_matches_inserts() {
    for kind in KEY_KINDS {
        for n in [0, 1, 2, 1000, 1228, 1229, 40_000] {
            let mut rng = LearnedTestRng::new(n);
            let model: BTreeMap<u64, u64> =
                (0..n).map(|i| (key_of_kind(kind, i, &mut rng), i)).collect();
            let map = Map::from_sorted(model.clone());
            assert_same(&map, &model);
            assert_memory_bounded(&map, 2);
        }
        // Input that is sorted only at the beginning.
        let mut rng = LearnedTestRng::new(3);
        let entries: Vec<(u64, u64)> = (0..3000)
            .map(|i| (i, i))
            .chain((0..3000).map(|i| (key_of_kind(kind, i, &mut rng), i)))
            .collect();
        assert_same(&entries.iter().copied().collect(), &entries.iter().copied().collect());
    }
}

#[test]
fn values_are_dropped_once() {
    use std::rc::Rc;
    let one = Rc::new(());
    let mut rng = LearnedTestRng::new(5);
    let mut map = Map::new();
    for i in 0..20_000 {
        map.insert(key_of_kind("lognormal", i, &mut rng), one.clone());
        if i % 3 == 0 {
            map.remove(key_of_kind("lognormal", i, &mut rng));
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
fn zero_sized_values_and_other_key_types_work() {
    let mut set: Map<i16, ()> = Map::new();
    (i16::MIN..=i16::MAX).rev().step_by(3).for_each(|k| assert_eq!(set.insert(k, ()), None));
    assert!(set.iter().map(|e| e.0).is_sorted());
    assert_eq!(set.range(-5..5).count(), (-5..5).filter(|k| set.contains(*k)).count());
    assert_eq!(set.range(-5..5).count(), 4);
}
