//! The rewrite pipeline: every entry of the source is kept, or dropped for a reason, and counted.

use super::block_pass_through::BlockPassThrough;
use super::collapse::{EntryVerdict, RangeTombstoneCounts, VersionCollapser};
use super::deferred_sync::DeferredSync;
use super::filter::{FilterDecision, RewriteFilter};
use super::output_writer::{CreatedFiles, OutputWriter};
use super::pacer::{Quantum, RewritePacer};
use super::pending_operands::{MergeOutcome, OperandBase, PendingOperands};
use super::split::TableSplitter;
use super::value_separation::{SeparationPolicy, ValuePlacement};
use crate::get;
use crate::mvcc::SnapshotStripes;
use crate::scan::MergeCursor;
use crate::version::{TableMeta, Version, VlogMeta};
use perigee_base::bug::{self, Bug};
use perigee_base::io_stats::IoActivity;
use perigee_base::key_boundary::KeyBoundary;
use perigee_base::{
    Bytes, EntryRef, Error, ExpiryClock, FileId, OperandMerger, Result, SeqNo, ValueRef,
};
use perigee_file::{KlogOptions, RangeTombstones, TableCache};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Inputs and settings common to all rewrites, for flush and compaction alike.
#[derive(Clone)]
pub struct RewriteContext<'a> {
    /// Current version of the column family; separated values of the source are read from its value
    /// logs.
    pub version: &'a Version,
    /// Readers to respect.
    pub stripes: SnapshotStripes,
    /// Format of the outputs.
    pub options: KlogOptions,
    /// Values of this length and up are separated.
    pub separation_threshold: usize,
    /// Target size of output tables in bytes.
    pub target_bytes: u64,
    /// Boundaries, ascending, at which tables are cut if they are large enough.
    pub cuts: Vec<KeyBoundary>,
    /// True to verify outputs before they are installed.
    pub verify_outputs: bool,
    /// Opens and creates files.
    pub table_cache: &'a TableCache,
    /// Source of file ids.
    pub next_file_id: &'a AtomicU64,
    /// Delays or cancels the rewrite.
    pub pacer: &'a dyn RewritePacer,
    /// Clock, read if an entry has an expiry.
    pub now: &'a dyn ExpiryClock,
    /// Merges operands; without it they stay unmerged.
    pub merge_operator: Option<Arc<OperandMerger>>,
    /// The user's compaction filter.
    pub filter: Option<RewriteFilter<'a>>,
    /// Sequence number for values that every reader sees and that have no older versions below, if
    /// they may share one.
    pub bottom_seq: Option<SeqNo>,
    /// Syncs and verifies the outputs instead of the rewrite, if set.
    pub deferred_sync: Option<&'a DeferredSync>,
}

/// Entries that a rewrite moves.
pub struct RewriteInput {
    /// Merged source, not positioned.
    pub source: MergeCursor,
    /// True if no older version of any source key exists below the output.
    pub bottommost: bool,
    /// Range tombstones of all sources.
    pub range_tombstones: RangeTombstones,
    /// Value logs whose values are moved to a new one.
    pub relocate_vlogs: BTreeSet<FileId>,
    /// True to write every entry with sequence number 0: the table will get a global sequence
    /// number.
    pub zero_seqs: bool,
    /// True if blocks in which nothing changes may be copied as they are stored.
    pub pass_through_blocks: bool,
    /// Sequence numbers that the entries' transaction has rolled back, ascending and disjoint.
    pub rolled_back: Arc<[Range<SeqNo>]>,
}

/// Outputs of a rewrite.
#[derive(Debug, Default)]
pub struct RewriteOutput {
    /// Tables in key order, synced.
    pub tables: Vec<TableMeta>,
    /// Value logs, synced.
    pub vlogs: Vec<VlogMeta>,
    /// Entry counts.
    pub counts: RewriteCounts,
    /// Number of write calls for the files.
    pub write_calls: u64,
}

