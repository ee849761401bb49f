//! Point lookup in a cached block by fingerprints: finds the entry, or reports nothing about
//! the key.

use super::TableBlock;
use crate::limits::VERSIONS_SCANNED_MAX;
use perigee_base::{KeyComparator, SeqNo};

impl TableBlock {
    /// Returns the newest entry of `key` that is not newer than `at`, if the fingerprints lead to
    /// it. `None` does not mean that the key is absent.
    #[inline]
    pub fn find_by_fingerprint(
        &self,
        comparator: KeyComparator,
        key: &[u8],
        at: SeqNo,
    ) -> Option<usize> {
        if self.fingerprints().is_empty() {
            return None;
        }
        let mut candidates = self.fingerprints().candidates(self.key_tail(key)?);
        // Versions of a key are adjacent, newest first.
        let first = candidates.find(|i| {
            self.prefetch_value(*i);
            self.key_equals(comparator, *i, key)
        })?;
        let visible =
            (first..self.len().min(first + VERSIONS_SCANNED_MAX)).find(|i| self.seq(*i) <= at)?;
        (visible == first || self.key_equals(comparator, visible, key)).then_some(visible)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::writer::BlockWriter;
    use crate::testing::TestRng;
    use perigee_base::EntryKind;

    fn block(comparator: KeyComparator, entries: &[(Vec<u8>, SeqNo)]) -> TableBlock {
        let mut w = BlockWriter::new(comparator);
        entries.iter().for_each(|(k, seq)| w.add_raw(k, *seq, EntryKind::Put, b"v"));
        let mut raw = Vec::new();
        w.finish(&mut raw);
        raw.resize(raw.len() + TableBlock::SLACK, 0);
        TableBlock::parse(raw).unwrap().to_cached(comparator)
    }

    /// Compares with the binary search: the same entry, or `None`.
    #[test]
    fn fingerprint_lookup_agrees_with_binary_search() {
        let mut rng = TestRng::new(8);
        for comparator in
            [KeyComparator::Bytes, KeyComparator::Reverse, KeyComparator::CaseInsensitive]
        {
            let (mut found, mut present_lookups) = (0, 0);
            for case in 0..60 {
                let mut keys: Vec<Vec<u8>> = (0..1 + rng.below(300))
                    .map(|_| {
                        (0..1 + rng.below(4)).map(|_| b"abcABCxyz"[rng.below(9) as usize]).collect()
                    })
                    .collect();
                keys.sort_by(|a, b| comparator.cmp(a, b));
                keys.dedup_by(|a, b| comparator.keys_equal(a, b));
                let versions = 1 + case % 12;
                let entries: Vec<(Vec<u8>, SeqNo)> = keys
                    .iter()
                    .flat_map(|k| (0..versions).map(|v| (k.clone(), SeqNo(100 - 2 * v))))
                    .collect();
                let block = block(comparator, &entries);
                for key in keys.iter().cloned().chain([b"nobody".to_vec(), vec![]]) {
                    for at in [SeqNo(100), SeqNo(99), SeqNo(91), SeqNo(1), SeqNo::MAX] {
                        let plain = block.lower_bound(comparator, &key, at);
                        let present =
                            plain < block.len() && block.key_equals(comparator, plain, &key);
                        let by_fingerprint = block.find_by_fingerprint(comparator, &key, at);
                        assert!(
                            by_fingerprint.is_none_or(|i| present && i == plain),
                            "{key:?} at {at:?}"
                        );
                        present_lookups += usize::from(present);
                        found += usize::from(by_fingerprint.is_some());
                    }
                }
            }
            let least =
                if comparator.has_bytewise_equality() { present_lookups * 8 / 10 } else { 0 };
            assert!(found >= least, "{comparator:?}: {found} of {present_lookups}");
        }
    }
}
