//! The change feed: commits after a position, in commit order, read from the log segments while
//! writers continue.
//!
//! 1. *Nothing that a crash could undo.* Only what is both durable and visible is reported.
//! 2. *Nothing is left out.* Changes to column families that are not operations in the log (load,
//!    clear, clone, drop) are reported as events, which the manifest keeps as long as it keeps the
//!    corresponding log. A position before the oldest retained segment is an error.
//! 3. *In order.* Events have sequence numbers of their own, one event each, so a feed that is
//!    reopened at the position after any change continues with the next one. (Manifests of earlier
//!    builds can hold several events with one sequence number: a feed that is reopened between two
//!    of them repeats the first.)
//!
//! Between two calls a feed holds no lock and does not prevent files from being deleted. It is
//! independent of its consumers.

use crate::catalog::family::Families;
use crate::catalog::manifest::{FamilyEvent, FamilyEventKind};
use crate::catalog::{Catalog, FeedEvents};
use crate::limits::{FEED_DURABLE_POLL_US, FEED_POLL_US};
use crate::log::Log;
use perigee_base::bug::Bug;
use perigee_base::{Error, ErrorKind, FamilyId, FileId, FileKind, Result, SeqNo, bug};
use perigee_file::filename;
use perigee_file::log::{
    BatchOp, BatchOps, LogReader, LogRecord, NextLogRecord, ops_payload_range,
};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// One item of the feed.
#[derive(Debug)]
pub enum FeedItem {
    /// All operations of one commit.
    Commit(FeedCommit),
    /// A change to a column family that is not in the log, with its sequence number.
    FamilyEvent(FamilyEvent),
}

/// The operations of one commit.
#[derive(Debug)]
pub struct FeedCommit {
    payload: Vec<u8>,
    first: SeqNo,
    last: SeqNo,
    ops: Vec<(BatchOp, SeqNo)>,
    names: BTreeMap<FamilyId, Arc<str>>,
}

impl FeedCommit {
    /// Returns the sequence numbers of its first and last operation.
    pub fn seq_range(&self) -> (SeqNo, SeqNo) {
        (self.first, self.last)
    }
    /// Returns its operations with their sequence numbers.
    pub fn operations(&self) -> &[(BatchOp, SeqNo)] {
        &self.ops
    }
    /// Returns the bytes that the operations point into.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }
    /// Returns the name that the column family had at the time of the commit.
    pub fn family_name(&self, family: FamilyId) -> &str {
        self.names.get(&family).map_or("", |name| name)
    }
}

/// The log segment being read.
#[derive(Debug)]
struct FeedSegment {
    reader: LogReader,
    /// The sequence number after its last operation; `None` for the newest segment.
    end: Option<SeqNo>,
}

/// A reader of changes. Its methods must not be called concurrently.
#[derive(Debug)]
pub struct LogFeed {
    /// Everything up to this sequence number was delivered.
    position: SeqNo,
    segment: Option<FeedSegment>,
    /// Number of manifest edits when `events` was read.
    manifest_edits: u64,
    /// Events not delivered yet, as of that edit.
    events: VecDeque<FamilyEvent>,
    /// Sequence number of the last event delivered, and how many events with that sequence number
    /// were delivered.
    last_event: (SeqNo, usize),
}

impl LogFeed {
    /// Creates a feed of everything after `since`.
    ///
    /// # Errors
    /// `NotFound` if the log no longer reaches back to `since`; the message names the oldest
    /// possible position. `InvalidArgument` if `since` is greater than the newest sequence number.
    /// `ReadOnly` if the database is open read-only.
    pub fn new(catalog: &Catalog, since: SeqNo) -> Result<LogFeed> {
        catalog.runtime.health.check_open()?;
        catalog.runtime.health.check_log_readable()?;
        let visible = catalog.visible_seq();
        if since > visible {
            return Err(Error::invalid("the change feed would start after the newest change")
                .expected(format_args!("at most {visible}"), since));
        }
        // Events with sequence number `since` count as delivered.
        let (position, delivered) = (since, (since, usize::MAX));
        let mut feed = LogFeed {
            position,
            segment: None,
            manifest_edits: 0,
            events: VecDeque::new(),
            last_event: delivered,
        };
        feed.refresh_events(catalog)?;
        Ok(feed)
    }

    /// Returns the sequence number up to which everything was delivered: a new feed can continue
    /// from there.
    pub fn position(&self) -> SeqNo {
        // Of several events with one sequence number, some may not have been delivered yet.
        let left = self.events.front().map_or(SeqNo::MAX, |e| e.seq.prev());
        left.min(self.position)
    }

