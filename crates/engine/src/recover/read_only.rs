//! Opens a database without writing a byte: alongside the writer that holds the lock, on a
//! read-only medium, or (salvage) when the database is too damaged to be opened otherwise.
//!
//! The opened state is the state after a prefix of the commits that contains at least everything
//! acknowledged before this open began.
//! 1. The manifest is read, and every file that it references is opened before any is read, because
//!    the writer may remove files from then on. If files disappear meanwhile, newer edits are read,
//!    and only what is new is opened ([`ManifestFollower`]).
//! 2. The log is replayed in memory. It may have grown, and may contain commits after a bulk load,
//!    a clear or another change that is only in the manifest, and not in what was read of it.
//! 3. So the newer edits of the manifest are read once more. If they contain such a change with a
//!    sequence number that the replay has passed, the same files are replayed again, up to just
//!    before it. What the catalog contains has a smaller sequence number, and so has what was
//!    acknowledged before this open began. Flushes and compactions do not matter: they only move
//!    entries, and the files that held them are open.

use super::manifest_follower::{ManifestFollower, UnloggedChange};
use super::manifest_reader::RecoveredManifest;
use super::replay::{ReplayMode, replay_with_mode};
use super::replay_result::ReplayResult;
use super::{
    NewLog, RecoveredState, adopt_settings, apply_family_settings, assemble_engine,
    check_comparators, manifest_reader, open_families, open_prepared, recovery_reason,
    resolve_memory_budget,
};
use crate::catalog::Catalog;
use crate::catalog::family::FamilyState;
use crate::catalog::manifest::{CatalogState, Manifest};
use crate::limits::{READ_ONLY_RETRIES_MAX, READ_ONLY_RETRY_US};
use crate::maintenance::Maintenance;
use crate::resources::memory_budget::MemoryBudget;
use crate::runtime::DatabaseIdentity;
use crate::runtime::dir_sync::DirSync;
use crate::runtime::logical_clock::LogicalClock;
use crate::settings::Settings;
use crate::stats::RecoveryReport;
use perigee_base::bug::Bug;
use perigee_base::{
    Counters, Error, ErrorKind, FileId, FileKind, HEADER_BYTES, KeyComparator, Result, SeqNo, bug,
};
use perigee_env::fs::ReadOnlyDir;
use perigee_env::{Dir, Env};
use perigee_file::log::LogWriter;
use perigee_file::{BlockCache, TableCache, filename};
use perigee_tree::{FileOpener, SalvageGap, Table, TableMeta, Vlog, VlogMeta};
use std::cell::RefCell;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Opens the database in `dir` without changing anything.
pub fn open_read_only(
    env: Env,
    dir: Arc<dyn Dir>,
    boot: u64,
    settings: Settings,
) -> Result<(Arc<Maintenance>, RecoveryReport)> {
    let writable = Arc::clone(&dir);
    let dir = ReadOnlyDir::new(dir);
    let mut attempt = 0;
    loop {
        let before = manifest_fingerprint(&*dir);
        match open_once(env.clone(), Arc::clone(&dir), boot, settings.clone()) {
            Ok((maintenance, report)) => {
                dir.unpin_all();
                if bug::is_active(Bug::ReadOnlyTruncatesLog) {
                    truncate_log(&*writable, &maintenance.catalog, &report);
                }
                return Ok((maintenance, report));
            }
            Err(e) if attempt < READ_ONLY_RETRIES_MAX && manifest_fingerprint(&*dir) != before => {
                attempt += 1;
                drop(e);
                env.clock.sleep_us(READ_ONLY_RETRY_US * attempt);
            }
            // One retry: the writer may have been between two steps.
            Err(e) if attempt == 0 && e.is_corruption() && !settings.salvage_readonly => {
                attempt = 1;
                env.clock.sleep_us(READ_ONLY_RETRY_US);
            }
            // An inconsistency caused by a concurrent writer is not damage.
            Err(e) if manifest_fingerprint(&*dir) != before => {
                return Err(e.wrap(
                    ErrorKind::Busy,
                    "the writer changes the database faster than it can be read; open again, or \
                     take a checkpoint",
                ));
            }
            Err(e) => return Err(e),
        }
    }
}

/// Returns length and header of the manifest: one of them changes with every edit.
fn manifest_fingerprint(dir: &dyn Dir) -> Option<(u64, [u8; HEADER_BYTES])> {
    let len = dir.file_len(filename::MANIFEST).ok()??;
    let mut header = [0; HEADER_BYTES];
    dir.open(filename::MANIFEST).ok()?.read_exact_at(&mut header, 0).ok()?;
    Some((len, header))
}

