//! Merges many sources into one, in entry order. A change of direction requires a new seek, which
//! [`super::visible`] does: this cursor only moves in the direction of its last seek.
//!
//! The prefix of each source's key is kept as a number, which decides most comparisons
//! ([`KeyRef::key_prefix`]); keys are compared only if prefixes are equal. The runner-up is kept
//! too: as long as the current source stays before it, no other source is examined. Selection is
//! linear: there are few sources, and comparing prefixes is cheap.

use super::cursor::{RunCursor, SourceCursor};
use super::interleaving::Interleaving;
use crate::View;
use crate::limits::{INTERLEAVING_RETRY_LOG2_MAX, PREFIX_SLACK_BYTES, STEPS_IN_SOURCE_MIN};
use crate::txn_overlay::TxnOverlay;
use crate::version::Run;
use perigee_base::{
    EntryKind, EntryRef, Error, KeyBoundaryRef, KeyComparator, KeyRef, Result, SeqNo, ValueRef,
};
use perigee_file::{EntryMeta, EntryValue, KlogCursor, TableBlock};
use std::cmp::Ordering::{Greater, Less};
use std::sync::Arc;

/// Fewer turns than this do not pay for computing them.
const FEW_TURNS: usize = 4;
const _: () = assert!(
    STEPS_IN_SOURCE_MIN.1 < STEPS_IN_SOURCE_MIN.0 && INTERLEAVING_RETRY_LOG2_MAX < u32::BITS
);

/// Position of a source as used for selection; the key prefix is inverted when going backward.
#[derive(Clone, Copy, Debug)]
struct SourcePosition {
    meta: EntryMeta,
    valid: bool,
}

const NO_POSITION: EntryMeta =
    EntryMeta { key_prefix: 0, seq: SeqNo::ZERO, kind: EntryKind::Delete };

/// The merged position. After an error it is not valid until the next seek.
///
/// Invariants while valid: 1. no source is before `current`, and none except it is before `second`
/// (`None`: no other source is valid); suspended after `step_visible` until `refresh_positions`; 2.
/// `positions` holds the positions of the sources, with key prefixes taken after `shared_prefix`;
/// except for sources moved by `step_visible`.
#[derive(Debug)]
pub struct MergeCursor {
    comparator: KeyComparator,
    sources: Vec<SourceCursor>,
    /// Numbers of memtables and runs that belong to the transaction itself, each of which come
    /// first, and of all memtables.
    overlay_memtables: usize,
    overlay_runs: usize,
    memtables: usize,
    positions: Vec<SourcePosition>,
    shared_prefix: Vec<u8>,
    current: Option<usize>,
    second: Option<usize>,
    forward: bool,
    /// Source that the last step moved.
    last_moved: usize,
    /// True if key prefixes prove that the last step led to another key.
    is_on_other_key: bool,
    /// Steps since the current source changed, and a moving average of that number.
    steps_in_source: u32,
    usual_steps: u32,
    /// True if sources were moved without updating `positions`.
    positions_stale: bool,
    /// Turns ahead, as far as they were computed.
    interleaving: Interleaving,
    /// Consecutive attempts that found few turns, and steps until the next attempt.
    failed_attempts: u32,
    steps_until_retry: u32,
    /// Buffer for a contiguous key.
    key: Vec<u8>,
}

impl MergeCursor {
    /// Creates a cursor over these sources.
    pub fn new(comparator: KeyComparator, sources: Vec<SourceCursor>) -> MergeCursor {
        MergeCursor {
            comparator,
            positions: vec![SourcePosition { meta: NO_POSITION, valid: false }; sources.len()],
            sources,
            overlay_memtables: 0,
            overlay_runs: 0,
            memtables: 0,
            shared_prefix: Vec::new(),
            current: None,
            second: None,
            forward: true,
            last_moved: 0,
            is_on_other_key: false,
            steps_in_source: 0,
            usual_steps: 0,
            positions_stale: false,
            interleaving: Interleaving::new(),
            failed_attempts: 0,
            steps_until_retry: 0,
            key: Vec::new(),
        }
    }

