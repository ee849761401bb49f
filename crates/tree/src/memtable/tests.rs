//! The memtable against a sorted map, and readers beside a writer.

use super::*;
use perigee_base::FamilyId;
use perigee_base::cut::CutRef;
use perigee_base::key::cmp_entry;
use perigee_base::order::BUILT_IN;
use perigee_file::log::{Batch, Ops};

fn insert(t: &Memtable, seq: u64, ops: &[(&[u8], Option<&[u8]>)]) {
    let mut b = Batch::new();
    for (k, v) in ops {
        match v {
            Some(v) => b.put(FamilyId(0), k, v).unwrap(),
            None => b.delete(FamilyId(0), k).unwrap(),
        }
    }
    let f = b.finish();
    let parsed: Vec<_> = Ops::new(&f.buf, f.payload())
        .enumerate()
        .map(|(i, op)| (op.unwrap(), SeqNo(seq + i as u64)))
        .collect();
    // Kept and copied ones side by side.
    if seq % 2 == 0 { t.insert(&Arc::new(f.buf), 0, &parsed) } else { t.insert_copied(&f.buf, 0, &parsed) }
        .unwrap();
}

fn rng(x: &mut u64) -> u64 {
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    *x
}

fn orders() -> Vec<KeyOrder> {
    let by_length = |a: &[u8], b: &[u8]| a.len().cmp(&b.len()).then_with(|| a.cmp(b));
    let mut all: Vec<KeyOrder> = BUILT_IN.iter().map(|(order, _)| *order).collect();
    all.push(KeyOrder::register("memtable-by-length", by_length).unwrap());
    all
}

/// Of the length that numbers have, and of others; few different ones, in both cases and with bytes that end a text.
fn some_key(x: &mut u64) -> Vec<u8> {
    let letters = b"aAbB\0\x01\xff~";
    match rng(x) % 4 {
        0 => (rng(x) % 40).to_le_bytes().to_vec(),
        1 => (rng(x) % 40).wrapping_neg().to_le_bytes().to_vec(),
        2 => vec![(rng(x) % 50) as u8; (rng(x) % 3) as usize],
        _ => (0..rng(x) % 10).map(|_| letters[(rng(x) % 8) as usize]).collect(),
    }
}

/// Entries in entry order.
struct Model(KeyOrder, Vec<(Vec<u8>, u64, Option<Vec<u8>>)>);

impl Model {
    /// The first entry at or behind a place.
    fn bound(&self, key: &[u8], seq: u64) -> usize {
        self.1.partition_point(|(k, s, _)| cmp_entry(self.0, (k, SeqNo(*s)), (key, SeqNo(seq))).is_lt())
    }
    fn insert(&mut self, key: Vec<u8>, seq: u64, value: Option<Vec<u8>>) {
        let at = self.bound(&key, seq);
        self.1.insert(at, (key, seq, value));
    }
    fn get(&self, key: &[u8], at: u64) -> Option<&(Vec<u8>, u64, Option<Vec<u8>>)> {
        self.1.get(self.bound(key, at)).filter(|(k, ..)| self.0.equal(k, key))
    }
}

fn check_cursor(c: &MemCursor, model: &Model, at: Option<usize>) {
    let want = at.and_then(|i| model.1.get(i));
    assert_eq!(c.valid(), want.is_some());
    if let Some((key, seq, value)) = want {
        let e = c.entry();
        assert_eq!((e.key, e.seq.0, e.value == ValueRef::None), (&key[..], *seq, value.is_none()));
        assert!(matches!(c.found(), Found::Tombstone) == value.is_none());
    }
}

fn check_all(t: &Arc<Memtable>, model: &Model, x: &mut u64) {
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
        let (key, at) = (some_key(x), rng(x) % (n as u64 + 2));
        let (got, want) = (t.get(&key, SeqNo(at)), model.get(&key, at));
        assert_eq!(got.as_ref().map(|(s, _)| s.0), want.map(|(_, s, _)| *s));
        match got {
            Some((_, Found::Value(v))) => assert_eq!(Some(&v[..]), want.unwrap().2.as_deref()),
            other => assert!(other.is_none_or(|(_, f)| matches!(f, Found::Tombstone))),
        }
        // A walk with turns, from where a seek led.
        let mut place = model.bound(&key, at);
        if rng(x) % 2 == 0 {
            c.seek(&key, SeqNo(at));
        } else {
            c.seek_before(&key, SeqNo(at));
            place = place.wrapping_sub(1);
        }
        for _ in 0..6 {
            check_cursor(&c, model, Some(place));
            if place >= n {
                break;
            }
            let forward = rng(x) % 2 == 0;
            if forward {
                c.next()
            } else {
                c.prev()
            }
            place = if forward { place + 1 } else { place.wrapping_sub(1) };
        }
        let (other, other_at) = (some_key(x), rng(x) % (n as u64 + 2));
        let (low, high) = (model.bound(&key, at), model.bound(&other, other_at));
        let between = t.count(Some((&key, SeqNo(at))), Some((&other, SeqNo(other_at))));
        assert_eq!(between as usize, high.saturating_sub(low));
        assert_eq!(t.count(None, Some((&key, SeqNo(at)))) as usize, low);
        assert_eq!(t.count(Some((&key, SeqNo(at))), None) as usize, n - low);
    }
}

