//! Short busy waits for events that another processor causes within a microsecond or two; waking a
//! sleeping thread costs many times that. In the simulation no other thread runs meanwhile, so
//! there the wait is skipped.

use crate::sim_hooks;

/// Polls `done` once, and then up to `turns` times, about twenty nanoseconds apart. Returns the
/// last result.
pub fn spin_until(turns: u32, mut done: impl FnMut() -> bool) -> bool {
    if done() {
        return true;
    }
    let turns = if sim_hooks::on_simulated_thread() { 0 } else { turns };
    (0..turns).any(|_| {
        std::hint::spin_loop();
        done()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spin_returns_the_last_result() {
        let mut calls = 0;
        let mut done_at_third_call = || {
            calls += 1;
            calls == 3
        };
        assert!(!spin_until(1, &mut done_at_third_call));
        assert!(spin_until(0, &mut done_at_third_call));
        assert_eq!(calls, 3);
    }
}
