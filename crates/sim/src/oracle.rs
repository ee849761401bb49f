//! The oracle: answers every operation as a correct database must, in the simplest form that can be
//! checked by reading. Its maps are sorted and copied on write, so that a snapshot or an open
//! cursor is a reference to an old map.
//!
//! Uses nothing of the engine. The engine, the oracle and the faulty oracle all implement
//! [`Target`].

use crate::comparators::{self, OrderedKey};
use crate::history::{
    Bytes, CURSORS, CursorMove, FAMILIES, HISTORY_POINTS, Op, Range, SNAPSHOTS, ScanBounds, Value,
    Write, WriteKind, family_name,
};
use crate::settings::SEPARATOR;
use perigee::{ErrorKind, KeyComparator};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

/// Something that performs operations and returns their outcomes.
pub trait Target {
    /// Performs one operation.
    fn perform(&mut self, op: &Op) -> Outcome;
}

/// Outcome of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Success without a value.
    Done,
    /// The slot was empty, so there was nothing to do; not counted.
    Skipped,
    /// A value, or none.
    Value(Option<Bytes>),
    /// A value, or none, for each key.
    Values(Vec<Option<Bytes>>),
    /// Present or not.
    Present(bool),
    /// The entry at a cursor's position, or returned by an iterator.
    Entry(Option<(Bytes, Bytes)>),
    /// The entries of a scan, in the order taken.
    Entries(Vec<(Bytes, Bytes)>),
    /// The time that reads use lies between these two.
    Time(u64, u64),
    /// Names of column families.
    Names(Vec<String>),
    /// An error of this kind.
    Refused(ErrorKind),
    /// An error that the oracle never expects, with its text.
    Failed(String),
    /// Returned only by the oracle: either the outcome, or an error of this kind.
    Either(Box<Outcome>, ErrorKind),
}

impl Outcome {
    /// Returns true if this outcome of the oracle allows `got`.
    pub fn allows(&self, got: &Outcome) -> bool {
        match (self, got) {
            (Outcome::Either(expected, kind), got @ Outcome::Refused(refused)) => {
                kind == refused || **expected == *got
            }
            (Outcome::Either(expected, _), got) => **expected == *got,
            (Outcome::Time(least, most), Outcome::Time(got, _)) => (least..=most).contains(&got),
            (expected, got) => expected == got,
        }
    }
}

/// A value, its expiry time, and the operands that were merged into it.
#[derive(Clone, Debug)]
struct OracleValue {
    value: Option<(Arc<[u8]>, u64)>,
    operands: Option<Arc<[u8]>>,
}

impl OracleValue {
    fn join_operands(left: &[u8], right: &[u8]) -> Bytes {
        [left, SEPARATOR.as_bytes(), right].concat()
    }
    /// Returns the value with one more operand.
    fn with_operand(self, operand: &[u8]) -> OracleValue {
        let all = match &self.operands {
            Some(older) => OracleValue::join_operands(older, operand),
            None => operand.to_vec(),
        };
        OracleValue { operands: Some(all.into()), ..self }
    }
    fn is_visible(&self, now: u64) -> bool {
        self.operands.is_some() || self.value.as_ref().is_some_and(|v| v.1 > now)
    }
    /// Returns what a reader sees at this time; operands outlive the value.
    fn visible_at(&self, now: u64) -> Option<Bytes> {
        let value = self.value.as_ref().filter(|v| v.1 > now).map(|v| v.0.to_vec());
        match (value, &self.operands) {
            (Some(value), Some(operands)) => Some(OracleValue::join_operands(&value, operands)),
            (value, operands) => value.or(operands.as_ref().map(|o| o.to_vec())),
        }
    }
}

type EntryMap = BTreeMap<OrderedKey, OracleValue>;
/// Contents by incarnation: a column family that is dropped and created again is a new one.
type IncarnationMaps = BTreeMap<u64, Arc<EntryMap>>;

/// Time at which every history begins, in milliseconds.
pub const START_MS: u64 = 50 * 365 * DAY_MS;
/// One day in milliseconds.
pub const DAY_MS: u64 = 24 * 3_600_000;

