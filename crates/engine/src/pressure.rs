//! Back-pressure: how long a writer waits, and why. A pure function; `commit/admit` obeys it.
//!
//! Each cause has a zone between "nobody waits" and "everybody waits", and measures how far into it the load is, in bytes or
//! thousandths and not in whole memtables, so that nothing jumps when one comes or goes. The delay of a chunk grows from
//! nothing at the zone's beginning beyond any bound at its end. So wherever the background work can just keep up there
//! is a place in the zone where writers are exactly as fast, without anybody knowing that speed: they settle there and
//! do not run into the stop.

use perigee_base::limits;

/// What the function looks at, the worst of all families.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Sealed memtables that wait for their flush, in thousandths of full ones ([`waiting`]).
    pub sealed: u64,
    /// How far the running flush is with its memtable, in thousandths.
    pub flushed: u64,
    /// Runs in level 0.
    pub level0_runs: usize,
    /// Bytes of all active and of all sealed memtables.
    pub memtable_bytes: (u64, u64),
    /// Bytes of the largest memtable when it is full; 0: not known.
    pub memtable_full: u64,
    /// What they may have together; 0: not limited.
    pub memtable_share: u64,
    /// Table bytes that merges would free, in thousandths of the others.
    pub waste: u64,
    /// What that may become; 0: anything.
    pub waste_max: u64,
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
    /// Overwritten entries pile up faster than compaction takes them away.
    Space,
}

impl Reason {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Reason::SealedMemtables => "sealed memtables",
            Reason::Level0Runs => "level 0 runs",
            Reason::Memory => "memory budget",
            Reason::Space => "space",
        }
    }
}

/// What a writer does before it enters the commit section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pressure {
    /// Goes on.
    None,
    /// Every 64 KiB that anybody writes cost so many microseconds.
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

/// What a delay is counted for.
pub const CHUNK_BYTES: u64 = 64 << 10;
/// Runs in level 0 that start a compaction.
pub const LEVEL0_TRIGGER: usize = 4;
const LEVEL0_DELAY: u64 = 12;
const LEVEL0_STOP: u64 = 36;
/// Thousandths of memtables, those written and not yet flushed: about one is being flushed and one waits.
const SEALED_DELAY: u64 = 2_000;
const SEALED_STOP: u64 = 4_000;
/// Less waste than this (in thousandths) delays nobody: compaction begins at an eighth.
const WASTE_DELAY_MIN: u64 = 130;
/// The longest delay for space: 4 MiB a second.
const WASTE_US_MAX: u64 = 16_000;
/// The delay in the middle of a zone: 64 MiB a second.
const MIDDLE_US: u64 = 1_000;

/// How far a cause is into its zone: the delay of a chunk, or `None` for a stop.
fn zone(at: u64, begin: u64, end: u64) -> Option<u64> {
    let left = end.checked_sub(at).filter(|left| *left > 0)?;
    Some(at.saturating_sub(begin).saturating_mul(MIDDLE_US) / left)
}

/// What a family's sealed memtables of so many bytes count as, in thousandths of full ones. One that was sealed early counts
/// for what it holds, but an eighth at least, for reads ask each of them; one that a giant batch made longer counts once.
pub fn waiting(sealed_bytes: impl Iterator<Item = u64>, full: u64) -> u64 {
    sealed_bytes.map(|bytes| (bytes.saturating_mul(1000) / full.max(1)).clamp(125, 1000)).sum()
}

/// The pressure of a load: the longest of the delays.
pub fn pressure(load: Load) -> Pressure {
    let runs = zone(load.level0_runs as u64, LEVEL0_DELAY, LEVEL0_STOP.min(limits::LEVEL0_RUNS_MAX as u64));
    let causes = [
        (sealed(&load), Reason::SealedMemtables),
        (runs, Reason::Level0Runs),
        (memory(&load), Reason::Memory),
        (space(&load), Reason::Space),
    ];
    let mut worst = Pressure::None;
    for (delay, reason) in causes {
        worst = match (delay, worst) {
            (None, _) => return Pressure::Stop(reason),
            (Some(us), Pressure::None) if us > 0 => Pressure::Delay(us, reason),
            (Some(us), Pressure::Delay(other, _)) if us > other => Pressure::Delay(us, reason),
            _ => worst,
        };
    }
    worst
}

/// Memtables that are sealed, less what is flushed of the one in work, and the one that grows. While nothing waits beside
/// the one in work nobody is delayed.
fn sealed(load: &Load) -> Option<u64> {
    let growing = load.memtable_bytes.0.saturating_mul(1000).checked_div(load.memtable_full).unwrap_or(0);
    let written = load.sealed.saturating_add(growing.min(999));
    zone(written.saturating_sub(load.flushed.min(1000)), SEALED_DELAY, SEALED_STOP)
}

/// The last quarter of the memtables' share. While nothing is sealed nobody waits: the next commit seals.
fn memory(load: &Load) -> Option<u64> {
    let (used, share) = (load.memtable_bytes.0.saturating_add(load.memtable_bytes.1), load.memtable_share);
    if load.memtable_bytes.1 == 0 || share == 0 {
        return Some(0);
    }
    zone(used, share / 4 * 3, share)
}

