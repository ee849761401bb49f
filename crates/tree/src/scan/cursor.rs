//! One source of entries in order: a memtable, or a run of tables of which one at a time is open.

use crate::memtable::MemCursor;
use crate::version::Run;
use perigee_base::cut::CutRef;
use perigee_base::io::Cause;
use perigee_base::{EntryKind, KeyOrder, KeyRef, Result, SeqNo, ValueRef};
use perigee_file::{Block, Found, KlogCursor, Spot, Strand};
use std::sync::Arc;

/// Tombstones that scans pass are told of so many at a time: a scan that meets fewer has no reason to complain.
const TOLD: u64 = 64;

/// A source. After an error it is not valid until the next seek.
#[derive(Debug)]
pub enum Source {
    /// A memtable.
    Mem(MemSource),
    /// A run.
    Run(RunCursor),
}

/// What is known of a source's way ahead.
#[derive(Clone, Copy, Debug)]
pub enum Ahead<'a> {
    /// It is on no entry.
    Nothing,
    /// Its key, and of what follows nothing: so of a memtable.
    Only(KeyRef<'a>),
    /// Some entries in a row.
    Known(Strand<'a>),
}

macro_rules! each {
    ($self:ident, $c:ident => $mem:expr, $run:expr) => {
        match $self {
            Source::Mem($c) => $mem,
            Source::Run($c) => $run,
        }
    };
}

impl Source {
    /// To the first entry at or after (key, seq).
    pub fn seek(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        each!(self, c => { c.cursor.seek(key, seq); Ok(()) }, c.seek(key, seq))
    }
    /// To the last entry before (key, seq).
    pub fn seek_before(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        each!(self, c => { c.cursor.seek_before(key, seq); Ok(()) }, c.seek_before(key, seq))
    }
    /// The next seek begins a walk.
    pub fn expect_walk(&mut self, forward: bool) {
        if let Source::Run(run) = self {
            run.walk = Some(forward);
        }
    }
    /// To the first entry.
    pub fn seek_first(&mut self) -> Result<()> {
        each!(self, c => { c.cursor.seek_first(); Ok(()) }, c.seek_first())
    }
    /// To the last entry.
    pub fn seek_last(&mut self) -> Result<()> {
        each!(self, c => { c.cursor.seek_last(); Ok(()) }, c.seek_last())
    }
    /// To the next entry.
    #[inline]
    pub fn next(&mut self) -> Result<()> {
        each!(self, c => { c.cursor.next(); Ok(()) }, c.next())
    }
    /// To the previous entry.
    #[inline]
    pub fn prev(&mut self) -> Result<()> {
        each!(self, c => { c.prev(); Ok(()) }, c.prev())
    }
    /// A step, if it stays in the block at hand; what a merge wants to know of the entry.
    #[inline]
    pub fn step_inside(&mut self, forward: bool, skip: &[u8]) -> Option<Spot> {
        let Source::Run(RunCursor { open: Some(c), left, .. }) = self else { return None };
        if !forward && left.is_some() {
            *left = None;
        }
        c.step_inside(forward, skip)
    }
    /// The same of the entry it is on.
    pub fn spot(&self, order: KeyOrder, skip: &[u8]) -> Spot {
        Spot { head: self.key().head(order, skip), seq: self.seq(), kind: self.kind() }
    }
    /// The cursor of the table it is in, if that is at the beginning of a block that may be moved as it is.
    #[inline]
    pub fn whole_block(&self) -> Option<(&KlogCursor, &Arc<Block>)> {
        let Source::Run(RunCursor { open: Some(c), .. }) = self else { return None };
        c.whole_block().map(|block| (c, block))
    }
    /// To the first entry behind the block at hand; a memtable has none.
    pub fn leave_block(&mut self) -> Result<()> {
        let Source::Run(run) = self else { return self.next() };
        let Some(c) = &mut run.open else { return Ok(()) };
        c.leave_block()?;
        if c.valid() { Ok(()) } else { run.skip_forward(run.table) }
    }
    /// The run, if it is one.
    pub fn as_run(&mut self) -> Option<&mut RunCursor> {
        if let Source::Run(run) = self { Some(run) } else { None }
    }
    /// Whether everything in it is older than `seq`.
    pub fn is_older_than(&mut self, seq: SeqNo) -> bool {
        each!(self, c => c.cursor.newest() < seq, c.newest() < seq)
    }
    /// To the first entry behind a place, or (not `forward`) to the last before it.
    pub fn leave(&mut self, cut: CutRef<'_>, forward: bool) -> Result<()> {
        match (cut, forward) {
            (CutRef::Before(k), true) => self.seek(k, SeqNo::MAX),
            (CutRef::After(k), true) => self.seek(k, SeqNo::ZERO),
            (CutRef::Before(k), false) => self.seek_before(k, SeqNo::MAX),
            (CutRef::After(k), false) => self.seek_before(k, SeqNo::ZERO),
            (CutRef::First, true) => self.seek_first(),
            (CutRef::Last, false) => self.seek_last(),
            (CutRef::Last, true) => {
                self.seek_last()?;
                self.next()
            }
            (CutRef::First, false) => {
                self.seek_first()?;
                self.prev()
            }
        }
    }
    /// Whether it is on an entry.
    #[inline]
    pub fn valid(&self) -> bool {
        each!(self, c => c.cursor.valid(), c.valid())
    }
    /// The key it is on.
    #[inline]
    pub fn key(&self) -> KeyRef<'_> {
        each!(self, c => KeyRef::whole(c.cursor.key()), c.inner().key())
    }
    /// The sequence number of the entry it is on.
    #[inline]
    pub fn seq(&self) -> SeqNo {
        each!(self, c => c.cursor.seq(), c.inner().seq())
    }
    /// What the entry is.
    #[inline]
    pub fn kind(&self) -> EntryKind {
        each!(self, c => c.cursor.kind(), c.inner().kind())
    }
    /// The value, borrowed.
    #[inline]
    pub fn value(&self) -> ValueRef<'_> {
        each!(self, c => c.cursor.value(), c.inner().value())
    }
    /// Its value, pinned.
    #[inline]
    pub fn found(&self) -> Found {
        each!(self, c => c.cursor.found(), c.inner().found())
    }
    /// Whether its block at hand reaches as far as `key`; a memtable has none.
    pub fn reaches(&self, key: &[u8]) -> bool {
        matches!(self, Source::Run(RunCursor { open: Some(c), .. }) if c.reaches(key))
    }
    /// A scan passes the tombstone that it is on. The memtable or table is told of every [`TOLD`] together: so many, or 0.
    pub fn pass(&mut self) -> u64 {
        let passed = each!(self, c => &mut c.passed, &mut c.passed);
        *passed = (*passed + 1) % TOLD;
        if *passed > 0 {
            return 0;
        }
        each!(self, c => c.cursor.pass(TOLD), c.pass());
        TOLD
    }
    /// See [`KlogCursor::clear_ahead`]; a memtable says nothing.
    #[inline]
    pub fn clear_ahead(&mut self, forward: bool, at: SeqNo, limit: Option<KeyRef<'_>>) -> usize {
        match self {
            Source::Mem(_) => 0,
            Source::Run(c) => c.open.as_mut().map_or(0, |c| c.clear_ahead(forward, at, limit)),
        }
    }
    /// What is known of the way ahead, for a reader at `at`.
    #[inline]
    pub fn ahead(&mut self, forward: bool, at: SeqNo) -> Ahead<'_> {
        match self {
            _ if !self.valid() => Ahead::Nothing,
            Source::Run(RunCursor { open: Some(c), .. }) => {
                let known = c.look_around(forward, at);
                c.strand().filter(|_| known).map_or_else(|| Ahead::Only(c.key()), Ahead::Known)
            }
            _ => Ahead::Only(self.key()),
        }
    }
    /// A step to an entry that is clear.
    #[inline]
    pub fn glide(&mut self, forward: bool) {
        if let Source::Run(RunCursor { open: Some(c), left, .. }) = self {
            *left = None;
            c.glide(forward);
        }
    }
    /// The key so many entries further on the way, which are clear (or the one it is on).
    pub fn key_ahead(&self, forward: bool, n: usize) -> KeyRef<'_> {
        each!(self, c => KeyRef::whole(c.cursor.entry().key), c.inner().key_ahead(forward, n))
    }
    /// The value of the entry that the last step backward left, borrowed, if it is at hand.
    #[inline]
    pub fn left_here(&self) -> Option<ValueRef<'_>> {
        match self {
            Source::Mem(_) => None,
            Source::Run(c) => c.open.as_ref().filter(|_| c.left.is_none())?.left_here(),
        }
    }
    /// The value of the entry that the last `prev` left, if nothing moved the source since.
    #[inline]
    pub fn left(&self) -> Option<Found> {
        each!(self, c => c.left.clone(), c.left())
    }
}