/// What a column-family handle refers to.
#[derive(Clone, Copy, Debug)]
struct FamilyHandle {
    incarnation: u64,
    live: bool,
    /// Created by a clear or a clone: older snapshots cannot read it, and must not find it empty.
    cleared_or_cloned: bool,
}

#[derive(Clone, Debug)]
enum OpenIterator {
    Cursor { incarnation: u64, map: Arc<EntryMap>, range: Range, at: Option<OrderedKey> },
    Iter { incarnation: u64, left: VecDeque<(Bytes, OracleValue)> },
}

/// The reference implementation.
#[derive(Clone, Debug)]
pub struct Oracle {
    comparator: KeyComparator,
    handles: [Option<FamilyHandle>; FAMILIES],
    maps: IncarnationMaps,
    snapshots: [Option<IncarnationMaps>; SNAPSHOTS],
    /// Remembered points in history, with true if they are certain to be readable.
    history_points: [Option<(IncarnationMaps, bool)>; HISTORY_POINTS],
    open_cursors: [Option<OpenIterator>; CURSORS],
    incarnations: u64,
    /// Current time in milliseconds.
    now: u64,
}

impl Default for Oracle {
    fn default() -> Self {
        Oracle::new(KeyComparator::Bytes)
    }
}

impl Oracle {
    /// Creates the oracle of a database whose column families all have this comparator.
    pub fn new(comparator: KeyComparator) -> Self {
        let mut handles = [None; FAMILIES];
        handles[0] = Some(FamilyHandle { incarnation: 0, live: true, cleared_or_cloned: false });
        let maps = IncarnationMaps::from([(0, Arc::default())]);
        Oracle {
            comparator,
            handles,
            maps,
            snapshots: Default::default(),
            history_points: Default::default(),
            open_cursors: Default::default(),
            incarnations: 0,
            now: START_MS,
        }
    }
}

impl Target for Oracle {
    fn perform(&mut self, op: &Op) -> Outcome {
        match op {
            Op::Write { writes, .. } => self.write(writes),
            Op::Load { families, entries, .. } => {
                let writes: Vec<Write> =
                    families.iter().flat_map(|f| load_as_writes(*f, entries)).collect();
                self.write(&writes)
            }
            Op::Get { family, key, snapshot } => {
                self.read(*family, *snapshot, |map| Outcome::Value(self.visible_value(map, key)))
            }
            Op::MultiGet { family, keys, snapshot } => self.read(*family, *snapshot, |map| {
                Outcome::Values(keys.iter().map(|k| self.visible_value(map, k)).collect())
            }),
            Op::Contains { family, key, snapshot } => self.read(*family, *snapshot, |map| {
                Outcome::Present(self.visible_value(map, key).is_some())
            }),
            Op::Scan { family, span, snapshot, .. }
            | Op::OpenIter { family, span, snapshot, .. }
                if !self.supports_scan(span) =>
            {
                match self.map_for_read(*family, *snapshot) {
                    Err(Outcome::Skipped) => Outcome::Skipped,
                    _ => Outcome::Refused(ErrorKind::InvalidArgument),
                }
            }
            Op::Scan { family, span, snapshot, backs, steps } => {
                self.read(*family, *snapshot, |map| {
                    let seen = |(k, v): (Bytes, OracleValue)| Some((k, v.visible_at(self.now)?));
                    let mut left: VecDeque<_> =
                        scan_entries(map, span).into_iter().filter_map(seen).collect();
                    let step = |i: usize| {
                        if backs >> (i % 64) & 1 == 1 { left.pop_back() } else { left.pop_front() }
                    };
                    Outcome::Entries((0..*steps).map_while(step).collect())
                })
            }
            Op::OpenCursor { slot, family, range, snapshot } => {
                self.open_cursor(*slot, *family, *snapshot, |incarnation, map| {
                    OpenIterator::Cursor { incarnation, map, range: range.clone(), at: None }
                })
            }
            Op::OpenIter { slot, family, span, snapshot } => {
                self.open_cursor(*slot, *family, *snapshot, |incarnation, map| OpenIterator::Iter {
                    incarnation,
                    left: scan_entries(&map, span),
                })
            }
            Op::MoveCursor { slot, to } => self.move_cursor(*slot, to),
            Op::StepIter { slot, back } => self.step_iter(*slot, *back),
            Op::DropCursor { slot } => drop_slot(&mut self.open_cursors[*slot]),
            Op::TakeSnapshot { slot } => {
                self.snapshots[*slot] = Some(self.maps.clone());
                Outcome::Done
            }
            Op::DropSnapshot { slot } => drop_slot(&mut self.snapshots[*slot]),
            Op::RememberSeq { moment, named } => {
                self.history_points[*moment] = Some((self.maps.clone(), *named));
                Outcome::Done
            }
            Op::ReadPast { moment, family } => {
                let Some((maps, certain)) = &self.history_points[*moment] else {
                    return Outcome::Skipped;
                };
                match (self.live_map(*family, maps).map(|(_, map)| self.all_entries(&map)), certain)
                {
                    (Err(Outcome::Skipped), _) => Outcome::Skipped,
                    (answer, true) => answer.unwrap_or_else(|refused| refused),
                    (answer, false) => {
                        let answer = answer.unwrap_or_else(|refused| refused);
                        Outcome::Either(Box::new(answer), ErrorKind::NotFound)
                    }
                }
            }
            Op::FollowFeed { family } => self.read(*family, None, |map| self.all_entries(map)),
            Op::Create { family } => self.create(*family),
            Op::Drop { family } => self.drop_family(*family),
            Op::Rename { family, to } => self.rename(*family, *to),
            Op::Clone { family, to } => self.clone_family(*family, *to),
            Op::Clear { family } => self.clear(*family),
            Op::FamilyNames => self.list_families(),
            Op::Flush { family } | Op::Compact { family } | Op::Purge { family } => {
                self.maintain(*family)
            }
            Op::CompactRange { family, .. } => self.maintain(Some(*family)),
            Op::AdvanceDays { days } => {
                Outcome::Time(self.now, self.now + days * DAY_MS + DAY_MS / 4)
            }
            Op::ClockJump | Op::ClockBack => Outcome::Time(self.now, self.now + DAY_MS / 4),
            Op::Sync | Op::WaitIdle | Op::Verify => Outcome::Done,
            Op::FlushWhilePaused | Op::CancelCompactions { .. } | Op::SetRate { .. } => {
                Outcome::Done
            }
            Op::Reopen => self.reopen(),
        }
    }
}

