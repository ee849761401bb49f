//! The native module of the npm package `perigeedb`: classes over the public API of the crate
//! `perigee`, for the JavaScript files in `lib/`, which are its only callers. The public classes,
//! their argument checks and the queue of writes are JavaScript.
//!
//! Conventions:
//! - A function with the parameter `mode` runs at once and returns its result ([`task::SYNC`]), or
//!   on a thread of libuv's pool and returns a promise ([`task::POOL`]).
//! - Lists of keys, entries and operations are passed in one buffer (module [`packed`]): a call
//!   of Node-API costs as much as decoding several entries.
//! - Errors are `Error` objects with a `code` such as `PERIGEE_CONFLICT` (module [`error`]).
//! - Every object that JavaScript holds keeps the database open until it is collected.

mod error;
mod packed;
mod value;
mod task;
mod options;
mod state;
mod operations;
mod iterator;
mod view;
mod transaction;
mod snapshot;
mod backup;
mod database;
