//! `import --table` and `export --table` with Parquet files. `data/people.parquet` and
//! `data/list.parquet` were written with pyarrow 26.
#![allow(clippy::unwrap_used)]

mod common;

use common::TestDir;

const CSV: &str = "id,n\n1,a\n2,\n";

/// Writes `a.csv` and imports it as table `t` of `db`.
fn create_table(w: &TestDir) {
    w.write("a.csv", CSV.as_bytes());
    w.run_ok(&["import", "db", "a.csv", "--table", "t"]);
}

#[test]
fn entries_are_not_parquet() {
    let w = TestDir::new();
    create_table(&w);
    w.run_failing(2, "only the rows of a table", &["export", "db", "t.parquet"]);
    w.run_failing(2, "only the rows of a table", &["export", "db", "--format", "parquet"]);
    w.write("t.parquet", b"PAR1");
    w.run_failing(2, "imported into a table", &["import", "new", "t.parquet"]);
    w.run_failing(2, "imported into a table", &["load", "new", "t.parquet"]);
    assert!(!w.path("new").exists());
}

#[cfg(not(feature = "parquet"))]
#[test]
fn build_without_the_feature_names_it() {
    let w = TestDir::new();
    create_table(&w);
    let lacks = "it lacks the feature `parquet`";
    let e = w.run_failing(2, lacks, &["export", "db", "t.parquet", "--table", "t"]);
    assert!(e["hint"].as_str().unwrap().contains("--features parquet"), "{e}");
    assert!(!w.path("t.parquet").exists());
    w.write("t.parquet", b"PAR1");
    w.run_failing(2, lacks, &["import", "new", "t.parquet", "--table", "t"]);
    assert!(!w.path("new").exists());
}

#[cfg(feature = "parquet")]
mod with_parquet {
    use super::common::{Random, TestDir, format_columns};
    use super::create_table;
    use perigee::{Db, Options};
    use perigee_tables::{
        Column, ColumnType, Schema, StagedTable, TableDb, Timestamp, Uuid, Value,
    };
    use serde_json::{Value as Json, json};
    use std::path::Path;

