//! Keeping data safe outside the database's own directory: checkpoints, backups and their way back.
//! Everything here reads an open database (or none at all) and writes somewhere else; nothing here
//! changes the source.
//!
//! The stages, each a file: `picture` (what the database is at one sequence number), `copy` (a file
//! with its checksum compared on the way), `build` (a directory under a temporary name until it is
//! whole), `checkpoint`; then for backups `record` (what a generation consists of), `store` (the
//! directory of generations), `backup`, `restore`, `prune`.

pub mod database_image;
pub mod file_copy;
pub mod directory_builder;
pub mod checkpoint;
pub mod generation;
pub mod backup_store;
pub mod backup;
pub mod restore;
pub mod prune;

pub use backup::BackupSummary;
pub use checkpoint::CheckpointSummary;
pub use generation::BackupGeneration;
pub use prune::PruneSummary;
pub use restore::{BackupCheckSummary, RestoreSummary};
