//! Tests of the range tombstones of a memtable, against the same tombstones as fragments with all
//! sequence numbers.

use super::*;
use std::cmp::Ordering::{Greater, Less};

const C: KeyComparator = KeyComparator::Bytes;
const KEYS: u64 = 12;

fn key(n: u64) -> [u8; 1] {
    [b'a' + n as u8]
}

/// Returns boundary `n` of those around the keys.
fn boundary(n: u64) -> KeyBoundary {
    match n {
        0 => KeyBoundary::First,
        n if n > 2 * KEYS => KeyBoundary::Last,
        n if n % 2 == 1 => KeyBoundary::Before(key(n / 2).into()),
        n => KeyBoundary::After(key((n - 1) / 2).into()),
    }
}

/// Returns the same boundary under a comparator that ignores the case, with other bytes.
fn in_upper_case(boundary: KeyBoundary) -> KeyBoundary {
    match boundary {
        KeyBoundary::Before(key) => KeyBoundary::Before(key.to_ascii_uppercase()),
        KeyBoundary::After(key) => KeyBoundary::After(key.to_ascii_uppercase()),
        end => end,
    }
}

fn next_random(x: &mut u64, n: u64) -> u64 {
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    *x % n
}

fn all_history() -> SnapshotStripes {
    SnapshotStripes::new(Vec::new(), SeqNo::MAX).with_history_from(Some(SeqNo::ZERO))
}

/// Compares what readers at all sequence numbers see. `boundaries`: those of all tombstones.
fn check_readers(map: &TombstoneMap, model: &RangeTombstones, boundaries: &[KeyBoundary]) {
    let comparator = map.comparator;
    for at in (0..=map.newest_seq.0 + 1).chain([u64::MAX]).map(SeqNo) {
        let at_once = map.parts().fragments_at(at);
        let mut spans: Vec<(VisibleSpan<'_>, [u8; 1])> = Vec::new();
        for key in (0..KEYS).map(key) {
            let span = map.span_around(&key, |seq| seq <= at);
            let want = model.fragment_covering(comparator, &key).and_then(|f| f.newest_visible(at));
            let found = map.newest_covering(&key, |seq| seq <= at);
            assert_eq!((found, span.newest), (want, want), "{key:?} at {at}");
            let seqs = at_once.fragment_covering(comparator, &key).map(|f| f.seqs.clone());
            assert_eq!(seqs, want.map(|seq| vec![seq]), "{key:?} at {at}");
            assert!(span.begin.is_before(comparator, &key));
            assert!(!span.end.is_before(comparator, &key));
            // A span reaches at least to the nearest boundary of any tombstone.
            let all = || boundaries.iter().map(KeyBoundary::as_ref);
            let before = all().filter(|b| b.is_before(comparator, &key));
            let nearest = before.fold(KeyBoundaryRef::First, |a, b| a.larger(comparator, b));
            assert!(span.begin.cmp(comparator, nearest) != Greater, "{key:?} at {at}");
            let after = all().filter(|b| !b.is_before(comparator, &key));
            let nearest = after.fold(KeyBoundaryRef::Last, |a, b| a.smaller(comparator, b));
            assert!(span.end.cmp(comparator, nearest) != Less, "{key:?} at {at}");
            spans.push((span, key));
        }
        for (span, _) in &spans {
            for (other, key) in &spans {
                if span.begin.is_before(comparator, key) && !span.end.is_before(comparator, key) {
                    assert_eq!(span.newest, other.newest, "a span has one tombstone");
                }
            }
        }
    }
}

/// Compares what conflict checks find.
fn check_newer(map: &TombstoneMap, model: &RangeTombstones, range: (u64, u64), since: SeqNo) {
    let is_newer = |f: &&Arc<RangeTombstoneFragment>| f.seqs[0] > since;
    let newer = map.newer_ranges(since);
    assert!(newer.windows(2).all(|w| w[0].1.as_ref().cmp(C, w[1].0.as_ref()) == Less));
    for key in (0..KEYS).map(key) {
        let found = newer
            .iter()
            .any(|(b, e)| b.as_ref().is_before(C, &key) && !e.as_ref().is_before(C, &key));
        assert_eq!(found, model.fragment_covering(C, &key).filter(is_newer).is_some(), "{key:?}");
    }
    let (begin, end) = (boundary(range.0), boundary(range.1));
    if begin.as_ref().cmp(C, end.as_ref()) != Less {
        return;
    }
    let newer_from = |from: KeyBoundaryRef<'_>| {
        let (inside, _) = model.clip_to_range(C, from, end.as_ref());
        inside.fragments().iter().find(is_newer).map(|f| f.begin.clone())
    };
    let found = map.first_newer(begin.as_ref()..end.as_ref(), since);
    let inside = found.map(|found| found.larger(C, begin.as_ref()).to_boundary());
    assert_eq!(inside, newer_from(begin.as_ref()), "{range:?} since {since}");
}

