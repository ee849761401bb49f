//! Keys as arguments: [`PrimaryKey`] is the primary key of a row type, [`KeyPrefix`] a value for
//! its first columns, [`FullKey`] one for all of them.

use crate::column::KeyValue;
use crate::error::{Error, Malformed, Result};
use crate::ordered::{KeyFormat, KeyReader, Order, write_escaped, write_value};
use crate::value::{Timestamp, Uuid, Value};

/// The primary key of a row type: a tuple of the types of its key fields, or `Vec<Value>` for
/// dynamic rows. The change feed returns keys of deleted rows in this form.
pub trait PrimaryKey: Sized + Clone {
    /// Reads a key, up to its end.
    #[doc(hidden)]
    fn read_key(key: &[u8], format: &KeyFormat) -> std::result::Result<Self, Malformed>;
}

/// A value for one column of a key of type `A`: `A`, `&str` for `String`, `&[u8]` for `Vec<u8>`.
pub trait KeyPart<A> {
    /// Appends the component.
    #[doc(hidden)]
    fn write_part(&self, order: Order, out: &mut Vec<u8>);
}

impl<A: KeyValue> KeyPart<A> for A {
    #[inline]
    fn write_part(&self, order: Order, out: &mut Vec<u8>) {
        self.write_ordered(order, out);
    }
}

/// Appends text or bytes in `order`.
fn write_escaped_part(bytes: &[u8], order: Order, out: &mut Vec<u8>) {
    let start = out.len();
    write_escaped(bytes, out);
    crate::ordered::invert_if_descending(order, &mut out[start..]);
}

impl KeyPart<String> for &str {
    fn write_part(&self, order: Order, out: &mut Vec<u8>) {
        write_escaped_part(self.as_bytes(), order, out);
    }
}

impl KeyPart<Vec<u8>> for &[u8] {
    fn write_part(&self, order: Order, out: &mut Vec<u8>) {
        write_escaped_part(self, order, out);
    }
}

/// Values for the first columns of a key of type `K`: a shorter or equally long tuple, a single
/// value for the first column, or for dynamic rows a slice of values.
///
/// ```
/// # use perigee_tables::*;
/// #[derive(Row)]
/// struct Reading {
///     #[key]
///     sensor: u32,
///     #[key]
///     second: u64,
///     value: f64,
/// }
/// # let db = perigee::example_db()?;
/// let readings = db.table::<Reading>("readings")?;
/// readings.put(&Reading { sensor: 7, second: 1, value: 0.5 })?;
/// assert_eq!(readings.prefix(7)?.count(), 1);
/// assert_eq!(readings.range((7, 0)..(7, 60))?.count(), 1);
/// # Ok::<(), Error>(())
/// ```
pub trait KeyPrefix<K> {
    /// Appends the components and returns their number.
    #[doc(hidden)]
    fn write_prefix(&self, format: &KeyFormat, out: &mut Vec<u8>) -> Result<usize>;
}

/// A value for all columns of a key of type `K`: a tuple, or for a key of one column the value
/// itself; for dynamic rows a slice of values.
pub trait FullKey<K>: KeyPrefix<K> {}

/// Returns the direction of column `i`; formats are as long as the tuples of their row type.
#[inline]
fn order_of(format: &KeyFormat, i: usize) -> Order {
    format.get(i).map_or(Order::Ascending, |component| component.order)
}

/// Implements the traits for the key `(A, B, ...)` of one length.
macro_rules! tuple_key {
    ($($all:ident $index:tt),+) => {
        impl<$($all: KeyValue + Clone),+> PrimaryKey for ($($all,)+) {
            #[inline]
            fn read_key(
                key: &[u8],
                format: &KeyFormat,
            ) -> std::result::Result<Self, Malformed> {
                let mut reader = KeyReader::new(key);
                let tuple = ($($all::read_ordered(&mut reader, order_of(format, $index))?,)+);
                reader.finish()?;
                Ok(tuple)
            }
        }
    };
}

