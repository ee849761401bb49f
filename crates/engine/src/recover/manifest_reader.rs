//! Reads the manifest into a catalog, or starts a new database.

use crate::catalog::manifest::{CatalogState, ManifestEdit, NextIdsEdit, decode_edit};
use crate::settings::Settings;
use perigee_base::bug::Bug;
use perigee_base::{
    Bytes, Error, ErrorKind, FamilyId, FileId, FileKind, HEADER_BYTES, Result, RunId, bug,
};
use perigee_env::{Dir, Env};
use perigee_file::filename;
use perigee_file::log::{LogReader, NextLogRecord, RecordKind};

/// The contents of the manifest.
#[derive(Clone, Debug)]
pub struct RecoveredManifest {
    /// The state after the last edit.
    pub catalog: CatalogState,
    /// Database id.
    pub database: u64,
    /// Boot id of the machine when this manifest was started.
    pub boot: u64,
    /// Number of the last edit (0: a new database).
    pub last_edit: u64,
    /// Bytes of a torn last edit that was cut off.
    pub cut_bytes: u64,
    /// Why they were cut off.
    pub cut_reason: String,
}

/// Reads the manifest, or describes a new database if there is none and the settings allow creating
/// one.
pub fn read_or_create(
    env: &Env,
    dir: &dyn Dir,
    boot: u64,
    settings: &Settings,
) -> Result<RecoveredManifest> {
    check_present(dir, settings)?;
    match read_existing(dir, boot)? {
        Some(found) => Ok(found),
        None => new_database(env, dir, settings),
    }
}

/// Reads the manifest, if there is one.
pub fn read_existing(dir: &dyn Dir, boot: u64) -> Result<Option<RecoveredManifest>> {
    if dir.file_len(filename::MANIFEST)?.is_none() {
        return Ok(None);
    }
    let mut manifest = ManifestReader::open(dir, boot)?;
    manifest.read_new_edits(&mut |_| {})?;
    manifest.validated().map(Some)
}

/// Returns true if there is a manifest.
///
/// # Errors
/// `AlreadyExists` if there is one and `error_if_exists` is set.
pub fn check_present(dir: &dyn Dir, settings: &Settings) -> Result<bool> {
    let present = dir.file_len(filename::MANIFEST)?.is_some();
    if present && settings.error_if_exists {
        return Err(Error::new(
            ErrorKind::AlreadyExists,
            format!("there is already a database in {}", dir.path().display()),
        ));
    }
    Ok(present)
}

/// Reads a manifest, and continues where it stopped when a writer has added edits.
#[derive(Debug)]
pub struct ManifestReader {
    log: LogReader,
    recovered: RecoveredManifest,
    /// The current boot id of the machine.
    boot: u64,
}

impl ManifestReader {
    /// Opens the manifest and reads its header.
    pub fn open(dir: &dyn Dir, boot: u64) -> Result<ManifestReader> {
        let header = Some(Bytes(HEADER_BYTES as u64));
        let log = LogReader::open(dir, filename::MANIFEST, FileKind::Manifest, None, None, header)?;
        let found = RecoveredManifest {
            catalog: CatalogState::default(),
            database: log.header().database,
            boot: log.header().b,
            last_edit: log.header().a.wrapping_sub(1),
            cut_bytes: 0,
            cut_reason: String::new(),
        };
        if log.header().a == 0 {
            return Err(
                Error::corruption("the manifest starts at edit 0").at(filename::MANIFEST, 0)
            );
        }
        Ok(ManifestReader { log, recovered: found, boot })
    }

    /// Returns what was read so far, after checking it as a whole.
    pub fn validated(&self) -> Result<RecoveredManifest> {
        self.recovered
            .catalog
            .validate(self.recovered.last_edit)
            .map_err(|e| e.in_file(filename::MANIFEST))?;
        Ok(self.recovered.clone())
    }
    /// Returns the catalog as of the last edit read.
    pub fn catalog(&self) -> &CatalogState {
        &self.recovered.catalog
    }
    /// Returns the number of the last edit read.
    pub fn last_edit(&self) -> u64 {
        self.recovered.last_edit
    }
    /// Returns true if the directory's manifest is still this file: a writer replaces it when it
    /// has grown large.
    pub fn is_current(&self, dir: &dyn Dir) -> Result<bool> {
        let header = Some(Bytes(HEADER_BYTES as u64));
        let log = LogReader::open(dir, filename::MANIFEST, FileKind::Manifest, None, None, header)?;
        Ok(log.header() == self.log.header())
    }

