//! The error type of all crates: its kind (what the caller can do) and where it happened (file,
//! offset, expected and actual value). Cheap to clone, because one failed group commit is reported
//! to many writers.

use std::fmt;
use std::io;
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
    /// An object of that name already exists.
    AlreadyExists,
    /// Another process, or another handle of this process, has the database open.
    Locked,
    /// Stored bytes are damaged. Nothing was changed; see `file` and `offset`.
    Corruption,
    /// The database was written by a newer version, or with a codec that this build lacks. Nothing
    /// was changed; use that version, or enable the feature that the message names.
    FormatTooNew,
    /// A system call failed. The write was not applied and never will be.
    Io,
    /// The disk is full (or a quota is). The write was not applied; free space and try again.
    NoSpace,
    /// The log write or sync of the commit failed: after reopening, the commit is either present as
    /// a whole or absent.
    OutcomeUnknown,
    /// Writes are rejected because an earlier log write, sync or background job failed; reads
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
    /// Another thread ended the wait for a lock. The call had no effect; the transaction goes on.
    Interrupted,
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
            ErrorKind::Interrupted => "interrupted",
            ErrorKind::Internal => "internal error",
        }
    }
}

/// Formats as [`ErrorKind::name`].
impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// An error: kind, message and location. Cheap to clone.
///
/// [`Error::source`](std::error::Error::source) returns the error of the operating system, if that
/// is the cause, as [`std::io::Error`]. For callers whose functions return [`std::io::Error`], `?`
/// converts into that.
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
    /// Error of the operating system. Shared, because `std::io::Error` cannot be cloned.
    os: Option<Arc<io::Error>>,
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
    pub fn io(doing: impl fmt::Display, e: &io::Error) -> Self {
        use io::ErrorKind as K;
        let kind = match e.kind() {
            K::StorageFull | K::QuotaExceeded | K::FileTooLarge => ErrorKind::NoSpace,
            K::NotFound => ErrorKind::NotFound,
            K::AlreadyExists => ErrorKind::AlreadyExists,
            K::OutOfMemory => ErrorKind::NoMemory,
            _ => ErrorKind::Io,
        };
        let mut err = Self::new(kind, format!("{doing}: {e}"));
        err.fields_mut().os =
            e.raw_os_error().map(|number| Arc::new(io::Error::from_raw_os_error(number)));
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
        self.0.os.as_ref()?.raw_os_error()
    }
    /// Returns true if the operation had no effect and may succeed if it is tried again, without a
    /// change by the caller: `Busy`, `Conflict`, `NoSpace` (once there is space) and `NoMemory`.
    ///
    /// The operation to repeat is a whole one. A transaction has ended after a failed commit, and
    /// its reads are out of date after a `Conflict`: begin a new one and do all of its work again,
    /// as `Db::write_txn` does.
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

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.os.as_deref().map(|e| e as &(dyn std::error::Error + 'static))
    }
}

/// Wraps the error, so that [`std::io::Error::get_ref`] returns it. The kind corresponds to its
/// [`ErrorKind`]; for `Io` it is the kind of the error of the operating system.
impl From<Error> for io::Error {
    fn from(e: Error) -> io::Error {
        use io::ErrorKind as K;
        let kind = match e.kind() {
            ErrorKind::InvalidArgument => K::InvalidInput,
            ErrorKind::NotFound => K::NotFound,
            ErrorKind::AlreadyExists => K::AlreadyExists,
            ErrorKind::Locked | ErrorKind::Busy => K::ResourceBusy,
            ErrorKind::Corruption => K::InvalidData,
            ErrorKind::FormatTooNew => K::Unsupported,
            ErrorKind::Io => e.0.os.as_ref().map_or(K::Other, |os| os.kind()),
            ErrorKind::NoSpace => K::StorageFull,
            ErrorKind::NoMemory => K::OutOfMemory,
            ErrorKind::ReadOnly => K::ReadOnlyFilesystem,
            ErrorKind::Interrupted => K::Interrupted,
            ErrorKind::OutcomeUnknown
            | ErrorKind::Poisoned
            | ErrorKind::Closed
            | ErrorKind::Conflict
            | ErrorKind::Aborted
            | ErrorKind::Internal => K::Other,
        };
        io::Error::new(kind, e)
    }
}

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
    fn source_is_the_error_of_the_operating_system() {
        let denied = io::Error::from_raw_os_error(13);
        let e = Error::io("open LOCK", &denied).in_file("LOCK").wrap(ErrorKind::Poisoned, "flush");
        let source = std::error::Error::source(&e).and_then(|e| e.downcast_ref::<io::Error>());
        assert_eq!(source.and_then(io::Error::raw_os_error), Some(13));
        assert_eq!(e.os_error(), Some(13));
        assert!(std::error::Error::source(&Error::invalid("x")).is_none());
        assert!(std::error::Error::source(&Error::io("x", &io::Error::other("y"))).is_none());
    }

    #[test]
    fn converts_into_io_error_and_back() {
        let denied = Error::io("open LOCK", &io::Error::from_raw_os_error(13));
        for (e, kind) in [
            (Error::invalid("x"), io::ErrorKind::InvalidInput),
            (Error::corruption("x"), io::ErrorKind::InvalidData),
            (Error::new(ErrorKind::Conflict, "x"), io::ErrorKind::Other),
            (denied, io::ErrorKind::PermissionDenied),
        ] {
            let converted = io::Error::from(e.clone());
            assert_eq!(converted.kind(), kind, "{e}");
            let inner = converted.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
            assert_eq!(inner.map(ToString::to_string), Some(e.to_string()));
        }
    }

    #[test]
    fn full_disk_maps_to_no_space() {
        let full = std::io::Error::from_raw_os_error(28);
        assert_eq!(Error::io("append", &full).kind(), ErrorKind::NoSpace);
        assert!(Error::io("append", &full).is_retryable());
    }
}
