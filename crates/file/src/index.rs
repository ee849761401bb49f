//! The index of a klog: finds the data block that holds the first entry at or after a key and
//! sequence number. The index is a block with one entry per data block, searched like any block;
//! under bytewise order the [`KeyPrefixIndex`] over the separators leaves only a few of them to
//! compare. Only this module depends on the kind of index.
//!
//! Invariant (ensured by the writer, checked by `verify`): last entry of block i <= separator i <
//! first entry of block i + 1, in entry order. So a point read searches exactly one block, however
//! many versions a key has.

use crate::block::TableBlock;
use crate::block::frame::{self, FrameKind};
use crate::block::writer::{BlockWriter, common_prefix_len};
use crate::key_prefix::{self, KeyPrefixIndex};
use perigee_base::bug::Bug;
use perigee_base::codec::{Decoder, put_varint};
use perigee_base::{
    BlockHandle, EntryKind, Error, KeyComparator, KeyRef, Result, SeqNo, bug, cmp_entry,
};
use std::cmp::Ordering;
use std::ops::{Range, RangeInclusive};

/// Possible lengths of the frame of a data block.
pub(crate) const FRAME_LENGTHS: RangeInclusive<u64> =
    frame::FRAME_OVERHEAD_BYTES as u64..=FrameKind::Data.frame_bytes_max() as u64;
/// Builds the index while data blocks are written.
#[derive(Debug)]
pub struct IndexWriter {
    block: BlockWriter,
    value: Vec<u8>,
}

impl IndexWriter {
    /// Creates an empty index.
    pub fn new(comparator: KeyComparator) -> Self {
        IndexWriter { block: BlockWriter::new(comparator), value: Vec::new() }
    }

    /// Adds the next data block; `length` is the size of its frame in bytes.
    pub fn add_block(&mut self, separator: (&[u8], SeqNo), length: u64) {
        self.value.clear();
        put_varint(&mut self.value, length);
        self.block.add_raw(separator.0, separator.1, EntryKind::Put, &self.value);
    }

    /// Returns the number of data blocks added.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.block.len()
    }
    /// Returns the approximate size of the raw form, in bytes.
    pub fn estimated_bytes(&self) -> usize {
        self.block.estimated_bytes()
    }
    /// Returns the bytes of the buffered separators; see [`BlockWriter::buffered_bytes`].
    pub fn buffered_bytes(&self) -> usize {
        self.block.buffered_bytes()
    }
    /// Returns the memory of the buffers, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.block.memory_bytes()
    }
    /// Builds the raw form; requires at least one data block.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        self.block.finish(out);
    }
}

/// Returns the separator between the last entry of a block and the first key of the next: a short
/// key between the two with sequence number 0, or the last entry's key and sequence number if the
/// next block continues with the same key.
pub fn block_separator(
    comparator: KeyComparator,
    last: (&[u8], SeqNo),
    next: &[u8],
) -> (Vec<u8>, SeqNo) {
    if comparator.keys_equal(last.0, next) {
        return (next.to_vec(), last.1);
    }
    if comparator != KeyComparator::Bytes && !(bug::is_active(Bug::ShortSeparator) && last.0 < next)
    {
        return (last.0.to_vec(), SeqNo::ZERO);
    }
    (short_separator(last.0, next), SeqNo::ZERO)
}

/// Returns a short key that is at least `a` and less than `b`, for `a < b` in byte order.
fn short_separator(a: &[u8], b: &[u8]) -> Vec<u8> {
    let p = common_prefix_len(a, b);
    if p >= a.len() || p >= b.len() {
        return a.to_vec(); // a is a prefix of b: nothing shorter is at least a
    }
    if b[p] - a[p] > 1 {
        return [&a[..p], &[a[p] + 1]].concat();
    }
    if b.len() > p + 1 {
        return b[..=p].to_vec();
    }
    // `b` ends right after the differing byte: increment the first later byte of `a` below 0xff.
    match a[p + 1..].iter().position(|&x| x != 0xff) {
        Some(i) if p + 1 + i + 1 < a.len() => {
            let at = p + 1 + i;
            [&a[..at], &[a[at] + 1]].concat()
        }
        _ => a.to_vec(),
    }
}

/// How separators are searched. This is decided when a klog is opened and does not affect the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IndexKind {
    /// Binary search over whole separators.
    BinarySearch,
    /// Search over fixed-size key prefixes: the fastest; takes 8 bytes and a seventh of that per
    /// separator.
    #[default]
    KeyPrefixes,
}

