//! The common sequence number that a merge may give to all values that every reader sees and that
//! have no older versions below them: their own numbers are no longer needed, and a column of equal
//! numbers takes no space. Pure.
//!
//! Invariant: the number is at least that of every input entry, and smaller than that of everything
//! newer. A repair that has only sequence numbers to go by, and finds replaced files and old log
//! segments, therefore never takes their entries for newer than the merged ones, nor newer entries
//! for older.

use super::plan::CompactionPlan;
use crate::View;
use crate::mvcc::SnapshotStripes;
use perigee_base::bug::{self, Bug};
use perigee_base::{FileId, SeqNo};
use std::collections::HashSet;

/// Returns the newest sequence number of the inputs, or `None` if an older entry may exist outside
/// the inputs or a reader does not see all of them. `view` must be taken after the snapshots were
/// listed.
pub fn common_seq(plan: &CompactionPlan, view: &View, stripes: &SnapshotStripes) -> Option<SeqNo> {
    let comparator = view.version.comparator;
    let named: HashSet<FileId> = plan.inputs.iter().map(|(_, id)| *id).collect();
    let tables = || view.version.tables().map(|(_, _, t)| &t.meta);
    let inputs: Vec<_> = tables().filter(|t| named.contains(&t.id)).collect();
    let newest =
        inputs.iter().map(|t| t.seq_range().1).max().filter(|_| inputs.len() == named.len())?;
    let seen = stripes.is_in_oldest_stripe(newest) || bug::is_active(Bug::BottomSeqUnderSnapshot);
    let in_memory = || view.memtables().any(|m| (1..=newest.0).contains(&m.first_seq().0));
    let elsewhere = || {
        let mut others = tables().filter(|t| !named.contains(&t.id) && t.seq_range().0 <= newest);
        others.any(|t| inputs.iter().any(|input| t.summary.overlaps(comparator, &input.summary)))
    };
    (seen && !in_memory() && !elsewhere()).then_some(newest)
}
