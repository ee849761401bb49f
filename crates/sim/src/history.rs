//! Histories: operations as plain data, and their generation from a seed. Uses neither the engine
//! nor the oracle; a slot (column family, snapshot, cursor, iterator) is a small number that each
//! target maps to its own handle.

use crate::rng::{Rng, value_bytes};
use std::ops::Bound;

/// Number of column-family slots; slot 0 is `default`.
pub const FAMILIES: usize = 4;
/// Number of snapshot slots.
pub const SNAPSHOTS: usize = 3;
/// Number of remembered points in history.
pub const HISTORY_POINTS: usize = 3;
/// Number of slots for open cursors and iterators.
pub const CURSORS: usize = 4;

/// Owned byte string.
pub type Bytes = Vec<u8>;
/// Bounds of a key range.
pub type Range = (Bound<Bytes>, Bound<Bytes>);

/// A value given by id and length, so that a printed history stays readable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    /// Unique id.
    pub id: u64,
    /// Length in bytes.
    pub len: usize,
}

impl Value {
    /// Returns how a bulk load writes the value: some values expire.
    pub fn load_kind(self) -> WriteKind {
        const DAYS: [u64; 4] = [0, 1, 3, 3650];
        if self.id % 7 == 3 {
            WriteKind::Ttl(DAYS[(self.id / 7 % 4) as usize])
        } else {
            WriteKind::Plain
        }
    }
    /// Returns the bytes of the value.
    pub fn bytes(self) -> Bytes {
        value_bytes(self.id, self.len)
    }
}

/// Kind of write of a batch element.
#[derive(Clone, Debug)]
pub enum WriteKind {
    /// Put of one key or, without a value, delete.
    Plain,
    /// Put that expires after this many days and a half.
    Ttl(u64),
    /// Merge operand.
    Merge,
    /// Single delete of a key that was put at most once.
    SingleDelete,
    /// Range delete; the key is unused.
    DeleteRange(Range),
    /// Delete of all keys with the key as prefix.
    DeletePrefix,
}

/// One element of a batch; without a value it is a delete.
#[derive(Clone, Debug)]
pub struct Write {
    /// Column-family slot.
    pub family: usize,
    /// Key.
    pub key: Bytes,
    /// New value; `None` deletes.
    pub value: Option<Value>,
    /// Kind of write.
    pub how: WriteKind,
}

/// A cursor movement.
#[derive(Clone, Debug)]
pub enum CursorMove {
    /// To the first entry.
    First,
    /// To the last entry.
    Last,
    /// To the first entry at or after the key.
    Seek(Bytes),
    /// To the last entry at or before the key.
    SeekForPrev(Bytes),
    /// To the next entry.
    Next,
    /// To the previous entry.
    Prev,
}

/// Keys that a scan covers.
#[derive(Clone, Debug)]
pub enum ScanBounds {
    /// A range.
    Range(Range),
    /// Keys with this prefix.
    Prefix(Bytes),
}

