//! Integer columns: n integers as `base + stride * i + delta_i`, with random access without
//! decoding.
//!
//! ```text
//!  0  u8   width of a delta in bytes: 0 to 8
//!  1  u8   widths of base (low half) and stride (high half): 0 to 8 each
//!  2  base, stride: zigzag-encoded, of those widths
//!     n deltas of `width` bytes
//! ```
//! All arithmetic wraps. A parsed column can be read at every index below n without a fallible
//! check, in a buffer with [`SLACK_BYTES`] spare bytes at its end.

use perigee_base::{Error, Result};
use std::ops::Range;

/// Size of what usually precedes the deltas: two bytes of widths, one of base, one of stride.
pub const COLUMN_HEADER_BYTES: usize = 4;
/// Size of a load: a delta is loaded as eight bytes and masked, so this many bytes must follow the
/// last column in the buffer.
pub const SLACK_BYTES: usize = 8;

/// Appends the column of `values`, with the mean stride or with stride 0, whichever is narrower.
pub fn encode(values: &[u64], out: &mut Vec<u8>) {
    let start = out.len();
    let flat = fit_model(values, 0);
    let sloped = fit_model(values, mean_stride(values));
    let (base, stride, width) = if sloped.2 < flat.2 { sloped } else { flat };
    let (base_bytes, stride_bytes) = (zigzag(base).to_le_bytes(), zigzag(stride).to_le_bytes());
    let (base_width, stride_width) = (byte_width(zigzag(base)), byte_width(zigzag(stride)));
    out.push(width as u8);
    out.push((base_width | stride_width << 4) as u8);
    out.extend_from_slice(&base_bytes[..base_width]);
    out.extend_from_slice(&stride_bytes[..stride_width]);
    for (i, &v) in values.iter().enumerate() {
        let delta = v.wrapping_sub(base).wrapping_sub(stride.wrapping_mul(i as u64));
        out.extend_from_slice(&delta.to_le_bytes()[..width]);
    }
    check_slow!(decodes_to(&out[start..], values), "a column decodes to its values", values);
}

/// Returns true if `raw` is a column of `values`.
fn decodes_to(raw: &[u8], values: &[u64]) -> bool {
    let slack = [raw, &[0; SLACK_BYTES]].concat();
    Column::parse(raw, 0, values.len()).is_ok_and(|(column, end)| {
        let same = |(i, v): (usize, &u64)| column.get(&slack, i) == *v;
        end == raw.len() && values.iter().enumerate().all(same)
    })
}

/// Zigzag encoding: maps integers near zero, positive or negative, to small integers.
fn zigzag(x: u64) -> u64 {
    x << 1 ^ ((x as i64) >> 63) as u64
}
#[inline]
fn unzigzag(z: u64) -> u64 {
    z >> 1 ^ (z & 1).wrapping_neg()
}

/// Returns the number of bytes needed for an integer.
fn byte_width(x: u64) -> usize {
    (64 - x.leading_zeros() as usize).div_ceil(8)
}

/// Returns the slope from the first to the last value; it may be negative, in two's complement.
fn mean_stride(values: &[u64]) -> u64 {
    match values {
        [first, .., last] => (last.wrapping_sub(*first) as i64 / (values.len() as i64 - 1)) as u64,
        _ => 0,
    }
}

/// Returns the (base, stride, width) that represent all values with this stride. Residuals are
/// compared as signed integers, so that values on both sides of the line need few bytes.
fn fit_model(values: &[u64], stride: u64) -> (u64, u64, usize) {
    let residual = |(i, &v): (usize, &u64)| v.wrapping_sub(stride.wrapping_mul(i as u64)) as i64;
    let all = || values.iter().enumerate().map(residual);
    let (low, high) = (all().min().unwrap_or(0), all().max().unwrap_or(0));
    let span = (high as u64).wrapping_sub(low as u64);
    (low as u64, stride, byte_width(span))
}

