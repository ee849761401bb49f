//! Tests of the memtable against a sorted list, and of readers concurrent with a writer.

use super::*;
use perigee_base::{BUILT_IN_COMPARATORS, FamilyId, KeyBoundaryRef, OpIndex, cmp_entry};
use perigee_file::log::{Batch, BatchOps};

fn insert(t: &Memtable, seq: u64, ops: &[(&[u8], Option<&[u8]>)]) {
    let mut b = Batch::new();
    for (k, v) in ops {
        match v {
            Some(v) => b.put(FamilyId(0), k, v).unwrap(),
            None => b.delete(FamilyId(0), k).unwrap(),
        }
    }
    let f = b.finish();
    let parsed: Vec<_> = BatchOps::new(&f.buf, f.payload_range())
        .enumerate()
        .map(|(i, op)| (op.unwrap(), OpIndex(i as u64)))
        .collect();
    // Alternates between inserts that keep the buffer and inserts that copy it.
    if seq % 2 == 0 {
        t.insert(&Arc::new(f.buf), SeqNo(seq), &parsed)
    } else {
        t.insert_copied(&f.buf, SeqNo(seq), &parsed)
    }
    .unwrap();
}

fn next_random(x: &mut u64) -> u64 {
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    *x
}

fn all_comparators() -> Vec<KeyComparator> {
    let by_length = |a: &[u8], b: &[u8]| a.len().cmp(&b.len()).then_with(|| a.cmp(b));
    let mut all: Vec<KeyComparator> =
        BUILT_IN_COMPARATORS.iter().map(|(comparator, _)| *comparator).collect();
    all.push(KeyComparator::register("memtable-by-length", by_length).unwrap());
    all
}

/// Returns a random key: sometimes of the length that the numeric comparators use, sometimes not;
/// with few distinct values, letters in both cases, and bytes such as 0 and 0xff.
fn random_key(x: &mut u64) -> Vec<u8> {
    let letters = b"aAbB\0\x01\xff~";
    match next_random(x) % 4 {
        0 => (next_random(x) % 40).to_le_bytes().to_vec(),
        1 => (next_random(x) % 40).wrapping_neg().to_le_bytes().to_vec(),
        2 => vec![(next_random(x) % 50) as u8; (next_random(x) % 3) as usize],
        _ => (0..next_random(x) % 10).map(|_| letters[(next_random(x) % 8) as usize]).collect(),
    }
}

/// Entries in entry order.
struct MemtableModel(KeyComparator, Vec<(Vec<u8>, u64, Option<Vec<u8>>)>);

impl MemtableModel {
    /// Returns the index of the first entry at or after a position.
    fn lower_bound(&self, key: &[u8], seq: u64) -> usize {
        self.1.partition_point(|(k, s, _)| {
            cmp_entry(self.0, (k, SeqNo(*s)), (key, SeqNo(seq))).is_lt()
        })
    }
    fn insert(&mut self, key: Vec<u8>, seq: u64, value: Option<Vec<u8>>) {
        let at = self.lower_bound(&key, seq);
        self.1.insert(at, (key, seq, value));
    }
    fn get(&self, key: &[u8], at: u64) -> Option<&(Vec<u8>, u64, Option<Vec<u8>>)> {
        self.1.get(self.lower_bound(key, at)).filter(|(k, ..)| self.0.keys_equal(k, key))
    }
}

fn check_cursor(c: &MemtableCursor, model: &MemtableModel, at: Option<usize>) {
    let want = at.and_then(|i| model.1.get(i));
    assert_eq!(c.valid(), want.is_some());
    if let Some((key, seq, value)) = want {
        let e = c.entry();
        assert_eq!(
            (e.key, e.seq.0, e.value == ValueRef::Tombstone),
            (&key[..], *seq, value.is_none())
        );
        assert!(matches!(c.entry_value(), EntryValue::Tombstone) == value.is_none());
    }
}

