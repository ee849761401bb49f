//! The environment passed to `open`: file system, clock, randomness and threads.

use crate::clock::{Clock, RealClock};
use crate::fs::Fs;
use crate::fs::RealFs;
use crate::rand::{Rand, RealRand};
use crate::spawn::{RealSpawn, Spawn};
use std::sync::Arc;

/// All operating system services that the engine uses.
#[derive(Clone, Debug)]
pub struct Env {
    /// File system.
    pub fs: Arc<dyn Fs>,
    /// Clock.
    pub clock: Arc<dyn Clock>,
    /// Random number source.
    pub rand: Arc<dyn Rand>,
    /// Thread spawner.
    pub spawn: Arc<dyn Spawn>,
}

impl Env {
    /// Returns the environment of the real operating system.
    pub fn real() -> Env {
        Env {
            fs: Arc::new(RealFs::new()),
            clock: Arc::new(RealClock::new()),
            rand: Arc::new(RealRand::new()),
            spawn: Arc::new(RealSpawn),
        }
    }
}
