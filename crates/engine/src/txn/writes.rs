//! What a transaction has written: a batch in log format, ready to be committed as it lies, and the
//! means to read it.
//!
//! ```text
//! batch:     op 0 | op 1 | op 2 | ...        commit takes it as it is; a rollback to a savepoint cuts it off
//! ops:       number, family, hash, where     few: looked through from the newest
//! memtables: one for each family             many, or a cursor: filled from `ops` when they are asked for
//! runs:      tables of its own               what came before, if it did not fit into memory
//! ```
//! Numbers only grow, also over rollbacks: a memtable cannot forget, and a table is not written
//! again for it, so numbers taken back are remembered as dead. A memtable of which most is dead is
//! made anew.

use super::spill_store::SpillStore;
use perigee_base::bug::{self, Bug};
use perigee_base::io_stats::IoActivity;
use perigee_base::{
    EntryKind, Error, FamilyId, KeyComparator, PinnedSlice, Result, SeqNo, ValueRef,
};
use perigee_file::EntryValue;
use perigee_file::log::{Batch, BatchOp, BatchSavepoint};
use perigee_tree::Memtable;
use perigee_tree::bulk::spill_runs::TxnSeqInfo;
use perigee_tree::get;
use perigee_tree::txn_overlay::{TXN_SEQ_BASE, TxnOverlay, VisibleSeqs};
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::Arc;

/// So many operations are looked through; more are read by way of memtables.
const LINEAR_SEARCH_MAX: usize = 16;

/// An operation and what finds it quickly.
#[derive(Debug)]
struct WrittenOp {
    number: u64,
    /// Of its key; a range tombstone has none.
    hash: u64,
    op: BatchOp,
}

/// A family's own entries.
#[derive(Debug)]
struct FamilyMemtable {
    family: FamilyId,
    order: KeyComparator,
    memtable: Arc<Memtable>,
}

/// A place to come back to.
#[derive(Clone, Copy, Debug)]
pub struct WritesPosition {
    batch: BatchSavepoint,
    ops: usize,
    /// The number of the next operation.
    next_number: u64,
    /// How often memory was emptied into runs by then, and what was written altogether.
    spill_count: u32,
    written_size: (usize, u64),
}

/// The writes of a transaction.
#[derive(Debug, Default)]
pub struct TxnWrites {
    batch: Batch,
    ops: Vec<WrittenOp>,
    memtables: SmallVec<[FamilyMemtable; 1]>,
    /// How many of `ops` are in memtables; how many others there were taken back; bytes of the
    /// memtables.
    inserted_ops: usize,
    inserted_dead_ops: usize,
    memtable_bytes: u64,
    /// The next number, from 0 up.
    next_number: u64,
    /// Numbers (from [`FLOOR`] up) in memtables or runs that were taken back: ascending, apart.
    rolled_back: Vec<Range<u64>>,
    /// What does not fit into memory. All numbers in runs are below `in_runs`.
    spill_store: Option<Box<dyn SpillStore>>,
    spilled_below: u64,
    /// It has written operands: then it stays in memory, because a table that is given a number
    /// holds one entry of a key.
    has_operands: bool,
    /// How often memory was emptied, and the operations and bytes that lie in runs.
    spill_count: u32,
    spilled_size: (usize, u64),
}

