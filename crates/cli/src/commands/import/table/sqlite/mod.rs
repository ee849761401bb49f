//! `perigee import DB --from-sqlite FILE`: imports the tables of a SQLite database.
//!
//! The database is opened read-only, and all reads are in one transaction, so that it is consistent
//! while other programs write to it. Each table is read twice: for the types of its values
//! (`values`), and to load it. All tables become visible at the end.
//!
//! Submodules: `source_schema` (tables, keys and indexes of the source), `values` (types and
//! conversions), `plan` (the definition of the new table, and the rows).

mod source_schema;
mod values;
mod plan;

use crate::failure::{Failure, Result, show_path};
use crate::output::Output;
use perigee_tables::{ErrorKind, StagedTable, TableDb};
use plan::TablePlan;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use source_schema::{SourceSchema, read_schema};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::load_rows::load_values;
use super::report::{ImportReport, ImportedTable, WidenedColumn};
use super::{existing_table_hint, open_for_import};

/// Longest wait for a lock of another program.
const BUSY_SECONDS_MAX: u64 = 10;

/// An open SQLite database.
struct SqliteSource {
    path: PathBuf,
    connection: Connection,
}

impl SqliteSource {
    fn open(path: &Path) -> Result<SqliteSource> {
        let meta = std::fs::metadata(path).map_err(|e| Failure::file("open", path, &e))?;
        if !meta.is_file() {
            return Err(Failure::usage(format!("{} is not a file", show_path(path)))
                .hint("specify the file of a SQLite database"));
        }
        if meta.len() == 0 {
            return Err(Failure::usage(format!("{} is empty", show_path(path))));
        }
        // An absolute path, because SQLite takes one that starts with "file:" as a URI.
        let full = path.canonicalize().map_err(|e| Failure::file("open", path, &e))?;
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let opened = Connection::open_with_flags(full, flags);
        let connection = opened.map_err(|e| sqlite_failure(path, &e))?;
        let source = SqliteSource { path: path.to_owned(), connection };
        source.check(source.connection.busy_timeout(Duration::from_secs(BUSY_SECONDS_MAX)))?;
        // Schemas can contain calls of functions; `cell_size_check` finds more damage.
        let begin = "PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON; BEGIN";
        source.check(source.connection.execute_batch(begin))?;
        Ok(source)
    }
    /// Converts an error of SQLite.
    fn check<T>(&self, result: rusqlite::Result<T>) -> Result<T> {
        result.map_err(|e| sqlite_failure(&self.path, &e))
    }
}

/// Returns the error for a failure of SQLite.
fn sqlite_failure(path: &Path, e: &rusqlite::Error) -> Failure {
    let shown = show_path(path);
    let plain = Failure::other("SQLite", format!("{shown}: SQLite: {e}"));
    match e.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => {
            Failure::usage(format!("{shown} is not a SQLite database, or is encrypted"))
        }
        Some(ErrorCode::DatabaseCorrupt) => Failure::other(
            "corruption",
            format!("{shown} is damaged: {e}"),
        )
        .hint("nothing was imported; `sqlite3 FILE .recover | sqlite3 NEW` keeps what is readable"),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => plain.hint(format!(
            "another program has locked it for more than {BUSY_SECONDS_MAX} seconds: try again"
        )),
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen) => plain.hint(
            "a database that needs recovery, or one in WAL mode in a directory without write \
             permission, cannot be opened read-only: open it once with the program that wrote it, \
             or copy it with its -wal file",
        ),
        _ => plain,
    }
}

