//! The look-up of one key in a block that is kept: where the [fingerprints](super::prints) lead, or
//! nothing said.

use super::TableBlock;
use perigee_base::{KeyComparator, SeqNo};

/// Versions of one key that are walked before the long way is shorter.
const VERSIONS_SCANNED_MAX: usize = 8;

impl TableBlock {
    /// The newest entry of `key` that is not newer than `at`, if the fingerprints lead to it;
    /// `None` says nothing.
    #[inline]
    pub fn find_by_fingerprint(
        &self,
        order: KeyComparator,
        key: &[u8],
        at: SeqNo,
    ) -> Option<usize> {
        if self.fingerprints().is_empty() {
            return None;
        }
        let mut candidates = self.fingerprints().candidates(self.key_tail(key)?);
        // Versions of a key lie together, the newest first.
        let first = candidates.find(|i| {
            self.prefetch_value(*i);
            self.key_equals(order, *i, key)
        })?;
        let seen =
            (first..self.len().min(first + VERSIONS_SCANNED_MAX)).find(|i| self.seq(*i) <= at)?;
        (seen == first || self.key_equals(order, seen, key)).then_some(seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::writer::BlockWriter;
    use crate::testing::TestRng;
    use perigee_base::EntryKind;

    fn block(order: KeyComparator, entries: &[(Vec<u8>, SeqNo)]) -> TableBlock {
        let mut w = BlockWriter::new(order);
        entries.iter().for_each(|(k, seq)| w.add_raw(k, *seq, EntryKind::Put, b"v"));
        let mut raw = Vec::new();
        w.finish(&mut raw);
        raw.resize(raw.len() + TableBlock::SLACK, 0);
        TableBlock::parse(raw).unwrap().to_cached(order)
    }

    /// Against the plain search: the same entry, or nothing said.
    #[test]
    fn fingerprint_lookup_agrees_with_binary_search() {
        let mut rng = TestRng::new(8);
        for order in [KeyComparator::Bytes, KeyComparator::Reverse, KeyComparator::CaseInsensitive]
        {
            let (mut found, mut asked) = (0, 0);
            for case in 0..60 {
                let mut keys: Vec<Vec<u8>> = (0..1 + rng.below(300))
                    .map(|_| {
                        (0..1 + rng.below(4)).map(|_| b"abcABCxyz"[rng.below(9) as usize]).collect()
                    })
                    .collect();
                keys.sort_by(|a, b| order.cmp(a, b));
                keys.dedup_by(|a, b| order.keys_equal(a, b));
                let versions = 1 + case % 12;
                let entries: Vec<(Vec<u8>, SeqNo)> = keys
                    .iter()
                    .flat_map(|k| (0..versions).map(|v| (k.clone(), SeqNo(100 - 2 * v))))
                    .collect();
                let block = block(order, &entries);
                for key in keys.iter().cloned().chain([b"nobody".to_vec(), vec![]]) {
                    for at in [SeqNo(100), SeqNo(99), SeqNo(91), SeqNo(1), SeqNo::MAX] {
                        let plain = block.lower_bound(order, &key, at);
                        let there = plain < block.len() && block.key_equals(order, plain, &key);
                        let by_print = block.find_by_fingerprint(order, &key, at);
                        assert!(by_print.is_none_or(|i| there && i == plain), "{key:?} at {at:?}");
                        asked += usize::from(there);
                        found += usize::from(by_print.is_some());
                    }
                }
            }
            let least = if order.has_bytewise_equality() { asked * 8 / 10 } else { 0 };
            assert!(found >= least, "{order:?}: {found} of {asked}");
        }
    }
}
