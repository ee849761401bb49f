//! What a transaction asks of the room that keeps what does not fit into its memory. It must not
//! know files, budgets or how tables come into families: those are the rooms behind the commit.

use super::validate::CommitConditions;
use perigee_base::{FamilyId, Result, SeqNo};
use perigee_tree::Memtable;
use perigee_tree::bulk::spill_runs::TxnSeqInfo;
use perigee_tree::txn_overlay::OverlayRuns;
use std::fmt::Debug;
use std::sync::Arc;

/// A transaction's writes outside its memory. Dropped, it leaves nothing.
pub trait SpillStore: Debug + Send {
    /// The transaction holds so many bytes of memory.
    fn set_memory_bytes(&mut self, bytes: u64);
    /// What lies here of a family.
    fn spilled_in(&self, family: FamilyId) -> Option<Arc<OverlayRuns>>;
    /// Writes memtables of own entries, none of which was taken back, as the newest runs of their
    /// families.
    ///
    /// # Errors
    /// `NoSpace`, `Io`: none of it is here, try again or give up. `NotFound`: a family was dropped.
    fn add_runs(
        &mut self,
        memtables: &[(FamilyId, Arc<Memtable>)],
        numbers: &TxnSeqInfo,
    ) -> Result<()>;
    /// Everything from that number on was taken back.
    fn roll_back_from(&mut self, number: SeqNo);
    /// Makes everything that is here visible to all at once, and durable, if the conditions hold;
    /// of what is in memory the transaction has made runs before. The number of all of it.
    ///
    /// # Errors
    /// `Conflict`; as the publication of a load.
    fn commit_spilled(
        self: Box<Self>,
        numbers: &TxnSeqInfo,
        conditions: Option<Box<CommitConditions>>,
        operations: usize,
    ) -> Result<SeqNo>;
}
