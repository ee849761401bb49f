//! How much a range holds and what a scan of it would touch, without reading a block. Pure
//! functions of a view.
//!
//! What is exact: tables that lie inside the range. What is estimated: a table that an end of the
//! range cuts, where the block at the cut counts half, so the error is at most half a block's share
//! of that table (entries are taken to be spread evenly over the blocks of a table); value logs,
//! apportioned by share of entries; where different bytes may be one key, memtables of more than a
//! few hundred entries in the range (standard error 6 %).

use crate::memtable::Memtable;
use crate::scan::ScanBounds;
use crate::version::Table;
use crate::{Version, View};
use perigee_base::{Result, SeqNo};
use perigee_file::KeySketch;
use std::ops::Bound;
use std::sync::Arc;

/// Entries of a memtable that are looked at to see which of them are new.
const SAMPLE_ENTRIES: usize = 1024;

/// About how much a range holds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RangeSize {
    /// Bytes in tables and, of values stored apart, in value logs.
    pub disk_bytes: u64,
    /// Bytes in memtables.
    pub memory_bytes: u64,
    /// Stored entries: every version, tombstones included.
    pub entries: u64,
    /// Keys that a reader would see.
    pub keys: u64,
}

/// What a scan of a range would touch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScanCost {
    /// Memtables with entries in the range.
    pub memtables: usize,
    /// Runs of tables to merge.
    pub runs: usize,
    /// Tables to open.
    pub tables: usize,
    /// Blocks to read.
    pub blocks: u64,
    /// Stored bytes of those blocks.
    pub bytes: u64,
}

/// The part of a table that lies in the range.
struct TableShare<'a> {
    run: usize,
    table: &'a Table,
    /// Of its entries, about.
    share: f64,
    blocks: u64,
    bytes: u64,
}

fn bound_key(bound: &Bound<Vec<u8>>) -> Option<&[u8]> {
    match bound {
        Bound::Included(k) | Bound::Excluded(k) => Some(k),
        Bound::Unbounded => None,
    }
}

/// Entries of a memtable in the range.
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
    let order = version.comparator;
    let mut all = Vec::new();
    if is_empty_range(version, bounds) {
        return all;
    }
    for (number, run) in version.runs().enumerate() {
        for table in &run.tables {
            let (first, last) = (&table.meta.summary.first_key, &table.meta.summary.last_key);
            if !bounds.is_before_lower(order, last) && !bounds.is_after_upper(order, first) {
                all.extend(table_share(
                    number,
                    table,
                    bounds,
                    bounds.is_before_lower(order, first),
                    bounds.is_after_upper(order, last),
                ));
            }
        }
    }
    all
}

/// `low`, `high`: the range cuts the table there.
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
    let share = (blocks - cut).max(0.25) / table.reader.block_count() as f64;
    Some(TableShare { run, table, share: share.min(1.0), blocks: (last - first + 1) as u64, bytes })
}

impl TableShare<'_> {
    fn scale(&self, whole: u64) -> f64 {
        whole as f64 * self.share
    }
    /// Distinct keys of the whole table.
    fn distinct_keys(&self) -> u64 {
        let entries = self.table.meta.summary.entries;
        self.table.reader.sketch().map_or(entries, |s| s.estimate().min(entries))
    }
}

/// About how much lies in `bounds`.
pub fn estimate_range_size(view: &View, bounds: &ScanBounds) -> RangeSize {
    let parts = overlapping_tables(&view.version, bounds);
    let mut out = RangeSize { keys: estimate_table_keys(&parts), ..RangeSize::default() };
    for p in &parts {
        let s = &p.table.meta.summary;
        let separated: u64 = s.vlogs.iter().fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes));
        out.disk_bytes += p.scale(s.bytes.saturating_add(separated)).round() as u64;
        out.entries += p.scale(s.entries).round() as u64;
    }
    for memtable in view.memtables().filter(|_| !is_empty_range(&view.version, bounds)) {
        let entries = count_in_bounds(memtable, bounds);
        let all = memtable.entries().max(1);
        out.entries += entries;
        out.memory_bytes +=
            (memtable.bytes() as u128 * entries.min(all) as u128 / all as u128) as u64;
        let (new, gone) = sample_key_changes(view, memtable, bounds);
        let change = (new - gone) * entries as f64;
        out.keys = (out.keys as f64 + change).round().max(0.0) as u64;
    }
    out
}

