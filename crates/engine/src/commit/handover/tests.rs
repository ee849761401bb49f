//! Who is done by whom: every job once, in one section at a time, and every writer hears of its own.

use super::*;
use perigee_env::fs::memory::SimDisk;
use perigee_env::sim::World;
use perigee_env::sync::{Mutex as Section, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

struct Numbered(u64, Option<Error>);

impl Job for Numbered {
    fn refused(&mut self) -> Option<Error> {
        self.1.take()
    }
}

type Few = Handover<Numbered, 4>;

/// The last number done by each writer, and how many groups there were.
type Done = Vec<u64>;

fn submit(handover: &Few, section: &Section<(Done, u64)>, job: u64, pause: impl Fn()) -> Result<()> {
    let lead = |done: &mut (Done, u64), group: &mut [Numbered]| {
        pause();
        done.1 += 1;
        for job in group {
            let (writer, n) = ((job.0 / 1_000_000) as usize, job.0 % 1_000_000);
            done.0[writer] += 1;
            assert_eq!(done.0[writer], n, "a writer's jobs are done in order, each once");
            if n % 7 == 0 {
                job.1 = Some(Error::invalid(format!("{}", job.0)));
            }
        }
        Ok(())
    };
    let enter = || -> MutexGuard<'_, (Done, u64)> { section.lock() };
    handover.submit(Numbered(job, None), || section.try_lock(), enter, lead)
}

/// Job `n` of a writer: a seventh is refused, and its writer hears that.
fn write(handover: &Few, section: &Section<(Done, u64)>, writer: u64, n: u64, pause: impl Fn()) {
    let job = writer * 1_000_000 + n;
    match submit(handover, section, job, pause) {
        Ok(()) => assert_ne!(n % 7, 0),
        Err(e) => assert_eq!((n % 7, e.message()), (0, job.to_string().as_str())),
    }
}

#[test]
fn every_job_is_done_once_and_its_writer_hears_of_it() {
    for writers in [1, 2, 3, 9] {
        let (handover, section) = (Few::new(), Section::new((vec![0; writers], 0)));
        std::thread::scope(|s| {
            for writer in 0..writers as u64 {
                let (handover, section) = (&handover, &section);
                s.spawn(move || (1..=5_000).for_each(|n| write(handover, section, writer, n, || ())));
            }
        });
        let (done, groups) = section.into_inner();
        assert!(done.iter().all(|n| *n == 5_000) && groups <= 5_000 * writers as u64);
    }
}

/// In the simulation the section is left alone for a while in its middle: there others hand over.
#[test]
fn who_waits_is_done_by_the_next_that_enters() {
    for seed in 1..30 {
        World::new(seed).run(SimDisk::new(seed), move |env| {
            let shared = Arc::new((Few::new(), Section::new((vec![0; 6], 0))));
            let threads: Vec<_> = (0..6)
                .map(|writer| {
                    let (shared, clock) = (Arc::clone(&shared), Arc::clone(&env.clock));
                    let body = move || {
                        for n in 1..=50 {
                            write(&shared.0, &shared.1, writer, n, || clock.sleep_us(10));
                            clock.sleep_us(1 + (writer + n) % 5);
                        }
                    };
                    env.spawn.spawn("writer", Box::new(body)).unwrap()
                })
                .collect();
            threads.into_iter().for_each(|t| t.join().unwrap());
            let done = shared.1.lock();
            assert_eq!(done.0, [50; 6]);
            assert!(done.1 < 200, "seed {seed}: {} groups", done.1);
        });
    }
}

/// One writer panics while it leads for others: all of them are answered.
#[test]
fn a_leader_that_panics_answers_everybody() {
    for seed in 1..10 {
        World::new(seed).run(SimDisk::new(seed), move |env| {
            let shared = Arc::new((Few::new(), Section::new(())));
            let left = Arc::new(AtomicU64::new(0));
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    let (shared, left, clock) =
                        (Arc::clone(&shared), Arc::clone(&left), Arc::clone(&env.clock));
                    let body = move || {
                        let lead = |_: &mut (), group: &mut [Numbered]| -> Result<()> {
                            clock.sleep_us(10);
                            assert!(group.len() == 1, "as planned");
                            Ok(())
                        };
                        let enter = || shared.1.lock();
                        let done = shared.0.submit(Numbered(0, None), || shared.1.try_lock(), enter, lead);
                        if done.is_err_and(|e| e.kind() == ErrorKind::OutcomeUnknown) {
                            left.fetch_add(1, SeqCst);
                        }
                    };
                    env.spawn.spawn("writer", Box::new(body)).unwrap()
                })
                .collect();
            let panicked = threads.into_iter().filter_map(|t| t.join().err()).count() as u64;
            assert_eq!((panicked > 0, left.load(SeqCst) > 0), (true, true), "seed {seed}");
        });
    }
}

#[test]
fn a_leader_waits_for_company_that_comes_and_gives_up_on_one_that_does_not() {
    let mut c = Company(0).after(false, false);
    assert_eq!(c.patience(), 0, "alone");
    c = c.after(false, true);
    assert!(c.patience() > 0, "somebody was late");
    for _ in 0..1000 {
        c = c.after(true, false);
        assert!(c.patience() > 0);
    }
    let waited = (0..1000).filter(|_| {
        let waits = c.patience() > 0;
        c = c.after(false, true);
        waits
    });
    let waited = waited.count();
    assert!((3..20).contains(&waited), "{waited} of 1000 waits in vain");
    (0..64).for_each(|_| c = c.after(false, true));
    while c.patience() == 0 {
        c = c.after(false, true);
    }
    (0..1000).for_each(|_| c = c.after(true, false));
    assert!(c.patience() > 0, "found again");
}