/// Implements [`KeyPrefix`] for tuples of the part types `P Q ...` of a key that continues with
/// other columns.
macro_rules! tuple_prefix {
    ([$($first:ident $part:ident $index:tt),+] [$($rest:ident)*]) => {
        impl<$($first: KeyValue, $part: KeyPart<$first>,)+ $($rest,)*>
            KeyPrefix<($($first,)+ $($rest,)*)> for ($($part,)+)
        {
            #[inline]
            fn write_prefix(&self, format: &KeyFormat, out: &mut Vec<u8>) -> Result<usize> {
                $(self.$index.write_part(order_of(format, $index), out);)+
                Ok([$($index),+].len())
            }
        }
        tuple_prefix!(@full [$($first $part),+] [$($rest)*]);
    };
    (@full [$($first:ident $part:ident),+] []) => {
        impl<$($first: KeyValue, $part: KeyPart<$first>),+> FullKey<($($first,)+)>
            for ($($part,)+) {}
    };
    (@full [$($first:ident $part:ident),+] [$($rest:ident)+]) => {};
}

/// Calls [`tuple_prefix`] for a prefix and each shorter one.
macro_rules! tuple_prefixes {
    ([$($first:ident $part:ident $index:tt),+] []) => {
        tuple_prefix!([$($first $part $index),+] []);
    };
    ([$($first:ident $part:ident $index:tt),+] [$next:ident $next_part:ident $next_index:tt
      $(, $rest:ident $rest_part:ident $rest_index:tt)*]) => {
        tuple_prefix!([$($first $part $index),+] [$next $($rest)*]);
        tuple_prefixes!([$($first $part $index,)+ $next $next_part $next_index]
            [$($rest $rest_part $rest_index),*]);
    };
}

/// Calls the macros for keys of each length.
macro_rules! tuple_keys {
    ($($first:ident $part:ident $index:tt),+;) => {
        tuple_key!($($first $index),+);
        tuple_prefixes_of!($($first $part $index),+);
    };
    ($($first:ident $part:ident $index:tt),+; $next:ident $next_part:ident $next_index:tt
      $(, $rest:ident $rest_part:ident $rest_index:tt)*) => {
        tuple_key!($($first $index),+);
        tuple_prefixes_of!($($first $part $index),+);
        tuple_keys!($($first $part $index,)+ $next $next_part $next_index;
            $($rest $rest_part $rest_index),*);
    };
}

macro_rules! tuple_prefixes_of {
    ($first:ident $part:ident $index:tt $(, $rest:ident $rest_part:ident $rest_index:tt)*) => {
        tuple_prefixes!([$first $part $index] [$($rest $rest_part $rest_index),*]);
    };
}

tuple_keys!(A PA 0; B PB 1, C PC 2, D PD 3, E PE 4, F PF 5, G PG 6, H PH 7);

/// Implements [`KeyPrefix`] for a single value of the first column, for keys of every length.
macro_rules! single_value_key {
    ($($part:ty => $column:ty;)+) => {$(
        single_value_key!(@lengths $part, $column; B C D E F G H);
        impl FullKey<($column,)> for $part {}
    )+};
    (@lengths $part:ty, $column:ty;) => {
        single_value_key!(@one $part, $column;);
    };
    (@lengths $part:ty, $column:ty; $first:ident $($rest:ident)*) => {
        single_value_key!(@one $part, $column; $first $($rest)*);
        single_value_key!(@lengths $part, $column; $($rest)*);
    };
    (@one $part:ty, $column:ty; $($rest:ident)*) => {
        impl<$($rest),*> KeyPrefix<($column, $($rest,)*)> for $part {
            #[inline]
            fn write_prefix(&self, format: &KeyFormat, out: &mut Vec<u8>) -> Result<usize> {
                KeyPart::<$column>::write_part(self, order_of(format, 0), out);
                Ok(1)
            }
        }
    };
}

single_value_key! {
    bool => bool;
    i8 => i8;
    i16 => i16;
    i32 => i32;
    i64 => i64;
    i128 => i128;
    u8 => u8;
    u16 => u16;
    u32 => u32;
    u64 => u64;
    u128 => u128;
    f32 => f32;
    f64 => f64;
    Timestamp => Timestamp;
    Uuid => Uuid;
    String => String;
    &str => String;
    Vec<u8> => Vec<u8>;
    &[u8] => Vec<u8>;
}

impl PrimaryKey for Vec<Value> {
    fn read_key(key: &[u8], format: &KeyFormat) -> std::result::Result<Self, Malformed> {
        read_values(key, format)
    }
}

