//! The feed of changes: what was committed behind a position, in order, read from the segments of the log while others write.
//!
//! 1. *Nothing that a crash takes back.* Only what is durable, and visible, is told.
//! 2. *Nothing is left out.* Families that changed otherwise than by operations (loaded, cleared, cloned, dropped) are told as
//!    events, which the manifest keeps as long as the log behind them. Whoever is behind the oldest segment hears an error.
//! 3. *In order.* Events have numbers of their own in the one order, one event each, so a feed that is reopened at the position after
//!    any change goes on with the next one. (Manifests of earlier builds can hold several events with one
//!    number: a feed that is reopened between two of those begins with the first again.)
//!
//! A feed holds no file back and no lock between two calls. Must not know who reads it.

use crate::core::Core;
use crate::family::Families;
use crate::manifest::{Befell, FamilyEvent};
use perigee_base::bug::{self, Bug};
use perigee_base::format::FileKind;
use perigee_base::{Error, ErrorKind, FamilyId, FileId, Result, SeqNo};
use perigee_file::log::prepare::operations;
use perigee_file::log::{LogReader, Op, Ops, Record, Step};
use perigee_file::name;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// A feed that waits looks at least this often.
const LOOK_US: u64 = 50_000;
/// What is durable becomes visible so soon.
const SOON_US: u64 = 20;

/// What comes next.
#[derive(Debug)]
pub enum Item {
    /// A whole commit.
    Commit(Commit),
    /// What befell a family beside the log, and the number that it has there.
    Family(FamilyEvent),
}

/// The operations of one commit.
#[derive(Debug)]
pub struct Commit {
    payload: Vec<u8>,
    first: SeqNo,
    last: SeqNo,
    ops: Vec<(Op, SeqNo)>,
    names: BTreeMap<FamilyId, Arc<str>>,
}

impl Commit {
    /// The numbers of its first and its last operation.
    pub fn numbers(&self) -> (SeqNo, SeqNo) {
        (self.first, self.last)
    }
    /// Its operations with their numbers.
    pub fn operations(&self) -> &[(Op, SeqNo)] {
        &self.ops
    }
    /// The bytes that the operations point into.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }
    /// What a family was called then.
    pub fn name(&self, family: FamilyId) -> &str {
        self.names.get(&family).map_or("", |name| name)
    }
}

/// A segment that is being read.
#[derive(Debug)]
struct Source {
    reader: LogReader,
    /// The number behind its last operation, unless it is the newest.
    end: Option<u64>,
}

/// A reader of changes. Calls of one are not made at the same time.
#[derive(Debug)]
pub struct Feed {
    /// Everything up to here was told.
    position: u64,
    source: Option<Source>,
    /// How many edits the manifest had when the events were looked at.
    edits: u64,
    /// Events that were not told yet, as of then.
    events: VecDeque<FamilyEvent>,
    /// The number of the last event that was told, and how many with that number were.
    told: (SeqNo, usize),
}

impl Feed {
    /// A feed of everything behind `since`.
    ///
    /// # Errors
    /// `NotFound` if the log does not reach back so far; it names the oldest position. `InvalidArgument` if there is no such
    /// number yet. `ReadOnly`.
    pub fn new(core: &Core, since: SeqNo) -> Result<Feed> {
        core.health.check_open()?;
        core.health.check_readable_log()?;
        let visible = core.visible();
        if since > visible {
            return Err(Error::invalid("the feed of changes would begin behind the newest change")
                .expected(format_args!("at most {visible}"), since));
        }
        // What has the number where it begins was told with it.
        let (position, told) = (since.0, (since, usize::MAX));
        let mut feed = Feed { position, source: None, edits: 0, events: VecDeque::new(), told };
        feed.look(core)?;
        Ok(feed)
    }

    /// Everything up to here was told: where another feed would go on.
    pub fn position(&self) -> SeqNo {
        // Of several events with one number some may not have been told yet.
        let left = self.events.front().map_or(SeqNo::MAX, |e| e.at.prev());
        left.min(SeqNo(self.position))
    }

