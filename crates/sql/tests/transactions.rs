//! Transactions of sessions: isolation, own writes, conflicts, failures and savepoints.
#![allow(clippy::unwrap_used)]

mod common;

use common::{count, fails, lines, run, session};
use futures::TryStreamExt;
use perigee_sql::{Outcome, Session, SqlState};

async fn accounts(session: &mut Session) {
    lines(
        session,
        "CREATE TABLE accounts (owner TEXT PRIMARY KEY, cents BIGINT NOT NULL);
         CREATE INDEX by_cents ON accounts (cents);
         INSERT INTO accounts VALUES ('ann', 100), ('bob', 0)",
    )
    .await;
}

#[test]
fn a_transaction_sees_its_writes_and_others_do_not() {
    run(async {
        let (db, mut one) = session();
        let mut two = Session::new(&db, Default::default()).unwrap();
        accounts(&mut one).await;
        lines(&mut one, "BEGIN; UPDATE accounts SET cents = cents - 30 WHERE owner = 'ann'").await;
        lines(&mut one, "INSERT INTO accounts VALUES ('eve', 70)").await;
        let all = "SELECT owner, cents FROM accounts ORDER BY owner";
        assert_eq!(lines(&mut one, all).await, ["ann|70", "bob|0", "eve|70"]);
        let by_index = "SELECT owner FROM accounts WHERE cents = 70";
        assert_eq!(lines(&mut one, by_index).await, ["ann", "eve"]);
        assert_eq!(lines(&mut two, all).await, ["ann|100", "bob|0"]);
        lines(&mut one, "DELETE FROM accounts WHERE owner = 'bob'").await;
        assert_eq!(lines(&mut one, all).await, ["ann|70", "eve|70"]);
        lines(&mut one, "COMMIT").await;
        assert_eq!(lines(&mut two, all).await, ["ann|70", "eve|70"]);
        lines(&mut one, "BEGIN; DELETE FROM accounts; ROLLBACK").await;
        assert_eq!(count(&mut two, all).await, 2);
    });
}

#[test]
fn all_reads_of_a_transaction_are_of_one_state() {
    run(async {
        let (db, mut one) = session();
        let mut two = Session::new(&db, Default::default()).unwrap();
        accounts(&mut one).await;
        lines(&mut one, "BEGIN; SELECT 1").await;
        lines(&mut two, "INSERT INTO accounts VALUES ('eve', 5)").await;
        assert_eq!(count(&mut one, "SELECT * FROM accounts").await, 2);
        lines(&mut one, "COMMIT").await;
        assert_eq!(count(&mut one, "SELECT * FROM accounts").await, 3);
    });
}

#[test]
fn a_result_keeps_its_state_while_it_is_fetched() {
    run(async {
        let (db, mut one) = session();
        let mut two = Session::new(&db, Default::default()).unwrap();
        accounts(&mut one).await;
        let statement = one.parse("SELECT owner FROM accounts").unwrap().remove(0);
        let Outcome::Rows { stream: rows, .. } = one.execute(&statement).await.unwrap() else {
            panic!()
        };
        lines(&mut two, "DELETE FROM accounts").await;
        lines(&mut one, "INSERT INTO accounts VALUES ('new', 1)").await;
        let batches: Vec<_> = rows.try_collect().await.unwrap();
        assert_eq!(batches.iter().map(|b| b.num_rows()).sum::<usize>(), 2);
        // A result of a transaction ends with it.
        lines(&mut one, "BEGIN").await;
        let Outcome::Rows { stream: rows, .. } = one.execute(&statement).await.unwrap() else {
            panic!()
        };
        lines(&mut one, "COMMIT").await;
        rows.try_collect::<Vec<_>>().await.unwrap_err();
    });
}

#[test]
fn conflicts_fail_the_commit_with_40001() {
    run(async {
        let (db, mut one) = session();
        let mut two = Session::new(&db, Default::default()).unwrap();
        accounts(&mut one).await;
        for session in [&mut one, &mut two] {
            lines(session, "BEGIN; UPDATE accounts SET cents = cents + 1 WHERE owner = 'ann'")
                .await;
        }
        lines(&mut one, "COMMIT").await;
        fails(&mut two, "COMMIT", SqlState::SERIALIZATION_FAILURE).await;
        assert!(!two.in_transaction());
        assert_eq!(
            lines(&mut two, "SELECT cents FROM accounts WHERE owner = 'ann'").await,
            ["101"]
        );
    });
}

