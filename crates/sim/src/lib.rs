//! L-dev: the drivers that try to make Perigee lose, invent or damage a byte. Uses the public API and the
//! simulated world only; looks into no room of the engine.
//!
//! The module order is the dependency order.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod rng;
pub mod history;
pub mod oracle;
pub mod toy;
pub mod driver;
pub mod runner;
pub mod ledger;
pub mod settings;
pub mod engine;
pub mod contents;
pub mod session;
pub mod concurrent;
pub mod model;
pub mod crash;
