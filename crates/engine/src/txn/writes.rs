//! What a transaction has written: a batch in log format, ready to be committed as it lies, and the means to read it.
//!
//! ```text
//! batch:     op 0 | op 1 | op 2 | ...        commit takes it as it is; a rollback to a savepoint cuts it off
//! ops:       number, family, hash, where     few: looked through from the newest
//! memtables: one for each family             many, or a cursor: filled from `ops` when they are asked for
//! runs:      tables of its own               what came before, if it did not fit into memory
//! ```
//! Numbers only grow, also over rollbacks: a memtable cannot forget, and a table is not written again for it, so numbers taken
//! back are remembered as dead. A memtable of which most is dead is made anew.

use super::runs::Runs;
use perigee_base::bug::{self, Bug};
use perigee_base::io::Cause;
use perigee_base::{EntryKind, Error, FamilyId, KeyOrder, Result, SeqNo, Shared, ValueRef};
use perigee_file::Found;
use perigee_file::log::{Batch, Mark, Op};
use perigee_tree::Memtable;
use perigee_tree::bulk::spill::Numbers;
use perigee_tree::get;
use perigee_tree::own::{FLOOR, Own, Shown};
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::Arc;

/// So many operations are looked through; more are read by way of memtables.
const FEW: usize = 16;

/// An operation and what finds it quickly.
#[derive(Debug)]
struct Written {
    number: u64,
    /// Of its key; a range tombstone has none.
    hash: u64,
    op: Op,
}

/// A family's own entries.
#[derive(Debug)]
struct Laid {
    family: FamilyId,
    order: KeyOrder,
    memtable: Arc<Memtable>,
}

/// A place to come back to.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    batch: Mark,
    ops: usize,
    /// The number of the next operation.
    number: u64,
    /// How often memory was emptied into runs by then, and what was written altogether.
    spills: u32,
    written: (usize, u64),
}

/// The writes of a transaction.
#[derive(Debug, Default)]
pub struct Writes {
    batch: Batch,
    ops: Vec<Written>,
    memtables: SmallVec<[Laid; 1]>,
    /// How many of `ops` are in memtables; how many others there were taken back; bytes of the memtables.
    laid: usize,
    laid_dead: usize,
    laid_bytes: u64,
    /// The next number, from 0 up.
    next: u64,
    /// Numbers (from [`FLOOR`] up) in memtables or runs that were taken back: ascending, apart.
    dead: Vec<Range<u64>>,
    /// What does not fit into memory. All numbers in runs are below `in_runs`.
    runs: Option<Box<dyn Runs>>,
    in_runs: u64,
    /// It has written operands: then it stays in memory, because a table that is given a number holds one entry of a key.
    operands: bool,
    /// How often memory was emptied, and the operations and bytes that lie in runs.
    spills: u32,
    spilled: (usize, u64),
}

