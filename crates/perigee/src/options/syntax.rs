//! The syntax of option values in an options file: one type for each kind of value. The option
//! tables of the engine name these types. Independent of TOML.

use crate::limits;
use crate::options::FamilyOptions;
use perigee_engine::callbacks::MergeRule;
use perigee_engine::{Error, Isolation, value_syntax};
use std::str::FromStr;
use std::time::Duration;

/// A value in an options file. Values are only parsed with the feature `toml`.
#[cfg_attr(not(feature = "toml"), allow(dead_code))]
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Scalar {
    Text(String),
    Integer(i64),
    Flag(bool),
}

impl Scalar {
    /// Returns true if it is this text.
    fn is(&self, word: &str) -> bool {
        matches!(self, Scalar::Text(text) if text == word)
    }
}

/// Formats and parses the values of an option. A formatted value parses to the same value.
pub(crate) trait OptionSyntax<T> {
    /// Formats a value as in an options file; text is in quotes.
    fn format(value: &T) -> String;
    /// Parses a value.
    ///
    /// # Errors
    /// A message with the value and the accepted forms.
    fn parse(value: &Scalar) -> Result<T, String>;
}

/// Formats a TOML basic string.
pub(crate) fn toml_string(s: impl AsRef<str>) -> String {
    let mut out = String::from('"');
    for c in s.as_ref().chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => out.push(c),
        }
    }
    out + "\""
}

fn describe_scalar(v: &Scalar) -> String {
    match v {
        Scalar::Text(s) => toml_string(s),
        Scalar::Integer(n) => n.to_string(),
        Scalar::Flag(b) => b.to_string(),
    }
}

/// `true` or `false`.
pub(crate) struct Flag;

impl OptionSyntax<bool> for Flag {
    fn format(value: &bool) -> String {
        value.to_string()
    }
    fn parse(value: &Scalar) -> Result<bool, String> {
        if let Scalar::Flag(b) = value {
            Ok(*b)
        } else {
            Err(format!("{} is not true or false", describe_scalar(value)))
        }
    }
}

/// The `Display` and `FromStr` of the type; `FromStr` must refuse an empty text.
pub(crate) struct Text;

impl<T: std::fmt::Display + FromStr<Err = Error>> OptionSyntax<T> for Text {
    fn format(value: &T) -> String {
        toml_string(value.to_string())
    }
    fn parse(value: &Scalar) -> Result<T, String> {
        let text = if let Scalar::Text(text) = value { text } else { "" };
        text.parse().map_err(|e: Error| match value {
            Scalar::Text(_) => e.message().to_owned(),
            // The message lists the accepted forms after the text.
            other => e.message().replacen("\"\"", &describe_scalar(other), 1),
        })
    }
}

/// A number of bytes: `64 MiB`.
pub(crate) struct Size;

impl OptionSyntax<u64> for Size {
    fn format(value: &u64) -> String {
        toml_string(value_syntax::format_bytes(*value))
    }
    fn parse(value: &Scalar) -> Result<u64, String> {
        match value {
            Scalar::Text(s) => value_syntax::parse_bytes(s),
            Scalar::Integer(n) => u64::try_from(*n).map_err(|_| format!("{n} is negative")),
            Scalar::Flag(_) => {
                Err(format!("{} is not a size, such as \"64 MiB\"", describe_scalar(value)))
            }
        }
    }
}

/// A number of bytes; 0 is `auto`.
pub(crate) struct SizeOrAuto;

impl OptionSyntax<u64> for SizeOrAuto {
    fn format(value: &u64) -> String {
        if *value == 0 { toml_string("auto") } else { Size::format(value) }
    }
    fn parse(value: &Scalar) -> Result<u64, String> {
        if value.is("auto") { Ok(0) } else { Size::parse(value) }
    }
}

/// A number of bytes, or `none`.
pub(crate) struct SizeOrNone;

impl OptionSyntax<Option<u64>> for SizeOrNone {
    fn format(value: &Option<u64>) -> String {
        value.map_or_else(|| toml_string("none"), |n| Size::format(&n))
    }
    fn parse(value: &Scalar) -> Result<Option<u64>, String> {
        if value.is("none") { Ok(None) } else { Size::parse(value).map(Some) }
    }
}

