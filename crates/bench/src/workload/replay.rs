//! Replays a trace. The expected answer of every read is computed beforehand, so that the measured
//! phase only compares.
//!
//! Values are derived from the key's hash, its version and the recorded length. One thread replays
//! all operations, in the order of the file.

use super::worker::WorkerThread;
use crate::engine::{Cursor, Result, Session};
use crate::keys::mix;
use crate::meter::Meter;
use crate::trace::TraceOp;
use crate::values::{ValueChoice, ValueFormat};
use std::collections::BTreeMap;
use std::ops::Bound;

/// Version and length that a value must have.
type ExpectedValue = (u16, usize);

/// A put or, without a value, a delete.
#[derive(Debug)]
struct ReplayWrite {
    family: usize,
    key: Vec<u8>,
    expected: Option<ExpectedValue>,
}

#[derive(Debug)]
enum ReplayStep {
    Commit(Vec<ReplayWrite>),
    Get {
        family: usize,
        key: Vec<u8>,
        found: Option<ExpectedValue>,
    },
    /// Reads `count` entries whose keys and values have this digest.
    Scan {
        family: usize,
        key: Vec<u8>,
        entries: usize,
        count: usize,
        digest: u64,
    },
}

/// A trace with all expected answers.
#[derive(Debug)]
pub struct TraceReplay {
    choice: ValueChoice,
    setup_steps: Vec<ReplayStep>,
    steps: Vec<ReplayStep>,
    /// Entries expected at the end.
    final_entries: Vec<ReplayWrite>,
    /// Number of families in use.
    pub families: usize,
}

/// FNV-1a, then mixed: no protection against adversarial keys is needed here.
fn hash(key: &[u8]) -> u64 {
    mix(key
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3)))
}

fn fold_digest(digest: u64, key: &[u8], (version, bytes): ExpectedValue) -> u64 {
    // A value shorter than eight bytes does not contain its version.
    let version = if bytes < 8 { 0 } else { version };
    mix(digest ^ hash(key)).wrapping_add(u64::from(version)).rotate_left(7) ^ bytes as u64
}

type ReplayModel = BTreeMap<(usize, Vec<u8>), ExpectedValue>;

fn commit_step(model: &mut ReplayModel, ops: &[&TraceOp]) -> ReplayStep {
    let mut changes = Vec::with_capacity(ops.len());
    for op in ops {
        match op {
            TraceOp::Put { family, key, bytes } => {
                let at = (*family, key.clone());
                // Versions from 1 to 255, which a ramp can distinguish.
                let version = model.get(&at).map_or(1, |(v, _)| v % 255 + 1);
                model.insert(at, (version, *bytes));
                changes.push(ReplayWrite {
                    family: *family,
                    key: key.clone(),
                    expected: Some((version, *bytes)),
                });
            }
            TraceOp::Delete { family, key } => {
                model.remove(&(*family, key.clone()));
                changes.push(ReplayWrite { family: *family, key: key.clone(), expected: None });
            }
            _ => {}
        }
    }
    ReplayStep::Commit(changes)
}

fn scan_step(model: &ReplayModel, family: usize, key: &[u8], entries: usize) -> ReplayStep {
    let from = (Bound::Included((family, key.to_vec())), Bound::Excluded((family + 1, Vec::new())));
    let seen = model.range(from).take(entries);
    let (count, digest) =
        seen.fold((0, 0), |(n, d), ((_, k), state)| (n + 1, fold_digest(d, k, *state)));
    ReplayStep::Scan { family, key: key.to_vec(), entries, count, digest }
}

