//! **Tables** of rows over [`perigee`]: typed rows from structs, dynamic rows for programs that know
//! their schema at run time only, secondary indexes, transactions, snapshots, bulk loads and a
//! change feed.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod limits;
mod error;
mod value;
mod ordered;
mod row_format;
mod column;
mod key;
mod schema;
mod binding;
mod row;
mod table_state;
mod index_entry;
mod txn;
mod row_reads;
mod index_reads;
mod row_writes;
mod table;
mod index_build;
mod load;
mod feed;
mod database;
#[cfg(test)]
mod testing;

pub use column::{ColumnValue, KeyValue};
pub use database::{TableDb, TableInfo};
pub use error::{Error, ErrorKind, Result};
pub use feed::{RowChange, RowEvent, RowFeed};
pub use index_reads::{IndexIter, IndexReader};
pub use key::{FullKey, IndexPrefix, Key, KeyPart, KeyPrefix};
pub use load::{TableLoad, TableLoadReport};
pub use ordered::Order;
pub use perigee_tables_derive::Row;
pub use row::Row;
pub use row_reads::RowIter;
pub use row_writes::TxnTable;
pub use schema::change::SchemaChange;
pub use schema::{Column, IndexDef, KeyColumn, Schema};
pub use table::{DynTable, Table, TableAt};
pub use txn::TableTxn;
pub use value::{ColumnType, ParseUuidError, Timestamp, Uuid, Value};

/// What the code that `#[derive(Row)]` generates refers to. No part of the public interface.
#[doc(hidden)]
pub mod derive_support {
    pub use crate::binding::{Binding, StoredRow};
    pub use crate::error::Malformed;
    pub use crate::ordered::{Component, KeyReader, write_component};
    pub use crate::row_format::ColumnWriter;
    use crate::{Column, ColumnValue, Order, Schema};

    /// Adds the column of a field to a schema.
    pub fn declare_column<T: ColumnValue>(
        schema: Schema,
        name: &str,
        key: Option<Order>,
        default: Option<T>,
    ) -> Schema {
        match key {
            Some(Order::Ascending) => schema.key(name, T::COLUMN_TYPE),
            Some(Order::Descending) => schema.key_desc(name, T::COLUMN_TYPE),
            None => {
                let mut column = Column::new(name, T::COLUMN_TYPE);
                column.nullable = T::NULLABLE;
                column.default = default.map(|value| value.to_value());
                schema.add(column)
            }
        }
    }
}
