//! Serializable transactions: those that are active, and those that have ended but overlapped one
//! that is still active.
//!
//! A cycle of transactions on snapshots always contains two consecutive dependencies that go back
//! in time: a transaction read what the pivot wrote later, the pivot read what a third wrote later,
//! and the third committed first of the three (Cahill, Röhm, Fekete 2008; Ports and Grittner 2012).
//! So a transaction whose reads were overwritten may still commit if no concurrent transaction has
//! read what it writes, and a reader is rejected only because of what such a pivot wrote.
//!
//! All checks are made at the end of a transaction: in the commit section, or outside for one that
//! wrote nothing. Other isolation levels never use this module. When the list becomes too long, its
//! oldest entries are discarded, and transactions as old as those are rejected whenever their reads
//! were overwritten: this causes false conflicts, but never misses one.

use crate::limits::{ENDED_TXN_BYTES_MAX, ENDED_TXNS_MAX};
use crate::txn::read_write_sets::{KeyOrRange, ReadSet, WriteSet};
use perigee_base::bug::{self, Bug};
use perigee_base::{FamilyId, SeqNo};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An active transaction.
#[derive(Debug)]
pub struct SerializableTxn {
    snapshot: SeqNo,
    /// It was declared read-only: its reads are not recorded, and it is never rejected.
    read_only: bool,
    /// Shared with threads that search it, so that the lock is not held during the search.
    reads: Mutex<Arc<ReadSet>>,
}

impl SerializableTxn {
    /// Creates a transaction with a complete read set.
    pub fn with_reads(snapshot: SeqNo, reads: ReadSet) -> Arc<SerializableTxn> {
        Arc::new(SerializableTxn { snapshot, read_only: false, reads: Mutex::new(Arc::new(reads)) })
    }
    fn lock_reads(&self) -> MutexGuard<'_, Arc<ReadSet>> {
        self.reads.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Returns its read set so far.
    pub fn reads(&self) -> Arc<ReadSet> {
        Arc::clone(&self.lock_reads())
    }
    /// Adds to its read set. (It is sufficient to record a read after it was made: a pivot that
    /// committed in between is in the list, and is checked when this transaction ends.)
    pub fn record_reads<T>(&self, add: impl FnOnce(&mut ReadSet) -> T) -> T {
        add(Arc::make_mut(&mut self.lock_reads()))
    }
}

/// A transaction that has ended.
#[derive(Debug)]
struct EndedSerializableTxn {
    txn: Arc<SerializableTxn>,
    /// Snapshots below it do not see the transaction; for one that wrote nothing, its own snapshot.
    commit: SeqNo,
    writes: WriteSet,
    /// True if its reads had been overwritten when it committed.
    reads_overwritten: bool,
    bytes: u64,
}

#[derive(Debug, Default)]
struct SerializableTxnsState {
    active: Vec<Arc<SerializableTxn>>,
    ended: std::collections::VecDeque<EndedSerializableTxn>,
    bytes: u64,
    /// Ended transactions with commits up to this one were discarded.
    forgotten_up_to: SeqNo,
    /// Lower bound of all future snapshots. (A commit that was checked may not be visible yet.)
    visible_seq: SeqNo,
}

/// All serializable transactions of a database.
#[derive(Debug, Default)]
pub struct SerializableTxns(Mutex<SerializableTxnsState>);

/// Why a transaction is rejected: something that it read or wrote, if known.
#[derive(Debug)]
pub struct SerializationFailure(pub Option<(FamilyId, KeyOrRange)>);

