//! Follows the manifest while another process writes to the database: opens every file that the
//! catalog of one edit references, and reports later changes of the contents that did not pass
//! through the log.
//!
//! A writer removes a file only after an edit that no longer references it. So a file that cannot
//! be opened, and that the manifest read afterwards still references, was not removed by a writer.
//! Each round reads and opens only what the writer has added since the previous round.

use super::manifest_reader::{ManifestReader, RecoveredManifest};
use crate::catalog::manifest::{CatalogFamily, CatalogState, ManifestEdit, PreparedFiles};
use crate::limits::{FOLLOWER_ROUNDS_KEPT, FOLLOWER_ROUNDS_MAX};
use perigee_base::bug::Bug;
use perigee_base::{Error, ErrorKind, FamilyId, FileId, FileKind, Result, SeqNo, bug};
use perigee_env::Dir;
use perigee_env::fs::ReadOnlyDir;
use perigee_file::filename;
use std::collections::BTreeSet;

/// A file referenced by a catalog, with its column family ([`FamilyId::NONE`] for a log segment).
/// Clones share files.
type NamedFile = (FileId, FileKind, FamilyId);

/// A change of the contents that is in the manifest but not in the pinned catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnloggedChange {
    /// Sequence number of the first such change.
    FirstAt(SeqNo),
    /// There may be some: the manifest was replaced, and the new one does not list them any more.
    Unknown,
}

/// A reader of the manifest that tracks changes since the catalog was pinned.
#[derive(Debug)]
pub struct ManifestFollower<'a> {
    dir: &'a ReadOnlyDir,
    boot: u64,
    manifest: ManifestReader,
    /// Every change that the pinned catalog lacks has a larger sequence number.
    known_up_to: SeqNo,
    change: Option<UnloggedChange>,
    /// The manifest was replaced since the catalog was pinned.
    is_replaced: bool,
}

