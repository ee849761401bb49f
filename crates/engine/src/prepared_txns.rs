//! Undecided prepared transactions, and what they lock out: until the decision, no other
//! transaction may write what one of them wrote, or what it read if its isolation level checks
//! reads. So the decision to commit can never fail because of a conflict.
//!
//! 1. A transaction enters and leaves the list in the commit section, where writers check it. (It
//!    leaves outside the commit section if its prepare record did not reach the log: until then
//!    there can be false conflicts.)
//! 2. Its record in the log has the sequence number [`PreparedTxn::lsn`]; the segment that contains
//!    it is kept, unless a later one has a copy.
//! 3. While there are no prepared transactions, a writer only reads one counter.
//!
//! Independent of the log, column families and commits. The mutex guards the list; no I/O while it
//! is held.

use crate::locks::{LockManager, LockMode, LockOwner, TxnLocks};
use crate::read_write_sets::{KeyOrRange, KeyOrRangeRef, ReadSet};
use crate::serializable_txns::SerializableTxn;
use perigee_base::key_boundary::{KeyBoundary, KeyBoundaryRef};
use perigee_base::{AtomicSeqNo, Error, ErrorKind, FamilyId, KeyComparator, Result, SeqNo};
use perigee_file::log::{BatchOps, ClaimTarget, PrepareHeader, PrepareRecord};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Code of the level serializable, the largest valid code.
pub const SERIALIZABLE_CODE: u8 = 4;

/// Returns an error for an isolation level that this version does not know.
pub fn check_isolation_code(level: u8) -> Result<()> {
    if level > SERIALIZABLE_CODE {
        let text = "a prepared transaction has an isolation level that this version does not know: \
        open the database with a newer Perigee";
        return Err(Error::new(ErrorKind::FormatTooNew, text)
            .expected(format_args!("0 to {SERIALIZABLE_CODE}"), level));
    }
    Ok(())
}

/// Returns an error if a record does not hold as many operations as its header says.
pub fn check_operation_count(header: &PrepareHeader<'_>, found: u32) -> Result<()> {
    let expected = header.op_count;
    if expected != found {
        let e = Error::corruption(
            "a prepared transaction has a different number of operations than its header says",
        );
        return Err(e.expected(expected, found));
    }
    Ok(())
}

/// Keys and ranges of one column family that other transactions may not write, in comparator order.
#[derive(Debug, Default)]
struct GuardedKeys {
    keys: Vec<Vec<u8>>,
    /// Ascending and disjoint.
    ranges: Vec<(KeyBoundary, KeyBoundary)>,
}

