//! Measures the speed of the simulation: thread switches, short simulations and I/O calls per
//! second. Run with `cargo run --profile proof -p perigeedb-env --example sim_speed`.
#![allow(clippy::unwrap_used)]

use perigee_env::fs::memory::{Crash, SimDisk};
use perigee_env::sim::{SimWorld, yield_now};
use perigee_env::{DirOpenMode, Env};
use std::path::Path;
use std::time::Instant;

fn two_threads_yield(env: &Env, times: u64) {
    let body = move || (0..times).for_each(|_| yield_now());
    let thread = env.spawn.spawn("other", Box::new(body)).unwrap();
    body();
    thread.join().unwrap();
}

fn four_writers(env: &Env, calls: u64) {
    let dir = env.fs.open_dir(Path::new("/db"), DirOpenMode::CreateIfMissing).unwrap();
    let threads: Vec<_> = (0..4)
        .map(|t| {
            let w = dir.create(&format!("{t}")).unwrap();
            let body = move || {
                for _ in 0..calls {
                    w.append(&[b"0123456789"]).unwrap();
                    w.sync().unwrap();
                }
            };
            env.spawn.spawn("writer", Box::new(body)).unwrap()
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    dir.sync().unwrap();
}

fn rate(what: &str, count: u64, run: impl FnOnce()) {
    let start = Instant::now();
    run();
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{what}: {:.0} per second, {:.2} us each",
        count as f64 / seconds,
        seconds * 1e6 / count as f64
    );
}

fn main() {
    let world = SimWorld::new(1);
    world.run(SimDisk::new(1), |env| two_threads_yield(&env, 10));
    rate("thread switches", 200_000, || {
        world.run(SimDisk::new(1), |env| two_threads_yield(&env, 100_000))
    });
    rate("simulations of 5 threads, 80 I/O calls", 2000, || {
        for seed in 0..2000 {
            let disk = SimDisk::new(seed);
            SimWorld::new(seed).run(disk.clone(), |env| four_writers(&env, 10));
            disk.crash_clone(seed, Crash::Power);
        }
    });
    let mut quiet = SimWorld::new(1);
    quiet.switch_probability(0.0);
    rate("I/O calls without a switch", 80_000, || {
        quiet.run(SimDisk::new(1), |env| four_writers(&env, 10_000));
    });
    rate("I/O calls, switch probability 1/3", 80_000, || {
        world.run(SimDisk::new(1), |env| four_writers(&env, 10_000));
    });
}
