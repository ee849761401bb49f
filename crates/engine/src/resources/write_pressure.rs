//! Back-pressure: how long a writer waits, and why. A pure function; `admit` applies it.
//!
//! For each cause there is a zone between "no delay" and "writes stop". The load is measured in
//! bytes or thousandths rather than whole memtables, so that the delay does not jump when a
//! memtable is sealed or flushed. The delay of a chunk grows from zero at the beginning of the zone
//! without bound towards its end. So for any speed of the background work there is a point in the
//! zone at which writers are exactly as fast: they converge to it and do not reach the stop, and
//! the speed need not be known.

use crate::limits::{GARBAGE_DELAY_PERMILLE_MIN, GARBAGE_DELAY_US_MAX, MIDDLE_DELAY_US};
use perigee_base::limits;

/// Inputs of the pressure function: the worst of all column families.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PressureInputs {
    /// Sealed memtables waiting for their flush, in thousandths of full ones
    /// ([`immutable_memtable_load`]).
    pub immutable_memtables: u64,
    /// Progress of the running flush, in thousandths of its memtable.
    pub flush_progress: u64,
    /// Runs in level 0.
    pub level0_runs: usize,
    /// Bytes of all active memtables.
    pub active_bytes: u64,
    /// Bytes of all sealed memtables.
    pub sealed_bytes: u64,
    /// Size limit of the largest memtable; 0: not known.
    pub memtable_bytes_max: u64,
    /// Maximum bytes of all memtables together; 0: no limit.
    pub memtable_share: u64,
    /// Table bytes that compactions would free, in thousandths of the remaining ones.
    pub garbage_permille: u64,
    /// Limit of `garbage_permille`; 0: no limit.
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
    /// Overwritten entries accumulate faster than compaction removes them.
    Space,
}

impl StallReason {
    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            StallReason::ImmutableMemtables => "immutable memtables",
            StallReason::Level0Runs => "level 0 runs",
            StallReason::Memory => "memory budget",
            StallReason::Space => "space",
        }
    }
}

/// What a writer must do before it enters the commit section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WritePressure {
    /// Continue.
    None,
    /// Wait: every 64 KiB written by any thread cost this many microseconds.
    Delay(u64, StallReason),
    /// Wait until the load falls.
    Stop(StallReason),
}

impl WritePressure {
    /// Returns the reason, or `none`, for statistics.
    pub fn name(&self) -> &'static str {
        match self {
            WritePressure::None => "none",
            WritePressure::Delay(_, r) | WritePressure::Stop(r) => r.name(),
        }
    }
}

/// Runs in level 0 that start a compaction.
pub const LEVEL0_TRIGGER: usize = 4;
const LEVEL0_DELAY: u64 = 12;
const LEVEL0_STOP: u64 = 36;
/// Thousandths of memtables that are written and not yet flushed: about one is being flushed and
/// one waits.
const IMMUTABLES_DELAY: u64 = 2_000;
const IMMUTABLES_STOP: u64 = 4_000;

const _: () = assert!((LEVEL0_TRIGGER as u64) < LEVEL0_DELAY && LEVEL0_DELAY < LEVEL0_STOP);
const _: () = assert!(LEVEL0_STOP <= limits::LEVEL0_RUNS_MAX as u64);

/// Returns the delay of a chunk at load `at` in the zone `begin` to `end`, or `None` for a stop.
fn zone_delay_us(at: u64, begin: u64, end: u64) -> Option<u64> {
    let left = end.checked_sub(at).filter(|left| *left > 0)?;
    Some(at.saturating_sub(begin).saturating_mul(MIDDLE_DELAY_US) / left)
}

/// Returns the load of a column family's sealed memtables, in thousandths of full ones. A memtable
/// that was sealed early counts in proportion to its size, but at least an eighth, because reads
/// check each of them; one that a huge batch enlarged counts as one.
pub fn immutable_memtable_load(sealed_bytes: impl Iterator<Item = u64>, full: u64) -> u64 {
    sealed_bytes.map(|bytes| (bytes.saturating_mul(1000) / full.max(1)).clamp(125, 1000)).sum()
}

/// Returns the pressure of a load: the longest delay of all causes.
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

/// Returns the delay for sealed memtables and the growing one, minus the flushed part of the one
/// being flushed. There is no delay while no other sealed memtable is waiting.
fn immutable_memtable_delay(load: &PressureInputs) -> Option<u64> {
    let growing =
        load.active_bytes.saturating_mul(1000).checked_div(load.memtable_bytes_max).unwrap_or(0);
    let written = load.immutable_memtables.saturating_add(growing.min(999));
    zone_delay_us(
        written.saturating_sub(load.flush_progress.min(1000)),
        IMMUTABLES_DELAY,
        IMMUTABLES_STOP,
    )
}

/// Returns the delay in the last quarter of the memtables' share. There is no delay while nothing
/// is sealed: the next commit seals.
fn memory_delay(load: &PressureInputs) -> Option<u64> {
    let (used, share) = (load.active_bytes.saturating_add(load.sealed_bytes), load.memtable_share);
    if load.sealed_bytes == 0 || share == 0 {
        return Some(0);
    }
    zone_delay_us(used, share / 4 * 3, share)
}

/// Returns the delay for garbage, from half of its limit on, where compaction is already reclaiming
/// it. Writes are never stopped for space, and the delay is bounded: the amount is an estimate, and
/// a compaction may free less than expected.
fn garbage_delay(load: &PressureInputs) -> Option<u64> {
    if load.garbage_permille_max == 0 {
        return Some(0);
    }
    let begin = (load.garbage_permille_max / 2).max(GARBAGE_DELAY_PERMILLE_MIN);
    Some(
        zone_delay_us(load.garbage_permille, begin, load.garbage_permille_max)
            .map_or(GARBAGE_DELAY_US_MAX, |us| us.min(GARBAGE_DELAY_US_MAX)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::DELAY_CHUNK_BYTES;

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
        assert_eq!(immutable_memtable_load([9].into_iter(), 0), 1000, "size limit unknown");
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
                active_bytes: active,
                sealed_bytes: sealed,
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
                active_bytes: active,
                sealed_bytes: 1,
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

    /// Simulates writers that are as fast as the delay permits, and a flush of a given speed: after
    /// the beginning writes are never stopped, and both have the same speed.
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
                    active_bytes: written % FULL,
                    memtable_bytes_max: FULL,
                    ..PressureInputs::default()
                };
                let us = match write_pressure(load) {
                    WritePressure::Stop(_) => panic!("stopped at {mib_per_second} MiB/s: {load:?}"),
                    WritePressure::Delay(us, _) => us,
                    WritePressure::None => 0,
                };
                // Without a delay a writer writes 640 MiB per second.
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
