//! Bulk loads: write many entries directly to table files and make them visible at once.

use crate::write::batch::wrong_database_error;
use crate::{Error, Family, Result};
use perigee_engine::bulk_load::{LoadBuilder, LoadStatus};
use perigee_engine::{Engine, Expiry};
use std::sync::Arc;

/// Progress of a bulk load, passed to the callback after each write to disk.
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoadProgress {
    /// Number of entries added so far.
    pub entries: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// Number of sorted runs on disk: 1 as long as the input is sorted.
    pub runs: usize,
}

/// Result of a bulk load or ingestion.
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoadReport {
    /// Number of entries added; a key that was added twice counts twice.
    pub entries: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// The sequence number of all loaded entries.
    pub sequence: u64,
}

type ProgressCallback = Box<dyn FnMut(LoadProgress) + Send>;

/// A bulk load into one column family: see [`Family::bulk_load`]. Dropping it before
/// [`BulkLoad::finish`] discards the entries.
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
    /// Sets the size of the sort buffer in bytes (default 64 MiB; at most an eighth of the memory
    /// budget). A full buffer is sorted and written as a run, by up to four threads. A larger
    /// buffer means fewer runs to merge if the input is not sorted.
    #[must_use]
    pub fn memory_bytes(mut self, bytes: usize) -> Self {
        self.inner.set_memory_bytes(bytes);
        self
    }
    /// Calls `callback` with the progress after each write to disk and at the end.
    #[must_use]
    pub fn on_progress(mut self, callback: impl FnMut(LoadProgress) + Send + 'static) -> Self {
        self.callback = Some(Box::new(callback));
        self
    }
    /// Returns the progress.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// let mut load = family.bulk_load()?;
    /// load.put("moon", "full")?;
    /// assert_eq!(load.progress().entries, 1);
    /// load.finish()?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn progress(&self) -> LoadProgress {
        let LoadStatus { entries, bytes, runs } = self.inner.status();
        LoadProgress { entries, bytes, runs }
    }

    /// Adds an entry. Keys can be added in any order; if a key is added twice, the last value wins.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// let mut load = family.bulk_load()?;
    /// load.put("tide", "high")?; // in any order
    /// load.put("moon", "full")?;
    /// load.finish()?;
    /// assert_eq!(family.get("moon")?.as_deref(), Some(&b"full"[..]));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` if the key or value exceeds a limit: the load can continue. After any
    /// other error, drop the load.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.add_entry(key.as_ref(), value.as_ref(), None)
    }
    /// Adds an entry that expires at `expires_at_ms`, in milliseconds since the Unix epoch; see
    /// [`Family::put_until`].
    ///
    /// ```
    /// # use perigee::{Db, Options};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
    /// let mut load = db.default_family().bulk_load()?;
    /// load.put("tide table", "2026")?;
    /// load.put_until("offer", "spring", 4_102_444_800_000)?; // the year 2100
    /// load.finish()?;
    /// let offer = db.default_family().get_with_ttl("offer")?.expect("not expired yet");
    /// assert_eq!(offer.expires_at_ms, Some(4_102_444_800_000));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`BulkLoad::put`].
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

    /// Sorts and writes what is still in memory, so that [`BulkLoad::finish`] has little left to
    /// do. Nothing becomes visible, and no more entries can be added. Returns the number of
    /// distinct keys: it is less than the number of entries added if a key was added twice.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// let mut load = family.bulk_load()?;
    /// for (moon, tide) in [("full", "high"), ("new", "high"), ("full", "low")] {
    ///     load.put(moon, tide)?;
    /// }
    /// assert_eq!((load.progress().entries, load.prepare()?), (3, 2));
    /// assert!(!family.contains("full")?); // not before the end
    /// load.finish()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` if the load has ended. After any other error, drop the load.
    pub fn prepare(&mut self) -> Result<u64> {
        self.inner.prepare()
    }

    /// Makes all entries visible atomically and durably. After `Ok` the load has ended.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// let mut load = family.bulk_load()?;
    /// load.put("moon", "full")?;
    /// assert!(!family.contains("moon")?); // not before the end
    /// assert_eq!(load.finish()?.entries, 1);
    /// assert!(family.contains("moon")?);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// - `Busy` if background work is paused: call `finish` again later.
    /// - `OutcomeUnknown`: after the next open either all entries are present or none.
    /// - Any other error: no entry is visible or ever will be.
    pub fn finish(&mut self) -> Result<LoadReport> {
        let engine = Arc::clone(&self.engine);
        let mut reports = finish_all(&engine, &mut [self])?;
        reports.pop().ok_or_else(|| Error::internal("a bulk load has finished without a report"))
    }
    /// Finishes loads into different column families together: all of them become visible
    /// atomically, or none. Returns one report per load, in the order of `loads`.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// let tides = db.create_family("tides", FamilyOptions::new())?;
    /// let mut loads = [db.default_family().bulk_load()?, tides.bulk_load()?];
    /// loads[0].put("moon", "full")?;
    /// loads[1].put("06:12", "high")?;
    /// let reports = perigee::load::BulkLoad::finish_all(&mut loads)?; // one atomic step
    /// assert_eq!(reports.len(), 2);
    /// assert!(tides.contains("06:12")?);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` if the loads belong to different open databases; as [`BulkLoad::finish`]
    /// otherwise.
    pub fn finish_all(loads: &mut [BulkLoad]) -> Result<Vec<LoadReport>> {
        let Some(engine) = loads.first().map(|load| Arc::clone(&load.engine)) else {
            return Ok(Vec::new());
        };
        if loads.iter().any(|load| !Arc::ptr_eq(&load.engine, &engine)) {
            return Err(wrong_database_error());
        }
        let mut all: Vec<&mut BulkLoad> = loads.iter_mut().collect();
        finish_all(&engine, &mut all)
    }
}

fn finish_all(engine: &Engine, loads: &mut [&mut BulkLoad]) -> Result<Vec<LoadReport>> {
    let mut inner: Vec<&mut LoadBuilder> = loads.iter_mut().map(|l| &mut l.inner).collect();
    let sequence = engine.publish_loads(&mut inner)?.0;
    check!(
        sequence <= engine.visible_seq().0,
        "a load is visible when it is finished",
        sequence,
        engine.visible_seq()
    );
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
    /// Starts a bulk load: entries are written directly to table files, bypassing the log and the
    /// memtable. All of them become visible and durable at once when [`BulkLoad::finish`] returns.
    /// Until then reads do not see them, and reads and writes continue normally.
    ///
    /// Sorted input is written once, to the deepest level at which no table overlaps its key range.
    /// Unsorted input is sorted in runs in the database directory and merged in a second pass.
    ///
    /// All loaded entries get one sequence number at `finish`: they are newer than every write
    /// committed before, and snapshots taken before do not see them. After a crash either all or
    /// none of the entries are present.
    ///
    /// `finish` blocks writers for a few syncs. If a memtable overlaps the key range of the load,
    /// `finish` flushes it first, without blocking writers. Entries that are written to this range
    /// during that flush are flushed while writers are blocked.
    ///
    /// ```
    /// # use perigee::{Db, Options};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
    /// let family = db.default_family();
    /// let mut load = family.bulk_load()?.on_progress(|p| println!("{} entries", p.entries));
    /// for i in 0..1000u32 {
    ///     load.put(i.to_be_bytes(), "value")?;
    /// }
    /// assert_eq!(db.get(7u32.to_be_bytes())?, None); // not visible yet
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
