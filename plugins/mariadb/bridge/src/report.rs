//! Statistics: text for SHOW ENGINE STATUS, JSON, and counters for SHOW STATUS.

use crate::engine::{Engine, Shared, with_engine};
use crate::ffi::{CounterFn, TextFn};
use crate::status::{Result, Status};
use perigee::stats::{FamilyStats, Stats};
use std::ffi::{CString, c_void};
use std::fmt::{self, Write};
use std::sync::Arc;

/// Number of tables in the text; the largest are listed.
const TABLES_MAX: usize = 50;

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_engine_status_text(
    engine: *mut Engine,
    report: TextFn,
    arg: *mut c_void,
) -> Status {
    let work = |shared: &Arc<Shared>| {
        let text = status_text(shared)?;
        // SAFETY: guaranteed by the caller; the text is valid during the call.
        unsafe { report(arg, text.as_ptr().cast(), text.len()) };
        Ok(())
    };
    // SAFETY: guaranteed by the caller.
    unsafe { with_engine(engine, work) }
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_engine_status_json(
    engine: *mut Engine,
    report: TextFn,
    arg: *mut c_void,
) -> Status {
    let work = |shared: &Arc<Shared>| {
        let mut stats = shared.db.admin().stats();
        stats.families = table_stats(shared, stats.families)?;
        let text = serde_json::to_string(&stats)
            .map_err(|e| Status::INTERNAL.with_text(format!("write the statistics: {e}")))?;
        // SAFETY: guaranteed by the caller; the text is valid during the call.
        unsafe { report(arg, text.as_ptr().cast(), text.len()) };
        Ok(())
    };
    // SAFETY: guaranteed by the caller.
    unsafe { with_engine(engine, work) }
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_engine_counters(
    engine: *mut Engine,
    report: CounterFn,
    arg: *mut c_void,
) -> Status {
    let work = |shared: &Arc<Shared>| {
        for counter in shared.db.admin().counters() {
            let name = CString::new(counter.name).unwrap_or_default();
            // SAFETY: guaranteed by the caller; the name is valid during the call.
            unsafe { report(arg, name.as_ptr(), counter.value) };
        }
        Ok(())
    };
    // SAFETY: guaranteed by the caller.
    unsafe { with_engine(engine, work) }
}

/// Returns the statistics of tables only, with the names of the tables.
fn table_stats(shared: &Shared, families: Vec<FamilyStats>) -> Result<Vec<FamilyStats>> {
    let mut tables = Vec::with_capacity(families.len());
    for mut family in families {
        if let Some(name) = shared.registry.table_name(std::mem::take(&mut family.name))? {
            family.name = name;
            tables.push(family);
        }
    }
    Ok(tables)
}

fn status_text(shared: &Shared) -> Result<String> {
    let mut stats = shared.db.admin().stats();
    stats.families = table_stats(shared, stats.families)?;
    let mut text = String::new();
    write_stats(&mut text, &stats).map_err(|_| Status::INTERNAL.with_message("no text"))?;
    Ok(text)
}

/// Formats bytes with a unit.
struct Bytes(u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
        let (mut value, mut unit) = (self.0 as f64, 0);
        while value >= 1024.0 && unit + 1 < units.len() {
            (value, unit) = (value / 1024.0, unit + 1);
        }
        match unit {
            0 => write!(f, "{} B", self.0),
            _ => write!(f, "{value:.1} {}", units[unit]),
        }
    }
}

fn write_stats(text: &mut String, s: &Stats) -> fmt::Result {
    write_state(text, s)?;
    write_transactions(text, s)?;
    write_memory(text, s)?;
    write_io(text, s)?;
    write_background(text, s)?;
    write_tables(text, &s.families)
}

fn write_state(text: &mut String, s: &Stats) -> fmt::Result {
    writeln!(text, "-----\nSTATE\n-----")?;
    writeln!(text, "last sequence number {}, durable {}", s.last_sequence, s.durable_sequence)?;
    match &s.background_error {
        Some(e) => writeln!(text, "ERROR: {e}")?,
        None => writeln!(text, "no error")?,
    }
    for e in &s.scrub_errors {
        writeln!(text, "DAMAGED FILE: {e}")?;
    }
    writeln!(text, "writers delayed by: {}", s.stall_reason)?;
    for stall in s.stalls.iter().filter(|stall| stall.delays + stall.stops > 0) {
        writeln!(
            text,
            "stalls by {}: {} delays ({} ms), {} stops ({} ms)",
            stall.reason,
            stall.delays,
            stall.delay_us / 1000,
            stall.stops,
            stall.stop_us / 1000
        )?;
    }
    Ok(())
}

fn write_transactions(text: &mut String, s: &Stats) -> fmt::Result {
    writeln!(text, "------------\nTRANSACTIONS\n------------")?;
    let t = &s.transactions;
    writeln!(text, "{} sessions with a transaction object", t.open)?;
    writeln!(text, "{} of uncommitted writes in memory", Bytes(t.bytes))?;
    write!(text, "{} prepared", t.prepared)?;
    if let Some(age) = t.oldest_prepared {
        write!(text, ", the oldest {} s ago", age.as_secs())?;
    }
    writeln!(text, "\n{} read views", s.snapshots)
}

fn write_memory(text: &mut String, s: &Stats) -> fmt::Result {
    writeln!(text, "------\nMEMORY\n------")?;
    writeln!(text, "{} of {} used", Bytes(s.memory_bytes()), Bytes(s.memory_budget))?;
    for m in s.memory.iter().filter(|m| m.bytes > 0) {
        writeln!(text, "  {}: {}", m.owner, Bytes(m.bytes))?;
    }
    let lookups = s.cache.hits + s.cache.misses;
    let rate = if lookups == 0 { 0.0 } else { 100.0 * s.cache.hits as f64 / lookups as f64 };
    writeln!(text, "block cache: {} blocks, {lookups} lookups, {rate:.2} % hits", s.cache.blocks)
}

fn write_io(text: &mut String, s: &Stats) -> fmt::Result {
    writeln!(text, "--------\nFILE I/O\n--------")?;
    writeln!(text, "{} in {} tables and other files", Bytes(s.disk_bytes), s.tables)?;
    writeln!(text, "log: {} segments, {}", s.wal.segments, Bytes(s.wal.bytes))?;
    writeln!(text, "{} of at most {} table files open", s.open_files.open, s.open_files.limit)?;
    for io in s.io.iter().filter(|io| io.reads + io.writes > 0) {
        let (read, written) = (Bytes(io.bytes_read), Bytes(io.bytes_written));
        writeln!(
            text,
            "{}: {} reads ({read}), {} writes ({written})",
            io.cause, io.reads, io.writes
        )?;
    }
    for l in s.latency.iter().filter(|l| l.count > 0) {
        let us = |ns: u64| ns as f64 / 1000.0;
        writeln!(
            text,
            "latency of {}: p50 {:.1} us, p99 {:.1} us, p99.9 {:.1} us, maximum {:.1} us",
            l.operation,
            us(l.p50_ns),
            us(l.p99_ns),
            us(l.p999_ns),
            us(l.max_ns)
        )?;
    }
    Ok(())
}

fn write_background(text: &mut String, s: &Stats) -> fmt::Result {
    writeln!(text, "-----------------------\nFLUSHES AND COMPACTIONS\n-----------------------")?;
    let b = &s.background;
    writeln!(
        text,
        "{} flushes running, {} immutable memtables; {} compactions running, {} due",
        b.flushes_running, b.immutable_memtables, b.compactions_running, b.compactions_due
    )?;
    for job in &s.running_jobs {
        writeln!(
            text,
            "{} of {} ({}): {} of {} in {} ms",
            job.kind,
            job.family,
            job.reason,
            Bytes(job.bytes_done),
            Bytes(job.bytes),
            job.elapsed_us / 1000
        )?;
    }
    Ok(())
}

fn disk_bytes(t: &FamilyStats) -> u64 {
    t.levels.iter().map(|level| level.bytes).sum::<u64>() + t.vlogs.bytes
}

fn write_tables(text: &mut String, tables: &[FamilyStats]) -> fmt::Result {
    writeln!(text, "------\nTABLES\n------")?;
    let mut largest: Vec<&FamilyStats> = tables.iter().collect();
    largest.sort_by_key(|t| std::cmp::Reverse(disk_bytes(t)));
    for t in largest.iter().take(TABLES_MAX) {
        write!(
            text,
            "{}: {} on disk, {} in memtables, {} entries, files by level:",
            t.name,
            Bytes(disk_bytes(t)),
            Bytes(t.memtable.bytes + t.immutable_memtables.bytes),
            t.entries()
        )?;
        for level in &t.levels {
            write!(text, " {}", level.files)?;
        }
        writeln!(text)?;
    }
    if largest.len() > TABLES_MAX {
        writeln!(text, "{} smaller tables are not listed", largest.len() - TABLES_MAX)?;
    }
    Ok(())
}
