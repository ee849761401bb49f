//! Tables with random schemas and rows are the same after an export and an import.
#![allow(clippy::unwrap_used)]

use crate::common::{Random, TestDir};
use perigee::{Db, Options};
use perigee_tables::{
    Column, ColumnType, IndexDef, Order, Schema, StagedTable, TableDb, Timestamp, Uuid, Value,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

impl Random {
    fn bits(&mut self) -> u128 {
        let bits = u128::from(self.next()) << 64 | u128::from(self.next());
        bits >> self.below(128)
    }
    fn text(&mut self) -> String {
        let parts = [
            "", "a", ",", "\"", "\n", "\r", "\r\n", " ", "\t", "潮", "\0", "\u{feff}", "\\N",
            "NULL", "null", "\u{202e}", "0", "{", "true",
        ];
        (0..self.below(6)).map(|_| parts[self.below(parts.len() as u64) as usize]).collect()
    }
    fn value(&mut self, column_type: ColumnType) -> Value {
        let bits = self.bits();
        match column_type {
            ColumnType::Bool => Value::Bool(self.one_in(2)),
            ColumnType::I8 => Value::I8(bits as i8),
            ColumnType::I16 => Value::I16(bits as i16),
            ColumnType::I32 => Value::I32(bits as i32),
            ColumnType::I64 => Value::I64(bits as i64),
            ColumnType::I128 => Value::I128(bits as i128),
            ColumnType::U8 => Value::U8(bits as u8),
            ColumnType::U16 => Value::U16(bits as u16),
            ColumnType::U32 => Value::U32(bits as u32),
            ColumnType::U64 => Value::U64(bits as u64),
            ColumnType::U128 => Value::U128(bits),
            ColumnType::F32 => Value::F32(f32::from_bits(self.next() as u32)),
            ColumnType::F64 if self.one_in(3) => {
                let special =
                    [0.0, -0.0, f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 5e-324, 0.1];
                Value::F64(special[self.below(8) as usize])
            }
            ColumnType::F64 => Value::F64(f64::from_bits(self.next())),
            ColumnType::Timestamp => Value::Timestamp(Timestamp::from_micros(bits as i64)),
            ColumnType::Uuid => Value::Uuid(Uuid(bits.to_be_bytes())),
            ColumnType::Text => Value::Text(self.text()),
            ColumnType::Bytes => {
                Value::Bytes(bits.to_le_bytes()[..self.below(16) as usize].to_vec())
            }
            other => panic!("no values of type {other}"),
        }
    }
    fn column_type(&mut self) -> ColumnType {
        ColumnType::ALL[self.below(ColumnType::ALL.len() as u64) as usize]
    }
    fn order(&mut self) -> Order {
        if self.one_in(2) { Order::Ascending } else { Order::Descending }
    }
    fn schema(&mut self) -> Schema {
        let mut schema = Schema::new();
        let columns = 1 + self.below(8);
        for i in 0..columns {
            let name = format!(
                "{}{i}",
                ["c", "a b", "x,\"y\"", "zeit:潮", "\u{feff}"][self.below(5) as usize]
            );
            let column = Column::new(name, self.column_type());
            let column = if i > 0 && self.one_in(2) { column.nullable() } else { column };
            schema = schema.add(column);
        }
        let can_be_key = |c: &&Column| !c.nullable;
        let mut keys: Vec<String> =
            schema.columns().iter().filter(can_be_key).map(|c| c.name.clone()).collect();
        keys.truncate(1 + self.below(3) as usize);
        keys.reverse();
        let schema = keys.into_iter().fold(schema, |s, name| s.key_column(name, self.order()));
        if self.one_in(3) { schema.ttl(Duration::from_secs(1_000_000)) } else { schema }
    }
}

fn rows(db: &Path, table: &str) -> (Schema, Vec<IndexDef>, Vec<Vec<Value>>) {
    let db = Db::open(db, Options::new()).unwrap();
    let table = db.dyn_table(table).unwrap();
    let rows = table.scan().unwrap().map(|row| row.unwrap()).collect();
    (table.schema(), table.indexes().unwrap(), rows)
}

#[test]
fn exported_tables_are_the_same_after_an_import() {
    for seed in 0..12 {
        let w = TestDir::new();
        let mut random = Random(seed * 977 + 13);
        let schema = random.schema();
        let db = Db::open(w.path("db"), Options::new()).unwrap();
        let last = &schema.columns()[schema.columns().len() - 1].name;
        let index = IndexDef::new("by last").add(last, random.order());
        let staged = StagedTable::create(&db, "t", schema.clone(), &[index]).unwrap();
        let mut by_key = BTreeMap::new();
        for _ in 0..300 {
            let value = |c: &Column| {
                let null = c.nullable && random.one_in(4);
                if null { Value::Null } else { random.value(c.column_type) }
            };
            let row: Vec<Value> = schema.columns().iter().map(value).collect();
            let position =
                |k: &perigee_tables::KeyColumn| row[schema.position(&k.column).unwrap()].clone();
            let key: Vec<Value> = schema.key_columns().iter().map(position).collect();
            by_key.insert(key, row);
        }
        staged.table().load(by_key.into_values()).unwrap();
        drop(staged.publish().unwrap());
        db.close().unwrap();
        let expected = rows(&w.path("db"), "t");
        let definition = w.run_ok(&["tables", "db", "t", "--json"]);
        w.write("t.schema.json", definition.as_bytes());
        for file in ["t.csv", "t.jsonl"] {
            w.run_ok(&["export", "db", file, "--table", "t"]);
            let copy = format!("{file}.copy");
            w.run_ok(&["import", &copy, file, "--table", "t", "--schema", "t.schema.json"]);
            assert!(
                rows(&w.path(&copy), "t") == expected,
                "seed {seed}, {file}: {:?}",
                w.path(file)
            );
            w.run_ok(&["export", &copy, &format!("again.{file}"), "--table", "t"]);
            let read = |name: &str| std::fs::read(w.path(name)).unwrap();
            assert!(read(file) == read(&format!("again.{file}")), "seed {seed}, {file}");
        }
    }
}

#[test]
fn summary_of_an_export_has_the_arguments_of_the_import() {
    let w = TestDir::new();
    w.write("a.csv", b"id,n,t\n1,0.5,\n2,7,\"\"\n");
    w.run_ok(&[
        "import",
        "db",
        "a.csv",
        "--table",
        "t",
        "--key",
        "n desc,id",
        "--columns",
        "id:u16",
    ]);
    let summary = w.run_json(&["export", "db", "b.csv", "--table", "t"]).remove(0);
    let exported = &summary["exported"];
    let (columns, key) = (exported["columns"].as_str().unwrap(), exported["key"].as_str().unwrap());
    assert_eq!((columns, key), ("id:u16,n:f64,t:text?", "n desc,id"));
    w.run_ok(&["import", "copy", "b.csv", "--table", "t", "--columns", columns, "--key", key]);
    assert!(rows(&w.path("db"), "t") == rows(&w.path("copy"), "t"));
}
