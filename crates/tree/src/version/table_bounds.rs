//! Where the tables of a run begin and end, as numbers that lie side by side: they nearly always
//! tell which table a key belongs to, where the keys themselves lie behind several pointers. Must
//! not know tables.
//!
//! A number says "before" or "behind" for certain; equal numbers say nothing, and whoever asks
//! decides.

use perigee_base::key_boundary::KeyBoundaryRef;
use perigee_base::{KeyComparator, KeyRef};

/// Heads of the places where tables begin and end, in the order of the tables.
#[derive(Clone, Debug, Default)]
pub struct TableBounds(Vec<(u64, u64)>);

impl TableBounds {
    /// Adds the next table.
    pub fn push(
        &mut self,
        order: KeyComparator,
        begin: KeyBoundaryRef<'_>,
        end: KeyBoundaryRef<'_>,
    ) {
        self.0.push((cut_prefix(order, begin), cut_prefix(order, end)));
    }
    /// The first table whose end is not before `key`; `before` decides that for a table whose end
    /// has the head of the key.
    #[inline]
    pub fn first_reaching(
        &self,
        order: KeyComparator,
        key: &[u8],
        before: impl Fn(usize) -> bool,
    ) -> usize {
        let wanted = key_prefix(order, key);
        let mut low = self.0.partition_point(|(_, end)| *end < wanted);
        let mut high = low + self.0[low..].partition_point(|(_, end)| *end == wanted);
        while low < high {
            let mid = low + (high - low) / 2;
            if before(mid) { low = mid + 1 } else { high = mid }
        }
        low
    }
    /// Whether table `i` begins before `key`; `before` decides if the heads are equal.
    #[inline]
    pub fn begins_before(
        &self,
        i: usize,
        order: KeyComparator,
        key: &[u8],
        before: impl FnOnce() -> bool,
    ) -> bool {
        let (begin, wanted) = (self.0[i].0, key_prefix(order, key));
        begin < wanted || (begin == wanted && before())
    }
}

#[inline]
fn key_prefix(order: KeyComparator, key: &[u8]) -> u64 {
    KeyRef::from_key(key).key_prefix(order, &[])
}

fn cut_prefix(order: KeyComparator, cut: KeyBoundaryRef<'_>) -> u64 {
    match cut {
        KeyBoundaryRef::First => 0,
        KeyBoundaryRef::Before(key) | KeyBoundaryRef::After(key) => key_prefix(order, key),
        KeyBoundaryRef::Last => u64::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perigee_base::comparator::BUILT_IN_COMPARATORS;
    use perigee_base::key_boundary::KeyBoundary;

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

    /// Against comparing the places themselves, in every order, with ends that are open and heads
    /// that are equal.
    #[test]
    fn table_bounds_match_full_comparison() {
        let x = &mut 5;
        for case in 0..3000 {
            let (order, _) = BUILT_IN_COMPARATORS[case % BUILT_IN_COMPARATORS.len()];
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
            cuts.sort_by(|a, b| a.as_ref().cmp(order, b.as_ref()));
            let tables: Vec<_> = cuts.chunks(2).map(|c| (c[0].as_ref(), c[1].as_ref())).collect();
            let mut bounds = TableBounds::default();
            tables.iter().for_each(|(begin, end)| bounds.push(order, *begin, *end));
            for _ in 0..30 {
                let key = key(x);
                let plain = tables.partition_point(|(_, end)| end.is_before(order, &key));
                let got =
                    bounds.first_reaching(order, &key, |i| tables[i].1.is_before(order, &key));
                assert_eq!(got, plain, "{order:?} {key:?} {cuts:?}");
                for (i, (begin, _)) in tables.iter().enumerate() {
                    let got = bounds.begins_before(i, order, &key, || begin.is_before(order, &key));
                    assert_eq!(got, begin.is_before(order, &key), "{order:?} {key:?} {begin:?}");
                }
            }
        }
        assert_eq!(TableBounds::default().first_reaching(KeyComparator::Bytes, b"k", |_| true), 0);
    }
}
