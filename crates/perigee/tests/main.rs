//! The integration tests that can share a process: one program links faster than sixty.
//! The others have a program of their own, see `Cargo.toml`.
#![allow(clippy::unwrap_used)]

mod common;
#[path = "common/manual_clock.rs"]
mod manual_clock;
#[path = "common/prepared.rs"]
mod prepared;
#[path = "common/sources.rs"]
mod sources;

mod api_ergonomics;
mod automatic_compaction;
mod basics;
mod bulk_load;
mod change_feed;
mod checkpoint_backup;
mod close;
mod commit_hook_threads;
mod compaction_filter;
mod combined_operands;
mod comparator_model;
mod comparators;
mod compression;
mod cursors;
mod empty_ranges;
mod empty_ranges_rewrites;
mod encryption;
mod estimates;
mod explain;
mod families;
mod foreign_directories;
mod format_versions;
mod hermitage;
mod ingest;
mod large_transactions;
mod large_values;
mod load_and_delete_edge_cases;
mod log_file;
mod log_listener;
mod long_scans;
mod maintenance;
mod merge_edge_cases;
mod merge_operators;
mod merge_repair;
mod multi_get;
mod prepared_edge_cases;
mod prepared_large_transactions;
mod prepared_transactions;
mod range_delete;
mod readable;
mod readonly;
mod recovery_disk_space;
mod repair;
mod repair_and_log_segments;
mod resource_limits;
mod row_cache;
mod row_cache_reopen;
mod scrub;
mod snapshot_history;
mod statistics;
mod stats_fields;
mod sync_up_to;
mod test_files;
mod transaction_edge_cases;
mod transactions;
mod ttl;
mod txn_snapshot_reads;
mod wrong_database;
mod zeroed_log_tail;
