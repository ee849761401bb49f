//! Entries into batches, batches into the database, and everything counted. Knows nothing of formats.
//!
//! Invariant: entries reach the database in the order they are given, whole batches at a time; what the tally
//! counts as imported has been acknowledged once `committed` was printed.

use super::trace::Trace;
use crate::failure::{Failure, Result};
use crate::output::Out;
use crate::progress::Progress;
use crate::size;
use crate::text::printable;
use perigee::{BulkLoad, Db, ErrorKind, Family, WriteBatch, limits};
use serde_json::json;

/// Complaints printed one by one; the rest is only counted.
const COMPLAINTS_MAX: u64 = 20;

/// How to load.
pub struct Settings {
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
pub struct Tally {
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
    settings: Settings,
    trace: Option<Trace>,
    out: &'a mut Out,
    batch: WriteBatch,
    /// Entries go here instead, all at once at the end.
    bulk: Option<BulkLoad>,
    /// The key being built: prefix, name of the path, rest.
    key: Vec<u8>,
    /// How much of `key` all entries of this path share.
    key_start: usize,
    tally: Tally,
    /// Bytes seen, imported or not, for the bar.
    seen: u64,
    progress: Progress,
}

impl<'a> Loader<'a> {
    /// An empty loader.
    pub fn new(db: &'a Db, family: Family, settings: Settings, out: &'a mut Out) -> Loader<'a> {
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
            tally: Tally::default(),
            seen: 0,
            progress: Progress::bytes("importing", 0),
        }
    }

    /// From now on what is asked of the database is recorded.
    pub fn traced(mut self, trace: Option<Trace>) -> Loader<'a> {
        self.trace = trace;
        self
    }

    /// From now on entries go into a bulk load.
    pub fn in_bulk(mut self, memory_bytes: usize) -> Result<Loader<'a>> {
        self.bulk = Some(self.family.bulk_load()?.memory_bytes(memory_bytes));
        Ok(self)
    }

    /// Keys of the next path start with the prefix and `name/` (unless empty).
    pub fn start_path(&mut self, name: &[u8]) {
        self.key.truncate(self.settings.prefix.len());
        if !name.is_empty() {
            self.key.extend_from_slice(name);
            self.key.push(b'/');
        }
        self.key_start = self.key.len();
    }

    /// So many more bytes are coming.
    pub fn expect_bytes(&mut self, bytes: u64) {
        self.progress.total(self.seen + bytes);
    }

    /// The whole key of an entry of this path.
    fn set_key(&mut self, rest: &[u8]) {
        self.key.truncate(self.key_start);
        self.key.extend_from_slice(rest);
    }

    /// Whether to leave an entry out because its key is there.
    pub fn skips(&mut self, rest: &[u8], bytes: u64) -> Result<bool> {
        if !self.settings.skip_existing {
            return Ok(false);
        }
        self.set_key(rest);
        let there = self.key.len() <= limits::KEY_BYTES_MAX && self.family.contains(&self.key)?;
        if let Some(trace) = &mut self.trace {
            trace.get(&self.key)?;
        }
        if there {
            self.tally.already_there += 1;
            self.saw(bytes);
        }
        Ok(there)
    }

    /// Puts an entry. `source` is told in a complaint.
    pub fn put(&mut self, rest: &[u8], value: &[u8], source: &dyn Fn() -> String) -> Result<()> {
        if value.len() > limits::VALUE_BYTES_MAX {
            return self.too_large(source);
        }
        self.set_key(rest);
        if let Some(load) = &mut self.bulk {
            match load.put(&self.key, value) {
                Err(e) if e.kind() == ErrorKind::InvalidArgument => {
                    return self.failed(&format!("{}: {}", source(), e.message()));
                }
                done => done?,
            }
            self.count(value);
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
                return self.failed(&format!("{}: {}", source(), e.message()));
            }
            Err(e) => return Err(e.into()),
        }
        self.count(value);
        if self.batch.len() >= self.settings.batch_ops
            || self.batch.encoded_bytes() >= self.settings.batch_bytes
        {
            self.commit()?;
        }
        Ok(())
    }

    fn count(&mut self, value: &[u8]) {
        self.tally.entries += 1;
        self.tally.bytes += value.len() as u64;
        self.tally.key_bytes += self.key.len() as u64;
        self.saw(value.len() as u64);
    }

    fn saw(&mut self, bytes: u64) {
        self.seen += bytes;
        self.progress.at(self.seen);
    }

    /// A symbolic link, which is not followed.
    pub fn link(&mut self) {
        self.tally.links += 1;
    }
    /// A device, socket or pipe.
    pub fn special(&mut self) {
        self.tally.specials += 1;
    }
    /// A value over the limit.
    pub fn too_large(&mut self, source: &dyn Fn() -> String) -> Result<()> {
        let limit = size::bytes(limits::VALUE_BYTES_MAX as u64);
        self.tally.too_large += 1;
        self.complain(&format!("{}: larger than {limit}", source()))
    }
    /// Something that could not be read or put.
    pub fn failed(&mut self, why: &str) -> Result<()> {
        self.tally.failed += 1;
        self.complain(why)
    }

    fn complain(&mut self, why: &str) -> Result<()> {
        if self.settings.strict {
            return Err(Failure::other("import", format!("not imported: {why}")));
        }
        let told = self.tally.failed + self.tally.too_large;
        if told <= COMPLAINTS_MAX {
            self.progress.note(&format!("perigee: left out: {}", printable(why)));
        } else if told == COMPLAINTS_MAX + 1 {
            self.progress.note("perigee: left out: more, which are only counted");
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
        self.tally.batches += 1;
        if self.settings.progress_lines { self.print_progress() } else { Ok(()) }
    }

    /// Tells what is committed. Unlike for a command that only prints, a reader that goes away is an error here: the
    /// import is not done.
    fn print_progress(&mut self) -> Result<()> {
        let t = &self.tally;
        let line =
            json!({"committed": {"entries": t.entries, "bytes": t.bytes, "already_there": t.already_there}});
        match self.out.value(&line).and_then(|()| self.out.flush()) {
            Err(Failure::OutputClosed) => {
                Err(Failure::other("i/o error", "the import is not done: stdout was closed")
                    .hint("run it again, with --skip-existing to go on"))
            }
            other => other,
        }
    }

    /// Commits the rest; returns the tally.
    pub fn finish(mut self) -> Result<Tally> {
        self.commit()?;
        if let Some(load) = &mut self.bulk {
            load.finish()?;
        }
        if let Some(trace) = self.trace.take() {
            trace.finish()?;
        }
        Ok(self.tally)
    }
}
