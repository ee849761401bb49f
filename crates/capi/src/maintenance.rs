//! The calls that look after a family's files: flush, compact, purge, sync, estimates.

use crate::abi::Handle;
use crate::code::INVALID_ARGS;
use crate::ffi::{call, call_or, key, out_param, range};
use crate::state::{database, family};
use perigee::{RangeCost, RangeEstimate};
use std::ffi::c_int;

/// Merges everything of a family.
#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_compact(cf: Handle) -> c_int {
    call(|| Ok(family(cf)?.inner.compact()?))
}

/// Merges the tables that overlap a range, which ends before `end_key`; a null key is no bound.
///
/// # Safety
/// The keys are as long as is said, or null.
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
            return Err(INVALID_ARGS.with_message("a bound is needed: tidesdb_compact takes all"));
        }
        // SAFETY: says the caller.
        let range = unsafe { range(start_key, start_key_size, end_key, end_key_size) }?;
        Ok(cf.inner.compact_range::<&[u8]>(range)?)
    })
}

/// Writes the memtable of a family into tables; returns when they are there.
#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_flush_memtable(cf: Handle) -> c_int {
    call(|| Ok(family(cf)?.inner.flush()?))
}

/// Flushes and merges everything of a family.
#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_purge_cf(cf: Handle) -> c_int {
    call(|| Ok(family(cf)?.inner.purge()?))
}

/// Flushes and merges everything.
#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_purge(db: Handle) -> c_int {
    call(|| Ok(database(db)?.engine()?.purge()?))
}

/// Merges stop, until the next open.
#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_cancel_background_work(db: Handle) -> c_int {
    call(|| Ok(database(db)?.engine()?.cancel_background_work()?))
}

/// Makes what was committed so far durable.
#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_sync_wal(cf: Handle) -> c_int {
    call(|| Ok(family(cf)?.database.engine()?.sync()?))
}

/// What a walk costs, for comparing with others: what is read and passed, in blocks, and a little
/// for each place to look into. It grows with the entries of the range, in memory too, so that it
/// serves as the share of a range in a whole.
fn scan_cost(cost: &RangeCost, held: &RangeEstimate) -> f64 {
    let passed = (cost.bytes + held.memory_bytes) as f64 / 4096.0;
    passed + cost.blocks as f64 + (cost.memtables + cost.runs) as f64 / 64.0
}

/// About what a walk between two keys costs; nothing if nothing is there.
///
/// # Safety
/// The keys are as long as is said, or null; `cost` is null or a place for the answer.
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
        // SAFETY: says the caller.
        let (a, b, place) =
            unsafe { (key(key_a, key_a_size)?, key(key_b, key_b_size)?, out_param(cost)?) };
        let (low, high) = if cf.inner.options().order.cmp(a, b).is_le() { (a, b) } else { (b, a) };
        *place =
            scan_cost(&cf.inner.range_cost(low..=high)?, &cf.inner.estimate_range(low..=high)?);
        Ok(())
    })
}

/// About how many keys a family has.
///
/// # Safety
/// `out_estimate` is null or a place for the answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_cf_estimate_cardinality(
    cf: Handle,
    out_estimate: *mut u64,
) -> c_int {
    call(|| {
        let cf = family(cf)?;
        // SAFETY: says the caller.
        let place = unsafe { out_param(out_estimate) }?;
        *place = cf.inner.cardinality()?.keys;
        Ok(())
    })
}

/// Whether a flush of the family runs or waits.
#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_is_flushing(cf: Handle) -> c_int {
    call_or(0, || Ok(c_int::from(family(cf)?.inner.is_flushing())))
}

/// Whether a compaction of the family runs or waits.
#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_is_compacting(cf: Handle) -> c_int {
    call_or(0, || Ok(c_int::from(family(cf)?.inner.is_compacting())))
}
