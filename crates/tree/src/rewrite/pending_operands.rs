//! Operands of one key in a rewrite: they are held until their base is known, and then written as
//! one value, or as one operand if the base remains unknown. Operands in different snapshot stripes
//! are not joined (decided by `collapse`).
//!
//! If a merge operator fails, its operands are written unchanged and the rewrite continues, so that
//! nothing is lost.
//!
//! Invariant: all held operands belong to one key and one snapshot stripe, newest first.

use crate::fetch_value::fetch_value_with_cause;
use crate::version::Version;
use perigee_base::entry::VlogPointer;
use perigee_base::io_stats::IoActivity;
use perigee_base::{
    EntryRef, KeyComparator, KeyRef, OperandMerger, PinnedSlice, Result, SeqNo, ValueRef,
};
use std::ops::Range;

/// Number and bytes of operands at which they are joined before more are added.
const OPERANDS_MAX: usize = 64 << 10;
const BYTES_MAX: usize = 8 << 20;

/// Base below operands.
#[derive(Clone, Copy, Debug)]
pub enum OperandBase<'v> {
    /// A value.
    Value(ValueRef<'v>),
    /// No value, for every reader that sees the operands.
    Absent,
    /// Not known in this rewrite.
    Unknown,
}

/// Result of merging operands.
#[derive(Debug)]
pub enum MergeOutcome {
    /// A value.
    Value(Vec<u8>),
    /// One operand.
    Operand(Vec<u8>),
    /// The operands stay unmerged.
    Unmerged,
}

#[derive(Clone, Debug)]
struct PendingOperand {
    seq: SeqNo,
    /// Range of its bytes in the buffer, unless it is separated.
    bytes: Range<usize>,
    vlog_pointer: Option<VlogPointer>,
}

/// The held operands.
#[derive(Debug, Default)]
pub struct PendingOperands {
    key: Vec<u8>,
    stripe: usize,
    new_key: bool,
    operands: Vec<PendingOperand>,
    buffer: Vec<u8>,
    /// Bytes of the buffer that were joined before.
    joined_bytes: usize,
    /// Bytes of separated operands: to join them all are read.
    vlog_bytes: usize,
    /// Operands of the current key were written: what lies below is not what readers see.
    has_emitted_operands: bool,
    /// The merge operator failed for this key.
    merge_failed: bool,
    /// Sequence number of the last operand of the key.
    last_seq: Option<SeqNo>,
}

