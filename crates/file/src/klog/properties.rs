//! Properties of a klog: the summary that the manifest keeps, its encoding in the property frame,
//! and the collector that computes it (in the writer, and again in `verify`).
//!
//! ```text
//! pairs  varint tag | varint length | bytes, tags ascending
//! ```
//! Tag 22 (the key sketch, see `key_sketch.rs`) is present from `SKETCHED_KEYS_MIN` keys on, tag
//! 24 (the expiry histogram, see `expiry_histogram.rs`) if any entry expires, tag 27 (the number of
//! merge operands) if there are any. Unknown even tags are skipped; an unknown odd tag rejects the
//! file; every known odd tag except 27 is required.

use crate::block::TableBlock;
use crate::expiry_histogram::ExpiryHistogram;
use crate::key_sketch::KeySketch;
use crate::range_tombstones::RangeTombstones;
use perigee_base::codec::{Decoder, put_bytes, put_varint};
use perigee_base::limits::{BLOCK_RAW_BYTES_MAX, KEY_BYTES_MAX};
use perigee_base::{
    EntryRef, Error, ErrorKind, FileId, KeyBoundary, KeyBoundaryRef, KeyComparator, KeyRef, Result,
    SeqNo, ValueRef,
};
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// Summary of the range tombstones of a klog: their number, counted once for each fragment, and
/// their total key range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeTombstoneSummary {
    /// Number of tombstones, counted once for each fragment.
    pub count: u64,
    /// Start of the first fragment.
    pub begin: KeyBoundary,
    /// End of the last fragment.
    pub end: KeyBoundary,
}

impl RangeTombstoneSummary {
    /// Summarizes fragments; `None` if there are none.
    pub fn from_tombstones(fragments: &RangeTombstones) -> Option<RangeTombstoneSummary> {
        let (begin, end) = fragments.extent()?;
        Some(RangeTombstoneSummary {
            count: fragments.tombstone_count(),
            begin: begin.to_boundary(),
            end: end.to_boundary(),
        })
    }
    /// Appends the encoded form: varint count, and if it is not 0 the two boundaries.
    pub fn encode(ranges: Option<&RangeTombstoneSummary>, out: &mut Vec<u8>) {
        put_varint(out, ranges.map_or(0, |r| r.count));
        for boundary in ranges.iter().flat_map(|r| [&r.begin, &r.end]) {
            let mut bytes = Vec::new();
            boundary.as_ref().encode(&mut bytes);
            put_bytes(out, &bytes);
        }
    }
    /// Decodes the form written by [`RangeTombstoneSummary::encode`].
    pub fn decode(d: &mut Decoder<'_>) -> Result<Option<RangeTombstoneSummary>> {
        let count = d.varint()?;
        if count == 0 {
            return Ok(None);
        }
        let mut boundary = || {
            Ok::<KeyBoundary, Error>(
                KeyBoundaryRef::decode(d.bytes(KEY_BYTES_MAX + 1)?)?.to_boundary(),
            )
        };
        Ok(Some(RangeTombstoneSummary { count, begin: boundary()?, end: boundary()? }))
    }
}

/// Summary of a klog's contents, for the manifest and for statistics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KlogSummary {
    /// Length of the file in bytes.
    pub bytes: u64,
    /// Whole-file checksum.
    pub checksum: u64,
    /// Number of entries, including tombstones.
    pub entries: u64,
    /// Number of tombstones.
    pub tombstones: u64,
    /// Smallest sequence number.
    pub smallest_seq: SeqNo,
    /// Largest sequence number.
    pub largest_seq: SeqNo,
    /// First key.
    pub first_key: Vec<u8>,
    /// Last key.
    pub last_key: Vec<u8>,
    /// Total bytes of all keys.
    pub raw_key_bytes: u64,
    /// Total bytes of all values, inline and separated.
    pub raw_value_bytes: u64,
    /// Referenced value logs, ascending, each with the stored bytes referenced.
    pub vlogs: Vec<(FileId, u64)>,
    /// Range tombstones. `first_key` and `last_key` are those of the entries; the klog covers the
    /// range from [`KlogSummary::begin`] to [`KlogSummary::end`].
    pub ranges: Option<Box<RangeTombstoneSummary>>,
}

