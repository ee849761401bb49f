//! Outputs read again before they are believed, from their first byte to their last: what lies on disk is what was meant.

use crate::version::{TableMeta, VlogMeta};
use perigee_base::Result;
use perigee_base::bug::{self, Bug};
use perigee_file::Shelf;

/// Reads a finished table again.
pub fn table(shelf: &Shelf, t: &TableMeta) -> Result<()> {
    if bug::on(Bug::IgnoreBlockChecksum) {
        return Ok(());
    }
    shelf.klog(t.id, t.summary.bytes)?.verify(t.summary.checksum, &mut |_| {})
}

/// Reads a finished value log again.
pub fn vlog(shelf: &Shelf, v: &VlogMeta) -> Result<()> {
    shelf.vlog(v.id, v.bytes)?.verify(v.checksum, &mut |_| {})
}
