//! Two-phase commit: prepared transactions.

use crate::boundary::{Bytes, ErrorOut, Handle, Out, call};
use crate::database::database;
use crate::memory::allocate;
use crate::transaction::TRANSACTIONS;
use perigee::limits::GID_BYTES_MAX;
use std::ffi::{c_int, c_void};
use std::ptr::{copy_nonoverlapping, null_mut};

/// `perigee_prepared`.
#[repr(C)]
pub struct Prepared {
    gid: *const c_void,
    gid_size: usize,
    operations: u64,
    bytes: u64,
    prepared_ms: u64,
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_transaction_prepare(
    transaction: Handle,
    gid: Bytes,
    gid_size: usize,
    error: ErrorOut,
) -> c_int {
    call(error, || TRANSACTIONS.lock(transaction.raw())?.prepare(gid.get(gid_size, GID_BYTES_MAX)?))
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_db_commit_prepared(
    db: Handle,
    gid: Bytes,
    gid_size: usize,
    sequence: Out<u64>,
    error: ErrorOut,
) -> c_int {
    sequence.set(0);
    call(error, || {
        let gid = gid.get(gid_size, GID_BYTES_MAX)?;
        sequence.set(database(db)?.two_phase().commit(gid)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_db_rollback_prepared(
    db: Handle,
    gid: Bytes,
    gid_size: usize,
    error: ErrorOut,
) -> c_int {
    call(error, || database(db)?.two_phase().rollback(gid.get(gid_size, GID_BYTES_MAX)?))
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_db_list_prepared(
    db: Handle,
    list: Out<*mut Prepared>,
    count: Out<usize>,
    error: ErrorOut,
) -> c_int {
    list.set(null_mut());
    count.set(0);
    call(error, || {
        list.require()?;
        count.require()?;
        let all = database(db)?.two_phase().prepared()?;
        if all.is_empty() {
            return Ok(());
        }
        let head = all.len() * size_of::<Prepared>();
        let array = allocate(head + all.iter().map(|p| p.gid.len()).sum::<usize>())?;
        let array = array.cast::<Prepared>();
        let mut gid = array.cast::<u8>().wrapping_add(head);
        for (i, p) in all.iter().enumerate() {
            let prepared = Prepared {
                gid: gid.cast(),
                gid_size: p.gid.len(),
                operations: p.operations,
                bytes: p.bytes,
                prepared_ms: p.prepared_ms,
            };
            // SAFETY: the allocation has space for each element, and behind them for each gid.
            unsafe {
                array.add(i).write(prepared);
                copy_nonoverlapping(p.gid.as_ptr(), gid, p.gid.len());
            }
            gid = gid.wrapping_add(p.gid.len());
        }
        list.set(array);
        count.set(all.len());
        Ok(())
    })
}
