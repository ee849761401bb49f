//! Estimates the size of a range and the cost of scanning it without reading blocks. Pure functions
//! of a view.
//!
//! Exact: tables that lie inside the range. Estimated: a table cut by an end of the range, where
//! the block at the cut counts half, so that the error is at most half a block's share of that
//! table (assuming entries spread evenly over its blocks); value logs, apportioned by share of
//! entries; with a comparator under which different bytes may be equal keys, memtables with more
//! than a few hundred entries in the range (standard error 6 %). Which entries of a memtable add or
//! remove a key is sampled; not if they are fewer than the error of a table and than a quarter of
//! the keys, because sampling would then cost more than all the rest: they are taken for
//! overwritten keys.

use crate::limits::UNSAMPLED_SHARE_MAX;
use crate::memtable::Memtable;
use crate::scan::ScanBounds;
use crate::version::Table;
use crate::{Version, View};
use perigee_base::{Result, SeqNo};
use perigee_file::KeySketch;
use std::ops::{Bound, RangeInclusive};
use std::sync::Arc;

/// Number of memtable entries sampled to estimate the share of new keys: one of 16, within these
/// limits (standard error of the share: 4 % in large ranges, 18 % in small ones).
const SAMPLE_ENTRIES: RangeInclusive<u64> = 8..=128;
/// Ranges of at most this many blocks are estimated with the share of distinct keys of the whole
/// version, which is computed once; for larger ones the sketches of their tables are merged.
const SMALL_RANGE_BLOCKS: u64 = 64;

/// Approximate size of a key range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RangeEstimate {
    /// Bytes on disk: table data and the stored bytes of separated values.
    pub disk_bytes: u64,
    /// Bytes in memtables.
    pub memory_bytes: u64,
    /// Stored entries: all versions of all keys, tombstones included.
    pub entries: u64,
    /// Keys that are visible to a reader.
    pub keys: u64,
}

/// What a scan of a key range would read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RangeCost {
    /// Number of memtables with entries in the range.
    pub memtables: usize,
    /// Number of sorted runs on disk that the scan merges.
    pub runs: usize,
    /// Number of tables that it reads.
    pub tables: usize,
    /// Number of data blocks that it reads, from the cache or from disk.
    pub blocks: u64,
    /// Stored (compressed) bytes of these blocks.
    pub bytes: u64,
}

/// Approximate number of keys in a column family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cardinality {
    /// Distinct keys, including those whose newest version is a tombstone.
    pub keys: u64,
    /// Stored tombstones: at most this many of `keys` do not exist any more.
    pub tombstones: u64,
}

/// The share of a table that lies in the range.
struct TableShare<'a> {
    run: usize,
    table: &'a Table,
    /// Estimated share of the table's entries, 0 to 1.
    share: f64,
    /// Largest error of its entries, in entries.
    error: f64,
    blocks: u64,
    bytes: u64,
}

fn bound_key(bound: &Bound<Vec<u8>>) -> Option<&[u8]> {
    match bound {
        Bound::Included(k) | Bound::Excluded(k) => Some(k),
        Bound::Unbounded => None,
    }
}

/// Returns the number of memtable entries in the range.
fn count_in_bounds(memtable: &Memtable, bounds: &ScanBounds) -> u64 {
    let from = match &bounds.lower {
        Bound::Included(k) => Some((&k[..], SeqNo::MAX)),
        Bound::Excluded(k) => Some((&k[..], SeqNo::ZERO)),
        Bound::Unbounded => None,
    };
    let to = match &bounds.upper {
        Bound::Included(k) => Some((&k[..], SeqNo::ZERO)),
        Bound::Excluded(k) => Some((&k[..], SeqNo::MAX)),
        Bound::Unbounded => None,
    };
    memtable.count_between(from, to)
}

fn is_empty_range(version: &Version, bounds: &ScanBounds) -> bool {
    bound_key(&bounds.lower).is_some_and(|low| bounds.is_after_upper(version.comparator, low))
        || bound_key(&bounds.upper)
            .is_some_and(|high| bounds.is_before_lower(version.comparator, high))
}

fn overlapping_tables<'a>(version: &'a Version, bounds: &'a ScanBounds) -> Vec<TableShare<'a>> {
    let comparator = version.comparator;
    let mut all = Vec::new();
    for (number, run) in version.runs().enumerate() {
        let from =
            bound_key(&bounds.lower).map_or(0, |lower| run.first_table_reaching(comparator, lower));
        for table in &run.tables[from..] {
            let (first, last) = (&table.meta.summary.first_key, &table.meta.summary.last_key);
            // A table of range tombstones only has no first key.
            if table.meta.summary.entries == 0 {
                continue;
            }
            if bounds.is_after_upper(comparator, first) {
                break;
            }
            if !bounds.is_before_lower(comparator, last) {
                all.extend(table_share(
                    number,
                    table,
                    bounds,
                    bounds.is_before_lower(comparator, first),
                    bounds.is_after_upper(comparator, last),
                ));
            }
        }
    }
    all
}

