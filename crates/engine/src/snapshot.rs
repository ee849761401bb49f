//! The list of sequence numbers that readers hold on to, and the oldest number that can be read at
//! all.
//!
//! *Readable* is every number from the floor on, and those that somebody holds. The floor is the
//! newest operation among the inputs of all rewrites that were begun, each no higher than the
//! horizon of history then: at such a number and above, what a rewrite keeps for the present (and
//! for each number above the horizon) is all that a reader needs. It never goes back.

use crate::history::{HistoryRetention, SeqNoTimeMap};
use perigee_base::SeqNo;
use perigee_base::bug::{self, Bug};
use std::collections::BTreeMap;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, SeqCst},
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Debug, Default)]
struct SnapshotListState {
    live: BTreeMap<SeqNo, usize>,
    oldest_readable: SeqNo,
    seq_times: SeqNoTimeMap,
}

/// Live snapshots, counted. The mutex guards the state; no I/O inside.
#[derive(Debug, Default)]
pub struct SnapshotList {
    state: Mutex<SnapshotListState>,
    history: HistoryRetention,
    /// Grows where a family's contents are replaced as a whole, which no sequence number says.
    epoch: AtomicU64,
}

/// Whom a rewrite must respect.
#[derive(Clone, Debug)]
pub struct LiveSnapshots {
    /// The numbers that are held.
    pub snapshots: Vec<SeqNo>,
    /// The present.
    pub visible_seq: SeqNo,
    /// Every version above it stays.
    pub horizon: Option<SeqNo>,
}

impl LiveSnapshots {
    /// The seeded bug: nobody but the present.
    pub fn without_snapshots(self) -> LiveSnapshots {
        LiveSnapshots { snapshots: Vec::new(), ..self }
    }
}

impl SnapshotList {
    /// Nobody reads yet; numbers from `floor` on can be read.
    pub fn new(history: HistoryRetention, floor: SeqNo) -> SnapshotList {
        SnapshotList {
            state: Mutex::new(SnapshotListState {
                oldest_readable: floor,
                ..SnapshotListState::default()
            }),
            history,
            epoch: AtomicU64::new(0),
        }
    }

    fn state(&self) -> MutexGuard<'_, SnapshotListState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds on to the present. Reading the watermark and entering the list is one step for
    /// [`Snapshots::claim`], so a job either sees the snapshot or is not newer than it.
    pub fn acquire(self: &Arc<Self>, visible: &AtomicU64) -> SnapshotHandle {
        let mut state = self.state();
        let seq = SeqNo(visible.load(Acquire));
        *state.live.entry(seq).or_default() += 1;
        SnapshotHandle { list: Arc::clone(self), seq, epoch: self.epoch() }
    }
    /// Holds on to a number of the past, if it can be read; otherwise the oldest that can.
    pub fn acquire_at(self: &Arc<Self>, seq: SeqNo) -> Result<SnapshotHandle, SeqNo> {
        let mut state = self.state();
        if seq < state.oldest_readable && !state.live.contains_key(&seq) {
            return Err(state.oldest_readable);
        }
        *state.live.entry(seq).or_default() += 1;
        Ok(SnapshotHandle { list: Arc::clone(self), seq, epoch: self.epoch() })
    }
    /// Holds on to a number that was held all the time, by a name in the manifest.
    pub fn acquire_named(self: &Arc<Self>, seq: SeqNo) -> SnapshotHandle {
        *self.state().live.entry(seq).or_default() += 1;
        SnapshotHandle { list: Arc::clone(self), seq, epoch: self.epoch() }
    }
    /// The oldest number that anybody may ask for.
    pub fn oldest_readable(&self) -> SeqNo {
        self.state().oldest_readable
    }
    /// Whom a rewrite would have to respect now.
    pub fn live_snapshots(&self, visible: &AtomicU64, now_us: u64) -> LiveSnapshots {
        self.collect_live(&mut self.state(), visible, now_us)
    }
    /// Whom a rewrite of operations up to `newest` must respect. Take it after the inputs are
    /// fixed: from now on nobody new reads at a number that it may take something from.
    pub fn begin_rewrite(&self, visible: &AtomicU64, now_us: u64, newest: SeqNo) -> LiveSnapshots {
        let mut state = self.state();
        let readers = self.collect_live(&mut state, visible, now_us);
        if !bug::is_active(Bug::FloorStays) {
            state.oldest_readable = state
                .oldest_readable
                .max(readers.horizon.map_or(newest, |horizon| horizon.min(newest)));
        }
        readers
    }
    fn collect_live(
        &self,
        state: &mut SnapshotListState,
        visible: &AtomicU64,
        now_us: u64,
    ) -> LiveSnapshots {
        let present = SeqNo(visible.load(Acquire));
        state.seq_times.record(self.history, now_us, present);
        let horizon = state.seq_times.horizon(self.history, now_us, present, state.oldest_readable);
        LiveSnapshots {
            snapshots: state.live.keys().copied().collect(),
            visible_seq: present,
            horizon,
        }
    }
    /// The era that snapshots are taken in now.
    pub fn epoch(&self) -> u64 {
        self.epoch.load(SeqCst)
    }
    /// Starts era `era`, after the contents that it begins with are in place. In the commit
    /// section.
    pub fn begin_epoch(&self, era: u64) {
        self.epoch.store(era, SeqCst);
    }
    /// How many are alive.
    pub fn count(&self) -> usize {
        self.state().live.values().sum()
    }
}

/// A place in the list, until dropped.
#[derive(Debug)]
pub struct SnapshotHandle {
    list: Arc<SnapshotList>,
    seq: SeqNo,
    epoch: u64,
}

impl SnapshotHandle {
    /// The era it was taken in.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }
    /// The sequence number held.
    pub fn seq(&self) -> SeqNo {
        self.seq
    }
    /// Another place at the same number.
    pub fn duplicate(&self) -> SnapshotHandle {
        *self.list.state().live.entry(self.seq).or_default() += 1;
        SnapshotHandle { list: Arc::clone(&self.list), ..*self }
    }
}

impl Drop for SnapshotHandle {
    fn drop(&mut self) {
        let mut state = self.list.state();
        if let Some(n) = state.live.get_mut(&self.seq) {
            *n -= 1;
            if *n == 0 {
                state.live.remove(&self.seq);
            }
        }
    }
}
