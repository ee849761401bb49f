//! Files that no column family refers to any more, and flushed memtables, both waiting for their
//! last reference to be dropped. Deleting files is the last step of every change.
//!
//! Invariant: a file has one `Table` or `Vlog` object in the process, which is held by every
//! version that refers to the file, including those of other column families (clones). So when the
//! object has no holders, neither a reader nor the manifest needs the file. (The tables of a
//! prepared transaction get a second object when it is committed, which is tracked until its last
//! holder is gone.)

use perigee_base::bug::Bug;
use perigee_base::{Error, ErrorKind, FileId, FileKind, bug};
use perigee_file::{TableCache, filename};
use perigee_tree::{Memtable, Table, Version, Vlog};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError, Weak};

#[derive(Debug)]
enum ObsoleteFile {
    Table(Weak<Table>),
    Vlog(Weak<Vlog>),
}

/// The pending deletions. Each mutex guards its map; no I/O while it is held.
#[derive(Debug, Default)]
pub struct ObsoleteFiles {
    pending: Mutex<BTreeMap<FileId, ObsoleteFile>>,
    /// Tables of prepared transactions that were committed: a holder of one of these objects (a
    /// checkpoint) still needs the file, of which a version has another object.
    prepared: Mutex<BTreeMap<FileId, Weak<Table>>>,
    /// Sealed memtables by address, which stays valid as a key while the weak reference exists.
    memtables: Mutex<BTreeMap<usize, Weak<Memtable>>>,
    /// Held during a whole deletion pass: when a job's pass ends, its files are gone, even if
    /// another thread deleted them.
    delete_lock: perigee_env::Mutex<()>,
}

/// Returns the bytes of a sealed memtable, including the empty one that its column family has in
/// addition.
pub fn immutable_memtable_bytes(m: &Memtable) -> u64 {
    m.bytes() + m.contents_bytes() + Memtable::EMPTY_BYTES
}

impl ObsoleteFiles {
    /// Adds the files of `old` that are not in `new`.
    pub fn add_replaced(&self, old: &Version, new: &Version) {
        let kept = new.file_ids();
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        for (_, _, t) in old.tables().filter(|(_, _, t)| !kept.contains(&t.meta.id)) {
            pending.entry(t.meta.id).or_insert_with(|| ObsoleteFile::Table(Arc::downgrade(t)));
        }
        for v in old.vlogs.values().filter(|v| !kept.contains(&v.meta.id)) {
            pending.entry(v.meta.id).or_insert_with(|| ObsoleteFile::Vlog(Arc::downgrade(v)));
        }
    }

    /// Adds files that were never part of a column family.
    pub fn add_unpublished(&self, tables: &[Arc<Table>], vlogs: &[Arc<Vlog>]) {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        for t in tables {
            pending.entry(t.meta.id).or_insert_with(|| ObsoleteFile::Table(Arc::downgrade(t)));
        }
        for v in vlogs {
            pending.entry(v.meta.id).or_insert_with(|| ObsoleteFile::Vlog(Arc::downgrade(v)));
        }
    }

    /// Tracks the tables of a prepared transaction that was committed.
    pub fn track_prepared(&self, tables: &[Arc<Table>]) {
        check_slow!(
            tables.iter().all(|t| t.meta.global_seq.is_none()),
            "a prepared transaction has no sequence number before its commit",
            tables.len()
        );
        let mut all = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        all.extend(tables.iter().map(|t| (t.meta.id, Arc::downgrade(t))));
    }
    /// Returns the tables of prepared transactions that were committed and still have a holder.
    fn prepared_in_use(&self) -> BTreeSet<FileId> {
        let mut all = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, table| table.strong_count() > 0);
        all.keys().copied().collect()
    }

    /// Tracks a sealed memtable for as long as it has a holder.
    pub fn track_memtable(&self, memtable: &Arc<Memtable>) {
        let mut all = self.memtables.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(Arc::as_ptr(memtable) as usize).or_insert_with(|| Arc::downgrade(memtable));
    }
    /// Returns the bytes of all sealed memtables that column families, jobs or readers hold, and
    /// how many of them are in batches shared by several column families.
    pub fn tracked_memtable_bytes(&self) -> (u64, u64) {
        let mut all = self.memtables.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut bytes, mut shared_bytes) = (0, 0);
        let mut add = |m: &Arc<Memtable>| {
            bytes += immutable_memtable_bytes(m);
            shared_bytes += m.shared_batch_bytes();
        };
        all.retain(|_, m| m.upgrade().inspect(&mut add).is_some());
        (bytes, shared_bytes)
    }

    /// Deletes the files without holders. A file that cannot be deleted becomes an orphan for the
    /// next open to remove. `listed` returns the files of the catalog, for an assertion.
    pub fn delete_unreferenced(
        &self,
        table_cache: &TableCache,
        listed: impl Fn() -> BTreeSet<FileId>,
    ) -> Result<(), Error> {
        let _one_at_a_time = self.delete_lock.lock();
        let (mut unreferenced, prepared) = (Vec::new(), self.prepared_in_use());
        self.pending.lock().unwrap_or_else(PoisonError::into_inner).retain(|id, file| {
            let (holders, kind) = match file {
                ObsoleteFile::Table(w) => (w.strong_count(), FileKind::Klog),
                ObsoleteFile::Vlog(w) => (w.strong_count(), FileKind::Vlog),
            };
            let holders = holders + usize::from(prepared.contains(id));
            let holders = if bug::is_active(Bug::DropDeletesShared) { 0 } else { holders };
            if holders == 0 {
                unreferenced.push((*id, kind));
            }
            holders > 0
        });
        check_slow!(
            unreferenced.is_empty() || perigee_env::panicking() || {
                let listed = listed();
                unreferenced.iter().all(|(id, _)| !listed.contains(id))
            },
            "a file is deleted only after the catalog has dropped it",
            unreferenced.iter().map(|(id, _)| *id).collect::<Vec<_>>()
        );
        let mut first = Ok(());
        for (id, kind) in unreferenced {
            table_cache.evict(id);
            match table_cache.dir().remove(&filename::file_name(id, kind)) {
                Err(e) if e.kind() != ErrorKind::NotFound && first.is_ok() => first = Err(e),
                _ => {}
            }
        }
        first
    }
}
