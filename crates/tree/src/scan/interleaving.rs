//! Precomputes, for many entries ahead, the order in which sources supply the next entry: the work
//! that a merge does per step (choose, compare, classify) is done here in one loop over numbers.
//! Never moves a source.
//!
//! Invariant: a turn is recorded only for an entry that a reader sees without further checks: a
//! visible plain put whose key differs from all keys before it, and which is its newest version.
//! Key prefixes prove that keys differ if the prefixes do; within a block, the block records it for
//! adjacent entries. The sequence ends where two sources have equal prefixes, and where the next
//! entry of a source is unknown.

use super::cursor::{SourceCursor, SourceLookahead};
use crate::limits::{INTERLEAVED_PREFIXES_MAX, INTERLEAVED_SOURCES_MAX, INTERLEAVED_TURNS_MAX};
use perigee_base::{KeyComparator, KeyRef, SeqNo};
use perigee_file::EntryWindowView;

/// The sequence of turns: for each entry ahead, the index of the source that supplies it.
#[derive(Debug)]
pub struct Interleaving {
    turns: [u8; INTERLEAVED_TURNS_MAX],
    len: usize,
    next: usize,
    /// Per source, the key prefixes of the entries that may be used, ascending in scan direction,
    /// with the largest number as a sentinel.
    key_prefixes: Vec<[u64; INTERLEAVED_PREFIXES_MAX]>,
}

/// A source during the computation.
#[derive(Clone, Copy, Default)]
struct SourcePrefixes {
    source: u8,
    /// Number of its key prefixes.
    len: usize,
}

impl Interleaving {
    /// Creates an empty sequence.
    pub fn new() -> Interleaving {
        Interleaving {
            turns: [0; INTERLEAVED_TURNS_MAX],
            len: 0,
            next: 0,
            key_prefixes: Vec::new(),
        }
    }
    /// Sets `n` turns of one source; returns how many were set.
    #[inline]
    pub fn repeat_source(&mut self, source: usize, n: usize) -> usize {
        let n = u8::try_from(source).map_or(0, |_| n.min(INTERLEAVED_TURNS_MAX));
        self.turns[..n].fill(source as u8);
        (self.len, self.next) = (n, 0);
        n
    }
    /// Takes the source of the next turn.
    #[inline]
    pub fn next_source(&mut self) -> Option<usize> {
        let source = *self.turns[..self.len].get(self.next)?;
        self.next += 1;
        Some(usize::from(source))
    }
    /// Returns the source of the `n`th turn from now, and the number of turns up to there that
    /// belong to the same source.
    pub fn nth_turn(&self, n: usize) -> Option<(usize, usize)> {
        let turns = &self.turns[self.next..self.len];
        let source = *turns.get(n.checked_sub(1)?)?;
        Some((usize::from(source), turns[..n].iter().filter(|s| **s == source).count()))
    }

    /// Computes the turns ahead; returns their number. `standing`: in a forward scan, the source
    /// that is on the entry being shown, all others being after it; `None`: in a backward scan,
    /// where all sources are before it already.
    pub fn find_turns(
        &mut self,
        sources: &mut [SourceCursor],
        comparator: KeyComparator,
        standing: Option<usize>,
        at: SeqNo,
    ) -> usize {
        let mut ahead = [SourceLookahead::Exhausted; INTERLEAVED_SOURCES_MAX];
        if sources.len() > INTERLEAVED_SOURCES_MAX {
            return self.repeat_source(0, 0);
        }
        for (slot, source) in ahead.iter_mut().zip(sources) {
            *slot = source.lookahead(standing.is_some(), at);
        }
        self.interleave(&ahead, comparator, standing)
    }

