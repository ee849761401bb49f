//! An atomic batch.

use crate::{Family, Result};
use perigee_file::log::Batch;

/// Operations that become visible, and durable, together or not at all, over any number of families. It is
/// already in log format: a commit seals a header in front of it and appends.
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
#[derive(Clone, Debug, Default)]
pub struct WriteBatch(pub(crate) Batch);

impl WriteBatch {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }
    /// Sets `key` to `value` in `family`. Later operations of a batch win over earlier ones.
    ///
    /// # Errors
    /// `InvalidArgument` if the key, the value or the batch would break a limit; the batch is unchanged.
    pub fn put(&mut self, family: &Family, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.0.put(family.inner.id, key.as_ref(), value.as_ref())
    }
    /// Removes `key` from `family`; removing a key that is not there is no error.
    ///
    /// # Errors
    /// As [`WriteBatch::put`].
    pub fn delete(&mut self, family: &Family, key: impl AsRef<[u8]>) -> Result<()> {
        self.0.delete(family.inner.id, key.as_ref())
    }
    /// Operations in it.
    pub fn len(&self) -> usize {
        self.0.count() as usize
    }
    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.0.count() == 0
    }
    /// Bytes it takes in the log.
    pub fn encoded_bytes(&self) -> usize {
        self.0.payload_bytes()
    }
    /// Forgets all operations, keeps the memory.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}
