//! The read path: every get, multi-get, scan, explanation and estimate of a column family, whether
//! it reads the newest state, a snapshot or a transaction. A [`Reader`] pins a view and a sequence
//! number; it measures, counts, overlays the transaction's own writes and records what a
//! serializable transaction reads. Handles of the public API only select the reader.

mod cached;
mod cursor;
mod explain;
mod range_iter;
mod value_reader;

pub use cursor::ReadCursor;
pub use explain::{ExplainStep, ExplainedBlock, Explanation};
pub use range_iter::RangeIter;
pub use value_reader::EngineValueReader;
// Estimates and the bounds of scans are defined where they are computed.
pub use perigee_tree::read::{Cardinality, RangeCost, RangeEstimate, ScanBounds};

use crate::catalog::family::FamilyState;
use crate::catalog::snapshot::SnapshotHandle;
use crate::engine::Engine;
use crate::txn::EngineTxn;
use crate::txn::locks::LockMode;
use cursor::ScanSource;
use perigee_base::{Counters, Expiry, Operation, PinnedSlice, Result, SeqNo};
use perigee_env::sim::yield_point;
use perigee_file::EntryValue;
use perigee_tree::{StripedGuard, View, read};
use std::sync::Arc;

/// Reads one column family as of one moment. Built on the stack for one call; cursors and iterators
/// made from it live on.
pub struct Reader<'a> {
    engine: &'a Arc<Engine>,
    family: &'a FamilyState,
    view: StripedGuard<View>,
    sequence: SeqNo,
    /// The view contains everything up to here, and nothing that was not visible to readers at
    /// `sequence`: where the row cache is concerned, the reader is as of here.
    row_cache_seq: SeqNo,
    /// The transaction that reads, if any.
    overlay: Option<TxnReads<'a>>,
}

/// The transaction of a reader: its own writes hide committed entries, and its reads are recorded.
struct TxnReads<'a> {
    txn: &'a mut EngineTxn,
    /// False if what is read is not recorded.
    tracked: bool,
}

/// Where a transaction finds the value of a key.
enum TxnLookup {
    /// It wrote the key itself: the live value, if there is one.
    Own(Option<EntryValue>),
    /// It did not write the key: in the pinned view.
    Committed,
    /// It wrote merge operands: in this view, which contains them.
    Merged(Box<View>),
}

/// A value with its expiry.
#[derive(Clone, Debug)]
pub struct ExpiringValue {
    /// The value.
    pub value: PinnedSlice,
    /// When it expires; `None`: never.
    pub expiry: Option<Expiry>,
    /// Time of the read, in milliseconds since the Unix epoch.
    pub now_ms: u64,
}

