//! The road itself: every entry of the source is kept or dropped for a reason, and they are
//! counted.

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
use perigee_base::{EntryRef, Error, ExpiryClock, FileId, OperandMerger, Result, SeqNo, ValueRef};
use perigee_file::{KlogOptions, RangeTombstones, TableCache};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// For whom a rewrite works, and into what: the same for flush and compaction.
#[derive(Clone)]
pub struct RewriteContext<'a> {
    /// The current version of the family; separated values of the source are read there.
    pub version: &'a Version,
    /// The readers to respect.
    pub stripes: SnapshotStripes,
    /// Format of the outputs.
    pub options: KlogOptions,
    /// Values of this length and up are separated.
    pub separation_threshold: usize,
    /// Bytes at which tables are cut.
    pub target_bytes: u64,
    /// Places, ascending, at which they are cut where they are large enough.
    pub cuts: Vec<KeyBoundary>,
    /// Read outputs again before they are believed.
    pub verify_outputs: bool,
    /// Opens and creates files.
    pub table_cache: &'a TableCache,
    /// Where file ids come from.
    pub next_file_id: &'a AtomicU64,
    /// Whether and how fast it may go on.
    pub pacer: &'a dyn RewritePacer,
    /// Asked if an entry expires.
    pub now: &'a dyn ExpiryClock,
    /// Merges operands; without it they stay what they are.
    pub merge_operator: Option<Arc<OperandMerger>>,
    /// The user's filter, for compactions.
    pub filter: Option<RewriteFilter<'a>>,
    /// The number for values that every reader sees and beneath which nothing lies, if they may
    /// have one.
    pub bottom_seq: Option<SeqNo>,
    /// Who syncs the outputs and reads them again, if not the rewrite.
    pub deferred_sync: Option<&'a DeferredSync>,
}

/// What a rewrite moves.
pub struct RewriteInput {
    /// Not positioned.
    pub source: MergeCursor,
    /// Below the output lies no older version of any key of the source.
    pub bottommost: bool,
    /// The range tombstones of all that is in the source.
    pub range_tombstones: RangeTombstones,
    /// Value logs whose values move to a new one.
    pub relocate_vlogs: BTreeSet<FileId>,
    /// Every entry is written under number 0: the table will get a stamp.
    pub zero_seqs: bool,
    /// Blocks in which nothing changes may be moved as they are stored.
    pub pass_through_blocks: bool,
    /// Numbers of entries that their transaction has taken back, ascending and apart.
    pub rolled_back: Arc<[Range<u64>]>,
}

/// What was made.
#[derive(Debug, Default)]
pub struct RewriteOutput {
    /// Tables in key order, synced.
    pub tables: Vec<TableMeta>,
    /// Value logs, synced.
    pub vlogs: Vec<VlogMeta>,
    /// Entry counts.
    pub counts: RewriteCounts,
    /// Write calls that the files took.
    pub write_calls: u64,
}

/// Entries in, out, and dropped by reason: `read = written + shadowed + tombstones + expired +
/// covered + cancelled + filtered + merged + taken back`. Range tombstones are counted apart, once
/// for each fragment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RewriteCounts {
    /// Entries of the source.
    pub read: u64,
    /// Entries written.
    pub written: u64,
    /// Dropped because a newer version hides them.
    pub shadowed: u64,
    /// Tombstones dropped because nothing is left to hide.
    pub obsolete_tombstones: u64,
    /// Expired entries dropped because nothing is left to hide.
    pub expired: u64,
    /// Dropped by the user's filter, with nothing left to hide.
    pub filtered: u64,
    /// Of those written: expired entries that became tombstones.
    pub expired_to_tombstones: u64,
    /// Of those written: entries of blocks that were moved as they were stored.
    pub passed_through: u64,
    /// Dropped because a range tombstone hides them. (Of many in a row most are not read at all,
    /// and not counted anywhere.)
    pub covered: u64,
    /// Single deletes and what they cancelled.
    pub cancelled: u64,
    /// Taken back by the transaction that wrote them.
    pub rolled_back: u64,
    /// Operands, and what lay below them, that became part of another entry.
    pub merged: u64,
    /// Of those written: operands that the merge operator could not join to what is known of what
    /// lies below.
    pub unmerged: u64,
    /// Range tombstones.
    pub range_tombstones: RangeTombstoneCounts,
}

