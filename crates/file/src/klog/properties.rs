//! What a klog says about itself: the summary that the manifest keeps, its encoding as properties,
//! and the tally that counts it (in the writer, and again in `verify`).
//!
//! ```text
//! pairs  varint tag | varint length | bytes, tags ascending
//! ```
//! Tag 22 (the sketch of keys, see `sketch.rs`) is there from [`SKETCHED_KEYS_MIN`] keys on, tag 24
//! (when entries expire, see `expiries.rs`) if any do. Tag 27 (the number of operands of merges) is
//! there if there are any. Even tags may be unknown; an unknown odd tag refuses the file; every
//! known odd tag but 27 is there.

use crate::block::TableBlock;
use crate::expiry_histogram::ExpiryHistogram;
use crate::key_sketch::KeySketch;
use crate::range_tombstones::RangeTombstones;
use perigee_base::codec::{Decoder, put_bytes, put_varint};
use perigee_base::key_boundary::{KeyBoundary, KeyBoundaryRef};
use perigee_base::limits::{BLOCK_RAW_BYTES_MAX, KEY_BYTES_MAX};
use perigee_base::{
    EntryRef, Error, ErrorKind, FileId, KeyComparator, KeyRef, Result, SeqNo, ValueRef,
};
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// The range tombstones of a klog: their number, counted once for each fragment, and how far they
/// reach together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeTombstoneSummary {
    /// Sequence numbers of all fragments.
    pub count: u64,
    /// Where the first begins.
    pub begin: KeyBoundary,
    /// Where the last ends.
    pub end: KeyBoundary,
}

impl RangeTombstoneSummary {
    /// The summary of fragments, if there are any.
    pub fn from_tombstones(fragments: &RangeTombstones) -> Option<RangeTombstoneSummary> {
        let (begin, end) = fragments.extent()?;
        Some(RangeTombstoneSummary {
            count: fragments.tombstone_count(),
            begin: begin.to_boundary(),
            end: end.to_boundary(),
        })
    }
    /// Appends the encoded form: varint count, and if it is not 0 the two ends.
    pub fn encode(ranges: Option<&RangeTombstoneSummary>, out: &mut Vec<u8>) {
        put_varint(out, ranges.map_or(0, |r| r.count));
        for cut in ranges.iter().flat_map(|r| [&r.begin, &r.end]) {
            let mut bytes = Vec::new();
            cut.as_ref().encode(&mut bytes);
            put_bytes(out, &bytes);
        }
    }
    /// Decodes it.
    pub fn decode(d: &mut Decoder<'_>) -> Result<Option<RangeTombstoneSummary>> {
        let count = d.varint()?;
        if count == 0 {
            return Ok(None);
        }
        let mut cut = || {
            Ok::<KeyBoundary, Error>(
                KeyBoundaryRef::decode(d.bytes(KEY_BYTES_MAX + 1)?)?.to_boundary(),
            )
        };
        Ok(Some(RangeTombstoneSummary { count, begin: cut()?, end: cut()? }))
    }
}

/// What a klog holds: for the manifest and for statistics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KlogSummary {
    /// Length of the file.
    pub bytes: u64,
    /// Checksum of the whole file.
    pub checksum: u64,
    /// Entries, tombstones included.
    pub entries: u64,
    /// Tombstones.
    pub tombstones: u64,
    /// Smallest sequence number.
    pub smallest_seq: SeqNo,
    /// Largest sequence number.
    pub largest_seq: SeqNo,
    /// First key.
    pub first_key: Vec<u8>,
    /// Last key.
    pub last_key: Vec<u8>,
    /// Bytes of all keys.
    pub raw_key_bytes: u64,
    /// Bytes of all values, inline and separated.
    pub raw_value_bytes: u64,
    /// Value logs referenced, ascending, each with the stored bytes referenced.
    pub vlogs: Vec<(FileId, u64)>,
    /// Range tombstones. First and last key are those of the entries; how far the klog reaches is
    /// [`KlogSummary::begin`] to [`KlogSummary::end`].
    pub ranges: Option<RangeTombstoneSummary>,
}

