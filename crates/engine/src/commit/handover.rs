//! Small commits in company (flat combining): a writer that finds the commit section taken leaves its batch in a slot, and
//! whoever enters next logs and applies all that lie there with its own, in one append. The others wait a moment without
//! going to sleep; most find their answer before it is over, and never touched the lock.
//!
//! Invariants: 1. a job is taken from its slot, and answered, only by who is in the section: whoever enters finds a job
//! either untouched or answered; 2. so a writer that waits for the section like anybody else is never forgotten: it
//! is answered, or it leads; 3. every job that was taken is answered, also when its leader panics.
//!
//! Must not know what a job is, or which lock guards the section.

use super::cells::{AtomicU32, Mutex, spin};
use perigee_base::{Error, ErrorKind, Result};
use smallvec::{SmallVec, smallvec};
use std::ops::DerefMut;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// A job's state.
const FREE: u32 = 0;
const CLAIMED: u32 = 1;
const ANSWERED: u32 = 2;

/// Turns that a writer waits for its answer before it lets others run: longer than a group takes.
const ANSWER_TURNS: u32 = 150;
/// How often it lets others run before it sleeps.
const ANSWER_YIELDS: u32 = 4;

/// What is handed over.
pub trait Job {
    /// Why it was left out of its group, if it was.
    fn refused(&mut self) -> Option<Error>;
}

/// One writer's place, on cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Slot<T> {
    state: AtomicU32,
    job: Mutex<Option<T>>,
    failure: Mutex<Option<Error>>,
}

/// What all look at.
#[derive(Debug)]
#[repr(align(128))]
struct Common {
    /// A bit for each slot with a job that nobody has taken.
    ready: AtomicU32,
    /// Groups that have left the section: it may be free.
    ended: AtomicU32,
    /// Written in the section: see [`Company`].
    company: AtomicU32,
}

/// The slots; at most 32.
#[derive(Debug)]
pub struct Handover<T, const SLOTS: usize> {
    slots: [Slot<T>; SLOTS],
    common: Common,
}

impl<T: Job, const SLOTS: usize> Handover<T, SLOTS> {
    /// All free.
    pub fn new() -> Self {
        let slot = |_| Slot { state: AtomicU32::new(FREE), job: Mutex::new(None), failure: Mutex::new(None) };
        let zero = || AtomicU32::new(0);
        Handover {
            slots: std::array::from_fn(slot),
            common: Common { ready: zero(), ended: zero(), company: zero() },
        }
    }

    /// Has `job` done in the section, by this thread or by another.
    pub fn submit<S: DerefMut>(
        &self,
        job: T,
        try_enter: impl Fn() -> Option<S>,
        enter: impl Fn() -> S,
        lead: impl Fn(&mut S::Target, &mut [T]) -> Result<()>,
    ) -> Result<()> {
        if let Some(section) = try_enter() {
            return self.lead(section, job, lead);
        }
        let Some(at) = self.claim() else { return self.lead(enter(), job, lead) };
        let (slot, bit) = (&self.slots[at], 1 << at);
        *held(&slot.job) = Some(job);
        self.common.ready.fetch_or(bit, Release);
        if let Some(section) = self.wait(slot, try_enter, enter) {
            if self.common.ready.fetch_and(!bit, AcqRel) & bit != 0 {
                let mine = held(&slot.job).take().expect("a job that nobody took is in its slot");
                slot.state.store(FREE, Release);
                return self.lead(section, mine, lead);
            }
            drop(section);
        }
        debug_assert_eq!(slot.state.load(Acquire), ANSWERED);
        let failure = held(&slot.failure).take();
        slot.state.store(FREE, Release);
        failure.map_or(Ok(()), Err)
    }

    /// Waits for the answer, or for the section.
    fn wait<S>(&self, slot: &Slot<T>, try_enter: impl Fn() -> Option<S>, enter: impl Fn() -> S) -> Option<S> {
        let mut section = None;
        let mut ended = self.common.ended.load(Acquire);
        let answered = || slot.state.load(Acquire) == ANSWERED;
        let over = spin::until(ANSWER_TURNS, || {
            let now = self.common.ended.load(Acquire);
            if now != std::mem::replace(&mut ended, now) && !answered() {
                section = try_enter();
            }
            section.is_some() || answered()
        });
        let over = over
            || spin::until_yielding(ANSWER_YIELDS, || {
                answered() || {
                    section = try_enter();
                    section.is_some()
                }
            });
        if over { section } else { Some(enter()) }
    }

