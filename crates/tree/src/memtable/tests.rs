//! The memtable against a sorted map, and readers beside a writer.

use super::*;
use perigee_base::FamilyId;
use perigee_file::log::{Batch, Ops};
use std::cmp::Reverse;
use std::collections::BTreeMap;

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
    t.insert(&Arc::new(f.buf), 0, &parsed).unwrap();
}

fn rng(x: &mut u64) -> u64 {
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    *x
}

#[test]
fn agrees_with_a_sorted_map_in_both_directions_and_at_every_sequence() {
    let t = Arc::new(Memtable::new(KeyOrder::Bytes));
    let mut model: BTreeMap<(Vec<u8>, Reverse<u64>), Option<Vec<u8>>> = BTreeMap::new();
    let mut x = 7;
    for seq in 1..2000u64 {
        let key = vec![(rng(&mut x) % 50) as u8; (rng(&mut x) % 3) as usize];
        let value = (rng(&mut x) % 4 > 0).then(|| seq.to_le_bytes().to_vec());
        insert(&t, seq, &[(&key, value.as_deref())]);
        model.insert((key, Reverse(seq)), value);
    }
    let mut c = t.cursor();
    c.seek_first();
    for ((k, Reverse(s)), v) in &model {
        let e = c.entry();
        assert_eq!((e.key, e.seq.0), (&k[..], *s));
        assert_eq!(e.value == ValueRef::None, v.is_none());
        c.next();
    }
    assert!(!c.valid());
    c.seek_last();
    for ((k, Reverse(s)), _) in model.iter().rev() {
        assert_eq!((c.entry().key, c.entry().seq.0), (&k[..], *s));
        c.prev();
    }
    assert!(!c.valid());
    for _ in 0..2000 {
        let key = vec![(rng(&mut x) % 52) as u8; (rng(&mut x) % 3) as usize];
        let at = rng(&mut x) % 2100;
        let want = model.range((key.clone(), Reverse(at))..).next().filter(|((k, _), _)| *k == key);
        let got = t.get(&key, SeqNo(at));
        assert_eq!(got.as_ref().map(|(s, _)| s.0), want.map(|((_, Reverse(s)), _)| *s));
        if let (Some((_, Found::Value(v))), Some((_, Some(w)))) = (&got, want) {
            assert_eq!(&v[..], &w[..]);
        }
        c.seek_before(&key, SeqNo(at));
        let before = model.range(..(key.clone(), Reverse(at))).next_back();
        assert_eq!(
            c.valid().then(|| (c.entry().key.to_vec(), c.entry().seq.0)),
            before.map(|((k, s), _)| (k.clone(), s.0))
        );
    }
}

#[test]
fn readers_beside_the_writer_see_whole_prefixes() {
    let t = Arc::new(Memtable::new(KeyOrder::Bytes));
    std::thread::scope(|s| {
        s.spawn(|| {
            for seq in 1..=20_000u64 {
                insert(
                    &t,
                    seq,
                    &[(&(seq.wrapping_mul(0x9E37) % 4096).to_be_bytes(), Some(&seq.to_le_bytes()))],
                );
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
    });
}
