//! Serializable transactions that are under way, and those that have ended but were under way beside one that still is.
//!
//! A cycle of transactions over snapshots always holds two dependencies in a row that go back in time: somebody read what the
//! pivot wrote later, the pivot read what a third wrote later, and the third committed first of the three (Cahill, Röhm,
//! Fekete 2008; Ports and Grittner 2012). So a transaction whose reads were overwritten may commit all the same, if nobody
//! beside it has read what it writes, and a reader is refused only for what such a pivot wrote.
//!
//! Everything here is asked at the end of a transaction, in the commit section or for one that wrote nothing. Who is not
//! serializable never comes here. When the list grows too long its oldest are forgotten, and transactions as old as they are
//! refused whenever their reads were overwritten: false conflicts, never a missed one.

use crate::footprint::{Place, Reads, Written};
use perigee_base::bug::{self, Bug};
use perigee_base::{FamilyId, SeqNo};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// So many ended transactions are remembered, and so many bytes of what they read and wrote.
const ENDED_MAX: usize = 4096;
const ENDED_BYTES_MAX: u64 = 16 << 20;

/// A transaction under way.
#[derive(Debug)]
pub struct Member {
    snapshot: SeqNo,
    /// It has said that it will write nothing: what it reads is not listed, and it is never refused.
    read_only: bool,
    /// Shared with who goes through it: the lock is held for no look at the database.
    reads: Mutex<Arc<Reads>>,
}

impl Member {
    /// One that reads no more.
    pub fn ended(snapshot: SeqNo, reads: Reads) -> Arc<Member> {
        Arc::new(Member { snapshot, read_only: false, reads: Mutex::new(Arc::new(reads)) })
    }
    fn held(&self) -> MutexGuard<'_, Arc<Reads>> {
        self.reads.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// What it has read so far.
    pub fn reads(&self) -> Arc<Reads> {
        Arc::clone(&self.held())
    }
    /// Adds to what it has read. (What is listed after it was read is in time all the same: a pivot that committed in between
    /// is remembered, and looked for when this transaction ends.)
    pub fn list<T>(&self, add: impl FnOnce(&mut Reads) -> T) -> T {
        add(Arc::make_mut(&mut self.held()))
    }
}

/// A transaction that has ended.
#[derive(Debug)]
struct Ended {
    member: Arc<Member>,
    /// Snapshots below see nothing of it; of one that wrote nothing its own snapshot.
    commit: SeqNo,
    written: Written,
    /// What it had read was overwritten when it committed.
    overwritten: bool,
    bytes: u64,
}

#[derive(Debug, Default)]
struct Inner {
    active: Vec<Arc<Member>>,
    ended: std::collections::VecDeque<Ended>,
    bytes: u64,
    /// Ended transactions with commits up to here were forgotten.
    forgotten: SeqNo,
    /// Every snapshot from now on is at least that. (A commit that was checked may not be visible yet.)
    visible: SeqNo,
}

/// All of them.
#[derive(Debug, Default)]
pub struct Registry(Mutex<Inner>);

/// Why a transaction is refused: something that it read or wrote, if that is known.
#[derive(Debug)]
pub struct Refused(pub Option<(FamilyId, Place)>);

