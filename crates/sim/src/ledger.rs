//! The ledger: what writers attempted and what they were told, and whether a recovered database is
//! one that these answers allow. Knows nothing of the engine.
//!
//! Each writer owns its keys and writes the number of its attempt into a counter key with every
//! batch, so the recovered contents say how far each writer's commits go. From there everything
//! else is determined, and compared.
//!
//! 1. A writer's commits survive as a prefix of its attempts, whole, in all families alike.
//! 2. If a commit is there, every commit acknowledged before it began is there (one order, no
//!    holes).
//! 3. What must have survived (by durability and kind of crash) is there.
//! 4. A commit that failed, or was lost at an earlier recovery, is not there.

use crate::family_incarnations::{FamilyIncarnations, FamilySet, is_changing_family};
use crate::history::Bytes;
use crate::history_checker::HistoryChecker;
use std::collections::BTreeMap;

/// Contents of the families, by name.
pub type Contents = BTreeMap<String, BTreeMap<Bytes, Bytes>>;

/// The family of the counters; it always exists.
pub const COUNTER_FAMILY: &str = "default";
/// A key that every writer writes in every batch of a database that shares.
pub const SHARED_KEY: &[u8] = b"shared";

/// One element of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Put {
    /// Family, and which incarnation of it (families that stay are incarnation 0).
    pub family: (String, u32),
    /// Key.
    pub key: Bytes,
    /// Value, or a delete.
    pub value: Option<Bytes>,
}

/// What a writer was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitOutcome {
    /// Nothing yet.
    Pending,
    /// Success.
    Acked,
    /// `OutcomeUnknown`.
    Unknown,
    /// Another error: the commit is not there and never will be.
    Failed,
}

/// One commit.
#[derive(Clone, Debug)]
pub struct CommitAttempt {
    /// What it writes, the counter included.
    pub puts: Vec<Put>,
    /// What was answered.
    pub outcome: CommitOutcome,
    /// Whether it must survive a power cut.
    pub durable: bool,
    started: u64,
    ended: u64,
    /// Virtual time of the acknowledgement.
    pub acked_us: u64,
}

/// Which survivors a crash owes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequiredCommits {
    /// Everything acknowledged (the process died, or the database was closed).
    Acked,
    /// What was durable (the power failed); and what was acknowledged before this virtual time.
    Durable {
        /// Zero if only durable commits count.
        before_us: u64,
    },
}

/// All writers.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    writers: Vec<Vec<CommitAttempt>>,
    clock: u64,
    /// The families that come and go. Only writer 0 changes them and writes to them.
    pub families: FamilyIncarnations,
    /// What lives remember of each other beside it.
    pub history: HistoryChecker,
}

/// The counter key of a writer.
pub fn counter_key(writer: usize) -> Bytes {
    format!("n/{writer}").into_bytes()
}

impl Ledger {
    /// A ledger for that many writers.
    pub fn new(writers: usize) -> Self {
        Ledger { writers: vec![Vec::new(); writers], ..Ledger::default() }
    }
    /// The number of a writer's next attempt.
    pub fn next_attempt(&self, writer: usize) -> usize {
        self.writers[writer].len()
    }
    /// How many attempts there were.
    pub fn len(&self) -> usize {
        self.writers.iter().map(Vec::len).sum()
    }
    /// Whether nobody attempted anything.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// How many were acknowledged.
    pub fn acked_count(&self) -> usize {
        self.writers.iter().flatten().filter(|a| a.outcome == CommitOutcome::Acked).count()
    }

    /// A writer starts a commit.
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

    /// What it writes.
    pub fn puts(&self, writer: usize, number: usize) -> &[Put] {
        &self.writers[writer][number].puts
    }

    /// It was told something.
    pub fn end_commit(
        &mut self,
        writer: usize,
        number: usize,
        told: CommitOutcome,
        durable: bool,
        now_us: u64,
    ) {
        self.clock += 1;
        let attempt = &mut self.writers[writer][number];
        attempt.outcome = told;
        attempt.durable = durable && told == CommitOutcome::Acked;
        attempt.ended = self.clock;
        attempt.acked_us = now_us;
    }

