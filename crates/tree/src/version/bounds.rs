//! Where the tables of a run begin and end, as numbers that lie side by side: they nearly always tell which table a key
//! belongs to, where the keys themselves lie behind several pointers. Must not know tables.
//!
//! A number says "before" or "behind" for certain; equal numbers say nothing, and whoever asks decides.

use perigee_base::cut::CutRef;
use perigee_base::{KeyOrder, KeyRef};

/// Heads of the places where tables begin and end, in the order of the tables.
#[derive(Clone, Debug, Default)]
pub struct Bounds(Vec<(u64, u64)>);

impl Bounds {
    /// Adds the next table.
    pub fn push(&mut self, order: KeyOrder, begin: CutRef<'_>, end: CutRef<'_>) {
        self.0.push((place(order, begin), place(order, end)));
    }
    /// The first table whose end is not before `key`; `before` decides that for a table whose end has the head of the key.
    #[inline]
    pub fn first_reaching(&self, order: KeyOrder, key: &[u8], before: impl Fn(usize) -> bool) -> usize {
        let wanted = head(order, key);
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
        order: KeyOrder,
        key: &[u8],
        before: impl FnOnce() -> bool,
    ) -> bool {
        let (begin, wanted) = (self.0[i].0, head(order, key));
        begin < wanted || (begin == wanted && before())
    }
}

#[inline]
fn head(order: KeyOrder, key: &[u8]) -> u64 {
    KeyRef::whole(key).head(order, &[])
}

fn place(order: KeyOrder, cut: CutRef<'_>) -> u64 {
    match cut {
        CutRef::First => 0,
        CutRef::Before(key) | CutRef::After(key) => head(order, key),
        CutRef::Last => u64::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perigee_base::cut::Cut;
    use perigee_base::order::BUILT_IN;

    fn rng(x: &mut u64) -> u64 {
        *x ^= *x << 13;
        *x ^= *x >> 7;
        *x ^= *x << 17;
        *x
    }

    fn key(x: &mut u64) -> Vec<u8> {
        let start = [&[][..], &[255; 8], &[0; 8], b"shared--"][(rng(x) % 4) as usize];
        let rest = (0..rng(x) % 4).map(|_| [0, b'A', b'a', 255][(rng(x) % 4) as usize]);
        start.iter().copied().chain(rest.collect::<Vec<u8>>()).collect()
    }

    /// Against comparing the places themselves, in every order, with ends that are open and heads that are equal.
    #[test]
    fn they_say_what_the_places_say() {
        let x = &mut 5;
        for case in 0..3000 {
            let (order, _) = BUILT_IN[case % BUILT_IN.len()];
            let mut cuts: Vec<Cut> = (0..2 * (rng(x) % 7))
                .map(|_| if rng(x) % 2 == 0 { Cut::Before(key(x)) } else { Cut::After(key(x)) })
                .collect();
            cuts.extend([Cut::First, Cut::Last]);
            cuts.sort_by(|a, b| a.as_ref().cmp(order, b.as_ref()));
            let tables: Vec<_> = cuts.chunks(2).map(|c| (c[0].as_ref(), c[1].as_ref())).collect();
            let mut bounds = Bounds::default();
            tables.iter().for_each(|(begin, end)| bounds.push(order, *begin, *end));
            for _ in 0..30 {
                let key = key(x);
                let plain = tables.partition_point(|(_, end)| end.is_before(order, &key));
                let got = bounds.first_reaching(order, &key, |i| tables[i].1.is_before(order, &key));
                assert_eq!(got, plain, "{order:?} {key:?} {cuts:?}");
                for (i, (begin, _)) in tables.iter().enumerate() {
                    let got = bounds.begins_before(i, order, &key, || begin.is_before(order, &key));
                    assert_eq!(got, begin.is_before(order, &key), "{order:?} {key:?} {begin:?}");
                }
            }
        }
        assert_eq!(Bounds::default().first_reaching(KeyOrder::Bytes, b"k", |_| true), 0);
    }
}
