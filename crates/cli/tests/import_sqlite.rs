//! Import of SQLite databases into tables, compared with the source row by row.
#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used)]

use crate::common::{Random, TestDir, format_columns};
use perigee::{Db, Options};
use perigee_tables::{ColumnType, TableDb, Value};
use rusqlite::Connection;
use rusqlite::types::Value as SqliteValue;
use std::path::Path;

const SCHEMA: &str = "
CREATE TABLE person (id INTEGER PRIMARY KEY, name TEXT NOT NULL, mail TEXT UNIQUE, age INT,
    balance NUMERIC, photo BLOB, score REAL, anything, twice INT AS (age * 2), flag BOOLEAN DEFAULT 1);
CREATE INDEX person_by_name ON person (name, age DESC);
CREATE INDEX adults ON person (name) WHERE age >= 18;
CREATE INDEX by_length ON person (length(name));
CREATE INDEX by_twice ON person (twice);
CREATE INDEX by_name_nocase ON person (name COLLATE NOCASE);
CREATE UNIQUE INDEX by_age_id ON person (age, id);
CREATE TABLE visit (city TEXT, day INT, note TEXT, PRIMARY KEY (day DESC, city)) WITHOUT ROWID;
CREATE TABLE code (code TEXT PRIMARY KEY, person INT REFERENCES person (id), a INT, b INT, UNIQUE (b, a));
CREATE TABLE log (message TEXT COLLATE NOCASE, level);
CREATE INDEX log_level ON log (level);
CREATE TABLE counter (id INTEGER PRIMARY KEY AUTOINCREMENT, n INT CHECK (n > 0));
CREATE TABLE empty (a INT, b VARCHAR(10), c BLOB, d DOUBLE, e, PRIMARY KEY (b));
CREATE TABLE nullable_key (k TEXT PRIMARY KEY, v INT);
CREATE TABLE \"odd \"\"name\"\"\" (\"rowid\" TEXT, \"select\" INT, \"x,y\" REAL);
CREATE TABLE large (n NUMERIC);
CREATE VIEW grown_up AS SELECT * FROM person WHERE age >= 18;
CREATE TRIGGER counting AFTER INSERT ON person BEGIN UPDATE counter SET n = n + 1; END;
CREATE VIRTUAL TABLE texts USING fts5(body);
";

/// Creates a database with all kinds of columns, keys and indexes.
fn create_source(path: &Path, rows: i64) -> Connection {
    let db = Connection::open(path).unwrap();
    db.execute_batch("PRAGMA foreign_keys = OFF").unwrap();
    db.execute_batch(SCHEMA).unwrap();
    db.execute_batch("BEGIN").unwrap();
    for i in 0..rows {
        let n = i * 7919 % rows;
        let age = (i % 5 != 0).then_some(i % 90);
        let balance: SqliteValue = match i % 3 {
            0 => SqliteValue::Integer(i),
            1 => SqliteValue::Real(i as f64 / 8.0),
            _ => SqliteValue::Null,
        };
        let anything: SqliteValue = match i % 4 {
            0 => SqliteValue::Integer(i),
            1 => SqliteValue::Text(format!("t\0{i}")),
            2 => SqliteValue::Blob(vec![0, 255, i as u8]),
            _ => SqliteValue::Real(0.1 * i as f64),
        };
        let mail = (i % 4 != 0).then(|| format!("{n}@example.org"));
        let photo: Option<Vec<u8>> = (i % 2 == 0).then(|| (0..n % 600).map(|b| b as u8).collect());
        db.execute(
            "INSERT INTO person (id, name, mail, age, balance, photo, score, anything)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            (
                n - 50,
                format!("name {} 潮", n % 100),
                mail,
                age,
                balance,
                photo,
                n as f64 * 1e-3,
                anything,
            ),
        )
        .unwrap();
        let city = format!("city {}", i % 10);
        let note = (i % 2 == 0).then_some("");
        db.execute("INSERT INTO visit VALUES (?1, ?2, ?3)", (city, i / 10, note)).unwrap();
        let code = format!("c{}", n * 31);
        db.execute("INSERT INTO code VALUES (?1, ?2, ?3, ?4)", (code, n, i, i % 3)).unwrap();
        let level =
            if i % 2 == 0 { SqliteValue::Integer(i) } else { SqliteValue::Text("7".into()) };
        db.execute("INSERT INTO log VALUES (?1, ?2)", (format!("m{}", i % 3), level)).unwrap();
        let key = (i % 3 != 0).then(|| format!("k{i}"));
        db.execute("INSERT INTO nullable_key VALUES (?1, ?2)", (key, i)).unwrap();
        let odd = "INSERT INTO \"odd \"\"name\"\"\" VALUES (?1, ?2, ?3)";
        db.execute(odd, (format!("r{i}"), -i, i as f64 / 3.0)).unwrap();
    }
    db.execute_batch("INSERT INTO counter (n) VALUES (1); DELETE FROM log WHERE rowid % 7 = 0")
        .unwrap();
    let photo = vec![0xa5; 3 << 20];
    db.execute("INSERT INTO person (id, name, photo) VALUES (-1000, 'large', ?1)", [photo])
        .unwrap();
    let large = [(1i64 << 53).to_string(), ((1i64 << 60) + 1).to_string(), "0.5".to_owned()];
    for n in large {
        db.execute_batch(&format!("INSERT INTO large VALUES ({n})")).unwrap();
    }
    db.execute_batch("INSERT INTO texts VALUES ('hidden'); COMMIT").unwrap();
    db
}

