//! Entries of a load in memory, until there are enough for a run.

use perigee_base::bug::{self, Bug};
use perigee_base::{EntryRef, Error, ErrorKind, Expiry, KeyComparator, Result, SeqNo, ValueRef};
use std::cmp::Ordering::{Equal, Less};

/// In the length of a value, which is at most 2^30: its end lies between key and value.
const EXPIRING_FLAG: u32 = 1 << 31;

#[derive(Clone, Copy, Debug)]
struct BufferedEntry {
    start: usize,
    key: u32,
    /// Length, and `EXPIRING_FLAG`.
    value: u32,
}

/// Entries in the order they came, sorted when asked.
#[derive(Debug)]
pub struct LoadBuffer {
    comparator: KeyComparator,
    bytes: Vec<u8>,
    entries_meta: Vec<BufferedEntry>,
    /// They came in order, each key once.
    sorted: bool,
}

impl LoadBuffer {
    /// Empty.
    pub fn new(order: KeyComparator) -> LoadBuffer {
        LoadBuffer { comparator: order, bytes: Vec::new(), entries_meta: Vec::new(), sorted: true }
    }
    /// Adds an entry, whose lengths the caller has checked.
    ///
    /// # Errors
    /// `NoMemory`; the chunk is as it was.
    pub fn push(&mut self, key: &[u8], value: &[u8], expiry: Option<Expiry>) -> Result<()> {
        let end = expiry.map(Expiry::encode);
        let n = key.len() + value.len() + end.map_or(0, |e| e.len());
        self.bytes.try_reserve(n).map_err(|_| {
            Error::new(
                ErrorKind::NoMemory,
                format!("no memory for an entry of {n} bytes in a load"),
            )
        })?;
        if let Some(last) = self.entries_meta.last() {
            self.sorted &= self.comparator.cmp(self.key(last), key) == Less;
        }
        let timed = if end.is_some() { EXPIRING_FLAG } else { 0 };
        let slot = BufferedEntry {
            start: self.bytes.len(),
            key: key.len() as u32,
            value: value.len() as u32 | timed,
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
    /// Bytes of memory that are taken for it, those that wait for the next entries included.
    pub fn allocated_bytes(&self) -> usize {
        self.bytes.capacity() + self.entries_meta.capacity() * size_of::<BufferedEntry>()
    }
    /// Bytes of its entries.
    pub fn used_bytes(&self) -> usize {
        self.bytes.len() + self.entries_meta.len() * size_of::<BufferedEntry>()
    }
    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.entries_meta.is_empty()
    }
    /// Forgets everything, keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.entries_meta.clear();
        self.sorted = true;
    }
    /// Sorts, and keeps the last entry of each key.
    pub fn sort(&mut self) {
        if self.sorted {
            return;
        }
        let mut slots = std::mem::take(&mut self.entries_meta);
        // Stable: of equal keys the last one came last.
        slots.sort_by(|a, b| self.comparator.cmp(self.key(a), self.key(b)));
        let same = |a: &BufferedEntry, b: &BufferedEntry| {
            self.comparator.cmp(self.key(a), self.key(b)) == Equal
        };
        slots.dedup_by(|later, kept| {
            let equal = same(later, kept);
            if equal && !bug::is_active(Bug::LoadFirstWins) {
                *kept = *later;
            }
            equal
        });
        self.entries_meta = slots;
        self.sorted = true;
    }
    /// The first key of a sorted chunk.
    pub fn first_key(&self) -> Option<&[u8]> {
        self.entries_meta.first().map(|s| self.key(s))
    }
    /// The entries of a sorted chunk, all under one number.
    pub fn entries(&self, seq: SeqNo) -> impl Iterator<Item = EntryRef<'_>> {
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

    #[test]
    fn last_of_equal_keys_wins() {
        let mut c = LoadBuffer::new(KeyComparator::Bytes);
        for (k, v) in [("b", "1"), ("a", "2"), ("b", "3"), ("c", "4"), ("b", "5"), ("a", "")] {
            c.push(k.as_bytes(), v.as_bytes(), None).unwrap();
        }
        c.push(b"c", b"6", Some(Expiry(7))).unwrap();
        c.sort();
        let text: Vec<String> = c
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
        assert_eq!(c.first_key(), Some(&b"a"[..]));
        c.clear();
        assert!(c.is_empty() && c.first_key().is_none());
    }
}
