//! Builds the small database that `flips` damages, and decides what damage may pass for a torn log
//! end.

use crate::contents::read_all;
use crate::engine_target::PATH;
use crate::ledger::Contents;
use crate::rng::{Rng, value_bytes};
use crate::settings::test_keys;
use perigee::encryption::encrypt_env;
use perigee::env::Env;
use perigee::{Compression, Db, Durability, FamilyOptions, Options, Result, WriteBatch};
use perigee_base::ENCRYPTED_MAGIC;
use perigee_env::fs::memory::{Crash, SimDisk};
use perigee_env::sim::SimWorld;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How the process that wrote an image ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageEnd {
    /// The process closed the database.
    Closed,
    /// The process was killed right after its last commit.
    Killed,
    /// The process was killed after an idle period: the watermark covers every commit, so no
    /// damage may pass for a torn end.
    KilledIdle,
}

/// A database that no process has open.
pub struct Image {
    /// Disk with the files.
    pub disk: Arc<SimDisk>,
    /// Contents of the database.
    pub contents: Contents,
    /// How the process that wrote it ended.
    pub end: ImageEnd,
    /// For each column family and key, the last operation of the last batch that wrote to it.
    pub latest_seqs: LatestSeqs,
    /// The last log segment with the end offsets of its records and the contents before each
    /// (killed images only).
    pub tail: Option<LogTail>,
    /// Its files are encrypted.
    pub encrypted: bool,
    /// Seed of the options to open it with.
    seed: u64,
}

/// The tail of a log that was not closed.
pub struct LogTail {
    /// Path of the segment.
    pub path: PathBuf,
    /// Commits in it.
    pub records: Vec<LogRecord>,
}

/// One commit in a log segment.
pub struct LogRecord {
    path: PathBuf,
    /// Start offset.
    pub start_offset: usize,
    /// End offset.
    pub end_offset: usize,
    /// Contents of the database before it.
    pub before: Contents,
}

/// Returns the options of the image; `Full` durability, so that every commit is synced by itself.
pub fn options(env: Env, seed: u64) -> Options {
    let mut rng = Rng::new(seed);
    let family = FamilyOptions::new()
        .memtable_bytes(8 << 10)
        .block_bytes(512)
        .target_file_bytes(4 << 10)
        .level1_bytes(8 << 10)
        .level_ratio(3)
        .value_threshold(200)
        .filter_bits(10)
        .compression(rng.pick(&[Compression::Lz4, Compression::None]));
    Options::in_env(env)
        .scrub_interval(Duration::ZERO)
        .durability(Durability::Full)
        .block_cache_bytes(64 << 10)
        .default_family(family)
}

/// Returns `env`, encrypted or not.
fn env_of(encrypted: bool, env: Env) -> Env {
    if encrypted { encrypt_env(env, Arc::new(test_keys())) } else { env }
}

/// Returns the offset of the contents of an encrypted or plain file.
fn contents_offset(stored: &[u8]) -> usize {
    if stored.starts_with(&ENCRYPTED_MAGIC) { ENCRYPTION_HEADER_BYTES } else { 0 }
}

impl Image {
    /// Builds the image of a seed: several column families, levels, value logs and log segments.
    pub fn build(seed: u64, end: ImageEnd, encrypted: bool) -> std::result::Result<Image, String> {
        let disk = SimDisk::new(seed);
        let built = SimWorld::new(seed)
            .run(disk.clone(), |env| build_database(env_of(encrypted, env), &disk, seed, end));
        let ((contents, newest), copy, tail) =
            built.map_err(|e| format!("building the image: {e}"))?;
        // A process crash keeps the boot id: nothing that was written may be missing.
        Ok(Image { disk: copy, contents, latest_seqs: newest, end, tail, encrypted, seed })
    }

    /// Returns the environment to open the image in.
    pub fn env(&self, env: Env) -> Env {
        env_of(self.encrypted, env)
    }

    /// Returns the options to open the image with.
    pub fn options(&self, env: Env) -> Options {
        options(self.env(env), self.seed)
    }

