//! Finds anomalies in a history by their definitions over dependencies (Adya, with item and
//! predicate reads kept apart): `ww` to the transaction that overwrote a version, `wr` to the one
//! that read it, `rw` from a reader to the transaction that overwrote what was read, `rt` to one
//! that began after the commit was acknowledged.

use super::abort_counts;
use super::graph::DependencyGraph;
use super::history::{
    ClientOp, Key, ReadVersion, TxnEnd, TxnHistory, TxnRecord, Version, VersionWriters,
};
use perigee::Isolation;
use std::collections::{BTreeMap, BTreeSet};

/// An anomaly, by its usual name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Anomaly {
    /// Writes of two transactions are ordered differently on different keys.
    G0,
    /// Read a version that was never committed.
    G1a,
    /// Read a version that its writer itself overwrote.
    G1b,
    /// Two transactions read from each other.
    G1c,
    /// One scan saw part of a commit.
    TornScan,
    /// Two reads together saw part of a commit.
    Otv,
    /// Saw two states: a cycle with one `rw`.
    GSingle,
    /// Snapshots that are not prefixes of one order: two readers saw two commits in opposite
    /// orders.
    LongFork,
    /// Lost update: two transactions read a version and both replaced it.
    P4,
    /// Write skew over individually read keys.
    G2Item,
    /// Write skew over ranges.
    G2,
    /// Missed a commit that was acknowledged before it began.
    StaleRead,
    /// No serial order agrees with real time.
    RealTimeViolation,
    /// Did not read its own write, or the final contents are not the last writes.
    InconsistentRead,
    /// A key was written although another transaction had locked it or, at a level that guarantees
    /// this, read it for update.
    LockViolation,
    /// A conflict without a reason.
    FalseConflict,
}

use Anomaly::{
    FalseConflict, G0, G1a, G1b, G1c, G2, G2Item, GSingle, InconsistentRead, LockViolation,
    LongFork, Otv, P4, RealTimeViolation, StaleRead, TornScan,
};

/// Returns the anomalies that a level forbids.
pub fn forbidden_anomalies(level: Isolation) -> &'static [Anomaly] {
    match level {
        Isolation::ReadUncommitted | Isolation::ReadCommitted => &[
            G0,
            G1a,
            G1b,
            G1c,
            TornScan,
            StaleRead,
            InconsistentRead,
            LockViolation,
            FalseConflict,
        ],
        Isolation::RepeatableRead => &[
            G0,
            G1a,
            G1b,
            G1c,
            TornScan,
            Otv,
            GSingle,
            LongFork,
            P4,
            G2Item,
            StaleRead,
            InconsistentRead,
            LockViolation,
            FalseConflict,
        ],
        Isolation::Snapshot => &[
            G0,
            G1a,
            G1b,
            G1c,
            TornScan,
            Otv,
            GSingle,
            LongFork,
            P4,
            StaleRead,
            InconsistentRead,
            LockViolation,
            FalseConflict,
        ],
        Isolation::Serializable => &[
            G0,
            G1a,
            G1b,
            G1c,
            TornScan,
            Otv,
            GSingle,
            LongFork,
            P4,
            G2Item,
            G2,
            StaleRead,
            RealTimeViolation,
            InconsistentRead,
            LockViolation,
        ],
    }
}

/// Returns the anomalies that a level allows and that a working checker must find in enough
/// histories.
pub fn expected_anomalies(level: Isolation) -> &'static [Anomaly] {
    match level {
        Isolation::ReadUncommitted | Isolation::ReadCommitted => &[Otv, GSingle, P4, G2Item, G2],
        Isolation::RepeatableRead => &[G2],
        Isolation::Snapshot => &[G2Item, G2],
        Isolation::Serializable => &[],
    }
}

/// Anomalies of a history, each with an example, by the level of the transaction that observed it.
pub type Findings = BTreeMap<(Isolation, Anomaly), String>;

/// Dependencies between transactions, by kind.
pub struct Dependencies {
    levels: Vec<Isolation>,
    ww: DependencyGraph,
    wr: DependencyGraph,
    rw_item: DependencyGraph,
    rw_range: DependencyGraph,
    /// From a transaction to those that began after its commit was acknowledged.
    pub rt: DependencyGraph,
}

