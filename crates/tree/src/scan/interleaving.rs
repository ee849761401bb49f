//! Which sources take turns on the way ahead, found out for many entries at once: what a merge does
//! at every step (choose, compare, ask what the entry is) is done here in one loop over numbers.
//! Must not move a source.
//!
//! Invariant: only entries are taken that a reader is shown without another look: plain puts that
//! it sees, each of another key than all before, none of whose versions is newer. Heads say so
//! where they differ, or the block, of neighbours in it. Where heads of two sources are equal, and
//! where nothing is known of a source's next entry, it ends.

use super::cursor::{SourceCursor, SourceLookahead};
use perigee_base::{KeyComparator, KeyRef, SeqNo};
use perigee_file::EntryWindowView;

/// Most turns at a time.
const TURNS_MAX: usize = 128;
/// Most sources among which turns are found.
const SOURCES_MAX: usize = 8;
/// Most entries of a source at a time, and one that ends them.
const PREFIXES_MAX: usize = 65;

/// Whose turn it is, entry after entry: the numbers of sources.
#[derive(Debug)]
pub struct Interleaving {
    turns: [u8; TURNS_MAX],
    len: usize,
    next: usize,
    /// For each source the heads of the entries that may be taken, ascending on the way, and the
    /// largest number behind them.
    key_prefixes: Vec<[u64; PREFIXES_MAX]>,
}

/// A source while it is looked at.
#[derive(Clone, Copy, Default)]
struct SourcePrefixes {
    source: u8,
    /// How many of its heads are known.
    len: usize,
}

impl Interleaving {
    /// None.
    pub fn new() -> Interleaving {
        Interleaving { turns: [0; TURNS_MAX], len: 0, next: 0, key_prefixes: Vec::new() }
    }
    /// The same source `n` times in a row; how many it is.
    #[inline]
    pub fn repeat_source(&mut self, source: usize, n: usize) -> usize {
        let n = u8::try_from(source).map_or(0, |_| n.min(TURNS_MAX));
        self.turns[..n].fill(source as u8);
        (self.len, self.next) = (n, 0);
        n
    }
    /// The next one.
    #[inline]
    pub fn next_source(&mut self) -> Option<usize> {
        let source = *self.turns[..self.len].get(self.next)?;
        self.next += 1;
        Some(usize::from(source))
    }
    /// The source whose turn is the `n`th from now, and how many of the turns up to there are its
    /// own.
    pub fn nth_turn(&self, n: usize) -> Option<(usize, usize)> {
        let turns = &self.turns[self.next..self.len];
        let source = *turns.get(n.checked_sub(1)?)?;
        Some((usize::from(source), turns[..n].iter().filter(|s| **s == source).count()))
    }

    /// Finds the turns ahead; how many there are. `standing`: going forward the source that is on
    /// the entry that is shown, all others being behind it; `None`: going backward, where all stand
    /// before it already.
    pub fn find_turns(
        &mut self,
        sources: &mut [SourceCursor],
        order: KeyComparator,
        standing: Option<usize>,
        at: SeqNo,
    ) -> usize {
        let mut ahead = [SourceLookahead::Exhausted; SOURCES_MAX];
        if sources.len() > SOURCES_MAX {
            return self.repeat_source(0, 0);
        }
        for (slot, source) in ahead.iter_mut().zip(sources) {
            *slot = source.lookahead(standing.is_some(), at);
        }
        self.interleave(&ahead, order, standing)
    }

