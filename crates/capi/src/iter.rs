//! Iterators: a cursor with its answers borrowed until it moves.

use crate::abi::Handle;
use crate::border::{call, key, out};
use crate::code::{Code, INVALID_ARGS, NOT_FOUND, Result, SUCCESS};
use crate::handle::Table;
use crate::txn::TXNS;
use perigee::Cursor;
use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicUsize, Ordering::Relaxed};

/// Where an iterator stands, for calls that only look: so a step of a walk takes one call that holds it. Written while it is held; a
/// thread that looks while another one moves it sees the one or the other entry, or a mixture: as C's own would.
#[derive(Default)]
pub struct Shown {
    key: AtomicPtr<u8>,
    key_size: AtomicUsize,
    value: AtomicPtr<u8>,
    value_size: AtomicUsize,
    what: AtomicU8,
}

/// It is on no entry.
const NOTHING: u8 = 0;
/// The key is shown; the value is to be fetched.
const KEY: u8 = 1;
/// Both are shown.
const BOTH: u8 = 2;

impl Shown {
    #[inline]
    fn set(&self, cursor: &Cursor) -> bool {
        let what = if let Some((key, value)) = cursor.entry_at_hand() {
            self.set_key(key);
            self.set_value(value);
            BOTH
        } else if cursor.valid() {
            self.set_key(cursor.key());
            KEY
        } else {
            NOTHING
        };
        self.what.store(what, Relaxed);
        what != NOTHING
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
    fn fetch(&self, iter: Handle) -> Result<()> {
        let mut cursor = ITERS.hold(iter as usize)?;
        if !cursor.valid() {
            return Err(not_valid());
        }
        let (_, value) = cursor.entry()?;
        self.set_value(value);
        self.what.store(BOTH, Relaxed);
        Ok(())
    }
    /// Makes sure that so much is shown.
    #[inline]
    fn ready(&self, iter: Handle, needed: u8) -> Result<()> {
        match self.what.load(Relaxed) {
            NOTHING => Err(not_valid()),
            what if what >= needed => Ok(()),
            _ => self.fetch(iter),
        }
    }
}

/// Iterators that were made and not freed.
pub static ITERS: Table<Cursor, Shown> = Table::new(4);

/// Gives a cursor a handle.
pub fn insert(cursor: Cursor) -> Result<Handle> {
    ITERS.insert_with(cursor, |shown| shown.what.store(NOTHING, Relaxed)).map(|h| h as Handle)
}

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
        let cursor = TXNS.hold(txn as usize)?.read(cf, |t, f| t.cursor(f))?;
        *place = insert(cursor)?;
        Ok(())
    })
}

#[cold]
fn not_valid() -> Code {
    INVALID_ARGS.because("the iterator is not on an entry")
}

#[inline(never)]
fn at_the_end() -> Code {
    NOT_FOUND.because("there is no entry on that side")
}

#[inline]
fn go(iter: Handle, go: impl FnOnce(&mut Cursor) -> perigee::Result<()>) -> Result<()> {
    let mut cursor = ITERS.hold(iter as usize)?;
    // If moving panics nothing is shown any more.
    cursor.side().what.store(NOTHING, Relaxed);
    let gone = go(&mut cursor);
    // After an error it is on no entry, and what was shown is no more.
    let there = cursor.side().set(&cursor);
    gone?;
    if there { Ok(()) } else { Err(at_the_end()) }
}

#[inline]
fn step(iter: Handle, step: impl FnOnce(&mut Cursor) -> perigee::Result<()>) -> Result<()> {
    ITERS.peek(iter as usize)?.ready(iter, KEY)?;
    go(iter, step)
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
    c_int::from(ITERS.peek(iter as usize).is_ok_and(|shown| shown.what.load(Relaxed) != NOTHING))
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
        let shown = ITERS.peek(iter as usize)?;
        shown.ready(iter, KEY)?;
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
        let (place, size) = unsafe { (out(value)?, out(value_size)?) };
        let shown = ITERS.peek(iter as usize)?;
        shown.ready(iter, BOTH)?;
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
    if let Ok(shown) = ITERS.peek(iter as usize)
        && shown.what.load(Relaxed) == BOTH
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
        let (k, kn, v, vn) = unsafe { (out(key)?, out(key_size)?, out(value)?, out(value_size)?) };
        let shown = ITERS.peek(iter as usize)?;
        shown.ready(iter, BOTH)?;
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
