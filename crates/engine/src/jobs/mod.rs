//! Background work: threads that pull flushes, compactions and log syncs, and give up when told.

pub mod flush;
pub mod compact;
mod worker;

pub use worker::{Workers, start};