/// Entries read, written, and dropped by reason: `read = written + shadowed + obsolete_tombstones +
/// expired + covered + cancelled + filtered + merged + rolled_back`. Range tombstones are counted
/// separately, once per fragment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RewriteCounts {
    /// Entries of the source.
    pub read: u64,
    /// Entries written.
    pub written: u64,
    /// Dropped because a newer version hides them.
    pub shadowed: u64,
    /// Tombstones dropped because they hide nothing any more.
    pub obsolete_tombstones: u64,
    /// Expired entries dropped because they hide nothing.
    pub expired: u64,
    /// Entries dropped by the user's filter that hide nothing.
    pub filtered: u64,
    /// Of those written: expired entries converted to tombstones.
    pub expired_to_tombstones: u64,
    /// Of those written: entries of blocks that were copied as stored.
    pub passed_through: u64,
    /// Entries dropped because a range tombstone hides them. (Of a long sequence most are not read
    /// at all, and not counted anywhere.)
    pub covered: u64,
    /// Single deletes, and the puts that they cancelled.
    pub cancelled: u64,
    /// Entries rolled back by the transaction that wrote them.
    pub rolled_back: u64,
    /// Operands, and bases below them, that became part of another entry.
    pub merged: u64,
    /// Of those written: operands that could not be merged with what is known of their base.
    pub unmerged: u64,
    /// Range tombstones.
    pub range_tombstones: RangeTombstoneCounts,
}

