//! Round trips, the example of the format page, and every kind of damage.

use super::writer::VlogSummary;
use super::*;
use crate::Compression;
use crate::testing::{TestDir, TestRng, from_hex, hex_of_page, mutate};
use perigee_base::{FileId, VlogPointer};
use perigee_env::Dir;
use std::sync::Arc;

const DB: u64 = 0x1122_3344_5566_7788;
const NAME: &str = "000010.vlog";

fn open(dir: &dyn Dir, bytes: u64) -> perigee_base::Result<VlogReader> {
    VlogReader::open(dir, FileId(10), DB, perigee_base::Bytes(bytes), Arc::default())
}

fn write(dir: &dyn Dir, codec: Compression, values: &[Vec<u8>]) -> (Vec<VlogPointer>, VlogSummary) {
    let mut w = VlogWriter::create(dir, FileId(10), DB, codec).unwrap();
    let pointers = values.iter().map(|v| w.append(v).unwrap()).collect();
    let bytes = w.bytes_written();
    let summary = w.finish().unwrap();
    assert_eq!(summary.bytes, bytes);
    (pointers, summary)
}

#[test]
fn values_round_trip() {
    let mut rng = TestRng::new(7);
    for codec in [Compression::None, Compression::Lz4, Compression::Snappy, Compression::Zstd(3)] {
        let mut values: Vec<Vec<u8>> = [1, 2, 100, 5000].map(|n| rng.bytes(n)).into();
        values.extend(
            [100, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, (3 << 20) + 77].map(|n| vec![5; n]),
        );
        values.push(rng.bytes((2 << 20) + 1));
        let dir = TestDir::new();
        let (pointers, summary) = write(&*dir, codec, &values);
        let r = open(&*dir, summary.bytes).unwrap();
        for (v, p) in values.iter().zip(&pointers) {
            assert_eq!(&r.read(p).unwrap()[..], &v[..]);
        }
        let mut seen = 0;
        r.verify(summary.checksum, &mut |n| seen = n).unwrap();
        assert_eq!(seen, summary.bytes);
        assert!(r.verify(summary.checksum ^ 1, &mut |_| {}).unwrap_err().is_corruption());
    }
}

#[test]
fn empty_value_is_refused() {
    let mut w = VlogWriter::create(&*TestDir::new(), FileId(10), DB, Compression::Lz4).unwrap();
    assert!(w.append(b"").is_err());
}

/// Reads the example instead of comparing bytes: another encoder may produce different valid LZ4
/// output.
#[test]
fn vlog_matches_format_page_example() {
    let page = from_hex(&hex_of_page(include_str!("../../../../docs/format/vlog.md"), 0));
    let dir = TestDir::new();
    dir.put(NAME, page.clone());
    let r = open(&*dir, page.len() as u64).unwrap();
    let pointer = |offset, stored_bytes, value_bytes| VlogPointer {
        file: FileId(10),
        offset,
        stored_bytes,
        value_bytes,
    };
    assert_eq!(&r.read(&pointer(72, 31, 7)).unwrap()[..], b"a value");
    assert_eq!(&r.read(&pointer(103, 36, 100)).unwrap()[..], [b'z'; 100]);
    let mut whole = perigee_base::checksum::FileChecksum::new(FileId(10));
    whole.update(&page);
    r.verify(whole.finish(), &mut |_| {}).unwrap();
    let rewritten = TestDir::new();
    write(&*rewritten, Compression::None, &[b"a value".to_vec()]);
    assert_eq!(rewritten.get(NAME), page[..103]);
}

#[test]
fn bit_flips_and_truncations_are_detected() {
    let dir = TestDir::new();
    let (pointers, s) = write(&*dir, Compression::Lz4, &[b"a value".to_vec(), vec![b'z'; 100]]);
    let good = dir.get(NAME);
    let check = |bytes: Vec<u8>| {
        dir.put(NAME, bytes);
        open(&*dir, s.bytes).and_then(|r| {
            let values =
                pointers.iter().map(|p| r.read(p)).collect::<perigee_base::Result<Vec<_>>>();
            r.verify(s.checksum, &mut |_| {}).and(values)
        })
    };
    check(good.clone()).unwrap();
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        let e = check(bad).expect_err("a flipped bit");
        assert!(e.file() == Some(NAME) && e.offset().is_some(), "{e}");
    }
    for len in 0..good.len() {
        assert!(check(good[..len].to_vec()).unwrap_err().is_corruption(), "length {len}");
        dir.put(NAME, good[..len].to_vec());
        let open_short = open(&*dir, len as u64).and_then(|r| r.verify(s.checksum, &mut |_| {}));
        assert!(open_short.is_err(), "length {len}, matching the manifest");
    }
}

#[test]
fn wrong_pointers_are_errors() {
    let dir = TestDir::new();
    let values = [b"a value".to_vec(), vec![b'z'; 3 << 20], vec![b'y'; 3 << 20]];
    let (pointers, s) = write(&*dir, Compression::Lz4, &values);
    let r = open(&*dir, s.bytes).unwrap();
    for p in pointers {
        for (field, delta) in
            (0..4).flat_map(|f| [1, 8, 1 << 20, u64::MAX, u64::MAX / 2].map(|d| (f, d)))
        {
            let mut bad = p;
            match field {
                0 => bad.file.0 = bad.file.0.wrapping_add(delta),
                1 => bad.offset = bad.offset.wrapping_add(delta),
                2 => bad.stored_bytes = bad.stored_bytes.wrapping_add(delta),
                _ => bad.value_bytes = bad.value_bytes.wrapping_add(delta),
            }
            assert!(r.read(&bad).unwrap_err().is_corruption(), "{bad:?}");
        }
    }
}

#[test]
fn mutated_files_never_panic() {
    let dir = TestDir::new();
    let mut rng = TestRng::new(8);
    write(&*dir, Compression::Lz4, &[rng.bytes(20), vec![b'z'; 100]]);
    let good = dir.get(NAME);
    for _ in 0..5000 {
        crate::fuzz::fuzz_vlog(&mutate(&mut rng, &good));
    }
}
