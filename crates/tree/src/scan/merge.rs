//! Many sources as one, in entry order. Turning round means seeking again: [`super::visible`] does that, so this
//! room only ever goes the way of its last seek.
//!
//! Of each source the head of its key is kept, a number that decides most comparisons ([`KeyRef::head`]); keys are compared
//! where heads tie. The runner-up is kept too: as long as the current source stays before it, no other is looked at. The
//! choice itself is linear: there are few sources, and a head is one comparison.

use super::cursor::{RunCursor, Source};
use super::turns::Turns;
use crate::View;
use crate::own::Own;
use crate::version::Run;
use perigee_base::cut::CutRef;
use perigee_base::{EntryKind, EntryRef, Error, KeyOrder, KeyRef, Result, SeqNo, ValueRef};
use perigee_file::{Block, Found, KlogCursor, Spot};
use std::cmp::Ordering::{Greater, Less};
use std::sync::Arc;

/// So many bytes before the first difference belong to the heads: the walk goes on behind it.
const SLACK: usize = 4;
/// So many steps in one source promise more of them, if they are usual or came just now.
const IN_A_ROW: (u32, u32) = (8, 4);

/// Fewer turns than these were not worth looking for them.
const FEW: usize = 4;
/// After some such attempts so many steps pass until the next, as a power of two.
const REST_LOG: u32 = 6;

/// A source, as the choice among them sees it: the head of its key is inverted when going backward.
#[derive(Clone, Copy, Debug)]
struct Lane {
    spot: Spot,
    valid: bool,
}

const NOWHERE: Spot = Spot { head: 0, seq: SeqNo::ZERO, kind: EntryKind::Delete };

/// The merged position. After an error it is not valid until the next seek.
///
/// Invariants while valid: 1. no source is before `current`, and none but it before `second` (`None`: no other source is
/// valid), but for gliding, until it settles; 2. `lanes` say where the sources are, heads of keys being those behind `skip`, but for sources that glided.
#[derive(Debug)]
pub struct MergeCursor {
    order: KeyOrder,
    sources: Vec<Source>,
    /// So many of the runs among them, the first, are a transaction's own.
    own_runs: usize,
    lanes: Vec<Lane>,
    skip: Vec<u8>,
    current: Option<usize>,
    second: Option<usize>,
    forward: bool,
    /// The source that the last step moved.
    left: usize,
    /// Heads say that the last step led to another key.
    another: bool,
    /// Steps since another source was the current one; how many it usually is.
    in_a_row: u32,
    usual: u32,
    /// Sources moved without their heads.
    glided: bool,
    /// Whose turns lie ahead, as far as that was found out.
    turns: Turns,
    /// Attempts one after the other that found few; steps until the next.
    poor: u32,
    rest: u32,
    /// A key in one piece, for who wants it so.
    key: Vec<u8>,
}

impl MergeCursor {
    /// Over these sources.
    pub fn new(order: KeyOrder, sources: Vec<Source>) -> MergeCursor {
        MergeCursor {
            order,
            lanes: vec![Lane { spot: NOWHERE, valid: false }; sources.len()],
            sources,
            own_runs: 0,
            skip: Vec::new(),
            current: None,
            second: None,
            forward: true,
            left: 0,
            another: false,
            in_a_row: 0,
            usual: 0,
            glided: false,
            turns: Turns::new(),
            poor: 0,
            rest: 0,
            key: Vec::new(),
        }
    }

    /// Over everything in a view: own writes in memory, memtables, own runs, then runs, each from the newest to the oldest.
    pub fn over_view(view: &View, fill_cache: bool) -> MergeCursor {
        let order = view.version.order;
        let memtables = view.own.iter().map(Own::memtable).chain(view.memtables());
        let mut sources: Vec<Source> = memtables.map(|m| Source::from(m.cursor())).collect();
        let own_runs = view.own.as_ref().map_or(&[][..], Own::runs);
        let run = |r: &Arc<Run>| Source::Run(RunCursor::new(Arc::clone(r), order, fill_cache));
        sources.extend(own_runs.iter().chain(view.version.runs()).map(run));
        MergeCursor { own_runs: own_runs.len(), ..MergeCursor::new(order, sources) }
    }

    /// The run of that number in the version of a view that this is over; then it is nowhere until the next seek.
    pub fn run(&mut self, number: usize) -> Option<&mut RunCursor> {
        self.current = None;
        let mut runs = self.sources.iter_mut();
        runs.by_ref().filter_map(Source::as_run).nth(self.own_runs + number)
    }

