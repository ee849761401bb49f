//! Bulk loads: write many entries directly to table files and make them visible at once.

use crate::batch::wrong_database_error;
use crate::{Db, Error, Family, Result};
use perigee_base::Expiry;
use perigee_engine::Engine;
use perigee_engine::load::{self, LoadBuilder};
use std::sync::Arc;

/// Progress of a bulk load, passed to the callback after each write to disk.
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
    /// budget). A full buffer is sorted and written as a run. A larger buffer means fewer runs to
    /// merge if the input is not sorted.
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
    pub fn progress(&self) -> LoadProgress {
        let load::LoadStatus { entries, bytes, runs } = self.inner.status();
        LoadProgress { entries, bytes, runs }
    }

    /// Adds an entry. Keys can be added in any order; if a key is added twice, the last value wins.
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
    /// let mut load = db.bulk_load(&db.default_family())?;
    /// load.put("tide table", "2026")?;
    /// load.put_until("offer", "spring", 4_102_444_800_000)?; // the year 2100
    /// load.finish()?;
    /// let offer = db.get_with_ttl("offer")?.expect("not expired yet");
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

    /// Makes all entries visible atomically and durably. After `Ok` the load has ended.
    ///
    /// # Errors
    /// - `Busy` if background work is paused: call `finish` again later.
    /// - `OutcomeUnknown`: after the next open either all entries are there or none.
    /// - Any other error: no entry is visible or ever will be.
    pub fn finish(&mut self) -> Result<LoadReport> {
        let engine = Arc::clone(&self.engine);
        let mut reports = finish_all(&engine, &mut [self])?;
        reports.pop().ok_or_else(|| Error::internal("a bulk load has finished without a report"))
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
    /// Starts a bulk load: entries are written directly to table files, bypassing the log and the
    /// memtable. All of them become visible and durable at once when [`BulkLoad::finish`] returns.
    /// Until then reads do not see them, and reads and writes continue normally.
    ///
    /// Sorted input is written once, to the deepest level at which no table overlaps its key range.
    /// Unsorted input is sorted in runs in the database directory and merged in a second pass.
    ///
    /// All loaded entries get one sequence number at `finish`: they are newer than every write
    /// committed before, and snapshots taken before do not see them. After a crash all or none of
    /// the entries are there.
    ///
    /// `finish` blocks writers for a few syncs. If a memtable overlaps the key range of the load,
    /// `finish` flushes it first, without blocking writers; what they write to this range during
    /// that flush is flushed with writers blocked.
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

impl Db {
    /// Starts a bulk load into `family`; see [`Family::bulk_load`].
    ///
    /// # Errors
    /// `InvalidArgument` if the column family belongs to another open database.
    pub fn bulk_load(&self, family: &Family) -> Result<BulkLoad> {
        family.inner_for(&self.engine)?;
        family.bulk_load()
    }
    /// Finishes loads into different column families together: all of them become visible
    /// atomically, or none. Returns one report per load, in the order of `loads`.
    ///
    /// # Errors
    /// `InvalidArgument` if a load belongs to another open database; as [`BulkLoad::finish`]
    /// otherwise.
    pub fn finish_loads(&self, loads: &mut [BulkLoad]) -> Result<Vec<LoadReport>> {
        if loads.iter().any(|load| !Arc::ptr_eq(&load.engine, &self.engine)) {
            return Err(wrong_database_error());
        }
        let mut all: Vec<&mut BulkLoad> = loads.iter_mut().collect();
        if all.is_empty() { Ok(Vec::new()) } else { finish_all(&self.engine, &mut all) }
    }
}
