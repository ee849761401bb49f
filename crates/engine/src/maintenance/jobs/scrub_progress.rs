//! State of the background scrub: the progress of its pass, its findings and its pauses. The pause
//! is a pure function; reading is done by the job. Damage that it finds stops nothing: reads of the
//! damaged blocks fail on their own.
//!
//! Invariant: a pass reads every file that existed when it began once, in cyclic order of file
//! numbers from a random one. Files written meanwhile have larger numbers and wait for the next
//! pass.

use crate::limits::SCRUB_PAUSE_US_MIN;
use perigee_base::{Error, FileId, Micros};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How far a pass is before a quantum.
#[derive(Clone, Copy, Debug)]
pub struct ScrubPosition {
    /// Bytes of the whole pass.
    pub total_bytes: u64,
    /// Bytes that will have been read after the quantum.
    pub done_bytes: u64,
    /// Time since the start of the pass, in microseconds.
    pub elapsed_us: u64,
    /// Time since the end of the last quantum, in microseconds.
    pub rested_us: u64,
    /// Time that the pass is to take, in microseconds.
    pub interval_us: u64,
}

/// Returns how many microseconds to wait before a quantum, so that a pass takes its interval.
#[must_use]
pub fn pause_us(at: ScrubPosition) -> u64 {
    let ScrubPosition { total_bytes: total, done_bytes: done, elapsed_us, rested_us, interval_us } =
        at;
    let share = u128::from(interval_us) * u128::from(done.min(total)) / u128::from(total.max(1));
    let due = u64::try_from(share).unwrap_or(u64::MAX);
    due.saturating_sub(elapsed_us).max(SCRUB_PAUSE_US_MIN.saturating_sub(rested_us))
}

/// A scrub pass in progress.
#[derive(Clone, Copy, Debug)]
pub struct ScrubPass {
    /// Start time, monotonic microseconds.
    pub started_us: u64,
    /// This file and later ones were written after the start.
    pub file_limit: FileId,
    /// Number of the file at which it began.
    pub first_file: u64,
    /// Position of the last file read in cyclic order (see [`ScrubPass::position_of`]); `None`:
    /// none was read.
    pub position: Option<u64>,
    /// Files read.
    pub files: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Damaged files.
    pub errors: u64,
}

impl ScrubPass {
    /// Creates a pass over the files below `limit`, starting at one chosen by `random`.
    #[must_use]
    pub fn new(started: Micros, limit: FileId, random: u64) -> ScrubPass {
        let first = random.checked_rem(limit.0).unwrap_or(0);
        ScrubPass {
            started_us: started.0,
            file_limit: limit,
            first_file: first,
            position: None,
            files: 0,
            bytes: 0,
            errors: 0,
        }
    }
    /// Returns the position of a file in the cyclic order, or `None` if it need not be read any
    /// more.
    #[must_use]
    pub fn position_of(&self, file: FileId) -> Option<u64> {
        if file >= self.file_limit {
            return None;
        }
        let position = if file.0 >= self.first_file {
            file.0 - self.first_file
        } else {
            file.0 + (self.file_limit.0 - self.first_file)
        };
        (self.position.is_none_or(|at| position > at)).then_some(position)
    }
}

#[derive(Debug, Default)]
struct ScrubState {
    pass: Option<ScrubPass>,
    last_quantum_end_us: u64,
    damaged: BTreeMap<FileId, Error>,
}

/// The scrub's state. The mutex guards it; no I/O while it is held. Only the scrub thread changes
/// the pass.
#[derive(Debug, Default)]
pub struct Scrub {
    state: Mutex<ScrubState>,
}