    /// Positions every source by `go`, then chooses.
    fn place(&mut self, forward: bool, go: impl Fn(&mut Source) -> Result<()>) -> Result<()> {
        self.current = None;
        (self.another, self.glided) = (false, false);
        self.forward = forward;
        self.sources.iter_mut().try_for_each(go)?;
        self.rebase();
        self.choose();
        Ok(())
    }

    /// Takes all heads anew, behind what the keys at hand have in common, but for some bytes. (A single source has its keys to
    /// itself: nothing would be known of those behind the first.)
    fn rebase(&mut self) {
        let mut valid = self.sources.iter().filter(|s| s.valid()).map(Source::key);
        self.skip.clear();
        if self.order == KeyOrder::Bytes
            && self.sources.len() > 1
            && let Some(first) = valid.next()
        {
            first.copy_to(&mut self.skip);
            let common = valid.fold(self.skip.len(), |n, key| key.common(&self.skip[..n]));
            self.skip.truncate(common.saturating_sub(SLACK));
        }
        (0..self.sources.len()).for_each(|i| self.look(i));
    }

    /// Where source `i` is.
    fn look(&mut self, i: usize) {
        let source = &self.sources[i];
        let valid = source.valid();
        if valid {
            let spot = source.spot(self.order, &self.skip);
            self.set(i, spot);
        }
        self.lanes[i].valid = valid;
    }
    #[inline]
    fn set(&mut self, i: usize, spot: Spot) {
        let head = if self.forward { spot.head } else { !spot.head };
        self.lanes[i] = Lane { spot: Spot { head, ..spot }, valid: true };
    }

    /// Whether source `a` comes before source `b`, both valid.
    #[inline]
    fn before(&self, a: usize, b: usize) -> bool {
        let (x, y) = (self.lanes[a].spot.head, self.lanes[b].spot.head);
        x < y || (x == y && self.before_by_key(a, b))
    }

    fn before_by_key(&self, a: usize, b: usize) -> bool {
        let (a, b) = (&self.sources[a], &self.sources[b]);
        let whole = a.key().cmp(self.order, b.key()).then_with(|| b.seq().cmp(&a.seq()));
        whole == if self.forward { Less } else { Greater }
    }

    /// The source with the smallest entry (largest, when going backward), and the one after it.
    fn choose(&mut self) {
        let (mut best, mut second): (Option<usize>, Option<usize>) = (None, None);
        for i in (0..self.lanes.len()).filter(|i| self.lanes[*i].valid) {
            if best.is_none_or(|b| self.before(i, b)) {
                (best, second) = (Some(i), best);
            } else if second.is_none_or(|s| self.before(i, s)) {
                second = Some(i);
            }
        }
        (self.current, self.second) = (best, second);
    }

    /// A step of source `i` that leaves its block.
    fn step_out(&mut self, i: usize) -> Result<()> {
        let source = &mut self.sources[i];
        let stepped = if self.forward { source.next() } else { source.prev() };
        if stepped.is_err() {
            self.current = None;
            return stepped;
        }
        self.look(i);
        Ok(())
    }

    /// After gliding: where the sources are, and which of them is the current one.
    #[inline]
    pub fn settle(&mut self) {
        if std::mem::take(&mut self.glided) {
            let last = self.current;
            (0..self.sources.len()).for_each(|i| self.look(i));
            self.choose();
            if self.current != last {
                self.count_turn();
            }
        }
    }

    /// Another source is the current one now.
    #[inline]
    fn count_turn(&mut self) {
        self.usual = (self.usual / 4).saturating_mul(3).saturating_add(self.in_a_row / 4);
        self.in_a_row = 0;
    }

    /// The second source becomes the current one; of all others the foremost is looked for.
    fn hand_over(&mut self, to: usize) {
        self.count_turn();
        self.current = Some(to);
        let mut second: Option<usize> = None;
        for i in (0..self.sources.len()).filter(|i| *i != to && self.lanes[*i].valid) {
            if second.is_none_or(|s| self.before(i, s)) {
                second = Some(i);
            }
        }
        self.second = second;
    }

