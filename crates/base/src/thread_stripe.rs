//! Stripes: a few places for the same thing, so that threads which do it at once do not write to
//! one cache line. A thread has one stripe for as long as it lives, if possible for itself alone.
//! Knows nothing of what is striped.
//!
//! Invariants: 1. of the threads alive at a time at most one has an owned stripe; 2. whoever gets a
//! stripe sees all that its former owner wrote there (the mask is released and acquired). Which
//! thread has which stripe decides nothing that a caller could see: the simulation does not depend
//! on it.

use std::cell::Cell;
use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// How many stripes there are. The last is shared by the threads that find no other.
pub const THREAD_STRIPES: usize = 32;
const SHARED_STRIPE: usize = THREAD_STRIPES - 1;
/// Not asked yet.
const UNASSIGNED: usize = usize::MAX;

/// A bit for each owned stripe.
static OWNED_STRIPES: AtomicU32 = AtomicU32::new(0);

/// Gives the stripe back when its thread ends.
struct StripeLease(Cell<usize>);

impl Drop for StripeLease {
    fn drop(&mut self) {
        // What still runs in this thread after this goes to the shared stripe.
        THREAD_STRIPE.set(SHARED_STRIPE);
        if self.0.get() < SHARED_STRIPE {
            OWNED_STRIPES.fetch_and(!(1 << self.0.get()), Release);
        }
    }
}

thread_local! {
    // Without a destructor: reading it is one load.
    static THREAD_STRIPE: Cell<usize> = const { Cell::new(UNASSIGNED) };
    static LEASE: StripeLease = const { StripeLease(Cell::new(UNASSIGNED)) };
}

/// The stripe of this thread.
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
            lease.0.set(stripe);
            stripe
        }
        Err(_) => SHARED_STRIPE,
    }
}

/// A cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct PaddedCounter(AtomicU64);

/// A number that only grows, and often: no two threads write to the same line, and a thread that
/// owns its stripe needs no atomic read-modify-write. The sum is exact for what happened before it
/// is asked.
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
    /// What this thread's stripe has: grows by what this thread adds, and starts anywhere. For
    /// sampling.
    #[inline]
    pub fn stripe_value(&self) -> u64 {
        self.0[thread_stripe()].0.load(Relaxed)
    }
    /// The value now.
    pub fn get(&self) -> u64 {
        self.0.iter().fold(0, |sum, line| sum.wrapping_add(line.0.load(Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Barrier, Mutex, PoisonError};

    /// Held by tests of many threads: those of another test could own every stripe.
    static MANY_THREADS: Mutex<()> = Mutex::new(());

    #[test]
    fn concurrent_adds_are_not_lost() {
        let _alone = MANY_THREADS.lock().unwrap_or_else(PoisonError::into_inner);
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
        let _alone = MANY_THREADS.lock().unwrap_or_else(PoisonError::into_inner);
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