/// Returns what a value of SQLite must become in a column of this type.
fn expected_value(value: SqliteValue, column_type: ColumnType) -> Value {
    let number = |text: String| match column_type {
        ColumnType::Bytes => Value::Bytes(text.into_bytes()),
        _ => Value::Text(text),
    };
    match (value, column_type) {
        (SqliteValue::Null, _) => Value::Null,
        (SqliteValue::Integer(n), ColumnType::I64) => Value::I64(n),
        (SqliteValue::Integer(n), ColumnType::F64) => Value::F64(n as f64),
        (SqliteValue::Real(v), ColumnType::F64) => Value::F64(v),
        (SqliteValue::Integer(n), _) => number(n.to_string()),
        (SqliteValue::Real(v), _) => number(format!("{v:?}")),
        (SqliteValue::Text(t), ColumnType::Text) => Value::Text(t),
        (SqliteValue::Text(t), _) => Value::Bytes(t.into_bytes()),
        (SqliteValue::Blob(b), _) => Value::Bytes(b),
    }
}

/// Compares a table with the result of a query, which must return all columns in their order.
fn assert_same_rows(db: &Db, table: &str, source: &Connection, query: &str) {
    let table = db.dyn_table(table).unwrap();
    let schema = table.schema();
    let mut expected = Vec::new();
    let mut statement = source.prepare(query).unwrap();
    let mut rows = statement.query([]).unwrap();
    while let Some(row) = rows.next().unwrap() {
        let value = |(i, c): (usize, &perigee_tables::Column)| {
            expected_value(row.get(i).unwrap(), c.column_type)
        };
        expected.push(schema.columns().iter().enumerate().map(value).collect::<Vec<_>>());
    }
    let key: Vec<(usize, bool)> = schema
        .key_columns()
        .iter()
        .map(|k| {
            (schema.position(&k.column).unwrap(), k.order == perigee_tables::Order::Descending)
        })
        .collect();
    expected.sort_by(|a, b| {
        let parts =
            key.iter().map(|(i, down)| if *down { b[*i].cmp(&a[*i]) } else { a[*i].cmp(&b[*i]) });
        parts.fold(std::cmp::Ordering::Equal, std::cmp::Ordering::then)
    });
    let rows: Vec<Vec<Value>> = table.scan().unwrap().map(|r| r.unwrap()).collect();
    assert_eq!(rows.len(), expected.len(), "{table:?}");
    assert!(rows == expected, "{table:?}: {:?} is not {:?}", rows[0], expected[0]);
    for index in table.indexes().unwrap() {
        let through_index = table.index(index.name()).unwrap();
        assert_eq!(through_index.scan().unwrap().count(), rows.len(), "{index:?}");
    }
}