    /// To the first entry at or after (key, seq), going forward.
    pub fn seek(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        self.place(true, |s| s.seek(key, seq))
    }
    /// To what comes behind (before) all versions of `key`, to go on from there.
    pub fn walk_from(&mut self, key: &[u8], forward: bool) -> Result<()> {
        self.sources.iter_mut().for_each(|s| s.expect_walk(forward));
        if forward { self.seek(key, SeqNo::ZERO) } else { self.seek_before(key, SeqNo::MAX) }
    }
    /// To the first entry at or after (key, seq) from a place before it, going forward: sources that are behind it already stay
    /// where they are.
    pub fn seek_onward(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        self.current = None;
        (self.another, self.glided) = (false, false);
        for i in 0..self.sources.len() {
            let source = &mut self.sources[i];
            let behind =
                || source.key().cmp(self.order, KeyRef::whole(key)).then_with(|| seq.cmp(&source.seq()));
            if source.valid() && behind() == Less {
                source.seek(key, seq)?;
            }
            self.look(i);
        }
        self.choose();
        if let Some(i) = self.current {
            self.check_base(i);
        }
        Ok(())
    }
    /// Whether the block at hand of the current source, or of the run of that number, reaches as far as `key`.
    pub fn reaches(&self, run: Option<usize>, key: &[u8]) -> bool {
        let source = match run {
            Some(number) => {
                self.sources.iter().filter(|s| matches!(s, Source::Run(_))).nth(self.own_runs + number)
            }
            None => self.current.map(|i| &self.sources[i]),
        };
        source.is_some_and(|s| s.reaches(key))
    }
    /// To the last entry before (key, seq), going backward.
    pub fn seek_before(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        self.place(false, |s| s.seek_before(key, seq))
    }
    /// To the first entry, going forward.
    pub fn seek_first(&mut self) -> Result<()> {
        self.place(true, Source::seek_first)
    }
    /// To the last entry, going backward.
    pub fn seek_last(&mut self) -> Result<()> {
        self.place(false, Source::seek_last)
    }
    /// The next entry of the way.
    #[inline]
    pub fn step(&mut self) -> Result<()> {
        self.settle();
        let Some(i) = self.current else { return Ok(()) };
        let head = self.lanes[i].spot.head;
        self.left = i;
        match self.sources[i].step_inside(self.forward, &self.skip) {
            Some(spot) => self.set(i, spot),
            None => self.step_out(i)?,
        }
        let valid = self.lanes[i].valid;
        match self.second {
            None => self.current = valid.then_some(i),
            Some(second) if valid && self.before(i, second) => {
                self.in_a_row = self.in_a_row.saturating_add(1)
            }
            Some(second) => self.hand_over(second),
        }
        if let Some(i) = self.current {
            let now = self.lanes[i].spot.head;
            self.another = now != head;
            if matches!(now, 0 | u64::MAX) && !self.skip.is_empty() {
                self.check_base(i);
            }
        }
        Ok(())
    }

    /// The block that begins with the entry it is on, if everything in it comes before every other source; also where the
    /// foremost of these is. Going forward only.
    #[inline]
    pub fn whole_block(&self) -> Option<(&KlogCursor, &Arc<Block>, Option<KeyRef<'_>>)> {
        let (cursor, block) = self.sources[self.current?].whole_block()?;
        let limit = self.second.map(|second| self.sources[second].key());
        let last = block.key(block.len() - 1);
        let before = limit.is_none_or(|limit| last.cmp(self.order, limit) == Less);
        before.then_some((cursor, block, limit))
    }
    /// Goes on behind that block.
    pub fn leave_block(&mut self) -> Result<()> {
        let Some(i) = self.current else { return Ok(()) };
        (self.left, self.another) = (i, false);
        let left = self.sources[i].leave_block();
        if left.is_err() {
            self.current = None;
            return left;
        }
        self.look(i);
        self.choose();
        if let Some(i) = self.current {
            self.check_base(i);
        }
        Ok(())
    }

