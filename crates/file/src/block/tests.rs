//! Blocks compared with a sorted list; the example of the format page; damaged blocks.

use super::writer::BlockWriter;
use super::*;
use crate::testing::{TestEntry, TestRng, hex_of_page, mutate, sorted_entries, to_hex};
use perigee_base::{EntryKind, KeyComparator, SeqNo};

fn write(entries: &[TestEntry]) -> Vec<u8> {
    let mut w = BlockWriter::new(KeyComparator::Bytes);
    let mut out = vec![1, 2, 3];
    entries.iter().for_each(|e| w.add(e.as_ref()));
    w.finish(&mut out);
    assert!(w.is_empty());
    out
}

fn parse(raw: &[u8]) -> perigee_base::Result<TableBlock> {
    TableBlock::parse([raw, &[0xcc; TableBlock::SLACK]].concat())
}

#[test]
fn blocks_round_trip_and_find_entries() {
    let mut rng = TestRng::new(4);
    for _ in 0..200 {
        let entries = sorted_entries(&mut rng, 60);
        let block = parse(&write(&entries)).unwrap();
        assert_eq!(block.len(), entries.len());
        let mut key = Vec::new();
        for (i, e) in entries.iter().enumerate() {
            block.copy_key(i, &mut key);
            assert_eq!((&key, block.seq(i), block.value(i)), (&e.key, e.seq, e.as_ref().value));
            assert!(block.key_equals(KeyComparator::Bytes, i, &e.key));
            for seq in [e.seq, e.seq.plus(1), e.seq.prev(), SeqNo::ZERO, SeqNo::MAX] {
                for k in
                    [e.key.clone(), [&e.key[..], &[0]].concat(), e.key[..e.key.len() / 2].to_vec()]
                {
                    let want = entries.partition_point(|x| x.sorts_before(&k, seq));
                    assert_eq!(block.lower_bound(KeyComparator::Bytes, &k, seq), want);
                }
            }
        }
    }
}

#[test]
fn block_matches_format_page_example() {
    let mut w = BlockWriter::new(KeyComparator::Bytes);
    w.add_raw(b"apple", SeqNo(12), EntryKind::Put, b"red");
    w.add_raw(b"apple", SeqNo(9), EntryKind::Delete, b"");
    w.add_raw(b"apricot", SeqNo(10), EntryKind::Put, b"orange");
    let mut raw = Vec::new();
    w.finish(&mut raw);
    let mut framed = Vec::new();
    let position = frame::FramePosition { file: perigee_base::FileId(7), offset: 72 };
    let mut compressor = crate::compression::Compressor::new();
    frame::append_frame(
        &mut framed,
        position,
        frame::FrameKind::Data,
        &raw,
        crate::Compression::None,
        &mut compressor,
    )
    .unwrap();
    let page = include_str!("../../../../docs/format/block.md");
    assert_eq!(hex_of_page(page, 0), to_hex(&raw), "block");
    assert_eq!(hex_of_page(page, 1), to_hex(&framed), "frame");
}

#[test]
fn damaged_blocks_are_errors_or_harmless() {
    let mut rng = TestRng::new(5);
    let mut refused = 0;
    for _ in 0..60 {
        let good = write(&sorted_entries(&mut rng, 12));
        for len in 0..good.len() {
            assert!(parse(&good[..len]).is_err(), "a truncated block");
        }
        for _ in 0..400 {
            let bad = mutate(&mut rng, &good);
            refused += u32::from(!crate::fuzz::fuzz_block(&bad));
        }
    }
    assert!(refused > 5000, "{refused}");
}

#[test]
fn entry_count_of_zero_width_columns_is_bounded() {
    // Four columns of width 0 can describe any number of empty keys in a dozen bytes.
    let raw = write(&[TestEntry::delete(b"", 9), TestEntry::delete(b"", 8)]);
    let counted = |n: u64| {
        let mut out = Vec::new();
        perigee_base::codec::put_varint(&mut out, n);
        out.extend_from_slice(&raw[1..]);
        parse(&out)
    };
    assert!(counted(u64::MAX).is_err() && counted(layout::ENTRIES_MAX as u64 + 1).is_err());
    assert!(counted(layout::ENTRIES_MAX as u64).is_ok());
}

#[test]
fn oversized_key_is_corruption() {
    let max = perigee_base::limits::KEY_BYTES_MAX;
    for (longest, good) in [(max, true), (max + 1, false)] {
        let (a, b) = (vec![1; longest - 1], vec![1; longest]);
        assert_eq!(
            parse(&write(&[TestEntry::put(&a, 1, b""), TestEntry::put(&b, 1, b"")])).is_ok(),
            good
        );
        let other = [
            TestEntry::put(&b[..9], 1, b""),
            TestEntry::put(&b, 1, b""),
            TestEntry::delete(&[2; 9], 1),
        ];
        assert_eq!(parse(&write(&other)).is_ok(), good);
    }
}
