//! The order-preserving encoding of key components: the bytes of two components compare like their
//! values, and no component is a prefix of another one of its column.
//!
//! ```text
//! bool                  u8 0 or 1
//! unsigned integer      big-endian
//! signed integer        big-endian, sign bit inverted
//! float                 big-endian bits; negative: all inverted, positive: sign bit inverted
//! timestamp             as i64
//! uuid                  16 bytes
//! text, bytes           each byte, 00 as 01 01, 01 as 01 02; then 00
//! nullable column       u8 0 for NULL, or u8 1 and the component
//! descending column     the component with all bits inverted
//! ```
//!
//! The escapes keep the order, because 01 01 < 01 02 < 02; the terminator is smaller than every
//! byte that can follow in a longer string. So the components of the first columns of a key are a
//! prefix of exactly the keys that have these values, and a range of tuples is a range of bytes.

use crate::error::Malformed;
use crate::value::{ColumnType, Timestamp, Uuid, Value};
use std::borrow::Cow;

/// The direction in which a column of a key or index is sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Order {
    /// Smallest value first; NULL before all others.
    #[default]
    Ascending,
    /// Largest value first; NULL after all others.
    Descending,
}

/// Type and direction of one column of a key or index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Component {
    /// The type.
    pub column_type: ColumnType,
    /// True if it starts with the byte for NULL.
    pub nullable: bool,
    /// The direction.
    pub order: Order,
}

/// The columns of a primary key or index, in order.
pub type KeyFormat = [Component];

/// A value that can be a component of a key; encodes in ascending order.
pub trait Ordered: Sized {
    /// Appends the component in ascending order.
    fn write_ascending(&self, out: &mut Vec<u8>);
    /// Reads a component that was written in `order`.
    fn read(reader: &mut KeyReader<'_>, order: Order) -> Result<Self, Malformed>;
}

/// Appends the component of `value` in `order`.
pub fn write_component<T: Ordered>(value: &T, order: Order, out: &mut Vec<u8>) {
    let start = out.len();
    value.write_ascending(out);
    invert_if_descending(order, &mut out[start..]);
}

/// Inverts the bytes of a component of a descending column.
pub fn invert_if_descending(order: Order, component: &mut [u8]) {
    if order == Order::Descending {
        component.iter_mut().for_each(|b| *b = !*b);
    }
}

/// Appends the component of a nullable column.
pub fn write_nullable<T: Ordered>(value: Option<&T>, order: Order, out: &mut Vec<u8>) {
    let start = out.len();
    out.push(u8::from(value.is_some()));
    if let Some(value) = value {
        value.write_ascending(out);
    }
    invert_if_descending(order, &mut out[start..]);
}

/// Appends text or bytes in ascending order.
pub fn write_escaped(bytes: &[u8], out: &mut Vec<u8>) {
    out.reserve(bytes.len() + 1);
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|b| *b <= 1) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(&[1, rest[at] + 1]);
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
    out.push(0);
}

/// Appends the component of a value of a column; a nullable column gets the byte for NULL.
pub fn write_value(value: &Value, component: Component, out: &mut Vec<u8>) {
    let start = out.len();
    if component.nullable {
        out.push(u8::from(!value.is_null()));
    }
    match value {
        Value::Null => {}
        Value::Bool(v) => v.write_ascending(out),
        Value::I8(v) => v.write_ascending(out),
        Value::I16(v) => v.write_ascending(out),
        Value::I32(v) => v.write_ascending(out),
        Value::I64(v) => v.write_ascending(out),
        Value::I128(v) => v.write_ascending(out),
        Value::U8(v) => v.write_ascending(out),
        Value::U16(v) => v.write_ascending(out),
        Value::U32(v) => v.write_ascending(out),
        Value::U64(v) => v.write_ascending(out),
        Value::U128(v) => v.write_ascending(out),
        Value::F32(v) => v.write_ascending(out),
        Value::F64(v) => v.write_ascending(out),
        Value::Timestamp(v) => v.write_ascending(out),
        Value::Uuid(v) => v.write_ascending(out),
        Value::Text(v) => v.write_ascending(out),
        Value::Bytes(v) => v.write_ascending(out),
    }
    invert_if_descending(component.order, &mut out[start..]);
}

/// Reads the components of a key from front to back.
#[derive(Clone, Debug)]
pub struct KeyReader<'a> {
    rest: &'a [u8],
}

