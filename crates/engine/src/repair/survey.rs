//! Surveys the files, and determines how far the manifest can be trusted. If it is complete and
//! every file that it references exists, it determines which tables count and which operations of
//! the log are already in them. Otherwise every table and every log found counts.

use super::is_damage;
use super::report::RepairReport;
use crate::catalog::manifest::{CatalogState, decode_edit};
use crate::settings::FamilySettings;
use perigee_base::{
    Bytes, Error, ErrorKind, FamilyId, FileHeader, FileId, FileKind, HEADER_BYTES, Result, SeqNo,
};
use perigee_env::Dir;
use perigee_file::filename;
use perigee_file::log::{LogReader, NextLogRecord};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What is known before tables and logs are read.
pub struct Survey {
    /// The source directory, which rejects changes.
    pub dir: Arc<dyn Dir>,
    /// The catalog that results from the readable part of the manifest.
    pub catalog: CatalogState,
    /// True if no manifest edit is missing.
    pub is_manifest_complete: bool,
    /// True if the manifest is complete and every file that it references exists.
    pub is_manifest_trusted: bool,
    /// Database id, if any file header contains it.
    pub database: Option<u64>,
    /// Klogs to read.
    pub klogs: Vec<FileId>,
    /// Existing value logs, with their sizes.
    pub vlogs: BTreeMap<FileId, u64>,
    /// Logs to read, oldest first.
    pub logs: Vec<FileId>,
    /// The report, with the losses found so far.
    pub report: RepairReport,
}

impl Survey {
    /// Returns name and settings of a column family, according to the manifest.
    pub fn family(&self, id: FamilyId) -> (String, FamilySettings) {
        match self.catalog.families.get(&id) {
            Some(f) => (f.name.clone(), f.settings.clone()),
            None if id == FamilyId::DEFAULT => ("default".into(), FamilySettings::default()),
            None => (format!("family-{id}"), FamilySettings::default()),
        }
    }
    /// Returns the sequence number up to which operations of a column family are in tables.
    pub fn flushed(&self, id: FamilyId) -> SeqNo {
        match self.catalog.families.get(&id) {
            Some(f) if self.is_manifest_trusted => f.flushed,
            _ => SeqNo::ZERO,
        }
    }
    /// Returns the column families that contain a table according to the manifest: clones share
    /// tables.
    pub fn families_of(&self, table: FileId) -> Vec<FamilyId> {
        let holds = self.catalog.families.iter().filter(|(_, f)| f.tables.contains_key(&table));
        holds.map(|(id, _)| *id).collect()
    }
    /// Returns the global sequence number of a bulk-loaded table, which is only in the manifest.
    pub fn stamp(&self, table: FileId) -> Option<SeqNo> {
        let mut all = self.catalog.families.values();
        all.find_map(|f| f.tables.get(&table)).and_then(|t| t.meta.global_seq)
    }
    /// Returns true if the column family is known to have been dropped.
    pub fn is_dropped(&self, id: FamilyId) -> bool {
        self.is_manifest_trusted && !self.catalog.families.contains_key(&id)
    }
}

