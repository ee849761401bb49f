//! Opens the files that version edits add, before the manifest is locked.

use super::changes::{VersionChange, VersionSource};
use perigee_base::{Error, FileId, Result};
use perigee_tree::{AddedTable, FileOpener, Table, TableMeta, Version, Vlog, VlogMeta};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The files that version edits add, except tables that only change their level.
#[derive(Debug, Default)]
pub struct OpenedFiles {
    tables: BTreeMap<FileId, Arc<Table>>,
    vlogs: BTreeMap<FileId, Arc<Vlog>>,
}

impl OpenedFiles {
    /// Opens the files of all changes.
    pub fn open(opener: &dyn FileOpener, changes: &[VersionChange]) -> Result<OpenedFiles> {
        let mut files = OpenedFiles::default();
        for change in changes {
            let view = change.family.tree.view();
            for added in change.edit.added.iter().filter(|t| !is_moved(&view.version, t)) {
                files.tables.insert(added.meta.id, opener.open_table(&added.meta)?);
            }
            let open: &[Arc<Vlog>] = match &change.source {
                VersionSource::Load { open_vlogs } => open_vlogs,
                VersionSource::Flush(_) | VersionSource::Compaction => &[],
            };
            for meta in &change.edit.vlogs_added {
                let vlog = match open.iter().find(|v| v.meta.id == meta.id) {
                    Some(vlog) => Arc::clone(vlog),
                    None => opener.open_vlog(meta)?,
                };
                files.vlogs.insert(meta.id, vlog);
            }
        }
        Ok(files)
    }
}

/// Returns true if the table is in the version already. It stays there until the change is
/// installed, or the change is rejected: its edit removes the table from its old level.
fn is_moved(version: &Version, added: &AddedTable) -> bool {
    version.tables().any(|(_, _, t)| t.meta == added.meta)
}

impl FileOpener for OpenedFiles {
    fn open_table(&self, meta: &TableMeta) -> Result<Arc<Table>> {
        self.tables.get(&meta.id).cloned().ok_or_else(|| not_opened_error(meta.id))
    }
    fn open_vlog(&self, meta: &VlogMeta) -> Result<Arc<Vlog>> {
        self.vlogs.get(&meta.id).cloned().ok_or_else(|| not_opened_error(meta.id))
    }
}

fn not_opened_error(id: FileId) -> Error {
    Error::internal(format!("file {id} was not opened before its installation"))
}
