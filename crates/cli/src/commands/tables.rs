//! `perigee tables`: lists the tables of a database, or describes one.

use crate::database_args::DatabaseArg;
use crate::failure::{Failure, Result};
use crate::output::{Output, table};
use crate::size::{bytes, count};
use crate::table_formats::schema_json::{state_name, table_json};
use crate::table_formats::schema_text::format_ordered_columns;
use crate::table_formats::value_text;
use crate::text::escape;
use clap::Args;
use perigee_tables::{ErrorKind, TableDb, TableInfo};
use serde_json::{Value, json};
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  perigee tables ./db
  perigee tables ./db people                  columns and indexes of one table
  perigee tables ./db --json | jq '.tables[].name'
  perigee tables ./db people --json > people.schema.json
  perigee import ./other --table people --schema people.schema.json people.csv

Numbers of rows and bytes are estimates. An index in the state `building` is maintained, but \
cannot be read until its build is run again. Tables are stored in column families named \
@table/NAME; `perigee sst` and `perigee levels` show their files.";

/// List the tables with columns, keys, indexes, rows and bytes, or describe one table
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct TablesArgs {
    #[command(flatten)]
    database: DatabaseArg,
    /// Describe this table only
    #[arg(value_name = "NAME")]
    table: Option<String>,
}

/// Prints the list of tables or the description of one.
pub fn run(args: &TablesArgs, out: &mut Output) -> Result<u8> {
    let db = args.database.open_read_only()?;
    let tables = db.tables()?;
    db.close()?;
    match &args.table {
        Some(name) => {
            let info = tables.iter().find(|t| t.name == *name).ok_or_else(|| missing(name))?;
            if out.json { out.json_line(&table_json(info))? } else { print_table(info, out)? }
        }
        None if out.json => {
            let tables: Vec<Value> = tables.iter().map(table_json).collect();
            out.json_line(&json!({"tables": tables}))?;
        }
        None => print_list(&tables, out)?,
    }
    Ok(0)
}

/// Returns the error for a table that does not exist.
pub fn missing(name: &str) -> Failure {
    Failure::other(ErrorKind::NotFound.name(), format!("there is no table {name:?}"))
        .hint("`perigee tables DB` lists the tables")
}

fn print_list(tables: &[TableInfo], out: &mut Output) -> Result<()> {
    if tables.is_empty() {
        return out.line("no tables");
    }
    let mut t = table(&["table", ">rows", ">on disk", ">columns", "key", "indexes"]);
    for info in tables {
        t.add_row([
            escape(info.name.as_bytes()),
            count(info.rows),
            bytes(info.disk_bytes),
            info.schema.columns().len().to_string(),
            escape(format_ordered_columns(info.schema.key_columns()).as_bytes()),
            indexes_text(info),
        ]);
    }
    out.line(t.trim_fmt())
}

/// Returns the names of the indexes, with the state of those that cannot be read.
fn indexes_text(info: &TableInfo) -> String {
    let name = |(index, state): (&perigee_tables::IndexDef, &perigee_tables::IndexState)| {
        let name = escape(index.name().as_bytes());
        if state.ready { name } else { format!("{name} ({})", state_name(state)) }
    };
    let names: Vec<_> = info.indexes.iter().zip(&info.index_states).map(name).collect();
    names.join(", ")
}

fn print_table(info: &TableInfo, out: &mut Output) -> Result<()> {
    let mut t = table(&["table", ""]);
    t.add_row(["name", &escape(info.name.as_bytes())]);
    t.add_row(["rows (estimated)", &count(info.rows)]);
    t.add_row(["on disk", &bytes(info.disk_bytes)]);
    t.add_row(["in the log", &bytes(info.bytes - info.disk_bytes)]);
    let key = format_ordered_columns(info.schema.key_columns());
    t.add_row(["key", &escape(key.as_bytes())]);
    let ttl = info.schema.default_ttl().map_or("none".to_owned(), ttl_text);
    t.add_row(["time to live", &ttl]);
    out.line(t.trim_fmt())?;
    out.line("")?;
    print_columns(info, out)?;
    if info.indexes.is_empty() {
        return Ok(());
    }
    out.line("")?;
    let mut t = table(&["index", "columns", "unique", "state", ">entries", ">size"]);
    for (index, state) in info.indexes.iter().zip(&info.index_states) {
        t.add_row([
            escape(index.name().as_bytes()),
            escape(format_ordered_columns(index.columns()).as_bytes()),
            if index.is_unique() { "yes" } else { "no" }.to_owned(),
            state_name(state).to_owned(),
            count(state.entries),
            bytes(state.bytes),
        ]);
    }
    out.line(t.trim_fmt())
}

fn print_columns(info: &TableInfo, out: &mut Output) -> Result<()> {
    let mut t = table(&["column", "type", "nullable", "key", "default"]);
    for column in info.schema.columns() {
        let key = info.schema.key_columns().iter().position(|k| k.column == column.name);
        let default = column.default.as_ref().and_then(value_text::to_text);
        t.add_row([
            escape(column.name.as_bytes()),
            column.column_type.name().to_owned(),
            if column.nullable { "yes" } else { "no" }.to_owned(),
            key.map_or(String::new(), |i| (i + 1).to_string()),
            default.map_or(String::new(), |text| escape(text.as_bytes())),
        ]);
    }
    out.line(t.trim_fmt())
}

fn ttl_text(ttl: Duration) -> String {
    format!("{} s", ttl.as_secs_f64())
}
