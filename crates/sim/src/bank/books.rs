//! The books of the bank: what each transaction did and was told, and whether contents are those of a moment that these answers
//! allow. Knows nothing of the engine.
//!
//! Every transaction writes its writer's number into a counter in every family, so contents say how far each writer's commits
//! go. What it changes of what all share (accounts, tickets) it has read before, so each change names the one before it: the
//! changes of an item are a chain, and a set of commits that are there has one outcome.
//!
//! 1. The counters of a writer are the same in all families, and never those of a commit that failed.
//! 2. Of every item the changes that are there are an unbroken chain from its beginning: nothing lost between, nothing forked.
//! 3. The contents are exactly what the commits that are there make, in every family: no half of one, nothing taken back.
//! 4. If a commit is there, every one acknowledged is there that is before it in the order of commits, or was before it began.
//! 5. Of any two moments seen, by readers or after a crash, one has all that the other has (no long fork).
//! 6. No money is made or lost; each ticket is in one family.

use crate::history::Bytes;
use crate::ledger::{Contents, Owed, Told, compare};
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
pub type Id = (usize, usize);

/// What several writers change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Item {
    /// An account: family, number.
    Account(usize, u8),
    /// A ticket.
    Ticket(u8),
}

impl Item {
    /// Under which key it lies.
    pub fn key(self) -> Bytes {
        match self {
            Item::Account(_, n) => format!("a/{n}").into_bytes(),
            Item::Ticket(n) => format!("t/{n}").into_bytes(),
        }
    }
}

/// The counter of a writer, in every family.
pub fn counter(writer: usize) -> Bytes {
    format!("n/{writer}").into_bytes()
}

/// Where a writer notes a commit.
pub fn journal(writer: usize, number: usize) -> Bytes {
    format!("j/{writer}/{number:05}").into_bytes()
}

/// The value of an item: who wrote it, its amount, and what makes it longer.
pub fn value(id: Id, amount: i64, pad: usize) -> Bytes {
    let mut text = format!("{} {} {amount} ", id.0, id.1).into_bytes();
    text.resize(text.len() + pad, b'.');
    text
}

/// Who wrote a value, and its amount.
pub fn parse(value: &[u8]) -> Result<(Id, i64), String> {
    let text = String::from_utf8_lossy(value);
    let mut words = text.split(' ');
    let mut next = || words.next().and_then(|w| w.parse::<i64>().ok());
    match (next(), next(), next()) {
        (Some(w), Some(n), Some(amount)) if w >= 0 && n >= 0 => Ok(((w as usize, n as usize), amount)),
        _ => Err(format!("a value that nobody committed: \"{}\"", value.escape_ascii())),
    }
}

/// What an attempt makes of an item.
#[derive(Clone, Debug)]
pub struct Change {
    /// Which.
    pub item: Item,
    /// Who had changed it last; nobody: it was not there.
    pub before: Option<Id>,
    /// Where it is now.
    pub family: usize,
    /// Its value.
    pub value: Bytes,
}

/// What an attempt does to its writer's own keys.
#[derive(Clone, Debug)]
pub enum Own {
    /// Sets one.
    Put(usize, Bytes, Bytes),
    /// Removes a range, its end excluded.
    Erase(usize, Bytes, Bytes),
}

/// What an attempt writes, but for the counters.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    /// Of what is shared.
    pub changes: Vec<Change>,
    /// Of what is the writer's own.
    pub own: Vec<Own>,
}

impl Draft {
    /// Changes an item; once more changes the same change.
    pub fn change(&mut self, item: Item, before: Id, me: Id, family: usize, value: Bytes) {
        match self.changes.iter_mut().find(|c| c.item == item) {
            Some(change) => (change.family, change.value) = (family, value),
            None => {
                let before = (before != me).then_some(before);
                self.changes.push(Change { item, before, family, value });
            }
        }
    }
}

#[derive(Debug)]
struct Attempt {
    draft: Draft,
    told: Told,
    /// Its place in the order of commits, if it was told.
    seq: Option<u64>,
    durable: bool,
    started: u64,
    ended: u64,
    acked_us: u64,
}

/// All writers.
#[derive(Debug, Default)]
pub struct Books {
    writers: Vec<Vec<Attempt>>,
    clock: u64,
    /// Moments seen in this life.
    seen: Vec<Vec<usize>>,
}

/// Whether one has all that the other has.
fn comparable(a: &[usize], b: &[usize]) -> bool {
    let le = |a: &[usize], b: &[usize]| a.iter().zip(b).all(|(x, y)| x <= y);
    le(a, b) || le(b, a)
}

