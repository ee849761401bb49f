//! Entries of a load in memory, until there are enough for a run.

use perigee_base::bug::{self, Bug};
use perigee_base::{EntryRef, Error, ErrorKind, Expiry, KeyOrder, Result, SeqNo, ValueRef};
use std::cmp::Ordering::{Equal, Less};

/// In the length of a value, which is at most 2^30: its end lies between key and value.
const TIMED: u32 = 1 << 31;

#[derive(Clone, Copy, Debug)]
struct Slot {
    start: usize,
    key: u32,
    /// Length, and `TIMED`.
    value: u32,
}

/// Entries in the order they came, sorted when asked.
#[derive(Debug)]
pub struct Chunk {
    order: KeyOrder,
    bytes: Vec<u8>,
    slots: Vec<Slot>,
    /// They came in order, each key once.
    sorted: bool,
}

impl Chunk {
    /// Empty.
    pub fn new(order: KeyOrder) -> Chunk {
        Chunk { order, bytes: Vec::new(), slots: Vec::new(), sorted: true }
    }
    /// Adds an entry, whose lengths the caller has checked.
    ///
    /// # Errors
    /// `NoMemory`; the chunk is as it was.
    pub fn push(&mut self, key: &[u8], value: &[u8], expiry: Option<Expiry>) -> Result<()> {
        let end = expiry.map(Expiry::encode);
        let n = key.len() + value.len() + end.map_or(0, |e| e.len());
        self.bytes.try_reserve(n).map_err(|_| {
            Error::new(ErrorKind::NoMemory, format!("no memory for an entry of {n} bytes in a load"))
        })?;
        if let Some(last) = self.slots.last() {
            self.sorted &= self.order.cmp(self.key(last), key) == Less;
        }
        let timed = if end.is_some() { TIMED } else { 0 };
        let slot = Slot { start: self.bytes.len(), key: key.len() as u32, value: value.len() as u32 | timed };
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(end.as_ref().map_or(&[], |e| &e[..]));
        self.bytes.extend_from_slice(value);
        self.slots.push(slot);
        Ok(())
    }
    fn key(&self, s: &Slot) -> &[u8] {
        &self.bytes[s.start..s.start + s.key as usize]
    }
    fn value(&self, s: &Slot) -> ValueRef<'_> {
        let rest = &self.bytes[s.start + s.key as usize..];
        let n = (s.value & !TIMED) as usize;
        match rest.split_first_chunk::<{ Expiry::BYTES }>() {
            Some((end, rest)) if s.value & TIMED != 0 => {
                ValueRef::InlineUntil(&rest[..n], Expiry(u64::from_le_bytes(*end)))
            }
            _ => ValueRef::Inline(&rest[..n]),
        }
    }
    /// Bytes of memory that are taken for it, those that wait for the next entries included.
    pub fn held_bytes(&self) -> usize {
        self.bytes.capacity() + self.slots.capacity() * size_of::<Slot>()
    }
    /// Bytes of its entries.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.len() + self.slots.len() * size_of::<Slot>()
    }
    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
    /// Forgets everything, keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.slots.clear();
        self.sorted = true;
    }
    /// Sorts, and keeps the last entry of each key.
    pub fn sort(&mut self) {
        if self.sorted {
            return;
        }
        let mut slots = std::mem::take(&mut self.slots);
        // Stable: of equal keys the last one came last.
        slots.sort_by(|a, b| self.order.cmp(self.key(a), self.key(b)));
        let same = |a: &Slot, b: &Slot| self.order.cmp(self.key(a), self.key(b)) == Equal;
        slots.dedup_by(|later, kept| {
            let equal = same(later, kept);
            if equal && !bug::on(Bug::LoadFirstWins) {
                *kept = *later;
            }
            equal
        });
        self.slots = slots;
        self.sorted = true;
    }
    /// The first key of a sorted chunk.
    pub fn first_key(&self) -> Option<&[u8]> {
        self.slots.first().map(|s| self.key(s))
    }
    /// The entries of a sorted chunk, all under one number.
    pub fn entries(&self, seq: SeqNo) -> impl Iterator<Item = EntryRef<'_>> {
        self.slots.iter().map(move |s| EntryRef { key: self.key(s), seq, value: self.value(s) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_equal_keys_stays() {
        let mut c = Chunk::new(KeyOrder::Bytes);
        for (k, v) in [("b", "1"), ("a", "2"), ("b", "3"), ("c", "4"), ("b", "5"), ("a", "")] {
            c.push(k.as_bytes(), v.as_bytes(), None).unwrap();
        }
        c.push(b"c", b"6", Some(Expiry(7))).unwrap();
        c.sort();
        let text: Vec<String> = c
            .entries(SeqNo(7))
            .map(|e| match e.value {
                ValueRef::Inline(v) => format!("{}={}", e.key.escape_ascii(), v.escape_ascii()),
                ValueRef::InlineUntil(v, x) => {
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
