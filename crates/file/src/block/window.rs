//! Some entries of a block that follow each other, decoded at once for a walk: where their values lie, and which of
//! them a reader may be shown without a closer look. Must not know other blocks.
//!
//! Invariant: what it says holds for the block, the reader and the order that it was decoded for; whoever keeps it
//! [forgets](Window::forget) it when the block goes.

use super::Block;
use perigee_base::{EntryKind, KeyOrder, KeyRef, SeqNo};
use std::ops::Range;

/// Most entries of a window: a block of the usual size holds fewer.
const ENTRIES: usize = 64;

/// The entries, by their numbers in the block.
#[derive(Debug)]
pub struct Window {
    start: usize,
    len: usize,
    /// Value `start + i` lies between ends i and i + 1, in bytes of the block's buffer.
    value_ends: [u32; ENTRIES + 1],
    /// What a comparison of suffixes begins with; see [`KeyRef::head`].
    heads: [u64; ENTRIES],
    /// Bit i: entry `start + i` is a plain put that the reader sees.
    puts: u64,
    /// Bit i: its key is not that of the entry before it in the block; never of the first entry, of which nobody knows here
    /// whether the block before ends with its key.
    differ: u64,
}

/// A window as a merge of several sources sees it: what is known of the entries around the one that a cursor is on.
#[derive(Clone, Copy, Debug)]
pub struct Strand<'a> {
    /// What all keys of the block begin with.
    pub prefix: &'a [u8],
    /// The heads of the keys without that, of the entries that are known.
    pub heads: &'a [u64],
    /// Which of them are plain puts that the reader sees: bit i for head i.
    pub puts: u64,
    /// Which of them certainly have another key than the entry before.
    pub differ: u64,
    /// The entry that the cursor is on.
    pub here: usize,
}

impl Window {
    /// Of nothing.
    pub fn new() -> Window {
        Window { start: 0, len: 0, value_ends: [0; ENTRIES + 1], heads: [0; ENTRIES], puts: 0, differ: 0 }
    }
    /// It is of nothing from now on.
    #[inline]
    pub fn forget(&mut self) {
        self.len = 0;
    }
    /// The place of entry `entry` in it, if it is one of its entries.
    #[inline]
    fn at(&self, entry: usize) -> Option<usize> {
        let i = entry.wrapping_sub(self.start);
        (i < self.len).then_some(i)
    }
    /// The stored value of that entry, if it is a plain put that the reader sees.
    #[inline]
    pub fn put<'b>(&self, block: &'b Block, entry: usize) -> Option<&'b [u8]> {
        let i = self.at(entry).filter(|i| self.puts >> i & 1 == 1)?;
        Some(block.bytes(self.value_ends[i] as usize..self.value_ends[i + 1] as usize))
    }

    /// How many entries behind `entry` (or, not `forward`, from `entry` down) are clear: a walk may show them one after the
    /// other. All of them are before (behind) `limit`, if there is one. Fewer may be said. `at`: the reader's number; `None`:
    /// a reader that sees all entries of the block.
    pub fn clear_ahead(
        &mut self,
        (block, order): (&Block, KeyOrder),
        entry: usize,
        forward: bool,
        at: Option<SeqNo>,
        limit: Option<KeyRef<'_>>,
    ) -> usize {
        let next = if forward { entry + 1 } else { entry };
        if next == 0 || next >= block.len() {
            return 0;
        }
        if self.at(next).is_none() {
            self.decode(block, order, range(block, next, forward), at);
        }
        let i = next - self.start;
        let limit = limit.map(|key| key.head(order, block.prefix()));
        let clear = self.puts & self.differ;
        if forward {
            let count = ((clear >> i).trailing_ones() as usize).min(self.len - i);
            let heads = &self.heads[i..i + count];
            limit.map_or(count, |limit| before(heads.iter(), |head| *head < limit))
        } else {
            let count = ((clear << (63 - i)).leading_ones() as usize).min(i + 1);
            let heads = &self.heads[i + 1 - count..=i];
            limit.map_or(count, |limit| before(heads.iter().rev(), |head| *head > limit))
        }
    }

    /// Learns of the entries around `entry`, at least of those next to it on the way; `at` as above.
    #[inline]
    pub fn look_around(
        &mut self,
        (block, order): (&Block, KeyOrder),
        entry: usize,
        forward: bool,
        at: Option<SeqNo>,
    ) {
        let next = if forward { block.len().min(entry + 2) - 1 } else { entry.saturating_sub(1) };
        if self.at(entry).is_none() || self.at(next).is_none() {
            self.decode(block, order, range(block, entry, forward), at);
        }
    }
    /// What it knows of the entries around `entry`, if it is one of its own.
    #[inline]
    pub fn strand<'a>(&'a self, block: &'a Block, entry: usize) -> Option<Strand<'a>> {
        let (heads, here) = (&self.heads[..self.len], self.at(entry)?);
        Some(Strand { prefix: block.prefix(), heads, puts: self.puts, differ: self.differ, here })
    }

    fn decode(&mut self, block: &Block, order: KeyOrder, range: Range<usize>, at: Option<SeqNo>) {
        (self.start, self.len) = (range.start, range.len());
        let (layout, raw) = (block.layout(), block.buffer());
        self.value_ends[0] = layout.value_range(raw, range.start).start as u32;
        layout.value_ends.each(raw, range.clone(), |i, end| {
            self.value_ends[i + 1 - range.start] = (layout.values as u64 + end) as u32;
        });
        self.differ = self.compare(block, order);
        self.puts = u64::MAX;
        if let Some(at) = at.filter(|at| layout.seqs.constant().is_none_or(|seq| seq > at.0)) {
            layout.seqs.each(raw, range.clone(), |i, seq| {
                self.puts &= !(u64::from(seq > at.0) << (i - range.start));
            });
        }
        if !layout.all_puts {
            layout.kinds.each(raw, range.clone(), |i, kind| {
                let other = kind != u64::from(EntryKind::Put.code());
                self.puts &= !(u64::from(other) << (i - range.start));
            });
        }
    }

    /// Takes the heads; the bits of entries whose key is not that of the entry before.
    fn compare(&mut self, block: &Block, order: KeyOrder) -> u64 {
        let mut start = block.suffix_place(self.start).start;
        let mut last = match self.start.checked_sub(1) {
            Some(before) => block.suffix(before),
            None => &[],
        };
        let mut last_head = KeyRef::whole(last).head(order, &[]);
        let mut differ = 0;
        block.layout().key_ends.each(block.buffer(), self.start..self.start + self.len, |i, end| {
            let end = block.layout().suffixes + end as usize;
            let suffix = block.bytes(start..end);
            let head = KeyRef::whole(suffix).head(order, &[]);
            let another = i > 0 && (head != last_head || !order.equal(suffix, last));
            differ |= u64::from(another) << (i - self.start);
            self.heads[i - self.start] = head;
            (last, last_head, start) = (suffix, head, end);
        });
        differ
    }
}

