//! A bidirectional cursor over the entries of a klog. Holds one block and the frames it has read
//! ahead; keys and values are returned without a copy.
//!
//! Invariant: a cursor is on an entry, or invalid. Any error invalidates it, so a caller cannot
//! continue from a position that was not reached.

use super::read_ahead::ReadAhead;
use super::reader::{EntryValue, KlogReader};
use crate::block::TableBlock;
use crate::block::entry_window::{EntryWindow, EntryWindowView};
use crate::block::frame::Frame;
use perigee_base::{EntryKind, EntryRef, IoActivity, KeyRef, Result, SeqNo, ValueRef};
use std::ops::Range;
use std::sync::Arc;

/// A bidirectional cursor over the entries of a klog.
#[derive(Debug)]
pub struct KlogCursor {
    reader: Arc<KlogReader>,
    fill_cache: bool,
    cause: IoActivity,
    /// The current block; kept while the cursor is invalid, for the next seek.
    block: Option<Arc<TableBlock>>,
    /// The index of the current block.
    block_index: usize,
    /// Frames read ahead of it.
    read_ahead: ReadAhead,
    /// The current entry in the block.
    entry: usize,
    /// The range of the key's suffix (without the block's prefix).
    suffix: Range<usize>,
    valid: bool,
    /// The entry that the last `prev` left: its index in the current block, or (if `prev` changed
    /// the block) its value.
    left_entry: (usize, Option<Box<EntryValue>>),
    /// A buffer for whole keys, used by [`KlogCursor::entry`].
    key: Vec<u8>,
    /// Entries of the current block that were decoded together; allocated when a scan first uses
    /// it.
    window: Option<Box<EntryWindow>>,
}

/// Metadata of the current entry that a merging iterator needs.
#[derive(Clone, Copy, Debug)]
pub struct EntryMeta {
    /// Key prefix; see [`KeyRef::key_prefix`].
    pub key_prefix: u64,
    /// Sequence number.
    pub seq: SeqNo,
    /// Kind of the entry.
    pub kind: EntryKind,
}

impl KlogReader {
    /// Creates a cursor, initially invalid. With `fill_cache` false it uses cached blocks but
    /// inserts none, so that a scan does not disturb the cache.
    pub fn cursor(self: &Arc<Self>, fill_cache: bool) -> KlogCursor {
        KlogCursor::new(Arc::clone(self), fill_cache)
    }

    /// Returns true if the filter excludes this key hash; counted like a point read.
    pub fn filter_excludes(&self, hash: u64) -> bool {
        let excluded = !self.may_contain(hash);
        if excluded {
            self.counters.filter_negatives.add(1);
        }
        excluded
    }
}

impl KlogCursor {
    fn new(reader: Arc<KlogReader>, fill_cache: bool) -> Self {
        KlogCursor {
            reader,
            fill_cache,
            cause: IoActivity::Scan,
            block: None,
            block_index: 0,
            read_ahead: ReadAhead::default(),
            entry: 0,
            suffix: 0..0,
            valid: false,
            left_entry: (0, None),
            key: Vec::new(),
            window: None,
        }
    }

    /// Counts the cursor's reads under `cause` instead of scans.
    #[must_use]
    pub fn caused_by(self, cause: IoActivity) -> Self {
        KlogCursor { cause, ..self }
    }

    /// Moves to the first entry at or after (key, seq) in entry order.
    pub fn seek(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        self.seek_stored(key, seq)?;
        if self.hides_key(key, seq) { self.next() } else { Ok(()) }
    }

    /// Returns true if the cursor is on `key` and the table's global sequence number is newer than
    /// `seq`.
    fn hides_key(&self, key: &[u8], seq: SeqNo) -> bool {
        let is_on_key = || self.valid && self.key().equals(self.reader.comparator(), key);
        self.reader.global_seq().is_some_and(|global| global > seq) && is_on_key()
    }

    fn seek_stored(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        self.restart_window();
        if let Some(entry) = self.find_in_current_block(key, seq) {
            self.set_entry(entry);
            return Ok(());
        }
        self.valid = false;
        let i = self.find_block(key, seq);
        if i == self.block_count() {
            return Ok(());
        }
        let comparator = self.reader.comparator();
        let block = self.load_block(i)?;
        let entry = block.lower_bound(comparator, key, seq);
        if entry < block.len() {
            self.set_entry(entry);
            return Ok(());
        }
        // The position lies between the block's last entry and its separator.
        self.seek_block_start(i + 1)
    }

    fn restart_window(&mut self) {
        if let Some(window) = &mut self.window {
            window.restart();
        }
    }

