//! Sizes and times as people write them: `64 MiB`, `100 ms`. Pure; printing gives what parsing reads.

use std::time::Duration;

const SIZES: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("B", 1),
];
const TIMES: [(&str, u64); 5] =
    [("h", 3_600_000_000), ("min", 60_000_000), ("s", 1_000_000), ("ms", 1_000), ("us", 1)];

/// `64 MiB`; a number that no binary unit divides stays in bytes.
pub fn bytes(n: u64) -> String {
    let unit = SIZES[..4].iter().find(|(_, factor)| n >= *factor && n.is_multiple_of(*factor));
    unit.map_or_else(|| format!("{n} B"), |(name, factor)| format!("{} {name}", n / factor))
}

/// `100 ms`; microseconds are the smallest.
pub fn time(t: Duration) -> String {
    let us = u64::try_from(t.as_micros()).unwrap_or(u64::MAX);
    let unit = TIMES.iter().find(|(_, factor)| us >= *factor && us.is_multiple_of(*factor));
    unit.map_or_else(|| "0 us".into(), |(name, factor)| format!("{} {name}", us / factor))
}

/// Reads `4096`, `64 KiB`, `1.5GiB`, `10 MB`.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    parse(text, &SIZES, "a size, such as \"64 MiB\"").or_else(|e| text.trim().parse().map_err(|_| e))
}

/// Reads `100 ms`, `2s`, `1 min`.
pub fn parse_time(text: &str) -> Result<Duration, String> {
    parse(text, &TIMES, "a time, such as \"100 ms\"").map(Duration::from_micros)
}

fn parse(text: &str, units: &[(&str, u64)], what: &str) -> Result<u64, String> {
    let wrong = || {
        let names: Vec<&str> = units.iter().map(|(name, _)| *name).collect();
        format!("{text:?} is not {what} (units: {})", names.join(", "))
    };
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(wrong)?;
    let (number, unit) = text.split_at(split);
    let (_, factor) =
        units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit.trim())).ok_or_else(wrong)?;
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(*factor).ok_or_else(wrong);
    }
    let value = number.parse::<f64>().map_err(|_| wrong())? * *factor as f64;
    // Beyond 2^53 a fraction of a unit cannot be told exactly.
    if value >= 0.0 && value < (1u64 << 53) as f64 { Ok(value.round() as u64) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_read() {
        for n in [0, 1, 1000, 1024, 4097, 64 << 20, 3 << 40, u64::MAX] {
            assert_eq!(parse_bytes(&bytes(n)), Ok(n), "{}", bytes(n));
        }
        assert_eq!(bytes(64 << 20), "64 MiB");
        for us in [0, 1, 1500, 100_000, 90_000_000, 7_200_000_000] {
            let t = Duration::from_micros(us);
            assert_eq!(parse_time(&time(t)), Ok(t), "{}", time(t));
        }
        assert_eq!(time(Duration::from_millis(100)), "100 ms");
    }

    #[test]
    fn what_people_write_is_read_and_nonsense_is_not() {
        assert_eq!(parse_bytes(" 1.5kib "), Ok(1536));
        assert_eq!(parse_bytes("10MB"), Ok(10_000_000));
        assert_eq!(parse_bytes("4096"), Ok(4096));
        assert_eq!(parse_time("2s"), Ok(Duration::from_secs(2)));
        for bad in
            ["", "MiB", "-1 KiB", "1 apple", "1.2.3 KiB", "99999999999 TiB", "1e3 KiB", "NaN B", "5 ms"]
        {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
        assert!(parse_time("5").is_err() && parse_time("1 KiB").is_err());
    }
}