/// From half of what overwritten entries may take up, where compaction is at work on them. Nobody is stopped for space, and
/// the delay has an end: an estimate is no reason to stand still, nor is what a compaction does not free in the end.
fn space(load: &Load) -> Option<u64> {
    if load.waste_max == 0 {
        return Some(0);
    }
    let begin = (load.waste_max / 2).max(WASTE_DELAY_MIN);
    Some(zone(load.waste, begin, load.waste_max).map_or(WASTE_US_MAX, |us| us.min(WASTE_US_MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(sealed: u64, level0_runs: usize) -> Pressure {
        pressure(Load { sealed: sealed * 1000, level0_runs, ..Load::default() })
    }

    #[test]
    fn small_memtables_count_for_what_they_hold() {
        assert_eq!(waiting([64, 64, 6400].into_iter(), 64), 3000);
        assert_eq!(waiting([32, 1, 0].into_iter(), 64), 750);
        assert_eq!(waiting([9].into_iter(), 0), 1000, "no size known");
    }

    #[test]
    fn delays_grow_before_anything_stops() {
        assert_eq!(at(0, 0), Pressure::None);
        assert_eq!(at(2, 12), Pressure::None);
        assert_eq!(at(3, 0), Pressure::Delay(1000, Reason::SealedMemtables));
        assert_eq!(at(0, 14), Pressure::Delay(90, Reason::Level0Runs));
        assert_eq!(at(0, 24), Pressure::Delay(1000, Reason::Level0Runs));
        assert_eq!(at(0, 35), Pressure::Delay(23_000, Reason::Level0Runs));
        assert_eq!(at(4, 0), Pressure::Stop(Reason::SealedMemtables));
        assert_eq!(at(0, 36), Pressure::Stop(Reason::Level0Runs));
    }

    #[test]
    fn waste_delays_and_never_stops() {
        let at = |waste, waste_max| pressure(Load { waste, waste_max, ..Load::default() });
        assert_eq!(
            (at(200, 400), at(5000, 0), at(130, 200)),
            (Pressure::None, Pressure::None, Pressure::None)
        );
        assert_eq!(at(300, 400), Pressure::Delay(1000, Reason::Space));
        assert_eq!(at(375, 400), Pressure::Delay(7000, Reason::Space));
        assert_eq!(at(399, 400), Pressure::Delay(16_000, Reason::Space));
        assert_eq!(at(9999, 400), Pressure::Delay(16_000, Reason::Space));
    }

    #[test]
    fn memory_delays_then_stops_while_something_can_be_flushed() {
        let at = |active, sealed| {
            pressure(Load { memtable_bytes: (active, sealed), memtable_share: 1000, ..Load::default() })
        };
        assert_eq!(at(500, 250), Pressure::None);
        assert_eq!(at(500, 375), Pressure::Delay(1000, Reason::Memory));
        assert_eq!(at(500, 500), Pressure::Stop(Reason::Memory));
        assert_eq!(at(5000, 0), Pressure::None, "the next commit seals");
    }

    #[test]
    fn sealing_and_the_end_of_a_flush_change_next_to_nothing() {
        let delay = |sealed, active, flushed| {
            let load =
                Load { sealed, flushed, memtable_bytes: (active, 1), memtable_full: 1000, ..Load::default() };
            match pressure(load) {
                Pressure::Delay(us, _) => us,
                other => panic!("{other:?}"),
            }
        };
        assert!(delay(3000, 999, 500).abs_diff(delay(4000, 0, 500)) < 10, "a memtable is sealed");
        assert!(delay(4000, 500, 1000).abs_diff(delay(3000, 500, 0)) < 10, "and one is flushed");
    }

    /// Writers that are as fast as the delay lets them and a flush of a given speed: after the beginning nobody is ever
    /// stopped, and the speed of both is the same.
    #[test]
    fn writers_settle_at_the_speed_of_the_flush() {
        const FULL: u64 = 64 << 20;
        for mib_per_second in [5, 20, 100, 400] {
            let (mut now_us, mut written, mut flushed) = (0u64, 0u64, 0u64);
            while now_us < 60_000_000 {
                let done = flushed / FULL;
                let load = Load {
                    sealed: (written / FULL - done) * 1000,
                    flushed: flushed % FULL * 1000 / FULL,
                    memtable_bytes: (written % FULL, 0),
                    memtable_full: FULL,
                    ..Load::default()
                };
                let us = match pressure(load) {
                    Pressure::Stop(_) => panic!("stopped at {mib_per_second} MiB/s: {load:?}"),
                    Pressure::Delay(us, _) => us,
                    Pressure::None => 0,
                };
                // Without a delay a writer makes 640 MiB a second.
                let step_us = us + 97;
                written += CHUNK_BYTES;
                now_us += step_us;
                flushed =
                    (flushed + step_us * mib_per_second * (1 << 20) / 1_000_000).min(written / FULL * FULL);
            }
            let rate = (written >> 20) / 60;
            assert!(rate <= mib_per_second + mib_per_second / 4 + 4, "{rate} of {mib_per_second} MiB/s");
            assert!(rate + 2 >= mib_per_second, "{rate} of {mib_per_second} MiB/s");
        }
    }
}
