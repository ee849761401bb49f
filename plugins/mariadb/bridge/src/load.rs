//! Bulk loads.

use crate::engine::Shared;
use crate::ffi::{self, Slice};
use crate::status::{Status, write_error};
use crate::table::{NEVER, Table, with_table};
use perigee::load::BulkLoad;
use std::sync::Arc;

/// A bulk load into one table, `pgb_load` in C.
#[derive(Debug)]
pub struct Load {
    shared: Arc<Shared>,
    load: BulkLoad,
    /// When entries expire that are put without an expiry time, except for metadata; `None`: never.
    default_expiry_ms: Option<u64>,
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_load_begin(table: *mut Table, out: *mut *mut Load) -> Status {
    let work = |table: &Table| {
        let shared = Arc::clone(&table.shared);
        let now_ms = shared.db.admin().clock().now_ms;
        let ttl_ms = table.ttl_of(b"\x01").map(|ttl| ttl.as_secs().saturating_mul(1000));
        let default_expiry_ms = ttl_ms.map(|ttl| now_ms.saturating_add(ttl));
        let load = Box::new(Load { load: table.family.bulk_load()?, shared, default_expiry_ms });
        // SAFETY: guaranteed by the caller.
        unsafe { ffi::store(out, Box::into_raw(load)) }
    };
    // SAFETY: guaranteed by the caller.
    unsafe { with_table(table, work) }
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_load_put(
    load: *mut Load,
    key: Slice,
    value: Slice,
    expires_at_ms: u64,
) -> Status {
    // SAFETY: guaranteed by the caller.
    let Some(Load { shared, load, default_expiry_ms }) = (unsafe { load.as_mut() }) else {
        return Status::INVALID.with_message("the bulk load is null");
    };
    ffi::call(shared, || {
        // SAFETY: guaranteed by the caller.
        let (key, value) = unsafe { (key.bytes(), value.bytes()) };
        let expiry = match expires_at_ms {
            0 => default_expiry_ms.filter(|_| key.first() != Some(&0)),
            NEVER => None,
            at => Some(at),
        };
        let put = match expiry {
            None => load.put(key, value),
            Some(at) => load.put_until(key, value, at),
        };
        put.map_err(|e| write_error(e, key.len(), value.len()))
    })
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_load_finish(load: *mut Load) -> Status {
    // SAFETY: guaranteed by the caller.
    let Some(Load { shared, load: bulk, .. }) = (unsafe { load.as_mut() }) else {
        return Status::INVALID.with_message("the bulk load is null");
    };
    let status = ffi::call(shared, || {
        bulk.finish()?;
        Ok(())
    });
    // SAFETY: came from `pgb_load_begin`, and is not used again.
    unsafe { ffi::release(load) };
    status
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_load_abort(load: *mut Load) {
    // SAFETY: guaranteed by the caller.
    unsafe { ffi::release(load) }
}
