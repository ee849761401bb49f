//! Reads the schema of a SQLite database: tables, columns, keys and indexes, and the names of
//! everything that cannot be imported.

use perigee_tables::Order;
use rusqlite::{Connection, Result as SqliteResult};

use crate::commands::import::table::report::NotImported;

/// Names under which SQLite gives access to the rowid, unless a column has the same name.
const ROWID_NAMES: [&str; 3] = ["rowid", "_rowid_", "oid"];
/// `hidden` in `table_xinfo`: an ordinary column.
const ORDINARY: i64 = 0;
/// `cid` in `index_xinfo`: the rowid.
const ROWID_COLUMN: i64 = -1;

/// Longest generated name of an index without its number: names have at most 255 bytes.
const GENERATED_NAME_BYTES_MAX: usize = 240;

/// A column that can be imported.
#[derive(Clone, Debug)]
pub struct SourceColumn {
    pub name: String,
    /// The declared type; may be empty.
    pub declared_type: String,
    pub not_null: bool,
}

/// A column of a key or index: its position in [`SourceTable::columns`], or the rowid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceKeyColumn {
    pub column: Option<usize>,
    pub order: Order,
}

/// An index that can be imported.
#[derive(Clone, Debug)]
pub struct SourceIndex {
    pub name: String,
    pub unique: bool,
    pub columns: Vec<SourceKeyColumn>,
}

/// The primary key of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceKey {
    /// There is none.
    Missing,
    /// INTEGER PRIMARY KEY: the column is the rowid.
    Rowid(usize),
    /// Other columns.
    Columns(Vec<SourceKeyColumn>),
}

/// A table.
#[derive(Clone, Debug)]
pub struct SourceTable {
    pub name: String,
    pub columns: Vec<SourceColumn>,
    pub key: SourceKey,
    pub indexes: Vec<SourceIndex>,
    /// The name that gives access to the rowid; `None` for WITHOUT ROWID, or if columns have all
    /// these names.
    pub rowid: Option<&'static str>,
    pub without_rowid: bool,
}

/// The schema of a database.
#[derive(Debug, Default)]
pub struct SourceSchema {
    pub tables: Vec<SourceTable>,
    pub not_imported: Vec<NotImported>,
}

/// Returns a name as an SQL identifier.
pub fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Reads the schema of the main database.
pub fn read_schema(connection: &Connection) -> SqliteResult<SourceSchema> {
    let mut schema = SourceSchema::default();
    let mut statement = connection.prepare(
        "SELECT t.name, t.type, t.wr, s.sql FROM pragma_table_list t \
         LEFT JOIN sqlite_schema s ON s.name = t.name AND s.type = 'table' \
         WHERE t.schema = 'main' ORDER BY t.name",
    )?;
    let rows =
        statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?;
    let rows: Vec<(String, String, bool, Option<String>)> = rows.collect::<SqliteResult<_>>()?;
    for (name, kind, without_rowid, sql) in rows {
        if name.starts_with("sqlite_") {
            continue;
        }
        match kind.as_str() {
            "table" => {
                if contains_check(&sql.unwrap_or_default()) {
                    let table = Some(name.clone());
                    schema.skip("check", name.clone(), table, "Perigee has no CHECK constraints");
                }
                let table = read_table(connection, name, without_rowid, &mut schema.not_imported)?;
                schema.tables.push(table);
            }
            "view" => schema.skip("view", name, None, "Perigee has no views"),
            "virtual" => schema.skip("virtual table", name, None, "its contents are computed"),
            _ => schema.skip("shadow table", name, None, "it stores the data of a virtual table"),
        }
    }
    let mut triggers = connection
        .prepare("SELECT name, tbl_name FROM sqlite_schema WHERE type = 'trigger' ORDER BY name")?;
    let triggers = triggers.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    for trigger in triggers {
        let (name, table): (String, String) = trigger?;
        schema.skip("trigger", name, Some(table), "Perigee has no triggers");
    }
    Ok(schema)
}

impl SourceSchema {
    fn skip(&mut self, kind: &'static str, name: String, table: Option<String>, reason: &str) {
        self.not_imported.push(NotImported { kind, name, table, reason: reason.to_owned() });
    }
}

/// A row of `table_xinfo`.
struct DeclaredColumn {
    cid: i64,
    column: SourceColumn,
    default: Option<String>,
    /// Position in the primary key, from 1; 0 if it does not belong to it.
    key_position: i64,
    hidden: i64,
}

