//! Who waits for whom, and that nobody waits for ever.

use super::*;
use perigee_base::cut::Cut;
use perigee_env::fs::memory::SimDisk;
use perigee_env::sim::World;
use std::sync::Arc;

const FAMILY: (FamilyId, &str, KeyOrder) = (FamilyId(1), "f", KeyOrder::Bytes);

fn key(name: &str) -> Place {
    Place::Key(name.as_bytes().to_vec())
}

fn between(from: &str, to: &str) -> Place {
    Place::Stretch(Cut::Before(from.as_bytes().to_vec()), Cut::Before(to.as_bytes().to_vec()))
}

/// Whether the lock is to be had at once.
fn gets(locks: &Locks, owner: Owner, mine: &mut Mine, place: Place, mode: LockMode) -> bool {
    let clock = perigee_env::clock::RealClock::default();
    locks.lock(&clock, FAMILY, (owner, mine), place, mode, 0).is_ok()
}

#[test]
fn the_table_of_who_waits_for_whom() {
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
        for (a, b) in [(key("k"), key("k")), (between("a", "z"), key("k")), (key("k"), between("a", "z"))] {
            let (locks, mut one, mut other) = (Locks::new(), Mine::default(), Mine::default());
            assert!(gets(&locks, 1, &mut one, a, held));
            assert_eq!(!gets(&locks, 2, &mut other, b, wanted), waits, "{held:?} {wanted:?}");
            assert!(gets(&locks, 2, &mut other, key("zz"), Exclusive), "elsewhere");
            locks.release(1, &mut one, 0);
            assert!(gets(&locks, 2, &mut other, key("k"), wanted));
            locks.release(2, &mut other, 0);
            assert_eq!(locks.count(), (0, 0));
        }
    }
}

#[test]
fn an_owner_never_waits_for_itself_and_upgrades() {
    let (locks, mut one, mut other) = (Locks::new(), Mine::default(), Mine::default());
    assert!(gets(&locks, 1, &mut one, key("k"), Shared));
    assert!(gets(&locks, 2, &mut other, key("k"), Shared));
    assert!(!gets(&locks, 1, &mut one, key("k"), Exclusive), "the other reads it");
    locks.release(2, &mut other, 0);
    assert!(gets(&locks, 1, &mut one, key("k"), Exclusive));
    assert!(gets(&locks, 1, &mut one, between("a", "z"), Exclusive));
    assert!(!gets(&locks, 2, &mut other, key("k"), Shared));
}

#[test]
fn a_savepoint_keeps_what_was_locked_before_it() {
    let (locks, mut one, mut other) = (Locks::new(), Mine::default(), Mine::default());
    assert!(gets(&locks, 1, &mut one, key("a"), Exclusive));
    assert!(gets(&locks, 1, &mut one, key("b"), Shared));
    let savepoint = one.count();
    assert!(gets(&locks, 1, &mut one, key("b"), Exclusive));
    assert!(gets(&locks, 1, &mut one, key("c"), Exclusive));
    locks.release(1, &mut one, savepoint);
    assert!(!gets(&locks, 2, &mut other, key("a"), Shared));
    assert!(gets(&locks, 2, &mut other, key("b"), Shared), "the upgrade is taken back");
    assert!(!gets(&locks, 2, &mut other, key("b"), Exclusive));
    assert!(gets(&locks, 2, &mut other, key("c"), Exclusive));
}

/// 64 threads lock the same few keys in random orders: all of them end, and nobody holds anything then.
#[test]
fn a_storm_of_deadlocks_ends() {
    for seed in 1..=6 {
        World::new(seed).run(SimDisk::new(seed), |env| {
            let (locks, inside) = (Arc::new(Locks::new()), Arc::new(std::sync::Mutex::new([0u32; 6])));
            let threads: Vec<_> = (0..64u64)
                .map(|t| {
                    let (locks, inside, clock) =
                        (Arc::clone(&locks), Arc::clone(&inside), Arc::clone(&env.clock));
                    let mut x = seed * 1000 + t + 1;
                    let mut random = move |n: u64| {
                        x ^= x << 13;
                        x ^= x >> 7;
                        x ^= x << 17;
                        x % n
                    };
                    let body = move || {
                        let (mut done, mut tries) = (0, 0u64);
                        while done < 3 {
                            tries += 1;
                            assert!(tries < 5_000, "nobody gets on");
                            let (mut mine, owner) = (Mine::default(), tries * 64 + t + 1);
                            let mut had = Vec::new();
                            let wanted: Vec<u64> = (0..3).map(|_| random(6)).collect();
                            let all = wanted.iter().all(|k| {
                                let place = Place::Key(vec![*k as u8]);
                                let got =
                                    locks.lock(&*clock, FAMILY, (owner, &mut mine), place, Exclusive, 50_000);
                                if got.is_ok() && !had.contains(k) {
                                    had.push(*k);
                                    let mut inside = inside.lock().unwrap();
                                    inside[*k as usize] += 1;
                                    assert_eq!(inside[*k as usize], 1, "two hold it");
                                }
                                got.is_ok()
                            });
                            clock.sleep_us(random(20));
                            had.iter().for_each(|k| inside.lock().unwrap()[*k as usize] -= 1);
                            locks.release(owner, &mut mine, 0);
                            if all {
                                done += 1;
                            } else {
                                clock.sleep_us(random(2_000));
                            }
                        }
                    };
                    env.spawn.spawn("locks", Box::new(body)).unwrap()
                })
                .collect();
            threads.into_iter().for_each(|t| t.join().unwrap());
            assert_eq!(locks.count(), (0, 0));
        });
    }
}