impl Oracle {
    /// Returns the contents of the live column families, by name.
    pub fn contents(&self) -> BTreeMap<String, BTreeMap<Bytes, Bytes>> {
        let live = self
            .handles
            .iter()
            .enumerate()
            .filter_map(|(slot, h)| Some((slot, h.filter(|h| h.live)?)));
        live.map(|(slot, h)| {
            let all = self.maps[&h.incarnation].iter();
            let map = all
                .filter_map(|(k, v)| Some((k.bytes.to_vec(), v.visible_at(self.now)?)))
                .collect();
            (family_name(slot), map)
        })
        .collect()
    }

    fn write(&mut self, writes: &[Write]) -> Outcome {
        if writes.iter().any(|w| self.handles[w.family].is_none()) {
            return Outcome::Skipped;
        }
        let dropped = writes.iter().any(|w| self.handles[w.family].is_some_and(|h| !h.live));
        if writes.iter().any(|w| !self.is_valid_write(w)) {
            let refused = Outcome::Refused(ErrorKind::InvalidArgument);
            // If there are two reasons to refuse, the engine reports the first it meets.
            return if dropped {
                Outcome::Either(Box::new(refused), ErrorKind::NotFound)
            } else {
                refused
            };
        }
        if dropped {
            return Outcome::Refused(ErrorKind::NotFound);
        }
        for w in writes {
            let incarnation = self.handles[w.family].map_or(0, |h| h.incarnation);
            let map = Arc::make_mut(self.maps.entry(incarnation).or_default());
            // A key equal to an existing one replaces it, including its bytes.
            let key = OrderedKey::new(self.comparator, &w.key);
            match &w.how {
                WriteKind::DeleteRange(range) => map.retain(|key, _| !in_range(range, key)),
                WriteKind::DeletePrefix => map
                    .retain(|key, _| !comparators::has_prefix(key.comparator, &key.bytes, &w.key)),
                how => {
                    let before = map.remove(&key);
                    let until = match how {
                        WriteKind::Ttl(days) => self.now + days * DAY_MS + DAY_MS / 2,
                        _ => u64::MAX,
                    };
                    if let Some(value) = w.value {
                        let new = match how {
                            WriteKind::Merge => before
                                .unwrap_or(OracleValue { value: None, operands: None })
                                .with_operand(&value.bytes()),
                            _ => OracleValue {
                                value: Some((Arc::from(value.bytes()), until)),
                                operands: None,
                            },
                        };
                        map.insert(key, new);
                    }
                }
            }
        }
        Outcome::Done
    }