/// Checks a step of `next_key` from an entry, and returns the new position.
fn check_next_key(
    c: &MemtableCursor,
    model: &MemtableModel,
    from: usize,
    skips_versions: bool,
) -> usize {
    let MemtableModel(comparator, entries) = model;
    let is_version = |at: usize| comparator.keys_equal(&entries[at].0, &entries[from].0);
    let to = if c.valid() { model.lower_bound(c.key(), c.seq().0) } else { entries.len() };
    assert!(to > from && (from + 1..to).all(is_version), "{from} to {to}");
    // The keys are short enough for the cursor to recognize all versions.
    let by_bytes = matches!(comparator, KeyComparator::Bytes | KeyComparator::Reverse);
    if skips_versions && by_bytes && to < entries.len() {
        assert!(!is_version(to), "{from} to {to}");
    }
    to
}

fn check_all(t: &Arc<Memtable>, model: &MemtableModel, x: &mut u64) {
    let n = model.1.len();
    let mut c = t.cursor();
    c.seek_first();
    (0..n).for_each(|i| {
        check_cursor(&c, model, Some(i));
        c.next();
    });
    check_cursor(&c, model, None);
    c.seek_last();
    (0..n).rev().for_each(|i| {
        check_cursor(&c, model, Some(i));
        c.prev();
    });
    check_cursor(&c, model, None);
    for _ in 0..300 {
        let (key, at) = (random_key(x), next_random(x) % (n as u64 + 2));
        let (got, want) = (t.get(&key, SeqNo(at)), model.get(&key, at));
        assert_eq!(got.as_ref().map(|(s, _)| s.0), want.map(|(_, s, _)| *s));
        match got {
            Some((_, EntryValue::Value(v))) => assert_eq!(Some(&v[..]), want.unwrap().2.as_deref()),
            other => assert!(other.is_none_or(|(_, f)| matches!(f, EntryValue::Tombstone))),
        }
        // Steps in random directions from the position of a seek.
        let mut position = model.lower_bound(&key, at);
        if next_random(x) % 2 == 0 {
            c.seek(&key, SeqNo(at));
        } else {
            c.seek_before(&key, SeqNo(at));
            position = position.wrapping_sub(1);
        }
        let backward_in = [2, 8][(next_random(x) % 2) as usize];
        let mut skips_versions = false; // only after a step forward
        for _ in 0..20 {
            check_cursor(&c, model, Some(position));
            if position >= n {
                break;
            }
            if next_random(x) % 4 == 0 {
                c.next_key();
                position = check_next_key(&c, model, position, skips_versions);
                skips_versions = true;
                continue;
            }
            let forward = next_random(x) % backward_in > 0;
            if forward {
                c.next()
            } else {
                c.prev()
            }
            position = if forward { position + 1 } else { position.wrapping_sub(1) };
            skips_versions = forward;
        }
        let (other, other_at) = (random_key(x), next_random(x) % (n as u64 + 2));
        let (low, high) = (model.lower_bound(&key, at), model.lower_bound(&other, other_at));
        let between = t.count_between(Some((&key, SeqNo(at))), Some((&other, SeqNo(other_at))));
        assert_eq!(between as usize, high.saturating_sub(low));
        assert_eq!(t.count_between(None, Some((&key, SeqNo(at)))) as usize, low);
        assert_eq!(t.count_between(Some((&key, SeqNo(at))), None) as usize, n - low);
    }
}

