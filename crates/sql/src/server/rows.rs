//! Results as messages of the protocol: descriptions of columns, and rows.

use crate::error::SqlError;
use crate::wire_types::{WireValue, wire_type};
use datafusion::arrow::array::{Array, ArrayRef, RecordBatch, cast::AsArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::*;
use datafusion::arrow::temporal_conversions::{date32_to_datetime, timestamp_us_to_datetime};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::error::DataFusionError;
use pgwire::api::portal::Format;
use pgwire::api::results::{DataRowEncoder, FieldFormat, FieldInfo};
use pgwire::error::PgWireResult;
use pgwire::messages::data::DataRow;
use std::sync::Arc;

/// Returns the description of the columns of a result.
pub fn describe_columns(schema: &Schema, format: Option<&Format>) -> Vec<FieldInfo> {
    let describe = |(i, field): (usize, &Arc<Field>)| {
        let format = match format {
            // Fewer formats than columns: the rest is text.
            Some(Format::Individual(formats)) if i >= formats.len() => FieldFormat::Text,
            Some(format) => format.format_for(i),
            None => FieldFormat::Text,
        };
        FieldInfo::new(field.name().clone(), None, None, wire_type(field.data_type()), format)
    };
    schema.fields().iter().enumerate().map(describe).collect()
}

/// Encodes the rows of a batch.
pub fn encode_rows(
    columns: &Arc<Vec<FieldInfo>>,
    batch: &RecordBatch,
) -> Result<Vec<PgWireResult<DataRow>>, SqlError> {
    let arrays = batch.columns().iter().map(|array| match array.data_type() {
        DataType::Dictionary(_, values) => Ok(cast(array, values)?),
        _ => Ok(Arc::clone(array)),
    });
    let arrays = arrays.collect::<Result<Vec<_>, DataFusionError>>()?;
    let readers = arrays.iter().map(value_reader);
    let readers = readers.collect::<Result<Vec<_>, DataFusionError>>()?;
    let mut encoder = DataRowEncoder::new(Arc::clone(columns));
    let mut encode = |row: usize| {
        for reader in &readers {
            encoder.encode_field(&reader(row))?;
        }
        Ok(encoder.take_row())
    };
    Ok((0..batch.num_rows()).map(&mut encode).collect())
}

type ValueReader<'a> = Box<dyn Fn(usize) -> WireValue + 'a>;

/// Returns a function that reads the values of a column, which is not a dictionary.
fn value_reader(array: &ArrayRef) -> Result<ValueReader<'_>, DataFusionError> {
    macro_rules! reader {
        ($array:expr, $value:ident => $conversion:expr) => {{
            let array = $array;
            Box::new(move |i| {
                if array.is_null(i) {
                    return WireValue::Null;
                }
                let $value = array.value(i);
                $conversion
            })
        }};
    }
    let to_us = |zone: &Option<Arc<str>>| DataType::Timestamp(TimeUnit::Microsecond, zone.clone());
    Ok(match array.data_type() {
        DataType::Boolean => reader!(array.as_boolean().clone(), v => WireValue::Bool(v)),
        DataType::Int8
        | DataType::Int16
        | DataType::Int32
        | DataType::Int64
        | DataType::UInt8
        | DataType::UInt16
        | DataType::UInt32 => {
            let wide = cast(array, &DataType::Int64)?;
            reader!(wide.as_primitive::<Int64Type>().clone(), v => WireValue::Integer(v))
        }
        DataType::UInt64 => {
            let array = array.as_primitive::<UInt64Type>().clone();
            reader!(array, v => WireValue::Numeric(v.to_string()))
        }
        DataType::Float16 | DataType::Float32 => {
            let array = cast(array, &DataType::Float32)?;
            reader!(array.as_primitive::<Float32Type>().clone(), v => WireValue::Float32(v))
        }
        DataType::Float64 => {
            reader!(array.as_primitive::<Float64Type>().clone(), v => WireValue::Float(v))
        }
        DataType::Utf8 => {
            let array = array.as_string::<i32>().clone();
            reader!(array, v => WireValue::Text(v.to_owned()))
        }
        DataType::LargeUtf8 => {
            let array = array.as_string::<i64>().clone();
            reader!(array, v => WireValue::Text(v.to_owned()))
        }
        DataType::Utf8View => {
            reader!(array.as_string_view().clone(), v => WireValue::Text(v.to_owned()))
        }
        DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView
        | DataType::FixedSizeBinary(_) => {
            let array = cast(array, &DataType::LargeBinary)?;
            reader!(array.as_binary::<i64>().clone(), v => WireValue::Bytes(v.to_vec()))
        }
        DataType::Timestamp(_, zone) => {
            let suffix = if zone.is_some() { "+00" } else { "" };
            let array = cast(array, &to_us(zone))?;
            let array = array.as_primitive::<TimestampMicrosecondType>().clone();
            reader!(array, v => WireValue::Timestamp(v, timestamp_text(v, suffix)))
        }
        DataType::Date32 | DataType::Date64 => {
            let array = cast(array, &DataType::Date32)?;
            let array = array.as_primitive::<Date32Type>().clone();
            reader!(array, v => WireValue::Date(v, date_text(v)))
        }
        other => {
            let is_number = wire_type(other) == pgwire::api::Type::NUMERIC;
            let formatter = ArrayFormatter::try_new(array, &FormatOptions::default())?;
            Box::new(move |i| {
                if array.is_null(i) {
                    return WireValue::Null;
                }
                let text = formatter.value(i).to_string();
                if is_number { WireValue::Numeric(text) } else { WireValue::Text(text) }
            })
        }
    })
}

/// Formats a time as PostgreSQL does: `2026-01-01 12:00:00.5+00`.
fn timestamp_text(us: i64, suffix: &str) -> String {
    let Some(time) = timestamp_us_to_datetime(us) else { return us.to_string() };
    let text = time.format("%Y-%m-%d %H:%M:%S%.6f").to_string();
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{text}{suffix}")
}

fn date_text(days: i32) -> String {
    match date32_to_datetime(days) {
        Some(time) => time.format("%Y-%m-%d").to_string(),
        None => days.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_the_form_of_postgresql() {
        assert_eq!(timestamp_text(0, "+00"), "1970-01-01 00:00:00+00");
        assert_eq!(timestamp_text(1_500_000, ""), "1970-01-01 00:00:01.5");
        assert_eq!(timestamp_text(10_000_000, ""), "1970-01-01 00:00:10");
        assert_eq!(date_text(-1), "1969-12-31");
    }
}
