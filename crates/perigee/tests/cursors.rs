//! Random cursor moves checked against sorted lists: several cursors at once, each reading the
//! state at its creation, moving in both directions under concurrent writes, flushes and
//! compactions, under several comparators. With failing reads a cursor must return an error or the
//! correct entry, never another entry.
#![allow(clippy::unwrap_used)]

use crate::common::Rng;
use perigee::env::Env;
use perigee::env::fs::memory::SimDisk;
use perigee::{Cursor, Db, FamilyOptions, KeyComparator, Options, Snapshot};
use std::ops::Bound;
use std::sync::Arc;

impl Rng {
    /// Generates short keys from few letters, some with a long common prefix.
    fn key(&mut self) -> Vec<u8> {
        let start: &[u8] =
            [&b""[..], b"common/beginning/", b"common/beginning/of/many"][self.below(3) as usize];
        let n = self.below(4);
        let letters = (0..n)
            .map(|_| [0, 7, b'A', b'a', b'b', 255][self.below(6) as usize])
            .collect::<Vec<_>>();
        [start, &letters].concat()
    }
}

/// Expected entries in comparator order.
#[derive(Clone)]
struct Model {
    comparator: KeyComparator,
    entries: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Model {
    fn search(&self, key: &[u8]) -> Result<usize, usize> {
        self.entries.binary_search_by(|(k, _)| self.comparator.cmp(k, key))
    }
    fn put(&mut self, key: &[u8], value: &[u8]) {
        let entry = (key.to_vec(), value.to_vec());
        match self.search(key) {
            Ok(i) => self.entries[i] = entry,
            Err(i) => self.entries.insert(i, entry),
        }
    }
    fn delete(&mut self, key: &[u8]) {
        if let Ok(i) = self.search(key) {
            self.entries.remove(i);
        }
    }
}

/// A cursor, its expected entries, and its expected position.
struct CheckedCursor {
    cursor: Cursor,
    model: Model,
    at: Option<usize>,
}

impl CheckedCursor {
    fn new(db: &Db, snapshot: Option<&Snapshot>, mut model: Model, rng: &mut Rng) -> CheckedCursor {
        let (a, b) = (rng.key(), rng.key());
        let (low, high) = if model.comparator.cmp(&a, &b).is_le() { (a, b) } else { (b, a) };
        let low = [Bound::Unbounded, Bound::Included(low.clone()), Bound::Excluded(low)]
            [rng.below(3) as usize]
            .clone();
        let high = [Bound::Unbounded, Bound::Included(high.clone()), Bound::Excluded(high)]
            [rng.below(3) as usize]
            .clone();
        let comparator = model.comparator;
        model.entries.retain(|(k, _)| {
            let above = match &low {
                Bound::Unbounded => true,
                Bound::Included(l) => comparator.cmp(k, l).is_ge(),
                Bound::Excluded(l) => comparator.cmp(k, l).is_gt(),
            };
            above
                && match &high {
                    Bound::Unbounded => true,
                    Bound::Included(h) => comparator.cmp(k, h).is_le(),
                    Bound::Excluded(h) => comparator.cmp(k, h).is_lt(),
                }
        });
        let family = db.default_family();
        let cursor = match snapshot {
            Some(s) => s.cursor_within(&family, (low, high)).unwrap(),
            None => family.cursor_within((low, high)).unwrap(),
        };
        CheckedCursor { cursor, model, at: None }
    }

