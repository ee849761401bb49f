//! The whole database at one sequence number, over all families: the catalog, the files it names (held, so that none of
//! them goes away), and the part of the log that is not in tables yet.
//!
//! Taken in the commit section and under the manifest's lock, which is short: nothing is copied there. Writers go on
//! while the picture is written out.

use crate::core::{Core, next_file};
use crate::manifest::{Catalog, Place, write_snapshot_file};
use perigee_base::format::{FileHeader, FileKind};
use perigee_base::{Error, FileId, Result};
use perigee_env::Dir;
use perigee_file::log::batch::Finished;
use perigee_file::log::{LogReader, LogWriter, RecordKind, Stamp, Step};
use perigee_file::name;
use perigee_tree::View;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A file of the picture that never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataFile {
    /// Its number.
    pub id: FileId,
    /// A klog or a vlog.
    pub kind: FileKind,
    /// Its length.
    pub bytes: u64,
    /// The checksum of the whole file.
    pub checksum: u64,
}

/// The database at one moment.
pub struct Picture {
    catalog: Catalog,
    place: Place,
    /// The last operation in it.
    pub last: u64,
    /// Operations before this are in tables.
    floor: u64,
    edit: u64,
    logs: Vec<LogReader>,
    log: FileId,
    manifest: FileId,
    /// Keeps the files from being removed.
    _held: Vec<Arc<View>>,
}

impl Picture {
    /// The database as it is now.
    pub fn take(core: &Core) -> Result<Picture> {
        core.health.check_open()?;
        let appender = core.wal.appender();
        let (mut catalog, held, edits) = core.manifest.look(|catalog| {
            let views: Vec<_> = core.families.all().iter().map(|f| f.tree.view()).collect();
            (catalog.clone(), views, core.manifest.edits())
        });
        let mut logs = Vec::new();
        for (id, first) in &catalog.logs {
            let older = appender.older.iter().find(|s| s.id == *id).map(|s| s.bytes);
            let newest = || (appender.writer.id() == *id).then(|| appender.writer.offset());
            let Some(bytes) = older.or_else(newest) else {
                if *first == 0 {
                    // Made ahead, and not begun.
                    continue;
                }
                let text = format!("the manifest names log {id}, which the log does not know");
                return Err(Error::internal(text));
            };
            let file = name::file_name(*id, FileKind::Wal);
            let reader = LogReader::open(
                &*core.dir,
                &file,
                FileKind::Wal,
                Some(*id),
                Some(core.database),
                Some(bytes),
            )?;
            logs.push(reader);
        }
        let next = appender.next_lsn;
        // Records of prepared transactions are copied, with all that follows them.
        let undecided = core.prepared.floor();
        drop(appender);
        let memtables = held.iter().flat_map(|v| v.memtables());
        let unflushed = memtables.filter(|m| !m.is_empty()).map(|m| m.first_seq().0);
        let floor = unflushed.chain(undecided).min().unwrap_or(next);
        let (log, manifest) = (next_file(&core.ids), next_file(&core.ids));
        catalog.next.0 = catalog.next.0.max(manifest.0 + 1);
        catalog.clean = None;
        // The copy has a log of its own, and nobody has read it.
        catalog.retained.clear();
        Ok(Picture {
            catalog,
            place: Place { database: core.database, boot: core.boot },
            last: next - 1,
            floor,
            edit: edits + 1,
            logs,
            log,
            manifest,
            _held: held,
        })
    }

    /// The database's id.
    pub fn database(&self) -> u64 {
        self.place.database
    }
    /// Its tables and value logs, each once.
    pub fn files(&self) -> Vec<DataFile> {
        let mut all = BTreeMap::new();
        for f in self.catalog.families.values() {
            for t in f.tables.values() {
                let s = &t.meta.summary;
                let file =
                    DataFile { id: t.meta.id, kind: FileKind::Klog, bytes: s.bytes, checksum: s.checksum };
                all.insert(t.meta.id, file);
            }
            for v in f.vlogs.values() {
                let file = DataFile { id: v.id, kind: FileKind::Vlog, bytes: v.bytes, checksum: v.checksum };
                all.insert(v.id, file);
            }
        }
        all.into_values().collect()
    }

    /// Writes a log of its own, synced: the operations that are not in tables. Its number and length.
    pub fn write_log(&mut self, dir: &dyn Dir, file: &str) -> Result<(FileId, u64)> {
        let mut out: Option<LogWriter> = None;
        let (mut first, mut next) = (self.last + 1, self.last + 1);
        for log in &mut self.logs {
            loop {
                let record = match log.next_record()? {
                    Step::Record(r) => r,
                    Step::End => break,
                    Step::Bad(bad) => return Err(bad.why),
                };
                let (lsn, count) = (record.header.lsn, record.header.count);
                let end = lsn + u64::from(count);
                if record.header.kind == RecordKind::Close || end <= self.floor {
                    continue;
                }
                let writer = match &mut out {
                    Some(writer) => writer,
                    None => {
                        (first, next) = (lsn, lsn);
                        out.insert(create(dir, file, self.place, self.log, lsn)?)
                    }
                };
                if lsn != next {
                    return Err(Error::internal(format!("the log goes on at {lsn} instead of {next}")));
                }
                // As at open: the copy vouches for no edit.
                let stamp = Stamp { lsn, durable: lsn - 1, edits: 0 };
                let mut copy = Finished::around(record.header.kind, &record.payload, count);
                writer.append(stamp, &mut [&mut copy])?;
                next = end;
            }
        }
        if next != self.last + 1 {
            return Err(Error::internal(format!("the log ends at {next} instead of {}", self.last + 1)));
        }
        let writer = match out {
            Some(writer) => writer,
            None => create(dir, file, self.place, self.log, first)?,
        };
        writer.file().sync()?;
        self.catalog.logs = vec![(self.log, first)];
        self.catalog.forget_events();
        self.catalog.durable = self.last;
        Ok((self.log, writer.offset()))
    }

    /// Writes the manifest, synced; after [`Picture::write_log`]. Its number and length.
    pub fn write_manifest(&self, dir: &dyn Dir, file: &str) -> Result<(FileId, u64)> {
        let writer = write_snapshot_file(dir, file, self.place, self.manifest, self.edit, &self.catalog)?;
        Ok((self.manifest, writer.offset()))
    }
}

fn create(dir: &dyn Dir, file: &str, place: Place, id: FileId, first: u64) -> Result<LogWriter> {
    let header =
        FileHeader { kind: FileKind::Wal, database: place.database, file: id, a: first, b: place.boot };
    LogWriter::create(dir, file, &header)
}
