//! The writes of a transaction: a batch in log format that is committed as it is, and the
//! structures to read it.
//!
//! ```text
//! batch:     op 0 | op 1 | op 2 | ...        committed as it is; truncated by a rollback
//! ops:       index,  family, hash, range     few: searched linearly from the newest
//! chains:    by hash                         many: filled from `ops` by the next search for a key
//! memtables: one per column family           for cursors: filled from `ops` on demand
//! runs:      private tables                  spilled earlier writes that did not fit into memory
//! ```
//! Indexes only grow, even across rollbacks: entries cannot be removed from a memtable, and tables
//! are not rewritten for a rollback, so rolled-back indexes are recorded. A memtable with mostly
//! rolled-back entries is rebuilt.

use super::hash_chains::HashChains;
use super::read_write_sets::range_contains;
use super::spill_store::{SeparatedEntry, SpillStore};
use crate::limits::TXN_LINEAR_SEARCH_MAX;
use perigee_base::bug::Bug;
use perigee_base::{
    EntryKind, Error, Expiry, FamilyId, IoActivity, KeyComparator, OpIndex, PinnedSlice, Result,
    SeqNo, ValueRef, VlogPointer, bug,
};
use perigee_file::log::{Batch, BatchOp, BatchSavepoint};
use perigee_file::{EntryValue, WrittenValue};
use perigee_tree::bulk::TxnSeqInfo;
use perigee_tree::{Memtable, TXN_SEQ_BASE, TxnOverlay, VisibleSeqs, Vlog, read};
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::Arc;

/// An operation with its search fields.
#[derive(Debug)]
struct WrittenOp {
    index: OpIndex,
    /// Hash of the key; 0 for a range tombstone.
    hash: u64,
    op: BatchOp,
}

/// A key of a column family that is searched, with its hash.
#[derive(Clone, Copy)]
struct SearchedKey<'a> {
    family: FamilyId,
    comparator: KeyComparator,
    key: &'a [u8],
    hash: u64,
}

impl WrittenOp {
    /// Returns true if the operation writes or deletes the key; it points into `buf`.
    fn applies_to(&self, buf: &[u8], searched: SearchedKey<'_>) -> bool {
        let SearchedKey { family, comparator, key, hash } = searched;
        self.op.family == family
            && match self.op.deleted_range_in(buf) {
                Some((begin, end)) => range_contains(comparator, begin, end, key),
                None => {
                    (self.hash == hash || !comparator.supports_filters())
                        && comparator.keys_equal(&buf[self.op.key.clone()], key)
                }
            }
    }
}

/// The transaction's entries in one column family.
#[derive(Debug)]
struct FamilyMemtable {
    family: FamilyId,
    comparator: KeyComparator,
    memtable: Arc<Memtable>,
}

/// The size of a transaction's writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WrittenSize {
    /// Number of operations.
    pub ops: usize,
    /// Their bytes in the log.
    pub bytes: u64,
}

/// A position to which the writes can be rolled back.
#[derive(Clone, Copy, Debug)]
pub struct WritesPosition {
    batch: BatchSavepoint,
    ops: usize,
    /// The index of the next operation.
    next_index: OpIndex,
    /// Number of spills, and everything written up to this position.
    spill_count: u32,
    written_size: WrittenSize,
}

/// The writes of a transaction.
#[derive(Debug, Default)]
pub struct TxnWrites {
    batch: Batch,
    ops: Vec<WrittenOp>,
    chains: HashChains,
    /// Which of `ops` are range deletes.
    range_deletes: Vec<usize>,
    memtables: SmallVec<[FamilyMemtable; 1]>,
    /// How many of `ops` are in memtables; how many other entries there were rolled back; bytes of
    /// the memtables.
    inserted_ops: usize,
    inserted_dead_ops: usize,
    memtable_bytes: u64,
    /// The index of the next operation; never reused, not even after a rollback.
    next_index: OpIndex,
    /// Rolled-back sequence numbers (from [`TXN_SEQ_BASE`] on) in memtables or runs: ascending, disjoint
    /// ranges.
    rolled_back: Vec<Range<SeqNo>>,
    /// The spilled writes. All indexes in runs are below `spilled_below`.
    spill_store: Option<Box<dyn SpillStore>>,
    spilled_below: OpIndex,
    /// Operands were written: they cannot be spilled, because a table with one global sequence
    /// number holds one entry per key.
    has_operands: bool,
    /// Number of spills, and the operations and bytes in runs.
    spill_count: u32,
    spilled_size: WrittenSize,
}