impl TraceReplay {
    pub fn new(ops: &[TraceOp], choice: ValueChoice) -> Result<TraceReplay> {
        let (mut model, mut steps, mut prepare) = (ReplayModel::new(), Vec::new(), Vec::new());
        let (mut at, mut families) = (0, 1);
        while let Some(op) = ops.get(at) {
            at += 1;
            if let TraceOp::Put { family, .. }
            | TraceOp::Delete { family, .. }
            | TraceOp::Get { family, .. }
            | TraceOp::Scan { family, .. } = op
            {
                families = families.max(family + 1);
            }
            match op {
                TraceOp::Put { .. } | TraceOp::Delete { .. } => {
                    steps.push(commit_step(&mut model, &[op]))
                }
                TraceOp::Batch { n } => {
                    let of = ops.get(at..at + n).ok_or("the trace ends within a batch")?;
                    for op in of {
                        let (TraceOp::Put { family, .. } | TraceOp::Delete { family, .. }) = op
                        else {
                            return Err(
                                "a batch holds something other than puts and deletes".into()
                            );
                        };
                        families = families.max(family + 1);
                    }
                    steps.push(commit_step(&mut model, &of.iter().collect::<Vec<_>>()));
                    at += n;
                }
                TraceOp::Get { family, key } => {
                    let found = model.get(&(*family, key.clone())).copied();
                    steps.push(ReplayStep::Get { family: *family, key: key.clone(), found });
                }
                TraceOp::Scan { family, key, entries } => {
                    steps.push(scan_step(&model, *family, key, *entries))
                }
                TraceOp::Measure => prepare.append(&mut steps),
            }
        }
        let last = model.into_iter().map(|((family, key), to)| ReplayWrite {
            family,
            key,
            expected: Some(to),
        });
        Ok(TraceReplay {
            choice,
            setup_steps: prepare,
            steps,
            final_entries: last.collect(),
            families,
        })
    }
    /// Executes the operations before the measured phase.
    pub fn load(&self, session: &mut dyn Session) -> Result<()> {
        let mut value = Vec::new();
        for step in &self.setup_steps {
            if let ReplayStep::Commit(changes) = step {
                self.commit(session, changes, &mut value)?;
            }
        }
        Ok(())
    }
    /// Returns the number of keys at the end, and the bytes of them and their values.
    pub fn live_totals(&self) -> (u64, u64) {
        let bytes = self
            .final_entries
            .iter()
            .map(|c| c.key.len() + c.expected.map_or(0, |(_, n)| n))
            .sum::<usize>();
        (self.final_entries.len() as u64, bytes as u64)
    }
    fn values(&self, bytes: usize) -> ValueFormat {
        ValueFormat { choice: self.choice, bytes }
    }
    fn commit(
        &self,
        session: &mut dyn Session,
        changes: &[ReplayWrite],
        value: &mut Vec<u8>,
    ) -> Result<()> {
        session.write(changes.len(), &mut |sink| {
            for c in changes {
                match c.expected {
                    Some((version, bytes)) => {
                        let value =
                            self.values(bytes).write_value(key_number(&c.key), version, value);
                        sink.put(c.family, &c.key, value)?;
                    }
                    None => sink.delete(c.family, &c.key)?,
                }
            }
            Ok(())
        })
    }
}

/// Returns the number from which a key's values are derived.
fn key_number(key: &[u8]) -> u64 {
    hash(key) & (u64::MAX >> 16)
}

