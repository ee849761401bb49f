//! Many sources as one, in entry order. Turning round means seeking again: [`super::visible`] does
//! that, so this room only ever goes the way of its last seek.
//!
//! Of each source the head of its key is kept, a number that decides most comparisons
//! ([`KeyRef::head`]); keys are compared where heads tie. The runner-up is kept too: as long as the
//! current source stays before it, no other is looked at. The choice itself is linear: there are
//! few sources, and a head is one comparison.

use super::cursor::{RunCursor, SourceCursor};
use super::interleaving::Interleaving;
use crate::View;
use crate::txn_overlay::TxnOverlay;
use crate::version::Run;
use perigee_base::key_boundary::KeyBoundaryRef;
use perigee_base::{EntryKind, EntryRef, Error, KeyComparator, KeyRef, Result, SeqNo, ValueRef};
use perigee_file::{EntryMeta, EntryValue, KlogCursor, TableBlock};
use std::cmp::Ordering::{Greater, Less};
use std::sync::Arc;

/// So many bytes before the first difference belong to the heads: the walk goes on behind it.
const PREFIX_SLACK_BYTES: usize = 4;
/// So many steps in one source promise more of them, if they are usual or came just now.
const STEPS_IN_SOURCE_MIN: (u32, u32) = (8, 4);

/// Fewer turns than these were not worth looking for them.
const FEW_TURNS: usize = 4;
/// After some such attempts so many steps pass until the next, as a power of two.
const RETRY_LOG2_MAX: u32 = 6;

/// A source, as the choice among them sees it: the head of its key is inverted when going backward.
#[derive(Clone, Copy, Debug)]
struct SourcePosition {
    meta: EntryMeta,
    valid: bool,
}

const NO_POSITION: EntryMeta =
    EntryMeta { key_prefix: 0, seq: SeqNo::ZERO, kind: EntryKind::Delete };

/// The merged position. After an error it is not valid until the next seek.
///
/// Invariants while valid: 1. no source is before `current`, and none but it before `second`
/// (`None`: no other source is valid), but for gliding, until it settles; 2. `lanes` say where the
/// sources are, heads of keys being those behind `skip`, but for sources that glided.
#[derive(Debug)]
pub struct MergeCursor {
    comparator: KeyComparator,
    sources: Vec<SourceCursor>,
    /// So many of the runs among them, the first, are a transaction's own.
    overlay_runs: usize,
    positions: Vec<SourcePosition>,
    shared_prefix: Vec<u8>,
    current: Option<usize>,
    second: Option<usize>,
    forward: bool,
    /// The source that the last step moved.
    last_moved: usize,
    /// Heads say that the last step led to another key.
    is_on_other_key: bool,
    /// Steps since another source was the current one; how many it usually is.
    steps_in_source: u32,
    usual_steps: u32,
    /// Sources moved without their heads.
    positions_stale: bool,
    /// Whose turns lie ahead, as far as that was found out.
    interleaving: Interleaving,
    /// Attempts one after the other that found few; steps until the next.
    failed_attempts: u32,
    steps_until_retry: u32,
    /// A key in one piece, for who wants it so.
    key: Vec<u8>,
}