/// Rewrites all entries of the source. The files are synced, the directory is not. After an error
/// the outputs are unusable and listed in `created`.
pub fn run_rewrite(
    input: RewriteInput,
    job: RewriteContext<'_>,
    created: &mut CreatedFiles,
) -> Result<RewriteOutput> {
    let mut source = input.source;
    let separation = SeparationPolicy {
        threshold: job.separation_threshold,
        relocate_vlogs: input.relocate_vlogs,
    };
    let can_pass_through = input.pass_through_blocks
        && !input.zero_seqs
        && job.filter.is_none()
        && separation.relocate_vlogs.is_empty();
    let mut pass_through = BlockPassThrough::new(can_pass_through, separation.threshold);
    let comparator = job.options.comparator;
    let split = TableSplitter::new(comparator, job.target_bytes, job.cuts.clone());
    let sink = OutputWriter::new(
        job.table_cache,
        job.next_file_id,
        job.options.clone(),
        job.verify_outputs,
        created,
    );
    let sink = sink.with_deferred_sync(job.deferred_sync);
    let mut writer =
        RewriteWriter { version: job.version, separation, split, sink, zero_seqs: input.zero_seqs };
    let collapse =
        VersionCollapser::new(comparator, job.stripes.clone(), input.bottommost, job.now);
    let mut collapse = collapse
        .with_ranges(input.range_tombstones)
        .with_bottom_seq(job.bottom_seq)
        .without_rolled_back(input.rolled_back);
    let (mut counts, mut quantum) = (RewriteCounts::default(), Quantum::default());
    let (ranges, range_counts) = collapse.output_ranges();
    counts.range_tombstones = range_counts;
    let ranges = if input.zero_seqs { ranges.with_seq(SeqNo::ZERO) } else { ranges };
    writer.sink.set_range_tombstones(ranges.coalesce(comparator));
    let mut held: Option<HeldSingleDelete> = None;
    let mut pending = PendingOperands::default();
    // Base below the last version of a key.
    let end = if input.bottommost { OperandBase::Absent } else { OperandBase::Unknown };
    // Waits for the delay that the previous job left.
    job.pacer.throttle(quantum.take(writer.sink.output_bytes()))?;
    source.seek_first()?;
    while source.valid() {
        if quantum.is_full() {
            match job.pacer.throttle(quantum.take(writer.sink.output_bytes())) {
                Err(_) if bug::is_active(Bug::InstallCancelled) => break,
                result => result?,
            }
        }
        if !pending.is_empty() && !pending.is_for_key(comparator, source.key()) {
            emit_operands(&mut pending, end, &job, &collapse, &mut writer, &mut counts)?;
        }
        if held.is_none()
            && pending.is_empty()
            && let Some(s) = pass_through.pass_block(
                &mut source,
                &mut collapse,
                &mut writer.split,
                &mut writer.sink,
            )?
        {
            counts.passed_through += s.entries;
            counts.read += s.entries;
            counts.written += s.entries;
            quantum.add_all(s.entries, Bytes(s.bytes));
            continue;
        }
        counts.read += 1;
        let known_new_key = source.key_changed();
        let mut entry = source.entry();
        quantum.add(key_and_inline_bytes(&entry));
        let (mut verdict, new_key) = collapse.classify(&entry, known_new_key);
        pending.begin_entry(new_key);
        if let Some(single) = held.take() {
            if matches!(verdict, EntryVerdict::CancelPair | EntryVerdict::ReplaceHeld) {
                counts.cancelled += 1;
            } else if verdict == EntryVerdict::HeldBecomesDelete
                || (verdict == EntryVerdict::Shadowed && !new_key)
            {
                held = Some(HeldSingleDelete {
                    is_delete: single.is_delete || verdict == EntryVerdict::HeldBecomesDelete,
                    ..single
                });
            } else {
                writer.write_entry(single.entry(), single.new_key)?;
                counts.written += 1;
            }
        }
        if !pending.is_empty()
            || matches!(
                verdict,
                EntryVerdict::Operand | EntryVerdict::MergeBase | EntryVerdict::NoMergeBase
            )
        {
            let state = (&job, &collapse, &mut writer, &mut counts);
            match resolve_operands(&mut pending, &entry, (verdict, new_key), state)? {
                Some(replaced) => verdict = replaced,
                None => {
                    source.step()?;
                    continue;
                }
            }
        }
        let decision = match &job.filter {
            Some(f)
                if verdict == EntryVerdict::Keep
                    && !pending.has_emitted()
                    && collapse.is_filterable(&entry) =>
            {
                f.decide(&entry, job.version)?
            }
            _ => FilterDecision::Keep,
        };
        if decision == FilterDecision::Drop && collapse.can_drop_tombstone(&entry) {
            counts.filtered += 1;
            source.step()?;
            continue;
        }
        entry.value = apply_decision(&decision, entry.value);
        match verdict {
            EntryVerdict::HoldSingleDelete => {
                held = Some(HeldSingleDelete {
                    key: entry.key.to_vec(),
                    seq: entry.seq,
                    new_key,
                    is_delete: false,
                });
            }
            EntryVerdict::CancelPair => counts.cancelled += 1,
            EntryVerdict::Covered => {
                counts.covered += 1;
                if let Some((end, seq)) = collapse.seek_past_tombstone() {
                    source.seek_past(end, seq)?;
                    continue;
                }
            }
            EntryVerdict::Shadowed | EntryVerdict::HeldBecomesDelete => counts.shadowed += 1,
            EntryVerdict::RolledBack => counts.rolled_back += 1,
            EntryVerdict::SpentTombstone => counts.obsolete_tombstones += 1,
            EntryVerdict::Expired => counts.expired += 1,
            EntryVerdict::Operand | EntryVerdict::MergeBase | EntryVerdict::NoMergeBase => {
                return Err(Error::internal("a rewrite left operands unresolved"));
            }
            EntryVerdict::Keep if bug::is_active(Bug::LoseLastEntry) && counts.read % 50 == 0 => {}
            EntryVerdict::Keep | EntryVerdict::ReplaceHeld | EntryVerdict::ConvertToTombstone => {
                if verdict == EntryVerdict::ConvertToTombstone {
                    entry.value = ValueRef::Tombstone;
                    counts.expired_to_tombstones += 1;
                }
                // Below operands that were written, the entry keeps its sequence number, which must
                // be smaller than theirs.
                let seq =
                    if pending.has_emitted() { entry.seq } else { collapse.output_seq(&entry) };
                writer.write_entry(EntryRef { seq, ..entry }, new_key)?;
                counts.written += 1;
            }
        }
        source.step()?;
    }
    if let Some(single) = held.take() {
        writer.write_entry(single.entry(), single.new_key)?;
        counts.written += 1;
    }
    emit_operands(&mut pending, end, &job, &collapse, &mut writer, &mut counts)?;
    let mut sink = writer.sink;
    sink.finish()?;
    // Finished outputs are neither discarded for a late cancellation nor delayed by pacing.
    job.pacer.record_final(quantum.take(sink.output_bytes()));
    check_counts(&counts, &sink)?;
    Ok(RewriteOutput {
        tables: std::mem::take(&mut sink.tables),
        vlogs: std::mem::take(&mut sink.vlogs),
        counts,
        write_calls: sink.write_calls,
    })
}

