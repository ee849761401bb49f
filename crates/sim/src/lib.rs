//! L-dev: drivers that try to make Perigee lose, invent or damage a byte. Uses the public API and
//! the simulated environment only, and no internals of the engine.
//!
//! The module order is the dependency order.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod bank;
pub mod read_only_open;
pub mod bugs;
pub mod kill_child;
pub mod concurrent;
pub mod contents;
pub mod crash;
pub mod driver;
pub mod engine_target;
pub mod faults;
pub mod compaction_filter;
pub mod flips;
pub mod feed_consumer;
pub mod foreign_directory;
pub mod history;
pub mod commit_hooks;
pub mod image;
pub mod family_incarnations;
pub mod isolation;
pub mod kill;
pub mod ledger;
pub mod loss_check;
pub mod model;
pub mod oracle;
pub mod comparators;
pub mod history_checker;
pub mod prepared;
pub mod recovery;
pub mod rng;
pub mod runner;
pub mod safety;
pub mod session;
pub mod settings;
pub mod table_commits;
pub mod faulty_oracle;
