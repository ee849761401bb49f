//! A static index over sorted numbers: linear segments, each with a bounded error in positions. The
//! numbers themselves are not stored. After the PGM-index (Ferragina and Vinciguerra, 2020), with
//! the simpler greedy segments of FITing-Tree (Galakatos et al., 2019).
//!
//! Invariant: for every number, whether present or not, the window contains its position. This does
//! not depend on floating-point rounding: the windows are as wide as the largest measured error,
//! and the error was measured wherever it can be largest.

use std::ops::Range;

/// Start position and slope of a segment.
#[derive(Clone, Copy, Debug)]
struct LinearSegment {
    slope: f64,
    /// Position of its first number.
    start: u32,
}

/// Linear segments over sorted numbers.
///
/// ```
/// use perigee_learned::Segments;
///
/// let numbers: Vec<u64> = (0..10_000).map(|i| i * i).collect();
/// let segments = Segments::new(&numbers, 8).unwrap();
/// let window = segments.window(5_000_000);
/// let position = window.start + numbers[window.clone()].partition_point(|&n| n < 5_000_000);
/// assert_eq!(numbers[position], 2237 * 2237);
/// assert!(window.len() <= 20 && segments.memory_bytes() < 2_000);
/// ```
#[derive(Clone, Debug)]
pub struct Segments {
    /// The first number of each segment.
    first_numbers: Vec<u64>,
    segments: Vec<LinearSegment>,
    len: usize,
    error: usize,
}

/// The slopes that a segment under construction can still have.
struct SlopeRange {
    first: u64,
    start: usize,
    low: f64,
    high: f64,
}

impl SlopeRange {
    fn new(first: u64, start: usize) -> SlopeRange {
        SlopeRange { first, start, low: 0.0, high: f64::INFINITY }
    }
    /// Narrows the range so that the line passes within `error` of the point; returns false if no
    /// slope does.
    fn try_add(&mut self, number: u64, position: usize, error: f64) -> bool {
        let (x, y) = ((number - self.first) as f64, (position - self.start) as f64);
        if x == 0.0 {
            return y <= error;
        }
        let (low, high) = (self.low.max((y - error) / x), self.high.min((y + error) / x));
        if low > high {
            return false;
        }
        (self.low, self.high) = (low, high);
        true
    }
    fn slope(&self) -> f64 {
        if self.high.is_finite() { (self.low + self.high) / 2.0 } else { self.low }
    }
}

impl Segments {
    /// Builds segments over ascending `numbers` (duplicates allowed), with a target error of
    /// `error` positions; [`Segments::error`] returns the measured one. `None` if `numbers` is
    /// empty or longer than `u32::MAX`.
    pub fn new(numbers: &[u64], error: usize) -> Option<Segments> {
        let (&first, len) = (numbers.first()?, numbers.len());
        u32::try_from(len).ok()?;
        let mut all = Segments { first_numbers: Vec::new(), segments: Vec::new(), len, error: 0 };
        let mut slopes = SlopeRange::new(first, 0);
        let mut add = |number: u64, position: usize| {
            if !slopes.try_add(number, position, error as f64) {
                all.push_segment(&slopes);
                slopes = SlopeRange::new(number, position);
            }
        };
        // One point per distinct number. After duplicates one more point, for the next number,
        // because its position is far from that of the duplicates.
        let mut i = 0;
        while i < len {
            let equal = numbers[i..].iter().take_while(|&&n| n == numbers[i]).count();
            add(numbers[i], i);
            if let Some(next) = numbers[i]
                .checked_add(1)
                .filter(|&n| equal > 1 && numbers.get(i + equal) != Some(&n))
            {
                add(next, i + equal);
            }
            i += equal;
        }
        all.push_segment(&slopes);
        all.error = all.measure_error(numbers);
        all.first_numbers.shrink_to_fit();
        all.segments.shrink_to_fit();
        Some(all)
    }

