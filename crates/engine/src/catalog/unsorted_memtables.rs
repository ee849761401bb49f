//! Memtables with many unsorted entries, which a background thread sorts before a cursor needs
//! their order.

use perigee_tree::Memtable;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Memtables to be sorted.
#[derive(Debug, Default)]
pub struct UnsortedMemtables {
    /// A memtable that is flushed and freed meanwhile need not be sorted.
    queue: Mutex<Vec<Weak<Memtable>>>,
    /// The queue is not empty: the background thread looks often.
    has_any: AtomicBool,
}

impl UnsortedMemtables {
    /// Adds a memtable.
    pub fn add(&self, memtable: &Arc<Memtable>) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(memtable));
        self.has_any.store(true, SeqCst);
    }
    /// Sorts the memtables that were added. Called by one thread, without locks.
    pub fn sort_all(&self) {
        if !self.has_any.swap(false, SeqCst) {
            return;
        }
        let due = std::mem::take(&mut *self.queue.lock().unwrap_or_else(PoisonError::into_inner));
        due.iter().filter_map(Weak::upgrade).for_each(|memtable| memtable.sort_ahead());
    }
}
