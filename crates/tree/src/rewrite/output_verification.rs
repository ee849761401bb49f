//! Outputs read again before they are believed, from their first byte to their last: what lies on
//! disk is what was meant.

use crate::version::{TableMeta, VlogMeta};
use perigee_base::Result;
use perigee_base::bug::{self, Bug};
use perigee_file::TableCache;

/// Reads a finished table again.
pub fn verify_table(shelf: &TableCache, t: &TableMeta) -> Result<()> {
    if bug::is_active(Bug::IgnoreBlockChecksum) {
        return Ok(());
    }
    shelf.klog_reader(t.id, t.summary.bytes)?.verify(t.summary.checksum, &mut |_| {})
}

/// Reads a finished value log again.
pub fn verify_vlog(shelf: &TableCache, v: &VlogMeta) -> Result<()> {
    shelf.vlog_reader(v.id, v.bytes)?.verify(v.checksum, &mut |_| {})
}