    /// Returns the next item, or `None` if there is none yet; does not wait.
    ///
    /// # Errors
    /// `NotFound` if the log segment to read next is gone; `Corruption` or `Io` if it cannot be
    /// read. After an error the position is unchanged.
    pub fn next_item(&mut self, log: &Log) -> Result<Option<FeedItem>> {
        log.runtime.health.check_open()?;
        // Read before the events: the manifest then contains all events up to this limit.
        let limit = readable_limit(log);
        if log.catalog.manifest_edits() != self.manifest_edits {
            self.refresh_events(&log.catalog)?;
        }
        loop {
            if self.events.front().is_some_and(|e| e.seq <= self.position)
                && let Some(event) = self.events.pop_front()
            {
                check_slow!(
                    event.seq >= self.last_event.0,
                    "events are delivered in the order of their sequence numbers",
                    event.seq,
                    self.last_event
                );
                self.last_event = if event.seq == self.last_event.0 {
                    (event.seq, self.last_event.1.saturating_add(1))
                } else {
                    (event.seq, 1)
                };
                return Ok(Some(FeedItem::FamilyEvent(event)));
            }
            if self.position >= limit {
                return Ok(None);
            }
            let record = self.next_log_record(log)?;
            if record.header.lsn_count == 0 {
                continue;
            }
            let last = record.header.end_seq().prev();
            // After an error the next call reads the record again.
            let commit =
                self.decode_commit(&log.catalog, record).inspect_err(|_| self.segment = None)?;
            check_slow!(
                self.position < last && last <= log.durable_seq(),
                "a feed advances over durable operations",
                self.position,
                last
            );
            self.position = last;
            if let Some(commit) = commit {
                return Ok(Some(FeedItem::Commit(commit)));
            }
        }
    }

    /// Like [`next_item`](LogFeed::next_item), but waits up to `us` microseconds for an item.
    ///
    /// # Errors
    /// Those of `next_item`; `Closed` if the database is closed meanwhile.
    pub fn wait_next_item(&mut self, log: &Log, us: u64) -> Result<Option<FeedItem>> {
        let until = log.runtime.env.clock.monotonic_us().saturating_add(us);
        let _watching = log.wal.watch_syncs();
        loop {
            let seen = log.wal.sync_signal().generation();
            if let Some(item) = self.next_item(log)? {
                return Ok(Some(item));
            }
            let now = log.runtime.env.clock.monotonic_us();
            if now >= until {
                return Ok(None);
            }
            let soon = log.durable_seq() > self.position;
            let poll_us = if soon { FEED_DURABLE_POLL_US } else { FEED_POLL_US };
            log.wal.sync_signal().wait_timeout_us(seen, poll_us.min(until - now));
        }
    }

    /// Reads the undelivered events from the manifest, and checks that the log still reaches back
    /// to the position.
    fn refresh_events(&mut self, catalog: &Catalog) -> Result<()> {
        let FeedEvents { events, edits, oldest_position } = catalog.feed_events(self.last_event.0);
        if self.position < oldest_position {
            return Err(position_too_old_error(self.position, oldest_position));
        }
        self.events = events;
        let delivered = self
            .events
            .iter()
            .take_while(|e| e.seq == self.last_event.0)
            .count()
            .min(self.last_event.1);
        self.events.drain(..delivered);
        self.manifest_edits = edits;
        Ok(())
    }

    /// Returns the log record with the next operation. The caller has checked that this operation
    /// is durable, so it exists.
    fn next_log_record(&mut self, log: &Log) -> Result<LogRecord> {
        loop {
            let next = self.position.plus(1);
            if self.segment.as_ref().is_some_and(|s| s.end.is_some_and(|end| end <= next)) {
                self.segment = None;
            }
            let source = match &mut self.segment {
                Some(source) => source,
                none => none.insert(open_segment(log, next)?),
            };
            source.reader.extend_to_file_end()?;
            let step = source.reader.next_record();
            match step {
                Ok(NextLogRecord::Record(r)) if r.header.end_seq() <= next => {
                    continue;
                }
                Ok(NextLogRecord::Record(r)) if r.header.first_seq() <= next => return Ok(r),
                Ok(NextLogRecord::Record(_)) => return Err(self.missing_operation_error(next)),
                // A segment that was the newest one when it was opened may have a successor by now.
                _ if source.end.is_none() && !is_newest(log, &source.reader) => {}
                Ok(NextLogRecord::End) => return Err(self.missing_operation_error(next)),
                Ok(NextLogRecord::Bad(bad)) => return Err(bad.error),
                Err(e) => return Err(e),
            }
            self.segment = None;
        }
    }

