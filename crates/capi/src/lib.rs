//! The C library: implements the public API of TidesDB 9 on Perigee, so that programs and bindings
//! written for TidesDB run unchanged, and `perigee_*` functions for features beyond that API. It
//! contains no engine logic: it only translates between C and the Rust interface.
//!
//! Layers, bottom-up: shared definitions ([`abi`], [`code`]), entering and leaving calls ([`ffi`],
//! [`alloc`], the handles of `perigee_c_boundary`), settings and names ([`config`], [`ini`],
//! [`comparator`], [`catalog`]), the objects behind handles ([`state`]), and the calls by subject.
//! Reference: `docs/c-api.md`; headers: `include/tidesdb/`.
//!
//! `unsafe` is used at the C boundary only: a pointer from C is validated once, in the call that
//! received it.
#![allow(unsafe_code)] // Needed at the C boundary; each block states its preconditions.
#![allow(clippy::missing_safety_doc)]
#![allow(clippy::not_unsafe_ptr_arg_deref)]

pub mod abi;
pub mod code;
mod log;
mod ffi;
mod alloc;
mod ini;
mod comparator;
mod config;
mod catalog;
mod commit_hook;
mod state;
mod log_write;
pub mod database;
pub mod families;
pub mod txn;
pub mod iter;
pub mod maintenance;
pub mod stats;
pub mod xxhash;
pub mod ext;
