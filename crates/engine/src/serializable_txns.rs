//! Serializable transactions that are under way, and those that have ended but were under way
//! beside one that still is.
//!
//! A cycle of transactions over snapshots always holds two dependencies in a row that go back in
//! time: somebody read what the pivot wrote later, the pivot read what a third wrote later, and the
//! third committed first of the three (Cahill, Röhm, Fekete 2008; Ports and Grittner 2012). So a
//! transaction whose reads were overwritten may commit all the same, if nobody beside it has read
//! what it writes, and a reader is refused only for what such a pivot wrote.
//!
//! Everything here is asked at the end of a transaction, in the commit section or for one that
//! wrote nothing. Who is not serializable never comes here. When the list grows too long its oldest
//! are forgotten, and transactions as old as they are refused whenever their reads were
//! overwritten: false conflicts, never a missed one.

use crate::read_write_sets::{KeyOrRange, ReadSet, WriteSet};
use perigee_base::bug::{self, Bug};
use perigee_base::{FamilyId, SeqNo};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// So many ended transactions are remembered, and so many bytes of what they read and wrote.
const ENDED_MAX: usize = 4096;
const ENDED_BYTES_MAX: u64 = 16 << 20;

/// A transaction under way.
#[derive(Debug)]
pub struct SerializableTxn {
    snapshot: SeqNo,
    /// It has said that it will write nothing: what it reads is not listed, and it is never
    /// refused.
    read_only: bool,
    /// Shared with who goes through it: the lock is held for no look at the database.
    reads: Mutex<Arc<ReadSet>>,
}

impl SerializableTxn {
    /// One that reads no more.
    pub fn with_reads(snapshot: SeqNo, reads: ReadSet) -> Arc<SerializableTxn> {
        Arc::new(SerializableTxn { snapshot, read_only: false, reads: Mutex::new(Arc::new(reads)) })
    }
    fn lock_reads(&self) -> MutexGuard<'_, Arc<ReadSet>> {
        self.reads.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// What it has read so far.
    pub fn reads(&self) -> Arc<ReadSet> {
        Arc::clone(&self.lock_reads())
    }
    /// Adds to what it has read. (What is listed after it was read is in time all the same: a pivot
    /// that committed in between is remembered, and looked for when this transaction ends.)
    pub fn record_reads<T>(&self, add: impl FnOnce(&mut ReadSet) -> T) -> T {
        add(Arc::make_mut(&mut self.lock_reads()))
    }
}

/// A transaction that has ended.
#[derive(Debug)]
struct EndedSerializableTxn {
    txn: Arc<SerializableTxn>,
    /// Snapshots below see nothing of it; of one that wrote nothing its own snapshot.
    commit: SeqNo,
    writes: WriteSet,
    /// What it had read was overwritten when it committed.
    reads_overwritten: bool,
    bytes: u64,
}

#[derive(Debug, Default)]
struct SerializableTxnsState {
    active: Vec<Arc<SerializableTxn>>,
    ended: std::collections::VecDeque<EndedSerializableTxn>,
    bytes: u64,
    /// Ended transactions with commits up to here were forgotten.
    forgotten_up_to: SeqNo,
    /// Every snapshot from now on is at least that. (A commit that was checked may not be visible
    /// yet.)
    visible_seq: SeqNo,
}

/// All of them.
#[derive(Debug, Default)]
pub struct SerializableTxns(Mutex<SerializableTxnsState>);

/// Why a transaction is refused: something that it read or wrote, if that is known.
#[derive(Debug)]
pub struct SerializationFailure(pub Option<(FamilyId, KeyOrRange)>);

impl SerializableTxns {
    fn lock_state(&self) -> MutexGuard<'_, SerializableTxnsState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// A transaction begins; `take` takes its snapshot.
    pub fn begin<T>(
        &self,
        read_only: bool,
        take: impl FnOnce() -> (SeqNo, T),
    ) -> (Arc<SerializableTxn>, T) {
        let mut inner = self.lock_state();
        let (snapshot, taken) = take();
        inner.visible_seq = inner.visible_seq.max(snapshot);
        let member = Arc::new(SerializableTxn { snapshot, read_only, reads: Mutex::default() });
        inner.active.push(Arc::clone(&member));
        (member, taken)
    }
    /// One ends that leaves nothing behind.
    pub fn remove(&self, member: &Arc<SerializableTxn>) {
        let mut inner = self.lock_state();
        inner.active.retain(|m| !Arc::ptr_eq(m, member));
        inner.forget_not_concurrent();
    }
    /// One ends without a write.
    ///
    /// # Errors
    /// It has seen what no order of transactions explains.
    pub fn end_read_only(&self, member: &Arc<SerializableTxn>) -> Result<(), SerializationFailure> {
        let mut inner = self.lock_state();
        if !member.read_only {
            if member.snapshot < inner.forgotten_up_to {
                return Err(SerializationFailure(None));
            }
            let reads = member.reads();
            for e in inner.pivots(member.snapshot) {
                // The third must have committed before this one began; it did so behind the pivot's
                // snapshot.
                if member.snapshot > e.txn.snapshot
                    && let Some((family, place)) = e.writes.find_read_conflict(&reads)
                {
                    return Err(SerializationFailure(Some((family, place.clone()))));
                }
            }
        }
        // It matters to those that began before it did.
        inner.record_end(member, member.snapshot, WriteSet::default(), false);
        Ok(())
    }
    /// One commits what it `written`, in the commit section; `overwritten`: what it read has been
    /// written since its snapshot.
    ///
    /// # Errors
    /// It may not: there might be no order of transactions that explains what was seen.
    pub fn commit(
        &self,
        member: &Arc<SerializableTxn>,
        written: WriteSet,
        overwritten: bool,
        next: SeqNo,
    ) -> Result<(), SerializationFailure> {
        let mut inner = self.lock_state();
        {
            let reads = member.reads();
            for e in inner.pivots(member.snapshot) {
                if let Some((family, place)) = e.writes.find_read_conflict(&reads) {
                    return Err(SerializationFailure(Some((family, place.clone()))));
                }
            }
        }
        inner.visible_seq = inner.visible_seq.max(next.prev());
        if overwritten {
            inner.check_pivot(member, &written)?;
        }
        inner.record_end(member, next, written, overwritten);
        Ok(())
    }
    /// One that was prepared commits, in the commit section. It was checked then: see
    /// `docs/transactions.md` for why nothing is left to check. Those beside it must know what it
    /// has read.
    pub fn commit_prepared(&self, member: &Arc<SerializableTxn>, written: WriteSet, next: SeqNo) {
        let mut inner = self.lock_state();
        inner.visible_seq = inner.visible_seq.max(next.prev());
        inner.record_end(member, next, written, false);
    }
    /// How many are under way, and how many that have ended are remembered.
    pub fn count(&self) -> (usize, usize) {
        let inner = self.lock_state();
        (inner.active.len(), inner.ended.len())
    }
}

