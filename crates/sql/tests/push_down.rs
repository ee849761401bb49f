//! Conditions, projections, limits and orders that a scan answers: what EXPLAIN shows, and how many
//! rows are read.
#![allow(clippy::unwrap_used)]

mod common;

use common::{count, explain, lines, rows_read, run, session};
use perigee::Db;
use perigee_sql::Session;
use perigee_tables::{TableDb, Value};

/// 10,000 readings: sensors 0 to 99, times 0 to 99, an index over a value that may be NULL.
async fn readings(db: &Db, session: &mut Session) {
    lines(
        session,
        "CREATE TABLE readings (sensor INTEGER, at BIGINT, value INTEGER, note TEXT NOT NULL,
             more TEXT, PRIMARY KEY (sensor, at DESC));
         CREATE INDEX by_value ON readings (value, note DESC)",
    )
    .await;
    let row = |n: i32| {
        let value = if n % 10 == 0 { Value::Null } else { Value::I32(n % 1000) };
        let key = [Value::I32(n / 100), Value::I64(i64::from(n % 100))];
        let [sensor, at] = key;
        vec![sensor, at, value, format!("note {}", n % 7).into(), "x".into()]
    };
    db.dyn_table("readings").unwrap().load((0..10_000).map(row)).unwrap();
}

#[test]
fn key_ranges_read_only_their_rows() {
    run(async {
        let (db, mut session) = session();
        readings(&db, &mut session).await;
        for (condition, rows, shown) in [
            ("sensor = 7", 100, "range=(sensor, at) = (7)"),
            ("sensor = 7 AND at = 3", 1, "range=(sensor, at) = (7, 3)"),
            ("sensor = 7 AND at >= 90", 10, "range=(sensor, at) from (7) to (7, 90)"),
            ("sensor = 7 AND at < 5", 5, "range=(sensor, at) after (7, 5) to (7)"),
            ("sensor = 7 AND at > 10 AND at <= 20", 10, "from (7, 20) before (7, 10)"),
            ("sensor > 97", 200, "range=(sensor, at) after (97)"),
            ("sensor BETWEEN 3 AND 4", 200, "from (3) to (4)"),
            ("sensor IN (1, 50, 99)", 300, "= (1), = (50), = (99)"),
            ("sensor IN (1, 2) AND at IN (5, 6)", 4, "= (1, 5), = (1, 6), = (2, 5), = (2, 6)"),
            ("7 = sensor", 100, "= (7)"),
            ("sensor = 7 OR sensor = 8", 200, "= (7), = (8)"),
        ] {
            let sql = format!("SELECT sensor, at, note FROM readings WHERE {condition}");
            let plan = explain(&mut session, &sql).await;
            assert!(plan.contains(shown), "{condition}:\n{plan}");
            assert!(!plan.contains("FilterExec"), "{condition}:\n{plan}");
            assert_eq!(count(&mut session, &sql).await, rows, "{condition}");
            assert_eq!(rows_read(&mut session, &sql).await, rows, "{condition}");
        }
    });
}

#[test]
fn conditions_that_a_range_does_not_answer_are_evaluated() {
    run(async {
        let (db, mut session) = session();
        readings(&db, &mut session).await;
        for (condition, rows, read) in [
            ("sensor = 7 AND note = 'note 3'", 14, 100),
            ("sensor = 7 AND value IS NULL", 10, 100),
            ("at = 7", 100, 10_000),
            ("sensor + 1 = 7", 100, 10_000),
            ("sensor = 7 AND at % 2 = 0", 50, 100),
        ] {
            let sql = format!("SELECT value FROM readings WHERE {condition}");
            let plan = explain(&mut session, &sql).await;
            assert!(plan.contains("FilterExec"), "{condition}:\n{plan}");
            assert_eq!(count(&mut session, &sql).await, rows, "{condition}\n{plan}");
            assert_eq!(rows_read(&mut session, &sql).await, read, "{condition}\n{plan}");
        }
    });
}