fn open_once(
    env: Env,
    pinned_dir: Arc<ReadOnlyDir>,
    boot: u64,
    settings: Settings,
) -> Result<(Arc<Maintenance>, RecoveryReport)> {
    let start = env.clock.monotonic_us();
    let dir: Arc<dyn Dir> = Arc::clone(&pinned_dir) as Arc<dyn Dir>;
    if !manifest_reader::check_present(&*dir, &settings)? {
        // Never creates a database: this returns the error that says what is missing.
        manifest_reader::read_or_create(&env, &*dir, boot, &settings)?;
    }
    let mut follower = ManifestFollower::new(&pinned_dir, boot)
        .map_err(|e| explain_manifest_error(e, &settings))?;
    let mut found = follower.pin_files().map_err(|e| explain_manifest_error(e, &settings))?;
    check_comparators(&found.catalog, &settings)?;
    let counters = Arc::new(Counters::default());
    let memory =
        MemoryBudget::new(resolve_memory_budget(&env, &settings), settings.block_cache_bytes);
    let cache = Arc::new(BlockCache::new(memory.block_cache_max.min(memory.limit.0)));
    // Files stay open: a concurrent writer may remove them.
    let table_cache =
        Arc::new(TableCache::new(Arc::clone(&dir), found.database, cache, Arc::clone(&counters)));
    let now = LogicalClock::new(
        Arc::clone(&env.clock),
        found.catalog.expiry_clock_ms,
        Arc::clone(&counters),
    );
    let now = Arc::new(now);
    let families = |catalog: &CatalogState| {
        open_families(catalog, &table_cache, &now, settings.salvage_readonly)
    };
    let (families, mut replayed) =
        replay_prefix(&pinned_dir, &mut follower, &mut found, &settings, &families)?;
    if let Some(damage) = replayed.read_errors.first() {
        let why = damage.clone().wrap(
            ErrorKind::Corruption,
            "part of the log is damaged, and this key may have been written there; see `perigee \
             repair`",
        );
        for f in &families {
            let mut version = (*f.tree.view().version).clone();
            version.gap =
                Some(SalvageGap { error: why.clone(), end_seq: replayed.errors_before_lsn });
            f.tree.install_version(version, None);
        }
    }
    adopt_settings(&mut found.catalog, &settings)?;
    let families = apply_family_settings(families, &found.catalog, &settings);
    let mut prepared = match open_prepared(&found.catalog, &families, &*table_cache) {
        // Damaged tables of undecided transactions do not matter to readers.
        Err(e) if settings.salvage_readonly && (e.is_corruption() || e.kind() == ErrorKind::Io) => {
            found.catalog.prepared.clear();
            Vec::new()
        }
        opened => opened?,
    };
    // The writer may have decided one since the manifest was read, and used its identifier again.
    prepared.retain(|(p, _)| !replayed.prepared_txns.contains_key(&p.gid));
    let mut reasons = vec![found.cut_reason.clone(), replayed.cut_reason.clone()];
    reasons.extend(replayed.read_errors.iter().map(|e| format!("{e}; ")));
    let report = RecoveryReport {
        recovered_sequence: replayed.next_lsn.prev().0,
        replayed_operations: replayed.operations,
        truncated_bytes: replayed.cut_bytes + found.cut_bytes,
        reason: recovery_reason(&reasons),
        clean: found.catalog.clean_close.is_some(),
        elapsed_us: env.clock.monotonic_us().saturating_sub(start),
        ..RecoveryReport::default()
    };
    let empty_writer = || LogWriter::read_only(FileId(0), found.database);
    let (identity, high_water) =
        (DatabaseIdentity { database: found.database, boot }, now.high_water());
    let dir_sync = Arc::new(DirSync::new(Arc::clone(&dir)));
    let catalog = found.catalog.clone();
    let next_run = catalog.next_ids.run;
    let ids = Arc::new(AtomicU64::new(catalog.next_ids.file.0));
    let manifest = Manifest::new(
        Arc::clone(&dir),
        Arc::clone(&dir_sync),
        identity,
        empty_writer(),
        found.last_edit,
        catalog,
        Arc::clone(&counters),
        high_water,
    );
    let recovered = RecoveredState {
        memory,
        env,
        dir,
        identity,
        settings,
        counters,
        now,
        table_cache,
        families,
        prepared,
        next_run,
    };
    let log = NewLog::without_records(empty_writer(), replayed.first_lsn);
    let maintenance = assemble_engine(recovered, &mut replayed, log, manifest, dir_sync, ids)?;
    maintenance.runtime.health.set_read_only();
    Ok((maintenance, report))
}

