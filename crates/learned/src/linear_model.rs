//! A linear model from keys to positions, fitted by least squares, and its error.

/// `position = start + (key - base) * slope`. Slopes are never negative, so positions never
/// decrease as keys grow.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinearModel {
    base: u64,
    start: f64,
    slope: f64,
}

impl LinearModel {
    /// Returns the predicted position of the key, at most `last`.
    #[inline]
    pub fn predict(&self, key: u64, last: usize) -> usize {
        // A cast from a float saturates. Keys below the base are predicted at the start.
        let x = key.saturating_sub(self.base) as f64;
        (((self.start + x * self.slope) as i64).max(0) as usize).min(last)
    }

    /// Fits the line through (keys[i], i) by least squares. `keys` ascend and are not empty.
    pub fn fit(keys: &[u64]) -> LinearModel {
        let base = keys[0];
        let span = (keys[keys.len() - 1] - base) as f64;
        if span == 0.0 {
            return LinearModel { base, start: 0.0, slope: 0.0 };
        }
        // Keys are scaled to 0..=1, so that the sums of squares stay precise enough.
        let n = keys.len() as f64;
        let (mut sx, mut sxx, mut sxy) = (0.0, 0.0, 0.0);
        for (i, &key) in keys.iter().enumerate() {
            let x = (key - base) as f64 / span;
            sx += x;
            sxx += x * x;
            sxy += x * i as f64;
        }
        let sy = n * (n - 1.0) / 2.0;
        let spread = n * sxx - sx * sx;
        let slope = if spread > 0.0 { ((n * sxy - sx * sy) / spread).max(0.0) } else { 0.0 };
        LinearModel { base, start: (sy - slope * sx) / n, slope: slope / span }
    }

    /// Returns the line for positions scaled by `factor` and shifted by `offset`.
    pub fn scaled(self, factor: f64, offset: usize) -> LinearModel {
        LinearModel {
            start: self.start * factor + offset as f64,
            slope: self.slope * factor,
            ..self
        }
    }

    /// Returns the mean distance between predicted and actual positions.
    pub fn mean_error(&self, keys: &[u64]) -> f64 {
        let last = keys.len() - 1;
        let sum: usize =
            keys.iter().enumerate().map(|(i, &k)| self.predict(k, last).abs_diff(i)).sum();
        sum as f64 / keys.len() as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evenly_spaced_keys_are_predicted_exactly() {
        for (base, step) in [(0, 1), (0, 7), (u64::MAX - 70_000, 70), (5, 1 << 50)] {
            let keys: Vec<u64> = (0..1000).map(|i| base + i * step).collect();
            let line = LinearModel::fit(&keys);
            assert!(line.mean_error(&keys) <= 1.0, "{base} {step}");
            let scaled = line.scaled(1.5, 10);
            assert!(
                keys.iter()
                    .enumerate()
                    .all(|(i, &k)| scaled.predict(k, 2000).abs_diff(10 + i * 3 / 2) <= 2)
            );
            assert_eq!((line.predict(u64::MAX, 17), line.predict(0, 17)), (17, 0));
        }
    }

    #[test]
    fn predictions_are_monotonic_and_in_range() {
        let keys = [0, 1, 2, 3, u64::MAX / 2, u64::MAX - 1, u64::MAX];
        let line = LinearModel::fit(&keys);
        let predicted: Vec<usize> = keys.iter().map(|&k| line.predict(k, 6)).collect();
        assert!(predicted.windows(2).all(|w| w[0] <= w[1]) && predicted.iter().all(|&p| p <= 6));
        assert_eq!(LinearModel::fit(&[9, 9, 9]).predict(9, 2), 0);
    }
}
