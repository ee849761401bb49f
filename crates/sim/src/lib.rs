//! L-dev: the drivers that try to make Perigee lose, invent or damage a byte. Uses the public API and the
//! simulated world only; looks into no room of the engine.
//!
//! The module order is the dependency order.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod bank;
pub mod beside;
pub mod bugs;
pub mod child;
pub mod concurrent;
pub mod contents;
pub mod crash;
pub mod driver;
pub mod engine;
pub mod faults;
pub mod filtered;
pub mod flips;
pub mod follower;
pub mod foreign;
pub mod history;
pub mod hooks;
pub mod image;
pub mod incarnations;
pub mod isolation;
pub mod kill;
pub mod ledger;
pub mod loss_check;
pub mod model;
pub mod oracle;
pub mod orders;
pub mod past;
pub mod prepared;
pub mod recovery;
pub mod rng;
pub mod runner;
pub mod safekeep;
pub mod session;
pub mod settings;
pub mod toy;
