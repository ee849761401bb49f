//! Finds anomalies in a history, by their definitions over dependencies (Adya; item and predicate reads told apart): `ww` to who
//! overwrote, `wr` to who read, `rw` from who read to who overwrote that, `rt` to who began after the answer.

use super::graph::Graph;
use super::history::{Did, End, History, Key, Read, Record, Version, Writers};
use super::precise;
use perigee::Isolation;
use std::collections::{BTreeMap, BTreeSet};

/// What may go wrong, by its usual name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Anomaly {
    /// Writes of two transactions stand in two orders.
    G0,
    /// Read what was never committed.
    G1a,
    /// Read what its writer overwrote itself.
    G1b,
    /// Two transactions read from each other.
    G1c,
    /// One scan saw a part of a commit.
    Torn,
    /// Saw a part of a commit, by two reads.
    Otv,
    /// Saw two moments: a circle with one `rw`.
    GSingle,
    /// Snapshots that are no prefixes of one order: two readers saw two commits in two orders.
    LongFork,
    /// Two transactions read a version and both replaced it.
    P4,
    /// Write skew over keys read by themselves.
    G2Item,
    /// Write skew over ranges.
    G2,
    /// Missed a commit that was answered before it began.
    Stale,
    /// In no order of real time.
    Strict,
    /// Did not read its own write, or what is there at the end is not what was written last.
    Broken,
    /// Written by somebody although it was locked, or read for update at a level that vouches for that.
    Guard,
    /// A conflict without a reason.
    FalseConflict,
}

use Anomaly::{
    Broken, FalseConflict, G0, G1a, G1b, G1c, G2, G2Item, GSingle, Guard, LongFork, Otv, P4, Stale, Strict,
    Torn,
};

/// What a level forbids.
pub fn forbidden(level: Isolation) -> &'static [Anomaly] {
    match level {
        Isolation::ReadUncommitted | Isolation::ReadCommitted => {
            &[G0, G1a, G1b, G1c, Torn, Stale, Broken, Guard, FalseConflict]
        }
        Isolation::RepeatableRead => &[
            G0,
            G1a,
            G1b,
            G1c,
            Torn,
            Otv,
            GSingle,
            LongFork,
            P4,
            G2Item,
            Stale,
            Broken,
            Guard,
            FalseConflict,
        ],
        Isolation::Snapshot => {
            &[G0, G1a, G1b, G1c, Torn, Otv, GSingle, LongFork, P4, Stale, Broken, Guard, FalseConflict]
        }
        Isolation::Serializable => {
            &[G0, G1a, G1b, G1c, Torn, Otv, GSingle, LongFork, P4, G2Item, G2, Stale, Strict, Broken, Guard]
        }
    }
}

/// What a level allows and a checker that looks must see in enough histories.
pub fn expected(level: Isolation) -> &'static [Anomaly] {
    match level {
        Isolation::ReadUncommitted | Isolation::ReadCommitted => &[Otv, GSingle, P4, G2Item, G2],
        Isolation::RepeatableRead => &[G2],
        Isolation::Snapshot => &[G2Item, G2],
        Isolation::Serializable => &[],
    }
}

/// The anomalies of a history, each with an example, by the level of the transaction that may blame the store for it.
pub type Findings = BTreeMap<(Isolation, Anomaly), String>;

/// The dependencies by kind.
pub struct Dependencies {
    levels: Vec<Isolation>,
    ww: Graph,
    wr: Graph,
    rw_item: Graph,
    rw_range: Graph,
    /// Began after the answer.
    pub rt: Graph,
}

impl Dependencies {
    /// Who overwrote and who read.
    pub fn dependent(&self) -> Graph {
        self.ww.with(&self.wr)
    }
    /// From readers of a level to who overwrote what they read.
    pub fn rw_from(&self, level: Isolation) -> Graph {
        self.rw_item.with(&self.rw_range).from(|i| self.levels[i] == level)
    }
}

/// What is known of a history at hand.
struct Known<'a> {
    h: &'a History,
    writers: Writers,
    /// What each transaction read of others.
    reads: Vec<Vec<Read>>,
}

/// Finds them all; and counts who was refused at serializable.
pub fn check(h: &History) -> (Findings, precise::Aborts) {
    let mut found = Findings::new();
    let reads = (0..h.records.len()).map(|i| h.reads(i)).collect();
    let known = Known { h, writers: writers(h), reads };
    known.reads_are_of_committed_writes(&mut found);
    own_writes_are_read(h, &mut found);
    known.orders_and_end_fit(&mut found);
    let d = known.dependencies();
    let levels: BTreeSet<Isolation> = d.levels.iter().copied().collect();
    known.circles(&d, &mut found);
    levels.iter().for_each(|level| known.circles_of(*level, &d, &mut found));
    known.lost_updates(&mut found);
    known.parts_of_commits(&mut found);
    known.guards(&mut found);
    if let Some(r) = precise::false_conflict(h) {
        note(&mut found, FalseConflict, r, || format!("{r:?}"));
    }
    let order = d.dependent().with(&d.rw_from(Isolation::Serializable)).with(&d.rt).closed();
    let aborts = precise::aborts(h, &known.writers, &known.reads, &order);
    (found, aborts)
}

