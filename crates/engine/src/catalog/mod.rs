//! The contents of the database, [`Catalog`]: column families and their versions, the manifest that
//! records them, snapshots, the visible sequence number, and files that nothing references any
//! more. Knows nothing about the log, transactions or jobs.

pub mod snapshot;
pub mod obsolete_files;
pub mod retained_logs;
pub mod manifest;
mod compaction_cursor;
pub mod family_counters;
pub mod hook_event;
pub mod family;
mod rewrite_context;
pub mod install;
mod named_snapshots;
mod unsorted_memtables;
mod records;

pub use records::{FeedEvents, PinnedCatalog, RecordedFiles};

use crate::resources::write_pressure;
use crate::resources::{FamilyLoad, Resources};
use crate::runtime::Runtime;
use family::Families;
use manifest::Manifest;
use obsolete_files::{ObsoleteFiles, immutable_memtable_bytes};
use perigee_base::{AtomicSeqNo, FileId, KeyComparator, Result, RunId, SeqNo};
use perigee_tree::{SnapshotStripes, Table, Vlog};
use snapshot::{SnapshotHandle, SnapshotList};
use std::collections::BTreeMap;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Release, SeqCst},
};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use unsorted_memtables::UnsortedMemtables;

/// Allocates a file id.
pub fn allocate_file_id(ids: &AtomicU64) -> FileId {
    FileId(ids.fetch_add(1, SeqCst))
}

/// The catalog of an open database.
#[derive(Debug)]
pub struct Catalog {
    /// The runtime.
    pub runtime: Arc<Runtime>,
    /// The limited resources.
    pub resources: Arc<Resources>,
    /// Sequence number of the last visible operation.
    visible_seq: AtomicSeqNo,
    families: Families,
    snapshots: Arc<SnapshotList>,
    /// The manifest's named snapshots; each pins its sequence number.
    named_snapshots: Mutex<BTreeMap<String, SnapshotHandle>>,
    manifest: Manifest,
    obsolete_files: ObsoleteFiles,
    /// Memtables that a background thread sorts.
    unsorted_memtables: UnsortedMemtables,
    /// User-defined comparators available to column families.
    comparators: RwLock<Vec<KeyComparator>>,
    next_file_id: Arc<AtomicU64>,
    /// The next run id for level 0.
    next_run_id: AtomicU64,
    /// Held while the load or the limits are computed and stored, so that an older result never
    /// replaces a newer one. No I/O while it is held.
    refresh_lock: Mutex<()>,
}

/// The parts of a [`Catalog`] that recovery creates.
#[derive(Debug)]
pub struct CatalogParts {
    /// The manifest.
    pub manifest: Manifest,
    /// The column families.
    pub families: Families,
    /// The next file id.
    pub file_ids: Arc<AtomicU64>,
    /// The next run id for level 0.
    pub next_run: RunId,
    /// Sequence number of the last operation.
    pub last_seq: SeqNo,
    /// The named snapshots.
    pub named_snapshots: BTreeMap<String, SeqNo>,
    /// The oldest readable sequence number.
    pub oldest_readable: SeqNo,
}

impl Catalog {
    /// Creates the catalog of a recovered database.
    pub fn new(resources: Arc<Resources>, parts: CatalogParts) -> Catalog {
        let runtime = Arc::clone(&resources.runtime);
        let settings = &runtime.settings;
        let snapshots = Arc::new(SnapshotList::new(settings.history, parts.oldest_readable));
        let acquire = |(name, seq)| (name, snapshots.acquire_named(seq));
        let named = parts.named_snapshots.into_iter().map(acquire).collect();
        // The row cache knows no operation from before the open.
        parts.families.all().iter().for_each(|f| f.row_cache_epoch.advance(parts.last_seq));
        let catalog = Catalog {
            visible_seq: AtomicSeqNo::new(parts.last_seq),
            families: parts.families,
            named_snapshots: Mutex::new(named),
            snapshots,
            manifest: parts.manifest,
            obsolete_files: ObsoleteFiles::default(),
            unsorted_memtables: UnsortedMemtables::default(),
            comparators: settings.comparators.clone().into(),
            next_file_id: parts.file_ids,
            next_run_id: AtomicU64::new(parts.next_run.0),
            refresh_lock: Mutex::new(()),
            runtime,
            resources,
        };
        catalog.refresh_limits();
        catalog.refresh_load();
        // History is counted from now on.
        catalog.snapshot_stripes();
        catalog
    }

