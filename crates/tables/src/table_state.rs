//! [`TableState`]: the column family of a table, its current binding, and the transactions that
//! read and change its schema.
//!
//! ```text
//! column family   "@table/" and the name of the table; "@staged-table/" until it is published
//! key             u8 index number: 0 metadata, 1 rows, 2 to 249 secondary indexes
//!                 then the encoded tuple (ordered.rs)
//! 00 01           the schema (schema/codec.rs)
//! 00 02           never written: the lock of bulk loads
//! ```
//!
//! **How writers and schema changes exclude each other.** A handle caches the schema, and several
//! handles of a table exist, so a writer may have an old one. Every writing transaction therefore
//! reads the key of the schema, in a way that makes its commit fail if the schema has changed since
//! the transaction began:
//! - at repeatable read, the default of tables, by a get: the engine checks all keys read;
//! - at snapshot and serializable, by a shared lock on the key, which a schema change needs
//!   exclusively. Reads do not lock it.
//!
//! So a commit that is made with an old schema is older than the change of the schema: from the
//! commit of the change on, all rows are written with the new schema, indexes included.

use crate::binding::Binding;
use crate::error::{Error, ErrorKind, Result};
use crate::limits::{
    LOAD_WAIT_SECONDS_MAX, SCHEMA_BYTES_MAX, SCHEMA_LOCK_SECONDS_MAX, TABLE_NAME_BYTES_MAX,
};
use crate::schema::Schema;
use crate::schema::codec;
use crate::schema::stored::StoredSchema;
use perigee::{Db, Family, Isolation, LockMode, Txn, TxnOptions};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

/// Prefix of the names of the column families of tables.
pub const FAMILY_PREFIX: &str = "@table/";
/// Prefix of the names of the column families of staged tables ([`crate::load::staged`]).
pub const STAGED_FAMILY_PREFIX: &str = "@staged-table/";
/// Key of the stored schema.
pub const SCHEMA_KEY: &[u8] = &[0, 1];
/// Key that bulk loads lock; it has no value.
const LOAD_KEY: &[u8] = &[0, 2];
/// Index number of the rows.
pub const ROWS: u8 = 1;

/// Returns the name of the column family of a table.
pub fn family_name(table: &str) -> String {
    format!("{FAMILY_PREFIX}{table}")
}

/// Returns the column family of a table; `None` if there is none.
pub fn find_family(db: &Db, name: &str) -> Result<Option<Family>> {
    match db.family(&family_name(name)) {
        Ok(family) => Ok(Some(family)),
        Err(e) if e.kind() == perigee::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Error::from(e).in_table(name)),
    }
}

/// Checks the rules for names of tables.
pub fn check_table_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > TABLE_NAME_BYTES_MAX || name.contains('\0') {
        let text = format!(
            "the name of a table has 1 to {TABLE_NAME_BYTES_MAX} bytes, without NUL: choose another"
        );
        return Err(Error::invalid(text).in_table(name));
    }
    Ok(())
}

/// See the module.
pub struct TableState {
    pub db: Db,
    pub family: Family,
    pub name: Arc<str>,
    /// What the row type declares; `None`: dynamic rows.
    declared: fn() -> Option<Schema>,
    /// The newest binding that this handle has seen. The lock is held for a copy of the pointer.
    binding: RwLock<Arc<Binding>>,
}

