//! The values that describe a change of the catalog, their preconditions, and the manifest edit
//! that they result in. Pure.

use super::family_update::{FamilyUpdate, ReplacedView};
use super::snapshot_change::SnapshotChange;
use crate::catalog::family::{Families, FamilyState};
use crate::catalog::manifest::{
    CatalogState, FamilyEvent, ManifestEdit, NextIdsEdit, PreparedTables,
};
use crate::catalog::retained_logs::{LogSpan, split_retained};
use perigee_base::{Error, ErrorKind, FileId, Result, RunId, SeqNo};
use perigee_tree::{FileOpener, Memtable, Version, VersionEdit, Vlog};
use std::sync::Arc;

/// Changes of the catalog that take effect together, with their preconditions.
#[derive(Debug, Default)]
pub struct CatalogChanges {
    /// New versions of column families, at most one of each.
    pub versions: Vec<VersionChange>,
    /// The change of a column family as a whole.
    pub family: Option<FamilyUpdate>,
    /// The change of a named snapshot.
    pub snapshot: Option<SnapshotChange>,
    /// A transaction that is prepared with its tables.
    pub prepared: Option<Arc<PreparedTables>>,
    /// The identifier of such a transaction that is decided.
    pub decided: Option<Vec<u8>>,
    /// Changes of the log segments.
    pub logs: LogChanges,
    /// Column-family events to record.
    pub events: Vec<FamilyEvent>,
    /// The next run id, which is above those of all added tables.
    pub next_run: Option<RunId>,
    /// The oldest readable sequence number that the changes require.
    pub oldest_readable: Option<SeqNo>,
    /// The log is on stable storage up to here.
    pub durable_seq: Option<SeqNo>,
}

/// A new version of a column family.
#[derive(Debug)]
pub struct VersionChange {
    /// The column family, which must not have been dropped.
    pub family: Arc<FamilyState>,
    /// The tables and value logs added and removed.
    pub edit: VersionEdit,
    /// What produced the edit, with the precondition for its installation.
    pub source: VersionSource,
}

/// What produced a version edit.
#[derive(Debug)]
pub enum VersionSource {
    /// A flush of this memtable, which must still await it.
    Flush(Arc<Memtable>),
    /// A compaction, whose inputs must still be in the version.
    Compaction,
    /// A bulk load, which is installed completely or not at all.
    Load {
        /// Value logs of the load that are open already: each file has one object per process.
        open_vlogs: Vec<Arc<Vlog>>,
    },
}

/// Changes of the log segments that the manifest lists.
#[derive(Debug, Default)]
pub struct LogChanges {
    /// A segment that is added, with its first LSN (0: not known yet).
    pub added: Option<(FileId, SeqNo)>,
    /// First LSNs of segments, recorded where the manifest lacks them.
    pub segment_starts: Vec<(FileId, SeqNo)>,
    /// Segments that recovery no longer needs.
    pub obsolete: Vec<LogSpan>,
    /// Bytes of obsolete segments that are retained for readers.
    pub retention_bytes: u64,
}

/// What has to be recomputed after an installation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InstallEffect {
    /// The limits that depend on the settings of the column families.
    pub limits: bool,
    /// The load and the memory use of the column families.
    pub load: bool,
    /// Threads may wait for the change.
    pub wakes: bool,
}

/// A version that is ready to become current.
#[derive(Debug)]
pub struct StagedVersion {
    /// The column family.
    pub family: Arc<FamilyState>,
    version: Version,
    flushed: Option<Arc<Memtable>>,
    added_tables: u64,
    added_bytes: u64,
}

impl CatalogChanges {
    /// Removes the flushes and compactions whose column family was dropped or cleared.
    ///
    /// # Errors
    /// `NotFound` if none is left, or if a load is among those.
    pub fn skip_stale_versions(&mut self) -> Result<()> {
        let mut rejected = Ok(());
        let mut is_load = false;
        self.versions.retain(|change| match change.check_source() {
            Ok(()) => true,
            Err(e) => {
                is_load |= matches!(change.source, VersionSource::Load { .. });
                rejected = Err(e);
                false
            }
        });
        if self.versions.is_empty() || is_load { rejected } else { Ok(()) }
    }

    /// Checks what must hold for the other changes.
    pub fn check_preconditions(&self, families: &Families, catalog: &CatalogState) -> Result<()> {
        self.family.as_ref().map_or(Ok(()), |update| update.check(families, catalog))?;
        self.snapshot.as_ref().map_or(Ok(()), |snapshot| snapshot.check(catalog))
    }

    /// Returns an edit with the events and numbers.
    pub fn base_edit(&self, catalog: &CatalogState) -> ManifestEdit {
        let run = NextIdsEdit { run: self.next_run, ..NextIdsEdit::default() };
        ManifestEdit {
            next_ids: self.next_run.map(|_| run),
            prepared: self.prepared.iter().cloned().collect(),
            decided: self.decided.iter().cloned().collect(),
            events: self.events.clone(),
            oldest_readable: self.oldest_readable.filter(|seq| *seq > catalog.oldest_readable),
            durable_seq: self.durable_seq,
            ..ManifestEdit::default()
        }
    }

