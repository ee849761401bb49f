//! Tables, indexes and changes of rows by statements, their errors, and statements that are
//! refused.
#![allow(clippy::unwrap_used)]

mod common;

use common::{count, fails, lines, run, session};
use datafusion::common::ScalarValue;
use perigee_sql::SqlState;
use perigee_tables::{ColumnType, TableDb, Value};

#[test]
fn tables_have_the_declared_schema() {
    run(async {
        let (db, mut session) = session();
        lines(
            &mut session,
            "CREATE TABLE t (b TEXT NOT NULL UNIQUE, a INTEGER, c UBIGINT DEFAULT 7, d TIMESTAMP,
                 \"Mixed\" BYTEA, PRIMARY KEY (a DESC, b), UNIQUE (c, d))",
        )
        .await;
        let table = db.dyn_table("t").unwrap();
        let schema = table.schema();
        let names: Vec<&str> = schema.columns().iter().map(|c| c.name.as_str()).collect();
        assert_eq!(names, ["b", "a", "c", "d", "Mixed"]);
        let nullable: Vec<bool> = schema.columns().iter().map(|c| c.nullable).collect();
        assert_eq!(nullable, [false, false, true, true, true]);
        assert_eq!(schema.columns()[2].column_type, ColumnType::U64);
        assert_eq!(schema.columns()[2].default, Some(Value::U64(7)));
        assert_eq!(schema.key_columns()[0].column, "a");
        let indexes = table.indexes().unwrap();
        let names: Vec<&str> = indexes.iter().map(|index| index.name()).collect();
        assert_eq!(names, ["t_b_key", "t_c_d_key"]);

        lines(
            &mut session,
            "CREATE INDEX ON t (d, a DESC); CREATE UNIQUE INDEX u ON t (\"Mixed\")",
        )
        .await;
        assert_eq!(db.dyn_table("t").unwrap().indexes().unwrap().len(), 4);
        lines(&mut session, "DROP INDEX t_d_a_idx; DROP INDEX IF EXISTS none").await;
        assert_eq!(db.dyn_table("t").unwrap().indexes().unwrap().len(), 3);
        assert_eq!(lines(&mut session, "SHOW TABLES").await, ["t"]);
        let columns = "SELECT column_name FROM information_schema.columns WHERE table_name = 't'";
        assert_eq!(count(&mut session, columns).await, 5);
        lines(&mut session, "DROP TABLE t; DROP TABLE IF EXISTS t").await;
        assert!(lines(&mut session, "SHOW TABLES").await.is_empty());
    });
}

#[test]
fn columns_are_added_dropped_and_renamed() {
    run(async {
        let (_db, mut session) = session();
        lines(
            &mut session,
            "CREATE TABLE t (a INT PRIMARY KEY, b TEXT); INSERT INTO t VALUES (1, 'x')",
        )
        .await;
        lines(&mut session, "ALTER TABLE t ADD COLUMN c INT NOT NULL DEFAULT 5, ADD d TEXT").await;
        assert_eq!(lines(&mut session, "SELECT * FROM t").await, ["1|x|5|NULL"]);
        lines(&mut session, "INSERT INTO t (a) VALUES (2)").await;
        lines(&mut session, "ALTER TABLE t DROP COLUMN b, RENAME COLUMN c TO e").await;
        assert_eq!(lines(&mut session, "SELECT a, e, d FROM t").await, ["1|5|NULL", "2|5|NULL"]);
        lines(
            &mut session,
            "ALTER TABLE t ADD COLUMN IF NOT EXISTS e INT, DROP COLUMN IF EXISTS b",
        )
        .await;
        lines(&mut session, "ALTER TABLE IF EXISTS none ADD COLUMN e INT").await;
        fails(&mut session, "ALTER TABLE t DROP COLUMN a", SqlState::INVALID_VALUE).await;
        fails(&mut session, "ALTER TABLE t ADD COLUMN f INT NOT NULL", SqlState::INVALID_VALUE)
            .await;
        fails(&mut session, "ALTER TABLE none DROP COLUMN a", SqlState::UNDEFINED_TABLE).await;
    });
}

