//! Column types and values: [`ColumnType`], [`Value`], [`Timestamp`], [`Uuid`].

use std::cmp::Ordering;
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A point in time: microseconds since 1970-01-01 00:00 UTC, negative before.
///
/// ```
/// # use perigee_tables::Timestamp;
/// let t = Timestamp::from_secs(1_700_000_000);
/// assert_eq!(t.as_micros(), 1_700_000_000_000_000);
/// assert!(t < Timestamp::MAX);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The earliest time.
    pub const MIN: Timestamp = Timestamp(i64::MIN);
    /// The latest time.
    pub const MAX: Timestamp = Timestamp(i64::MAX);

    /// Returns the time `us` microseconds after 1970.
    ///
    /// ```
    /// # use perigee_tables::Timestamp;
    /// assert!(Timestamp::from_micros(-1) < Timestamp::from_micros(0));
    /// ```
    pub const fn from_micros(us: i64) -> Timestamp {
        Timestamp(us)
    }
    /// Returns the time `seconds` after 1970, or [`Timestamp::MAX`] or [`Timestamp::MIN`] if it is
    /// out of range.
    ///
    /// ```
    /// # use perigee_tables::Timestamp;
    /// assert_eq!(Timestamp::from_secs(2).as_micros(), 2_000_000);
    /// ```
    pub const fn from_secs(seconds: i64) -> Timestamp {
        Timestamp(seconds.saturating_mul(1_000_000))
    }
    /// Returns the microseconds since 1970.
    ///
    /// ```
    /// # use perigee_tables::Timestamp;
    /// assert_eq!(Timestamp::from_micros(5).as_micros(), 5);
    /// ```
    pub const fn as_micros(self) -> i64 {
        self.0
    }
}

/// Truncates to microseconds; times beyond the range become [`Timestamp::MIN`] or
/// [`Timestamp::MAX`].
impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Timestamp {
        let us = |d: Duration| i64::try_from(d.as_micros()).unwrap_or(i64::MAX);
        match time.duration_since(UNIX_EPOCH) {
            Ok(after) => Timestamp(us(after)),
            Err(before) => Timestamp(us(before.duration()).saturating_neg()),
        }
    }
}

/// A universally unique identifier: 16 bytes, compared byte by byte. Displayed and parsed in the
/// usual form with hyphens. With the feature `uuid` it converts from and to `uuid::Uuid`.
///
/// ```
/// # use perigee_tables::Uuid;
/// let id: Uuid = "018f0c5a-7c1e-7000-8000-00000000002a".parse().unwrap();
/// assert_eq!(id.0[15], 42);
/// assert_eq!(id.to_string(), "018f0c5a-7c1e-7000-8000-00000000002a");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(pub [u8; 16]);

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            let hyphen = if matches!(i, 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(f, "{hyphen}{byte:02x}")?;
        }
        Ok(())
    }
}

/// The text is not a [`Uuid`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseUuidError;

impl fmt::Display for ParseUuidError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a UUID has 32 hexadecimal digits, with or without hyphens")
    }
}

impl std::error::Error for ParseUuidError {}

/// Accepts 32 hexadecimal digits, with or without hyphens.
impl std::str::FromStr for Uuid {
    type Err = ParseUuidError;
    fn from_str(text: &str) -> Result<Uuid, ParseUuidError> {
        let mut digits = text.chars().filter(|c| *c != '-').map(|c| c.to_digit(16));
        let mut next = || digits.next().flatten().ok_or(ParseUuidError);
        let mut bytes = [0; 16];
        for byte in &mut bytes {
            *byte = (next()? * 16 + next()?) as u8;
        }
        if digits.next().is_some() { Err(ParseUuidError) } else { Ok(Uuid(bytes)) }
    }
}

#[cfg(feature = "uuid")]
impl From<uuid::Uuid> for Uuid {
    fn from(id: uuid::Uuid) -> Uuid {
        Uuid(id.into_bytes())
    }
}

#[cfg(feature = "uuid")]
impl From<Uuid> for uuid::Uuid {
    fn from(id: Uuid) -> uuid::Uuid {
        uuid::Uuid::from_bytes(id.0)
    }
}

