//! The books of the bank: what each transaction did and was told, and whether contents are those of
//! a moment that these answers allow. Knows nothing of the engine.
//!
//! Every transaction writes its writer's number into a counter in every family, so contents say how
//! far each writer's commits go. What it changes of what all share (accounts, tickets) it has read
//! before, so each change names the one before it: the changes of an item are a chain, and a set of
//! commits that are there has one outcome.
//!
//! 1. The counters of a writer are the same in all families, and never those of a commit that
//!    failed.
//! 2. Of every item the changes that are there are an unbroken chain from its beginning: nothing
//!    lost between, nothing forked.
//! 3. The contents are exactly what the commits that are there make, in every family: no half of
//!    one, nothing taken back.
//! 4. If a commit is there, every one acknowledged is there that is before it in the order of
//!    commits, or was before it began.
//! 5. Of any two moments seen, by readers or after a crash, one has all that the other has (no long
//!    fork).
//! 6. No money is made or lost; each ticket is in one family.

use crate::history::Bytes;
use crate::ledger::{CommitOutcome, Contents, RequiredCommits, compare_families};
use std::collections::{BTreeMap, BTreeSet};

/// The families.
pub const FAMILIES: [&str; 3] = ["default", "a", "b"];
/// Accounts of each family, and what is in each at first.
pub const ACCOUNTS: u8 = 4;
/// What is in each at first.
pub const OPENING: i64 = 100;
/// Tickets that wander from family to family.
pub const TICKETS: u8 = 4;

/// A commit: writer and number.
pub type CommitId = (usize, usize);

/// What several writers change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BankItem {
    /// An account: family, number.
    Account(usize, u8),
    /// A ticket.
    Ticket(u8),
}

impl BankItem {
    /// Under which key it lies.
    pub fn key(self) -> Bytes {
        match self {
            BankItem::Account(_, n) => format!("a/{n}").into_bytes(),
            BankItem::Ticket(n) => format!("t/{n}").into_bytes(),
        }
    }
}

/// The counter of a writer, in every family.
pub fn counter_key(writer: usize) -> Bytes {
    format!("n/{writer}").into_bytes()
}

/// Where a writer notes a commit.
pub fn journal_key(writer: usize, number: usize) -> Bytes {
    format!("j/{writer}/{number:05}").into_bytes()
}

/// The value of an item: who wrote it, its amount, and what makes it longer.
pub fn encode_value(id: CommitId, amount: i64, pad: usize) -> Bytes {
    let mut text = format!("{} {} {amount} ", id.0, id.1).into_bytes();
    text.resize(text.len() + pad, b'.');
    text
}

/// Who wrote a value, and its amount.
pub fn parse_value(value: &[u8]) -> Result<(CommitId, i64), String> {
    let text = String::from_utf8_lossy(value);
    let mut words = text.split(' ');
    let mut next = || words.next().and_then(|w| w.parse::<i64>().ok());
    match (next(), next(), next()) {
        (Some(w), Some(n), Some(amount)) if w >= 0 && n >= 0 => {
            Ok(((w as usize, n as usize), amount))
        }
        _ => Err(format!("a value that nobody committed: \"{}\"", value.escape_ascii())),
    }
}

/// What an attempt makes of an item.
#[derive(Clone, Debug)]
pub struct ItemChange {
    /// Which.
    pub item: BankItem,
    /// Who had changed it last; nobody: it was not there.
    pub previous: Option<CommitId>,
    /// Where it is now.
    pub family: usize,
    /// Its value.
    pub value: Bytes,
}

/// What an attempt does to its writer's own keys.
#[derive(Clone, Debug)]
pub enum PrivateWrite {
    /// Sets one.
    Put(usize, Bytes, Bytes),
    /// Removes a range, its end excluded.
    DeleteRange(usize, Bytes, Bytes),
}

/// What an attempt writes, but for the counters.
#[derive(Clone, Debug, Default)]
pub struct AttemptWrites {
    /// Of what is shared.
    pub changes: Vec<ItemChange>,
    /// Of what is the writer's own.
    pub private: Vec<PrivateWrite>,
}