impl Books {
    /// For so many writers.
    pub fn new(writers: usize) -> Books {
        Books { writers: (0..writers).map(|_| Vec::new()).collect(), ..Books::default() }
    }
    /// The number of a writer's next attempt.
    pub fn next(&self, writer: usize) -> usize {
        self.writers[writer].len()
    }
    /// A writer asks for a commit.
    pub fn begin(&mut self, writer: usize, draft: Draft) -> usize {
        self.clock += 1;
        let (told, seq, started) = (Told::Pending, None, self.clock);
        let attempt = Attempt { draft, told, seq, durable: false, started, ended: 0, acked_us: 0 };
        self.writers[writer].push(attempt);
        self.writers[writer].len() - 1
    }
    /// It was answered.
    pub fn end(
        &mut self,
        (writer, number): Id,
        (told, seq): (Told, Option<u64>),
        durable: bool,
        now_us: u64,
    ) {
        self.clock += 1;
        let ended = self.clock;
        let attempt = &mut self.writers[writer][number];
        *attempt = Attempt {
            told,
            seq,
            durable: durable && told == Told::Acked,
            ended,
            acked_us: now_us,
            draft: std::mem::take(&mut attempt.draft),
            ..*attempt
        };
    }
    /// A moment, for [`Books::synced`].
    pub fn moment(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }
    /// A sync that began at `moment` succeeded.
    pub fn synced(&mut self, moment: u64) {
        for a in self.writers.iter_mut().flatten() {
            a.durable |= a.told == Told::Acked && a.ended < moment;
        }
    }
    /// The latest time of an acknowledgement whose time counts.
    pub fn newest_ack_us(&self) -> u64 {
        let times = self.writers.iter().flatten().filter(|a| a.told == Told::Acked).map(|a| a.acked_us);
        times.filter(|us| *us != u64::MAX).max().unwrap_or(0)
    }
    /// How far each writer's commits were acknowledged.
    pub fn acked(&self) -> Vec<usize> {
        let last = |all: &Vec<Attempt>| all.iter().rposition(|a| a.told == Told::Acked).map_or(0, |n| n + 1);
        self.writers.iter().map(last).collect()
    }
    /// How many were acknowledged.
    pub fn count(&self) -> usize {
        self.writers.iter().flatten().filter(|a| a.told == Told::Acked).count()
    }

    /// A reader saw these contents at one moment, which is not before `least` was acknowledged.
    ///
    /// # Errors
    /// There is no such moment.
    pub fn see(&mut self, found: &Contents, least: &[usize]) -> Result<(), String> {
        let ends = self.check_moment(found)?;
        if let Some(w) = (0..ends.len()).find(|w| ends[*w] < least[*w]) {
            return Err(format!("a stale snapshot: {ends:?} of writer {w}, acknowledged {least:?}"));
        }
        self.seen.push(ends);
        Ok(())
    }

    /// Checks recovered contents; what is not there is gone for ever, and what was seen is of the past.
    ///
    /// # Errors
    /// A promise was broken.
    pub fn recover(&mut self, found: &Contents, owed: Owed) -> Result<(), String> {
        let ends = self.check_moment(found)?;
        for (writer, attempts) in self.writers.iter().enumerate() {
            let due = |a: &Attempt| match owed {
                Owed::Acked => true,
                Owed::Durable { before_us } => a.durable || a.acked_us < before_us,
            };
            let missing = attempts.iter().skip(ends[writer]).find(|a| a.told == Told::Acked && due(a));
            if let Some(attempt) = missing {
                return Err(format!("writer {writer}: acknowledged and lost (found {ends:?}): {attempt:?}"));
            }
        }
        for (attempts, end) in self.writers.iter_mut().zip(&ends) {
            for (number, attempt) in attempts.iter_mut().enumerate() {
                attempt.told = match attempt.told {
                    Told::Failed => Told::Failed,
                    _ if number < *end => Told::Acked,
                    _ => Told::Failed,
                };
                // The clock of the next life starts again.
                attempt.acked_us = u64::MAX;
            }
        }
        self.seen.clear();
        Ok(())
    }

    /// Contents of one moment: how far each writer's commits go there.
    fn check_moment(&self, found: &Contents) -> Result<Vec<usize>, String> {
        let ends: Vec<usize> =
            (0..self.writers.len()).map(|w| self.end_of(w, found)).collect::<Result<_, _>>()?;
        self.check_order(&ends)?;
        let expected = self.expected(&ends)?;
        let empty = BTreeMap::new();
        for name in FAMILIES {
            let map = found.get(name).unwrap_or(&empty);
            compare(name, &expected[name], map).map_err(|e| format!("of the moment {ends:?}: {e}"))?;
        }
        check_sums(found)?;
        if let Some(other) = self.seen.iter().find(|other| !comparable(other, &ends)) {
            return Err(format!("a long fork: {other:?} and {ends:?} were both seen"));
        }
        Ok(ends)
    }

