//! Threads: spawning, joining and running work in parallel.

use perigee_base::{Error, Result};
use std::any::Any;
use std::fmt::Debug;

/// Starts threads.
pub trait Spawn: Send + Sync + Debug {
    /// Runs `body` on a new thread called `name`.
    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> Result<Box<dyn Join>>;
    /// Runs `work` on this thread and possibly on others at the same time, on at most `threads` in
    /// total. Returns when all calls have returned.
    fn run_parallel(&self, _threads: usize, work: &(dyn Fn() + Sync)) {
        work();
    }
    /// Returns the number of threads that can run in parallel, if known; else 1.
    fn cores(&self) -> usize {
        1
    }
}

/// Returns true if the current thread is unwinding from a panic.
pub fn panicking() -> bool {
    std::thread::panicking()
}

/// A started thread.
pub trait Join: Send {
    /// Waits for the thread to finish. Returns its panic message as `Err` if it panicked.
    fn join(self: Box<Self>) -> std::result::Result<(), String>;
}

/// Threads of the operating system.
#[derive(Debug, Default)]
pub struct RealSpawn;

struct RealJoin(std::thread::JoinHandle<()>);

impl Spawn for RealSpawn {
    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> Result<Box<dyn Join>> {
        check_name(name)?;
        let thread = std::thread::Builder::new().name(name.to_owned());
        let handle =
            thread.spawn(body).map_err(|e| Error::io(format_args!("start thread {name}"), &e))?;
        Ok(Box::new(RealJoin(handle)))
    }
    fn run_parallel(&self, threads: usize, work: &(dyn Fn() + Sync)) {
        std::thread::scope(|s| {
            for _ in 1..threads {
                // Fewer threads only take longer.
                if std::thread::Builder::new().spawn_scoped(s, work).is_err() {
                    break;
                }
            }
            work();
        });
    }
    fn cores(&self) -> usize {
        std::thread::available_parallelism().map_or(1, usize::from)
    }
}

impl Join for RealJoin {
    fn join(self: Box<Self>) -> std::result::Result<(), String> {
        self.0.join().map_err(|panic| panic_message(&*panic))
    }
}

/// Refuses a thread name with a NUL byte, on which the standard library panics.
pub(crate) fn check_name(name: &str) -> Result<()> {
    if name.contains('\0') {
        return Err(Error::invalid("a thread name contains a NUL byte"));
    }
    Ok(())
}

/// Returns the message of a panic.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> String {
    if let Some(s) = panic.downcast_ref::<&'static str>() {
        (*s).to_owned()
    } else if let Some(s) = panic.downcast_ref::<String>() {
        s.clone()
    } else {
        "panic without a message".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_parallel_returns_after_all_work() {
        let done = std::sync::atomic::AtomicUsize::new(0);
        RealSpawn.run_parallel(3, &|| {
            done.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        });
        assert_eq!(done.into_inner(), 3);
        assert!(RealSpawn.cores() > 0);
    }

    #[test]
    fn join_returns_the_panic_message() {
        let ok = RealSpawn.spawn("fine", Box::new(|| ())).unwrap();
        assert_eq!(ok.join(), Ok(()));
        let bad = RealSpawn
            .spawn("bad", Box::new(|| std::panic::resume_unwind(Box::new("no".to_owned()))))
            .unwrap();
        assert_eq!(bad.join(), Err("no".to_owned()));
        assert!(RealSpawn.spawn("a\0b", Box::new(|| ())).is_err());
    }
}
