//! Tests that the assertions of this crate fail when their invariant is violated.

use crate::block::TableBlock;
use crate::block::frame::{Frame, FrameKind, FramePosition, append_stored_frame};
use crate::block::writer::BlockWriter;
use crate::compression::Codec;
use crate::filter::FilterWriter;
use crate::klog::KlogSummary;
use crate::log::{Batch, LogWriter, RecordHeader, RecordKind, RecordStamp};
use crate::testing::{TestDir, TestEntry};
use crate::{BlockCache, KlogOptions, KlogReader, KlogWriter, RangeTombstoneFragment};
use crate::{Compression, ExpiryHistogram, KeySketch, RangeTombstones};
use perigee_base::{
    Bytes, Expiry, FamilyId, FileHeader, FileId, FileKind, KeyBoundary, KeyComparator, SeqNo,
    violation,
};
use std::sync::Arc;

fn fragment(begin: &str, end: &str, seqs: &[u64]) -> Arc<RangeTombstoneFragment> {
    let boundary = |key: &str| KeyBoundary::Before(key.into());
    let seqs = seqs.iter().map(|s| SeqNo(*s)).collect();
    Arc::new(RangeTombstoneFragment { begin: boundary(begin), end: boundary(end), seqs })
}

fn append_frame(offset: u64, raw_bytes: usize) {
    let frame = Frame { codec: Codec::None, raw_bytes, payload: b"payload" };
    let position = FramePosition { file: FileId(7), offset };
    append_stored_frame(&mut Vec::new(), position, FrameKind::Data, &frame);
}

fn two_entries(first: (&str, u64), second: (&str, u64)) {
    let mut block = BlockWriter::new(KeyComparator::Bytes);
    block.add(TestEntry::put(first.0.as_bytes(), first.1, b"v").as_ref());
    block.add(TestEntry::put(second.0.as_bytes(), second.1, b"v").as_ref());
}

fn coalesce(fragments: Vec<Arc<RangeTombstoneFragment>>) {
    let _ = RangeTombstones::new(fragments).coalesce(KeyComparator::Bytes);
}

/// A table with one entry.
fn reader() -> Arc<KlogReader> {
    let dir = TestDir::new();
    let options = KlogOptions {
        database: 1,
        family: FamilyId(0),
        comparator: KeyComparator::Bytes,
        block_bytes: 4096,
        compression: Compression::None,
        filter_bits: 0,
    };
    let mut writer = KlogWriter::create(&*dir, FileId(7), options).unwrap();
    writer.add(TestEntry::put(b"k", 1, b"v").as_ref()).unwrap();
    let bytes = Bytes(writer.finish().unwrap().bytes);
    let cache = Arc::new(BlockCache::new(0));
    Arc::new(KlogReader::open(&*dir, FileId(7), 1, bytes, cache, Arc::default()).unwrap())
}

fn append_record_with_wrong_length() {
    let header = FileHeader { kind: FileKind::Wal, database: 1, file: FileId(3), a: 1, b: 0 };
    let mut log = LogWriter::create(&*TestDir::new(), "000003.wal", &header).unwrap();
    let mut batch = Batch::new();
    batch.delete(FamilyId(0), b"k").unwrap();
    let mut record = batch.finish();
    record.payload_bytes += 100;
    let stamp = RecordStamp { lsn: 1, durable_lsn: 0, manifest_edits: 0 };
    let _ = log.append(stamp, &mut [&mut record]);
}

fn roll_back_to_later_state() {
    let (mut short, mut long) = (Batch::new(), Batch::new());
    long.delete(FamilyId(0), b"k").unwrap();
    short.roll_back_to(long.savepoint());
}

#[test]
fn assertions_detect_violations() {
    let header = RecordHeader {
        kind: RecordKind::Batch,
        payload_bytes: 8,
        lsn_count: 2,
        lsn: u64::MAX,
        durable_lsn: 0,
        manifest_edits: 0,
        previous_checksum: 0,
        payload_checksum: 0,
    };
    let cases: [(&str, &dyn Fn()); 20] = [
        ("no frame starts at offset 0", &|| append_frame(0, 7)),
        ("a written frame has lengths that readers accept", &|| append_frame(72, 8)),
        ("a written frame has lengths that readers accept", &|| append_frame(72, 1 << 30)),
        ("filters have at most this size", &|| drop(FilterWriter::new(31))),
        ("only an enabled filter is built", &|| drop(FilterWriter::new(0).build())),
        ("the entries of a block ascend", &|| two_entries(("b", 1), ("a", 1))),
        ("the entries of a block ascend", &|| two_entries(("a", 1), ("a", 2))),
        ("a block has at least one entry", &|| {
            BlockWriter::new(KeyComparator::Bytes).finish(&mut Vec::new());
        }),
        ("the buffer of a block has slack", &|| {
            drop(TableBlock::parse_in_buffer(Arc::from([0; 12]), 8));
        }),
        ("a batch is rolled back to a state it has had", &roll_back_to_later_state),
        ("the sequence numbers of a record do not overflow", &|| {
            header.encode(FileId(1), 72);
        }),
        ("a record is as long as its header says", &append_record_with_wrong_length),
        ("only a valid gid is logged", &|| {
            crate::log::encode_decision(b"", b"", 0);
        }),
        ("fragments ascend and do not overlap", &|| {
            coalesce(vec![fragment("a", "d", &[5]), fragment("c", "f", &[6])]);
        }),
        ("fragments ascend and do not overlap", &|| coalesce(vec![fragment("d", "a", &[5])])),
        ("fragments ascend and do not overlap", &|| coalesce(vec![fragment("a", "d", &[5, 6])])),
        ("written properties are ones that readers accept", &|| {
            let valid = reader().read_summary().unwrap();
            let summary = KlogSummary { tombstones: 2, ..valid };
            crate::klog::properties::encode(&summary, KeyComparator::Bytes);
        }),
        ("the sequence number of a loaded table is set once", &|| {
            let reader = reader();
            reader.set_global_seq(SeqNo(5));
            reader.set_global_seq(SeqNo(6));
        }),
        ("an invalid cursor has no entry", &|| {
            reader().cursor(false).key();
        }),
        ("a step over visible entries stays in the block", &|| {
            let mut cursor = reader().cursor(false);
            cursor.seek_first().unwrap();
            cursor.step_clear(true);
        }),
    ];
    for (invariant, work) in cases {
        let message = violation(work);
        assert!(message.contains(invariant), "{invariant}: {message}");
    }
}

/// The same structures, used as intended, violate nothing.
#[test]
fn assertions_hold_for_valid_values() {
    append_frame(72, 7);
    two_entries(("a", 2), ("a", 1));
    coalesce(vec![fragment("a", "d", &[6, 5]), fragment("d", "f", &[6])]);
    let mut histogram = ExpiryHistogram::default();
    (0..1000).for_each(|i| histogram.add(Expiry(i * i)));
    assert!(!histogram.encode().is_empty());
    let mut sketch = KeySketch::new();
    sketch.merge(&KeySketch::new());
    assert_eq!(sketch.estimate(), 0);
}
