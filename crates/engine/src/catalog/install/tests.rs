//! Every kind of change, every rejected precondition, and a failure at every step.

use super::*;
use crate::Engine;
use crate::catalog::Catalog;
use crate::catalog::family::FamilyState;
use crate::catalog::manifest::{FamilyEvent, FamilyEventKind};
use crate::ddl;
use crate::fuzz::small_settings;
use crate::settings::{FamilySettings, Settings};
use perigee_base::limits::{FAMILY_EVENTS_MAX, FAMILY_NAME_BYTES_MAX};
use perigee_base::{Error, ErrorKind, FileId, KeyComparator, LevelNo, MergeRule, RunId, SeqNo};
use perigee_env::Env;
use perigee_env::fs::memory::{Fault, SimDisk};
use perigee_file::log::Batch;
use perigee_tree::rewrite::NoPacing;
use perigee_tree::{AddedTable, FileOpener, LsmTree, TableMeta, VersionEdit, flush};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

/// An open database without background jobs.
struct TestDb {
    disk: Arc<SimDisk>,
    engine: Engine,
}

/// Everything that an installation may change.
#[derive(Debug, PartialEq)]
struct InstalledState {
    catalog: CatalogState,
    edits: u64,
    families: Vec<String>,
    files: Vec<BTreeSet<FileId>>,
    memtables: Vec<usize>,
    named: Vec<(String, SeqNo)>,
    epoch: u64,
}

fn settings() -> Settings {
    let family = FamilySettings { value_threshold: 64, ..FamilySettings::default() };
    Settings {
        verify_outputs: false,
        latency_stats: false,
        log_file_bytes: 0,
        log_files_kept: 0,
        ..small_settings(family)
    }
}

impl TestDb {
    /// Opens a database with the column families `default` and `f`.
    fn open() -> TestDb {
        let disk = SimDisk::new(1);
        let env = Env { fs: disk.clone(), ..Env::real() };
        let engine = Engine::open(env, Path::new("/db"), settings()).unwrap();
        engine.pause_jobs().unwrap();
        engine.create_family("f", FamilySettings::default()).unwrap();
        TestDb { disk, engine }
    }
    fn catalog(&self) -> &Catalog {
        &self.engine.catalog
    }
    fn family(&self, name: &str) -> Arc<FamilyState> {
        self.engine.family(name).unwrap()
    }
    fn state(&self) -> InstalledState {
        let catalog = self.catalog().manifest.lock().clone();
        let views: Vec<_> = self.engine.all_families().iter().map(|f| f.tree.view()).collect();
        InstalledState {
            catalog,
            edits: self.catalog().manifest.last_edit(),
            families: self.catalog().families().names(),
            files: views.iter().map(|v| v.version.file_ids()).collect(),
            memtables: views.iter().map(|v| v.immutables.len()).collect(),
            named: self.catalog().named_snapshots(),
            epoch: self.catalog().snapshots.epoch(),
        }
    }
    /// Checks that the catalog and the installed state agree.
    fn check_consistent(&self) {
        let state = self.state();
        let entries = state.catalog.families.values();
        let names: BTreeSet<String> = entries.clone().map(|f| f.name.clone()).collect();
        assert_eq!(names, state.families.iter().cloned().collect());
        let files = entries.map(|f| f.tables.keys().chain(f.vlogs.keys()).copied().collect());
        assert_eq!(files.collect::<Vec<BTreeSet<_>>>(), state.files);
        let named: Vec<_> = state.catalog.snapshots.into_iter().collect();
        assert_eq!(named, state.named);
    }
    fn install(&self, changes: CatalogChanges) -> Installed {
        let before = self.catalog().manifest.last_edit();
        let installed = self.catalog().install(changes).unwrap();
        assert_eq!(self.catalog().manifest.last_edit(), before + 1);
        self.check_consistent();
        installed
    }
    /// Installs changes that must be rejected without any effect.
    fn reject(&self, changes: CatalogChanges) -> Error {
        let before = self.state();
        let error = self.catalog().install(changes).unwrap_err();
        assert_eq!(self.state(), before, "{error}");
        error
    }
    /// Writes a key and a separated value, seals the memtable and builds its table.
    fn build_flush(&self, family: &Arc<FamilyState>, key: &[u8]) -> VersionChange {
        let mut batch = Batch::new();
        batch.put(family.id, key, &[7; 5000]).unwrap();
        self.engine.write(batch, None).unwrap();
        family.tree.seal_memtable();
        let (catalog, view) = (self.catalog(), family.tree.view());
        let memtable = Arc::clone(view.immutables.last().unwrap());
        let run = catalog.allocate_run_id();
        let newest = memtable.last_seq();
        let context = catalog.rewrite_context(family, &view.version, &NoPacing, newest);
        let (edit, _) = flush(&memtable, run, context, &mut CreatedFiles::default()).unwrap();
        VersionChange { family: Arc::clone(family), edit, source: VersionSource::Flush(memtable) }
    }
    fn flush(&self, family: &Arc<FamilyState>, key: &[u8]) -> TableMeta {
        let change = self.build_flush(family, key);
        let meta = change.edit.added[0].meta.clone();
        self.install(self.versions(vec![change]));
        meta
    }
    fn versions(&self, versions: Vec<VersionChange>) -> CatalogChanges {
        let next_run = Some(self.catalog().next_run_id());
        CatalogChanges { versions, next_run, ..CatalogChanges::default() }
    }
    /// Returns a column family with the next id that is not installed.
    fn new_family(&self, name: &str) -> Arc<FamilyState> {
        let id = self.catalog().manifest.lock().next_ids.family;
        let version = perigee_tree::Version::empty(KeyComparator::Bytes);
        let tree = LsmTree::new(version, self.catalog().runtime.logical_clock.clone());
        Arc::new(FamilyState::new(id, name.to_owned(), FamilySettings::default(), tree))
    }
    fn has_file(&self, id: FileId, kind: FileKind) -> bool {
        self.catalog().runtime.dir.file_len(&filename::file_name(id, kind)).unwrap().is_some()
    }
    fn delete_obsolete(&self) {
        self.catalog().delete_unreferenced().unwrap();
    }
}

