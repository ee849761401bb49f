//! The current value of something that is replaced as a whole: readers take it without writing to a
//! cache line that another reader writes to. Must not know what it holds.
//!
//! Each stripe of threads has a copy of the pointer, with a lock and a reference count of its own;
//! replacing takes all of them. Invariants: 1. nobody gets the old value once somebody got the new
//! one: all stripes are locked before the first is changed; 2. nothing of the old value stays but
//! what readers hold: a thread that sleeps keeps no memory and no file;
//! 3. a stripe is made, once, under the read side of `latest`, so none is missed.

use perigee_base::thread_stripe::{self, THREAD_STRIPES};
use std::ops::Deref;
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// A cache line of its own.
#[derive(Debug)]
#[repr(align(64))]
struct AlignedLine<T>(T);

type ArcStripe<T> = AlignedLine<RwLock<Arc<AlignedLine<Arc<T>>>>>;

/// The current value.
#[derive(Debug)]
pub struct StripedArc<T> {
    latest: RwLock<Arc<T>>,
    /// Made when the first reader comes: most of a thousand families have none.
    stripes: OnceLock<Box<[OnceLock<Box<ArcStripe<T>>>; THREAD_STRIPES]>>,
}

/// Keeps a value alive, counted in the stripe of the thread that took it.
#[derive(Clone, Debug)]
pub struct StripedGuard<T>(Arc<AlignedLine<Arc<T>>>);

impl<T> Deref for StripedGuard<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.0.0
    }
}

impl<T> StripedArc<T> {
    /// Begins with that value.
    pub fn new(value: Arc<T>) -> StripedArc<T> {
        StripedArc { latest: RwLock::new(value), stripes: OnceLock::new() }
    }

    /// The value, for as long as one wants it.
    pub fn get(&self) -> Arc<T> {
        Arc::clone(&read_lock(&self.latest))
    }

    /// The value, for a moment: cheap where many threads do it at once.
    #[inline]
    pub fn pin(&self) -> StripedGuard<T> {
        let mine = self.stripes.get().and_then(|all| all[thread_stripe::thread_stripe()].get());
        let stripe = match mine {
            Some(stripe) => stripe,
            None => self.init_stripe(),
        };
        StripedGuard(Arc::clone(&read_lock(&stripe.0)))
    }

    #[cold]
    fn init_stripe(&self) -> &ArcStripe<T> {
        let all =
            self.stripes.get_or_init(|| Box::new([const { OnceLock::new() }; THREAD_STRIPES]));
        let latest = read_lock(&self.latest);
        all[thread_stripe::thread_stripe()].get_or_init(|| {
            Box::new(AlignedLine(RwLock::new(Arc::new(AlignedLine(Arc::clone(&latest))))))
        })
    }

    /// Replaces the value by what `change` makes of it. One at a time; `change` does no I/O.
    pub fn replace(&self, change: impl FnOnce(&T) -> T) {
        let mut latest = write_lock(&self.latest);
        let next = Arc::new(change(&latest));
        let stripes =
            self.stripes.get().into_iter().flat_map(|all| all.iter().filter_map(OnceLock::get));
        let mut held: Vec<_> = stripes.map(|s| write_lock(&s.0)).collect();
        // What goes is let go after the locks: freeing a memtable takes a while.
        let swap = |slot: &mut RwLockWriteGuard<'_, _>| {
            std::mem::replace(&mut **slot, Arc::new(AlignedLine(Arc::clone(&next))))
        };
        let gone: Vec<_> = held.iter_mut().map(swap).collect();
        drop(held);
        let old = std::mem::replace(&mut *latest, next);
        drop(latest);
        drop((gone, old));
    }
}

// A panic cannot leave a slot half changed: it holds one pointer.
fn read_lock<T>(slot: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    slot.read().unwrap_or_else(PoisonError::into_inner)
}
fn write_lock<T>(slot: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    slot.write().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

    #[test]
    fn replace_releases_old_value() {
        let current = StripedArc::new(Arc::new(1));
        std::thread::scope(|s| {
            (0..40).for_each(|_| drop(s.spawn(|| assert_eq!(*current.pin(), 1))))
        });
        let held = current.pin();
        let old = Arc::downgrade(&current.get());
        current.replace(|v| v + 1);
        assert_eq!((*held, *current.pin(), *current.get()), (1, 2, 2));
        assert_eq!(old.strong_count(), 1, "only what a reader holds");
        drop(held);
        assert_eq!(old.strong_count(), 0);
    }

    /// Whoever was told of a value never gets an older one, in whichever stripe.
    #[test]
    fn reads_are_monotonic() {
        let current = StripedArc::new(Arc::new(0));
        let told = AtomicU64::new(0);
        std::thread::scope(|s| {
            for _ in 0..6 {
                s.spawn(|| {
                    loop {
                        let before = told.load(SeqCst);
                        let now = *current.pin();
                        assert!(now >= before, "{now} after {before}");
                        told.fetch_max(now, SeqCst);
                        if now == 2000 {
                            break;
                        }
                    }
                });
            }
            (0..2000).for_each(|_| current.replace(|v| v + 1));
        });
    }
}
