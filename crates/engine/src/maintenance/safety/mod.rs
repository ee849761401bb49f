//! Checkpoints, backups and restores. Everything here reads an open database (or none at all) and
//! writes elsewhere; nothing here changes the source.
//!
//! The stages, one file each: `database_image` (the database at one sequence number), `file_copy`
//! (copies a file and verifies its checksum), `directory_builder` (a directory under a temporary
//! name until it is complete), `checkpoint`; for backups `generation` (the record of a generation),
//! `backup_store` (the directory of generations), `backup`, `restore`, `prune`.

pub mod reports;
pub mod database_image;
pub mod file_copy;
pub mod directory_builder;
pub mod checkpoint;
pub mod generation;
pub mod backup_store;
pub mod backup;
pub mod restore;
pub mod prune;

#[cfg(feature = "sim")]
pub use generation::BackupGeneration;
pub use reports::{
    BackupDamage, BackupFile, BackupInfo, BackupList, BackupOptions, BackupReport,
    BackupVerifyReport, CheckpointReport, PruneReport, RestoreReport,
};