#[test]
fn contradictions_read_nothing() {
    run(async {
        let (db, mut session) = session();
        readings(&db, &mut session).await;
        for condition in
            ["sensor = 1 AND sensor = 2", "sensor > 5 AND sensor < 5", "sensor IS NULL"]
        {
            let sql = format!("SELECT value FROM readings WHERE {condition}");
            assert_eq!(count(&mut session, &sql).await, 0);
            assert_eq!(rows_read(&mut session, &sql).await, 0, "{condition}");
        }
    });
}

#[test]
fn indexes_are_used_where_they_read_less() {
    run(async {
        let (db, mut session) = session();
        readings(&db, &mut session).await;
        for (condition, rows, shown) in [
            ("value = 501", 10, "range=(value, note) = (501)"),
            ("value = 501 AND note = 'note 4'", 2, "= (501, \"note 4\")"),
            ("value > 997", 20, "after (997)"),
            ("value < 2", 10, "after (NULL) before (2)"),
        ] {
            let sql =
                format!("SELECT sensor, at, value, note, more FROM readings WHERE {condition}");
            let plan = explain(&mut session, &sql).await;
            assert!(
                plan.contains("index=by_value") && plan.contains(shown),
                "{condition}:\n{plan}"
            );
            let found = lines(&mut session, &sql).await;
            let all = sql.replace("value ", "value + 0 ");
            let mut expected = lines(&mut session, &all).await;
            let mut sorted = found.clone();
            sorted.sort();
            expected.sort();
            assert_eq!(sorted, expected, "{condition}");
            assert_eq!(found.len() as u64, rows, "{condition}");
            assert_eq!(rows_read(&mut session, &sql).await, rows, "{condition}");
        }
        // Half of the table through the index costs more than the whole table.
        let plan = explain(&mut session, "SELECT * FROM readings WHERE value < 500").await;
        assert!(!plan.contains("index="), "{plan}");
        // The index has all the columns.
        let plan = explain(&mut session, "SELECT note FROM readings WHERE value < 500").await;
        assert!(plan.contains("index=by_value (index only)"), "{plan}");
        // The key is narrower.
        let plan = explain(
            &mut session,
            "SELECT * FROM readings WHERE value = 501 AND sensor = 5 AND at = 1",
        )
        .await;
        assert!(!plan.contains("index="), "{plan}");
    });
}

#[test]
fn only_needed_columns_are_read() {
    run(async {
        let (db, mut session) = session();
        readings(&db, &mut session).await;
        let plan = explain(&mut session, "SELECT note FROM readings WHERE sensor = 1").await;
        assert!(plan.contains("columns=[note]"), "{plan}");
        let plan = explain(&mut session, "SELECT note FROM readings WHERE value % 2 = 1").await;
        assert!(plan.contains("columns=[note, value]"), "{plan}");
        let plan = explain(&mut session, "SELECT count(*) FROM readings").await;
        assert!(plan.contains("columns=[]"), "{plan}");
        assert_eq!(lines(&mut session, "SELECT count(*) FROM readings").await, ["10000"]);
        assert_eq!(lines(&mut session, "SELECT count(value) FROM readings").await, ["9000"]);
    });
}

#[test]
fn limits_end_the_scan() {
    run(async {
        let (db, mut session) = session();
        readings(&db, &mut session).await;
        assert_eq!(rows_read(&mut session, "SELECT * FROM readings LIMIT 5").await, 5);
        assert_eq!(rows_read(&mut session, "SELECT * FROM readings LIMIT 5 OFFSET 7").await, 12);
        let sql = "SELECT * FROM readings WHERE sensor = 9 LIMIT 5";
        assert_eq!(rows_read(&mut session, sql).await, 5);
        let filtered = "SELECT sensor FROM readings WHERE note = 'note 1' LIMIT 3";
        assert_eq!(count(&mut session, filtered).await, 3);
    });
}

