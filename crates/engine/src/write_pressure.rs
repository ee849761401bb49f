//! Back-pressure: how long a writer waits, and why. A pure function; `commit/admit` obeys it.
//!
//! Each cause has a zone between "nobody waits" and "everybody waits", and measures how far into it
//! the load is, in bytes or thousandths and not in whole memtables, so that nothing jumps when one
//! comes or goes. The delay of a chunk grows from nothing at the zone's beginning beyond any bound
//! at its end. So wherever the background work can just keep up there is a place in the zone where
//! writers are exactly as fast, without anybody knowing that speed: they settle there and do not
//! run into the stop.

use perigee_base::limits;

/// What the function looks at, the worst of all families.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PressureInputs {
    /// Sealed memtables that wait for their flush, in thousandths of full ones ([`waiting`]).
    pub immutable_memtables: u64,
    /// How far the running flush is with its memtable, in thousandths.
    pub flush_progress: u64,
    /// Runs in level 0.
    pub level0_runs: usize,
    /// Bytes of all active and of all sealed memtables.
    pub memtable_bytes: (u64, u64),
    /// Bytes of the largest memtable when it is full; 0: not known.
    pub memtable_bytes_max: u64,
    /// What they may have together; 0: not limited.
    pub memtable_share: u64,
    /// Table bytes that merges would free, in thousandths of the others.
    pub garbage_permille: u64,
    /// What that may become; 0: anything.
    pub garbage_permille_max: u64,
}

/// Why a writer waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StallReason {
    /// Flushes do not keep up.
    ImmutableMemtables,
    /// Compaction does not keep up.
    Level0Runs,
    /// The memtables have used up their share of the memory budget.
    Memory,
    /// Overwritten entries pile up faster than compaction takes them away.
    Space,
}

impl StallReason {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            StallReason::ImmutableMemtables => "sealed memtables",
            StallReason::Level0Runs => "level 0 runs",
            StallReason::Memory => "memory budget",
            StallReason::Space => "space",
        }
    }
}

/// What a writer does before it enters the commit section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WritePressure {
    /// Goes on.
    None,
    /// Every 64 KiB that anybody writes cost so many microseconds.
    Delay(u64, StallReason),
    /// Waits until the load falls.
    Stop(StallReason),
}

impl WritePressure {
    /// In words, for statistics.
    pub fn name(&self) -> &'static str {
        match self {
            WritePressure::None => "none",
            WritePressure::Delay(_, r) | WritePressure::Stop(r) => r.name(),
        }
    }
}

/// What a delay is counted for.
pub const DELAY_CHUNK_BYTES: u64 = 64 << 10;
/// Runs in level 0 that start a compaction.
pub const LEVEL0_TRIGGER: usize = 4;
const LEVEL0_DELAY: u64 = 12;
const LEVEL0_STOP: u64 = 36;
/// Thousandths of memtables, those written and not yet flushed: about one is being flushed and one
/// waits.
const IMMUTABLES_DELAY: u64 = 2_000;
const IMMUTABLES_STOP: u64 = 4_000;
/// Less waste than this (in thousandths) delays nobody: compaction begins at an eighth.
const GARBAGE_DELAY_MIN: u64 = 130;
/// The longest delay for space: 4 MiB a second.
const GARBAGE_DELAY_US_MAX: u64 = 16_000;
/// The delay in the middle of a zone: 64 MiB a second.
const MIDDLE_DELAY_US: u64 = 1_000;

/// How far a cause is into its zone: the delay of a chunk, or `None` for a stop.
fn zone_delay_us(at: u64, begin: u64, end: u64) -> Option<u64> {
    let left = end.checked_sub(at).filter(|left| *left > 0)?;
    Some(at.saturating_sub(begin).saturating_mul(MIDDLE_DELAY_US) / left)
}

/// What a family's sealed memtables of so many bytes count as, in thousandths of full ones. One
/// that was sealed early counts for what it holds, but an eighth at least, for reads ask each of
/// them; one that a giant batch made longer counts once.
pub fn immutable_memtable_load(sealed_bytes: impl Iterator<Item = u64>, full: u64) -> u64 {
    sealed_bytes.map(|bytes| (bytes.saturating_mul(1000) / full.max(1)).clamp(125, 1000)).sum()
}

