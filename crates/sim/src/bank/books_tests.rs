//! The books find what they are there to find: small bad endings, each by its rule, and the good one by none.

use super::*;

/// A bank of two writers: opened by (0, 0); (0, 1) moves 10 from an account of one family to one of another, (1, 0) moves it on.
fn books() -> (Books, Vec<Draft>) {
    let mut opening = Draft::default();
    for (f, _) in FAMILIES.iter().enumerate() {
        for n in 0..ACCOUNTS {
            let value = value((0, 0), OPENING, 0);
            opening.changes.push(Change { item: Item::Account(f, n), before: None, family: f, value });
        }
    }
    for n in 0..TICKETS {
        let value = value((0, 0), 0, 0);
        opening.changes.push(Change { item: Item::Ticket(n), before: None, family: 0, value });
    }
    let mut first = Draft::default();
    first.change(Item::Account(0, 0), (0, 0), (0, 1), 0, value((0, 1), 90, 3));
    first.change(Item::Account(1, 0), (0, 0), (0, 1), 1, value((0, 1), 110, 3));
    let mut second = Draft::default();
    second.change(Item::Account(1, 0), (0, 1), (1, 0), 1, value((1, 0), 100, 0));
    second.change(Item::Account(2, 0), (0, 0), (1, 0), 2, value((1, 0), 110, 0));
    second.own.push(Own::Put(2, journal(1, 0), b"x".to_vec()));
    let drafts = vec![opening, first, second];
    let mut books = Books::new(2);
    for (writer, draft) in [0, 0, 1].into_iter().zip(&drafts) {
        let number = books.begin(writer, draft.clone());
        books.end((writer, number), (Told::Acked, None), true, u64::MAX);
    }
    (books, drafts)
}

fn good(books: &Books, ends: &[usize]) -> Contents {
    books.expected(ends).unwrap()
}

fn fails(books: &mut Books, found: &Contents, owed: Owed, word: &str) {
    let e = books.recover(found, owed).unwrap_err();
    assert!(e.contains(word), "{e}");
}

const OWES_NOTHING: Owed = Owed::Durable { before_us: 0 };

fn forget_durability(books: &mut Books) {
    books.writers.iter_mut().flatten().for_each(|a| (a.durable, a.acked_us) = (false, u64::MAX));
}

#[test]
fn what_was_promised_passes() {
    let (mut books, _) = books();
    let all = good(&books, &[2, 1]);
    books.recover(&all, Owed::Acked).unwrap();
}

#[test]
fn a_lost_commit_a_half_and_a_hole_are_found() {
    let (mut books, _) = books();
    let early = good(&books, &[2, 0]);
    fails(&mut books, &early, Owed::Acked, "acknowledged and lost");
    forget_durability(&mut books);
    books.recover(&early, OWES_NOTHING).unwrap();

    let (mut books, _) = self::books();
    forget_durability(&mut books);
    let mut half = good(&books, &[2, 1]);
    let old = value((0, 0), OPENING, 0);
    half.get_mut("b").unwrap().insert(Item::Account(2, 0).key(), old);
    fails(&mut books, &half, OWES_NOTHING, "expected");
    let mut disagree = good(&books, &[2, 1]);
    disagree.get_mut("a").unwrap().remove(&counter(1));
    fails(&mut books, &disagree, OWES_NOTHING, "disagree");
    let mut ghost = good(&books, &[2, 1]);
    ghost.get_mut("a").unwrap().insert(b"g/x".to_vec(), b"taken back".to_vec());
    fails(&mut books, &ghost, OWES_NOTHING, "expected nothing");
    assert!(books.expected(&[1, 1]).unwrap_err().contains("hole"));
}

#[test]
fn forks_of_both_kinds_are_found() {
    let (mut books, _) = books();
    let mut rival = Draft::default();
    rival.change(Item::Account(0, 0), (0, 0), (1, 1), 0, value((1, 1), 80, 0));
    rival.change(Item::Account(0, 1), (0, 0), (1, 1), 0, value((1, 1), 120, 0));
    books.begin(1, rival);
    assert!(books.expected(&[2, 2]).unwrap_err().contains("lost update"));

    let mut books = Books::new(2);
    let own = |w: usize| Draft { own: vec![Own::Put(0, journal(w, 0), b"".to_vec())], ..Draft::default() };
    let ids = [books.begin(0, own(0)), books.begin(1, own(1))];
    assert_eq!(ids, [0, 0]);
    let (one, other) = (good(&books, &[1, 0]), good(&books, &[0, 1]));
    books.see(&one, &[0, 0]).unwrap();
    assert!(books.see(&other, &[0, 0]).unwrap_err().contains("long fork"));
    assert!(books.see(&one, &[1, 1]).unwrap_err().contains("stale"));
}