impl PendingOperands {
    /// Returns true if no operand is held.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.operands.is_empty()
    }
    /// Number of held operands.
    pub fn len(&self) -> usize {
        self.operands.len()
    }
    /// Returns true if the held operands belong to this key.
    pub fn is_for_key(&self, comparator: KeyComparator, key: KeyRef<'_>) -> bool {
        key.equals(comparator, &self.key)
    }
    /// Returns true if the held operands belong to this snapshot stripe.
    pub fn is_in_stripe(&self, stripe: usize) -> bool {
        self.stripe == stripe
    }
    /// Returns true if the operands should be joined now.
    pub fn should_join_early(&self) -> bool {
        // Joined bytes are copied again only together with at least as many new ones: in total
        // every byte is copied about twice.
        let unjoined = (self.buffer.len() - self.joined_bytes).saturating_add(self.vlog_bytes);
        let is_large =
            self.operands.len() >= OPERANDS_MAX || unjoined >= BYTES_MAX.max(self.joined_bytes);
        // A single operand, however large, is held until its base is known.
        is_large && self.operands.len() > 1
    }
    /// Starts the next entry, which may begin a new key.
    #[inline]
    pub fn begin_entry(&mut self, new_key: bool) {
        if new_key {
            (self.has_emitted_operands, self.merge_failed, self.last_seq) = (false, false, None);
        }
    }
    /// Returns true if operands of the current key, newer than the current entry, were written.
    #[inline]
    pub fn has_emitted(&self) -> bool {
        self.has_emitted_operands
    }
    /// Returns true if the operand with this sequence number was already added: a repair may find
    /// one several times.
    pub fn is_duplicate(&self, seq: SeqNo) -> bool {
        self.last_seq == Some(seq)
    }
    /// Removes the operand that was added last, because a value with its sequence number, already
    /// merged from it, was found. Returns true if there was one.
    pub fn pop_last(&mut self) -> bool {
        self.operands.pop().is_some()
    }
    /// Adds an operand.
    pub fn push(&mut self, e: &EntryRef<'_>, stripe: usize, new_key: bool) {
        self.last_seq = Some(e.seq);
        if self.operands.is_empty() {
            self.key.clear();
            self.key.extend_from_slice(e.key);
            self.buffer.clear();
            (self.stripe, self.new_key) = (stripe, new_key);
            (self.joined_bytes, self.vlog_bytes) = (0, 0);
        }
        let start = self.buffer.len();
        self.buffer.extend_from_slice(e.value.inline_bytes().unwrap_or_default());
        let vlog_pointer = e.value.vlog_pointer();
        let length = |p: &VlogPointer| usize::try_from(p.value_bytes).unwrap_or(usize::MAX);
        self.vlog_bytes = self.vlog_bytes.saturating_add(vlog_pointer.as_ref().map_or(0, length));
        self.operands.push(PendingOperand {
            seq: e.seq,
            bytes: start..self.buffer.len(),
            vlog_pointer,
        });
    }
    /// Sequence number of the newest operand.
    pub fn newest_seq(&self) -> SeqNo {
        self.operands.first().map_or(SeqNo::ZERO, |p| p.seq)
    }
    /// Returns the key.
    pub fn key(&self) -> &[u8] {
        &self.key
    }
    /// Returns true if the newest operand is the first entry of its key.
    pub fn starts_key(&self) -> bool {
        self.new_key
    }

    /// Merges the operands. Fails only if a value cannot be read; a failure of the merge operator
    /// results in [`MergeOutcome::Unmerged`].
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
        let fetch = |p: &PendingOperand| p.vlog_pointer.as_ref().map(read).transpose();
        let fetched: Vec<Option<PinnedSlice>> =
            self.operands.iter().map(fetch).collect::<Result<_>>()?;
        let both = self.operands.iter().zip(&fetched).rev();
        let operands: Vec<&[u8]> =
            both.map(|(p, f)| f.as_deref().unwrap_or(&self.buffer[p.bytes.clone()])).collect();
        let base = match below {
            OperandBase::Value(v) => v.vlog_pointer().as_ref().map(read).transpose()?,
            _ => None,
        };
        let merged = match below {
            OperandBase::Unknown => {
                merger.partial_merge(&self.key, &operands).map(MergeOutcome::Operand)
            }
            OperandBase::Absent => {
                merger.full_merge(&self.key, None, &operands).map(MergeOutcome::Value)
            }
            OperandBase::Value(v) => {
                let base_value = base.as_deref().or(v.inline_bytes()).unwrap_or_default();
                merger.full_merge(&self.key, Some(base_value), &operands).map(MergeOutcome::Value)
            }
        };
        Ok(merged.unwrap_or_else(|_| {
            self.merge_failed = true;
            MergeOutcome::Unmerged
        }))
    }
    /// Returns each operand unchanged, newest first.
    pub fn entries(&self) -> impl Iterator<Item = EntryRef<'_>> {
        self.operands.iter().map(|p| {
            let inline = || ValueRef::Operand(&self.buffer[p.bytes.clone()]);
            let value = p.vlog_pointer.map_or_else(inline, ValueRef::OperandPointer);
            EntryRef { key: &self.key, seq: p.seq, value }
        })
    }
    /// Replaces all operands by one.
    pub fn replace_all(&mut self, joined: &[u8]) {
        self.operands.truncate(1);
        self.buffer.clear();
        self.buffer.extend_from_slice(joined);
        (self.joined_bytes, self.vlog_bytes) = (joined.len(), 0);
        for p in &mut self.operands {
            (p.bytes, p.vlog_pointer) = (0..joined.len(), None);
        }
    }
    /// Removes all operands; `emitted`: they were written as operands.
    pub fn clear(&mut self, emitted: bool) {
        self.operands.clear();
        self.has_emitted_operands |= emitted;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perigee_base::FileId;

    #[test]
    fn long_operand_list_is_copied_few_times() {
        let (mut pending, mut copied, mut all) = (PendingOperands::default(), 0, Vec::new());
        let operand = vec![7; 64 << 10];
        for n in 0..2000 {
            let value = ValueRef::Operand(&operand);
            pending.push(&EntryRef { key: b"list", seq: SeqNo(3000 - n), value }, 0, n == 0);
            all.extend_from_slice(&operand);
            if pending.should_join_early() {
                copied += all.len();
                pending.replace_all(&all);
            }
        }
        assert!(copied > 0 && copied < 3 * all.len(), "{copied} of {}", all.len());
    }

    #[test]
    fn separated_operands_count_toward_join_limit() {
        let mut pending = PendingOperands::default();
        let pointer = |value_bytes| {
            ValueRef::OperandPointer(VlogPointer {
                file: FileId(1),
                offset: 0,
                stored_bytes: value_bytes,
                value_bytes,
            })
        };
        pending.push(&EntryRef { key: b"list", seq: SeqNo(9), value: pointer(u64::MAX) }, 0, true);
        assert!(!pending.should_join_early());
        pending.push(&EntryRef { key: b"list", seq: SeqNo(8), value: pointer(u64::MAX) }, 0, false);
        assert!(pending.should_join_early());
        pending.replace_all(b"both");
        pending.push(&EntryRef { key: b"list", seq: SeqNo(7), value: pointer(4 << 20) }, 0, false);
        assert!(!pending.should_join_early());
        pending.push(&EntryRef { key: b"list", seq: SeqNo(6), value: pointer(4 << 20) }, 0, false);
        assert!(pending.should_join_early());
    }
}
