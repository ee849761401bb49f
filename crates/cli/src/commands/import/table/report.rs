//! The summary of an import into tables, as text and as JSON.

use crate::failure::Result;
use crate::output::{Output, table};
use crate::size;
use crate::table_formats::schema_text::{format_columns, format_ordered_columns};
use crate::text::escape;
use perigee_tables::{IndexDef, Schema};
use serde_json::{Value, json};

/// A table that was imported.
#[derive(Debug)]
pub struct ImportedTable {
    pub name: String,
    pub schema: Schema,
    pub indexes: Vec<IndexDef>,
    /// Number of rows.
    pub rows: u64,
    /// Bytes of rows and index entries before compression.
    pub bytes: u64,
}

/// Something of the source that has no counterpart.
#[derive(Debug)]
pub struct NotImported {
    /// What it is, such as "view".
    pub kind: &'static str,
    pub name: String,
    /// The table that it belongs to.
    pub table: Option<String>,
    pub reason: String,
}

/// A column whose values have several types, and got the widest of them.
#[derive(Debug)]
pub struct WidenedColumn {
    pub table: String,
    pub column: String,
    /// The type that it got, and why.
    pub reason: String,
}

/// Summary of an import.
#[derive(Debug)]
pub struct ImportReport {
    /// Description of the source, if it is a database.
    pub source: Option<String>,
    pub tables: Vec<ImportedTable>,
    pub not_imported: Vec<NotImported>,
    pub widened: Vec<WidenedColumn>,
    pub disk_bytes: u64,
    pub seconds: f64,
}

impl ImportReport {
    /// Prints the summary.
    pub fn print(&self, out: &mut Output) -> Result<()> {
        if out.json { out.json_line(&self.json()) } else { self.print_text(out) }
    }

    fn json(&self) -> Value {
        let table_json = |t: &ImportedTable| {
            let indexes: Vec<Value> = t
                .indexes
                .iter()
                .map(|i| json!({"name": i.name(), "unique": i.is_unique(), "columns": format_ordered_columns(i.columns())}))
                .collect();
            json!({
                "name": t.name, "rows": t.rows, "bytes": t.bytes,
                "columns": format_columns(&t.schema),
                "key": format_ordered_columns(t.schema.key_columns()), "indexes": indexes,
            })
        };
        let not_imported = |n: &NotImported| json!({"kind": n.kind, "name": n.name, "table": n.table, "reason": n.reason});
        let widened =
            |w: &WidenedColumn| json!({"table": w.table, "column": w.column, "reason": w.reason});
        json!({"imported": {
            "source": self.source,
            "tables": self.tables.iter().map(table_json).collect::<Vec<_>>(),
            "rows": self.rows(),
            "not_imported": self.not_imported.iter().map(not_imported).collect::<Vec<_>>(),
            "widened": self.widened.iter().map(widened).collect::<Vec<_>>(),
            "seconds": self.seconds, "disk_bytes": self.disk_bytes,
            "process": crate::process::read_usage("self").json(),
        }})
    }

    fn rows(&self) -> u64 {
        self.tables.iter().map(|t| t.rows).sum()
    }

    fn print_text(&self, out: &mut Output) -> Result<()> {
        let rows = self.rows();
        let rate = if self.seconds > 0.0 { rows as f64 / self.seconds } else { 0.0 };
        out.line(format!(
            "imported {} into {} in {:.2} s ({} rows/s); {} on disk",
            size::plural(rows, "row", "rows"),
            size::plural(self.tables.len() as u64, "table", "tables"),
            self.seconds,
            size::count(rate as u64),
            size::bytes(self.disk_bytes),
        ))?;
        if let (None, [only]) = (&self.source, &self.tables[..]) {
            let columns = format_columns(&only.schema);
            out.line(format!("columns: {}", escape(columns.as_bytes())))?;
            let key = format_ordered_columns(only.schema.key_columns());
            return out.line(format!("key: {}", escape(key.as_bytes())));
        }
        let mut t = table(&["table", ">rows", "key", "indexes"]);
        for imported in &self.tables {
            let indexes: Vec<&str> = imported.indexes.iter().map(IndexDef::name).collect();
            let key = format_ordered_columns(imported.schema.key_columns());
            t.add_row([
                escape(imported.name.as_bytes()),
                size::count(imported.rows),
                escape(key.as_bytes()),
                escape(indexes.join(", ").as_bytes()),
            ]);
        }
        out.line("")?;
        out.line(t.trim_fmt())?;
        self.print_notes(out)
    }

    fn print_notes(&self, out: &mut Output) -> Result<()> {
        for w in &self.widened {
            let (table, column) = (escape(w.table.as_bytes()), escape(w.column.as_bytes()));
            out.line(format!("column {column} of {table}: {}", w.reason))?;
        }
        for n in &self.not_imported {
            let of = n.table.as_ref().map(|t| format!(" of {}", escape(t.as_bytes())));
            let name = escape(n.name.as_bytes());
            out.line(format!(
                "not imported: {} {name}{}: {}",
                n.kind,
                of.unwrap_or_default(),
                n.reason
            ))?;
        }
        Ok(())
    }
}
