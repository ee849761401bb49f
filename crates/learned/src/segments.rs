//! A static index over sorted numbers: straight pieces, each of which is wrong by at most a stated
//! number of positions. The numbers themselves are not kept. After the PGM-index (Ferragina and
//! Vinciguerra, 2020), with the simpler greedy pieces of FITing-Tree (Galakatos et al., 2019).
//!
//! Invariant: for every number, also those that were not there, the window holds its place. It does
//! not rest on how floats round: the windows are as wide as the largest error that was found, and
//! every place where a piece could be worst was looked at.

use std::ops::Range;

/// Where a piece begins, and its line.
#[derive(Clone, Copy, Debug)]
struct LinearSegment {
    slope: f64,
    /// Position of its first number.
    start: u32,
}

/// Lines over sorted numbers.
///
/// ```
/// use perigee_learned::Segments;
///
/// let numbers: Vec<u64> = (0..10_000).map(|i| i * i).collect();
/// let segments = Segments::new(&numbers, 8).unwrap();
/// let window = segments.window(5_000_000);
/// let place = window.start + numbers[window.clone()].partition_point(|&n| n < 5_000_000);
/// assert_eq!(numbers[place], 2237 * 2237);
/// assert!(window.len() <= 20 && segments.memory_bytes() < 2_000);
/// ```
#[derive(Clone, Debug)]
pub struct Segments {
    /// The first number of each piece.
    first_numbers: Vec<u64>,
    segments: Vec<LinearSegment>,
    len: usize,
    error: usize,
}

/// The slopes that a piece can still have.
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
    /// Narrows the cone so that the line passes the point within `error`; false if no line can.
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
    /// Pieces over `numbers`, which ascend (equal ones allowed), each wrong by about `error`
    /// positions at most. `None` for none, or for more than `u32::MAX`.
    pub fn new(numbers: &[u64], error: usize) -> Option<Segments> {
        let (&first, len) = (numbers.first()?, numbers.len());
        u32::try_from(len).ok()?;
        let mut all = Segments { first_numbers: Vec::new(), segments: Vec::new(), len, error: 0 };
        let mut cone = SlopeRange::new(first, 0);
        let mut add = |number: u64, position: usize| {
            if !cone.try_add(number, position, error as f64) {
                all.push_segment(&cone);
                cone = SlopeRange::new(number, position);
            }
        };
        // One point for each number; behind equal ones another, because what follows them lies far
        // behind them.
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
        all.push_segment(&cone);
        all.error = all.measure_error(numbers);
        all.first_numbers.shrink_to_fit();
        all.segments.shrink_to_fit();
        Some(all)
    }

    fn push_segment(&mut self, cone: &SlopeRange) {
        self.first_numbers.push(cone.first);
        self.segments.push(LinearSegment { slope: cone.slope(), start: cone.start as u32 });
    }

    /// The largest error, at each number and right before and behind it: between two of these a
    /// line only rises, and the place stays the same.
    fn measure_error(&self, numbers: &[u64]) -> usize {
        let mut worst = 0;
        let mut place = 0;
        for &n in numbers {
            let near = [n.checked_sub(1), Some(n), n.checked_add(1)];
            for asked in near.into_iter().flatten() {
                while place > 0 && numbers[place - 1] >= asked {
                    place -= 1;
                }
                while place < numbers.len() && numbers[place] < asked {
                    place += 1;
                }
                worst = worst.max(self.predict(asked).abs_diff(place));
            }
        }
        // Behind all of them too; before them the guess is 0, and so is the place.
        worst.max(self.predict(u64::MAX).abs_diff(numbers.partition_point(|&n| n < u64::MAX)))
    }

    /// About how many numbers are less than `number`.
    #[inline]
    fn predict(&self, number: u64) -> usize {
        let Some(i) = self.first_numbers.partition_point(|&f| f <= number).checked_sub(1) else {
            return 0;
        };
        let piece = self.segments[i];
        // A line is not followed beyond the beginning of the next one.
        let end = self.segments.get(i + 1).map_or(self.len, |next| next.start as usize);
        let steps = (number - self.first_numbers[i]) as f64 * piece.slope;
        (piece.start as usize).saturating_add(steps as usize).min(end)
    }

    /// Positions among which the first number is that is not less than `number`; or it is the end
    /// of the window.
    #[inline]
    pub fn window(&self, number: u64) -> Range<usize> {
        let guess = self.predict(number);
        guess.saturating_sub(self.error)..(guess + self.error).min(self.len)
    }
    /// The largest distance between a guess and the place.
    pub fn error(&self) -> usize {
        self.error
    }
    /// Number of pieces.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.segments.len()
    }
    /// Bytes it holds outside of itself.
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
                for asked in near.chain(far.collect::<Vec<_>>()) {
                    let place = numbers.partition_point(|&n| n < asked);
                    let window = segments.window(asked);
                    let holds = window.contains(&place) || place == window.end;
                    assert!(
                        holds && window.end <= numbers.len(),
                        "{kind}: {asked} is at {place}, not in {window:?}"
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
        // Equal numbers cost pieces, not errors.
        let steps: Vec<u64> = (0..10_000).map(|i| i / 1000).collect();
        let segments = Segments::new(&steps, 4).unwrap();
        assert!(segments.error() <= 6 && segments.len() <= 21);
    }
}