fn family_change(update: FamilyUpdate) -> CatalogChanges {
    CatalogChanges { family: Some(update), ..CatalogChanges::default() }
}

fn snapshot_change(change: SnapshotChange) -> CatalogChanges {
    CatalogChanges { snapshot: Some(change), ..CatalogChanges::default() }
}

fn log_change(logs: LogChanges) -> CatalogChanges {
    CatalogChanges { logs, ..CatalogChanges::default() }
}

fn watermark(seq: u64) -> CatalogChanges {
    CatalogChanges { durable_seq: Some(SeqNo(seq)), ..CatalogChanges::default() }
}

fn compaction(family: &Arc<FamilyState>, edit: VersionEdit) -> VersionChange {
    VersionChange { family: Arc::clone(family), edit, source: VersionSource::Compaction }
}

#[test]
fn records_numbers_and_events() {
    let db = TestDb::open();
    let seq = db.catalog().manifest.lock().durable_seq.plus(5);
    let event =
        FamilyEvent { seq: seq.plus(1), family: db.family("f").id, kind: FamilyEventKind::Loaded };
    db.install(CatalogChanges {
        events: vec![event.clone()],
        next_run: Some(RunId(77)),
        oldest_readable: Some(SeqNo(1)),
        durable_seq: Some(seq),
        ..CatalogChanges::default()
    });
    // Lower numbers change nothing.
    db.install(CatalogChanges {
        next_run: Some(RunId(5)),
        oldest_readable: Some(SeqNo(0)),
        ..watermark(1)
    });
    let catalog = db.catalog().manifest.lock().clone();
    assert_eq!((catalog.durable_seq, catalog.next_ids.run), (seq, RunId(77)));
    assert_eq!((catalog.oldest_readable, catalog.events.last()), (SeqNo(1), Some(&event)));
}

#[test]
fn flush_replaces_memtable_by_table() {
    let db = TestDb::open();
    let family = db.family("default");
    let change = db.build_flush(&family, b"k");
    let (table, vlog) = (change.edit.added[0].meta.id, change.edit.vlogs_added[0].id);
    let installed = db.install(db.versions(vec![change]));
    assert_eq!(installed.families, HashSet::from([family.id]));
    let view = family.tree.view();
    assert!(view.immutables.is_empty());
    assert_eq!(view.version.file_ids(), BTreeSet::from([table, vlog]));
    assert_eq!(family.counters.flush_tables.get(), 1);
}

