//! The scrub: slowly reads files that are rarely read otherwise, so that damage is found while a
//! good copy may still exist. It runs on a thread of its own, because it may sleep in the middle of
//! a file; no flush or compaction waits for it.
//!
//! Log segments retained for readers are verified as well, since opening the database does not read
//! them.
//!
//! The scrub holds a reference to one table or value log at a time, which keeps the file alive (see
//! `obsolete_files`), and releases it if the file was replaced. It writes nothing and blocks no
//! other thread.

use crate::catalog::Catalog;
use crate::catalog::retained_logs::LogSpan;
use crate::limits::{SCRUB_QUANTUM_BYTES, SCRUB_SLEEP_US_MAX, SCRUB_YIELD_US_MAX};
use crate::maintenance::Maintenance;
use crate::maintenance::jobs::scrub_progress::{ScrubPass, ScrubPosition, pause_us};
use crate::resources::Resources;
use crate::resources::job_control::JobKind;
use crate::resources::rate_limiter::{RateLimitClass, RateLimitDebt};
use crate::runtime::Runtime;
use crate::runtime::events::EngineEvent;
use perigee_base::{Bytes, Error, ErrorKind, FileId, FileKind, Micros, Result};
use perigee_file::filename;
use perigee_file::log::{LogReader, NextLogRecord};
use perigee_tree::{Table, Vlog};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Returns the period of a pass in microseconds.
fn scrub_interval_us(maintenance: &Maintenance) -> u64 {
    Micros::from_duration_rounded_up(maintenance.runtime.settings.scrub_interval).0
}

/// The file being verified.
enum ScrubTarget {
    Table(Arc<Table>),
    Vlog(Arc<Vlog>),
    Log(LogSpan),
}

impl ScrubTarget {
    fn id(&self) -> FileId {
        match self {
            ScrubTarget::Table(t) => t.meta.id,
            ScrubTarget::Vlog(v) => v.meta.id,
            ScrubTarget::Log(s) => s.id,
        }
    }
    fn bytes(&self) -> u64 {
        match self {
            ScrubTarget::Table(t) => t.meta.summary.bytes,
            ScrubTarget::Vlog(v) => v.meta.bytes,
            ScrubTarget::Log(s) => s.bytes,
        }
    }
    /// Returns true if no version and no other reader references the file.
    fn is_replaced(&self) -> bool {
        match self {
            ScrubTarget::Table(t) => Arc::strong_count(t) == 1,
            ScrubTarget::Vlog(v) => Arc::strong_count(v) == 1,
            // Not reference-counted: reading a removed segment fails.
            ScrubTarget::Log(_) => false,
        }
    }
    fn verify(&self, runtime: &Runtime, pace: &mut dyn FnMut(u64) -> Result<()>) -> Result<()> {
        match self {
            ScrubTarget::Table(t) => t.reader.verify_paced(t.meta.summary.checksum, pace),
            ScrubTarget::Vlog(v) => v.reader.verify_paced(v.meta.checksum, pace),
            ScrubTarget::Log(span) => verify_segment(runtime, span, pace),
        }
    }
}