/// Keys in tables that a reader sees: distinct ones (common keys of several runs once, as far as
/// sketches tell), without those that tombstones hide.
fn estimate_table_keys(parts: &[TableShare<'_>]) -> u64 {
    let sum: f64 = parts.iter().map(|p| p.scale(p.distinct_keys())).sum();
    let tombstones: f64 = parts.iter().map(|p| p.scale(p.table.meta.summary.tombstones)).sum();
    let overlapping = parts.windows(2).any(|w| w[0].run != w[1].run);
    let sketches: Vec<&KeySketch> = parts.iter().filter_map(|p| p.table.reader.sketch()).collect();
    let distinct = if overlapping && sketches.len() == parts.len() {
        let single: u64 = sketches.iter().map(|s| s.estimate()).sum();
        let union = union_sketches(sketches.into_iter()).estimate();
        sum * (union as f64 / single.max(1) as f64).min(1.0)
    } else {
        sum
    };
    (distinct - tombstones).round().max(0.0) as u64
}

fn union_sketches<'a>(sketches: impl Iterator<Item = &'a KeySketch>) -> KeySketch {
    sketches.fold(KeySketch::new(), |mut sum, s| {
        sum.merge(s);
        sum
    })
}

/// Of the memtable's entries in the range, as far as a sample of them tells: the share that adds a
/// key, and the share that takes one away.
fn sample_key_changes(view: &View, memtable: &Arc<Memtable>, bounds: &ScanBounds) -> (f64, f64) {
    let order = view.version.comparator;
    let mut cursor = memtable.cursor();
    match bound_key(&bounds.lower) {
        Some(key) => cursor.seek(key, SeqNo::MAX),
        None => cursor.seek_first(),
    }
    let (mut looked, mut new, mut gone) = (0u32, 0u32, 0u32);
    let mut last: Option<Vec<u8>> = None;
    while cursor.valid() && (looked as usize) < SAMPLE_ENTRIES {
        let e = cursor.entry();
        if bounds.is_after_upper(order, e.key) {
            break;
        }
        if !bounds.is_before_lower(order, e.key) {
            looked += 1;
            if last.as_deref().is_none_or(|last| !order.keys_equal(last, e.key)) {
                let known = may_be_in_tables(&view.version, e.key);
                let deletes = e.value.is_tombstone();
                new += u32::from(!known && !deletes);
                gone += u32::from(known && deletes);
                last = Some(e.key.to_vec());
            }
        }
        cursor.next();
    }
    let share = |n: u32| f64::from(n) / f64::from(looked.max(1));
    (share(new), share(gone))
}

/// Whether the filters say that the key may be in a table.
fn may_be_in_tables(version: &Version, key: &[u8]) -> bool {
    let hash = version.comparator.filter_hash(key);
    version
        .runs()
        .filter_map(|r| r.table_covering(version.comparator, key))
        .any(|t| t.reader.may_contain(hash))
}

/// What a scan of `bounds` would touch. Runs, tables and blocks are exact for this view.
pub fn estimate_scan_cost(view: &View, bounds: &ScanBounds) -> ScanCost {
    let parts = overlapping_tables(&view.version, bounds);
    let holds = |m: &&Arc<Memtable>| {
        !is_empty_range(&view.version, bounds) && count_in_bounds(m, bounds) > 0
    };
    let mut runs: Vec<usize> = parts.iter().map(|p| p.run).collect();
    runs.dedup();
    ScanCost {
        memtables: view.memtables().filter(holds).count(),
        runs: runs.len(),
        tables: parts.len(),
        blocks: parts.iter().map(|p| p.blocks).sum(),
        bytes: parts.iter().map(|p| p.bytes).sum(),
    }
}

/// About how many different keys are stored (7 % off at most, once in 400 times more), and the
/// number of tombstones among all entries. Walks memtables, and the tables that are too small to
/// have a sketch.
pub fn estimate_distinct_keys(view: &View) -> Result<(u64, u64)> {
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
    // There are no more keys than entries, whatever the sketch says.
    Ok((all.estimate().min(entries), tombstones))
}
