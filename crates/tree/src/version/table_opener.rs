//! Opens the files that edits add, from the table cache.

use super::FileOpener;
use super::{Table, TableMeta, Vlog, VlogMeta};
use perigee_base::{Error, ErrorKind, FileId, FileKind, Result};
use perigee_file::{TableCache, filename};
use std::sync::Arc;

impl FileOpener for TableCache {
    fn open_table(&self, meta: &TableMeta) -> Result<Arc<Table>> {
        let reader = self
            .klog_reader(meta.id, meta.summary.bytes)
            .map_err(|e| missing_file_error(e, meta.id, FileKind::Klog))?;
        if let Some(seq) = meta.global_seq {
            reader.set_global_seq(seq);
        }
        Ok(Arc::new(Table { meta: meta.clone(), reader }))
    }
    fn open_vlog(&self, meta: &VlogMeta) -> Result<Arc<Vlog>> {
        let reader = self
            .vlog_reader(meta.id, meta.bytes)
            .map_err(|e| missing_file_error(e, meta.id, FileKind::Vlog))?;
        Ok(Arc::new(Vlog { meta: meta.clone(), reader }))
    }
}

/// Turns `NotFound` for a file that the manifest names into `Corruption`.
fn missing_file_error(e: Error, id: FileId, kind: FileKind) -> Error {
    if e.kind() != ErrorKind::NotFound {
        return e;
    }
    Error::corruption("a file that the manifest names is missing")
        .in_file(filename::file_name(id, kind))
}