impl TxnWrites {
    /// Creates an empty set of writes.
    pub fn new() -> TxnWrites {
        TxnWrites::default()
    }
    /// Returns the number of operations and their bytes in the log.
    pub fn written_size(&self) -> WrittenSize {
        WrittenSize {
            ops: self.spilled_size.ops + self.ops.len(),
            bytes: self.spilled_size.bytes + self.batch.payload_bytes() as u64,
        }
    }
    /// Returns the bytes of memory used.
    pub fn memory_bytes(&self) -> u64 {
        let range_deletes = self.range_deletes.len() * size_of::<usize>();
        (self.batch.payload_bytes() + self.ops.len() * size_of::<WrittenOp>() + range_deletes)
            as u64
            + self.chains.memory_bytes()
            + self.memtable_bytes
    }
    /// Returns true if memory may be spilled.
    pub fn can_spill(&self) -> bool {
        !self.has_operands
    }
    /// Returns true if runs hold writes that were not rolled back.
    pub fn is_spilled(&self) -> bool {
        self.spilled_size.ops > 0
    }
    /// Creates the spill store with `make`, unless there is one.
    pub fn ensure_spill_store(&mut self, make: impl FnOnce() -> Box<dyn SpillStore>) {
        self.spill_store.get_or_insert_with(make);
    }
    /// Reports the memory use to the spill store, and returns it.
    pub fn report_memory(&mut self) -> u64 {
        let bytes = self.memory_bytes();
        if let Some(runs) = &mut self.spill_store {
            runs.set_memory_bytes(bytes);
        }
        bytes
    }
    /// Spills the memory into the spill store, which must exist. `savepoints`: their positions.
    ///
    /// # Errors
    /// Same as [`SpillStore::add_runs`]; everything is unchanged then.
    pub fn spill(&mut self, savepoints: impl Iterator<Item = WritesPosition>) -> Result<()> {
        if self.inserted_dead_ops > 0 {
            self.reset_memtables();
        }
        self.fill_memtables()?;
        let numbers = self.numbers(savepoints);
        let Some(runs) = self.spill_store.as_mut().filter(|_| !self.ops.is_empty()) else {
            return Ok(());
        };
        let full = self.memtables.iter().filter(|l| !l.memtable.is_empty());
        let memtables: Vec<_> = full.map(|l| (l.family, Arc::clone(&l.memtable))).collect();
        check_slow!(
            self.ops.first().is_some_and(|w| w.index >= self.spilled_below),
            "operations in memory are newer than those in runs",
            self.spilled_below
        );
        check_slow!(
            memtables.iter().map(|(_, m)| m.entries()).sum::<u64>() == self.ops.len() as u64,
            "a spill contains each operation in memory once, and none that was rolled back",
            memtables.len(),
            self.ops.len()
        );
        runs.add_runs(&memtables, &numbers)?;
        check!(!self.has_operands, "a transaction with merge operands is not spilled");
        self.spilled_size = self.written_size();
        self.spill_count += 1;
        self.spilled_below = self.next_index;
        self.batch.clear();
        self.ops.clear();
        self.range_deletes.clear();
        self.chains = HashChains::default();
        self.reset_memtables();
        Ok(())
    }
    /// Adds a put whose value is in a file of its own to the spill store, which must exist.
    /// `savepoints`: their positions.
    ///
    /// # Errors
    /// Same as [`SpillStore::add_runs`]: the put was not added, and the file is the caller's.
    pub fn add_separated(
        &mut self,
        family: FamilyId,
        key: &[u8],
        expiry: Option<Expiry>,
        value: &WrittenValue,
        savepoints: impl Iterator<Item = WritesPosition> + Clone,
    ) -> Result<()> {
        // In the order in which they were written: runs hold what is older than memory.
        self.spill(savepoints.clone())?;
        let numbers = self.numbers(savepoints);
        let seq = TXN_SEQ_BASE.of_op(self.next_index);
        let store = self.spill_store.as_mut().ok_or_else(|| {
            Error::internal("a transaction without a spill store gets a value in a file")
        })?;
        store.add_separated(family, SeparatedEntry { key, seq, expiry, value }, &numbers)?;
        check!(
            self.ops.is_empty() && !self.has_operands,
            "a separated value is newer than all that was spilled before",
            self.ops.len()
        );
        self.spilled_size.ops += 1;
        self.spilled_size.bytes += key.len() as u64 + value.pointer.value_bytes;
        self.spill_count += 1;
        self.next_index.0 += 1;
        self.spilled_below = self.next_index;
        Ok(())
    }
    /// Returns the numbers of savepoints and rollbacks that the spill store needs.
    pub fn numbers(&self, savepoints: impl Iterator<Item = WritesPosition>) -> TxnSeqInfo {
        let last_before = |position: WritesPosition| TXN_SEQ_BASE.of_op(position.next_index).prev();
        let taken_back =
            if bug::is_active(Bug::SpilledNotRolledBack) { &[][..] } else { &self.rolled_back };
        TxnSeqInfo {
            savepoints: savepoints.map(last_before).collect(),
            rolled_back: taken_back.into(),
        }
    }
    /// Takes the spill store, to commit it.
    pub fn take_spill_store(&mut self) -> Option<Box<dyn SpillStore>> {
        check!(
            self.ops.is_empty(),
            "a spilled transaction has no writes in memory when it commits",
            self.ops.len()
        );
        self.spill_store.take()
    }
    /// Adds the operations that `write` writes to the batch.
    pub fn add_ops(
        &mut self,
        comparator: KeyComparator,
        write: impl FnOnce(&mut Batch) -> Result<()>,
    ) -> Result<()> {
        let savepoint = self.batch.savepoint();
        write(&mut self.batch)?;
        for op in self.batch.ops_since(savepoint) {
            let op = op?;
            if op.kind.is_operand() && self.is_spilled() {
                self.batch.roll_back_to(savepoint);
                return Err(Error::invalid(
                    "the transaction was spilled to disk and accepts no merge operands: commit \
                     it, and merge in another transaction",
                ));
            }
            self.has_operands |= op.kind.is_operand();
            let hash = match op.kind {
                EntryKind::RangeDelete => {
                    self.range_deletes.push(self.ops.len());
                    0
                }
                _ => comparator.filter_hash(&self.batch.buf()[op.key.clone()]),
            };
            self.ops.push(WrittenOp { index: self.next_index, hash, op });
            self.next_index.0 += 1;
        }
        check_slow!(
            self.ops.windows(2).rev().take(1).all(|w| w[0].index < w[1].index),
            "indexes of operations ascend, also across rollbacks",
            self.next_index
        );
        check_slow!(
            self.ops.len() == self.batch.count() as usize,
            "each operation of the batch can be found",
            self.ops.len(),
            self.batch.count()
        );
        Ok(())
    }
    /// Returns the current position.
    pub fn position(&self) -> WritesPosition {
        let (ops, spills, written) = (self.ops.len(), self.spill_count, self.written_size());
        WritesPosition {
            batch: self.batch.savepoint(),
            ops,
            next_index: self.next_index,
            spill_count: spills,
            written_size: written,
        }
    }
    /// Rolls back to a position, at no more than the cost of the searches that have indexed what is
    /// rolled back.
    pub fn roll_back(&mut self, position: WritesPosition) {
        // After a spill that followed the position, everything in memory is after it, too.
        let ops = if position.spill_count == self.spill_count { position.ops } else { 0 };
        let in_runs = self.spilled_below > position.next_index;
        if self.inserted_ops > ops || in_runs {
            self.mark_rolled_back(
                TXN_SEQ_BASE.of_op(position.next_index)..TXN_SEQ_BASE.of_op(self.next_index),
            );
        }
        if in_runs && let Some(runs) = &mut self.spill_store {
            runs.roll_back_from(TXN_SEQ_BASE.of_op(position.next_index));
        }
        if position.spill_count == self.spill_count {
            if !bug::is_active(Bug::SavepointNotRolledBack) {
                self.batch.roll_back_to(position.batch);
            }
        } else {
            self.batch.clear();
            self.spilled_size = position.written_size;
        }
        check!(
            ops <= self.ops.len() && position.next_index <= self.next_index,
            "a transaction is rolled back to a state it has had",
            ops,
            position.next_index
        );
        if self.chains.len() > ops {
            let written = &self.ops;
            self.chains.truncate(ops, |op| written[op].hash);
        }
        self.ops.truncate(ops);
        while self.range_deletes.last().is_some_and(|op| *op >= ops) {
            self.range_deletes.pop();
        }
        check_slow!(
            self.written_size() == position.written_size,
            "a rollback restores what was written up to its position",
            self.written_size(),
            position.written_size
        );
        if self.inserted_ops > ops {
            self.inserted_dead_ops += self.inserted_ops - ops;
            self.inserted_ops = ops;
            if self.inserted_dead_ops > self.inserted_ops.max(TXN_LINEAR_SEARCH_MAX) {
                self.reset_memtables();
            }
        }
    }
    /// Records numbers, the highest so far, as rolled back. A savepoint may be rolled back to
    /// several times, so the last range may already contain the first of them.
    fn mark_rolled_back(&mut self, numbers: Range<SeqNo>) {
        while self.rolled_back.last().is_some_and(|d| d.start >= numbers.start) {
            self.rolled_back.pop();
        }
        match self.rolled_back.last_mut().filter(|d| d.end >= numbers.start) {
            Some(last) => last.end = numbers.end,
            None if numbers.is_empty() => {}
            None => self.rolled_back.push(numbers),
        }
        check_slow!(
            self.rolled_back.windows(2).all(|w| w[0].end < w[1].start),
            "ranges that were rolled back ascend and are joined",
            self.rolled_back
        );
        check_slow!(
            self.rolled_back.last().is_none_or(|r| r.end <= TXN_SEQ_BASE.of_op(self.next_index)),
            "only operations that were written are rolled back",
            self.rolled_back,
            self.next_index
        );
    }
    /// Empties the memtables; they are filled again on demand.
    fn reset_memtables(&mut self) {
        for entry in self.memtables.iter_mut().filter(|l| !l.memtable.is_empty()) {
            entry.memtable = Arc::new(Memtable::new(entry.comparator));
        }
        (self.inserted_ops, self.inserted_dead_ops, self.memtable_bytes) = (0, 0, 0);
        // Numbers that were only in memtables are gone.
        while self
            .rolled_back
            .last()
            .is_some_and(|d| d.start >= TXN_SEQ_BASE.of_op(self.spilled_below))
        {
            self.rolled_back.pop();
        }
    }
    /// Discards everything, but keeps the batch's buffer.
    pub fn clear(&mut self) {
        self.batch.clear();
        let batch = std::mem::take(&mut self.batch);
        *self = TxnWrites { batch, ..TxnWrites::default() };
    }
    /// Takes the batch, to commit it.
    pub fn take_batch(&mut self) -> Batch {
        check!(
            !self.is_spilled(),
            "a transaction with writes in files is not committed as a batch",
            self.spilled_size
        );
        let batch = std::mem::take(&mut self.batch);
        *self = TxnWrites::default();
        batch
    }