/// Defines [`ColumnType`] and [`Value`] from one list of types: code in files, size in bytes of a
/// stored value (0: variable), variant, Rust type, name.
macro_rules! column_types {
    ($($code:literal $size:literal $(#[$doc:meta])* $variant:ident($type:ty) $name:literal;)+) => {
        /// The type of a column.
        ///
        /// ```
        /// # use perigee_tables::ColumnType;
        /// assert_eq!(ColumnType::Text.name(), "text");
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum ColumnType {
            $($(#[$doc])* $variant,)+
        }

        impl ColumnType {
            /// All types.
            pub const ALL: &[ColumnType] = &[$(ColumnType::$variant,)+];
            /// Returns the name, such as `u32` or `text`.
            ///
            /// ```
            /// # use perigee_tables::ColumnType;
            /// assert_eq!(ColumnType::U32.name(), "u32");
            /// ```
            pub const fn name(self) -> &'static str {
                match self { $(ColumnType::$variant => $name,)+ }
            }
            /// Returns the code in stored schemas.
            pub(crate) const fn code(self) -> u8 {
                match self { $(ColumnType::$variant => $code,)+ }
            }
            /// Returns the bytes of a stored value; 0 if they vary.
            pub(crate) const fn stored_bytes(self) -> usize {
                match self { $(ColumnType::$variant => $size,)+ }
            }
        }

        /// A value of any column type, or NULL. Values of one type are ordered as in keys: numbers
        /// by value, floats in the IEEE total order, text and bytes byte by byte. NULL comes
        /// first; values of different types are ordered by type.
        ///
        /// ```
        /// # use perigee_tables::Value;
        /// assert!(Value::Null < Value::from(-1i64));
        /// assert!(Value::from(-0.0f64) < Value::from(0.0f64));
        /// assert_eq!(Value::from("a").to_string(), "\"a\"");
        /// ```
        #[derive(Clone, Debug, Default)]
        #[non_exhaustive]
        pub enum Value {
            /// No value.
            #[default]
            Null,
            $($(#[$doc])* $variant($type),)+
        }

        impl Value {
            /// Returns the type; `None` for NULL.
            ///
            /// ```
            /// # use perigee_tables::{ColumnType, Value};
            /// assert_eq!(Value::from(1u8).column_type(), Some(ColumnType::U8));
            /// ```
            pub fn column_type(&self) -> Option<ColumnType> {
                match self {
                    Value::Null => None,
                    $(Value::$variant(_) => Some(ColumnType::$variant),)+
                }
            }
        }
    };
}

column_types! {
    1 1 /// True or false.
    Bool(bool) "bool";
    2 1 /// A signed integer of 8 bits.
    I8(i8) "i8";
    3 2 /// A signed integer of 16 bits.
    I16(i16) "i16";
    4 4 /// A signed integer of 32 bits.
    I32(i32) "i32";
    5 8 /// A signed integer of 64 bits.
    I64(i64) "i64";
    6 16 /// A signed integer of 128 bits.
    I128(i128) "i128";
    7 1 /// An unsigned integer of 8 bits.
    U8(u8) "u8";
    8 2 /// An unsigned integer of 16 bits.
    U16(u16) "u16";
    9 4 /// An unsigned integer of 32 bits.
    U32(u32) "u32";
    10 8 /// An unsigned integer of 64 bits.
    U64(u64) "u64";
    11 16 /// An unsigned integer of 128 bits.
    U128(u128) "u128";
    12 4 /// A float of 32 bits.
    F32(f32) "f32";
    13 8 /// A float of 64 bits.
    F64(f64) "f64";
    14 8 /// A time in microseconds.
    Timestamp(Timestamp) "timestamp";
    15 16 /// A UUID.
    Uuid(Uuid) "uuid";
    16 0 /// Text in UTF-8.
    Text(String) "text";
    17 0 /// Bytes.
    Bytes(Vec<u8>) "bytes";
}

impl ColumnType {
    /// Returns the type with this code in stored schemas.
    pub(crate) fn from_code(code: u8) -> Option<ColumnType> {
        ColumnType::ALL.iter().copied().find(|t| t.code() == code)
    }
    /// Returns the type with this [`name`](ColumnType::name).
    ///
    /// ```
    /// # use perigee_tables::ColumnType;
    /// assert_eq!(ColumnType::from_name("u32"), Some(ColumnType::U32));
    /// assert_eq!(ColumnType::from_name("u33"), None);
    /// ```
    pub fn from_name(name: &str) -> Option<ColumnType> {
        ColumnType::ALL.iter().copied().find(|t| t.name() == name)
    }
}

/// Formats as [`ColumnType::name`].
impl fmt::Display for ColumnType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Value {
    /// Returns true for NULL.
    ///
    /// ```
    /// # use perigee_tables::Value;
    /// assert!(Value::from(None::<u32>).is_null());
    /// ```
    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }
    /// Returns the value as an integer of 128 bits; `None` if it is no integer or does not fit.
    fn as_i128(&self) -> Option<i128> {
        Some(match self {
            Value::I8(v) => i128::from(*v),
            Value::I16(v) => i128::from(*v),
            Value::I32(v) => i128::from(*v),
            Value::I64(v) => i128::from(*v),
            Value::I128(v) => *v,
            Value::U8(v) => i128::from(*v),
            Value::U16(v) => i128::from(*v),
            Value::U32(v) => i128::from(*v),
            Value::U64(v) => i128::from(*v),
            Value::U128(v) => i128::try_from(*v).ok()?,
            _ => return None,
        })
    }
    /// Converts to the type of a column without loss: between integer types, and from integers of
    /// up to 53 bits to f64. `None` if that is not possible. NULL stays NULL.
    ///
    /// ```
    /// # use perigee_tables::{ColumnType, Value};
    /// assert_eq!(Value::from(7i32).convert_to(ColumnType::U8), Some(Value::U8(7)));
    /// assert_eq!(Value::from(300i32).convert_to(ColumnType::U8), None);
    /// ```
    pub fn convert_to(&self, to: ColumnType) -> Option<Value> {
        if self.column_type().is_none_or(|own| own == to) {
            return Some(self.clone());
        }
        let n = self.as_i128()?;
        Some(match to {
            ColumnType::I8 => Value::I8(n.try_into().ok()?),
            ColumnType::I16 => Value::I16(n.try_into().ok()?),
            ColumnType::I32 => Value::I32(n.try_into().ok()?),
            ColumnType::I64 => Value::I64(n.try_into().ok()?),
            ColumnType::I128 => Value::I128(n),
            ColumnType::U8 => Value::U8(n.try_into().ok()?),
            ColumnType::U16 => Value::U16(n.try_into().ok()?),
            ColumnType::U32 => Value::U32(n.try_into().ok()?),
            ColumnType::U64 => Value::U64(n.try_into().ok()?),
            ColumnType::U128 => Value::U128(n.try_into().ok()?),
            ColumnType::F64 if n.unsigned_abs() <= 1 << 53 => Value::F64(n as f64),
            _ => return None,
        })
    }
}

impl Ord for Value {
    fn cmp(&self, other: &Value) -> Ordering {
        use Value::*;
        match (self, other) {
            (Bool(a), Bool(b)) => a.cmp(b),
            (I8(a), I8(b)) => a.cmp(b),
            (I16(a), I16(b)) => a.cmp(b),
            (I32(a), I32(b)) => a.cmp(b),
            (I64(a), I64(b)) => a.cmp(b),
            (I128(a), I128(b)) => a.cmp(b),
            (U8(a), U8(b)) => a.cmp(b),
            (U16(a), U16(b)) => a.cmp(b),
            (U32(a), U32(b)) => a.cmp(b),
            (U64(a), U64(b)) => a.cmp(b),
            (U128(a), U128(b)) => a.cmp(b),
            (F32(a), F32(b)) => a.total_cmp(b),
            (F64(a), F64(b)) => a.total_cmp(b),
            (Timestamp(a), Timestamp(b)) => a.cmp(b),
            (Uuid(a), Uuid(b)) => a.cmp(b),
            (Text(a), Text(b)) => a.cmp(b),
            (Bytes(a), Bytes(b)) => a.cmp(b),
            _ => self.column_type().cmp(&other.column_type()),
        }
    }
}

impl PartialOrd for Value {
    fn partial_cmp(&self, other: &Value) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Equal as keys: a NaN equals a NaN with the same bits, and -0.0 does not equal 0.0.
impl PartialEq for Value {
    fn eq(&self, other: &Value) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Value {}

/// Formats numbers and times as numbers, text in quotes, bytes in hexadecimal.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Null => f.write_str("NULL"),
            Value::Bool(v) => v.fmt(f),
            Value::I8(v) => v.fmt(f),
            Value::I16(v) => v.fmt(f),
            Value::I32(v) => v.fmt(f),
            Value::I64(v) => v.fmt(f),
            Value::I128(v) => v.fmt(f),
            Value::U8(v) => v.fmt(f),
            Value::U16(v) => v.fmt(f),
            Value::U32(v) => v.fmt(f),
            Value::U64(v) => v.fmt(f),
            Value::U128(v) => v.fmt(f),
            Value::F32(v) => write!(f, "{v:?}"),
            Value::F64(v) => write!(f, "{v:?}"),
            Value::Timestamp(v) => write!(f, "{} us", v.as_micros()),
            Value::Uuid(v) => v.fmt(f),
            Value::Text(v) => write!(f, "{v:?}"),
            Value::Bytes(v) => {
                f.write_str("0x")?;
                v.iter().try_for_each(|b| write!(f, "{b:02x}"))
            }
        }
    }
}

/// Displays values as a tuple, such as `(7, "ann")`.
pub(crate) struct DisplayTuple<'a>(pub &'a [Value]);

impl fmt::Display for DisplayTuple<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(")?;
        for (i, value) in self.0.iter().enumerate() {
            write!(f, "{}{value}", if i > 0 { ", " } else { "" })?;
        }
        f.write_str(")")
    }
}

/// Implements conversions of Rust types into [`Value`].
macro_rules! value_from {
    ($($type:ty, $variant:ident, $value:ident => $conversion:expr;)+) => {$(
        impl From<$type> for Value {
            fn from($value: $type) -> Value {
                Value::$variant($conversion)
            }
        }
    )+};
}

value_from! {
    bool, Bool, v => v;
    i8, I8, v => v;
    i16, I16, v => v;
    i32, I32, v => v;
    i64, I64, v => v;
    i128, I128, v => v;
    u8, U8, v => v;
    u16, U16, v => v;
    u32, U32, v => v;
    u64, U64, v => v;
    u128, U128, v => v;
    f32, F32, v => v;
    f64, F64, v => v;
    Timestamp, Timestamp, v => v;
    Uuid, Uuid, v => v;
    String, Text, v => v;
    &str, Text, v => v.to_owned();
    Vec<u8>, Bytes, v => v;
    &[u8], Bytes, v => v.to_vec();
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Value {
        value.map_or(Value::Null, Into::into)
    }
}
