//! Sources of a merge, each in entry order: a memtable, or a run of tables of which one at a time
//! is open.

use crate::memtable::MemtableCursor;
use crate::version::Run;
use perigee_base::{
    EntryKind, IoActivity, KeyBoundaryRef, KeyComparator, KeyRef, Result, SeqNo, ValueRef,
};
use perigee_file::{EntryMeta, EntryValue, EntryWindowView, KlogCursor, TableBlock};
use std::sync::Arc;

/// Number of tombstones skipped by a scan that are reported to the memtable or table at a time. A
/// scan that skips fewer reports nothing.
const SKIPS_PER_REPORT: u64 = 64;

/// A source of entries. After an error it is not valid until the next seek.
#[derive(Debug)]
pub enum SourceCursor {
    /// A memtable.
    Mem(MemtableSource),
    /// A run.
    Run(RunCursor),
}

/// The entries ahead of a source's position, as far as they are known.
#[derive(Clone, Copy, Debug)]
pub enum SourceLookahead<'a> {
    /// The source is not on an entry.
    Exhausted,
    /// Only the current key is known, as in a memtable.
    KeyOnly(KeyRef<'a>),
    /// Several consecutive entries are known.
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
    /// Moves to the first entry at or after (key, seq).
    pub fn seek(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        each!(self, c => { c.cursor.seek(key, seq); Ok(()) }, c.seek(key, seq))
    }
    /// Moves to the last entry before (key, seq).
    pub fn seek_before(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        each!(self, c => { c.cursor.seek_before(key, seq); Ok(()) }, c.seek_before(key, seq))
    }
    /// Announces that a scan starts with the next seek.
    pub fn expect_scan(&mut self, forward: bool) {
        if let SourceCursor::Run(run) = self {
            run.expected_scan = Some(forward);
        }
    }
    /// Moves to the first entry.
    pub fn seek_first(&mut self) -> Result<()> {
        each!(self, c => { c.cursor.seek_first(); Ok(()) }, c.seek_first())
    }
    /// Moves to the last entry.
    pub fn seek_last(&mut self) -> Result<()> {
        each!(self, c => { c.cursor.seek_last(); Ok(()) }, c.seek_last())
    }
    /// Moves to the next entry.
    #[inline]
    pub fn next(&mut self) -> Result<()> {
        each!(self, c => { c.next(); Ok(()) }, c.next())
    }
    /// Moves to the next entry; a memtable may skip versions of the current key.
    #[inline]
    pub fn next_key(&mut self) -> Result<()> {
        each!(self, c => { c.next_key(); Ok(()) }, c.next())
    }
    /// Moves to the previous entry.
    #[inline]
    pub fn prev(&mut self) -> Result<()> {
        each!(self, c => { c.prev(); Ok(()) }, c.prev())
    }
    /// Steps if the next entry is in the current block; returns the entry's data that a merge
    /// needs.
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
    /// Returns the same data for the current entry.
    pub fn entry_meta(&self, comparator: KeyComparator, skip: &[u8]) -> EntryMeta {
        EntryMeta {
            key_prefix: self.key().key_prefix(comparator, skip),
            seq: self.seq(),
            kind: self.kind(),
        }
    }
    /// Returns the cursor of the current table, if it is at the start of a block that may be copied
    /// as it is.
    #[inline]
    pub fn passthrough_block(&self) -> Option<(&KlogCursor, &Arc<TableBlock>)> {
        let SourceCursor::Run(RunCursor { table_cursor: Some(c), .. }) = self else { return None };
        c.block_at_start().map(|block| (c, block))
    }
    /// Moves to the first entry after the current block; on a memtable, to the next entry.
    pub fn skip_block(&mut self) -> Result<()> {
        let SourceCursor::Run(run) = self else { return self.next() };
        let Some(c) = &mut run.table_cursor else { return Ok(()) };
        c.skip_block()?;
        if c.valid() { Ok(()) } else { run.skip_forward(run.table_index) }
    }
    /// Returns the run, if the source is one.
    pub fn as_run(&mut self) -> Option<&mut RunCursor> {
        if let SourceCursor::Run(run) = self { Some(run) } else { None }
    }
    /// Returns true if all entries of the source are older than `seq`.
    pub fn is_older_than(&mut self, seq: SeqNo) -> bool {
        each!(self, c => c.cursor.newest_seq() < seq, c.newest_seq() < seq)
    }
    /// Moves to the first entry after a boundary, or if not `forward` to the last one before it.
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
    /// Returns true if the source is on an entry.
    #[inline]
    pub fn valid(&self) -> bool {
        each!(self, c => c.cursor.valid(), c.valid())
    }
    /// Returns the current key.
    #[inline]
    pub fn key(&self) -> KeyRef<'_> {
        each!(self, c => KeyRef::from_key(c.cursor.key()), c.current_cursor().key())
    }
    /// Returns the sequence number of the current entry.
    #[inline]
    pub fn seq(&self) -> SeqNo {
        each!(self, c => c.cursor.seq(), c.current_cursor().seq())
    }
    /// Returns the kind of the current entry.
    #[inline]
    pub fn kind(&self) -> EntryKind {
        each!(self, c => c.cursor.kind(), c.current_cursor().kind())
    }
    /// Returns the current value, borrowed.
    #[inline]
    pub fn value(&self) -> ValueRef<'_> {
        each!(self, c => c.cursor.value(), c.current_cursor().value())
    }
    /// Returns the current value, pinned.
    #[inline]
    pub fn entry_value(&self) -> EntryValue {
        each!(self, c => c.cursor.entry_value(), c.current_cursor().pinned_value())
    }
    /// Returns true if the current block covers `key`; always false for a memtable.
    pub fn block_reaches(&self, key: &[u8]) -> bool {
        matches!(
            self,
            SourceCursor::Run(RunCursor { table_cursor: Some(c), .. }) if c.block_covers_key(key)
        )
    }
    /// Counts the current tombstone as skipped by a scan. Reports to the memtable or table in
    /// batches of [`SKIPS_PER_REPORT`]; returns the number reported now, or 0.
    pub fn skip_tombstone(&mut self) -> u64 {
        let skips = each!(self, c => &mut c.unreported_skips, &mut c.unreported_skips);
        *skips = (*skips + 1) % SKIPS_PER_REPORT;
        if *skips > 0 {
            return 0;
        }
        each!(self, c => c.cursor.add_skipped_tombstones(SKIPS_PER_REPORT), c.report_skipped());
        SKIPS_PER_REPORT
    }
    /// Reports the steps taken in a memtable to it; see [`MemtableCursor::add_scan_steps`].
    pub fn report_steps(&mut self) -> bool {
        let SourceCursor::Mem(c) = self else { return false };
        let steps = std::mem::take(&mut c.unreported_steps);
        steps > 0 && c.cursor.add_scan_steps(steps)
    }
    /// See [`KlogCursor::count_clear_ahead`]; 0 for a memtable.
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
    /// Returns what is known of the entries ahead, for a reader at `at`.
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
    /// Steps to an entry that is known to be visible.
    #[inline]
    pub fn step_visible(&mut self, forward: bool) {
        if let SourceCursor::Run(RunCursor { table_cursor: Some(c), left_value: left, .. }) = self {
            *left = None;
            c.step_clear(forward);
        }
    }
    /// Returns the key `n` entries ahead, all known to be visible (0: the current key).
    pub fn key_ahead(&self, forward: bool, n: usize) -> KeyRef<'_> {
        each!(
            self,
            c => KeyRef::from_key(c.cursor.entry().key),
            c.current_cursor().key_ahead(forward, n)
        )
    }
    /// Returns the value of the entry that the last backward step left, borrowed, if it is still
    /// available.
    #[inline]
    pub fn left_value_ref(&self) -> Option<ValueRef<'_>> {
        match self {
            SourceCursor::Mem(_) => None,
            SourceCursor::Run(c) => {
                c.table_cursor.as_ref().filter(|_| c.left_value.is_none())?.left_value_ref()
            }
        }
    }
    /// Returns the value of the entry that the last `prev` left, if the source was not moved since.
    #[inline]
    pub fn left_value(&self) -> Option<EntryValue> {
        each!(self, c => c.left_value.clone(), c.left_value())
    }
}

