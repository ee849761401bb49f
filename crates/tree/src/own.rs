//! What an open transaction has written to one family, laid over a view for its own eyes.
//!
//! Own entries lie in a memtable of their own and are numbered above every sequence number there can be, in the order in
//! which they were written. So in entry order they stand before what others committed, and range tombstones among them
//! hide what a committed one would. What a rollback to a savepoint took back stays in the memtable and is passed over.
//!
//! It is a picture: what is written later has a higher number than it shows, so that a cursor goes on undisturbed.

use crate::Memtable;
use perigee_base::{KeyOrder, SeqNo, ValueRef};
use perigee_file::Found;
use std::ops::Range;
use std::sync::Arc;

/// Own entries are numbered from here up. No operation of a database reaches it.
pub const FLOOR: u64 = 1 << 62;

/// The transaction's entries in one family, up to a moment.
#[derive(Clone, Debug)]
pub struct Own {
    memtable: Arc<Memtable>,
    /// The first number that it does not show.
    end: u64,
    /// Numbers taken back, ascending and apart.
    dead: Arc<[Range<u64>]>,
}

impl Own {
    /// The entries of `memtable` numbered below `end` but for those in `dead`, which are ascending and do not touch.
    pub fn new(memtable: Arc<Memtable>, end: u64, dead: Arc<[Range<u64>]>) -> Own {
        Own { memtable, end, dead }
    }
    /// The memtable.
    pub fn memtable(&self) -> &Arc<Memtable> {
        &self.memtable
    }
    /// Whether an entry of this number is shown.
    pub fn sees(&self, seq: SeqNo) -> bool {
        (FLOOR..self.end).contains(&seq.0) && self.below(seq.0).is_none()
    }
    /// Where an entry was taken back: the number to look for an older one from.
    fn below(&self, number: u64) -> Option<SeqNo> {
        let at = self.dead.partition_point(|r| r.end <= number);
        self.dead.get(at).filter(|r| r.contains(&number)).map(|r| SeqNo(r.start).prev())
    }
    /// The newest that `older` has and this shows; `older` answers with the newest at or before a number.
    fn newest<T>(&self, older: impl Fn(SeqNo) -> Option<(SeqNo, T)>) -> Option<(SeqNo, T)> {
        let mut at = SeqNo(self.end).prev();
        loop {
            let (seq, found) = older(at).filter(|(seq, _)| seq.0 >= FLOOR)?;
            match self.below(seq.0) {
                None => return Some((seq, found)),
                Some(lower) => at = lower,
            }
        }
    }
    /// What the transaction last did to `key` itself.
    pub fn point(&self, key: &[u8], hash: u64) -> Option<(SeqNo, Found)> {
        self.newest(|at| self.memtable.get(key, hash, at))
    }
    /// Shows what the transaction did to `key` itself, the newest first, until `show` has seen enough (false).
    pub fn versions<'o>(&'o self, key: &[u8], hash: u64, mut show: impl FnMut(SeqNo, ValueRef<'o>) -> bool) {
        let last = SeqNo(self.end).prev();
        self.memtable.versions(key, hash, last, |seq, value| !self.sees(seq) || show(seq, value));
    }
    /// The newest of a stretch's range tombstones; `older` answers with the newest at or before a number.
    pub fn range(&self, older: impl Fn(SeqNo) -> Option<SeqNo>) -> Option<SeqNo> {
        self.newest(|at| Some((older(at)?, ()))).map(|(seq, ())| seq)
    }
    /// The newest of its range tombstones over `key`.
    pub fn cover(&self, order: KeyOrder, key: &[u8]) -> Option<SeqNo> {
        let fragment =
            |at| self.memtable.ranges().with(|list| list.covering(order, key)?.newest(at)).flatten();
        self.range(fragment)
    }
}
