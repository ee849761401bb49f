//! Verifies a klog: reads every byte from disk and checks everything that the format guarantees.

use super::layout::FOOTER_BYTES;
use super::properties::{KlogSummary, PropertiesCollector};
use super::read_ahead;
use super::reader::{KlogMetadata, KlogReader};
use crate::block::{TableBlock, buffer_pool};
use crate::key_sketch::KeySketch;
use crate::limits::SKETCHED_KEYS_MIN;
use perigee_base::{BlockHandle, Error, HEADER_BYTES, Result};

impl KlogReader {
    /// Verifies the whole file, from disk and not from the cache: frames without a gap, the
    /// whole-file checksum, strict entry order, separators, every key in the filter, and the
    /// properties. `progress` is called with the number of bytes checked so far.
    pub fn verify(&self, checksum: u64, progress: &mut dyn FnMut(u64)) -> Result<()> {
        self.verify_paced(checksum, &mut pace_from_progress(progress))
    }

    /// Verifies a table that was just written. With `fill_cache` its blocks are inserted into the
    /// block cache, as long as it has room.
    pub fn verify_output(&self, checksum: u64, fill_cache: bool) -> Result<()> {
        self.verify_with_checksum(Some(checksum), fill_cache, &mut |_| Ok(()))
    }

    /// Like [`KlogReader::verify`]; `pace` may sleep for rate limiting, and an error it returns
    /// ends the verification.
    pub fn verify_paced(
        &self,
        checksum: u64,
        pace: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<()> {
        self.verify_with_checksum(Some(checksum), false, pace)
    }

    pub(super) fn verify_with_checksum(
        &self,
        checksum: Option<u64>,
        mut fill_cache: bool,
        pace: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<()> {
        let (metadata, footer, summary) = KlogMetadata::read(&self.input, self.database)?;
        let mut scan = self.input.scan(pace);
        let mut verifier = KlogVerifier {
            metadata: &metadata,
            properties: PropertiesCollector::new(metadata.comparator),
            sketch: KeySketch::new(),
            key_count: 0,
            hashes: Vec::new(),
        };
        scan.next_part(HEADER_BYTES as u64)?;
        for i in 0..metadata.index.block_count() {
            let BlockHandle { offset, len } = metadata.index.block_handle(i);
            let bytes = scan.next_part(len)?;
            let result =
                read_ahead::decode_frame(self.input.id(), offset, bytes, metadata.comparator)
                    .and_then(|block| {
                        verifier.check_block(i, &block)?;
                        fill_cache = fill_cache
                            && self
                                .cache
                                .insert_if_room(i, || block.to_cached(metadata.comparator));
                        buffer_pool::recycle_block(block);
                        Ok(())
                    });
            result.map_err(|e| self.input.error_at(offset, e))?;
        }
        // These parts were verified above; here they only count for the whole-file checksum.
        verifier.properties.add_range_tombstones(&metadata.ranges);
        for part in [footer.ranges_handle(), footer.filter, footer.index, footer.properties] {
            scan.next_part(part.len)?;
        }
        scan.next_part(FOOTER_BYTES as u64)?;
        if verifier.properties.expiries() != &*metadata.expiries {
            let e = Error::corruption("the expiry histogram does not match the entries");
            return Err(self.input.error_at(footer.properties.offset, e));
        }
        if verifier.properties.operand_count() != metadata.operand_count {
            let e = Error::corruption("the number of merge operands does not match the entries")
                .expected(metadata.operand_count, verifier.properties.operand_count());
            return Err(self.input.error_at(footer.properties.offset, e));
        }
        if verifier.expected_sketch() != metadata.sketch {
            let e = Error::corruption("the key sketch does not match the keys");
            return Err(self.input.error_at(footer.properties.offset, e));
        }
        let counted =
            KlogSummary { bytes: self.input.bytes(), ..verifier.properties.into_summary() };
        if counted != summary {
            let e = Error::corruption("the properties do not match the entries")
                .expected(format_args!("{summary:?}"), format_args!("{counted:?}"));
            return Err(self.input.error_at(footer.properties.offset, e));
        }
        scan.finish(checksum)
    }
}

/// Wraps a progress callback as a pace that never sleeps or fails.
pub(crate) fn pace_from_progress(progress: &mut dyn FnMut(u64)) -> impl FnMut(u64) -> Result<()> {
    |done| {
        progress(done);
        Ok(())
    }
}

/// Checks the blocks of a klog in order.
struct KlogVerifier<'a> {
    metadata: &'a KlogMetadata,
    properties: PropertiesCollector,
    sketch: KeySketch,
    key_count: u64,
    /// Hashes of the keys of a block: a buffer that is reused.
    hashes: Vec<u64>,
}

impl KlogVerifier<'_> {
    /// Returns the sketch that the table must have.
    fn expected_sketch(&self) -> Option<KeySketch> {
        (self.key_count >= SKETCHED_KEYS_MIN).then(|| self.sketch.clone())
    }

    fn check_block(&mut self, i: usize, block: &TableBlock) -> Result<()> {
        let KlogVerifier { metadata, properties, sketch, key_count, hashes } = self;
        let comparator = metadata.comparator;
        if i > 0
            && metadata
                .index
                .compare_separator(comparator, i - 1, block.key(0), block.seq(0))
                .is_ge()
        {
            let before = i - 1;
            return Err(Error::corruption(format!(
                "the separator of block {before} is not before the next block"
            )));
        }
        hashes.clear();
        let result = properties.add_block(block, |key| hashes.push(comparator.filter_hash(key)));
        if let Err(entry) = result {
            return Err(Error::corruption(format!("entry {entry} of block {i} is out of order")));
        }
        *key_count += hashes.len() as u64;
        hashes.iter().for_each(|hash| sketch.add(*hash));
        if metadata.filter.as_ref().is_some_and(|filter| !filter.may_contain_all(hashes)) {
            return Err(Error::corruption(format!("the filter excludes a key of block {i}")));
        }
        let last = block.len() - 1;
        if metadata.index.compare_separator(comparator, i, block.key(last), block.seq(last)).is_lt()
        {
            return Err(Error::corruption(format!(
                "the separator of block {i} is before its last entry"
            )));
        }
        Ok(())
    }
}