impl Engine {
    /// Returns a reader of the newest state of a column family. The view is taken first: every
    /// commit visible at the sequence number is in the view, or is newer than the view as a whole.
    ///
    /// # Errors
    /// `Closed`; `NotFound` if the column family was dropped.
    #[inline(always)]
    pub fn reader<'a>(self: &'a Arc<Self>, family: &'a FamilyState) -> Result<Reader<'a>> {
        self.check_open()?;
        // Before the view, unlike the sequence number: see the row cache.
        let row_cache_seq = self.visible_seq();
        self.yield_with_row_cache();
        let view = family.tree.pin();
        // After the view: dropping a column family marks it before its view becomes empty.
        family.check_not_dropped()?;
        self.yield_with_row_cache();
        let sequence = self.visible_seq();
        Ok(Reader { engine: self, family, view, sequence, row_cache_seq, overlay: None })
    }
    /// Lets the simulation switch threads where the row cache depends on the order of two loads.
    #[inline]
    fn yield_with_row_cache(&self) {
        if self.resources.row_cache().is_some() {
            yield_point();
        }
    }
    /// Returns a reader of a column family as of a snapshot.
    ///
    /// # Errors
    /// `Closed`; `NotFound` if the column family was dropped, or its contents were replaced after
    /// the snapshot was taken.
    #[inline]
    pub fn snapshot_reader<'a>(
        self: &'a Arc<Self>,
        family: &'a FamilyState,
        snapshot: &SnapshotHandle,
    ) -> Result<Reader<'a>> {
        self.check_open()?;
        let view = family.tree.pin();
        // After the view: dropping a column family marks it before its view becomes empty.
        family.check_not_dropped()?;
        family.check_snapshot(snapshot)?;
        check_slow!(
            snapshot.seq() <= self.visible_seq(),
            "a snapshot shows no more than what is visible",
            snapshot.seq(),
            self.visible_seq()
        );
        let sequence = snapshot.seq();
        let row_cache_seq = sequence;
        Ok(Reader { engine: self, family, view, sequence, row_cache_seq, overlay: None })
    }
    /// Returns a reader of a column family in a transaction.
    ///
    /// # Errors
    /// `Closed`; `Aborted` and `InvalidArgument` if the transaction accepts no calls; `NotFound` if
    /// the column family was dropped; `Conflict` if its contents were replaced after the
    /// transaction began.
    pub fn txn_reader<'a>(
        self: &'a Arc<Self>,
        family: &'a FamilyState,
        txn: &'a mut EngineTxn,
    ) -> Result<Reader<'a>> {
        txn.check(&self.runtime)?;
        let view = family.tree.pin();
        let sequence = txn.read_seq(&self.catalog, family)?;
        let overlay = Some(TxnReads { txn, tracked: true });
        // Not used: transactions bypass the row cache.
        let row_cache_seq = SeqNo::ZERO;
        Ok(Reader { engine: self, family, view, sequence, row_cache_seq, overlay })
    }
    /// Returns a reader of a column family as of a snapshot, with a transaction's own writes. What
    /// it reads is not recorded for conflict checks.
    ///
    /// # Errors
    /// `Closed`; `Aborted` and `InvalidArgument` if the transaction accepts no calls; `NotFound` if
    /// the column family was dropped, or its contents were replaced after the snapshot was taken.
    pub fn txn_snapshot_reader<'a>(
        self: &'a Arc<Self>,
        family: &'a FamilyState,
        txn: &'a mut EngineTxn,
        snapshot: &SnapshotHandle,
    ) -> Result<Reader<'a>> {
        txn.check(&self.runtime)?;
        let reader = self.snapshot_reader(family, snapshot)?;
        Ok(Reader { overlay: Some(TxnReads { txn, tracked: false }), ..reader })
    }
    /// Locks a key for a transaction, then reads it. With a snapshot, a change of the key since then
    /// is a conflict now, not only at commit.
    pub fn get_for_update(
        self: &Arc<Self>,
        family: &FamilyState,
        txn: &mut EngineTxn,
        key: &[u8],
        mode: LockMode,
    ) -> Result<Option<PinnedSlice>> {
        txn.lock_for_update(&self.runtime, family, key, mode)?;
        self.txn_reader(family, txn)?.get(key)
    }
}

