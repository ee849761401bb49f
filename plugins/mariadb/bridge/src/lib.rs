//! The private C interface between the MariaDB storage engine (C++) and Perigee: implements
//! `plugins/mariadb/src/bridge.h`, which is its documentation.
//!
//! Layers, bottom-up: status codes and messages ([`status`]), entering and leaving calls ([`ffi`]),
//! the database with its threads and keys ([`engine`], `spawn`, [`keys`]), names and options of
//! tables (`registry`, [`table`]), and the calls by subject: [`txn`], [`two_phase`], [`read`],
//! [`load`], [`report`], [`locks`], [`levels`].
//!
//! Invariants: a panic never crosses into C++; it makes every later call on the database fail.
//! Nothing is formatted or allocated for a call that succeeds, beyond what the engine does.
//!
//! There is no global allocator in this crate and its dependencies: one that uses initial-exec
//! thread-local storage could not be loaded into a running server.
#![allow(unsafe_code)] // Needed at the C boundary; each block states its preconditions.
#![allow(clippy::missing_safety_doc)] // `bridge.h` states what pointers must be.

pub mod status;
pub mod ffi;
mod spawn;
pub mod keys;
mod registry;
pub mod engine;
pub mod table;
mod savepoints;
pub mod txn;
pub mod two_phase;
pub mod read;
pub mod load;
pub mod report;
pub mod levels;
pub mod locks;
