//! The one error type: what the caller should do (its kind) and where it happened (file, offset,
//! expected, got). Cheap to clone, because one failed group commit answers many writers.

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
    /// There is no database (or file) at that path. Check the path, or allow creation.
    NotFound,
    /// Something of that name exists already.
    AlreadyExists,
    /// Another process, or another handle of this process, has the database open.
    Locked,
    /// Stored bytes are damaged. Nothing was changed; see `file` and `offset`.
    Corruption,
    /// The database was written by a newer version. Nothing was changed; use that version.
    FormatTooNew,
    /// The operating system failed the call. The write was not applied and never will be.
    Io,
    /// The disk is full (or a quota is). The write was not applied; free space and try again.
    NoSpace,
    /// The commit may or may not be there after reopen, as a whole: its log write or sync failed.
    OutcomeUnknown,
    /// Writes are stopped because an earlier log write, sync or background task failed; reads go
    /// on. Close, repair the cause and reopen.
    Poisoned,
    /// The handle was closed.
    Closed,
    /// Memory for a large buffer could not be had.
    NoMemory,
    /// The database was opened read-only. Open it for writing.
    ReadOnly,
    /// Try again: the work could not be done now, and nothing happened.
    Busy,
    /// Another transaction came first: this one was not committed and never will be. Begin it anew;
    /// see `family` and `key`.
    Conflict,
    /// The transaction was ended from outside: by its time limit, or by another thread. Nothing of
    /// it happened.
    Aborted,
    /// A bug of the engine. Please report it.
    Internal,
}

impl ErrorKind {
    /// The kind in words, for messages and `--json` output.
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

/// An error: kind, message, and where.
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
    /// An error of `kind` with a message that says what to do.
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

    /// Damage found by a decoder. Give it a place with [`Error::at`].
    pub fn corruption(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Corruption, message)
    }

    /// A wrong argument.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidArgument, message)
    }

    /// A broken invariant of the engine.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, message)
    }

    /// An operating system error during `doing` (for example `"append to 000004.wal"`).
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

    /// The same error, located. The innermost place wins: a place already set is kept.
    #[must_use]
    pub fn at(mut self, file: impl fmt::Display, offset: u64) -> Self {
        if self.0.file.is_none() {
            let inner = self.fields_mut();
            inner.file = Some(file.to_string());
            inner.offset = Some(offset);
        }
        self
    }

    /// The same error with a file but no offset.
    #[must_use]
    pub fn in_file(mut self, file: impl fmt::Display) -> Self {
        if self.0.file.is_none() {
            self.fields_mut().file = Some(file.to_string());
        }
        self
    }

    /// The same error with what was expected and what was found.
    #[must_use]
    pub fn expected(mut self, expected: impl fmt::Display, got: impl fmt::Display) -> Self {
        let inner = self.fields_mut();
        inner.expected = Some(expected.to_string());
        inner.got = Some(got.to_string());
        self
    }

    /// A conflict over `key` of `family`.
    pub fn conflict(family: &str, key: &[u8], message: &str) -> Self {
        let shown = &key[..key.len().min(64)];
        let more = if shown.len() < key.len() { "..." } else { "" };
        let text = format!("{message}: family {family:?}, key \"{}{more}\"", shown.escape_ascii());
        let mut e = Error::new(ErrorKind::Conflict, text);
        let inner = e.fields_mut();
        (inner.family, inner.key) = (Some(family.to_string()), Some(key.into()));
        e
    }

    /// The same error under another kind, its message kept behind `context`.
    #[must_use]
    pub fn wrap(mut self, kind: ErrorKind, context: &str) -> Self {
        let inner = self.fields_mut();
        inner.message = format!("{context}: {}", inner.message);
        inner.kind = kind;
        self
    }

    /// What the caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }
    /// The message, without the place.
    pub fn message(&self) -> &str {
        &self.0.message
    }
    /// The file it happened in, relative to the database directory where it is inside one.
    pub fn file(&self) -> Option<&str> {
        self.0.file.as_deref()
    }
    /// The byte offset in that file.
    pub fn offset(&self) -> Option<u64> {
        self.0.offset
    }
    /// What the reader expected to find.
    pub fn expected_value(&self) -> Option<&str> {
        self.0.expected.as_deref()
    }
    /// What it found.
    pub fn got_value(&self) -> Option<&str> {
        self.0.got.as_deref()
    }
    /// The family that a conflict is about.
    pub fn family(&self) -> Option<&str> {
        self.0.family.as_deref()
    }
    /// The key that a conflict is about; of a conflict over a range, one in it.
    pub fn key(&self) -> Option<&[u8]> {
        self.0.key.as_deref()
    }
    /// The operating system's error number.
    pub fn os_error(&self) -> Option<i32> {
        self.0.os
    }
    /// Whether the same call may succeed later without anything else being changed by the caller.
    pub fn is_retryable(&self) -> bool {
        use ErrorKind::{Busy, Conflict, NoMemory, NoSpace};
        matches!(self.0.kind, Busy | Conflict | NoSpace | NoMemory)
    }
    /// Whether stored bytes are damaged.
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
            "corruption: block checksum differs (in 000007.klog at offset 4096): expected 0x1, got 0x2"
        );
        assert!(e.is_corruption());
        assert_eq!(
            e.clone().at("other", 1).file(),
            Some("000007.klog"),
            "the innermost place wins"
        );
    }

    #[test]
    fn full_disk_maps_to_no_space() {
        let full = std::io::Error::from_raw_os_error(28);
        assert_eq!(Error::io("append", &full).kind(), ErrorKind::NoSpace);
        assert!(Error::io("append", &full).is_retryable());
    }
}