impl KlogSummary {
    /// The place before everything in it, range tombstones included.
    pub fn begin(&self, order: KeyComparator) -> KeyBoundaryRef<'_> {
        let entries = KeyBoundaryRef::Before(&self.first_key);
        match &self.ranges {
            None => entries,
            Some(r) if self.entries == 0 => r.begin.as_ref(),
            Some(r) => r.begin.as_ref().smaller(order, entries),
        }
    }
    /// The place behind everything in it.
    pub fn end(&self, order: KeyComparator) -> KeyBoundaryRef<'_> {
        let entries = KeyBoundaryRef::After(&self.last_key);
        match &self.ranges {
            None => entries,
            Some(r) if self.entries == 0 => r.end.as_ref(),
            Some(r) => r.end.as_ref().larger(order, entries),
        }
    }
    /// Whether it reaches into what another reaches over.
    pub fn overlaps(&self, order: KeyComparator, other: &KlogSummary) -> bool {
        let reach = |s: &KlogSummary| (s.begin(order).to_boundary(), s.end(order).to_boundary());
        let (a, b) = (reach(self), reach(other));
        KeyBoundaryRef::ranges_overlap(
            order,
            (a.0.as_ref(), a.1.as_ref()),
            (b.0.as_ref(), b.1.as_ref()),
        )
    }
    /// Whether its parts agree with each other.
    fn is_consistent(&self, order: KeyComparator) -> bool {
        let keys = self.first_key.len().max(self.last_key.len()) <= KEY_BYTES_MAX
            && order.cmp(&self.first_key, &self.last_key).is_le()
            && (self.entries > 0 || self.first_key.len() + self.last_key.len() == 0);
        let ranges = self
            .ranges
            .as_ref()
            .is_none_or(|r| r.begin.as_ref().cmp(order, r.end.as_ref()).is_lt());
        (self.entries > 0 || self.ranges.is_some())
            && self.tombstones <= self.entries
            && self.smallest_seq <= self.largest_seq
            && keys
            && ranges
    }
}

/// The tags, in the order they are written.
const REQUIRED_TAGS: [u64; 11] = [1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21];

/// The tag of the sketch of keys.
const SKETCH_TAG: u64 = 22;
/// A table of fewer keys has no sketch: it is small enough to be walked.
pub const SKETCHED_KEYS_MIN: u64 = 2048;

/// Adds the sketch to the raw form.
pub fn append_sketch(out: &mut Vec<u8>, sketch: &KeySketch) {
    put_varint(out, SKETCH_TAG);
    put_bytes(out, sketch.raw());
}

/// The tag of the times at which entries expire.
const EXPIRIES_TAG: u64 = 24;

/// Adds them to the raw form, if there are any; behind the sketch.
pub fn append_expiries(out: &mut Vec<u8>, expiries: &ExpiryHistogram) {
    if !expiries.is_empty() {
        put_varint(out, EXPIRIES_TAG);
        put_bytes(out, &expiries.encode());
    }
}

/// The tag of the number of operands. Odd: who does not know operands must not read the file.
const OPERANDS_TAG: u64 = 27;

/// Adds the number of operands to the raw form, if there are any; behind the times.
pub fn append_operands(out: &mut Vec<u8>, operands: u64) {
    if operands > 0 {
        let mut number = Vec::new();
        put_varint(&mut number, operands);
        put_varint(out, OPERANDS_TAG);
        put_bytes(out, &number);
    }
}

/// The number of operands: none, if the raw form does not say.
pub fn decode_operands(raw: &[u8]) -> Result<u64> {
    Ok(find_property(raw, OPERANDS_TAG)?.map(decode_number).transpose()?.unwrap_or(0))
}

/// The value of a tag in the raw form, if it is there.
fn find_property(raw: &[u8], wanted: u64) -> Result<Option<&[u8]>> {
    let mut d = Decoder::new(raw);
    while !d.is_empty() {
        let (tag, value) = (d.varint()?, d.bytes(BLOCK_RAW_BYTES_MAX)?);
        if tag == wanted {
            return Ok(Some(value));
        }
    }
    Ok(None)
}

/// The sketch in the raw form, if it is there.
pub fn decode_sketch(raw: &[u8]) -> Result<Option<KeySketch>> {
    find_property(raw, SKETCH_TAG)?.map(KeySketch::decode).transpose()
}

/// The times at which entries expire: none, if the raw form does not say.
pub fn decode_expiries(raw: &[u8]) -> Result<ExpiryHistogram> {
    Ok(find_property(raw, EXPIRIES_TAG)?
        .map(ExpiryHistogram::decode)
        .transpose()?
        .unwrap_or_default())
}