    /// Computes the turns from the known entries of each source.
    fn interleave(
        &mut self,
        sources: &[SourceLookahead<'_>],
        comparator: KeyComparator,
        standing: Option<usize>,
    ) -> usize {
        (self.len, self.next) = (0, 0);
        let forward = standing.is_some();
        let common = common_block_prefix(sources);
        // The turns end before this key prefix.
        let mut limit = u64::MAX;
        let (mut lanes, mut count, mut shown) =
            ([SourcePrefixes::default(); INTERLEAVED_SOURCES_MAX], 0, None);
        for (i, source) in sources.iter().enumerate() {
            match source {
                SourceLookahead::Exhausted => {}
                SourceLookahead::KeyOnly(key) => {
                    let prefix = key.key_prefix(comparator, common);
                    limit = limit.min(if forward { prefix } else { !prefix });
                }
                SourceLookahead::Known(window) => {
                    let sequence = PrefixSequence::from_window(
                        window,
                        common.len(),
                        forward,
                        standing == Some(i),
                    );
                    if standing == Some(i) {
                        shown = Some(sequence.comparable_prefix(window.position));
                    }
                    if self.key_prefixes.len() == count {
                        self.key_prefixes.push([0; INTERLEAVED_PREFIXES_MAX]);
                    }
                    let (len, end) = sequence.write_prefixes(&mut self.key_prefixes[count]);
                    lanes[count] = SourcePrefixes { source: i as u8, len };
                    (count, limit) = (count + 1, limit.min(end));
                }
            }
        }
        // Going forward, an entry that is not after the one being shown may be an older version of
        // it. (For the source that is on the shown entry, the block has ruled this out.)
        let may_be_older = |lane: &SourcePrefixes, prefix: u64| {
            lane.len > 0
                && standing != Some(usize::from(lane.source))
                && shown.is_none_or(|s| prefix <= s)
        };
        if forward
            && lanes[..count]
                .iter()
                .zip(&self.key_prefixes)
                .any(|(lane, prefixes)| may_be_older(lane, prefixes[0]))
        {
            return 0;
        }
        let mut sum = 0;
        for (lane, prefixes) in lanes[..count].iter().zip(&mut self.key_prefixes) {
            let n = prefixes[..lane.len].partition_point(|prefix| *prefix < limit);
            check_slow!(n < INTERLEAVED_PREFIXES_MAX, "a place is left that ends the prefixes", n);
            prefixes[n] = u64::MAX;
            sum += n;
        }
        let source_ids = lanes.map(|lane| lane.source);
        self.len = match count {
            0..=2 => self.merge_prefixes::<2>(count, sum, source_ids),
            3..=4 => self.merge_prefixes::<4>(count, sum, source_ids),
            _ => self.merge_prefixes::<INTERLEAVED_SOURCES_MAX>(count, sum, source_ids),
        };
        check_slow!(
            self.turns[..self.len].iter().all(|turn| usize::from(*turn) < sources.len()),
            "a turn belongs to a source",
            sources.len()
        );
        self.len
    }

    /// Repeatedly takes the smallest prefix of `count` sources, at most `sum` times; ends before a
    /// prefix that two of them share. Has no branches that depend on prefixes, as the order of
    /// sources is unpredictable.
    fn merge_prefixes<const N: usize>(
        &mut self,
        count: usize,
        sum: usize,
        source_ids: [u8; INTERLEAVED_SOURCES_MAX],
    ) -> usize {
        const NONE: [u64; INTERLEAVED_PREFIXES_MAX] = [u64::MAX; INTERLEAVED_PREFIXES_MAX];
        let lanes: [&[u64; INTERLEAVED_PREFIXES_MAX]; N] = std::array::from_fn(|i| {
            self.key_prefixes.get(i).filter(|_| i < count).unwrap_or(&NONE)
        });
        let mut at = [0; N];
        for (n, turn) in self.turns[..sum.min(INTERLEAVED_TURNS_MAX)].iter_mut().enumerate() {
            let prefixes: [u64; N] = std::array::from_fn(|i| lanes[i][at[i]]);
            let least = prefixes.iter().fold(u64::MAX, |least, prefix| least.min(*prefix));
            let (mut takers, mut taker) = (0, 0);
            for i in 0..N {
                let takes = usize::from(prefixes[i] == least);
                at[i] = INTERLEAVED_PREFIXES_MAX.min(at[i] + takes + 1) - 1;
                takers += takes;
                taker += takes * i;
            }
            if takers != 1 {
                return n;
            }
            *turn = source_ids[taker];
        }
        sum.min(INTERLEAVED_TURNS_MAX)
    }
}

/// Returns the common prefix of the keys in all blocks.
fn common_block_prefix<'a>(sources: &[SourceLookahead<'a>]) -> &'a [u8] {
    let mut prefixes = sources.iter().filter_map(|source| match source {
        SourceLookahead::Known(window) => Some(window.prefix),
        _ => None,
    });
    let first = prefixes.next().unwrap_or(&[]);
    let n = prefixes
        .fold(first.len(), |n, prefix| KeyRef::from_key(prefix).common_prefix_len(&first[..n]));
    &first[..n]
}

/// Key prefixes of a source, as numbers that ascend in scan direction and are comparable with those
/// of other sources.
struct PrefixSequence<'a> {
    key_prefixes: &'a [u64],
    /// The first entry ahead, and the number of entries that may be used from there.
    first: usize,
    count: usize,
    /// The part of the block's prefix that is not common to all blocks, as the leading bits of all
    /// its key prefixes, and the number of these bits.
    lead: u64,
    shift: u32,
    forward: bool,
}

