//! [`TableDb`]: the methods that this crate adds to [`Db`].

use crate::error::{Error, ErrorKind, Result};
use crate::row::Row;
use crate::schema::change::SchemaChange;
use crate::schema::check::missing_columns;
use crate::schema::stored::{IndexStatus, StoredIndex, StoredSchema};
use crate::schema::{IndexDef, Schema};
use crate::table::{DynTable, Table};
use crate::table_state::{
    FAMILY_PREFIX, ROWS, SCHEMA_KEY, TableState, check_table_name, family_name, find_family,
    missing_table, read_schema, store_new_schema,
};
use crate::txn::{TableTxn, run_table_txn};
use crate::value::Value;
use perigee::{Db, Family, TxnOptions};

/// A table as listed by [`TableDb::tables`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableInfo {
    /// The name.
    pub name: String,
    /// Columns and primary key.
    pub schema: Schema,
    /// The secondary indexes.
    pub indexes: Vec<IndexDef>,
    /// State and size of each of [`TableInfo::indexes`], in the same order.
    pub index_states: Vec<IndexState>,
    /// Estimated number of rows ([`Family::estimate_range`] says how exact it is).
    pub rows: u64,
    /// Estimated bytes of rows and indexes, on disk (compressed) and in memtables.
    pub bytes: u64,
    /// The part of [`TableInfo::bytes`] that is on disk.
    pub disk_bytes: u64,
}

/// State and size of a secondary index; see [`TableInfo::index_states`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct IndexState {
    /// True if the index can be read; false if its build has not ended, or was interrupted.
    pub ready: bool,
    /// Estimated number of entries.
    pub entries: u64,
    /// Estimated bytes of its entries, on disk (compressed) and in memtables.
    pub bytes: u64,
}

