//! A shared pointer to a value that is replaced as a whole: readers take it without writing to a
//! cache line that another reader writes to. Independent of the type of the value.
//!
//! Each thread stripe has a copy of the pointer, with its own lock and reference count; a
//! replacement updates all copies. Invariants: 1. once any reader got the new value, no reader gets
//! the old one: all stripes are locked before the first is changed; 2. the old value stays alive
//! only through readers that hold it: an idle thread keeps no memory and no file; 3. a stripe is
//! created once, under the read lock of `latest`, so that none is missed.
//!
//! The stripes take 0.5 KB, plus 0.2 KB per thread. The first [`UNSTRIPED_PINS`] pins share
//! `latest` instead, so that of thousands of column families only those that are read often have
//! stripes.

use perigee_base::{THREAD_STRIPES, thread_stripe};
use std::ops::Deref;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// A value on its own cache line.
#[derive(Debug)]
#[repr(align(64))]
struct AlignedLine<T>(T);

type ArcStripe<T> = AlignedLine<RwLock<Arc<AlignedLine<Arc<T>>>>>;
type ArcStripes<T> = [OnceLock<Box<ArcStripe<T>>>; THREAD_STRIPES];

/// Number of pins of a pointer before it gets stripes.
const UNSTRIPED_PINS: u32 = 1024;

/// A pointer to the current value, with one copy per thread stripe once it is pinned often.
#[derive(Debug)]
pub struct StripedArc<T> {
    latest: RwLock<Arc<T>>,
    /// Number of pins; not counted further once the stripes exist.
    pins: AtomicU32,
    stripes: OnceLock<Box<ArcStripes<T>>>,
}

/// Keeps a value alive, counted in the stripe of the thread that took it, if there are stripes.
#[derive(Clone, Debug)]
pub struct StripedGuard<T>(GuardedArc<T>);

#[derive(Clone, Debug)]
enum GuardedArc<T> {
    Striped(Arc<AlignedLine<Arc<T>>>),
    Unstriped(Arc<T>),
}

impl<T> Deref for StripedGuard<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        match &self.0 {
            GuardedArc::Striped(line) => &line.0,
            GuardedArc::Unstriped(value) => value,
        }
    }
}

impl<T> StripedGuard<T> {
    /// Returns the value for use of any duration.
    pub fn into_arc(self) -> Arc<T> {
        match self.0 {
            GuardedArc::Striped(line) => Arc::clone(&line.0),
            GuardedArc::Unstriped(value) => value,
        }
    }
}

impl<T> StripedArc<T> {
    /// Creates the pointer with an initial value.
    pub fn new(value: Arc<T>) -> StripedArc<T> {
        StripedArc { latest: RwLock::new(value), pins: AtomicU32::new(0), stripes: OnceLock::new() }
    }

    /// Returns the value, for use of any duration.
    pub fn get(&self) -> Arc<T> {
        Arc::clone(&read_lock(&self.latest))
    }

    /// Returns the value for short use; without contention between threads if it is pinned often.
    #[inline]
    pub fn pin(&self) -> StripedGuard<T> {
        match self.existing_stripe() {
            Some(stripe) => StripedGuard(GuardedArc::Striped(Arc::clone(&read_lock(&stripe.0)))),
            None => self.pin_without_stripe(),
        }
    }

    /// Returns the stripe of this thread, if it exists.
    #[inline]
    fn existing_stripe(&self) -> Option<&ArcStripe<T>> {
        let stripes = self.stripes.get()?;
        stripes[thread_stripe()].get().map(|stripe| &**stripe)
    }

