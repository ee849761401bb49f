//! An atomic batch.

use crate::{Error, Family, Result};
use perigee_engine::Engine;
use perigee_file::log::Batch;

/// The answer to whoever mixes databases up: numbers of families mean nothing elsewhere.
pub(crate) fn wrong_database_error() -> Error {
    Error::invalid(
        "the family belongs to another open database: get it from this one, by `Db::family`",
    )
}

/// Operations that become visible, and durable, together or not at all, over any number of
/// families. It is already in log format: a commit seals a header in front of it and appends.
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
    /// The database that the families of its operations are of ([`Engine::identity`]).
    database: Option<u64>,
}

/// Short: how much is in it.
impl std::fmt::Debug for WriteBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "WriteBatch({} operations, {} bytes)", self.len(), self.encoded_bytes())
    }
}

impl WriteBatch {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }
    /// What operations on a family are added to.
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
    /// The operations, for a database.
    pub(crate) fn into_engine_batch(self, engine: &Engine) -> Result<Batch> {
        let own = self.is_empty() || self.database == Some(engine.identity());
        if own { Ok(self.batch) } else { Err(wrong_database_error()) }
    }
    /// Sets `key` to `value` in `family`. Later operations of a batch win over earlier ones.
    ///
    /// # Errors
    /// `InvalidArgument` if the key, the value or the batch would break a limit; the batch is
    /// unchanged.
    pub fn put(
        &mut self,
        family: &Family,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.operations_for(family)?.put(family.inner.id, key.as_ref(), value.as_ref())
    }
    /// Removes `key` from `family`; removing a key that is not there is no error.
    ///
    /// # Errors
    /// As [`WriteBatch::put`].
    pub fn delete(&mut self, family: &Family, key: impl AsRef<[u8]>) -> Result<()> {
        self.operations_for(family)?.delete(family.inner.id, key.as_ref())
    }
    /// Operations in it.
    pub fn len(&self) -> usize {
        self.batch.count() as usize
    }
    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.batch.count() == 0
    }
    /// Bytes it takes in the log.
    pub fn encoded_bytes(&self) -> usize {
        self.batch.payload_bytes()
    }
    /// Forgets all operations, keeps the memory.
    pub fn clear(&mut self) {
        self.batch.clear();
        self.database = None;
    }
}
