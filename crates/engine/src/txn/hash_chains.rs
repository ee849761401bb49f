//! [`HashChains`]: finds the operations of a transaction by the hash of their key. A hash table
//! whose chains lead from the newest operation to the oldest: a rollback removes the newest again,
//! at no more than the cost of adding them.
//!
//! ```text
//! newest: one per bucket        operation 7 | none | operation 4 | ...
//! older:  one per operation     7 -> 2 -> none      4 -> none
//! ```

use perigee_tree::Memtable;

/// No operation.
const NONE: u32 = u32::MAX;

/// The numbers of operations, from 0, by hash.
#[derive(Debug, Default)]
pub struct HashChains {
    /// Unpredictable factor, because keys whose hashes share some bits can be constructed. Set with
    /// the buckets: the seed of the process is set late if simulated databases were opened first.
    factor: u64,
    /// The newest operation of each bucket. The number of buckets is a power of two.
    newest: Vec<u32>,
    /// For each operation the next older one of its bucket.
    older: Vec<u32>,
}

impl HashChains {
    /// Returns the number of operations.
    pub fn len(&self) -> usize {
        self.older.len()
    }
    /// Returns the bytes of memory used.
    pub fn memory_bytes(&self) -> u64 {
        ((self.newest.capacity() + self.older.capacity()) * size_of::<u32>()) as u64
    }
    fn bucket(&self, hash: u64) -> usize {
        (hash.wrapping_mul(self.factor) >> 32) as usize & (self.newest.len() - 1)
    }
    /// Adds operations until there are `ops`; `hash_of` returns the hash of an operation.
    pub fn extend_to(&mut self, ops: usize, hash_of: impl Fn(usize) -> u64) {
        check!(
            ops >= self.len() && ops < NONE as usize,
            "operations are added, as many as have numbers",
            ops,
            self.len()
        );
        if ops > self.newest.len() {
            let buckets = ops.saturating_mul(2).next_power_of_two();
            self.factor = Memtable::hash_seed() | 1;
            self.newest.clear();
            self.newest.resize(buckets, NONE);
            self.older.clear();
        }
        for op in self.len()..ops {
            let bucket = self.bucket(hash_of(op));
            self.older.push(self.newest[bucket]);
            self.newest[bucket] = op as u32;
        }
    }
    /// Removes all operations from number `ops` on; `hash_of` returns the hash of an operation.
    pub fn truncate(&mut self, ops: usize, hash_of: impl Fn(usize) -> u64) {
        for op in (ops..self.len()).rev() {
            let bucket = self.bucket(hash_of(op));
            check_slow!(
                self.newest[bucket] == op as u32,
                "the newest operation is the first of its chain",
                op
            );
            self.newest[bucket] = self.older[op];
        }
        self.older.truncate(ops);
    }
    /// Returns the operations that may have this hash, newest first.
    pub fn candidates(&self, hash: u64) -> impl Iterator<Item = usize> + '_ {
        let newest = if self.newest.is_empty() { NONE } else { self.newest[self.bucket(hash)] };
        let existing = |op: u32| (op != NONE).then_some(op as usize);
        std::iter::successors(existing(newest), move |op| existing(self.older[*op]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hashes of which many are equal.
    fn hash_of(op: usize) -> u64 {
        (op as u64 % 37).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }

    #[test]
    fn chains_lead_from_newest_to_oldest_and_shrink() {
        let mut chains = HashChains::default();
        assert_eq!(chains.candidates(hash_of(5)).next(), None);
        let matching = |chains: &HashChains, hash: u64| -> Vec<usize> {
            chains.candidates(hash).filter(|op| hash_of(*op) == hash).collect()
        };
        for (ops, shrunk) in [(1, 1), (100, 60), (70, 0), (5000, 4000), (4001, 4001)] {
            chains.extend_to(ops, hash_of);
            for kept in [ops, shrunk] {
                chains.truncate(kept, hash_of);
                assert_eq!(chains.len(), kept);
                for hash in (0..37).map(hash_of) {
                    let expected: Vec<usize> =
                        (0..kept).rev().filter(|op| hash_of(*op) == hash).collect();
                    assert_eq!(matching(&chains, hash), expected, "{kept} {hash}");
                }
            }
        }
        assert!(chains.memory_bytes() >= 4001 * 8);
    }
}
