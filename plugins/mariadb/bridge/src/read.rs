//! Reads: gets, locking gets and cursors.
//!
//! A transaction that has written nothing reads like no transaction: without its lock and its
//! overlay of own writes.

use crate::engine::{Shared, Snapshot};
use crate::ffi::{self, KeyRange, Slice};
use crate::status::{Result, Status};
use crate::table::{NEVER, Table, with_table};
use crate::txn::{Trx, lock_mode, with_trx};
use perigee::{Error, ErrorKind};
use std::sync::Arc;

/// Pins the value that a get returned, `pgb_buffer` in C.
#[derive(Debug, Default)]
pub struct Buffer {
    value: Option<perigee::Slice>,
}

impl Buffer {
    /// Pins a value in place of the last one, and stores where it is.
    ///
    /// # Safety
    /// `out` is null or valid for writing.
    #[inline]
    unsafe fn pin(&mut self, value: Option<perigee::Slice>, out: *mut Slice) -> Result<()> {
        self.value = value;
        match &self.value {
            // SAFETY: guaranteed by the caller.
            Some(value) => unsafe { ffi::store(out, Slice::new(value)) },
            None => Err(Status::NOT_FOUND),
        }
    }
}

/// A cursor, `pgb_cursor` in C.
#[derive(Debug)]
pub struct Cursor {
    cursor: perigee::Cursor,
    /// Set by a panic. The database outlives its cursors.
    shared: *const Shared,
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pgb_buffer_new() -> *mut Buffer {
    Box::into_raw(Box::default())
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_buffer_free(buffer: *mut Buffer) {
    // SAFETY: guaranteed by the caller.
    unsafe { ffi::release(buffer) }
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_buffer_clear(buffer: *mut Buffer) {
    // SAFETY: guaranteed by the caller.
    if let Some(buffer) = unsafe { buffer.as_mut() } {
        buffer.value = None;
    }
}

/// Maps the error of a read. The engine reports a table that was cleared after the snapshot was
/// taken like one that was dropped.
#[cold]
fn read_error(e: Error, table: &Table, snapshot: Option<&Snapshot>) -> Status {
    let is_missing = || {
        let now = table.family.contains(b"\0");
        now.is_err_and(|now| now.kind() == ErrorKind::NotFound)
    };
    match e.kind() {
        ErrorKind::NotFound if snapshot.is_some() && !is_missing() => {
            Status::CONFLICT.with_error(e)
        }
        _ => e.into(),
    }
}

#[inline]
fn get(
    trx: Option<&Trx>,
    snapshot: Option<&Snapshot>,
    table: &Table,
    key: &[u8],
) -> Result<Option<perigee::Slice>> {
    let family = &table.family;
    let value = match (trx.filter(|t| t.has_written.get()), snapshot) {
        (None, None) => family.get_pinned(key),
        (None, Some(s)) => s.snapshot.family(family).get_pinned(key),
        (Some(t), None) => t.txn.get_pinned(family, key),
        (Some(t), Some(s)) => t.txn.family_at(family, &s.snapshot).get_pinned(key),
    };
    value.map_err(|e| read_error(e, table, snapshot))
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_get(
    trx: *mut Trx,
    snapshot: *mut Snapshot,
    table: *mut Table,
    key: Slice,
    buffer: *mut Buffer,
    value: *mut Slice,
) -> Status {
    let work = |table: &Table| {
        // SAFETY: guaranteed by the caller. The key may be in the buffer, so the buffer is borrowed
        // after the read.
        unsafe {
            let found = get(trx.as_ref(), snapshot.as_ref(), table, key.bytes())?;
            buffer_of(buffer)?.pin(found, value)
        }
    };
    // SAFETY: guaranteed by the caller.
    unsafe { with_table(table, work) }
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_get_with_expiry(
    snapshot: *mut Snapshot,
    table: *mut Table,
    key: Slice,
    buffer: *mut Buffer,
    value: *mut Slice,
    expires_at_ms: *mut u64,
) -> Status {
    let work = |table: &Table| {
        // SAFETY: guaranteed by the caller; see `pgb_get` about the buffer.
        unsafe {
            let (snapshot, key) = (snapshot.as_ref(), key.bytes());
            let found = match snapshot {
                None => table.family.get_with_ttl(key),
                Some(s) => s.snapshot.family(&table.family).get_with_ttl(key),
            };
            let found = found.map_err(|e| read_error(e, table, snapshot))?;
            let expiry = found.as_ref().and_then(|f| f.expires_at_ms).unwrap_or(NEVER);
            ffi::store(expires_at_ms, expiry)?;
            buffer_of(buffer)?.pin(found.map(|f| f.value), value)
        }
    };
    // SAFETY: guaranteed by the caller.
    unsafe { with_table(table, work) }
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_is_unchanged(
    snapshot: *mut Snapshot,
    table: *mut Table,
    key: Slice,
    unchanged: *mut u8,
) -> Status {
    let work = |table: &Table| {
        // SAFETY: guaranteed by the caller.
        let (snapshot, key) = unsafe { (ffi::object(snapshot)?, key.bytes()) };
        let now = get(None, None, table, key)?;
        let then = get(None, Some(snapshot), table, key)?;
        // SAFETY: guaranteed by the caller.
        unsafe { ffi::store(unchanged, u8::from(now.as_deref() == then.as_deref())) }
    };
    // SAFETY: guaranteed by the caller.
    unsafe { with_table(table, work) }
}

/// Returns a buffer passed by C++.
///
/// # Safety
/// `buffer` is null or points to a live buffer that only this thread uses.
#[inline]
unsafe fn buffer_of<'a>(buffer: *mut Buffer) -> Result<&'a mut Buffer> {
    // SAFETY: guaranteed by the caller.
    let buffer = unsafe { buffer.as_mut() };
    buffer.ok_or_else(|| Status::INVALID.with_message("the buffer is null"))
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_get_locked(
    trx: *mut Trx,
    table: *mut Table,
    key: Slice,
    mode: u32,
    buffer: *mut Buffer,
    value: *mut Slice,
) -> Status {
    let work = |trx: &Trx| {
        let mode = lock_mode(mode)?;
        // SAFETY: guaranteed by the caller; see `pgb_get` about the buffer.
        unsafe {
            let (table, key) = (ffi::object(table)?, key.bytes());
            trx.lock(table, key, mode)?;
            let found = get(Some(trx), None, table, key)?;
            buffer_of(buffer)?.pin(found, value)
        }
    };
    // SAFETY: guaranteed by the caller.
    unsafe { with_trx(trx, work) }
}

fn open_cursor(
    trx: Option<&Trx>,
    snapshot: Option<&Snapshot>,
    table: &Table,
    range: KeyRange<'_>,
) -> Result<Box<Cursor>> {
    let family = &table.family;
    let cursor = match (trx.filter(|t| t.has_written.get()), snapshot) {
        (None, None) => family.cursor_within::<&[u8]>(range),
        (None, Some(s)) => s.snapshot.family(family).cursor_within::<&[u8]>(range),
        (Some(t), None) => t.txn.family(family).cursor_within::<&[u8]>(range),
        (Some(t), Some(s)) => t.txn.family_at(family, &s.snapshot).cursor_within::<&[u8]>(range),
    };
    let cursor = cursor.map_err(|e| read_error(e, table, snapshot))?;
    Ok(Box::new(Cursor { cursor, shared: Arc::as_ptr(&table.shared) }))
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_cursor_open(
    trx: *mut Trx,
    snapshot: *mut Snapshot,
    table: *mut Table,
    begin: Slice,
    end: Slice,
    out: *mut *mut Cursor,
) -> Status {
    let work = |table: &Table| {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let (trx, snapshot) = (trx.as_ref(), snapshot.as_ref());
            let cursor = open_cursor(trx, snapshot, table, ffi::range(begin, end))?;
            ffi::store(out, Box::into_raw(cursor))
        }
    };
    // SAFETY: guaranteed by the caller.
    unsafe { with_table(table, work) }
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_cursor_close(cursor: *mut Cursor) {
    // SAFETY: guaranteed by the caller.
    unsafe { ffi::release(cursor) }
}

/// Moves a cursor and stores the entry there.
///
/// # Safety
/// `cursor` is null or points to an open cursor that only this thread uses; `key` and `value` are
/// null or valid for writing.
#[inline]
unsafe fn move_cursor(
    cursor: *mut Cursor,
    key: *mut Slice,
    value: *mut Slice,
    go: impl FnOnce(&mut perigee::Cursor) -> perigee::Result<()>,
) -> Status {
    // SAFETY: guaranteed by the caller.
    let Some(Cursor { cursor, shared }) = (unsafe { cursor.as_mut() }) else {
        return Status::INVALID.with_message("the cursor is null");
    };
    // SAFETY: the database outlives its cursors.
    ffi::call(unsafe { &**shared }, || {
        go(cursor)?;
        if !cursor.is_valid() {
            return Err(Status::NOT_FOUND);
        }
        let (k, v) = cursor.entry()?;
        // SAFETY: guaranteed by the caller. The entry is valid until the next move.
        unsafe {
            ffi::store(key, Slice::new(k))?;
            ffi::store(value, Slice::new(v))
        }
    })
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_cursor_first(
    cursor: *mut Cursor,
    key: *mut Slice,
    value: *mut Slice,
) -> Status {
    // SAFETY: guaranteed by the caller.
    unsafe { move_cursor(cursor, key, value, |c| c.seek_to_first()) }
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_cursor_last(
    cursor: *mut Cursor,
    key: *mut Slice,
    value: *mut Slice,
) -> Status {
    // SAFETY: guaranteed by the caller.
    unsafe { move_cursor(cursor, key, value, |c| c.seek_to_last()) }
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_cursor_seek(
    cursor: *mut Cursor,
    target: Slice,
    key: *mut Slice,
    value: *mut Slice,
) -> Status {
    // SAFETY: guaranteed by the caller.
    unsafe { move_cursor(cursor, key, value, |c| c.seek(target.bytes())) }
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_cursor_seek_prev(
    cursor: *mut Cursor,
    target: Slice,
    key: *mut Slice,
    value: *mut Slice,
) -> Status {
    // SAFETY: guaranteed by the caller.
    unsafe { move_cursor(cursor, key, value, |c| c.seek_for_prev(target.bytes())) }
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_cursor_next(
    cursor: *mut Cursor,
    key: *mut Slice,
    value: *mut Slice,
) -> Status {
    // SAFETY: guaranteed by the caller.
    unsafe { move_cursor(cursor, key, value, |c| c.next()) }
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_cursor_prev(
    cursor: *mut Cursor,
    key: *mut Slice,
    value: *mut Slice,
) -> Status {
    // SAFETY: guaranteed by the caller.
    unsafe { move_cursor(cursor, key, value, |c| c.prev()) }
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_cursor_expiry(cursor: *const Cursor) -> u64 {
    // SAFETY: guaranteed by the caller.
    unsafe { cursor.as_ref() }.and_then(|c| c.cursor.expires_at_ms()).unwrap_or(NEVER)
}
