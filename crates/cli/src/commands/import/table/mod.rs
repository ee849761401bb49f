//! `perigee import DB --table NAME`: imports CSV, TSV, JSON lines and Parquet as rows of a table.
//!
//! Submodules: `row_source` (rows of text formats), `delimited` (CSV, TSV), `json_rows`, `infer`
//! (types of columns), `definition` (the schema of a new table), `load_rows`, `parquet_rows`,
//! `report` (the summary, shared with `sqlite`), `sqlite` (SQLite databases).

mod row_source;
mod delimited;
mod json_rows;
mod infer;
mod definition;
mod load_rows;
#[cfg(feature = "parquet")]
mod parquet_rows;
mod report;
#[cfg(feature = "sqlite")]
mod sqlite;

use crate::database_args;
use crate::failure::{Failure, Result, show_path};
use crate::output::Output;
use crate::table_formats::schema_json::{TableDefinition, read_definition};
use crate::table_formats::schema_text::{parse_columns, parse_index};
use clap::{Args, ValueHint};
use definition::{DefinitionArgs, define_table};
use perigee::{Db, Durability};
use perigee_tables::{DynTable, ErrorKind, StagedTable, TableDb, TableLoadReport};
use report::{ImportReport, ImportedTable};
use row_source::RowSource;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::format::Format;

/// Arguments of imports into tables.
#[derive(Args, Debug)]
#[command(next_help_heading = "Tables")]
#[group(skip)]
pub struct TableArgs {
    /// Import the rows of CSV, TSV, JSON lines or Parquet into this new table; with --from-sqlite,
    /// import only this table (may be repeated)
    #[arg(long, value_name = "NAME", conflicts_with_all = ["foreign", "prefix", "with_name", "skip_existing", "family", "trace", "progress_lines"])]
    pub table: Vec<String>,
    /// Columns with their types, such as 'id:i64,name:text?' (? allows NULL); the types of other
    /// columns are inferred from all rows, or those of the Parquet file
    #[arg(long, value_name = "COLUMNS", requires = "table", conflicts_with = "from_sqlite")]
    columns: Option<String>,
    /// Create a secondary index, such as by_name=last_name,first_name; may be repeated
    #[arg(long, value_name = "NAME=COLUMNS", requires = "table", conflicts_with = "from_sqlite")]
    index: Vec<String>,
    /// Create a unique index; may be repeated
    #[arg(long, value_name = "NAME=COLUMNS", requires = "table", conflicts_with = "from_sqlite")]
    unique_index: Vec<String>,
    /// Read columns, key, indexes and time to live from the output of `perigee tables DB NAME
    /// --json`
    #[arg(long, value_name = "FILE", requires = "table", value_hint = ValueHint::FilePath,
          conflicts_with_all = ["columns", "key", "index", "unique_index", "from_sqlite"])]
    schema: Option<PathBuf>,
    /// Add the rows to an existing table
    #[arg(long, requires = "table",
          conflicts_with_all = ["columns", "key", "index", "unique_index", "schema", "from_sqlite"])]
    append: bool,
    /// Import all tables of a SQLite database, with their keys and indexes
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "db",
          conflicts_with_all = ["foreign", "paths", "key", "format", "prefix", "with_name", "skip_existing", "family", "trace", "progress_lines"])]
    pub from_sqlite: Option<PathBuf>,
}

/// The rows of an import.
enum TableInput {
    Text(RowSource),
    #[cfg(feature = "parquet")]
    Parquet(parquet_rows::ParquetFiles),
}

impl TableInput {
    /// Checks the formats of the files.
    fn new(paths: &[(&Path, Format)]) -> Result<TableInput> {
        for (path, format) in paths {
            if matches!(format, Format::Tree | Format::Entries) {
                return Err(Failure::usage(format!("{} has no rows for a table", show_path(path)))
                    .hint("specify files with --format csv, tsv, jsonl or parquet"));
            }
        }
        if paths.len() > 1 && paths.iter().any(|(path, _)| path.as_os_str() == "-") {
            return Err(Failure::usage("- cannot be combined with files"));
        }
        let paths = paths.iter().map(|(path, format)| (path.to_path_buf(), *format)).collect();
        TableInput::of_formats(paths)
    }

    fn of_formats(paths: Vec<(PathBuf, Format)>) -> Result<TableInput> {
        let is_parquet = |(_, format): &(PathBuf, Format)| *format == Format::Parquet;
        if !paths.iter().any(is_parquet) {
            return Ok(TableInput::Text(RowSource::new(paths)));
        }
        if !paths.iter().all(is_parquet) {
            return Err(Failure::usage(
                "Parquet files cannot be combined with files of other formats",
            )
            .hint("import them one after the other, with --append"));
        }
        #[cfg(feature = "parquet")]
        return parquet_rows::ParquetFiles::new(paths.into_iter().map(|(path, _)| path).collect())
            .map(TableInput::Parquet);
        #[cfg(not(feature = "parquet"))]
        Err(Failure::missing_feature("read Parquet files", "parquet"))
    }

