//! Reads the files that nobody reads, slowly, so that damage is found while there is still a good copy somewhere. A thread of
//! its own: it may sleep in the middle of a file, and no flush or compaction waits for it.
//!
//! Segments of the log that stay for readers are read too: no open reads them.
//!
//! It holds one table or value log at a time, by which the file stays (see `retire`), and lets go of one that was replaced. It
//! writes nothing and stops nobody.

use crate::control::Kind;
use crate::core::Core;
use crate::events::Event;
use crate::scrub::{Pass, QUANTUM_BYTES, pause_us};
use crate::throttle::{Class, Debt};
use crate::wal::LogSpan;
use perigee_base::format::FileKind;
use perigee_base::{Error, ErrorKind, FileId, Result};
use perigee_file::log::{LogReader, Step};
use perigee_file::name;
use perigee_tree::{Table, Vlog};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

/// Longest that a quantum waits for jobs that run: a database that is never at rest is read, too.
const YIELD_US_MAX: u64 = 10_000_000;

/// A file that is being read.
enum File {
    Table(Arc<Table>),
    Vlog(Arc<Vlog>),
    Log(LogSpan),
}

impl File {
    fn id(&self) -> FileId {
        match self {
            File::Table(t) => t.meta.id,
            File::Vlog(v) => v.meta.id,
            File::Log(s) => s.id,
        }
    }
    fn bytes(&self) -> u64 {
        match self {
            File::Table(t) => t.meta.summary.bytes,
            File::Vlog(v) => v.meta.bytes,
            File::Log(s) => s.bytes,
        }
    }
    /// Whether no version and no reader holds it any more.
    fn is_gone(&self) -> bool {
        match self {
            File::Table(t) => Arc::strong_count(t) == 1,
            File::Vlog(v) => Arc::strong_count(v) == 1,
            // Nothing holds it: whoever reads it finds out.
            File::Log(_) => false,
        }
    }
    fn verify(&self, core: &Core, pace: &mut dyn FnMut(u64) -> Result<()>) -> Result<()> {
        match self {
            File::Table(t) => t.reader.verify_paced(t.meta.summary.checksum, pace),
            File::Vlog(v) => v.reader.verify_paced(v.meta.checksum, pace),
            File::Log(span) => check_log(core, span, pace),
        }
    }
}

/// Reads a segment of the log, unless it was removed.
fn check_log(core: &Core, span: &LogSpan, pace: &mut dyn FnMut(u64) -> Result<()>) -> Result<()> {
    let (name, database) = (name::file_name(span.id, FileKind::Wal), Some(core.database));
    let opened = LogReader::open(&*core.dir, &name, FileKind::Wal, Some(span.id), database, Some(span.bytes));
    let mut log = match opened {
        Err(e) if e.kind() == ErrorKind::NotFound => {
            return Err(Error::new(ErrorKind::Busy, "the segment is no longer kept"));
        }
        opened => opened?,
    };
    loop {
        match log.next_record()? {
            Step::Record(_) => pace(log.offset())?,
            Step::End => return Ok(()),
            Step::Bad(bad) => return Err(bad.why),
        }
    }
}

/// Longest single sleep.
const SLEEP_US_MAX: u64 = 3_600_000_000;

/// Waits for the turn of the next file, and reads it.
///
/// # Errors
/// `Closed`. Damage is no error of the job.
pub fn one(core: &Arc<Core>) -> Result<bool> {
    let (pass, rested_since) = core.scrub.pass();
    let pass = pass.unwrap_or_else(|| begin(core));
    let now = core.env.clock.monotonic_us();
    let (elapsed, rested) = (now.saturating_sub(pass.started_us), now.saturating_sub(rested_since));
    let (step, left) = step(core, &pass);
    // With nothing left the rest of the interval is waited for.
    let (total, done) = if left == 0 { (1, 1) } else { (pass.bytes + left, pass.bytes + step) };
    let pause = pause_us(total, done, elapsed, rested, core.settings.scrub_interval_us);
    wait(core, now.saturating_add(pause), None, None)?;
    // Looked for only now: what is not being read may be replaced and removed.
    let mut files = files(core, &pass);
    let left = files.values().map(File::bytes).sum();
    let Some((place, file)) = files.pop_first() else {
        finish(core, &pass);
        return Ok(true);
    };
    drop(files);
    let (pass, moved) = read(core, Pass { at: Some(place), ..pass }, &file, left)?;
    drop(file);
    let now = core.env.clock.monotonic_us();
    core.scrub.set_pass(Some(pass), now);
    let debt = core.throttle.take(now, moved, Class::Compaction);
    wait(core, now, Some((now, debt)), None)?;
    Ok(true)
}

