//! The compaction iterator: merges the sources, groups their entries by key and snapshot stripe,
//! and returns what [`reduce`] leaves of them, in entry order.
//!
//! The versions of a key are read newest first, one at a time, so memory does not depend on how
//! many there are. At most one single delete, or the operands of one stripe, are held back until
//! the next version is known. An entry is borrowed from its source and valid until the next call.
//!
//! All decisions are made by [`reduce`](super::reduce). This module determines what it needs to
//! know of a version, calls the user's merge operator and compaction filter, and counts.

use super::block_pass_through::{BlockPassThrough, StoredBlock};
use super::context::{RewriteContext, RewriteInput};
use super::counts::{DropReason, RewriteCounts};
use super::filter::RewriteFilter;
use super::pacer::{OutputBytes, Quantum, RewriteProgress, key_and_inline_bytes};
use super::pending_operands::{MergeOutcome, PendingOperands};
use super::range_tombstone_cursor::RangeTombstoneCursor;
use super::reduce::{
    FilteredOutput, KeyVersion, NewerEffect, NewerVersions, OperandBase, ReduceContext, Reduced,
    ReducedOutput, UndecidedVersions, VersionKind, apply_filter, may_filter, reduce,
    reduce_range_tombstones,
};
use super::sink::CompactionEntry;
use super::version_classifier::VersionClassifier;
use crate::scan::MergeCursor;
use crate::version::Version;
use perigee_base::bug::{self, Bug};
use perigee_base::{Bytes, EntryRef, KeyComparator, OperandMerger, Result, SeqNo, ValueRef};
use perigee_file::RangeTombstones;
use std::sync::Arc;

/// What the iterator returns.
#[derive(Debug)]
pub enum CompactionItem<'a> {
    /// The next entry to write.
    Entry(CompactionEntry<'a>),
    /// The next entries, as a block that may be copied. Unless
    /// [`CompactionIterator::skip_block`] is called, they follow one by one.
    Block(StoredBlock<'a>),
    /// A quantum of work is done: the caller takes the progress and calls the pacer.
    QuantumEnd,
}

/// The item that `next` returns, or has returned, without its bytes.
#[derive(Clone, Copy, Debug)]
enum PlannedItem {
    /// Nothing that has to be released.
    Nothing,
    /// The end of the sources.
    End,
    QuantumEnd,
    Block,
    /// The current version of the source.
    Version {
        seq: SeqNo,
        value: OutputValue,
        first_of_key: bool,
    },
    /// The single delete that was undecided.
    SingleDelete,
    /// The entry that operands were merged into; its bytes are in `new_value`.
    Merged {
        seq: SeqNo,
        kind: MergedKind,
    },
    /// The operand with this index, unchanged.
    Operand(usize),
}

/// Value of an entry that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OutputValue {
    /// That of the source.
    Unchanged,
    /// The bytes in `new_value`, with the expiry of the source's value.
    Changed,
    Tombstone,
}

/// Kind of an entry that operands were merged into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MergedKind {
    Value,
    Operand,
    Tombstone,
}

/// An undecided single delete.
#[derive(Clone, Copy, Debug)]
struct HeldSingleDelete {
    seq: SeqNo,
    first_of_key: bool,
    /// True once it is to be written as a delete.
    is_delete: bool,
}

/// Reads the entries of a rewrite.
pub struct CompactionIterator<'a> {
    source: MergeCursor,
    comparator: KeyComparator,
    context: ReduceContext,
    classifier: VersionClassifier<'a>,
    /// Range tombstones to write.
    output_ranges: RangeTombstones,
    pass_through: BlockPassThrough,
    /// Version from which separated values are read.
    version: &'a Version,
    merger: Option<Arc<OperandMerger>>,
    filter: Option<RewriteFilter<'a>>,

    /// Current key, in the bytes of the undecided versions or of the last version written.
    key: Vec<u8>,
    /// False before the first entry.
    has_key: bool,
    newer: NewerVersions,
    single_delete: HeldSingleDelete,
    operands: PendingOperands,
    /// True if operands of the current key were written: what lies below is not what readers see.
    operands_written: bool,
    /// True if the current entry of the source was counted.
    is_counted: bool,

    item: PlannedItem,
    new_value: Vec<u8>,
    counts: RewriteCounts,
    quantum: Quantum,
}

