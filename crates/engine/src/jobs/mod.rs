//! Background work: threads that pull flushes, compactions and log syncs, and give up when told.

mod pace;
pub mod flush;
pub mod compact;
mod worker;

pub use perigee_tree::compact::pick::manual::Span;
pub use worker::{Workers, start};
