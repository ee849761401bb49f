//! Locks on key ranges, ordered so that those which contain a key are found without looking at the
//! others: [`IntervalTree`].
//!
//! A treap in the order of the beginnings. Each node knows the last end in its subtree, so a search
//! for the ranges that overlap a target visits `log n` nodes and those that it returns.

use super::granted_lock::{GrantedLock, LockOwner};
use perigee_base::bug::{self, Bug};
use perigee_base::{KeyBoundary, KeyBoundaryRef, KeyComparator};
use std::cmp::Ordering::{self, Equal, Greater, Less};

/// The index of a missing node.
const NIL: u32 = u32::MAX;

/// A range and the lock on it.
#[derive(Debug)]
struct IntervalNode {
    begin: KeyBoundary,
    end: KeyBoundary,
    lock: GrantedLock,
    priority: u32,
    left: u32,
    right: u32,
    /// The node with the last end in this subtree.
    last_end: u32,
}

/// Ranges with a lock each. Two locks of an owner have different numbers.
#[derive(Debug)]
pub struct IntervalTree {
    nodes: Vec<IntervalNode>,
    unused: Vec<u32>,
    root: u32,
    random: u32,
}

impl IntervalTree {
    /// Creates a tree without ranges.
    pub fn new() -> IntervalTree {
        IntervalTree { nodes: Vec::new(), unused: Vec::new(), root: NIL, random: 1 }
    }
    /// Returns the number of ranges.
    pub fn len(&self) -> usize {
        self.nodes.len() - self.unused.len()
    }
    /// Returns true if there are no ranges.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.root == NIL
    }
    /// Returns the lock of a node.
    pub fn lock(&self, node: u32) -> &GrantedLock {
        &self.nodes[node as usize].lock
    }
    /// Returns the range of a node.
    pub fn range(&self, node: u32) -> (KeyBoundaryRef<'_>, KeyBoundaryRef<'_>) {
        let node = &self.nodes[node as usize];
        (node.begin.as_ref(), node.end.as_ref())
    }
    /// Returns all locks, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &GrantedLock> {
        self.nodes.iter().map(|n| &n.lock).filter(|lock| lock.owner != LockOwner::MAX)
    }
    /// Adds a range that is not empty. Returns its node, which stays the same until it is removed.
    pub fn insert(
        &mut self,
        comparator: KeyComparator,
        begin: KeyBoundary,
        end: KeyBoundary,
        lock: GrantedLock,
    ) -> u32 {
        check_slow!(
            begin.as_ref().cmp(comparator, end.as_ref()).is_lt(),
            "a locked range is not empty",
            begin,
            end
        );
        // A linear congruential generator: the shape of the tree depends on nothing else.
        self.random = self.random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let priority = self.random >> 8;
        let node =
            IntervalNode { begin, end, lock, priority, left: NIL, right: NIL, last_end: NIL };
        let at = match self.unused.pop() {
            Some(at) => {
                self.nodes[at as usize] = node;
                at
            }
            None => {
                self.nodes.push(node);
                (self.nodes.len() - 1) as u32
            }
        };
        self.nodes[at as usize].last_end = at;
        self.root = self.insert_below(comparator, self.root, at);
        at
    }
    /// Removes a node.
    pub fn remove(&mut self, comparator: KeyComparator, node: u32) {
        check_slow!(
            self.nodes[node as usize].lock.owner != LockOwner::MAX,
            "a range is removed once",
            node
        );
        self.root = self.remove_below(comparator, self.root, node);
        let removed = &mut self.nodes[node as usize];
        (removed.begin, removed.end) = (KeyBoundary::First, KeyBoundary::First);
        removed.lock.owner = LockOwner::MAX;
        self.unused.push(node);
        if self.root == NIL {
            *self = IntervalTree { random: self.random, ..IntervalTree::new() };
        }
    }
    /// Calls `visit` for every range that has a common key with `begin..end`, which is not empty,
    /// until it returns true. Returns true if it did.
    pub fn visit_overlapping<'a>(
        &'a self,
        comparator: KeyComparator,
        begin: KeyBoundaryRef<'_>,
        end: KeyBoundaryRef<'_>,
        visit: &mut dyn FnMut(&'a GrantedLock) -> bool,
    ) -> bool {
        self.visit_below(comparator, self.root, begin, end, visit)
    }
    /// Calls `visit` for the locks of an owner on exactly this range, until it returns true. Returns
    /// true if it did.
    pub fn visit_exact(
        &self,
        comparator: KeyComparator,
        range: (KeyBoundaryRef<'_>, KeyBoundaryRef<'_>),
        owner: LockOwner,
        visit: &mut dyn FnMut(&GrantedLock) -> bool,
    ) -> bool {
        let mut pending = vec![self.root];
        while let Some(at) = pending.pop() {
            let Some(node) = self.nodes.get(at as usize) else { continue };
            let order = node
                .begin
                .as_ref()
                .cmp(comparator, range.0)
                .then_with(|| node.end.as_ref().cmp(comparator, range.1))
                .then(node.lock.owner.cmp(&owner));
            if order == Equal && visit(&node.lock) {
                return true;
            }
            if order != Greater {
                pending.push(node.right);
            }
            if order != Less {
                pending.push(node.left);
            }
        }
        false
    }

    fn cmp(&self, comparator: KeyComparator, a: u32, b: u32) -> Ordering {
        let (x, y) = (&self.nodes[a as usize], &self.nodes[b as usize]);
        x.begin
            .as_ref()
            .cmp(comparator, y.begin.as_ref())
            .then_with(|| x.end.as_ref().cmp(comparator, y.end.as_ref()))
            .then_with(|| (x.lock.owner, x.lock.number).cmp(&(y.lock.owner, y.lock.number)))
            .then(a.cmp(&b))
    }
    /// Recomputes what a node knows about its subtree.
    fn update(&mut self, comparator: KeyComparator, at: u32) {
        let node = &self.nodes[at as usize];
        let mut last = at;
        for child in [node.left, node.right] {
            if bug::is_active(Bug::RangeLockHidden) {
                break;
            }
            if let Some(child) = self.nodes.get(child as usize) {
                let (end, other) =
                    (&self.nodes[last as usize].end, &self.nodes[child.last_end as usize].end);
                if other.as_ref().cmp(comparator, end.as_ref()).is_gt() {
                    last = child.last_end;
                }
            }
        }
        self.nodes[at as usize].last_end = last;
    }
    fn insert_below(&mut self, comparator: KeyComparator, at: u32, new: u32) -> u32 {
        if at == NIL {
            return new;
        }
        let goes_left = self.cmp(comparator, new, at).is_lt();
        let child = *self.child(at, goes_left);
        let below = self.insert_below(comparator, child, new);
        *self.child(at, goes_left) = below;
        let rises =
            below == new && self.nodes[new as usize].priority > self.nodes[at as usize].priority;
        if rises {
            let between = *self.child(new, !goes_left);
            *self.child(at, goes_left) = between;
            *self.child(new, !goes_left) = at;
        }
        self.update(comparator, at);
        if !rises {
            return at;
        }
        self.update(comparator, new);
        new
    }
    fn child(&mut self, at: u32, left: bool) -> &mut u32 {
        let node = &mut self.nodes[at as usize];
        if left { &mut node.left } else { &mut node.right }
    }
    fn remove_below(&mut self, comparator: KeyComparator, at: u32, node: u32) -> u32 {
        if at == NIL {
            return NIL;
        }
        let a = at as usize;
        match self.cmp(comparator, node, at) {
            Equal => return self.join(comparator, self.nodes[a].left, self.nodes[a].right),
            Less => self.nodes[a].left = self.remove_below(comparator, self.nodes[a].left, node),
            Greater => {
                self.nodes[a].right = self.remove_below(comparator, self.nodes[a].right, node);
            }
        }
        self.update(comparator, at);
        at
    }
    /// Joins two subtrees; all ranges of the second are after those of the first.
    fn join(&mut self, comparator: KeyComparator, first: u32, second: u32) -> u32 {
        if first == NIL || second == NIL {
            return if first == NIL { second } else { first };
        }
        let (f, s) = (first as usize, second as usize);
        if self.nodes[f].priority > self.nodes[s].priority {
            self.nodes[f].right = self.join(comparator, self.nodes[f].right, second);
            self.update(comparator, first);
            first
        } else {
            self.nodes[s].left = self.join(comparator, first, self.nodes[s].left);
            self.update(comparator, second);
            second
        }
    }
    fn visit_below<'a>(
        &'a self,
        comparator: KeyComparator,
        at: u32,
        begin: KeyBoundaryRef<'_>,
        end: KeyBoundaryRef<'_>,
        visit: &mut dyn FnMut(&'a GrantedLock) -> bool,
    ) -> bool {
        let Some(node) = self.nodes.get(at as usize) else { return false };
        let last_end = &self.nodes[node.last_end as usize].end;
        if last_end.as_ref().cmp(comparator, begin).is_le() {
            return false;
        }
        if self.visit_below(comparator, node.left, begin, end, visit) {
            return true;
        }
        if node.begin.as_ref().cmp(comparator, end).is_ge() {
            return false;
        }
        node.end.as_ref().cmp(comparator, begin).is_gt() && visit(&node.lock)
            || self.visit_below(comparator, node.right, begin, end, visit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::txn::locks::LockMode;

    fn boundary(n: u64) -> KeyBoundary {
        KeyBoundary::Before(n.to_be_bytes().to_vec())
    }

    /// Compares a tree with a list over random insertions, removals and searches.
    #[test]
    fn tree_finds_what_a_list_finds() {
        let bytes = KeyComparator::Bytes;
        let mut x = 9u64;
        let mut random = move |n: u64| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            x % n
        };
        let mut tree = IntervalTree::new();
        let mut list: Vec<(u32, u64, u64, u64)> = Vec::new();
        for number in 0..3000u64 {
            if random(3) == 0 && !list.is_empty() {
                let (node, ..) = list.swap_remove(random(list.len() as u64) as usize);
                tree.remove(bytes, node);
            } else {
                let begin = random(100);
                let longest = if random(10) == 0 { 90 } else { 5 };
                let end = begin + 1 + random(longest);
                let owner = 1 + random(3);
                let lock = GrantedLock { owner, mode: LockMode::Gap, number, requests: 1 };
                let node = tree.insert(bytes, boundary(begin), boundary(end), lock);
                list.push((node, begin, end, number));
            }
            assert_eq!(tree.len(), list.len());
            assert_eq!(tree.iter().count(), list.len());
            let from = random(110);
            let to = from + 1 + random(10);
            let mut found = Vec::new();
            tree.visit_overlapping(
                bytes,
                boundary(from).as_ref(),
                boundary(to).as_ref(),
                &mut |l| {
                    found.push(l.number);
                    false
                },
            );
            found.sort_unstable();
            let mut expected: Vec<u64> =
                list.iter().filter(|r| r.1 < to && from < r.2).map(|r| r.3).collect();
            expected.sort_unstable();
            assert_eq!(found, expected);
            if let Some((node, begin, end, number)) = list.first() {
                let (begin, end) = (boundary(*begin), boundary(*end));
                let mut any = false;
                let owner = tree.lock(*node).owner;
                tree.visit_exact(bytes, (begin.as_ref(), end.as_ref()), owner, &mut |l| {
                    any |= l.number == *number;
                    any
                });
                assert!(any);
            }
        }
    }
}