    /// Makes one move. The cursor must match the model unless it reports an error.
    fn step(&mut self, rng: &mut Rng, may_fail: bool) -> bool {
        let len = self.model.entries.len();
        let target = match rng.below(2) {
            0 if len > 0 => self.model.entries[rng.below(len as u64) as usize].0.clone(),
            _ => rng.key(),
        };
        let inside = |i: usize| (i < len).then_some(i);
        let moved = match rng.below(16) {
            0 => (self.at = inside(0), self.cursor.seek_to_first()).1,
            1 => (self.at = len.checked_sub(1), self.cursor.seek_to_last()).1,
            2..5 => {
                self.at = inside(self.model.search(&target).unwrap_or_else(|i| i));
                self.cursor.seek(&target)
            }
            5..8 => {
                self.at = match self.model.search(&target) {
                    Ok(i) => Some(i),
                    Err(i) => i.checked_sub(1),
                };
                self.cursor.seek_for_prev(&target)
            }
            8..12 => (self.at = self.at.and_then(|i| inside(i + 1)), self.cursor.next()).1,
            _ => (self.at = self.at.and_then(|i| i.checked_sub(1)), self.cursor.prev()).1,
        };
        if may_fail && moved.is_err() {
            assert!(!self.cursor.is_valid());
            self.at = None;
            return true;
        }
        moved.unwrap();
        assert_eq!(self.cursor.is_valid(), self.at.is_some());
        if let Some(i) = self.at {
            let (key, value) = &self.model.entries[i];
            assert_eq!(self.cursor.key(), key);
            if rng.below(3) == 0 {
                match self.cursor.entry() {
                    Err(_) if may_fail => return true,
                    found => assert_eq!(found.unwrap(), (&key[..], &value[..])),
                }
            }
            match self.cursor.value() {
                Err(_) if may_fail => return true,
                found => assert_eq!(&found.unwrap()[..], &value[..]),
            }
        }
        false
    }
}

fn open(disk: &Arc<SimDisk>, comparator: KeyComparator, x: u64, cache: u64) -> Db {
    let family = FamilyOptions::new()
        .comparator(comparator)
        .memtable_bytes([2 << 10, 64 << 10][(x / 8 % 2) as usize])
        .block_bytes([64, 256][(x / 4 % 2) as usize])
        .target_file_bytes(1 << 10)
        .level1_bytes(2 << 10)
        .level_ratio(3)
        .filter_bits([0, 10][(x % 2) as usize])
        .value_threshold([16, 4096][(x / 2 % 2) as usize]);
    let env = Env { fs: disk.clone(), ..Env::real() };
    Db::open("/cursors", Options::in_env(env).block_cache_bytes(cache).default_family(family))
        .unwrap()
}

/// Applies one random write to the database and the model.
fn write(db: &Db, model: &mut Model, rng: &mut Rng, n: u64) {
    let key = rng.key();
    match rng.below(40) {
        0 => db.admin().flush().unwrap(),
        1 if n.is_multiple_of(7) => db.admin().compact().unwrap(),
        2 => {
            let (a, b) = (key, rng.key());
            let (a, b) = if model.comparator.cmp(&a, &b).is_le() { (a, b) } else { (b, a) };
            db.default_family().delete_range(a.clone()..b.clone()).unwrap();
            let comparator = model.comparator;
            model
                .entries
                .retain(|(k, _)| comparator.cmp(k, &a).is_lt() || comparator.cmp(k, &b).is_ge());
        }
        3..12 => (db.delete(&key).unwrap(), model.delete(&key)).1,
        _ => {
            let value = vec![n as u8; [3, 40][rng.below(2) as usize]];
            db.put(&key, &value).unwrap();
            model.put(&key, &value);
        }
    }
}

#[test]
fn random_cursor_moves_match_sorted_list() {
    let comparators = [
        KeyComparator::Bytes,
        KeyComparator::Bytes,
        KeyComparator::Reverse,
        KeyComparator::CaseInsensitive,
    ];
    for case in 0..24u64 {
        let comparator = comparators[(case % 4) as usize];
        let rng = &mut Rng(1000 + case);
        let db =
            open(&SimDisk::new(case), comparator, case / 2, [0, 1 << 20][(case % 3 == 0) as usize]);
        let mut model = Model { comparator, entries: Vec::new() };
        let mut walkers: Vec<CheckedCursor> = Vec::new();
        let mut held: Option<(Snapshot, Model)> = None;
        for n in 0..1500 {
            write(&db, &mut model, rng, n);
            if n % 97 == 0 {
                held = Some((db.snapshot().unwrap(), model.clone()));
            }
            if n % 25 == 0 {
                let walker = match &held {
                    Some((s, old)) if rng.below(3) == 0 => {
                        CheckedCursor::new(&db, Some(s), old.clone(), rng)
                    }
                    _ => CheckedCursor::new(&db, None, model.clone(), rng),
                };
                walkers.push(walker);
                if walkers.len() > 5 {
                    walkers.swap_remove(rng.below(5) as usize);
                }
            }
            for _ in 0..6 {
                let i = rng.below(walkers.len() as u64) as usize;
                walkers[i].step(rng, false);
            }
        }
    }
}

/// A seek may position on a key before all sources were read. If a source that was skipped cannot
/// be read, the cursor must report the error before it returns any later key.
#[test]
fn unreadable_block_fails_cursor_instead_of_skipping() {
    let mut failed = 0;
    for case in 0..16u64 {
        let rng = &mut Rng(5000 + case);
        let disk = SimDisk::new(case);
        let db = open(&disk, KeyComparator::Bytes, case, 0);
        let mut model = Model { comparator: KeyComparator::Bytes, entries: Vec::new() };
        (0..600).for_each(|n| write(&db, &mut model, rng, n));
        db.admin().flush().unwrap();
        (0..5).for_each(|n| write(&db, &mut model, rng, 3 * n + 1));
        db.admin().wait_idle().unwrap();
        let mut walkers: Vec<CheckedCursor> =
            (0..4).map(|_| CheckedCursor::new(&db, None, model.clone(), rng)).collect();
        for _ in 0..3000 {
            if rng.below(8) == 0 {
                disk.fail_reads(
                    ["klog", "vlog", "2.klog", "5.klog"][rng.below(4) as usize],
                    1 + rng.below(2),
                );
            }
            let i = rng.below(4) as usize;
            failed += u64::from(walkers[i].step(rng, true));
        }
        disk.clear_faults();
    }
    assert!(failed > 500, "only {failed} reads failed");
}
