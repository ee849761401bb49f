//! [`ColumnValue`] and [`KeyValue`]: the Rust types that fields of rows can have.

use crate::error::Malformed;
use crate::ordered::{Order, Ordered, write_component, write_nullable};
use crate::row_format::ColumnWriter;
use crate::value::{ColumnType, Timestamp, Uuid, Value};

/// A type that a field of a row can have: `bool`, `i8` to `i128`, `u8` to `u128`, `f32`, `f64`,
/// [`Timestamp`], [`Uuid`], `String`, `Vec<u8>`, and `Option` of these for a nullable column.
///
/// ```
/// use perigee_tables::{ColumnType, ColumnValue};
/// assert_eq!(<Option<u32> as ColumnValue>::COLUMN_TYPE, ColumnType::U32);
/// assert!(<Option<u32> as ColumnValue>::NULLABLE);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the type of a column",
    note = "columns are bool, integers, floats, Timestamp, Uuid, String, Vec<u8>, or Option of these"
)]
pub trait ColumnValue: Sized {
    /// Type of the column.
    const COLUMN_TYPE: ColumnType;
    /// True for `Option`.
    const NULLABLE: bool = false;
    /// Writes the value as a column of a row.
    #[doc(hidden)]
    fn write_stored(&self, writer: &mut ColumnWriter<'_>);
    /// Reads a column of a row; `None` is NULL.
    #[doc(hidden)]
    fn read_stored(stored: Option<&[u8]>) -> Result<Self, Malformed>;
    /// Replaces the value by that of a column of a row, and reuses its memory if it can.
    #[doc(hidden)]
    #[inline]
    fn replace_by_stored(&mut self, stored: Option<&[u8]>) -> Result<(), Malformed> {
        *self = Self::read_stored(stored)?;
        Ok(())
    }
    /// Appends the component of an index key.
    #[doc(hidden)]
    fn write_ordered(&self, order: Order, out: &mut Vec<u8>);
    /// Returns true for NULL.
    #[doc(hidden)]
    fn is_null(&self) -> bool {
        false
    }
    /// Converts into a dynamic value.
    #[doc(hidden)]
    fn to_value(&self) -> Value;
}

/// A type that a field of a primary key can have: every [`ColumnValue`] except `Option`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the type of a column of a primary key",
    note = "key columns are bool, integers, floats, Timestamp, Uuid, String or Vec<u8>, not Option"
)]
pub trait KeyValue: ColumnValue {
    /// Reads the next component of a key.
    #[doc(hidden)]
    fn read_ordered(
        reader: &mut crate::ordered::KeyReader<'_>,
        order: Order,
    ) -> Result<Self, Malformed>;
}

/// Returns the value of a column that is not nullable.
#[inline]
fn not_null(stored: Option<&[u8]>) -> Result<&[u8], Malformed> {
    stored.ok_or(Malformed::Bytes("NULL in a column that is not nullable"))
}

/// Returns the value of a column of fixed size.
#[inline]
fn fixed<const N: usize>(stored: Option<&[u8]>) -> Result<[u8; N], Malformed> {
    let bytes = not_null(stored)?;
    bytes.try_into().map_err(|_| Malformed::Bytes("a column has the wrong size"))
}

/// Returns the value of a text column.
#[inline]
fn text(stored: Option<&[u8]>) -> Result<&str, Malformed> {
    let text = std::str::from_utf8(not_null(stored)?);
    text.map_err(|_| Malformed::Bytes("text is not UTF-8"))
}

