//! Dynamic rows from record batches: [`rows_from_batch`].

use crate::error::{Error, Result};
use crate::schema::{Column, Schema};
use crate::value::{ColumnType, Timestamp, Uuid, Value};
use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{Array, RecordBatch};
use arrow_buffer::i256;
use arrow_schema::{DataType, TimeUnit};

/// Returns the rows of a record batch for a table of this schema. Columns are matched by name, in
/// any order. A column that the batch lacks gets its default or NULL. Values are converted to the
/// types of the table without loss: between integers, from decimals without fraction, from floats
/// of 32 to 64 bits, from dates and other units of time, from text to UUIDs.
///
/// ```
/// use perigee_tables::{ColumnType, Schema, TableDb, Value, rows_from_batch};
/// use arrow_array::{Int64Array, RecordBatch, StringArray};
/// use std::sync::Arc;
/// # let db = perigee::example_db()?;
/// let schema = Schema::new().key("id", ColumnType::U32).column("name", ColumnType::Text);
/// let users = db.create_dyn_table("users", schema)?;
/// let batch = RecordBatch::try_from_iter([
///     ("name", Arc::new(StringArray::from(vec!["ann", "bob"])) as _),
///     ("id", Arc::new(Int64Array::from(vec![1, 2])) as _),
/// ]).unwrap();
/// users.load(rows_from_batch(&batch, &users.schema())?)?;
/// assert_eq!(users.get([Value::U32(2)])?, Some(vec![Value::U32(2), Value::from("bob")]));
/// # Ok::<(), perigee_tables::Error>(())
/// ```
///
/// # Errors
/// `InvalidArgument`, naming the column: the table has no such column, a value does not fit its
/// type, or NULL in a column that is not nullable.
pub fn rows_from_batch(batch: &RecordBatch, schema: &Schema) -> Result<Vec<Vec<Value>>> {
    let arrow = batch.schema();
    for field in arrow.fields() {
        if schema.position(field.name()).is_none() {
            let text = "the table has no such column: leave it out, or add it to the table";
            return Err(Error::invalid(text).in_column(field.name()));
        }
    }
    let mut rows = vec![Vec::with_capacity(schema.columns().len()); batch.num_rows()];
    for column in schema.columns() {
        match batch.column_by_name(&column.name) {
            Some(array) => push_column(array, column, &mut rows)?,
            None => {
                let value = column.default.clone().unwrap_or_default();
                if value.is_null() && !column.nullable {
                    let text = "the batch lacks this column, which is not nullable";
                    return Err(Error::invalid(text).in_column(&column.name));
                }
                rows.iter_mut().for_each(|row| row.push(value.clone()));
            }
        }
    }
    Ok(rows)
}

/// Appends the values of a column to the rows.
fn push_column(array: &dyn Array, column: &Column, rows: &mut [Vec<Value>]) -> Result<()> {
    let fails = |e: Error| e.in_column(&column.name);
    let read = value_reader(array).map_err(fails)?;
    let nulls = array.logical_nulls();
    for (i, row) in rows.iter_mut().enumerate() {
        if nulls.as_ref().is_some_and(|nulls| nulls.is_null(i)) {
            if !column.nullable {
                let text = "NULL in a column that is not nullable";
                return Err(Error::invalid(text).in_column(&column.name));
            }
            row.push(Value::Null);
            continue;
        }
        let value = read(i).map_err(fails)?;
        match convert(value, column.column_type) {
            Ok(value) => row.push(value),
            Err(value) => {
                let text = format!("{value} is no {}", column.column_type);
                return Err(Error::invalid(text).in_column(&column.name));
            }
        }
    }
    Ok(())
}

/// Converts a value to a column type without loss.
fn convert(value: Value, to: ColumnType) -> std::result::Result<Value, Value> {
    if let Some(converted) = value.convert_to(to) {
        return Ok(converted);
    }
    Ok(match (&value, to) {
        (Value::F32(v), ColumnType::F64) => Value::F64(f64::from(*v)),
        (Value::F64(v), ColumnType::F32) if f64::from(*v as f32).to_bits() == v.to_bits() => {
            Value::F32(*v as f32)
        }
        (Value::Text(text), ColumnType::Uuid) => match text.parse() {
            Ok(id) => Value::Uuid(id),
            Err(_) => return Err(value),
        },
        (Value::Bytes(bytes), ColumnType::Uuid) => match <[u8; 16]>::try_from(&bytes[..]) {
            Ok(id) => Value::Uuid(Uuid(id)),
            Err(_) => return Err(value),
        },
        _ => return Err(value),
    })
}