/// Handles an operand, or the entry below held operands. Returns the verdict to apply to the entry
/// now, or `None` if it is held or became part of another entry.
fn resolve_operands(
    pending: &mut PendingOperands,
    entry: &EntryRef<'_>,
    (verdict, new_key): (EntryVerdict, bool),
    (job, collapse, writer, counts): (
        &RewriteContext<'_>,
        &VersionCollapser<'_>,
        &mut RewriteWriter<'_, '_>,
        &mut RewriteCounts,
    ),
) -> Result<Option<EntryVerdict>> {
    if verdict == EntryVerdict::Operand && pending.is_duplicate(entry.seq) && !new_key {
        counts.shadowed += 1;
        return Ok(None);
    }
    if verdict == EntryVerdict::MergeBase && pending.is_duplicate(entry.seq) && pending.pop_last() {
        counts.shadowed += 1;
    }
    if verdict == EntryVerdict::Operand {
        let stripe = collapse.stripe_of(entry.seq);
        if !pending.is_in_stripe(stripe) && !bug::is_active(Bug::MergeAcrossSnapshot) {
            emit_operands(pending, OperandBase::Unknown, job, collapse, writer, counts)?;
        }
        pending.push(entry, stripe, new_key);
        if pending.should_join_early() {
            match pending.resolve(
                job.merge_operator.as_deref(),
                OperandBase::Unknown,
                job.version,
            )? {
                MergeOutcome::Operand(joined) => {
                    counts.merged += pending.len() as u64 - 1;
                    pending.replace_all(&joined);
                }
                _ => drop(emit_operands(
                    pending,
                    OperandBase::Unknown,
                    job,
                    collapse,
                    writer,
                    counts,
                )?),
            }
        }
        return Ok(None);
    }
    let below = match verdict {
        EntryVerdict::MergeBase => OperandBase::Value(entry.value),
        EntryVerdict::NoMergeBase
        | EntryVerdict::HoldSingleDelete
        | EntryVerdict::SpentTombstone
        | EntryVerdict::Expired
        | EntryVerdict::Covered => OperandBase::Absent,
        _ => OperandBase::Unknown,
    };
    let merged = emit_operands(pending, below, job, collapse, writer, counts)?;
    let can_drop = collapse.can_drop_tombstone(entry);
    Ok(match verdict {
        EntryVerdict::MergeBase | EntryVerdict::NoMergeBase if merged => {
            counts.merged += 1;
            None
        }
        EntryVerdict::MergeBase => Some(EntryVerdict::Keep),
        EntryVerdict::NoMergeBase if entry.value.is_tombstone() => {
            Some(if can_drop { EntryVerdict::SpentTombstone } else { EntryVerdict::Keep })
        }
        EntryVerdict::NoMergeBase => {
            Some(if can_drop { EntryVerdict::Expired } else { EntryVerdict::ConvertToTombstone })
        }
        other => Some(other),
    })
}

