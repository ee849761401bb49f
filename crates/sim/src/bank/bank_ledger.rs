//! The bank's ledger: what each transaction wrote and how its commit ended. Decides whether the
//! contents of the database are those of some point in the commit order that these answers allow.
//! Uses nothing of the engine.
//!
//! Every transaction writes its writer's counter in every column family, so the contents show how
//! far each writer's commits reach. A transaction reads every shared item (account, ticket) before
//! it changes it, so each change names the one it replaces: the changes of one item form a chain,
//! and a given set of commits has exactly one result.
//!
//! 1. The counters of a writer are equal in all column families and never belong to a commit that
//!    failed.
//! 2. The changes found of each item form an unbroken chain from its first one: nothing is lost in
//!    between, and nothing forks.
//! 3. The contents are exactly what the commits found produce, in every column family: no half of a
//!    commit, and nothing that was rolled back.
//! 4. If a commit is there, so is every acknowledged commit that precedes it in commit order or was
//!    acknowledged before it began.
//! 5. Of any two states observed, by readers or after a crash, one contains all commits of the
//!    other (no long fork).
//! 6. The sum over all accounts is constant; each ticket is in exactly one column family.

use crate::history::Bytes;
use crate::ledger::{CommitOutcome, Contents, RequiredCommits, compare_families};
use std::collections::{BTreeMap, BTreeSet};

/// Names of the column families.
pub const FAMILIES: [&str; 3] = ["default", "a", "b"];
/// Number of accounts in each column family.
pub const ACCOUNTS: u8 = 4;
/// Initial balance of each account.
pub const OPENING: i64 = 100;
/// Number of tickets, which move between column families.
pub const TICKETS: u8 = 4;

/// Identifies a commit: writer and attempt number.
pub type CommitId = (usize, usize);

/// An item that several writers change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BankItem {
    /// An account: column family and number.
    Account(usize, u8),
    /// A ticket.
    Ticket(u8),
}

impl BankItem {
    /// Returns the key of the item.
    pub fn key(self) -> Bytes {
        match self {
            BankItem::Account(_, n) => format!("a/{n}").into_bytes(),
            BankItem::Ticket(n) => format!("t/{n}").into_bytes(),
        }
    }
}

/// Returns the key of the writer's counter, the same in every column family.
pub fn counter_key(writer: usize) -> Bytes {
    format!("n/{writer}").into_bytes()
}

/// Returns the key of the writer's journal entry for an attempt.
pub fn journal_key(writer: usize, number: usize) -> Bytes {
    format!("j/{writer}/{number:05}").into_bytes()
}

/// Encodes an item's value: the commit that wrote it, the amount and `pad` bytes of filler.
pub fn encode_value(id: CommitId, amount: i64, pad: usize) -> Bytes {
    let mut text = format!("{} {} {amount} ", id.0, id.1).into_bytes();
    text.resize(text.len() + pad, b'.');
    text
}

/// Decodes a value into the commit that wrote it and its amount.
pub fn parse_value(value: &[u8]) -> Result<(CommitId, i64), String> {
    let text = String::from_utf8_lossy(value);
    let mut words = text.split(' ');
    let mut next = || words.next().and_then(|w| w.parse::<i64>().ok());
    match (next(), next(), next()) {
        (Some(w), Some(n), Some(amount)) if w >= 0 && n >= 0 => {
            Ok(((w as usize, n as usize), amount))
        }
        _ => Err(format!("a value that no client wrote: \"{}\"", value.escape_ascii())),
    }
}

/// A change of one shared item.
#[derive(Clone, Debug)]
pub struct ItemChange {
    /// Item that is changed.
    pub item: BankItem,
    /// Commit that changed it last; `None` if the item did not exist.
    pub previous: Option<CommitId>,
    /// Column family that holds the item afterwards.
    pub family: usize,
    /// New value.
    pub value: Bytes,
}

/// A write to a key that only this writer uses.
#[derive(Clone, Debug)]
pub enum PrivateWrite {
    /// Writes a key.
    Put(usize, Bytes, Bytes),
    /// Deletes a range, end exclusive.
    DeleteRange(usize, Bytes, Bytes),
}

/// All writes of an attempt except the counters.
#[derive(Clone, Debug, Default)]
pub struct AttemptWrites {
    /// Changes of shared items.
    pub changes: Vec<ItemChange>,
    /// Writes to the writer's own keys.
    pub private: Vec<PrivateWrite>,
}

impl AttemptWrites {
    /// Records a change of an item. A second change of the same item extends the first one.
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
    /// Sequence number of the commit, if it was returned.
    seq: Option<u64>,
    durable: bool,
    started: u64,
    ended: u64,
    acked_us: u64,
}

/// Attempts of all writers and the states observed.
#[derive(Debug, Default)]
pub struct BankLedger {
    writers: Vec<Vec<BankAttempt>>,
    clock: u64,
    /// States observed since the last open: commits per writer.
    observed: Vec<Vec<usize>>,
}

