//! The C library of Perigee: `libperigee`, declared in `include/perigee.h`, which documents every
//! function. It contains no engine logic: it only translates between C and the Rust interface.
//!
//! Layers, bottom-up: entering and leaving calls ([`boundary`], [`error`]), memory for the caller
//! ([`memory`]), key ranges ([`range`]), options and callbacks, and the functions by subject.
//!
//! `unsafe` is used at the C boundary only. The parameter types of [`boundary`] can be created by C
//! callers alone, who guarantee what the header requires; so the functions themselves are safe.
#![allow(unsafe_code)] // Needed at the C boundary; each block states its preconditions.
#![allow(missing_docs)] // The functions and structures are documented in `perigee.h`.

pub mod error;
pub mod boundary;
pub mod memory;
pub mod range;
mod callbacks;
pub mod options;
pub mod database;
pub mod read;
pub mod write;
pub mod batch;
pub mod iterator;
pub mod history;
pub mod transaction;
pub mod transaction_access;
pub mod two_phase;
pub mod stream;
pub mod load;
pub mod feed;
pub mod maintenance;
