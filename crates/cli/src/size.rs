//! Sizes, numbers and durability as people write and read them. Pure.

use perigee::Durability;
use std::time::Duration;

/// Parses `4096`, `64KiB`, `10MB`, `1.5GiB`.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: f64 = number.parse().map_err(|_| format!("{text:?} is not a size, such as 64KiB"))?;
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        other => return Err(format!("unknown unit {other:?}: use KiB, MiB, GiB, kB, MB or GB")),
    };
    Ok((number * factor as f64) as u64)
}

/// Parses `full`, `none` or `interval:100ms` (also `interval:2s`).
pub fn parse_durability(text: &str) -> Result<Durability, String> {
    match text {
        "full" => return Ok(Durability::Full),
        "none" => return Ok(Durability::None),
        _ => {}
    }
    let wrong = || format!("{text:?} is not one of full, none, interval:100ms");
    let time = text.strip_prefix("interval:").ok_or_else(wrong)?;
    let (number, unit_ms) = match time.strip_suffix("ms") {
        Some(number) => (number, 1),
        None => (time.strip_suffix('s').ok_or_else(wrong)?, 1_000),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    match number.checked_mul(unit_ms) {
        Some(ms) if ms > 0 => Ok(Durability::Interval(Duration::from_millis(ms))),
        _ => Err(wrong()),
    }
}

/// `1.4 GiB`, for people.
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if n < 1024 {
        return format!("{n} B");
    }
    let mut value = n as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// `1,234,567`, for people.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// `12 entries`, `1 entry`.
pub fn plural(n: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(n), if n == 1 { one } else { many })
}

/// A time: `830 us`, `12.4 ms`, `3.21 s`.
pub fn micros(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} us"),
        1_000..1_000_000 => format!("{:.1} ms", us as f64 / 1e3),
        _ => format!("{:.2} s", us as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_and_print() {
        assert_eq!(parse_bytes("4096").unwrap(), 4096);
        assert_eq!(parse_bytes("1.5KiB").unwrap(), 1536);
        assert_eq!(parse_bytes("2 MB").unwrap(), 2_000_000);
        assert!(parse_bytes("many").is_err());
        assert!(parse_bytes("3 apples").is_err());
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes((1 << 20) - 1), "1.0 MiB");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(count(999), "999");
        assert_eq!(plural(1, "entry", "entries"), "1 entry");
        assert_eq!(micros(12_400), "12.4 ms");
    }

    #[test]
    fn durability_reads() {
        assert_eq!(parse_durability("full").unwrap(), Durability::Full);
        assert_eq!(
            parse_durability("interval:100ms").unwrap(),
            Durability::Interval(Duration::from_millis(100))
        );
        assert_eq!(parse_durability("interval:2s").unwrap(), Durability::Interval(Duration::from_secs(2)));
        for bad in ["", "interval", "interval:", "interval:0ms", "interval:x", "always"] {
            assert!(parse_durability(bad).is_err(), "{bad}");
        }
    }
}
