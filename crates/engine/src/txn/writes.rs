//! What a transaction has written: a batch in log format, ready to be committed as it lies, and the means to read it.
//!
//! ```text
//! batch:     op 0 | op 1 | op 2 | ...        commit takes it as it is; a rollback to a savepoint cuts it off
//! ops:       number, family, hash, where     few: looked through from the newest
//! memtables: one for each family             many, or a cursor: filled from `ops` when they are asked for
//! ```
//! Numbers only grow, also over rollbacks: a memtable cannot forget, so numbers taken back are remembered as dead.

use perigee_base::bug::{self, Bug};
use perigee_base::{EntryKind, FamilyId, KeyOrder, Result, SeqNo, Shared, ValueRef};
use perigee_file::Found;
use perigee_file::log::{Batch, Mark, Op};
use perigee_tree::Memtable;
use perigee_tree::own::{FLOOR, Own};
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
    memtable: Arc<Memtable>,
}

/// A place to come back to.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    batch: Mark,
    ops: usize,
}

/// The writes of a transaction.
#[derive(Debug, Default)]
pub struct Writes {
    batch: Batch,
    ops: Vec<Written>,
    memtables: SmallVec<[Laid; 1]>,
    /// How many of `ops` are in memtables.
    laid: usize,
    /// The next number, from 0 up.
    next: u64,
    /// Numbers in memtables that were taken back: ascending, apart.
    dead: Vec<Range<u64>>,
}

impl Writes {
    /// None.
    pub fn new() -> Writes {
        Writes::default()
    }
    /// How many.
    pub fn count(&self) -> usize {
        self.ops.len()
    }
    /// Bytes that they take in the log.
    pub fn bytes(&self) -> u64 {
        self.batch.payload_bytes() as u64
    }
    /// Adds what `write` adds to the batch.
    pub fn add(&mut self, order: KeyOrder, write: impl FnOnce(&mut Batch) -> Result<()>) -> Result<()> {
        let mark = self.batch.mark();
        write(&mut self.batch)?;
        for op in self.batch.since(mark) {
            let op = op?;
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
        Place { batch: self.batch.mark(), ops: self.ops.len() }
    }
    /// Takes back what was written behind a place. The work is that of forgetting, not of what is forgotten.
    pub fn roll_back(&mut self, place: Place) {
        let Some(first) = self.ops.get(place.ops).map(|w| w.number) else { return };
        if self.laid > place.ops {
            self.laid = place.ops;
            while self.dead.last().is_some_and(|d| d.start >= first) {
                self.dead.pop();
            }
            match self.dead.last_mut().filter(|d| d.end == first) {
                Some(last) => last.end = self.next,
                None => self.dead.push(first..self.next),
            }
        }
        if !bug::on(Bug::SavepointLeaks) {
            self.batch.truncate(place.batch);
        }
        self.ops.truncate(place.ops);
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
        if self.ops.is_empty() {
            return Ok(None);
        }
        let hash = order.filter_hash(key);
        if self.ops.len() > FEW {
            let Some(own) = self.own(family)? else { return Ok(None) };
            let (point, cover) = (own.point(key, hash), own.cover(order, key));
            return Ok(perigee_tree::get::newer(point, cover).map(|(_, found)| found));
        }
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
        let dead = || self.dead.iter().map(|d| FLOOR + d.start..FLOOR + d.end).collect();
        let laid = self.memtables.iter().find(|l| l.family == family);
        Ok(laid.map(|l| Own::new(Arc::clone(&l.memtable), FLOOR + self.next, dead())))
    }

    /// Announces a family, whose order the memtable must have.
    pub fn know(&mut self, family: FamilyId, order: KeyOrder) {
        if !self.memtables.iter().any(|l| l.family == family) {
            self.memtables.push(Laid { family, memtable: Arc::new(Memtable::new(order)) });
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
                let op = Op { key: put(&w.op.key), value: put(&w.op.value), ..w.op };
                ops.push((op, SeqNo(w.number)));
            }
            laid.memtable.insert(&Arc::new(buffer), FLOOR, &ops)?;
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
