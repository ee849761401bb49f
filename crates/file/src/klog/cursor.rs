//! Walks the entries of a klog in both directions. Holds one block, and the frames it has read
//! ahead; keys and values leave it without a copy.
//!
//! Invariant: a cursor is on an entry, or invalid. Any error makes it invalid, so that nobody reads
//! on from a place that was not reached.

use super::read_ahead::ReadAhead;
use super::reader::{EntryValue, KlogReader};
use crate::block::TableBlock;
use crate::block::entry_window::{EntryWindow, EntryWindowView};
use crate::block::frame::Frame;
use perigee_base::io_stats::IoActivity;
use perigee_base::{EntryKind, EntryRef, KeyRef, Result, SeqNo, ValueRef};
use std::ops::Range;
use std::sync::Arc;

/// Walks the entries of a klog.
#[derive(Debug)]
pub struct KlogCursor {
    reader: Arc<KlogReader>,
    fill_cache: bool,
    cause: IoActivity,
    /// The block at hand; kept while the cursor is invalid, for the next seek.
    block: Option<Arc<TableBlock>>,
    /// Its number.
    block_index: usize,
    /// What was read beyond it.
    read_ahead: ReadAhead,
    /// The entry in it.
    entry: usize,
    /// Where the rest of its key lies, behind the block's prefix.
    suffix: Range<usize>,
    valid: bool,
    /// What `prev` left: an entry of the block at hand, or (if it left that block) its value.
    left_entry: (usize, Option<EntryValue>),
    /// An entry's key in one piece, for who wants it so.
    key: Vec<u8>,
    /// Entries of the block at hand that were decoded together, once a walk asked for that.
    window: Option<Box<EntryWindow>>,
}

/// What a merge asks of the entry that a source is on.
#[derive(Clone, Copy, Debug)]
pub struct EntryMeta {
    /// The head of its key; see [`KeyRef::head`].
    pub key_prefix: u64,
    /// Its sequence number.
    pub seq: SeqNo,
    /// What it is.
    pub kind: EntryKind,
}

impl KlogReader {
    /// A cursor, on no entry yet. A scan that should not disturb the cache reads it without filling
    /// it.
    pub fn cursor(self: &Arc<Self>, fill_cache: bool) -> KlogCursor {
        KlogCursor::new(Arc::clone(self), fill_cache)
    }

    /// Whether the filter says that the hash of a key is not here; counted as in a point read.
    pub fn filter_excludes(&self, hash: u64) -> bool {
        let out = !self.may_contain(hash);
        if out {
            self.counters.filter_negatives.add(1);
        }
        out
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

    /// The same cursor, its reads counted for `cause` instead of scans.
    #[must_use]
    pub fn caused_by(self, cause: IoActivity) -> Self {
        KlogCursor { cause, ..self }
    }

    /// To the first entry at or after (key, seq) in entry order.
    pub fn seek(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        self.seek_stored(key, seq)?;
        if self.hides_key(key, seq) { self.next() } else { Ok(()) }
    }

    /// Whether the cursor is on `key`, whose stamp is newer than `seq`.
    fn hides_key(&self, key: &[u8], seq: SeqNo) -> bool {
        let same = || self.valid && self.key().equals(self.reader.comparator(), key);
        self.reader.global_seq().is_some_and(|stamp| stamp > seq) && same()
    }

    fn seek_stored(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        if let Some(entry) = self.find_in_current_block(key, seq) {
            self.set_entry(entry);
            return Ok(());
        }
        self.valid = false;
        let i = self.find_block(key, seq);
        if i == self.block_count() {
            return Ok(());
        }
        let order = self.reader.comparator();
        let block = self.load_block(i)?;
        let entry = block.lower_bound(order, key, seq);
        if entry < block.len() {
            self.set_entry(entry);
            return Ok(());
        }
        // The position lies between the block's last entry and its separator.
        self.seek_block_start(i + 1)
    }

    /// To the last entry before (key, seq) in entry order.
    pub fn seek_before(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        if self.reader.global_seq().is_some_and(|stamp| stamp > seq) {
            self.seek_stored(key, SeqNo::MAX)?;
            if self.hides_key(key, seq) {
                return Ok(());
            }
        }
        self.seek_stored_before(key, seq)
    }

    fn seek_stored_before(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        if let Some(entry) = self.find_in_current_block(key, seq) {
            self.set_entry(entry - 1);
            return Ok(());
        }
        self.valid = false;
        let i = self.find_block(key, seq);
        if i == self.block_count() {
            return self.seek_end_before_block(i);
        }
        let order = self.reader.comparator();
        match self.load_block(i)?.lower_bound(order, key, seq) {
            0 => self.seek_end_before_block(i),
            entry => {
                self.set_entry(entry - 1);
                Ok(())
            }
        }
    }

    /// To the first entry, to go on from there.
    pub fn seek_first(&mut self) -> Result<()> {
        self.expect_scan(true);
        self.seek_block_start(0)
    }
    /// To the last entry, to go back from there.
    pub fn seek_last(&mut self) -> Result<()> {
        self.expect_scan(false);
        self.seek_end_before_block(self.block_count())
    }
    /// The next seek begins a walk: more than one block is read at once, if any is.
    #[inline]
    pub fn expect_scan(&mut self, forward: bool) {
        self.read_ahead.scan_forward = Some(forward);
    }

    /// The first entry at or after (key, seq), if it and the one before it are in the block at
    /// hand: between the two there is room in no other block.
    fn find_in_current_block(&self, key: &[u8], seq: SeqNo) -> Option<usize> {
        let block = self.block.as_ref()?;
        let entry = block.lower_bound(self.reader.comparator(), key, seq);
        (entry > 0 && entry < block.len()).then_some(entry)
    }

    /// A step inside the block at hand, if it goes on there; what a merge wants to know of the
    /// entry. `skip`: as for its head.
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
        let key = KeyRef { prefix: block.prefix(), suffix: block.bytes(self.suffix.clone()) };
        let seq = self.reader.effective_seq(block.seq(self.entry));
        EntryMeta {
            key_prefix: key.key_prefix(self.reader.comparator(), skip),
            seq,
            kind: block.kind(self.entry),
        }
    }

