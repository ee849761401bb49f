//! Entries into batches, batches into the database, and everything counted. Knows nothing of
//! formats.
//!
//! Invariant: entries reach the database in the order they are given, whole batches at a time; what
//! the tally counts as imported has been acknowledged once `committed` was printed.

use super::trace::TraceWriter;
use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::progress::Progress;
use crate::size;
use crate::text::printable;
use perigee::{BulkLoad, Db, ErrorKind, Family, WriteBatch, limits};
use serde_json::json;

/// Complaints printed one by one; the rest is only counted.
const MESSAGES_SHOWN_MAX: u64 = 20;

/// How to load.
pub struct LoaderSettings {
    /// A batch is committed when it holds so many bytes.
    pub batch_bytes: usize,
    /// Or so many entries.
    pub batch_ops: usize,
    /// In front of every key.
    pub prefix: Vec<u8>,
    /// Leave keys alone that are there.
    pub skip_existing: bool,
    /// Stop at the first thing that cannot be imported.
    pub strict: bool,
    /// Print the tally after each batch.
    pub progress_lines: bool,
}

/// What was done.
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
    /// Keys that were there already.
    pub already_there: u64,
    /// Symbolic links.
    pub links: u64,
    /// Files that hold no bytes of their own: devices, sockets, pipes.
    pub specials: u64,
    /// Values over the limit.
    pub too_large: u64,
    /// Files and rows that could not be read or put.
    pub failed: u64,
}

/// Puts entries.
pub struct Loader<'a> {
    db: &'a Db,
    family: Family,
    settings: LoaderSettings,
    trace: Option<TraceWriter>,
    out: &'a mut Output,
    batch: WriteBatch,
    /// Entries go here instead, all at once at the end.
    bulk: Option<BulkLoad>,
    /// The key being built: prefix, name of the path, rest.
    key: Vec<u8>,
    /// How much of `key` all entries of this path share.
    key_start: usize,
    counts: ImportCounts,
    /// Bytes seen, imported or not, for the bar.
    bytes_seen: u64,
    progress: Progress,
}

impl<'a> Loader<'a> {
    /// An empty loader.
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

    /// From now on what is asked of the database is recorded.
    pub fn with_trace(mut self, trace: Option<TraceWriter>) -> Loader<'a> {
        self.trace = trace;
        self
    }

    /// From now on entries go into a bulk load.
    pub fn with_bulk_load(mut self, memory_bytes: usize) -> Result<Loader<'a>> {
        self.bulk = Some(self.family.bulk_load()?.memory_bytes(memory_bytes));
        Ok(self)
    }

    /// Keys of the next path start with the prefix and `name/` (unless empty).
    pub fn begin_path(&mut self, name: &[u8]) {
        self.key.truncate(self.settings.prefix.len());
        if !name.is_empty() {
            self.key.extend_from_slice(name);
            self.key.push(b'/');
        }
        self.key_start = self.key.len();
    }

    /// So many more bytes are coming.
    pub fn add_expected_bytes(&mut self, bytes: u64) {
        self.progress.set_total(self.bytes_seen + bytes);
    }

    /// The whole key of an entry of this path.
    fn set_key(&mut self, rest: &[u8]) {
        self.key.truncate(self.key_start);
        self.key.extend_from_slice(rest);
    }

    /// Whether to leave an entry out because its key is there.
    pub fn should_skip(&mut self, rest: &[u8], bytes: u64) -> Result<bool> {
        if !self.settings.skip_existing {
            return Ok(false);
        }
        self.set_key(rest);
        let there = self.key.len() <= limits::KEY_BYTES_MAX && self.family.contains(&self.key)?;
        if let Some(trace) = &mut self.trace {
            trace.get(&self.key)?;
        }
        if there {
            self.counts.already_there += 1;
            self.advance_progress(bytes);
        }
        Ok(there)
    }

    /// Puts an entry. `source` is told in a complaint.
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
                done => done?,
            }
            self.count_entry(value);
            return Ok(());
        }
        let adds = self.key.len() + value.len();
        if !self.batch.is_empty() && self.batch.encoded_bytes() + adds > self.settings.batch_bytes {
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

    /// A symbolic link, which is not followed.
    pub fn count_link(&mut self) {
        self.counts.links += 1;
    }
    /// A device, socket or pipe.
    pub fn count_special_file(&mut self) {
        self.counts.specials += 1;
    }
    /// A value over the limit.
    pub fn report_too_large(&mut self, source: &dyn Fn() -> String) -> Result<()> {
        let limit = size::bytes(limits::VALUE_BYTES_MAX as u64);
        self.counts.too_large += 1;
        self.report_problem(&format!("{}: larger than {limit}", source()))
    }
    /// Something that could not be read or put.
    pub fn report_failure(&mut self, why: &str) -> Result<()> {
        self.counts.failed += 1;
        self.report_problem(why)
    }

    fn report_problem(&mut self, why: &str) -> Result<()> {
        if self.settings.strict {
            return Err(Failure::other("import", format!("not imported: {why}")));
        }
        let told = self.counts.failed + self.counts.too_large;
        if told <= MESSAGES_SHOWN_MAX {
            self.progress.print_line(&format!("perigee: left out: {}", printable(why)));
        } else if told == MESSAGES_SHOWN_MAX + 1 {
            self.progress.print_line("perigee: left out: more, which are only counted");
        }
        Ok(())
    }

    /// Commits what is gathered.
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

    /// Tells what is committed. Unlike for a command that only prints, a reader that goes away is
    /// an error here: the import is not done.
    fn print_progress(&mut self) -> Result<()> {
        let t = &self.counts;
        let line = json!({"committed": {"entries": t.entries, "bytes": t.bytes, "already_there": t.already_there}});
        match self.out.json_line(&line).and_then(|()| self.out.flush()) {
            Err(Failure::OutputClosed) => {
                Err(Failure::other("i/o error", "the import is not done: stdout was closed")
                    .hint("run it again, with --skip-existing to go on"))
            }
            other => other,
        }
    }

    /// Commits the rest; returns the tally.
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
