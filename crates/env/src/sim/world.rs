//! [`SimWorld`]: a simulation with its seed and its parameters.

use super::sim_env::{SimClock, SimRand, SimSpawn};
use crate::env::Env;
use crate::fs::Fs;
use crate::fs::memory::SimDisk;
use crate::sched::{self, ScheduleTrace, Scheduler, SchedulerConfig};
use std::sync::{Arc, Mutex, PoisonError};

/// A seeded simulation in which programs can be run.
#[derive(Debug)]
pub struct SimWorld {
    config: SchedulerConfig,
    last_trace: Mutex<Option<ScheduleTrace>>,
}

impl SimWorld {
    /// Creates the simulation with seed `seed`.
    pub fn new(seed: u64) -> SimWorld {
        let config = SchedulerConfig {
            seed,
            switch_probability: 1.0 / 3.0,
            lock_switch_probability: 1.0 / 16.0,
            step_limit: 5_000_000,
            step_us: 1,
            wall_base_ms: 1_700_000_000_000,
        };
        SimWorld { config, last_trace: Mutex::new(None) }
    }

    /// Sets the probability of a switch at an I/O point (default 1/3). Threads that block always
    /// switch.
    pub fn switch_probability(&mut self, p: f64) -> &mut SimWorld {
        self.config.switch_probability = p;
        self
    }

    /// Sets the probability of a switch before a lock is taken (default 1/16), which finds races
    /// between critical sections.
    pub fn lock_switch_probability(&mut self, p: f64) -> &mut SimWorld {
        self.config.lock_switch_probability = p;
        self
    }

    /// Sets the number of yield points after which the run is aborted with a panic (default 5
    /// million).
    pub fn step_limit(&mut self, steps: u64) -> &mut SimWorld {
        self.config.step_limit = steps;
        self
    }

    /// Sets the virtual time of each yield point, in microseconds (default 1), so that timers also
    /// fire under load.
    pub fn step_us(&mut self, us: u64) -> &mut SimWorld {
        self.config.step_us = us;
        self
    }

    /// Sets the initial wall clock, in milliseconds since 1970.
    pub fn wall_base_ms(&mut self, ms: u64) -> &mut SimWorld {
        self.config.wall_base_ms = ms;
        self
    }

    /// Runs `root` as the first simulated thread. Returns its result after it and every thread
    /// started in it have finished. Each call restarts the same schedule.
    ///
    /// # Panics
    /// If `root` panics (with the same panic), if no thread can ever run again, or at the step
    /// limit; the message lists the threads and what each waits for.
    pub fn run<R>(&self, disk: Arc<SimDisk>, root: impl FnOnce(Env) -> R) -> R {
        self.run_on(disk, root)
    }

    /// Runs `root` like [`SimWorld::run`], over another file system.
    pub fn run_on<R>(&self, fs: Arc<dyn Fs>, root: impl FnOnce(Env) -> R) -> R {
        let (result, trace) = Scheduler::run(self.config.clone(), |sched| {
            root(Env {
                fs,
                clock: Arc::new(SimClock(sched.clone())),
                rand: Arc::new(SimRand(sched.clone())),
                spawn: Arc::new(SimSpawn(sched.clone())),
            })
        });
        *self.last_trace.lock().unwrap_or_else(PoisonError::into_inner) = Some(trace);
        result
    }

    /// Returns the trace of the latest successful run.
    pub fn trace(&self) -> Option<ScheduleTrace> {
        *self.last_trace.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lets another thread of the simulation run. On an ordinary thread, yields to the operating
/// system.
pub fn yield_now() {
    if !sched::yield_now() {
        std::thread::yield_now();
    }
}

/// Returns the trace so far of the calling thread's simulation; `None` on an ordinary thread.
pub fn current_trace() -> Option<ScheduleTrace> {
    sched::current_trace()
}

/// Shifts the wall clock of the calling thread's simulation by `by` milliseconds. Does nothing on
/// an ordinary thread.
pub fn shift_wall_clock_ms(by: i64) {
    sched::shift_wall_ms(by);
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
