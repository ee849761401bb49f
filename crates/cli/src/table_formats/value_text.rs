//! Values as text (cells of CSV) and as JSON.
//!
//! | type | text | JSON |
//! |---|---|---|
//! | bool | `true`, `false` | the same |
//! | integers | decimal digits | number |
//! | floats | shortest digits that give the same value; `inf`, `-inf`, `NaN`, other NaNs `NaN:BITS` | number; string if not finite |
//! | timestamp | RFC 3339 | string |
//! | uuid | with hyphens | string |
//! | text | as it is | string |
//! | bytes | base64 | string |

use crate::failure::{Failure, Result};
use crate::text::write_json;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use perigee_tables::{ColumnType, Value};
use std::str::FromStr;

use super::rfc3339;

/// Maximum length of a value in an error message, in characters.
const PREVIEW_CHARS_MAX: usize = 40;

/// Reason why a text is no value of a type.
pub type ParseResult = std::result::Result<Value, String>;

/// Returns a value as text; `None` for NULL.
pub fn to_text(value: &Value) -> Option<String> {
    Some(match value {
        Value::Null => return None,
        Value::F32(v) if v.is_nan() && v.to_bits() != f32::NAN.to_bits() => {
            format!("NaN:{:08x}", v.to_bits())
        }
        Value::F64(v) if v.is_nan() && v.to_bits() != f64::NAN.to_bits() => {
            format!("NaN:{:016x}", v.to_bits())
        }
        Value::Timestamp(v) => rfc3339::format(*v),
        Value::Text(v) => v.clone(),
        Value::Bytes(v) => STANDARD.encode(v),
        other => other.to_string(),
    })
}

/// Appends a value as JSON.
pub fn write_json_value(value: &Value, out: &mut Vec<u8>) -> Result<()> {
    let bare = match value {
        Value::Null => true,
        Value::F32(v) => v.is_finite(),
        Value::F64(v) => v.is_finite(),
        Value::Timestamp(_) | Value::Uuid(_) | Value::Text(_) | Value::Bytes(_) => false,
        _ => true,
    };
    let text = to_text(value).unwrap_or_else(|| "null".to_owned());
    if bare {
        out.extend_from_slice(text.as_bytes());
        return Ok(());
    }
    write_json(&text.into(), out).map_err(Failure::from)
}

/// Returns a value for an error message, shortened and in quotes.
pub fn preview(text: &str) -> String {
    match text.char_indices().nth(PREVIEW_CHARS_MAX) {
        Some((cut, _)) => format!("{:?}...", &text[..cut]),
        None => format!("{text:?}"),
    }
}

/// Parses a float; `None` for a number that is out of range, because only `inf` is infinity.
fn parse_float<F: FromStr + Copy + Into<f64>>(
    text: &str,
    from_bits: fn(&str) -> Option<F>,
) -> Option<F> {
    if let Some(bits) = text.strip_prefix("NaN:") {
        return from_bits(bits).filter(|v| (*v).into().is_nan());
    }
    let has_digit = text.contains(|c: char| c.is_ascii_digit());
    text.parse().ok().filter(|v: &F| !(has_digit && (*v).into().is_infinite()))
}

fn parse_f32(text: &str) -> Option<f32> {
    parse_float(text, |bits| u32::from_str_radix(bits, 16).ok().map(f32::from_bits))
}

fn parse_f64(text: &str) -> Option<f64> {
    parse_float(text, |bits| u64::from_str_radix(bits, 16).ok().map(f64::from_bits))
}

fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "true" | "TRUE" | "True" | "1" => Some(true),
        "false" | "FALSE" | "False" | "0" => Some(false),
        _ => None,
    }
}

/// Parses a text as a value of a type.
pub fn parse_text(column_type: ColumnType, text: &str) -> ParseResult {
    let parsed = match column_type {
        ColumnType::Bool => parse_bool(text).map(Value::Bool),
        ColumnType::I8 => text.parse().ok().map(Value::I8),
        ColumnType::I16 => text.parse().ok().map(Value::I16),
        ColumnType::I32 => text.parse().ok().map(Value::I32),
        ColumnType::I64 => text.parse().ok().map(Value::I64),
        ColumnType::I128 => text.parse().ok().map(Value::I128),
        ColumnType::U8 => text.parse().ok().map(Value::U8),
        ColumnType::U16 => text.parse().ok().map(Value::U16),
        ColumnType::U32 => text.parse().ok().map(Value::U32),
        ColumnType::U64 => text.parse().ok().map(Value::U64),
        ColumnType::U128 => text.parse().ok().map(Value::U128),
        ColumnType::F32 => parse_f32(text).map(Value::F32),
        ColumnType::F64 => parse_f64(text).map(Value::F64),
        ColumnType::Timestamp => rfc3339::parse(text).map(Value::Timestamp),
        ColumnType::Uuid => text.parse().ok().map(Value::Uuid),
        ColumnType::Text => Some(Value::Text(text.to_owned())),
        ColumnType::Bytes => STANDARD.decode(text).ok().map(Value::Bytes),
        other => return Err(format!("columns of type {other} cannot be imported")),
    };
    parsed.ok_or_else(|| {
        let expected = match column_type {
            ColumnType::Bool => " (true or false)",
            ColumnType::Timestamp => " (RFC 3339, such as 2026-03-01T12:00:00Z)",
            ColumnType::Bytes => " (base64)",
            ColumnType::Uuid => " (32 hexadecimal digits)",
            ColumnType::F32 | ColumnType::F64 | ColumnType::Text => "",
            _ => " (an integer within its range)",
        };
        format!("{} is no {column_type}{expected}", preview(text))
    })
}

