//! Conflict check of transactions: determines whether a key, any key of a range, or any key of a
//! sorted run has a version newer than a sequence number. Exact; reads only sources with newer
//! entries.
//!
//! In a memtable the newer entries are those inserted last. If they are few, they are checked from
//! the newest backwards, without sorting the memtable. A check in the commit section that follows
//! an earlier check therefore covers only what was inserted in between.

use crate::get;
use crate::limits::RECENT_ENTRIES_MAX;
use crate::memtable::Memtable;
use crate::scan::MergeCursor;
use crate::scan::{RunCursor, SourceCursor};
use crate::version::{Run, Table};
use crate::view::View;
use perigee_base::{KeyBoundary, KeyBoundaryRef, KeyComparator, Result, SeqNo};
use perigee_file::{RangeTombstoneFragment, RangeTombstones};
use std::sync::Arc;

/// The key range between two boundaries.
pub type KeyRangeRef<'a> = (KeyBoundaryRef<'a>, KeyBoundaryRef<'a>);

fn newer_memtables(view: &View, since: SeqNo) -> impl Iterator<Item = &Arc<Memtable>> {
    view.memtables().filter(move |m| m.last_seq() > since)
}

fn has_newer_entries(table: &Table, since: SeqNo) -> bool {
    table.meta.seq_range().1 > since
}

