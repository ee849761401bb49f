//! What was written behind a reader's back: whether a key, or any key of a range, has a version newer than the reader's
//! sequence number. Exact, and it looks only into sources that hold something newer.

use crate::get;
use crate::memtable::Memtable;
use crate::scan::MergeCursor;
use crate::scan::cursor::{RunCursor, Source};
use crate::version::{Run, Table};
use crate::view::View;
use perigee_base::cut::CutRef;
use perigee_base::{Result, SeqNo};
use perigee_file::Fragments;
use std::sync::Arc;

/// Between two places.
pub type Stretch<'a> = (CutRef<'a>, CutRef<'a>);

fn newer_memtables(view: &View, since: SeqNo) -> impl Iterator<Item = &Arc<Memtable>> {
    view.memtables().filter(move |m| m.last_seq() > since)
}

fn holds_newer(table: &Table, since: SeqNo) -> bool {
    table.meta.seqs().1 > since
}

/// The newest version of `key`, tombstones included, if it is newer than `since`.
pub fn newest(view: &View, key: &[u8], since: SeqNo) -> Result<Option<SeqNo>> {
    let order = view.version.order;
    let hash = order.filter_hash(key);
    let newer = |point: Option<SeqNo>, cover: Option<SeqNo>| point.max(cover).filter(|seq| *seq > since);
    for m in newer_memtables(view, since) {
        let point = m.get(key, hash, SeqNo::MAX).map(|(seq, _)| seq);
        if let Some(seq) = newer(point, m.cover(key, SeqNo::MAX)) {
            return Ok(Some(seq));
        }
    }
    for run in view.version.runs() {
        let Some(table) = run.covering(order, key).filter(|t| holds_newer(t, since)) else { continue };
        let point = table.reader.get(key, hash, SeqNo::MAX)?.map(|(seq, _)| seq);
        if let Some(seq) = newer(point, get::cover(table, view, key, SeqNo::MAX)) {
            return Ok(Some(seq));
        }
    }
    Ok(None)
}

/// A key between two places that has a version newer than `since`, or the beginning of a newer range tombstone that reaches
/// between them.
pub fn first_between(view: &View, (begin, end): Stretch<'_>, since: SeqNo) -> Result<Option<Vec<u8>>> {
    let order = view.version.order;
    if !begin.cmp(order, end).is_lt() {
        return Ok(None);
    }
    if let Some(key) = erased_between(view, (begin, end), since) {
        return Ok(Some(key));
    }
    let with = |run: &&Arc<Run>| run.tables.iter().any(|t| holds_newer(t, since));
    let mut sources: Vec<Source> = newer_memtables(view, since).map(|m| Source::from(m.cursor())).collect();
    let run = |r: &Arc<Run>| Source::Run(RunCursor::new(Arc::clone(r), order, true));
    sources.extend(view.version.runs().filter(with).map(run));
    let mut merge = MergeCursor::new(order, sources);
    match begin {
        CutRef::First => merge.seek_first()?,
        CutRef::Before(k) => merge.seek(k, SeqNo::MAX)?,
        CutRef::After(k) => merge.seek(k, SeqNo::ZERO)?,
        CutRef::Last => return Ok(None),
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

/// The beginning of a range tombstone newer than `since` that reaches into the stretch.
fn erased_between(view: &View, stretch: Stretch<'_>, since: SeqNo) -> Option<Vec<u8>> {
    let order = view.version.order;
    let look = |list: &Fragments| {
        let newer = list.list().iter().find(|f| {
            f.newest(SeqNo::MAX).is_some_and(|seq| seq > since)
                && CutRef::overlap(order, stretch, (f.begin.as_ref(), f.end.as_ref()))
        })?;
        Some(newer.begin.as_ref().key().unwrap_or_default().to_vec())
    };
    let memtables = newer_memtables(view, since).find_map(|m| m.ranges().with(look).flatten());
    memtables.or_else(|| {
        let tables = view.version.runs().flat_map(|r| &r.tables).filter(|t| holds_newer(t, since));
        tables.map(|t| t.reader.ranges()).find_map(|list| look(list))
    })
}
