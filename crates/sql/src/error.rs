//! [`SqlError`]: what failed in a statement, with its SQLSTATE, a hint and the place in the text.

use datafusion::common::SchemaError;
use datafusion::error::DataFusionError;
use perigee_tables::ErrorKind;
use std::fmt;

/// Result of a call of this crate.
pub type Result<T> = std::result::Result<T, SqlError>;

/// A five-character code of the SQL standard for a kind of failure, as PostgreSQL uses them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SqlState(&'static str);

/// Defines the codes.
macro_rules! sql_states {
    ($($(#[$doc:meta])* $name:ident $code:literal;)+) => {
        impl SqlState {
            $($(#[$doc])* pub const $name: SqlState = SqlState($code);)+
        }
    };
}

sql_states! {
    /// The statement does not parse.
    SYNTAX_ERROR "42601";
    /// The statement is not supported; the message names it.
    UNSUPPORTED "0A000";
    /// There is no table or index of this name.
    UNDEFINED_TABLE "42P01";
    /// There is no column of this name.
    UNDEFINED_COLUMN "42703";
    /// There is no function of this name.
    UNDEFINED_FUNCTION "42883";
    /// There is no setting of this name.
    UNDEFINED_OBJECT "42704";
    /// A table or index of this name exists.
    DUPLICATE_TABLE "42P07";
    /// A column of this name exists.
    DUPLICATE_COLUMN "42701";
    /// Another row has the same primary key, or the same values in a unique index.
    UNIQUE_VIOLATION "23505";
    /// NULL in a column that is not nullable.
    NOT_NULL_VIOLATION "23502";
    /// Another transaction has changed what this one read or wrote: repeat it.
    SERIALIZATION_FAILURE "40001";
    /// A lock is held by another transaction or a bulk load.
    LOCK_NOT_AVAILABLE "55P03";
    /// The statement cannot run in the current state of the session or table.
    NOT_IN_PREREQUISITE_STATE "55000";
    /// A transaction is active.
    ACTIVE_TRANSACTION "25001";
    /// The transaction has failed: only ROLLBACK is accepted.
    FAILED_TRANSACTION "25P02";
    /// The database is read-only.
    READ_ONLY "25006";
    /// A value does not fit its type.
    INVALID_VALUE "22023";
    /// Text is no value of the type.
    INVALID_TEXT "22P02";
    /// A number is out of range.
    OUT_OF_RANGE "22003";
    /// Division by zero.
    DIVISION_BY_ZERO "22012";
    /// Memory or disk space is exhausted.
    RESOURCES "53200";
    /// The statement was canceled.
    CANCELED "57014";
    /// Stored bytes are damaged.
    DATA_CORRUPTED "XX001";
    /// An input or output error.
    IO_ERROR "58030";
    /// Any other failure in the planner or the executor.
    INTERNAL "XX000";
    /// The types of an expression do not fit each other, or another rule is broken.
    DATATYPE_MISMATCH "42804";
}

impl SqlState {
    /// Returns the code.
    ///
    /// ```
    /// assert_eq!(perigee_sql::SqlState::UNIQUE_VIOLATION.code(), "23505");
    /// ```
    pub fn code(self) -> &'static str {
        self.0
    }
}

/// A place in the text of a statement: line and column, from 1 on, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The line.
    pub line: u64,
    /// The column.
    pub column: u64,
}

impl Position {
    /// Returns the number of characters of `text` up to the position, from 1 on, as the protocol of
    /// PostgreSQL reports it.
    ///
    /// ```
    /// let position = perigee_sql::Position { line: 2, column: 3 };
    /// assert_eq!(position.offset_in("SELECT\n  x"), 10);
    /// ```
    pub fn offset_in(self, text: &str) -> usize {
        let lines_before = (self.line as usize).saturating_sub(1);
        let before = text.split_inclusive('\n').take(lines_before);
        before.map(|line| line.chars().count()).sum::<usize>() + self.column as usize
    }
}

/// A failed statement.
///
/// ```
/// # use perigee_sql::{Session, SqlState};
/// # let db = perigee::example_db().unwrap();
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let mut session = Session::new(&db, Default::default()).unwrap();
/// let error = session.run("SELECT 1 +").await.unwrap_err();
/// assert_eq!(error.state(), SqlState::SYNTAX_ERROR);
/// # });
/// ```
#[derive(Clone, Debug)]
pub struct SqlError(Box<Details>);

#[derive(Clone, Debug)]
struct Details {
    state: SqlState,
    message: String,
    hint: Option<String>,
    position: Option<Position>,
    constraint: Option<String>,
    table: Option<String>,
    column: Option<String>,
}

impl SqlError {
    /// Returns an error.
    ///
    /// ```
    /// use perigee_sql::{SqlError, SqlState};
    /// let error = SqlError::new(SqlState::IO_ERROR, "the file cannot be read");
    /// assert_eq!(error.state().code(), SqlState::IO_ERROR.code());
    /// ```
    pub fn new(state: SqlState, message: impl Into<String>) -> SqlError {
        SqlError(Box::new(Details {
            state,
            message: message.into(),
            hint: None,
            position: None,
            constraint: None,
            table: None,
            column: None,
        }))
    }
    /// Returns the error for a statement or clause that is not supported.
    pub(crate) fn unsupported(what: impl fmt::Display, hint: &str) -> SqlError {
        SqlError::new(SqlState::UNSUPPORTED, format!("{what} is not supported")).with_hint(hint)
    }
    #[must_use]
    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> SqlError {
        self.0.hint.get_or_insert(hint.into());
        self
    }
    #[must_use]
    pub(crate) fn in_table(mut self, table: &str) -> SqlError {
        self.0.table.get_or_insert_with(|| table.to_owned());
        self
    }
    #[must_use]
    pub(crate) fn in_column(mut self, column: &str) -> SqlError {
        self.0.column.get_or_insert_with(|| column.to_owned());
        self
    }
    /// Returns the SQLSTATE.
    ///
    /// ```
    /// # use perigee_sql::{Session, SqlState};
    /// # let db = perigee::example_db().unwrap();
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let mut session = Session::new(&db, Default::default())?;
    /// let error = session.run("SELECT 1 +").await.unwrap_err();
    /// assert_eq!(error.state(), SqlState::SYNTAX_ERROR);
    /// # Ok::<(), perigee_sql::SqlError>(())
    /// # }).unwrap();
    /// ```
    pub fn state(&self) -> SqlState {
        self.0.state
    }
    /// Returns the message, without the hint.
    ///
    /// ```
    /// # use perigee_sql::Session;
    /// # let db = perigee::example_db().unwrap();
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let mut session = Session::new(&db, Default::default())?;
    /// let error = session.run("VACUUM").await.unwrap_err();
    /// assert!(error.message().contains("VACUUM"));
    /// # Ok::<(), perigee_sql::SqlError>(())
    /// # }).unwrap();
    /// ```
    pub fn message(&self) -> &str {
        &self.0.message
    }
    /// Returns what can be done.
    ///
    /// ```
    /// # use perigee_sql::Session;
    /// # let db = perigee::example_db().unwrap();
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let mut session = Session::new(&db, Default::default())?;
    /// let error = session.run("VACUUM").await.unwrap_err();
    /// assert!(error.hint().is_some());
    /// # Ok::<(), perigee_sql::SqlError>(())
    /// # }).unwrap();
    /// ```
    pub fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }
    /// Returns the place in the text of the statement.
    ///
    /// ```
    /// # use perigee_sql::Session;
    /// # let db = perigee::example_db().unwrap();
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let mut session = Session::new(&db, Default::default())?;
    /// let error = session.run("SELECT 1,\n  x").await.unwrap_err();
    /// assert_eq!(error.position().map(|p| (p.line, p.column)), Some((2, 3)));
    /// # Ok::<(), perigee_sql::SqlError>(())
    /// # }).unwrap();
    /// ```
    pub fn position(&self) -> Option<Position> {
        self.0.position
    }
    /// Returns the name of the violated constraint: a unique index, or the primary key.
    ///
    /// ```
    /// # use perigee_sql::Session;
    /// # let db = perigee::example_db().unwrap();
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let mut session = Session::new(&db, Default::default())?;
    /// session.run("CREATE TABLE t (id INT PRIMARY KEY); INSERT INTO t VALUES (1)").await?;
    /// let error = session.run("INSERT INTO t VALUES (1)").await.unwrap_err();
    /// assert_eq!(error.constraint(), Some("t_pkey"));
    /// # Ok::<(), perigee_sql::SqlError>(())
    /// # }).unwrap();
    /// ```
    pub fn constraint(&self) -> Option<&str> {
        self.0.constraint.as_deref()
    }
    /// Returns the name of the table.
    ///
    /// ```
    /// # use perigee_sql::Session;
    /// # let db = perigee::example_db().unwrap();
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let mut session = Session::new(&db, Default::default())?;
    /// session.run("CREATE TABLE t (id INT PRIMARY KEY); INSERT INTO t VALUES (1)").await?;
    /// let error = session.run("INSERT INTO t VALUES (1)").await.unwrap_err();
    /// assert_eq!(error.table(), Some("t"));
    /// # Ok::<(), perigee_sql::SqlError>(())
    /// # }).unwrap();
    /// ```
    pub fn table(&self) -> Option<&str> {
        self.0.table.as_deref()
    }
    /// Returns the name of the column.
    ///
    /// ```
    /// # use perigee_sql::Session;
    /// # let db = perigee::example_db().unwrap();
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let mut session = Session::new(&db, Default::default())?;
    /// session.run("CREATE TABLE t (id INT PRIMARY KEY, name TEXT NOT NULL)").await?;
    /// let error = session.run("INSERT INTO t VALUES (1, NULL)").await.unwrap_err();
    /// assert!(error.column().is_some());
    /// # Ok::<(), perigee_sql::SqlError>(())
    /// # }).unwrap();
    /// ```
    pub fn column(&self) -> Option<&str> {
        self.0.column.as_deref()
    }
}

/// Formats as `message (SQLSTATE 23505)`, without hint and position.
impl fmt::Display for SqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (SQLSTATE {})", self.message(), self.state().code())
    }
}

