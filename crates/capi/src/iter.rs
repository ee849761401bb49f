//! Iterators: a cursor, and the key and value it returns, which are borrowed until it moves.

use crate::abi::Handle;
use crate::code::{Code, INVALID_ARGS, NOT_FOUND, Result, SUCCESS};
use crate::ffi::{call, key, out_param};
use crate::txn::TXNS;
use perigee::Cursor;
use perigee_c_boundary::handle::HandleTable;
use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicUsize, Ordering::Relaxed};

/// The iterator's current entry, for calls that only read, so that one step of a scan locks the
/// iterator only once. Written while the iterator is locked; a thread that reads while another one
/// moves the iterator gets either entry, or a mixture, as with TidesDB.
#[derive(Default)]
pub struct CachedEntry {
    key: AtomicPtr<u8>,
    key_size: AtomicUsize,
    value: AtomicPtr<u8>,
    value_size: AtomicUsize,
    cached_parts: AtomicU8,
}

/// The iterator is not on an entry.
const CACHED_NONE: u8 = 0;
/// The key is cached; the value must be read.
const CACHED_KEY: u8 = 1;
/// Key and value are cached.
const CACHED_KEY_AND_VALUE: u8 = 2;

impl CachedEntry {
    #[inline]
    fn update(&self, cursor: &Cursor) -> bool {
        let what = if let Some((key, value)) = cursor.entry_if_resident() {
            self.set_key(key);
            self.set_value(value);
            CACHED_KEY_AND_VALUE
        } else if cursor.is_valid() {
            self.set_key(cursor.key());
            CACHED_KEY
        } else {
            CACHED_NONE
        };
        self.cached_parts.store(what, Relaxed);
        what != CACHED_NONE
    }
    #[inline]
    fn set_key(&self, key: &[u8]) {
        self.key.store(key.as_ptr().cast_mut(), Relaxed);
        self.key_size.store(key.len(), Relaxed);
    }
    #[inline]
    fn set_value(&self, value: &[u8]) {
        self.value.store(value.as_ptr().cast_mut(), Relaxed);
        self.value_size.store(value.len(), Relaxed);
    }
    #[inline]
    fn key(&self) -> (*mut u8, usize) {
        (self.key.load(Relaxed), self.key_size.load(Relaxed))
    }
    #[inline]
    fn value(&self) -> (*mut u8, usize) {
        (self.value.load(Relaxed), self.value_size.load(Relaxed))
    }
    /// Reads and caches the value.
    #[cold]
    fn load_value(&self, iter: Handle) -> Result<()> {
        let mut cursor = ITERS.lock(iter as usize)?;
        if !cursor.is_valid() {
            return Err(not_valid_error());
        }
        let (_, value) = cursor.entry()?;
        self.set_value(value);
        self.cached_parts.store(CACHED_KEY_AND_VALUE, Relaxed);
        Ok(())
    }
    /// Ensures that the `needed` parts are cached.
    #[inline]
    fn ensure_cached(&self, iter: Handle, needed: u8) -> Result<()> {
        match self.cached_parts.load(Relaxed) {
            CACHED_NONE => Err(not_valid_error()),
            what if what >= needed => Ok(()),
            _ => self.load_value(iter),
        }
    }
}

/// Iterators that were created and not freed.
pub static ITERS: HandleTable<Cursor, CachedEntry> = HandleTable::new(4);

/// Inserts a cursor and returns its handle.
pub fn insert_cursor(cursor: Cursor) -> Result<Handle> {
    let handle =
        ITERS.insert_with(cursor, |cached| cached.cached_parts.store(CACHED_NONE, Relaxed))?;
    Ok(handle as Handle)
}

/// Creates an iterator over the transaction's current view of a column family; it stays valid
/// independently of the transaction.
///
/// # Safety
/// `iter` is null or valid for writing a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_iter_new(txn: Handle, cf: Handle, iter: *mut Handle) -> c_int {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let place = unsafe { out_param(iter) }?;
        *place = null_mut();
        let cursor = TXNS.lock(txn as usize)?.read(cf, |t, f| t.cursor(f))?;
        *place = insert_cursor(cursor)?;
        Ok(())
    })
}

#[cold]
fn not_valid_error() -> Code {
    INVALID_ARGS.with_message("the iterator is not on an entry")
}

#[inline(never)]
fn end_of_range_error() -> Code {
    NOT_FOUND.with_message("there is no further entry in this direction")
}