#[test]
fn matches_sorted_list_in_every_comparator() {
    for (number, comparator) in all_comparators().into_iter().enumerate() {
        let t = Arc::new(Memtable::with_expected_keys(comparator, number as u64 % 2 * 200));
        let mut model = MemtableModel(comparator, Vec::new());
        let mut x = 7 + number as u64;
        let mut seq = 1;
        check_all(&t, &model, &mut x);
        // With the skip list, counts are exact up to 256 entries.
        let entries_max = if comparator.has_bytewise_equality() { 1500 } else { 256 };
        while seq < entries_max {
            let mut ops = Vec::new();
            let first = seq;
            for _ in 0..(1 + next_random(&mut x) % 60).min(entries_max - seq) {
                let value = (next_random(&mut x) % 4 > 0).then(|| seq.to_le_bytes().to_vec());
                ops.push((random_key(&mut x), value));
                seq += 1;
            }
            let borrowed: Vec<_> = ops.iter().map(|(k, v)| (&k[..], v.as_deref())).collect();
            insert(&t, first, &borrowed);
            for (i, (key, value)) in ops.into_iter().enumerate() {
                model.insert(key, first + i as u64, value);
            }
            if t.take_sort_request() {
                assert!(!t.take_sort_request(), "requested once");
                if next_random(&mut x) % 2 == 0 {
                    t.sort_ahead();
                }
            }
            if next_random(&mut x) % 4 == 0 {
                check_all(&t, &model, &mut x);
            }
        }
        check_all(&t, &model, &mut x);
        t.sort_ahead();
        check_all(&t, &model, &mut x);
        t.sort_completely();
        check_all(&t, &model, &mut x);
    }
}

/// Creates a cursor after every insert: each sees all entries so far, and the sorted runs are
/// extended rather than rebuilt.
#[test]
fn cursor_after_every_insert_sees_all_entries() {
    let t = Arc::new(Memtable::new(KeyComparator::Bytes));
    let mut model = MemtableModel(KeyComparator::Bytes, Vec::new());
    let mut x = 5;
    for seq in 1..3000u64 {
        let key = (next_random(&mut x) % 100_000).to_be_bytes().to_vec();
        insert(&t, seq, &[(&key, Some(b"v"))]);
        model.insert(key, seq, Some(b"v".to_vec()));
        let mut c = t.cursor();
        let from = (next_random(&mut x) % 100_000).to_be_bytes();
        c.seek(&from, SeqNo::MAX);
        let at = model.lower_bound(&from, u64::MAX);
        for i in at..at + 3 {
            check_cursor(&c, &model, Some(i));
            c.next();
        }
    }
}

/// The first entry of a column family takes little memory; sorted runs are counted.
#[test]
fn memory_bytes_are_accounted() {
    let t = Arc::new(Memtable::new(KeyComparator::Bytes));
    assert_eq!((t.bytes(), t.contents_bytes()), (0, 0), "an empty memtable allocates nothing");
    insert(&t, 1, &[(b"key", Some(b"value"))]);
    assert!(t.bytes() < 450, "{}", t.bytes());
    assert!((1..2500).contains(&t.contents_bytes()), "{}", t.contents_bytes());
    const { assert!(Memtable::EMPTY_BYTES < 300) };
    for seq in 2..1000u64 {
        insert(&t, seq, &[(&seq.to_be_bytes(), None)]);
    }
    let before = t.bytes();
    let mut c = t.cursor();
    assert_eq!(t.bytes(), before, "a cursor that was not positioned takes no memory");
    c.seek_first();
    assert_eq!(t.bytes(), before + 16 * 999);
    assert_eq!(t.distinct_keys(), 999);
}

/// A check is due once scans have taken a step per entry, then after an eighth to a quarter more.
#[test]
fn scan_steps_request_check() {
    let entry = |t: &Memtable, seq: u64| insert(t, seq, &[(&seq.to_be_bytes(), None)]);
    let t = Memtable::new(KeyComparator::Bytes);
    assert!(!t.add_scan_steps(u64::MAX), "an empty one");
    (1..=1000).for_each(|seq| entry(&t, seq));
    assert!(!t.add_scan_steps(999));
    let due: Vec<u64> = (1000..5000).filter(|_| t.add_scan_steps(1)).collect();
    assert_eq!(due, [1024, 1280, 1536, 1792, 2048, 2560, 3072, 3584, 4096]);
    assert_eq!(t.scan_steps(), 4999);
    assert!(t.add_scan_steps(5000) && !t.add_scan_steps(0));
    let octaves: Vec<u32> = [0, 3, 4, 5, 7, 8, u64::MAX].map(quarter_octave).to_vec();
    assert_eq!(octaves, [8, 8, 8, 9, 11, 12, 255]);
}

