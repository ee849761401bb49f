//! Back-pressure: how long a writer waits, and why. A pure function; `commit/admit` obeys it.

use perigee_base::limits;

/// What the function looks at, the worst of all families.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Sealed memtables that wait for their flush.
    pub sealed: usize,
    /// Runs in level 0.
    pub level0_runs: usize,
}

/// Why a writer waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Flushes do not keep up.
    SealedMemtables,
    /// Compaction does not keep up.
    Level0Runs,
}

impl Reason {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Reason::SealedMemtables => "sealed memtables",
            Reason::Level0Runs => "level 0 runs",
        }
    }
}

/// What a writer does before it enters the commit section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pressure {
    /// Goes on.
    None,
    /// Waits so many microseconds for every 64 KiB it writes.
    Delay(u64, Reason),
    /// Waits until the load falls.
    Stop(Reason),
}

impl Pressure {
    /// In words, for statistics.
    pub fn name(&self) -> &'static str {
        match self {
            Pressure::None => "none",
            Pressure::Delay(_, r) | Pressure::Stop(r) => r.name(),
        }
    }
}

/// Runs in level 0 that start a compaction.
pub const LEVEL0_TRIGGER: usize = 4;
const LEVEL0_DELAY: usize = 12;
const LEVEL0_STOP: usize = 36;
const SEALED_DELAY: usize = 2;
const SEALED_STOP: usize = 4;

/// The pressure of a load: the delay grows with the distance to the stop.
pub fn pressure(load: Load) -> Pressure {
    let stop_runs = LEVEL0_STOP.min(limits::LEVEL0_RUNS_MAX);
    if load.sealed >= SEALED_STOP {
        return Pressure::Stop(Reason::SealedMemtables);
    }
    if load.level0_runs >= stop_runs {
        return Pressure::Stop(Reason::Level0Runs);
    }
    let sealed = load.sealed.saturating_sub(SEALED_DELAY) as u64 * 200;
    let runs = load.level0_runs.saturating_sub(LEVEL0_DELAY) as u64 * 40;
    match sealed.max(runs) {
        0 => Pressure::None,
        us if us == sealed => Pressure::Delay(us, Reason::SealedMemtables),
        us => Pressure::Delay(us, Reason::Level0Runs),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_before_anything_stops() {
        let at = |sealed, level0_runs| pressure(Load { sealed, level0_runs });
        assert_eq!(at(0, 0), Pressure::None);
        assert_eq!(at(2, 12), Pressure::None);
        assert_eq!(at(3, 0), Pressure::Delay(200, Reason::SealedMemtables));
        assert_eq!(at(0, 14), Pressure::Delay(80, Reason::Level0Runs));
        assert_eq!(at(0, 30), Pressure::Delay(720, Reason::Level0Runs));
        assert_eq!(at(4, 0), Pressure::Stop(Reason::SealedMemtables));
        assert_eq!(at(0, 36), Pressure::Stop(Reason::Level0Runs));
    }
}
