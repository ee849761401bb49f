//! Appends edits: checked, written, synced, then installed, under one lock.

use super::catalog::Catalog;
use super::codec;
use super::edit::Edit;
use crate::dirsync::DirSync;
use crate::health::{Health, Slot};
use crate::now::HighWater;
use perigee_base::format::{FileHeader, FileKind};
use perigee_base::io::Cause;
use perigee_base::stats::Counters;
use perigee_base::{Error, ErrorKind, FileId, Result};
use perigee_env::Dir;
use perigee_env::sync::{Mutex, MutexGuard};
use perigee_file::log::batch::Finished;
use perigee_file::log::{LogWriter, RecordKind, Stamp};
use perigee_file::name;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// A manifest is written anew when it has grown by this and to four times its first size.
const REWRITE_BYTES: u64 = 4 << 20;

/// Which database, and under which boot of the machine it is written.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The database's id.
    pub database: u64,
    /// The boot id now.
    pub boot: u64,
}

#[derive(Debug)]
struct State {
    writer: LogWriter,
    catalog: Catalog,
    snapshot_bytes: u64,
}

/// The manifest of an open database.
#[derive(Debug)]
pub struct Manifest {
    dir: Arc<dyn Dir>,
    dir_sync: Arc<DirSync>,
    place: Place,
    state: Mutex<State>,
    /// Number of the last synced edit.
    edits: AtomicU64,
    counters: Arc<Counters>,
    /// Goes into every edit that is written anyway.
    clock: Arc<HighWater>,
}

/// Writes `catalog` as edit number `edit` into a new manifest and puts it in the place of the old one. Durable when it
/// returns. A failure before the rename leaves the old one; a failure after it leaves either.
pub fn write_snapshot(
    dir: &dyn Dir,
    place: Place,
    id: FileId,
    edit: u64,
    catalog: &Catalog,
    sync_dir: impl FnOnce() -> Result<()>,
) -> Result<LogWriter> {
    if dir.file_len(name::MANIFEST_TMP)?.is_some() {
        dir.remove(name::MANIFEST_TMP)?;
    }
    let writer = write_snapshot_file(dir, name::MANIFEST_TMP, place, id, edit, catalog)?;
    dir.rename(name::MANIFEST_TMP, name::MANIFEST)?;
    sync_dir().map_err(|e| e.wrap(ErrorKind::OutcomeUnknown, "the new manifest may not be durable"))?;
    Ok(writer)
}

/// Writes `catalog` as edit number `edit` into the new file `file`, synced; its name is not.
pub fn write_snapshot_file(
    dir: &dyn Dir,
    file: &str,
    place: Place,
    id: FileId,
    edit: u64,
    catalog: &Catalog,
) -> Result<LogWriter> {
    let header =
        FileHeader { kind: FileKind::Manifest, database: place.database, file: id, a: edit, b: place.boot };
    let mut writer = LogWriter::create(dir, file, &header)?;
    let mut record = Finished::around(RecordKind::Edit, &codec::encode(&catalog.snapshot()), 1);
    writer.append(Stamp { lsn: edit, durable: edit - 1, edits: 0 }, &mut [&mut record])?;
    writer.file().sync()?;
    Ok(writer)
}

impl Manifest {
    /// Around a manifest just written by [`write_snapshot`].
    #[allow(clippy::too_many_arguments)]
    pub fn new(
        dir: Arc<dyn Dir>,
        dir_sync: Arc<DirSync>,
        place: Place,
        writer: LogWriter,
        edit: u64,
        catalog: Catalog,
        counters: Arc<Counters>,
        clock: Arc<HighWater>,
    ) -> Manifest {
        let snapshot_bytes = writer.offset();
        counters.manifest_bytes_written.add(snapshot_bytes);
        counters.io.wrote(Cause::Manifest, 1, snapshot_bytes);
        Manifest {
            dir,
            dir_sync,
            place,
            state: Mutex::new(State { writer, catalog, snapshot_bytes }),
            edits: AtomicU64::new(edit),
            counters,
            clock,
        }
    }

    /// Number of the last synced edit.
    pub fn edits(&self) -> u64 {
        self.edits.load(SeqCst)
    }
    /// The catalog now.
    pub fn catalog(&self) -> Catalog {
        self.state.lock().catalog.clone()
    }
    /// Looks at the catalog while nothing can be installed.
    pub fn look<T>(&self, at: impl FnOnce(&Catalog) -> T) -> T {
        at(&self.state.lock().catalog)
    }
    /// The manifest's own file id, and its bytes.
    pub fn file(&self) -> (FileId, u64) {
        let state = self.state.lock();
        (state.writer.id(), state.writer.offset())
    }
    /// Bytes of the manifest.
    pub fn bytes(&self) -> u64 {
        self.state.lock().writer.offset()
    }

