//! Values written and read in parts, and damage to them.

use super::*;
use crate::Compression;
use crate::testing::{TestDir, TestRng};
use perigee_base::limits::{STREAMED_VALUE_BYTES_MAX, VLOG_CHUNK_BYTES};
use perigee_base::{Bytes, ErrorKind, FileId, VlogPointer};
use perigee_env::Dir;
use std::sync::Arc;

const DB: u64 = 7;

fn writer(dir: &dyn Dir, codec: Compression) -> VlogWriter {
    VlogWriter::create_for_one_value(dir, FileId(3), DB, codec).unwrap()
}

fn open(dir: &dyn Dir, bytes: u64) -> Arc<VlogReader> {
    Arc::new(VlogReader::open(dir, FileId(3), DB, Bytes(bytes), Arc::default()).unwrap())
}

/// Half of the bytes compress.
fn sample(rng: &mut TestRng, len: usize) -> Vec<u8> {
    let mut value = rng.bytes(len);
    value.chunks_mut(128).for_each(|part| {
        let half = part.len() / 2;
        part[half..].fill(1);
    });
    value
}

fn write_in_parts(dir: &dyn Dir, codec: Compression, value: &[u8], part: usize) -> WrittenValue {
    let mut w = StreamedValueWriter::new(writer(dir, codec));
    for part in value.chunks(part) {
        w.append(part).unwrap();
    }
    assert_eq!(w.value_bytes(), value.len() as u64);
    w.finish().unwrap()
}

#[test]
fn value_written_in_parts_is_stored_like_one_in_one_piece() {
    let mut rng = TestRng::new(1);
    for codec in [Compression::None, Compression::Lz4, Compression::Zstd(1)] {
        for len in [1, 1000, VLOG_CHUNK_BYTES, VLOG_CHUNK_BYTES + 1, 3 * VLOG_CHUNK_BYTES + 5000] {
            let value = sample(&mut rng, len);
            let whole = TestDir::new();
            let mut w = writer(&*whole, codec);
            let pointer = w.append(&value).unwrap();
            let expected = WrittenValue { pointer, vlog: w.finish().unwrap() };
            for part in [999, 65_536, VLOG_CHUNK_BYTES - 1, VLOG_CHUNK_BYTES, 5_000_000] {
                let dir = TestDir::new();
                assert_eq!(write_in_parts(&*dir, codec, &value, part), expected, "{len} {part}");
            }
        }
    }
}

#[test]
fn parts_of_a_value_can_be_read_from_any_position() {
    let mut rng = TestRng::new(2);
    for codec in [Compression::None, Compression::Lz4] {
        let dir = TestDir::new();
        let value = sample(&mut rng, 4 * VLOG_CHUNK_BYTES + 12_345);
        let written = write_in_parts(&*dir, codec, &value, 100_000);
        let vlog = open(&*dir, written.vlog.bytes);
        assert!(vlog.holds_one_value());
        assert_eq!(&vlog.read(&written.pointer).unwrap()[..], &value[..]);
        let mut reader = ChunkReader::new(Arc::clone(&vlog), written.pointer).unwrap();
        assert_eq!(reader.value_bytes(), value.len() as u64);
        // The last chunk first: the frames before it are found, not read.
        for n in 0..200 {
            let at = if n == 0 { value.len() - 1 } else { rng.below(value.len() as u64) as usize };
            let part = reader.part_at(at as u64).unwrap();
            let end = ((at / VLOG_CHUNK_BYTES + 1) * VLOG_CHUNK_BYTES).min(value.len());
            assert!(part == &value[at..end], "from {at}");
        }
        assert!(reader.part_at(value.len() as u64).unwrap().is_empty());
        assert!(reader.part_at(u64::MAX).unwrap().is_empty());
        let limit = (3 * VLOG_CHUNK_BYTES) as u64;
        assert!(reader.memory_bytes() < limit, "{} bytes", reader.memory_bytes());
    }
}

#[test]
fn damage_to_a_chunk_affects_only_reads_of_it() {
    // Uncompressed chunks are read where they are, in a buffer that the damaged one overwrites.
    for codec in [Compression::None, Compression::Lz4] {
        let mut rng = TestRng::new(3);
        let dir = TestDir::new();
        let value = sample(&mut rng, 3 * VLOG_CHUNK_BYTES);
        let written = write_in_parts(&*dir, codec, &value, 70_000);
        let vlog = open(&*dir, written.vlog.bytes);
        let frame = |at: u64| vlog.chunk_frame_bytes(at..written.vlog.bytes).unwrap();
        let second = written.pointer.offset + frame(written.pointer.offset);
        drop(vlog);
        let mut bytes = dir.get("000003.vlog");
        bytes[second as usize + 5000] ^= 8;
        dir.put("000003.vlog", bytes);
        let vlog = open(&*dir, written.vlog.bytes);
        let mut reader = ChunkReader::new(vlog, written.pointer).unwrap();
        let chunk = VLOG_CHUNK_BYTES as u64;
        for _ in 0..2 {
            let e = reader.part_at(chunk + 17).unwrap_err();
            assert!(e.is_corruption() && e.to_string().contains("000003.vlog"), "{e}");
            // In the second round also the chunk that was read before the damaged one.
            assert!(reader.part_at(2 * chunk).unwrap() == &value[2 * VLOG_CHUNK_BYTES..]);
            assert!(reader.part_at(5).unwrap() == &value[5..VLOG_CHUNK_BYTES]);
            assert!(reader.part_at(2 * chunk).unwrap() == &value[2 * VLOG_CHUNK_BYTES..]);
        }
    }
}

#[test]
fn pointer_that_does_not_fit_its_chunks_is_an_error() {
    let mut rng = TestRng::new(4);
    let dir = TestDir::new();
    let value = sample(&mut rng, 2 * VLOG_CHUNK_BYTES + 10);
    let WrittenValue { pointer, vlog } = write_in_parts(&*dir, Compression::Lz4, &value, 9999);
    let vlog = open(&*dir, vlog.bytes);
    let beyond = VlogPointer { stored_bytes: pointer.stored_bytes + 1, ..pointer };
    assert!(ChunkReader::new(Arc::clone(&vlog), beyond).unwrap_err().is_corruption());
    let one_chunk_less = VlogPointer { value_bytes: 2 * VLOG_CHUNK_BYTES as u64, ..pointer };
    let mut reader = ChunkReader::new(vlog, one_chunk_less).unwrap();
    assert!(reader.part_at(VLOG_CHUNK_BYTES as u64).unwrap_err().is_corruption());
}

#[test]
fn value_that_is_too_long_or_empty_is_refused() {
    let e = StreamedValueWriter::check_value_bytes(STREAMED_VALUE_BYTES_MAX + 1).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidArgument);
    StreamedValueWriter::check_value_bytes(STREAMED_VALUE_BYTES_MAX).unwrap();
    let w = StreamedValueWriter::new(writer(&*TestDir::new(), Compression::None));
    assert!(w.finish().is_err());
}