#[test]
fn the_order_of_the_key_needs_no_sort() {
    run(async {
        let (db, mut session) = session();
        readings(&db, &mut session).await;
        for sql in [
            "SELECT * FROM readings ORDER BY sensor",
            "SELECT * FROM readings ORDER BY sensor, at DESC",
            "SELECT at FROM readings WHERE sensor = 4 ORDER BY at DESC",
            "SELECT at FROM readings WHERE sensor = 4 ORDER BY sensor, at DESC LIMIT 3",
            "SELECT value, note FROM readings WHERE value = 5 ORDER BY note DESC",
        ] {
            let plan = explain(&mut session, sql).await;
            assert!(!plan.contains("SortExec"), "{sql}:\n{plan}");
        }
        let sql = "SELECT sensor, at FROM readings ORDER BY sensor LIMIT 3";
        assert_eq!(lines(&mut session, sql).await, ["0|99", "0|98", "0|97"]);
        assert_eq!(rows_read(&mut session, sql).await, 3);
        let plan = explain(&mut session, "SELECT * FROM readings ORDER BY at").await;
        assert!(plan.contains("Sort"), "{plan}");
        // Reversed.
        let sql = "SELECT sensor, at FROM readings ORDER BY sensor DESC, at LIMIT 3";
        assert_eq!(lines(&mut session, sql).await, ["99|0", "99|1", "99|2"]);
        let sql = "SELECT at FROM readings WHERE sensor = 4 ORDER BY at LIMIT 2";
        assert_eq!(lines(&mut session, sql).await, ["0", "1"]);
    });
}

#[test]
fn joins_and_aggregates_of_keys_are_right() {
    run(async {
        let (db, mut session) = session();
        readings(&db, &mut session).await;
        lines(
            &mut session,
            "CREATE TABLE sensors (id INTEGER PRIMARY KEY, name TEXT);
             INSERT INTO sensors VALUES (1, 'one'), (2, 'two'), (500, 'none')",
        )
        .await;
        let sql = "SELECT name, count(*), sum(value) FROM sensors JOIN readings ON id = sensor
                   WHERE at < 10 GROUP BY name ORDER BY name";
        assert_eq!(lines(&mut session, sql).await, ["one|10|945", "two|10|1845"]);
        let sql = "SELECT id FROM sensors WHERE NOT EXISTS
                       (SELECT 1 FROM readings WHERE sensor = id)";
        assert_eq!(lines(&mut session, sql).await, ["500"]);
        let sql = "SELECT count(*) FROM readings
                   WHERE sensor = (SELECT max(id) FROM sensors WHERE id < 100)";
        assert_eq!(lines(&mut session, sql).await, ["100"]);
    });
}

#[test]
fn uuids_and_times_are_conditions_of_keys() {
    run(async {
        let (_db, mut session) = session();
        lines(
            &mut session,
            "CREATE TABLE events (id UUID, at TIMESTAMP, big UHUGEINT, PRIMARY KEY (id, at));
             INSERT INTO events VALUES
                 ('018F0C5A-7C1E-7000-8000-00000000002a', '2026-01-01 12:00:00', 7),
                 ('018f0c5a-7c1e-7000-8000-00000000002b', '2026-01-02', '340282366920938463463374607431768211455')",
        )
        .await;
        for id in ["018f0c5a-7c1e-7000-8000-00000000002a", "018F0C5A7C1E7000800000000000002A"] {
            let sql = format!("SELECT at FROM events WHERE id = '{id}' AND at > '2026-01-01'");
            assert_eq!(count(&mut session, &sql).await, 1, "{id}");
            let plan = explain(&mut session, &sql).await;
            assert!(plan.contains("range=") && !plan.contains("FilterExec"), "{plan}");
            // Also where the key does not answer it.
            let sql = format!("SELECT at FROM events WHERE big < 100 AND id <> '{id}'");
            assert_eq!(count(&mut session, &sql).await, 0, "{id}");
        }
        let big = "SELECT id FROM events WHERE big = '340282366920938463463374607431768211455'";
        assert_eq!(count(&mut session, big).await, 1);
    });
}
