//! Rows are decoded to the same values, in every layout, and any bytes are a row or an error.

use super::*;
use crate::row_format::{WriteKind, write_row};
use crate::schema::Column;
use crate::schema::change::SchemaChange;
use crate::schema::stored::StoredSchema;
use crate::testing::Rng;
use crate::value::ColumnType;
use std::sync::Arc;

fn random_column(rng: &mut Rng, name: String) -> Column {
    let column_type = ColumnType::ALL[rng.below(ColumnType::ALL.len() as u64) as usize];
    let column = Column::new(name, column_type);
    if rng.below(2) == 0 { column.nullable() } else { column }
}

fn random_schema(rng: &mut Rng) -> StoredSchema {
    let mut schema = Schema::new().key_desc("k0", ColumnType::Text).key("k1", ColumnType::I64);
    for i in 0..rng.below(6) {
        schema = schema.add(random_column(rng, format!("c{i}")));
    }
    StoredSchema::new(&schema)
}

fn bind(schema: &StoredSchema) -> Binding {
    Binding::new(&"t".into(), Arc::new(schema.clone()), None).unwrap()
}

fn random_row(rng: &mut Rng, binding: &Binding) -> Vec<Value> {
    binding.fields.iter().map(|f| rng.nullable_value(f.column_type, f.nullable)).collect()
}

fn encode(row: &Vec<Value>, binding: &Binding) -> (Vec<u8>, Vec<u8>) {
    let (mut key, mut bytes) = (Vec::new(), Vec::new());
    row.check(binding).unwrap();
    row.write_key(binding, &mut key);
    write_row(binding.current_layout(), WriteKind::Put, &mut bytes, |field, writer| {
        row.write_column(field, writer)
    });
    (key, bytes)
}

fn decode(
    key: &[u8],
    bytes: &[u8],
    binding: &Binding,
) -> std::result::Result<Vec<Value>, Malformed> {
    Row::read(&binding.stored_row(key, bytes)?)
}

#[test]
fn rows_are_decoded_to_the_same_values() {
    let mut rng = Rng(21);
    for _ in 0..1000 {
        let binding = bind(&random_schema(&mut rng));
        let row = random_row(&mut rng, &binding);
        let (key, bytes) = encode(&row, &binding);
        assert_eq!(decode(&key, &bytes, &binding).unwrap(), row);
    }
}

/// A row stays readable when columns are added, dropped and renamed after it was written.
#[test]
fn old_rows_are_read_with_later_schemas() {
    let mut rng = Rng(22);
    for _ in 0..500 {
        let mut schema = random_schema(&mut rng);
        let binding = bind(&schema);
        let row = random_row(&mut rng, &binding);
        let (key, bytes) = encode(&row, &binding);
        let mut expected: Vec<(String, Value)> =
            binding.fields.iter().map(|f| f.name.clone()).zip(row).collect();
        for step in 0..6 {
            let at = rng.below(expected.len() as u64) as usize;
            let name = expected[at].0.clone();
            match rng.below(3) {
                0 => {
                    let mut column = random_column(&mut rng, format!("new{step}"));
                    let default = rng.value(column.column_type);
                    if !column.nullable || rng.below(2) == 0 {
                        column = column.default_value(default);
                    }
                    let value = column.default.clone().unwrap_or(Value::Null);
                    expected.push((column.name.clone(), value));
                    schema.apply(&SchemaChange::AddColumn(column)).unwrap();
                }
                1 if !name.starts_with('k') => {
                    schema.apply(&SchemaChange::DropColumn { name }).unwrap();
                    expected.remove(at);
                }
                _ => {
                    let to = format!("{name}x");
                    expected[at].0.clone_from(&to);
                    schema.apply(&SchemaChange::RenameColumn { from: name, to }).unwrap();
                }
            }
        }
        let later = bind(&schema);
        let values: Vec<Value> = expected.into_iter().map(|(_, value)| value).collect();
        assert_eq!(decode(&key, &bytes, &later).unwrap(), values);
        let (key, bytes) = encode(&values, &later);
        assert_eq!(decode(&key, &bytes, &later).unwrap(), values);
    }
}

#[test]
fn damaged_rows_are_errors_not_panics() {
    let mut rng = Rng(23);
    let mut decoded = 0;
    for _ in 0..500 {
        let binding = bind(&random_schema(&mut rng));
        let row = random_row(&mut rng, &binding);
        let (key, bytes) = encode(&row, &binding);
        for _ in 0..20 {
            let (mut key, mut bytes) = (key.clone(), bytes.clone());
            for part in [&mut key, &mut bytes] {
                match rng.below(4) {
                    0 => {
                        let at = rng.below(part.len() as u64) as usize;
                        part[at] = rng.next() as u8;
                    }
                    1 => part.truncate(rng.below(part.len() as u64 + 1) as usize),
                    2 => *part = rng.bytes(30),
                    _ => {}
                }
            }
            if let Ok(row) = decode(&key, &bytes, &binding) {
                row.check(&binding).unwrap();
                decoded += 1;
            }
        }
    }
    assert!(decoded > 500, "{decoded}");
}

/// The example of docs/format/tables.md.
#[test]
fn rows_have_the_documented_bytes() {
    let schema = Schema::new()
        .key("sensor", ColumnType::U32)
        .key("at", ColumnType::Timestamp)
        .column("value", ColumnType::F64)
        .nullable("note", ColumnType::Text);
    let binding = bind(&StoredSchema::new(&schema));
    let at = crate::value::Timestamp::from_micros(60_000_000);
    let row = |note: Option<&str>| vec![7u32.into(), at.into(), 0.5f64.into(), note.into()];
    let (key, bytes) = encode(&row(Some("ok")), &binding);
    assert_eq!(key, [0, 0, 0, 7, 0x80, 0, 0, 0, 3, 0x93, 0x87, 0]);
    assert_eq!(bytes, [0, 0, 0, 0, 0, 0, 0, 0, 0xe0, 0x3f, b'o', b'k']);
    let (_, bytes) = encode(&row(None), &binding);
    assert_eq!(bytes, [0, 1, 0, 0, 0, 0, 0, 0, 0xe0, 0x3f]);
}