impl<'a> ManifestFollower<'a> {
    /// Reads the manifest in `dir`.
    pub fn new(dir: &'a ReadOnlyDir, boot: u64) -> Result<ManifestFollower<'a>> {
        let manifest = open_manifest(dir, boot)?;
        let known = last_change(manifest.catalog());
        Ok(ManifestFollower {
            dir,
            boot,
            manifest,
            known_up_to: known,
            change: None,
            is_replaced: false,
        })
    }

    /// Returns the current boot id of the machine.
    pub fn boot(&self) -> u64 {
        self.boot
    }
    /// Returns the number of the last edit read.
    pub fn last_edit(&self) -> u64 {
        self.manifest.last_edit()
    }
    /// Returns the catalog as of the last edit read.
    pub fn catalog(&self) -> &CatalogState {
        self.manifest.catalog()
    }

    /// Opens and holds every file that the newest catalog references, and returns that catalog. A
    /// file that is missing although the manifest references it, or that cannot be opened, is
    /// reported when it is read.
    ///
    /// # Errors
    /// `Busy` if the writer removed files before they could be opened, very often in a row.
    pub fn pin_files(&mut self) -> Result<RecoveredManifest> {
        let rereads = bug::is_active(Bug::ReaderRereadsManifest);
        if !rereads {
            self.read_new_edits()?;
        }
        let mut missing = self.open_files(all_files(self.catalog()));
        let mut rounds = 0;
        while !missing.is_empty() {
            let added = self.read_new_edits()?;
            if missing.iter().any(|file| is_referenced(self.catalog(), *file)) {
                break;
            }
            rounds += 1;
            if rounds > FOLLOWER_ROUNDS_MAX || rereads {
                return Err(Error::new(
                    ErrorKind::Busy,
                    "the writer removes files faster than they can be opened; open again, or take \
                     a checkpoint",
                ));
            }
            if rounds % FOLLOWER_ROUNDS_KEPT == 0 {
                self.close_unnamed();
            }
            missing = self.open_files(added);
        }
        self.close_unnamed();
        (self.known_up_to, self.change) = (last_change(self.catalog()), None);
        self.is_replaced = false;
        self.manifest.validated()
    }

    /// Reads new edits, and returns the first change since [`ManifestFollower::pin_files`] if its
    /// sequence number is not larger than `last`.
    pub fn change_up_to(&mut self, last: SeqNo) -> Result<Option<UnloggedChange>> {
        self.read_new_edits()?;
        Ok(self
            .change
            .filter(|change| !matches!(change, UnloggedChange::FirstAt(seq) if *seq > last)))
    }

    /// Returns true if a pinned log segment may have been truncated: an open of the database keeps
    /// a segment, copies what is not known to be synced into a new one, replaces the manifest, and
    /// then truncates the segment. As of the last [`ManifestFollower::read_new_edits`].
    pub fn may_have_lost_log(&self, pinned: &CatalogState) -> bool {
        let now = self.catalog();
        let stays = |id: FileId| {
            now.logs.iter().any(|(log, _)| *log == id) || now.retained.iter().any(|s| s.id == id)
        };
        let newest = |catalog: &CatalogState| catalog.logs.last().map(|(id, _)| *id);
        self.is_replaced
            && newest(now) != newest(pinned)
            && pinned.logs.iter().any(|(id, _)| stays(*id))
    }

    /// Reads new edits. Returns the files that they added and that are still referenced.
    pub fn read_new_edits(&mut self) -> Result<Vec<NamedFile>> {
        let (mut added, mut first) = (Vec::new(), None);
        self.manifest.read_new_edits(&mut |edit| {
            added.extend(files_added(edit));
            first = first.or(edit.events.iter().map(|e| e.seq).min());
        })?;
        added.retain(|file| is_referenced(self.catalog(), *file));
        self.note_change(first.map(UnloggedChange::FirstAt));
        // Checked after reading: if the manifest is still current, all of its edits were read.
        if !self.manifest.is_current(self.dir)? {
            self.manifest = open_manifest(self.dir, self.boot)?;
            self.is_replaced = true;
            added = all_files(self.catalog());
            let (catalog, known) = (self.manifest.catalog(), self.known_up_to);
            let first = catalog.events.iter().map(|e| e.seq).filter(|at| *at > known).min();
            let complete = catalog.oldest_position() <= known;
            self.note_change(if complete {
                first.map(UnloggedChange::FirstAt)
            } else {
                Some(UnloggedChange::Unknown)
            });
        }
        Ok(added)
    }

    /// Records a change, unless an earlier one is recorded.
    fn note_change(&mut self, change: Option<UnloggedChange>) {
        self.change = self.change.or(change);
    }

    /// Opens files, newest first, because those are removed first. Returns those that could not be
    /// opened.
    fn open_files(&self, mut files: Vec<NamedFile>) -> Vec<NamedFile> {
        files.sort_unstable_by_key(|(id, ..)| std::cmp::Reverse(*id));
        files.retain(|(id, kind, _)| self.dir.pin_file(&filename::file_name(*id, *kind)).is_err());
        files
    }

    fn close_unnamed(&self) {
        let files = all_files(self.catalog()).into_iter();
        let names: BTreeSet<String> =
            files.map(|(id, kind, _)| filename::file_name(id, kind)).collect();
        self.dir.retain_pinned(&names);
    }
}

/// Opens the manifest and reads all of its edits.
fn open_manifest(dir: &dyn Dir, boot: u64) -> Result<ManifestReader> {
    let mut manifest = ManifestReader::open(dir, boot)?;
    manifest.read_new_edits(&mut |_| {})?;
    Ok(manifest)
}

/// Returns a sequence number that is smaller than that of every change the catalog lacks. Sequence
/// numbers of changes ascend from edit to edit, and a log segment is removed only after the edits
/// of all changes whose sequence numbers are in it.
fn last_change(catalog: &CatalogState) -> SeqNo {
    let last = catalog.events.last().map_or(SeqNo::ZERO, |e| e.seq);
    last.max(catalog.oldest_position())
}

fn all_files(catalog: &CatalogState) -> Vec<NamedFile> {
    let data = catalog.families.iter().flat_map(|(family, entry)| {
        let tables = entry.tables.keys().map(|id| (*id, FileKind::Klog, *family));
        tables.chain(entry.vlogs.keys().map(|id| (*id, FileKind::Vlog, *family)))
    });
    let prepared = catalog.prepared_files().flat_map(files_of_prepared);
    catalog.logs.iter().map(log_file).chain(data).chain(prepared).collect()
}

fn files_of_prepared(f: &PreparedFiles) -> impl Iterator<Item = NamedFile> {
    let tables = f.tables.iter().map(|t| (t.id, FileKind::Klog, f.family));
    tables.chain(f.vlogs.iter().map(|v| (v.id, FileKind::Vlog, f.family)))
}

fn files_added(edit: &ManifestEdit) -> impl Iterator<Item = NamedFile> {
    let data = edit.versions.iter().flat_map(|(family, version)| {
        let tables = version.added.iter().map(|t| (t.meta.id, FileKind::Klog, *family));
        tables.chain(version.vlogs_added.iter().map(|v| (v.id, FileKind::Vlog, *family)))
    });
    let prepared = edit.prepared.iter().flat_map(|p| &p.files).flat_map(files_of_prepared);
    edit.logs_added.iter().map(log_file).chain(data).chain(prepared)
}

fn log_file(segment: &(FileId, SeqNo)) -> NamedFile {
    (segment.0, FileKind::Wal, FamilyId::NONE)
}

fn is_referenced(catalog: &CatalogState, file: NamedFile) -> bool {
    let (id, kind, family) = file;
    let in_version = |contains: &dyn Fn(&CatalogFamily) -> bool| {
        catalog.families.get(&family).is_some_and(contains)
            || catalog.prepared_files().any(|f| f.ids().any(|other| other == id))
    };
    match kind {
        FileKind::Klog => in_version(&|f| f.tables.contains_key(&id)),
        FileKind::Vlog => in_version(&|f| f.vlogs.contains_key(&id)),
        _ => catalog.logs.iter().any(|(log, _)| *log == id),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::manifest::{FamilyEvent, FamilyEventKind, NextIdsEdit, write_snapshot};
    use crate::runtime::DatabaseIdentity;
    use perigee_base::RunId;
    use perigee_env::fs::memory::SimDisk;
    use perigee_env::{DirOpenMode, Fs};
    use perigee_file::log::{EncodedRecord, LogWriter, RecordKind, RecordStamp};
    use std::path::Path;
    use std::sync::Arc;

    struct ManifestTestWriter {
        dir: Arc<dyn Dir>,
        log: LogWriter,
        catalog: CatalogState,
        last_edit: u64,
    }

    const IDENTITY: DatabaseIdentity = DatabaseIdentity { database: 7, boot: 1 };

    impl ManifestTestWriter {
        fn new() -> ManifestTestWriter {
            let dir =
                SimDisk::new(1).open_dir(Path::new("/db"), DirOpenMode::CreateIfMissing).unwrap();
            let mut catalog = CatalogState::default();
            let families = vec![(FamilyId::DEFAULT, "default".into(), Default::default())];
            catalog
                .apply(&ManifestEdit {
                    next_ids: Some(NextIdsEdit {
                        file: Some(FileId(100)),
                        family: Some(FamilyId(1)),
                        run: Some(RunId(1)),
                    }),
                    families,
                    ..ManifestEdit::default()
                })
                .unwrap();
            let log = write_snapshot(&*dir, IDENTITY, FileId(1), 1, &catalog).unwrap();
            ManifestTestWriter { dir, log, catalog, last_edit: 1 }
        }
        fn edit(&mut self, edit: ManifestEdit) {
            self.last_edit += 1;
            let mut record = EncodedRecord::from_payload(
                RecordKind::Edit,
                &crate::catalog::manifest::encode_edit(&edit),
                1,
            );
            let stamp = RecordStamp {
                lsn: self.last_edit,
                durable_lsn: self.last_edit - 1,
                manifest_edits: 0,
            };
            self.log.append(stamp, &mut [&mut record]).unwrap();
            self.catalog.apply(&edit).unwrap();
        }
        /// Replaces the manifest with one that only holds a snapshot of the catalog.
        fn replace(&mut self) {
            self.last_edit += 1;
            let id = FileId(1 + self.last_edit);
            self.log =
                write_snapshot(&*self.dir, IDENTITY, id, self.last_edit, &self.catalog).unwrap();
        }
        fn add_log(&mut self, id: u64, first: u64) {
            self.dir.create(&filename::file_name(FileId(id), FileKind::Wal)).unwrap();
            self.edit(ManifestEdit {
                logs_added: vec![(FileId(id), SeqNo(first))],
                ..ManifestEdit::default()
            });
        }
        fn remove_log(&mut self, id: u64) {
            self.edit(ManifestEdit { logs_removed: vec![FileId(id)], ..ManifestEdit::default() });
            self.dir.remove(&filename::file_name(FileId(id), FileKind::Wal)).unwrap();
        }
        fn change(&mut self, at: u64) {
            let events = vec![FamilyEvent {
                seq: SeqNo(at),
                family: FamilyId::DEFAULT,
                kind: FamilyEventKind::Cleared,
            }];
            self.edit(ManifestEdit { events, ..ManifestEdit::default() });
        }
    }

    #[test]
    fn pinned_files_survive_removal() {
        let mut writer = ManifestTestWriter::new();
        writer.add_log(10, 1);
        let dir = ReadOnlyDir::new(Arc::clone(&writer.dir));
        let mut follower = ManifestFollower::new(&dir, 1).unwrap();
        // The manifest that was read is outdated before any file is opened.
        writer.add_log(11, 5);
        writer.remove_log(10);
        let found = follower.pin_files().unwrap();
        assert_eq!(found.catalog.logs, [(FileId(11), SeqNo(5))]);
        writer.add_log(12, 9);
        writer.remove_log(11);
        assert!(dir.open(&filename::file_name(FileId(11), FileKind::Wal)).is_ok());
        assert_eq!(dir.pinned_files(), 1);
        assert_eq!(follower.pin_files().unwrap().catalog.logs, [(FileId(12), SeqNo(9))]);
        assert_eq!(dir.pinned_files(), 1, "unreferenced files are released");
    }

    #[test]
    fn missing_referenced_file_does_not_fail_pin() {
        let mut writer = ManifestTestWriter::new();
        writer.add_log(10, 1);
        writer.dir.remove(&filename::file_name(FileId(10), FileKind::Wal)).unwrap();
        let dir = ReadOnlyDir::new(Arc::clone(&writer.dir));
        let found = ManifestFollower::new(&dir, 1).unwrap().pin_files().unwrap();
        assert_eq!(found.catalog.logs.len(), 1);
        assert_eq!(dir.pinned_files(), 0);
    }

    #[test]
    fn first_change_since_pin_is_reported() {
        let mut writer = ManifestTestWriter::new();
        writer.add_log(10, 1);
        writer.change(3);
        let dir = ReadOnlyDir::new(Arc::clone(&writer.dir));
        let mut follower = ManifestFollower::new(&dir, 1).unwrap();
        follower.pin_files().unwrap();
        assert_eq!(follower.change_up_to(SeqNo(100)).unwrap(), None, "the catalog contains it");
        writer.change(7);
        writer.change(9);
        assert_eq!(
            follower.change_up_to(SeqNo(6)).unwrap(),
            None,
            "it comes after what was replayed"
        );
        assert_eq!(
            follower.change_up_to(SeqNo(7)).unwrap(),
            Some(UnloggedChange::FirstAt(SeqNo(7)))
        );
        follower.pin_files().unwrap();
        assert_eq!(follower.change_up_to(SeqNo(100)).unwrap(), None);
    }

    #[test]
    fn replaced_manifest_lists_changes_or_reports_unknown() {
        let mut writer = ManifestTestWriter::new();
        writer.add_log(10, 1);
        writer.change(3);
        let dir = ReadOnlyDir::new(Arc::clone(&writer.dir));
        let mut follower = ManifestFollower::new(&dir, 1).unwrap();
        follower.pin_files().unwrap();
        writer.replace();
        assert_eq!(follower.change_up_to(SeqNo(100)).unwrap(), None, "only the file was replaced");
        // Replaced twice: the change is in no manifest that was read, but in the event list of the
        // last.
        writer.replace();
        writer.change(7);
        writer.replace();
        assert_eq!(
            follower.change_up_to(SeqNo(100)).unwrap(),
            Some(UnloggedChange::FirstAt(SeqNo(7)))
        );
        follower.pin_files().unwrap();
        // The log segment is removed, and the event with it.
        writer.replace();
        writer.change(20);
        writer.add_log(11, 30);
        writer.remove_log(10);
        writer.replace();
        assert_eq!(writer.catalog.events, []);
        assert_eq!(follower.change_up_to(SeqNo(100)).unwrap(), Some(UnloggedChange::Unknown));
    }
}
