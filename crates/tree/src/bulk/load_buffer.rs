//! In-memory buffer of a bulk load's entries, until there are enough of them for a run. It is then
//! divided into key ranges, which several threads sort and write at the same time.

use crate::rewrite::{CreatedFiles, RewriteOutput};
use crate::touch::touch;
use perigee_base::bug::{self, Bug};
use perigee_base::{
    EntryRef, Error, ErrorKind, Expiry, KeyComparator, KeyRef, Result, SeqNo, ValueRef,
};
use std::cmp::Ordering::{Equal, Less};

/// Flag in `BufferedEntry::value`, above the value length (at most 2^30): the entry's expiry is
/// stored between key and value.
const EXPIRING_FLAG: u32 = 1 << 31;
const _: () = assert!(perigee_base::limits::VALUE_BYTES_MAX < EXPIRING_FLAG as usize);

/// Number of entries whose key prefixes decide where a buffer is divided.
const SAMPLE_ENTRIES: usize = 1024;
/// A linear congruential generator (Knuth's MMIX) chooses them.
const SAMPLE_SEED: u64 = 1;
const SAMPLE_MULTIPLIER: u64 = 6_364_136_223_846_793_005;
/// Number of entries of a sorted part that are touched together before they are read.
const TOUCHED_ENTRIES: usize = 16;

#[derive(Clone, Copy, Debug)]
struct BufferedEntry {
    start: usize,
    key: u32,
    /// Length of the value, and `EXPIRING_FLAG`.
    value: u32,
}

impl BufferedEntry {
    /// Returns the position after its last byte.
    fn end(&self) -> usize {
        let expiry_bytes = if self.value & EXPIRING_FLAG != 0 { Expiry::BYTES } else { 0 };
        self.start + self.key as usize + expiry_bytes + (self.value & !EXPIRING_FLAG) as usize
    }
}

/// Entries in insertion order.
#[derive(Debug)]
pub struct LoadBuffer {
    comparator: KeyComparator,
    bytes: Vec<u8>,
    entries_meta: Vec<BufferedEntry>,
    /// True while the entries are in key order, each key once.
    sorted: bool,
}