impl GuardedKeys {
    fn add(&mut self, target: KeyOrRangeRef<'_>) {
        match target {
            KeyOrRangeRef::Key(key) => self.keys.push(key.to_vec()),
            KeyOrRangeRef::Range(begin, end) => {
                self.ranges.push((begin.to_boundary(), end.to_boundary()))
            }
        }
    }
    /// Sorts the keys and ranges; merges overlapping ranges.
    fn normalize(&mut self, comparator: KeyComparator) {
        self.keys.sort_unstable_by(|a, b| comparator.cmp(a, b));
        self.keys.dedup_by(|a, b| comparator.keys_equal(a, b));
        let mut ranges = std::mem::take(&mut self.ranges);
        ranges.retain(|(begin, end)| begin.as_ref().cmp(comparator, end.as_ref()).is_lt());
        ranges.sort_unstable_by(|a, b| a.0.as_ref().cmp(comparator, b.0.as_ref()));
        for (begin, end) in ranges {
            match self
                .ranges
                .last_mut()
                .filter(|r| begin.as_ref().cmp(comparator, r.1.as_ref()).is_le())
            {
                Some(last) if last.1.as_ref().cmp(comparator, end.as_ref()).is_lt() => last.1 = end,
                Some(_) => {}
                None => self.ranges.push((begin, end)),
            }
        }
    }
    /// Returns a range that overlaps `target`: only the first one that does not end before it can.
    fn find_overlapping_range(
        &self,
        comparator: KeyComparator,
        target: KeyOrRangeRef<'_>,
    ) -> Option<KeyOrRangeRef<'_>> {
        let before = |end: KeyBoundaryRef<'_>| match target {
            KeyOrRangeRef::Key(key) => end.is_before(comparator, key),
            KeyOrRangeRef::Range(begin, _) => end.cmp(comparator, begin).is_le(),
        };
        let at = self.ranges.partition_point(|(_, end)| before(end.as_ref()));
        let (begin, end) = self.ranges.get(at)?;
        let range = KeyOrRangeRef::Range(begin.as_ref(), end.as_ref());
        range.overlaps(comparator, target).then_some(range)
    }
    /// Returns a key in a range: only the first one after the beginning of the range can be.
    fn find_key_in_range(
        &self,
        comparator: KeyComparator,
        range: Range<KeyBoundaryRef<'_>>,
    ) -> Option<KeyOrRangeRef<'_>> {
        let at = self.keys.partition_point(|key| !range.start.is_before(comparator, key));
        let key = KeyOrRangeRef::Key(self.keys.get(at)?);
        key.overlaps(comparator, KeyOrRangeRef::Range(range.start, range.end)).then_some(key)
    }
    fn targets(&self) -> impl Iterator<Item = KeyOrRangeRef<'_>> {
        let keys = self.keys.iter().map(|k| KeyOrRangeRef::Key(k));
        keys.chain(self.ranges.iter().map(|(b, e)| KeyOrRangeRef::Range(b.as_ref(), e.as_ref())))
    }
}

/// The guarded keys of a transaction in one column family.
#[derive(Debug)]
struct FamilyGuards {
    comparator: KeyComparator,
    written: GuardedKeys,
    read: GuardedKeys,
}

impl FamilyGuards {
    fn guarded_sets(&self, writes: bool) -> impl Iterator<Item = &GuardedKeys> {
        std::iter::once(&self.written).chain(writes.then_some(&self.read))
    }
}

fn to_key_or_range(target: KeyOrRangeRef<'_>) -> KeyOrRange {
    match target {
        KeyOrRangeRef::Key(key) => KeyOrRange::Key(key.to_vec()),
        KeyOrRangeRef::Range(begin, end) => {
            KeyOrRange::Range(begin.to_boundary(), end.to_boundary())
        }
    }
}

/// A prepared transaction.
#[derive(Debug)]
pub struct PreparedTxn {
    /// Its global identifier.
    pub gid: Vec<u8>,
    /// Code of its isolation level.
    pub level: u8,
    /// When it was prepared, in milliseconds since the Unix epoch.
    pub prepared_ms: u64,
    /// Number of its operations.
    pub operations: u32,
    /// The payload of its record; `batch` is the range of the operations in it.
    payload: Arc<Vec<u8>>,
    batch: Range<usize>,
    guards: BTreeMap<FamilyId, FamilyGuards>,
    /// Its read set, if it is serializable.
    pub serializable: Option<Arc<SerializableTxn>>,
    lsn: AtomicSeqNo,
    /// The owner of its locks.
    owner: LockOwner,
    locks: Mutex<TxnLocks>,
}

/// A lock recorded in a prepare record, to be acquired again.
pub type LoggedLock = (FamilyId, KeyOrRange, LockMode);

