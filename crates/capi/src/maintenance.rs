//! Calls that maintain the files of a column family: flush, compact, purge, sync, estimates.

use crate::abi::Handle;
use crate::code::INVALID_ARGS;
use crate::ffi::{call, call_or, key, out_param, range};
use crate::state::{database, family};
use perigee::stats::{RangeCost, RangeEstimate};
use std::ffi::c_int;

/// Compacts a column family completely.
#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_compact(cf: Handle) -> c_int {
    call(|| Ok(family(cf)?.inner.compact()?))
}

/// Compacts the tables that overlap a range, which ends before `end_key`; a null key means
/// unbounded.
///
/// # Safety
/// The keys are null or valid for the given sizes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_compact_range(
    cf: Handle,
    start_key: *const u8,
    start_key_size: usize,
    end_key: *const u8,
    end_key_size: usize,
) -> c_int {
    call(|| {
        let cf = family(cf)?;
        if start_key.is_null() && end_key.is_null() {
            return Err(INVALID_ARGS
                .with_message("at least one bound is required: use tidesdb_compact for all keys"));
        }
        // SAFETY: guaranteed by the caller.
        let range = unsafe { range(start_key, start_key_size, end_key, end_key_size) }?;
        Ok(cf.inner.compact_range::<&[u8]>(range)?)
    })
}

/// Flushes the memtable of a column family and waits for the tables.
#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_flush_memtable(cf: Handle) -> c_int {
    call(|| Ok(family(cf)?.inner.flush()?))
}

/// Flushes and compacts a column family completely.
#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_purge_cf(cf: Handle) -> c_int {
    call(|| Ok(family(cf)?.inner.purge()?))
}

/// Flushes and compacts all column families.
#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_purge(db: Handle) -> c_int {
    call(|| Ok(database(db)?.engine()?.admin().purge()?))
}

/// Cancels compactions, and starts none until the next open.
#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_cancel_background_work(db: Handle) -> c_int {
    call(|| Ok(database(db)?.engine()?.admin().cancel_background_work()?))
}

/// Makes all commits so far durable.
#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_sync_wal(cf: Handle) -> c_int {
    call(|| Ok(family(cf)?.database.engine()?.sync()?))
}

/// Relative cost of a scan: the blocks read and skipped, and a small amount per memtable and run.
/// It grows with the entries of the range, including those in memory, so that it can be used as the
/// fraction of a larger range.
fn scan_cost(cost: &RangeCost, held: &RangeEstimate) -> f64 {
    let scanned = (cost.bytes + held.memory_bytes) as f64 / 4096.0;
    scanned + cost.blocks as f64 + (cost.memtables + cost.runs) as f64 / 64.0
}

/// Estimates the cost of a scan between two keys; 0 for an empty range.
///
/// # Safety
/// The keys are null or valid for the given sizes; `cost` is null or valid for writing the result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_range_cost(
    cf: Handle,
    key_a: *const u8,
    key_a_size: usize,
    key_b: *const u8,
    key_b_size: usize,
    cost: *mut f64,
) -> c_int {
    call(|| {
        let cf = family(cf)?;
        // SAFETY: guaranteed by the caller.
        let (a, b, place) =
            unsafe { (key(key_a, key_a_size)?, key(key_b, key_b_size)?, out_param(cost)?) };
        let (low, high) =
            if cf.inner.options().comparator.cmp(a, b).is_le() { (a, b) } else { (b, a) };
        *place =
            scan_cost(&cf.inner.range_cost(low..=high)?, &cf.inner.estimate_range(low..=high)?);
        Ok(())
    })
}

/// Estimates the number of keys in a column family.
///
/// # Safety
/// `out_estimate` is null or valid for writing the result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_cf_estimate_cardinality(
    cf: Handle,
    out_estimate: *mut u64,
) -> c_int {
    call(|| {
        let cf = family(cf)?;
        // SAFETY: guaranteed by the caller.
        let place = unsafe { out_param(out_estimate) }?;
        *place = cf.inner.cardinality()?.keys;
        Ok(())
    })
}

/// Returns 1 if a flush of the column family is running or pending.
#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_is_flushing(cf: Handle) -> c_int {
    call_or(0, || Ok(c_int::from(family(cf)?.inner.is_flushing())))
}

/// Returns 1 if a compaction of the column family is running or pending.
#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_is_compacting(cf: Handle) -> c_int {
    call_or(0, || Ok(c_int::from(family(cf)?.inner.is_compacting())))
}
