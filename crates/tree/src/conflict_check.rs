//! What was written behind a reader's back: whether a key, any key of a range, or any key of a
//! sorted run has a version newer than the reader's sequence number. Exact, and it looks only into
//! sources that hold something newer.
//!
//! In a memtable what is newer is what came last: if that is not much it is gone through from the
//! newest back, and nothing is sorted. So a check in the commit section, after one before it, takes
//! what came in between and not the whole memtable.

use crate::get;
use crate::memtable::Memtable;
use crate::scan::MergeCursor;
use crate::scan::cursor::{RunCursor, SourceCursor};
use crate::version::{Run, Table};
use crate::view::View;
use perigee_base::key_boundary::{KeyBoundary, KeyBoundaryRef};
use perigee_base::{KeyComparator, Result, SeqNo};
use perigee_file::RangeTombstones;
use std::sync::Arc;

/// So many entries of a memtable are gone through for one range; for more of them its order is
/// made.
const RECENT_ENTRIES_MAX: usize = 512;

/// Between two places.
pub type KeyRangeRef<'a> = (KeyBoundaryRef<'a>, KeyBoundaryRef<'a>);

fn newer_memtables(view: &View, since: SeqNo) -> impl Iterator<Item = &Arc<Memtable>> {
    view.memtables().filter(move |m| m.last_seq() > since)
}

fn has_newer_entries(table: &Table, since: SeqNo) -> bool {
    table.meta.seq_range().1 > since
}

/// The newest version of `key`, tombstones included, if it is newer than `since`.
pub fn newest_version_since(view: &View, key: &[u8], since: SeqNo) -> Result<Option<SeqNo>> {
    let order = view.version.comparator;
    let hash = order.filter_hash(key);
    let newer =
        |point: Option<SeqNo>, cover: Option<SeqNo>| point.max(cover).filter(|seq| *seq > since);
    for m in newer_memtables(view, since) {
        let point = m.get(key, SeqNo::MAX).map(|(seq, _)| seq);
        if let Some(seq) = newer(point, m.covering_tombstone(key, SeqNo::MAX)) {
            return Ok(Some(seq));
        }
    }
    for run in view.version.runs() {
        let Some(table) = run.table_covering(order, key).filter(|t| has_newer_entries(t, since))
        else {
            continue;
        };
        let point = table.reader.get(key, hash, SeqNo::MAX)?.map(|(seq, _)| seq);
        if let Some(seq) = newer(point, get::covering_tombstone(table, view, key, SeqNo::MAX)) {
            return Ok(Some(seq));
        }
    }
    Ok(None)
}

/// A key between two places that has a version newer than `since`, or the beginning of a newer
/// range tombstone that reaches between them.
pub fn find_conflict_in_range(
    view: &View,
    (begin, end): KeyRangeRef<'_>,
    since: SeqNo,
) -> Result<Option<Vec<u8>>> {
    let order = view.version.comparator;
    if !begin.cmp(order, end).is_lt() {
        return Ok(None);
    }
    if let Some(key) = find_newer_range_tombstone(view, (begin, end), since) {
        return Ok(Some(key));
    }
    let with = |run: &&Arc<Run>| run.tables.iter().any(|t| has_newer_entries(t, since));
    let mut sources: Vec<SourceCursor> = Vec::new();
    for m in newer_memtables(view, since) {
        let Some(mut keys) = m.recent_keys(since, RECENT_ENTRIES_MAX) else {
            sources.push(SourceCursor::from(m.cursor()));
            continue;
        };
        if let Some(key) =
            keys.find(|key| begin.is_before(order, key) && !end.is_before(order, key))
        {
            return Ok(Some(key.to_vec()));
        }
    }
    let run = |r: &Arc<Run>| SourceCursor::Run(RunCursor::new(Arc::clone(r), order, true));
    sources.extend(view.version.runs().filter(with).map(run));
    let mut merge = MergeCursor::new(order, sources);
    match begin {
        KeyBoundaryRef::First => merge.seek_first()?,
        KeyBoundaryRef::Before(k) => merge.seek(k, SeqNo::MAX)?,
        KeyBoundaryRef::After(k) => merge.seek(k, SeqNo::ZERO)?,
        KeyBoundaryRef::Last => return Ok(None),
    }
    let mut key = Vec::new();
    while merge.valid() {
        merge.key().copy_to(&mut key);
        if end.is_before(order, &key) {
            break;
        }
        if merge.seq() > since {
            return Ok(Some(key));
        }
        merge.step()?;
    }
    Ok(None)
}

