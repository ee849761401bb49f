//! The deterministic scheduler. Each simulated thread is an OS thread, but exactly one of them runs
//! at a time; at every yield point a seeded choice selects the thread that continues. The scheduler
//! manages threads, waits and virtual time; it does no file I/O.
//!
//! Invariants:
//! 1. Only the running thread accesses [`SchedulerState`] or runs code of the program.
//! 2. No choice depends on real time, addresses or hash order: the same seed and program give the
//!    same schedule.
//! 3. A broken simulation (deadlock, step limit) unwinds its threads one at a time.

mod state;
#[cfg(target_os = "linux")]
mod cpu_pin;

use crate::spawn::{check_name, panic_message};
use perigee_base::{Error, Result};
pub(crate) use state::WaitReason;
use state::{ROOT, SchedulerState, Tid};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Parameters of a simulation.
#[derive(Clone, Debug)]
pub(crate) struct SchedulerConfig {
    pub seed: u64,
    /// Probability of a switch at an I/O point.
    pub switch_probability: f64,
    /// Probability of a switch before a lock is taken.
    pub lock_switch_probability: f64,
    pub step_limit: u64,
    /// Virtual time per step.
    pub step_us: u64,
    pub wall_base_ms: u64,
}

/// Summary of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScheduleTrace {
    /// Yield points passed.
    pub steps: u64,
    /// Switches from one thread to another.
    pub switches: u64,
    /// Virtual time elapsed, in microseconds.
    pub elapsed_us: u64,
    /// Fingerprint of the schedule: equal for equal sequences of switches.
    pub fingerprint: u64,
}

/// The scheduler of one simulation.
#[derive(Debug)]
pub(crate) struct Scheduler {
    state: Mutex<SchedulerState>,
    /// The running thread.
    running: AtomicUsize,
}

/// The value of `running` after every thread has finished.
const NO_THREAD: usize = usize::MAX;

thread_local! {
    /// True on a thread of a simulation. This check is the only cost for real threads.
    static SIMULATED: Cell<bool> = const { Cell::new(false) };
    static CURRENT: RefCell<Option<(Arc<Scheduler>, Tid)>> = const { RefCell::new(None) };
}

/// Returns true if the calling thread belongs to a simulation.
#[inline]
pub(crate) fn on_simulated_thread() -> bool {
    // A thread whose thread-locals are being destroyed no longer belongs to a simulation.
    SIMULATED.try_with(Cell::get).unwrap_or(false)
}

/// Yield point around I/O: may switch to another thread.
pub(crate) fn io_yield_point() {
    with_current_thread(|s, me| s.maybe_switch(me, |c| c.switch_probability));
}

/// Yield point before a lock is taken: may switch to another thread.
pub(crate) fn lock_yield_point() {
    with_current_thread(|s, me| s.maybe_switch(me, |c| c.lock_switch_probability));
}

/// Switches to another thread if one can run. Returns false on an ordinary thread.
pub(crate) fn yield_now() -> bool {
    with_current_thread(|s, me| s.maybe_switch(me, |_| 1.0)).is_some()
}

/// Records that the calling simulated thread has taken the lock at `lock`.
pub(crate) fn note_lock_acquired(lock: usize) {
    with_current_thread(|s, me| s.state().note_lock_acquired(lock, me));
}

/// Records that the lock at `lock` was released, and wakes its waiters.
pub(crate) fn note_lock_released(lock: usize) {
    with_current_thread(|s, _| s.state().note_lock_released(lock));
}

/// Waits until the lock at `lock` may be free. Returns false if no thread of this simulation holds
/// it; the caller must then wait on the OS lock.
pub(crate) fn wait_lock(lock: usize, guards: &'static str) -> bool {
    let waited = with_current_thread(|s, me| {
        let known = s.state().lock_holder(lock).is_some();
        if known {
            s.block(me, WaitReason::Lock(lock, guards), None);
        }
        known
    });
    waited.unwrap_or(false)
}

/// Waits on the condition variable at `cond`. Returns true on timeout.
pub(crate) fn wait_cond(cond: usize, timeout_us: Option<u64>) -> bool {
    with_current_thread(|s, me| s.block(me, WaitReason::Cond(cond), timeout_us)).unwrap_or(false)
}

/// Wakes one waiter (chosen by the seed) or all waiters of the condition variable at `cond`.
pub(crate) fn notify(cond: usize, all: bool) {
    with_current_thread(|s, _| {
        let mut state = s.state();
        if all {
            state.wake_all(|on| on == WaitReason::Cond(cond))
        } else {
            state.wake_one(|on| on == WaitReason::Cond(cond))
        }
    });
}

/// Shifts the wall clock of the calling thread's simulation by `by` milliseconds. Returns false on
/// an ordinary thread.
pub(crate) fn shift_wall_ms(by: i64) -> bool {
    with_current_thread(|s, _| {
        let mut state = s.state();
        state.wall_shift_ms = state.wall_shift_ms.saturating_add(by);
    })
    .is_some()
}