impl<'a> PrefixSequence<'a> {
    #[inline]
    fn from_window(
        window: &EntryWindowView<'a>,
        common: usize,
        forward: bool,
        is_standing: bool,
    ) -> PrefixSequence<'a> {
        let rest = &window.prefix[common..];
        let lead = if rest.is_empty() {
            0
        } else {
            KeyRef::from_key(rest).key_prefix(KeyComparator::Bytes, &[])
        };
        let shift = 8 * rest.len().min(8) as u32;
        let EntryWindowView { key_prefixes, visible_puts, new_keys, position, .. } = *window;
        let first = position + usize::from(is_standing);
        let count = if first >= key_prefixes.len() {
            0
        } else if forward {
            // The current entry is after all that was shown: its key is new without proof by the
            // block.
            let new_keys = new_keys | u64::from(!is_standing) << first;
            (((visible_puts & new_keys) >> first).trailing_ones() as usize)
                .min(key_prefixes.len() - first)
        } else {
            (((visible_puts & new_keys) << (63 - first)).leading_ones() as usize).min(first + 1)
        };
        check_slow!(
            if forward { first + count <= key_prefixes.len() } else { count <= first + 1 }
                || count == 0,
            "a sequence lies inside its window",
            first,
            count
        );
        PrefixSequence { key_prefixes, first, count, lead, shift, forward }
    }
    /// Returns a key prefix after the bytes common to all blocks.
    #[inline]
    fn comparable_prefix(&self, i: usize) -> u64 {
        let prefix = self.lead | self.key_prefixes[i].checked_shr(self.shift).unwrap_or(0);
        if self.forward { prefix } else { !prefix }
    }
    /// Writes the key prefixes that may be used; returns their number, and the smallest prefix
    /// before which turns must end.
    #[inline]
    fn write_prefixes(&self, out: &mut [u64; INTERLEAVED_PREFIXES_MAX]) -> (usize, u64) {
        let (first, n) = (self.first, self.count);
        let end = if self.forward {
            out.iter_mut()
                .zip(first..first + n)
                .for_each(|(out, i)| *out = self.comparable_prefix(i));
            Some(first + n).filter(|end| *end < self.key_prefixes.len())
        } else {
            out.iter_mut()
                .zip((0..=first).rev().take(n))
                .for_each(|(out, i)| *out = self.comparable_prefix(i));
            first.checked_sub(n)
        };
        match end {
            Some(end) => (n, self.comparable_prefix(end)),
            // The entry after the last one is unknown.
            None => (n, n.checked_sub(1).map_or(0, |last| out[last].saturating_add(1))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next_random(x: &mut u64) -> u64 {
        *x ^= *x << 13;
        *x ^= *x >> 7;
        *x ^= *x << 17;
        *x
    }

    /// Returns a random key; some occur in several sources, some several times in one, and some
    /// differ only after their prefixes.
    fn random_key(x: &mut u64, kind: u64) -> Vec<u8> {
        let start: &[u8] =
            [&b""[..], b"p/", b"a/long/way/in/"][(next_random(x) % (kind + 1)) as usize];
        let end = (next_random(x) % [200, 5000][(next_random(x) % 2) as usize]) as u16;
        [start, &end.to_be_bytes()].concat()
    }

    /// A block of a source: its keys in order, flags for visible puts and new keys, the common
    /// prefix, and the key prefixes.
    struct TestBlock {
        keys: Vec<Vec<u8>>,
        visible_puts: u64,
        new_keys: u64,
        prefix: Vec<u8>,
        key_prefixes: Vec<u64>,
        position: usize,
    }

    fn random_block(x: &mut u64, kind: u64, position: Option<usize>) -> TestBlock {
        let n = 1 + next_random(x) as usize % (INTERLEAVED_PREFIXES_MAX - 1);
        let mut keys: Vec<Vec<u8>> = (0..n).map(|_| random_key(x, kind)).collect();
        keys.sort();
        let mut prefix = keys[0].clone();
        prefix.truncate(KeyRef::from_key(&keys[n - 1]).common_prefix_len(&prefix));
        let prefix_of = |k: &Vec<u8>| {
            KeyRef::from_key(&k[prefix.len()..]).key_prefix(KeyComparator::Bytes, &[])
        };
        let key_prefixes = keys.iter().map(prefix_of).collect();
        let new_keys = (1..n).filter(|i| keys[*i] != keys[i - 1]).fold(0, |bits, i| bits | 1 << i);
        let visible_puts =
            (0..n).filter(|_| next_random(x) % 40 > 0).fold(0, |bits, i| bits | 1 << i);
        let position = position.unwrap_or_else(|| next_random(x) as usize % n);
        TestBlock { keys, visible_puts, new_keys, prefix, key_prefixes, position }
    }

    impl TestBlock {
        fn lookahead(&self) -> SourceLookahead<'_> {
            let TestBlock { prefix, key_prefixes, visible_puts, new_keys, position, .. } = self;
            SourceLookahead::Known(EntryWindowView {
                prefix,
                key_prefixes,
                visible_puts: *visible_puts,
                new_keys: *new_keys,
                position: *position,
            })
        }
    }

    /// Compared with a merge by whole keys: every entry taken is the next of all sources, is a put,
    /// and shares its key with no other entry before or after it.
    #[test]
    fn interleaving_matches_merge_by_whole_keys() {
        let (mut x, mut taken, mut possible) = (77, 0, 0);
        for case in 0..20_000u64 {
            let x = &mut x;
            let (forward, count, kind) =
                (case % 2 == 0, 1 + next_random(x) as usize % 4, next_random(x) % 3);
            let mut blocks: Vec<TestBlock> =
                (0..count).map(|_| random_block(x, kind, None)).collect();
            let limit = (next_random(x) % 3 == 0).then(|| random_key(x, kind));
            let mut standing = None;
            if forward {
                // All other sources are after the entry being shown.
                let shown = blocks[0].keys[blocks[0].position].clone();
                blocks.iter_mut().skip(1).for_each(|b| {
                    b.position = b.keys.partition_point(|k| *k < shown);
                });
                blocks.retain(|b| b.position < b.keys.len());
                standing = Some(0);
            }
            let mut ahead: Vec<SourceLookahead<'_>> =
                blocks.iter().map(TestBlock::lookahead).collect();
            let shown = blocks[0].keys[blocks[0].position].clone();
            if let Some(key) = limit.as_ref().filter(|key| !forward || **key > shown) {
                ahead.push(SourceLookahead::KeyOnly(KeyRef::from_key(key)));
            }
            ahead.extend([SourceLookahead::Exhausted, SourceLookahead::Exhausted]);
            let mut turns = Interleaving::new();
            let n = turns.interleave(&ahead, KeyComparator::Bytes, standing);
            let mut at: Vec<Option<usize>> = blocks.iter().map(|b| Some(b.position)).collect();
            let mut last = forward.then_some(shown);
            if forward {
                at[0] = Some(blocks[0].position + 1);
            }
            for turn in 0..n {
                assert_eq!(turns.nth_turn(1).unwrap().1, 1);
                let i = turns.next_source().unwrap();
                let here = at[i].unwrap();
                let key = &blocks[i].keys[here];
                assert!(blocks[i].visible_puts >> here & 1 == 1, "{case}");
                assert!(last.as_ref().is_none_or(|l| l != key && (l < key) == forward), "{case}");
                let before = |other: &Vec<u8>| if forward { key < other } else { key > other };
                if let SourceLookahead::KeyOnly(limit) = &ahead[blocks.len()] {
                    assert!(before(&limit.suffix.to_vec()), "{case}");
                }
                for (j, other) in blocks.iter().enumerate().filter(|(j, _)| *j != i) {
                    assert!(at[j].is_none_or(|at| before(&other.keys[at])), "{case} turn {turn}");
                }
                at[i] = if forward { Some(here + 1) } else { here.checked_sub(1) };
                if !forward {
                    assert!(
                        here > 0 && blocks[i].keys[here - 1] != *key,
                        "{case}: newer versions follow"
                    );
                }
                assert!(
                    at[i].is_some_and(|at| at < blocks[i].keys.len()) || turn + 1 == n,
                    "{case}"
                );
                last = Some(key.clone());
            }
            assert_eq!(turns.next_source(), None);
            taken += n;
            possible += blocks.iter().map(|b| b.keys.len()).sum::<usize>() / 4;
        }
        assert!(taken * 5 > possible, "{taken} of {possible}");
    }

    #[test]
    fn repeat_source_yields_one_source() {
        let mut turns = Interleaving::new();
        assert_eq!(
            (
                turns.repeat_source(3, 1000),
                turns.nth_turn(INTERLEAVED_TURNS_MAX),
                turns.nth_turn(INTERLEAVED_TURNS_MAX + 1)
            ),
            (INTERLEAVED_TURNS_MAX, Some((3, INTERLEAVED_TURNS_MAX)), None)
        );
        assert_eq!((turns.next_source(), turns.nth_turn(9)), (Some(3), Some((3, 9))));
        assert_eq!((turns.repeat_source(300, 5), turns.next_source()), (0, None));
    }
}
