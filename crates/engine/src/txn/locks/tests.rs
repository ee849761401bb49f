//! Tests: which requests wait for which, and that no wait is endless.

use super::*;
use LockMode::{Exclusive, Gap, Insert, Shared};
use perigee_base::KeyBoundary;
use perigee_env::fs::memory::SimDisk;
use perigee_env::sim::SimWorld;
use std::sync::Arc;

const FAMILY: LockScope<'_> =
    LockScope { family: FamilyId(1), name: &"f", comparator: KeyComparator::Bytes };

fn key(name: &str) -> KeyOrRange {
    KeyOrRange::Key(name.as_bytes().to_vec())
}

fn range(from: &str, to: &str) -> KeyOrRange {
    KeyOrRange::Range(
        KeyBoundary::Before(from.as_bytes().to_vec()),
        KeyBoundary::Before(to.as_bytes().to_vec()),
    )
}

/// Returns true if the lock is granted without waiting.
fn try_lock(
    locks: &LockManager,
    owner: LockOwner,
    mine: &mut TxnLocks,
    target: KeyOrRange,
    mode: LockMode,
) -> bool {
    let clock = perigee_env::RealClock::default();
    let limits = LockWaitLimits::new(&clock, 0);
    locks.lock(limits, FAMILY, owner, mine, target.borrowed(), mode).is_ok()
}

#[test]
fn lock_mode_compatibility_table() {
    for (held, wanted, waits) in [
        (Shared, Shared, false),
        (Shared, Exclusive, true),
        (Shared, Gap, false),
        (Shared, Insert, true),
        (Exclusive, Shared, true),
        (Exclusive, Exclusive, true),
        (Exclusive, Gap, false),
        (Gap, Shared, false),
        (Gap, Exclusive, false),
        (Gap, Gap, false),
        (Gap, Insert, true),
        (Insert, Shared, true),
        (Insert, Gap, true),
        (Insert, Insert, true),
    ] {
        for (a, b) in
            [(key("k"), key("k")), (range("a", "z"), key("k")), (key("k"), range("a", "z"))]
        {
            let (locks, mut one, mut other) =
                (LockManager::new(), TxnLocks::default(), TxnLocks::default());
            assert!(try_lock(&locks, 1, &mut one, a, held));
            assert_eq!(!try_lock(&locks, 2, &mut other, b, wanted), waits, "{held:?} {wanted:?}");
            assert!(try_lock(&locks, 2, &mut other, key("zz"), Exclusive), "elsewhere");
            locks.release(1, &mut one, 0);
            assert!(try_lock(&locks, 2, &mut other, key("k"), wanted));
            locks.release(2, &mut other, 0);
            assert_eq!(locks.count(), (0, 0));
        }
    }
}

#[test]
fn owner_can_relock_and_upgrade_its_own_keys() {
    let (locks, mut one, mut other) =
        (LockManager::new(), TxnLocks::default(), TxnLocks::default());
    assert!(try_lock(&locks, 1, &mut one, key("k"), Shared));
    assert!(try_lock(&locks, 2, &mut other, key("k"), Shared));
    assert!(!try_lock(&locks, 1, &mut one, key("k"), Exclusive), "the other holds a shared lock");
    locks.release(2, &mut other, 0);
    assert!(try_lock(&locks, 1, &mut one, key("k"), Exclusive));
    assert!(try_lock(&locks, 1, &mut one, range("a", "z"), Exclusive));
    assert!(!try_lock(&locks, 2, &mut other, key("k"), Shared));
}

#[test]
fn rollback_to_savepoint_keeps_earlier_locks() {
    let (locks, mut one, mut other) =
        (LockManager::new(), TxnLocks::default(), TxnLocks::default());
    assert!(try_lock(&locks, 1, &mut one, key("a"), Exclusive));
    assert!(try_lock(&locks, 1, &mut one, key("b"), Shared));
    let savepoint = one.next_number();
    assert!(try_lock(&locks, 1, &mut one, key("b"), Exclusive));
    assert!(try_lock(&locks, 1, &mut one, key("c"), Exclusive));
    locks.release(1, &mut one, savepoint);
    assert!(!try_lock(&locks, 2, &mut other, key("a"), Shared));
    assert!(try_lock(&locks, 2, &mut other, key("b"), Shared), "the upgrade was rolled back");
    assert!(!try_lock(&locks, 2, &mut other, key("b"), Exclusive));
    assert!(try_lock(&locks, 2, &mut other, key("c"), Exclusive));
}

