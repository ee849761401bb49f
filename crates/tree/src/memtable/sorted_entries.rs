//! Sorts entries by key prefix into immutable runs. Pure functions, independent of when sorting is
//! needed.
//!
//! ```text
//! item, 128 bits:   key prefix 88 | end of the key 8 | inverted entry number 32
//! ```
//! The prefix is the eleven bytes of a key after the prefix common to all keys, encoded as a number
//! that never decreases in key order ([`PrefixEncoding`]). The end says how many of them belong to
//! the key, and so makes the prefix of a short key the whole key: items of such keys are compared
//! without reading them. Items with equal prefixes of longer keys are compared by their full keys.
//! Among the versions of one key the newest comes first, which has the largest number. Items
//! therefore sort in entry order, except for longer keys with equal prefixes.
//!
//! Invariant: the runs of a [`SortedEntries`] hold every entry below `entry_count` exactly once.

use crate::limits::{COMPARE_SORT_MAX, PREFIX_DEPTH_MAX, READER_MERGE_MAX, READER_RUNS_MAX};
use perigee_base::KeyComparator;
use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

/// A key's prefix and an entry of that key.
pub type SortItem = u128;

/// Runs shorter than this are merged with any following run, as that moves few bytes. Longer runs
/// are merged with runs of similar length, to the next power of two: each entry is moved a
/// logarithmic number of times, and a scan merges a logarithmic number of runs.
const SHORT_RUN_ITEMS: usize = 64;

/// Returns true if two adjacent runs are to be merged.
fn have_similar_length(before: &[SortItem], after: &[SortItem]) -> bool {
    before.len().ilog2() <= after.len().max(SHORT_RUN_ITEMS).ilog2()
}

/// Number of bytes of a key in its prefix.
const PREFIX_LEN: usize = 11;
/// End of a key of which the prefix contains `n` bytes and nothing else: `END_AFTER + n`.
const END_AFTER: u8 = 1;
/// End of a key that is longer than the prefix.
const END_BEYOND: u8 = END_AFTER + PREFIX_LEN as u8 + 1;
/// End of a key that is shorter than the integers of its comparator.
const END_TOO_SHORT: u8 = 0;

/// The prefix of a key and its end, as a number of 96 bits.
type KeyPrefix = u128;

/// Access to the keys of entries by number.
pub trait EntryKeys {
    /// Returns the key of an entry.
    fn key(&self, entry: u32) -> &[u8];
}

/// Encoding of key prefixes as numbers.
#[derive(Clone, Copy, Debug)]
pub struct PrefixEncoding {
    /// Comparator under which only identical bytes are equal keys.
    pub comparator: KeyComparator,
    /// Length of the prefix common to all keys.
    pub common_len: usize,
}

impl PrefixEncoding {
    /// Returns true if a common prefix may be skipped, because the comparator compares bytes from
    /// the first one on.
    pub fn can_skip_common(comparator: KeyComparator) -> bool {
        matches!(comparator, KeyComparator::Bytes | KeyComparator::Reverse)
    }

    /// Returns the prefix of a key as a number that never decreases in key order.
    #[inline]
    pub fn encode(self, key: &[u8]) -> KeyPrefix {
        match self.comparator {
            KeyComparator::Reverse => bytes_at(key, self.common_len) ^ (KeyPrefix::MAX >> 32),
            KeyComparator::U64 | KeyComparator::I64 => {
                let (number, end) = match <[u8; 8]>::try_from(key) {
                    Ok(n) if self.comparator == KeyComparator::U64 => {
                        (u64::from_le_bytes(n), END_AFTER + 8)
                    }
                    Ok(n) => (u64::from_le_bytes(n) ^ 1 << 63, END_AFTER + 8),
                    Err(_) if key.len() < 8 => (0, END_TOO_SHORT),
                    Err(_) => (u64::MAX, END_BEYOND),
                };
                KeyPrefix::from(number) << 32 | KeyPrefix::from(end)
            }
            _ => bytes_at(key, self.common_len),
        }
    }
    /// Returns true if all keys with this prefix are the same key.
    #[inline]
    fn is_whole_key(self, prefix: KeyPrefix) -> bool {
        let end = prefix as u8;
        let end = if self.comparator == KeyComparator::Reverse { !end } else { end };
        (END_AFTER..END_BEYOND).contains(&end)
    }
    fn make_item(self, key: &[u8], entry: u32) -> SortItem {
        self.encode(key) << 32 | SortItem::from(!entry)
    }
}

