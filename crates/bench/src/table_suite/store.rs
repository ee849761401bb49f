//! Interface between the workloads of tables and the databases.

use super::dataset::Dataset;
use crate::engine::{EffectiveOptions, Result};

/// An open database with one table of rows.
pub trait RowStore<K>: Sync {
    /// Returns the version of the database library.
    fn version(&self) -> String;
    /// Returns the options in effect.
    fn effective_options(&self) -> EffectiveOptions;
    /// Loads the rows of the data set into the empty table, in the way that the documentation of
    /// the database recommends: in key order, or in random order.
    fn load(&self, data: &Dataset<K>, sorted: bool) -> Result<()>;
    /// Runs `work` with a session for the calling thread.
    fn with_session(
        &self,
        work: &mut dyn FnMut(&mut dyn RowSession<K>) -> Result<()>,
    ) -> Result<()>;
    /// Returns when no background work is pending.
    fn wait_idle(&self) -> Result<()>;
    fn close(self: Box<Self>) -> Result<()>;
    /// Returns a reader of the key-value engine below the table, if there is one.
    fn engine_reader(&self) -> Option<Box<dyn EngineReader<K> + '_>> {
        None
    }
}

/// One thread's access to the table.
pub trait RowSession<K> {
    /// Inserts rows in one transaction; fails if one of the keys exists.
    fn insert_rows(&mut self, rows: &[(K, Vec<u8>)]) -> Result<()>;
    /// Inserts a row in a transaction of its own; fails if the key exists.
    fn insert(&mut self, key: K, value: &[u8]) -> Result<()>;
    /// Inserts or replaces a row in a transaction of its own.
    fn put(&mut self, key: K, value: &[u8]) -> Result<()>;
    /// Passes the newest value of a key to `see`.
    fn get(&mut self, key: K, see: &mut dyn FnMut(Option<&[u8]>)) -> Result<()>;
    /// Passes the values of keys to `see` with their positions, all read one by one in one read
    /// transaction.
    fn get_in_txn(
        &mut self,
        keys: &mut dyn Iterator<Item = K>,
        see: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> Result<()>;
    /// Passes up to `limit` rows with keys from `from` on to `see`, in key order.
    fn range(&mut self, from: K, limit: usize, see: &mut dyn FnMut(K, &[u8])) -> Result<()>;
}

/// Reads rows below the table, to break down the cost of a get.
pub trait EngineReader<K> {
    /// Gets a row through the table. Returns the number of bytes of its value.
    fn get_row(&self, key: K) -> Result<usize>;
    /// Encodes the key and returns true if there is a row, without reading it.
    fn find_row(&self, key: K) -> Result<bool>;
    /// Returns true if there is a row with this encoded key.
    fn find_encoded(&self, key: &[u8]) -> Result<bool>;
    /// Gets the stored row of an encoded key.
    fn get_encoded(&self, key: &[u8]) -> Result<bool>;
}
