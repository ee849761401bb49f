//! The one number under which values go on that every reader sees, and beneath which nothing lies: nobody will ask how old they
//! are, and a column of equal numbers takes no space. Pure.
//!
//! Invariant: the number is at least that of everything that the merge takes in, and smaller than that of everything newer. So a
//! repair that has nothing but numbers to go by, among files that were replaced long ago and old logs, takes none of those
//! for newer, and none that is newer for older.

use super::plan::Plan;
use crate::View;
use crate::mvcc::Strata;
use perigee_base::bug::{self, Bug};
use perigee_base::{FileId, SeqNo};
use std::collections::HashSet;

/// The number, if there is one: the newest of the inputs. `view` is taken after the readers were listed.
pub fn number(plan: &Plan, view: &View, strata: &Strata) -> Option<SeqNo> {
    let order = view.version.order;
    let named: HashSet<FileId> = plan.inputs.iter().map(|(_, id)| *id).collect();
    let tables = || view.version.tables().map(|(_, _, t)| &t.meta);
    let inputs: Vec<_> = tables().filter(|t| named.contains(&t.id)).collect();
    let newest = inputs.iter().map(|t| t.seqs().1).max().filter(|_| inputs.len() == named.len())?;
    let seen = strata.oldest(newest) || bug::on(Bug::SettleUnderSnapshot);
    let in_memory = || view.memtables().any(|m| (1..=newest.0).contains(&m.first_seq().0));
    let elsewhere = || {
        let mut others = tables().filter(|t| !named.contains(&t.id) && t.seqs().0 <= newest);
        others.any(|t| inputs.iter().any(|input| t.summary.overlaps(order, &input.summary)))
    };
    (seen && !in_memory() && !elsewhere()).then_some(newest)
}
