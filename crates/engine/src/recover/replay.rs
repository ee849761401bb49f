//! Reads the log, judges where it ends, and puts what is not yet in tables into memtables. Writes nothing.
//!
//! A salvaging replay goes on behind damage and lists it; a strict one ends there with an error. If the memtables grow beyond a
//! limit, they are dropped, and the rest of the log is only verified, one record in memory at a time: `catch_up` then reads it a
//! second time and flushes as it goes.

use super::insert::{Parts, insert, memory_bytes};
use super::manifest::Found;
use super::replayed::{Kept, Replayed};
use crate::family::Family;
use crate::manifest::FamilyEntry;
use crate::prepared::{check_level, check_operations};
use crate::wal::LogSpan;
use perigee_base::bug::{self, Bug};
use perigee_base::format::FileKind;
use perigee_base::{EntryKind, Error, ErrorKind, FamilyId, FileId, Result, SeqNo};
use perigee_env::Dir;
use perigee_file::log::prepare::{decision, numbers, operations};
use perigee_file::log::{LogReader, Ops, Prepare, Record, RecordKind, Step};
use perigee_file::name;
use perigee_tree::version::AddedTable;
use std::collections::BTreeMap;
use std::sync::Arc;

struct Replay<'a> {
    dir: &'a dyn Dir,
    found: &'a Found,
    families: BTreeMap<FamilyId, Arc<Family>>,
    out: Replayed,
    /// Highest number of manifest edits that any record names.
    edits: u64,
    mode: Mode<'a>,
    /// The log goes on behind the limit.
    limited: bool,
    /// The last segment that held a record.
    last: usize,
    /// Where that record ended.
    read_to: u64,
    /// What memtables and records hold.
    held: u64,
    /// LSN of the first record that must survive, once the replay is deferred.
    needed: Option<u64>,
    /// The segment that is being read was written before the machine was restarted: what can be read is on stable storage.
    rebooted: bool,
}

/// How a log is replayed.
pub struct Mode<'a> {
    /// Damage is noted and passed over.
    pub salvage: bool,
    /// Operations behind this number are left out: records that reach beyond it end the log.
    pub limit: u64,
    /// Most bytes that memtables and records may hold; `None`: no limit, and no record is kept, because none will be copied.
    pub memory: Option<u64>,
    /// Returns how many edits the manifest holds by now, beside a writer.
    pub edits_now: &'a dyn Fn() -> Result<u64>,
}

/// Replays the segments of the catalog into `families`, or only verifies them, if the memtables would hold more than `memory` bytes.
pub fn replay(
    dir: &dyn Dir,
    found: &Found,
    boot: u64,
    families: &[Arc<Family>],
    memory: u64,
) -> Result<Replayed> {
    let memory = if bug::on(Bug::ReplayKeepsEverything) { u64::MAX } else { memory };
    let edits_now = &|| Ok(found.edits);
    let mode = Mode { salvage: false, limit: u64::MAX, memory: Some(memory), edits_now };
    replay_as(dir, found, boot, families, mode)
}

/// Replays the segments of the catalog as `mode` says.
pub fn replay_as(
    dir: &dyn Dir,
    found: &Found,
    boot: u64,
    families: &[Arc<Family>],
    mode: Mode<'_>,
) -> Result<Replayed> {
    let logs = &found.catalog.logs;
    let start = logs.first().map_or(found.catalog.durable + 1, |(_, lsn)| *lsn);
    let mut r = Replay {
        dir,
        found,
        families: families.iter().map(|f| (f.id, Arc::clone(f))).collect(),
        out: Replayed { first: start, next: start, ..Replayed::default() },
        edits: 0,
        mode,
        limited: false,
        last: 0,
        read_to: 0,
        held: 0,
        needed: None,
        rebooted: false,
    };
    for i in 0..logs.len() {
        if bug::on(Bug::ReplayFirstSegmentOnly) && i == 1 {
            break;
        }
        match r.segment(i, boot) {
            Ok(true) => {}
            Ok(false) => break,
            Err(e) => r.hole(e)?,
        }
    }
    let unlisted = r.unlisted();
    unlisted.or_else(|e| r.hole(e))?;
    let end = r.check_end();
    end.or_else(|e| r.hole(e))?;
    r.out.synced = r.out.synced.max(found.catalog.durable).min(r.out.next - 1);
    r.out.segments = r.out.complete.clone();
    r.out.forget_the_spent();
    if r.out.deferred {
        r.out.first = r.out.first_of_deferred(r.needed);
    } else if r.out.records.is_empty() {
        r.out.first = r.out.next;
    }
    r.out.end_before_the_copied();
    Ok(r.out)
}