impl<'a> CompactionIterator<'a> {
    /// Creates an iterator, not positioned.
    pub fn new(input: RewriteInput, job: &RewriteContext<'a>) -> CompactionIterator<'a> {
        let comparator = match job.options.comparator {
            _ if bug::is_active(Bug::CollapseByBytes) => KeyComparator::Bytes,
            comparator => comparator,
        };
        let bottommost = input.bottommost || bug::is_active(Bug::DropTombstoneEarly);
        let context =
            ReduceContext { bottommost, bottom_seq: job.bottom_seq.filter(|_| bottommost) };
        let ranges = match input.rolled_back.is_empty() {
            true => input.range_tombstones,
            false => input.range_tombstones.without_seqs(&input.rolled_back),
        };
        let range_context = ReduceContext {
            bottommost: bottommost || bug::is_active(Bug::DropRangeTombstoneEarly),
            ..context
        };
        let (kept, range_counts) = reduce_range_tombstones(&ranges, &job.stripes, &range_context);
        let kept = if input.zero_seqs { kept.with_seq(SeqNo::ZERO) } else { kept };
        let can_pass_through =
            input.pass_through_blocks && job.filter.is_none() && input.rolled_back.is_empty();
        CompactionIterator {
            source: input.source,
            comparator,
            context,
            classifier: VersionClassifier::new(
                job.stripes.clone(),
                RangeTombstoneCursor::new(job.options.comparator, ranges),
                input.rolled_back,
                job.now,
            ),
            output_ranges: kept.coalesce(job.options.comparator),
            pass_through: BlockPassThrough::new(can_pass_through, context.bottom_seq.is_none()),
            version: job.version,
            merger: job.merge_operator.clone(),
            filter: job.filter,
            key: Vec::new(),
            has_key: false,
            newer: NewerVersions::NONE,
            single_delete: HeldSingleDelete {
                seq: SeqNo::ZERO,
                first_of_key: false,
                is_delete: false,
            },
            operands: PendingOperands::default(),
            operands_written: false,
            is_counted: false,
            item: PlannedItem::Nothing,
            new_value: Vec::new(),
            counts: RewriteCounts { range_tombstones: range_counts, ..RewriteCounts::default() },
            quantum: Quantum::default(),
        }
    }
    /// Returns the range tombstones to write.
    pub fn range_tombstones(&self) -> &RangeTombstones {
        &self.output_ranges
    }
    /// Returns the counts so far, except of entries written.
    pub fn counts(&self) -> RewriteCounts {
        self.counts
    }
    /// Returns the progress since the last call, and starts a quantum.
    pub fn take_progress(&mut self, outputs: OutputBytes) -> RewriteProgress {
        self.quantum.take(outputs)
    }
    /// Moves to the first entry.
    pub fn seek_first(&mut self) -> Result<()> {
        self.source.seek_first()
    }

    /// Returns the next entry or block to write, `None` at the end.
    #[inline]
    pub fn next(&mut self) -> Result<Option<CompactionItem<'_>>> {
        match self.item {
            PlannedItem::Version { .. } => self.step_source()?,
            PlannedItem::Operand(i) if i + 1 < self.operands.len() => {
                self.item = PlannedItem::Operand(i + 1);
                return Ok(self.planned_item());
            }
            PlannedItem::Operand(_) | PlannedItem::Merged { .. } => self.operands.clear(),
            PlannedItem::Block => self.count_entry(),
            _ => {}
        }
        self.item = loop {
            match self.advance()? {
                PlannedItem::Nothing => {}
                item => break item,
            }
        };
        Ok(self.planned_item())
    }

