//! Collects entries into batches, writes the batches to the database, and counts everything.
//! Independent of the input formats.
//!
//! Invariant: entries are written in the order they are given, in whole batches; entries counted in
//! a printed `committed` line have been acknowledged.

use super::trace::TraceWriter;
use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::progress::Progress;
use crate::size;
use crate::text::printable;
use perigee::load::BulkLoad;
use perigee::{Db, ErrorKind, Family, WriteBatch, limits};
use serde_json::json;

/// Number of problems that are printed; further ones are only counted.
const MESSAGES_SHOWN_MAX: u64 = 20;

/// Settings of a loader.
pub struct LoaderSettings {
    /// Size at which a batch is committed.
    pub batch_bytes: usize,
    /// Number of entries at which a batch is committed.
    pub batch_ops: usize,
    /// Prefix of every key.
    pub prefix: Vec<u8>,
    /// Skip existing keys.
    pub skip_existing: bool,
    /// Stop at the first file or row that cannot be imported.
    pub strict: bool,
    /// Print the counts after each batch.
    pub progress_lines: bool,
}

/// Counts of an import.
#[derive(Clone, Debug, Default)]
pub struct ImportCounts {
    /// Entries put.
    pub entries: u64,
    /// Bytes of their values.
    pub bytes: u64,
    /// Bytes of their keys.
    pub key_bytes: u64,
    /// Batches committed.
    pub batches: u64,
    /// Existing keys that were skipped.
    pub existing_keys: u64,
    /// Symbolic links.
    pub links: u64,
    /// Special files: devices, sockets, pipes.
    pub special_files: u64,
    /// Values over the size limit.
    pub too_large: u64,
    /// Files and rows that could not be read or put.
    pub failed: u64,
}

/// Writes entries to a column family, in batches or as a bulk load.
pub struct Loader<'a> {
    db: &'a Db,
    family: Family,
    settings: LoaderSettings,
    trace: Option<TraceWriter>,
    out: &'a mut Output,
    batch: WriteBatch,
    /// The bulk load that receives the entries instead of batches.
    bulk: Option<BulkLoad>,
    /// The key being built: prefix, name of the path, rest.
    key: Vec<u8>,
    /// Length of the prefix of `key` that all entries of this path share.
    key_start: usize,
    counts: ImportCounts,
    /// Bytes processed, imported or not, for the progress bar.
    bytes_seen: u64,
    progress: Progress,
}

