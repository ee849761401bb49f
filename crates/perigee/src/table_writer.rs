//! Standalone sorted tables: built anywhere, without a database, and ingested later.

use crate::env::{Dir, DirOpenMode, Env};
use crate::{Db, Error, Family, FamilyOptions, LoadReport, Result, translate};
use perigee_base::pinned_slice::BytesPreview;
use perigee_base::{EntryRef, FamilyId, SeqNo, ValueRef, limits};
use perigee_file::klog::standalone;
use perigee_file::{KlogOptions, KlogWriter};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a finished standalone table holds.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableSummary {
    /// Bytes of the file.
    pub bytes: u64,
    /// Entries, deletes included.
    pub entries: u64,
    /// Deletes.
    pub tombstones: u64,
    /// The first key.
    pub first_key: Vec<u8>,
    /// The last key.
    pub last_key: Vec<u8>,
}

/// Writes sorted entries into a file of its own, every byte checksummed, which [`Db::ingest`] takes
/// into a database: build tables on other machines or threads, ingest them later in one step.
///
/// Dropped before [`TableWriter::finish`] it removes the file.
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
    order: perigee_base::KeyComparator,
    last: Option<Vec<u8>>,
}

/// Short: keys by their first bytes.
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

/// Short: which file, and how long it is.
impl fmt::Debug for TableWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TableWriter({:?}, {} bytes)", self.name, self.bytes())
    }
}

impl TableWriter {
    /// Creates the file, which must not exist. Of the options, order, block size, compression and
    /// filter bits count.
    pub fn create(path: impl AsRef<Path>, options: FamilyOptions) -> Result<TableWriter> {
        Self::create_in(Env::real(), path, options)
    }
    /// The same in another world.
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
            name.ok_or_else(|| Error::invalid(format!("{} names no file", path.display())))?;
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
            order: settings.comparator,
            last: None,
        })
    }

    /// Adds an entry, whose key must be behind the last one.
    ///
    /// # Errors
    /// `InvalidArgument` for a key that is not, for a key that is too long, or a value over 1 MiB
    /// (those need [`Family::bulk_load`], which has the database's value log): the table is as it
    /// was.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        let value = value.as_ref();
        if value.len() > limits::INLINE_VALUE_BYTES_MAX {
            let text = "the value is too long for a standalone table: load it with bulk_load";
            return Err(Error::invalid(text).expected(
                format_args!("at most {} bytes", limits::INLINE_VALUE_BYTES_MAX),
                value.len(),
            ));
        }
        self.add(key.as_ref(), ValueRef::Inline(value))
    }
    /// Adds a delete: after ingestion the key is not there. Errors as of [`TableWriter::put`].
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.add(key.as_ref(), ValueRef::Tombstone)
    }

    fn add(&mut self, key: &[u8], value: ValueRef<'_>) -> Result<()> {
        if key.len() > limits::KEY_BYTES_MAX {
            return Err(Error::invalid("the key is too long")
                .expected(format_args!("at most {} bytes", limits::KEY_BYTES_MAX), key.len()));
        }
        if self.last.as_deref().is_some_and(|last| self.order.cmp(last, key).is_ge()) {
            return Err(Error::invalid(format!(
                "the key {} is not behind the last one: sort the input, or use bulk_load",
                key.escape_ascii()
            )));
        }
        let writer = self
            .writer
            .as_mut()
            .ok_or_else(|| Error::internal("a table is written after its end"))?;
        writer.add(EntryRef { key, seq: SeqNo::ZERO, value })?;
        let last = self.last.get_or_insert_default();
        last.clear();
        last.extend_from_slice(key);
        Ok(())
    }

    /// Bytes of the file if it were finished now, about.
    pub fn bytes(&self) -> u64 {
        self.writer.as_ref().map_or(0, KlogWriter::estimated_file_bytes)
    }

    /// Ends the file and makes it durable.
    ///
    /// # Errors
    /// `InvalidArgument` if it holds nothing; `Io`, `NoSpace`. The file is removed then.
    pub fn finish(mut self) -> Result<TableSummary> {
        if self.last.is_none() {
            return Err(Error::invalid("a standalone table needs an entry"));
        }
        let Some(writer) = self.writer.take() else {
            return Err(Error::internal("a table is finished twice"));
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
    /// Takes standalone tables (see [`TableWriter`]) into `family`: see [`Db::ingest_many`].
    pub fn ingest<P: AsRef<Path>>(&self, family: &Family, files: &[P]) -> Result<LoadReport> {
        let files: Vec<PathBuf> = files.iter().map(|p| p.as_ref().to_owned()).collect();
        self.ingest_many(&[(family.clone(), files)])
    }

    /// Takes standalone tables into families, all at one sequence number, or nothing. Every byte of
    /// every file is verified first; then the entries are written into new tables with the
    /// families' own options, so the files are not needed afterwards. As with [`Family::bulk_load`]
    /// everything written before is older.
    ///
    /// # Errors
    /// `InvalidArgument` if files of a family share keys, are not in key order, have another key
    /// order or hold range tombstones (a `TableWriter` writes none), or if a family belongs to
    /// another open database; `Corruption` with file and place; otherwise as
    /// [`crate::BulkLoad::finish`].
    pub fn ingest_many(&self, files: &[(Family, Vec<PathBuf>)]) -> Result<LoadReport> {
        let own = |(f, paths): &(Family, Vec<PathBuf>)| {
            Ok((Arc::clone(f.inner_for(&self.engine)?), paths.clone()))
        };
        let files = files.iter().map(own).collect::<Result<Vec<_>>>()?;
        let (sequence, entries, bytes) = self.engine.ingest(&files)?;
        Ok(LoadReport { entries, bytes, sequence: sequence.0 })
    }
}
