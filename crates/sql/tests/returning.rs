//! RETURNING, and changes of rows that other tables determine: UPDATE ... FROM, DELETE ... USING.
#![allow(clippy::unwrap_used)]

mod common;

use common::{count, fails, lines, rows_text, run, session};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use perigee_sql::{Session, SqlState};

async fn create_tables(s: &mut Session) {
    lines(
        s,
        "CREATE TABLE t (a INT PRIMARY KEY, b INT, c TEXT DEFAULT 'new'); CREATE INDEX ON t (b)",
    )
    .await;
    lines(s, "INSERT INTO t VALUES (1, 10, 'x'), (2, 20, 'y'), (3, 30, NULL)").await;
    lines(s, "CREATE TABLE o (a INT PRIMARY KEY, t INT, n INT)").await;
    lines(s, "INSERT INTO o VALUES (1, 1, 100), (2, 1, 101), (3, 3, 300), (4, 9, 900)").await;
}

#[test]
fn inserts_return_the_rows_as_they_are_stored() {
    run(async {
        let (_db, mut session) = session();
        let s = &mut session;
        create_tables(s).await;
        let sql = "INSERT INTO t (b, a) VALUES (40, 4), (50, 5) RETURNING *";
        assert_eq!(lines(s, sql).await, ["4|40|new", "5|50|new"]);
        let sql = "INSERT INTO t VALUES (6, 1, 'z') RETURNING a + b AS sum, upper(c), t.a, $$k$$";
        let results = s.run(sql).await.unwrap();
        let result = &results[0];
        assert_eq!((result.command, result.rows), ("INSERT", Some(1)));
        let schema = result.schema.as_ref().unwrap();
        assert_eq!(
            (schema.field(0).name().as_str(), schema.field(2).name().as_str()),
            ("sum", "a")
        );
        assert_eq!(rows_text(&result.batches), [["7", "Z", "6", "k"]]);
        // Rows that are skipped are not returned; changed ones are, in the order of the statement.
        let sql = "INSERT INTO t VALUES (6, 0, ''), (7, 0, '') ON CONFLICT DO NOTHING RETURNING a";
        assert_eq!(lines(s, sql).await, ["7"]);
        let sql = "INSERT INTO t AS x VALUES (9, 1, 'i'), (6, 5, 'u'), (7, 5, 'skip'), (8, 1, 'i')
                   ON CONFLICT (a) DO UPDATE SET b = x.b + excluded.b WHERE x.a <> 7
                   RETURNING x.a, b";
        assert_eq!(lines(s, sql).await, ["9|1", "6|6", "8|1"]);
        let sql = "INSERT INTO t SELECT a + 100, b, c FROM t WHERE a <= 3 RETURNING a";
        assert_eq!(lines(s, sql).await, ["101", "102", "103"]);
        let none = s.run("INSERT INTO t SELECT * FROM t WHERE false RETURNING a").await.unwrap();
        assert_eq!((none[0].rows, none[0].schema.as_ref().unwrap().fields().len()), (Some(0), 1));
    });
}

#[test]
fn updates_return_new_rows_and_deletes_old_ones() {
    run(async {
        let (_db, mut session) = session();
        let s = &mut session;
        create_tables(s).await;
        let sql = "UPDATE t SET b = b + 1, a = a + 10 WHERE b >= 20 RETURNING t.*, b * 2 AS twice";
        assert_eq!(lines(s, sql).await, ["12|21|y|42", "13|31|NULL|62"]);
        let sql = "UPDATE t AS x SET (b, c) = (x.a, 'same') RETURNING x.a, b, c";
        assert_eq!(lines(s, sql).await, ["1|1|same", "12|12|same", "13|13|same"]);
        assert_eq!(lines(s, "UPDATE t SET b = 0 WHERE a = 99 RETURNING a").await.len(), 0);
        let sql = "DELETE FROM t AS x WHERE x.a > 1 RETURNING a, c,
                   (SELECT max(o.n) FROM o WHERE o.t < 9) AS n";
        let results = s.run(sql).await.unwrap();
        assert_eq!((results[0].command, results[0].rows), ("DELETE", Some(2)));
        assert_eq!(rows_text(&results[0].batches), [["12", "same", "300"], ["13", "same", "300"]]);
        assert_eq!(lines(s, "SELECT a FROM t").await, ["1"]);
    });
}

#[test]
fn many_rows_are_returned_in_order() {
    run(async {
        let (_db, mut session) = session();
        let s = &mut session;
        lines(s, "CREATE TABLE m (a BIGINT PRIMARY KEY, b BIGINT)").await;
        let rows: Vec<String> = (1..=20000).map(|i| format!("({i}, 0)")).collect();
        lines(s, &format!("INSERT INTO m VALUES {}", rows.join(", "))).await;
        let returned = lines(s, "UPDATE m SET b = a * 2 RETURNING b / 2").await;
        let expected: Vec<String> = (1..=20000).map(|i| i.to_string()).collect();
        assert!(returned == expected);
    });
}

