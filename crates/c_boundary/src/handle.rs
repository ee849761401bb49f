//! Handles: references that C holds to objects of the library. A handle is a number, never an
//! address, so that a stale, wrong or invented one is detected instead of dereferenced.
//!
//! ```text
//!  46  43 42            24 23             4 3  0
//! ┌──────┬────────────────┬────────────────┬────┐
//! │ kind │   generation   │     index      │  0 │   47 bits, as a user-space pointer has at most
//! └──────┴────────────────┴────────────────┴────┘
//! ```
//! Each kind has a table of slots that are never freed; a slot records the generation of its
//! current value. Objects shared by threads (databases, column families) are pinned; objects used
//! by one thread at a time (transactions, iterators) are locked, and a second thread waits. In a
//! child of `fork` every handle of the parent is refused. Invariant: a value is accessed only by
//! threads counted in the slot's state.

use perigee::env::fork_count;
use perigee::{Error, ErrorKind, Result};
use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

const INDEX_BITS: u32 = 20;
const CHUNK_SLOTS: usize = 1 << 10;
/// Minimum number of free slots before one is reused: a handle's number is reused after this many
/// times half a million other handles at the earliest.
const FREE_SLOTS_MIN: usize = 256;
const CHUNK_COUNT: usize = (1 << INDEX_BITS) / CHUNK_SLOTS;
const GENERATION_SHIFT: u32 = 4 + INDEX_BITS;
const GENERATION_BITS: u32 = 19;
const GENERATION_MASK: u64 = (1 << GENERATION_BITS) - 1;
const KIND_SHIFT: u32 = GENERATION_SHIFT + GENERATION_BITS;

/// State of a slot: its generation (from bit 32 on), whether it contains a value, whether one
/// thread has it locked, and the number of pins.
const LIVE: u64 = 1 << 31;
const EXCLUSIVE: u64 = 1 << 30;
/// A thread waits to remove the value: no further pin or lock is granted.
const REMOVING: u64 = 1 << 29;
const PIN_COUNT_MASK: u64 = REMOVING - 1;

struct HandleSlot<T, S> {
    state: AtomicU64,
    /// Fork generation of the process that inserted the value: see [`fork_count`].
    fork_generation: AtomicU64,
    /// Data that can be read without locking the value; never freed.
    shared: S,
    /// The thread that has the value locked.
    owner: AtomicUsize,
    value: UnsafeCell<Option<T>>,
}

/// All handles of one kind. `S` is the data that can be read without locking a value.
pub struct HandleTable<T: 'static, S: 'static = ()> {
    kind: u64,
    chunks: [OnceLock<Box<[HandleSlot<T, S>]>>; CHUNK_COUNT],
    free: Mutex<FreeSlots>,
}

struct FreeSlots {
    /// Least recently freed first, so that a stale handle's number is reused as late as possible.
    slots: VecDeque<u32>,
    /// Slots from this index on were never used.
    next: u32,
}

// SAFETY: a slot's value is accessed only through `PinnedValue` (shared: requires `T: Sync`) and
// `LockedValue` (exclusive, from any thread: requires `T: Send`).
unsafe impl<T: Send + Sync, S: Sync> Sync for HandleTable<T, S> {}

/// A pinned value: it is not removed until this is dropped.
pub struct PinnedValue<'a, T, S = ()> {
    slot: &'a HandleSlot<T, S>,
}

/// A locked value: no other thread accesses it until this is dropped.
pub struct LockedValue<'a, T, S = ()> {
    slot: &'a HandleSlot<T, S>,
}

/// Returns a number that identifies this thread: the address of a thread-local variable.
pub fn current_thread_id() -> usize {
    thread_local! { static THREAD_MARKER: u8 = const { 0 }; }
    THREAD_MARKER.try_with(|me| std::ptr::from_ref(me) as usize).unwrap_or(1)
}

#[cold]
fn invalid_handle() -> Error {
    Error::invalid("the handle is null, was freed, or is of another kind")
}

/// Error for a handle of the parent in a forked child: its files, threads and locks belong to the
/// parent.
#[cold]
fn forked_handle() -> Error {
    Error::new(
        ErrorKind::Closed,
        "the handle was created before this process was forked: open the database here after the \
         parent has closed it",
    )
}

#[cold]
fn reentrant_use() -> Error {
    Error::invalid("this thread is already inside a call with this handle")
}

/// Waits before the next attempt; longer the more attempts failed.
pub fn backoff(tries: u32) {
    match tries {
        0..64 => std::hint::spin_loop(),
        64..512 => std::thread::yield_now(),
        _ => std::thread::sleep(Duration::from_micros(50)),
    }
}

impl<T: Send + Sync, S: Default + Sync> HandleTable<T, S> {
    /// Creates an empty table. Each table needs its own kind, from 1 to 15.
    pub const fn new(kind: u64) -> HandleTable<T, S> {
        HandleTable {
            kind,
            chunks: [const { OnceLock::new() }; CHUNK_COUNT],
            free: Mutex::new(FreeSlots { slots: VecDeque::new(), next: 0 }),
        }
    }

