//! A new segment of the log: the one that a background thread has made meanwhile, or, if there is none, one that is made now.
//!
//! Invariant: file, header synced, directory synced, edit synced; only then may a record go there. One that is made ahead does not
//! know where it begins: its header and the manifest say 0, and the next edit that has to do with segments says it.

use crate::core::{Core, next_file};
use crate::events::Event;
use crate::manifest::Edit;
use crate::wal::Appender;
use perigee_base::bug::{self, Bug};
use perigee_base::format::{FileHeader, FileKind};
use perigee_base::{ErrorKind, FileId, Result};
use perigee_file::log::LogWriter;
use perigee_file::name;

/// Space for a segment is taken ahead only where this many times as much is free.
const FREE_TIMES: u64 = 8;

/// Begins a new segment, in the commit section.
pub fn begin(core: &Core, appender: &mut Appender) -> Result<()> {
    let mut spare = core.wal.spare().hold();
    let writer = match spare.take() {
        Some(writer) => writer,
        None => make(core, appender.next_lsn, &appender.firsts(), 0)?,
    };
    appender.switch(writer);
    Ok(())
}

/// Asks for the next one when it is time, in the commit section.
pub fn ask(core: &Core, appender: &mut Appender) {
    if let Some(bytes) = appender.next_due() {
        core.wal.spare().ask(bytes);
        core.signal.ring();
    }
}

/// Makes the segment that was asked for, on a background thread. If that fails, a rotation tries again and says why.
pub fn prepare(core: &Core) -> Result<()> {
    let Some(bytes) = core.wal.spare().asked() else { return Ok(()) };
    let mut spare = core.wal.spare().hold();
    if spare.is_some() {
        return Ok(());
    }
    let free = core.dir.free_space().unwrap_or(0).saturating_sub(2 * core.settings.min_free_space);
    match make(core, 0, &[], if free / FREE_TIMES >= bytes { bytes } else { 0 }) {
        Ok(writer) => {
            *spare = Some(writer);
            Ok(())
        }
        Err(e) if core.health.poisoned().is_some() => Err(e),
        Err(e) => {
            core.tell(&Event::Failed { what: "making a log segment ahead", error: &e });
            Ok(())
        }
    }
}

/// On a full disk: gives back what the log has taken ahead; whether that was anything.
pub fn give_back(core: &Core) -> bool {
    let mut appender = core.wal.appender();
    let mut spare = core.wal.spare().hold();
    let mut given = appender.writer.has_ahead();
    let trimmed = appender.writer.trim();
    if let Some(writer) = spare.as_mut() {
        given |= writer.has_ahead();
        // What stays is taken back by the next open.
        let _ = writer.trim();
    }
    for older in &appender.older {
        let name = name::file_name(older.id, FileKind::Wal);
        if core.dir.file_len(&name).ok().flatten().is_some_and(|len| len > older.bytes) {
            given |= core.dir.append_to(&name).and_then(|file| file.truncate(older.bytes)).is_ok();
        }
    }
    given && trimmed.is_ok()
}

/// Makes a segment that begins at `first` (0: not known yet), with so many bytes allocated. The edit also says where those that
/// are `known` begin, if the manifest does not know.
fn make(core: &Core, first: u64, known: &[(FileId, u64)], bytes: u64) -> Result<LogWriter> {
    let id = next_file(&core.ids);
    let header =
        FileHeader { kind: FileKind::Wal, database: core.database, file: id, a: first, b: core.boot };
    let made = create(core, id, &header, bytes).and_then(|writer| {
        let prepare = |catalog: &crate::manifest::Catalog| {
            let mut logs_added = catalog.logs_begun(known);
            logs_added.push((id, first));
            Ok((Edit { logs_added, durable: Some(core.wal.durable()), ..Edit::default() }, ()))
        };
        core.manifest.commit(&core.health, &core.ids, prepare, |()| {})?;
        Ok(writer)
    });
    made.inspect_err(|e| {
        if core.health.poisoned().is_none() && e.kind() != ErrorKind::AlreadyExists {
            let _ = core.dir.remove(&name::file_name(id, FileKind::Wal));
        }
    })
}

fn create(core: &Core, id: FileId, header: &FileHeader, bytes: u64) -> Result<LogWriter> {
    let mut writer = LogWriter::create(&*core.dir, &name::file_name(id, FileKind::Wal), header)?;
    writer.allocate_ahead(bytes)?;
    writer.file().sync()?;
    if !bug::on(Bug::SkipDirSync) {
        core.sync_dir()?;
    }
    Ok(writer)
}