impl PreparedTxn {
    /// Decodes the payload of a prepare record.
    pub fn decode(
        payload: Arc<Vec<u8>>,
        comparator_of: &dyn Fn(FamilyId) -> Option<KeyComparator>,
        owner: LockOwner,
    ) -> Result<PreparedTxn> {
        let p = PrepareRecord::decode(&payload)?;
        check_isolation_code(p.header.isolation_level)?;
        let (mut guards, mut reads) = (BTreeMap::new(), ReadSet::default());
        let mut guard = |family, target: KeyOrRangeRef<'_>, wrote: bool| {
            // A column family that was dropped is not written any more.
            let Some(comparator) = comparator_of(family) else { return };
            let none = || FamilyGuards {
                comparator,
                written: GuardedKeys::default(),
                read: GuardedKeys::default(),
            };
            let mine = guards.entry(family).or_insert_with(none);
            if wrote {
                return mine.written.add(target);
            }
            mine.read.add(target);
            match target {
                KeyOrRangeRef::Key(key) => reads.add_key(family, comparator, key),
                KeyOrRangeRef::Range(begin, end) => drop(reads.add_range(family, begin..end)),
            }
        };
        for claim in p.claims.iter().filter(|c| c.mode == 0) {
            let target = match claim.target {
                ClaimTarget::Key(key) => KeyOrRangeRef::Key(key),
                ClaimTarget::Range(begin, end) => KeyOrRangeRef::Range(begin, end),
            };
            guard(claim.family, target, false);
        }
        let mut operations = 0;
        for op in BatchOps::new(&payload, p.ops_range.clone()) {
            let op = op?;
            operations += 1;
            guard(op.family, KeyOrRangeRef::of_operation(&payload, &op), true);
        }
        check_operation_count(&p.header, operations)?;
        for g in guards.values_mut() {
            g.written.normalize(g.comparator);
            g.read.normalize(g.comparator);
        }
        let serial = p.header.isolation_level == SERIALIZABLE_CODE;
        Ok(PreparedTxn {
            gid: p.header.gid.to_vec(),
            level: p.header.isolation_level,
            prepared_ms: p.header.prepared_at_ms,
            operations,
            batch: p.ops_range,
            guards,
            serializable: serial.then(|| SerializableTxn::with_reads(SeqNo::ZERO, reads)),
            lsn: AtomicSeqNo::new(SeqNo::MAX),
            owner,
            locks: Mutex::default(),
            payload,
        })
    }
    /// Returns the payload of its record.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }
    /// Returns its operations, in log format.
    pub fn batch(&self) -> &[u8] {
        &self.payload[self.batch.clone()]
    }
    /// Returns the sequence number of its record.
    pub fn lsn(&self) -> SeqNo {
        self.lsn.load(Relaxed)
    }
    /// Sets the sequence number of its record. Called in the commit section.
    pub fn set_lsn(&self, lsn: SeqNo) {
        self.lsn.store(lsn, Relaxed);
    }
    fn txn_locks(&self) -> MutexGuard<'_, TxnLocks> {
        self.locks.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Sets the locks of its owner.
    pub fn set_locks(&self, mine: TxnLocks) {
        *self.txn_locks() = mine;
    }
    /// Releases its locks.
    pub fn release_locks(&self, locks: &LockManager) {
        let mut mine = std::mem::take(&mut *self.txn_locks());
        locks.release(self.owner, &mut mine, 0);
    }
    /// Acquires again the locks that it held when it was prepared, and locks on what it wrote and
    /// read: for a transaction found by recovery.
    pub fn restore_locks(
        &self,
        locks: &LockManager,
        comparator_of: &dyn Fn(FamilyId) -> Option<KeyComparator>,
    ) -> Result<()> {
        let mut mine = std::mem::take(&mut *self.txn_locks());
        let mut take = |family, target: KeyOrRange, mode| {
            if let Some(comparator) = comparator_of(family) {
                locks.restore_lock(family, comparator, self.owner, &mut mine, target, mode);
            }
        };
        for claim in PrepareRecord::decode(&self.payload)?.claims {
            let target = match claim.target {
                ClaimTarget::Key(key) => KeyOrRange::Key(key.to_vec()),
                ClaimTarget::Range(begin, end) => {
                    KeyOrRange::Range(begin.to_boundary(), end.to_boundary())
                }
            };
            take(claim.family, target, LockMode::decode(claim.mode).unwrap_or(LockMode::Shared));
        }
        for (family, guards) in &self.guards {
            guards
                .written
                .targets()
                .for_each(|t| take(*family, to_key_or_range(t), LockMode::Exclusive));
        }
        *self.txn_locks() = mine;
        Ok(())
    }
    /// Returns its approximate memory usage in bytes.
    pub fn memory_bytes(&self) -> u64 {
        let sides = self.guards.values().flat_map(|g| g.guarded_sets(true));
        let guards =
            sides.flat_map(GuardedKeys::targets).map(|t| 160 + 2 * t.start_key().len() as u64);
        self.payload.len() as u64 + guards.sum::<u64>()
    }
    /// Returns true if it wrote to the column family, or read it with an isolation level that
    /// checks reads.
    fn touches_family(&self, family: FamilyId) -> bool {
        self.guards.contains_key(&family)
    }
}

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
            entry.claimed = false;
        }
    }
    /// Returns all that are in the log, by identifier.
    pub fn all(&self) -> Vec<Arc<PreparedTxn>> {
        let inner = self.lock_state();
        let entries = inner.by_gid.values().map(|e| &e.txn);
        entries.filter(|u| u.lsn() != SeqNo::MAX).cloned().collect()
    }
    /// Returns the sequence number of the oldest record that must stay in the log. Called in the
    /// commit section.
    pub fn oldest_lsn(&self) -> Option<SeqNo> {
        self.all().iter().map(|u| u.lsn()).min()
    }
    /// Returns a transaction that touches the column family, if any.
    pub fn find_by_family(&self, family: FamilyId) -> Option<Arc<PreparedTxn>> {
        self.all().into_iter().find(|u| u.touches_family(family))
    }
    /// Returns a transaction that wrote something in `target`, or with `writes` also one that read
    /// it.
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

