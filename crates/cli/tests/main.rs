//! The integration tests: one program links faster than fourteen.
//! The others have a program of their own, see `Cargo.toml`.
#![allow(clippy::unwrap_used)]

mod common;

mod backup;
mod demo;
mod dump;
mod entries;
mod errors;
mod import_export;
mod import_sqlite;
mod import_tables;
mod inspect;
mod load;
mod manuals;
mod options;
mod read_only;
mod table_round_trips;
