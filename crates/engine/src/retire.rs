//! Files that a family no longer names, and memtables that are in tables already, waiting for the last holder. Deleting is the last step of every change.
//!
//! Invariant: a file has one `Table` or `Vlog` object in the process, which every version that names it holds, also those of
//! other families (clones). So when nobody holds the object, neither a reader nor the manifest needs the file.

use perigee_base::bug::{self, Bug};
use perigee_base::format::FileKind;
use perigee_base::{Error, ErrorKind, FileId};
use perigee_file::{Shelf, name};
use perigee_tree::{Memtable, Table, Version, Vlog};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

#[derive(Debug)]
enum Holder {
    Table(Weak<Table>),
    Vlog(Weak<Vlog>),
}

/// The waiting list. The mutex guards it; the sweep's I/O happens outside.
#[derive(Debug, Default)]
pub struct Retire {
    waiting: Mutex<BTreeMap<FileId, Holder>>,
    /// Memtables that were sealed, by address, which stays theirs while they are here.
    memtables: Mutex<BTreeMap<usize, Weak<Memtable>>>,
    /// Held across a whole sweep: who sweeps after a job finds its files gone, whoever removed them.
    sweeping: perigee_env::sync::Mutex<()>,
}

/// Bytes of a sealed memtable: its family has an empty one beside it.
pub fn sealed_bytes(m: &Memtable) -> u64 {
    m.bytes() + Memtable::EMPTY_BYTES
}

impl Retire {
    /// Lists the files that `old` has and `new` has not.
    pub fn difference(&self, old: &Version, new: &Version) {
        let kept = new.files();
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        for (_, _, t) in old.tables().filter(|(_, _, t)| !kept.contains(&t.meta.id)) {
            waiting.entry(t.meta.id).or_insert_with(|| Holder::Table(Arc::downgrade(t)));
        }
        for v in old.vlogs.values().filter(|v| !kept.contains(&v.meta.id)) {
            waiting.entry(v.meta.id).or_insert_with(|| Holder::Vlog(Arc::downgrade(v)));
        }
    }

    /// Lists files that no family has named, or will.
    pub fn spent(&self, tables: &[Arc<Table>], vlogs: &[Arc<Vlog>]) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        for t in tables {
            waiting.entry(t.meta.id).or_insert_with(|| Holder::Table(Arc::downgrade(t)));
        }
        for v in vlogs {
            waiting.entry(v.meta.id).or_insert_with(|| Holder::Vlog(Arc::downgrade(v)));
        }
    }

    /// A sealed memtable counts for as long as anybody holds it.
    pub fn follow(&self, memtable: &Arc<Memtable>) {
        let mut all = self.memtables.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(Arc::as_ptr(memtable) as usize).or_insert_with(|| Arc::downgrade(memtable));
    }
    /// Bytes of all sealed memtables that somebody holds: families, jobs, readers; and how many of them are parts of batches
    /// that several families share.
    pub fn memtable_bytes(&self) -> (u64, u64) {
        let mut all = self.memtables.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut bytes, mut parts) = (0, 0);
        let mut add = |m: &Arc<Memtable>| {
            bytes += sealed_bytes(m);
            parts += m.part_bytes();
        };
        all.retain(|_, m| m.upgrade().inspect(&mut add).is_some());
        (bytes, parts)
    }

    /// Removes the files that nobody reads and no family names any more. A file that cannot be removed becomes an orphan of the next open.
    pub fn sweep(&self, shelf: &Shelf) -> Result<(), Error> {
        let _one_at_a_time = self.sweeping.lock();
        let mut free = Vec::new();
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).retain(|id, holder| {
            let (held, kind) = match holder {
                Holder::Table(w) => (w.strong_count(), FileKind::Klog),
                Holder::Vlog(w) => (w.strong_count(), FileKind::Vlog),
            };
            let held = if bug::on(Bug::DropDeletesShared) { 0 } else { held };
            if held == 0 {
                free.push((*id, kind));
            }
            held > 0
        });
        let mut first = Ok(());
        for (id, kind) in free {
            shelf.forget(id);
            match shelf.dir().remove(&name::file_name(id, kind)) {
                Err(e) if e.kind() != ErrorKind::NotFound && first.is_ok() => first = Err(e),
                _ => {}
            }
        }
        first
    }
}