    /// Creates a cursor over a view: the transaction's own memtable, memtables, the transaction's
    /// own runs, then runs, each from newest to oldest.
    pub fn for_view(view: &View, fill_cache: bool) -> MergeCursor {
        let comparator = view.version.comparator;
        let memtables = || view.overlay.iter().map(TxnOverlay::memtable).chain(view.memtables());
        let overlay_runs = view.overlay.as_ref().map_or(&[][..], TxnOverlay::runs);
        // Small allocations are reused by the allocator at once, larger ones are searched for.
        let count = memtables().count() + overlay_runs.len() + view.version.runs().count();
        let mut sources = Vec::with_capacity(count);
        sources.extend(memtables().map(|m| SourceCursor::from(m.cursor())));
        let memtables = sources.len();
        let run =
            |r: &Arc<Run>| SourceCursor::Run(RunCursor::new(Arc::clone(r), comparator, fill_cache));
        sources.extend(overlay_runs.iter().chain(view.version.runs()).map(run));
        MergeCursor {
            overlay_memtables: usize::from(view.overlay.is_some()),
            overlay_runs: overlay_runs.len(),
            memtables,
            ..MergeCursor::new(comparator, sources)
        }
    }
    /// Returns true if the source belongs to the transaction itself.
    fn is_overlay(&self, source: usize) -> bool {
        source < self.overlay_memtables
            || (self.memtables..self.memtables + self.overlay_runs).contains(&source)
    }

    /// Returns run `number` of the view's version. The merge is then not valid until the next seek.
    pub fn run_cursor(&mut self, number: usize) -> Option<&mut RunCursor> {
        self.current = None;
        let mut runs = self.sources.iter_mut();
        runs.by_ref().filter_map(SourceCursor::as_run).nth(self.overlay_runs + number)
    }

    /// Positions every source with `seek`, then selects the current one.
    fn position_sources(
        &mut self,
        forward: bool,
        seek: impl Fn(&mut SourceCursor) -> Result<()>,
    ) -> Result<()> {
        self.current = None;
        (self.is_on_other_key, self.positions_stale) = (false, false);
        self.forward = forward;
        self.sources.iter_mut().try_for_each(seek)?;
        self.rebuild_prefixes();
        self.select_current();
        Ok(())
    }

    /// Recomputes all prefixes, after the common prefix of all current keys less some bytes. (With
    /// a single source nothing is skipped: no other key would bound the keys after the first one.)
    fn rebuild_prefixes(&mut self) {
        let mut valid = self.sources.iter().filter(|s| s.valid()).map(SourceCursor::key);
        self.shared_prefix.clear();
        if self.comparator == KeyComparator::Bytes
            && self.sources.len() > 1
            && let Some(first) = valid.next()
        {
            first.copy_to(&mut self.shared_prefix);
            let common = valid.fold(self.shared_prefix.len(), |n, key| {
                key.common_prefix_len(&self.shared_prefix[..n])
            });
            self.shared_prefix.truncate(common.saturating_sub(PREFIX_SLACK_BYTES));
        }
        (0..self.sources.len()).for_each(|i| self.update_position(i));
    }

    /// Updates the position of source `i`.
    fn update_position(&mut self, i: usize) {
        let source = &self.sources[i];
        let valid = source.valid();
        if valid {
            let meta = source.entry_meta(self.comparator, &self.shared_prefix);
            self.set_position(i, meta);
        }
        self.positions[i].valid = valid;
    }
    #[inline]
    fn set_position(&mut self, i: usize, meta: EntryMeta) {
        let key_prefix = if self.forward { meta.key_prefix } else { !meta.key_prefix };
        self.positions[i] = SourcePosition { meta: EntryMeta { key_prefix, ..meta }, valid: true };
    }

    /// Returns true if source `a` is before source `b`; both must be valid.
    #[inline]
    fn is_before(&self, a: usize, b: usize) -> bool {
        let (x, y) = (self.positions[a].meta.key_prefix, self.positions[b].meta.key_prefix);
        x < y || (x == y && self.is_before_by_key(a, b))
    }

