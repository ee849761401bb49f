//! The writes of an open transaction in one column family, laid over a view for its own reads.
//!
//! Own entries have sequence numbers above all that can be committed, in the order in which they
//! were written. So in entry order they precede committed entries, and their range tombstones hide
//! what committed ones would hide. The newest entries are in a memtable; those that did not fit
//! into memory are in the transaction's own runs of tables ([`OverlayRuns`]). Entries rolled back
//! to a savepoint stay in both, and are skipped.
//!
//! An overlay shows a fixed state: later writes have higher sequence numbers than it shows, so that
//! they do not disturb a cursor.
//!
//! Invariant: every sequence number in the memtable is above all in the runs, and every one in a
//! run is above all in the runs after it. The first source with an entry for a key therefore has
//! the newest version.

use crate::Memtable;
use crate::version::{Run, Vlog};
use perigee_base::{FileId, SeqNo, ValueRef};
use perigee_file::EntryValue;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ops::Range;
use std::sync::Arc;

/// First sequence number of a transaction's own entries. Committed operations never reach it.
pub const TXN_SEQ_BASE: SeqNo = SeqNo(1 << 62);

/// The runs of a transaction that did not fit into memory.
#[derive(Debug, Default)]
pub struct OverlayRuns {
    /// Runs, newest first.
    pub runs: Vec<Arc<Run>>,
    /// Value logs that the runs reference.
    pub vlogs: BTreeMap<FileId, Arc<Vlog>>,
}

impl OverlayRuns {
    /// Returns true if there are range tombstones.
    pub fn has_range_tombstones(&self) -> bool {
        self.runs.iter().flat_map(|r| &r.tables).any(|t| t.meta.summary.ranges.is_some())
    }
}

/// The sequence numbers of a transaction that are visible.
#[derive(Clone, Copy, Debug)]
pub struct VisibleSeqs<'a> {
    /// First sequence number that is not visible.
    pub end_seq: SeqNo,
    /// Sequence numbers that were rolled back, ascending and disjoint.
    pub rolled_back: &'a [Range<SeqNo>],
}

impl VisibleSeqs<'_> {
    /// Returns true if an entry with this sequence number is visible.
    pub fn is_visible(&self, seq: SeqNo) -> bool {
        (TXN_SEQ_BASE..self.end_seq).contains(&seq) && self.before_rolled_back(seq).is_none()
    }
    /// If `seq` was rolled back, returns the sequence number from which to search for an older
    /// version.
    fn before_rolled_back(&self, seq: SeqNo) -> Option<SeqNo> {
        let at = self.rolled_back.partition_point(|r| r.end <= seq);
        self.rolled_back.get(at).filter(|r| r.contains(&seq)).map(|r| r.start.prev())
    }
    /// Returns the newest visible version. `older` returns the newest version at or before a
    /// sequence number.
    pub fn try_newest_visible<T, E>(
        &self,
        older: impl Fn(SeqNo) -> Result<Option<(SeqNo, T)>, E>,
    ) -> Result<Option<(SeqNo, T)>, E> {
        let mut at = self.end_seq.prev();
        loop {
            let Some((seq, found)) = older(at)?.filter(|(seq, _)| *seq >= TXN_SEQ_BASE) else {
                return Ok(None);
            };
            match self.before_rolled_back(seq) {
                None => return Ok(Some((seq, found))),
                Some(lower) => {
                    check_slow!(
                        lower < seq,
                        "the search continues with older versions",
                        lower,
                        seq
                    );
                    at = lower;
                }
            }
        }
    }
    fn newest_visible<T>(&self, older: impl Fn(SeqNo) -> Option<(SeqNo, T)>) -> Option<(SeqNo, T)> {
        let Ok(found) = self.try_newest_visible(|at| Ok::<_, Infallible>(older(at)));
        found
    }
    /// Returns the newest visible version of `key` in a memtable of own entries, range tombstones
    /// excluded.
    pub fn newest_point(&self, memtable: &Memtable, key: &[u8]) -> Option<(SeqNo, EntryValue)> {
        self.newest_visible(|at| memtable.get(key, at))
    }
    /// Returns the newest visible range tombstone. `older` returns the newest one at or before a
    /// sequence number.
    pub fn newest_range_tombstone(&self, older: impl Fn(SeqNo) -> Option<SeqNo>) -> Option<SeqNo> {
        self.newest_visible(|at| Some((older(at)?, ()))).map(|(seq, ())| seq)
    }
    /// Returns the newest visible range tombstone over `key` in a memtable of own entries.
    pub fn covering_tombstone(&self, memtable: &Memtable, key: &[u8]) -> Option<SeqNo> {
        memtable.range_tombstones().newest_covering(key, |seq| self.is_visible(seq))
    }
}