    /// Moves to the last entry before (key, seq) in entry order.
    pub fn seek_before(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        if self.reader.global_seq().is_some_and(|global| global > seq) {
            self.seek_stored(key, SeqNo::MAX)?;
            if self.hides_key(key, seq) {
                return Ok(());
            }
        }
        self.seek_stored_before(key, seq)
    }

    fn seek_stored_before(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        self.restart_window();
        if let Some(entry) = self.find_in_current_block(key, seq) {
            self.set_entry(entry - 1);
            return Ok(());
        }
        self.valid = false;
        let i = self.find_block(key, seq);
        if i == self.block_count() {
            return self.seek_end_before_block(i);
        }
        let comparator = self.reader.comparator();
        match self.load_block(i)?.lower_bound(comparator, key, seq) {
            0 => self.seek_end_before_block(i),
            entry => {
                self.set_entry(entry - 1);
                Ok(())
            }
        }
    }

    /// Moves to the first entry; expects a forward scan.
    pub fn seek_first(&mut self) -> Result<()> {
        self.expect_scan(true);
        self.seek_block_start(0)
    }
    /// Moves to the last entry; expects a backward scan.
    pub fn seek_last(&mut self) -> Result<()> {
        self.expect_scan(false);
        self.seek_end_before_block(self.block_count())
    }
    /// Announces that the next seek starts a scan: if it reads from disk, it reads more than one
    /// block at once.
    #[inline]
    pub fn expect_scan(&mut self, forward: bool) {
        self.read_ahead.scan_forward = Some(forward);
    }

    /// Returns the first entry at or after (key, seq) if it and its predecessor are in the current
    /// block: then the position cannot be in another block.
    fn find_in_current_block(&self, key: &[u8], seq: SeqNo) -> Option<usize> {
        let block = self.block.as_ref()?;
        let entry = block.lower_bound(self.reader.comparator(), key, seq);
        (entry > 0 && entry < block.len()).then_some(entry)
    }

    /// Steps to the next (or previous) entry if it is in the current block; returns its metadata.
    /// `skip`: the prefix to skip, see [`KeyRef::key_prefix`].
    #[inline]
    pub fn step_in_block(&mut self, forward: bool, skip: &[u8]) -> Option<EntryMeta> {
        let block = self.block.as_deref().filter(|_| self.valid)?;
        if forward {
            if self.entry + 1 >= block.len() {
                return None;
            }
            self.entry += 1;
            self.suffix = block.suffix_range_after(self.entry, &self.suffix);
        } else {
            self.entry.checked_sub(1)?;
            self.left_entry = (self.entry, None);
            self.entry -= 1;
            self.suffix = block.suffix_range_before(self.entry, &self.suffix);
        }
        Some(self.entry_meta(block, skip))
    }

    #[inline]
    fn entry_meta(&self, block: &TableBlock, skip: &[u8]) -> EntryMeta {
        check_slow!(
            self.suffix == block.suffix_range(self.entry),
            "the key of a cursor is that of its entry",
            self.entry,
            self.suffix
        );
        let key = KeyRef { prefix: block.prefix(), suffix: block.bytes(self.suffix.clone()) };
        let seq = self.reader.effective_seq(block.seq(self.entry));
        EntryMeta {
            key_prefix: key.key_prefix(self.reader.comparator(), skip),
            seq,
            kind: block.kind(self.entry),
        }
    }