/// Returns the bytes of the prefix that starts at `at`, and the end of the key, as a number; bytes
/// beyond the end are zero.
#[inline]
fn bytes_at(key: &[u8], at: usize) -> KeyPrefix {
    let mut bytes = [0; size_of::<KeyPrefix>()];
    let end = bytes.len() - 1;
    let prefix = &mut bytes[end - PREFIX_LEN..end];
    let rest = key.get(at..).unwrap_or_default();
    match rest.first_chunk::<PREFIX_LEN>() {
        Some(whole) => prefix.copy_from_slice(whole),
        None => prefix[..rest.len()].copy_from_slice(rest),
    }
    bytes[end] = if rest.len() > PREFIX_LEN { END_BEYOND } else { END_AFTER + rest.len() as u8 };
    KeyPrefix::from_be_bytes(bytes)
}

/// Returns the entry of an item.
#[inline]
pub fn item_entry(item: SortItem) -> u32 {
    !(item as u32)
}
#[inline]
fn item_prefix(item: SortItem) -> KeyPrefix {
    item >> 32
}

/// Returns true if two items have the same prefix, and it is the whole key: they are versions of
/// one key. Otherwise they may be.
#[inline]
pub fn are_versions(by: PrefixEncoding, a: SortItem, b: SortItem) -> bool {
    item_prefix(a) == item_prefix(b) && by.is_whole_key(item_prefix(a))
}

/// Compares two items in entry order.
#[inline]
pub fn cmp_items(by: PrefixEncoding, keys: &impl EntryKeys, a: SortItem, b: SortItem) -> Ordering {
    if item_prefix(a) != item_prefix(b) || by.is_whole_key(item_prefix(a)) {
        return a.cmp(&b);
    }
    let by_key = by.comparator.cmp(keys.key(item_entry(a)), keys.key(item_entry(b)));
    by_key.then(a.cmp(&b))
}

/// Returns these entries in entry order.
pub fn sort_entries(
    entries: Range<u32>,
    by: PrefixEncoding,
    keys: &impl EntryKeys,
) -> Vec<SortItem> {
    let mut items: Vec<SortItem> = entries.map(|e| by.make_item(keys.key(e), e)).collect();
    items.sort_unstable();
    sort_equal_prefixes(&mut items, by, 0, keys);
    items
}

/// Sorts each group of adjacent items with equal prefixes.
fn sort_equal_prefixes(
    items: &mut [SortItem],
    by: PrefixEncoding,
    depth: usize,
    keys: &impl EntryKeys,
) {
    let mut start = 0;
    while start < items.len() {
        let prefix = item_prefix(items[start]);
        let len = items[start..].iter().take_while(|i| item_prefix(**i) == prefix).count();
        if len > 1 {
            sort_one_prefix(&mut items[start..start + len], by, depth, keys);
        }
        start += len;
    }
}

/// Sorts items that all have the same prefix.
fn sort_one_prefix(
    items: &mut [SortItem],
    by: PrefixEncoding,
    depth: usize,
    keys: &impl EntryKeys,
) {
    if by.is_whole_key(item_prefix(items[0])) {
        // Versions of a single key, which are in order already.
        return;
    }
    let by_comparison = items.len() <= COMPARE_SORT_MAX
        || depth == PREFIX_DEPTH_MAX
        || !PrefixEncoding::can_skip_common(by.comparator);
    let common = if by_comparison { 0 } else { common_prefix_len(items, keys) };
    // If less is common than the prefix covers, some key ends within the prefix.
    if by_comparison || common < by.common_len + PREFIX_LEN {
        return items.sort_unstable_by(|a, b| cmp_items(by, keys, *a, *b));
    }
    if items.iter().all(|i| keys.key(item_entry(*i)).len() == common) {
        // Versions of a single key, which are in order already.
        return;
    }
    let prefix = item_prefix(items[0]) << 32;
    let next = PrefixEncoding { common_len: common, ..by };
    let mut finer: Vec<SortItem> =
        items.iter().map(|i| next.make_item(keys.key(item_entry(*i)), item_entry(*i))).collect();
    finer.sort_unstable();
    sort_equal_prefixes(&mut finer, next, depth + 1, keys);
    items.iter_mut().zip(finer).for_each(|(i, f)| *i = prefix | SortItem::from(f as u32));
}

/// Returns the length of the prefix that the keys of all items share.
fn common_prefix_len(items: &[SortItem], keys: &impl EntryKeys) -> usize {
    let first = keys.key(item_entry(items[0]));
    items.iter().fold(first.len(), |n, i| shared_prefix_len(&first[..n], keys.key(item_entry(*i))))
}

