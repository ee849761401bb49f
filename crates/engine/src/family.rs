//! Column families: a name, settings and a tree each; the log and the manifest are common.

use crate::commit_hooks::CommitHook;
use crate::compaction_cursor::CompactionCursor;
use crate::compaction_filters::SharedCompactionFilter;
use crate::family_counters::FamilyCounters;
use crate::settings::FamilySettings;
use crate::snapshot::SnapshotHandle;
use perigee_base::{Error, ErrorKind, FamilyId, Result, SeqNo};
use perigee_file::KlogOptions;
use perigee_tree::{LsmTree, Memtable};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

/// A family of an open database.
pub struct FamilyState {
    /// Its number.
    pub id: FamilyId,
    name: RwLock<Arc<str>>,
    /// Replaced as a whole by [`Family::set_settings`].
    settings: RwLock<Arc<FamilySettings>>,
    /// The setting `memtable_bytes` once more: every commit asks for it.
    memtable_bytes_max: AtomicU64,
    /// Its sorted map.
    pub tree: LsmTree,
    /// What compaction remembers of it.
    pub compaction_cursor: CompactionCursor,
    /// What jobs did to it so far.
    pub counters: FamilyCounters,
    dropped: AtomicBool,
    /// Set before any job of the family runs.
    filter: OnceLock<SharedCompactionFilter>,
    hook: RwLock<Option<CommitHook>>,
    /// Older snapshots must not read it: its contents were not made by operations of the log.
    contents_epoch: AtomicU64,
    /// The same for numbers of the past: its contents begin with this one.
    contents_start: AtomicU64,
}

impl std::fmt::Debug for FamilyState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Family({} {:?})", self.id, self.name())
    }
}

