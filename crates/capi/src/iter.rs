//! Iterators: a cursor with its answers borrowed until it moves.

use crate::abi::Handle;
use crate::code::{Code, INVALID_ARGS, NOT_FOUND, Result, SUCCESS};
use crate::ffi::{call, key, out_param};
use crate::handle::HandleTable;
use crate::txn::TXNS;
use perigee::Cursor;
use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicUsize, Ordering::Relaxed};

/// Where an iterator stands, for calls that only look: so a step of a walk takes one call that
/// holds it. Written while it is held; a thread that looks while another one moves it sees the one
/// or the other entry, or a mixture: as C's own would.
#[derive(Default)]
pub struct CachedEntry {
    key: AtomicPtr<u8>,
    key_size: AtomicUsize,
    value: AtomicPtr<u8>,
    value_size: AtomicUsize,
    cached_parts: AtomicU8,
}

/// It is on no entry.
const CACHED_NONE: u8 = 0;
/// The key is shown; the value is to be fetched.
const CACHED_KEY: u8 = 1;
/// Both are shown.
const CACHED_KEY_AND_VALUE: u8 = 2;

impl CachedEntry {
    #[inline]
    fn update(&self, cursor: &Cursor) -> bool {
        let what = if let Some((key, value)) = cursor.entry_if_resident() {
            self.set_key(key);
            self.set_value(value);
            CACHED_KEY_AND_VALUE
        } else if cursor.valid() {
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
    /// Shows the value, too.
    #[cold]
    fn load_value(&self, iter: Handle) -> Result<()> {
        let mut cursor = ITERS.lock(iter as usize)?;
        if !cursor.valid() {
            return Err(not_valid_error());
        }
        let (_, value) = cursor.entry()?;
        self.set_value(value);
        self.cached_parts.store(CACHED_KEY_AND_VALUE, Relaxed);
        Ok(())
    }
    /// Makes sure that so much is shown.
    #[inline]
    fn ensure_cached(&self, iter: Handle, needed: u8) -> Result<()> {
        match self.cached_parts.load(Relaxed) {
            CACHED_NONE => Err(not_valid_error()),
            what if what >= needed => Ok(()),
            _ => self.load_value(iter),
        }
    }
}

/// Iterators that were made and not freed.
pub static ITERS: HandleTable<Cursor, CachedEntry> = HandleTable::new(4);

/// Gives a cursor a handle.
pub fn insert_cursor(cursor: Cursor) -> Result<Handle> {
    ITERS
        .insert_with(cursor, |shown| shown.cached_parts.store(CACHED_NONE, Relaxed))
        .map(|h| h as Handle)
}

/// Makes an iterator over what the transaction sees of a family now; it lives on its own from then
/// on.
///
/// # Safety
/// `iter` is null or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_iter_new(txn: Handle, cf: Handle, iter: *mut Handle) -> c_int {
    call(|| {
        // SAFETY: says the caller.
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
    NOT_FOUND.with_message("there is no entry on that side")
}

#[inline]
fn move_cursor(iter: Handle, go: impl FnOnce(&mut Cursor) -> perigee::Result<()>) -> Result<()> {
    let mut cursor = ITERS.lock(iter as usize)?;
    // If moving panics nothing is shown any more.
    cursor.shared().cached_parts.store(CACHED_NONE, Relaxed);
    let gone = go(&mut cursor);
    // After an error it is on no entry, and what was shown is no more.
    let there = cursor.shared().update(&cursor);
    gone?;
    if there { Ok(()) } else { Err(end_of_range_error()) }
}

#[inline]
fn step_cursor(iter: Handle, step: impl FnOnce(&mut Cursor) -> perigee::Result<()>) -> Result<()> {
    ITERS.peek_shared(iter as usize)?.ensure_cached(iter, CACHED_KEY)?;
    move_cursor(iter, step)
}

/// To the first entry at or after a key.
///
/// # Safety
/// The key is as long as is said, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_iter_seek(
    iter: Handle,
    key_: *const u8,
    key_size: usize,
) -> c_int {
    call(|| {
        // SAFETY: says the caller.
        let key = unsafe { key(key_, key_size) }?;
        move_cursor(iter, |c| c.seek(key))
    })
}

/// To the last entry at or before a key.
///
/// # Safety
/// The key is as long as is said, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_iter_seek_for_prev(
    iter: Handle,
    key_: *const u8,
    key_size: usize,
) -> c_int {
    call(|| {
        // SAFETY: says the caller.
        let key = unsafe { key(key_, key_size) }?;
        move_cursor(iter, |c| c.seek_for_prev(key))
    })
}

/// To the first entry.
#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_iter_seek_to_first(iter: Handle) -> c_int {
    call(|| move_cursor(iter, Cursor::seek_to_first))
}

/// To the last entry.
#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_iter_seek_to_last(iter: Handle) -> c_int {
    call(|| move_cursor(iter, Cursor::seek_to_last))
}

/// To the next entry.
#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_iter_next(iter: Handle) -> c_int {
    call(|| step_cursor(iter, Cursor::next))
}

/// To the entry before.
#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_iter_prev(iter: Handle) -> c_int {
    call(|| step_cursor(iter, Cursor::prev))
}

/// Whether it is on an entry.
#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_iter_valid(iter: Handle) -> c_int {
    c_int::from(
        ITERS
            .peek_shared(iter as usize)
            .is_ok_and(|shown| shown.cached_parts.load(Relaxed) != CACHED_NONE),
    )
}

/// The key, until the iterator moves.
///
/// # Safety
/// The places are null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_iter_key(
    iter: Handle,
    key: *mut *mut u8,
    key_size: *mut usize,
) -> c_int {
    call(|| {
        // SAFETY: says the caller.
        let (place, size) = unsafe { (out_param(key)?, out_param(key_size)?) };
        let shown = ITERS.peek_shared(iter as usize)?;
        shown.ensure_cached(iter, CACHED_KEY)?;
        (*place, *size) = shown.key();
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
        let (place, size) = unsafe { (out_param(value)?, out_param(value_size)?) };
        let shown = ITERS.peek_shared(iter as usize)?;
        shown.ensure_cached(iter, CACHED_KEY_AND_VALUE)?;
        (*place, *size) = shown.value();
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
    // The usual case, without the way into the engine.
    if let Ok(shown) = ITERS.peek_shared(iter as usize)
        && shown.cached_parts.load(Relaxed) == CACHED_KEY_AND_VALUE
        && !(key.is_null() || key_size.is_null() || value.is_null() || value_size.is_null())
    {
        // SAFETY: not null; the caller says that they may be written to.
        unsafe {
            (*key, *key_size) = shown.key();
            (*value, *value_size) = shown.value();
        }
        return SUCCESS;
    }
    call(|| {
        // SAFETY: says the caller.
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
    call(|| ITERS.remove(iter as usize).map(drop));
}
