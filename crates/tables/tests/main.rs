//! The integration tests: one program links faster than twelve.
//! The others have a program of their own, see `Cargo.toml`.
#![allow(clippy::unwrap_used)]

mod common;

mod disk_faults;
mod fuzz_smoke;
mod index_build_threads;
mod indexes;
mod row_cache;
mod row_expiry;
mod row_feeds;
mod schema_changes;
mod staged_tables;
mod table_loads;
mod table_model;
mod table_transactions;
mod typed_tables;
