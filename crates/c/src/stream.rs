//! Large values, read and written in parts.

use crate::boundary::{Buffer, Bytes, ErrorOut, Handle, Out, VALUE_BYTES_MAX, call, used_up};
use crate::database::family;
use crate::read::{ReadCall, read};
use crate::transaction::TRANSACTIONS;
use perigee::values::{ValueReader, ValueWriter};
use perigee::{Readable, Result};
use perigee_c_boundary::handle::HandleTable;
use std::ffi::{c_int, c_void};
use std::time::Duration;

static READERS: HandleTable<ValueReader> = HandleTable::new(9);
/// `None`: finished, or an append failed.
static WRITERS: HandleTable<Option<Box<ValueWriter<'static>>>> = HandleTable::new(10);

struct OpenReader<'a>(&'a [u8]);

impl ReadCall<Option<ValueReader>> for OpenReader<'_> {
    fn run(self, source: &impl Readable) -> Result<Option<ValueReader>> {
        source.reader(self.0)
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_stream_reader_open(
    family: Handle,
    snapshot: Handle,
    key: Bytes,
    key_size: usize,
    reader: Out<Handle>,
    size: Out<u64>,
    error: ErrorOut,
) -> c_int {
    reader.set(Handle::NULL);
    size.set(0);
    call(error, || {
        reader.require()?;
        if let Some(value) = read(family, snapshot, OpenReader(key.key(key_size)?))? {
            let bytes = value.len();
            reader.set(Handle::insert(&READERS, value)?);
            size.set(bytes);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_stream_reader_read(
    reader: Handle,
    offset: u64,
    mut buffer: Buffer,
    capacity: usize,
    got: Out<usize>,
    error: ErrorOut,
) -> c_int {
    got.set(0);
    call(error, || {
        got.require()?;
        let mut reader = READERS.lock(reader.raw())?;
        let rest = reader.len().saturating_sub(offset);
        let bytes = usize::try_from(rest).map_or(capacity, |rest| rest.min(capacity));
        got.set(reader.read_at(offset, buffer.zeroed(bytes)?)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_stream_reader_release(reader: Handle) {
    reader.release(&READERS);
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_stream_writer_open(
    family: Handle,
    key: Bytes,
    key_size: usize,
    ttl_ms: u64,
    writer: Out<Handle>,
    error: ErrorOut,
) -> c_int {
    writer.set(Handle::NULL);
    call(error, || {
        writer.require()?;
        let mut value = self::family(family)?.writer(key.key(key_size)?)?;
        if ttl_ms > 0 {
            value.set_ttl(Duration::from_millis(ttl_ms));
        }
        writer.set(Handle::insert(&WRITERS, Some(Box::new(value)))?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_stream_writer_append(
    writer: Handle,
    part: Bytes,
    part_size: usize,
    error: ErrorOut,
) -> c_int {
    call(error, || {
        let part = part.get(part_size, VALUE_BYTES_MAX)?;
        let mut writer = WRITERS.lock(writer.raw())?;
        let value = writer.as_mut().ok_or_else(|| used_up("value"))?;
        let appended = value.append(part);
        if appended.is_err() {
            *writer = None;
        }
        appended
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_stream_writer_finish(
    writer: Handle,
    transaction: Handle,
    error: ErrorOut,
) -> c_int {
    call(error, || {
        let mut writer = WRITERS.lock(writer.raw())?;
        if transaction.is_null() {
            return writer.take().ok_or_else(|| used_up("value"))?.finish().map(drop);
        }
        let txn = TRANSACTIONS.lock(transaction.raw())?;
        writer.take().ok_or_else(|| used_up("value"))?.finish_in(&txn).map(drop)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_stream_writer_release(writer: Handle) {
    writer.release(&WRITERS);
}

/// Only for the size of a pointer in a 32-bit build: the limit of a value exceeds it.
const _: () = assert!(size_of::<*mut c_void>() == 8, "values of up to 4 GiB need 64 bits");