    /// Returns the current block if the cursor is on its first entry and the block may be copied
    /// unchanged. Blocks of a table with a global sequence number may not, because their stored
    /// sequence numbers are not the effective ones.
    #[inline]
    pub fn block_at_start(&self) -> Option<&Arc<TableBlock>> {
        let block = self.block.as_ref().filter(|_| self.entry == 0 && self.valid)?;
        self.reader.global_seq().is_none().then_some(block)
    }
    /// Returns true if this many blocks, starting with the current one, exist and end before `key`
    /// (`None`: no upper limit).
    pub fn blocks_end_before(&self, blocks: usize, key: Option<KeyRef<'_>>) -> bool {
        let (index, last) = (&self.reader.metadata.index, self.block_index + blocks - 1);
        let before =
            |key| index.compare_separator(self.reader.comparator(), last, key, SeqNo::ZERO).is_lt();
        last < index.block_count() && key.is_none_or(before)
    }
    /// Calls `work` with the current block's frame as stored; its checksum was verified.
    pub fn with_stored_frame<T>(&self, work: impl FnOnce(&Frame<'_>) -> Result<T>) -> Result<T> {
        self.reader.with_stored_frame(self.block_index, self.cause, &self.read_ahead, work)
    }
    /// Moves to the first entry after the current block.
    pub fn skip_block(&mut self) -> Result<()> {
        if self.valid { self.seek_block_start(self.block_index + 1) } else { Ok(()) }
    }

    /// Returns true if the cursor is valid and the last key of the current block is not before
    /// `key`.
    pub fn block_covers_key(&self, key: &[u8]) -> bool {
        let reaches_key = |b: &Arc<TableBlock>| {
            self.key_at(b.len() - 1).cmp(self.reader.comparator(), KeyRef::from_key(key)).is_ge()
        };
        self.valid && self.block.as_ref().is_some_and(reaches_key)
    }

    /// Moves to the next entry; invalid after the last one.
    #[allow(clippy::should_implement_trait)]
    #[inline]
    pub fn next(&mut self) -> Result<()> {
        match &self.block {
            Some(block) if self.valid && self.entry + 1 < block.len() => {
                self.entry += 1;
                self.suffix = block.suffix_range_after(self.entry, &self.suffix);
                Ok(())
            }
            Some(_) if self.valid => self.seek_block_start(self.block_index + 1),
            _ => Ok(()),
        }
    }

    /// Moves to the previous entry; invalid before the first one.
    #[inline]
    pub fn prev(&mut self) -> Result<()> {
        let (Some(block), true) = (&self.block, self.valid) else { return Ok(()) };
        if self.entry > 0 {
            self.left_entry = (self.entry, None);
            self.entry -= 1;
            self.suffix = block.suffix_range_before(self.entry, &self.suffix);
            return Ok(());
        }
        self.left_entry = (0, Some(Box::new(self.pinned_value())));
        self.seek_end_before_block(self.block_index)
    }

    /// Returns how many entries after the current one (backward: from the current one on) a reader
    /// at `at` may return without further checks: visible plain puts, each with another key than
    /// the previous entry of the block, all before (backward: after) `limit`. They are in the
    /// current block: [`KlogCursor::step_clear`] moves to them.
    #[inline]
    pub fn count_clear_ahead(
        &mut self,
        forward: bool,
        at: SeqNo,
        limit: Option<KeyRef<'_>>,
    ) -> usize {
        let (Some(block), true) = (&self.block, self.valid) else { return 0 };
        let Some(at) = self.reader.visible_seq_bound(at) else { return 0 };
        let window = self.window.get_or_insert_with(|| Box::new(EntryWindow::new()));
        let comparator = self.reader.comparator();
        window.count_clear_ahead(block, comparator, self.entry, forward, at, limit)
    }

    /// Decodes the entries around the current one, for a merging iterator. Returns false if the
    /// cursor is invalid or the table is not visible to a reader at `at`.
    #[inline]
    pub fn decode_around(&mut self, forward: bool, at: SeqNo) -> bool {
        let (Some(block), true) = (&self.block, self.valid) else { return false };
        let Some(at) = self.reader.visible_seq_bound(at) else { return false };
        let window = self.window.get_or_insert_with(|| Box::new(EntryWindow::new()));
        window.decode_around(block, self.reader.comparator(), self.entry, forward, at);
        true
    }
    /// Returns the decoded entries, if [`KlogCursor::decode_around`] covered the current one.
    #[inline]
    pub fn window_view(&self) -> Option<EntryWindowView<'_>> {
        let (Some(block), true) = (&self.block, self.valid) else { return None };
        self.window.as_ref()?.view(block, self.entry)
    }

    /// Steps to an entry counted by [`KlogCursor::count_clear_ahead`]; cannot fail.
    #[inline]
    pub fn step_clear(&mut self, forward: bool) {
        let Some(block) = &self.block else { return };
        check_slow!(
            self.valid && if forward { self.entry + 1 < block.len() } else { self.entry > 0 },
            "a step over visible entries stays in the block",
            self.entry,
            forward
        );
        if forward {
            self.entry += 1;
            self.suffix = block.suffix_range_after(self.entry, &self.suffix);
        } else {
            self.left_entry = (self.entry, None);
            self.entry -= 1;
            self.suffix = block.suffix_range_before(self.entry, &self.suffix);
        }
    }

    /// Returns the value of the entry that the last `prev` left, if the cursor was not moved since.
    #[inline]
    pub fn left_value(&self) -> Option<EntryValue> {
        let (entry, found) = &self.left_entry;
        let in_block = || {
            self.block
                .as_ref()
                .filter(|b| *entry < b.len())
                .map(|b| EntryValue::from_block(b, *entry))
        };
        found.as_deref().cloned().or_else(in_block)
    }

    /// Returns true if the cursor is on an entry.
    #[inline]
    pub fn valid(&self) -> bool {
        self.valid
    }

