//! An ordered list with express lanes, in words of an arena: one writer, lock-free readers, no unsafe.
//!
//! ```text
//! node: batch | key start | key length | value start | value length | seq low | seq high | kind | link[0..height]
//! ```
//! Invariants: 1. a node's words are written before a link to it is stored (release) and never change afterwards,
//! links excepted; 2. links lead forward in entry order; 3. link 0 reaches every node. Link 0 means "none": index 0
//! is never handed out by the arena.

use super::arena::Words;
use super::entries::Node;
use perigee_base::key::cmp_entry;
use perigee_base::{EntryKind, KeyOrder, Result, SeqNo};
use std::cmp::Ordering::Less;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

const HEIGHT_MAX: usize = 12;
const FIXED: usize = 8;
/// Nodes of a lane that are enough to estimate by.
const LANE_NODES: u64 = 256;

/// The list.
#[derive(Debug)]
pub struct SkipList {
    words: Words,
    head: [AtomicU32; HEIGHT_MAX],
    random: AtomicU64,
}

impl SkipList {
    /// Empty.
    pub fn new() -> Self {
        SkipList {
            words: Words::new(),
            head: [const { AtomicU32::new(0) }; HEIGHT_MAX],
            random: AtomicU64::new(0x9E37_79B9_7F4A_7C15),
        }
    }

    /// One of four nodes reaches the next height.
    fn height(&self) -> usize {
        let mut x = self.random.load(Relaxed);
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.random.store(x, Relaxed);
        (1 + (x.trailing_zeros() / 2) as usize).min(HEIGHT_MAX)
    }

    fn link(&self, from: u32, level: usize) -> &AtomicU32 {
        if from == 0 { &self.head[level] } else { self.words.at(from + (FIXED + level) as u32) }
    }

    /// The node at `i`, which a link named.
    #[inline]
    pub fn node(&self, i: u32) -> Node {
        let w = self.words.run(i, FIXED);
        let word = |n: usize| w[n].load(Relaxed);
        Node {
            batch: word(0),
            key: (word(1), word(2)),
            value: (word(3), word(4)),
            seq: SeqNo(u64::from(word(5)) | u64::from(word(6)) << 32),
            kind: EntryKind::decode(word(7) as u8).expect("the word was written from a kind"),
        }
    }

    /// The last node before (key, seq) on each lane (0: the head), and the first at or after it. That one is no second look
    /// at a link: by then the writer may have put a node between the two, which is before the place that was asked for.
    fn path<'a>(
        &self,
        key: &[u8],
        seq: SeqNo,
        key_of: impl Fn(&Node) -> &'a [u8],
        order: KeyOrder,
    ) -> ([u32; HEIGHT_MAX], u32) {
        let mut path = [0u32; HEIGHT_MAX];
        let mut at = 0u32;
        let mut not_before = 0u32;
        for level in (0..HEIGHT_MAX).rev() {
            loop {
                let next = self.link(at, level).load(Acquire);
                if next == 0 {
                    not_before = 0;
                    break;
                }
                if next == not_before {
                    break;
                }
                let n = self.node(next);
                if cmp_entry(order, (key_of(&n), n.seq), (key, seq)) != Less {
                    not_before = next;
                    break;
                }
                at = next;
            }
            path[level] = at;
        }
        (path, not_before)
    }

    /// Adds a node, by one thread at a time; returns the bytes of memory newly taken.
    pub fn insert<'a>(
        &self,
        node: &Node,
        key_of: impl Fn(&Node) -> &'a [u8],
        order: KeyOrder,
    ) -> Result<u64> {
        let (path, _) = self.path(key_of(node), node.seq, &key_of, order);
        let height = self.height();
        let (at, grown) = self.words.take((FIXED + height) as u32)?;
        let w = self.words.run(at, FIXED + height);
        let fixed = [
            node.batch,
            node.key.0,
            node.key.1,
            node.value.0,
            node.value.1,
            node.seq.0 as u32,
            (node.seq.0 >> 32) as u32,
            u32::from(node.kind.code()),
        ];
        w.iter().zip(fixed).for_each(|(word, v)| word.store(v, Relaxed));
        for (level, before) in path.iter().enumerate().take(height) {
            let link = self.link(*before, level);
            w[FIXED + level].store(link.load(Relaxed), Relaxed);
            link.store(at, Release);
        }
        Ok(grown)
    }

    /// The first node at or after (key, seq).
    pub fn seek<'a>(
        &self,
        key: &[u8],
        seq: SeqNo,
        key_of: impl Fn(&Node) -> &'a [u8],
        order: KeyOrder,
    ) -> Option<u32> {
        self.some(self.path(key, seq, key_of, order).1)
    }
    /// The last node before (key, seq).
    pub fn seek_before<'a>(
        &self,
        key: &[u8],
        seq: SeqNo,
        key_of: impl Fn(&Node) -> &'a [u8],
        order: KeyOrder,
    ) -> Option<u32> {
        self.some(self.path(key, seq, key_of, order).0[0])
    }
    /// The first node.
    pub fn first(&self) -> Option<u32> {
        self.some(self.head[0].load(Acquire))
    }
    /// The last node.
    pub fn last(&self) -> Option<u32> {
        let mut at = 0;
        for level in (0..HEIGHT_MAX).rev() {
            loop {
                let next = self.link(at, level).load(Acquire);
                if next == 0 {
                    break;
                }
                at = next;
            }
        }
        self.some(at)
    }
    /// The node after `at`.
    pub fn next(&self, at: u32) -> Option<u32> {
        self.some(self.link(at, 0).load(Acquire))
    }

    /// About how many nodes lie at or after `from` and before `to` (`None`: to that end). Exact up to [`LANE_NODES`]; above
    /// that, nodes of a higher lane are counted, of which each stands for a power of four.
    pub fn count<'a>(
        &self,
        from: Option<(&[u8], SeqNo)>,
        to: Option<(&[u8], SeqNo)>,
        key_of: impl Fn(&Node) -> &'a [u8],
        order: KeyOrder,
    ) -> u64 {
        let path = from.map_or([0; HEIGHT_MAX], |(key, seq)| self.path(key, seq, &key_of, order).0);
        for level in (0..HEIGHT_MAX).rev() {
            let (mut at, mut nodes) = (self.link(path[level], level).load(Acquire), 0u64);
            while at != 0 {
                let n = self.node(at);
                if to.is_some_and(|to| cmp_entry(order, (key_of(&n), n.seq), to) != Less) {
                    break;
                }
                nodes += 1;
                at = self.link(at, level).load(Acquire);
            }
            if nodes >= LANE_NODES || level == 0 {
                return nodes << (2 * level);
            }
        }
        0
    }

    fn some(&self, i: u32) -> Option<u32> {
        (i != 0).then_some(i)
    }
}
