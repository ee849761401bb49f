//! How much a range holds and what a scan of it would touch, without reading a block. Pure functions of a view.
//!
//! What is exact: tables that lie inside the range. What is estimated: a table that an end of the range cuts, where the
//! block at the cut counts half, so the error is at most half a block's share of that table (entries are taken to be spread
//! evenly over the blocks of a table); value logs, apportioned by share of entries; where different bytes may be one key,
//! memtables of more than a few hundred entries in the range (standard error 6 %).

use crate::memtable::Memtable;
use crate::scan::Bounds;
use crate::version::Table;
use crate::{Version, View};
use perigee_base::{Result, SeqNo};
use perigee_file::Sketch;
use std::ops::Bound;
use std::sync::Arc;

/// Entries of a memtable that are looked at to see which of them are new.
const SAMPLE: usize = 1024;

/// About how much a range holds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Extent {
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
pub struct Cost {
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
struct Part<'a> {
    run: usize,
    table: &'a Table,
    /// Of its entries, about.
    share: f64,
    blocks: u64,
    bytes: u64,
}

fn key_of(bound: &Bound<Vec<u8>>) -> Option<&[u8]> {
    match bound {
        Bound::Included(k) | Bound::Excluded(k) => Some(k),
        Bound::Unbounded => None,
    }
}

/// Entries of a memtable in the range.
fn within(memtable: &Memtable, bounds: &Bounds) -> u64 {
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
    memtable.count(from, to)
}

fn empty(version: &Version, bounds: &Bounds) -> bool {
    key_of(&bounds.lower).is_some_and(|low| bounds.behind(version.order, low))
        || key_of(&bounds.upper).is_some_and(|high| bounds.before(version.order, high))
}

fn parts<'a>(version: &'a Version, bounds: &'a Bounds) -> Vec<Part<'a>> {
    let order = version.order;
    let mut all = Vec::new();
    if empty(version, bounds) {
        return all;
    }
    for (number, run) in version.runs().enumerate() {
        for table in &run.tables {
            let (first, last) = (&table.meta.summary.first_key, &table.meta.summary.last_key);
            if !bounds.before(order, last) && !bounds.behind(order, first) {
                all.extend(part(
                    number,
                    table,
                    bounds,
                    bounds.before(order, first),
                    bounds.behind(order, last),
                ));
            }
        }
    }
    all
}

/// `low`, `high`: the range cuts the table there.
fn part<'a>(run: usize, table: &'a Table, bounds: &Bounds, low: bool, high: bool) -> Option<Part<'a>> {
    let lower = if low { key_of(&bounds.lower) } else { None };
    let upper = if high { key_of(&bounds.upper) } else { None };
    let (first, last, bytes) = table.reader.span(lower, upper)?;
    let blocks = (last - first + 1) as f64;
    let cut = f64::from(u8::from(low) + u8::from(high)) * 0.5;
    let share = (blocks - cut).max(0.25) / table.reader.block_count() as f64;
    Some(Part { run, table, share: share.min(1.0), blocks: (last - first + 1) as u64, bytes })
}

impl Part<'_> {
    fn of(&self, whole: u64) -> f64 {
        whole as f64 * self.share
    }
    /// Distinct keys of the whole table.
    fn table_keys(&self) -> u64 {
        let entries = self.table.meta.summary.entries;
        self.table.reader.sketch().map_or(entries, |s| s.estimate().min(entries))
    }
}

/// About how much lies in `bounds`.
pub fn extent(view: &View, bounds: &Bounds) -> Extent {
    let parts = parts(&view.version, bounds);
    let mut out = Extent { keys: table_keys(&parts), ..Extent::default() };
    for p in &parts {
        let s = &p.table.meta.summary;
        let separated: u64 = s.vlogs.iter().fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes));
        out.disk_bytes += p.of(s.bytes.saturating_add(separated)).round() as u64;
        out.entries += p.of(s.entries).round() as u64;
    }
    for memtable in view.memtables().filter(|_| !empty(&view.version, bounds)) {
        let entries = within(memtable, bounds);
        let all = memtable.entries().max(1);
        out.entries += entries;
        out.memory_bytes += (memtable.bytes() as u128 * entries.min(all) as u128 / all as u128) as u64;
        let (new, gone) = novelty(view, memtable, bounds);
        let change = (new - gone) * entries as f64;
        out.keys = (out.keys as f64 + change).round().max(0.0) as u64;
    }
    out
}