#[test]
fn compaction_moves_open_table_and_retires_replaced_files() {
    let db = TestDb::open();
    let family = db.family("default");
    let [a, b] = [b"a", b"b"].map(|key| db.flush(&family, key));
    let open: Vec<_> = family.tree.view().version.tables().map(|(_, _, t)| t.clone()).collect();
    let moved = open.into_iter().find(|t| t.meta.id == a.id).unwrap();
    let [added_a, removed_a, removed_b] = [(1, &a), (0, &a), (0, &b)]
        .map(|(level, t)| AddedTable { level: LevelNo(level), run: RunId(0), meta: t.clone() });
    let removed = [removed_a, removed_b].map(|t| (t.level, t.meta.id)).to_vec();
    let edit = VersionEdit { added: vec![added_a], removed, ..VersionEdit::default() };
    db.install(db.versions(vec![compaction(&family, edit)]));
    let view = family.tree.view();
    let tables: Vec<_> = view.version.tables().map(|(level, _, t)| (level, t)).collect();
    assert_eq!(tables.len(), 1);
    assert!(tables[0].0 == LevelNo(1) && Arc::ptr_eq(tables[0].1, &moved), "not opened again");
    // The value log of the removed table went with it.
    let vlog = b.summary.vlogs[0].0;
    assert!(db.has_file(b.id, FileKind::Klog) && db.has_file(vlog, FileKind::Vlog));
    db.delete_obsolete();
    assert!(!db.has_file(b.id, FileKind::Klog) && !db.has_file(vlog, FileKind::Vlog));
    assert!(db.has_file(a.id, FileKind::Klog));
}

#[test]
fn load_uses_open_value_logs() {
    let db = TestDb::open();
    let family = db.family("default");
    let change = db.build_flush(&family, b"k");
    let vlog = db.catalog().resources.table_cache().open_vlog(&change.edit.vlogs_added[0]).unwrap();
    let source = VersionSource::Load { open_vlogs: vec![Arc::clone(&vlog)] };
    db.install(db.versions(vec![VersionChange { source, ..change }]));
    let view = family.tree.view();
    assert!(Arc::ptr_eq(&view.version.vlogs[&vlog.meta.id], &vlog));
    assert_eq!(view.immutables.len(), 1, "a load replaces no memtable");
}

#[test]
fn updates_families() {
    let db = TestDb::open();
    let (first, seq) = (db.family("default"), db.catalog().visible_seq());
    db.flush(&first, b"k");

    let family = db.new_family("new");
    let filter = "by name".to_owned();
    db.install(family_change(FamilyUpdate::Create { family: Arc::clone(&family), filter, seq }));
    assert!(Arc::ptr_eq(&db.family("new"), &family));
    assert_eq!(db.catalog().manifest.lock().families[&family.id].filter, "by name");

    let (clone, source) = (db.new_family("clone"), Arc::clone(&first));
    let added = Arc::clone(&clone);
    db.install(family_change(FamilyUpdate::Clone { family: added, source, seq }));
    let files = |f: &FamilyState| f.tree.view().version.file_ids();
    assert!(files(&clone) == files(&first) && !files(&clone).is_empty());
    assert_eq!(clone.settings(), first.settings());
    assert_eq!(db.catalog().snapshots.epoch(), 1);

    let (renamed, to) = (Arc::clone(&clone), "other".to_owned());
    db.install(family_change(FamilyUpdate::Rename { family: renamed, to }));
    assert!(&*clone.name() == "other" && Arc::ptr_eq(&db.family("other"), &clone));

    let settings = FamilySettings { block_bytes: 1 << 15, ..(*first.settings()).clone() };
    let settings = Arc::new(settings);
    db.install(family_change(FamilyUpdate::Configure {
        family: Arc::clone(&first),
        settings: Arc::clone(&settings),
        merger: None,
    }));
    assert_eq!(first.settings(), settings);
    assert_eq!(db.catalog().manifest.lock().families[&first.id].settings, *settings);

    let shared = files(&first);
    let cleared = Arc::clone(&first);
    db.install(family_change(FamilyUpdate::Clear { family: cleared, seq, flushed_up_to: None }));
    assert!(files(&first).is_empty() && db.catalog().snapshots.epoch() == 2);
    assert_eq!(db.catalog().manifest.lock().families[&first.id].contents_start, seq);
    db.delete_obsolete();
    let has = |id: &FileId| db.has_file(*id, FileKind::Klog) || db.has_file(*id, FileKind::Vlog);
    let has_all = || shared.iter().all(has);
    assert!(has_all(), "the clone has the files of the cleared column family");

    db.install(family_change(FamilyUpdate::Drop { family: Arc::clone(&clone) }));
    assert!(clone.is_dropped() && db.engine.family("other").is_err());
    db.delete_obsolete();
    assert!(!has_all());
}

