//! One source of entries in order: a memtable, or a run of tables of which one at a time is open.

use crate::memtable::MemtableCursor;
use crate::version::Run;
use perigee_base::io_stats::IoActivity;
use perigee_base::key_boundary::KeyBoundaryRef;
use perigee_base::{EntryKind, KeyComparator, KeyRef, Result, SeqNo, ValueRef};
use perigee_file::{EntryMeta, EntryValue, EntryWindowView, KlogCursor, TableBlock};
use std::sync::Arc;

/// Tombstones that scans pass are told of so many at a time: a scan that meets fewer has no reason
/// to complain.
const SKIPS_PER_REPORT: u64 = 64;

/// A source. After an error it is not valid until the next seek.
#[derive(Debug)]
pub enum SourceCursor {
    /// A memtable.
    Mem(MemtableSource),
    /// A run.
    Run(RunCursor),
}

/// What is known of a source's way ahead.
#[derive(Clone, Copy, Debug)]
pub enum SourceLookahead<'a> {
    /// It is on no entry.
    Exhausted,
    /// Its key, and of what follows nothing: so of a memtable.
    KeyOnly(KeyRef<'a>),
    /// Some entries in a row.
    Known(EntryWindowView<'a>),
}

macro_rules! each {
    ($self:ident, $c:ident => $mem:expr, $run:expr) => {
        match $self {
            SourceCursor::Mem($c) => $mem,
            SourceCursor::Run($c) => $run,
        }
    };
}

impl SourceCursor {
    /// To the first entry at or after (key, seq).
    pub fn seek(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        each!(self, c => { c.cursor.seek(key, seq); Ok(()) }, c.seek(key, seq))
    }
    /// To the last entry before (key, seq).
    pub fn seek_before(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        each!(self, c => { c.cursor.seek_before(key, seq); Ok(()) }, c.seek_before(key, seq))
    }
    /// The next seek begins a walk.
    pub fn expect_scan(&mut self, forward: bool) {
        if let SourceCursor::Run(run) = self {
            run.expected_scan = Some(forward);
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
    pub fn step_in_block(&mut self, forward: bool, skip: &[u8]) -> Option<EntryMeta> {
        let SourceCursor::Run(RunCursor { table_cursor: Some(c), left_value: left, .. }) = self
        else {
            return None;
        };
        if !forward && left.is_some() {
            *left = None;
        }
        c.step_in_block(forward, skip)
    }
    /// The same of the entry it is on.
    pub fn entry_meta(&self, order: KeyComparator, skip: &[u8]) -> EntryMeta {
        EntryMeta {
            key_prefix: self.key().key_prefix(order, skip),
            seq: self.seq(),
            kind: self.kind(),
        }
    }
    /// The cursor of the table it is in, if that is at the beginning of a block that may be moved
    /// as it is.
    #[inline]
    pub fn passthrough_block(&self) -> Option<(&KlogCursor, &Arc<TableBlock>)> {
        let SourceCursor::Run(RunCursor { table_cursor: Some(c), .. }) = self else { return None };
        c.block_at_start().map(|block| (c, block))
    }
    /// To the first entry behind the block at hand; a memtable has none.
    pub fn skip_block(&mut self) -> Result<()> {
        let SourceCursor::Run(run) = self else { return self.next() };
        let Some(c) = &mut run.table_cursor else { return Ok(()) };
        c.skip_block()?;
        if c.valid() { Ok(()) } else { run.skip_forward(run.table_index) }
    }
    /// The run, if it is one.
    pub fn as_run(&mut self) -> Option<&mut RunCursor> {
        if let SourceCursor::Run(run) = self { Some(run) } else { None }
    }
    /// Whether everything in it is older than `seq`.
    pub fn is_older_than(&mut self, seq: SeqNo) -> bool {
        each!(self, c => c.cursor.newest_seq() < seq, c.newest_seq() < seq)
    }
    /// To the first entry behind a place, or (not `forward`) to the last before it.
    pub fn seek_past(&mut self, cut: KeyBoundaryRef<'_>, forward: bool) -> Result<()> {
        match (cut, forward) {
            (KeyBoundaryRef::Before(k), true) => self.seek(k, SeqNo::MAX),
            (KeyBoundaryRef::After(k), true) => self.seek(k, SeqNo::ZERO),
            (KeyBoundaryRef::Before(k), false) => self.seek_before(k, SeqNo::MAX),
            (KeyBoundaryRef::After(k), false) => self.seek_before(k, SeqNo::ZERO),
            (KeyBoundaryRef::First, true) => self.seek_first(),
            (KeyBoundaryRef::Last, false) => self.seek_last(),
            (KeyBoundaryRef::Last, true) => {
                self.seek_last()?;
                self.next()
            }
            (KeyBoundaryRef::First, false) => {
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
        each!(self, c => KeyRef::from_key(c.cursor.key()), c.current_cursor().key())
    }
    /// The sequence number of the entry it is on.
    #[inline]
    pub fn seq(&self) -> SeqNo {
        each!(self, c => c.cursor.seq(), c.current_cursor().seq())
    }
    /// What the entry is.
    #[inline]
    pub fn kind(&self) -> EntryKind {
        each!(self, c => c.cursor.kind(), c.current_cursor().kind())
    }
    /// The value, borrowed.
    #[inline]
    pub fn value(&self) -> ValueRef<'_> {
        each!(self, c => c.cursor.value(), c.current_cursor().value())
    }
    /// Its value, pinned.
    #[inline]
    pub fn entry_value(&self) -> EntryValue {
        each!(self, c => c.cursor.entry_value(), c.current_cursor().pinned_value())
    }
    /// Whether its block at hand reaches as far as `key`; a memtable has none.
    pub fn block_reaches(&self, key: &[u8]) -> bool {
        matches!(self, SourceCursor::Run(RunCursor { table_cursor: Some(c), .. }) if c.block_covers_key(key))
    }
    /// A scan passes the tombstone that it is on. The memtable or table is told of every
    /// [`SKIPS_PER_REPORT`] together: so many, or 0.
    pub fn skip_tombstone(&mut self) -> u64 {
        let passed = each!(self, c => &mut c.unreported_skips, &mut c.unreported_skips);
        *passed = (*passed + 1) % SKIPS_PER_REPORT;
        if *passed > 0 {
            return 0;
        }
        each!(self, c => c.cursor.add_skipped_tombstones(SKIPS_PER_REPORT), c.report_skipped());
        SKIPS_PER_REPORT
    }
    /// See [`KlogCursor::clear_ahead`]; a memtable says nothing.
    #[inline]
    pub fn count_visible_ahead(
        &mut self,
        forward: bool,
        at: SeqNo,
        limit: Option<KeyRef<'_>>,
    ) -> usize {
        match self {
            SourceCursor::Mem(_) => 0,
            SourceCursor::Run(c) => {
                c.table_cursor.as_mut().map_or(0, |c| c.count_clear_ahead(forward, at, limit))
            }
        }
    }
    /// What is known of the way ahead, for a reader at `at`.
    #[inline]
    pub fn lookahead(&mut self, forward: bool, at: SeqNo) -> SourceLookahead<'_> {
        match self {
            _ if !self.valid() => SourceLookahead::Exhausted,
            SourceCursor::Run(RunCursor { table_cursor: Some(c), .. }) => {
                let known = c.decode_around(forward, at);
                c.window_view()
                    .filter(|_| known)
                    .map_or_else(|| SourceLookahead::KeyOnly(c.key()), SourceLookahead::Known)
            }
            _ => SourceLookahead::KeyOnly(self.key()),
        }
    }
    /// A step to an entry that is clear.
    #[inline]
    pub fn step_visible(&mut self, forward: bool) {
        if let SourceCursor::Run(RunCursor { table_cursor: Some(c), left_value: left, .. }) = self {
            *left = None;
            c.step_clear(forward);
        }
    }
    /// The key so many entries further on the way, which are clear (or the one it is on).
    pub fn key_ahead(&self, forward: bool, n: usize) -> KeyRef<'_> {
        each!(self, c => KeyRef::from_key(c.cursor.entry().key), c.current_cursor().key_ahead(forward, n))
    }
    /// The value of the entry that the last step backward left, borrowed, if it is at hand.
    #[inline]
    pub fn left_value_ref(&self) -> Option<ValueRef<'_>> {
        match self {
            SourceCursor::Mem(_) => None,
            SourceCursor::Run(c) => {
                c.table_cursor.as_ref().filter(|_| c.left_value.is_none())?.left_value_ref()
            }
        }
    }
    /// The value of the entry that the last `prev` left, if nothing moved the source since.
    #[inline]
    pub fn left_value(&self) -> Option<EntryValue> {
        each!(self, c => c.left_value.clone(), c.left_value())
    }
}

/// A position in a memtable, and the value that `prev` left last.
#[derive(Debug)]
pub struct MemtableSource {
    cursor: MemtableCursor,
    left_value: Option<EntryValue>,
    unreported_skips: u64,
}

impl MemtableSource {
    fn prev(&mut self) {
        self.left_value = self.cursor.valid().then(|| self.cursor.entry_value());
        self.cursor.prev();
    }
}

impl From<MemtableCursor> for SourceCursor {
    fn from(cursor: MemtableCursor) -> SourceCursor {
        SourceCursor::Mem(MemtableSource { cursor, left_value: None, unreported_skips: 0 })
    }
}

/// A position in a run.
#[derive(Debug)]
pub struct RunCursor {
    run: Arc<Run>,
    comparator: KeyComparator,
    fill_cache: bool,
    cause: IoActivity,
    /// The next seek begins a walk (forward: true).
    expected_scan: Option<bool>,
    /// The open table and the position in it.
    table_cursor: Option<KlogCursor>,
    /// The number of that table.
    table_index: usize,
    /// What `prev` left, if that was another table.
    left_value: Option<EntryValue>,
    /// The newest sequence number in the run, once it was asked for.
    newest_seq: Option<SeqNo>,
    /// Tombstones passed that nobody was told of.
    unreported_skips: u64,
}

impl RunCursor {
    /// Over `run`, not positioned. `fill_cache`: whether blocks read here enter the block cache.
    pub fn new(run: Arc<Run>, order: KeyComparator, fill_cache: bool) -> RunCursor {
        let cause = IoActivity::Scan;
        let (walk, open, left, newest) = (None, None, None, None);
        RunCursor {
            run,
            comparator: order,
            fill_cache,
            cause,
            expected_scan: walk,
            table_cursor: open,
            table_index: 0,
            left_value: left,
            newest_seq: newest,
            unreported_skips: 0,
        }
    }
    /// The same cursor, its reads counted for `cause` instead of scans.
    #[must_use]
    pub fn with_cause(self, cause: IoActivity) -> RunCursor {
        RunCursor { cause, ..self }
    }

    /// Tells the table at hand.
    fn report_skipped(&self) {
        if let Some(table) = self.run.tables.get(self.table_index) {
            table.reader.add_skipped_tombstones(SKIPS_PER_REPORT);
        }
    }
    /// The newest sequence number in the run.
    fn newest_seq(&mut self) -> SeqNo {
        let largest = |run: &Run| run.tables.iter().map(|t| t.meta.seq_range().1).max();
        *self.newest_seq.get_or_insert_with(|| largest(&self.run).unwrap_or_default())
    }

    #[inline]
    fn current_cursor(&self) -> &KlogCursor {
        self.table_cursor.as_ref().expect("a cursor is read only while it is valid")
    }
    /// Whether it is on an entry.
    #[inline]
    pub fn valid(&self) -> bool {
        self.table_cursor.as_ref().is_some_and(KlogCursor::valid)
    }
    /// See [`Source::left`].
    fn left_value(&self) -> Option<EntryValue> {
        self.left_value.clone().or_else(|| self.table_cursor.as_ref()?.left_value())
    }

    /// Opens table `i` and positions it by `go`. Not positioned if there is no table `i` or `go`
    /// fails.
    fn open_table(
        &mut self,
        i: usize,
        go: impl FnOnce(&mut KlogCursor) -> Result<()>,
    ) -> Result<()> {
        let Some(table) = self.run.tables.get(i) else {
            self.table_cursor = None;
            return Ok(());
        };
        if self.table_index != i || self.table_cursor.is_none() {
            self.table_cursor = Some(table.reader.cursor(self.fill_cache).caused_by(self.cause));
            self.table_index = i;
        }
        let open = self.table_cursor.as_mut().expect("just opened");
        if let Some(forward) = self.expected_scan.take() {
            open.expect_scan(forward);
        }
        go(open)
    }

    /// The newest version of `key` that a reader at `at` sees. The run's filters are asked first;
    /// if they let the key pass, the cursor stands where it is or would be, its block at hand for
    /// the next seek.
    pub fn find_version(
        &mut self,
        key: &[u8],
        hash: u64,
        at: SeqNo,
    ) -> Result<Option<(SeqNo, EntryValue)>> {
        let i = self.run.first_table_reaching(self.comparator, key);
        if self.run.tables.get(i).is_none_or(|t| t.reader.filter_excludes(hash)) {
            return Ok(None);
        }
        self.open_table(i, |c| c.seek(key, at))?;
        let here = self
            .table_cursor
            .as_ref()
            .filter(|c| c.valid() && c.key().equals(self.comparator, key));
        Ok(here.map(|c| (c.seq(), c.pinned_value())))
    }

    /// See [`Source::seek`].
    pub fn seek(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        let i = self.run.first_table_reaching(self.comparator, key);
        self.open_table(i, |c| c.seek(key, seq))?;
        self.skip_forward(i)
    }
    /// See [`Source::seek_before`].
    pub fn seek_before(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        let i = self
            .run
            .first_table_reaching(self.comparator, key)
            .min(self.run.tables.len().saturating_sub(1));
        self.open_table(i, |c| c.seek_before(key, seq))?;
        self.skip_backward(i)
    }
    /// See [`Source::seek_first`].
    pub fn seek_first(&mut self) -> Result<()> {
        self.open_table(0, KlogCursor::seek_first)?;
        self.skip_forward(0)
    }
    /// See [`Source::seek_last`].
    pub fn seek_last(&mut self) -> Result<()> {
        let last = self.run.tables.len().saturating_sub(1);
        self.open_table(last, KlogCursor::seek_last)?;
        self.skip_backward(last)
    }
    /// See [`Source::next`].
    #[inline]
    pub fn next(&mut self) -> Result<()> {
        let Some(c) = &mut self.table_cursor else { return Ok(()) };
        c.next()?;
        if c.valid() { Ok(()) } else { self.skip_forward(self.table_index) }
    }
    /// See [`Source::prev`].
    #[inline]
    pub fn prev(&mut self) -> Result<()> {
        let Some(c) = &mut self.table_cursor else { return Ok(()) };
        self.left_value = None;
        c.prev()?;
        if c.valid() || self.table_index == 0 {
            return Ok(());
        }
        self.left_value = c.left_value();
        self.skip_backward(self.table_index)
    }

    /// From the end of table `i` to the first entry of the next.
    fn skip_forward(&mut self, mut i: usize) -> Result<()> {
        while !self.valid() && i + 1 < self.run.tables.len() {
            i += 1;
            self.open_table(i, KlogCursor::seek_first)?;
        }
        Ok(())
    }
    /// From the start of table `i` to the last entry of the one before.
    fn skip_backward(&mut self, mut i: usize) -> Result<()> {
        while !self.valid() && i > 0 {
            i -= 1;
            self.open_table(i, KlogCursor::seek_last)?;
        }
        Ok(())
    }
}