impl Registry {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// A transaction begins; `take` takes its snapshot.
    pub fn begin<T>(&self, read_only: bool, take: impl FnOnce() -> (SeqNo, T)) -> (Arc<Member>, T) {
        let mut inner = self.inner();
        let (snapshot, taken) = take();
        inner.visible = inner.visible.max(snapshot);
        let member = Arc::new(Member { snapshot, read_only, reads: Mutex::default() });
        inner.active.push(Arc::clone(&member));
        (member, taken)
    }
    /// One ends that leaves nothing behind.
    pub fn leave(&self, member: &Arc<Member>) {
        let mut inner = self.inner();
        inner.active.retain(|m| !Arc::ptr_eq(m, member));
        inner.forget_the_past();
    }
    /// One ends without a write.
    ///
    /// # Errors
    /// It has seen what no order of transactions explains.
    pub fn end_reading(&self, member: &Arc<Member>) -> Result<(), Refused> {
        let mut inner = self.inner();
        if !member.read_only {
            if member.snapshot < inner.forgotten {
                return Err(Refused(None));
            }
            let reads = member.reads();
            for e in inner.pivots(member.snapshot) {
                // The third must have committed before this one began; it did so behind the pivot's snapshot.
                if member.snapshot > e.member.snapshot
                    && let Some((family, place)) = e.written.meets(&reads)
                {
                    return Err(Refused(Some((family, place.clone()))));
                }
            }
        }
        // It matters to those that began before it did.
        inner.end(member, member.snapshot, Written::default(), false);
        Ok(())
    }
    /// One commits what it `written`, in the commit section; `overwritten`: what it read has been written since its snapshot.
    ///
    /// # Errors
    /// It may not: there might be no order of transactions that explains what was seen.
    pub fn commit(
        &self,
        member: &Arc<Member>,
        written: Written,
        overwritten: bool,
        next: SeqNo,
    ) -> Result<(), Refused> {
        let mut inner = self.inner();
        {
            let reads = member.reads();
            for e in inner.pivots(member.snapshot) {
                if let Some((family, place)) = e.written.meets(&reads) {
                    return Err(Refused(Some((family, place.clone()))));
                }
            }
        }
        inner.visible = inner.visible.max(next.prev());
        if overwritten {
            inner.may_be_pivot(member, &written)?;
        }
        inner.end(member, next, written, overwritten);
        Ok(())
    }
    /// One that was prepared commits, in the commit section. It was checked then: see `docs/transactions.md` for why nothing is left
    /// to check. Those beside it must know what it has read.
    pub fn decided(&self, member: &Arc<Member>, written: Written, next: SeqNo) {
        let mut inner = self.inner();
        inner.visible = inner.visible.max(next.prev());
        inner.end(member, next, written, false);
    }
    /// How many are under way, and how many that have ended are remembered.
    pub fn count(&self) -> (usize, usize) {
        let inner = self.inner();
        (inner.active.len(), inner.ended.len())
    }
}