    #[inline]
    fn find_slot(&self, raw: u64) -> Result<(&HandleSlot<T, S>, u64)> {
        let index = (raw >> 4) as usize & ((1 << INDEX_BITS) - 1);
        let chunk = self.chunks[index / CHUNK_SLOTS].get();
        match chunk {
            Some(chunk) if raw >> KIND_SHIFT == self.kind && raw & 15 == 0 => {
                let slot = &chunk[index % CHUNK_SLOTS];
                if slot.fork_generation.load(Relaxed) != fork_count() {
                    return Err(forked_handle());
                }
                Ok((slot, (raw >> GENERATION_SHIFT) & GENERATION_MASK))
            }
            _ => Err(invalid_handle()),
        }
    }

    /// Inserts a value and returns its handle.
    pub fn insert(&self, value: T) -> Result<usize> {
        self.insert_with(value, |_| ())
    }

    /// Like `insert`; `side` initializes the data that can be read without locking.
    pub fn insert_with(&self, value: T, side: impl FnOnce(&S)) -> Result<usize> {
        let index = {
            let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
            let fresh = free.next >> INDEX_BITS == 0 && free.slots.len() < FREE_SLOTS_MIN;
            match if fresh { None } else { free.slots.pop_front() } {
                Some(index) => index,
                None if fresh => {
                    free.next += 1;
                    free.next - 1
                }
                None => {
                    return Err(Error::new(
                        ErrorKind::NoMemory,
                        "more than a million handles of one kind are open: release some",
                    ));
                }
            }
        } as usize;
        let chunk = self.chunks[index / CHUNK_SLOTS].get_or_init(|| {
            let empty = || HandleSlot {
                state: AtomicU64::new(1 << 32),
                fork_generation: AtomicU64::new(fork_count()),
                shared: S::default(),
                owner: AtomicUsize::new(0),
                value: UnsafeCell::new(None),
            };
            (0..CHUNK_SLOTS).map(|_| empty()).collect()
        });
        let slot = &chunk[index % CHUNK_SLOTS];
        let generation = slot.state.load(Acquire) >> 32;
        // SAFETY: the slot is free and this thread took it from the free list: no handle refers to
        // it.
        unsafe { *slot.value.get() = Some(value) };
        side(&slot.shared);
        slot.fork_generation.store(fork_count(), Relaxed);
        slot.state.store(generation << 32 | LIVE, Release);
        Ok((self.kind << KIND_SHIFT | generation << GENERATION_SHIFT | (index as u64) << 4)
            as usize)
    }

    /// Returns true if the handle is valid.
    #[inline]
    pub fn is_valid(&self, raw: usize) -> bool {
        self.find_slot(raw as u64).is_ok_and(|(slot, generation)| {
            let state = slot.state.load(Acquire);
            state >> 32 == generation && state & (LIVE | REMOVING) == LIVE
        })
    }

    /// Returns the data that can be read without locking the value, if the handle is valid.
    #[inline]
    pub fn peek_shared(&self, raw: usize) -> Result<&S> {
        let (slot, generation) = self.find_slot(raw as u64)?;
        let state = slot.state.load(Acquire);
        let there = state >> 32 == generation && state & (LIVE | REMOVING) == LIVE;
        if there { Ok(&slot.shared) } else { Err(invalid_handle()) }
    }

    /// Adds `step` to the state as soon as no bit of `busy` is set.
    #[inline]
    fn acquire(
        slot: &HandleSlot<T, S>,
        generation: u64,
        busy: u64,
        step: u64,
    ) -> Result<&HandleSlot<T, S>> {
        let mut tries = 0;
        loop {
            let state = slot.state.load(Relaxed);
            if state >> 32 != generation || state & (LIVE | REMOVING) != LIVE {
                return Err(invalid_handle());
            }
            if state & busy == 0 {
                if slot.state.compare_exchange_weak(state, state + step, Acquire, Relaxed).is_ok() {
                    return Ok(slot);
                }
            } else {
                if slot.owner.load(Relaxed) == current_thread_id() {
                    return Err(reentrant_use());
                }
                tries += 1;
                backoff(tries);
            }
        }
    }

