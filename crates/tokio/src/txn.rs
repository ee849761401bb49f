//! Transactions whose calls are awaited one by one.

use crate::stream::{EntryStream, owned_bounds};
use crate::{Family, run_blocking};
use perigee::{LockMode, Result, Slice};
use std::ops::RangeBounds;
use std::sync::Arc;

/// A transaction; see [`perigee::Txn`]. It is rolled back if it is dropped without a commit and no
/// call of it is running.
#[derive(Debug)]
pub struct Txn(Arc<perigee::Txn>);

/// Wraps a transaction.
impl From<perigee::Txn> for Txn {
    fn from(txn: perigee::Txn) -> Txn {
        Txn(Arc::new(txn))
    }
}

impl Txn {
    /// Returns the transaction with blocking calls.
    pub fn blocking(&self) -> &perigee::Txn {
        &self.0
    }
    /// Runs any calls on a blocking thread.
    ///
    /// # Errors
    /// Those of `call`; `Interrupted` if the runtime is shutting down.
    pub async fn run<T: Send + 'static>(
        &self,
        call: impl FnOnce(&perigee::Txn) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let txn = Arc::clone(&self.0);
        run_blocking(move || call(&txn)).await
    }

    /// Returns the value of `key` in this transaction.
    ///
    /// # Errors
    /// Those of [`perigee::Txn::get`].
    pub async fn get(&self, family: &Family, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        let (family, key) = (family.clone(), key.as_ref().to_vec());
        self.run(move |txn| txn.get(family.blocking(), key)).await
    }
    /// Locks `key` and returns its newest value. Waits for other transactions that have locked it.
    ///
    /// # Errors
    /// Those of [`perigee::Txn::get_for_update`].
    pub async fn get_for_update(
        &self,
        family: &Family,
        key: impl AsRef<[u8]>,
        mode: LockMode,
    ) -> Result<Option<Slice>> {
        let (family, key) = (family.clone(), key.as_ref().to_vec());
        self.run(move |txn| txn.get_for_update(family.blocking(), key, mode)).await
    }
    /// Writes an entry.
    ///
    /// # Errors
    /// Those of [`perigee::Txn::put`].
    pub async fn put(
        &self,
        family: &Family,
        key: impl AsRef<[u8]>,
        value: impl Into<Vec<u8>>,
    ) -> Result<()> {
        let (family, key, value) = (family.clone(), key.as_ref().to_vec(), value.into());
        self.run(move |txn| txn.put(family.blocking(), key, value)).await
    }
    /// Deletes an entry.
    ///
    /// # Errors
    /// Those of [`perigee::Txn::delete`].
    pub async fn delete(&self, family: &Family, key: impl AsRef<[u8]>) -> Result<()> {
        let (family, key) = (family.clone(), key.as_ref().to_vec());
        self.run(move |txn| txn.delete(family.blocking(), key)).await
    }
    /// Returns the entries of a key range in this transaction, as of the first poll of the stream.
    /// Up to 32 entries are read ahead; they count as read where reads cause conflicts.
    pub fn range<K: AsRef<[u8]>>(
        &self,
        family: &Family,
        range: impl RangeBounds<K>,
    ) -> EntryStream {
        let bounds = owned_bounds(range);
        let (txn, family) = (Arc::clone(&self.0), family.clone());
        EntryStream::in_txn(move || txn.range::<Vec<u8>>(family.blocking(), bounds))
    }

    /// Commits. Returns the sequence number of its last operation.
    ///
    /// # Errors
    /// Those of [`perigee::Txn::commit`]: after `Conflict` begin again.
    pub async fn commit(self) -> Result<u64> {
        let txn = self.0;
        run_blocking(move || txn.commit_in_place(None)).await
    }
    /// Rolls back.
    ///
    /// # Errors
    /// `Interrupted` if the runtime is shutting down; then dropping it rolls back.
    pub async fn rollback(self) -> Result<()> {
        let txn = self.0;
        run_blocking(move || {
            txn.rollback_in_place();
            Ok(())
        })
        .await
    }
}