/// A key that was locked several times is released by as many unlocks, and only then.
#[test]
fn unlock_releases_a_lock_after_as_many_requests() {
    let (locks, mut one, mut other) =
        (LockManager::new(), TxnLocks::default(), TxnLocks::default());
    let unlock =
        |one: &mut TxnLocks, name: &str| locks.unlock(FAMILY.family, 1, one, name.as_bytes());
    assert!(!unlock(&mut one, "k"), "it is not locked");
    assert!(try_lock(&locks, 1, &mut one, key("k"), Exclusive));
    assert!(try_lock(&locks, 1, &mut one, key("k"), Shared), "covered by the exclusive lock");
    assert!(!unlock(&mut one, "k") && one.count() == 1);
    assert!(!try_lock(&locks, 2, &mut other, key("k"), Shared));
    assert!(unlock(&mut one, "k") && one.count() == 0);
    assert!(try_lock(&locks, 2, &mut other, key("k"), Exclusive));
    assert!(!unlock(&mut one, "k"), "the lock of another owner stays");
    locks.release(2, &mut other, 0);
    // An upgrade is undone before the lock that it upgraded.
    assert!(try_lock(&locks, 1, &mut one, key("k"), Shared));
    assert!(try_lock(&locks, 1, &mut one, key("k"), Exclusive));
    assert!(unlock(&mut one, "k"));
    assert!(try_lock(&locks, 2, &mut other, key("k"), Shared));
    assert!(!try_lock(&locks, 2, &mut other, key("k"), Exclusive), "still locked shared");
    assert!(unlock(&mut one, "k") && !unlock(&mut one, "k"));
    locks.release(2, &mut other, 0);
    // A range is not unlocked by a key in it.
    assert!(try_lock(&locks, 1, &mut one, range("a", "z"), Exclusive));
    assert!(try_lock(&locks, 1, &mut one, key("k"), Exclusive));
    assert!(!unlock(&mut one, "k") && one.count() == 1);
    locks.release(1, &mut one, 0);
    assert_eq!(locks.count(), (0, 0));
}

/// A savepoint keeps its meaning when locks from before it are unlocked.
#[test]
fn savepoint_survives_an_unlock() {
    let (locks, mut one, mut other) =
        (LockManager::new(), TxnLocks::default(), TxnLocks::default());
    for name in ["a", "b", "c"] {
        assert!(try_lock(&locks, 1, &mut one, key(name), Exclusive));
    }
    let savepoint = one.next_number();
    assert!(locks.unlock(FAMILY.family, 1, &mut one, b"a"));
    assert!(locks.unlock(FAMILY.family, 1, &mut one, b"c"));
    assert!(try_lock(&locks, 1, &mut one, key("d"), Exclusive));
    assert!(try_lock(&locks, 1, &mut one, key("a"), Exclusive), "again, after the savepoint");
    locks.release(1, &mut one, savepoint);
    assert_eq!((one.count(), locks.count()), (1, (1, 0)));
    for (name, free) in [("a", true), ("b", false), ("c", true), ("d", true)] {
        assert_eq!(try_lock(&locks, 2, &mut other, key(name), Exclusive), free, "{name}");
    }
    locks.release(1, &mut one, 0);
    assert_eq!(one.count(), 0);
}

/// Unlocking one of many locks does not touch the others: a million of them take no noticeable
/// time, in any order.
#[test]
fn unlock_of_one_of_many_locks_is_cheap() {
    let (locks, mut mine) = (LockManager::new(), TxnLocks::default());
    let name = |n: u64| n.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes().to_vec();
    for n in 0..100_000 {
        assert!(try_lock(&locks, 1, &mut mine, KeyOrRange::Key(name(n)), Exclusive));
    }
    for n in (0..100_000).filter(|n| n % 3 != 0).chain((0..100_000).step_by(3)) {
        assert!(locks.unlock(FAMILY.family, 1, &mut mine, &name(n)));
    }
    assert_eq!((mine.count(), locks.count()), (0, (0, 0)));
}

