//! Implements the traits of [`crate::Env`] on top of the scheduler.

use crate::clock::Clock;
use crate::rand::Rand;
use crate::sched::Scheduler;
use crate::spawn::{Join, Spawn};
use perigee_base::Result;
use std::sync::Arc;

/// Virtual time.
#[derive(Debug)]
pub(super) struct SimClock(pub Arc<Scheduler>);

impl Clock for SimClock {
    fn wall_ms(&self) -> u64 {
        self.0.wall_ms()
    }
    fn monotonic_us(&self) -> u64 {
        self.0.now_us()
    }
    fn sleep_us(&self, us: u64) {
        self.0.sleep_us(us);
    }
}

/// Seeded random numbers.
#[derive(Debug)]
pub(super) struct SimRand(pub Arc<Scheduler>);

impl Rand for SimRand {
    fn next_u64(&self) -> u64 {
        self.0.next_u64()
    }
}

/// Simulated threads.
#[derive(Debug)]
pub(super) struct SimSpawn(pub Arc<Scheduler>);

struct SimJoin {
    sched: Arc<Scheduler>,
    thread: usize,
}

impl Spawn for SimSpawn {
    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> Result<Box<dyn Join>> {
        let thread = self.0.spawn(name, body)?;
        Ok(Box::new(SimJoin { sched: self.0.clone(), thread }))
    }
    /// More than one, so that the parallel code paths run in the simulation (sequentially).
    fn cores(&self) -> usize {
        8
    }
}

impl Join for SimJoin {
    fn join(self: Box<Self>) -> std::result::Result<(), String> {
        self.sched.join(self.thread)
    }
}
