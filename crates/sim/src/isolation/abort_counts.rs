//! Which transactions were refused, and whether they had to be. Below serializable, every conflict
//! must have a reason that can be named. At serializable, a validator that knows the whole history
//! would refuse only transactions that close a cycle; plain backward validation would refuse every
//! transaction that read or wrote a key changed since its snapshot.

use super::graph::DependencyGraph;
use super::history::{
    ClientOp, Key, ReadVersion, TxnEnd, TxnHistory, TxnRecord, Version, VersionWriters,
};
use perigee::Isolation;
use std::collections::BTreeSet;

/// Counts of serializable transactions that tried to commit and had written something.
#[derive(Clone, Copy, Debug, Default)]
pub struct AbortCounts {
    /// All of them.
    pub commits: u64,
    /// Transactions that were refused.
    pub refused: u64,
    /// Refused transactions of which a written key had been overwritten since their snapshot.
    pub overwritten: u64,
    /// Refused transactions that would have closed a cycle if committed.
    pub necessary: u64,
    /// Transactions that plain backward validation would have refused.
    pub backward_validation: u64,
}

/// Returns the keys on which a transaction below serializable may conflict.
fn conflict_keys(h: &TxnHistory, i: usize) -> BTreeSet<Key> {
    let r = &h.records[i];
    let mut all: BTreeSet<Key> = r.last_writes().into_keys().collect();
    for did in &r.ops {
        match did {
            ClientOp::LockRefused(key) | ClientOp::Read(key, _, true) => {
                all.insert(*key);
            }
            ClientOp::Read(key, _, false) if r.level == Isolation::RepeatableRead => {
                all.insert(*key);
            }
            _ => {}
        }
    }
    all
}

/// Returns the last commit that a refused transaction can have met: after the state that it saw as
/// the latest, this includes commits that were being applied at that time.
fn last_conflicting_seq(h: &TxnHistory, r: &TxnRecord, present: u64) -> u64 {
    let number = |o: &TxnRecord| if let TxnEnd::Committed(seq) = o.end { seq } else { 0 };
    let behind = h.records.iter().filter(|o| number(o) > present && !o.last_writes().is_empty());
    let mut behind: Vec<_> = behind.map(|o| (number(o), o.span.0)).collect();
    behind.sort_unstable();
    behind.iter().take_while(|(_, began)| *began < r.span.1).last().map_or(present, |(seq, _)| *seq)
}

/// Returns a transaction below serializable that was refused without a reason.
pub fn find_false_conflict(h: &TxnHistory) -> Option<&TxnRecord> {
    let refused = h.records.iter().enumerate().find(|(i, r)| {
        let TxnEnd::Conflict(present) = r.end else { return false };
        match r.snapshot {
            _ if r.level == Isolation::Serializable => false,
            None => true,
            Some(since) => {
                let met = (since, last_conflicting_seq(h, r, present));
                !conflict_keys(h, *i).into_iter().any(|key| h.changed_between(key, met))
            }
        }
    });
    refused.map(|(_, r)| r)
}

/// Counts the serializable transactions that were refused and those that other validators would
/// refuse. `order` holds all that is known of the order of committed transactions.
pub fn count_aborts(
    h: &TxnHistory,
    writers: &VersionWriters,
    reads: &[Vec<ReadVersion>],
    order: &DependencyGraph,
) -> AbortCounts {
    let mut all = AbortCounts::default();
    for (i, r) in h.records.iter().enumerate().filter(|(_, r)| r.level == Isolation::Serializable) {
        let (Some(since), wrote) = (r.snapshot, r.last_writes()) else { continue };
        let until = match r.end {
            TxnEnd::Committed(seq) => seq.saturating_sub(1),
            TxnEnd::Conflict(present)
                if !r.ops.iter().any(|d| matches!(d, ClientOp::LockRefused(_))) =>
            {
                last_conflicting_seq(h, r, present)
            }
            _ => continue,
        };
        if wrote.is_empty() {
            continue;
        }
        let changed = |key: &Key| h.changed_between(*key, (since, until));
        let overwritten = wrote.keys().any(changed);
        all.commits += 1;
        all.backward_validation +=
            u64::from(overwritten || reads[i].iter().any(|(key, ..)| changed(key)));
        if !r.committed() {
            all.refused += 1;
            all.overwritten += u64::from(overwritten);
            all.necessary += u64::from(closes_cycle(h, (writers, reads), i, until, order));
        }
    }
    all
}

/// Returns true if a transaction refused at this point would, committed there, both precede and
/// follow another one.
fn closes_cycle(
    h: &TxnHistory,
    (writers, reads): (&VersionWriters, &[Vec<ReadVersion>]),
    i: usize,
    present: u64,
    order: &DependencyGraph,
) -> bool {
    let me = &h.records[i];
    let writer = |version: &Version| writers.get(version).map(|w| w.0);
    let behind = |key: &Key, seq: u64| {
        let all = h.version_order.get(key)?;
        all.iter().find(|(s, _)| *s > seq).and_then(|(_, v)| writer(v))
    };
    let (mut before, mut after) = (BTreeSet::new(), BTreeSet::new());
    for (key, version, _) in &reads[i] {
        before.extend(writer(version));
        let versions = h.version_order.get(key).map_or(&[][..], |v| v);
        let seq = versions.iter().find(|(_, v)| v == version).map_or(0, |(seq, _)| *seq);
        after.extend(behind(key, seq));
    }
    let wrote: Vec<(Key, Version)> =
        me.last_writes().into_keys().map(|k| (k, h.version_at(k, present))).collect();
    for (key, last) in &wrote {
        before.extend(writer(last));
        after.extend(behind(key, present));
    }
    for (r, other) in h.records.iter().enumerate().filter(|(r, o)| *r != i && o.committed()) {
        // Only reads of serializable transactions count.
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
    after.iter().any(|a| before.iter().any(|b| a == b || order.has_edge(*a, *b)))
}