    fn is_before_by_key(&self, a: usize, b: usize) -> bool {
        let (a, b) = (&self.sources[a], &self.sources[b]);
        let ordering = a.key().cmp(self.comparator, b.key()).then_with(|| b.seq().cmp(&a.seq()));
        ordering == if self.forward { Less } else { Greater }
    }

    /// Selects the source with the smallest entry (largest when going backward) and the one after
    /// it.
    fn select_current(&mut self) {
        let (mut best, mut second): (Option<usize>, Option<usize>) = (None, None);
        for i in (0..self.positions.len()).filter(|i| self.positions[*i].valid) {
            if best.is_none_or(|b| self.is_before(i, b)) {
                (best, second) = (Some(i), best);
            } else if second.is_none_or(|s| self.is_before(i, s)) {
                second = Some(i);
            }
        }
        (self.current, self.second) = (best, second);
        self.check_current();
    }

    /// Checks that the current source is the one whose entry comes next.
    fn check_current(&self) {
        check_slow!(
            self.current.is_none_or(|i| self.positions[i].valid && self.sources[i].valid()),
            "the current source is on an entry",
            self.current
        );
        check_slow!(
            self.current.is_none_or(|i| self.positions[i].meta.seq == self.sources[i].seq()),
            "the position of a source is that of its entry",
            self.current
        );
        check_slow!(
            self.current.zip(self.second).is_none_or(|(i, j)| i != j && !self.is_before(j, i)),
            "the current source is before the second",
            self.current,
            self.second
        );
    }
    /// Steps source `i` out of its current block, or in a memtable.
    fn step_to_next_block(&mut self, i: usize, skip_versions: bool) -> Result<()> {
        let source = &mut self.sources[i];
        let result = match self.forward {
            true if skip_versions => source.next_key(),
            true => source.next(),
            false => source.prev(),
        };
        if result.is_err() {
            self.current = None;
            return result;
        }
        self.update_position(i);
        Ok(())
    }

    /// After `step_visible`: updates the positions and selects the current source.
    #[inline]
    pub fn refresh_positions(&mut self) {
        if std::mem::take(&mut self.positions_stale) {
            let last = self.current;
            (0..self.sources.len()).for_each(|i| self.update_position(i));
            self.select_current();
            if self.current != last {
                self.record_switch();
            }
        }
    }

    /// Records that the current source changed.
    #[inline]
    fn record_switch(&mut self) {
        self.usual_steps =
            (self.usual_steps / 4).saturating_mul(3).saturating_add(self.steps_in_source / 4);
        self.steps_in_source = 0;
    }

    /// Makes the second source the current one, and selects a new second one.
    fn switch_source(&mut self, to: usize) {
        self.record_switch();
        self.current = Some(to);
        let mut second: Option<usize> = None;
        for i in (0..self.sources.len()).filter(|i| *i != to && self.positions[*i].valid) {
            if second.is_none_or(|s| self.is_before(i, s)) {
                second = Some(i);
            }
        }
        self.second = second;
    }

