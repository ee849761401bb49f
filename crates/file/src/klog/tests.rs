//! Klogs compared with a sorted list: round trips, lookups, cursors; the example of the format
//! page; every kind of damage.

use super::*;
use crate::testing::{
    TestDir, TestEntry, TestRng, TestValue, hex_of_page, mutate, sorted_entries, to_hex,
};
use crate::{BlockCache, Compression};
use perigee_base::checksum::key_hash;
use perigee_base::{Expiry, FamilyId, FileId, KeyComparator, Result, SeqNo};
use std::sync::Arc;

const DB: u64 = 0x1122_3344_5566_7788;
const ID: FileId = FileId(7);
const FAMILY: FamilyId = FamilyId(2);
const NAME: &str = "000007.klog";

fn options(block_bytes: usize, codec: Compression, filter_bits: u8) -> KlogOptions {
    KlogOptions {
        database: DB,
        family: FAMILY,
        comparator: KeyComparator::Bytes,
        block_bytes,
        compression: codec,
        filter_bits,
    }
}

fn write(dir: &TestDir, options: KlogOptions, entries: &[TestEntry]) -> KlogSummary {
    let mut w = KlogWriter::create(dir, ID, options).unwrap();
    for e in entries {
        w.add(e.as_ref()).unwrap();
    }
    w.finish().unwrap()
}

fn open(dir: &TestDir, bytes: u64, cache: u64) -> Result<Arc<KlogReader>> {
    KlogReader::open(
        dir,
        ID,
        DB,
        perigee_base::Bytes(bytes),
        Arc::new(BlockCache::new(cache)),
        Arc::default(),
    )
    .map(Arc::new)
}

fn found(e: &TestEntry) -> EntryValue {
    match &e.value {
        TestValue::None => EntryValue::Tombstone,
        TestValue::Inline(v) => EntryValue::Value(v.clone().into()),
        TestValue::Pointer(p) => EntryValue::Pointer(*p),
        TestValue::InlineExpiring(v, ms) => {
            EntryValue::ValueExpiring(v.clone().into(), Expiry(*ms))
        }
        TestValue::PointerExpiring(p, ms) => EntryValue::PointerExpiring(*p, Expiry(*ms)),
    }
}

fn random_options(rng: &mut TestRng) -> KlogOptions {
    let block_bytes = [1, 64, 200, 1000, 16 << 10][rng.below(5) as usize];
    let codec = [Compression::None, Compression::Lz4, Compression::Snappy, Compression::Zstd(1)]
        [rng.below(4) as usize];
    options(block_bytes, codec, [0, 1, 10][rng.below(3) as usize])
}

fn check_summary(s: &KlogSummary, entries: &[TestEntry]) {
    assert_eq!(s.entries, entries.len() as u64);
    assert_eq!(s.tombstones, entries.iter().filter(|e| e.value == TestValue::None).count() as u64);
    assert_eq!(s.smallest_seq, entries.iter().map(|e| e.seq).min().unwrap());
    assert_eq!(s.largest_seq, entries.iter().map(|e| e.seq).max().unwrap());
    assert_eq!((&s.first_key, &s.last_key), (&entries[0].key, &entries[entries.len() - 1].key));
    assert_eq!(s.raw_key_bytes, entries.iter().map(|e| e.key.len() as u64).sum::<u64>());
    let value_bytes = |e: &TestEntry| match &e.value {
        TestValue::None => 0,
        TestValue::Inline(v) | TestValue::InlineExpiring(v, _) => v.len() as u64,
        TestValue::Pointer(p) | TestValue::PointerExpiring(p, _) => p.value_bytes,
    };
    assert_eq!(s.raw_value_bytes, entries.iter().map(value_bytes).sum::<u64>());
    let mut vlogs = std::collections::BTreeMap::new();
    for e in entries {
        if let TestValue::Pointer(p) | TestValue::PointerExpiring(p, _) = e.value {
            *vlogs.entry(p.file).or_default() += p.stored_bytes;
        }
    }
    assert_eq!(s.vlogs, vlogs.into_iter().collect::<Vec<_>>());
}

