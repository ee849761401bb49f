//! Pins the threads of one simulation to one processor. Only one of them runs at a time anyway, and
//! switching to a thread on the same processor costs a tenth of waking another processor. Affects
//! only speed: a failure to pin is ignored.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::sync::atomic::{AtomicUsize, Ordering};

thread_local! {
    /// Spreads threads that run simulations concurrently over the processors, each on its own.
    static CPU_SLOT: usize = NEXT_CPU_SLOT.fetch_add(1, Ordering::Relaxed);
}
static NEXT_CPU_SLOT: AtomicUsize = AtomicUsize::new(0);

/// Pins the calling thread, and the threads it starts, to one processor until dropped.
pub(super) struct CpuPin {
    previous_set: Option<CpuSet>,
}

impl CpuPin {
    pub fn new() -> CpuPin {
        let previous_set = sched_getaffinity(None).ok().filter(|set| set.count() > 1);
        if let Some(set) = &previous_set {
            let slot = CPU_SLOT.with(|slot| *slot) % set.count() as usize;
            let cpu = (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).nth(slot);
            let mut one = CpuSet::new();
            one.set(cpu.expect("the slot is below the processor count"));
            // On an error the thread is not pinned.
            let _ = sched_setaffinity(None, &one);
        }
        CpuPin { previous_set }
    }
}

impl Drop for CpuPin {
    fn drop(&mut self) {
        if let Some(set) = &self.previous_set {
            let _ = sched_setaffinity(None, set);
        }
    }
}
