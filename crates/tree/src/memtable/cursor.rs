//! Cursor over a memtable, for both kinds of index.

use super::Memtable;
use super::entries::MemtableEntry;
use super::hashed_entries::SortedEntriesCursor;
use perigee_base::{EntryKind, EntryRef, SeqNo, ValueRef, cmp_entry};
use perigee_file::EntryValue;
use std::sync::Arc;

/// A position in a memtable. The cursor shows every entry that existed when it was first
/// positioned, and possibly newer ones: a reader must choose its sequence number before it creates
/// the cursor, and skip newer entries.
#[derive(Debug)]
pub struct MemtableCursor {
    memtable: Arc<Memtable>,
    /// Sorted cursor over a hash-indexed memtable, created at the first positioning.
    sorted_cursor: Option<SortedEntriesCursor>,
    position: Option<(u32, MemtableEntry)>,
    prefetch: bool,
}

impl MemtableCursor {
    pub(super) fn new(table: Arc<Memtable>) -> MemtableCursor {
        MemtableCursor { memtable: table, sorted_cursor: None, position: None, prefetch: false }
    }

    /// Prefetches entries, for a forward scan over the whole memtable.
    #[must_use]
    pub fn with_prefetch(self) -> MemtableCursor {
        MemtableCursor { prefetch: true, ..self }
    }

    /// Returns true if the entry `to` comes after the current one, or if not `forward` before it.
    fn is_ordered_step(&self, to: Option<u32>, forward: bool) -> bool {
        let (Some((_, from)), Some(to)) = (&self.position, to) else { return true };
        let to = self.memtable.node(to);
        let (first, second) = if forward { (from, &to) } else { (&to, from) };
        let key = |node: &MemtableEntry| self.memtable.key_of(node).to_vec();
        cmp_entry(self.memtable.comparator, (&key(first), first.seq), (&key(second), second.seq))
            .is_lt()
    }

    #[inline]
    fn set_position(&mut self, at: Option<u32>) {
        self.position = at.map(|i| (i, self.memtable.node(i)));
    }
    /// Moves to the entry to which a step leads.
    #[inline]
    fn step_to(&mut self, at: Option<u32>, forward: bool) {
        check_slow!(self.is_ordered_step(at, forward), "a cursor moves in entry order", at);
        self.set_position(at);
    }
    /// Moves to the first entry at or after (key, seq) in entry order.
    pub fn seek(&mut self, key: &[u8], seq: SeqNo) {
        let at = self.memtable.seek(&mut self.sorted_cursor, key, seq, true);
        self.set_position(at);
    }
    /// Moves to the last entry before (key, seq) in entry order.
    pub fn seek_before(&mut self, key: &[u8], seq: SeqNo) {
        let at = self.memtable.seek(&mut self.sorted_cursor, key, seq, false);
        self.set_position(at);
    }
    /// Moves to the first entry.
    pub fn seek_first(&mut self) {
        if self.prefetch {
            self.memtable.enable_prefetch(&mut self.sorted_cursor);
        }
        let at = self.memtable.seek_end(&mut self.sorted_cursor, true);
        self.set_position(at);
    }
    /// Moves to the last entry.
    pub fn seek_last(&mut self) {
        let at = self.memtable.seek_end(&mut self.sorted_cursor, false);
        self.set_position(at);
    }
    /// Moves to the next entry.
    pub fn next(&mut self) {
        let at =
            self.position.and_then(|(i, _)| self.memtable.step(&mut self.sorted_cursor, i, true));
        self.step_to(at, true);
    }
    /// Moves to the next entry that is not certainly an older version of the current key; may
    /// return such versions nevertheless.
    pub fn next_key(&mut self) {
        let at =
            self.position.and_then(|(i, _)| self.memtable.step_key(&mut self.sorted_cursor, i));
        self.step_to(at, true);
    }
    /// Moves to the previous entry.
    pub fn prev(&mut self) {
        let at =
            self.position.and_then(|(i, _)| self.memtable.step(&mut self.sorted_cursor, i, false));
        self.step_to(at, false);
    }
    /// See [`Memtable::add_skipped_tombstones`].
    pub fn add_skipped_tombstones(&self, tombstones: u64) {
        self.memtable.add_skipped_tombstones(tombstones);
    }
    /// See [`Memtable::add_scan_steps`].
    pub fn add_scan_steps(&self, steps: u64) -> bool {
        self.memtable.add_scan_steps(steps)
    }
    /// Returns the newest sequence number in the memtable.
    pub fn newest_seq(&self) -> SeqNo {
        self.memtable.last_seq()
    }
    /// Returns true if the cursor is on an entry.
    pub fn valid(&self) -> bool {
        self.position.is_some()
    }
    #[inline]
    fn node(&self) -> &MemtableEntry {
        &self.position.as_ref().expect("the cursor is not on an entry").1
    }
    /// Returns the current entry's key.
    #[inline]
    pub fn key(&self) -> &[u8] {
        self.memtable.key_of(self.node())
    }
    /// Returns the current entry's sequence number.
    #[inline]
    pub fn seq(&self) -> SeqNo {
        self.node().seq
    }
    /// Returns the current entry's kind.
    #[inline]
    pub fn kind(&self) -> EntryKind {
        self.node().kind
    }
    /// Returns the current entry's value.
    #[inline]
    pub fn value(&self) -> ValueRef<'_> {
        self.memtable.value_of(self.node())
    }
    /// Returns the current entry.
    #[inline]
    pub fn entry(&self) -> EntryRef<'_> {
        let n = self.node();
        EntryRef { key: self.memtable.key_of(n), seq: n.seq, value: self.memtable.value_of(n) }
    }
    /// Returns the current entry's value, pinned.
    pub fn entry_value(&self) -> EntryValue {
        self.memtable.entry_value(self.node())
    }
}
