//! Commands for tables: `tables`, `import --table` and `export --table`, bad input, interrupted
//! imports.
#![allow(clippy::unwrap_used)]

use crate::common::{TestDir, format_columns};
use serde_json::Value as Json;
use std::io::Write;
use std::process::Stdio;

const PEOPLE: &str = "\
id,name,at,score,note
1,ann,2026-03-01T12:00:00Z,1.5,
2,\"bob \"\"b\"\"\",2026-03-01T12:00:01.5+01:00,2,\"\"
10,\"two
lines\",1969-12-31T23:59:59.999999Z,-3.25,x
";

const PEOPLE_LINES: &str = "\
{\"id\":1,\"name\":\"ann\",\"at\":\"2026-03-01T12:00:00Z\",\"score\":1.5,\"note\":null}
{\"id\":2,\"name\":\"bob \\\"b\\\"\",\"at\":\"2026-03-01T11:00:01.5Z\",\"score\":2.0,\"note\":\"\"}
{\"id\":10,\"name\":\"two\\nlines\",\"at\":\"1969-12-31T23:59:59.999999Z\",\"score\":-3.25,\"note\":\"x\"}
";

fn table(w: &TestDir, db: &str, name: &str) -> Json {
    w.run_json(&["tables", db, name]).remove(0)
}

fn columns(w: &TestDir, db: &str, name: &str) -> String {
    format_columns(&table(w, db, name))
}

#[test]
fn csv_becomes_a_table_with_inferred_types() {
    let w = TestDir::new();
    w.write("people.csv", PEOPLE.as_bytes());
    let text = w.run_ok(&[
        "import",
        "db",
        "people.csv",
        "--table",
        "people",
        "--index",
        "by_name=name,id desc",
        "--unique-index",
        "by_at=at",
    ]);
    assert!(text.starts_with("imported 3 rows into 1 table"), "{text}");
    assert_eq!(columns(&w, "db", "people"), "id:i64,name:text,at:timestamp,score:f64,note:text?");
    assert_eq!(w.run_ok(&["export", "db", "--table", "people"]), PEOPLE_LINES);
    let info = table(&w, "db", "people");
    assert_eq!(info["key"], serde_json::json!([{"column": "id", "order": "asc"}]));
    assert_eq!(info["indexes"][1]["name"], "by_at");
    assert_eq!(
        (&info["indexes"][1]["unique"], &info["indexes"][1]["state"]),
        (&true.into(), &"ready".into())
    );
    assert_eq!(info["estimated_rows"], 3);
    assert!(info["disk_bytes"].as_u64().unwrap() > 100);
    w.run_ok(&["verify", "db"]);
}

#[test]
fn json_lines_and_tsv_become_tables() {
    let w = TestDir::new();
    w.write("a.jsonl", PEOPLE_LINES.as_bytes());
    w.run_ok(&["import", "db", "a.jsonl", "--table", "people"]);
    assert_eq!(columns(&w, "db", "people"), "id:i64,name:text,at:timestamp,score:f64,note:text?");
    assert_eq!(w.run_ok(&["export", "db", "--table", "people"]), PEOPLE_LINES);
    w.write("b.jsonl", b"{\"n\":1,\"tags\":[\"a\"]}\n\n{\"n\":2,\"new\":true}\n");
    w.run_ok(&["import", "db", "b.jsonl", "--table", "b", "--key", "n desc"]);
    assert_eq!(columns(&w, "db", "b"), "n:i64,tags:text?,new:bool?");
    let lines =
        "{\"n\":2,\"tags\":null,\"new\":true}\n{\"n\":1,\"tags\":\"[\\\"a\\\"]\",\"new\":null}\n";
    assert_eq!(w.run_ok(&["export", "db", "--table", "b"]), lines);
    w.write("c.tsv", b"city\tday\n\"a,b\"\t2\nc\t1\n");
    w.run_ok(&["import", "db", "c.tsv", "--table", "c", "--key", "day,city"]);
    assert_eq!(
        w.run_ok(&["export", "db", "-", "--table", "c", "--format", "csv"]),
        "city,day\nc,1\n\"a,b\",2\n"
    );
    let names: Vec<String> = w.run_json(&["tables", "db"])[0]["tables"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| t["name"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(names, ["b", "c", "people"]);
    let text = w.run_ok(&["tables", "db"]);
    assert!(text.contains("people") && text.contains("day,city"), "{text}");
    let text = w.run_ok(&["tables", "db", "b"]);
    assert!(text.contains("n desc") && text.contains("nullable"), "{text}");
}

#[test]
fn given_types_override_inferred_ones() {
    let w = TestDir::new();
    w.write("p.csv", b"code,n,data\n007,1,AP8=\n008,,\n");
    w.run_ok(&[
        "import",
        "db",
        "p.csv",
        "--table",
        "p",
        "--columns",
        "n:u8?,data:bytes,extra:text?",
    ]);
    assert_eq!(columns(&w, "db", "p"), "code:text,n:u8?,data:bytes,extra:text?");
    let lines = "{\"code\":\"007\",\"n\":1,\"data\":\"AP8=\",\"extra\":null}\n{\"code\":\"008\",\"n\":null,\"data\":\"\",\"extra\":null}\n";
    assert_eq!(w.run_ok(&["export", "db", "--table", "p"]), lines);
    let run = w.run_with(
        &["import", "db", "-", "--format", "csv", "--table", "s", "--columns", "a:i64,b:text?"],
        b"b,a\nx,2\n,1\n",
    );
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert_eq!(
        w.run_ok(&["export", "db", "--table", "s"]),
        "{\"a\":1,\"b\":null}\n{\"a\":2,\"b\":\"x\"}\n"
    );
    w.write("q.csv", b"code,n\n009,3\n");
    w.write("r.csv", b"n,code\n4,010\n");
    w.run_ok(&[
        "import",
        "db",
        "q.csv",
        "r.csv",
        "--table",
        "both",
        "--columns",
        "code:text,n:i32",
    ]);
    assert_eq!(w.run_ok(&["export", "db", "--table", "both"]).lines().count(), 2);
}

#[test]
fn rows_are_appended_atomically() {
    let w = TestDir::new();
    w.write("a.csv", b"id,n\n1,1\n2,\n");
    w.write("b.csv", b"n,id\n5,5\n3,3\n");
    w.write("c.csv", b"id,n\n7,7\n2,2\n");
    w.run_ok(&["import", "db", "a.csv", "--table", "t", "--unique-index", "by_n=n"]);
    w.run_ok(&["import", "db", "b.csv", "--table", "t", "--append"]);
    let e =
        w.run_failing(2, "c.csv line 3", &["import", "db", "c.csv", "--table", "t", "--append"]);
    assert_eq!(e["kind"], "key exists");
    w.write("d.csv", b"id,n\n8,8\n9,5\n");
    w.run_failing(2, "d.csv line 3", &["import", "db", "d.csv", "--table", "t", "--append"]);
    w.write("e.csv", b"id,m\n8,8\n");
    w.run_failing(2, "no column \"m\"", &["import", "db", "e.csv", "--table", "t", "--append"]);
    assert_eq!(w.run_ok(&["export", "db", "--table", "t"]).lines().count(), 4);
    w.run_failing(2, "no such table", &["import", "db", "e.csv", "--table", "u", "--append"]);
    w.run_failing(2, "does not exist", &["import", "new", "e.csv", "--table", "u", "--append"]);
    w.run_failing(
        2,
        "cannot be used with",
        &["import", "db", "a.csv", "--table", "t", "--append", "--key", "n"],
    );
}

/// An import of this text must fail with a message that contains the words, and leave no table.
fn assert_refused(name: &str, text: &[u8], args: &[&str], words: &str) -> Json {
    let w = TestDir::new();
    w.write(name, text);
    let e = w.run_failing(2, words, &[&["import", "db", name, "--table", "t"], args].concat());
    if w.path("db").exists() {
        assert_eq!(w.run_ok(&["families", "db"]), "default\n", "{name}");
    }
    e
}

#[test]
fn bad_rows_are_refused_with_line_and_column() {
    let refused = assert_refused;
    refused(
        "a.csv",
        b"id,n\n1,1\n2,x\n",
        &["--columns", "n:i64"],
        "a.csv line 3, column \"n\": \"x\" is no i64",
    );
    refused(
        "a.csv",
        b"id,n\n1,1\n2,\n",
        &["--columns", "n:i64"],
        "a.csv line 3, column \"n\": there is no value",
    );
    refused("a.csv", b"id,n\n1\n", &[], "line 2: the row has 1 cells, the header has 2");
    refused("a.csv", b"id,n\n1,\"x\n", &[], "line 2: cell 2: the closing quote is missing");
    refused("a.csv", b"id,n\n1,\xff\n", &[], "line 2: column \"n\" is not UTF-8");
    refused("a.csv", b"", &[], "the file is empty");
    refused("a.csv", b"id,id\n", &[], "two columns are called \"id\"");
    refused("a.csv", b"id,\n1,2\n", &[], "column 2 has no name");
    refused("a.csv", b"id,n\n\n1,1\n,2\n", &[], "a.csv line 4: the key column \"id\" has no value");
    refused(
        "a.csv",
        b"id,n\n1,1\n",
        &["--key", "m"],
        "no column \"m\" to use in the key; the columns are id, n",
    );
    refused("a.csv", b"id,n\n1,1\n", &["--key", "id,id"], "contains the column twice");
    refused("a.csv", b"id,n\n1,1\n", &["--index", "i=m"], "no such column");
    let two = ["--index", "i=n", "--unique-index", "i=id"];
    let e = refused("a.csv", b"id,n\n1,1\n", &two, "an index of this name");
    assert_eq!(e["hint"], "give each index another name");
    refused("a.csv", b"id,n\n1,1\n", &["--columns", "n:int"], "there is no type \"int\"");
    refused("a.csv", b"a\0b\n1\n", &[], "NUL");
    refused("a.csv", b"id,n\n1,1\n", &["--table", "u"], "only with --from-sqlite");
    refused("a.jsonl", b"{\"id\":1}\n[2]\n", &[], "a.jsonl line 2");
    refused("a.jsonl", b"{\"id\":1,\"a\\u0000b\":1}\n", &[], "NUL");
    refused("a.jsonl", b"{\"n\":1}\n", &[], "no field id or key");
    refused("a.jsonl", b"{\"id\":1,\"id\":2}\n", &[], "\"id\" occurs twice");
    refused("a.jsonl", b"{\"id\":1}\n{\"id\":\"\xff\"}\n", &[], "line 2: the line is not UTF-8");
    refused("a.txt", b"id\n1\n", &["--format", "entries"], "has no rows for a table");
    refused("a.csv", b"id,n\n1,1\n", &["--family", "f"], "cannot be used with");
    refused("a.csv", b"id,n\n1,1\n", &["--schema", "a.csv"], "perigee tables DB NAME --json");
    let e = refused(
        "a.csv",
        b"id,n\n1,a\n2,b\n\n1,c\n",
        &[],
        "a.csv line 2 and a.csv line 5 have the same primary key (1)",
    );
    assert_eq!(e["kind"], "key exists");
    refused(
        "a.csv",
        b"id,n\n1,a\n2,b\n3,a\n",
        &["--unique-index", "by_n=n"],
        "line 2 and a.csv line 4 have the same values (\"a\")",
    );
}

#[test]
fn wrong_arguments_create_nothing() {
    let w = TestDir::new();
    w.write("in/a", b"1");
    w.write("a.csv", b"id\n1\n");
    w.run_failing(2, "nowhere.csv", &["import", "db", "nowhere.csv", "--table", "t"]);
    w.run_failing(2, "has no rows", &["import", "db", "in", "--table", "t"]);
    w.run_failing(2, "read only once", &["import", "db", "-", "--format", "csv", "--table", "t"]);
    w.run_failing(
        2,
        "cannot be combined",
        &["import", "db", "-", "a.csv", "--format", "csv", "--table", "t"],
    );
    assert!(!w.path("db").exists());
    w.run_ok(&["import", "db", "a.csv", "--table", "t"]);
    w.run_failing(2, "already exists", &["import", "db", "a.csv", "--table", "t"]);
    w.run_failing(2, "1 to 200 bytes", &["import", "db", "a.csv", "--table", &"x".repeat(201)]);
    w.run_failing(2, "there is no table \"u\"", &["tables", "db", "u"]);
    w.run_failing(2, "there is no table \"u\"", &["export", "db", "--table", "u"]);
    w.run_failing(2, "tree of files", &["export", "db", "out", "--table", "t"]);
    w.run_failing(2, "already exists", &["export", "db", "a.csv", "--table", "t"]);
    w.run_failing(2, "cannot be used with", &["export", "db", "--table", "t", "--prefix", "x"]);
    w.run_failing(2, "does not exist", &["tables", "nowhere"]);
    assert_eq!(w.run_ok(&["families", "db"]), "@table/t\ndefault\n");
}

#[test]
fn interrupted_import_leaves_nothing_visible() {
    let w = TestDir::new();
    w.write("a.csv", b"id,n\n1,1\n");
    w.run_ok(&["import", "db", "a.csv", "--table", "other"]);
    let args =
        ["import", "db", "-", "--format", "csv", "--table", "t", "--columns", "id:i64,n:text"];
    let mut child = w.command().args(args).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let rows: String = (0..200_000).map(|id| format!("{id},value {id}\n")).collect();
    stdin.write_all(format!("id,n\n{rows}").as_bytes()).unwrap();
    // The tool has read most of the rows, because the pipe holds only the last 64 KiB.
    child.kill().unwrap();
    child.wait().unwrap();
    let names = w.run_json(&["tables", "db"])[0]["tables"].as_array().unwrap().len();
    assert_eq!(names, 1);
    w.run_failing(2, "there is no table", &["export", "db", "--table", "t"]);
    assert!(w.run_ok(&["families", "db"]).contains("@staged-table/t"), "the import was under way");
    w.run_ok(&["verify", "db"]);
    w.run_ok(&["import", "db", "a.csv", "--table", "t"]);
    assert_eq!(w.run_ok(&["families", "db"]), "@table/other\n@table/t\ndefault\n");
    assert_eq!(w.run_ok(&["export", "db", "--table", "t"]), "{\"id\":1,\"n\":1}\n");
}
