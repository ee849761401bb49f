//! Column families. Each has a name, settings and an LSM tree of its own; all share the log and the
//! manifest.

use crate::catalog::compaction_cursor::CompactionCursor;
use crate::catalog::family_counters::FamilyCounters;
use crate::catalog::hook_event::CommitHook;
use crate::catalog::snapshot::SnapshotHandle;
use crate::resources::row_cache::{RowCacheEpoch, RowKey};
use crate::settings::FamilySettings;
use crate::settings::compaction_filters::SharedCompactionFilter;
use perigee_base::{Error, ErrorKind, FamilyId, KeyComparator, Result, SeqNo};
use perigee_file::KlogOptions;
use perigee_tree::{LsmTree, Memtable};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

/// A column family of an open database.
pub struct FamilyState {
    /// Its id.
    pub id: FamilyId,
    name: RwLock<Arc<str>>,
    /// Replaced as a whole by [`FamilyState::set_settings`].
    settings: RwLock<Arc<FamilySettings>>,
    /// Copy of the setting `memtable_bytes`, which every commit reads.
    memtable_bytes_max: AtomicU64,
    /// Copy of the setting `filter_bits`: true if its tables have filters.
    has_filters: AtomicBool,
    /// Its LSM tree.
    pub tree: LsmTree,
    /// State that compaction keeps between plans.
    pub compaction_cursor: CompactionCursor,
    /// Counters of the jobs that worked on it.
    pub counters: FamilyCounters,
    dropped: AtomicBool,
    /// Set before any job of the column family runs.
    filter: OnceLock<SharedCompactionFilter>,
    hook: RwLock<Option<CommitHook>>,
    /// Snapshots of older epochs must not read it: its contents were not made by operations of the
    /// log.
    contents_epoch: AtomicU64,
    /// Sequence number with which its contents begin: snapshots at lower ones must not read it.
    contents_start: AtomicU64,
    /// Invalidates all of its rows in the row cache.
    pub row_cache_epoch: RowCacheEpoch,
}

impl std::fmt::Debug for FamilyState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Family({} {:?})", self.id, self.name())
    }
}

