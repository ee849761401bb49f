//! Reads every byte of a klog from disk and checks everything that the format promises.

use super::layout::FOOTER_BYTES;
use super::properties::{KlogSummary, PropertiesCollector, SKETCHED_KEYS_MIN};
use super::read_ahead;
use super::reader::{KlogMetadata, KlogReader};
use crate::block::{TableBlock, buffer_pool};
use crate::key_sketch::KeySketch;
use perigee_base::file_header::HEADER_BYTES;
use perigee_base::{Error, Result};

impl KlogReader {
    /// Reads every byte from disk, not from the cache: frames without a gap, the whole-file
    /// checksum, strict entry order, separators, every key in the filter, and counts and key range
    /// as the properties say. `progress` hears how many bytes were checked so far.
    pub fn verify(&self, checksum: u64, progress: &mut dyn FnMut(u64)) -> Result<()> {
        self.verify_paced(checksum, &mut pace_from_progress(progress))
    }

    /// The same at a pace: `pace` may sleep, or end it with an error.
    pub fn verify_paced(
        &self,
        checksum: u64,
        pace: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<()> {
        self.verify_with_checksum(Some(checksum), pace)
    }

    pub(super) fn verify_with_checksum(
        &self,
        checksum: Option<u64>,
        pace: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<()> {
        let parts = KlogMetadata::read(&self.input, self.database)?;
        let mut pass = self.input.scan(pace);
        let mut walk = KlogVerifier {
            metadata: &parts,
            properties: PropertiesCollector::new(parts.comparator),
            sketch: KeySketch::new(),
            key_count: 0,
        };
        pass.next_part(HEADER_BYTES as u64)?;
        for i in 0..parts.index.block_count() {
            let (offset, length) = parts.index.block_handle(i);
            let bytes = pass.next_part(length)?;
            let checked =
                read_ahead::decode_frame(self.input.id(), offset, bytes, parts.comparator)
                    .and_then(|block| {
                        walk.check_block(i, &block)?;
                        buffer_pool::recycle_block(block);
                        Ok(())
                    });
            checked.map_err(|e| self.input.error_at(offset, e))?;
        }
        // These were verified above; here they only count for the checksum of the whole.
        walk.properties.add_range_tombstones(&parts.ranges);
        for (_, length) in [
            parts.footer.ranges_handle(),
            parts.footer.filter,
            parts.footer.index,
            parts.footer.properties,
        ] {
            pass.next_part(length)?;
        }
        pass.next_part(FOOTER_BYTES as u64)?;
        if walk.properties.expiries() != &*parts.expiries {
            let e =
                Error::corruption("the times at which entries expire are not those of the entries");
            return Err(self.input.error_at(parts.footer.properties.0, e));
        }
        if walk.properties.operand_count() != parts.operand_count {
            let e = Error::corruption("the number of operands is not that of the entries")
                .expected(parts.operand_count, walk.properties.operand_count());
            return Err(self.input.error_at(parts.footer.properties.0, e));
        }
        if walk.expected_sketch() != parts.sketch {
            let e = Error::corruption("the sketch of keys is not that of the keys");
            return Err(self.input.error_at(parts.footer.properties.0, e));
        }
        let counted = KlogSummary { bytes: self.input.bytes(), ..walk.properties.into_summary() };
        if counted != parts.summary || counted != *self.summary() {
            let e = Error::corruption("the properties are not those of the entries")
                .expected(format_args!("{:?}", parts.summary), format_args!("{counted:?}"));
            return Err(self.input.error_at(parts.footer.properties.0, e));
        }
        pass.finish(checksum)
    }
}

/// A pace that only tells.
pub(crate) fn pace_from_progress(progress: &mut dyn FnMut(u64)) -> impl FnMut(u64) -> Result<()> {
    |done| {
        progress(done);
        Ok(())
    }
}

/// Goes through the blocks in order.
struct KlogVerifier<'a> {
    metadata: &'a KlogMetadata,
    properties: PropertiesCollector,
    sketch: KeySketch,
    key_count: u64,
}

impl KlogVerifier<'_> {
    /// The sketch that the table should have.
    fn expected_sketch(&self) -> Option<KeySketch> {
        (self.key_count >= SKETCHED_KEYS_MIN).then(|| self.sketch.clone())
    }

    fn check_block(&mut self, i: usize, block: &TableBlock) -> Result<()> {
        let KlogVerifier { metadata: parts, properties: tally, sketch, key_count: keys } = self;
        let order = parts.comparator;
        if i > 0 && parts.index.compare_separator(order, i - 1, block.key(0), block.seq(0)).is_ge()
        {
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
            denied |= parts.filter.as_ref().is_some_and(|f| !f.may_contain(hash));
        });
        if let Err(entry) = counted {
            return Err(Error::corruption(format!("entry {entry} of block {i} is out of order")));
        }
        if denied {
            return Err(Error::corruption(format!("the filter denies a key of block {i}")));
        }
        let last = block.len() - 1;
        if parts.index.compare_separator(order, i, block.key(last), block.seq(last)).is_lt() {
            return Err(Error::corruption(format!(
                "the separator of block {i} is before its last entry"
            )));
        }
        Ok(())
    }
}