#[test]
fn statements_of_their_own_are_repeated_after_conflicts() {
    run(async {
        let (db, mut session) = session();
        accounts(&mut session).await;
        let tasks = (0..4).map(|_| {
            let db = db.clone();
            tokio::spawn(async move {
                let mut session = Session::new(&db, Default::default()).unwrap();
                for _ in 0..10 {
                    lines(&mut session, "UPDATE accounts SET cents = cents + 1").await;
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }
        let cents = lines(&mut session, "SELECT cents FROM accounts ORDER BY owner").await;
        assert_eq!(cents, ["140", "40"]);
    });
}

#[test]
fn a_failed_statement_fails_the_transaction() {
    run(async {
        let (_db, mut session) = session();
        accounts(&mut session).await;
        let insert = "INSERT INTO accounts VALUES ('eve', 1), ('ann', 2)";
        fails(&mut session, &format!("BEGIN; {insert}"), SqlState::UNIQUE_VIOLATION).await;
        assert!(session.has_failed());
        fails(&mut session, "SELECT 1", SqlState::FAILED_TRANSACTION).await;
        let results = session.run("COMMIT").await.unwrap();
        assert_eq!(results[0].command, "ROLLBACK");
        assert_eq!(count(&mut session, "SELECT * FROM accounts").await, 2);
        // Without a transaction the statement is undone as a whole.
        fails(&mut session, insert, SqlState::UNIQUE_VIOLATION).await;
        assert_eq!(count(&mut session, "SELECT * FROM accounts").await, 2);
    });
}

#[test]
fn a_canceled_statement_fails_the_transaction() {
    run(async {
        let (_db, mut session) = session();
        accounts(&mut session).await;
        let sql = "INSERT INTO accounts SELECT owner || x, 1 FROM accounts,
                       (SELECT 'a' AS x UNION ALL SELECT 'b') AS s";
        let statement = session.parse(sql).unwrap().remove(0);
        let mut canceled = false;
        // A statement that never waits cannot be canceled: it is repeated.
        for _ in 0..100 {
            lines(&mut session, "BEGIN").await;
            let execution = session.execute(&statement);
            match tokio::time::timeout(std::time::Duration::ZERO, execution).await {
                Ok(result) => drop(result.unwrap()),
                Err(_) => {
                    canceled = true;
                    fails(&mut session, "SELECT 1", SqlState::FAILED_TRANSACTION).await;
                }
            }
            lines(&mut session, "ROLLBACK").await;
            assert_eq!(count(&mut session, "SELECT * FROM accounts").await, 2);
            if canceled {
                break;
            }
        }
        assert!(canceled, "each execution completed at its first poll");
    });
}

#[test]
fn savepoints_undo_a_part() {
    run(async {
        let (_db, mut session) = session();
        accounts(&mut session).await;
        lines(&mut session, "BEGIN; SAVEPOINT a; DELETE FROM accounts; SAVEPOINT b").await;
        lines(&mut session, "INSERT INTO accounts VALUES ('x', 1); ROLLBACK TO SAVEPOINT b").await;
        assert_eq!(count(&mut session, "SELECT * FROM accounts").await, 0);
        lines(&mut session, "ROLLBACK TO a; RELEASE SAVEPOINT a; COMMIT").await;
        assert_eq!(count(&mut session, "SELECT * FROM accounts").await, 2);
        fails(&mut session, "SAVEPOINT a", SqlState::NOT_IN_PREREQUISITE_STATE).await;
    });
}

#[test]
fn modes_of_transactions_are_kept() {
    run(async {
        let (db, mut one) = session();
        let mut two = Session::new(&db, Default::default()).unwrap();
        accounts(&mut one).await;
        let write = "INSERT INTO accounts VALUES ('eve', 1)";
        let error = one.run(&format!("BEGIN READ ONLY; {write}")).await.unwrap_err();
        assert!(error.message().contains("read-only"), "{error}");
        lines(&mut one, "ROLLBACK").await;
        fails(&mut one, "BEGIN; BEGIN", SqlState::ACTIVE_TRANSACTION).await;
        lines(&mut one, "ROLLBACK").await;
        fails(&mut one, "BEGIN; CREATE TABLE t (a INT PRIMARY KEY)", SqlState::ACTIVE_TRANSACTION)
            .await;
        lines(&mut one, "ROLLBACK").await;
        // Write skew: each reads what the other one writes.
        let begin = "BEGIN TRANSACTION ISOLATION LEVEL SERIALIZABLE;
                     SELECT sum(cents) FROM accounts";
        lines(&mut one, &format!("{begin}; UPDATE accounts SET cents = 1 WHERE owner = 'ann'"))
            .await;
        lines(&mut two, &format!("{begin}; UPDATE accounts SET cents = 1 WHERE owner = 'bob'"))
            .await;
        let results = [one.run("COMMIT").await.is_ok(), two.run("COMMIT").await.is_ok()];
        assert_eq!(results.iter().filter(|ok| **ok).count(), 1, "one of them conflicts");
    });
}