#[test]
fn agrees_with_a_sorted_list_in_both_directions_at_every_sequence_and_in_every_order() {
    for (number, order) in orders().into_iter().enumerate() {
        let t = Arc::new(Memtable::expecting(order, number as u64 % 2 * 200));
        let mut model = Model(order, Vec::new());
        let mut x = 7 + number as u64;
        let mut seq = 1;
        check_all(&t, &model, &mut x);
        // Lists count exactly up to 256 entries.
        let most = if order.is_bytewise() { 1500 } else { 256 };
        while seq < most {
            let mut ops = Vec::new();
            let first = seq;
            for _ in 0..(1 + rng(&mut x) % 60).min(most - seq) {
                let value = (rng(&mut x) % 4 > 0).then(|| seq.to_le_bytes().to_vec());
                ops.push((some_key(&mut x), value));
                seq += 1;
            }
            let borrowed: Vec<_> = ops.iter().map(|(k, v)| (&k[..], v.as_deref())).collect();
            insert(&t, first, &borrowed);
            for (i, (key, value)) in ops.into_iter().enumerate() {
                model.insert(key, first + i as u64, value);
            }
            if rng(&mut x) % 4 == 0 {
                check_all(&t, &model, &mut x);
            }
        }
        check_all(&t, &model, &mut x);
    }
}

/// An iterator for every insert: each sees all that was there, and the order is not made anew each time.
#[test]
fn a_cursor_after_every_insert() {
    let t = Arc::new(Memtable::new(KeyOrder::Bytes));
    let mut model = Model(KeyOrder::Bytes, Vec::new());
    let mut x = 5;
    for seq in 1..3000u64 {
        let key = (rng(&mut x) % 100_000).to_be_bytes().to_vec();
        insert(&t, seq, &[(&key, Some(b"v"))]);
        model.insert(key, seq, Some(b"v".to_vec()));
        let mut c = t.cursor();
        let from = (rng(&mut x) % 100_000).to_be_bytes();
        c.seek(&from, SeqNo::MAX);
        let at = model.bound(&from, u64::MAX);
        for i in at..at + 3 {
            check_cursor(&c, &model, Some(i));
            c.next();
        }
    }
}

/// The first entry of a family takes little; what readers sort is counted.
#[test]
fn bytes_are_what_is_held() {
    let t = Arc::new(Memtable::new(KeyOrder::Bytes));
    insert(&t, 1, &[(b"key", Some(b"value"))]);
    assert!(t.bytes() < 450, "{}", t.bytes());
    const { assert!(Memtable::EMPTY_BYTES < 2700) };
    for seq in 2..1000u64 {
        insert(&t, seq, &[(&seq.to_be_bytes(), None)]);
    }
    let before = t.bytes();
    let mut c = t.cursor();
    assert_eq!(t.bytes(), before, "a cursor that is not used costs nothing");
    c.seek_first();
    assert_eq!(t.bytes(), before + 16 * 999);
    assert_eq!(t.keys(), 999);
}

/// Two memtables hold one buffer: each is charged its part, the whole is counted until the second goes.
#[test]
fn a_batch_of_two_families_is_charged_once() {
    let mut b = Batch::new();
    b.put(FamilyId(1), b"a", &[7; 1000]).unwrap();
    b.put(FamilyId(2), b"b", &[8; 3000]).unwrap();
    let f = b.finish();
    let ops: Vec<Op> = Ops::new(&f.buf, f.payload()).map(|op| op.unwrap()).collect();
    let (buf, held) = (Arc::new(f.buf), Arc::default());
    let of = SharedBatch::new(4100, &held);
    let tables = [Memtable::new(KeyOrder::Bytes), Memtable::new(KeyOrder::CaseInsensitive)];
    for (i, (table, bytes)) in tables.iter().zip([1050, 3050]).enumerate() {
        let op = [(ops[i].clone(), SeqNo(i as u64))];
        table.insert_part(&buf, 5, &op, Some(Part { of: &of, bytes })).unwrap();
        assert_eq!(table.part_bytes(), bytes);
        assert!((bytes..bytes + 1000).contains(&table.bytes()), "{}", table.bytes());
    }
    drop(of);
    let [one, other] = tables;
    drop(one);
    assert_eq!(held.load(std::sync::atomic::Ordering::Relaxed), 4100);
    drop(other);
    assert_eq!(held.load(std::sync::atomic::Ordering::Relaxed), 0);
}

