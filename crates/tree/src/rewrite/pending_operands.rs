//! Undecided operands of one key in a rewrite: held until their base is known, and then merged into
//! one value, or into one operand if the base remains unknown. The rules are in
//! [`reduce`](super::reduce).
//!
//! If a merge operator fails, its operands are written unchanged and the rewrite continues, so that
//! nothing is lost.
//!
//! Invariant: all held operands belong to one key and one snapshot stripe, newest first.

use super::reduce::OperandBase;
use crate::fetch_value::fetch_value_with_cause;
use crate::limits::{PENDING_OPERAND_BYTES_MAX, PENDING_OPERANDS_MAX};
use crate::version::Version;
use perigee_base::{
    EntryRef, IoActivity, OperandMerger, PinnedSlice, Result, SeqNo, ValueRef, VlogPointer,
};
use std::ops::Range;

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
    operands: Vec<PendingOperand>,
    buffer: Vec<u8>,
    /// Bytes of the buffer that were joined before.
    joined_bytes: usize,
    /// Bytes of separated operands: to join them all are read.
    vlog_bytes: usize,
    /// True if the newest operand is the first entry of its key.
    first_of_key: bool,
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
    /// Returns true if the operands should be joined now.
    pub fn should_join_early(&self) -> bool {
        check_slow!(
            self.joined_bytes <= self.buffer.len(),
            "joined operands are in the buffer",
            self.joined_bytes,
            self.buffer.len()
        );
        // Joined bytes are copied again only together with at least as many new ones: in total
        // every byte is copied about twice.
        let unjoined = (self.buffer.len() - self.joined_bytes).saturating_add(self.vlog_bytes);
        let is_large = self.operands.len() >= PENDING_OPERANDS_MAX
            || unjoined >= PENDING_OPERAND_BYTES_MAX.max(self.joined_bytes);
        // A single operand, however large, is held until its base is known.
        is_large && self.operands.len() > 1
    }
    /// Starts a key; no operand must be held.
    #[inline]
    pub fn begin_key(&mut self) {
        check_slow!(self.operands.is_empty(), "held operands belong to one key", self.len());
        (self.merge_failed, self.last_seq) = (false, None);
    }
    /// Returns true if an operand of the key with this sequence number was added last: a repair may
    /// find one several times.
    #[inline]
    pub fn is_copy(&self, seq: SeqNo) -> bool {
        self.last_seq == Some(seq)
    }
    /// Removes the operand that was added last, if it is held and has this sequence number. Returns
    /// true if there was one.
    pub fn remove_copy(&mut self, seq: SeqNo) -> bool {
        self.operands.pop_if(|last| last.seq == seq).is_some()
    }
    /// Adds an operand.
    pub fn push(&mut self, seq: SeqNo, value: ValueRef<'_>, first_of_key: bool) {
        self.last_seq = Some(seq);
        check_slow!(
            self.operands.last().is_none_or(|last| last.seq > seq),
            "operands come newest first",
            seq
        );
        if self.operands.is_empty() {
            self.buffer.clear();
            self.first_of_key = first_of_key;
            (self.joined_bytes, self.vlog_bytes) = (0, 0);
        }
        let start = self.buffer.len();
        self.buffer.extend_from_slice(value.inline_bytes().unwrap_or_default());
        let vlog_pointer = value.vlog_pointer();
        let length = |p: &VlogPointer| usize::try_from(p.value_bytes).unwrap_or(usize::MAX);
        self.vlog_bytes = self.vlog_bytes.saturating_add(vlog_pointer.as_ref().map_or(0, length));
        self.operands.push(PendingOperand { seq, bytes: start..self.buffer.len(), vlog_pointer });
    }
    /// Sequence number of the newest operand.
    pub fn newest_seq(&self) -> SeqNo {
        self.operands.first().map_or(SeqNo::ZERO, |p| p.seq)
    }
    /// Returns true if the newest operand is the first entry of its key.
    pub fn starts_key(&self) -> bool {
        self.first_of_key
    }

    /// Merges the operands of `key`; `base_value` is the value of [`OperandBase::Version`]. Fails
    /// only if a value cannot be read; a failure of the merge operator results in
    /// [`MergeOutcome::Unmerged`].
    pub fn merge(
        &mut self,
        key: &[u8],
        merger: Option<&OperandMerger>,
        base: OperandBase,
        base_value: Option<ValueRef<'_>>,
        version: &Version,
    ) -> Result<MergeOutcome> {
        check!(
            (base == OperandBase::Version) == base_value.is_some(),
            "operands are merged onto a value if their base is a version",
            base
        );
        let Some(merger) = merger.filter(|_| !self.merge_failed) else {
            return Ok(MergeOutcome::Unmerged);
        };
        if self.operands.len() == 1 && base == OperandBase::Unknown {
            return Ok(MergeOutcome::Unmerged);
        }
        let read = |p: &VlogPointer| fetch_value_with_cause(version, p, IoActivity::Compaction);
        let fetch = |p: &PendingOperand| p.vlog_pointer.as_ref().map(read).transpose();
        let fetched: Vec<Option<PinnedSlice>> =
            self.operands.iter().map(fetch).collect::<Result<_>>()?;
        let both = self.operands.iter().zip(&fetched).rev();
        let operands: Vec<&[u8]> =
            both.map(|(p, f)| f.as_deref().unwrap_or(&self.buffer[p.bytes.clone()])).collect();
        let pointer = base_value.and_then(|v| v.vlog_pointer());
        let separated_base = pointer.as_ref().map(read).transpose()?;
        let base_bytes = || {
            let inline = base_value.and_then(|v| v.inline_bytes());
            separated_base.as_deref().or(inline).unwrap_or_default()
        };
        let merged = match base {
            OperandBase::Unknown => merger.partial_merge(key, &operands).map(MergeOutcome::Operand),
            OperandBase::Absent => merger.full_merge(key, None, &operands).map(MergeOutcome::Value),
            OperandBase::Version => {
                merger.full_merge(key, Some(base_bytes()), &operands).map(MergeOutcome::Value)
            }
        };
        Ok(merged.unwrap_or_else(|_| {
            self.merge_failed = true;
            MergeOutcome::Unmerged
        }))
    }
    /// Returns operand `i`, counted from the newest, unchanged.
    pub fn entry<'a>(&'a self, i: usize, key: &'a [u8]) -> EntryRef<'a> {
        let p = &self.operands[i];
        let inline = || ValueRef::Operand(&self.buffer[p.bytes.clone()]);
        let value = p.vlog_pointer.map_or_else(inline, ValueRef::OperandPointer);
        EntryRef { key, seq: p.seq, value }
    }
    /// Replaces all operands with one.
    pub fn replace_all(&mut self, joined: &[u8]) {
        check!(!self.operands.is_empty(), "joined operands replace at least one");
        self.operands.truncate(1);
        self.buffer.clear();
        self.buffer.extend_from_slice(joined);
        (self.joined_bytes, self.vlog_bytes) = (joined.len(), 0);
        for p in &mut self.operands {
            (p.bytes, p.vlog_pointer) = (0..joined.len(), None);
        }
    }
    /// Removes all operands.
    pub fn clear(&mut self) {
        self.operands.clear();
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
            pending.push(SeqNo(3000 - n), value, n == 0);
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
        pending.push(SeqNo(9), pointer(u64::MAX), true);
        assert!(!pending.should_join_early());
        pending.push(SeqNo(8), pointer(u64::MAX), false);
        assert!(pending.should_join_early());
        pending.replace_all(b"both");
        pending.push(SeqNo(7), pointer(4 << 20), false);
        assert!(!pending.should_join_early());
        pending.push(SeqNo(6), pointer(4 << 20), false);
        assert!(pending.should_join_early());
    }
}
