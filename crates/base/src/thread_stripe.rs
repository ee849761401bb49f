//! Stripes: several copies of one value, so that concurrent threads do not write to the same cache
//! line. A thread keeps one stripe for its lifetime, exclusively if possible. Independent of what
//! is striped.
//!
//! Invariants: 1. an owned stripe belongs to at most one live thread; 2. the new owner of a stripe
//! sees everything that its former owner wrote there (release and acquire on the mask). The
//! assignment of stripes has no effect visible to callers: the simulation does not depend on it.

use std::cell::Cell;
use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// Number of stripes. The last one is shared by threads that find no free stripe.
pub const THREAD_STRIPES: usize = 32;
const SHARED_STRIPE: usize = THREAD_STRIPES - 1;
const _: () = assert!(THREAD_STRIPES <= u32::BITS as usize, "each owned stripe has a bit");
/// The thread has no stripe yet.
const UNASSIGNED: usize = usize::MAX;

/// One bit per owned stripe.
static OWNED_STRIPES: AtomicU32 = AtomicU32::new(0);

/// Releases the stripe when its thread ends.
struct StripeLease(Cell<usize>);

impl Drop for StripeLease {
    fn drop(&mut self) {
        // Code that still runs in this thread uses the shared stripe.
        THREAD_STRIPE.set(SHARED_STRIPE);
        if self.0.get() < SHARED_STRIPE {
            let owned = OWNED_STRIPES.fetch_and(!(1 << self.0.get()), Release);
            check!(owned & (1 << self.0.get()) != 0, "a thread releases a stripe that it owns");
        }
    }
}

thread_local! {
    // No destructor: reading it is one load.
    static THREAD_STRIPE: Cell<usize> = const { Cell::new(UNASSIGNED) };
    static LEASE: StripeLease = const { StripeLease(Cell::new(UNASSIGNED)) };
}

/// Returns the stripe of the calling thread.
#[inline]
pub fn thread_stripe() -> usize {
    let stripe = THREAD_STRIPE.get();
    if stripe < THREAD_STRIPES { stripe } else { claim_stripe() }
}

#[cold]
fn claim_stripe() -> usize {
    let stripe = match LEASE.try_with(lease_stripe) {
        Ok(stripe) => stripe,
        Err(_) => SHARED_STRIPE, // the thread is ending
    };
    THREAD_STRIPE.set(stripe);
    stripe
}

fn lease_stripe(lease: &StripeLease) -> usize {
    let free = |taken: u32| {
        Some(taken | 1 << (!taken).trailing_zeros())
            .filter(|_| (!taken).trailing_zeros() < SHARED_STRIPE as u32)
    };
    match OWNED_STRIPES.fetch_update(Acquire, Relaxed, free) {
        Ok(before) => {
            let stripe = (!before).trailing_zeros() as usize;
            check!(stripe < SHARED_STRIPE, "no thread owns the shared stripe", stripe);
            check!(lease.0.get() == UNASSIGNED, "a thread leases one stripe", lease.0.get());
            lease.0.set(stripe);
            stripe
        }
        Err(_) => SHARED_STRIPE,
    }
}

/// A counter on its own cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
struct PaddedCounter(AtomicU64);

/// A counter that is incremented often: threads with an owned stripe write to different cache lines
/// and need no atomic read-modify-write. The sum includes every addition that happened before the
/// read.
#[derive(Debug, Default)]
pub struct StripedCounter([PaddedCounter; THREAD_STRIPES]);

impl StripedCounter {
    /// Adds `n`.
    #[inline]
    pub fn add(&self, n: u64) {
        let stripe = thread_stripe();
        let cell = &self.0[stripe].0;
        if stripe == SHARED_STRIPE {
            cell.fetch_add(n, Relaxed);
        } else {
            // Only this thread writes here (invariant 1).
            cell.store(cell.load(Relaxed).wrapping_add(n), Relaxed);
        }
    }
    /// Returns the value of the calling thread's stripe. It grows by what this thread adds and
    /// starts at an arbitrary value; used for sampling.
    #[inline]
    pub fn stripe_value(&self) -> u64 {
        self.0[thread_stripe()].0.load(Relaxed)
    }
    /// Returns the sum of all stripes.
    pub fn get(&self) -> u64 {
        self.0.iter().fold(0, |sum, line| sum.wrapping_add(line.0.load(Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Barrier, Mutex, PoisonError};

    /// Serializes tests that start many threads: threads of another test could own every stripe.
    static MANY_THREADS: Mutex<()> = Mutex::new(());

    #[test]
    fn concurrent_adds_are_not_lost() {
        let _exclusive = MANY_THREADS.lock().unwrap_or_else(PoisonError::into_inner);
        let counter = StripedCounter::default();
        for threads in [1, 7, 100] {
            let before = counter.get();
            std::thread::scope(|s| {
                for _ in 0..threads {
                    s.spawn(|| (0..1000).for_each(|_| counter.add(3)));
                }
            });
            assert_eq!(counter.get() - before, threads * 3000);
        }
    }

    #[test]
    fn owned_stripe_has_one_owner() {
        let _exclusive = MANY_THREADS.lock().unwrap_or_else(PoisonError::into_inner);
        let all = Arc::new(Barrier::new(50));
        let threads: Vec<_> = (0..50)
            .map(|_| {
                let all = Arc::clone(&all);
                std::thread::spawn(move || {
                    let stripe = thread_stripe();
                    all.wait();
                    assert_eq!(thread_stripe(), stripe);
                    stripe
                })
            })
            .collect();
        let mut owned: Vec<usize> = threads.into_iter().map(|t| t.join().unwrap()).collect();
        owned.retain(|s| *s != SHARED_STRIPE);
        let count = owned.len();
        owned.sort_unstable();
        owned.dedup();
        assert_eq!(owned.len(), count);
        assert!(count > 0);
    }

    #[test]
    fn stripe_value_counts_this_thread() {
        let counter = StripedCounter::default();
        let before = counter.stripe_value();
        counter.add(5);
        assert!(counter.stripe_value() >= before + 5);
    }
}
