//! A cursor over a memtable of either kind.

use super::Memtable;
use super::entries::Node;
use super::hashed::Walk;
use perigee_base::{EntryKind, EntryRef, SeqNo, ValueRef};
use perigee_file::Found;
use std::sync::Arc;

/// A position in a memtable. It shows every entry that was there when it was first positioned, and perhaps younger ones:
/// whoever reads at a sequence number has that number before the cursor, and passes over what is younger.
#[derive(Debug)]
pub struct MemCursor {
    table: Arc<Memtable>,
    /// The way through a memtable found by hash, once it was positioned.
    walk: Option<Walk>,
    at: Option<(u32, Node)>,
    through: bool,
}

impl MemCursor {
    pub(super) fn new(table: Arc<Memtable>) -> MemCursor {
        MemCursor { table, walk: None, at: None, through: false }
    }

    /// The same cursor for who goes forward through everything: entries are fetched ahead of it.
    #[must_use]
    pub fn through(self) -> MemCursor {
        MemCursor { through: true, ..self }
    }

    #[inline]
    fn set(&mut self, at: Option<u32>) {
        self.at = at.map(|i| (i, self.table.node(i)));
    }
    /// To the first entry at or after (key, seq) in entry order.
    pub fn seek(&mut self, key: &[u8], seq: SeqNo) {
        let at = self.table.seek(&mut self.walk, key, seq, true);
        self.set(at);
    }
    /// To the last entry before (key, seq) in entry order.
    pub fn seek_before(&mut self, key: &[u8], seq: SeqNo) {
        let at = self.table.seek(&mut self.walk, key, seq, false);
        self.set(at);
    }
    /// To the first entry.
    pub fn seek_first(&mut self) {
        if self.through {
            self.table.walk_through(&mut self.walk);
        }
        let at = self.table.end(&mut self.walk, true);
        self.set(at);
    }
    /// To the last entry.
    pub fn seek_last(&mut self) {
        let at = self.table.end(&mut self.walk, false);
        self.set(at);
    }
    /// To the next entry.
    pub fn next(&mut self) {
        let at = self.at.and_then(|(i, _)| self.table.step(&mut self.walk, i, true));
        self.set(at);
    }
    /// To the previous entry.
    pub fn prev(&mut self) {
        let at = self.at.and_then(|(i, _)| self.table.step(&mut self.walk, i, false));
        self.set(at);
    }
    /// See [`Memtable::pass`].
    pub fn pass(&self, tombstones: u64) {
        self.table.pass(tombstones);
    }
    /// The newest sequence number in the memtable.
    pub fn newest(&self) -> SeqNo {
        self.table.last_seq()
    }
    /// Whether it is on an entry.
    pub fn valid(&self) -> bool {
        self.at.is_some()
    }
    #[inline]
    fn node(&self) -> &Node {
        &self.at.as_ref().expect("entry() is called on a valid cursor").1
    }
    /// Its key.
    #[inline]
    pub fn key(&self) -> &[u8] {
        self.table.key_of(self.node())
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
        self.table.value_of(self.node())
    }
    /// The entry it is on.
    #[inline]
    pub fn entry(&self) -> EntryRef<'_> {
        let n = self.node();
        EntryRef { key: self.table.key_of(n), seq: n.seq, value: self.table.value_of(n) }
    }
    /// The entry's value, pinned.
    pub fn found(&self) -> Found {
        self.table.found(self.node())
    }
}