/// Surveys the source directory.
pub fn survey_files(dir: &Arc<dyn Dir>) -> Result<Survey> {
    let files = dir.list()?;
    let of = |kind| -> Vec<FileId> {
        files
            .iter()
            .filter_map(|f| filename::parse_file_name(f))
            .filter(|(_, k)| *k == kind)
            .map(|(id, _)| id)
            .collect()
    };
    let (klogs, vlogs, logs) = (of(FileKind::Klog), of(FileKind::Vlog), of(FileKind::Wal));
    if klogs.is_empty() && logs.is_empty() && dir.file_len(filename::MANIFEST)?.is_none() {
        let text = format!("{} contains no database files", dir.path().display());
        return Err(Error::new(ErrorKind::NotFound, text));
    }
    let mut report = RepairReport::default();
    let ReadableManifest { catalog, mut is_complete, mut database, edits } =
        read_manifest(&**dir, &mut report)?;
    if is_complete && edits < newest_edit_named(&**dir, &logs, database)? {
        let why = Error::corruption("the manifest has lost its last edits");
        report.add_lost_file(
            filename::MANIFEST,
            None,
            why.at(filename::MANIFEST, dir.file_len(filename::MANIFEST)?.unwrap_or(0)),
        );
        is_complete = false;
    }
    let mut trusted = is_complete;
    if is_complete {
        trusted = check_files_present(&catalog, &klogs, &vlogs, &logs, &mut report);
    }
    if database.is_none() {
        database = most_common_database_id(&**dir, &files);
    }
    if !trusted {
        report.warn(
            "the manifest cannot be trusted: every table and log found was read, including those \
             that had been replaced; deleted keys and dropped column families may have come back",
        );
    }
    let klogs = if trusted {
        catalog
            .families
            .values()
            .flat_map(|f| f.tables.keys().copied())
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect()
    } else {
        klogs
    };
    let logs = if trusted { catalog.logs.iter().map(|(id, _)| *id).collect() } else { logs };
    let mut vlog_bytes = BTreeMap::new();
    for id in vlogs {
        let bytes = dir.file_len(&filename::file_name(id, FileKind::Vlog))?.unwrap_or(0);
        vlog_bytes.insert(id, bytes);
    }
    let dir = Arc::clone(dir);
    Ok(Survey {
        dir,
        catalog,
        is_manifest_complete: is_complete,
        is_manifest_trusted: trusted,
        database,
        klogs,
        vlogs: vlog_bytes,
        logs,
        report,
    })
}

/// The readable part of the manifest.
#[derive(Default)]
struct ReadableManifest {
    catalog: CatalogState,
    /// True if it is the whole manifest.
    is_complete: bool,
    /// Database id.
    database: Option<u64>,
    /// Number of the last edit.
    edits: u64,
}

/// Returns the highest manifest edit number recorded in these logs: log records only name edits
/// that were synced.
fn newest_edit_named(dir: &dyn Dir, logs: &[FileId], database: Option<u64>) -> Result<u64> {
    let mut newest = 0;
    for id in logs {
        let file = filename::file_name(*id, FileKind::Wal);
        let opened = LogReader::open(dir, &file, FileKind::Wal, Some(*id), database, None);
        let mut log = match (opened, database) {
            (Ok(log), _) => log,
            (Err(e), Some(database)) if e.is_corruption() => {
                match LogReader::open_for_salvage(dir, &file, FileKind::Wal, *id, database) {
                    Ok(log) => log,
                    Err(e) if is_damage(&e) => continue,
                    Err(e) => return Err(e),
                }
            }
            // The loss is reported when its records are read.
            (Err(e), _) if is_damage(&e) => continue,
            (Err(e), _) => return Err(e),
        };
        loop {
            match log.next_record() {
                Ok(NextLogRecord::Record(r)) => newest = newest.max(r.header.manifest_edits),
                Ok(NextLogRecord::End) => break,
                Ok(NextLogRecord::Bad(_)) => {
                    newest = newest.max(
                        log.find_records_after_bad()?.map_or(0, |behind| behind.manifest_edits),
                    );
                    break;
                }
                Err(e) if is_damage(&e) => break,
                Err(e) => return Err(e),
            }
        }
    }
    Ok(newest)
}

