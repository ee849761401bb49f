//! Keeping data safe outside the database's own directory: checkpoints, backups and their way back. Everything here reads
//! an open database (or none at all) and writes somewhere else; nothing here changes the source.
//!
//! The stages, each a file: `picture` (what the database is at one sequence number), `copy` (a file with its checksum
//! compared on the way), `build` (a directory under a temporary name until it is whole), `checkpoint`; then for backups
//! `record` (what a generation consists of), `store` (the directory of generations), `backup`, `restore`, `prune`.

pub mod picture;
pub mod copy;
pub mod build;
pub mod checkpoint;
pub mod record;
pub mod store;
pub mod backup;
pub mod restore;
pub mod prune;

pub use backup::Backed;
pub use checkpoint::Checkpointed;
pub use prune::Pruned;
pub use record::Generation;
pub use restore::{Checked, Restored};
