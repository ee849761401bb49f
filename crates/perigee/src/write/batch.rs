//! [`WriteBatch`]: operations that are committed atomically.

use crate::{Error, Family, Result};
use perigee_engine::{Batch, Engine, FamilyId};

/// The error for a column family of another open database: the ids of its column families have no
/// meaning here.
pub(crate) fn wrong_database_error() -> Error {
    Error::invalid(
        "the column family belongs to another open database: get it from this one with Db::family",
    )
}

/// A sequence of operations on any number of column families that [`Db::write`](crate::Db::write)
/// commits atomically: after the commit all of them are visible, and after a crash all or none of
/// them are recovered. Operations are encoded in log format when they are added, so a commit only
/// adds a record header. A batch has at most 2 GiB and 2^28 operations.
///
/// Extending or collecting a batch from pairs of keys and values adds puts to the column family
/// `default`. These cannot report an error: if a pair exceeds a limit, it and all later pairs are
/// left out, and the commit of the batch fails with that error and applies nothing.
///
/// ```
/// # use perigee::{Db, Options, WriteBatch};
/// # fn main() -> perigee::Result<()> {
/// # use perigee::env::{Env, fs::memory::SimDisk};
/// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
/// let family = db.default_family();
/// let mut batch = WriteBatch::new();
/// batch.put(&family, "low", "06:12")?;
/// batch.put(&family, "high", "12:31")?;
/// batch.delete(&family, "low")?;
/// assert_eq!(batch.len(), 3);
/// db.write(batch)?;
/// assert_eq!(db.get("low")?, None);
/// assert_eq!(db.get("high")?.as_deref(), Some(&b"12:31"[..]));
///
/// let mut batch = WriteBatch::from_iter([("Brest", "tidal"), ("Kiel", "not tidal")]);
/// batch.extend((1..=3).map(|n| (format!("station {n}"), "unknown")));
/// batch.delete_default("high")?;
/// db.write(batch)?;
/// assert_eq!(db.iter()?.count(), 5);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct WriteBatch {
    batch: Batch,
    /// [`Engine::identity`] of the database whose column families the operations refer to. `None`
    /// while there are only operations on `default`, which has the same id in every database.
    database: Option<u64>,
    /// The error for which `extend` left out a pair; the commit returns it.
    extend_error: Option<Error>,
}

/// Prints the number of operations and bytes, not the contents.
impl std::fmt::Debug for WriteBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "WriteBatch({} operations, {} bytes)", self.len(), self.encoded_bytes())
    }
}

