//! Range checks of option values, used by the option tables. Each returns an error that names the
//! option and its range.

use perigee_base::{Error, MergeRule, Result};
use perigee_file::Compression;
use std::ops::RangeInclusive;

fn out_of_range(name: &str) -> Error {
    Error::invalid(format!("the option {name} is out of range"))
}

/// Checks that a value is in a range.
pub fn within<T>(name: &str, value: &T, range: RangeInclusive<u64>) -> Result<()>
where
    T: Copy + TryInto<u64>,
{
    check_slow!(!range.is_empty(), "the limits of an option admit a value");
    let value = (*value).try_into().unwrap_or(u64::MAX);
    if range.contains(&value) {
        return Ok(());
    }
    let (min, max) = (range.start(), range.end());
    Err(out_of_range(name).expected(format_args!("{min} to {max}"), value))
}

/// Checks that a value is 0 or at least `min`.
pub fn zero_or_at_least(name: &str, value: &u64, min: u64) -> Result<()> {
    if *value == 0 || *value >= min {
        return Ok(());
    }
    Err(out_of_range(name).expected(format_args!("at least {min}, or 0"), value))
}

/// Checks that a percentage is 0 or in a range.
pub fn zero_or_percent(name: &str, value: &u32, range: RangeInclusive<u32>) -> Result<()> {
    check_slow!(!range.is_empty(), "the limits of an option admit a value");
    if *value == 0 || range.contains(value) {
        return Ok(());
    }
    Err(out_of_range(name).expected(format_args!("{range:?} percent, or 0"), value))
}

/// Checks the level of a compression.
pub fn is_supported(_: &str, value: &Compression) -> Result<()> {
    value.validate()
}

/// Checks the parameters of a merge operator.
pub fn is_valid_rule(_: &str, value: &Option<MergeRule>) -> Result<()> {
    value.as_ref().map_or(Ok(()), MergeRule::check)
}
