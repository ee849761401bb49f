//! [`ColumnBuilder`]: builds the Arrow array of one column from stored or decoded values.

use crate::arrow::types::{INTEGER_128_DIGITS, UuidFormat};
use crate::column::ColumnValue;
use crate::error::Malformed;
use crate::value::{ColumnType, Timestamp, Uuid, Value};
use arrow_array::ArrayRef;
use arrow_array::builder::{
    BinaryBuilder, BooleanBuilder, Decimal256Builder, FixedSizeBinaryBuilder, PrimitiveBuilder,
    StringBuilder,
};
use arrow_array::types::*;
use arrow_buffer::i256;
use std::sync::Arc;

/// Defines [`ColumnBuilder`] from the types whose values are appended without conversion:
/// variant of the column type, its Rust type, type of the builder.
macro_rules! column_builder {
    ($($variant:ident $type:ty, $builder:ty;)+) => {
        /// See the module.
        pub enum ColumnBuilder {
            $($variant($builder),)+
            I128(Decimal256Builder),
            U128(Decimal256Builder),
            Timestamp(PrimitiveBuilder<TimestampMicrosecondType>),
            Uuid(FixedSizeBinaryBuilder),
            UuidText(StringBuilder),
            Text(StringBuilder),
            Bytes(BinaryBuilder),
        }

        impl ColumnBuilder {
            /// Returns a builder without values, with space for `rows`.
            pub fn new(
                column_type: ColumnType,
                uuids: UuidFormat,
                rows: usize,
            ) -> ColumnBuilder {
                let decimal = || {
                    Decimal256Builder::with_capacity(rows)
                        .with_precision_and_scale(INTEGER_128_DIGITS, 0)
                        .expect("the precision is at most 76")
                };
                match column_type {
                    $(ColumnType::$variant => {
                        ColumnBuilder::$variant(<$builder>::with_capacity(rows))
                    })+
                    ColumnType::I128 => ColumnBuilder::I128(decimal()),
                    ColumnType::U128 => ColumnBuilder::U128(decimal()),
                    ColumnType::Timestamp => ColumnBuilder::Timestamp(
                        PrimitiveBuilder::with_capacity(rows).with_timezone("UTC"),
                    ),
                    ColumnType::Uuid if uuids == UuidFormat::Text => {
                        ColumnBuilder::UuidText(StringBuilder::with_capacity(rows, rows * 36))
                    }
                    ColumnType::Uuid => {
                        ColumnBuilder::Uuid(FixedSizeBinaryBuilder::with_capacity(rows, 16))
                    }
                    ColumnType::Text => {
                        ColumnBuilder::Text(StringBuilder::with_capacity(rows, rows * 8))
                    }
                    ColumnType::Bytes => {
                        ColumnBuilder::Bytes(BinaryBuilder::with_capacity(rows, rows * 8))
                    }
                }
            }
            /// Appends a value as stored in a row; `None` is NULL.
            pub fn append_stored(&mut self, stored: Option<&[u8]>) -> Result<(), Malformed> {
                match self {
                    $(ColumnBuilder::$variant(b) => {
                        b.append_option(Option::<$type>::read_stored(stored)?);
                    })+
                    ColumnBuilder::I128(b) => {
                        b.append_option(Option::<i128>::read_stored(stored)?.map(i256::from_i128));
                    }
                    ColumnBuilder::U128(b) => {
                        b.append_option(Option::<u128>::read_stored(stored)?.map(from_u128));
                    }
                    ColumnBuilder::Timestamp(b) => {
                        let time = Option::<Timestamp>::read_stored(stored)?;
                        b.append_option(time.map(Timestamp::as_micros));
                    }
                    ColumnBuilder::Uuid(b) => {
                        append_uuid(b, Option::<Uuid>::read_stored(stored)?.as_ref())?;
                    }
                    ColumnBuilder::UuidText(b) => {
                        let id = Option::<Uuid>::read_stored(stored)?;
                        b.append_option(id.map(|id| id.to_string()));
                    }
                    ColumnBuilder::Text(b) => {
                        let text = stored.map(std::str::from_utf8).transpose();
                        b.append_option(
                            text.map_err(|_| Malformed::Bytes("text is not UTF-8"))?,
                        );
                    }
                    ColumnBuilder::Bytes(b) => b.append_option(stored),
                }
                Ok(())
            }
            /// Appends a value of the type of the column, or NULL.
            pub fn append_value(&mut self, value: &Value) -> Result<(), Malformed> {
                match (self, value) {
                    $((ColumnBuilder::$variant(b), Value::$variant(v)) => b.append_value(*v),)+
                    (ColumnBuilder::I128(b), Value::I128(v)) => {
                        b.append_value(i256::from_i128(*v));
                    }
                    (ColumnBuilder::U128(b), Value::U128(v)) => b.append_value(from_u128(*v)),
                    (ColumnBuilder::Timestamp(b), Value::Timestamp(v)) => {
                        b.append_value(v.as_micros());
                    }
                    (ColumnBuilder::Uuid(b), Value::Uuid(id)) => append_uuid(b, Some(id))?,
                    (ColumnBuilder::UuidText(b), Value::Uuid(id)) => {
                        b.append_value(id.to_string());
                    }
                    (ColumnBuilder::Text(b), Value::Text(v)) => b.append_value(v),
                    (ColumnBuilder::Bytes(b), Value::Bytes(v)) => b.append_value(v),
                    (builder, Value::Null) => builder.append_stored(None)?,
                    _ => return Err(Malformed::Bytes("a value of another type than its column")),
                }
                Ok(())
            }
            /// Returns the array of the values so far, and begins a new one.
            pub fn finish(&mut self) -> ArrayRef {
                match self {
                    $(ColumnBuilder::$variant(b) => Arc::new(b.finish()),)+
                    ColumnBuilder::I128(b) | ColumnBuilder::U128(b) => Arc::new(b.finish()),
                    ColumnBuilder::Timestamp(b) => Arc::new(b.finish()),
                    ColumnBuilder::Uuid(b) => Arc::new(b.finish()),
                    ColumnBuilder::UuidText(b) | ColumnBuilder::Text(b) => Arc::new(b.finish()),
                    ColumnBuilder::Bytes(b) => Arc::new(b.finish()),
                }
            }
        }
    };
}

column_builder! {
    Bool bool, BooleanBuilder;
    I8 i8, PrimitiveBuilder<Int8Type>;
    I16 i16, PrimitiveBuilder<Int16Type>;
    I32 i32, PrimitiveBuilder<Int32Type>;
    I64 i64, PrimitiveBuilder<Int64Type>;
    U8 u8, PrimitiveBuilder<UInt8Type>;
    U16 u16, PrimitiveBuilder<UInt16Type>;
    U32 u32, PrimitiveBuilder<UInt32Type>;
    U64 u64, PrimitiveBuilder<UInt64Type>;
    F32 f32, PrimitiveBuilder<Float32Type>;
    F64 f64, PrimitiveBuilder<Float64Type>;
}

fn from_u128(value: u128) -> i256 {
    i256::from_parts(value, 0)
}

fn append_uuid(builder: &mut FixedSizeBinaryBuilder, id: Option<&Uuid>) -> Result<(), Malformed> {
    match id {
        Some(id) => {
            builder.append_value(id.0).map_err(|_| Malformed::Bytes("a UUID of another size"))
        }
        None => {
            builder.append_null();
            Ok(())
        }
    }
}
