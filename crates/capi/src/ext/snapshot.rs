//! Snapshots: the state of the database now or at a past sequence number, for this process or, with
//! a name, across restarts.

use crate::abi::Handle;
use crate::alloc;
use crate::code::{INVALID_ARGS, Result, key_not_found};
use crate::ffi::{call, call_or, key, out_param, text};
use crate::iter::insert_cursor;
use crate::state::{Database, database, family};
use perigee::Snapshot;
use perigee_c_boundary::handle::HandleTable;
use std::ffi::{c_char, c_int};
use std::ptr::null_mut;
use std::sync::Arc;

/// A snapshot and its database.
pub struct OwnedSnapshot(Arc<Database>, Snapshot);

static SNAPSHOTS: HandleTable<OwnedSnapshot> = HandleTable::new(6);

/// Inserts a snapshot and stores its handle in `out`.
///
/// # Safety
/// `out` is null or valid for writing a pointer.
unsafe fn insert_snapshot(
    db: Handle,
    out: *mut Handle,
    take: impl FnOnce(&perigee::Db) -> Result<Snapshot>,
) -> c_int {
    call(|| {
        let db = database(db)?;
        // SAFETY: the caller's caller guarantees that it is null or valid for writing.
        let out = unsafe { out_param(out) }?;
        *out = null_mut();
        let taken = OwnedSnapshot(Arc::clone(&db), take(db.engine()?)?);
        *out = SNAPSHOTS.insert(taken)? as Handle;
        Ok(())
    })
}

/// Opens a snapshot of the current state.
///
/// # Safety
/// `snapshot` is null or valid for writing a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perigee_snapshot_new(db: Handle, snapshot: *mut Handle) -> c_int {
    // SAFETY: the caller's guarantees are passed on.
    unsafe { insert_snapshot(db, snapshot, |db| Ok(db.snapshot()?)) }
}

/// Opens a snapshot at a past sequence number.
///
/// # Safety
/// `snapshot` is null or valid for writing a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perigee_snapshot_at(db: Handle, seq: u64, snapshot: *mut Handle) -> c_int {
    // SAFETY: the caller's guarantees are passed on.
    unsafe { insert_snapshot(db, snapshot, |db| Ok(db.history().snapshot_at(seq)?)) }
}

/// Opens the named snapshot.
///
/// # Safety
/// `name` is null or a NUL-terminated string, `snapshot` null or valid for writing a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perigee_snapshot_open(
    db: Handle,
    name: *const c_char,
    snapshot: *mut Handle,
) -> c_int {
    // SAFETY: the caller's guarantees are passed on.
    unsafe { insert_snapshot(db, snapshot, |db| Ok(db.history().named_snapshot(text(name)?)?)) }
}

/// Creates a named snapshot, which is kept until it is dropped; `seq` may be null.
///
/// # Safety
/// `name` is null or a NUL-terminated string, `seq` null or valid for writing the result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perigee_snapshot_create(
    db: Handle,
    name: *const c_char,
    seq: *mut u64,
) -> c_int {
    call(|| {
        let db = database(db)?;
        // SAFETY: guaranteed by the caller.
        let (made, out) =
            unsafe { (db.engine()?.history().create_snapshot(text(name)?)?, seq.as_mut()) };
        if let Some(out) = out {
            *out = made;
        }
        Ok(())
    })
}

/// Drops a named snapshot.
///
/// # Safety
/// `name` is null or a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perigee_snapshot_drop(db: Handle, name: *const c_char) -> c_int {
    call(|| {
        let db = database(db)?;
        // SAFETY: guaranteed by the caller.
        Ok(db.engine()?.history().drop_snapshot(unsafe { text(name) }?)?)
    })
}

/// Returns the sequence number of the last operation visible to a snapshot; 0 for an invalid
/// handle.
#[unsafe(no_mangle)]
pub extern "C" fn perigee_snapshot_seq(snapshot: Handle) -> u64 {
    call_or(0, || Ok(SNAPSHOTS.pin(snapshot as usize)?.1.sequence()))
}

/// Returns the value of a key in a snapshot, to be freed by the caller.
///
/// # Safety
/// The key is null or valid for the given size; the others are null or valid for writing the
/// results.
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
        // SAFETY: guaranteed by the caller.
        let (key, out, size) =
            unsafe { (key(key_, key_size)?, out_param(value)?, out_param(value_size)?) };
        let (snapshot, cf) = (SNAPSHOTS.pin(snapshot as usize)?, family(cf)?);
        check_same_database(&snapshot, &cf.database)?;
        let found = snapshot.1.get_pinned(&cf.inner, key)?.ok_or_else(key_not_found)?;
        *out = alloc::copy_bytes(&found)?;
        *size = found.len();
        Ok(())
    })
}

/// Creates an iterator over a column family in a snapshot; it is used and freed like any other.
///
/// # Safety
/// `iter` is null or valid for writing a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perigee_snapshot_iter(
    snapshot: Handle,
    cf: Handle,
    iter: *mut Handle,
) -> c_int {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let out = unsafe { out_param(iter) }?;
        *out = null_mut();
        let (snapshot, cf) = (SNAPSHOTS.pin(snapshot as usize)?, family(cf)?);
        check_same_database(&snapshot, &cf.database)?;
        *out = insert_cursor(snapshot.1.cursor(&cf.inner)?)?;
        Ok(())
    })
}

fn check_same_database(snapshot: &OwnedSnapshot, database: &Arc<Database>) -> Result<()> {
    if Arc::ptr_eq(&snapshot.0, database) {
        return Ok(());
    }
    Err(INVALID_ARGS
        .with_message("the column family belongs to another database than the snapshot"))
}

/// Frees a snapshot; versions that only it kept may then be removed.
#[unsafe(no_mangle)]
pub extern "C" fn perigee_snapshot_free(snapshot: Handle) {
    call(|| Ok(SNAPSHOTS.remove(snapshot as usize).map(drop)?));
}