/// Writes the held operands, if there are any. Returns true if they were written as a value.
fn emit_operands(
    pending: &mut PendingOperands,
    below: OperandBase<'_>,
    job: &RewriteContext<'_>,
    collapse: &VersionCollapser<'_>,
    writer: &mut RewriteWriter<'_, '_>,
    counts: &mut RewriteCounts,
) -> Result<bool> {
    if pending.is_empty() {
        return Ok(false);
    }
    let (n, new_key) = (pending.len() as u64, pending.starts_key());
    let outcome = pending.resolve(job.merge_operator.as_deref(), below, job.version)?;
    let bytes = match &outcome {
        MergeOutcome::Value(bytes) | MergeOutcome::Operand(bytes) => bytes,
        MergeOutcome::Unmerged => {
            for (i, e) in pending.entries().enumerate() {
                writer.write_entry(e, new_key && i == 0)?;
            }
            counts.written += n;
            counts.unmerged += if n > 1 || !matches!(below, OperandBase::Unknown) { n } else { 0 };
            pending.clear(true);
            return Ok(false);
        }
    };
    let is_value = matches!(outcome, MergeOutcome::Value(_));
    let value = if is_value { ValueRef::Inline(bytes) } else { ValueRef::Operand(bytes) };
    let e = EntryRef { key: pending.key(), seq: pending.newest_seq(), value };
    let decision = match &job.filter {
        Some(f) if is_value && !pending.has_emitted() && collapse.is_filterable(&e) => {
            f.decide(&e, job.version)?
        }
        _ => FilterDecision::Keep,
    };
    counts.merged += n - 1;
    if decision == FilterDecision::Drop && collapse.can_drop_tombstone(&e) {
        counts.filtered += 1;
    } else {
        let e = EntryRef { value: apply_decision(&decision, e.value), ..e };
        // Below operands that were written, the entry keeps its sequence number, which must be
        // smaller than theirs.
        let seq = if pending.has_emitted() { e.seq } else { collapse.output_seq(&e) };
        writer.write_entry(EntryRef { seq, ..e }, new_key)?;
        counts.written += 1;
    }
    pending.clear(!is_value);
    Ok(is_value)
}

/// Returns the value after the filter's decision.
fn apply_decision<'a>(decision: &'a FilterDecision, value: ValueRef<'a>) -> ValueRef<'a> {
    match (decision, value.expiry()) {
        (FilterDecision::Keep, _) => value,
        (FilterDecision::Drop, _) => ValueRef::Tombstone,
        (FilterDecision::Change(v), None) => ValueRef::Inline(v),
        (FilterDecision::Change(v), Some(x)) => ValueRef::InlineExpiring(v, x),
    }
}

/// Writes entries that are already in order, each key once, without dropping any: only the output
/// part of the pipeline.
pub fn write_sorted<'e>(
    entries: impl Iterator<Item = EntryRef<'e>>,
    job: RewriteContext<'_>,
    created: &mut CreatedFiles,
) -> Result<RewriteOutput> {
    let separation =
        SeparationPolicy { threshold: job.separation_threshold, relocate_vlogs: BTreeSet::new() };
    let mut split = TableSplitter::new(job.options.comparator, job.target_bytes, job.cuts.clone());
    let sink = OutputWriter::new(
        job.table_cache,
        job.next_file_id,
        job.options.clone(),
        job.verify_outputs,
        created,
    );
    let mut sink = sink.with_deferred_sync(job.deferred_sync);
    let (mut counts, mut quantum) = (RewriteCounts::default(), Quantum::default());
    for entry in entries {
        if quantum.is_full() {
            job.pacer.throttle(quantum.take(sink.output_bytes()))?;
        }
        counts.read += 1;
        quantum.add(key_and_inline_bytes(&entry));
        let (table_bytes, index_bytes) = sink.pending_bytes();
        if let Some(at) = split.cut_before(entry.key, true, table_bytes, index_bytes) {
            sink.finish_table(at)?;
        }
        write_entry(job.version, &separation, &mut sink, entry)?;
        counts.written += 1;
    }
    sink.finish()?;
    check_counts(&counts, &sink)?;
    Ok(RewriteOutput {
        tables: std::mem::take(&mut sink.tables),
        vlogs: std::mem::take(&mut sink.vlogs),
        counts,
        write_calls: sink.write_calls,
    })
}

