//! Error codes: maps every error of the engine to a TidesDB error code, and keeps its message per
//! thread for `perigee_last_error`.

use perigee::{Error, ErrorKind};
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};

/// An error code returned to C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code(pub c_int);

/// Result of the library's internal functions.
pub type Result<T> = std::result::Result<T, Code>;

/// Success.
pub const SUCCESS: c_int = 0;
/// Out of memory.
pub const MEMORY: Code = Code(-1);
/// Invalid argument.
pub const INVALID_ARGS: Code = Code(-2);
/// Not found.
pub const NOT_FOUND: Code = Code(-3);
/// I/O error.
pub const IO: Code = Code(-4);
/// Corruption.
pub const CORRUPTION: Code = Code(-5);
/// Already exists.
pub const EXISTS: Code = Code(-6);
/// Conflict with another transaction.
pub const CONFLICT: Code = Code(-7);
/// Too large.
pub const TOO_LARGE: Code = Code(-8);
/// The database is closed or the handle is not a database.
pub const INVALID_DB: Code = Code(-10);
/// Unknown error: a bug of the library.
pub const UNKNOWN: Code = Code(-11);
/// Locked by another process.
pub const LOCKED: Code = Code(-12);
/// Opened read-only.
pub const READONLY: Code = Code(-13);
/// Busy: try again.
pub const BUSY: Code = Code(-14);

enum LastError {
    None,
    Text(&'static str),
    Owned(String),
    Engine(Error),
}

thread_local! {
    static LAST_ERROR: RefCell<LastError> = const { RefCell::new(LastError::None) };
    /// Message that was last returned to C on this thread.
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

impl Code {
    /// Records a message for this code and returns the code.
    #[cold]
    pub fn with_message(self, text: &'static str) -> Code {
        set_last_error(LastError::Text(text));
        self
    }
    /// Records a formatted message for this code and returns the code.
    #[cold]
    pub fn with_text(self, text: String) -> Code {
        set_last_error(LastError::Owned(text));
        self
    }
}

/// Returns the code for a missing key, with a message but without creating an error.
#[inline(never)]
pub fn key_not_found() -> Code {
    NOT_FOUND.with_message("the key does not exist")
}

impl From<Error> for Code {
    #[cold]
    fn from(e: Error) -> Code {
        let code = match e.kind() {
            ErrorKind::InvalidArgument => INVALID_ARGS,
            ErrorKind::NotFound => NOT_FOUND,
            ErrorKind::AlreadyExists => EXISTS,
            ErrorKind::Locked => LOCKED,
            ErrorKind::Corruption | ErrorKind::FormatTooNew => CORRUPTION,
            ErrorKind::Io
            | ErrorKind::NoSpace
            | ErrorKind::OutcomeUnknown
            | ErrorKind::Poisoned => IO,
            ErrorKind::Closed => INVALID_DB,
            ErrorKind::NoMemory => MEMORY,
            ErrorKind::ReadOnly => READONLY,
            ErrorKind::Busy | ErrorKind::Interrupted => BUSY,
            ErrorKind::Conflict | ErrorKind::Aborted => CONFLICT,
            _ => UNKNOWN,
        };
        set_last_error(LastError::Engine(e));
        code
    }
}

/// Returns the message of the last error on this thread; empty if there was none.
pub fn last_error() -> String {
    let text = LAST_ERROR.try_with(|l| match &*l.borrow() {
        LastError::None => String::new(),
        LastError::Text(text) => (*text).to_owned(),
        LastError::Owned(text) => text.clone(),
        LastError::Engine(e) => e.to_string(),
    });
    text.unwrap_or_default()
}

/// Returns the same message as a C string, valid until the next call on this thread.
pub fn last_error_c() -> *const c_char {
    let text = CString::new(last_error().replace('\0', "?")).unwrap_or_default();
    LAST_ERROR_TEXT.try_with(|s| s.borrow_mut().insert(text).as_ptr()).unwrap_or(c"".as_ptr())
}
