//! Reads of many keys at once, and reads into a buffer of the caller.

use crate::{Db, Error, Family, Result, Slice, Snapshot};
use perigee_base::latency::Operation;
use perigee_base::{PinnedSlice, SeqNo};
use perigee_engine::Engine;
use perigee_tree::View;
use perigee_tree::get;
use perigee_tree::multi_get::multi_get;
use std::sync::Arc;

/// Returns the error once per key, for a view that cannot be read at all.
fn fail_all(keys: usize, e: &Error) -> Vec<Result<Option<Slice>>> {
    (0..keys).map(|_| Err(e.clone())).collect()
}

fn multi_get_at<K: AsRef<[u8]>>(
    engine: &Engine,
    view: Result<(Arc<View>, SeqNo)>,
    keys: impl IntoIterator<Item = K>,
) -> Vec<Result<Option<Slice>>> {
    let keys: Vec<K> = keys.into_iter().collect();
    let (view, at) = match view {
        Ok(view) => view,
        Err(e) => return fail_all(keys.len(), &e),
    };
    let borrowed: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
    let started = engine.start_timer(Operation::MultiGet, 0);
    let values = multi_get(&view, &borrowed, at);
    engine.stop_timer(Operation::MultiGet, started);
    values.iter().flatten().for_each(|value| engine.count_get(value.is_some()));
    values.into_iter().map(|result| result.map(|v| v.map(Slice))).collect()
}

/// Copies a value to the start of `buf` if it fits; returns its length in any case.
fn copy_into_slice(value: Option<PinnedSlice>, buf: &mut [u8]) -> Option<usize> {
    let value = value?;
    if let Some(target) = buf.get_mut(..value.len()) {
        target.copy_from_slice(&value);
    }
    Some(value.len())
}

/// Replaces the contents of `buf` by the value; returns false and leaves `buf` empty if there is
/// none.
fn copy_into_vec(value: Option<PinnedSlice>, buf: &mut Vec<u8>) -> bool {
    buf.clear();
    let found = value.is_some();
    if let Some(value) = value {
        buf.extend_from_slice(&value);
    }
    found
}

impl Family {
    fn current_view(&self) -> Result<(Arc<View>, SeqNo)> {
        self.engine.read_view(&self.inner)
    }
    fn read_value(&self, key: &[u8]) -> Result<Option<PinnedSlice>> {
        let started = self.engine.start_get_timer();
        let (view, at) = self.engine.pin_view(&self.inner)?;
        let value = get::get(&view, key, at)?;
        self.engine.finish_get(started, value.is_some());
        Ok(value)
    }

    /// Returns the values of `keys`, in the order of `keys`, all as of one sequence number. Much
    /// cheaper than single gets if keys are close to each other, because each block is read and
    /// decompressed once, or if blocks must be read from disk, because the operating system is
    /// asked to prefetch all of them in parallel.
    ///
    /// Every key has its own result. An `Err` means that the value of this key is unknown, not that
    /// the key does not exist; the other keys are not affected. If the database is closed or the
    /// column family dropped, every result is that error. Keys may repeat. Each [`Slice`] pins its
    /// block in memory: copy values that are kept.
    ///
    /// ```
    /// # use perigee::{Db, Options};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
    /// db.put("moon", "full")?;
    /// db.put("tide", "high")?;
    /// let values = db.multi_get(["tide", "wind", "moon"]);
    /// let values: Vec<_> = values.into_iter().collect::<Result<_, _>>()?;
    /// assert_eq!(values[0].as_deref(), Some(&b"high"[..]));
    /// assert_eq!(values[1], None);
    /// assert_eq!(values[2].as_deref(), Some(&b"full"[..]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn multi_get<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Vec<Result<Option<Slice>>> {
        multi_get_at(&self.engine, self.current_view(), keys)
    }

    /// Copies the value of `key` to the start of `buf` and returns its length, or `None` if the key
    /// does not exist. If the value does not fit, returns its length, which is greater than
    /// `buf.len()`, and leaves `buf` unchanged.
    ///
    /// # Errors
    /// Same as [`Family::get`].
    ///
    /// ```
    /// # use perigee::{Db, Options};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
    /// db.put("moon", "full")?;
    /// let mut buf = [0; 8];
    /// assert_eq!(db.get_into("moon", &mut buf)?, Some(4));
    /// assert_eq!(&buf[..4], b"full");
    /// assert_eq!(db.get_into("moon", &mut [])?, Some(4)); // too small: nothing was copied
    /// assert_eq!(db.get_into("sun", &mut buf)?, None);
    /// # Ok(())
    /// # }
    /// ```
    pub fn get_into(&self, key: impl AsRef<[u8]>, buf: &mut [u8]) -> Result<Option<usize>> {
        Ok(copy_into_slice(self.read_value(key.as_ref())?, buf))
    }

    /// Replaces the contents of `buf` with the value of `key`, reusing the memory of `buf`, and
    /// returns true if the key exists. If it does not, or after an error, `buf` is empty.
    ///
    /// # Errors
    /// Same as [`Family::get`].
    pub fn get_into_vec(&self, key: impl AsRef<[u8]>, buf: &mut Vec<u8>) -> Result<bool> {
        buf.clear();
        Ok(copy_into_vec(self.read_value(key.as_ref())?, buf))
    }
}

impl Snapshot {
    fn read_value(&self, family: &Family, key: &[u8]) -> Result<Option<PinnedSlice>> {
        let started = self.engine.start_get_timer();
        let value = get::get(
            &*self.engine.pin_view_at(family.inner_for(&self.engine)?, &self.handle)?,
            key,
            self.handle.seq(),
        )?;
        self.engine.finish_get(started, value.is_some());
        Ok(value)
    }
    /// Returns the values of many keys as of the snapshot; see [`Family::multi_get`].
    pub fn multi_get<K: AsRef<[u8]>>(
        &self,
        family: &Family,
        keys: impl IntoIterator<Item = K>,
    ) -> Vec<Result<Option<Slice>>> {
        let view = family
            .inner_for(&self.engine)
            .and_then(|family| self.engine.view_at(family, &self.handle));
        multi_get_at(&self.engine, view.map(|view| (view, self.handle.seq())), keys)
    }
    /// Copies a value as of the snapshot to `buf`; see [`Family::get_into`].
    pub fn get_into(
        &self,
        family: &Family,
        key: impl AsRef<[u8]>,
        buf: &mut [u8],
    ) -> Result<Option<usize>> {
        Ok(copy_into_slice(self.read_value(family, key.as_ref())?, buf))
    }
    /// Replaces the contents of `buf` by a value as of the snapshot; see [`Family::get_into_vec`].
    pub fn get_into_vec(
        &self,
        family: &Family,
        key: impl AsRef<[u8]>,
        buf: &mut Vec<u8>,
    ) -> Result<bool> {
        buf.clear();
        Ok(copy_into_vec(self.read_value(family, key.as_ref())?, buf))
    }
}

impl Db {
    /// Calls [`Family::multi_get`] on `default`.
    pub fn multi_get<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Vec<Result<Option<Slice>>> {
        self.default_family().multi_get(keys)
    }
    /// Calls [`Family::get_into`] on `default`.
    pub fn get_into(&self, key: impl AsRef<[u8]>, buf: &mut [u8]) -> Result<Option<usize>> {
        self.default_family().get_into(key, buf)
    }
    /// Calls [`Family::get_into_vec`] on `default`.
    pub fn get_into_vec(&self, key: impl AsRef<[u8]>, buf: &mut Vec<u8>) -> Result<bool> {
        self.default_family().get_into_vec(key, buf)
    }
}