    /// Sets the time to the one that the engine reported.
    pub fn set_now(&mut self, ms: u64) {
        self.now = ms;
    }

    /// Returns the value that a reader sees under a key.
    fn visible_value(&self, map: &EntryMap, key: &[u8]) -> Option<Bytes> {
        map.get(&self.ordered_key(key))?.visible_at(self.now)
    }

    /// Returns true if the comparator supports the prefix, and the range does not start after its
    /// end.
    fn is_valid_write(&self, w: &Write) -> bool {
        match &w.how {
            WriteKind::DeletePrefix => self.supports_scan(&ScanBounds::Prefix(w.key.clone())),
            WriteKind::DeleteRange((
                Bound::Included(a) | Bound::Excluded(a),
                Bound::Included(b) | Bound::Excluded(b),
            )) => {
                let WriteKind::DeleteRange(ends) = &w.how else { return true };
                let both_excluded = matches!(ends, (Bound::Excluded(_), Bound::Excluded(_)));
                let cmp = comparators::compare(self.comparator, a, b);
                cmp.is_lt() || (cmp.is_eq() && !both_excluded)
            }
            _ => true,
        }
    }

    fn ordered_key(&self, bytes: &[u8]) -> OrderedKey {
        OrderedKey::new(self.comparator, bytes)
    }

    /// Returns true if the comparator supports the scan: it must keep the keys of a prefix
    /// together.
    fn supports_scan(&self, span: &ScanBounds) -> bool {
        match span {
            ScanBounds::Prefix(prefix) => {
                prefix.is_empty() || comparators::supports_prefix(self.comparator)
            }
            ScanBounds::Range(_) => true,
        }
    }

    /// Returns the map that a reader of the column family sees, or the reason why it cannot be
    /// read.
    fn map_for_read(
        &self,
        family: usize,
        snapshot: Option<usize>,
    ) -> Result<(u64, Arc<EntryMap>), Outcome> {
        self.handles[family].ok_or(Outcome::Skipped)?;
        self.live_map(
            family,
            match snapshot {
                Some(slot) => self.snapshots[slot].as_ref().ok_or(Outcome::Skipped)?,
                None => &self.maps,
            },
        )
    }

    /// Returns all entries that have not expired.
    fn all_entries(&self, map: &EntryMap) -> Outcome {
        let seen =
            |(k, v): (&OrderedKey, &OracleValue)| Some((k.bytes.to_vec(), v.visible_at(self.now)?));
        Outcome::Entries(map.iter().filter_map(seen).collect())
    }

    fn live_map(
        &self,
        family: usize,
        maps: &IncarnationMaps,
    ) -> Result<(u64, Arc<EntryMap>), Outcome> {
        let handle = self.handles[family].ok_or(Outcome::Skipped)?;
        if !handle.live {
            return Err(Outcome::Refused(ErrorKind::NotFound));
        }
        match maps.get(&handle.incarnation) {
            None if handle.cleared_or_cloned => Err(Outcome::Refused(ErrorKind::NotFound)),
            map => Ok((handle.incarnation, map.cloned().unwrap_or_default())),
        }
    }

    fn read(
        &self,
        family: usize,
        snapshot: Option<usize>,
        answer: impl FnOnce(&EntryMap) -> Outcome,
    ) -> Outcome {
        self.map_for_read(family, snapshot).map_or_else(|refused| refused, |(_, map)| answer(&map))
    }

    fn open_cursor(
        &mut self,
        slot: usize,
        family: usize,
        snapshot: Option<usize>,
        make: impl FnOnce(u64, Arc<EntryMap>) -> OpenIterator,
    ) -> Outcome {
        match self.map_for_read(family, snapshot) {
            Ok((incarnation, map)) => {
                self.open_cursors[slot] = Some(make(incarnation, map));
                Outcome::Done
            }
            Err(refused) => refused,
        }
    }

