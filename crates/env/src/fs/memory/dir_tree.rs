//! Directories of the simulated disk: the names that the kernel shows (`cached`), the names on the
//! disk (`durable`), and the operations between the two (`pending`).
//!
//! Invariants:
//! 1. A file has at most one name in all durable tables together, unless it was linked: no rename
//!    or move leaves both names. A linked file has at most one name in each directory.
//! 2. Applying all of `pending` in order turns `durable` into `cached`, unless a failed sync
//!    dropped some.

use super::pages::Pages;
use crate::rand::SeededRng;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Identifies a directory.
pub(super) type DirId = u64;
/// The directory `/`.
pub(super) const ROOT_DIR: DirId = 0;

/// A file, identified by its number, not by its name.
#[derive(Debug)]
pub(super) struct SimFile {
    pub id: u64,
    pages: Mutex<Pages>,
}

impl SimFile {
    pub fn new(id: u64, pages: Pages) -> Arc<SimFile> {
        Arc::new(SimFile { id, pages: Mutex::new(pages) })
    }
    pub fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The target of a name.
#[derive(Clone, Debug)]
pub(super) enum SimDirEntry {
    File(Arc<SimFile>),
    Dir(DirId),
}

impl SimDirEntry {
    /// Returns the number of the file or directory; both are numbered from one counter.
    fn id(&self) -> u64 {
        match self {
            SimDirEntry::File(f) => f.id,
            SimDirEntry::Dir(d) => *d,
        }
    }
    pub fn file(&self) -> Option<&Arc<SimFile>> {
        if let SimDirEntry::File(f) = self { Some(f) } else { None }
    }
}

type DirEntries = BTreeMap<String, SimDirEntry>;

/// A name change that is not durable yet.
#[derive(Clone, Debug)]
enum NameOp {
    /// A creation, or the new name of a rename: the entry loses every other name.
    Insert {
        name: String,
        entry: SimDirEntry,
    },
    Remove {
        name: String,
        id: u64,
    },
    Move {
        name: String,
        entry: SimDirEntry,
        to: DirId,
    },
    /// An additional name in another directory.
    Link {
        name: String,
        entry: SimDirEntry,
    },
}

#[derive(Clone, Debug, Default)]
struct DirNode {
    parent: Option<DirId>,
    cached: DirEntries,
    durable: DirEntries,
    pending: Vec<NameOp>,
}

/// All directories of a disk.
#[derive(Debug)]
pub(super) struct SimDirTree {
    dirs: BTreeMap<DirId, DirNode>,
    next_id: u64,
    /// Files that have or had more than one name.
    linked: BTreeSet<u64>,
}

impl SimDirTree {
    pub fn new() -> SimDirTree {
        let dirs = BTreeMap::from([(ROOT_DIR, DirNode::default())]);
        SimDirTree { dirs, next_id: ROOT_DIR + 1, linked: BTreeSet::new() }
    }

    fn dir(&self, id: DirId) -> &DirNode {
        self.dirs.get(&id).expect("directories are never removed")
    }
    fn dir_mut(&mut self, id: DirId) -> &mut DirNode {
        self.dirs.get_mut(&id).expect("directories are never removed")
    }

    pub fn get(&self, dir: DirId, name: &str) -> Option<&SimDirEntry> {
        self.dir(dir).cached.get(name)
    }

    /// Returns the entries of a directory, sorted by name.
    pub fn entries(&self, dir: DirId) -> impl Iterator<Item = (&String, &SimDirEntry)> {
        self.dir(dir).cached.iter()
    }

    /// Creates an empty file. Not durable until synced.
    pub fn create(&mut self, dir: DirId, name: &str) -> Arc<SimFile> {
        let file = SimFile::new(self.allocate_id(), Pages::default());
        self.set_entry(dir, name, SimDirEntry::File(file.clone()));
        file
    }

    /// Adds a file with durable name and contents.
    pub fn add_durable(&mut self, dir: DirId, name: &str, bytes: Vec<u8>) {
        let entry = SimDirEntry::File(SimFile::new(self.allocate_id(), Pages::durable(bytes)));
        let node = self.dir_mut(dir);
        node.cached.insert(name.to_owned(), entry.clone());
        node.durable.insert(name.to_owned(), entry);
    }

