//! Parameters of prepared statements: from the protocol to scalars.

use crate::error::{Result, SqlError, SqlState};
use crate::wire_types::{EPOCH_2000_DAYS, EPOCH_2000_MICROSECONDS, read_numeric, wire_type};
use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::ScalarValue;
use pgwire::api::Type;
use std::sync::Arc;

/// Returns the Arrow type of a parameter: the one that the statement demands, or that of the type
/// that the client declares.
pub fn parameter_type(declared: Option<&Type>, inferred: Option<&DataType>) -> DataType {
    if let Some(inferred) = inferred {
        return inferred.clone();
    }
    match declared {
        Some(&Type::BOOL) => DataType::Boolean,
        Some(&Type::INT2) => DataType::Int16,
        Some(&Type::INT4) => DataType::Int32,
        Some(&Type::INT8) => DataType::Int64,
        Some(&Type::FLOAT4) => DataType::Float32,
        Some(&Type::FLOAT8 | &Type::NUMERIC) => DataType::Float64,
        Some(&Type::BYTEA) => DataType::Binary,
        Some(&Type::DATE) => DataType::Date32,
        Some(&Type::TIMESTAMP) => DataType::Timestamp(TimeUnit::Microsecond, None),
        Some(&Type::TIMESTAMPTZ) => {
            DataType::Timestamp(TimeUnit::Microsecond, Some(Arc::from("UTC")))
        }
        _ => DataType::Utf8,
    }
}

/// Returns the type that the description of a statement names for a parameter.
pub fn described_type(inferred: Option<&DataType>) -> Type {
    inferred.map_or(Type::TEXT, wire_type)
}

/// Decodes a parameter; `None` is NULL.
///
/// # Errors
/// `INVALID_TEXT` if it is no value of its type; `UNSUPPORTED` for a binary form of another type.
pub fn decode_parameter(
    bytes: Option<&[u8]>,
    is_binary: bool,
    declared: Option<&Type>,
    inferred: Option<&DataType>,
) -> Result<ScalarValue> {
    let target = parameter_type(declared, inferred);
    let Some(bytes) = bytes else { return Ok(ScalarValue::try_new_null(&target)?) };
    let scalar = match is_binary {
        true => {
            decode_binary(bytes, declared.cloned().unwrap_or_else(|| described_type(inferred)))?
        }
        false => decode_text(bytes, &target)?,
    };
    if scalar.data_type() == target {
        return Ok(scalar);
    }
    scalar.cast_to(&target).map_err(|e| {
        let text = format!("a parameter is no {target}: {}", SqlError::from(e).message());
        SqlError::new(SqlState::INVALID_TEXT, text)
    })
}

fn invalid(what: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_TEXT, format!("a parameter is no {what}"))
}

fn decode_text(bytes: &[u8], target: &DataType) -> Result<ScalarValue> {
    let text = std::str::from_utf8(bytes).map_err(|_| invalid("text in UTF-8"))?;
    Ok(match target {
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => {
            ScalarValue::Binary(Some(read_bytea(text).ok_or_else(|| invalid("bytea"))?))
        }
        DataType::Boolean => match text.trim().to_ascii_lowercase().as_str() {
            "t" | "true" | "1" | "on" | "yes" | "y" => ScalarValue::Boolean(Some(true)),
            "f" | "false" | "0" | "off" | "no" | "n" => ScalarValue::Boolean(Some(false)),
            _ => return Err(invalid("boolean")),
        },
        _ => ScalarValue::Utf8(Some(text.to_owned())),
    })
}

/// Reads the text form of bytes: `\x` and hexadecimal digits, or the bytes themselves.
fn read_bytea(text: &str) -> Option<Vec<u8>> {
    let Some(digits) = text.strip_prefix("\\x") else { return Some(text.as_bytes().to_vec()) };
    let digits: Option<Vec<u8>> =
        digits.chars().map(|c| c.to_digit(16).and_then(|d| u8::try_from(d).ok())).collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
    Some(digits.chunks(2).map(|pair| pair[0] * 16 + pair[1]).collect())
}

fn decode_binary(bytes: &[u8], from: Type) -> Result<ScalarValue> {
    fn fixed<const N: usize>(bytes: &[u8]) -> Result<[u8; N]> {
        bytes.try_into().map_err(|_| invalid("value of its declared size"))
    }
    Ok(match from {
        Type::BOOL => ScalarValue::Boolean(Some(fixed::<1>(bytes)? != [0])),
        Type::INT2 => ScalarValue::Int16(Some(i16::from_be_bytes(fixed(bytes)?))),
        Type::INT4 | Type::OID => ScalarValue::Int32(Some(i32::from_be_bytes(fixed(bytes)?))),
        Type::INT8 => ScalarValue::Int64(Some(i64::from_be_bytes(fixed(bytes)?))),
        Type::FLOAT4 => ScalarValue::Float32(Some(f32::from_be_bytes(fixed(bytes)?))),
        Type::FLOAT8 => ScalarValue::Float64(Some(f64::from_be_bytes(fixed(bytes)?))),
        Type::BYTEA => ScalarValue::Binary(Some(bytes.to_vec())),
        Type::TIMESTAMP | Type::TIMESTAMPTZ => {
            let us = i64::from_be_bytes(fixed(bytes)?).saturating_add(EPOCH_2000_MICROSECONDS);
            let zone = (from == Type::TIMESTAMPTZ).then(|| Arc::from("UTC"));
            ScalarValue::TimestampMicrosecond(Some(us), zone)
        }
        Type::DATE => {
            let days = i32::from_be_bytes(fixed(bytes)?).saturating_add(EPOCH_2000_DAYS);
            ScalarValue::Date32(Some(days))
        }
        Type::UUID => {
            let id = perigee_tables::Uuid(fixed(bytes)?);
            ScalarValue::Utf8(Some(id.to_string()))
        }
        Type::NUMERIC => {
            let digits = read_numeric(bytes).ok_or_else(|| invalid("finite number"))?;
            ScalarValue::Utf8(Some(digits))
        }
        Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::NAME | Type::UNKNOWN => {
            decode_text(bytes, &DataType::Utf8)?
        }
        other => {
            let what = format!("the binary form of a parameter of type {other}");
            return Err(SqlError::unsupported(what, "send it as text"));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded_in_both_forms() {
        let decode = |bytes: &[u8], binary, declared, inferred| {
            decode_parameter(Some(bytes), binary, declared, inferred)
        };
        let int8 = Some(&DataType::Int64);
        let seven = ScalarValue::Int64(Some(7));
        assert_eq!(decode(b"7", false, None, int8).unwrap(), seven);
        assert_eq!(decode(&[0, 7], true, Some(&Type::INT2), int8).unwrap(), seven);
        assert_eq!(decode(&7i64.to_be_bytes(), true, None, int8).unwrap(), seven);
        assert!(decode(b"seven", false, None, int8).is_err());
        assert!(decode(&[7], true, None, int8).is_err());
        let bytes = ScalarValue::Binary(Some(vec![0, 255]));
        assert_eq!(decode(b"\\x00fF", false, Some(&Type::BYTEA), None).unwrap(), bytes);
        assert!(decode(b"\\x0", false, Some(&Type::BYTEA), None).is_err());
        let null = decode_parameter(None, false, None, int8).unwrap();
        assert_eq!(null, ScalarValue::Int64(None));
    }
}
