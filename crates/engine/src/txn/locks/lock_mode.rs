//! Lock modes and their compatibility, [`LockMode`].

/// The mode of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LockMode {
    /// Other shared locks are allowed.
    Shared,
    /// No other owner has a lock, except gap locks.
    Exclusive,
    /// Prevents inserts in the range.
    Gap,
    /// Taken to insert a new key: exclusive, and conflicts with gap locks of others around it.
    Insert,
}

use LockMode::{Exclusive, Gap, Insert, Shared};

impl LockMode {
    /// Returns its code in a log record; 0 is none.
    pub fn code(self) -> u8 {
        match self {
            Shared => 1,
            Exclusive => 2,
            Gap => 3,
            Insert => 4,
        }
    }
    /// Returns its name: `shared`, `exclusive`, `gap` or `insert`.
    pub fn name(self) -> &'static str {
        match self {
            Shared => "shared",
            Exclusive => "exclusive",
            Gap => "gap",
            Insert => "insert",
        }
    }
    /// Returns the mode with this code.
    pub fn decode(code: u8) -> Option<LockMode> {
        [Shared, Exclusive, Gap, Insert].into_iter().find(|mode| mode.code() == code)
    }
}

/// Formats as [`LockMode::name`].
impl std::fmt::Display for LockMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// Returns true if two locks of different owners conflict.
pub fn conflicts(a: LockMode, b: LockMode) -> bool {
    match (a, b) {
        (Gap, Insert) | (Insert, Gap) => true,
        (Gap, _) | (_, Gap) | (Shared, Shared) => false,
        _ => true,
    }
}

/// Returns true if the owner of a lock with mode `held` needs no further lock for `wanted`.
pub fn covers(held: LockMode, wanted: LockMode) -> bool {
    held == wanted || matches!((held, wanted), (Exclusive, Shared) | (Insert, Shared | Exclusive))
}
