//! Types and values of the PostgreSQL protocol: which type a column has, and its text and binary
//! forms.

use bytes::{BufMut, BytesMut};
use datafusion::arrow::datatypes::DataType;
use pgwire::types::ToSqlText;
use pgwire::types::format::FormatOptions;
use postgres_types::{IsNull, ToSql, Type, to_sql_checked};

type EncodeError = Box<dyn std::error::Error + Sync + Send>;

/// Microseconds from 1970 to 2000, from which PostgreSQL counts.
pub const EPOCH_2000_MICROSECONDS: i64 = 946_684_800_000_000;
/// Days from 1970 to 2000.
pub const EPOCH_2000_DAYS: i32 = 10_957;

/// Returns the type of a column of results.
pub fn wire_type(data_type: &DataType) -> Type {
    match data_type {
        DataType::Boolean => Type::BOOL,
        DataType::Int8 | DataType::Int16 | DataType::UInt8 => Type::INT2,
        DataType::Int32 | DataType::UInt16 => Type::INT4,
        DataType::Int64 | DataType::UInt32 => Type::INT8,
        DataType::UInt64
        | DataType::Decimal32(..)
        | DataType::Decimal64(..)
        | DataType::Decimal128(..)
        | DataType::Decimal256(..) => Type::NUMERIC,
        DataType::Float16 | DataType::Float32 => Type::FLOAT4,
        DataType::Float64 => Type::FLOAT8,
        DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView
        | DataType::FixedSizeBinary(_) => Type::BYTEA,
        DataType::Timestamp(_, Some(_)) => Type::TIMESTAMPTZ,
        DataType::Timestamp(_, None) => Type::TIMESTAMP,
        DataType::Date32 | DataType::Date64 => Type::DATE,
        DataType::Dictionary(_, values) => wire_type(values),
        _ => Type::TEXT,
    }
}

/// A value in both forms of the protocol.
#[derive(Clone, Debug, PartialEq)]
pub enum WireValue {
    Null,
    Bool(bool),
    Integer(i64),
    Float(f64),
    Float32(f32),
    /// Decimal digits, with sign and point.
    Numeric(String),
    Text(String),
    Bytes(Vec<u8>),
    /// Microseconds since 1970, and the text.
    Timestamp(i64, String),
    /// Days since 1970, and the text.
    Date(i32, String),
}

impl WireValue {
    fn write_text(&self, out: &mut BytesMut) {
        match self {
            WireValue::Null => {}
            WireValue::Bool(v) => out.put_slice(if *v { b"t" } else { b"f" }),
            WireValue::Integer(v) => out.put_slice(v.to_string().as_bytes()),
            WireValue::Float(v) => out.put_slice(float_text(*v, &v.to_string()).as_bytes()),
            WireValue::Float32(v) => {
                out.put_slice(float_text(f64::from(*v), &v.to_string()).as_bytes());
            }
            WireValue::Numeric(text)
            | WireValue::Text(text)
            | WireValue::Timestamp(_, text)
            | WireValue::Date(_, text) => out.put_slice(text.as_bytes()),
            WireValue::Bytes(bytes) => {
                out.put_slice(b"\\x");
                for byte in bytes {
                    out.put_slice(format!("{byte:02x}").as_bytes());
                }
            }
        }
    }
    fn write_binary(&self, to: &Type, out: &mut BytesMut) -> Result<(), EncodeError> {
        match self {
            WireValue::Null => {}
            WireValue::Bool(v) => out.put_u8(u8::from(*v)),
            WireValue::Integer(v) => match *to {
                Type::INT2 => out.put_i16(i16::try_from(*v)?),
                Type::INT4 => out.put_i32(i32::try_from(*v)?),
                _ => out.put_i64(*v),
            },
            WireValue::Float(v) => out.put_f64(*v),
            WireValue::Float32(v) => out.put_f32(*v),
            WireValue::Numeric(text) => write_numeric(text, out)?,
            WireValue::Text(text) => out.put_slice(text.as_bytes()),
            WireValue::Bytes(bytes) => out.put_slice(bytes),
            WireValue::Timestamp(us, _) => {
                out.put_i64(us.checked_sub(EPOCH_2000_MICROSECONDS).ok_or("a time out of range")?);
            }
            WireValue::Date(days, _) => {
                out.put_i32(days.checked_sub(EPOCH_2000_DAYS).ok_or("a date out of range")?);
            }
        }
        Ok(())
    }
}

