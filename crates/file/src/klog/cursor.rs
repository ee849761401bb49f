//! Walks the entries of a klog in both directions. Holds one block, and the frames it has read ahead; values leave it without a copy.
//!
//! Invariant: a cursor is on an entry, or invalid. Any error makes it invalid, so that nobody reads on from a
//! place that was not reached.

use super::load::Ahead;
use super::reader::{Found, KlogReader};
use crate::block::Block;
use perigee_base::io::Cause;
use perigee_base::{EntryRef, Result, SeqNo};
use std::sync::Arc;

/// Walks the entries of a klog.
#[derive(Debug)]
pub struct KlogCursor {
    reader: Arc<KlogReader>,
    fill_cache: bool,
    cause: Cause,
    /// The block at hand and its number; kept while the cursor is invalid, for the next seek.
    block: Option<(usize, Arc<Block>)>,
    /// What was read beyond it.
    ahead: Ahead,
    /// The entry in it.
    entry: usize,
    valid: bool,
    /// The entry's key in one piece.
    key: Vec<u8>,
}

impl KlogReader {
    /// A cursor, on no entry yet. A scan that should not disturb the cache reads it without filling it.
    pub fn cursor(self: &Arc<Self>, fill_cache: bool) -> KlogCursor {
        KlogCursor::new(Arc::clone(self), fill_cache)
    }
}

impl KlogCursor {
    fn new(reader: Arc<KlogReader>, fill_cache: bool) -> Self {
        KlogCursor {
            reader,
            fill_cache,
            cause: Cause::Scan,
            block: None,
            ahead: Ahead::default(),
            entry: 0,
            valid: false,
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
        let same = || self.valid && self.reader.order().cmp(&self.key, key).is_eq();
        self.reader.stamped().is_some_and(|stamp| stamp > seq) && same()
    }

    fn seek_stored(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
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

    /// To the next entry; from the last one, or from none, to none.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<()> {
        let Some((i, block)) = self.block.as_ref().filter(|_| self.valid) else { return Ok(()) };
        let i = *i;
        if self.entry + 1 < block.len() {
            self.stand(self.entry + 1);
            return Ok(());
        }
        self.first_of(i + 1)
    }

    /// To the previous entry; from the first one, or from none, to none.
    pub fn prev(&mut self) -> Result<()> {
        let Some(i) = self.block.as_ref().filter(|_| self.valid).map(|b| b.0) else { return Ok(()) };
        if self.entry > 0 {
            self.stand(self.entry - 1);
            return Ok(());
        }
        self.last_before(i)
    }

    /// Whether the cursor is on an entry.
    pub fn valid(&self) -> bool {
        self.valid
    }

    /// The entry.
    ///
    /// # Panics
    /// If the cursor is not valid.
    pub fn entry(&self) -> EntryRef<'_> {
        let block = self.at();
        let seq = self.reader.seq_of(block.seq(self.entry));
        EntryRef { key: &self.key, seq, value: block.value(self.entry) }
    }

    /// The entry's value, pinned.
    ///
    /// # Panics
    /// If the cursor is not valid.
    pub fn found(&self) -> Found {
        Found::of(self.at(), self.entry)
    }

    fn at(&self) -> &Block {
        assert!(self.valid, "a cursor is read only while it is valid");
        &self.block.as_ref().expect("a valid cursor has a block").1
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
        if self.block.as_ref().is_none_or(|b| b.0 != i) {
            let last = self.block.take().map(|b| b.1);
            let how = (self.fill_cache, self.cause);
            self.block = Some((i, self.reader.step_to(i, how, &mut self.ahead, last)?));
        }
        Ok(&self.block.as_ref().expect("just loaded").1)
    }

    /// Stands on that entry of the block at hand.
    fn stand(&mut self, entry: usize) {
        let block = &self.block.as_ref().expect("a block was loaded").1;
        block.copy_key(entry, &mut self.key);
        self.entry = entry;
        self.valid = true;
    }
}
