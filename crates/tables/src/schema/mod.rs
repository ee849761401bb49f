//! Schemas: [`Schema`] declares a table, [`IndexDef`] an index; [`StoredSchema`] is what the
//! database remembers, with the history of layouts; [`SchemaChange`] is one step from a stored
//! schema to the next.

pub mod stored;
pub mod codec;
pub mod change;
pub mod check;

use crate::error::{Error, Result};
use crate::limits::{COLUMN_NAME_BYTES_MAX, COLUMNS_MAX, INDEX_COLUMNS_MAX, KEY_COLUMNS_MAX};
use crate::ordered::Order;
use crate::value::{ColumnType, Value};
use std::time::Duration;

/// A column of a [`Schema`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Column {
    /// The name, unique within the table.
    pub name: String,
    /// The type of its values.
    pub column_type: ColumnType,
    /// True if the column can be NULL.
    pub nullable: bool,
    /// Value of the column in rows that were written before the column was added. `None`: NULL, or
    /// no such rows can exist.
    pub default: Option<Value>,
}

impl Column {
    /// Declares a column that is never NULL.
    ///
    /// ```
    /// # use perigee_tables::{Column, ColumnType};
    /// assert!(!Column::new("name", ColumnType::Text).nullable);
    /// ```
    pub fn new(name: impl Into<String>, column_type: ColumnType) -> Column {
        Column { name: name.into(), column_type, nullable: false, default: None }
    }
    /// Allows NULL.
    #[must_use]
    pub fn nullable(mut self) -> Column {
        self.nullable = true;
        self
    }
    /// Sets [`Column::default`].
    #[must_use]
    pub fn default_value(mut self, value: impl Into<Value>) -> Column {
        self.default = Some(value.into());
        self
    }

    /// Checks the rules for columns.
    pub(crate) fn validate(&self) -> Result<()> {
        check_name(&self.name, "a column")?;
        let Some(default) = &self.default else { return Ok(()) };
        let fits = match default.column_type() {
            Some(own) => own == self.column_type,
            None => self.nullable,
        };
        if fits {
            return Ok(());
        }
        let text = format!("the default {default} is no value of type {}", self.column_type);
        Err(Error::invalid(text).in_column(&self.name))
    }
}

/// A column of a primary key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyColumn {
    /// The name of the column.
    pub column: String,
    /// Its direction.
    pub order: Order,
}

/// Columns and primary key of a table. Columns are in the order of the calls that add them; so are
/// the columns of the key.
///
/// ```
/// use perigee_tables::{ColumnType, Schema};
/// let schema = Schema::new()
///     .key("sensor", ColumnType::U32)
///     .key_desc("at", ColumnType::Timestamp) // newest first
///     .column("value", ColumnType::F64)
///     .nullable("note", ColumnType::Text);
/// assert_eq!(schema.columns().len(), 4);
/// assert_eq!(schema.key_columns()[1].column, "at");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schema {
    columns: Vec<Column>,
    key: Vec<KeyColumn>,
    ttl: Option<Duration>,
}