    /// The same of what is known of them.
    fn interleave(
        &mut self,
        sources: &[SourceLookahead<'_>],
        order: KeyComparator,
        standing: Option<usize>,
    ) -> usize {
        (self.len, self.next) = (0, 0);
        let forward = standing.is_some();
        let common = common_block_prefix(sources);
        // The turns end before this head.
        let mut limit = u64::MAX;
        let (mut lanes, mut count, mut shown) = ([SourcePrefixes::default(); SOURCES_MAX], 0, None);
        for (i, source) in sources.iter().enumerate() {
            match source {
                SourceLookahead::Exhausted => {}
                SourceLookahead::KeyOnly(key) => {
                    let head = key.key_prefix(order, common);
                    limit = limit.min(if forward { head } else { !head });
                }
                SourceLookahead::Known(strand) => {
                    let way = PrefixSequence::from_strand(
                        strand,
                        common.len(),
                        forward,
                        standing == Some(i),
                    );
                    if standing == Some(i) {
                        shown = Some(way.comparable_prefix(strand.position));
                    }
                    if self.key_prefixes.len() == count {
                        self.key_prefixes.push([0; PREFIXES_MAX]);
                    }
                    let (len, end) = way.write_prefixes(&mut self.key_prefixes[count]);
                    lanes[count] = SourcePrefixes { source: i as u8, len };
                    (count, limit) = (count + 1, limit.min(end));
                }
            }
        }
        // Going forward: what is not behind the entry that is shown may be an older version of it.
        // (Of the source that is on it the block has said that it is not.)
        let may_be_older = |lane: &SourcePrefixes, head: u64| {
            lane.len > 0
                && standing != Some(usize::from(lane.source))
                && shown.is_none_or(|s| head <= s)
        };
        if forward
            && lanes[..count]
                .iter()
                .zip(&self.key_prefixes)
                .any(|(lane, heads)| may_be_older(lane, heads[0]))
        {
            return 0;
        }
        let mut sum = 0;
        for (lane, heads) in lanes[..count].iter().zip(&mut self.key_prefixes) {
            let n = heads[..lane.len].partition_point(|head| *head < limit);
            heads[n] = u64::MAX;
            sum += n;
        }
        let names = lanes.map(|lane| lane.source);
        self.len = match count {
            0..=2 => self.merge_prefixes::<2>(count, sum, names),
            3..=4 => self.merge_prefixes::<4>(count, sum, names),
            _ => self.merge_prefixes::<SOURCES_MAX>(count, sum, names),
        };
        self.len
    }

    /// Takes the least head of `count` sources again and again, `sum` times at most; it ends before
    /// one that two of them have. Without branches that depend on heads: nobody can tell whose turn
    /// it is.
    fn merge_prefixes<const N: usize>(
        &mut self,
        count: usize,
        sum: usize,
        names: [u8; SOURCES_MAX],
    ) -> usize {
        const NONE: [u64; PREFIXES_MAX] = [u64::MAX; PREFIXES_MAX];
        let lanes: [&[u64; PREFIXES_MAX]; N] = std::array::from_fn(|i| {
            self.key_prefixes.get(i).filter(|_| i < count).unwrap_or(&NONE)
        });
        let mut at = [0; N];
        for (n, turn) in self.turns[..sum.min(TURNS_MAX)].iter_mut().enumerate() {
            let heads: [u64; N] = std::array::from_fn(|i| lanes[i][at[i]]);
            let least = heads.iter().fold(u64::MAX, |least, head| least.min(*head));
            let (mut takers, mut taker) = (0, 0);
            for i in 0..N {
                let takes = usize::from(heads[i] == least);
                at[i] = PREFIXES_MAX.min(at[i] + takes + 1) - 1;
                takers += takes;
                taker += takes * i;
            }
            if takers != 1 {
                return n;
            }
            *turn = names[taker];
        }
        sum.min(TURNS_MAX)
    }
}

/// What the keys of all blocks begin with.
fn common_block_prefix<'a>(sources: &[SourceLookahead<'a>]) -> &'a [u8] {
    let mut prefixes = sources.iter().filter_map(|source| match source {
        SourceLookahead::Known(strand) => Some(strand.prefix),
        _ => None,
    });
    let first = prefixes.next().unwrap_or(&[]);
    let n = prefixes
        .fold(first.len(), |n, prefix| KeyRef::from_key(prefix).common_prefix_len(&first[..n]));
    &first[..n]
}

/// What is known of a source, as numbers that ascend on the way and can be compared with those of
/// other sources.
struct PrefixSequence<'a> {
    key_prefixes: &'a [u64],
    /// The first entry of the way, and how many may be taken from there.
    first: usize,
    count: usize,
    /// What heads begin with, the part of the block's prefix that not all blocks have in common,
    /// and so many bits.
    lead: u64,
    shift: u32,
    forward: bool,
}

