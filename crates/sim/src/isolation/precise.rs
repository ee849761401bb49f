//! Who was refused, and whether that had to be: below serializable every conflict has a reason that can be named; at serializable
//! a validator that knows the whole history refuses only who would close a circle, and plain backward validation whoever read or
//! wrote what has changed since its moment.

use super::graph::Graph;
use super::history::{Did, End, History, Key, Read, Record, Version, Writers};
use perigee::Isolation;
use std::collections::BTreeSet;

/// Transactions at serializable that asked for a commit and had written something.
#[derive(Clone, Copy, Debug, Default)]
pub struct Aborts {
    /// All of them.
    pub asked: u64,
    /// Refused.
    pub refused: u64,
    /// Of these: a key that they wrote had been written since their moment.
    pub overwritten: u64,
    /// Of those refused: committed, they would have closed a circle.
    pub needed: u64,
    /// So many plain backward validation would have refused.
    pub backward: u64,
}

/// Keys over which a conflict below serializable may be.
fn reasons(h: &History, i: usize) -> BTreeSet<Key> {
    let r = &h.records[i];
    let mut all: BTreeSet<Key> = r.last_writes().into_keys().collect();
    for did in &r.ops {
        match did {
            Did::Asked(key) | Did::Read(key, _, true) => drop(all.insert(*key)),
            Did::Read(key, _, false) if r.level == Isolation::RepeatableRead => drop(all.insert(*key)),
            _ => {}
        }
    }
    all
}

/// The last commit that one refused can have met: after the present that it saw come those that were being applied then.
fn until(h: &History, r: &Record, present: u64) -> u64 {
    let number = |o: &Record| if let End::Committed(seq) = o.end { seq } else { 0 };
    let behind = h.records.iter().filter(|o| number(o) > present && !o.last_writes().is_empty());
    let mut behind: Vec<_> = behind.map(|o| (number(o), o.span.0)).collect();
    behind.sort_unstable();
    behind.iter().take_while(|(_, began)| *began < r.span.1).last().map_or(present, |(seq, _)| *seq)
}

/// A transaction below serializable that was refused without a reason.
pub fn false_conflict(h: &History) -> Option<&Record> {
    let refused = h.records.iter().enumerate().find(|(i, r)| {
        let End::Refused(present) = r.end else { return false };
        match r.snapshot {
            _ if r.level == Isolation::Serializable => false,
            None => true,
            Some(since) => {
                let met = (since, until(h, r, present));
                !reasons(h, *i).into_iter().any(|key| h.changed(key, met))
            }
        }
    });
    refused.map(|(_, r)| r)
}

/// Counts who was refused at serializable, and who would have been. `order` is all that is known of the order of those committed.
pub fn aborts(h: &History, writers: &Writers, reads: &[Vec<Read>], order: &Graph) -> Aborts {
    let mut all = Aborts::default();
    for (i, r) in h.records.iter().enumerate().filter(|(_, r)| r.level == Isolation::Serializable) {
        let (Some(since), wrote) = (r.snapshot, r.last_writes()) else { continue };
        let until = match r.end {
            End::Committed(seq) => seq.saturating_sub(1),
            End::Refused(present) if !r.ops.iter().any(|d| matches!(d, Did::Asked(_))) => {
                until(h, r, present)
            }
            _ => continue,
        };
        if wrote.is_empty() {
            continue;
        }
        let changed = |key: &Key| h.changed(*key, (since, until));
        let overwritten = wrote.keys().any(changed);
        all.asked += 1;
        all.backward += u64::from(overwritten || reads[i].iter().any(|(key, ..)| changed(key)));
        if !r.committed() {
            all.refused += 1;
            all.overwritten += u64::from(overwritten);
            all.needed += u64::from(closes_a_circle(h, (writers, reads), i, until, order));
        }
    }
    all
}

/// Whether one that was refused at a moment would, committed there, be before and after some other.
fn closes_a_circle(
    h: &History,
    (writers, reads): (&Writers, &[Vec<Read>]),
    i: usize,
    present: u64,
    order: &Graph,
) -> bool {
    let me = &h.records[i];
    let writer = |version: &Version| writers.get(version).map(|w| w.0);
    let behind = |key: &Key, seq: u64| {
        let all = h.order.get(key)?;
        all.iter().find(|(s, _)| *s > seq).and_then(|(_, v)| writer(v))
    };
    let (mut before, mut after) = (BTreeSet::new(), BTreeSet::new());
    for (key, version, _) in &reads[i] {
        before.extend(writer(version));
        let versions = h.order.get(key).map_or(&[][..], |v| v);
        let seq = versions.iter().find(|(_, v)| v == version).map_or(0, |(seq, _)| *seq);
        after.extend(behind(key, seq));
    }
    let wrote: Vec<(Key, Version)> = me.last_writes().into_keys().map(|k| (k, h.at(k, present))).collect();
    for (key, last) in &wrote {
        before.extend(writer(last));
        after.extend(behind(key, present));
    }
    for (r, other) in h.records.iter().enumerate().filter(|(r, o)| *r != i && o.committed()) {
        // Only who is serializable counts as a reader.
        let reader = other.level == Isolation::Serializable;
        if reader && reads[r].iter().any(|(k, v, _)| wrote.contains(&(*k, *v))) {
            if other.snapshot.is_some_and(|s| s > present) {
                after.insert(r)
            } else {
                before.insert(r)
            };
        }
        if other.span.1 < me.span.0 {
            before.insert(r);
        } else if me.span.1 < other.span.0 {
            after.insert(r);
        }
    }
    after.iter().any(|a| before.iter().any(|b| a == b || order.has(*a, *b)))
}