/// Implements both traits: `$write` writes the value `$value`, `$read` converts `$stored`,
/// `$replace` replaces `$old` by it.
macro_rules! column_value {
    ($($type:ty: $variant:ident, ($value:ident, $writer:ident) $write:expr,
       ($stored:ident) $read:expr $(, ($old:ident) $replace:expr)?;)+) => {$(
        impl ColumnValue for $type {
            const COLUMN_TYPE: ColumnType = ColumnType::$variant;
            #[inline]
            fn write_stored(&self, $writer: &mut ColumnWriter<'_>) {
                let $value = self;
                $write;
            }
            #[inline]
            fn read_stored($stored: Option<&[u8]>) -> Result<Self, Malformed> {
                $read
            }
            $(#[inline]
            fn replace_by_stored(&mut self, $stored: Option<&[u8]>) -> Result<(), Malformed> {
                let $old = self;
                $replace
            })?
            #[inline]
            fn write_ordered(&self, order: Order, out: &mut Vec<u8>) {
                write_component(self, order, out);
            }
            fn to_value(&self) -> Value {
                Value::from(self.clone())
            }
        }
        impl KeyValue for $type {
            #[inline]
            fn read_ordered(
                reader: &mut crate::ordered::KeyReader<'_>,
                order: Order,
            ) -> Result<Self, Malformed> {
                <$type as Ordered>::read(reader, order)
            }
        }
    )+};
}

column_value! {
    bool: Bool, (v, w) w.fixed([u8::from(*v)]), (stored) match fixed(stored)? {
        [0] => Ok(false),
        [1] => Ok(true),
        _ => Err(Malformed::Bytes("a bool is neither 0 nor 1")),
    };
    i8: I8, (v, w) w.fixed(v.to_le_bytes()), (stored) fixed(stored).map(Self::from_le_bytes);
    i16: I16, (v, w) w.fixed(v.to_le_bytes()), (stored) fixed(stored).map(Self::from_le_bytes);
    i32: I32, (v, w) w.fixed(v.to_le_bytes()), (stored) fixed(stored).map(Self::from_le_bytes);
    i64: I64, (v, w) w.fixed(v.to_le_bytes()), (stored) fixed(stored).map(Self::from_le_bytes);
    i128: I128, (v, w) w.fixed(v.to_le_bytes()), (stored) fixed(stored).map(Self::from_le_bytes);
    u8: U8, (v, w) w.fixed(v.to_le_bytes()), (stored) fixed(stored).map(Self::from_le_bytes);
    u16: U16, (v, w) w.fixed(v.to_le_bytes()), (stored) fixed(stored).map(Self::from_le_bytes);
    u32: U32, (v, w) w.fixed(v.to_le_bytes()), (stored) fixed(stored).map(Self::from_le_bytes);
    u64: U64, (v, w) w.fixed(v.to_le_bytes()), (stored) fixed(stored).map(Self::from_le_bytes);
    u128: U128, (v, w) w.fixed(v.to_le_bytes()), (stored) fixed(stored).map(Self::from_le_bytes);
    f32: F32, (v, w) w.fixed(v.to_le_bytes()), (stored) fixed(stored).map(Self::from_le_bytes);
    f64: F64, (v, w) w.fixed(v.to_le_bytes()), (stored) fixed(stored).map(Self::from_le_bytes);
    Timestamp: Timestamp, (v, w) w.fixed(v.as_micros().to_le_bytes()),
        (stored) Ok(Timestamp::from_micros(i64::from_le_bytes(fixed(stored)?)));
    Uuid: Uuid, (v, w) w.fixed(v.0), (stored) fixed(stored).map(Uuid);
    String: Text, (v, w) w.variable(v.as_bytes()), (stored) text(stored).map(str::to_owned),
        (old) text(stored).map(|text| {
            old.clear();
            old.push_str(text);
        });
    Vec<u8>: Bytes, (v, w) w.variable(v), (stored) not_null(stored).map(<[u8]>::to_vec),
        (old) not_null(stored).map(|bytes| {
            old.clear();
            old.extend_from_slice(bytes);
        });
}