fn read_table(
    connection: &Connection,
    name: String,
    without_rowid: bool,
    not_imported: &mut Vec<NotImported>,
) -> SqliteResult<SourceTable> {
    let mut skip = |kind: &'static str, what: String, reason: String| {
        not_imported.push(NotImported { kind, name: what, table: Some(name.clone()), reason });
    };
    let declared = read_columns(connection, &name)?;
    let mut columns = Vec::new();
    // Positions of the imported columns by their number in SQLite.
    let mut positions: Vec<(i64, usize)> = Vec::new();
    for DeclaredColumn { cid, column, default, hidden, .. } in &declared {
        if *hidden != ORDINARY {
            let reason = "Perigee has no generated columns".to_owned();
            skip("generated column", column.name.clone(), reason);
            continue;
        }
        let (_, collation, _, _, autoincrement) =
            connection.column_metadata(Some("main"), name.as_str(), column.name.as_str())?;
        let collation = collation.map_or("BINARY".into(), |c| c.to_string_lossy().into_owned());
        if !collation.eq_ignore_ascii_case("BINARY") {
            let reason = format!("column {:?} is compared byte by byte", column.name);
            skip("collation", collation, reason);
        }
        if autoincrement {
            let reason = "new rows need a value from the program".to_owned();
            skip("autoincrement", column.name.clone(), reason);
        }
        if let Some(default) = default {
            let reason = format!("DEFAULT {default}: new rows need a value from the program");
            skip("default", column.name.clone(), reason);
        }
        positions.push((*cid, columns.len()));
        columns.push(column.clone());
    }
    for (key, target) in read_foreign_keys(connection, &name)? {
        skip("foreign key", format!("{key} -> {target}"), "Perigee has no foreign keys".into());
    }
    let mut indexes: Vec<SourceIndex> = Vec::new();
    let mut key_index = None;
    let listed = read_index_list(connection, &name)?;
    let named = listed.iter().filter(|i| i.origin == "c");
    let mut index_names: Vec<String> = named.map(|i| i.name.clone()).collect();
    for index in listed {
        let read = read_index_columns(connection, &index.name, &positions)?;
        match (index.origin.as_str(), read) {
            ("pk", read) => key_index = Some(read.unwrap_or_default()),
            (_, _) if index.partial => {
                skip("partial index", index.name, "Perigee indexes all rows".to_owned());
            }
            (_, Err(reason)) => skip("index", index.name, reason),
            (origin, Ok(columns_read)) => {
                let name = match origin {
                    "u" => constraint_name(&columns_read, &columns, &mut index_names),
                    _ => index.name,
                };
                indexes.push(SourceIndex { name, unique: index.unique, columns: columns_read });
            }
        }
    }
    let key = match (declared.iter().find(|c| c.key_position > 0), key_index) {
        (None, _) => SourceKey::Missing,
        // Only INTEGER PRIMARY KEY needs no index.
        (Some(only), None) if !without_rowid => {
            let position = positions.iter().find(|(cid, _)| *cid == only.cid);
            SourceKey::Rowid(position.map_or(0, |(_, position)| *position))
        }
        (Some(_), index) => SourceKey::Columns(index.unwrap_or_default()),
    };
    let taken = |name: &&&str| declared.iter().any(|c| c.column.name.eq_ignore_ascii_case(name));
    let rowid = ROWID_NAMES.iter().find(|name| !taken(name)).copied().filter(|_| !without_rowid);
    Ok(SourceTable { name, columns, key, indexes, rowid, without_rowid })
}

fn read_columns(connection: &Connection, table: &str) -> SqliteResult<Vec<DeclaredColumn>> {
    let mut statement = connection.prepare(
        "SELECT cid, name, type, \"notnull\", dflt_value, pk, hidden FROM pragma_table_xinfo(?1) \
         ORDER BY cid",
    )?;
    let rows = statement.query_map([table], |row| {
        Ok(DeclaredColumn {
            cid: row.get(0)?,
            column: SourceColumn {
                name: row.get(1)?,
                declared_type: row.get::<_, Option<String>>(2)?.unwrap_or_default(),
                not_null: row.get(3)?,
            },
            default: row.get(4)?,
            key_position: row.get(5)?,
            hidden: row.get(6)?,
        })
    })?;
    rows.collect()
}

/// Returns the columns and the referenced table of each foreign key.
fn read_foreign_keys(connection: &Connection, table: &str) -> SqliteResult<Vec<(String, String)>> {
    let mut statement = connection.prepare(
        "SELECT group_concat(\"from\", ','), \"table\" FROM \
         (SELECT * FROM pragma_foreign_key_list(?1) ORDER BY id, seq) GROUP BY id ORDER BY id",
    )?;
    let rows = statement.query_map([table], |row| Ok((row.get(0)?, row.get(1)?)))?;
    rows.collect()
}

/// A row of `index_list`.
struct ListedIndex {
    name: String,
    unique: bool,
    /// `c`: CREATE INDEX, `u`: UNIQUE constraint, `pk`: primary key.
    origin: String,
    partial: bool,
}

