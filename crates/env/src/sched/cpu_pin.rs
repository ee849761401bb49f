//! Keeps the threads of one world on one processor. Only one of them runs at a time anyway, and a
//! hand-over there costs a tenth of one that must wake another processor. Speed only: failing to
//! pin changes nothing.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::sync::atomic::{AtomicUsize, Ordering};

thread_local! {
    /// Threads that run worlds side by side spread over the processors, and each keeps to its own.
    static CPU_SLOT: usize = NEXT_CPU_SLOT.fetch_add(1, Ordering::Relaxed);
}
static NEXT_CPU_SLOT: AtomicUsize = AtomicUsize::new(0);

/// The calling thread, and those it starts, stay on one processor until this is dropped.
pub(super) struct CpuPin {
    previous_set: Option<CpuSet>,
}

impl CpuPin {
    pub fn new() -> CpuPin {
        let before = sched_getaffinity(None).ok().filter(|set| set.count() > 1);
        if let Some(set) = &before {
            let turn = CPU_SLOT.with(|t| *t) % set.count() as usize;
            let cpu = (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).nth(turn);
            let mut one = CpuSet::new();
            one.set(cpu.expect("the turn is below the count"));
            // An error leaves the thread where it is.
            let _ = sched_setaffinity(None, &one);
        }
        CpuPin { previous_set: before }
    }
}

impl Drop for CpuPin {
    fn drop(&mut self) {
        if let Some(set) = &self.previous_set {
            let _ = sched_setaffinity(None, set);
        }
    }
}
