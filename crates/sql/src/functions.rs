//! Functions that clients of PostgreSQL call at connect.

use crate::constants::{CATALOG, POSTGRES_VERSION, SCHEMA};
use crate::pg_catalog::relations::RelationCache;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{ColumnarValue, Volatility, create_udf};
use datafusion::prelude::SessionContext;
use std::sync::Arc;

/// Adds the functions to a session.
pub fn register(context: &SessionContext, relations: &Arc<RelationCache>) {
    crate::pg_catalog::functions::register(context, relations);
    let version =
        format!("PostgreSQL {POSTGRES_VERSION} compatible: Perigee {}", env!("CARGO_PKG_VERSION"));
    let constants = [
        ("version", version),
        ("current_schema", SCHEMA.to_owned()),
        ("current_database", CATALOG.to_owned()),
        ("current_catalog", CATALOG.to_owned()),
    ];
    for (name, text) in constants {
        let value = move |_: &[ColumnarValue]| {
            Ok(ColumnarValue::Scalar(ScalarValue::Utf8(Some(text.clone()))))
        };
        let arguments = Vec::new();
        let function =
            create_udf(name, arguments, DataType::Utf8, Volatility::Immutable, Arc::new(value));
        context.register_udf(function);
    }
}
