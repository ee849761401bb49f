//! Writes the rows of a table as JSON lines or CSV, or as Parquet (`parquet`).
//! `table_formats::value_text` defines how values are written as text.

use crate::failure::{Failure, Result, show_path};
use crate::output::Output;
use crate::progress::Progress;
use crate::size;
use crate::table_formats::schema_text::{format_columns, format_ordered_columns};
use crate::table_formats::value_text::{to_text, write_json_value};
use crate::text::{escape, write_json};
use perigee_tables::{Column, DynTable, Schema, TableDb, Value};
use serde_json::json;
use std::io::Write;

use super::{ExportArgs, Format, write_target};
use crate::commands::tables::missing;

/// Writes all rows and prints a summary, unless they go to stdout.
pub fn run(args: &ExportArgs, name: &str, out: &mut Output) -> Result<u8> {
    let to_stdout = args.target.as_os_str() == "-";
    let format = args.format.unwrap_or_else(|| super::format_of_target(&args.target));
    if format == Format::Tree {
        return Err(Failure::usage("rows of a table cannot be written as a tree of files")
            .hint("specify a file that ends in .csv, .jsonl or .parquet, or --format"));
    }
    #[cfg(not(feature = "parquet"))]
    if format == Format::Parquet {
        return Err(Failure::missing_feature("write Parquet files", "parquet"));
    }
    let db = args.database.open_read_only()?;
    let table = db.dyn_table(name).map_err(|e| match e.kind() {
        perigee_tables::ErrorKind::NotFound => missing(name),
        _ => e.into(),
    })?;
    let expected = db.tables()?.iter().find(|t| t.name == name).map_or(0, |t| t.rows);
    let schema = table.schema();
    let rows = write_target(&args.target, out, |writer| match format {
        #[cfg(feature = "parquet")]
        Format::Parquet => super::parquet::write_rows(&table, writer),
        _ => write_rows(&table, format, expected, writer),
    })?;
    db.close()?;
    if to_stdout { Ok(0) } else { print_summary(args, name, &schema, rows, out) }
}

fn print_summary(
    args: &ExportArgs,
    name: &str,
    schema: &Schema,
    rows: u64,
    out: &mut Output,
) -> Result<u8> {
    let (columns, key) = (format_columns(schema), format_ordered_columns(schema.key_columns()));
    let value = json!({"exported": {"table": name, "rows": rows, "columns": columns, "key": key}});
    let text = format!(
        "exported {} of table {name}\nto import them: perigee import DB {target} --table '{name}' \
         --key '{}' --columns '{}'",
        size::plural(rows, "row", "rows"),
        escape(key.as_bytes()),
        escape(columns.as_bytes()),
        name = escape(name.as_bytes()),
        target = show_path(&args.target),
    );
    out.json_or_text(&value, text)?;
    Ok(0)
}

fn write_rows(
    table: &DynTable,
    format: Format,
    expected: u64,
    writer: &mut dyn Write,
) -> Result<u64> {
    let schema = table.schema();
    let names = schema.columns().iter().map(|c| c.name.as_str());
    let mut progress = Progress::items("exporting", expected);
    let mut line = Vec::new();
    if format == Format::Csv {
        names.enumerate().for_each(|(i, name)| push_cell(i, Some(name), &mut line));
        line.push(b'\n');
        writer.write_all(&line)?;
    }
    let fields = schema.columns().iter().map(field_name).collect::<Result<Vec<_>>>()?;
    let mut rows = 0;
    for row in table.scan()? {
        let row = row?;
        line.clear();
        match format {
            Format::Csv => {
                for (i, value) in row.iter().enumerate() {
                    push_cell(i, to_text(value).as_deref(), &mut line);
                }
            }
            _ => push_object(&fields, &row, &mut line)?,
        }
        line.push(b'\n');
        writer.write_all(&line)?;
        rows += 1;
        progress.count_item();
    }
    Ok(rows)
}

/// Appends a cell, and the comma before it. `None` is NULL.
fn push_cell(position: usize, text: Option<&str>, line: &mut Vec<u8>) {
    if position > 0 {
        line.push(b',');
    }
    let Some(text) = text else { return };
    if text.is_empty() || text.contains([',', '"', '\n', '\r', '\u{feff}']) {
        line.push(b'"');
        line.extend_from_slice(text.replace('"', "\"\"").as_bytes());
        line.push(b'"');
    } else {
        line.extend_from_slice(text.as_bytes());
    }
}

/// Returns the name of a column as a JSON string.
fn field_name(column: &Column) -> Result<Vec<u8>> {
    let mut name = Vec::new();
    write_json(&column.name.as_str().into(), &mut name)?;
    Ok(name)
}

fn push_object(fields: &[Vec<u8>], row: &[Value], line: &mut Vec<u8>) -> Result<()> {
    for (i, (field, value)) in fields.iter().zip(row).enumerate() {
        line.push(if i == 0 { b'{' } else { b',' });
        line.extend_from_slice(field);
        line.push(b':');
        write_json_value(value, line)?;
    }
    line.push(b'}');
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_quoted_where_needed() {
        let mut line = Vec::new();
        for (i, cell) in [None, Some(""), Some("a b"), Some("a,\"b\"")].iter().enumerate() {
            push_cell(i, *cell, &mut line);
        }
        assert_eq!(line, b",\"\",a b,\"a,\"\"b\"\"\"");
    }

    #[test]
    fn rows_become_objects() {
        let mut line = Vec::new();
        let row = [Value::from("x\n"), Value::Null, Value::F64(f64::NAN), Value::I8(-1)];
        let fields: Vec<Vec<u8>> = ["a", "b", "c", "d"]
            .map(|name| field_name(&Column::new(name, perigee_tables::ColumnType::Text)).unwrap())
            .to_vec();
        push_object(&fields, &row, &mut line).unwrap();
        assert_eq!(line, br#"{"a":"x\n","b":null,"c":"NaN","d":-1}"#);
    }
}