    /// Returns the definition of a new table.
    fn define_table(&self, args: &DefinitionArgs) -> Result<TableDefinition> {
        match self {
            TableInput::Text(rows) => define_table(args, rows),
            #[cfg(feature = "parquet")]
            TableInput::Parquet(files) => files.define_table(args),
        }
    }

    /// Reads all rows into the table.
    fn load(&self, table: &DynTable) -> Result<TableLoadReport> {
        match self {
            TableInput::Text(rows) => load_rows::load_rows(rows, table),
            #[cfg(feature = "parquet")]
            TableInput::Parquet(files) => files.load(table),
        }
    }
}

/// Imports all files into one table, and prints a summary.
pub fn run(
    args: &TableArgs,
    db: &Path,
    key: Option<&str>,
    paths: &[(&Path, Format)],
    out: &mut Output,
) -> Result<u8> {
    let started = Instant::now();
    let [name] = &args.table[..] else {
        return Err(Failure::usage("--table may be repeated only with --from-sqlite"));
    };
    let input = TableInput::new(paths)?;
    let (db, imported) = if args.append {
        let db = open_existing(db)?;
        let table = db.dyn_table(name)?;
        let loaded = input.load(&table)?;
        (db, ImportedTable::new(&table, &loaded)?)
    } else {
        // Before the database is created, so that there is none if the types cannot be inferred.
        let definition = match &args.schema {
            Some(path) => read_definition(path)?,
            None => input.define_table(&definition_args(args, key)?)?,
        };
        let db = open_for_import(db)?;
        let staged = StagedTable::create(&db, name, definition.schema, &definition.indexes);
        let staged = staged.map_err(|e| existing_table_hint(e, true))?;
        let loaded = input.load(staged.table())?;
        let table = staged.publish()?;
        (db.clone(), ImportedTable::new(&table, &loaded)?)
    };
    let report = ImportReport {
        source: None,
        tables: vec![imported],
        not_imported: Vec::new(),
        widened: Vec::new(),
        disk_bytes: db.admin().stats().disk_bytes,
        seconds: started.elapsed().as_secs_f64(),
    };
    db.close()?;
    report.print(out)?;
    Ok(0)
}

/// Imports a SQLite database, and prints a summary.
pub fn run_sqlite(
    file: &Path,
    db: &Path,
    only: &[String],
    strict: bool,
    out: &mut Output,
) -> Result<u8> {
    #[cfg(feature = "sqlite")]
    return sqlite::run(file, db, only, strict, out);
    #[cfg(not(feature = "sqlite"))]
    {
        let _ = (file, db, only, strict, out);
        Err(Failure::missing_feature("read SQLite databases", "sqlite"))
    }
}

fn definition_args(args: &TableArgs, key: Option<&str>) -> Result<DefinitionArgs> {
    let columns = args.columns.as_deref().map(parse_columns).transpose()?.unwrap_or_default();
    let indexes = args.index.iter().map(|text| parse_index(text, false));
    let unique = args.unique_index.iter().map(|text| parse_index(text, true));
    let indexes = indexes.chain(unique).collect::<Result<_>>()?;
    Ok(DefinitionArgs { key: key.map(str::to_owned), columns, indexes })
}

/// Opens the database, creating it if it does not exist, and removes what interrupted imports have
/// left behind.
fn open_for_import(path: &Path) -> Result<Db> {
    let db = database_args::open_or_create(path, Durability::None)?;
    StagedTable::discard_all(&db)?;
    Ok(db)
}

fn open_existing(path: &Path) -> Result<Db> {
    database_args::check_existing(path)?;
    open_for_import(path)
}

/// Adds what to do about a table that exists, or about two indexes of the same name.
fn existing_table_hint(e: perigee_tables::Error, can_append: bool) -> Failure {
    let (kind, in_index) = (e.kind(), e.index().is_some());
    let failure = Failure::from(e);
    match kind {
        ErrorKind::AlreadyExists if in_index => failure.hint("give each index another name"),
        ErrorKind::AlreadyExists if can_append => failure.hint(
            "--append adds the rows to it, `perigee families DB --drop @table/NAME` removes it",
        ),
        ErrorKind::AlreadyExists => failure.hint("import into a new database"),
        _ => failure,
    }
}

impl ImportedTable {
    fn new(table: &DynTable, loaded: &TableLoadReport) -> Result<ImportedTable> {
        let (name, schema, indexes) = (table.name().to_owned(), table.schema(), table.indexes()?);
        Ok(ImportedTable { name, schema, indexes, rows: loaded.rows, bytes: loaded.bytes })
    }
}