    /// Returns what has to be recomputed.
    pub fn effect(&self) -> InstallEffect {
        let update = self.family.as_ref();
        let versions = !self.versions.is_empty() || !self.logs.obsolete.is_empty();
        let load = versions || update.is_some_and(FamilyUpdate::changes_contents);
        let limits = update.is_some_and(FamilyUpdate::changes_limits);
        // A compaction may wait for the end of a snapshot, but no thread for an empty family.
        let unblocks = matches!(self.snapshot, Some(SnapshotChange::Drop { .. }))
            || matches!(update, Some(FamilyUpdate::Configure { .. }));
        InstallEffect { limits, load, wakes: load || unblocks }
    }
}

impl VersionChange {
    /// Fails if the column family was dropped or cleared since the edit was built.
    fn check_source(&self) -> Result<()> {
        self.family.check_not_dropped()?;
        let cleared = |job: &str| {
            let text = format!("the column family was cleared during the {job}");
            Err(Error::new(ErrorKind::NotFound, text))
        };
        match &self.source {
            VersionSource::Flush(memtable) if !self.family.awaits_flush(memtable) => {
                cleared("flush")
            }
            // Compactions run one at a time: no other job removes their inputs.
            VersionSource::Compaction if !self.has_inputs() => cleared("compaction"),
            _ => Ok(()),
        }
    }

    /// Returns true if all tables that the edit removes are in the current version.
    fn has_inputs(&self) -> bool {
        if self.edit.removed.is_empty() {
            return true;
        }
        let live_files = self.family.tree.view().version.file_ids();
        self.edit.removed.iter().all(|(_, id)| live_files.contains(id))
    }

    /// Builds the new version from the current one and `files`, and adds the change to `edit`.
    pub fn stage(self, files: &dyn FileOpener, edit: &mut ManifestEdit) -> Result<StagedVersion> {
        let VersionChange { family, edit: mut change, source } = self;
        let mut version = family.tree.apply_edit(&change, files)?;
        if !matches!(source, VersionSource::Load { .. }) {
            change.vlogs_removed = version.drop_unreferenced_vlogs();
        }
        let flushed = match source {
            VersionSource::Flush(memtable) => Some(memtable),
            VersionSource::Compaction | VersionSource::Load { .. } => None,
        };
        let table_bytes: u64 = change.added.iter().map(|t| t.meta.summary.bytes).sum();
        let vlog_bytes: u64 = change.vlogs_added.iter().map(|v| v.bytes).sum();
        let (added_tables, added_bytes) = (change.added.len() as u64, table_bytes + vlog_bytes);
        edit.versions.push((family.id, change));
        Ok(StagedVersion { family, version, flushed, added_tables, added_bytes })
    }
}

impl StagedVersion {
    /// Makes the version current; returns the view that it replaces.
    pub fn swap(self) -> ReplacedView {
        let StagedVersion { family, version, flushed, added_tables, added_bytes } = self;
        let view = family.tree.view();
        if flushed.is_some() {
            // Before the version: a thread that waits for the flush finds it counted.
            family.counters.flush_tables.add(added_tables);
            family.counters.flush_bytes.add(added_bytes);
        }
        check_slow!(
            flushed
                .as_ref()
                .is_none_or(|m| view.immutables.last().is_some_and(|v| Arc::ptr_eq(v, m))),
            "the memtables of a column family are flushed oldest first",
            family
        );
        family.tree.install_version(version, flushed.as_ref());
        check_slow!(
            flushed.as_ref().is_none_or(|m| !family.awaits_flush(m)),
            "the tables of a flush replace its memtable",
            family
        );
        ReplacedView { family, view }
    }
}

impl LogChanges {
    /// Adds the changes to `edit`. Returns the obsolete segments that are retained for readers, and
    /// those that are deleted.
    pub fn add_to(
        &self,
        catalog: &CatalogState,
        edit: &mut ManifestEdit,
    ) -> (Vec<LogSpan>, Vec<LogSpan>) {
        edit.logs_added = catalog.missing_log_starts(&self.segment_starts);
        edit.logs_added.extend(self.added);
        if self.obsolete.is_empty() {
            return (Vec::new(), Vec::new());
        }
        let kept = &catalog.retained;
        let (stay, gone) = split_retained(kept, &self.obsolete, self.retention_bytes);
        let is_kept = |s: &&LogSpan| kept.iter().any(|other| other.id == s.id);
        edit.logs_removed = self.obsolete.iter().map(|s| s.id).collect();
        edit.logs_retained = stay.iter().filter(|s| !is_kept(s)).copied().collect();
        edit.retained_removed = gone.iter().filter(is_kept).map(|s| s.id).collect();
        check_slow!(
            edit.logs_added.iter().all(|(id, _)| !edit.logs_removed.contains(id)),
            "no edit both adds and removes a log segment",
            edit.logs_added,
            edit.logs_removed
        );
        (edit.logs_retained.clone(), gone)
    }
}