impl Dependencies {
    /// Returns the `ww` and `wr` dependencies together.
    pub fn ww_wr_edges(&self) -> DependencyGraph {
        self.ww.union(&self.wr)
    }
    /// Returns the `rw` dependencies of readers of this level.
    pub fn rw_edges_from(&self, level: Isolation) -> DependencyGraph {
        self.rw_item.union(&self.rw_range).edges_from(|i| self.levels[i] == level)
    }
}

/// The history being checked, with what was derived from it.
struct CheckContext<'a> {
    h: &'a TxnHistory,
    writers: VersionWriters,
    /// Versions that each transaction read from others.
    reads: Vec<Vec<ReadVersion>>,
}

/// Finds all anomalies and counts the refused serializable transactions.
pub fn check_history(h: &TxnHistory) -> (Findings, abort_counts::AbortCounts) {
    let mut found = Findings::new();
    let reads = (0..h.records.len()).map(|i| h.reads_of_txn(i)).collect();
    let known = CheckContext { h, writers: version_writers(h), reads };
    known.check_aborted_reads(&mut found);
    check_own_reads(h, &mut found);
    known.check_version_order(&mut found);
    let d = known.build_dependencies();
    let levels: BTreeSet<Isolation> = d.levels.iter().copied().collect();
    known.check_cycles(&d, &mut found);
    levels.iter().for_each(|level| known.check_cycles_at_level(*level, &d, &mut found));
    known.check_lost_updates(&mut found);
    known.check_partial_reads(&mut found);
    known.check_locks(&mut found);
    if let Some(r) = abort_counts::find_false_conflict(h) {
        add_finding(&mut found, FalseConflict, r, || format!("{r:?}"));
    }
    let order = d
        .ww_wr_edges()
        .union(&d.rw_edges_from(Isolation::Serializable))
        .union(&d.rt)
        .transitive_closure();
    let aborts = abort_counts::count_aborts(h, &known.writers, &known.reads, &order);
    (found, aborts)
}

fn add_finding(
    found: &mut Findings,
    anomaly: Anomaly,
    r: &TxnRecord,
    example: impl FnOnce() -> String,
) {
    found.entry((r.level, anomaly)).or_insert_with(example);
}

fn version_writers(h: &TxnHistory) -> VersionWriters {
    let mut all = VersionWriters::new();
    for (i, r) in h.records.iter().enumerate() {
        let last = r.last_writes();
        for (key, version) in r.ops.iter().filter_map(ClientOp::written_version) {
            all.insert(version, (i, last.get(&key) == Some(&version)));
        }
    }
    all
}

fn check_own_reads(h: &TxnHistory, found: &mut Findings) {
    for r in &h.records {
        for (at, did) in r.ops.iter().enumerate() {
            let seen =
                |version: Version| if h.delete_versions.contains(&version) { 0 } else { version };
            let own = r.own_writes(at);
            let mine = |key: &Key| own.get(key).map(|(_, version)| seen(*version));
            let wrong = match did {
                ClientOp::Read(key, version, _) => mine(key).is_some_and(|mine| mine != *version),
                ClientOp::Scan(from, to, all, _) => {
                    own.range(*from..*to).any(|(key, (_, version))| {
                        let there = all.iter().find(|(k, _)| k == key).map_or(0, |(_, v)| *v);
                        there != seen(*version)
                    })
                }
                _ => false,
            };
            if wrong {
                add_finding(found, InconsistentRead, r, || {
                    format!("{r:?} did not read its own write: {did:?}")
                });
            }
        }
    }
}

