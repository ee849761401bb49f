//! Writes to a column family, each a commit of its own.

use crate::boundary::{Bytes, ErrorOut, Handle, Out, Struct, VALUE_BYTES_MAX, call};
use crate::database::family;
use crate::range::{KeyRange, Range};
use std::ffi::c_int;
use std::time::Duration;

#[unsafe(no_mangle)]
pub extern "C" fn perigee_put(
    family: Handle,
    key: Bytes,
    key_size: usize,
    value: Bytes,
    value_size: usize,
    error: ErrorOut,
) -> c_int {
    call(error, || self::family(family)?.put(key.key(key_size)?, value.value(value_size)?))
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_put_with_ttl(
    family: Handle,
    key: Bytes,
    key_size: usize,
    value: Bytes,
    value_size: usize,
    ttl_ms: u64,
    error: ErrorOut,
) -> c_int {
    call(error, || {
        let (key, value) = (key.key(key_size)?, value.value(value_size)?);
        self::family(family)?.put_with_ttl(key, value, Duration::from_millis(ttl_ms)).map(drop)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_delete(
    family: Handle,
    key: Bytes,
    key_size: usize,
    error: ErrorOut,
) -> c_int {
    call(error, || self::family(family)?.delete(key.key(key_size)?))
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_single_delete(
    family: Handle,
    key: Bytes,
    key_size: usize,
    error: ErrorOut,
) -> c_int {
    call(error, || self::family(family)?.single_delete(key.key(key_size)?))
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_delete_range(
    family: Handle,
    range: Struct<Range>,
    error: ErrorOut,
) -> c_int {
    call(error, || {
        let family = self::family(family)?;
        match range.key_range()? {
            KeyRange::Prefix(prefix) => family.delete_prefix(prefix),
            KeyRange::Bounds(lower, upper) => family.delete_range::<&[u8]>((lower, upper)),
        }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_merge(
    family: Handle,
    key: Bytes,
    key_size: usize,
    operand: Bytes,
    operand_size: usize,
    error: ErrorOut,
) -> c_int {
    call(error, || self::family(family)?.merge(key.key(key_size)?, operand.value(operand_size)?))
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_compare_and_swap(
    family: Handle,
    key: Bytes,
    key_size: usize,
    expected: Bytes,
    expected_size: usize,
    value: Bytes,
    value_size: usize,
    swapped: Out<c_int>,
    error: ErrorOut,
) -> c_int {
    swapped.set(0);
    call(error, || {
        swapped.require()?;
        let expected = expected.optional(expected_size, VALUE_BYTES_MAX)?;
        let value = value.optional(value_size, VALUE_BYTES_MAX)?;
        let result = self::family(family)?.compare_and_swap(key.key(key_size)?, expected, value)?;
        swapped.set(result.is_ok().into());
        Ok(())
    })
}
