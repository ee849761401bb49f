//! Bulk load: many entries straight into tables, visible all at once.

use crate::batch::wrong_database_error;
use crate::{Db, Error, Family, Result};
use perigee_base::Expiry;
use perigee_engine::Engine;
use perigee_engine::load::{self, LoadBuilder};
use std::sync::Arc;

/// How far a bulk load is, as its callback hears it after each write to disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoadProgress {
    /// Entries given so far.
    pub entries: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// Sorted runs on disk: 1 while the input has come in order.
    pub runs: usize,
}

/// What a bulk load did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoadReport {
    /// Entries given, repeated keys included.
    pub entries: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// The sequence number under which all of them became visible.
    pub sequence: u64,
}

type ProgressCallback = Box<dyn FnMut(LoadProgress) + Send>;

/// A bulk load of one family: see [`Family::bulk_load`].
pub struct BulkLoad {
    inner: LoadBuilder,
    engine: Arc<Engine>,
    callback: Option<ProgressCallback>,
}

impl std::fmt::Debug for BulkLoad {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BulkLoad({:?})", self.progress())
    }
}

impl BulkLoad {
    /// Entries are gathered up to so many bytes of memory, then sorted and written (default 64
    /// MiB). More means fewer runs to merge when the input is not sorted.
    #[must_use]
    pub fn memory_bytes(mut self, bytes: usize) -> Self {
        self.inner.set_memory_bytes(bytes);
        self
    }
    /// Calls `callback` after every write to disk.
    #[must_use]
    pub fn on_progress(mut self, callback: impl FnMut(LoadProgress) + Send + 'static) -> Self {
        self.callback = Some(Box::new(callback));
        self
    }
    /// How far it is.
    pub fn progress(&self) -> LoadProgress {
        let load::LoadStatus { entries, bytes, runs } = self.inner.status();
        LoadProgress { entries, bytes, runs }
    }

    /// Adds an entry. Keys may come in any order; of a key that comes twice the last value stays.
    ///
    /// # Errors
    /// `InvalidArgument` if the key or value breaks a limit: the load can go on. After any other
    /// error drop it.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.add_entry(key.as_ref(), value.as_ref(), None)
    }
    /// Adds an entry that expires at a time, in milliseconds since the Unix epoch, as
    /// [`Family::put_until`].
    ///
    /// ```
    /// # use perigee::{Db, Options};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
    /// let mut load = db.bulk_load(&db.default_family())?;
    /// load.put("tide table", "2026")?;
    /// load.put_until("offer", "spring", 4_102_444_800_000)?; // the year 2100
    /// load.finish()?;
    /// assert_eq!(db.get_with_ttl("offer")?.and_then(|o| o.expires_at_ms), Some(4_102_444_800_000));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`BulkLoad::put`].
    pub fn put_until(
        &mut self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expires_at_ms: u64,
    ) -> Result<()> {
        self.add_entry(key.as_ref(), value.as_ref(), Some(Expiry(expires_at_ms)))
    }

    fn add_entry(&mut self, key: &[u8], value: &[u8], expiry: Option<Expiry>) -> Result<()> {
        if self.inner.put(key, value, expiry)? {
            self.report_progress();
        }
        Ok(())
    }

    fn report_progress(&mut self) {
        let progress = self.progress();
        if let Some(callback) = &mut self.callback {
            callback(progress);
        }
    }

    /// Makes everything visible, at once and durably.
    ///
    /// # Errors
    /// `Busy` while background work is paused: call it again later. `OutcomeUnknown`: after
    /// reopening all of it is there, or nothing. Any other error: nothing of it is there and never
    /// will be.
    pub fn finish(&mut self) -> Result<LoadReport> {
        let engine = Arc::clone(&self.engine);
        let mut reports = finish_all(&engine, &mut [self])?;
        reports.pop().ok_or_else(|| Error::internal("a load was finished without a report"))
    }
}

fn finish_all(engine: &Engine, loads: &mut [&mut BulkLoad]) -> Result<Vec<LoadReport>> {
    let mut inner: Vec<&mut LoadBuilder> = loads.iter_mut().map(|l| &mut l.inner).collect();
    let sequence = engine.publish_loads(&mut inner)?.0;
    Ok(loads
        .iter_mut()
        .map(|l| {
            l.report_progress();
            let p = l.progress();
            LoadReport { entries: p.entries, bytes: p.bytes, sequence }
        })
        .collect())
}

impl Family {
    /// Starts a bulk load: entries go straight into sorted tables, past the log and the memtable,
    /// and become visible and durable all at once when [`BulkLoad::finish`] returns. Readers and
    /// writers go on meanwhile and see nothing of it.
    ///
    /// Sorted input is written once, to the deepest level where no table shares its keys; unsorted
    /// input is sorted in runs in the database directory and merged once more. The load is one
    /// moment in the order of writes: everything written before `finish` is older, whatever the
    /// keys; snapshots taken before do not see it. A crash leaves everything or nothing; dropping a
    /// load leaves nothing. `finish` holds writers up for a few syncs, and for the flush of what
    /// they wrote to keys between the load's first and last while it was waiting for them.
    ///
    /// ```
    /// # use perigee::{Db, Options};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
    /// let mut load = db.bulk_load(&db.default_family())?.on_progress(|p| println!("{} entries", p.entries));
    /// for i in 0..1000u32 {
    ///     load.put(i.to_be_bytes(), "value")?;
    /// }
    /// assert_eq!(db.get(7u32.to_be_bytes())?, None); // nothing yet
    /// let report = load.finish()?;
    /// assert_eq!(report.entries, 1000);
    /// assert_eq!(db.get(7u32.to_be_bytes())?.as_deref(), Some(&b"value"[..]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn bulk_load(&self) -> Result<BulkLoad> {
        let inner = self.engine.bulk_load(&self.inner)?;
        Ok(BulkLoad { inner, engine: Arc::clone(&self.engine), callback: None })
    }
}

impl Db {
    /// [`Family::bulk_load`] of `family`.
    ///
    /// # Errors
    /// `InvalidArgument` if the family belongs to another open database.
    pub fn bulk_load(&self, family: &Family) -> Result<BulkLoad> {
        family.inner_for(&self.engine)?;
        family.bulk_load()
    }
    /// Finishes several loads of different families together: all of them become visible at one
    /// sequence number, or none.
    ///
    /// # Errors
    /// `InvalidArgument` if a load belongs to another open database; those of [`BulkLoad::finish`].
    pub fn finish_loads(&self, loads: &mut [BulkLoad]) -> Result<Vec<LoadReport>> {
        if loads.iter().any(|load| !Arc::ptr_eq(&load.engine, &self.engine)) {
            return Err(wrong_database_error());
        }
        let mut all: Vec<&mut BulkLoad> = loads.iter_mut().collect();
        if all.is_empty() { Ok(Vec::new()) } else { finish_all(&self.engine, &mut all) }
    }
}
