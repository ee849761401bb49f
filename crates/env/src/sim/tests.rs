//! Tests of the scheduler: reproducible schedules, mutual exclusion, virtual time, deadlock
//! detection.

use super::*;
use crate::sim_hooks::is_simulated;
use crate::spawn::Join;
use crate::sync::{Condvar, Mutex};
use crate::{DirOpenMode, fs::WritableFile};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

fn spawn(env: &Env, name: &str, body: impl FnOnce() + Send + 'static) -> Box<dyn Join> {
    env.spawn.spawn(name, Box::new(body)).unwrap()
}

fn file(env: &Env, name: &str) -> Arc<dyn WritableFile> {
    env.fs.open_dir(Path::new("/db"), DirOpenMode::CreateIfMissing).unwrap().create(name).unwrap()
}

/// Runs three threads that write to separate files and record the order of their writes.
fn run_three_writers(seed: u64) -> (Vec<usize>, ScheduleTrace) {
    let world = SimWorld::new(seed);
    let order = world.run(SimDisk::new(seed), |env| {
        let order = Arc::new(Mutex::new(Vec::new()));
        let writers: Vec<_> = (0..3)
            .map(|t| {
                let (w, order) = (file(&env, &format!("{t}")), order.clone());
                spawn(&env, &format!("writer {t}"), move || {
                    for _ in 0..10 {
                        w.append(&[b"x"]).unwrap();
                        order.lock().push(t);
                    }
                })
            })
            .collect();
        writers.into_iter().for_each(|w| w.join().unwrap());
        let order = order.lock();
        order.clone()
    });
    (order, world.trace().unwrap())
}

#[test]
fn same_seed_gives_same_schedule() {
    let runs: Vec<_> = (0..20).map(run_three_writers).collect();
    for (seed, run) in runs.iter().enumerate() {
        assert_eq!(*run, run_three_writers(seed as u64), "seed {seed}");
        assert_eq!(run.0.len(), 30);
    }
    let distinct: std::collections::BTreeSet<_> = runs.iter().map(|r| &r.0).collect();
    assert_eq!(distinct.len(), 20);
}

#[test]
fn threads_run_sequentially_without_switches() {
    let mut world = SimWorld::new(1);
    world.switch_probability(0.0).lock_switch_probability(0.0);
    let order = world.run(SimDisk::new(1), |env| {
        let order = Arc::new(Mutex::new(Vec::new()));
        let threads: Vec<_> = (0..3)
            .map(|t| {
                let (w, order) = (file(&env, &format!("{t}")), order.clone());
                spawn(&env, "t", move || {
                    (0..5).for_each(|_| {
                        w.append(&[b"x"]).unwrap();
                        order.lock().push(t);
                    })
                })
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
        order.lock().clone()
    });
    assert_eq!(
        order.chunks(5).map(|c| c.iter().all(|t| *t == c[0])).collect::<Vec<_>>(),
        [true; 3]
    );
}

#[test]
fn mutex_excludes_and_unlocked_race_is_found() {
    let mut lost = 0;
    for seed in 0..50 {
        let (safe, racy) = SimWorld::new(seed).run(SimDisk::new(seed), |env| {
            let (safe, racy) = (Arc::new(Mutex::new(0)), Arc::new(Mutex::new(0)));
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    let (safe, racy) = (safe.clone(), racy.clone());
                    spawn(&env, "adder", move || {
                        for _ in 0..5 {
                            let mut n = safe.lock();
                            let was = *n;
                            yield_now();
                            *n = was + 1;
                            drop(n);
                            let was = *racy.lock();
                            yield_now();
                            *racy.lock() = was + 1;
                        }
                    })
                })
                .collect();
            threads.into_iter().for_each(|t| t.join().unwrap());
            (*safe.lock(), *racy.lock())
        });
        assert_eq!(safe, 20, "seed {seed}");
        lost += i32::from(racy < 20);
    }
    assert!(lost > 40, "the unprotected counter must lose updates, did in {lost} of 50 worlds");
}