/// Looks up all keys and some absent ones, at every relevant sequence number.
fn check_gets(r: &KlogReader, entries: &[TestEntry]) {
    for e in entries {
        for key in [e.key.clone(), [&e.key[..], &[0]].concat(), [&e.key[..], &[255]].concat()] {
            for at in [e.seq.prev(), e.seq, e.seq.plus(1), SeqNo::ZERO, SeqNo::MAX] {
                let i = entries.partition_point(|x| x.sorts_before(&key, at));
                let want = entries.get(i).filter(|x| x.key == key).map(|x| (x.seq, found(x)));
                assert_eq!(r.get(&key, key_hash(&key), at).unwrap(), want);
            }
        }
    }
}

fn check_cursor(rng: &mut TestRng, r: &Arc<KlogReader>, entries: &[TestEntry]) {
    let mut c = r.cursor(rng.below(2) == 0);
    assert!(!c.valid());
    let mut at: Option<usize> = None;
    for step in 0..400 {
        let e = &entries[rng.below(entries.len() as u64) as usize];
        let mut key = e.key.clone();
        match rng.below(4) {
            0 => key.push(0),
            1 => drop(key.pop()),
            _ => {}
        }
        let seq =
            [e.seq, e.seq.prev(), e.seq.plus(1), SeqNo::ZERO, SeqNo::MAX][rng.below(5) as usize];
        let bound = entries.partition_point(|x| x.sorts_before(&key, seq));
        let inside = |i: usize| (i < entries.len()).then_some(i);
        match rng.below(12) {
            0 => (c.seek(&key, seq).unwrap(), at = inside(bound)).1,
            1 => (c.seek_before(&key, seq).unwrap(), at = bound.checked_sub(1)).1,
            2 if step % 5 == 0 => (c.seek_first().unwrap(), at = Some(0)).1,
            3 if step % 5 == 0 => (c.seek_last().unwrap(), at = Some(entries.len() - 1)).1,
            4..8 => (c.next().unwrap(), at = at.and_then(|i| inside(i + 1))).1,
            _ => (c.prev().unwrap(), at = at.and_then(|i| i.checked_sub(1))).1,
        }
        assert_eq!(c.valid(), at.is_some());
        if let Some(i) = at {
            assert_eq!(c.pinned_value(), found(&entries[i]));
            assert_eq!(c.entry(), entries[i].as_ref());
        }
    }
}

#[test]
fn klogs_round_trip() {
    let mut rng = TestRng::new(9);
    for case in 0..150 {
        let entries = sorted_entries(&mut rng, [20, 200, 1000][case % 3]);
        let dir = TestDir::new();
        let s = write(&dir, random_options(&mut rng), &entries);
        check_summary(&s, &entries);
        let r = open(&dir, s.bytes, [0, 3000, 1 << 20][rng.below(3) as usize]).unwrap();
        assert_eq!(r.read_summary().unwrap(), KlogSummary { checksum: 0, ..s.clone() });
        let mut seen = 0;
        r.verify(s.checksum, &mut |n| seen = n).unwrap();
        assert_eq!(seen, s.bytes);
        assert!(r.verify(s.checksum ^ 1, &mut |_| {}).unwrap_err().is_corruption());
        check_gets(&r, &entries);
        check_cursor(&mut rng, &r, &entries);
    }
}

#[test]
fn large_keys_and_values() {
    let mut rng = TestRng::new(10);
    let (long, value) = (vec![7; 64 << 10], rng.bytes(1 << 20));
    let mut entries = vec![
        TestEntry::put(b"", 3, &value),
        TestEntry::put(&long[1..], 9, b""),
        TestEntry::put(&long, 9, &value),
    ];
    entries.push(TestEntry::delete(&long, 4));
    for codec in [Compression::None, Compression::Lz4, Compression::Snappy, Compression::Zstd(3)] {
        let dir = TestDir::new();
        let s = write(&dir, options(4096, codec, 10), &entries);
        let r = open(&dir, s.bytes, 1 << 22).unwrap();
        r.verify(s.checksum, &mut |_| {}).unwrap();
        check_gets(&r, &entries);
    }
    let mut w =
        KlogWriter::create(&*TestDir::new(), ID, options(4096, Compression::Lz4, 10)).unwrap();
    assert!(w.add(TestEntry::put(&[&long[..], b"x"].concat(), 1, b"").as_ref()).is_err());
    assert!(w.add(TestEntry::put(b"", 1, &[&value[..], b"x"].concat()).as_ref()).is_err());
}

