//! Threads.

use perigee_base::Result;
use std::fmt::Debug;

/// Starts threads.
pub trait Spawn: Send + Sync + Debug {
    /// Runs `body` on a new thread called `name`.
    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> Result<Box<dyn Join>>;
}

/// A started thread.
pub trait Join: Send {
    /// Waits for its end. `Err` holds the panic message if it panicked.
    fn join(self: Box<Self>) -> std::result::Result<(), String>;
}
