//! Large values: read and written in parts, without holding them in memory.

use crate::abi::Handle;
use crate::code::{Code, INVALID_ARGS, MEMORY, Result, TOO_LARGE, key_not_found};
use crate::ffi::{bytes, call, key, out_param};
use crate::txn::{TXNS, put_until};
use perigee::limits;
use perigee::values::{self, ValueReader};
use perigee_c_boundary::handle::HandleTable;
use std::ffi::c_int;
use std::ptr::null_mut;

/// A value that is being read or written.
enum ValueStream {
    /// A value being read.
    Value(OpenValue),
    /// A value being written.
    Writer(ValueWriter),
}

/// A value being read.
struct OpenValue {
    reader: ValueReader,
    /// The whole value: of a short one from the beginning, of a long one when
    /// [`perigee_value_data`] was called.
    whole: Option<Vec<u8>>,
}

/// Values of at most this many bytes are read when they are opened. They can be read even after the
/// database was closed.
const SHORT_BYTES: u64 = 1 << 20;

/// A value being written.
struct ValueWriter {
    txn: usize,
    family: usize,
    key: Vec<u8>,
    ttl: libc::time_t,
    /// `None` after an error that has ended the value.
    value: Option<WrittenParts>,
}

enum WrittenParts {
    /// Written to a file.
    Streamed(Box<values::ValueWriter<'static>>),
    /// Kept in memory for a commit hook.
    Buffered(Vec<u8>),
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
        let found = TXNS.lock(txn as usize)?.read(cf, |t, f| t.reader(f, key))?;
        let mut reader = found.ok_or_else(key_not_found)?;
        *size = reader.len();
        let is_short = reader.len() <= SHORT_BYTES;
        let whole = if is_short { Some(read_whole(&mut reader)?) } else { None };
        let value = OpenValue { reader, whole };
        *place = STREAMS.insert(ValueStream::Value(value))? as Handle;
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
        let handle = stream as usize;
        {
            let stream = STREAMS.pin(handle)?;
            let ValueStream::Value(value) = &*stream else { return wrong_handle_kind() };
            if let Some(whole) = &value.whole {
                let rest = usize::try_from(offset).ok().and_then(|at| whole.get(at..));
                let piece = rest.unwrap_or_default();
                let piece = &piece[..piece.len().min(size)];
                // SAFETY: the buffer has space for that many bytes, and does not overlap the value.
                unsafe { std::ptr::copy_nonoverlapping(piece.as_ptr(), buffer, piece.len()) };
                *got = piece.len();
                return Ok(());
            }
        }
        let mut stream = STREAMS.lock(handle)?;
        let ValueStream::Value(value) = &mut *stream else { return wrong_handle_kind() };
        let bytes = value.reader.len().saturating_sub(offset).min(size as u64) as usize;
        // SAFETY: the buffer has space for `size` bytes, and only this call uses it. It may be
        // uninitialized, so it is zeroed first.
        let buffer = unsafe {
            std::ptr::write_bytes(buffer, 0, bytes);
            std::slice::from_raw_parts_mut(buffer, bytes)
        };
        *got = value.reader.read_at(offset, buffer)?;
        Ok(())
    })
}

/// Returns a pointer to the whole value, which is read into memory, valid until the value is freed.
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
        let mut stream = STREAMS.lock(stream as usize)?;
        let ValueStream::Value(value) = &mut *stream else { return wrong_handle_kind() };
        if value.whole.is_none() {
            value.whole = Some(read_whole(&mut value.reader)?);
        }
        let whole = value.whole.as_deref().unwrap_or_default();
        (*data, *size) = (whole.as_ptr(), whole.len());
        Ok(())
    })
}

/// Reads a value from its start to its end.
fn read_whole(reader: &mut ValueReader) -> Result<Vec<u8>> {
    let bytes = usize::try_from(reader.len()).unwrap_or(usize::MAX);
    let mut whole = Vec::new();
    if whole.try_reserve_exact(bytes).is_err() {
        return Err(MEMORY.with_message("out of memory for the value"));
    }
    whole.resize(bytes, 0);
    reader.read_at(0, &mut whole)?;
    Ok(whole)
}

/// Frees a value.
#[unsafe(no_mangle)]
pub extern "C" fn perigee_value_free(stream: Handle) {
    call(|| Ok(STREAMS.remove(stream as usize).map(drop)?));
}

