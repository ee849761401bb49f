//! The records of each log, on both sides of its holes. A torn end is no loss, unless something proves what was there.

use super::coverage::Coverage;
use super::is_damage;
use super::report::{Loss, Repaired};
use super::survey::Survey;
use super::write::Making;
use crate::prepared::shown;
use perigee_base::format::FileKind;
use perigee_base::{Error, FamilyId, FileId, Result, SeqNo};
use perigee_file::log::prepare::{decision, numbers, operations};
use perigee_file::log::{LogReader, Op, Ops, Prepare, Record, RecordKind, Step};
use perigee_file::name;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What reading the logs has found so far.
#[derive(Default)]
struct Progress {
    /// LSNs of the records that were taken: a log may be there twice, as it was and copied.
    seen: BTreeSet<u64>,
    prepared: BTreeMap<Vec<u8>, Prepared>,
    coverage: Coverage,
}

/// Gathers all logs.
pub fn gather(survey: &Survey, making: &mut Making, report: &mut Repaired) -> Result<()> {
    let mut progress = Progress { coverage: Coverage::new(survey), ..Progress::default() };
    for (i, id) in survey.logs.iter().enumerate() {
        // Behind the last there may be one that was made ahead and holds nothing.
        let last = survey.logs[i + 1..].iter().all(|id| is_empty(survey, *id));
        match one(survey, *id, last, &mut progress, making, report) {
            Err(e) if is_damage(&e) => {
                let file = name::file_name(*id, FileKind::Wal);
                if !report.lost.iter().any(|l| l.file == file) {
                    let first = progress.coverage.first_of(*id);
                    progress.coverage.unread(Loss::new(&file, e), first, false);
                }
            }
            other => other?,
        }
    }
    progress.coverage.finish(survey, report);
    for (gid, _) in progress.prepared.into_iter().filter(|(_, p)| p.at > p.decided) {
        report.warn(format!(
            "the transaction prepared as {} was not decided, and is not in the new database",
            shown(&gid)
        ));
    }
    Ok(())
}

fn is_empty(survey: &Survey, id: FileId) -> bool {
    let file = name::file_name(id, FileKind::Wal);
    let log = LogReader::open(&*survey.dir, &file, FileKind::Wal, Some(id), survey.database, None);
    log.is_ok_and(|log| log.offset() == log.end())
}

/// Opens a segment, also behind a damaged header; `None` if no record follows one.
fn open(survey: &Survey, id: FileId, coverage: &mut Coverage) -> Result<Option<LogReader>> {
    let file = name::file_name(id, FileKind::Wal);
    let opened = LogReader::open(&*survey.dir, &file, FileKind::Wal, Some(id), survey.database, None);
    match opened {
        Ok(log) => {
            coverage.begins(id, log.header().a);
            Ok(Some(log))
        }
        Err(e) if e.is_corruption() && survey.database.is_some() => {
            let database = survey.database.unwrap_or_default();
            let mut log = LogReader::salvage(&*survey.dir, &file, FileKind::Wal, id, database)?;
            coverage.unread(Loss::new(&file, e), coverage.first_of(id), false);
            Ok(log.resume()?.map(|_| log))
        }
        Err(e) => Err(e),
    }
}

/// LSN with which the successor of a segment begins, if the manifest says so: an open that kept the segment copied what followed into
/// the successor, or cut it and gave its numbers to other records. [`u64::MAX`]: not known.
fn first_of_successor(survey: &Survey, id: FileId) -> u64 {
    let logs = &survey.catalog.logs;
    let next = logs.iter().position(|(log, _)| *log == id).and_then(|i| logs.get(i + 1));
    next.map(|(_, first)| *first).filter(|first| *first > 0 && survey.whole).unwrap_or(u64::MAX)
}

