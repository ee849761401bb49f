//! What an open transaction has written to one family, laid over a view for its own eyes.
//!
//! Own entries are numbered above every sequence number there can be, in the order in which they were written. So in entry
//! order they stand before what others committed, and range tombstones among them hide what a committed one would. The
//! newest lie in a memtable; what did not fit into memory lies in runs of tables of the transaction's own ([`Spilled`]). What a
//! rollback to a savepoint took back stays in either and is passed over.
//!
//! It is a picture: what is written later has a higher number than it shows, so that a cursor goes on undisturbed.
//!
//! Invariant: every number in the memtable is above every number in a run, and every number of a run above every one of the
//! runs behind it. So the first source that has something to say about a key has the last word.

use crate::Memtable;
use crate::version::{Run, Vlog};
use perigee_base::{FileId, KeyOrder, SeqNo};
use perigee_file::Found;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ops::Range;
use std::sync::Arc;

/// Own entries are numbered from here up. No operation of a database reaches it.
pub const FLOOR: u64 = 1 << 62;

/// The runs of a transaction that did not fit into memory.
#[derive(Debug, Default)]
pub struct Spilled {
    /// The newest first.
    pub runs: Vec<Arc<Run>>,
    /// The value logs that they use.
    pub vlogs: BTreeMap<FileId, Arc<Vlog>>,
}

impl Spilled {
    /// Whether there are range tombstones.
    pub fn has_ranges(&self) -> bool {
        self.runs.iter().flat_map(|r| &r.tables).any(|t| t.meta.summary.ranges.is_some())
    }
}

/// Which of a transaction's numbers are shown.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a> {
    /// The first number that is not.
    pub end: u64,
    /// Numbers taken back, ascending and apart.
    pub dead: &'a [Range<u64>],
}

impl Shown<'_> {
    /// Whether an entry of this number is.
    pub fn sees(&self, seq: SeqNo) -> bool {
        (FLOOR..self.end).contains(&seq.0) && self.below(seq.0).is_none()
    }
    /// Where an entry was taken back: the number to look for an older one from.
    fn below(&self, number: u64) -> Option<SeqNo> {
        let at = self.dead.partition_point(|r| r.end <= number);
        self.dead.get(at).filter(|r| r.contains(&number)).map(|r| SeqNo(r.start).prev())
    }
    /// The newest that `older` has and this shows; `older` answers with the newest at or before a number.
    pub fn try_newest<T, E>(
        &self,
        older: impl Fn(SeqNo) -> Result<Option<(SeqNo, T)>, E>,
    ) -> Result<Option<(SeqNo, T)>, E> {
        let mut at = SeqNo(self.end).prev();
        loop {
            let Some((seq, found)) = older(at)?.filter(|(seq, _)| seq.0 >= FLOOR) else { return Ok(None) };
            match self.below(seq.0) {
                None => return Ok(Some((seq, found))),
                Some(lower) => at = lower,
            }
        }
    }
    fn newest<T>(&self, older: impl Fn(SeqNo) -> Option<(SeqNo, T)>) -> Option<(SeqNo, T)> {
        let Ok(found) = self.try_newest(|at| Ok::<_, Infallible>(older(at)));
        found
    }
    /// What a memtable of own entries says last of `key` itself.
    pub fn point(&self, memtable: &Memtable, key: &[u8]) -> Option<(SeqNo, Found)> {
        self.newest(|at| memtable.get(key, at))
    }
    /// The newest of a stretch's range tombstones; `older` answers with the newest at or before a number.
    pub fn range(&self, older: impl Fn(SeqNo) -> Option<SeqNo>) -> Option<SeqNo> {
        self.newest(|at| Some((older(at)?, ()))).map(|(seq, ())| seq)
    }
    /// The newest range tombstone of a memtable of own entries over `key`.
    pub fn cover(&self, memtable: &Memtable, order: KeyOrder, key: &[u8]) -> Option<SeqNo> {
        self.range(|at| memtable.ranges().with(|list| list.covering(order, key)?.newest(at)).flatten())
    }
}

/// The transaction's entries in one family, up to a moment.
#[derive(Clone, Debug)]
pub struct Own {
    memtable: Arc<Memtable>,
    spilled: Option<Arc<Spilled>>,
    end: u64,
    dead: Arc<[Range<u64>]>,
}

impl Own {
    /// The entries of `memtable` that are shown.
    pub fn new(memtable: Arc<Memtable>, shown: Shown<'_>) -> Own {
        Own { memtable, spilled: None, end: shown.end, dead: shown.dead.into() }
    }
    /// With what lies in runs.
    #[must_use]
    pub fn over(self, spilled: Option<Arc<Spilled>>) -> Own {
        Own { spilled, ..self }
    }
    /// The memtable.
    pub fn memtable(&self) -> &Arc<Memtable> {
        &self.memtable
    }
    /// What lies in runs, if anything.
    pub fn spilled(&self) -> Option<&Arc<Spilled>> {
        self.spilled.as_ref()
    }
    /// The runs, the newest first.
    pub fn runs(&self) -> &[Arc<Run>] {
        self.spilled.as_ref().map_or(&[], |s| &s.runs)
    }
    /// Which numbers are shown.
    pub fn shown(&self) -> Shown<'_> {
        Shown { end: self.end, dead: &self.dead }
    }
    /// Whether an entry of this number is shown.
    pub fn sees(&self, seq: SeqNo) -> bool {
        self.shown().sees(seq)
    }
    /// Shows what the transaction did to `key` itself, the newest first, until `show` has seen enough (false).
    pub fn versions(&self, key: &[u8], mut show: impl FnMut(SeqNo, Found) -> bool) {
        let last = SeqNo(self.end).prev();
        self.memtable.versions(key, last, |seq, found| !self.sees(seq) || show(seq, found));
    }
    /// The newest of its range tombstones in memory over `key`.
    pub fn cover(&self, order: KeyOrder, key: &[u8]) -> Option<SeqNo> {
        self.shown().cover(&self.memtable, order, key)
    }
    /// Whether there are range tombstones.
    pub fn has_ranges(&self) -> bool {
        self.memtable.ranges().any() || self.spilled.as_ref().is_some_and(|s| s.has_ranges())
    }
}
