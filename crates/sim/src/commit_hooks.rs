//! Commit hooks under concurrency, a part of `perigee-sim safety`. A hook runs on the committing
//! thread before the commit returns, in commit order. A thread that holds a lock while it commits
//! to a column family without a hook does not wait for a hook that needs this lock.

use crate::engine_target::PATH;
use crate::rng::{Rng, mix};
use crate::runner::Case;
use perigee::env::{Env, Mutex};
use perigee::{Db, Durability, Options, WriteOptions};
use perigee_env::fs::memory::SimDisk;
use perigee_env::sim::SimWorld;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::{ThreadId, current};

const WRITERS: usize = 3;
const COMMITS_PER_WRITER: u64 = 6;

/// Hook calls in order: column family, sequence number of the commit, thread.
type HookCalls = Arc<std::sync::Mutex<Vec<(&'static str, u64, ThreadId)>>>;

/// Runs writers of two column families whose hooks take a lock and sometimes commit, beside a
/// thread that commits to a third column family while it holds this lock.
pub fn hook_threads_case(case: &Case) -> Result<(), String> {
    let mut rng = Rng::new(mix(case.case_seed(), 351));
    let disk = SimDisk::new(rng.next());
    SimWorld::new(rng.next()).run(disk, |env| {
        let db = Db::open(PATH, Options::in_env(env.clone())).map_err(|e| e.to_string())?;
        let done = run_history(case, &env, &db, &mut rng);
        // Hooks hold column-family handles, and a simulated environment ends only when its threads
        // do.
        let closed = db.close().map_err(|e| e.to_string());
        done.and(closed)
    })
}

fn run_history(case: &Case, env: &Env, db: &Db, rng: &mut Rng) -> Result<(), String> {
    let (lock, seen, nested) =
        (Arc::new(Mutex::new(())), HookCalls::default(), Arc::new(AtomicU64::new(0)));
    for name in ["a", "b", "quiet"] {
        db.create_family(name, Default::default()).map_err(|e| e.to_string())?;
    }
    for (name, other) in [("a", "b"), ("b", "a")] {
        let (lock, seen, nested) = (Arc::clone(&lock), Arc::clone(&seen), Arc::clone(&nested));
        let (family, other) = (db.family(name), db.family(other));
        let (Ok(family), Ok(other)) = (family, other) else {
            return Err("a column family is missing".into());
        };
        family.on_commit(move |event| {
            seen.lock().expect("no hook panics").push((
                name,
                event.commit_sequence(),
                current().id(),
            ));
            drop(lock.lock());
            // A few hook calls commit to the other hooked column family.
            if nested.fetch_add(1, Relaxed) % 3 == 0 {
                let _ = other.put("nested", "1");
            }
        });
    }
    let wrong: Arc<std::sync::Mutex<Option<String>>> = Arc::default();
    let mut threads = Vec::new();
    for writer in 0..WRITERS {
        let (db, seen, wrong, seed) =
            (db.clone(), Arc::clone(&seen), Arc::clone(&wrong), rng.next());
        let body = move || {
            if let Err(e) = run_writer(&db, &seen, writer, &mut Rng::new(seed)) {
                wrong.lock().expect("no thread panics").get_or_insert(e);
            }
        };
        threads.push(env.spawn.spawn("writer", Box::new(body)).map_err(|e| e.to_string())?);
    }
    let quiet = db.family("quiet").map_err(|e| e.to_string())?;
    let me = current().id();
    for i in 0..COMMITS_PER_WRITER {
        let held = lock.lock();
        let durability = [Durability::None, Durability::Full][(i % 2) as usize];
        let options = WriteOptions::new().durability(durability);
        quiet.put_with("k", "v", options).map_err(|e| e.to_string())?;
        drop(held);
    }
    threads.into_iter().try_for_each(|thread| thread.join())?;
    if let Some(e) = wrong.lock().expect("no thread panics").take() {
        return Err(e);
    }
    let seen = seen.lock().expect("no hook panics").clone();
    if seen.iter().any(|(.., thread)| *thread == me) {
        return Err(
            "a hook ran on a thread that committed to a column family without a hook".into()
        );
    }
    for name in ["a", "b"] {
        let numbers: Vec<u64> = seen.iter().filter(|s| s.0 == name).map(|s| s.1).collect();
        if !numbers.is_sorted() {
            return Err(format!("the hook of {name} ran out of commit order: {numbers:?}"));
        }
    }
    case.count("hooks", seen.len() as u64);
    Ok(())
}

/// Commits batches. When a commit returns, each of its hooks must have run on this thread.
fn run_writer(db: &Db, seen: &HookCalls, writer: usize, rng: &mut Rng) -> Result<(), String> {
    let families = ["a", "b"].map(|name| db.family(name));
    for _ in 0..COMMITS_PER_WRITER {
        let both = rng.below(4) == 0;
        let at = rng.index(2);
        let mut batch = perigee::WriteBatch::new();
        for (i, family) in families.iter().enumerate() {
            let family = family.as_ref().map_err(ToString::to_string)?;
            if both || i == at {
                batch.put(family, format!("{writer}"), "v").map_err(|e| e.to_string())?;
            }
        }
        let durability = [Durability::None, Durability::Full][rng.index(2)];
        let options = WriteOptions::new().durability(durability);
        let last = db.write_with(batch, options).map_err(|e| e.to_string())?;
        let first = last - u64::from(both);
        let me = current().id();
        let ran = seen
            .lock()
            .expect("no hook panics")
            .iter()
            .filter(|s| s.1 == first && s.2 == me)
            .count();
        if ran != 1 + usize::from(both) {
            return Err(format!(
                "commit {first} returned before its hooks had run on its thread: {ran} of {}",
                1 + usize::from(both)
            ));
        }
    }
    Ok(())
}
