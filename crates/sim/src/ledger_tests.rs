//! The ledger must flag each kind of loss, and nothing else.

use super::*;
use crate::incarnations::Change;

fn put(family: &str, key: &str, value: &str) -> Put {
    Put { family: (family.into(), 0), key: key.into(), value: Some(value.into()) }
}

/// Two writers, two commits each over two families, one after another: w0, w1, w0, w1.
fn ledger() -> Ledger {
    let mut l = Ledger::new(2);
    for (writer, durable) in [(0, true), (1, false), (0, false), (1, false)] {
        let text = l.next(writer).to_string();
        let key = format!("d/{writer}/{text}");
        let n = l.begin(writer, vec![put(HOME, &key, &text), put("a", &key, &text)]);
        l.end(writer, n, Told::Acked, durable, 10);
    }
    l
}

/// What the database holds after so many commits of each writer.
fn contents(l: &Ledger, ends: [usize; 2]) -> Contents {
    let mut out = Contents::from([(HOME.into(), BTreeMap::new()), ("a".into(), BTreeMap::new())]);
    for (writer, end) in ends.into_iter().enumerate() {
        for attempt in &l.writers[writer][..end] {
            l.apply(attempt, &mut out);
        }
    }
    out
}

const POWER: Owed = Owed::Durable { before_us: 0 };

#[test]
fn prefixes_pass() {
    let l = ledger();
    assert_eq!(l.check(&contents(&l, [2, 2]), Owed::Acked), Ok(vec![2, 2]));
    for ends in [[1, 0], [1, 1], [2, 1], [2, 2]] {
        assert_eq!(l.check(&contents(&l, ends), POWER), Ok(ends.to_vec()));
    }
}

#[test]
fn losses_are_flagged() {
    let l = ledger();
    assert!(l.check(&contents(&l, [2, 1]), Owed::Acked).is_err(), "an acknowledged commit");
    assert!(l.check(&contents(&l, [0, 0]), POWER).is_err(), "a durable commit");
    assert!(
        l.check(&contents(&l, [1, 1]), Owed::Durable { before_us: 11 }).is_err(),
        "one older than the interval"
    );
    assert!(l.check(&contents(&l, [1, 2]), POWER).is_err(), "a hole between writers");
}

#[test]
fn halves_and_strangers_are_flagged() {
    let l = ledger();
    let mut half = contents(&l, [2, 2]);
    half.get_mut("a").unwrap().remove(&b"d/1/1"[..].to_vec());
    assert!(l.check(&half, POWER).is_err(), "families disagree");
    let mut extra = contents(&l, [2, 2]);
    extra.get_mut("a").unwrap().insert(b"x".to_vec(), b"y".to_vec());
    assert!(l.check(&extra, POWER).is_err(), "a key that nobody wrote");
    let mut missing = contents(&l, [2, 2]);
    missing.remove("a");
    assert!(l.check(&missing, POWER).is_err(), "a family is gone");
}

#[test]
fn a_failed_commit_may_not_appear_and_an_unknown_one_may() {
    let mut l = ledger();
    let n = l.begin(0, vec![put("a", "u", "1")]);
    l.end(0, n, Told::Unknown, false, 20);
    assert!(l.check(&contents(&l, [2, 2]), Owed::Acked).is_ok());
    assert!(l.check(&contents(&l, [3, 2]), Owed::Acked).is_ok());
    l.end(0, n, Told::Failed, false, 20);
    assert!(l.check(&contents(&l, [3, 2]), Owed::Acked).is_err());
}

#[test]
fn what_was_lost_stays_lost() {
    let mut l = ledger();
    let later = contents(&l, [2, 2]);
    let now = contents(&l, [1, 1]);
    let ends = l.check(&now, POWER).unwrap();
    l.settle(&ends, &now);
    assert!(l.check(&later, POWER).is_err(), "it came back");
    let n = l.begin(0, vec![put("a", "next", "1")]);
    assert_eq!(n, 2);
    l.end(0, n, Told::Acked, true, 30);
    let mut found = now.clone();
    l.apply(&l.writers[0][2], &mut found);
    assert_eq!(l.check(&found, POWER), Ok(vec![3, 1]), "the lost attempt in between is passed over");
}

#[test]
fn a_sync_makes_durable_what_came_before() {
    let mut l = ledger();
    let moment = l.moment();
    let n = l.begin(1, vec![put("a", "late", "1")]);
    l.end(1, n, Told::Acked, false, 40);
    l.synced(moment);
    assert!(l.check(&contents(&l, [2, 2]), POWER).is_ok(), "the late one may be lost");
    assert!(l.check(&contents(&l, [2, 1]), POWER).is_err());
}

#[test]
fn a_cleared_family_is_empty() {
    let mut l = Ledger::new(1);
    let made = l.changing.begin(&Change::Create("x".into()), 0);
    l.changing.settle(made);
    let old = Put { family: ("x".into(), 1), key: b"k".to_vec(), value: Some(b"v".to_vec()) };
    let n = l.begin(0, vec![old]);
    l.end(0, n, Told::Acked, true, 1);
    let cleared = l.changing.begin(&Change::Clear("x".into()), 1);
    l.changing.settle(cleared);
    let home = BTreeMap::from([(counter(0), b"0".to_vec())]);
    let mut found = Contents::from([(HOME.into(), home), ("x".into(), BTreeMap::new())]);
    assert!(l.check(&found, Owed::Acked).is_ok());
    found.get_mut("x").unwrap().insert(b"k".to_vec(), b"v".to_vec());
    assert!(l.check(&found, Owed::Acked).is_err(), "the old contents came back");
    found.remove("x");
    assert!(l.check(&found, Owed::Acked).is_err(), "the family is gone");
}

#[test]
fn a_clone_has_what_its_source_had() {
    let mut l = Ledger::new(1);
    let made = l.changing.begin(&Change::Create("x".into()), 0);
    l.changing.settle(made);
    let put = |value: &str| Put { family: ("x".into(), 1), key: b"k".to_vec(), value: Some(value.into()) };
    let n = l.begin(0, vec![put("old")]);
    l.end(0, n, Told::Acked, true, 1);
    l.changing.begin(&Change::Clone("x".into(), "x2".into()), 1);
    let home = BTreeMap::from([(counter(0), b"0".to_vec())]);
    let x = |value: &str| BTreeMap::from([(b"k".to_vec(), Bytes::from(value))]);
    let mut found = Contents::from([(HOME.into(), home), ("x".into(), x("old"))]);
    assert!(l.check(&found, Owed::Acked).is_ok(), "it may not have happened");
    found.insert("x2".into(), x("old"));
    let ends = l.check(&found, Owed::Acked).unwrap();
    l.settle(&ends, &found);
    let n = l.begin(0, vec![put("new")]);
    l.end(0, n, Told::Acked, true, 2);
    found.get_mut(HOME).unwrap().insert(counter(0), b"1".to_vec());
    found.insert("x".into(), x("new"));
    assert!(l.check(&found, Owed::Acked).is_ok());
    found.insert("x2".into(), x("new"));
    assert!(l.check(&found, Owed::Acked).is_err(), "a write to one shows in the other");
}
