//! A window of consecutive entries of a block, decoded together for a scan: where their values are,
//! and which of them a reader may return without further checks. Independent of other blocks.
//!
//! Invariant: the contents are valid only for the block, reader and comparator they were decoded
//! for; the owner [clears](EntryWindow::clear) it when the block changes.

use super::TableBlock;
use crate::key_prefix::key_prefix_at;
use crate::limits::{WINDOW_ENTRIES_MAX, WINDOW_ENTRIES_MIN};
use perigee_base::{EntryKind, KeyComparator, KeyRef, SeqNo};
use std::ops::Range;

const _: () = assert!(WINDOW_ENTRIES_MAX == u64::BITS as usize, "each entry has a bit");
const _: () = assert!(WINDOW_ENTRIES_MIN >= 2, "a window has the next entry, too");

/// The decoded entries, by their index in the block.
#[derive(Debug)]
pub struct EntryWindow {
    start: usize,
    len: usize,
    /// Number of entries to decode next: a scan may end after a few entries, so it grows.
    next_len: usize,
    /// Value `start + i` lies between ends i and i + 1, as offsets in the block's buffer.
    value_ends: [u32; WINDOW_ENTRIES_MAX + 1],
    /// Key prefixes of the suffixes; see [`KeyRef::key_prefix`].
    key_prefixes: [u64; WINDOW_ENTRIES_MAX],
    /// Bit i: entry `start + i` is a plain put visible to the reader.
    visible_puts: u64,
    /// Bit i: its key differs from that of the previous entry in the block. Never set for the first
    /// entry, because the last key of the previous block is unknown here.
    new_keys: u64,
}

/// A window as a merging iterator uses it: what is known about the entries around a cursor.
#[derive(Clone, Copy, Debug)]
pub struct EntryWindowView<'a> {
    /// Prefix shared by all keys of the block.
    pub prefix: &'a [u8],
    /// Key prefixes of the decoded entries, without the shared prefix.
    pub key_prefixes: &'a [u64],
    /// Bit i: entry i is a plain put visible to the reader.
    pub visible_puts: u64,
    /// Bit i: the key of entry i certainly differs from that of the previous entry.
    pub new_keys: u64,
    /// Index of the cursor's entry in `key_prefixes`.
    pub position: usize,
}