impl AttemptWrites {
    /// Changes an item; once more changes the same change.
    pub fn record_change(
        &mut self,
        item: BankItem,
        before: CommitId,
        me: CommitId,
        family: usize,
        value: Bytes,
    ) {
        match self.changes.iter_mut().find(|c| c.item == item) {
            Some(change) => (change.family, change.value) = (family, value),
            None => {
                let before = (before != me).then_some(before);
                self.changes.push(ItemChange { item, previous: before, family, value });
            }
        }
    }
}

#[derive(Debug)]
struct BankAttempt {
    writes: AttemptWrites,
    outcome: CommitOutcome,
    /// Its place in the order of commits, if it was told.
    seq: Option<u64>,
    durable: bool,
    started: u64,
    ended: u64,
    acked_us: u64,
}

/// All writers.
#[derive(Debug, Default)]
pub struct BankLedger {
    writers: Vec<Vec<BankAttempt>>,
    clock: u64,
    /// Moments seen in this life.
    observed: Vec<Vec<usize>>,
}

/// Whether one has all that the other has.
fn are_comparable(a: &[usize], b: &[usize]) -> bool {
    let le = |a: &[usize], b: &[usize]| a.iter().zip(b).all(|(x, y)| x <= y);
    le(a, b) || le(b, a)
}

