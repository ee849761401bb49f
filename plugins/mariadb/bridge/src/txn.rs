//! Transactions: writes, locks, savepoints, commit and rollback.
//!
//! The engine's transaction runs at read committed and takes no locks by itself: the calls here
//! take them, so that a key that is locked already is not locked again. One object serves all
//! transactions of a connection, one after the other.

use crate::engine::{Durability, Engine, Shared, with_engine};
use crate::ffi::{self, Slice};
use crate::savepoints::Savepoints;
use crate::status::{Result, Status, lock_error, write_error};
use crate::table::{NEVER, Table};
use perigee::{Isolation, LockMode, Txn, TxnHandle, TxnOptions};
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Duration;

/// A transaction, `pgb_trx` in C. Used by one thread at a time, except for `handle`.
pub struct Trx {
    pub(crate) shared: Arc<Shared>,
    pub(crate) txn: Txn,
    /// Stops lock waits of this and later transactions in the object, from other threads.
    handle: TxnHandle,
    lock_timeout_us: Cell<u64>,
    /// It has written since it began: its reads need the engine's transaction.
    pub(crate) has_written: Cell<bool>,
    /// It may hold locks.
    has_locked: Cell<bool>,
    savepoints: RefCell<Savepoints>,
}

impl Trx {
    fn begin(shared: &Arc<Shared>, lock_timeout_us: u64) -> Result<Trx> {
        let options = TxnOptions::new()
            .isolation(Isolation::ReadCommitted)
            .lock_timeout(Duration::from_micros(lock_timeout_us));
        let txn = shared.db.begin(options)?;
        Ok(Trx {
            shared: Arc::clone(shared),
            handle: txn.handle(),
            txn,
            lock_timeout_us: Cell::new(lock_timeout_us),
            has_written: Cell::new(false),
            has_locked: Cell::new(false),
            savepoints: RefCell::default(),
        })
    }
    /// Returns true if the transaction has done nothing since it began.
    fn is_fresh(&self) -> bool {
        !self.has_written.get() && !self.has_locked.get() && self.savepoints.borrow().is_empty()
    }
    /// Begins the next transaction in this object, after the engine's transaction has ended.
    pub(crate) fn renew(&self) {
        self.has_written.set(false);
        self.has_locked.set(false);
        self.savepoints.borrow_mut().clear();
        self.handle.allow_waits();
        // Fails only if the database is closed: then every later call reports it.
        let _ = self.txn.reset();
    }
    /// Commits. A sync comes last: others see the writes, and get the locks, before it, as with
    /// InnoDB. A crash of the machine loses no writes that a later durable commit may have read.
    fn commit(&self, durability: Durability) -> Result<()> {
        if self.is_fresh() {
            return Ok(());
        }
        if !self.has_written.get() || self.txn.is_empty() {
            self.roll_back();
            return Ok(());
        }
        let (logged, syncs) = match durability.to_engine() {
            perigee::Durability::Full => (perigee::Durability::None, true),
            unsynced => (unsynced, false),
        };
        let committed = self.txn.commit_in_place(Some(logged));
        self.renew();
        let seq = committed?;
        if syncs {
            self.shared.db.sync_up_to(seq)?;
        }
        Ok(())
    }
    fn roll_back(&self) {
        if !self.is_fresh() {
            self.txn.rollback_in_place();
        }
        self.renew();
    }
    /// Requests a lock.
    #[inline]
    fn request(&self, lock: impl FnOnce() -> perigee::Result<()>) -> Result<()> {
        self.has_locked.set(true);
        if self.handle.has_stopped_waits() {
            return Err(Status::INTERRUPTED.with_message("the statement was interrupted"));
        }
        lock().map_err(lock_error)
    }
    /// Locks a key.
    #[inline]
    pub(crate) fn lock(&self, table: &Table, key: &[u8], mode: LockMode) -> Result<()> {
        self.request(|| self.txn.lock(&table.family, key, mode))
    }
    #[inline]
    fn put(&self, table: &Table, key: &[u8], value: &[u8], expires_at_ms: u64) -> Result<()> {
        self.has_written.set(true);
        let (txn, family) = (&self.txn, &table.family);
        let put = match (expires_at_ms, table.ttl_of(key)) {
            (0, Some(ttl)) => txn.put_with_ttl(family, key, value, ttl),
            (0, None) | (NEVER, _) => txn.put(family, key, value),
            (at, _) => txn.put_until(family, key, value, at),
        };
        put.map_err(|e| write_error(e, key.len(), value.len()))
    }
    #[inline]
    fn delete(&self, table: &Table, key: &[u8]) -> Result<()> {
        self.has_written.set(true);
        self.txn.delete(&table.family, key).map_err(|e| write_error(e, key.len(), 0))
    }
}

