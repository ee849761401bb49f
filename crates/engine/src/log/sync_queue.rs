//! Threads that wait until the log is durable up to a sequence number share syncs: one of them
//! syncs for all that wait, the others sleep. Their commits are visible already, and locks are
//! released: only the threads that need to know that a commit survives wait here.
//!
//! As in the commit queue, a thread whose wait has just ended comes back shortly after the next
//! sync has started. So a thread about to sync first waits until as many threads have arrived as
//! were here at the end of the last sync, but no longer than a fraction of the duration of a sync.
//! If that is too short for a thread to answer its client and to receive the next statement, the
//! sync starts at once: the wait would only make it later.

use super::Log;
use crate::limits::{GROUP_WAIT_US_MAX, SYNC_WAIT_US_MIN};
use perigee_base::{Error, ErrorKind, Result, SeqNo};
use perigee_env::{Clock, Condvar, Mutex, MutexGuard};

/// State of a [`SyncQueue`].
#[derive(Debug, Default)]
struct SyncQueueState {
    /// A thread syncs, or waits for others before it does.
    has_leader: bool,
    /// The leader waits for more threads.
    is_gathering: bool,
    /// Threads that wait for the leader.
    waiting: usize,
    /// Threads that were here when the last sync ended, with its leader.
    expected: usize,
    /// Moving average of the duration of a sync, in microseconds.
    sync_us: u64,
}

/// Threads that wait for a sync of the log.
#[derive(Debug, Default)]
pub struct SyncQueue {
    state: Mutex<SyncQueueState>,
    /// Notified after a sync.
    synced: Condvar,
    /// Notified when the expected number of threads has arrived.
    arrived: Condvar,
}

impl SyncQueue {
    /// Waits until `is_durable` returns true; calls `sync` for all that wait if no other thread
    /// does. `sync` must make `is_durable` of every thread that waits when it is called true, or
    /// fail.
    ///
    /// # Errors
    /// Those of `sync`, for the thread that called it; the others then call it themselves.
    pub fn wait_durable(
        &self,
        clock: &dyn Clock,
        is_durable: impl Fn() -> bool,
        sync: impl Fn() -> Result<()>,
    ) -> Result<()> {
        let mut state = self.state.lock();
        while !is_durable() {
            if !state.has_leader {
                return self.lead(clock, state, sync);
            }
            state.waiting += 1;
            if state.is_gathering && state.waiting + 1 >= state.expected {
                self.arrived.notify_one();
            }
            state = self.synced.wait(state);
        }
        Ok(())
    }

    /// Waits for the expected threads and syncs.
    fn lead(
        &self,
        clock: &dyn Clock,
        mut state: MutexGuard<'_, SyncQueueState>,
        sync: impl Fn() -> Result<()>,
    ) -> Result<()> {
        check_slow!(!state.has_leader && !state.is_gathering, "one thread syncs at a time", *state);
        state.has_leader = true;
        let mut led = LedSync { queue: self, clock, started_us: None };
        drop(self.gather(clock, state));
        led.started_us = Some(clock.monotonic_us());
        sync()
    }

    /// Waits, as the leader, for the expected threads.
    fn gather<'a>(
        &'a self,
        clock: &dyn Clock,
        mut state: MutexGuard<'a, SyncQueueState>,
    ) -> MutexGuard<'a, SyncQueueState> {
        let patience = (state.sync_us / 2).min(GROUP_WAIT_US_MAX);
        if patience < SYNC_WAIT_US_MIN {
            return state;
        }
        state.is_gathering = true;
        let is_short = |state: &SyncQueueState| state.waiting + 1 < state.expected;
        state = self.arrived.wait_timeout_while_us(state, clock, patience, is_short);
        state.is_gathering = false;
        state
    }
}

/// A sync with its leader. Dropping it wakes all that wait, even if the leader panicked.
struct LedSync<'a> {
    queue: &'a SyncQueue,
    clock: &'a dyn Clock,
    /// `None` until the sync begins.
    started_us: Option<u64>,
}

impl Drop for LedSync<'_> {
    fn drop(&mut self) {
        let mut state = self.queue.state.lock();
        if let Some(started) = self.started_us {
            let took = self.clock.monotonic_us().saturating_sub(started);
            state.sync_us = (state.sync_us * 3 + took) / 4;
        }
        state.has_leader = false;
        state.is_gathering = false;
        // All are woken: those that have to wait again count themselves again.
        state.expected = std::mem::take(&mut state.waiting) + 1;
        drop(state);
        self.queue.synced.notify_all();
    }
}

impl Log {
    /// Waits until the log is durable up to `seq`; threads that wait share syncs.
    ///
    /// # Errors
    /// `InvalidArgument` if `seq` was not assigned yet. `OutcomeUnknown` if a sync fails or failed.
    pub fn sync_up_to(&self, seq: SeqNo) -> Result<()> {
        let is_durable = || self.durable_seq() >= seq;
        if is_durable() {
            return Ok(());
        }
        let newest = self.wal.last_appended();
        if seq > newest {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("no write has sequence number {seq} yet: the newest one is {newest}"),
            ));
        }
        self.sync_queue.wait_durable(&*self.runtime.env.clock, is_durable, || self.sync().map(drop))
    }
}

#[cfg(test)]
mod tests;