    /// A moment, for [`Ledger::synced`].
    pub fn advance_clock(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// A sync that began at `moment` succeeded: everything acknowledged before is durable.
    pub fn mark_synced(&mut self, moment: u64) {
        for attempt in self.writers.iter_mut().flatten() {
            attempt.durable |= attempt.outcome == CommitOutcome::Acked && attempt.ended < moment;
        }
    }

    /// The latest time of an acknowledgement whose time counts.
    pub fn newest_ack_us(&self) -> u64 {
        let times = self
            .writers
            .iter()
            .flatten()
            .filter(|a| a.outcome == CommitOutcome::Acked)
            .map(|a| a.acked_us);
        times.filter(|&us| us != u64::MAX).max().unwrap_or(0)
    }

    /// Checks recovered contents; on success returns how far each writer's commits go (the number
    /// of commits).
    pub fn check_recovered(
        &self,
        found: &Contents,
        owed: RequiredCommits,
    ) -> Result<Vec<usize>, String> {
        let mut ends = Vec::new();
        for writer in 0..self.writers.len() {
            ends.push(self.commits_found(writer, found)?);
        }
        self.check_required(&ends, owed)?;
        self.check_order(&ends)?;
        self.check_contents(&ends, found)?;
        Ok(ends)
    }

    /// How many of a writer's attempts the counter says are there.
    fn commits_found(&self, writer: usize, found: &Contents) -> Result<usize, String> {
        let home = found.get(COUNTER_FAMILY).ok_or("the default family is missing")?;
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

    fn check_required(&self, ends: &[usize], owed: RequiredCommits) -> Result<(), String> {
        for (writer, attempts) in self.writers.iter().enumerate() {
            let missing = attempts.iter().enumerate().skip(ends[writer]).find(|(_, a)| {
                let due = match owed {
                    RequiredCommits::Acked => true,
                    RequiredCommits::Durable { before_us } => a.durable || a.acked_us < before_us,
                };
                a.outcome == CommitOutcome::Acked && due
            });
            if let Some((number, attempt)) = missing {
                return Err(format!(
                    "writer {writer}: commit {number} was acknowledged{} and is lost (found {} commits of {})",
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
                "a hole: a commit begun at {started} is there, one acknowledged before, at {ended}, is not"
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
            return Err(format!("family {name} is missing"));
        }
        self.matching_families(ends, found)?;
        self.check_shared(ends, found)
    }

    /// The possible state of the changing families that was found; if none was, why the first is
    /// not the one.
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
            return Err(format!("family {name} is there although it was dropped"));
        }
        for (name, incarnation) in affairs {
            let map = found
                .get(name)
                .ok_or_else(|| format!("family {name} was made and is not there"))?;
            let after = self.families.origin(*incarnation).map_or(0, |o| o.after);
            let acked = |a: &CommitAttempt| a.outcome == CommitOutcome::Acked;
            if self.writers[0].iter().take(after).skip(ends[0]).any(acked) {
                return Err(format!(
                    "family {name} is there, and a commit acknowledged before it was made is not"
                ));
            }
            compare_families(name, &self.incarnation_contents(*incarnation, ends[0]), map)?;
        }
        Ok(())
    }

    /// The contents of an incarnation after the first `end` attempts of writer 0.
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

    /// The shared key holds the last commit of some writer, the same in all families, and none
    /// began after that one had ended.
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
                _ => Err(format!("families disagree about the shared key: {values:?}")),
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

    /// After a recovery: what is not there is gone for ever, and a family is there or is not.
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
                // The clock of the next life starts again.
                attempt.acked_us = u64::MAX;
            }
        }
    }
}

/// Compares two families but for the shared key; the first difference in words.
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
                "family {name}, key \"{}\": expected {}, found {}",
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
