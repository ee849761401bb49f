//! Klogs against a sorted list: round trips, look-ups, cursors; the worked example; damage of every kind.

use super::*;
use crate::testing::{Entry, Rng, TestDir, Value, hex_of_page, mutate, sorted_entries, to_hex};
use crate::{BlockCache, Compression};
use perigee_base::checksum::key_hash;
use perigee_base::{Expiry, FamilyId, FileId, KeyOrder, Result, SeqNo};
use std::sync::Arc;

const DB: u64 = 0x1122_3344_5566_7788;
const ID: FileId = FileId(7);
const FAMILY: FamilyId = FamilyId(2);
const NAME: &str = "000007.klog";

fn options(block_bytes: usize, codec: Compression, filter_bits: u8) -> KlogOptions {
    KlogOptions {
        database: DB,
        family: FAMILY,
        order: KeyOrder::Bytes,
        block_bytes,
        compression: codec,
        filter_bits,
    }
}

fn write(dir: &TestDir, options: KlogOptions, entries: &[Entry]) -> KlogSummary {
    let mut w = KlogWriter::create(dir, ID, options).unwrap();
    for e in entries {
        w.add(e.as_ref()).unwrap();
    }
    w.finish().unwrap()
}

fn open(dir: &TestDir, bytes: u64, cache: u64) -> Result<Arc<KlogReader>> {
    KlogReader::open(dir, ID, DB, bytes, Arc::new(BlockCache::new(cache)), Arc::default()).map(Arc::new)
}

fn found(e: &Entry) -> Found {
    match &e.value {
        Value::None => Found::Tombstone,
        Value::Inline(v) => Found::Value(v.clone().into()),
        Value::Pointer(p) => Found::Pointer(*p),
        Value::Until(v, ms) => Found::ValueUntil(v.clone().into(), Expiry(*ms)),
        Value::PointerUntil(p, ms) => Found::PointerUntil(*p, Expiry(*ms)),
    }
}

fn random_options(rng: &mut Rng) -> KlogOptions {
    let block_bytes = [1, 64, 200, 1000, 16 << 10][rng.below(5) as usize];
    let codec = [Compression::None, Compression::Lz4, Compression::Snappy, Compression::Zstd(1)]
        [rng.below(4) as usize];
    options(block_bytes, codec, [0, 1, 10][rng.below(3) as usize])
}

fn check_summary(s: &KlogSummary, entries: &[Entry]) {
    assert_eq!(s.entries, entries.len() as u64);
    assert_eq!(s.tombstones, entries.iter().filter(|e| e.value == Value::None).count() as u64);
    assert_eq!(s.smallest, entries.iter().map(|e| e.seq).min().unwrap());
    assert_eq!(s.largest, entries.iter().map(|e| e.seq).max().unwrap());
    assert_eq!((&s.first_key, &s.last_key), (&entries[0].key, &entries[entries.len() - 1].key));
    assert_eq!(s.raw_key_bytes, entries.iter().map(|e| e.key.len() as u64).sum::<u64>());
    let value_bytes = |e: &Entry| match &e.value {
        Value::None => 0,
        Value::Inline(v) | Value::Until(v, _) => v.len() as u64,
        Value::Pointer(p) | Value::PointerUntil(p, _) => p.value_bytes,
    };
    assert_eq!(s.raw_value_bytes, entries.iter().map(value_bytes).sum::<u64>());
    let mut vlogs = std::collections::BTreeMap::new();
    for e in entries {
        if let Value::Pointer(p) | Value::PointerUntil(p, _) = e.value {
            *vlogs.entry(p.file).or_default() += p.stored_bytes;
        }
    }
    assert_eq!(s.vlogs, vlogs.into_iter().collect::<Vec<_>>());
}

/// Every key that there is and some that are not, at every sequence number that matters.
fn check_gets(r: &KlogReader, entries: &[Entry]) {
    for e in entries {
        for key in [e.key.clone(), [&e.key[..], &[0]].concat(), [&e.key[..], &[255]].concat()] {
            for at in [e.seq.prev(), e.seq, e.seq.plus(1), SeqNo::ZERO, SeqNo::MAX] {
                let i = entries.partition_point(|x| x.is_before(&key, at));
                let want = entries.get(i).filter(|x| x.key == key).map(|x| (x.seq, found(x)));
                assert_eq!(r.get(&key, key_hash(&key), at).unwrap(), want);
            }
        }
    }
}

fn check_cursor(rng: &mut Rng, r: &Arc<KlogReader>, entries: &[Entry]) {
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
        let seq = [e.seq, e.seq.prev(), e.seq.plus(1), SeqNo::ZERO, SeqNo::MAX][rng.below(5) as usize];
        let bound = entries.partition_point(|x| x.is_before(&key, seq));
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
            assert_eq!(c.found(), found(&entries[i]));
            assert_eq!(c.entry(), entries[i].as_ref());
        }
    }
}

