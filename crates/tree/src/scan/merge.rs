//! Many sources as one, in entry order. Turning round means seeking again: [`super::visible`] does that, so this
//! room only ever goes the way of its last seek.
//!
//! Of each source the head of its key is kept, a number that decides most comparisons ([`KeyRef::head`]); keys are compared
//! where heads tie. The runner-up is kept too: as long as the current source stays before it, no other is looked at. The
//! choice itself is linear: there are few sources, and a head is one comparison.

use super::cursor::{RunCursor, Source};
use crate::View;
use crate::version::Version;
use perigee_base::cut::CutRef;
use perigee_base::{EntryKind, EntryRef, Error, KeyOrder, KeyRef, Result, SeqNo, ValueRef};
use perigee_file::Found;
use std::cmp::Ordering::{Greater, Less};
use std::sync::Arc;

/// So many bytes before the first difference belong to the heads: the walk goes on behind it.
const SLACK: usize = 4;

/// The merged position. After an error it is not valid until the next seek.
///
/// Invariants while valid: 1. no source is before `current`, and none but it before `second` (`None`: no other source is
/// valid); 2. `heads` are those of the valid sources' keys behind `skip`.
#[derive(Debug)]
pub struct MergeCursor {
    order: KeyOrder,
    sources: Vec<Source>,
    heads: Vec<u64>,
    skip: Vec<u8>,
    current: Option<usize>,
    second: Option<usize>,
    forward: bool,
    /// The source that the last step moved.
    left: usize,
    /// Heads say that the last step led to another key.
    another: bool,
    /// A key in one piece, for who wants it so.
    key: Vec<u8>,
}

impl MergeCursor {
    /// Over these sources.
    pub fn new(order: KeyOrder, sources: Vec<Source>) -> MergeCursor {
        MergeCursor {
            order,
            heads: vec![0; sources.len()],
            sources,
            skip: Vec::new(),
            current: None,
            second: None,
            forward: true,
            left: 0,
            another: false,
            key: Vec::new(),
        }
    }

    /// Over everything in a view: memtables, then runs, each from the newest to the oldest.
    pub fn over_view(view: &View, fill_cache: bool) -> MergeCursor {
        let order = view.version.order;
        let mut sources: Vec<Source> = view.memtables().map(|m| Source::from(m.cursor())).collect();
        sources.extend(Self::runs(&view.version, fill_cache));
        MergeCursor::new(order, sources)
    }

    fn runs(version: &Version, fill_cache: bool) -> impl Iterator<Item = Source> {
        version.runs().map(move |r| Source::Run(RunCursor::new(Arc::clone(r), version.order, fill_cache)))
    }

    /// The run of that number, of a cursor over a view; then it is nowhere until the next seek.
    pub fn run(&mut self, number: usize) -> Option<&mut RunCursor> {
        self.current = None;
        let mut runs = self.sources.iter_mut();
        runs.by_ref().filter_map(Source::as_run).nth(number)
    }

    /// Positions every source by `go`, then chooses.
    fn place(&mut self, forward: bool, go: impl Fn(&mut Source) -> Result<()>) -> Result<()> {
        self.current = None;
        self.another = false;
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
        for i in 0..self.sources.len() {
            if self.sources[i].valid() {
                self.take_head(i);
            }
        }
    }

    /// Of a valid source.
    #[inline]
    fn take_head(&mut self, i: usize) {
        let head = self.sources[i].key().head(self.order, &self.skip);
        self.heads[i] = if self.forward { head } else { !head };
    }

    /// Whether source `a` comes before source `b`, both valid.
    #[inline]
    fn before(&self, a: usize, b: usize) -> bool {
        let (x, y) = (self.heads[a], self.heads[b]);
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
        for i in (0..self.sources.len()).filter(|i| self.sources[*i].valid()) {
            if best.is_none_or(|b| self.before(i, b)) {
                (best, second) = (Some(i), best);
            } else if second.is_none_or(|s| self.before(i, s)) {
                second = Some(i);
            }
        }
        (self.current, self.second) = (best, second);
    }

    /// To the first entry at or after (key, seq), going forward.
    pub fn seek(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        self.place(true, |s| s.seek(key, seq))
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
        let Some(i) = self.current else { return Ok(()) };
        let source = &mut self.sources[i];
        let stepped = if self.forward { source.next() } else { source.prev() };
        if stepped.is_err() {
            self.current = None;
            return stepped;
        }
        self.left = i;
        let head = self.heads[i];
        let valid = self.sources[i].valid();
        if valid {
            self.take_head(i);
        }
        match self.second {
            None => self.current = valid.then_some(i),
            Some(second) if valid && self.before(i, second) => {}
            Some(_) => self.choose(),
        }
        if let Some(i) = self.current {
            self.another = self.heads[i] != head;
            if matches!(self.heads[i], 0 | u64::MAX) && !self.skip.is_empty() {
                self.check_base(i);
            }
        }
        Ok(())
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
        self.another = false;
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
    /// Whether it is on an entry.
    #[inline]
    pub fn valid(&self) -> bool {
        self.current.is_some()
    }
    #[inline]
    fn source(&self) -> &Source {
        &self.sources[self.current.expect("a cursor is read only while it is valid")]
    }
    /// The key and the sequence number of the entry it is on.
    #[inline]
    pub fn at(&self) -> (KeyRef<'_>, SeqNo) {
        let source = self.source();
        (source.key(), source.seq())
    }
    /// What the entry is.
    #[inline]
    pub fn kind(&self) -> EntryKind {
        self.source().kind()
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