impl KlogSummary {
    /// Returns the boundary before all entries and range tombstones.
    pub fn begin(&self, comparator: KeyComparator) -> KeyBoundaryRef<'_> {
        let entries = KeyBoundaryRef::Before(&self.first_key);
        match &self.ranges {
            None => entries,
            Some(r) if self.entries == 0 => r.begin.as_ref(),
            Some(r) => r.begin.as_ref().smaller(comparator, entries),
        }
    }
    /// Returns the boundary after all entries and range tombstones.
    pub fn end(&self, comparator: KeyComparator) -> KeyBoundaryRef<'_> {
        let entries = KeyBoundaryRef::After(&self.last_key);
        match &self.ranges {
            None => entries,
            Some(r) if self.entries == 0 => r.end.as_ref(),
            Some(r) => r.end.as_ref().larger(comparator, entries),
        }
    }
    /// Returns the stored bytes of all separated values.
    pub fn separated_bytes(&self) -> u64 {
        self.vlogs.iter().fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes))
    }
    /// Returns true if the key ranges of the two klogs overlap.
    pub fn overlaps(&self, comparator: KeyComparator, other: &KlogSummary) -> bool {
        let key_range =
            |s: &KlogSummary| (s.begin(comparator).to_boundary(), s.end(comparator).to_boundary());
        let (a, b) = (key_range(self), key_range(other));
        KeyBoundaryRef::ranges_overlap(
            comparator,
            (a.0.as_ref(), a.1.as_ref()),
            (b.0.as_ref(), b.1.as_ref()),
        )
    }
    /// Returns true if the fields do not contradict each other.
    fn is_consistent(&self, comparator: KeyComparator) -> bool {
        let keys = self.first_key.len().max(self.last_key.len()) <= KEY_BYTES_MAX
            && comparator.cmp(&self.first_key, &self.last_key).is_le()
            && (self.entries > 0 || self.first_key.len() + self.last_key.len() == 0);
        let ranges = self
            .ranges
            .as_ref()
            .is_none_or(|r| r.begin.as_ref().cmp(comparator, r.end.as_ref()).is_lt());
        (self.entries > 0 || self.ranges.is_some())
            && self.tombstones <= self.entries
            && self.smallest_seq <= self.largest_seq
            && keys
            && ranges
    }
}

/// The tags that every klog has, in the order they are written.
const REQUIRED_TAGS: [u64; 11] = [1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21];
const _: () = assert!(
    REQUIRED_TAGS[REQUIRED_TAGS.len() - 1] < SKETCH_TAG
        && SKETCH_TAG < EXPIRIES_TAG
        && EXPIRIES_TAG < OPERANDS_TAG,
    "tags are written in ascending order"
);

/// Tag of the key sketch.
const SKETCH_TAG: u64 = 22;

/// Appends the key sketch to the raw form.
pub fn append_sketch(out: &mut Vec<u8>, sketch: &KeySketch) {
    put_varint(out, SKETCH_TAG);
    put_bytes(out, sketch.raw());
}

/// Tag of the expiry histogram.
const EXPIRIES_TAG: u64 = 24;

/// Appends the expiry histogram to the raw form unless it is empty; call it after
/// [`append_sketch`].
pub fn append_expiries(out: &mut Vec<u8>, expiries: &ExpiryHistogram) {
    if !expiries.is_empty() {
        put_varint(out, EXPIRIES_TAG);
        put_bytes(out, &expiries.encode());
    }
}

/// Tag of the number of merge operands. Odd: builds that do not support operands must reject the
/// file.
const OPERANDS_TAG: u64 = 27;

/// Appends the number of merge operands to the raw form unless it is 0; call it after
/// [`append_expiries`].
pub fn append_operands(out: &mut Vec<u8>, operands: u64) {
    if operands > 0 {
        let mut number = Vec::new();
        put_varint(&mut number, operands);
        put_varint(out, OPERANDS_TAG);
        put_bytes(out, &number);
    }
}

/// Returns the number of merge operands: 0 if the property is absent.
pub fn decode_operands(raw: &[u8]) -> Result<u64> {
    Ok(find_property(raw, OPERANDS_TAG)?.map(decode_number).transpose()?.unwrap_or(0))
}

/// Returns the value of a tag in the raw form, if present.
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

/// Returns the key sketch in the raw form, if present.
pub fn decode_sketch(raw: &[u8]) -> Result<Option<KeySketch>> {
    find_property(raw, SKETCH_TAG)?.map(KeySketch::decode).transpose()
}

/// Returns the expiry histogram in the raw form: empty if the property is absent.
pub fn decode_expiries(raw: &[u8]) -> Result<ExpiryHistogram> {
    Ok(find_property(raw, EXPIRIES_TAG)?
        .map(ExpiryHistogram::decode)
        .transpose()?
        .unwrap_or_default())
}

/// Encodes the required properties.
pub fn encode(s: &KlogSummary, comparator: KeyComparator) -> Vec<u8> {
    check!(s.is_consistent(comparator), "written properties are ones that readers accept", s);
    check_slow!(s.vlogs.windows(2).all(|w| w[0].0 < w[1].0), "value logs ascend", s.vlogs);
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
    RangeTombstoneSummary::encode(s.ranges.as_deref(), &mut ranges);
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
        comparator.name().as_bytes().to_vec(),
        ranges,
    ];
    let mut out = Vec::new();
    for (tag, value) in REQUIRED_TAGS.iter().zip(values) {
        put_varint(&mut out, *tag);
        put_bytes(&mut out, &value);
    }
    out
}