impl Schema {
    /// Returns a schema without columns.
    ///
    /// ```
    /// assert!(perigee_tables::Schema::new().columns().is_empty());
    /// ```
    pub fn new() -> Schema {
        Schema::default()
    }
    /// Adds a column of the primary key, ascending.
    #[must_use]
    pub fn key(mut self, name: impl Into<String>, column_type: ColumnType) -> Schema {
        self.push_key(name.into(), column_type, Order::Ascending);
        self
    }
    /// Adds a column of the primary key, descending.
    #[must_use]
    pub fn key_desc(mut self, name: impl Into<String>, column_type: ColumnType) -> Schema {
        self.push_key(name.into(), column_type, Order::Descending);
        self
    }
    /// Adds a column that is never NULL.
    ///
    /// ```
    /// # use perigee_tables::*;
    /// let schema = Schema::new().key("id", ColumnType::U32).column("name", ColumnType::Text);
    /// assert!(!schema.columns()[1].nullable);
    /// ```
    #[must_use]
    pub fn column(self, name: impl Into<String>, column_type: ColumnType) -> Schema {
        self.add(Column::new(name, column_type))
    }
    /// Adds a column that can be NULL.
    ///
    /// ```
    /// # use perigee_tables::*;
    /// let schema = Schema::new().key("id", ColumnType::U32).nullable("note", ColumnType::Text);
    /// assert!(schema.columns()[1].nullable);
    /// ```
    #[must_use]
    pub fn nullable(self, name: impl Into<String>, column_type: ColumnType) -> Schema {
        self.add(Column::new(name, column_type).nullable())
    }
    /// Adds a column.
    #[must_use]
    pub fn add(mut self, column: Column) -> Schema {
        self.columns.push(column);
        self
    }
    /// Adds a declared column, which must not be nullable, to the end of the primary key: for keys
    /// whose columns are in another order than those of the table.
    ///
    /// ```
    /// # use perigee_tables::{Column, ColumnType, Order, Schema};
    /// let schema = Schema::new()
    ///     .column("value", ColumnType::F64)
    ///     .column("at", ColumnType::Timestamp)
    ///     .column("sensor", ColumnType::U32)
    ///     .key_column("sensor", Order::Ascending)
    ///     .key_column("at", Order::Descending);
    /// assert_eq!(schema.key_columns()[0].column, "sensor");
    /// ```
    #[must_use]
    pub fn key_column(mut self, column: impl Into<String>, order: Order) -> Schema {
        self.push_key_order(column.into(), order);
        self
    }
    /// Sets the time to live of rows that are written without one of their own (default: rows do
    /// not expire).
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Schema {
        self.ttl = Some(ttl);
        self
    }
    pub(crate) fn set_ttl(&mut self, ttl: Option<Duration>) {
        self.ttl = ttl;
    }
    pub(crate) fn push_key(&mut self, name: String, column_type: ColumnType, order: Order) {
        self.key.push(KeyColumn { column: name.clone(), order });
        self.columns.push(Column::new(name, column_type));
    }
    pub(crate) fn push_column(&mut self, column: Column) {
        self.columns.push(column);
    }
    pub(crate) fn push_key_order(&mut self, column: String, order: Order) {
        self.key.push(KeyColumn { column, order });
    }

    /// Returns all columns, in order: the values of a dynamic row are in this order.
    ///
    /// ```
    /// # use perigee_tables::{ColumnType, Schema};
    /// let schema = Schema::new().key("id", ColumnType::U64);
    /// assert_eq!(schema.columns()[0].name, "id");
    /// ```
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }
    /// Returns the columns of the primary key, in order.
    ///
    /// ```
    /// # use perigee_tables::{ColumnType, Order, Schema};
    /// let schema = Schema::new().key("id", ColumnType::U64);
    /// assert_eq!(schema.key_columns()[0].order, Order::Ascending);
    /// ```
    pub fn key_columns(&self) -> &[KeyColumn] {
        &self.key
    }
    /// Returns the default time to live of rows.
    ///
    /// ```
    /// # use perigee_tables::Schema;
    /// assert_eq!(Schema::new().default_ttl(), None);
    /// ```
    pub fn default_ttl(&self) -> Option<Duration> {
        self.ttl
    }
    /// Returns the position of the column named `name`.
    ///
    /// ```
    /// # use perigee_tables::{ColumnType, Schema};
    /// let schema = Schema::new().key("id", ColumnType::U64).column("name", ColumnType::Text);
    /// assert_eq!(schema.position("name"), Some(1));
    /// ```
    pub fn position(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|c| c.name == name)
    }

    /// Checks the rules for schemas.
    pub(crate) fn validate(&self) -> Result<()> {
        if self.key.is_empty() {
            return Err(Error::invalid("a table needs a primary key of at least one column"));
        }
        if self.key.len() > KEY_COLUMNS_MAX || self.columns.len() > COLUMNS_MAX {
            let text = format!(
                "at most {KEY_COLUMNS_MAX} columns of a primary key and {COLUMNS_MAX} columns"
            );
            return Err(Error::invalid(text));
        }
        for (i, column) in self.columns.iter().enumerate() {
            column.validate()?;
            if self.columns[..i].iter().any(|earlier| earlier.name == column.name) {
                return Err(Error::invalid("two columns of this name").in_column(&column.name));
            }
        }
        for (i, key) in self.key.iter().enumerate() {
            if self.key[..i].iter().any(|earlier| earlier.column == key.column) {
                let text = "the primary key contains the column twice";
                return Err(Error::invalid(text).in_column(&key.column));
            }
            let column = self.columns.iter().find(|c| c.name == key.column);
            let Some(column) = column else {
                let text = "the primary key names a column that the table does not have";
                return Err(Error::invalid(text).in_column(&key.column));
            };
            if column.nullable {
                let text = "a column of a primary key cannot be NULL: declare it without Option";
                return Err(Error::invalid(text).in_column(&key.column));
            }
        }
        Ok(())
    }
}

