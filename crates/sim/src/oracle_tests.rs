//! Tests of the oracle.

use super::*;
use crate::history::Value;

fn put(family: usize, key: &[u8], id: u64) -> Op {
    let value = Some(Value { id, len: 9 });
    Op::Write {
        writes: vec![Write { family, key: key.to_vec(), value, how: WriteKind::Plain }],
        batched: false,
    }
}
fn get(key: &[u8], snapshot: Option<usize>) -> Op {
    Op::Get { family: 0, key: key.to_vec(), snapshot }
}
fn value(id: u64) -> Outcome {
    Outcome::Value(Some(Value { id, len: 9 }.bytes()))
}
fn move_and_read(o: &mut Oracle, to: CursorMove) -> Option<Bytes> {
    match o.perform(&Op::MoveCursor { slot: 0, to }) {
        Outcome::Entry(entry) => entry.map(|(key, _)| key),
        other => panic!("{other:?}"),
    }
}

#[test]
fn snapshot_keeps_its_contents() {
    let mut o = Oracle::default();
    o.perform(&put(0, b"a", 1));
    o.perform(&Op::TakeSnapshot { slot: 1 });
    o.perform(&put(0, b"a", 2));
    assert_eq!(o.perform(&get(b"a", None)), value(2));
    assert_eq!(o.perform(&get(b"a", Some(1))), value(1));
    o.perform(&Op::Reopen);
    assert_eq!(o.perform(&get(b"a", Some(1))), Outcome::Skipped);
    assert_eq!(o.perform(&get(b"b", None)), Outcome::Value(None));
}

#[test]
fn cursor_reverses_within_its_bounds() {
    let mut o = Oracle::default();
    for key in [&b"a"[..], b"b", b"c", b"d"] {
        o.perform(&put(0, key, 1));
    }
    let range = (Bound::Excluded(b"a".to_vec()), Bound::Included(b"c".to_vec()));
    o.perform(&Op::OpenCursor { slot: 0, family: 0, range, snapshot: None });
    assert_eq!(move_and_read(&mut o, CursorMove::Next), None, "not positioned yet");
    assert_eq!(move_and_read(&mut o, CursorMove::Seek(b"a".to_vec())), Some(b"b".to_vec()));
    assert_eq!(move_and_read(&mut o, CursorMove::Next), Some(b"c".to_vec()));
    assert_eq!(move_and_read(&mut o, CursorMove::Prev), Some(b"b".to_vec()));
    assert_eq!(move_and_read(&mut o, CursorMove::Prev), None);
    assert_eq!(move_and_read(&mut o, CursorMove::Next), None, "invalid stays invalid");
    assert_eq!(move_and_read(&mut o, CursorMove::SeekForPrev(b"zz".to_vec())), Some(b"c".to_vec()));
    o.perform(&Op::Write {
        writes: vec![Write { family: 0, key: b"b".to_vec(), value: None, how: WriteKind::Plain }],
        batched: false,
    });
    assert_eq!(
        move_and_read(&mut o, CursorMove::Prev),
        Some(b"b".to_vec()),
        "sees the contents as of its creation"
    );
}

#[test]
fn recreated_family_is_a_new_incarnation() {
    let mut o = Oracle::default();
    assert_eq!(o.perform(&Op::Create { family: 1 }), Outcome::Done);
    assert_eq!(o.perform(&Op::Create { family: 1 }), Outcome::Refused(ErrorKind::AlreadyExists));
    o.perform(&put(1, b"k", 1));
    o.perform(&Op::TakeSnapshot { slot: 0 });
    o.perform(&Op::Drop { family: 1 });
    assert_eq!(o.perform(&put(1, b"k", 2)), Outcome::Refused(ErrorKind::NotFound));
    o.perform(&Op::Create { family: 1 });
    let read = |snapshot| Op::Contains { family: 1, key: b"k".to_vec(), snapshot };
    assert_eq!(o.perform(&read(None)), Outcome::Present(false));
    assert_eq!(
        o.perform(&read(Some(0))),
        Outcome::Present(false),
        "not the column family of the snapshot"
    );
}

#[test]
fn old_snapshots_cannot_read_cloned_or_cleared_family() {
    let mut o = Oracle::default();
    o.perform(&put(0, b"a", 1));
    o.perform(&Op::TakeSnapshot { slot: 0 });
    assert_eq!(o.perform(&Op::Clone { family: 0, to: 1 }), Outcome::Done);
    assert_eq!(
        o.perform(&Op::Clone { family: 0, to: 1 }),
        Outcome::Refused(ErrorKind::AlreadyExists)
    );
    o.perform(&put(0, b"a", 2));
    let read = |family, snapshot| Op::Get { family, key: b"a".to_vec(), snapshot };
    assert_eq!(o.perform(&read(1, None)), value(1));
    assert_eq!(o.perform(&read(1, Some(0))), Outcome::Refused(ErrorKind::NotFound));
    assert_eq!(o.perform(&Op::Clear { family: 0 }), Outcome::Done);
    assert_eq!(o.perform(&read(0, None)), Outcome::Value(None));
    assert_eq!(o.perform(&read(0, Some(0))), Outcome::Refused(ErrorKind::NotFound));
    assert_eq!(o.perform(&Op::Rename { family: 1, to: 2 }), Outcome::Done);
    assert_eq!(o.perform(&read(2, None)), value(1));
    assert_eq!(o.perform(&read(1, None)), Outcome::Skipped);
    assert_eq!(
        o.perform(&Op::Rename { family: 0, to: 1 }),
        Outcome::Refused(ErrorKind::InvalidArgument)
    );
}

#[test]
fn prefix_of_ff_has_no_upper_bound() {
    let keys: EntryMap = [&b"a\xff"[..], b"b", b"\xff", b"\xff\xff\x01"]
        .into_iter()
        .map(|k| {
            (
                OrderedKey::new(KeyComparator::Bytes, k),
                OracleValue { value: Some((Arc::from(&b""[..]), u64::MAX)), operands: None },
            )
        })
        .collect();
    let count = |prefix: &[u8]| scan_entries(&keys, &ScanBounds::Prefix(prefix.to_vec())).len();
    assert_eq!([&b"\xff\xff"[..], b"\xff", b"a\xff", b""].map(count), [1, 2, 1, 4]);
}
