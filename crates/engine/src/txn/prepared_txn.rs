//! A prepared transaction, [`PreparedTxn`], decoded from the payload of its record in the log; or,
//! if it was larger than memory, from its record and tables in the manifest.

use crate::catalog::manifest::PreparedTables;
use crate::txn::guarded_keys::{FamilyGuards, GuardedKeys};
use crate::txn::locks::{LockManager, LockMode, LockOwner, TxnLocks};
use crate::txn::read_write_sets::{KeyOrRangeRef, ReadSet};
use crate::txn::serializable_txns::SerializableTxn;
use crate::txn::spilled_tables::SpilledTables;
use perigee_base::{AtomicSeqNo, Error, ErrorKind, FamilyId, KeyComparator, Result, SeqNo};
use perigee_file::log::{BatchOps, ClaimTarget, PrepareHeader, PrepareRecord};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
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
    pub operations: u64,
    /// Its writes, if they are in tables.
    spilled: Option<SpilledTables>,
    /// The payload of its record; `batch` is the range of the operations in it.
    payload: Arc<Vec<u8>>,
    batch: Range<usize>,
    /// What it wrote and read, in each column family.
    pub guards: BTreeMap<FamilyId, FamilyGuards>,
    /// Its read set, if it is serializable.
    pub serializable: Option<Arc<SerializableTxn>>,
    lsn: AtomicSeqNo,
    /// The owner of its locks.
    owner: LockOwner,
    locks: Mutex<TxnLocks>,
}

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
            let mine = guards.entry(family).or_insert_with(|| FamilyGuards::new(comparator));
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
            operations: u64::from(operations),
            spilled: None,
            batch: p.ops_range,
            guards,
            serializable: serial.then(|| SerializableTxn::with_reads(SeqNo::ZERO, reads)),
            lsn: AtomicSeqNo::new(SeqNo::MAX),
            owner,
            locks: Mutex::default(),
            payload,
        })
    }
    /// Creates a transaction whose writes are in tables.
    pub fn of_tables(
        tables: &PreparedTables,
        spilled: SpilledTables,
        comparator_of: &dyn Fn(FamilyId) -> Option<KeyComparator>,
        owner: LockOwner,
    ) -> Result<PreparedTxn> {
        let mut txn = PreparedTxn::decode(Arc::clone(&tables.record), comparator_of, owner)?;
        for (family, _) in &spilled.runs {
            let comparator = family.tree.comparator();
            txn.guards.entry(family.id).or_insert_with(|| FamilyGuards::new(comparator));
        }
        check!(
            txn.gid == tables.gid && txn.operations == 0,
            "the record of a transaction with tables has its identifier and no operations",
            txn.gid,
            txn.operations
        );
        check_slow!(
            spilled.runs.iter().all(|(family, _)| txn.touches_family(family.id)),
            "a prepared transaction touches each column family that it writes to",
            txn.gid
        );
        (txn.operations, txn.spilled) = (tables.operations, Some(spilled));
        Ok(txn)
    }
    /// Returns its writes, if they are in tables.
    pub fn spilled(&self) -> Option<&SpilledTables> {
        self.spilled.as_ref()
    }
    /// Returns the size of its writes in bytes, encoded as in the log.
    pub fn written_bytes(&self) -> u64 {
        let spilled = self.spilled.as_ref().map(SpilledTables::user_bytes);
        spilled.unwrap_or(self.payload.len() as u64)
    }
    /// Returns the payload of its record.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }
    /// Returns its operations, in log format.
    pub fn batch(&self) -> &[u8] {
        &self.payload[self.batch.clone()]
    }
    /// Returns the sequence number of its record in the log; for one in tables, the number up to
    /// which the log was durable when it was prepared.
    pub fn lsn(&self) -> SeqNo {
        self.lsn.load(Relaxed)
    }
    /// Sets the sequence number of its record. Called in the commit section.
    pub fn set_lsn(&self, lsn: SeqNo) {
        check!(
            lsn < SeqNo::MAX && (self.lsn() == SeqNo::MAX || self.lsn() <= lsn),
            "a prepared transaction is logged again only further on",
            self.lsn(),
            lsn
        );
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
        let mut take = |family, target: KeyOrRangeRef<'_>, mode| {
            if let Some(comparator) = comparator_of(family) {
                locks.restore_lock(family, comparator, self.owner, &mut mine, target, mode);
            }
        };
        for claim in PrepareRecord::decode(&self.payload)?.claims {
            let target = match claim.target {
                ClaimTarget::Key(key) => KeyOrRangeRef::Key(key),
                ClaimTarget::Range(begin, end) => KeyOrRangeRef::Range(begin, end),
            };
            take(claim.family, target, LockMode::decode(claim.mode).unwrap_or(LockMode::Shared));
        }
        for (family, guards) in &self.guards {
            guards.written.targets().for_each(|t| take(*family, t, LockMode::Exclusive));
        }
        // The keys that it wrote are too many: their key ranges are locked.
        for (family, range) in self.spilled.iter().flat_map(SpilledTables::ranges) {
            take(family.id, range, LockMode::Exclusive);
        }
        *self.txn_locks() = mine;
        Ok(())
    }
    /// Returns the bytes of its record in the log.
    pub fn log_bytes(&self) -> u64 {
        if self.spilled.is_some() {
            return 0;
        }
        (perigee_file::log::RECORD_HEADER_BYTES + self.payload.len()) as u64
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
    pub fn touches_family(&self, family: FamilyId) -> bool {
        self.guards.contains_key(&family)
    }
}