#[test]
fn uniform_entries_respect_block_entry_limit() {
    let entries: Vec<TestEntry> =
        (1..=70_000).rev().map(|seq| TestEntry::delete(b"k", seq)).collect();
    let dir = TestDir::new();
    let s = write(&dir, options(8 << 20, Compression::Lz4, 10), &entries);
    let r = open(&dir, s.bytes, 1 << 20).unwrap();
    assert_eq!(r.list_blocks().unwrap().len(), 2);
    r.verify(s.checksum, &mut |_| {}).unwrap();
    for seq in [1, 2, 4463, 4464, 4465, 70_000, 80_000] {
        let got = r.get(b"k", key_hash(b"k"), SeqNo(seq)).unwrap();
        assert_eq!(got, Some((SeqNo(seq.min(70_000)), EntryValue::Tombstone)));
    }
}

/// Keys that share a long prefix make a short block, until one key without it makes the block as
/// long as all of them together: the writer must finish the block before that key.
#[test]
fn key_without_shared_prefix_does_not_overflow_block() {
    let long = |i: u32| [&[7; 60_000][..], &i.to_be_bytes()].concat();
    let mut entries: Vec<TestEntry> = (0..400).map(|i| TestEntry::put(&long(i), 1, b"v")).collect();
    entries.push(TestEntry::put(&[8], 1, b"v"));
    let dir = TestDir::new();
    let s = write(&dir, options(8 << 20, Compression::Lz4, 10), &entries);
    let r = open(&dir, s.bytes, 1 << 20).unwrap();
    r.verify(s.checksum, &mut |_| {}).unwrap();
    assert!(r.get(&[8], key_hash(&[8]), SeqNo(1)).unwrap().is_some());
    assert!(r.get(&long(399), key_hash(&long(399)), SeqNo(1)).unwrap().is_some());
}

#[test]
fn block_size_is_exceeded_only_by_single_entry() {
    let mut rng = TestRng::new(14);
    for _ in 0..100 {
        let shared = rng.below(300) as usize;
        let mut entries: Vec<TestEntry> = (0..200u32)
            .map(|i| TestEntry::put(&[&vec![7; shared], &i.to_be_bytes()[..]].concat(), 1, b"v"))
            .collect();
        entries.push(TestEntry::put(&vec![8; shared + 4], 1, b"v"));
        let dir = TestDir::new();
        let block_bytes = 200 + rng.below(4000) as usize;
        let s = write(&dir, options(block_bytes, Compression::None, 0), &entries);
        let r = open(&dir, s.bytes, 0).unwrap();
        for i in 0..r.list_blocks().unwrap().len() {
            let block = r.load_block(i, false, perigee_base::IoActivity::Scan).unwrap();
            assert!(
                block.len() == 1 || block.raw().len() <= block_bytes,
                "{} of {block_bytes}",
                block.raw().len()
            );
        }
    }
}

/// A file with valid checksums but wrong properties, as written by a bug or an attacker.
#[test]
fn verify_detects_wrong_properties() {
    let dir = TestDir::new();
    write(&dir, options(4096, Compression::None, 10), &small());
    let good = dir.get(NAME);
    let values = good.windows(6).position(|w| w == [1, 1, 3, 3, 1, 1]).unwrap();
    for (at, what) in
        [(5, "tombstones"), (8, "smallest"), (11, "largest"), (14, "first key"), (23, "last key")]
    {
        let mut bad = good.clone();
        bad[values + at] -= 1;
        assert!(!crate::fuzz::fuzz_klog(&bad), "{what}");
    }
    assert!(crate::fuzz::fuzz_klog(&good));
}

