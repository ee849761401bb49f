//! Codes, and the object with the details of an error.

use perigee::{Error, ErrorKind};
use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr::null;

/// The code of success.
pub const OK: c_int = 0;

/// Codes with the kinds of errors that they stand for.
const CODES: [(c_int, ErrorKind); 18] = [
    (1, ErrorKind::InvalidArgument),
    (2, ErrorKind::NotFound),
    (3, ErrorKind::AlreadyExists),
    (4, ErrorKind::Locked),
    (5, ErrorKind::Corruption),
    (6, ErrorKind::FormatTooNew),
    (7, ErrorKind::Io),
    (8, ErrorKind::NoSpace),
    (9, ErrorKind::OutcomeUnknown),
    (10, ErrorKind::Poisoned),
    (11, ErrorKind::Closed),
    (12, ErrorKind::NoMemory),
    (13, ErrorKind::ReadOnly),
    (14, ErrorKind::Busy),
    (15, ErrorKind::Conflict),
    (16, ErrorKind::Aborted),
    (17, ErrorKind::Interrupted),
    (INTERNAL, ErrorKind::Internal),
];
const INTERNAL: c_int = 18;

/// Returns the code for a kind of error; a kind without a code of its own is an internal error.
pub fn code_of(kind: ErrorKind) -> c_int {
    CODES.iter().find(|(_, k)| *k == kind).map_or(INTERNAL, |(code, _)| *code)
}

/// Details of an error, owned by C. The texts are converted when the object is created, so that
/// reading them cannot fail.
pub struct ErrorObject {
    error: Error,
    text: CString,
    message: CString,
    file: Option<CString>,
    family: Option<CString>,
}

/// Converts text for C; a NUL inside becomes a question mark.
pub fn to_c_text(text: &str) -> CString {
    CString::new(text.replace('\0', "?")).unwrap_or_default()
}

impl ErrorObject {
    /// Creates the object for an error.
    pub fn new(error: Error) -> ErrorObject {
        ErrorObject {
            text: to_c_text(&error.to_string()),
            message: to_c_text(error.message()),
            file: error.file().map(to_c_text),
            family: error.family().map(to_c_text),
            error,
        }
    }
}

/// A pointer to an error from C, which is null or valid and not freed.
#[repr(transparent)]
pub struct ErrorPtr(*const ErrorObject);

impl ErrorPtr {
    fn get(&self) -> Option<&ErrorObject> {
        // SAFETY: only C callers create this type; they guarantee that the pointer is null, or was
        // returned by this library and not freed. Nothing modifies an error.
        unsafe { self.0.as_ref() }
    }
    fn text(&self, select: impl Fn(&ErrorObject) -> Option<&CString>) -> Option<*const c_char> {
        self.get().and_then(select).map(|text| text.as_ptr())
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_code_name(code: c_int) -> *const c_char {
    let name = match code {
        OK => c"ok",
        1 => c"invalid argument",
        2 => c"not found",
        3 => c"already exists",
        4 => c"locked",
        5 => c"corruption",
        6 => c"format too new",
        7 => c"i/o error",
        8 => c"no space",
        9 => c"outcome unknown",
        10 => c"poisoned",
        11 => c"closed",
        12 => c"no memory",
        13 => c"read-only",
        14 => c"busy",
        15 => c"conflict",
        16 => c"aborted",
        17 => c"interrupted",
        INTERNAL => c"internal error",
        _ => c"unknown code",
    };
    name.as_ptr()
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_error_code(error: ErrorPtr) -> c_int {
    error.get().map_or(OK, |e| code_of(e.error.kind()))
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_error_text(error: ErrorPtr) -> *const c_char {
    error.text(|e| Some(&e.text)).unwrap_or(c"".as_ptr())
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_error_message(error: ErrorPtr) -> *const c_char {
    error.text(|e| Some(&e.message)).unwrap_or(c"".as_ptr())
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_error_file(error: ErrorPtr) -> *const c_char {
    error.text(|e| e.file.as_ref()).unwrap_or(null())
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_error_offset(error: ErrorPtr) -> i64 {
    let offset = error.get().and_then(|e| e.error.offset());
    offset.and_then(|o| i64::try_from(o).ok()).unwrap_or(-1)
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_error_os_error(error: ErrorPtr) -> c_int {
    error.get().and_then(|e| e.error.os_error()).unwrap_or(0)
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_error_family(error: ErrorPtr) -> *const c_char {
    error.text(|e| e.family.as_ref()).unwrap_or(null())
}

/// Returns the key of a conflict.
///
/// # Safety
/// `size` is null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perigee_error_key(error: ErrorPtr, size: *mut usize) -> *const c_void {
    let key = error.get().and_then(|e| e.error.key());
    if !size.is_null() {
        // SAFETY: guaranteed by the caller.
        unsafe { size.write(key.map_or(0, <[u8]>::len)) };
    }
    key.map_or(null(), |key| key.as_ptr().cast())
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_error_is_retryable(error: ErrorPtr) -> c_int {
    error.get().is_some_and(|e| e.error.is_retryable()).into()
}

/// Frees an error.
///
/// # Safety
/// The pointer is null or was returned by this library, and is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perigee_error_free(error: *mut ErrorObject) {
    if !error.is_null() {
        // SAFETY: created by `Box::into_raw` in `boundary`; the caller guarantees the rest.
        drop(unsafe { Box::from_raw(error) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    #[test]
    fn every_kind_has_its_name() {
        for (code, kind) in CODES {
            // SAFETY: static text.
            let name = unsafe { CStr::from_ptr(perigee_code_name(code)) };
            assert_eq!(name.to_str(), Ok(kind.name()), "{code}");
            assert_eq!(code_of(kind), code);
        }
    }
}
