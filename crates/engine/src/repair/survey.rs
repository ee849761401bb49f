//! What files there are, and how far the manifest can be believed. If it is whole and every file
//! that it names is there, it says which tables count and what of the log is in them already. If
//! not, every table and every log that is found counts.

use super::is_damage;
use super::report::RepairSummary;
use crate::manifest::{Catalog, decode_edit};
use crate::settings::FamilySettings;
use perigee_base::file_header::{FileHeader, FileKind, HEADER_BYTES};
use perigee_base::{Error, ErrorKind, FamilyId, FileId, Result, SeqNo};
use perigee_env::Dir;
use perigee_file::filename;
use perigee_file::log::{LogReader, NextLogRecord};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What is known before a table or a log was read.
pub struct Survey {
    /// The source, which refuses changes.
    pub dir: Arc<dyn Dir>,
    /// The state that the manifest's readable part adds up to.
    pub catalog: Catalog,
    /// Whether no edit of the manifest is missing.
    pub is_manifest_complete: bool,
    /// Whether it is the whole state, and every file that it names is there.
    pub is_manifest_trusted: bool,
    /// The database's id, where any header says it.
    pub database: Option<u64>,
    /// Klogs to read.
    pub klogs: Vec<FileId>,
    /// Value logs that are there.
    pub vlogs: BTreeMap<FileId, u64>,
    /// Logs to read, oldest first.
    pub logs: Vec<FileId>,
    /// What is lost already.
    pub report: RepairSummary,
}

impl Survey {
    /// What the manifest says of a family.
    pub fn family(&self, id: FamilyId) -> (String, FamilySettings) {
        match self.catalog.families.get(&id) {
            Some(f) => (f.name.clone(), f.settings.clone()),
            None if id == FamilyId::DEFAULT => ("default".into(), FamilySettings::default()),
            None => (format!("family-{id}"), FamilySettings::default()),
        }
    }
    /// Operations of a family up to here are in tables.
    pub fn flushed(&self, id: FamilyId) -> SeqNo {
        match self.catalog.families.get(&id) {
            Some(f) if self.is_manifest_trusted => f.flushed,
            _ => SeqNo::ZERO,
        }
    }
    /// The families that the manifest puts a table into: clones share it.
    pub fn families_of(&self, table: FileId) -> Vec<FamilyId> {
        let holds = self.catalog.families.iter().filter(|(_, f)| f.tables.contains_key(&table));
        holds.map(|(id, _)| *id).collect()
    }
    /// The number of all entries of a bulk-loaded table, which only the manifest knows.
    pub fn stamp(&self, table: FileId) -> Option<SeqNo> {
        let mut all = self.catalog.families.values();
        all.find_map(|f| f.tables.get(&table)).and_then(|t| t.meta.global_seq)
    }
    /// Whether a family was dropped, as far as anybody knows.
    pub fn is_dropped(&self, id: FamilyId) -> bool {
        self.is_manifest_trusted && !self.catalog.families.contains_key(&id)
    }
}

