//! Iterators: a cursor with its answers borrowed until it moves.

use crate::abi::Handle;
use crate::border::{call, key, out, value};
use crate::code::{Code, INVALID_ARGS, NOT_FOUND, Result};
use crate::handle::Table;
use crate::txn::TXNS;
use perigee::Cursor;
use std::ffi::c_int;
use std::ptr::null_mut;

/// Iterators that were made and not freed.
pub static ITERS: Table<Cursor> = Table::new(4);

/// Makes an iterator over what the transaction sees of a family now; it lives on its own from then on.
///
/// # Safety
/// `iter` is null or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_iter_new(txn: Handle, cf: Handle, iter: *mut Handle) -> c_int {
    call(|| {
        // SAFETY: says the caller.
        let place = unsafe { out(iter) }?;
        *place = null_mut();
        let cursor = TXNS.hold(txn as usize)?.read(cf, |t, f| t.cursor(f), |f| f.cursor())?;
        *place = ITERS.insert(cursor)? as Handle;
        Ok(())
    })
}

#[cold]
fn not_valid() -> Code {
    INVALID_ARGS.because("the iterator is not on an entry")
}

#[inline]
fn go(iter: Handle, go: impl FnOnce(&mut Cursor) -> perigee::Result<()>) -> Result<()> {
    let mut cursor = ITERS.hold(iter as usize)?;
    go(&mut cursor)?;
    if cursor.valid() { Ok(()) } else { Err(NOT_FOUND) }
}

#[inline]
fn step(iter: Handle, step: impl FnOnce(&mut Cursor) -> perigee::Result<()>) -> Result<()> {
    let mut cursor = ITERS.hold(iter as usize)?;
    if !cursor.valid() {
        return Err(not_valid());
    }
    step(&mut cursor)?;
    if cursor.valid() { Ok(()) } else { Err(NOT_FOUND) }
}

/// To the first entry at or after a key.
///
/// # Safety
/// The key is as long as is said, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_iter_seek(iter: Handle, key_: *const u8, key_size: usize) -> c_int {
    call(|| {
        // SAFETY: says the caller.
        let key = unsafe { key(key_, key_size) }?;
        go(iter, |c| c.seek(key))
    })
}

/// To the last entry at or before a key.
///
/// # Safety
/// The key is as long as is said, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_iter_seek_for_prev(iter: Handle, key_: *const u8, key_size: usize) -> c_int {
    call(|| {
        // SAFETY: says the caller.
        let key = unsafe { key(key_, key_size) }?;
        go(iter, |c| c.seek_for_prev(key))
    })
}

/// To the first entry.
#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_iter_seek_to_first(iter: Handle) -> c_int {
    call(|| go(iter, Cursor::seek_to_first))
}

/// To the last entry.
#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_iter_seek_to_last(iter: Handle) -> c_int {
    call(|| go(iter, Cursor::seek_to_last))
}

/// To the next entry.
#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_iter_next(iter: Handle) -> c_int {
    call(|| step(iter, Cursor::next))
}

/// To the entry before.
#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_iter_prev(iter: Handle) -> c_int {
    call(|| step(iter, Cursor::prev))
}

/// Whether it is on an entry.
#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_iter_valid(iter: Handle) -> c_int {
    value(0, || Ok(c_int::from(ITERS.hold(iter as usize)?.valid())))
}

/// The key, until the iterator moves.
///
/// # Safety
/// The places are null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_iter_key(iter: Handle, key: *mut *mut u8, key_size: *mut usize) -> c_int {
    call(|| {
        // SAFETY: says the caller.
        let (place, size) = unsafe { (out(key)?, out(key_size)?) };
        let cursor = ITERS.hold(iter as usize)?;
        if !cursor.valid() {
            return Err(not_valid());
        }
        let key = cursor.key();
        (*place, *size) = (key.as_ptr().cast_mut(), key.len());
        Ok(())
    })
}

/// The value, until the iterator moves.
///
/// # Safety
/// The places are null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_iter_value(
    iter: Handle,
    value: *mut *mut u8,
    value_size: *mut usize,
) -> c_int {
    call(|| {
        // SAFETY: says the caller.
        let (place, size) = unsafe { (out(value)?, out(value_size)?) };
        let mut cursor = ITERS.hold(iter as usize)?;
        if !cursor.valid() {
            return Err(not_valid());
        }
        let (_, value) = cursor.entry()?;
        (*place, *size) = (value.as_ptr().cast_mut(), value.len());
        Ok(())
    })
}

/// Key and value, until the iterator moves.
///
/// # Safety
/// The places are null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_iter_key_value(
    iter: Handle,
    key: *mut *mut u8,
    key_size: *mut usize,
    value: *mut *mut u8,
    value_size: *mut usize,
) -> c_int {
    call(|| {
        // SAFETY: says the caller.
        let (k, kn, v, vn) = unsafe { (out(key)?, out(key_size)?, out(value)?, out(value_size)?) };
        let mut cursor = ITERS.hold(iter as usize)?;
        if !cursor.valid() {
            return Err(not_valid());
        }
        let (key, value) = cursor.entry()?;
        (*k, *kn) = (key.as_ptr().cast_mut(), key.len());
        (*v, *vn) = (value.as_ptr().cast_mut(), value.len());
        Ok(())
    })
}

/// Frees an iterator.
#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_iter_free(iter: Handle) {
    call(|| ITERS.remove(iter as usize).map(drop));
}
