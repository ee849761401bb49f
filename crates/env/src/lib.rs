//! L1: all access to the operating system. Files, clock, randomness, threads and the locks that
//! threads wait on are defined here and nowhere else, each with a real and a simulated
//! implementation, so that the whole engine runs in a seeded simulation. Nothing here interprets
//! the contents of files.
#![deny(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

#[macro_use(check, check_slow)]
extern crate perigee_base;
mod limits;
mod clock;
mod rand;
mod spawn;
mod fork;
#[cfg(feature = "sim")]
mod sched;
mod sim_hooks;
mod spin;
mod sync;
pub mod fs;
mod env;
pub mod sim;

// The environment that a database is opened in, and its interfaces with their real
// implementations; the simulated ones are in `sim` and `fs::memory` (feature `sim`).
pub use clock::{Clock, RealClock};
pub use env::Env;
pub use fs::{Dir, DirLock, DirOpenMode, Fs, RandomAccessFile, WritableFile};
pub use rand::{Rand, RealRand, SeededRng};
pub use spawn::{Join, RealSpawn, Spawn, panicking};

/// Encryption at rest.
pub mod encryption {
    pub use crate::fs::encrypted::{
        EncryptedFs, EncryptionKey, KEY_BYTES, KeyId, KeyProvider, KeyRing, fuzz_header,
    };
}

// Locks that the simulation schedules, short busy waits, and detection of a fork.
pub use fork::{ForkGuard, fork_count, forked_error};
pub use spin::spin_until;
pub use sync::{Condvar, Mutex, MutexGuard};

#[cfg(test)]
mod invariant_tests;
