//! The bundle that is passed to `open`.

use crate::clock::{Clock, RealClock};
use crate::fs::Fs;
use crate::fs::posix::PosixFs;
use crate::rand::{Rand, RealRand};
use crate::spawn::{RealSpawn, Spawn};
use std::sync::Arc;

/// Everything the engine may ask of the world.
#[derive(Clone, Debug)]
pub struct Env {
    /// Files.
    pub fs: Arc<dyn Fs>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub rand: Arc<dyn Rand>,
    /// Threads.
    pub spawn: Arc<dyn Spawn>,
}

impl Env {
    /// The real world.
    pub fn real() -> Env {
        Env {
            fs: Arc::new(PosixFs::new()),
            clock: Arc::new(RealClock::new()),
            rand: Arc::new(RealRand::new()),
            spawn: Arc::new(RealSpawn),
        }
    }
}
