//! x
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod limits;
mod error;
mod value;
mod ordered;
mod row_format;
mod column;
#[cfg(test)]
mod testing;

pub use column::{ColumnValue, KeyValue};
pub use error::{Error, ErrorKind, Result};
pub use ordered::Order;
pub use value::{ColumnType, ParseUuidError, Timestamp, Uuid, Value};
