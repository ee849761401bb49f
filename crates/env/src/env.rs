//! The bundle that is passed to `open`.

use crate::clock::Clock;
use crate::fs::Fs;
use crate::rand::Rand;
use crate::spawn::Spawn;
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
        unimplemented!("stub until the real twins are merged")
    }
}
