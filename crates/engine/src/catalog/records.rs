//! What the manifest records, for the readers of the log, backups, verification and the close.

use super::Catalog;
use super::family::FamilyState;
use super::install::CatalogChanges;
use super::manifest::{CatalogState, CleanClose, FamilyEvent, ManifestEdit, NextIdsEdit};
use super::retained_logs::LogSpan;
use crate::settings::FamilySettings;
use perigee_base::{ErrorKind, FileId, Result, SeqNo};
use perigee_tree::{LsmTree, Version, View};
use std::collections::VecDeque;
use std::sync::Arc;

/// The manifest and the log segments that it lists.
#[derive(Debug)]
pub struct RecordedFiles {
    /// File id of the manifest: a rewrite changes it.
    pub manifest: FileId,
    /// Bytes of the manifest.
    pub manifest_bytes: u64,
    /// The segments that recovery needs, with their first LSNs (0: not known).
    pub logs: Vec<(FileId, SeqNo)>,
    /// The segments retained for readers of the log.
    pub retained: Vec<LogSpan>,
}

/// The events of column families, for a change feed.
#[derive(Debug)]
pub struct FeedEvents {
    /// The events, oldest first.
    pub events: VecDeque<FamilyEvent>,
    /// Number of the manifest edit up to which they were read.
    pub edits: u64,
    /// The sequence number after which the retained log and the events describe every change.
    pub oldest_position: SeqNo,
}

/// The state of the catalog and the views that match it, which pin the files.
#[derive(Debug)]
pub struct PinnedCatalog {
    /// What the manifest records.
    pub state: CatalogState,
    /// Number of the last manifest edit.
    pub edits: u64,
    /// The current views of all column families.
    pub views: Vec<Arc<View>>,
}

impl Catalog {
    /// Returns the number of the last synced manifest edit. Every record of the log contains it.
    pub fn manifest_edits(&self) -> u64 {
        self.manifest.last_edit()
    }
    /// Returns the manifest and the log segments that it lists.
    pub fn recorded_files(&self) -> RecordedFiles {
        let manifest = self.manifest.lock();
        let (id, manifest_bytes) = manifest.file_and_bytes();
        RecordedFiles {
            manifest: id,
            manifest_bytes,
            logs: manifest.logs.clone(),
            retained: manifest.retained.clone(),
        }
    }
    /// Returns the events with sequence numbers of at least `since`.
    pub fn feed_events(&self, since: SeqNo) -> FeedEvents {
        let manifest = self.manifest.lock();
        let events = manifest.events.iter().filter(|e| e.seq >= since).cloned().collect();
        let oldest_position = manifest.oldest_position();
        FeedEvents { events, edits: self.manifest.last_edit(), oldest_position }
    }
    /// Returns the state of the catalog with the views of all column families.
    pub fn pin(&self) -> PinnedCatalog {
        let manifest = self.manifest.lock();
        // Nothing is installed now: the views match the catalog.
        let views = self.families.all().iter().map(|f| f.tree.view()).collect();
        let state = CatalogState::clone(&manifest);
        PinnedCatalog { state, edits: self.manifest.last_edit(), views }
    }
    /// Creates a column family without contents; the caller installs it.
    pub fn new_family(
        &self,
        name: &str,
        settings: impl Into<Arc<FamilySettings>>,
    ) -> Arc<FamilyState> {
        let id = self.manifest.lock().next_ids.family;
        let settings = settings.into();
        let version = Version::empty(settings.comparator);
        let tree = LsmTree::new(version, self.runtime.logical_clock.clone());
        Arc::new(FamilyState::new(id, name.to_owned(), settings, tree))
    }

    /// Returns true if an edit has recorded that the log is durable up to `seq`.
    pub fn is_recorded_durable(&self, seq: SeqNo) -> bool {
        self.manifest.lock().durable_seq >= seq
    }
    /// Records that the log is durable up to `seq`; returns false if the disk is full.
    ///
    /// # Errors
    /// Same as for any manifest edit: the database is poisoned.
    pub fn record_durable(&self, seq: SeqNo) -> Result<bool> {
        let changes = CatalogChanges { durable_seq: Some(seq), ..CatalogChanges::default() };
        match self.install(changes) {
            Ok(_) => Ok(true),
            Err(e) if e.kind() == ErrorKind::NoSpace => Ok(false),
            Err(e) => Err(e),
        }
    }
    /// Appends the last edit of a clean close: the log ends as `clean` says, is durable up to
    /// `durable`, and no longer contains the segment `unused`. Called when the database is closed
    /// for all other threads.
    pub fn record_clean_close(
        &self,
        clean: CleanClose,
        durable: SeqNo,
        unused: Option<FileId>,
    ) -> Result<()> {
        let next = NextIdsEdit {
            file: Some(self.next_file_id()),
            run: Some(self.next_run_id()),
            ..NextIdsEdit::default()
        };
        let edit = ManifestEdit {
            next_ids: Some(next),
            logs_removed: unused.into_iter().collect(),
            oldest_readable: Some(self.oldest_readable()),
            durable_seq: Some(durable),
            clean_close: Some(clean),
            ..ManifestEdit::default()
        };
        self.manifest.append_clean_close(&edit, &self.runtime.health)
    }
}