/// Parses JSON, as written in the file, as a value of a type. Objects and arrays become text in
/// columns of type text.
pub fn parse_json(column_type: ColumnType, raw: &str) -> ParseResult {
    match raw.as_bytes().first() {
        Some(b'n') => Ok(Value::Null),
        Some(b'"') => {
            let text: String = serde_json::from_str(raw).map_err(|e| e.to_string())?;
            match column_type {
                ColumnType::Text => Ok(Value::Text(text)),
                _ => parse_text(column_type, &text),
            }
        }
        Some(b'{' | b'[') if column_type != ColumnType::Text => {
            Err(format!("{} is no {column_type}", preview(raw)))
        }
        _ if column_type == ColumnType::Bytes => {
            Err(format!("{} is no string with base64", preview(raw)))
        }
        _ => parse_text(column_type, raw),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perigee_tables::{Timestamp, Uuid};

    fn samples() -> Vec<Value> {
        let nan = |bits: u64| Value::F64(f64::from_bits(bits));
        let mut all = vec![
            Value::Bool(true),
            Value::I8(-128),
            Value::I16(-1),
            Value::I32(i32::MAX),
            Value::I64(i64::MIN),
            Value::I128(i128::MIN),
            Value::U8(255),
            Value::U16(1),
            Value::U32(7),
            Value::U64(u64::MAX),
            Value::U128(u128::MAX),
            Value::F32(0.1),
            Value::F32(f32::MIN_POSITIVE / 8.0),
            Value::F32(f32::NEG_INFINITY),
            Value::F32(f32::from_bits(0xffc0_0001)),
            nan(f64::NAN.to_bits()),
            nan(0xfff8_0000_0000_0000),
            nan(0x7ff8_0000_0000_0001),
            Value::Timestamp(Timestamp::from_micros(-1)),
            Value::Timestamp(Timestamp::MAX),
            Value::Uuid(Uuid([7; 16])),
            Value::from(""),
            Value::from("潮 \"quoted\", \0\r\n\t\u{202e}"),
            Value::Bytes(vec![]),
            Value::Bytes((0..=255).collect()),
        ];
        let floats = [0.0, -0.0, 1.0, 1e300, 5e-324, f64::MAX, f64::INFINITY, 0.1 + 0.2, 1e21];
        all.extend(floats.map(Value::F64));
        all
    }

    #[test]
    fn values_round_trip_as_text_and_json() {
        for value in samples() {
            let column_type = value.column_type().unwrap();
            let text = to_text(&value).unwrap();
            assert_eq!(parse_text(column_type, &text).as_ref(), Ok(&value), "{text}");
            let mut json = Vec::new();
            write_json_value(&value, &mut json).unwrap();
            let json = String::from_utf8(json).unwrap();
            let parsed: std::result::Result<serde_json::Value, _> = serde_json::from_str(&json);
            assert!(parsed.is_ok(), "{json} is JSON");
            assert_eq!(parse_json(column_type, &json).as_ref(), Ok(&value), "{json}");
        }
        assert_eq!(to_text(&Value::Null), None);
        assert_eq!(parse_json(ColumnType::U8, "null"), Ok(Value::Null));
    }

    #[test]
    fn texts_that_are_no_value_are_refused() {
        let bad = [
            (ColumnType::U8, "256"),
            (ColumnType::U8, "-1"),
            (ColumnType::I64, ""),
            (ColumnType::I64, "1.0"),
            (ColumnType::F64, "1e999"),
            (ColumnType::F32, "-1e39"),
            (ColumnType::F64, "NaN:3ff0000000000000"),
            (ColumnType::F64, "one"),
            (ColumnType::Bool, "yes"),
            (ColumnType::Bytes, "a"),
            (ColumnType::Uuid, "12"),
            (ColumnType::Timestamp, "yesterday"),
        ];
        for (column_type, text) in bad {
            let reason = parse_text(column_type, text).unwrap_err();
            assert!(reason.contains(column_type.name()), "{reason}");
        }
        assert!(parse_json(ColumnType::Bytes, "1234").is_err());
        assert!(parse_json(ColumnType::I64, "[1]").is_err());
        assert_eq!(parse_json(ColumnType::Text, "[1]"), Ok(Value::from("[1]")));
        assert!(preview(&"x".repeat(100)).len() < 60);
    }
}
