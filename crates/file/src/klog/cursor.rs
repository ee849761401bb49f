//! Walks the entries of a klog in both directions. Holds one block, and the frames it has read ahead; keys and values
//! leave it without a copy.
//!
//! Invariant: a cursor is on an entry, or invalid. Any error makes it invalid, so that nobody reads on from a
//! place that was not reached.

use super::load::Ahead;
use super::reader::{Found, KlogReader};
use crate::block::Block;
use perigee_base::io::Cause;
use perigee_base::{EntryKind, EntryRef, KeyRef, Result, SeqNo, ValueRef};
use std::sync::Arc;

/// Walks the entries of a klog.
#[derive(Debug)]
pub struct KlogCursor {
    reader: Arc<KlogReader>,
    fill_cache: bool,
    cause: Cause,
    /// The block at hand; kept while the cursor is invalid, for the next seek.
    block: Option<Arc<Block>>,
    /// Its number.
    number: usize,
    /// What was read beyond it.
    ahead: Ahead,
    /// The entry in it.
    entry: usize,
    valid: bool,
    /// What `prev` left: an entry of the block at hand, or (if it left that block) its value.
    left: (usize, Option<Found>),
    /// An entry's key in one piece, for who wants it so.
    key: Vec<u8>,
}

impl KlogReader {
    /// A cursor, on no entry yet. A scan that should not disturb the cache reads it without filling it.
    pub fn cursor(self: &Arc<Self>, fill_cache: bool) -> KlogCursor {
        KlogCursor::new(Arc::clone(self), fill_cache)
    }

