//! The scenarios known as Hermitage, run at every isolation level. Two transactions (three in some
//! scenarios) over two rows, `1 = 10` and `2 = 20`, step by step on one thread: no transaction
//! waits, and the later commit fails.
#![allow(clippy::unwrap_used)]

use perigee::env::Env;
use perigee::env::fs::memory::SimDisk;
use perigee::{Db, ErrorKind, Isolation, Options, Txn, TxnOptions};

use Isolation::{ReadCommitted, ReadUncommitted, RepeatableRead, Serializable, Snapshot};

const LEVELS: [Isolation; 5] =
    [ReadUncommitted, ReadCommitted, RepeatableRead, Snapshot, Serializable];

/// Opens a database that contains the two rows.
fn open_with_rows() -> Db {
    let db = Db::open("/db", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() })).unwrap();
    db.put("1", "10").unwrap();
    db.put("2", "20").unwrap();
    db
}

struct Scenario {
    db: Db,
    level: Isolation,
}

impl Scenario {
    fn begin(&self) -> Txn {
        self.db.begin(TxnOptions::new().isolation(self.level)).unwrap()
    }
    fn get(&self, txn: &Txn, key: &str) -> String {
        String::from_utf8(txn.get(&self.db.default_family(), key).unwrap().unwrap_or_default())
            .unwrap()
    }
    fn set(&self, txn: &Txn, key: &str, value: &str) {
        txn.put(&self.db.default_family(), key, value).unwrap();
    }
    /// Returns the rows whose value satisfies a condition.
    fn matching_rows(&self, txn: &Txn, condition: impl Fn(u32) -> bool) -> Vec<String> {
        let all = txn.iter(&self.db.default_family()).unwrap().map(|e| e.unwrap());
        let text = |s: &[u8]| String::from_utf8(s.to_vec()).unwrap();
        all.filter(|(_, v)| condition(text(v).parse().unwrap()))
            .map(|(k, v)| text(&k) + "=" + &text(&v))
            .collect()
    }
    fn all_rows(&self) -> Vec<String> {
        self.matching_rows(&self.begin(), |_| true)
    }
}

/// Returns true if the commit succeeded, and false on a conflict.
fn try_commit(txn: &Txn) -> bool {
    match txn.commit_in_place(None) {
        Ok(_) => true,
        Err(e) if e.kind() == ErrorKind::Conflict => false,
        Err(e) => panic!("{e}"),
    }
}

/// Runs a scenario at every level. The scenario returns true if the anomaly occurred;
/// `prevented_at` lists the levels at which it must not occur.
fn run_at_every_level(
    name: &str,
    prevented_at: &[Isolation],
    scenario: impl Fn(&Scenario) -> bool,
) {
    for level in LEVELS {
        let stage = Scenario { db: open_with_rows(), level };
        let showed = scenario(&stage);
        assert_eq!(showed, !prevented_at.contains(&level), "{name} at {level:?}");
    }
}

#[test]
fn g0_write_cycles() {
    run_at_every_level("G0", &LEVELS, |s| {
        let (a, b) = (s.begin(), s.begin());
        s.set(&a, "1", "11");
        s.set(&b, "1", "12");
        s.set(&a, "2", "21");
        assert!(try_commit(&a));
        assert_eq!(s.all_rows(), ["1=11", "2=21"]);
        s.set(&b, "2", "22");
        let second = try_commit(&b);
        let there = s.all_rows();
        assert_eq!(second, s.level <= ReadCommitted);
        there != ["1=11", "2=21"] && there != ["1=12", "2=22"]
    });
}

#[test]
fn g1a_aborted_reads() {
    run_at_every_level("G1a", &LEVELS, |s| {
        let (a, b) = (s.begin(), s.begin());
        s.set(&a, "1", "101");
        let first = s.get(&b, "1");
        a.rollback();
        let second = s.get(&b, "1");
        assert!(try_commit(&b));
        first == "101" || second == "101"
    });
}

#[test]
fn g1b_intermediate_reads() {
    run_at_every_level("G1b", &LEVELS, |s| {
        let (a, b) = (s.begin(), s.begin());
        s.set(&a, "1", "101");
        let first = s.get(&b, "1");
        s.set(&a, "1", "11");
        assert!(try_commit(&a));
        let second = s.get(&b, "1");
        assert_eq!(second, if s.level <= ReadCommitted { "11" } else { "10" });
        first == "101" || second == "101"
    });
}

#[test]
fn g1c_circular_information_flow() {
    run_at_every_level("G1c", &LEVELS, |s| {
        let (a, b) = (s.begin(), s.begin());
        s.set(&a, "1", "11");
        s.set(&b, "2", "22");
        let (seen_by_a, seen_by_b) = (s.get(&a, "2"), s.get(&b, "1"));
        try_commit(&a);
        try_commit(&b);
        seen_by_a == "22" && seen_by_b == "11"
    });
}

