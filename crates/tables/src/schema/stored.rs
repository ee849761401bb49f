//! [`StoredSchema`]: a schema as the database keeps it, with permanent column ids, all layouts that
//! rows can have, and the indexes.

use crate::ordered::{Component, Order};
use crate::schema::{Column, IndexDef, Schema};
use crate::value::ColumnType;
use std::time::Duration;

/// The permanent number of a column; never reused within a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ColumnId(pub u32);

/// A column, possibly dropped: rows of older layouts still contain it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredColumn {
    pub id: ColumnId,
    pub name: String,
    pub column_type: ColumnType,
    pub nullable: bool,
    pub dropped: bool,
    /// The default value, encoded as in a row; `None`: NULL or no default.
    pub default: Option<Vec<u8>>,
}

/// A column of the primary key or of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderedColumn {
    pub column: ColumnId,
    pub order: Order,
}

/// Whether an index can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexStatus {
    /// Writers maintain it, but it lacks entries of older rows.
    Building,
    /// It has an entry for each row.
    Ready,
}

/// A secondary index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredIndex {
    /// First byte of the keys of its entries; reused after a drop.
    pub number: u8,
    /// Permanent id, never reused within a table.
    pub id: u32,
    pub name: String,
    pub unique: bool,
    pub status: IndexStatus,
    pub columns: Vec<OrderedColumn>,
}

/// A stored schema. Every change increments `version`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredSchema {
    pub version: u32,
    /// Default time to live of rows, in milliseconds.
    pub ttl_ms: Option<u64>,
    /// True while a bulk load runs: writers wait for its lock.
    pub loading: bool,
    pub next_column_id: u32,
    pub next_index_id: u32,
    /// All columns that the table ever had, in the order of their creation.
    pub columns: Vec<StoredColumn>,
    pub key: Vec<OrderedColumn>,
    /// The columns of each layout, in stored order; rows are written in the last layout.
    pub layouts: Vec<Vec<ColumnId>>,
    pub indexes: Vec<StoredIndex>,
}

impl StoredSchema {
    /// Returns the stored form of a new table.
    pub fn new(schema: &Schema) -> StoredSchema {
        let mut stored = StoredSchema {
            version: 1,
            ttl_ms: schema.default_ttl().map(ttl_to_ms),
            loading: false,
            next_column_id: 1,
            next_index_id: 1,
            columns: Vec::new(),
            key: Vec::new(),
            layouts: Vec::new(),
            indexes: Vec::new(),
        };
        for column in schema.columns() {
            stored.push_column(column);
        }
        for key in schema.key_columns() {
            if let Some(column) = stored.column_named(&key.column) {
                stored.key.push(OrderedColumn { column: column.id, order: key.order });
            }
        }
        stored.push_layout();
        stored
    }
    /// Adds a column with a new id.
    pub fn push_column(&mut self, column: &Column) {
        let id = ColumnId(self.next_column_id);
        self.next_column_id += 1;
        let default = column.default.as_ref().and_then(|value| value.to_stored_bytes());
        self.columns.push(StoredColumn {
            id,
            name: column.name.clone(),
            column_type: column.column_type,
            nullable: column.nullable,
            dropped: false,
            default,
        });
    }
    /// Adds a layout of the current columns outside the key: those of fixed size first, so that
    /// only the last column can be of variable size without a length.
    pub fn push_layout(&mut self) {
        let outside_key = self.visible_columns().filter(|c| !self.is_key_column(c.id));
        let (fixed, variable): (Vec<_>, Vec<_>) =
            outside_key.partition(|c| c.column_type.stored_bytes() > 0);
        let layout = fixed.iter().chain(&variable).map(|c| c.id).collect();
        self.layouts.push(layout);
    }
    /// Returns the columns that are not dropped.
    pub fn visible_columns(&self) -> impl Iterator<Item = &StoredColumn> {
        self.columns.iter().filter(|c| !c.dropped)
    }
    /// Returns the column, dropped or not.
    pub fn column(&self, id: ColumnId) -> Option<&StoredColumn> {
        self.columns.iter().find(|c| c.id == id)
    }
    /// Returns the column of this name that is not dropped.
    pub fn column_named(&self, name: &str) -> Option<&StoredColumn> {
        self.visible_columns().find(|c| c.name == name)
    }
    /// Returns true if the column belongs to the primary key.
    pub fn is_key_column(&self, id: ColumnId) -> bool {
        self.key.iter().any(|k| k.column == id)
    }
    /// Returns the index of this name.
    pub fn index_named(&self, name: &str) -> Option<&StoredIndex> {
        self.indexes.iter().find(|i| i.name == name)
    }
    /// Returns type and direction of columns of the key or an index; `None` for an unknown column.
    pub fn components(&self, columns: &[OrderedColumn]) -> Option<Vec<Component>> {
        let component = |c: &OrderedColumn| {
            let column = self.column(c.column)?;
            let StoredColumn { column_type, nullable, .. } = *column;
            Some(Component { column_type, nullable, order: c.order })
        };
        columns.iter().map(component).collect()
    }
    /// Returns the schema as a declaration.
    pub fn to_schema(&self) -> Schema {
        let mut schema = Schema::new();
        for column in self.visible_columns() {
            schema.push_column(Column {
                name: column.name.clone(),
                column_type: column.column_type,
                nullable: column.nullable,
                default: column.default_value(),
            });
        }
        for key in &self.key {
            if let Some(column) = self.column(key.column) {
                schema.push_key_order(column.name.clone(), key.order);
            }
        }
        schema.set_ttl(self.ttl_ms.map(Duration::from_millis));
        schema
    }
    /// Returns the definition of an index.
    pub fn index_def(&self, index: &StoredIndex) -> IndexDef {
        let mut def = IndexDef::new(&index.name);
        for column in &index.columns {
            let name = self.column(column.column).map_or("", |c| &c.name);
            def = def.add(name, column.order);
        }
        if index.unique { def.unique() } else { def }
    }
}

impl StoredColumn {
    /// Returns the default value.
    pub fn default_value(&self) -> Option<crate::value::Value> {
        let stored = self.default.as_deref()?;
        crate::value::Value::read_stored(self.column_type, Some(stored)).ok()
    }
}

/// Converts to milliseconds, rounded up.
pub fn ttl_to_ms(ttl: Duration) -> u64 {
    u64::try_from(ttl.as_micros().div_ceil(1000)).unwrap_or(u64::MAX)
}