pub(crate) fn check_name(name: &str, what: &str) -> Result<()> {
    if name.is_empty() || name.len() > COLUMN_NAME_BYTES_MAX || name.contains('\0') {
        let text = format!(
            "the name {name:?} of {what} is empty, longer than {COLUMN_NAME_BYTES_MAX} bytes, or \
             contains NUL"
        );
        return Err(Error::invalid(text));
    }
    Ok(())
}

/// The definition of a secondary index. Its entries are ordered by its columns, then by the primary
/// key. NULL comes first in ascending columns and last in descending ones.
///
/// In a unique index no two rows have the same values in all its columns; rows with a NULL in one
/// of them do not conflict.
///
/// ```
/// use perigee_tables::IndexDef;
/// let by_name = IndexDef::new("by_name").column("last_name").column("first_name").unique();
/// let newest = IndexDef::new("newest").column_desc("at");
/// assert_eq!((by_name.columns().len(), newest.is_unique()), (2, false));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexDef {
    name: String,
    columns: Vec<KeyColumn>,
    unique: bool,
}

impl IndexDef {
    /// Returns the definition of an index without columns.
    ///
    /// ```
    /// assert_eq!(perigee_tables::IndexDef::new("by_name").name(), "by_name");
    /// ```
    pub fn new(name: impl Into<String>) -> IndexDef {
        IndexDef { name: name.into(), columns: Vec::new(), unique: false }
    }
    /// Adds a column, ascending.
    ///
    /// ```
    /// # use perigee_tables::*;
    /// let index = IndexDef::new("by_name").column("name");
    /// assert_eq!(index.columns()[0].order, Order::Ascending);
    /// ```
    #[must_use]
    pub fn column(self, name: impl Into<String>) -> IndexDef {
        self.add(name, Order::Ascending)
    }
    /// Adds a column, descending.
    ///
    /// ```
    /// # use perigee_tables::*;
    /// let index = IndexDef::new("newest").column_desc("at");
    /// assert_eq!(index.columns()[0].order, Order::Descending);
    /// ```
    #[must_use]
    pub fn column_desc(self, name: impl Into<String>) -> IndexDef {
        self.add(name, Order::Descending)
    }
    /// Adds a column.
    #[must_use]
    pub fn add(mut self, name: impl Into<String>, order: Order) -> IndexDef {
        self.columns.push(KeyColumn { column: name.into(), order });
        self
    }
    /// Makes the index unique.
    #[must_use]
    pub fn unique(mut self) -> IndexDef {
        self.unique = true;
        self
    }
    /// Returns the name.
    ///
    /// ```
    /// # use perigee_tables::IndexDef;
    /// assert_eq!(IndexDef::new("by_name").name(), "by_name");
    /// ```
    pub fn name(&self) -> &str {
        &self.name
    }
    /// Returns the columns, in order.
    ///
    /// ```
    /// # use perigee_tables::IndexDef;
    /// assert_eq!(IndexDef::new("by_name").column("name").columns()[0].column, "name");
    /// ```
    pub fn columns(&self) -> &[KeyColumn] {
        &self.columns
    }
    /// Returns true for a unique index.
    ///
    /// ```
    /// # use perigee_tables::IndexDef;
    /// assert!(IndexDef::new("by_name").column("name").unique().is_unique());
    /// ```
    pub fn is_unique(&self) -> bool {
        self.unique
    }

    /// Checks the rules for indexes.
    pub(crate) fn validate(&self) -> Result<()> {
        check_name(&self.name, "an index")?;
        if self.columns.is_empty() || self.columns.len() > INDEX_COLUMNS_MAX {
            let text = format!("an index has 1 to {INDEX_COLUMNS_MAX} columns");
            return Err(Error::invalid(text).in_index(&self.name));
        }
        for (i, column) in self.columns.iter().enumerate() {
            if self.columns[..i].iter().any(|earlier| earlier.column == column.column) {
                let error = Error::invalid("the index contains the column twice");
                return Err(error.in_index(&self.name).in_column(&column.column));
            }
        }
        Ok(())
    }
}
