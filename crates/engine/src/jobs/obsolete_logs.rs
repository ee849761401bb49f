//! Determines which log segments become obsolete at the end of a job, and removes them or retains
//! them for readers. Records of prepared transactions in them are re-logged first.
//!
//! Invariant: re-log and sync, then the edit, then the removal.

use crate::commit;
use crate::commit::rotate::RELOG_RATIO;
use crate::core::EngineCore;
use crate::manifest::ManifestEdit;
use crate::wal;
use crate::wal::{Appender, LogSpan, split_retained};
use perigee_base::bug::{self, Bug};
use perigee_base::file_header::FileKind;
use perigee_base::{FileId, SeqNo};
use perigee_file::filename;
use perigee_tree::Memtable;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

/// The changes to the log at the end of a job.
#[derive(Debug, Default)]
pub struct ObsoleteLogs {
    /// Segments that recovery no longer needs.
    pub obsolete: Vec<LogSpan>,
    /// Those of them that are retained for readers.
    pub retained: Vec<LogSpan>,
    /// Segments to delete now, including formerly retained ones.
    pub deleted: Vec<LogSpan>,
    /// The first LSNs of the segments that stay.
    pub segment_starts: Vec<(FileId, SeqNo)>,
    /// Records were re-logged and are not synced yet.
    pub needs_sync: bool,
}

/// Finds the segments that are obsolete once the `flushing` memtables are in tables. Called in the
/// commit section, so that no operation is between log and memtable.
pub fn find_obsolete_logs(
    core: &EngineCore,
    appender: &mut Appender,
    flushing: &HashSet<*const Memtable>,
) -> ObsoleteLogs {
    if appender.older_segments.is_empty() {
        return ObsoleteLogs::default();
    }
    let mut oldest_needed = appender.next_lsn;
    if !bug::is_active(Bug::ReplayRemovesLogEarly) {
        oldest_needed = oldest_needed.min(core.replay_position.load(SeqCst));
    }
    for f in core.families.all() {
        for m in f.tree.view().memtables() {
            if !m.is_empty() && !flushing.contains(&Arc::as_ptr(m)) {
                oldest_needed = oldest_needed.min(m.first_seq());
            }
        }
    }
    let (oldest_needed, relogged) = relog_pinned_txns(core, appender, oldest_needed);
    let removable = appender.segments_below(oldest_needed);
    let stays = |(id, _): &(FileId, SeqNo)| !removable.iter().any(|s| s.id == *id);
    let known = appender.segment_first_lsns().into_iter().filter(stays).collect();
    ObsoleteLogs {
        obsolete: removable,
        segment_starts: known,
        needs_sync: relogged,
        ..ObsoleteLogs::default()
    }
}

/// Re-logs the records of all prepared transactions in segments that would become obsolete, or
/// keeps those segments. Records are re-logged when the log from the oldest of them on has grown to
/// a multiple of their total size: so prepared transactions that are never decided retain a bounded
/// amount of log, and re-logging is a small part of what is logged. Returns the resulting oldest
/// LSN to keep, and whether records were re-logged, which requires a sync.
fn relog_pinned_txns(
    core: &EngineCore,
    appender: &mut Appender,
    mut oldest_needed: SeqNo,
) -> (SeqNo, bool) {
    let mut relogged = false;
    if !core.prepared_txns.has_any() || bug::is_active(Bug::PrepareLostWithSegment) {
        return (oldest_needed, relogged);
    }
    let is_obsolete =
        |lsn| lsn < appender.first_lsn && appender.segment_end_of(lsn) <= oldest_needed;
    let pinned: Vec<_> =
        core.prepared_txns.all().into_iter().filter(|u| is_obsolete(u.lsn())).collect();
    let Some(oldest) = pinned.iter().map(|u| u.lsn()).min() else {
        return (oldest_needed, relogged);
    };
    let bytes: u64 = pinned.iter().map(|u| u.log_bytes()).sum();
    if appender.bytes_from(oldest) < bytes.saturating_mul(RELOG_RATIO) {
        return (oldest_needed.min(oldest), relogged);
    }
    for prepared in pinned {
        let lsn = prepared.lsn();
        if commit::relog_prepared(core, appender, &prepared).is_ok() {
            relogged = true;
        } else {
            oldest_needed = oldest_needed.min(lsn);
        }
    }
    (oldest_needed, relogged)
}

/// Removes the files of the segments.
pub fn remove_segments(core: &EngineCore, gone: &[LogSpan]) {
    for span in gone {
        // A file that cannot be removed now is an orphan, removed at the next open.
        let _ = core.dir.remove(&filename::file_name(span.id, FileKind::Wal));
    }
}

/// Releases the preallocated space of complete segments. Failures are left to the next open.
pub fn trim_segments(core: &EngineCore, kept: &[LogSpan]) {
    for span in kept {
        let _ = wal::trim_segment(&*core.dir, span);
    }
}

/// Decides which obsolete segments are retained for readers, and adds the changes to `edit`.
pub fn retain_segments(
    logs: &mut ObsoleteLogs,
    kept: &[LogSpan],
    limit: u64,
    edit: &mut ManifestEdit,
) {
    let (stay, gone) = split_retained(kept, &logs.obsolete, limit);
    let is_in = |list: &[LogSpan], s: &LogSpan| list.iter().any(|other| other.id == s.id);
    edit.logs_removed = logs.obsolete.iter().map(|s| s.id).collect();
    edit.logs_retained = stay.iter().filter(|s| !is_in(kept, s)).copied().collect();
    edit.retained_removed = gone.iter().filter(|s| is_in(kept, s)).map(|s| s.id).collect();
    (logs.retained, logs.deleted) = (edit.logs_retained.clone(), gone);
}
