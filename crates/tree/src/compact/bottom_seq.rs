//! The one number under which values go on that every reader sees, and beneath which nothing lies:
//! nobody will ask how old they are, and a column of equal numbers takes no space. Pure.
//!
//! Invariant: the number is at least that of everything that the merge takes in, and smaller than
//! that of everything newer. So a repair that has nothing but numbers to go by, among files that
//! were replaced long ago and old logs, takes none of those for newer, and none that is newer for
//! older.

use super::plan::CompactionPlan;
use crate::View;
use crate::mvcc::SnapshotStripes;
use perigee_base::bug::{self, Bug};
use perigee_base::{FileId, SeqNo};
use std::collections::HashSet;

/// The number, if there is one: the newest of the inputs. `view` is taken after the readers were
/// listed.
pub fn common_seq(plan: &CompactionPlan, view: &View, strata: &SnapshotStripes) -> Option<SeqNo> {
    let order = view.version.comparator;
    let named: HashSet<FileId> = plan.inputs.iter().map(|(_, id)| *id).collect();
    let tables = || view.version.tables().map(|(_, _, t)| &t.meta);
    let inputs: Vec<_> = tables().filter(|t| named.contains(&t.id)).collect();
    let newest =
        inputs.iter().map(|t| t.seq_range().1).max().filter(|_| inputs.len() == named.len())?;
    let seen = strata.is_in_oldest_stripe(newest) || bug::is_active(Bug::SettleUnderSnapshot);
    let in_memory = || view.memtables().any(|m| (1..=newest.0).contains(&m.first_seq().0));
    let elsewhere = || {
        let mut others = tables().filter(|t| !named.contains(&t.id) && t.seq_range().0 <= newest);
        others.any(|t| inputs.iter().any(|input| t.summary.overlaps(order, &input.summary)))
    };
    (seen && !in_memory() && !elsewhere()).then_some(newest)
}