impl Writes {
    /// None.
    pub fn new() -> Writes {
        Writes::default()
    }
    /// How many, and the bytes that they take in the log.
    pub fn written(&self) -> (usize, u64) {
        (self.spilled.0 + self.ops.len(), self.spilled.1 + self.batch.payload_bytes() as u64)
    }
    /// Bytes of memory.
    pub fn memory_bytes(&self) -> u64 {
        (self.batch.payload_bytes() + self.ops.len() * size_of::<Written>()) as u64 + self.laid_bytes
    }
    /// Whether memory may be emptied into runs.
    pub fn may_spill(&self) -> bool {
        !self.operands
    }
    /// Whether anything that counts lies in runs.
    pub fn is_spilled(&self) -> bool {
        self.spilled.0 > 0
    }
    /// Has a room for what does not fit into memory, made by `make`.
    pub fn have_runs(&mut self, make: impl FnOnce() -> Box<dyn Runs>) {
        self.runs.get_or_insert_with(make);
    }
    /// Tells that room how many bytes of memory there are, and the caller too.
    pub fn tell_memory(&mut self) -> u64 {
        let bytes = self.memory_bytes();
        if let Some(runs) = &mut self.runs {
            runs.holds(bytes);
        }
        bytes
    }
    /// Empties memory into runs, for which there is a room. `savepoints`: the numbers that came next when they were set.
    ///
    /// # Errors
    /// As [`Runs::add`]; then everything is as it was.
    pub fn spill(&mut self, savepoints: impl Iterator<Item = Place>) -> Result<()> {
        if self.laid_dead > 0 {
            self.lay_anew();
        }
        self.lay()?;
        let numbers = self.numbers(savepoints);
        let Some(runs) = self.runs.as_mut().filter(|_| !self.ops.is_empty()) else { return Ok(()) };
        let full = self.memtables.iter().filter(|l| !l.memtable.is_empty());
        let memtables: Vec<_> = full.map(|l| (l.family, Arc::clone(&l.memtable))).collect();
        runs.add(&memtables, &numbers)?;
        self.spilled = self.written();
        self.spills += 1;
        self.in_runs = self.next;
        self.batch.clear();
        self.ops.clear();
        self.lay_anew();
        Ok(())
    }
    /// What is to be known of its numbers.
    pub fn numbers(&self, savepoints: impl Iterator<Item = Place>) -> Numbers {
        let last_before = |place: Place| SeqNo(FLOOR + place.number).prev();
        let taken_back = if bug::on(Bug::SpilledNotTakenBack) { &[][..] } else { &self.dead };
        Numbers { savepoints: savepoints.map(last_before).collect(), taken_back: taken_back.into() }
    }
    /// The runs, to be committed.
    pub fn take_runs(&mut self) -> Option<Box<dyn Runs>> {
        self.runs.take()
    }
    /// Adds what `write` adds to the batch.
    pub fn add(&mut self, order: KeyOrder, write: impl FnOnce(&mut Batch) -> Result<()>) -> Result<()> {
        let mark = self.batch.mark();
        write(&mut self.batch)?;
        for op in self.batch.since(mark) {
            let op = op?;
            if op.kind.is_operand() && self.is_spilled() {
                self.batch.truncate(mark);
                return Err(Error::invalid(
                    "the transaction is larger than its memory, and takes no merges any more: commit it, or begin with them",
                ));
            }
            self.operands |= op.kind.is_operand();
            let hash = match op.kind {
                EntryKind::RangeDelete => 0,
                _ => order.filter_hash(&self.batch.buf()[op.key.clone()]),
            };
            self.ops.push(Written { number: self.next, hash, op });
            self.next += 1;
        }
        Ok(())
    }
    /// Where it stands.
    pub fn place(&self) -> Place {
        let (ops, spills, written) = (self.ops.len(), self.spills, self.written());
        Place { batch: self.batch.mark(), ops, number: self.next, spills, written }
    }
    /// Takes back what was written behind a place. The work is that of forgetting, not of what is forgotten.
    pub fn roll_back(&mut self, place: Place) {
        // What has been in memory since memory was emptied behind the place is all behind it.
        let ops = if place.spills == self.spills { place.ops } else { 0 };
        let in_runs = self.in_runs > place.number;
        if self.laid > ops || in_runs {
            self.kill(FLOOR + place.number..FLOOR + self.next);
        }
        if in_runs && let Some(runs) = &mut self.runs {
            runs.roll_back(SeqNo(FLOOR + place.number));
        }
        if place.spills == self.spills {
            if !bug::on(Bug::SavepointLeaks) {
                self.batch.truncate(place.batch);
            }
        } else {
            self.batch.clear();
            self.spilled = place.written;
        }
        self.ops.truncate(ops);
        if self.laid > ops {
            self.laid_dead += self.laid - ops;
            self.laid = ops;
            if self.laid_dead > self.laid.max(FEW) {
                self.lay_anew();
            }
        }
    }
    /// Remembers numbers, behind which there are none, as taken back.
    fn kill(&mut self, numbers: Range<u64>) {
        while self.dead.last().is_some_and(|d| d.start >= numbers.start) {
            self.dead.pop();
        }
        match self.dead.last_mut().filter(|d| d.end == numbers.start) {
            Some(last) => last.end = numbers.end,
            None if numbers.is_empty() => {}
            None => self.dead.push(numbers),
        }
    }
    /// Empties memtables; what is in memory is laid into them when somebody asks.
    fn lay_anew(&mut self) {
        for laid in self.memtables.iter_mut().filter(|l| !l.memtable.is_empty()) {
            laid.memtable = Arc::new(Memtable::new(laid.order));
        }
        (self.laid, self.laid_dead, self.laid_bytes) = (0, 0, 0);
        // Nothing is left of the numbers that were in memtables only.
        while self.dead.last().is_some_and(|d| d.start >= FLOOR + self.in_runs) {
            self.dead.pop();
        }
    }
    /// Forgets everything, keeps the batch's memory.
    pub fn clear(&mut self) {
        self.batch.clear();
        let batch = std::mem::take(&mut self.batch);
        *self = Writes { batch, ..Writes::default() };
    }
    /// The batch, to be committed.
    pub fn take(&mut self) -> Batch {
        let batch = std::mem::take(&mut self.batch);
        *self = Writes::default();
        batch
    }