    /// Returns, for a last segment changed to `bytes`, the contents that a cut at the first bad
    /// record leaves and whether the cut must be reported. `None` if something after that record
    /// proves that it had been written.
    pub fn contents_after_cut(
        &self,
        path: &Path,
        bytes: Option<&[u8]>,
    ) -> Option<(&Contents, bool)> {
        let tail = self.tail.as_ref().filter(|tail| tail.path == path)?;
        let (bytes, before) = (bytes?, self.disk.read_raw(path));
        let same = |r: &&LogRecord| {
            bytes.get(r.start_offset..r.end_offset) == before.get(r.start_offset..r.end_offset)
        };
        let first = tail.records.iter().position(|r| !same(&r));
        let Some(first) = first else {
            // Only bytes after the last record differ.
            let end = tail.records.last()?.end_offset;
            let untouched = bytes.get(..end) == before.get(..end);
            return untouched.then_some((&self.contents, written_len(bytes) > end));
        };
        let start = tail.records[first].start_offset;
        let head = bytes.get(..start) == before.get(..start);
        let proof = tail.records[first + 1..].iter().any(|r| same(&r));
        (head && !proof).then_some((&tail.records[first].before, written_len(bytes) > start))
    }
}

type LatestSeqs = BTreeMap<(String, Vec<u8>), u64>;
type BuiltImage = ((Contents, LatestSeqs), Arc<SimDisk>, Option<LogTail>);

fn build_database(env: Env, disk: &Arc<SimDisk>, seed: u64, end: ImageEnd) -> Result<BuiltImage> {
    let db = Db::open(Path::new(PATH), options(env.clone(), seed))?;
    let family = options(env.clone(), seed).default_family.unwrap_or_default();
    for name in FAMILIES {
        if name != "default" {
            db.create_family(name, family.clone())?;
        }
    }
    let (contents, newest, records) = (Contents::new(), LatestSeqs::new(), Vec::new());
    let mut filler =
        ImageBuilder { db, disk, rng: Rng::new(seed), contents, latest_seqs: newest, records };
    filler.contents.extend(FAMILIES.map(|name| (name.to_string(), Default::default())));
    for round in 0..ROUNDS {
        for _ in 0..40 {
            filler.commit()?;
        }
        // Not all column families are flushed in the last rounds, so that several segments remain.
        if round + 2 < ROUNDS {
            filler.db.admin().flush()?;
        } else if round + 1 < ROUNDS {
            filler.db.family("alpha")?.flush()?;
        }
        if round == 1 {
            filler.db.admin().compact()?;
        }
    }
    filler.db.admin().wait_idle()?;
    for _ in 0..6 {
        filler.commit()?;
    }
    if end == ImageEnd::KilledIdle {
        env.clock.sleep_us(IDLE_US);
    }
    filler.finish(seed, end)
}

/// Idle time after which the log is certain to have a watermark, in microseconds.
const IDLE_US: u64 = 5_000_000;
const ROUNDS: usize = 6;
const FAMILIES: [&str; 3] = ["alpha", "beta", "default"];

/// A database being filled, with the log position of each commit.
struct ImageBuilder<'a> {
    db: Db,
    disk: &'a Arc<SimDisk>,
    rng: Rng,
    contents: Contents,
    latest_seqs: LatestSeqs,
    records: Vec<LogRecord>,
}

