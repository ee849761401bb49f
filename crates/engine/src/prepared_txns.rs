//! Prepared transactions that nobody has decided yet, and what they keep others from: until the
//! decision nobody writes what one of them wrote, or read where its level checks reads. So the
//! decision to commit can never fail over a conflict.
//!
//! 1. A transaction enters and leaves the list in the commit section; there writers ask it. (It
//!    also leaves outside if its prepare record did not reach the log: until then others have a
//!    conflict too many.)
//! 2. Its record in the log has the number [`PreparedTxn::lsn`]; no segment goes that holds it,
//!    unless a later one has a copy.
//! 3. Who writes while there is none looks at one counter.
//!
//! Must not know the log, families or the commit. The mutex guards the list; no I/O inside.

use crate::locks::{LockManager, LockMode, LockOwner, TxnLocks};
use crate::read_write_sets::{KeyOrRange, KeyOrRangeRef, ReadSet};
use crate::serializable_txns::SerializableTxn;
use perigee_base::key_boundary::{KeyBoundary, KeyBoundaryRef};
use perigee_base::{Error, ErrorKind, FamilyId, KeyComparator, Result, SeqNo};
use perigee_file::log::{BatchOps, ClaimTarget, PrepareRecord};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The code of the level serializable; larger ones mean nothing.
pub const SERIALIZABLE_CODE: u8 = 4;

/// Refuses a level that this version does not know.
pub fn check_isolation_code(level: u8) -> Result<()> {
    if level > SERIALIZABLE_CODE {
        let text = "a prepared transaction has a level of isolation that this version does not know: open it with a newer Perigee";
        return Err(Error::new(ErrorKind::FormatTooNew, text)
            .expected(format_args!("0 to {SERIALIZABLE_CODE}"), level));
    }
    Ok(())
}

/// Refuses a record that does not hold as many operations as it says.
pub fn check_operation_count(said: u32, found: u32) -> Result<()> {
    if said != found {
        let e = Error::corruption(
            "a prepared transaction holds another number of operations than it says",
        );
        return Err(e.expected(said, found));
    }
    Ok(())
}

/// Keys and ranges that nobody else may write, of one family, in its order.
#[derive(Debug, Default)]
struct GuardedKeys {
    keys: Vec<Vec<u8>>,
    /// Ascending and apart.
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
    /// Brings them into order; what overlaps becomes one.
    fn normalize(&mut self, order: KeyComparator) {
        self.keys.sort_unstable_by(|a, b| order.cmp(a, b));
        self.keys.dedup_by(|a, b| order.keys_equal(a, b));
        let mut ranges = std::mem::take(&mut self.ranges);
        ranges.retain(|(begin, end)| begin.as_ref().cmp(order, end.as_ref()).is_lt());
        ranges.sort_unstable_by(|a, b| a.0.as_ref().cmp(order, b.0.as_ref()));
        for (begin, end) in ranges {
            match self.ranges.last_mut().filter(|r| begin.as_ref().cmp(order, r.1.as_ref()).is_le())
            {
                Some(last) if last.1.as_ref().cmp(order, end.as_ref()).is_lt() => last.1 = end,
                Some(_) => {}
                None => self.ranges.push((begin, end)),
            }
        }
    }
    /// A range that meets `target`: only the first that does not end before it can.
    fn find_overlapping_range(
        &self,
        order: KeyComparator,
        target: KeyOrRangeRef<'_>,
    ) -> Option<KeyOrRangeRef<'_>> {
        let before = |end: KeyBoundaryRef<'_>| match target {
            KeyOrRangeRef::Key(key) => end.is_before(order, key),
            KeyOrRangeRef::Range(begin, _) => end.cmp(order, begin).is_le(),
        };
        let at = self.ranges.partition_point(|(_, end)| before(end.as_ref()));
        let (begin, end) = self.ranges.get(at)?;
        let range = KeyOrRangeRef::Range(begin.as_ref(), end.as_ref());
        range.overlaps(order, target).then_some(range)
    }
    /// A key in a range: only the first behind where it begins can be.
    fn find_key_in_range(
        &self,
        order: KeyComparator,
        (begin, end): (KeyBoundaryRef<'_>, KeyBoundaryRef<'_>),
    ) -> Option<KeyOrRangeRef<'_>> {
        let at = self.keys.partition_point(|key| !begin.is_before(order, key));
        let key = KeyOrRangeRef::Key(self.keys.get(at)?);
        key.overlaps(order, KeyOrRangeRef::Range(begin, end)).then_some(key)
    }
    fn targets(&self) -> impl Iterator<Item = KeyOrRangeRef<'_>> {
        let keys = self.keys.iter().map(|k| KeyOrRangeRef::Key(k));
        keys.chain(self.ranges.iter().map(|(b, e)| KeyOrRangeRef::Range(b.as_ref(), e.as_ref())))
    }
}