/// One operation; the field names say what they hold.
#[allow(missing_docs)]
#[derive(Clone, Debug)]
pub enum Op {
    /// Commits a batch. A single element without `batched` goes through `put` or `delete`.
    Write { writes: Vec<Write>, batched: bool },
    /// Reads one key, now or in a snapshot.
    Get { family: usize, key: Bytes, snapshot: Option<usize> },
    /// Reads several keys at once, now or in a snapshot.
    MultiGet { family: usize, keys: Vec<Bytes>, snapshot: Option<usize> },
    /// Bulk-loads with this memory limit: the same entries into each of these column families,
    /// which are finished together.
    Load { families: Vec<usize>, entries: Vec<(Bytes, Value)>, memory: usize },
    /// Checks the presence of a key, now or in a snapshot.
    Contains { family: usize, key: Bytes, snapshot: Option<usize> },
    /// Drains an iterator from both ends: bit *i* of `backs` says whether step *i* takes from the
    /// back.
    Scan { family: usize, span: ScanBounds, snapshot: Option<usize>, backs: u64, steps: usize },
    /// Takes a snapshot into a slot.
    TakeSnapshot { slot: usize },
    /// Drops the snapshot in a slot.
    DropSnapshot { slot: usize },
    /// Opens a cursor into a slot.
    OpenCursor { slot: usize, family: usize, range: Range, snapshot: Option<usize> },
    /// Moves the cursor and reads the entry at its position.
    MoveCursor { slot: usize, to: CursorMove },
    /// Opens an iterator into a slot, to be stepped between other operations.
    OpenIter { slot: usize, family: usize, span: ScanBounds, snapshot: Option<usize> },
    /// Takes one entry from either end of the iterator.
    StepIter { slot: usize, back: bool },
    /// Drops the cursor or iterator in a slot.
    DropCursor { slot: usize },
    /// Remembers the current sequence number or (named) creates a named snapshot, replacing an
    /// older one of that name.
    RememberSeq { moment: usize, named: bool },
    /// Reads a whole column family at a remembered point.
    ReadPast { moment: usize, family: usize },
    /// Reads a whole column family from the replica of a change-feed consumer.
    FollowFeed { family: usize },
    /// Creates the column family of a slot.
    Create { family: usize },
    /// Drops the column family of a slot.
    Drop { family: usize },
    /// Renames the column family of a slot to that of another slot.
    Rename { family: usize, to: usize },
    /// Clones a column family into slot `to`.
    Clone { family: usize, to: usize },
    /// Clears the column family of a slot.
    Clear { family: usize },
    /// Lists the names of all column families.
    FamilyNames,
    /// Flushes the database or one column family.
    Flush { family: Option<usize> },
    /// Compacts the database or one column family.
    Compact { family: Option<usize> },
    /// Compacts the tables of a key range.
    CompactRange { family: usize, range: Range },
    /// Purges the database or one column family.
    Purge { family: Option<usize> },
    /// Pauses background work, tries a flush (refused if there is anything to flush), and resumes.
    FlushWhilePaused,
    /// Cancels running compactions, waits, and resumes.
    CancelCompactions { us: u64 },
    /// Sets the rate of background work; 0 means no limit.
    SetRate { bytes_per_second: u64 },
    /// Makes everything durable.
    Sync,
    /// Waits for background work.
    WaitIdle,
    /// Reads and checks every byte.
    Verify,
    /// Advances the clocks by this many days.
    AdvanceDays { days: u64 },
    /// Sets the wall clock ten years ahead, compacts everything, and sets it right again.
    ClockJump,
    /// Sets the wall clock ten years back.
    ClockBack,
    /// Closes and reopens the database; afterwards all slots except the column families are empty.
    Reopen,
}

/// Returns the name of the column family in a slot.
pub fn family_name(slot: usize) -> String {
    if slot == 0 { "default".into() } else { format!("family {slot}") }
}

/// Shape of the keys of one column family.
#[derive(Clone, Debug)]
enum KeyShape {
    /// 0 to 3 bytes of a tiny alphabet that includes 0x00 and 0xFF.
    Tiny,
    /// A long common prefix and a short number.
    Prefixed(Bytes, u64),
    /// Decimal numbers of fixed width.
    Numbers(u64),
    /// Little-endian integers of 8 bytes around zero.
    Integers(u64),
    /// Words in mixed case, occasionally with bytes after a NUL.
    Words(u64),
}

/// Generates histories.
pub struct Generator {
    rng: Rng,
    keys: [KeyShape; FAMILIES],
    next_value: u64,
    value_max: usize,
    recent: Vec<Bytes>,
    /// Keys that were put once, for single deletes.
    put_once_keys: Vec<(usize, Bytes)>,
    /// True if the history merges; then all column families need a merge operator.
    pub merges: bool,
}