impl CheckContext<'_> {
    fn writer_of(&self, version: Version) -> Option<usize> {
        self.writers.get(&version).map(|w| w.0)
    }

    /// Checks reads of uncommitted and intermediate versions, also by transactions that were
    /// refused.
    fn check_aborted_reads(&self, found: &mut Findings) {
        let h = self.h;
        for (i, r) in h.records.iter().enumerate() {
            for (key, version, _) in &self.reads[i] {
                let from =
                    |w: usize| format!("{r:?} read {version} of {key} from {:?}", h.records[w]);
                match self.writers.get(version) {
                    None if *version == 0 => {}
                    None => add_finding(found, G1a, r, || {
                        format!("{r:?} read {version} of {key}, which no transaction wrote")
                    }),
                    Some((w, _)) if !h.records[*w].committed() => {
                        add_finding(found, G1a, r, || from(*w))
                    }
                    Some((w, false)) if *w != i => add_finding(found, G1b, r, || from(*w)),
                    Some(_) => {}
                }
            }
        }
    }

    fn check_version_order(&self, found: &mut Findings) {
        let h = self.h;
        let Some(any) = h.records.first() else { return };
        let keys: BTreeSet<Key> = h
            .version_order
            .keys()
            .chain(h.hook_puts.keys())
            .chain(h.final_versions.keys())
            .copied()
            .collect();
        for key in keys {
            let order = h.version_order.get(&key).map_or(&[][..], |v| v);
            let puts: Vec<Version> =
                order.iter().map(|(_, v)| *v).filter(|v| !h.delete_versions.contains(v)).collect();
            let reported = h.hook_puts.get(&key).cloned().unwrap_or_default();
            if puts != reported {
                add_finding(found, InconsistentRead, any, || {
                    format!("key {key}: hooks reported {reported:?}, commits returned {order:?}")
                });
            }
            let last = order.last().map(|(_, v)| *v).filter(|v| !h.delete_versions.contains(v));
            if h.final_versions.get(&key).copied() != last {
                add_finding(found, InconsistentRead, any, || {
                    format!("key {key} ends as {:?} after {order:?}", h.final_versions.get(&key))
                });
            }
            let mut before: &[Version] = &[];
            for (_, version) in order {
                let Some(list) = h.lists.get(version) else { continue };
                let r = &h.records[self.writer_of(*version).unwrap_or(0)];
                if list.split_last().is_none_or(|(_, rest)| rest != before) {
                    add_finding(found, P4, r, || {
                        format!("key {key}: {list:?} came after {before:?}")
                    });
                }
                before = list;
            }
        }
    }

    fn build_dependencies(&self) -> Dependencies {
        let (h, n) = (self.h, self.h.records.len());
        let new = || DependencyGraph::new(n);
        let levels = h.records.iter().map(|r| r.level).collect();
        let mut d = Dependencies {
            levels,
            ww: new(),
            wr: new(),
            rw_item: new(),
            rw_range: new(),
            rt: new(),
        };
        let mut next: BTreeMap<(Key, Version), Version> = BTreeMap::new();
        for (key, order) in &h.version_order {
            let mut before = 0;
            for (_, version) in order {
                next.insert((*key, before), *version);
                if let (Some(a), Some(b)) = (self.writer_of(before), self.writer_of(*version)) {
                    d.ww.add_edge(a, b);
                }
                before = *version;
            }
        }
        for i in (0..n).filter(|i| h.records[*i].committed()) {
            for (key, version, by_range) in &self.reads[i] {
                if let Some(w) = self.writer_of(*version) {
                    d.wr.add_edge(w, i);
                }
                // The version after an intermediate one is unknown; that read is an anomaly of its
                // own.
                if let Some(w) = next.get(&(*key, *version)).and_then(|v| self.writer_of(*v)) {
                    let graph = if *by_range { &mut d.rw_range } else { &mut d.rw_item };
                    graph.add_edge(i, w);
                }
            }
            for j in (0..n).filter(|j| h.records[*j].committed()) {
                if h.records[i].span.1 < h.records[j].span.0 {
                    d.rt.add_edge(i, j);
                }
            }
        }
        d
    }

    fn describe_pair(&self, a: usize, b: usize) -> String {
        format!("{:?} and {:?}", self.h.records[a], self.h.records[b])
    }

    /// Finds cycles that no level allows.
    fn check_cycles(&self, d: &Dependencies, found: &mut Findings) {
        if let Some(i) = d.ww.clone().transitive_closure().find_cycle() {
            add_finding(found, G0, &self.h.records[i], || self.describe_pair(i, i));
        }
        if let Some(i) = d.ww_wr_edges().transitive_closure().find_cycle() {
            add_finding(found, G1c, &self.h.records[i], || self.describe_pair(i, i));
        }
    }

    /// Finds cycles over what transactions of one level read. Transactions of weaker levels count
    /// only as writers.
    fn check_cycles_at_level(&self, level: Isolation, d: &Dependencies, found: &mut Findings) {
        let dependent = d.ww_wr_edges();
        let rw = d.rw_edges_from(level);
        let in_time = dependent.union(&d.rt).transitive_closure();
        let items =
            dependent.union(&d.rw_item.edges_from(|i| d.levels[i] == level)).transitive_closure();
        let all = dependent.union(&rw);
        let in_strict_time = all.union(&d.rt).transitive_closure();
        let all = all.transitive_closure();
        for (a, b) in rw.edges() {
            let r = &self.h.records[a];
            let by_item = d.rw_item.has_edge(a, b);
            let before = (0..self.h.records.len()).filter(|c| d.rt.has_edge(*c, a));
            if before.clone().any(|c| c == b || in_time.has_edge(b, c)) {
                add_finding(found, StaleRead, r, || self.describe_pair(a, b));
            } else if in_time.has_edge(b, a) {
                add_finding(found, GSingle, r, || self.describe_pair(a, b));
            } else if by_item && items.has_edge(b, a) {
                add_finding(found, G2Item, r, || self.describe_pair(a, b));
            } else if all.has_edge(b, a) {
                add_finding(found, G2, r, || self.describe_pair(a, b));
            }
        }
        // Over snapshots, two consecutive steps back in time occur only in write skew.
        let forward = dependent.union(&d.rt);
        if let Some(i) = forward.union(&forward.compose(&rw)).transitive_closure().find_cycle()
            && !found.contains_key(&(level, GSingle))
        {
            found.entry((level, LongFork)).or_insert_with(|| self.describe_pair(i, i));
        }
        if let Some(i) = in_strict_time.find_cycle() {
            found.entry((level, RealTimeViolation)).or_insert_with(|| self.describe_pair(i, i));
        }
    }

    /// Finds the later of two commits that replaced a version which both had read.
    fn check_lost_updates(&self, found: &mut Findings) {
        let mut replaced: BTreeMap<(Key, Version), usize> = BTreeMap::new();
        for (i, r) in self.h.records.iter().enumerate().filter(|(_, r)| r.committed()) {
            let wrote = r.last_writes();
            let reads =
                self.reads[i].iter().filter(|(key, _, range)| !range && wrote.contains_key(key));
            for item in reads.map(|(key, version, _)| (*key, *version)).collect::<BTreeSet<_>>() {
                if let Some(other) = replaced.insert(item, i).filter(|o| *o != i) {
                    let later =
                        if commit_seq(r) > commit_seq(&self.h.records[other]) { i } else { other };
                    add_finding(found, P4, &self.h.records[later], || self.describe_pair(i, other));
                }
            }
        }
    }

    fn check_partial_reads(&self, found: &mut Findings) {
        let h = self.h;
        let mut position: BTreeMap<(Key, Version), usize> = BTreeMap::new();
        for (key, order) in &h.version_order {
            position.extend(order.iter().enumerate().map(|(at, (_, v))| ((*key, *v), at + 1)));
        }
        let at = |key: Key, version: Version| {
            if version == 0 { Some(0) } else { position.get(&(key, version)).copied() }
        };
        // Returns a writer part of whose commit was seen: another key was read at an older version.
        let part = |i: usize, reads: &[ReadVersion]| {
            reads.iter().find_map(|(_, version, _)| {
                let (w, _) = self.writers.get(version).filter(|(w, _)| *w != i)?;
                let wrote = h.records[*w].last_writes();
                let less = |(key, seen, _): &&ReadVersion| {
                    let theirs = wrote.get(key).and_then(|v| at(*key, *v));
                    matches!((theirs, at(*key, *seen)), (Some(theirs), Some(seen)) if seen < theirs)
                };
                reads.iter().find(less).map(|_| *w)
            })
        };
        for (i, r) in h.records.iter().enumerate() {
            for at in (0..r.ops.len()).filter(|at| matches!(r.ops[*at], ClientOp::Scan(..))) {
                if let Some(w) = part(i, &h.reads_of_op(r, at)) {
                    add_finding(found, TornScan, r, || format!("{r:?} of {:?}", h.records[w]));
                }
            }
            if let Some(w) = part(i, &self.reads[i]) {
                add_finding(found, Otv, r, || format!("{r:?} of {:?}", h.records[w]));
            }
        }
    }

    /// Checks that between a locked read and its reader's commit no locking transaction wrote the
    /// key and, at levels that guarantee it, no transaction at all.
    fn check_locks(&self, found: &mut Findings) {
        let h = self.h;
        for (i, r) in h.records.iter().enumerate() {
            let TxnEnd::Committed(commit) = r.end else { continue };
            if r.last_writes().is_empty() {
                continue;
            }
            for at in 0..r.ops.len() {
                let one_moment = r.level >= Isolation::RepeatableRead;
                let vouched = one_moment && r.level != Isolation::Serializable;
                let is_read = match &r.ops[at] {
                    ClientOp::Read(_, _, true) => true,
                    // At a level that reads one snapshot, the scan may be older than its lock.
                    ClientOp::Scan(_, _, _, true) => !one_moment,
                    _ => false,
                };
                for (key, version, range) in
                    h.reads_of_op(r, at).into_iter().filter(|_| is_read && r.keeps_lock(at))
                {
                    let order = h.version_order.get(&key).map_or(&[][..], |v| v);
                    let mut behind =
                        order.iter().skip_while(|(_, v)| version != 0 && *v != version);
                    let next = behind.nth(usize::from(version != 0));
                    let rival = next
                        .filter(|(seq, _)| *seq < commit)
                        .and_then(|(_, v)| Some((*v, self.writer_of(*v)?)));
                    let Some((v, w)) = rival.filter(|(_, w)| *w != i) else { continue };
                    // A range lock blocks inserts, but not deletes.
                    let kept_out = h.records[w].locks && !(range && h.delete_versions.contains(&v));
                    if kept_out || (vouched && !range) {
                        add_finding(found, LockViolation, r, || self.describe_pair(i, w));
                    }
                }
            }
        }
    }
}

