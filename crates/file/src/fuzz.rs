//! One entry point per decoder, for fuzz targets and mutation tests. Each accepts any bytes, must
//! neither panic nor allocate beyond the limits, and returns true if the bytes were accepted.
//! Checksums are fixed first where there are any, so that the bytes reach the code after the check.

use crate::block::column::{Column, SLACK_BYTES};
use crate::block::frame::{self, Frame, FrameKind};
use crate::block::{TableBlock, layout::ENTRIES_MAX};
use crate::block_cache::BlockCache;
use crate::filter::FilterReader;
use crate::klog::layout::{FOOTER_BYTES, Footer};
use crate::klog::{KlogReader, properties};
use crate::range_tombstones::RangeTombstones;
use crate::table_file_reader::TableFileReader;
use crate::vlog::{ChunkReader, VlogReader};
use perigee_base::checksum::{checksum, key_hash};
use perigee_base::{
    Error, FamilyId, FileId, HEADER_BYTES, KeyComparator, Result, SeqNo, VlogPointer,
};
use perigee_env::RandomAccessFile;
use std::sync::Arc;

/// Database id of fuzzed files.
pub const DATABASE: u64 = 0x1122_3344_5566_7788;
/// File number of a fuzzed klog.
pub const KLOG: FileId = FileId(7);
/// Column family of a fuzzed klog.
pub const FAMILY: FamilyId = FamilyId(2);
/// File number of a fuzzed vlog.
pub const VLOG: FileId = FileId(10);

/// Decodes any bytes as a frame of every kind.
pub fn fuzz_frame(bytes: &[u8]) -> bool {
    let mut bytes = bytes.to_vec();
    fix_checksum(&mut bytes, 0, KLOG, 72);
    use FrameKind::{Chunk, Data, Filter, Index, Properties, Ranges};
    let kinds = [Data, Index, Filter, Properties, Chunk, Ranges];
    let accepted = |kind: &FrameKind| {
        let _ = frame::declared_frame_bytes(&bytes, *kind);
        let Ok(f) = Frame::decode(KLOG, 72, &bytes, *kind) else { return false };
        f.decompress(8).is_ok_and(|raw| raw.len() == f.raw_bytes + 8)
    };
    kinds.iter().any(accepted)
}

/// Parses any bytes as a raw block; if accepted, runs every lookup on it.
pub fn fuzz_block(raw: &[u8]) -> bool {
    let Ok(block) = TableBlock::parse([raw, &[0xcc; TableBlock::SLACK]].concat()) else {
        return false;
    };
    let mut key = Vec::new();
    for i in 0..block.len() {
        block.copy_key(i, &mut key);
        assert!(block.key_equals(KeyComparator::Bytes, i, &key));
        std::hint::black_box((block.value(i), block.pinned_value(i)));
        assert!(block.lower_bound(KeyComparator::Bytes, &key, block.seq(i)) <= block.len());
        key.push(0);
        assert!(block.lower_bound(KeyComparator::Bytes, &key, SeqNo::MAX) <= block.len());
    }
    true
}

/// Parses any bytes as an entry count (two bytes) and an integer column.
pub fn fuzz_column(bytes: &[u8]) -> bool {
    let Some((n, raw)) = bytes.split_first_chunk::<2>() else { return false };
    let n = usize::from(u16::from_le_bytes(*n)).clamp(1, ENTRIES_MAX);
    let Ok((column, end)) = Column::parse(raw, 0, n) else { return false };
    let buf = [&raw[..end], &[0xcc; SLACK_BYTES]].concat();
    let ends_ascend = column.ascends_to(&buf, n, column.get(&buf, n - 1));
    assert_eq!(ends_ascend, (0..n).map(|i| column.get(&buf, i)).is_sorted());
    true
}

/// Decodes any bytes as range tombstone fragments.
pub fn fuzz_ranges(raw: &[u8]) -> bool {
    let Ok(fragments) = RangeTombstones::decode(raw, KeyComparator::Bytes) else { return false };
    assert_eq!(
        RangeTombstones::decode(&fragments.encode(), KeyComparator::Bytes).ok().as_ref(),
        Some(&fragments)
    );
    for key in [&b""[..], b"a", raw] {
        std::hint::black_box(fragments.span_at(KeyComparator::Bytes, key));
    }
    true
}

