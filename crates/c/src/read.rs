//! Reads of a column family, as of now or as of a snapshot.

use crate::boundary::{Buffer, Bytes, ErrorOut, Handle, Out, Struct, call};
use crate::database::family;
use crate::memory::{Pinned, set_copy, set_pinned};
use crate::range::Range;
use perigee::{Family, Readable, Result, Snapshot, limits};
use perigee_c_boundary::handle::HandleTable;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

/// Snapshots that were taken and not released.
pub static SNAPSHOTS: HandleTable<Snapshot> = HandleTable::new(5);

/// `perigee_bytes`.
#[repr(C)]
pub struct ByteSlice {
    data: *const c_void,
    size: usize,
}

/// A read that both sources offer. A trait, because a closure cannot be generic.
pub trait ReadCall<T> {
    fn run(self, source: &impl Readable) -> Result<T>;
}

/// Runs a read on a column family, as of a snapshot unless that is null.
#[inline]
pub fn read<T>(family: Handle, snapshot: Handle, read: impl ReadCall<T>) -> Result<T> {
    let family = self::family(family)?;
    let family: &Family = &family;
    if snapshot.is_null() {
        return read.run(family);
    }
    let snapshot = SNAPSHOTS.pin(snapshot.raw())?;
    read.run(&snapshot.family(family))
}

/// Defines a read as a structure of its arguments.
macro_rules! read_call {
    ($name:ident { $($field:ident: $type:ty),* } -> $result:ty, $source:ident => $body:expr) => {
        pub struct $name<'a> { $(pub $field: $type),* }
        impl<'a> ReadCall<$result> for $name<'a> {
            #[inline]
            fn run(self, $source: &impl Readable) -> Result<$result> {
                let $name { $($field),* } = self;
                $body
            }
        }
    };
}

read_call!(GetPinned { key: &'a [u8] } -> Option<perigee::Slice>, s => s.get_pinned(key));
read_call!(Contains { key: &'a [u8] } -> bool, s => s.contains(key));
read_call!(GetWithTtl { key: &'a [u8] } -> Option<perigee::ValueWithTtl>, s => s.get_with_ttl(key));
read_call!(GetMany { keys: Vec<&'a [u8]> } -> Vec<Result<Option<perigee::Slice>>>,
    s => Ok(s.multi_get(keys)));

/// Returns the keys of an array.
pub fn key_slices(keys: &[ByteSlice]) -> Result<Vec<&[u8]>> {
    keys.iter().map(|key| Bytes(key.data).get(key.size, limits::KEY_BYTES_MAX)).collect()
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_get(
    family: Handle,
    snapshot: Handle,
    key: Bytes,
    key_size: usize,
    value: Out<*mut c_void>,
    size: Out<usize>,
    error: ErrorOut,
) -> c_int {
    value.set(null_mut());
    size.set(0);
    call(error, || {
        value.require()?;
        let get = GetPinned { key: key.key(key_size)? };
        set_copy(read(family, snapshot, get)?.as_ref(), &value, &size)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_get_pinned(
    family: Handle,
    snapshot: Handle,
    key: Bytes,
    key_size: usize,
    pinned: Out<Pinned>,
    error: ErrorOut,
) -> c_int {
    pinned.set(Pinned::NONE);
    call(error, || {
        pinned.require()?;
        let get = GetPinned { key: key.key(key_size)? };
        if let Some(value) = read(family, snapshot, get)? {
            pinned.set(Pinned::new(value));
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_get_into(
    family: Handle,
    snapshot: Handle,
    key: Bytes,
    key_size: usize,
    buffer: Buffer,
    capacity: usize,
    size: Out<usize>,
    found: Out<c_int>,
    error: ErrorOut,
) -> c_int {
    size.set(0);
    found.set(0);
    call(error, || {
        size.require()?;
        found.require()?;
        let get = GetPinned { key: key.key(key_size)? };
        if let Some(value) = read(family, snapshot, get)? {
            buffer.copy_from(&value, capacity)?;
            size.set(value.len());
            found.set(1);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_get_many(
    family: Handle,
    snapshot: Handle,
    keys: Struct<ByteSlice>,
    count: usize,
    mut values: Out<Pinned>,
    error: ErrorOut,
) -> c_int {
    let values = values.array(count, Pinned::NONE);
    call(error, || {
        let keys = key_slices(keys.array(count)?)?;
        let found = read(family, snapshot, GetMany { keys })?;
        set_pinned(values?, found)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_contains(
    family: Handle,
    snapshot: Handle,
    key: Bytes,
    key_size: usize,
    found: Out<c_int>,
    error: ErrorOut,
) -> c_int {
    found.set(0);
    call(error, || {
        found.require()?;
        let contains = Contains { key: key.key(key_size)? };
        found.set(read(family, snapshot, contains)?.into());
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_get_expiry(
    family: Handle,
    snapshot: Handle,
    key: Bytes,
    key_size: usize,
    expires_ms: Out<u64>,
    found: Out<c_int>,
    error: ErrorOut,
) -> c_int {
    expires_ms.set(0);
    found.set(0);
    call(error, || {
        expires_ms.require()?;
        found.require()?;
        let get = GetWithTtl { key: key.key(key_size)? };
        if let Some(value) = read(family, snapshot, get)? {
            expires_ms.set(value.expires_at_ms.unwrap_or(0));
            found.set(1);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_estimate(
    family: Handle,
    range: Struct<Range>,
    keys: Out<u64>,
    disk_bytes: Out<u64>,
    error: ErrorOut,
) -> c_int {
    keys.set(0);
    disk_bytes.set(0);
    call(error, || {
        let family = self::family(family)?;
        let estimate = family.estimate_range(range.bounds(&family)?)?;
        keys.set(estimate.keys);
        disk_bytes.set(estimate.disk_bytes);
        Ok(())
    })
}
