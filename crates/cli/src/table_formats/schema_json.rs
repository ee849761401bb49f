//! Schemas as JSON: the output of `perigee tables --json`, which `import --schema` reads.

use crate::failure::{Failure, Result, show_path};
use perigee_tables::{
    Column, ColumnType, IndexDef, IndexState, KeyColumn, Order, Schema, TableInfo,
};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

use super::value_text;

/// Columns, key, indexes and time to live of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableDefinition {
    /// Columns, key, time to live.
    pub schema: Schema,
    /// The secondary indexes.
    pub indexes: Vec<IndexDef>,
}

/// Returns a table as JSON.
pub fn table_json(table: &TableInfo) -> Value {
    let indexes = table.indexes.iter().zip(&table.index_states);
    json!({
        "name": table.name,
        "columns": table.schema.columns().iter().map(column_json).collect::<Vec<_>>(),
        "key": ordered_json(table.schema.key_columns()),
        "indexes": indexes.map(|(index, state)| index_json(index, state)).collect::<Vec<_>>(),
        "ttl_ms": table.schema.default_ttl().map(|ttl| ttl.as_millis() as u64),
        "estimated_rows": table.rows,
        "bytes": table.bytes,
        "disk_bytes": table.disk_bytes,
    })
}

fn column_json(column: &Column) -> Value {
    json!({
        "name": column.name, "type": column.column_type.name(), "nullable": column.nullable,
        "default": column.default.as_ref().and_then(value_text::to_text),
    })
}

fn ordered_json(columns: &[KeyColumn]) -> Vec<Value> {
    let order = |c: &KeyColumn| if c.order == Order::Descending { "desc" } else { "asc" };
    columns.iter().map(|c| json!({"column": c.column, "order": order(c)})).collect()
}

fn index_json(index: &IndexDef, state: &IndexState) -> Value {
    json!({
        "name": index.name(), "columns": ordered_json(index.columns()),
        "unique": index.is_unique(), "state": state_name(state),
        "estimated_entries": state.entries, "bytes": state.bytes,
    })
}

/// Returns the state of an index as a word.
pub fn state_name(state: &IndexState) -> &'static str {
    if state.ready { "ready" } else { "building" }
}

/// Reads a definition from a file with the output of `perigee tables DB NAME --json`.
pub fn read_definition(path: &Path) -> Result<TableDefinition> {
    let text = std::fs::read_to_string(path).map_err(|e| Failure::file("read", path, &e))?;
    let value: std::result::Result<Value, _> = serde_json::from_str(&text);
    let definition = value.map_err(|e| e.to_string()).and_then(|value| parse_definition(&value));
    definition.map_err(|reason| {
        Failure::usage(format!("{}: {reason}", show_path(path)))
            .hint("write the schema of a table with `perigee tables DB NAME --json`")
    })
}

type Parsed<T> = std::result::Result<T, String>;

fn list<'a>(value: &'a Value, name: &str) -> Parsed<&'a Vec<Value>> {
    value[name].as_array().ok_or_else(|| format!("there is no list {name:?}"))
}

fn text<'a>(value: &'a Value, name: &str) -> Parsed<&'a str> {
    value[name].as_str().ok_or_else(|| format!("there is no text {name:?} in {value}"))
}

fn parse_definition(value: &Value) -> Parsed<TableDefinition> {
    let mut schema = Schema::new();
    for column in list(value, "columns")? {
        schema = schema.add(parse_column(column)?);
    }
    for key in list(value, "key")? {
        schema = schema.key_column(text(key, "column")?, parse_order(key)?);
    }
    if let Some(ttl_ms) = value["ttl_ms"].as_u64() {
        schema = schema.ttl(Duration::from_millis(ttl_ms));
    }
    let indexes = list(value, "indexes")?.iter().map(parse_index).collect::<Parsed<_>>()?;
    Ok(TableDefinition { schema, indexes })
}

fn parse_column(value: &Value) -> Parsed<Column> {
    let (name, type_name) = (text(value, "name")?, text(value, "type")?);
    let column_type = ColumnType::from_name(type_name)
        .ok_or_else(|| format!("there is no type {type_name:?}"))?;
    let mut column = Column::new(name, column_type);
    if value["nullable"] == true {
        column = column.nullable();
    }
    if let Some(default) = value["default"].as_str() {
        column = column.default_value(value_text::parse_text(column_type, default)?);
    }
    Ok(column)
}

fn parse_order(value: &Value) -> Parsed<Order> {
    match value["order"].as_str() {
        None | Some("asc") => Ok(Order::Ascending),
        Some("desc") => Ok(Order::Descending),
        Some(other) => Err(format!("the order {other:?} is neither asc nor desc")),
    }
}

fn parse_index(value: &Value) -> Parsed<IndexDef> {
    let mut index = IndexDef::new(text(value, "name")?);
    for column in list(value, "columns")? {
        index = index.add(text(column, "column")?, parse_order(column)?);
    }
    Ok(if value["unique"] == true { index.unique() } else { index })
}