impl EntryWindow {
    /// Creates an empty window.
    pub fn new() -> EntryWindow {
        EntryWindow {
            start: 0,
            len: 0,
            next_len: WINDOW_ENTRIES_MIN,
            value_ends: [0; WINDOW_ENTRIES_MAX + 1],
            key_prefixes: [0; WINDOW_ENTRIES_MAX],
            visible_puts: 0,
            new_keys: 0,
        }
    }
    /// Empties the window.
    #[inline]
    pub fn clear(&mut self) {
        self.len = 0;
    }
    /// Begins another scan: the next window is small.
    #[inline]
    pub fn restart(&mut self) {
        self.next_len = WINDOW_ENTRIES_MIN;
    }
    /// Returns the position of an entry in the window, if it is decoded.
    #[inline]
    fn position_of(&self, entry: usize) -> Option<usize> {
        let i = entry.wrapping_sub(self.start);
        (i < self.len).then_some(i)
    }
    /// Returns the stored value of an entry if it is decoded and a plain put visible to the reader.
    #[inline]
    pub fn visible_put<'b>(&self, block: &'b TableBlock, entry: usize) -> Option<&'b [u8]> {
        let i = self.position_of(entry).filter(|i| self.visible_puts >> i & 1 == 1)?;
        Some(block.bytes(self.value_ends[i] as usize..self.value_ends[i + 1] as usize))
    }

    /// Returns how many entries after `entry` (or, if not `forward`, from `entry` backward) are
    /// clear: a scan may return them one after the other without further checks. All of them are
    /// before (after, if backward) `limit`, if given. The count may be too low, never too high.
    /// `at` is the reader's sequence number; `None` means that all entries of the block are
    /// visible.
    pub fn count_clear_ahead(
        &mut self,
        block: &TableBlock,
        comparator: KeyComparator,
        entry: usize,
        forward: bool,
        at: Option<SeqNo>,
        limit: Option<KeyRef<'_>>,
    ) -> usize {
        let next = if forward { entry + 1 } else { entry };
        if next == 0 || next >= block.len() {
            return 0;
        }
        if self.position_of(next).is_none() {
            self.decode(block, comparator, self.next_range(block, next, forward), at);
        }
        check_slow!(
            self.position_of(next).is_some(),
            "the window contains the entry it was decoded for",
            next,
            self.start,
            self.len
        );
        let i = next - self.start;
        let limit_prefix = limit.map(|key| key.key_prefix(comparator, block.prefix()));
        let clear = self.visible_puts & self.new_keys;
        if forward {
            let count = ((clear >> i).trailing_ones() as usize).min(self.len - i);
            let prefixes = &self.key_prefixes[i..i + count];
            limit_prefix.map_or(count, |limit| count_leading(prefixes.iter(), |p| *p < limit))
        } else {
            let count = ((clear << (63 - i)).leading_ones() as usize).min(i + 1);
            let prefixes = &self.key_prefixes[i + 1 - count..=i];
            limit_prefix.map_or(count, |limit| count_leading(prefixes.iter().rev(), |p| *p > limit))
        }
    }

    /// Decodes the entries around `entry`, at least the next one in scan direction. `at`: see
    /// [`EntryWindow::count_clear_ahead`].
    #[inline]
    pub fn decode_around(
        &mut self,
        block: &TableBlock,
        comparator: KeyComparator,
        entry: usize,
        forward: bool,
        at: Option<SeqNo>,
    ) {
        let next = if forward { block.len().min(entry + 2) - 1 } else { entry.saturating_sub(1) };
        if self.position_of(entry).is_none() || self.position_of(next).is_none() {
            self.decode(block, comparator, self.next_range(block, entry, forward), at);
        }
    }
    /// Returns a view positioned at `entry`, if it is decoded.
    #[inline]
    pub fn view<'a>(&'a self, block: &'a TableBlock, entry: usize) -> Option<EntryWindowView<'a>> {
        let (key_prefixes, position) = (&self.key_prefixes[..self.len], self.position_of(entry)?);
        Some(EntryWindowView {
            prefix: block.prefix(),
            key_prefixes,
            visible_puts: self.visible_puts,
            new_keys: self.new_keys,
            position,
        })
    }

    /// Returns the range of entries to decode for a scan that starts at `entry`.
    fn next_range(&self, block: &TableBlock, entry: usize, forward: bool) -> Range<usize> {
        if forward {
            entry..block.len().min(entry + self.next_len)
        } else {
            (entry + 1).saturating_sub(self.next_len)..entry + 1
        }
    }

    fn decode(
        &mut self,
        block: &TableBlock,
        comparator: KeyComparator,
        range: Range<usize>,
        at: Option<SeqNo>,
    ) {
        check_slow!(
            (1..=WINDOW_ENTRIES_MAX).contains(&range.len()) && range.end <= block.len(),
            "a window has entries of its block",
            range,
            block.len()
        );
        (self.start, self.len) = (range.start, range.len());
        self.next_len = WINDOW_ENTRIES_MAX.min(self.next_len * 2);
        let (layout, raw) = (block.layout(), block.buffer());
        self.value_ends[0] = layout.value_range(raw, range.start).start as u32;
        layout.value_ends.for_each(raw, range.clone(), |i, end| {
            self.value_ends[i + 1 - range.start] = (layout.values_start as u64 + end) as u32;
        });
        self.new_keys = self.load_key_prefixes(block, comparator);
        self.visible_puts = u64::MAX;
        if let Some(at) = at.filter(|at| layout.seqs.constant_value().is_none_or(|seq| seq > at.0))
        {
            layout.seqs.for_each(raw, range.clone(), |i, seq| {
                self.visible_puts &= !(u64::from(seq > at.0) << (i - range.start));
            });
        }
        if !layout.all_puts {
            layout.kinds.for_each(raw, range.clone(), |i, kind| {
                let other = kind != u64::from(EntryKind::Put.code());
                self.visible_puts &= !(u64::from(other) << (i - range.start));
            });
        }
    }

    /// Loads the key prefixes; returns the bits of entries whose key differs from the previous one.
    fn load_key_prefixes(&mut self, block: &TableBlock, comparator: KeyComparator) -> u64 {
        match comparator {
            KeyComparator::Bytes => {
                let prefix_of = |range| key_prefix_at(block.buffer(), range);
                self.load_prefixes(block, comparator, prefix_of)
            }
            _ => self.load_prefixes(block, comparator, |range| {
                KeyRef::from_key(block.bytes(range)).key_prefix(comparator, &[])
            }),
        }
    }
    #[inline]
    fn load_prefixes(
        &mut self,
        block: &TableBlock,
        comparator: KeyComparator,
        prefix_of: impl Fn(Range<usize>) -> u64,
    ) -> u64 {
        let mut start = block.suffix_range(self.start).start;
        let mut last = match self.start.checked_sub(1) {
            Some(before) => block.suffix_range(before),
            None => start..start,
        };
        let mut last_prefix = prefix_of(last.clone());
        let mut differ = 0;
        block.layout().key_ends.for_each(
            block.buffer(),
            self.start..self.start + self.len,
            |i, end| {
                let end = block.layout().suffixes_start + end as usize;
                let suffix = start..end;
                let prefix = prefix_of(suffix.clone());
                let differs = || {
                    let (key, before) = (block.bytes(start..end), block.bytes(last.clone()));
                    !comparator.keys_equal(key, before)
                };
                let is_new = i > 0 && (prefix != last_prefix || differs());
                differ |= u64::from(is_new) << (i - self.start);
                self.key_prefixes[i - self.start] = prefix;
                (last, last_prefix, start) = (suffix, prefix, end);
            },
        );
        differ
    }
}