fn note(found: &mut Findings, anomaly: Anomaly, r: &Record, example: impl FnOnce() -> String) {
    found.entry((r.level, anomaly)).or_insert_with(example);
}

fn writers(h: &History) -> Writers {
    let mut all = Writers::new();
    for (i, r) in h.records.iter().enumerate() {
        let last = r.last_writes();
        for (key, version) in r.ops.iter().filter_map(Did::write) {
            all.insert(version, (i, last.get(&key) == Some(&version)));
        }
    }
    all
}

fn own_writes_are_read(h: &History, found: &mut Findings) {
    for r in &h.records {
        for (at, did) in r.ops.iter().enumerate() {
            let seen = |version: Version| if h.erasures.contains(&version) { 0 } else { version };
            let own = r.own(at);
            let mine = |key: &Key| own.get(key).map(|(_, version)| seen(*version));
            let wrong = match did {
                Did::Read(key, version, _) => mine(key).is_some_and(|mine| mine != *version),
                Did::Scanned(from, to, all, _) => own.range(*from..*to).any(|(key, (_, version))| {
                    let there = all.iter().find(|(k, _)| k == key).map_or(0, |(_, v)| *v);
                    there != seen(*version)
                }),
                _ => false,
            };
            if wrong {
                note(found, Broken, r, || format!("{r:?} did not read its own write: {did:?}"));
            }
        }
    }
}