/// A client of the stress test: locks a few keys in random order until it has succeeded three
/// times.
fn run_storm_client(
    (locks, inside): &(LockManager, std::sync::Mutex<[u32; 6]>),
    clock: &dyn Clock,
    (t, seed): (u64, u64),
) {
    let mut x = seed * 1000 + t + 1;
    let mut random = move |n: u64| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x % n
    };
    let (mut done, mut tries) = (0, 0u64);
    while done < 3 {
        tries += 1;
        assert!(tries < 5_000, "no progress");
        let (mut mine, owner) = (TxnLocks::default(), tries * 64 + t + 1);
        let mut acquired = Vec::new();
        let wanted: Vec<u64> = (0..3).map(|_| random(6)).collect();
        let all = wanted.iter().all(|k| {
            let target = KeyOrRange::Key(vec![*k as u8]);
            let limits = LockWaitLimits::new(clock, 50_000);
            let result = locks.lock(limits, FAMILY, owner, &mut mine, target.borrowed(), Exclusive);
            let is_expected = |e: &Error| matches!(e.kind(), ErrorKind::Conflict | ErrorKind::Busy);
            assert!(result.as_ref().err().is_none_or(is_expected), "unexpected error");
            if result.is_ok() && !acquired.contains(k) {
                acquired.push(*k);
                let mut inside = inside.lock().unwrap();
                inside[*k as usize] += 1;
                assert_eq!(inside[*k as usize], 1, "two owners hold it");
            }
            result.is_ok()
        });
        clock.sleep_us(random(20));
        acquired.iter().for_each(|k| inside.lock().unwrap()[*k as usize] -= 1);
        locks.release(owner, &mut mine, 0);
        if all {
            done += 1;
        } else {
            clock.sleep_us(random(2_000));
        }
    }
}

/// 64 threads in the seeded scheduler: all of them terminate and release all locks.
#[test]
fn deadlock_storm_terminates_simulated() {
    for seed in 1..=6 {
        SimWorld::new(seed).run(SimDisk::new(seed), |env| {
            let shared = Arc::new((LockManager::new(), std::sync::Mutex::default()));
            let threads: Vec<_> = (0..64u64)
                .map(|t| {
                    let (shared, clock) = (Arc::clone(&shared), Arc::clone(&env.clock));
                    env.spawn
                        .spawn(
                            "locks",
                            Box::new(move || run_storm_client(&shared, &*clock, (t, seed))),
                        )
                        .unwrap()
                })
                .collect();
            threads.into_iter().for_each(|t| t.join().unwrap());
            assert_eq!(shared.0.count(), (0, 0));
        });
    }
}

/// Like `deadlock_storm_terminates_simulated`, with threads of the operating system.
#[test]
fn deadlock_storm_terminates_on_real_threads() {
    let shared = (LockManager::new(), std::sync::Mutex::default());
    std::thread::scope(|s| {
        (0..64).for_each(|t| {
            let shared = &shared;
            s.spawn(move || run_storm_client(shared, &perigee_env::RealClock::default(), (t, 7)));
        });
    });
    assert_eq!(shared.0.count(), (0, 0));
}

/// Longer than any expected wait (an hour of simulated time, in which all other sleeps are short).
const LONG_WAIT_US: u64 = 3_600_000_000;