#[test]
fn all_tables_are_imported_row_by_row() {
    let w = TestDir::new();
    let source = create_source(&w.path("app.db"), 1000);
    let report = w.run_json(&["import", "db", "--from-sqlite", "app.db"]).remove(0);
    let db = Db::open(w.path("db"), Options::new()).unwrap();
    let same = |table: &str, query: &str| assert_same_rows(&db, table, &source, query);
    same(
        "person",
        "SELECT * FROM (SELECT id, name, mail, age, balance, photo, score, anything, flag FROM person)",
    );
    same("visit", "SELECT * FROM visit");
    same("code", "SELECT * FROM code");
    same("log", "SELECT rowid, * FROM log");
    same("counter", "SELECT * FROM counter");
    same("empty", "SELECT * FROM empty");
    same("nullable_key", "SELECT rowid, * FROM nullable_key");
    same("odd \"name\"", "SELECT _rowid_, * FROM \"odd \"\"name\"\"\"");
    same("large", "SELECT rowid, * FROM large");
    let described = |table: &str| {
        let table = w.run_json(&["tables", "db", table]).remove(0);
        let key = table["key"].as_array().unwrap().iter().map(|k| k["column"].as_str().unwrap());
        format!("{} key {}", format_columns(&table), key.collect::<Vec<_>>().join(" "))
    };
    let person = "id:i64,name:text,mail:text?,age:i64?,balance:f64?,photo:bytes?,score:f64?,anything:bytes?,flag:i64? key id";
    assert_eq!(described("person"), person);
    assert_eq!(described("visit"), "city:text,day:i64,note:text? key day city");
    assert_eq!(described("log"), "rowid:i64,message:text?,level:text? key rowid");
    assert_eq!(described("empty"), "a:i64?,b:text,c:bytes?,d:f64?,e:bytes? key b");
    assert_eq!(described("nullable_key"), "rowid:i64,k:text?,v:i64? key rowid");
    assert_eq!(described("large"), "rowid:i64,n:text? key rowid");
    assert!(described("odd \"name\"").starts_with("_rowid_:i64,rowid:text?"));

    let indexes = |table: &str| {
        let all = db.dyn_table(table).unwrap().indexes().unwrap();
        let unique = |i: &perigee_tables::IndexDef| if i.is_unique() { "!" } else { "" };
        all.iter().map(|i| format!("{}{}", i.name(), unique(i))).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(indexes("person"), "by_age_id! person_by_name unique_mail!");
    assert_eq!(indexes("code"), "unique_b_a!");
    assert_eq!(indexes("nullable_key"), "primary_key!");
    assert_eq!(indexes("log"), "log_level");
    let users = db.dyn_table("person").unwrap();
    let by_mail = users.index("unique_mail").unwrap();
    assert_eq!(by_mail.prefix("1@example.org").unwrap().count(), 1);

    let listed = |kind: &str| -> Vec<String> {
        let all = report["imported"]["not_imported"].as_array().unwrap();
        let named = all.iter().filter(|n| n["kind"] == kind);
        named.map(|n| n["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(listed("view"), ["grown_up"]);
    assert_eq!(listed("trigger"), ["counting"]);
    assert_eq!(listed("virtual table"), ["texts"]);
    assert_eq!(listed("generated column"), ["twice"]);
    assert_eq!(listed("partial index"), ["adults"]);
    assert_eq!(listed("index"), ["by_length", "by_name_nocase", "by_twice"]);
    assert_eq!(listed("foreign key"), ["person -> person"]);
    assert_eq!(listed("collation"), ["NOCASE"]);
    assert_eq!(listed("default"), ["flag"]);
    assert_eq!(listed("autoincrement"), ["id"]);
    assert_eq!(listed("check"), ["counter"]);
    let widened = report["imported"]["widened"].as_array().unwrap();
    let widened: Vec<_> = widened.iter().map(|w| w["column"].as_str().unwrap()).collect();
    assert_eq!(widened, ["n", "level", "anything"]);
    db.close().unwrap();
    w.run_ok(&["verify", "db"]);
}

#[test]
fn generated_index_names_differ_from_other_names() {
    let w = TestDir::new();
    let source = Connection::open(w.path("a.db")).unwrap();
    let long = format!("c{}", "x".repeat(200));
    source
        .execute_batch(&format!(
            "CREATE TABLE t (k TEXT PRIMARY KEY, a INT UNIQUE, b INT, \"b_c\" INT UNIQUE, c INT,
                {long} INT, UNIQUE (b, c), UNIQUE ({long}, {long}, k, b), UNIQUE ({long}, b));
            CREATE INDEX unique_a ON t (b);
            CREATE INDEX primary_key ON t (c);
            CREATE INDEX primary_key_2 ON t (a) WHERE a > 0;
            INSERT INTO t VALUES (NULL, 1, 2, 3, 4, 5), ('k', 2, 3, 4, 5, 6)"
        ))
        .unwrap();
    w.run_ok(&["import", "db", "--from-sqlite", "a.db"]);
    let db = Db::open(w.path("db"), Options::new()).unwrap();
    let mut indexes: Vec<String> = db
        .dyn_table("t")
        .unwrap()
        .indexes()
        .unwrap()
        .iter()
        .map(|i| {
            let columns: Vec<&str> = i.columns().iter().map(|c| c.column.as_str()).collect();
            format!("{} {}", i.name(), columns.join(",")).replace(&long, "long")
        })
        .collect();
    indexes.sort();
    let expected = [
        "primary_key c",
        "primary_key_2 k",
        "unique_a b",
        "unique_a_2 a",
        "unique_b_c b_c",
        "unique_b_c_2 b,c",
        "unique_long_b long,b",
        "unique_long_k_b long,k,b",
    ];
    assert_eq!(indexes, expected);
}

#[test]
fn summary_lists_tables_and_skipped_things() {
    let w = TestDir::new();
    create_source(&w.path("app.db"), 100);
    let text = w.run_ok(&["import", "db", "--from-sqlite", "app.db"]);
    for part in [
        "into 9 tables",
        "not imported: view grown_up",
        "column level of log: the values have several types",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let strict = ["import", "db2", "--from-sqlite", "app.db", "--strict"];
    w.run_failing(2, "strict", &strict);
    w.run_failing(2, "the values have several types", &strict);
    assert!(!w.path("db2").exists(), "nothing is created if the source is refused");
    w.run_ok(&[
        "import",
        "one",
        "--from-sqlite",
        "app.db",
        "--table",
        "visit",
        "--table",
        "code",
        "--strict",
    ]);
    assert_eq!(w.run_ok(&["families", "one"]), "@table/code\n@table/visit\ndefault\n");
    w.run_failing(
        2,
        "has no table \"nowhere\"",
        &["import", "x", "--from-sqlite", "app.db", "--table", "nowhere"],
    );
    let e = w.run_failing(
        2,
        "there is a table \"code\"",
        &["import", "one", "--from-sqlite", "app.db"],
    );
    assert_eq!(e["kind"], "already exists");
    assert_eq!(w.run_ok(&["families", "one"]), "@table/code\n@table/visit\ndefault\n");
}

#[test]
fn uncommitted_rows_are_not_imported() {
    let w = TestDir::new();
    let source = Connection::open(w.path("live.db")).unwrap();
    source
        .execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT)")
        .unwrap();
    source
        .execute_batch(
            "INSERT INTO t VALUES (1, 'committed'); BEGIN; INSERT INTO t VALUES (2, 'pending')",
        )
        .unwrap();
    w.run_ok(&["import", "db", "--from-sqlite", "live.db"]);
    assert_eq!(w.run_ok(&["export", "db", "--table", "t"]), "{\"id\":1,\"v\":\"committed\"}\n");
    source.execute_batch("COMMIT").unwrap();
    w.run_ok(&["import", "db2", "--from-sqlite", "live.db"]);
    assert_eq!(w.run_ok(&["export", "db2", "--table", "t"]).lines().count(), 2);
}

#[test]
fn other_files_are_refused() {
    let w = TestDir::new();
    let import = |file: &str, code: i32, word: &str| {
        let e = w.run_failing(code, word, &["import", "db", "--from-sqlite", file]);
        assert!(!w.path("db").exists(), "{file} created a database");
        e
    };
    import("nowhere.db", 2, "nowhere.db");
    w.write("empty.db", b"");
    import("empty.db", 2, "is empty");
    std::fs::create_dir(w.path("dir")).unwrap();
    import("dir", 2, "is not a file");
    w.write("text.db", "a text that is long enough to be no header ".repeat(50).as_bytes());
    import("text.db", 2, "is not a SQLite database");
    drop(create_source(&w.path("app.db"), 1000));
    let bytes = std::fs::read(w.path("app.db")).unwrap();
    w.write("cut.db", &bytes[..bytes.len() / 2]);
    let e = import("cut.db", 2, "damaged");
    assert_eq!(e["kind"], "corruption");
    let mut damaged = bytes.clone();
    for page in 3..20 {
        damaged[page * 4096..page * 4096 + 200].fill(0xa5);
    }
    w.write("damaged.db", &damaged);
    import("damaged.db", 2, "damaged");
    let bare = Connection::open(w.path("bare.db")).unwrap();
    bare.execute_batch("CREATE VIEW v AS SELECT 1").unwrap();
    drop(bare);
    import("bare.db", 2, "has no tables");
    w.run_failing(
        2,
        "cannot be used with",
        &["import", "db", "--from-sqlite", "app.db", "--key", "id"],
    );
}

#[test]
fn values_that_do_not_fit_name_table_rowid_and_column() {
    let w = TestDir::new();
    let source = Connection::open(w.path("a.db")).unwrap();
    source
        .execute_batch(
            "CREATE TABLE t (a TEXT); INSERT INTO t VALUES ('ok'), (CAST(x'ff' AS TEXT))",
        )
        .unwrap();
    let e = w.run_failing(
        2,
        "table \"t\", rowid 2, column \"a\"",
        &["import", "db", "--from-sqlite", "a.db"],
    );
    assert!(e["message"].as_str().unwrap().contains("UTF-8"), "{e}");
    assert_eq!(w.run_ok(&["tables", "db"]), "no tables\n");
    // Values that SQLite distinguishes and the wider type does not.
    source
        .execute_batch(
            "DROP TABLE t; CREATE TABLE t (a PRIMARY KEY); INSERT INTO t VALUES ('1'), (1)",
        )
        .unwrap();
    w.run_failing(
        2,
        "rowid 1 and table \"t\", rowid 2 have the same primary key",
        &["import", "db", "--from-sqlite", "a.db"],
    );
    assert_eq!(w.run_ok(&["families", "db"]), "default\n");
}

/// Returns a random value of one of the first `classes` storage classes.
fn random_value(random: &mut Random, classes: u64) -> SqliteValue {
    match random.below(classes) {
        0 => SqliteValue::Null,
        1 => SqliteValue::Integer(random.below(1 << 31) as i64 - (1 << 30)),
        2 => SqliteValue::Real(random.below(1 << 31) as f64 / 64.0 - 1e6),
        3 => SqliteValue::Text(format!("'潮\0\"{}", random.below(1000))),
        _ => SqliteValue::Blob((0..random.below(40)).map(|b| b as u8).collect()),
    }
}

#[test]
fn random_tables_are_imported_row_by_row() {
    let types = ["INTEGER", "TEXT", "BLOB", "REAL", "NUMERIC", "", "VARCHAR(9)", "BOOLEAN", "ANY"];
    for seed in 0..10 {
        let w = TestDir::new();
        let mut random = Random(seed * 31 + 1);
        let source = Connection::open(w.path("a.db")).unwrap();
        let columns = 1 + random.below(6);
        let classes: Vec<u64> = (0..columns).map(|_| 1 + random.below(5)).collect();
        let column = |i| format!("c{i} {}", types[random.below(9) as usize]);
        let declared: Vec<String> = (0..columns).map(column).collect();
        let without_rowid = random.below(3) == 0;
        let (key, suffix) = match (without_rowid, random.below(2)) {
            (true, _) => ("k INT, PRIMARY KEY (k DESC)", " WITHOUT ROWID"),
            (_, 0) => ("k INTEGER PRIMARY KEY", ""),
            _ => ("k INT NOT NULL", ""),
        };
        let sql = format!("CREATE TABLE t ({}, {key}){suffix}", declared.join(", "));
        source.execute_batch(&sql).unwrap();
        source.execute_batch("CREATE INDEX i ON t (c0 DESC, k); BEGIN").unwrap();
        for i in 0..400i64 {
            let mut row: Vec<SqliteValue> =
                classes.iter().map(|c| random_value(&mut random, *c)).collect();
            row.push(SqliteValue::Integer(i * 7919 % 400));
            let marks = vec!["?"; row.len()].join(", ");
            let insert = format!("INSERT INTO t VALUES ({marks})");
            source.execute(&insert, rusqlite::params_from_iter(row)).unwrap();
        }
        source.execute_batch("COMMIT").unwrap();
        w.run_ok(&["import", "db", "--from-sqlite", "a.db"]);
        let db = Db::open(w.path("db"), Options::new()).unwrap();
        let rowid = if key == "k INT NOT NULL" { "rowid, " } else { "" };
        assert_same_rows(&db, "t", &source, &format!("SELECT {rowid}* FROM t"));
        db.close().unwrap();
    }
}