/// Moves every entry of the source. Files are synced, the directory is not. After an error the
/// outputs are worthless and named in `created`.
pub fn run_rewrite(
    input: RewriteInput,
    job: RewriteContext<'_>,
    created: &mut CreatedFiles,
) -> Result<RewriteOutput> {
    let mut source = input.source;
    let place = SeparationPolicy {
        threshold: job.separation_threshold,
        relocate_vlogs: input.relocate_vlogs,
    };
    let unseen = input.pass_through_blocks
        && !input.zero_seqs
        && job.filter.is_none()
        && place.relocate_vlogs.is_empty();
    let mut whole = BlockPassThrough::new(unseen, place.threshold);
    let order = job.options.comparator;
    let split = TableSplitter::new(order, job.target_bytes, job.cuts.clone());
    let sink = OutputWriter::new(
        job.table_cache,
        job.next_file_id,
        job.options.clone(),
        job.verify_outputs,
        created,
    );
    let sink = sink.with_deferred_sync(job.deferred_sync);
    let mut exit = RewriteWriter {
        version: job.version,
        separation: place,
        split,
        sink,
        zero_seqs: input.zero_seqs,
    };
    let collapse = VersionCollapser::new(order, job.stripes.clone(), input.bottommost, job.now);
    let mut collapse = collapse
        .with_ranges(input.range_tombstones)
        .with_bottom_seq(job.bottom_seq)
        .without_rolled_back(input.rolled_back);
    let (mut counts, mut quantum) = (RewriteCounts::default(), Quantum::default());
    let (ranges, of_ranges) = collapse.output_ranges();
    counts.range_tombstones = of_ranges;
    let ranges = if input.zero_seqs { ranges.with_seq(SeqNo::ZERO) } else { ranges };
    exit.sink.set_range_tombstones(ranges.coalesce(order));
    let mut held: Option<HeldSingleDelete> = None;
    let mut chain = PendingOperands::default();
    // Below the last version of a key.
    let end = if input.bottommost { OperandBase::Absent } else { OperandBase::Unknown };
    // What a job before this one left to pay.
    job.pacer.throttle(quantum.take(exit.sink.written_and_memory_bytes()))?;
    source.seek_first()?;
    while source.valid() {
        if quantum.is_full() {
            match job.pacer.throttle(quantum.take(exit.sink.written_and_memory_bytes())) {
                Err(_) if bug::is_active(Bug::InstallCancelled) => break,
                go_on => go_on?,
            }
        }
        if !chain.is_empty() && !chain.is_for_key(order, source.key()) {
            emit_operands(&mut chain, end, &job, &collapse, &mut exit, &mut counts)?;
        }
        if held.is_none()
            && chain.is_empty()
            && let Some(s) =
                whole.pass_block(&mut source, (&mut collapse, &mut exit.split, &mut exit.sink))?
        {
            counts.passed_through += s.entries;
            counts.read += s.entries;
            counts.written += s.entries;
            quantum.add_all(s.entries, s.bytes);
            continue;
        }
        counts.read += 1;
        let another = source.key_changed();
        let mut entry = source.entry();
        quantum.add(key_and_inline_bytes(&entry));
        let (mut verdict, new_key) = collapse.classify(&entry, another);
        chain.begin_entry(new_key);
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
                exit.write_entry(single.entry(), single.new_key)?;
                counts.written += 1;
            }
        }
        if !chain.is_empty()
            || matches!(
                verdict,
                EntryVerdict::Operand | EntryVerdict::MergeBase | EntryVerdict::NoMergeBase
            )
        {
            let rest = (&job, &collapse, &mut exit, &mut counts);
            match resolve_operands(&mut chain, &entry, (verdict, new_key), rest)? {
                Some(then) => verdict = then,
                None => {
                    source.step()?;
                    continue;
                }
            }
        }
        let decided = match &job.filter {
            Some(f)
                if verdict == EntryVerdict::Keep
                    && !chain.has_emitted()
                    && collapse.is_filterable(&entry) =>
            {
                f.decide(&entry, job.version)?
            }
            _ => FilterDecision::Keep,
        };
        if decided == FilterDecision::Drop && collapse.can_drop_tombstone(&entry) {
            counts.filtered += 1;
            source.step()?;
            continue;
        }
        entry.value = apply_decision(&decided, entry.value);
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
                return Err(Error::internal("a rewrite has forgotten operands"));
            }
            EntryVerdict::Keep if bug::is_active(Bug::LoseLastEntry) && counts.read % 50 == 0 => {}
            EntryVerdict::Keep | EntryVerdict::ReplaceHeld | EntryVerdict::ConvertToTombstone => {
                if verdict == EntryVerdict::ConvertToTombstone {
                    entry.value = ValueRef::Tombstone;
                    counts.expired_to_tombstones += 1;
                }
                // Below operands that went on it keeps its number: that must be smaller than
                // theirs.
                let seq = if chain.has_emitted() { entry.seq } else { collapse.output_seq(&entry) };
                exit.write_entry(EntryRef { seq, ..entry }, new_key)?;
                counts.written += 1;
            }
        }
        source.step()?;
    }
    if let Some(single) = held.take() {
        exit.write_entry(single.entry(), single.new_key)?;
        counts.written += 1;
    }
    emit_operands(&mut chain, end, &job, &collapse, &mut exit, &mut counts)?;
    let mut sink = exit.sink;
    sink.finish()?;
    // What is finished is not thrown away because somebody cancels now, and nobody waits with it in
    // hand.
    job.pacer.record_final(quantum.take(sink.written_and_memory_bytes()));
    check_counts(&counts, &sink)?;
    Ok(RewriteOutput {
        tables: std::mem::take(&mut sink.tables),
        vlogs: std::mem::take(&mut sink.vlogs),
        counts,
        write_calls: sink.write_calls,
    })
}