    /// Moves past the block that the last call of `next` returned.
    pub fn skip_block(&mut self) -> Result<()> {
        check!(
            matches!(self.item, PlannedItem::Block),
            "only a block that was returned is skipped",
            self.item
        );
        if let Some(StoredBlock { block, .. }) = self.pass_through.found_block(&self.source) {
            let entries = block.len() as u64;
            let stripe = self.classifier.stripes().stripe_of(block.seq(block.len() - 1));
            self.counts.read += entries;
            self.counts.passed_through += entries;
            self.quantum.add_all(entries, Bytes((block.key_bytes() + block.value_bytes()) as u64));
            self.begin_key(NewerVersions {
                stripe,
                effect: NewerEffect::Value,
                ..NewerVersions::NONE
            });
            self.key.clear();
            self.key.extend_from_slice(self.pass_through.last_key());
        }
        self.item = PlannedItem::Nothing;
        self.source.skip_block()
    }

    /// Returns the planned item, with its bytes.
    #[inline]
    fn planned_item(&mut self) -> Option<CompactionItem<'_>> {
        let (seq, value, first_of_key) = match self.item {
            PlannedItem::Nothing | PlannedItem::End => return None,
            PlannedItem::QuantumEnd => return Some(CompactionItem::QuantumEnd),
            PlannedItem::Block => {
                return self.pass_through.found_block(&self.source).map(CompactionItem::Block);
            }
            PlannedItem::Version { seq, value, first_of_key } => {
                let own = self.source.value();
                self.quantum.add(key_and_inline_bytes(self.key.len(), &own));
                let value = match value {
                    OutputValue::Unchanged => own,
                    OutputValue::Changed => ValueRef::inline(&self.new_value, own.expiry()),
                    OutputValue::Tombstone => ValueRef::Tombstone,
                };
                (seq, value, first_of_key)
            }
            PlannedItem::SingleDelete => {
                let HeldSingleDelete { seq, first_of_key, is_delete } = self.single_delete;
                let value = if is_delete { ValueRef::Tombstone } else { ValueRef::SingleDelete };
                (seq, value, first_of_key)
            }
            PlannedItem::Merged { seq, kind } => {
                let value = match kind {
                    MergedKind::Value => ValueRef::Inline(&self.new_value),
                    MergedKind::Operand => ValueRef::Operand(&self.new_value),
                    MergedKind::Tombstone => ValueRef::Tombstone,
                };
                (seq, value, self.operands.starts_key())
            }
            PlannedItem::Operand(i) => {
                let operand = self.operands.entry(i, &self.key);
                (operand.seq, operand.value, i == 0 && self.operands.starts_key())
            }
        };
        let entry = EntryRef { key: &self.key, seq, value };
        Some(CompactionItem::Entry(CompactionEntry { entry, first_of_key }))
    }

    /// Decides on the current entry of the source, or on undecided versions that it ends. Returns
    /// what is to be written because of it.
    #[inline]
    fn advance(&mut self) -> Result<PlannedItem> {
        if !self.source.valid() {
            return self.end_key(PlannedItem::End);
        }
        if !self.is_counted && self.quantum.is_full() {
            return Ok(PlannedItem::QuantumEnd);
        }
        let is_same_key = self.has_key
            && !self.source.key_changed()
            && self.source.key().equals(self.comparator, &self.key);
        if !is_same_key && self.newer.undecided == UndecidedVersions::Operands {
            return self.end_key(PlannedItem::Nothing);
        }
        if !self.is_counted {
            if self.newer.undecided == UndecidedVersions::None && self.finds_block() {
                return Ok(PlannedItem::Block);
            }
            self.count_entry();
        }
        let seq = self.source.seq();
        let is_rolled_back = self.classifier.is_rolled_back(seq);
        if !is_same_key && !is_rolled_back {
            if self.newer.undecided == UndecidedVersions::SingleDelete {
                return self.end_key(PlannedItem::Nothing);
            }
            self.begin_key(NewerVersions::NONE);
            self.source.key().copy_to(&mut self.key);
        }
        let mut version = self.classifier.classify(&self.source, &self.key);
        (version.is_copy, version.is_rolled_back) = (self.operands.is_copy(seq), is_rolled_back);
        if bug::is_active(Bug::MergeAcrossSnapshot)
            && version.kind == VersionKind::Operand
            && self.newer.undecided == UndecidedVersions::Operands
        {
            version.stripe = self.newer.stripe;
        }
        let mut reduced = reduce(&self.newer, &version, &self.context);
        if bug::is_active(Bug::LoseLastEntry)
            && reduced.output == ReducedOutput::Version
            && self.counts.read % 50 == 0
        {
            reduced.output = ReducedOutput::Nothing;
            reduced.dropped.version = Some(DropReason::Shadowed);
        }
        if bug::is_active(Bug::SingleDeleteLost)
            && version.kind == VersionKind::SingleDelete
            && reduced.output == ReducedOutput::Undecided
        {
            reduced.output = ReducedOutput::Nothing;
            reduced.dropped.version = Some(DropReason::ObsoleteTombstone);
            reduced.effect = NewerEffect::Tombstone;
        }
        self.apply(reduced, &version, !is_same_key)
    }

    /// Starts a key; `newer`: what precedes its next version.
    #[inline]
    fn begin_key(&mut self, newer: NewerVersions) {
        check_slow!(
            self.newer.undecided == UndecidedVersions::None,
            "a key begins when all versions of the last one are decided",
            self.newer
        );
        self.newer = newer;
        (self.has_key, self.operands_written) = (true, false);
        self.operands.begin_key();
    }

    /// Returns the undecided versions of the current key, at its end, or else `otherwise`.
    fn end_key(&mut self, otherwise: PlannedItem) -> Result<PlannedItem> {
        match self.newer.undecided {
            UndecidedVersions::None => Ok(otherwise),
            _ => self.output_undecided(self.context.base_below_inputs()),
        }
    }

    /// Counts the current entry of the source.
    #[inline]
    fn count_entry(&mut self) {
        self.is_counted = true;
        self.counts.read += 1;
    }

    /// Moves to the next entry of the source.
    #[inline]
    fn step_source(&mut self) -> Result<()> {
        self.is_counted = false;
        self.source.step()
    }

    #[inline]
    fn finds_block(&mut self) -> bool {
        let previous_key = self.has_key.then_some(&*self.key);
        self.pass_through.find_block(
            &self.source,
            self.comparator,
            previous_key,
            self.classifier.range_tombstones(),
        )
    }

    /// Carries out what the rules decided on the current entry.
    #[inline]
    fn apply(
        &mut self,
        reduced: Reduced,
        version: &KeyVersion,
        first_of_key: bool,
    ) -> Result<PlannedItem> {
        if let Some(reason) = reduced.dropped.undecided {
            self.drop_undecided(reason);
        }
        if let ReducedOutput::NewerVersions(base) = reduced.output {
            return self.output_undecided(base);
        }
        if !version.is_rolled_back {
            (self.newer.stripe, self.newer.effect) = (version.stripe, reduced.effect);
        }
        match reduced.output {
            ReducedOutput::Version => self.output_version(version, first_of_key),
            ReducedOutput::Tombstone => {
                self.counts.expired_to_tombstones += 1;
                self.set_key_bytes(first_of_key);
                let seq = self.source.seq();
                Ok(PlannedItem::Version { seq, value: OutputValue::Tombstone, first_of_key })
            }
            ReducedOutput::Undecided => self.hold_version(version.kind, first_of_key),
            ReducedOutput::UndecidedAsDelete => {
                self.single_delete.is_delete = true;
                self.drop_version(reduced.dropped.version)
            }
            ReducedOutput::Nothing | ReducedOutput::NewerVersions(_) => {
                self.drop_version(reduced.dropped.version)
            }
        }
    }

    /// Replaces the bytes of the current key with those of the current entry: keys may be equal
    /// under the comparator and differ in bytes.
    #[inline]
    fn set_key_bytes(&mut self, first_of_key: bool) {
        if !first_of_key {
            self.source.key().copy_to(&mut self.key);
        }
    }

    /// Returns the current entry, or what the filter makes of it.
    #[inline]
    fn output_version(&mut self, version: &KeyVersion, first_of_key: bool) -> Result<PlannedItem> {
        self.set_key_bytes(first_of_key);
        let mut seq = self.source.seq();
        let mut value = OutputValue::Unchanged;
        if self.filter.is_some() {
            let entry = EntryRef { key: &self.key, seq, value: self.source.value() };
            match self.filter_value(&entry, version.kind, version.stripe)? {
                FilteredOutput::Unchanged => {}
                FilteredOutput::Changed(bytes) => {
                    (self.new_value, value) = (bytes, OutputValue::Changed);
                }
                FilteredOutput::Tombstone => value = OutputValue::Tombstone,
                FilteredOutput::Dropped(reason) => return self.drop_version(Some(reason)),
            }
        }
        if version.kind.is_live_value() && value != OutputValue::Tombstone {
            seq = self.context.output_seq(seq, version.stripe, self.operands_written);
        }
        Ok(PlannedItem::Version { seq, value, first_of_key })
    }

    /// Calls the compaction filter, if it may decide on this entry.
    fn filter_value(
        &self,
        entry: &EntryRef<'_>,
        kind: VersionKind,
        stripe: usize,
    ) -> Result<FilteredOutput> {
        let is_above_snapshots = self.classifier.stripes().is_above_snapshots(entry.seq)
            || bug::is_active(Bug::FilterUnderSnapshot);
        match &self.filter {
            Some(filter) if may_filter(kind, is_above_snapshots, self.operands_written) => {
                let decision = filter.decide(entry, self.version)?;
                Ok(apply_filter(decision, stripe, &self.context))
            }
            _ => Ok(FilteredOutput::Unchanged),
        }
    }

    /// Drops the current entry.
    fn drop_version(&mut self, reason: Option<DropReason>) -> Result<PlannedItem> {
        self.add_to_quantum();
        if let Some(reason) = reason {
            self.counts.add_dropped(reason, 1);
        }
        if reason == Some(DropReason::Covered)
            && let Some((end, seq)) = self.classifier.count_covered()
        {
            self.is_counted = false;
            self.source.seek_past(end, seq)?;
        } else {
            self.step_source()?;
        }
        Ok(PlannedItem::Nothing)
    }

    fn add_to_quantum(&mut self) {
        let key = self.source.key();
        let key_bytes = key.prefix.len() + key.suffix.len();
        self.quantum.add(key_and_inline_bytes(key_bytes, &self.source.value()));
    }

    /// Holds the current entry until the next older version is known.
    fn hold_version(&mut self, kind: VersionKind, first_of_key: bool) -> Result<PlannedItem> {
        self.add_to_quantum();
        let seq = self.source.seq();
        if kind == VersionKind::SingleDelete {
            check_slow!(
                self.newer.undecided == UndecidedVersions::None,
                "at most one single delete is undecided, and no operand besides it",
                self.newer
            );
            self.set_key_bytes(first_of_key);
            self.newer.undecided = UndecidedVersions::SingleDelete;
            self.single_delete = HeldSingleDelete { seq, first_of_key, is_delete: false };
            self.step_source()?;
            return Ok(PlannedItem::Nothing);
        }
        if self.operands.is_empty() {
            self.set_key_bytes(first_of_key);
        }
        self.newer.undecided = UndecidedVersions::Operands;
        self.operands.push(seq, self.source.value(), first_of_key);
        self.step_source()?;
        if self.operands.should_join_early() {
            self.join_operands()
        } else {
            Ok(PlannedItem::Nothing)
        }
    }

    /// Joins the undecided operands into one, which stays undecided. Returns them unchanged if that
    /// is not possible.
    fn join_operands(&mut self) -> Result<PlannedItem> {
        let (merger, base) = (self.merger.as_deref(), OperandBase::Unknown);
        let outcome = self.operands.merge(&self.key, merger, base, None, self.version)?;
        let MergeOutcome::Operand(joined) = outcome else { return self.output_undecided(base) };
        self.counts.add_dropped(DropReason::Merged, self.operands.len() as u64 - 1);
        self.operands.replace_all(&joined);
        Ok(PlannedItem::Nothing)
    }

    /// Drops the undecided version that was read last.
    fn drop_undecided(&mut self, reason: DropReason) {
        let was_held = match self.newer.undecided {
            UndecidedVersions::None => false,
            UndecidedVersions::SingleDelete => {
                self.newer.undecided = UndecidedVersions::None;
                true
            }
            UndecidedVersions::Operands => self.operands.remove_copy(self.source.seq()),
        };
        self.counts.add_dropped(reason, u64::from(was_held));
    }

    /// Returns the undecided versions: a single delete, or operands merged onto their base.
    fn output_undecided(&mut self, base: OperandBase) -> Result<PlannedItem> {
        let undecided = std::mem::replace(&mut self.newer.undecided, UndecidedVersions::None);
        if undecided == UndecidedVersions::SingleDelete {
            return Ok(PlannedItem::SingleDelete);
        }
        self.newer.effect = NewerEffect::None;
        if self.operands.is_empty() {
            return Ok(PlannedItem::Nothing);
        }
        let base_value = (base == OperandBase::Version).then(|| self.source.value());
        let merger = self.merger.as_deref();
        let outcome = self.operands.merge(&self.key, merger, base, base_value, self.version)?;
        let operands = self.operands.len() as u64;
        if !matches!(outcome, MergeOutcome::Unmerged) {
            self.counts.add_dropped(DropReason::Merged, operands - 1);
        }
        match outcome {
            MergeOutcome::Value(value) => {
                self.newer.effect = NewerEffect::MergedOperands;
                self.new_value = value;
                self.output_merged_value()
            }
            MergeOutcome::Operand(operand) => {
                (self.new_value, self.operands_written) = (operand, true);
                let seq = self.operands.newest_seq();
                Ok(PlannedItem::Merged { seq, kind: MergedKind::Operand })
            }
            MergeOutcome::Unmerged => {
                let was_possible = operands > 1 || base != OperandBase::Unknown;
                self.counts.unmerged += if was_possible { operands } else { 0 };
                self.operands_written = true;
                Ok(PlannedItem::Operand(0))
            }
        }
    }

    /// Returns the value that operands were merged into, or what the filter makes of it.
    fn output_merged_value(&mut self) -> Result<PlannedItem> {
        check_slow!(!self.operands.is_empty(), "a merged value replaces operands", self.key);
        let (seq, stripe) = (self.operands.newest_seq(), self.newer.stripe);
        if self.filter.is_some() {
            let entry = EntryRef { key: &self.key, seq, value: ValueRef::Inline(&self.new_value) };
            match self.filter_value(&entry, VersionKind::Value, stripe)? {
                FilteredOutput::Unchanged => {}
                FilteredOutput::Changed(bytes) => self.new_value = bytes,
                FilteredOutput::Tombstone => {
                    return Ok(PlannedItem::Merged { seq, kind: MergedKind::Tombstone });
                }
                FilteredOutput::Dropped(reason) => {
                    self.counts.add_dropped(reason, 1);
                    self.operands.clear();
                    return Ok(PlannedItem::Nothing);
                }
            }
        }
        let seq = self.context.output_seq(seq, stripe, self.operands_written);
        Ok(PlannedItem::Merged { seq, kind: MergedKind::Value })
    }
}