/// The raw form of the property frame.
pub fn encode(s: &KlogSummary, order: KeyComparator) -> Vec<u8> {
    let number = |v: u64| {
        let mut out = Vec::new();
        put_varint(&mut out, v);
        out
    };
    let mut vlogs = Vec::new();
    for (file, stored) in &s.vlogs {
        put_varint(&mut vlogs, file.0);
        put_varint(&mut vlogs, *stored);
    }
    let mut ranges = Vec::new();
    RangeTombstoneSummary::encode(s.ranges.as_ref(), &mut ranges);
    let values = [
        number(s.entries),
        number(s.tombstones),
        number(s.smallest_seq.0),
        number(s.largest_seq.0),
        s.first_key.clone(),
        s.last_key.clone(),
        number(s.raw_key_bytes),
        number(s.raw_value_bytes),
        vlogs,
        order.name().as_bytes().to_vec(),
        ranges,
    ];
    let mut out = Vec::new();
    for (tag, value) in REQUIRED_TAGS.iter().zip(values) {
        put_varint(&mut out, *tag);
        put_bytes(&mut out, &value);
    }
    out
}

/// Decodes the raw form. `bytes` and `checksum` are 0: the file cannot say them of itself.
pub fn decode(raw: &[u8]) -> Result<(KlogSummary, KeyComparator)> {
    let fields = decode_required(raw)?;
    let s = KlogSummary {
        bytes: 0,
        checksum: 0,
        entries: decode_number(fields[0])?,
        tombstones: decode_number(fields[1])?,
        smallest_seq: SeqNo(decode_number(fields[2])?),
        largest_seq: SeqNo(decode_number(fields[3])?),
        first_key: fields[4].to_vec(),
        last_key: fields[5].to_vec(),
        raw_key_bytes: decode_number(fields[6])?,
        raw_value_bytes: decode_number(fields[7])?,
        vlogs: decode_vlogs(fields[8])?,
        ranges: decode_ranges(fields[10])?,
    };
    let name = std::str::from_utf8(fields[9])
        .map_err(|_| Error::corruption("the name of a key order is not text"))?;
    let order = KeyComparator::by_name(name)?;
    if !s.is_consistent(order) {
        return Err(Error::corruption("the properties of a klog contradict each other"));
    }
    Ok((s, order))
}

/// The value of each known tag.
fn decode_required(raw: &[u8]) -> Result<[&[u8]; REQUIRED_TAGS.len()]> {
    let mut found = [None; REQUIRED_TAGS.len()];
    let mut d = Decoder::new(raw);
    let mut previous = None;
    while !d.is_empty() {
        let tag = d.varint()?;
        let value = d.bytes(BLOCK_RAW_BYTES_MAX)?;
        if previous.is_some_and(|p| p >= tag) {
            return Err(Error::corruption("property tags do not ascend"));
        }
        previous = Some(tag);
        match REQUIRED_TAGS.iter().position(|&t| t == tag) {
            Some(i) => found[i] = Some(value),
            None if tag % 2 == 0 || tag == OPERANDS_TAG => {}
            None => {
                let what = format!(
                    "the klog has a property {tag} that this build does not know: use a newer Perigee"
                );
                return Err(Error::new(ErrorKind::FormatTooNew, what));
            }
        }
    }
    if let Some(i) = found.iter().position(Option::is_none) {
        return Err(Error::corruption(format!("property {} is missing", REQUIRED_TAGS[i])));
    }
    Ok(found.map(Option::unwrap_or_default))
}

fn decode_number(bytes: &[u8]) -> Result<u64> {
    let mut d = Decoder::new(bytes);
    let v = d.varint()?;
    if d.is_empty() {
        Ok(v)
    } else {
        Err(Error::corruption("bytes after a number in the properties"))
    }
}

fn decode_ranges(bytes: &[u8]) -> Result<Option<RangeTombstoneSummary>> {
    let mut d = Decoder::new(bytes);
    let ranges = RangeTombstoneSummary::decode(&mut d)?;
    if d.is_empty() {
        Ok(ranges)
    } else {
        Err(Error::corruption("bytes after the ends of the ranges"))
    }
}

fn decode_vlogs(bytes: &[u8]) -> Result<Vec<(FileId, u64)>> {
    let mut d = Decoder::new(bytes);
    let mut out: Vec<(FileId, u64)> = Vec::new();
    while !d.is_empty() {
        let next = (FileId(d.varint()?), d.varint()?);
        if out.last().is_some_and(|last| last.0 >= next.0) {
            return Err(Error::corruption("the value logs in the properties do not ascend"));
        }
        out.push(next);
    }
    Ok(out)
}