/// Looks around.
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
        let text = format!("{} holds no file of a database", dir.path().display());
        return Err(Error::new(ErrorKind::NotFound, text));
    }
    let mut report = RepairSummary::default();
    let ReadableManifest { catalog, is_complete: mut whole, mut database, edits } =
        read_manifest(&**dir, &mut report)?;
    if whole && edits < newest_edit_named(&**dir, &logs, database)? {
        let why = Error::corruption("the manifest has lost its last edits");
        report.add_lost_file(
            filename::MANIFEST,
            None,
            why.at(filename::MANIFEST, dir.file_len(filename::MANIFEST)?.unwrap_or(0)),
        );
        whole = false;
    }
    let mut trusted = whole;
    if whole {
        trusted = check_files_present(&catalog, &klogs, &vlogs, &logs, &mut report);
    }
    if database.is_none() {
        database = most_common_database_id(&**dir, &files);
    }
    if !trusted {
        report.warn(
            "the manifest cannot be relied on: every table and log that was found was read, also such as had been \
             replaced; keys that had been deleted, and families that had been dropped, may have come back",
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
    let mut there = BTreeMap::new();
    for id in vlogs {
        let bytes = dir.file_len(&filename::file_name(id, FileKind::Vlog))?.unwrap_or(0);
        there.insert(id, bytes);
    }
    let dir = Arc::clone(dir);
    Ok(Survey {
        dir,
        catalog,
        is_manifest_complete: whole,
        is_manifest_trusted: trusted,
        database,
        klogs,
        vlogs: there,
        logs,
        report,
    })
}

/// The readable part of the manifest.
#[derive(Default)]
struct ReadableManifest {
    catalog: Catalog,
    /// Whether that is all of it.
    is_complete: bool,
    /// The database's id.
    database: Option<u64>,
    /// Number of the last edit.
    edits: u64,
}

/// The highest number of a manifest edit that any record of these logs names: records name only
/// edits that were synced.
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
            // Who reads the records lists it.
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

/// Reads the manifest as far as it can be read.
fn read_manifest(dir: &dyn Dir, report: &mut RepairSummary) -> Result<ReadableManifest> {
    let mut catalog = Catalog::default();
    let len = dir.file_len(filename::MANIFEST)?;
    let opened = LogReader::open(dir, filename::MANIFEST, FileKind::Manifest, None, None, len);
    let mut log = match opened {
        Ok(log) => log,
        Err(e) if is_damage(&e) => {
            let e = e.wrap(
                ErrorKind::Corruption,
                "the manifest cannot be read; names and settings of families are lost",
            );
            report.add_lost_file(filename::MANIFEST, None, e);
            return Ok(ReadableManifest::default());
        }
        Err(e) => return Err(e),
    };
    let database = Some(log.header().database);
    let first = log.header().a;
    let mut edits = 0;
    let wrong = loop {
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
                break Error::corruption("the manifest makes no sense").in_file(filename::MANIFEST);
            }
            // The end that a crash left: the same rule as at open, but for the boot, which has
            // changed since.
            NextLogRecord::Bad(bad)
                if bad.is_truncated
                    && edits >= first
                    && log.find_records_after_bad()?.is_none() =>
            {
                report.warn(format!(
                    "{}: the last {} bytes are the beginning of an edit, as a crash leaves it; they were left out",
                    filename::MANIFEST,
                    log.end() - bad.offset
                ));
                catalog.clean_close = None;
                return Ok(ReadableManifest { catalog, is_complete: true, database, edits });
            }
            NextLogRecord::Bad(bad) => break bad.error,
        }
    };
    report.add_lost_file(filename::MANIFEST, None, wrong);
    Ok(ReadableManifest { catalog, is_complete: false, database, edits })
}

/// Whether every file that the catalog names is there. A missing log is a hole, a missing table a
/// loss.
fn check_files_present(
    catalog: &Catalog,
    klogs: &[FileId],
    vlogs: &[FileId],
    logs: &[FileId],
    report: &mut RepairSummary,
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

/// The id that most headers carry.
fn most_common_database_id(dir: &dyn Dir, files: &[String]) -> Option<u64> {
    let mut votes: BTreeMap<u64, usize> = BTreeMap::new();
    for (file, (id, kind)) in files.iter().filter_map(|f| Some((f, filename::parse_file_name(f)?)))
    {
        let mut head = [0; HEADER_BYTES];
        let read = dir.open(file).and_then(|f| f.read_exact_at(&mut head, 0));
        if let Ok(h) = read.and_then(|()| FileHeader::decode(&head, kind, Some(id), None)) {
            *votes.entry(h.database).or_default() += 1;
        }
    }
    votes.into_iter().max_by_key(|(_, n)| *n).map(|(id, _)| id)
}