impl ImageBuilder<'_> {
    fn commit(&mut self) -> Result<()> {
        let before = self.contents.clone();
        let old =
            last_segment(self.disk).map(|path| (written_len(&self.disk.read_raw(&path)), path));
        let (batch, keys) = self.random_batch()?;
        let last = self.db.write(batch)?;
        self.latest_seqs.extend(keys.into_iter().map(|key| (key, last)));
        let Some(path) = last_segment(self.disk) else { return Ok(()) };
        let to = written_len(&self.disk.read_raw(&path));
        let record = match old {
            Some((from, old)) if old == path => {
                LogRecord { path, start_offset: from, end_offset: to, before }
            }
            Some((from, old))
                if self.disk.paths().contains(&old)
                    && written_len(&self.disk.read_raw(&old)) > from =>
            {
                let to = written_len(&self.disk.read_raw(&old));
                LogRecord { path: old, start_offset: from, end_offset: to, before }
            }
            _ => {
                let contents = contents_offset(&self.disk.read_raw(&path));
                let start_offset = contents + FILE_HEADER_BYTES;
                LogRecord { path, start_offset, end_offset: to, before }
            }
        };
        self.records.push(record);
        Ok(())
    }

    /// Returns a random batch and the keys that it writes to.
    fn random_batch(&mut self) -> Result<(WriteBatch, Vec<(String, Vec<u8>)>)> {
        let (mut batch, rng, mut keys) = (WriteBatch::new(), &mut self.rng, Vec::new());
        for _ in 0..rng.between(1, 3) {
            let name = rng.pick(&FAMILIES);
            let family = self.db.family(name)?;
            let map = self.contents.entry(name.to_string()).or_default();
            let key = format!("key {:03}", rng.below(120)).into_bytes();
            keys.push((name.to_string(), key.clone()));
            let len = if rng.percent(12) { rng.between(200, 900) } else { rng.between(0, 40) };
            if rng.percent(10) {
                match rng.below(3) {
                    0 => batch.delete_range(&family, &key[..]..=&key[..])?,
                    1 => {
                        // The contract of single delete allows a key that was never put.
                        batch.single_delete(&family, [b"never ", &key[..]].concat())?;
                        batch.delete(&family, &key)?;
                    }
                    _ => batch.delete(&family, &key)?,
                }
                map.remove(&key);
            } else if rng.percent(10) {
                let value = value_bytes(rng.next(), len);
                batch.put_until(&family, &key, &value, u64::MAX)?;
                map.insert(key, value);
            } else {
                let value = value_bytes(rng.next(), len);
                batch.put(&family, &key, &value)?;
                map.insert(key, value);
            }
        }
        Ok((batch, keys))
    }

    /// Fails unless the image contains every kind of file; otherwise damaging it would prove too
    /// little.
    fn check_file_kinds(&self) -> Result<()> {
        let with = |end: &str| {
            self.disk.paths().iter().filter(|p| p.extension().is_some_and(|e| e == end)).count()
        };
        let levels: BTreeSet<u8> = self.db.admin().files().iter().map(|f| f.level).collect();
        let kinds = (with("wal"), with("klog"), with("vlog"), levels.len());
        if kinds.0 < 2 || kinds.1 < 3 || kinds.2 < 2 || kinds.3 < 2 {
            return Err(perigee::Error::internal(format!(
                "the image lacks a kind of file: {kinds:?}"
            )));
        }
        Ok(())
    }

    fn finish(mut self, seed: u64, end: ImageEnd) -> Result<BuiltImage> {
        if read_all(&self.db)? != self.contents {
            return Err(perigee::Error::internal("the image does not hold what was written"));
        }
        self.check_file_kinds()?;
        let known = (self.contents, self.latest_seqs);
        if end == ImageEnd::Closed {
            self.db.close()?;
            return Ok((known, self.disk.crash_clone(seed, Crash::Process), None));
        }
        let tail = last_segment(self.disk).filter(|_| end == ImageEnd::Killed).map(|path| {
            self.records.retain(|r| r.path == path);
            LogTail { path, records: self.records }
        });
        Ok((known, self.disk.crash_clone(seed, Crash::Process), tail))
    }
}

/// Size of the header of an encrypted file, before its contents.
pub const ENCRYPTION_HEADER_BYTES: usize = 4096;
/// Size of a file header in bytes: the offset of the first record of a segment.
const FILE_HEADER_BYTES: usize = 72;

/// Returns the written length of a log segment: preallocated space is zeros, and no record ends
/// with one.
fn written_len(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1)
}

/// Returns the log segment that records go to: the one with the highest number that contains any.
/// (A later one was preallocated.)
fn last_segment(disk: &SimDisk) -> Option<PathBuf> {
    let holds = |p: &PathBuf| {
        let stored = disk.read_raw(p);
        written_len(&stored) > contents_offset(&stored) + FILE_HEADER_BYTES
    };
    disk.paths().into_iter().filter(|p| p.extension().is_some_and(|e| e == "wal") && holds(p)).max()
}
