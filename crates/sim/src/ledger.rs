//! The ledger: what writers attempted, how each attempt ended, and whether a recovered database is
//! one that these results allow. Uses nothing of the engine.
//!
//! Each writer owns its keys and writes the number of its attempt into a counter key with every
//! batch, so the recovered contents show how far each writer's commits reach. This determines all
//! other contents, which are compared.
//!
//! 1. A writer's commits survive as a prefix of its attempts, whole, in all column families alike.
//! 2. If a commit is there, every commit acknowledged before it began is there (one order, no
//!    holes).
//! 3. What must have survived (by durability and kind of crash) is there.
//! 4. A commit that failed, or was lost at an earlier recovery, is not there.

use crate::family_incarnations::{FamilyIncarnations, FamilySet, is_changing_family};
use crate::history::Bytes;
use crate::history_checker::HistoryChecker;
use std::collections::BTreeMap;

/// Contents of the column families, by name.
pub type Contents = BTreeMap<String, BTreeMap<Bytes, Bytes>>;

/// Column family of the counters; it always exists.
pub const COUNTER_FAMILY: &str = "default";
/// Key that every writer writes in every batch, if the session uses a shared key.
pub const SHARED_KEY: &[u8] = b"shared";

/// One write of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Put {
    /// Column family and its incarnation (0 for permanent column families).
    pub family: (String, u32),
    /// Key.
    pub key: Bytes,
    /// New value; `None` deletes.
    pub value: Option<Bytes>,
}

/// Result of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitOutcome {
    /// Not returned yet.
    Pending,
    /// Success.
    Acked,
    /// `OutcomeUnknown`.
    Unknown,
    /// Another error: the commit is not there and never will be.
    Failed,
}

/// One commit attempt.
#[derive(Clone, Debug)]
pub struct CommitAttempt {
    /// Writes, the counter included.
    pub puts: Vec<Put>,
    /// Result.
    pub outcome: CommitOutcome,
    /// True if it must survive a power cut.
    pub durable: bool,
    started: u64,
    ended: u64,
    /// Virtual time of the acknowledgement.
    pub acked_us: u64,
}

/// Which commits must survive a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequiredCommits {
    /// Every acknowledged commit (the process died, or the database was closed).
    Acked,
    /// Durable commits (the power failed), and those acknowledged before this virtual time.
    Durable {
        /// Zero if only durable commits count.
        before_us: u64,
    },
}

/// Attempts of all writers.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    writers: Vec<Vec<CommitAttempt>>,
    clock: u64,
    /// Column families that are created and dropped. Only writer 0 changes them and writes to them.
    pub families: FamilyIncarnations,
    /// Other state remembered across sessions.
    pub history: HistoryChecker,
}

/// Returns the counter key of a writer.
pub fn counter_key(writer: usize) -> Bytes {
    format!("n/{writer}").into_bytes()
}

impl Ledger {
    /// Creates a ledger for this number of writers.
    pub fn new(writers: usize) -> Self {
        Ledger { writers: vec![Vec::new(); writers], ..Ledger::default() }
    }
    /// Returns the number of the writer's next attempt.
    pub fn next_attempt(&self, writer: usize) -> usize {
        self.writers[writer].len()
    }
    /// Returns the number of attempts.
    pub fn len(&self) -> usize {
        self.writers.iter().map(Vec::len).sum()
    }
    /// Returns true if there was no attempt.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Returns the number of acknowledged commits.
    pub fn acked_count(&self) -> usize {
        self.writers.iter().flatten().filter(|a| a.outcome == CommitOutcome::Acked).count()
    }

    /// Records that a writer starts a commit. Returns the attempt's number.
    pub fn begin_commit(&mut self, writer: usize, mut puts: Vec<Put>) -> usize {
        let number = self.next_attempt(writer);
        puts.push(Put {
            family: (COUNTER_FAMILY.into(), 0),
            key: counter_key(writer),
            value: Some(number.to_string().into_bytes()),
        });
        self.clock += 1;
        let started = self.clock;
        let attempt = CommitAttempt {
            puts,
            outcome: CommitOutcome::Pending,
            durable: false,
            started,
            ended: 0,
            acked_us: 0,
        };
        self.writers[writer].push(attempt);
        number
    }

    /// Returns the writes of an attempt.
    pub fn puts(&self, writer: usize, number: usize) -> &[Put] {
        &self.writers[writer][number].puts
    }

    /// Records how the commit ended.
    pub fn end_commit(
        &mut self,
        writer: usize,
        number: usize,
        outcome: CommitOutcome,
        durable: bool,
        now_us: u64,
    ) {
        self.clock += 1;
        let attempt = &mut self.writers[writer][number];
        attempt.outcome = outcome;
        attempt.durable = durable && outcome == CommitOutcome::Acked;
        attempt.ended = self.clock;
        attempt.acked_us = now_us;
    }