impl WorkerThread<'_> {
    /// Runs the measured phase: the first thread replays everything.
    pub(super) fn replay(
        &mut self,
        replay: &TraceReplay,
        session: &mut dyn Session,
        meter: &mut Meter<'_>,
    ) {
        if self.t > 0 {
            return;
        }
        for step in &replay.steps {
            match step {
                ReplayStep::Commit(changes) => {
                    let value = &mut self.value;
                    meter
                        .time_call(changes.len() as u64, || replay.commit(session, changes, value));
                    let bytes = |c: &ReplayWrite| c.key.len() + c.expected.map_or(0, |(_, n)| n);
                    meter.written_bytes += changes.iter().map(bytes).sum::<usize>() as u64;
                }
                ReplayStep::Get { family, key, found } => {
                    self.check_get(replay, session, meter, *family, key, *found)
                }
                ReplayStep::Scan { .. } => self.check_scan(replay, session, meter, step),
            }
        }
    }

    fn check_get(
        &mut self,
        replay: &TraceReplay,
        session: &mut dyn Session,
        meter: &mut Meter<'_>,
        family: usize,
        key: &[u8],
        found: Option<ExpectedValue>,
    ) {
        let (scratch, mut right) = (&mut self.scratch, None);
        let mut seen = 0;
        meter.time_call(1, || {
            session.get(family, key, &mut |value| {
                seen = value.map_or(0, <[u8]>::len);
                right = Some(match (value, found) {
                    (Some(v), Some((version, n))) => {
                        replay.values(n).matches(v, key_number(key), Some(version), scratch)
                    }
                    (None, None) => true,
                    _ => false,
                });
            })
        });
        meter.read_bytes += (key.len() + seen) as u64;
        if right == Some(false) {
            meter.record_wrong(|| {
                format!("get of key {key:02x?} in family {family} did not return {found:?}")
            });
        }
    }

    fn check_scan(
        &mut self,
        replay: &TraceReplay,
        session: &mut dyn Session,
        meter: &mut Meter<'_>,
        step: &ReplayStep,
    ) {
        let ReplayStep::Scan { family, key, entries, count, digest } = step else { return };
        let (scratch, errors) = (&mut self.scratch, meter.errors);
        let (mut n, mut d, mut whole, mut seen) = (0, 0, true, 0);
        let mut see = |k: &[u8], v: &[u8]| {
            let values = replay.values(v.len());
            let version = if v.len() < 8 { Some(0) } else { values.version_of(v, key_number(k)) };
            whole &= v.len() < 8 || values.matches(v, key_number(k), version, scratch);
            d = fold_digest(d, k, (version.unwrap_or(0), v.len()));
            seen += k.len() + v.len();
            n += 1;
            n < *entries
        };
        meter.time_call(1, || {
            session.with_cursor(*family, &mut |cursor: &mut dyn Cursor| cursor.scan(key, &mut see))
        });
        meter.read_bytes += seen as u64;
        if meter.errors == errors && (n != *count || d != *digest || !whole) {
            meter.record_wrong(|| {
                format!(
                    "scan from {key:02x?} in family {family}: {n} entries of {count}, or wrong ones"
                )
            });
        }
    }

    /// Checks, after reopening, a sample of the entries expected at the end.
    pub(super) fn check_final_entries(
        &mut self,
        replay: &TraceReplay,
        session: &mut dyn Session,
        meter: &mut Meter<'_>,
        samples: u64,
    ) {
        for _ in 0..samples.min(replay.final_entries.len() as u64) {
            let c =
                &replay.final_entries[self.rng.below(replay.final_entries.len() as u64) as usize];
            self.check_get(replay, session, meter, c.family, &c.key, c.expected);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_follow_file_order() {
        let put = |k: &[u8], bytes| TraceOp::Put { family: 0, key: k.to_vec(), bytes };
        let get = |k: &[u8]| TraceOp::Get { family: 0, key: k.to_vec() };
        let ops = [
            put(b"a", 10),
            TraceOp::Measure,
            TraceOp::Batch { n: 2 },
            put(b"a", 20),
            put(b"b", 4),
            get(b"a"),
            TraceOp::Delete { family: 0, key: b"a".to_vec() },
            get(b"a"),
            TraceOp::Scan { family: 0, key: b"a".to_vec(), entries: 9 },
        ];
        let replay = TraceReplay::new(&ops, ValueChoice::Half).expect("a good trace");
        assert_eq!(
            (replay.setup_steps.len(), replay.steps.len(), replay.live_totals()),
            (1, 5, (1, 5))
        );
        assert!(matches!(replay.steps[1], ReplayStep::Get { found: Some((2, 20)), .. }));
        assert!(matches!(replay.steps[3], ReplayStep::Get { found: None, .. }));
        assert!(matches!(replay.steps[4], ReplayStep::Scan { count: 1, .. }));
        assert!(
            TraceReplay::new(&[TraceOp::Batch { n: 2 }, put(b"a", 1)], ValueChoice::Half).is_err()
        );
        assert!(
            TraceReplay::new(&[TraceOp::Batch { n: 1 }, get(b"a")], ValueChoice::Half).is_err()
        );
    }
}
