//! Replays a log that is larger than memory. The log was verified completely and the manifest
//! references it; now it is read again and flushed along the way, with the same flushes and edits
//! as in normal operation. A crash at any time leaves a database whose log starts after what was
//! flushed.
//!
//! With many column families, each flush would write a tiny table for each of them, more tables
//! than memory allows. In that case the log is read several times, each time for as many column
//! families as fit, and each of them gets one table.
//!
//! Memory is bounded by the share of memtables in the memory budget, plus one record.

use super::insert::{ReplayedOps, insert_ops};
use super::new_log::{read_record, reopen_segment};
use crate::catalog::Catalog;
use crate::catalog::family::FamilyState;
use crate::limits::{CATCH_UP_FLUSH_BYTES_MIN, CATCH_UP_LEVEL0_RUNS_MAX};
use crate::log::commit::rotate;
use crate::maintenance::Maintenance;
use crate::maintenance::jobs::{compact, flush};
use crate::resources::ballast;
use perigee_base::{Error, ErrorKind, FamilyId, FileKind, OpIndex, Result, SeqNo};
use perigee_file::filename;
use perigee_file::log::{BatchOps, LogRecord, ops_payload_range};
use perigee_tree::Memtable;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Statistics of the second pass over the log.
#[derive(Clone, Copy, Debug, Default)]
pub struct CatchUpSummary {
    /// Operations put into memtables.
    pub operations: u64,
    /// Peak memory of the memtables, in bytes.
    pub peak_bytes: u64,
}

struct LogCatchUp<'a> {
    maintenance: &'a Maintenance,
    /// The column families, and up to where each had been flushed when the log was verified.
    families: BTreeMap<FamilyId, (Arc<FamilyState>, SeqNo)>,
    /// Segments from here on are kept: a later group needs operations in them.
    pinned_from: SeqNo,
    summary: CatchUpSummary,
    /// No disk space for tables: the rest stays in memory, since otherwise the database could not
    /// be opened at all.
    is_full: bool,
}

/// Reads the log again, once or once per group of column families, and inserts what is not in
/// tables into memtables, which are flushed when they exceed their share. `span`: from the first
/// operation that may not be in tables. `bytes`: the memory needed for the operations of each
/// column family.
pub fn catch_up_log(
    maintenance: &Maintenance,
    span: Range<SeqNo>,
    flushed: &BTreeMap<FamilyId, SeqNo>,
    bytes: &BTreeMap<FamilyId, u64>,
) -> Result<CatchUpSummary> {
    maintenance.log.set_replay_position(span.start);
    let with_contents = |(id, bytes): (&FamilyId, &u64)| (bytes + Memtable::CONTENTS_BYTES, *id);
    let mut rest: Vec<_> = bytes.iter().map(with_contents).collect();
    rest.sort_unstable_by(|a, b| b.cmp(a));
    let all_at_once =
        rest.len() as u64 * CATCH_UP_FLUSH_BYTES_MIN <= maintenance.resources.memtable_share() / 2;
    let (mut done, mut is_full) = (CatchUpSummary::default(), false);
    loop {
        // Memtables are sealed at half of their share, and take up to half as much again as their
        // operations, because they allocate in steps of doubling size. A larger group would be
        // flushed before all of it is read, and its column families would get two tables each. The
        // share shrinks with each group, because the tables of the group take memory.
        let limit = if all_at_once { u64::MAX } else { maintenance.resources.memtable_share() / 3 };
        let group = take_group(&mut rest, limit);
        let is_last = rest.is_empty();
        let of = |id: &FamilyId| {
            Some((*id, (maintenance.catalog.families().by_id(*id)?, *flushed.get(id)?)))
        };
        let families = group.iter().filter_map(of).collect();
        let held_from = if is_last { SeqNo::MAX } else { span.start };
        let mut c =
            LogCatchUp { maintenance, families, pinned_from: held_from, summary: done, is_full };
        c.read_log(&span)?;
        check_slow!(
            maintenance.log.replay_position() <= span.start || is_last,
            "the log is kept until the last group has read it",
            maintenance.log.replay_position(),
            span
        );
        if !is_last {
            c.seal_group()?;
        }
        (done, is_full) = (c.summary, c.is_full);
        if is_last {
            break;
        }
    }
    maintenance.log.set_replay_position(SeqNo::MAX);
    Ok(done)
}

/// Removes from the end of `rest` the column families of the next group, and returns them. The
/// memtables of a group hold no more than `limit` bytes; a column family larger than the limit is a
/// group of its own.
fn take_group(rest: &mut Vec<(u64, FamilyId)>, limit: u64) -> Vec<FamilyId> {
    let (mut group, mut sum) = (Vec::new(), 0u64);
    while let Some((bytes, id)) = rest.last().copied() {
        if sum > 0 && sum.saturating_add(bytes) > limit {
            break;
        }
        sum = sum.saturating_add(bytes);
        group.push(id);
        rest.pop();
    }
    group
}