#[test]
fn sleep_passes_virtual_time() {
    let started = std::time::Instant::now();
    SimWorld::new(1).run(SimDisk::new(1), |env| {
        let (m, c) = (Mutex::new(()), Condvar::new());
        let t0 = env.clock.monotonic_us();
        env.clock.sleep_us(3_600_000_000);
        let (guard, timed_out) = c.wait_timeout_us(m.lock(), 7_200_000_000);
        assert!(timed_out);
        drop(guard);
        let passed = env.clock.monotonic_us() - t0;
        assert!((10_800_000_000..10_800_001_000).contains(&passed), "{passed}");
        assert_eq!(env.clock.wall_ms() - 1_700_000_000_000, env.clock.monotonic_us() / 1000);
        shift_wall_clock_ms(-1_000_000);
        assert!(env.clock.wall_ms() < 1_700_010_800_000);
    });
    assert!(started.elapsed().as_secs() < 3600, "three hours did not pass");
}

#[test]
fn sleepers_wake_in_deadline_order() {
    let woken = SimWorld::new(5).run(SimDisk::new(5), |env| {
        let woken = Arc::new(Mutex::new(Vec::new()));
        for ms in [30, 10, 20] {
            let (clock, woken) = (env.clock.clone(), woken.clone());
            spawn(&env, "sleeper", move || {
                clock.sleep_us(ms * 1000);
                woken.lock().push(ms);
            });
        }
        env.clock.sleep_us(40_000);
        woken.lock().clone()
    });
    assert_eq!(woken, [10, 20, 30]);
}

#[test]
fn notify_one_wakes_one_waiter() {
    let mut first = std::collections::BTreeSet::new();
    for seed in 0..40 {
        let order = SimWorld::new(seed).run(SimDisk::new(seed), |env| {
            let shared = Arc::new((Mutex::new((0, Vec::new())), Condvar::new()));
            let threads: Vec<_> = (0..3)
                .map(|t| {
                    let shared = shared.clone();
                    spawn(&env, "waiter", move || {
                        let (m, c) = &*shared;
                        let mut state = m.lock();
                        while state.0 == 0 {
                            state = c.wait(state);
                        }
                        state.0 -= 1;
                        state.1.push(t);
                    })
                })
                .collect();
            env.clock.sleep_us(1000);
            for _ in 0..3 {
                shared.0.lock().0 += 1;
                shared.1.notify_one();
                env.clock.sleep_us(1000);
            }
            threads.into_iter().for_each(|t| t.join().unwrap());
            shared.0.lock().1.clone()
        });
        assert_eq!(order.len(), 3);
        first.insert(order[0]);
    }
    assert_eq!(first.len(), 3, "any waiter can be woken first");
}

/// Runs a simulation that breaks, and returns its panic message.
fn run_until_broken(world: &SimWorld, root: impl FnOnce(Env)) -> String {
    let caught = catch_unwind(AssertUnwindSafe(|| world.run(SimDisk::new(1), root)));
    crate::spawn::panic_message(&*caught.unwrap_err())
}

#[test]
fn deadlock_panics_with_thread_list() {
    let mut found = 0;
    for seed in 0..20 {
        let run = catch_unwind(AssertUnwindSafe(|| {
            SimWorld::new(seed).run(SimDisk::new(1), |env| {
                let (a, b) = (Arc::new(Mutex::new(1_u8)), Arc::new(Mutex::new(2_u16)));
                let (a2, b2) = (a.clone(), b.clone());
                let t = spawn(&env, "other", move || {
                    let _b = b2.lock();
                    yield_now();
                    let _a = a2.lock();
                });
                let guard = a.lock();
                yield_now();
                drop((b.lock(), guard));
                t.join().unwrap();
            })
        }));
        if let Err(panic) = run {
            let text = crate::spawn::panic_message(&*panic);
            assert!(text.starts_with("deadlock: no thread can run"), "{text}");
            assert!(
                text.contains("thread 0 'root': waits for a lock on u16, held by thread 1 'other'"),
                "{text}"
            );
            assert!(
                text.contains("thread 1 'other': waits for a lock on u8, held by thread 0 'root'"),
                "{text}"
            );
            found += 1;
        }
    }
    assert!(found > 0);
}