#[test]
fn writer_rejects_unordered_and_empty_input() {
    let dir = TestDir::new();
    let mut w = KlogWriter::create(&*dir, ID, options(64, Compression::None, 0)).unwrap();
    w.add(TestEntry::put(b"b", 5, b"").as_ref()).unwrap();
    for e in
        [TestEntry::put(b"b", 5, b""), TestEntry::put(b"b", 6, b""), TestEntry::put(b"a", 1, b"")]
    {
        assert_eq!(w.add(e.as_ref()).unwrap_err().kind(), perigee_base::ErrorKind::Internal);
    }
    let other = TestDir::new();
    assert!(
        KlogWriter::create(&*other, ID, options(64, Compression::None, 0))
            .unwrap()
            .finish()
            .is_err()
    );
    assert!(KlogWriter::create(&*dir, FileId(8), options(1 << 30, Compression::None, 0)).is_err());
}

#[test]
fn file_size_estimate_is_accurate() {
    let mut rng = TestRng::new(11);
    let dir = TestDir::new();
    let mut w = KlogWriter::create(&*dir, ID, options(4096, Compression::None, 10)).unwrap();
    for i in 0..20_000u64 {
        w.add(TestEntry::put(&i.to_be_bytes(), i + 1, &rng.bytes(50)).as_ref()).unwrap();
    }
    let estimate = w.estimated_file_bytes();
    let actual = w.finish().unwrap().bytes;
    assert!(estimate.abs_diff(actual) < actual / 50, "{estimate} {actual}");
}

#[test]
fn lookups_update_counters() {
    let dir = TestDir::new();
    let entries: Vec<TestEntry> =
        (0..2000u32).map(|i| TestEntry::put(&(2 * i).to_be_bytes(), 5, b"v")).collect();
    let s = write(&dir, options(1000, Compression::Lz4, 10), &entries);
    let counters: Arc<perigee_base::Counters> = Arc::default();
    let cache = Arc::new(BlockCache::new(1 << 20));
    let r = KlogReader::open(&*dir, ID, DB, perigee_base::Bytes(s.bytes), cache, counters.clone())
        .unwrap();
    let get =
        |k: u32, at: u64| r.get(&k.to_be_bytes(), key_hash(&k.to_be_bytes()), SeqNo(at)).unwrap();
    for i in 0..2000 {
        assert!(get(2 * i, 9).is_some());
        assert!(get(2 * i, 4).is_none(), "too new");
    }
    assert_eq!(
        counters.filter_false_positives.get(),
        0,
        "a version that is too new is not a false positive"
    );
    (0..2000).for_each(|i| assert!(get(2 * i + 1, 9).is_none()));
    let wrong = counters.filter_false_positives.get();
    assert_eq!(wrong + counters.filter_negatives.get(), 2000);
    assert!(wrong < 60, "{wrong}");
    assert_eq!(counters.cache_misses.get(), r.list_blocks().unwrap().len() as u64);
}

fn small() -> Vec<TestEntry> {
    let pointer = perigee_base::VlogPointer {
        file: FileId(10),
        offset: 72,
        stored_bytes: 31,
        value_bytes: 7,
    };
    vec![
        TestEntry::put(b"apple", 12, b"red"),
        TestEntry::delete(b"apple", 9),
        TestEntry { key: b"apricot".to_vec(), seq: SeqNo(10), value: TestValue::Pointer(pointer) },
    ]
}

#[test]
fn klog_matches_format_page_example() {
    let dir = TestDir::new();
    write(&dir, options(4096, Compression::None, 10), &small());
    let page = include_str!("../../../../docs/format/klog.md");
    assert_eq!(hex_of_page(page, 0), to_hex(&dir.get(NAME)));
}