impl<'a> PrefixSequence<'a> {
    #[inline]
    fn from_strand(
        strand: &EntryWindowView<'a>,
        common: usize,
        forward: bool,
        stands: bool,
    ) -> PrefixSequence<'a> {
        let rest = &strand.prefix[common..];
        let lead = if rest.is_empty() {
            0
        } else {
            KeyRef::from_key(rest).key_prefix(KeyComparator::Bytes, &[])
        };
        let shift = 8 * rest.len().min(8) as u32;
        let EntryWindowView {
            key_prefixes: heads,
            visible_puts: puts,
            new_keys: differ,
            position: here,
            ..
        } = *strand;
        let first = here + usize::from(stands);
        let count = if first >= heads.len() {
            0
        } else if forward {
            // The entry that it is on is behind all that was shown: it needs no word of the block.
            let differ = differ | u64::from(!stands) << first;
            (((puts & differ) >> first).trailing_ones() as usize).min(heads.len() - first)
        } else {
            (((puts & differ) << (63 - first)).leading_ones() as usize).min(first + 1)
        };
        PrefixSequence { key_prefixes: heads, first, count, lead, shift, forward }
    }
    /// A head behind what all blocks have in common.
    #[inline]
    fn comparable_prefix(&self, i: usize) -> u64 {
        let head = self.lead | self.key_prefixes[i].checked_shr(self.shift).unwrap_or(0);
        if self.forward { head } else { !head }
    }
    /// Lays down the heads that may be taken; how many, and the least head before which turns have
    /// to end.
    #[inline]
    fn write_prefixes(&self, out: &mut [u64; PREFIXES_MAX]) -> (usize, u64) {
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
            // Nobody knows what comes behind the last one.
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

    /// Keys of which some are in several sources, and some several times in one; some differ only
    /// behind their heads.
    fn random_key(x: &mut u64, kind: u64) -> Vec<u8> {
        let start: &[u8] =
            [&b""[..], b"p/", b"a/long/way/in/"][(next_random(x) % (kind + 1)) as usize];
        let end = (next_random(x) % [200, 5000][(next_random(x) % 2) as usize]) as u16;
        [start, &end.to_be_bytes()].concat()
    }

    /// A block of a source: its keys in order, which of them are clear puts, what they begin with,
    /// and their heads.
    struct TestBlock {
        keys: Vec<Vec<u8>>,
        visible_puts: u64,
        new_keys: u64,
        prefix: Vec<u8>,
        key_prefixes: Vec<u64>,
        position: usize,
    }

    fn random_block(x: &mut u64, kind: u64, here: Option<usize>) -> TestBlock {
        let n = 1 + next_random(x) as usize % (PREFIXES_MAX - 1);
        let mut keys: Vec<Vec<u8>> = (0..n).map(|_| random_key(x, kind)).collect();
        keys.sort();
        let mut prefix = keys[0].clone();
        prefix.truncate(KeyRef::from_key(&keys[n - 1]).common_prefix_len(&prefix));
        let head = |k: &Vec<u8>| {
            KeyRef::from_key(&k[prefix.len()..]).key_prefix(KeyComparator::Bytes, &[])
        };
        let heads = keys.iter().map(head).collect();
        let differ = (1..n).filter(|i| keys[*i] != keys[i - 1]).fold(0, |bits, i| bits | 1 << i);
        let puts = (0..n).filter(|_| next_random(x) % 40 > 0).fold(0, |bits, i| bits | 1 << i);
        let here = here.unwrap_or_else(|| next_random(x) as usize % n);
        TestBlock {
            keys,
            visible_puts: puts,
            new_keys: differ,
            prefix,
            key_prefixes: heads,
            position: here,
        }
    }

    impl TestBlock {
        fn lookahead(&self) -> SourceLookahead<'_> {
            let TestBlock {
                prefix,
                key_prefixes: heads,
                visible_puts: puts,
                new_keys: differ,
                position: here,
                ..
            } = self;
            SourceLookahead::Known(EntryWindowView {
                prefix,
                key_prefixes: heads,
                visible_puts: *puts,
                new_keys: *differ,
                position: *here,
            })
        }
    }

    /// Against comparing whole keys: every entry that is taken is the next of all, is a put, and
    /// shares its key with nothing that was or will be met.
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
                // All others are behind the entry that is shown.
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
                        "{case}: newer versions come next"
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
                turns.nth_turn(TURNS_MAX),
                turns.nth_turn(TURNS_MAX + 1)
            ),
            (TURNS_MAX, Some((3, TURNS_MAX)), None)
        );
        assert_eq!((turns.next_source(), turns.nth_turn(9)), (Some(3), Some((3, 9))));
        assert_eq!((turns.repeat_source(300, 5), turns.next_source()), (0, None));
    }
}
