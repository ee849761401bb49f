//! Writes the manifest: an edit is checked, written, synced and then installed, under one lock.

use super::catalog::Catalog;
use super::codec;
use super::edit::{ManifestEdit, NextIdsEdit};
use crate::dir_sync::DirSync;
use crate::health::{BackgroundTask, Health};
use crate::logical_clock::ClockHighWater;
use perigee_base::file_header::{FileHeader, FileKind};
use perigee_base::io_stats::IoActivity;
use perigee_base::stats::Counters;
use perigee_base::{Bytes, Error, ErrorKind, FileId, Result};
use perigee_env::Dir;
use perigee_env::sync::{Mutex, MutexGuard};
use perigee_file::filename;
use perigee_file::log::batch::EncodedRecord;
use perigee_file::log::{LogWriter, RecordKind, RecordStamp};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// The manifest is rewritten when it exceeds this size and four times the size of its snapshot.
const REWRITE_BYTES: u64 = 4 << 20;

/// Identifies the database, and the boot of the machine during which the manifest is written.
#[derive(Clone, Copy, Debug)]
pub struct DatabaseIdentity {
    /// Database ID.
    pub database: u64,
    /// The current boot ID.
    pub boot: u64,
}

#[derive(Debug)]
struct ManifestState {
    writer: LogWriter,
    catalog: Catalog,
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

/// Writes `catalog` as edit number `edit` into a new manifest that replaces the old one. Durable on
/// return. After a failure before the rename the old manifest stays; after a later failure it may
/// be either.
pub fn write_snapshot(
    dir: &dyn Dir,
    identity: DatabaseIdentity,
    id: FileId,
    edit: u64,
    catalog: &Catalog,
    sync_dir: impl FnOnce() -> Result<()>,
) -> Result<LogWriter> {
    if dir.file_len(filename::MANIFEST_TMP)?.is_some() {
        dir.remove(filename::MANIFEST_TMP)?;
    }
    let writer = write_snapshot_file(dir, filename::MANIFEST_TMP, identity, id, edit, catalog)?;
    dir.rename(filename::MANIFEST_TMP, filename::MANIFEST)?;
    sync_dir()
        .map_err(|e| e.wrap(ErrorKind::OutcomeUnknown, "the new manifest may not be durable"))?;
    Ok(writer)
}

/// Writes `catalog` as edit number `edit` into the new file `file` and syncs the file, but not the
/// directory.
pub fn write_snapshot_file(
    dir: &dyn Dir,
    file: &str,
    identity: DatabaseIdentity,
    id: FileId,
    edit: u64,
    catalog: &Catalog,
) -> Result<LogWriter> {
    let header = FileHeader {
        kind: FileKind::Manifest,
        database: identity.database,
        file: id,
        a: edit,
        b: identity.boot,
    };
    let mut writer = LogWriter::create(dir, file, &header)?;
    let mut record =
        EncodedRecord::from_payload(RecordKind::Edit, &codec::encode_edit(&catalog.to_edit()), 1);
    writer.append(
        RecordStamp { lsn: edit, durable_lsn: edit - 1, manifest_edits: 0 },
        &mut [&mut record],
    )?;
    writer.file().sync()?;
    Ok(writer)
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
        catalog: Catalog,
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
    /// Returns a copy of the current catalog.
    pub fn catalog(&self) -> Catalog {
        self.state.lock().catalog.clone()
    }
    /// Calls `at` with the catalog while nothing can be installed.
    pub fn with_catalog<T>(&self, at: impl FnOnce(&Catalog) -> T) -> T {
        at(&self.state.lock().catalog)
    }
    /// Returns the file ID and the size of the manifest in bytes.
    pub fn file_and_bytes(&self) -> (FileId, u64) {
        let state = self.state.lock();
        (state.writer.id(), state.writer.offset())
    }
    /// Returns the size of the manifest in bytes.
    pub fn bytes(&self) -> u64 {
        self.state.lock().writer.offset()
    }

    /// Appends an edit durably, then runs `install` under the same lock.
    ///
    /// `prepare` runs first, under the lock: it completes the edit, or rejects it while nothing is
    /// written.
    ///
    /// # Errors
    /// From `prepare`, or `Corruption` if the edit does not fit the catalog: nothing was changed.
    /// `NoSpace`: nothing was changed. `OutcomeUnknown`: the edit may or may not survive a reopen;
    /// the database is poisoned, and no file that the edit references may be removed.
    pub fn commit_edit<T>(
        &self,
        health: &Health,
        ids: &AtomicU64,
        prepare: impl FnOnce(&Catalog) -> Result<(ManifestEdit, T)>,
        install: impl FnOnce(T),
    ) -> Result<()> {
        let mut state = self.state.lock();
        health.check_writable()?;
        let (mut edit, prepared) = prepare(&state.catalog)?;
        let next_ids = edit.next_ids.unwrap_or(state.catalog.next_ids.into());
        edit.next_ids = Some(NextIdsEdit { file: Some(FileId(ids.load(SeqCst))), ..next_ids });
        edit.expiry_clock_ms = self.clock.newer_than(state.catalog.expiry_clock_ms);
        state.catalog.check(&edit)?;
        self.append_edit(&mut state, &edit, health)?;
        state.catalog.apply_checked(&edit);
        install(prepared);
        self.rewrite_if_large(&mut state, health, ids)
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

    fn append_edit(
        &self,
        state: &mut MutexGuard<'_, ManifestState>,
        edit: &ManifestEdit,
        health: &Health,
    ) -> Result<()> {
        let number = self.last_edit() + 1;
        let mut record =
            EncodedRecord::from_payload(RecordKind::Edit, &codec::encode_edit(edit), 1);
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
        self.last_edit.store(number, SeqCst);
        Ok(())
    }

    fn rewrite_if_large(
        &self,
        state: &mut MutexGuard<'_, ManifestState>,
        health: &Health,
        ids: &AtomicU64,
    ) -> Result<()> {
        let offset = state.writer.offset();
        if offset < REWRITE_BYTES || offset < state.snapshot_bytes.saturating_mul(4) {
            return Ok(());
        }
        let id = FileId(ids.fetch_add(1, SeqCst));
        let next_ids = &mut state.catalog.next_ids;
        next_ids.file = next_ids.file.max(FileId(id.0 + 1));
        let number = self.last_edit() + 1;
        match write_snapshot(&*self.dir, self.identity, id, number, &state.catalog, || {
            self.dir_sync.sync(health)
        }) {
            Ok(writer) => {
                state.snapshot_bytes = writer.offset();
                state.writer = writer;
                self.last_edit.store(number, SeqCst);
                self.counters.manifest_bytes_written.add(state.snapshot_bytes);
                let bytes = Bytes(state.snapshot_bytes);
                self.counters.io.record_writes(IoActivity::Manifest, 1, bytes);
                health.set_background_error(BackgroundTask::Manifest, None);
                Ok(())
            }
            // It is unknown whether the rename survives a crash: both manifests would have to be
            // appended to.
            Err(e) if e.kind() == ErrorKind::OutcomeUnknown => Err(poison_health(e, health)),
            // The old manifest is still valid and keeps growing; the next edit tries again.
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