/// No wake-up is lost, over many schedules with waits, upgrades, timeouts, deadlocks, external
/// aborts, cancelled waits, unlocks and releases to a savepoint. Every switch of the scheduler is
/// at a lock of `env::sync`, the locks that this module uses, so these are the schedules that a
/// separate checker (shuttle) would try; it could not be used without a third kind of locks.
#[test]
fn no_wakeup_is_lost() {
    let (mut victims, mut aborts, mut timeouts, mut cancelled) = (0, 0, 0, 0);
    for seed in 1..=400 {
        let mut world = SimWorld::new(seed);
        world.lock_switch_probability(0.5);
        let counts = world.run(SimDisk::new(seed), |env| {
            let shared = Arc::new((LockManager::new(), std::sync::Mutex::new([0u32; 4])));
            let threads: Vec<_> = (0..4u64)
                .map(|t| {
                    let (shared, clock) = (Arc::clone(&shared), Arc::clone(&env.clock));
                    env.spawn
                        .spawn(
                            "locks",
                            Box::new(move || run_waiting_client(&shared, &*clock, t, seed)),
                        )
                        .unwrap()
                })
                .collect();
            threads.into_iter().for_each(|t| t.join().unwrap());
            assert_eq!(shared.0.count(), (0, 0), "seed {seed}");
            assert!(
                env.clock.monotonic_us() < LONG_WAIT_US,
                "seed {seed}: a waiting request was not woken"
            );
            *shared.1.lock().unwrap()
        });
        (victims, aborts, timeouts, cancelled) =
            (victims + counts[0], aborts + counts[1], timeouts + counts[2], cancelled + counts[3]);
    }
    let counts = [victims, aborts, timeouts, cancelled];
    assert!(counts.iter().all(|n| *n > 50), "{counts:?}");
}

/// Counts conflicts, external aborts, timeouts and cancelled waits.
fn run_waiting_client(
    (locks, counts): &(LockManager, std::sync::Mutex<[u32; 4]>),
    clock: &dyn Clock,
    t: u64,
    seed: u64,
) {
    let mut x = seed * 77 + t + 1;
    let mut random = move |n: u64| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x % n
    };
    for round in 0..4 {
        let (mut mine, owner) = (TxnLocks::default(), round * 4 + t + 1);
        let mut savepoint = 0;
        for _ in 0..3 {
            let modes = [Shared, Shared, Exclusive, Insert, Gap];
            let (mode, timeout_us) =
                (modes[random(5) as usize], [LONG_WAIT_US, LONG_WAIT_US, 5][random(3) as usize]);
            let target =
                if random(5) == 0 { range("a", "c") } else { key(["a", "b"][random(2) as usize]) };
            let limits = LockWaitLimits::new(clock, timeout_us);
            let result = locks.lock(limits, FAMILY, owner, &mut mine, target.borrowed(), mode);
            match result.map_err(|e| e.kind()) {
                Ok(()) => {}
                Err(ErrorKind::Busy) => {
                    assert_eq!(timeout_us, 5, "seed {seed}: it waited too long");
                    counts.lock().unwrap()[2] += 1;
                }
                // The transaction goes on.
                Err(ErrorKind::Interrupted) => counts.lock().unwrap()[3] += 1,
                Err(kind) => {
                    assert_eq!(kind, ErrorKind::Conflict);
                    counts.lock().unwrap()[0] += 1;
                    break;
                }
            }
            match random(9) {
                0 => savepoint = mine.next_number(),
                1 => locks.release(owner, &mut mine, savepoint),
                2 => {
                    // May abort a waiting request of any owner.
                    locks.abort_waits(round * 4 + random(4) + 1);
                    counts.lock().unwrap()[1] += 1;
                }
                3 => {
                    locks.cancel_wait(round * 4 + random(4) + 1);
                }
                4 | 5 => {
                    let name = ["a", "b"][random(2) as usize];
                    locks.unlock(FAMILY.family, owner, &mut mine, name.as_bytes());
                }
                _ => clock.sleep_us(random(8)),
            }
        }
        locks.release(owner, &mut mine, 0);
    }
}