    /// Returns the latest entry of the transaction for `key`, if it has one.
    pub fn find(
        &mut self,
        family: FamilyId,
        comparator: KeyComparator,
        key: &[u8],
    ) -> Result<Option<EntryValue>> {
        if self.ops.is_empty() && !self.is_spilled() {
            return Ok(None);
        }
        let hash = comparator.filter_hash(key);
        let searched = SearchedKey { family, comparator, key, hash };
        let newest = match self.ops.len() {
            0 => None,
            1..=TXN_LINEAR_SEARCH_MAX => self.find_linear(searched)?,
            _ if comparator.supports_filters()
                && self.range_deletes.len() <= TXN_LINEAR_SEARCH_MAX =>
            {
                self.find_in_chains(searched)?
            }
            _ => self.find_in_memtable(family, key)?,
        };
        match &self.spill_store {
            Some(runs) if newest.is_none() && self.is_spilled() => {
                let Some(spilled) = runs.spilled_in(family) else { return Ok(None) };
                Ok(read::lookup_spilled_runs(
                    &spilled,
                    self.visible_numbers(),
                    comparator,
                    key,
                    hash,
                )?
                .map(|(_, found)| found))
            }
            _ => Ok(newest),
        }
    }

    /// Returns the bytes of a live value found by `find`.
    pub fn value(&self, family: FamilyId, found: EntryValue) -> Result<PinnedSlice> {
        match found {
            EntryValue::Value(value) | EntryValue::ValueExpiring(value, _) => Ok(value),
            EntryValue::Pointer(p) | EntryValue::PointerExpiring(p, _) => {
                self.find_vlog(family, &p)?.reader.read_with_cause(&p, IoActivity::Get)
            }
            EntryValue::Tombstone => Err(Error::internal("a tombstone has no value")),
            EntryValue::Operand(_) | EntryValue::OperandPointer(_) => {
                Err(Error::internal("an operand has no value by itself"))
            }
        }
    }

