//! `perigee sql` and `perigee serve`: output formats, errors, exit codes.
#![allow(clippy::unwrap_used)]

mod common;

use common::TestDir;

#[cfg(not(feature = "sql"))]
#[test]
fn a_program_without_the_feature_says_how_to_build_it() {
    let dir = TestDir::new();
    for args in [&["sql", "db"][..], &["serve", "db", "--pg"]] {
        let run = dir.run(args);
        assert_eq!(run.code, 2);
        assert!(run.stderr.contains("--features sql"), "{}", run.stderr);
    }
}

#[cfg(feature = "sql")]
mod with_feature {
    use super::*;

    const TABLE: &str = "CREATE TABLE t (id BIGINT PRIMARY KEY, name TEXT, v DOUBLE PRECISION);
                         CREATE INDEX by_name ON t (name DESC);
                         INSERT INTO t VALUES (1, 'a,\"b\"', 1.5), (2, NULL, NULL);";

    fn database() -> TestDir {
        let dir = TestDir::new();
        let run = dir.run_with(&["sql", "db", "--create"], TABLE.as_bytes());
        assert_eq!((run.code, run.stderr.as_str()), (0, ""));
        dir
    }

    fn text(bytes: Vec<u8>) -> String {
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn rows_are_printed_in_each_format() {
        let dir = database();
        let query = "SELECT * FROM t ORDER BY id";
        let run = dir.run(&["sql", "db", "-c", query]);
        let printed = text(run.stdout);
        assert!(printed.contains("NULL") && printed.ends_with("(2 rows)\n"), "{printed}");
        let run = dir.run(&["sql", "db", "--csv", "-c", query]);
        assert_eq!(text(run.stdout), "id,name,v\n1,\"a,\"\"b\"\"\",1.5\n2,,\n");
        let run = dir.run(&["sql", "db", "--json", "-c", query]);
        let expected =
            "{\"id\":1,\"name\":\"a,\\\"b\\\"\",\"v\":1.5}\n{\"id\":2,\"name\":null,\"v\":null}\n";
        assert_eq!(text(run.stdout), expected);
        let run =
            dir.run(&["sql", "db", "--read-only", "-c", "SELECT count(*) AS n FROM t", "--csv"]);
        assert_eq!(text(run.stdout), "n\n2\n");
    }

    #[test]
    fn tables_are_described() {
        let dir = database();
        let run = dir.run(&["sql", "db", "-c", "\\d t"]);
        let printed = text(run.stdout);
        for part in ["id", "BIGINT", "not null", "primary key: id", "index by_name: name DESC"] {
            assert!(printed.contains(part), "{printed}");
        }
        let run = dir.run(&["sql", "db", "-c", "\\d"]);
        assert!(text(run.stdout).contains("rows (estimated)"));
        let run = dir.run(&["sql", "db", "--json", "-c", "\\d t"]);
        let json: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
        assert_eq!(json["indexes"][0]["columns"][0]["descending"], true);
    }

    #[test]
    fn names_cannot_control_the_terminal() {
        let dir = TestDir::new();
        let create = "CREATE TABLE \"t\x1b[31m\"
                          (\"c\x1b[31m\" TEXT PRIMARY KEY, d TEXT DEFAULT '\x1b[31m');
                      CREATE INDEX \"i\x1b[31m\" ON \"t\x1b[31m\" (d)";
        let run = dir.run_with(&["sql", "db", "--create"], create.as_bytes());
        assert_eq!((run.code, run.stderr.as_str()), (0, ""));
        for command in ["\\d", "\\d \"t\x1b[31m\""] {
            for json in [false, true] {
                let mut args = vec!["sql", "db", "-c", command];
                args.extend(json.then_some("--json"));
                let run = dir.run(&args);
                assert_eq!(run.code, 0, "{}", run.stderr);
                assert!(!run.stdout.contains(&0x1b), "{}", text(run.stdout));
            }
        }
    }

    #[test]
    fn errors_name_the_place_and_stop_the_input() {
        let dir = database();
        let run = dir.run_with(&["sql", "db"], b"SELECT 1;\nSELECT none\nFROM t; DELETE FROM t;");
        assert_eq!(run.code, 2);
        let expected = "at line 2, column 8, near \"none\"";
        assert!(run.stderr.contains(expected), "{}", run.stderr);
        let run = dir.run(&["sql", "db", "--csv", "-c", "SELECT count(*) AS n FROM t"]);
        assert_eq!(text(run.stdout), "n\n2\n");
        let run = dir.run(&["sql", "db", "--json", "-c", "CREATE VIEW v AS SELECT 1"]);
        assert_eq!(run.code, 2);
        let json: serde_json::Value = serde_json::from_str(&run.stderr).unwrap();
        assert!(json["error"]["hint"].is_string());
        let run = dir.run(&["sql", "none", "-c", "SELECT 1"]);
        assert_eq!(run.code, 2);
        let run = dir.run(&["sql", "db", "-c", "\\none"]);
        assert!(run.stderr.contains("\\?"), "{}", run.stderr);
    }

    #[test]
    fn a_server_for_other_machines_needs_password_and_certificate() {
        let dir = database();
        let run = dir.run(&["serve", "db", "--pg", "--listen", "0.0.0.0:0"]);
        assert_eq!(run.code, 2);
        assert!(run.stderr.contains("--tls-cert"), "{}", run.stderr);
        let run = dir.run(&["serve", "db"]);
        assert_eq!(run.code, 2);
    }
}
