//! Iterators over a range of a column family, in both directions.

use crate::boundary::{Bytes, ErrorOut, Handle, Out, Struct, call};
use crate::database::family;
use crate::range::{KeyBounds, Range};
use crate::read::{ReadCall, read};
use perigee::{Cursor, Readable, Result};
use perigee_c_boundary::handle::HandleTable;
use std::ffi::{c_int, c_void};
use std::ptr::null;

/// Iterators that were opened and not released.
static ITERATORS: HandleTable<OpenIterator> = HandleTable::new(4);

struct OpenIterator {
    cursor: Cursor,
    keys_only: bool,
}

/// `perigee_entry`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Entry {
    key: *const c_void,
    key_size: usize,
    value: *const c_void,
    value_size: usize,
}

const NO_ENTRY: Entry = Entry { key: null(), key_size: 0, value: null(), value_size: 0 };

struct OpenCursor(KeyBounds);

impl ReadCall<Cursor> for OpenCursor {
    fn run(self, source: &impl Readable) -> Result<Cursor> {
        source.cursor_within(self.0)
    }
}

/// Inserts an iterator and returns its handle.
pub fn insert(cursor: Cursor) -> Result<Handle> {
    Handle::insert(&ITERATORS, OpenIterator { cursor, keys_only: false })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_iterator_open(
    family: Handle,
    snapshot: Handle,
    range: Struct<Range>,
    iterator: Out<Handle>,
    error: ErrorOut,
) -> c_int {
    iterator.set(Handle::NULL);
    call(error, || {
        iterator.require()?;
        let bounds = range.bounds(&*self::family(family)?)?;
        iterator.set(insert(read(family, snapshot, OpenCursor(bounds))?)?);
        Ok(())
    })
}

/// Moves an iterator and returns the entry that it is on.
#[inline]
fn move_to(
    iterator: Handle,
    entry: &Out<Entry>,
    error: ErrorOut,
    step: impl FnOnce(&mut Cursor) -> Result<()>,
) -> c_int {
    entry.set(NO_ENTRY);
    call(error, || {
        entry.require()?;
        let mut iterator = ITERATORS.lock(iterator.raw())?;
        let OpenIterator { cursor, keys_only } = &mut *iterator;
        step(cursor)?;
        if !cursor.is_valid() {
            return Ok(());
        }
        let (key, value, value_size) = if *keys_only {
            (cursor.key(), null(), 0)
        } else {
            let (key, value) = cursor.entry()?;
            (key, value.as_ptr(), value.len())
        };
        entry.set(Entry {
            key: key.as_ptr().cast(),
            key_size: key.len(),
            value: value.cast(),
            value_size,
        });
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_iterator_first(
    iterator: Handle,
    entry: Out<Entry>,
    error: ErrorOut,
) -> c_int {
    move_to(iterator, &entry, error, Cursor::seek_to_first)
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_iterator_last(
    iterator: Handle,
    entry: Out<Entry>,
    error: ErrorOut,
) -> c_int {
    move_to(iterator, &entry, error, Cursor::seek_to_last)
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_iterator_seek(
    iterator: Handle,
    key: Bytes,
    key_size: usize,
    entry: Out<Entry>,
    error: ErrorOut,
) -> c_int {
    move_to(iterator, &entry, error, |cursor| cursor.seek(key.key(key_size)?))
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_iterator_seek_for_prev(
    iterator: Handle,
    key: Bytes,
    key_size: usize,
    entry: Out<Entry>,
    error: ErrorOut,
) -> c_int {
    move_to(iterator, &entry, error, |cursor| cursor.seek_for_prev(key.key(key_size)?))
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_iterator_next(
    iterator: Handle,
    entry: Out<Entry>,
    error: ErrorOut,
) -> c_int {
    move_to(iterator, &entry, error, Cursor::next)
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_iterator_prev(
    iterator: Handle,
    entry: Out<Entry>,
    error: ErrorOut,
) -> c_int {
    move_to(iterator, &entry, error, Cursor::prev)
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_iterator_set_keys_only(
    iterator: Handle,
    keys_only: c_int,
    error: ErrorOut,
) -> c_int {
    call(error, || {
        ITERATORS.lock(iterator.raw())?.keys_only = keys_only != 0;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_iterator_release(iterator: Handle) {
    iterator.release(&ITERATORS);
}