impl FamilyState {
    /// A family around a tree.
    pub fn new(id: FamilyId, name: String, settings: FamilySettings, tree: LsmTree) -> FamilyState {
        FamilyState {
            id,
            name: RwLock::new(name.into()),
            memtable_bytes_max: AtomicU64::new(settings.memtable_bytes),
            settings: RwLock::new(Arc::new(settings)),
            tree,
            compaction_cursor: CompactionCursor::default(),
            counters: FamilyCounters::default(),
            dropped: AtomicBool::new(false),
            filter: OnceLock::new(),
            hook: RwLock::new(None),
            contents_epoch: AtomicU64::new(0),
            contents_start: AtomicU64::new(0),
        }
    }
    /// The user's compaction filter.
    pub fn filter(&self) -> Option<SharedCompactionFilter> {
        self.filter.get().cloned()
    }
    /// Gives it a filter, once, before jobs run.
    pub fn set_filter(&self, filter: Option<&SharedCompactionFilter>) {
        if let Some(filter) = filter {
            let _ = self.filter.set(Arc::clone(filter));
        }
    }
    /// The user's commit hook.
    pub fn hook(&self) -> Option<CommitHook> {
        self.hook.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
    /// Sets the commit hook, or takes it away.
    pub fn set_hook(&self, hook: Option<CommitHook>) {
        *self.hook.write().unwrap_or_else(PoisonError::into_inner) = hook;
    }
    /// Its name now.
    pub fn name(&self) -> Arc<str> {
        Arc::clone(&self.name.read().unwrap_or_else(PoisonError::into_inner))
    }
    /// Its contents are of this era (see [`crate::snapshot::Snapshots`]); called before they are
    /// put in place.
    pub fn set_contents_epoch(&self, era: u64) {
        self.contents_epoch.store(era, SeqCst);
    }
    /// `NotFound` if a snapshot of `era` is older than the contents. Ask after taking the view.
    pub fn check_contents_epoch(&self, era: u64) -> Result<()> {
        if era < self.contents_epoch.load(SeqCst) {
            Err(self.contents_newer_error())
        } else {
            Ok(())
        }
    }
    fn contents_newer_error(&self) -> Error {
        let text = format!(
            "the family {:?} was cleared or cloned after the snapshot was taken",
            self.name()
        );
        Error::new(ErrorKind::NotFound, text)
    }
    /// Its contents begin with this number; called before they are put in place.
    pub fn set_contents_start(&self, seq: SeqNo) {
        self.contents_start.store(seq.0, SeqCst);
    }
    /// `NotFound` if a snapshot is older than the contents. Ask after taking the view.
    pub fn check_snapshot(&self, held: &SnapshotHandle) -> Result<()> {
        if held.seq().0 < self.contents_start.load(SeqCst) {
            return Err(self.contents_newer_error());
        }
        self.check_contents_epoch(held.epoch())
    }
    /// Its settings now.
    pub fn settings(&self) -> Arc<FamilySettings> {
        Arc::clone(&self.settings.read().unwrap_or_else(PoisonError::into_inner))
    }
    /// Other settings from now on, once the manifest holds them.
    pub fn set_settings(&self, settings: FamilySettings) {
        self.memtable_bytes_max.store(settings.memtable_bytes, SeqCst);
        *self.settings.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
    }
    /// Bytes of keys and values committed to it since open, with those that recovery replayed.
    pub fn user_bytes(&self) -> u64 {
        self.tree.active().user_bytes_written() + self.counters.loaded_bytes.get()
    }
    /// Whether its active memtable has reached its size.
    pub fn is_memtable_full(&self) -> bool {
        self.tree.active_bytes() >= self.memtable_bytes_max.load(SeqCst)
    }
    /// `NotFound` if it was dropped.
    pub fn check_not_dropped(&self) -> Result<()> {
        if self.dropped.load(SeqCst) {
            return Err(Error::new(
                ErrorKind::NotFound,
                format!("the family {:?} was dropped", self.name()),
            ));
        }
        Ok(())
    }
    /// Whether it was dropped.
    pub fn is_dropped(&self) -> bool {
        self.dropped.load(SeqCst)
    }
    /// Whether a sealed memtable still waits for its flush: it does not if the family was cleared
    /// or dropped.
    pub fn awaits_flush(&self, memtable: &Arc<Memtable>) -> bool {
        !self.is_dropped() && self.tree.view().immutables.iter().any(|m| Arc::ptr_eq(m, memtable))
    }
    /// Marks it dropped, in the commit section.
    pub fn mark_dropped(&self) {
        self.dropped.store(true, SeqCst);
    }
    /// The format of its new tables.
    pub fn klog_options(&self, database: u64) -> KlogOptions {
        let settings = self.settings();
        KlogOptions {
            database,
            family: self.id,
            comparator: settings.comparator,
            block_bytes: settings.block_bytes as usize,
            compression: settings.compression,
            filter_bits: settings.filter_bits,
        }
    }
}

#[derive(Debug, Default)]
struct FamilyMaps {
    by_id: BTreeMap<FamilyId, Arc<FamilyState>>,
    by_name: BTreeMap<Arc<str>, FamilyId>,
}

/// All families. The lock guards the maps; no I/O inside.
#[derive(Debug, Default)]
pub struct Families {
    maps: RwLock<FamilyMaps>,
}

impl Families {
    fn read_maps(&self) -> std::sync::RwLockReadGuard<'_, FamilyMaps> {
        self.maps.read().unwrap_or_else(PoisonError::into_inner)
    }
    /// Adds one.
    pub fn insert(&self, family: Arc<FamilyState>) {
        let mut m = self.maps.write().unwrap_or_else(PoisonError::into_inner);
        m.by_name.insert(family.name(), family.id);
        m.by_id.insert(family.id, family);
    }
    /// Takes one away.
    pub fn remove(&self, id: FamilyId) {
        let mut m = self.maps.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(f) = m.by_id.remove(&id) {
            m.by_name.remove(&f.name());
        }
    }
    /// Gives one another name.
    pub fn rename(&self, family: &FamilyState, name: &str) {
        let mut m = self.maps.write().unwrap_or_else(PoisonError::into_inner);
        let mut own = family.name.write().unwrap_or_else(PoisonError::into_inner);
        m.by_name.remove(&*own);
        *own = name.into();
        m.by_name.insert(Arc::clone(&own), family.id);
    }
    /// By number.
    pub fn by_id(&self, id: FamilyId) -> Option<Arc<FamilyState>> {
        self.read_maps().by_id.get(&id).cloned()
    }
    /// By name.
    pub fn by_name(&self, name: &str) -> Option<Arc<FamilyState>> {
        let m = self.read_maps();
        m.by_name.get(name).and_then(|id| m.by_id.get(id)).cloned()
    }
    /// All, by number.
    pub fn all(&self) -> Vec<Arc<FamilyState>> {
        self.read_maps().by_id.values().cloned().collect()
    }
    /// How many.
    pub fn count(&self) -> usize {
        self.read_maps().by_id.len()
    }
    /// All names, sorted.
    pub fn names(&self) -> Vec<String> {
        self.read_maps().by_name.keys().map(|name| name.to_string()).collect()
    }
}
