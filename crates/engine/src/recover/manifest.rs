//! Reads the manifest into a catalog, or starts a new database.

use crate::manifest::{Catalog, Edit, decode};
use crate::settings::Settings;
use perigee_base::bug::{self, Bug};
use perigee_base::format::{FileKind, HEADER_BYTES};
use perigee_base::{Error, ErrorKind, FamilyId, Result};
use perigee_env::{Dir, Env};
use perigee_file::log::{LogReader, RecordKind, Step};
use perigee_file::name;

/// What the manifest said.
#[derive(Clone, Debug)]
pub struct Found {
    /// The state.
    pub catalog: Catalog,
    /// The database's id.
    pub database: u64,
    /// The boot of the machine under which it was begun.
    pub boot: u64,
    /// Number of the last edit (0: a new database).
    pub edits: u64,
    /// Bytes of a torn last edit.
    pub cut_bytes: u64,
    /// Why they were cut.
    pub cut_reason: String,
}

/// Reads the manifest, or describes a new database if there is none and that is allowed.
pub fn read(env: &Env, dir: &dyn Dir, boot: u64, settings: &Settings) -> Result<Found> {
    is_present(dir, settings)?;
    match read_existing(dir, boot)? {
        Some(found) => Ok(found),
        None => new(env, dir, settings),
    }
}

/// Reads the manifest, if there is one.
pub fn read_existing(dir: &dyn Dir, boot: u64) -> Result<Option<Found>> {
    if dir.file_len(name::MANIFEST)?.is_none() {
        return Ok(None);
    }
    let mut manifest = ManifestReader::open(dir, boot)?;
    manifest.read_on(&mut |_| {})?;
    manifest.found().map(Some)
}

/// Whether there is a manifest.
///
/// # Errors
/// `AlreadyExists` if there is, and a new database is wanted.
pub fn is_present(dir: &dyn Dir, settings: &Settings) -> Result<bool> {
    let present = dir.file_len(name::MANIFEST)?.is_some();
    if present && settings.error_if_exists {
        return Err(Error::new(
            ErrorKind::AlreadyExists,
            format!("there is a database in {} already", dir.path().display()),
        ));
    }
    Ok(present)
}

/// Reads a manifest, and reads on where it stopped when a writer has added edits.
#[derive(Debug)]
pub struct ManifestReader {
    log: LogReader,
    found: Found,
    /// The boot of the machine now.
    boot: u64,
}

impl ManifestReader {
    /// Opens the manifest and reads its header.
    pub fn open(dir: &dyn Dir, boot: u64) -> Result<ManifestReader> {
        let header = Some(HEADER_BYTES as u64);
        let log = LogReader::open(dir, name::MANIFEST, FileKind::Manifest, None, None, header)?;
        let found = Found {
            catalog: Catalog::default(),
            database: log.header().database,
            boot: log.header().b,
            edits: log.header().a.wrapping_sub(1),
            cut_bytes: 0,
            cut_reason: String::new(),
        };
        if log.header().a == 0 {
            return Err(Error::corruption("the manifest starts at edit 0").at(name::MANIFEST, 0));
        }
        Ok(ManifestReader { log, found, boot })
    }

    /// What was read so far, checked as a whole.
    pub fn found(&self) -> Result<Found> {
        self.found.catalog.validate(self.found.edits).map_err(|e| e.in_file(name::MANIFEST))?;
        Ok(self.found.clone())
    }
    /// The catalog as of the last edit read.
    pub fn catalog(&self) -> &Catalog {
        &self.found.catalog
    }
    /// Number of the last edit read.
    pub fn edits(&self) -> u64 {
        self.found.edits
    }
    /// Whether the directory's manifest is still this file: a writer replaces it by a new one when it has grown large.
    pub fn is_current(&self, dir: &dyn Dir) -> Result<bool> {
        let header = Some(HEADER_BYTES as u64);
        let log = LogReader::open(dir, name::MANIFEST, FileKind::Manifest, None, None, header)?;
        Ok(log.header() == self.log.header())
    }