impl Generator {
    /// Creates the generator for a seed.
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let keys = std::array::from_fn(|_| match rng.below(5) {
            0 => KeyShape::Tiny,
            1 => {
                let len = rng.between(8, 300);
                KeyShape::Prefixed(value_bytes(rng.next() | 1, len), rng.log_uniform(400))
            }
            2 => KeyShape::Integers(rng.log_uniform(600)),
            3 => KeyShape::Words(rng.log_uniform(400)),
            _ => KeyShape::Numbers(rng.log_uniform(600)),
        });
        let value_max = rng.pick(&[20, 200, 3000]);
        let (recent, once, merges) = (Vec::new(), Vec::new(), rng.percent(40));
        Generator { rng, keys, next_value: 0, value_max, recent, put_once_keys: once, merges }
    }

    /// Generates a history of `n` operations. It starts by creating all column families but one.
    pub fn history(&mut self, n: usize) -> Vec<Op> {
        let mut ops: Vec<Op> = (1..FAMILIES - 1).map(|family| Op::Create { family }).collect();
        while ops.len() < n {
            let op = self.random_op();
            let steps = match op {
                Op::OpenCursor { slot, .. } => self.cursor_moves(slot),
                Op::OpenIter { slot, .. } => (0..self.rng.below(6))
                    .map(|_| Op::StepIter { slot, back: self.rng.percent(50) })
                    .collect(),
                _ => Vec::new(),
            };
            ops.push(op);
            ops.extend(steps);
        }
        ops
    }

    fn cursor_moves(&mut self, slot: usize) -> Vec<Op> {
        let n = self.rng.below(6);
        (0..n).map(|_| Op::MoveCursor { slot, to: self.random_move() }).collect()
    }

    fn random_op(&mut self) -> Op {
        const WEIGHTS: [u32; 23] =
            [380, 90, 80, 150, 40, 50, 25, 15, 30, 140, 20, 60, 10, 6, 8, 4, 7, 4, 5, 3, 9, 9, 30];
        let family = self.random_family();
        match self.rng.weighted(&WEIGHTS) {
            0 => self.put_op(family),
            1 => Op::Write { writes: vec![self.random_write(family, true)], batched: false },
            2 if self.rng.percent(7) => self.load_op(family),
            2 => self.batch_op(),
            3 if self.rng.percent(15) => {
                // At least one key: the result has one answer per key, so without keys it could not
                // report an error.
                let keys = (0..self.rng.between(1, 40)).map(|_| self.nearby_key(family)).collect();
                Op::MultiGet { family, keys, snapshot: self.maybe_snapshot() }
            }
            3 => Op::Get { family, key: self.random_key(family), snapshot: self.maybe_snapshot() },
            4 => Op::Contains {
                family,
                key: self.random_key(family),
                snapshot: self.maybe_snapshot(),
            },
            5 => self.scan_op(family),
            6 => Op::TakeSnapshot { slot: self.rng.index(SNAPSHOTS) },
            7 => Op::DropSnapshot { slot: self.rng.index(SNAPSHOTS) },
            8 => Op::OpenCursor {
                slot: self.rng.index(CURSORS),
                range: self.random_range(family),
                snapshot: self.maybe_snapshot(),
                family,
            },
            9 => Op::MoveCursor { slot: self.rng.index(CURSORS), to: self.random_move() },
            10 => {
                let (slot, span) = (self.rng.index(CURSORS), self.random_bounds(family));
                Op::OpenIter { slot, family, span, snapshot: self.maybe_snapshot() }
            }
            11 => Op::StepIter { slot: self.rng.index(CURSORS), back: self.rng.percent(50) },
            12 => Op::DropCursor { slot: self.rng.index(CURSORS) },
            13 => Op::Flush { family: self.maybe_family() },
            14 => self.family_op(family),
            15 => Op::Compact { family: self.maybe_family() },
            16 => Op::Sync,
            17 => Op::WaitIdle,
            18 => self.rare_op(),
            20 => self.admin_op(family),
            21 => self.clock_op(),
            22 => self.history_op(family),
            _ => Op::Reopen,
        }
    }

    fn history_op(&mut self, family: usize) -> Op {
        let moment = self.rng.index(HISTORY_POINTS);
        match self.rng.below(6) {
            0 | 1 => Op::RememberSeq { moment, named: self.rng.percent(30) },
            2..5 => Op::ReadPast { moment, family },
            _ => Op::FollowFeed { family },
        }
    }

    fn clock_op(&mut self) -> Op {
        match self.rng.below(8) {
            0..5 => Op::AdvanceDays { days: self.rng.between(1, 9) as u64 },
            5 | 6 => Op::ClockJump,
            _ => Op::ClockBack,
        }
    }

    /// An operation of a database administrator.
    fn admin_op(&mut self, family: usize) -> Op {
        match self.rng.below(9) {
            0..4 => Op::CompactRange { family, range: self.random_range(family) },
            4 => Op::Purge { family: self.maybe_family() },
            5 => Op::FlushWhilePaused,
            6 | 7 => Op::CancelCompactions { us: self.rng.log_uniform(3000) },
            _ => Op::SetRate { bytes_per_second: self.rng.pick(&[0, 0, 2 << 20, 200 << 10]) },
        }
    }

    fn load_op(&mut self, family: usize) -> Op {
        let n = self.rng.log_uniform(120) as usize;
        let mut entries: Vec<(Bytes, Value)> =
            (0..n).map(|_| (self.random_key(family), self.new_value())).collect();
        if self.rng.percent(40) {
            entries.sort_by(|a, b| a.0.cmp(&b.0));
        }
        let other = self.rng.index(FAMILIES);
        let families = if other == family || self.rng.percent(40) {
            vec![family]
        } else {
            vec![family, other]
        };
        Op::Load { families, entries, memory: self.rng.pick(&[1, 200, 1 << 10, 1 << 20]) }
    }

    fn rare_op(&mut self) -> Op {
        match self.rng.below(3) {
            0 => Op::Verify,
            _ => Op::FamilyNames,
        }
    }

    fn family_op(&mut self, family: usize) -> Op {
        let to = self.rng.index(FAMILIES);
        match self.rng.weighted(&[40, 20, 12, 16, 12]) {
            0 => Op::Create { family },
            1 => Op::Drop { family },
            2 => Op::Rename { family, to },
            3 => Op::Clone { family, to },
            _ => Op::Clear { family },
        }
    }

    fn random_family(&mut self) -> usize {
        self.rng.weighted(&[5, 5, 3, 1])
    }

    fn maybe_family(&mut self) -> Option<usize> {
        if self.rng.percent(50) { Some(self.random_family()) } else { None }
    }

    fn maybe_snapshot(&mut self) -> Option<usize> {
        if self.rng.percent(30) { Some(self.rng.index(SNAPSHOTS)) } else { None }
    }

    fn put_op(&mut self, family: usize) -> Op {
        Op::Write { writes: vec![self.random_write(family, false)], batched: self.rng.percent(10) }
    }

    fn batch_op(&mut self) -> Op {
        let n = self.rng.between(0, 12);
        let writes = (0..n)
            .map(|_| {
                let (family, delete) = (self.random_family(), self.rng.percent(30));
                self.random_write(family, delete)
            })
            .collect();
        Op::Write { writes, batched: true }
    }

    fn random_write(&mut self, family: usize, delete: bool) -> Write {
        if delete && !self.put_once_keys.is_empty() && self.rng.percent(15) {
            let at = self.rng.index(self.put_once_keys.len());
            let (family, key) = self.put_once_keys.swap_remove(at);
            return Write { family, key, value: None, how: WriteKind::SingleDelete };
        }
        let value = if delete { None } else { Some(self.new_value()) };
        if self.merges && !delete && self.rng.percent(60) {
            return self.merge_write(family, value);
        }
        let how = match (delete, self.rng.below(20)) {
            (true, 0..4) => WriteKind::DeleteRange(self.random_range(family)),
            (true, 4) => WriteKind::DeletePrefix,
            (false, 0..3) => WriteKind::Ttl(self.rng.pick(&[0, 1, 3, 3650])),
            (false, 3) => return self.put_once_write(family, value),
            _ => WriteKind::Plain,
        };
        Write { family, key: self.random_key(family), value, how }
    }

    /// A merge operand, mostly for a recently used key, so that keys collect many operands.
    fn merge_write(&mut self, family: usize, value: Option<Value>) -> Write {
        let again = !self.recent.is_empty() && self.rng.percent(70);
        let key = if again {
            self.recent[self.rng.index(self.recent.len())].clone()
        } else {
            self.random_key(family)
        };
        Write { family, key, value, how: WriteKind::Merge }
    }

    /// A put of a key that never existed and will be removed by a single delete.
    fn put_once_write(&mut self, family: usize, value: Option<Value>) -> Write {
        let n = self.next_value;
        let key = match &self.keys[family] {
            KeyShape::Integers(_) => (n as i64 + (1 << 40)).to_le_bytes().to_vec(),
            _ => format!("once {n:06}").into_bytes(),
        };
        self.put_once_keys.push((family, key.clone()));
        Write { family, key, value, how: WriteKind::Plain }
    }

    fn new_value(&mut self) -> Value {
        self.next_value += 1;
        let len = match self.rng.below(8) {
            0 => 0,
            1 => self.rng.pick(&[1, 15, 16, 17, 63, 64, 65]),
            2 => self.rng.between(0, self.value_max),
            _ => self.rng.between(1, self.value_max.min(60)),
        };
        Value { id: self.next_value, len }
    }

    /// A key of the column family, occasionally a recently used one, so that keys are overwritten
    /// and found.
    fn random_key(&mut self, family: usize) -> Bytes {
        if self.rng.percent(25) && !self.recent.is_empty() {
            return self.recent[self.rng.index(self.recent.len())].clone();
        }
        let key = match &self.keys[family] {
            KeyShape::Tiny => {
                let n = self.rng.between(0, 3);
                (0..n).map(|_| self.rng.pick(&[0x00, 0x01, b'a', 0xff])).collect()
            }
            KeyShape::Prefixed(prefix, n) => {
                let i = self.rng.below(*n) as u16;
                let mut key = prefix.clone();
                key.extend_from_slice(&i.to_be_bytes());
                key
            }
            KeyShape::Numbers(n) => format!("{:05}", self.rng.below(*n)).into_bytes(),
            KeyShape::Integers(n) => {
                let i = self.rng.below(*n) as i64 - (*n / 2) as i64;
                (i * [1, 100][(i & 1) as usize]).to_le_bytes().to_vec()
            }
            KeyShape::Words(n) => self.random_word(*n),
        };
        if self.recent.len() < 24 {
            self.recent.push(key.clone());
        } else {
            let i = self.rng.index(24);
            self.recent[i] = key.clone();
        }
        key
    }

    fn random_word(&mut self, n: u64) -> Bytes {
        let number = format!("Tide-{:x}", self.rng.below(n));
        let mut key: Bytes = match self.rng.below(3) {
            0 => number.to_ascii_uppercase().into_bytes(),
            1 => number.to_ascii_lowercase().into_bytes(),
            _ => number.into_bytes(),
        };
        if self.rng.percent(20) {
            key.extend_from_slice(&[0, self.rng.pick(b"ab")]);
        }
        key
    }

    /// A key near one of the column family: a neighbour or prefix, where off-by-one mistakes show.
    fn nearby_key(&mut self, family: usize) -> Bytes {
        let mut key = self.random_key(family);
        match self.rng.below(6) {
            0 => key.push(0),
            1 => key.push(0xff),
            2 => {
                key.pop();
            }
            3 => {
                if let Some(last) = key.last_mut() {
                    *last = last.wrapping_add(1);
                }
            }
            _ => {}
        }
        key
    }

    fn random_move(&mut self) -> CursorMove {
        let family = self.random_family();
        match self.rng.weighted(&[1, 1, 4, 4, 12, 12]) {
            0 => CursorMove::First,
            1 => CursorMove::Last,
            2 => CursorMove::Seek(self.nearby_key(family)),
            3 => CursorMove::SeekForPrev(self.nearby_key(family)),
            4 => CursorMove::Next,
            _ => CursorMove::Prev,
        }
    }

    fn random_range(&mut self, family: usize) -> Range {
        (self.random_bound(family), self.random_bound(family))
    }

    fn random_bound(&mut self, family: usize) -> Bound<Bytes> {
        match self.rng.below(4) {
            0 => Bound::Included(self.nearby_key(family)),
            1 => Bound::Excluded(self.nearby_key(family)),
            _ => Bound::Unbounded,
        }
    }

    fn random_bounds(&mut self, family: usize) -> ScanBounds {
        if self.rng.percent(60) {
            return ScanBounds::Range(self.random_range(family));
        }
        let mut prefix = self.nearby_key(family);
        let keep = self.rng.between(0, prefix.len());
        prefix.truncate(keep);
        ScanBounds::Prefix(prefix)
    }

    fn scan_op(&mut self, family: usize) -> Op {
        let backs = match self.rng.below(4) {
            0 => 0,
            1 => u64::MAX,
            _ => self.rng.next(),
        };
        let steps = if self.rng.percent(20) { 400 } else { self.rng.between(0, 30) };
        Op::Scan {
            family,
            span: self.random_bounds(family),
            snapshot: self.maybe_snapshot(),
            backs,
            steps,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_gives_same_history() {
        let one = format!("{:?}", Generator::new(5).history(500));
        assert_eq!(one, format!("{:?}", Generator::new(5).history(500)));
        assert_ne!(one, format!("{:?}", Generator::new(6).history(500)));
    }

    #[test]
    fn every_kind_of_operation_occurs() {
        let text: String =
            (0..20).map(|s| format!("{:?}", Generator::new(s).history(1000))).collect();
        for word in [
            "Write",
            "Get",
            "MultiGet",
            "Load",
            "Contains",
            "Scan",
            "TakeSnapshot",
            "DropSnapshot",
            "OpenCursor",
            "MoveCursor",
            "OpenIter",
            "StepIter",
            "DropCursor",
            "Create",
            "Drop {",
            "Names",
            "Flush",
            "Compact",
            "Sync",
            "Rename",
            "Clone",
            "Clear",
            "WaitIdle",
            "CompactRange",
            "Remember",
            "Past",
            "Follow",
            "Purge",
            "Pause",
            "Cancel",
            "Rate",
            "Verify",
            "Reopen",
            "SeekForPrev",
            "Prefix",
            "how: Merge",
            "key: []",
            "255",
        ] {
            assert!(text.contains(word), "no {word}");
        }
    }
}
