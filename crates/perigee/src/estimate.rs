//! Estimates: what a range holds, what a scan of it would touch, how many keys a family has.

use crate::iter::range_to_bounds;
use crate::{Db, Family, Result};
use perigee_tree::estimate;
use std::ops::RangeBounds;

/// About how much a range holds, see [`Family::estimate_range`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RangeEstimate {
    /// Bytes on disk: tables, and the stored bytes of values in value logs.
    pub disk_bytes: u64,
    /// Bytes in memtables.
    pub memory_bytes: u64,
    /// Stored entries: every version of every key, deletes included.
    pub entries: u64,
    /// Keys that a reader would see.
    pub keys: u64,
}

/// What a scan of a range would touch, see [`Family::range_cost`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RangeCost {
    /// Memtables with entries in the range.
    pub memtables: usize,
    /// Sorted runs on disk that a scan merges.
    pub runs: usize,
    /// Tables that it opens.
    pub tables: usize,
    /// Blocks that it reads, from the cache or from disk.
    pub blocks: u64,
    /// Stored bytes of these blocks.
    pub bytes: u64,
}

/// About how many keys a family has, see [`Family::cardinality`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cardinality {
    /// Different keys stored, those whose newest version is a delete included.
    pub keys: u64,
    /// Deletes stored: at most so many of `keys` are not there.
    pub tombstones: u64,
}

impl Family {
    /// About how much lies in a range, from memory alone: no block is read.
    ///
    /// How exact it is. Tables inside the range are counted exactly; a table that an end of the
    /// range cuts is off by at most half a block of it (entries are taken to be spread evenly over
    /// its blocks, value-log bytes over its entries). Memtables are exact (where different bytes
    /// may be one key: up to 256 entries in the range, beyond that with a standard error of 6 %).
    /// `keys` counts a key that several runs hold once where their sketches show it (standard error
    /// 2.3 %, tables of 2048 keys and more; smaller overlapping ones count twice), and takes each
    /// tombstone for a key that is gone: after `compact` it is as exact as `entries`. Entries that
    /// have expired, or that a range delete hides, count until compaction drops them.
    ///
    /// ```
    /// # use perigee::{Db, Options};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
    /// for i in 0..100u8 {
    ///     db.put([i], "value")?;
    /// }
    /// assert_eq!(db.estimate_range([10u8]..[30u8])?.keys, 20); // still in memory, and few: exact
    /// db.flush()?;
    /// assert_eq!(db.estimate_range([0u8]..)?.entries, 100); // the whole table: exact
    /// assert_eq!(db.range_cost([0u8]..)?.tables, 1);
    /// assert!(db.cardinality()?.keys.abs_diff(100) <= 7);
    /// # Ok(())
    /// # }
    /// ```
    pub fn estimate_range<K: AsRef<[u8]>>(
        &self,
        range: impl RangeBounds<K>,
    ) -> Result<RangeEstimate> {
        let (view, _) = self.engine.read_view(&self.inner)?;
        let e = estimate::estimate_range_size(&view, &range_to_bounds(&range));
        Ok(RangeEstimate {
            disk_bytes: e.disk_bytes,
            memory_bytes: e.memory_bytes,
            entries: e.entries,
            keys: e.keys,
        })
    }

    /// What a scan of a range would touch now: exact for the tables as they are, and no block is
    /// read to know it.
    pub fn range_cost<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<RangeCost> {
        let (view, _) = self.engine.read_view(&self.inner)?;
        let c = estimate::estimate_scan_cost(&view, &range_to_bounds(&range));
        Ok(RangeCost {
            memtables: c.memtables,
            runs: c.runs,
            tables: c.tables,
            blocks: c.blocks,
            bytes: c.bytes,
        })
    }

    /// About how many different keys the family has, by HyperLogLog sketches that tables carry:
    /// standard error 2.3 %, so more than 7 % off once in 400 times. Keys that several tables hold
    /// count once. Walks the memtables, and the tables of fewer than 2048 keys, which have no
    /// sketch.
    pub fn cardinality(&self) -> Result<Cardinality> {
        let (view, _) = self.engine.read_view(&self.inner)?;
        let (keys, tombstones) = estimate::estimate_distinct_keys(&view)?;
        Ok(Cardinality { keys, tombstones })
    }
}

impl Db {
    /// [`Family::estimate_range`] on `default`.
    pub fn estimate_range<K: AsRef<[u8]>>(
        &self,
        range: impl RangeBounds<K>,
    ) -> Result<RangeEstimate> {
        self.default_family().estimate_range(range)
    }
    /// [`Family::range_cost`] on `default`.
    pub fn range_cost<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<RangeCost> {
        self.default_family().range_cost(range)
    }
    /// [`Family::cardinality`] of `default`.
    pub fn cardinality(&self) -> Result<Cardinality> {
        self.default_family().cardinality()
    }
}
