//! Transactions: begin, commit, rollback, savepoints, abort from another thread.

use crate::boundary::{ErrorOut, Handle, Out, Struct, Text, call, durability};
use crate::database::database;
use perigee::{Error, Isolation, Result, Txn, TxnHandle, TxnOptions};
use perigee_c_boundary::handle::HandleTable;
use std::ffi::c_int;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Transactions that were begun and not released.
pub static TRANSACTIONS: HandleTable<Txn, AbortHandle> = HandleTable::new(3);

/// Aborts the transaction, or ends its wait for a lock, while another thread is in a call with it.
#[derive(Default)]
pub struct AbortHandle(Mutex<Option<TxnHandle>>);

impl AbortHandle {
    fn set(&self, handle: TxnHandle) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(handle);
    }
    fn get(&self) -> Option<TxnHandle> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// `perigee_transaction_options`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TransactionOptions {
    struct_size: usize,
    isolation: c_int,
    read_only: c_int,
    pessimistic: c_int,
    reserved: c_int,
    lock_timeout_us: u64,
    timeout_us: u64,
    max_bytes: u64,
    spill_bytes: u64,
}

const DEFAULTS: TransactionOptions = TransactionOptions {
    struct_size: size_of::<TransactionOptions>(),
    isolation: 0,
    read_only: 0,
    pessimistic: 0,
    reserved: 0,
    lock_timeout_us: 1_000_000,
    timeout_us: 0,
    max_bytes: 0,
    spill_bytes: 0,
};

impl TransactionOptions {
    fn to_options(self) -> Result<TxnOptions> {
        if self.struct_size != size_of::<TransactionOptions>() {
            return Err(Error::invalid(
                "initialize the options with perigee_transaction_options_init",
            ));
        }
        let isolation = match self.isolation {
            0 => None,
            1 => Some(Isolation::ReadUncommitted),
            2 => Some(Isolation::ReadCommitted),
            3 => Some(Isolation::RepeatableRead),
            4 => Some(Isolation::Snapshot),
            5 => Some(Isolation::Serializable),
            other => return Err(Error::invalid(format!("{other} is not a perigee_isolation"))),
        };
        let limit = |value: u64| Some(value).filter(|v| *v > 0);
        let mut options = TxnOptions::new();
        options.isolation = isolation;
        options.read_only = self.read_only != 0;
        options.pessimistic = self.pessimistic != 0;
        options.lock_timeout = Duration::from_micros(self.lock_timeout_us);
        options.timeout = limit(self.timeout_us).map(Duration::from_micros);
        options.max_bytes = limit(self.max_bytes);
        options.spill_bytes = limit(self.spill_bytes);
        Ok(options)
    }
}

/// Runs a call on a transaction.
fn with_txn(transaction: Handle, error: ErrorOut, work: impl FnOnce(&Txn) -> Result<()>) -> c_int {
    call(error, || work(&*TRANSACTIONS.lock(transaction.raw())?))
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_transaction_options_init(options: Out<TransactionOptions>) {
    options.set(DEFAULTS);
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_transaction_begin(
    db: Handle,
    options: Struct<TransactionOptions>,
    transaction: Out<Handle>,
    error: ErrorOut,
) -> c_int {
    transaction.set(Handle::NULL);
    call(error, || {
        transaction.require()?;
        let options = options.get().copied().unwrap_or(DEFAULTS).to_options()?;
        let txn = database(db)?.begin(options)?;
        let handle = txn.handle();
        let raw = TRANSACTIONS.insert_with(txn, |abort| abort.set(handle))?;
        transaction.set(Handle(raw as *mut _));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_transaction_commit(
    transaction: Handle,
    durability: c_int,
    sequence: Out<u64>,
    error: ErrorOut,
) -> c_int {
    sequence.set(0);
    with_txn(transaction, error, |txn| {
        sequence.set(txn.commit_in_place(self::durability(durability)?)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_transaction_rollback(transaction: Handle, error: ErrorOut) -> c_int {
    with_txn(transaction, error, |txn| {
        txn.rollback_in_place();
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_transaction_reset(transaction: Handle, error: ErrorOut) -> c_int {
    call(error, || {
        let txn = TRANSACTIONS.lock(transaction.raw())?;
        txn.reset()?;
        txn.shared().set(txn.handle());
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_transaction_abort(
    transaction: Handle,
    aborted: Out<c_int>,
    error: ErrorOut,
) -> c_int {
    aborted.set(0);
    call(error, || {
        let handle = TRANSACTIONS.peek_shared(transaction.raw())?.get();
        aborted.set(handle.is_some_and(|handle| handle.abort()).into());
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_transaction_set_lock_timeout(
    transaction: Handle,
    timeout_us: u64,
    error: ErrorOut,
) -> c_int {
    with_txn(transaction, error, |txn| {
        txn.set_lock_timeout(Duration::from_micros(timeout_us));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_transaction_cancel_wait(
    transaction: Handle,
    cancelled: Out<c_int>,
    error: ErrorOut,
) -> c_int {
    cancelled.set(0);
    call(error, || {
        let handle = TRANSACTIONS.peek_shared(transaction.raw())?.get();
        cancelled.set(handle.is_some_and(|handle| handle.cancel_wait()).into());
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_transaction_savepoint(
    transaction: Handle,
    name: Text,
    error: ErrorOut,
) -> c_int {
    with_txn(transaction, error, |txn| txn.savepoint(name.get()?))
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_transaction_rollback_to(
    transaction: Handle,
    name: Text,
    error: ErrorOut,
) -> c_int {
    with_txn(transaction, error, |txn| txn.rollback_to(name.get()?))
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_transaction_release_savepoint(
    transaction: Handle,
    name: Text,
    error: ErrorOut,
) -> c_int {
    with_txn(transaction, error, |txn| txn.release_savepoint(name.get()?))
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_transaction_release(transaction: Handle) {
    transaction.release(&TRANSACTIONS);
}
