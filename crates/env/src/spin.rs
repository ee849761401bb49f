//! Waiting a moment without going to sleep, for what another processor does within a microsecond or two: waking a thread
//! costs many times that. On a thread of the simulation nothing moves while it runs, so there nobody waits here.

use crate::sched;

/// Asks whether it is `done`, and again so many times at most, some twenty nanoseconds apart; the last answer.
pub fn until(turns: u32, mut done: impl FnMut() -> bool) -> bool {
    if done() {
        return true;
    }
    let turns = if sched::simulated() { 0 } else { turns };
    (0..turns).any(|_| {
        std::hint::spin_loop();
        done()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_answer_counts() {
        let mut asked = 0;
        let mut at_third = || {
            asked += 1;
            asked == 3
        };
        assert!(!until(1, &mut at_third));
        assert!(until(0, &mut at_third));
        assert_eq!(asked, 3);
    }
}
