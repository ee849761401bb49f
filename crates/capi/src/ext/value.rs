//! Large values: read in parts from the pinned value without copying it, and written in parts.

use crate::abi::Handle;
use crate::code::{INVALID_ARGS, Result, TOO_LARGE, key_not_found};
use crate::ffi::{bytes, call, key, out_param};
use crate::handle::HandleTable;
use crate::txn::{TXNS, put_until};
use perigee::{Slice, limits};
use std::ffi::c_int;
use std::ptr::null_mut;

/// A value that is being read or written.
pub enum ValueStream {
    /// A pinned value.
    Value(Slice),
    /// A value being written.
    Writer(ValueWriter),
}

/// The buffer of a value being written.
pub struct ValueWriter {
    txn: usize,
    family: usize,
    key: Vec<u8>,
    ttl: libc::time_t,
    value: Vec<u8>,
}

static STREAMS: HandleTable<ValueStream> = HandleTable::new(7);

fn wrong_handle_kind<T>() -> Result<T> {
    Err(INVALID_ARGS.with_message(
        "wrong kind of handle: open values can only be read, writers only be written",
    ))
}

/// Opens the value of a key for reading in parts.
///
/// # Safety
/// The key is null or valid for the given size; `stream` is null or valid for writing a pointer,
/// `size` for writing the value's length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perigee_value_open(
    txn: Handle,
    cf: Handle,
    key_: *const u8,
    key_size: usize,
    stream: *mut Handle,
    size: *mut u64,
) -> c_int {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let (key, place, size) =
            unsafe { (key(key_, key_size)?, out_param(stream)?, out_param(size)?) };
        *place = null_mut();
        let found = TXNS.lock(txn as usize)?.read(cf, |t, f| t.get_pinned(f, key))?;
        let found = found.ok_or_else(key_not_found)?;
        *size = found.len() as u64;
        *place = STREAMS.insert(ValueStream::Value(found))? as Handle;
        Ok(())
    })
}

/// Copies a part of a value: the bytes from `offset` on, at most `size`.
///
/// # Safety
/// `buffer` has space for `size` bytes, `got` is valid for writing the number of bytes copied, or
/// they are null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perigee_value_read(
    stream: Handle,
    offset: u64,
    buffer: *mut u8,
    size: usize,
    got: *mut usize,
) -> c_int {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let got = unsafe { out_param(got) }?;
        if buffer.is_null() {
            return Err(INVALID_ARGS.with_message("the buffer is null"));
        }
        let stream = STREAMS.pin(stream as usize)?;
        let ValueStream::Value(value) = &*stream else { return wrong_handle_kind() };
        let rest = usize::try_from(offset).ok().and_then(|at| value.get(at..)).unwrap_or(&[]);
        let piece = &rest[..rest.len().min(size)];
        // SAFETY: the buffer has space for that many bytes, and does not overlap the value.
        unsafe { std::ptr::copy_nonoverlapping(piece.as_ptr(), buffer, piece.len()) };
        *got = piece.len();
        Ok(())
    })
}

/// Returns a pointer to the whole value without copying it, valid until the value is freed.
///
/// # Safety
/// `data` and `size` are null or valid for writing the results.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perigee_value_data(
    stream: Handle,
    data: *mut *const u8,
    size: *mut usize,
) -> c_int {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let (data, size) = unsafe { (out_param(data)?, out_param(size)?) };
        let stream = STREAMS.pin(stream as usize)?;
        let ValueStream::Value(value) = &*stream else { return wrong_handle_kind() };
        (*data, *size) = (value.as_ptr(), value.len());
        Ok(())
    })
}

/// Frees a value.
#[unsafe(no_mangle)]
pub extern "C" fn perigee_value_free(stream: Handle) {
    call(|| STREAMS.remove(stream as usize).map(drop));
}

/// Begins a value that is written in parts; `size_hint` bytes are expected (0: unknown).
///
/// # Safety
/// The key is null or valid for the given size; `writer` is null or valid for writing a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perigee_writer_new(
    txn: Handle,
    cf: Handle,
    key_: *const u8,
    key_size: usize,
    ttl: libc::time_t,
    size_hint: u64,
    writer: *mut Handle,
) -> c_int {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let (key, place) = unsafe { (key(key_, key_size)?, out_param(writer)?) };
        *place = null_mut();
        if size_hint > limits::VALUE_BYTES_MAX as u64 {
            return Err(TOO_LARGE.with_message("a value must have at most 1 GiB"));
        }
        let mut value = Vec::new();
        if value.try_reserve_exact(size_hint as usize).is_err() {
            return Err(crate::code::MEMORY.with_message("out of memory for the value"));
        }
        let new =
            ValueWriter { txn: txn as usize, family: cf as usize, key: key.to_vec(), ttl, value };
        *place = STREAMS.insert(ValueStream::Writer(new))? as Handle;
        Ok(())
    })
}

/// Appends a part.
///
/// # Safety
/// The part is null or valid for the given size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perigee_writer_append(
    writer: Handle,
    piece: *const u8,
    piece_size: usize,
) -> c_int {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let piece = unsafe { bytes(piece, piece_size, limits::VALUE_BYTES_MAX) }?;
        let mut stream = STREAMS.lock(writer as usize)?;
        let ValueStream::Writer(w) = &mut *stream else { return wrong_handle_kind() };
        if w.value.len() + piece.len() > limits::VALUE_BYTES_MAX {
            return Err(TOO_LARGE.with_message("a value must have at most 1 GiB"));
        }
        if w.value.try_reserve(piece.len()).is_err() {
            return Err(crate::code::MEMORY.with_message("out of memory for the value"));
        }
        w.value.extend_from_slice(piece);
        Ok(())
    })
}

/// Puts the value into the transaction and frees the writer; after an error the writer stays valid.
#[unsafe(no_mangle)]
pub extern "C" fn perigee_writer_finish(writer: Handle) -> c_int {
    call(|| {
        {
            let stream = STREAMS.lock(writer as usize)?;
            let ValueStream::Writer(w) = &*stream else { return wrong_handle_kind() };
            let mut txn = TXNS.lock(w.txn)?;
            txn.write(w.family as Handle, |t, f| put_until(t, f, &w.key, &w.value, w.ttl))?;
        }
        STREAMS.remove(writer as usize).map(drop)
    })
}

/// Frees a writer without writing the value.
#[unsafe(no_mangle)]
pub extern "C" fn perigee_writer_free(writer: Handle) {
    call(|| STREAMS.remove(writer as usize).map(drop));
}
