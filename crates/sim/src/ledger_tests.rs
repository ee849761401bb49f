//! Tests that the ledger reports each kind of loss, and nothing else.

use super::*;
use crate::family_incarnations::FamilyDdl;

fn put(family: &str, key: &str, value: &str) -> Put {
    Put { family: (family.into(), 0), key: key.into(), value: Some(value.into()) }
}

/// Returns the ledger of two writers with two commits each over two column families, in the order
/// w0, w1, w0, w1.
fn ledger() -> Ledger {
    let mut l = Ledger::new(2);
    for (writer, durable) in [(0, true), (1, false), (0, false), (1, false)] {
        let text = l.next_attempt(writer).to_string();
        let key = format!("d/{writer}/{text}");
        let n =
            l.begin_commit(writer, vec![put(COUNTER_FAMILY, &key, &text), put("a", &key, &text)]);
        l.end_commit(writer, n, CommitOutcome::Acked, durable, 10);
    }
    l
}

/// Returns the contents after this many commits of each writer.
fn contents(l: &Ledger, ends: [usize; 2]) -> Contents {
    let mut out =
        Contents::from([(COUNTER_FAMILY.into(), BTreeMap::new()), ("a".into(), BTreeMap::new())]);
    for (writer, end) in ends.into_iter().enumerate() {
        for attempt in &l.writers[writer][..end] {
            l.apply_attempt(attempt, &mut out);
        }
    }
    out
}

const POWER_CUT: RequiredCommits = RequiredCommits::Durable { before_us: 0 };

#[test]
fn acked_prefixes_pass() {
    let l = ledger();
    assert_eq!(l.check_recovered(&contents(&l, [2, 2]), RequiredCommits::Acked), Ok(vec![2, 2]));
    for ends in [[1, 0], [1, 1], [2, 1], [2, 2]] {
        assert_eq!(l.check_recovered(&contents(&l, ends), POWER_CUT), Ok(ends.to_vec()));
    }
}

#[test]
fn lost_commits_are_flagged() {
    let l = ledger();
    assert!(
        l.check_recovered(&contents(&l, [2, 1]), RequiredCommits::Acked).is_err(),
        "an acknowledged commit"
    );
    assert!(l.check_recovered(&contents(&l, [0, 0]), POWER_CUT).is_err(), "a durable commit");
    assert!(
        l.check_recovered(&contents(&l, [1, 1]), RequiredCommits::Durable { before_us: 11 })
            .is_err(),
        "a commit older than the interval"
    );
    assert!(l.check_recovered(&contents(&l, [1, 2]), POWER_CUT).is_err(), "a hole between writers");
}

#[test]
fn partial_and_unknown_commits_are_flagged() {
    let l = ledger();
    let mut half = contents(&l, [2, 2]);
    half.get_mut("a").unwrap().remove(&b"d/1/1"[..].to_vec());
    assert!(l.check_recovered(&half, POWER_CUT).is_err(), "column families disagree");
    let mut extra = contents(&l, [2, 2]);
    extra.get_mut("a").unwrap().insert(b"x".to_vec(), b"y".to_vec());
    assert!(l.check_recovered(&extra, POWER_CUT).is_err(), "a key that no writer wrote");
    let mut missing = contents(&l, [2, 2]);
    missing.remove("a");
    assert!(l.check_recovered(&missing, POWER_CUT).is_err(), "a missing column family");
}

#[test]
fn failed_commit_must_not_appear_unknown_may() {
    let mut l = ledger();
    let n = l.begin_commit(0, vec![put("a", "u", "1")]);
    l.end_commit(0, n, CommitOutcome::Unknown, false, 20);
    assert!(l.check_recovered(&contents(&l, [2, 2]), RequiredCommits::Acked).is_ok());
    assert!(l.check_recovered(&contents(&l, [3, 2]), RequiredCommits::Acked).is_ok());
    l.end_commit(0, n, CommitOutcome::Failed, false, 20);
    assert!(l.check_recovered(&contents(&l, [3, 2]), RequiredCommits::Acked).is_err());
}