#[derive(Debug)]
enum SeparatorSearch {
    BinarySearch,
    KeyPrefixes(KeyPrefixIndex),
}

/// The decoded index.
#[derive(Debug)]
pub struct IndexReader {
    contents: IndexContents,
    /// Every search returns the first block.
    covers_all_keys: bool,
}

#[derive(Debug)]
enum IndexContents {
    /// No data blocks.
    Empty,
    /// The separator and the byte range of the only data block: most tables of a database with
    /// thousands of column families have one.
    OneBlock { key: Box<[u8]>, seq: SeqNo, range: Range<u64> },
    /// Several data blocks.
    Blocks(Box<MultiBlockIndex>),
}

/// The index of several data blocks.
#[derive(Debug)]
struct MultiBlockIndex {
    index_block: TableBlock,
    /// Search structure over the separators without their shared prefix; under bytewise order only.
    search: SeparatorSearch,
    /// Offset of each data block, and the end of the last.
    block_offsets: Vec<u64>,
}

impl IndexReader {
    /// Decodes the raw form (with slack) of an index whose data blocks fill `data` without a gap.
    pub fn decode(
        buf: Vec<u8>,
        data: Range<u64>,
        comparator: KeyComparator,
    ) -> Result<IndexReader> {
        Self::decode_with_kind(IndexKind::default(), buf, data, comparator)
    }
    /// Like [`IndexReader::decode`], with the given kind of search.
    pub fn decode_with_kind(
        kind: IndexKind,
        buf: Vec<u8>,
        data: Range<u64>,
        comparator: KeyComparator,
    ) -> Result<IndexReader> {
        let block = TableBlock::parse(buf)?.check_comparator(comparator)?;
        let mut block_offsets = Vec::with_capacity(block.len() + 1);
        let mut expected = data.start;
        for i in 0..block.len() {
            let mut d = Decoder::new(block.raw_value(i));
            let length = d.varint()?;
            if !d.is_empty() || block.kind(i) != EntryKind::Put || !FRAME_LENGTHS.contains(&length)
            {
                return Err(Error::corruption(format!("entry {i} of the index is malformed"))
                    .expected(format_args!("the length of a data block at {expected}"), length));
            }
            block_offsets.push(expected);
            expected = expected.saturating_add(length);
        }
        block_offsets.push(expected);
        if expected != data.end {
            return Err(Error::corruption(
                "the data blocks of the index do not fill the data section of the file",
            )
            .expected(data.end, expected));
        }
        let contents = if block.len() == 1 {
            let mut key = Vec::new();
            block.copy_key(0, &mut key);
            IndexContents::OneBlock { key: key.into(), seq: block.seq(0), range: data }
        } else {
            let search = SeparatorSearch::new(kind, &block, comparator);
            let index = MultiBlockIndex { index_block: block, search, block_offsets };
            IndexContents::Blocks(Box::new(index))
        };
        Ok(IndexReader { contents, covers_all_keys: false })
    }
    /// Returns the index of a file without data blocks.
    pub fn empty() -> IndexReader {
        IndexReader { contents: IndexContents::Empty, covers_all_keys: false }
    }
    /// Returns this index with every search leading to its first block.
    #[must_use]
    pub fn covering_all_keys(self) -> IndexReader {
        IndexReader { covers_all_keys: true, ..self }
    }

    /// Returns the number of data blocks.
    #[allow(clippy::len_without_is_empty)]
    pub fn block_count(&self) -> usize {
        match &self.contents {
            IndexContents::Empty => 0,
            IndexContents::OneBlock { .. } => 1,
            IndexContents::Blocks(index) => index.index_block.len(),
        }
    }

    /// Returns the only data block that can hold the first entry at or after (key, seq), or
    /// `block_count()` if none does. If all its entries are before that position, the entry is the
    /// first of the next block and has a greater key.
    #[inline]
    pub fn find_block(&self, comparator: KeyComparator, key: &[u8], seq: SeqNo) -> usize {
        if self.covers_all_keys {
            return 0;
        }
        let MultiBlockIndex { index_block: block, search, .. } = match &self.contents {
            IndexContents::Blocks(index) => &**index,
            IndexContents::OneBlock { key: last, seq: oldest, .. } => {
                return usize::from(cmp_entry(comparator, (last, *oldest), (key, seq)).is_lt());
            }
            IndexContents::Empty => return 0,
        };
        match search {
            SeparatorSearch::KeyPrefixes(prefixes) => find_by_key_prefix(block, prefixes, key, seq),
            SeparatorSearch::BinarySearch => block.lower_bound(comparator, key, seq),
        }
    }

