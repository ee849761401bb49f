//! L1: all access to the operating system. Files, clock, randomness, threads and the locks that
//! threads wait on are defined here and nowhere else, each with a real and a simulated
//! implementation, so that the whole engine runs in a seeded simulation. Nothing here interprets
//! the contents of files.
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
