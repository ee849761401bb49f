//! Operands of one key on the rewrite road: they wait until it is known what lies below them, and go on as few as can be: as a
//! value, if that is known, else as one operand. Operands that some reader tells apart are not joined (`collapse` says which).
//!
//! Nothing is lost to a merge operator that fails: its operands go on as they came, and the road goes on.
//!
//! Invariant: all that waits is of one key and one stratum, newest first.

use crate::fetch::fetch_for;
use crate::version::Version;
use perigee_base::io::Cause;
use perigee_base::key::VlogPointer;
use perigee_base::{EntryRef, KeyOrder, KeyRef, Merger, Result, SeqNo, Shared, ValueRef};
use std::ops::Range;

/// So many operands, or bytes of them, are joined before more are taken.
const OPERANDS_MAX: usize = 64 << 10;
const BYTES_MAX: usize = 8 << 20;

/// What lies below operands.
#[derive(Clone, Copy, Debug)]
pub enum Below<'v> {
    /// This value.
    Value(ValueRef<'v>),
    /// Nothing, for every reader that sees them.
    Nothing,
    /// Nobody knows here.
    Unknown,
}

/// What became of operands.
#[derive(Debug)]
pub enum Outcome {
    /// A value.
    Value(Vec<u8>),
    /// One operand.
    Operand(Vec<u8>),
    /// They stay what they are.
    AsTheyAre,
}

#[derive(Clone, Debug)]
struct Part {
    seq: SeqNo,
    /// Where its bytes are in the buffer, if they are not apart.
    bytes: Range<usize>,
    apart: Option<VlogPointer>,
}

/// Operands that wait.
#[derive(Debug, Default)]
pub struct Chain {
    key: Vec<u8>,
    stratum: usize,
    new_key: bool,
    parts: Vec<Part>,
    buffer: Vec<u8>,
    /// Bytes of it that were joined before.
    joined: usize,
    /// Bytes of operands that are apart: to join them they are all read.
    apart: usize,
    /// Operands of the key at hand went on: what lies below is not what readers see.
    over: bool,
    /// The operator failed for this key.
    stuck: bool,
    /// The number of the last operand of the key that was taken.
    last: Option<SeqNo>,
}

