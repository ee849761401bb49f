//! Order made after the fact: entries sorted by key prefix, as immutable runs. Pure functions; who wants order, and when,
//! is not known here.
//!
//! ```text
//! item, 128 bits:   key prefix 64 | unused 32 | inverted entry number 32
//! ```
//! The prefix is the eight bytes of a key behind what all keys have in common, as a number that is never smaller for a
//! later key ([`Prefix`]). Equal prefixes are told apart by the whole keys; of one key the newest version comes first, which
//! is the one with the largest number. So entry order is the order of items, but for keys that share a prefix.
//!
//! Invariant: the runs of a [`Sorted`] hold every entry below `upto` exactly once.

use perigee_base::KeyOrder;
use std::cmp::Ordering;
use std::sync::Arc;

/// A key's prefix and an entry of that key.
pub type Item = u128;

/// Up to so many keys of one prefix are compared with each other; more are sorted by their next bytes.
const COMPARED: usize = 24;
/// So often by their next bytes, then compared.
const DEPTH: usize = 16;
/// Shorter runs are merged with whatever comes: that moves few bytes. Longer ones with runs as long as they, to the next power
/// of two: an entry is moved a logarithmic number of times, and a scan meets a logarithmic number of runs.
const SHORT: usize = 64;
/// Longer runs are left alone: no reader waits for more than this to be merged.
const MERGED_MAX: usize = 128 << 10;

/// Where keys are found by the number of an entry.
pub trait Keys {
    /// The key of an entry.
    fn key(&self, entry: u32) -> &[u8];
}

/// How keys become numbers.
#[derive(Clone, Copy, Debug)]
pub struct Prefix {
    /// The order of keys; one in which only identical bytes are the same key.
    pub order: KeyOrder,
    /// Bytes that all keys have in common.
    pub skip: usize,
}

impl Prefix {
    /// Whether common bytes may be skipped: bytes are compared from the first on.
    pub fn skips(order: KeyOrder) -> bool {
        matches!(order, KeyOrder::Bytes | KeyOrder::Reverse)
    }

    /// The number of a key; of two keys, the later one's is not smaller.
    #[inline]
    pub fn of(self, key: &[u8]) -> u64 {
        match self.order {
            KeyOrder::Reverse => !bytes_at(key, self.skip),
            KeyOrder::U64 | KeyOrder::I64 => match <[u8; 8]>::try_from(key) {
                Ok(n) if self.order == KeyOrder::U64 => u64::from_le_bytes(n),
                Ok(n) => u64::from_le_bytes(n) ^ 1 << 63,
                Err(_) if key.len() < 8 => 0,
                Err(_) => u64::MAX,
            },
            _ => bytes_at(key, self.skip),
        }
    }
    fn item(self, key: &[u8], entry: u32) -> Item {
        Item::from(self.of(key)) << 64 | Item::from(!entry)
    }
}

/// Eight bytes from `at` on, as a number; those behind the end are zero.
#[inline]
fn bytes_at(key: &[u8], at: usize) -> u64 {
    if let Some(whole) = key.get(at..at + 8) {
        return u64::from_be_bytes(whole.try_into().expect("eight bytes"));
    }
    let mut eight = [0; 8];
    let rest = key.get(at..).unwrap_or_default();
    eight[..rest.len()].copy_from_slice(rest);
    u64::from_be_bytes(eight)
}

/// The entry of an item.
#[inline]
pub fn entry(item: Item) -> u32 {
    !(item as u32)
}
#[inline]
fn prefix(item: Item) -> u64 {
    (item >> 64) as u64
}

/// Two items in entry order.
#[inline]
pub fn cmp(order: KeyOrder, keys: &impl Keys, a: Item, b: Item) -> Ordering {
    let by_key = || order.cmp(keys.key(entry(a)), keys.key(entry(b)));
    prefix(a).cmp(&prefix(b)).then_with(by_key).then(entry(b).cmp(&entry(a)))
}

/// Entries `from..to` in entry order.
pub fn sort(from: u32, to: u32, by: Prefix, keys: &impl Keys) -> Vec<Item> {
    let mut items: Vec<Item> = (from..to).map(|e| by.item(keys.key(e), e)).collect();
    items.sort_unstable();
    settle(&mut items, by, 0, keys);
    items
}

/// Brings items of one prefix, which lie together, into order.
fn settle(items: &mut [Item], by: Prefix, depth: usize, keys: &impl Keys) {
    let mut start = 0;
    while start < items.len() {
        let of = prefix(items[start]);
        let len = items[start..].iter().take_while(|i| prefix(**i) == of).count();
        if len > 1 {
            settle_one(&mut items[start..start + len], by, depth, keys);
        }
        start += len;
    }
}

