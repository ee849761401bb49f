//! Column families: a name, settings and a tree each; the log and the manifest are common.

use crate::settings::FamilySettings;
use perigee_base::{Error, ErrorKind, FamilyId, Result};
use perigee_file::KlogOptions;
use perigee_tree::Tree;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, PoisonError, RwLock};

/// A family of an open database.
#[derive(Debug)]
pub struct Family {
    /// Its number.
    pub id: FamilyId,
    /// Its name.
    pub name: String,
    /// Replaced as a whole by [`Family::set_settings`].
    settings: RwLock<Arc<FamilySettings>>,
    /// Its sorted map.
    pub tree: Tree,
    dropped: AtomicBool,
}

impl Family {
    /// A family around a tree.
    pub fn new(id: FamilyId, name: String, settings: FamilySettings, tree: Tree) -> Family {
        let settings = RwLock::new(Arc::new(settings));
        Family { id, name, settings, tree, dropped: AtomicBool::new(false) }
    }
    /// Its settings now.
    pub fn settings(&self) -> Arc<FamilySettings> {
        Arc::clone(&self.settings.read().unwrap_or_else(PoisonError::into_inner))
    }
    /// Other settings from now on, once the manifest holds them.
    pub fn set_settings(&self, settings: FamilySettings) {
        *self.settings.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
    }
    /// `NotFound` if it was dropped.
    pub fn check(&self) -> Result<()> {
        if self.dropped.load(SeqCst) {
            return Err(Error::new(ErrorKind::NotFound, format!("the family {:?} was dropped", self.name)));
        }
        Ok(())
    }
    /// Whether it was dropped.
    pub fn is_dropped(&self) -> bool {
        self.dropped.load(SeqCst)
    }
    /// Marks it dropped, in the commit section.
    pub fn drop_it(&self) {
        self.dropped.store(true, SeqCst);
    }
    /// The format of its new tables.
    pub fn klog_options(&self, database: u64) -> KlogOptions {
        let settings = self.settings();
        KlogOptions {
            database,
            family: self.id,
            order: settings.order,
            block_bytes: settings.block_bytes as usize,
            compression: settings.compression,
            filter_bits: settings.filter_bits,
        }
    }
}

#[derive(Debug, Default)]
struct Maps {
    by_id: BTreeMap<FamilyId, Arc<Family>>,
    by_name: BTreeMap<String, FamilyId>,
}

/// All families. The lock guards the maps; no I/O inside.
#[derive(Debug, Default)]
pub struct Families {
    maps: RwLock<Maps>,
}

impl Families {
    fn read(&self) -> std::sync::RwLockReadGuard<'_, Maps> {
        self.maps.read().unwrap_or_else(PoisonError::into_inner)
    }
    /// Adds one.
    pub fn insert(&self, family: Arc<Family>) {
        let mut m = self.maps.write().unwrap_or_else(PoisonError::into_inner);
        m.by_name.insert(family.name.clone(), family.id);
        m.by_id.insert(family.id, family);
    }
    /// Takes one away.
    pub fn remove(&self, id: FamilyId) {
        let mut m = self.maps.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(f) = m.by_id.remove(&id) {
            m.by_name.remove(&f.name);
        }
    }
    /// By number.
    pub fn by_id(&self, id: FamilyId) -> Option<Arc<Family>> {
        self.read().by_id.get(&id).cloned()
    }
    /// By name.
    pub fn by_name(&self, name: &str) -> Option<Arc<Family>> {
        let m = self.read();
        m.by_name.get(name).and_then(|id| m.by_id.get(id)).cloned()
    }
    /// All, by number.
    pub fn all(&self) -> Vec<Arc<Family>> {
        self.read().by_id.values().cloned().collect()
    }
    /// How many.
    pub fn count(&self) -> usize {
        self.read().by_id.len()
    }
    /// All names, sorted.
    pub fn names(&self) -> Vec<String> {
        self.read().by_name.keys().cloned().collect()
    }
}
