//! Reads the files that nobody reads, slowly, so that damage is found while there is still a good
//! copy somewhere. A thread of its own: it may sleep in the middle of a file, and no flush or
//! compaction waits for it.
//!
//! Segments of the log that stay for readers are read too: no open reads them.
//!
//! It holds one table or value log at a time, by which the file stays (see `retire`), and lets go
//! of one that was replaced. It writes nothing and stops nobody.

use crate::core::EngineCore;
use crate::events::EngineEvent;
use crate::job_control::JobKind;
use crate::rate_limiter::{RateLimitClass, RateLimitDebt};
use crate::scrub::{QUANTUM_BYTES, ScrubPass, pause_us};
use crate::wal::LogSpan;
use perigee_base::file_header::FileKind;
use perigee_base::{Error, ErrorKind, FileId, Result};
use perigee_file::filename;
use perigee_file::log::{LogReader, NextLogRecord};
use perigee_tree::{Table, Vlog};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

/// Longest that a quantum waits for jobs that run: a database that is never at rest is read, too.
const YIELD_US_MAX: u64 = 10_000_000;

/// A file that is being read.
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
    /// Whether no version and no reader holds it any more.
    fn is_replaced(&self) -> bool {
        match self {
            ScrubTarget::Table(t) => Arc::strong_count(t) == 1,
            ScrubTarget::Vlog(v) => Arc::strong_count(v) == 1,
            // Nothing holds it: whoever reads it finds out.
            ScrubTarget::Log(_) => false,
        }
    }
    fn verify(&self, core: &EngineCore, pace: &mut dyn FnMut(u64) -> Result<()>) -> Result<()> {
        match self {
            ScrubTarget::Table(t) => t.reader.verify_paced(t.meta.summary.checksum, pace),
            ScrubTarget::Vlog(v) => v.reader.verify_paced(v.meta.checksum, pace),
            ScrubTarget::Log(span) => verify_segment(core, span, pace),
        }
    }
}