fn commit_seq(r: &TxnRecord) -> u64 {
    if let TxnEnd::Committed(seq) = r.end { seq } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::super::history::TxnRecord;
    use super::*;

    fn record(span: (u64, u64), ops: &[ClientOp]) -> TxnRecord {
        let (level, end) = (Isolation::Snapshot, TxnEnd::Committed(0));
        TxnRecord { level, locks: false, snapshot: Some(0), ops: ops.to_vec(), end, span }
    }
    fn history(records: Vec<TxnRecord>, order: &[(Key, &[Version])]) -> TxnHistory {
        let reported: BTreeMap<Key, Vec<Version>> =
            order.iter().map(|(k, v)| (*k, v.to_vec())).collect();
        let end = reported.iter().filter_map(|(k, v)| Some((*k, *v.last()?))).collect();
        let numbered = |v: &Vec<Version>| v.iter().map(|v| (u64::from(*v), *v)).collect();
        let order = reported.iter().map(|(k, v)| (*k, numbered(v))).collect();
        TxnHistory {
            records,
            version_order: order,
            hook_puts: reported,
            final_versions: end,
            ..TxnHistory::default()
        }
    }
    fn has_anomaly(h: &TxnHistory, anomaly: Anomaly) -> bool {
        check_history(h).0.contains_key(&(Isolation::Snapshot, anomaly))
    }

    #[test]
    fn long_fork_is_not_write_skew() {
        let records = vec![
            record((1, 9), &[ClientOp::Write(0, 1)]),
            record((1, 9), &[ClientOp::Write(1, 2)]),
            record((2, 8), &[ClientOp::Read(0, 1, false), ClientOp::Read(1, 0, false)]),
            record((2, 8), &[ClientOp::Read(0, 0, false), ClientOp::Read(1, 2, false)]),
        ];
        assert!(has_anomaly(&history(records, &[(0, &[1]), (1, &[2])]), LongFork));
        let records = vec![
            record((1, 9), &[ClientOp::Read(1, 0, false), ClientOp::Write(0, 1)]),
            record((1, 9), &[ClientOp::Read(0, 0, false), ClientOp::Write(1, 2)]),
        ];
        let h = history(records, &[(0, &[1]), (1, &[2])]);
        assert!(has_anomaly(&h, G2Item) && !has_anomaly(&h, LongFork));
    }

    #[test]
    fn refused_txn_must_not_see_partial_commit() {
        let mut records = vec![
            record((1, 4), &[ClientOp::Write(0, 1), ClientOp::Write(1, 2)]),
            record((2, 8), &[ClientOp::Read(0, 1, false), ClientOp::Read(1, 0, false)]),
        ];
        records[1].end = TxnEnd::RolledBack;
        assert!(has_anomaly(&history(records, &[(0, &[1]), (1, &[2])]), Otv));
    }
}