#[test]
fn klogs_hold_what_was_put_in() {
    let mut rng = Rng::new(9);
    for case in 0..150 {
        let entries = sorted_entries(&mut rng, [20, 200, 1000][case % 3]);
        let dir = TestDir::new();
        let s = write(&dir, random_options(&mut rng), &entries);
        check_summary(&s, &entries);
        let r = open(&dir, s.bytes, [0, 3000, 1 << 20][rng.below(3) as usize]).unwrap();
        assert_eq!(r.summary(), &KlogSummary { checksum: 0, ..s.clone() });
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
    let mut rng = Rng::new(10);
    let (long, value) = (vec![7; 64 << 10], rng.bytes(1 << 20));
    let mut entries =
        vec![Entry::put(b"", 3, &value), Entry::put(&long[1..], 9, b""), Entry::put(&long, 9, &value)];
    entries.push(Entry::delete(&long, 4));
    for codec in [Compression::None, Compression::Lz4, Compression::Snappy, Compression::Zstd(3)] {
        let dir = TestDir::new();
        let s = write(&dir, options(4096, codec, 10), &entries);
        let r = open(&dir, s.bytes, 1 << 22).unwrap();
        r.verify(s.checksum, &mut |_| {}).unwrap();
        check_gets(&r, &entries);
    }
    let mut w = KlogWriter::create(&*TestDir::new(), ID, options(4096, Compression::Lz4, 10)).unwrap();
    assert!(w.add(Entry::put(&[&long[..], b"x"].concat(), 1, b"").as_ref()).is_err());
    assert!(w.add(Entry::put(b"", 1, &[&value[..], b"x"].concat()).as_ref()).is_err());
}

#[test]
fn uniform_entries_stay_within_a_blocks_count() {
    let entries: Vec<Entry> = (1..=70_000).rev().map(|seq| Entry::delete(b"k", seq)).collect();
    let dir = TestDir::new();
    let s = write(&dir, options(8 << 20, Compression::Lz4, 10), &entries);
    let r = open(&dir, s.bytes, 1 << 20).unwrap();
    assert_eq!(r.blocks().unwrap().len(), 2);
    r.verify(s.checksum, &mut |_| {}).unwrap();
    for seq in [1, 2, 4463, 4464, 4465, 70_000, 80_000] {
        let got = r.get(b"k", key_hash(b"k"), SeqNo(seq)).unwrap();
        assert_eq!(got, Some((SeqNo(seq.min(70_000)), Found::Tombstone)));
    }
}

/// Keys that share a long prefix make a short block, until one key without it makes the block as long as all of
/// them together: the writer must close the block before that key.
#[test]
fn a_key_that_ends_the_sharing_does_not_overflow_the_block() {
    let long = |i: u32| [&[7; 60_000][..], &i.to_be_bytes()].concat();
    let mut entries: Vec<Entry> = (0..400).map(|i| Entry::put(&long(i), 1, b"v")).collect();
    entries.push(Entry::put(&[8], 1, b"v"));
    let dir = TestDir::new();
    let s = write(&dir, options(8 << 20, Compression::Lz4, 10), &entries);
    let r = open(&dir, s.bytes, 1 << 20).unwrap();
    r.verify(s.checksum, &mut |_| {}).unwrap();
    assert!(r.get(&[8], key_hash(&[8]), SeqNo(1)).unwrap().is_some());
    assert!(r.get(&long(399), key_hash(&long(399)), SeqNo(1)).unwrap().is_some());
}

#[test]
fn blocks_stay_under_their_size_unless_one_entry_is_larger() {
    let mut rng = Rng::new(14);
    for _ in 0..100 {
        let shared = rng.below(300) as usize;
        let mut entries: Vec<Entry> = (0..200u32)
            .map(|i| Entry::put(&[&vec![7; shared], &i.to_be_bytes()[..]].concat(), 1, b"v"))
            .collect();
        entries.push(Entry::put(&vec![8; shared + 4], 1, b"v"));
        let dir = TestDir::new();
        let block_bytes = 200 + rng.below(4000) as usize;
        let s = write(&dir, options(block_bytes, Compression::None, 0), &entries);
        let r = open(&dir, s.bytes, 0).unwrap();
        for i in 0..r.blocks().unwrap().len() {
            let block = r.block(i, false, perigee_base::io::Cause::Scan).unwrap();
            assert!(
                block.len() == 1 || block.raw().len() <= block_bytes,
                "{} of {block_bytes}",
                block.raw().len()
            );
        }
    }
}

/// A file whose checksums are all right and whose properties are not: written by a bug, or by an enemy.
#[test]
fn properties_that_are_not_those_of_the_entries_are_noticed() {
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
fn a_writer_refuses_disorder_and_emptiness() {
    let dir = TestDir::new();
    let mut w = KlogWriter::create(&*dir, ID, options(64, Compression::None, 0)).unwrap();
    w.add(Entry::put(b"b", 5, b"").as_ref()).unwrap();
    for e in [Entry::put(b"b", 5, b""), Entry::put(b"b", 6, b""), Entry::put(b"a", 1, b"")] {
        assert_eq!(w.add(e.as_ref()).unwrap_err().kind(), perigee_base::ErrorKind::Internal);
    }
    let other = TestDir::new();
    assert!(KlogWriter::create(&*other, ID, options(64, Compression::None, 0)).unwrap().finish().is_err());
    assert!(KlogWriter::create(&*dir, FileId(8), options(1 << 30, Compression::None, 0)).is_err());
}

#[test]
fn estimates_are_near() {
    let mut rng = Rng::new(11);
    let dir = TestDir::new();
    let mut w = KlogWriter::create(&*dir, ID, options(4096, Compression::None, 10)).unwrap();
    for i in 0..20_000u64 {
        w.add(Entry::put(&i.to_be_bytes(), i + 1, &rng.bytes(50)).as_ref()).unwrap();
    }
    let estimate = w.bytes_written();
    let actual = w.finish().unwrap().bytes;
    assert!(estimate.abs_diff(actual) < actual / 50, "{estimate} {actual}");
}

#[test]
fn counters_tell_what_happened() {
    let dir = TestDir::new();
    let entries: Vec<Entry> = (0..2000u32).map(|i| Entry::put(&(2 * i).to_be_bytes(), 5, b"v")).collect();
    let s = write(&dir, options(1000, Compression::Lz4, 10), &entries);
    let counters: Arc<perigee_base::stats::Counters> = Arc::default();
    let cache = Arc::new(BlockCache::new(1 << 20));
    let r = KlogReader::open(&*dir, ID, DB, s.bytes, cache, counters.clone()).unwrap();
    let get = |k: u32, at: u64| r.get(&k.to_be_bytes(), key_hash(&k.to_be_bytes()), SeqNo(at)).unwrap();
    for i in 0..2000 {
        assert!(get(2 * i, 9).is_some());
        assert!(get(2 * i, 4).is_none(), "too new");
    }
    assert_eq!(counters.filter_false_positives.get(), 0, "a version that is too new is no false positive");
    (0..2000).for_each(|i| assert!(get(2 * i + 1, 9).is_none()));
    let wrong = counters.filter_false_positives.get();
    assert_eq!(wrong + counters.filter_negatives.get(), 2000);
    assert!(wrong < 60, "{wrong}");
    assert_eq!(counters.cache_misses.get(), r.blocks().unwrap().len() as u64);
}

fn small() -> Vec<Entry> {
    let pointer =
        perigee_base::key::VlogPointer { file: FileId(10), offset: 72, stored_bytes: 31, value_bytes: 7 };
    vec![
        Entry::put(b"apple", 12, b"red"),
        Entry::delete(b"apple", 9),
        Entry { key: b"apricot".to_vec(), seq: SeqNo(10), value: Value::Pointer(pointer) },
    ]
}

#[test]
fn the_worked_example_of_the_format_page() {
    let dir = TestDir::new();
    write(&dir, options(4096, Compression::None, 10), &small());
    let page = include_str!("../../../../docs/format/klog.md");
    assert_eq!(hex_of_page(page, 0), to_hex(&dir.get(NAME)));
}

/// Several small blocks of both codecs, with a key over a block's end.
fn damage_sample(dir: &TestDir, codec: Compression) -> KlogSummary {
    let mut entries = small();
    entries.extend((0..12).rev().map(|i| Entry::put(b"banana", 20 + i, &[b'b'; 40])));
    entries.push(Entry::put(b"cherry", 1, b""));
    write(dir, options(300, codec, 10), &entries)
}

#[test]
fn every_bit_and_every_length_counts() {
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
                "length {len}, and the manifest agrees"
            );
        }
        assert!(check([&good[..], &[0]].concat(), s.bytes + 1).is_err());
    }
}

