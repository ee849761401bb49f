//! The point read: sources newest first, the first answer wins.
//!
//! "Not found" is an assertion: it is given only when every source that could hold the key was read; an error of
//! any source is the answer. Where a part of the log was lost (salvage), it is given only for a tombstone that is newer than the
//! lost part.

pub use crate::fetch::{fetch, fetch_for};
use crate::memtable::Memtable;
use crate::merged;
use crate::own::{Own, Shown, Spilled};
use crate::{Table, View};
use perigee_base::bug::{self, Bug};
use perigee_base::io::Cause;
use perigee_base::{Error, KeyOrder, Now, Result, SeqNo, Shared};
use perigee_file::{Found, Near};

/// The block that each run was asked for last. Look-ups of neighbouring keys share it; a single one starts empty-handed.
#[derive(Debug, Default)]
pub struct Hand {
    near: Vec<Option<Near>>,
    loaded: u64,
}

impl Hand {
    /// How many blocks were read from disk.
    pub fn loaded(&self) -> u64 {
        self.loaded
    }
    /// Asks the table of run number `run`.
    fn ask(
        &mut self,
        run: usize,
        table: &Table,
        key: &[u8],
        hash: u64,
        at: SeqNo,
    ) -> Result<Option<(SeqNo, Found)>> {
        if self.near.len() <= run {
            self.near.resize_with(run + 1, || None);
        }
        let answer = table.reader.get_near(key, hash, at, &mut self.near[run]);
        self.loaded += self.near[run].as_mut().map_or(0, Near::take_loaded);
        answer
    }
}

/// The newest version of `key` that a reader at `at` sees, tombstones included.
pub fn lookup(view: &View, key: &[u8], at: SeqNo) -> Result<Option<(SeqNo, Found)>> {
    look(view, key, at, |_, table, hash| table.reader.get(key, hash, at))
}

/// The same for one of many keys that come in order.
pub fn lookup_near(view: &View, key: &[u8], at: SeqNo, hand: &mut Hand) -> Result<Option<(SeqNo, Found)>> {
    look(view, key, at, |run, table, hash| hand.ask(run, table, key, hash, at))
}

/// The walk: what a transaction has written itself, memtables, then runs, the newest first. `ask` asks one table, of the run of that number.
#[inline]
pub(crate) fn look(
    view: &View,
    key: &[u8],
    at: SeqNo,
    mut ask: impl FnMut(usize, &Table, u64) -> Result<Option<(SeqNo, Found)>>,
) -> Result<Option<(SeqNo, Found)>> {
    let order = view.version.order;
    if let Some(own) = &view.own
        && let Some(found) = written(own, order, key)?
    {
        return Ok(Some(found));
    }
    for memtable in view.memtables() {
        if let Some(found) = newer(memtable.get(key, at), memtable.cover(key, at)) {
            return certain(view, found);
        }
    }
    let hash = order.filter_hash(key);
    for (number, run) in view.version.runs().enumerate() {
        let Some(table) = run.covering(order, key) else { continue };
        let cover = cover(table, view, key, at);
        let point = match ask(number, table, hash) {
            Err(_) if bug::on(Bug::ErrorIsNotFound) => None,
            answer => answer?,
        };
        if let Some(found) = newer(point, cover) {
            return certain(view, found);
        }
    }
    view.version.absent()
}

/// The newest version that was found. Where operations were lost, one that is older and not live says as little as no
/// version at all: the key may have been put again.
#[inline]
fn certain(view: &View, (seq, found): (SeqNo, Found)) -> Result<Option<(SeqNo, Found)>> {
    if view.version.gap.is_some() && !is_live(&found, &*view.now) {
        view.version.check_dead(seq)?;
    }
    Ok(Some((seq, found)))
}

/// What a transaction last did to `key`.
fn written(own: &Own, order: KeyOrder, key: &[u8]) -> Result<Option<(SeqNo, Found)>> {
    let found = in_own(own.memtable(), own.shown(), order, key);
    match own.spilled().filter(|_| found.is_none()) {
        Some(spilled) => in_spilled(spilled, own.shown(), order, key, order.filter_hash(key)),
        None => Ok(found),
    }
}

