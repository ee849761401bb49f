//! Which sources take turns on the way ahead, found out for many entries at once: what a merge does at every step (choose,
//! compare, ask what the entry is) is done here in one loop over numbers. Must not move a source.
//!
//! Invariant: only entries are taken that a reader is shown without another look: plain puts that it sees, each of another
//! key than all before, none of whose versions is newer. Heads say so where they differ, or the block, of neighbours in
//! it. Where heads of two sources are equal, and where nothing is known of a source's next entry, it ends.

use super::cursor::{Ahead, Source};
use perigee_base::{KeyOrder, KeyRef, SeqNo};
use perigee_file::Strand;

/// Most turns at a time.
const MOST: usize = 128;
/// Most sources among which turns are found.
const SOURCES: usize = 8;
/// Most entries of a source at a time, and one that ends them.
const HEADS: usize = 65;

/// Whose turn it is, entry after entry: the numbers of sources.
#[derive(Debug)]
pub struct Turns {
    list: [u8; MOST],
    len: usize,
    next: usize,
    /// For each source the heads of the entries that may be taken, ascending on the way, and the largest number behind them.
    heads: Vec<[u64; HEADS]>,
}

/// A source while it is looked at.
#[derive(Clone, Copy, Default)]
struct Lane {
    source: u8,
    /// How many of its heads are known.
    len: usize,
}

impl Turns {
    /// None.
    pub fn new() -> Turns {
        Turns { list: [0; MOST], len: 0, next: 0, heads: Vec::new() }
    }
    /// The same source `n` times in a row; how many it is.
    #[inline]
    pub fn stretch(&mut self, source: usize, n: usize) -> usize {
        let n = u8::try_from(source).map_or(0, |_| n.min(MOST));
        self.list[..n].fill(source as u8);
        (self.len, self.next) = (n, 0);
        n
    }
    /// The next one.
    #[inline]
    pub fn take(&mut self) -> Option<usize> {
        let source = *self.list[..self.len].get(self.next)?;
        self.next += 1;
        Some(usize::from(source))
    }
    /// The source whose turn is the `n`th from now, and how many of the turns up to there are its own.
    pub fn nth(&self, n: usize) -> Option<(usize, usize)> {
        let turns = &self.list[self.next..self.len];
        let source = *turns.get(n.checked_sub(1)?)?;
        Some((usize::from(source), turns[..n].iter().filter(|s| **s == source).count()))
    }

    /// Finds the turns ahead; how many there are. `standing`: going forward the source that is on the entry that is shown,
    /// all others being behind it; `None`: going backward, where all stand before it already.
    pub fn find(
        &mut self,
        sources: &mut [Source],
        order: KeyOrder,
        standing: Option<usize>,
        at: SeqNo,
    ) -> usize {
        let mut ahead = [Ahead::Nothing; SOURCES];
        if sources.len() > SOURCES {
            return self.stretch(0, 0);
        }
        for (slot, source) in ahead.iter_mut().zip(sources) {
            *slot = source.ahead(standing.is_some(), at);
        }
        self.weave(&ahead, order, standing)
    }