impl MergeCursor {
    /// Over these sources.
    pub fn new(order: KeyComparator, sources: Vec<SourceCursor>) -> MergeCursor {
        MergeCursor {
            comparator: order,
            positions: vec![SourcePosition { meta: NO_POSITION, valid: false }; sources.len()],
            sources,
            overlay_runs: 0,
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

    /// Over everything in a view: own writes in memory, memtables, own runs, then runs, each from
    /// the newest to the oldest.
    pub fn for_view(view: &View, fill_cache: bool) -> MergeCursor {
        let order = view.version.comparator;
        let memtables = view.overlay.iter().map(TxnOverlay::memtable).chain(view.memtables());
        let mut sources: Vec<SourceCursor> =
            memtables.map(|m| SourceCursor::from(m.cursor())).collect();
        let own_runs = view.overlay.as_ref().map_or(&[][..], TxnOverlay::runs);
        let run =
            |r: &Arc<Run>| SourceCursor::Run(RunCursor::new(Arc::clone(r), order, fill_cache));
        sources.extend(own_runs.iter().chain(view.version.runs()).map(run));
        MergeCursor { overlay_runs: own_runs.len(), ..MergeCursor::new(order, sources) }
    }

    /// The run of that number in the version of a view that this is over; then it is nowhere until
    /// the next seek.
    pub fn run_cursor(&mut self, number: usize) -> Option<&mut RunCursor> {
        self.current = None;
        let mut runs = self.sources.iter_mut();
        runs.by_ref().filter_map(SourceCursor::as_run).nth(self.overlay_runs + number)
    }

    /// Positions every source by `go`, then chooses.
    fn position_sources(
        &mut self,
        forward: bool,
        go: impl Fn(&mut SourceCursor) -> Result<()>,
    ) -> Result<()> {
        self.current = None;
        (self.is_on_other_key, self.positions_stale) = (false, false);
        self.forward = forward;
        self.sources.iter_mut().try_for_each(go)?;
        self.rebuild_prefixes();
        self.select_current();
        Ok(())
    }

    /// Takes all heads anew, behind what the keys at hand have in common, but for some bytes. (A
    /// single source has its keys to itself: nothing would be known of those behind the first.)
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

    /// Where source `i` is.
    fn update_position(&mut self, i: usize) {
        let source = &self.sources[i];
        let valid = source.valid();
        if valid {
            let spot = source.entry_meta(self.comparator, &self.shared_prefix);
            self.set_position(i, spot);
        }
        self.positions[i].valid = valid;
    }
    #[inline]
    fn set_position(&mut self, i: usize, spot: EntryMeta) {
        let head = if self.forward { spot.key_prefix } else { !spot.key_prefix };
        self.positions[i] =
            SourcePosition { meta: EntryMeta { key_prefix: head, ..spot }, valid: true };
    }

    /// Whether source `a` comes before source `b`, both valid.
    #[inline]
    fn is_before(&self, a: usize, b: usize) -> bool {
        let (x, y) = (self.positions[a].meta.key_prefix, self.positions[b].meta.key_prefix);
        x < y || (x == y && self.is_before_by_key(a, b))
    }

    fn is_before_by_key(&self, a: usize, b: usize) -> bool {
        let (a, b) = (&self.sources[a], &self.sources[b]);
        let whole = a.key().cmp(self.comparator, b.key()).then_with(|| b.seq().cmp(&a.seq()));
        whole == if self.forward { Less } else { Greater }
    }

    /// The source with the smallest entry (largest, when going backward), and the one after it.
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
    }

    /// A step of source `i` that leaves its block.
    fn step_to_next_block(&mut self, i: usize) -> Result<()> {
        let source = &mut self.sources[i];
        let stepped = if self.forward { source.next() } else { source.prev() };
        if stepped.is_err() {
            self.current = None;
            return stepped;
        }
        self.update_position(i);
        Ok(())
    }

    /// After gliding: where the sources are, and which of them is the current one.
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

    /// Another source is the current one now.
    #[inline]
    fn record_switch(&mut self) {
        self.usual_steps =
            (self.usual_steps / 4).saturating_mul(3).saturating_add(self.steps_in_source / 4);
        self.steps_in_source = 0;
    }

    /// The second source becomes the current one; of all others the foremost is looked for.
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

    /// To the first entry at or after (key, seq), going forward.
    pub fn seek(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        self.position_sources(true, |s| s.seek(key, seq))
    }
    /// To what comes behind (before) all versions of `key`, to go on from there.
    pub fn scan_from(&mut self, key: &[u8], forward: bool) -> Result<()> {
        self.sources.iter_mut().for_each(|s| s.expect_scan(forward));
        if forward { self.seek(key, SeqNo::ZERO) } else { self.seek_before(key, SeqNo::MAX) }
    }
    /// To the first entry at or after (key, seq) from a place before it, going forward: sources
    /// that are behind it already stay where they are.
    pub fn seek_forward(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        self.current = None;
        (self.is_on_other_key, self.positions_stale) = (false, false);
        for i in 0..self.sources.len() {
            let source = &mut self.sources[i];
            let behind = || {
                source
                    .key()
                    .cmp(self.comparator, KeyRef::from_key(key))
                    .then_with(|| seq.cmp(&source.seq()))
            };
            if source.valid() && behind() == Less {
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
    /// Whether the block at hand of the current source, or of the run of that number, reaches as
    /// far as `key`.
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
    /// To the last entry before (key, seq), going backward.
    pub fn seek_before(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        self.position_sources(false, |s| s.seek_before(key, seq))
    }
    /// To the first entry, going forward.
    pub fn seek_first(&mut self) -> Result<()> {
        self.position_sources(true, SourceCursor::seek_first)
    }
    /// To the last entry, going backward.
    pub fn seek_last(&mut self) -> Result<()> {
        self.position_sources(false, SourceCursor::seek_last)
    }
    /// The next entry of the way.
    #[inline]
    pub fn step(&mut self) -> Result<()> {
        self.refresh_positions();
        let Some(i) = self.current else { return Ok(()) };
        let head = self.positions[i].meta.key_prefix;
        self.last_moved = i;
        match self.sources[i].step_in_block(self.forward, &self.shared_prefix) {
            Some(spot) => self.set_position(i, spot),
            None => self.step_to_next_block(i)?,
        }
        let valid = self.positions[i].valid;
        match self.second {
            None => self.current = valid.then_some(i),
            Some(second) if valid && self.is_before(i, second) => {
                self.steps_in_source = self.steps_in_source.saturating_add(1)
            }
            Some(second) => self.switch_source(second),
        }
        if let Some(i) = self.current {
            let now = self.positions[i].meta.key_prefix;
            self.is_on_other_key = now != head;
            if matches!(now, 0 | u64::MAX) && !self.shared_prefix.is_empty() {
                self.check_prefixes(i);
            }
        }
        Ok(())
    }

    /// The block that begins with the entry it is on, if everything in it comes before every other
    /// source; also where the foremost of these is. Going forward only.
    #[inline]
    pub fn passthrough_block(&self) -> Option<(&KlogCursor, &Arc<TableBlock>, Option<KeyRef<'_>>)> {
        let (cursor, block) = self.sources[self.current?].passthrough_block()?;
        let limit = self.second.map(|second| self.sources[second].key());
        let last = block.key(block.len() - 1);
        let before = limit.is_none_or(|limit| last.cmp(self.comparator, limit) == Less);
        before.then_some((cursor, block, limit))
    }
    /// Goes on behind that block.
    pub fn skip_block(&mut self) -> Result<()> {
        let Some(i) = self.current else { return Ok(()) };
        (self.last_moved, self.is_on_other_key) = (i, false);
        let left = self.sources[i].skip_block();
        if left.is_err() {
            self.current = None;
            return left;
        }
        self.update_position(i);
        self.select_current();
        if let Some(i) = self.current {
            self.check_prefixes(i);
        }
        Ok(())
    }

    /// How many entries of the way lie ahead that a reader at `at` is shown without another look:
    /// going forward those behind the one it is on, going backward that one and those before it.
    #[inline]
    pub fn count_visible_ahead(&mut self, at: SeqNo) -> usize {
        let Some(i) = self.current else { return 0 };
        let stretch = match self.second {
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
        self.interleaving.repeat_source(i, stretch)
    }
    /// The same where sources take turns. Where that finds little (equal heads, many versions, a
    /// memtable in between) it is tried less and less often.
    fn find_interleaving(&mut self, at: SeqNo) -> usize {
        if self.steps_until_retry > 0 {
            self.steps_until_retry -= 1;
            return 0;
        }
        let standing = if self.forward { self.current } else { None };
        let n = self.interleaving.find_turns(&mut self.sources, self.comparator, standing, at);
        self.failed_attempts =
            if n < FEW_TURNS { (self.failed_attempts + 1).min(RETRY_LOG2_MAX) } else { 0 };
        self.steps_until_retry = (1 << self.failed_attempts) - 1;
        n
    }
    /// A step to an entry that was said to be clear; `key` becomes the key that is shown then.
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
    /// The last of so many entries that are clear.
    pub fn visible_key_ahead(&self, n: usize) -> KeyRef<'_> {
        let (i, times) = self.interleaving.nth_turn(n).expect("so many turns were found");
        let standing = self.forward && self.current == Some(i);
        self.sources[i].key_ahead(self.forward, if standing { times } else { times - 1 })
    }

    /// Whether the last step certainly led to another key; if not, it may have.
    #[inline]
    pub fn key_changed(&self) -> bool {
        self.is_on_other_key
    }

    /// Takes the heads anew if they say nothing about the key of source `i`.
    #[cold]
    fn check_prefixes(&mut self, i: usize) {
        if !self.sources[i].key().starts_with(&self.shared_prefix) {
            self.rebuild_prefixes();
        }
    }

    /// Goes on behind `cut` in every source in which everything is older than the tombstone `seq`;
    /// a source that also holds newer entries takes one step, if it is at hand.
    pub fn seek_past(&mut self, cut: KeyBoundaryRef<'_>, seq: SeqNo) -> Result<()> {
        let Some(current) = self.current.take() else { return Ok(()) };
        (self.is_on_other_key, self.positions_stale) = (false, false);
        let (order, forward) = (self.comparator, self.forward);
        for (i, source) in self.sources.iter_mut().enumerate() {
            let inside = source.valid() && {
                source.key().copy_to(&mut self.key);
                cut.is_before(order, &self.key) != forward
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
    /// See [`Source::pass`].
    pub fn skip_tombstone(&mut self) -> u64 {
        self.current.map_or(0, |i| self.sources[i].skip_tombstone())
    }
    /// Whether it is on an entry.
    #[inline]
    pub fn valid(&self) -> bool {
        self.current.is_some()
    }
    #[inline]
    fn current_source(&self) -> &SourceCursor {
        &self.sources[self.current.expect("a cursor is read only while it is valid")]
    }
    /// The key of the entry it is on.
    #[inline]
    pub fn key(&self) -> KeyRef<'_> {
        self.current_source().key()
    }
    #[inline]
    fn current_meta(&self) -> &EntryMeta {
        debug_assert!(!self.positions_stale, "a merge that glided settles first");
        &self.positions[self.current.expect("a cursor is read only while it is valid")].meta
    }
    /// The sequence number of the entry it is on.
    #[inline]
    pub fn seq(&self) -> SeqNo {
        self.current_meta().seq
    }
    /// What the entry is.
    #[inline]
    pub fn kind(&self) -> EntryKind {
        self.current_meta().kind
    }
    /// Its value, borrowed.
    #[inline]
    pub fn value(&self) -> ValueRef<'_> {
        self.current_source().value()
    }
    /// The whole entry, its key put together.
    pub fn entry(&mut self) -> EntryRef<'_> {
        let source = &self.sources[self.current.expect("a cursor is read only while it is valid")];
        let key = source.key();
        let key = if key.prefix.is_empty() {
            key.suffix
        } else {
            key.copy_to(&mut self.key);
            &self.key
        };
        EntryRef { key, seq: source.seq(), value: source.value() }
    }
    /// Its value, pinned.
    #[inline]
    pub fn entry_value(&self) -> EntryValue {
        self.current_source().entry_value()
    }
    /// The value of the entry that the last step left, going backward.
    #[inline]
    pub fn left_value(&self) -> Option<EntryValue> {
        self.sources.get(self.last_moved).and_then(SourceCursor::left_value)
    }
    /// The value of the entry that the last step left, going backward, borrowed, if it is at hand.
    #[inline]
    pub fn left_value_ref(&self) -> Option<ValueRef<'_>> {
        self.sources.get(self.last_moved)?.left_value_ref()
    }
    /// Whether it goes forward.
    #[inline]
    pub fn is_forward(&self) -> bool {
        self.forward
    }
    /// Fails unless it goes the given way: a guard for callers.
    #[inline]
    pub fn expect_direction(&self, forward: bool) -> Result<()> {
        if self.forward == forward {
            Ok(())
        } else {
            Err(Error::internal("a merge was asked to turn without a seek"))
        }
    }
}
