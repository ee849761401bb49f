//! Richer reads: many keys at once, and values into a caller's buffer.

use crate::{Db, Error, Family, Result, Slice, Snapshot};
use perigee_base::latency::Operation;
use perigee_base::{PinnedSlice, SeqNo};
use perigee_engine::Engine;
use perigee_tree::View;
use perigee_tree::get;
use perigee_tree::multi_get::multi_get;
use std::sync::Arc;

/// What a database that cannot be read at all answers for every key.
fn fail_all(keys: usize, e: &Error) -> Vec<Result<Option<Slice>>> {
    (0..keys).map(|_| Err(e.clone())).collect()
}

fn multi_get_at<K: AsRef<[u8]>>(
    engine: &Engine,
    place: Result<(Arc<View>, SeqNo)>,
    keys: impl IntoIterator<Item = K>,
) -> Vec<Result<Option<Slice>>> {
    let keys: Vec<K> = keys.into_iter().collect();
    let (view, at) = match place {
        Ok(place) => place,
        Err(e) => return fail_all(keys.len(), &e),
    };
    let borrowed: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
    let started = engine.start_timer(Operation::MultiGet, 0);
    let answers = multi_get(&view, &borrowed, at);
    engine.stop_timer(Operation::MultiGet, started);
    answers.iter().flatten().for_each(|value| engine.count_get(value.is_some()));
    answers.into_iter().map(|a| a.map(|v| v.map(Slice))).collect()
}

/// Copies a value if it fits; its length in any case.
fn copy_into_slice(value: Option<PinnedSlice>, buf: &mut [u8]) -> Option<usize> {
    let value = value?;
    if let Some(part) = buf.get_mut(..value.len()) {
        part.copy_from_slice(&value);
    }
    Some(value.len())
}

/// Replaces the contents of `buf` by a value; without one it is empty.
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

    /// The values of many keys, in the order of the keys, all read at one moment. Much cheaper than
    /// single gets when keys lie near each other (each block is read and decompressed once) or when
    /// they come from the disk (reads are announced to the system, which fetches them side by
    /// side).
    ///
    /// Each key has an answer of its own: an `Err` (damage, a failed read) says that this key's
    /// value is unknown, never that it is not there, and leaves the others alone. On a closed
    /// database or dropped family every answer is the error. Keys may repeat. A pinned value keeps
    /// its block in memory: copy what is to be kept.
    ///
    /// ```
    /// # use perigee::{Db, Options};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
    /// db.put("moon", "full")?;
    /// db.put("tide", "high")?;
    /// let answers: Vec<_> = db.multi_get(["tide", "wind", "moon"]).into_iter().collect::<Result<_, _>>()?;
    /// assert_eq!(answers[0].as_deref(), Some(&b"high"[..]));
    /// assert_eq!(answers[1], None);
    /// assert_eq!(answers[2].as_deref(), Some(&b"full"[..]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn multi_get<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Vec<Result<Option<Slice>>> {
        multi_get_at(&self.engine, self.current_view(), keys)
    }

    /// Copies the value of `key` to the start of `buf` and answers with its length; `None` if there
    /// is none.
    ///
    /// If `buf` is too small the answer is the length that is needed (larger than `buf.len()`), and
    /// `buf` is as it was.
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

    /// Replaces the contents of `buf` by the value of `key`, reusing its memory; whether there is
    /// one. Without a value, or after an error, `buf` is empty.
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
    /// [`Family::multi_get`] as of the snapshot.
    pub fn multi_get<K: AsRef<[u8]>>(
        &self,
        family: &Family,
        keys: impl IntoIterator<Item = K>,
    ) -> Vec<Result<Option<Slice>>> {
        let view = family
            .inner_for(&self.engine)
            .and_then(|family| self.engine.view_at(family, &self.handle));
        let place = view.map(|view| (view, self.handle.seq()));
        multi_get_at(&self.engine, place, keys)
    }
    /// [`Family::get_into`] as of the snapshot.
    pub fn get_into(
        &self,
        family: &Family,
        key: impl AsRef<[u8]>,
        buf: &mut [u8],
    ) -> Result<Option<usize>> {
        Ok(copy_into_slice(self.read_value(family, key.as_ref())?, buf))
    }
    /// [`Family::get_into_vec`] as of the snapshot.
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
    /// [`Family::multi_get`] on `default`.
    pub fn multi_get<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Vec<Result<Option<Slice>>> {
        self.default_family().multi_get(keys)
    }
    /// [`Family::get_into`] on `default`.
    pub fn get_into(&self, key: impl AsRef<[u8]>, buf: &mut [u8]) -> Result<Option<usize>> {
        self.default_family().get_into(key, buf)
    }
    /// [`Family::get_into_vec`] on `default`.
    pub fn get_into_vec(&self, key: impl AsRef<[u8]>, buf: &mut Vec<u8>) -> Result<bool> {
        self.default_family().get_into_vec(key, buf)
    }
}
