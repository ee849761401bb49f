//! Entry points of the fuzz targets `row` and `schema` in `fuzz/` and of the smoke test that runs
//! without a fuzzer. Each passes arbitrary bytes to the decoders, which must return a value or an
//! error, never panic. They return true if the input was accepted.

use crate::binding::Binding;
use crate::index_entry::{index_entries, read_row_key};
use crate::ordered::Order;
use crate::row::Row;
use crate::row_format::{WriteKind, write_row};
use crate::schema::change::SchemaChange;
use crate::schema::stored::{IndexStatus, OrderedColumn, StoredIndex, StoredSchema};
use crate::schema::{Column, Schema, codec};
use crate::table_state::ROWS;
use crate::value::{ColumnType, Timestamp, Uuid, Value};
use std::sync::{Arc, OnceLock};

/// A schema with columns of all types in key, rows and indexes, and rows of three layouts.
fn sample_schema() -> Option<StoredSchema> {
    let mut schema = Schema::new()
        .key("bytes key", ColumnType::Bytes)
        .key_desc("text key", ColumnType::Text)
        .key("i32 key", ColumnType::I32);
    for &column_type in ColumnType::ALL {
        schema = schema.column(column_type.name(), column_type);
        schema = schema.nullable(format!("nullable {column_type}"), column_type);
    }
    let mut stored = StoredSchema::new(&schema);
    let added = Column::new("added", ColumnType::Text).nullable().default_value("text");
    stored.apply(&SchemaChange::AddColumn(added)).ok()?;
    stored.apply(&SchemaChange::DropColumn { name: "bytes".to_owned() }).ok()?;
    for (number, name) in [(2, "nullable text"), (3, "f64"), (4, "text key")] {
        let column = stored.column_named(name)?.id;
        let key = stored.key[0].column;
        let ordered = |column| OrderedColumn { column, order: Order::Descending };
        stored.indexes.push(StoredIndex {
            number,
            id: stored.next_index_id,
            name: format!("by {name}"),
            unique: number != 3,
            status: IndexStatus::Ready,
            columns: vec![ordered(column), ordered(key)],
        });
        stored.next_index_id += 1;
    }
    Some(stored)
}

fn sample_binding() -> &'static Binding {
    static BINDING: OnceLock<Binding> = OnceLock::new();
    BINDING.get_or_init(|| {
        let schema = Arc::new(sample_schema().expect("the changes of the sample are valid"));
        Binding::new(&"sample".into(), schema, None).expect("the sample schema is valid")
    })
}

/// Returns a valid input of [`fuzz_schema`].
pub fn schema_sample() -> Vec<u8> {
    codec::encode(&sample_binding().schema)
}

/// Returns a valid input of [`fuzz_row`]; `number` varies its values.
pub fn row_sample(number: u8) -> Vec<u8> {
    let binding = sample_binding();
    let value = |i: usize| {
        let n = number.wrapping_mul(i as u8 + 1);
        let field = &binding.fields[i];
        if field.nullable && n.is_multiple_of(3) {
            return Value::Null;
        }
        match field.column_type {
            ColumnType::Bool => Value::Bool(n % 2 == 1),
            ColumnType::I8 => Value::I8(n as i8),
            ColumnType::I16 => Value::I16(-i16::from(n)),
            ColumnType::I32 => Value::I32(i32::MIN + i32::from(n)),
            ColumnType::I64 => Value::I64(i64::from(n)),
            ColumnType::I128 => Value::I128(-i128::from(n)),
            ColumnType::U8 => Value::U8(n),
            ColumnType::U16 => Value::U16(u16::MAX - u16::from(n)),
            ColumnType::U32 => Value::U32(u32::from(n)),
            ColumnType::U64 => Value::U64(u64::MAX - u64::from(n)),
            ColumnType::U128 => Value::U128(u128::from(n) << 120),
            ColumnType::F32 => Value::F32(-f32::from(n)),
            ColumnType::F64 => Value::F64(f64::from(n) / 7.0),
            ColumnType::Timestamp => Value::Timestamp(Timestamp::from_micros(i64::from(n))),
            ColumnType::Uuid => Value::Uuid(Uuid([n; 16])),
            ColumnType::Text => Value::Text("a\0\u{1}\u{10ffff}".repeat(usize::from(n % 3))),
            ColumnType::Bytes => Value::Bytes(vec![n; usize::from(n % 20)]),
        }
    };
    let row: Vec<Value> = (0..binding.fields.len()).map(value).collect();
    let (key, stored) = encode_row(binding, &row);
    [&[key.len() as u8], &key[..], &stored[..]].concat()
}

