//! Threads of the engine inside the server: all signals are blocked in them, because the server
//! has threads of its own for signals.

use perigee::Result;
use perigee::env::{Join, RealSpawn, Spawn};

/// Starts threads with all signals blocked.
#[derive(Debug)]
pub struct ServerSpawn {
    /// Number of cores that the engine may use for compactions; 0: those of the machine.
    pub cores: usize,
}

/// Blocks all signals in the calling thread, except those of faults.
fn block_signals() {
    // SAFETY: `set` is initialized by `sigfillset` before it is read.
    unsafe {
        let mut set = std::mem::zeroed::<libc::sigset_t>();
        libc::sigfillset(&raw mut set);
        for fault in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGABRT] {
            libc::sigdelset(&raw mut set, fault);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut());
    }
}

impl Spawn for ServerSpawn {
    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> Result<Box<dyn Join>> {
        let body = Box::new(move || {
            block_signals();
            body();
        });
        RealSpawn.spawn(name, body)
    }
    fn run_parallel(&self, threads: usize, work: &(dyn Fn() + Sync)) {
        let caller = std::thread::current().id();
        RealSpawn.run_parallel(threads, &|| {
            if std::thread::current().id() != caller {
                block_signals();
            }
            work();
        });
    }
    fn cores(&self) -> usize {
        if self.cores > 0 { self.cores } else { RealSpawn.cores() }
    }
}