/// A number of bytes, as `usize`.
pub(crate) struct Length;

impl OptionSyntax<usize> for Length {
    fn format(value: &usize) -> String {
        Size::format(&(*value as u64))
    }
    fn parse(value: &Scalar) -> Result<usize, String> {
        usize::try_from(Size::parse(value)?)
            .map_err(|_| format!("{} is too large", describe_scalar(value)))
    }
}

/// A number without a unit.
pub(crate) struct Count;

impl OptionSyntax<u32> for Count {
    fn format(value: &u32) -> String {
        value.to_string()
    }
    fn parse(value: &Scalar) -> Result<u32, String> {
        match value {
            Scalar::Integer(n) => u32::try_from(*n).map_err(|_| format!("{n} is out of range")),
            _ => Err(format!("{} is not a number", describe_scalar(value))),
        }
    }
}

/// A duration: `100 ms`.
pub(crate) struct Time;

impl OptionSyntax<Duration> for Time {
    fn format(value: &Duration) -> String {
        toml_string(value_syntax::format_duration(*value))
    }
    fn parse(value: &Scalar) -> Result<Duration, String> {
        match value {
            Scalar::Text(s) => value_syntax::parse_duration(s),
            Scalar::Integer(0) => Ok(Duration::ZERO),
            _ => {
                Err(format!("{} is not a duration, such as \"24 h\", or 0", describe_scalar(value)))
            }
        }
    }
}

/// An isolation level; `None` is `database`.
pub(crate) struct IsolationOrDatabase;

impl OptionSyntax<Option<Isolation>> for IsolationOrDatabase {
    fn format(value: &Option<Isolation>) -> String {
        value.map_or_else(|| toml_string("database"), |level| Text::format(&level))
    }
    fn parse(value: &Scalar) -> Result<Option<Isolation>, String> {
        if value.is("database") { Ok(None) } else { Text::parse(value).map(Some) }
    }
}

/// A merge operator, or `none`.
pub(crate) struct MergeRuleOrNone;

impl OptionSyntax<Option<MergeRule>> for MergeRuleOrNone {
    fn format(value: &Option<MergeRule>) -> String {
        value.as_ref().map_or_else(|| toml_string("none"), Text::format)
    }
    fn parse(value: &Scalar) -> Result<Option<MergeRule>, String> {
        if value.is("none") {
            return Ok(None);
        }
        Text::parse(value).map(Some).map_err(|e| e.replacen("one of ", "one of \"none\", ", 1))
    }
}

/// Bits per key, `off`, or a false-positive rate: `10`, `1 %`.
pub(crate) struct FilterBits;

impl OptionSyntax<u8> for FilterBits {
    fn format(value: &u8) -> String {
        if *value == 0 { toml_string("off") } else { value.to_string() }
    }
    fn parse(value: &Scalar) -> Result<u8, String> {
        let wrong = || {
            format!(
                "{} is not a number of bits (at most {}), \"off\", or a rate such as \"1 %\"",
                describe_scalar(value),
                limits::FILTER_BITS_MAX
            )
        };
        match value {
            Scalar::Integer(n) => u8::try_from(*n).map_err(|_| wrong()),
            Scalar::Text(s) if s == "off" => Ok(0),
            Scalar::Text(s) => {
                let percent: Option<f64> =
                    s.trim().strip_suffix('%').and_then(|n| n.trim().parse().ok());
                let percent = percent.filter(|p| (0.0..=100.0).contains(p)).ok_or_else(wrong)?;
                Ok(FamilyOptions::new().filter_rate(percent / 100.0).filter_bits)
            }
            Scalar::Flag(_) => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filter_bits_parse_in_every_notation() {
        assert_eq!(FilterBits::parse(&Scalar::Text("1 %".into())), Ok(11));
        assert_eq!(FilterBits::parse(&Scalar::Text("off".into())), Ok(0));
    }
}
