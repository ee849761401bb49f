//! Estimates: the size of a key range, the cost of scanning it, and the number of keys in a column
//! family.

use crate::read::iter::range_to_bounds;
use crate::read::source::ReadSource;
use crate::{Family, Readable, Result};
pub use perigee_engine::reader::{Cardinality, RangeCost, RangeEstimate};
use std::ops::RangeBounds;

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
    /// - Which entries of a memtable are new keys or deletes is known from a sample. Entries that are
    ///   fewer than the error of a table that the range cuts, and than a quarter of the keys, count
    ///   as overwritten keys.
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
    /// assert_eq!(db.default_family().estimate_range([10u8]..[30u8])?.keys, 20); // memtable: exact
    /// db.admin().flush()?;
    /// assert_eq!(db.default_family().estimate_range([0u8]..)?.entries, 100); // whole table: exact
    /// assert_eq!(db.default_family().range_cost([0u8]..)?.tables, 1);
    /// assert!(db.default_family().cardinality()?.keys.abs_diff(100) <= 7);
    /// # Ok(())
    /// # }
    /// ```
    pub fn estimate_range<K: AsRef<[u8]>>(
        &self,
        range: impl RangeBounds<K>,
    ) -> Result<RangeEstimate> {
        Readable::estimate_range(self, range)
    }

    /// Returns what a scan of a key range would read now. Exact for the current tables; reads no
    /// blocks.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// family.put("moon", "full")?;
    /// family.flush()?;
    /// assert_eq!(family.range_cost("a".."z")?.tables, 1);
    /// assert_eq!(family.range_cost("n".."z")?.tables, 0);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn range_cost<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<RangeCost> {
        self.with_reader(|reader| Ok(reader.estimate_range_cost(&range_to_bounds(&range))))
    }

    /// Estimates the number of distinct keys from the HyperLogLog sketches of the tables. Standard
    /// error 2.3 %: the error exceeds 7 % in about 1 of 400 cases. A key in several tables counts
    /// once. Cost: scans the memtables and the tables with fewer than 2048 keys, which have no
    /// sketch.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// for day in ["11/20", "11/21", "11/21"] {
    ///     family.put(day, "")?;
    /// }
    /// assert_eq!(family.cardinality()?.keys, 2);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn cardinality(&self) -> Result<Cardinality> {
        self.with_reader(|reader| reader.estimate_cardinality())
    }
}
