//! Version, last error, statistics and verification of a database.

use crate::abi::Handle;
use crate::alloc;
use crate::code::last_error_c;
use crate::ffi::{call, out_param};
use crate::state::database;
use std::ffi::{CStr, c_char, c_int};

/// Returns the version of the library.
#[unsafe(no_mangle)]
pub extern "C" fn perigee_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => c"",
        };
    VERSION.as_ptr()
}

/// Returns the message of the last error on this thread; valid until the next call on this thread.
#[unsafe(no_mangle)]
pub extern "C" fn perigee_last_error() -> *const c_char {
    last_error_c()
}

fn return_text(text: &str, place: &mut *mut c_char) -> crate::code::Result<()> {
    *place = alloc::copy_text(text)?.cast();
    Ok(())
}

/// Returns all statistics of a database as JSON, to be freed by the caller.
///
/// # Safety
/// `json` is null or valid for writing a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perigee_stats_json(db: Handle, json: *mut *mut c_char) -> c_int {
    call(|| {
        let db = database(db)?;
        // SAFETY: guaranteed by the caller.
        let place = unsafe { out_param(json) }?;
        return_text(&db.engine()?.admin().stats().to_json(), place)
    })
}

/// Returns all statistics in the text format of Prometheus, to be freed by the caller.
///
/// # Safety
/// `text` is null or valid for writing a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perigee_metrics(db: Handle, text: *mut *mut c_char) -> c_int {
    call(|| {
        let db = database(db)?;
        // SAFETY: guaranteed by the caller.
        let place = unsafe { out_param(text) }?;
        return_text(&db.engine()?.admin().metrics(), place)
    })
}

/// Reads and checks every stored byte. Returns the number of errors.
///
/// # Safety
/// `errors` is null or valid for writing the result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perigee_verify(db: Handle, errors: *mut u64) -> c_int {
    call(|| {
        let db = database(db)?;
        // SAFETY: guaranteed by the caller.
        let place = unsafe { out_param(errors) }?;
        let report = db.engine()?.admin().verify()?;
        *place = report.errors.len() as u64;
        match report.errors.into_iter().next() {
            Some(e) => Err(e.into()),
            None => Ok(()),
        }
    })
}

/// Returns the sequence number of the last visible operation.
///
/// # Safety
/// `seq` is null or valid for writing the result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perigee_latest_seq(db: Handle, seq: *mut u64) -> c_int {
    call(|| {
        let db = database(db)?;
        // SAFETY: guaranteed by the caller.
        *unsafe { out_param(seq) }? = db.engine()?.history().latest_seq();
        Ok(())
    })
}

/// Returns the oldest readable sequence number.
///
/// # Safety
/// `seq` is null or valid for writing the result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perigee_oldest_readable_seq(db: Handle, seq: *mut u64) -> c_int {
    call(|| {
        let db = database(db)?;
        // SAFETY: guaranteed by the caller.
        *unsafe { out_param(seq) }? = db.engine()?.history().oldest_readable_seq();
        Ok(())
    })
}
