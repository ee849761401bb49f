//! A skip list in words of an arena: one writer, lock-free readers, no unsafe code.
//!
//! ```text
//! node: batch | key start | key length | value start | value length |
//!       seq low | seq high | kind | link[0..height]
//! ```
//! Invariants: 1. a node's words are written before a link to it is stored (release) and never
//! change afterwards, links excepted; 2. links lead forward in entry order; 3. link 0 reaches every
//! node. A link of value 0 means "none": the arena never allocates index 0.

use super::arena::ArenaWords;
use super::entries::MemtableEntry;
use super::sync::{AtomicU32, AtomicU64};
use perigee_base::{EntryKind, KeyComparator, Result, SeqNo, cmp_entry};
use std::cmp::Ordering::Less;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

const HEIGHT_MAX: usize = 12;
const NODE_HEADER_WORDS: usize = 8;
/// Number of nodes of one level that suffice for an estimate.
const LEVEL_SAMPLE_NODES: u64 = 256;
const _: () = assert!(
    NODE_HEADER_WORDS + HEIGHT_MAX <= 1 << ArenaWords::FIRST_BUCKET_LOG2,
    "the highest node fits in a bucket"
);

/// The skip list.
#[derive(Debug)]
pub struct SkipList {
    words: ArenaWords,
    head: [AtomicU32; HEIGHT_MAX],
    random: AtomicU64,
}

impl SkipList {
    /// Creates an empty list.
    pub fn new() -> Self {
        SkipList {
            words: ArenaWords::new(),
            head: std::array::from_fn(|_| AtomicU32::new(0)),
            random: AtomicU64::new(0x9E37_79B9_7F4A_7C15),
        }
    }

    /// Returns a random height; one of four nodes reaches the next level.
    fn random_height(&self) -> usize {
        let mut x = self.random.load(Relaxed);
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.random.store(x, Relaxed);
        (1 + (x.trailing_zeros() / 2) as usize).min(HEIGHT_MAX)
    }

    fn link(&self, from: u32, level: usize) -> &AtomicU32 {
        if from == 0 {
            &self.head[level]
        } else {
            self.words.word(from + (NODE_HEADER_WORDS + level) as u32)
        }
    }

    /// Returns the node at `i`, which must come from a link.
    #[inline]
    pub fn node(&self, i: u32) -> MemtableEntry {
        let w = self.words.word_slice(i, NODE_HEADER_WORDS);
        let word = |n: usize| w[n].load(Relaxed);
        MemtableEntry {
            batch: word(0),
            key: (word(1), word(2)),
            value: (word(3), word(4)),
            seq: SeqNo(u64::from(word(5)) | u64::from(word(6)) << 32),
            kind: EntryKind::decode(word(7) as u8).expect("the word was written from a kind"),
        }
    }

    /// Returns the last node before (key, seq) on each level (0: the head), and the first node at
    /// or after it. The latter must not be found by loading a link again: in the meantime the
    /// writer may have inserted a node in between, which is before (key, seq).
    fn find_path<'a>(
        &self,
        key: &[u8],
        seq: SeqNo,
        key_of: impl Fn(&MemtableEntry) -> &'a [u8],
        comparator: KeyComparator,
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
                if cmp_entry(comparator, (key_of(&n), n.seq), (key, seq)) != Less {
                    not_before = next;
                    break;
                }
                at = next;
            }
            path[level] = at;
        }
        (path, not_before)
    }

    /// Adds a node; returns the bytes of memory newly allocated. Only one thread at a time may call
    /// this.
    pub fn insert<'a>(
        &self,
        node: &MemtableEntry,
        key_of: impl Fn(&MemtableEntry) -> &'a [u8],
        comparator: KeyComparator,
    ) -> Result<u64> {
        let (path, next) = self.find_path(key_of(node), node.seq, &key_of, comparator);
        check_slow!(
            self.non_zero(next).is_none_or(|next| {
                let next = self.node(next);
                cmp_entry(comparator, (key_of(node), node.seq), (key_of(&next), next.seq)) == Less
            }),
            "a sequence number belongs to one entry of a key",
            node
        );
        let height = self.random_height();
        let (at, grown) = self.words.allocate((NODE_HEADER_WORDS + height) as u32)?;
        let w = self.words.word_slice(at, NODE_HEADER_WORDS + height);
        let header = [
            node.batch,
            node.key.0,
            node.key.1,
            node.value.0,
            node.value.1,
            node.seq.0 as u32,
            (node.seq.0 >> 32) as u32,
            u32::from(node.kind.code()),
        ];
        w.iter().zip(header).for_each(|(word, v)| word.store(v, Relaxed));
        for (level, before) in path.iter().enumerate().take(height) {
            let link = self.link(*before, level);
            w[NODE_HEADER_WORDS + level].store(link.load(Relaxed), Relaxed);
            link.store(at, Release);
        }
        Ok(grown)
    }

    /// Returns the first node at or after (key, seq).
    pub fn seek<'a>(
        &self,
        key: &[u8],
        seq: SeqNo,
        key_of: impl Fn(&MemtableEntry) -> &'a [u8],
        comparator: KeyComparator,
    ) -> Option<u32> {
        self.non_zero(self.find_path(key, seq, key_of, comparator).1)
    }
    /// Returns the last node before (key, seq).
    pub fn seek_before<'a>(
        &self,
        key: &[u8],
        seq: SeqNo,
        key_of: impl Fn(&MemtableEntry) -> &'a [u8],
        comparator: KeyComparator,
    ) -> Option<u32> {
        self.non_zero(self.find_path(key, seq, key_of, comparator).0[0])
    }
    /// Returns the first node.
    pub fn first(&self) -> Option<u32> {
        self.non_zero(self.head[0].load(Acquire))
    }
    /// Returns the last node.
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
        self.non_zero(at)
    }
    /// Returns the node after `at`.
    pub fn next(&self, at: u32) -> Option<u32> {
        self.non_zero(self.link(at, 0).load(Acquire))
    }

    /// Estimates the number of nodes at or after `from` and before `to` (`None`: unbounded on that
    /// side). Exact up to [`LEVEL_SAMPLE_NODES`]; above that, the nodes of a higher level are
    /// counted, each of which stands for a power of four nodes.
    pub fn count_between<'a>(
        &self,
        from: Option<(&[u8], SeqNo)>,
        to: Option<(&[u8], SeqNo)>,
        key_of: impl Fn(&MemtableEntry) -> &'a [u8],
        comparator: KeyComparator,
    ) -> u64 {
        let path = from
            .map_or([0; HEIGHT_MAX], |(key, seq)| self.find_path(key, seq, &key_of, comparator).0);
        for level in (0..HEIGHT_MAX).rev() {
            let (mut at, mut nodes) = (self.link(path[level], level).load(Acquire), 0u64);
            while at != 0 {
                let n = self.node(at);
                if to.is_some_and(|to| cmp_entry(comparator, (key_of(&n), n.seq), to) != Less) {
                    break;
                }
                nodes += 1;
                at = self.link(at, level).load(Acquire);
            }
            if nodes >= LEVEL_SAMPLE_NODES || level == 0 {
                return nodes << (2 * level);
            }
        }
        0
    }

    fn non_zero(&self, i: u32) -> Option<u32> {
        (i != 0).then_some(i)
    }
}
