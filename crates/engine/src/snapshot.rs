//! The list of sequence numbers that readers hold on to.

use perigee_base::SeqNo;
use std::collections::BTreeMap;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, SeqCst},
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Live snapshots, counted. The mutex guards the map; no I/O inside.
#[derive(Debug, Default)]
pub struct Snapshots {
    live: Mutex<BTreeMap<SeqNo, usize>>,
    /// Grows where a family's contents are replaced as a whole, which no sequence number says.
    era: AtomicU64,
}

impl Snapshots {
    fn map(&self) -> MutexGuard<'_, BTreeMap<SeqNo, usize>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds on to the present. Reading the watermark and entering the list is one step for [`Snapshots::strata`], so a
    /// job either sees the snapshot or is not newer than it.
    pub fn take(self: &Arc<Self>, visible: &AtomicU64) -> Held {
        let mut map = self.map();
        let seq = SeqNo(visible.load(Acquire));
        *map.entry(seq).or_default() += 1;
        Held { list: Arc::clone(self), seq, era: self.era() }
    }
    /// The sequence numbers held now, and the present: what a rewrite must respect. Take it after the inputs are fixed.
    pub fn strata(&self, visible: &AtomicU64) -> (Vec<SeqNo>, SeqNo) {
        let map = self.map();
        (map.keys().copied().collect(), SeqNo(visible.load(Acquire)))
    }
    /// The era that snapshots are taken in now.
    pub fn era(&self) -> u64 {
        self.era.load(SeqCst)
    }
    /// Starts era `era`, after the contents that it begins with are in place. In the commit section.
    pub fn begin(&self, era: u64) {
        self.era.store(era, SeqCst);
    }
    /// How many are alive.
    pub fn count(&self) -> usize {
        self.map().values().sum()
    }
}

/// A place in the list, until dropped.
#[derive(Debug)]
pub struct Held {
    list: Arc<Snapshots>,
    seq: SeqNo,
    era: u64,
}

impl Held {
    /// The era it was taken in.
    pub fn era(&self) -> u64 {
        self.era
    }
    /// The sequence number held.
    pub fn seq(&self) -> SeqNo {
        self.seq
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut map = self.list.map();
        if let Some(n) = map.get_mut(&self.seq) {
            *n -= 1;
            if *n == 0 {
                map.remove(&self.seq);
            }
        }
    }
}