    /// Pins a value for which this thread has no stripe. Creates the stripe, unless the value was
    /// not pinned often enough to have any.
    #[cold]
    fn pin_without_stripe(&self) -> StripedGuard<T> {
        if self.stripes.get().is_none() && self.pins.fetch_add(1, Relaxed) < UNSTRIPED_PINS {
            return StripedGuard(GuardedArc::Unstriped(self.get()));
        }
        let all =
            self.stripes.get_or_init(|| Box::new([const { OnceLock::new() }; THREAD_STRIPES]));
        let latest = read_lock(&self.latest);
        let stripe = all[thread_stripe()].get_or_init(|| {
            Box::new(AlignedLine(RwLock::new(Arc::new(AlignedLine(Arc::clone(&latest))))))
        });
        let striped = Arc::clone(&read_lock(&stripe.0));
        check_slow!(
            Arc::ptr_eq(&striped.0, &latest),
            "every stripe has the latest value while it is not replaced"
        );
        StripedGuard(GuardedArc::Striped(striped))
    }

    /// Calls `visit` with the value, under a read lock that delays replacements. Does not count as
    /// a pin; `visit` must be short.
    #[inline]
    pub fn with_value<R>(&self, visit: impl FnOnce(&T) -> R) -> R {
        match self.existing_stripe() {
            Some(stripe) => visit(&read_lock(&stripe.0).0),
            None => visit(&read_lock(&self.latest)),
        }
    }

    /// Returns the memory of the stripes, in bytes.
    pub fn stripe_bytes(&self) -> u64 {
        let Some(all) = self.stripes.get() else { return 0 };
        let allocated = all.iter().filter(|stripe| stripe.get().is_some()).count();
        // The two counters of an `Arc` fill a cache line of their own because of the alignment.
        let each = size_of::<ArcStripe<T>>() + 2 * size_of::<AlignedLine<Arc<T>>>();
        (size_of::<ArcStripes<T>>() + allocated * each) as u64
    }

    /// Replaces the value with the result of `change`. Replacements are serialized; `change` must
    /// do no I/O.
    pub fn replace(&self, change: impl FnOnce(&T) -> T) {
        let mut latest = write_lock(&self.latest);
        let next = Arc::new(change(&latest));
        let stripes =
            self.stripes.get().into_iter().flat_map(|all| all.iter().filter_map(OnceLock::get));
        let mut locked: Vec<_> = stripes.map(|s| write_lock(&s.0)).collect();
        // Old values are dropped after the locks are released: freeing a memtable takes a while.
        let swap = |slot: &mut RwLockWriteGuard<'_, _>| {
            std::mem::replace(&mut **slot, Arc::new(AlignedLine(Arc::clone(&next))))
        };
        let replaced: Vec<_> = locked.iter_mut().map(swap).collect();
        drop(locked);
        let old = std::mem::replace(&mut *latest, next);
        drop(latest);
        drop((replaced, old));
    }
}

// A panic cannot leave a slot in an inconsistent state: it is a single pointer.
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
        assert_eq!(old.strong_count(), 1, "only the reader holds the old value");
        drop(held);
        assert_eq!(old.strong_count(), 0);
    }

    #[test]
    fn frequently_pinned_value_gets_stripes() {
        let current = StripedArc::new(Arc::new(1));
        let pins: Vec<_> = (0..UNSTRIPED_PINS).map(|_| current.pin()).collect();
        assert_eq!((current.with_value(|v| *v), current.stripe_bytes()), (1, 0));
        let striped = current.pin();
        let one = current.stripe_bytes();
        assert!((1..2048).contains(&one), "{one}");
        current.replace(|v| v + 1);
        assert_eq!((*striped, *pins[0], *current.pin(), current.with_value(|v| *v)), (1, 1, 2, 2));
        std::thread::scope(|s| drop(s.spawn(|| assert_eq!(*current.pin(), 2))));
        assert!(current.stripe_bytes() >= one);
    }

    /// After any thread has seen a value, no thread gets an older one, in any stripe.
    #[test]
    fn reads_are_monotonic() {
        let current = StripedArc::new(Arc::new(0));
        let newest_seen = AtomicU64::new(0);
        std::thread::scope(|s| {
            for _ in 0..6 {
                s.spawn(|| {
                    loop {
                        let before = newest_seen.load(SeqCst);
                        let now = *current.pin();
                        assert!(now >= before, "{now} after {before}");
                        newest_seen.fetch_max(now, SeqCst);
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
