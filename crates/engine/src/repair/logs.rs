//! The records of each log, on both sides of its holes. A torn end is no loss.

use super::is_damage;
use super::report::Repaired;
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

/// Gathers all logs.
pub fn gather(survey: &Survey, making: &mut Making, report: &mut Repaired) -> Result<()> {
    let (mut seen, mut next) = (BTreeSet::new(), None);
    let mut prepared = BTreeMap::new();
    for (i, id) in survey.logs.iter().enumerate() {
        // Behind the last there may be one that was made ahead and holds nothing.
        let last = survey.logs[i + 1..].iter().all(|id| is_empty(survey, *id));
        if let (Some(next), Some(first), Some(before)) = (next, first_of(survey, *id), i.checked_sub(1))
            && first > next
        {
            let file = name::file_name(survey.logs[before], FileKind::Wal);
            if !report.lost.iter().any(|l| l.file == file) {
                let e = Error::corruption("the log segment ends before its successor starts");
                report.lose(&file, None, e.expected(first, next));
            }
        }
        match one(survey, *id, last, (&mut seen, &mut prepared), &mut next, making, report) {
            Err(e) if is_damage(&e) => {
                let file = name::file_name(*id, FileKind::Wal);
                if !report.lost.iter().any(|l| l.file == file) {
                    report.lose(&file, None, e);
                }
            }
            other => other?,
        }
    }
    for (gid, _) in prepared.into_iter().filter(|(_, p)| p.at > p.decided) {
        report.warn(format!(
            "the transaction prepared as {} was not decided, and is not in the new database",
            shown(&gid)
        ));
    }
    Ok(())
}

/// Where a segment begins, as far as it says.
fn first_of(survey: &Survey, id: FileId) -> Option<u64> {
    let file = name::file_name(id, FileKind::Wal);
    let log = LogReader::open(&*survey.dir, &file, FileKind::Wal, Some(id), survey.database, None).ok()?;
    match log.header().a {
        0 => log.peek().ok()?,
        first => Some(first),
    }
}

fn is_empty(survey: &Survey, id: FileId) -> bool {
    let file = name::file_name(id, FileKind::Wal);
    let log = LogReader::open(&*survey.dir, &file, FileKind::Wal, Some(id), survey.database, None);
    log.is_ok_and(|log| log.offset() == log.end())
}

fn one(
    survey: &Survey,
    id: FileId,
    last: bool,
    (seen, prepared): (&mut BTreeSet<u64>, &mut BTreeMap<Vec<u8>, Prepared>),
    next_lsn: &mut Option<u64>,
    making: &mut Making,
    report: &mut Repaired,
) -> Result<()> {
    let file = name::file_name(id, FileKind::Wal);
    let opened = LogReader::open(&*survey.dir, &file, FileKind::Wal, Some(id), survey.database, None);
    let mut log = match opened {
        Ok(log) => log,
        Err(e) if e.is_corruption() && survey.database.is_some() => {
            let database = survey.database.unwrap_or_default();
            let mut log = LogReader::salvage(&*survey.dir, &file, FileKind::Wal, id, database)?;
            report.lose(&file, None, e);
            if log.resume()?.is_none() {
                return Ok(());
            }
            log
        }
        Err(e) => return Err(e),
    };
    loop {
        match log.next_record()? {
            Step::End => return Ok(()),
            Step::Record(r) => {
                report.records += 1;
                let offset = r.offset;
                *next_lsn = Some(r.header.lsn.saturating_add(u64::from(r.header.count)));
                if let Err(e) = record(survey, r, (&mut *seen, &mut *prepared), making, report) {
                    if !e.is_corruption() {
                        return Err(e);
                    }
                    report.lose(&file, None, e.at(&file, offset));
                }
            }
            Step::Bad(bad) => {
                let start = bad.offset;
                let next = log.resume()?;
                if next.is_none() && last && bad.cut_short {
                    return Ok(());
                }
                report.lose(&file, None, bad.why);
                if let Some(loss) = report.lost.last_mut() {
                    (loss.offset, loss.bytes) = (Some(start), Some(next.unwrap_or(log.end()) - start));
                }
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
    (seen, prepared): (&mut BTreeSet<u64>, &mut BTreeMap<Vec<u8>, Prepared>),
    making: &mut Making,
    report: &mut Repaired,
) -> Result<()> {
    let (base, count) = (r.header.lsn, u64::from(r.header.count));
    report.sequence = report.sequence.max(base.saturating_add(count).saturating_sub(1));
    note(&r, prepared)?;
    let Some(at) = operations(r.header.kind, &r.payload)?.filter(|_| seen.insert(base)) else {
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
