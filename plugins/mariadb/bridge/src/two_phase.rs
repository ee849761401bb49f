//! Two-phase commit.

use crate::engine::{Durability, Engine, Shared, with_engine};
use crate::ffi::{PreparedFn, Slice};
use crate::status::Status;
use crate::txn::{Trx, with_trx};
use perigee::{Error, ErrorKind};
use std::ffi::c_void;
use std::sync::Arc;

/// Maps the error of a call with an identifier, whose errors are not about tables.
#[cold]
fn gid_error(e: Error) -> Status {
    match e.kind() {
        ErrorKind::NotFound => Status::NOT_FOUND.with_error(e),
        ErrorKind::AlreadyExists => Status::INVALID.with_error(e),
        _ => e.into(),
    }
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_trx_prepare(trx: *mut Trx, gid: Slice) -> Status {
    let work = |trx: &Trx| {
        if !trx.has_written.get() || trx.txn.is_empty() {
            return Err(Status::INVALID
                .with_message("a transaction without writes cannot be prepared: commit it"));
        }
        // SAFETY: guaranteed by the caller.
        trx.txn.prepare(unsafe { gid.bytes() }).map_err(gid_error)?;
        // The locks stay with the prepared transaction: the next one is another lock owner.
        trx.renew();
        Ok(())
    };
    // SAFETY: guaranteed by the caller.
    unsafe { with_trx(trx, work) }
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_commit_prepared(
    engine: *mut Engine,
    gid: Slice,
    durability: Durability,
) -> Status {
    let work = |shared: &Arc<Shared>| {
        // SAFETY: guaranteed by the caller.
        let gid = unsafe { gid.bytes() };
        let decided = shared.db.two_phase().commit_with(gid, durability.to_engine());
        decided.map_err(gid_error)?;
        Ok(())
    };
    // SAFETY: guaranteed by the caller.
    unsafe { with_engine(engine, work) }
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_rollback_prepared(engine: *mut Engine, gid: Slice) -> Status {
    let work = |shared: &Arc<Shared>| {
        // SAFETY: guaranteed by the caller.
        shared.db.two_phase().rollback(unsafe { gid.bytes() }).map_err(gid_error)
    };
    // SAFETY: guaranteed by the caller.
    unsafe { with_engine(engine, work) }
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_prepared_list(
    engine: *mut Engine,
    report: PreparedFn,
    arg: *mut c_void,
) -> Status {
    let work = |shared: &Arc<Shared>| {
        for prepared in shared.db.two_phase().prepared()? {
            // SAFETY: guaranteed by the caller; the identifier is valid during the call.
            unsafe { report(arg, prepared.gid.as_ptr(), prepared.gid.len()) };
        }
        Ok(())
    };
    // SAFETY: guaranteed by the caller.
    unsafe { with_engine(engine, work) }
}
