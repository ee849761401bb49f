//! Bulk loads.

use crate::boundary::{Bytes, ErrorOut, Handle, Out, call, used_up};
use crate::database::family;
use perigee::Result;
use perigee::load::BulkLoad;
use perigee_c_boundary::handle::HandleTable;
use std::ffi::c_int;
use std::sync::{Mutex, PoisonError};

/// Bulk loads that were begun and not released; `None`: finished. The lock only makes the type
/// shareable: the handle's lock already excludes other threads.
static LOADS: HandleTable<Mutex<Option<BulkLoad>>> = HandleTable::new(12);

/// Runs a call on a load that was not finished.
fn with_load(load: Handle, work: impl FnOnce(&mut BulkLoad) -> Result<()>) -> Result<()> {
    let mut load = LOADS.lock(load.raw())?;
    let load = load.get_mut().unwrap_or_else(PoisonError::into_inner);
    work(load.as_mut().ok_or_else(|| used_up("load"))?)
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_load_begin(family: Handle, load: Out<Handle>, error: ErrorOut) -> c_int {
    load.set(Handle::NULL);
    call(error, || {
        load.require()?;
        let begun = self::family(family)?.bulk_load()?;
        load.set(Handle::insert(&LOADS, Mutex::new(Some(begun)))?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_load_put(
    load: Handle,
    key: Bytes,
    key_size: usize,
    value: Bytes,
    value_size: usize,
    error: ErrorOut,
) -> c_int {
    call(error, || {
        let (key, value) = (key.key(key_size)?, value.value(value_size)?);
        with_load(load, |load| load.put(key, value))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_load_finish(load: Handle, entries: Out<u64>, error: ErrorOut) -> c_int {
    entries.set(0);
    call(error, || {
        with_load(load, |load| {
            entries.set(load.finish()?.entries);
            Ok(())
        })?;
        *LOADS.lock(load.raw())?.get_mut().unwrap_or_else(PoisonError::into_inner) = None;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_load_release(load: Handle) {
    load.release(&LOADS);
}
