//! The plan for a table: its definition, which the values of the source determine, and the
//! conversion of its rows.

use crate::failure::{Failure, Result};
use crate::progress::Progress;
use perigee_tables::{Column, ColumnType, IndexDef, Order, Schema, Value};
use rusqlite::Row;

use super::SqliteSource;
use super::source_schema::{
    SourceIndex, SourceKey, SourceKeyColumn, SourceTable, quote, unused_index_name,
};
use super::values::{StorageClasses, convert};
use crate::commands::import::table::load_rows::ValuesVisitor;
use crate::commands::import::table::report::NotImported;

/// Maximum number of columns of a primary key, and of an index.
const KEY_COLUMNS_MAX: usize = 8;
const INDEX_COLUMNS_MAX: usize = 16;
/// Names for a column with the rowid; the first that no column has.
const ROWID_COLUMN_NAMES: [&str; 4] = ["rowid", "_rowid_", "oid", "perigee_rowid"];

/// A table of the source with the definition of the new table.
pub struct TablePlan {
    source: SourceTable,
    pub schema: Schema,
    pub indexes: Vec<IndexDef>,
    /// Number of rows.
    pub rows: u64,
    classes: Vec<StorageClasses>,
    /// Name of the column with the rowid, which is the first; `None` if there is no such column.
    rowid_column: Option<String>,
}

impl TablePlan {
    /// Reads all values of a table to determine the types of its columns. Adds the indexes that
    /// cannot be created to `not_imported`.
    pub fn new(
        database: &SqliteSource,
        source: SourceTable,
        not_imported: &mut Vec<NotImported>,
    ) -> Result<TablePlan> {
        let mut classes = vec![StorageClasses::default(); source.columns.len()];
        let mut rows = 0u64;
        let progress = Progress::items("reading types", 0);
        visit_rows(database, &source, progress, &mut |row, location| {
            for (i, classes) in classes.iter_mut().enumerate() {
                let value = database.check(row.get_ref(i + 1))?;
                classes.add(value, location);
            }
            rows += 1;
            Ok(true)
        })?;
        let mut plan = TablePlan {
            source,
            schema: Schema::new(),
            indexes: Vec::new(),
            rows,
            classes,
            rowid_column: None,
        };
        plan.define_schema();
        plan.define_indexes(not_imported);
        Ok(plan)
    }
    /// Returns the name of the table.
    pub fn name(&self) -> &str {
        &self.source.name
    }
    /// Returns true if the rows are read in the order of their key.
    pub fn is_sorted(&self) -> bool {
        let key_is_rowid = matches!(self.source.key, SourceKey::Rowid(_));
        self.rowid_column.is_some() || key_is_rowid && self.source.rowid.is_some()
    }
    /// Returns the columns whose values have several types, and a description.
    pub fn widened_columns(&self) -> Vec<(String, String)> {
        let columns = self.source.columns.iter().zip(&self.classes);
        let widened = columns.filter_map(|(column, classes)| {
            let mixture = classes.describe_mixture()?;
            let column_type = classes.column_type(&column.declared_type);
            Some((
                column.name.clone(),
                format!("the values have several types, so it becomes {column_type}: {mixture}"),
            ))
        });
        widened.collect()
    }

    /// Returns the columns of the key; `None` if the rowid has to be the key, because there is no
    /// other, or it contains NULL or too many columns.
    fn key(&self) -> Option<Vec<SourceKeyColumn>> {
        match &self.source.key {
            SourceKey::Missing => None,
            SourceKey::Rowid(column) => {
                Some(vec![SourceKeyColumn { column: Some(*column), order: Order::Ascending }])
            }
            SourceKey::Columns(columns) => {
                let has_null =
                    |c: &SourceKeyColumn| c.column.is_none_or(|i| self.classes[i].nulls > 0);
                let usable = !columns.is_empty()
                    && columns.len() <= KEY_COLUMNS_MAX
                    && !columns.iter().any(has_null);
                (usable || self.source.without_rowid).then(|| columns.clone())
            }
        }
    }

    fn define_schema(&mut self) {
        let key = self.key();
        let mut schema = Schema::new();
        if key.is_none() {
            let taken = |name: &&&str| {
                self.source.columns.iter().any(|c| c.name.eq_ignore_ascii_case(name))
            };
            let free = ROWID_COLUMN_NAMES.iter().find(|name| !taken(name));
            let name = free.map_or("perigee_rowid_", |name| name).to_owned();
            schema = schema.key(&name, ColumnType::I64);
            self.rowid_column = Some(name);
        }
        let key = key.unwrap_or_default();
        for (i, (column, classes)) in self.source.columns.iter().zip(&self.classes).enumerate() {
            let in_key = key.iter().any(|k| k.column == Some(i));
            let new = Column::new(&column.name, classes.column_type(&column.declared_type));
            let nullable = !in_key && (!column.not_null || classes.nulls > 0);
            schema = schema.add(if nullable { new.nullable() } else { new });
        }
        for SourceKeyColumn { column, order } in key {
            if let Some(i) = column {
                schema = schema.key_column(&self.source.columns[i].name, order);
            }
        }
        self.schema = schema;
    }