    /// What the transaction last did to `key`, if anything.
    pub fn find(&mut self, family: FamilyId, order: KeyOrder, key: &[u8]) -> Result<Option<Found>> {
        if self.ops.is_empty() && !self.is_spilled() {
            return Ok(None);
        }
        let hash = order.filter_hash(key);
        let newest = match self.ops.len() {
            0 => None,
            1..=FEW => self.find_among_few(family, order, key, hash)?,
            _ => {
                self.lay()?;
                let laid = self.memtables.iter().find(|l| l.family == family);
                let found = laid.and_then(|l| get::in_own(&l.memtable, self.shown(), order, key));
                found.map(|(_, found)| found)
            }
        };
        match &self.runs {
            Some(runs) if newest.is_none() && self.is_spilled() => {
                let Some(spilled) = runs.of(family) else { return Ok(None) };
                Ok(get::in_spilled(&spilled, self.shown(), order, key, hash)?.map(|(_, found)| found))
            }
            _ => Ok(newest),
        }
    }

    /// The bytes of a value that was found live.
    pub fn value(&self, family: FamilyId, found: Found) -> Result<Shared> {
        match found {
            Found::Value(value) | Found::ValueUntil(value, _) => Ok(value),
            Found::Pointer(p) | Found::PointerUntil(p, _) => {
                let spilled = self.runs.as_ref().and_then(|runs| runs.of(family));
                let log = spilled.as_ref().and_then(|s| s.vlogs.get(&p.file));
                let log = log.ok_or_else(|| Error::internal("an own value is in a log of somebody else"))?;
                log.reader.read_for(&p, Cause::Get)
            }
            Found::Tombstone => Err(Error::internal("a tombstone has no value")),
            Found::Operand(_) | Found::OperandPointer(_) => {
                Err(Error::internal("an operand is no value by itself"))
            }
        }
    }

    /// The newest of few operations in memory.
    fn find_among_few(
        &self,
        family: FamilyId,
        order: KeyOrder,
        key: &[u8],
        hash: u64,
    ) -> Result<Option<Found>> {
        let buf = self.batch.buf();
        let about = |w: &&Written| {
            w.op.family == family
                && match w.op.range_in(buf) {
                    Some((begin, end)) => begin.is_before(order, key) && !end.is_before(order, key),
                    None => {
                        (w.hash == hash || !order.can_filter()) && order.equal(&buf[w.op.key.clone()], key)
                    }
                }
        };
        self.ops.iter().rev().find(about).map(|w| found(buf, &w.op)).transpose()
    }

    /// Whether it wrote `key`, or erased a range around it.
    pub fn touches(&mut self, family: FamilyId, order: KeyOrder, key: &[u8]) -> Result<bool> {
        Ok(self.find(family, order, key)?.is_some())
    }

    /// The entries of a family as a picture that later writes and rollbacks do not change; `None` if it wrote nothing there.
    pub fn own(&mut self, family: FamilyId) -> Result<Option<Own>> {
        self.lay()?;
        let laid = self.memtables.iter().find(|l| l.family == family);
        let spilled = || self.runs.as_ref().filter(|_| self.is_spilled())?.of(family);
        Ok(laid.map(|l| Own::new(Arc::clone(&l.memtable), self.shown()).over(spilled())))
    }
    fn shown(&self) -> Shown<'_> {
        Shown { end: FLOOR + self.next, dead: &self.dead }
    }

    /// Announces a family, whose order the memtable must have.
    pub fn know(&mut self, family: FamilyId, order: KeyOrder) {
        if !self.memtables.iter().any(|l| l.family == family) {
            self.memtables.push(Laid { family, order, memtable: Arc::new(Memtable::new(order)) });
        }
    }

    /// Brings memtables up to date.
    fn lay(&mut self) -> Result<()> {
        let new = &self.ops[self.laid..];
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
                // Only as a delete does it say in a run that the key was written, whatever it met there.
                let kind = if w.op.kind == EntryKind::SingleDelete { EntryKind::Delete } else { w.op.kind };
                let op = Op { key: put(&w.op.key), value: put(&w.op.value), kind, ..w.op };
                ops.push((op, SeqNo(w.number)));
            }
            laid.memtable.insert(&Arc::new(buffer), FLOOR, &ops)?;
        }
        if self.laid < self.ops.len() {
            self.laid_bytes = self.memtables.iter().map(|l| l.memtable.bytes()).sum();
        }
        self.laid = self.ops.len();
        Ok(())
    }
}

fn found(buf: &[u8], op: &Op) -> Result<Found> {
    if op.kind == EntryKind::RangeDelete {
        return Ok(Found::Tombstone);
    }
    let own = |value: &[u8]| Shared::from(value.to_vec());
    Ok(match op.value_in(buf)? {
        ValueRef::Inline(value) => Found::Value(own(value)),
        ValueRef::InlineUntil(value, x) => Found::ValueUntil(own(value), x),
        ValueRef::Operand(value) => Found::Operand(own(value)),
        _ => Found::Tombstone,
    })
}