impl<'a> KeyReader<'a> {
    /// Returns a reader at the start of `key`.
    pub fn new(key: &'a [u8]) -> KeyReader<'a> {
        KeyReader { rest: key }
    }
    /// Reads a component of type `T`.
    #[inline]
    pub fn read<T: Ordered>(&mut self, order: Order) -> Result<T, Malformed> {
        T::read(self, order)
    }
    /// Reads `N` bytes, inverted if `order` is descending.
    #[inline]
    fn read_fixed<const N: usize>(&mut self, order: Order) -> Result<[u8; N], Malformed> {
        let Some((head, rest)) = self.rest.split_first_chunk::<N>() else {
            return Err(Malformed::Bytes("a key component is cut off"));
        };
        self.rest = rest;
        let mut bytes = *head;
        invert_if_descending(order, &mut bytes);
        Ok(bytes)
    }
    /// Reads text or bytes, without their terminator and escapes.
    fn read_escaped(&mut self, order: Order) -> Result<Vec<u8>, Malformed> {
        let stored = self.skip_escaped(order)?;
        let mut bytes: Cow<'_, [u8]> = Cow::Borrowed(&stored[..stored.len() - 1]);
        if order == Order::Descending {
            invert_if_descending(order, bytes.to_mut());
        }
        let mut out = Vec::with_capacity(bytes.len());
        let mut rest = &bytes[..];
        while let Some(at) = rest.iter().position(|b| *b == 1) {
            let Some(escaped @ (1 | 2)) = rest.get(at + 1).copied() else {
                return Err(Malformed::Bytes("an unknown escape in text or bytes of a key"));
            };
            out.extend_from_slice(&rest[..at]);
            out.push(escaped - 1);
            rest = &rest[at + 2..];
        }
        out.extend_from_slice(rest);
        Ok(out)
    }
    /// Passes text or bytes and returns them as stored, with the terminator.
    fn skip_escaped(&mut self, order: Order) -> Result<&'a [u8], Malformed> {
        let terminator = if order == Order::Descending { 0xff } else { 0 };
        let Some(end) = self.rest.iter().position(|b| *b == terminator) else {
            return Err(Malformed::Bytes("text or bytes of a key have no terminator"));
        };
        let (stored, rest) = self.rest.split_at(end + 1);
        self.rest = rest;
        Ok(stored)
    }
    /// Reads the byte of a nullable column; false: NULL.
    fn read_presence(&mut self, order: Order) -> Result<bool, Malformed> {
        match self.read_fixed::<1>(order)? {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(Malformed::Bytes("neither NULL nor a value in an index key")),
        }
    }
    /// Passes a component and returns its bytes as stored; true: it is NULL.
    pub fn skip(&mut self, component: Component) -> Result<(&'a [u8], bool), Malformed> {
        let start = self.rest;
        let present = !component.nullable || self.read_presence(component.order)?;
        if present {
            match component.column_type.stored_bytes() {
                0 => drop(self.skip_escaped(component.order)?),
                n if n <= self.rest.len() => self.rest = &self.rest[n..],
                _ => return Err(Malformed::Bytes("a key component is cut off")),
            }
        }
        Ok((&start[..start.len() - self.rest.len()], !present))
    }
    /// Reads a component as a value.
    pub fn read_value(&mut self, component: Component) -> Result<Value, Malformed> {
        let order = component.order;
        if component.nullable && !self.read_presence(order)? {
            return Ok(Value::Null);
        }
        Ok(match component.column_type {
            ColumnType::Bool => Value::Bool(self.read(order)?),
            ColumnType::I8 => Value::I8(self.read(order)?),
            ColumnType::I16 => Value::I16(self.read(order)?),
            ColumnType::I32 => Value::I32(self.read(order)?),
            ColumnType::I64 => Value::I64(self.read(order)?),
            ColumnType::I128 => Value::I128(self.read(order)?),
            ColumnType::U8 => Value::U8(self.read(order)?),
            ColumnType::U16 => Value::U16(self.read(order)?),
            ColumnType::U32 => Value::U32(self.read(order)?),
            ColumnType::U64 => Value::U64(self.read(order)?),
            ColumnType::U128 => Value::U128(self.read(order)?),
            ColumnType::F32 => Value::F32(self.read(order)?),
            ColumnType::F64 => Value::F64(self.read(order)?),
            ColumnType::Timestamp => Value::Timestamp(self.read(order)?),
            ColumnType::Uuid => Value::Uuid(self.read(order)?),
            ColumnType::Text => Value::Text(self.read(order)?),
            ColumnType::Bytes => Value::Bytes(self.read(order)?),
        })
    }
    /// Returns what was not read.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }
    /// Checks that nothing is left.
    #[inline]
    pub fn finish(self) -> Result<(), Malformed> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(Malformed::Bytes("bytes after the last component of a key"))
        }
    }
}