#[test]
fn lost_commits_must_not_reappear() {
    let mut l = ledger();
    let later = contents(&l, [2, 2]);
    let now = contents(&l, [1, 1]);
    let ends = l.check_recovered(&now, POWER_CUT).unwrap();
    l.discard_lost_commits(&ends, &now);
    assert!(l.check_recovered(&later, POWER_CUT).is_err(), "the lost commit reappeared");
    let n = l.begin_commit(0, vec![put("a", "next", "1")]);
    assert_eq!(n, 2);
    l.end_commit(0, n, CommitOutcome::Acked, true, 30);
    let mut found = now.clone();
    l.apply_attempt(&l.writers[0][2], &mut found);
    assert_eq!(
        l.check_recovered(&found, POWER_CUT),
        Ok(vec![3, 1]),
        "the lost attempt in between is skipped"
    );
}

#[test]
fn sync_makes_earlier_commits_durable() {
    let mut l = ledger();
    let moment = l.advance_clock();
    let n = l.begin_commit(1, vec![put("a", "late", "1")]);
    l.end_commit(1, n, CommitOutcome::Acked, false, 40);
    l.mark_synced(moment);
    assert!(
        l.check_recovered(&contents(&l, [2, 2]), POWER_CUT).is_ok(),
        "the later commit may be lost"
    );
    assert!(l.check_recovered(&contents(&l, [2, 1]), POWER_CUT).is_err());
}

#[test]
fn cleared_family_is_empty() {
    let mut l = Ledger::new(1);
    let made = l.families.begin_change(&FamilyDdl::Create("x".into()), 0);
    l.families.resolve(made);
    let old = Put { family: ("x".into(), 1), key: b"k".to_vec(), value: Some(b"v".to_vec()) };
    let n = l.begin_commit(0, vec![old]);
    l.end_commit(0, n, CommitOutcome::Acked, true, 1);
    let cleared = l.families.begin_change(&FamilyDdl::Clear("x".into()), 1);
    l.families.resolve(cleared);
    let home = BTreeMap::from([(counter_key(0), b"0".to_vec())]);
    let mut found = Contents::from([(COUNTER_FAMILY.into(), home), ("x".into(), BTreeMap::new())]);
    assert!(l.check_recovered(&found, RequiredCommits::Acked).is_ok());
    found.get_mut("x").unwrap().insert(b"k".to_vec(), b"v".to_vec());
    assert!(
        l.check_recovered(&found, RequiredCommits::Acked).is_err(),
        "the old contents reappeared"
    );
    found.remove("x");
    assert!(
        l.check_recovered(&found, RequiredCommits::Acked).is_err(),
        "the column family is missing"
    );
}

#[test]
fn clone_has_contents_of_its_source() {
    let mut l = Ledger::new(1);
    let made = l.families.begin_change(&FamilyDdl::Create("x".into()), 0);
    l.families.resolve(made);
    let put = |value: &str| Put {
        family: ("x".into(), 1),
        key: b"k".to_vec(),
        value: Some(value.into()),
    };
    let n = l.begin_commit(0, vec![put("old")]);
    l.end_commit(0, n, CommitOutcome::Acked, true, 1);
    l.families.begin_change(&FamilyDdl::Clone("x".into(), "x2".into()), 1);
    let home = BTreeMap::from([(counter_key(0), b"0".to_vec())]);
    let x = |value: &str| BTreeMap::from([(b"k".to_vec(), Bytes::from(value))]);
    let mut found = Contents::from([(COUNTER_FAMILY.into(), home), ("x".into(), x("old"))]);
    assert!(
        l.check_recovered(&found, RequiredCommits::Acked).is_ok(),
        "the clone may not have happened"
    );
    found.insert("x2".into(), x("old"));
    let ends = l.check_recovered(&found, RequiredCommits::Acked).unwrap();
    l.discard_lost_commits(&ends, &found);
    let n = l.begin_commit(0, vec![put("new")]);
    l.end_commit(0, n, CommitOutcome::Acked, true, 2);
    found.get_mut(COUNTER_FAMILY).unwrap().insert(counter_key(0), b"1".to_vec());
    found.insert("x".into(), x("new"));
    assert!(l.check_recovered(&found, RequiredCommits::Acked).is_ok());
    found.insert("x2".into(), x("new"));
    assert!(
        l.check_recovered(&found, RequiredCommits::Acked).is_err(),
        "a write to one appears in the other"
    );
}