    /// The same of what is known of them.
    fn weave(&mut self, sources: &[Ahead<'_>], order: KeyOrder, standing: Option<usize>) -> usize {
        (self.len, self.next) = (0, 0);
        let forward = standing.is_some();
        let common = common(sources);
        // The turns end before this head.
        let mut limit = u64::MAX;
        let (mut lanes, mut count, mut shown) = ([Lane::default(); SOURCES], 0, None);
        for (i, source) in sources.iter().enumerate() {
            match source {
                Ahead::Nothing => {}
                Ahead::Only(key) => {
                    let head = key.head(order, common);
                    limit = limit.min(if forward { head } else { !head });
                }
                Ahead::Known(strand) => {
                    let way = Way::of(strand, common.len(), forward, standing == Some(i));
                    if standing == Some(i) {
                        shown = Some(way.head(strand.here));
                    }
                    if self.heads.len() == count {
                        self.heads.push([0; HEADS]);
                    }
                    let (len, end) = way.lay(&mut self.heads[count]);
                    lanes[count] = Lane { source: i as u8, len };
                    (count, limit) = (count + 1, limit.min(end));
                }
            }
        }
        // Going forward: what is not behind the entry that is shown may be an older version of it. (Of the source that is on it
        // the block has said that it is not.)
        let may_be_older = |lane: &Lane, head: u64| {
            lane.len > 0 && standing != Some(usize::from(lane.source)) && shown.is_none_or(|s| head <= s)
        };
        if forward && lanes[..count].iter().zip(&self.heads).any(|(lane, heads)| may_be_older(lane, heads[0]))
        {
            return 0;
        }
        let mut sum = 0;
        for (lane, heads) in lanes[..count].iter().zip(&mut self.heads) {
            let n = heads[..lane.len].partition_point(|head| *head < limit);
            heads[n] = u64::MAX;
            sum += n;
        }
        let names = lanes.map(|lane| lane.source);
        self.len = match count {
            0..=2 => self.merge::<2>(count, sum, names),
            3..=4 => self.merge::<4>(count, sum, names),
            _ => self.merge::<SOURCES>(count, sum, names),
        };
        self.len
    }

    /// Takes the least head of `count` sources again and again, `sum` times at most; it ends before one that two of them have.
    /// Without branches that depend on heads: nobody can tell whose turn it is.
    fn merge<const N: usize>(&mut self, count: usize, sum: usize, names: [u8; SOURCES]) -> usize {
        const NONE: [u64; HEADS] = [u64::MAX; HEADS];
        let lanes: [&[u64; HEADS]; N] =
            std::array::from_fn(|i| self.heads.get(i).filter(|_| i < count).unwrap_or(&NONE));
        let mut at = [0; N];
        for (n, turn) in self.list[..sum.min(MOST)].iter_mut().enumerate() {
            let heads: [u64; N] = std::array::from_fn(|i| lanes[i][at[i]]);
            let least = heads.iter().fold(u64::MAX, |least, head| least.min(*head));
            let (mut takers, mut taker) = (0, 0);
            for i in 0..N {
                let takes = usize::from(heads[i] == least);
                at[i] = HEADS.min(at[i] + takes + 1) - 1;
                takers += takes;
                taker += takes * i;
            }
            if takers != 1 {
                return n;
            }
            *turn = names[taker];
        }
        sum.min(MOST)
    }
}

/// What the keys of all blocks begin with.
fn common<'a>(sources: &[Ahead<'a>]) -> &'a [u8] {
    let mut prefixes = sources.iter().filter_map(|source| match source {
        Ahead::Known(strand) => Some(strand.prefix),
        _ => None,
    });
    let first = prefixes.next().unwrap_or(&[]);
    let n = prefixes.fold(first.len(), |n, prefix| KeyRef::whole(prefix).common(&first[..n]));
    &first[..n]
}

/// What is known of a source, as numbers that ascend on the way and can be compared with those of other sources.
struct Way<'a> {
    heads: &'a [u64],
    /// The first entry of the way, and how many may be taken from there.
    first: usize,
    count: usize,
    /// What heads begin with, the part of the block's prefix that not all blocks have in common, and so many bits.
    lead: u64,
    shift: u32,
    forward: bool,
}

