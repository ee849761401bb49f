//! The manifest: the only record of the state of the database. Edits are checked against the
//! catalog before they are written, and synced before anything depends on them. `install` appends
//! them and makes their result current while it holds the lock.

mod edit;
mod codec;
mod catalog_state;
mod writer;

pub use catalog_state::{CatalogFamily, CatalogState};
pub use codec::decode_edit;
#[cfg(feature = "sim")]
pub use codec::encode_edit;
pub use edit::{
    CleanClose, FamilyEvent, FamilyEventKind, ManifestEdit, NextIdsEdit, PreparedFiles,
    PreparedTables,
};
pub use writer::{Manifest, manifest_not_durable, write_snapshot, write_snapshot_file};

#[cfg(test)]
mod tests;