    /// Returns the value log of a separated value found by `find`.
    ///
    /// # Errors
    /// `Internal` if the transaction did not write it.
    pub fn find_vlog(&self, family: FamilyId, p: &VlogPointer) -> Result<Arc<Vlog>> {
        let spilled = self.spill_store.as_ref().and_then(|runs| runs.spilled_in(family));
        spilled
            .and_then(|s| s.vlogs.get(&p.file).cloned())
            .ok_or_else(|| Error::internal("a value of the transaction is in an unknown value log"))
    }

    /// Searches the operations in memory linearly, from the newest.
    fn find_linear(&self, searched: SearchedKey<'_>) -> Result<Option<EntryValue>> {
        let buf = self.batch.buf();
        let found = self.ops.iter().rev().find(|w| w.applies_to(buf, searched));
        found.map(|w| decode_found(buf, &w.op)).transpose()
    }

    /// Searches the operations in memory by the hash of the key, and the range deletes one by one.
    fn find_in_chains(&mut self, searched: SearchedKey<'_>) -> Result<Option<EntryValue>> {
        let (ops, buf) = (&self.ops, self.batch.buf());
        self.chains.extend_to(ops.len(), |op| ops[op].hash);
        let applies = |op: &usize| ops[*op].applies_to(buf, searched);
        let mut range_deletes = self.range_deletes.iter().rev().copied();
        let in_chain = self.chains.candidates(searched.hash).find(applies);
        let newest = in_chain.max(range_deletes.find(applies));
        newest.map(|op| decode_found(buf, &ops[op].op)).transpose()
    }