/// Counts the leading prefixes that satisfy `pass`; tests the last one first, because usually all
/// do.
#[inline]
fn count_leading<'h>(
    prefixes: impl DoubleEndedIterator<Item = &'h u64> + ExactSizeIterator + Clone,
    pass: impl Fn(&u64) -> bool,
) -> usize {
    match prefixes.clone().next_back() {
        Some(last) if pass(last) => prefixes.len(),
        _ => prefixes.take_while(|prefix| pass(prefix)).count(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::writer::BlockWriter;
    use crate::testing::TestRng;

    type WindowTestEntry = (Vec<u8>, SeqNo, EntryKind, Vec<u8>);

    fn entries(rng: &mut TestRng, comparator: KeyComparator, case: u64) -> Vec<WindowTestEntry> {
        let start: &[u8] = if case % 3 == 0 { b"a long way into the tree/" } else { b"" };
        let mut keys: Vec<Vec<u8>> = (0..1 + rng.below(150))
            .map(|_| {
                let long = rng.below(2) * 9;
                let end = rng.below(4) as usize;
                [start, &b"ABab01234567"[..long as usize], &rng.bytes(end)].concat()
            })
            .collect();
        keys.sort_by(|a, b| comparator.cmp(a, b));
        let mut seq = 1000;
        let plain = case % 2 == 0;
        keys.into_iter()
            .map(|key| {
                seq -= rng.below(2) * (1 + rng.below(2));
                let kind =
                    if plain || rng.below(4) > 0 { EntryKind::Put } else { EntryKind::Delete };
                let len = if kind == EntryKind::Put { rng.below(300) as usize } else { 0 };
                let value = rng.bytes(len);
                (key, SeqNo(seq), kind, value)
            })
            .collect()
    }

    fn block(comparator: KeyComparator, entries: &[WindowTestEntry]) -> TableBlock {
        let mut w = BlockWriter::new(comparator);
        entries.iter().for_each(|(k, seq, kind, v)| w.add_raw(k, *seq, *kind, v));
        let mut raw = Vec::new();
        w.finish(&mut raw);
        raw.resize(raw.len() + TableBlock::SLACK, 0);
        TableBlock::parse(raw).unwrap()
    }

    /// Compares with a scan that checks each entry individually.
    #[test]
    fn count_clear_ahead_respects_visibility_and_limit() {
        let mut rng = TestRng::new(21);
        for comparator in [
            KeyComparator::Bytes,
            KeyComparator::Reverse,
            KeyComparator::U64,
            KeyComparator::CaseInsensitive,
        ] {
            let (mut counted, mut expected) = (0, 0);
            for case in 0..400 {
                let entries = entries(&mut rng, comparator, case);
                let block = block(comparator, &entries);
                let at = [None, Some(SeqNo(2000)), Some(SeqNo(940))][rng.below(3) as usize];
                let mut w = EntryWindow::new();
                for _ in 0..40 {
                    let (entry, forward) =
                        (rng.below(block.len() as u64) as usize, rng.below(2) == 0);
                    let limit = entries[rng.below(block.len() as u64) as usize].0.clone();
                    let limit = (rng.below(2) == 0).then_some(&limit[..]);
                    let clear = |i: usize| {
                        let (key, seq, kind, _) = &entries[i];
                        let side = limit.is_none_or(|l| {
                            comparator.cmp(key, l).is_lt() == forward
                                && !comparator.keys_equal(key, l)
                        });
                        *kind == EntryKind::Put
                            && at.is_none_or(|at| *seq <= at)
                            && i > 0
                            && !comparator.keys_equal(key, &entries[i - 1].0)
                            && side
                    };
                    let want = if forward {
                        (entry + 1..block.len()).take_while(|i| clear(*i)).count()
                    } else {
                        (0..=entry).rev().take_while(|i| clear(*i)).count()
                    };
                    let got = w.count_clear_ahead(
                        &block,
                        comparator,
                        entry,
                        forward,
                        at,
                        limit.map(KeyRef::from_key),
                    );
                    assert!(got <= want, "{comparator:?} {entry} {forward} {got} {want}");
                    (counted, expected) = (counted + got, expected + want);
                    for i in 0..got {
                        let i = if forward { entry + 1 + i } else { entry - i };
                        assert_eq!(w.visible_put(&block, i), Some(&entries[i].3[..]));
                    }
                }
            }
            assert!(
                counted * 3 > expected || comparator == KeyComparator::CaseInsensitive,
                "{comparator:?}: {counted} of {expected}"
            );
        }
    }

    #[test]
    fn cleared_window_returns_no_values() {
        let entries: Vec<WindowTestEntry> =
            (0..9u8).map(|i| (vec![i], SeqNo(3), EntryKind::Put, vec![i; 9])).collect();
        let block = block(KeyComparator::Bytes, &entries);
        let mut w = EntryWindow::new();
        assert_eq!(w.count_clear_ahead(&block, KeyComparator::Bytes, 0, true, None, None), 8);
        assert_eq!(w.count_clear_ahead(&block, KeyComparator::Bytes, 8, false, None, None), 8);
        assert_eq!(w.count_clear_ahead(&block, KeyComparator::Bytes, 8, true, None, None), 0);
        assert_eq!(w.visible_put(&block, 4), Some(&[4; 9][..]));
        w.clear();
        assert_eq!(w.visible_put(&block, 4), None);
    }
}
