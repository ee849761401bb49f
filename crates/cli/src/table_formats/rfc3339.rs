//! Formats and parses [`Timestamp`]s as RFC 3339, such as `2026-03-01T12:00:00.5Z`. Years outside
//! 0 to 9999, which RFC 3339 does not cover, have a sign and six digits, as in ISO 8601.

use perigee_tables::Timestamp;

const MICROS_PER_SECOND: i64 = 1_000_000;
const SECONDS_PER_DAY: i64 = 86_400;
/// Days from 0000-01-01 to 1970-01-01.
pub const EPOCH_DAY: i64 = 719_528;
/// Days before each month in a year that is not a leap year.
const DAYS_BEFORE_MONTH: [i64; 13] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365];

fn is_leap(year: i64) -> bool {
    year.rem_euclid(4) == 0 && (year.rem_euclid(100) != 0 || year.rem_euclid(400) == 0)
}

/// Returns the days from 0000-01-01 to the first of January of a year.
fn days_before_year(year: i64) -> i64 {
    let multiples = |n: i64| (year + n - 1).div_euclid(n);
    365 * year + multiples(4) - multiples(100) + multiples(400)
}

/// Returns the days from the first of January to the first of a month (1 to 13).
fn days_before_month(year: i64, month: usize) -> i64 {
    DAYS_BEFORE_MONTH[month - 1] + i64::from(month > 2 && is_leap(year))
}

/// Returns year, month and day of a day, counted from 0000-01-01.
pub fn date_of_day(day: i64) -> (i64, usize, i64) {
    let mut year = (day * 400).div_euclid(146_097);
    while days_before_year(year) > day {
        year -= 1;
    }
    while days_before_year(year + 1) <= day {
        year += 1;
    }
    let rest = day - days_before_year(year);
    let month = (1..=12).rev().find(|m| days_before_month(year, *m) <= rest).unwrap_or(1);
    (year, month, rest - days_before_month(year, month) + 1)
}

/// Formats a time in UTC.
pub fn format(time: Timestamp) -> String {
    let us = time.as_micros();
    let (seconds, fraction) = (us.div_euclid(MICROS_PER_SECOND), us.rem_euclid(MICROS_PER_SECOND));
    let second_of_day = seconds.rem_euclid(SECONDS_PER_DAY);
    let (year, month, day) = date_of_day(seconds.div_euclid(SECONDS_PER_DAY) + EPOCH_DAY);
    let year = match year {
        0..=9999 => format!("{year:04}"),
        _ => format!("{year:+07}"),
    };
    let fraction = match fraction {
        0 => String::new(),
        _ => format!(".{fraction:06}").trim_end_matches('0').to_owned(),
    };
    let (hour, minute, second) =
        (second_of_day / 3600, second_of_day / 60 % 60, second_of_day % 60);
    format!("{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}Z")
}

/// The rest of a text that is being parsed.
struct Scanner<'a>(&'a [u8]);

impl Scanner<'_> {
    /// Takes `digits` digits.
    fn number(&mut self, digits: usize) -> Option<i64> {
        let (taken, rest) = self.0.split_at_checked(digits)?;
        self.0 = rest;
        taken.iter().try_fold(0, |n, b| b.is_ascii_digit().then(|| n * 10 + i64::from(b - b'0')))
    }
    /// Takes one of these bytes.
    fn one_of(&mut self, bytes: &[u8]) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        bytes.contains(first).then_some(*first)
    }
    fn year(&mut self) -> Option<i64> {
        if !matches!(self.0.first(), Some(b'+' | b'-')) {
            return self.number(4);
        }
        let negative = self.one_of(b"+-")? == b'-';
        let digits = self.0.iter().take_while(|b| b.is_ascii_digit()).count();
        let year = self.number(if (4..=6).contains(&digits) { digits } else { return None })?;
        Some(if negative { -year } else { year })
    }
    /// Takes the digits after a decimal point as microseconds; further digits must be zeros.
    fn fraction(&mut self) -> Option<i64> {
        if self.0.first() != Some(&b'.') {
            return Some(0);
        }
        let digits = self.0[1..].iter().take_while(|b| b.is_ascii_digit()).count();
        let (taken, rest) = self.0[1..].split_at(digits);
        self.0 = rest;
        if taken.is_empty() || taken.iter().skip(6).any(|b| *b != b'0') {
            return None;
        }
        let digit = |i: usize| taken.get(i).map_or(0, |b| i64::from(b - b'0'));
        Some((0..6).fold(0, |us, i| us * 10 + digit(i)))
    }
    /// Takes `Z` or an offset such as `+01:00`, in seconds.
    fn offset(&mut self) -> Option<i64> {
        let sign = match self.one_of(b"Zz+-")? {
            b'+' => 1,
            b'-' => -1,
            _ => return Some(0),
        };
        let hours = self.number(2).filter(|h| *h < 24)?;
        self.one_of(b":")?;
        let minutes = self.number(2).filter(|m| *m < 60)?;
        Some(sign * (hours * 3600 + minutes * 60))
    }
}

