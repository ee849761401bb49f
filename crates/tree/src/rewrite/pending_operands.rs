//! Operands of one key on the rewrite road: they wait until it is known what lies below them, and
//! go on as few as can be: as a value, if that is known, else as one operand. Operands that some
//! reader tells apart are not joined (`collapse` says which).
//!
//! Nothing is lost to a merge operator that fails: its operands go on as they came, and the road
//! goes on.
//!
//! Invariant: all that waits is of one key and one stratum, newest first.

use crate::fetch_value::fetch_value_with_cause;
use crate::version::Version;
use perigee_base::entry::VlogPointer;
use perigee_base::io_stats::IoActivity;
use perigee_base::{
    EntryRef, KeyComparator, KeyRef, OperandMerger, PinnedSlice, Result, SeqNo, ValueRef,
};
use std::ops::Range;

/// So many operands, or bytes of them, are joined before more are taken.
const OPERANDS_MAX: usize = 64 << 10;
const BYTES_MAX: usize = 8 << 20;

/// What lies below operands.
#[derive(Clone, Copy, Debug)]
pub enum OperandBase<'v> {
    /// This value.
    Value(ValueRef<'v>),
    /// Nothing, for every reader that sees them.
    Absent,
    /// Nobody knows here.
    Unknown,
}

/// What became of operands.
#[derive(Debug)]
pub enum MergeOutcome {
    /// A value.
    Value(Vec<u8>),
    /// One operand.
    Operand(Vec<u8>),
    /// They stay what they are.
    Unmerged,
}

#[derive(Clone, Debug)]
struct PendingOperand {
    seq: SeqNo,
    /// Where its bytes are in the buffer, if they are not apart.
    bytes: Range<usize>,
    vlog_pointer: Option<VlogPointer>,
}

/// Operands that wait.
#[derive(Debug, Default)]
pub struct PendingOperands {
    key: Vec<u8>,
    stripe: usize,
    new_key: bool,
    operands: Vec<PendingOperand>,
    buffer: Vec<u8>,
    /// Bytes of it that were joined before.
    joined_bytes: usize,
    /// Bytes of operands that are apart: to join them they are all read.
    vlog_bytes: usize,
    /// Operands of the key at hand went on: what lies below is not what readers see.
    has_emitted_operands: bool,
    /// The operator failed for this key.
    merge_failed: bool,
    /// The number of the last operand of the key that was taken.
    last_seq: Option<SeqNo>,
}