/// Returns true if one of the states contains all commits of the other.
fn are_comparable(a: &[usize], b: &[usize]) -> bool {
    let le = |a: &[usize], b: &[usize]| a.iter().zip(b).all(|(x, y)| x <= y);
    le(a, b) || le(b, a)
}

impl BankLedger {
    /// Creates the ledger for this number of writers.
    pub fn new(writers: usize) -> BankLedger {
        BankLedger { writers: (0..writers).map(|_| Vec::new()).collect(), ..BankLedger::default() }
    }
    /// Returns the number of the writer's next attempt.
    pub fn next_attempt(&self, writer: usize) -> usize {
        self.writers[writer].len()
    }
    /// Records that a writer is about to commit. Returns the attempt's number.
    pub fn begin_attempt(&mut self, writer: usize, draft: AttemptWrites) -> usize {
        self.clock += 1;
        let (outcome, seq, started) = (CommitOutcome::Pending, None, self.clock);
        let attempt = BankAttempt {
            writes: draft,
            outcome,
            seq,
            durable: false,
            started,
            ended: 0,
            acked_us: 0,
        };
        self.writers[writer].push(attempt);
        self.writers[writer].len() - 1
    }
    /// Records how the commit ended.
    pub fn end_attempt(
        &mut self,
        (writer, number): CommitId,
        (outcome, seq): (CommitOutcome, Option<u64>),
        durable: bool,
        now_us: u64,
    ) {
        self.clock += 1;
        let ended = self.clock;
        let attempt = &mut self.writers[writer][number];
        *attempt = BankAttempt {
            outcome,
            seq,
            durable: durable && outcome == CommitOutcome::Acked,
            ended,
            acked_us: now_us,
            writes: std::mem::take(&mut attempt.writes),
            ..*attempt
        };
    }
    /// Advances the logical clock and returns its time, for [`BankLedger::mark_synced`].
    pub fn advance_clock(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }
    /// Records a successful sync that began at logical time `moment`.
    pub fn mark_synced(&mut self, moment: u64) {
        for a in self.writers.iter_mut().flatten() {
            a.durable |= a.outcome == CommitOutcome::Acked && a.ended < moment;
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
        times.filter(|us| *us != u64::MAX).max().unwrap_or(0)
    }
    /// Returns, for each writer, the length of its acknowledged prefix.
    pub fn acked_prefixes(&self) -> Vec<usize> {
        let last = |all: &Vec<BankAttempt>| {
            all.iter().rposition(|a| a.outcome == CommitOutcome::Acked).map_or(0, |n| n + 1)
        };
        self.writers.iter().map(last).collect()
    }
    /// Returns the number of acknowledged commits.
    pub fn acked_count(&self) -> usize {
        self.writers.iter().flatten().filter(|a| a.outcome == CommitOutcome::Acked).count()
    }

    /// Checks contents that a reader saw in one snapshot, taken after `least` was acknowledged.
    ///
    /// # Errors
    /// No point in the commit order has these contents.
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

    /// Checks recovered contents. Commits that are missing from them count as lost for good, and
    /// states observed before belong to the past.
    ///
    /// # Errors
    /// A guarantee was broken.
    pub fn check_recovered(
        &mut self,
        found: &Contents,
        required: RequiredCommits,
    ) -> Result<(), String> {
        let ends = self.check_contents(found)?;
        for (writer, attempts) in self.writers.iter().enumerate() {
            let due = |a: &BankAttempt| match required {
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
                // The clock restarts at the next open.
                attempt.acked_us = u64::MAX;
            }
        }
        self.observed.clear();
        Ok(())
    }

    /// Checks the contents of one snapshot. Returns the number of each writer's commits in it.
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
                .map_err(|e| format!("in the state {ends:?}: {e}"))?;
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
            return Err(format!("column families disagree about writer {writer}: {counters:?}"));
        };
        let Some(text) = counter else { return Ok(0) };
        let number: Option<usize> = std::str::from_utf8(text).ok().and_then(|t| t.parse().ok());
        match number.and_then(|n| Some((n, self.writers[writer].get(n)?))) {
            None => {
                Err(format!("writer {writer}: commit {} was never attempted", text.escape_ascii()))
            }
            Some((n, a)) if a.outcome == CommitOutcome::Failed => Err(format!(
                "writer {writer}: commit {n} is there, but had failed or been lost before"
            )),
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
                "a hole in {ends:?}: a commit begun at {started} is there, one acknowledged at \
                 {ended} is not"
            )),
            _ => Ok(()),
        }
    }

    /// Returns the contents that the surviving commits produce.
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

/// Checks that the sum over all accounts is the opening sum and that each ticket is in one column
/// family. A bank whose accounts were never opened also passes.
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
            "{accounts} accounts hold {sum}; expected {all} accounts with {}",
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
