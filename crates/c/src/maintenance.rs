//! Flush, compaction, checkpoints, backups, verification, repair and statistics.

use crate::boundary::{ErrorOut, Handle, Out, Struct, Text, call};
use crate::database::{database, family};
use crate::memory::return_text;
use crate::range::Range;
use perigee::backup::BackupDir;
use perigee::recovery::RepairReport;
use perigee::{Error, Result};
use std::ffi::{c_char, c_int};
use std::fmt::Write;

#[unsafe(no_mangle)]
pub extern "C" fn perigee_db_flush(db: Handle, family: Handle, error: ErrorOut) -> c_int {
    call(error, || {
        let db = database(db)?;
        if family.is_null() { db.admin().flush() } else { self::family(family)?.flush() }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_db_compact(
    db: Handle,
    family: Handle,
    range: Struct<Range>,
    error: ErrorOut,
) -> c_int {
    call(error, || {
        let db = database(db)?;
        if family.is_null() {
            return match range.get() {
                None => db.admin().compact(),
                Some(_) => Err(Error::invalid("a range needs a column family")),
            };
        }
        let family = self::family(family)?;
        match range.get() {
            None => family.compact(),
            Some(_) => family.compact_range(range.bounds(&family)?),
        }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_db_purge(db: Handle, family: Handle, error: ErrorOut) -> c_int {
    call(error, || {
        let db = database(db)?;
        if family.is_null() { db.admin().purge() } else { self::family(family)?.purge() }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_db_set_background_rate(
    db: Handle,
    bytes_per_second: u64,
    error: ErrorOut,
) -> c_int {
    call(error, || {
        let rate = Some(bytes_per_second).filter(|rate| *rate > 0);
        database(db)?.admin().set_background_rate(rate);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_db_wait_idle(db: Handle, error: ErrorOut) -> c_int {
    call(error, || database(db)?.admin().wait_idle())
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_db_checkpoint(
    db: Handle,
    directory: Text,
    sequence: Out<u64>,
    error: ErrorOut,
) -> c_int {
    sequence.set(0);
    call(error, || {
        sequence.set(database(db)?.backups().checkpoint(directory.get()?)?.sequence);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_db_backup(
    db: Handle,
    directory: Text,
    generation: Out<u64>,
    error: ErrorOut,
) -> c_int {
    generation.set(0);
    call(error, || {
        generation.set(database(db)?.backups().create(directory.get()?)?.generation);
        Ok(())
    })
}

fn backup_dir(directory: Text) -> Result<BackupDir> {
    Ok(BackupDir::open(directory.get()?))
}

fn generation_or_none(generation: u64) -> Option<u64> {
    Some(generation).filter(|g| *g > 0)
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_backup_restore(
    directory: Text,
    generation: u64,
    target: Text,
    error: ErrorOut,
) -> c_int {
    call(error, || {
        let target = target.get()?;
        backup_dir(directory)?.restore(generation_or_none(generation), target).map(drop)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_backup_verify(
    directory: Text,
    generation: u64,
    damaged: Out<u64>,
    error: ErrorOut,
) -> c_int {
    damaged.set(0);
    call(error, || {
        let report = backup_dir(directory)?.verify(generation_or_none(generation))?;
        damaged.set(report.errors.len() as u64);
        report.errors.into_iter().next().map_or(Ok(()), |damage| Err(damage.error))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_backup_prune(directory: Text, keep: u64, error: ErrorOut) -> c_int {
    call(error, || {
        let keep = usize::try_from(keep).unwrap_or(usize::MAX);
        backup_dir(directory)?.prune(keep).map(drop)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_db_verify(db: Handle, damaged: Out<u64>, error: ErrorOut) -> c_int {
    damaged.set(0);
    call(error, || {
        let report = database(db)?.admin().verify()?;
        damaged.set(report.errors.len() as u64);
        report.errors.into_iter().next().map_or(Ok(()), Err)
    })
}

/// Describes the result of a repair, one fact a line.
fn describe_repair(report: &RepairReport) -> String {
    let mut text = String::new();
    for family in &report.families {
        let _ = writeln!(text, "column family {:?}: {} entries", family.name, family.entries);
    }
    for loss in &report.lost {
        let family = loss.family.as_ref().map(|name| format!(", column family {name:?}"));
        let entries = loss.entries.map(|count| format!(", {count} entries"));
        let (family, entries) = (family.unwrap_or_default(), entries.unwrap_or_default());
        let _ = writeln!(text, "lost: {}{family}{entries}", loss.error);
    }
    for warning in &report.warnings {
        let _ = writeln!(text, "warning: {warning}");
    }
    if report.lost.is_empty() {
        text.push_str("nothing was lost\n");
    }
    text
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_repair(
    source: Text,
    target: Text,
    report: Out<*mut c_char>,
    error: ErrorOut,
) -> c_int {
    return_text(&report, error, || {
        Ok(describe_repair(&perigee::repair(source.get()?, target.get()?)?))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_db_stats_json(
    db: Handle,
    json: Out<*mut c_char>,
    error: ErrorOut,
) -> c_int {
    return_text(&json, error, || Ok(database(db)?.admin().stats().to_json()))
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_db_metrics(db: Handle, text: Out<*mut c_char>, error: ErrorOut) -> c_int {
    return_text(&text, error, || Ok(database(db)?.admin().metrics()))
}
