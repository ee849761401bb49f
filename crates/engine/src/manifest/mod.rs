//! The manifest: the only record of what the database is. Edits are checked against the catalog before they are
//! written, synced before anything depends on them, and installed under the same lock.

mod edit;
mod codec;
mod catalog;
mod writer;

pub use catalog::{Catalog, FamilyEntry};
pub use codec::{decode, encode};
pub use edit::{Befell, CleanClose, Edit, FamilyEvent};
pub use writer::{Manifest, Place, write_snapshot, write_snapshot_file};

#[cfg(test)]
mod tests;