    /// Returns the handle of data block `i`.
    #[inline]
    pub fn block_handle(&self, i: usize) -> BlockHandle {
        let (start, end) = match &self.contents {
            IndexContents::Blocks(index) => (index.block_offsets[i], index.block_offsets[i + 1]),
            IndexContents::OneBlock { range, .. } if i == 0 => (range.start, range.end),
            _ => panic!("the index has no data block {i}"),
        };
        BlockHandle { offset: start, len: end - start }
    }
    /// Returns key and sequence number of the separator of data block `i`, not copied.
    fn separator_ref(&self, i: usize) -> (KeyRef<'_>, SeqNo) {
        match &self.contents {
            IndexContents::Blocks(index) => (index.index_block.key(i), index.index_block.seq(i)),
            IndexContents::OneBlock { key, seq, .. } if i == 0 => (KeyRef::from_key(key), *seq),
            _ => panic!("the index has no data block {i}"),
        }
    }
    /// Returns the separator of data block `i`.
    pub fn separator(&self, i: usize) -> (Vec<u8>, SeqNo) {
        let (key, seq) = self.separator_ref(i);
        ([key.prefix, key.suffix].concat(), seq)
    }
    /// Compares the separator of data block `i` with (key, seq).
    pub fn compare_separator(
        &self,
        comparator: KeyComparator,
        i: usize,
        key: KeyRef<'_>,
        seq: SeqNo,
    ) -> Ordering {
        let (separator, separator_seq) = self.separator_ref(i);
        separator.cmp(comparator, key).then_with(|| seq.cmp(&separator_seq))
    }
    /// Returns true if the separator of data block `i` has this key.
    pub fn separator_has_key(&self, comparator: KeyComparator, i: usize, key: &[u8]) -> bool {
        match &self.contents {
            IndexContents::Blocks(index) => index.index_block.key_equals(comparator, i, key),
            _ => comparator.keys_equal(self.separator_ref(i).0.suffix, key),
        }
    }
    /// Returns the memory of the index, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        match &self.contents {
            IndexContents::Empty => 0,
            IndexContents::OneBlock { key, .. } => key.len() as u64,
            IndexContents::Blocks(index) => {
                let own = size_of::<MultiBlockIndex>() - size_of::<TableBlock>()
                    + index.block_offsets.len() * 8;
                own as u64 + index.index_block.memory_bytes() + self.search_bytes()
            }
        }
    }
    /// Returns the part of [`IndexReader::memory_bytes`] used by the search structure.
    pub fn search_bytes(&self) -> u64 {
        match &self.contents {
            IndexContents::Blocks(index) => index.search.memory_bytes(),
            _ => 0,
        }
    }
    /// Returns the kind of search in use.
    pub fn search_kind(&self) -> IndexKind {
        match &self.contents {
            IndexContents::Blocks(index) => index.search.kind(),
            _ => IndexKind::BinarySearch,
        }
    }
}

impl SeparatorSearch {
    fn kind(&self) -> IndexKind {
        match self {
            SeparatorSearch::BinarySearch => IndexKind::BinarySearch,
            SeparatorSearch::KeyPrefixes(_) => IndexKind::KeyPrefixes,
        }
    }
    fn memory_bytes(&self) -> u64 {
        match self {
            SeparatorSearch::BinarySearch => 0,
            SeparatorSearch::KeyPrefixes(prefixes) => prefixes.memory_bytes(),
        }
    }
    /// Builds the search structure over the separators of `block`. A block that is not sorted gives
    /// wrong answers with any kind; `verify` detects it.
    fn new(kind: IndexKind, block: &TableBlock, comparator: KeyComparator) -> SeparatorSearch {
        if comparator != KeyComparator::Bytes || kind == IndexKind::BinarySearch {
            return SeparatorSearch::BinarySearch;
        }
        let prefixes: Vec<u64> =
            (0..block.len()).map(|i| key_prefix::key_prefix(block.suffix(i))).collect();
        SeparatorSearch::KeyPrefixes(KeyPrefixIndex::new(&prefixes))
    }
}