/// The same for items of which all have the same prefix.
fn settle_one(items: &mut [Item], by: Prefix, depth: usize, keys: &impl Keys) {
    let compared = items.len() <= COMPARED || depth == DEPTH || !Prefix::skips(by.order);
    let common = if compared { 0 } else { common(items, keys) };
    // With less in common than the prefix covers, a key ended in it.
    if compared || common < by.skip + 8 {
        return items.sort_unstable_by(|a, b| cmp(by.order, keys, *a, *b));
    }
    if items.iter().all(|i| keys.key(entry(*i)).len() == common) {
        // Versions of one key, which lie in order.
        return;
    }
    let of = items[0] >> 64 << 64;
    let next = Prefix { skip: common, ..by };
    let mut finer: Vec<Item> = items.iter().map(|i| next.item(keys.key(entry(*i)), entry(*i))).collect();
    finer.sort_unstable();
    settle(&mut finer, next, depth + 1, keys);
    items.iter_mut().zip(finer).for_each(|(i, f)| *i = of | Item::from(f as u32));
}

/// How many bytes the keys have in common.
fn common(items: &[Item], keys: &impl Keys) -> usize {
    let first = keys.key(entry(items[0]));
    items.iter().fold(first.len(), |n, i| shared(&first[..n], keys.key(entry(*i))))
}