/// Decodes any bytes as a filter.
pub fn fuzz_filter(raw: &[u8]) -> bool {
    let Ok(filter) = FilterReader::decode(raw) else { return false };
    for hash in [0, 1, u64::MAX, 1 << 32, key_hash(raw)] {
        std::hint::black_box(filter.may_contain(hash));
    }
    true
}

/// Decodes any bytes as klog properties.
pub fn fuzz_props(raw: &[u8]) -> bool {
    let Ok((summary, comparator)) = properties::decode(raw) else { return false };
    assert_eq!(
        properties::decode(&properties::encode(&summary, comparator)).ok(),
        Some((summary, comparator))
    );
    if let Ok(Some(sketch)) = properties::decode_sketch(raw) {
        assert_eq!(crate::KeySketch::decode(sketch.raw()).ok(), Some(sketch.clone()));
        std::hint::black_box(sketch.estimate());
    }
    if let Ok(expiries) = properties::decode_expiries(raw) {
        assert!(
            expiries.is_empty()
                || crate::ExpiryHistogram::decode(&expiries.encode()).ok()
                    == Some(expiries.clone())
        );
        std::hint::black_box((expiries.expired_count(1 << 40), expiries.nth_expiry_ms(7)));
    }
    true
}

/// Decodes any bytes as a footer.
pub fn fuzz_footer(bytes: &[u8]) -> bool {
    let mut bytes = bytes.to_vec();
    let offset = 1 << 20;
    fix_footer_checksum(&mut bytes, offset);
    let Ok(footer) = Footer::decode(&bytes, KLOG, offset) else { return false };
    assert_eq!(footer.encode(KLOG, offset)[..], bytes[..]);
    true
}

/// Decodes any bytes as a value-log pointer.
pub fn fuzz_pointer(bytes: &[u8]) -> bool {
    let Ok(p) = VlogPointer::decode(bytes) else { return false };
    let mut encoded = Vec::new();
    p.encode(&mut encoded);
    encoded == bytes
}

/// Opens any bytes as a klog; if accepted, scans it in both directions, searches and verifies it.
pub fn fuzz_klog(bytes: &[u8]) -> bool {
    let mut bytes = bytes.to_vec();
    fix_klog_checksums(&mut bytes);
    let len = bytes.len() as u64;
    let Ok(input) =
        TableFileReader::from_file(Arc::new(BytesFile(bytes)), KLOG, "fuzz.klog".into(), len)
    else {
        return false;
    };
    let cache = Arc::new(BlockCache::new(1 << 20));
    let Ok(reader) = KlogReader::from_file(input, DATABASE, cache, Arc::default()) else {
        return false;
    };
    check_all_reads(&Arc::new(reader)).is_ok()
}

fn check_all_reads(reader: &Arc<KlogReader>) -> Result<()> {
    // Even an unsorted file has no more entries than its footer says; otherwise `verify` fails.
    let result = reader.verify(0, &mut |_| {});
    let verify_error = result.err().filter(|e| !e.message().contains("whole file"));
    let mut cursor = reader.cursor(true);
    cursor.seek_first()?;
    while cursor.valid() {
        let (key, seq) = (cursor.entry().key.to_vec(), cursor.entry().seq);
        let got = reader.get(&key, key_hash(&key), seq)?;
        let mut other = reader.cursor(false);
        other.seek(&key, seq)?;
        other.seek_before(&key, seq)?;
        if verify_error.is_none() {
            assert_eq!(
                got,
                Some((seq, cursor.pinned_value())),
                "a verified klog finds its entries"
            );
        }
        cursor.next()?;
    }
    cursor.seek_last()?;
    while cursor.valid() {
        cursor.prev()?;
    }
    verify_error.map_or(Ok(()), Err)
}