#[inline]
fn move_cursor(iter: Handle, go: impl FnOnce(&mut Cursor) -> perigee::Result<()>) -> Result<()> {
    let mut cursor = ITERS.lock(iter as usize)?;
    // If the move panics, no entry is cached.
    cursor.shared().cached_parts.store(CACHED_NONE, Relaxed);
    let moved = go(&mut cursor);
    // After an error the iterator is not on an entry, and the cached one is removed.
    let there = cursor.shared().update(&cursor);
    moved?;
    if there { Ok(()) } else { Err(end_of_range_error()) }
}

#[inline]
fn step_cursor(iter: Handle, step: impl FnOnce(&mut Cursor) -> perigee::Result<()>) -> Result<()> {
    ITERS.peek_shared(iter as usize)?.ensure_cached(iter, CACHED_KEY)?;
    move_cursor(iter, step)
}

/// Moves to the first entry at or after a key.
///
/// # Safety
/// The key is null or valid for the given size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_iter_seek(
    iter: Handle,
    key_: *const u8,
    key_size: usize,
) -> c_int {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let key = unsafe { key(key_, key_size) }?;
        move_cursor(iter, |c| c.seek(key))
    })
}

/// Moves to the last entry at or before a key.
///
/// # Safety
/// The key is null or valid for the given size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_iter_seek_for_prev(
    iter: Handle,
    key_: *const u8,
    key_size: usize,
) -> c_int {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let key = unsafe { key(key_, key_size) }?;
        move_cursor(iter, |c| c.seek_for_prev(key))
    })
}

/// Moves to the first entry.
#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_iter_seek_to_first(iter: Handle) -> c_int {
    call(|| move_cursor(iter, Cursor::seek_to_first))
}

/// Moves to the last entry.
#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_iter_seek_to_last(iter: Handle) -> c_int {
    call(|| move_cursor(iter, Cursor::seek_to_last))
}

/// Moves to the next entry.
#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_iter_next(iter: Handle) -> c_int {
    call(|| step_cursor(iter, Cursor::next))
}

/// Moves to the previous entry.
#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_iter_prev(iter: Handle) -> c_int {
    call(|| step_cursor(iter, Cursor::prev))
}

/// Returns 1 if the iterator is on an entry.
#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_iter_valid(iter: Handle) -> c_int {
    c_int::from(
        ITERS
            .peek_shared(iter as usize)
            .is_ok_and(|cached| cached.cached_parts.load(Relaxed) != CACHED_NONE),
    )
}

/// Returns the key, valid until the iterator moves.
///
/// # Safety
/// The pointers are null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_iter_key(
    iter: Handle,
    key: *mut *mut u8,
    key_size: *mut usize,
) -> c_int {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let (place, size) = unsafe { (out_param(key)?, out_param(key_size)?) };
        let shown = ITERS.peek_shared(iter as usize)?;
        shown.ensure_cached(iter, CACHED_KEY)?;
        (*place, *size) = shown.key();
        Ok(())
    })
}

/// Returns the value, valid until the iterator moves.
///
/// # Safety
/// The pointers are null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_iter_value(
    iter: Handle,
    value: *mut *mut u8,
    value_size: *mut usize,
) -> c_int {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let (place, size) = unsafe { (out_param(value)?, out_param(value_size)?) };
        let shown = ITERS.peek_shared(iter as usize)?;
        shown.ensure_cached(iter, CACHED_KEY_AND_VALUE)?;
        (*place, *size) = shown.value();
        Ok(())
    })
}

/// Returns key and value, valid until the iterator moves.
///
/// # Safety
/// The pointers are null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_iter_key_value(
    iter: Handle,
    key: *mut *mut u8,
    key_size: *mut usize,
    value: *mut *mut u8,
    value_size: *mut usize,
) -> c_int {
    // Fast path without a call of the engine.
    if let Ok(shown) = ITERS.peek_shared(iter as usize)
        && shown.cached_parts.load(Relaxed) == CACHED_KEY_AND_VALUE
        && !(key.is_null() || key_size.is_null() || value.is_null() || value_size.is_null())
    {
        // SAFETY: not null; the caller guarantees that they are valid for writing.
        unsafe {
            (*key, *key_size) = shown.key();
            (*value, *value_size) = shown.value();
        }
        return SUCCESS;
    }
    call(|| {
        // SAFETY: guaranteed by the caller.
        let (k, kn, v, vn) = unsafe {
            (out_param(key)?, out_param(key_size)?, out_param(value)?, out_param(value_size)?)
        };
        let shown = ITERS.peek_shared(iter as usize)?;
        shown.ensure_cached(iter, CACHED_KEY_AND_VALUE)?;
        (*k, *kn) = shown.key();
        (*v, *vn) = shown.value();
        Ok(())
    })
}

/// Frees an iterator.
#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_iter_free(iter: Handle) {
    call(|| Ok(ITERS.remove(iter as usize).map(drop)?));
}