impl LoadBuffer {
    /// Creates an empty buffer.
    pub fn new(comparator: KeyComparator) -> LoadBuffer {
        LoadBuffer { comparator, bytes: Vec::new(), entries_meta: Vec::new(), sorted: true }
    }
    /// Adds an entry. The caller has checked the lengths of key and value.
    ///
    /// # Errors
    /// `NoMemory`; the buffer is unchanged.
    pub fn push(&mut self, key: &[u8], value: &[u8], expiry: Option<Expiry>) -> Result<()> {
        let end = expiry.map(Expiry::encode);
        let n = key.len() + value.len() + end.map_or(0, |e| e.len());
        self.bytes.try_reserve(n).map_err(|_| {
            Error::new(
                ErrorKind::NoMemory,
                format!("out of memory for an entry of {n} bytes in a bulk load"),
            )
        })?;
        if let Some(last) = self.entries_meta.last() {
            self.sorted &= self.comparator.cmp(self.key(last), key) == Less;
        }
        check!(
            value.len() < EXPIRING_FLAG as usize && key.len() <= u32::MAX as usize,
            "the lengths of an entry fit in its record",
            key.len(),
            value.len()
        );
        let expiring_flag = if end.is_some() { EXPIRING_FLAG } else { 0 };
        let slot = BufferedEntry {
            start: self.bytes.len(),
            key: key.len() as u32,
            value: value.len() as u32 | expiring_flag,
        };
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(end.as_ref().map_or(&[], |e| &e[..]));
        self.bytes.extend_from_slice(value);
        self.entries_meta.push(slot);
        Ok(())
    }
    fn key(&self, s: &BufferedEntry) -> &[u8] {
        &self.bytes[s.start..s.start + s.key as usize]
    }
    fn value(&self, s: &BufferedEntry) -> ValueRef<'_> {
        let rest = &self.bytes[s.start + s.key as usize..];
        let n = (s.value & !EXPIRING_FLAG) as usize;
        match rest.split_first_chunk::<{ Expiry::BYTES }>() {
            Some((end, rest)) if s.value & EXPIRING_FLAG != 0 => {
                ValueRef::InlineExpiring(&rest[..n], Expiry(u64::from_le_bytes(*end)))
            }
            _ => ValueRef::Inline(&rest[..n]),
        }
    }
    /// Bytes of memory allocated, including unused capacity.
    pub fn allocated_bytes(&self) -> usize {
        self.bytes.capacity() + self.entries_meta.capacity() * size_of::<BufferedEntry>()
    }
    /// Bytes that the entries occupy.
    pub fn used_bytes(&self) -> usize {
        self.bytes.len() + self.entries_meta.len() * size_of::<BufferedEntry>()
    }
    /// Returns true if the buffer has no entries.
    pub fn is_empty(&self) -> bool {
        self.entries_meta.is_empty()
    }
    /// Removes all entries and keeps the allocated memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.entries_meta.clear();
        self.sorted = true;
    }
    /// Returns the smallest key.
    pub fn smallest_key(&self) -> Option<&[u8]> {
        let mut keys = self.entries_meta.iter().map(|slot| self.key(slot));
        if self.sorted { keys.next() } else { keys.min_by(|a, b| self.comparator.cmp(a, b)) }
    }
    /// Divides the entries into at most `count` key ranges of about the same size, in ascending
    /// order.
    pub fn divide(&self, count: usize) -> Vec<LoadPart<'_>> {
        let part = |entries| LoadPart {
            buffer: self,
            entries,
            sorted: self.sorted,
            created: CreatedFiles::default(),
            output: None,
        };
        if self.sorted {
            let entries_of_part = self.entries_meta.len().div_ceil(count.max(1)).max(1);
            let slices = self.entries_meta.chunks(entries_of_part);
            return slices.map(|slots| part(PartEntries::Slots(slots))).collect();
        }
        // Eight bytes of each key as a number decide most comparisons without reading the keys, which
        // are all over the buffer.
        let shared = self.shared_prefix_len();
        let prefix_of = |slot: &BufferedEntry| {
            KeyRef::from_key(&self.key(slot)[shared..]).key_prefix(self.comparator, &[])
        };
        let boundaries = self.boundaries(count, prefix_of);
        let reserved = self.entries_meta.len() / (boundaries.len() + 1);
        let mut orders: Vec<Vec<(u64, usize)>> =
            (0..=boundaries.len()).map(|_| Vec::with_capacity(reserved)).collect();
        for (slot, i) in self.entries_meta.iter().zip(0..) {
            let prefix = prefix_of(slot);
            // Equal keys have equal prefixes, so they are in the same part.
            orders[boundaries.partition_point(|first| *first <= prefix)].push((prefix, i));
        }
        check_slow!(
            orders.iter().map(Vec::len).sum::<usize>() == self.entries_meta.len(),
            "each entry of a load is in one part",
            self.entries_meta.len()
        );
        orders.retain(|order| !order.is_empty());
        orders.into_iter().map(|order| part(PartEntries::Order(order))).collect()
    }
    /// Returns the smallest prefixes of all parts but the first, so that the parts have about the
    /// same number of bytes, from a sample of the entries.
    fn boundaries(&self, count: usize, prefix_of: impl Fn(&BufferedEntry) -> u64) -> Vec<u64> {
        let groups =
            self.entries_meta.chunks(self.entries_meta.len().div_ceil(SAMPLE_ENTRIES).max(1));
        // One entry of each group, at positions without a period, which the input may have.
        let mut random = SAMPLE_SEED;
        let one_of = |entries: &[BufferedEntry]| {
            random = random.wrapping_mul(SAMPLE_MULTIPLIER).wrapping_add(1);
            let slot = entries[(random >> 32) as usize % entries.len()];
            (prefix_of(&slot), slot.end() - slot.start + size_of::<BufferedEntry>())
        };
        let mut sample: Vec<(u64, usize)> = groups.map(one_of).collect();
        sample.sort_unstable();
        let total: usize = sample.iter().map(|(_, bytes)| bytes).sum();
        let (mut all, mut before) = (Vec::new(), 0);
        for (prefix, bytes) in sample {
            if before * count >= total * (all.len() + 1) {
                all.push(prefix);
            }
            before += bytes;
        }
        all.dedup();
        check_slow!(
            all.len() < count.max(1) && all.is_sorted(),
            "parts of a load are separated by ascending boundaries",
            all
        );
        all
    }
    /// Returns the length of the prefix that all keys share, if they are in the order of bytes.
    fn shared_prefix_len(&self) -> usize {
        let mut keys = self.entries_meta.iter().map(|slot| self.key(slot));
        match keys.next() {
            Some(first) if self.comparator == KeyComparator::Bytes => keys
                .fold(first.len(), |n, key| KeyRef::from_key(key).common_prefix_len(&first[..n])),
            _ => 0,
        }
    }
}

