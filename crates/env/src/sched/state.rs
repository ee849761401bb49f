//! State of the scheduler: threads, what each waits for, virtual time. Pure bookkeeping: nothing
//! here blocks. All choices derive from thread numbers and the seed; lock addresses are only tested
//! for equality, never ordered.

use super::SchedulerConfig;
use crate::rand::SeededRng;
use std::fmt::Write as _;
use std::sync::Arc;

/// A thread of one simulation, numbered in spawn order; the root is 0.
pub(super) type Tid = usize;
pub(super) const ROOT: Tid = 0;

/// What a blocked thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitReason {
    /// A lock, by address, with the name of the type that it guards.
    Lock(usize, &'static str),
    /// A condition variable, by address.
    Cond(usize),
    /// The end of a thread.
    Join(usize),
    /// Only the deadline.
    Sleep,
}

#[derive(Clone, Copy, Debug)]
enum SimThreadStatus {
    Runnable,
    Blocked { on: WaitReason, deadline_us: u64 },
    Done,
}

#[derive(Debug)]
pub(super) struct SimThread {
    pub name: String,
    /// Handle to unpark the OS thread; set before the thread can first be chosen.
    pub os_thread: Option<std::thread::Thread>,
    pub timed_out: bool,
    pub result: Option<Result<(), String>>,
    status: SimThreadStatus,
}

/// Guarded by the lock of the scheduler; only the running thread takes it, so it is never
/// contended.
#[derive(Debug)]
pub(super) struct SchedulerState {
    pub config: SchedulerConfig,
    pub rng: SeededRng,
    pub program_rng: SeededRng,
    pub now_us: u64,
    pub wall_shift_ms: i64,
    pub steps: u64,
    pub switches: u64,
    pub fingerprint: u64,
    pub threads: Vec<SimThread>,
    pub live_threads: usize,
    /// Why the simulation ended early (deadlock, step limit). From then on every scheduler call of
    /// a thread panics.
    pub broken: Option<Arc<str>>,
    /// Scheduler calls that unwinding threads may still make in a broken simulation.
    pub unwind_calls_left: u32,
    /// Runnable threads, including the running one. Their order is a function of the history.
    runnable: Vec<Tid>,
    /// Locks held by threads of this simulation.
    held: Vec<(usize, Tid)>,
    /// Lower bound of the deadlines of all blocked threads.
    earliest_deadline_us: u64,
}

impl SchedulerState {
    pub fn new(config: SchedulerConfig) -> SchedulerState {
        let mut seeds = SeededRng::new(config.seed);
        SchedulerState {
            rng: seeds.fork(),
            program_rng: seeds.fork(),
            config,
            now_us: 0,
            wall_shift_ms: 0,
            steps: 0,
            switches: 0,
            fingerprint: 0,
            threads: Vec::new(),
            live_threads: 0,
            broken: None,
            unwind_calls_left: 100_000,
            runnable: Vec::new(),
            held: Vec::new(),
            earliest_deadline_us: u64::MAX,
        }
    }

    pub fn add_thread(&mut self, name: &str, os_thread: Option<std::thread::Thread>) -> Tid {
        let tid = self.threads.len();
        let status = SimThreadStatus::Runnable;
        self.threads.push(SimThread {
            name: name.to_owned(),
            os_thread,
            timed_out: false,
            result: None,
            status,
        });
        self.runnable.push(tid);
        self.live_threads += 1;
        tid
    }

    /// Undoes the latest [`SchedulerState::add_thread`], after the operating system failed to start
    /// the thread.
    pub fn remove_newest_thread(&mut self) {
        check!(self.live_threads > 1, "the root is never removed", self.live_threads);
        self.threads.pop();
        self.live_threads -= 1;
        let tid = self.threads.len();
        self.runnable.retain(|&t| t != tid);
    }