/// Returns key and value of a row in the current layout.
fn encode_row(binding: &Binding, row: &Vec<Value>) -> (Vec<u8>, Vec<u8>) {
    let (mut key, mut stored) = (Vec::new(), Vec::new());
    row.write_key(binding, &mut key);
    write_row(binding.current_layout(), WriteKind::Put, &mut stored, |field, writer| {
        row.write_column(field, writer);
    });
    (key, stored)
}

fn decode_row(binding: &Binding, key: &[u8], stored: &[u8]) -> Option<Vec<Value>> {
    Vec::<Value>::read(&binding.stored_row(key, stored).ok()?).ok()
}

/// Decodes a row of any layout: the length of the key, the key, the value. A valid row must survive
/// the round trip, and each of its index entries must lead to it. The bytes are decoded as an entry
/// of each index, too.
pub fn fuzz_row(bytes: &[u8]) -> bool {
    let binding = sample_binding();
    let Some((&key_bytes, rest)) = bytes.split_first() else { return false };
    let Some((key, stored)) = rest.split_at_checked(usize::from(key_bytes)) else { return false };
    let mut row_key = Vec::new();
    for plan in &binding.indexes {
        let _ = read_row_key(plan, &binding.key, key, stored, &mut row_key);
    }
    let Some(row) = decode_row(binding, key, stored) else { return false };
    let (key_again, stored_again) = encode_row(binding, &row);
    assert_eq!(key_again, key, "a key changes in the round trip");
    let again = decode_row(binding, key, &stored_again);
    assert_eq!(again.as_ref(), Some(&row), "a row changes in the round trip");
    let entries = index_entries(binding, &row, key).expect("the row is valid");
    for (entry, plan) in entries.iter().zip(&binding.indexes) {
        read_row_key(plan, &binding.key, &entry.key, &entry.value, &mut row_key)
            .expect("the entry is valid");
        assert_eq!(row_key.split_first(), Some((&ROWS, key)), "an entry leads to another row");
    }
    true
}

/// Decodes a schema. A valid one must survive the round trip, rows can be bound to it, and columns
/// can be added to it.
pub fn fuzz_schema(bytes: &[u8]) -> bool {
    let version = codec::encoded_version(bytes);
    let Ok(mut schema) = codec::decode(bytes) else { return false };
    assert_eq!(version, Some(schema.version));
    let again = codec::decode(&codec::encode(&schema));
    assert_eq!(again.ok().as_ref(), Some(&schema), "a schema changes in the round trip");
    let binding = Binding::new(&"fuzzed".into(), Arc::new(schema.clone()), None);
    if let Ok(binding) = binding {
        let _ = decode_row(&binding, bytes, bytes);
        let mut row_key = Vec::new();
        for plan in &binding.indexes {
            let _ = read_row_key(plan, &binding.key, bytes, bytes, &mut row_key);
        }
    }
    let added = Column::new("added", ColumnType::I64).nullable();
    if schema.apply(&SchemaChange::AddColumn(added)).is_ok() {
        let changed = codec::decode(&codec::encode(&schema));
        assert_eq!(changed.ok().as_ref(), Some(&schema), "a changed schema is refused");
    }
    true
}