    /// Returns the sequence number of the last visible operation.
    #[inline]
    pub fn visible_seq(&self) -> SeqNo {
        self.visible_seq.load(Acquire)
    }
    /// Makes everything up to `seq` visible. Called in the commit section.
    #[inline]
    pub fn set_visible_seq(&self, seq: SeqNo) {
        self.visible_seq.store(seq, Release);
    }
    /// Returns the memtables that a background thread is to sort.
    pub fn unsorted_memtables(&self) -> &UnsortedMemtables {
        &self.unsorted_memtables
    }
    /// Returns the column families.
    #[inline]
    pub fn families(&self) -> &Families {
        &self.families
    }
    /// Returns the user-defined comparators available now.
    pub fn comparators(&self) -> Vec<KeyComparator> {
        self.comparators.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
    /// Makes a comparator available to column families.
    pub fn add_comparator(&self, comparator: KeyComparator) {
        let mut comparators = self.comparators.write().unwrap_or_else(PoisonError::into_inner);
        if !comparators.contains(&comparator) {
            comparators.push(comparator);
        }
    }

    /// Takes a snapshot of the current state.
    pub fn acquire_snapshot(&self) -> SnapshotHandle {
        self.snapshots.acquire(&self.visible_seq)
    }
    /// Returns the oldest sequence number at which a reader can still start.
    pub fn oldest_readable(&self) -> SeqNo {
        self.snapshots.oldest_readable()
    }
    /// Returns the number of live snapshots.
    pub fn snapshot_count(&self) -> usize {
        self.snapshots.count()
    }
    /// Returns the snapshot stripes as of now, for estimates; a rewrite gets its own in
    /// [`rewrite_context`](Catalog::rewrite_context).
    pub fn snapshot_stripes(&self) -> SnapshotStripes {
        let now = self.runtime.env.clock.monotonic_us();
        self.snapshots.live_snapshots(&self.visible_seq, now).into_stripes()
    }

    /// Allocates a file id.
    pub fn allocate_file_id(&self) -> FileId {
        allocate_file_id(&self.next_file_id)
    }
    /// Returns the next file id.
    pub fn next_file_id(&self) -> FileId {
        FileId(self.next_file_id.load(SeqCst))
    }
    /// Allocates a run id for level 0.
    pub fn allocate_run_id(&self) -> RunId {
        RunId(self.next_run_id.fetch_add(1, SeqCst))
    }
    /// Returns the next run id.
    pub fn next_run_id(&self) -> RunId {
        RunId(self.next_run_id.load(SeqCst))
    }
    /// Lists files that were never in a version; they are deleted after their last reader.
    pub fn retire_unpublished(&self, tables: &[Arc<Table>], vlogs: &[Arc<Vlog>]) {
        self.obsolete_files.add_unpublished(tables, vlogs);
    }
    /// Keeps the tables of a prepared transaction that was committed until their last holder is
    /// gone.
    pub fn track_prepared(&self, tables: &[Arc<Table>]) {
        self.obsolete_files.track_prepared(tables);
    }
    /// Deletes the obsolete files whose last reader is gone.
    pub fn delete_unreferenced(&self) -> Result<()> {
        let listed = || self.manifest.lock().data_files();
        self.obsolete_files.delete_unreferenced(self.resources.table_cache(), listed)
    }
    /// Returns the bytes of all tables.
    pub fn table_bytes(&self) -> u64 {
        let tables = |v: &perigee_tree::Version| -> u64 {
            v.tables().map(|(_, _, t)| t.meta.summary.bytes).sum()
        };
        self.families.all().iter().map(|f| tables(&f.tree.view().version)).sum()
    }

    /// Recomputes the load and the memory use of all column families; called where a memtable is
    /// sealed or a version is installed.
    pub fn refresh_load(&self) {
        let _one_at_a_time = self.refresh_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let families = self.families.all();
        let mut load = FamilyLoad { families: families.len(), ..FamilyLoad::default() };
        for f in &families {
            let v = f.tree.view();
            v.immutables.iter().for_each(|m| self.obsolete_files.track_memtable(m));
            let waiting = write_pressure::immutable_memtable_load(
                v.immutables.iter().map(|m| m.bytes()),
                f.settings().memtable_bytes,
            );
            load.sealed_permille = load.sealed_permille.max(waiting);
            load.level0_runs = load.level0_runs.max(v.version.levels[0].len());
            let waste = v.version.garbage();
            load.garbage_bytes += waste.garbage_bytes;
            load.table_bytes += waste.total_bytes;
            load.active_bytes += v.active.bytes();
            load.sealed_bytes +=
                v.immutables.iter().map(|m| immutable_memtable_bytes(m)).sum::<u64>();
            load.batch_bytes += v.active.shared_batch_bytes();
            load.lazy_bytes += v.active.contents_bytes() + f.tree.stripe_bytes();
        }
        let (tracked_bytes, tracked_batch_bytes) = self.obsolete_files.tracked_memtable_bytes();
        load.tracked_bytes = tracked_bytes;
        load.batch_bytes += tracked_batch_bytes;
        self.resources.set_family_load(load);
    }
    /// Recomputes the limits derived from the column families' settings; called when column
    /// families or their settings change.
    fn refresh_limits(&self) {
        let _one_at_a_time = self.refresh_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let families = self.families.all();
        let largest = families.iter().map(|f| f.settings().memtable_bytes).max().unwrap_or(0);
        self.resources.set_largest_memtable(largest);
    }
    /// Called when a job has ended and freed its memory; may return freed memory to the operating
    /// system.
    pub fn release_job_memory(&self) {
        self.resources.reset_seal_check();
        self.refresh_load();
        self.resources.release_freed_memory();
    }
}