/// The pressure of a load: the longest of the delays.
pub fn write_pressure(load: PressureInputs) -> WritePressure {
    let runs = zone_delay_us(
        load.level0_runs as u64,
        LEVEL0_DELAY,
        LEVEL0_STOP.min(limits::LEVEL0_RUNS_MAX as u64),
    );
    let causes = [
        (immutable_memtable_delay(&load), StallReason::ImmutableMemtables),
        (runs, StallReason::Level0Runs),
        (memory_delay(&load), StallReason::Memory),
        (garbage_delay(&load), StallReason::Space),
    ];
    let mut worst = WritePressure::None;
    for (delay, reason) in causes {
        worst = match (delay, worst) {
            (None, _) => return WritePressure::Stop(reason),
            (Some(us), WritePressure::None) if us > 0 => WritePressure::Delay(us, reason),
            (Some(us), WritePressure::Delay(other, _)) if us > other => {
                WritePressure::Delay(us, reason)
            }
            _ => worst,
        };
    }
    worst
}

/// Memtables that are sealed, less what is flushed of the one in work, and the one that grows.
/// While nothing waits beside the one in work nobody is delayed.
fn immutable_memtable_delay(load: &PressureInputs) -> Option<u64> {
    let growing = load
        .memtable_bytes
        .0
        .saturating_mul(1000)
        .checked_div(load.memtable_bytes_max)
        .unwrap_or(0);
    let written = load.immutable_memtables.saturating_add(growing.min(999));
    zone_delay_us(
        written.saturating_sub(load.flush_progress.min(1000)),
        IMMUTABLES_DELAY,
        IMMUTABLES_STOP,
    )
}

/// The last quarter of the memtables' share. While nothing is sealed nobody waits: the next commit
/// seals.
fn memory_delay(load: &PressureInputs) -> Option<u64> {
    let (used, share) =
        (load.memtable_bytes.0.saturating_add(load.memtable_bytes.1), load.memtable_share);
    if load.memtable_bytes.1 == 0 || share == 0 {
        return Some(0);
    }
    zone_delay_us(used, share / 4 * 3, share)
}

