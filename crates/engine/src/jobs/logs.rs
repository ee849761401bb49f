//! Which segments of the log go with the end of a job, and what becomes of them: removed, or kept for readers. Records of prepared
//! transactions in them are copied to the end of the log first.
//!
//! Invariant: copied and synced, edit, and only then removed.

use crate::commit;
use crate::commit::rotate::CARRY_AT;
use crate::core::Core;
use crate::manifest::Edit;
use crate::wal;
use crate::wal::{Appender, LogSpan, keep};
use perigee_base::FileId;
use perigee_base::bug::{self, Bug};
use perigee_base::format::FileKind;
use perigee_file::name;
use perigee_tree::Memtable;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

/// What the end of a job says of the log.
#[derive(Debug, Default)]
pub struct Logs {
    /// Segments that recovery does not need any more.
    pub removable: Vec<LogSpan>,
    /// Those of them that stay for readers.
    pub kept: Vec<LogSpan>,
    /// All that go now.
    pub gone: Vec<LogSpan>,
    /// Where those that stay begin.
    pub known: Vec<(FileId, u64)>,
    /// Something of them was copied, and is not synced yet.
    pub carried: bool,
}

/// The segments that nobody needs once `flushing` are in tables. In the commit section, so that no operation is between
/// log and memtable.
pub fn removable(core: &Core, appender: &mut Appender, flushing: &HashSet<*const Memtable>) -> Logs {
    if appender.older.is_empty() {
        return Logs::default();
    }
    let mut floor = appender.next_lsn;
    if !bug::on(Bug::ReplayForgetsLog) {
        floor = floor.min(core.unreplayed.load(SeqCst));
    }
    for f in core.families.all() {
        for m in f.tree.view().memtables() {
            if !m.is_empty() && !flushing.contains(&Arc::as_ptr(m)) {
                floor = floor.min(m.first_seq().0);
            }
        }
    }
    let (floor, carried) = carry_prepared(core, appender, floor);
    let removable = appender.below(floor);
    let stays = |(id, _): &(FileId, u64)| !removable.iter().any(|s| s.id == *id);
    let known = appender.firsts().into_iter().filter(stays).collect();
    Logs { removable, known, carried, ..Logs::default() }
}

/// Records of prepared transactions in segments that would go are copied to the end of the log, all of them, or keep their segments. They
/// are copied when the log from the oldest of them on has grown to a few times what they are together: so transactions that nobody
/// decides hold only so much log, and copying is a small part of what is logged. The floor that is left, and whether there are
/// copies, which must be synced.
fn carry_prepared(core: &Core, appender: &mut Appender, mut floor: u64) -> (u64, bool) {
    let mut carried = false;
    if !core.prepared.any() || bug::on(Bug::PrepareLostWithSegment) {
        return (floor, carried);
    }
    let goes = |lsn| lsn < appender.first_lsn && appender.end_of_segment_with(lsn) <= floor;
    let going: Vec<_> = core.prepared.all().into_iter().filter(|u| goes(u.lsn())).collect();
    let Some(oldest) = going.iter().map(|u| u.lsn()).min() else { return (floor, carried) };
    let bytes: u64 = going.iter().map(|u| u.log_bytes()).sum();
    if appender.bytes_from(oldest) < bytes.saturating_mul(CARRY_AT) {
        return (floor.min(oldest), carried);
    }
    for undecided in going {
        let lsn = undecided.lsn();
        if commit::carry(core, appender, &undecided).is_ok() {
            carried = true;
        } else {
            floor = floor.min(lsn);
        }
    }
    (floor, carried)
}

/// Removes the files of segments.
pub fn remove(core: &Core, gone: &[LogSpan]) {
    for span in gone {
        // What cannot be removed now is an orphan of the next open.
        let _ = core.dir.remove(&name::file_name(span.id, FileKind::Wal));
    }
}

/// Gives back what complete segments had taken ahead. What stays is given back by the next open.
pub fn trim(core: &Core, kept: &[LogSpan]) {
    for span in kept {
        let _ = wal::trim(&*core.dir, span);
    }
}

/// What becomes of segments that recovery does not need: some stay for readers.
pub fn retain(logs: &mut Logs, kept: &[LogSpan], limit: u64, edit: &mut Edit) {
    let (stay, gone) = keep(kept, &logs.removable, limit);
    let is_in = |list: &[LogSpan], s: &LogSpan| list.iter().any(|other| other.id == s.id);
    edit.logs_removed = logs.removable.iter().map(|s| s.id).collect();
    edit.logs_retained = stay.iter().filter(|s| !is_in(kept, s)).copied().collect();
    edit.retained_removed = gone.iter().filter(|s| is_in(kept, s)).map(|s| s.id).collect();
    (logs.kept, logs.gone) = (edit.logs_retained.clone(), gone);
}
