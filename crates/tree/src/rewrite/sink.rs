//! The sink of flush and compaction: decides where the entries of a rewrite are stored, in which
//! table and whether in its value log, and writes them.
//!
//! Must not drop or change an entry: [`reduce`](super::reduce) decides that.

use super::block_pass_through::StoredBlock;
use super::context::RewriteContext;
use super::output_writer::{CreatedFiles, OutputWriter};
use super::pacer::OutputBytes;
use super::split::TableSplitter;
use super::value_separation::{SeparationPolicy, ValuePlacement};
use crate::get;
use crate::version::Version;
use perigee_base::{EntryRef, FileId, IoActivity, Result, SeqNo};
use perigee_file::RangeTombstones;
use std::collections::BTreeSet;

/// Number of consecutive blocks that justify ending the current block early, which makes it small.
const BLOCKS_IN_A_ROW: usize = 4;

/// An entry to write.
#[derive(Clone, Copy, Debug)]
pub struct CompactionEntry<'a> {
    /// The entry.
    pub entry: EntryRef<'a>,
    /// True for the first entry of its key that the sources hold: only before such an entry may a
    /// table end.
    pub first_of_key: bool,
}

/// Writes entries and blocks in key order.
pub struct RewriteSink<'a> {
    version: &'a Version,
    separation: SeparationPolicy,
    split: TableSplitter,
    files: OutputWriter<'a>,
    /// True to write every entry with sequence number 0.
    zero_seqs: bool,
    entries_written: u64,
}

impl<'a> RewriteSink<'a> {
    /// Creates a sink without outputs. Values in `relocate_vlogs` are moved to a new value log.
    pub fn new(
        job: &RewriteContext<'a>,
        relocate_vlogs: BTreeSet<FileId>,
        zero_seqs: bool,
        created: &'a mut CreatedFiles,
    ) -> RewriteSink<'a> {
        let mut files = OutputWriter::new(
            job.table_cache,
            job.next_file_id,
            job.options.clone(),
            job.verify_outputs,
            created,
        )
        .with_deferred_sync(job.deferred_sync);
        files.fill_cache = job.fill_cache;
        RewriteSink {
            version: job.version,
            separation: SeparationPolicy { threshold: job.separation_threshold, relocate_vlogs },
            split: TableSplitter::new(job.options.comparator, job.target_bytes, job.cuts.clone()),
            files,
            zero_seqs,
            entries_written: 0,
        }
    }
    /// Sets the range tombstones; each goes into all tables that it overlaps.
    pub fn set_range_tombstones(&mut self, ranges: &RangeTombstones) {
        self.files.set_range_tombstones(ranges.clone());
    }
    /// Returns the bytes written so far, and the memory that the open files hold.
    pub fn output_bytes(&self) -> OutputBytes {
        self.files.output_bytes()
    }
    /// Number of entries written.
    pub fn entries_written(&self) -> u64 {
        self.entries_written
    }

    /// Writes an entry, after finishing the current table if a boundary between tables lies before
    /// it.
    #[inline]
    pub fn write(&mut self, entry: CompactionEntry<'_>) -> Result<()> {
        let CompactionEntry { entry, first_of_key } = entry;
        let (table_bytes, index_bytes) = self.files.pending_bytes();
        let cut = self.split.cut_before(entry.key, first_of_key, table_bytes, index_bytes);
        if let Some(at) = cut {
            self.files.finish_table(at)?;
        }
        self.entries_written += 1;
        let seq = if self.zero_seqs { SeqNo::ZERO } else { entry.seq };
        self.write_entry(EntryRef { seq, ..entry })
    }

    fn write_entry(&mut self, e: EntryRef<'_>) -> Result<()> {
        let placement = self.separation.placement(&e.value);
        let value = match (placement, e.value.inline_bytes(), e.value.vlog_pointer()) {
            (ValuePlacement::Separate, Some(v), _) => {
                e.value.with_pointer(self.files.write_to_vlog(v)?)
            }
            (ValuePlacement::Relocate, _, Some(p)) => {
                let v = get::fetch_value_with_cause(self.version, &p, IoActivity::Compaction)?;
                if v.len() < self.separation.threshold {
                    return self.files.add_entry(EntryRef { value: e.value.with_bytes(&v), ..e });
                }
                e.value.with_pointer(self.files.write_to_vlog(&v)?)
            }
            _ => e.value,
        };
        self.files.add_entry(EntryRef { value, ..e })
    }

    /// Copies a block as it is stored. Returns false if its entries must be written one by one,
    /// because of a boundary between tables, a value to separate, or its format.
    pub fn copy_block(&mut self, stored_block: &StoredBlock<'_>) -> Result<bool> {
        let StoredBlock { cursor, block, limit, first, last } = *stored_block;
        let threshold = self.separation.threshold;
        let is_inline =
            |i: usize| block.raw_value(i).len() < threshold || block.raw_value(i).is_empty();
        let all_inline = block.value_bytes() < threshold || (0..block.len()).all(is_inline);
        check_slow!(!self.zero_seqs, "a block that is copied keeps its sequence numbers");
        if !all_inline || self.split.has_cut_between(first, last) {
            return Ok(false);
        }
        let many_follow = cursor.blocks_end_before(BLOCKS_IN_A_ROW, limit);
        let copied = cursor.with_stored_frame(|frame| {
            if !self.files.accepts_block(block, frame, many_follow) {
                return Ok(false);
            }
            let (table_bytes, index_bytes) = self.files.pending_bytes();
            if let Some(at) = self.split.cut_before(first, true, table_bytes, index_bytes) {
                self.files.finish_table(at)?;
            }
            self.files.copy_block(block, frame)?;
            Ok(true)
        })?;
        self.entries_written += if copied { block.len() as u64 } else { 0 };
        Ok(copied)
    }

    /// Finishes the last table and value log.
    pub fn finish(&mut self) -> Result<()> {
        self.files.finish()
    }
    /// Returns the writer of the finished files.
    pub fn files(&mut self) -> &mut OutputWriter<'a> {
        &mut self.files
    }
}