/// An exclusive lock becomes one for an insert in place, and the insert is undone alone.
#[test]
fn exclusive_lock_becomes_an_insert_lock_in_place() {
    let (locks, mut one, mut other) =
        (LockManager::new(), TxnLocks::default(), TxnLocks::default());
    assert!(try_lock(&locks, 2, &mut other, range("a", "z"), Gap));
    assert!(try_lock(&locks, 1, &mut one, key("k"), Exclusive));
    assert!(!try_lock(&locks, 1, &mut one, key("k"), Insert), "others have locked the gap");
    locks.release(2, &mut other, 0);
    let savepoint = one.next_number();
    for undo in 0..2 {
        assert!(try_lock(&locks, 1, &mut one, key("k"), Insert));
        assert!(try_lock(&locks, 1, &mut one, key("k"), Shared), "covered");
        assert_eq!((one.count(), locks.count()), (1, (1, 0)), "one lock");
        assert!(!try_lock(&locks, 2, &mut other, range("a", "z"), Gap));
        assert_eq!(locks.locks_of(1, &one), [(FAMILY.family, key("k"), Insert)]);
        if undo == 0 {
            locks.release(1, &mut one, savepoint);
        } else {
            assert!(!locks.unlock(FAMILY.family, 1, &mut one, b"k"), "requested twice");
            assert!(locks.unlock(FAMILY.family, 1, &mut one, b"k"));
        }
        assert_eq!(locks.locks_of(1, &one), [(FAMILY.family, key("k"), Exclusive)]);
        assert!(try_lock(&locks, 2, &mut other, range("a", "z"), Gap));
        assert!(!try_lock(&locks, 2, &mut other, key("k"), Shared));
        locks.release(2, &mut other, 0);
    }
    assert!(try_lock(&locks, 1, &mut one, key("k"), Insert));
    locks.release(1, &mut one, 0);
    assert_eq!((one.count(), locks.count()), (0, (0, 0)));
    assert!(try_lock(&locks, 2, &mut other, range("a", "z"), Gap));
}

/// Random locks on keys and ranges, with one at a time, agree with the compatibility table.
#[test]
fn random_locks_agree_with_a_list_of_all_locks() {
    let mut x = 5u64;
    let mut random = move |n: u64| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x % n
    };
    let locks = LockManager::new();
    let mut mine: Vec<TxnLocks> = (0..4).map(|_| TxnLocks::default()).collect();
    let mut all: Vec<Vec<(u64, KeyOrRange, LockMode)>> = vec![Vec::new(); 4];
    let name = |n: u64| format!("{n:03}");
    for _ in 0..20_000 {
        let at = random(4) as usize;
        let owner = at as u64 + 1;
        if random(15) == 0 {
            let next = mine[at].next_number();
            let from = next - random(next.min(9) + 1);
            locks.release(owner, &mut mine[at], from);
            all[at].retain(|(number, ..)| *number < from);
            continue;
        }
        let (from, longest) = (random(300), [3, 3, 3, 100][random(4) as usize]);
        let target = match random(3) {
            0 => range(&name(from), &name(from + 1 + random(longest))),
            _ => key(&name(from)),
        };
        let mode = [Shared, Exclusive, Gap, Insert, Gap, Insert][random(6) as usize];
        let is_free = all.iter().enumerate().all(|(other, held)| {
            other == at
                || held.iter().all(|(_, t, m)| {
                    !lock_mode::conflicts(*m, mode)
                        || !t.borrowed().overlaps(FAMILY.comparator, target.borrowed())
                })
        });
        let number = mine[at].next_number();
        let granted = try_lock(&locks, owner, &mut mine[at], target.clone(), mode);
        assert_eq!(granted, is_free, "{owner} {target:?} {mode}");
        if mine[at].next_number() > number {
            all[at].push((number, target, mode));
        }
    }
    for (at, mine) in mine.iter_mut().enumerate() {
        locks.release(at as u64 + 1, mine, 0);
    }
    assert_eq!(locks.count(), (0, 0));
}

