//! Reads every byte of a klog from disk and checks everything that the format promises.

use super::layout::FOOTER_BYTES;
use super::props::{KlogSummary, SKETCHED_KEYS_MIN, Tally};
use super::reader::{KlogReader, Parts};
use crate::block::Block;
use crate::block::frame::{Frame, FrameKind};
use crate::sketch::Sketch;
use perigee_base::format::HEADER_BYTES;
use perigee_base::{EntryRef, Error, Result, SeqNo, key};

impl KlogReader {
    /// Reads every byte from disk, not from the cache: frames without a gap, the whole-file checksum, strict entry
    /// order, separators, every key in the filter, and counts and key range as the properties say. `progress`
    /// hears how many bytes were checked so far.
    pub fn verify(&self, checksum: u64, progress: &mut dyn FnMut(u64)) -> Result<()> {
        self.verify_paced(checksum, &mut told(progress))
    }

    /// The same at a pace: `pace` may sleep, or end it with an error.
    pub fn verify_paced(&self, checksum: u64, pace: &mut dyn FnMut(u64) -> Result<()>) -> Result<()> {
        self.verify_against(Some(checksum), pace)
    }

    pub(super) fn verify_against(
        &self,
        checksum: Option<u64>,
        pace: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<()> {
        let parts = Parts::read(&self.input, self.database)?;
        let mut pass = self.input.pass(pace);
        let mut walk = Walk {
            parts: &parts,
            tally: Tally::new(parts.order),
            sketch: Sketch::new(),
            keys: 0,
            key: Vec::new(),
        };
        pass.take(HEADER_BYTES as u64)?;
        for i in 0..parts.index.len() {
            let (offset, length) = parts.index.place(i);
            let bytes = pass.take(length)?;
            Frame::decode(self.input.id(), offset, bytes, FrameKind::Data)
                .and_then(|f| f.unpack(Block::SLACK))
                .and_then(Block::parse)
                .and_then(|block| block.under(parts.order))
                .and_then(|block| walk.block(i, &block))
                .map_err(|e| self.input.damage(offset, e))?;
        }
        // These were verified above; here they only count for the checksum of the whole.
        walk.tally.add_ranges(&parts.ranges);
        for (_, length) in
            [parts.footer.ranges(), parts.footer.filter, parts.footer.index, parts.footer.properties]
        {
            pass.take(length)?;
        }
        pass.take(FOOTER_BYTES as u64)?;
        if walk.tally.expiries() != &*parts.expiries {
            let e = Error::corruption("the times at which entries expire are not those of the entries");
            return Err(self.input.damage(parts.footer.properties.0, e));
        }
        if walk.sketch() != parts.sketch {
            let e = Error::corruption("the sketch of keys is not that of the keys");
            return Err(self.input.damage(parts.footer.properties.0, e));
        }
        let counted = KlogSummary { bytes: self.input.bytes(), ..walk.tally.summary() };
        if counted != parts.summary || counted != *self.summary() {
            let e = Error::corruption("the properties are not those of the entries")
                .expected(format_args!("{:?}", parts.summary), format_args!("{counted:?}"));
            return Err(self.input.damage(parts.footer.properties.0, e));
        }
        pass.finish(checksum)
    }
}

/// A pace that only tells.
pub(crate) fn told(progress: &mut dyn FnMut(u64)) -> impl FnMut(u64) -> Result<()> {
    |done| {
        progress(done);
        Ok(())
    }
}

/// Goes through the blocks in order.
struct Walk<'a> {
    parts: &'a Parts,
    tally: Tally,
    sketch: Sketch,
    keys: u64,
    key: Vec<u8>,
}

impl Walk<'_> {
    /// The sketch that the table should have.
    fn sketch(&self) -> Option<Sketch> {
        (self.keys >= SKETCHED_KEYS_MIN).then(|| self.sketch.clone())
    }

    fn block(&mut self, i: usize, block: &Block) -> Result<()> {
        for entry in 0..block.len() {
            block.copy_key(entry, &mut self.key);
            if entry == 0 && i > 0 {
                self.check_separator_before(i - 1, block.seq(0))?;
            }
            let e = EntryRef { key: &self.key, seq: block.seq(entry), value: block.value(entry) };
            let Some(new_key) = self.tally.add(e) else {
                return Err(Error::corruption(format!("entry {entry} of block {i} is out of order")));
            };
            if !new_key {
                continue;
            }
            let hash = self.parts.order.filter_hash(&self.key);
            self.keys += 1;
            self.sketch.add(hash);
            if self.parts.filter.as_ref().is_some_and(|f| !f.may_hold(hash)) {
                return Err(Error::corruption(format!(
                    "the filter denies the key of entry {entry} of block {i}"
                )));
            }
        }
        let separator = self.parts.index.separator(i);
        let last = self.tally.last().expect("a block has entries");
        if key::cmp_entry(self.parts.order, last, (&separator.0, separator.1)).is_gt() {
            return Err(Error::corruption(format!("the separator of block {i} is before its last entry")));
        }
        Ok(())
    }

    /// The entry at hand, first of its block, must be behind the separator of the block before.
    fn check_separator_before(&self, i: usize, seq: SeqNo) -> Result<()> {
        let separator = self.parts.index.separator(i);
        if key::cmp_entry(self.parts.order, (&separator.0, separator.1), (&self.key, seq)).is_ge() {
            return Err(Error::corruption(format!(
                "the separator of block {i} is not before the next block"
            )));
        }
        Ok(())
    }
}