impl SerializableTxnsState {
    /// Committed transactions whose reads were overwritten, and whose writes a snapshot does not
    /// see.
    fn pivots(&self, snapshot: SeqNo) -> impl Iterator<Item = &EndedSerializableTxn> {
        self.ended.iter().filter(move |e| e.reads_overwritten && e.commit > snapshot)
    }
    /// Whether nobody beside a transaction, whose reads were overwritten, has read what it writes.
    fn check_pivot(
        &self,
        member: &Arc<SerializableTxn>,
        written: &WriteSet,
    ) -> Result<(), SerializationFailure> {
        if member.snapshot < self.forgotten_up_to {
            return Err(SerializationFailure(None));
        }
        // One that only reads is in danger if it began behind the third, which committed behind our
        // snapshot.
        let younger = |m: &SerializableTxn| m.snapshot > member.snapshot;
        let has_read = |m: &SerializableTxn| {
            written.find_read_conflict(&m.reads()).map(|(family, place)| (family, place.clone()))
        };
        for m in self.active.iter().filter(|m| !Arc::ptr_eq(m, member)) {
            if m.read_only && younger(m) && !bug::is_active(Bug::ReadOnlyUncounted) {
                return Err(SerializationFailure(None));
            }
            if let Some(hit) = has_read(m) {
                return Err(SerializationFailure(Some(hit)));
            }
        }
        for e in self.ended.iter().filter(|e| e.commit > member.snapshot) {
            if e.txn.read_only && !bug::is_active(Bug::ReadOnlyUncounted) {
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
        member: &Arc<SerializableTxn>,
        commit: SeqNo,
        written: WriteSet,
        overwritten: bool,
    ) {
        self.active.retain(|m| !Arc::ptr_eq(m, member));
        let bytes = 256 + written.memory_bytes() + member.reads().memory_bytes();
        let member = Arc::clone(member);
        self.ended.push_back(EndedSerializableTxn {
            txn: member,
            commit,
            writes: written,
            reads_overwritten: overwritten,
            bytes,
        });
        self.bytes += bytes;
        self.forget_not_concurrent();
        while self.ended.len() > ENDED_MAX || self.bytes > ENDED_BYTES_MAX {
            self.forget_oldest();
        }
    }
    fn forget_oldest(&mut self) {
        if let Some(e) = self.ended.pop_front() {
            self.bytes -= e.bytes;
            self.forgotten_up_to = self.forgotten_up_to.max(e.commit);
        }
    }
    /// Forgets who ended before all that are under way, or may begin now, began.
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
            let stays = e.commit > oldest;
            *bytes -= if stays { 0 } else { e.bytes };
            stays
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perigee_base::KeyComparator;
    use perigee_base::key_boundary::KeyBoundaryRef;

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
            "nothing that it read has changed"
        );
    }

    #[test]
    fn reader_of_a_committed_pivot_is_rejected() {
        let all = SerializableTxns::default();
        let (t, other, reader) = (begin_txn(&all, 10), begin_txn(&all, 12), begin_txn(&all, 12));
        read_key(&t, "a");
        assert!(all.commit(&t, write_set("b"), true, SeqNo(20)).is_ok());
        other.record_reads(|r| {
            r.add_range(FamilyId(0), (KeyBoundaryRef::First, KeyBoundaryRef::Last))
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
        assert!(all.commit(&t, write_set("b"), true, SeqNo(20)).is_err(), "the report may read b");
        assert!(all.end_read_only(&report).is_ok());
        assert!(all.commit(&t, write_set("b"), true, SeqNo(21)).is_err(), "it may have read b");
    }

    #[test]
    fn forgetting_ended_txns_causes_only_false_conflicts() {
        let all = SerializableTxns::default();
        let (old, keeps) = (begin_txn(&all, 1), begin_txn(&all, 1));
        for i in 0..ENDED_MAX as u64 + 10 {
            let m = begin_txn(&all, 10 + i);
            assert!(all.commit(&m, write_set("x"), false, SeqNo(11 + i)).is_ok());
        }
        assert_eq!(all.count(), (2, ENDED_MAX));
        read_key(&old, "a");
        assert!(all.commit(&old, write_set("q"), true, SeqNo(9999)).is_err());
        all.remove(&old);
        all.remove(&keeps);
        all.remove(&begin_txn(&all, 9999));
        assert_eq!(all.count(), (0, 0));
    }
}