/// Opens any bytes as a vlog, reads every frame as a value, then verifies the file.
pub fn fuzz_vlog(bytes: &[u8]) -> bool {
    let mut bytes = bytes.to_vec();
    fix_header_checksum(&mut bytes, VLOG);
    let len = bytes.len() as u64;
    let mut pointers = Vec::new();
    fix_frame_checksums(&mut bytes, VLOG, len, |offset, stored_bytes, raw| {
        let p = |stored_bytes, value_bytes| VlogPointer {
            file: VLOG,
            offset,
            stored_bytes,
            value_bytes,
        };
        pointers.extend([p(stored_bytes, raw), p(len - offset, 2 << 20), p(len - offset, raw)]);
    });
    let Ok(input) =
        TableFileReader::from_file(Arc::new(BytesFile(bytes)), VLOG, "fuzz.vlog".into(), len)
    else {
        return false;
    };
    let Ok(reader) = VlogReader::from_file(input, DATABASE, Arc::default()) else { return false };
    let reader = Arc::new(reader);
    for p in pointers {
        let value = reader.read(&p);
        if let Ok(value) = &value {
            assert_eq!(value.len() as u64, p.value_bytes, "a value has the length of its pointer");
        }
        let parts = read_parts(&reader, p);
        assert_eq!(parts.ok().as_deref(), value.ok().as_deref(), "parts of a value are its bytes");
    }
    reader.verify(0, &mut |_| {}).is_err_and(|e| e.message().contains("whole file"))
}

/// Reads a value in parts, the last chunk first.
fn read_parts(vlog: &Arc<VlogReader>, p: VlogPointer) -> Result<Vec<u8>> {
    let mut chunks = ChunkReader::new(Arc::clone(vlog), p)?;
    chunks.part_at(p.value_bytes.saturating_sub(1))?;
    let mut value = Vec::new();
    loop {
        let part = chunks.part_at(value.len() as u64)?;
        if part.is_empty() {
            return Ok(value);
        }
        value.extend_from_slice(part);
    }
}

/// An in-memory file.
#[derive(Debug)]
struct BytesFile(Vec<u8>);

impl RandomAccessFile for BytesFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let part = self.0.get(offset as usize..).and_then(|rest| rest.get(..buf.len()));
        buf.copy_from_slice(part.ok_or_else(|| Error::corruption("the file ends early"))?);
        Ok(())
    }
    fn len(&self) -> Result<u64> {
        Ok(self.0.len() as u64)
    }
}

/// Writes the correct checksum into the last eight bytes of `bytes[start..]`.
fn fix_checksum(bytes: &mut [u8], start: usize, file: FileId, offset: u64) {
    if let Some(end) = bytes.len().checked_sub(8).filter(|&end| end >= start) {
        let sum = checksum(file, offset, &bytes[start..end]);
        bytes[end..].copy_from_slice(&sum.to_le_bytes());
    }
}

fn fix_header_checksum(bytes: &mut [u8], file: FileId) {
    if let Some(header) = bytes.get_mut(..HEADER_BYTES) {
        fix_checksum(header, 0, file, 0);
    }
}

fn fix_footer_checksum(bytes: &mut [u8], offset: u64) {
    let end = bytes.len().saturating_sub(8);
    if let Some(body) = bytes.get_mut(..end) {
        fix_checksum(body, 0, KLOG, offset);
    }
}

/// Fixes the checksum of each frame from the header to `end`, as far as the frame lengths allow.
fn fix_frame_checksums(
    bytes: &mut [u8],
    file: FileId,
    end: u64,
    mut each: impl FnMut(u64, u64, u64),
) {
    let mut offset = HEADER_BYTES;
    while let Some(head) = bytes.get(offset..offset + frame::FRAME_HEADER_BYTES) {
        let Ok(length) = frame::declared_frame_bytes(head, FrameKind::Index) else { return };
        let raw = u64::from(u32::from_le_bytes([head[4], head[5], head[6], head[7]]));
        let next = offset + length as usize;
        if next as u64 > end {
            return;
        }
        fix_checksum(&mut bytes[offset..next], 0, file, offset as u64);
        each(offset as u64, length, raw);
        offset = next;
    }
}

fn fix_klog_checksums(bytes: &mut [u8]) {
    fix_header_checksum(bytes, KLOG);
    let Some(footer) = bytes.len().checked_sub(FOOTER_BYTES) else { return };
    fix_footer_checksum(&mut bytes[footer..], footer as u64);
    fix_frame_checksums(bytes, KLOG, footer as u64, |_, _, _| {});
}
