//! Back-pressure: how long a writer waits, and why. A pure function; `commit/admit` obeys it.

use perigee_base::limits;

/// What the function looks at, the worst of all families.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Sealed memtables that wait for their flush.
    pub sealed: usize,
    /// Runs in level 0.
    pub level0_runs: usize,
    /// Bytes of all active and of all sealed memtables.
    pub memtable_bytes: (u64, u64),
    /// What they may have together; 0: not limited.
    pub memtable_share: u64,
}

/// Why a writer waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Flushes do not keep up.
    SealedMemtables,
    /// Compaction does not keep up.
    Level0Runs,
    /// The memtables have used up their share of the memory budget.
    Memory,
}

impl Reason {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Reason::SealedMemtables => "sealed memtables",
            Reason::Level0Runs => "level 0 runs",
            Reason::Memory => "memory budget",
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
/// The delay when the memtables' share is all but used up.
const MEMORY_DELAY_US: u64 = 800;
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
    let (memory, full) = memory(&load);
    if full {
        return Pressure::Stop(Reason::Memory);
    }
    let sealed = load.sealed.saturating_sub(SEALED_DELAY) as u64 * 200;
    let runs = load.level0_runs.saturating_sub(LEVEL0_DELAY) as u64 * 40;
    match sealed.max(runs).max(memory) {
        0 => Pressure::None,
        us if us == memory => Pressure::Delay(us, Reason::Memory),
        us if us == sealed => Pressure::Delay(us, Reason::SealedMemtables),
        us => Pressure::Delay(us, Reason::Level0Runs),
    }
}

/// The delay in the last quarter of the memtables' share, and whether it is used up. While nothing is sealed nobody waits: the
/// next commit seals.
fn memory(load: &Load) -> (u64, bool) {
    let (used, share) = (load.memtable_bytes.0.saturating_add(load.memtable_bytes.1), load.memtable_share);
    if load.memtable_bytes.1 == 0 || share == 0 {
        return (0, false);
    }
    let over = used.saturating_sub(share / 4 * 3);
    (over.saturating_mul(MEMORY_DELAY_US) / (share / 4).max(1), used >= share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_before_anything_stops() {
        let at = |sealed, level0_runs| pressure(Load { sealed, level0_runs, ..Load::default() });
        assert_eq!(at(0, 0), Pressure::None);
        assert_eq!(at(2, 12), Pressure::None);
        assert_eq!(at(3, 0), Pressure::Delay(200, Reason::SealedMemtables));
        assert_eq!(at(0, 14), Pressure::Delay(80, Reason::Level0Runs));
        assert_eq!(at(0, 30), Pressure::Delay(720, Reason::Level0Runs));
        assert_eq!(at(4, 0), Pressure::Stop(Reason::SealedMemtables));
        assert_eq!(at(0, 36), Pressure::Stop(Reason::Level0Runs));
    }

    #[test]
    fn memory_delays_then_stops_while_something_can_be_flushed() {
        let at = |active, sealed| {
            pressure(Load { memtable_bytes: (active, sealed), memtable_share: 1000, ..Load::default() })
        };
        assert_eq!(at(500, 250), Pressure::None);
        assert_eq!(at(500, 375), Pressure::Delay(400, Reason::Memory));
        assert_eq!(at(500, 500), Pressure::Stop(Reason::Memory));
        assert_eq!(at(5000, 0), Pressure::None, "the next commit seals");
    }
}
