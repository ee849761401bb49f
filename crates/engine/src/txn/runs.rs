//! What a transaction asks of the room that keeps what does not fit into its memory. It must not know files, budgets or how
//! tables come into families: those are the rooms behind the commit.

use super::validate::Conditions;
use perigee_base::{FamilyId, Result, SeqNo};
use perigee_tree::Memtable;
use perigee_tree::bulk::spill::Numbers;
use perigee_tree::own::Spilled;
use std::fmt::Debug;
use std::sync::Arc;

/// A transaction's writes outside its memory. Dropped, it leaves nothing.
pub trait Runs: Debug + Send {
    /// The transaction holds so many bytes of memory.
    fn holds(&mut self, bytes: u64);
    /// What lies here of a family.
    fn of(&self, family: FamilyId) -> Option<Arc<Spilled>>;
    /// Writes memtables of own entries, none of which was taken back, as the newest runs of their families.
    ///
    /// # Errors
    /// `NoSpace`, `Io`: none of it is here, try again or give up. `NotFound`: a family was dropped.
    fn add(&mut self, memtables: &[(FamilyId, Arc<Memtable>)], numbers: &Numbers) -> Result<()>;
    /// Everything from that number on was taken back.
    fn roll_back(&mut self, number: SeqNo);
    /// Makes everything that is here visible to all at once, and durable, if the conditions hold; of what is in memory the
    /// transaction has made runs before. The number of all of it.
    ///
    /// # Errors
    /// `Conflict`; as the publication of a load.
    fn commit(
        self: Box<Self>,
        numbers: &Numbers,
        conditions: Option<Box<Conditions>>,
        operations: usize,
    ) -> Result<SeqNo>;
}
