//! Undecided prepared transactions, and what they lock out: until the decision, no other
//! transaction may write what one of them wrote, or what it read if its isolation level checks
//! reads. So the decision to commit can never fail because of a conflict.
//!
//! 1. A transaction enters and leaves the list in the commit section, where writers check it. (It
//!    leaves outside the commit section if its prepare record did not reach the log: until then
//!    there can be false conflicts.)
//! 2. Its record in the log has the sequence number [`PreparedTxn::lsn`]; the segment that contains
//!    it is kept, unless a later one has a copy.
//! 3. Once it is decided, its record can go, but not before the decision is durable: log segments
//!    are removed only when the log is synced up to [`PreparedTxns::last_decision`].
//! 4. While there are no prepared transactions, a writer only reads one counter.
//! 5. One that was larger than memory has no record in the log: the manifest has it. What it wrote
//!    is in its tables, which the callers search ([`PreparedTxns::spilled_in`]).
//!
//! Independent of the log, column families and commits. The mutex guards the list; no I/O while it
//! is held.

use crate::txn::prepared_txn::PreparedTxn;
use crate::txn::read_write_sets::KeyOrRangeRef;
use perigee_base::{AtomicSeqNo, Error, ErrorKind, FamilyId, KeyComparator, Result, SeqNo};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Formats an identifier as text.
pub fn display_gid(gid: &[u8]) -> String {
    format!("\"{}\"", gid.escape_ascii())
}

/// A prepared transaction that conflicts with a request, and the key.
#[derive(Debug)]
pub struct PreparedConflict {
    /// The transaction.
    pub gid: Vec<u8>,
    /// The key, or the beginning of the range.
    pub key: Vec<u8>,
}

#[derive(Debug)]
struct PreparedEntry {
    txn: Arc<PreparedTxn>,
    /// A thread is deciding it.
    claimed: bool,
}

#[derive(Debug, Default)]
struct PreparedTxnsState {
    by_gid: BTreeMap<Vec<u8>, PreparedEntry>,
    /// Identifiers of transactions that are being prepared.
    reserved: BTreeSet<Vec<u8>>,
    /// The transactions that touch a column family.
    by_family: HashMap<FamilyId, Vec<Arc<PreparedTxn>>>,
    /// The keys that they guard, by a hash that equal keys share: the transaction, true if written
    /// (false if read), and the index in its list.
    keys: HashMap<(FamilyId, u64), Vec<(Arc<PreparedTxn>, bool, usize)>>,
}

impl PreparedTxnsState {
    fn check_gid_free(&self, gid: &[u8]) -> Result<()> {
        if self.by_gid.contains_key(gid) || self.reserved.contains(gid) {
            let text = format!(
                "there is already a prepared transaction {}: choose another identifier",
                display_gid(gid)
            );
            return Err(Error::new(ErrorKind::AlreadyExists, text));
        }
        Ok(())
    }
    /// Returns true if the two indexes lead to exactly what the transactions in `by_gid` guard.
    fn indexes_match_owners(&self) -> bool {
        let is_owner = |txn: &Arc<PreparedTxn>| {
            self.by_gid.get(&txn.gid).is_some_and(|entry| Arc::ptr_eq(&entry.txn, txn))
        };
        let guards = || self.by_gid.values().flat_map(|entry| entry.txn.guards.values());
        let guarded_keys = guards().flat_map(|g| g.guarded_sets(true)).map(|side| side.keys.len());
        self.by_family.values().flatten().all(is_owner)
            && self.keys.values().flatten().all(|(txn, ..)| is_owner(txn))
            && self.by_family.values().map(Vec::len).sum::<usize>() == guards().count()
            && self.keys.values().map(Vec::len).sum::<usize>() == guarded_keys.sum()
    }
}

/// Reservation of an identifier for a transaction that is being prepared. When it is dropped the
/// identifier is free again, unless the transaction was inserted.
#[derive(Debug)]
pub struct GidReservation<'a> {
    txns: &'a PreparedTxns,
    gid: &'a [u8],
}

impl Drop for GidReservation<'_> {
    fn drop(&mut self) {
        self.txns.lock_state().reserved.remove(self.gid);
    }
}

/// All prepared transactions.
#[derive(Debug, Default)]
pub struct PreparedTxns {
    count: AtomicUsize,
    last_decision: AtomicSeqNo,
    state: Mutex<PreparedTxnsState>,
}