/// Replays the log in memory, up to the first change of the contents that did not pass through the
/// log and is not in `found`.
fn replay_prefix(
    dir: &ReadOnlyDir,
    follower: &mut ManifestFollower<'_>,
    found: &mut RecoveredManifest,
    settings: &Settings,
    open: &dyn Fn(&CatalogState) -> Result<Vec<Arc<FamilyState>>>,
) -> Result<(Vec<Arc<FamilyState>>, ReplayResult)> {
    let boot = follower.boot();
    let follower = RefCell::new(follower);
    let edits_now = || {
        let mut follower = follower.borrow_mut();
        follower.read_new_edits().map(|_| follower.last_edit())
    };
    let replay = |families: &[Arc<FamilyState>], limit| {
        let mode = ReplayMode {
            salvage: settings.salvage_readonly,
            limit,
            memory: None,
            edits_now: &edits_now,
        };
        replay_with_mode(dir, found, boot, families, mode)
    };
    let mut families = open(&found.catalog)?;
    let mut replayed = replay(&families, SeqNo::MAX);
    // A missed change may also be why the replay failed, for example because the log writes to a
    // column family that was just created.
    let last = replayed.as_ref().map_or(SeqNo::MAX, |r| r.next_lsn.prev());
    let change = follower.borrow_mut().change_up_to(last)?;
    match change.filter(|_| !bug::is_active(Bug::ReaderSkipsManifestCheck)) {
        None => {}
        Some(UnloggedChange::FirstAt(seq)) => {
            // Frees their memory before it is needed again.
            drop((families, replayed));
            families = open(&found.catalog)?;
            replayed = replay(&families, seq.prev());
        }
        Some(UnloggedChange::Unknown) => {
            return Err(Error::new(ErrorKind::Busy, "the manifest was replaced during the replay"));
        }
    }
    follower.borrow_mut().read_new_edits()?;
    if follower.borrow().may_have_lost_log(&found.catalog)
        && !bug::is_active(Bug::ReaderTrustsTruncatedLog)
    {
        return Err(Error::new(
            ErrorKind::Busy,
            "another process opened the database during the replay",
        ));
    }
    let mut replayed = replayed?;
    drop_pending_number(&mut replayed, &found.catalog);
    // Settings have no sequence number. A merge operator is in the manifest before its first
    // operand is in the log.
    for (id, entry) in &mut found.catalog.families {
        if let Some(now) = follower.borrow().catalog().families.get(id) {
            entry.settings = now.settings.clone();
        }
    }
    Ok((families, replayed))
}

/// Excludes the last sequence number of the log if it was reserved for a change that the catalog
/// does not contain: a change feed that starts at the sequence number of this open must report that
/// change.
fn drop_pending_number(replayed: &mut ReplayResult, catalog: &CatalogState) {
    if let Some((first, last)) = replayed.reserved_seqs.clone().map(RangeInclusive::into_inner)
        && !catalog.events.iter().any(|e| e.seq == last)
        && !bug::is_active(Bug::ReaderKeepsPendingSeqNo)
    {
        replayed.next_lsn = first;
        replayed.first_lsn = replayed.first_lsn.min(first);
    }
}

/// Explains a damaged manifest to a salvaging caller: without it the extent of the loss is unknown,
/// and only repair can recover data.
fn explain_manifest_error(e: Error, settings: &Settings) -> Error {
    if settings.salvage_readonly && e.is_corruption() {
        return e.wrap(
            ErrorKind::Corruption,
            "the manifest is damaged, so the extent of the loss is unknown; `perigee repair` \
             builds a new database from what is readable",
        );
    }
    e
}

/// Seeded bug: truncates the log during a read-only open.
fn truncate_log(dir: &dyn Dir, catalog: &Catalog, report: &RecoveryReport) {
    let logs = catalog.recorded_files().logs;
    let last = logs.last().map(|(id, _)| filename::file_name(*id, FileKind::Wal));
    if let Some(file) =
        last.and_then(|f| dir.append_to(&f).ok()).filter(|_| report.truncated_bytes > 0)
    {
        let _ = file.truncate(file.len().saturating_sub(report.truncated_bytes));
    }
}

/// Opens the files that can be opened; for the others, reads return the reason.
pub struct SalvageOpener<'a> {
    /// Opens the files.
    pub table_cache: &'a TableCache,
    /// The comparator of the column family.
    pub comparator: KeyComparator,
}

fn wrap_damage(e: Error, what: &str) -> Result<Error> {
    match e.kind() {
        ErrorKind::Corruption | ErrorKind::Io => Ok(e.wrap(ErrorKind::Corruption, what)),
        _ => Err(e),
    }
}

impl FileOpener for SalvageOpener<'_> {
    fn open_table(&self, meta: &TableMeta) -> Result<Arc<Table>> {
        self.table_cache.open_table(meta).or_else(|e| {
            let why = wrap_damage(e, "the table that may hold this key cannot be opened")?;
            if meta.summary.ranges.is_some() {
                // Its range tombstones covered keys of other tables, which would silently reappear.
                return Err(why.wrap(
                    ErrorKind::Corruption,
                    "a table with range tombstones is damaged; use `perigee repair`",
                ));
            }
            let reader =
                self.table_cache.placeholder_klog(meta.id, &meta.summary, self.comparator, why)?;
            Ok(Arc::new(Table { meta: meta.clone(), reader: Arc::new(reader) }))
        })
    }
    fn open_vlog(&self, meta: &VlogMeta) -> Result<Arc<Vlog>> {
        self.table_cache.open_vlog(meta).or_else(|e| {
            let why = wrap_damage(e, "the value log that holds this value cannot be opened")?;
            let reader = self.table_cache.placeholder_vlog(meta.id, meta.bytes, why);
            Ok(Arc::new(Vlog { meta: meta.clone(), reader: Arc::new(reader) }))
        })
    }
}