/// A key, or the beginning of a stretch, that the tables of `run` are about (they belong to
/// nobody's version) and that has a version newer than `since`. The work is that of the smaller
/// side: the run, or what is newer.
pub fn find_conflict_with_run(
    view: &View,
    run: &Arc<Run>,
    since: SeqNo,
) -> Result<Option<Vec<u8>>> {
    let order = view.version.comparator;
    for erased in run.tables.iter().flat_map(|t| t.reader.range_tombstones().fragments()) {
        let met =
            find_conflict_in_range(view, (erased.begin.as_ref(), erased.end.as_ref()), since)?;
        if met.is_some() {
            return Ok(met);
        }
    }
    for (begin, end) in newer_range_tombstones(view, since) {
        let mut mine = SourceCursor::Run(RunCursor::new(Arc::clone(run), order, false));
        mine.seek_past(begin.as_ref(), true)?;
        if mine.valid() && !end.as_ref().is_before(order, &copy_key(&mine)) {
            return Ok(Some(copy_key(&mine)));
        }
    }
    let entries: u64 = run.tables.iter().map(|t| t.meta.summary.entries).sum();
    let mut sources: Vec<SourceCursor> = Vec::new();
    for m in newer_memtables(view, since) {
        let Some(keys) = m.recent_keys(
            since,
            usize::try_from(entries).unwrap_or(usize::MAX).max(RECENT_ENTRIES_MAX),
        ) else {
            sources.push(SourceCursor::from(m.cursor()));
            continue;
        };
        for key in keys {
            let Some(table) = run.table_covering(order, key) else { continue };
            if table.reader.get(key, order.filter_hash(key), SeqNo::MAX)?.is_some() {
                return Ok(Some(key.to_vec()));
            }
        }
    }
    for other in view.version.runs() {
        let newer: Vec<_> =
            other.tables.iter().filter(|t| has_newer_entries(t, since)).cloned().collect();
        if !newer.is_empty() {
            let newer = Arc::new(Run::new(other.id, newer, order));
            sources.push(SourceCursor::Run(RunCursor::new(newer, order, false)));
        }
    }
    let mine = SourceCursor::Run(RunCursor::new(Arc::clone(run), order, false));
    find_common_key(order, mine, MergeCursor::new(order, sources), since)
}

fn copy_key(source: &SourceCursor) -> Vec<u8> {
    let mut key = Vec::new();
    source.key().copy_to(&mut key);
    key
}

/// The first key of `mine` that `others` have an entry of that is newer than `since`. Each side
/// leaps to where the other is.
fn find_common_key(
    order: KeyComparator,
    mut mine: SourceCursor,
    mut others: MergeCursor,
    since: SeqNo,
) -> Result<Option<Vec<u8>>> {
    let mut key = Vec::new();
    mine.seek_first()?;
    others.seek_first()?;
    while mine.valid() && others.valid() {
        mine.key().copy_to(&mut key);
        others.seek_forward(&key, SeqNo::MAX)?;
        if !others.valid() {
            break;
        }
        if others.key().equals(order, &key) {
            if others.seq() > since {
                return Ok(Some(key));
            }
            mine.next()?;
        } else {
            others.key().copy_to(&mut key);
            mine.seek(&key, SeqNo::MAX)?;
        }
    }
    Ok(None)
}

/// Where range tombstones newer than `since` reach from and to.
fn newer_range_tombstones(view: &View, since: SeqNo) -> Vec<(KeyBoundary, KeyBoundary)> {
    let mut all = Vec::new();
    let mut add = |list: &RangeTombstones| {
        let newer = list
            .fragments()
            .iter()
            .filter(|f| f.newest_visible(SeqNo::MAX).is_some_and(|seq| seq > since));
        all.extend(newer.map(|f| (f.begin.clone(), f.end.clone())));
    };
    for m in newer_memtables(view, since) {
        m.range_tombstones().with_fragments(&mut add);
    }
    let tables =
        view.version.runs().flat_map(|r| &r.tables).filter(|t| has_newer_entries(t, since));
    tables.for_each(|t| add(t.reader.range_tombstones()));
    all
}

/// The beginning of a range tombstone newer than `since` that reaches into the stretch.
fn find_newer_range_tombstone(
    view: &View,
    stretch: KeyRangeRef<'_>,
    since: SeqNo,
) -> Option<Vec<u8>> {
    let order = view.version.comparator;
    let look = |list: &RangeTombstones| {
        let newer = list.fragments().iter().find(|f| {
            f.newest_visible(SeqNo::MAX).is_some_and(|seq| seq > since)
                && KeyBoundaryRef::ranges_overlap(
                    order,
                    stretch,
                    (f.begin.as_ref(), f.end.as_ref()),
                )
        })?;
        Some(newer.begin.as_ref().key().unwrap_or_default().to_vec())
    };
    let memtables = newer_memtables(view, since)
        .find_map(|m| m.range_tombstones().with_fragments(look).flatten());
    memtables.or_else(|| {
        let tables =
            view.version.runs().flat_map(|r| &r.tables).filter(|t| has_newer_entries(t, since));
        tables.map(|t| t.reader.range_tombstones()).find_map(|list| look(list))
    })
}
