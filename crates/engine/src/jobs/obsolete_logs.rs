//! Which segments of the log go with the end of a job, and what becomes of them: removed, or kept
//! for readers. Records of prepared transactions in them are copied to the end of the log first.
//!
//! Invariant: copied and synced, edit, and only then removed.

use crate::commit;
use crate::commit::rotate::RELOG_RATIO;
use crate::core::EngineCore;
use crate::manifest::ManifestEdit;
use crate::wal;
use crate::wal::{Appender, LogSpan, split_retained};
use perigee_base::FileId;
use perigee_base::bug::{self, Bug};
use perigee_base::file_header::FileKind;
use perigee_file::filename;
use perigee_tree::Memtable;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

/// What the end of a job says of the log.
#[derive(Debug, Default)]
pub struct ObsoleteLogs {
    /// Segments that recovery does not need any more.
    pub obsolete: Vec<LogSpan>,
    /// Those of them that stay for readers.
    pub retained: Vec<LogSpan>,
    /// All that go now.
    pub deleted: Vec<LogSpan>,
    /// Where those that stay begin.
    pub segment_starts: Vec<(FileId, u64)>,
    /// Something of them was copied, and is not synced yet.
    pub needs_sync: bool,
}

/// The segments that nobody needs once `flushing` are in tables. In the commit section, so that no
/// operation is between log and memtable.
pub fn find_obsolete_logs(
    core: &EngineCore,
    appender: &mut Appender,
    flushing: &HashSet<*const Memtable>,
) -> ObsoleteLogs {
    if appender.older_segments.is_empty() {
        return ObsoleteLogs::default();
    }
    let mut floor = appender.next_lsn;
    if !bug::is_active(Bug::ReplayForgetsLog) {
        floor = floor.min(core.replay_position.load(SeqCst));
    }
    for f in core.families.all() {
        for m in f.tree.view().memtables() {
            if !m.is_empty() && !flushing.contains(&Arc::as_ptr(m)) {
                floor = floor.min(m.first_seq().0);
            }
        }
    }
    let (floor, carried) = relog_pinned_txns(core, appender, floor);
    let removable = appender.segments_below(floor);
    let stays = |(id, _): &(FileId, u64)| !removable.iter().any(|s| s.id == *id);
    let known = appender.segment_first_lsns().into_iter().filter(stays).collect();
    ObsoleteLogs {
        obsolete: removable,
        segment_starts: known,
        needs_sync: carried,
        ..ObsoleteLogs::default()
    }
}

/// Records of prepared transactions in segments that would go are copied to the end of the log, all
/// of them, or keep their segments. They are copied when the log from the oldest of them on has
/// grown to a few times what they are together: so transactions that nobody decides hold only so
/// much log, and copying is a small part of what is logged. The floor that is left, and whether
/// there are copies, which must be synced.
fn relog_pinned_txns(core: &EngineCore, appender: &mut Appender, mut floor: u64) -> (u64, bool) {
    let mut carried = false;
    if !core.prepared_txns.has_any() || bug::is_active(Bug::PrepareLostWithSegment) {
        return (floor, carried);
    }
    let goes = |lsn| lsn < appender.first_lsn && appender.segment_end_of(lsn) <= floor;
    let going: Vec<_> = core.prepared_txns.all().into_iter().filter(|u| goes(u.lsn())).collect();
    let Some(oldest) = going.iter().map(|u| u.lsn()).min() else { return (floor, carried) };
    let bytes: u64 = going.iter().map(|u| u.log_bytes()).sum();
    if appender.bytes_from(oldest) < bytes.saturating_mul(RELOG_RATIO) {
        return (floor.min(oldest), carried);
    }
    for undecided in going {
        let lsn = undecided.lsn();
        if commit::relog_prepared(core, appender, &undecided).is_ok() {
            carried = true;
        } else {
            floor = floor.min(lsn);
        }
    }
    (floor, carried)
}

/// Removes the files of segments.
pub fn remove_segments(core: &EngineCore, gone: &[LogSpan]) {
    for span in gone {
        // What cannot be removed now is an orphan of the next open.
        let _ = core.dir.remove(&filename::file_name(span.id, FileKind::Wal));
    }
}

/// Gives back what complete segments had taken ahead. What stays is given back by the next open.
pub fn trim_segments(core: &EngineCore, kept: &[LogSpan]) {
    for span in kept {
        let _ = wal::trim_segment(&*core.dir, span);
    }
}

/// What becomes of segments that recovery does not need: some stay for readers.
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
