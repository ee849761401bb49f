//! Rows of Parquet files. A file stores the types of its columns, so that nothing is inferred;
//! [`perigee_tables::Schema::from_arrow`] defines which types become which.

use crate::failure::{Failure, Result, show_path};
use crate::progress::Progress;
use crate::table_formats::schema_json::TableDefinition;
use crate::with_panics_as_errors;
use perigee_tables::{Column, DynTable, ParquetRows, Schema, TableLoadReport};
use std::fs::File;
use std::path::{Path, PathBuf};

use super::definition::{DefinitionArgs, complete_definition, key_columns};
use super::load_rows::{ValuesVisitor, load_values};

/// The Parquet files of an import.
pub struct ParquetFiles {
    paths: Vec<PathBuf>,
    /// Number of rows of all files.
    rows: u64,
}

impl ParquetFiles {
    /// Checks that all files can be opened.
    pub fn new(paths: Vec<PathBuf>) -> Result<ParquetFiles> {
        let mut rows = 0u64;
        for path in &paths {
            rows = rows.saturating_add(open_file(path)?.row_count());
        }
        Ok(ParquetFiles { paths, rows })
    }

    /// Returns the definition of a new table. A column gets the type that it has in the first file
    /// that has it, and is nullable if it is in one of the files, or if one of them lacks it.
    pub fn define_table(&self, args: &DefinitionArgs) -> Result<TableDefinition> {
        let given = |name: &str| args.columns.iter().find(|c| c.name == name);
        let mut columns: Vec<Column> = Vec::new();
        for (number, path) in self.paths.iter().enumerate() {
            let arrow = open_file(path)?.arrow_schema();
            let mut names: Vec<&str> = Vec::new();
            for field in arrow.fields() {
                let name = field.name().as_str();
                if names.contains(&name) {
                    let shown = show_path(path);
                    return Err(Failure::usage(format!(
                        "{shown}: two columns are called {name:?}"
                    )));
                }
                names.push(name);
                let column = match given(name) {
                    Some(column) => column.clone(),
                    None => Column::from_arrow(field).map_err(|e| read_failure(path, &e))?,
                };
                match columns.iter_mut().find(|c| c.name == name) {
                    Some(earlier) => earlier.nullable |= column.nullable,
                    None if number > 0 && given(name).is_none() => columns.push(column.nullable()),
                    None => columns.push(column),
                }
            }
            let lacks = |c: &&mut Column| !names.contains(&c.name.as_str());
            let lacking = columns.iter_mut().filter(lacks);
            lacking.filter(|c| given(&c.name).is_none()).for_each(|c| c.nullable = true);
        }
        // Most programs write columns as nullable that have no NULL.
        for (name, _) in key_columns(args.key.as_deref(), &columns, false)? {
            let key = columns.iter_mut().filter(|c| c.name == name && given(&name).is_none());
            key.for_each(|c| c.nullable = false);
        }
        complete_definition(args, columns, &[], false)
    }

    /// Reads all rows into the table.
    pub fn load(&self, table: &DynTable) -> Result<TableLoadReport> {
        let schema = table.schema();
        load_values(table, false, true, &|action, visit| self.read_rows(&schema, action, visit))
    }

    fn read_rows(
        &self,
        schema: &Schema,
        action: &'static str,
        visit: &mut ValuesVisitor<'_>,
    ) -> Result<()> {
        let mut progress = Progress::items(action, self.rows);
        for path in &self.paths {
            let file = open_file(path)?;
            let rows = with_panics_as_errors(|| file.read(schema));
            let mut rows = rows.map_err(|e| read_failure(path, &e))?;
            let mut number = 0u64;
            while let Some(values) = with_panics_as_errors(|| rows.next()) {
                number += 1;
                let values = values.map_err(|e| read_failure(path, &e))?;
                if !visit(&values, &|| format!("{} row {number}", show_path(path)))? {
                    return Ok(());
                }
                progress.count_item();
            }
        }
        Ok(())
    }
}

fn open_file(path: &Path) -> Result<ParquetRows<File>> {
    let shown = show_path(path);
    if path.as_os_str() == "-" {
        return Err(Failure::usage(
            "Parquet cannot be read from stdin, because it ends with an index",
        )
        .hint("write it to a file first"));
    }
    let file = File::open(path).map_err(|e| Failure::file("open", path, &e))?;
    let meta = file.metadata().map_err(|e| Failure::file("open", path, &e))?;
    if !meta.is_file() {
        return Err(Failure::usage(format!("{shown} is not a file")).hint(
            "specify a Parquet file; a pipe cannot be read, because Parquet ends with an index",
        ));
    }
    with_panics_as_errors(|| ParquetRows::open(file)).map_err(|e| read_failure(path, &e))
}

/// Adds the file to an error.
fn read_failure(path: &Path, e: &perigee_tables::Error) -> Failure {
    let shown = show_path(path);
    match e.column() {
        Some(column) => Failure::usage(format!("{shown}, column {column:?}: {}", e.message()))
            .hint(
                "nothing was imported; --columns 'NAME:TYPE' gives a column another type (`?` after \
                 the type allows NULL)",
            ),
        None => Failure::usage(format!("{shown}: {}", e.message()))
            .hint("it is not a Parquet file, or it is damaged or incomplete; nothing was imported"),
    }
}