impl TxnWrites {
    /// None.
    pub fn new() -> TxnWrites {
        TxnWrites::default()
    }
    /// How many, and the bytes that they take in the log.
    pub fn written_size(&self) -> (usize, u64) {
        (
            self.spilled_size.0 + self.ops.len(),
            self.spilled_size.1 + self.batch.payload_bytes() as u64,
        )
    }
    /// Bytes of memory.
    pub fn memory_bytes(&self) -> u64 {
        (self.batch.payload_bytes() + self.ops.len() * size_of::<WrittenOp>()) as u64
            + self.memtable_bytes
    }
    /// Whether memory may be emptied into runs.
    pub fn can_spill(&self) -> bool {
        !self.has_operands
    }
    /// Whether anything that counts lies in runs.
    pub fn is_spilled(&self) -> bool {
        self.spilled_size.0 > 0
    }
    /// Has a room for what does not fit into memory, made by `make`.
    pub fn ensure_spill_store(&mut self, make: impl FnOnce() -> Box<dyn SpillStore>) {
        self.spill_store.get_or_insert_with(make);
    }
    /// Tells that room how many bytes of memory there are, and the caller too.
    pub fn report_memory(&mut self) -> u64 {
        let bytes = self.memory_bytes();
        if let Some(runs) = &mut self.spill_store {
            runs.set_memory_bytes(bytes);
        }
        bytes
    }
    /// Empties memory into runs, for which there is a room. `savepoints`: the numbers that came
    /// next when they were set.
    ///
    /// # Errors
    /// As [`Runs::add`]; then everything is as it was.
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
        runs.add_runs(&memtables, &numbers)?;
        self.spilled_size = self.written_size();
        self.spill_count += 1;
        self.spilled_below = self.next_number;
        self.batch.clear();
        self.ops.clear();
        self.reset_memtables();
        Ok(())
    }
    /// What is to be known of its numbers.
    pub fn numbers(&self, savepoints: impl Iterator<Item = WritesPosition>) -> TxnSeqInfo {
        let last_before = |place: WritesPosition| SeqNo(TXN_SEQ_BASE + place.next_number).prev();
        let taken_back =
            if bug::is_active(Bug::SpilledNotTakenBack) { &[][..] } else { &self.rolled_back };
        TxnSeqInfo {
            savepoints: savepoints.map(last_before).collect(),
            rolled_back: taken_back.into(),
        }
    }
    /// The runs, to be committed.
    pub fn take_spill_store(&mut self) -> Option<Box<dyn SpillStore>> {
        self.spill_store.take()
    }
    /// Adds what `write` adds to the batch.
    pub fn add_ops(
        &mut self,
        order: KeyComparator,
        write: impl FnOnce(&mut Batch) -> Result<()>,
    ) -> Result<()> {
        let mark = self.batch.savepoint();
        write(&mut self.batch)?;
        for op in self.batch.ops_since(mark) {
            let op = op?;
            if op.kind.is_operand() && self.is_spilled() {
                self.batch.roll_back_to(mark);
                return Err(Error::invalid(
                    "the transaction is larger than its memory, and takes no merges any more: commit it, or begin with them",
                ));
            }
            self.has_operands |= op.kind.is_operand();
            let hash = match op.kind {
                EntryKind::RangeDelete => 0,
                _ => order.filter_hash(&self.batch.buf()[op.key.clone()]),
            };
            self.ops.push(WrittenOp { number: self.next_number, hash, op });
            self.next_number += 1;
        }
        Ok(())
    }
    /// Where it stands.
    pub fn position(&self) -> WritesPosition {
        let (ops, spills, written) = (self.ops.len(), self.spill_count, self.written_size());
        WritesPosition {
            batch: self.batch.savepoint(),
            ops,
            next_number: self.next_number,
            spill_count: spills,
            written_size: written,
        }
    }
    /// Takes back what was written behind a place. The work is that of forgetting, not of what is
    /// forgotten.
    pub fn roll_back(&mut self, place: WritesPosition) {
        // What has been in memory since memory was emptied behind the place is all behind it.
        let ops = if place.spill_count == self.spill_count { place.ops } else { 0 };
        let in_runs = self.spilled_below > place.next_number;
        if self.inserted_ops > ops || in_runs {
            self.mark_rolled_back(
                TXN_SEQ_BASE + place.next_number..TXN_SEQ_BASE + self.next_number,
            );
        }
        if in_runs && let Some(runs) = &mut self.spill_store {
            runs.roll_back_from(SeqNo(TXN_SEQ_BASE + place.next_number));
        }
        if place.spill_count == self.spill_count {
            if !bug::is_active(Bug::SavepointLeaks) {
                self.batch.roll_back_to(place.batch);
            }
        } else {
            self.batch.clear();
            self.spilled_size = place.written_size;
        }
        self.ops.truncate(ops);
        if self.inserted_ops > ops {
            self.inserted_dead_ops += self.inserted_ops - ops;
            self.inserted_ops = ops;
            if self.inserted_dead_ops > self.inserted_ops.max(LINEAR_SEARCH_MAX) {
                self.reset_memtables();
            }
        }
    }
    /// Remembers numbers, behind which there are none, as taken back.
    fn mark_rolled_back(&mut self, numbers: Range<u64>) {
        while self.rolled_back.last().is_some_and(|d| d.start >= numbers.start) {
            self.rolled_back.pop();
        }
        match self.rolled_back.last_mut().filter(|d| d.end == numbers.start) {
            Some(last) => last.end = numbers.end,
            None if numbers.is_empty() => {}
            None => self.rolled_back.push(numbers),
        }
    }
    /// Empties memtables; what is in memory is laid into them when somebody asks.
    fn reset_memtables(&mut self) {
        for laid in self.memtables.iter_mut().filter(|l| !l.memtable.is_empty()) {
            laid.memtable = Arc::new(Memtable::new(laid.order));
        }
        (self.inserted_ops, self.inserted_dead_ops, self.memtable_bytes) = (0, 0, 0);
        // Nothing is left of the numbers that were in memtables only.
        while self.rolled_back.last().is_some_and(|d| d.start >= TXN_SEQ_BASE + self.spilled_below)
        {
            self.rolled_back.pop();
        }
    }
    /// Forgets everything, keeps the batch's memory.
    pub fn clear(&mut self) {
        self.batch.clear();
        let batch = std::mem::take(&mut self.batch);
        *self = TxnWrites { batch, ..TxnWrites::default() };
    }
    /// The batch, to be committed.
    pub fn take_batch(&mut self) -> Batch {
        let batch = std::mem::take(&mut self.batch);
        *self = TxnWrites::default();
        batch
    }

    /// What the transaction last did to `key`, if anything.
    pub fn find(
        &mut self,
        family: FamilyId,
        order: KeyComparator,
        key: &[u8],
    ) -> Result<Option<EntryValue>> {
        if self.ops.is_empty() && !self.is_spilled() {
            return Ok(None);
        }
        let hash = order.filter_hash(key);
        let newest = match self.ops.len() {
            0 => None,
            1..=LINEAR_SEARCH_MAX => self.find_linear(family, order, key, hash)?,
            _ => {
                self.fill_memtables()?;
                let laid = self.memtables.iter().find(|l| l.family == family);
                let found = laid.and_then(|l| {
                    get::lookup_overlay_memtable(&l.memtable, self.visible_numbers(), order, key)
                });
                found.map(|(_, found)| found)
            }
        };
        match &self.spill_store {
            Some(runs) if newest.is_none() && self.is_spilled() => {
                let Some(spilled) = runs.spilled_in(family) else { return Ok(None) };
                Ok(get::lookup_spilled_runs(&spilled, self.visible_numbers(), order, key, hash)?
                    .map(|(_, found)| found))
            }
            _ => Ok(newest),
        }
    }

    /// The bytes of a value that was found live.
    pub fn value(&self, family: FamilyId, found: EntryValue) -> Result<PinnedSlice> {
        match found {
            EntryValue::Value(value) | EntryValue::ValueExpiring(value, _) => Ok(value),
            EntryValue::Pointer(p) | EntryValue::PointerExpiring(p, _) => {
                let spilled = self.spill_store.as_ref().and_then(|runs| runs.spilled_in(family));
                let log = spilled.as_ref().and_then(|s| s.vlogs.get(&p.file));
                let log = log
                    .ok_or_else(|| Error::internal("an own value is in a log of somebody else"))?;
                log.reader.read_with_cause(&p, IoActivity::Get)
            }
            EntryValue::Tombstone => Err(Error::internal("a tombstone has no value")),
            EntryValue::Operand(_) | EntryValue::OperandPointer(_) => {
                Err(Error::internal("an operand is no value by itself"))
            }
        }
    }

    /// The newest of few operations in memory.
    fn find_linear(
        &self,
        family: FamilyId,
        order: KeyComparator,
        key: &[u8],
        hash: u64,
    ) -> Result<Option<EntryValue>> {
        let buf = self.batch.buf();
        let about = |w: &&WrittenOp| {
            w.op.family == family
                && match w.op.deleted_range_in(buf) {
                    Some((begin, end)) => begin.is_before(order, key) && !end.is_before(order, key),
                    None => {
                        (w.hash == hash || !order.supports_filters())
                            && order.keys_equal(&buf[w.op.key.clone()], key)
                    }
                }
        };
        self.ops.iter().rev().find(about).map(|w| decode_found(buf, &w.op)).transpose()
    }

    /// Whether it wrote `key`, or erased a range around it.
    pub fn has_written(
        &mut self,
        family: FamilyId,
        order: KeyComparator,
        key: &[u8],
    ) -> Result<bool> {
        Ok(self.find(family, order, key)?.is_some())
    }

    /// The entries of a family as a picture that later writes and rollbacks do not change; `None`
    /// if it wrote nothing there.
    pub fn read_overlay(&mut self, family: FamilyId) -> Result<Option<TxnOverlay>> {
        self.fill_memtables()?;
        let laid = self.memtables.iter().find(|l| l.family == family);
        let spilled =
            || self.spill_store.as_ref().filter(|_| self.is_spilled())?.spilled_in(family);
        Ok(laid.map(|l| {
            TxnOverlay::new(Arc::clone(&l.memtable), self.visible_numbers()).with_spilled(spilled())
        }))
    }
    fn visible_numbers(&self) -> VisibleSeqs<'_> {
        VisibleSeqs { end_seq: TXN_SEQ_BASE + self.next_number, rolled_back: &self.rolled_back }
    }

    /// Announces a family, whose order the memtable must have.
    pub fn add_family(&mut self, family: FamilyId, order: KeyComparator) {
        if !self.memtables.iter().any(|l| l.family == family) {
            self.memtables.push(FamilyMemtable {
                family,
                order,
                memtable: Arc::new(Memtable::new(order)),
            });
        }
    }

    /// Brings memtables up to date.
    fn fill_memtables(&mut self) -> Result<()> {
        let new = &self.ops[self.inserted_ops..];
        for laid in self.memtables.iter().filter(|l| new.iter().any(|w| w.op.family == l.family)) {
            let mine = || new.iter().filter(|w| w.op.family == laid.family);
            let bytes = mine().map(|w| w.op.key.len() + w.op.value.len()).sum();
            let (mut buffer, mut ops) = (Vec::with_capacity(bytes), Vec::new());
            let mut put = |range: &Range<usize>| {
                let start = buffer.len();
                buffer.extend_from_slice(&self.batch.buf()[range.clone()]);
                start..buffer.len()
            };
            for w in mine() {
                // Only as a delete does it say in a run that the key was written, whatever it met
                // there.
                let kind = if w.op.kind == EntryKind::SingleDelete {
                    EntryKind::Delete
                } else {
                    w.op.kind
                };
                let op = BatchOp { key: put(&w.op.key), value: put(&w.op.value), kind, ..w.op };
                ops.push((op, SeqNo(w.number)));
            }
            laid.memtable.insert(&Arc::new(buffer), TXN_SEQ_BASE, &ops)?;
        }
        if self.inserted_ops < self.ops.len() {
            self.memtable_bytes = self.memtables.iter().map(|l| l.memtable.bytes()).sum();
        }
        self.inserted_ops = self.ops.len();
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
