//! Tests which threads share a sync, on the simulator.

use super::*;
use perigee_env::fs::memory::SimDisk;
use perigee_env::sim::SimWorld;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Duration of a sync.
const SYNC_US: u64 = 1_000;

/// A log that counts its syncs.
#[derive(Debug, Default)]
struct CountedLog {
    queue: SyncQueue,
    appended: AtomicU64,
    durable: AtomicU64,
    syncs: AtomicU64,
}

impl CountedLog {
    /// Appends a record and waits until it is durable.
    fn commit(&self, clock: &dyn Clock) {
        let number = self.appended.fetch_add(1, SeqCst) + 1;
        let is_durable = || self.durable.load(SeqCst) >= number;
        let sync = || {
            let covered = self.appended.load(SeqCst);
            self.syncs.fetch_add(1, SeqCst);
            clock.sleep_us(SYNC_US);
            self.durable.fetch_max(covered, SeqCst);
            Ok(())
        };
        self.queue.wait_durable(clock, is_durable, sync).unwrap();
        assert!(is_durable(), "returned before record {number} was durable");
    }
}

/// Runs `threads` threads that commit `each` records. Returns the number of syncs and the elapsed
/// microseconds.
fn run_threads(seed: u64, threads: u64, each: u64) -> (u64, u64) {
    let counted = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
    let results = Arc::clone(&counted);
    SimWorld::new(seed).run(SimDisk::new(seed), move |env| {
        let log = Arc::new(CountedLog::default());
        let start = env.clock.monotonic_us();
        let threads: Vec<_> = (0..threads)
            .map(|_| {
                let (log, clock) = (Arc::clone(&log), Arc::clone(&env.clock));
                let body = move || (0..each).for_each(|_| log.commit(&*clock));
                env.spawn.spawn("committer", Box::new(body)).unwrap()
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
        counted.0.store(log.syncs.load(SeqCst), SeqCst);
        counted.1.store(env.clock.monotonic_us() - start, SeqCst);
    });
    (results.0.load(SeqCst), results.1.load(SeqCst))
}

#[test]
fn lone_thread_never_waits_for_others() {
    let (syncs, us) = run_threads(1, 1, 100);
    assert_eq!(syncs, 100);
    assert!(us < 101 * SYNC_US, "{us}");
}

#[test]
fn returning_threads_share_next_sync() {
    for seed in 1..20 {
        for threads in [2, 3, 8] {
            let (syncs, us) = run_threads(seed, threads, 100);
            assert!(syncs < 130, "seed {seed}: {threads} threads made {syncs} syncs");
            assert!(us < 200 * SYNC_US, "seed {seed}: {us}");
        }
    }
}

/// Threads that were here at the end of a short sync come back too late for the next one.
#[test]
fn leader_waits_only_where_syncs_are_long() {
    SimWorld::new(1).run(SimDisk::new(1), |env| {
        let clock = &*env.clock;
        let waited_us = |sync_us| {
            let queue = SyncQueue::default();
            (queue.state.lock().expected, queue.state.lock().sync_us) = (2, sync_us);
            let start = clock.monotonic_us();
            queue.wait_durable(clock, || false, || Ok(())).unwrap();
            clock.monotonic_us() - start
        };
        let short = waited_us(2 * SYNC_WAIT_US_MIN - 2);
        assert!(short < SYNC_WAIT_US_MIN / 2, "{short}");
        let long = waited_us(2 * SYNC_WAIT_US_MIN);
        assert!(long >= SYNC_WAIT_US_MIN, "{long}");
    });
}

#[test]
fn every_waiting_thread_learns_of_a_failed_sync() {
    for seed in 1..20 {
        SimWorld::new(seed).run(SimDisk::new(seed), |env| {
            let queue = Arc::new(SyncQueue::default());
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    let (queue, clock) = (Arc::clone(&queue), Arc::clone(&env.clock));
                    let body = move || {
                        let sync = || {
                            clock.sleep_us(SYNC_US);
                            Err(Error::new(ErrorKind::OutcomeUnknown, "deliberate failure"))
                        };
                        let error = queue.wait_durable(&*clock, || false, sync).unwrap_err();
                        assert_eq!(error.kind(), ErrorKind::OutcomeUnknown);
                    };
                    env.spawn.spawn("committer", Box::new(body)).unwrap()
                })
                .collect();
            threads.into_iter().for_each(|t| t.join().unwrap());
        });
    }
}

#[test]
fn queue_survives_panicked_leader() {
    SimWorld::new(3).run(SimDisk::new(3), |env| {
        let queue = Arc::new(SyncQueue::default());
        let (other, clock) = (Arc::clone(&queue), Arc::clone(&env.clock));
        let body = move || {
            drop(other.wait_durable(&*clock, || false, || panic!("deliberate panic of the leader")))
        };
        let thread = env.spawn.spawn("panics", Box::new(body)).unwrap();
        assert!(thread.join().is_err());
        queue.wait_durable(&*env.clock, || false, || Ok(())).unwrap();
    });
}
