//! Determines which log segments become obsolete at the end of a job, and removes them or retains
//! them for readers. Records of prepared transactions in them are re-logged first.
//!
//! Invariant: re-log and sync, then the edit, then the removal. The prepare record of a transaction
//! that was decided is removed like any other, but only if the decision is durable: without both,
//! the transaction would be lost.

use crate::catalog::Catalog;
use crate::catalog::install::{Installed, LogChanges};
use crate::catalog::retained_logs::LogSpan;
use crate::catalog::retained_logs::trim_segment;
use crate::log::Log;
use crate::log::commit;
use crate::log::commit::rotate::RELOG_RATIO;
use crate::log::wal::Appender;
use crate::runtime::Runtime;
use perigee_base::bug::Bug;
use perigee_base::{FileId, FileKind, SeqNo, bug};
use perigee_file::filename;
use perigee_tree::Memtable;
use std::collections::HashSet;
use std::sync::Arc;

/// The changes of the log at the end of a job.
#[derive(Debug, Default)]
pub struct ObsoleteLogs {
    /// The segments that recovery no longer needs, and the first LSNs of the others.
    pub changes: LogChanges,
    /// The log must be synced before the edit: it contains re-logged records, or a decision about a
    /// prepared transaction, that are not synced yet.
    pub needs_sync: bool,
}

/// Finds the segments that are obsolete once the `flushing` memtables are in tables. Called in the
/// commit section, so that no operation is between log and memtable.
pub fn find_obsolete_logs(
    log: &Log,
    appender: &mut Appender,
    flushing: &HashSet<*const Memtable>,
) -> ObsoleteLogs {
    if appender.older_segments.is_empty() {
        return ObsoleteLogs::default();
    }
    let mut oldest_needed = appender.next_lsn;
    if !bug::is_active(Bug::ReplayRemovesLogEarly) {
        oldest_needed = oldest_needed.min(log.replay_position());
    }
    for f in log.catalog.families().all() {
        for m in f.tree.view().memtables() {
            if !m.is_empty() && !flushing.contains(&Arc::as_ptr(m)) {
                oldest_needed = oldest_needed.min(m.first_seq());
            }
        }
    }
    let (oldest_needed, relogged) = relog_pinned_txns(log, appender, oldest_needed);
    let removable = appender.segments_below(oldest_needed);
    check_slow!(
        removable.last().is_none_or(|newest| !is_needed(log, newest.end_lsn, flushing)),
        "an obsolete segment has no operation that recovery needs",
        removable,
        oldest_needed
    );
    let stays = |(id, _): &(FileId, SeqNo)| !removable.iter().any(|s| s.id == *id);
    let known = appender.segment_first_lsns().into_iter().filter(stays).collect();
    let changes = LogChanges {
        added: None,
        segment_starts: known,
        obsolete: removable,
        retention_bytes: log.runtime.settings.log_retention,
    };
    let is_undurable = log.txns.prepared_txns().last_decision() > log.durable_seq();
    let needs_sync = relogged || seeded!(DecisionLostWithSegment, is_undurable, false);
    ObsoleteLogs { changes, needs_sync }
}

/// Returns true if a memtable that is not being flushed, a prepared transaction or the replay needs
/// the log before `end`.
fn is_needed(log: &Log, end: SeqNo, flushing: &HashSet<*const Memtable>) -> bool {
    let in_memtable = log.catalog.families().all().iter().any(|f| {
        let view = f.tree.view();
        let waits = |m: &&Arc<Memtable>| !m.is_empty() && !flushing.contains(&Arc::as_ptr(m));
        view.memtables().filter(waits).any(|m| m.first_seq() < end)
    });
    let is_prepared = log.txns.prepared_txns().oldest_lsn().is_some_and(|lsn| lsn < end);
    in_memtable || is_prepared || log.replay_position() < end
}

/// Re-logs the records of all prepared transactions in segments that would become obsolete, or
/// keeps those segments. Records are re-logged when the log from the oldest of them on has grown to
/// a multiple of their total size: so prepared transactions that are never decided retain a bounded
/// amount of log, and re-logging is a small part of what is logged. Returns the resulting oldest
/// LSN to keep, and whether records were re-logged, which requires a sync.
fn relog_pinned_txns(
    log: &Log,
    appender: &mut Appender,
    mut oldest_needed: SeqNo,
) -> (SeqNo, bool) {
    let mut relogged = false;
    if !log.txns.prepared_txns().has_any() || bug::is_active(Bug::PrepareLostWithSegment) {
        return (oldest_needed, relogged);
    }
    let is_obsolete =
        |lsn| lsn < appender.first_lsn && appender.segment_end_of(lsn) <= oldest_needed;
    let pinned: Vec<_> = log
        .txns
        .prepared_txns()
        .all_logged()
        .into_iter()
        .filter(|u| is_obsolete(u.lsn()))
        .collect();
    let Some(oldest) = pinned.iter().map(|u| u.lsn()).min() else {
        return (oldest_needed, relogged);
    };
    let bytes: u64 = pinned.iter().map(|u| u.log_bytes()).sum();
    if appender.bytes_from(oldest) < bytes.saturating_mul(RELOG_RATIO) {
        return (oldest_needed.min(oldest), relogged);
    }
    for prepared in pinned {
        let lsn = prepared.lsn();
        if commit::relog_prepared(log, appender, &prepared).is_ok() {
            relogged = true;
        } else {
            oldest_needed = oldest_needed.min(lsn);
        }
    }
    (oldest_needed, relogged)
}

/// Removes the files of the segments.
pub fn remove_segments(runtime: &Runtime, gone: &[LogSpan]) {
    for span in gone {
        // A file that cannot be removed now is an orphan, removed at the next open.
        let _ = runtime.dir.remove(&filename::file_name(span.id, FileKind::Wal));
    }
}

/// Removes the files of the segments that an installation has made obsolete, and releases the
/// preallocated space of those that are retained for readers. Failures are left to the next open.
pub fn remove_installed(catalog: &Catalog, installed: &Installed) {
    check_slow!(
        !is_any_listed(catalog, &installed.deleted_logs),
        "a log segment is removed only after the manifest edit that makes it obsolete",
        installed.deleted_logs
    );
    remove_segments(&catalog.runtime, &installed.deleted_logs);
    for span in &installed.retained_logs {
        let _ = trim_segment(&*catalog.runtime.dir, span);
    }
}

fn is_any_listed(catalog: &Catalog, spans: &[LogSpan]) -> bool {
    let state = catalog.recorded_files();
    let is_listed = |span: &LogSpan| {
        state.logs.iter().any(|(id, _)| *id == span.id)
            || state.retained.iter().any(|s| s.id == span.id)
    };
    spans.iter().any(is_listed)
}