impl<T: ColumnValue + Ordered> ColumnValue for Option<T> {
    const COLUMN_TYPE: ColumnType = T::COLUMN_TYPE;
    const NULLABLE: bool = true;
    #[inline]
    fn write_stored(&self, writer: &mut ColumnWriter<'_>) {
        match self {
            Some(value) => value.write_stored(writer),
            None => writer.null(),
        }
    }
    #[inline]
    fn read_stored(stored: Option<&[u8]>) -> Result<Self, Malformed> {
        stored.map(|bytes| T::read_stored(Some(bytes))).transpose()
    }
    #[inline]
    fn replace_by_stored(&mut self, stored: Option<&[u8]>) -> Result<(), Malformed> {
        match (self, stored) {
            (Some(value), Some(_)) => value.replace_by_stored(stored),
            (old, _) => {
                *old = Self::read_stored(stored)?;
                Ok(())
            }
        }
    }
    fn write_ordered(&self, order: Order, out: &mut Vec<u8>) {
        write_nullable(self.as_ref(), order, out);
    }
    fn is_null(&self) -> bool {
        self.is_none()
    }
    fn to_value(&self) -> Value {
        self.as_ref().map_or(Value::Null, ColumnValue::to_value)
    }
}

impl Value {
    /// Writes the value as a column of its type.
    pub(crate) fn write_stored(&self, writer: &mut ColumnWriter<'_>) {
        match self {
            Value::Null => writer.null(),
            Value::Bool(v) => v.write_stored(writer),
            Value::I8(v) => v.write_stored(writer),
            Value::I16(v) => v.write_stored(writer),
            Value::I32(v) => v.write_stored(writer),
            Value::I64(v) => v.write_stored(writer),
            Value::I128(v) => v.write_stored(writer),
            Value::U8(v) => v.write_stored(writer),
            Value::U16(v) => v.write_stored(writer),
            Value::U32(v) => v.write_stored(writer),
            Value::U64(v) => v.write_stored(writer),
            Value::U128(v) => v.write_stored(writer),
            Value::F32(v) => v.write_stored(writer),
            Value::F64(v) => v.write_stored(writer),
            Value::Timestamp(v) => v.write_stored(writer),
            Value::Uuid(v) => v.write_stored(writer),
            Value::Text(v) => v.write_stored(writer),
            Value::Bytes(v) => v.write_stored(writer),
        }
    }
    /// Returns the bytes of the value in a row; `None` for NULL.
    pub(crate) fn to_stored_bytes(&self) -> Option<Vec<u8>> {
        if self.is_null() {
            return None;
        }
        let mut out = Vec::new();
        self.write_stored(&mut ColumnWriter::of_single_value(&mut out));
        Some(out)
    }
    /// Reads a column of type `column_type`; `None` is NULL.
    pub(crate) fn read_stored(
        column_type: ColumnType,
        stored: Option<&[u8]>,
    ) -> Result<Value, Malformed> {
        let Some(bytes) = stored else { return Ok(Value::Null) };
        let stored = Some(bytes);
        Ok(match column_type {
            ColumnType::Bool => Value::Bool(ColumnValue::read_stored(stored)?),
            ColumnType::I8 => Value::I8(ColumnValue::read_stored(stored)?),
            ColumnType::I16 => Value::I16(ColumnValue::read_stored(stored)?),
            ColumnType::I32 => Value::I32(ColumnValue::read_stored(stored)?),
            ColumnType::I64 => Value::I64(ColumnValue::read_stored(stored)?),
            ColumnType::I128 => Value::I128(ColumnValue::read_stored(stored)?),
            ColumnType::U8 => Value::U8(ColumnValue::read_stored(stored)?),
            ColumnType::U16 => Value::U16(ColumnValue::read_stored(stored)?),
            ColumnType::U32 => Value::U32(ColumnValue::read_stored(stored)?),
            ColumnType::U64 => Value::U64(ColumnValue::read_stored(stored)?),
            ColumnType::U128 => Value::U128(ColumnValue::read_stored(stored)?),
            ColumnType::F32 => Value::F32(ColumnValue::read_stored(stored)?),
            ColumnType::F64 => Value::F64(ColumnValue::read_stored(stored)?),
            ColumnType::Timestamp => Value::Timestamp(ColumnValue::read_stored(stored)?),
            ColumnType::Uuid => Value::Uuid(ColumnValue::read_stored(stored)?),
            ColumnType::Text => Value::Text(ColumnValue::read_stored(stored)?),
            ColumnType::Bytes => Value::Bytes(ColumnValue::read_stored(stored)?),
        })
    }
}
