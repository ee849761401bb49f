//! Doing a trace again. What every read must find is worked out beforehand, so that the measured part only compares.
//!
//! Values are made from a key's hash, its version and the recorded length. One thread does all, in the order of the file.

use super::run::Part;
use crate::engine::{Cursor, Result, Session};
use crate::keys::mix;
use crate::meter::Meter;
use crate::trace::Op;
use crate::values::{ValueChoice, Values};
use std::collections::BTreeMap;
use std::ops::Bound;

/// A version and a length: what a value must be.
type State = (u16, usize);

/// A put, or with no state a delete.
#[derive(Debug)]
struct Change {
    family: usize,
    key: Vec<u8>,
    to: Option<State>,
}

#[derive(Debug)]
enum Step {
    Commit(Vec<Change>),
    Get {
        family: usize,
        key: Vec<u8>,
        found: Option<State>,
    },
    /// `count` entries whose keys and values have this digest.
    Scan {
        family: usize,
        key: Vec<u8>,
        entries: usize,
        count: usize,
        digest: u64,
    },
}

/// A trace with all its answers.
#[derive(Debug)]
pub struct Replay {
    choice: ValueChoice,
    prepare: Vec<Step>,
    steps: Vec<Step>,
    /// What is there at the end.
    last: Vec<Change>,
    /// Families in use.
    pub families: usize,
}

/// FNV-1a, then mixed: nothing here defends against chosen keys.
fn hash(key: &[u8]) -> u64 {
    mix(key.iter().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3)))
}

fn fold(digest: u64, key: &[u8], (version, bytes): State) -> u64 {
    // A value of less than eight bytes does not show its version.
    let version = if bytes < 8 { 0 } else { version };
    mix(digest ^ hash(key)).wrapping_add(u64::from(version)).rotate_left(7) ^ bytes as u64
}

type Model = BTreeMap<(usize, Vec<u8>), State>;

fn commit(model: &mut Model, ops: &[&Op]) -> Step {
    let mut changes = Vec::with_capacity(ops.len());
    for op in ops {
        match op {
            Op::Put { family, key, bytes } => {
                let at = (*family, key.clone());
                // Versions from 1 to 255: what a ramp can tell apart.
                let version = model.get(&at).map_or(1, |(v, _)| v % 255 + 1);
                model.insert(at, (version, *bytes));
                changes.push(Change { family: *family, key: key.clone(), to: Some((version, *bytes)) });
            }
            Op::Delete { family, key } => {
                model.remove(&(*family, key.clone()));
                changes.push(Change { family: *family, key: key.clone(), to: None });
            }
            _ => {}
        }
    }
    Step::Commit(changes)
}

fn scan(model: &Model, family: usize, key: &[u8], entries: usize) -> Step {
    let from = (Bound::Included((family, key.to_vec())), Bound::Excluded((family + 1, Vec::new())));
    let seen = model.range(from).take(entries);
    let (count, digest) = seen.fold((0, 0), |(n, d), ((_, k), state)| (n + 1, fold(d, k, *state)));
    Step::Scan { family, key: key.to_vec(), entries, count, digest }
}

impl Replay {
    pub fn new(ops: &[Op], choice: ValueChoice) -> Result<Replay> {
        let (mut model, mut steps, mut prepare) = (Model::new(), Vec::new(), Vec::new());
        let (mut at, mut families) = (0, 1);
        while let Some(op) = ops.get(at) {
            at += 1;
            if let Op::Put { family, .. }
            | Op::Delete { family, .. }
            | Op::Get { family, .. }
            | Op::Scan { family, .. } = op
            {
                families = families.max(family + 1);
            }
            match op {
                Op::Put { .. } | Op::Delete { .. } => steps.push(commit(&mut model, &[op])),
                Op::Batch { n } => {
                    let of = ops.get(at..at + n).ok_or("the trace ends within a batch")?;
                    for op in of {
                        let (Op::Put { family, .. } | Op::Delete { family, .. }) = op else {
                            return Err("a batch holds something other than puts and deletes".into());
                        };
                        families = families.max(family + 1);
                    }
                    steps.push(commit(&mut model, &of.iter().collect::<Vec<_>>()));
                    at += n;
                }
                Op::Get { family, key } => {
                    let found = model.get(&(*family, key.clone())).copied();
                    steps.push(Step::Get { family: *family, key: key.clone(), found });
                }
                Op::Scan { family, key, entries } => steps.push(scan(&model, *family, key, *entries)),
                Op::Measure => prepare.append(&mut steps),
            }
        }
        let last = model.into_iter().map(|((family, key), to)| Change { family, key, to: Some(to) });
        Ok(Replay { choice, prepare, steps, last: last.collect(), families })
    }
    /// What is done before measuring begins.
    pub fn load(&self, session: &mut dyn Session) -> Result<()> {
        let mut value = Vec::new();
        for step in &self.prepare {
            if let Step::Commit(changes) = step {
                self.commit(session, changes, &mut value)?;
            }
        }
        Ok(())
    }
    /// Keys that are there at the end, and bytes of them and their values.
    pub fn live(&self) -> (u64, u64) {
        let bytes = self.last.iter().map(|c| c.key.len() + c.to.map_or(0, |(_, n)| n)).sum::<usize>();
        (self.last.len() as u64, bytes as u64)
    }
    fn values(&self, bytes: usize) -> Values {
        Values { choice: self.choice, bytes }
    }
    fn commit(&self, session: &mut dyn Session, changes: &[Change], value: &mut Vec<u8>) -> Result<()> {
        session.write(changes.len(), &mut |sink| {
            for c in changes {
                match c.to {
                    Some((version, bytes)) => {
                        let value = self.values(bytes).write(number(&c.key), version, value);
                        sink.put(c.family, &c.key, value)?;
                    }
                    None => sink.delete(c.family, &c.key)?,
                }
            }
            Ok(())
        })
    }
}

