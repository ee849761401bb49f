//! Replays the log: finds its end, and puts what is not in tables into memtables. Writes nothing.
//!
//! A salvaging replay records damage and continues after it; a strict one fails. If the memtables
//! grow beyond a limit, they are dropped and the rest of the log is only verified, with one record
//! in memory at a time; `catch_up` then reads it a second time and flushes while it reads.

mod log_end;

use super::insert::{ReplayedOps, insert_ops, op_memory_bytes};
use super::manifest_reader::RecoveredManifest;
use super::replay_result::{KeptRecord, RecordPosition, ReplayResult};
use crate::catalog::family::FamilyState;
use crate::catalog::retained_logs::LogSpan;
use crate::txn::prepared_txn::{check_isolation_code, check_operation_count};
use perigee_base::bug::Bug;
use perigee_base::{
    Bytes, EntryKind, Error, ErrorKind, FamilyId, FileId, FileKind, OpIndex, Result, SeqNo, bug,
};
use perigee_env::Dir;
use perigee_file::filename;
use perigee_file::log::{
    BatchOps, LogReader, LogRecord, NextLogRecord, PrepareRecord, RecordKind, decode_decision,
    ops_payload_range, record_lsn_count,
};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

struct LogReplay<'a> {
    dir: &'a dyn Dir,
    manifest: &'a RecoveredManifest,
    families: BTreeMap<FamilyId, Arc<FamilyState>>,
    result: ReplayResult,
    /// Highest manifest edit number recorded in any log record.
    newest_edit: u64,
    mode: ReplayMode<'a>,
    /// The log continues beyond the limit.
    limit_reached: bool,
    /// The last segment that held a record.
    last_segment: usize,
    /// Where that record ended.
    last_record_end: u64,
    /// Bytes held by memtables and records.
    held_bytes: u64,
    /// LSN of the first record that must survive, once the replay is deferred.
    first_needed: Option<SeqNo>,
    /// The segment was written before the last reboot: what is readable is on stable storage.
    machine_restarted: bool,
}

/// How a log is replayed.
pub struct ReplayMode<'a> {
    /// Damage is recorded and skipped.
    pub salvage: bool,
    /// Last sequence number to replay: a record that extends beyond it ends the replay.
    pub limit: SeqNo,
    /// Maximum bytes of memtables and records; `None`: no limit, and no records are kept, because
    /// none will be copied.
    pub memory: Option<u64>,
    /// Returns the current number of manifest edits, while another process is the writer.
    pub edits_now: &'a dyn Fn() -> Result<u64>,
}

/// Replays the segments of the catalog into `families`, or only verifies them if the memtables
/// would exceed `memory`.
pub fn replay_log(
    dir: &dyn Dir,
    found: &RecoveredManifest,
    boot: u64,
    families: &[Arc<FamilyState>],
    memory: Bytes,
) -> Result<ReplayResult> {
    let memory = if bug::is_active(Bug::ReplayIgnoresMemoryBudget) { u64::MAX } else { memory.0 };
    let edits_now = &|| Ok(found.last_edit);
    let mode = ReplayMode { salvage: false, limit: SeqNo::MAX, memory: Some(memory), edits_now };
    replay_with_mode(dir, found, boot, families, mode)
}

