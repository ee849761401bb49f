//! [`Error`]: what failed, in which table and column, for which key, and what to do.

use crate::limits::KEY_PREVIEW_CHARS_MAX;
use std::fmt;

/// Result of an operation on tables.
pub type Result<T> = std::result::Result<T, Error>;

/// What kind of failure an [`Error`] reports. The comment of each kind says what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A row with the key exists. Nothing was changed. Use `put` to replace it.
    KeyExists,
    /// Another row has the same values in the columns of a unique index. Nothing was changed.
    UniqueViolation,
    /// There is no table or index of that name.
    NotFound,
    /// A table or index of that name exists, with another definition.
    AlreadyExists,
    /// The declared schema does not fit the stored one. The message says what to change.
    SchemaMismatch,
    /// An argument breaks a documented rule. Nothing was changed. Change the call.
    InvalidArgument,
    /// Stored bytes are damaged.
    Corruption,
    /// Other commits changed what the transaction read or wrote, in each attempt. Try again.
    Conflict,
    /// The operation cannot run now. Nothing was changed. Try again later.
    Busy,
    /// The engine failed; [`Error::engine`] is its error.
    Engine,
}

impl ErrorKind {
    /// Returns the kind as text.
    ///
    /// ```
    /// assert_eq!(perigee_tables::ErrorKind::KeyExists.name(), "key exists");
    /// ```
    pub fn name(self) -> &'static str {
        match self {
            ErrorKind::KeyExists => "key exists",
            ErrorKind::UniqueViolation => "unique violation",
            ErrorKind::NotFound => "not found",
            ErrorKind::AlreadyExists => "already exists",
            ErrorKind::SchemaMismatch => "schema mismatch",
            ErrorKind::InvalidArgument => "invalid argument",
            ErrorKind::Corruption => "corruption",
            ErrorKind::Conflict => "conflict",
            ErrorKind::Busy => "busy",
            ErrorKind::Engine => "engine",
        }
    }
}

/// Formats as [`ErrorKind::name`].
impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An error of an operation on tables. Its message names table, column, index and key as far as
/// they are known, and says what to do.
///
/// ```
/// # use perigee_tables::{ErrorKind, Schema, ColumnType, TableDb, Value};
/// # let db = perigee::example_db()?;
/// let schema = Schema::new().key("id", ColumnType::U32).column("name", ColumnType::Text);
/// let users = db.create_dyn_table("users", schema)?;
/// users.insert(&vec![Value::U32(7), Value::from("ann")])?;
/// let error = users.insert(&vec![Value::U32(7), Value::from("bob")]).unwrap_err();
/// assert_eq!((error.kind(), error.table()), (ErrorKind::KeyExists, Some("users")));
/// assert_eq!(error.key(), Some("(7)"));
/// # Ok::<(), perigee_tables::Error>(())
/// ```
#[derive(Clone)]
pub struct Error(Box<ErrorDetails>);

#[derive(Clone)]
struct ErrorDetails {
    kind: ErrorKind,
    message: String,
    table: Option<String>,
    column: Option<String>,
    index: Option<String>,
    key: Option<String>,
    duplicate_rows: Option<DuplicateRows>,
    engine: Option<perigee::Error>,
}

