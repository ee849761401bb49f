//! Reads every byte of a klog from disk and checks everything that the format promises.

use super::layout::FOOTER_BYTES;
use super::load;
use super::props::{KlogSummary, SKETCHED_KEYS_MIN, Tally};
use super::reader::{KlogReader, Parts};
use crate::block::{Block, spare};
use crate::sketch::Sketch;
use perigee_base::format::HEADER_BYTES;
use perigee_base::{Error, Result};

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
        let mut walk = Walk { parts: &parts, tally: Tally::new(parts.order), sketch: Sketch::new(), keys: 0 };
        pass.take(HEADER_BYTES as u64)?;
        for i in 0..parts.index.len() {
            let (offset, length) = parts.index.place(i);
            let bytes = pass.take(length)?;
            let checked = load::decode(self.input.id(), offset, bytes, parts.order).and_then(|block| {
                walk.block(i, &block)?;
                spare::give(block);
                Ok(())
            });
            checked.map_err(|e| self.input.damage(offset, e))?;
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
        if walk.tally.operands() != parts.operands {
            let e = Error::corruption("the number of operands is not that of the entries")
                .expected(parts.operands, walk.tally.operands());
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
}

impl Walk<'_> {
    /// The sketch that the table should have.
    fn sketch(&self) -> Option<Sketch> {
        (self.keys >= SKETCHED_KEYS_MIN).then(|| self.sketch.clone())
    }

    fn block(&mut self, i: usize, block: &Block) -> Result<()> {
        let Walk { parts, tally, sketch, keys } = self;
        let order = parts.order;
        if i > 0 && parts.index.cmp_separator(order, i - 1, block.key(0), block.seq(0)).is_ge() {
            let before = i - 1;
            return Err(Error::corruption(format!(
                "the separator of block {before} is not before the next block"
            )));
        }
        let mut denied = false;
        let counted = tally.add_block(block, |key| {
            let hash = order.filter_hash(key);
            *keys += 1;
            sketch.add(hash);
            denied |= parts.filter.as_ref().is_some_and(|f| !f.may_hold(hash));
        });
        if let Err(entry) = counted {
            return Err(Error::corruption(format!("entry {entry} of block {i} is out of order")));
        }
        if denied {
            return Err(Error::corruption(format!("the filter denies a key of block {i}")));
        }
        let last = block.len() - 1;
        if parts.index.cmp_separator(order, i, block.key(last), block.seq(last)).is_lt() {
            return Err(Error::corruption(format!("the separator of block {i} is before its last entry")));
        }
        Ok(())
    }
}