/// Reads the manifest as far as possible.
fn read_manifest(dir: &dyn Dir, report: &mut RepairReport) -> Result<ReadableManifest> {
    let mut catalog = CatalogState::default();
    let len = dir.file_len(filename::MANIFEST)?.map(Bytes);
    let opened = LogReader::open(dir, filename::MANIFEST, FileKind::Manifest, None, None, len);
    let mut log = match opened {
        Ok(log) => log,
        Err(e) if is_damage(&e) => {
            let e = e.wrap(
                ErrorKind::Corruption,
                "the manifest cannot be read; names and settings of column families are lost",
            );
            report.add_lost_file(filename::MANIFEST, None, e);
            return Ok(ReadableManifest::default());
        }
        Err(e) => return Err(e),
    };
    let database = Some(log.header().database);
    let first = log.header().a;
    let mut edits = 0;
    let error = loop {
        match log.next_record()? {
            NextLogRecord::Record(r) => {
                let applied = decode_edit(&r.payload).and_then(|edit| catalog.apply(&edit));
                if let Err(e) = applied {
                    break e.at(filename::MANIFEST, r.offset);
                }
                edits = r.header.lsn;
            }
            NextLogRecord::End if edits >= first && catalog.validate(edits).is_ok() => {
                return Ok(ReadableManifest { catalog, is_complete: true, database, edits });
            }
            NextLogRecord::End => {
                break Error::corruption("the manifest is inconsistent")
                    .in_file(filename::MANIFEST);
            }
            // The end left by a crash: the same rule as at open, except for the boot id, which has
            // changed since.
            NextLogRecord::Bad(bad)
                if bad.is_truncated
                    && edits >= first
                    && log.find_records_after_bad()?.is_none() =>
            {
                report.warn(format!(
                    "{}: the last {} bytes are an incomplete edit, as after a crash; they were \
                     left out",
                    filename::MANIFEST,
                    log.end() - bad.offset
                ));
                catalog.clean_close = None;
                return Ok(ReadableManifest { catalog, is_complete: true, database, edits });
            }
            NextLogRecord::Bad(bad) => break bad.error,
        }
    };
    report.add_lost_file(filename::MANIFEST, None, error);
    Ok(ReadableManifest { catalog, is_complete: false, database, edits })
}

/// Returns true if every file that the catalog references exists. Reports missing files as losses.
fn check_files_present(
    catalog: &CatalogState,
    klogs: &[FileId],
    vlogs: &[FileId],
    logs: &[FileId],
    report: &mut RepairReport,
) -> bool {
    let present: BTreeSet<FileId> = klogs.iter().chain(vlogs).copied().collect();
    let mut all = true;
    for f in catalog.families.values() {
        for (id, t) in &f.tables {
            if !present.contains(id) {
                all = false;
                let file = filename::file_name(*id, FileKind::Klog);
                report.add_lost_file(
                    &file,
                    Some(&f.name),
                    Error::corruption("the table is missing").in_file(&file),
                );
                if let Some(loss) = report.lost.last_mut() {
                    let s = &t.meta.summary;
                    loss.entries = Some(s.entries);
                    (loss.first_key, loss.last_key) =
                        (Some(s.first_key.clone()), Some(s.last_key.clone()));
                }
            }
        }
        for id in f.vlogs.keys().filter(|id| !present.contains(id)) {
            let file = filename::file_name(*id, FileKind::Vlog);
            report.add_lost_file(
                &file,
                Some(&f.name),
                Error::corruption("the value log is missing").in_file(&file),
            );
        }
    }
    for (id, _) in catalog.logs.iter().filter(|(id, _)| !logs.contains(id)) {
        all = false;
        let file = filename::file_name(*id, FileKind::Wal);
        report.add_lost_file(
            &file,
            None,
            Error::corruption("the log segment is missing").in_file(&file),
        );
    }
    all
}

/// Returns the database id that most file headers contain.
fn most_common_database_id(dir: &dyn Dir, files: &[String]) -> Option<u64> {
    let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
    for (file, (id, kind)) in files.iter().filter_map(|f| Some((f, filename::parse_file_name(f)?)))
    {
        let mut head = [0; HEADER_BYTES];
        let read = dir.open(file).and_then(|f| f.read_exact_at(&mut head, 0));
        if let Ok(h) = read.and_then(|()| FileHeader::decode(&head, kind, Some(id), None)) {
            *counts.entry(h.database).or_default() += 1;
        }
    }
    counts.into_iter().max_by_key(|(_, n)| *n).map(|(id, _)| id)
}