#[test]
fn names_and_drops_snapshots() {
    let db = TestDb::open();
    let catalog = db.catalog();
    let (name, snapshot) = ("s".to_owned(), catalog.acquire_snapshot());
    let seq = snapshot.seq();
    db.install(snapshot_change(SnapshotChange::Create { name: name.clone(), snapshot }));
    assert_eq!(catalog.named_snapshots(), [(name.clone(), seq)]);
    assert_eq!(catalog.snapshots.count(), 1);
    db.install(snapshot_change(SnapshotChange::Drop { name }));
    assert_eq!(catalog.snapshots.count(), 0);
}

#[test]
fn changes_log_segments() {
    let db = TestDb::open();
    let before = db.catalog().manifest.lock().clone();
    let (oldest, first) = before.logs[0];
    let ids = [(); 3].map(|()| db.catalog().allocate_file_id());
    for (n, id) in ids.iter().enumerate() {
        // The first LSN of a spare segment is recorded later.
        let added = Some((*id, if n == 2 { SeqNo(0) } else { first.plus(100 * (n as u64 + 1)) }));
        db.install(log_change(LogChanges { added, ..LogChanges::default() }));
    }
    db.install(log_change(LogChanges {
        segment_starts: vec![(ids[1], SeqNo(1)), (ids[2], first.plus(300))],
        ..LogChanges::default()
    }));
    let starts: Vec<_> = db.catalog().manifest.lock().logs[1..].iter().map(|l| l.1).collect();
    assert_eq!(starts, [100, 200, 300].map(|n| first.plus(n)), "only the missing one is recorded");

    let span = |id, from: u64| LogSpan {
        id,
        first_lsn: first.plus(from),
        end_lsn: first.plus(from + 100),
        bytes: 1000,
    };
    let retire = |span| {
        let obsolete = vec![span];
        db.install(log_change(LogChanges {
            obsolete,
            retention_bytes: 1500,
            ..LogChanges::default()
        }))
    };
    let [one, two] = [span(oldest, 0), span(ids[0], 100)];
    let installed = retire(one);
    assert_eq!((installed.retained_logs, installed.deleted_logs), (vec![one], vec![]));
    let installed = retire(two);
    assert_eq!((installed.retained_logs, installed.deleted_logs), (vec![two], vec![one]));
    let catalog = db.catalog().manifest.lock().clone();
    assert_eq!((catalog.retained, catalog.logs.len()), (vec![two], 2));
}

#[test]
fn skips_flushes_of_cleared_and_dropped_families() {
    let db = TestDb::open();
    let (first, second) = (db.family("default"), db.family("f"));
    let stale = db.build_flush(&second, b"k");
    db.engine.clear_family("f").unwrap();
    let good = db.build_flush(&first, b"k");
    let installed = db.install(db.versions(vec![stale, good]));
    assert_eq!(installed.families, HashSet::from([first.id]));

    let stale = db.build_flush(&second, b"k");
    db.engine.clear_family("f").unwrap();
    let e = db.reject(db.versions(vec![stale]));
    assert_eq!(e.kind(), ErrorKind::NotFound);
    assert!(e.to_string().contains("cleared during the flush"), "{e}");

    let stale = db.build_flush(&second, b"k");
    db.engine.drop_family("f").unwrap();
    let e = db.reject(db.versions(vec![stale]));
    assert!(e.kind() == ErrorKind::NotFound && e.to_string().contains("was dropped"), "{e}");
}

#[test]
fn rejects_compaction_whose_inputs_are_gone() {
    let db = TestDb::open();
    let family = db.family("f");
    let table = db.flush(&family, b"k");
    db.engine.clear_family("f").unwrap();
    let removed = vec![(LevelNo(0), table.id)];
    let edit = VersionEdit { removed, ..VersionEdit::default() };
    let e = db.reject(db.versions(vec![compaction(&family, edit)]));
    assert!(e.to_string().contains("cleared during the compaction"), "{e}");
}

