//! Writes the manifest: an edit is checked, appended and synced, and then applied to the catalog,
//! under one lock.

use super::catalog_state::CatalogState;
use super::codec;
use super::edit::{ManifestEdit, NextIdsEdit};
use crate::limits::{MANIFEST_REWRITE_BYTES, VALIDATED_FAMILIES_MAX};
use crate::runtime::DatabaseIdentity;
use crate::runtime::dir_sync::DirSync;
use crate::runtime::health::{BackgroundTask, Health};
use crate::runtime::logical_clock::ClockHighWater;
use perigee_base::{
    Bytes, Counters, Error, ErrorKind, FileHeader, FileId, FileKind, IoActivity, Result,
};
use perigee_env::{Dir, Mutex, MutexGuard};
use perigee_file::filename;
use perigee_file::log::{EncodedRecord, LogWriter, RecordKind, RecordStamp};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

#[derive(Debug)]
struct ManifestState {
    writer: LogWriter,
    catalog: CatalogState,
    snapshot_bytes: u64,
}

/// The manifest of an open database.
#[derive(Debug)]
pub struct Manifest {
    dir: Arc<dyn Dir>,
    dir_sync: Arc<DirSync>,
    identity: DatabaseIdentity,
    state: Mutex<ManifestState>,
    /// Number of the last synced edit.
    last_edit: AtomicU64,
    counters: Arc<Counters>,
    /// Included in every edit.
    clock: Arc<ClockHighWater>,
}

/// Writes `catalog` as edit number `edit` into a new manifest that replaces the old one by rename.
/// The caller must sync the directory before it appends to it; if that fails
/// ([`manifest_not_durable`]), either manifest may survive a crash. After a failure of this
/// function the old manifest stays.
pub fn write_snapshot(
    dir: &dyn Dir,
    identity: DatabaseIdentity,
    id: FileId,
    edit: u64,
    catalog: &CatalogState,
) -> Result<LogWriter> {
    if dir.file_len(filename::MANIFEST_TMP)?.is_some() {
        dir.remove(filename::MANIFEST_TMP)?;
    }
    let writer = write_snapshot_file(dir, filename::MANIFEST_TMP, identity, id, edit, catalog)?;
    dir.rename(filename::MANIFEST_TMP, filename::MANIFEST)?;
    Ok(writer)
}

/// Returns the error for a new manifest whose directory could not be synced.
pub fn manifest_not_durable(e: Error) -> Error {
    e.wrap(ErrorKind::OutcomeUnknown, "the new manifest may not be durable")
}

/// Writes `catalog` as edit number `edit` into the new file `file` and syncs the file, but not the
/// directory.
pub fn write_snapshot_file(
    dir: &dyn Dir,
    file: &str,
    identity: DatabaseIdentity,
    id: FileId,
    edit: u64,
    catalog: &CatalogState,
) -> Result<LogWriter> {
    let header = FileHeader {
        kind: FileKind::Manifest,
        database: identity.database,
        file: id,
        a: edit,
        b: identity.boot,
    };
    check!(edit > 0, "a manifest starts with the edit of its snapshot", file, edit);
    let mut writer = LogWriter::create(dir, file, &header)?;
    let snapshot = catalog.to_edit();
    check_slow!(
        restores(&snapshot, catalog),
        "the first edit of a manifest restores the whole catalog",
        snapshot
    );
    let mut record =
        EncodedRecord::from_payload(RecordKind::Edit, &codec::encode_edit(&snapshot), 1);
    writer.append(
        RecordStamp { lsn: edit, durable_lsn: edit - 1, manifest_edits: 0 },
        &mut [&mut record],
    )?;
    writer.file().sync()?;
    Ok(writer)
}

/// Returns true if an edit, applied to nothing, results in `catalog`.
fn restores(edit: &ManifestEdit, catalog: &CatalogState) -> bool {
    let mut restored = CatalogState::default();
    let applied = restored.apply(edit);
    applied.is_ok() && restored == CatalogState { clean_close: None, ..catalog.clone() }
}

