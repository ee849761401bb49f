//! Reads, writes and locks of a transaction.

use crate::boundary::{Bytes, ErrorOut, Handle, Out, Struct, call};
use crate::database::family;
use crate::iterator;
use crate::memory::{Pinned, set_copy, set_pinned};
use crate::range::{KeyRange, Range};
use crate::read::{ByteSlice, key_slices};
use crate::transaction::TRANSACTIONS;
use perigee::{Error, Family, LockMode, Result, Txn};
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

/// Runs a call with a transaction and a column family.
#[inline]
fn with<T>(
    transaction: Handle,
    family: Handle,
    work: impl FnOnce(&Txn, &Family) -> Result<T>,
) -> Result<T> {
    let txn = TRANSACTIONS.lock(transaction.raw())?;
    let family = self::family(family)?;
    work(&txn, &family)
}

fn lock_mode(mode: c_int) -> Result<LockMode> {
    match mode {
        1 => Ok(LockMode::Shared),
        2 => Ok(LockMode::Exclusive),
        3 => Ok(LockMode::Gap),
        4 => Ok(LockMode::Insert),
        _ => Err(Error::invalid(format!("{mode} is not a perigee_lock_mode"))),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_transaction_get(
    transaction: Handle,
    family: Handle,
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
        let key = key.key(key_size)?;
        let found = with(transaction, family, |txn, family| txn.get_pinned(family, key))?;
        set_copy(found.as_ref(), &value, &size)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_transaction_get_pinned(
    transaction: Handle,
    family: Handle,
    key: Bytes,
    key_size: usize,
    pinned: Out<Pinned>,
    error: ErrorOut,
) -> c_int {
    pinned.set(Pinned::NONE);
    call(error, || {
        pinned.require()?;
        let key = key.key(key_size)?;
        let found = with(transaction, family, |txn, family| txn.get_pinned(family, key))?;
        if let Some(value) = found {
            pinned.set(Pinned::new(value));
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_transaction_get_many(
    transaction: Handle,
    family: Handle,
    keys: Struct<ByteSlice>,
    count: usize,
    mut values: Out<Pinned>,
    error: ErrorOut,
) -> c_int {
    let values = values.array(count, Pinned::NONE);
    call(error, || {
        let keys = key_slices(keys.array(count)?)?;
        let found = with(transaction, family, |txn, family| Ok(txn.multi_get(family, keys)))?;
        set_pinned(values?, found)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_transaction_get_for_update(
    transaction: Handle,
    family: Handle,
    key: Bytes,
    key_size: usize,
    mode: c_int,
    value: Out<*mut c_void>,
    size: Out<usize>,
    error: ErrorOut,
) -> c_int {
    value.set(null_mut());
    size.set(0);
    call(error, || {
        value.require()?;
        let (key, mode) = (key.key(key_size)?, lock_mode(mode)?);
        let found = with(transaction, family, |txn, family| txn.get_for_update(family, key, mode))?;
        set_copy(found.as_ref(), &value, &size)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_transaction_contains(
    transaction: Handle,
    family: Handle,
    key: Bytes,
    key_size: usize,
    found: Out<c_int>,
    error: ErrorOut,
) -> c_int {
    found.set(0);
    call(error, || {
        found.require()?;
        let key = key.key(key_size)?;
        let exists = with(transaction, family, |txn, family| txn.contains(family, key))?;
        found.set(exists.into());
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_transaction_iterator(
    transaction: Handle,
    family: Handle,
    range: Struct<Range>,
    iterator: Out<Handle>,
    error: ErrorOut,
) -> c_int {
    iterator.set(Handle::NULL);
    call(error, || {
        iterator.require()?;
        let cursor = with(transaction, family, |txn, family| {
            txn.cursor_within(family, range.bounds(family)?)
        })?;
        iterator.set(iterator::insert(cursor)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_transaction_put(
    transaction: Handle,
    family: Handle,
    key: Bytes,
    key_size: usize,
    value: Bytes,
    value_size: usize,
    error: ErrorOut,
) -> c_int {
    call(error, || {
        let (key, value) = (key.key(key_size)?, value.value(value_size)?);
        with(transaction, family, |txn, family| txn.put(family, key, value))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_transaction_put_until(
    transaction: Handle,
    family: Handle,
    key: Bytes,
    key_size: usize,
    value: Bytes,
    value_size: usize,
    expires_ms: u64,
    error: ErrorOut,
) -> c_int {
    call(error, || {
        let (key, value) = (key.key(key_size)?, value.value(value_size)?);
        with(transaction, family, |txn, family| txn.put_until(family, key, value, expires_ms))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_transaction_delete(
    transaction: Handle,
    family: Handle,
    key: Bytes,
    key_size: usize,
    error: ErrorOut,
) -> c_int {
    call(error, || {
        let key = key.key(key_size)?;
        with(transaction, family, |txn, family| txn.delete(family, key))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_transaction_single_delete(
    transaction: Handle,
    family: Handle,
    key: Bytes,
    key_size: usize,
    error: ErrorOut,
) -> c_int {
    call(error, || {
        let key = key.key(key_size)?;
        with(transaction, family, |txn, family| txn.single_delete(family, key))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_transaction_delete_range(
    transaction: Handle,
    family: Handle,
    range: Struct<Range>,
    error: ErrorOut,
) -> c_int {
    call(error, || {
        let range = range.key_range()?;
        with(transaction, family, |txn, family| match range {
            KeyRange::Prefix(prefix) => txn.delete_prefix(family, prefix),
            KeyRange::Bounds(lower, upper) => txn.delete_range::<&[u8]>(family, (lower, upper)),
        })
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_transaction_merge(
    transaction: Handle,
    family: Handle,
    key: Bytes,
    key_size: usize,
    operand: Bytes,
    operand_size: usize,
    error: ErrorOut,
) -> c_int {
    call(error, || {
        let (key, operand) = (key.key(key_size)?, operand.value(operand_size)?);
        with(transaction, family, |txn, family| txn.merge(family, key, operand))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_transaction_lock(
    transaction: Handle,
    family: Handle,
    key: Bytes,
    key_size: usize,
    mode: c_int,
    error: ErrorOut,
) -> c_int {
    call(error, || {
        let (key, mode) = (key.key(key_size)?, lock_mode(mode)?);
        with(transaction, family, |txn, family| txn.lock(family, key, mode))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_transaction_lock_range(
    transaction: Handle,
    family: Handle,
    range: Struct<Range>,
    mode: c_int,
    error: ErrorOut,
) -> c_int {
    call(error, || {
        let mode = lock_mode(mode)?;
        with(transaction, family, |txn, family| txn.lock_range(family, range.bounds(family)?, mode))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_transaction_unlock(
    transaction: Handle,
    family: Handle,
    key: Bytes,
    key_size: usize,
    unlocked: Out<c_int>,
    error: ErrorOut,
) -> c_int {
    unlocked.set(0);
    call(error, || {
        let key = key.key(key_size)?;
        let released = with(transaction, family, |txn, family| txn.unlock(family, key))?;
        unlocked.set(released.into());
        Ok(())
    })
}