/// The transaction's entries in one column family, up to a sequence number.
#[derive(Clone, Debug)]
pub struct TxnOverlay {
    memtable: Arc<Memtable>,
    spilled: Option<Arc<OverlayRuns>>,
    end_seq: SeqNo,
    rolled_back: Arc<[Range<SeqNo>]>,
}

impl TxnOverlay {
    /// Creates an overlay of the visible entries of `memtable`.
    pub fn new(memtable: Arc<Memtable>, visible: VisibleSeqs<'_>) -> TxnOverlay {
        check_slow!(
            visible.rolled_back.iter().all(|r| r.start < r.end)
                && visible.rolled_back.windows(2).all(|w| w[0].end <= w[1].start),
            "ranges that were rolled back ascend and do not overlap",
            visible.rolled_back
        );
        check!(
            visible.end_seq >= TXN_SEQ_BASE,
            "operations of a transaction have private sequence numbers",
            visible.end_seq
        );
        TxnOverlay {
            memtable,
            spilled: None,
            end_seq: visible.end_seq,
            rolled_back: visible.rolled_back.into(),
        }
    }
    /// Adds the spilled runs.
    #[must_use]
    pub fn with_spilled(self, spilled: Option<Arc<OverlayRuns>>) -> TxnOverlay {
        TxnOverlay { spilled, ..self }
    }
    /// Returns the memtable.
    pub fn memtable(&self) -> &Arc<Memtable> {
        &self.memtable
    }
    /// Returns the spilled runs and their value logs, if any.
    pub fn spilled(&self) -> Option<&Arc<OverlayRuns>> {
        self.spilled.as_ref()
    }
    /// Returns the spilled runs, newest first.
    pub fn runs(&self) -> &[Arc<Run>] {
        self.spilled.as_ref().map_or(&[], |s| &s.runs)
    }
    /// Returns the visible sequence numbers.
    pub fn visible_seqs(&self) -> VisibleSeqs<'_> {
        VisibleSeqs { end_seq: self.end_seq, rolled_back: &self.rolled_back }
    }
    /// Returns true if an entry with this sequence number is visible.
    pub fn is_visible(&self, seq: SeqNo) -> bool {
        self.visible_seqs().is_visible(seq)
    }
    /// Returns the transaction's own versions of `key` in memory, newest first.
    pub fn key_versions<'a>(
        &'a self,
        key: &'a [u8],
    ) -> impl Iterator<Item = (SeqNo, ValueRef<'a>)> {
        let versions = self.memtable.key_versions(key, self.end_seq.prev());
        versions.filter(|(seq, _)| self.is_visible(*seq))
    }
    /// Returns the newest visible range tombstone in memory over `key`.
    pub fn covering_tombstone(&self, key: &[u8]) -> Option<SeqNo> {
        self.visible_seqs().covering_tombstone(&self.memtable, key)
    }
    /// Returns true if there are range tombstones.
    pub fn has_range_tombstones(&self) -> bool {
        self.memtable.range_tombstones().has_any()
            || self.spilled.as_ref().is_some_and(|s| s.has_range_tombstones())
    }
}
