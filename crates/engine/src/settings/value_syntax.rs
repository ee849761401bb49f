//! Syntax of sizes and durations: `64 MiB`, `100 ms`. One grammar for the options file, the
//! command-line tool and the benchmark, described in `docs/CLI.md`. Formatted values parse back to
//! the same value.

use std::time::Duration;

/// Units of sizes, case-insensitive. A single letter and a unit with `iB` are powers of 1,024, a
/// unit with `B` is a power of 1,000, as in the GNU tools. [`format_bytes`] uses the first four.
const SIZE_UNITS: [(&str, u64); 14] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("T", 1 << 40),
    ("G", 1 << 30),
    ("M", 1 << 20),
    ("K", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("B", 1),
    ("", 1),
];
/// Units of durations in microseconds, case-insensitive. [`format_duration`] uses the first five.
const DURATION_UNITS: [(&str, u64); 8] = [
    ("h", 3_600_000_000),
    ("min", 60_000_000),
    ("s", 1_000_000),
    ("ms", 1_000),
    ("us", 1),
    ("d", 86_400_000_000),
    ("m", 60_000_000),
    ("µs", 1),
];

/// Formats a size like `64 MiB`. A size that is not a multiple of a binary unit is formatted in
/// bytes.
pub fn format_bytes(n: u64) -> String {
    let unit = SIZE_UNITS[..4].iter().find(|(_, factor)| n >= *factor && n.is_multiple_of(*factor));
    unit.map_or_else(|| format!("{n} B"), |(name, factor)| format!("{} {name}", n / factor))
}

/// Formats a duration like `100 ms`. Microseconds are the smallest unit.
pub fn format_duration(t: Duration) -> String {
    let us = u64::try_from(t.as_micros()).unwrap_or(u64::MAX);
    let unit =
        DURATION_UNITS[..5].iter().find(|(_, factor)| us >= *factor && us.is_multiple_of(*factor));
    unit.map_or_else(|| "0 us".into(), |(name, factor)| format!("{} {name}", us / factor))
}

/// Parses a size in bytes: `4096`, `64k`, `64 KiB`, `1.5GiB`, `10 MB`.
///
/// # Errors
/// The message contains the text, the expected form and the units.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    parse_number_with_unit(
        text,
        &SIZE_UNITS,
        "a size, such as 64k, 64 KiB or 10 MB (units: B, K or KiB, M, G, T; kB, MB, GB, TB)",
    )
}

/// Parses a duration: `100ms`, `2 s`, `1.5 h`, `7d`. The unit is required except for 0.
///
/// # Errors
/// The message contains the text, the expected form and the units.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    if text.trim() == "0" {
        return Ok(Duration::ZERO);
    }
    parse_number_with_unit(
        text,
        &DURATION_UNITS,
        "a duration, such as 100ms, 2 s or 7d (units: us, ms, s, min or m, h, d)",
    )
    .map(Duration::from_micros)
}

/// Parses a duration like [`parse_duration`]; a number without a unit is in seconds.
///
/// # Errors
/// Same as [`parse_duration`].
pub fn parse_seconds(text: &str) -> Result<Duration, String> {
    match text.trim().parse() {
        Ok(seconds) => Ok(Duration::from_secs(seconds)),
        Err(_) => parse_duration(text),
    }
}

fn parse_number_with_unit(text: &str, units: &[(&str, u64)], what: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is not {what}");
    let trimmed = text.trim();
    let split = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(split);
    let (_, factor) =
        units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit.trim())).ok_or_else(wrong)?;
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(*factor).ok_or_else(|| format!("{text:?} is too large"));
    }
    let value = number.parse::<f64>().map_err(|_| wrong())? * *factor as f64;
    // An `f64` represents whole numbers exactly only up to 2^53.
    if value >= 0.0 && value < (1u64 << 53) as f64 {
        Ok(value.round() as u64)
    } else {
        Err(wrong())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formatted_values_parse_back() {
        for n in [0, 1, 1000, 1024, 4097, 64 << 20, 3 << 40, u64::MAX] {
            assert_eq!(parse_bytes(&format_bytes(n)), Ok(n), "{}", format_bytes(n));
        }
        assert_eq!(format_bytes(64 << 20), "64 MiB");
        for us in [0, 1, 1500, 100_000, 90_000_000, 7_200_000_000] {
            let t = Duration::from_micros(us);
            assert_eq!(parse_duration(&format_duration(t)), Ok(t), "{}", format_duration(t));
        }
        assert_eq!(format_duration(Duration::from_millis(100)), "100 ms");
        assert_eq!(
            format_duration(Duration::from_secs(86_400)),
            "24 h",
            "as in older options files"
        );
    }

    #[test]
    fn sizes_parse_in_every_notation() {
        for text in ["64k", "64K", "64 KiB", "64kib", " 64  KIB ", "65536", "65536 B", "65536b"] {
            assert_eq!(parse_bytes(text), Ok(64 << 10), "{text}");
        }
        for text in ["64kb", "64kB", "64 KB", "64000"] {
            assert_eq!(parse_bytes(text), Ok(64_000), "{text}");
        }
        for (text, n) in [
            ("1.5kib", 1536),
            ("1.5GB", 1_500_000_000),
            ("10MB", 10_000_000),
            ("1g", 1 << 30),
            ("2T", 2 << 40),
            ("2TB", 2_000_000_000_000),
            ("0", 0),
        ] {
            assert_eq!(parse_bytes(text), Ok(n), "{text}");
        }
        for bad in [
            "",
            "MiB",
            "k",
            "-1 KiB",
            "1 apple",
            "1.2.3 KiB",
            "99999999999 TiB",
            "1e3 KiB",
            "NaN B",
            "5 ms",
            "1 2 k",
            "64ki",
        ] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
        assert!(parse_bytes("99999999999T").unwrap_err().contains("too large"));
    }

    #[test]
    fn durations_parse_in_every_notation() {
        for (text, us) in [
            ("100ms", 100_000),
            ("100 ms", 100_000),
            ("2s", 2_000_000),
            ("1.5s", 1_500_000),
            ("1 min", 60_000_000),
            ("1m", 60_000_000),
            ("1h", 3_600_000_000),
            ("7d", 604_800_000_000),
            ("7 us", 7),
            ("7µs", 7),
            ("0", 0),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_micros(us)), "{text}");
        }
        for bad in ["", "5", "1 KiB", "ms", "-1s", "1 2 s", "1 year"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
        assert_eq!(parse_seconds("3600"), Ok(Duration::from_secs(3600)));
        assert_eq!(parse_seconds("1h"), Ok(Duration::from_secs(3600)));
        assert!(parse_seconds("soon").is_err());
    }
}
