//! Snapshots, named snapshots and sequence numbers.

use crate::boundary::{ErrorOut, Handle, Out, Text, call};
use crate::database::database;
use crate::read::SNAPSHOTS;
use perigee::{Db, Result, Snapshot};
use std::ffi::c_int;

fn return_snapshot(
    db: Handle,
    place: &Out<Handle>,
    error: ErrorOut,
    take: impl FnOnce(&Db) -> Result<Snapshot>,
) -> c_int {
    place.set(Handle::NULL);
    call(error, || {
        place.require()?;
        place.set(Handle::insert(&SNAPSHOTS, take(&*database(db)?)?)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_db_snapshot(db: Handle, snapshot: Out<Handle>, error: ErrorOut) -> c_int {
    return_snapshot(db, &snapshot, error, Db::snapshot)
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_db_snapshot_at(
    db: Handle,
    sequence: u64,
    snapshot: Out<Handle>,
    error: ErrorOut,
) -> c_int {
    return_snapshot(db, &snapshot, error, |db| db.history().snapshot_at(sequence))
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_db_create_named_snapshot(
    db: Handle,
    name: Text,
    sequence: Out<u64>,
    error: ErrorOut,
) -> c_int {
    sequence.set(0);
    call(error, || {
        sequence.set(database(db)?.history().create_snapshot(name.get()?)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_db_open_named_snapshot(
    db: Handle,
    name: Text,
    snapshot: Out<Handle>,
    error: ErrorOut,
) -> c_int {
    return_snapshot(db, &snapshot, error, |db| db.history().named_snapshot(name.get()?))
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_db_drop_named_snapshot(db: Handle, name: Text, error: ErrorOut) -> c_int {
    call(error, || database(db)?.history().drop_snapshot(name.get()?))
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_db_sequence(db: Handle, sequence: Out<u64>, error: ErrorOut) -> c_int {
    sequence.set(0);
    call(error, || {
        sequence.require()?;
        sequence.set(database(db)?.history().latest_seq());
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_snapshot_sequence(snapshot: Handle) -> u64 {
    SNAPSHOTS.pin(snapshot.raw()).map_or(0, |snapshot| snapshot.sequence())
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_snapshot_release(snapshot: Handle) {
    snapshot.release(&SNAPSHOTS);
}
