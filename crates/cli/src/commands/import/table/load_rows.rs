//! Loads rows of files, and of other sources, into a table. All become visible at once, or none.

use crate::failure::{Failure, Result};
use crate::table_formats::value_text::{parse_json, parse_text};
use perigee_tables::{
    Column, ColumnType, DynTable, ErrorKind, IndexDef, Schema, TableLoadReport, Value,
};

use super::row_source::{CellKind, ColumnNames, InputRow, RowSource};

/// Receives the values of a row, and a function that returns where it is; returns false to end the
/// reading.
pub type ValuesVisitor<'v> = dyn FnMut(&Vec<Value>, &dyn Fn() -> String) -> Result<bool> + 'v;

/// Passes all rows to a visitor. The first argument describes the action for the progress bar.
pub type ReadValues<'r> = dyn Fn(&'static str, &mut ValuesVisitor<'_>) -> Result<()> + 'r;

/// Reads all rows of files into the table.
pub fn load_rows(rows: &RowSource, table: &DynTable) -> Result<TableLoadReport> {
    let schema = table.schema();
    let read = |action: &'static str, visit: &mut ValuesVisitor<'_>| {
        rows.read_rows(action, &mut column_names(&schema), &mut |row| {
            visit(&row_values(row, &schema)?, &|| row.location())
        })
    };
    load_values(table, false, !rows.is_stream(), &read)
}

/// Loads all rows that `read` passes. `sorted`: they are in the order of their key. `repeatable`:
/// they can be read again, to find those with the same key.
pub fn load_values(
    table: &DynTable,
    sorted: bool,
    repeatable: bool,
    read: &ReadValues<'_>,
) -> Result<TableLoadReport> {
    let mut load = table.begin_load()?;
    if sorted {
        load = load.sorted();
    }
    read("importing", &mut |values, location| {
        load.push(values).map_err(|e| push_failure(&location(), e))?;
        Ok(true)
    })?;
    load.finish().map_err(|e| match e.duplicate_rows() {
        Some(pair) if repeatable => duplicate_failure(table, read, pair, e),
        _ => e.into(),
    })
}

fn column_names(schema: &Schema) -> ColumnNames {
    let names: Vec<String> = schema.columns().iter().map(|c| c.name.clone()).collect();
    ColumnNames::fixed(&names)
}

/// Returns the values of all columns of a row.
fn row_values(row: &InputRow<'_>, schema: &Schema) -> Result<Vec<Value>> {
    let columns = schema.columns().iter().enumerate();
    let value = |(i, column): (usize, &Column)| {
        cell_value(row.cell(i), column).map_err(|reason| {
            Failure::usage(format!("{}, column {:?}: {reason}", row.location(), column.name)).hint(
                "correct the row, or give another type with --columns 'NAME:TYPE' (`?` after the \
                 type allows NULL)",
            )
        })
    };
    columns.map(value).collect()
}

fn cell_value(
    (kind, text): (CellKind, &str),
    column: &Column,
) -> std::result::Result<Value, String> {
    let value = match kind {
        CellKind::Null => Value::Null,
        // Many programs do not quote empty texts.
        CellKind::Empty if column.nullable => Value::Null,
        CellKind::Empty => match column.column_type {
            ColumnType::Text | ColumnType::Bytes => parse_text(column.column_type, "")?,
            _ => Value::Null,
        },
        CellKind::Text => parse_text(column.column_type, text)?,
        CellKind::Json => parse_json(column.column_type, text)?,
    };
    match (&value, &column.default) {
        (Value::Null, Some(default)) if !column.nullable => Ok(default.clone()),
        (Value::Null, None) if !column.nullable => Err("there is no value".to_owned()),
        _ => Ok(value),
    }
}

/// Returns the error for a row that the load refuses.
fn push_failure(location: &str, e: perigee_tables::Error) -> Failure {
    match e.kind() {
        ErrorKind::KeyExists | ErrorKind::UniqueViolation | ErrorKind::InvalidArgument => {
            Failure::other(e.kind().name(), format!("{location}: {e}"))
        }
        _ => e.into(),
    }
}