fn float_text(value: f64, text: &str) -> String {
    if value.is_nan() {
        "NaN".to_owned()
    } else if value.is_infinite() {
        if value > 0.0 { "Infinity".to_owned() } else { "-Infinity".to_owned() }
    } else {
        text.to_owned()
    }
}

/// Appends a number in the binary form of NUMERIC: groups of four decimal digits.
fn write_numeric(text: &str, out: &mut BytesMut) -> Result<(), EncodeError> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let whole = whole.trim_start_matches('0');
    let padded = format!("{whole:0>width$}", width = whole.len().div_ceil(4) * 4);
    let padded_fraction = format!("{fraction:0<width$}", width = fraction.len().div_ceil(4) * 4);
    let all = padded.clone() + &padded_fraction;
    let group = |chunk: &[u8]| -> Result<i16, EncodeError> {
        Ok(std::str::from_utf8(chunk)?.parse::<i16>()?)
    };
    let mut groups = all.as_bytes().chunks(4).map(group).collect::<Result<Vec<i16>, _>>()?;
    let mut weight = i16::try_from(padded.len() / 4)? - 1;
    while groups.first() == Some(&0) {
        groups.remove(0);
        weight -= 1;
    }
    while groups.last() == Some(&0) {
        groups.pop();
    }
    if groups.is_empty() {
        weight = 0;
    }
    out.put_i16(i16::try_from(groups.len())?);
    out.put_i16(weight);
    out.put_u16(if negative && !groups.is_empty() { 0x4000 } else { 0 });
    out.put_i16(i16::try_from(fraction.len())?);
    groups.iter().for_each(|group| out.put_i16(*group));
    Ok(())
}

/// Reads the binary form of NUMERIC as decimal digits; `None` for NaN, infinity or damage.
pub fn read_numeric(mut bytes: &[u8]) -> Option<String> {
    let mut next = || {
        let (head, rest) = bytes.split_first_chunk::<2>()?;
        bytes = rest;
        Some(i16::from_be_bytes(*head))
    };
    let (groups, weight) = (usize::try_from(next()?).ok()?, next()?);
    let (sign, scale) = (next()? as u16, usize::try_from(next()?).ok()?);
    let digits = (0..groups).map(|_| next()).collect::<Option<Vec<i16>>>()?;
    let digit = |i: i32| usize::try_from(i).ok().and_then(|i| digits.get(i)).copied().unwrap_or(0);
    let mut text = if sign == 0x4000 { "-".to_owned() } else { String::new() };
    if sign != 0x4000 && sign != 0 {
        return None;
    }
    if weight < 0 {
        text.push('0');
    }
    for i in 0..=i32::from(weight) {
        text += &if i == 0 { digit(i).to_string() } else { format!("{:04}", digit(i)) };
    }
    if scale > 0 {
        let first = i32::from(weight) + 1;
        let groups = i32::try_from(scale.div_ceil(4)).ok()?;
        let fraction: String =
            (first..first + groups).map(|i| format!("{:04}", digit(i))).collect();
        text = text + "." + fraction.get(..scale)?;
    }
    Some(text)
}

impl ToSqlText for WireValue {
    fn to_sql_text(
        &self,
        _: &Type,
        out: &mut BytesMut,
        _: &FormatOptions,
    ) -> Result<IsNull, EncodeError> {
        self.write_text(out);
        Ok(if *self == WireValue::Null { IsNull::Yes } else { IsNull::No })
    }
}

impl ToSql for WireValue {
    fn to_sql(&self, to: &Type, out: &mut BytesMut) -> Result<IsNull, EncodeError> {
        self.write_binary(to, out)?;
        Ok(if *self == WireValue::Null { IsNull::Yes } else { IsNull::No })
    }
    fn accepts(_: &Type) -> bool {
        true
    }
    to_sql_checked!();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_any_size_are_read_back() {
        for text in [
            "0",
            "1",
            "-1",
            "9999",
            "10000",
            "-120034",
            "340282366920938463463374607431768211455",
            "0.5",
            "-12.345",
            "100000000.00000001",
            "0.00001",
        ] {
            let mut out = BytesMut::new();
            write_numeric(text, &mut out).unwrap();
            assert_eq!(read_numeric(&out).as_deref(), Some(text));
            for cut in 0..out.len() {
                let _ = read_numeric(&out[..cut]);
            }
        }
    }
}
