//! The point read: sources newest first, the first answer wins.
//!
//! "Not found" is an assertion: it is given only when every source that could hold the key was
//! read; an error of any source is the answer. Where a part of the log was lost (salvage), it is
//! given only for a tombstone that is newer than the lost part.

pub use crate::fetch_value::{fetch_value, fetch_value_with_cause};
use crate::memtable::Memtable;
use crate::merge_operands;
use crate::txn_overlay::{OverlayRuns, TxnOverlay, VisibleSeqs};
use crate::{Table, View};
use perigee_base::bug::{self, Bug};
use perigee_base::io_stats::IoActivity;
use perigee_base::{Error, ExpiryClock, KeyComparator, PinnedSlice, Result, SeqNo};
use perigee_file::{BlockHint, EntryValue};

/// The block that each run was asked for last. Look-ups of neighbouring keys share it; a single one
/// starts empty-handed.
#[derive(Debug, Default)]
pub struct RunBlockHints {
    hints: Vec<Option<BlockHint>>,
    blocks_read: u64,
}

impl RunBlockHints {
    /// How many blocks were read from disk.
    pub fn blocks_read(&self) -> u64 {
        self.blocks_read
    }
    /// Asks the table of run number `run`.
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

/// The newest version of `key` that a reader at `at` sees, tombstones included.
pub fn lookup(view: &View, key: &[u8], at: SeqNo) -> Result<Option<(SeqNo, EntryValue)>> {
    lookup_in_sources(view, key, at, |_, table, hash| table.reader.get(key, hash, at))
}

/// The same for one of many keys that come in order.
pub fn lookup_with_hints(
    view: &View,
    key: &[u8],
    at: SeqNo,
    hand: &mut RunBlockHints,
) -> Result<Option<(SeqNo, EntryValue)>> {
    lookup_in_sources(view, key, at, |run, table, hash| {
        hand.get_from_table(run, table, key, hash, at)
    })
}

/// The walk: what a transaction has written itself, memtables, then runs, the newest first. `ask`
/// asks one table, of the run of that number.
#[inline]
pub(crate) fn lookup_in_sources(
    view: &View,
    key: &[u8],
    at: SeqNo,
    mut ask: impl FnMut(usize, &Table, u64) -> Result<Option<(SeqNo, EntryValue)>>,
) -> Result<Option<(SeqNo, EntryValue)>> {
    let order = view.version.comparator;
    if let Some(own) = &view.overlay
        && let Some(found) = lookup_overlay(own, order, key)?
    {
        return Ok(Some(found));
    }
    for memtable in view.memtables() {
        if let Some(found) = newest_of(memtable.get(key, at), memtable.covering_tombstone(key, at))
        {
            return check_gap(view, found);
        }
    }
    let hash = order.filter_hash(key);
    for (number, run) in view.version.runs().enumerate() {
        let Some(table) = run.table_covering(order, key) else { continue };
        let cover = covering_tombstone(table, view, key, at);
        let point = match ask(number, table, hash) {
            Err(_) if bug::is_active(Bug::ErrorIsNotFound) => None,
            answer => answer?,
        };
        if let Some(found) = newest_of(point, cover) {
            return check_gap(view, found);
        }
    }
    view.version.check_absent()
}

/// The newest version that was found. Where operations were lost, one that is older and not live
/// says as little as no version at all: the key may have been put again.
#[inline]
fn check_gap(
    view: &View,
    (seq, found): (SeqNo, EntryValue),
) -> Result<Option<(SeqNo, EntryValue)>> {
    if view.version.gap.is_some() && !is_live(&found, &*view.now) {
        view.version.check_tombstone(seq)?;
    }
    Ok(Some((seq, found)))
}

/// What a transaction last did to `key`.
fn lookup_overlay(
    own: &TxnOverlay,
    order: KeyComparator,
    key: &[u8],
) -> Result<Option<(SeqNo, EntryValue)>> {
    let found = lookup_overlay_memtable(own.memtable(), own.visible_seqs(), order, key);
    match own.spilled().filter(|_| found.is_none()) {
        Some(spilled) => {
            lookup_spilled_runs(spilled, own.visible_seqs(), order, key, order.filter_hash(key))
        }
        None => Ok(found),
    }
}

/// What the memtable of a transaction says last of `key`.
pub fn lookup_overlay_memtable(
    memtable: &Memtable,
    shown: VisibleSeqs<'_>,
    order: KeyComparator,
    key: &[u8],
) -> Option<(SeqNo, EntryValue)> {
    newest_of(shown.newest_point(memtable, key), shown.covering_tombstone(memtable, order, key))
}

/// What the runs of a transaction say last of `key`.
pub fn lookup_spilled_runs(
    spilled: &OverlayRuns,
    shown: VisibleSeqs<'_>,
    order: KeyComparator,
    key: &[u8],
    hash: u64,
) -> Result<Option<(SeqNo, EntryValue)>> {
    for run in &spilled.runs {
        let Some(table) = run.table_covering(order, key) else { continue };
        let point = shown.try_newest_visible(|at| table.reader.get(key, hash, at))?;
        let fragment = table.reader.range_tombstones().fragment_covering(order, key);
        let cover = fragment.and_then(|f| shown.newest_range_tombstone(|at| f.newest_visible(at)));
        if let Some(found) = newest_of(point, cover) {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// The newest range tombstone of a table over `key` that a reader at `at` sees.
pub fn covering_tombstone(table: &Table, view: &View, key: &[u8], at: SeqNo) -> Option<SeqNo> {
    table
        .reader
        .range_tombstones()
        .fragment_covering(view.version.comparator, key)?
        .newest_visible(at)
}

/// What one source has to say: its newest version of the key, or the range tombstone over that.
/// Either hides all that older sources hold.
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

/// Whether a reader sees a value there now: it is no tombstone, and its time has not passed.
#[inline]
pub fn is_live(found: &EntryValue, now: &dyn ExpiryClock) -> bool {
    match found {
        EntryValue::Tombstone => false,
        EntryValue::Value(_) | EntryValue::Pointer(_) => true,
        EntryValue::ValueExpiring(_, x) | EntryValue::PointerExpiring(_, x) => {
            !x.is_expired(now.now_ms())
        }
        // Merged onto whatever is below, it is a value.
        EntryValue::Operand(_) | EntryValue::OperandPointer(_) => true,
    }
}

/// The newest version, if a reader at `at` sees a value in it. An expired one hides the older ones,
/// as a tombstone does.
pub fn lookup_live(view: &View, key: &[u8], at: SeqNo) -> Result<Option<EntryValue>> {
    let Some((seq, found)) = lookup(view, key, at)? else { return Ok(None) };
    if is_live(&found, &*view.now) {
        return Ok(Some(found));
    }
    if bug::is_active(Bug::ExpiredFallsThrough) && found.expiry().is_some() && seq > SeqNo::ZERO {
        return lookup_live(view, key, seq.prev());
    }
    Ok(None)
}

/// The value of `key` for a reader at `at`, fetched from the value log if it is separated.
pub fn get(view: &View, key: &[u8], at: SeqNo) -> Result<Option<PinnedSlice>> {
    lookup_live(view, key, at)?.map(|found| read_value(view, key, at, found)).transpose()
}

/// The bytes of what was found live under `key` by a reader at `at`.
#[inline]
pub fn read_value(view: &View, key: &[u8], at: SeqNo, found: EntryValue) -> Result<PinnedSlice> {
    read_value_with_cause(view, (key, at), found, IoActivity::Get)
}

/// The same, a read of a separated value counted for `cause`.
#[inline]
pub fn read_value_with_cause(
    view: &View,
    (key, at): (&[u8], SeqNo),
    found: EntryValue,
    cause: IoActivity,
) -> Result<PinnedSlice> {
    match found {
        EntryValue::Value(v) | EntryValue::ValueExpiring(v, _) => Ok(v),
        EntryValue::Pointer(p) | EntryValue::PointerExpiring(p, _) => {
            fetch_value_with_cause(&view.version, &p, cause)
        }
        EntryValue::Tombstone => Err(Error::internal("a tombstone has no value")),
        EntryValue::Operand(_) | EntryValue::OperandPointer(_) => {
            merge_operands::merged_value(view, key, at, cause)
        }
    }
}

/// The value that a look-up stands for, if a reader sees one, fetched from the value log if it is
/// separated.
pub fn read_live_value(
    view: &View,
    key: &[u8],
    at: SeqNo,
    found: Option<EntryValue>,
) -> Result<Option<PinnedSlice>> {
    found.filter(|f| is_live(f, &*view.now)).map(|f| read_value(view, key, at, f)).transpose()
}

/// Whether a reader at `at` sees a value under `key`.
pub fn contains(view: &View, key: &[u8], at: SeqNo) -> Result<bool> {
    Ok(lookup_live(view, key, at)?.is_some())
}