/// Reads the zigzag integer of `width` bytes at `at`, which must lie inside `raw`; loads eight
/// bytes at once where available.
#[inline]
fn read_zigzag(raw: &[u8], at: usize, width: usize) -> u64 {
    if width == 0 {
        return 0;
    }
    let bytes = match raw.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        Some(bytes) => *bytes,
        None => {
            let mut bytes = [0; 8];
            bytes[..width].copy_from_slice(&raw[at..at + width]);
            bytes
        }
    };
    unzigzag(u64::from_le_bytes(bytes) & u64::MAX >> (64 - 8 * width))
}

/// A column; the caller keeps the buffer.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    base: u64,
    stride: u64,
    // `u32`, because every cached block holds four of these and every lookup reads them.
    deltas_start: u32,
    width: u8,
}

impl Column {
    /// Parses the column of `n` integers at offset `at` of `raw`. Also returns the offset after it.
    pub fn parse(raw: &[u8], at: usize, n: usize) -> Result<(Column, usize)> {
        let head = raw.get(at..).and_then(|rest| rest.first_chunk::<2>());
        let Some(&[width, widths]) = head else {
            return Err(Error::corruption("a column is truncated"));
        };
        let (width, base_width, stride_width) =
            (usize::from(width), usize::from(widths & 15), usize::from(widths >> 4));
        if width.max(base_width).max(stride_width) > 8 {
            return Err(Error::corruption("malformed column header").expected(
                "widths of at most 8",
                format_args!("{width}, {base_width}, {stride_width}"),
            ));
        }
        let (base_at, stride_at) = (at + 2, at + 2 + base_width);
        let start = stride_at + stride_width;
        let end = n.checked_mul(width).and_then(|deltas| deltas.checked_add(start));
        let Some(end) = end.filter(|end| *end <= raw.len()) else {
            return Err(Error::corruption("a column exceeds its block"));
        };
        let (base, stride) =
            (read_zigzag(raw, base_at, base_width), read_zigzag(raw, stride_at, stride_width));
        let deltas = u32::try_from(start)
            .map_err(|_| Error::corruption("a column starts after the end of every block"))?;
        Ok((Column { base, stride, deltas_start: deltas, width: width as u8 }, end))
    }

    /// Returns integer `i`, which must be below the column's n, from the buffer it was parsed from.
    #[inline]
    pub fn get(&self, raw: &[u8], i: usize) -> u64 {
        let line = self.base.wrapping_add(self.stride.wrapping_mul(i as u64));
        if self.width == 0 {
            return line; // constant slope: no load of a delta
        }
        let width = usize::from(self.width);
        let at = self.deltas_start as usize + i * width;
        let bytes: [u8; 8] = raw[at..at + 8].try_into().expect("a slice of eight bytes");
        line.wrapping_add(u64::from_le_bytes(bytes) & u64::MAX >> (64 - 8 * width))
    }

    /// Calls `visit` with each index in `range` and its integer, in order; dispatches on the width
    /// once.
    #[inline]
    pub fn for_each(&self, raw: &[u8], range: Range<usize>, mut visit: impl FnMut(usize, u64)) {
        let width = usize::from(self.width);
        let mut base = self.base.wrapping_add(self.stride.wrapping_mul(range.start as u64));
        let deltas = self.deltas_start as usize + range.start * width;
        let deltas = &raw[deltas..deltas + range.len() * width];
        let mut emit = |delta: u64, i: usize| {
            visit(i, base.wrapping_add(delta));
            base = base.wrapping_add(self.stride);
        };
        match width {
            0 => range.for_each(|i| emit(0, i)),
            1 => deltas.iter().zip(range).for_each(|(d, i)| emit(u64::from(*d), i)),
            2 => deltas
                .as_chunks()
                .0
                .iter()
                .zip(range)
                .for_each(|(d, i)| emit(u16::from_le_bytes(*d).into(), i)),
            _ => range.for_each(|i| visit(i, self.get(raw, i))),
        }
    }

