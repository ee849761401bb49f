//! A rewrite: reads the entries of a compaction iterator and writes them to a sink.

use super::compaction_iterator::{CompactionItem, CompactionIterator};
use super::context::{RewriteContext, RewriteInput, RewriteOutput};
use super::counts::RewriteCounts;
use super::output_writer::CreatedFiles;
use super::pacer::{Quantum, key_and_inline_bytes};
use super::sink::{CompactionEntry, RewriteSink};
use perigee_base::bug::{self, Bug};
use perigee_base::{EntryRef, Error, Result};
use std::collections::BTreeSet;

/// Rewrites all entries of the source. The files are synced, the directory is not. After an error
/// the outputs are unusable and listed in `created`.
pub fn run_rewrite(
    mut input: RewriteInput,
    job: RewriteContext<'_>,
    created: &mut CreatedFiles,
) -> Result<RewriteOutput> {
    let relocate_vlogs = std::mem::take(&mut input.relocate_vlogs);
    input.pass_through_blocks &= !input.zero_seqs && relocate_vlogs.is_empty();
    let mut sink = RewriteSink::new(&job, relocate_vlogs, input.zero_seqs, created);
    let mut iterator = CompactionIterator::new(input, &job);
    sink.set_range_tombstones(iterator.range_tombstones());
    // Waits for the delay that the previous job left.
    job.pacer.throttle(iterator.take_progress(sink.output_bytes()))?;
    iterator.seek_first()?;
    while let Some(item) = iterator.next()? {
        match item {
            CompactionItem::Entry(entry) => sink.write(entry)?,
            CompactionItem::Block(block) => {
                if sink.copy_block(&block)? {
                    iterator.skip_block()?;
                }
            }
            CompactionItem::QuantumEnd => {
                match job.pacer.throttle(iterator.take_progress(sink.output_bytes())) {
                    Err(_) if bug::is_active(Bug::InstallCancelled) => break,
                    result => result?,
                }
            }
        }
    }
    sink.finish()?;
    // Finished outputs are neither discarded for a late cancellation nor delayed by pacing.
    job.pacer.record_final(iterator.take_progress(sink.output_bytes()));
    finish_rewrite(sink, iterator.counts())
}

/// Writes entries that are already in order, each key once, without dropping any.
pub fn write_sorted<'e>(
    entries: impl Iterator<Item = EntryRef<'e>>,
    job: RewriteContext<'_>,
    created: &mut CreatedFiles,
) -> Result<RewriteOutput> {
    let mut sink = RewriteSink::new(&job, BTreeSet::new(), false, created);
    let (mut counts, mut quantum) = (RewriteCounts::default(), Quantum::default());
    for entry in entries {
        if quantum.is_full() {
            job.pacer.throttle(quantum.take(sink.output_bytes()))?;
        }
        counts.read += 1;
        quantum.add(key_and_inline_bytes(entry.key.len(), &entry.value));
        sink.write(CompactionEntry { entry, first_of_key: true })?;
    }
    sink.finish()?;
    finish_rewrite(sink, counts)
}

/// Returns the finished outputs, if every entry read was written or dropped for a reason.
fn finish_rewrite(mut sink: RewriteSink<'_>, counts: RewriteCounts) -> Result<RewriteOutput> {
    let counts = RewriteCounts { written: sink.entries_written(), ..counts };
    let files = sink.files();
    let in_tables: u64 = files.tables.iter().map(|t| t.summary.entries).sum();
    if counts.read != counts.written + counts.dropped() || counts.written != in_tables {
        return Err(Error::internal(format!(
            "a rewrite lost entries: {counts:?}, in tables: {in_tables}"
        )));
    }
    let ranges = files.tables.iter().filter_map(|t| t.summary.ranges.as_ref());
    let (ranges, expected): (u64, u64) = (ranges.map(|r| r.count).sum(), files.ranges_expected());
    if ranges != expected {
        return Err(Error::internal(format!(
            "a rewrite lost range tombstones: {:?}, {ranges} of {expected}",
            counts.range_tombstones
        )));
    }
    Ok(RewriteOutput {
        tables: std::mem::take(&mut files.tables),
        vlogs: std::mem::take(&mut files.vlogs),
        counts,
        write_calls: files.write_calls,
        fill_cache: files.fill_cache,
    })
}