/// Replays the segments of the catalog in the given mode.
pub fn replay_with_mode(
    dir: &dyn Dir,
    found: &RecoveredManifest,
    boot: u64,
    families: &[Arc<FamilyState>],
    mode: ReplayMode<'_>,
) -> Result<ReplayResult> {
    let logs = &found.catalog.logs;
    let start = logs.first().map_or(found.catalog.durable_seq.plus(1), |(_, lsn)| *lsn);
    let mut r = LogReplay {
        dir,
        manifest: found,
        families: families.iter().map(|f| (f.id, Arc::clone(f))).collect(),
        result: ReplayResult { first_lsn: start, next_lsn: start, ..ReplayResult::default() },
        newest_edit: 0,
        mode,
        limit_reached: false,
        last_segment: 0,
        last_record_end: 0,
        held_bytes: 0,
        first_needed: None,
        machine_restarted: false,
    };
    for i in 0..logs.len() {
        if bug::is_active(Bug::ReplayFirstSegmentOnly) && i == 1 {
            break;
        }
        match r.replay_segment(i, boot) {
            Ok(true) => {}
            Ok(false) => break,
            Err(e) => r.note_damage(e)?,
        }
    }
    let unlisted_checked = seeded!(TruncateDamagedLog, r.check_unlisted(), Ok(()));
    unlisted_checked.or_else(|e| r.note_damage(e))?;
    let end = if accepts_any_end() { Ok(()) } else { r.check_end() };
    end.or_else(|e| r.note_damage(e))?;
    r.result.synced_lsn =
        r.result.synced_lsn.max(found.catalog.durable_seq).min(r.result.next_lsn.prev());
    r.result.segments = r.result.complete.clone();
    r.result.drop_obsolete_records();
    if r.result.is_deferred {
        r.result.first_lsn = r.result.deferred_first_lsn(r.first_needed);
    } else if r.result.records.is_empty() {
        r.result.first_lsn = r.result.next_lsn;
    }
    check!(
        r.result.first_lsn <= r.result.next_lsn && r.result.synced_lsn < r.result.next_lsn.plus(1),
        "what is synced was replayed",
        r.result.first_lsn,
        r.result.synced_lsn,
        r.result.next_lsn
    );
    check_slow!(
        !r.result.is_deferred || (r.result.records.is_empty() && r.result.operations == 0),
        "a deferred replay keeps no records",
        r.result.records.len(),
        r.result.operations
    );
    r.result.truncate_complete();
    Ok(r.result)
}