/// Imports the tables and prints a summary.
pub fn run(file: &Path, db: &Path, only: &[String], strict: bool, out: &mut Output) -> Result<u8> {
    let started = Instant::now();
    let source = SqliteSource::open(file)?;
    let mut schema = source.check(read_schema(&source.connection))?;
    select_tables(&mut schema, only, file)?;
    let mut not_imported = std::mem::take(&mut schema.not_imported);
    let mut widened = Vec::new();
    let mut plans = Vec::new();
    // Before the database is created: if the source cannot be read, nothing is.
    for table in schema.tables {
        let plan = TablePlan::new(&source, table, &mut not_imported)?;
        for (column, reason) in plan.widened_columns() {
            if strict {
                return Err(strict_failure(plan.name(), &column, &reason));
            }
            widened.push(WidenedColumn { table: plan.name().to_owned(), column, reason });
        }
        plans.push(plan);
    }
    let db = open_for_import(db)?;
    check_new_tables(&db, &plans)?;
    let mut staged = Vec::new();
    for plan in &plans {
        staged.push(load_table(&source, plan, &db)?);
    }
    let mut tables = Vec::new();
    for (table, loaded) in staged {
        tables.push(ImportedTable::new(&table.publish()?, &loaded)?);
    }
    let report = ImportReport {
        source: Some(show_path(file)),
        tables,
        not_imported,
        widened,
        disk_bytes: db.admin().stats().disk_bytes,
        seconds: started.elapsed().as_secs_f64(),
    };
    db.close()?;
    report.print(out)?;
    Ok(0)
}

/// Keeps only the requested tables, and what belongs to them.
fn select_tables(schema: &mut SourceSchema, only: &[String], file: &Path) -> Result<()> {
    let names: Vec<&str> = schema.tables.iter().map(|t| t.name.as_str()).collect();
    if let Some(missing) = only.iter().find(|name| !names.contains(&name.as_str())) {
        let shown = show_path(file);
        let list = names.join(", ");
        return Err(Failure::other(
            ErrorKind::NotFound.name(),
            format!("{shown} has no table {missing:?}; the tables are {list}"),
        ));
    }
    if !only.is_empty() {
        schema.tables.retain(|t| only.contains(&t.name));
        schema.not_imported.retain(|n| n.table.as_ref().is_some_and(|t| only.contains(t)));
    }
    if schema.tables.is_empty() {
        return Err(Failure::usage(format!("{} has no tables", show_path(file))));
    }
    Ok(())
}

fn strict_failure(table: &str, column: &str, reason: &str) -> Failure {
    Failure::usage(format!("table {table:?}, column {column:?}: {reason}"))
        .hint("without --strict the column gets this type")
}

/// Returns an error if one of the tables exists: before any is loaded.
fn check_new_tables(db: &perigee::Db, plans: &[TablePlan]) -> Result<()> {
    let existing = db.tables()?;
    match plans.iter().find(|plan| existing.iter().any(|t| t.name == plan.name())) {
        Some(plan) => Err(Failure::other(
            ErrorKind::AlreadyExists.name(),
            format!("there is a table {:?} in the database; nothing was imported", plan.name()),
        )
        .hint(
            "import into a new database, import only other tables with --table NAME, or remove it \
             with `perigee families DB --drop @table/NAME`",
        )),
        None => Ok(()),
    }
}

fn load_table(
    source: &SqliteSource,
    plan: &TablePlan,
    db: &perigee::Db,
) -> Result<(StagedTable, perigee_tables::TableLoadReport)> {
    let schema = plan.schema.clone();
    let staged = StagedTable::create(db, plan.name(), schema, &plan.indexes)
        .map_err(|e| existing_table_hint(e, false))?;
    let loaded = load_values(staged.table(), plan.is_sorted(), true, &|action, visit| {
        plan.read_rows(source, action, visit)
    })?;
    Ok((staged, loaded))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_committed_after_the_first_read_are_not_read() {
        let name = format!("perigee-cli-sqlite-{}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir(&dir).unwrap();
        let path = dir.join("live.db");
        let writer = Connection::open(&path).unwrap();
        let create = "PRAGMA journal_mode = WAL; CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT);
            INSERT INTO t VALUES (1, 'a'), (2, 'b')";
        writer.execute_batch(create).unwrap();
        let source = SqliteSource::open(&path).unwrap();
        let table = read_schema(&source.connection).unwrap().tables.remove(0);
        let plan = TablePlan::new(&source, table, &mut Vec::new()).unwrap();
        assert_eq!(plan.rows, 2);
        writer.execute_batch("INSERT INTO t VALUES (3, 'c')").unwrap();
        let mut rows = 0;
        plan.read_rows(&source, "importing", &mut |_, _| {
            rows += 1;
            Ok(true)
        })
        .unwrap();
        assert_eq!(rows, plan.rows);
        drop(source);
        drop(writer);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