/// Returns the engine's lock mode for a `pgb_lock_mode`.
pub(crate) fn lock_mode(mode: u32) -> Result<LockMode> {
    match mode {
        0 => Ok(LockMode::Shared),
        1 => Ok(LockMode::Exclusive),
        2 => Ok(LockMode::Gap),
        3 => Ok(LockMode::Insert),
        _ => Err(Status::INVALID.with_message("unknown lock mode")),
    }
}

/// Runs a call on a transaction.
///
/// # Safety
/// `trx` is null or points to a live transaction that only this thread uses.
#[inline]
pub(crate) unsafe fn with_trx(trx: *const Trx, work: impl FnOnce(&Trx) -> Result<()>) -> Status {
    // SAFETY: guaranteed by the caller.
    match unsafe { ffi::object(trx) } {
        Ok(trx) => ffi::call(&trx.shared, || work(trx)),
        Err(status) => status,
    }
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_trx_begin(
    engine: *mut Engine,
    lock_timeout_us: u64,
    out: *mut *mut Trx,
) -> Status {
    let work = |shared: &Arc<Shared>| {
        let trx = Box::new(Trx::begin(shared, lock_timeout_us)?);
        // SAFETY: guaranteed by the caller.
        unsafe { ffi::store(out, Box::into_raw(trx)) }
    };
    // SAFETY: guaranteed by the caller.
    unsafe { with_engine(engine, work) }
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_trx_free(trx: *mut Trx) {
    // SAFETY: guaranteed by the caller. The engine's transaction rolls back when it is dropped.
    unsafe { ffi::release(trx) }
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_trx_set_lock_timeout(trx: *mut Trx, lock_timeout_us: u64) {
    let work = |trx: &Trx| {
        trx.handle.allow_waits();
        if trx.lock_timeout_us.replace(lock_timeout_us) != lock_timeout_us {
            trx.txn.set_lock_timeout(Duration::from_micros(lock_timeout_us));
        }
        Ok(())
    };
    // SAFETY: guaranteed by the caller.
    unsafe { with_trx(trx, work) };
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_trx_cancel_wait(trx: *mut Trx) {
    if trx.is_null() {
        return;
    }
    // SAFETY: the caller guarantees that the transaction is live. Another thread may use it, so
    // only these two fields are accessed, which are thread-safe.
    let (shared, handle) = unsafe { (&(*trx).shared, &(*trx).handle) };
    ffi::call(shared, || {
        handle.stop_waits();
        Ok(())
    });
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_trx_lock_owner(trx: *mut Trx) -> u64 {
    let mut owner = 0;
    let work = |trx: &Trx| {
        owner = trx.txn.lock_owner();
        Ok(())
    };
    // SAFETY: guaranteed by the caller.
    unsafe { with_trx(trx, work) };
    owner
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_trx_writes(trx: *mut Trx) -> u64 {
    let mut writes = 0;
    let work = |trx: &Trx| {
        writes = if trx.has_written.get() { trx.txn.len() as u64 } else { 0 };
        Ok(())
    };
    // SAFETY: guaranteed by the caller.
    unsafe { with_trx(trx, work) };
    writes
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_trx_savepoint(trx: *mut Trx, number: u64) -> Status {
    // SAFETY: guaranteed by the caller.
    unsafe { with_trx(trx, |trx| trx.savepoints.borrow_mut().set(&trx.txn, number)) }
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_trx_rollback_to(trx: *mut Trx, number: u64) -> Status {
    // SAFETY: guaranteed by the caller.
    unsafe { with_trx(trx, |trx| trx.savepoints.borrow_mut().roll_back_to(&trx.txn, number)) }
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_trx_release_savepoint(trx: *mut Trx, number: u64) -> Status {
    // SAFETY: guaranteed by the caller.
    unsafe { with_trx(trx, |trx| trx.savepoints.borrow_mut().release(&trx.txn, number)) }
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_trx_commit(trx: *mut Trx, durability: Durability) -> Status {
    // SAFETY: guaranteed by the caller.
    unsafe { with_trx(trx, |trx| trx.commit(durability)) }
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_trx_rollback(trx: *mut Trx) {
    let work = |trx: &Trx| {
        trx.roll_back();
        Ok(())
    };
    // SAFETY: guaranteed by the caller.
    unsafe { with_trx(trx, work) };
}

/// Runs a call on a transaction and a table.
///
/// # Safety
/// As [`with_trx`]; `table` is null or points to an open table.
#[inline]
unsafe fn with_trx_table(
    trx: *const Trx,
    table: *const Table,
    work: impl FnOnce(&Trx, &Table) -> Result<()>,
) -> Status {
    // SAFETY: guaranteed by the caller.
    unsafe { with_trx(trx, |trx| work(trx, ffi::object(table)?)) }
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_lock_key(
    trx: *mut Trx,
    table: *mut Table,
    key: Slice,
    mode: u32,
) -> Status {
    // SAFETY: guaranteed by the caller.
    let work = |trx: &Trx, table: &Table| trx.lock(table, unsafe { key.bytes() }, lock_mode(mode)?);
    // SAFETY: guaranteed by the caller.
    unsafe { with_trx_table(trx, table, work) }
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_lock_range(
    trx: *mut Trx,
    table: *mut Table,
    begin: Slice,
    end: Slice,
    mode: u32,
) -> Status {
    let work = |trx: &Trx, table: &Table| {
        let mode = lock_mode(mode)?;
        // SAFETY: guaranteed by the caller.
        let range = unsafe { ffi::range(begin, end) };
        trx.request(|| trx.txn.lock_range::<&[u8]>(&table.family, range, mode))
    };
    // SAFETY: guaranteed by the caller.
    unsafe { with_trx_table(trx, table, work) }
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_unlock_key(trx: *mut Trx, table: *mut Table, key: Slice) -> Status {
    let work = |trx: &Trx, table: &Table| {
        if trx.has_locked.get() {
            // SAFETY: guaranteed by the caller.
            trx.txn.unlock(&table.family, unsafe { key.bytes() })?;
        }
        Ok(())
    };
    // SAFETY: guaranteed by the caller.
    unsafe { with_trx_table(trx, table, work) }
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_trx_put(
    trx: *mut Trx,
    table: *mut Table,
    key: Slice,
    value: Slice,
    expires_at_ms: u64,
) -> Status {
    let work = |trx: &Trx, table: &Table| {
        // SAFETY: guaranteed by the caller.
        let (key, value) = unsafe { (key.bytes(), value.bytes()) };
        trx.lock(table, key, LockMode::Insert)?;
        trx.put(table, key, value, expires_at_ms)
    };
    // SAFETY: guaranteed by the caller.
    unsafe { with_trx_table(trx, table, work) }
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_trx_put_locked(
    trx: *mut Trx,
    table: *mut Table,
    key: Slice,
    value: Slice,
    expires_at_ms: u64,
) -> Status {
    let work = |trx: &Trx, table: &Table| {
        // SAFETY: guaranteed by the caller.
        let (key, value) = unsafe { (key.bytes(), value.bytes()) };
        trx.put(table, key, value, expires_at_ms)
    };
    // SAFETY: guaranteed by the caller.
    unsafe { with_trx_table(trx, table, work) }
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_trx_delete(trx: *mut Trx, table: *mut Table, key: Slice) -> Status {
    let work = |trx: &Trx, table: &Table| {
        // SAFETY: guaranteed by the caller.
        let key = unsafe { key.bytes() };
        trx.lock(table, key, LockMode::Exclusive)?;
        trx.delete(table, key)
    };
    // SAFETY: guaranteed by the caller.
    unsafe { with_trx_table(trx, table, work) }
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_trx_delete_locked(
    trx: *mut Trx,
    table: *mut Table,
    key: Slice,
) -> Status {
    // SAFETY: guaranteed by the caller.
    let work = |trx: &Trx, table: &Table| trx.delete(table, unsafe { key.bytes() });
    // SAFETY: guaranteed by the caller.
    unsafe { with_trx_table(trx, table, work) }
}
