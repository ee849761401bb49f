//! Waiting a moment without going to sleep, for what another processor does within a microsecond or
//! two: waking a thread costs many times that. On a thread of the simulation nothing moves while it
//! runs, so there nobody waits here.

use crate::sched;

/// Asks whether it is `done`, and again so many times at most, some twenty nanoseconds apart; the
/// last answer.
pub fn spin_until(turns: u32, mut done: impl FnMut() -> bool) -> bool {
    if done() {
        return true;
    }
    let turns = if sched::on_simulated_thread() { 0 } else { turns };
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
        let mut asked = 0;
        let mut at_third = || {
            asked += 1;
            asked == 3
        };
        assert!(!spin_until(1, &mut at_third));
        assert!(spin_until(0, &mut at_third));
        assert_eq!(asked, 3);
    }
}
