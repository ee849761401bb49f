//! Locks that the simulation can see. In a real process they are the standard ones (without
//! poisoning); on a thread of the simulation, waiting hands the baton to another thread.
//!
//! Use these wherever a lock is held across I/O, a sleep or another wait. A critical section that
//! does none of these may use `std::sync` directly; it must not take a lock of this module inside
//! either, because a simulated thread may pause there while it holds the standard one.
//!
//! A lock or condition is used either by the threads of one world or by ordinary threads, not by
//! both at once.

use crate::sched;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{PoisonError, TryLockError};
use std::time::Duration;

/// A mutual exclusion lock around a value. A panic while it is held does not poison it.
#[derive(Default)]
pub struct Mutex<T> {
    inner: std::sync::Mutex<T>,
}

impl<T> Mutex<T> {
    /// A free lock.
    pub const fn new(value: T) -> Self {
        Mutex { inner: std::sync::Mutex::new(value) }
    }

    /// Waits until the lock is free and takes it.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let simulated = sched::on_simulated_thread();
        let held = if simulated { self.lock_simulated() } else { self.lock_real() };
        MutexGuard { mutex: self, held: Some(held), simulated }
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let simulated = sched::on_simulated_thread();
        if simulated {
            sched::lock_yield_point();
        }
        let held = self.try_lock_real()?;
        if simulated {
            sched::note_lock_acquired(self.scheduler_id());
        }
        Some(MutexGuard { mutex: self, held: Some(held), simulated })
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.inner.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value, without locking: nobody else can see it.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_real(&self) -> std::sync::MutexGuard<'_, T> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_lock_real(&self) -> Option<std::sync::MutexGuard<'_, T>> {
        match self.inner.try_lock() {
            Ok(held) => Some(held),
            Err(TryLockError::Poisoned(e)) => Some(e.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    #[cold]
    fn lock_simulated(&self) -> std::sync::MutexGuard<'_, T> {
        sched::lock_yield_point();
        let held = loop {
            if let Some(held) = self.try_lock_real() {
                break held;
            }
            // A static lock may be held by another world of this process: that one will release it
            // by itself.
            if !sched::wait_lock(self.scheduler_id(), std::any::type_name::<T>()) {
                break self.lock_real();
            }
        };
        sched::note_lock_acquired(self.scheduler_id());
        held
    }

    /// Its identity for the scheduler: stable while anybody holds it or waits for it, because both
    /// borrow it.
    fn scheduler_id(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

impl<T: fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// A held [`Mutex`]; dropping it frees the lock.
#[must_use = "the lock is free again at once if its guard is dropped"]
pub struct MutexGuard<'a, T> {
    mutex: &'a Mutex<T>,
    /// Empty only inside [`Condvar`] and `drop`.
    held: Option<std::sync::MutexGuard<'a, T>>,
    simulated: bool,
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        self.held.as_ref().expect("a guard holds its lock until it is dropped")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.held.as_mut().expect("a guard holds its lock until it is dropped")
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.held.take().is_some() && self.simulated {
            sched::note_lock_released(self.mutex.scheduler_id());
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// A condition to wait for under a [`Mutex`]. Waits may end without a reason: test the condition in
/// a loop.
#[derive(Debug, Default)]
pub struct Condvar {
    inner: std::sync::Condvar,
}

impl Condvar {
    /// A condition nobody waits for.
    pub const fn new() -> Self {
        Condvar { inner: std::sync::Condvar::new() }
    }

    /// Frees the lock, waits to be notified, takes the lock again.
    pub fn wait<'a, T>(&self, mut guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        if guard.simulated {
            return self.wait_simulated(guard, None).0;
        }
        if let Some(held) = guard.held.take() {
            guard.held = Some(self.inner.wait(held).unwrap_or_else(PoisonError::into_inner));
        }
        guard
    }

    /// As [`Condvar::wait`], for at most `us` microseconds (virtual ones in the simulation). True
    /// if the time ran out.
    pub fn wait_timeout_us<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        us: u64,
    ) -> (MutexGuard<'a, T>, bool) {
        if guard.simulated {
            return self.wait_simulated(guard, Some(us));
        }
        let mut timed_out = false;
        if let Some(held) = guard.held.take() {
            let waited = self.inner.wait_timeout(held, Duration::from_micros(us));
            let (held, result) = waited.unwrap_or_else(PoisonError::into_inner);
            guard.held = Some(held);
            timed_out = result.timed_out();
        }
        (guard, timed_out)
    }

    /// Wakes one of those who wait; in the simulation the seed says which.
    pub fn notify_one(&self) {
        if sched::on_simulated_thread() {
            sched::notify(self.scheduler_id(), false)
        } else {
            self.inner.notify_one()
        }
    }

    /// Wakes all who wait.
    pub fn notify_all(&self) {
        if sched::on_simulated_thread() {
            sched::notify(self.scheduler_id(), true)
        } else {
            self.inner.notify_all()
        }
    }

    fn wait_simulated<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        us: Option<u64>,
    ) -> (MutexGuard<'a, T>, bool) {
        let mutex = guard.mutex;
        // Freeing and waiting are one step: nobody else runs before the wait hands the baton on.
        drop(guard);
        let timed_out = sched::wait_cond(self.scheduler_id(), us);
        (mutex.lock(), timed_out)
    }

    fn scheduler_id(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}
