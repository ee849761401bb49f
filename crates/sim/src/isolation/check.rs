//! Finds anomalies in a history, by their definitions over dependencies (Adya; item and predicate reads told apart): `ww` to who
//! overwrote, `wr` to who read, `rw` from who read to who overwrote that, `rt` to who began after the answer.

use super::graph::Graph;
use super::history::{Did, History, Key, Version};
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
}

use Anomaly::{Broken, G0, G1a, G1b, G1c, G2, G2Item, GSingle, LongFork, Otv, P4, Stale, Strict, Torn};

/// What a level forbids.
pub fn forbidden(level: Isolation) -> &'static [Anomaly] {
    match level {
        Isolation::ReadUncommitted | Isolation::ReadCommitted => &[G0, G1a, G1b, G1c, Torn, Stale, Broken],
        Isolation::RepeatableRead => {
            &[G0, G1a, G1b, G1c, Torn, Otv, GSingle, LongFork, P4, G2Item, Stale, Broken]
        }
        Isolation::Snapshot => &[G0, G1a, G1b, G1c, Torn, Otv, GSingle, LongFork, P4, Stale, Broken],
        Isolation::Serializable => {
            &[G0, G1a, G1b, G1c, Torn, Otv, GSingle, LongFork, P4, G2Item, G2, Stale, Strict, Broken]
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

/// The anomalies of a history, each with an example.
pub type Findings = BTreeMap<Anomaly, String>;

/// The dependencies by kind.
struct Dependencies {
    ww: Graph,
    wr: Graph,
    rw_item: Graph,
    rw_range: Graph,
    rt: Graph,
}

/// Who wrote a version, and whether it was the last that its transaction wrote there.
type Writers = BTreeMap<Version, (usize, bool)>;

/// Finds them all.
pub fn check(h: &History) -> Findings {
    let mut found = Findings::new();
    let writers = writers(h);
    reads_are_of_committed_writes(h, &writers, &mut found);
    own_writes_are_read(h, &mut found);
    orders_and_end_fit(h, &writers, &mut found);
    let d = dependencies(h, &writers);
    circles(h, &d, &mut found);
    lost_updates(h, &mut found);
    parts_of_commits(h, &writers, &mut found);
    found
}

fn note(found: &mut Findings, anomaly: Anomaly, example: impl FnOnce() -> String) {
    found.entry(anomaly).or_insert_with(example);
}

fn writers(h: &History) -> Writers {
    let mut all = Writers::new();
    for (i, r) in h.records.iter().enumerate() {
        let last = r.last_writes();
        for did in &r.ops {
            if let Did::Wrote(key, version) = did {
                all.insert(*version, (i, last[key] == *version));
            }
        }
    }
    all
}

/// What transaction `i` read of others: key, version, whether by a range. Keys of a range that were not there too.
fn reads(h: &History, i: usize) -> Vec<(Key, Version, bool)> {
    let mut own = BTreeSet::new();
    let mut all = Vec::new();
    for did in &h.records[i].ops {
        match did {
            Did::Wrote(key, _) => drop(own.insert(*key)),
            Did::Read(key, version) if !own.contains(key) => all.push((*key, *version, false)),
            Did::Read(..) => {}
            Did::Scanned(from, to, seen) => {
                let seen: BTreeMap<_, _> = seen.iter().copied().collect();
                let foreign = (*from..*to).filter(|key| !own.contains(key));
                all.extend(foreign.map(|key| (key, seen.get(&key).copied().unwrap_or(0), true)));
            }
        }
    }
    all
}

/// (Also what a transaction has read that was refused in the end.)
fn reads_are_of_committed_writes(h: &History, writers: &Writers, found: &mut Findings) {
    for (i, r) in h.records.iter().enumerate() {
        for (key, version, _) in reads(h, i) {
            match writers.get(&version) {
                None if version == 0 => {}
                None => note(found, G1a, || format!("{r:?} read {version} of {key}, which nobody wrote")),
                Some((w, _)) if !h.records[*w].committed => {
                    note(found, G1a, || format!("{r:?} read {version} of {key} from {:?}", h.records[*w]));
                }
                Some((w, false)) if *w != i => {
                    note(found, G1b, || format!("{r:?} read {version} of {key} from {:?}", h.records[*w]));
                }
                Some(_) => {}
            }
        }
    }
}

fn own_writes_are_read(h: &History, found: &mut Findings) {
    for r in &h.records {
        let mut own: BTreeMap<Key, Version> = BTreeMap::new();
        for did in &r.ops {
            let wrong = match did {
                Did::Wrote(key, version) => {
                    own.insert(*key, *version);
                    false
                }
                Did::Read(key, version) => own.get(key).is_some_and(|mine| mine != version),
                Did::Scanned(from, to, seen) => {
                    own.range(*from..*to).any(|(key, mine)| !seen.contains(&(*key, *mine)))
                }
            };
            if wrong {
                note(found, Broken, || format!("{r:?} did not read its own write: {did:?}"));
            }
        }
    }
}

fn orders_and_end_fit(h: &History, writers: &Writers, found: &mut Findings) {
    let mut listed = BTreeSet::new();
    for (key, order) in &h.order {
        for version in order {
            let good = writers.get(version).is_some_and(|(w, last)| *last && h.records[*w].committed);
            if !good || !listed.insert(*version) {
                note(found, Broken, || {
                    format!("version {version} of {key} is listed, and nobody committed it once")
                });
            }
        }
        if h.end.get(key) != order.last() {
            note(found, Broken, || format!("key {key} ends as {:?} after {order:?}", h.end.get(key)));
        }
        let mut before: &[Version] = &[];
        for version in order {
            let Some(list) = h.lists.get(version) else { continue };
            if list.split_last().is_none_or(|(_, rest)| rest != before) {
                note(found, P4, || format!("key {key}: {list:?} came after {before:?}"));
            }
            before = list;
        }
    }
    for (version, (w, last)) in writers {
        if *last && h.records[*w].committed && !listed.contains(version) {
            note(found, Broken, || format!("{:?} was committed, and {version} is not listed", h.records[*w]));
        }
    }
}

fn dependencies(h: &History, writers: &Writers) -> Dependencies {
    let n = h.records.len();
    let new = || Graph::new(n);
    let mut d = Dependencies { ww: new(), wr: new(), rw_item: new(), rw_range: new(), rt: new() };
    let writer = |version: Version| writers.get(&version).map(|w| w.0);
    let mut next: BTreeMap<(Key, Version), Version> = BTreeMap::new();
    for (key, order) in &h.order {
        let mut before = 0;
        for version in order {
            next.insert((*key, before), *version);
            if let (Some(a), Some(b)) = (writer(before), writer(*version)) {
                d.ww.add(a, b);
            }
            before = *version;
        }
    }
    for i in (0..n).filter(|i| h.records[*i].committed) {
        for (key, version, by_range) in reads(h, i) {
            if let Some(w) = writer(version) {
                d.wr.add(w, i);
            }
            // Of an intermediate version the next is unknown; that is an anomaly of its own.
            if let Some(w) = next.get(&(key, version)).and_then(|v| writer(*v)) {
                let graph = if by_range { &mut d.rw_range } else { &mut d.rw_item };
                graph.add(i, w);
            }
        }
        for j in (0..n).filter(|j| h.records[*j].committed) {
            if h.records[i].span.1 < h.records[j].span.0 {
                d.rt.add(i, j);
            }
        }
    }
    d
}

fn circles(h: &History, d: &Dependencies, found: &mut Findings) {
    let show = |a: usize, b: usize| format!("{:?} and {:?}", h.records[a], h.records[b]);
    if let Some(i) = d.ww.clone().closed().circle() {
        note(found, G0, || show(i, i));
    }
    let dependent = d.ww.with(&d.wr);
    if let Some(i) = dependent.clone().closed().circle() {
        note(found, G1c, || show(i, i));
    }
    let rw = d.rw_item.with(&d.rw_range);
    let in_time = dependent.with(&d.rt).closed();
    let items = dependent.with(&d.rw_item).closed();
    let all = dependent.with(&rw);
    let in_strict_time = all.with(&d.rt).closed();
    let all = all.closed();
    for (a, b) in rw.edges() {
        let by_item = d.rw_item.has(a, b);
        let before = (0..h.records.len()).filter(|c| d.rt.has(*c, a));
        if before.clone().any(|c| c == b || in_time.has(b, c)) {
            note(found, Stale, || show(a, b));
        } else if in_time.has(b, a) {
            note(found, GSingle, || show(a, b));
        } else if by_item && items.has(b, a) {
            note(found, G2Item, || show(a, b));
        } else if all.has(b, a) {
            note(found, G2, || show(a, b));
        }
    }
    // Over snapshots no two steps back in time follow each other but in write skew.
    let forward = dependent.with(&d.rt);
    if let Some(i) = forward.with(&forward.then(&rw)).closed().circle()
        && !found.contains_key(&GSingle)
    {
        note(found, LongFork, || show(i, i));
    }
    if let Some(i) = in_strict_time.circle() {
        note(found, Strict, || show(i, i));
    }
}

fn lost_updates(h: &History, found: &mut Findings) {
    let mut replaced: BTreeMap<(Key, Version), usize> = BTreeMap::new();
    for (i, r) in h.records.iter().enumerate().filter(|(_, r)| r.committed) {
        let wrote = r.last_writes();
        let items: BTreeSet<_> =
            reads(h, i).into_iter().filter(|(key, _, range)| !range && wrote.contains_key(key)).collect();
        for (key, version, _) in items {
            if let Some(other) = replaced.insert((key, version), i).filter(|o| *o != i) {
                note(found, P4, || format!("{:?} and {r:?}", h.records[other]));
            }
        }
    }
}

fn parts_of_commits(h: &History, writers: &Writers, found: &mut Findings) {
    let mut place: BTreeMap<(Key, Version), usize> = BTreeMap::new();
    for (key, order) in &h.order {
        place.extend(order.iter().enumerate().map(|(at, v)| ((*key, *v), at + 1)));
    }
    let at =
        |key: Key, version: Version| if version == 0 { Some(0) } else { place.get(&(key, version)).copied() };
    // Saw a commit of which another read, at the same time or not, saw less.
    let part = |i: usize, reads: &[(Key, Version, bool)]| {
        reads.iter().find_map(|(_, version, _)| {
            let (w, _) = writers.get(version).filter(|(w, _)| *w != i)?;
            let wrote = h.records[*w].last_writes();
            let less = |(key, seen, _): &&(Key, Version, bool)| {
                let theirs = wrote.get(key).and_then(|v| at(*key, *v));
                matches!((theirs, at(*key, *seen)), (Some(theirs), Some(seen)) if seen < theirs)
            };
            reads.iter().find(less).map(|_| *w)
        })
    };
    for (i, r) in h.records.iter().enumerate() {
        for did in &r.ops {
            if let Did::Scanned(from, to, seen) = did {
                let seen: BTreeMap<_, _> = seen.iter().copied().collect();
                let all: Vec<_> =
                    (*from..*to).map(|key| (key, seen.get(&key).copied().unwrap_or(0), true)).collect();
                if let Some(w) = part(i, &all) {
                    note(found, Torn, || format!("{r:?} of {:?}", h.records[w]));
                }
            }
        }
        if let Some(w) = part(i, &reads(h, i)) {
            note(found, Otv, || format!("{r:?} of {:?}", h.records[w]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::history::Record;
    use super::*;

    fn record(span: (u64, u64), ops: &[Did]) -> Record {
        Record { ops: ops.to_vec(), committed: true, span }
    }
    fn history(records: Vec<Record>, order: &[(Key, &[Version])]) -> History {
        let order: BTreeMap<Key, Vec<Version>> = order.iter().map(|(k, v)| (*k, v.to_vec())).collect();
        let end = order.iter().filter_map(|(k, v)| Some((*k, *v.last()?))).collect();
        History { records, order, end, ..History::default() }
    }

    #[test]
    fn a_long_fork_is_no_write_skew() {
        let records = vec![
            record((1, 9), &[Did::Wrote(0, 1)]),
            record((1, 9), &[Did::Wrote(1, 2)]),
            record((2, 8), &[Did::Read(0, 1), Did::Read(1, 0)]),
            record((2, 8), &[Did::Read(0, 0), Did::Read(1, 2)]),
        ];
        let found = check(&history(records, &[(0, &[1]), (1, &[2])]));
        assert!(found.contains_key(&LongFork), "{found:?}");
        let records = vec![
            record((1, 9), &[Did::Read(1, 0), Did::Wrote(0, 1)]),
            record((1, 9), &[Did::Read(0, 0), Did::Wrote(1, 2)]),
        ];
        let found = check(&history(records, &[(0, &[1]), (1, &[2])]));
        assert!(found.contains_key(&G2Item) && !found.contains_key(&LongFork), "{found:?}");
    }

    #[test]
    fn one_that_was_refused_must_not_have_seen_half_of_a_commit() {
        let mut records = vec![
            record((1, 4), &[Did::Wrote(0, 1), Did::Wrote(1, 2)]),
            record((2, 8), &[Did::Read(0, 1), Did::Read(1, 0)]),
        ];
        records[1].committed = false;
        let found = check(&history(records, &[(0, &[1]), (1, &[2])]));
        assert!(found.contains_key(&Otv), "{found:?}");
    }
}