/// Also after opening: damage that comes while the file is in use is met by gets and by verify.
#[test]
fn damage_after_open_is_met() {
    let dir = TestDir::new();
    let s = damage_sample(&dir, Compression::None);
    let good = dir.get(NAME);
    let r = open(&dir, s.bytes, 0).unwrap();
    let (offset, length, _) = r.blocks().unwrap()[0].clone();
    let bits = (0..good.len() * 8).step_by(7);
    for bit in bits {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        dir.put(NAME, bad);
        // The directory of the tests replaces the file, so it is opened anew; index and filter may be refused.
        let Ok(r) = open(&dir, s.bytes, 0) else { continue };
        let hit = (offset..offset + length).contains(&(bit as u64 / 8));
        assert_eq!(r.get(b"apple", key_hash(b"apple"), SeqNo(12)).is_err(), hit, "bit {bit}");
        assert!(r.verify(s.checksum, &mut |_| {}).is_err());
    }
}

#[test]
fn mutated_files_never_panic() {
    let mut rng = Rng::new(12);
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
    assert!(accepted < 6000, "verify notices more than checksums: {accepted}");
}

#[test]
fn random_bytes_never_panic() {
    let mut rng = Rng::new(13);
    let props =
        props::encode(&write(&TestDir::new(), options(64, Compression::None, 0), &small()), KeyOrder::Bytes);
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