/// Keys in tables that a reader sees: distinct ones (common keys of several runs once, as far as sketches tell), without
/// those that tombstones hide.
fn table_keys(parts: &[Part<'_>]) -> u64 {
    let sum: f64 = parts.iter().map(|p| p.of(p.table_keys())).sum();
    let tombstones: f64 = parts.iter().map(|p| p.of(p.table.meta.summary.tombstones)).sum();
    let overlapping = parts.windows(2).any(|w| w[0].run != w[1].run);
    let sketches: Vec<&Sketch> = parts.iter().filter_map(|p| p.table.reader.sketch()).collect();
    let distinct = if overlapping && sketches.len() == parts.len() {
        let single: u64 = sketches.iter().map(|s| s.estimate()).sum();
        let union = union(sketches.into_iter()).estimate();
        sum * (union as f64 / single.max(1) as f64).min(1.0)
    } else {
        sum
    };
    (distinct - tombstones).round().max(0.0) as u64
}

fn union<'a>(sketches: impl Iterator<Item = &'a Sketch>) -> Sketch {
    sketches.fold(Sketch::new(), |mut sum, s| {
        sum.merge(s);
        sum
    })
}

/// Of the memtable's entries in the range, as far as a sample of them tells: the share that adds a key, and the share that
/// takes one away.
fn novelty(view: &View, memtable: &Arc<Memtable>, bounds: &Bounds) -> (f64, f64) {
    let order = view.version.order;
    let mut cursor = memtable.cursor();
    match key_of(&bounds.lower) {
        Some(key) => cursor.seek(key, SeqNo::MAX),
        None => cursor.seek_first(),
    }
    let (mut looked, mut new, mut gone) = (0u32, 0u32, 0u32);
    let mut last: Option<Vec<u8>> = None;
    while cursor.valid() && (looked as usize) < SAMPLE {
        let e = cursor.entry();
        if bounds.behind(order, e.key) {
            break;
        }
        if !bounds.before(order, e.key) {
            looked += 1;
            if last.as_deref().is_none_or(|last| !order.equal(last, e.key)) {
                let known = in_tables(&view.version, e.key);
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
fn in_tables(version: &Version, key: &[u8]) -> bool {
    let hash = version.order.filter_hash(key);
    version.runs().filter_map(|r| r.covering(version.order, key)).any(|t| t.reader.may_hold(hash))
}

/// What a scan of `bounds` would touch. Runs, tables and blocks are exact for this view.
pub fn cost(view: &View, bounds: &Bounds) -> Cost {
    let parts = parts(&view.version, bounds);
    let holds = |m: &&Arc<Memtable>| !empty(&view.version, bounds) && within(m, bounds) > 0;
    let mut runs: Vec<usize> = parts.iter().map(|p| p.run).collect();
    runs.dedup();
    Cost {
        memtables: view.memtables().filter(holds).count(),
        runs: runs.len(),
        tables: parts.len(),
        blocks: parts.iter().map(|p| p.blocks).sum(),
        bytes: parts.iter().map(|p| p.bytes).sum(),
    }
}

/// About how many different keys are stored (7 % off at most, once in 400 times more), and the number of tombstones among
/// all entries. Walks memtables, and the tables that are too small to have a sketch.
pub fn cardinality(view: &View) -> Result<(u64, u64)> {
    let with_sketch = view.version.tables().filter_map(|(_, _, t)| t.reader.sketch());
    let mut all = union(with_sketch);
    let (mut tombstones, mut entries) = (0, 0);
    for (_, _, table) in view.version.tables() {
        tombstones += table.meta.summary.tombstones;
        entries += table.meta.summary.entries;
        if table.reader.sketch().is_none() {
            let mut cursor = table.reader.cursor(false);
            cursor.seek_first()?;
            while cursor.valid() {
                all.add(view.version.order.filter_hash(cursor.entry().key));
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
            all.add(view.version.order.filter_hash(e.key));
            cursor.next();
        }
    }
    // There are no more keys than entries, whatever the sketch says.
    Ok((all.estimate().min(entries), tombstones))
}