impl SerializableTxns {
    fn lock_state(&self) -> MutexGuard<'_, SerializableTxnsState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Begins a transaction; `take` takes its snapshot.
    pub fn begin<T>(
        &self,
        read_only: bool,
        take: impl FnOnce() -> (SeqNo, T),
    ) -> (Arc<SerializableTxn>, T) {
        let mut inner = self.lock_state();
        let (snapshot, taken) = take();
        check_slow!(
            snapshot >= inner.visible_seq,
            "a transaction sees all commits that ended before it began",
            snapshot,
            inner.visible_seq
        );
        inner.visible_seq = inner.visible_seq.max(snapshot);
        let txn = Arc::new(SerializableTxn { snapshot, read_only, reads: Mutex::default() });
        inner.active.push(Arc::clone(&txn));
        (txn, taken)
    }
    /// Removes a transaction that was rolled back.
    pub fn remove(&self, txn: &Arc<SerializableTxn>) {
        let mut inner = self.lock_state();
        inner.active.retain(|m| !Arc::ptr_eq(m, txn));
        inner.forget_not_concurrent();
    }
    /// Ends a transaction that wrote nothing.
    ///
    /// # Errors
    /// It has seen a state that no serial order explains.
    pub fn end_read_only(&self, txn: &Arc<SerializableTxn>) -> Result<(), SerializationFailure> {
        let mut inner = self.lock_state();
        if !txn.read_only {
            if txn.snapshot < inner.forgotten_up_to {
                return Err(SerializationFailure(None));
            }
            let reads = txn.reads();
            for e in inner.pivots(txn.snapshot) {
                // The third must have committed before this one began; it committed after the
                // pivot's snapshot.
                if txn.snapshot > e.txn.snapshot
                    && let Some((family, target)) = e.writes.find_read_conflict(&reads)
                {
                    return Err(SerializationFailure(Some((family, target.clone()))));
                }
            }
        }
        // It is relevant to transactions that began before it did.
        inner.record_end(txn, txn.snapshot, WriteSet::default(), false);
        Ok(())
    }
    /// Commits a transaction that wrote `written`. Called in the commit section. `overwritten`: its
    /// reads were overwritten since its snapshot. `next` is the sequence number of the commit.
    ///
    /// # Errors
    /// There might be no serial order that explains what was seen.
    pub fn commit(
        &self,
        txn: &Arc<SerializableTxn>,
        written: WriteSet,
        overwritten: bool,
        next: SeqNo,
    ) -> Result<(), SerializationFailure> {
        let mut inner = self.lock_state();
        check_slow!(
            inner.is_active(txn),
            "a serializable transaction ends once",
            txn.snapshot,
            next
        );
        {
            let reads = txn.reads();
            for e in inner.pivots(txn.snapshot) {
                if let Some((family, target)) = e.writes.find_read_conflict(&reads) {
                    return Err(SerializationFailure(Some((family, target.clone()))));
                }
            }
        }
        inner.visible_seq = inner.visible_seq.max(next.prev());
        if overwritten {
            inner.check_pivot(txn, &written)?;
        }
        inner.record_end(txn, next, written, overwritten);
        Ok(())
    }
    /// Commits a prepared transaction, in the commit section. It was checked when it was prepared;
    /// `docs/transactions.md` explains why no check is left. Its read set must stay known to
    /// concurrent transactions.
    pub fn commit_prepared(&self, txn: &Arc<SerializableTxn>, written: WriteSet, next: SeqNo) {
        let mut inner = self.lock_state();
        check_slow!(
            !inner.is_active(txn),
            "a prepared transaction is not active any more",
            txn.snapshot,
            next
        );
        inner.visible_seq = inner.visible_seq.max(next.prev());
        inner.record_end(txn, next, written, false);
    }
    /// Returns the numbers of active transactions and of ended ones in the list.
    pub fn count(&self) -> (usize, usize) {
        let inner = self.lock_state();
        (inner.active.len(), inner.ended.len())
    }
}