fn one(
    survey: &Survey,
    id: FileId,
    last: bool,
    progress: &mut Progress,
    making: &mut Making,
    report: &mut Repaired,
) -> Result<()> {
    let file = name::file_name(id, FileKind::Wal);
    let Some(mut log) = open(survey, id, &mut progress.coverage)? else { return Ok(()) };
    let mut next_lsn = progress.coverage.first_of(id);
    let end = first_of_successor(survey, id);
    loop {
        if next_lsn >= end {
            return Ok(());
        }
        match log.next_record()? {
            Step::End => return Ok(()),
            Step::Record(r) if r.header.lsn >= end => return Ok(()),
            Step::Record(r) => {
                report.records += 1;
                let (offset, lsn) = (r.offset, r.header.lsn);
                next_lsn = lsn.saturating_add(u64::from(r.header.count));
                progress.coverage.prove(r.header.durable);
                match record(survey, r, progress, making, report) {
                    Ok(()) => progress.coverage.cover(id, (lsn, next_lsn), log.offset()),
                    Err(e) if e.is_corruption() => {
                        let loss = Loss::new(&file, e.at(&file, offset));
                        let loss = Loss { bytes: Some(log.offset() - offset), ..loss };
                        progress.coverage.unread_record(loss, (lsn, next_lsn));
                    }
                    Err(e) => return Err(e),
                }
            }
            Step::Bad(bad) => {
                let next = log.resume()?;
                let loss = Loss::new(&file, bad.why);
                let bytes = Some(next.unwrap_or(log.end()) - bad.offset);
                let loss = Loss { offset: Some(bad.offset), bytes, ..loss };
                let torn = next.is_none() && last && bad.cut_short;
                progress.coverage.unread(loss, next_lsn, torn);
                if next.is_none() {
                    return Ok(());
                }
            }
        }
    }
}

fn record(
    survey: &Survey,
    r: Record,
    progress: &mut Progress,
    making: &mut Making,
    report: &mut Repaired,
) -> Result<()> {
    let (base, count) = (r.header.lsn, u64::from(r.header.count));
    report.sequence = report.sequence.max(base.saturating_add(count).saturating_sub(1));
    note(&r, &mut progress.prepared)?;
    let Some(at) = operations(r.header.kind, &r.payload)?.filter(|_| progress.seen.insert(base)) else {
        return Ok(());
    };
    let mut parts: BTreeMap<FamilyId, Vec<(Op, SeqNo)>> = BTreeMap::new();
    let mut n = 0;
    for op in Ops::new(&r.payload, at) {
        let op = op?;
        let seq = SeqNo(base + n);
        n += 1;
        // Operations of nobody only took a number.
        if op.family != FamilyId::NOBODY && !survey.is_dropped(op.family) && seq > survey.flushed(op.family) {
            parts.entry(op.family).or_default().push((op, SeqNo(n - 1)));
        }
    }
    if numbers(r.header.kind, n) != count {
        let e = Error::corruption("a batch holds another number of operations than its header says");
        return Err(e.expected(count, n));
    }
    let buffer = Arc::new(r.payload);
    for (family, ops) in parts {
        making.know(survey, family, None);
        making.insert(family, &buffer, base, &ops)?;
    }
    Ok(())
}

/// The numbers of the last records about an identifier: a log may be there twice, as it was and copied.
#[derive(Debug, Default)]
struct Prepared {
    at: u64,
    decided: u64,
}

/// Notes a prepared transaction, or the decision over it.
fn note(r: &Record, prepared: &mut BTreeMap<Vec<u8>, Prepared>) -> Result<()> {
    let lsn = r.header.lsn;
    match r.header.kind {
        RecordKind::Prepare => {
            let p = prepared.entry(Prepare::decode(&r.payload)?.head.gid.to_vec()).or_default();
            p.at = p.at.max(lsn);
        }
        RecordKind::Decision => {
            let p = prepared.entry(decision(&r.payload)?.0.to_vec()).or_default();
            p.decided = p.decided.max(lsn);
        }
        _ => {}
    }
    Ok(())
}