/// A position in a memtable, and the value that `prev` left last.
#[derive(Debug)]
pub struct MemSource {
    cursor: MemCursor,
    left: Option<Found>,
    passed: u64,
}

impl MemSource {
    fn prev(&mut self) {
        self.left = self.cursor.valid().then(|| self.cursor.found());
        self.cursor.prev();
    }
}

impl From<MemCursor> for Source {
    fn from(cursor: MemCursor) -> Source {
        Source::Mem(MemSource { cursor, left: None, passed: 0 })
    }
}

/// A position in a run.
#[derive(Debug)]
pub struct RunCursor {
    run: Arc<Run>,
    order: KeyOrder,
    fill_cache: bool,
    cause: Cause,
    /// The next seek begins a walk (forward: true).
    walk: Option<bool>,
    /// The open table and the position in it.
    open: Option<KlogCursor>,
    /// The number of that table.
    table: usize,
    /// What `prev` left, if that was another table.
    left: Option<Found>,
    /// The newest sequence number in the run, once it was asked for.
    newest: Option<SeqNo>,
    /// Tombstones passed that nobody was told of.
    passed: u64,
}

impl RunCursor {
    /// Over `run`, not positioned. `fill_cache`: whether blocks read here enter the block cache.
    pub fn new(run: Arc<Run>, order: KeyOrder, fill_cache: bool) -> RunCursor {
        let cause = Cause::Scan;
        let (walk, open, left, newest) = (None, None, None, None);
        RunCursor { run, order, fill_cache, cause, walk, open, table: 0, left, newest, passed: 0 }
    }
    /// The same cursor, its reads counted for `cause` instead of scans.
    #[must_use]
    pub fn caused_by(self, cause: Cause) -> RunCursor {
        RunCursor { cause, ..self }
    }

