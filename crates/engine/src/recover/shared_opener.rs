//! Opens each file of the catalog once: column families that share a file (a clone and its source)
//! hold the same object, so that its references are counted together.

use perigee_base::{Error, FileId, Result};
use perigee_file::TableCache;
use perigee_tree::{FileOpener, Table, TableMeta, Vlog, VlogMeta};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

/// An opener that caches the files it has opened.
#[derive(Debug)]
pub struct SharedFileOpener<'a> {
    table_cache: &'a TableCache,
    tables: RefCell<BTreeMap<FileId, Arc<Table>>>,
    vlogs: RefCell<BTreeMap<FileId, Arc<Vlog>>>,
}

impl<'a> SharedFileOpener<'a> {
    /// Creates an opener that has not opened a file.
    pub fn new(table_cache: &'a TableCache) -> SharedFileOpener<'a> {
        SharedFileOpener { table_cache, tables: RefCell::default(), vlogs: RefCell::default() }
    }
}

impl FileOpener for SharedFileOpener<'_> {
    fn open_table(&self, meta: &TableMeta) -> Result<Arc<Table>> {
        let mut open = self.tables.borrow_mut();
        if let Some(known) = open.get(&meta.id) {
            return if known.meta == *meta {
                Ok(Arc::clone(known))
            } else {
                Err(mismatch_error(meta.id))
            };
        }
        let table = self.table_cache.open_table(meta)?;
        open.insert(meta.id, Arc::clone(&table));
        Ok(table)
    }
    fn open_vlog(&self, meta: &VlogMeta) -> Result<Arc<Vlog>> {
        let mut open = self.vlogs.borrow_mut();
        if let Some(known) = open.get(&meta.id) {
            return if known.meta == *meta {
                Ok(Arc::clone(known))
            } else {
                Err(mismatch_error(meta.id))
            };
        }
        let vlog = self.table_cache.open_vlog(meta)?;
        open.insert(meta.id, Arc::clone(&vlog));
        Ok(vlog)
    }
}

fn mismatch_error(id: FileId) -> Error {
    Error::corruption(format!("two column families have different metadata for file {id}"))
}
