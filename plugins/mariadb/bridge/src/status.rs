//! Status codes: maps every error of the engine to one, and keeps its message per thread for
//! [`pgb_last_error`].

use perigee::{Error, ErrorKind, limits};
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};

/// A status, `pgb_status` in C.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(pub c_int);

/// Result of the functions of this crate. The message of the error is stored by then.
pub type Result<T> = std::result::Result<T, Status>;

#[allow(missing_docs)] // Documented in `bridge.h`.
impl Status {
    pub const OK: Status = Status(0);
    pub const NOT_FOUND: Status = Status(1);
    pub const LOCK_TIMEOUT: Status = Status(2);
    pub const DEADLOCK: Status = Status(3);
    pub const INTERRUPTED: Status = Status(4);
    pub const CONFLICT: Status = Status(5);
    pub const TABLE_MISSING: Status = Status(6);
    pub const TABLE_EXISTS: Status = Status(7);
    pub const NO_SPACE: Status = Status(8);
    pub const IO: Status = Status(9);
    pub const CORRUPTION: Status = Status(10);
    pub const READ_ONLY: Status = Status(11);
    pub const TOO_LARGE: Status = Status(12);
    pub const OUTCOME_UNKNOWN: Status = Status(13);
    pub const INVALID: Status = Status(14);
    pub const CLOSED: Status = Status(15);
    pub const INTERNAL: Status = Status(16);
    pub const NO_MEMORY: Status = Status(17);
}

enum LastError {
    None,
    Text(&'static str),
    Owned(String),
    Engine(Error),
}

thread_local! {
    static LAST_ERROR: RefCell<LastError> = const { RefCell::new(LastError::None) };
    /// Message that was last returned to C++ on this thread.
    static LAST_ERROR_TEXT: RefCell<Option<CString>> = const { RefCell::new(None) };
}

fn set_last_error(last: LastError) {
    // Thread-local storage is gone while a thread exits.
    let _ = LAST_ERROR.try_with(|l| {
        if let Ok(mut l) = l.try_borrow_mut() {
            *l = last;
        }
    });
}

impl Status {
    /// Stores a message for this status and returns the status.
    #[cold]
    pub fn with_message(self, text: &'static str) -> Status {
        set_last_error(LastError::Text(text));
        self
    }
    /// Stores a formatted message for this status and returns the status.
    #[cold]
    pub fn with_text(self, text: String) -> Status {
        set_last_error(LastError::Owned(text));
        self
    }
    /// Stores an error of the engine as the message of this status and returns the status.
    #[cold]
    pub fn with_error(self, e: Error) -> Status {
        set_last_error(LastError::Engine(e));
        self
    }
}

impl From<Error> for Status {
    #[cold]
    fn from(e: Error) -> Status {
        let status = match e.kind() {
            ErrorKind::NotFound => Status::TABLE_MISSING,
            ErrorKind::AlreadyExists => Status::TABLE_EXISTS,
            ErrorKind::Corruption => Status::CORRUPTION,
            ErrorKind::Io | ErrorKind::Poisoned | ErrorKind::Locked => Status::IO,
            ErrorKind::NoSpace => Status::NO_SPACE,
            ErrorKind::OutcomeUnknown => Status::OUTCOME_UNKNOWN,
            ErrorKind::Closed => Status::CLOSED,
            ErrorKind::NoMemory => Status::NO_MEMORY,
            ErrorKind::ReadOnly => Status::READ_ONLY,
            ErrorKind::Busy => Status::LOCK_TIMEOUT,
            ErrorKind::Conflict => Status::CONFLICT,
            ErrorKind::Interrupted | ErrorKind::Aborted => Status::INTERRUPTED,
            ErrorKind::InvalidArgument | ErrorKind::FormatTooNew => Status::INVALID,
            _ => Status::INTERNAL,
        };
        status.with_error(e)
    }
}

/// Maps the error of a call that waits for locks: a conflict is a deadlock.
#[cold]
pub fn lock_error(e: Error) -> Status {
    match e.kind() {
        ErrorKind::Conflict => Status::DEADLOCK.with_error(e),
        _ => e.into(),
    }
}

/// Maps the error of a write of an entry with these lengths.
#[cold]
pub fn write_error(e: Error, key_bytes: usize, value_bytes: usize) -> Status {
    let too_large = key_bytes > limits::KEY_BYTES_MAX || value_bytes > limits::VALUE_BYTES_MAX;
    match e.kind() {
        ErrorKind::InvalidArgument if too_large => Status::TOO_LARGE.with_error(e),
        _ => lock_error(e),
    }
}

/// Returns the message of the last error of this thread; empty if there was none.
pub fn last_error() -> String {
    let text = LAST_ERROR.try_with(|l| match &*l.borrow() {
        LastError::None => String::new(),
        LastError::Text(text) => (*text).to_owned(),
        LastError::Owned(text) => text.clone(),
        LastError::Engine(e) => e.to_string(),
    });
    text.unwrap_or_default()
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pgb_last_error() -> *const c_char {
    let text = CString::new(last_error().replace('\0', "?")).unwrap_or_default();
    LAST_ERROR_TEXT.try_with(|t| t.borrow_mut().insert(text).as_ptr()).unwrap_or(c"".as_ptr())
}