impl Known<'_> {
    fn writer(&self, version: Version) -> Option<usize> {
        self.writers.get(&version).map(|w| w.0)
    }

    /// (Also what a transaction has read that was refused in the end.)
    fn reads_are_of_committed_writes(&self, found: &mut Findings) {
        let h = self.h;
        for (i, r) in h.records.iter().enumerate() {
            for (key, version, _) in &self.reads[i] {
                let from = |w: usize| format!("{r:?} read {version} of {key} from {:?}", h.records[w]);
                match self.writers.get(version) {
                    None if *version == 0 => {}
                    None => {
                        note(found, G1a, r, || format!("{r:?} read {version} of {key}, which nobody wrote"))
                    }
                    Some((w, _)) if !h.records[*w].committed() => note(found, G1a, r, || from(*w)),
                    Some((w, false)) if *w != i => note(found, G1b, r, || from(*w)),
                    Some(_) => {}
                }
            }
        }
    }

    fn orders_and_end_fit(&self, found: &mut Findings) {
        let h = self.h;
        let Some(any) = h.records.first() else { return };
        let keys: BTreeSet<Key> = h.order.keys().chain(h.heard.keys()).chain(h.end.keys()).copied().collect();
        for key in keys {
            let order = h.order.get(&key).map_or(&[][..], |v| v);
            let puts: Vec<Version> =
                order.iter().map(|(_, v)| *v).filter(|v| !h.erasures.contains(v)).collect();
            let heard = h.heard.get(&key).cloned().unwrap_or_default();
            if puts != heard {
                note(found, Broken, any, || {
                    format!("key {key}: hooks heard {heard:?}, answered was {order:?}")
                });
            }
            let last = order.last().map(|(_, v)| *v).filter(|v| !h.erasures.contains(v));
            if h.end.get(&key).copied() != last {
                note(found, Broken, any, || {
                    format!("key {key} ends as {:?} after {order:?}", h.end.get(&key))
                });
            }
            let mut before: &[Version] = &[];
            for (_, version) in order {
                let Some(list) = h.lists.get(version) else { continue };
                let r = &h.records[self.writer(*version).unwrap_or(0)];
                if list.split_last().is_none_or(|(_, rest)| rest != before) {
                    note(found, P4, r, || format!("key {key}: {list:?} came after {before:?}"));
                }
                before = list;
            }
        }
    }

    fn dependencies(&self) -> Dependencies {
        let (h, n) = (self.h, self.h.records.len());
        let new = || Graph::new(n);
        let levels = h.records.iter().map(|r| r.level).collect();
        let mut d = Dependencies { levels, ww: new(), wr: new(), rw_item: new(), rw_range: new(), rt: new() };
        let mut next: BTreeMap<(Key, Version), Version> = BTreeMap::new();
        for (key, order) in &h.order {
            let mut before = 0;
            for (_, version) in order {
                next.insert((*key, before), *version);
                if let (Some(a), Some(b)) = (self.writer(before), self.writer(*version)) {
                    d.ww.add(a, b);
                }
                before = *version;
            }
        }
        for i in (0..n).filter(|i| h.records[*i].committed()) {
            for (key, version, by_range) in &self.reads[i] {
                if let Some(w) = self.writer(*version) {
                    d.wr.add(w, i);
                }
                // Of an intermediate version the next is unknown; that is an anomaly of its own.
                if let Some(w) = next.get(&(*key, *version)).and_then(|v| self.writer(*v)) {
                    let graph = if *by_range { &mut d.rw_range } else { &mut d.rw_item };
                    graph.add(i, w);
                }
            }
            for j in (0..n).filter(|j| h.records[*j].committed()) {
                if h.records[i].span.1 < h.records[j].span.0 {
                    d.rt.add(i, j);
                }
            }
        }
        d
    }

    fn show(&self, a: usize, b: usize) -> String {
        format!("{:?} and {:?}", self.h.records[a], self.h.records[b])
    }

    /// Circles that no level allows.
    fn circles(&self, d: &Dependencies, found: &mut Findings) {
        if let Some(i) = d.ww.clone().closed().circle() {
            note(found, G0, &self.h.records[i], || self.show(i, i));
        }
        if let Some(i) = d.dependent().closed().circle() {
            note(found, G1c, &self.h.records[i], || self.show(i, i));
        }
    }

    /// Circles over what transactions of one level have read: to others those of weaker levels are writers that read nothing.
    fn circles_of(&self, level: Isolation, d: &Dependencies, found: &mut Findings) {
        let dependent = d.dependent();
        let rw = d.rw_from(level);
        let in_time = dependent.with(&d.rt).closed();
        let items = dependent.with(&d.rw_item.from(|i| d.levels[i] == level)).closed();
        let all = dependent.with(&rw);
        let in_strict_time = all.with(&d.rt).closed();
        let all = all.closed();
        for (a, b) in rw.edges() {
            let r = &self.h.records[a];
            let by_item = d.rw_item.has(a, b);
            let before = (0..self.h.records.len()).filter(|c| d.rt.has(*c, a));
            if before.clone().any(|c| c == b || in_time.has(b, c)) {
                note(found, Stale, r, || self.show(a, b));
            } else if in_time.has(b, a) {
                note(found, GSingle, r, || self.show(a, b));
            } else if by_item && items.has(b, a) {
                note(found, G2Item, r, || self.show(a, b));
            } else if all.has(b, a) {
                note(found, G2, r, || self.show(a, b));
            }
        }
        // Over snapshots no two steps back in time follow each other but in write skew.
        let forward = dependent.with(&d.rt);
        if let Some(i) = forward.with(&forward.then(&rw)).closed().circle()
            && !found.contains_key(&(level, GSingle))
        {
            found.entry((level, LongFork)).or_insert_with(|| self.show(i, i));
        }
        if let Some(i) = in_strict_time.circle() {
            found.entry((level, Strict)).or_insert_with(|| self.show(i, i));
        }
    }

    /// The later of two commits that replaced a version which both had read.
    fn lost_updates(&self, found: &mut Findings) {
        let mut replaced: BTreeMap<(Key, Version), usize> = BTreeMap::new();
        for (i, r) in self.h.records.iter().enumerate().filter(|(_, r)| r.committed()) {
            let wrote = r.last_writes();
            let reads = self.reads[i].iter().filter(|(key, _, range)| !range && wrote.contains_key(key));
            for item in reads.map(|(key, version, _)| (*key, *version)).collect::<BTreeSet<_>>() {
                if let Some(other) = replaced.insert(item, i).filter(|o| *o != i) {
                    let later = if seq(r) > seq(&self.h.records[other]) { i } else { other };
                    note(found, P4, &self.h.records[later], || self.show(i, other));
                }
            }
        }
    }

    fn parts_of_commits(&self, found: &mut Findings) {
        let h = self.h;
        let mut place: BTreeMap<(Key, Version), usize> = BTreeMap::new();
        for (key, order) in &h.order {
            place.extend(order.iter().enumerate().map(|(at, (_, v))| ((*key, *v), at + 1)));
        }
        let at = |key: Key, version: Version| {
            if version == 0 { Some(0) } else { place.get(&(key, version)).copied() }
        };
        // Saw a commit of which another read, at the same time or not, saw less.
        let part = |i: usize, reads: &[Read]| {
            reads.iter().find_map(|(_, version, _)| {
                let (w, _) = self.writers.get(version).filter(|(w, _)| *w != i)?;
                let wrote = h.records[*w].last_writes();
                let less = |(key, seen, _): &&Read| {
                    let theirs = wrote.get(key).and_then(|v| at(*key, *v));
                    matches!((theirs, at(*key, *seen)), (Some(theirs), Some(seen)) if seen < theirs)
                };
                reads.iter().find(less).map(|_| *w)
            })
        };
        for (i, r) in h.records.iter().enumerate() {
            for at in (0..r.ops.len()).filter(|at| matches!(r.ops[*at], Did::Scanned(..))) {
                if let Some(w) = part(i, &h.read(r, at)) {
                    note(found, Torn, r, || format!("{r:?} of {:?}", h.records[w]));
                }
            }
            if let Some(w) = part(i, &self.reads[i]) {
                note(found, Otv, r, || format!("{r:?} of {:?}", h.records[w]));
            }
        }
    }

    /// Between a locked read and the commit of its reader nobody wrote who locks, and at levels that vouch for it nobody at all.
    fn guards(&self, found: &mut Findings) {
        let h = self.h;
        for (i, r) in h.records.iter().enumerate() {
            let End::Committed(commit) = r.end else { continue };
            if r.last_writes().is_empty() {
                continue;
            }
            for at in 0..r.ops.len() {
                let one_moment = r.level >= Isolation::RepeatableRead;
                let vouched = one_moment && r.level != Isolation::Serializable;
                let looks = match &r.ops[at] {
                    Did::Read(_, _, true) => true,
                    // At a level that reads one moment it may be older than the lock.
                    Did::Scanned(_, _, _, true) => !one_moment,
                    _ => false,
                };
                for (key, version, range) in h.read(r, at).into_iter().filter(|_| looks && r.keeps(at)) {
                    let order = h.order.get(&key).map_or(&[][..], |v| v);
                    let mut behind = order.iter().skip_while(|(_, v)| version != 0 && *v != version);
                    let next = behind.nth(usize::from(version != 0));
                    let rival =
                        next.filter(|(seq, _)| *seq < commit).and_then(|(_, v)| Some((*v, self.writer(*v)?)));
                    let Some((v, w)) = rival.filter(|(_, w)| *w != i) else { continue };
                    // A gap keeps out who inserts, not who removes.
                    let kept_out = h.records[w].locks && !(range && h.erasures.contains(&v));
                    if kept_out || (vouched && !range) {
                        note(found, Guard, r, || self.show(i, w));
                    }
                }
            }
        }
    }
}

