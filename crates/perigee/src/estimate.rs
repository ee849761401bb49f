//! Estimates: the size of a key range, the cost of scanning it, and the number of keys in a column
//! family.

use crate::iter::range_to_bounds;
use crate::{Db, Family, Result};
use perigee_tree::estimate;
use std::ops::RangeBounds;

/// Approximate size of a key range; see [`Family::estimate_range`].
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

/// What a scan of a key range would read; see [`Family::range_cost`].
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

/// Approximate number of keys in a column family; see [`Family::cardinality`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cardinality {
    /// Distinct keys, including those whose newest version is a tombstone.
    pub keys: u64,
    /// Stored tombstones: at most this many of `keys` do not exist any more.
    pub tombstones: u64,
}

impl Family {
    /// Estimates the size of a key range from metadata in memory; reads no blocks.
    ///
    /// Accuracy:
    /// - Tables inside the range are counted exactly. For a table that only partly overlaps the
    ///   range the error is at most half a block per end; entries are assumed to be spread evenly
    ///   over its blocks, and value-log bytes over its entries.
    /// - Memtables are counted exactly. Exception: under comparators that treat different bytes as
    ///   equal, more than 256 entries in the range are counted with a standard error of 6 %.
    /// - `keys` counts a key in several runs once if the HyperLogLog sketches of the tables show it
    ///   (standard error 2.3 %). Tables with fewer than 2048 keys have no sketch: keys in several
    ///   of them count several times. Each tombstone is assumed to hide one key. After
    ///   [`Family::compact`], `keys` is as exact as `entries`.
    /// - Entries that have expired or are covered by a range tombstone count until a compaction
    ///   drops them.
    ///
    /// ```
    /// # use perigee::{Db, Options};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
    /// for i in 0..100u8 {
    ///     db.put([i], "value")?;
    /// }
    /// assert_eq!(db.estimate_range([10u8]..[30u8])?.keys, 20); // memtable: exact
    /// db.flush()?;
    /// assert_eq!(db.estimate_range([0u8]..)?.entries, 100); // whole table: exact
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

    /// Returns what a scan of a key range would read now. Exact for the current tables; reads no
    /// blocks.
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

    /// Estimates the number of distinct keys from the HyperLogLog sketches of the tables. Standard
    /// error 2.3 %: the error exceeds 7 % in about 1 of 400 cases. A key in several tables counts
    /// once. Cost: scans the memtables and the tables with fewer than 2048 keys, which have no
    /// sketch.
    pub fn cardinality(&self) -> Result<Cardinality> {
        let (view, _) = self.engine.read_view(&self.inner)?;
        let (keys, tombstones) = estimate::estimate_distinct_keys(&view)?;
        Ok(Cardinality { keys, tombstones })
    }
}

impl Db {
    /// Calls [`Family::estimate_range`] on `default`.
    pub fn estimate_range<K: AsRef<[u8]>>(
        &self,
        range: impl RangeBounds<K>,
    ) -> Result<RangeEstimate> {
        self.default_family().estimate_range(range)
    }
    /// Calls [`Family::range_cost`] on `default`.
    pub fn range_cost<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<RangeCost> {
        self.default_family().range_cost(range)
    }
    /// Calls [`Family::cardinality`] on `default`.
    pub fn cardinality(&self) -> Result<Cardinality> {
        self.default_family().cardinality()
    }
}