impl Scrub {
    fn state(&self) -> MutexGuard<'_, ScrubState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Returns the current pass, and when the last quantum ended.
    pub fn pass(&self) -> (Option<ScrubPass>, u64) {
        let state = self.state();
        (state.pass, state.last_quantum_end_us)
    }
    /// Sets the progress of the pass; `None`: it is complete.
    pub fn set_pass(&self, pass: Option<ScrubPass>, now_us: u64) {
        let mut state = self.state();
        check_slow!(
            pass.is_none_or(|new| {
                let same = state.pass.filter(|old| old.started_us == new.started_us);
                same.is_none_or(|old| old.position < new.position && old.bytes <= new.bytes)
            }),
            "a pass reads each file once",
            state.pass,
            pass
        );
        state.pass = pass;
        state.last_quantum_end_us = now_us;
    }
    /// Records the damage found in a file, or (`None`) that it is intact.
    pub fn set_damage(&self, file: FileId, damage: Option<Error>) {
        let mut state = self.state();
        match damage {
            Some(e) => drop(state.damaged.insert(file, e)),
            None => drop(state.damaged.remove(&file)),
        }
    }
    /// Discards the damage of files that are no longer part of the database.
    pub fn retain_files(&self, is_live: impl Fn(FileId) -> bool) {
        self.state().damaged.retain(|file, _| is_live(*file));
    }
    /// Returns one error per damaged file, by file number.
    pub fn damage_errors(&self) -> Vec<Error> {
        self.state().damaged.values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::SCRUB_QUANTUM_BYTES;

    fn pause(total: u64, done: u64, elapsed: u64, rested: u64, interval: u64) -> u64 {
        pause_us(ScrubPosition {
            total_bytes: total,
            done_bytes: done,
            elapsed_us: elapsed,
            rested_us: rested,
            interval_us: interval,
        })
    }

    const WEEK: u64 = 7 * 86_400_000_000;

    #[test]
    fn pass_takes_the_interval() {
        for (total, interval) in [(1 << 40, WEEK), (100 << 20, WEEK), (10 << 30, 3_600_000_000)] {
            let (mut now, mut done, mut quanta) = (0, 0, 0);
            while done < total {
                let step = SCRUB_QUANTUM_BYTES.min(total - done);
                now += pause(total, done + step, now, 0, interval);
                done += step;
                quanta += 1;
                now += 4000;
            }
            assert!(
                now >= interval && now <= interval + interval / 100,
                "{total} bytes in {now} us"
            );
            assert_eq!(quanta, total.div_ceil(SCRUB_QUANTUM_BYTES));
        }
    }

    #[test]
    fn late_pass_hurries_but_keeps_the_minimum_pause() {
        assert_eq!(pause(100, 50, 90, 0, 100), SCRUB_PAUSE_US_MIN);
        assert_eq!(pause(100, 50, 90, SCRUB_PAUSE_US_MIN, 100), 0);
        assert_eq!(pause(100, 50, 10, SCRUB_PAUSE_US_MIN, 100), 40);
        assert_eq!(pause(0, 0, 0, 0, 1), SCRUB_PAUSE_US_MIN, "an empty database");
        assert_eq!(pause(1, u64::MAX, 0, 0, u64::MAX), u64::MAX, "no overflow");
    }

    #[test]
    fn pass_reads_each_file_once() {
        let mut pass = ScrubPass::new(Micros(0), FileId(10), 27);
        let mut order = Vec::new();
        while let Some((position, id)) =
            (0..20).filter_map(|id| Some((pass.position_of(FileId(id))?, id))).min()
        {
            pass.position = Some(position);
            order.push(id);
        }
        assert_eq!(order, [7, 8, 9, 0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(ScrubPass::new(Micros(0), FileId(0), 5).position_of(FileId(0)), None);
    }

    #[test]
    fn damage_is_kept_until_file_is_repaired_or_removed() {
        let scrub = Scrub::default();
        for id in 1..4 {
            scrub.set_damage(FileId(id), Some(Error::corruption("damaged")));
        }
        scrub.set_damage(FileId(1), None);
        assert_eq!(scrub.damage_errors().len(), 2);
        scrub.retain_files(|id| id == FileId(3));
        assert_eq!(scrub.damage_errors().len(), 1);
    }
}