type ValueReader<'a> = Box<dyn Fn(usize) -> Result<Value> + 'a>;

/// Returns a function that reads the value at a position, which is not NULL.
fn value_reader(array: &dyn Array) -> Result<ValueReader<'_>> {
    macro_rules! primitive {
        ($type:ty, $value:ident => $conversion:expr) => {{
            let array = array.as_primitive::<$type>();
            Box::new(move |i| {
                let $value = array.value(i);
                Ok($conversion)
            })
        }};
    }
    macro_rules! text {
        ($array:expr) => {{
            let array = $array;
            Box::new(move |i| Ok(Value::from(array.value(i))))
        }};
    }
    Ok(match array.data_type() {
        DataType::Boolean => {
            let array = array.as_boolean();
            Box::new(move |i| Ok(Value::Bool(array.value(i))))
        }
        DataType::Int8 => primitive!(Int8Type, v => Value::I8(v)),
        DataType::Int16 => primitive!(Int16Type, v => Value::I16(v)),
        DataType::Int32 => primitive!(Int32Type, v => Value::I32(v)),
        DataType::Int64 => primitive!(Int64Type, v => Value::I64(v)),
        DataType::UInt8 => primitive!(UInt8Type, v => Value::U8(v)),
        DataType::UInt16 => primitive!(UInt16Type, v => Value::U16(v)),
        DataType::UInt32 => primitive!(UInt32Type, v => Value::U32(v)),
        DataType::UInt64 => primitive!(UInt64Type, v => Value::U64(v)),
        DataType::Float16 => primitive!(Float16Type, v => Value::F32(v.to_f32())),
        DataType::Float32 => primitive!(Float32Type, v => Value::F32(v)),
        DataType::Float64 => primitive!(Float64Type, v => Value::F64(v)),
        DataType::Decimal128(_, 0) => primitive!(Decimal128Type, v => Value::I128(v)),
        DataType::Decimal256(_, 0) => primitive!(Decimal256Type, v => integer(v)?),
        DataType::Timestamp(TimeUnit::Second, _) => {
            primitive!(TimestampSecondType, v => scaled(v, 1_000_000)?)
        }
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            primitive!(TimestampMillisecondType, v => scaled(v, 1000)?)
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            primitive!(TimestampMicrosecondType, v => scaled(v, 1)?)
        }
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            primitive!(TimestampNanosecondType, v => scaled(v.div_euclid(1000), 1)?)
        }
        DataType::Date32 => primitive!(Date32Type, v => scaled(i64::from(v), 86_400_000_000)?),
        DataType::Date64 => primitive!(Date64Type, v => scaled(v, 1000)?),
        DataType::Utf8 => text!(array.as_string::<i32>()),
        DataType::LargeUtf8 => text!(array.as_string::<i64>()),
        DataType::Utf8View => text!(array.as_string_view()),
        DataType::Binary => text!(array.as_binary::<i32>()),
        DataType::LargeBinary => text!(array.as_binary::<i64>()),
        DataType::BinaryView => text!(array.as_binary_view()),
        DataType::FixedSizeBinary(_) => text!(array.as_fixed_size_binary()),
        DataType::Null => Box::new(|_| Ok(Value::Null)),
        DataType::Dictionary(..) if array.as_any_dictionary().values().is_empty() => {
            Box::new(|_| Ok(Value::Null))
        }
        DataType::Dictionary(..) => {
            let dictionary = array.as_any_dictionary();
            let keys = dictionary.normalized_keys();
            let read = value_reader(dictionary.values().as_ref())?;
            Box::new(move |i| read(keys[i]))
        }
        other => {
            let text = format!(
                "tables have no type for the Arrow type {other}: leave the column out, or convert it"
            );
            return Err(Error::invalid(text));
        }
    })
}

fn scaled(value: i64, micros: i64) -> Result<Value> {
    let micros = value.checked_mul(micros).ok_or_else(|| Error::invalid("a time out of range"))?;
    Ok(Value::Timestamp(Timestamp::from_micros(micros)))
}

fn integer(value: i256) -> Result<Value> {
    match (value.to_i128(), value.to_parts()) {
        (Some(value), _) => Ok(Value::I128(value)),
        (None, (low, 0)) => Ok(Value::U128(low)),
        _ => Err(Error::invalid("an integer of more than 128 bits")),
    }
}