/// Returns the trace so far of the calling thread's simulation; `None` on an ordinary thread.
pub(crate) fn current_trace() -> Option<ScheduleTrace> {
    with_current_thread(|s, _| s.trace())
}

fn with_current_thread<R>(f: impl FnOnce(&Arc<Scheduler>, Tid) -> R) -> Option<R> {
    if !on_simulated_thread() {
        return None;
    }
    CURRENT.with(|c| c.borrow().as_ref().map(|(sched, me)| f(sched, *me)))
}

fn set_current_thread(sched: &Arc<Scheduler>, me: Tid) {
    check!(!on_simulated_thread(), "an OS thread runs one simulated thread", me);
    CURRENT.with(|c| *c.borrow_mut() = Some((sched.clone(), me)));
    SIMULATED.set(true);
}

fn clear_current_thread() {
    SIMULATED.set(false);
    CURRENT.with(|c| *c.borrow_mut() = None);
}

impl Scheduler {
    /// Runs `root` as thread 0 of a new simulation on the calling thread, then the threads that are
    /// still running. Panics if the root panics or the simulation breaks (deadlock, step limit).
    pub fn run<R>(
        config: SchedulerConfig,
        root: impl FnOnce(&Arc<Scheduler>) -> R,
    ) -> (R, ScheduleTrace) {
        check!(!on_simulated_thread(), "a simulated thread cannot start another simulation");
        let sched = Arc::new(Scheduler {
            state: Mutex::new(SchedulerState::new(config)),
            running: AtomicUsize::new(ROOT),
        });
        sched.state().add_thread("root", Some(std::thread::current()));
        #[cfg(target_os = "linux")]
        let _pinned = cpu_pin::CpuPin::new();
        set_current_thread(&sched, ROOT);
        let result = catch_unwind(AssertUnwindSafe(|| root(&sched)));
        clear_current_thread();
        sched.finish_thread(ROOT, result.as_ref().map(|_| ()).map_err(|p| panic_message(&**p)));
        sched.wait_for_turn(NO_THREAD);
        let trace = sched.trace();
        let broken = sched.state().broken.clone();
        match (result, broken) {
            (Err(panic), _) => resume_unwind(panic),
            (Ok(_), Some(text)) => panic!("{text}"),
            (Ok(value), None) => (value, trace),
        }
    }