#[test]
fn readers_see_the_tombstones_of_their_time() {
    let comparators = [C, KeyComparator::Reverse, KeyComparator::CaseInsensitive];
    for (number, comparator) in comparators.into_iter().enumerate() {
        let mut x = 7 + number as u64;
        for round in 0..150 {
            let (mut map, mut model) = (TombstoneMap::new(comparator), RangeTombstones::default());
            let (mut seq, mut boundaries) = (0, Vec::new());
            for _ in 0..next_random(&mut x, 14) {
                seq += 1 + next_random(&mut x, 3);
                let mut random_boundary = || {
                    let any = boundary(next_random(&mut x, 2 * KEYS + 2));
                    let upper =
                        comparator == KeyComparator::CaseInsensitive && next_random(&mut x, 2) == 0;
                    if upper { in_upper_case(any) } else { any }
                };
                let (a, b) = (random_boundary(), random_boundary());
                let grown = map.add(a.as_ref()..b.as_ref(), SeqNo(seq));
                let is_range = a.as_ref().cmp(comparator, b.as_ref()) == Less;
                assert_eq!(grown > 0, is_range);
                model.add(comparator, a.as_ref(), b.as_ref(), SeqNo(seq));
                if is_range {
                    boundaries.extend([a, b]);
                }
            }
            assert!(2 * (map.newest.len() + map.replaced.len()) <= 3 * boundaries.len());
            check_readers(&map, &model, &boundaries);
            let (all, model_all) =
                (map.parts().fragments(&all_history()), model.clone().coalesce(comparator));
            assert_eq!(all.fragments().len(), model_all.fragments().len(), "round {round}");
            for (f, want) in all.fragments().iter().zip(model_all.fragments()) {
                assert_eq!(f.seqs, want.seqs);
                assert!(f.begin.as_ref().cmp(comparator, want.begin.as_ref()).is_eq());
                assert!(f.end.as_ref().cmp(comparator, want.end.as_ref()).is_eq());
            }
            if comparator == C {
                let range = (next_random(&mut x, 2 * KEYS + 2), next_random(&mut x, 2 * KEYS + 2));
                check_newer(&map, &model, range, SeqNo(next_random(&mut x, seq + 2)));
            }
        }
    }
}

/// Tombstones that a transaction has rolled back are skipped, whatever is above and below them.
#[test]
fn invisible_tombstones_are_skipped() {
    let mut x = 5;
    for _ in 0..200 {
        let (mut map, mut visible) = (TombstoneMap::new(C), RangeTombstones::default());
        let mut rolled_back = Vec::new();
        for seq in 1..=next_random(&mut x, 20) {
            let (a, b) = (next_random(&mut x, 2 * KEYS + 1), next_random(&mut x, 2 * KEYS + 2));
            let (a, b) = (boundary(a.min(b)), boundary(a.max(b)));
            map.add(a.as_ref()..b.as_ref(), SeqNo(seq));
            if next_random(&mut x, 3) == 0 {
                rolled_back.push(SeqNo(seq));
            } else {
                visible.add(C, a.as_ref(), b.as_ref(), SeqNo(seq));
            }
        }
        let is_visible = |seq: SeqNo| !rolled_back.contains(&seq);
        for key in (0..KEYS).map(key) {
            let want = visible.fragment_covering(C, &key).map(|f| f.seqs[0]);
            assert_eq!(map.newest_covering(&key, is_visible), want);
            assert_eq!(map.span_around(&key, is_visible).newest, want);
        }
    }
}