impl Replay<'_> {
    /// Notes damage and goes on, if that is wanted.
    fn hole(&mut self, e: Error) -> Result<()> {
        if !self.mode.salvage || !matches!(e.kind(), ErrorKind::Corruption | ErrorKind::Io) {
            return Err(e);
        }
        self.out.holes.push(e);
        self.out.holes_before = u64::MAX;
        Ok(())
    }

    fn name(&self, i: usize) -> String {
        name::file_name(self.found.catalog.logs[i].0, FileKind::Wal)
    }

    fn open(&self, i: usize) -> Result<LogReader> {
        let (id, first) = self.found.catalog.logs[i];
        let file = self.name(i);
        let log = open_log(self.dir, &file, id, self.found.database)?;
        // One that was made ahead does not know where it begins.
        if !matches!(log.header().a, a if a == first || a == 0) {
            return Err(Error::corruption(
                "the log segment starts at another operation than the manifest says",
            )
            .at(file, 0)
            .expected(first, log.header().a));
        }
        Ok(log)
    }

    /// Replays segment `i`; false if the log ends in it.
    fn segment(&mut self, i: usize, boot: u64) -> Result<bool> {
        let mut log = self.open(i)?;
        match self.found.catalog.logs[i].1 {
            0 if self.mode.salvage => {}
            0 => log.expect(self.out.next),
            first => log.expect(first),
        }
        let (id, next) = (self.found.catalog.logs[i].0, self.out.next);
        self.out.complete.push(LogSpan { id, first: next, end: next, bytes: log.offset() });
        let same_boot = log.header().b == boot && boot != 0;
        self.rebooted = !same_boot && boot != 0 && log.header().b != 0;
        loop {
            if self.reached_successor(i) {
                // Records here were copied to the successor by an open that kept this segment. Anything else belongs to nothing.
                if let Step::Bad(bad) = log.next_record()? {
                    self.cut(i, &log, log.end() - log.offset(), &bad.why);
                }
                return Ok(true);
            }
            let step = log.next_record()?;
            // The successor is looked at after the end: beside a writer it may just have been begun.
            let successor = if matches!(step, Step::Record(_)) { None } else { self.first_behind(i)? };
            match step {
                Step::Record(record) => {
                    let next = record.header.lsn + u64::from(record.header.count);
                    if next > self.mode.limit.saturating_add(1) {
                        self.limited = true;
                        return Ok(false);
                    }
                    self.read_to = log.offset();
                    self.out.holes_before = self.out.holes_before.min(record.header.lsn);
                    self.record(i, record).or_else(|e| self.hole(e))?;
                }
                // Beside a writer: what it wrote before it began the successor.
                _ if successor.is_some_and(|lsn| lsn != self.out.next) && log.has_grown()? => {}
                Step::End => match successor {
                    Some(lsn) if lsn != self.out.next => {
                        let why = Error::corruption("the log segment ends before its successor starts")
                            .at(self.name(i), log.offset())
                            .expected(lsn, self.out.next);
                        return self.judge(i, &log, same_boot, true, why);
                    }
                    _ => return Ok(true),
                },
                Step::Bad(bad) if successor == Some(self.out.next) && log.look_behind()?.is_none() => {
                    // Every operation up to the successor's first was read: what follows belongs to nothing.
                    self.cut(i, &log, log.end() - log.offset(), &bad.why);
                    return Ok(true);
                }
                Step::Bad(bad) => match self.judge(i, &log, same_boot, bad.cut_short, bad.why) {
                    Err(e) => {
                        self.hole(e)?;
                        if log.resume()?.is_none() {
                            return Ok(true);
                        }
                    }
                    torn => return torn,
                },
            }
        }
    }

    /// Whether the next record is the first of the successor of segment `i`, as the manifest says; in a salvage, which may have passed
    /// over records, or a later one.
    fn reached_successor(&self, i: usize) -> bool {
        let next = self.out.next;
        let reached = |first: u64| first == next || (self.mode.salvage && first > 0 && first < next);
        self.found.catalog.logs.get(i + 1).is_some_and(|(_, first)| reached(*first))
    }

    /// Where the successor of segment `i` begins; `None` if it has none, or holds no record that could say.
    fn first_behind(&self, i: usize) -> Result<Option<u64>> {
        match self.found.catalog.logs.get(i + 1) {
            None => Ok(None),
            Some((_, 0)) => match self.open(i + 1).and_then(|log| log.peek()) {
                Err(_) if self.mode.salvage => Ok(None),
                first => first,
            },
            Some((_, first)) => Ok(Some(*first)),
        }
    }

    /// Damage, or the torn end of the log? The rules of `docs/format/log.md`.
    fn judge(
        &mut self,
        i: usize,
        log: &LogReader,
        same_boot: bool,
        cut_short: bool,
        why: Error,
    ) -> Result<bool> {
        let mut watermark = self.found.catalog.durable;
        if let Some(behind) = log.look_behind()? {
            watermark = watermark.max(behind.durable);
            self.edits = self.edits.max(behind.edits);
        }
        let mut cut = log.end() - log.offset();
        for j in i + 1..self.found.catalog.logs.len() {
            let (durable, bytes) = self.watermark(j)?;
            watermark = watermark.max(durable);
            cut += bytes;
        }
        let damage = watermark >= self.out.next || (same_boot && !cut_short);
        if damage && !bug::on(Bug::TruncateDamagedLog) {
            return Err(why);
        }
        self.cut(i, log, cut, &why);
        Ok(false)
    }

    /// Notes that so many bytes from here on do not count, and why.
    fn cut(&mut self, i: usize, log: &LogReader, bytes: u64, why: &Error) {
        self.out.cut_bytes += bytes;
        let why = format!("{}: {} at offset {}; ", self.name(i), why.message(), log.offset());
        self.out.cut_reason.push_str(&why);
    }

    /// The highest durable LSN that a segment carries, and its length.
    fn watermark(&mut self, j: usize) -> Result<(u64, u64)> {
        let mut log = self.open(j)?;
        let mut durable = 0;
        loop {
            match log.next_record()? {
                Step::Record(r) => {
                    durable = durable.max(r.header.durable);
                    self.edits = self.edits.max(r.header.edits);
                }
                Step::End => return Ok((durable, log.end())),
                Step::Bad(_) => {
                    let behind = log.look_behind()?;
                    self.edits = self.edits.max(behind.map_or(0, |b| b.edits));
                    return Ok((durable.max(behind.map_or(0, |b| b.durable)), log.end()));
                }
            }
        }
    }

    fn record(&mut self, i: usize, record: Record) -> Result<()> {
        self.last = i;
        self.edits = self.edits.max(record.header.edits);
        self.out.synced = self.out.synced.max(record.header.durable);
        let place = |e: Error| e.at(self.name(i), record.offset);
        let (base, count) = (record.header.lsn, record.header.count);
        let next = base + u64::from(count);
        match record.header.kind {
            RecordKind::Close => {
                self.out.next = next;
                return Ok(());
            }
            RecordKind::Edit => {
                return Err(place(Error::corruption("a manifest edit in the write-ahead log")));
            }
            RecordKind::Batch | RecordKind::Prepare | RecordKind::Decision => {}
        }
        let at = operations(record.header.kind, &record.payload).map_err(place)?;
        let (mut parts, mut taken) = (Parts::new(), BTreeMap::<FamilyId, u64>::new());
        let (mut n, mut numbers_only) = (0, 0);
        for op in Ops::new(&record.payload, at.unwrap_or(0..0)) {
            let op = op.map_err(place)?;
            if n >= u64::from(count) {
                return Err(place(Error::corruption("a batch holds more operations than its header says")));
            }
            let seq = base + n;
            n += 1;
            numbers_only += u64::from(op.family == FamilyId::NOBODY);
            if let Some(family) = self.target(op.family, seq, op.kind).map_err(place)? {
                *taken.entry(family).or_default() += memory_bytes(&op);
                let part = parts.entry(family).or_default();
                // Who only verifies wants to know whether there are any.
                if !self.out.deferred || part.is_empty() {
                    part.push((op, SeqNo(seq - base)));
                }
            }
        }
        if numbers(record.header.kind, n) != u64::from(count) {
            return Err(place(
                Error::corruption("a batch holds another number of operations than its header says")
                    .expected(count, n),
            ));
        }
        if bug::on(Bug::LosePartOfCommit) && parts.len() > 1 {
            parts.pop_last();
        }
        for (family, bytes) in taken {
            *self.out.family_bytes.entry(family).or_default() += bytes;
        }
        let (kind, payload) = (record.header.kind, Arc::new(record.payload));
        let noted = self.prepared(kind, base, &payload);
        noted.map_err(|e| e.at(self.name(i), record.offset))?;
        self.keep(kind, payload, (base, count), (i, record.offset), parts)?;
        self.out.next = next;
        if self.rebooted {
            self.out.synced = self.out.synced.max(next - 1);
        }
        self.out.numbers = (n > 0 && numbers_only == n).then_some((base, SeqNo(next - 1)));
        if let Some(span) = self.out.complete.last_mut() {
            (span.end, span.bytes) = (next, self.read_to);
        }
        Ok(())
    }

    /// Notes a prepared transaction, or that one was decided. (A decision over one that is not known: its record is gone with what was
    /// spent.)
    fn prepared(&mut self, kind: RecordKind, lsn: u64, payload: &Arc<Vec<u8>>) -> Result<()> {
        match kind {
            RecordKind::Prepare => {
                let p = Prepare::decode(payload)?;
                // All that would make it impossible to restore is refused here, before anything is written.
                check_level(p.head.level)?;
                let mut n = 0;
                for op in Ops::new(payload, p.batch.clone()) {
                    let op = op?;
                    n += 1;
                    self.target(op.family, u64::MAX, op.kind)?;
                }
                check_operations(p.head.operations, n)?;
                self.out.undecided.insert(p.head.gid.to_vec(), (lsn, Arc::clone(payload)));
            }
            RecordKind::Decision => {
                self.out.undecided.remove(decision(payload)?.0);
                if self.out.undecided.is_empty() {
                    self.out.forget_the_spent();
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The family that the operation still has to reach.
    fn target(&self, family: FamilyId, seq: u64, kind: EntryKind) -> Result<Option<FamilyId>> {
        let again = kind.is_operand() && bug::on(Bug::ReplayFlushedOperands);
        match self.found.catalog.families.get(&family) {
            Some(entry) if SeqNo(seq) <= entry.flushed && !again => Ok(None),
            Some(_) => Ok(Some(family)),
            None if family == FamilyId::NOBODY => Ok(None),
            None if family.0 < self.found.catalog.next.1 => {
                Ok(bug::on(Bug::ReplayDroppedFamily).then_some(FamilyId::DEFAULT))
            }
            None => Err(Error::corruption(format!(
                "the log writes to family {family}, which the manifest never knew"
            ))),
        }
    }

    fn keep(
        &mut self,
        kind: RecordKind,
        buffer: Arc<Vec<u8>>,
        (base, count): (u64, u32),
        place: (usize, u64),
        parts: Parts,
    ) -> Result<()> {
        // What is copied nowhere must not be lost: the manifest vouches for it.
        let vouched = base + u64::from(count) <= self.found.catalog.durable + 1;
        let needed = !parts.is_empty() || !vouched;
        if self.out.deferred {
            self.needed = self.needed.or(needed.then_some(base));
            return Ok(());
        }
        if !needed && kind != RecordKind::Prepare && self.out.records.is_empty() {
            return Ok(());
        }
        let mut grown = size_of::<Kept>() as u64;
        if parts.is_empty() {
            grown += buffer.capacity() as u64;
        }
        // No record is kept for a reader, nor then the buffers of small ones.
        let copied = self.mode.memory.is_none();
        let families = |id: FamilyId| self.families.get(&id).cloned();
        grown += insert(&buffer, (base, count), &parts, &families, &self.out.shared, copied)?;
        self.out.operations += parts.values().map(|ops| ops.len() as u64).sum::<u64>();
        for family in parts.keys().filter_map(|id| self.families.get(id)) {
            if family.is_full() {
                family.tree.seal();
            }
        }
        let Some(limit) = self.mode.memory else { return Ok(()) };
        if self.out.records.is_empty() {
            self.out.first = base;
        }
        self.out.records.push(Kept { kind, buffer, lsn: base, count, needed, place });
        self.held += grown;
        self.out.peak_bytes = self.out.peak_bytes.max(self.held);
        if self.held > limit {
            self.defer();
        }
        Ok(())
    }

    /// The log is too large: forgets what was kept of it, and only verifies the rest.
    fn defer(&mut self) {
        self.out.deferred = true;
        self.needed = self.out.records.iter().find(|k| k.needed).map(|k| k.lsn);
        self.families.values().for_each(|f| f.tree.reset_memtables());
        (self.out.records, self.out.shared) = Default::default();
        (self.out.operations, self.held) = (0, 0);
    }

    /// Segments that the manifest does not list: copies of an open that did not finish, or removed ones. If one names more
    /// edits than the manifest holds, the manifest has lost some.
    fn unlisted(&mut self) -> Result<()> {
        for file in self.dir.list()? {
            let Some((id, FileKind::Wal)) = name::parse(&file) else { continue };
            let catalog = &self.found.catalog;
            if catalog.logs.iter().any(|(known, _)| *known == id)
                || catalog.retained.iter().any(|s| s.id == id)
            {
                continue;
            }
            match open_log(self.dir, &file, id, self.found.database) {
                Ok(log) => self.unlisted_edits(log)?,
                Err(e) if e.kind() == ErrorKind::Corruption => {}
                Err(e) => return Err(e),
            }
        }
        if self.edits > self.found.edits
            && self.edits > (self.mode.edits_now)()?
            && !bug::on(Bug::TruncateDamagedLog)
        {
            return Err(Error::corruption("the manifest has lost its last edits")
                .in_file(name::MANIFEST)
                .expected(format_args!("edit {}", self.edits), format_args!("edit {}", self.found.edits)));
        }
        Ok(())
    }

    fn unlisted_edits(&mut self, mut log: LogReader) -> Result<()> {
        loop {
            match log.next_record()? {
                Step::Record(r) => self.edits = self.edits.max(r.header.edits),
                Step::End => return Ok(()),
                Step::Bad(_) => {
                    self.edits = self.edits.max(log.look_behind()?.map_or(0, |b| b.edits));
                    return Ok(());
                }
            }
        }
    }

    /// The log reaches as far as anything says it must.
    fn check_end(&self) -> Result<()> {
        let c = &self.found.catalog;
        let newest = |t: &AddedTable| t.meta.stamp.unwrap_or(t.meta.summary.largest);
        let largest = |f: &FamilyEntry| f.tables.values().map(|t| newest(t)).max();
        let ahead =
            c.families.values().any(|f| f.flushed.max(largest(f).unwrap_or_default()).0 >= self.out.next);
        if ahead
            && !bug::on(Bug::TruncateDamagedLog)
            && !bug::on(Bug::ReplayFirstSegmentOnly)
            && !bug::on(Bug::FlushBeforeLogSync)
        {
            return Err(
                Error::corruption("tables hold operations that the log never had").in_file(name::MANIFEST)
            );
        }
        // Of those that were made ahead and hold nothing, none can tell.
        let known = c.logs.iter().take_while(|(_, lsn)| *lsn > 0).count();
        let Some((id, _)) = c.logs.get(self.last.max(known.saturating_sub(1))) else { return Ok(()) };
        let file = name::file_name(*id, FileKind::Wal);
        if self.out.next <= c.durable
            && !self.limited
            && !bug::on(Bug::TruncateDamagedLog)
            && !bug::on(Bug::ReplayFirstSegmentOnly)
        {
            return Err(Error::corruption("the log ends before what was durable").in_file(file).expected(
                format_args!("operation {}", c.durable),
                format_args!("operation {}", self.out.next - 1),
            ));
        }
        if let Some(clean) = c.clean {
            let len = self.dir.file_len(&file)?.unwrap_or(0);
            let whole = clean.bytes == self.read_to;
            if !whole || (clean.log, clean.bytes, clean.last) != (*id, len, self.out.next - 1) {
                return Err(Error::corruption("the log is not as the clean close left it")
                    .at(file, len.min(clean.bytes))
                    .expected(format_args!("{} bytes", clean.bytes), len));
            }
        }
        Ok(())
    }
}

fn open_log(dir: &dyn Dir, file: &str, id: FileId, database: u64) -> Result<LogReader> {
    LogReader::open(dir, file, FileKind::Wal, Some(id), Some(database), None).map_err(|e| {
        if e.kind() == ErrorKind::NotFound {
            return Error::corruption("a log segment that the manifest names is missing").in_file(file);
        }
        e
    })
}