#[test]
fn rejects_whole_load_if_one_family_was_dropped() {
    let db = TestDb::open();
    let parts = [db.family("default"), db.family("f")].map(|family| {
        let source = VersionSource::Load { open_vlogs: Vec::new() };
        VersionChange { source, ..db.build_flush(&family, b"k") }
    });
    db.engine.drop_family("f").unwrap();
    assert_eq!(db.reject(db.versions(parts.into())).kind(), ErrorKind::NotFound);
}

#[test]
fn rejects_family_updates() {
    let db = TestDb::open();
    let (seq, filter) = (db.catalog().visible_seq(), String::new());
    let rejected = |update| db.reject(family_change(update)).kind();
    let family = db.new_family("f");
    let update = FamilyUpdate::Create { family, filter: filter.clone(), seq };
    assert_eq!(rejected(update), ErrorKind::AlreadyExists, "its name is taken");
    let family = db.new_family("late");
    db.engine.create_family("g", FamilySettings::default()).unwrap();
    let update = FamilyUpdate::Create { family, filter, seq };
    assert_eq!(rejected(update), ErrorKind::Internal, "its id is taken");
    let (family, to) = (db.family("f"), "g".to_owned());
    let update = FamilyUpdate::Rename { family, to };
    assert_eq!(rejected(update), ErrorKind::AlreadyExists, "the new name is taken");
    let (family, comparator) = (db.family("f"), KeyComparator::Reverse);
    let settings = Arc::new(FamilySettings { comparator, ..FamilySettings::default() });
    let update = FamilyUpdate::Configure { family, settings, merger: None };
    assert_eq!(rejected(update), ErrorKind::InvalidArgument, "another comparator");

    let gone = db.family("f");
    db.engine.drop_family("f").unwrap();
    let settings = Arc::new(FamilySettings {
        merge_operator: Some(MergeRule::Counter),
        ..FamilySettings::default()
    });
    let (clone, to) = (db.new_family("clone"), "free".to_owned());
    for update in [
        FamilyUpdate::Clone { family: clone, source: Arc::clone(&gone), seq },
        FamilyUpdate::Rename { family: Arc::clone(&gone), to },
        FamilyUpdate::Clear { family: Arc::clone(&gone), seq, flushed_up_to: None },
        FamilyUpdate::Drop { family: Arc::clone(&gone) },
        FamilyUpdate::Configure { family: Arc::clone(&gone), settings, merger: None },
    ] {
        let text = format!("{update:?}");
        assert_eq!(rejected(update), ErrorKind::NotFound, "{text}");
    }
}

#[test]
fn rejects_snapshot_changes() {
    let db = TestDb::open();
    let catalog = db.catalog();
    ddl::create_named_snapshot(db.engine.log(), "s").unwrap();
    let (name, snapshot) = ("s".to_owned(), catalog.acquire_snapshot());
    let taken = SnapshotChange::Create { name, snapshot };
    assert_eq!(db.reject(snapshot_change(taken)).kind(), ErrorKind::AlreadyExists);
    assert_eq!(catalog.snapshots.count(), 1, "the rejected one is released");
    let missing = SnapshotChange::Drop { name: "t".to_owned() };
    assert_eq!(db.reject(snapshot_change(missing)).kind(), ErrorKind::NotFound);
}

#[test]
fn rejects_edit_that_does_not_fit_catalog() {
    let db = TestDb::open();
    let (id, bytes) = (FileId(900), 1);
    let unknown = LogSpan { id, first_lsn: SeqNo(1), end_lsn: SeqNo(2), bytes };
    let logs = LogChanges { obsolete: vec![unknown], ..LogChanges::default() };
    assert_eq!(db.reject(log_change(logs)).kind(), ErrorKind::Corruption);
}

#[test]
fn rejects_everything_when_not_writable() {
    let db = TestDb::open();
    db.catalog().runtime.health.poison(&Error::internal("a test"));
    assert_eq!(db.reject(watermark(1)).kind(), ErrorKind::Poisoned);
    let db = TestDb::open();
    db.engine.close().unwrap();
    assert_eq!(db.catalog().install(watermark(1)).unwrap_err().kind(), ErrorKind::Closed);
}

#[test]
fn failed_open_changes_nothing() {
    let db = TestDb::open();
    let family = db.family("default");
    let change = db.build_flush(&family, b"k");
    let table = change.edit.added[0].meta.id;
    db.catalog().resources.table_cache().evict(table);
    db.disk.fail_reads(&filename::file_name(table, FileKind::Klog), 1);
    let calls = db.disk.mutating_calls();
    assert_eq!(db.reject(db.versions(vec![change])).kind(), ErrorKind::Io);
    assert_eq!(db.disk.mutating_calls(), calls);
    assert!(db.catalog().runtime.health.poisoned().is_none());
    discard_outputs(db.catalog(), &CreatedFiles(vec![table]));
    assert!(!db.has_file(table, FileKind::Klog), "the outputs are discarded");
}

