//! Results of statements as a table, CSV or JSON lines.

use crate::commands::sql::shell::sql_failure;
use crate::failure::{Failure, Result};
use crate::output::{Output, table};
use crate::text::{must_escape, put_json};
use datafusion::arrow::array::Array;
use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use futures::StreamExt;
use perigee_sql::Outcome;
use serde_json::{Map, Number, Value};
use std::io::Write;
use tokio::runtime::Runtime;

/// How rows are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowFormat {
    Table,
    Csv,
    Json,
}

/// Rows that a table prints at most before it begins a new one with its own column widths.
const TABLE_ROWS_MAX: usize = 1000;

/// Prints an outcome; rows are printed as they are read. Returns their number.
pub fn print_outcome(
    runtime: &Runtime,
    outcome: Outcome,
    format: RowFormat,
    out: &mut Output,
) -> Result<u64> {
    let (command, mut stream) = match outcome {
        Outcome::Done { command, rows } => {
            let text = rows.map_or(command.to_owned(), |rows| format!("{command} {rows}"));
            match format {
                RowFormat::Json => {
                    out.json_line(&serde_json::json!({"command": command, "rows": rows}))?;
                }
                RowFormat::Table => out.line(text)?,
                RowFormat::Csv => {}
            }
            return Ok(rows.unwrap_or(0));
        }
        Outcome::Rows { command, stream } => (command, stream),
    };
    let schema = stream.schema();
    let mut printed = 0;
    if format == RowFormat::Csv {
        write_csv(&schema.fields().iter().map(|f| f.name().clone()).collect::<Vec<_>>(), out)?;
    }
    let mut pending: Vec<Vec<String>> = Vec::new();
    let mut printed_table = false;
    while let Some(batch) = runtime.block_on(stream.next()) {
        let batch = batch.map_err(|e| sql_failure(&e.into(), ""))?;
        printed += batch.num_rows() as u64;
        let columns = batch.columns().iter().map(|array| Column::new(array));
        let columns = columns.collect::<Result<Vec<Column<'_>>>>()?;
        for row in 0..batch.num_rows() {
            match format {
                RowFormat::Json => out.json_line(&json_row(&schema, &columns, row))?,
                RowFormat::Csv => write_csv(&text_row(&columns, row, ""), out)?,
                RowFormat::Table => {
                    pending.push(text_row(&columns, row, "NULL"));
                    if pending.len() == TABLE_ROWS_MAX {
                        print_table(&schema, &std::mem::take(&mut pending), out)?;
                        printed_table = true;
                    }
                }
            }
        }
    }
    if format == RowFormat::Table {
        if !pending.is_empty() || !printed_table {
            print_table(&schema, &pending, out)?;
        }
        out.line(if printed == 1 { "(1 row)".to_owned() } else { format!("({printed} rows)") })?;
        if command != "SELECT" {
            out.line(format!("{command} {printed}"))?;
        }
    }
    Ok(printed)
}

/// Prints rows with aligned columns, numbers on the right. Plans have several lines in a cell.
fn print_table(schema: &Schema, rows: &[Vec<String>], out: &mut Output) -> Result<()> {
    let names = schema.fields().iter().map(|field| {
        let mark = if field.data_type().is_numeric() { ">" } else { "" };
        format!("{mark}{}", printable_cell(field.name()))
    });
    let names: Vec<String> = names.collect();
    let mut printed = table(&names.iter().map(String::as_str).collect::<Vec<_>>());
    for row in rows {
        printed.add_row(row.iter().map(|cell| printable_cell(cell)));
    }
    for line in printed.to_string().lines() {
        out.line(line.trim_end())?;
    }
    Ok(())
}

/// Escapes characters that would control the terminal; keeps line breaks.
fn printable_cell(cell: &str) -> String {
    let escape = |c: char| match c {
        '\n' => "\n".to_owned(),
        c if must_escape(c) => c.escape_unicode().to_string(),
        c => c.to_string(),
    };
    cell.chars().map(escape).collect()
}

/// A column of a batch, with the formatter of its values.
struct Column<'a> {
    array: &'a dyn Array,
    formatter: ArrayFormatter<'a>,
}

impl Column<'_> {
    fn new(array: &dyn Array) -> Result<Column<'_>> {
        let formatter = ArrayFormatter::try_new(array, &FormatOptions::new());
        Ok(Column { array, formatter: formatter.map_err(|e| Failure::other("sql", e))? })
    }
    /// Returns a value as text; `None` is NULL.
    fn text(&self, row: usize) -> Option<String> {
        (!self.array.is_null(row)).then(|| self.formatter.value(row).to_string())
    }
}

fn text_row(columns: &[Column<'_>], row: usize, null: &str) -> Vec<String> {
    columns.iter().map(|column| column.text(row).unwrap_or_else(|| null.to_owned())).collect()
}

/// Writes a line of CSV: cells with a comma, a quote or a line break are quoted.
fn write_csv(cells: &[String], out: &mut Output) -> Result<()> {
    for (i, cell) in cells.iter().enumerate() {
        let separator = if i > 0 { "," } else { "" };
        if cell.contains([',', '"', '\n', '\r']) {
            write!(out, "{separator}\"{}\"", cell.replace('"', "\"\""))?;
        } else {
            write!(out, "{separator}{cell}")?;
        }
    }
    Ok(out.write_all(b"\n")?)
}

/// Returns a row as an object: numbers and booleans as such, bytes that are no text in base64.
fn json_row(schema: &Schema, columns: &[Column<'_>], row: usize) -> Value {
    let mut object = Map::new();
    for (field, column) in schema.fields().iter().zip(columns) {
        let name = field.name();
        let Some(text) = column.text(row) else {
            object.insert(name.clone(), Value::Null);
            continue;
        };
        let value = match field.data_type() {
            DataType::Boolean => Value::Bool(text == "true"),
            DataType::Binary => {
                let bytes = crate::text::unhex(text.as_bytes()).unwrap_or_default();
                put_json(&mut object, name, &bytes);
                continue;
            }
            data_type if data_type.is_numeric() => match serde_json::from_str::<Number>(&text) {
                Ok(number) => Value::Number(number),
                // NaN and infinity.
                Err(_) => Value::String(text),
            },
            _ => Value::String(text),
        };
        object.insert(name.clone(), value);
    }
    Value::Object(object)
}