impl<'a> Loader<'a> {
    /// Creates a loader that commits batches.
    pub fn new(
        db: &'a Db,
        family: Family,
        settings: LoaderSettings,
        out: &'a mut Output,
    ) -> Loader<'a> {
        let key = settings.prefix.clone();
        let key_start = key.len();
        Loader {
            db,
            family,
            settings,
            trace: None,
            out,
            batch: WriteBatch::new(),
            bulk: None,
            key,
            key_start,
            counts: ImportCounts::default(),
            bytes_seen: 0,
            progress: Progress::bytes("importing", 0),
        }
    }

    /// Records all operations on the database from now on.
    pub fn with_trace(mut self, trace: Option<TraceWriter>) -> Loader<'a> {
        self.trace = trace;
        self
    }

    /// Sends all entries to a bulk load from now on.
    pub fn with_bulk_load(mut self, memory_bytes: usize) -> Result<Loader<'a>> {
        self.bulk = Some(self.family.bulk_load()?.memory_bytes(memory_bytes));
        Ok(self)
    }

    /// Starts a path: its keys start with the prefix and `name/` (unless `name` is empty).
    pub fn begin_path(&mut self, name: &[u8]) {
        self.key.truncate(self.settings.prefix.len());
        if !name.is_empty() {
            self.key.extend_from_slice(name);
            self.key.push(b'/');
        }
        self.key_start = self.key.len();
    }

    /// Adds to the total of the progress bar.
    pub fn add_expected_bytes(&mut self, bytes: u64) {
        self.progress.set_total(self.bytes_seen + bytes);
    }

    /// Sets `key` to the whole key of an entry of this path.
    fn set_key(&mut self, rest: &[u8]) {
        self.key.truncate(self.key_start);
        self.key.extend_from_slice(rest);
    }

    /// Returns true if an entry is to be skipped because its key exists.
    pub fn should_skip(&mut self, rest: &[u8], bytes: u64) -> Result<bool> {
        if !self.settings.skip_existing {
            return Ok(false);
        }
        self.set_key(rest);
        let exists = self.key.len() <= limits::KEY_BYTES_MAX && self.family.contains(&self.key)?;
        if let Some(trace) = &mut self.trace {
            trace.get(&self.key)?;
        }
        if exists {
            self.counts.existing_keys += 1;
            self.advance_progress(bytes);
        }
        Ok(exists)
    }

    /// Puts an entry. `source` describes its origin in messages.
    pub fn put(&mut self, rest: &[u8], value: &[u8], source: &dyn Fn() -> String) -> Result<()> {
        if value.len() > limits::VALUE_BYTES_MAX {
            return self.report_too_large(source);
        }
        self.set_key(rest);
        if let Some(load) = &mut self.bulk {
            match load.put(&self.key, value) {
                Err(e) if e.kind() == ErrorKind::InvalidArgument => {
                    return self.report_failure(&format!("{}: {}", source(), e.message()));
                }
                result => result?,
            }
            self.count_entry(value);
            return Ok(());
        }
        let added = self.key.len() + value.len();
        if !self.batch.is_empty() && self.batch.encoded_bytes() + added > self.settings.batch_bytes
        {
            self.commit()?;
        }
        match self.batch.put(&self.family, &self.key, value) {
            Ok(()) => {
                if let Some(trace) = &mut self.trace {
                    trace.put(&self.key, value.len());
                }
            }
            Err(e) if e.kind() == ErrorKind::InvalidArgument => {
                return self.report_failure(&format!("{}: {}", source(), e.message()));
            }
            Err(e) => return Err(e.into()),
        }
        self.count_entry(value);
        if self.batch.len() >= self.settings.batch_ops
            || self.batch.encoded_bytes() >= self.settings.batch_bytes
        {
            self.commit()?;
        }
        Ok(())
    }

    fn count_entry(&mut self, value: &[u8]) {
        self.counts.entries += 1;
        self.counts.bytes += value.len() as u64;
        self.counts.key_bytes += self.key.len() as u64;
        self.advance_progress(value.len() as u64);
    }

    fn advance_progress(&mut self, bytes: u64) {
        self.bytes_seen += bytes;
        self.progress.set_position(self.bytes_seen);
    }

    /// Counts a symbolic link, which is not followed.
    pub fn count_link(&mut self) {
        self.counts.links += 1;
    }
    /// Counts a device, socket or pipe.
    pub fn count_special_file(&mut self) {
        self.counts.special_files += 1;
    }
    /// Counts and reports a value over the size limit.
    pub fn report_too_large(&mut self, source: &dyn Fn() -> String) -> Result<()> {
        let limit = size::bytes(limits::VALUE_BYTES_MAX as u64);
        self.counts.too_large += 1;
        self.report_problem(&format!("{}: larger than {limit}", source()))
    }
    /// Counts and reports a file or row that could not be read or put.
    pub fn report_failure(&mut self, reason: &str) -> Result<()> {
        self.counts.failed += 1;
        self.report_problem(reason)
    }

    fn report_problem(&mut self, reason: &str) -> Result<()> {
        if self.settings.strict {
            return Err(Failure::other("import", format!("not imported: {reason}")));
        }
        let problems = self.counts.failed + self.counts.too_large;
        if problems <= MESSAGES_SHOWN_MAX {
            self.progress.print_line(&format!("perigee: skipped: {}", printable(reason)));
        } else if problems == MESSAGES_SHOWN_MAX + 1 {
            self.progress.print_line("perigee: skipped: further problems are only counted");
        }
        Ok(())
    }

    /// Commits the current batch.
    fn commit(&mut self) -> Result<()> {
        if self.batch.is_empty() {
            return Ok(());
        }
        self.db.write(std::mem::take(&mut self.batch))?;
        if let Some(trace) = &mut self.trace {
            trace.commit()?;
        }
        self.counts.batches += 1;
        if self.settings.progress_lines { self.print_progress() } else { Ok(()) }
    }

    /// Prints the counts of committed entries. A closed stdout is an error here, unlike for a
    /// command that only prints, because the import is incomplete.
    fn print_progress(&mut self) -> Result<()> {
        let c = &self.counts;
        let line = json!({"committed": {
            "entries": c.entries, "bytes": c.bytes, "existing_keys": c.existing_keys,
        }});
        match self.out.json_line(&line).and_then(|()| self.out.flush()) {
            Err(Failure::OutputClosed) => {
                Err(Failure::other("i/o error", "the import is incomplete: stdout was closed")
                    .hint("run it again, with --skip-existing to continue"))
            }
            other => other,
        }
    }

    /// Commits the last batch, or finishes the bulk load. Returns the counts.
    pub fn finish(mut self) -> Result<ImportCounts> {
        self.commit()?;
        if let Some(load) = &mut self.bulk {
            load.finish()?;
        }
        if let Some(trace) = self.trace.take() {
            trace.finish()?;
        }
        Ok(self.counts)
    }
}