    /// Creates a directory. Not durable until its parent is synced.
    pub fn make_dir(&mut self, parent: DirId, name: &str) -> DirId {
        let id = self.allocate_id();
        let before = self.dirs.insert(id, DirNode { parent: Some(parent), ..DirNode::default() });
        check!(before.is_none() && id > parent, "ids are never reused", id, parent);
        self.set_entry(parent, name, SimDirEntry::Dir(id));
        id
    }

    pub fn rename(&mut self, dir: DirId, to: &str, entry: SimDirEntry) {
        self.set_entry(dir, to, entry);
    }

    pub fn remove(&mut self, dir: DirId, name: &str) {
        let node = self.dir_mut(dir);
        if let Some(entry) = node.cached.remove(name) {
            node.pending.push(NameOp::Remove { name: name.to_owned(), id: entry.id() });
        }
    }

    /// Moves a file to a subdirectory. One operation, pending in this directory.
    pub fn move_into(&mut self, dir: DirId, name: &str, to: DirId) {
        if let Some(entry) = self.dir_mut(dir).cached.remove(name) {
            let before = self.dir_mut(to).cached.insert(name.to_owned(), entry.clone());
            check!(before.is_none(), "a move replaces no file", name);
            self.dir_mut(dir).pending.push(NameOp::Move { name: name.to_owned(), entry, to });
        }
    }

    /// Adds a name for a file.
    pub fn link(&mut self, to: DirId, name: &str, entry: SimDirEntry) {
        check!(self.get(to, name).is_none(), "a link has a new name", name);
        self.linked.insert(entry.id());
        let node = self.dir_mut(to);
        node.cached.insert(name.to_owned(), entry.clone());
        node.pending.push(NameOp::Link { name: name.to_owned(), entry });
    }

    /// Makes the names of a directory durable.
    pub fn sync(&mut self, dir: DirId) {
        let count = self.dir(dir).pending.len();
        self.sync_prefix(dir, count);
    }

    /// Makes the oldest `count` pending changes of a directory durable.
    pub fn sync_prefix(&mut self, dir: DirId, count: usize) {
        check!(count <= self.pending_len(dir), "only pending changes are synced", count);
        // A move into this directory is one journal entry with the changes that preceded it in the
        // parent.
        if let Some(parent) = self.dir(dir).parent {
            let is_move = |op: &NameOp| matches!(op, NameOp::Move { to, .. } if *to == dir);
            if let Some(last) = self.dir(parent).pending.iter().rposition(is_move) {
                self.sync_prefix(parent, last + 1);
            }
        }
        let ops: Vec<NameOp> = self.dir_mut(dir).pending.drain(..count).collect();
        for op in ops {
            self.apply_durably(dir, op);
        }
    }

    /// Drops the pending changes after a failed directory sync: they stay visible and are never
    /// written.
    pub fn drop_pending(&mut self, dir: DirId) {
        self.dir_mut(dir).pending.clear();
    }

    pub fn pending_len(&self, dir: DirId) -> usize {
        self.dir(dir).pending.len()
    }

    /// Returns every visible file once.
    pub fn distinct_files(&self) -> Vec<Arc<SimFile>> {
        let mut seen = BTreeSet::new();
        self.files().into_iter().map(|(_, f)| f).filter(|f| seen.insert(f.id)).collect()
    }

    /// Returns every visible file with its path.
    pub fn files(&self) -> Vec<(String, Arc<SimFile>)> {
        let mut out = Vec::new();
        self.collect_files(ROOT_DIR, "", &mut out);
        out
    }

    fn collect_files(&self, dir: DirId, prefix: &str, out: &mut Vec<(String, Arc<SimFile>)>) {
        for (name, entry) in self.entries(dir) {
            let path = format!("{prefix}/{name}");
            match entry {
                SimDirEntry::File(f) => out.push((path, f.clone())),
                SimDirEntry::Dir(d) => self.collect_files(*d, &path, out),
            }
        }
    }

    /// Returns a copy of the tree with copies of the files.
    pub fn deep_clone(&self) -> SimDirTree {
        let mut copies = BTreeMap::new();
        let dirs =
            self.dirs.iter().map(|(id, node)| (*id, node.clone_with_files(&mut copies))).collect();
        SimDirTree { dirs, next_id: self.next_id, linked: self.linked.clone() }
    }

