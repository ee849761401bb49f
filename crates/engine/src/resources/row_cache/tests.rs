//! Tests of the row cache without a database.

use super::*;
use std::collections::HashMap;

const KIB: u64 = 1 << 10;

fn cache(bytes: u64) -> RowCache {
    RowCache::new(Bytes(bytes), bytes / 64)
}

/// A key with a hash that depends on all of its bytes.
fn row_key(key: &[u8]) -> RowKey<'_> {
    RowKey::new(FamilyId(7), key, perigee_base::KeyComparator::Bytes.filter_hash(key))
}

fn read<'a>(key: &'a [u8], seq: u64, epoch: &'a RowCacheEpoch) -> RowRead<'a> {
    RowRead { key: row_key(key), seq: SeqNo(seq), epoch }
}

/// Returns the cached value: `Some(None)` for a key that does not exist.
fn find(cache: &RowCache, read: &RowRead<'_>) -> Option<Option<Vec<u8>>> {
    match cache.lookup(read) {
        RowLookup::Hit(row) => Some(row.value.map(|v| v.to_vec())),
        RowLookup::Miss | RowLookup::Skipped => None,
    }
}

#[test]
fn an_entry_serves_its_own_sequence_number_and_later_ones() {
    let (cache, epoch) = (cache(64 * KIB), RowCacheEpoch::default());
    cache.fill(&read(b"a", 5, &epoch), Some(b"value"), None);
    cache.fill(&read(b"b", 6, &epoch), None, None);
    cache.fill(&read(b"", 6, &epoch), Some(b""), None);
    assert_eq!(find(&cache, &read(b"a", 5, &epoch)), Some(Some(b"value".to_vec())));
    assert_eq!(find(&cache, &read(b"a", 50, &epoch)), Some(Some(b"value".to_vec())));
    assert_eq!(find(&cache, &read(b"a", 4, &epoch)), None, "an older snapshot");
    assert_eq!(find(&cache, &read(b"b", 6, &epoch)), Some(None), "a key that does not exist");
    assert_eq!(find(&cache, &read(b"", 6, &epoch)), Some(Some(Vec::new())));
    assert_eq!(find(&cache, &read(b"c", 6, &epoch)), None);
    let other = RowKey { family: FamilyId(8), ..row_key(b"a") };
    assert!(matches!(
        cache.lookup(&RowRead { key: other, seq: SeqNo(9), epoch: &epoch }),
        RowLookup::Miss
    ));
    let totals = cache.totals();
    assert_eq!((totals.rows, totals.hits, totals.misses), (3, 4, 3));
    assert_eq!(totals.used, cache.used_bytes());
}

#[test]
fn a_write_removes_the_row_and_rejects_older_readers() {
    let (cache, epoch) = (cache(64 * KIB), RowCacheEpoch::default());
    cache.fill(&read(b"a", 5, &epoch), Some(b"old"), None);
    cache.invalidate(&row_key(b"a"), SeqNo(6));
    assert_eq!(find(&cache, &read(b"a", 5, &epoch)), None);
    cache.fill(&read(b"a", 5, &epoch), Some(b"old"), None);
    assert_eq!(find(&cache, &read(b"a", 9, &epoch)), None, "the reader began before the write");
    cache.fill(&read(b"a", 6, &epoch), Some(b"new"), None);
    assert_eq!(find(&cache, &read(b"a", 9, &epoch)), Some(Some(b"new".to_vec())));
    assert_eq!(cache.totals().invalidations, 1);
}

#[test]
fn an_epoch_invalidates_all_rows_and_rejects_older_readers() {
    let (cache, epoch) = (cache(64 * KIB), RowCacheEpoch::default());
    cache.fill(&read(b"a", 5, &epoch), Some(b"old"), None);
    epoch.advance(SeqNo(7));
    epoch.advance(SeqNo(6));
    assert_eq!(find(&cache, &read(b"a", 9, &epoch)), None);
    cache.fill(&read(b"a", 6, &epoch), Some(b"old"), None);
    assert_eq!(find(&cache, &read(b"a", 9, &epoch)), None);
    cache.fill(&read(b"a", 7, &epoch), None, None);
    assert_eq!(find(&cache, &read(b"a", 9, &epoch)), Some(None));
    cache.remove_family(FamilyId(7));
    assert_eq!(cache.totals().rows, 0);
}

#[test]
fn expired_rows_are_removed_and_keep_their_expiry_until_then() {
    let (cache, epoch) = (cache(64 * KIB), RowCacheEpoch::default());
    cache.fill(&read(b"a", 5, &epoch), Some(b"x"), Some(Expiry(100)));
    let RowLookup::Hit(row) = cache.lookup(&read(b"a", 5, &epoch)) else { panic!("it is cached") };
    assert_eq!(row.expiry, Some(Expiry(100)));
    cache.remove_expired(&row_key(b"a"));
    assert_eq!(find(&cache, &read(b"a", 5, &epoch)), None);
}