/// An operand, or what comes below operands that wait. What it is to be treated as now; `None`: it
/// waits, or became a part of another entry.
fn resolve_operands(
    chain: &mut PendingOperands,
    entry: &EntryRef<'_>,
    (verdict, new_key): (EntryVerdict, bool),
    (job, collapse, exit, counts): (
        &RewriteContext<'_>,
        &VersionCollapser<'_>,
        &mut RewriteWriter<'_, '_>,
        &mut RewriteCounts,
    ),
) -> Result<Option<EntryVerdict>> {
    if verdict == EntryVerdict::Operand && chain.is_duplicate(entry.seq) && !new_key {
        counts.shadowed += 1;
        return Ok(None);
    }
    if verdict == EntryVerdict::MergeBase && chain.is_duplicate(entry.seq) && chain.pop_last() {
        counts.shadowed += 1;
    }
    if verdict == EntryVerdict::Operand {
        let stratum = collapse.stripe_of(entry.seq);
        if !chain.is_in_stripe(stratum) && !bug::is_active(Bug::FoldAcrossSnapshot) {
            emit_operands(chain, OperandBase::Unknown, job, collapse, exit, counts)?;
        }
        chain.push(entry, stratum, new_key);
        if chain.should_join_early() {
            match chain.resolve(job.merge_operator.as_deref(), OperandBase::Unknown, job.version)? {
                MergeOutcome::Operand(joined) => {
                    counts.merged += chain.len() as u64 - 1;
                    chain.replace_all(&joined);
                }
                _ => drop(emit_operands(chain, OperandBase::Unknown, job, collapse, exit, counts)?),
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
    let merged = emit_operands(chain, below, job, collapse, exit, counts)?;
    let spent = collapse.can_drop_tombstone(entry);
    Ok(match verdict {
        EntryVerdict::MergeBase | EntryVerdict::NoMergeBase if merged => {
            counts.merged += 1;
            None
        }
        EntryVerdict::MergeBase => Some(EntryVerdict::Keep),
        EntryVerdict::NoMergeBase if entry.value.is_tombstone() => {
            Some(if spent { EntryVerdict::SpentTombstone } else { EntryVerdict::Keep })
        }
        EntryVerdict::NoMergeBase => {
            Some(if spent { EntryVerdict::Expired } else { EntryVerdict::ConvertToTombstone })
        }
        other => Some(other),
    })
}

/// The operands that wait go on, if there are any; whether as a value.
fn emit_operands(
    chain: &mut PendingOperands,
    below: OperandBase<'_>,
    job: &RewriteContext<'_>,
    collapse: &VersionCollapser<'_>,
    exit: &mut RewriteWriter<'_, '_>,
    counts: &mut RewriteCounts,
) -> Result<bool> {
    if chain.is_empty() {
        return Ok(false);
    }
    let (n, new_key) = (chain.len() as u64, chain.starts_key());
    let outcome = chain.resolve(job.merge_operator.as_deref(), below, job.version)?;
    let bytes = match &outcome {
        MergeOutcome::Value(bytes) | MergeOutcome::Operand(bytes) => bytes,
        MergeOutcome::Unmerged => {
            for (i, e) in chain.entries().enumerate() {
                exit.write_entry(e, new_key && i == 0)?;
            }
            counts.written += n;
            counts.unmerged += if n > 1 || !matches!(below, OperandBase::Unknown) { n } else { 0 };
            chain.clear(true);
            return Ok(false);
        }
    };
    let is_value = matches!(outcome, MergeOutcome::Value(_));
    let value = if is_value { ValueRef::Inline(bytes) } else { ValueRef::Operand(bytes) };
    let e = EntryRef { key: chain.key(), seq: chain.newest_seq(), value };
    let decided = match &job.filter {
        Some(f) if is_value && !chain.has_emitted() && collapse.is_filterable(&e) => {
            f.decide(&e, job.version)?
        }
        _ => FilterDecision::Keep,
    };
    counts.merged += n - 1;
    if decided == FilterDecision::Drop && collapse.can_drop_tombstone(&e) {
        counts.filtered += 1;
    } else {
        let e = EntryRef { value: apply_decision(&decided, e.value), ..e };
        // Below operands that went on it keeps its number: that must be smaller than theirs.
        let seq = if chain.has_emitted() { e.seq } else { collapse.output_seq(&e) };
        exit.write_entry(EntryRef { seq, ..e }, new_key)?;
        counts.written += 1;
    }
    chain.clear(!is_value);
    Ok(is_value)
}

/// The value after the filter's decision.
fn apply_decision<'a>(decided: &'a FilterDecision, value: ValueRef<'a>) -> ValueRef<'a> {
    match (decided, value.expiry()) {
        (FilterDecision::Keep, _) => value,
        (FilterDecision::Drop, _) => ValueRef::Tombstone,
        (FilterDecision::Change(v), None) => ValueRef::Inline(v),
        (FilterDecision::Change(v), Some(x)) => ValueRef::InlineExpiring(v, x),
    }
}

/// The end of the road alone, for entries that are in order already, each key once: nothing is
/// dropped.
pub fn write_sorted<'e>(
    entries: impl Iterator<Item = EntryRef<'e>>,
    job: RewriteContext<'_>,
    created: &mut CreatedFiles,
) -> Result<RewriteOutput> {
    let place =
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
            job.pacer.throttle(quantum.take(sink.written_and_memory_bytes()))?;
        }
        counts.read += 1;
        quantum.add(key_and_inline_bytes(&entry));
        let (table_bytes, index_bytes) = sink.pending_bytes();
        if let Some(at) = split.cut_before(entry.key, true, table_bytes, index_bytes) {
            sink.finish_table(at)?;
        }
        write_entry(job.version, &place, &mut sink, entry)?;
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

/// Bytes that an entry brings along; a separated value stays where it is, or is counted where it is
/// written.
fn key_and_inline_bytes(e: &EntryRef<'_>) -> u64 {
    let value = e.value.inline_bytes().map_or(0, <[u8]>::len);
    (e.key.len() + value) as u64
}

/// Where entries leave the road.
struct RewriteWriter<'x, 's> {
    version: &'x Version,
    separation: SeparationPolicy,
    split: TableSplitter,
    sink: OutputWriter<'s>,
    /// Every entry goes under number 0.
    zero_seqs: bool,
}

impl RewriteWriter<'_, '_> {
    /// Writes an entry, behind a cut if one is due; `new_key`: it begins a key.
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
    place: &SeparationPolicy,
    sink: &mut OutputWriter<'_>,
    e: EntryRef<'_>,
) -> Result<()> {
    let value = match (place.placement(&e.value), e.value.inline_bytes(), e.value.vlog_pointer()) {
        (ValuePlacement::Separate, Some(v), _) => e.value.with_pointer(sink.write_to_vlog(v)?),
        (ValuePlacement::Relocate, _, Some(p)) => {
            let v = get::fetch_value_with_cause(version, &p, IoActivity::Compaction)?;
            if v.len() < place.threshold {
                return sink.add_entry(EntryRef { value: e.value.with_bytes(&v), ..e });
            }
            e.value.with_pointer(sink.write_to_vlog(&v)?)
        }
        _ => e.value,
    };
    sink.add_entry(EntryRef { value, ..e })
}

/// What went in came out, or was dropped for a reason.
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
    if ranges != sink.ranges_expected() && !bug::is_active(Bug::RangeLostAtCut) {
        let (c, expected) = (c.range_tombstones, sink.ranges_expected());
        return Err(Error::internal(format!(
            "a rewrite lost range tombstones: {c:?}, {ranges} of {expected}"
        )));
    }
    Ok(())
}

/// A single delete that waits for its put.
struct HeldSingleDelete {
    key: Vec<u8>,
    seq: SeqNo,
    new_key: bool,
    /// It became a delete.
    is_delete: bool,
}

impl HeldSingleDelete {
    fn entry(&self) -> EntryRef<'_> {
        let value = if self.is_delete { ValueRef::Tombstone } else { ValueRef::SingleDelete };
        EntryRef { key: &self.key, seq: self.seq, value }
    }
}