    /// Returns the outcome of a cursor or iterator opened earlier: if its column family was
    /// dropped, it continues or reports that.
    fn outcome_of_open(&self, incarnation: u64, outcome: Outcome) -> Outcome {
        let live = self.handles.iter().flatten().any(|h| h.live && h.incarnation == incarnation);
        if live { outcome } else { Outcome::Either(Box::new(outcome), ErrorKind::NotFound) }
    }

    fn move_cursor(&mut self, slot: usize, to: &CursorMove) -> Outcome {
        let Some(OpenIterator::Cursor { incarnation, map, range, at }) =
            &mut self.open_cursors[slot]
        else {
            return Outcome::Skipped;
        };
        let (comparator, now) = (self.comparator, self.now);
        let first = |low: Bound<&[u8]>| {
            find_key(map, now, comparator, range, (low, Bound::Unbounded), false)
        };
        let last = |high: Bound<&[u8]>| {
            find_key(map, now, comparator, range, (Bound::Unbounded, high), true)
        };
        *at = match (to, at.as_ref().map(|key| &key.bytes[..])) {
            (CursorMove::First, _) => first(Bound::Unbounded),
            (CursorMove::Last, _) => last(Bound::Unbounded),
            (CursorMove::Seek(key), _) => first(Bound::Included(key)),
            (CursorMove::SeekForPrev(key), _) => last(Bound::Included(key)),
            (CursorMove::Next, Some(key)) => first(Bound::Excluded(key)),
            (CursorMove::Prev, Some(key)) => last(Bound::Excluded(key)),
            (_, None) => None,
        };
        let entry =
            at.as_ref().and_then(|key| Some((key.bytes.to_vec(), map[key].visible_at(now)?)));
        let incarnation = *incarnation;
        self.outcome_of_open(incarnation, Outcome::Entry(entry))
    }

    fn step_iter(&mut self, slot: usize, back: bool) -> Outcome {
        let Some(OpenIterator::Iter { incarnation, left }) = &mut self.open_cursors[slot] else {
            return Outcome::Skipped;
        };
        let now = self.now;
        let mut take = || if back { left.pop_back() } else { left.pop_front() };
        let entry = std::iter::from_fn(&mut take).find_map(|(k, v)| Some((k, v.visible_at(now)?)));
        let incarnation = *incarnation;
        self.outcome_of_open(incarnation, Outcome::Entry(entry))
    }

    fn create(&mut self, family: usize) -> Outcome {
        if self.handles[family].is_some_and(|h| h.live) {
            return Outcome::Refused(ErrorKind::AlreadyExists);
        }
        self.incarnations += 1;
        self.handles[family] = Some(FamilyHandle {
            incarnation: self.incarnations,
            live: true,
            cleared_or_cloned: false,
        });
        self.maps.insert(self.incarnations, Arc::default());
        Outcome::Done
    }

    fn drop_family(&mut self, family: usize) -> Outcome {
        if family == 0 {
            return Outcome::Refused(ErrorKind::InvalidArgument);
        }
        match &mut self.handles[family] {
            Some(handle) if handle.live => {
                handle.live = false;
                self.maps.remove(&handle.incarnation);
                Outcome::Done
            }
            _ => Outcome::Refused(ErrorKind::NotFound),
        }
    }

    fn live_handle(&self, family: usize) -> Option<FamilyHandle> {
        self.handles[family].filter(|h| h.live)
    }

    fn rename(&mut self, family: usize, to: usize) -> Outcome {
        let refusal = match self.live_handle(family) {
            None => Some(ErrorKind::NotFound),
            Some(_) if family == 0 => Some(ErrorKind::InvalidArgument),
            Some(_) if family != to && self.live_handle(to).is_some() => {
                Some(ErrorKind::AlreadyExists)
            }
            Some(_) => None,
        };
        if let Some(kind) = refusal {
            return Outcome::Refused(kind);
        }
        if family != to {
            self.handles[to] = self.handles[family].take();
        }
        Outcome::Done
    }

