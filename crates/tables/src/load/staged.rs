//! [`StagedTable`]: a new table that becomes visible with all its rows and indexes at once.
//!
//! The table is built in a column family whose name [`TableDb::tables`](crate::TableDb::tables)
//! does not list, and published by renaming the column family, which is one edit of the manifest.

use crate::error::{Error, ErrorKind, Result};
use crate::row::Row;
use crate::schema::{IndexDef, Schema};
use crate::table::{DynTable, Table};
use crate::table_state::{
    SCHEMA_KEY, STAGED_FAMILY_PREFIX, TableState, check_table_name, family_name, find_family,
    store_new_schema,
};
use crate::value::Value;
use perigee::{Db, LockMode, Txn, TxnOptions};
use std::time::Duration;

/// A new table with dynamic rows that no reader sees until [`StagedTable::publish`]: imports fill
/// it with [`Table::begin_load`], and either the whole table becomes visible or nothing of it.
///
/// Dropping it removes the table. After a crash its files are left in the database, until a table
/// of this name is staged again or [`StagedTable::discard_all`] is called.
///
/// ```
/// use perigee_tables::*;
/// # let db = perigee::example_db()?;
/// let schema = Schema::new().key("id", ColumnType::U32).column("mail", ColumnType::Text);
/// let by_mail = IndexDef::new("by_mail").column("mail").unique();
/// let staged = StagedTable::create(&db, "users", schema, &[by_mail])?;
/// staged.table().load([vec![1u32.into(), "ann@example.org".into()]])?;
/// assert!(db.tables()?.is_empty());
/// let users = staged.publish()?;
/// assert_eq!(users.index("by_mail")?.prefix("ann@example.org")?.count(), 1);
/// # Ok::<(), Error>(())
/// ```
pub struct StagedTable {
    table: DynTable,
    /// Name of the column family until the table is published.
    staged_family: String,
    published: bool,
    /// Holds the lock of the name; the family is dropped before it ends.
    claim: Option<Txn>,
}

/// Prints the name of the table.
impl std::fmt::Debug for StagedTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "StagedTable({:?})", self.table)
    }
}