fn seq(r: &Record) -> u64 {
    if let End::Committed(seq) = r.end { seq } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::super::history::Record;
    use super::*;

    fn record(span: (u64, u64), ops: &[Did]) -> Record {
        let (level, end) = (Isolation::Snapshot, End::Committed(0));
        Record { level, locks: false, snapshot: Some(0), ops: ops.to_vec(), end, span }
    }
    fn history(records: Vec<Record>, order: &[(Key, &[Version])]) -> History {
        let heard: BTreeMap<Key, Vec<Version>> = order.iter().map(|(k, v)| (*k, v.to_vec())).collect();
        let end = heard.iter().filter_map(|(k, v)| Some((*k, *v.last()?))).collect();
        let numbered = |v: &Vec<Version>| v.iter().map(|v| (u64::from(*v), *v)).collect();
        let order = heard.iter().map(|(k, v)| (*k, numbered(v))).collect();
        History { records, order, heard, end, ..History::default() }
    }
    fn has(h: &History, anomaly: Anomaly) -> bool {
        check(h).0.contains_key(&(Isolation::Snapshot, anomaly))
    }

    #[test]
    fn a_long_fork_is_no_write_skew() {
        let records = vec![
            record((1, 9), &[Did::Wrote(0, 1)]),
            record((1, 9), &[Did::Wrote(1, 2)]),
            record((2, 8), &[Did::Read(0, 1, false), Did::Read(1, 0, false)]),
            record((2, 8), &[Did::Read(0, 0, false), Did::Read(1, 2, false)]),
        ];
        assert!(has(&history(records, &[(0, &[1]), (1, &[2])]), LongFork));
        let records = vec![
            record((1, 9), &[Did::Read(1, 0, false), Did::Wrote(0, 1)]),
            record((1, 9), &[Did::Read(0, 0, false), Did::Wrote(1, 2)]),
        ];
        let h = history(records, &[(0, &[1]), (1, &[2])]);
        assert!(has(&h, G2Item) && !has(&h, LongFork));
    }

    #[test]
    fn one_that_was_refused_must_not_have_seen_half_of_a_commit() {
        let mut records = vec![
            record((1, 4), &[Did::Wrote(0, 1), Did::Wrote(1, 2)]),
            record((2, 8), &[Did::Read(0, 1, false), Did::Read(1, 0, false)]),
        ];
        records[1].end = End::GaveUp;
        assert!(has(&history(records, &[(0, &[1]), (1, &[2])]), Otv));
    }
}