#[test]
fn full_disk_changes_nothing() {
    let db = TestDb::open();
    let change = db.build_flush(&db.family("default"), b"k");
    db.disk.fail_at(1, Fault::Enospc, false);
    assert_eq!(db.reject(db.versions(vec![change])).kind(), ErrorKind::NoSpace);
    db.install(watermark(1));
}

#[test]
fn failed_append_or_sync_poisons() {
    let failures: [&[(u64, Fault)]; 4] = [
        &[(1, Fault::Eio)],
        &[(1, Fault::ShortWrite)],
        &[(1, Fault::SyncFails)],
        // The append that ran out of space cannot be rolled back.
        &[(1, Fault::Enospc), (2, Fault::Eio)],
    ];
    for faults in failures {
        let db = TestDb::open();
        let change = db.build_flush(&db.family("default"), b"k");
        let table = change.edit.added[0].meta.id;
        faults.iter().for_each(|(at, fault)| db.disk.fail_at(*at, *fault, false));
        let e = db.reject(db.versions(vec![change]));
        assert_eq!(e.kind(), ErrorKind::OutcomeUnknown, "{faults:?}");
        assert_eq!(db.reject(watermark(1)).kind(), ErrorKind::Poisoned);
        discard_outputs(db.catalog(), &CreatedFiles(vec![table]));
        assert!(db.has_file(table, FileKind::Klog), "the edit may reference it");
    }
}

/// Changes with which the manifest becomes large enough to be rewritten.
fn large_changes(db: &TestDb) -> CatalogChanges {
    let family = db.family("f").id;
    let event = |n: u64| {
        let kind = FamilyEventKind::Dropped { name: "x".repeat(FAMILY_NAME_BYTES_MAX) };
        FamilyEvent { seq: db.catalog().visible_seq().plus(n), family, kind }
    };
    CatalogChanges { events: (1..20_000).map(event).collect(), ..CatalogChanges::default() }
}

#[test]
fn failed_rewrite_keeps_or_poisons() {
    let db = TestDb::open();
    let calls = db.disk.mutating_calls();
    db.catalog().install(large_changes(&db)).unwrap();
    let calls = db.disk.mutating_calls() - calls;
    assert!(calls > 4, "the manifest was not rewritten");

    let db = TestDb::open();
    let before = db.catalog().manifest.last_edit();
    // Before the rename the old manifest is still valid.
    db.disk.fail_at(calls - 2, Fault::SyncFails, false);
    db.catalog().install(large_changes(&db)).unwrap();
    assert_eq!(db.catalog().manifest.last_edit(), before + 1);
    assert!(db.catalog().runtime.health.background_error().is_some());

    let db = TestDb::open();
    // The sync of the directory after the rename.
    db.disk.fail_at(calls, Fault::SyncFails, false);
    let e = db.catalog().install(large_changes(&db)).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::OutcomeUnknown);
    assert!(db.catalog().runtime.health.poisoned().is_some());
    let events = db.catalog().manifest.lock().events.len();
    assert_eq!(events, FAMILY_EVENTS_MAX, "the edit itself was installed");
}

#[test]
fn recomputes_only_what_changes_affect() {
    let db = TestDb::open();
    let effect = |changes: &CatalogChanges| {
        let InstallEffect { limits, load, wakes } = changes.effect();
        (limits, load, wakes)
    };
    assert_eq!(effect(&watermark(1)), (false, false, false));
    let change = db.build_flush(&db.family("f"), b"k");
    assert_eq!(effect(&db.versions(vec![change])), (false, true, true));
    let update = FamilyUpdate::Drop { family: db.family("f") };
    assert_eq!(effect(&family_change(update)), (true, true, true));
    let (family, filter, seq) = (db.new_family("g"), String::new(), SeqNo(1));
    let update = FamilyUpdate::Create { family, filter, seq };
    assert_eq!(effect(&family_change(update)), (true, false, false));
    let drop = SnapshotChange::Drop { name: "s".to_owned() };
    assert_eq!(effect(&snapshot_change(drop)), (false, false, true));
}
