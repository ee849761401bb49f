//! Which background jobs may start, and which are running. Jobs ask at the gate; callers pause, cancel and resume.
//!
//! It starts nothing and waits for nothing: whoever changes it rings the bell.
//!
//! 1. While `paused` is above zero no job is running once [`Control::is_quiet`] has said so: the gate and the list of running
//!    jobs are under one mutex.
//! 2. A job leaves the list on every way out, a panic included.

use crate::events::Event;
use crate::signal::Signal;
use perigee_base::{Error, ErrorKind, FamilyId, Result};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What kind of job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A memtable becomes tables.
    Flush,
    /// Tables become tables.
    Compaction,
}

impl Kind {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Flush => "flush",
            Kind::Compaction => "compaction",
        }
    }
}

/// A running job and how far it is.
#[derive(Debug)]
pub struct Job {
    /// What kind.
    pub kind: Kind,
    /// Name of its family.
    pub family: String,
    /// All of its families.
    pub families: Vec<FamilyId>,
    /// Why it runs.
    pub reason: &'static str,
    /// Levels of its inputs, ascending; empty for a flush.
    pub from: Vec<u8>,
    /// Level of its outputs.
    pub to: u8,
    /// Input tables; 0 for a flush.
    pub files: usize,
    /// Bytes of its inputs.
    pub bytes: u64,
    /// Entries of its inputs.
    pub entries: u64,
    /// When it began, monotonic.
    pub started_us: u64,
    /// Entries read so far.
    pub entries_done: AtomicU64,
    /// Bytes written so far.
    pub written: AtomicU64,
    /// Memory that it holds of its inputs.
    pub inputs_held: u64,
    /// Memory that it holds of its outputs now.
    pub held: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    paused: usize,
    cancelled: bool,
    running: Vec<Arc<Job>>,
}

/// The gate. The mutex guards everything; no I/O, no sleep and no other lock inside.
#[derive(Debug, Default)]
pub struct Control {
    state: Mutex<State>,
}

impl Control {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters the list of running jobs.
    ///
    /// # Errors
    /// As [`Control::check`].
    pub fn begin<'a>(&'a self, signal: &'a Signal, job: Job) -> Result<Running<'a>> {
        let mut state = self.state();
        state.check(job.kind)?;
        let job = Arc::new(job);
        state.running.push(Arc::clone(&job));
        Ok(Running { control: self, signal, job })
    }
    /// Whether such a job may start, or go on.
    ///
    /// # Errors
    /// `Busy` if background work is paused, or for a compaction if compactions are cancelled.
    pub fn check(&self, kind: Kind) -> Result<()> {
        self.state().check(kind)
    }
    /// `Busy` if a running compaction is to give up. (A pause lets it finish.)
    pub fn check_cancelled(&self) -> Result<()> {
        if self.state().cancelled { Err(cancelled()) } else { Ok(()) }
    }
    /// The jobs that are running.
    pub fn running(&self) -> Vec<Arc<Job>> {
        self.state().running.clone()
    }
    /// Whether nothing (of that kind) is running.
    pub fn is_quiet(&self, kind: Option<Kind>) -> bool {
        !self.state().running.iter().any(|j| kind.is_none_or(|k| k == j.kind))
    }
    /// Whether such a job works on a family.
    pub fn works_on(&self, kind: Kind, family: FamilyId) -> bool {
        self.state().running.iter().any(|j| j.kind == kind && j.families.contains(&family))
    }
    /// How often it is paused now, and whether compactions are cancelled.
    pub fn holds(&self) -> (usize, bool) {
        let state = self.state();
        (state.paused, state.cancelled)
    }
    /// No job starts any more until as many [`Control::unpause`] calls.
    pub fn pause(&self) {
        self.state().paused += 1;
    }
    /// Takes one pause back.
    pub fn unpause(&self) {
        let mut state = self.state();
        state.paused = state.paused.saturating_sub(1);
    }
    /// Whether compactions are to give up.
    pub fn set_cancelled(&self, yes: bool) {
        self.state().cancelled = yes;
    }
}

impl State {
    fn check(&self, kind: Kind) -> Result<()> {
        if self.paused > 0 {
            return Err(Error::new(
                ErrorKind::Busy,
                "background work is paused: drop the pause, then try again",
            ));
        }
        if self.cancelled && kind == Kind::Compaction { Err(cancelled()) } else { Ok(()) }
    }
}

fn cancelled() -> Error {
    Error::new(ErrorKind::Busy, "compactions are cancelled: call resume_background_work, then try again")
}

/// A place in the list of running jobs; dropping it leaves the list and rings.
#[derive(Debug)]
pub struct Running<'a> {
    control: &'a Control,
    signal: &'a Signal,
    /// The job.
    pub job: Arc<Job>,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.control.state().running.retain(|j| !Arc::ptr_eq(j, &self.job));
        self.signal.ring();
    }
}

impl Job {
    /// That it begins.
    pub fn begun(&self) -> Event<'_> {
        Event::Begun { kind: self.kind.name(), family: &self.family, reason: self.reason, bytes: self.bytes }
    }
    /// Memory that it holds.
    pub fn held_bytes(&self) -> u64 {
        self.inputs_held + self.held.load(Relaxed)
    }
    /// Bytes of the inputs that are done, counted by entries.
    pub fn bytes_done(&self) -> u64 {
        let done = u128::from(self.entries_done.load(Relaxed).min(self.entries));
        let share = u128::from(self.bytes) * done / u128::from(self.entries.max(1));
        u64::try_from(share).unwrap_or(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(kind: Kind) -> Job {
        Job {
            kind,
            family: "f".into(),
            families: vec![FamilyId(3)],
            reason: "test",
            from: vec![0, 1],
            to: 1,
            files: 2,
            bytes: 1000,
            entries: 10,
            started_us: 0,
            entries_done: AtomicU64::new(0),
            written: AtomicU64::new(0),
            inputs_held: 5,
            held: AtomicU64::new(0),
        }
    }

    #[test]
    fn the_gate_knows_who_is_inside() {
        let (control, signal) = (Control::default(), Signal::new());
        let running = control.begin(&signal, job(Kind::Compaction)).unwrap();
        running.job.entries_done.store(3, Relaxed);
        assert_eq!(running.job.bytes_done(), 300);
        running.job.held.store(7, Relaxed);
        assert_eq!(running.job.held_bytes(), 12);
        control.pause();
        assert_eq!(control.begin(&signal, job(Kind::Flush)).unwrap_err().kind(), ErrorKind::Busy);
        assert!(!control.is_quiet(None) && control.is_quiet(Some(Kind::Flush)));
        let works_on = |kind, family| control.works_on(kind, FamilyId(family));
        assert!(works_on(Kind::Compaction, 3) && !works_on(Kind::Compaction, 4) && !works_on(Kind::Flush, 3));
        assert!(control.check_cancelled().is_ok(), "a pause lets the running ones finish");
        drop(running);
        assert!(control.is_quiet(None));
        control.unpause();
        control.set_cancelled(true);
        assert!(control.check_cancelled().is_err());
        assert!(control.begin(&signal, job(Kind::Compaction)).is_err());
        assert!(control.begin(&signal, job(Kind::Flush)).is_ok(), "memtables still become tables");
    }
}
