//! Sealing memtables, and the new log segment that goes with it.

use crate::core::{Core, next_file};
use crate::family::Family;
use crate::manifest::Edit;
use crate::wal::Appender;
use perigee_base::Result;
use perigee_base::bug::{self, Bug};
use perigee_base::format::{FileHeader, FileKind};
use perigee_file::log::LogWriter;
use perigee_file::name;
use std::sync::Arc;

/// The log may hold this many times the largest memtable before families that pin old segments are flushed.
const LOG_MEMTABLES: u64 = 4;

/// Seals the memtables that are full, and those that keep too much log alive.
pub fn if_needed(core: &Core, appender: &mut Appender, writing: Vec<Arc<Family>>) -> Result<()> {
    let mut full: Vec<Arc<Family>> =
        writing.into_iter().filter(|f| f.tree.view().active.bytes() >= f.settings.memtable_bytes).collect();
    full.extend(pinning(core, appender));
    if full.is_empty() { Ok(()) } else { seal(core, appender, &full) }
}

/// The families whose active memtable needs the oldest segment, if the log has grown too long.
fn pinning(core: &Core, appender: &Appender) -> Vec<Arc<Family>> {
    let Some(oldest) = appender.older.front() else { return Vec::new() };
    let all = core.families.all();
    let largest = all.iter().map(|f| f.settings.memtable_bytes).max().unwrap_or(0);
    if appender.total_bytes() < largest.saturating_mul(LOG_MEMTABLES) {
        return Vec::new();
    }
    let end = appender.older.get(1).map_or(appender.first_lsn, |s| s.first_lsn);
    let pins = |f: &Arc<Family>| {
        let first = f.tree.view().active.first_seq().0;
        first != 0 && first >= oldest.first_lsn && first < end
    };
    all.into_iter().filter(pins).collect()
}

/// Starts a new segment if the newest holds operations, then seals the families' memtables.
pub fn seal(core: &Core, appender: &mut Appender, families: &[Arc<Family>]) -> Result<()> {
    if appender.has_operations() {
        new_segment(core, appender)?;
    }
    for f in families {
        f.tree.seal();
    }
    core.refresh_load();
    core.signal.ring();
    Ok(())
}

/// File, header synced, directory synced, edit synced: only then may a record go there.
fn new_segment(core: &Core, appender: &mut Appender) -> Result<()> {
    let id = next_file(&core.ids);
    let first = appender.next_lsn;
    let header =
        FileHeader { kind: FileKind::Wal, database: core.database, file: id, a: first, b: core.boot };
    let made = create(core, id, &header).and_then(|writer| {
        let edit =
            Edit { logs_added: vec![(id, first)], durable: Some(core.wal.durable()), ..Edit::default() };
        core.manifest.commit(&core.health, &core.ids, |_| Ok((edit, ())), |()| {})?;
        Ok(writer)
    });
    match made {
        Ok(writer) => {
            core.wal.switch(appender, writer);
            Ok(())
        }
        Err(e) => {
            if core.health.poisoned().is_none() {
                let _ = core.dir.remove(&name::file_name(id, FileKind::Wal));
            }
            Err(e)
        }
    }
}

fn create(core: &Core, id: perigee_base::FileId, header: &FileHeader) -> Result<LogWriter> {
    let writer = LogWriter::create(&*core.dir, &name::file_name(id, FileKind::Wal), header)?;
    writer.file().sync()?;
    if !bug::on(Bug::SkipDirSync) {
        core.sync_dir()?;
    }
    Ok(writer)
}