/// The entries to decode for a way from `entry` on.
fn range(block: &Block, entry: usize, forward: bool) -> Range<usize> {
    if forward {
        entry..block.len().min(entry + ENTRIES)
    } else {
        (entry + 1).saturating_sub(ENTRIES)..entry + 1
    }
}

/// How many of the heads pass; the last one is asked first.
#[inline]
fn before<'h>(
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
    use crate::testing::Rng;

    type Entry = (Vec<u8>, SeqNo, EntryKind, Vec<u8>);

    fn entries(rng: &mut Rng, order: KeyOrder, case: u64) -> Vec<Entry> {
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
                let kind = if plain || rng.below(4) > 0 { EntryKind::Put } else { EntryKind::Delete };
                let len = if kind == EntryKind::Put { rng.below(300) as usize } else { 0 };
                let value = rng.bytes(len);
                (key, SeqNo(seq), kind, value)
            })
            .collect()
    }

    fn block(order: KeyOrder, entries: &[Entry]) -> Block {
        let mut w = BlockWriter::new(order);
        entries.iter().for_each(|(k, seq, kind, v)| w.add_raw(k, *seq, *kind, v));
        let mut raw = Vec::new();
        w.finish(&mut raw);
        raw.resize(raw.len() + Block::SLACK, 0);
        Block::parse(raw).unwrap()
    }

    /// Against a walk that asks each entry everything.
    #[test]
    fn what_is_clear_is_seen_by_the_reader_and_lies_before_the_limit() {
        let mut rng = Rng::new(21);
        for order in [KeyOrder::Bytes, KeyOrder::Reverse, KeyOrder::U64, KeyOrder::CaseInsensitive] {
            let (mut said, mut there) = (0, 0);
            for case in 0..400 {
                let entries = entries(&mut rng, order, case);
                let block = block(order, &entries);
                let at = [None, Some(SeqNo(2000)), Some(SeqNo(940))][rng.below(3) as usize];
                let mut w = Window::new();
                for _ in 0..40 {
                    let (entry, forward) = (rng.below(block.len() as u64) as usize, rng.below(2) == 0);
                    let limit = entries[rng.below(block.len() as u64) as usize].0.clone();
                    let limit = (rng.below(2) == 0).then_some(&limit[..]);
                    let clear = |i: usize| {
                        let (key, seq, kind, _) = &entries[i];
                        let side = limit
                            .is_none_or(|l| order.cmp(key, l).is_lt() == forward && !order.equal(key, l));
                        *kind == EntryKind::Put
                            && at.is_none_or(|at| *seq <= at)
                            && i > 0
                            && !order.equal(key, &entries[i - 1].0)
                            && side
                    };
                    let want = if forward {
                        (entry + 1..block.len()).take_while(|i| clear(*i)).count()
                    } else {
                        (0..=entry).rev().take_while(|i| clear(*i)).count()
                    };
                    let got = w.clear_ahead((&block, order), entry, forward, at, limit.map(KeyRef::whole));
                    assert!(got <= want, "{order:?} {entry} {forward} {got} {want}");
                    (said, there) = (said + got, there + want);
                    for i in 0..got {
                        let i = if forward { entry + 1 + i } else { entry - i };
                        assert_eq!(w.put(&block, i), Some(&entries[i].3[..]));
                    }
                }
            }
            assert!(said * 3 > there || order == KeyOrder::CaseInsensitive, "{order:?}: {said} of {there}");
        }
    }

    #[test]
    fn a_window_that_forgot_knows_nothing() {
        let entries: Vec<Entry> = (0..9u8).map(|i| (vec![i], SeqNo(3), EntryKind::Put, vec![i; 9])).collect();
        let block = block(KeyOrder::Bytes, &entries);
        let mut w = Window::new();
        assert_eq!(w.clear_ahead((&block, KeyOrder::Bytes), 0, true, None, None), 8);
        assert_eq!(w.clear_ahead((&block, KeyOrder::Bytes), 8, false, None, None), 8);
        assert_eq!(w.clear_ahead((&block, KeyOrder::Bytes), 8, true, None, None), 0);
        assert_eq!(w.put(&block, 4), Some(&[4; 9][..]));
        w.forget();
        assert_eq!(w.put(&block, 4), None);
    }
}