impl Inner {
    /// Committed transactions whose reads were overwritten, and whose writes a snapshot does not see.
    fn pivots(&self, snapshot: SeqNo) -> impl Iterator<Item = &Ended> {
        self.ended.iter().filter(move |e| e.overwritten && e.commit > snapshot)
    }
    /// Whether nobody beside a transaction, whose reads were overwritten, has read what it writes.
    fn may_be_pivot(&self, member: &Arc<Member>, written: &Written) -> Result<(), Refused> {
        if member.snapshot < self.forgotten {
            return Err(Refused(None));
        }
        // One that only reads is in danger if it began behind the third, which committed behind our snapshot.
        let younger = |m: &Member| m.snapshot > member.snapshot;
        let has_read = |m: &Member| written.meets(&m.reads()).map(|(family, place)| (family, place.clone()));
        for m in self.active.iter().filter(|m| !Arc::ptr_eq(m, member)) {
            if m.read_only && younger(m) && !bug::on(Bug::ReadOnlyUncounted) {
                return Err(Refused(None));
            }
            if let Some(hit) = has_read(m) {
                return Err(Refused(Some(hit)));
            }
        }
        for e in self.ended.iter().filter(|e| e.commit > member.snapshot) {
            if e.member.read_only && !bug::on(Bug::ReadOnlyUncounted) {
                return Err(Refused(None));
            }
            if let Some(hit) = has_read(&e.member) {
                return Err(Refused(Some(hit)));
            }
        }
        Ok(())
    }
    fn end(&mut self, member: &Arc<Member>, commit: SeqNo, written: Written, overwritten: bool) {
        self.active.retain(|m| !Arc::ptr_eq(m, member));
        let bytes = 256 + written.memory_bytes() + member.reads().memory_bytes();
        let member = Arc::clone(member);
        self.ended.push_back(Ended { member, commit, written, overwritten, bytes });
        self.bytes += bytes;
        self.forget_the_past();
        while self.ended.len() > ENDED_MAX || self.bytes > ENDED_BYTES_MAX {
            self.forget_one();
        }
    }
    fn forget_one(&mut self) {
        if let Some(e) = self.ended.pop_front() {
            self.bytes -= e.bytes;
            self.forgotten = self.forgotten.max(e.commit);
        }
    }
    /// Forgets who ended before all that are under way, or may begin now, began.
    fn forget_the_past(&mut self) {
        let oldest = self.active.iter().map(|m| m.snapshot).min().unwrap_or(SeqNo::MAX).min(self.visible);
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
    use perigee_base::KeyOrder;
    use perigee_base::cut::CutRef;

    fn begin(all: &Registry, snapshot: u64) -> Arc<Member> {
        all.begin(false, || (SeqNo(snapshot), ())).0
    }
    fn reads(m: &Member, key: &str) {
        m.list(|r| r.key(FamilyId(0), KeyOrder::Bytes, key.as_bytes()));
    }
    fn writes(key: &str) -> Written {
        let hash = KeyOrder::Bytes.filter_hash(key.as_bytes());
        Written(vec![(FamilyId(0), KeyOrder::Bytes, hash, Place::Key(key.as_bytes().to_vec()))])
    }

    #[test]
    fn an_overwritten_reader_may_commit_if_nobody_read_what_it_writes() {
        let all = Registry::default();
        let (t, other) = (begin(&all, 10), begin(&all, 10));
        reads(&t, "a");
        reads(&other, "b");
        assert!(all.commit(&t, writes("c"), true, SeqNo(20)).is_ok());
        all.leave(&other);
        assert_eq!(all.count(), (0, 1), "it may not be visible yet");
        all.leave(&begin(&all, 20));
        assert_eq!(all.count(), (0, 0));
    }

    #[test]
    fn a_pivot_is_refused() {
        let all = Registry::default();
        let (t, other) = (begin(&all, 10), begin(&all, 10));
        reads(&t, "a");
        reads(&other, "b");
        assert!(all.commit(&t, writes("b"), true, SeqNo(20)).is_err());
        assert!(all.commit(&t, writes("b"), false, SeqNo(20)).is_ok(), "nothing that it read has changed");
    }

    #[test]
    fn who_reads_past_a_pivot_that_has_committed_is_refused() {
        let all = Registry::default();
        let (t, other, reader) = (begin(&all, 10), begin(&all, 12), begin(&all, 12));
        reads(&t, "a");
        assert!(all.commit(&t, writes("b"), true, SeqNo(20)).is_ok());
        other.list(|r| r.range(FamilyId(0), (CutRef::First, CutRef::Last)));
        assert!(all.commit(&other, writes("z"), false, SeqNo(30)).is_err());
        reads(&reader, "b");
        assert!(all.end_reading(&reader).is_err());
        let late = begin(&all, 25);
        reads(&late, "b");
        assert!(all.end_reading(&late).is_ok(), "it sees what the pivot wrote");
    }

    #[test]
    fn one_that_only_reads_is_never_refused() {
        let all = Registry::default();
        let t = begin(&all, 10);
        let report = all.begin(true, || (SeqNo(15), ())).0;
        reads(&t, "a");
        assert!(all.commit(&t, writes("b"), true, SeqNo(20)).is_err(), "the report may read b");
        assert!(all.end_reading(&report).is_ok());
        assert!(all.commit(&t, writes("b"), true, SeqNo(21)).is_err(), "it may have read b");
    }

    #[test]
    fn what_is_forgotten_makes_false_conflicts_only() {
        let all = Registry::default();
        let (old, keeps) = (begin(&all, 1), begin(&all, 1));
        for i in 0..ENDED_MAX as u64 + 10 {
            let m = begin(&all, 10 + i);
            assert!(all.commit(&m, writes("x"), false, SeqNo(11 + i)).is_ok());
        }
        assert_eq!(all.count(), (2, ENDED_MAX));
        reads(&old, "a");
        assert!(all.commit(&old, writes("q"), true, SeqNo(9999)).is_err());
        all.leave(&old);
        all.leave(&keeps);
        all.leave(&begin(&all, 9999));
        assert_eq!(all.count(), (0, 0));
    }
}