    /// How many entries of the way lie ahead that a reader at `at` is shown without another look: going forward those behind
    /// the one it is on, going backward that one and those before it.
    #[inline]
    pub fn clear_ahead(&mut self, at: SeqNo) -> usize {
        let Some(i) = self.current else { return 0 };
        let stretch = match self.second {
            None => self.sources[i].clear_ahead(self.forward, at, None),
            Some(_) if self.usual < IN_A_ROW.0 && self.in_a_row < IN_A_ROW.1 => return self.turns_ahead(at),
            Some(second) => match self.sources.get_disjoint_mut([i, second]) {
                Ok([source, second]) => source.clear_ahead(self.forward, at, Some(second.key())),
                Err(_) => 0,
            },
        };
        self.turns.stretch(i, stretch)
    }
    /// The same where sources take turns. Where that finds little (equal heads, many versions, a memtable in between) it is
    /// tried less and less often.
    fn turns_ahead(&mut self, at: SeqNo) -> usize {
        if self.rest > 0 {
            self.rest -= 1;
            return 0;
        }
        let standing = if self.forward { self.current } else { None };
        let n = self.turns.find(&mut self.sources, self.order, standing, at);
        self.poor = if n < FEW { (self.poor + 1).min(REST_LOG) } else { 0 };
        self.rest = (1 << self.poor) - 1;
        n
    }
    /// A step to an entry that was said to be clear; `key` becomes the key that is shown then.
    #[inline]
    pub fn glide(&mut self, key: &mut Vec<u8>) {
        let (Some(last), Some(i)) = (self.current, self.turns.take()) else { return };
        if self.forward {
            self.sources[last].glide(true);
            self.sources[i].key().copy_to(key);
        } else {
            self.sources[i].key().copy_to(key);
            self.sources[i].glide(false);
        }
        (self.current, self.left, self.glided) = (Some(i), i, true);
        self.in_a_row = if i == last { self.in_a_row.saturating_add(1) } else { 0 };
    }
    /// The last of so many entries that are clear.
    pub fn last_clear(&self, n: usize) -> KeyRef<'_> {
        let (i, times) = self.turns.nth(n).expect("so many turns were found");
        let standing = self.forward && self.current == Some(i);
        self.sources[i].key_ahead(self.forward, if standing { times } else { times - 1 })
    }

    /// Whether the last step certainly led to another key; if not, it may have.
    #[inline]
    pub fn on_another_key(&self) -> bool {
        self.another
    }

    /// Takes the heads anew if they say nothing about the key of source `i`.
    #[cold]
    fn check_base(&mut self, i: usize) {
        if !self.sources[i].key().begins_with(&self.skip) {
            self.rebase();
        }
    }

    /// Goes on behind `cut` in every source in which everything is older than the tombstone `seq`; a source that also holds
    /// newer entries takes one step, if it is at hand.
    pub fn leave(&mut self, cut: CutRef<'_>, seq: SeqNo) -> Result<()> {
        let Some(current) = self.current.take() else { return Ok(()) };
        (self.another, self.glided) = (false, false);
        let (order, forward) = (self.order, self.forward);
        for (i, source) in self.sources.iter_mut().enumerate() {
            let inside = source.valid() && {
                source.key().copy_to(&mut self.key);
                cut.is_before(order, &self.key) != forward
            };
            if inside && source.is_older_than(seq) {
                source.leave(cut, forward)?;
            } else if i == current {
                if forward { source.next()? } else { source.prev()? }
            }
        }
        self.rebase();
        self.choose();
        Ok(())
    }
    /// See [`Source::pass`].
    pub fn pass(&mut self) -> u64 {
        self.current.map_or(0, |i| self.sources[i].pass())
    }
    /// Whether it is on an entry.
    #[inline]
    pub fn valid(&self) -> bool {
        self.current.is_some()
    }
    #[inline]
    fn source(&self) -> &Source {
        &self.sources[self.current.expect("a cursor is read only while it is valid")]
    }
    /// The key of the entry it is on.
    #[inline]
    pub fn key(&self) -> KeyRef<'_> {
        self.source().key()
    }
    #[inline]
    fn spot(&self) -> &Spot {
        debug_assert!(!self.glided, "a merge that glided settles first");
        &self.lanes[self.current.expect("a cursor is read only while it is valid")].spot
    }
    /// The sequence number of the entry it is on.
    #[inline]
    pub fn seq(&self) -> SeqNo {
        self.spot().seq
    }
    /// What the entry is.
    #[inline]
    pub fn kind(&self) -> EntryKind {
        self.spot().kind
    }
    /// Its value, borrowed.
    #[inline]
    pub fn value(&self) -> ValueRef<'_> {
        self.source().value()
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
    pub fn found(&self) -> Found {
        self.source().found()
    }
    /// The value of the entry that the last step left, going backward.
    #[inline]
    pub fn left(&self) -> Option<Found> {
        self.sources.get(self.left).and_then(Source::left)
    }
    /// The value of the entry that the last step left, going backward, borrowed, if it is at hand.
    #[inline]
    pub fn left_here(&self) -> Option<ValueRef<'_>> {
        self.sources.get(self.left)?.left_here()
    }
    /// Whether it goes forward.
    #[inline]
    pub fn forward(&self) -> bool {
        self.forward
    }
    /// Fails unless it goes the given way: a guard for callers.
    #[inline]
    pub fn expect_way(&self, forward: bool) -> Result<()> {
        if self.forward == forward {
            Ok(())
        } else {
            Err(Error::internal("a merge was asked to turn without a seek"))
        }
    }
}
