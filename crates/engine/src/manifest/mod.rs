//! The manifest: the only record of the state of the database. Edits are checked against the
//! catalog before they are written, synced before anything depends on them, and installed under the
//! same lock.

mod edit;
mod codec;
mod catalog;
mod writer;

pub use catalog::{Catalog, CatalogFamily};
pub use codec::{decode_edit, encode_edit};
pub use edit::{CleanClose, FamilyEvent, FamilyEventKind, ManifestEdit, NextIds, NextIdsEdit};
pub use writer::{DatabaseIdentity, Manifest, write_snapshot, write_snapshot_file};

#[cfg(test)]
mod tests;