impl TableState {
    /// Binds the stored schema to a row type.
    pub fn new(
        db: &Db,
        family: Family,
        name: &str,
        schema: StoredSchema,
        declared: fn() -> Option<Schema>,
    ) -> Result<TableState> {
        let name: Arc<str> = name.into();
        let binding = Binding::new(&name, Arc::new(schema), declared().as_ref())
            .map_err(|e| e.in_table(&name))?;
        let binding = RwLock::new(Arc::new(binding));
        Ok(TableState { db: db.clone(), family, name, declared, binding })
    }
    /// Returns the newest binding that this handle has seen.
    #[inline]
    pub fn binding(&self) -> Arc<Binding> {
        Arc::clone(&self.binding.read().unwrap_or_else(PoisonError::into_inner))
    }
    /// Reads the stored schema again and binds it.
    pub fn refresh(&self) -> Result<Arc<Binding>> {
        let bytes = self.family.get_pinned(SCHEMA_KEY).map_err(|e| self.engine_error(e))?;
        self.bind_encoded(bytes.as_deref())
    }
    /// Returns the binding of an encoded schema: the cached one if the version is the same. Caches
    /// a newer one.
    pub fn bind_encoded(&self, bytes: Option<&[u8]>) -> Result<Arc<Binding>> {
        let bytes = bytes.ok_or_else(|| self.damaged("the table has no schema"))?;
        let cached = self.binding();
        let version = codec::encoded_version(bytes);
        if version == Some(cached.schema.version) {
            return Ok(cached);
        }
        let schema = codec::decode(bytes).map_err(|e| e.in_table(&self.name))?;
        let version = schema.version;
        let binding = Binding::new(&self.name, Arc::new(schema), (self.declared)().as_ref());
        let binding = Arc::new(binding.map_err(|e| e.in_table(&self.name))?);
        if version > cached.schema.version {
            let mut newest = self.binding.write().unwrap_or_else(PoisonError::into_inner);
            if version > newest.schema.version {
                *newest = Arc::clone(&binding);
            }
        }
        Ok(binding)
    }
    /// Returns the binding as of a transaction, for reads.
    ///
    /// # Errors
    /// `InvalidArgument` at an isolation level that tables do not support.
    pub fn binding_in(&self, txn: &Txn) -> Result<Arc<Binding>> {
        let level = txn.isolation();
        if level < Isolation::RepeatableRead {
            let text = format!(
                "tables cannot be used in a transaction at {}: two rows could get the same key; use \
                 repeatable read, snapshot or serializable",
                level.name()
            );
            return Err(Error::invalid(text).in_table(&self.name));
        }
        let bytes = txn.get_pinned(&self.family, SCHEMA_KEY);
        self.bind_encoded(bytes.map_err(|e| self.engine_error(e))?.as_deref())
    }
    /// Returns the binding for a write of a transaction, whose commit then fails if the schema
    /// changes before it (see the module). While a bulk load runs, waits for it, for at most
    /// [`LOAD_WAIT_SECONDS_MAX`]; then the transaction conflicts.
    pub fn binding_for_write(&self, txn: &Txn) -> Result<Arc<Binding>> {
        let binding = self.binding_in(txn)?;
        // Before the schema is locked: a load needs this lock at its end.
        if binding.schema.loading {
            self.wait_for_load(txn)?;
        }
        if txn.isolation() == Isolation::RepeatableRead {
            return Ok(binding);
        }
        let bytes = txn.get_for_update(&self.family, SCHEMA_KEY, LockMode::Shared);
        self.bind_encoded(bytes.map_err(|e| self.engine_error(e))?.as_deref())
    }
    /// Waits for the end of a bulk load. The load holds an exclusive lock as long as it exists; the
    /// flag in the schema can be left over from a load that failed or crashed: it is removed then,
    /// or when the table is opened.
    fn wait_for_load(&self, txn: &Txn) -> Result<()> {
        txn.set_lock_timeout(Duration::from_secs(LOAD_WAIT_SECONDS_MAX));
        let locked = txn.lock(&self.family, LOAD_KEY, LockMode::Shared);
        locked.map_err(|e| match e.kind() {
            perigee::ErrorKind::Busy => {
                let text = "a bulk load of the table is running: try again after it";
                Error::new(ErrorKind::Busy, text).in_table(&self.name)
            }
            _ => self.engine_error(e),
        })?;
        let latest = self.family.get_pinned(SCHEMA_KEY).map_err(|e| self.engine_error(e))?;
        if latest.map(|bytes| read_schema(&bytes)).transpose()?.is_some_and(|s| s.loading) {
            self.remove_load_flag()?;
        }
        // The schema has changed since the transaction began: it conflicts, and is repeated.
        let checked = txn.get_for_update(&self.family, SCHEMA_KEY, LockMode::Shared);
        checked.map_err(|e| self.engine_error(e))?;
        Ok(())
    }
    /// Removes the flag of a bulk load from the schema.
    pub fn remove_load_flag(&self) -> Result<()> {
        self.change_schema(|_, schema| {
            schema.loading = false;
            Ok(())
        })
    }
    /// Removes the flag of a bulk load that has crashed. Does nothing while a load is running, or if
    /// the database is read-only: the flag concerns writers only, and they wait for the lock.
    pub fn remove_stale_load_flag(&self) {
        let _ = self.change_schema(|txn, schema| {
            txn.set_lock_timeout(Duration::ZERO);
            txn.lock(&self.family, LOAD_KEY, LockMode::Shared)?;
            schema.loading = false;
            Ok(())
        });
    }
    /// Changes the schema in a transaction of its own, which waits for the transactions that have
    /// locked the schema and for a bulk load. Returns the result of `change`.
    ///
    /// # Errors
    /// Those of `change`; `Busy` after a wait of [`SCHEMA_LOCK_SECONDS_MAX`].
    pub fn change_schema<T>(
        &self,
        change: impl FnMut(&Txn, &mut StoredSchema) -> Result<T>,
    ) -> Result<T> {
        change_stored_schema(&self.db, &self.family, &self.name, change)
    }
    /// Changes the schema like [`TableState::change_schema`], unless a bulk load runs.
    ///
    /// # Errors
    /// Those of `change`; `Busy` if a bulk load runs, or after a wait.
    pub fn change_idle_schema<T>(
        &self,
        mut change: impl FnMut(&Txn, &mut StoredSchema) -> Result<T>,
    ) -> Result<T> {
        self.change_schema(|txn, schema| {
            if schema.loading {
                // Fails with `Busy` after a wait, unless the load has failed or crashed.
                txn.lock(&self.family, LOAD_KEY, LockMode::Shared)?;
                schema.loading = false;
            }
            change(txn, schema)
        })
    }
    /// Takes the lock of bulk loads, exclusively; it ends with the transaction.
    pub fn lock_load(&self, txn: &Txn) -> Result<()> {
        let locked = txn.lock(&self.family, LOAD_KEY, LockMode::Exclusive);
        locked.map_err(|e| self.engine_error(e))
    }
    /// Returns the error for damage in the table.
    pub fn damaged(&self, what: &str) -> Error {
        Error::corruption(format!("{what}: restore a backup, or run `perigee verify`"))
            .in_table(&self.name)
    }
    /// Converts an error of the engine.
    pub fn engine_error(&self, e: perigee::Error) -> Error {
        let error = Error::from(e);
        let dropped = error.engine().is_some_and(|e| e.kind() == perigee::ErrorKind::NotFound);
        if dropped { missing_table(&self.name) } else { error.in_table(&self.name) }
    }
    /// Returns the expiry time of a row that is written now with the default time to live, in
    /// milliseconds since 1970.
    pub fn default_expiry(&self, binding: &Binding) -> Option<u64> {
        let ttl_ms = binding.schema.ttl_ms?;
        Some(self.expiry_after(Duration::from_millis(ttl_ms)))
    }
    /// Returns the expiry time of a row that is written now, in milliseconds since 1970.
    pub fn expiry_after(&self, ttl: Duration) -> u64 {
        let now_ms = self.db.admin().clock().now_ms;
        now_ms.saturating_add(crate::schema::stored::ttl_to_ms(ttl))
    }
}

