//! Infers the type of a column from all its values: the narrowest type that represents each of
//! them.
//!
//! | all values are | type |
//! |---|---|
//! | `true` or `false` | bool |
//! | integers without leading zeros or a plus sign | i64; if they do not fit u64, i128 |
//! | decimal numbers (integers among them at most 2^53) | f64 |
//! | RFC 3339 times | timestamp |
//! | UUIDs with hyphens | uuid |
//! | anything else, or there is no value | text |
//!
//! A JSON string is never a number or a bool, so a column with strings and numbers is text. Objects
//! and arrays are text.

use crate::table_formats::rfc3339;
use perigee_tables::{ColumnType, Uuid};

use super::row_source::CellKind;

/// Largest integer up to which every integer is a f64.
const EXACT_FLOAT_MAX: u128 = 1 << 53;
/// Length of a UUID with hyphens.
const UUID_CHARS: usize = 36;

/// What the values of a column have in common.
#[derive(Clone, Debug)]
pub struct ColumnEvidence {
    /// Where the first NULL is.
    first_null: Option<String>,
    all_bool: bool,
    all_integer: bool,
    all_number: bool,
    all_timestamp: bool,
    all_uuid: bool,
    min: i128,
    max: i128,
}

impl Default for ColumnEvidence {
    fn default() -> ColumnEvidence {
        ColumnEvidence {
            first_null: None,
            all_bool: true,
            all_integer: true,
            all_number: true,
            all_timestamp: true,
            all_uuid: true,
            min: 0,
            max: 0,
        }
    }
}

/// Returns the value of an integer in its shortest notation.
fn canonical_integer(text: &str) -> Option<i128> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let canonical = digits.bytes().all(|b| b.is_ascii_digit())
        && (digits == "0" && digits.len() == text.len() || !digits.starts_with('0'));
    if canonical { text.parse().ok() } else { None }
}

/// Returns true for a decimal number without leading zeros.
fn is_decimal(text: &str) -> bool {
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let digits = unsigned.bytes().take_while(u8::is_ascii_digit).count();
    let leading_zero = digits > 1 && unsigned.starts_with('0');
    let known = |b: u8| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-');
    digits > 0
        && !leading_zero
        && !unsigned.ends_with('.')
        && unsigned.bytes().all(known)
        && text.parse::<f64>().is_ok_and(f64::is_finite)
}

