//! Gathers the records of each log, before and after damage. A torn end is not a loss, unless it is
//! proven that there was more.

use super::coverage::SeqCoverage;
use super::is_damage;
use super::repair_builder::RepairBuilder;
use super::report::{DataLoss, RepairReport};
use super::survey::Survey;
use crate::txn::prepared_txns::display_gid;
use perigee_base::{Error, FamilyId, FileId, FileKind, OpIndex, Result, SeqNo};
use perigee_file::filename;
use perigee_file::log::{
    BatchOp, BatchOps, LogReader, LogRecord, NextLogRecord, PrepareRecord, RecordKind,
    decode_decision, ops_payload_range, record_lsn_count,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// State of reading the logs.
#[derive(Default)]
struct LogScanState {
    /// LSNs of the records taken: a log may exist twice, the original and a copy.
    seen_lsns: BTreeSet<SeqNo>,
    prepared: BTreeMap<Vec<u8>, PreparedLsns>,
    coverage: SeqCoverage,
}

/// Gathers the records of all logs.
pub fn gather_logs(
    survey: &Survey,
    builder: &mut RepairBuilder,
    report: &mut RepairReport,
) -> Result<()> {
    let mut progress =
        LogScanState { coverage: SeqCoverage::new(survey), ..LogScanState::default() };
    for (i, id) in survey.logs.iter().enumerate() {
        // After the last segment there may be an empty spare segment.
        let last = survey.logs[i + 1..].iter().all(|id| is_empty(survey, *id));
        match gather_segment(survey, *id, last, &mut progress, builder, report) {
            Err(e) if is_damage(&e) => {
                let file = filename::file_name(*id, FileKind::Wal);
                if !report.lost.iter().any(|l| l.file == file) {
                    let first = progress.coverage.segment_first_seq(*id);
                    progress.coverage.add_unread(DataLoss::new(&file, e), first, false);
                }
            }
            other => other?,
        }
    }
    progress.coverage.report_losses(survey, report);
    let in_log = progress.prepared.into_iter().filter(|(_, p)| p.prepared_lsn > p.decided_lsn);
    // Without a trusted manifest their tables are read like those of unfinished loads.
    let in_tables = survey.catalog.prepared.keys().filter(|_| survey.is_manifest_trusted).cloned();
    for gid in in_log.map(|(gid, _)| gid).chain(in_tables) {
        report.warn(format!(
            "the transaction prepared as {} was not decided and is not in the new database",
            display_gid(&gid)
        ));
    }
    Ok(())
}

fn is_empty(survey: &Survey, id: FileId) -> bool {
    let file = filename::file_name(id, FileKind::Wal);
    let log = LogReader::open(&*survey.dir, &file, FileKind::Wal, Some(id), survey.database, None);
    log.is_ok_and(|log| log.offset() == log.end())
}

/// Opens a segment, even if its header is damaged; `None` if no record follows the damage.
fn open_segment(
    survey: &Survey,
    id: FileId,
    coverage: &mut SeqCoverage,
) -> Result<Option<LogReader>> {
    let file = filename::file_name(id, FileKind::Wal);
    let opened =
        LogReader::open(&*survey.dir, &file, FileKind::Wal, Some(id), survey.database, None);
    match opened {
        Ok(log) => {
            coverage.add_segment_start(id, SeqNo(log.header().a));
            Ok(Some(log))
        }
        Err(e) if e.is_corruption() && survey.database.is_some() => {
            let database = survey.database.unwrap_or_default();
            let mut log =
                LogReader::open_for_salvage(&*survey.dir, &file, FileKind::Wal, id, database)?;
            coverage.add_unread(DataLoss::new(&file, e), coverage.segment_first_seq(id), false);
            Ok(log.resume_after_bad_record()?.map(|_| log))
        }
        Err(e) => Err(e),
    }
}

/// Returns the first LSN of the successor of a segment, according to the manifest: an open that
/// kept the segment copied the following records into the successor, or truncated the segment and
/// reused their LSNs. [`SeqNo::MAX`]: not known.
fn first_of_successor(survey: &Survey, id: FileId) -> SeqNo {
    let logs = &survey.catalog.logs;
    let next = logs.iter().position(|(log, _)| *log == id).and_then(|i| logs.get(i + 1));
    next.map(|(_, first)| *first)
        .filter(|first| *first > SeqNo::ZERO && survey.is_manifest_complete)
        .unwrap_or(SeqNo::MAX)
}

fn gather_segment(
    survey: &Survey,
    id: FileId,
    last: bool,
    progress: &mut LogScanState,
    builder: &mut RepairBuilder,
    report: &mut RepairReport,
) -> Result<()> {
    let file = filename::file_name(id, FileKind::Wal);
    let Some(mut log) = open_segment(survey, id, &mut progress.coverage)? else { return Ok(()) };
    let mut next_lsn = progress.coverage.segment_first_seq(id);
    let end = first_of_successor(survey, id);
    loop {
        if next_lsn >= end {
            return Ok(());
        }
        match log.next_record()? {
            NextLogRecord::End => return Ok(()),
            NextLogRecord::Record(r) if r.header.first_seq() >= end => return Ok(()),
            NextLogRecord::Record(r) => {
                report.log_records += 1;
                let (offset, lsn) = (r.offset, r.header.first_seq());
                next_lsn = r.header.end_seq();
                progress.coverage.prove_up_to(SeqNo(r.header.durable_lsn));
                match add_record(survey, r, progress, builder, report) {
                    Ok(()) => progress.coverage.add_covered(id, lsn..next_lsn, log.offset()),
                    Err(e) if e.is_corruption() => {
                        let loss = DataLoss::new(&file, e.at(&file, offset));
                        let loss = DataLoss { bytes: Some(log.offset() - offset), ..loss };
                        progress.coverage.add_unread_record(loss, lsn..next_lsn);
                    }
                    Err(e) => return Err(e),
                }
            }
            NextLogRecord::Bad(bad) => {
                let next = log.resume_after_bad_record()?;
                let loss = DataLoss::new(&file, bad.error);
                let bytes = Some(next.unwrap_or(log.end()) - bad.offset);
                let loss = DataLoss { offset: Some(bad.offset), bytes, ..loss };
                let torn = next.is_none() && last && bad.is_truncated;
                progress.coverage.add_unread(loss, next_lsn, torn);
                if next.is_none() {
                    return Ok(());
                }
            }
        }
    }
}

fn add_record(
    survey: &Survey,
    r: LogRecord,
    progress: &mut LogScanState,
    builder: &mut RepairBuilder,
    report: &mut RepairReport,
) -> Result<()> {
    let (base, count) = (r.header.first_seq(), u64::from(r.header.lsn_count));
    report.sequence = report.sequence.max(SeqNo(base.0.saturating_add(count)).prev().0);
    note_decision(&r, &mut progress.prepared)?;
    let Some(at) =
        ops_payload_range(r.header.kind, &r.payload)?.filter(|_| progress.seen_lsns.insert(base))
    else {
        return Ok(());
    };
    let mut parts: BTreeMap<FamilyId, Vec<(BatchOp, OpIndex)>> = BTreeMap::new();
    let mut n = 0;
    for op in BatchOps::new(&r.payload, at) {
        let op = op?;
        let index = OpIndex(n);
        n += 1;
        // Operations without a column family only reserved a sequence number.
        if op.family != FamilyId::NONE
            && !survey.is_dropped(op.family)
            && base.of_op(index) > survey.flushed(op.family)
        {
            parts.entry(op.family).or_default().push((op, index));
        }
    }
    if record_lsn_count(r.header.kind, n) != count {
        let e = Error::corruption("the operation count of a batch differs from its header");
        return Err(e.expected(count, n));
    }
    let buffer = Arc::new(r.payload);
    for (family, ops) in parts {
        builder.add_family(survey, family, None);
        builder.insert_ops(family, &buffer, base, &ops)?;
    }
    Ok(())
}

/// The LSNs of the newest prepare and decision records of a transaction: a log may exist twice, as
/// the original and as a copy.
#[derive(Debug, Default)]
struct PreparedLsns {
    prepared_lsn: SeqNo,
    decided_lsn: SeqNo,
}

/// Records a prepared transaction, or the decision about it.
fn note_decision(r: &LogRecord, prepared: &mut BTreeMap<Vec<u8>, PreparedLsns>) -> Result<()> {
    let lsn = r.header.first_seq();
    match r.header.kind {
        RecordKind::Prepare => {
            let p =
                prepared.entry(PrepareRecord::decode(&r.payload)?.header.gid.to_vec()).or_default();
            p.prepared_lsn = p.prepared_lsn.max(lsn);
        }
        RecordKind::Decision => {
            let p = prepared.entry(decode_decision(&r.payload)?.0.to_vec()).or_default();
            p.decided_lsn = p.decided_lsn.max(lsn);
        }
        _ => {}
    }
    Ok(())
}