    /// Advances the logical clock and returns its time, for [`Ledger::mark_synced`].
    pub fn advance_clock(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Records a successful sync that began at logical time `moment`: everything acknowledged
    /// before is durable.
    pub fn mark_synced(&mut self, moment: u64) {
        for attempt in self.writers.iter_mut().flatten() {
            attempt.durable |= attempt.outcome == CommitOutcome::Acked && attempt.ended < moment;
        }
    }

    /// Returns the latest acknowledgement time of the commits whose time matters.
    pub fn newest_ack_us(&self) -> u64 {
        let times = self
            .writers
            .iter()
            .flatten()
            .filter(|a| a.outcome == CommitOutcome::Acked)
            .map(|a| a.acked_us);
        times.filter(|&us| us != u64::MAX).max().unwrap_or(0)
    }

    /// Checks recovered contents. Returns the number of each writer's commits in them.
    pub fn check_recovered(
        &self,
        found: &Contents,
        required: RequiredCommits,
    ) -> Result<Vec<usize>, String> {
        let mut ends = Vec::new();
        for writer in 0..self.writers.len() {
            ends.push(self.commits_found(writer, found)?);
        }
        self.check_required(&ends, required)?;
        self.check_order(&ends)?;
        self.check_contents(&ends, found)?;
        Ok(ends)
    }

    /// Returns the number of a writer's commits according to its counter.
    fn commits_found(&self, writer: usize, found: &Contents) -> Result<usize, String> {
        let home = found.get(COUNTER_FAMILY).ok_or("the default column family is missing")?;
        let Some(text) = home.get(&counter_key(writer)) else {
            return Ok(0);
        };
        let number: usize =
            std::str::from_utf8(text).ok().and_then(|t| t.parse().ok()).ok_or_else(|| {
                format!("writer {writer}: the counter reads {:?}", text.escape_ascii().to_string())
            })?;
        match self.writers[writer].get(number) {
            None => Err(format!("writer {writer}: commit {number} is there but was never begun")),
            Some(a) if a.outcome == CommitOutcome::Failed => Err(format!(
                "writer {writer}: commit {number} is there although it failed or was lost before"
            )),
            Some(_) => Ok(number + 1),
        }
    }

    fn check_required(&self, ends: &[usize], required: RequiredCommits) -> Result<(), String> {
        for (writer, attempts) in self.writers.iter().enumerate() {
            let missing = attempts.iter().enumerate().skip(ends[writer]).find(|(_, a)| {
                let due = match required {
                    RequiredCommits::Acked => true,
                    RequiredCommits::Durable { before_us } => a.durable || a.acked_us < before_us,
                };
                a.outcome == CommitOutcome::Acked && due
            });
            if let Some((number, attempt)) = missing {
                return Err(format!(
                    "writer {writer}: commit {number} was acknowledged{} and is lost (found {} \
                     commits of {})",
                    if attempt.durable { " durably" } else { "" },
                    ends[writer],
                    attempts.len()
                ));
            }
        }
        Ok(())
    }

    fn check_order(&self, ends: &[usize]) -> Result<(), String> {
        let present = |(w, attempts): (usize, &'_ Vec<CommitAttempt>)| {
            attempts[..ends[w]]
                .iter()
                .filter(|a| a.outcome != CommitOutcome::Failed)
                .map(|a| a.started)
                .max()
        };
        let absent = |(w, attempts): (usize, &'_ Vec<CommitAttempt>)| {
            attempts[ends[w]..]
                .iter()
                .filter(|a| a.outcome == CommitOutcome::Acked)
                .map(|a| a.ended)
                .min()
        };
        let newest_present = self.writers.iter().enumerate().filter_map(present).max();
        let oldest_absent = self.writers.iter().enumerate().filter_map(absent).min();
        match (newest_present, oldest_absent) {
            (Some(started), Some(ended)) if started > ended => Err(format!(
                "a hole: a commit begun at {started} is there, one acknowledged before, at \
                 {ended}, is not"
            )),
            _ => Ok(()),
        }
    }

    fn check_contents(&self, ends: &[usize], found: &Contents) -> Result<(), String> {
        let mut expected: Contents = BTreeMap::new();
        for (writer, attempts) in self.writers.iter().enumerate() {
            for attempt in
                attempts[..ends[writer]].iter().filter(|a| a.outcome != CommitOutcome::Failed)
            {
                self.apply_attempt(attempt, &mut expected);
            }
        }
        for (name, map) in found.iter().filter(|(name, _)| !is_changing_family(name)) {
            let empty = BTreeMap::new();
            compare_families(name, expected.get(name).unwrap_or(&empty), map)?;
        }
        if let Some(name) = expected.keys().find(|name| !found.contains_key(*name)) {
            return Err(format!("column family {name} is missing"));
        }
        self.matching_families(ends, found)?;
        self.check_shared(ends, found)
    }

    /// Returns the candidate set of column families that was found. If none matches, describes the
    /// difference to the first candidate.
    fn matching_families(&self, ends: &[usize], found: &Contents) -> Result<&FamilySet, String> {
        let mut why = None;
        for affairs in self.families.candidates() {
            match self.check_families(affairs, ends, found) {
                Ok(()) => return Ok(affairs),
                Err(e) => why = why.or(Some(e)),
            }
        }
        Err(why.unwrap_or_default())
    }

    fn check_families(
        &self,
        affairs: &FamilySet,
        ends: &[usize],
        found: &Contents,
    ) -> Result<(), String> {
        if let Some(name) =
            found.keys().find(|name| is_changing_family(name) && !affairs.contains_key(*name))
        {
            return Err(format!("column family {name} is there although it was dropped"));
        }
        for (name, incarnation) in affairs {
            let map = found
                .get(name)
                .ok_or_else(|| format!("column family {name} was created but is not there"))?;
            let after = self.families.origin(*incarnation).map_or(0, |o| o.after);
            let acked = |a: &CommitAttempt| a.outcome == CommitOutcome::Acked;
            if self.writers[0].iter().take(after).skip(ends[0]).any(acked) {
                return Err(format!(
                    "column family {name} is there, but a commit acknowledged before its creation \
                     is not"
                ));
            }
            compare_families(name, &self.incarnation_contents(*incarnation, ends[0]), map)?;
        }
        Ok(())
    }

    /// Returns the contents of an incarnation after the first `end` attempts of writer 0.
    fn incarnation_contents(&self, incarnation: u32, end: usize) -> BTreeMap<Bytes, Bytes> {
        let origin = self.families.origin(incarnation);
        let parent = origin.and_then(|o| Some((o.parent?, o.after)));
        let mut map = parent
            .map_or_else(BTreeMap::new, |(p, after)| self.incarnation_contents(p, after.min(end)));
        let survived = self.writers[0][..end].iter().filter(|a| a.outcome != CommitOutcome::Failed);
        for put in survived.flat_map(|a| &a.puts).filter(|p| p.family.1 == incarnation) {
            match &put.value {
                Some(value) => map.insert(put.key.clone(), value.clone()),
                None => map.remove(&put.key),
            };
        }
        map
    }

    fn apply_attempt(&self, attempt: &CommitAttempt, contents: &mut Contents) {
        for put in &attempt.puts {
            let (name, incarnation) = &put.family;
            if *incarnation != 0 || put.key == SHARED_KEY {
                continue;
            }
            let map = contents.entry(name.clone()).or_default();
            match &put.value {
                Some(value) => map.insert(put.key.clone(), value.clone()),
                None => map.remove(&put.key),
            };
        }
    }

    /// Checks that the shared key holds the last commit of some writer, the same in all column
    /// families, and that no surviving commit began after that one had ended.
    fn check_shared(&self, ends: &[usize], found: &Contents) -> Result<(), String> {
        let mut values: Vec<_> = found
            .iter()
            .filter(|(name, _)| !is_changing_family(name))
            .map(|(_, map)| map.get(SHARED_KEY))
            .collect();
        values.dedup();
        let [Some(value)] = values[..] else {
            return match values[..] {
                [None] | [] => Ok(()),
                _ => Err(format!("column families disagree about the shared key: {values:?}")),
            };
        };
        let last: Vec<&CommitAttempt> =
            ends.iter().zip(&self.writers).filter_map(|(&end, all)| all[..end].last()).collect();
        let shared = |a: &&&CommitAttempt| {
            a.puts.iter().any(|p| p.key == SHARED_KEY && p.value.as_ref() == Some(value))
        };
        let Some(winner) = last.iter().find(shared) else {
            return Err("the shared key holds a value that a later commit replaced".into());
        };
        if winner.ended != 0 && last.iter().any(|a| a.started > winner.ended) {
            return Err("the shared key holds an older commit than the order allows".into());
        }
        Ok(())
    }

    /// Records the result of a recovery: commits that are missing are lost for good, and the set of
    /// column families is certain.
    pub fn discard_lost_commits(&mut self, ends: &[usize], found: &Contents) {
        if let Ok(affairs) = self.matching_families(ends, found).cloned() {
            self.families.resolve(affairs);
        }
        for (writer, &end) in ends.iter().enumerate() {
            for (number, attempt) in self.writers[writer].iter_mut().enumerate() {
                if number >= end {
                    attempt.outcome = CommitOutcome::Failed;
                } else if attempt.outcome != CommitOutcome::Failed {
                    attempt.outcome = CommitOutcome::Acked;
                }
                // The clock restarts at the next open.
                attempt.acked_us = u64::MAX;
            }
        }
    }
}

/// Compares two column families except for the shared key and describes the first difference.
pub fn compare_families(
    name: &str,
    expected: &BTreeMap<Bytes, Bytes>,
    found: &BTreeMap<Bytes, Bytes>,
) -> Result<(), String> {
    let show = |value: Option<&Bytes>| match value {
        None => "nothing".to_string(),
        Some(v) => format!("{} bytes \"{}\"", v.len(), v[..v.len().min(24)].escape_ascii()),
    };
    for key in expected.keys().chain(found.keys()).filter(|key| *key != SHARED_KEY) {
        let (want, got) = (expected.get(key), found.get(key));
        if want != got {
            return Err(format!(
                "column family {name}, key \"{}\": expected {}, found {}",
                key.escape_ascii(),
                show(want),
                show(got)
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "ledger_tests.rs"]
mod tests;