    fn clone_family(&mut self, family: usize, to: usize) -> Outcome {
        if self.live_handle(to).is_some() {
            return Outcome::Refused(ErrorKind::AlreadyExists);
        }
        let Some(source) = self.live_handle(family) else {
            return Outcome::Refused(ErrorKind::NotFound);
        };
        let map = self.maps.get(&source.incarnation).cloned().unwrap_or_default();
        self.handles[to] = Some(self.new_incarnation(map));
        Outcome::Done
    }

    fn clear(&mut self, family: usize) -> Outcome {
        let Some(old) = self.live_handle(family) else {
            return Outcome::Refused(ErrorKind::NotFound);
        };
        self.maps.remove(&old.incarnation);
        self.handles[family] = Some(self.new_incarnation(Arc::default()));
        Outcome::Done
    }

    /// Starts a new incarnation with the contents `map`.
    fn new_incarnation(&mut self, map: Arc<EntryMap>) -> FamilyHandle {
        self.incarnations += 1;
        self.maps.insert(self.incarnations, map);
        FamilyHandle { incarnation: self.incarnations, live: true, cleared_or_cloned: true }
    }

    fn list_families(&self) -> Outcome {
        let live = (0..FAMILIES).filter(|&slot| self.handles[slot].is_some_and(|h| h.live));
        Outcome::Names(live.map(family_name).collect())
    }

    fn maintain(&self, family: Option<usize>) -> Outcome {
        family.map_or(Outcome::Done, |family| self.read(family, None, |_| Outcome::Done))
    }

    fn reopen(&mut self) -> Outcome {
        for handle in &mut self.handles {
            *handle = handle.filter(|h| h.live);
        }
        self.snapshots = Default::default();
        self.open_cursors = Default::default();
        Outcome::Done
    }
}

/// Returns a load as the batch of puts that it is equivalent to.
fn load_as_writes(family: usize, entries: &[(Bytes, Value)]) -> Vec<Write> {
    let put = |(key, value): &(Bytes, Value)| Write {
        family,
        key: key.clone(),
        value: Some(*value),
        how: value.load_kind(),
    };
    // Even an empty load needs an existing column family.
    entries.iter().map(put).collect()
}

fn drop_slot<T>(slot: &mut Option<T>) -> Outcome {
    if slot.take().is_some() { Outcome::Done } else { Outcome::Skipped }
}

/// Returns true if `key` is in the range. Both bounds are compared, so inverted ranges are empty.
fn in_range(range: &Range, key: &OrderedKey) -> bool {
    let cmp = |bound: &[u8]| comparators::compare(key.comparator, &key.bytes, bound);
    let low = match &range.0 {
        Bound::Included(low) => cmp(low).is_ge(),
        Bound::Excluded(low) => cmp(low).is_gt(),
        Bound::Unbounded => true,
    };
    let high = match &range.1 {
        Bound::Included(high) => cmp(high).is_le(),
        Bound::Excluded(high) => cmp(high).is_lt(),
        Bound::Unbounded => true,
    };
    low && high
}

/// Returns the first (or last) key of the map within `ends` that is also in the range.
fn find_key(
    map: &EntryMap,
    now: u64,
    comparator: KeyComparator,
    range: &Range,
    ends: (Bound<&[u8]>, Bound<&[u8]>),
    last: bool,
) -> Option<OrderedKey> {
    let key = |bytes: &[u8]| OrderedKey::new(comparator, bytes);
    let ends = (ends.0.map(key), ends.1.map(key));
    let live = map.range(ends).filter(|(_, value)| value.is_visible(now));
    let mut keys = live.map(|(key, _)| key).filter(|key| in_range(range, key));
    if last { keys.next_back().cloned() } else { keys.next().cloned() }
}

/// Returns the entries of a scan.
fn scan_entries(map: &EntryMap, span: &ScanBounds) -> VecDeque<(Bytes, OracleValue)> {
    let within = |key: &OrderedKey| match span {
        ScanBounds::Range(range) => in_range(range, key),
        ScanBounds::Prefix(prefix) => comparators::has_prefix(key.comparator, &key.bytes, prefix),
    };
    map.iter().filter(|(key, _)| within(key)).map(|(k, v)| (k.bytes.to_vec(), v.clone())).collect()
}

#[cfg(test)]
#[path = "oracle_tests.rs"]
mod tests;
