//! The feed of changes: what was committed behind a position, in order, read from the segments of
//! the log while others write.
//!
//! 1. *Nothing that a crash takes back.* Only what is durable, and visible, is told.
//! 2. *Nothing is left out.* Families that changed otherwise than by operations (loaded, cleared,
//!    cloned, dropped) are told as events, which the manifest keeps as long as the log behind them.
//!    Whoever is behind the oldest segment hears an error.
//! 3. *In order.* Events have numbers of their own in the one order, one event each, so a feed that
//!    is reopened at the position after any change goes on with the next one. (Manifests of earlier
//!    builds can hold several events with one number: a feed that is reopened between two of those
//!    begins with the first again.)
//!
//! A feed holds no file back and no lock between two calls. Must not know who reads it.

use crate::core::EngineCore;
use crate::family::Families;
use crate::manifest::{FamilyEvent, FamilyEventKind};
use perigee_base::bug::{self, Bug};
use perigee_base::file_header::FileKind;
use perigee_base::{Error, ErrorKind, FamilyId, FileId, Result, SeqNo};
use perigee_file::filename;
use perigee_file::log::prepare::ops_payload_range;
use perigee_file::log::{BatchOp, BatchOps, LogReader, LogRecord, NextLogRecord};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// A feed that waits looks at least this often.
const POLL_US: u64 = 50_000;
/// What is durable becomes visible so soon.
const DURABLE_POLL_US: u64 = 20;

/// What comes next.
#[derive(Debug)]
pub enum FeedItem {
    /// A whole commit.
    Commit(FeedCommit),
    /// What befell a family beside the log, and the number that it has there.
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
    /// The numbers of its first and its last operation.
    pub fn seq_range(&self) -> (SeqNo, SeqNo) {
        (self.first, self.last)
    }
    /// Its operations with their numbers.
    pub fn operations(&self) -> &[(BatchOp, SeqNo)] {
        &self.ops
    }
    /// The bytes that the operations point into.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }
    /// What a family was called then.
    pub fn family_name(&self, family: FamilyId) -> &str {
        self.names.get(&family).map_or("", |name| name)
    }
}

/// A segment that is being read.
#[derive(Debug)]
struct FeedSegment {
    reader: LogReader,
    /// The number behind its last operation, unless it is the newest.
    end: Option<u64>,
}

/// A reader of changes. Calls of one are not made at the same time.
#[derive(Debug)]
pub struct ChangeFeed {
    /// Everything up to here was told.
    position: u64,
    segment: Option<FeedSegment>,
    /// How many edits the manifest had when the events were looked at.
    manifest_edits: u64,
    /// Events that were not told yet, as of then.
    events: VecDeque<FamilyEvent>,
    /// The number of the last event that was told, and how many with that number were.
    last_event: (SeqNo, usize),
}

impl ChangeFeed {
    /// A feed of everything behind `since`.
    ///
    /// # Errors
    /// `NotFound` if the log does not reach back so far; it names the oldest position.
    /// `InvalidArgument` if there is no such number yet. `ReadOnly`.
    pub fn new(core: &EngineCore, since: SeqNo) -> Result<ChangeFeed> {
        core.health.check_open()?;
        core.health.check_log_readable()?;
        let visible = core.visible_seq();
        if since > visible {
            return Err(Error::invalid("the feed of changes would begin behind the newest change")
                .expected(format_args!("at most {visible}"), since));
        }
        // What has the number where it begins was told with it.
        let (position, told) = (since.0, (since, usize::MAX));
        let mut feed = ChangeFeed {
            position,
            segment: None,
            manifest_edits: 0,
            events: VecDeque::new(),
            last_event: told,
        };
        feed.refresh_events(core)?;
        Ok(feed)
    }

    /// Everything up to here was told: where another feed would go on.
    pub fn position(&self) -> SeqNo {
        // Of several events with one number some may not have been told yet.
        let left = self.events.front().map_or(SeqNo::MAX, |e| e.seq.prev());
        left.min(SeqNo(self.position))
    }

