//! Types and values of SQLite columns. SQLite stores a type with each value, so the values decide:
//! a column gets the first of i64, f64, text and bytes that represents all its values. A column
//! without values gets the type of its affinity.

use crate::size;
use crate::table_formats::value_text;
use perigee_tables::{ColumnType, Value};
use rusqlite::types::ValueRef;

/// Largest integer up to which every integer is a f64.
const EXACT_FLOAT_MAX: u64 = 1 << 53;

/// The types of the values of a column.
#[derive(Clone, Debug, Default)]
pub struct StorageClasses {
    /// Number of values of each class: integer, real, text, blob.
    counts: [u64; 4],
    /// Where the first value of each class is.
    first: [Option<String>; 4],
    pub nulls: u64,
    /// True if an integer is not a f64.
    large_integer: bool,
}

/// Names of the classes, for one and for several values.
const NAMES: [(&str, &str); 4] =
    [("integer", "integers"), ("real", "reals"), ("text", "texts"), ("blob", "blobs")];
const INTEGER: usize = 0;
const REAL: usize = 1;
const TEXT: usize = 2;
const BLOB: usize = 3;

impl StorageClasses {
    /// Adds a value. `location` returns where it is.
    pub fn add(&mut self, value: ValueRef<'_>, location: &dyn Fn() -> String) {
        let class = match value {
            ValueRef::Null => {
                self.nulls += 1;
                return;
            }
            ValueRef::Integer(n) => {
                self.large_integer |= n.unsigned_abs() > EXACT_FLOAT_MAX;
                INTEGER
            }
            ValueRef::Real(_) => REAL,
            ValueRef::Text(_) => TEXT,
            ValueRef::Blob(_) => BLOB,
        };
        self.counts[class] += 1;
        self.first[class].get_or_insert_with(location);
    }
    /// Returns the type of the column.
    pub fn column_type(&self, declared_type: &str) -> ColumnType {
        let [integers, reals, texts, blobs] = self.counts.map(|n| n > 0);
        match (blobs, texts, reals, integers) {
            (true, ..) => ColumnType::Bytes,
            (_, true, ..) => ColumnType::Text,
            (_, _, true, true) if self.large_integer => ColumnType::Text,
            (_, _, true, _) => ColumnType::F64,
            (_, _, _, true) => ColumnType::I64,
            _ => affinity_type(declared_type),
        }
    }
    /// Returns the classes with their counts and first places, if the type of the column is wider
    /// than that of one of them.
    pub fn describe_mixture(&self) -> Option<String> {
        let present: Vec<usize> =
            (INTEGER..=BLOB).filter(|class| self.counts[*class] > 0).collect();
        let numbers = present.iter().all(|class| *class <= REAL) && !self.large_integer;
        if present.len() < 2 || numbers {
            return None;
        }
        let describe = |class: &usize| {
            let first = self.first[*class].as_deref().unwrap_or_default();
            let (one, many) = NAMES[*class];
            format!("{} (first at {first})", size::plural(self.counts[*class], one, many))
        };
        Some(present.iter().map(describe).collect::<Vec<_>>().join(", "))
    }
}

/// Returns the type for the affinity of a declared type.
fn affinity_type(declared_type: &str) -> ColumnType {
    let upper = declared_type.to_ascii_uppercase();
    let contains = |words: &[&str]| words.iter().any(|word| upper.contains(word));
    match () {
        () if contains(&["INT"]) => ColumnType::I64,
        () if contains(&["CHAR", "CLOB", "TEXT"]) => ColumnType::Text,
        () if upper.is_empty() || contains(&["BLOB"]) => ColumnType::Bytes,
        () => ColumnType::F64,
    }
}

/// Converts a value to the type of its column.
///
/// # Errors
/// The reason why it does not fit.
pub fn convert(value: ValueRef<'_>, column_type: ColumnType) -> Result<Value, String> {
    let utf8 = |bytes: &[u8]| {
        String::from_utf8(bytes.to_vec()).map_err(|_| "the text is not UTF-8".to_owned())
    };
    let number_text = |value: Value| value_text::to_text(&value).unwrap_or_default();
    Ok(match (column_type, value) {
        (_, ValueRef::Null) => Value::Null,
        (ColumnType::I64, ValueRef::Integer(n)) => Value::I64(n),
        (ColumnType::F64, ValueRef::Integer(n)) => Value::F64(n as f64),
        (ColumnType::F64, ValueRef::Real(v)) => Value::F64(v),
        (ColumnType::Text, ValueRef::Text(bytes)) => Value::Text(utf8(bytes)?),
        (ColumnType::Text, ValueRef::Integer(n)) => Value::Text(n.to_string()),
        (ColumnType::Text, ValueRef::Real(v)) => Value::Text(number_text(Value::F64(v))),
        (ColumnType::Bytes, ValueRef::Blob(bytes) | ValueRef::Text(bytes)) => {
            Value::Bytes(bytes.to_vec())
        }
        (ColumnType::Bytes, ValueRef::Integer(n)) => Value::Bytes(n.to_string().into_bytes()),
        (ColumnType::Bytes, ValueRef::Real(v)) => {
            Value::Bytes(number_text(Value::F64(v)).into_bytes())
        }
        (_, other) => {
            return Err(format!("a value of type {} is no {column_type}", other.data_type()));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classes(values: &[ValueRef<'_>]) -> StorageClasses {
        let mut classes = StorageClasses::default();
        for value in values {
            classes.add(*value, &|| "rowid 1".to_owned());
        }
        classes
    }

    #[test]
    fn widest_class_decides() {
        use ValueRef::{Blob, Integer, Null, Real, Text};
        let cases: [(&[ValueRef<'_>], ColumnType, bool); 8] = [
            (&[Integer(1), Null], ColumnType::I64, false),
            (&[Integer(1), Real(0.5)], ColumnType::F64, false),
            (&[Integer(i64::MAX), Real(0.5)], ColumnType::Text, true),
            (&[Integer(1), Text(b"x")], ColumnType::Text, true),
            (&[Text(b"x"), Blob(b"y")], ColumnType::Bytes, true),
            (&[Text(b"x")], ColumnType::Text, false),
            (&[Blob(b"x"), Null], ColumnType::Bytes, false),
            (&[Null], ColumnType::F64, false),
        ];
        for (values, expected, mixed) in cases {
            let classes = classes(values);
            assert_eq!(classes.column_type("NUMERIC"), expected, "{values:?}");
            assert_eq!(classes.describe_mixture().is_some(), mixed, "{values:?}");
            for value in values {
                assert!(convert(*value, expected).is_ok(), "{value:?}");
            }
        }
        assert!(convert(Text(b"\xff"), ColumnType::Text).is_err());
        assert!(convert(Text(b"x"), ColumnType::I64).is_err());
        assert_eq!(convert(Real(0.1), ColumnType::Text), Ok(Value::from("0.1")));
    }

    #[test]
    fn affinity_decides_without_values() {
        let cases = [
            ("BIGINT", ColumnType::I64),
            ("VARCHAR(20)", ColumnType::Text),
            ("BLOB", ColumnType::Bytes),
            ("", ColumnType::Bytes),
            ("DOUBLE", ColumnType::F64),
            ("DECIMAL(10,2)", ColumnType::F64),
        ];
        for (declared, expected) in cases {
            assert_eq!(affinity_type(declared), expected, "{declared}");
        }
    }
}