impl std::error::Error for SqlError {}

impl From<perigee_tables::Error> for SqlError {
    fn from(e: perigee_tables::Error) -> SqlError {
        let state = match e.kind() {
            ErrorKind::KeyExists | ErrorKind::UniqueViolation => SqlState::UNIQUE_VIOLATION,
            ErrorKind::NotFound => SqlState::UNDEFINED_TABLE,
            ErrorKind::AlreadyExists => SqlState::DUPLICATE_TABLE,
            ErrorKind::SchemaMismatch => SqlState::NOT_IN_PREREQUISITE_STATE,
            ErrorKind::InvalidArgument => SqlState::INVALID_VALUE,
            ErrorKind::Corruption => SqlState::DATA_CORRUPTED,
            ErrorKind::Conflict => SqlState::SERIALIZATION_FAILURE,
            ErrorKind::Busy => SqlState::LOCK_NOT_AVAILABLE,
            _ => match e.engine().map(|engine| engine.kind()) {
                Some(perigee::ErrorKind::ReadOnly) => SqlState::READ_ONLY,
                Some(perigee::ErrorKind::Io) => SqlState::IO_ERROR,
                _ => SqlState::INTERNAL,
            },
        };
        let table = e.table().unwrap_or_default();
        let key = e.key().unwrap_or("?");
        let mut error = match e.kind() {
            ErrorKind::KeyExists => {
                let text = format!("table {table:?} has a row with the primary key {key}");
                let hint = "change the key, delete the row first, or add ON CONFLICT DO NOTHING";
                SqlError::new(state, text).with_hint(hint)
            }
            ErrorKind::Conflict => {
                let text =
                    "another transaction has changed a row that this one has read or written";
                SqlError::new(state, text).with_hint("repeat the transaction from its beginning")
            }
            _ => SqlError::new(state, e.to_string()),
        };
        error.0.constraint = match e.kind() {
            ErrorKind::KeyExists => Some(format!("{table}_pkey")),
            _ => e.index().map(str::to_owned),
        };
        error.0.table = e.table().map(str::to_owned);
        error.0.column = e.column().map(str::to_owned);
        error
    }
}