    /// Whether the filter says that the hash of a key is not here; counted as in a point read.
    pub fn rules_out(&self, hash: u64) -> bool {
        let out = !self.may_hold(hash);
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
            cause: Cause::Scan,
            block: None,
            number: 0,
            ahead: Ahead::default(),
            entry: 0,
            valid: false,
            left: (0, None),
            key: Vec::new(),
        }
    }

    /// The same cursor, its reads counted for `cause` instead of scans.
    #[must_use]
    pub fn caused_by(self, cause: Cause) -> Self {
        KlogCursor { cause, ..self }
    }

    /// To the first entry at or after (key, seq) in entry order.
    pub fn seek(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        self.seek_stored(key, seq)?;
        if self.hides(key, seq) { self.next() } else { Ok(()) }
    }

    /// Whether the cursor is on `key`, whose stamp is newer than `seq`.
    fn hides(&self, key: &[u8], seq: SeqNo) -> bool {
        let same = || self.valid && self.key().is(self.reader.order(), key);
        self.reader.stamped().is_some_and(|stamp| stamp > seq) && same()
    }

    fn seek_stored(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        if let Some(entry) = self.near(key, seq) {
            self.stand(entry);
            return Ok(());
        }
        self.valid = false;
        let i = self.find(key, seq);
        if i == self.blocks() {
            return Ok(());
        }
        let order = self.reader.order();
        let block = self.load(i)?;
        let entry = block.lower_bound(order, key, seq);
        if entry < block.len() {
            self.stand(entry);
            return Ok(());
        }
        // The position lies between the block's last entry and its separator.
        self.first_of(i + 1)
    }

    /// To the last entry before (key, seq) in entry order.
    pub fn seek_before(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        if self.reader.stamped().is_some_and(|stamp| stamp > seq) {
            self.seek_stored(key, SeqNo::MAX)?;
            if self.hides(key, seq) {
                return Ok(());
            }
        }
        self.seek_stored_before(key, seq)
    }

    fn seek_stored_before(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        if let Some(entry) = self.near(key, seq) {
            self.stand(entry - 1);
            return Ok(());
        }
        self.valid = false;
        let i = self.find(key, seq);
        if i == self.blocks() {
            return self.last_before(i);
        }
        let order = self.reader.order();
        match self.load(i)?.lower_bound(order, key, seq) {
            0 => self.last_before(i),
            entry => {
                self.stand(entry - 1);
                Ok(())
            }
        }
    }

    /// To the first entry.
    pub fn seek_first(&mut self) -> Result<()> {
        self.first_of(0)
    }
    /// To the last entry.
    pub fn seek_last(&mut self) -> Result<()> {
        self.last_before(self.blocks())
    }

    /// The first entry at or after (key, seq), if it and the one before it are in the block at hand: between the two there
    /// is room in no other block.
    fn near(&self, key: &[u8], seq: SeqNo) -> Option<usize> {
        let block = self.block.as_ref()?;
        let entry = block.lower_bound(self.reader.order(), key, seq);
        (entry > 0 && entry < block.len()).then_some(entry)
    }

    /// To the next entry; from the last one, or from none, to none.
    #[allow(clippy::should_implement_trait)]
    #[inline]
    pub fn next(&mut self) -> Result<()> {
        match &self.block {
            Some(block) if self.valid && self.entry + 1 < block.len() => {
                self.entry += 1;
                Ok(())
            }
            Some(_) if self.valid => self.first_of(self.number + 1),
            _ => Ok(()),
        }
    }

    /// To the previous entry; from the first one, or from none, to none.
    #[inline]
    pub fn prev(&mut self) -> Result<()> {
        if !self.valid {
            return Ok(());
        }
        if self.entry > 0 {
            self.left = (self.entry, None);
            self.entry -= 1;
            return Ok(());
        }
        self.left = (0, Some(self.found()));
        self.last_before(self.number)
    }

    /// The value of the entry that the last `prev` left, if nothing moved the cursor since.
    #[inline]
    pub fn left(&self) -> Option<Found> {
        let (entry, found) = &self.left;
        let here = || self.block.as_ref().filter(|b| *entry < b.len()).map(|b| Found::of(b, *entry));
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
        let block = self.at();
        KeyRef { prefix: block.prefix(), suffix: block.suffix(self.entry) }
    }

    /// Its sequence number.
    ///
    /// # Panics
    /// If the cursor is not valid.
    #[inline]
    pub fn seq(&self) -> SeqNo {
        self.reader.seq_of(self.at().seq(self.entry))
    }

    /// What it is.
    ///
    /// # Panics
    /// If the cursor is not valid.
    #[inline]
    pub fn kind(&self) -> EntryKind {
        self.at().kind(self.entry)
    }

    /// Its value, borrowed.
    ///
    /// # Panics
    /// If the cursor is not valid.
    #[inline]
    pub fn value(&self) -> ValueRef<'_> {
        self.at().value(self.entry)
    }

    /// All of it, the key put together.
    ///
    /// # Panics
    /// If the cursor is not valid.
    pub fn entry(&mut self) -> EntryRef<'_> {
        assert!(self.valid, "a cursor is read only while it is valid");
        let block = self.block.as_ref().expect("a valid cursor has a block");
        block.copy_key(self.entry, &mut self.key);
        let seq = self.reader.seq_of(block.seq(self.entry));
        EntryRef { key: &self.key, seq, value: block.value(self.entry) }
    }

    /// The entry's value, pinned.
    ///
    /// # Panics
    /// If the cursor is not valid.
    #[inline]
    pub fn found(&self) -> Found {
        Found::of(self.at(), self.entry)
    }

    #[inline]
    fn at(&self) -> &Block {
        assert!(self.valid, "a cursor is read only while it is valid");
        self.block.as_ref().expect("a valid cursor has a block")
    }

    fn blocks(&self) -> usize {
        self.reader.parts.index.len()
    }
    fn find(&self, key: &[u8], seq: SeqNo) -> usize {
        self.reader.parts.index.find(self.reader.order(), key, seq)
    }

    fn first_of(&mut self, i: usize) -> Result<()> {
        self.valid = false;
        if i < self.blocks() {
            self.load(i)?;
            self.stand(0);
        }
        Ok(())
    }

    /// To the last entry of the block before block `i`.
    fn last_before(&mut self, i: usize) -> Result<()> {
        self.valid = false;
        if i > 0 {
            let last = self.load(i - 1)?.len() - 1;
            self.stand(last);
        }
        Ok(())
    }

    /// Makes block `i` the one at hand.
    fn load(&mut self, i: usize) -> Result<&Block> {
        if self.number != i || self.block.is_none() {
            let last = self.block.take();
            let how = (self.fill_cache, self.cause);
            self.block = Some(self.reader.step_to(i, how, &mut self.ahead, last)?);
            self.number = i;
        }
        Ok(self.block.as_ref().expect("just loaded"))
    }

    /// Stands on that entry of the block at hand.
    #[inline]
    fn stand(&mut self, entry: usize) {
        self.entry = entry;
        self.valid = true;
    }
}
