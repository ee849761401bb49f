//! Applies an edit to a version. Fails rather than build a version that breaks an invariant.

use super::edit::{TableMeta, VersionEdit, VlogMeta, expired_entries_min, is_tombstone_dense};
use super::run::{Run, Table, Vlog};
use super::{Version, check};
use perigee_base::bug::{self, Bug};
use perigee_base::{Error, FileId, LevelNo, Result, Tombstones, limits};
use std::cmp::Ordering;
use std::collections::HashSet;
use std::sync::Arc;

/// Opens the files that an edit adds.
pub trait FileOpener {
    /// Opens a table.
    fn open_table(&self, meta: &TableMeta) -> Result<Arc<Table>>;
    /// Opens a value log.
    fn open_vlog(&self, meta: &VlogMeta) -> Result<Arc<Vlog>>;
}

pub(super) fn apply_edit(
    old: &Version,
    edit: &VersionEdit,
    open: &dyn FileOpener,
) -> Result<Version> {
    let mut new = Version { cache: Default::default(), ..old.clone() };
    remove_tables(&mut new, edit)?;
    for added in &edit.added {
        if added.level.index() >= limits::LEVELS {
            return Err(Error::corruption("the version edit names a level that does not exist")
                .expected("0 to 6", added.level));
        }
        let existing =
            old.tables().find(|(_, _, t)| t.meta == added.meta).map(|(_, _, t)| Arc::clone(t));
        let table = match existing {
            Some(moved) => moved,
            None => open.open_table(&added.meta)?,
        };
        if table.reader.comparator() != new.comparator {
            return Err(Error::corruption(format!(
                "table {} is sorted by another comparator",
                added.meta.id
            ))
            .expected(new.comparator.name(), table.reader.comparator().name()));
        }
        place_table(&mut new, added.level, added.run, table);
    }
    for meta in &edit.vlogs_added {
        if new.vlogs.insert(meta.id, open.open_vlog(meta)?).is_some() {
            return Err(Error::corruption(format!(
                "the version edit adds value log {} twice",
                meta.id
            )));
        }
    }
    for id in &edit.vlogs_removed {
        if new.vlogs.remove(id).is_none() {
            return Err(Error::corruption(format!(
                "the version edit removes value log {id}, which does not exist"
            )));
        }
    }
    sort_runs(&mut new);
    let has_ranges = new.tables().any(|(_, _, t)| t.meta.summary.ranges.is_some());
    new.has_range_tombstones = has_ranges;
    let dense = |t: &Table| {
        is_tombstone_dense(t.meta.summary.entries, Tombstones(t.meta.summary.tombstones))
    };
    let is_dense = new.tables().any(|(_, _, t)| dense(t));
    new.has_dense_tombstones = is_dense;
    let due = |t: &Table| {
        t.reader.expiry_histogram().nth_expiry_ms(expired_entries_min(t.meta.summary.entries))
    };
    let expires_ms = new.tables().filter_map(|(_, _, t)| due(t)).min().unwrap_or(u64::MAX);
    new.expiry_compaction_ms = expires_ms;
    check::check_invariants(&new)?;
    check!(
        new.levels.len() == limits::LEVELS
            && new.levels.iter().all(|runs| runs.windows(2).all(|w| w[0].id > w[1].id)),
        "the runs of a level are newest first",
        edit
    );
    check!(new.runs().all(|run| !run.tables.is_empty()), "a run has at least one table", edit);
    check_slow!(
        edit.removed.iter().all(|(level, id)| {
            edit.added.iter().any(|added| added.meta.id == *id)
                || !new.tables().any(|(l, _, t)| (l, t.meta.id) == (*level, *id))
        }),
        "a removed table is gone, or was moved",
        edit
    );
    Ok(new)
}

fn remove_tables(new: &mut Version, edit: &VersionEdit) -> Result<()> {
    let removed: HashSet<(LevelNo, FileId)> = edit.removed.iter().copied().collect();
    let mut found = 0;
    for (level, runs) in new.levels.iter_mut().enumerate() {
        let level = LevelNo(level as u8);
        for run in runs.iter_mut() {
            if run.tables.iter().any(|t| removed.contains(&(level, t.meta.id))) {
                let kept: Vec<_> = run
                    .tables
                    .iter()
                    .filter(|t| !removed.contains(&(level, t.meta.id)))
                    .cloned()
                    .collect();
                found += run.tables.len() - kept.len();
                *run = Arc::new(Run::new(run.id, kept, new.comparator));
            }
        }
        runs.retain(|r| !r.tables.is_empty());
    }
    if found != removed.len() {
        return Err(Error::corruption("the version edit removes a table that does not exist")
            .expected(removed.len(), found));
    }
    Ok(())
}

fn place_table(new: &mut Version, level: LevelNo, run: perigee_base::RunId, table: Arc<Table>) {
    let runs = &mut new.levels[level.index()];
    match runs.iter_mut().find(|r| r.id == run) {
        Some(r) => Arc::make_mut(r).push(new.comparator, table),
        None => runs.push(Arc::new(Run::new(run, vec![table], new.comparator))),
    }
}

fn sort_runs(new: &mut Version) {
    let comparator = new.comparator;
    for runs in &mut new.levels {
        runs.sort_by_key(|r| std::cmp::Reverse(r.id));
        if bug::is_active(Bug::WrongRunOrder) {
            runs.reverse();
        }
        for run in runs {
            let cmp = |a: &Arc<Table>, b: &Arc<Table>| {
                a.meta.summary.begin(comparator).cmp(comparator, b.meta.summary.begin(comparator))
            };
            let sorted = run.tables.windows(2).all(|w| cmp(&w[0], &w[1]) == Ordering::Less);
            if !sorted {
                Arc::make_mut(run).sort(comparator);
            }
        }
    }
}