    /// The block that begins with the entry it is on, if it may be moved as it is. Not so where a
    /// stamp says another number than the block.
    #[inline]
    pub fn block_at_start(&self) -> Option<&Arc<TableBlock>> {
        let block = self.block.as_ref().filter(|_| self.entry == 0 && self.valid)?;
        self.reader.global_seq().is_none().then_some(block)
    }
    /// Whether so many blocks, that at hand the first of them, end before `key` (`None`: there are
    /// so many).
    pub fn blocks_end_before(&self, blocks: usize, key: Option<KeyRef<'_>>) -> bool {
        let (index, last) = (&self.reader.metadata.index, self.block_index + blocks - 1);
        let before =
            |key| index.compare_separator(self.reader.comparator(), last, key, SeqNo::ZERO).is_lt();
        last < index.block_count() && key.is_none_or(before)
    }
    /// Hands out the block at hand as it is stored, its checksum compared.
    pub fn with_stored_frame<T>(&self, work: impl FnOnce(&Frame<'_>) -> Result<T>) -> Result<T> {
        self.reader.with_stored_frame(self.block_index, self.cause, &self.read_ahead, work)
    }
    /// To the first entry behind the block at hand.
    pub fn skip_block(&mut self) -> Result<()> {
        if self.valid { self.seek_block_start(self.block_index + 1) } else { Ok(()) }
    }

    /// Whether it is on an entry of a block whose last key is not before `key`.
    pub fn block_covers_key(&self, key: &[u8]) -> bool {
        let last = |b: &Arc<TableBlock>| {
            self.key_at(b.len() - 1).cmp(self.reader.comparator(), KeyRef::from_key(key)).is_ge()
        };
        self.valid && self.block.as_ref().is_some_and(last)
    }

    /// To the next entry; from the last one, or from none, to none.
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

    /// To the previous entry; from the first one, or from none, to none.
    #[inline]
    pub fn prev(&mut self) -> Result<()> {
        let (Some(block), true) = (&self.block, self.valid) else { return Ok(()) };
        if self.entry > 0 {
            self.left_entry = (self.entry, None);
            self.entry -= 1;
            self.suffix = block.suffix_range_before(self.entry, &self.suffix);
            return Ok(());
        }
        self.left_entry = (0, Some(self.pinned_value()));
        self.seek_end_before_block(self.block_index)
    }

    /// How many entries of the way may follow the one it is on (not `forward`: beginning with that
    /// one) that a reader at `at` is shown without another look: plain puts that it sees, each of
    /// another key than the one before in the block, all before (behind) `limit`. They are in the
    /// block at hand: [`KlogCursor::glide`] goes there.
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
        window.count_clear_ahead((block, self.reader.comparator()), self.entry, forward, at, limit)
    }

