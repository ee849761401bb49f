//! Memtables with many unsorted entries, which a background thread sorts before a cursor needs
//! their order.

use perigee_tree::Memtable;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Memtables to be sorted. One that is flushed and freed meanwhile need not be.
#[derive(Debug, Default)]
pub struct UnsortedMemtables(Mutex<Vec<Weak<Memtable>>>);

impl UnsortedMemtables {
    fn queue(&self) -> MutexGuard<'_, Vec<Weak<Memtable>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Adds a memtable.
    pub fn add(&self, memtable: &Arc<Memtable>) {
        self.queue().push(Arc::downgrade(memtable));
    }
    /// Sorts the memtables that were added. Called by one thread, without locks.
    pub fn sort_all(&self) {
        let due = std::mem::take(&mut *self.queue());
        due.iter().filter_map(Weak::upgrade).for_each(|memtable| memtable.sort_ahead());
    }
}
