//! Error codes: every error of the engine as a number of TidesDB's, and its text for who asks
//! (`perigee_last_error`).

use perigee::{Error, ErrorKind};
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};

/// An error as C sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code(pub c_int);

/// What calls answer inside.
pub type Result<T> = std::result::Result<T, Code>;

/// All is well.
pub const SUCCESS: c_int = 0;
/// No memory.
pub const MEMORY: Code = Code(-1);
/// A wrong argument.
pub const INVALID_ARGS: Code = Code(-2);
/// Not there.
pub const NOT_FOUND: Code = Code(-3);
/// Reading or writing failed.
pub const IO: Code = Code(-4);
/// Damage.
pub const CORRUPTION: Code = Code(-5);
/// There already.
pub const EXISTS: Code = Code(-6);
/// Another transaction came first.
pub const CONFLICT: Code = Code(-7);
/// Beyond a limit.
pub const TOO_LARGE: Code = Code(-8);
/// A database that is closed, or never was.
pub const INVALID_DB: Code = Code(-10);
/// A bug of ours.
pub const UNKNOWN: Code = Code(-11);
/// Another process has it.
pub const LOCKED: Code = Code(-12);
/// Opened for reading.
pub const READONLY: Code = Code(-13);
/// Try again.
pub const BUSY: Code = Code(-14);

enum LastError {
    None,
    Text(&'static str),
    Owned(String),
    Engine(Error),
}

thread_local! {
    static LAST_ERROR: RefCell<LastError> = const { RefCell::new(LastError::None) };
    /// The text that this thread was given last.
    static LAST_ERROR_TEXT: RefCell<Option<CString>> = const { RefCell::new(None) };
}

fn set_last_error(last: LastError) {
    // A thread that is ending has none any more.
    let _ = LAST_ERROR.try_with(|l| {
        if let Ok(mut l) = l.try_borrow_mut() {
            *l = last;
        }
    });
}

impl Code {
    /// The code, with a reason.
    #[cold]
    pub fn with_message(self, text: &'static str) -> Code {
        set_last_error(LastError::Text(text));
        self
    }
    /// The code, with a reason that was made for the occasion.
    #[cold]
    pub fn with_text(self, text: String) -> Code {
        set_last_error(LastError::Owned(text));
        self
    }
}

/// A key that is not there: no error, but asked about it says so.
#[inline(never)]
pub fn key_not_found() -> Code {
    NOT_FOUND.with_message("the key is not there")
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
            ErrorKind::Busy => BUSY,
            ErrorKind::Conflict | ErrorKind::Aborted => CONFLICT,
            _ => UNKNOWN,
        };
        set_last_error(LastError::Engine(e));
        code
    }
}

/// What the last error of this thread was about; empty if there was none.
pub fn last_error() -> String {
    let text = LAST_ERROR.try_with(|l| match &*l.borrow() {
        LastError::None => String::new(),
        LastError::Text(text) => (*text).to_owned(),
        LastError::Owned(text) => text.clone(),
        LastError::Engine(e) => e.to_string(),
    });
    text.unwrap_or_default()
}

/// The same for C: valid until this thread asks again.
pub fn last_error_c() -> *const c_char {
    let text = CString::new(last_error().replace('\0', "?")).unwrap_or_default();
    LAST_ERROR_TEXT.try_with(|s| s.borrow_mut().insert(text).as_ptr()).unwrap_or(c"".as_ptr())
}