/// Prints the name of the table.
impl std::fmt::Debug for TableState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}, {:?}", self.name, self.db)
    }
}

/// Returns the error for a table that does not exist, or not any more.
pub fn missing_table(name: &str) -> Error {
    let text = "there is no such table: create it with TableDb::table or TableDb::create_dyn_table";
    Error::new(ErrorKind::NotFound, text).in_table(name)
}

/// Changes a stored schema; see [`TableState::change_schema`].
pub fn change_stored_schema<T>(
    db: &Db,
    family: &Family,
    table: &str,
    mut change: impl FnMut(&Txn, &mut StoredSchema) -> Result<T>,
) -> Result<T> {
    let options = TxnOptions::new()
        .isolation(Isolation::RepeatableRead)
        .lock_timeout(Duration::from_secs(SCHEMA_LOCK_SECONDS_MAX));
    let result = db.write_txn(options, |txn| {
        let bytes = txn.get_for_update(family, SCHEMA_KEY, LockMode::Exclusive)?;
        let bytes = bytes.ok_or_else(|| missing_table(table))?;
        let mut schema = read_schema(&bytes)?;
        let before = schema.clone();
        let result = change(txn, &mut schema)?;
        if schema != before {
            schema.version = before.version.wrapping_add(1);
            txn.put(family, SCHEMA_KEY, encode_schema(&schema)?)?;
        }
        Ok(result)
    });
    result.map_err(|e: Error| e.in_table(table))
}

/// Encodes a schema that [`read_schema`] accepts.
fn encode_schema(schema: &StoredSchema) -> Result<Vec<u8>> {
    let bytes = codec::encode(schema);
    if bytes.len() > SCHEMA_BYTES_MAX {
        let text = format!(
            "the schema takes {} bytes, at most {SCHEMA_BYTES_MAX} are allowed: use shorter \
             defaults, or copy the rows to a new table if columns were added and dropped often",
            bytes.len()
        );
        return Err(Error::invalid(text));
    }
    Ok(bytes)
}

/// Decodes a stored schema.
pub fn read_schema(bytes: &[u8]) -> Result<StoredSchema> {
    if bytes.len() > SCHEMA_BYTES_MAX {
        return Err(Error::corruption("the stored schema is too long"));
    }
    codec::decode(bytes)
}

/// Stores the schema of a new table, unless there is one. Returns the stored schema, and true if it
/// is the new one.
pub fn store_new_schema(
    db: &Db,
    family: &Family,
    table: &str,
    schema: &Schema,
) -> Result<(StoredSchema, bool)> {
    let options = TxnOptions::new().isolation(Isolation::RepeatableRead);
    let result = db.write_txn(options, |txn| {
        if let Some(bytes) = txn.get_pinned(family, SCHEMA_KEY)? {
            return Ok((read_schema(&bytes)?, false));
        }
        if txn.cursor(family).and_then(|mut c| c.seek_to_first().map(|()| c.is_valid()))? {
            let text = "the column family of the table has contents but no schema: it belongs to \
                        another program, or is damaged";
            return Err(Error::corruption(text));
        }
        let stored = StoredSchema::new(schema);
        txn.put(family, SCHEMA_KEY, encode_schema(&stored)?)?;
        Ok((stored, true))
    });
    result.map_err(|e: Error| e.in_table(table))
}
