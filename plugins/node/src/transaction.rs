//! Transactions.

use crate::operations;
use crate::options::durability;
use crate::state::{COMMITTED, ROLLED_BACK, Shared, TxnCell};
use crate::task::{self, Reply, THREAD};
use crate::value::Output;
use crate::view::{NativeView, Source};
use napi::Env;
use napi::bindgen_prelude::Uint8ArraySlice;
use napi_derive::napi;
use perigee::{Result, Txn};
use std::sync::Arc;

/// A transaction.
#[napi]
pub struct NativeTransaction {
    cell: Arc<TxnCell>,
    // Last: keeps the database open until the transaction is dropped.
    shared: Arc<Shared>,
}

impl NativeTransaction {
    /// Returns the object for a transaction that has just begun.
    pub fn new(txn: Txn, pessimistic: bool, shared: &Arc<Shared>) -> NativeTransaction {
        NativeTransaction { cell: TxnCell::new(txn, pessimistic), shared: Arc::clone(shared) }
    }
    fn run(
        &self,
        env: Env,
        mode: u32,
        work: impl FnOnce(&TxnCell, &Shared) -> Result<Output> + Send + 'static,
    ) -> napi::Result<Reply> {
        let (cell, shared) = (Arc::clone(&self.cell), Arc::clone(&self.shared));
        task::run(env, mode, move || {
            let result = work(&cell, &shared);
            // In this order: the transaction must not be what closes the database.
            drop(cell);
            drop(shared);
            result
        })
    }
}

#[napi]
impl NativeTransaction {
    /// Returns the mode for operations that may wait for a lock.
    #[napi(getter)]
    pub fn wait_mode(&self) -> u32 {
        if self.cell.pessimistic { THREAD } else { task::POOL }
    }
    /// Returns a column family as seen by the transaction.
    #[napi]
    pub fn view(&self, family: &NativeView) -> NativeView {
        family.in_source(Source::Txn(Arc::clone(&self.cell)))
    }
    /// Applies packed operations, in order, up to the first that fails.
    #[napi]
    pub fn write(&self, env: Env, packed: Uint8ArraySlice<'_>, mode: u32) -> napi::Result<Reply> {
        let packed = packed.to_vec();
        self.run(env, mode, move |cell, shared| {
            operations::apply_to_txn(shared, cell.get()?, &packed)?;
            Ok(Output::Undefined)
        })
    }
    /// Commits. The transaction has ended, even if this fails.
    #[napi]
    pub fn commit(
        &self,
        env: Env,
        durability_name: Option<String>,
        mode: u32,
    ) -> napi::Result<Reply> {
        self.run(env, mode, move |cell, _| {
            let durability = durability(durability_name.as_deref())?;
            let txn = cell.get()?;
            let result = txn.commit_in_place(durability);
            cell.end(COMMITTED);
            result.map(|_| Output::Undefined)
        })
    }
    /// Rolls back. Does nothing if the transaction has ended.
    #[napi]
    pub fn rollback(&self, env: Env, mode: u32) -> napi::Result<Reply> {
        self.run(env, mode, |cell, _| {
            if cell.end(ROLLED_BACK) {
                cell.raw().rollback_in_place();
            }
            Ok(Output::Undefined)
        })
    }
    /// Begins again, after a rollback or a commit that failed.
    #[napi]
    pub fn reset(&self, env: Env, mode: u32) -> napi::Result<Reply> {
        self.run(env, mode, |cell, _| cell.reset().map(|()| Output::Undefined))
    }
    /// Sets a savepoint.
    #[napi]
    pub fn savepoint(&self, env: Env, name: String, mode: u32) -> napi::Result<Reply> {
        self.run(env, mode, move |cell, _| cell.get()?.savepoint(&name).map(|()| Output::Undefined))
    }
    /// Undoes all writes since a savepoint.
    #[napi]
    pub fn rollback_to(&self, env: Env, name: String, mode: u32) -> napi::Result<Reply> {
        self.run(env, mode, move |cell, _| {
            cell.get()?.rollback_to(&name).map(|()| Output::Undefined)
        })
    }
    /// Removes a savepoint.
    #[napi]
    pub fn release_savepoint(&self, env: Env, name: String, mode: u32) -> napi::Result<Reply> {
        self.run(env, mode, move |cell, _| {
            cell.get()?.release_savepoint(&name).map(|()| Output::Undefined)
        })
    }
    /// Returns the number of writes.
    #[napi]
    pub fn length(&self) -> f64 {
        self.cell.raw().len() as f64
    }
}
