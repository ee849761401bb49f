//! Assertions of invariants: `check!` in every build, `check_slow!` only where debug assertions are
//! on (profiles `dev` and `proof`, so in all tests and harnesses).
//!
//! A failure is a bug in this code, never bad input: bytes read from a file are refused with
//! `Corruption`, arguments with `InvalidArgument`. It panics with the invariant, the place and the
//! values. A panic of a background thread, or while a commit group is written, poisons the
//! database: writes fail until it is opened again, and what the assertion found does not reach a
//! file. The C library returns `TDB_ERR_UNKNOWN`. Locks stay usable after a panic, so the state
//! that a lock guards must be consistent wherever one of these assertions stands.

use std::fmt::{Debug, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Asserts an invariant in every build. The arguments are a condition, the invariant in words, and
/// values to print. Only for conditions of a few instructions, outside of the hot paths.
///
/// ```should_panic
/// let (first, last) = (9, 7);
/// perigee_base::check!(first <= last, "the first key of a table is not after its last", first, last);
/// ```
#[macro_export]
macro_rules! check {
    ($condition:expr, $invariant:literal $(, $value:expr)* $(,)?) => {{
        let holds: bool = $condition;
        if !holds {
            $crate::invariant_failed(
                $invariant,
                &[$((stringify!($value), &$value as &dyn ::std::fmt::Debug)),*],
            );
        }
    }};
}

/// Asserts an invariant in builds with debug assertions; takes the arguments of [`check!`]. For
/// conditions that cost time, and for the hot paths.
#[macro_export]
macro_rules! check_slow {
    ($($arguments:tt)+) => {
        if cfg!(debug_assertions) {
            $crate::check!($($arguments)+);
        }
    };
}

/// Panics because an invariant does not hold.
#[cold]
#[inline(never)]
#[track_caller]
pub fn invariant_failed(invariant: &str, values: &[(&str, &dyn Debug)]) -> ! {
    let mut text = format!("invariant violated: {invariant}");
    for (i, (name, value)) in values.iter().enumerate() {
        let _ = write!(text, "{} {name} = {value:?}", if i == 0 { ":" } else { "," });
    }
    panic!("{text}")
}

/// Returns the message of the assertion that `work` violates, for tests.
///
/// # Panics
/// If it violates none.
#[doc(hidden)]
pub fn violation(work: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(work)).expect_err("an invariant is violated");
    panic.downcast_ref::<String>().cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #[test]
    #[should_panic(expected = "invariant violated: parts add up: 1 + 1 = 2, total = 3")]
    fn failure_names_invariant_and_values() {
        let total = 3;
        check!(1 + 1 == total, "parts add up", 1 + 1, total);
    }

    #[test]
    fn values_are_not_evaluated_while_the_invariant_holds() {
        let cost = || -> u32 { panic!("evaluated") };
        check!(true, "holds", cost());
    }

    #[test]
    #[should_panic(expected = "invariant violated: slow")]
    fn slow_checks_run_in_tests() {
        check_slow!(std::hint::black_box(false), "slow");
    }
}
