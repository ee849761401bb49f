//! A block in memory: validated once, then searched in place. No method fails or panics on a block
//! that [`TableBlock::parse`] accepted.

use super::column::SLACK_BYTES;
use super::fingerprints::Fingerprints;
use super::layout::BlockLayout;
use crate::key_prefix::{key_prefix, key_prefix_at};
use perigee_base::{
    EntryKind, Error, KeyComparator, KeyRef, PinnedSlice, Result, SeqNo, ValueRef, cmp_entry,
};
use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

/// A validated block, searchable in place.
#[derive(Clone, Debug)]
pub struct TableBlock {
    /// The raw form, followed by the slack; a pooled buffer may be longer.
    buf: Arc<[u8]>,
    /// Length of the raw form.
    raw_bytes: u32,
    layout: BlockLayout,
    fingerprints: Fingerprints,
}

impl TableBlock {
    /// Slack bytes required after the block in a buffer passed to [`TableBlock::parse`].
    pub const SLACK: usize = SLACK_BYTES;

    /// Validates the block in `buf`, whose last [`TableBlock::SLACK`] bytes are not part of it.
    pub fn parse(buf: Vec<u8>) -> Result<TableBlock> {
        let len = buf.len().saturating_sub(SLACK_BYTES);
        TableBlock::parse_in_buffer(buf.into(), len)
    }
    /// Validates the block in the first `len` bytes of a shared buffer, which must be followed by
    /// the slack.
    pub fn parse_in_buffer(buf: Arc<[u8]>, len: usize) -> Result<TableBlock> {
        let layout = BlockLayout::parse(&buf, len)?;
        let raw_bytes = u32::try_from(len).map_err(|_| Error::corruption("a block is too long"))?;
        Ok(TableBlock { buf, raw_bytes, layout, fingerprints: Fingerprints::default() })
    }
    /// Returns a copy for the cache: in a buffer of exact length, with fingerprints.
    pub fn to_cached(&self, comparator: KeyComparator) -> TableBlock {
        let fingerprints = if comparator.has_bytewise_equality() {
            Fingerprints::new((0..self.len()).map(|i| self.suffix(i)))
        } else {
            Fingerprints::default() // equal keys may differ in their bytes
        };
        let bytes = &self.buf[..self.raw_bytes as usize + SLACK_BYTES];
        TableBlock {
            buf: bytes.into(),
            raw_bytes: self.raw_bytes,
            layout: self.layout,
            fingerprints,
        }
    }
    /// Returns the fingerprints of the keys; empty if there are none.
    #[inline]
    pub(super) fn fingerprints(&self) -> &Fingerprints {
        &self.fingerprints
    }
    /// Returns the layout of [`TableBlock::buffer`].
    #[inline]
    pub(super) fn layout(&self) -> &BlockLayout {
        &self.layout
    }
    /// Returns the raw form and the slack.
    #[inline]
    pub(super) fn buffer(&self) -> &[u8] {
        &self.buf
    }
    /// Returns a range of the buffer.
    #[inline]
    pub(crate) fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.buf[range]
    }
    /// Returns the key without its first n bytes, where n is the length of the shared prefix; does
    /// not check that the key starts with that prefix.
    #[inline]
    pub(super) fn key_tail<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
        key.get(self.layout.suffixes_start - self.layout.prefix_start..)
    }
    /// Starts loading the value of entry `i`, and the buffer's reference count, into the CPU cache
    /// while the key is compared.
    #[inline]
    pub(super) fn prefetch_value(&self, i: usize) {
        let value = self.layout.value_range(&self.buf, i);
        let ends = self.buf[value.start] ^ self.buf[value.end];
        std::hint::black_box((ends, Arc::strong_count(&self.buf)));
    }
    /// Returns the buffer that holds the block.
    pub(crate) fn into_buffer(self) -> Arc<[u8]> {
        self.buf
    }

    /// Returns the number of entries, at least 1.
    #[allow(clippy::len_without_is_empty)]
    #[inline]
    pub fn len(&self) -> usize {
        self.layout.entry_count
    }
    /// Returns the raw form.
    pub fn raw(&self) -> &[u8] {
        &self.buf[..self.raw_bytes as usize]
    }
    /// Returns the memory of the block, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        (self.buf.len() + size_of::<TableBlock>() + 4 * size_of::<usize>()) as u64
            + self.fingerprints.memory_bytes()
    }

    /// Returns true if every entry is a plain put.
    #[inline]
    pub fn all_puts(&self) -> bool {
        self.layout.all_puts
    }
    /// Returns true if every entry is a value, inline or in a value log, that does not expire.
    pub fn has_only_values(&self) -> bool {
        self.all_puts()
            || (0..self.len())
                .all(|i| matches!(self.kind(i), EntryKind::Put | EntryKind::PutPointer))
    }
    /// Returns true if no two entries have the same key.
    pub fn has_distinct_keys(&self, comparator: KeyComparator) -> bool {
        let mut current = self.suffix_range(0);
        (1..self.len()).all(|i| {
            let before = std::mem::replace(&mut current, self.suffix_range(i));
            !comparator.keys_equal(self.bytes(before), self.bytes(current.clone()))
        })
    }
    /// Returns true if all entries have the same sequence number.
    pub fn has_single_seq(&self) -> bool {
        self.layout.seqs.constant_value().is_some()
    }
    /// Returns the total bytes of all keys, each including the shared prefix.
    pub fn key_bytes(&self) -> usize {
        let BlockLayout {
            entry_count: n,
            prefix_start: prefix,
            suffixes_start: suffixes,
            values_start: values,
            ..
        } = self.layout;
        n * (suffixes - prefix) + values - suffixes
    }
    /// Returns the total bytes of all values as stored.
    pub fn value_bytes(&self) -> usize {
        self.raw_bytes as usize - self.layout.values_start
    }
    /// Returns key `i`, borrowed.
    #[inline]
    pub fn key(&self, i: usize) -> KeyRef<'_> {
        KeyRef { prefix: self.prefix(), suffix: self.suffix(i) }
    }

    /// Returns the prefix that all keys share.
    #[inline]
    pub fn prefix(&self) -> &[u8] {
        &self.buf[self.layout.prefix_start..self.layout.suffixes_start]
    }
    /// Returns key `i` without the shared prefix.
    #[inline]
    pub fn suffix(&self, i: usize) -> &[u8] {
        &self.buf[self.layout.suffix_range(&self.buf, i)]
    }
    /// Returns the range of suffix `i` in the buffer.
    #[inline]
    pub(crate) fn suffix_range(&self, i: usize) -> Range<usize> {
        self.layout.suffix_range(&self.buf, i)
    }
    /// Like [`TableBlock::suffix_range`]; reuses the range of the previous entry.
    #[inline]
    pub(crate) fn suffix_range_after(&self, i: usize, before: &Range<usize>) -> Range<usize> {
        before.end..self.layout.suffixes_start + self.layout.key_ends.get(&self.buf, i) as usize
    }
    /// Like [`TableBlock::suffix_range`]; reuses the range of the next entry.
    #[inline]
    pub(crate) fn suffix_range_before(&self, i: usize, next: &Range<usize>) -> Range<usize> {
        let start = i.checked_sub(1).map_or(0, |i| self.layout.key_ends.get(&self.buf, i) as usize);
        self.layout.suffixes_start + start..next.start
    }
    /// Returns the sequence number of entry `i`.
    #[inline]
    pub fn seq(&self, i: usize) -> SeqNo {
        SeqNo(self.layout.seqs.get(&self.buf, i))
    }
    /// Returns the kind of entry `i`.
    #[inline]
    pub fn kind(&self, i: usize) -> EntryKind {
        if self.layout.all_puts {
            return EntryKind::Put;
        }
        EntryKind::decode(self.layout.kinds.get(&self.buf, i) as u8)
            .expect("kinds were validated by parse")
    }
    /// Returns the value of entry `i` as stored.
    #[inline]
    pub fn raw_value(&self, i: usize) -> &[u8] {
        &self.buf[self.layout.value_range(&self.buf, i)]
    }

    /// Returns the value of entry `i`, borrowed.
    #[inline]
    pub fn value(&self, i: usize) -> ValueRef<'_> {
        if self.layout.all_puts {
            return ValueRef::Inline(self.raw_value(i));
        }
        ValueRef::decode(self.kind(i), self.raw_value(i)).expect("values were validated by parse")
    }
    /// Returns the stored value of entry `i`, which keeps the block's buffer alive.
    #[inline]
    pub fn pinned_value(&self, i: usize) -> PinnedSlice {
        PinnedSlice::new(self.buf.clone(), self.layout.value_range(&self.buf, i))
    }

    /// Fails if the block cannot be searched with this comparator: it has a shared prefix although
    /// the comparator needs whole keys.
    pub fn check_comparator(self, comparator: KeyComparator) -> Result<TableBlock> {
        if comparator == KeyComparator::Bytes || self.prefix().is_empty() {
            return Ok(self);
        }
        Err(Error::corruption("the keys of a block share a prefix, but the comparator allows none")
            .expected(comparator.name(), format_args!("{} shared bytes", self.prefix().len())))
    }

    /// Returns true if entry `i` has this key.
    #[inline]
    pub fn key_equals(&self, comparator: KeyComparator, i: usize, key: &[u8]) -> bool {
        if comparator.has_bytewise_equality() {
            key.strip_prefix(self.prefix()) == Some(self.suffix(i))
        } else {
            comparator.keys_equal(self.suffix(i), key)
        }
    }
    /// Copies the whole key `i` into `out`, replacing its contents.
    pub fn copy_key(&self, i: usize, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(self.prefix());
        out.extend_from_slice(self.suffix(i));
    }

    /// Returns the first entry at or after (key, seq) in entry order; `len()` if all are before.
    pub fn lower_bound(&self, comparator: KeyComparator, key: &[u8], seq: SeqNo) -> usize {
        match comparator {
            KeyComparator::Bytes => self.lower_bound_bytewise(key, seq),
            // With other comparators blocks have no prefix: a suffix is the whole key.
            _ => self.partition_point(0..self.len(), |i| {
                cmp_entry(comparator, (self.suffix(i), self.seq(i)), (key, seq)).is_lt()
            }),
        }
    }

    fn lower_bound_bytewise(&self, key: &[u8], seq: SeqNo) -> usize {
        match self.strip_shared_prefix(key) {
            Ok(rest) => self.lower_bound_in(rest, seq, 0..self.len()),
            Err(position) => position,
        }
    }

    /// Under bytewise order: strips the shared prefix from the key. For a key without that prefix,
    /// returns its position (0 or `len()`) as the error.
    #[inline]
    pub fn strip_shared_prefix<'k>(&self, key: &'k [u8]) -> std::result::Result<&'k [u8], usize> {
        let prefix = self.prefix();
        let common = prefix.len().min(key.len());
        match key[..common].cmp(&prefix[..common]) {
            Ordering::Less => Err(0),
            Ordering::Greater => Err(self.len()),
            Ordering::Equal if common < prefix.len() => Err(0), // a proper prefix of every key
            Ordering::Equal => Ok(&key[common..]),
        }
    }

    /// Under bytewise order: returns the first of the entries `among` at or after (prefix + `rest`,
    /// seq), or their end if all are before.
    #[inline]
    pub fn lower_bound_in(&self, rest: &[u8], seq: SeqNo, among: Range<usize>) -> usize {
        // The first eight bytes, as integers, almost always decide; whole keys are compared only
        // where those are equal.
        let (wanted, end) = (key_prefix(rest), among.end);
        let prefix_of = |i: usize| key_prefix_at(&self.buf, self.suffix_range(i));
        let start = self.partition_point(among, |i| prefix_of(i) < wanted);
        let same = |i: usize| i < end && prefix_of(i) == wanted;
        let end = match (same(start), same(start + 1)) {
            (false, _) => return start,
            (true, false) => start + 1,
            (true, true) => end,
        };
        self.partition_point(start..end, |i| match self.suffix(i).cmp(rest) {
            Ordering::Less => true,
            Ordering::Greater => false,
            Ordering::Equal => self.seq(i) > seq,
        })
    }

    /// Returns the first of the entries `among` for which `before` is false; those for which it is
    /// true come first.
    #[inline]
    fn partition_point(&self, among: Range<usize>, before: impl Fn(usize) -> bool) -> usize {
        let (mut low, mut high) = (among.start, among.end);
        while low < high {
            let mid = low + (high - low) / 2;
            if before(mid) { low = mid + 1 } else { high = mid }
        }
        low
    }
}