/// Tables of a database: import this trait to call its methods on [`Db`].
///
/// A table is a column family named `@table/` and the name of the table. Its options can be set
/// like those of any column family, for example at open with [`perigee::Options::family`]; do not
/// write to it except through this crate.
pub trait TableDb {
    /// Returns the table named `name`, or creates it. The row type is compared with the stored
    /// schema: columns that the table lacks are added if they are nullable or have a default.
    ///
    /// ```
    /// use perigee_tables::{Row, TableDb};
    /// # let db = perigee::example_db()?;
    /// mod v1 {
    ///     #[derive(perigee_tables::Row)]
    ///     pub struct User {
    ///         #[key]
    ///         pub id: u32,
    ///         pub name: String,
    ///     }
    /// }
    /// let users = db.table::<v1::User>("users")?;
    /// users.insert(&v1::User { id: 1, name: "ann".into() })?;
    ///
    /// // The next version of the program:
    /// #[derive(Row)]
    /// struct User {
    ///     #[key]
    ///     id: u32,
    ///     name: String,
    ///     mail: Option<String>,
    ///     #[row(default = 18)]
    ///     age: u8,
    /// }
    /// let users = db.table::<User>("users")?;
    /// assert_eq!(users.get(1)?.map(|user| user.age), Some(18));
    /// # Ok::<(), perigee_tables::Error>(())
    /// ```
    ///
    /// # Errors
    /// `SchemaMismatch` if the row type does not fit the stored schema; the error names the column
    /// and says what to do. `InvalidArgument` for a name that is empty, longer than 200 bytes or
    /// contains NUL. `Busy` if columns have to be added while a bulk load runs.
    fn table<R: Row>(&self, name: &str) -> Result<Table<R>>;
    /// Returns an existing table with dynamic rows.
    ///
    /// # Errors
    /// `NotFound` if there is none.
    fn dyn_table(&self, name: &str) -> Result<DynTable>;
    /// Creates a table with dynamic rows.
    ///
    /// # Errors
    /// `AlreadyExists`; `InvalidArgument` for an invalid name or schema.
    fn create_dyn_table(&self, name: &str, schema: Schema) -> Result<DynTable>;
    /// Changes the schema of a table, atomically and without rewriting a row. Handles with a row
    /// type that no longer fits fail with `SchemaMismatch`.
    ///
    /// ```
    /// use perigee_tables::{Column, ColumnType, Schema, SchemaChange, TableDb, Value};
    /// # let db = perigee::example_db()?;
    /// let users = db.create_dyn_table("users", Schema::new().key("id", ColumnType::U32))?;
    /// users.insert(&vec![Value::U32(1)])?;
    /// let age = Column::new("age", ColumnType::U8).default_value(18u8);
    /// db.alter_table("users", &[SchemaChange::AddColumn(age)])?;
    /// let users = db.dyn_table("users")?;
    /// assert_eq!(users.get([Value::U32(1)])?, Some(vec![Value::U32(1), Value::U8(18)]));
    /// # Ok::<(), perigee_tables::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` with the reason; `NotFound`; `Busy` while a bulk load runs.
    fn alter_table(&self, name: &str, changes: &[SchemaChange]) -> Result<()>;
    /// Returns all tables, sorted by name.
    fn tables(&self) -> Result<Vec<TableInfo>>;
    /// Drops a table with its rows and indexes.
    ///
    /// # Errors
    /// `NotFound`.
    fn drop_table(&self, name: &str) -> Result<()>;
    /// Runs `work` in a transaction over tables, commits it, and returns the result of `work`.
    /// After a conflict, runs `work` again on the current state, with increasing pauses, up to 100
    /// times; so `work` must not have other side effects. If it returns an error, nothing is
    /// committed. See [`TableTxn`] for an example.
    ///
    /// # Errors
    /// Those of `work`, of the commit, and `Conflict` after the last attempt.
    fn write_tables<T>(&self, work: impl FnMut(&TableTxn<'_>) -> Result<T>) -> Result<T>;
    /// Runs `work` like [`TableDb::write_tables`], with other options. The isolation level is
    /// repeatable read unless the options set one; weaker levels are refused by writes and reads.
    ///
    /// # Errors
    /// Same as [`TableDb::write_tables`].
    fn write_tables_with<T>(
        &self,
        options: TxnOptions,
        work: impl FnMut(&TableTxn<'_>) -> Result<T>,
    ) -> Result<T>;
    /// Begins a transaction over tables, which ends with [`TableTxn::commit`] or when it is
    /// dropped. The isolation level is as for [`TableDb::write_tables_with`].
    fn begin_tables(&self, options: TxnOptions) -> Result<TableTxn<'static>>;
}

/// Returns the column family and schema of an existing table.
fn open_stored(db: &Db, name: &str) -> Result<(Family, StoredSchema)> {
    check_table_name(name)?;
    let family = find_family(db, name)?.ok_or_else(|| missing_table(name))?;
    let bytes = family.get_pinned(SCHEMA_KEY).map_err(|e| Error::from(e).in_table(name))?;
    let bytes = bytes.ok_or_else(|| missing_table(name))?;
    let schema = read_schema(&bytes).map_err(|e| e.in_table(name))?;
    Ok((family, schema))
}

/// Creates a table, unless it exists. Returns true if it is new.
fn create_stored(db: &Db, name: &str, schema: &Schema) -> Result<(Family, StoredSchema, bool)> {
    check_table_name(name)?;
    schema.validate().map_err(|e| e.in_table(name))?;
    let family = db.family_or_create(&family_name(name), Default::default());
    let family = family.map_err(|e| Error::from(e).in_table(name))?;
    let (schema, is_new) = store_new_schema(db, &family, name, schema)?;
    Ok((family, schema, is_new))
}

/// Adds the columns that the stored schema lacks.
fn add_missing_columns(db: &Db, family: &Family, name: &str, declared: &Schema) -> Result<()> {
    // A handle for dynamic rows fits every schema.
    let (_, stored) = open_stored(db, name)?;
    let state = TableState::new(db, family.clone(), name, stored, || None)?;
    state.change_idle_schema(|_, schema| {
        for column in missing_columns(schema, declared)? {
            schema.add_column(&column)?;
        }
        Ok(())
    })
}

impl TableDb for Db {
    fn table<R: Row>(&self, name: &str) -> Result<Table<R>> {
        let (family, stored) = match (open_stored(self, name), R::declared_schema()) {
            (Err(e), Some(declared)) if e.kind() == ErrorKind::NotFound => {
                let (family, stored, _) = create_stored(self, name, &declared)?;
                (family, stored)
            }
            (opened, declared) => {
                let (family, mut stored) = opened?;
                let declared = declared.as_ref();
                let missing = declared.map(|declared| missing_columns(&stored, declared));
                let missing = missing.transpose().map_err(|e| e.in_table(name))?;
                if let (Some(declared), Some([_, ..])) = (declared, missing.as_deref()) {
                    add_missing_columns(self, &family, name, declared)?;
                    stored = open_stored(self, name)?.1;
                }
                (family, stored)
            }
        };
        let loading = stored.loading;
        let state = TableState::new(self, family, name, stored, R::declared_schema)?;
        if loading {
            state.remove_stale_load_flag();
        }
        Ok(Table::new(state))
    }
    fn dyn_table(&self, name: &str) -> Result<DynTable> {
        self.table::<Vec<Value>>(name)
    }
    fn create_dyn_table(&self, name: &str, schema: Schema) -> Result<DynTable> {
        let (family, stored, is_new) = create_stored(self, name, &schema)?;
        if !is_new {
            let text = "there is a table of this name: open it with dyn_table, or drop it first";
            return Err(Error::new(ErrorKind::AlreadyExists, text).in_table(name));
        }
        let declared = <Vec<Value> as Row>::declared_schema;
        Ok(Table::new(TableState::new(self, family, name, stored, declared)?))
    }
    fn alter_table(&self, name: &str, changes: &[SchemaChange]) -> Result<()> {
        let (family, stored) = open_stored(self, name)?;
        let state = TableState::new(self, family, name, stored, || None)?;
        state.change_idle_schema(|_, schema| changes.iter().try_for_each(|c| schema.apply(c)))
    }
    fn tables(&self) -> Result<Vec<TableInfo>> {
        let mut tables = Vec::new();
        for family in self.families() {
            let Some(name) = family.strip_prefix(FAMILY_PREFIX) else { continue };
            match open_stored(self, name) {
                Ok((family, schema)) => tables.push(describe(name, &family, &schema)?),
                // Dropped in the meantime, or its creation was interrupted.
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
        }
        Ok(tables)
    }
    fn drop_table(&self, name: &str) -> Result<()> {
        check_table_name(name)?;
        self.drop_family(&family_name(name)).map_err(|e| match e.kind() {
            perigee::ErrorKind::NotFound => missing_table(name),
            _ => Error::from(e).in_table(name),
        })
    }
    fn write_tables<T>(&self, work: impl FnMut(&TableTxn<'_>) -> Result<T>) -> Result<T> {
        run_table_txn(self, TxnOptions::new(), work)
    }
    fn write_tables_with<T>(
        &self,
        options: TxnOptions,
        work: impl FnMut(&TableTxn<'_>) -> Result<T>,
    ) -> Result<T> {
        run_table_txn(self, options, work)
    }
    fn begin_tables(&self, options: TxnOptions) -> Result<TableTxn<'static>> {
        TableTxn::begin(self, options)
    }
}

fn describe(name: &str, family: &Family, schema: &StoredSchema) -> Result<TableInfo> {
    let fails = |e| Error::from(e).in_table(name);
    let rows = family.estimate_range([ROWS]..[ROWS + 1]).map_err(fails)?;
    let all = family.estimate_range::<&[u8]>(..).map_err(fails)?;
    let states = schema.indexes.iter().map(|index| index_state(family, index));
    let mut index_states = states.collect::<perigee::Result<Vec<_>>>().map_err(fails)?;
    // Blocks of rows and of index entries hold different numbers of entries, so the estimate of a
    // part of the keys is inexact. All of them are the schema, the rows, and an entry of each row in
    // each index.
    let mut row_count = rows.keys;
    if index_states.iter().all(|state| state.ready) {
        row_count = all.keys.saturating_sub(1) / (1 + index_states.len() as u64);
        index_states.iter_mut().for_each(|state| state.entries = row_count);
    }
    Ok(TableInfo {
        name: name.to_owned(),
        schema: schema.to_schema(),
        indexes: schema.indexes.iter().map(|i| schema.index_def(i)).collect(),
        index_states,
        rows: row_count,
        bytes: all.disk_bytes + all.memory_bytes,
        disk_bytes: all.disk_bytes,
    })
}

fn index_state(family: &Family, index: &StoredIndex) -> perigee::Result<IndexState> {
    let entries = family.estimate_range([index.number]..[index.number + 1])?;
    Ok(IndexState {
        ready: index.status == IndexStatus::Ready,
        entries: entries.keys,
        bytes: entries.disk_bytes + entries.memory_bytes,
    })
}
