//! A block in memory: verified once, then searched where it lies. Nothing here can fail or panic on
//! any block that [`Block::parse`] accepted.

use super::column::SLACK_BYTES;
use super::fingerprints::Fingerprints;
use super::layout::BlockLayout;
use crate::key_prefix::key_prefix;
use perigee_base::entry::cmp_entry;
use perigee_base::{EntryKind, Error, KeyComparator, KeyRef, PinnedSlice, Result, SeqNo, ValueRef};
use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

/// A verified block, searchable as it lies.
#[derive(Clone, Debug)]
pub struct TableBlock {
    /// The raw form, the slack, and the fingerprints that have no room in `prints`; a spare buffer
    /// may be longer.
    buf: Arc<[u8]>,
    /// Bytes of the raw form.
    raw_bytes: u32,
    layout: BlockLayout,
    fingerprints: Fingerprints,
}

impl TableBlock {
    /// The slack that a buffer passed to [`Block::parse`] has after the block.
    pub const SLACK: usize = SLACK_BYTES;

    /// Verifies the block in `buf`, whose last [`Block::SLACK`] bytes are not part of it.
    pub fn parse(buf: Vec<u8>) -> Result<TableBlock> {
        let len = buf.len().saturating_sub(SLACK_BYTES);
        TableBlock::parse_in_buffer(buf.into(), len)
    }
    /// The same for the first `len` bytes of a buffer that comes with its counter, and has the
    /// slack behind them.
    pub fn parse_in_buffer(buf: Arc<[u8]>, len: usize) -> Result<TableBlock> {
        let layout = BlockLayout::parse(&buf, len)?;
        let raw_bytes = u32::try_from(len).map_err(|_| Error::corruption("a block is too long"))?;
        Ok(TableBlock { buf, raw_bytes, layout, fingerprints: Fingerprints::default() })
    }
    /// A copy to be kept: in a buffer of its own length, with fingerprints.
    pub fn to_cached(&self, order: KeyComparator) -> TableBlock {
        let prints = if order.has_bytewise_equality() {
            Fingerprints::new((0..self.len()).map(|i| self.suffix(i)))
        } else {
            Fingerprints::default() // equal keys may be different bytes
        };
        let bytes = &self.buf[..self.raw_bytes as usize + SLACK_BYTES];
        TableBlock {
            buf: bytes.into(),
            raw_bytes: self.raw_bytes,
            layout: self.layout,
            fingerprints: prints,
        }
    }
    /// Fingerprints of its keys, if it has any.
    #[inline]
    pub(super) fn fingerprints(&self) -> &Fingerprints {
        &self.fingerprints
    }
    /// Where its parts lie in [`Block::buffer`].
    #[inline]
    pub(super) fn layout(&self) -> &BlockLayout {
        &self.layout
    }
    /// The raw form and the slack.
    #[inline]
    pub(super) fn buffer(&self) -> &[u8] {
        &self.buf
    }
    /// Some bytes of the raw form.
    #[inline]
    pub(crate) fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.buf[range]
    }
    /// The key without as many bytes as all keys have in common, whether or not it begins with
    /// those.
    #[inline]
    pub(super) fn key_tail<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
        key.get(self.layout.suffixes_start - self.layout.prefix_start..)
    }
    /// Begins to fetch the value of entry `i`, and the counter of the buffer, from memory, while
    /// something else is looked at.
    #[inline]
    pub(super) fn prefetch_value(&self, i: usize) {
        let value = self.layout.value_range(&self.buf, i);
        let ends = self.buf[value.start] ^ self.buf[value.end];
        std::hint::black_box((ends, Arc::strong_count(&self.buf)));
    }
    /// The buffer it lies in.
    pub(crate) fn into_buffer(self) -> Arc<[u8]> {
        self.buf
    }

    /// Number of entries, at least 1.
    #[allow(clippy::len_without_is_empty)]
    #[inline]
    pub fn len(&self) -> usize {
        self.layout.entry_count
    }
    /// The raw form.
    pub fn raw(&self) -> &[u8] {
        &self.buf[..self.raw_bytes as usize]
    }
    /// Memory it holds.
    pub fn memory_bytes(&self) -> u64 {
        (self.buf.len() + size_of::<TableBlock>() + 4 * size_of::<usize>()) as u64
            + self.fingerprints.memory_bytes()
    }

    /// Whether every entry is a plain put.
    #[inline]
    pub fn all_puts(&self) -> bool {
        self.layout.all_puts
    }
    /// Whether every entry is a value, here or in a value log, that does not expire.
    pub fn has_only_values(&self) -> bool {
        self.all_puts()
            || (0..self.len())
                .all(|i| matches!(self.kind(i), EntryKind::Put | EntryKind::PutPointer))
    }
    /// Whether no two entries have the same key.
    pub fn has_distinct_keys(&self, order: KeyComparator) -> bool {
        let mut place = self.suffix_range(0);
        (1..self.len()).all(|i| {
            let before = std::mem::replace(&mut place, self.suffix_range(i));
            !order.keys_equal(self.bytes(before), self.bytes(place.clone()))
        })
    }
    /// Whether all entries have the same sequence number.
    pub fn has_single_seq(&self) -> bool {
        self.layout.seqs.constant_value().is_some()
    }
    /// Bytes of all keys, each with what they have in common.
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
    /// Bytes of all values as stored.
    pub fn value_bytes(&self) -> usize {
        self.raw_bytes as usize - self.layout.values_start
    }
    /// A key where it lies.
    #[inline]
    pub fn key(&self, i: usize) -> KeyRef<'_> {
        KeyRef { prefix: self.prefix(), suffix: self.suffix(i) }
    }

    /// The part that all keys begin with.
    #[inline]
    pub fn prefix(&self) -> &[u8] {
        &self.buf[self.layout.prefix_start..self.layout.suffixes_start]
    }
    /// The rest of key `i`.
    #[inline]
    pub fn suffix(&self, i: usize) -> &[u8] {
        &self.buf[self.layout.suffix_range(&self.buf, i)]
    }
    /// Where that lies.
    #[inline]
    pub(crate) fn suffix_range(&self, i: usize) -> Range<usize> {
        self.layout.suffix_range(&self.buf, i)
    }
    /// The same for entry `i` of whose neighbour before it the place is known.
    #[inline]
    pub(crate) fn suffix_range_after(&self, i: usize, before: &Range<usize>) -> Range<usize> {
        before.end..self.layout.suffixes_start + self.layout.key_ends.get(&self.buf, i) as usize
    }
    /// The same for entry `i` of whose neighbour behind it the place is known.
    #[inline]
    pub(crate) fn suffix_range_before(&self, i: usize, behind: &Range<usize>) -> Range<usize> {
        let start = i.checked_sub(1).map_or(0, |i| self.layout.key_ends.get(&self.buf, i) as usize);
        self.layout.suffixes_start + start..behind.start
    }
    /// Sequence number of entry `i`.
    #[inline]
    pub fn seq(&self, i: usize) -> SeqNo {
        SeqNo(self.layout.seqs.get(&self.buf, i))
    }
    /// Kind of entry `i`.
    #[inline]
    pub fn kind(&self, i: usize) -> EntryKind {
        if self.layout.all_puts {
            return EntryKind::Put;
        }
        EntryKind::decode(self.layout.kinds.get(&self.buf, i) as u8)
            .expect("kinds were checked on load")
    }
    /// Value of entry `i` as stored.
    #[inline]
    pub fn raw_value(&self, i: usize) -> &[u8] {
        &self.buf[self.layout.value_range(&self.buf, i)]
    }

    /// Value of entry `i`, borrowed.
    #[inline]
    pub fn value(&self, i: usize) -> ValueRef<'_> {
        if self.layout.all_puts {
            return ValueRef::Inline(self.raw_value(i));
        }
        ValueRef::decode(self.kind(i), self.raw_value(i)).expect("values were decoded on load")
    }
    /// The stored value of entry `i`, keeping the block's bytes alive.
    #[inline]
    pub fn pinned_value(&self, i: usize) -> PinnedSlice {
        PinnedSlice::new(self.buf.clone(), self.layout.value_range(&self.buf, i))
    }

    /// Fails for a block that nothing could be found in under `order`: with a shared prefix, where
    /// whole keys are compared.
    pub fn check_comparator(self, order: KeyComparator) -> Result<TableBlock> {
        if order == KeyComparator::Bytes || self.prefix().is_empty() {
            return Ok(self);
        }
        Err(Error::corruption("the keys of a block share a prefix, in an order that has none")
            .expected(order.name(), format_args!("{} shared bytes", self.prefix().len())))
    }

    /// Whether entry `i` has that key.
    #[inline]
    pub fn key_equals(&self, order: KeyComparator, i: usize, key: &[u8]) -> bool {
        if order.has_bytewise_equality() {
            key.strip_prefix(self.prefix()) == Some(self.suffix(i))
        } else {
            order.keys_equal(self.suffix(i), key)
        }
    }
    /// Key `i` in one piece, in place of what `out` held.
    pub fn copy_key(&self, i: usize, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(self.prefix());
        out.extend_from_slice(self.suffix(i));
    }

    /// The first entry at or after (key, seq) in entry order; `len()` if all are before.
    pub fn lower_bound(&self, order: KeyComparator, key: &[u8], seq: SeqNo) -> usize {
        match order {
            KeyComparator::Bytes => self.lower_bound_bytewise(key, seq),
            // Under other orders blocks have no prefix: a suffix is the whole key.
            _ => self.partition_point(0..self.len(), |i| {
                cmp_entry(order, (self.suffix(i), self.seq(i)), (key, seq)).is_lt()
            }),
        }
    }

    fn lower_bound_bytewise(&self, key: &[u8], seq: SeqNo) -> usize {
        match self.strip_shared_prefix(key) {
            Ok(rest) => self.lower_bound_in(rest, seq, 0..self.len()),
            Err(place) => place,
        }
    }

    /// In byte order: the key without the prefix that all keys begin with; the place of a key that
    /// does not begin with it.
    #[inline]
    pub fn strip_shared_prefix<'k>(&self, key: &'k [u8]) -> std::result::Result<&'k [u8], usize> {
        let prefix = self.prefix();
        let head = prefix.len().min(key.len());
        match key[..head].cmp(&prefix[..head]) {
            Ordering::Less => Err(0),
            Ordering::Greater => Err(self.len()),
            Ordering::Equal if head < prefix.len() => Err(0), // a proper prefix of every key
            Ordering::Equal => Ok(&key[head..]),
        }
    }

    /// In byte order: the first of those entries at or after (prefix + `rest`, seq); their end if
    /// all are before.
    #[inline]
    pub fn lower_bound_in(&self, rest: &[u8], seq: SeqNo, among: Range<usize>) -> usize {
        // Their first eight bytes, as numbers, nearly always decide; whole keys are compared only
        // where those are equal.
        let (wanted, end) = (key_prefix(rest), among.end);
        let start = self.partition_point(among, |i| key_prefix(self.suffix(i)) < wanted);
        let same = |i: usize| i < end && key_prefix(self.suffix(i)) == wanted;
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

    /// The first of those entries that is not `before`, where those that are come first.
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