/// From half of what overwritten entries may take up, where compaction is at work on them. Nobody
/// is stopped for space, and the delay has an end: an estimate is no reason to stand still, nor is
/// what a compaction does not free in the end.
fn garbage_delay(load: &PressureInputs) -> Option<u64> {
    if load.garbage_permille_max == 0 {
        return Some(0);
    }
    let begin = (load.garbage_permille_max / 2).max(GARBAGE_DELAY_MIN);
    Some(
        zone_delay_us(load.garbage_permille, begin, load.garbage_permille_max)
            .map_or(GARBAGE_DELAY_US_MAX, |us| us.min(GARBAGE_DELAY_US_MAX)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pressure_at(sealed: u64, level0_runs: usize) -> WritePressure {
        write_pressure(PressureInputs {
            immutable_memtables: sealed * 1000,
            level0_runs,
            ..PressureInputs::default()
        })
    }

    #[test]
    fn small_immutable_memtables_count_by_size() {
        assert_eq!(immutable_memtable_load([64, 64, 6400].into_iter(), 64), 3000);
        assert_eq!(immutable_memtable_load([32, 1, 0].into_iter(), 64), 750);
        assert_eq!(immutable_memtable_load([9].into_iter(), 0), 1000, "no size known");
    }

    #[test]
    fn delays_grow_before_writes_stop() {
        assert_eq!(pressure_at(0, 0), WritePressure::None);
        assert_eq!(pressure_at(2, 12), WritePressure::None);
        assert_eq!(pressure_at(3, 0), WritePressure::Delay(1000, StallReason::ImmutableMemtables));
        assert_eq!(pressure_at(0, 14), WritePressure::Delay(90, StallReason::Level0Runs));
        assert_eq!(pressure_at(0, 24), WritePressure::Delay(1000, StallReason::Level0Runs));
        assert_eq!(pressure_at(0, 35), WritePressure::Delay(23_000, StallReason::Level0Runs));
        assert_eq!(pressure_at(4, 0), WritePressure::Stop(StallReason::ImmutableMemtables));
        assert_eq!(pressure_at(0, 36), WritePressure::Stop(StallReason::Level0Runs));
    }

    #[test]
    fn garbage_delays_but_never_stops_writes() {
        let at = |waste, waste_max| {
            write_pressure(PressureInputs {
                garbage_permille: waste,
                garbage_permille_max: waste_max,
                ..PressureInputs::default()
            })
        };
        assert_eq!(
            (at(200, 400), at(5000, 0), at(130, 200)),
            (WritePressure::None, WritePressure::None, WritePressure::None)
        );
        assert_eq!(at(300, 400), WritePressure::Delay(1000, StallReason::Space));
        assert_eq!(at(375, 400), WritePressure::Delay(7000, StallReason::Space));
        assert_eq!(at(399, 400), WritePressure::Delay(16_000, StallReason::Space));
        assert_eq!(at(9999, 400), WritePressure::Delay(16_000, StallReason::Space));
    }

    #[test]
    fn memory_pressure_delays_then_stops_writes() {
        let at = |active, sealed| {
            write_pressure(PressureInputs {
                memtable_bytes: (active, sealed),
                memtable_share: 1000,
                ..PressureInputs::default()
            })
        };
        assert_eq!(at(500, 250), WritePressure::None);
        assert_eq!(at(500, 375), WritePressure::Delay(1000, StallReason::Memory));
        assert_eq!(at(500, 500), WritePressure::Stop(StallReason::Memory));
        assert_eq!(at(5000, 0), WritePressure::None, "the next commit seals");
    }

    #[test]
    fn delay_is_continuous_across_seal_and_flush() {
        let delay = |sealed, active, flushed| {
            let load = PressureInputs {
                immutable_memtables: sealed,
                flush_progress: flushed,
                memtable_bytes: (active, 1),
                memtable_bytes_max: 1000,
                ..PressureInputs::default()
            };
            match write_pressure(load) {
                WritePressure::Delay(us, _) => us,
                other => panic!("{other:?}"),
            }
        };
        assert!(delay(3000, 999, 500).abs_diff(delay(4000, 0, 500)) < 10, "a memtable is sealed");
        assert!(delay(4000, 500, 1000).abs_diff(delay(3000, 500, 0)) < 10, "and one is flushed");
    }

    /// Writers that are as fast as the delay lets them and a flush of a given speed: after the
    /// beginning nobody is ever stopped, and the speed of both is the same.
    #[test]
    fn writers_converge_to_flush_speed() {
        const FULL: u64 = 64 << 20;
        for mib_per_second in [5, 20, 100, 400] {
            let (mut now_us, mut written, mut flushed) = (0u64, 0u64, 0u64);
            while now_us < 60_000_000 {
                let done = flushed / FULL;
                let load = PressureInputs {
                    immutable_memtables: (written / FULL - done) * 1000,
                    flush_progress: flushed % FULL * 1000 / FULL,
                    memtable_bytes: (written % FULL, 0),
                    memtable_bytes_max: FULL,
                    ..PressureInputs::default()
                };
                let us = match write_pressure(load) {
                    WritePressure::Stop(_) => panic!("stopped at {mib_per_second} MiB/s: {load:?}"),
                    WritePressure::Delay(us, _) => us,
                    WritePressure::None => 0,
                };
                // Without a delay a writer makes 640 MiB a second.
                let step_us = us + 97;
                written += DELAY_CHUNK_BYTES;
                now_us += step_us;
                flushed = (flushed + step_us * mib_per_second * (1 << 20) / 1_000_000)
                    .min(written / FULL * FULL);
            }
            let rate = (written >> 20) / 60;
            assert!(
                rate <= mib_per_second + mib_per_second / 4 + 4,
                "{rate} of {mib_per_second} MiB/s"
            );
            assert!(rate + 2 >= mib_per_second, "{rate} of {mib_per_second} MiB/s");
        }
    }
}