impl Reader<'_> {
    /// Reads without adding keys and ranges to the read set of the transaction.
    #[must_use]
    pub fn untracked(mut self) -> Self {
        if let Some(overlay) = &mut self.overlay {
            overlay.tracked = false;
        }
        self
    }

    /// Returns the value of `key`.
    // Inlined, because the compiler then knows that the readers of most callers have no overlay.
    #[inline(always)]
    pub fn get(&mut self, key: &[u8]) -> Result<Option<PinnedSlice>> {
        let started = self.start_point_read();
        let value = match (&self.overlay, self.engine.resources.row_cache()) {
            (None, None) => read::get(&self.view, key, self.sequence)?,
            (None, Some(cache)) => self.get_cached(cache, key)?,
            (Some(_), _) => self.get_in_txn(key)?,
        };
        self.finish_point_read(started, value.is_some());
        Ok(value)
    }
    /// Returns true if `key` exists; does not read the value.
    #[inline]
    pub fn contains(&mut self, key: &[u8]) -> Result<bool> {
        let started = self.start_point_read();
        let found = match self.overlay {
            None => read::contains(&self.view, key, self.sequence)?,
            Some(_) => self.contains_in_txn(key)?,
        };
        self.finish_point_read(started, found);
        Ok(found)
    }
    /// Returns the value of `key` with its expiry.
    pub fn get_with_expiry(&mut self, key: &[u8]) -> Result<Option<ExpiringValue>> {
        let started = self.start_point_read();
        let found = match self.overlay {
            None => lookup_expiring(&self.view, key, self.sequence)?,
            Some(_) => self.get_with_expiry_in_txn(key)?,
        };
        self.finish_point_read(started, found.is_some());
        Ok(found)
    }
    /// Begins a point read; returns the time if this one is measured.
    #[inline]
    fn start_point_read(&self) -> Option<u64> {
        let runtime = &self.engine.runtime;
        runtime.start_timer(Operation::Get, runtime.counters.gets.stripe_value())
    }
    /// Ends and counts a point read.
    #[inline]
    fn finish_point_read(&self, started: Option<u64>, hit: bool) {
        let runtime = &self.engine.runtime;
        count_get(&runtime.counters, hit);
        runtime.stop_timer(Operation::Get, started);
    }
    #[inline(never)]
    fn get_in_txn(&mut self, key: &[u8]) -> Result<Option<PinnedSlice>> {
        let found = self.lookup_own(key)?;
        self.read_own(key, found, EngineTxn::own_value, read::get)
    }
    #[inline(never)]
    fn contains_in_txn(&mut self, key: &[u8]) -> Result<bool> {
        let found = self.lookup_own(key)?;
        let own = |_: &EngineTxn, _: &FamilyState, _| Ok(());
        let lookup = |view: &View, key: &[u8], at| {
            read::contains(view, key, at).map(|found| found.then_some(()))
        };
        Ok(self.read_own(key, found, own, lookup)?.is_some())
    }
    fn get_with_expiry_in_txn(&mut self, key: &[u8]) -> Result<Option<ExpiringValue>> {
        let found = self.lookup_own(key)?;
        let now_ms = self.view.now.now_ms();
        let own = |txn: &EngineTxn, family: &FamilyState, found: EntryValue| {
            let expiry = found.expiry();
            Ok(ExpiringValue { value: txn.own_value(family, found)?, expiry, now_ms })
        };
        self.read_own(key, found, own, lookup_expiring)
    }
    /// Looks `key` up in the transaction's own writes. Records the key if its value depends on
    /// committed data, which is also the case for a merge operand.
    fn lookup_own(&mut self, key: &[u8]) -> Result<TxnLookup> {
        let Some(TxnReads { txn, tracked }) = &mut self.overlay else {
            return Ok(TxnLookup::Committed);
        };
        let own = txn.find_own(self.family, key)?;
        let merged = own.as_ref().is_some_and(EntryValue::is_operand);
        if let Some(found) = own.filter(|_| !merged) {
            let live = read::is_live(&found, &*self.view.now);
            return Ok(TxnLookup::Own(Some(found).filter(|_| live)));
        }
        if *tracked {
            txn.track_key(self.family, key);
        }
        let overlay = if merged { txn.read_overlay(self.family)? } else { None };
        Ok(match overlay {
            Some(overlay) => TxnLookup::Merged(Box::new(self.view.with_overlay(overlay))),
            None => TxnLookup::Committed,
        })
    }
    /// Reads a key that [`Reader::lookup_own`] has found: `own` returns the value of a live entry
    /// of the transaction itself, `lookup` reads a view at a sequence number.
    fn read_own<T>(
        &self,
        key: &[u8],
        found: TxnLookup,
        own: impl FnOnce(&EngineTxn, &FamilyState, EntryValue) -> Result<T>,
        lookup: impl FnOnce(&View, &[u8], SeqNo) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        match (found, &self.overlay) {
            (TxnLookup::Own(Some(found)), Some(overlay)) => {
                own(overlay.txn, self.family, found).map(Some)
            }
            (TxnLookup::Own(_), _) => Ok(None),
            (TxnLookup::Merged(view), _) => lookup(&view, key, self.sequence),
            (TxnLookup::Committed, _) => lookup(&self.view, key, self.sequence),
        }
    }

    /// Returns one result per key, in the order of `keys`; a failure of one key does not affect the
    /// others.
    pub fn multi_get(&mut self, keys: &[&[u8]]) -> Vec<Result<Option<PinnedSlice>>> {
        let runtime = &self.engine.runtime;
        let started = runtime.start_timer(Operation::MultiGet, 0);
        let values = match self.overlay {
            None => read::multi_get(&self.view, keys, self.sequence),
            Some(_) => self.multi_get_in_txn(keys),
        };
        runtime.stop_timer(Operation::MultiGet, started);
        check_slow!(
            values.len() == keys.len(),
            "each key of a multi-get has a result",
            values.len(),
            keys.len()
        );
        values.iter().flatten().for_each(|value| count_get(&runtime.counters, value.is_some()));
        values
    }
    /// Reads the keys that the transaction wrote one by one, and the others together.
    fn multi_get_in_txn(&mut self, keys: &[&[u8]]) -> Vec<Result<Option<PinnedSlice>>> {
        let mut committed = Vec::new();
        let mut values = Vec::with_capacity(keys.len());
        for (i, key) in keys.iter().enumerate() {
            values.push(match self.lookup_own(key) {
                Ok(TxnLookup::Committed) => {
                    committed.push(i);
                    Ok(None)
                }
                Ok(found) => self.read_own(key, found, EngineTxn::own_value, read::get),
                Err(e) => Err(e),
            });
        }
        let rest: Vec<&[u8]> = committed.iter().map(|i| keys[*i]).collect();
        let found = read::multi_get(&self.view, &rest, self.sequence);
        check_slow!(
            found.len() == committed.len(),
            "each key that the transaction did not write is read from the view",
            found.len(),
            committed.len()
        );
        for (i, value) in committed.iter().zip(found) {
            values[*i] = value;
        }
        values
    }

    /// Returns an unpositioned cursor over a key range. Later writes of the transaction do not
    /// change what it shows.
    pub fn cursor(self, bounds: ScanBounds) -> Result<ReadCursor> {
        Ok(self.into_scan()?.cursor(bounds))
    }
    /// Returns an iterator over a key range. Later writes of the transaction do not change what it
    /// shows.
    pub fn iter(self, bounds: ScanBounds) -> Result<RangeIter> {
        Ok(RangeIter::new(self.into_scan()?, bounds))
    }
    fn into_scan(self) -> Result<ScanSource> {
        let (mut overlay, mut tracker) = (None, None);
        if let Some(TxnReads { txn, tracked }) = self.overlay {
            overlay = txn.read_overlay(self.family)?;
            tracker = if tracked { txn.scan_tracker(self.family) } else { None };
        }
        let view = match overlay {
            Some(overlay) => Arc::new(self.view.with_overlay(overlay)),
            None => self.view.into_arc(),
        };
        Ok(ScanSource { engine: Arc::clone(self.engine), view, sequence: self.sequence, tracker })
    }

    /// Reads `key` as [`Reader::get`] does, and reports every source on the way. Does not show a
    /// transaction's own writes.
    pub fn explain(&self, key: &[u8]) -> Explanation {
        let clock = || self.engine.runtime.env.clock.monotonic_ns();
        explain::explain_read(&self.view, key, self.sequence, &clock)
    }
    /// Estimates the size of a key range from metadata in memory; reads no blocks.
    pub fn estimate_range(&self, bounds: &ScanBounds) -> RangeEstimate {
        read::estimate_range(&self.view, bounds)
    }
    /// Returns what a scan of a key range would read.
    pub fn estimate_range_cost(&self, bounds: &ScanBounds) -> RangeCost {
        read::estimate_range_cost(&self.view, bounds)
    }
    /// Estimates the number of distinct keys.
    pub fn estimate_cardinality(&self) -> Result<Cardinality> {
        read::estimate_cardinality(&self.view)
    }
}

/// Returns the value of `key` with its expiry for a reader at `at`.
fn lookup_expiring(view: &View, key: &[u8], at: SeqNo) -> Result<Option<ExpiringValue>> {
    let Some(found) = read::lookup_live(view, key, at)? else { return Ok(None) };
    let (expiry, now_ms) = (found.expiry(), view.now.now_ms());
    let value = read::read_value(view, key, at, found)?;
    Ok(Some(ExpiringValue { value, expiry, now_ms }))
}

/// Counts a point read.
#[inline]
fn count_get(counters: &Counters, hit: bool) {
    counters.gets.add(1);
    if hit {
        counters.get_hits.add(1);
    }
}