impl PendingOperands {
    /// Whether none wait.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.operands.is_empty()
    }
    /// How many wait.
    pub fn len(&self) -> usize {
        self.operands.len()
    }
    /// Whether those that wait are of this key.
    pub fn is_for_key(&self, order: KeyComparator, key: KeyRef<'_>) -> bool {
        key.equals(order, &self.key)
    }
    /// Whether those that wait are of this stratum.
    pub fn is_in_stripe(&self, stratum: usize) -> bool {
        self.stripe == stratum
    }
    /// Whether it is better to join them now.
    pub fn should_join_early(&self) -> bool {
        // What is joined already is copied again only with as much again: all of it together twice.
        let new = (self.buffer.len() - self.joined_bytes).saturating_add(self.vlog_bytes);
        let much = self.operands.len() >= OPERANDS_MAX || new >= BYTES_MAX.max(self.joined_bytes);
        // A single one, however large, waits for what is below.
        much && self.operands.len() > 1
    }
    /// The next entry begins a key, or not.
    #[inline]
    pub fn begin_entry(&mut self, new_key: bool) {
        if new_key {
            (self.has_emitted_operands, self.merge_failed, self.last_seq) = (false, false, None);
        }
    }
    /// Whether operands of the key at hand have gone on, above what comes now.
    #[inline]
    pub fn has_emitted(&self) -> bool {
        self.has_emitted_operands
    }
    /// Whether an operand of that number was taken already: a repair may find one several times.
    pub fn is_duplicate(&self, seq: SeqNo) -> bool {
        self.last_seq == Some(seq)
    }
    /// Gives back the operand that was taken last; whether it waited. A value of its number was
    /// made of it, and has more.
    pub fn pop_last(&mut self) -> bool {
        self.operands.pop().is_some()
    }
    /// Adds an operand.
    pub fn push(&mut self, e: &EntryRef<'_>, stratum: usize, new_key: bool) {
        self.last_seq = Some(e.seq);
        if self.operands.is_empty() {
            self.key.clear();
            self.key.extend_from_slice(e.key);
            self.buffer.clear();
            (self.stripe, self.new_key) = (stratum, new_key);
            (self.joined_bytes, self.vlog_bytes) = (0, 0);
        }
        let start = self.buffer.len();
        self.buffer.extend_from_slice(e.value.inline_bytes().unwrap_or_default());
        let apart = e.value.vlog_pointer();
        let length = |p: &VlogPointer| usize::try_from(p.value_bytes).unwrap_or(usize::MAX);
        self.vlog_bytes = self.vlog_bytes.saturating_add(apart.as_ref().map_or(0, length));
        self.operands.push(PendingOperand {
            seq: e.seq,
            bytes: start..self.buffer.len(),
            vlog_pointer: apart,
        });
    }
    /// The newest of them.
    pub fn newest_seq(&self) -> SeqNo {
        self.operands.first().map_or(SeqNo::ZERO, |p| p.seq)
    }
    /// The key.
    pub fn key(&self) -> &[u8] {
        &self.key
    }
    /// Whether the first of them began its key.
    pub fn starts_key(&self) -> bool {
        self.new_key
    }

    /// What they come to. Fails only if something cannot be read.
    pub fn resolve(
        &mut self,
        merger: Option<&OperandMerger>,
        below: OperandBase<'_>,
        version: &Version,
    ) -> Result<MergeOutcome> {
        let Some(merger) = merger.filter(|_| !self.merge_failed) else {
            return Ok(MergeOutcome::Unmerged);
        };
        if self.operands.len() == 1 && matches!(below, OperandBase::Unknown) {
            return Ok(MergeOutcome::Unmerged);
        }
        let read = |p: &VlogPointer| fetch_value_with_cause(version, p, IoActivity::Compaction);
        let apart = |p: &PendingOperand| p.vlog_pointer.as_ref().map(read).transpose();
        let fetched: Vec<Option<PinnedSlice>> =
            self.operands.iter().map(apart).collect::<Result<_>>()?;
        let both = self.operands.iter().zip(&fetched).rev();
        let operands: Vec<&[u8]> =
            both.map(|(p, f)| f.as_deref().unwrap_or(&self.buffer[p.bytes.clone()])).collect();
        let base = match below {
            OperandBase::Value(v) => v.vlog_pointer().as_ref().map(read).transpose()?,
            _ => None,
        };
        let done = match below {
            OperandBase::Unknown => {
                merger.partial_merge(&self.key, &operands).map(MergeOutcome::Operand)
            }
            OperandBase::Absent => {
                merger.full_merge(&self.key, None, &operands).map(MergeOutcome::Value)
            }
            OperandBase::Value(v) => {
                let left = base.as_deref().or(v.inline_bytes()).unwrap_or_default();
                merger.full_merge(&self.key, Some(left), &operands).map(MergeOutcome::Value)
            }
        };
        Ok(done.unwrap_or_else(|_| {
            self.merge_failed = true;
            MergeOutcome::Unmerged
        }))
    }
    /// Each of them as it came, newest first.
    pub fn entries(&self) -> impl Iterator<Item = EntryRef<'_>> {
        self.operands.iter().map(|p| {
            let beside = || ValueRef::Operand(&self.buffer[p.bytes.clone()]);
            let value = p.vlog_pointer.map_or_else(beside, ValueRef::OperandPointer);
            EntryRef { key: &self.key, seq: p.seq, value }
        })
    }
    /// One operand takes the place of all.
    pub fn replace_all(&mut self, joined: &[u8]) {
        self.operands.truncate(1);
        self.buffer.clear();
        self.buffer.extend_from_slice(joined);
        (self.joined_bytes, self.vlog_bytes) = (joined.len(), 0);
        for p in &mut self.operands {
            (p.bytes, p.vlog_pointer) = (0..joined.len(), None);
        }
    }
    /// Forgets them; `over`: they went on as operands.
    pub fn clear(&mut self, over: bool) {
        self.operands.clear();
        self.has_emitted_operands |= over;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perigee_base::FileId;

    #[test]
    fn long_operand_list_is_copied_few_times() {
        let (mut chain, mut copied, mut all) = (PendingOperands::default(), 0, Vec::new());
        let operand = vec![7; 64 << 10];
        for n in 0..2000 {
            let value = ValueRef::Operand(&operand);
            chain.push(&EntryRef { key: b"list", seq: SeqNo(3000 - n), value }, 0, n == 0);
            all.extend_from_slice(&operand);
            if chain.should_join_early() {
                copied += all.len();
                chain.replace_all(&all);
            }
        }
        assert!(copied > 0 && copied < 3 * all.len(), "{copied} of {}", all.len());
    }

    #[test]
    fn separated_operands_count_toward_join_limit() {
        let mut chain = PendingOperands::default();
        let pointer = |value_bytes| {
            ValueRef::OperandPointer(VlogPointer {
                file: FileId(1),
                offset: 0,
                stored_bytes: value_bytes,
                value_bytes,
            })
        };
        chain.push(&EntryRef { key: b"list", seq: SeqNo(9), value: pointer(u64::MAX) }, 0, true);
        assert!(!chain.should_join_early());
        chain.push(&EntryRef { key: b"list", seq: SeqNo(8), value: pointer(u64::MAX) }, 0, false);
        assert!(chain.should_join_early());
        chain.replace_all(b"both");
        chain.push(&EntryRef { key: b"list", seq: SeqNo(7), value: pointer(4 << 20) }, 0, false);
        assert!(!chain.should_join_early());
        chain.push(&EntryRef { key: b"list", seq: SeqNo(6), value: pointer(4 << 20) }, 0, false);
        assert!(chain.should_join_early());
    }
}
