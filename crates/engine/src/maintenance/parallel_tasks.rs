//! Runs the tasks of one job on several threads.

use crate::runtime::Runtime;
use perigee_base::Result;
use std::sync::{Mutex, OnceLock, PoisonError};

/// Runs `act` for every task on up to `threads` threads, one of them the caller's; starts no
/// further task after an error.
pub fn run_tasks<P: Send>(
    runtime: &Runtime,
    group: &mut [P],
    threads: usize,
    act: impl Fn(&mut P) -> Result<()> + Sync,
) -> Result<()> {
    let (threads, rest, failed) =
        (threads.min(group.len()), Mutex::new(group.iter_mut()), OnceLock::new());
    let next = || rest.lock().unwrap_or_else(PoisonError::into_inner).next();
    runtime.env.spawn.run_parallel(threads, &|| {
        while failed.get().is_none() {
            let Some(task) = next() else { return };
            if let Err(e) = act(task) {
                let _ = failed.set(e);
            }
        }
    });
    check!(
        failed.get().is_some() || next().is_none(),
        "every task of a group was run, unless one has failed",
        threads
    );
    failed.into_inner().map_or(Ok(()), Err)
}