#[test]
fn fragments_hold_what_snapshots_tell_apart() {
    let mut x = 99;
    for round in 0..300 {
        let (mut map, mut model) = (TombstoneMap::new(C), RangeTombstones::default());
        let n = 1 + next_random(&mut x, 20);
        for seq in 1..=n {
            let a = next_random(&mut x, 2 * KEYS + 1);
            let b = a + 1 + next_random(&mut x, 2 * KEYS + 1 - a);
            let (a, b) = (boundary(a), boundary(b));
            map.add(a.as_ref()..b.as_ref(), SeqNo(seq));
            model.add(C, a.as_ref(), b.as_ref(), SeqNo(seq));
        }
        let snapshots: Vec<SeqNo> =
            (0..next_random(&mut x, 4)).map(|_| SeqNo(next_random(&mut x, n + 1))).collect();
        let horizon = (round % 3 == 0).then(|| SeqNo(next_random(&mut x, n + 1)));
        let stripes = SnapshotStripes::new(snapshots.clone(), SeqNo(n)).with_history_from(horizon);
        let fragments = map.parts().fragments(&stripes);
        let history = horizon.map_or(n..=n, |h| h.0..=n).map(SeqNo);
        for at in snapshots.into_iter().chain(history) {
            for key in (0..KEYS).map(key) {
                let seen = |all: &RangeTombstones| {
                    all.fragment_covering(C, &key).and_then(|f| f.newest_visible(at))
                };
                assert_eq!(seen(&fragments), seen(&model), "{key:?} at {at}");
            }
        }
        for f in fragments.fragments() {
            let mut of_seqs: Vec<usize> = f.seqs.iter().map(|s| stripes.stripe_of(*s)).collect();
            of_seqs.dedup();
            assert_eq!(of_seqs.len(), f.seqs.len(), "one tombstone of each stripe");
        }
    }
}

/// Tombstones that all overlap each other, the worst case of fragments that list their tombstones.
#[test]
fn many_overlapping_tombstones_stay_linear() {
    const N: u64 = 20_000;
    let key = |n: u64| n.to_be_bytes();
    let deletes: [fn(u64) -> (u64, u64); 4] =
        [|i| (0, i + 1), |i| (N - i, N + i + 1), |i| (i, 2 * N - i), |i| (i, i + 100)];
    for deleted in deletes {
        let mut map = TombstoneMap::new(C);
        let mut bytes = 0;
        for i in 0..N {
            let (begin, end) = (key(deleted(i).0), key(deleted(i).1));
            let keys = KeyBoundaryRef::Before(&begin)..KeyBoundaryRef::Before(&end);
            bytes += map.add(keys, SeqNo(i + 1));
        }
        assert!(map.newest.len() + map.replaced.len() <= 3 * N as usize);
        assert!(bytes < 800 * N as usize, "{bytes}");
        for i in (0..N).step_by(999) {
            let visible = map.newest_covering(&key(deleted(i).0), |seq| seq.0 <= i + 1);
            assert_eq!(visible, Some(SeqNo(i + 1)));
        }
        let stripes = SnapshotStripes::new(vec![SeqNo(N / 2)], SeqNo(N));
        let fragments = map.parts().fragments(&stripes);
        assert!(fragments.tombstone_count() <= 6 * N, "{}", fragments.tombstone_count());
    }
}
