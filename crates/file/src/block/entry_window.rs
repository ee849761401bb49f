//! Some entries of a block that follow each other, decoded at once for a walk: where their values
//! lie, and which of them a reader may be shown without a closer look. Must not know other blocks.
//!
//! Invariant: what it says holds for the block, the reader and the order that it was decoded for;
//! whoever keeps it [forgets](Window::forget) it when the block goes.

use super::TableBlock;
use perigee_base::{EntryKind, KeyComparator, KeyRef, SeqNo};
use std::ops::Range;

/// Most entries of a window: a block of the usual size holds fewer.
const WINDOW_ENTRIES_MAX: usize = 64;

/// The entries, by their numbers in the block.
#[derive(Debug)]
pub struct EntryWindow {
    start: usize,
    len: usize,
    /// Value `start + i` lies between ends i and i + 1, in bytes of the block's buffer.
    value_ends: [u32; WINDOW_ENTRIES_MAX + 1],
    /// What a comparison of suffixes begins with; see [`KeyRef::head`].
    key_prefixes: [u64; WINDOW_ENTRIES_MAX],
    /// Bit i: entry `start + i` is a plain put that the reader sees.
    visible_puts: u64,
    /// Bit i: its key is not that of the entry before it in the block; never of the first entry, of
    /// which nobody knows here whether the block before ends with its key.
    new_keys: u64,
}

/// A window as a merge of several sources sees it: what is known of the entries around the one that
/// a cursor is on.
#[derive(Clone, Copy, Debug)]
pub struct EntryWindowView<'a> {
    /// What all keys of the block begin with.
    pub prefix: &'a [u8],
    /// The heads of the keys without that, of the entries that are known.
    pub key_prefixes: &'a [u64],
    /// Which of them are plain puts that the reader sees: bit i for head i.
    pub visible_puts: u64,
    /// Which of them certainly have another key than the entry before.
    pub new_keys: u64,
    /// The entry that the cursor is on.
    pub position: usize,
}

impl EntryWindow {
    /// Of nothing.
    pub fn new() -> EntryWindow {
        EntryWindow {
            start: 0,
            len: 0,
            value_ends: [0; WINDOW_ENTRIES_MAX + 1],
            key_prefixes: [0; WINDOW_ENTRIES_MAX],
            visible_puts: 0,
            new_keys: 0,
        }
    }
    /// It is of nothing from now on.
    #[inline]
    pub fn clear(&mut self) {
        self.len = 0;
    }
    /// The place of entry `entry` in it, if it is one of its entries.
    #[inline]
    fn position_of(&self, entry: usize) -> Option<usize> {
        let i = entry.wrapping_sub(self.start);
        (i < self.len).then_some(i)
    }
    /// The stored value of that entry, if it is a plain put that the reader sees.
    #[inline]
    pub fn visible_put<'b>(&self, block: &'b TableBlock, entry: usize) -> Option<&'b [u8]> {
        let i = self.position_of(entry).filter(|i| self.visible_puts >> i & 1 == 1)?;
        Some(block.bytes(self.value_ends[i] as usize..self.value_ends[i + 1] as usize))
    }

    /// How many entries behind `entry` (or, not `forward`, from `entry` down) are clear: a walk may
    /// show them one after the other. All of them are before (behind) `limit`, if there is one.
    /// Fewer may be said. `at`: the reader's number; `None`: a reader that sees all entries of the
    /// block.
    pub fn count_clear_ahead(
        &mut self,
        (block, order): (&TableBlock, KeyComparator),
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
            self.decode(block, order, window_range(block, next, forward), at);
        }
        let i = next - self.start;
        let limit = limit.map(|key| key.key_prefix(order, block.prefix()));
        let clear = self.visible_puts & self.new_keys;
        if forward {
            let count = ((clear >> i).trailing_ones() as usize).min(self.len - i);
            let heads = &self.key_prefixes[i..i + count];
            limit.map_or(count, |limit| count_leading(heads.iter(), |head| *head < limit))
        } else {
            let count = ((clear << (63 - i)).leading_ones() as usize).min(i + 1);
            let heads = &self.key_prefixes[i + 1 - count..=i];
            limit.map_or(count, |limit| count_leading(heads.iter().rev(), |head| *head > limit))
        }
    }

    /// Learns of the entries around `entry`, at least of those next to it on the way; `at` as
    /// above.
    #[inline]
    pub fn decode_around(
        &mut self,
        (block, order): (&TableBlock, KeyComparator),
        entry: usize,
        forward: bool,
        at: Option<SeqNo>,
    ) {
        let next = if forward { block.len().min(entry + 2) - 1 } else { entry.saturating_sub(1) };
        if self.position_of(entry).is_none() || self.position_of(next).is_none() {
            self.decode(block, order, window_range(block, entry, forward), at);
        }
    }
    /// What it knows of the entries around `entry`, if it is one of its own.
    #[inline]
    pub fn view<'a>(&'a self, block: &'a TableBlock, entry: usize) -> Option<EntryWindowView<'a>> {
        let (heads, here) = (&self.key_prefixes[..self.len], self.position_of(entry)?);
        Some(EntryWindowView {
            prefix: block.prefix(),
            key_prefixes: heads,
            visible_puts: self.visible_puts,
            new_keys: self.new_keys,
            position: here,
        })
    }

    fn decode(
        &mut self,
        block: &TableBlock,
        order: KeyComparator,
        range: Range<usize>,
        at: Option<SeqNo>,
    ) {
        (self.start, self.len) = (range.start, range.len());
        let (layout, raw) = (block.layout(), block.buffer());
        self.value_ends[0] = layout.value_range(raw, range.start).start as u32;
        layout.value_ends.for_each(raw, range.clone(), |i, end| {
            self.value_ends[i + 1 - range.start] = (layout.values_start as u64 + end) as u32;
        });
        self.new_keys = self.load_key_prefixes(block, order);
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

    /// Takes the heads; the bits of entries whose key is not that of the entry before.
    fn load_key_prefixes(&mut self, block: &TableBlock, order: KeyComparator) -> u64 {
        let mut start = block.suffix_range(self.start).start;
        let mut last = match self.start.checked_sub(1) {
            Some(before) => block.suffix(before),
            None => &[],
        };
        let mut last_head = KeyRef::from_key(last).key_prefix(order, &[]);
        let mut differ = 0;
        block.layout().key_ends.for_each(
            block.buffer(),
            self.start..self.start + self.len,
            |i, end| {
                let end = block.layout().suffixes_start + end as usize;
                let suffix = block.bytes(start..end);
                let head = KeyRef::from_key(suffix).key_prefix(order, &[]);
                let another = i > 0 && (head != last_head || !order.keys_equal(suffix, last));
                differ |= u64::from(another) << (i - self.start);
                self.key_prefixes[i - self.start] = head;
                (last, last_head, start) = (suffix, head, end);
            },
        );
        differ
    }
}

