//! Point reads: sources are read newest first, and the first version found is the result.
//!
//! "Not found" is a guarantee: it is returned only if every source that could hold the key was
//! read; an error in any source is returned as an error. Where a part of the log was lost
//! (salvage), it is returned only for a tombstone that is newer than the lost part.

pub use crate::fetch_value::{fetch_value, fetch_value_with_cause};
use crate::memtable::Memtable;
use crate::merge_operands;
use crate::txn_overlay::{OverlayRuns, TxnOverlay, VisibleSeqs};
use crate::{Table, View};
use perigee_base::bug::Bug;
use perigee_base::{
    Error, ExpiryClock, IoActivity, KeyComparator, PinnedSlice, Result, SeqNo, bug,
};
use perigee_file::{BlockHint, EntryValue};

/// For each run, the block that was read last. Lookups of adjacent keys reuse it; a single lookup
/// starts without hints.
#[derive(Debug, Default)]
pub struct RunBlockHints {
    hints: Vec<Option<BlockHint>>,
    blocks_read: u64,
}

impl RunBlockHints {
    /// Number of blocks read from disk.
    pub fn blocks_read(&self) -> u64 {
        self.blocks_read
    }
    /// Looks the key up in the table of run number `run`.
    fn get_from_table(
        &mut self,
        run: usize,
        table: &Table,
        key: &[u8],
        hash: u64,
        at: SeqNo,
    ) -> Result<Option<(SeqNo, EntryValue)>> {
        if self.hints.len() <= run {
            self.hints.resize_with(run + 1, || None);
        }
        let answer = table.reader.get_with_hint(key, hash, at, &mut self.hints[run]);
        self.blocks_read += self.hints[run].as_mut().map_or(0, BlockHint::take_blocks_read);
        answer
    }
}

/// Returns the newest version of `key` visible at `at`, tombstones included.
pub fn lookup(view: &View, key: &[u8], at: SeqNo) -> Result<Option<(SeqNo, EntryValue)>> {
    lookup_in_sources(view, key, at, |_, table, hash| table.reader.get(key, hash, at))
}

/// Like [`lookup`], for one of many keys in ascending order.
pub fn lookup_with_hints(
    view: &View,
    key: &[u8],
    at: SeqNo,
    hints: &mut RunBlockHints,
) -> Result<Option<(SeqNo, EntryValue)>> {
    lookup_in_sources(view, key, at, |run, table, hash| {
        hints.get_from_table(run, table, key, hash, at)
    })
}

/// Searches a transaction's own writes, the memtables, then the runs, newest first.
/// `get_from_table` looks the key up in a table of the run with the given number.
#[inline]
pub(crate) fn lookup_in_sources(
    view: &View,
    key: &[u8],
    at: SeqNo,
    mut get_from_table: impl FnMut(usize, &Table, u64) -> Result<Option<(SeqNo, EntryValue)>>,
) -> Result<Option<(SeqNo, EntryValue)>> {
    let comparator = view.version.comparator;
    if let Some(overlay) = &view.overlay
        && let Some(found) = lookup_overlay(overlay, comparator, key)?
    {
        return Ok(Some(found));
    }
    for memtable in view.memtables() {
        if let Some((seq, found)) =
            newest_of(memtable.get(key, at), memtable.covering_tombstone(key, at))
        {
            check_slow!(seq <= at, "a read finds nothing newer than its snapshot", seq, at);
            return check_gap(view, seq, found);
        }
    }
    let hash = comparator.filter_hash(key);
    for (number, run) in view.version.runs().enumerate() {
        let Some(table) = run.table_covering(comparator, key) else { continue };
        let cover = covering_tombstone(table, view, key, at);
        let point = match get_from_table(number, table, hash) {
            Err(_) if bug::is_active(Bug::ErrorIsNotFound) => None,
            answer => answer?,
        };
        if let Some((seq, found)) = newest_of(point, cover) {
            check_slow!(seq <= at, "a read finds nothing newer than its snapshot", seq, at);
            return check_gap(view, seq, found);
        }
    }
    view.version.check_absent()
}

/// Returns the newest version found, unless operations were lost from the log. In that case an
/// older version that is not live proves nothing, as the key may have been put again: returns an
/// error.
#[inline]
fn check_gap(view: &View, seq: SeqNo, found: EntryValue) -> Result<Option<(SeqNo, EntryValue)>> {
    if view.version.gap.is_some() && !is_live(&found, &*view.now) {
        seeded!(SalvageTrustsTombstone, view.version.check_tombstone(seq), Ok(()))?;
    }
    Ok(Some((seq, found)))
}

/// Returns the newest version of `key` in a transaction's own writes.
fn lookup_overlay(
    overlay: &TxnOverlay,
    comparator: KeyComparator,
    key: &[u8],
) -> Result<Option<(SeqNo, EntryValue)>> {
    let found = lookup_overlay_memtable(overlay.memtable(), overlay.visible_seqs(), key);
    match overlay.spilled().filter(|_| found.is_none()) {
        Some(spilled) => lookup_spilled_runs(
            spilled,
            overlay.visible_seqs(),
            comparator,
            key,
            comparator.filter_hash(key),
        ),
        None => Ok(found),
    }
}