/// A position in a memtable, and the value that the last `prev` left.
#[derive(Debug)]
pub struct MemtableSource {
    cursor: MemtableCursor,
    left_value: Option<EntryValue>,
    unreported_skips: u64,
    unreported_steps: u64,
}

impl MemtableSource {
    #[inline]
    fn next(&mut self) {
        self.unreported_steps += 1;
        self.cursor.next();
    }
    #[inline]
    fn next_key(&mut self) {
        self.unreported_steps += 1;
        self.cursor.next_key();
    }
    fn prev(&mut self) {
        self.unreported_steps += 1;
        self.left_value = self.cursor.valid().then(|| self.cursor.entry_value());
        self.cursor.prev();
    }
}

impl From<MemtableCursor> for SourceCursor {
    fn from(cursor: MemtableCursor) -> SourceCursor {
        SourceCursor::Mem(MemtableSource {
            cursor,
            left_value: None,
            unreported_skips: 0,
            unreported_steps: 0,
        })
    }
}

/// A position in a run.
#[derive(Debug)]
pub struct RunCursor {
    run: Arc<Run>,
    comparator: KeyComparator,
    fill_cache: bool,
    cause: IoActivity,
    /// Set if a scan starts with the next seek (true: forward).
    expected_scan: Option<bool>,
    /// The open table and the position in it.
    table_cursor: Option<KlogCursor>,
    /// Index of that table.
    table_index: usize,
    /// Value that the last `prev` left, if it was in another table.
    left_value: Option<Box<EntryValue>>,
    /// Newest sequence number in the run, once it was computed.
    newest_seq: Option<SeqNo>,
    /// Number of skipped tombstones not reported yet.
    unreported_skips: u64,
}