/// Returns the table's share of the range. `low` and `high` say whether that end of the range cuts
/// the table.
fn table_share<'a>(
    run: usize,
    table: &'a Table,
    bounds: &ScanBounds,
    low: bool,
    high: bool,
) -> Option<TableShare<'a>> {
    let lower = if low { bound_key(&bounds.lower) } else { None };
    let upper = if high { bound_key(&bounds.upper) } else { None };
    let (first, last, bytes) = table.reader.blocks_in_range(lower, upper)?;
    let blocks = (last - first + 1) as f64;
    let cut = f64::from(u8::from(low) + u8::from(high)) * 0.5;
    let all_blocks = table.reader.block_count() as f64;
    let share = (blocks - cut).max(0.25) / all_blocks;
    let error = table.meta.summary.entries as f64 * cut / all_blocks;
    check!(
        share > 0.0 && first <= last,
        "a range that overlaps a table has a share of it",
        share,
        first,
        last
    );
    let (share, blocks) = (share.min(1.0), (last - first + 1) as u64);
    Some(TableShare { run, table, share, error, blocks, bytes })
}

impl TableShare<'_> {
    fn scale(&self, whole: u64) -> f64 {
        whole as f64 * self.share
    }
    /// Estimated distinct keys of the whole table.
    fn distinct_keys(&self) -> u64 {
        let entries = self.table.meta.summary.entries;
        self.table.reader.sketch().map_or(entries, |s| s.estimate().min(entries))
    }
}

/// Estimates how much data lies in `bounds`.
pub fn estimate_range(view: &View, bounds: &ScanBounds) -> RangeEstimate {
    if is_empty_range(&view.version, bounds) {
        return RangeEstimate::default();
    }
    let parts = overlapping_tables(&view.version, bounds);
    let keys = estimate_table_keys(&view.version, &parts);
    let mut out = RangeEstimate { keys, ..RangeEstimate::default() };
    for p in &parts {
        let s = &p.table.meta.summary;
        out.disk_bytes += p.scale(s.bytes.saturating_add(s.separated_bytes())).round() as u64;
        out.entries += p.scale(s.entries).round() as u64;
    }
    // Entries of memtables that may remain without a sample.
    let error = parts.iter().map(|p| p.error).fold(0.0, f64::max);
    let mut unsampled = error.min(keys as f64 * UNSAMPLED_SHARE_MAX);
    for memtable in view.memtables() {
        let entries = count_in_bounds(memtable, bounds);
        let all = memtable.entries().max(1);
        out.entries += entries;
        out.memory_bytes +=
            (memtable.bytes() as u128 * entries.min(all) as u128 / all as u128) as u64;
        if entries as f64 <= unsampled {
            unsampled -= entries as f64;
            continue;
        }
        let (added, removed) = sample_key_changes(view, memtable, bounds, entries);
        let change = (added - removed) * entries as f64;
        out.keys = (out.keys as f64 + change).round().max(0.0) as u64;
    }
    out
}

