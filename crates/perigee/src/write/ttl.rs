//! Entries that expire (time to live): writing them, reading their remaining time, and the clock.

use crate::{Cursor, Family, Readable, Result, Slice, WriteBatch, limits};
use perigee_engine::reader::ExpiringValue;
use perigee_engine::{Batch, Expiry};
use std::time::Duration;

/// A value with its expiry time. See [`Family::get_with_ttl`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ValueWithTtl {
    /// The value.
    pub value: Slice,
    /// Expiry time in milliseconds since the Unix epoch; `None`: never expires.
    pub expires_at_ms: Option<u64>,
    /// Time left until it expires; `None`: never expires.
    pub remaining: Option<Duration>,
}

/// State of the clock that decides which entries have expired. See
/// [`Admin::clock`](crate::Admin::clock).
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClockStatus {
    /// Current time for reads, in milliseconds since the Unix epoch: the wall clock, except that it
    /// never goes backward.
    pub now_ms: u64,
    /// Entries that expired before this time, in milliseconds since the Unix epoch, may be removed
    /// from disk.
    pub confirmed_ms: u64,
    /// True if the wall clock has jumped forward and the jump is not confirmed yet.
    pub jumped: bool,
}

impl ValueWithTtl {
    pub(crate) fn from_engine(found: ExpiringValue) -> ValueWithTtl {
        let expires_at_ms = found.expiry.map(|x| x.0);
        let remaining =
            expires_at_ms.map(|ms| Duration::from_millis(ms.saturating_sub(found.now_ms)));
        ValueWithTtl { value: Slice(found.value), expires_at_ms, remaining }
    }
}

impl Family {
    pub(crate) fn expiry_after(&self, ttl: Duration) -> Expiry {
        self.engine.expiry_after(ttl)
    }

    /// Sets `key` to `value` with a time to live of `ttl`, with millisecond resolution. After that
    /// time the key does not exist for any reader, snapshots included: an expired entry hides older
    /// versions like a delete, and compactions remove it.
    ///
    /// `ttl` is added to [`ClockStatus::now_ms`], even if the wall clock has jumped forward and the
    /// jump is not confirmed; otherwise the writer might not see its own entry. If the clock was
    /// wrong and is corrected later, the entry lives longer, by as much as the clock was ahead. If
    /// this matters, check [`ClockStatus::jumped`] before writing.
    ///
    /// ```
    /// # use perigee::{Db, Options};
    /// # use std::time::Duration;
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
    /// let sessions = db.default_family();
    /// sessions.put_with_ttl("s1", "alice", Duration::from_secs(3600))?;
    /// let session = sessions.get_with_ttl("s1")?.expect("not expired yet");
    /// assert_eq!(&session.value[..], b"alice");
    /// assert!(session.remaining.is_some_and(|left| left <= Duration::from_secs(3600)));
    ///
    /// sessions.put_with_ttl("s1", "bob", Duration::ZERO)?;
    /// assert_eq!(sessions.get("s1")?, None, "expired at once; still hides older versions");
    /// # Ok(())
    /// # }
    /// ```
    pub fn put_with_ttl(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Duration,
    ) -> Result<()> {
        self.put_until(key, value, self.expiry_after(ttl).0)
    }
    /// Sets `key` to `value` until `expires_at_ms`, in milliseconds since the Unix epoch;
    /// `u64::MAX` means never.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// let tomorrow = db.admin().clock().now_ms + 24 * 60 * 60 * 1000;
    /// family.put_until("session", "alice", tomorrow)?;
    /// let found = family.get_with_ttl("session")?.expect("it has not expired");
    /// assert_eq!(found.expires_at_ms, Some(tomorrow));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Same as [`Family::put`].
    pub fn put_until(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expires_at_ms: u64,
    ) -> Result<()> {
        let (key, value, expiry) = (key.as_ref(), value.as_ref(), Expiry(expires_at_ms));
        if value.len() > limits::VALUE_BYTES_MAX {
            return self.put_long(key, value, Some(expiry));
        }
        let mut batch = Batch::new();
        batch.put_expiring(self.inner.id, key, value, expiry)?;
        self.engine.write(batch, None)
    }
    /// Returns the value of `key` with its expiry time, or `None` if the key does not exist.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// family.put_with_ttl("session", "alice", std::time::Duration::from_secs(60))?;
    /// let found = family.get_with_ttl("session")?.expect("it has not expired");
    /// assert_eq!(found.value, "alice");
    /// assert!(found.remaining.is_some());
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Same as [`Family::get`].
    pub fn get_with_ttl(&self, key: impl AsRef<[u8]>) -> Result<Option<ValueWithTtl>> {
        Readable::get_with_ttl(self, key)
    }
}

impl WriteBatch {
    /// Adds a put with a time to live; see [`Family::put_with_ttl`]. The time starts now, not at
    /// the commit.
    ///
    /// ```
    /// # use perigee::{Db, Options, WriteBatch};
    /// # use std::time::Duration;
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
    /// let mut batch = WriteBatch::new();
    /// batch.put_with_ttl(&db.default_family(), "token", "a7f3", Duration::from_secs(60))?;
    /// let year_2100 = 4_102_444_800_000;
    /// batch.put_until(&db.default_family(), "offer", "spring", year_2100)?;
    /// db.write(batch)?;
    /// assert_eq!(db.default_family().get_with_ttl("offer")?.and_then(|o| o.expires_at_ms), Some(year_2100));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`WriteBatch::put`].
    pub fn put_with_ttl(
        &mut self,
        family: &Family,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Duration,
    ) -> Result<()> {
        self.put_until(family, key, value, family.expiry_after(ttl).0)
    }
    /// Adds a put that expires at `expires_at_ms`, in milliseconds since the Unix epoch; see
    /// [`Family::put_until`].
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// let tomorrow = db.admin().clock().now_ms + 24 * 60 * 60 * 1000;
    /// let mut batch = WriteBatch::new();
    /// batch.put_until(&family, "session", "alice", tomorrow)?;
    /// db.write(batch)?;
    /// assert!(family.contains("session")?);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Same as [`WriteBatch::put`].
    pub fn put_until(
        &mut self,
        family: &Family,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expires_at_ms: u64,
    ) -> Result<()> {
        self.operations_for(family)?.put_expiring(
            family.inner.id,
            key.as_ref(),
            value.as_ref(),
            Expiry(expires_at_ms),
        )
    }
}

impl Cursor {
    /// Returns the expiry time of the current entry in milliseconds since the Unix epoch; `None` if
    /// it never expires or the cursor is not valid. An entry that expires while the cursor is on it
    /// stays readable there.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// family.put_until("session", "alice", u64::MAX / 2)?;
    /// let mut cursor = family.cursor()?;
    /// cursor.seek_to_first()?;
    /// assert_eq!(cursor.expires_at_ms(), Some(u64::MAX / 2));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn expires_at_ms(&self) -> Option<u64> {
        self.inner().expiry().map(|x| x.0)
    }
}
