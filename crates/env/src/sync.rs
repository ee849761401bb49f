//! Locks that the simulation can schedule. On ordinary threads they are the standard ones (without
//! poisoning); on a simulated thread, waiting switches to another thread.
//!
//! Use these wherever a lock is held across I/O, a sleep or another wait. A critical section that
//! does none of these may use `std::sync` directly. It must not take a lock of this module, because
//! a simulated thread may be suspended there while it holds the standard lock.
//!
//! A lock or condition variable is used either by the threads of one simulation or by ordinary
//! threads, not by both at once.

use crate::clock::Clock;
use crate::sim_hooks;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{PoisonError, TryLockError};
use std::time::Duration;

/// A mutex. A panic while it is held does not poison it.
#[derive(Default)]
pub struct Mutex<T> {
    inner: std::sync::Mutex<T>,
}

impl<T> Mutex<T> {
    /// Creates an unlocked mutex.
    pub const fn new(value: T) -> Self {
        Mutex { inner: std::sync::Mutex::new(value) }
    }

    /// Locks the mutex, waiting until it is free.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let simulated = sim_hooks::on_simulated_thread();
        let held = if simulated { self.lock_simulated() } else { self.lock_real() };
        MutexGuard { mutex: self, held: Some(held), simulated }
    }

    /// Locks the mutex if it is free; else returns `None`.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let simulated = sim_hooks::on_simulated_thread();
        if simulated {
            sim_hooks::lock_yield_point();
        }
        let held = self.try_lock_real()?;
        if simulated {
            sim_hooks::note_lock_acquired(self.scheduler_id());
        }
        Some(MutexGuard { mutex: self, held: Some(held), simulated })
    }

    /// Returns the value.
    pub fn into_inner(self) -> T {
        self.inner.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the value without locking: the exclusive reference excludes other access.
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
        sim_hooks::lock_yield_point();
        let held = loop {
            if let Some(held) = self.try_lock_real() {
                break held;
            }
            // A static lock may be held by a thread of another simulation in this process, which
            // will release it independently.
            if !sim_hooks::wait_lock(self.scheduler_id(), std::any::type_name::<T>()) {
                break self.lock_real();
            }
        };
        sim_hooks::note_lock_acquired(self.scheduler_id());
        held
    }

    /// Returns the identity of the lock for the scheduler. Stable while a thread holds or waits for
    /// the lock, because both borrow it.
    fn scheduler_id(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

impl<T: fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// A locked [`Mutex`]; dropping it unlocks the mutex.
#[must_use = "the mutex is unlocked at once if its guard is dropped"]
pub struct MutexGuard<'a, T> {
    mutex: &'a Mutex<T>,
    /// `None` only inside [`Condvar`] and `drop`.
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
            sim_hooks::note_lock_released(self.mutex.scheduler_id());
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// A condition variable for use with [`Mutex`]. Waits may end spuriously: test the condition in a
/// loop.
#[derive(Debug, Default)]
pub struct Condvar {
    inner: std::sync::Condvar,
}

impl Condvar {
    /// Creates a condition variable without waiters.
    pub const fn new() -> Self {
        Condvar { inner: std::sync::Condvar::new() }
    }

    /// Unlocks the mutex, waits for a notification and locks the mutex again.
    pub fn wait<'a, T>(&self, mut guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        if guard.simulated {
            return self.wait_simulated(guard, None).0;
        }
        if let Some(held) = guard.held.take() {
            guard.held = Some(self.inner.wait(held).unwrap_or_else(PoisonError::into_inner));
        } else {
            check!(false, "a thread waits only while it holds the lock");
        }
        guard
    }

    /// Like [`Condvar::wait`], for at most `us` microseconds (of virtual time in the simulation).
    /// Returns true on timeout.
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
        } else {
            check!(false, "a thread waits only while it holds the lock");
        }
        (guard, timed_out)
    }

    /// Waits while `condition` holds, for at most `us` microseconds.
    pub fn wait_timeout_while_us<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        clock: &dyn Clock,
        us: u64,
        condition: impl Fn(&T) -> bool,
    ) -> MutexGuard<'a, T> {
        if !condition(&guard) {
            return guard;
        }
        let until = clock.monotonic_us().saturating_add(us);
        while condition(&guard) {
            let now = clock.monotonic_us();
            if now >= until {
                break;
            }
            guard = self.wait_timeout_us(guard, until - now).0;
        }
        guard
    }

    /// Wakes one waiter; in the simulation the seed chooses it.
    pub fn notify_one(&self) {
        if sim_hooks::on_simulated_thread() {
            sim_hooks::notify(self.scheduler_id(), false)
        } else {
            self.inner.notify_one()
        }
    }

    /// Wakes all waiters.
    pub fn notify_all(&self) {
        if sim_hooks::on_simulated_thread() {
            sim_hooks::notify(self.scheduler_id(), true)
        } else {
            self.inner.notify_all()
        }
    }

    fn wait_simulated<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        us: Option<u64>,
    ) -> (MutexGuard<'a, T>, bool) {
        check!(guard.held.is_some(), "a thread waits only while it holds the lock");
        let mutex = guard.mutex;
        // Unlocking and waiting are one atomic step: no other simulated thread runs before the wait
        // switches threads.
        drop(guard);
        let timed_out = sim_hooks::wait_cond(self.scheduler_id(), us);
        (mutex.lock(), timed_out)
    }

    fn scheduler_id(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}
