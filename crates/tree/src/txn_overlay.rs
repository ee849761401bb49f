//! What an open transaction has written to one family, laid over a view for its own eyes.
//!
//! Own entries are numbered above every sequence number there can be, in the order in which they
//! were written. So in entry order they stand before what others committed, and range tombstones
//! among them hide what a committed one would. The newest lie in a memtable; what did not fit into
//! memory lies in runs of tables of the transaction's own ([`Spilled`]). What a rollback to a
//! savepoint took back stays in either and is passed over.
//!
//! It is a picture: what is written later has a higher number than it shows, so that a cursor goes
//! on undisturbed.
//!
//! Invariant: every number in the memtable is above every number in a run, and every number of a
//! run above every one of the runs behind it. So the first source that has something to say about a
//! key has the last word.

use crate::Memtable;
use crate::version::{Run, Vlog};
use perigee_base::{FileId, KeyComparator, SeqNo};
use perigee_file::EntryValue;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ops::Range;
use std::sync::Arc;

/// Own entries are numbered from here up. No operation of a database reaches it.
pub const TXN_SEQ_BASE: u64 = 1 << 62;

/// The runs of a transaction that did not fit into memory.
#[derive(Debug, Default)]
pub struct OverlayRuns {
    /// The newest first.
    pub runs: Vec<Arc<Run>>,
    /// The value logs that they use.
    pub vlogs: BTreeMap<FileId, Arc<Vlog>>,
}

impl OverlayRuns {
    /// Whether there are range tombstones.
    pub fn has_range_tombstones(&self) -> bool {
        self.runs.iter().flat_map(|r| &r.tables).any(|t| t.meta.summary.ranges.is_some())
    }
}

/// Which of a transaction's numbers are shown.
#[derive(Clone, Copy, Debug)]
pub struct VisibleSeqs<'a> {
    /// The first number that is not.
    pub end_seq: u64,
    /// Numbers taken back, ascending and apart.
    pub rolled_back: &'a [Range<u64>],
}

impl VisibleSeqs<'_> {
    /// Whether an entry of this number is.
    pub fn is_visible(&self, seq: SeqNo) -> bool {
        (TXN_SEQ_BASE..self.end_seq).contains(&seq.0) && self.before_rolled_back(seq.0).is_none()
    }
    /// Where an entry was taken back: the number to look for an older one from.
    fn before_rolled_back(&self, number: u64) -> Option<SeqNo> {
        let at = self.rolled_back.partition_point(|r| r.end <= number);
        self.rolled_back.get(at).filter(|r| r.contains(&number)).map(|r| SeqNo(r.start).prev())
    }
    /// The newest that `older` has and this shows; `older` answers with the newest at or before a
    /// number.
    pub fn try_newest_visible<T, E>(
        &self,
        older: impl Fn(SeqNo) -> Result<Option<(SeqNo, T)>, E>,
    ) -> Result<Option<(SeqNo, T)>, E> {
        let mut at = SeqNo(self.end_seq).prev();
        loop {
            let Some((seq, found)) = older(at)?.filter(|(seq, _)| seq.0 >= TXN_SEQ_BASE) else {
                return Ok(None);
            };
            match self.before_rolled_back(seq.0) {
                None => return Ok(Some((seq, found))),
                Some(lower) => at = lower,
            }
        }
    }
    fn newest_visible<T>(&self, older: impl Fn(SeqNo) -> Option<(SeqNo, T)>) -> Option<(SeqNo, T)> {
        let Ok(found) = self.try_newest_visible(|at| Ok::<_, Infallible>(older(at)));
        found
    }
    /// What a memtable of own entries says last of `key` itself.
    pub fn newest_point(&self, memtable: &Memtable, key: &[u8]) -> Option<(SeqNo, EntryValue)> {
        self.newest_visible(|at| memtable.get(key, at))
    }
    /// The newest of a stretch's range tombstones; `older` answers with the newest at or before a
    /// number.
    pub fn newest_range_tombstone(&self, older: impl Fn(SeqNo) -> Option<SeqNo>) -> Option<SeqNo> {
        self.newest_visible(|at| Some((older(at)?, ()))).map(|(seq, ())| seq)
    }
    /// The newest range tombstone of a memtable of own entries over `key`.
    pub fn covering_tombstone(
        &self,
        memtable: &Memtable,
        order: KeyComparator,
        key: &[u8],
    ) -> Option<SeqNo> {
        self.newest_range_tombstone(|at| {
            memtable
                .range_tombstones()
                .with_fragments(|list| list.fragment_covering(order, key)?.newest_visible(at))
                .flatten()
        })
    }
}

/// The transaction's entries in one family, up to a moment.
#[derive(Clone, Debug)]
pub struct TxnOverlay {
    memtable: Arc<Memtable>,
    spilled: Option<Arc<OverlayRuns>>,
    end_seq: u64,
    rolled_back: Arc<[Range<u64>]>,
}

impl TxnOverlay {
    /// The entries of `memtable` that are shown.
    pub fn new(memtable: Arc<Memtable>, shown: VisibleSeqs<'_>) -> TxnOverlay {
        TxnOverlay {
            memtable,
            spilled: None,
            end_seq: shown.end_seq,
            rolled_back: shown.rolled_back.into(),
        }
    }
    /// With what lies in runs.
    #[must_use]
    pub fn with_spilled(self, spilled: Option<Arc<OverlayRuns>>) -> TxnOverlay {
        TxnOverlay { spilled, ..self }
    }
    /// The memtable.
    pub fn memtable(&self) -> &Arc<Memtable> {
        &self.memtable
    }
    /// What lies in runs, if anything.
    pub fn spilled(&self) -> Option<&Arc<OverlayRuns>> {
        self.spilled.as_ref()
    }
    /// The runs, the newest first.
    pub fn runs(&self) -> &[Arc<Run>] {
        self.spilled.as_ref().map_or(&[], |s| &s.runs)
    }
    /// Which numbers are shown.
    pub fn visible_seqs(&self) -> VisibleSeqs<'_> {
        VisibleSeqs { end_seq: self.end_seq, rolled_back: &self.rolled_back }
    }
    /// Whether an entry of this number is shown.
    pub fn is_visible(&self, seq: SeqNo) -> bool {
        self.visible_seqs().is_visible(seq)
    }
    /// Shows what the transaction did to `key` itself, the newest first, until `show` has seen
    /// enough (false).
    pub fn for_each_version(&self, key: &[u8], mut show: impl FnMut(SeqNo, EntryValue) -> bool) {
        let last = SeqNo(self.end_seq).prev();
        self.memtable
            .for_each_version(key, last, |seq, found| !self.is_visible(seq) || show(seq, found));
    }
    /// The newest of its range tombstones in memory over `key`.
    pub fn covering_tombstone(&self, order: KeyComparator, key: &[u8]) -> Option<SeqNo> {
        self.visible_seqs().covering_tombstone(&self.memtable, order, key)
    }
    /// Whether there are range tombstones.
    pub fn has_range_tombstones(&self) -> bool {
        self.memtable.range_tombstones().has_any()
            || self.spilled.as_ref().is_some_and(|s| s.has_range_tombstones())
    }
}
