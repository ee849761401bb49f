//! Reads of many keys at once, and reads into a buffer of the caller.

use crate::{Family, Readable, Result, Slice};

impl Family {
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
    /// let values = db.default_family().multi_get(["tide", "wind", "moon"]);
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
        Readable::multi_get(self, keys)
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
    /// assert_eq!(db.default_family().get_into("moon", &mut buf)?, Some(4));
    /// assert_eq!(&buf[..4], b"full");
    /// assert_eq!(db.default_family().get_into("moon", &mut [])?, Some(4)); // too small: nothing was copied
    /// assert_eq!(db.default_family().get_into("sun", &mut buf)?, None);
    /// # Ok(())
    /// # }
    /// ```
    pub fn get_into(&self, key: impl AsRef<[u8]>, buf: &mut [u8]) -> Result<Option<usize>> {
        Readable::get_into(self, key, buf)
    }

    /// Replaces the contents of `buf` with the value of `key`, reusing the memory of `buf`, and
    /// returns true if the key exists. If it does not, or after an error, `buf` is empty.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// family.put("moon", "full")?;
    /// let mut buf = Vec::new(); // reused for many reads
    /// assert!(family.get_into_vec("moon", &mut buf)?);
    /// assert_eq!(buf, b"full");
    /// assert!(!family.get_into_vec("sun", &mut buf)? && buf.is_empty());
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Same as [`Family::get`].
    pub fn get_into_vec(&self, key: impl AsRef<[u8]>, buf: &mut Vec<u8>) -> Result<bool> {
        Readable::get_into_vec(self, key, buf)
    }
}