impl<'a> Way<'a> {
    #[inline]
    fn of(strand: &Strand<'a>, common: usize, forward: bool, stands: bool) -> Way<'a> {
        let rest = &strand.prefix[common..];
        let lead = if rest.is_empty() { 0 } else { KeyRef::whole(rest).head(KeyOrder::Bytes, &[]) };
        let shift = 8 * rest.len().min(8) as u32;
        let Strand { heads, puts, differ, here, .. } = *strand;
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
        Way { heads, first, count, lead, shift, forward }
    }
    /// A head behind what all blocks have in common.
    #[inline]
    fn head(&self, i: usize) -> u64 {
        let head = self.lead | self.heads[i].checked_shr(self.shift).unwrap_or(0);
        if self.forward { head } else { !head }
    }
    /// Lays down the heads that may be taken; how many, and the least head before which turns have to end.
    #[inline]
    fn lay(&self, out: &mut [u64; HEADS]) -> (usize, u64) {
        let (first, n) = (self.first, self.count);
        let end = if self.forward {
            out.iter_mut().zip(first..first + n).for_each(|(out, i)| *out = self.head(i));
            Some(first + n).filter(|end| *end < self.heads.len())
        } else {
            out.iter_mut().zip((0..=first).rev().take(n)).for_each(|(out, i)| *out = self.head(i));
            first.checked_sub(n)
        };
        match end {
            Some(end) => (n, self.head(end)),
            // Nobody knows what comes behind the last one.
            None => (n, n.checked_sub(1).map_or(0, |last| out[last].saturating_add(1))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rng(x: &mut u64) -> u64 {
        *x ^= *x << 13;
        *x ^= *x >> 7;
        *x ^= *x << 17;
        *x
    }

    /// Keys of which some are in several sources, and some several times in one; some differ only behind their heads.
    fn key(x: &mut u64, kind: u64) -> Vec<u8> {
        let start: &[u8] = [&b""[..], b"p/", b"a/long/way/in/"][(rng(x) % (kind + 1)) as usize];
        let end = (rng(x) % [200, 5000][(rng(x) % 2) as usize]) as u16;
        [start, &end.to_be_bytes()].concat()
    }

    /// A block of a source: its keys in order, which of them are clear puts, what they begin with, and their heads.
    struct Block {
        keys: Vec<Vec<u8>>,
        puts: u64,
        differ: u64,
        prefix: Vec<u8>,
        heads: Vec<u64>,
        here: usize,
    }

    fn block(x: &mut u64, kind: u64, here: Option<usize>) -> Block {
        let n = 1 + rng(x) as usize % (HEADS - 1);
        let mut keys: Vec<Vec<u8>> = (0..n).map(|_| key(x, kind)).collect();
        keys.sort();
        let mut prefix = keys[0].clone();
        prefix.truncate(KeyRef::whole(&keys[n - 1]).common(&prefix));
        let head = |k: &Vec<u8>| KeyRef::whole(&k[prefix.len()..]).head(KeyOrder::Bytes, &[]);
        let heads = keys.iter().map(head).collect();
        let differ = (1..n).filter(|i| keys[*i] != keys[i - 1]).fold(0, |bits, i| bits | 1 << i);
        let puts = (0..n).filter(|_| rng(x) % 40 > 0).fold(0, |bits, i| bits | 1 << i);
        let here = here.unwrap_or_else(|| rng(x) as usize % n);
        Block { keys, puts, differ, prefix, heads, here }
    }

    impl Block {
        fn ahead(&self) -> Ahead<'_> {
            let Block { prefix, heads, puts, differ, here, .. } = self;
            Ahead::Known(Strand { prefix, heads, puts: *puts, differ: *differ, here: *here })
        }
    }

    /// Against comparing whole keys: every entry that is taken is the next of all, is a put, and shares its key with nothing
    /// that was or will be met.
    #[test]
    fn turns_are_those_of_a_merge_by_whole_keys() {
        let (mut x, mut taken, mut possible) = (77, 0, 0);
        for case in 0..20_000u64 {
            let x = &mut x;
            let (forward, count, kind) = (case % 2 == 0, 1 + rng(x) as usize % 4, rng(x) % 3);
            let mut blocks: Vec<Block> = (0..count).map(|_| block(x, kind, None)).collect();
            let limit = (rng(x) % 3 == 0).then(|| key(x, kind));
            let mut standing = None;
            if forward {
                // All others are behind the entry that is shown.
                let shown = blocks[0].keys[blocks[0].here].clone();
                blocks.iter_mut().skip(1).for_each(|b| {
                    b.here = b.keys.partition_point(|k| *k < shown);
                });
                blocks.retain(|b| b.here < b.keys.len());
                standing = Some(0);
            }
            let mut ahead: Vec<Ahead<'_>> = blocks.iter().map(Block::ahead).collect();
            let shown = blocks[0].keys[blocks[0].here].clone();
            if let Some(key) = limit.as_ref().filter(|key| !forward || **key > shown) {
                ahead.push(Ahead::Only(KeyRef::whole(key)));
            }
            ahead.extend([Ahead::Nothing, Ahead::Nothing]);
            let mut turns = Turns::new();
            let n = turns.weave(&ahead, KeyOrder::Bytes, standing);
            let mut at: Vec<Option<usize>> = blocks.iter().map(|b| Some(b.here)).collect();
            let mut last = forward.then_some(shown);
            if forward {
                at[0] = Some(blocks[0].here + 1);
            }
            for turn in 0..n {
                assert_eq!(turns.nth(1).unwrap().1, 1);
                let i = turns.take().unwrap();
                let here = at[i].unwrap();
                let key = &blocks[i].keys[here];
                assert!(blocks[i].puts >> here & 1 == 1, "{case}");
                assert!(last.as_ref().is_none_or(|l| l != key && (l < key) == forward), "{case}");
                let before = |other: &Vec<u8>| if forward { key < other } else { key > other };
                if let Ahead::Only(limit) = &ahead[blocks.len()] {
                    assert!(before(&limit.suffix.to_vec()), "{case}");
                }
                for (j, other) in blocks.iter().enumerate().filter(|(j, _)| *j != i) {
                    assert!(at[j].is_none_or(|at| before(&other.keys[at])), "{case} turn {turn}");
                }
                at[i] = if forward { Some(here + 1) } else { here.checked_sub(1) };
                if !forward {
                    assert!(here > 0 && blocks[i].keys[here - 1] != *key, "{case}: newer versions come next");
                }
                assert!(at[i].is_some_and(|at| at < blocks[i].keys.len()) || turn + 1 == n, "{case}");
                last = Some(key.clone());
            }
            assert_eq!(turns.take(), None);
            taken += n;
            possible += blocks.iter().map(|b| b.keys.len()).sum::<usize>() / 4;
        }
        assert!(taken * 5 > possible, "{taken} of {possible}");
    }

    #[test]
    fn a_stretch_is_one_source_many_times() {
        let mut turns = Turns::new();
        assert_eq!(
            (turns.stretch(3, 1000), turns.nth(MOST), turns.nth(MOST + 1)),
            (MOST, Some((3, MOST)), None)
        );
        assert_eq!((turns.take(), turns.nth(9)), (Some(3), Some((3, 9))));
        assert_eq!((turns.stretch(300, 5), turns.take()), (0, None));
    }
}