    /// Reads all edits after those read before, and calls `each` with every edit after applying it.
    pub fn read_new_edits(&mut self, each: &mut dyn FnMut(&ManifestEdit)) -> Result<()> {
        let (log, found) = (&mut self.log, &mut self.recovered);
        let first = log.header().a;
        log.extend_to_file_end()?;
        (found.cut_bytes, found.cut_reason) = (0, String::new());
        loop {
            match log.next_record()? {
                NextLogRecord::Record(r) => {
                    let with_position = |e: Error| e.at(filename::MANIFEST, r.offset);
                    let edit = decode_edit(&r.payload).map_err(with_position)?;
                    if r.header.kind != RecordKind::Edit || edit.snapshot != (r.header.lsn == first)
                    {
                        return Err(with_position(Error::corruption(
                            "the manifest does not start with a snapshot, or contains two",
                        )));
                    }
                    found.catalog.apply(&edit).map_err(with_position)?;
                    found.last_edit = r.header.lsn;
                    each(&edit);
                }
                NextLogRecord::End if found.last_edit < first => {
                    return Err(Error::corruption("the manifest holds no snapshot")
                        .at(filename::MANIFEST, log.offset()));
                }
                NextLogRecord::End => return Ok(()),
                NextLogRecord::Bad(bad) => {
                    let behind = log.find_records_after_bad()?;
                    let same_boot = log.header().b == self.boot && self.boot != 0;
                    let torn = found.last_edit >= first
                        && behind.is_none()
                        && (bad.is_truncated || !same_boot);
                    if !torn && !bug::is_active(Bug::TruncateDamagedLog) {
                        return Err(bad.error);
                    }
                    found.cut_bytes = log.end() - bad.offset;
                    found.cut_reason = format!("{}: {}; ", filename::MANIFEST, bad.error.message());
                    found.catalog.clean_close = None;
                    return Ok(());
                }
            }
        }
    }
}

fn new_database(env: &Env, dir: &dyn Dir, settings: &Settings) -> Result<RecoveredManifest> {
    let path = dir.path().display().to_string();
    if !settings.create_if_missing {
        return Err(Error::new(ErrorKind::NotFound, format!("there is no database in {path}")));
    }
    // A directory that holds data but no manifest is a damaged database, not a missing one.
    if let Some(file) = data_without_manifest(dir)? {
        return Err(Error::corruption(format!(
            "{path} holds {file} but no {}",
            filename::MANIFEST
        ))
        .in_file(file));
    }
    let family = settings.default_family.clone().unwrap_or_default();
    family.check()?;
    let mut catalog = CatalogState::default();
    catalog.apply(&ManifestEdit {
        next_ids: Some(NextIdsEdit {
            file: Some(FileId(1)),
            family: Some(FamilyId(1)),
            run: Some(RunId(1)),
        }),
        families: vec![(FamilyId::DEFAULT, "default".into(), family)],
        ..ManifestEdit::default()
    })?;
    check_slow!(
        catalog.validate(1).is_ok(),
        "the next open accepts the catalog of a new database",
        catalog
    );
    Ok(RecoveredManifest {
        catalog,
        database: env.rand.next_u64(),
        boot: 0,
        last_edit: 0,
        cut_bytes: 0,
        cut_reason: String::new(),
    })
}

/// Returns the first engine file with data in a directory without a manifest.
pub fn data_without_manifest(dir: &dyn Dir) -> Result<Option<String>> {
    for file in dir.list()? {
        let holds_data = match filename::parse_file_name(&file) {
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
            NextLogRecord::Record(_) => true,
            NextLogRecord::End => false,
            NextLogRecord::Bad(_) => log.find_records_after_bad()?.is_some(),
        }),
        // An unfinished header precedes all records; a longer file without a header is damaged.
        Err(e) if e.kind() == ErrorKind::Corruption => {
            Ok(dir.file_len(file)?.unwrap_or(0) > HEADER_BYTES as u64)
        }
        Err(e) => Err(e),
    }
}
