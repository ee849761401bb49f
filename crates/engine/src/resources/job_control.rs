//! Controls which background jobs may start, and lists those that are running. Jobs check for
//! permission here; callers pause, cancel and resume.
//!
//! It starts nothing and waits for nothing: a caller that changes it must notify the [`Signal`].
//!
//! 1. Once [`JobControl::is_idle`] has returned true while `paused` is above zero, no job is
//!    running: the pause count and the list of running jobs are under one mutex.
//! 2. A job leaves the list however it ends, including by a panic.

use crate::runtime::events::EngineEvent;
use crate::runtime::signal::Signal;
use perigee_base::{Error, ErrorKind, FamilyId, Result};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Number of finished jobs that are remembered.
const FINISHED_JOBS_KEPT: usize = 100;

/// The kind of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobKind {
    /// Writes a memtable to tables.
    Flush,
    /// Merges tables into new tables.
    Compaction,
}

impl JobKind {
    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            JobKind::Flush => "flush",
            JobKind::Compaction => "compaction",
        }
    }
}

/// A running job and its progress.
#[derive(Debug)]
pub struct RunningJob {
    /// Its kind.
    pub kind: JobKind,
    /// Name of its column family.
    pub family: String,
    /// Ids of all of its column families.
    pub families: Vec<FamilyId>,
    /// The reason why it runs.
    pub reason: &'static str,
    /// Levels of its inputs, ascending; empty for a flush.
    pub input_levels: Vec<u8>,
    /// Level of its outputs.
    pub output_level: u8,
    /// Input tables; 0 for a flush.
    pub input_tables: usize,
    /// Bytes of its inputs.
    pub input_bytes: u64,
    /// Entries of its inputs.
    pub input_entries: u64,
    /// Start time, monotonic microseconds.
    pub started_us: u64,
    /// Entries read so far.
    pub entries_done: AtomicU64,
    /// Bytes written so far.
    pub bytes_written: AtomicU64,
    /// Bytes of memory held for its inputs.
    pub input_memory_bytes: u64,
    /// Bytes of memory held for its outputs now.
    pub output_memory_bytes: AtomicU64,
}

/// A job that has ended.
#[derive(Clone, Debug)]
pub struct FinishedJob {
    /// The job, with its final progress.
    pub job: Arc<RunningJob>,
    /// End time, monotonic microseconds.
    pub ended_us: u64,
    /// True if it has installed all of its outputs.
    pub is_complete: bool,
}

#[derive(Debug, Default)]
struct JobControlState {
    paused: usize,
    cancelled: bool,
    running: Vec<Arc<RunningJob>>,
    /// The oldest first.
    finished: VecDeque<FinishedJob>,
}

/// The job control. The mutex guards all of it; no I/O, no sleep and no other lock while it is
/// held.
#[derive(Debug, Default)]
pub struct JobControl {
    state: Mutex<JobControlState>,
}

impl JobControl {
    fn state(&self) -> MutexGuard<'_, JobControlState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a job to the list of running jobs.
    ///
    /// # Errors
    /// Those of [`JobControl::check_allowed`].
    pub fn start_job<'a>(
        &'a self,
        signal: &'a Signal,
        job: RunningJob,
    ) -> Result<JobRegistration<'a>> {
        let mut state = self.state();
        state.check_allowed(job.kind)?;
        check!(
            job.kind == JobKind::Flush || state.running.iter().all(|j| j.kind == JobKind::Flush),
            "compactions run one job at a time",
            job.family,
            state.running.len()
        );
        let job = Arc::new(job);
        state.running.push(Arc::clone(&job));
        Ok(JobRegistration { control: self, signal, job })
    }
    /// Checks that a job of this kind may start or continue.
    ///
    /// # Errors
    /// `Busy` if background work is paused, or for a compaction if compactions are cancelled.
    pub fn check_allowed(&self, kind: JobKind) -> Result<()> {
        self.state().check_allowed(kind)
    }
    /// Returns `Busy` if a running compaction must stop. (A pause lets it finish.)
    pub fn check_cancelled(&self) -> Result<()> {
        if self.state().cancelled { Err(cancelled_error()) } else { Ok(()) }
    }
    /// Returns the running jobs.
    pub fn running_jobs(&self) -> Vec<Arc<RunningJob>> {
        self.state().running.clone()
    }
    /// Returns the jobs that ended last, the newest first. A panic leaves none.
    pub fn finished_jobs(&self) -> Vec<FinishedJob> {
        self.state().finished.iter().rev().cloned().collect()
    }
    /// Returns true if no job (of that kind) is running.
    pub fn is_idle(&self, kind: Option<JobKind>) -> bool {
        !self.state().running.iter().any(|j| kind.is_none_or(|k| k == j.kind))
    }
    /// Returns true if a job of this kind is working on the column family.
    pub fn is_working_on(&self, kind: JobKind, family: FamilyId) -> bool {
        self.state().running.iter().any(|j| j.kind == kind && j.families.contains(&family))
    }
    /// Returns the number of active pauses, and whether compactions are cancelled.
    pub fn pause_state(&self) -> (usize, bool) {
        let state = self.state();
        (state.paused, state.cancelled)
    }
    /// Adds a pause: no job starts until each pause is ended with [`JobControl::unpause`].
    pub fn pause(&self) {
        self.state().paused += 1;
    }
    /// Ends one pause.
    pub fn unpause(&self) {
        let mut state = self.state();
        check!(
            state.paused > 0 || perigee_env::panicking(),
            "each pause is ended once",
            state.paused
        );
        state.paused = state.paused.saturating_sub(1);
    }
    /// Sets whether compactions are cancelled.
    pub fn set_cancelled(&self, yes: bool) {
        self.state().cancelled = yes;
    }
}