#[test]
fn rows_are_inserted_updated_and_deleted() {
    run(async {
        let (_db, mut session) = session();
        let s = &mut session;
        lines(s, "CREATE TABLE t (a INT PRIMARY KEY, b INT, c TEXT); CREATE INDEX ON t (b)").await;
        assert_eq!(
            count(s, "INSERT INTO t VALUES (1, 10, 'x'), (2, 20, NULL), (3, 30, 'z')").await,
            3
        );
        assert_eq!(count(s, "INSERT INTO t (c, a) SELECT c, a + 10 FROM t").await, 3);
        assert_eq!(count(s, "UPDATE t SET b = a * 2, C = 'new' WHERE b IS NULL").await, 3);
        assert_eq!(lines(s, "SELECT a, b, c FROM t WHERE b = 24").await, ["12|24|new"]);
        // Keys are moved, also to one that another row has just left.
        assert_eq!(count(s, "UPDATE t SET a = a + 1 WHERE a < 10").await, 3);
        assert_eq!(lines(s, "SELECT a FROM t WHERE a < 10").await, ["2", "3", "4"]);
        assert_eq!(count(s, "UPDATE t AS x SET b = 0 WHERE x.a = 2").await, 1);
        assert_eq!(count(s, "DELETE FROM t WHERE b IN (SELECT b FROM t WHERE a > 10)").await, 3);
        assert_eq!(count(s, "UPDATE t SET b = 1 WHERE a = 99").await, 0);
        assert_eq!(count(s, "DELETE FROM t").await, 3);
        assert_eq!(count(s, "SELECT * FROM t").await, 0);
    });
}

#[test]
fn conflicts_of_inserts_are_skipped_or_update() {
    run(async {
        let (_db, mut session) = session();
        let s = &mut session;
        lines(s, "CREATE TABLE t (a INT PRIMARY KEY, mail TEXT UNIQUE, n INT NOT NULL DEFAULT 1)")
            .await;
        lines(s, "INSERT INTO t VALUES (1, 'x', 1), (2, 'y', 1)").await;
        let values = "VALUES (1, 'new', 5), (3, 'x', 5), (4, 'z', 5)";
        assert_eq!(count(s, &format!("INSERT INTO t {values} ON CONFLICT DO NOTHING")).await, 1);
        assert_eq!(lines(s, "SELECT a, mail FROM t").await, ["1|x", "2|y", "4|z"]);
        // Only conflicts of this key.
        let sql = "INSERT INTO t VALUES (1, 'other', 1) ON CONFLICT (a) DO NOTHING";
        assert_eq!(count(s, sql).await, 0);
        let sql = "INSERT INTO t VALUES (9, 'x', 1) ON CONFLICT (a) DO NOTHING";
        fails(s, sql, SqlState::UNIQUE_VIOLATION).await;
        let sql = "INSERT INTO t VALUES (9, 'x', 1) ON CONFLICT (mail) DO NOTHING";
        assert_eq!(count(s, sql).await, 0);

        let sql = "INSERT INTO t VALUES (1, 'one', 10), (5, 'five', 10) ON CONFLICT (a)
                   DO UPDATE SET n = n + excluded.n, mail = excluded.mail";
        assert_eq!(count(s, sql).await, 2);
        assert_eq!(lines(s, "SELECT * FROM t WHERE a IN (1, 5)").await, ["1|one|11", "5|five|10"]);
        let sql = "INSERT INTO t VALUES (7, 'one', 1) ON CONFLICT (mail)
                   DO UPDATE SET n = 0 WHERE t.n > 100";
        assert_eq!(count(s, sql).await, 0);
        let sql =
            "INSERT INTO t VALUES (8, 'a', 1), (8, 'b', 1) ON CONFLICT (a) DO UPDATE SET n = 1";
        fails(s, sql, SqlState::UNIQUE_VIOLATION).await;
        let sql = "INSERT INTO t VALUES (8, 'a', 1) ON CONFLICT (n) DO NOTHING";
        fails(s, sql, SqlState::INVALID_VALUE).await;
        let sql = "INSERT INTO t VALUES (8, 'a', 1) ON CONFLICT DO UPDATE SET n = 1";
        fails(s, sql, SqlState::SYNTAX_ERROR).await;
    });
}

#[test]
fn violated_constraints_are_named() {
    run(async {
        let (_db, mut session) = session();
        let s = &mut session;
        lines(s, "CREATE TABLE t (a INT PRIMARY KEY, b TEXT NOT NULL, c INT UNIQUE)").await;
        lines(s, "INSERT INTO t VALUES (1, 'x', 1), (2, 'y', NULL), (3, 'z', NULL)").await;
        let error = fails(s, "INSERT INTO t VALUES (1, 'x', 9)", SqlState::UNIQUE_VIOLATION).await;
        assert_eq!(error.constraint(), Some("t_pkey"));
        let error = fails(s, "INSERT INTO t VALUES (9, 'x', 1)", SqlState::UNIQUE_VIOLATION).await;
        assert_eq!((error.constraint(), error.table()), (Some("t_c_key"), Some("t")));
        for sql in [
            "INSERT INTO t (a) VALUES (4)",
            "INSERT INTO t VALUES (4, NULL, 4)",
            "UPDATE t SET b = NULL",
            "INSERT INTO t (b) VALUES ('no key')",
        ] {
            let error = fails(s, sql, SqlState::NOT_NULL_VIOLATION).await;
            assert!(error.column().is_some() && error.hint().is_some(), "{error}");
        }
        fails(s, "UPDATE t SET c = 1", SqlState::UNIQUE_VIOLATION).await;
        assert_eq!(count(s, "SELECT * FROM t").await, 3);
        let index = "CREATE UNIQUE INDEX same ON t (b)";
        lines(s, "INSERT INTO t VALUES (4, 'x', 4)").await;
        fails(s, index, SqlState::UNIQUE_VIOLATION).await;
        lines(s, "DELETE FROM t WHERE a = 4").await;
        lines(s, index).await;
    });
}

