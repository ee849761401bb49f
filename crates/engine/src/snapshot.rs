//! The list of sequence numbers that readers hold on to, and the oldest number that can be read at all.
//!
//! *Readable* is every number from the floor on, and those that somebody holds. The floor is the newest operation among the
//! inputs of all rewrites that were begun, each no higher than the horizon of history then: at such a number and above, what a
//! rewrite keeps for the present (and for each number above the horizon) is all that a reader needs. It never goes back.

use crate::history::{History, Moments};
use perigee_base::SeqNo;
use perigee_base::bug::{self, Bug};
use std::collections::BTreeMap;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, SeqCst},
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Debug, Default)]
struct State {
    live: BTreeMap<SeqNo, usize>,
    floor: SeqNo,
    moments: Moments,
}

/// Live snapshots, counted. The mutex guards the state; no I/O inside.
#[derive(Debug, Default)]
pub struct Snapshots {
    state: Mutex<State>,
    history: History,
    /// Grows where a family's contents are replaced as a whole, which no sequence number says.
    era: AtomicU64,
}

/// Whom a rewrite must respect.
#[derive(Clone, Debug)]
pub struct Readers {
    /// The numbers that are held.
    pub snapshots: Vec<SeqNo>,
    /// The present.
    pub present: SeqNo,
    /// Every version above it stays.
    pub horizon: Option<SeqNo>,
}

impl Readers {
    /// The seeded bug: nobody but the present.
    pub fn forgotten(self) -> Readers {
        Readers { snapshots: Vec::new(), ..self }
    }
}

impl Snapshots {
    /// Nobody reads yet; numbers from `floor` on can be read.
    pub fn new(history: History, floor: SeqNo) -> Snapshots {
        Snapshots { state: Mutex::new(State { floor, ..State::default() }), history, era: AtomicU64::new(0) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds on to the present. Reading the watermark and entering the list is one step for [`Snapshots::claim`], so a
    /// job either sees the snapshot or is not newer than it.
    pub fn take(self: &Arc<Self>, visible: &AtomicU64) -> Held {
        let mut state = self.state();
        let seq = SeqNo(visible.load(Acquire));
        *state.live.entry(seq).or_default() += 1;
        Held { list: Arc::clone(self), seq, era: self.era() }
    }
    /// Holds on to a number of the past, if it can be read; otherwise the oldest that can.
    pub fn take_at(self: &Arc<Self>, seq: SeqNo) -> Result<Held, SeqNo> {
        let mut state = self.state();
        if seq < state.floor && !state.live.contains_key(&seq) {
            return Err(state.floor);
        }
        *state.live.entry(seq).or_default() += 1;
        Ok(Held { list: Arc::clone(self), seq, era: self.era() })
    }
    /// Holds on to a number that was held all the time, by a name in the manifest.
    pub fn hold(self: &Arc<Self>, seq: SeqNo) -> Held {
        *self.state().live.entry(seq).or_default() += 1;
        Held { list: Arc::clone(self), seq, era: self.era() }
    }
    /// The oldest number that anybody may ask for.
    pub fn floor(&self) -> SeqNo {
        self.state().floor
    }
    /// Whom a rewrite would have to respect now.
    pub fn readers(&self, visible: &AtomicU64, now_us: u64) -> Readers {
        self.list(&mut self.state(), visible, now_us)
    }
    /// Whom a rewrite of operations up to `newest` must respect. Take it after the inputs are fixed: from now on nobody new reads
    /// at a number that it may take something from.
    pub fn claim(&self, visible: &AtomicU64, now_us: u64, newest: SeqNo) -> Readers {
        let mut state = self.state();
        let readers = self.list(&mut state, visible, now_us);
        if !bug::on(Bug::FloorStays) {
            state.floor = state.floor.max(readers.horizon.map_or(newest, |horizon| horizon.min(newest)));
        }
        readers
    }
    fn list(&self, state: &mut State, visible: &AtomicU64, now_us: u64) -> Readers {
        let present = SeqNo(visible.load(Acquire));
        state.moments.note(self.history, now_us, present);
        let horizon = state.moments.horizon(self.history, now_us, present, state.floor);
        Readers { snapshots: state.live.keys().copied().collect(), present, horizon }
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
        self.state().live.values().sum()
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
    /// Another place at the same number.
    pub fn again(&self) -> Held {
        *self.list.state().live.entry(self.seq).or_default() += 1;
        Held { list: Arc::clone(&self.list), ..*self }
    }
}

impl Drop for Held {
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