/// Verifies a log segment; `Busy` if it was removed.
fn verify_segment(
    runtime: &Runtime,
    span: &LogSpan,
    pace: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<()> {
    let (name, database) =
        (filename::file_name(span.id, FileKind::Wal), Some(runtime.identity.database));
    let opened = LogReader::open(
        &*runtime.dir,
        &name,
        FileKind::Wal,
        Some(span.id),
        database,
        Some(Bytes(span.bytes)),
    );
    let mut log = match opened {
        Err(e) if e.kind() == ErrorKind::NotFound => {
            return Err(Error::new(ErrorKind::Busy, "the log segment is no longer retained"));
        }
        opened => opened?,
    };
    loop {
        match log.next_record()? {
            NextLogRecord::Record(_) => pace(log.offset())?,
            NextLogRecord::End => return Ok(()),
            NextLogRecord::Bad(bad) => return Err(bad.error),
        }
    }
}

/// Waits until the next file is due, and verifies it.
///
/// # Errors
/// `Closed`. Damage is recorded, not returned as an error.
pub fn scrub_next_file(maintenance: &Maintenance) -> Result<bool> {
    let (pass, idle_since) = maintenance.scrub().pass();
    let pass = pass.unwrap_or_else(|| begin_pass(maintenance));
    let now = maintenance.runtime.env.clock.monotonic_us();
    let (elapsed, idle) = (now.saturating_sub(pass.started_us), now.saturating_sub(idle_since));
    let (step, left) = quantum_and_remaining(&maintenance.catalog, &pass);
    // If no file is left, the rest of the interval is waited for.
    let (total, done) = if left == 0 { (1, 1) } else { (pass.bytes + left, pass.bytes + step) };
    let pause = pause_us(ScrubPosition {
        total_bytes: total,
        done_bytes: done,
        elapsed_us: elapsed,
        rested_us: idle,
        interval_us: scrub_interval_us(maintenance),
    });
    wait_for_quantum(&maintenance.resources, now.saturating_add(pause), None, None)?;
    // Listed only after the wait: until a file is read, it may be replaced and removed.
    let mut files = remaining_files(&maintenance.catalog, &pass);
    let left = files.values().map(ScrubTarget::bytes).sum();
    let Some((position, file)) = files.pop_first() else {
        finish_pass(maintenance, &pass);
        return Ok(true);
    };
    drop(files);
    let (pass, uncharged) =
        read_file(maintenance, ScrubPass { position: Some(position), ..pass }, &file, left)?;
    drop(file);
    let now = maintenance.runtime.env.clock.monotonic_us();
    maintenance.scrub().set_pass(Some(pass), now);
    let debt = maintenance.resources.charge_rate(RateLimitClass::Compaction, uncharged);
    wait_for_quantum(&maintenance.resources, now, Some((now, debt)), None)?;
    Ok(true)
}

fn begin_pass(maintenance: &Maintenance) -> ScrubPass {
    let pass = ScrubPass::new(
        Micros(maintenance.runtime.env.clock.monotonic_us()),
        maintenance.catalog.next_file_id(),
        maintenance.runtime.env.rand.next_u64(),
    );
    let live_files: BTreeSet<FileId> =
        remaining_files(&maintenance.catalog, &pass).values().map(ScrubTarget::id).collect();
    maintenance.scrub().retain_files(|id| live_files.contains(&id));
    maintenance.scrub().set_pass(Some(pass), pass.started_us);
    pass
}

fn finish_pass(maintenance: &Maintenance, pass: &ScrubPass) {
    let now = maintenance.runtime.env.clock.monotonic_us();
    maintenance.scrub().set_pass(None, now);
    maintenance.runtime.counters.scrub_passes.add(1);
    if pass.files > 0 {
        maintenance.runtime.report_event(&EngineEvent::Scrubbed {
            files: pass.files,
            bytes: pass.bytes,
            errors: pass.errors,
            us: now.saturating_sub(pass.started_us),
        });
    }
}

/// Returns the files that the pass has not read yet, by their position in the pass. Files shared by
/// clones appear once.
fn remaining_files(catalog: &Catalog, pass: &ScrubPass) -> BTreeMap<u64, ScrubTarget> {
    let mut files = BTreeMap::new();
    for family in catalog.families().all() {
        let view = family.tree.view();
        let tables = view.version.tables().map(|(_, _, t)| ScrubTarget::Table(Arc::clone(t)));
        for file in
            tables.chain(view.version.vlogs.values().map(|v| ScrubTarget::Vlog(Arc::clone(v))))
        {
            if let Some(position) = pass.position_of(file.id()) {
                files.insert(position, file);
            }
        }
    }
    let retained = catalog.recorded_files().retained;
    for span in retained {
        if let Some(position) = pass.position_of(span.id) {
            files.insert(position, ScrubTarget::Log(span));
        }
    }
    files
}

/// Returns the bytes of the next quantum, and of all remaining files.
fn quantum_and_remaining(catalog: &Catalog, pass: &ScrubPass) -> (u64, u64) {
    let files = remaining_files(catalog, pass);
    let step = files.values().next().map_or(0, |file| file.bytes().min(SCRUB_QUANTUM_BYTES));
    (step, files.values().map(ScrubTarget::bytes).sum())
}

/// Verifies a file in quanta; `left` is the bytes of this and all later files. Returns the updated
/// pass and the bytes not yet charged to the rate limiter.
fn read_file(
    maintenance: &Maintenance,
    mut pass: ScrubPass,
    file: &ScrubTarget,
    left: u64,
) -> Result<(ScrubPass, u64)> {
    let (total, before, mut paid, mut reported) = (pass.bytes + left, pass.bytes, 0, 0);
    let interval = scrub_interval_us(maintenance);
    let read = file.verify(&maintenance.runtime, &mut |done| {
        check_closing(&maintenance.runtime)?;
        check_slow!(
            reported <= done,
            "the verification of a file advances",
            file.id(),
            reported,
            done
        );
        maintenance.runtime.counters.scrub_bytes.add(done - reported);
        reported = done;
        if done - paid < SCRUB_QUANTUM_BYTES {
            return Ok(());
        }
        let now = maintenance.runtime.env.clock.monotonic_us();
        let next = (done + SCRUB_QUANTUM_BYTES).min(file.bytes());
        let elapsed = now.saturating_sub(pass.started_us);
        let pause = pause_us(ScrubPosition {
            total_bytes: total,
            done_bytes: before + next,
            elapsed_us: elapsed,
            rested_us: 0,
            interval_us: interval,
        });
        let debt = maintenance.resources.charge_rate(RateLimitClass::Compaction, done - paid);
        paid = done;
        wait_for_quantum(
            &maintenance.resources,
            now.saturating_add(pause),
            Some((now, debt)),
            Some(file),
        )
    });
    pass.bytes += file.bytes();
    match read {
        Err(e) if e.kind() == ErrorKind::Closed => return Err(e),
        // Replaced, or not enough memory to read it: neither intact nor damaged.
        Err(e) if matches!(e.kind(), ErrorKind::Busy | ErrorKind::NoMemory) => {}
        verified => {
            pass.files += 1;
            maintenance.runtime.counters.scrub_files.add(1);
            if let Err(e) = &verified {
                pass.errors += 1;
                maintenance.runtime.counters.scrub_errors.add(1);
                maintenance.runtime.report_event(&EngineEvent::Failed { what: "scrub", error: e });
            }
            maintenance.scrub().set_damage(file.id(), verified.err());
        }
    }
    Ok((pass, reported - paid))
}

fn check_closing(runtime: &Runtime) -> Result<()> {
    if runtime.is_closing() {
        return Err(Error::new(
            ErrorKind::Closed,
            "the database is closing; the scrub was cancelled",
        ));
    }
    Ok(())
}

/// Waits until `until_us`, until the debt incurred then is paid (a changed rate cancels it), while
/// background work is paused, and for a limited time for running jobs. `Busy` if the file was
/// replaced meanwhile.
fn wait_for_quantum(
    resources: &Resources,
    until_us: u64,
    debt: Option<(u64, RateLimitDebt)>,
    file: Option<&ScrubTarget>,
) -> Result<()> {
    loop {
        let generation = resources.runtime.signal.generation();
        check_closing(&resources.runtime)?;
        if file.is_some_and(ScrubTarget::is_replaced) {
            return Err(Error::new(ErrorKind::Busy, "the file was replaced during the scrub"));
        }
        if resources.job_control().check_allowed(JobKind::Compaction).is_err() {
            resources.runtime.signal.wait(generation);
            continue;
        }
        let owed = debt.filter(|(_, debt)| resources.is_owed(debt));
        let mut until =
            owed.map_or(until_us, |(since, debt)| until_us.max(since.saturating_add(debt.wait_us)));
        if !resources.job_control().is_idle(None) {
            until = until.saturating_add(SCRUB_YIELD_US_MAX);
        }
        let now = resources.runtime.env.clock.monotonic_us();
        if now >= until {
            return Ok(());
        }
        resources.runtime.signal.wait_timeout_us(generation, (until - now).min(SCRUB_SLEEP_US_MAX));
    }
}
