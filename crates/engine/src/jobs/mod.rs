//! Background work: threads that pull flushes, compactions, log syncs and the scrub, and give up when told.

pub mod pace;
mod group;
mod logs;
pub mod flush;
pub mod due;
pub mod compact;
mod scrub;
mod watermark;
mod worker;

pub use perigee_tree::compact::pick::manual::Span;
pub use worker::{Workers, start};