/// What a transaction keeps others from in one family.
#[derive(Debug)]
struct FamilyGuards {
    order: KeyComparator,
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
    /// The code of its level.
    pub level: u8,
    /// When it was prepared, in milliseconds since the Unix epoch.
    pub prepared_ms: u64,
    /// Operations that it will make.
    pub operations: u32,
    /// The payload of its record, and where the operations lie in it.
    payload: Arc<Vec<u8>>,
    batch: Range<usize>,
    guards: BTreeMap<FamilyId, FamilyGuards>,
    /// What it read, as serializable transactions know it, if it is one.
    pub serializable: Option<Arc<SerializableTxn>>,
    lsn: AtomicU64,
    /// As which it holds locks, and which.
    owner: LockOwner,
    locks: Mutex<TxnLocks>,
}

/// A lock that a record says was held: to be taken again.
pub type LoggedLock = (FamilyId, KeyOrRange, LockMode);

impl PreparedTxn {
    /// The transaction of a record's payload.
    pub fn decode(
        payload: Arc<Vec<u8>>,
        order_of: &dyn Fn(FamilyId) -> Option<KeyComparator>,
        owner: LockOwner,
    ) -> Result<PreparedTxn> {
        let p = PrepareRecord::decode(&payload)?;
        check_isolation_code(p.header.isolation_level)?;
        let (mut guards, mut reads) = (BTreeMap::new(), ReadSet::default());
        let mut guard = |family, target: KeyOrRangeRef<'_>, wrote: bool| {
            // Of a family that is gone nobody writes anything.
            let Some(order) = order_of(family) else { return };
            let none = || FamilyGuards {
                order,
                written: GuardedKeys::default(),
                read: GuardedKeys::default(),
            };
            let mine = guards.entry(family).or_insert_with(none);
            if wrote {
                return mine.written.add(target);
            }
            mine.read.add(target);
            match target {
                KeyOrRangeRef::Key(key) => reads.add_key(family, order, key),
                KeyOrRangeRef::Range(begin, end) => drop(reads.add_range(family, (begin, end))),
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
        check_operation_count(p.header.op_count, operations)?;
        for g in guards.values_mut() {
            g.written.normalize(g.order);
            g.read.normalize(g.order);
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
            lsn: AtomicU64::new(u64::MAX),
            owner,
            locks: Mutex::default(),
            payload,
        })
    }
    /// Its record's payload.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }
    /// Its operations, in log format.
    pub fn batch(&self) -> &[u8] {
        &self.payload[self.batch.clone()]
    }
    /// The number of its record.
    pub fn lsn(&self) -> u64 {
        self.lsn.load(Relaxed)
    }
    /// Its record has this number now; in the commit section.
    pub fn set_lsn(&self, lsn: u64) {
        self.lsn.store(lsn, Relaxed);
    }
    fn txn_locks(&self) -> MutexGuard<'_, TxnLocks> {
        self.locks.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// These are its owner's locks.
    pub fn set_locks(&self, mine: TxnLocks) {
        *self.txn_locks() = mine;
    }
    /// Lets go of its locks.
    pub fn release_locks(&self, locks: &LockManager) {
        let mut mine = std::mem::take(&mut *self.txn_locks());
        locks.release(self.owner, &mut mine, 0);
    }
    /// Takes the locks again that it held when it was prepared, and those of what it wrote and
    /// read: for one that recovery found.
    pub fn restore_locks(
        &self,
        locks: &LockManager,
        order_of: &dyn Fn(FamilyId) -> Option<KeyComparator>,
    ) -> Result<()> {
        let mut mine = std::mem::take(&mut *self.txn_locks());
        let mut take = |family, place: KeyOrRange, mode| {
            if let Some(order) = order_of(family) {
                locks.restore_lock((family, order), (self.owner, &mut mine), place, mode);
            }
        };
        for claim in PrepareRecord::decode(&self.payload)?.claims {
            let place = match claim.target {
                ClaimTarget::Key(key) => KeyOrRange::Key(key.to_vec()),
                ClaimTarget::Range(begin, end) => {
                    KeyOrRange::Range(begin.to_boundary(), end.to_boundary())
                }
            };
            take(claim.family, place, LockMode::decode(claim.mode).unwrap_or(LockMode::Shared));
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
    /// Bytes of memory, about.
    pub fn memory_bytes(&self) -> u64 {
        let sides = self.guards.values().flat_map(|g| g.guarded_sets(true));
        let guards =
            sides.flat_map(GuardedKeys::targets).map(|t| 160 + 2 * t.start_key().len() as u64);
        self.payload.len() as u64 + guards.sum::<u64>()
    }
    /// Whether it wrote to a family, or read it where that counts.
    fn touches_family(&self, family: FamilyId) -> bool {
        self.guards.contains_key(&family)
    }
}

/// An identifier, as text.
pub fn display_gid(gid: &[u8]) -> String {
    format!("\"{}\"", gid.escape_ascii())
}

/// A transaction in whose way somebody is, and over which key.
#[derive(Debug)]
pub struct PreparedConflict {
    /// The transaction.
    pub gid: Vec<u8>,
    /// The key, or where the range begins.
    pub key: Vec<u8>,
}

#[derive(Debug)]
struct PreparedEntry {
    txn: Arc<PreparedTxn>,
    /// Somebody is about to decide it.
    claimed: bool,
}

#[derive(Debug, Default)]
struct PreparedTxnsState {
    by_gid: BTreeMap<Vec<u8>, PreparedEntry>,
    /// Identifiers of those that are on their way.
    reserved: BTreeSet<Vec<u8>>,
    /// Those that are about a family.
    by_family: HashMap<FamilyId, Vec<Arc<PreparedTxn>>>,
    /// The keys that they guard, by a number that equal keys share: whose, whether written, and
    /// where.
    keys: HashMap<(FamilyId, u64), Vec<(Arc<PreparedTxn>, bool, usize)>>,
}

impl PreparedTxnsState {
    fn check_gid_free(&self, gid: &[u8]) -> Result<()> {
        if self.by_gid.contains_key(gid) || self.reserved.contains(gid) {
            let text = format!("a transaction is prepared as {} and not decided", display_gid(gid));
            return Err(Error::new(ErrorKind::AlreadyExists, text));
        }
        Ok(())
    }
}

/// An identifier for one that is on its way; free again when this is dropped, if it has not
/// arrived.
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

/// All of them.
#[derive(Debug, Default)]
pub struct PreparedTxns {
    count: AtomicUsize,
    state: Mutex<PreparedTxnsState>,
}

impl PreparedTxns {
    fn lock_state(&self) -> MutexGuard<'_, PreparedTxnsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Whether there is any. Exact in the commit section.
    #[inline]
    pub fn has_any(&self) -> bool {
        self.count.load(Relaxed) > 0
    }
    /// Reserves an identifier for one that is to be prepared.
    ///
    /// # Errors
    /// `AlreadyExists` if it is in use.
    pub fn reserve_gid<'a>(&'a self, gid: &'a [u8]) -> Result<GidReservation<'a>> {
        let mut inner = self.lock_state();
        inner.check_gid_free(gid)?;
        inner.reserved.insert(gid.to_vec());
        Ok(GidReservation { txns: self, gid })
    }
    /// From now on others leave alone what it wrote and read. Its identifier is reserved, or there
    /// is nobody else yet.
    ///
    /// # Errors
    /// `AlreadyExists`.
    pub fn insert(&self, undecided: &Arc<PreparedTxn>) -> Result<()> {
        let mut inner = self.lock_state();
        if inner.by_gid.contains_key(&undecided.gid) {
            return inner.check_gid_free(&undecided.gid);
        }
        for (family, guards) in &undecided.guards {
            inner.by_family.entry(*family).or_default().push(Arc::clone(undecided));
            for (side, wrote) in [(&guards.written, true), (&guards.read, false)] {
                for (i, key) in side.keys.iter().enumerate() {
                    let same =
                        inner.keys.entry((*family, guards.order.equality_hash(key))).or_default();
                    same.push((Arc::clone(undecided), wrote, i));
                }
            }
        }
        let entry = PreparedEntry { txn: Arc::clone(undecided), claimed: false };
        inner.by_gid.insert(undecided.gid.clone(), entry);
        self.count.store(inner.by_gid.len(), Relaxed);
        Ok(())
    }
    /// It is decided, or was never prepared.
    pub fn remove(&self, undecided: &Arc<PreparedTxn>) {
        let mut inner = self.lock_state();
        let known = inner.by_gid.get(&undecided.gid);
        if !known.is_some_and(|e| Arc::ptr_eq(&e.txn, undecided)) {
            return;
        }
        inner.by_gid.remove(&undecided.gid);
        for (family, guards) in &undecided.guards {
            if let Some(all) = inner.by_family.get_mut(family) {
                all.retain(|u| !Arc::ptr_eq(u, undecided));
                if all.is_empty() {
                    inner.by_family.remove(family);
                }
            }
            for key in guards.guarded_sets(true).flat_map(|side| &side.keys) {
                let at = (*family, guards.order.equality_hash(key));
                if let Some(same) = inner.keys.get_mut(&at) {
                    same.retain(|(u, ..)| !Arc::ptr_eq(u, undecided));
                    if same.is_empty() {
                        inner.keys.remove(&at);
                    }
                }
            }
        }
        self.count.store(inner.by_gid.len(), Relaxed);
    }
    /// The one of that identifier, for whoever decides it; nobody else does meanwhile.
    ///
    /// # Errors
    /// `NotFound`; `Busy` if somebody else is about to decide it.
    pub fn claim_decision(&self, gid: &[u8]) -> Result<Arc<PreparedTxn>> {
        let mut inner = self.lock_state();
        let Some(entry) = inner.by_gid.get_mut(gid).filter(|e| e.txn.lsn() != u64::MAX) else {
            let text = format!(
                "no transaction is prepared as {}: it was decided, or never prepared",
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
    /// It could not be decided now.
    pub fn release_claim(&self, undecided: &PreparedTxn) {
        if let Some(entry) = self.lock_state().by_gid.get_mut(&undecided.gid) {
            entry.claimed = false;
        }
    }
    /// All that are in the log, by identifier.
    pub fn all(&self) -> Vec<Arc<PreparedTxn>> {
        let inner = self.lock_state();
        let entries = inner.by_gid.values().map(|e| &e.txn);
        entries.filter(|u| u.lsn() != u64::MAX).cloned().collect()
    }
    /// The oldest record that must stay in the log; in the commit section.
    pub fn oldest_lsn(&self) -> Option<u64> {
        self.all().iter().map(|u| u.lsn()).min()
    }
    /// One that is about a family.
    pub fn find_by_family(&self, family: FamilyId) -> Option<Arc<PreparedTxn>> {
        self.all().into_iter().find(|u| u.touches_family(family))
    }
    /// One that wrote something of `target`; `writes`: or has read it.
    pub fn find_conflict(
        &self,
        family: FamilyId,
        order: KeyComparator,
        target: KeyOrRangeRef<'_>,
        writes: bool,
    ) -> Option<PreparedConflict> {
        let inner = self.lock_state();
        let met = |u: &Arc<PreparedTxn>, key: &[u8]| PreparedConflict {
            gid: u.gid.clone(),
            key: key.to_vec(),
        };
        let about = inner.by_family.get(&family).map_or(&[][..], |all| all);
        let sides = about.iter().flat_map(|u| u.guards.get(&family).map(|g| (u, g)));
        let mut sides = sides.flat_map(|(u, g)| g.guarded_sets(writes).map(move |side| (u, side)));
        match target {
            KeyOrRangeRef::Key(key) => {
                let same = inner
                    .keys
                    .get(&(family, order.equality_hash(key)))
                    .map_or(&[][..], |same| same);
                let equal = |u: &PreparedTxn, wrote: bool, i: usize| {
                    let side =
                        u.guards.get(&family).map(|g| if wrote { &g.written } else { &g.read });
                    side.and_then(|s| s.keys.get(i)).is_some_and(|k| order.keys_equal(k, key))
                };
                let same =
                    same.iter().find(|(u, wrote, i)| (writes || *wrote) && equal(u, *wrote, *i));
                let mut in_range =
                    || sides.find(|(_, side)| side.find_overlapping_range(order, target).is_some());
                same.map(|(u, ..)| u).or_else(|| in_range().map(|(u, _)| u)).map(|u| met(u, key))
            }
            KeyOrRangeRef::Range(begin, end) => sides.find_map(|(u, side)| {
                let hit = side.find_key_in_range(order, (begin, end));
                hit.or_else(|| side.find_overlapping_range(order, target))
                    .map(|t| met(u, t.start_key()))
            }),
        }
    }
}

impl PreparedTxn {
    /// Bytes of its record in the log.
    pub fn log_bytes(&self) -> u64 {
        (perigee_file::log::layout::RECORD_HEADER_BYTES + self.payload.len()) as u64
    }
}

impl PreparedTxns {
    /// Bytes of all records in the log from `lsn` on; in the commit section.
    pub fn log_bytes(&self, lsn: u64) -> u64 {
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
    use perigee_file::log::{Batch, PrepareHeader, PreparedClaim};

    const FAMILY: FamilyId = FamilyId(0);

    /// One that wrote `key` and everything from "x" on, and has read `read`.
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
        made.set_lsn(7);
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
            "a reader minds what was written"
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
            (true, Some(7), true)
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

    /// Against a plain look at every range and key.
    #[test]
    fn guarded_keys_match_a_linear_search() {
        let order = KeyComparator::Bytes;
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
            side.normalize(order);
            let asked = match below(2) {
                0 => KeyOrRange::Key(vec![below(30) as u8]),
                _ => KeyOrRange::Range(cut(below(30)), cut(below(30))),
            };
            let target = asked.borrowed();
            let by_key = match target {
                KeyOrRangeRef::Key(key) => side.keys.iter().any(|k| k == key),
                KeyOrRangeRef::Range(begin, end) => {
                    side.find_key_in_range(order, (begin, end)).is_some()
                }
            };
            let found = by_key || side.find_overlapping_range(order, target).is_some();
            assert_eq!(
                found,
                list.iter().any(|p| p.borrowed().overlaps(order, target)),
                "{list:?} {asked:?}"
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
        assert!(all.has_any(), "another one of the same name is not the one that leaves");
    }
}
