//! [`WriteBatch`]: operations that are committed atomically.

use crate::{Error, Family, Result};
use perigee_engine::Engine;
use perigee_file::log::Batch;

/// The error for a column family of another open database: the ids of its column families have no
/// meaning here.
pub(crate) fn wrong_database_error() -> Error {
    Error::invalid(
        "the column family belongs to another open database: get it from this one by Db::family",
    )
}

/// A sequence of operations on any number of column families that [`Db::write`](crate::Db::write)
/// commits atomically: after the commit all of them are visible, and after a crash all or none of
/// them are recovered. Operations are encoded in log format when they are added, so a commit only
/// adds a record header. At most 2 GiB and 2^28 operations.
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
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct WriteBatch {
    batch: Batch,
    /// [`Engine::identity`] of the database whose column families the operations refer to.
    database: Option<u64>,
}

/// Prints the number of operations and bytes, not the contents.
impl std::fmt::Debug for WriteBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "WriteBatch({} operations, {} bytes)", self.len(), self.encoded_bytes())
    }
}

impl WriteBatch {
    /// Creates an empty batch.
    pub fn new() -> Self {
        Self::default()
    }
    /// Returns the encoded batch for adding operations on `family`; fails if the batch already has
    /// operations on another database.
    pub(crate) fn operations_for(&mut self, family: &Family) -> Result<&mut Batch> {
        let database = family.engine.identity();
        if self.is_empty() {
            self.database = Some(database);
        }
        if self.database == Some(database) {
            Ok(&mut self.batch)
        } else {
            Err(wrong_database_error())
        }
    }
    /// Returns the encoded operations, or an error if they belong to another database.
    pub(crate) fn into_engine_batch(self, engine: &Engine) -> Result<Batch> {
        let matches = self.is_empty() || self.database == Some(engine.identity());
        if matches { Ok(self.batch) } else { Err(wrong_database_error()) }
    }
    /// Sets `key` to `value` in `family`. Within a batch, a later operation on the same key wins.
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
    /// # Errors
    /// Same as [`WriteBatch::put`].
    pub fn delete(&mut self, family: &Family, key: impl AsRef<[u8]>) -> Result<()> {
        self.operations_for(family)?.delete(family.inner.id, key.as_ref())
    }
    /// Returns the number of operations.
    pub fn len(&self) -> usize {
        self.batch.count() as usize
    }
    /// Returns true if the batch contains no operations.
    pub fn is_empty(&self) -> bool {
        self.batch.count() == 0
    }
    /// Returns the encoded size in bytes: what the batch adds to the log, without the record
    /// header.
    pub fn encoded_bytes(&self) -> usize {
        self.batch.payload_bytes()
    }
    /// Removes all operations but keeps the allocated memory, so the batch can be reused.
    pub fn clear(&mut self) {
        self.batch.clear();
        self.database = None;
    }
}
