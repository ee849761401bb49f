//! The durability of writes, with its text form.

use crate::settings::value_syntax::{format_duration, parse_duration};
use perigee_base::{Error, Result};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// When a write is acknowledged, and what it survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// Acknowledged after the log record is synced. Survives a power loss. Concurrent writers share
    /// a sync (group commit).
    #[default]
    Full,
    /// Acknowledged after the log record is handed to the operating system; the log is synced in
    /// the background at this interval. Survives a crash of the process. After a power loss a
    /// prefix of the commits survives; at most the commits of the last interval, plus the duration
    /// of one sync, are lost.
    Interval(Duration),
    /// Acknowledged after the log record is handed to the operating system; no periodic sync.
    /// Survives a crash of the process. After a power loss a prefix of the commits survives.
    None,
}

/// Formats as in an options file: `full`, `interval 100 ms`, `none`.
impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Durability::Full => f.pad("full"),
            Durability::Interval(t) => f.pad(&format!("interval {}", format_duration(*t))),
            Durability::None => f.pad("none"),
        }
    }
}

/// Parses `full`, `none`, or `interval` with a duration: `interval 100 ms`, `interval:100ms`.
///
/// ```
/// # use perigee_engine::Durability;
/// # use std::time::Duration;
/// let durability: Durability = "interval:100ms".parse()?;
/// assert_eq!(durability, Durability::Interval(Duration::from_millis(100)));
/// assert_eq!(durability.to_string(), "interval 100 ms");
/// # Ok::<(), perigee_engine::Error>(())
/// ```
impl FromStr for Durability {
    type Err = Error;
    fn from_str(text: &str) -> Result<Durability> {
        let wrong = || {
            let forms = "\"full\", \"interval 100 ms\", \"none\"";
            Error::invalid(format!("{text:?} is not one of {forms}"))
        };
        match text.trim() {
            "full" => Ok(Durability::Full),
            "none" => Ok(Durability::None),
            other => {
                let time = other.strip_prefix("interval").ok_or_else(wrong)?.trim_start();
                match parse_duration(time.strip_prefix(':').unwrap_or(time)) {
                    Ok(t) if !t.is_zero() => Ok(Durability::Interval(t)),
                    _ => Err(wrong()),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durabilities_parse_in_every_notation() {
        let interval = |ms| Durability::Interval(Duration::from_millis(ms));
        for text in ["interval:100ms", "interval 100 ms", "interval: 100 ms", "interval 100ms"] {
            assert_eq!(text.parse::<Durability>().unwrap(), interval(100), "{text}");
        }
        assert_eq!("interval:2s".parse::<Durability>().unwrap(), interval(2000));
        assert_eq!(" full ".parse::<Durability>().unwrap(), Durability::Full);
        assert_eq!("none".parse::<Durability>().unwrap(), Durability::None);
        for bad in
            ["", "interval", "interval:", "interval:0ms", "interval:x", "interval::1s", "always"]
        {
            let e = bad.parse::<Durability>().unwrap_err();
            assert!(e.message().contains("is not one of \"full\""), "{bad}: {e}");
        }
    }
}
