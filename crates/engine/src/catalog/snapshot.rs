//! The sequence numbers pinned by readers, and the oldest readable one.
//!
//! A sequence number is *readable* if it is not below the oldest readable one, or if it is pinned.
//! The oldest readable one is the newest operation among the inputs of all rewrites begun so far,
//! each limited by the horizon of history at that time: what a rewrite keeps for the current state
//! (and for each sequence number above the horizon) is all that a reader at such a number or above
//! needs. It never decreases.

use crate::settings::history::{HistoryPolicy, SeqNoTimeMap};
use perigee_base::bug::{self, Bug};
use perigee_base::{AtomicSeqNo, SeqNo};
use perigee_tree::SnapshotStripes;
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

/// Live snapshots with their reference counts. The mutex guards the state; no I/O while it is held.
#[derive(Debug, Default)]
pub struct SnapshotList {
    state: Mutex<SnapshotListState>,
    history: HistoryPolicy,
    /// Incremented when the contents of a column family are replaced as a whole, a change that has
    /// no effect on sequence numbers of entries.
    epoch: AtomicU64,
}

/// The versions that a rewrite must keep.
#[derive(Clone, Debug)]
pub struct LiveSnapshots {
    /// Pinned sequence numbers.
    pub snapshots: Vec<SeqNo>,
    /// The newest visible sequence number.
    pub visible_seq: SeqNo,
    /// Every version above it must be kept.
    pub horizon: Option<SeqNo>,
}

impl LiveSnapshots {
    /// Converts them to the snapshot stripes that rewrites use.
    pub fn into_stripes(self) -> SnapshotStripes {
        SnapshotStripes::new(self.snapshots, self.visible_seq).with_history_from(self.horizon)
    }
    /// For a seeded bug: ignores all snapshots.
    pub fn without_snapshots(self) -> LiveSnapshots {
        LiveSnapshots { snapshots: Vec::new(), ..self }
    }
}

impl SnapshotList {
    /// Creates a list without snapshots; sequence numbers from `oldest_readable` on are readable.
    pub fn new(history: HistoryPolicy, oldest_readable: SeqNo) -> SnapshotList {
        SnapshotList {
            state: Mutex::new(SnapshotListState {
                oldest_readable,
                ..SnapshotListState::default()
            }),
            history,
            epoch: AtomicU64::new(0),
        }
    }

    fn state(&self) -> MutexGuard<'_, SnapshotListState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a snapshot of the current state. Reading the watermark and entering the list is atomic
    /// with respect to [`SnapshotList::begin_rewrite`], so a job either sees the snapshot or has no
    /// newer input than it.
    pub fn acquire(self: &Arc<Self>, visible: &AtomicSeqNo) -> SnapshotHandle {
        let mut state = self.state();
        let seq = visible.load(Acquire);
        *state.live.entry(seq).or_default() += 1;
        SnapshotHandle { list: Arc::clone(self), seq, epoch: self.epoch() }
    }
    /// Takes a snapshot at an earlier sequence number; returns the oldest readable one as the error
    /// if `seq` is not readable.
    pub fn acquire_at(self: &Arc<Self>, seq: SeqNo) -> Result<SnapshotHandle, SeqNo> {
        let mut state = self.state();
        if seq < state.oldest_readable && !state.live.contains_key(&seq) {
            return Err(state.oldest_readable);
        }
        *state.live.entry(seq).or_default() += 1;
        Ok(SnapshotHandle { list: Arc::clone(self), seq, epoch: self.epoch() })
    }
    /// Takes a snapshot at a sequence number that the manifest has kept pinned by name.
    pub fn acquire_named(self: &Arc<Self>, seq: SeqNo) -> SnapshotHandle {
        *self.state().live.entry(seq).or_default() += 1;
        SnapshotHandle { list: Arc::clone(self), seq, epoch: self.epoch() }
    }
    /// Returns the oldest readable sequence number.
    pub fn oldest_readable(&self) -> SeqNo {
        self.state().oldest_readable
    }
    /// Returns what a rewrite would have to keep now.
    pub fn live_snapshots(&self, visible: &AtomicSeqNo, now_us: u64) -> LiveSnapshots {
        self.collect_live(&mut self.state(), visible, now_us)
    }
    /// Returns what a rewrite of operations up to `newest` must keep, and raises the oldest
    /// readable sequence number accordingly. Call it after the inputs are fixed: from then on no
    /// new snapshot can be taken at a sequence number whose versions the rewrite may drop.
    pub fn begin_rewrite(
        &self,
        visible: &AtomicSeqNo,
        now_us: u64,
        newest: SeqNo,
    ) -> LiveSnapshots {
        let mut state = self.state();
        let live = self.collect_live(&mut state, visible, now_us);
        if !bug::is_active(Bug::OldestReadableNotRaised) {
            state.oldest_readable = state
                .oldest_readable
                .max(live.horizon.map_or(newest, |horizon| horizon.min(newest)));
        }
        live
    }
    fn collect_live(
        &self,
        state: &mut SnapshotListState,
        visible: &AtomicSeqNo,
        now_us: u64,
    ) -> LiveSnapshots {
        let present = visible.load(Acquire);
        state.seq_times.record(self.history, now_us, present);
        let horizon = state.seq_times.horizon(self.history, now_us, present, state.oldest_readable);
        check_slow!(
            horizon.is_none_or(|horizon| horizon <= present),
            "the history horizon is not in the future",
            horizon,
            present
        );
        LiveSnapshots {
            snapshots: state.live.keys().copied().collect(),
            visible_seq: present,
            horizon,
        }
    }
    /// Returns the current snapshot epoch.
    pub fn epoch(&self) -> u64 {
        self.epoch.load(SeqCst)
    }
    /// Starts an epoch after the contents that begin with it are installed. Called in the commit
    /// section.
    pub fn begin_epoch(&self, epoch: u64) {
        let before = self.epoch.swap(epoch, SeqCst);
        check!(before < epoch, "snapshot epochs ascend", before, epoch);
    }
    /// Returns the number of live snapshots.
    pub fn count(&self) -> usize {
        self.state().live.values().sum()
    }
}

/// A pinned sequence number; dropping it releases the pin.
#[derive(Debug)]
pub struct SnapshotHandle {
    list: Arc<SnapshotList>,
    seq: SeqNo,
    epoch: u64,
}

impl SnapshotHandle {
    /// Returns the epoch in which it was taken.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }
    /// Returns the pinned sequence number.
    pub fn seq(&self) -> SeqNo {
        self.seq
    }
    /// Returns another handle of the same sequence number.
    pub fn duplicate(&self) -> SnapshotHandle {
        let mut state = self.list.state();
        let count = state.live.entry(self.seq).or_default();
        check!(*count > 0, "a duplicate pins what its original pins", self.seq);
        *count += 1;
        drop(state);
        SnapshotHandle { list: Arc::clone(&self.list), ..*self }
    }
}

impl Drop for SnapshotHandle {
    fn drop(&mut self) {
        let mut state = self.list.state();
        let count = state.live.get_mut(&self.seq).map(|n| {
            *n -= 1;
            *n
        });
        if count == Some(0) {
            state.live.remove(&self.seq);
        }
        drop(state);
        check!(count.is_some(), "a snapshot is live until it is dropped", self.seq);
    }
}