impl From<perigee::Error> for SqlError {
    fn from(e: perigee::Error) -> SqlError {
        perigee_tables::Error::from(e).into()
    }
}

/// Keeps errors of this crate that have passed through DataFusion.
impl From<DataFusionError> for SqlError {
    fn from(e: DataFusionError) -> SqlError {
        if let Some(own) = find_own(&e) {
            return own;
        }
        let position = find_span(&e);
        let root = e.find_root();
        let text = root.strip_backtrace();
        let state = match root {
            DataFusionError::SQL(..) => SqlState::SYNTAX_ERROR,
            DataFusionError::SchemaError(schema, _) => match **schema {
                SchemaError::FieldNotFound { .. } => SqlState::UNDEFINED_COLUMN,
                _ => SqlState::DUPLICATE_COLUMN,
            },
            DataFusionError::NotImplemented(_) => SqlState::UNSUPPORTED,
            DataFusionError::ResourcesExhausted(_) => SqlState::RESOURCES,
            DataFusionError::IoError(_) | DataFusionError::ObjectStore(_) => SqlState::IO_ERROR,
            DataFusionError::ArrowError(arrow, _) => state_of_arrow(&arrow.to_string()),
            DataFusionError::Plan(text) if text.contains("not found") => {
                if text.contains("table") {
                    SqlState::UNDEFINED_TABLE
                } else {
                    SqlState::UNDEFINED_FUNCTION
                }
            }
            DataFusionError::Plan(text) if text.contains("nvalid function") => {
                SqlState::UNDEFINED_FUNCTION
            }
            DataFusionError::Plan(_) => SqlState::DATATYPE_MISMATCH,
            DataFusionError::Execution(text) => state_of_arrow(text),
            _ => SqlState::INTERNAL,
        };
        let mut error = SqlError::new(state, shorten(&text));
        error.0.position = position.or_else(|| position_in_text(&text));
        if state == SqlState::RESOURCES {
            let hint = "raise the memory limit, or read fewer rows at a time";
            error = error.with_hint(hint);
        }
        error
    }
}

