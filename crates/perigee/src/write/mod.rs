//! Writes: batches, expiry times, range deletes, merges, bulk loads and tables for ingestion.

pub mod batch;
pub mod ttl;
pub mod range_delete;
pub mod merge;
pub mod bulk_load;
pub mod table_writer;
