//! Batches of writes that are committed atomically.

use crate::boundary::{Bytes, ErrorOut, Handle, Out, Struct, call, durability};
use crate::database::{database, family};
use crate::range::{KeyRange, Range};
use perigee::{Family, Result, WriteBatch, WriteOptions};
use perigee_c_boundary::handle::HandleTable;
use std::ffi::c_int;

static BATCHES: HandleTable<WriteBatch> = HandleTable::new(6);

/// Adds an operation to a batch.
fn add(
    batch: Handle,
    family: Handle,
    error: ErrorOut,
    add: impl FnOnce(&mut WriteBatch, &Family) -> Result<()>,
) -> c_int {
    call(error, || {
        let family = self::family(family)?;
        add(&mut *BATCHES.lock(batch.raw())?, &family)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_batch_new(batch: Out<Handle>, error: ErrorOut) -> c_int {
    batch.set(Handle::NULL);
    call(error, || {
        batch.require()?;
        batch.set(Handle::insert(&BATCHES, WriteBatch::new())?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_batch_put(
    batch: Handle,
    family: Handle,
    key: Bytes,
    key_size: usize,
    value: Bytes,
    value_size: usize,
    error: ErrorOut,
) -> c_int {
    add(batch, family, error, |b, f| b.put(f, key.key(key_size)?, value.value(value_size)?))
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_batch_put_until(
    batch: Handle,
    family: Handle,
    key: Bytes,
    key_size: usize,
    value: Bytes,
    value_size: usize,
    expires_ms: u64,
    error: ErrorOut,
) -> c_int {
    add(batch, family, error, |b, f| {
        b.put_until(f, key.key(key_size)?, value.value(value_size)?, expires_ms)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_batch_delete(
    batch: Handle,
    family: Handle,
    key: Bytes,
    key_size: usize,
    error: ErrorOut,
) -> c_int {
    add(batch, family, error, |b, f| b.delete(f, key.key(key_size)?))
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_batch_single_delete(
    batch: Handle,
    family: Handle,
    key: Bytes,
    key_size: usize,
    error: ErrorOut,
) -> c_int {
    add(batch, family, error, |b, f| b.single_delete(f, key.key(key_size)?))
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_batch_delete_range(
    batch: Handle,
    family: Handle,
    range: Struct<Range>,
    error: ErrorOut,
) -> c_int {
    add(batch, family, error, |b, f| match range.key_range()? {
        KeyRange::Prefix(prefix) => b.delete_prefix(f, prefix),
        KeyRange::Bounds(lower, upper) => b.delete_range::<&[u8]>(f, (lower, upper)),
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_batch_merge(
    batch: Handle,
    family: Handle,
    key: Bytes,
    key_size: usize,
    operand: Bytes,
    operand_size: usize,
    error: ErrorOut,
) -> c_int {
    add(batch, family, error, |b, f| b.merge(f, key.key(key_size)?, operand.value(operand_size)?))
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_batch_count(batch: Handle) -> usize {
    BATCHES.lock(batch.raw()).map_or(0, |batch| batch.len())
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_batch_copy(batch: Handle, copy: Out<Handle>, error: ErrorOut) -> c_int {
    copy.set(Handle::NULL);
    call(error, || {
        copy.require()?;
        let copied = BATCHES.lock(batch.raw())?.clone();
        copy.set(Handle::insert(&BATCHES, copied)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_batch_clear(batch: Handle, error: ErrorOut) -> c_int {
    call(error, || {
        BATCHES.lock(batch.raw())?.clear();
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_db_write(
    db: Handle,
    batch: Handle,
    durability: c_int,
    sequence: Out<u64>,
    error: ErrorOut,
) -> c_int {
    sequence.set(0);
    call(error, || {
        let db = database(db)?;
        let mut options = WriteOptions::new();
        options.durability = self::durability(durability)?;
        // The batch is not locked during the commit.
        let batch = std::mem::take(&mut *BATCHES.lock(batch.raw())?);
        sequence.set(db.write_with(batch, options)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_batch_release(batch: Handle) {
    batch.release(&BATCHES);
}