/// Finds an error of this crate inside.
fn find_own(e: &DataFusionError) -> Option<SqlError> {
    let find_in = |inner: &(dyn std::error::Error + Send + Sync + 'static)| {
        inner.downcast_ref::<SqlError>().cloned().or_else(|| find_own(inner.downcast_ref()?))
    };
    match e {
        DataFusionError::External(inner) => find_in(&**inner),
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => {
            find_own(inner)
        }
        DataFusionError::Shared(inner) => find_own(inner),
        DataFusionError::Collection(errors) => errors.first().and_then(find_own),
        DataFusionError::ArrowError(arrow, _) => match &**arrow {
            datafusion::arrow::error::ArrowError::ExternalError(inner) => find_in(&**inner),
            _ => None,
        },
        _ => None,
    }
}

fn find_span(e: &DataFusionError) -> Option<Position> {
    let span = e.diagnostic()?.span?;
    Some(Position { line: span.start.line, column: span.start.column })
}

/// Reads the position at the end of a message of the parser: `at Line: 1, Column: 8`.
fn position_in_text(text: &str) -> Option<Position> {
    let (_, rest) = text.rsplit_once("Line: ")?;
    let (line, rest) = rest.split_once(", Column: ")?;
    let column: String = rest.chars().take_while(char::is_ascii_digit).collect();
    Some(Position { line: line.parse().ok()?, column: column.parse().ok()? })
}

fn state_of_arrow(text: &str) -> SqlState {
    let text = text.to_ascii_lowercase();
    if text.contains("divide by zero") || text.contains("division by zero") {
        SqlState::DIVISION_BY_ZERO
    } else if text.contains("overflow") || text.contains("can't cast value") {
        SqlState::OUT_OF_RANGE
    } else if text.contains("cannot cast string") || text.contains("error parsing") {
        SqlState::INVALID_TEXT
    } else {
        SqlState::INVALID_VALUE
    }
}

/// Removes the prefixes that name a part of the planner.
fn shorten(text: &str) -> String {
    let prefixes = [
        "SQL error: ParserError(\"",
        "Error during planning: ",
        "Schema error: ",
        "Execution error: ",
        "Arrow error: ",
        "This feature is not implemented: ",
        "Optimizer rule ",
    ];
    let mut rest = text;
    while let Some(short) = prefixes.iter().find_map(|p| rest.strip_prefix(p)) {
        rest = short;
    }
    rest.trim_end_matches("\")").replace("\\\"", "\"")
}

impl From<SqlError> for DataFusionError {
    fn from(e: SqlError) -> DataFusionError {
        DataFusionError::External(Box::new(e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_read_from_messages() {
        let text = "Expected: an expression, found: EOF at Line: 2, Column: 11";
        assert_eq!(position_in_text(text), Some(Position { line: 2, column: 11 }));
        assert_eq!(position_in_text("no place"), None);
        assert_eq!(Position { line: 2, column: 3 }.offset_in("äb\ncde"), 6);
    }
}
