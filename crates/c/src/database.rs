//! Databases and column families: open, close, create, drop.

use crate::boundary::{ErrorOut, Handle, Out, Text, call};
use crate::memory::{copy_names, return_text};
use crate::options::{OPTIONS, OptionSet, value_of, with_value};
use perigee::{Db, Family, Result};
use perigee_c_boundary::handle::{HandleTable, PinnedValue};
use std::ffi::{c_char, c_int};
use std::ptr::null_mut;

/// Open databases.
pub static DATABASES: HandleTable<Db> = HandleTable::new(1);
/// Column families.
pub static FAMILIES: HandleTable<Family> = HandleTable::new(2);

/// Returns the database of a handle.
#[inline]
pub fn database(handle: Handle) -> Result<PinnedValue<'static, Db>> {
    DATABASES.pin(handle.raw())
}

/// Returns the column family of a handle.
#[inline]
pub fn family(handle: Handle) -> Result<PinnedValue<'static, Family>> {
    FAMILIES.pin(handle.raw())
}

fn option_set(options: Handle) -> Result<OptionSet> {
    if options.is_null() {
        Ok(OptionSet::default())
    } else {
        Ok(OPTIONS.pin(options.raw())?.clone())
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_db_open(
    path: Text,
    options: Handle,
    db: Out<Handle>,
    error: ErrorOut,
) -> c_int {
    db.set(Handle::NULL);
    call(error, || {
        db.require()?;
        let opened = Db::open(path.get()?, option_set(options)?.to_options()?)?;
        db.set(Handle::insert(&DATABASES, opened)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_db_close(db: Handle, error: ErrorOut) -> c_int {
    call(error, || {
        if db.is_null() {
            return Ok(());
        }
        // Closed before the handle is removed, so that calls in progress end.
        let closed = database(db)?.close();
        DATABASES.remove(db.raw())?;
        closed
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_db_sync(db: Handle, error: ErrorOut) -> c_int {
    call(error, || database(db)?.sync())
}

fn return_family(
    place: &Out<Handle>,
    error: ErrorOut,
    get: impl FnOnce() -> Result<Family>,
) -> c_int {
    place.set(Handle::NULL);
    call(error, || {
        place.require()?;
        place.set(Handle::insert(&FAMILIES, get()?)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_db_default_family(
    db: Handle,
    family: Out<Handle>,
    error: ErrorOut,
) -> c_int {
    return_family(&family, error, || Ok(database(db)?.default_family()))
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_db_family(
    db: Handle,
    name: Text,
    family: Out<Handle>,
    error: ErrorOut,
) -> c_int {
    return_family(&family, error, || database(db)?.family(name.get()?))
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_db_create_family(
    db: Handle,
    name: Text,
    options: Handle,
    family: Out<Handle>,
    error: ErrorOut,
) -> c_int {
    return_family(&family, error, || {
        let name = name.get()?;
        database(db)?.create_family(name, option_set(options)?.family_options(name)?)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_db_family_or_create(
    db: Handle,
    name: Text,
    options: Handle,
    family: Out<Handle>,
    error: ErrorOut,
) -> c_int {
    return_family(&family, error, || {
        let name = name.get()?;
        database(db)?.family_or_create(name, option_set(options)?.family_options(name)?)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_db_drop_family(db: Handle, name: Text, error: ErrorOut) -> c_int {
    call(error, || database(db)?.drop_family(name.get()?))
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_db_rename_family(
    db: Handle,
    name: Text,
    new_name: Text,
    error: ErrorOut,
) -> c_int {
    call(error, || database(db)?.admin().rename_family(name.get()?, new_name.get()?))
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_db_clear_family(db: Handle, name: Text, error: ErrorOut) -> c_int {
    call(error, || database(db)?.admin().clear_family(name.get()?))
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_db_family_names(
    db: Handle,
    names: Out<*mut *mut c_char>,
    count: Out<usize>,
    error: ErrorOut,
) -> c_int {
    names.set(null_mut());
    count.set(0);
    call(error, || {
        names.require()?;
        count.require()?;
        let all = database(db)?.families();
        names.set(copy_names(&all)?);
        count.set(all.len());
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_family_name(
    family: Handle,
    name: Out<*mut c_char>,
    error: ErrorOut,
) -> c_int {
    return_text(&name, error, || Ok(self::family(family)?.name()))
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_family_option(
    family: Handle,
    name: Text,
    value: Out<*mut c_char>,
    error: ErrorOut,
) -> c_int {
    return_text(&value, error, || value_of(&self::family(family)?.options(), name.get()?))
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_family_set_option(
    family: Handle,
    name: Text,
    value: Text,
    error: ErrorOut,
) -> c_int {
    call(error, || {
        let family = self::family(family)?;
        family.set_options(with_value(&family.options(), name.get()?, value.get()?)?)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_family_release(family: Handle) {
    family.release(&FAMILIES);
}