impl WriteBatch {
    /// Creates an empty batch.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// let mut batch = WriteBatch::new();
    /// batch.put_default("moon", "full")?;
    /// db.write(batch)?;
    /// assert!(db.contains("moon")?);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn new() -> Self {
        Self::default()
    }
    /// Returns the encoded batch for adding operations on `family`; fails if the batch already has
    /// operations on another database.
    pub(crate) fn operations_for(&mut self, family: &Family) -> Result<&mut Batch> {
        let database = family.engine.identity();
        if self.is_empty() || self.database.is_none() {
            self.database = Some(database);
        }
        if self.database == Some(database) {
            Ok(&mut self.batch)
        } else {
            Err(wrong_database_error())
        }
    }
    /// Returns the encoded operations, or an error if they belong to another database or if a pair
    /// was left out.
    pub(crate) fn into_engine_batch(self, engine: &Engine) -> Result<Batch> {
        if let Some(error) = self.extend_error {
            return Err(error);
        }
        let matches =
            self.is_empty() || self.database.is_none_or(|database| database == engine.identity());
        if matches { Ok(self.batch) } else { Err(wrong_database_error()) }
    }
    /// Sets `key` to `value` in `family`. Within a batch, a later operation on the same key wins.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// let mut batch = WriteBatch::new();
    /// batch.put(&family, "moon", "full")?;
    /// assert!(!family.contains("moon")?); // not before the write
    /// db.write(batch)?;
    /// assert!(family.contains("moon")?);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` if the key, the value or the batch would exceed a limit (see
    /// [`limits`](crate::limits)), or if `family` belongs to a different open database from that of
    /// the earlier operations. The batch is unchanged.
    pub fn put(
        &mut self,
        family: &Family,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.operations_for(family)?.put(family.inner.id, key.as_ref(), value.as_ref())
    }
    /// Deletes `key` from `family`. Deleting a key that does not exist is not an error.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// family.put("moon", "full")?;
    /// let mut batch = WriteBatch::new();
    /// batch.delete(&family, "moon")?;
    /// db.write(batch)?;
    /// assert!(!family.contains("moon")?);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Same as [`WriteBatch::put`].
    pub fn delete(&mut self, family: &Family, key: impl AsRef<[u8]>) -> Result<()> {
        self.operations_for(family)?.delete(family.inner.id, key.as_ref())
    }
    /// Sets `key` to `value` in the column family `default` of the database that the batch is
    /// written to.
    ///
    /// ```
    /// # use perigee::{Db, Options, WriteBatch};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
    /// let mut batch = WriteBatch::new();
    /// batch.put_default("moon", "full")?;
    /// batch.delete_default("sun")?;
    /// db.write(batch)?;
    /// assert_eq!(db.get("moon")?.as_deref(), Some(&b"full"[..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` if the key, the value or the batch would exceed a limit. The batch is
    /// unchanged.
    pub fn put_default(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.batch.put(FamilyId::DEFAULT, key.as_ref(), value.as_ref())
    }
    /// Deletes `key` from the column family `default` of the database that the batch is written
    /// to.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// db.put("moon", "full")?;
    /// let mut batch = WriteBatch::new();
    /// batch.delete_default("moon")?;
    /// db.write(batch)?;
    /// assert_eq!(db.get("moon")?, None);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Same as [`WriteBatch::put_default`].
    pub fn delete_default(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.batch.delete(FamilyId::DEFAULT, key.as_ref())
    }
    /// Returns the number of operations.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// let mut batch = WriteBatch::new();
    /// batch.put_default("moon", "full")?;
    /// batch.delete_default("sun")?;
    /// assert_eq!(batch.len(), 2);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn len(&self) -> usize {
        self.batch.count() as usize
    }
    /// Returns true if the batch contains no operations.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// let mut batch = WriteBatch::new();
    /// assert!(batch.is_empty());
    /// batch.put_default("moon", "full")?;
    /// assert!(!batch.is_empty());
    /// # Ok::<(), Error>(())
    /// ```
    pub fn is_empty(&self) -> bool {
        self.batch.count() == 0
    }
    /// Returns the encoded size in bytes: what the batch adds to the log, without the record
    /// header.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// let mut batch = WriteBatch::new();
    /// batch.put_default("moon", vec![0; 1000])?;
    /// assert!(batch.encoded_bytes() > 1000); // for example to write every 64 KiB
    /// # Ok::<(), Error>(())
    /// ```
    pub fn encoded_bytes(&self) -> usize {
        self.batch.payload_bytes()
    }
    /// Removes all operations but keeps the allocated memory, so the batch can be reused.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// let mut batch = WriteBatch::new();
    /// batch.put_default("moon", "full")?;
    /// batch.clear();
    /// assert!(batch.is_empty());
    /// # Ok::<(), Error>(())
    /// ```
    pub fn clear(&mut self) {
        self.batch.clear();
        self.database = None;
        self.extend_error = None;
    }
}

/// Adds puts to the column family `default`. See [`WriteBatch`] for pairs that exceed a limit.
impl<K: AsRef<[u8]>, V: AsRef<[u8]>> Extend<(K, V)> for WriteBatch {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, pairs: I) {
        for (key, value) in pairs {
            if self.extend_error.is_some() {
                return;
            }
            self.extend_error = self.put_default(key, value).err();
        }
    }
}

/// Creates a batch of puts to the column family `default`. See [`WriteBatch`] for pairs that exceed
/// a limit.
impl<K: AsRef<[u8]>, V: AsRef<[u8]>> FromIterator<(K, V)> for WriteBatch {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> WriteBatch {
        let mut batch = WriteBatch::new();
        batch.extend(pairs);
        batch
    }
}
