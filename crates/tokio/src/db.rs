//! The database.

use crate::stream::EntryStream;
use crate::txn::Txn;
use crate::{Family, run_blocking};
use perigee::{Error, FamilyOptions, Options, Result, TxnOptions, WriteBatch, WriteOptions};
use std::ops::RangeBounds;
use std::path::Path;

/// A database; see [`perigee::Db`]. Cheap to clone. The calls on keys concern the default column
/// family.
#[derive(Clone, Debug)]
pub struct Db(perigee::Db);

/// Wraps an open database; other clones of it remain usable.
impl From<perigee::Db> for Db {
    fn from(db: perigee::Db) -> Db {
        Db(db)
    }
}

impl Db {
    /// Opens or creates a database.
    ///
    /// # Errors
    /// Those of [`perigee::Db::open`].
    pub async fn open(path: impl AsRef<Path>, options: Options) -> Result<Db> {
        let path = path.as_ref().to_owned();
        run_blocking(move || perigee::Db::open(path, options).map(Db)).await
    }
    /// Closes the database: later calls fail with `Closed`. Everything committed is durable.
    ///
    /// # Errors
    /// Those of [`perigee::Db::close`].
    pub async fn close(&self) -> Result<()> {
        self.run(|db| db.close()).await
    }

    /// Returns the database with blocking calls.
    pub fn blocking(&self) -> &perigee::Db {
        &self.0
    }
    /// Runs any calls on a blocking thread.
    ///
    /// ```
    /// # use perigee_tokio::Db;
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> perigee::Result<()> {
    /// # let options = perigee::Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() });
    /// # let db = Db::open("/doc", options).await?;
    /// let entries = db.run(|db| Ok::<_, perigee::Error>(db.iter()?.count())).await?;
    /// assert_eq!(entries, 0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of `call`; `Interrupted` if the runtime is shutting down.
    pub async fn run<T, E>(
        &self,
        call: impl FnOnce(&perigee::Db) -> std::result::Result<T, E> + Send + 'static,
    ) -> std::result::Result<T, E>
    where
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        let db = self.0.clone();
        run_blocking(move || call(&db)).await
    }

    /// Returns the default column family.
    pub fn default_family(&self) -> Family {
        Family::from(self.0.default_family())
    }
    /// Returns a column family. Does not wait.
    ///
    /// # Errors
    /// Those of [`perigee::Db::family`].
    pub fn family(&self, name: &str) -> Result<Family> {
        self.0.family(name).map(Family::from)
    }
    /// Creates a column family.
    ///
    /// # Errors
    /// Those of [`perigee::Db::create_family`].
    pub async fn create_family(&self, name: &str, options: FamilyOptions) -> Result<Family> {
        let name = name.to_owned();
        self.run(move |db| db.create_family(&name, options).map(Family::from)).await
    }
    /// Returns a column family; creates it if it does not exist.
    ///
    /// # Errors
    /// Those of [`perigee::Db::family_or_create`].
    pub async fn family_or_create(&self, name: &str, options: FamilyOptions) -> Result<Family> {
        let name = name.to_owned();
        self.run(move |db| db.family_or_create(&name, options).map(Family::from)).await
    }
    /// Drops a column family with all of its entries.
    ///
    /// # Errors
    /// Those of [`perigee::Db::drop_family`].
    pub async fn drop_family(&self, name: &str) -> Result<()> {
        let name = name.to_owned();
        self.run(move |db| db.drop_family(&name)).await
    }

    /// Commits a batch. Returns the sequence number of its last operation.
    ///
    /// # Errors
    /// Those of [`perigee::Db::write`].
    pub async fn write(&self, batch: WriteBatch) -> Result<u64> {
        self.run(|db| db.write(batch)).await
    }
    /// Commits a batch with options.
    ///
    /// # Errors
    /// Those of [`perigee::Db::write_with`].
    pub async fn write_with(&self, batch: WriteBatch, options: WriteOptions) -> Result<u64> {
        self.run(move |db| db.write_with(batch, options)).await
    }
    /// Writes an entry.
    ///
    /// # Errors
    /// Those of [`perigee::Db::put`].
    pub async fn put(&self, key: impl AsRef<[u8]>, value: impl Into<Vec<u8>>) -> Result<()> {
        self.default_family().put(key, value).await
    }
    /// Deletes an entry.
    ///
    /// # Errors
    /// Those of [`perigee::Db::delete`].
    pub async fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.default_family().delete(key).await
    }
    /// Returns the value of `key`.
    ///
    /// # Errors
    /// Those of [`perigee::Db::get`].
    pub async fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        self.default_family().get(key).await
    }
    /// Returns true if the key exists.
    ///
    /// # Errors
    /// Those of [`perigee::Db::contains`].
    pub async fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.default_family().contains(key).await
    }
    /// Returns the entries of a key range.
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> EntryStream {
        self.default_family().range(range)
    }
    /// Returns the entries whose keys begin with `prefix`.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> EntryStream {
        self.default_family().prefix(prefix)
    }

    /// Runs `work` in a transaction and commits it; repeats both after a conflict. `work` makes
    /// blocking calls, all of them on the same blocking thread.
    ///
    /// ```
    /// # use perigee_tokio::Db;
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> perigee::Result<()> {
    /// # let options = perigee::Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() });
    /// # let db = Db::open("/doc", options).await?;
    /// let family = db.default_family();
    /// let visits = db
    ///     .transaction(Default::default(), move |txn| {
    ///         let family = family.blocking();
    ///         let visits = txn.get(family, "visits")?.map_or(0, |v| v[0]) + 1;
    ///         txn.put(family, "visits", [visits])?;
    ///         Ok::<_, perigee::Error>(visits)
    ///     })
    ///     .await?;
    /// assert_eq!(visits, 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`perigee::Db::write_txn`].
    pub async fn transaction<T, E>(
        &self,
        options: TxnOptions,
        work: impl FnMut(&perigee::Txn) -> std::result::Result<T, E> + Send + 'static,
    ) -> std::result::Result<T, E>
    where
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        self.run(move |db| db.write_txn(options, work)).await
    }
    /// Begins a transaction whose calls are awaited one by one. It retains old versions until it
    /// ends: give it a [`TxnOptions::timeout`] if it stays open while the task waits for others.
    ///
    /// # Errors
    /// Those of [`perigee::Db::begin`].
    pub async fn begin(&self, options: TxnOptions) -> Result<Txn> {
        self.run(move |db| db.begin(options).map(Txn::from)).await
    }

    /// Makes everything committed so far durable.
    ///
    /// # Errors
    /// Those of [`perigee::Db::sync`].
    pub async fn sync(&self) -> Result<()> {
        self.run(|db| db.sync()).await
    }
}