/// Returns true if a seeded bug is active that ends the replay too early and does not notice.
fn accepts_any_end() -> bool {
    [Bug::TruncateDamagedLog, Bug::ReplayFirstSegmentOnly, Bug::FlushBeforeLogSync]
        .into_iter()
        .any(bug::is_active)
}
impl LogReplay<'_> {
    /// Records damage in a salvaging replay; returns the error otherwise.
    fn note_damage(&mut self, e: Error) -> Result<()> {
        if !self.mode.salvage || !matches!(e.kind(), ErrorKind::Corruption | ErrorKind::Io) {
            return Err(e);
        }
        self.result.read_errors.push(e);
        self.result.errors_before_lsn = SeqNo::MAX;
        Ok(())
    }

    fn segment_name(&self, i: usize) -> String {
        filename::file_name(self.manifest.catalog.logs[i].0, FileKind::Wal)
    }

    fn open_segment(&self, i: usize) -> Result<LogReader> {
        let (id, first) = self.manifest.catalog.logs[i];
        let file = self.segment_name(i);
        let log = open_log(self.dir, &file, id, self.manifest.database)?;
        // A spare segment was created without its first LSN.
        if !matches!(log.header().a, a if a == first.0 || a == 0) {
            return Err(Error::corruption(
                "the first LSN of a log segment differs from the manifest",
            )
            .at(file, 0)
            .expected(first, log.header().a));
        }
        Ok(log)
    }

    /// Replays segment `i`; returns false if the log ends in it.
    fn replay_segment(&mut self, i: usize, boot: u64) -> Result<bool> {
        let mut log = self.open_segment(i)?;
        match self.manifest.catalog.logs[i].1 {
            SeqNo::ZERO if self.mode.salvage => {}
            SeqNo::ZERO => log.expect_lsn(self.result.next_lsn.0),
            first => log.expect_lsn(first.0),
        }
        let (id, next) = (self.manifest.catalog.logs[i].0, self.result.next_lsn);
        self.result.complete.push(LogSpan {
            id,
            first_lsn: next,
            end_lsn: next,
            bytes: log.offset(),
        });
        let same_boot = log.header().b == boot && boot != 0;
        self.machine_restarted = !same_boot && boot != 0 && log.header().b != 0;
        loop {
            if self.reached_successor(i) {
                // An earlier open copied the remaining records to the successor; the rest is
                // garbage.
                if let NextLogRecord::Bad(bad) = log.next_record()? {
                    self.note_cut(i, &log, log.end() - log.offset(), &bad.error);
                }
                return Ok(true);
            }
            let step = log.next_record()?;
            // Checked after the end of the segment: a concurrent writer may just have started it.
            let successor = if matches!(step, NextLogRecord::Record(_)) {
                None
            } else {
                self.successor_first_lsn(i)?
            };
            match step {
                NextLogRecord::Record(record) => {
                    if record.header.end_seq().prev() > self.mode.limit {
                        self.limit_reached = true;
                        return Ok(false);
                    }
                    self.last_record_end = log.offset();
                    self.result.errors_before_lsn =
                        self.result.errors_before_lsn.min(record.header.first_seq());
                    self.replay_record(i, record).or_else(|e| self.note_damage(e))?;
                }
                // A concurrent writer appended more before it started the successor.
                _ if successor.is_some_and(|lsn| lsn != self.result.next_lsn)
                    && log.refresh_end()? => {}
                NextLogRecord::End => match successor {
                    Some(lsn) if lsn != self.result.next_lsn => {
                        let why =
                            Error::corruption("the log segment ends before its successor starts")
                                .at(self.segment_name(i), log.offset())
                                .expected(lsn, self.result.next_lsn);
                        return self.check_torn_end(i, &log, same_boot, true, why);
                    }
                    _ => return Ok(true),
                },
                NextLogRecord::Bad(bad)
                    if successor == Some(self.result.next_lsn)
                        && log.find_records_after_bad()?.is_none() =>
                {
                    // All operations before the successor were read: the rest is garbage.
                    self.note_cut(i, &log, log.end() - log.offset(), &bad.error);
                    return Ok(true);
                }
                NextLogRecord::Bad(bad) => {
                    match self.check_torn_end(i, &log, same_boot, bad.is_truncated, bad.error) {
                        Err(e) => {
                            self.note_damage(e)?;
                            if log.resume_after_bad_record()?.is_none() {
                                return Ok(true);
                            }
                        }
                        torn => return torn,
                    }
                }
            }
        }
    }

    /// Returns true if the next record belongs to the successor of segment `i`. A salvage, which
    /// may have skipped records, also accepts a later record.
    fn reached_successor(&self, i: usize) -> bool {
        let next = self.result.next_lsn;
        let reached = |first: SeqNo| {
            first == next || (self.mode.salvage && first > SeqNo::ZERO && first < next)
        };
        self.manifest.catalog.logs.get(i + 1).is_some_and(|(_, first)| reached(*first))
    }

    /// Returns the first LSN of the successor of segment `i`; `None` if there is no successor, or
    /// if it has no record that determines it.
    fn successor_first_lsn(&self, i: usize) -> Result<Option<SeqNo>> {
        match self.manifest.catalog.logs.get(i + 1) {
            None => Ok(None),
            Some((_, SeqNo::ZERO)) => match self.open_segment(i + 1).and_then(|log| log.peek_lsn())
            {
                Err(_) if self.mode.salvage => Ok(None),
                first => Ok(first?.map(SeqNo)),
            },
            Some((_, first)) => Ok(Some(*first)),
        }
    }

    fn replay_record(&mut self, i: usize, record: LogRecord) -> Result<()> {
        self.last_segment = i;
        self.newest_edit = self.newest_edit.max(record.header.manifest_edits);
        self.result.synced_lsn = self.result.synced_lsn.max(SeqNo(record.header.durable_lsn));
        let locate = |e: Error| e.at(self.segment_name(i), record.offset);
        let (base, count) = (record.header.first_seq(), record.header.lsn_count);
        let next = record.header.end_seq();
        match record.header.kind {
            RecordKind::Close => {
                self.result.next_lsn = next;
                return Ok(());
            }
            RecordKind::Edit => {
                return Err(locate(Error::corruption("a manifest edit in the write-ahead log")));
            }
            RecordKind::Batch | RecordKind::Prepare | RecordKind::Decision => {}
        }
        let at = ops_payload_range(record.header.kind, &record.payload).map_err(locate)?;
        let (mut parts, mut memory_bytes) = (ReplayedOps::new(), BTreeMap::<FamilyId, u64>::new());
        let (mut n, mut reserved) = (0, 0);
        for op in BatchOps::new(&record.payload, at.unwrap_or(0..0)) {
            let op = op.map_err(locate)?;
            if n >= u64::from(count) {
                return Err(locate(Error::corruption("a batch exceeds its operation count")));
            }
            let index = OpIndex(n);
            n += 1;
            reserved += u64::from(op.family == FamilyId::NONE);
            if let Some(family) =
                self.target_family(op.family, base.of_op(index), op.kind).map_err(locate)?
            {
                *memory_bytes.entry(family).or_default() += op_memory_bytes(&op);
                let part = parts.entry(family).or_default();
                // A deferred replay only needs to know whether there are any.
                if !self.result.is_deferred || part.is_empty() {
                    part.push((op, index));
                }
            }
        }
        if record_lsn_count(record.header.kind, n) != u64::from(count) {
            return Err(locate(
                Error::corruption("the operation count of a batch differs from its header")
                    .expected(count, n),
            ));
        }
        if bug::is_active(Bug::LosePartOfCommit) && parts.len() > 1 {
            parts.pop_last();
        }
        for (family, bytes) in memory_bytes {
            *self.result.family_bytes.entry(family).or_default() += bytes;
        }
        let (kind, payload) = (record.header.kind, Arc::new(record.payload));
        let noted = self.note_prepared(kind, base, &payload);
        noted.map_err(|e| e.at(self.segment_name(i), record.offset))?;
        self.keep_record(
            kind,
            payload,
            base..next,
            RecordPosition { segment: i, offset: record.offset },
            parts,
        )?;
        self.result.next_lsn = next;
        if self.machine_restarted {
            self.result.synced_lsn = self.result.synced_lsn.max(next.prev());
        }
        self.result.reserved_seqs = (n > 0 && reserved == n).then_some(base..=next.prev());
        if let Some(span) = self.result.complete.last_mut() {
            (span.end_lsn, span.bytes) = (next, self.last_record_end);
        }
        Ok(())
    }

    /// Records that a transaction was prepared or decided. (If it is unknown, it is obsolete.)
    fn note_prepared(
        &mut self,
        kind: RecordKind,
        lsn: SeqNo,
        payload: &Arc<Vec<u8>>,
    ) -> Result<()> {
        match kind {
            RecordKind::Prepare => {
                let p = PrepareRecord::decode(payload)?;
                // Whatever could make the restore fail is checked before anything is written.
                check_isolation_code(p.header.isolation_level)?;
                let mut n = 0;
                for op in BatchOps::new(payload, p.ops_range.clone()) {
                    let op = op?;
                    n += 1;
                    self.target_family(op.family, SeqNo::MAX, op.kind)?;
                }
                check_operation_count(&p.header, n)?;
                self.result.prepared_txns.insert(p.header.gid.to_vec(), (lsn, Arc::clone(payload)));
            }
            RecordKind::Decision => {
                self.result.prepared_txns.remove(decode_decision(payload)?.0);
                if self.result.prepared_txns.is_empty() {
                    self.result.drop_obsolete_records();
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns the column family to which the operation still has to be applied.
    fn target_family(
        &self,
        family: FamilyId,
        seq: SeqNo,
        kind: EntryKind,
    ) -> Result<Option<FamilyId>> {
        let replay_anyway = kind.is_operand() && bug::is_active(Bug::ReplayFlushedOperands);
        match self.manifest.catalog.families.get(&family) {
            Some(entry) if seq <= entry.flushed && !replay_anyway => Ok(None),
            Some(_) => Ok(Some(family)),
            None if family == FamilyId::NONE => Ok(None),
            None if family < self.manifest.catalog.next_ids.family => {
                Ok(bug::is_active(Bug::ReplayDroppedFamily).then_some(FamilyId::DEFAULT))
            }
            None => Err(Error::corruption(format!(
                "the log writes to column family {family}, which is not in the manifest"
            ))),
        }
    }

    fn keep_record(
        &mut self,
        kind: RecordKind,
        buffer: Arc<Vec<u8>>,
        seqs: Range<SeqNo>,
        position: RecordPosition,
        parts: ReplayedOps,
    ) -> Result<()> {
        // A record that is not copied is only skipped if the manifest records it as durable.
        let recorded_durable = seqs.end.prev() <= self.manifest.catalog.durable_seq;
        let is_needed = !parts.is_empty() || !recorded_durable;
        if self.result.is_deferred {
            self.first_needed = self.first_needed.or(is_needed.then_some(seqs.start));
            return Ok(());
        }
        if !is_needed && kind != RecordKind::Prepare && self.result.records.is_empty() {
            return Ok(());
        }
        let mut grown = size_of::<KeptRecord>() as u64;
        if parts.is_empty() {
            grown += buffer.capacity() as u64;
        }
        // A read-only open keeps no records, and therefore not the buffers of small ones.
        let copied = self.mode.memory.is_none();
        let families = |id: FamilyId| self.families.get(&id).cloned();
        grown += insert_ops(
            &buffer,
            seqs.clone(),
            &parts,
            &families,
            &self.result.shared_batches,
            copied,
        )?;
        self.result.operations += parts.values().map(|ops| ops.len() as u64).sum::<u64>();
        for family in parts.keys().filter_map(|id| self.families.get(id)) {
            if family.is_memtable_full() {
                family.tree.seal_memtable();
            }
        }
        let Some(limit) = self.mode.memory else { return Ok(()) };
        if self.result.records.is_empty() {
            self.result.first_lsn = seqs.start;
        }
        check_slow!(
            self.result.records.last().is_none_or(|k| k.seqs().end == seqs.start),
            "the kept records are contiguous",
            self.result.records.last().map(KeptRecord::seqs),
            seqs
        );
        self.result.records.push(KeptRecord {
            kind,
            buffer,
            lsn: seqs.start,
            count: (seqs.end.0 - seqs.start.0) as u32,
            needed: is_needed,
            position,
        });
        self.held_bytes += grown;
        self.result.peak_bytes = self.result.peak_bytes.max(self.held_bytes);
        if self.held_bytes > limit {
            self.defer_replay();
        }
        Ok(())
    }

    /// Switches to a deferred replay: drops what was kept and only verifies the rest of the log.
    fn defer_replay(&mut self) {
        self.result.is_deferred = true;
        self.first_needed = self.result.records.iter().find(|k| k.needed).map(|k| k.lsn);
        self.families.values().for_each(|f| f.tree.reset_memtables());
        (self.result.records, self.result.shared_batches) = Default::default();
        (self.result.operations, self.held_bytes) = (0, 0);
        check_slow!(
            self.families.values().all(|f| f.tree.view().memtables().all(|m| m.is_empty())),
            "a deferred replay leaves nothing in memtables",
            self.first_needed
        );
    }
}

fn open_log(dir: &dyn Dir, file: &str, id: FileId, database: u64) -> Result<LogReader> {
    LogReader::open(dir, file, FileKind::Wal, Some(id), Some(database), None).map_err(|e| {
        if e.kind() == ErrorKind::NotFound {
            return Error::corruption("a log segment in the manifest is missing").in_file(file);
        }
        e
    })
}