/// Bytes of the key and the inline value. A separated value either is not moved, or is counted when
/// it is written.
fn key_and_inline_bytes(e: &EntryRef<'_>) -> u64 {
    let value = e.value.inline_bytes().map_or(0, <[u8]>::len);
    (e.key.len() + value) as u64
}

/// Output part of the pipeline.
struct RewriteWriter<'x, 's> {
    version: &'x Version,
    separation: SeparationPolicy,
    split: TableSplitter,
    sink: OutputWriter<'s>,
    /// True to write every entry with sequence number 0.
    zero_seqs: bool,
}

impl RewriteWriter<'_, '_> {
    /// Writes an entry, after a cut if one is due; `new_key`: it is the first of its key.
    fn write_entry(&mut self, e: EntryRef<'_>, new_key: bool) -> Result<()> {
        let (table_bytes, index_bytes) = self.sink.pending_bytes();
        if let Some(at) = self.split.cut_before(e.key, new_key, table_bytes, index_bytes) {
            self.sink.finish_table(at)?;
        }
        let seq = if self.zero_seqs { SeqNo::ZERO } else { e.seq };
        write_entry(self.version, &self.separation, &mut self.sink, EntryRef { seq, ..e })
    }
}

fn write_entry(
    version: &Version,
    separation: &SeparationPolicy,
    sink: &mut OutputWriter<'_>,
    e: EntryRef<'_>,
) -> Result<()> {
    let value =
        match (separation.placement(&e.value), e.value.inline_bytes(), e.value.vlog_pointer()) {
            (ValuePlacement::Separate, Some(v), _) => e.value.with_pointer(sink.write_to_vlog(v)?),
            (ValuePlacement::Relocate, _, Some(p)) => {
                let v = get::fetch_value_with_cause(version, &p, IoActivity::Compaction)?;
                if v.len() < separation.threshold {
                    return sink.add_entry(EntryRef { value: e.value.with_bytes(&v), ..e });
                }
                e.value.with_pointer(sink.write_to_vlog(&v)?)
            }
            _ => e.value,
        };
    sink.add_entry(EntryRef { value, ..e })
}

/// Checks that every entry read was written, or dropped for a reason.
fn check_counts(c: &RewriteCounts, sink: &OutputWriter<'_>) -> Result<()> {
    let in_tables: u64 = sink.tables.iter().map(|t| t.summary.entries).sum();
    let dropped = c.shadowed
        + c.obsolete_tombstones
        + c.expired
        + c.covered
        + c.cancelled
        + c.filtered
        + c.merged
        + c.rolled_back;
    if (c.read != c.written + dropped || c.written != in_tables)
        && !bug::is_active(Bug::LoseLastEntry)
    {
        return Err(Error::internal(format!(
            "a rewrite lost entries: {c:?}, in tables: {in_tables}"
        )));
    }
    let ranges: u64 =
        sink.tables.iter().filter_map(|t| t.summary.ranges.as_ref()).map(|r| r.count).sum();
    if ranges != sink.ranges_expected() && !bug::is_active(Bug::RangeLostAtTableEnd) {
        let (c, expected) = (c.range_tombstones, sink.ranges_expected());
        return Err(Error::internal(format!(
            "a rewrite lost range tombstones: {c:?}, {ranges} of {expected}"
        )));
    }
    Ok(())
}

/// A single delete that is held until the next entry.
struct HeldSingleDelete {
    key: Vec<u8>,
    seq: SeqNo,
    new_key: bool,
    /// True once it is to be written as a delete.
    is_delete: bool,
}

impl HeldSingleDelete {
    fn entry(&self) -> EntryRef<'_> {
        let value = if self.is_delete { ValueRef::Tombstone } else { ValueRef::SingleDelete };
        EntryRef { key: &self.key, seq: self.seq, value }
    }
}
