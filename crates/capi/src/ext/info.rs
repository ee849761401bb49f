//! What the library and a database say of themselves.

use crate::abi::Handle;
use crate::alloc;
use crate::code::last_error_c;
use crate::ffi::{call, out_param};
use crate::state::database;
use std::ffi::{CStr, c_char, c_int};

/// The version of the library.
#[unsafe(no_mangle)]
pub extern "C" fn perigee_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => c"",
        };
    VERSION.as_ptr()
}

/// What the last error of this thread was about, in words; valid until this thread asks again.
#[unsafe(no_mangle)]
pub extern "C" fn perigee_last_error() -> *const c_char {
    last_error_c()
}

fn return_text(text: &str, place: &mut *mut c_char) -> crate::code::Result<()> {
    *place = alloc::copy_text(text)?.cast();
    Ok(())
}

/// Every statistic of a database as JSON, to be given back.
///
/// # Safety
/// `json` is null or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perigee_stats_json(db: Handle, json: *mut *mut c_char) -> c_int {
    call(|| {
        let db = database(db)?;
        // SAFETY: says the caller.
        let place = unsafe { out_param(json) }?;
        return_text(&db.engine()?.stats().to_json(), place)
    })
}

/// The same in the text format of Prometheus, to be given back.
///
/// # Safety
/// `text` is null or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perigee_metrics(db: Handle, text: *mut *mut c_char) -> c_int {
    call(|| {
        let db = database(db)?;
        // SAFETY: says the caller.
        let place = unsafe { out_param(text) }?;
        return_text(&db.engine()?.metrics(), place)
    })
}

/// Reads and checks every stored byte; how many errors there were.
///
/// # Safety
/// `errors` is null or a place for the answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perigee_verify(db: Handle, errors: *mut u64) -> c_int {
    call(|| {
        let db = database(db)?;
        // SAFETY: says the caller.
        let place = unsafe { out_param(errors) }?;
        let report = db.engine()?.verify()?;
        *place = report.errors.len() as u64;
        match report.errors.into_iter().next() {
            Some(e) => Err(e.into()),
            None => Ok(()),
        }
    })
}

/// The number of the last operation that readers see.
///
/// # Safety
/// `seq` is null or a place for the answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perigee_latest_seq(db: Handle, seq: *mut u64) -> c_int {
    call(|| {
        let db = database(db)?;
        // SAFETY: says the caller.
        *unsafe { out_param(seq) }? = db.engine()?.latest_seq();
        Ok(())
    })
}

/// The oldest number that can still be read.
///
/// # Safety
/// `seq` is null or a place for the answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perigee_oldest_readable_seq(db: Handle, seq: *mut u64) -> c_int {
    call(|| {
        let db = database(db)?;
        // SAFETY: says the caller.
        *unsafe { out_param(seq) }? = db.engine()?.oldest_readable_seq();
        Ok(())
    })
}
