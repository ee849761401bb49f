//! A reference database with deliberate mistakes, to prove that the checkers can fail: the oracle
//! with one altered behaviour. Without a mistake it must pass every check.

use crate::history::{CursorMove, Op};
use crate::oracle::{Oracle, Outcome, Target};

/// The mistake that a [`FaultyOracle`] makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// Nothing.
    None,
    /// The last element of a batch is lost.
    HalfBatch,
    /// Snapshots show the current state.
    NoSnapshots,
    /// The last write before a reopen is lost.
    ForgetAtReopen,
    /// A cursor that changes direction skips an entry.
    SkipOnDirectionChange,
    /// `seek_for_prev` does what `seek` does.
    SeekForPrevIsSeek,
    /// A dropped column family keeps its contents.
    DroppedFamilyKeepsContents,
    /// Deletes do nothing when a snapshot is open.
    LostDelete,
    /// Iterators give the last entry of the range twice when taken from the back.
    BackTwice,
}

/// All mistakes.
pub const MISTAKES: &[Mistake] = &[
    Mistake::HalfBatch,
    Mistake::NoSnapshots,
    Mistake::ForgetAtReopen,
    Mistake::SkipOnDirectionChange,
    Mistake::SeekForPrevIsSeek,
    Mistake::DroppedFamilyKeepsContents,
    Mistake::LostDelete,
    Mistake::BackTwice,
];

/// The oracle with one mistake.
pub struct FaultyOracle {
    inner: Oracle,
    before_last_write: Option<Oracle>,
    mistake: Mistake,
    forward: bool,
    snapshot_open: bool,
}

impl FaultyOracle {
    /// Creates an oracle that makes this mistake.
    pub fn new(mistake: Mistake) -> Self {
        let inner = Oracle::default();
        FaultyOracle {
            inner,
            before_last_write: None,
            mistake,
            forward: true,
            snapshot_open: false,
        }
    }

    fn changes_direction(&mut self, to: &CursorMove) -> bool {
        let forward = !matches!(to, CursorMove::Prev);
        let turned = matches!(to, CursorMove::Next | CursorMove::Prev) && forward != self.forward;
        self.forward = forward;
        turned
    }
}

impl Target for FaultyOracle {
    fn perform(&mut self, op: &Op) -> Outcome {
        let mut op = op.clone();
        match (&mut op, self.mistake) {
            (Op::Write { writes, .. }, Mistake::HalfBatch) if writes.len() > 1 => {
                writes.pop();
            }
            (Op::Get { snapshot, .. } | Op::Scan { snapshot, .. }, Mistake::NoSnapshots) => {
                *snapshot = None
            }
            (Op::Write { .. }, Mistake::ForgetAtReopen) => {
                self.before_last_write = Some(self.inner.clone())
            }
            (Op::Reopen, Mistake::ForgetAtReopen) => {
                self.inner = self.before_last_write.take().unwrap_or_else(|| self.inner.clone());
            }
            (Op::Drop { .. }, Mistake::DroppedFamilyKeepsContents) => return Outcome::Done,
            (Op::TakeSnapshot { .. }, Mistake::LostDelete) => self.snapshot_open = true,
            (Op::Write { writes, .. }, Mistake::LostDelete) if self.snapshot_open => {
                writes.retain(|w| w.value.is_some());
            }
            (Op::MoveCursor { to, .. }, Mistake::SkipOnDirectionChange) => {
                let to = to.clone();
                if self.changes_direction(&to) {
                    self.inner.perform(&op);
                }
            }
            (Op::MoveCursor { to, .. }, Mistake::SeekForPrevIsSeek) => {
                if let CursorMove::SeekForPrev(key) = to {
                    *to = CursorMove::Seek(key.clone());
                }
            }
            _ => {}
        }
        let mut outcome = self.inner.perform(&op);
        if let (Outcome::Time(now, _), Op::AdvanceDays { days }) = (&mut outcome, &op) {
            *now += days * crate::oracle::DAY_MS;
            self.inner.set_now(*now);
        }
        if let (Outcome::Entries(entries), Mistake::BackTwice) = (&mut outcome, self.mistake) {
            entries.extend(entries.last().cloned());
        }
        match outcome {
            Outcome::Either(outcome, _) => *outcome,
            outcome => outcome,
        }
    }
}