/// Counts entries as they pass, and refuses those out of order.
#[derive(Debug)]
pub(crate) struct PropertiesCollector {
    comparator: KeyComparator,
    entries: u64,
    tombstones: u64,
    smallest_seq: SeqNo,
    largest_seq: SeqNo,
    first_key: Vec<u8>,
    /// The newest entry's place.
    last_key: Vec<u8>,
    last_seq: SeqNo,
    raw_key_bytes: u64,
    raw_value_bytes: u64,
    vlogs: BTreeMap<FileId, u64>,
    ranges: Option<RangeTombstoneSummary>,
    expiries: ExpiryHistogram,
    operand_count: u64,
}

impl PropertiesCollector {
    pub fn new(order: KeyComparator) -> PropertiesCollector {
        PropertiesCollector {
            comparator: order,
            entries: 0,
            tombstones: 0,
            smallest_seq: SeqNo::MAX,
            largest_seq: SeqNo::ZERO,
            first_key: Vec::new(),
            last_key: Vec::new(),
            last_seq: SeqNo::ZERO,
            raw_key_bytes: 0,
            raw_value_bytes: 0,
            vlogs: BTreeMap::new(),
            ranges: None,
            expiries: ExpiryHistogram::default(),
            operand_count: 0,
        }
    }

    /// How many of them are operands.
    pub fn operand_count(&self) -> u64 {
        self.operand_count
    }

    /// When its entries expire.
    pub fn expiries(&self) -> &ExpiryHistogram {
        &self.expiries
    }

    /// The last entry's place, if there is one.
    pub fn last_entry(&self) -> Option<(&[u8], SeqNo)> {
        (self.entries > 0).then_some((&self.last_key, self.last_seq))
    }

    /// Counts an entry. Whether its key is another than the entry's before; `None` if it is out of
    /// order.
    pub fn add_entry(&mut self, e: EntryRef<'_>) -> Option<bool> {
        let new_key = match self.last_entry() {
            None => {
                self.first_key = e.key.to_vec();
                true
            }
            Some((key, seq)) => match self.comparator.cmp(key, e.key) {
                Ordering::Less => true,
                Ordering::Equal if seq > e.seq => false,
                _ => return None,
            },
        };
        if new_key {
            self.last_key.clear();
            self.last_key.extend_from_slice(e.key);
        }
        self.last_seq = e.seq;
        self.entries += 1;
        self.smallest_seq = self.smallest_seq.min(e.seq);
        self.largest_seq = self.largest_seq.max(e.seq);
        self.raw_key_bytes = self.raw_key_bytes.wrapping_add(e.key.len() as u64);
        self.add_value(e.value);
        if let Some(at) = e.value.expiry() {
            self.expiries.add(at);
        }
        Some(new_key)
    }

    /// Counts the entries of a block. `tell` hears each key that is another than the one before;
    /// the number of an entry that is out of order is an error.
    pub fn add_block(
        &mut self,
        block: &TableBlock,
        mut tell: impl FnMut(&[u8]),
    ) -> std::result::Result<(), usize> {
        let order = self.comparator;
        let prefix = block.prefix();
        let mut place = block.suffix_range(0);
        for i in 0..block.len() {
            let before = place.clone();
            if i > 0 {
                place = block.suffix_range_after(i, &place);
            }
            let (suffix, seq) = (block.bytes(place.clone()), block.seq(i));
            let against = match i {
                0 if self.entries == 0 => Ordering::Less,
                0 => KeyRef::from_key(&self.last_key).cmp(order, KeyRef { prefix, suffix }),
                // Keys of a block begin alike, or (in other orders) lie there whole.
                _ => order.cmp(block.bytes(before), suffix),
            };
            match against {
                Ordering::Less => {
                    if i == 0 {
                        self.last_key.clear();
                        self.last_key.extend_from_slice(prefix);
                    }
                    self.last_key.truncate(prefix.len());
                    self.last_key.extend_from_slice(suffix);
                    if self.entries == 0 && i == 0 {
                        self.first_key.clone_from(&self.last_key);
                    }
                    tell(&self.last_key);
                }
                Ordering::Equal if self.last_seq > seq => {}
                _ => return Err(i),
            }
            self.last_seq = seq;
            self.smallest_seq = self.smallest_seq.min(seq);
            self.largest_seq = self.largest_seq.max(seq);
        }
        self.entries += block.len() as u64;
        self.raw_key_bytes = self.raw_key_bytes.wrapping_add(block.key_bytes() as u64);
        if block.all_puts() {
            self.raw_value_bytes = self.raw_value_bytes.wrapping_add(block.value_bytes() as u64);
            return Ok(());
        }
        for i in 0..block.len() {
            let value = block.value(i);
            self.add_value(value);
            if let Some(at) = value.expiry() {
                self.expiries.add(at);
            }
        }
        Ok(())
    }