/// Random operations beside a model of what may be found; the budget holds all the time.
#[test]
fn rows_found_are_those_of_a_model_within_the_budget() {
    for (seed, capacity) in [(1u64, 0), (2, 10 * KIB), (3, 200 * KIB), (4, 3 << 20)] {
        let (cache, epoch) = (cache(capacity), RowCacheEpoch::default());
        let mut model: HashMap<u64, (u64, Option<Vec<u8>>)> = HashMap::new();
        let mut state = seed;
        let mut below = move |n: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % n
        };
        let (mut seq, mut limit, mut hits) = (1, capacity, 0);
        for _ in 0..30_000 {
            let id = below(3000);
            let key = id.to_be_bytes();
            match below(100) {
                0..8 => {
                    seq += 1;
                    cache.invalidate(&row_key(&key), SeqNo(seq));
                    model.remove(&id);
                }
                8 if below(20) == 0 => {
                    seq += 1;
                    epoch.advance(SeqNo(seq));
                    model.clear();
                }
                9 if below(20) == 0 => {
                    limit = capacity / (1 + below(4));
                    cache.set_capacity(limit);
                }
                10..55 => {
                    let value = (below(5) > 0).then(|| vec![id as u8; below(200) as usize]);
                    let value = match model.get(&id) {
                        Some((_, value)) => value.clone(),
                        None => value,
                    };
                    cache.fill(&read(&key, seq, &epoch), value.as_deref(), None);
                    model.insert(id, (seq, value));
                }
                _ => {
                    if let Some(found) = find(&cache, &read(&key, seq, &epoch)) {
                        hits += 1;
                        assert_eq!(Some(&found), model.get(&id).map(|(_, value)| value));
                    }
                }
            }
            assert!(cache.used_bytes() <= limit, "{} of {limit}", cache.used_bytes());
        }
        assert!(hits > 500 || capacity < 100 * KIB, "{hits}");
        assert_eq!(cache.totals().used, cache.used_bytes());
    }
}

/// Rows that are read once do not displace rows that are read repeatedly.
#[test]
fn hot_rows_survive_reads_of_cold_rows() {
    let (cache, epoch) = (cache(64 * KIB), RowCacheEpoch::default());
    let get = |id: u64| {
        let key = id.to_be_bytes();
        let row = read(&key, 1, &epoch);
        let hit = find(&cache, &row).is_some();
        if !hit {
            cache.fill(&row, Some(&[0; 100]), None);
        }
        hit
    };
    let mut hits = 0;
    for round in 0..2000u64 {
        hits += (0..20).filter(|id| get(*id)).count();
        (0..20).for_each(|id| {
            get(1000 + round * 20 + id);
        });
    }
    assert!(hits > 1900 * 20, "{hits}");
}

/// Without a hot set, a full cache skips most lookups; with one, it serves all of them again.
#[test]
fn low_hit_rate_skips_lookups() {
    let (cache, epoch) = (cache(64 * KIB), RowCacheEpoch::default());
    let get = |id: u64| {
        let key = id.to_be_bytes();
        let row = read(&key, 1, &epoch);
        match cache.lookup(&row) {
            RowLookup::Hit(_) => 'h',
            RowLookup::Miss => {
                cache.fill(&row, Some(&[0; 100]), None);
                'm'
            }
            RowLookup::Skipped => 's',
        }
    };
    let run = |ids: u64| -> String { (0..100_000).map(|i| get(i * 7919 % ids)).collect() };
    run(1_000_000);
    let cold = run(1_000_000);
    let skipped = cold.chars().filter(|c| *c == 's').count();
    assert!(skipped > 90_000, "{skipped}");
    run(100);
    let hot = run(100);
    let hits = hot.chars().filter(|c| *c == 'h').count();
    assert!(hits > 90_000 && !hot.contains('s'), "{hits}");
}

/// Lookups of absent keys that a filter answers are skipped, even if there is room.
#[test]
fn uncached_results_skip_lookups() {
    let (cache, epoch) = (cache(1 << 20), RowCacheEpoch::default());
    let mut skipped = 0;
    for id in 0..100_000u64 {
        let key = id.to_be_bytes();
        match cache.lookup(&read(&key, 1, &epoch)) {
            RowLookup::Skipped => skipped += 1,
            _ => cache.count_uncached(&row_key(&key)),
        }
    }
    assert!(skipped > 50_000, "{skipped}");
}

/// Small rows, then large ones, which have fewer slots than there are.
#[test]
fn large_rows_replace_small_ones() {
    let (cache, epoch) = (cache(64 * KIB), RowCacheEpoch::default());
    let fill_all = |ids: u64, shift: u32, value: &[u8]| {
        for id in 0..ids {
            for _ in 0..3 {
                cache.fill(&read(&(id << shift).to_be_bytes(), 1, &epoch), Some(value), None);
            }
        }
        cache.totals().rows
    };
    let (small, large) = (fill_all(5000, 0, &[]), fill_all(500, 32, &[0; 4000]));
    assert!(small > 500 && large < 20, "{small}, {large}");
    assert!(cache.used_bytes() <= 64 * KIB && cache.used_bytes() > 32 * KIB);
    assert!(fill_all(5000, 16, &[]) > 500);
}
