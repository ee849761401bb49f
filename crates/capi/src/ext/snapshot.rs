//! Snapshots: the database as it was at a moment, now or in the past, for this process or under a
//! name over restarts.

use crate::abi::Handle;
use crate::alloc;
use crate::code::{INVALID_ARGS, Result, key_not_found};
use crate::ffi::{call, call_or, key, out_param, text};
use crate::handle::HandleTable;
use crate::iter::insert_cursor;
use crate::state::{Database, database, family};
use perigee::Snapshot;
use std::ffi::{c_char, c_int};
use std::ptr::null_mut;
use std::sync::Arc;

/// A snapshot and whose it is.
pub struct OwnedSnapshot(Arc<Database>, Snapshot);

static SNAPSHOTS: HandleTable<OwnedSnapshot> = HandleTable::new(6);

/// Gives a snapshot a handle.
///
/// # Safety
/// `place` is null or may be written to.
unsafe fn insert_snapshot(
    db: Handle,
    place: *mut Handle,
    take: impl FnOnce(&perigee::Db) -> Result<Snapshot>,
) -> c_int {
    call(|| {
        let db = database(db)?;
        // SAFETY: the caller's caller says that it is null or a place.
        let place = unsafe { out_param(place) }?;
        *place = null_mut();
        let taken = OwnedSnapshot(Arc::clone(&db), take(db.engine()?)?);
        *place = SNAPSHOTS.insert(taken)? as Handle;
        Ok(())
    })
}

/// The database as it is now.
///
/// # Safety
/// `snapshot` is null or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perigee_snapshot_new(db: Handle, snapshot: *mut Handle) -> c_int {
    // SAFETY: passed on.
    unsafe { insert_snapshot(db, snapshot, |db| Ok(db.snapshot()?)) }
}

/// The database as it was at a number.
///
/// # Safety
/// `snapshot` is null or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perigee_snapshot_at(db: Handle, seq: u64, snapshot: *mut Handle) -> c_int {
    // SAFETY: passed on.
    unsafe { insert_snapshot(db, snapshot, |db| Ok(db.snapshot_at(seq)?)) }
}

/// The database as it was when the snapshot of that name was made.
///
/// # Safety
/// `name` is null or text, `snapshot` null or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perigee_snapshot_open(
    db: Handle,
    name: *const c_char,
    snapshot: *mut Handle,
) -> c_int {
    // SAFETY: passed on.
    unsafe { insert_snapshot(db, snapshot, |db| Ok(db.named_snapshot(text(name)?)?)) }
}

/// Makes a snapshot with a name, which stays until it is dropped; `seq` may be null.
///
/// # Safety
/// `name` is null or text, `seq` null or a place for the answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perigee_snapshot_create(
    db: Handle,
    name: *const c_char,
    seq: *mut u64,
) -> c_int {
    call(|| {
        let db = database(db)?;
        // SAFETY: says the caller.
        let (made, place) = unsafe { (db.engine()?.create_snapshot(text(name)?)?, seq.as_mut()) };
        if let Some(place) = place {
            *place = made;
        }
        Ok(())
    })
}

/// Drops a snapshot with a name.
///
/// # Safety
/// `name` is null or text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perigee_snapshot_drop(db: Handle, name: *const c_char) -> c_int {
    call(|| {
        let db = database(db)?;
        // SAFETY: says the caller.
        Ok(db.engine()?.drop_snapshot(unsafe { text(name) }?)?)
    })
}

/// The number of the last operation that a snapshot sees; 0 for a bad handle.
#[unsafe(no_mangle)]
pub extern "C" fn perigee_snapshot_seq(snapshot: Handle) -> u64 {
    call_or(0, || Ok(SNAPSHOTS.pin(snapshot as usize)?.1.sequence()))
}

/// The value of a key in a snapshot, to be given back.
///
/// # Safety
/// The key is as long as is said, or null; the others are null or places for answers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perigee_snapshot_get(
    snapshot: Handle,
    cf: Handle,
    key_: *const u8,
    key_size: usize,
    value: *mut *mut u8,
    value_size: *mut usize,
) -> c_int {
    call(|| {
        // SAFETY: says the caller.
        let (key, place, size) =
            unsafe { (key(key_, key_size)?, out_param(value)?, out_param(value_size)?) };
        let (snapshot, cf) = (SNAPSHOTS.pin(snapshot as usize)?, family(cf)?);
        check_same_database(&snapshot, &cf.database)?;
        let found = snapshot.1.get_pinned(&cf.inner, key)?.ok_or_else(key_not_found)?;
        *place = alloc::copy_bytes(&found)?;
        *size = found.len();
        Ok(())
    })
}

/// An iterator over a family in a snapshot; it is moved, read and freed like every other.
///
/// # Safety
/// `iter` is null or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perigee_snapshot_iter(
    snapshot: Handle,
    cf: Handle,
    iter: *mut Handle,
) -> c_int {
    call(|| {
        // SAFETY: says the caller.
        let place = unsafe { out_param(iter) }?;
        *place = null_mut();
        let (snapshot, cf) = (SNAPSHOTS.pin(snapshot as usize)?, family(cf)?);
        check_same_database(&snapshot, &cf.database)?;
        *place = insert_cursor(snapshot.1.cursor(&cf.inner)?)?;
        Ok(())
    })
}

fn check_same_database(snapshot: &OwnedSnapshot, database: &Arc<Database>) -> Result<()> {
    if Arc::ptr_eq(&snapshot.0, database) {
        return Ok(());
    }
    Err(INVALID_ARGS.with_message("the column family is of another database than the snapshot"))
}

/// Frees a snapshot; what it kept alive may go.
#[unsafe(no_mangle)]
pub extern "C" fn perigee_snapshot_free(snapshot: Handle) {
    call(|| SNAPSHOTS.remove(snapshot as usize).map(drop));
}