    // Wrapping: a file made to mislead may claim any sizes in its pointers; the sums are compared,
    // not used.
    fn add_value(&mut self, value: ValueRef<'_>) {
        self.operand_count += u64::from(value.is_operand());
        let bytes = match value {
            ValueRef::Tombstone | ValueRef::SingleDelete => {
                self.tombstones += 1;
                0
            }
            ValueRef::Inline(v) | ValueRef::InlineExpiring(v, _) | ValueRef::Operand(v) => {
                v.len() as u64
            }
            ValueRef::Pointer(p)
            | ValueRef::PointerExpiring(p, _)
            | ValueRef::OperandPointer(p) => {
                let stored = self.vlogs.entry(p.file).or_default();
                *stored = stored.wrapping_add(p.stored_bytes);
                p.value_bytes
            }
        };
        self.raw_value_bytes = self.raw_value_bytes.wrapping_add(bytes);
    }

    /// Counts range tombstones.
    pub fn add_range_tombstones(&mut self, fragments: &RangeTombstones) {
        if let Some((oldest, newest)) = fragments.seq_range() {
            self.smallest_seq = self.smallest_seq.min(oldest);
            self.largest_seq = self.largest_seq.max(newest);
        }
        self.ranges = RangeTombstoneSummary::from_tombstones(fragments);
    }

    /// Everything counted, without length and checksum.
    pub fn into_summary(self) -> KlogSummary {
        KlogSummary {
            bytes: 0,
            checksum: 0,
            entries: self.entries,
            tombstones: self.tombstones,
            smallest_seq: self.smallest_seq,
            largest_seq: self.largest_seq,
            first_key: self.first_key,
            last_key: self.last_key,
            raw_key_bytes: self.raw_key_bytes,
            raw_value_bytes: self.raw_value_bytes,
            vlogs: self.vlogs.into_iter().collect(),
            ranges: self.ranges,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> KlogSummary {
        let mut t = PropertiesCollector::new(KeyComparator::Bytes);
        for (k, seq, value) in [
            (b"a", 9, ValueRef::Inline(b"xyz")),
            (b"a", 4, ValueRef::Tombstone),
            (b"b", 5, ValueRef::Tombstone),
        ] {
            assert!(t.add_entry(EntryRef { key: k, seq: SeqNo(seq), value }).is_some());
        }
        assert!(
            t.add_entry(EntryRef { key: b"b", seq: SeqNo(5), value: ValueRef::Tombstone })
                .is_none(),
            "the same twice"
        );
        assert!(
            t.add_entry(EntryRef { key: b"a", seq: SeqNo(1), value: ValueRef::Tombstone })
                .is_none(),
            "backwards"
        );
        KlogSummary { vlogs: vec![(FileId(3), 700), (FileId(9), 1)], ..t.into_summary() }
    }

    #[test]
    fn properties_round_trip_and_unknown_tags_are_handled() {
        let raw = encode(&sample(), KeyComparator::Bytes);
        assert_eq!(decode(&raw).unwrap(), (sample(), KeyComparator::Bytes));
        let with = |extra: &[u8]| decode(&[&raw, extra].concat());
        assert_eq!(with(&[26, 2, 7, 7]).unwrap().0, sample(), "an unknown even tag is skipped");
        assert_eq!(with(&[23, 1, 7]).unwrap_err().kind(), ErrorKind::FormatTooNew);
        assert!(with(&[1, 1, 7]).unwrap_err().is_corruption());
        for len in 0..raw.len() {
            assert!(decode(&raw[..len]).is_err());
        }
        let mut other = raw.clone();
        let name = other.windows(5).position(|w| w == b"bytes").unwrap();
        other[name] = b'z';
        assert_eq!(
            decode(&other).unwrap_err().kind(),
            ErrorKind::FormatTooNew,
            "an unknown key order"
        );
    }
}
