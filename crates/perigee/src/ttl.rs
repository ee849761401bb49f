//! Entries that expire: putting them, reading what is left of them, and what the database thinks of
//! the clock.

use crate::{Cursor, Db, Family, Result, Slice, Snapshot, WriteBatch};
use perigee_base::{Expiry, ExpiryClock, SeqNo};
use perigee_engine::logical_clock::LogicalClockStatus as Status;
use perigee_file::log::Batch;
use perigee_tree::{View, get};
use std::time::Duration;

/// A value with the time it has left. See [`Family::get_with_ttl`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ValueWithTtl {
    /// The value.
    pub value: Slice,
    /// When it expires, in milliseconds since the Unix epoch; `None`: never.
    pub expires_at_ms: Option<u64>,
    /// How long that is from now; `None`: for ever.
    pub remaining: Option<Duration>,
}

/// What the database thinks of the clock. See [`Db::clock`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClockStatus {
    /// The time that reads go by, in milliseconds since the Unix epoch: the wall clock, kept from
    /// going back.
    pub now_ms: u64,
    /// The time up to which expired entries may be destroyed.
    pub confirmed_ms: u64,
    /// Whether the wall clock has jumped forward and is not yet confirmed.
    pub jumped: bool,
}

fn read_with_ttl(view: &View, key: &[u8], at: SeqNo) -> Result<Option<ValueWithTtl>> {
    let Some(found) = get::lookup_live(view, key, at)? else { return Ok(None) };
    let expires_at_ms = found.expiry().map(|x| x.0);
    let remaining =
        expires_at_ms.map(|ms| Duration::from_millis(ms.saturating_sub(view.now.now_ms())));
    let value = Slice(get::read_value(view, key, at, found)?);
    Ok(Some(ValueWithTtl { value, expires_at_ms, remaining }))
}

impl Family {
    pub(crate) fn expiry_after(&self, ttl: Duration) -> Expiry {
        Expiry::after_ttl(self.engine.logical_clock().now_ms(), ttl.as_millis())
    }

    /// Sets `key` to `value` for as long as `ttl`. Then the key is gone for every reader, snapshots
    /// included: an expired version hides older ones as a deletion does, and compaction reclaims
    /// it. Times count in milliseconds.
    ///
    /// The time counts from what reads go by ([`ClockStatus::now_ms`]), also while the wall clock
    /// has jumped and is not believed: any earlier end would hide the entry from its own writer. So
    /// if that clock was wrong and is set right, the entry lives longer, by as much as it was
    /// ahead. Where that matters, look at [`ClockStatus::jumped`], or put again later.
    ///
    /// ```
    /// # use perigee::{Db, Options};
    /// # use std::time::Duration;
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
    /// let sessions = db.default_family();
    /// sessions.put_with_ttl("s1", "alice", Duration::from_secs(3600))?;
    /// let session = sessions.get_with_ttl("s1")?.expect("an hour has not passed");
    /// assert_eq!(&session.value[..], b"alice");
    /// assert!(session.remaining.is_some_and(|left| left <= Duration::from_secs(3600)));
    ///
    /// sessions.put_with_ttl("s1", "bob", Duration::ZERO)?;
    /// assert_eq!(sessions.get("s1")?, None, "gone at once, and the older version stays hidden");
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
    /// Sets `key` to `value` up to a time, in milliseconds since the Unix epoch; `u64::MAX` never
    /// comes.
    pub fn put_until(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expires_at_ms: u64,
    ) -> Result<()> {
        let mut batch = Batch::new();
        batch.put_expiring(self.inner.id, key.as_ref(), value.as_ref(), Expiry(expires_at_ms))?;
        self.engine.write(batch, None)
    }
    /// The value of `key`, and when it expires.
    pub fn get_with_ttl(&self, key: impl AsRef<[u8]>) -> Result<Option<ValueWithTtl>> {
        let (view, at) = self.engine.read_view(&self.inner)?;
        let found = read_with_ttl(&view, key.as_ref(), at)?;
        self.engine.count_get(found.is_some());
        Ok(found)
    }
}

impl Db {
    /// [`Family::put_with_ttl`] on `default`.
    pub fn put_with_ttl(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Duration,
    ) -> Result<()> {
        self.default_family().put_with_ttl(key, value, ttl)
    }
    /// [`Family::put_until`] on `default`.
    pub fn put_until(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expires_at_ms: u64,
    ) -> Result<()> {
        self.default_family().put_until(key, value, expires_at_ms)
    }
    /// [`Family::get_with_ttl`] on `default`.
    pub fn get_with_ttl(&self, key: impl AsRef<[u8]>) -> Result<Option<ValueWithTtl>> {
        self.default_family().get_with_ttl(key)
    }
    /// What the database thinks of the clock.
    ///
    /// Reads go by the wall clock, or by the latest time that was believed if that is later: a
    /// clock that is set back brings nothing back. A clock that is suddenly more than an hour ahead
    /// of the monotonic clock is not yet believed: what it says has expired is hidden, but not
    /// destroyed before two flushes or [`Db::confirm_clock`]. Setting it right before that brings
    /// everything back.
    pub fn clock(&self) -> ClockStatus {
        let Status { now_ms, confirmed_ms: settled_ms, jumped } =
            self.engine().logical_clock().status();
        ClockStatus { now_ms, confirmed_ms: settled_ms, jumped }
    }
    /// Says that the wall clock is right: what it says has expired may be destroyed.
    pub fn confirm_clock(&self) {
        self.engine().confirm_wall_clock();
    }
}

impl WriteBatch {
    /// As [`Family::put_with_ttl`]; the time counts from now, not from the commit.
    ///
    /// ```
    /// # use perigee::{Db, Options, WriteBatch};
    /// # use std::time::Duration;
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
    /// let mut batch = WriteBatch::new();
    /// batch.put_with_ttl(&db.default_family(), "token", "a7f3", Duration::from_secs(60))?;
    /// batch.put_until(&db.default_family(), "offer", "spring", 4_102_444_800_000)?; // the year 2100
    /// db.write(batch)?;
    /// assert_eq!(db.get_with_ttl("offer")?.and_then(|o| o.expires_at_ms), Some(4_102_444_800_000));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`WriteBatch::put`].
    pub fn put_with_ttl(
        &mut self,
        family: &Family,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Duration,
    ) -> Result<()> {
        self.put_until(family, key, value, family.expiry_after(ttl).0)
    }
    /// As [`Family::put_until`].
    ///
    /// # Errors
    /// As [`WriteBatch::put`].
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

impl Snapshot {
    /// The value of `key` then, and when it expires. Time does not stand still in a snapshot: what
    /// has expired since it was taken is gone from it too.
    pub fn get_with_ttl(
        &self,
        family: &Family,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<ValueWithTtl>> {
        let view = self.engine.view_at(family.inner_for(&self.engine)?, &self.handle)?;
        let found = read_with_ttl(&view, key.as_ref(), self.handle.seq())?;
        self.engine.count_get(found.is_some());
        Ok(found)
    }
}

impl Cursor {
    /// When the entry expires, in milliseconds since the Unix epoch; `None`: never, or the cursor
    /// is not valid. An entry that expires while the cursor is on it stays readable there.
    pub fn expires_at_ms(&self) -> Option<u64> {
        self.inner().expiry().map(|x| x.0)
    }
}