impl FamilyState {
    /// Creates a column family with the given tree.
    pub fn new(
        id: FamilyId,
        name: String,
        settings: impl Into<Arc<FamilySettings>>,
        tree: LsmTree,
    ) -> FamilyState {
        let settings = settings.into();
        FamilyState {
            id,
            name: RwLock::new(name.into()),
            memtable_bytes_max: AtomicU64::new(settings.memtable_bytes),
            has_filters: AtomicBool::new(settings.filter_bits > 0),
            settings: RwLock::new(settings),
            tree,
            compaction_cursor: CompactionCursor::default(),
            counters: FamilyCounters::default(),
            dropped: AtomicBool::new(false),
            filter: OnceLock::new(),
            hook: RwLock::new(None),
            contents_epoch: AtomicU64::new(0),
            contents_start: AtomicU64::new(0),
            row_cache_epoch: RowCacheEpoch::default(),
        }
    }
    /// Returns true if its rows can be cached: only operations change them, and each key has one
    /// spelling.
    #[inline]
    pub fn has_cacheable_rows(&self) -> bool {
        self.comparator().has_bytewise_equality() && self.filter.get().is_none()
    }
    /// Returns true if filters answer most reads of absent keys.
    pub fn has_filters(&self) -> bool {
        self.has_filters.load(SeqCst)
    }
    /// Returns a key of it for the row cache.
    #[inline]
    pub fn row_key<'a>(&self, key: &'a [u8]) -> RowKey<'a> {
        RowKey::new(self.id, key, self.comparator().filter_hash(key))
    }
    /// Returns the user's compaction filter.
    pub fn filter(&self) -> Option<SharedCompactionFilter> {
        self.filter.get().cloned()
    }
    /// Sets the compaction filter; called at most once, before jobs run.
    pub fn set_filter(&self, filter: Option<&SharedCompactionFilter>) {
        if let Some(filter) = filter {
            let set = self.filter.set(Arc::clone(filter));
            check!(set.is_ok(), "the compaction filter of a column family does not change", self);
        }
    }
    /// Returns the user's commit hook.
    pub fn hook(&self) -> Option<CommitHook> {
        self.hook.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
    /// Sets or removes the commit hook.
    pub fn set_hook(&self, hook: Option<CommitHook>) {
        *self.hook.write().unwrap_or_else(PoisonError::into_inner) = hook;
    }
    /// Returns its current name.
    pub fn name(&self) -> Arc<str> {
        Arc::clone(&self.name.read().unwrap_or_else(PoisonError::into_inner))
    }
    /// Sets the snapshot epoch of its contents (see [`crate::catalog::snapshot::SnapshotList`]); called
    /// before the contents are installed.
    pub fn set_contents_epoch(&self, epoch: u64) {
        let before = self.contents_epoch.swap(epoch, SeqCst);
        check!(before < epoch, "replaced contents belong to a later epoch", before, epoch);
    }
    /// Returns `NotFound` if a snapshot of `epoch` is older than the contents. Call it after taking
    /// the view.
    pub fn check_contents_epoch(&self, epoch: u64) -> Result<()> {
        if epoch < self.contents_epoch.load(SeqCst) {
            Err(self.contents_newer_error())
        } else {
            Ok(())
        }
    }
    fn contents_newer_error(&self) -> Error {
        let text = format!(
            "the column family {:?} was cleared or cloned after the snapshot was taken",
            self.name()
        );
        Error::new(ErrorKind::NotFound, text)
    }
    /// Sets the sequence number with which its contents begin; called before the contents are
    /// installed.
    pub fn set_contents_start(&self, seq: SeqNo) {
        let before = self.contents_start.swap(seq.0, SeqCst);
        check!(before <= seq.0, "contents are replaced by later ones", before, seq);
    }
    /// Returns `NotFound` if the snapshot is older than the contents. Call it after taking the
    /// view.
    pub fn check_snapshot(&self, snapshot: &SnapshotHandle) -> Result<()> {
        if snapshot.seq().0 < self.contents_start.load(SeqCst) {
            return Err(self.contents_newer_error());
        }
        self.check_contents_epoch(snapshot.epoch())
    }
    /// Returns its current settings.
    pub fn settings(&self) -> Arc<FamilySettings> {
        Arc::clone(&self.settings.read().unwrap_or_else(PoisonError::into_inner))
    }
    /// Replaces the settings, once the manifest contains the new ones.
    pub fn set_settings(&self, settings: impl Into<Arc<FamilySettings>>) {
        let settings = settings.into();
        check!(
            settings.comparator == self.tree.comparator(),
            "the comparator of a column family does not change",
            self,
            settings.comparator
        );
        self.memtable_bytes_max.store(settings.memtable_bytes, SeqCst);
        self.has_filters.store(settings.filter_bits > 0, SeqCst);
        *self.settings.write().unwrap_or_else(PoisonError::into_inner) = settings;
    }
    /// Returns the bytes of keys and values committed to it since open, including those replayed by
    /// recovery.
    pub fn user_bytes(&self) -> u64 {
        self.tree.active().user_bytes_written() + self.counters.loaded_bytes.get()
    }
    /// Returns the comparator of its keys.
    #[inline]
    pub fn comparator(&self) -> KeyComparator {
        self.tree.comparator()
    }
    /// Returns true if it has a merge operator.
    #[inline]
    pub fn has_merge_operator(&self) -> bool {
        self.tree.pin().merge_operator.get().is_some()
    }
    /// Checks an operand with the merge operator.
    ///
    /// # Errors
    /// `InvalidArgument` if there is no merge operator, or it rejects the operand.
    #[inline]
    pub fn check_operand(&self, key: &[u8], operand: &[u8]) -> Result<()> {
        match self.tree.pin().merge_operator.get() {
            Some(merger) => merger.check_operand(key, operand),
            None => Err(Error::invalid(format!(
                "the column family {:?} has no merge operator: set FamilyOptions::merge_operator",
                self.name()
            ))),
        }
    }
    /// Returns true if its active memtable has reached its size limit.
    pub fn is_memtable_full(&self) -> bool {
        self.tree.is_active_full(self.memtable_bytes_max.load(SeqCst))
    }
    /// Returns `NotFound` if it was dropped.
    pub fn check_not_dropped(&self) -> Result<()> {
        if self.dropped.load(SeqCst) {
            return Err(Error::new(
                ErrorKind::NotFound,
                format!("the column family {:?} was dropped", self.name()),
            ));
        }
        Ok(())
    }
    /// Returns true if it was dropped.
    pub fn is_dropped(&self) -> bool {
        self.dropped.load(SeqCst)
    }
    /// Returns true if a sealed memtable has yet to be flushed: false if the column family was
    /// cleared or dropped.
    pub fn awaits_flush(&self, memtable: &Arc<Memtable>) -> bool {
        !self.is_dropped() && self.tree.view().immutables.iter().any(|m| Arc::ptr_eq(m, memtable))
    }
    /// Marks it as dropped. Called in the commit section.
    pub fn mark_dropped(&self) {
        let before = self.dropped.swap(true, SeqCst);
        check!(!before, "a column family is dropped once", self);
    }
    /// Returns the format options of its new tables.
    pub fn klog_options(&self, database: u64) -> KlogOptions {
        let settings = self.settings();
        KlogOptions {
            database,
            family: self.id,
            comparator: settings.comparator,
            block_bytes: settings.block_bytes,
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

/// All column families. The lock guards the maps; no I/O while it is held.
#[derive(Debug, Default)]
pub struct Families {
    maps: RwLock<FamilyMaps>,
}

impl Families {
    fn read_maps(&self) -> std::sync::RwLockReadGuard<'_, FamilyMaps> {
        self.maps.read().unwrap_or_else(PoisonError::into_inner)
    }
    /// Adds a column family.
    pub fn insert(&self, family: Arc<FamilyState>) {
        let mut m = self.maps.write().unwrap_or_else(PoisonError::into_inner);
        let named = m.by_name.insert(family.name(), family.id);
        let known = m.by_id.insert(family.id, family);
        check_slow!(
            named.is_none() && known.is_none(),
            "a column family has a name and an id of its own",
            named,
            known
        );
    }
    /// Removes a column family.
    pub fn remove(&self, id: FamilyId) {
        let mut m = self.maps.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(f) = m.by_id.remove(&id) {
            let named = m.by_name.remove(&f.name());
            check!(named == Some(id), "a column family is listed under its name", f, named);
        }
    }
    /// Renames a column family.
    pub fn rename(&self, family: &FamilyState, name: &str) {
        let mut m = self.maps.write().unwrap_or_else(PoisonError::into_inner);
        let mut own = family.name.write().unwrap_or_else(PoisonError::into_inner);
        m.by_name.remove(&*own);
        *own = name.into();
        let before = m.by_name.insert(Arc::clone(&own), family.id);
        check!(before.is_none(), "a column family has a name of its own", name, before);
        check!(m.by_name.len() == m.by_id.len(), "each column family has one name", name);
    }
    /// Returns the column family with this id.
    pub fn by_id(&self, id: FamilyId) -> Option<Arc<FamilyState>> {
        self.read_maps().by_id.get(&id).cloned()
    }
    /// Returns the column family with this name.
    pub fn by_name(&self, name: &str) -> Option<Arc<FamilyState>> {
        let m = self.read_maps();
        m.by_name.get(name).and_then(|id| m.by_id.get(id)).cloned()
    }
    /// Returns all column families, by ascending id.
    pub fn all(&self) -> Vec<Arc<FamilyState>> {
        self.read_maps().by_id.values().cloned().collect()
    }
    /// Returns the number of column families.
    pub fn count(&self) -> usize {
        self.read_maps().by_id.len()
    }
    /// Returns all names, sorted.
    pub fn names(&self) -> Vec<String> {
        self.read_maps().by_name.keys().map(|name| name.to_string()).collect()
    }
}
