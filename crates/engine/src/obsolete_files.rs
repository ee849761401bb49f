//! Files that a family no longer names, and memtables that are in tables already, waiting for the
//! last holder. Deleting is the last step of every change.
//!
//! Invariant: a file has one `Table` or `Vlog` object in the process, which every version that
//! names it holds, also those of other families (clones). So when nobody holds the object, neither
//! a reader nor the manifest needs the file.

use perigee_base::bug::{self, Bug};
use perigee_base::file_header::FileKind;
use perigee_base::{Error, ErrorKind, FileId};
use perigee_file::{TableCache, filename};
use perigee_tree::{Memtable, Table, Version, Vlog};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

#[derive(Debug)]
enum ObsoleteFile {
    Table(Weak<Table>),
    Vlog(Weak<Vlog>),
}

/// The waiting list. The mutex guards it; the sweep's I/O happens outside.
#[derive(Debug, Default)]
pub struct ObsoleteFiles {
    pending: Mutex<BTreeMap<FileId, ObsoleteFile>>,
    /// Memtables that were sealed, by address, which stays theirs while they are here.
    memtables: Mutex<BTreeMap<usize, Weak<Memtable>>>,
    /// Held across a whole sweep: who sweeps after a job finds its files gone, whoever removed
    /// them.
    delete_lock: perigee_env::sync::Mutex<()>,
}

/// Bytes of a sealed memtable: its family has an empty one beside it.
pub fn immutable_memtable_bytes(m: &Memtable) -> u64 {
    m.bytes() + Memtable::EMPTY_BYTES
}

impl ObsoleteFiles {
    /// Lists the files that `old` has and `new` has not.
    pub fn add_replaced(&self, old: &Version, new: &Version) {
        let kept = new.file_ids();
        let mut waiting = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        for (_, _, t) in old.tables().filter(|(_, _, t)| !kept.contains(&t.meta.id)) {
            waiting.entry(t.meta.id).or_insert_with(|| ObsoleteFile::Table(Arc::downgrade(t)));
        }
        for v in old.vlogs.values().filter(|v| !kept.contains(&v.meta.id)) {
            waiting.entry(v.meta.id).or_insert_with(|| ObsoleteFile::Vlog(Arc::downgrade(v)));
        }
    }

    /// Lists files that no family has named, or will.
    pub fn add_unpublished(&self, tables: &[Arc<Table>], vlogs: &[Arc<Vlog>]) {
        let mut waiting = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        for t in tables {
            waiting.entry(t.meta.id).or_insert_with(|| ObsoleteFile::Table(Arc::downgrade(t)));
        }
        for v in vlogs {
            waiting.entry(v.meta.id).or_insert_with(|| ObsoleteFile::Vlog(Arc::downgrade(v)));
        }
    }

    /// A sealed memtable counts for as long as anybody holds it.
    pub fn track_memtable(&self, memtable: &Arc<Memtable>) {
        let mut all = self.memtables.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(Arc::as_ptr(memtable) as usize).or_insert_with(|| Arc::downgrade(memtable));
    }
    /// Bytes of all sealed memtables that somebody holds: families, jobs, readers; and how many of
    /// them are parts of batches that several families share.
    pub fn tracked_memtable_bytes(&self) -> (u64, u64) {
        let mut all = self.memtables.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut bytes, mut parts) = (0, 0);
        let mut add = |m: &Arc<Memtable>| {
            bytes += immutable_memtable_bytes(m);
            parts += m.shared_batch_bytes();
        };
        all.retain(|_, m| m.upgrade().inspect(&mut add).is_some());
        (bytes, parts)
    }

    /// Removes the files that nobody reads and no family names any more. A file that cannot be
    /// removed becomes an orphan of the next open.
    pub fn delete_unreferenced(&self, shelf: &TableCache) -> Result<(), Error> {
        let _one_at_a_time = self.delete_lock.lock();
        let mut free = Vec::new();
        self.pending.lock().unwrap_or_else(PoisonError::into_inner).retain(|id, holder| {
            let (held, kind) = match holder {
                ObsoleteFile::Table(w) => (w.strong_count(), FileKind::Klog),
                ObsoleteFile::Vlog(w) => (w.strong_count(), FileKind::Vlog),
            };
            let held = if bug::is_active(Bug::DropDeletesShared) { 0 } else { held };
            if held == 0 {
                free.push((*id, kind));
            }
            held > 0
        });
        let mut first = Ok(());
        for (id, kind) in free {
            shelf.evict(id);
            match shelf.dir().remove(&filename::file_name(id, kind)) {
                Err(e) if e.kind() != ErrorKind::NotFound && first.is_ok() => first = Err(e),
                _ => {}
            }
        }
        first
    }
}