/// A key range of a buffer, sorted and written independently of the others, and what was written
/// from it.
#[derive(Debug)]
pub struct LoadPart<'a> {
    buffer: &'a LoadBuffer,
    entries: PartEntries<'a>,
    /// True if the entries are in key order, each key once.
    sorted: bool,
    /// The files created so far, even if the write failed.
    pub created: CreatedFiles,
    /// The tables, once they are written.
    pub output: Option<RewriteOutput>,
}

#[derive(Debug)]
enum PartEntries<'a> {
    Slots(&'a [BufferedEntry]),
    /// For each entry eight bytes of its key as a number, and its position in the buffer.
    Order(Vec<(u64, usize)>),
}

impl LoadPart<'_> {
    /// Bytes of memory allocated beside the buffer.
    pub fn allocated_bytes(&self) -> usize {
        match &self.entries {
            PartEntries::Slots(_) => 0,
            PartEntries::Order(order) => order.capacity() * size_of::<(u64, usize)>(),
        }
    }
    /// Sorts the entries and keeps only the last entry added for each key.
    pub fn sort(&mut self) {
        let LoadBuffer { comparator, entries_meta, .. } = self.buffer;
        if let PartEntries::Order(order) = &mut self.entries {
            let key_at = |i: usize| self.buffer.key(&entries_meta[i]);
            order.sort_unstable_by(|(prefix, i), (other_prefix, j)| {
                let whole = || comparator.cmp(key_at(*i), key_at(*j));
                prefix.cmp(other_prefix).then_with(whole).then(i.cmp(j))
            });
            order.dedup_by(|(prefix, later), (kept_prefix, kept)| {
                let equal =
                    prefix == kept_prefix && comparator.cmp(key_at(*later), key_at(*kept)) == Equal;
                if equal && !bug::is_active(Bug::LoadFirstWins) {
                    *kept = *later;
                }
                equal
            });
            check_slow!(
                order.is_sorted_by(|a, b| comparator.cmp(key_at(a.1), key_at(b.1)) == Less),
                "sorted entries have distinct, ascending keys",
                order.len()
            );
        }
        self.sorted = true;
    }
    /// Returns the entries with sequence number `seq`. The part must be sorted.
    pub fn entries(&self, seq: SeqNo) -> impl Iterator<Item = EntryRef<'_>> {
        check!(self.sorted, "entries are written in key order", self.buffer.entries_meta.len());
        LoadPartEntries { part: self, seq, next: 0, touched: 0 }
    }
}

/// The entries of a sorted part.
struct LoadPartEntries<'a> {
    part: &'a LoadPart<'a>,
    seq: SeqNo,
    /// Number of entries returned.
    next: usize,
    /// Number of entries touched by [`LoadPartEntries::touch_next`].
    touched: usize,
}

impl LoadPartEntries<'_> {
    /// Touches the next entries: these loads run in parallel, whereas reading one entry after the
    /// other would wait for each in turn.
    fn touch_next(&mut self, order: &[(u64, usize)]) {
        let LoadBuffer { bytes, entries_meta, .. } = self.part.buffer;
        let items = &order[self.next..order.len().min(self.next + TOUCHED_ENTRIES)];
        self.touched = self.next + items.len();
        let mut slots = [None; TOUCHED_ENTRIES];
        slots.iter_mut().zip(items).for_each(|(slot, (_, i))| *slot = Some(entries_meta[*i]));
        let mut loaded = 0;
        for slot in slots.iter().flatten() {
            loaded |= touch(&bytes[slot.start..slot.end()]);
        }
        std::hint::black_box(loaded);
    }
}