/// The list once answered a get from a link that it loaded again after it had compared keys: a node that the writer had put
/// there in between hid the key that was asked for.
#[test]
fn readers_beside_the_writer_see_whole_prefixes() {
    for order in [KeyOrder::Bytes, KeyOrder::CaseInsensitive] {
        beside_the_writer(order);
    }
}

/// A key that is the same in every case.
fn digits(seq: u64) -> Vec<u8> {
    format!("{:08}", seq.wrapping_mul(0x9E37) % 4096).into_bytes()
}

fn beside_the_writer(order: KeyOrder) {
    let t = Arc::new(Memtable::new(order));
    std::thread::scope(|s| {
        s.spawn(|| {
            for seq in 1..=20_000u64 {
                insert(&t, seq, &[(&digits(seq), Some(&seq.to_le_bytes()))]);
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
                        assert!((&k[..], std::cmp::Reverse(*q)) < (e.key, std::cmp::Reverse(e.seq)));
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
                // The newest write of a key up to `at` is known, because each writes its own number's key.
                let seq = 1 + rng(&mut x) % at.0.max(1);
                let key = digits(seq);
                let got = t.get(&key, at);
                if at.0 > 0 {
                    let (found, _) = got.expect("a published key is missing");
                    let newest = (0..).map(|n| seq + n * 4096).take_while(|s| *s <= at.0).last().unwrap();
                    assert_eq!(found.0, newest, "the newest at {at}");
                }
            }
        });
    });
}

/// Keys and values count as they were given, however they came; what follows counts on.
#[test]
fn what_was_written_is_counted() {
    let mut b = Batch::new();
    b.put(FamilyId(1), b"key", b"value").unwrap();
    b.put_until(FamilyId(1), b"until", b"then", Expiry::after(1000, 1000)).unwrap();
    b.delete(FamilyId(1), b"gone").unwrap();
    b.single_delete(FamilyId(1), b"once").unwrap();
    b.merge(FamilyId(1), b"m", b"operand").unwrap();
    b.delete_range(FamilyId(1), CutRef::Before(b"a"), CutRef::After(b"bc")).unwrap();
    let given = b.user_bytes();
    let f = b.finish();
    let ops: Vec<(Op, SeqNo)> =
        Ops::new(&f.buf, f.payload()).zip(0..).map(|(op, i)| (op.unwrap(), SeqNo(i))).collect();
    for copied in [false, true] {
        for order in [KeyOrder::Bytes, KeyOrder::CaseInsensitive] {
            let t = Memtable::new(order);
            if copied {
                t.insert_copied(&f.buf, 1, &ops).unwrap();
            } else {
                t.insert(&Arc::new(f.buf.clone()), 1, &ops).unwrap();
            }
            assert_eq!((t.written(), t.entries(), t.tombstones()), (given, 6, 2));
            assert_eq!(
                t.raw_bytes(),
                (3 + 5 + 4 + 4 + 1 + 2, 5 + 4 + 7 + 3),
                "an end of a range has a byte more"
            );
            let next = Memtable::new(order).following(&t);
            assert_eq!((next.written(), next.raw_bytes(), next.is_empty()), (given, (0, 0), true));
            insert(&next, 9, &[(b"k", None)]);
            assert_eq!(Memtable::new(order).following(&next).written(), given + 1);
        }
    }
}

/// The story: the hash of keys had no seed, so anybody could make keys that all begin their search at one slot, and each insert
/// looked at all that were there. Slots are counted, not time.
#[test]
fn crafted_keys_do_not_gather_at_one_slot() {
    let crafted: Vec<Vec<u8>> = (0u64..)
        .map(|i| i.to_le_bytes().to_vec())
        .filter(|key| (perigee_base::checksum::key_hash(key) >> 32) & 0xfff == 0)
        .take(300)
        .collect();
    let longest = |t: &Memtable| {
        for (i, key) in crafted.iter().enumerate() {
            insert(t, 1 + i as u64, &[(key, Some(b"v"))]);
        }
        let Index::Hashed(table) = &t.index else { panic!("found by hash") };
        assert!(crafted.iter().all(|key| t.get(key, SeqNo::MAX).is_some()));
        crafted.iter().map(|key| table.probes(key)).max().unwrap()
    };
    let unseeded = Hashed::new(KeyOrder::Bytes, 0).seeded(0);
    let before = Memtable { index: Index::Hashed(Box::new(unseeded)), ..Memtable::new(KeyOrder::Bytes) };
    assert!(longest(&before) >= 300, "the keys are crafted well");
    hashed::seed_hashes(0x9e37_79b9_7f4a_7c15);
    let after = Memtable::new(KeyOrder::Bytes);
    assert!(longest(&after) < 60, "{} slots", longest(&Memtable::new(KeyOrder::Bytes)));
    hashed::seed_hashes(1);
    let later = Memtable::new(KeyOrder::Bytes);
    assert_eq!(longest(&later), longest(&after), "the first seed stays");
}