/// What the memtable of a transaction says last of `key`.
pub fn in_own(memtable: &Memtable, shown: Shown<'_>, order: KeyOrder, key: &[u8]) -> Option<(SeqNo, Found)> {
    newer(shown.point(memtable, key), shown.cover(memtable, order, key))
}

/// What the runs of a transaction say last of `key`.
pub fn in_spilled(
    spilled: &Spilled,
    shown: Shown<'_>,
    order: KeyOrder,
    key: &[u8],
    hash: u64,
) -> Result<Option<(SeqNo, Found)>> {
    for run in &spilled.runs {
        let Some(table) = run.covering(order, key) else { continue };
        let point = shown.try_newest(|at| table.reader.get(key, hash, at))?;
        let fragment = table.reader.ranges().covering(order, key);
        let cover = fragment.and_then(|f| shown.range(|at| f.newest(at)));
        if let Some(found) = newer(point, cover) {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// The newest range tombstone of a table over `key` that a reader at `at` sees.
pub fn cover(table: &Table, view: &View, key: &[u8], at: SeqNo) -> Option<SeqNo> {
    table.reader.ranges().covering(view.version.order, key)?.newest(at)
}

/// What one source has to say: its newest version of the key, or the range tombstone over that. Either hides all that
/// older sources hold.
pub fn newer(point: Option<(SeqNo, Found)>, cover: Option<SeqNo>) -> Option<(SeqNo, Found)> {
    match (point, cover) {
        (Some((seq, found)), Some(cover)) if seq > cover => Some((seq, found)),
        (_, Some(cover)) => Some((cover, Found::Tombstone)),
        (point, None) => point,
    }
}

/// Whether a reader sees a value there now: it is no tombstone, and its time has not passed.
#[inline]
pub fn is_live(found: &Found, now: &dyn Now) -> bool {
    match found {
        Found::Tombstone => false,
        Found::Value(_) | Found::Pointer(_) => true,
        Found::ValueUntil(_, x) | Found::PointerUntil(_, x) => !x.passed(now.now_ms()),
        // Merged onto whatever is below, it is a value.
        Found::Operand(_) | Found::OperandPointer(_) => true,
    }
}

/// The newest version, if a reader at `at` sees a value in it. An expired one hides the older ones, as a tombstone does.
pub fn live(view: &View, key: &[u8], at: SeqNo) -> Result<Option<Found>> {
    let Some((seq, found)) = lookup(view, key, at)? else { return Ok(None) };
    if is_live(&found, &*view.now) {
        return Ok(Some(found));
    }
    if bug::on(Bug::ExpiredFallsThrough) && found.expiry().is_some() && seq > SeqNo::ZERO {
        return live(view, key, seq.prev());
    }
    Ok(None)
}

/// The value of `key` for a reader at `at`, fetched from the value log if it is separated.
pub fn get(view: &View, key: &[u8], at: SeqNo) -> Result<Option<Shared>> {
    live(view, key, at)?.map(|found| value(view, key, at, found)).transpose()
}

/// The bytes of what was found live under `key` by a reader at `at`.
#[inline]
pub fn value(view: &View, key: &[u8], at: SeqNo, found: Found) -> Result<Shared> {
    value_for(view, (key, at), found, Cause::Get)
}

/// The same, a read of a separated value counted for `cause`.
#[inline]
pub fn value_for(view: &View, (key, at): (&[u8], SeqNo), found: Found, cause: Cause) -> Result<Shared> {
    match found {
        Found::Value(v) | Found::ValueUntil(v, _) => Ok(v),
        Found::Pointer(p) | Found::PointerUntil(p, _) => fetch_for(&view.version, &p, cause),
        Found::Tombstone => Err(Error::internal("a tombstone has no value")),
        Found::Operand(_) | Found::OperandPointer(_) => merged::value(view, key, at, cause),
    }
}

/// The value that a look-up stands for, if a reader sees one, fetched from the value log if it is separated.
pub fn value_of(view: &View, key: &[u8], at: SeqNo, found: Option<Found>) -> Result<Option<Shared>> {
    found.filter(|f| is_live(f, &*view.now)).map(|f| value(view, key, at, f)).transpose()
}

/// Whether a reader at `at` sees a value under `key`.
pub fn contains(view: &View, key: &[u8], at: SeqNo) -> Result<bool> {
    Ok(live(view, key, at)?.is_some())
}