    /// A slot for this thread, if any is free.
    fn claim(&self) -> Option<usize> {
        let first = spin::hint();
        let claim =
            |at: &usize| self.slots[*at].state.compare_exchange(FREE, CLAIMED, Acquire, Relaxed).is_ok();
        (0..SLOTS).map(|i| (first + i) % SLOTS).find(claim)
    }

    /// Does `mine` and all that wait, in the section.
    fn lead<S: DerefMut>(
        &self,
        mut section: S,
        mine: T,
        lead: impl Fn(&mut S::Target, &mut [T]) -> Result<()>,
    ) -> Result<()> {
        let company = Company(self.common.company.load(Relaxed));
        let somebody = || self.common.ready.load(Relaxed) != 0;
        spin::until(company.patience(), somebody);
        let mut group: SmallVec<[T; 4]> = smallvec![mine];
        // Answers before the section is left, and after a panic was noticed inside.
        let mut led = Led { of: self, taken: self.common.ready.swap(0, AcqRel), outcome: None };
        group.extend(led.slots().filter_map(|s| held(&s.job).take()));
        let outcome = lead(&mut section, &mut group);
        led.outcome = Some(outcome.clone());
        let refused = group.iter_mut().map(T::refused).collect::<SmallVec<[_; 4]>>();
        let mut refused = refused.into_iter();
        let mine = refused.next().flatten();
        for (slot, e) in led.slots().zip(refused) {
            *held(&slot.failure) = e;
        }
        let came = led.taken != 0;
        drop(led);
        self.common.company.store(company.after(came, somebody()).0, Relaxed);
        drop(section);
        self.common.ended.fetch_add(1, Release);
        drop(group);
        outcome.and(mine.map_or(Ok(()), Err))
    }
}

fn held<T>(cell: &Mutex<T>) -> impl DerefMut<Target = T> {
    cell.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A group with its leader. Dropping it answers everybody, also when the leader panicked.
struct Led<'a, T, const SLOTS: usize> {
    of: &'a Handover<T, SLOTS>,
    taken: u32,
    outcome: Option<Result<()>>,
}

impl<'a, T, const SLOTS: usize> Led<'a, T, SLOTS> {
    fn slots(&self) -> impl Iterator<Item = &'a Slot<T>> + use<'a, T, SLOTS> {
        let taken = self.taken;
        self.of.slots.iter().enumerate().filter(move |(i, _)| taken & (1 << i) != 0).map(|(_, s)| s)
    }
}

impl<T, const SLOTS: usize> Drop for Led<'_, T, SLOTS> {
    fn drop(&mut self) {
        if self.taken == 0 {
            return;
        }
        let died = || Err(Error::new(ErrorKind::OutcomeUnknown, "the thread that led the commit panicked"));
        let failure = self.outcome.take().unwrap_or_else(died).err();
        for slot in self.slots() {
            if let Some(e) = &failure {
                *held(&slot.failure) = Some(e.clone());
            }
            slot.state.store(ANSWERED, Release);
        }
    }
}

/// Whether a leader waits for others. Those who were just answered come back a moment after it has entered, and would have to
/// wait for a whole append: two writers would take turns and share nothing. So where somebody came last time, or
/// was late, a leader waits; but not where it did so in vain several times.
///
/// Bit 0: somebody is expected. The rest: 64 for each wait in vain, less the groups since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Company(u32);

impl Company {
    const TURNS: u32 = 40;
    const IN_VAIN: u32 = 64;
    const IN_VAIN_MAX: u32 = 3 * Company::IN_VAIN;

    /// Turns to wait.
    fn patience(self) -> u32 {
        if self.0 & 1 != 0 && self.0 >> 1 < Company::IN_VAIN_MAX { Company::TURNS } else { 0 }
    }
    /// After a group: whether somebody `came` in time, and whether somebody is `late`.
    fn after(self, came: bool, late: bool) -> Company {
        let vain = match (self.patience() > 0, came) {
            (true, true) => 0,
            (true, false) => (self.0 >> 1) + Company::IN_VAIN,
            (false, _) => (self.0 >> 1).saturating_sub(1),
        };
        Company(vain << 1 | u32::from(came || late))
    }
}

#[cfg(test)]
mod tests;
