//! The C library: the public API of TidesDB 9 on Perigee, so that programs and bindings that were
//! made for TidesDB run on it unchanged, and `perigee_*` for what that API lacks. No logic of its
//! own: what is decided here is only how C's words are said in ours.
//!
//! Layers, bottom-up: what both sides agree on ([`abi`], [`code`]), how a call enters and leaves
//! ([`border`], [`handle`], [`alloc`]), settings and names ([`config`], [`ini`], [`order`],
//! [`catalog`]), what handles lead to ([`state`]), and the calls by subject. Reference:
//! `docs/c-api.md`; headers: `include/tidesdb/`.
//!
//! `unsafe` stands at the border only: pointers that C gives are looked at once, in the call that
//! was given them.
#![allow(unsafe_code)] // The border to C is made of it; each block says what it relies on.
#![allow(clippy::missing_safety_doc)]
#![allow(clippy::not_unsafe_ptr_arg_deref)]

pub mod abi;
pub mod code;
mod log;
mod ffi;
mod handle;
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