    /// What comes next, if there is anything; does not wait for it.
    ///
    /// # Errors
    /// `NotFound` if the log that comes next is gone; `Corruption`, `Io` if it cannot be read: then
    /// the feed stays where it is.
    pub fn next_item(&mut self, core: &EngineCore) -> Result<Option<FeedItem>> {
        core.health.check_open()?;
        // Asked before the events: what is in the manifest by then is all that belongs to these
        // numbers.
        let limit = readable_limit(core);
        if core.manifest.last_edit() != self.manifest_edits {
            self.refresh_events(core)?;
        }
        loop {
            if self.events.front().is_some_and(|e| e.seq.0 <= self.position)
                && let Some(event) = self.events.pop_front()
            {
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
            let record = self.next_log_record(core)?;
            let last = record.header.lsn + u64::from(record.header.lsn_count)
                - u64::from(record.header.lsn_count > 0);
            if record.header.lsn_count == 0 {
                continue;
            }
            // What cannot be read is read again by the next call.
            let commit = self.decode_commit(core, record).inspect_err(|_| self.segment = None)?;
            self.position = last;
            if let Some(commit) = commit {
                return Ok(Some(FeedItem::Commit(commit)));
            }
        }
    }

    /// The same; waits for it at most so long.
    ///
    /// # Errors
    /// As [`Feed::next`]; `Closed` if the database is closed meanwhile.
    pub fn wait_next_item(&mut self, core: &EngineCore, us: u64) -> Result<Option<FeedItem>> {
        let until = core.env.clock.monotonic_us().saturating_add(us);
        let _watching = core.wal.watch_syncs();
        loop {
            let seen = core.wal.sync_signal().generation();
            if let Some(item) = self.next_item(core)? {
                return Ok(Some(item));
            }
            let now = core.env.clock.monotonic_us();
            if now >= until {
                return Ok(None);
            }
            let soon = core.wal.durable() > self.position;
            let patience = if soon { DURABLE_POLL_US } else { POLL_US };
            core.wal.sync_signal().wait_timeout_us(seen, patience.min(until - now));
        }
    }

    /// Looks at the events that are to come, and whether the log still reaches back to the
    /// position.
    fn refresh_events(&mut self, core: &EngineCore) -> Result<()> {
        let (edits, oldest, events) = core.manifest.with_catalog(|catalog| {
            let behind = catalog.events.iter().filter(|e| e.seq >= self.last_event.0).cloned();
            (core.manifest.last_edit(), catalog.oldest_position(), behind.collect::<VecDeque<_>>())
        });
        if self.position < oldest.0 {
            return Err(position_too_old_error(self.position, oldest.0 + 1));
        }
        self.events = events;
        let told = self
            .events
            .iter()
            .take_while(|e| e.seq == self.last_event.0)
            .count()
            .min(self.last_event.1);
        self.events.drain(..told);
        self.manifest_edits = edits;
        Ok(())
    }

    /// The next record of the log. It is there: it holds operations that are durable.
    fn next_log_record(&mut self, core: &EngineCore) -> Result<LogRecord> {
        loop {
            let next = self.position + 1;
            if self.segment.as_ref().is_some_and(|s| s.end.is_some_and(|end| end <= next)) {
                self.segment = None;
            }
            let source = match &mut self.segment {
                Some(source) => source,
                none => none.insert(open_segment(core, next)?),
            };
            source.reader.extend_to_file_end()?;
            let step = source.reader.next_record();
            match step {
                Ok(NextLogRecord::Record(r))
                    if r.header.lsn + u64::from(r.header.lsn_count) <= next =>
                {
                    continue;
                }
                Ok(NextLogRecord::Record(r)) if r.header.lsn <= next => return Ok(r),
                Ok(NextLogRecord::Record(_)) => return Err(self.missing_operation_error(next)),
                // A segment that was the newest one when it was opened may have a successor by now.
                _ if source.end.is_none() && !is_newest(core, &source.reader) => {}
                Ok(NextLogRecord::End) => return Err(self.missing_operation_error(next)),
                Ok(NextLogRecord::Bad(bad)) => return Err(bad.error),
                Err(e) => return Err(e),
            }
            self.segment = None;
        }
    }

    fn missing_operation_error(&mut self, next: u64) -> Error {
        self.segment = None;
        Error::corruption(format!("operation {next} is missing in the log"))
    }

    /// What a record tells; nothing if it only took numbers. A prepared transaction is told with
    /// the decision, which carries it.
    fn decode_commit(&self, core: &EngineCore, record: LogRecord) -> Result<Option<FeedCommit>> {
        let kind = record.header.kind;
        let Some(range) = ops_payload_range(kind, &record.payload)? else { return Ok(None) };
        let first = SeqNo(record.header.lsn);
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
                .or_insert_with(|| self.family_name_at_position(&core.families, op.family));
            ops.push((op, first.plus(i as u64)));
        }
        if bug::is_active(Bug::FeedSkipsEnd) && ops.len() > 3 {
            ops.pop();
        }
        let last = first.plus(u64::from(record.header.lsn_count) - 1);
        let commit = FeedCommit { payload: record.payload, first, last, ops, names };
        Ok((!commit.ops.is_empty()).then_some(commit))
    }

