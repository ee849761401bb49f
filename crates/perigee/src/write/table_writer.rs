//! Standalone table files, built without a database and ingested later.

use crate::env::Env;
use crate::load::LoadReport;
use crate::{Family, FamilyOptions, Result};
use perigee_engine::BytesPreview;
use perigee_engine::bulk_load::{StandaloneTableBuilder, StandaloneTableContents};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Summary of a finished standalone table.
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableSummary {
    /// File size in bytes.
    pub bytes: u64,
    /// Number of entries, deletes included.
    pub entries: u64,
    /// Number of deletes.
    pub tombstones: u64,
    /// Smallest key.
    pub first_key: Vec<u8>,
    /// Largest key.
    pub last_key: Vec<u8>,
}

/// Writes a standalone table (an external SST file in RocksDB): a checksummed file of sorted
/// entries that [`Family::ingest`] adds to a database. Tables can be built on other machines or
/// threads, without access to the database, and ingested together in one step.
///
/// Dropping the writer before [`TableWriter::finish`] deletes the file.
///
/// ```
/// # use perigee::load::TableWriter;
/// # use perigee::{Db, Options};
/// # fn main() -> perigee::Result<()> {
/// # use perigee::env::{Env, fs::memory::SimDisk};
/// # let env = Env { fs: SimDisk::new(1), ..Env::real() };
/// # let db = Db::open("/doc", Options::in_env(env.clone()))?;
/// let mut table = TableWriter::create_in(env, "/doc/2026.table", Default::default())?;
/// table.put("2026/11/21", "high")?;
/// table.put("2026/11/22", "low")?;
/// assert!(table.put("2026/11/01", "earlier").is_err()); // keys must ascend
/// assert_eq!(table.finish()?.entries, 2);
///
/// db.default_family().ingest(&["/doc/2026.table"])?;
/// assert_eq!(db.get("2026/11/22")?.as_deref(), Some(&b"low"[..]));
/// # Ok(())
/// # }
/// ```
pub struct TableWriter(StandaloneTableBuilder);

/// Prints only the first bytes of the keys.
impl fmt::Debug for TableSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableSummary")
            .field("bytes", &self.bytes)
            .field("entries", &self.entries)
            .field("tombstones", &self.tombstones)
            .field("first_key", &BytesPreview(&self.first_key))
            .field("last_key", &BytesPreview(&self.last_key))
            .finish()
    }
}

/// Prints the file name and the size.
impl fmt::Debug for TableWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TableWriter({:?}, {} bytes)", self.0.name(), self.bytes())
    }
}

impl TableWriter {
    /// Creates the file `path`, which must not exist. Only the comparator, block size, compression
    /// and filter bits of `options` are used.
    ///
    /// ```
    /// # use perigee::*;
    /// let path = std::env::temp_dir().join(format!("perigee-doc-{}.table", std::process::id()));
    /// let mut table = perigee::load::TableWriter::create(&path, FamilyOptions::new())?;
    /// table.put("moon", "full")?;
    /// drop(table); // not finished: deletes the file
    /// assert!(!path.exists());
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `AlreadyExists`; `InvalidArgument` if an option is out of range or `path` does not name a
    /// file; `NotFound` if its directory does not exist; `Io`.
    pub fn create(path: impl AsRef<Path>, options: FamilyOptions) -> Result<TableWriter> {
        Self::create_in(Env::real(), path, options)
    }
    /// Creates a table file like [`TableWriter::create`], in the environment `env`.
    ///
    /// ```
    /// # use perigee::*;
    /// # let env = example_env();
    /// let mut table = load::TableWriter::create_in(env, "/1.table", FamilyOptions::new())?;
    /// table.put("moon", "full")?;
    /// assert_eq!(table.finish()?.entries, 1);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn create_in(
        env: Env,
        path: impl AsRef<Path>,
        options: FamilyOptions,
    ) -> Result<TableWriter> {
        let settings = options.to_settings();
        Ok(TableWriter(StandaloneTableBuilder::create(&env, path.as_ref(), &settings)?))
    }

    /// Adds an entry. Keys must be added in strictly ascending order of the comparator.
    ///
    /// ```
    /// # use perigee::*;
    /// # let env = example_env();
    /// # let mut table = load::TableWriter::create_in(env.clone(), "/1.table", Default::default())?;
    /// table.put("moon", "full")?;
    /// assert!(table.put("alp", "high").is_err()); // keys must ascend
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument`, and the table is unchanged, if the key is not greater than the previous
    /// one, the key is too long, or the value is longer than 1 MiB. Load larger values with
    /// [`Family::bulk_load`].
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.0.add(key.as_ref(), Some(value.as_ref()))
    }
    /// Adds a tombstone: after ingestion the key does not exist. Fails like [`TableWriter::put`].
    ///
    /// ```
    /// # use perigee::*;
    /// # let env = example_env();
    /// # let mut table = load::TableWriter::create_in(env.clone(), "/1.table", Default::default())?;
    /// table.delete("moon")?; // hides an older entry of the database
    /// assert_eq!(table.finish()?.tombstones, 1);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.0.add(key.as_ref(), None)
    }

    /// Returns the approximate size in bytes that the file would have if it were finished now.
    ///
    /// ```
    /// # use perigee::*;
    /// # let env = example_env();
    /// # let mut table = load::TableWriter::create_in(env.clone(), "/1.table", Default::default())?;
    /// table.put("moon", vec![7; 1000])?;
    /// assert!(table.bytes() > 0); // for example to start a new file every 64 MiB
    /// # Ok::<(), Error>(())
    /// ```
    pub fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    /// Finishes the file and makes it durable.
    ///
    /// ```
    /// # use perigee::*;
    /// # let env = example_env();
    /// # let mut table = load::TableWriter::create_in(env.clone(), "/1.table", Default::default())?;
    /// table.put("moon", "full")?;
    /// let summary = table.finish()?;
    /// assert_eq!(summary.first_key, b"moon");
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` if the table is empty; `Io`, `NoSpace`. The file is deleted then.
    pub fn finish(self) -> Result<TableSummary> {
        let StandaloneTableContents { bytes, entries, tombstones, first_key, last_key } =
            self.0.finish()?;
        Ok(TableSummary { bytes, entries, tombstones, first_key, last_key })
    }
}

impl Family {
    /// Ingests standalone tables; see [`Admin::ingest_many`](crate::Admin::ingest_many).
    ///
    /// ```
    /// # use perigee::*;
    /// # let env = example_env();
    /// # let mut table = load::TableWriter::create_in(env.clone(), "/1.table", Default::default())?;
    /// table.put("moon", "full")?;
    /// table.finish()?;
    /// let db = Db::open("/db", Options::in_env(env))?;
    /// db.default_family().ingest(&["/1.table"])?;
    /// assert!(db.contains("moon")?);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Same as [`Admin::ingest_many`](crate::Admin::ingest_many).
    pub fn ingest<P: AsRef<Path>>(&self, files: &[P]) -> Result<LoadReport> {
        let files: Vec<PathBuf> = files.iter().map(|p| p.as_ref().to_owned()).collect();
        let (sequence, entries, bytes) = self.engine.ingest(&[(Arc::clone(&self.inner), files)])?;
        Ok(LoadReport { entries, bytes, sequence: sequence.0 })
    }
}
