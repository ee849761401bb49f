//! Expected contents of the databases: column families by name, committed entries, and the writes
//! of open transactions.

use std::collections::BTreeMap;
use tidesdb::abi::Handle;

pub type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

/// Id of a column family, which stays the same when its name changes.
pub type FamilyId = usize;

#[derive(Default)]
pub struct Model {
    names: BTreeMap<(usize, String), FamilyId>,
    entries: BTreeMap<FamilyId, Entries>,
    next: FamilyId,
    /// Number of column families dropped so far.
    pub drops: usize,
}

impl Model {
    pub fn create(&mut self, db: usize, name: &str, entries: Entries) -> FamilyId {
        self.next += 1;
        assert!(
            self.names.insert((db, name.to_owned()), self.next).is_none(),
            "{name} was made twice"
        );
        self.entries.insert(self.next, entries);
        self.next
    }

    pub fn id(&self, db: usize, name: &str) -> Option<FamilyId> {
        self.names.get(&(db, name.to_owned())).copied()
    }

    pub fn drop_id(&mut self, id: FamilyId) {
        self.drops += 1;
        self.names.retain(|_, i| *i != id);
        self.entries.remove(&id);
    }

    pub fn rename(&mut self, db: usize, old: &str, new: &str) {
        let id = self
            .names
            .remove(&(db, old.to_owned()))
            .expect("the library renamed a missing column family");
        assert!(self.names.insert((db, new.to_owned()), id).is_none(), "renamed over {new}");
    }

    pub fn entries(&self, id: FamilyId) -> Option<&Entries> {
        self.entries.get(&id)
    }

    pub fn names(&self, db: usize) -> Vec<String> {
        self.names.keys().filter(|(d, _)| *d == db).map(|(_, n)| n.clone()).collect()
    }

    pub fn apply(&mut self, writes: &[Write]) {
        for write in writes {
            let Some(entries) = self.entries.get_mut(&write.family) else { continue };
            match &write.value {
                Some(value) => drop(entries.insert(write.key.clone(), value.clone())),
                None => drop(entries.remove(&write.key)),
            }
        }
    }
}

pub struct Write {
    pub family: FamilyId,
    pub key: Vec<u8>,
    /// `None` is a delete, or a value that has expired.
    pub value: Option<Vec<u8>>,
}

pub struct Txn {
    pub handle: Handle,
    pub db: usize,
    /// Whether it is active: neither committed nor rolled back.
    pub open: bool,
    pub writes: Vec<Write>,
    pub savepoints: Vec<(String, usize)>,
    /// [`Model::drops`] at its start.
    pub drops: usize,
}

impl Txn {
    /// Returns the last write of the transaction itself to the key.
    pub fn last_write(&self, family: FamilyId, key: &[u8]) -> Option<&Write> {
        self.writes.iter().rev().find(|w| w.family == family && w.key == key)
    }

    pub fn clear(&mut self, open: bool) {
        self.open = open;
        self.writes.clear();
        self.savepoints.clear();
    }
}

pub struct Family {
    pub handle: Handle,
    pub db: usize,
    pub id: FamilyId,
}