/// Returns the length of the prefix that two keys share.
pub fn shared_prefix_len(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// Merges two runs into one.
fn merge_items(
    mut a: &[SortItem],
    mut b: &[SortItem],
    by: PrefixEncoding,
    keys: &impl EntryKeys,
) -> Vec<SortItem> {
    let merged_len = a.len() + b.len();
    let mut out = Vec::with_capacity(merged_len);
    // Ascending keys: nothing to compare.
    if let (Some(last), Some(first)) = (a.last(), b.first())
        && cmp_items(by, keys, *last, *first).is_lt()
    {
        out.extend_from_slice(a);
        a = &[];
    }
    // If `b` is much shorter, items of `a` between two items of `b` are copied at once.
    let b_is_short = a.len() / 8 > b.len();
    while let (Some(x), Some(y)) = (a.first(), b.first()) {
        if b_is_short {
            let before = gallop(a, |i| cmp_items(by, keys, *i, *y).is_lt());
            out.extend_from_slice(&a[..before]);
            out.push(*y);
            (a, b) = (&a[before..], &b[1..]);
        } else if cmp_items(by, keys, *x, *y).is_lt() {
            out.push(*x);
            a = &a[1..];
        } else {
            out.push(*y);
            b = &b[1..];
        }
    }
    out.extend_from_slice(a);
    out.extend_from_slice(b);
    check_slow!(out.len() == merged_len, "a merge keeps every item", out.len(), merged_len);
    out
}

/// Returns the number of leading items for which `test` holds, given that it holds for no later
/// item. Fast if they are few.
pub fn gallop(items: &[SortItem], test: impl Fn(&SortItem) -> bool) -> usize {
    let mut step = 1;
    while step < items.len() && test(&items[step - 1]) {
        step *= 2;
    }
    let start = step / 2;
    start + items[start..step.min(items.len())].partition_point(test)
}

/// Two adjacent runs that are to be merged.
#[derive(Debug)]
pub struct RunsToMerge {
    /// Index of the first.
    at: usize,
    runs: [Arc<Vec<SortItem>>; 2],
    by: PrefixEncoding,
}

impl RunsToMerge {
    /// Merges them.
    pub fn merge(&self, keys: &impl EntryKeys) -> Vec<SortItem> {
        merge_items(&self.runs[0], &self.runs[1], self.by, keys)
    }
}

/// The first entries of a memtable, sorted.
#[derive(Clone, Debug)]
pub struct SortedEntries {
    /// Number of entries.
    pub entry_count: u32,
    /// Prefix encoding of the items.
    pub encoding: PrefixEncoding,
    /// The sorted runs; older ones first, which are longer.
    pub runs: Vec<Arc<Vec<SortItem>>>,
}

impl SortedEntries {
    /// Creates an empty list.
    pub fn new(comparator: KeyComparator) -> SortedEntries {
        SortedEntries {
            entry_count: 0,
            encoding: PrefixEncoding { comparator, common_len: 0 },
            runs: Vec::new(),
        }
    }

    /// Returns these runs extended to all entries below `entry_count`; `common_len`: length of the
    /// prefix that all keys share.
    pub fn extend_to(
        &self,
        entry_count: u32,
        common_len: usize,
        keys: &impl EntryKeys,
    ) -> SortedEntries {
        let by = PrefixEncoding { common_len, ..self.encoding };
        let mut runs = self.runs.clone();
        if common_len != self.encoding.common_len {
            let reencode = |i: &SortItem| by.make_item(keys.key(item_entry(*i)), item_entry(*i));
            runs.iter_mut().for_each(|r| *r = Arc::new(r.iter().map(reencode).collect()));
        }
        let mut last = sort_entries(self.entry_count..entry_count, by, keys);
        let merged_len_max = match runs.len() {
            0..READER_RUNS_MAX => READER_MERGE_MAX,
            _ => usize::MAX,
        };
        while let Some(before) = runs.last() {
            if !have_similar_length(before, &last) || before.len() > merged_len_max {
                break;
            }
            last = merge_items(before, &last, by, keys);
            runs.pop();
        }
        check_slow!(
            last.is_sorted_by(|a, b| cmp_items(by, keys, *a, *b).is_lt()),
            "a run is in entry order",
            last.len()
        );
        runs.push(Arc::new(last));
        check_slow!(
            runs.iter().map(|run| run.len()).sum::<usize>() == entry_count as usize,
            "the runs hold every entry once",
            entry_count
        );
        SortedEntries { entry_count, encoding: by, runs }
    }

    /// Returns two adjacent runs that are to be merged, by the index of the first; the newest such.
    pub fn runs_to_merge(&self) -> Option<RunsToMerge> {
        let mut pairs = self.runs.windows(2).enumerate().rev();
        let to_merge = |pair: &[Arc<Vec<SortItem>>]| have_similar_length(&pair[0], &pair[1]);
        let (at, pair) = pairs.find(|(_, pair)| to_merge(pair))?;
        let runs = [Arc::clone(&pair[0]), Arc::clone(&pair[1])];
        Some(RunsToMerge { at, runs, by: self.encoding })
    }

    /// Returns these runs with `merged` in place of the two runs it was made of, or `None` if these
    /// are not there any more; a change of the encoding replaces all runs.
    pub fn replace_merged(
        &self,
        pair: &RunsToMerge,
        merged: Vec<SortItem>,
    ) -> Option<SortedEntries> {
        let is_there = |i: usize| {
            self.runs.get(pair.at + i).is_some_and(|run| Arc::ptr_eq(run, &pair.runs[i]))
        };
        if !(is_there(0) && is_there(1)) {
            return None;
        }
        let mut runs = self.runs.clone();
        runs[pair.at] = Arc::new(merged);
        runs.remove(pair.at + 1);
        Some(SortedEntries { runs, ..*self })
    }

    /// Returns the same entries in a single run.
    pub fn merge_all(&self, keys: &impl EntryKeys) -> SortedEntries {
        let mut runs = self.runs.clone();
        while let [.., a, b] = &runs[..] {
            let merged = Arc::new(merge_items(a, b, self.encoding, keys));
            runs.truncate(runs.len() - 2);
            runs.push(merged);
        }
        SortedEntries { runs, ..*self }
    }

    /// Returns, for each run, the index of the first item at or after a position: that of `key`
    /// and, among its versions, of the first one for which `at_or_after` returns true.
    pub fn lower_bounds<'a>(
        &'a self,
        key: &'a [u8],
        at_or_after: impl Fn(u32) -> bool + Copy + 'a,
        keys: &'a impl EntryKeys,
    ) -> impl Iterator<Item = usize> + 'a {
        let comparator = self.encoding.comparator;
        let prefix = self.target_prefix(key, keys);
        let is_whole_key = prefix.is_ok_and(|prefix| self.encoding.is_whole_key(prefix));
        let cmp_key = move |i: &SortItem| match is_whole_key {
            true => Ordering::Equal,
            false => comparator.cmp(keys.key(item_entry(*i)), key),
        };
        let before = move |i: &SortItem| match cmp_key(i) {
            Ordering::Less => true,
            Ordering::Equal => !at_or_after(item_entry(*i)),
            Ordering::Greater => false,
        };
        self.runs.iter().map(move |run| match prefix {
            Err(Ordering::Less) => 0,
            Err(_) => run.len(),
            Ok(prefix) => {
                let start = run.partition_point(|i| item_prefix(*i) < prefix);
                let len = gallop(&run[start..], |i| item_prefix(*i) == prefix);
                start + run[start..start + len].partition_point(before)
            }
        })
    }

    /// Returns the prefix of any key, or the side of all entries on which the key lies.
    fn target_prefix(&self, key: &[u8], keys: &impl EntryKeys) -> Result<KeyPrefix, Ordering> {
        let common_len = self.encoding.common_len;
        let Some(first_key) = self.runs.first().and_then(|r| r.first()) else {
            return Err(Ordering::Less);
        };
        let first_key = keys.key(item_entry(*first_key));
        if common_len > 0 && key.get(..common_len) != Some(&first_key[..common_len]) {
            return Err(self.encoding.comparator.cmp(key, first_key));
        }
        Ok(self.encoding.encode(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct TestKeys(Vec<Vec<u8>>);
    impl EntryKeys for TestKeys {
        fn key(&self, entry: u32) -> &[u8] {
            &self.0[entry as usize]
        }
    }

    fn next_random(x: &mut u64) -> u64 {
        *x ^= *x << 13;
        *x ^= *x >> 7;
        *x ^= *x << 17;
        *x
    }

    /// Key sets that exercise every case of the sort.
    fn key_sets(n: usize) -> Vec<TestKeys> {
        let mut x = 11;
        let mut make = |f: &dyn Fn(&mut u64, usize) -> Vec<u8>| {
            TestKeys((0..n).map(|i| f(&mut x, i)).collect())
        };
        vec![
            make(&|x, _| next_random(x).to_be_bytes().to_vec()),
            make(&|x, _| {
                format!("table/{:03}/row/{:012}", next_random(x) % 3, next_random(x) % 500)
                    .into_bytes()
            }),
            make(&|_, i| format!("{i:015}").into_bytes()),
            make(&|_, i| format!("{:015}", 1_000_000 - i).into_bytes()),
            make(&|x, _| vec![(next_random(x) % 2) as u8; (next_random(x) % 40) as usize]),
            make(&|x, _| vec![0; (next_random(x) % 12) as usize]),
            make(&|_, _| b"one and the same key, longer than a prefix".to_vec()),
            make(&|x, _| {
                [&[7; 200][..(next_random(x) % 200) as usize], &[(next_random(x) % 3) as u8]]
                    .concat()
            }),
            make(&|x, _| {
                ((next_random(x) % 64) as i64 - 32).to_le_bytes()
                    [..8 - (next_random(x) % 8 / 7) as usize]
                    .to_vec()
            }),
            make(&|x, _| {
                [&(next_random(x) % 9).to_le_bytes()[..], &[0; 3][..(next_random(x) % 4) as usize]]
                    .concat()
            }),
        ]
    }

    const ORDERS: [KeyComparator; 4] =
        [KeyComparator::Bytes, KeyComparator::Reverse, KeyComparator::U64, KeyComparator::I64];

    #[test]
    fn sorts_every_kind_of_keys_in_every_comparator() {
        for table in key_sets(1500) {
            let first = &table.0[0];
            let skip = table.0.iter().fold(first.len(), |n, k| shared_prefix_len(&first[..n], k));
            for comparator in ORDERS {
                let by = PrefixEncoding {
                    comparator,
                    common_len: if PrefixEncoding::can_skip_common(comparator) { skip } else { 0 },
                };
                let items = sort_entries(0..1500, by, &table);
                let got: Vec<u32> = items.iter().map(|i| item_entry(*i)).collect();
                let mut want: Vec<u32> = (0..1500).collect();
                want.sort_by(|a, b| comparator.cmp(table.key(*a), table.key(*b)).then(b.cmp(a)));
                assert_eq!(got, want, "{comparator:?} {:?}", String::from_utf8_lossy(first));
            }
        }
    }

    #[test]
    fn incremental_sort_keeps_each_entry_once_in_few_runs() {
        for table in key_sets(3000) {
            for comparator in ORDERS {
                let mut sorted = SortedEntries::new(comparator);
                let (mut upto, mut x, mut skip) = (0, 5, table.0[0].len());
                while upto < 3000u32 {
                    let to = (upto + 1 + (next_random(&mut x) % 40) as u32).min(3000);
                    for e in upto..to {
                        skip = shared_prefix_len(&table.0[0][..skip], table.key(e));
                    }
                    upto = to;
                    sorted = sorted.extend_to(
                        upto,
                        if PrefixEncoding::can_skip_common(comparator) { skip } else { 0 },
                        &table,
                    );
                    if next_random(&mut x) % 8 == 0 {
                        while let Some(pair) = sorted.runs_to_merge() {
                            let merged = pair.merge(&table);
                            sorted = sorted.replace_merged(&pair, merged).unwrap();
                            let again = pair.merge(&table);
                            assert!(sorted.replace_merged(&pair, again).is_none(), "merged once");
                        }
                        assert!(sorted.runs.len() <= 8, "{} runs", sorted.runs.len());
                    }
                    assert!(sorted.runs.len() <= 2 * READER_RUNS_MAX);
                    let by = sorted.encoding;
                    for r in &sorted.runs {
                        assert!(r.is_sorted_by(|a, b| cmp_items(by, &table, *a, *b).is_lt()));
                    }
                }
                let one = sorted.merge_all(&table);
                assert_eq!((one.runs.len(), one.runs[0].len()), (1, 3000));
                let by = one.encoding;
                assert!(one.runs[0].is_sorted_by(|a, b| cmp_items(by, &table, *a, *b).is_lt()));
                let mut all: Vec<u32> =
                    sorted.runs.iter().flat_map(|r| r.iter().map(|i| item_entry(*i))).collect();
                all.sort_unstable();
                assert_eq!(all, (0..3000).collect::<Vec<u32>>());
            }
        }
    }
}