fn begin(core: &Core) -> Pass {
    let pass = Pass::new(core.env.clock.monotonic_us(), core.ids.load(SeqCst), core.env.rand.next_u64());
    let lives: BTreeSet<FileId> = files(core, &pass).values().map(File::id).collect();
    core.scrub.retain(|id| lives.contains(&id));
    core.scrub.set_pass(Some(pass), pass.started_us);
    pass
}

fn finish(core: &Core, pass: &Pass) {
    let now = core.env.clock.monotonic_us();
    core.scrub.set_pass(None, now);
    core.counters.scrub_passes.add(1);
    if pass.files > 0 {
        core.tell(&Event::Scrubbed {
            files: pass.files,
            bytes: pass.bytes,
            errors: pass.errors,
            us: now.saturating_sub(pass.started_us),
        });
    }
}

/// The files that the pass has still to read, by their place on its way. What clones share is there once.
fn files(core: &Core, pass: &Pass) -> BTreeMap<u64, File> {
    let mut files = BTreeMap::new();
    for family in core.families.all() {
        let view = family.tree.view();
        let tables = view.version.tables().map(|(_, _, t)| File::Table(Arc::clone(t)));
        for file in tables.chain(view.version.vlogs.values().map(|v| File::Vlog(Arc::clone(v)))) {
            if let Some(place) = pass.place(file.id()) {
                files.insert(place, file);
            }
        }
    }
    for span in core.manifest.look(|catalog| catalog.retained.clone()) {
        if let Some(place) = pass.place(span.id) {
            files.insert(place, File::Log(span));
        }
    }
    files
}

/// Bytes of the next quantum, and of all that is left.
fn step(core: &Core, pass: &Pass) -> (u64, u64) {
    let files = files(core, pass);
    let step = files.values().next().map_or(0, |file| file.bytes().min(QUANTUM_BYTES));
    (step, files.values().map(File::bytes).sum())
}

/// Reads a file in quanta; `left` counts it and what comes behind it. How far the pass is then, and the bytes for which nothing
/// was paid yet.
fn read(core: &Core, mut pass: Pass, file: &File, left: u64) -> Result<(Pass, u64)> {
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
        let debt = core.throttle.take(now, done - paid, Class::Compaction);
        paid = done;
        wait(core, now.saturating_add(pause), Some((now, debt)), Some(file))
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
                core.tell(&Event::Failed { what: "scrub", error: e });
            }
            core.scrub.judge(file.id(), judged.err());
        }
    }
    Ok((pass, seen - paid))
}

fn check_closing(core: &Core) -> Result<()> {
    if core.closing.load(SeqCst) {
        return Err(Error::new(ErrorKind::Closed, "the database is closing, the scrub gave up"));
    }
    Ok(())
}

/// Waits until `until_us`, until the debt is paid that was made then (a new rate forgives it), while background work is held back, and a
/// while for the jobs that run. `Busy` if the file was replaced meanwhile.
fn wait(core: &Core, until_us: u64, debt: Option<(u64, Debt)>, file: Option<&File>) -> Result<()> {
    loop {
        let seen = core.signal.now();
        check_closing(core)?;
        if file.is_some_and(File::is_gone) {
            return Err(Error::new(ErrorKind::Busy, "the file was replaced while the scrub read it"));
        }
        if core.control.check(Kind::Compaction).is_err() {
            core.signal.wait(seen);
            continue;
        }
        let owed = debt.filter(|(_, debt)| debt.generation == core.throttle.generation());
        let mut until =
            owed.map_or(until_us, |(since, debt)| until_us.max(since.saturating_add(debt.wait_us)));
        if !core.control.is_quiet(None) {
            until = until.saturating_add(YIELD_US_MAX);
        }
        let now = core.env.clock.monotonic_us();
        if now >= until {
            return Ok(());
        }
        core.signal.wait_us(seen, (until - now).min(SLEEP_US_MAX));
    }
}