    /// Moves to the first entry at or after (key, seq), going forward.
    pub fn seek(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        self.position_sources(true, |s| s.seek(key, seq))
    }
    /// Moves to the entry after (before) all versions of `key`, for a scan from there.
    pub fn scan_from(&mut self, key: &[u8], forward: bool) -> Result<()> {
        self.sources.iter_mut().for_each(|s| s.expect_scan(forward));
        if forward { self.seek(key, SeqNo::ZERO) } else { self.seek_before(key, SeqNo::MAX) }
    }
    /// Moves to the first entry at or after (key, seq) from a position before it, going forward:
    /// sources that are already past it are not moved.
    pub fn seek_forward(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        self.advance_sources(key, seq, |_, _| true)
    }
    /// Moves to the first entry at or after `key`, or before that to the transaction's next own
    /// entry, going forward.
    pub fn skip_below(&mut self, key: &[u8]) -> Result<()> {
        self.advance_sources(key, SeqNo::MAX, |merge, i| !merge.is_overlay(i))
    }
    /// Moves the sources that are `included` and before (key, seq).
    fn advance_sources(
        &mut self,
        key: &[u8],
        seq: SeqNo,
        included: impl Fn(&MergeCursor, usize) -> bool,
    ) -> Result<()> {
        self.current = None;
        (self.is_on_other_key, self.positions_stale) = (false, false);
        for i in 0..self.sources.len() {
            let is_included = included(self, i);
            let source = &mut self.sources[i];
            let compare = || {
                source
                    .key()
                    .cmp(self.comparator, KeyRef::from_key(key))
                    .then_with(|| seq.cmp(&source.seq()))
            };
            if is_included && source.valid() && compare() == Less {
                source.seek(key, seq)?;
            }
            self.update_position(i);
        }
        self.select_current();
        if let Some(i) = self.current {
            self.check_prefixes(i);
        }
        Ok(())
    }
    /// Returns true if the current block of the current source, or of run `run`, covers `key`.
    pub fn block_reaches(&self, run: Option<usize>, key: &[u8]) -> bool {
        let source = match run {
            Some(number) => self
                .sources
                .iter()
                .filter(|s| matches!(s, SourceCursor::Run(_)))
                .nth(self.overlay_runs + number),
            None => self.current.map(|i| &self.sources[i]),
        };
        source.is_some_and(|s| s.block_reaches(key))
    }
    /// Moves to the last entry before (key, seq), going backward.
    pub fn seek_before(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        self.position_sources(false, |s| s.seek_before(key, seq))
    }
    /// Moves to the first entry, going forward.
    pub fn seek_first(&mut self) -> Result<()> {
        self.position_sources(true, SourceCursor::seek_first)
    }
    /// Moves to the last entry, going backward.
    pub fn seek_last(&mut self) -> Result<()> {
        self.position_sources(false, SourceCursor::seek_last)
    }
    /// Moves to the next entry in the current direction.
    #[inline]
    pub fn step(&mut self) -> Result<()> {
        self.step_source(false)
    }
    /// Does the same where the reader needs no older version of the current key: going forward,
    /// they are skipped as far as that is cheap.
    #[inline]
    pub fn step_past_versions(&mut self) -> Result<()> {
        self.step_source(true)
    }
    #[inline]
    fn step_source(&mut self, skip_versions: bool) -> Result<()> {
        self.refresh_positions();
        let Some(i) = self.current else { return Ok(()) };
        let last_prefix = self.positions[i].meta.key_prefix;
        self.last_moved = i;
        match self.sources[i].step_in_block(self.forward, &self.shared_prefix) {
            Some(meta) => self.set_position(i, meta),
            None => self.step_to_next_block(i, skip_versions)?,
        }
        let valid = self.positions[i].valid;
        match self.second {
            None => self.current = valid.then_some(i),
            Some(second) if valid && self.is_before(i, second) => {
                self.steps_in_source = self.steps_in_source.saturating_add(1)
            }
            Some(second) => self.switch_source(second),
        }
        self.check_current();
        if let Some(i) = self.current {
            let prefix = self.positions[i].meta.key_prefix;
            self.is_on_other_key = prefix != last_prefix;
            if matches!(prefix, 0 | u64::MAX) && !self.shared_prefix.is_empty() {
                self.check_prefixes(i);
            }
        }
        Ok(())
    }

    /// Reports the steps taken in memtables to them; returns true if it should be checked whether to
    /// flush one because of such steps.
    pub fn report_memtable_steps(&mut self) -> bool {
        check!(
            self.overlay_memtables <= self.memtables && self.memtables <= self.sources.len(),
            "memtables come first, the transaction's own before the others",
            self.overlay_memtables,
            self.memtables
        );
        let mut is_due = false;
        for source in &mut self.sources[self.overlay_memtables..self.memtables] {
            is_due |= source.report_steps();
        }
        is_due
    }