impl LogCatchUp<'_> {
    fn read_log(&mut self, span: &Range<SeqNo>) -> Result<()> {
        let segments = self.maintenance.log.commit_section().segment_first_lsns();
        let ends = segments.iter().skip(1).map(|(_, first)| *first).chain([span.end]);
        for ((id, first), end) in segments.iter().zip(ends) {
            let end = end.min(span.end);
            if *first < end && end > span.start {
                self.replay_segment(*id, *first..end)?;
            }
        }
        Ok(())
    }

    /// Seals and flushes the memtables of this group to free memory for the next.
    fn seal_group(&mut self) -> Result<()> {
        for (family, _) in self.families.values() {
            family.tree.seal_memtable();
        }
        self.maintenance.catalog.refresh_load();
        self.flush_over_share()
    }

    fn replay_segment(&mut self, id: perigee_base::FileId, lsns: Range<SeqNo>) -> Result<()> {
        let file = filename::file_name(id, FileKind::Wal);
        let mut log = reopen_segment(
            &*self.maintenance.runtime.dir,
            self.maintenance.runtime.identity.database,
            id,
            lsns.start,
        )?;
        let mut next = lsns.start;
        while next < lsns.end {
            let record = read_record(&mut log, &file)?;
            let offset = record.offset;
            next = record.header.end_seq();
            self.replay_record(record).map_err(|e| e.at(&file, offset))?;
            // Operations that are not replayed yet keep their segment.
            self.maintenance.log.set_replay_position(next.min(self.pinned_from));
            self.flush_over_share()?;
        }
        check!(
            next == lsns.end,
            "a replayed segment ends where its successor begins",
            id,
            next,
            lsns
        );
        Ok(())
    }

    fn replay_record(&mut self, record: LogRecord) -> Result<()> {
        let seqs = record.header.first_seq()..record.header.end_seq();
        let at = ops_payload_range(record.header.kind, &record.payload)?;
        let mut parts = ReplayedOps::new();
        for (n, op) in BatchOps::new(&record.payload, at.unwrap_or(0..0)).enumerate() {
            let op = op?;
            let index = OpIndex(n as u64);
            // Dropped column families and operations that only reserve a sequence number were
            // checked when the log was verified.
            if self
                .families
                .get(&op.family)
                .is_some_and(|(_, flushed)| seqs.start.of_op(index) > *flushed)
            {
                parts.entry(op.family).or_default().push((op, index));
            }
        }
        check_slow!(
            parts
                .keys()
                .filter_map(|id| self.families.get(id))
                .all(|(family, _)| { family.tree.active().last_seq() < seqs.start }),
            "each group of column families is replayed once, in the order of the log",
            seqs
        );
        let buffer = Arc::new(record.payload);
        let family = |id: FamilyId| self.families.get(&id).map(|(f, _)| Arc::clone(f));
        let grown = insert_ops(
            &buffer,
            seqs,
            &parts,
            &family,
            self.maintenance.resources.shared_batches(),
            true,
        )?;
        self.maintenance.resources.add_memtable_bytes(grown);
        self.summary.operations += parts.values().map(|ops| ops.len() as u64).sum::<u64>();
        self.summary.peak_bytes =
            self.summary.peak_bytes.max(self.maintenance.resources.total_memtable_bytes());
        for (family, _) in parts.keys().filter_map(|id| self.families.get(id)) {
            if family.is_memtable_full() {
                family.tree.seal_memtable();
            }
        }
        Ok(())
    }

    /// Flushes memtables that are full, and more while all together exceed their share.
    fn flush_over_share(&mut self) -> Result<()> {
        let maintenance = self.maintenance;
        if self.is_full {
            return Ok(());
        }
        let over_budget = rotate::families_over_budget(&maintenance.catalog);
        for family in &over_budget {
            family.tree.seal_memtable();
        }
        if over_budget.is_empty() && !maintenance.resources.has_sealed_memtables() {
            return Ok(());
        }
        match flush_and_compact(maintenance) {
            Err(e) if e.kind() == ErrorKind::NoSpace => {
                let retried = if ballast::remove(&*maintenance.runtime.dir)? {
                    flush_and_compact(maintenance)
                } else {
                    Err(e)
                };
                self.is_full = is_no_space(&retried);
                if self.is_full { Ok(()) } else { retried }
            }
            done => done,
        }
    }
}

fn is_no_space(done: &Result<()>) -> bool {
    done.as_ref().is_err_and(|e: &Error| e.kind() == ErrorKind::NoSpace)
}

/// Flushes all sealed memtables, and compacts where many level-0 runs have accumulated.
fn flush_and_compact(maintenance: &Maintenance) -> Result<()> {
    maintenance.resources.reset_seal_check();
    maintenance.catalog.refresh_load();
    while flush::flush_oldest(maintenance)? {
        finish_job(&maintenance.catalog);
    }
    // A failed compaction is retried and reported later, by the compaction thread.
    while maintenance.resources.level0_runs_max() >= CATCH_UP_LEVEL0_RUNS_MAX
        && compact::compact_most_urgent(maintenance).is_ok_and(|done| done)
    {
        finish_job(&maintenance.catalog);
    }
    Ok(())
}

fn finish_job(catalog: &Catalog) {
    catalog.release_job_memory();
    // A file that cannot be removed now is an orphan, removed at the next open.
    let _ = catalog.delete_unreferenced();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_small_families_are_replayed_group_by_group() {
        let of = |bytes: &[u64], limit| {
            let all = bytes.iter().enumerate().map(|(i, bytes)| (*bytes, FamilyId(i as u32)));
            let (mut rest, mut groups) = (all.collect::<Vec<_>>(), Vec::new());
            rest.sort_unstable_by(|a, b| b.cmp(a));
            while !rest.is_empty() {
                let group = take_group(&mut rest, limit);
                groups.push(group.iter().map(|id| id.0).collect::<Vec<u32>>());
            }
            groups
        };
        assert_eq!(of(&[u64::MAX, 5, u64::MAX], u64::MAX), [[1, 0, 2]]);
        assert_eq!(of(&[50, 5, 90, 7], 50), [vec![1, 3], vec![0], vec![2]]);
        assert_eq!(of(&[3, 4, 5, 6], 9), [vec![0, 1], vec![2], vec![3]]);
        assert_eq!(take_group(&mut Vec::new(), 9), []);
    }
}