/// Two memtables hold one buffer: each is charged its share, and the whole is counted until the
/// second one is dropped.
#[test]
fn shared_batch_is_charged_once() {
    let mut b = Batch::new();
    b.put(FamilyId(1), b"a", &[7; 1000]).unwrap();
    b.put(FamilyId(2), b"b", &[8; 3000]).unwrap();
    let f = b.finish();
    let ops: Vec<BatchOp> =
        BatchOps::new(&f.buf, f.payload_range()).map(|op| op.unwrap()).collect();
    let (buf, live_bytes) = (Arc::new(f.buf), Arc::default());
    let shared = SharedBatch::new(4100, &live_bytes);
    let tables =
        [Memtable::new(KeyComparator::Bytes), Memtable::new(KeyComparator::CaseInsensitive)];
    for (i, (table, bytes)) in tables.iter().zip([1050, 3050]).enumerate() {
        let op = [(ops[i].clone(), OpIndex(i as u64))];
        table
            .insert_shared(&buf, SeqNo(5), &op, Some(BatchShare { batch: &shared, bytes }))
            .unwrap();
        assert_eq!(table.shared_batch_bytes(), bytes);
        assert!((bytes..bytes + 1000).contains(&table.bytes()), "{}", table.bytes());
    }
    drop(shared);
    let [one, other] = tables;
    drop(one);
    assert_eq!(live_bytes.load(std::sync::atomic::Ordering::Relaxed), 4100);
    drop(other);
    assert_eq!(live_bytes.load(std::sync::atomic::Ordering::Relaxed), 0);
}

/// Regression test: the skip list once answered a get from a link that it loaded again after
/// comparing keys; a node inserted there in between hid the requested key.
#[test]
fn concurrent_readers_see_every_published_entry() {
    for comparator in [KeyComparator::Bytes, KeyComparator::CaseInsensitive] {
        run_concurrent_readers(comparator);
    }
}

/// Returns a key of digits, which is the same in every case.
fn digit_key(seq: u64) -> Vec<u8> {
    format!("{:08}", seq.wrapping_mul(0x9E37) % 4096).into_bytes()
}

fn run_concurrent_readers(comparator: KeyComparator) {
    let t = Arc::new(Memtable::new(comparator));
    std::thread::scope(|s| {
        s.spawn(|| {
            for seq in 1..=20_000u64 {
                insert(&t, seq, &[(&digit_key(seq), Some(&seq.to_le_bytes()))]);
            }
        });
        s.spawn(|| {
            while t.last_seq().0 < 20_000 {
                if t.take_sort_request() {
                    t.sort_ahead();
                }
                std::thread::yield_now();
            }
        });
        s.spawn(|| {
            while t.last_seq().0 < 20_000 {
                let at = t.last_seq();
                let mut c = t.cursor();
                c.seek_first();
                let mut seen = 0;
                let mut last: Option<(Vec<u8>, SeqNo)> = None;
                while c.valid() {
                    let e = c.entry();
                    seen += u64::from(e.seq <= at);
                    if let Some((k, q)) = &last {
                        assert!(
                            (&k[..], std::cmp::Reverse(*q)) < (e.key, std::cmp::Reverse(e.seq))
                        );
                    }
                    last = Some((e.key.to_vec(), e.seq));
                    c.next();
                }
                assert!(seen >= at.0, "a published entry is missing: {seen} of {at}");
            }
        });
        s.spawn(|| {
            let mut x = 9;
            while t.last_seq().0 < 20_000 {
                let at = t.last_seq();
                // The newest write of a key up to `at` is known, because the key depends only on
                // the sequence number.
                let seq = 1 + next_random(&mut x) % at.0.max(1);
                let key = digit_key(seq);
                let got = t.get(&key, at);
                if at.0 > 0 {
                    let (found, _) = got.expect("a published key is missing");
                    let newest =
                        (0..).map(|n| seq + n * 4096).take_while(|s| *s <= at.0).last().unwrap();
                    assert_eq!(found.0, newest, "newest version at {at}");
                }
            }
        });
    });
}

