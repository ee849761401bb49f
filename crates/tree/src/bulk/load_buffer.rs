//! In-memory buffer of a bulk load's entries, until there are enough of them for a run.

use perigee_base::bug::{self, Bug};
use perigee_base::{
    EntryRef, Error, ErrorKind, Expiry, KeyComparator, KeyRef, Result, SeqNo, ValueRef,
};
use std::cmp::Ordering::{Equal, Less};

/// Flag in `BufferedEntry::value`, above the value length (at most 2^30): the entry's expiry is
/// stored between key and value.
const EXPIRING_FLAG: u32 = 1 << 31;
const _: () = assert!(perigee_base::limits::VALUE_BYTES_MAX < EXPIRING_FLAG as usize);

#[derive(Clone, Copy, Debug)]
struct BufferedEntry {
    start: usize,
    key: u32,
    /// Length of the value, and `EXPIRING_FLAG`.
    value: u32,
}

/// Entries in insertion order; `sort` puts them in key order.
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
    /// Sorts the entries and keeps only the last entry added for each key.
    pub fn sort(&mut self) {
        if self.sorted {
            return;
        }
        self.entries_meta = self.sorted_slots();
        check_slow!(
            self.entries_meta
                .is_sorted_by(|a, b| self.comparator.cmp(self.key(a), self.key(b)) == Less),
            "sorted entries have distinct, ascending keys",
            self.entries_meta.len()
        );
        self.sorted = true;
    }
    /// Returns the entries in the order of their keys, of equal keys the one added last.
    fn sorted_slots(&self) -> Vec<BufferedEntry> {
        let shared = self.shared_prefix_len();
        // Eight bytes of each key as a number decide most comparisons without reading the keys, which
        // are all over the buffer.
        let prefix_of =
            |slot| KeyRef::from_key(&self.key(slot)[shared..]).key_prefix(self.comparator, &[]);
        let slots = &self.entries_meta;
        let mut order: Vec<(u64, usize)> = slots.iter().map(prefix_of).zip(0..).collect();
        order.sort_unstable_by(|(prefix, i), (other_prefix, j)| {
            let whole = || self.comparator.cmp(self.key(&slots[*i]), self.key(&slots[*j]));
            prefix.cmp(other_prefix).then_with(whole).then(i.cmp(j))
        });
        order.dedup_by(|(prefix, later), (kept_prefix, kept)| {
            let equal = prefix == kept_prefix
                && self.comparator.cmp(self.key(&slots[*later]), self.key(&slots[*kept])) == Equal;
            if equal && !bug::is_active(Bug::LoadFirstWins) {
                *kept = *later;
            }
            equal
        });
        order.into_iter().map(|(_, i)| slots[i]).collect()
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
    /// Returns the first key. The buffer must be sorted.
    pub fn first_key(&self) -> Option<&[u8]> {
        self.entries_meta.first().map(|s| self.key(s))
    }
    /// Returns the entries with sequence number `seq`. The buffer must be sorted.
    pub fn entries(&self, seq: SeqNo) -> impl Iterator<Item = EntryRef<'_>> {
        check!(self.sorted, "entries are written in key order", self.entries_meta.len());
        self.entries_meta.iter().map(move |s| EntryRef {
            key: self.key(s),
            seq,
            value: self.value(s),
        })
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
            buffer.sort();
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
            let sorted: Vec<_> = buffer
                .entries(SeqNo(1))
                .map(|e| match e.value {
                    ValueRef::Inline(value) => (e.key, value.to_vec()),
                    other => panic!("{other:?}"),
                })
                .collect();
            assert_eq!(sorted, expected, "{comparator:?}");
        }
    }

    #[test]
    fn last_of_equal_keys_wins() {
        let mut buffer = LoadBuffer::new(KeyComparator::Bytes);
        for (k, v) in [("b", "1"), ("a", "2"), ("b", "3"), ("c", "4"), ("b", "5"), ("a", "")] {
            buffer.push(k.as_bytes(), v.as_bytes(), None).unwrap();
        }
        buffer.push(b"c", b"6", Some(Expiry(7))).unwrap();
        buffer.sort();
        let text: Vec<String> = buffer
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
        assert_eq!(buffer.first_key(), Some(&b"a"[..]));
        buffer.clear();
        assert!(buffer.is_empty() && buffer.first_key().is_none());
    }
}