/// Several small blocks per codec, with the versions of one key in more than one block.
fn damage_sample(dir: &TestDir, codec: Compression) -> KlogSummary {
    let mut entries = small();
    entries.extend((0..12).rev().map(|i| TestEntry::put(b"banana", 20 + i, &[b'b'; 40])));
    entries.push(TestEntry::put(b"cherry", 1, b""));
    write(dir, options(300, codec, 10), &entries)
}

#[test]
fn bit_flips_and_truncations_are_detected() {
    for codec in [Compression::None, Compression::Lz4, Compression::Snappy, Compression::Zstd(3)] {
        let dir = TestDir::new();
        let s = damage_sample(&dir, codec);
        let good = dir.get(NAME);
        let check = |bytes: Vec<u8>, len: u64| {
            dir.put(NAME, bytes);
            open(&dir, len, 0).and_then(|r| r.verify(s.checksum, &mut |_| {}))
        };
        check(good.clone(), s.bytes).unwrap();
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let e = check(bad, s.bytes).expect_err("a flipped bit");
            assert!(e.file() == Some(NAME) && e.offset().is_some(), "bit {bit}: {e}");
        }
        for len in 0..good.len() {
            assert!(check(good[..len].to_vec(), s.bytes).unwrap_err().is_corruption());
            assert!(
                check(good[..len].to_vec(), len as u64).is_err(),
                "length {len}, matching the manifest"
            );
        }
        assert!(check([&good[..], &[0]].concat(), s.bytes + 1).is_err());
    }
}

/// Damage that appears after the file was opened is detected by gets and by verify.
#[test]
fn damage_after_open_is_reported() {
    let dir = TestDir::new();
    let s = damage_sample(&dir, Compression::None);
    let good = dir.get(NAME);
    let r = open(&dir, s.bytes, 0).unwrap();
    let (offset, length, _) = r.list_blocks().unwrap()[0].clone();
    let bits = (0..good.len() * 8).step_by(7);
    for bit in bits {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        dir.put(NAME, bad);
        // The test directory replaces the file, so it is opened again; index or filter may be
        // rejected.
        let Ok(r) = open(&dir, s.bytes, 0) else { continue };
        let hit = (offset..offset + length).contains(&(bit as u64 / 8));
        assert_eq!(r.get(b"apple", key_hash(b"apple"), SeqNo(12)).is_err(), hit, "bit {bit}");
        assert!(r.verify(s.checksum, &mut |_| {}).is_err());
    }
}

#[test]
fn mutated_files_never_panic() {
    let mut rng = TestRng::new(12);
    let mut accepted = 0;
    for codec in [Compression::None, Compression::Lz4, Compression::Snappy, Compression::Zstd(3)] {
        let dir = TestDir::new();
        damage_sample(&dir, codec);
        let good = dir.get(NAME);
        assert!(crate::fuzz::fuzz_klog(&good));
        for _ in 0..4000 {
            accepted += u32::from(crate::fuzz::fuzz_klog(&mutate(&mut rng, &good)));
        }
    }
    assert!(accepted < 6000, "verify detects more than checksum errors: {accepted}");
}

#[test]
fn random_bytes_never_panic() {
    let mut rng = TestRng::new(13);
    let props = properties::encode(
        &write(&TestDir::new(), options(64, Compression::None, 0), &small()),
        KeyComparator::Bytes,
    );
    for _ in 0..20_000 {
        let len = rng.below(200) as usize;
        let bytes: Vec<u8> =
            rng.bytes(len).iter().map(|b| if b % 3 == 0 { b % 9 } else { b % 2 * b }).collect();
        for fuzz in [
            crate::fuzz::fuzz_frame,
            crate::fuzz::fuzz_block,
            crate::fuzz::fuzz_column,
            crate::fuzz::fuzz_filter,
            crate::fuzz::fuzz_ranges,
            crate::fuzz::fuzz_props,
            crate::fuzz::fuzz_footer,
            crate::fuzz::fuzz_pointer,
            crate::fuzz::fuzz_klog,
            crate::fuzz::fuzz_vlog,
        ] {
            fuzz(&bytes);
        }
        crate::fuzz::fuzz_props(&mutate(&mut rng, &props));
    }
}