fn read_index_list(connection: &Connection, table: &str) -> SqliteResult<Vec<ListedIndex>> {
    let mut statement = connection.prepare(
        "SELECT name, \"unique\", origin, partial FROM pragma_index_list(?1) ORDER BY name",
    )?;
    let rows = statement.query_map([table], |row| {
        let (name, unique) = (row.get(0)?, row.get(1)?);
        Ok(ListedIndex { name, unique, origin: row.get(2)?, partial: row.get(3)? })
    })?;
    rows.collect()
}

/// Returns the columns of an index, or the reason why it cannot be imported.
fn read_index_columns(
    connection: &Connection,
    index: &str,
    positions: &[(i64, usize)],
) -> SqliteResult<Result<Vec<SourceKeyColumn>, String>> {
    let mut statement = connection.prepare(
        "SELECT cid, \"desc\", coll, name FROM pragma_index_xinfo(?1) WHERE key = 1 ORDER BY seqno",
    )?;
    let mut rows = statement.query([index])?;
    let mut columns: Vec<SourceKeyColumn> = Vec::new();
    while let Some(row) = rows.next()? {
        let (cid, descending): (i64, bool) = (row.get(0)?, row.get(1)?);
        let collation: String = row.get(2)?;
        if !collation.eq_ignore_ascii_case("BINARY") {
            return Ok(Err(format!("its collation is {collation}")));
        }
        let position = positions.iter().find(|(c, _)| *c == cid).map(|(_, position)| *position);
        if position.is_none() && cid != ROWID_COLUMN {
            let name: Option<String> = row.get(3)?;
            return Ok(Err(match name {
                Some(name) => format!("it contains the generated column {name:?}"),
                None => "it contains an expression".to_owned(),
            }));
        }
        if columns.iter().any(|c| c.column == position) {
            continue;
        }
        let order = if descending { Order::Descending } else { Order::Ascending };
        columns.push(SourceKeyColumn { column: position, order });
    }
    Ok(Ok(columns))
}

/// Returns a name for the index of a UNIQUE constraint, which has none, and adds it to `taken`.
fn constraint_name(
    key: &[SourceKeyColumn],
    columns: &[SourceColumn],
    taken: &mut Vec<String>,
) -> String {
    let names = key.iter().filter_map(|c| c.column).map(|i| columns[i].name.as_str());
    let name = unused_index_name(&format!("unique_{}", names.collect::<Vec<_>>().join("_")), taken);
    taken.push(name.clone());
    name
}

/// Returns `base`, cut to the length of a name, or `base` with the first number from 2 that gives a
/// name which is not taken.
pub fn unused_index_name(base: &str, taken: &[String]) -> String {
    let length = base.chars().scan(0, |bytes, c| {
        *bytes += c.len_utf8();
        (*bytes <= GENERATED_NAME_BYTES_MAX).then_some(c.len_utf8())
    });
    let base = &base[..length.sum()];
    let is_taken = |name: &str| taken.iter().any(|t| t == name);
    let (mut name, mut number) = (base.to_owned(), 1);
    while is_taken(&name) {
        number += 1;
        name = format!("{base}_{number}");
    }
    name
}

/// Returns true if a CREATE TABLE statement contains the keyword CHECK, which is reserved: outside
/// of quotes and comments it begins a constraint.
fn contains_check(sql: &str) -> bool {
    let mut rest = sql;
    while let Some(first) = rest.chars().next() {
        let end_of = |open: usize, close: &str| {
            rest[open..].find(close).map_or(rest.len(), |at| open + at + close.len())
        };
        let word = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_');
        let length = match first {
            '\'' | '"' | '`' => end_of(1, &first.to_string()),
            '[' => end_of(1, "]"),
            '-' if rest.starts_with("--") => end_of(2, "\n"),
            '/' if rest.starts_with("/*") => end_of(2, "*/"),
            c if c.is_alphanumeric() || c == '_' => word.map(char::len_utf8).sum(),
            c => c.len_utf8(),
        };
        if rest[..length].eq_ignore_ascii_case("check") {
            return true;
        }
        rest = &rest[length..];
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_names_are_unused_and_short() {
        let taken = ["i", "i_2", "i_4"].map(str::to_owned);
        assert_eq!(unused_index_name("i", &taken), "i_3");
        assert_eq!(unused_index_name("j", &taken), "j");
        assert_eq!(unused_index_name(&"潮".repeat(100), &taken), "潮".repeat(80));
    }

    #[test]
    fn check_constraints_are_found_outside_quotes_and_comments() {
        assert!(contains_check("CREATE TABLE t (a INT Check(a > 0))"));
        assert!(contains_check("CREATE TABLE t (\"check\" INT, check (\"check\" > 0))"));
        for sql in [
            "",
            "CREATE TABLE t (checked INT, \"check\" INT, [check] INT, `check` INT, d DEFAULT 'check')",
            "CREATE TABLE t (a INT -- check\n, b INT /* check */)",
            "CREATE TABLE t (d DEFAULT 'it''s check', 潮check INT, e 'check",
        ] {
            assert!(!contains_check(sql), "{sql}");
        }
    }
}
