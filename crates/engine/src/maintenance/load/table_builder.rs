//! Writes a standalone table file, which a bulk load ingests later: sorted entries, built without a
//! database.

use crate::settings::FamilySettings;
use perigee_base::{EntryRef, Error, FamilyId, KeyComparator, Result, SeqNo, ValueRef, limits};
use perigee_env::{Dir, DirOpenMode, Env};
use perigee_file::{KlogOptions, KlogWriter, standalone};
use std::path::Path;
use std::sync::Arc;

/// A standalone table file that is being written. Dropping it before
/// [`StandaloneTableBuilder::finish`] deletes the file.
pub struct StandaloneTableBuilder {
    dir: Arc<dyn Dir>,
    name: String,
    writer: Option<KlogWriter>,
    comparator: KeyComparator,
    last: Option<Vec<u8>>,
}

/// What a finished standalone table contains.
#[derive(Debug)]
pub struct StandaloneTableContents {
    /// File size in bytes.
    pub bytes: u64,
    /// Number of entries, tombstones included.
    pub entries: u64,
    /// Number of tombstones.
    pub tombstones: u64,
    /// Smallest key.
    pub first_key: Vec<u8>,
    /// Largest key.
    pub last_key: Vec<u8>,
}

impl StandaloneTableBuilder {
    /// Creates the file `path`, which must not exist. Of `settings`, only those of the file format
    /// are used.
    ///
    /// # Errors
    /// `AlreadyExists`; `InvalidArgument` if a setting is out of range or `path` does not name a
    /// file; `NotFound` if its directory does not exist; `Io`.
    pub fn create(
        env: &Env,
        path: &Path,
        settings: &FamilySettings,
    ) -> Result<StandaloneTableBuilder> {
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
            block_bytes: settings.block_bytes,
            compression: settings.compression,
            filter_bits: settings.filter_bits,
        };
        let writer = standalone::create(&*dir, name, format)?;
        Ok(StandaloneTableBuilder {
            dir,
            name: name.to_owned(),
            writer: Some(writer),
            comparator: settings.comparator,
            last: None,
        })
    }
    /// Returns the file name.
    pub fn name(&self) -> &str {
        &self.name
    }
    /// Adds an entry: a value, or a tombstone for `None`.
    ///
    /// # Errors
    /// `InvalidArgument`, and the table is unchanged, if the key is not greater than the previous
    /// one, or key or value is too long.
    pub fn add(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        if let Some(value) = value.filter(|v| v.len() > limits::INLINE_VALUE_BYTES_MAX) {
            let text = "the value is too long for a standalone table: use Family::bulk_load";
            return Err(Error::invalid(text).expected(
                format_args!("at most {} bytes", limits::INLINE_VALUE_BYTES_MAX),
                value.len(),
            ));
        }
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
        let value = value.map_or(ValueRef::Tombstone, ValueRef::Inline);
        writer.add(EntryRef { key, seq: SeqNo::ZERO, value })?;
        let last = self.last.get_or_insert_default();
        last.clear();
        last.extend_from_slice(key);
        Ok(())
    }
    /// Returns the approximate size in bytes that the file would have if it were finished now.
    pub fn bytes(&self) -> u64 {
        self.writer.as_ref().map_or(0, KlogWriter::estimated_file_bytes)
    }
    /// Finishes the file and makes it durable.
    ///
    /// # Errors
    /// `InvalidArgument` if the table is empty; `Io`, `NoSpace`. The file is deleted then.
    pub fn finish(mut self) -> Result<StandaloneTableContents> {
        if self.last.is_none() {
            return Err(Error::invalid("a standalone table must have at least one entry"));
        }
        let Some(writer) = self.writer.take() else {
            return Err(Error::internal("the table is already finished"));
        };
        let done = writer.finish().and_then(|s| self.dir.sync().map(|()| s));
        let s = done.inspect_err(|_| drop(self.dir.remove(&self.name)))?;
        check_slow!(
            self.last.as_ref() == Some(&s.last_key),
            "a table ends with the last key that was added",
            self.last,
            s.last_key
        );
        Ok(StandaloneTableContents {
            bytes: s.bytes,
            entries: s.entries,
            tombstones: s.tombstones,
            first_key: s.first_key,
            last_key: s.last_key,
        })
    }
}

impl Drop for StandaloneTableBuilder {
    fn drop(&mut self) {
        if self.writer.take().is_some() {
            let _ = self.dir.remove(&self.name);
        }
    }
}