    fn missing_operation_error(&mut self, next: SeqNo) -> Error {
        self.segment = None;
        Error::corruption(format!("operation {next} is missing from the log"))
    }

    /// Decodes a record; `None` if it holds no operations, only sequence numbers. A prepared
    /// transaction is reported with its decision, which contains the operations.
    fn decode_commit(&self, catalog: &Catalog, record: LogRecord) -> Result<Option<FeedCommit>> {
        let kind = record.header.kind;
        let Some(range) = ops_payload_range(kind, &record.payload)? else { return Ok(None) };
        let first = record.header.first_seq();
        let mut ops =
            Vec::with_capacity((record.header.lsn_count as usize).min(record.payload.len()));
        let mut names = BTreeMap::new();
        for (i, op) in BatchOps::new(&record.payload, range).enumerate() {
            let op = op?;
            if op.family == FamilyId::NONE {
                continue;
            }
            names
                .entry(op.family)
                .or_insert_with(|| self.family_name_at_position(catalog.families(), op.family));
            ops.push((op, first.plus(i as u64)));
        }
        if bug::is_active(Bug::FeedSkipsEnd) && ops.len() > 3 {
            ops.pop();
        }
        let last = first.plus(u64::from(record.header.lsn_count) - 1);
        let commit = FeedCommit { payload: record.payload, first, last, ops, names };
        Ok((!commit.ops.is_empty()).then_some(commit))
    }

    /// Returns the name of the column family at this position: the name in its next event, or else
    /// its current name.
    fn family_name_at_position(&self, families: &Families, id: FamilyId) -> Arc<str> {
        let name_before = |e: &FamilyEvent| match &e.kind {
            FamilyEventKind::Renamed { from, .. } => Some(Arc::from(&from[..])),
            FamilyEventKind::Dropped { name } => Some(Arc::from(&name[..])),
            _ => None,
        };
        let at_position = self.events.iter().filter(|e| e.family == id).find_map(name_before);
        at_position.or_else(|| families.by_id(id).map(|f| f.name())).unwrap_or_default()
    }
}

/// Returns the sequence number up to which everything is durable and visible.
fn readable_limit(log: &Log) -> SeqNo {
    if bug::is_active(Bug::FeedAheadOfSync) {
        return log.catalog.visible_seq();
    }
    log.durable_seq().min(log.catalog.visible_seq())
}

fn position_too_old_error(position: SeqNo, oldest: SeqNo) -> Error {
    let text = format!(
        "the log no longer holds the operations after {position}; the oldest position to \
         continue from is {oldest}; copy the column families again, or increase log_retention"
    );
    Error::new(ErrorKind::NotFound, text)
}

/// Returns true if no newer segment has been started.
fn is_newest(log: &Log, reader: &LogReader) -> bool {
    log.commit_section().writer.id() == reader.header().file
}

/// Opens the segment that contains operation `next`, at its beginning.
fn open_segment(log: &Log, next: SeqNo) -> Result<FeedSegment> {
    let appender = log.commit_section();
    let retained = log.catalog.recorded_files().retained;
    let firsts = appender.segment_first_lsns();
    drop(appender);
    let live = |i: usize| (firsts[i].0, firsts[i].1, firsts.get(i + 1).map(|(_, first)| *first));
    // A segment may be in both lists; the entry in the live list is then at least as precise.
    let mut all = retained
        .iter()
        .map(|s| (s.id, s.first_lsn, Some(s.end_lsn)))
        .chain((0..firsts.len()).map(live));
    let holds = |(_, first, end): &(FileId, SeqNo, Option<SeqNo>)| {
        *first <= next && end.is_none_or(|end| next < end)
    };
    let oldest = retained
        .first()
        .map(|s| s.first_lsn)
        .or(firsts.first().map(|(_, first)| *first))
        .unwrap_or(next);
    let (id, first, end) =
        all.rfind(holds).ok_or_else(|| position_too_old_error(next.prev(), oldest.prev()))?;
    let file = filename::file_name(id, FileKind::Wal);
    let opened =
        LogReader::open_while_writing(&*log.runtime.dir, &file, id, log.runtime.identity.database);
    let mut reader = opened.map_err(|e| match e.kind() {
        // Removed between the lookup and the open.
        ErrorKind::NotFound => position_too_old_error(next.prev(), next),
        _ => e,
    })?;
    reader.expect_lsn(first.0);
    Ok(FeedSegment { reader, end })
}
