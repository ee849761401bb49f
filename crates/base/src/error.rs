//! The error type of all crates: its kind (what the caller can do) and where it happened (file,
//! offset, expected and actual value). Cheap to clone, because one failed group commit is reported
//! to many writers.

use std::fmt;
use std::sync::Arc;

/// The result of every fallible call.
pub type Result<T> = std::result::Result<T, Error>;

/// What a caller can do about an error.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The argument breaks a documented limit or rule; nothing happened. Change the call.
    InvalidArgument,
    /// The database or file does not exist. Check the path, or allow creation.
    NotFound,
    /// An object of that name exists already.
    AlreadyExists,
    /// Another process, or another handle of this process, has the database open.
    Locked,
    /// Stored bytes are damaged. Nothing was changed; see `file` and `offset`.
    Corruption,
    /// The database was written by a newer version. Nothing was changed; use that version.
    FormatTooNew,
    /// A system call failed. The write was not applied and never will be.
    Io,
    /// The disk is full (or a quota is). The write was not applied; free space and try again.
    NoSpace,
    /// The log write or sync of the commit failed: after reopening, the commit is either present as
    /// a whole or absent.
    OutcomeUnknown,
    /// Writes are rejected because an earlier log write, sync or background task failed; reads
    /// continue. Close the database, fix the cause and reopen.
    Poisoned,
    /// The handle was closed.
    Closed,
    /// Allocating a large buffer failed.
    NoMemory,
    /// The database was opened read-only. Open it for writing.
    ReadOnly,
    /// The operation cannot run now and had no effect. Try again.
    Busy,
    /// Another transaction committed first: this one was not committed and never will be. Retry it
    /// from the start; see `family` and `key`.
    Conflict,
    /// The transaction was aborted by its time limit or by another thread. It had no effect.
    Aborted,
    /// A bug in the engine. Please report it.
    Internal,
}

impl ErrorKind {
    /// Returns the kind as text, for messages and `--json` output.
    pub fn name(self) -> &'static str {
        match self {
            ErrorKind::InvalidArgument => "invalid argument",
            ErrorKind::NotFound => "not found",
            ErrorKind::AlreadyExists => "already exists",
            ErrorKind::Locked => "locked",
            ErrorKind::Corruption => "corruption",
            ErrorKind::FormatTooNew => "format too new",
            ErrorKind::Io => "i/o error",
            ErrorKind::NoSpace => "no space",
            ErrorKind::OutcomeUnknown => "outcome unknown",
            ErrorKind::Poisoned => "poisoned",
            ErrorKind::Closed => "closed",
            ErrorKind::NoMemory => "no memory",
            ErrorKind::ReadOnly => "read-only",
            ErrorKind::Busy => "busy",
            ErrorKind::Conflict => "conflict",
            ErrorKind::Aborted => "aborted",
            ErrorKind::Internal => "internal error",
        }
    }
}

/// An error: kind, message and location.
#[derive(Clone)]
pub struct Error(Arc<ErrorFields>);

#[derive(Clone)]
struct ErrorFields {
    kind: ErrorKind,
    message: String,
    file: Option<String>,
    offset: Option<u64>,
    expected: Option<String>,
    got: Option<String>,
    os: Option<i32>,
    family: Option<String>,
    key: Option<Box<[u8]>>,
}