    /// Returns the key of the current entry.
    ///
    /// # Panics
    /// If the cursor is not valid.
    #[inline]
    pub fn key(&self) -> KeyRef<'_> {
        let block = self.current_block();
        KeyRef { prefix: block.prefix(), suffix: block.bytes(self.suffix.clone()) }
    }
    fn key_at(&self, entry: usize) -> KeyRef<'_> {
        let block = self.current_block();
        KeyRef { prefix: block.prefix(), suffix: block.suffix(entry) }
    }

    /// Returns the sequence number of the current entry.
    ///
    /// # Panics
    /// If the cursor is not valid.
    #[inline]
    pub fn seq(&self) -> SeqNo {
        self.reader.effective_seq(self.current_block().seq(self.entry))
    }

    /// Returns the kind of the current entry.
    ///
    /// # Panics
    /// If the cursor is not valid.
    #[inline]
    pub fn kind(&self) -> EntryKind {
        self.current_block().kind(self.entry)
    }

    /// Returns the value of the current entry, borrowed.
    ///
    /// # Panics
    /// If the cursor is not valid.
    #[inline]
    pub fn value(&self) -> ValueRef<'_> {
        self.value_at(self.entry)
    }

    #[inline]
    fn value_at(&self, entry: usize) -> ValueRef<'_> {
        let block = self.current_block();
        match self.window.as_ref().and_then(|w| w.visible_put(block, entry)) {
            Some(value) => ValueRef::Inline(value),
            None => block.value(entry),
        }
    }

    /// Returns the key `n` entries ahead, which must be among those counted by
    /// [`KlogCursor::count_clear_ahead`] (or the current one).
    ///
    /// # Panics
    /// If the cursor is not valid, or the block does not have that many entries ahead.
    pub fn key_ahead(&self, forward: bool, n: usize) -> KeyRef<'_> {
        self.key_at(if forward { self.entry + n } else { self.entry - n })
    }

    /// Returns the value of the entry that the last backward step left, borrowed, if it is in the
    /// current block.
    #[inline]
    pub fn left_value_ref(&self) -> Option<ValueRef<'_>> {
        let in_block = self.valid
            && self.left_entry.1.is_none()
            && self.left_entry.0 < self.current_block().len();
        in_block.then(|| self.value_at(self.left_entry.0))
    }

    /// Returns the current entry, with its key copied into a contiguous buffer.
    ///
    /// # Panics
    /// If the cursor is not valid.
    pub fn entry(&mut self) -> EntryRef<'_> {
        check!(self.valid, "an invalid cursor has no entry");
        let block = self.block.as_ref().expect("a valid cursor has a block");
        block.copy_key(self.entry, &mut self.key);
        let seq = self.reader.effective_seq(block.seq(self.entry));
        EntryRef { key: &self.key, seq, value: block.value(self.entry) }
    }

    /// Returns the value of the current entry, pinned.
    ///
    /// # Panics
    /// If the cursor is not valid.
    #[inline]
    pub fn pinned_value(&self) -> EntryValue {
        EntryValue::from_block(self.current_block(), self.entry)
    }

    #[inline]
    fn current_block(&self) -> &TableBlock {
        check!(self.valid, "an invalid cursor has no entry");
        self.block.as_ref().expect("a valid cursor has a block")
    }

    fn block_count(&self) -> usize {
        self.reader.metadata.index.block_count()
    }
    fn find_block(&self, key: &[u8], seq: SeqNo) -> usize {
        self.reader.metadata.index.find_block(self.reader.comparator(), key, seq)
    }

    fn seek_block_start(&mut self, i: usize) -> Result<()> {
        self.valid = false;
        if i < self.block_count() {
            self.load_block(i)?;
            self.set_entry(0);
        }
        Ok(())
    }

    /// Moves to the last entry of the block before block `i`.
    fn seek_end_before_block(&mut self, i: usize) -> Result<()> {
        self.valid = false;
        if i > 0 {
            let last = self.load_block(i - 1)?.len() - 1;
            self.set_entry(last);
        }
        Ok(())
    }

    /// Makes block `i` the current one.
    fn load_block(&mut self, i: usize) -> Result<&TableBlock> {
        if self.block_index != i || self.block.is_none() {
            let last = self.block.take();
            if let Some(window) = &mut self.window {
                window.clear();
            }
            let (fill_cache, cause) = (self.fill_cache, self.cause);
            let ahead = &mut self.read_ahead;
            self.block = Some(self.reader.load_block_for_scan(i, fill_cache, cause, ahead, last)?);
            self.block_index = i;
        }
        check_slow!(
            i < self.reader.metadata.index.block_count(),
            "a cursor loads blocks of its table",
            i
        );
        Ok(self.block.as_ref().expect("just loaded"))
    }

    /// Moves to an entry of the current block.
    #[inline]
    fn set_entry(&mut self, entry: usize) {
        check_slow!(
            self.block.as_ref().is_some_and(|block| entry < block.len()),
            "a cursor is on an entry of its block",
            entry
        );
        self.entry = entry;
        self.suffix = self.block.as_ref().expect("the current block is loaded").suffix_range(entry);
        self.valid = true;
    }
}