impl PreparedTxn {
    /// Returns the bytes of its record in the log.
    pub fn log_bytes(&self) -> u64 {
        (perigee_file::log::layout::RECORD_HEADER_BYTES + self.payload.len()) as u64
    }
}

impl PreparedTxns {
    /// Returns the bytes of all records in the log from `lsn` on. Called in the commit section.
    pub fn log_bytes(&self, lsn: SeqNo) -> u64 {
        if !self.has_any() {
            return 0;
        }
        self.all().iter().filter(|u| u.lsn() >= lsn).map(|u| u.log_bytes()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perigee_base::key_boundary::KeyBoundaryRef;
    use perigee_file::log::prepare::encode_prepare;
    use perigee_file::log::{Batch, PreparedClaim};

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

    /// Compares with a linear search through all ranges and keys.
    #[test]
    fn guarded_keys_match_a_linear_search() {
        let comparator = KeyComparator::Bytes;
        let mut state = 7u64;
        let mut below = |n: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % n
        };
        for _ in 0..2000 {
            let cut = |n: u64| match n {
                0 => KeyBoundary::First,
                29 => KeyBoundary::Last,
                n if n % 2 == 0 => KeyBoundary::Before(vec![n as u8]),
                n => KeyBoundary::After(vec![n as u8]),
            };
            let mut list: Vec<KeyOrRange> =
                (0..below(6)).map(|_| KeyOrRange::Range(cut(below(30)), cut(below(30)))).collect();
            list.extend((0..below(4)).map(|_| KeyOrRange::Key(vec![below(30) as u8])));
            let mut side = GuardedKeys::default();
            list.iter().for_each(|p| side.add(p.borrowed()));
            side.normalize(comparator);
            let wanted = match below(2) {
                0 => KeyOrRange::Key(vec![below(30) as u8]),
                _ => KeyOrRange::Range(cut(below(30)), cut(below(30))),
            };
            let target = wanted.borrowed();
            let by_key = match target {
                KeyOrRangeRef::Key(key) => side.keys.iter().any(|k| k == key),
                KeyOrRangeRef::Range(begin, end) => {
                    side.find_key_in_range(comparator, begin..end).is_some()
                }
            };
            let found = by_key || side.find_overlapping_range(comparator, target).is_some();
            assert_eq!(
                found,
                list.iter().any(|p| p.borrowed().overlaps(comparator, target)),
                "{list:?} {wanted:?}"
            );
        }
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