    /// Returns the value of the column if it is constant by construction.
    pub fn constant_value(&self) -> Option<u64> {
        (self.width == 0 && self.stride == 0).then_some(self.base)
    }

    /// Returns true if the n integers ascend (not strictly) from at least 0 to exactly `end`.
    pub fn ascends_to(&self, raw: &[u8], n: usize, end: u64) -> bool {
        if self.width == 0 {
            // Exact for constant slope: if the last value does not wrap, none does.
            let rise = self.stride.checked_mul(n as u64 - 1);
            return rise.and_then(|r| self.base.checked_add(r)) == Some(end);
        }
        let mut previous = 0;
        for i in 0..n {
            let v = self.get(raw, i);
            if v < previous {
                return false;
            }
            previous = v;
        }
        previous == end
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestRng;

    fn round_trip(values: &[u64]) -> usize {
        let mut out = vec![1, 2, 3];
        encode(values, &mut out);
        let len = out.len() - 3;
        let (c, end) = Column::parse(&out, 3, values.len()).unwrap();
        assert_eq!(end, out.len());
        out.resize(end + SLACK_BYTES, 0xee);
        for (i, &v) in values.iter().enumerate() {
            assert_eq!(c.get(&out, i), v, "{values:?}");
        }
        for start in [0, values.len() / 3, values.len()] {
            let mut got = Vec::new();
            c.for_each(&out, start..values.len(), |i, v| got.push((i, v)));
            let want: Vec<_> = values.iter().copied().enumerate().skip(start).collect();
            assert_eq!(got, want, "{values:?}");
        }
        let last = values.last().copied().unwrap_or(0);
        if !values.is_empty() {
            assert_eq!(c.ascends_to(&out, values.len(), last), values.is_sorted(), "{values:?}");
            assert!(!c.ascends_to(&out, values.len(), last.wrapping_add(1)));
        }
        len
    }

    #[test]
    fn regular_columns_take_only_a_header() {
        assert_eq!(round_trip(&[0; 100]), 2);
        assert_eq!(round_trip(&[7; 100]), 3);
        assert_eq!(round_trip(&(0..100).map(|i| 16 * (i + 1)).collect::<Vec<_>>()), 4);
        assert_eq!(round_trip(&(0..100).map(|i| 5000 - i).collect::<Vec<_>>()), 5);
        assert_eq!(round_trip(&[42]), 3);
        assert_eq!(round_trip(&[0, u64::MAX]), 3, "wraps: one step down");
        assert_eq!(round_trip(&(0..100).map(|i| 1000 * i + i % 3).collect::<Vec<_>>()), 4 + 100);
        assert_eq!(round_trip(&[1 << 63, (1 << 63) + 1, 5]), 2 + 8 + 3 * 8);
    }

    #[test]
    fn any_integers_round_trip() {
        let mut rng = TestRng::new(3);
        for case in 0..3000 {
            let n = 1 + rng.below(20) as usize;
            let shift = rng.below(64);
            let mut values: Vec<u64> = (0..n).map(|_| rng.next() >> shift).collect();
            if case % 2 == 0 {
                values.sort_unstable();
            }
            round_trip(&values);
        }
    }

    #[test]
    fn malformed_columns_are_errors() {
        let mut out = Vec::new();
        encode(&[1, 9, 4], &mut out);
        assert!(Column::parse(&out, 0, 3).is_ok());
        assert!(Column::parse(&out, 0, 4).is_err());
        assert!(Column::parse(&out, 0, usize::MAX).is_err());
        assert!(Column::parse(&out, 99, 1).is_err());
        for (at, byte) in [(0, 9), (0, 2), (1, 9), (1, 0x91), (1, 0x11)] {
            let mut bad = out.clone();
            bad[at] = byte;
            assert!(Column::parse(&bad, 0, 3).is_err(), "byte {at}");
        }
    }
}