/// Decodes the raw form. `bytes` and `checksum` are set to 0: they are not stored in the file.
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
        ranges: decode_ranges(fields[10])?.map(Box::new),
    };
    let name = std::str::from_utf8(fields[9])
        .map_err(|_| Error::corruption("the comparator name in the properties is not UTF-8"))?;
    let comparator = KeyComparator::by_name(name)?;
    if !s.is_consistent(comparator) {
        return Err(Error::corruption("the properties of a klog contradict each other"));
    }
    Ok((s, comparator))
}

/// Returns the value of each required tag.
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
                    "the klog has property {tag}, which this version does not know: open it with \
                     a newer Perigee"
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
        Err(Error::corruption("trailing bytes after a number in the properties"))
    }
}

fn decode_ranges(bytes: &[u8]) -> Result<Option<RangeTombstoneSummary>> {
    let mut d = Decoder::new(bytes);
    let ranges = RangeTombstoneSummary::decode(&mut d)?;
    if d.is_empty() {
        Ok(ranges)
    } else {
        Err(Error::corruption("trailing bytes after the range tombstone summary"))
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

/// Computes the properties of entries added in order, and rejects entries out of order.
#[derive(Debug)]
pub(crate) struct PropertiesCollector {
    comparator: KeyComparator,
    entries: u64,
    tombstones: u64,
    smallest_seq: SeqNo,
    largest_seq: SeqNo,
    first_key: Vec<u8>,
    /// Key of the last entry.
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
    pub fn new(comparator: KeyComparator) -> PropertiesCollector {
        PropertiesCollector {
            comparator,
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

    /// Returns the number of merge operands.
    pub fn operand_count(&self) -> u64 {
        self.operand_count
    }

    /// Returns the expiry histogram of the entries.
    pub fn expiries(&self) -> &ExpiryHistogram {
        &self.expiries
    }

    /// Returns key and sequence number of the last entry, if any.
    pub fn last_entry(&self) -> Option<(&[u8], SeqNo)> {
        (self.entries > 0).then_some((&self.last_key, self.last_seq))
    }

    /// Adds an entry. Returns true if its key differs from the previous entry's; `None` if it is
    /// out of order.
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
        check_slow!(
            self.comparator.keys_equal(&self.last_key, e.key),
            "the last key is that of the last entry",
            self.last_key,
            e.key
        );
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

    /// Adds the entries of a block; calls `on_new_key` with each key that differs from the previous
    /// one. The error is the index of the first entry that is out of order.
    pub fn add_block(
        &mut self,
        block: &TableBlock,
        mut on_new_key: impl FnMut(&[u8]),
    ) -> std::result::Result<(), usize> {
        let comparator = self.comparator;
        let prefix = block.prefix();
        let mut range = block.suffix_range(0);
        for i in 0..block.len() {
            let previous = range.clone();
            if i > 0 {
                range = block.suffix_range_after(i, &range);
            }
            let (suffix, seq) = (block.bytes(range.clone()), block.seq(i));
            let ordering = match i {
                0 if self.entries == 0 => Ordering::Less,
                0 => KeyRef::from_key(&self.last_key).cmp(comparator, KeyRef { prefix, suffix }),
                // Keys of a block share the prefix or, with other comparators, are stored whole.
                _ => comparator.cmp(block.bytes(previous), suffix),
            };
            match ordering {
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
                    on_new_key(&self.last_key);
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

    // Wrapping: a crafted file may declare any sizes in its pointers; the sums are only compared.
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

    /// Adds the range tombstones.
    pub fn add_range_tombstones(&mut self, fragments: &RangeTombstones) {
        if let Some((oldest, newest)) = fragments.seq_range() {
            self.smallest_seq = self.smallest_seq.min(oldest);
            self.largest_seq = self.largest_seq.max(newest);
        }
        self.ranges = RangeTombstoneSummary::from_tombstones(fragments);
    }

    /// Returns the summary without file length and checksum.
    pub fn into_summary(self) -> KlogSummary {
        check!(
            self.tombstones + self.operand_count <= self.entries,
            "an entry is a tombstone, an operand or a value",
            self.tombstones,
            self.operand_count,
            self.entries
        );
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
            ranges: self.ranges.map(Box::new),
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
            "a duplicate entry"
        );
        assert!(
            t.add_entry(EntryRef { key: b"a", seq: SeqNo(1), value: ValueRef::Tombstone })
                .is_none(),
            "a smaller key"
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
            "an unknown comparator"
        );
    }
}
