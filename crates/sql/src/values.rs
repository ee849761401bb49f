//! Conversions between values of tables and scalars of DataFusion.

use datafusion::arrow::datatypes::i256;
use datafusion::common::ScalarValue;
use perigee_tables::{ColumnType, Timestamp, Uuid, Value};
use std::sync::Arc;

/// Digits of the decimals that represent integers of 128 bits.
const INTEGER_128_DIGITS: u8 = 39;

/// Converts a scalar to a column type; `None` if that is not possible without loss.
pub fn value_of(scalar: &ScalarValue, to: ColumnType) -> Option<Value> {
    if scalar.is_null() {
        return Some(Value::Null);
    }
    let value = match scalar {
        ScalarValue::Boolean(Some(v)) => Value::Bool(*v),
        ScalarValue::Int8(Some(v)) => Value::I8(*v),
        ScalarValue::Int16(Some(v)) => Value::I16(*v),
        ScalarValue::Int32(Some(v)) => Value::I32(*v),
        ScalarValue::Int64(Some(v)) => Value::I64(*v),
        ScalarValue::UInt8(Some(v)) => Value::U8(*v),
        ScalarValue::UInt16(Some(v)) => Value::U16(*v),
        ScalarValue::UInt32(Some(v)) => Value::U32(*v),
        ScalarValue::UInt64(Some(v)) => Value::U64(*v),
        ScalarValue::Decimal128(Some(v), _, 0) => Value::I128(*v),
        ScalarValue::Decimal256(Some(v), _, 0) => match (v.to_i128(), v.to_parts()) {
            (Some(v), _) => Value::I128(v),
            (None, (low, 0)) => Value::U128(low),
            _ => return None,
        },
        ScalarValue::Float32(Some(v)) => Value::F32(*v),
        ScalarValue::Float64(Some(v)) => Value::F64(*v),
        ScalarValue::TimestampSecond(Some(v), _) => micros(v.checked_mul(1_000_000)?),
        ScalarValue::TimestampMillisecond(Some(v), _) => micros(v.checked_mul(1000)?),
        ScalarValue::TimestampMicrosecond(Some(v), _) => micros(*v),
        ScalarValue::TimestampNanosecond(Some(v), _) if v % 1000 == 0 => micros(v / 1000),
        ScalarValue::Utf8(Some(v))
        | ScalarValue::LargeUtf8(Some(v))
        | ScalarValue::Utf8View(Some(v)) => text_value(v, to)?,
        ScalarValue::Binary(Some(v))
        | ScalarValue::LargeBinary(Some(v))
        | ScalarValue::BinaryView(Some(v))
        | ScalarValue::FixedSizeBinary(_, Some(v)) => Value::Bytes(v.clone()),
        ScalarValue::Dictionary(_, v) => return value_of(v, to),
        _ => return None,
    };
    match (&value, to) {
        (Value::F32(v), ColumnType::F64) => Some(Value::F64(f64::from(*v))),
        _ => value.convert_to(to),
    }
}

fn micros(us: i64) -> Value {
    Value::Timestamp(Timestamp::from_micros(us))
}

/// UUIDs are text in SQL; any usual form of one is accepted.
fn text_value(text: &str, to: ColumnType) -> Option<Value> {
    match to {
        ColumnType::Uuid => text.parse::<Uuid>().ok().map(Value::Uuid),
        _ => Some(Value::from(text)),
    }
}

/// Converts a value to the scalar that represents it in SQL; `column_type` gives NULL its type.
pub fn scalar_of(value: &Value, column_type: ColumnType) -> ScalarValue {
    macro_rules! scalar {
        ($variant:ident, $scalar:ident) => {
            ScalarValue::$scalar(match value {
                Value::$variant(v) => Some(v.clone()),
                _ => None,
            })
        };
    }
    match column_type {
        ColumnType::Bool => scalar!(Bool, Boolean),
        ColumnType::I8 => scalar!(I8, Int8),
        ColumnType::I16 => scalar!(I16, Int16),
        ColumnType::I32 => scalar!(I32, Int32),
        ColumnType::I64 => scalar!(I64, Int64),
        ColumnType::U8 => scalar!(U8, UInt8),
        ColumnType::U16 => scalar!(U16, UInt16),
        ColumnType::U32 => scalar!(U32, UInt32),
        ColumnType::U64 => scalar!(U64, UInt64),
        ColumnType::F32 => scalar!(F32, Float32),
        ColumnType::F64 => scalar!(F64, Float64),
        ColumnType::Text => scalar!(Text, Utf8),
        ColumnType::Bytes => scalar!(Bytes, Binary),
        ColumnType::I128 | ColumnType::U128 => {
            let integer = match value {
                Value::I128(v) => Some(i256::from_i128(*v)),
                Value::U128(v) => Some(i256::from_parts(*v, 0)),
                _ => None,
            };
            ScalarValue::Decimal256(integer, INTEGER_128_DIGITS, 0)
        }
        ColumnType::Timestamp => {
            let us = match value {
                Value::Timestamp(v) => Some(v.as_micros()),
                _ => None,
            };
            ScalarValue::TimestampMicrosecond(us, Some(Arc::from("UTC")))
        }
        ColumnType::Uuid => ScalarValue::Utf8(match value {
            Value::Uuid(id) => Some(id.to_string()),
            _ => None,
        }),
        // The type is not exhaustive.
        _ => ScalarValue::Null,
    }
}

/// Returns the values of a row at these positions.
pub fn values_at(row: &[Value], positions: &[usize]) -> Vec<Value> {
    positions.iter().map(|i| row[*i].clone()).collect()
}