/// Returns the sequence number of the newest version of `key`, tombstones included, if it is newer
/// than `since`.
pub fn newest_version_since(view: &View, key: &[u8], since: SeqNo) -> Result<Option<SeqNo>> {
    let comparator = view.version.comparator;
    let newer =
        |point: Option<SeqNo>, cover: Option<SeqNo>| point.max(cover).filter(|seq| *seq > since);
    for m in newer_memtables(view, since) {
        let point = m.get(key, SeqNo::MAX).map(|(seq, _)| seq);
        if let Some(seq) = newer(point, m.covering_tombstone(key, SeqNo::MAX)) {
            return Ok(Some(seq));
        }
    }
    if view.version.newest_seq() <= since {
        return Ok(None);
    }
    let hash = comparator.filter_hash(key);
    for run in view.version.runs() {
        let Some(table) =
            run.table_covering(comparator, key).filter(|t| has_newer_entries(t, since))
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

/// Returns a key in the range that has a version newer than `since`, or the start key of a newer
/// range tombstone that overlaps the range.
pub fn find_conflict_in_range(
    view: &View,
    (begin, end): KeyRangeRef<'_>,
    since: SeqNo,
) -> Result<Option<Vec<u8>>> {
    let comparator = view.version.comparator;
    if !begin.cmp(comparator, end).is_lt() {
        return Ok(None);
    }
    if let Some(key) = find_newer_range_tombstone(view, (begin, end), since) {
        return Ok(Some(key));
    }
    let has_newer = |run: &&Arc<Run>| run.tables.iter().any(|t| has_newer_entries(t, since));
    let mut sources: Vec<SourceCursor> = Vec::new();
    for m in newer_memtables(view, since) {
        let Some(mut keys) = m.recent_keys(since, RECENT_ENTRIES_MAX) else {
            sources.push(SourceCursor::from(m.cursor()));
            continue;
        };
        if let Some(key) =
            keys.find(|key| begin.is_before(comparator, key) && !end.is_before(comparator, key))
        {
            return Ok(Some(key.to_vec()));
        }
    }
    let run_cursor =
        |r: &Arc<Run>| SourceCursor::Run(RunCursor::new(Arc::clone(r), comparator, true));
    sources.extend(view.version.runs().filter(has_newer).map(run_cursor));
    let mut merge = MergeCursor::new(comparator, sources);
    match begin {
        KeyBoundaryRef::First => merge.seek_first()?,
        KeyBoundaryRef::Before(k) => merge.seek(k, SeqNo::MAX)?,
        KeyBoundaryRef::After(k) => merge.seek(k, SeqNo::ZERO)?,
        KeyBoundaryRef::Last => return Ok(None),
    }
    let mut key = Vec::new();
    while merge.valid() {
        merge.key().copy_to(&mut key);
        if end.is_before(comparator, &key) {
            break;
        }
        if merge.seq() > since {
            return Ok(Some(key));
        }
        merge.step()?;
    }
    Ok(None)
}

/// Returns the range tombstones of a run.
fn range_tombstones(run: &Run) -> impl Iterator<Item = &Arc<RangeTombstoneFragment>> {
    run.tables.iter().flat_map(|t| t.reader.range_tombstones().fragments())
}

/// Returns a key of `run`, or the start key of a range tombstone, that has a version newer than
/// `since`. The tables of `run` belong to no version. The cost is proportional to the smaller side:
/// the run, or the newer entries.
pub fn find_conflict_with_run(
    view: &View,
    run: &Arc<Run>,
    since: SeqNo,
) -> Result<Option<Vec<u8>>> {
    let comparator = view.version.comparator;
    for fragment in range_tombstones(run) {
        let conflict =
            find_conflict_in_range(view, (fragment.begin.as_ref(), fragment.end.as_ref()), since)?;
        if conflict.is_some() {
            return Ok(conflict);
        }
    }
    for (begin, end) in newer_range_tombstones(view, since) {
        let mut run_cursor = SourceCursor::Run(RunCursor::new(Arc::clone(run), comparator, false));
        run_cursor.seek_past(begin.as_ref(), true)?;
        if run_cursor.valid() && !end.as_ref().is_before(comparator, &copy_key(&run_cursor)) {
            return Ok(Some(copy_key(&run_cursor)));
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
            let Some(table) = run.table_covering(comparator, key) else { continue };
            if table.reader.get(key, comparator.filter_hash(key), SeqNo::MAX)?.is_some() {
                return Ok(Some(key.to_vec()));
            }
        }
    }
    for other in view.version.runs() {
        let newer: Vec<_> =
            other.tables.iter().filter(|t| has_newer_entries(t, since)).cloned().collect();
        if !newer.is_empty() {
            let newer = Arc::new(Run::new(other.id, newer, comparator));
            sources.push(SourceCursor::Run(RunCursor::new(newer, comparator, false)));
        }
    }
    let run_cursor = SourceCursor::Run(RunCursor::new(Arc::clone(run), comparator, false));
    find_common_key(comparator, run_cursor, MergeCursor::new(comparator, sources), since)
}

impl Run {
    /// Returns true if the run, whose tables belong to no version, has an entry for `key` or a range
    /// tombstone over it.
    pub fn contains_key(&self, comparator: KeyComparator, key: &[u8]) -> Result<bool> {
        let Some(table) = self.table_covering(comparator, key) else { return Ok(false) };
        let ranges = table.reader.range_tombstones();
        let is_deleted = ranges.fragment_covering(comparator, key).is_some();
        Ok(is_deleted || table.reader.get(key, comparator.filter_hash(key), SeqNo::MAX)?.is_some())
    }

    /// Returns a key of the run in the range, or the start key of a range tombstone that overlaps
    /// it. The tables of the run belong to no version.
    pub fn find_key_in_range(
        self: &Arc<Run>,
        comparator: KeyComparator,
        range: KeyRangeRef<'_>,
    ) -> Result<Option<Vec<u8>>> {
        let (begin, end) = range;
        if !begin.cmp(comparator, end).is_lt() {
            return Ok(None);
        }
        let overlapping = range_tombstones(self).find(|f| {
            KeyBoundaryRef::ranges_overlap(comparator, range, (f.begin.as_ref(), f.end.as_ref()))
        });
        if let Some(fragment) = overlapping {
            return Ok(Some(fragment.begin.as_ref().key().unwrap_or_default().to_vec()));
        }
        let mut cursor = SourceCursor::Run(RunCursor::new(Arc::clone(self), comparator, true));
        cursor.seek_past(begin, true)?;
        if !cursor.valid() {
            return Ok(None);
        }
        let key = copy_key(&cursor);
        Ok((!end.is_before(comparator, &key)).then_some(key))
    }

    /// Returns a key that both runs write, or the start key of a range tombstone of one of them that
    /// overlaps the other. The tables of the runs belong to no version. Each side seeks to the
    /// position of the other.
    pub fn find_common_key(
        self: &Arc<Run>,
        other: &Arc<Run>,
        comparator: KeyComparator,
    ) -> Result<Option<Vec<u8>>> {
        for (run, other) in [(self, other), (other, self)] {
            for f in range_tombstones(run) {
                let range = (f.begin.as_ref(), f.end.as_ref());
                if let Some(key) = other.find_key_in_range(comparator, range)? {
                    return Ok(Some(key));
                }
            }
        }
        let cursor =
            |run: &Arc<Run>| SourceCursor::Run(RunCursor::new(Arc::clone(run), comparator, false));
        let (mut ahead, mut behind) = (cursor(self), cursor(other));
        ahead.seek_first()?;
        while ahead.valid() {
            let key = copy_key(&ahead);
            behind.seek(&key, SeqNo::MAX)?;
            if !behind.valid() {
                break;
            }
            if comparator.keys_equal(&copy_key(&behind), &key) {
                return Ok(Some(key));
            }
            std::mem::swap(&mut ahead, &mut behind);
        }
        Ok(None)
    }
}

fn copy_key(source: &SourceCursor) -> Vec<u8> {
    let mut key = Vec::new();
    source.key().copy_to(&mut key);
    key
}

/// Returns the first key of `run` for which `others` has an entry newer than `since`. Each side
/// seeks to the position of the other.
fn find_common_key(
    comparator: KeyComparator,
    mut run: SourceCursor,
    mut others: MergeCursor,
    since: SeqNo,
) -> Result<Option<Vec<u8>>> {
    let mut key = Vec::new();
    run.seek_first()?;
    others.seek_first()?;
    while run.valid() && others.valid() {
        run.key().copy_to(&mut key);
        others.seek_forward(&key, SeqNo::MAX)?;
        if !others.valid() {
            break;
        }
        check_slow!(
            others.key().cmp(comparator, run.key()).is_ge(),
            "a seek moves forward to its key",
            key
        );
        if others.key().equals(comparator, &key) {
            if others.seq() > since {
                return Ok(Some(key));
            }
            run.next()?;
        } else {
            others.key().copy_to(&mut key);
            run.seek(&key, SeqNo::MAX)?;
        }
    }
    Ok(None)
}

/// Returns the start and end boundaries of range tombstones newer than `since`.
fn newer_range_tombstones(view: &View, since: SeqNo) -> Vec<(KeyBoundary, KeyBoundary)> {
    let mut all: Vec<_> = newer_memtables(view, since)
        .flat_map(|m| m.range_tombstones().newer_ranges(since))
        .collect();
    let mut add = |list: &RangeTombstones| {
        let newer = list
            .fragments()
            .iter()
            .filter(|f| f.newest_visible(SeqNo::MAX).is_some_and(|seq| seq > since));
        all.extend(newer.map(|f| (f.begin.clone(), f.end.clone())));
    };
    let tables =
        view.version.runs().flat_map(|r| &r.tables).filter(|t| has_newer_entries(t, since));
    tables.for_each(|t| add(t.reader.range_tombstones()));
    all
}

/// Returns the start key of a range tombstone newer than `since` that overlaps the range.
fn find_newer_range_tombstone(
    view: &View,
    range: KeyRangeRef<'_>,
    since: SeqNo,
) -> Option<Vec<u8>> {
    let comparator = view.version.comparator;
    let find_in = |list: &RangeTombstones| {
        let newer = list.fragments().iter().find(|f| {
            f.newest_visible(SeqNo::MAX).is_some_and(|seq| seq > since)
                && KeyBoundaryRef::ranges_overlap(
                    comparator,
                    range,
                    (f.begin.as_ref(), f.end.as_ref()),
                )
        })?;
        Some(newer.begin.as_ref().key().unwrap_or_default().to_vec())
    };
    let memtables = newer_memtables(view, since)
        .find_map(|m| m.range_tombstones().first_newer(range.0..range.1, since))
        .map(|begin| begin.as_ref().key().unwrap_or_default().to_vec());
    memtables.or_else(|| {
        let tables =
            view.version.runs().flat_map(|r| &r.tables).filter(|t| has_newer_entries(t, since));
        tables.map(|t| t.reader.range_tombstones()).find_map(|list| find_in(list))
    })
}