/// Parses a time; `None` if the text is no RFC 3339 time, is finer than a microsecond, or is out of
/// range. Date and time may also be separated by a space.
pub fn parse(text: &str) -> Option<Timestamp> {
    let mut s = Scanner(text.as_bytes());
    let year = s.year()?;
    s.one_of(b"-")?;
    let month = s.number(2).filter(|m| (1..=12).contains(m))? as usize;
    s.one_of(b"-")?;
    let days = days_before_month(year, month + 1) - days_before_month(year, month);
    let day = s.number(2).filter(|d| (1..=days).contains(d))?;
    s.one_of(b"Tt ")?;
    let hour = s.number(2).filter(|h| *h < 24)?;
    s.one_of(b":")?;
    let minute = s.number(2).filter(|m| *m < 60)?;
    s.one_of(b":")?;
    let second = s.number(2).filter(|s| *s < 60)?;
    let fraction = s.fraction()?;
    let offset = s.offset()?;
    if !s.0.is_empty() {
        return None;
    }
    let day = days_before_year(year) + days_before_month(year, month) + day - 1 - EPOCH_DAY;
    let seconds = day * SECONDS_PER_DAY + hour * 3600 + minute * 60 + second - offset;
    let us = i128::from(seconds) * i128::from(MICROS_PER_SECOND) + i128::from(fraction);
    i64::try_from(us).ok().map(Timestamp::from_micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(text: &str) -> Option<i64> {
        parse(text).map(Timestamp::as_micros)
    }

    #[test]
    fn known_times_are_parsed() {
        assert_eq!(micros("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(micros("1970-01-01T01:00:00+01:00"), Some(0));
        assert_eq!(micros("1969-12-31 23:59:59.999999Z"), Some(-1));
        assert_eq!(micros("2024-02-29t12:00:00.5z"), Some(1_709_208_000_500_000));
        assert_eq!(micros("2000-01-01T00:00:00.0000000Z"), Some(946_684_800_000_000));
    }

    #[test]
    fn other_texts_are_refused() {
        for bad in [
            "",
            "2026-03-01",
            "2026-03-01T12:00:00",
            "2026-02-29T00:00:00Z",
            "2100-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-01-00T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:00:60Z",
            "2026-01-01T00:00:00.Z",
            "2026-01-01T00:00:00.1234567Z",
            "2026-01-01T00:00:00+24:00",
            "2026-01-01T00:00:00Z ",
            "+999999-01-01T00:00:00Z",
            "1234567890",
            "潮",
        ] {
            assert_eq!(micros(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn every_time_round_trips() {
        let mut us = 0x9E37_79B9_7F4A_7C15_u64;
        let mut all = vec![0, 1, -1, i64::MIN, i64::MAX, 253_402_300_800_000_000];
        for _ in 0..100_000 {
            us = us.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            all.push((us as i64) >> (us % 40));
        }
        for us in all {
            let text = format(Timestamp::from_micros(us));
            assert_eq!(micros(&text), Some(us), "{text}");
        }
        // Every day of 400 years has a date, and dates ascend.
        let dates: Vec<_> = (0..146_097).map(|n| date_of_day(EPOCH_DAY + n)).collect();
        assert!(dates.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(dates[0], (1970, 1, 1));
        assert_eq!(dates.last(), Some(&(2369, 12, 31)));
    }
}