    /// Counts a yield point: advances virtual time by one step and wakes threads whose deadline has
    /// passed.
    pub fn count_step(&mut self) {
        check_slow!(
            self.counts_are_consistent(),
            "each thread has one status",
            self.runnable,
            self.live_threads
        );
        self.steps += 1;
        self.now_us += self.config.step_us;
        if self.now_us >= self.earliest_deadline_us {
            self.wake_due();
        }
        if self.steps > self.config.step_limit && self.broken.is_none() {
            let text = format!(
                "step limit: the simulation did not end within {} steps (seed {})\n{}",
                self.config.step_limit,
                self.config.seed,
                self.describe_threads()
            );
            self.mark_broken(text);
        }
    }

    pub fn block_thread(&mut self, me: Tid, on: WaitReason, deadline_us: u64) {
        check!(self.runnable.contains(&me), "a thread blocks while it runs", me, on);
        check!(
            deadline_us >= self.now_us,
            "a deadline is not in the past",
            deadline_us,
            self.now_us
        );
        self.runnable.retain(|&t| t != me);
        let thread = &mut self.threads[me];
        thread.timed_out = false;
        thread.status = SimThreadStatus::Blocked { on, deadline_us };
        self.earliest_deadline_us = self.earliest_deadline_us.min(deadline_us);
    }

    pub fn finish_thread(&mut self, me: Tid, result: Result<(), String>) {
        check!(!self.is_done(me), "a thread ends once", me);
        self.runnable.retain(|&t| t != me);
        self.threads[me].status = SimThreadStatus::Done;
        self.threads[me].result = Some(result);
        self.live_threads -= 1;
        self.wake_all(|on| on == WaitReason::Join(me));
    }

    pub fn is_done(&self, tid: Tid) -> bool {
        matches!(self.threads[tid].status, SimThreadStatus::Done)
    }

    /// Returns true if another thread could run now.
    pub fn has_other_runnable(&self) -> bool {
        self.runnable.len() > 1
    }

    /// Chooses a runnable thread other than `me`. If all other threads sleep, advances time to the
    /// next deadline. `None`: no thread can ever run again.
    pub fn choose_next(&mut self, me: Tid) -> Option<Tid> {
        if self.runnable.is_empty() {
            self.refresh_earliest_deadline();
            if self.earliest_deadline_us == u64::MAX {
                return None;
            }
            self.now_us = self.now_us.max(self.earliest_deadline_us);
            self.wake_due();
            check!(!self.runnable.is_empty(), "a deadline that passes wakes a thread", self.now_us);
        }
        let others = self.runnable.iter().filter(|&&t| t != me).count();
        if others == 0 {
            return self.runnable.first().copied();
        }
        let pick = self.rng.index(others);
        self.runnable.iter().copied().filter(|&t| t != me).nth(pick)
    }

    /// Makes every thread runnable whose wait reason matches `what`.
    pub fn wake_all(&mut self, what: impl Fn(WaitReason) -> bool) {
        for tid in 0..self.threads.len() {
            if let SimThreadStatus::Blocked { on, .. } = self.threads[tid].status
                && what(on)
            {
                self.make_runnable(tid);
            }
        }
    }

    /// Makes one thread runnable whose wait reason matches `what`, chosen by the seed.
    pub fn wake_one(&mut self, what: impl Fn(WaitReason) -> bool) {
        let matches =
            |t: &SimThread| matches!(t.status, SimThreadStatus::Blocked { on, .. } if what(on));
        let count = self.threads.iter().filter(|t| matches(t)).count();
        if count > 0 {
            let pick = self.rng.index(count);
            let tid = (0..self.threads.len()).filter(|&t| matches(&self.threads[t])).nth(pick);
            self.make_runnable(tid.expect("the pick is below the count"));
        }
    }

    pub fn note_lock_acquired(&mut self, lock: usize, me: Tid) {
        check!(self.lock_holder(lock).is_none(), "a lock has one holder", lock, me);
        self.held.push((lock, me));
    }

    pub fn note_lock_released(&mut self, lock: usize) {
        if let Some(at) = self.held.iter().rposition(|&(l, _)| l == lock) {
            self.held.swap_remove(at);
        }
        self.wake_all(|on| matches!(on, WaitReason::Lock(l, _) if l == lock));
    }

