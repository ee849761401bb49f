//! An atomic batch.

use crate::{Family, Result};

/// Operations that become visible, and durable, together or not at all, over any number of families. It is
/// already in log format: a commit seals a header in front of it and appends.
#[derive(Clone, Debug, Default)]
pub struct WriteBatch {}

impl WriteBatch {
    /// An empty batch.
    pub fn new() -> Self {
        unimplemented!()
    }
    /// Sets `key` to `value` in `family`. Later operations of a batch win over earlier ones.
    ///
    /// # Errors
    /// `InvalidArgument` if the key, the value or the batch would break a limit; the batch is unchanged.
    pub fn put(&mut self, family: &Family, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        let _ = (family, key, value);
        unimplemented!()
    }
    /// Removes `key` from `family`; removing a key that is not there is no error.
    ///
    /// # Errors
    /// As [`WriteBatch::put`].
    pub fn delete(&mut self, family: &Family, key: impl AsRef<[u8]>) -> Result<()> {
        let _ = (family, key);
        unimplemented!()
    }
    /// Operations in it.
    pub fn len(&self) -> usize {
        unimplemented!()
    }
    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        unimplemented!()
    }
    /// Bytes it takes in the log.
    pub fn encoded_bytes(&self) -> usize {
        unimplemented!()
    }
    /// Forgets all operations, keeps the memory.
    pub fn clear(&mut self) {
        unimplemented!()
    }
}