/// Numbers of two rows of a bulk load, counted from 0, that exclude each other.
#[derive(Clone, Copy, Debug)]
pub struct DuplicateRows {
    pub first: u64,
    pub second: u64,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error(Box::new(ErrorDetails {
            kind,
            message: message.into(),
            table: None,
            column: None,
            index: None,
            key: None,
            duplicate_rows: None,
            engine: None,
        }))
    }
    pub(crate) fn invalid(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::InvalidArgument, message)
    }
    pub(crate) fn mismatch(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::SchemaMismatch, message)
    }
    pub(crate) fn corruption(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Corruption, message)
    }
    /// Adds the table, unless one is named already.
    pub(crate) fn in_table(mut self, table: &str) -> Error {
        self.0.table.get_or_insert_with(|| table.to_owned());
        self
    }
    pub(crate) fn in_column(mut self, column: &str) -> Error {
        self.0.column.get_or_insert_with(|| column.to_owned());
        self
    }
    pub(crate) fn in_index(mut self, index: &str) -> Error {
        self.0.index.get_or_insert_with(|| index.to_owned());
        self
    }
    pub(crate) fn with_duplicate_rows(mut self, rows: DuplicateRows) -> Error {
        self.0.duplicate_rows = Some(rows);
        self
    }
    /// Adds the key as text, cut to a readable length.
    pub(crate) fn with_key(mut self, key: impl fmt::Display) -> Error {
        let mut text = key.to_string();
        if let Some((cut, _)) = text.char_indices().nth(KEY_PREVIEW_CHARS_MAX) {
            text.truncate(cut);
            text.push_str("...");
        }
        self.0.key.get_or_insert(text);
        self
    }

    /// Returns the kind, which says what the caller can do.
    ///
    /// ```
    /// # use perigee_tables::{ErrorKind, TableDb};
    /// # let db = perigee::example_db()?;
    /// assert_eq!(db.dyn_table("none").unwrap_err().kind(), ErrorKind::NotFound);
    /// # Ok::<(), perigee_tables::Error>(())
    /// ```
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }
    /// Returns the message without table, column, index and key.
    ///
    /// ```
    /// # use perigee_tables::TableDb;
    /// # let db = perigee::example_db()?;
    /// assert!(db.dyn_table("none").unwrap_err().message().contains("create"));
    /// # Ok::<(), perigee_tables::Error>(())
    /// ```
    pub fn message(&self) -> &str {
        &self.0.message
    }
    /// Returns the name of the table.
    ///
    /// ```
    /// # use perigee_tables::TableDb;
    /// # let db = perigee::example_db()?;
    /// assert_eq!(db.dyn_table("none").unwrap_err().table(), Some("none"));
    /// # Ok::<(), perigee_tables::Error>(())
    /// ```
    pub fn table(&self) -> Option<&str> {
        self.0.table.as_deref()
    }
    /// Returns the name of the column.
    ///
    /// ```
    /// # use perigee_tables::{ColumnType, Schema, TableDb, Value};
    /// # let db = perigee::example_db()?;
    /// let users = db.create_dyn_table("users", Schema::new().key("id", ColumnType::U32))?;
    /// let error = users.put(&vec![Value::from("text")]).unwrap_err();
    /// assert_eq!(error.column(), Some("id"));
    /// # Ok::<(), perigee_tables::Error>(())
    /// ```
    pub fn column(&self) -> Option<&str> {
        self.0.column.as_deref()
    }
    /// Returns the name of the index.
    ///
    /// ```
    /// # use perigee_tables::{ColumnType, Schema, TableDb};
    /// # let db = perigee::example_db()?;
    /// let users = db.create_dyn_table("users", Schema::new().key("id", ColumnType::U32))?;
    /// assert_eq!(users.index("by_name").unwrap_err().index(), Some("by_name"));
    /// # Ok::<(), perigee_tables::Error>(())
    /// ```
    pub fn index(&self) -> Option<&str> {
        self.0.index.as_deref()
    }
    /// Returns the key as text, such as `(7, "ann")`; long keys are cut.
    ///
    /// ```
    /// # use perigee_tables::{ColumnType, Schema, TableDb, Value};
    /// # let db = perigee::example_db()?;
    /// let users = db.create_dyn_table("users", Schema::new().key("id", ColumnType::U32))?;
    /// users.insert(&vec![Value::U32(7)])?;
    /// assert_eq!(users.insert(&vec![Value::U32(7)]).unwrap_err().key(), Some("(7)"));
    /// # Ok::<(), perigee_tables::Error>(())
    /// ```
    pub fn key(&self) -> Option<&str> {
        self.0.key.as_deref()
    }
    /// Returns the numbers of two rows of a bulk load, counted from 0, that have the same primary
    /// key, or the same values in a unique index.
    ///
    /// ```
    /// # use perigee_tables::{ColumnType, Schema, TableDb};
    /// # let db = perigee::example_db()?;
    /// let users = db.create_dyn_table("users", Schema::new().key("id", ColumnType::U32))?;
    /// let error = users.load([3u32, 1, 2, 1].map(|id| vec![id.into()])).unwrap_err();
    /// assert_eq!(error.duplicate_rows(), Some((1, 3)));
    /// # Ok::<(), perigee_tables::Error>(())
    /// ```
    pub fn duplicate_rows(&self) -> Option<(u64, u64)> {
        self.0.duplicate_rows.map(|rows| (rows.first, rows.second))
    }
    /// Returns the error of the engine that caused this one.
    ///
    /// ```
    /// # use perigee_tables::{ErrorKind, TableDb};
    /// # let db = perigee::example_db()?;
    /// db.close()?;
    /// let error = db.dyn_table("users").unwrap_err();
    /// assert_eq!(error.engine().map(|e| e.kind()), Some(perigee::ErrorKind::Closed));
    /// # Ok::<(), perigee_tables::Error>(())
    /// ```
    pub fn engine(&self) -> Option<&perigee::Error> {
        self.0.engine.as_ref()
    }
    /// Returns true if the same call can succeed later ([`ErrorKind::Conflict`],
    /// [`ErrorKind::Busy`]).
    ///
    /// ```
    /// # use perigee_tables::TableDb;
    /// # let db = perigee::example_db()?;
    /// assert!(!db.dyn_table("none").unwrap_err().is_retryable());
    /// # Ok::<(), perigee_tables::Error>(())
    /// ```
    pub fn is_retryable(&self) -> bool {
        matches!(self.kind(), ErrorKind::Conflict | ErrorKind::Busy)
    }
}

/// Keeps the error of the engine as [`Error::engine`].
impl From<perigee::Error> for Error {
    fn from(e: perigee::Error) -> Error {
        let kind = match e.kind() {
            perigee::ErrorKind::Conflict => ErrorKind::Conflict,
            perigee::ErrorKind::Busy => ErrorKind::Busy,
            perigee::ErrorKind::Corruption => ErrorKind::Corruption,
            perigee::ErrorKind::InvalidArgument => ErrorKind::InvalidArgument,
            _ => ErrorKind::Engine,
        };
        // Display writes the kind of this error, which has the same name except for `Engine`.
        let text = e.to_string();
        let own_kind = format!("{kind}: ");
        let mut error = Error::new(kind, text.strip_prefix(&own_kind).unwrap_or(&text));
        error.0.engine = Some(e);
        error
    }
}

/// Formats as `table "users", key (7): key exists: ...`.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ErrorDetails { kind, message, table, column, index, key, .. } = &*self.0;
        let mut separator = "";
        for (what, name) in [("table", table), ("column", column), ("index", index)] {
            if let Some(name) = name {
                write!(f, "{separator}{what} {name:?}")?;
                separator = ", ";
            }
        }
        if let Some(key) = key {
            write!(f, "{separator}key {key}")?;
            separator = ", ";
        }
        let colon = if separator.is_empty() { "" } else { ": " };
        write!(f, "{colon}{kind}: {message}")
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.engine.as_ref().map(|e| e as _)
    }
}

/// Why stored bytes are not a key or row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The bytes break the format: a damaged row.
    Bytes(&'static str),
    /// The row has a layout that the binding does not know: the schema was changed, or the row is
    /// damaged.
    UnknownLayout,
}