impl JobControlState {
    fn check_allowed(&self, kind: JobKind) -> Result<()> {
        if self.paused > 0 {
            return Err(Error::new(
                ErrorKind::Busy,
                "background work is paused: end the pause, then try again",
            ));
        }
        if self.cancelled && kind == JobKind::Compaction { Err(cancelled_error()) } else { Ok(()) }
    }
}

fn cancelled_error() -> Error {
    Error::new(
        ErrorKind::Busy,
        "compactions are cancelled: call resume_background_work, then try again",
    )
}

/// The entry of a job in the list of running jobs; dropping it removes the entry and notifies the
/// signal.
#[derive(Debug)]
pub struct JobRegistration<'a> {
    control: &'a JobControl,
    signal: &'a Signal,
    /// The job.
    pub job: Arc<RunningJob>,
}

impl JobRegistration<'_> {
    /// Ends the job: moves it to the list of finished jobs. `now_us` is the monotonic time.
    pub fn finish(self, now_us: u64, is_complete: bool) {
        let finished = FinishedJob { job: Arc::clone(&self.job), ended_us: now_us, is_complete };
        let mut state = self.control.state();
        if state.finished.len() == FINISHED_JOBS_KEPT {
            state.finished.pop_front();
        }
        state.finished.push_back(finished);
    }
}

impl Drop for JobRegistration<'_> {
    fn drop(&mut self) {
        let mut state = self.control.state();
        let before = state.running.len();
        state.running.retain(|j| !Arc::ptr_eq(j, &self.job));
        let after = state.running.len();
        drop(state);
        check_slow!(
            before == after + 1 || perigee_env::panicking(),
            "a job is listed until it ends",
            before,
            after
        );
        self.signal.notify();
    }
}

impl RunningJob {
    /// Returns the event that reports its start.
    pub fn started_event(&self) -> EngineEvent<'_> {
        EngineEvent::JobStarted {
            kind: self.kind.name(),
            family: &self.family,
            reason: self.reason,
            bytes: self.input_bytes,
        }
    }
    /// Returns the bytes of memory that it holds.
    pub fn memory_bytes(&self) -> u64 {
        self.input_memory_bytes + self.output_memory_bytes.load(Relaxed)
    }
    /// Returns the bytes of input processed so far, estimated from the number of entries.
    pub fn bytes_done(&self) -> u64 {
        let done = u128::from(self.entries_done.load(Relaxed).min(self.input_entries));
        let share = u128::from(self.input_bytes) * done / u128::from(self.input_entries.max(1));
        u64::try_from(share).unwrap_or(self.input_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(kind: JobKind) -> RunningJob {
        RunningJob {
            kind,
            family: "f".into(),
            families: vec![FamilyId(3)],
            reason: "test",
            input_levels: vec![0, 1],
            output_level: 1,
            input_tables: 2,
            input_bytes: 1000,
            input_entries: 10,
            started_us: 0,
            entries_done: AtomicU64::new(0),
            bytes_written: AtomicU64::new(0),
            input_memory_bytes: 5,
            output_memory_bytes: AtomicU64::new(0),
        }
    }

    #[test]
    fn newest_finished_jobs_are_remembered() {
        let (control, signal) = (JobControl::default(), Signal::new());
        for i in 0..=FINISHED_JOBS_KEPT as u64 {
            control.start_job(&signal, job(JobKind::Flush)).unwrap().finish(i, i % 2 == 0);
        }
        let ends: Vec<u64> = control.finished_jobs().iter().map(|j| j.ended_us).collect();
        assert_eq!(ends, (1..=FINISHED_JOBS_KEPT as u64).rev().collect::<Vec<u64>>());
        drop(control.start_job(&signal, job(JobKind::Flush)).unwrap());
        assert_eq!(control.finished_jobs().len(), FINISHED_JOBS_KEPT, "an abandoned job");
    }

    #[test]
    fn pause_and_cancel_block_new_jobs() {
        let (control, signal) = (JobControl::default(), Signal::new());
        let running = control.start_job(&signal, job(JobKind::Compaction)).unwrap();
        running.job.entries_done.store(3, Relaxed);
        assert_eq!(running.job.bytes_done(), 300);
        running.job.output_memory_bytes.store(7, Relaxed);
        assert_eq!(running.job.memory_bytes(), 12);
        control.pause();
        assert_eq!(
            control.start_job(&signal, job(JobKind::Flush)).unwrap_err().kind(),
            ErrorKind::Busy
        );
        assert!(!control.is_idle(None) && control.is_idle(Some(JobKind::Flush)));
        let works_on = |kind, family| control.is_working_on(kind, FamilyId(family));
        assert!(
            works_on(JobKind::Compaction, 3)
                && !works_on(JobKind::Compaction, 4)
                && !works_on(JobKind::Flush, 3)
        );
        assert!(control.check_cancelled().is_ok(), "a pause lets the running ones finish");
        running.finish(12, true);
        assert!(control.is_idle(None));
        let finished = control.finished_jobs();
        assert_eq!((finished.len(), finished[0].ended_us, finished[0].is_complete), (1, 12, true));
        control.unpause();
        control.set_cancelled(true);
        assert!(control.check_cancelled().is_err());
        assert!(control.start_job(&signal, job(JobKind::Compaction)).is_err());
        assert!(
            control.start_job(&signal, job(JobKind::Flush)).is_ok(),
            "flushes are still allowed"
        );
    }
}