    /// Learns of the entries around the one it is on, for a merge of several sources; whether there
    /// is anything to learn for a reader at `at`.
    #[inline]
    pub fn decode_around(&mut self, forward: bool, at: SeqNo) -> bool {
        let (Some(block), true) = (&self.block, self.valid) else { return false };
        let Some(at) = self.reader.visible_seq_bound(at) else { return false };
        let window = self.window.get_or_insert_with(|| Box::new(EntryWindow::new()));
        window.decode_around((block, self.reader.comparator()), self.entry, forward, at);
        true
    }
    /// What was learned.
    #[inline]
    pub fn window_view(&self) -> Option<EntryWindowView<'_>> {
        let (Some(block), true) = (&self.block, self.valid) else { return None };
        self.window.as_ref()?.view(block, self.entry)
    }

    /// A step to an entry that was said to be clear: nothing can go wrong on the way.
    #[inline]
    pub fn step_clear(&mut self, forward: bool) {
        let Some(block) = &self.block else { return };
        if forward {
            self.entry += 1;
            self.suffix = block.suffix_range_after(self.entry, &self.suffix);
        } else {
            self.left_entry = (self.entry, None);
            self.entry -= 1;
            self.suffix = block.suffix_range_before(self.entry, &self.suffix);
        }
    }

    /// The value of the entry that the last `prev` left, if nothing moved the cursor since.
    #[inline]
    pub fn left_value(&self) -> Option<EntryValue> {
        let (entry, found) = &self.left_entry;
        let here = || {
            self.block
                .as_ref()
                .filter(|b| *entry < b.len())
                .map(|b| EntryValue::from_block(b, *entry))
        };
        found.clone().or_else(here)
    }

    /// Whether the cursor is on an entry.
    #[inline]
    pub fn valid(&self) -> bool {
        self.valid
    }

    /// The key of the entry.
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

    /// Its sequence number.
    ///
    /// # Panics
    /// If the cursor is not valid.
    #[inline]
    pub fn seq(&self) -> SeqNo {
        self.reader.effective_seq(self.current_block().seq(self.entry))
    }

    /// What it is.
    ///
    /// # Panics
    /// If the cursor is not valid.
    #[inline]
    pub fn kind(&self) -> EntryKind {
        self.current_block().kind(self.entry)
    }

    /// Its value, borrowed.
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

    /// The key so many entries further on the way, which were said to be clear (or is the one it is
    /// on).
    ///
    /// # Panics
    /// If the cursor is not valid, or the way is not that long.
    pub fn key_ahead(&self, forward: bool, n: usize) -> KeyRef<'_> {
        self.key_at(if forward { self.entry + n } else { self.entry - n })
    }

    /// The value of the entry that the last step backward left, borrowed, if that is in the block
    /// at hand.
    #[inline]
    pub fn left_value_ref(&self) -> Option<ValueRef<'_>> {
        let inside = self.valid
            && self.left_entry.1.is_none()
            && self.left_entry.0 < self.current_block().len();
        inside.then(|| self.value_at(self.left_entry.0))
    }

    /// All of it, the key put together.
    ///
    /// # Panics
    /// If the cursor is not valid.
    pub fn entry(&mut self) -> EntryRef<'_> {
        assert!(self.valid, "a cursor is read only while it is valid");
        let block = self.block.as_ref().expect("a valid cursor has a block");
        block.copy_key(self.entry, &mut self.key);
        let seq = self.reader.effective_seq(block.seq(self.entry));
        EntryRef { key: &self.key, seq, value: block.value(self.entry) }
    }

    /// The entry's value, pinned.
    ///
    /// # Panics
    /// If the cursor is not valid.
    #[inline]
    pub fn pinned_value(&self) -> EntryValue {
        EntryValue::from_block(self.current_block(), self.entry)
    }

    #[inline]
    fn current_block(&self) -> &TableBlock {
        assert!(self.valid, "a cursor is read only while it is valid");
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

    /// To the last entry of the block before block `i`.
    fn seek_end_before_block(&mut self, i: usize) -> Result<()> {
        self.valid = false;
        if i > 0 {
            let last = self.load_block(i - 1)?.len() - 1;
            self.set_entry(last);
        }
        Ok(())
    }

    /// Makes block `i` the one at hand.
    fn load_block(&mut self, i: usize) -> Result<&TableBlock> {
        if self.block_index != i || self.block.is_none() {
            let last = self.block.take();
            if let Some(window) = &mut self.window {
                window.clear();
            }
            let how = (self.fill_cache, self.cause);
            self.block =
                Some(self.reader.load_block_for_scan(i, how, &mut self.read_ahead, last)?);
            self.block_index = i;
        }
        Ok(self.block.as_ref().expect("just loaded"))
    }

    /// Stands on that entry of the block at hand.
    #[inline]
    fn set_entry(&mut self, entry: usize) {
        self.entry = entry;
        self.suffix =
            self.block.as_ref().expect("the entry's block is at hand").suffix_range(entry);
        self.valid = true;
    }
}