    /// Applies a power failure to the names; called on a clone. File contents are not changed.
    pub fn cut_power(&mut self, rng: &mut SeededRng, p: f64) {
        // Parents come first: a directory has a smaller number than its subdirectories.
        let ids: Vec<DirId> = self.dirs.keys().copied().collect();
        for id in ids {
            let ops = std::mem::take(&mut self.dir_mut(id).pending);
            let prefix = rng.chance(0.5).then(|| rng.index(ops.len() + 1));
            for (i, op) in ops.into_iter().enumerate() {
                if prefix.map_or_else(|| rng.chance(p), |n| i < n) {
                    self.apply_durably(id, op);
                }
            }
        }
        for node in self.dirs.values_mut() {
            node.cached = node.durable.clone();
        }
        check!(
            self.dirs.keys().all(|dir| self.pending_len(*dir) == 0),
            "nothing is pending after a power failure"
        );
    }

    fn set_entry(&mut self, dir: DirId, name: &str, entry: SimDirEntry) {
        let node = self.dir_mut(dir);
        node.cached.retain(|_, e| e.id() != entry.id());
        node.cached.insert(name.to_owned(), entry.clone());
        node.pending.push(NameOp::Insert { name: name.to_owned(), entry });
    }

    /// Applies one change to the durable names. Earlier changes may have been lost, so the current
    /// entries are checked.
    fn apply_durably(&mut self, dir: DirId, op: NameOp) {
        match op {
            NameOp::Insert { name, entry } => {
                // If its move to this directory was lost, later changes of it here are lost too.
                let durable_elsewhere = !self.linked.contains(&entry.id())
                    && self.dirs.iter().any(|(d, n)| *d != dir && n.is_durable(entry.id()));
                if !durable_elsewhere {
                    let node = self.dir_mut(dir);
                    node.durable.retain(|_, e| e.id() != entry.id());
                    node.durable.insert(name, entry);
                }
            }
            NameOp::Remove { name, id } => {
                let durable = &mut self.dir_mut(dir).durable;
                if durable.get(&name).is_some_and(|e| e.id() == id) {
                    durable.remove(&name);
                }
            }
            NameOp::Link { name, entry } => {
                self.dir_mut(dir).durable.insert(name, entry);
            }
            NameOp::Move { name, entry, to } => {
                // If the target directory was lost, the move is lost too.
                if self.dir(dir).is_durable(to) {
                    self.dir_mut(dir).durable.retain(|_, e| e.id() != entry.id());
                    self.dir_mut(to).durable.insert(name, entry);
                }
            }
        }
    }

    fn allocate_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id - 1
    }
}

impl DirNode {
    fn is_durable(&self, id: u64) -> bool {
        self.durable.values().any(|e| e.id() == id)
    }

    fn clone_with_files(&self, copies: &mut BTreeMap<u64, Arc<SimFile>>) -> DirNode {
        let mut copy_entry = |entry: &SimDirEntry| match entry {
            SimDirEntry::Dir(d) => SimDirEntry::Dir(*d),
            SimDirEntry::File(f) => {
                let copy =
                    copies.entry(f.id).or_insert_with(|| SimFile::new(f.id, f.pages().clone()));
                SimDirEntry::File(copy.clone())
            }
        };
        let pending = self.pending.iter().map(|op| match op {
            NameOp::Insert { name, entry } => {
                NameOp::Insert { name: name.clone(), entry: copy_entry(entry) }
            }
            NameOp::Remove { name, id } => NameOp::Remove { name: name.clone(), id: *id },
            NameOp::Link { name, entry } => {
                NameOp::Link { name: name.clone(), entry: copy_entry(entry) }
            }
            NameOp::Move { name, entry, to } => {
                NameOp::Move { name: name.clone(), entry: copy_entry(entry), to: *to }
            }
        });
        let pending = pending.collect();
        let mut table =
            |t: &DirEntries| t.iter().map(|(n, e)| (n.clone(), copy_entry(e))).collect();
        DirNode {
            parent: self.parent,
            cached: table(&self.cached),
            durable: table(&self.durable),
            pending,
        }
    }
}
