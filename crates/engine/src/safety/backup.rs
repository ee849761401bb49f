//! Makes a generation: files that the backup does not hold yet are copied, each compared with its recorded checksum on the
//! way; log and manifest are written anew; the record comes last. Until it has its name there is no new generation, and
//! the earlier ones are never touched.

use super::copy;
use super::picture::Picture;
use super::record::{Generation, Stored};
use super::store::{INCOMING, Store, generation_name, stored_name};
use crate::core::Core;
use perigee_base::format::FileKind;
use perigee_base::{ErrorKind, FileId, Result};
use perigee_file::name;
use std::path::Path;

/// What was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backed {
    /// The new generation.
    pub generation: u64,
    /// The last operation in it.
    pub sequence: u64,
    /// Files and bytes that were copied.
    pub new: (u64, u64),
    /// Files and bytes that an earlier generation had brought.
    pub shared: (u64, u64),
}

/// Makes a generation in the backup directory `path`; `progress` is told (bytes done, bytes in all).
pub fn backup(core: &Core, path: &Path, reread: bool, progress: &mut dyn FnMut(u64, u64)) -> Result<Backed> {
    core.health.check_readable_log()?;
    let (store, _lock) = Store::open_to_write(&core.env, path)?;
    store.clear_incoming()?;
    let number = store.numbers()?.last().map_or(1, |n| n + 1);
    let mut picture = Picture::take(core)?;
    let database = picture.database();
    let mut out = Backed { generation: number, sequence: picture.last, ..Backed::default() };
    let mut files = Vec::new();
    let data = picture.files();
    let total = data.iter().map(|f| f.bytes).sum();
    let mut done = 0;
    for f in data {
        core.health.check_open()?;
        let file = Stored { kind: f.kind, id: f.id, bytes: f.bytes, checksum: f.checksum };
        let count = if store.holds(database, &file)? { &mut out.shared } else { &mut out.new };
        (count.0, count.1) = (count.0 + 1, count.1 + f.bytes);
        bring(core, &store, database, &file, reread)?;
        files.push(file);
        done += f.bytes;
        progress(done, total);
    }
    let incoming = format!("{INCOMING}.log");
    let (log, bytes) = picture.write_log(&*store.dir, &incoming)?;
    files.push(settle(&store, database, &incoming, FileKind::Wal, (log, bytes))?);
    let incoming = format!("{INCOMING}.manifest");
    let (manifest, bytes) = picture.write_manifest(&*store.dir, &incoming)?;
    files.push(settle(&store, database, &incoming, FileKind::Manifest, (manifest, bytes))?);
    files.sort_by_key(|f| (f.kind as u8, f.id));
    store.dir.sync()?;
    let created_ms = core.env.clock.wall_ms();
    let generation = Generation { number, database, sequence: picture.last, created_ms, files };
    write_record(&store, &generation)?;
    Ok(out)
}

/// Copies a data file, unless the backup holds it.
fn bring(core: &Core, store: &Store, database: u64, file: &Stored, reread: bool) -> Result<()> {
    if store.holds(database, file)? {
        return Ok(());
    }
    let incoming = format!("{INCOMING}.data");
    let called = name::file_name(file.id, file.kind);
    let recorded = (file.bytes, file.checksum);
    copy::copy((&*core.dir, &called), (&*store.dir, &incoming), file.id, recorded)?;
    if reread {
        copy::check_whole(&*store.dir, &incoming, file.id, recorded, |_| Ok(()))?;
    }
    store.dir.rename(&incoming, &stored_name(database, file))
}

/// Reads a file that was just written again, and names it by what it holds.
fn settle(
    store: &Store,
    database: u64,
    incoming: &str,
    kind: FileKind,
    (id, bytes): (FileId, u64),
) -> Result<Stored> {
    let checksum = copy::read_whole(&*store.dir, incoming, id, bytes, |_| Ok(()))?;
    let file = Stored { kind, id, bytes, checksum };
    store.dir.rename(incoming, &stored_name(database, &file))?;
    Ok(file)
}

/// Contents synced, then the name, then the name synced.
fn write_record(store: &Store, generation: &Generation) -> Result<()> {
    let incoming = format!("{INCOMING}.generation");
    let out = store.dir.create(&incoming)?;
    out.append(&[&generation.encode()])?;
    out.sync()?;
    store.dir.rename(&incoming, &generation_name(generation.number))?;
    let synced = store.dir.sync();
    synced.map_err(|e| {
        e.wrap(ErrorKind::OutcomeUnknown, "the new generation may or may not survive a power cut")
    })
}