    /// Searches the operations in memory in the memtable of the column family.
    fn find_in_memtable(&mut self, family: FamilyId, key: &[u8]) -> Result<Option<EntryValue>> {
        self.fill_memtables()?;
        let Some(entry) = self.memtables.iter().find(|l| l.family == family) else {
            return Ok(None);
        };
        let visible = self.visible_numbers();
        let found = read::lookup_overlay_memtable(&entry.memtable, visible, key);
        Ok(found.map(|(_, found)| found))
    }

    /// Returns the entries of a column family as an overlay that later writes and rollbacks do not
    /// change; `None` if it wrote nothing there.
    pub fn read_overlay(&mut self, family: FamilyId) -> Result<Option<TxnOverlay>> {
        self.fill_memtables()?;
        let entry = self.memtables.iter().find(|l| l.family == family);
        let spilled =
            || self.spill_store.as_ref().filter(|_| self.is_spilled())?.spilled_in(family);
        Ok(entry.map(|l| {
            TxnOverlay::new(Arc::clone(&l.memtable), self.visible_numbers()).with_spilled(spilled())
        }))
    }
    fn visible_numbers(&self) -> VisibleSeqs<'_> {
        VisibleSeqs { end_seq: TXN_SEQ_BASE.of_op(self.next_index), rolled_back: &self.rolled_back }
    }

    /// Registers a column family with the comparator for its memtable.
    pub fn add_family(&mut self, family: FamilyId, comparator: KeyComparator) {
        if !self.memtables.iter().any(|l| l.family == family) {
            self.memtables.push(FamilyMemtable {
                family,
                comparator,
                memtable: Arc::new(Memtable::new(comparator)),
            });
        }
    }

    /// Inserts new operations into the memtables.
    fn fill_memtables(&mut self) -> Result<()> {
        let new = &self.ops[self.inserted_ops..];
        for entry in self.memtables.iter().filter(|l| new.iter().any(|w| w.op.family == l.family)) {
            let family_ops = || new.iter().filter(|w| w.op.family == entry.family);
            let bytes = family_ops().map(|w| w.op.key.len() + w.op.value.len()).sum();
            let (mut buffer, mut ops) = (Vec::with_capacity(bytes), Vec::new());
            let mut put = |range: &Range<usize>| {
                let start = buffer.len();
                buffer.extend_from_slice(&self.batch.buf()[range.clone()]);
                start..buffer.len()
            };
            for w in family_ops() {
                // In a run, only a delete shows that the key was written, whatever it is merged
                // with there.
                let kind = if w.op.kind == EntryKind::SingleDelete {
                    EntryKind::Delete
                } else {
                    w.op.kind
                };
                let op = BatchOp { key: put(&w.op.key), value: put(&w.op.value), kind, ..w.op };
                ops.push((op, w.index));
            }
            entry.memtable.insert(&Arc::new(buffer), TXN_SEQ_BASE, &ops)?;
        }
        if self.inserted_ops < self.ops.len() {
            self.memtable_bytes = self.memtables.iter().map(|l| l.memtable.bytes()).sum();
        }
        self.inserted_ops = self.ops.len();
        check_slow!(
            self.ops.iter().all(|w| self.memtables.iter().any(|l| l.family == w.op.family)),
            "each operation is in the memtable of its column family",
            self.ops.len()
        );
        Ok(())
    }
}