impl Manifest {
    /// Creates the state for a manifest just written by [`write_snapshot`].
    #[allow(clippy::too_many_arguments)]
    pub fn new(
        dir: Arc<dyn Dir>,
        dir_sync: Arc<DirSync>,
        identity: DatabaseIdentity,
        writer: LogWriter,
        edit: u64,
        catalog: CatalogState,
        counters: Arc<Counters>,
        clock: Arc<ClockHighWater>,
    ) -> Manifest {
        let snapshot_bytes = writer.offset();
        counters.manifest_bytes_written.add(snapshot_bytes);
        counters.io.record_writes(IoActivity::Manifest, 1, Bytes(snapshot_bytes));
        Manifest {
            dir,
            dir_sync,
            identity,
            state: Mutex::new(ManifestState { writer, catalog, snapshot_bytes }),
            last_edit: AtomicU64::new(edit),
            counters,
            clock,
        }
    }

    /// Returns the number of the last synced edit.
    pub fn last_edit(&self) -> u64 {
        self.last_edit.load(SeqCst)
    }
    /// Locks the manifest: nothing is installed before the guard is dropped.
    pub fn lock(&self) -> LockedManifest<'_> {
        LockedManifest { manifest: self, state: self.state.lock() }
    }

    /// Appends the last edit of a clean close, after the database was closed for all other threads.
    pub fn append_clean_close(&self, edit: &ManifestEdit, health: &Health) -> Result<()> {
        let mut state = self.state.lock();
        let clock = self.clock.newer_than(state.catalog.expiry_clock_ms);
        self.append_edit(
            &mut state,
            &ManifestEdit { expiry_clock_ms: clock, ..edit.clone() },
            health,
        )
    }

    /// Continues with a manifest that was written as edit `number`.
    fn use_rewritten(&self, state: &mut ManifestState, writer: LogWriter, number: u64) {
        check!(
            number == self.last_edit() + 1 && state.writer.id() < writer.id(),
            "a rewritten manifest continues with the next edit, in a newer file",
            number,
            writer.id()
        );
        state.snapshot_bytes = writer.offset();
        state.writer = writer;
        self.last_edit.store(number, SeqCst);
        self.counters.manifest_bytes_written.add(state.snapshot_bytes);
        let bytes = Bytes(state.snapshot_bytes);
        self.counters.io.record_writes(IoActivity::Manifest, 1, bytes);
    }

    fn append_edit(
        &self,
        state: &mut ManifestState,
        edit: &ManifestEdit,
        health: &Health,
    ) -> Result<()> {
        let number = self.last_edit() + 1;
        let payload = codec::encode_edit(edit);
        check!(
            payload.len() <= perigee_base::limits::EDIT_BYTES_MAX,
            "readers accept the length of an edit",
            payload.len()
        );
        check_slow!(
            codec::decode_edit(&payload).is_ok_and(|decoded| decoded == *edit),
            "an edit is decoded as it was encoded",
            edit
        );
        let mut record = EncodedRecord::from_payload(RecordKind::Edit, &payload, 1);
        let before = state.writer.offset();
        let stamp = RecordStamp { lsn: number, durable_lsn: number - 1, manifest_edits: 0 };
        if let Err(e) = state.writer.append(stamp, &mut [&mut record]) {
            if e.kind() == ErrorKind::NoSpace && state.writer.roll_back_append().is_ok() {
                return Err(e);
            }
            return Err(poison_health(e, health));
        }
        state.writer.file().sync().map_err(|e| poison_health(e, health))?;
        self.counters.manifest_edits.add(1);
        self.counters.manifest_bytes_written.add(state.writer.offset() - before);
        let bytes = Bytes(state.writer.offset() - before);
        self.counters.io.record_writes(IoActivity::Manifest, 1, bytes);
        let before = self.last_edit.swap(number, SeqCst);
        check!(before + 1 == number, "edits are numbered without gaps", before, number);
        Ok(())
    }
}

