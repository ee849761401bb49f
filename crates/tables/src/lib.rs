//! **Tables** of rows over [`perigee`]: typed rows of structs, dynamic rows for programs that know
//! their schema at run time only, secondary indexes, transactions, snapshots, bulk loads and a
//! change feed.
//!
//! Import [`TableDb`] to call its methods on [`perigee::Db`]. `docs/tables.md` describes columns,
//! keys, isolation, errors and limits.
//!
//! ```
//! use perigee_tables::{IndexDef, Row, TableDb, Timestamp};
//!
//! #[derive(Row, Debug)]
//! struct Reading {
//!     #[key]
//!     sensor: u32,
//!     #[key]
//!     at: Timestamp,
//!     value: f64,
//!     note: Option<String>,
//! }
//! # let db = perigee::example_db()?;
//! let readings = db.table::<Reading>("readings")?; // created, or compared with the stored schema
//! readings.create_index(IndexDef::new("by_value").column("value"))?;
//! db.write_tables(|tx| {
//!     for second in 0..60 {
//!         let at = Timestamp::from_secs(second);
//!         let value = second as f64 / 10.0;
//!         tx.on(&readings).insert(&Reading { sensor: 7, at, value, note: None })?;
//!     }
//!     Ok(())
//! })?;
//! let newest = readings.prefix(7)?.rev().next().expect("there are rows")?;
//! assert_eq!(newest.value, 5.9);
//! assert_eq!(readings.index("by_value")?.range(5.0..)?.count(), 10);
//! # Ok::<(), perigee_tables::Error>(())
//! ```
//!
//! # Items by subject
//! | subject | items |
//! |---|---|
//! | tables | [`TableDb`], [`Table`], [`DynTable`], [`TableInfo`], [`IndexState`] |
//! | rows and columns | [`Row`], [`ColumnValue`], [`Value`], [`ColumnType`], [`Timestamp`], [`Uuid`] |
//! | keys | [`KeyValue`], [`PrimaryKey`], [`KeyPrefix`], [`FullKey`], [`KeyPart`], [`Order`] |
//! | schemas | [`Schema`], [`Column`], [`KeyColumn`], [`SchemaChange`] |
//! | indexes | [`IndexDef`], [`TableIndex`], [`IndexPrefix`] |
//! | transactions and snapshots | [`TableTxn`], [`TxnTable`], [`TableAt`] |
//! | iterators | [`RowIter`], [`IndexIter`] |
//! | bulk loads and change feed | [`TableLoad`], [`TableLoadReport`], [`StagedTable`], [`RowFeed`], [`RowChange`], [`RowEvent`] |
//! | columnar batches (features `arrow`, `parquet`) | `BatchScan`, `BatchIter`, `rows_from_batch`, `export_parquet`, `ParquetRows` |
//! | errors | [`Error`], [`ErrorKind`], [`Result`] |
//!
//! # Errors of the derive macro
//! ```compile_fail
//! #[derive(perigee_tables::Row)]
//! struct WithoutKey { name: String } // a row needs a primary key
//! ```
//! ```compile_fail
//! #[derive(perigee_tables::Row)]
//! struct NullableKey { #[key] id: Option<u32> } // cannot be the type of a key column
//! ```
//! ```compile_fail
//! #[derive(perigee_tables::Row)]
//! struct Unknown { #[key] id: u32, #[row(name = "x")] y: u32 } // expected rename or default
//! ```
//! ```compile_fail
//! #[derive(perigee_tables::Row)]
//! struct WrongType { #[key] id: u32, words: Vec<String> } // cannot be the type of a column
//! ```
//! ```compile_fail
//! #[derive(perigee_tables::Row)]
//! struct TwiceNamed { #[key] id: u32, #[row(rename = "id")] other: u32 } // the same column name
//! ```
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
#[cfg(feature = "arrow")]
mod arrow;
mod row_writes;
mod table;
mod index_build;
mod load;
mod feed;
mod database;
mod fuzz;
#[cfg(test)]
mod testing;

#[cfg(feature = "parquet")]
pub use arrow::parquet::{ParquetReport, ParquetRows, export_parquet};
#[cfg(feature = "arrow")]
pub use arrow::rows::rows_from_batch;
#[cfg(feature = "arrow")]
pub use arrow::scan::{BatchIter, BatchReader, BatchScan};
#[cfg(feature = "arrow")]
pub use arrow::types::UuidFormat;
pub use column::{ColumnValue, KeyValue};
pub use database::{IndexState, TableDb, TableInfo};
pub use error::{Error, ErrorKind, Result};
pub use feed::{RowChange, RowEvent, RowFeed};
#[doc(hidden)]
pub use fuzz::{fuzz_row, fuzz_schema, row_sample, schema_sample};
pub use index_reads::{IndexIter, TableIndex};
pub use key::{FullKey, IndexPrefix, KeyPart, KeyPrefix, PrimaryKey};
pub use load::staged::StagedTable;
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
