//! [`Statement`]: a parsed statement: what kind it is, whether it is supported, and the form in
//! which DataFusion plans it.

use crate::constants::{SCHEMA, SHOWN_VARIABLES};
use crate::error::{Result, SqlError, SqlState};
use crate::pg_catalog::rewrite::rewrite_query;
use crate::row_changes::{OnConflict, conflict_clause};
use crate::schema_statements::identifier;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::{DFParser, ExplainStatement, ResetStatement, Statement as Parsed};
use datafusion::sql::sqlparser::ast::{
    Ident, ObjectName, ObjectType, Set, Statement as Ast, TransactionAccessMode,
    TransactionIsolationLevel, TransactionMode,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use perigee::{Isolation, TxnOptions};
use perigee_tables::TableTxn;

/// What a statement does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatementKind {
    Query,
    Insert,
    Update,
    Delete,
    Begin,
    Commit,
    Rollback,
    Savepoint,
    /// SET and RESET of a variable of PostgreSQL.
    Setting,
    /// CREATE EXTERNAL TABLE, COPY.
    Files,
    /// CREATE, ALTER and DROP of tables and indexes.
    Schema,
    Unsupported,
}

impl StatementKind {
    /// Returns true for statements that a failed transaction accepts.
    pub fn ends_transaction(self) -> bool {
        matches!(self, StatementKind::Commit | StatementKind::Rollback)
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Statement {
    parsed: Parsed,
    kind: StatementKind,
}

/// Parses statements, separated by semicolons.
pub fn parse(sql: &str) -> Result<Vec<Statement>> {
    let parsed = DFParser::parse_sql_with_dialect(sql, &PostgreSqlDialect {})?;
    parsed.into_iter().map(Statement::new).collect()
}

impl Statement {
    fn new(parsed: Parsed) -> Result<Statement> {
        let parsed = rewrite_show(parsed)?;
        let kind = kind_of(&parsed);
        Ok(Statement { parsed, kind })
    }
    /// Returns what the statement does.
    pub(crate) fn kind(&self) -> StatementKind {
        self.kind
    }
    pub(crate) fn parsed(&self) -> &Parsed {
        &self.parsed
    }
    /// Returns the statement of the SQL parser, if it is one.
    pub(crate) fn ast(&self) -> Option<&Ast> {
        match &self.parsed {
            Parsed::Statement(ast) => Some(ast),
            _ => None,
        }
    }
    /// Returns the first words, such as `CREATE VIEW`.
    ///
    /// ```
    /// # use perigee_sql::Session;
    /// # let db = perigee::example_db().unwrap();
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let session = Session::new(&db, Default::default())?;
    /// assert_eq!(session.parse("CREATE VIEW v AS SELECT 1")?[0].name(), "CREATE VIEW");
    /// # Ok::<(), perigee_sql::SqlError>(())
    /// # }).unwrap();
    /// ```
    pub fn name(&self) -> String {
        let text = self.parsed.to_string();
        let keyword = |word: &&str| word.chars().all(|c| c.is_ascii_uppercase());
        let words: Vec<&str> = text.split_whitespace().take_while(keyword).take(2).collect();
        if words.is_empty() { "this statement".to_owned() } else { words.join(" ") }
    }
    /// Returns the error for an unsupported statement.
    pub(crate) fn refusal(&self) -> SqlError {
        let hint = match self.ast() {
            Some(Ast::CreateView(_)) => "put the query into the program, or into WITH ... AS",
            Some(Ast::Truncate(_)) => "use DELETE FROM",
            Some(Ast::Merge(_)) => "use INSERT ... ON CONFLICT DO UPDATE",
            Some(Ast::CreateSchema { .. } | Ast::CreateDatabase { .. }) => {
                "all tables are in the schema public: choose other table names"
            }
            Some(Ast::Vacuum(_) | Ast::Analyze(_)) => {
                "it is not needed: compaction and statistics are automatic"
            }
            Some(Ast::Grant(_) | Ast::Revoke(_) | Ast::CreateRole(_) | Ast::CreateUser(_)) => {
                "the server has one user, with the password that it was started with"
            }
            Some(Ast::Prepare { .. } | Ast::Execute { .. } | Ast::Deallocate { .. }) => {
                "prepare statements by the protocol, as drivers do"
            }
            Some(Ast::Declare { .. } | Ast::Fetch { .. } | Ast::Close { .. }) => {
                "fetch rows in portions by the protocol, as drivers do"
            }
            Some(Ast::Copy { .. }) => "use INSERT, or `perigee import` for files",
            Some(Ast::Pragma { .. }) => "it is a statement of SQLite; see \\? in `perigee sql`",
            Some(Ast::Drop { .. }) => "DROP TABLE and DROP INDEX are",
            Some(Ast::LISTEN { .. } | Ast::NOTIFY { .. }) => "use the change feed of the tables",
            _ => "docs/sql.md lists the supported statements",
        };
        SqlError::unsupported(self.name(), hint)
    }
    /// Returns a query in the form in which DataFusion plans it. See also `RowQueries`.
    pub(crate) fn to_plan(&self) -> Result<Parsed> {
        let Parsed::Statement(ast) = &self.parsed else { return Ok(self.parsed.clone()) };
        let mut ast = ast.clone();
        if let Ast::Query(query) = &*ast {
            if !query.locks.is_empty() {
                let hint = "conflicts are found at COMMIT: leave it out";
                return Err(SqlError::unsupported("SELECT FOR UPDATE", hint));
            }
            rewrite_query(&mut ast);
        }
        Ok(Parsed::Statement(ast))
    }
    /// Returns what an INSERT does with conflicts.
    pub(crate) fn on_conflict(&self) -> Result<OnConflict<'_>> {
        match self.ast() {
            Some(Ast::Insert(insert)) => conflict_clause(insert),
            _ => Ok(OnConflict::Fail),
        }
    }
    /// Returns the columns that an INSERT lists.
    pub(crate) fn insert_columns(&self) -> Vec<String> {
        let Some(Ast::Insert(insert)) = self.ast() else { return Vec::new() };
        let name = |column: &ObjectName| column.0.last().and_then(|part| part.as_ident().cloned());
        insert.columns.iter().filter_map(name).map(|ident| identifier(&ident)).collect()
    }
    /// Returns the alias of the table of an INSERT.
    pub(crate) fn insert_alias(&self) -> Option<String> {
        match self.ast() {
            Some(Ast::Insert(insert)) => {
                insert.table_alias.as_ref().map(|alias| identifier(&alias.alias))
            }
            _ => None,
        }
    }
    /// Returns the options of BEGIN.
    pub(crate) fn txn_options(&self, defaults: &TxnOptions) -> Result<TxnOptions> {
        let modes = match self.ast() {
            Some(Ast::StartTransaction { modes, .. }) => modes.as_slice(),
            _ => &[],
        };
        transaction_options(modes, defaults)
    }
    /// Returns the options of SET SESSION CHARACTERISTICS AS TRANSACTION.
    pub(crate) fn default_txn_options(&self) -> Result<Option<TxnOptions>> {
        match self.ast() {
            Some(Ast::Set(Set::SetTransaction { modes, session: true, .. })) => {
                transaction_options(modes, &TxnOptions::new()).map(Some)
            }
            _ => Ok(None),
        }
    }
    /// Returns the variable of a RESET.
    fn reset_name(&self) -> Option<String> {
        match &self.parsed {
            Parsed::Reset(ResetStatement::Variable(name)) => Some(name.to_string()),
            _ => None,
        }
    }
    /// Returns true for RESET.
    pub(crate) fn is_reset(&self) -> bool {
        self.reset_name().is_some()
    }
    /// Returns true for RESET ALL.
    pub(crate) fn resets_all(&self) -> bool {
        self.reset_name().is_some_and(|name| name.eq_ignore_ascii_case("all"))
    }
    /// Checks that a variable can be ignored.
    pub(crate) fn check_setting(&self) -> Result<()> {
        if self.resets_all() {
            return Ok(());
        }
        let name = match self.ast() {
            None => self.reset_name().unwrap_or_default(),
            Some(Ast::Set(Set::SingleAssignment { variable, .. })) => variable.to_string(),
            Some(Ast::Set(Set::SetTransaction { session: true, .. })) => return Ok(()),
            Some(Ast::Set(Set::SetNames { .. } | Set::SetNamesDefault {})) => return Ok(()),
            Some(Ast::Set(Set::SetTimeZone { value, .. })) => {
                let zone = value.to_string().trim_matches('\'').to_ascii_lowercase();
                if UTC_NAMES.contains(&zone.as_str()) {
                    return Ok(());
                }
                let hint = "times are in UTC: convert them in the program";
                return Err(SqlError::unsupported("a time zone other than UTC", hint));
            }
            _ => return Err(self.refusal()),
        };
        let name = name.to_ascii_lowercase();
        if IGNORED_SETTINGS.contains(&name.as_str()) {
            return Ok(());
        }
        let text = format!("there is no setting {name}");
        Err(SqlError::new(SqlState::UNDEFINED_OBJECT, text)
            .with_hint("settings that drivers send at connect are accepted and have no effect"))
    }
    /// Sets, releases or returns to a savepoint.
    pub(crate) fn apply_savepoint(&self, txn: &TableTxn<'static>) -> Result<&'static str> {
        let txn = txn.engine_txn();
        match self.ast() {
            Some(Ast::Savepoint { name }) => {
                txn.savepoint(savepoint_name(name))?;
                Ok("SAVEPOINT")
            }
            Some(Ast::ReleaseSavepoint { name }) => {
                txn.release_savepoint(savepoint_name(name))?;
                Ok("RELEASE")
            }
            Some(Ast::Rollback { savepoint: Some(name), .. }) => {
                txn.rollback_to(savepoint_name(name))?;
                Ok("ROLLBACK")
            }
            _ => Err(self.refusal()),
        }
    }
}

/// Prefixed, so that no name is that of an internal savepoint.
fn savepoint_name(name: &Ident) -> String {
    format!("sql/{}", identifier(name))
}

/// Settings that have no effect here, whatever their value: clients send them at connect.
const IGNORED_SETTINGS: &[&str] = &[
    "application_name",
    "client_encoding",
    "client_min_messages",
    "datestyle",
    "extra_float_digits",
    "intervalstyle",
    "search_path",
    "standard_conforming_strings",
    "bytea_output",
];

const UTC_NAMES: &[&str] = &["utc", "etc/utc", "gmt", "z", "0", "+00:00", "default", "local"];

fn transaction_options(modes: &[TransactionMode], defaults: &TxnOptions) -> Result<TxnOptions> {
    let mut options = defaults.clone();
    for mode in modes {
        match mode {
            TransactionMode::AccessMode(access) => {
                options.read_only = *access == TransactionAccessMode::ReadOnly;
            }
            TransactionMode::IsolationLevel(level) => {
                // The weakest level that gives the guarantees of the requested one.
                options.isolation = Some(match level {
                    TransactionIsolationLevel::ReadUncommitted
                    | TransactionIsolationLevel::ReadCommitted
                    | TransactionIsolationLevel::RepeatableRead => Isolation::RepeatableRead,
                    TransactionIsolationLevel::Snapshot => Isolation::Snapshot,
                    TransactionIsolationLevel::Serializable => Isolation::Serializable,
                });
            }
        }
    }
    Ok(options)
}

/// Turns SHOW into a query.
fn rewrite_show(parsed: Parsed) -> Result<Parsed> {
    let Parsed::Statement(ast) = &parsed else { return Ok(parsed) };
    let query = match &**ast {
        Ast::ShowTables { .. } => format!(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = '{SCHEMA}' \
             ORDER BY table_name"
        ),
        Ast::ShowVariable { variable } => {
            let words: Vec<String> = variable.iter().map(|ident| ident.value.clone()).collect();
            let name = words.join(" ").to_ascii_lowercase();
            let Some((_, value)) = SHOWN_VARIABLES.iter().find(|(known, _)| *known == name) else {
                let text = format!("there is no setting {name}");
                return Err(SqlError::new(SqlState::UNDEFINED_OBJECT, text)
                    .with_hint("SHOW TABLES lists the tables"));
            };
            format!("SELECT '{value}' AS \"{}\"", name.replace(' ', "_"))
        }
        _ => return Ok(parsed),
    };
    let mut rewritten = DFParser::parse_sql_with_dialect(&query, &PostgreSqlDialect {})?;
    Ok(rewritten.pop_front().unwrap_or(parsed))
}

fn kind_of(parsed: &Parsed) -> StatementKind {
    let ast = match parsed {
        Parsed::CreateExternalTable(_) | Parsed::CopyTo(_) => return StatementKind::Files,
        Parsed::Explain(ExplainStatement { statement, .. }) => {
            return match kind_of(statement) {
                StatementKind::Query => StatementKind::Query,
                _ => StatementKind::Unsupported,
            };
        }
        Parsed::Reset(_) => return StatementKind::Setting,
        Parsed::Statement(ast) => ast,
    };
    match &**ast {
        Ast::Query(_) | Ast::ShowColumns { .. } | Ast::ExplainTable { .. } => StatementKind::Query,
        Ast::Insert(_) => StatementKind::Insert,
        Ast::Update(_) => StatementKind::Update,
        Ast::Delete(_) => StatementKind::Delete,
        Ast::StartTransaction { .. } => StatementKind::Begin,
        Ast::Commit { .. } => StatementKind::Commit,
        Ast::Rollback { savepoint: None, .. } => StatementKind::Rollback,
        Ast::Rollback { .. } | Ast::Savepoint { .. } | Ast::ReleaseSavepoint { .. } => {
            StatementKind::Savepoint
        }
        Ast::Set(_) => StatementKind::Setting,
        Ast::CreateTable(_) | Ast::CreateIndex(_) | Ast::AlterTable(_) => StatementKind::Schema,
        Ast::Drop { object_type: ObjectType::Table | ObjectType::Index, .. } => {
            StatementKind::Schema
        }
        _ => StatementKind::Unsupported,
    }
}

/// Refuses plans that do something else than read.
pub fn check_plan(plan: &LogicalPlan) -> Result<()> {
    let what = match plan {
        LogicalPlan::Explain(explain) => return check_plan(&explain.plan),
        LogicalPlan::Analyze(analyze) => return check_plan(&analyze.input),
        LogicalPlan::Ddl(ddl) => ddl.name(),
        LogicalPlan::Dml(_) => "EXPLAIN of a change of rows",
        LogicalPlan::Copy(_) => "COPY",
        LogicalPlan::Statement(statement) => statement.name(),
        _ => return Ok(()),
    };
    Err(SqlError::unsupported(what, "use a SELECT with the same conditions"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_named_by_their_first_words() {
        for (sql, name) in [
            ("CREATE VIEW v AS SELECT 1", "CREATE VIEW"),
            ("TRUNCATE t", "TRUNCATE"),
            ("VACUUM", "VACUUM"),
        ] {
            let statement = parse(sql).unwrap().remove(0);
            assert_eq!(statement.kind(), StatementKind::Unsupported);
            assert!(statement.refusal().message().starts_with(name), "{}", statement.refusal());
        }
    }

    #[test]
    fn syntax_errors_have_a_position() {
        let error = parse("SELECT 1;\nSELECT (1 2)").unwrap_err();
        assert_eq!(error.state(), SqlState::SYNTAX_ERROR);
        assert_eq!(error.position().map(|p| p.line), Some(2), "{error}");
    }
}