impl RunCursor {
    /// Creates a cursor over `run`, not positioned. `fill_cache`: true to insert blocks read here
    /// into the block cache.
    pub fn new(run: Arc<Run>, comparator: KeyComparator, fill_cache: bool) -> RunCursor {
        let cause = IoActivity::Scan;
        let (expected_scan, table_cursor, left_value, newest_seq) = (None, None, None, None);
        RunCursor {
            run,
            comparator,
            fill_cache,
            cause,
            expected_scan,
            table_cursor,
            table_index: 0,
            left_value,
            newest_seq,
            unreported_skips: 0,
        }
    }
    /// Counts the cursor's reads under `cause` instead of scans.
    #[must_use]
    pub fn with_cause(self, cause: IoActivity) -> RunCursor {
        RunCursor { cause, ..self }
    }

    /// Reports skipped tombstones to the current table.
    fn report_skipped(&self) {
        if let Some(table) = self.run.tables.get(self.table_index) {
            table.reader.add_skipped_tombstones(SKIPS_PER_REPORT);
        }
    }
    /// Newest sequence number in the run.
    fn newest_seq(&mut self) -> SeqNo {
        let largest = |run: &Run| run.tables.iter().map(|t| t.meta.seq_range().1).max();
        *self.newest_seq.get_or_insert_with(|| largest(&self.run).unwrap_or_default())
    }

    #[inline]
    fn current_cursor(&self) -> &KlogCursor {
        self.table_cursor.as_ref().expect("the cursor is not valid")
    }
    /// Returns true if the cursor is on an entry.
    #[inline]
    pub fn valid(&self) -> bool {
        self.table_cursor.as_ref().is_some_and(KlogCursor::valid)
    }
    /// See [`SourceCursor::left_value`].
    fn left_value(&self) -> Option<EntryValue> {
        match &self.left_value {
            Some(left) => Some(EntryValue::clone(left)),
            None => self.table_cursor.as_ref()?.left_value(),
        }
    }

