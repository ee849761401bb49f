//! Verification of outputs before they are installed: each is read back in full, to check that the
//! bytes on disk are those that were written.

use crate::version::{TableMeta, VlogMeta};
use perigee_base::Result;
use perigee_file::TableCache;

/// Reads a finished table back and verifies it; with `fill_cache` its blocks are cached, as long as
/// the block cache has room.
pub fn verify_table(table_cache: &TableCache, t: &TableMeta, fill_cache: bool) -> Result<()> {
    table_cache.klog_reader(t.id, t.summary.bytes)?.verify_output(t.summary.checksum, fill_cache)
}

/// Reads a finished value log back and verifies it.
pub fn verify_vlog(table_cache: &TableCache, v: &VlogMeta) -> Result<()> {
    table_cache.vlog_reader(v.id, v.bytes)?.verify(v.checksum, &mut |_| {})
}
