//! Random values for tests.

use crate::value::{ColumnType, Timestamp, Uuid, Value};

/// A generator of pseudo-random numbers whose state must not be 0.
pub struct Rng(pub u64);

impl Rng {
    /// Returns the next number.
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    /// Returns a number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
    /// Returns bytes, most of them special in some encoding.
    pub fn bytes(&mut self, len_max: u64) -> Vec<u8> {
        let special = [0, 1, 2, 0x7f, 0x80, 0xfe, 0xff, b'a'];
        (0..self.below(len_max + 1))
            .map(|_| match self.below(4) {
                0 => self.next() as u8,
                _ => special[self.below(8) as usize],
            })
            .collect()
    }
    /// Returns text, often with characters that are special in some encoding.
    pub fn text(&mut self, len_max: u64) -> String {
        let special = ['\0', '\u{1}', '\u{2}', 'a', 'b', '\u{7f}', '\u{80}', '\u{10ffff}'];
        (0..self.below(len_max + 1)).map(|_| special[self.below(8) as usize]).collect()
    }
    /// Returns a value of `column_type`, often an extreme one.
    pub fn value(&mut self, column_type: ColumnType) -> Value {
        let wide = (u128::from(self.next()) << 64) | u128::from(self.next());
        let bits = match self.below(6) {
            0 => 0,
            1 => u128::MAX,
            2 => 1 << 127 | 1 << 63 | 1 << 31 | 1 << 15 | 1 << 7,
            3 => wide & 3,
            4 => !(wide & 3),
            _ => wide,
        };
        match column_type {
            ColumnType::Bool => Value::Bool(bits & 1 == 1),
            ColumnType::I8 => Value::I8(bits as i8),
            ColumnType::I16 => Value::I16(bits as i16),
            ColumnType::I32 => Value::I32(bits as i32),
            ColumnType::I64 => Value::I64(bits as i64),
            ColumnType::I128 => Value::I128(bits as i128),
            ColumnType::U8 => Value::U8(bits as u8),
            ColumnType::U16 => Value::U16(bits as u16),
            ColumnType::U32 => Value::U32(bits as u32),
            ColumnType::U64 => Value::U64(bits as u64),
            ColumnType::U128 => Value::U128(bits),
            ColumnType::F32 => Value::F32(f32::from_bits(bits as u32)),
            ColumnType::F64 => Value::F64(f64::from_bits(bits as u64)),
            ColumnType::Timestamp => Value::Timestamp(Timestamp::from_micros(bits as i64)),
            ColumnType::Uuid => Value::Uuid(Uuid(bits.to_be_bytes())),
            ColumnType::Text => Value::Text(self.text(6)),
            ColumnType::Bytes => Value::Bytes(self.bytes(6)),
        }
    }
    /// Returns a value of `column_type`, or sometimes NULL if the column is nullable.
    pub fn nullable_value(&mut self, column_type: ColumnType, nullable: bool) -> Value {
        if nullable && self.below(4) == 0 { Value::Null } else { self.value(column_type) }
    }
}
