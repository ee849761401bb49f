//! Standalone table files, built without a database and ingested later.

use crate::env::{Dir, DirOpenMode, Env};
use crate::{Db, Error, Family, FamilyOptions, LoadReport, Result, translate};
use perigee_base::pinned_slice::BytesPreview;
use perigee_base::{EntryRef, FamilyId, SeqNo, ValueRef, limits};
use perigee_file::klog::standalone;
use perigee_file::{KlogOptions, KlogWriter};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Summary of a finished standalone table.
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
/// entries that [`Db::ingest`] adds to a database. Tables can be built on other machines or
/// threads, without access to the database, and ingested together in one step.
///
/// Dropping the writer before [`TableWriter::finish`] deletes the file.
///
/// ```
/// # use perigee::{Db, Options, TableWriter};
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
/// db.ingest(&db.default_family(), &["/doc/2026.table"])?;
/// assert_eq!(db.get("2026/11/22")?.as_deref(), Some(&b"low"[..]));
/// # Ok(())
/// # }
/// ```
pub struct TableWriter {
    dir: Arc<dyn Dir>,
    name: String,
    writer: Option<KlogWriter>,
    comparator: perigee_base::KeyComparator,
    last: Option<Vec<u8>>,
}

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
        write!(f, "TableWriter({:?}, {} bytes)", self.name, self.bytes())
    }
}

impl TableWriter {
    /// Creates the file `path`, which must not exist. Of `options`, only comparator, block size,
    /// compression and filter bits are used.
    ///
    /// # Errors
    /// `AlreadyExists`; `InvalidArgument` if an option is out of range or `path` does not name a
    /// file; `NotFound` if its directory does not exist; `Io`.
    pub fn create(path: impl AsRef<Path>, options: FamilyOptions) -> Result<TableWriter> {
        Self::create_in(Env::real(), path, options)
    }
    /// Creates a table file like [`TableWriter::create`], in the environment `env`.
    pub fn create_in(
        env: Env,
        path: impl AsRef<Path>,
        options: FamilyOptions,
    ) -> Result<TableWriter> {
        let path = path.as_ref();
        let settings = translate::family_settings(&options);
        settings.check()?;
        let name = path.file_name().and_then(|n| n.to_str());
        let name =
            name.ok_or_else(|| Error::invalid(format!("{} does not name a file", path.display())))?;
        let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let dir = env.fs.open_dir(parent, DirOpenMode::Existing)?;
        let format = KlogOptions {
            database: standalone::DATABASE,
            family: FamilyId::NONE,
            comparator: settings.comparator,
            block_bytes: settings.block_bytes as usize,
            compression: settings.compression,
            filter_bits: settings.filter_bits,
        };
        let writer = standalone::create(&*dir, name, format)?;
        Ok(TableWriter {
            dir,
            name: name.to_owned(),
            writer: Some(writer),
            comparator: settings.comparator,
            last: None,
        })
    }

    /// Adds an entry. Keys must be added in strictly ascending order of the comparator.
    ///
    /// # Errors
    /// `InvalidArgument`, and the table is unchanged, if the key is not greater than the previous
    /// one, the key is too long, or the value is longer than 1 MiB. Load larger values with
    /// [`Family::bulk_load`].
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        let value = value.as_ref();
        if value.len() > limits::INLINE_VALUE_BYTES_MAX {
            let text = "the value is too long for a standalone table: use Family::bulk_load";
            return Err(Error::invalid(text).expected(
                format_args!("at most {} bytes", limits::INLINE_VALUE_BYTES_MAX),
                value.len(),
            ));
        }
        self.add(key.as_ref(), ValueRef::Inline(value))
    }
    /// Adds a tombstone: after ingestion the key does not exist. Fails like [`TableWriter::put`].
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.add(key.as_ref(), ValueRef::Tombstone)
    }

    fn add(&mut self, key: &[u8], value: ValueRef<'_>) -> Result<()> {
        if key.len() > limits::KEY_BYTES_MAX {
            return Err(Error::invalid("the key is too long")
                .expected(format_args!("at most {} bytes", limits::KEY_BYTES_MAX), key.len()));
        }
        if self.last.as_deref().is_some_and(|last| self.comparator.cmp(last, key).is_ge()) {
            return Err(Error::invalid(format!(
                "the key {} is not greater than the previous one: sort the input, or use \
                 Family::bulk_load",
                key.escape_ascii()
            )));
        }
        let writer =
            self.writer.as_mut().ok_or_else(|| Error::internal("write to a finished table"))?;
        writer.add(EntryRef { key, seq: SeqNo::ZERO, value })?;
        let last = self.last.get_or_insert_default();
        last.clear();
        last.extend_from_slice(key);
        Ok(())
    }

    /// Returns the approximate size in bytes that the file would have if it was finished now.
    pub fn bytes(&self) -> u64 {
        self.writer.as_ref().map_or(0, KlogWriter::estimated_file_bytes)
    }

    /// Finishes the file and makes it durable.
    ///
    /// # Errors
    /// `InvalidArgument` if the table is empty; `Io`, `NoSpace`. The file is deleted then.
    pub fn finish(mut self) -> Result<TableSummary> {
        if self.last.is_none() {
            return Err(Error::invalid("a standalone table must have at least one entry"));
        }
        let Some(writer) = self.writer.take() else {
            return Err(Error::internal("the table is already finished"));
        };
        let done = writer.finish().and_then(|s| self.dir.sync().map(|()| s));
        let s = done.inspect_err(|_| drop(self.dir.remove(&self.name)))?;
        Ok(TableSummary {
            bytes: s.bytes,
            entries: s.entries,
            tombstones: s.tombstones,
            first_key: s.first_key,
            last_key: s.last_key,
        })
    }
}

impl Drop for TableWriter {
    fn drop(&mut self) {
        if self.writer.take().is_some() {
            let _ = self.dir.remove(&self.name);
        }
    }
}

impl Db {
    /// Ingests standalone tables into `family`; see [`Db::ingest_many`].
    pub fn ingest<P: AsRef<Path>>(&self, family: &Family, files: &[P]) -> Result<LoadReport> {
        let files: Vec<PathBuf> = files.iter().map(|p| p.as_ref().to_owned()).collect();
        self.ingest_many(&[(family.clone(), files)])
    }

    /// Ingests standalone tables ([`TableWriter`]) into one or more column families, atomically and
    /// durably: all entries become visible together, with one sequence number, and are newer than
    /// every write committed before. Every byte of every file is verified first. Then the entries
    /// are copied to new tables with the options of the column families; afterwards the files can
    /// be deleted.
    ///
    /// # Errors
    /// `InvalidArgument` if files for one column family overlap, have another comparator, contain
    /// keys out of order or range tombstones (a `TableWriter` writes none), or if a column family
    /// belongs to another open database; `Corruption`, with file and offset; as
    /// [`crate::BulkLoad::finish`] otherwise.
    pub fn ingest_many(&self, files: &[(Family, Vec<PathBuf>)]) -> Result<LoadReport> {
        let with_family = |(f, paths): &(Family, Vec<PathBuf>)| {
            Ok((Arc::clone(f.inner_for(&self.engine)?), paths.clone()))
        };
        let files = files.iter().map(with_family).collect::<Result<Vec<_>>>()?;
        let (sequence, entries, bytes) = self.engine.ingest(&files)?;
        Ok(LoadReport { entries, bytes, sequence: sequence.0 })
    }
}