impl PreparedTxns {
    fn lock_state(&self) -> MutexGuard<'_, PreparedTxnsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Returns true if there are prepared transactions. Exact in the commit section.
    #[inline]
    pub fn has_any(&self) -> bool {
        self.count.load(Relaxed) > 0
    }
    /// Reserves an identifier for a transaction to be prepared.
    pub fn reserve_gid<'a>(&'a self, gid: &'a [u8]) -> Result<GidReservation<'a>> {
        let mut inner = self.lock_state();
        inner.check_gid_free(gid)?;
        inner.reserved.insert(gid.to_vec());
        Ok(GidReservation { txns: self, gid })
    }
    /// Adds a prepared transaction: from now on, writes to what it wrote or read conflict. Its
    /// identifier is reserved, or no other thread uses the database yet.
    pub fn insert(&self, txn: &Arc<PreparedTxn>) -> Result<()> {
        let mut inner = self.lock_state();
        if inner.by_gid.contains_key(&txn.gid) {
            return inner.check_gid_free(&txn.gid);
        }
        for (family, guards) in &txn.guards {
            inner.by_family.entry(*family).or_default().push(Arc::clone(txn));
            for (side, wrote) in [(&guards.written, true), (&guards.read, false)] {
                for (i, key) in side.keys.iter().enumerate() {
                    let same = inner
                        .keys
                        .entry((*family, guards.comparator.equality_hash(key)))
                        .or_default();
                    same.push((Arc::clone(txn), wrote, i));
                }
            }
        }
        let entry = PreparedEntry { txn: Arc::clone(txn), claimed: false };
        inner.by_gid.insert(txn.gid.clone(), entry);
        self.count.store(inner.by_gid.len(), Relaxed);
        check_slow!(
            inner.indexes_match_owners(),
            "guarded keys and ranges belong to prepared transactions",
            txn.gid
        );
        Ok(())
    }
    /// Removes a transaction that was decided, or whose preparation failed.
    pub fn remove(&self, txn: &Arc<PreparedTxn>) {
        let mut inner = self.lock_state();
        let known = inner.by_gid.get(&txn.gid);
        if !known.is_some_and(|e| Arc::ptr_eq(&e.txn, txn)) {
            return;
        }
        inner.by_gid.remove(&txn.gid);
        for (family, guards) in &txn.guards {
            if let Some(all) = inner.by_family.get_mut(family) {
                all.retain(|u| !Arc::ptr_eq(u, txn));
                if all.is_empty() {
                    inner.by_family.remove(family);
                }
            }
            for key in guards.guarded_sets(true).flat_map(|side| &side.keys) {
                let at = (*family, guards.comparator.equality_hash(key));
                if let Some(same) = inner.keys.get_mut(&at) {
                    same.retain(|(u, ..)| !Arc::ptr_eq(u, txn));
                    if same.is_empty() {
                        inner.keys.remove(&at);
                    }
                }
            }
        }
        self.count.store(inner.by_gid.len(), Relaxed);
        check_slow!(inner.indexes_match_owners(), "a decided transaction guards nothing", txn.gid);
    }
    /// Records that the log contains a decision up to this sequence number. Called in the commit
    /// section.
    pub fn record_decision(&self, last: SeqNo) {
        check!(
            self.last_decision() < last,
            "a decision follows the decisions before it",
            self.last_decision(),
            last
        );
        self.last_decision.store(last, Relaxed);
    }
    /// Returns the last sequence number of the newest decision since the open, which may not be
    /// durable yet. Exact in the commit section.
    pub fn last_decision(&self) -> SeqNo {
        self.last_decision.load(Relaxed)
    }
    /// Returns the transaction with this identifier and claims its decision: no other thread can
    /// decide it until the claim is released.
    ///
    /// # Errors
    /// `NotFound`; `Busy` if another thread is deciding it.
    pub fn claim_decision(&self, gid: &[u8]) -> Result<Arc<PreparedTxn>> {
        let mut inner = self.lock_state();
        let Some(entry) = inner.by_gid.get_mut(gid).filter(|e| e.txn.lsn() != SeqNo::MAX) else {
            let text = format!(
                "there is no prepared transaction {}: it was decided, or never prepared",
                display_gid(gid)
            );
            return Err(Error::new(ErrorKind::NotFound, text));
        };
        if std::mem::replace(&mut entry.claimed, true) {
            let text =
                format!("the transaction {} is being decided by another thread", display_gid(gid));
            return Err(Error::new(ErrorKind::Busy, text));
        }
        Ok(Arc::clone(&entry.txn))
    }
    /// Releases the claim after a failed decision.
    pub fn release_claim(&self, txn: &PreparedTxn) {
        if let Some(entry) = self.lock_state().by_gid.get_mut(&txn.gid) {
            check!(
                entry.claimed || !std::ptr::eq(&*entry.txn, txn),
                "a decision is claimed until it is made or has failed",
                txn.gid
            );
            entry.claimed = false;
        }
    }
    /// Returns all that are in the log, by identifier.
    pub fn all(&self) -> Vec<Arc<PreparedTxn>> {
        let inner = self.lock_state();
        let entries = inner.by_gid.values().map(|e| &e.txn);
        entries.filter(|u| u.lsn() != SeqNo::MAX).cloned().collect()
    }
    /// Returns those of [`PreparedTxns::all`] that have a record in the log.
    pub fn all_logged(&self) -> Vec<Arc<PreparedTxn>> {
        let mut all = self.all();
        all.retain(|u| u.spilled().is_none());
        all
    }
    /// Returns all, including those that are not durable yet.
    pub fn all_guarding(&self) -> Vec<Arc<PreparedTxn>> {
        self.lock_state().by_gid.values().map(|e| Arc::clone(&e.txn)).collect()
    }
    /// Returns those with tables in the column family, including those that are not durable yet.
    pub fn spilled_in(&self, family: FamilyId) -> Vec<Arc<PreparedTxn>> {
        let inner = self.lock_state();
        let touching = inner.by_family.get(&family).map_or(&[][..], |all| all);
        touching.iter().filter(|u| u.spilled().is_some()).cloned().collect()
    }
    /// Returns the sequence number of the oldest record that must stay in the log. Called in the
    /// commit section.
    pub fn oldest_lsn(&self) -> Option<SeqNo> {
        self.all_logged().iter().map(|u| u.lsn()).min()
    }
    /// Returns the bytes of all records in the log from `lsn` on. Called in the commit section.
    pub fn log_bytes(&self, lsn: SeqNo) -> u64 {
        if !self.has_any() {
            return 0;
        }
        self.all().iter().filter(|u| u.lsn() >= lsn).map(|u| u.log_bytes()).sum()
    }
    /// Returns a transaction that touches the column family, if any.
    pub fn find_by_family(&self, family: FamilyId) -> Option<Arc<PreparedTxn>> {
        self.all().into_iter().find(|u| u.touches_family(family))
    }
    /// Returns a transaction that wrote something in `target`, except in tables; with `writes`, also
    /// returns one that read it.
    pub fn find_conflict(
        &self,
        family: FamilyId,
        comparator: KeyComparator,
        target: KeyOrRangeRef<'_>,
        writes: bool,
    ) -> Option<PreparedConflict> {
        let inner = self.lock_state();
        let conflict = |u: &Arc<PreparedTxn>, key: &[u8]| PreparedConflict {
            gid: u.gid.clone(),
            key: key.to_vec(),
        };
        let touching = inner.by_family.get(&family).map_or(&[][..], |all| all);
        let sides = touching.iter().flat_map(|u| u.guards.get(&family).map(|g| (u, g)));
        let mut sides = sides.flat_map(|(u, g)| g.guarded_sets(writes).map(move |side| (u, side)));
        match target {
            KeyOrRangeRef::Key(key) => {
                let same = inner
                    .keys
                    .get(&(family, comparator.equality_hash(key)))
                    .map_or(&[][..], |same| same);
                let equal = |u: &PreparedTxn, wrote: bool, i: usize| {
                    let side =
                        u.guards.get(&family).map(|g| if wrote { &g.written } else { &g.read });
                    side.and_then(|s| s.keys.get(i)).is_some_and(|k| comparator.keys_equal(k, key))
                };
                let same =
                    same.iter().find(|(u, wrote, i)| (writes || *wrote) && equal(u, *wrote, *i));
                let mut in_range = || {
                    sides
                        .find(|(_, side)| side.find_overlapping_range(comparator, target).is_some())
                };
                same.map(|(u, ..)| u)
                    .or_else(|| in_range().map(|(u, _)| u))
                    .map(|u| conflict(u, key))
            }
            KeyOrRangeRef::Range(begin, end) => sides.find_map(|(u, side)| {
                let hit = side.find_key_in_range(comparator, begin..end);
                hit.or_else(|| side.find_overlapping_range(comparator, target))
                    .map(|t| conflict(u, t.start_key()))
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::txn::prepared_txn::SERIALIZABLE_CODE;
    use perigee_base::KeyBoundaryRef;
    use perigee_file::log::{Batch, ClaimTarget, PrepareHeader, PreparedClaim, encode_prepare};

    const FAMILY: FamilyId = FamilyId(0);

    /// Returns a transaction that wrote `key` and everything from "x" on, and has read `read`.
    fn prepared_txn(gid: &str, key: &str, read: &str) -> Arc<PreparedTxn> {
        let mut batch = Batch::new();
        batch.put(FAMILY, key.as_bytes(), b"v").unwrap();
        batch.delete_range(FAMILY, KeyBoundaryRef::Before(b"x"), KeyBoundaryRef::Last).unwrap();
        let finished = batch.finish();
        let head = PrepareHeader {
            gid: gid.as_bytes(),
            isolation_level: SERIALIZABLE_CODE,
            prepared_at_ms: 1,
            op_count: 2,
        };
        let on = ClaimTarget::Key(read.as_bytes());
        let claims = |visit: &mut dyn FnMut(PreparedClaim<'_>)| {
            visit(PreparedClaim { family: FAMILY, mode: 0, target: on })
        };
        let record =
            encode_prepare(head, &claims, &finished.buf[finished.payload_range()]).unwrap();
        let payload = Arc::new(record.buf[record.payload_range()].to_vec());
        let made = PreparedTxn::decode(payload, &|_| Some(KeyComparator::Bytes), 1).unwrap();
        made.set_lsn(SeqNo(7));
        Arc::new(made)
    }

    fn has_conflict(all: &PreparedTxns, key: &str, writes: bool) -> bool {
        all.find_conflict(FAMILY, KeyComparator::Bytes, KeyOrRangeRef::Key(key.as_bytes()), writes)
            .is_some()
    }

    #[test]
    fn reads_and_writes_are_guarded_until_the_decision() {
        let all = PreparedTxns::default();
        let one = prepared_txn("g", "a", "b");
        all.insert(&one).unwrap();
        assert_eq!(
            all.insert(&prepared_txn("g", "c", "d")).unwrap_err().kind(),
            ErrorKind::AlreadyExists
        );
        assert!(
            has_conflict(&all, "a", true)
                && has_conflict(&all, "b", true)
                && has_conflict(&all, "y", true)
                && !has_conflict(&all, "c", true)
        );
        assert!(
            has_conflict(&all, "a", false) && !has_conflict(&all, "b", false),
            "a reader conflicts with writes only"
        );
        let range = |begin, end| {
            let target =
                KeyOrRangeRef::Range(KeyBoundaryRef::Before(begin), KeyBoundaryRef::Before(end));
            all.find_conflict(FAMILY, KeyComparator::Bytes, target, true).map(|m| m.key)
        };
        assert_eq!((range(b"a", b"b"), range(b"c", b"x")), (Some(b"a".to_vec()), None));
        assert!(
            all.find_conflict(FamilyId(1), KeyComparator::Bytes, KeyOrRangeRef::Key(b"a"), true)
                .is_none()
        );
        assert_eq!(
            (all.has_any(), all.oldest_lsn(), all.find_by_family(FAMILY).is_some()),
            (true, Some(SeqNo(7)), true)
        );
        all.remove(&one);
        assert!(!all.has_any() && !has_conflict(&all, "a", true) && !has_conflict(&all, "y", true));
        assert!(all.lock_state().keys.is_empty() && all.lock_state().by_family.is_empty());
    }

    #[test]
    fn reserved_gid_cannot_be_reserved_again() {
        let all = PreparedTxns::default();
        let first = all.reserve_gid(b"g").unwrap();
        assert_eq!(all.reserve_gid(b"g").unwrap_err().kind(), ErrorKind::AlreadyExists);
        all.insert(&prepared_txn("g", "a", "b")).unwrap();
        drop(first);
        assert_eq!(all.reserve_gid(b"g").unwrap_err().kind(), ErrorKind::AlreadyExists);
        drop(all.reserve_gid(b"h").unwrap());
        drop(all.reserve_gid(b"h").unwrap());
    }

    #[test]
    fn only_one_thread_decides_a_transaction() {
        let all = PreparedTxns::default();
        let one = prepared_txn("g", "a", "b");
        assert_eq!(all.claim_decision(b"g").unwrap_err().kind(), ErrorKind::NotFound);
        all.insert(&one).unwrap();
        let claimed = all.claim_decision(b"g").unwrap();
        assert_eq!(all.claim_decision(b"g").unwrap_err().kind(), ErrorKind::Busy);
        all.release_claim(&claimed);
        assert!(all.claim_decision(b"g").is_ok());
        all.remove(&prepared_txn("g", "a", "b"));
        assert!(
            all.has_any(),
            "removing another transaction with the same identifier has no effect"
        );
    }
}