    /// Tells the table at hand.
    fn pass(&self) {
        if let Some(table) = self.run.tables.get(self.table) {
            table.reader.pass(TOLD);
        }
    }
    /// The newest sequence number in the run.
    fn newest(&mut self) -> SeqNo {
        let largest = |run: &Run| run.tables.iter().map(|t| t.meta.seqs().1).max();
        *self.newest.get_or_insert_with(|| largest(&self.run).unwrap_or_default())
    }

    #[inline]
    fn inner(&self) -> &KlogCursor {
        self.open.as_ref().expect("a cursor is read only while it is valid")
    }
    /// Whether it is on an entry.
    #[inline]
    pub fn valid(&self) -> bool {
        self.open.as_ref().is_some_and(KlogCursor::valid)
    }
    /// See [`Source::left`].
    fn left(&self) -> Option<Found> {
        self.left.clone().or_else(|| self.open.as_ref()?.left())
    }

    /// Opens table `i` and positions it by `go`. Not positioned if there is no table `i` or `go` fails.
    fn enter(&mut self, i: usize, go: impl FnOnce(&mut KlogCursor) -> Result<()>) -> Result<()> {
        let Some(table) = self.run.tables.get(i) else {
            self.open = None;
            return Ok(());
        };
        if self.table != i || self.open.is_none() {
            self.open = Some(table.reader.cursor(self.fill_cache).caused_by(self.cause));
            self.table = i;
        }
        let open = self.open.as_mut().expect("just opened");
        if let Some(forward) = self.walk.take() {
            open.expect_walk(forward);
        }
        go(open)
    }

    /// The newest version of `key` that a reader at `at` sees. The run's filters are asked first; if they let the key pass,
    /// the cursor stands where it is or would be, its block at hand for the next seek.
    pub fn find(&mut self, key: &[u8], hash: u64, at: SeqNo) -> Result<Option<(SeqNo, Found)>> {
        let i = self.run.first_reaching(self.order, key);
        if self.run.tables.get(i).is_none_or(|t| t.reader.rules_out(hash)) {
            return Ok(None);
        }
        self.enter(i, |c| c.seek(key, at))?;
        let here = self.open.as_ref().filter(|c| c.valid() && c.key().is(self.order, key));
        Ok(here.map(|c| (c.seq(), c.found())))
    }

    /// See [`Source::seek`].
    pub fn seek(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        let i = self.run.first_reaching(self.order, key);
        self.enter(i, |c| c.seek(key, seq))?;
        self.skip_forward(i)
    }
    /// See [`Source::seek_before`].
    pub fn seek_before(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        let i = self.run.first_reaching(self.order, key).min(self.run.tables.len().saturating_sub(1));
        self.enter(i, |c| c.seek_before(key, seq))?;
        self.skip_backward(i)
    }
    /// See [`Source::seek_first`].
    pub fn seek_first(&mut self) -> Result<()> {
        self.enter(0, KlogCursor::seek_first)?;
        self.skip_forward(0)
    }
    /// See [`Source::seek_last`].
    pub fn seek_last(&mut self) -> Result<()> {
        let last = self.run.tables.len().saturating_sub(1);
        self.enter(last, KlogCursor::seek_last)?;
        self.skip_backward(last)
    }
    /// See [`Source::next`].
    #[inline]
    pub fn next(&mut self) -> Result<()> {
        let Some(c) = &mut self.open else { return Ok(()) };
        c.next()?;
        if c.valid() { Ok(()) } else { self.skip_forward(self.table) }
    }
    /// See [`Source::prev`].
    #[inline]
    pub fn prev(&mut self) -> Result<()> {
        let Some(c) = &mut self.open else { return Ok(()) };
        self.left = None;
        c.prev()?;
        if c.valid() || self.table == 0 {
            return Ok(());
        }
        self.left = c.left();
        self.skip_backward(self.table)
    }

    /// From the end of table `i` to the first entry of the next.
    fn skip_forward(&mut self, mut i: usize) -> Result<()> {
        while !self.valid() && i + 1 < self.run.tables.len() {
            i += 1;
            self.enter(i, KlogCursor::seek_first)?;
        }
        Ok(())
    }
    /// From the start of table `i` to the last entry of the one before.
    fn skip_backward(&mut self, mut i: usize) -> Result<()> {
        while !self.valid() && i > 0 {
            i -= 1;
            self.enter(i, KlogCursor::seek_last)?;
        }
        Ok(())
    }
}