    /// What the family is called at this position: what the next event calls it, or its name now.
    fn family_name_at_position(&self, families: &Families, id: FamilyId) -> Arc<str> {
        let called = |e: &FamilyEvent| match &e.kind {
            FamilyEventKind::Renamed { from, .. } => Some(Arc::from(&from[..])),
            FamilyEventKind::Dropped { name } => Some(Arc::from(&name[..])),
            _ => None,
        };
        let then = self.events.iter().filter(|e| e.family == id).find_map(called);
        then.or_else(|| families.by_id(id).map(|f| f.name())).unwrap_or_default()
    }
}

/// Up to here everything is durable and visible.
fn readable_limit(core: &EngineCore) -> u64 {
    if bug::is_active(Bug::FeedAheadOfSync) {
        return core.visible_seq().0;
    }
    core.wal.durable().min(core.visible_seq().0)
}

fn position_too_old_error(position: u64, oldest: u64) -> Error {
    let text = format!(
        "the log no longer holds what follows operation {position}: the oldest position to go on from is {}; copy the \
         families anew, or keep more of it (log_retention)",
        oldest - 1
    );
    Error::new(ErrorKind::NotFound, text)
}

/// Whether nothing was begun behind the segment.
fn is_newest(core: &EngineCore, reader: &LogReader) -> bool {
    core.wal.appender().writer.id() == reader.header().file
}

/// The segment that holds operation `next`, from its beginning.
fn open_segment(core: &EngineCore, next: u64) -> Result<FeedSegment> {
    let appender = core.wal.appender();
    let kept = core.manifest.with_catalog(|catalog| catalog.retained.clone());
    let firsts = appender.segment_first_lsns();
    drop(appender);
    let live = |i: usize| (firsts[i].0, firsts[i].1, firsts.get(i + 1).map(|(_, first)| *first));
    // A segment may be in both lists; as one of recovery's it knows no less.
    let mut all = kept
        .iter()
        .map(|s| (s.id, s.first_lsn, Some(s.end_lsn)))
        .chain((0..firsts.len()).map(live));
    let holds = |(_, first, end): &(FileId, u64, Option<u64>)| {
        *first <= next && end.is_none_or(|end| next < end)
    };
    let oldest = kept
        .first()
        .map(|s| s.first_lsn)
        .or(firsts.first().map(|(_, first)| *first))
        .unwrap_or(next);
    let (id, first, end) =
        all.rfind(holds).ok_or_else(|| position_too_old_error(next - 1, oldest))?;
    let file = filename::file_name(id, FileKind::Wal);
    let opened = LogReader::open_while_writing(&*core.dir, &file, id, core.database_id);
    let mut reader = opened.map_err(|e| match e.kind() {
        // Removed between the look and the opening.
        ErrorKind::NotFound => position_too_old_error(next - 1, next + 1),
        _ => e,
    })?;
    reader.expect_lsn(first);
    Ok(FeedSegment { reader, end })
}