    /// Pins a value.
    #[inline]
    pub fn pin(&self, raw: usize) -> Result<PinnedValue<'_, T, S>> {
        let (slot, generation) = self.find_slot(raw as u64)?;
        Self::acquire(slot, generation, EXCLUSIVE, 1).map(|slot| PinnedValue { slot })
    }

    /// Locks a value.
    #[inline]
    pub fn lock(&self, raw: usize) -> Result<LockedValue<'_, T, S>> {
        let (slot, generation) = self.find_slot(raw as u64)?;
        Self::acquire(slot, generation, EXCLUSIVE | PIN_COUNT_MASK, EXCLUSIVE)?;
        slot.owner.store(current_thread_id(), Relaxed);
        Ok(LockedValue { slot })
    }

    /// Removes a value. Its handle becomes invalid immediately; waits until all pins and locks are
    /// released.
    pub fn remove(&self, raw: usize) -> Result<T> {
        let (slot, generation) = self.find_slot(raw as u64)?;
        let mut state = slot.state.load(Relaxed);
        loop {
            if state >> 32 != generation || state & (LIVE | REMOVING) != LIVE {
                return Err(invalid_handle());
            }
            if state & EXCLUSIVE != 0 && slot.owner.load(Relaxed) == current_thread_id() {
                return Err(reentrant_use());
            }
            match slot.state.compare_exchange_weak(state, state | REMOVING, Acquire, Relaxed) {
                Ok(_) => break,
                Err(now) => state = now,
            }
        }
        let mut tries = 0;
        while slot.state.load(Acquire) & (EXCLUSIVE | PIN_COUNT_MASK) != 0 {
            tries += 1;
            backoff(tries);
        }
        // SAFETY: no thread accesses the value, and `REMOVING`, which only one thread can set,
        // prevents further access.
        let value = unsafe { (*slot.value.get()).take() };
        slot.state.store(((generation + 1) & GENERATION_MASK) << 32, Release);
        let index = (raw >> 4) & ((1 << INDEX_BITS) - 1);
        self.free.lock().unwrap_or_else(PoisonError::into_inner).slots.push_back(index as u32);
        value.ok_or_else(invalid_handle)
    }
}

impl<T, S> Deref for PinnedValue<'_, T, S> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: while this pin is counted in the slot's state no thread has the value locked, so
        // it is not modified.
        unsafe { (*self.slot.value.get()).as_ref() }.expect("a live slot has a value")
    }
}

impl<T, S> Drop for PinnedValue<'_, T, S> {
    #[inline]
    fn drop(&mut self) {
        self.slot.state.fetch_sub(1, Release);
    }
}

impl<T, S> LockedValue<'_, T, S> {
    /// Returns the data that can be read without locking.
    #[inline]
    pub fn shared(&self) -> &S {
        &self.slot.shared
    }
}

impl<T, S> Deref for LockedValue<'_, T, S> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: as `deref_mut`.
        unsafe { (*self.slot.value.get()).as_ref() }.expect("a live slot has a value")
    }
}

impl<T, S> DerefMut for LockedValue<'_, T, S> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: `EXCLUSIVE` was set by this thread and is cleared when this is dropped; while it
        // is set no other thread accesses the value.
        unsafe { (*self.slot.value.get()).as_mut() }.expect("a live slot has a value")
    }
}

impl<T, S> Drop for LockedValue<'_, T, S> {
    #[inline]
    fn drop(&mut self) {
        self.slot.owner.store(0, Relaxed);
        // Another thread may set `REMOVING` meanwhile.
        self.slot.state.fetch_and(!EXCLUSIVE, Release);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::sync::Arc;

    #[test]
    fn removed_handles_stay_invalid() {
        static TABLE: HandleTable<String> = HandleTable::new(3);
        let a = TABLE.insert("a".into()).unwrap();
        assert_eq!(*TABLE.pin(a).unwrap(), "a");
        TABLE.lock(a).unwrap().push('b');
        assert_eq!(TABLE.remove(a).unwrap(), "ab");
        assert!(TABLE.pin(a).is_err() && TABLE.lock(a).is_err() && TABLE.remove(a).is_err());
        let b = TABLE.insert("b".into()).unwrap();
        assert!(a != b && !TABLE.is_valid(a) && TABLE.is_valid(b));
        for wrong in [0, 1, b + 1, b | 1 << 46, b ^ 1 << 30, usize::MAX, b + (5 << 4), 0xdead_beef]
        {
            assert!(!TABLE.is_valid(wrong) && TABLE.pin(wrong).is_err(), "{wrong:x}");
        }
    }

    #[test]
    fn reentrant_lock_fails_instead_of_deadlocking() {
        static TABLE: HandleTable<u32> = HandleTable::new(4);
        let a = TABLE.insert(1).unwrap();
        let held = TABLE.lock(a).unwrap();
        assert!(TABLE.lock(a).is_err() && TABLE.pin(a).is_err() && TABLE.remove(a).is_err());
        drop(held);
        assert!(TABLE.lock(a).is_ok());
    }

    #[test]
    fn locks_are_exclusive_and_removal_waits_for_pins() {
        static TABLE: HandleTable<Vec<u64>> = HandleTable::new(5);
        let seen = Arc::new(AtomicU64::new(0));
        for round in 0..200 {
            let a = TABLE.insert(Vec::new()).unwrap();
            std::thread::scope(|s| {
                for t in 0..4u64 {
                    let seen = Arc::clone(&seen);
                    s.spawn(move || {
                        for i in 0..50 {
                            if t == 3 && i == 25 + round % 20 {
                                let all = TABLE.remove(a).unwrap();
                                seen.fetch_add(all.len() as u64, Relaxed);
                                return;
                            }
                            if t == 2 {
                                let _ = TABLE.pin(a).map(|v| assert!(v.iter().all(|x| *x < 4)));
                            } else {
                                let _ = TABLE.lock(a).map(|mut v| v.push(t));
                            }
                        }
                    });
                }
            });
            assert!(!TABLE.is_valid(a));
        }
        assert!(seen.load(Relaxed) > 0);
    }
}