    /// Reads all edits that follow those read before, each of them passed to `each` after it was applied.
    pub fn read_on(&mut self, each: &mut dyn FnMut(&Edit)) -> Result<()> {
        let (log, found) = (&mut self.log, &mut self.found);
        let first = log.header().a;
        log.reach_end()?;
        (found.cut_bytes, found.cut_reason) = (0, String::new());
        loop {
            match log.next_record()? {
                Step::Record(r) => {
                    let place = |e: Error| e.at(name::MANIFEST, r.offset);
                    let edit = decode(&r.payload).map_err(place)?;
                    if r.header.kind != RecordKind::Edit || edit.snapshot != (r.header.lsn == first) {
                        return Err(place(Error::corruption(
                            "the manifest does not start with a snapshot, or holds two",
                        )));
                    }
                    found.catalog.apply(&edit).map_err(place)?;
                    found.edits = r.header.lsn;
                    each(&edit);
                }
                Step::End if found.edits < first => {
                    return Err(
                        Error::corruption("the manifest holds no snapshot").at(name::MANIFEST, log.offset())
                    );
                }
                Step::End => return Ok(()),
                Step::Bad(bad) => {
                    let behind = log.look_behind()?;
                    let same_boot = log.header().b == self.boot && self.boot != 0;
                    let torn = found.edits >= first && behind.is_none() && (bad.cut_short || !same_boot);
                    if !torn && !bug::on(Bug::TruncateDamagedLog) {
                        return Err(bad.why);
                    }
                    found.cut_bytes = log.end() - bad.offset;
                    found.cut_reason = format!("{}: {}; ", name::MANIFEST, bad.why.message());
                    found.catalog.clean = None;
                    return Ok(());
                }
            }
        }
    }
}

fn new(env: &Env, dir: &dyn Dir, settings: &Settings) -> Result<Found> {
    let place = dir.path().display().to_string();
    if !settings.create_if_missing {
        return Err(Error::new(ErrorKind::NotFound, format!("there is no database in {place}")));
    }
    // A directory that holds data but no manifest is a damaged database, not a missing one.
    if let Some(file) = data_without_manifest(dir)? {
        return Err(
            Error::corruption(format!("{place} holds {file} but no {}", name::MANIFEST)).in_file(file)
        );
    }
    let family = settings.default_family.clone().unwrap_or_default();
    family.check()?;
    let mut catalog = Catalog::default();
    catalog.apply(&Edit {
        next: Some((1, 1, 1)),
        families: vec![(FamilyId::DEFAULT, "default".into(), family)],
        ..Edit::default()
    })?;
    Ok(Found {
        catalog,
        database: env.rand.next_u64(),
        boot: 0,
        edits: 0,
        cut_bytes: 0,
        cut_reason: String::new(),
    })
}

/// The first file of ours that holds data, in a directory without a manifest.
pub fn data_without_manifest(dir: &dyn Dir) -> Result<Option<String>> {
    for file in dir.list()? {
        let holds_data = match name::parse(&file) {
            Some((_, FileKind::Klog | FileKind::Vlog)) => true,
            Some((_, FileKind::Wal)) => holds_records(dir, &file)?,
            _ => false,
        };
        if holds_data {
            return Ok(Some(file));
        }
    }
    Ok(None)
}

fn holds_records(dir: &dyn Dir, file: &str) -> Result<bool> {
    match LogReader::open(dir, file, FileKind::Wal, None, None, None) {
        Ok(mut log) => Ok(match log.next_record()? {
            Step::Record(_) => true,
            Step::End => false,
            Step::Bad(_) => log.look_behind()?.is_some(),
        }),
        // A header that was never finished precedes all records; a longer file without a header is damaged.
        Err(e) if e.kind() == ErrorKind::Corruption => {
            Ok(dir.file_len(file)?.unwrap_or(0) > HEADER_BYTES as u64)
        }
        Err(e) => Err(e),
    }
}