    /// Starts a thread in this simulation. Fails unless the caller is a thread of this simulation.
    pub fn spawn(self: &Arc<Self>, name: &str, body: Box<dyn FnOnce() + Send>) -> Result<Tid> {
        check_name(name)?;
        if !with_current_thread(|s, _| Arc::ptr_eq(s, self)).unwrap_or(false) {
            return Err(Error::invalid(format!(
                "thread {name} must be started by a thread of its simulation"
            )));
        }
        let tid = self.state().add_thread(name, None);
        let sched = self.clone();
        let started = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || sched.thread_main(tid, body));
        match started {
            Ok(handle) => self.state().threads[tid].os_thread = Some(handle.thread().clone()),
            Err(e) => {
                self.state().remove_newest_thread();
                return Err(Error::io(format_args!("start thread {name}"), &e));
            }
        }
        io_yield_point();
        Ok(tid)
    }

    fn thread_main(self: Arc<Self>, me: Tid, body: Box<dyn FnOnce() + Send>) {
        self.wait_for_turn(me);
        set_current_thread(&self, me);
        let broken = self.state().broken.is_some();
        let result = catch_unwind(AssertUnwindSafe(|| if broken { drop(body) } else { body() }));
        let result = result.map_err(|panic| panic_message(&*panic));
        clear_current_thread();
        self.finish_thread(me, result);
    }

    /// Waits until thread `tid` has finished; returns its panic message as `Err` if it panicked.
    pub fn join(&self, tid: Tid) -> std::result::Result<(), String> {
        loop {
            if let Some(result) = self.state().threads[tid].result.clone() {
                return result;
            }
            if !on_simulated_thread() {
                return Err("the thread was joined from outside the simulation".to_owned());
            }
            if self.state().broken.is_some() && std::thread::panicking() {
                return Err("the simulation is broken".to_owned());
            }
            with_current_thread(|s, me| s.block(me, WaitReason::Join(tid), None));
        }
    }

    /// Returns the virtual time since the start, in microseconds.
    pub fn now_us(&self) -> u64 {
        self.state().now_us
    }

    /// Returns the virtual wall clock, in milliseconds since the Unix epoch.
    pub fn wall_ms(&self) -> u64 {
        let state = self.state();
        let now = state.config.wall_base_ms.saturating_add(state.now_us / 1000);
        now.saturating_add_signed(state.wall_shift_ms)
    }

    /// Sleeps for `us` microseconds of virtual time.
    pub fn sleep_us(&self, us: u64) {
        with_current_thread(|s, me| s.block(me, WaitReason::Sleep, Some(us)));
    }

    /// Returns the next random number for the program, from a sequence separate from the
    /// schedule's.
    pub fn next_u64(&self) -> u64 {
        self.state().program_rng.next_u64()
    }

    fn trace(&self) -> ScheduleTrace {
        let s = self.state();
        ScheduleTrace {
            steps: s.steps,
            switches: s.switches,
            elapsed_us: s.now_us,
            fingerprint: s.fingerprint,
        }
    }

    fn state(&self) -> MutexGuard<'_, SchedulerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Yield point of a thread that can continue.
    fn maybe_switch(&self, me: Tid, chance: impl FnOnce(&SchedulerConfig) -> f64) {
        let mut state = self.state();
        if state.broken.is_none() {
            state.count_step();
        }
        if state.broken.is_some() {
            return self.unwind_broken(state, me);
        }
        let p = chance(&state.config);
        if p > 0.0 && state.has_other_runnable() && state.rng.chance(p) {
            self.switch_to_next(state, me);
            self.unwind_if_broken(me);
        }
    }

    /// Yield point of a thread that blocks until it is woken or times out; returns true on timeout.
    fn block(&self, me: Tid, on: WaitReason, timeout_us: Option<u64>) -> bool {
        check!(
            self.running.load(Ordering::Acquire) == me,
            "only the running thread blocks",
            me,
            on
        );
        let mut state = self.state();
        if state.broken.is_none() {
            state.count_step();
        }
        if state.broken.is_some() {
            self.unwind_broken(state, me);
            return true;
        }
        let deadline_us = timeout_us.map_or(u64::MAX, |us| state.now_us.saturating_add(us));
        state.block_thread(me, on, deadline_us);
        self.switch_to_next(state, me);
        self.unwind_if_broken(me);
        self.state().threads[me].timed_out
    }

    /// Switches to a thread chosen by the seed; returns when this thread runs again.
    fn switch_to_next(&self, mut state: MutexGuard<'_, SchedulerState>, me: Tid) {
        let next = state.choose_next(me).unwrap_or_else(|| {
            let text = state.deadlock_text();
            state.mark_broken(text);
            // The root panics in the caller's thread, so it is unwound first.
            if state.is_done(ROOT) { me } else { ROOT }
        });
        self.hand_over(state, me, next);
    }

    fn hand_over(&self, state: MutexGuard<'_, SchedulerState>, me: Tid, next: Tid) {
        if next != me {
            self.resume_thread(state, next);
            self.wait_for_turn(me);
        }
    }

    fn resume_thread(&self, mut state: MutexGuard<'_, SchedulerState>, next: Tid) {
        state.record_switch(next);
        check!(!state.is_done(next), "a thread that has ended never runs again", next);
        let os_thread = state.threads[next].os_thread.clone();
        drop(state);
        self.running.store(next, Ordering::Release);
        os_thread.expect("the handle of a thread is set before it can be chosen").unpark();
    }

    fn wait_for_turn(&self, me: usize) {
        while self.running.load(Ordering::Acquire) != me {
            std::thread::park();
        }
    }

    fn finish_thread(&self, me: Tid, result: std::result::Result<(), String>) {
        let mut state = self.state();
        state.finish_thread(me, result);
        if state.live_threads == 0 {
            let root = state.threads[ROOT].os_thread.clone();
            drop(state);
            self.running.store(NO_THREAD, Ordering::Release);
            root.expect("the handle of the root is set from the start").unpark();
            return;
        }
        let next = if state.broken.is_some() { None } else { state.choose_next(me) };
        let next = next.unwrap_or_else(|| {
            if state.broken.is_none() {
                let text = state.deadlock_text();
                state.mark_broken(text);
            }
            if state.is_done(ROOT) { state.next_live(me) } else { ROOT }
        });
        self.resume_thread(state, next);
    }

    fn unwind_if_broken(&self, me: Tid) {
        let state = self.state();
        if state.broken.is_some() {
            self.unwind_broken(state, me);
        }
    }

    /// Handles a scheduler call in a broken simulation: panics, or, on a thread that is already
    /// unwinding, lets the other threads unwind.
    fn unwind_broken(&self, mut state: MutexGuard<'_, SchedulerState>, me: Tid) {
        let text = state.broken.clone().expect("only a broken simulation is unwound");
        if state.unwind_calls_left == 0 {
            // Destructors wait for each other forever, or a thread catches every panic and
            // continues.
            eprintln!("simulation cannot be unwound, giving up: {text}");
            std::process::abort();
        }
        state.unwind_calls_left -= 1;
        if !std::thread::panicking() {
            drop(state);
            if me == ROOT {
                panic!("{text}");
            }
            // Skips the panic hook: the report of the root is enough.
            resume_unwind(Box::new(text.to_string()));
        }
        let next = state.next_live(me);
        self.hand_over(state, me, next);
    }
}