impl StagedTable {
    /// Creates a table without rows. Discards what an interrupted import of a table of this name
    /// has left behind.
    ///
    /// ```
    /// # use perigee_tables::*;
    /// # let db = perigee::example_db()?;
    /// let schema = Schema::new().key("id", ColumnType::U32);
    /// drop(StagedTable::create(&db, "users", schema, &[])?);
    /// assert!(db.dyn_table("users").is_err());
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `AlreadyExists` if there is a table of this name; `Busy` if another thread is staging a
    /// table of this name; `InvalidArgument` for an invalid name, schema or index.
    pub fn create(
        db: &Db,
        name: &str,
        schema: Schema,
        indexes: &[IndexDef],
    ) -> Result<StagedTable> {
        check_table_name(name)?;
        schema.validate().map_err(|e| e.in_table(name))?;
        remove_empty_family(db, name)?;
        let fails = |e: perigee::Error| Error::from(e).in_table(name);
        let staged_family = format!("{STAGED_FAMILY_PREFIX}{name}");
        let claim = claim_staged_family(db, &staged_family).map_err(|e| e.in_table(name))?;
        if db.families().contains(&staged_family) {
            db.drop_family(&staged_family).map_err(fails)?;
        }
        let family = db.create_family(&staged_family, Default::default()).map_err(fails)?;
        let (stored, _) = store_new_schema(db, &family, name, &schema)?;
        let declared = <Vec<Value> as Row>::declared_schema;
        let table = Table::new(TableState::new(db, family, name, stored, declared)?);
        let staged = StagedTable { table, staged_family, published: false, claim: Some(claim) };
        for index in indexes {
            staged.table.create_index(index.clone())?;
        }
        Ok(staged)
    }
    /// Returns the table, to fill it.
    ///
    /// ```
    /// # use perigee_tables::*;
    /// # let db = perigee::example_db()?;
    /// let schema = Schema::new().key("id", ColumnType::U32);
    /// let staged = StagedTable::create(&db, "users", schema, &[])?;
    /// let mut load = staged.table().begin_load()?;
    /// load.push(&vec![Value::U32(1)])?;
    /// load.finish()?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn table(&self) -> &DynTable {
        &self.table
    }
    /// Makes the table visible, atomically and durably, and returns it.
    ///
    /// ```
    /// # use perigee_tables::*;
    /// # let db = perigee::example_db()?;
    /// let schema = Schema::new().key("id", ColumnType::U32);
    /// StagedTable::create(&db, "users", schema, &[])?.publish()?;
    /// assert_eq!(db.tables()?[0].name, "users");
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `AlreadyExists` if a table of this name was created in the meantime: the staged table is
    /// discarded then.
    pub fn publish(mut self) -> Result<DynTable> {
        let (state, name) = (&self.table.state, self.table.name());
        remove_empty_family(&state.db, name)?;
        // The rename is durable when it returns; so must be the schema, which is in the log.
        state.db.sync().map_err(|e| state.engine_error(e))?;
        let renamed = state.db.admin().rename_family(&self.staged_family, &family_name(name));
        renamed.map_err(|e| match e.kind() {
            perigee::ErrorKind::AlreadyExists => existing_table(name),
            _ => state.engine_error(e),
        })?;
        self.published = true;
        Ok(self.table.clone())
    }
    /// Removes the staged tables that interrupted imports have left behind, and returns their
    /// number.
    ///
    /// ```
    /// # use perigee_tables::*;
    /// # let db = perigee::example_db()?;
    /// assert_eq!(StagedTable::discard_all(&db)?, 0);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn discard_all(db: &Db) -> Result<usize> {
        let mut dropped = 0;
        for family in db.families() {
            if !family.starts_with(STAGED_FAMILY_PREFIX) {
                continue;
            }
            match claim_staged_family(db, &family) {
                Ok(_claim) => {
                    db.drop_family(&family)?;
                    dropped += 1;
                }
                // In use.
                Err(e) if e.kind() == ErrorKind::Busy => {}
                Err(e) => return Err(e),
            }
        }
        Ok(dropped)
    }
}

impl Drop for StagedTable {
    fn drop(&mut self) {
        if !self.published {
            // If this fails, the column family is dropped when the table is staged again.
            let _ = self.table.state.db.drop_family(&self.staged_family);
        }
        self.claim = None;
    }
}

/// Locks the name of a staged table, until the transaction ends. The lock is in the default column
/// family, because that of the table is dropped and created under it; nothing is written there.
fn claim_staged_family(db: &Db, staged_family: &str) -> Result<Txn> {
    let claim = db.begin(TxnOptions::new().lock_timeout(Duration::ZERO))?;
    claim.lock(&db.default_family(), staged_family, LockMode::Exclusive).map_err(|e| {
        match e.kind() {
            perigee::ErrorKind::Busy => Error::new(
                ErrorKind::Busy,
                "a table of this name is being imported: wait for its end, or choose another name",
            ),
            _ => e.into(),
        }
    })?;
    Ok(claim)
}

fn existing_table(name: &str) -> Error {
    let text = "there is a table of this name: drop it first, or choose another name";
    Error::new(ErrorKind::AlreadyExists, text).in_table(name)
}

/// Drops the column family that an interrupted creation of the table has left without a schema.
///
/// # Errors
/// `AlreadyExists` if there is a table of this name, or a column family with other contents.
fn remove_empty_family(db: &Db, name: &str) -> Result<()> {
    let fails = |e: perigee::Error| Error::from(e).in_table(name);
    let Some(family) = find_family(db, name)? else { return Ok(()) };
    if family.contains(SCHEMA_KEY).map_err(fails)? || !family.is_empty().map_err(fails)? {
        return Err(existing_table(name));
    }
    db.drop_family(&family_name(name)).map_err(fails)
}