/// Reads all components of a key.
pub fn read_values(key: &[u8], format: &KeyFormat) -> std::result::Result<Vec<Value>, Malformed> {
    let mut reader = KeyReader::new(key);
    let values = format.iter().map(|component| reader.read_value(*component));
    let values = values.collect::<std::result::Result<_, _>>()?;
    reader.finish()?;
    Ok(values)
}

/// Appends the components of values, converted to the types of the columns.
///
/// # Errors
/// `InvalidArgument` if there are too many values or one does not fit its column.
pub fn write_values(values: &[Value], format: &KeyFormat, out: &mut Vec<u8>) -> Result<usize> {
    if values.len() > format.len() {
        let text = format!("{} values for a key of {} columns", values.len(), format.len());
        return Err(Error::invalid(text));
    }
    for (i, (value, component)) in values.iter().zip(format).enumerate() {
        let converted = value.convert_to(component.column_type);
        match converted.filter(|v| component.nullable || !v.is_null()) {
            Some(value) => write_value(&value, *component, out),
            None => {
                let column_type = component.column_type;
                let text = format!("value {} of the key, {value}, is no {column_type}", i + 1);
                return Err(Error::invalid(text));
            }
        }
    }
    Ok(values.len())
}

/// Implements the traits for slices of values.
macro_rules! dynamic_key {
    ($([$($generics:tt)*] $type:ty;)+) => {$(
        impl<$($generics)*> KeyPrefix<Vec<Value>> for $type {
            fn write_prefix(&self, format: &KeyFormat, out: &mut Vec<u8>) -> Result<usize> {
                write_values(self.as_ref(), format, out)
            }
        }
        impl<$($generics)*> FullKey<Vec<Value>> for $type {}
    )+};
}

dynamic_key! {
    [] Vec<Value>;
    [] &Vec<Value>;
    [] &[Value];
    [const N: usize] [Value; N];
    [const N: usize] &[Value; N];
}

/// Values for the first columns of an index; converted to the types of the columns without loss.
/// Implemented for single values, tuples, and slices of [`Value`].
///
/// ```
/// # use perigee_tables::*;
/// # let db = perigee::example_db()?;
/// let schema = Schema::new().key("id", ColumnType::U32).column("age", ColumnType::U8);
/// let users = db.create_dyn_table("users", schema)?;
/// users.create_index(IndexDef::new("by_age").column("age"))?;
/// users.put(&vec![Value::U32(1), Value::U8(40)])?;
/// assert_eq!(users.index("by_age")?.range(30..50)?.count(), 1);
/// assert_eq!(users.index("by_age")?.prefix((40,))?.count(), 1);
/// # Ok::<(), Error>(())
/// ```
pub trait IndexPrefix {
    /// Returns the values.
    #[doc(hidden)]
    fn to_values(&self) -> Vec<Value>;
}

macro_rules! index_prefix {
    (single $($type:ty),+) => {$(
        impl IndexPrefix for $type {
            fn to_values(&self) -> Vec<Value> {
                vec![Value::from(self.clone())]
            }
        }
    )+};
    (slices $([$($generics:tt)*] $type:ty;)+) => {$(
        impl<$($generics)*> IndexPrefix for $type {
            fn to_values(&self) -> Vec<Value> {
                self.to_vec()
            }
        }
    )+};
    (tuples $($name:ident $index:tt),+) => {
        impl<$($name: Clone + Into<Value>),+> IndexPrefix for ($($name,)+) {
            fn to_values(&self) -> Vec<Value> {
                vec![$(self.$index.clone().into()),+]
            }
        }
    };
}

index_prefix!(single bool, i8, i16, i32, i64, i128, u8, u16, u32, u64, u128, f32, f64, Timestamp,
    Uuid, String, &str, Vec<u8>, &[u8], Value);
index_prefix!(slices [] Vec<Value>; [] &[Value]; [const N: usize] [Value; N];);
index_prefix!(tuples A 0);
index_prefix!(tuples A 0, B 1);
index_prefix!(tuples A 0, B 1, C 2);
index_prefix!(tuples A 0, B 1, C 2, D 3);
index_prefix!(tuples A 0, B 1, C 2, D 3, E 4);
index_prefix!(tuples A 0, B 1, C 2, D 3, E 4, F 5);
index_prefix!(tuples A 0, B 1, C 2, D 3, E 4, F 5, G 6);
index_prefix!(tuples A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);
