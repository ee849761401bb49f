//! One source of entries in order: a memtable, or a run of tables of which one at a time is open.

use crate::memtable::MemCursor;
use crate::version::Run;
use perigee_base::cut::CutRef;
use perigee_base::io::Cause;
use perigee_base::{EntryRef, KeyOrder, Result, SeqNo};
use perigee_file::{Found, KlogCursor};
use std::sync::Arc;

/// A source. After an error it is not valid until the next seek.
#[derive(Debug)]
pub enum Source {
    /// A memtable.
    Mem(MemCursor),
    /// A run.
    Run(RunCursor),
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
        each!(self, c => { c.seek(key, seq); Ok(()) }, c.seek(key, seq))
    }
    /// To the last entry before (key, seq).
    pub fn seek_before(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        each!(self, c => { c.seek_before(key, seq); Ok(()) }, c.seek_before(key, seq))
    }
    /// To the first entry.
    pub fn seek_first(&mut self) -> Result<()> {
        each!(self, c => { c.seek_first(); Ok(()) }, c.seek_first())
    }
    /// To the last entry.
    pub fn seek_last(&mut self) -> Result<()> {
        each!(self, c => { c.seek_last(); Ok(()) }, c.seek_last())
    }
    /// To the next entry.
    pub fn next(&mut self) -> Result<()> {
        each!(self, c => { c.next(); Ok(()) }, c.next())
    }
    /// To the previous entry.
    pub fn prev(&mut self) -> Result<()> {
        each!(self, c => { c.prev(); Ok(()) }, c.prev())
    }
    /// Whether everything in it is older than `seq`.
    pub fn is_older_than(&mut self, seq: SeqNo) -> bool {
        each!(self, c => c.newest() < seq, c.newest() < seq)
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
    pub fn valid(&self) -> bool {
        each!(self, c => c.valid(), c.valid())
    }
    /// The entry it is on.
    pub fn entry(&self) -> EntryRef<'_> {
        each!(self, c => c.entry(), c.inner().entry())
    }
    /// Its value, pinned.
    pub fn found(&self) -> Found {
        each!(self, c => c.found(), c.inner().found())
    }
}

/// A position in a run.
#[derive(Debug)]
pub struct RunCursor {
    run: Arc<Run>,
    order: KeyOrder,
    fill_cache: bool,
    cause: Cause,
    /// The open table and the position in it.
    open: Option<(usize, KlogCursor)>,
    /// The newest sequence number in the run, once it was asked for.
    newest: Option<SeqNo>,
}

impl RunCursor {
    /// Over `run`, not positioned. `fill_cache`: whether blocks read here enter the block cache.
    pub fn new(run: Arc<Run>, order: KeyOrder, fill_cache: bool) -> RunCursor {
        RunCursor { run, order, fill_cache, cause: Cause::Scan, open: None, newest: None }
    }
    /// The same cursor, its reads counted for `cause` instead of scans.
    #[must_use]
    pub fn caused_by(self, cause: Cause) -> RunCursor {
        RunCursor { cause, ..self }
    }

    /// The newest sequence number in the run.
    fn newest(&mut self) -> SeqNo {
        let largest = |run: &Run| run.tables.iter().map(|t| t.meta.seqs().1).max();
        *self.newest.get_or_insert_with(|| largest(&self.run).unwrap_or_default())
    }

    fn inner(&self) -> &KlogCursor {
        &self.open.as_ref().expect("entry() is called on a valid cursor").1
    }
    /// Whether it is on an entry.
    pub fn valid(&self) -> bool {
        self.open.as_ref().is_some_and(|(_, c)| c.valid())
    }

    /// Opens table `i`, positions it by `go`, and keeps it. Not positioned if there is no table `i` or `go` fails.
    fn enter(&mut self, i: Option<usize>, go: impl FnOnce(&mut KlogCursor) -> Result<()>) -> Result<()> {
        let known = self.open.take();
        let Some((i, table)) = i.and_then(|i| Some((i, self.run.tables.get(i)?))) else { return Ok(()) };
        let mut c = match known {
            Some((j, c)) if j == i => c,
            _ => table.reader.cursor(self.fill_cache).caused_by(self.cause),
        };
        go(&mut c)?;
        self.open = Some((i, c));
        Ok(())
    }

    /// See [`Source::seek`].
    pub fn seek(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        let i = self.run.first_reaching(self.order, key);
        self.enter(Some(i), |c| c.seek(key, seq))?;
        self.skip_forward(i)
    }
    /// See [`Source::seek_before`].
    pub fn seek_before(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        let i = self.run.first_reaching(self.order, key).min(self.run.tables.len().saturating_sub(1));
        self.enter(Some(i), |c| c.seek_before(key, seq))?;
        self.skip_backward(i)
    }
    /// See [`Source::seek_first`].
    pub fn seek_first(&mut self) -> Result<()> {
        self.enter(Some(0), KlogCursor::seek_first)?;
        self.skip_forward(0)
    }
    /// See [`Source::seek_last`].
    pub fn seek_last(&mut self) -> Result<()> {
        let last = self.run.tables.len().saturating_sub(1);
        self.enter(Some(last), KlogCursor::seek_last)?;
        self.skip_backward(last)
    }
    /// See [`Source::next`].
    pub fn next(&mut self) -> Result<()> {
        let Some((i, _)) = self.open else { return Ok(()) };
        self.enter(Some(i), KlogCursor::next)?;
        self.skip_forward(i)
    }
    /// See [`Source::prev`].
    pub fn prev(&mut self) -> Result<()> {
        let Some((i, _)) = self.open else { return Ok(()) };
        self.enter(Some(i), KlogCursor::prev)?;
        self.skip_backward(i)
    }

    /// From the end of table `i` to the first entry of the next.
    fn skip_forward(&mut self, mut i: usize) -> Result<()> {
        while !self.valid() && i + 1 < self.run.tables.len() {
            i += 1;
            self.enter(Some(i), KlogCursor::seek_first)?;
        }
        Ok(())
    }
    /// From the start of table `i` to the last entry of the one before.
    fn skip_backward(&mut self, mut i: usize) -> Result<()> {
        while !self.valid() && i > 0 {
            i -= 1;
            self.enter(Some(i), KlogCursor::seek_last)?;
        }
        Ok(())
    }
}
