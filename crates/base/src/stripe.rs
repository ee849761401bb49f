//! Stripes: a few places for the same thing, so that threads which do it at once do not write to one cache line. A thread
//! has one stripe for as long as it lives, if possible for itself alone. Knows nothing of what is striped.
//!
//! Invariants: 1. of the threads alive at a time at most one has an owned stripe; 2. whoever gets a stripe sees all that its
//! former owner wrote there (the mask is released and acquired). Which thread has which stripe decides nothing that a
//! caller could see: the simulation does not depend on it.

use std::cell::Cell;
use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// How many stripes there are. The last is shared by the threads that find no other.
pub const STRIPES: usize = 32;
const SHARED: usize = STRIPES - 1;
/// Not asked yet.
const UNKNOWN: usize = usize::MAX;

/// A bit for each owned stripe.
static TAKEN: AtomicU32 = AtomicU32::new(0);

/// Gives the stripe back when its thread ends.
struct Lease(Cell<usize>);

impl Drop for Lease {
    fn drop(&mut self) {
        // What still runs in this thread after this goes to the shared stripe.
        MINE.set(SHARED);
        if self.0.get() < SHARED {
            TAKEN.fetch_and(!(1 << self.0.get()), Release);
        }
    }
}

thread_local! {
    // Without a destructor: reading it is one load.
    static MINE: Cell<usize> = const { Cell::new(UNKNOWN) };
    static LEASE: Lease = const { Lease(Cell::new(UNKNOWN)) };
}

/// The stripe of this thread.
#[inline]
pub fn mine() -> usize {
    let stripe = MINE.get();
    if stripe < STRIPES { stripe } else { claim() }
}

#[cold]
fn claim() -> usize {
    let stripe = match LEASE.try_with(take) {
        Ok(stripe) => stripe,
        Err(_) => SHARED, // the thread is ending
    };
    MINE.set(stripe);
    stripe
}

fn take(lease: &Lease) -> usize {
    let free = |taken: u32| {
        Some(taken | 1 << (!taken).trailing_zeros()).filter(|_| (!taken).trailing_zeros() < SHARED as u32)
    };
    match TAKEN.fetch_update(Acquire, Relaxed, free) {
        Ok(before) => {
            let stripe = (!before).trailing_zeros() as usize;
            lease.0.set(stripe);
            stripe
        }
        Err(_) => SHARED,
    }
}

/// A cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Line(AtomicU64);

/// A number that only grows, and often: no two threads write to the same line, and a thread that owns its stripe needs no
/// atomic read-modify-write. The sum is exact for what happened before it is asked.
#[derive(Debug, Default)]
pub struct StripedCounter([Line; STRIPES]);

impl StripedCounter {
    /// Adds `n`.
    #[inline]
    pub fn add(&self, n: u64) {
        let stripe = mine();
        let cell = &self.0[stripe].0;
        if stripe == SHARED {
            cell.fetch_add(n, Relaxed);
        } else {
            // Only this thread writes here (invariant 1).
            cell.store(cell.load(Relaxed).wrapping_add(n), Relaxed);
        }
    }
    /// What this thread's stripe has: grows by what this thread adds, and starts anywhere. For sampling.
    #[inline]
    pub fn own(&self) -> u64 {
        self.0[mine()].0.load(Relaxed)
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
    fn nothing_is_lost_however_many_threads_count() {
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
    fn an_owned_stripe_has_one_owner() {
        let _alone = MANY_THREADS.lock().unwrap_or_else(PoisonError::into_inner);
        let all = Arc::new(Barrier::new(50));
        let threads: Vec<_> = (0..50)
            .map(|_| {
                let all = Arc::clone(&all);
                std::thread::spawn(move || {
                    let stripe = mine();
                    all.wait();
                    assert_eq!(mine(), stripe);
                    stripe
                })
            })
            .collect();
        let mut owned: Vec<usize> = threads.into_iter().map(|t| t.join().unwrap()).collect();
        owned.retain(|s| *s != SHARED);
        let count = owned.len();
        owned.sort_unstable();
        owned.dedup();
        assert_eq!(owned.len(), count);
        assert!(count > 0);
    }

    #[test]
    fn own_counts_what_this_thread_adds() {
        let counter = StripedCounter::default();
        let before = counter.own();
        counter.add(5);
        assert!(counter.own() >= before + 5);
    }
}
