//! Key prefixes of the tables' bounds in a run, stored contiguously as numbers: they nearly always
//! decide which table covers a key, while the keys themselves are behind several pointers.
//! Independent of tables.
//!
//! Different numbers decide the comparison; if they are equal, the caller compares the keys.

use perigee_base::{KeyBoundaryRef, KeyComparator, KeyRef};

/// Key prefixes of the start and end boundaries, in the order of the tables.
#[derive(Clone, Debug, Default)]
pub struct TableBounds(Vec<(u64, u64)>);

impl TableBounds {
    /// Creates empty bounds with space for `tables` tables.
    pub fn with_capacity(tables: usize) -> TableBounds {
        TableBounds(Vec::with_capacity(tables))
    }
    /// Appends the next table.
    pub fn push(
        &mut self,
        comparator: KeyComparator,
        begin: KeyBoundaryRef<'_>,
        end: KeyBoundaryRef<'_>,
    ) {
        self.0.push((cut_prefix(comparator, begin), cut_prefix(comparator, end)));
    }
    /// Returns the first table whose end is not before `key`; `before` compares for a table whose
    /// end has the same prefix as the key.
    #[inline]
    pub fn first_reaching(
        &self,
        comparator: KeyComparator,
        key: &[u8],
        before: impl Fn(usize) -> bool,
    ) -> usize {
        let prefix = key_prefix(comparator, key);
        let mut low = self.0.partition_point(|(_, end)| *end < prefix);
        let mut high = low + self.0[low..].partition_point(|(_, end)| *end == prefix);
        while low < high {
            let mid = low + (high - low) / 2;
            if before(mid) { low = mid + 1 } else { high = mid }
        }
        low
    }
    /// Returns true if table `i` begins before `key`; `before` compares if the prefixes are equal.
    #[inline]
    pub fn begins_before(
        &self,
        i: usize,
        comparator: KeyComparator,
        key: &[u8],
        before: impl FnOnce() -> bool,
    ) -> bool {
        let (begin, prefix) = (self.0[i].0, key_prefix(comparator, key));
        begin < prefix || (begin == prefix && before())
    }
}

#[inline]
fn key_prefix(comparator: KeyComparator, key: &[u8]) -> u64 {
    KeyRef::from_key(key).key_prefix(comparator, &[])
}

fn cut_prefix(comparator: KeyComparator, cut: KeyBoundaryRef<'_>) -> u64 {
    match cut {
        KeyBoundaryRef::First => 0,
        KeyBoundaryRef::Before(key) | KeyBoundaryRef::After(key) => key_prefix(comparator, key),
        KeyBoundaryRef::Last => u64::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perigee_base::{BUILT_IN_COMPARATORS, KeyBoundary};

    fn next_random(x: &mut u64) -> u64 {
        *x ^= *x << 13;
        *x ^= *x >> 7;
        *x ^= *x << 17;
        *x
    }

    fn key(x: &mut u64) -> Vec<u8> {
        let start = [&[][..], &[255; 8], &[0; 8], b"shared--"][(next_random(x) % 4) as usize];
        let rest =
            (0..next_random(x) % 4).map(|_| [0, b'A', b'a', 255][(next_random(x) % 4) as usize]);
        start.iter().copied().chain(rest.collect::<Vec<u8>>()).collect()
    }

    /// Compared with the boundaries themselves, under every comparator, with open ends and equal
    /// prefixes.
    #[test]
    fn table_bounds_match_full_comparison() {
        let x = &mut 5;
        for case in 0..3000 {
            let (comparator, _) = BUILT_IN_COMPARATORS[case % BUILT_IN_COMPARATORS.len()];
            let mut cuts: Vec<KeyBoundary> = (0..2 * (next_random(x) % 7))
                .map(|_| {
                    if next_random(x) % 2 == 0 {
                        KeyBoundary::Before(key(x))
                    } else {
                        KeyBoundary::After(key(x))
                    }
                })
                .collect();
            cuts.extend([KeyBoundary::First, KeyBoundary::Last]);
            cuts.sort_by(|a, b| a.as_ref().cmp(comparator, b.as_ref()));
            let tables: Vec<_> = cuts.chunks(2).map(|c| (c[0].as_ref(), c[1].as_ref())).collect();
            let mut bounds = TableBounds::default();
            tables.iter().for_each(|(begin, end)| bounds.push(comparator, *begin, *end));
            for _ in 0..30 {
                let key = key(x);
                let plain = tables.partition_point(|(_, end)| end.is_before(comparator, &key));
                let got = bounds
                    .first_reaching(comparator, &key, |i| tables[i].1.is_before(comparator, &key));
                assert_eq!(got, plain, "{comparator:?} {key:?} {cuts:?}");
                for (i, (begin, _)) in tables.iter().enumerate() {
                    let got = bounds
                        .begins_before(i, comparator, &key, || begin.is_before(comparator, &key));
                    assert_eq!(
                        got,
                        begin.is_before(comparator, &key),
                        "{comparator:?} {key:?} {begin:?}"
                    );
                }
            }
        }
        assert_eq!(TableBounds::default().first_reaching(KeyComparator::Bytes, b"k", |_| true), 0);
    }
}
