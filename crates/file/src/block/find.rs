//! The look-up of one key in a block that is kept: where the [fingerprints](super::prints) lead, or nothing said.

use super::Block;
use perigee_base::{KeyOrder, SeqNo};

/// Versions of one key that are walked before the long way is shorter.
const VERSIONS: usize = 8;

impl Block {
    /// The newest entry of `key` that is not newer than `at`, if the fingerprints lead to it; `None` says nothing.
    #[inline]
    pub fn find_by_print(&self, order: KeyOrder, key: &[u8], at: SeqNo) -> Option<usize> {
        if self.prints().is_empty() {
            return None;
        }
        let mut candidates = self.prints().candidates(self.tail(key)?);
        // Versions of a key lie together, the newest first.
        let first = candidates.find(|i| {
            self.touch(*i);
            self.key_is(order, *i, key)
        })?;
        let seen = (first..self.len().min(first + VERSIONS)).find(|i| self.seq(*i) <= at)?;
        (seen == first || self.key_is(order, seen, key)).then_some(seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::writer::BlockWriter;
    use crate::testing::Rng;
    use perigee_base::EntryKind;

    fn block(order: KeyOrder, entries: &[(Vec<u8>, SeqNo)]) -> Block {
        let mut w = BlockWriter::new(order);
        entries.iter().for_each(|(k, seq)| w.add_raw(k, *seq, EntryKind::Put, b"v"));
        let mut raw = Vec::new();
        w.finish(&mut raw);
        raw.resize(raw.len() + Block::SLACK, 0);
        Block::parse(raw).unwrap().to_keep(order)
    }

    /// Against the plain search: the same entry, or nothing said.
    #[test]
    fn they_lead_where_the_plain_search_ends() {
        let mut rng = Rng::new(8);
        for order in [KeyOrder::Bytes, KeyOrder::Reverse, KeyOrder::CaseInsensitive] {
            let (mut found, mut asked) = (0, 0);
            for case in 0..60 {
                let mut keys: Vec<Vec<u8>> = (0..1 + rng.below(300))
                    .map(|_| (0..1 + rng.below(4)).map(|_| b"abcABCxyz"[rng.below(9) as usize]).collect())
                    .collect();
                keys.sort_by(|a, b| order.cmp(a, b));
                keys.dedup_by(|a, b| order.equal(a, b));
                let versions = 1 + case % 12;
                let entries: Vec<(Vec<u8>, SeqNo)> = keys
                    .iter()
                    .flat_map(|k| (0..versions).map(|v| (k.clone(), SeqNo(100 - 2 * v))))
                    .collect();
                let block = block(order, &entries);
                for key in keys.iter().cloned().chain([b"nobody".to_vec(), vec![]]) {
                    for at in [SeqNo(100), SeqNo(99), SeqNo(91), SeqNo(1), SeqNo::MAX] {
                        let plain = block.lower_bound(order, &key, at);
                        let there = plain < block.len() && block.key_is(order, plain, &key);
                        let by_print = block.find_by_print(order, &key, at);
                        assert!(by_print.is_none_or(|i| there && i == plain), "{key:?} at {at:?}");
                        asked += usize::from(there);
                        found += usize::from(by_print.is_some());
                    }
                }
            }
            let least = if order.is_bytewise() { asked * 8 / 10 } else { 0 };
            assert!(found >= least, "{order:?}: {found} of {asked}");
        }
    }
}