/// Implements [`Ordered`] for integers: `$flip` is the sign bit, or 0.
macro_rules! ordered_integers {
    ($($type:ty, $unsigned:ty, $flip:expr;)+) => {$(
        impl Ordered for $type {
            #[inline]
            fn write_ascending(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&((*self as $unsigned) ^ $flip).to_be_bytes());
            }
            #[inline]
            fn read(reader: &mut KeyReader<'_>, order: Order) -> Result<Self, Malformed> {
                Ok((<$unsigned>::from_be_bytes(reader.read_fixed(order)?) ^ $flip) as $type)
            }
        }
    )+};
}

ordered_integers! {
    u8, u8, 0;
    u16, u16, 0;
    u32, u32, 0;
    u64, u64, 0;
    u128, u128, 0;
    i8, u8, 1 << 7;
    i16, u16, 1 << 15;
    i32, u32, 1 << 31;
    i64, u64, 1 << 63;
    i128, u128, 1 << 127;
}

/// Implements [`Ordered`] for floats.
macro_rules! ordered_floats {
    ($($type:ty, $bits:ty, $sign:expr;)+) => {$(
        impl Ordered for $type {
            fn write_ascending(&self, out: &mut Vec<u8>) {
                let bits = self.to_bits();
                let ordered = if bits & $sign == 0 { bits ^ $sign } else { !bits };
                out.extend_from_slice(&ordered.to_be_bytes());
            }
            fn read(reader: &mut KeyReader<'_>, order: Order) -> Result<Self, Malformed> {
                let ordered = <$bits>::from_be_bytes(reader.read_fixed(order)?);
                let bits = if ordered & $sign == 0 { !ordered } else { ordered ^ $sign };
                Ok(<$type>::from_bits(bits))
            }
        }
    )+};
}

ordered_floats! {
    f32, u32, 1 << 31;
    f64, u64, 1 << 63;
}

impl Ordered for bool {
    fn write_ascending(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
    fn read(reader: &mut KeyReader<'_>, order: Order) -> Result<Self, Malformed> {
        match reader.read_fixed(order)? {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(Malformed::Bytes("a bool of a key is neither 0 nor 1")),
        }
    }
}

impl Ordered for Timestamp {
    fn write_ascending(&self, out: &mut Vec<u8>) {
        self.as_micros().write_ascending(out);
    }
    fn read(reader: &mut KeyReader<'_>, order: Order) -> Result<Self, Malformed> {
        Ok(Timestamp::from_micros(reader.read(order)?))
    }
}

impl Ordered for Uuid {
    fn write_ascending(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }
    fn read(reader: &mut KeyReader<'_>, order: Order) -> Result<Self, Malformed> {
        Ok(Uuid(reader.read_fixed(order)?))
    }
}

impl Ordered for String {
    fn write_ascending(&self, out: &mut Vec<u8>) {
        write_escaped(self.as_bytes(), out);
    }
    fn read(reader: &mut KeyReader<'_>, order: Order) -> Result<Self, Malformed> {
        let bytes = reader.read_escaped(order)?;
        String::from_utf8(bytes).map_err(|_| Malformed::Bytes("text of a key is not UTF-8"))
    }
}

impl Ordered for Vec<u8> {
    fn write_ascending(&self, out: &mut Vec<u8>) {
        write_escaped(self, out);
    }
    fn read(reader: &mut KeyReader<'_>, order: Order) -> Result<Self, Malformed> {
        reader.read_escaped(order)
    }
}

/// Returns the smallest byte string after all strings that start with `prefix`; `None` if there is
/// none.
pub fn prefix_successor(mut prefix: Vec<u8>) -> Option<Vec<u8>> {
    while let Some(last) = prefix.pop() {
        if last < 0xff {
            prefix.push(last + 1);
            return Some(prefix);
        }
    }
    None
}

#[cfg(test)]
mod tests;
