//! [`TableCatalog`]: the tables of the database and the files of the session, for the planner.

use crate::constants::SCHEMA;
use crate::error::SqlError;
use crate::pg_catalog::PG_CATALOG;
use crate::pg_catalog::relations::RelationCache;
use crate::pg_catalog::tables::PgCatalog;
use crate::read_state::CurrentReadState;
use crate::table_provider::TableSource;
use async_trait::async_trait;
use datafusion::catalog::{CatalogProvider, SchemaProvider, TableProvider};
use datafusion::common::Result;
use datafusion::error::DataFusionError;
use perigee::Db;
use perigee_tables::{ErrorKind, TableDb};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// See the module. Implements both the catalog and the schema of the tables.
#[derive(Clone)]
pub struct TableCatalog {
    db: Db,
    read_state: Arc<CurrentReadState>,
    relations: Arc<RelationCache>,
    /// Handles of tables used so far.
    handles: Arc<Mutex<HashMap<String, perigee_tables::DynTable>>>,
    /// External tables of the session.
    files: Arc<Mutex<HashMap<String, Arc<dyn TableProvider>>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl TableCatalog {
    pub fn new(
        db: &Db,
        read_state: Arc<CurrentReadState>,
        relations: Arc<RelationCache>,
    ) -> TableCatalog {
        let (db, handles, files) = (db.clone(), Arc::default(), Arc::default());
        TableCatalog { db, read_state, relations, handles, files }
    }
    /// Returns a table of the database; `None` if there is none.
    pub fn find(&self, name: &str) -> perigee_tables::Result<Option<TableSource>> {
        let known = lock(&self.handles).get(name).cloned();
        if let Some(table) = known {
            match TableSource::new(table, Arc::clone(&self.read_state)) {
                Ok(source) => return Ok(Some(source)),
                // Dropped, and perhaps created again.
                Err(_) => drop(lock(&self.handles).remove(name)),
            }
        }
        match self.db.dyn_table(name) {
            Ok(table) => {
                lock(&self.handles).insert(name.to_owned(), table.clone());
                TableSource::new(table, Arc::clone(&self.read_state)).map(Some)
            }
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::InvalidArgument) => {
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }
    /// Forgets an external table; returns false if there is none.
    pub fn remove_file(&self, name: &str) -> bool {
        lock(&self.files).remove(name).is_some()
    }
    /// Returns true if `name` is an external table.
    pub fn is_file(&self, name: &str) -> bool {
        lock(&self.files).contains_key(name)
    }
}

impl std::fmt::Debug for TableCatalog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TableCatalog({:?})", self.db)
    }
}

impl CatalogProvider for TableCatalog {
    fn schema_names(&self) -> Vec<String> {
        vec![SCHEMA.to_owned(), PG_CATALOG.to_owned()]
    }
    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        match name {
            SCHEMA => Some(Arc::new(self.clone())),
            PG_CATALOG => Some(Arc::new(PgCatalog { relations: Arc::clone(&self.relations) })),
            _ => None,
        }
    }
}

#[async_trait]
impl SchemaProvider for TableCatalog {
    fn table_names(&self) -> Vec<String> {
        // An error here would be found again when the table is used.
        let tables = self.db.tables().unwrap_or_default();
        let mut names: Vec<String> = tables.into_iter().map(|table| table.name).collect();
        names.extend(lock(&self.files).keys().cloned());
        names.sort();
        names
    }
    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
        if let Some(file) = lock(&self.files).get(name) {
            return Ok(Some(Arc::clone(file)));
        }
        let source = self.find(name).map_err(SqlError::from)?;
        Ok(source.map(|source| Arc::new(source) as Arc<dyn TableProvider>))
    }
    fn register_table(
        &self,
        name: String,
        table: Arc<dyn TableProvider>,
    ) -> Result<Option<Arc<dyn TableProvider>>> {
        Ok(lock(&self.files).insert(name, table))
    }
    fn deregister_table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        Ok(lock(&self.files).remove(name))
    }
    fn table_exist(&self, name: &str) -> bool {
        self.is_file(name) || self.find(name).is_ok_and(|source| source.is_some())
    }
}