#[test]
fn values_that_do_not_fit_are_refused() {
    run(async {
        let (_db, mut session) = session();
        let s = &mut session;
        lines(s, "CREATE TABLE t (a TINYINT PRIMARY KEY, b UUID, c TIMESTAMP, d UHUGEINT)").await;
        for (values, state, part) in [
            ("(300, NULL, NULL, NULL)", SqlState::OUT_OF_RANGE, "value 300 to type Int8"),
            ("('x', NULL, NULL, NULL)", SqlState::INVALID_TEXT, "string 'x' to value of Int8"),
            ("(1, 'no uuid', NULL, NULL)", SqlState::INVALID_TEXT, "column \"b\" is no UUID"),
            ("(1, NULL, 'yesterday', NULL)", SqlState::INVALID_TEXT, "from 'yesterday'"),
            ("(1, NULL, NULL, -1)", SqlState::INVALID_TEXT, "column \"d\" is no UHUGEINT"),
        ] {
            let error = fails(s, &format!("INSERT INTO t VALUES {values}"), state).await;
            assert!(error.message().contains(part), "{values}: {error}");
        }
        fails(s, "SELECT 1 / 0", SqlState::DIVISION_BY_ZERO).await;
        fails(s, "SELECT none FROM t", SqlState::UNDEFINED_COLUMN).await;
        fails(s, "SELECT * FROM none", SqlState::UNDEFINED_TABLE).await;
        fails(s, "SELECT none(1)", SqlState::UNDEFINED_FUNCTION).await;
        fails(s, "INSERT INTO none VALUES (1)", SqlState::UNDEFINED_TABLE).await;
        fails(s, "INSERT INTO t (none) VALUES (1)", SqlState::UNDEFINED_COLUMN).await;
        fails(s, "UPDATE t SET none = 1", SqlState::UNDEFINED_COLUMN).await;
    });
}

#[test]
fn positions_of_errors_are_reported() {
    run(async {
        let (_db, mut session) = session();
        let error = fails(&mut session, "SELECT (1\n 2)", SqlState::SYNTAX_ERROR).await;
        assert_eq!(error.position().map(|p| p.line), Some(2), "{error}");
        let error = fails(&mut session, "SELECT 1,\n  x", SqlState::UNDEFINED_COLUMN).await;
        let position = error.position().map(|p| (p.line, p.column));
        assert_eq!(position, Some((2, 3)), "{error}");
    });
}