    /// Appends an edit durably, then runs `install` under the same lock.
    ///
    /// `prepare` runs first, under the lock: it may complete the edit, and refuse it while nothing has been written.
    ///
    /// # Errors
    /// From `prepare`, or `Corruption` if the edit does not fit: nothing happened. `NoSpace`: nothing happened.
    /// `OutcomeUnknown`: the edit may or may not be there after reopen; the database is poisoned, and no file that the
    /// edit names may be removed.
    pub fn commit<T>(
        &self,
        health: &Health,
        ids: &AtomicU64,
        prepare: impl FnOnce(&Catalog) -> Result<(Edit, T)>,
        install: impl FnOnce(T),
    ) -> Result<()> {
        let mut state = self.state.lock();
        health.check_writable()?;
        let (mut edit, prepared) = prepare(&state.catalog)?;
        let (_, family, run) = edit.next.unwrap_or(state.catalog.next);
        edit.next = Some((ids.load(SeqCst), family, run));
        edit.clock = self.clock.beyond(state.catalog.clock);
        state.catalog.check(&edit)?;
        self.append(&mut state, &edit, health)?;
        state.catalog.enact(&edit);
        install(prepared);
        self.rewrite_if_large(&mut state, health, ids)
    }

    /// The last edit of a clean close: a database that is already closed for everybody else.
    pub fn close(&self, edit: &Edit, health: &Health) -> Result<()> {
        let mut state = self.state.lock();
        let clock = self.clock.beyond(state.catalog.clock);
        self.append(&mut state, &Edit { clock, ..edit.clone() }, health)
    }

    fn append(&self, state: &mut MutexGuard<'_, State>, edit: &Edit, health: &Health) -> Result<()> {
        let number = self.edits() + 1;
        let mut record = Finished::around(RecordKind::Edit, &codec::encode(edit), 1);
        let before = state.writer.offset();
        let stamp = Stamp { lsn: number, durable: number - 1, edits: 0 };
        if let Err(e) = state.writer.append(stamp, &mut [&mut record]) {
            if e.kind() == ErrorKind::NoSpace && state.writer.roll_back().is_ok() {
                return Err(e);
            }
            return Err(poison(e, health));
        }
        state.writer.file().sync().map_err(|e| poison(e, health))?;
        self.counters.manifest_edits.add(1);
        self.counters.manifest_bytes_written.add(state.writer.offset() - before);
        self.counters.io.wrote(Cause::Manifest, 1, state.writer.offset() - before);
        self.edits.store(number, SeqCst);
        Ok(())
    }

    fn rewrite_if_large(
        &self,
        state: &mut MutexGuard<'_, State>,
        health: &Health,
        ids: &AtomicU64,
    ) -> Result<()> {
        let offset = state.writer.offset();
        if offset < REWRITE_BYTES || offset < state.snapshot_bytes.saturating_mul(4) {
            return Ok(());
        }
        let id = FileId(ids.fetch_add(1, SeqCst));
        state.catalog.next.0 = state.catalog.next.0.max(id.0 + 1);
        let number = self.edits() + 1;
        match write_snapshot(&*self.dir, self.place, id, number, &state.catalog, || {
            self.dir_sync.sync(health)
        }) {
            Ok(writer) => {
                state.snapshot_bytes = writer.offset();
                state.writer = writer;
                self.edits.store(number, SeqCst);
                self.counters.manifest_bytes_written.add(state.snapshot_bytes);
                self.counters.io.wrote(Cause::Manifest, 1, state.snapshot_bytes);
                health.set_background(Slot::Manifest, None);
                Ok(())
            }
            // Whether the rename survives a crash is unknown: both manifests would have to be appended to.
            Err(e) if e.kind() == ErrorKind::OutcomeUnknown => Err(poison(e, health)),
            // The old manifest still stands and goes on growing; the next edit tries again.
            Err(e) => {
                health.set_background(Slot::Manifest, Some(e));
                Ok(())
            }
        }
    }
}

fn poison(e: Error, health: &Health) -> Error {
    let unknown = e.wrap(ErrorKind::OutcomeUnknown, "a manifest write failed");
    health.poison(&unknown);
    unknown
}