impl BankLedger {
    /// For so many writers.
    pub fn new(writers: usize) -> BankLedger {
        BankLedger { writers: (0..writers).map(|_| Vec::new()).collect(), ..BankLedger::default() }
    }
    /// The number of a writer's next attempt.
    pub fn next_attempt(&self, writer: usize) -> usize {
        self.writers[writer].len()
    }
    /// A writer asks for a commit.
    pub fn begin_attempt(&mut self, writer: usize, draft: AttemptWrites) -> usize {
        self.clock += 1;
        let (told, seq, started) = (CommitOutcome::Pending, None, self.clock);
        let attempt = BankAttempt {
            writes: draft,
            outcome: told,
            seq,
            durable: false,
            started,
            ended: 0,
            acked_us: 0,
        };
        self.writers[writer].push(attempt);
        self.writers[writer].len() - 1
    }
    /// It was answered.
    pub fn end_attempt(
        &mut self,
        (writer, number): CommitId,
        (told, seq): (CommitOutcome, Option<u64>),
        durable: bool,
        now_us: u64,
    ) {
        self.clock += 1;
        let ended = self.clock;
        let attempt = &mut self.writers[writer][number];
        *attempt = BankAttempt {
            outcome: told,
            seq,
            durable: durable && told == CommitOutcome::Acked,
            ended,
            acked_us: now_us,
            writes: std::mem::take(&mut attempt.writes),
            ..*attempt
        };
    }
    /// A moment, for [`BankLedger::synced`].
    pub fn advance_clock(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }
    /// A sync that began at `moment` succeeded.
    pub fn mark_synced(&mut self, moment: u64) {
        for a in self.writers.iter_mut().flatten() {
            a.durable |= a.outcome == CommitOutcome::Acked && a.ended < moment;
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
        times.filter(|us| *us != u64::MAX).max().unwrap_or(0)
    }
    /// How far each writer's commits were acknowledged.
    pub fn acked_prefixes(&self) -> Vec<usize> {
        let last = |all: &Vec<BankAttempt>| {
            all.iter().rposition(|a| a.outcome == CommitOutcome::Acked).map_or(0, |n| n + 1)
        };
        self.writers.iter().map(last).collect()
    }
    /// How many were acknowledged.
    pub fn acked_count(&self) -> usize {
        self.writers.iter().flatten().filter(|a| a.outcome == CommitOutcome::Acked).count()
    }

    /// A reader saw these contents at one moment, which is not before `least` was acknowledged.
    ///
    /// # Errors
    /// There is no such moment.
    pub fn check_read(&mut self, found: &Contents, least: &[usize]) -> Result<(), String> {
        let ends = self.check_contents(found)?;
        if let Some(w) = (0..ends.len()).find(|w| ends[*w] < least[*w]) {
            return Err(format!(
                "a stale snapshot: {ends:?} of writer {w}, acknowledged {least:?}"
            ));
        }
        self.observed.push(ends);
        Ok(())
    }

    /// Checks recovered contents; what is not there is gone for ever, and what was seen is of the
    /// past.
    ///
    /// # Errors
    /// A promise was broken.
    pub fn check_recovered(
        &mut self,
        found: &Contents,
        owed: RequiredCommits,
    ) -> Result<(), String> {
        let ends = self.check_contents(found)?;
        for (writer, attempts) in self.writers.iter().enumerate() {
            let due = |a: &BankAttempt| match owed {
                RequiredCommits::Acked => true,
                RequiredCommits::Durable { before_us } => a.durable || a.acked_us < before_us,
            };
            let missing = attempts
                .iter()
                .skip(ends[writer])
                .find(|a| a.outcome == CommitOutcome::Acked && due(a));
            if let Some(attempt) = missing {
                return Err(format!(
                    "writer {writer}: acknowledged and lost (found {ends:?}): {attempt:?}"
                ));
            }
        }
        for (attempts, end) in self.writers.iter_mut().zip(&ends) {
            for (number, attempt) in attempts.iter_mut().enumerate() {
                attempt.outcome = match attempt.outcome {
                    CommitOutcome::Failed => CommitOutcome::Failed,
                    _ if number < *end => CommitOutcome::Acked,
                    _ => CommitOutcome::Failed,
                };
                // The clock of the next life starts again.
                attempt.acked_us = u64::MAX;
            }
        }
        self.observed.clear();
        Ok(())
    }

    /// Contents of one moment: how far each writer's commits go there.
    fn check_contents(&self, found: &Contents) -> Result<Vec<usize>, String> {
        let ends: Vec<usize> = (0..self.writers.len())
            .map(|w| self.commits_found(w, found))
            .collect::<Result<_, _>>()?;
        self.check_order(&ends)?;
        let expected = self.expected_contents(&ends)?;
        let empty = BTreeMap::new();
        for name in FAMILIES {
            let map = found.get(name).unwrap_or(&empty);
            compare_families(name, &expected[name], map)
                .map_err(|e| format!("of the moment {ends:?}: {e}"))?;
        }
        check_balances(found)?;
        if let Some(other) = self.observed.iter().find(|other| !are_comparable(other, &ends)) {
            return Err(format!("a long fork: {other:?} and {ends:?} were both seen"));
        }
        Ok(ends)
    }

    fn commits_found(&self, writer: usize, found: &Contents) -> Result<usize, String> {
        let mut counters: Vec<_> =
            FAMILIES.map(|name| found.get(name).and_then(|m| m.get(&counter_key(writer)))).to_vec();
        counters.dedup();
        let [counter] = counters[..] else {
            return Err(format!("families disagree about writer {writer}: {counters:?}"));
        };
        let Some(text) = counter else { return Ok(0) };
        let number: Option<usize> = std::str::from_utf8(text).ok().and_then(|t| t.parse().ok());
        match number.and_then(|n| Some((n, self.writers[writer].get(n)?))) {
            None => {
                Err(format!("writer {writer}: commit {} was never asked for", text.escape_ascii()))
            }
            Some((n, a)) if a.outcome == CommitOutcome::Failed => {
                Err(format!("writer {writer}: commit {n} is there and failed, or was lost before"))
            }
            Some((n, _)) => Ok(n + 1),
        }
    }

    fn surviving_attempts(&self, ends: &[usize]) -> impl Iterator<Item = (CommitId, &BankAttempt)> {
        let ends = ends.to_vec();
        self.writers.iter().enumerate().flat_map(move |(w, all)| {
            let mine = all[..ends[w]]
                .iter()
                .enumerate()
                .filter(|(_, a)| a.outcome != CommitOutcome::Failed);
            mine.map(move |(n, a)| ((w, n), a))
        })
    }

    fn check_order(&self, ends: &[usize]) -> Result<(), String> {
        let newest = self.surviving_attempts(ends).map(|(_, a)| a.started).max();
        let absent = || self.writers.iter().zip(ends).flat_map(|(all, end)| &all[*end..]);
        let oldest = absent().filter(|a| a.outcome == CommitOutcome::Acked).map(|a| a.ended).min();
        let last = self.surviving_attempts(ends).filter_map(|(_, a)| a.seq).max();
        let missing =
            absent().filter(|a| a.outcome == CommitOutcome::Acked).filter_map(|a| a.seq).min();
        if let (Some(last), Some(missing)) = (last, missing)
            && last > missing
        {
            return Err(format!(
                "a hole in {ends:?}: commit {last} is there, commit {missing} is not"
            ));
        }
        match (newest, oldest) {
            (Some(started), Some(ended)) if started > ended => Err(format!(
                "a hole in {ends:?}: a commit begun at {started} is there, one answered at {ended} is not"
            )),
            _ => Ok(()),
        }
    }

    /// What the commits that are there make.
    fn expected_contents(&self, ends: &[usize]) -> Result<Contents, String> {
        let mut all: Contents = FAMILIES.map(|name| (name.to_string(), BTreeMap::new())).into();
        let mut chains: BTreeMap<BankItem, BTreeMap<Option<CommitId>, (CommitId, &ItemChange)>> =
            BTreeMap::new();
        let mut counts: BTreeMap<BankItem, usize> = BTreeMap::new();
        for (id, attempt) in self.surviving_attempts(ends) {
            for change in &attempt.writes.changes {
                *counts.entry(change.item).or_default() += 1;
                let chain = chains.entry(change.item).or_default();
                if let Some((other, _)) = chain.insert(change.previous, (id, change)) {
                    return Err(format!(
                        "a lost update: {other:?} and {id:?} both replaced {change:?}"
                    ));
                }
            }
            for own in &attempt.writes.private {
                match own {
                    PrivateWrite::Put(f, key, value) => {
                        all.get_mut(FAMILIES[*f]).map(|m| m.insert(key.clone(), value.clone()));
                    }
                    PrivateWrite::DeleteRange(f, from, to) => {
                        all.get_mut(FAMILIES[*f])
                            .into_iter()
                            .for_each(|m| m.retain(|k, _| k < from || k >= to));
                    }
                }
            }
        }
        for (item, chain) in &chains {
            let (mut at, mut steps, mut last) = (None, 0, None);
            while let Some((id, change)) = chain.get(&at) {
                (at, steps, last) = (Some(*id), steps + 1, Some(change));
            }
            if steps != counts[item] {
                return Err(format!("a hole in the chain of {item:?} in {ends:?} after {at:?}"));
            }
            if let Some(change) = last {
                all.get_mut(FAMILIES[change.family])
                    .map(|m| m.insert(item.key(), change.value.clone()));
            }
        }
        for (w, end) in ends.iter().enumerate().filter(|(_, end)| **end > 0) {
            let number = (end - 1).to_string().into_bytes();
            all.values_mut().for_each(|m| drop(m.insert(counter_key(w), number.clone())));
        }
        Ok(all)
    }
}

/// No money is made or lost, and each ticket is in one family; or the bank was never opened.
fn check_balances(found: &Contents) -> Result<(), String> {
    let (mut sum, mut accounts, mut tickets) = (0, 0, BTreeMap::<&[u8], BTreeSet<&str>>::new());
    for (name, map) in found {
        for (key, value) in map {
            if key.starts_with(b"a/") {
                (sum, accounts) = (sum + parse_value(value)?.1, accounts + 1);
            } else if key.starts_with(b"t/") {
                tickets.entry(key).or_default().insert(name);
            }
        }
    }
    let all = FAMILIES.len() as i64 * i64::from(ACCOUNTS);
    if accounts == 0 && tickets.is_empty() {
        return Ok(());
    }
    if (accounts, sum) != (all, all * OPENING) {
        return Err(format!(
            "{accounts} accounts hold {sum}, and not {all} hold {}",
            all * OPENING
        ));
    }
    match tickets.iter().find(|(_, places)| places.len() != 1) {
        Some((key, places)) => Err(format!("ticket {} is in {places:?}", key.escape_ascii())),
        None if tickets.len() != usize::from(TICKETS) => Err(format!("tickets: {tickets:?}")),
        None => Ok(()),
    }
}

#[cfg(test)]
#[path = "books_tests.rs"]
mod tests;
