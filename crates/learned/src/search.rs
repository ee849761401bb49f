//! Search in sorted numbers that starts at a predicted position.

/// Returns the first position whose key is greater than `key`, or `keys.len()` if there is none.
/// Exponential search from `guess`: the steps double until the position is between two of them, so
/// a closer guess costs fewer steps. (Comparing 8 or 16 keys around the guess at once, without
/// branches, was measured to be 1.3 and 2 times slower: the processor speculates along predicted
/// branches while keys are loaded from memory, but waits for a sum.)
#[inline]
pub fn upper_bound_from(keys: &[u64], guess: usize, key: u64) -> usize {
    let n = keys.len();
    if n == 0 {
        return 0;
    }
    let guess = guess.min(n - 1);
    let mut step = 1;
    let (low, high) = if keys[guess] <= key {
        let mut low = guess + 1; // all keys before `low` are not greater
        while low + step <= n && keys[low + step - 1] <= key {
            low += step;
            step *= 2;
        }
        (low, (low + step).min(n))
    } else {
        let mut high = guess; // the keys from `high` on are greater
        while high >= step && keys[high - step] > key {
            high -= step;
            step *= 2;
        }
        (high.saturating_sub(step), high)
    };
    low + keys[low..high].partition_point(|&k| k <= key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_guess_gives_the_same_result() {
        for n in 0..40u64 {
            let keys: Vec<u64> = (0..n).map(|i| i / 3 * 2 + 1).collect();
            for key in 0..n + 3 {
                let expected = keys.partition_point(|&k| k <= key);
                for guess in 0..n as usize + 2 {
                    assert_eq!(
                        upper_bound_from(&keys, guess, key),
                        expected,
                        "{keys:?} {key} from {guess}"
                    );
                }
            }
        }
        assert_eq!(upper_bound_from(&[0, u64::MAX, u64::MAX], 0, u64::MAX), 3);
    }
}