/// Like [`TableBlock::lower_bound`], under bytewise order: whole separators are compared only where
/// their key prefixes are equal.
#[inline]
fn find_by_key_prefix(
    block: &TableBlock,
    prefixes: &KeyPrefixIndex,
    key: &[u8],
    seq: SeqNo,
) -> usize {
    let rest = match block.strip_shared_prefix(key) {
        Ok(rest) => rest,
        Err(position) => return position,
    };
    let prefix = key_prefix::key_prefix(rest);
    let low = prefixes.rank(prefix);
    if prefixes.get(low) != Some(prefix) {
        return low;
    }
    let high = prefix.checked_add(1).map_or(block.len(), |next| prefixes.rank(next));
    block.lower_bound_in(rest, seq, low..high)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestRng;

    #[test]
    fn short_separators_lie_between_keys() {
        let mut rng = TestRng::new(6);
        for _ in 0..20_000 {
            let mut key = || {
                let n = rng.below(5);
                (0..n).map(|_| [0, 1, 2, 254, 255][rng.below(5) as usize]).collect::<Vec<u8>>()
            };
            let (a, b) = (key(), key());
            if a < b {
                let s = short_separator(&a, &b);
                assert!(a <= s && s < b && s.len() <= a.len().max(b.len()), "{a:?} {s:?} {b:?}");
            }
        }
        assert_eq!(short_separator(b"abcdef", b"abzz"), b"abd");
        assert_eq!(short_separator(b"abcdef", b"abdd"), b"abd");
        assert_eq!(short_separator(b"abc\x01\x05", b"abd"), b"abc\x02");
    }

    /// Separators with few distinct prefixes, with equal keys, and shorter than a key prefix.
    #[test]
    fn all_index_kinds_find_the_same_block() {
        let mut rng = TestRng::new(12);
        for case in 0..300 {
            let (letters, longest) = ([2, 3, 256][case % 3], [3, 12, 20][case / 3 % 3]);
            let shared = vec![7; rng.below(12) as usize];
            let mut key = || {
                let rest = (0..rng.below(longest)).map(|_| rng.below(letters) as u8);
                shared.iter().copied().chain(rest.collect::<Vec<_>>()).collect::<Vec<u8>>()
            };
            let mut keys: Vec<Vec<u8>> = (0..1 + case).map(|_| key()).collect();
            keys.sort();
            let queries: Vec<Vec<u8>> =
                keys.iter().cloned().chain((0..50).map(|_| key())).chain([vec![]]).collect();
            let mut w = IndexWriter::new(KeyComparator::Bytes);
            for (i, k) in keys.iter().enumerate() {
                w.add_block((k, SeqNo((keys.len() - i) as u64)), 100);
            }
            let mut raw = Vec::new();
            w.finish(&mut raw);
            raw.resize(raw.len() + TableBlock::SLACK, 0);
            let data = 72..72 + 100 * keys.len() as u64;
            let index =
                IndexReader::decode(raw.clone(), data.clone(), KeyComparator::Bytes).unwrap();
            let block = TableBlock::parse(raw.clone()).unwrap();
            let by_search = IndexReader::decode_with_kind(
                IndexKind::BinarySearch,
                raw,
                data,
                KeyComparator::Bytes,
            )
            .unwrap();
            for k in &queries {
                for k in [k.clone(), [k, &[0][..]].concat(), [k, &[255; 9][..]].concat()] {
                    for seq in [SeqNo::ZERO, SeqNo(3), SeqNo::MAX] {
                        let plain = block.lower_bound(KeyComparator::Bytes, &k, seq);
                        assert_eq!(
                            index.find_block(KeyComparator::Bytes, &k, seq),
                            plain,
                            "{k:?} at {seq:?} among {keys:?}"
                        );
                        assert_eq!(
                            by_search.find_block(KeyComparator::Bytes, &k, seq),
                            plain,
                            "{k:?} by binary search among {keys:?}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn data_blocks_must_be_contiguous() {
        let build = |lengths: &[u64]| {
            let mut w = IndexWriter::new(KeyComparator::Bytes);
            lengths
                .iter()
                .enumerate()
                .for_each(|(i, l)| w.add_block((&[i as u8], SeqNo::ZERO), *l));
            let mut out = Vec::new();
            w.finish(&mut out);
            out.resize(out.len() + TableBlock::SLACK, 0);
            IndexReader::decode(out, 72..300, KeyComparator::Bytes)
        };
        let good = build(&[100, 128]).unwrap();
        assert_eq!(
            (good.block_handle(0), good.block_handle(1)),
            (BlockHandle { offset: 72, len: 100 }, BlockHandle { offset: 172, len: 128 })
        );
        for bad in [&[100, 127][..], &[100, 129], &[300], &[10, 218], &[u64::MAX], &[u64::MAX, 229]]
        {
            assert!(build(bad).is_err(), "{bad:?}");
        }
    }
}
