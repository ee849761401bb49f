//! Opens the files of the catalog, each once: families that share a file (a clone and its source) hold one object, so that
//! its readers are counted together. Must not know what the families are.

use perigee_base::{Error, FileId, Result};
use perigee_tree::version::Opener;
use perigee_tree::{Table, TableMeta, Vlog, VlogMeta};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

/// An opener that remembers.
#[derive(Debug)]
pub struct Sharing<O> {
    inner: O,
    tables: RefCell<BTreeMap<FileId, Arc<Table>>>,
    vlogs: RefCell<BTreeMap<FileId, Arc<Vlog>>>,
}

impl<O: Opener> Sharing<O> {
    /// Nothing opened yet.
    pub fn new(inner: O) -> Sharing<O> {
        Sharing { inner, tables: RefCell::default(), vlogs: RefCell::default() }
    }
}

impl<O: Opener> Opener for Sharing<O> {
    fn table(&self, meta: &TableMeta) -> Result<Arc<Table>> {
        let mut open = self.tables.borrow_mut();
        if let Some(known) = open.get(&meta.id) {
            return if known.meta == *meta { Ok(Arc::clone(known)) } else { Err(disagree(meta.id)) };
        }
        let table = self.inner.table(meta)?;
        open.insert(meta.id, Arc::clone(&table));
        Ok(table)
    }
    fn vlog(&self, meta: &VlogMeta) -> Result<Arc<Vlog>> {
        let mut open = self.vlogs.borrow_mut();
        if let Some(known) = open.get(&meta.id) {
            return if known.meta == *meta { Ok(Arc::clone(known)) } else { Err(disagree(meta.id)) };
        }
        let vlog = self.inner.vlog(meta)?;
        open.insert(meta.id, Arc::clone(&vlog));
        Ok(vlog)
    }
}

fn disagree(id: FileId) -> Error {
    Error::corruption(format!("two families disagree about file {id}"))
}