impl Error {
    /// Creates an error of `kind`. The message should say what the caller can do.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Error(Arc::new(ErrorFields {
            kind,
            message: message.into(),
            file: None,
            offset: None,
            expected: None,
            got: None,
            os: None,
            family: None,
            key: None,
        }))
    }

    /// Creates a `Corruption` error. Add its location with [`Error::at`].
    pub fn corruption(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Corruption, message)
    }

    /// Creates an `InvalidArgument` error.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidArgument, message)
    }

    /// Creates an `Internal` error: an invariant of the engine does not hold.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, message)
    }

    /// Creates an error from an operating system error. `doing` names the operation (for example
    /// `"append to 000004.wal"`).
    pub fn io(doing: impl fmt::Display, e: &std::io::Error) -> Self {
        use std::io::ErrorKind as K;
        let kind = match e.kind() {
            K::StorageFull | K::QuotaExceeded | K::FileTooLarge => ErrorKind::NoSpace,
            K::NotFound => ErrorKind::NotFound,
            K::AlreadyExists => ErrorKind::AlreadyExists,
            K::OutOfMemory => ErrorKind::NoMemory,
            _ => ErrorKind::Io,
        };
        let mut err = Self::new(kind, format!("{doing}: {e}"));
        err.fields_mut().os = e.raw_os_error();
        err
    }

    fn fields_mut(&mut self) -> &mut ErrorFields {
        Arc::make_mut(&mut self.0)
    }

    /// Adds a location to the error. The innermost location wins: one that is already set is kept.
    #[must_use]
    pub fn at(mut self, file: impl fmt::Display, offset: u64) -> Self {
        if self.0.file.is_none() {
            let fields = self.fields_mut();
            fields.file = Some(file.to_string());
            fields.offset = Some(offset);
        }
        self
    }

    /// Adds a file without an offset. A file that is already set is kept.
    #[must_use]
    pub fn in_file(mut self, file: impl fmt::Display) -> Self {
        if self.0.file.is_none() {
            self.fields_mut().file = Some(file.to_string());
        }
        self
    }

    /// Adds the expected and the actual value.
    #[must_use]
    pub fn expected(mut self, expected: impl fmt::Display, got: impl fmt::Display) -> Self {
        let fields = self.fields_mut();
        fields.expected = Some(expected.to_string());
        fields.got = Some(got.to_string());
        self
    }

    /// Creates a `Conflict` error for `key` of column family `family`.
    pub fn conflict(family: &str, key: &[u8], message: &str) -> Self {
        let shown = &key[..key.len().min(64)];
        let more = if shown.len() < key.len() { "..." } else { "" };
        let text =
            format!("{message}: column family {family:?}, key \"{}{more}\"", shown.escape_ascii());
        let mut e = Error::new(ErrorKind::Conflict, text);
        let fields = e.fields_mut();
        (fields.family, fields.key) = (Some(family.to_string()), Some(key.into()));
        e
    }

    /// Changes the kind of the error and prepends `context` to its message.
    #[must_use]
    pub fn wrap(mut self, kind: ErrorKind, context: &str) -> Self {
        let fields = self.fields_mut();
        fields.message = format!("{context}: {}", fields.message);
        fields.kind = kind;
        self
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }
    /// Returns the message, without the location.
    pub fn message(&self) -> &str {
        &self.0.message
    }
    /// Returns the file in which the error occurred, relative to the database directory if it is
    /// inside one.
    pub fn file(&self) -> Option<&str> {
        self.0.file.as_deref()
    }
    /// Returns the byte offset in that file.
    pub fn offset(&self) -> Option<u64> {
        self.0.offset
    }
    /// Returns the expected value.
    pub fn expected_value(&self) -> Option<&str> {
        self.0.expected.as_deref()
    }
    /// Returns the actual value.
    pub fn got_value(&self) -> Option<&str> {
        self.0.got.as_deref()
    }
    /// Returns the column family of a conflict.
    pub fn family(&self) -> Option<&str> {
        self.0.family.as_deref()
    }
    /// Returns the key of a conflict; for a conflict over a range, one key in it.
    pub fn key(&self) -> Option<&[u8]> {
        self.0.key.as_deref()
    }
    /// Returns the error number of the operating system.
    pub fn os_error(&self) -> Option<i32> {
        self.0.os
    }
    /// Returns true if the same call may succeed later without a change by the caller.
    pub fn is_retryable(&self) -> bool {
        use ErrorKind::{Busy, Conflict, NoMemory, NoSpace};
        matches!(self.0.kind, Busy | Conflict | NoSpace | NoMemory)
    }
    /// Returns true if stored bytes are damaged.
    pub fn is_corruption(&self) -> bool {
        self.0.kind == ErrorKind::Corruption
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let e = &self.0;
        write!(f, "{}: {}", e.kind.name(), e.message)?;
        if let Some(file) = &e.file {
            write!(f, " (in {file}")?;
            if let Some(offset) = e.offset {
                write!(f, " at offset {offset}")?;
            }
            write!(f, ")")?;
        }
        if let (Some(expected), Some(got)) = (&e.expected, &e.got) {
            write!(f, ": expected {expected}, got {got}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Error({self})")
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_has_message_location_and_values() {
        let e = Error::corruption("block checksum differs")
            .at("000007.klog", 4096)
            .expected("0x1", "0x2");
        assert_eq!(
            e.to_string(),
            "corruption: block checksum differs (in 000007.klog at offset 4096): expected 0x1, \
             got 0x2"
        );
        assert!(e.is_corruption());
        assert_eq!(
            e.clone().at("other", 1).file(),
            Some("000007.klog"),
            "the innermost location wins"
        );
    }

    #[test]
    fn full_disk_maps_to_no_space() {
        let full = std::io::Error::from_raw_os_error(28);
        assert_eq!(Error::io("append", &full).kind(), ErrorKind::NoSpace);
        assert!(Error::io("append", &full).is_retryable());
    }
}