/// The locked manifest. Dereferences to the catalog, which matches the installed versions as long
/// as the lock is held.
#[derive(Debug)]
pub struct LockedManifest<'a> {
    manifest: &'a Manifest,
    state: MutexGuard<'a, ManifestState>,
}

impl Deref for LockedManifest<'_> {
    type Target = CatalogState;

    fn deref(&self) -> &CatalogState {
        &self.state.catalog
    }
}

impl LockedManifest<'_> {
    /// Returns the file id and the size of the manifest in bytes.
    pub fn file_and_bytes(&self) -> (FileId, u64) {
        (self.state.writer.id(), self.state.writer.offset())
    }
    /// Appends and syncs an edit, completed by the next file id and the expiry clock, and applies
    /// it to the catalog. The caller makes the result current before it releases the lock.
    ///
    /// # Errors
    /// `Corruption` if the edit does not fit the catalog, `NoSpace`: nothing was changed.
    /// `OutcomeUnknown`: the edit may or may not survive a reopen; the database is poisoned, and no
    /// file that the edit references may be removed.
    pub fn append(
        &mut self,
        mut edit: ManifestEdit,
        health: &Health,
        ids: &AtomicU64,
    ) -> Result<()> {
        let state = &mut *self.state;
        let next_ids = edit.next_ids.unwrap_or(state.catalog.next_ids.into());
        let next_file = FileId(ids.load(SeqCst));
        check!(
            next_file >= state.catalog.next_ids.file,
            "file ids are not used again",
            next_file,
            state.catalog.next_ids
        );
        edit.next_ids = Some(NextIdsEdit { file: Some(next_file), ..next_ids });
        edit.expiry_clock_ms = self.manifest.clock.newer_than(state.catalog.expiry_clock_ms);
        state.catalog.check(&edit)?;
        self.manifest.append_edit(state, &edit, health)?;
        state.catalog.apply_checked(&edit);
        check_slow!(
            // Checking thousands of column families after each edit would take too long.
            state.catalog.families.len() > VALIDATED_FAMILIES_MAX
                || state.catalog.validate(self.manifest.last_edit()).is_ok(),
            "the next open accepts the catalog",
            state.catalog.validate(self.manifest.last_edit())
        );
        Ok(())
    }

    /// Replaces the manifest with a snapshot of the catalog if it has grown large. A failure that
    /// leaves the old manifest valid is recorded as a background error, and the next edit tries
    /// again.
    ///
    /// # Errors
    /// `OutcomeUnknown`: either manifest may survive a crash; the database is poisoned.
    pub fn rewrite_if_large(&mut self, health: &Health, ids: &AtomicU64) -> Result<()> {
        let (manifest, state) = (self.manifest, &mut *self.state);
        let offset = state.writer.offset();
        if offset < MANIFEST_REWRITE_BYTES || offset < state.snapshot_bytes.saturating_mul(4) {
            return Ok(());
        }
        let id = FileId(ids.fetch_add(1, SeqCst));
        let next_ids = &mut state.catalog.next_ids;
        next_ids.file = next_ids.file.max(FileId(id.0 + 1));
        let number = manifest.last_edit() + 1;
        let written = write_snapshot(&*manifest.dir, manifest.identity, id, number, &state.catalog);
        match written {
            Ok(writer) => {
                // It is unknown whether the rename survives a crash: both manifests would have to
                // be appended to.
                let synced = manifest.dir_sync.sync(health).map_err(manifest_not_durable);
                synced.map_err(|e| poison_health(e, health))?;
                manifest.use_rewritten(state, writer, number);
                health.set_background_error(BackgroundTask::Manifest, None);
                Ok(())
            }
            // The old manifest is still valid and keeps growing.
            Err(e) => {
                health.set_background_error(BackgroundTask::Manifest, Some(e));
                Ok(())
            }
        }
    }
}

fn poison_health(e: Error, health: &Health) -> Error {
    let unknown = e.wrap(ErrorKind::OutcomeUnknown, "a manifest write failed");
    health.poison(&unknown);
    unknown
}