    fn push_segment(&mut self, slopes: &SlopeRange) {
        self.first_numbers.push(slopes.first);
        self.segments.push(LinearSegment { slope: slopes.slope(), start: slopes.start as u32 });
    }

    /// Returns the largest error at each number and immediately before and after it: between two of
    /// these the prediction only rises, and the position does not change.
    fn measure_error(&self, numbers: &[u64]) -> usize {
        let mut worst = 0;
        let mut position = 0;
        for &n in numbers {
            let near = [n.checked_sub(1), Some(n), n.checked_add(1)];
            for query in near.into_iter().flatten() {
                while position > 0 && numbers[position - 1] >= query {
                    position -= 1;
                }
                while position < numbers.len() && numbers[position] < query {
                    position += 1;
                }
                worst = worst.max(self.predict(query).abs_diff(position));
            }
        }
        // Also after all numbers. Before all of them, both the prediction and the position are 0.
        worst.max(self.predict(u64::MAX).abs_diff(numbers.partition_point(|&n| n < u64::MAX)))
    }

    /// Predicts how many numbers are less than `number`.
    #[inline]
    fn predict(&self, number: u64) -> usize {
        let Some(i) = self.first_numbers.partition_point(|&f| f <= number).checked_sub(1) else {
            return 0;
        };
        let segment = self.segments[i];
        // A segment does not extend beyond the start of the next one.
        let end = self.segments.get(i + 1).map_or(self.len, |next| next.start as usize);
        let steps = (number - self.first_numbers[i]) as f64 * segment.slope;
        (segment.start as usize).saturating_add(steps as usize).min(end)
    }

    /// Returns a range of positions that contains the position of the first number not less than
    /// `number`, unless that position is the end of the range.
    #[inline]
    pub fn window(&self, number: u64) -> Range<usize> {
        let guess = self.predict(number);
        guess.saturating_sub(self.error)..(guess + self.error).min(self.len)
    }
    /// Returns the largest error of a prediction, in positions.
    pub fn error(&self) -> usize {
        self.error
    }
    /// Returns the number of segments.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.segments.len()
    }
    /// Returns the heap memory that it uses, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.first_numbers.capacity() * 8 + self.segments.capacity() * size_of::<LinearSegment>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{KEY_KINDS, LearnedTestRng, key_of_kind};

    #[test]
    fn windows_contain_every_position() {
        for kind in KEY_KINDS {
            for (n, error) in [(1, 1), (2, 4), (100, 0), (1000, 4), (5000, 16), (20_000, 64)] {
                let mut rng = LearnedTestRng::new(n);
                let mut numbers: Vec<u64> =
                    (0..n).map(|i| key_of_kind(kind, i, &mut rng)).collect();
                numbers.sort_unstable();
                let segments = Segments::new(&numbers, error).unwrap();
                assert!(segments.error() <= error + 2, "{kind}: {} for {error}", segments.error());
                let near = numbers.iter().flat_map(|&n| [n.wrapping_sub(1), n, n.wrapping_add(1)]);
                let far =
                    [0, 1, u64::MAX - 1, u64::MAX].into_iter().chain((0..1000).map(|_| rng.next()));
                for query in near.chain(far.collect::<Vec<_>>()) {
                    let position = numbers.partition_point(|&n| n < query);
                    let window = segments.window(query);
                    let is_covered = window.contains(&position) || position == window.end;
                    assert!(
                        is_covered && window.end <= numbers.len(),
                        "{kind}: {query} is at {position}, not in {window:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn evenly_spaced_numbers_are_one_segment() {
        let numbers: Vec<u64> = (0..100_000).map(|i| 1000 + i * 17).collect();
        assert_eq!(Segments::new(&numbers, 4).unwrap().len(), 1);
        assert!(Segments::new(&[], 4).is_none());
        // Duplicates cost segments, not accuracy.
        let steps: Vec<u64> = (0..10_000).map(|i| i / 1000).collect();
        let segments = Segments::new(&steps, 4).unwrap();
        assert!(segments.error() <= 6 && segments.len() <= 21);
    }
}