    /// What comes next, if there is anything; does not wait for it.
    ///
    /// # Errors
    /// `NotFound` if the log that comes next is gone; `Corruption`, `Io` if it cannot be read: then the feed stays where it is.
    pub fn next(&mut self, core: &Core) -> Result<Option<Item>> {
        core.health.check_open()?;
        // Asked before the events: what is in the manifest by then is all that belongs to these numbers.
        let limit = limit(core);
        if core.manifest.edits() != self.edits {
            self.look(core)?;
        }
        loop {
            if self.events.front().is_some_and(|e| e.at.0 <= self.position)
                && let Some(event) = self.events.pop_front()
            {
                self.told = if event.at == self.told.0 {
                    (event.at, self.told.1.saturating_add(1))
                } else {
                    (event.at, 1)
                };
                return Ok(Some(Item::Family(event)));
            }
            if self.position >= limit {
                return Ok(None);
            }
            let record = self.record(core)?;
            let last =
                record.header.lsn + u64::from(record.header.count) - u64::from(record.header.count > 0);
            if record.header.count == 0 {
                continue;
            }
            // What cannot be read is read again by the next call.
            let commit = self.commit(core, record).inspect_err(|_| self.source = None)?;
            self.position = last;
            if let Some(commit) = commit {
                return Ok(Some(Item::Commit(commit)));
            }
        }
    }

    /// The same; waits for it at most so long.
    ///
    /// # Errors
    /// As [`Feed::next`]; `Closed` if the database is closed meanwhile.
    pub fn wait(&mut self, core: &Core, us: u64) -> Result<Option<Item>> {
        let until = core.env.clock.monotonic_us().saturating_add(us);
        let _watching = core.wal.watch();
        loop {
            let seen = core.wal.synced().now();
            if let Some(item) = self.next(core)? {
                return Ok(Some(item));
            }
            let now = core.env.clock.monotonic_us();
            if now >= until {
                return Ok(None);
            }
            let soon = core.wal.durable() > self.position;
            let patience = if soon { SOON_US } else { LOOK_US };
            core.wal.synced().wait_us(seen, patience.min(until - now));
        }
    }

    /// Looks at the events that are to come, and whether the log still reaches back to the position.
    fn look(&mut self, core: &Core) -> Result<()> {
        let (edits, oldest, events) = core.manifest.look(|catalog| {
            let behind = catalog.events.iter().filter(|e| e.at >= self.told.0).cloned();
            (core.manifest.edits(), catalog.oldest_position(), behind.collect::<VecDeque<_>>())
        });
        if self.position < oldest.0 {
            return Err(gone(self.position, oldest.0 + 1));
        }
        self.events = events;
        let told = self.events.iter().take_while(|e| e.at == self.told.0).count().min(self.told.1);
        self.events.drain(..told);
        self.edits = edits;
        Ok(())
    }

    /// The next record of the log. It is there: it holds operations that are durable.
    fn record(&mut self, core: &Core) -> Result<Record> {
        loop {
            let next = self.position + 1;
            if self.source.as_ref().is_some_and(|s| s.end.is_some_and(|end| end <= next)) {
                self.source = None;
            }
            let source = match &mut self.source {
                Some(source) => source,
                none => none.insert(open(core, next)?),
            };
            source.reader.reach_end()?;
            let step = source.reader.next_record();
            match step {
                Ok(Step::Record(r)) if r.header.lsn + u64::from(r.header.count) <= next => continue,
                Ok(Step::Record(r)) if r.header.lsn <= next => return Ok(r),
                Ok(Step::Record(_)) => return Err(self.lost(next)),
                // A segment that was the newest one when it was opened may have a successor by now.
                _ if source.end.is_none() && !is_newest(core, &source.reader) => {}
                Ok(Step::End) => return Err(self.lost(next)),
                Ok(Step::Bad(bad)) => return Err(bad.why),
                Err(e) => return Err(e),
            }
            self.source = None;
        }
    }

