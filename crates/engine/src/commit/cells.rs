//! The atomics and the lock of the hand-over, by one name: its model test (`tests/handover_loom.rs`) compiles that room with
//! others, which try every interleaving and every allowed reordering.

pub use perigee_env::spin;
pub use std::sync::Mutex;
pub use std::sync::atomic::AtomicU32;