impl SerializableTxnsState {
    fn is_active(&self, txn: &Arc<SerializableTxn>) -> bool {
        self.active.iter().any(|m| Arc::ptr_eq(m, txn))
    }
    /// Returns the committed transactions whose reads were overwritten and whose writes the
    /// snapshot does not see.
    fn pivots(&self, snapshot: SeqNo) -> impl Iterator<Item = &EndedSerializableTxn> {
        self.ended.iter().filter(move |e| e.reads_overwritten && e.commit > snapshot)
    }
    /// Checks that no concurrent transaction has read what `txn`, whose reads were overwritten,
    /// writes.
    fn check_pivot(
        &self,
        txn: &Arc<SerializableTxn>,
        written: &WriteSet,
    ) -> Result<(), SerializationFailure> {
        if txn.snapshot < self.forgotten_up_to {
            return Err(SerializationFailure(None));
        }
        // A read-only transaction is affected if it began after the third, which committed after
        // our snapshot.
        let younger = |m: &SerializableTxn| m.snapshot > txn.snapshot;
        let has_read = |m: &SerializableTxn| {
            written.find_read_conflict(&m.reads()).map(|(family, target)| (family, target.clone()))
        };
        for m in self.active.iter().filter(|m| !Arc::ptr_eq(m, txn)) {
            if m.read_only && younger(m) && !bug::is_active(Bug::ReadOnlyTxnIgnored) {
                return Err(SerializationFailure(None));
            }
            if let Some(hit) = has_read(m) {
                return Err(SerializationFailure(Some(hit)));
            }
        }
        for e in self.ended.iter().filter(|e| e.commit > txn.snapshot) {
            if e.txn.read_only && !bug::is_active(Bug::ReadOnlyTxnIgnored) {
                return Err(SerializationFailure(None));
            }
            if let Some(hit) = has_read(&e.txn) {
                return Err(SerializationFailure(Some(hit)));
            }
        }
        Ok(())
    }
    fn record_end(
        &mut self,
        txn: &Arc<SerializableTxn>,
        commit: SeqNo,
        written: WriteSet,
        overwritten: bool,
    ) {
        check_slow!(
            txn.snapshot <= commit,
            "a transaction commits after its snapshot",
            txn.snapshot,
            commit
        );
        self.active.retain(|m| !Arc::ptr_eq(m, txn));
        let bytes = 256 + written.memory_bytes() + txn.reads().memory_bytes();
        let txn = Arc::clone(txn);
        self.ended.push_back(EndedSerializableTxn {
            txn,
            commit,
            writes: written,
            reads_overwritten: overwritten,
            bytes,
        });
        self.bytes += bytes;
        self.forget_not_concurrent();
        while self.ended.len() > ENDED_TXNS_MAX || self.bytes > ENDED_TXN_BYTES_MAX {
            self.forget_oldest();
        }
    }
    fn forget_oldest(&mut self) {
        if let Some(e) = self.ended.pop_front() {
            self.bytes -= e.bytes;
            self.forgotten_up_to = self.forgotten_up_to.max(e.commit);
        }
    }
    /// Discards the transactions that ended before every active or future transaction began.
    fn forget_not_concurrent(&mut self) {
        let oldest = self
            .active
            .iter()
            .map(|m| m.snapshot)
            .min()
            .unwrap_or(SeqNo::MAX)
            .min(self.visible_seq);
        let bytes = &mut self.bytes;
        self.ended.retain(|e| {
            let is_kept = e.commit > oldest;
            *bytes -= if is_kept { 0 } else { e.bytes };
            is_kept
        });
        check_slow!(
            self.bytes == self.ended.iter().map(|e| e.bytes).sum::<u64>(),
            "the bytes of ended transactions are accounted for",
            self.bytes
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perigee_base::{KeyBoundaryRef, KeyComparator};

    fn begin_txn(all: &SerializableTxns, snapshot: u64) -> Arc<SerializableTxn> {
        all.begin(false, || (SeqNo(snapshot), ())).0
    }
    fn read_key(m: &SerializableTxn, key: &str) {
        m.record_reads(|r| r.add_key(FamilyId(0), KeyComparator::Bytes, key.as_bytes()));
    }
    fn write_set(key: &str) -> WriteSet {
        let hash = KeyComparator::Bytes.filter_hash(key.as_bytes());
        WriteSet(vec![(
            FamilyId(0),
            KeyComparator::Bytes,
            hash,
            KeyOrRange::Key(key.as_bytes().to_vec()),
        )])
    }

    #[test]
    fn overwritten_reader_commits_without_incoming_reads() {
        let all = SerializableTxns::default();
        let (t, other) = (begin_txn(&all, 10), begin_txn(&all, 10));
        read_key(&t, "a");
        read_key(&other, "b");
        assert!(all.commit(&t, write_set("c"), true, SeqNo(20)).is_ok());
        all.remove(&other);
        assert_eq!(all.count(), (0, 1), "it may not be visible yet");
        all.remove(&begin_txn(&all, 20));
        assert_eq!(all.count(), (0, 0));
    }

    #[test]
    fn pivot_is_rejected() {
        let all = SerializableTxns::default();
        let (t, other) = (begin_txn(&all, 10), begin_txn(&all, 10));
        read_key(&t, "a");
        read_key(&other, "b");
        assert!(all.commit(&t, write_set("b"), true, SeqNo(20)).is_err());
        assert!(
            all.commit(&t, write_set("b"), false, SeqNo(20)).is_ok(),
            "its reads were not overwritten"
        );
    }

    #[test]
    fn reader_of_a_committed_pivot_is_rejected() {
        let all = SerializableTxns::default();
        let (t, other, reader) = (begin_txn(&all, 10), begin_txn(&all, 12), begin_txn(&all, 12));
        read_key(&t, "a");
        assert!(all.commit(&t, write_set("b"), true, SeqNo(20)).is_ok());
        other.record_reads(|r| {
            r.add_range(FamilyId(0), KeyBoundaryRef::First..KeyBoundaryRef::Last)
        });
        assert!(all.commit(&other, write_set("z"), false, SeqNo(30)).is_err());
        read_key(&reader, "b");
        assert!(all.end_read_only(&reader).is_err());
        let late = begin_txn(&all, 25);
        read_key(&late, "b");
        assert!(all.end_read_only(&late).is_ok(), "it sees what the pivot wrote");
    }

    #[test]
    fn declared_read_only_txn_is_never_rejected() {
        let all = SerializableTxns::default();
        let t = begin_txn(&all, 10);
        let report = all.begin(true, || (SeqNo(15), ())).0;
        read_key(&t, "a");
        assert!(
            all.commit(&t, write_set("b"), true, SeqNo(20)).is_err(),
            "the report may still read b"
        );
        assert!(all.end_read_only(&report).is_ok());
        assert!(all.commit(&t, write_set("b"), true, SeqNo(21)).is_err(), "it may have read b");
    }

    #[test]
    fn forgetting_ended_txns_causes_only_false_conflicts() {
        let all = SerializableTxns::default();
        let (old, keeps) = (begin_txn(&all, 1), begin_txn(&all, 1));
        for i in 0..ENDED_TXNS_MAX as u64 + 10 {
            let m = begin_txn(&all, 10 + i);
            assert!(all.commit(&m, write_set("x"), false, SeqNo(11 + i)).is_ok());
        }
        assert_eq!(all.count(), (2, ENDED_TXNS_MAX));
        read_key(&old, "a");
        assert!(all.commit(&old, write_set("q"), true, SeqNo(9999)).is_err());
        all.remove(&old);
        all.remove(&keeps);
        all.remove(&begin_txn(&all, 9999));
        assert_eq!(all.count(), (0, 0));
    }
}