    pub fn lock_holder(&self, lock: usize) -> Option<Tid> {
        self.held.iter().find(|&&(l, _)| l == lock).map(|&(_, t)| t)
    }

    /// Returns the next thread after `me` that has not finished, or `me`. Used to unwind a broken
    /// simulation.
    pub fn next_live(&self, me: Tid) -> Tid {
        let n = self.threads.len();
        (1..=n).map(|i| (me + i) % n).find(|&t| !self.is_done(t)).unwrap_or(me)
    }

    pub fn deadlock_text(&self) -> String {
        format!(
            "deadlock: no thread can run (seed {})\n{}",
            self.config.seed,
            self.describe_threads()
        )
    }

    pub fn mark_broken(&mut self, text: String) {
        self.broken = Some(text.into());
    }

    /// Adds a switch, with its step and target, to the fingerprint of the schedule.
    pub fn record_switch(&mut self, to: Tid) {
        self.switches += 1;
        let mut next = SeededRng::new(self.fingerprint ^ self.steps.rotate_left(20) ^ to as u64);
        self.fingerprint = next.next_u64();
    }

    /// Returns true if the list of runnable threads and the number of live ones match the threads.
    fn counts_are_consistent(&self) -> bool {
        let is_runnable = |t: &Tid| matches!(self.threads[*t].status, SimThreadStatus::Runnable);
        let live = (0..self.threads.len()).filter(|t| !self.is_done(*t)).count();
        let runnable = (0..self.threads.len()).filter(is_runnable).count();
        self.runnable.iter().all(is_runnable)
            && runnable == self.runnable.len()
            && live == self.live_threads
    }
    fn make_runnable(&mut self, tid: Tid) {
        check!(
            !self.runnable.contains(&tid) && !self.is_done(tid),
            "only blocked threads wake",
            tid
        );
        self.threads[tid].status = SimThreadStatus::Runnable;
        self.runnable.push(tid);
    }

    fn wake_due(&mut self) {
        for tid in 0..self.threads.len() {
            if let SimThreadStatus::Blocked { deadline_us, .. } = self.threads[tid].status
                && deadline_us <= self.now_us
            {
                self.threads[tid].timed_out = true;
                self.make_runnable(tid);
            }
        }
        self.refresh_earliest_deadline();
    }

    fn refresh_earliest_deadline(&mut self) {
        let deadlines = self.threads.iter().filter_map(|t| match t.status {
            SimThreadStatus::Blocked { deadline_us, .. } => Some(deadline_us),
            _ => None,
        });
        self.earliest_deadline_us = deadlines.min().unwrap_or(u64::MAX);
    }

    fn describe_threads(&self) -> String {
        let mut text = String::new();
        for (tid, thread) in self.threads.iter().enumerate() {
            let what = match thread.status {
                SimThreadStatus::Done => continue,
                SimThreadStatus::Runnable => "can run".to_owned(),
                SimThreadStatus::Blocked { on, deadline_us } => self.describe_wait(on, deadline_us),
            };
            // Writing to a String cannot fail.
            let _ = writeln!(text, "  thread {tid} '{}': {what}", thread.name);
        }
        text
    }

    fn describe_wait(&self, on: WaitReason, deadline_us: u64) -> String {
        let label = |tid: Tid| format!("thread {tid} '{}'", self.threads[tid].name);
        let what = match on {
            WaitReason::Lock(lock, guards) => match self.lock_holder(lock) {
                Some(tid) => format!("waits for a lock on {guards}, held by {}", label(tid)),
                None => format!("waits for a lock on {guards}"),
            },
            WaitReason::Cond(_) => "waits for a condition".to_owned(),
            WaitReason::Join(tid) => format!("waits for the end of {}", label(tid)),
            WaitReason::Sleep => "sleeps".to_owned(),
        };
        if deadline_us == u64::MAX { what } else { format!("{what} until {deadline_us} us") }
    }
}