/// Thousands of range locks, and inserts between them, take no noticeable time.
#[test]
fn thousands_of_gap_locks_are_cheap() {
    let (locks, mut mine, mut other) =
        (LockManager::new(), TxnLocks::default(), TxnLocks::default());
    let name = |n: u64| format!("{n:08}");
    for n in 0..20_000 {
        let at = n * 7919 % 20_000 * 10;
        assert!(try_lock(&locks, 1, &mut mine, range(&name(at), &name(at + 5)), Gap));
        assert!(try_lock(&locks, 1, &mut mine, key(&name(at + 5)), Insert));
        assert!(try_lock(&locks, 2, &mut other, key(&name(at + 7)), Insert), "between the gaps");
        assert!(!try_lock(&locks, 2, &mut other, key(&name(at + 3)), Insert), "in a gap");
    }
    assert!(!try_lock(&locks, 2, &mut other, range(&name(10), &name(19)), Gap));
    locks.release(1, &mut mine, 0);
    assert!(try_lock(&locks, 2, &mut other, range(&name(10), &name(17)), Gap));
    locks.release(2, &mut other, 0);
    assert_eq!(locks.count(), (0, 0));
}

/// Records the reports.
#[derive(Default)]
struct ListenerLog {
    waits: std::sync::Mutex<Vec<(u64, Vec<u64>)>>,
    deadlocks: std::sync::Mutex<Vec<Deadlock>>,
}

impl LockListener for ListenerLog {
    fn wait_began(&self, waiting: u64, blocking: &[u64]) {
        self.waits.lock().unwrap().push((waiting, blocking.to_vec()));
    }
    fn deadlock_resolved(&self, deadlock: &Deadlock) {
        self.deadlocks.lock().unwrap().push(deadlock.clone());
    }
}

/// Waits, who blocks them and deadlocks are reported, also if a wait gets one more blocker later.
#[test]
fn waits_and_deadlocks_are_reported() {
    SimWorld::new(3).run(SimDisk::new(3), |env| {
        let (locks, log) = (Arc::new(LockManager::new()), Arc::new(ListenerLog::default()));
        assert!(locks.set_listener(Arc::clone(&log) as _));
        let (mut one, mut two, mut three) =
            (TxnLocks::default(), TxnLocks::default(), TxnLocks::default());
        assert!(try_lock(&locks, 1, &mut one, key("a"), Shared));
        assert!(try_lock(&locks, 2, &mut two, range("a", "c"), Gap));
        assert!(try_lock(&locks, 3, &mut three, key("b"), Exclusive));
        let start = |owner: LockOwner, mut mine: TxnLocks, name: &'static str| {
            let (locks, clock) = (Arc::clone(&locks), Arc::clone(&env.clock));
            let work = move || {
                let limits = LockWaitLimits::new(&*clock, LONG_WAIT_US);
                let target = KeyOrRangeRef::Key(name.as_bytes());
                let _ = locks.lock(limits, FAMILY, owner, &mut mine, target, Exclusive);
                locks.release(owner, &mut mine, 0);
            };
            env.spawn.spawn("locks", Box::new(work)).unwrap()
        };
        let third = start(3, three, "a");
        while locks.lock_waits(&*env.clock).is_empty() {
            env.clock.sleep_us(1);
        }
        let wait = locks.lock_waits(&*env.clock).remove(0);
        assert_eq!((wait.waiting, &wait.blocking[..], &wait.key[..]), (3, &[1][..], &b"a"[..]));
        assert_eq!((wait.family.as_str(), wait.mode, wait.range_end), ("f", Exclusive, None));
        // An owner with a gap lock there gets a shared lock before the request that waits.
        assert!(try_lock(&locks, 2, &mut two, key("a"), Shared));
        assert_eq!(*log.waits.lock().unwrap(), [(3, vec![1]), (3, vec![2])]);
        assert_eq!(locks.lock_counts(), [(1, 1), (2, 2), (3, 1)]);
        let first = start(1, one, "b");
        third.join().unwrap();
        first.join().unwrap();
        let deadlocks = log.deadlocks.lock().unwrap();
        assert_eq!((deadlocks.len(), deadlocks[0].victim), (1, 3));
        let waits = &deadlocks[0].waits;
        assert_eq!((waits[0].waiting, waits[1].waiting, waits.len()), (1, 3, 2));
        assert_eq!((&waits[0].key[..], &waits[1].key[..]), (&b"b"[..], &b"a"[..]));
        locks.release(2, &mut two, 0);
        assert_eq!(locks.count(), (0, 0));
    });
}