    /// Copies a file of `tests/data` to the directory.
    fn copy_sample(w: &TestDir, name: &str) -> Vec<u8> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
        let bytes = std::fs::read(path).unwrap();
        w.write(name, &bytes);
        bytes
    }

    fn columns(w: &TestDir, db: &str, table: &str) -> String {
        format_columns(&w.run_json(&["tables", db, table])[0])
    }

    fn lines(w: &TestDir, db: &str, table: &str) -> String {
        w.run_ok(&["export", db, "--table", table])
    }

    /// Values of a type, among them the least and the greatest.
    fn values_of(column_type: ColumnType) -> Vec<Value> {
        let text = |s: &str| Value::from(s);
        match column_type {
            ColumnType::Bool => vec![Value::Bool(false), Value::Bool(true)],
            ColumnType::I8 => vec![Value::I8(i8::MIN), Value::I8(i8::MAX)],
            ColumnType::I16 => vec![Value::I16(i16::MIN), Value::I16(i16::MAX)],
            ColumnType::I32 => vec![Value::I32(i32::MIN), Value::I32(i32::MAX)],
            ColumnType::I64 => vec![Value::I64(i64::MIN), Value::I64(i64::MAX)],
            ColumnType::I128 => vec![Value::I128(i128::MIN), Value::I128(i128::MAX)],
            ColumnType::U8 => vec![Value::U8(0), Value::U8(u8::MAX)],
            ColumnType::U16 => vec![Value::U16(0), Value::U16(u16::MAX)],
            ColumnType::U32 => vec![Value::U32(0), Value::U32(u32::MAX)],
            ColumnType::U64 => vec![Value::U64(0), Value::U64(u64::MAX)],
            ColumnType::U128 => vec![Value::U128(0), Value::U128(u128::MAX)],
            ColumnType::F32 => vec![
                Value::F32(-0.0),
                Value::F32(0.1),
                Value::F32(f32::NEG_INFINITY),
                Value::F32(f32::from_bits(0xffc0_0001)),
            ],
            ColumnType::F64 => vec![
                Value::F64(-0.0),
                Value::F64(5e-324),
                Value::F64(f64::INFINITY),
                Value::F64(f64::from_bits(0x7ff8_0000_0000_0001)),
            ],
            ColumnType::Timestamp => {
                vec![Value::Timestamp(Timestamp::MIN), Value::Timestamp(Timestamp::MAX)]
            }
            ColumnType::Uuid => vec![Value::Uuid(Uuid([0; 16])), Value::Uuid(Uuid([0xfe; 16]))],
            ColumnType::Text => vec![text(""), text("潮 \"\0\r\n\u{202e}"), text("NULL")],
            ColumnType::Bytes => vec![Value::Bytes(vec![]), Value::Bytes((0..=255).collect())],
            other => panic!("no values of type {other}"),
        }
    }

    fn rows(db: &Path, table: &str) -> (Schema, Vec<Vec<Value>>) {
        let db = Db::open(db, Options::new()).unwrap();
        let table = db.dyn_table(table).unwrap();
        let rows = table.scan().unwrap().map(|row| row.unwrap()).collect();
        (table.schema(), rows)
    }

    /// A table with a column of each type and a nullable one of each type.
    fn create_wide_table(w: &TestDir, number: u64) {
        let mut schema = Schema::new().key("id", ColumnType::U64);
        for &column_type in ColumnType::ALL {
            let name = column_type.name();
            schema = schema.add(Column::new(name, column_type));
            schema = schema.add(Column::new(format!("{name}, NULL"), column_type).nullable());
        }
        let db = Db::open(w.path("db"), Options::new()).unwrap();
        let staged = StagedTable::create(&db, "wide", schema, &[]).unwrap();
        let mut random = Random(7);
        let rows = (0..number).map(|id| {
            let mut row = vec![Value::U64(id)];
            for &column_type in ColumnType::ALL {
                let values = values_of(column_type);
                let value = values[random.below(values.len() as u64) as usize].clone();
                row.extend([value.clone(), if random.one_in(3) { Value::Null } else { value }]);
            }
            row
        });
        staged.table().load(rows).unwrap();
        drop(staged.publish().unwrap());
        db.close().unwrap();
    }

    #[test]
    fn all_types_and_null_are_the_same_after_an_export_and_an_import() {
        let w = TestDir::new();
        create_wide_table(&w, 20_000);
        let expected = rows(&w.path("db"), "wide");
        let summary = w.run_json(&["export", "db", "wide.parquet", "--table", "wide"]).remove(0);
        assert_eq!(summary["exported"]["rows"], 20_000);
        let columns = summary["exported"]["columns"].as_str().unwrap();
        assert!(columns.starts_with("id:u64,bool:bool,bool, NULL:bool?"), "{columns}");
        // All types except u128 are in the file.
        w.run_failing(
            2,
            "wide.parquet, column \"u128\": 340282366920938463463374607431768211455 is no i128",
            &["import", "inferred", "wide.parquet", "--table", "wide"],
        );
        assert_eq!(w.run_ok(&["families", "inferred"]), "default\n");
        let definition = w.run_ok(&["tables", "db", "wide", "--json"]);
        w.write("schema.json", definition.as_bytes());
        let import = ["wide.parquet", "--table", "wide", "--schema", "schema.json"];
        let summary = w.run_json(&[&["import", "copy"], &import[..]].concat()).remove(0);
        assert_eq!(summary["imported"]["rows"], 20_000);
        assert!(rows(&w.path("copy"), "wide") == expected);
        w.run_ok(&["verify", "copy"]);
        // On stdout, the bytes are the same.
        let stdout = w.run(&["export", "db", "--table", "wide", "--format", "parquet"]);
        assert_eq!(stdout.code, 0, "{}", stdout.stderr);
        assert!(stdout.stdout == std::fs::read(w.path("wide.parquet")).unwrap());
    }

    #[test]
    fn types_and_nullability_come_from_the_file() {
        let w = TestDir::new();
        copy_sample(&w, "people.parquet");
        let args =
            ["import", "db", "people.parquet", "--table", "people", "--index", "by_name=name"];
        let text = w.run_ok(&args);
        assert!(text.starts_with("imported 3 rows into 1 table"), "{text}");
        assert_eq!(
            columns(&w, "db", "people"),
            "id:i32,name:text?,born:timestamp?,seen:timestamp?,balance:i128?,score:f32?,\
             photo:bytes?,flag:bool?"
        );
        let expected = [
            json!({"id": 1, "name": null, "born": null, "seen": "1970-01-01T00:00:01.5Z",
                "balance": null, "score": null, "photo": "", "flag": null}),
            json!({"id": 2, "name": "潮", "born": "1969-07-20T00:00:00Z", "seen": null,
                "balance": -1, "score": 2.0, "photo": null, "flag": false}),
            json!({"id": 3, "name": "carl", "born": "1999-12-31T00:00:00Z",
                "seen": "1970-01-01T00:00:00Z", "balance": 100_000_000_000_000_000_i64,
                "score": 0.5, "photo": "AP8=", "flag": true}),
        ];
        let exported = lines(&w, "db", "people");
        let exported: Vec<Json> =
            exported.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(exported, expected);
        w.run_ok(&[
            "import",
            "db",
            "people.parquet",
            "--table",
            "typed",
            "--key",
            "id desc",
            "--columns",
            "id:u8,balance:i64?,score:f64?,new:text?",
        ]);
        assert_eq!(
            columns(&w, "db", "typed"),
            "id:u8,name:text?,born:timestamp?,seen:timestamp?,balance:i64?,score:f64?,\
             photo:bytes?,flag:bool?,new:text?"
        );
        assert!(lines(&w, "db", "typed").starts_with("{\"id\":3,"));
    }

    #[test]
    fn several_files_and_appends_form_one_table() {
        let w = TestDir::new();
        create_table(&w);
        w.write("b.csv", b"m,id\n0.5,3\n");
        w.run_ok(&["import", "db", "b.csv", "--table", "u", "--key", "id"]);
        w.run_ok(&["export", "db", "a.parquet", "--table", "t"]);
        w.run_ok(&["export", "db", "b.parquet", "--table", "u"]);
        w.run_ok(&["import", "db", "a.parquet", "b.parquet", "--table", "both"]);
        assert_eq!(columns(&w, "db", "both"), "id:i64,n:text?,m:f64?");
        let expected = "{\"id\":1,\"n\":\"a\",\"m\":null}\n{\"id\":2,\"n\":null,\"m\":null}\n{\"id\":3,\"n\":null,\"m\":0.5}\n";
        assert_eq!(lines(&w, "db", "both"), expected);
        let append = |file: &'static str| ["import", "db", file, "--table", "both", "--append"];
        let e = w.run_failing(2, "key (1)", &append("a.parquet"));
        assert_eq!(e["kind"], "key exists");
        assert_eq!(lines(&w, "db", "both"), expected);
        w.run_failing(
            2,
            " and a.parquet row ",
            &["import", "db", "a.parquet", "a.parquet", "--table", "twice"],
        );
        w.write("c.csv", b"id,m\n4,1.5\n");
        w.run_ok(&["import", "db", "c.csv", "--table", "v"]);
        w.run_ok(&["export", "db", "c.parquet", "--table", "v"]);
        w.run_ok(&append("c.parquet"));
        assert!(lines(&w, "db", "both").ends_with("\n{\"id\":4,\"n\":null,\"m\":1.5}\n"));
    }

    #[test]
    fn types_without_a_counterpart_are_refused_by_column() {
        let w = TestDir::new();
        copy_sample(&w, "list.parquet");
        copy_sample(&w, "people.parquet");
        let refused = |words: &str, file: &str, args: &[&str]| {
            w.run_failing(2, words, &[&["import", "db", file, "--table", "t"], args].concat());
        };
        let no_type = "list.parquet, column \"tags\": tables have no type for the Arrow type List";
        refused(no_type, "list.parquet", &[]);
        assert!(!w.path("db").exists());
        refused(no_type, "list.parquet", &["--columns", "tags:text"]);
        let people = "people.parquet";
        refused(
            "column \"name\": NULL in a column that is not nullable",
            people,
            &["--key", "name"],
        );
        refused("column \"id\": 3 is no bool", people, &["--columns", "id:bool"]);
        refused("no column \"m\" to use in the key", people, &["--key", "m"]);
        refused("read from stdin", "-", &["--format", "parquet"]);
        refused("is not a file", ".", &["--format", "parquet"]);
        w.write("a.csv", b"id\n1\n");
        refused("other formats", "a.csv", &[people]);
        assert_eq!(w.run_ok(&["families", "db"]), "default\n");
    }

    #[test]
    fn damaged_files_are_refused_and_change_nothing() {
        let w = TestDir::new();
        create_table(&w);
        let before = lines(&w, "db", "t");
        let bytes = copy_sample(&w, "people.parquet");
        let import = |file: &str| {
            for db in ["db", "new"] {
                let args = ["import", db, file, "--table", "people"];
                let e = w.run_failing(2, file, &args);
                assert!(e["hint"].as_str().unwrap().contains("not a Parquet file"), "{e}");
            }
            let e = w.run_failing(2, file, &["import", "db", file, "--table", "t", "--append"]);
            assert!(e["message"].as_str().unwrap().contains(file), "{e}");
        };
        w.write("text.parquet", b"id,n\n1,2\n");
        import("text.parquet");
        w.write("empty.parquet", b"");
        import("empty.parquet");
        for cut in [3, 100, bytes.len() / 2, bytes.len() - 1] {
            w.write("cut.parquet", &bytes[..cut]);
            import("cut.parquet");
        }
        assert!(!w.path("new").exists());
        w.run_failing(2, "nowhere.parquet", &["import", "new", "nowhere.parquet", "--table", "p"]);
        assert_eq!(w.run_ok(&["families", "db"]), "@table/t\ndefault\n");
        assert_eq!(lines(&w, "db", "t"), before);
    }

    #[test]
    fn changed_bytes_are_an_error_or_other_values() {
        let w = TestDir::new();
        let bytes = copy_sample(&w, "people.parquet");
        let mut random = Random(11);
        for i in 0..60 {
            let mut damaged = bytes.clone();
            for _ in 0..1 + random.below(3) {
                damaged[random.below(bytes.len() as u64) as usize] = random.next() as u8;
            }
            w.write("p.parquet", &damaged);
            let db = format!("db{i}");
            // `run` fails if the tool panics.
            let run = w.run(&["import", &db, "p.parquet", "--table", "p"]);
            assert!(run.code == 0 || run.code == 2, "{}", run.stderr);
            if run.code == 2 && w.path(&db).exists() {
                assert_eq!(w.run_ok(&["families", &db]), "default\n");
            }
        }
    }
}
