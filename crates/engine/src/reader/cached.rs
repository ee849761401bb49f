//! Gets through the row cache.

use super::Reader;
use crate::resources::row_cache::{RowCache, RowLookup, RowRead};
use perigee_base::{PinnedSlice, Result};
use perigee_env::sim::yield_point;
use perigee_file::EntryValue;
use perigee_tree::read;

impl Reader<'_> {
    /// Returns the value of `key` from the row cache, or reads and caches it.
    #[inline(never)]
    pub(super) fn get_cached(&self, cache: &RowCache, key: &[u8]) -> Result<Option<PinnedSlice>> {
        if !self.family.has_cacheable_rows() {
            return read::get(&self.view, key, self.sequence);
        }
        let row = RowRead {
            key: self.family.row_key(key),
            seq: self.row_cache_seq,
            epoch: &self.family.row_cache_epoch,
        };
        yield_point();
        match cache.lookup(&row) {
            RowLookup::Hit(found) => {
                if found.expiry.is_none_or(|x| !x.is_expired(self.view.now.now_ms())) {
                    return Ok(found.value);
                }
                cache.remove_expired(&row.key);
            }
            RowLookup::Miss => {}
            RowLookup::Skipped => return read::get(&self.view, key, self.sequence),
        }
        self.read_and_cache(cache, &row, key)
    }
    fn read_and_cache(
        &self,
        cache: &RowCache,
        row: &RowRead<'_>,
        key: &[u8],
    ) -> Result<Option<PinnedSlice>> {
        let (value, expiry) = match read::lookup(&self.view, key, self.sequence)? {
            // A filter answers faster than the cache.
            None if self.family.has_filters() => {
                cache.count_uncached(&row.key);
                return Ok(None);
            }
            None | Some((_, EntryValue::Tombstone)) => (None, None),
            Some((_, found)) if !read::is_live(&found, &*self.view.now) => return Ok(None),
            Some((_, found)) => {
                let (expiry, is_operand) = (found.expiry(), found.is_operand());
                let value = read::read_value(&self.view, key, self.sequence, found)?;
                if is_operand {
                    return Ok(Some(value));
                }
                (Some(value), expiry)
            }
        };
        yield_point();
        if cache.fill(row, value.as_deref(), expiry) {
            self.engine.resources.rebalance_memory();
        }
        Ok(value)
    }
}