/// Estimates the keys in tables visible to a reader: distinct keys (those common to several runs
/// count once, by their sketches), less those that tombstones hide.
fn estimate_table_keys(version: &Version, parts: &[TableShare<'_>]) -> u64 {
    let tombstones: f64 = parts.iter().map(|p| p.scale(p.table.meta.summary.tombstones)).sum();
    let blocks: u64 = parts.iter().map(|p| p.blocks).sum();
    let distinct = if blocks <= SMALL_RANGE_BLOCKS {
        let entries: f64 = parts.iter().map(|p| p.scale(p.table.meta.summary.entries)).sum();
        if has_overlap(parts) { entries * version.distinct_share() } else { entries }
    } else {
        estimate_distinct_keys(parts)
    };
    (distinct - tombstones).round().max(0.0) as u64
}

fn has_overlap(parts: &[TableShare<'_>]) -> bool {
    parts.windows(2).any(|w| w[0].run != w[1].run)
}

fn estimate_distinct_keys(parts: &[TableShare<'_>]) -> f64 {
    let sum: f64 = parts.iter().map(|p| p.scale(p.distinct_keys())).sum();
    let sketches: Vec<&KeySketch> = parts.iter().filter_map(|p| p.table.reader.sketch()).collect();
    if !has_overlap(parts) || sketches.len() != parts.len() {
        return sum;
    }
    let single: u64 = sketches.iter().map(|s| s.estimate()).sum();
    let union = union_sketches(sketches.into_iter()).estimate();
    sum * (union as f64 / single.max(1) as f64).min(1.0)
}

fn union_sketches<'a>(sketches: impl Iterator<Item = &'a KeySketch>) -> KeySketch {
    sketches.fold(KeySketch::new(), |mut sum, s| {
        sum.merge(s);
        sum
    })
}

/// Estimates, from a sample of the memtable's entries in the range, the share of entries that add a
/// key and the share that remove one.
fn sample_key_changes(
    view: &View,
    memtable: &Arc<Memtable>,
    bounds: &ScanBounds,
    entries: u64,
) -> (f64, f64) {
    if entries == 0 {
        return (0.0, 0.0);
    }
    let limit = (entries / 16).clamp(*SAMPLE_ENTRIES.start(), *SAMPLE_ENTRIES.end());
    let comparator = view.version.comparator;
    let mut cursor = memtable.cursor();
    match bound_key(&bounds.lower) {
        Some(key) => cursor.seek(key, SeqNo::MAX),
        None => cursor.seek_first(),
    }
    let (mut sampled, mut added, mut removed) = (0u64, 0u64, 0u64);
    let mut last = Vec::new();
    while cursor.valid() && sampled < limit {
        let e = cursor.entry();
        if bounds.is_after_upper(comparator, e.key) {
            break;
        }
        if !bounds.is_before_lower(comparator, e.key) {
            sampled += 1;
            if sampled == 1 || !comparator.keys_equal(&last, e.key) {
                let known = may_be_in_tables(&view.version, e.key);
                let deletes = e.value.is_tombstone();
                added += u64::from(!known && !deletes);
                removed += u64::from(known && deletes);
                last.clear();
                last.extend_from_slice(e.key);
            }
        }
        cursor.next();
    }
    check!(added + removed <= sampled, "changes are among the samples", added, removed, sampled);
    let share = |n: u64| n as f64 / sampled.max(1) as f64;
    (share(added), share(removed))
}

/// Returns true if the filters report that the key may be in a table.
fn may_be_in_tables(version: &Version, key: &[u8]) -> bool {
    let hash = version.comparator.filter_hash(key);
    version
        .runs()
        .filter_map(|r| r.table_covering(version.comparator, key))
        .any(|t| t.reader.may_contain(hash))
}

/// Returns what a scan of `bounds` would read. Runs, tables and blocks are exact for this view.
pub fn estimate_range_cost(view: &View, bounds: &ScanBounds) -> RangeCost {
    if is_empty_range(&view.version, bounds) {
        return RangeCost::default();
    }
    let parts = overlapping_tables(&view.version, bounds);
    let holds = |m: &&Arc<Memtable>| count_in_bounds(m, bounds) > 0;
    let mut runs: Vec<usize> = parts.iter().map(|p| p.run).collect();
    check_slow!(runs.is_sorted(), "tables are listed run by run", runs);
    runs.dedup();
    RangeCost {
        memtables: view.memtables().filter(holds).count(),
        runs: runs.len(),
        tables: parts.len(),
        blocks: parts.iter().map(|p| p.blocks).sum(),
        bytes: parts.iter().map(|p| p.bytes).sum(),
    }
}

/// Estimates the number of distinct keys stored (error at most 7 %, in one of 400 cases more), and
/// returns the number of tombstones among all entries. Reads all entries of memtables, and of the
/// tables that are too small to have a sketch.
pub fn estimate_cardinality(view: &View) -> Result<Cardinality> {
    let with_sketch = view.version.tables().filter_map(|(_, _, t)| t.reader.sketch());
    let mut all = union_sketches(with_sketch);
    let (mut tombstones, mut entries) = (0, 0);
    for (_, _, table) in view.version.tables() {
        tombstones += table.meta.summary.tombstones;
        entries += table.meta.summary.entries;
        if table.reader.sketch().is_none() {
            let mut cursor = table.reader.cursor(false);
            cursor.seek_first()?;
            while cursor.valid() {
                all.add(view.version.comparator.filter_hash(cursor.entry().key));
                cursor.next()?;
            }
        }
    }
    for memtable in view.memtables() {
        let mut cursor = memtable.cursor();
        cursor.seek_first();
        while cursor.valid() {
            let e = cursor.entry();
            tombstones += u64::from(e.value.is_tombstone());
            entries += 1;
            all.add(view.version.comparator.filter_hash(e.key));
            cursor.next();
        }
    }
    // The number of keys cannot exceed the number of entries, even if the sketch says so.
    Ok(Cardinality { keys: all.estimate().min(entries), tombstones })
}
