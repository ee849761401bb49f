//! Transaction features beyond TidesDB's: options, locks, range deletes, merges, two-phase commit.

use crate::abi::Handle;
use crate::code::{INVALID_ARGS, Result};
use crate::ffi::{bytes, call, key, out_param, range, struct_param};
use crate::state::database;
use crate::txn::{TXNS, Txn, get};
use crate::{alloc, config};
use perigee::{LockMode, TxnOptions, limits};
use std::ffi::c_int;
use std::ptr::null_mut;
use std::time::Duration;

/// Options of a transaction. Zero in all fields except `size` is equivalent to
/// `tidesdb_txn_begin_with_isolation(db, 0, ...)`.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs)]
pub struct TransactionOptions {
    pub size: usize,
    pub isolation: c_int,
    pub read_only: c_int,
    pub pessimistic: c_int,
    pub reserved: c_int,
    pub lock_timeout_us: u64,
    pub timeout_us: u64,
    pub max_bytes: u64,
    pub spill_bytes: u64,
}

const DEFAULT_OPTIONS: TransactionOptions = TransactionOptions {
    size: size_of::<TransactionOptions>(),
    isolation: 3,
    read_only: 0,
    pessimistic: 0,
    reserved: 0,
    lock_timeout_us: 0,
    timeout_us: 0,
    max_bytes: 0,
    spill_bytes: 0,
};

/// Returns the default options: snapshot isolation.
#[unsafe(no_mangle)]
pub extern "C" fn perigee_txn_default_options() -> TransactionOptions {
    DEFAULT_OPTIONS
}

fn txn_options(o: &TransactionOptions) -> Result<TxnOptions> {
    if o.size != size_of::<TransactionOptions>() || o.reserved != 0 {
        return Err(
            INVALID_ARGS.with_message("initialize the options with perigee_txn_default_options()")
        );
    }
    let mut all = TxnOptions::new().read_only(o.read_only != 0).pessimistic(o.pessimistic != 0);
    if o.lock_timeout_us > 0 {
        all = all.lock_timeout(Duration::from_micros(o.lock_timeout_us));
    }
    if o.timeout_us > 0 {
        all = all.timeout(Duration::from_micros(o.timeout_us));
    }
    if o.max_bytes > 0 {
        all = all.max_bytes(o.max_bytes);
    }
    Ok(if o.spill_bytes > 0 { all.spill_bytes(o.spill_bytes) } else { all })
}

/// Begins a transaction with options.
///
/// # Safety
/// `options` is null or points to a valid structure, `txn` null or valid for writing a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perigee_txn_begin(
    db: Handle,
    options_: *const TransactionOptions,
    txn: *mut Handle,
) -> c_int {
    call(|| {
        let db = database(db)?;
        // SAFETY: guaranteed by the caller.
        let (o, place) = unsafe { (struct_param(options_)?, out_param(txn)?) };
        *place = null_mut();
        let txn = Txn::begin(&db, config::isolation_from_c(o.isolation)?, txn_options(o)?)?;
        *place = TXNS.insert(txn)? as Handle;
        Ok(())
    })
}

/// Commits, and returns the sequence number of the last operation.
///
/// # Safety
/// `seq` is null or valid for writing the result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perigee_txn_commit(txn: Handle, seq: *mut u64) -> c_int {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let place = unsafe { out_param(seq) }?;
        *place = TXNS.lock(txn as usize)?.commit()?;
        Ok(())
    })
}

fn lock_mode(mode: c_int) -> Result<LockMode> {
    Ok(match mode {
        1 => LockMode::Shared,
        2 => LockMode::Exclusive,
        3 => LockMode::Gap,
        4 => LockMode::Insert,
        _ => {
            return Err(INVALID_ARGS.with_message(
                "the lock mode must be 1 (shared), 2 (exclusive), 3 (gap) or 4 (insert)",
            ));
        }
    })
}

/// Locks a key.
///
/// # Safety
/// The key is null or valid for the given size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perigee_txn_lock(
    txn: Handle,
    cf: Handle,
    key_: *const u8,
    key_size: usize,
    lock: c_int,
) -> c_int {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let (key, mode) = (unsafe { key(key_, key_size) }?, lock_mode(lock)?);
        TXNS.lock(txn as usize)?.read(cf, |t, f| t.lock(f, key, mode))
    })
}

/// Locks every key of a range, including keys that do not exist.
///
/// # Safety
/// The keys are null or valid for the given sizes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perigee_txn_lock_range(
    txn: Handle,
    cf: Handle,
    start: *const u8,
    start_size: usize,
    end: *const u8,
    end_size: usize,
    lock: c_int,
) -> c_int {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let (range, mode) = (unsafe { range(start, start_size, end, end_size) }?, lock_mode(lock)?);
        TXNS.lock(txn as usize)?.read(cf, |t, f| t.lock_range::<&[u8]>(f, range, mode))
    })
}

/// Locks a key, then reads it; the value is to be freed by the caller.
///
/// # Safety
/// The key is null or valid for the given size; the others are null or valid for writing the
/// results.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perigee_txn_get_for_update(
    txn: Handle,
    cf: Handle,
    key: *const u8,
    key_size: usize,
    lock: c_int,
    value: *mut *mut u8,
    value_size: *mut usize,
) -> c_int {
    match lock_mode(lock) {
        Err(_) => call(|| lock_mode(lock).map(drop)),
        Ok(mode) => {
            // SAFETY: the caller's guarantees are passed on.
            unsafe {
                get(txn, cf, key, key_size, value, value_size, |t, f, key| {
                    t.get_for_update(f, key, mode)
                })
            }
        }
    }
}