/// Returns the newest version of `key` in a transaction's memtable.
pub fn lookup_overlay_memtable(
    memtable: &Memtable,
    visible: VisibleSeqs<'_>,
    key: &[u8],
) -> Option<(SeqNo, EntryValue)> {
    newest_of(visible.newest_point(memtable, key), visible.covering_tombstone(memtable, key))
}

/// Returns the newest version of `key` in a transaction's spilled runs.
pub fn lookup_spilled_runs(
    spilled: &OverlayRuns,
    visible: VisibleSeqs<'_>,
    comparator: KeyComparator,
    key: &[u8],
    hash: u64,
) -> Result<Option<(SeqNo, EntryValue)>> {
    for run in &spilled.runs {
        let Some(table) = run.table_covering(comparator, key) else { continue };
        let point = visible.try_newest_visible(|at| table.reader.get(key, hash, at))?;
        let fragment = table.reader.range_tombstones().fragment_covering(comparator, key);
        let cover =
            fragment.and_then(|f| visible.newest_range_tombstone(|at| f.newest_visible(at)));
        if let Some(found) = newest_of(point, cover) {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Returns the newest range tombstone of a table that covers `key` and is visible at `at`.
pub fn covering_tombstone(table: &Table, view: &View, key: &[u8], at: SeqNo) -> Option<SeqNo> {
    table
        .reader
        .range_tombstones()
        .fragment_covering(view.version.comparator, key)?
        .newest_visible(at)
}

/// Combines the point entry and the covering range tombstone of one source: the newer one is the
/// result. Either hides the entries of all older sources.
pub fn newest_of(
    point: Option<(SeqNo, EntryValue)>,
    cover: Option<SeqNo>,
) -> Option<(SeqNo, EntryValue)> {
    match (point, cover) {
        (Some((seq, found)), Some(cover)) if seq > cover => Some((seq, found)),
        (_, Some(cover)) => Some((cover, EntryValue::Tombstone)),
        (point, None) => point,
    }
}

/// Returns true if the entry is a live value: neither a tombstone nor expired.
#[inline]
pub fn is_live(found: &EntryValue, now: &dyn ExpiryClock) -> bool {
    match found {
        EntryValue::Tombstone => false,
        EntryValue::Value(_) | EntryValue::Pointer(_) => true,
        EntryValue::ValueExpiring(_, x) | EntryValue::PointerExpiring(_, x) => {
            !x.is_expired(now.now_ms())
        }
        // An operand merges with whatever is below into a value.
        EntryValue::Operand(_) | EntryValue::OperandPointer(_) => true,
    }
}

/// Returns the newest version if it is a live value for a reader at `at`. An expired version hides
/// the older ones, as a tombstone does.
pub fn lookup_live(view: &View, key: &[u8], at: SeqNo) -> Result<Option<EntryValue>> {
    let Some((seq, found)) = lookup(view, key, at)? else { return Ok(None) };
    if is_live(&found, &*view.now) {
        return Ok(Some(found));
    }
    if bug::is_active(Bug::ExpiredExposesOlderVersion)
        && found.expiry().is_some()
        && seq > SeqNo::ZERO
    {
        return lookup_live(view, key, seq.prev());
    }
    Ok(None)
}

/// Returns the value of `key` for a reader at `at`, read from the value log if it is separated.
pub fn get(view: &View, key: &[u8], at: SeqNo) -> Result<Option<PinnedSlice>> {
    lookup_live(view, key, at)?.map(|found| read_value(view, key, at, found)).transpose()
}

/// Returns the bytes of `found`, a live version of `key` for a reader at `at`.
#[inline]
pub fn read_value(view: &View, key: &[u8], at: SeqNo, found: EntryValue) -> Result<PinnedSlice> {
    read_value_with_cause(view, key, at, found, IoActivity::Get)
}

/// Like [`read_value`]; reads of a separated value are counted under `cause`.
#[inline]
pub fn read_value_with_cause(
    view: &View,
    key: &[u8],
    at: SeqNo,
    found: EntryValue,
    cause: IoActivity,
) -> Result<PinnedSlice> {
    match found {
        EntryValue::Value(v) | EntryValue::ValueExpiring(v, _) => Ok(v),
        EntryValue::Pointer(p) | EntryValue::PointerExpiring(p, _) => {
            fetch_value_with_cause(&view.version, &p, cause)
        }
        EntryValue::Tombstone => Err(Error::internal("attempt to read the value of a tombstone")),
        EntryValue::Operand(_) | EntryValue::OperandPointer(_) => {
            merge_operands::merged_value(view, key, at, cause)
        }
    }
}

/// Returns the value of a lookup result, if it is live, read from the value log if it is separated.
pub fn read_live_value(
    view: &View,
    key: &[u8],
    at: SeqNo,
    found: Option<EntryValue>,
) -> Result<Option<PinnedSlice>> {
    found.filter(|f| is_live(f, &*view.now)).map(|f| read_value(view, key, at, f)).transpose()
}

/// Returns true if a reader at `at` sees a value under `key`.
pub fn contains(view: &View, key: &[u8], at: SeqNo) -> Result<bool> {
    Ok(lookup_live(view, key, at)?.is_some())
}
