//! Column families.

use crate::run_blocking;
use crate::stream::{EntryStream, owned_bounds};
use perigee::{Result, Slice, WriteOptions};
use std::ops::RangeBounds;

/// A column family; see [`perigee::Family`]. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Family(perigee::Family);

/// Wraps a column family.
impl From<perigee::Family> for Family {
    fn from(family: perigee::Family) -> Family {
        Family(family)
    }
}

impl Family {
    /// Returns the column family with blocking calls.
    pub fn blocking(&self) -> &perigee::Family {
        &self.0
    }
    async fn run<T: Send + 'static>(
        &self,
        call: impl FnOnce(&perigee::Family) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let family = self.0.clone();
        run_blocking(move || call(&family)).await
    }

    /// Writes an entry. A `Vec<u8>` or `String` as value is not copied on its way.
    ///
    /// # Errors
    /// Those of [`perigee::Family::put`].
    pub async fn put(&self, key: impl AsRef<[u8]>, value: impl Into<Vec<u8>>) -> Result<()> {
        let (key, value) = (key.as_ref().to_vec(), value.into());
        self.run(move |family| family.put(key, value)).await
    }
    /// Writes an entry with options.
    ///
    /// # Errors
    /// Those of [`perigee::Family::put_with`].
    pub async fn put_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl Into<Vec<u8>>,
        options: WriteOptions,
    ) -> Result<()> {
        let (key, value) = (key.as_ref().to_vec(), value.into());
        self.run(move |family| family.put_with(key, value, options)).await
    }
    /// Deletes an entry.
    ///
    /// # Errors
    /// Those of [`perigee::Family::delete`].
    pub async fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        let key = key.as_ref().to_vec();
        self.run(move |family| family.delete(key)).await
    }

    /// Returns the value of `key`.
    ///
    /// # Errors
    /// Those of [`perigee::Family::get`].
    pub async fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        let key = key.as_ref().to_vec();
        self.run(move |family| family.get(key)).await
    }
    /// Returns true if the key exists.
    ///
    /// # Errors
    /// Those of [`perigee::Family::contains`].
    pub async fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        let key = key.as_ref().to_vec();
        self.run(move |family| family.contains(key)).await
    }
    /// Returns the values of `keys` in their order, as of one moment; each has its own result.
    ///
    /// # Errors
    /// `Interrupted` if the runtime is shutting down.
    pub async fn multi_get<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Result<Option<Slice>>>> {
        let keys: Vec<Vec<u8>> = keys.into_iter().map(|key| key.as_ref().to_vec()).collect();
        self.run(move |family| Ok(family.multi_get(keys))).await
    }

    /// Returns the entries of a key range, as of the first poll of the stream.
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> EntryStream {
        let bounds = owned_bounds(range);
        let family = self.0.clone();
        EntryStream::new(move || family.range::<Vec<u8>>(bounds))
    }
    /// Returns the entries whose keys begin with `prefix`, as of the first poll of the stream.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> EntryStream {
        let (family, prefix) = (self.0.clone(), prefix.as_ref().to_vec());
        EntryStream::new(move || family.prefix(prefix))
    }
}
