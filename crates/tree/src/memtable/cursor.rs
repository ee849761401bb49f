//! A cursor over a memtable of either kind.

use super::Memtable;
use super::entries::MemtableEntry;
use super::hashed_entries::SortedEntriesCursor;
use perigee_base::{EntryKind, EntryRef, SeqNo, ValueRef};
use perigee_file::EntryValue;
use std::sync::Arc;

/// A position in a memtable. It shows every entry that was there when it was first positioned, and
/// perhaps younger ones: whoever reads at a sequence number has that number before the cursor, and
/// passes over what is younger.
#[derive(Debug)]
pub struct MemtableCursor {
    memtable: Arc<Memtable>,
    /// The way through a memtable found by hash, once it was positioned.
    sorted_cursor: Option<SortedEntriesCursor>,
    position: Option<(u32, MemtableEntry)>,
    prefetch: bool,
}

impl MemtableCursor {
    pub(super) fn new(table: Arc<Memtable>) -> MemtableCursor {
        MemtableCursor { memtable: table, sorted_cursor: None, position: None, prefetch: false }
    }

    /// The same cursor for who goes forward through everything: entries are fetched ahead of it.
    #[must_use]
    pub fn with_prefetch(self) -> MemtableCursor {
        MemtableCursor { prefetch: true, ..self }
    }

    #[inline]
    fn set_position(&mut self, at: Option<u32>) {
        self.position = at.map(|i| (i, self.memtable.node(i)));
    }
    /// To the first entry at or after (key, seq) in entry order.
    pub fn seek(&mut self, key: &[u8], seq: SeqNo) {
        let at = self.memtable.seek(&mut self.sorted_cursor, key, seq, true);
        self.set_position(at);
    }
    /// To the last entry before (key, seq) in entry order.
    pub fn seek_before(&mut self, key: &[u8], seq: SeqNo) {
        let at = self.memtable.seek(&mut self.sorted_cursor, key, seq, false);
        self.set_position(at);
    }
    /// To the first entry.
    pub fn seek_first(&mut self) {
        if self.prefetch {
            self.memtable.enable_prefetch(&mut self.sorted_cursor);
        }
        let at = self.memtable.seek_end(&mut self.sorted_cursor, true);
        self.set_position(at);
    }
    /// To the last entry.
    pub fn seek_last(&mut self) {
        let at = self.memtable.seek_end(&mut self.sorted_cursor, false);
        self.set_position(at);
    }
    /// To the next entry.
    pub fn next(&mut self) {
        let at =
            self.position.and_then(|(i, _)| self.memtable.step(&mut self.sorted_cursor, i, true));
        self.set_position(at);
    }
    /// To the previous entry.
    pub fn prev(&mut self) {
        let at =
            self.position.and_then(|(i, _)| self.memtable.step(&mut self.sorted_cursor, i, false));
        self.set_position(at);
    }
    /// See [`Memtable::pass`].
    pub fn add_skipped_tombstones(&self, tombstones: u64) {
        self.memtable.add_skipped_tombstones(tombstones);
    }
    /// The newest sequence number in the memtable.
    pub fn newest_seq(&self) -> SeqNo {
        self.memtable.last_seq()
    }
    /// Whether it is on an entry.
    pub fn valid(&self) -> bool {
        self.position.is_some()
    }
    #[inline]
    fn node(&self) -> &MemtableEntry {
        &self.position.as_ref().expect("entry() is called on a valid cursor").1
    }
    /// Its key.
    #[inline]
    pub fn key(&self) -> &[u8] {
        self.memtable.key_of(self.node())
    }
    /// Its sequence number.
    #[inline]
    pub fn seq(&self) -> SeqNo {
        self.node().seq
    }
    /// What it is.
    #[inline]
    pub fn kind(&self) -> EntryKind {
        self.node().kind
    }
    /// Its value.
    #[inline]
    pub fn value(&self) -> ValueRef<'_> {
        self.memtable.value_of(self.node())
    }
    /// The entry it is on.
    #[inline]
    pub fn entry(&self) -> EntryRef<'_> {
        let n = self.node();
        EntryRef { key: self.memtable.key_of(n), seq: n.seq, value: self.memtable.value_of(n) }
    }
    /// The entry's value, pinned.
    pub fn entry_value(&self) -> EntryValue {
        self.memtable.entry_value(self.node())
    }
}