/// Reads a segment of the log, unless it was removed.
fn verify_segment(
    core: &EngineCore,
    span: &LogSpan,
    pace: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<()> {
    let (name, database) = (filename::file_name(span.id, FileKind::Wal), Some(core.database_id));
    let opened = LogReader::open(
        &*core.dir,
        &name,
        FileKind::Wal,
        Some(span.id),
        database,
        Some(span.bytes),
    );
    let mut log = match opened {
        Err(e) if e.kind() == ErrorKind::NotFound => {
            return Err(Error::new(ErrorKind::Busy, "the segment is no longer kept"));
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

/// Longest single sleep.
const SLEEP_US_MAX: u64 = 3_600_000_000;

/// Waits for the turn of the next file, and reads it.
///
/// # Errors
/// `Closed`. Damage is no error of the job.
pub fn scrub_next_file(core: &Arc<EngineCore>) -> Result<bool> {
    let (pass, rested_since) = core.scrub.pass();
    let pass = pass.unwrap_or_else(|| begin_pass(core));
    let now = core.env.clock.monotonic_us();
    let (elapsed, rested) = (now.saturating_sub(pass.started_us), now.saturating_sub(rested_since));
    let (step, left) = quantum_and_remaining(core, &pass);
    // With nothing left the rest of the interval is waited for.
    let (total, done) = if left == 0 { (1, 1) } else { (pass.bytes + left, pass.bytes + step) };
    let pause = pause_us(total, done, elapsed, rested, core.settings.scrub_interval_us);
    wait_for_quantum(core, now.saturating_add(pause), None, None)?;
    // Looked for only now: what is not being read may be replaced and removed.
    let mut files = remaining_files(core, &pass);
    let left = files.values().map(ScrubTarget::bytes).sum();
    let Some((place, file)) = files.pop_first() else {
        finish_pass(core, &pass);
        return Ok(true);
    };
    drop(files);
    let (pass, moved) = read_file(core, ScrubPass { position: Some(place), ..pass }, &file, left)?;
    drop(file);
    let now = core.env.clock.monotonic_us();
    core.scrub.set_pass(Some(pass), now);
    let debt = core.rate_limiter.charge(now, moved, RateLimitClass::Compaction);
    wait_for_quantum(core, now, Some((now, debt)), None)?;
    Ok(true)
}

fn begin_pass(core: &EngineCore) -> ScrubPass {
    let pass = ScrubPass::new(
        core.env.clock.monotonic_us(),
        core.next_file_id.load(SeqCst),
        core.env.rand.next_u64(),
    );
    let lives: BTreeSet<FileId> =
        remaining_files(core, &pass).values().map(ScrubTarget::id).collect();
    core.scrub.retain_files(|id| lives.contains(&id));
    core.scrub.set_pass(Some(pass), pass.started_us);
    pass
}

fn finish_pass(core: &EngineCore, pass: &ScrubPass) {
    let now = core.env.clock.monotonic_us();
    core.scrub.set_pass(None, now);
    core.counters.scrub_passes.add(1);
    if pass.files > 0 {
        core.report_event(&EngineEvent::Scrubbed {
            files: pass.files,
            bytes: pass.bytes,
            errors: pass.errors,
            us: now.saturating_sub(pass.started_us),
        });
    }
}

/// The files that the pass has still to read, by their place on its way. What clones share is there
/// once.
fn remaining_files(core: &EngineCore, pass: &ScrubPass) -> BTreeMap<u64, ScrubTarget> {
    let mut files = BTreeMap::new();
    for family in core.families.all() {
        let view = family.tree.view();
        let tables = view.version.tables().map(|(_, _, t)| ScrubTarget::Table(Arc::clone(t)));
        for file in
            tables.chain(view.version.vlogs.values().map(|v| ScrubTarget::Vlog(Arc::clone(v))))
        {
            if let Some(place) = pass.position_of(file.id()) {
                files.insert(place, file);
            }
        }
    }
    for span in core.manifest.with_catalog(|catalog| catalog.retained.clone()) {
        if let Some(place) = pass.position_of(span.id) {
            files.insert(place, ScrubTarget::Log(span));
        }
    }
    files
}

/// Bytes of the next quantum, and of all that is left.
fn quantum_and_remaining(core: &EngineCore, pass: &ScrubPass) -> (u64, u64) {
    let files = remaining_files(core, pass);
    let step = files.values().next().map_or(0, |file| file.bytes().min(QUANTUM_BYTES));
    (step, files.values().map(ScrubTarget::bytes).sum())
}

/// Reads a file in quanta; `left` counts it and what comes behind it. How far the pass is then, and
/// the bytes for which nothing was paid yet.
fn read_file(
    core: &EngineCore,
    mut pass: ScrubPass,
    file: &ScrubTarget,
    left: u64,
) -> Result<(ScrubPass, u64)> {
    let (total, before, mut paid, mut seen) = (pass.bytes + left, pass.bytes, 0, 0);
    let interval = core.settings.scrub_interval_us;
    let read = file.verify(core, &mut |done| {
        check_closing(core)?;
        core.counters.scrub_bytes.add(done - seen);
        seen = done;
        if done - paid < QUANTUM_BYTES {
            return Ok(());
        }
        let now = core.env.clock.monotonic_us();
        let next = (done + QUANTUM_BYTES).min(file.bytes());
        let elapsed = now.saturating_sub(pass.started_us);
        let pause = pause_us(total, before + next, elapsed, 0, interval);
        let debt = core.rate_limiter.charge(now, done - paid, RateLimitClass::Compaction);
        paid = done;
        wait_for_quantum(core, now.saturating_add(pause), Some((now, debt)), Some(file))
    });
    pass.bytes += file.bytes();
    match read {
        Err(e) if e.kind() == ErrorKind::Closed => return Err(e),
        // Replaced, or no memory to read it: it was not judged.
        Err(e) if matches!(e.kind(), ErrorKind::Busy | ErrorKind::NoMemory) => {}
        judged => {
            pass.files += 1;
            core.counters.scrub_files.add(1);
            if let Err(e) = &judged {
                pass.errors += 1;
                core.counters.scrub_errors.add(1);
                core.report_event(&EngineEvent::Failed { what: "scrub", error: e });
            }
            core.scrub.set_damage(file.id(), judged.err());
        }
    }
    Ok((pass, seen - paid))
}

fn check_closing(core: &EngineCore) -> Result<()> {
    if core.closing.load(SeqCst) {
        return Err(Error::new(ErrorKind::Closed, "the database is closing, the scrub gave up"));
    }
    Ok(())
}

/// Waits until `until_us`, until the debt is paid that was made then (a new rate forgives it),
/// while background work is held back, and a while for the jobs that run. `Busy` if the file was
/// replaced meanwhile.
fn wait_for_quantum(
    core: &EngineCore,
    until_us: u64,
    debt: Option<(u64, RateLimitDebt)>,
    file: Option<&ScrubTarget>,
) -> Result<()> {
    loop {
        let seen = core.signal.generation();
        check_closing(core)?;
        if file.is_some_and(ScrubTarget::is_replaced) {
            return Err(Error::new(
                ErrorKind::Busy,
                "the file was replaced while the scrub read it",
            ));
        }
        if core.job_control.check_allowed(JobKind::Compaction).is_err() {
            core.signal.wait(seen);
            continue;
        }
        let owed = debt.filter(|(_, debt)| debt.generation == core.rate_limiter.generation());
        let mut until =
            owed.map_or(until_us, |(since, debt)| until_us.max(since.saturating_add(debt.wait_us)));
        if !core.job_control.is_idle(None) {
            until = until.saturating_add(YIELD_US_MAX);
        }
        let now = core.env.clock.monotonic_us();
        if now >= until {
            return Ok(());
        }
        core.signal.wait_timeout_us(seen, (until - now).min(SLEEP_US_MAX));
    }
}