#[test]
fn unsupported_statements_are_refused_by_name_with_a_hint() {
    run(async {
        let (db, mut session) = session();
        let s = &mut session;
        lines(s, "CREATE TABLE t (a INT PRIMARY KEY, b TEXT)").await;
        for (sql, name) in [
            ("CREATE VIEW v AS SELECT 1", "CREATE VIEW"),
            ("TRUNCATE t", "TRUNCATE"),
            ("CREATE TABLE u (a INT)", "primary key"),
            ("CREATE TABLE u AS SELECT 1", "CREATE TABLE AS SELECT"),
            ("CREATE TEMPORARY TABLE u (a INT PRIMARY KEY)", "TEMPORARY"),
            ("CREATE TABLE u (a INT PRIMARY KEY, b NUMERIC(10, 2))", "NUMERIC"),
            ("CREATE TABLE u (a SERIAL PRIMARY KEY)", "SERIAL"),
            ("CREATE TABLE u (a INT PRIMARY KEY, b INT CHECK (b > 0))", "CHECK"),
            ("CREATE TABLE u (a INT PRIMARY KEY REFERENCES t (a))", "REFERENCES"),
            ("CREATE TABLE u (a INT PRIMARY KEY, b TIMESTAMP DEFAULT now())", "no constant"),
            ("CREATE TABLE u (a INT PRIMARY KEY, PRIMARY KEY (a))", "two primary keys"),
            ("CREATE TABLE u (a INT, PRIMARY KEY (b))", "not declared"),
            ("CREATE TABLE u (a INT, PRIMARY KEY (a, a))", "twice"),
            ("CREATE INDEX ON t (lower(b))", "expression"),
            ("CREATE INDEX ON t (b) WHERE a > 1", "WHERE"),
            ("CREATE INDEX ON t USING hash (b)", "USING"),
            ("ALTER TABLE t ALTER COLUMN b TYPE INT", "ALTER COLUMN"),
            ("ALTER TABLE t RENAME TO u", "RENAME"),
            ("SELECT * FROM t FOR UPDATE", "FOR UPDATE"),
            ("SELECT a INTO u FROM t", "CreateMemoryTable"),
            ("DELETE FROM t LIMIT 1", "LIMIT"),
            ("EXPLAIN DELETE FROM t", "EXPLAIN"),
            ("GRANT SELECT ON t TO bob", "GRANT"),
            ("CREATE SCHEMA s", "CREATE SCHEMA"),
            ("CREATE TABLE other.u (a INT PRIMARY KEY)", "schema"),
            ("MERGE INTO t USING t AS u ON t.a = u.a WHEN MATCHED THEN DELETE", "MERGE"),
            ("SET statement_timeout = 5", "statement_timeout"),
            ("SET datafusion.execution.batch_size = 1", "setting"),
            ("COPY t TO '/tmp/x.csv'", "COPY"),
            ("CREATE EXTERNAL TABLE u STORED AS CSV LOCATION '/etc/passwd'", "CREATE EXTERNAL"),
            ("VACUUM", "VACUUM"),
        ] {
            let error = s.run(sql).await.expect_err(sql);
            assert!(error.message().contains(name), "{sql}: {error}");
            assert!(error.hint().is_some(), "{sql}: {error} has no hint");
        }
        assert_eq!(db.tables().unwrap().len(), 1);
    });
}

#[test]
fn settings_of_clients_are_accepted() {
    run(async {
        let (_db, mut session) = session();
        for sql in [
            "SET extra_float_digits = 3",
            "SET application_name = 'x'",
            "SET client_encoding TO 'UTF8'",
            "SET TIME ZONE 'UTC'",
            "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE",
            "SHOW TRANSACTION ISOLATION LEVEL",
            "RESET ALL",
            "RESET application_name",
            "SHOW server_version",
            "SELECT version()",
            "SELECT current_schema(), current_database()",
            "START TRANSACTION; COMMIT",
            "BEGIN; END",
        ] {
            session.run(sql).await.unwrap_or_else(|e| panic!("{sql}: {e}"));
        }
    });
}

#[test]
fn prepared_statements_take_parameters() {
    run(async {
        let (_db, mut session) = session();
        let s = &mut session;
        lines(s, "CREATE TABLE t (a BIGINT PRIMARY KEY, b TEXT, c TIMESTAMP)").await;
        let statement = s.parse("INSERT INTO t (b, a) VALUES ($2, $1)").unwrap().remove(0);
        let insert = s.prepare(statement).await.unwrap();
        assert_eq!(insert.parameters().len(), 2);
        assert!(insert.schema().is_none());
        for a in 0..10i64 {
            let values = [ScalarValue::from(a), ScalarValue::from(format!("b{a}"))];
            s.execute_prepared(&insert, &values).await.unwrap();
        }
        let statement = s.parse("SELECT b FROM t WHERE a = $1").unwrap().remove(0);
        let select = s.prepare(statement).await.unwrap();
        assert_eq!(select.schema().unwrap().fields().len(), 1);
        let outcome = s.execute_prepared(&select, &[ScalarValue::from(7i32)]).await.unwrap();
        let result = s.collect(outcome).await.unwrap();
        assert_eq!(common::rows_text(&result.batches), [["b7"]]);
        let missing = s.execute_prepared(&select, &[]).await.unwrap_err();
        assert_eq!(missing.state(), SqlState::SYNTAX_ERROR);
        // The schema may change in the meantime.
        lines(s, "ALTER TABLE t RENAME COLUMN b TO d").await;
        s.execute_prepared(&select, &[ScalarValue::from(7i64)]).await.unwrap_err();
        let update = s.parse("UPDATE t SET d = $1 WHERE a >= $2").unwrap().remove(0);
        let update = s.prepare(update).await.unwrap();
        let values = [ScalarValue::from("x"), ScalarValue::from(5i64)];
        s.execute_prepared(&update, &values).await.unwrap();
        assert_eq!(count(s, "SELECT * FROM t WHERE d = 'x'").await, 5);
    });
}
