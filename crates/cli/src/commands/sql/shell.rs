//! [`Shell`]: a session with its output format, and the commands of the prompt.

use crate::commands::sql::SqlArgs;
use crate::commands::sql::completion::COMMANDS;
use crate::commands::sql::prompt;
use crate::commands::sql::rows::{RowFormat, print_outcome};
use crate::failure::{Failure, Result};
use crate::output::{Output, table};
use crate::text::printable;
use perigee::{Db, Durability};
use perigee_sql::{Session, SessionOptions, SqlError, SqlState, type_name};
use perigee_tables::{IndexDef, KeyColumn, Order, TableDb, TableInfo};
use serde_json::json;
use std::io::{IsTerminal, Read};
use std::time::Instant;
use tokio::runtime::Runtime;

/// See the module.
pub struct Shell {
    pub db: Db,
    pub runtime: Runtime,
    pub session: Session,
    pub format: RowFormat,
    pub timing: bool,
}

/// Converts an error of SQL; shows the place in the statement.
pub fn sql_failure(e: &SqlError, sql: &str) -> Failure {
    let kind = match e.state() {
        SqlState::SYNTAX_ERROR => "syntax error",
        SqlState::SERIALIZATION_FAILURE => "conflict",
        SqlState::DATA_CORRUPTED => "corruption",
        _ => "sql",
    };
    let place = e.position().and_then(|position| {
        let line = sql.lines().nth((position.line as usize).checked_sub(1)?)?;
        let word: String =
            line.chars().skip((position.column as usize).saturating_sub(1)).take(40).collect();
        let (line, column) = (position.line, position.column);
        Some(format!(" at line {line}, column {column}, near {word:?}"))
    });
    let message = e.message().split(" at Line: ").next().unwrap_or_default();
    let message = message.trim_end_matches('.');
    let text = format!("{message}{} (SQLSTATE {})", place.unwrap_or_default(), e.state().code());
    let failure = Failure::other(kind, text);
    match e.hint() {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

/// Runs statements from the arguments, from stdin, or at a prompt.
pub fn run(args: &SqlArgs, out: &mut Output) -> Result<u8> {
    let db = match (args.read_only, args.create) {
        (true, _) => args.database.open_read_only()?,
        (_, true) => args.database.open_or_create(Durability::default())?,
        _ => args.database.open_read_write().map_err(|e| {
            e.hint_if_locked("close that program, or read only: `perigee sql --read-only`")
        })?,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let options = SessionOptions::with_memory(args.memory.saturating_mul(1 << 20))
        .map_err(|e| sql_failure(&e, ""))?;
    // The files of the user who runs the program.
    let session = Session::new(&db, options.allow_files(true)).map_err(|e| sql_failure(&e, ""))?;
    let format = match (out.json, args.csv) {
        (true, _) => RowFormat::Json,
        (_, true) => RowFormat::Csv,
        _ => RowFormat::Table,
    };
    let mut shell = Shell { db, runtime, session, format, timing: false };
    match &args.command {
        Some(sql) => shell.run_text(sql, out)?,
        None if std::io::stdin().is_terminal() => prompt::run(&mut shell, out)?,
        None => {
            let mut sql = String::new();
            std::io::stdin().read_to_string(&mut sql).map_err(|e| {
                Failure::other("io", format!("read stdin: {e}"))
                    .hint("statements are text in UTF-8")
            })?;
            shell.run_text(&sql, out)?;
        }
    }
    let Shell { db, session, runtime, .. } = shell;
    drop(session);
    drop(runtime);
    db.close()?;
    Ok(0)
}

impl Shell {
    /// Runs statements or a command of the prompt.
    pub fn run_text(&mut self, text: &str, out: &mut Output) -> Result<()> {
        if text.trim_start().starts_with('\\') {
            return self.run_command(text.trim(), out);
        }
        let statements = self.session.parse(text).map_err(|e| sql_failure(&e, text))?;
        for statement in statements {
            let started = Instant::now();
            let outcome = self.runtime.block_on(self.session.execute(&statement));
            let outcome = outcome.map_err(|e| sql_failure(&e, text))?;
            if let Err(e) = print_outcome(&self.runtime, outcome, self.format, out) {
                self.session.fail_transaction();
                return Err(e);
            }
            if self.timing {
                let milliseconds = started.elapsed().as_secs_f64() * 1000.0;
                out.line(format!("time: {milliseconds:.3} ms"))?;
            }
        }
        out.flush()
    }
    fn run_command(&mut self, text: &str, out: &mut Output) -> Result<()> {
        let (command, argument) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let argument = argument.trim().trim_end_matches(';');
        match (command.trim_end_matches(';'), argument) {
            ("\\?", _) => {
                for (name, meaning) in COMMANDS {
                    out.line(format!("{name:9} {meaning}"))?;
                }
                out.line("Statements end with a semicolon. docs/sql.md describes them.")?;
            }
            ("\\timing", _) => {
                self.timing = !self.timing;
                out.line(if self.timing { "timing is on" } else { "timing is off" })?;
            }
            ("\\csv", _) => self.format = RowFormat::Csv,
            ("\\json", _) => self.format = RowFormat::Json,
            ("\\table", _) => self.format = RowFormat::Table,
            ("\\d" | "\\dt", "") => self.list_tables(out)?,
            ("\\d" | "\\dt", name) => self.describe_table(name.trim_matches('"'), out)?,
            (other, _) => {
                return Err(Failure::usage(format!("there is no command {other}"))
                    .hint("\\? lists the commands"));
            }
        }
        out.flush()
    }
    fn list_tables(&mut self, out: &mut Output) -> Result<()> {
        let tables = self.db.tables().map_err(|e| sql_failure(&e.into(), ""))?;
        if self.format == RowFormat::Json {
            for t in tables {
                out.json_line(&json!({"table": t.name, "rows": t.rows, "bytes": t.bytes}))?;
            }
            return Ok(());
        }
        let mut printed = table(&["table", ">rows (estimated)", ">bytes"]);
        for t in &tables {
            printed.add_row([printable(&t.name), t.rows.to_string(), t.bytes.to_string()]);
        }
        out.line(printed.to_string())
    }
    fn describe_table(&mut self, name: &str, out: &mut Output) -> Result<()> {
        let tables = self.db.tables().map_err(|e| sql_failure(&e.into(), ""))?;
        let Some(info) = tables.into_iter().find(|t| t.name == name) else {
            return Err(Failure::other("not found", format!("there is no table {name:?}"))
                .hint("\\d lists the tables"));
        };
        if self.format == RowFormat::Json {
            return out.json_line(&table_json(&info));
        }
        let mut printed = table(&["column", "type", "NULL", "default"]);
        for column in info.schema.columns() {
            let default = column.default.as_ref().map(ToString::to_string).unwrap_or_default();
            let null = if column.nullable { "" } else { "not null" };
            let name = type_name(column.column_type);
            printed.add_row([&printable(&column.name), name, null, &printable(&default)]);
        }
        out.line(printed.to_string())?;
        out.line(format!("primary key: {}", key_text(info.schema.key_columns())))?;
        for index in &info.indexes {
            let unique = if index.is_unique() { "unique " } else { "" };
            let (name, key) = (printable(index.name()), key_text(index.columns()));
            out.line(format!("{unique}index {name}: {key}"))?;
        }
        if let Some(ttl) = info.schema.default_ttl() {
            out.line(format!("rows expire after {ttl:?}"))?;
        }
        Ok(())
    }
    /// Returns the names of all tables and columns, for completion.
    pub fn names(&self) -> Vec<String> {
        let tables = self.db.tables().unwrap_or_default();
        let mut names: Vec<String> = tables
            .iter()
            .flat_map(|t| {
                let columns = t.schema.columns().iter().map(|c| c.name.clone());
                std::iter::once(t.name.clone()).chain(columns)
            })
            .collect();
        names.sort();
        names.dedup();
        names
    }
    /// Returns true between BEGIN and COMMIT.
    pub fn in_transaction(&self) -> bool {
        self.session.in_transaction()
    }
}

fn key_text(columns: &[KeyColumn]) -> String {
    let text = |key: &KeyColumn| match key.order {
        Order::Ascending => printable(&key.column),
        Order::Descending => format!("{} DESC", printable(&key.column)),
    };
    columns.iter().map(text).collect::<Vec<_>>().join(", ")
}

fn table_json(info: &TableInfo) -> serde_json::Value {
    let columns = info.schema.columns().iter().map(|c| {
        json!({"name": c.name, "type": type_name(c.column_type), "nullable": c.nullable,
               "default": c.default.as_ref().map(ToString::to_string)})
    });
    let keys = |columns: &[KeyColumn]| {
        let key =
            |k: &KeyColumn| json!({"column": k.column, "descending": k.order == Order::Descending});
        columns.iter().map(key).collect::<Vec<_>>()
    };
    let indexes = info.indexes.iter().map(|index: &IndexDef| {
        json!({"name": index.name(), "unique": index.is_unique(), "columns": keys(index.columns())})
    });
    json!({"table": info.name, "columns": columns.collect::<Vec<_>>(),
           "primary_key": keys(info.schema.key_columns()), "indexes": indexes.collect::<Vec<_>>(),
           "rows": info.rows, "bytes": info.bytes})
}