    fn lost(&mut self, next: u64) -> Error {
        self.source = None;
        Error::corruption(format!("operation {next} is missing in the log"))
    }

    /// What a record tells; nothing if it only took numbers. A prepared transaction is told with the decision, which carries it.
    fn commit(&self, core: &Core, record: Record) -> Result<Option<Commit>> {
        let kind = record.header.kind;
        let Some(range) = operations(kind, &record.payload)? else { return Ok(None) };
        let first = SeqNo(record.header.lsn);
        let mut ops = Vec::with_capacity((record.header.count as usize).min(record.payload.len()));
        let mut names = BTreeMap::new();
        for (i, op) in Ops::new(&record.payload, range).enumerate() {
            let op = op?;
            if op.family == FamilyId::NOBODY {
                continue;
            }
            names.entry(op.family).or_insert_with(|| self.name(&core.families, op.family));
            ops.push((op, first.plus(i as u64)));
        }
        if bug::on(Bug::FeedSkipsEnd) && ops.len() > 3 {
            ops.pop();
        }
        let last = first.plus(u64::from(record.header.count) - 1);
        let commit = Commit { payload: record.payload, first, last, ops, names };
        Ok((!commit.ops.is_empty()).then_some(commit))
    }

    /// What the family is called at this position: what the next event calls it, or its name now.
    fn name(&self, families: &Families, id: FamilyId) -> Arc<str> {
        let called = |e: &FamilyEvent| match &e.what {
            Befell::Renamed { from, .. } => Some(Arc::from(&from[..])),
            Befell::Dropped { name } => Some(Arc::from(&name[..])),
            _ => None,
        };
        let then = self.events.iter().filter(|e| e.family == id).find_map(called);
        then.or_else(|| families.by_id(id).map(|f| f.name())).unwrap_or_default()
    }
}

/// Up to here everything is durable and visible.
fn limit(core: &Core) -> u64 {
    if bug::on(Bug::FeedAheadOfSync) {
        return core.visible().0;
    }
    core.wal.durable().min(core.visible().0)
}

fn gone(position: u64, oldest: u64) -> Error {
    let text = format!(
        "the log no longer holds what follows operation {position}: the oldest position to go on from is {}; copy the \
         families anew, or keep more of it (log_retention)",
        oldest - 1
    );
    Error::new(ErrorKind::NotFound, text)
}

/// Whether nothing was begun behind the segment.
fn is_newest(core: &Core, reader: &LogReader) -> bool {
    core.wal.appender().writer.id() == reader.header().file
}

/// The segment that holds operation `next`, from its beginning.
fn open(core: &Core, next: u64) -> Result<Source> {
    let appender = core.wal.appender();
    let kept = core.manifest.look(|catalog| catalog.retained.clone());
    let firsts = appender.firsts();
    drop(appender);
    let live = |i: usize| (firsts[i].0, firsts[i].1, firsts.get(i + 1).map(|(_, first)| *first));
    // A segment may be in both lists; as one of recovery's it knows no less.
    let mut all = kept.iter().map(|s| (s.id, s.first, Some(s.end))).chain((0..firsts.len()).map(live));
    let holds =
        |(_, first, end): &(FileId, u64, Option<u64>)| *first <= next && end.is_none_or(|end| next < end);
    let oldest = kept.first().map(|s| s.first).or(firsts.first().map(|(_, first)| *first)).unwrap_or(next);
    let (id, first, end) = all.rfind(holds).ok_or_else(|| gone(next - 1, oldest))?;
    let file = name::file_name(id, FileKind::Wal);
    let opened = LogReader::open_beside_writer(&*core.dir, &file, id, core.database);
    let mut reader = opened.map_err(|e| match e.kind() {
        // Removed between the look and the opening.
        ErrorKind::NotFound => gone(next - 1, next + 1),
        _ => e,
    })?;
    reader.expect(first);
    Ok(Source { reader, end })
}