#[test]
fn failed_returning_changes_nothing() {
    run(async {
        let (_db, mut session) = session();
        let s = &mut session;
        create_tables(s).await;
        fails(s, "DELETE FROM t RETURNING 1 / (a - 2)", SqlState::DIVISION_BY_ZERO).await;
        fails(s, "DELETE FROM t RETURNING none", SqlState::UNDEFINED_COLUMN).await;
        for list in ["count(*)", "row_number() OVER ()", "(SELECT max(a) FROM t)"] {
            let sql = format!("DELETE FROM t RETURNING {list}");
            let error = fails(s, &sql, SqlState::UNSUPPORTED).await;
            assert!(error.hint().is_some(), "{list}");
        }
        assert_eq!(count(s, "SELECT * FROM t").await, 3);
        lines(s, "BEGIN; DELETE FROM t WHERE a = 1 RETURNING a; ROLLBACK").await;
        assert_eq!(count(s, "SELECT * FROM t").await, 3);
    });
}

#[test]
fn other_tables_determine_which_rows_change() {
    run(async {
        let (_db, mut session) = session();
        let s = &mut session;
        create_tables(s).await;
        // Two rows of `o` match t.a = 1: one of them is used, once.
        let sql = "UPDATE t SET b = o.n, c = c || '!' FROM o WHERE o.t = t.a";
        assert_eq!(count(s, sql).await, 2);
        let rows = lines(s, "SELECT * FROM t").await;
        assert!(rows[0] == "1|100|x!" || rows[0] == "1|101|x!", "{rows:?}");
        assert_eq!(rows[1..], ["2|20|y", "3|300|NULL"]);
        // The rows that are returned have the columns of both tables.
        let sql = "UPDATE t AS x SET b = 0 FROM o AS y WHERE y.t = x.a AND x.a = 3 RETURNING *";
        assert_eq!(lines(s, sql).await, ["3|0|NULL|3|3|300"]);
        // The table itself under another name, a subquery, and a join.
        let sql = "UPDATE t SET b = s.total FROM (SELECT sum(n) AS total FROM o) AS s WHERE a = 2
                   RETURNING b, s.total";
        assert_eq!(lines(s, sql).await, ["1401|1401"]);
        let sql = "UPDATE t SET c = u.c FROM t AS u JOIN o ON o.a = u.a WHERE t.a = u.a + 1
                   RETURNING t.a, t.c, o.n";
        let mut returned = lines(s, sql).await;
        returned.sort();
        assert_eq!(returned, ["2|x!|100", "3|y|101"]);

        let sql = "DELETE FROM t USING o WHERE o.t = t.a AND o.n < 200 RETURNING t.a, o.t";
        assert_eq!(lines(s, sql).await, ["1|1"]);
        assert_eq!(count(s, "DELETE FROM o USING t AS x WHERE o.t = x.a").await, 1);
        assert_eq!(lines(s, "SELECT a FROM o").await, ["1", "2", "4"]);
        fails(s, "UPDATE t SET b = a FROM o", SqlState::DUPLICATE_COLUMN).await;
        fails(s, "UPDATE t SET b = 1, b = 2", SqlState::SYNTAX_ERROR).await;
        fails(s, "UPDATE t SET none = 1 FROM o", SqlState::UNDEFINED_COLUMN).await;
        fails(s, "UPDATE t SET b = sum(o.n) FROM o", SqlState::UNSUPPORTED).await;
        fails(s, "DELETE FROM t USING none WHERE none.a = t.a", SqlState::UNDEFINED_TABLE).await;
    });
}

#[test]
fn prepared_changes_describe_their_rows_and_parameters() {
    run(async {
        let (_db, mut session) = session();
        let s = &mut session;
        create_tables(s).await;
        let sql = "UPDATE t SET b = $1, c = $2 FROM o WHERE o.a = t.a AND o.n > $3
                   RETURNING t.a, t.b, c || $4 AS text";
        let statement = s.parse(sql).unwrap().remove(0);
        let update = s.prepare(statement).await.unwrap();
        let names: Vec<&str> =
            update.schema().unwrap().fields().iter().map(|f| f.name().as_str()).collect();
        assert_eq!(names, ["a", "b", "text"]);
        let types: Vec<Option<&DataType>> =
            update.parameters().iter().map(Option::as_ref).collect();
        assert_eq!(
            types[..3],
            [Some(&DataType::Int32), Some(&DataType::Utf8), Some(&DataType::Int32)]
        );
        let values = [5i32.into(), "v".into(), 200i32.into(), ScalarValue::from("w")];
        let outcome = s.execute_prepared(&update, &values).await.unwrap();
        let result = s.collect(outcome).await.unwrap();
        assert_eq!((result.command, result.rows), ("UPDATE", Some(1)));
        assert_eq!(rows_text(&result.batches), [["3", "5", "vw"]]);

        let statement = s.parse("INSERT INTO t VALUES ($1, $2) RETURNING a").unwrap().remove(0);
        assert!(s.prepare(statement).await.is_err());
        let statement =
            s.parse("INSERT INTO t (a, b) VALUES ($1, $2) RETURNING a").unwrap().remove(0);
        let insert = s.prepare(statement).await.unwrap();
        assert_eq!((insert.parameters().len(), insert.schema().unwrap().fields().len()), (2, 1));
    });
}
