//! L1: the only door to the world. Files, clock, randomness, threads and the locks that threads
//! wait on enter the engine here and nowhere else, each as a real and as a simulated twin, so that
//! the whole engine runs in a seeded simulation. This layer does not know what the bytes mean.
#![deny(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod clock;
pub mod rand;
pub mod spawn;
pub mod fork;
mod sched;
pub mod spin;
pub mod sync;
pub mod fs;
pub mod env;
pub mod sim;

pub use env::Env;
pub use fs::{Dir, DirLock, DirOpenMode, Fs, RandomAccessFile, WritableFile};