impl<'a> Iterator for LoadPartEntries<'a> {
    type Item = EntryRef<'a>;
    fn next(&mut self) -> Option<EntryRef<'a>> {
        let LoadPart { buffer, entries, .. } = self.part;
        let slot = match entries {
            PartEntries::Slots(slots) => slots.get(self.next)?,
            PartEntries::Order(order) => {
                if self.next == self.touched {
                    self.touch_next(order);
                }
                &buffer.entries_meta[order.get(self.next)?.1]
            }
        };
        self.next += 1;
        Some(EntryRef { key: buffer.key(slot), seq: self.seq, value: buffer.value(slot) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compared with a stable sort by whole keys, of keys that share prefixes of many lengths.
    #[test]
    fn sort_matches_a_sort_by_whole_keys() {
        let mut x = 0x9E37_79B9_7F4A_7C15_u64;
        let mut random = |below: u64| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            x % below
        };
        for case in 0..200 {
            let comparator = [
                KeyComparator::Bytes,
                KeyComparator::Bytes,
                KeyComparator::Reverse,
                KeyComparator::U64,
                KeyComparator::CaseInsensitive,
            ][case % 5];
            let start = vec![b'p'; random(12) as usize];
            let mut buffer = LoadBuffer::new(comparator);
            let mut expected: Vec<(Vec<u8>, usize)> = (0..random(300) as usize)
                .map(|n| {
                    let end = (0..random(11)).map(|_| [0, b'a', b'A', 255][random(4) as usize]);
                    (start.iter().copied().chain(end).collect(), n)
                })
                .collect();
            for (key, n) in &expected {
                buffer.push(key, &n.to_le_bytes(), None).unwrap();
            }
            expected.sort_by(|(a, _), (b, _)| comparator.cmp(a, b));
            let mut last: Vec<(Vec<u8>, usize)> = Vec::new();
            for entry in expected {
                match last.last_mut() {
                    Some(kept) if comparator.cmp(&kept.0, &entry.0).is_eq() => *kept = entry,
                    _ => last.push(entry),
                }
            }
            let expected: Vec<_> =
                last.iter().map(|(key, n)| (&key[..], n.to_le_bytes().to_vec())).collect();
            assert_eq!(buffer.smallest_key(), expected.first().map(|(key, _)| *key));
            for count in [1, 2, 5] {
                let mut parts = buffer.divide(count);
                assert!(parts.len() <= count, "{} parts", parts.len());
                parts.iter_mut().for_each(LoadPart::sort);
                let entries = parts.iter().flat_map(|part| part.entries(SeqNo(1)));
                let sorted: Vec<_> = entries
                    .map(|e| match e.value {
                        ValueRef::Inline(value) => (e.key, value.to_vec()),
                        other => panic!("{other:?}"),
                    })
                    .collect();
                assert_eq!(sorted, expected, "{comparator:?}, {count} parts");
            }
        }
    }

    #[test]
    fn parts_have_about_the_same_size() {
        // The last case adds entries of four indexes in turn, as a table does.
        for (case, entries) in [(0, 10_000), (1, 10_000), (2, 10_000), (2, 16_000), (2, 16_384)] {
            let mut buffer = LoadBuffer::new(KeyComparator::Bytes);
            for i in 0..entries {
                let key = match case {
                    0 => format!("row {i:05}"),
                    1 => format!("row {:05}", i * 7_919 % 10_000),
                    _ => format!("{} row {:05}", i % 4, i * 7_919 % 16_411),
                };
                buffer.push(key.as_bytes(), b"", None).unwrap();
            }
            let mut parts = buffer.divide(4);
            parts.iter_mut().for_each(LoadPart::sort);
            let sizes: Vec<_> = parts.iter().map(|p| p.entries(SeqNo(1)).count()).collect();
            assert_eq!(sizes.iter().sum::<usize>(), entries);
            assert!(
                sizes.len() == 4
                    && sizes.iter().all(|n| (entries / 5..entries * 3 / 10).contains(n)),
                "{sizes:?}"
            );
        }
    }

    #[test]
    fn last_of_equal_keys_wins() {
        let mut buffer = LoadBuffer::new(KeyComparator::Bytes);
        for (k, v) in [("b", "1"), ("a", "2"), ("b", "3"), ("c", "4"), ("b", "5"), ("a", "")] {
            buffer.push(k.as_bytes(), v.as_bytes(), None).unwrap();
        }
        buffer.push(b"c", b"6", Some(Expiry(7))).unwrap();
        let mut parts = buffer.divide(1);
        parts[0].sort();
        let text: Vec<String> = parts[0]
            .entries(SeqNo(7))
            .map(|e| match e.value {
                ValueRef::Inline(v) => format!("{}={}", e.key.escape_ascii(), v.escape_ascii()),
                ValueRef::InlineExpiring(v, x) => {
                    format!("{}={}<{}", e.key.escape_ascii(), v.escape_ascii(), x.0)
                }
                _ => "?".into(),
            })
            .collect();
        assert_eq!(text.join(" "), "a= b=5 c=6<7");
        assert_eq!(buffer.smallest_key(), Some(&b"a"[..]));
        buffer.clear();
        assert!(
            buffer.is_empty() && buffer.smallest_key().is_none() && buffer.divide(2).is_empty()
        );
    }
}