/// Deletes every key of a range, in one operation.
///
/// # Safety
/// The keys are null or valid for the given sizes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perigee_txn_delete_range(
    txn: Handle,
    cf: Handle,
    start: *const u8,
    start_size: usize,
    end: *const u8,
    end_size: usize,
) -> c_int {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let range = unsafe { range(start, start_size, end, end_size) }?;
        TXNS.lock(txn as usize)?.write(cf, |t, f| t.delete_range::<&[u8]>(f, range))
    })
}

/// Deletes every key with a prefix, in one operation.
///
/// # Safety
/// The prefix is null or valid for the given size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perigee_txn_delete_prefix(
    txn: Handle,
    cf: Handle,
    prefix: *const u8,
    prefix_size: usize,
) -> c_int {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let prefix = unsafe { key(prefix, prefix_size) }?;
        TXNS.lock(txn as usize)?.write(cf, |t, f| t.delete_prefix(f, prefix))
    })
}

/// Merges an operand into the value of a key, with the column family's operator.
///
/// # Safety
/// Key and operand are null or valid for the given sizes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perigee_txn_merge(
    txn: Handle,
    cf: Handle,
    key_: *const u8,
    key_size: usize,
    operand: *const u8,
    operand_size: usize,
) -> c_int {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let (key, operand) = unsafe {
            (key(key_, key_size)?, bytes(operand, operand_size, limits::VALUE_BYTES_MAX)?)
        };
        TXNS.lock(txn as usize)?.write(cf, |t, f| t.merge(f, key, operand))
    })
}

/// Prepares a transaction: makes it durable under an identifier, without a decision.
///
/// # Safety
/// The identifier is null or valid for the given size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perigee_txn_prepare(
    txn: Handle,
    gid: *const u8,
    gid_size: usize,
) -> c_int {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let gid = unsafe { bytes(gid, gid_size, limits::GID_BYTES_MAX) }?;
        TXNS.lock(txn as usize)?.prepare(gid)
    })
}

/// Commits a prepared transaction; `seq` may be null.
///
/// # Safety
/// The identifier is null or valid for the given size; `seq` is null or valid for writing the
/// result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perigee_commit_prepared(
    db: Handle,
    gid: *const u8,
    gid_size: usize,
    seq: *mut u64,
) -> c_int {
    call(|| {
        let db = database(db)?;
        // SAFETY: guaranteed by the caller.
        let gid = unsafe { bytes(gid, gid_size, limits::GID_BYTES_MAX) }?;
        let done = db.engine()?.two_phase().commit(gid)?;
        // SAFETY: guaranteed by the caller.
        if let Some(place) = unsafe { seq.as_mut() } {
            *place = done;
        }
        Ok(())
    })
}

/// Rolls a prepared transaction back.
///
/// # Safety
/// The identifier is null or valid for the given size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perigee_rollback_prepared(
    db: Handle,
    gid: *const u8,
    gid_size: usize,
) -> c_int {
    call(|| {
        let db = database(db)?;
        // SAFETY: guaranteed by the caller.
        let gid = unsafe { bytes(gid, gid_size, limits::GID_BYTES_MAX) }?;
        Ok(db.engine()?.two_phase().rollback(gid)?)
    })
}

/// An undecided prepared transaction.
#[repr(C)]
#[allow(missing_docs)]
pub struct PreparedTransaction {
    pub gid: *const u8,
    pub gid_size: usize,
    pub operations: u64,
    pub bytes: u64,
    pub prepared_ms: u64,
}

/// Returns all undecided prepared transactions: an array in one allocation, to be freed by the
/// caller.
///
/// # Safety
/// `list` and `count` are null or valid for writing the results.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perigee_list_prepared(
    db: Handle,
    list: *mut *mut PreparedTransaction,
    count: *mut usize,
) -> c_int {
    call(|| {
        let db = database(db)?;
        // SAFETY: guaranteed by the caller.
        let (place, n) = unsafe { (out_param(list)?, out_param(count)?) };
        (*place, *n) = (null_mut(), 0);
        let all = db.engine()?.two_phase().prepared()?;
        if all.is_empty() {
            return Ok(());
        }
        let head = all.len() * size_of::<PreparedTransaction>();
        let block = alloc::allocate(head + all.iter().map(|p| p.gid.len()).sum::<usize>())?;
        let array = block.cast::<PreparedTransaction>();
        let mut gids = block.cast::<u8>().wrapping_add(head);
        for (i, p) in all.iter().enumerate() {
            // SAFETY: the block has space for each element, and behind them for each identifier.
            unsafe {
                std::ptr::copy_nonoverlapping(p.gid.as_ptr(), gids, p.gid.len());
                array.add(i).write(PreparedTransaction {
                    gid: gids,
                    gid_size: p.gid.len(),
                    operations: p.operations,
                    bytes: p.bytes,
                    prepared_ms: p.prepared_ms,
                });
            }
            gids = gids.wrapping_add(p.gid.len());
        }
        (*place, *n) = (array, all.len());
        Ok(())
    })
}