/// Begins a value that is written in parts, to a file unless it is short; `size_hint` bytes are
/// expected (0: unknown).
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
        let mut current = TXNS.lock(txn as usize)?;
        let is_buffered = current.needs_operations();
        let limit = match is_buffered {
            true => limits::VALUE_BYTES_MAX as u64,
            false => limits::STREAMED_VALUE_BYTES_MAX,
        };
        if size_hint > limit {
            return Err(too_large(limit));
        }
        let value = if is_buffered {
            current.read(cf, |_, f| f.writer(key).map(drop))?;
            WrittenParts::Buffered(Vec::new())
        } else {
            WrittenParts::Streamed(Box::new(current.read(cf, |_, f| f.writer(key))?))
        };
        let (txn, family, value) = (txn as usize, cf as usize, Some(value));
        let new = ValueWriter { txn, family, key: key.to_vec(), ttl, value };
        *place = STREAMS.insert(ValueStream::Writer(new))? as Handle;
        Ok(())
    })
}

fn too_large(limit: u64) -> Code {
    TOO_LARGE.with_message(match limit {
        limits::STREAMED_VALUE_BYTES_MAX => "a value must have at most 4 GiB",
        _ => "a value must have at most 1 GiB while a column family has a commit hook",
    })
}
fn no_value<T>() -> Result<T> {
    Err(INVALID_ARGS.with_message("an earlier call on this writer failed: free it"))
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
        let piece = unsafe { bytes(piece, piece_size, isize::MAX as usize) }?;
        let mut stream = STREAMS.lock(writer as usize)?;
        let ValueStream::Writer(w) = &mut *stream else { return wrong_handle_kind() };
        let appended = match &mut w.value {
            None => return no_value(),
            Some(WrittenParts::Streamed(writer)) => append_to_file(writer, piece),
            Some(WrittenParts::Buffered(value)) => append_to_buffer(value, piece),
        };
        if appended.is_err() && matches!(w.value, Some(WrittenParts::Streamed(_))) {
            w.value = None;
        }
        appended
    })
}

fn append_to_file(writer: &mut values::ValueWriter<'_>, piece: &[u8]) -> Result<()> {
    if writer.len() + piece.len() as u64 > limits::STREAMED_VALUE_BYTES_MAX {
        return Err(too_large(limits::STREAMED_VALUE_BYTES_MAX));
    }
    Ok(writer.append(piece)?)
}
fn append_to_buffer(value: &mut Vec<u8>, piece: &[u8]) -> Result<()> {
    if value.len() + piece.len() > limits::VALUE_BYTES_MAX {
        return Err(too_large(limits::VALUE_BYTES_MAX as u64));
    }
    if value.try_reserve(piece.len()).is_err() {
        return Err(MEMORY.with_message("out of memory for the value"));
    }
    value.extend_from_slice(piece);
    Ok(())
}

/// Puts the value into the transaction and frees the writer. After an error the value is gone,
/// unless the transaction accepts no calls or is used by another thread; the writer must still be
/// freed.
#[unsafe(no_mangle)]
pub extern "C" fn perigee_writer_finish(writer: Handle) -> c_int {
    call(|| {
        {
            let mut stream = STREAMS.lock(writer as usize)?;
            let ValueStream::Writer(w) = &mut *stream else { return wrong_handle_kind() };
            let mut txn = TXNS.lock(w.txn)?;
            if txn.needs_operations() && matches!(w.value, Some(WrittenParts::Streamed(_))) {
                return Err(INVALID_ARGS.with_message(
                    "a commit hook was set after the writer was begun, and needs the whole value: \
                     begin another writer",
                ));
            }
            let (value, key, ttl) = (&mut w.value, &w.key, w.ttl);
            let mut is_gone = false;
            txn.write(w.family as Handle, |t, f| match value.take() {
                None => {
                    is_gone = true;
                    Ok(())
                }
                Some(WrittenParts::Buffered(bytes)) => put_until(t, f, key, &bytes, ttl),
                Some(WrittenParts::Streamed(mut writer)) => {
                    if ttl > 0 {
                        writer.set_expiry(ttl.cast_unsigned().saturating_mul(1000));
                    }
                    writer.finish_in(t).map(drop)
                }
            })?;
            if is_gone {
                return no_value();
            }
        }
        Ok(STREAMS.remove(writer as usize).map(drop)?)
    })
}

/// Frees a writer without writing the value.
#[unsafe(no_mangle)]
pub extern "C" fn perigee_writer_free(writer: Handle) {
    call(|| Ok(STREAMS.remove(writer as usize).map(drop)?));
}