/// How many bytes two keys begin with alike.
pub fn shared(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// Two runs as one.
fn merge(mut a: &[Item], mut b: &[Item], order: KeyOrder, keys: &impl Keys) -> Vec<Item> {
    let mut out = Vec::with_capacity(a.len() + b.len());
    // Few into many: what lies between two of the few is moved at once.
    let few = a.len() / 8 > b.len();
    while let (Some(x), Some(y)) = (a.first(), b.first()) {
        if few {
            let before = gallop(a, |i| cmp(order, keys, *i, *y).is_lt());
            out.extend_from_slice(&a[..before]);
            out.push(*y);
            (a, b) = (&a[before..], &b[1..]);
        } else if cmp(order, keys, *x, *y).is_lt() {
            out.push(*x);
            a = &a[1..];
        } else {
            out.push(*y);
            b = &b[1..];
        }
    }
    out.extend_from_slice(a);
    out.extend_from_slice(b);
    out
}

/// How many items at the start pass a test that no item behind them passes; soon, if they are few.
fn gallop(items: &[Item], test: impl Fn(&Item) -> bool) -> usize {
    let mut step = 1;
    while step < items.len() && test(&items[step - 1]) {
        step *= 2;
    }
    let start = step / 2;
    start + items[start..step.min(items.len())].partition_point(test)
}

/// The first entries of a memtable, in order.
#[derive(Clone, Debug)]
pub struct Sorted {
    /// How many.
    pub upto: u32,
    /// By which prefix.
    pub by: Prefix,
    /// The runs; older ones first, which are longer.
    pub runs: Vec<Arc<Vec<Item>>>,
}

impl Sorted {
    /// Nothing.
    pub fn new(order: KeyOrder) -> Sorted {
        Sorted { upto: 0, by: Prefix { order, skip: 0 }, runs: Vec::new() }
    }

    /// The same with all entries below `upto`; `skip`: what their keys have in common.
    pub fn extend(&self, upto: u32, skip: usize, keys: &impl Keys) -> Sorted {
        let by = Prefix { skip, ..self.by };
        let mut runs = self.runs.clone();
        if skip != self.by.skip {
            let again = |i: &Item| by.item(keys.key(entry(*i)), entry(*i));
            runs.iter_mut().for_each(|r| *r = Arc::new(r.iter().map(again).collect()));
        }
        let mut last = sort(self.upto, upto, by, keys);
        while let Some(before) = runs.last() {
            if before.len().ilog2() > last.len().max(SHORT).ilog2() || before.len() > MERGED_MAX {
                break;
            }
            last = merge(before, &last, by.order, keys);
            runs.pop();
        }
        runs.push(Arc::new(last));
        Sorted { upto, by, runs }
    }

    /// Where in each run the first entry at or behind a place lies: `key` and, of its versions, the first for which
    /// `behind` holds.
    pub fn bound<'a>(
        &'a self,
        key: &'a [u8],
        behind: impl Fn(u32) -> bool + Copy + 'a,
        keys: &'a impl Keys,
    ) -> impl Iterator<Item = usize> + 'a {
        let order = self.by.order;
        let of = self.target(key, keys);
        let before = move |i: &Item| match order.cmp(keys.key(entry(*i)), key) {
            Ordering::Less => true,
            Ordering::Equal => !behind(entry(*i)),
            Ordering::Greater => false,
        };
        self.runs.iter().map(move |run| match of {
            Err(Ordering::Less) => 0,
            Err(_) => run.len(),
            Ok(of) => {
                let start = run.partition_point(|i| prefix(*i) < of);
                let len = gallop(&run[start..], |i| prefix(*i) == of);
                start + run[start..start + len].partition_point(before)
            }
        })
    }

    /// The prefix of any key, or on which side of all entries it lies.
    fn target(&self, key: &[u8], keys: &impl Keys) -> Result<u64, Ordering> {
        let skip = self.by.skip;
        let Some(any) = self.runs.first().and_then(|r| r.first()) else { return Err(Ordering::Less) };
        let any = keys.key(entry(*any));
        if skip > 0 && key.get(..skip) != Some(&any[..skip]) {
            return Err(self.by.order.cmp(key, any));
        }
        Ok(self.by.of(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Table(Vec<Vec<u8>>);
    impl Keys for Table {
        fn key(&self, entry: u32) -> &[u8] {
            &self.0[entry as usize]
        }
    }

    fn rng(x: &mut u64) -> u64 {
        *x ^= *x << 13;
        *x ^= *x >> 7;
        *x ^= *x << 17;
        *x
    }

    /// Keys of every kind that the sorter treats in its own way.
    fn families(n: usize) -> Vec<Table> {
        let mut x = 11;
        let mut make = |f: &dyn Fn(&mut u64, usize) -> Vec<u8>| Table((0..n).map(|i| f(&mut x, i)).collect());
        vec![
            make(&|x, _| rng(x).to_be_bytes().to_vec()),
            make(&|x, _| format!("table/{:03}/row/{:012}", rng(x) % 3, rng(x) % 500).into_bytes()),
            make(&|_, i| format!("{i:015}").into_bytes()),
            make(&|_, i| format!("{:015}", 1_000_000 - i).into_bytes()),
            make(&|x, _| vec![(rng(x) % 2) as u8; (rng(x) % 40) as usize]),
            make(&|x, _| vec![0; (rng(x) % 12) as usize]),
            make(&|_, _| b"one and the same key, longer than a prefix".to_vec()),
            make(&|x, _| [&[7; 200][..(rng(x) % 200) as usize], &[(rng(x) % 3) as u8]].concat()),
            make(&|x, _| ((rng(x) % 64) as i64 - 32).to_le_bytes()[..8 - (rng(x) % 8 / 7) as usize].to_vec()),
            make(&|x, _| [&(rng(x) % 9).to_le_bytes()[..], &[0; 3][..(rng(x) % 4) as usize]].concat()),
        ]
    }

    const ORDERS: [KeyOrder; 4] = [KeyOrder::Bytes, KeyOrder::Reverse, KeyOrder::U64, KeyOrder::I64];

    #[test]
    fn sorts_every_kind_of_keys_in_every_order() {
        for table in families(1500) {
            let first = &table.0[0];
            let skip = table.0.iter().fold(first.len(), |n, k| shared(&first[..n], k));
            for order in ORDERS {
                let by = Prefix { order, skip: if Prefix::skips(order) { skip } else { 0 } };
                let items = sort(0, 1500, by, &table);
                let got: Vec<u32> = items.iter().map(|i| entry(*i)).collect();
                let mut want: Vec<u32> = (0..1500).collect();
                want.sort_by(|a, b| order.cmp(table.key(*a), table.key(*b)).then(b.cmp(a)));
                assert_eq!(got, want, "{order:?} {:?}", String::from_utf8_lossy(first));
            }
        }
    }

    #[test]
    fn grown_bit_by_bit_it_holds_every_entry_once_in_few_runs() {
        for table in families(3000) {
            for order in ORDERS {
                let mut sorted = Sorted::new(order);
                let (mut upto, mut x, mut skip) = (0, 5, table.0[0].len());
                while upto < 3000u32 {
                    let to = (upto + 1 + (rng(&mut x) % 40) as u32).min(3000);
                    for e in upto..to {
                        skip = shared(&table.0[0][..skip], table.key(e));
                    }
                    upto = to;
                    sorted = sorted.extend(upto, if Prefix::skips(order) { skip } else { 0 }, &table);
                    assert!(sorted.runs.len() <= 8, "{} runs", sorted.runs.len());
                    for r in &sorted.runs {
                        assert!(r.windows(2).all(|w| cmp(order, &table, w[0], w[1]).is_lt()));
                    }
                }
                let mut all: Vec<u32> =
                    sorted.runs.iter().flat_map(|r| r.iter().map(|i| entry(*i))).collect();
                all.sort_unstable();
                assert_eq!(all, (0..3000).collect::<Vec<u32>>());
            }
        }
    }
}