fn decode_found(buf: &[u8], op: &BatchOp) -> Result<EntryValue> {
    if op.kind == EntryKind::RangeDelete {
        return Ok(EntryValue::Tombstone);
    }
    let own = |value: &[u8]| PinnedSlice::from(value.to_vec());
    Ok(match op.value_in(buf)? {
        ValueRef::Inline(value) => EntryValue::Value(own(value)),
        ValueRef::InlineExpiring(value, x) => EntryValue::ValueExpiring(own(value), x),
        ValueRef::Operand(value) => EntryValue::Operand(own(value)),
        _ => EntryValue::Tombstone,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use perigee_base::KeyBoundaryRef;

    /// Pseudo-random numbers below `limit`.
    fn random(state: &mut u64, limit: u64) -> u64 {
        *state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*state >> 33) % limit
    }

    /// The searches through chains and through memtables agree, also after rollbacks.
    #[test]
    fn chains_and_memtables_find_the_same_entries() {
        let comparator = KeyComparator::Bytes;
        let families = [FamilyId(3), FamilyId(9)];
        let key = |n: u64| format!("key{n:03}").into_bytes();
        for seed in 0..60 {
            let (mut state, mut writes) = (seed, TxnWrites::new());
            families.iter().for_each(|f| writes.add_family(*f, comparator));
            let mut savepoints: Vec<WritesPosition> = Vec::new();
            for step in 0..400 {
                let (family, n) = (families[step % 2], random(&mut state, 150));
                match random(&mut state, 40) {
                    0 => savepoints.push(writes.position()),
                    1 | 2 if !savepoints.is_empty() => {
                        savepoints
                            .truncate(random(&mut state, savepoints.len() as u64) as usize + 1);
                        writes.roll_back(*savepoints.last().unwrap());
                    }
                    3 => writes
                        .add_ops(comparator, |batch| {
                            let (from, to) = (key(n), key(n + 10));
                            let end = KeyBoundaryRef::Before(&to);
                            batch.delete_range(family, KeyBoundaryRef::Before(&from), end)
                        })
                        .unwrap(),
                    4..8 => writes.add_ops(comparator, |b| b.delete(family, &key(n))).unwrap(),
                    _ => {
                        let value = step.to_be_bytes();
                        writes.add_ops(comparator, |b| b.put(family, &key(n), &value)).unwrap();
                    }
                }
                if step % 7 == 0 && writes.ops.len() > TXN_LINEAR_SEARCH_MAX {
                    let (n, probe) = (random(&mut state, 165), families[step / 7 % 2]);
                    let key = key(n);
                    let hash = comparator.filter_hash(&key);
                    let searched = SearchedKey { family: probe, comparator, key: &key, hash };
                    let in_memtable = writes.find_in_memtable(probe, &key).unwrap();
                    let in_chains = writes.find_in_chains(searched).unwrap();
                    assert_eq!(in_chains, in_memtable, "seed {seed}, step {step}, key {n}");
                    let linear = writes.find_linear(searched).unwrap();
                    assert_eq!(in_chains, linear, "seed {seed}, step {step}, key {n}");
                    assert_eq!(writes.chains.len(), writes.ops.len());
                }
            }
            assert!(writes.memory_bytes() >= writes.chains.memory_bytes());
            writes.clear();
            assert_eq!(writes.find(families[0], comparator, &key(1)).unwrap(), None);
        }
    }
}