    fn end_of(&self, writer: usize, found: &Contents) -> Result<usize, String> {
        let mut counters: Vec<_> =
            FAMILIES.map(|name| found.get(name).and_then(|m| m.get(&counter(writer)))).to_vec();
        counters.dedup();
        let [counter] = counters[..] else {
            return Err(format!("families disagree about writer {writer}: {counters:?}"));
        };
        let Some(text) = counter else { return Ok(0) };
        let number: Option<usize> = std::str::from_utf8(text).ok().and_then(|t| t.parse().ok());
        match number.and_then(|n| Some((n, self.writers[writer].get(n)?))) {
            None => Err(format!("writer {writer}: commit {} was never asked for", text.escape_ascii())),
            Some((n, a)) if a.told == Told::Failed => {
                Err(format!("writer {writer}: commit {n} is there and failed, or was lost before"))
            }
            Some((n, _)) => Ok(n + 1),
        }
    }

    fn there(&self, ends: &[usize]) -> impl Iterator<Item = (Id, &Attempt)> {
        let ends = ends.to_vec();
        self.writers.iter().enumerate().flat_map(move |(w, all)| {
            let mine = all[..ends[w]].iter().enumerate().filter(|(_, a)| a.told != Told::Failed);
            mine.map(move |(n, a)| ((w, n), a))
        })
    }

    fn check_order(&self, ends: &[usize]) -> Result<(), String> {
        let newest = self.there(ends).map(|(_, a)| a.started).max();
        let absent = || self.writers.iter().zip(ends).flat_map(|(all, end)| &all[*end..]);
        let oldest = absent().filter(|a| a.told == Told::Acked).map(|a| a.ended).min();
        let last = self.there(ends).filter_map(|(_, a)| a.seq).max();
        let missing = absent().filter(|a| a.told == Told::Acked).filter_map(|a| a.seq).min();
        if let (Some(last), Some(missing)) = (last, missing)
            && last > missing
        {
            return Err(format!("a hole in {ends:?}: commit {last} is there, commit {missing} is not"));
        }
        match (newest, oldest) {
            (Some(started), Some(ended)) if started > ended => Err(format!(
                "a hole in {ends:?}: a commit begun at {started} is there, one answered at {ended} is not"
            )),
            _ => Ok(()),
        }
    }

    /// What the commits that are there make.
    fn expected(&self, ends: &[usize]) -> Result<Contents, String> {
        let mut all: Contents = FAMILIES.map(|name| (name.to_string(), BTreeMap::new())).into();
        let mut chains: BTreeMap<Item, BTreeMap<Option<Id>, (Id, &Change)>> = BTreeMap::new();
        let mut counts: BTreeMap<Item, usize> = BTreeMap::new();
        for (id, attempt) in self.there(ends) {
            for change in &attempt.draft.changes {
                *counts.entry(change.item).or_default() += 1;
                let chain = chains.entry(change.item).or_default();
                if let Some((other, _)) = chain.insert(change.before, (id, change)) {
                    return Err(format!("a lost update: {other:?} and {id:?} both replaced {change:?}"));
                }
            }
            for own in &attempt.draft.own {
                match own {
                    Own::Put(f, key, value) => {
                        all.get_mut(FAMILIES[*f]).map(|m| m.insert(key.clone(), value.clone()));
                    }
                    Own::Erase(f, from, to) => {
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
                all.get_mut(FAMILIES[change.family]).map(|m| m.insert(item.key(), change.value.clone()));
            }
        }
        for (w, end) in ends.iter().enumerate().filter(|(_, end)| **end > 0) {
            let number = (end - 1).to_string().into_bytes();
            all.values_mut().for_each(|m| drop(m.insert(counter(w), number.clone())));
        }
        Ok(all)
    }
}

/// No money is made or lost, and each ticket is in one family; or the bank was never opened.
fn check_sums(found: &Contents) -> Result<(), String> {
    let (mut sum, mut accounts, mut tickets) = (0, 0, BTreeMap::<&[u8], BTreeSet<&str>>::new());
    for (name, map) in found {
        for (key, value) in map {
            if key.starts_with(b"a/") {
                (sum, accounts) = (sum + parse(value)?.1, accounts + 1);
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
        return Err(format!("{accounts} accounts hold {sum}, and not {all} hold {}", all * OPENING));
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