impl ColumnEvidence {
    /// Returns the evidence for a column that the rows so far do not have; `first_row` is where the
    /// first of them is.
    pub fn missing_since(first_row: Option<String>) -> ColumnEvidence {
        ColumnEvidence { first_null: first_row, ..ColumnEvidence::default() }
    }
    /// Adds a value. `location` returns where it is.
    pub fn add(&mut self, kind: CellKind, text: &str, location: &dyn Fn() -> String) {
        match kind {
            CellKind::Null | CellKind::Empty => {
                self.first_null.get_or_insert_with(location);
            }
            CellKind::Text => self.add_text(text),
            CellKind::Json => self.add_json(text),
        }
    }
    fn add_text(&mut self, text: &str) {
        self.all_bool &= matches!(text, "true" | "false");
        self.add_number(text);
        self.add_special(text);
    }
    fn add_json(&mut self, raw: &str) {
        match raw.as_bytes().first() {
            Some(b'"') => {
                (self.all_bool, self.all_integer, self.all_number) = (false, false, false);
                // Times and UUIDs contain no character that has to be escaped.
                self.add_special(raw.trim_matches('"'));
            }
            Some(b'{' | b'[') => self.all_text(),
            Some(b't' | b'f') => {
                self.all_text_except_bool();
            }
            _ => {
                self.all_bool = false;
                (self.all_timestamp, self.all_uuid) = (false, false);
                self.add_number(raw);
            }
        }
    }
    fn all_text(&mut self) {
        self.all_bool = false;
        self.all_text_except_bool();
    }
    fn all_text_except_bool(&mut self) {
        (self.all_integer, self.all_number) = (false, false);
        (self.all_timestamp, self.all_uuid) = (false, false);
    }
    fn add_number(&mut self, text: &str) {
        if !self.all_integer && !self.all_number {
            return;
        }
        match canonical_integer(text) {
            Some(n) => {
                self.min = self.min.min(n);
                self.max = self.max.max(n);
                self.all_number &= n.unsigned_abs() <= EXACT_FLOAT_MAX;
            }
            None => {
                self.all_integer = false;
                let digits = text.strip_prefix('-').unwrap_or(text).bytes();
                let integer = digits.clone().all(|b| b.is_ascii_digit());
                self.all_number &= !integer && is_decimal(text);
            }
        }
    }
    fn add_special(&mut self, text: &str) {
        self.all_timestamp = self.all_timestamp && rfc3339::parse(text).is_some();
        self.all_uuid = self.all_uuid && text.len() == UUID_CHARS && text.parse::<Uuid>().is_ok();
    }
    /// Returns true if one of the values is NULL.
    pub fn has_null(&self) -> bool {
        self.first_null.is_some()
    }
    /// Returns where the first NULL is.
    pub fn first_null(&self) -> Option<&str> {
        self.first_null.as_deref()
    }
    /// Returns the narrowest type of all values.
    pub fn column_type(&self) -> ColumnType {
        let fits_i64 = i64::try_from(self.min).is_ok() && i64::try_from(self.max).is_ok();
        let fits_u64 = self.min >= 0 && u64::try_from(self.max).is_ok();
        match self {
            // No value is both, so there is none.
            _ if self.all_bool && self.all_integer => ColumnType::Text,
            _ if self.all_bool => ColumnType::Bool,
            _ if self.all_integer && fits_i64 => ColumnType::I64,
            _ if self.all_integer && fits_u64 => ColumnType::U64,
            _ if self.all_integer => ColumnType::I128,
            _ if self.all_number => ColumnType::F64,
            _ if self.all_timestamp => ColumnType::Timestamp,
            _ if self.all_uuid => ColumnType::Uuid,
            _ => ColumnType::Text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn infer(kind: CellKind, values: &[&str]) -> (ColumnType, bool) {
        let mut evidence = ColumnEvidence::default();
        for value in values {
            let kind = if value.is_empty() { CellKind::Empty } else { kind };
            evidence.add(kind, value, &|| "here".to_owned());
        }
        (evidence.column_type(), evidence.has_null())
    }

    #[test]
    fn cells_have_the_narrowest_type() {
        let of = |values: &[&str]| infer(CellKind::Text, values).0;
        assert_eq!(of(&["true", "false"]), ColumnType::Bool);
        assert_eq!(of(&["0", "-5", "9223372036854775807"]), ColumnType::I64);
        assert_eq!(of(&["0", "18446744073709551615"]), ColumnType::U64);
        assert_eq!(of(&["-1", "18446744073709551615"]), ColumnType::I128);
        assert_eq!(of(&["1", "2.5", "-1e-3"]), ColumnType::F64);
        assert_eq!(of(&["2026-03-01T12:00:00Z"]), ColumnType::Timestamp);
        assert_eq!(of(&["018f0c5a-7c1e-7000-8000-00000000002a"]), ColumnType::Uuid);
        assert_eq!(of(&[]), ColumnType::Text);
        for text in
            ["007", "+1", "-0", "1.", ".5", "1e999", "inf", "NaN", "0x10", "-", "1_0", "TRUE"]
        {
            assert_eq!(of(&[text]), ColumnType::Text, "{text}");
        }
        // An integer that a float cannot represent keeps its digits.
        assert_eq!(of(&["9007199254740993", "0.5"]), ColumnType::Text);
        assert_eq!(of(&["1".repeat(50).as_str()]), ColumnType::Text);
        assert_eq!(of(&["1", "true"]), ColumnType::Text);
    }

    #[test]
    fn json_strings_are_no_numbers() {
        let of = |values: &[&str]| infer(CellKind::Json, values).0;
        assert_eq!(of(&["1", "2"]), ColumnType::I64);
        assert_eq!(of(&["1", "2.0"]), ColumnType::F64);
        assert_eq!(of(&["\"1\""]), ColumnType::Text);
        assert_eq!(of(&["\"2026-03-01T12:00:00Z\""]), ColumnType::Timestamp);
        assert_eq!(of(&["true", "false"]), ColumnType::Bool);
        assert_eq!(of(&["true", "1"]), ColumnType::Text);
        assert_eq!(of(&["[1]"]), ColumnType::Text);
        assert_eq!(of(&["\"a\"", "1"]), ColumnType::Text);
    }

    #[test]
    fn empty_cells_make_a_column_nullable() {
        assert_eq!(infer(CellKind::Text, &["1", ""]), (ColumnType::I64, true));
        assert_eq!(infer(CellKind::Text, &["", ""]), (ColumnType::Text, true));
    }
}
