//! Tests that the ledger detects what it is meant to detect: each small violation by its rule,
//! while correct contents pass.

use super::*;

/// Returns a ledger of two writers: (0, 0) opens the accounts, (0, 1) moves 10 from an account of
/// one column family to an account of another, and (1, 0) moves it on.
fn test_ledger() -> (BankLedger, Vec<AttemptWrites>) {
    let mut opening = AttemptWrites::default();
    for (f, _) in FAMILIES.iter().enumerate() {
        for n in 0..ACCOUNTS {
            let value = encode_value((0, 0), OPENING, 0);
            opening.changes.push(ItemChange {
                item: BankItem::Account(f, n),
                previous: None,
                family: f,
                value,
            });
        }
    }
    for n in 0..TICKETS {
        let value = encode_value((0, 0), 0, 0);
        opening.changes.push(ItemChange {
            item: BankItem::Ticket(n),
            previous: None,
            family: 0,
            value,
        });
    }
    let mut first = AttemptWrites::default();
    first.record_change(BankItem::Account(0, 0), (0, 0), (0, 1), 0, encode_value((0, 1), 90, 3));
    first.record_change(BankItem::Account(1, 0), (0, 0), (0, 1), 1, encode_value((0, 1), 110, 3));
    let mut second = AttemptWrites::default();
    second.record_change(BankItem::Account(1, 0), (0, 1), (1, 0), 1, encode_value((1, 0), 100, 0));
    second.record_change(BankItem::Account(2, 0), (0, 0), (1, 0), 2, encode_value((1, 0), 110, 0));
    second.private.push(PrivateWrite::Put(2, journal_key(1, 0), b"x".to_vec()));
    let drafts = vec![opening, first, second];
    let mut ledger = BankLedger::new(2);
    for (writer, draft) in [0, 0, 1].into_iter().zip(&drafts) {
        let number = ledger.begin_attempt(writer, draft.clone());
        ledger.end_attempt((writer, number), (CommitOutcome::Acked, None), true, u64::MAX);
    }
    (ledger, drafts)
}

fn expected_at(ledger: &BankLedger, ends: &[usize]) -> Contents {
    ledger.expected_contents(ends).unwrap()
}

fn assert_fails(ledger: &mut BankLedger, found: &Contents, required: RequiredCommits, word: &str) {
    let e = ledger.check_recovered(found, required).unwrap_err();
    assert!(e.contains(word), "{e}");
}

const NOTHING_REQUIRED: RequiredCommits = RequiredCommits::Durable { before_us: 0 };

fn clear_durability(ledger: &mut BankLedger) {
    ledger.writers.iter_mut().flatten().for_each(|a| (a.durable, a.acked_us) = (false, u64::MAX));
}

#[test]
fn expected_contents_pass() {
    let (mut ledger, _) = test_ledger();
    let all = expected_at(&ledger, &[2, 1]);
    ledger.check_recovered(&all, RequiredCommits::Acked).unwrap();
}

#[test]
fn lost_and_partial_commits_are_detected() {
    let (mut ledger, _) = test_ledger();
    let early = expected_at(&ledger, &[2, 0]);
    assert_fails(&mut ledger, &early, RequiredCommits::Acked, "acknowledged and lost");
    clear_durability(&mut ledger);
    ledger.check_recovered(&early, NOTHING_REQUIRED).unwrap();

    let (mut ledger, _) = self::test_ledger();
    clear_durability(&mut ledger);
    let mut half = expected_at(&ledger, &[2, 1]);
    let old = encode_value((0, 0), OPENING, 0);
    half.get_mut("b").unwrap().insert(BankItem::Account(2, 0).key(), old);
    assert_fails(&mut ledger, &half, NOTHING_REQUIRED, "expected");
    let mut disagree = expected_at(&ledger, &[2, 1]);
    disagree.get_mut("a").unwrap().remove(&counter_key(1));
    assert_fails(&mut ledger, &disagree, NOTHING_REQUIRED, "disagree");
    let mut ghost = expected_at(&ledger, &[2, 1]);
    ghost.get_mut("a").unwrap().insert(b"g/x".to_vec(), b"rolled back".to_vec());
    assert_fails(&mut ledger, &ghost, NOTHING_REQUIRED, "expected nothing");
    assert!(ledger.expected_contents(&[1, 1]).unwrap_err().contains("hole"));
}

#[test]
fn divergent_histories_are_detected() {
    let (mut ledger, _) = test_ledger();
    let mut rival = AttemptWrites::default();
    rival.record_change(BankItem::Account(0, 0), (0, 0), (1, 1), 0, encode_value((1, 1), 80, 0));
    rival.record_change(BankItem::Account(0, 1), (0, 0), (1, 1), 0, encode_value((1, 1), 120, 0));
    ledger.begin_attempt(1, rival);
    assert!(ledger.expected_contents(&[2, 2]).unwrap_err().contains("lost update"));

    let mut ledger = BankLedger::new(2);
    let own = |w: usize| AttemptWrites {
        private: vec![PrivateWrite::Put(0, journal_key(w, 0), b"".to_vec())],
        ..AttemptWrites::default()
    };
    let ids = [ledger.begin_attempt(0, own(0)), ledger.begin_attempt(1, own(1))];
    assert_eq!(ids, [0, 0]);
    let (one, other) = (expected_at(&ledger, &[1, 0]), expected_at(&ledger, &[0, 1]));
    ledger.check_read(&one, &[0, 0]).unwrap();
    assert!(ledger.check_read(&other, &[0, 0]).unwrap_err().contains("long fork"));
    assert!(ledger.check_read(&one, &[1, 1]).unwrap_err().contains("stale"));
}