/// Keys and values count as the user wrote them, however they were inserted; the next memtable
/// continues the count.
#[test]
fn user_bytes_written_are_counted() {
    let mut b = Batch::new();
    b.put(FamilyId(1), b"key", b"value").unwrap();
    b.put_expiring(FamilyId(1), b"until", b"then", Expiry::after_ttl(1000, 1000)).unwrap();
    b.delete(FamilyId(1), b"gone").unwrap();
    b.single_delete(FamilyId(1), b"once").unwrap();
    b.merge(FamilyId(1), b"m", b"operand").unwrap();
    b.delete_range(FamilyId(1), KeyBoundaryRef::Before(b"a"), KeyBoundaryRef::After(b"bc"))
        .unwrap();
    let given = b.user_bytes();
    let f = b.finish();
    let ops: Vec<(BatchOp, OpIndex)> = BatchOps::new(&f.buf, f.payload_range())
        .zip(0..)
        .map(|(op, i)| (op.unwrap(), OpIndex(i)))
        .collect();
    for copied in [false, true] {
        for comparator in [KeyComparator::Bytes, KeyComparator::CaseInsensitive] {
            let t = Memtable::new(comparator);
            if copied {
                t.insert_copied(&f.buf, SeqNo(1), &ops).unwrap();
            } else {
                t.insert(&Arc::new(f.buf.clone()), SeqNo(1), &ops).unwrap();
            }
            assert_eq!((t.user_bytes_written(), t.entries(), t.tombstones()), (given, 6, 2));
            assert_eq!(
                t.raw_bytes(),
                (3 + 5 + 4 + 4 + 1 + 2, 5 + 4 + 7 + 3),
                "the end of a range has one byte more"
            );
            let next = Memtable::new(comparator).with_predecessor(&t);
            assert_eq!(
                (next.user_bytes_written(), next.raw_bytes(), next.is_empty()),
                (given, (0, 0), true)
            );
            insert(&next, 9, &[(b"k", None)]);
            assert_eq!(
                Memtable::new(comparator).with_predecessor(&next).user_bytes_written(),
                given + 1
            );
        }
    }
}

/// Regression test: key hashes had no seed, so that keys could be crafted that all start at one
/// slot, and each insert probed all of them. Counts slots, not time.
#[test]
fn seeded_hash_resists_crafted_keys() {
    let crafted: Vec<Vec<u8>> = (0u64..)
        .map(|i| i.to_le_bytes().to_vec())
        .filter(|key| (perigee_base::checksum::key_hash(key) >> 32) & 0xfff == 0)
        .take(300)
        .collect();
    let longest_probe = |t: &Memtable| {
        for key in &crafted {
            insert(t, t.last_seq().0 + 1, &[(key, Some(b"v"))]);
        }
        let MemtableIndex::Hash(table) = &t.init_contents().index else {
            panic!("not a hash index")
        };
        assert!(crafted.iter().all(|key| t.get(key, SeqNo::MAX).is_some()));
        crafted.iter().map(|key| table.probes(key)).max().unwrap()
    };
    let unseeded = HashedEntries::new(KeyComparator::Bytes, 0).with_seed(0);
    let contents = MemtableContents {
        batches: ArenaSlots::new(),
        index: MemtableIndex::Hash(unseeded),
        combined: CombinedOperands::default(),
        scan_steps: ScanSteps::default(),
    };
    let before =
        Memtable { contents: Box::new(contents).into(), ..Memtable::new(KeyComparator::Bytes) };
    assert!(longest_probe(&before) >= 300, "the crafted keys collide without a seed");
    hashed_entries::seed_key_hashes(0x9e37_79b9_7f4a_7c15);
    let after = Memtable::new(KeyComparator::Bytes);
    assert!(
        longest_probe(&after) < 60,
        "{} slots",
        longest_probe(&Memtable::new(KeyComparator::Bytes))
    );
    hashed_entries::seed_key_hashes(1);
    let later = Memtable::new(KeyComparator::Bytes);
    assert_eq!(longest_probe(&later), longest_probe(&after), "the first seed is kept");
}