    fn define_indexes(&mut self, not_imported: &mut Vec<NotImported>) {
        let mut sources = self.source.indexes.clone();
        // A key that could not become the primary key is still unique.
        if let (SourceKey::Columns(columns), true) = (&self.source.key, self.rowid_column.is_some())
        {
            let taken: Vec<String> = sources.iter().map(|i| i.name.clone()).collect();
            sources.push(SourceIndex {
                name: unused_index_name("primary_key", &taken),
                unique: true,
                columns: columns.clone(),
            });
        }
        for source in sources {
            let names = source.columns.iter().map(|c| match c.column {
                Some(i) => Some((self.source.columns[i].name.clone(), c.order)),
                None => Some((self.rowid_column.clone()?, c.order)),
            });
            let columns: Option<Vec<_>> = names.collect();
            let mut skip = |reason: &str| {
                not_imported.push(NotImported {
                    kind: "index",
                    name: source.name.clone(),
                    table: Some(self.source.name.clone()),
                    reason: reason.to_owned(),
                });
            };
            match columns {
                None => skip("it contains the rowid, which is no column of the new table"),
                Some(columns) if columns.len() > INDEX_COLUMNS_MAX => {
                    skip("an index has at most 16 columns");
                }
                Some(columns) => {
                    let index = columns
                        .into_iter()
                        .fold(IndexDef::new(&source.name), |index, (name, order)| {
                            index.add(name, order)
                        });
                    self.indexes.push(if source.unique { index.unique() } else { index });
                }
            }
        }
    }

    /// Passes the values of all rows to `visit`. `action` describes the reading in the progress bar.
    pub fn read_rows(
        &self,
        database: &SqliteSource,
        action: &'static str,
        visit: &mut ValuesVisitor<'_>,
    ) -> Result<()> {
        let types: Vec<ColumnType> = self.schema.columns().iter().map(|c| c.column_type).collect();
        let types = &types[usize::from(self.rowid_column.is_some())..];
        let mut values = Vec::new();
        let mut number = 0i64;
        let progress = Progress::items(action, self.rows);
        visit_rows(database, &self.source, progress, &mut |row, location| {
            values.clear();
            number += 1;
            if self.rowid_column.is_some() {
                let rowid: Option<i64> = database.check(row.get(0))?;
                values.push(Value::I64(rowid.unwrap_or(number)));
            }
            for (i, column_type) in types.iter().enumerate() {
                let value = database.check(row.get_ref(i + 1))?;
                values.push(convert(value, *column_type).map_err(|reason| {
                    let column = &self.source.columns[i].name;
                    Failure::usage(format!("{}, column {column:?}: {reason}", location())).hint(
                        "correct the value in SQLite, or store it as a blob: \
                         `UPDATE ... SET c = CAST(c AS BLOB)`",
                    )
                })?);
            }
            visit(&values, location)
        })
    }
}

/// Passes the rows of a table to `visit`, in the order of their rowid, if they have one that can be
/// read; the first value is the rowid, or NULL.
fn visit_rows(
    database: &SqliteSource,
    table: &SourceTable,
    mut progress: Progress,
    visit: &mut dyn FnMut(&Row<'_>, &dyn Fn() -> String) -> Result<bool>,
) -> Result<()> {
    let columns: Vec<String> = table.columns.iter().map(|c| quote(&c.name)).collect();
    let (rowid, order) = match table.rowid {
        Some(name) => (name, format!(" ORDER BY {name}")),
        None => ("NULL", String::new()),
    };
    let query =
        format!("SELECT {rowid}, {} FROM {}{order}", columns.join(", "), quote(&table.name));
    let mut statement = database.check(database.connection.prepare(&query))?;
    let mut rows = database.check(statement.query([]))?;
    let mut number = 0u64;
    while let Some(row) = database.check(rows.next())? {
        number += 1;
        let location = || match row.get::<_, Option<i64>>(0) {
            Ok(Some(rowid)) => format!("table {:?}, rowid {rowid}", table.name),
            _ => format!("table {:?}, row {number}", table.name),
        };
        if !visit(row, &location)? {
            return Ok(());
        }
        progress.count_item();
    }
    Ok(())
}