/// The number of which a key's values are made.
fn number(key: &[u8]) -> u64 {
    hash(key) & (u64::MAX >> 16)
}

impl Part<'_> {
    /// The measured phase: the first thread does it all.
    pub(super) fn replay(&mut self, replay: &Replay, session: &mut dyn Session, meter: &mut Meter<'_>) {
        if self.t > 0 {
            return;
        }
        for step in &replay.steps {
            match step {
                Step::Commit(changes) => {
                    let value = &mut self.value;
                    meter.call(changes.len() as u64, || replay.commit(session, changes, value));
                    let bytes = |c: &Change| c.key.len() + c.to.map_or(0, |(_, n)| n);
                    meter.given += changes.iter().map(bytes).sum::<usize>() as u64;
                }
                Step::Get { family, key, found } => self.expect(replay, session, meter, *family, key, *found),
                Step::Scan { .. } => self.rescan(replay, session, meter, step),
            }
        }
    }

    fn expect(
        &mut self,
        replay: &Replay,
        session: &mut dyn Session,
        meter: &mut Meter<'_>,
        family: usize,
        key: &[u8],
        found: Option<State>,
    ) {
        let (scratch, mut right) = (&mut self.scratch, None);
        let mut seen = 0;
        meter.call(1, || {
            session.get(family, key, &mut |value| {
                seen = value.map_or(0, <[u8]>::len);
                right = Some(match (value, found) {
                    (Some(v), Some((version, n))) => {
                        replay.values(n).is(v, number(key), Some(version), scratch)
                    }
                    (None, None) => true,
                    _ => false,
                });
            })
        });
        meter.seen += (key.len() + seen) as u64;
        if right == Some(false) {
            meter.wrong(|| format!("get of key {key:02x?} in family {family} did not give {found:?}"));
        }
    }

    fn rescan(&mut self, replay: &Replay, session: &mut dyn Session, meter: &mut Meter<'_>, step: &Step) {
        let Step::Scan { family, key, entries, count, digest } = step else { return };
        let (scratch, errors) = (&mut self.scratch, meter.errors);
        let (mut n, mut d, mut whole, mut seen) = (0, 0, true, 0);
        let mut see = |k: &[u8], v: &[u8]| {
            let values = replay.values(v.len());
            let version = if v.len() < 8 { Some(0) } else { values.version(v, number(k)) };
            whole &= v.len() < 8 || values.is(v, number(k), version, scratch);
            d = fold(d, k, (version.unwrap_or(0), v.len()));
            seen += k.len() + v.len();
            n += 1;
            n < *entries
        };
        meter.call(1, || session.cursor(*family, &mut |cursor: &mut dyn Cursor| cursor.scan(key, &mut see)));
        meter.seen += seen as u64;
        if meter.errors == errors && (n != *count || d != *digest || !whole) {
            meter.wrong(|| {
                format!("scan from {key:02x?} in family {family}: {n} entries of {count}, or wrong ones")
            });
        }
    }

    /// After reopening: a sample of what must be there at the end.
    pub(super) fn recheck(
        &mut self,
        replay: &Replay,
        session: &mut dyn Session,
        meter: &mut Meter<'_>,
        samples: u64,
    ) {
        for _ in 0..samples.min(replay.last.len() as u64) {
            let c = &replay.last[self.rng.below(replay.last.len() as u64) as usize];
            self.expect(replay, session, meter, c.family, &c.key, c.to);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_those_of_the_order_in_the_file() {
        let put = |k: &[u8], bytes| Op::Put { family: 0, key: k.to_vec(), bytes };
        let get = |k: &[u8]| Op::Get { family: 0, key: k.to_vec() };
        let ops = [
            put(b"a", 10),
            Op::Measure,
            Op::Batch { n: 2 },
            put(b"a", 20),
            put(b"b", 4),
            get(b"a"),
            Op::Delete { family: 0, key: b"a".to_vec() },
            get(b"a"),
            Op::Scan { family: 0, key: b"a".to_vec(), entries: 9 },
        ];
        let replay = Replay::new(&ops, ValueChoice::Half).expect("a good trace");
        assert_eq!((replay.prepare.len(), replay.steps.len(), replay.live()), (1, 5, (1, 5)));
        assert!(matches!(replay.steps[1], Step::Get { found: Some((2, 20)), .. }));
        assert!(matches!(replay.steps[3], Step::Get { found: None, .. }));
        assert!(matches!(replay.steps[4], Step::Scan { count: 1, .. }));
        assert!(Replay::new(&[Op::Batch { n: 2 }, put(b"a", 1)], ValueChoice::Half).is_err());
        assert!(Replay::new(&[Op::Batch { n: 1 }, get(b"a")], ValueChoice::Half).is_err());
    }
}
