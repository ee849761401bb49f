//! Collects sorted entries and encodes them as a block. The caller ensures the order. Independent
//! of files.

use super::{column, layout};
use perigee_base::codec::put_varint;
use perigee_base::{EntryKind, EntryRef, KeyComparator, SeqNo, cmp_entry};

/// Size of an entry in the columns, approximately: two bytes each for key end, value end and
/// sequence number.
const ENTRY_OVERHEAD_BYTES: usize = 6;

/// A block being built. Reused for the next block, so that its buffers are allocated once.
#[derive(Debug)]
pub struct BlockWriter {
    comparator: KeyComparator,
    keys: Vec<u8>,
    key_ends: Vec<u64>,
    seqs: Vec<u64>,
    kinds: Vec<u64>,
    values: Vec<u8>,
    value_ends: Vec<u64>,
    /// Length of the prefix that all keys share so far.
    shared_prefix_len: usize,
}

impl BlockWriter {
    /// Creates an empty block.
    pub fn new(comparator: KeyComparator) -> Self {
        BlockWriter {
            comparator,
            keys: Vec::new(),
            key_ends: Vec::new(),
            seqs: Vec::new(),
            kinds: Vec::new(),
            values: Vec::new(),
            value_ends: Vec::new(),
            shared_prefix_len: 0,
        }
    }

    /// Appends an entry.
    pub fn add(&mut self, e: EntryRef<'_>) {
        e.value.encode(&mut self.values);
        self.push_entry(e.key, e.seq, e.value.kind());
    }

    /// Appends an entry with an already encoded value.
    pub fn add_raw(&mut self, key: &[u8], seq: SeqNo, kind: EntryKind, value: &[u8]) {
        self.values.extend_from_slice(value);
        self.push_entry(key, seq, kind);
    }

    fn push_entry(&mut self, key: &[u8], seq: SeqNo, kind: EntryKind) {
        check_slow!(
            self.last_entry()
                .is_none_or(|last| { cmp_entry(self.comparator, last, (key, seq)).is_le() }),
            "the entries of a block ascend",
            self.last_entry(),
            key,
            seq
        );
        self.shared_prefix_len = self.shared_prefix_len_with(key);
        self.keys.extend_from_slice(key);
        self.key_ends.push(self.keys.len() as u64);
        self.seqs.push(seq.0);
        self.kinds.push(u64::from(kind.code()));
        self.value_ends.push(self.values.len() as u64);
    }

    /// Returns the number of entries added.
    pub fn len(&self) -> usize {
        self.key_ends.len()
    }
    /// Returns true if no entry was added.
    pub fn is_empty(&self) -> bool {
        self.key_ends.is_empty()
    }
    /// Returns the approximate raw length if the block were finished now.
    pub fn estimated_bytes(&self) -> usize {
        self.estimate_bytes(self.shared_prefix_len)
    }
    /// Returns the approximate raw length with one more entry. Not additive: a key with another
    /// prefix ends the prefix sharing of all previous keys.
    pub fn estimated_bytes_with(&self, key: &[u8], value_bytes: usize) -> usize {
        let shared = self.shared_prefix_len_with(key);
        self.estimate_bytes(shared) + key.len() - shared + value_bytes + ENTRY_OVERHEAD_BYTES
    }
    /// Returns the bytes of all buffered keys and values; the raw length never exceeds these plus
    /// the columns.
    pub fn buffered_bytes(&self) -> usize {
        self.keys.len() + self.values.len()
    }

    /// Returns the memory of the buffers, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let columns = [&self.key_ends, &self.seqs, &self.kinds, &self.value_ends];
        let words: usize = columns.iter().map(|c| c.capacity()).sum();
        self.keys.capacity() + self.values.capacity() + words * size_of::<u64>()
    }

    /// Returns key and sequence number of the last entry added.
    fn last_entry(&self) -> Option<(&[u8], SeqNo)> {
        let seq = SeqNo(*self.seqs.last()?);
        let start = self.key_ends.iter().rev().nth(1).map_or(0, |end| *end as usize);
        Some((&self.keys[start..], seq))
    }
    fn estimate_bytes(&self, shared: usize) -> usize {
        let keys = self.keys.len() - shared * self.len().saturating_sub(1);
        layout::BLOCK_HEADER_BYTES
            + 4 * column::COLUMN_HEADER_BYTES
            + keys
            + self.values.len()
            + ENTRY_OVERHEAD_BYTES * self.len()
    }

    /// Returns the length of the prefix shared by all keys and `key`. With comparators other than
    /// bytewise, whole keys are compared in place, so nothing is shared.
    fn shared_prefix_len_with(&self, key: &[u8]) -> usize {
        if self.comparator != KeyComparator::Bytes {
            0
        } else if self.is_empty() {
            key.len()
        } else {
            common_prefix_len(&self.keys[..self.shared_prefix_len], key)
        }
    }

    /// Encodes the block into `out` (cleared first) and starts an empty one.
    ///
    /// # Panics
    /// If there is no entry: a block cannot be empty.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        check!(!self.is_empty(), "a block has at least one entry");
        check!(
            [self.seqs.len(), self.kinds.len(), self.value_ends.len()] == [self.len(); 3],
            "the columns of a block have the same length",
            self.len()
        );
        out.clear();
        let mut start = 0;
        let mut suffixes =
            Vec::with_capacity(self.keys.len() - self.shared_prefix_len * self.len());
        for end in &mut self.key_ends {
            suffixes.extend_from_slice(&self.keys[start + self.shared_prefix_len..*end as usize]);
            start = *end as usize;
            *end = suffixes.len() as u64;
        }
        let keys = self.shared_prefix_len + suffixes.len();
        [self.len(), keys, self.shared_prefix_len].iter().for_each(|x| put_varint(out, *x as u64));
        for values in [&self.key_ends, &self.seqs, &self.kinds, &self.value_ends] {
            column::encode(values, out);
        }
        out.extend_from_slice(&self.keys[..self.shared_prefix_len]);
        out.extend_from_slice(&suffixes);
        out.extend_from_slice(&self.values);
        self.clear();
    }

    fn clear(&mut self) {
        self.keys.clear();
        self.values.clear();
        for column in [&mut self.key_ends, &mut self.seqs, &mut self.kinds, &mut self.value_ends] {
            column.clear();
        }
        self.shared_prefix_len = 0;
    }
}

/// Returns the length of the longest common prefix.
pub(crate) fn common_prefix_len(a: &[u8], b: &[u8]) -> usize {
    if b.starts_with(a) {
        return a.len(); // the usual case, as fast as memcmp
    }
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}