#[test]
fn otv_observed_transaction_vanishes() {
    run_at_every_level("OTV", &[RepeatableRead, Snapshot, Serializable], |s| {
        let (a, b) = (s.begin(), s.begin());
        let c = s.begin();
        s.set(&a, "1", "11");
        s.set(&a, "2", "19");
        s.set(&b, "1", "12");
        assert!(try_commit(&a));
        let first = s.get(&c, "1");
        s.set(&b, "2", "18");
        let (second, _) = (s.get(&c, "2"), try_commit(&b));
        let (third, fourth) = (s.get(&c, "2"), s.get(&c, "1"));
        assert!(try_commit(&c), "it only reads");
        (first, second) != (fourth, third)
    });
}

#[test]
fn pmp_predicate_many_preceders() {
    run_at_every_level("PMP", &[RepeatableRead, Snapshot, Serializable], |s| {
        let (a, b) = (s.begin(), s.begin());
        let first = s.matching_rows(&a, |v| v == 30);
        s.set(&b, "3", "30");
        assert!(try_commit(&b));
        let second = s.matching_rows(&a, |v| v % 3 == 0);
        assert!(try_commit(&a));
        assert!(first.is_empty());
        !second.is_empty()
    });
}

#[test]
fn p4_lost_update() {
    run_at_every_level("P4", &[RepeatableRead, Snapshot, Serializable], |s| {
        let (a, b) = (s.begin(), s.begin());
        assert_eq!((s.get(&a, "1"), s.get(&b, "1")), ("10".into(), "10".into()));
        s.set(&a, "1", "11");
        s.set(&b, "1", "11");
        try_commit(&a) && try_commit(&b)
    });
}

#[test]
fn g_single_read_skew() {
    run_at_every_level("G-single", &[RepeatableRead, Snapshot, Serializable], |s| {
        let (a, b) = (s.begin(), s.begin());
        let first = s.get(&a, "1");
        assert_eq!((s.get(&b, "1"), s.get(&b, "2")), ("10".into(), "20".into()));
        s.set(&b, "1", "12");
        s.set(&b, "2", "18");
        assert!(try_commit(&b));
        let second = s.get(&a, "2");
        assert!(try_commit(&a));
        first == "10" && second == "18"
    });
}

#[test]
fn g_single_read_skew_over_predicate() {
    run_at_every_level("G-single, predicate", &[RepeatableRead, Snapshot, Serializable], |s| {
        let (a, b) = (s.begin(), s.begin());
        assert_eq!(s.matching_rows(&a, |v| v % 5 == 0), ["1=10", "2=20"]);
        s.set(&b, "1", "12");
        assert!(try_commit(&b));
        let second = s.matching_rows(&a, |v| v % 3 == 0);
        assert!(try_commit(&a));
        second == ["1=12"]
    });
}

#[test]
fn g_single_read_skew_then_write() {
    run_at_every_level("G-single, write", &[RepeatableRead, Snapshot, Serializable], |s| {
        let (a, b) = (s.begin(), s.begin());
        assert_eq!(s.get(&a, "1"), "10");
        s.set(&b, "1", "12");
        s.set(&b, "2", "18");
        assert!(try_commit(&b));
        // Deletes row 2 (value 20) if it is visible.
        if s.get(&a, "2") == "20" {
            a.delete(&s.db.default_family(), "2").unwrap();
        }
        // After the commit, it has read row 1 from before the other transaction and row 2 from
        // after it.
        try_commit(&a)
    });
}

#[test]
fn g2_item_write_skew() {
    run_at_every_level("G2-item", &[RepeatableRead, Serializable], |s| {
        let (a, b) = (s.begin(), s.begin());
        for txn in [&a, &b] {
            assert_eq!((s.get(txn, "1"), s.get(txn, "2")), ("10".into(), "20".into()));
        }
        s.set(&a, "1", "11");
        s.set(&b, "2", "21");
        try_commit(&a) && try_commit(&b)
    });
}

#[test]
fn g2_write_skew_over_predicate() {
    run_at_every_level("G2", &[Serializable], |s| {
        let (a, b) = (s.begin(), s.begin());
        assert!(
            s.matching_rows(&a, |v| v % 3 == 0).is_empty()
                && s.matching_rows(&b, |v| v % 3 == 0).is_empty()
        );
        s.set(&a, "3", "30");
        s.set(&b, "4", "42");
        try_commit(&a) && try_commit(&b)
    });
}

#[test]
fn g2_read_only_transaction_anomaly() {
    run_at_every_level("G2, two edges", &[RepeatableRead, Serializable], |s| {
        let (a, b) = (s.begin(), s.begin());
        assert_eq!((s.get(&a, "1"), s.get(&a, "2")), ("10".into(), "20".into()));
        let two = s.get(&b, "2");
        s.set(&b, "2", &(two.parse::<u32>().unwrap() + 5).to_string());
        assert!(try_commit(&b));
        let c = s.begin();
        assert_eq!((s.get(&c, "1"), s.get(&c, "2")), ("10".into(), "25".into()));
        assert!(try_commit(&c), "it only reads");
        s.set(&a, "1", "0");
        try_commit(&a)
    });
}

#[test]
fn new_transactions_see_acknowledged_commits() {
    run_at_every_level("stale", &LEVELS, |s| {
        let a = s.begin();
        s.set(&a, "1", "11");
        assert!(try_commit(&a));
        s.get(&s.begin(), "1") != "11"
    });
}