    /// Returns the block that starts with the current entry, if all of its entries come before
    /// every other source; also the current key of the foremost other source. Forward only.
    #[inline]
    pub fn passthrough_block(&self) -> Option<(&KlogCursor, &Arc<TableBlock>, Option<KeyRef<'_>>)> {
        let (cursor, block) = self.sources[self.current?].passthrough_block()?;
        let limit = self.second.map(|second| self.sources[second].key());
        let last = block.key(block.len() - 1);
        let before = limit.is_none_or(|limit| last.cmp(self.comparator, limit) == Less);
        before.then_some((cursor, block, limit))
    }
    /// Moves to the entry after that block.
    pub fn skip_block(&mut self) -> Result<()> {
        let Some(i) = self.current else { return Ok(()) };
        (self.last_moved, self.is_on_other_key) = (i, false);
        let result = self.sources[i].skip_block();
        if result.is_err() {
            self.current = None;
            return result;
        }
        self.update_position(i);
        self.select_current();
        if let Some(i) = self.current {
            self.check_prefixes(i);
        }
        Ok(())
    }

    /// Returns the number of entries ahead that a reader at `at` sees without further checks: going
    /// forward those after the current entry, going backward the current one and those before it.
    #[inline]
    pub fn count_visible_ahead(&mut self, at: SeqNo) -> usize {
        let Some(i) = self.current else { return 0 };
        let n = match self.second {
            None => self.sources[i].count_visible_ahead(self.forward, at, None),
            Some(_)
                if self.usual_steps < STEPS_IN_SOURCE_MIN.0
                    && self.steps_in_source < STEPS_IN_SOURCE_MIN.1 =>
            {
                return self.find_interleaving(at);
            }
            Some(second) => match self.sources.get_disjoint_mut([i, second]) {
                Ok([source, second]) => {
                    source.count_visible_ahead(self.forward, at, Some(second.key()))
                }
                Err(_) => 0,
            },
        };
        self.interleaving.repeat_source(i, n)
    }
    /// Does the same for sources that alternate. If that finds few entries (equal prefixes, many
    /// versions, a memtable in between), it is attempted less and less often.
    fn find_interleaving(&mut self, at: SeqNo) -> usize {
        if self.steps_until_retry > 0 {
            self.steps_until_retry -= 1;
            return 0;
        }
        let standing = if self.forward { self.current } else { None };
        let n = self.interleaving.find_turns(&mut self.sources, self.comparator, standing, at);
        self.failed_attempts = if n < FEW_TURNS {
            (self.failed_attempts + 1).min(INTERLEAVING_RETRY_LOG2_MAX)
        } else {
            0
        };
        self.steps_until_retry = (1 << self.failed_attempts) - 1;
        n
    }
    /// Steps to an entry counted by `count_visible_ahead`; stores the key to show in `key`.
    #[inline]
    pub fn step_visible(&mut self, key: &mut Vec<u8>) {
        let (Some(last), Some(i)) = (self.current, self.interleaving.next_source()) else { return };
        if self.forward {
            self.sources[last].step_visible(true);
            self.sources[i].key().copy_to(key);
        } else {
            self.sources[i].key().copy_to(key);
            self.sources[i].step_visible(false);
        }
        (self.current, self.last_moved, self.positions_stale) = (Some(i), i, true);
        self.steps_in_source = if i == last { self.steps_in_source.saturating_add(1) } else { 0 };
    }
    /// Returns the key of the `n`th visible entry ahead.
    pub fn visible_key_ahead(&self, n: usize) -> KeyRef<'_> {
        let (i, times) =
            self.interleaving.nth_turn(n).expect("n is at most the number of turns found");
        let standing = self.forward && self.current == Some(i);
        self.sources[i].key_ahead(self.forward, if standing { times } else { times - 1 })
    }

    /// Returns true if the last step certainly led to another key; otherwise it may have.
    #[inline]
    pub fn key_changed(&self) -> bool {
        self.is_on_other_key
    }

    /// Recomputes all prefixes if the key of source `i` does not start with the shared prefix.
    #[cold]
    fn check_prefixes(&mut self, i: usize) {
        if !self.sources[i].key().starts_with(&self.shared_prefix) {
            self.rebuild_prefixes();
        }
    }

    /// Seeks past `cut` in every source whose entries are all older than the tombstone `seq`; the
    /// current source, if it also holds newer entries, moves one step.
    pub fn seek_past(&mut self, cut: KeyBoundaryRef<'_>, seq: SeqNo) -> Result<()> {
        let Some(current) = self.current.take() else { return Ok(()) };
        (self.is_on_other_key, self.positions_stale) = (false, false);
        let (comparator, forward) = (self.comparator, self.forward);
        for (i, source) in self.sources.iter_mut().enumerate() {
            let inside = source.valid() && {
                source.key().copy_to(&mut self.key);
                cut.is_before(comparator, &self.key) != forward
            };
            if inside && source.is_older_than(seq) {
                source.seek_past(cut, forward)?;
            } else if i == current {
                if forward { source.next()? } else { source.prev()? }
            }
        }
        self.rebuild_prefixes();
        self.select_current();
        Ok(())
    }
    /// See [`SourceCursor::skip_tombstone`].
    pub fn skip_tombstone(&mut self) -> u64 {
        self.current.map_or(0, |i| self.sources[i].skip_tombstone())
    }
    /// Returns true if the cursor is on an entry.
    #[inline]
    pub fn valid(&self) -> bool {
        self.current.is_some()
    }
    #[inline]
    fn current_source(&self) -> &SourceCursor {
        &self.sources[self.current.expect("the cursor is not valid")]
    }
    /// Returns the key of the current entry.
    #[inline]
    pub fn key(&self) -> KeyRef<'_> {
        self.current_source().key()
    }
    #[inline]
    fn current_meta(&self) -> &EntryMeta {
        check_slow!(!self.positions_stale, "positions are refreshed after visible steps");
        &self.positions[self.current.expect("the cursor is not valid")].meta
    }
    /// Returns the sequence number of the current entry.
    #[inline]
    pub fn seq(&self) -> SeqNo {
        self.current_meta().seq
    }
    /// Returns the kind of the current entry.
    #[inline]
    pub fn kind(&self) -> EntryKind {
        self.current_meta().kind
    }
    /// Returns the value of the current entry, borrowed.
    #[inline]
    pub fn value(&self) -> ValueRef<'_> {
        self.current_source().value()
    }
    /// Returns the current entry, with a contiguous key.
    pub fn entry(&mut self) -> EntryRef<'_> {
        let source = &self.sources[self.current.expect("the cursor is not valid")];
        let key = source.key();
        let key = if key.prefix.is_empty() {
            key.suffix
        } else {
            key.copy_to(&mut self.key);
            &self.key
        };
        EntryRef { key, seq: source.seq(), value: source.value() }
    }
    /// Returns the value of the current entry, pinned.
    #[inline]
    pub fn entry_value(&self) -> EntryValue {
        self.current_source().entry_value()
    }
    /// Returns the value of the entry that the last backward step left.
    #[inline]
    pub fn left_value(&self) -> Option<EntryValue> {
        self.sources.get(self.last_moved).and_then(SourceCursor::left_value)
    }
    /// Returns the value of the entry that the last backward step left, borrowed, if it is still
    /// available.
    #[inline]
    pub fn left_value_ref(&self) -> Option<ValueRef<'_>> {
        self.sources.get(self.last_moved)?.left_value_ref()
    }
    /// Returns true if the direction is forward.
    #[inline]
    pub fn is_forward(&self) -> bool {
        self.forward
    }
    /// Fails unless the cursor moves in the given direction; guards against misuse.
    #[inline]
    pub fn expect_direction(&self, forward: bool) -> Result<()> {
        if self.forward == forward {
            Ok(())
        } else {
            Err(Error::internal("a merge cursor was moved against its direction without a seek"))
        }
    }
}