impl Chain {
    /// Whether none wait.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }
    /// How many wait.
    pub fn len(&self) -> usize {
        self.parts.len()
    }
    /// Whether those that wait are of this key.
    pub fn is_of(&self, order: KeyOrder, key: KeyRef<'_>) -> bool {
        key.is(order, &self.key)
    }
    /// Whether those that wait are of this stratum.
    pub fn is_in(&self, stratum: usize) -> bool {
        self.stratum == stratum
    }
    /// Whether it is better to join them now.
    pub fn is_long(&self) -> bool {
        // What is joined already is copied again only with as much again: all of it together twice.
        let new = (self.buffer.len() - self.joined).saturating_add(self.apart);
        let much = self.parts.len() >= OPERANDS_MAX || new >= BYTES_MAX.max(self.joined);
        // A single one, however large, waits for what is below.
        much && self.parts.len() > 1
    }
    /// The next entry begins a key, or not.
    #[inline]
    pub fn next(&mut self, new_key: bool) {
        if new_key {
            (self.over, self.stuck, self.last) = (false, false, None);
        }
    }
    /// Whether operands of the key at hand have gone on, above what comes now.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.over
    }
    /// Whether an operand of that number was taken already: a repair may find one several times.
    pub fn has(&self, seq: SeqNo) -> bool {
        self.last == Some(seq)
    }
    /// Gives back the operand that was taken last; whether it waited. A value of its number was made of it, and has more.
    pub fn take_back(&mut self) -> bool {
        self.parts.pop().is_some()
    }
    /// Adds an operand.
    pub fn push(&mut self, e: &EntryRef<'_>, stratum: usize, new_key: bool) {
        self.last = Some(e.seq);
        if self.parts.is_empty() {
            self.key.clear();
            self.key.extend_from_slice(e.key);
            self.buffer.clear();
            (self.stratum, self.new_key) = (stratum, new_key);
            (self.joined, self.apart) = (0, 0);
        }
        let start = self.buffer.len();
        self.buffer.extend_from_slice(e.value.beside().unwrap_or_default());
        let apart = e.value.apart();
        let length = |p: &VlogPointer| usize::try_from(p.value_bytes).unwrap_or(usize::MAX);
        self.apart = self.apart.saturating_add(apart.as_ref().map_or(0, length));
        self.parts.push(Part { seq: e.seq, bytes: start..self.buffer.len(), apart });
    }
    /// The newest of them.
    pub fn newest(&self) -> SeqNo {
        self.parts.first().map_or(SeqNo::ZERO, |p| p.seq)
    }
    /// The key.
    pub fn key(&self) -> &[u8] {
        &self.key
    }
    /// Whether the first of them began its key.
    pub fn begins(&self) -> bool {
        self.new_key
    }

    /// What they come to. Fails only if something cannot be read.
    pub fn resolve(
        &mut self,
        merger: Option<&Merger>,
        below: Below<'_>,
        version: &Version,
    ) -> Result<Outcome> {
        let Some(merger) = merger.filter(|_| !self.stuck) else { return Ok(Outcome::AsTheyAre) };
        if self.parts.len() == 1 && matches!(below, Below::Unknown) {
            return Ok(Outcome::AsTheyAre);
        }
        let read = |p: &VlogPointer| fetch_for(version, p, Cause::Compaction);
        let apart = |p: &Part| p.apart.as_ref().map(read).transpose();
        let fetched: Vec<Option<Shared>> = self.parts.iter().map(apart).collect::<Result<_>>()?;
        let both = self.parts.iter().zip(&fetched).rev();
        let operands: Vec<&[u8]> =
            both.map(|(p, f)| f.as_deref().unwrap_or(&self.buffer[p.bytes.clone()])).collect();
        let base = match below {
            Below::Value(v) => v.apart().as_ref().map(read).transpose()?,
            _ => None,
        };
        let done = match below {
            Below::Unknown => merger.join(&self.key, &operands).map(Outcome::Operand),
            Below::Nothing => merger.fold(&self.key, None, &operands).map(Outcome::Value),
            Below::Value(v) => {
                let left = base.as_deref().or(v.beside()).unwrap_or_default();
                merger.fold(&self.key, Some(left), &operands).map(Outcome::Value)
            }
        };
        Ok(done.unwrap_or_else(|_| {
            self.stuck = true;
            Outcome::AsTheyAre
        }))
    }
    /// Each of them as it came, newest first.
    pub fn entries(&self) -> impl Iterator<Item = EntryRef<'_>> {
        self.parts.iter().map(|p| {
            let beside = || ValueRef::Operand(&self.buffer[p.bytes.clone()]);
            let value = p.apart.map_or_else(beside, ValueRef::OperandPointer);
            EntryRef { key: &self.key, seq: p.seq, value }
        })
    }
    /// One operand takes the place of all.
    pub fn replace(&mut self, joined: &[u8]) {
        self.parts.truncate(1);
        self.buffer.clear();
        self.buffer.extend_from_slice(joined);
        (self.joined, self.apart) = (joined.len(), 0);
        for p in &mut self.parts {
            (p.bytes, p.apart) = (0..joined.len(), None);
        }
    }
    /// Forgets them; `over`: they went on as operands.
    pub fn clear(&mut self, over: bool) {
        self.parts.clear();
        self.over |= over;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perigee_base::FileId;

    #[test]
    fn a_long_list_is_copied_a_few_times_only() {
        let (mut chain, mut copied, mut all) = (Chain::default(), 0, Vec::new());
        let operand = vec![7; 64 << 10];
        for n in 0..2000 {
            let value = ValueRef::Operand(&operand);
            chain.push(&EntryRef { key: b"list", seq: SeqNo(3000 - n), value }, 0, n == 0);
            all.extend_from_slice(&operand);
            if chain.is_long() {
                copied += all.len();
                chain.replace(&all);
            }
        }
        assert!(copied > 0 && copied < 3 * all.len(), "{copied} of {}", all.len());
    }

    #[test]
    fn operands_that_are_apart_count_and_a_single_one_waits() {
        let mut chain = Chain::default();
        let pointer = |value_bytes| {
            ValueRef::OperandPointer(VlogPointer {
                file: FileId(1),
                offset: 0,
                stored_bytes: value_bytes,
                value_bytes,
            })
        };
        chain.push(&EntryRef { key: b"list", seq: SeqNo(9), value: pointer(u64::MAX) }, 0, true);
        assert!(!chain.is_long());
        chain.push(&EntryRef { key: b"list", seq: SeqNo(8), value: pointer(u64::MAX) }, 0, false);
        assert!(chain.is_long());
        chain.replace(b"both");
        chain.push(&EntryRef { key: b"list", seq: SeqNo(7), value: pointer(4 << 20) }, 0, false);
        assert!(!chain.is_long());
        chain.push(&EntryRef { key: b"list", seq: SeqNo(6), value: pointer(4 << 20) }, 0, false);
        assert!(chain.is_long());
    }
}