#[test]
fn deadlock_of_remaining_threads_is_reported() {
    let text = run_until_broken(&SimWorld::new(1), |env| {
        spawn(&env, "forgotten", || {
            let (m, c) = (Mutex::new(()), Condvar::new());
            drop(c.wait(m.lock()));
        });
    });
    assert!(text.contains("'forgotten': waits for a condition"), "{text}");
}

#[test]
fn joining_destructors_do_not_hang_a_broken_world() {
    struct JoinOnDrop(Option<Box<dyn Join>>, Arc<Mutex<()>>);
    impl Drop for JoinOnDrop {
        fn drop(&mut self) {
            drop(self.1.lock());
            let _ = self.0.take().unwrap().join();
        }
    }
    let text = run_until_broken(&SimWorld::new(1), |env| {
        let m = Arc::new(Mutex::new(()));
        let inner = m.clone();
        let t = spawn(&env, "stuck", move || {
            let c = Condvar::new();
            let guard = inner.lock();
            let other = Mutex::new(());
            drop(c.wait(other.lock()));
            drop(guard);
        });
        let _joined = JoinOnDrop(Some(t), m.clone());
        env.clock.sleep_us(10);
        drop(m.lock());
    });
    assert!(text.starts_with("deadlock"), "{text}");
}

#[test]
fn step_limit_ends_an_endless_run() {
    let mut world = SimWorld::new(1);
    let text = run_until_broken(world.step_limit(1000), |env| {
        spawn(&env, "spinner", || {
            loop {
                yield_now();
            }
        });
    });
    assert!(text.starts_with("step limit") && text.contains("'spinner': can run"), "{text}");
}

#[test]
fn thread_panic_is_returned_by_join_only() {
    let done = SimWorld::new(1).run(SimDisk::new(1), |env| {
        let m = Arc::new(Mutex::new(0));
        let inner = m.clone();
        let t = spawn(&env, "bad", move || {
            let _held = inner.lock();
            std::panic::resume_unwind(Box::new("oh no"));
        });
        assert_eq!(t.join(), Err("oh no".to_owned()));
        *m.lock() += 1;
        *m.lock()
    });
    assert_eq!(done, 1, "the locks of a panicked thread are released");
}

#[test]
fn root_panic_reaches_caller_after_other_threads_end() {
    let ended = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let flag = ended.clone();
    let text = run_until_broken(&SimWorld::new(1), move |env| {
        let clock = env.clock.clone();
        spawn(&env, "late", move || {
            clock.sleep_us(1_000_000);
            flag.store(true, std::sync::atomic::Ordering::SeqCst);
        });
        std::panic::resume_unwind(Box::new("root failed"));
    });
    assert_eq!(text, "root failed");
    assert!(ended.load(std::sync::atomic::Ordering::SeqCst));
}

#[test]
fn concurrent_worlds_are_independent() {
    static SHARED: Mutex<u64> = Mutex::new(0);
    let alone: Vec<_> = (0..4).map(run_three_writers).collect();
    std::thread::scope(|s| {
        for seed in 0..4 {
            let alone = &alone;
            s.spawn(move || {
                for _ in 0..20 {
                    assert_eq!(run_three_writers(seed), alone[seed as usize]);
                    SimWorld::new(seed).run(SimDisk::new(1), |env| {
                        let threads: Vec<_> = (0..3)
                            .map(|_| {
                                spawn(&env, "adder", || {
                                    let mut n = SHARED.lock();
                                    yield_now();
                                    *n += 1;
                                })
                            })
                            .collect();
                        threads.into_iter().for_each(|t| t.join().unwrap());
                    });
                }
            });
        }
    });
    assert_eq!(*SHARED.lock(), 4 * 20 * 3);
}

#[test]
fn real_threads_use_real_locks() {
    let shared = Arc::new((Mutex::new(0), Condvar::new()));
    let (guard, timed_out) = shared.1.wait_timeout_us(shared.0.lock(), 1000);
    assert!(timed_out);
    drop(guard);
    let other = shared.clone();
    let env = Env::real();
    let t = spawn(&env, "real", move || {
        *other.0.lock() = 1;
        other.1.notify_all();
    });
    let mut n = shared.0.lock();
    while *n == 0 {
        n = shared.1.wait(n);
    }
    drop(n);
    t.join().unwrap();
    assert!(!is_simulated() && current_trace().is_none());
}