/// The entries to decode for a way from `entry` on.
fn window_range(block: &TableBlock, entry: usize, forward: bool) -> Range<usize> {
    if forward {
        entry..block.len().min(entry + WINDOW_ENTRIES_MAX)
    } else {
        (entry + 1).saturating_sub(WINDOW_ENTRIES_MAX)..entry + 1
    }
}

/// How many of the heads pass; the last one is asked first.
#[inline]
fn count_leading<'h>(
    heads: impl DoubleEndedIterator<Item = &'h u64> + ExactSizeIterator + Clone,
    pass: impl Fn(&u64) -> bool,
) -> usize {
    match heads.clone().next_back() {
        Some(last) if pass(last) => heads.len(),
        _ => heads.take_while(|head| pass(head)).count(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::writer::BlockWriter;
    use crate::testing::TestRng;

    type WindowTestEntry = (Vec<u8>, SeqNo, EntryKind, Vec<u8>);

    fn entries(rng: &mut TestRng, order: KeyComparator, case: u64) -> Vec<WindowTestEntry> {
        let start: &[u8] = if case % 3 == 0 { b"a long way into the tree/" } else { b"" };
        let mut keys: Vec<Vec<u8>> = (0..1 + rng.below(150))
            .map(|_| {
                let long = rng.below(2) * 9;
                let end = rng.below(4) as usize;
                [start, &b"ABab01234567"[..long as usize], &rng.bytes(end)].concat()
            })
            .collect();
        keys.sort_by(|a, b| order.cmp(a, b));
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

    fn block(order: KeyComparator, entries: &[WindowTestEntry]) -> TableBlock {
        let mut w = BlockWriter::new(order);
        entries.iter().for_each(|(k, seq, kind, v)| w.add_raw(k, *seq, *kind, v));
        let mut raw = Vec::new();
        w.finish(&mut raw);
        raw.resize(raw.len() + TableBlock::SLACK, 0);
        TableBlock::parse(raw).unwrap()
    }

    /// Against a walk that asks each entry everything.
    #[test]
    fn count_clear_ahead_respects_visibility_and_limit() {
        let mut rng = TestRng::new(21);
        for order in [
            KeyComparator::Bytes,
            KeyComparator::Reverse,
            KeyComparator::U64,
            KeyComparator::CaseInsensitive,
        ] {
            let (mut said, mut there) = (0, 0);
            for case in 0..400 {
                let entries = entries(&mut rng, order, case);
                let block = block(order, &entries);
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
                            order.cmp(key, l).is_lt() == forward && !order.keys_equal(key, l)
                        });
                        *kind == EntryKind::Put
                            && at.is_none_or(|at| *seq <= at)
                            && i > 0
                            && !order.keys_equal(key, &entries[i - 1].0)
                            && side
                    };
                    let want = if forward {
                        (entry + 1..block.len()).take_while(|i| clear(*i)).count()
                    } else {
                        (0..=entry).rev().take_while(|i| clear(*i)).count()
                    };
                    let got = w.count_clear_ahead(
                        (&block, order),
                        entry,
                        forward,
                        at,
                        limit.map(KeyRef::from_key),
                    );
                    assert!(got <= want, "{order:?} {entry} {forward} {got} {want}");
                    (said, there) = (said + got, there + want);
                    for i in 0..got {
                        let i = if forward { entry + 1 + i } else { entry - i };
                        assert_eq!(w.visible_put(&block, i), Some(&entries[i].3[..]));
                    }
                }
            }
            assert!(
                said * 3 > there || order == KeyComparator::CaseInsensitive,
                "{order:?}: {said} of {there}"
            );
        }
    }

    #[test]
    fn cleared_window_returns_no_values() {
        let entries: Vec<WindowTestEntry> =
            (0..9u8).map(|i| (vec![i], SeqNo(3), EntryKind::Put, vec![i; 9])).collect();
        let block = block(KeyComparator::Bytes, &entries);
        let mut w = EntryWindow::new();
        assert_eq!(w.count_clear_ahead((&block, KeyComparator::Bytes), 0, true, None, None), 8);
        assert_eq!(w.count_clear_ahead((&block, KeyComparator::Bytes), 8, false, None, None), 8);
        assert_eq!(w.count_clear_ahead((&block, KeyComparator::Bytes), 8, true, None, None), 0);
        assert_eq!(w.visible_put(&block, 4), Some(&[4; 9][..]));
        w.clear();
        assert_eq!(w.visible_put(&block, 4), None);
    }
}
