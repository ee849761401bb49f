//! Tests which writers share a sync.

use super::*;
use crate::settings::durability::Durability;
use perigee_env::fs::memory::SimDisk;
use perigee_env::sim::SimWorld;
use perigee_file::log::{EncodedRecord, RecordKind};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Duration of a group.
const SYNC_US: u64 = 1_000;

fn sync_request() -> CommitRequest {
    let record = EncodedRecord::from_payload(RecordKind::Batch, b"", 1);
    let (durability, last) = (Durability::Full, SeqNo::ZERO);
    CommitRequest {
        record,
        family_batches: Default::default(),
        durability,
        conditions: None,
        step: None,
        rejected: None,
        last_seq: last,
        thread_id: 0,
    }
}

/// Runs `writers` threads that submit `each` requests, on the simulator. Returns the number of
/// groups and the elapsed microseconds.
fn run_writers(seed: u64, writers: u64, each: u64) -> (u64, u64) {
    let disk = SimDisk::new(seed);
    let counted = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
    let results = Arc::clone(&counted);
    SimWorld::new(seed).run(disk, move |env| {
        let queue = Arc::new(CommitQueue::new());
        let start = env.clock.monotonic_us();
        let threads: Vec<_> = (0..writers)
            .map(|_| {
                let (queue, counted, clock) =
                    (Arc::clone(&queue), Arc::clone(&counted), Arc::clone(&env.clock));
                let body = move || {
                    let mut before = SeqNo::ZERO;
                    for _ in 0..each {
                        let lead = |group: &mut [CommitRequest]| {
                            assert!(!group.is_empty());
                            counted.0.fetch_add(1, SeqCst);
                            let done = counted.1.fetch_add(group.len() as u64, SeqCst);
                            group
                                .iter_mut()
                                .zip(done + 1..)
                                .for_each(|(w, n)| w.last_seq = SeqNo(n));
                            clock.sleep_us(SYNC_US);
                            Ok(())
                        };
                        let number = queue.submit(&*clock, sync_request(), lead).unwrap();
                        assert!(number > before, "each writer gets its own sequence number");
                        before = number;
                    }
                };
                env.spawn.spawn("writer", Box::new(body)).unwrap()
            })
            .collect();
        threads.into_iter().for_each(|t| drop(t.join()));
        let us = env.clock.monotonic_us() - start;
        assert_eq!(counted.1.load(SeqCst), writers * each, "every batch is committed once");
        counted.1.store(us, SeqCst);
    });
    (results.0.load(SeqCst), results.1.load(SeqCst))
}

#[test]
fn lone_writer_never_waits_for_group() {
    let (groups, us) = run_writers(1, 1, 100);
    assert_eq!(groups, 100);
    assert!(us < 101 * SYNC_US, "{us}");
}

/// Regression test: two writers alternated, each waiting for the whole sync of the other, so every
/// sync served one writer.
#[test]
fn returning_writers_share_next_sync() {
    for seed in 1..20 {
        for writers in [2, 3, 8] {
            let (groups, us) = run_writers(seed, writers, 100);
            assert!(groups < 130, "seed {seed}: {writers} writers made {groups} groups");
            assert!(us < 200 * SYNC_US, "seed {seed}: {us}");
        }
    }
}

#[test]
fn queue_survives_panicked_leader() {
    SimWorld::new(3).run(SimDisk::new(3), |env| {
        let queue = Arc::new(CommitQueue::new());
        let (other, clock) = (Arc::clone(&queue), Arc::clone(&env.clock));
        let body = move || {
            drop(
                other.submit(&*clock, sync_request(), |_| panic!("deliberate panic of the leader")),
            )
        };
        let thread = env.spawn.spawn("panics", Box::new(body)).unwrap();
        assert!(thread.join().is_err());
        queue.submit(&*env.clock, sync_request(), |_| Ok(())).unwrap();
    });
}