/// Returns the error for two rows with the same key: reads the rows again to find where they are.
fn duplicate_failure(
    table: &DynTable,
    read: &ReadValues<'_>,
    (first, second): (u64, u64),
    e: perigee_tables::Error,
) -> Failure {
    let mut found = Vec::new();
    let mut number = 0;
    let result = read("finding the duplicates", &mut |values, location| {
        if number == first || number == second {
            found.push((location(), values.clone()));
        }
        number += 1;
        Ok(found.len() < 2)
    });
    let (Ok(()), [(place, row), (other_place, other_row)]) = (result, &found[..]) else {
        return e.into();
    };
    let indexes = table.indexes().unwrap_or_default();
    let what = describe_duplicate(&table.schema(), &indexes, row, other_row);
    let message = format!(
        "table {:?}: {place} and {other_place} have the same {what}; nothing was imported",
        table.name()
    );
    Failure::other(ErrorKind::KeyExists.name(), message)
        .hint("remove one of the rows, or choose another key")
}

/// Returns what two rows have in common that must be unique, with its values.
fn describe_duplicate(
    schema: &Schema,
    indexes: &[IndexDef],
    first: &[Value],
    second: &[Value],
) -> String {
    let values = |columns: &[perigee_tables::KeyColumn], row: &[Value]| -> Vec<Value> {
        let positions = columns.iter().filter_map(|c| schema.position(&c.column));
        positions.map(|i| row[i].clone()).collect()
    };
    let text = |values: &[Value]| {
        let texts: Vec<String> = values.iter().map(ToString::to_string).collect();
        format!("({})", texts.join(", "))
    };
    let key = values(schema.key_columns(), first);
    if key == values(schema.key_columns(), second) {
        return format!("primary key {}", text(&key));
    }
    for index in indexes.iter().filter(|i| i.is_unique()) {
        let entry = values(index.columns(), first);
        // Unique indexes accept any number of rows with NULL.
        let has_null = entry.iter().any(Value::is_null);
        if !has_null && entry == values(index.columns(), second) {
            return format!("values {} in the unique index {:?}", text(&entry), index.name());
        }
    }
    "primary key or values in a unique index".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_cells_become_null_or_empty_text() {
        let column = |t: ColumnType| Column::new("c", t);
        let empty = (CellKind::Empty, "");
        assert_eq!(cell_value(empty, &column(ColumnType::Text)), Ok(Value::from("")));
        assert_eq!(cell_value(empty, &column(ColumnType::Text).nullable()), Ok(Value::Null));
        assert_eq!(
            cell_value((CellKind::Text, ""), &column(ColumnType::Text).nullable()),
            Ok(Value::from(""))
        );
        assert!(cell_value(empty, &column(ColumnType::I64)).is_err());
        let with_default = column(ColumnType::I64).default_value(5i64);
        assert_eq!(cell_value(empty, &with_default), Ok(Value::I64(5)));
    }

    #[test]
    fn duplicates_are_described() {
        let schema = Schema::new().key("id", ColumnType::U32).column("mail", ColumnType::Text);
        let index = IndexDef::new("by_mail").column("mail").unique();
        let row = |id: u32, mail: &str| vec![id.into(), mail.into()];
        let describe = |a: Vec<Value>, b: Vec<Value>| {
            describe_duplicate(&schema, std::slice::from_ref(&index), &a, &b)
        };
        assert_eq!(describe(row(1, "a"), row(1, "b")), "primary key (1)");
        assert_eq!(
            describe(row(1, "a"), row(2, "a")),
            "values (\"a\") in the unique index \"by_mail\""
        );
    }

    #[test]
    fn null_is_no_duplicate() {
        let schema = Schema::new()
            .key("id", ColumnType::U32)
            .nullable("mail", ColumnType::Text)
            .column("name", ColumnType::Text);
        let index = |name: &str, column: &str| IndexDef::new(name).column(column).unique();
        let indexes = [index("by_mail", "mail"), index("by_name", "name")];
        let row = |id: u32| vec![id.into(), Value::Null, "ann".into()];
        assert_eq!(
            describe_duplicate(&schema, &indexes, &row(1), &row(2)),
            "values (\"ann\") in the unique index \"by_name\""
        );
    }
}