    /// Opens table `i` and positions it with `seek`. The cursor is not positioned if there is no
    /// table `i` or `seek` fails.
    fn open_table(
        &mut self,
        i: usize,
        seek: impl FnOnce(&mut KlogCursor) -> Result<()>,
    ) -> Result<()> {
        let Some(table) = self.run.tables.get(i) else {
            self.table_cursor = None;
            return Ok(());
        };
        if self.table_index != i || self.table_cursor.is_none() {
            self.table_cursor = Some(table.reader.cursor(self.fill_cache).caused_by(self.cause));
            self.table_index = i;
        }
        let open = self.table_cursor.as_mut().expect("the table was opened above");
        if let Some(forward) = self.expected_scan.take() {
            open.expect_scan(forward);
        }
        seek(open)
    }

    /// Returns the newest version of `key` visible at `at`. The run's filters are checked first; if
    /// they do not exclude the key, the cursor is left at the key's position, with its block loaded
    /// for the next seek.
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
        let current = self
            .table_cursor
            .as_ref()
            .filter(|c| c.valid() && c.key().equals(self.comparator, key));
        Ok(current.map(|c| (c.seq(), c.pinned_value())))
    }

    /// See [`SourceCursor::seek`].
    pub fn seek(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        let i = self.run.first_table_reaching(self.comparator, key);
        self.open_table(i, |c| c.seek(key, seq))?;
        self.skip_forward(i)
    }
    /// See [`SourceCursor::seek_before`].
    pub fn seek_before(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        let i = self
            .run
            .first_table_reaching(self.comparator, key)
            .min(self.run.tables.len().saturating_sub(1));
        self.open_table(i, |c| c.seek_before(key, seq))?;
        self.skip_backward(i)
    }
    /// See [`SourceCursor::seek_first`].
    pub fn seek_first(&mut self) -> Result<()> {
        self.open_table(0, KlogCursor::seek_first)?;
        self.skip_forward(0)
    }
    /// See [`SourceCursor::seek_last`].
    pub fn seek_last(&mut self) -> Result<()> {
        let last = self.run.tables.len().saturating_sub(1);
        self.open_table(last, KlogCursor::seek_last)?;
        self.skip_backward(last)
    }
    /// See [`SourceCursor::next`].
    #[inline]
    pub fn next(&mut self) -> Result<()> {
        let Some(c) = &mut self.table_cursor else { return Ok(()) };
        c.next()?;
        if c.valid() { Ok(()) } else { self.skip_forward(self.table_index) }
    }
    /// See [`SourceCursor::prev`].
    #[inline]
    pub fn prev(&mut self) -> Result<()> {
        let Some(c) = &mut self.table_cursor else { return Ok(()) };
        self.left_value = None;
        c.prev()?;
        if c.valid() || self.table_index == 0 {
            return Ok(());
        }
        self.left_value = c.left_value().map(Box::new);
        self.skip_backward(self.table_index)
    }

    /// Moves from the end of table `i` to the first entry of the next table.
    fn skip_forward(&mut self, mut i: usize) -> Result<()> {
        while !self.valid() && i + 1 < self.run.tables.len() {
            i += 1;
            check_slow!(self.run.tables_ascend(self.comparator, i), "tables of a run ascend", i);
            self.open_table(i, KlogCursor::seek_first)?;
        }
        Ok(())
    }
    /// Moves from the start of table `i` to the last entry of the previous table.
    fn skip_backward(&mut self, mut i: usize) -> Result<()> {
        while !self.valid() && i > 0 {
            check_slow!(self.run.tables_ascend(self.comparator, i), "tables of a run ascend", i);
            i -= 1;
            self.open_table(i, KlogCursor::seek_last)?;
        }
        Ok(())
    }
}
