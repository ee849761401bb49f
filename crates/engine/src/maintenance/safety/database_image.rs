//! The whole database at one sequence number, with all column families: the catalog, the files it
//! references (pinned, so that none is removed), and the part of the log that is not in tables yet.
//!
//! Captured in the commit section and under the manifest lock, which are held briefly: nothing is
//! copied there. Writers continue while the image is written.

use crate::catalog::PinnedCatalog;
use crate::catalog::manifest::{CatalogState, PreparedFiles, write_snapshot_file};
use crate::log::Log;
use crate::runtime::DatabaseIdentity;
use crate::txn::prepared_txn::PreparedTxn;
use perigee_base::{Bytes, Error, FileHeader, FileId, FileKind, Result, SeqNo};
use perigee_env::Dir;
use perigee_file::filename;
use perigee_file::log::{
    EncodedRecord, LogReader, LogWriter, NextLogRecord, RecordKind, RecordStamp,
};
use perigee_tree::View;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// An immutable file of the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataFile {
    /// File id.
    pub id: FileId,
    /// Klog or vlog.
    pub kind: FileKind,
    /// Length in bytes.
    pub bytes: u64,
    /// Checksum of the whole file.
    pub checksum: u64,
}

/// The database at one sequence number.
pub struct DatabaseImage {
    catalog: CatalogState,
    identity: DatabaseIdentity,
    /// Sequence number of the last operation in it.
    pub last_seq: SeqNo,
    /// Operations before this LSN are in tables.
    first_unflushed: SeqNo,
    edit: u64,
    logs: Vec<LogReader>,
    log: FileId,
    manifest: FileId,
    /// These pin the files.
    _pinned_views: Vec<Arc<View>>,
    _pinned_prepared: Vec<Arc<PreparedTxn>>,
}

impl DatabaseImage {
    /// Captures the current state of the database.
    pub fn capture(log: &Log) -> Result<DatabaseImage> {
        log.runtime.health.check_open()?;
        let appender = log.commit_section();
        let PinnedCatalog { state: mut catalog, edits, views: pinned_views } = log.catalog.pin();
        let mut logs = Vec::new();
        for (id, first) in &catalog.logs {
            let Some(bytes) = appender.segments().find(|s| s.id == *id).map(|s| s.bytes) else {
                if *first == SeqNo::ZERO {
                    // An unused spare segment.
                    continue;
                }
                let text =
                    format!("the manifest lists log {id}, which is not a segment of the log");
                return Err(Error::internal(text));
            };
            let file = filename::file_name(*id, FileKind::Wal);
            let reader = LogReader::open(
                &*log.runtime.dir,
                &file,
                FileKind::Wal,
                Some(*id),
                Some(log.runtime.identity.database),
                Some(Bytes(bytes)),
            )?;
            logs.push(reader);
        }
        let mut pinned_prepared = log.txns.prepared_txns().all();
        pinned_prepared.retain(|p| p.spilled().is_some());
        check_slow!(
            pinned_prepared.len() == catalog.prepared.len(),
            "the transactions that are prepared in the catalog are in the list",
            pinned_prepared.len(),
            catalog.prepared.len()
        );
        check_slow!(
            pinned_views
                .iter()
                .flat_map(|v| v.version.file_ids())
                .chain(catalog.prepared_files().flat_map(PreparedFiles::ids))
                .collect::<BTreeSet<_>>()
                == catalog.data_files(),
            "the pinned views have exactly the files of the catalog",
            catalog.data_files()
        );
        let next = appender.next_lsn;
        // Records of prepared transactions are copied, with everything after them.
        let oldest_prepared = log.txns.prepared_txns().oldest_lsn();
        drop(appender);
        let memtables = pinned_views.iter().flat_map(|v| v.memtables());
        let unflushed = memtables.filter(|m| !m.is_empty()).map(|m| m.first_seq());
        let first_unflushed = unflushed.chain(oldest_prepared).min().unwrap_or(next);
        let (log_file, manifest_file) =
            (log.catalog.allocate_file_id(), log.catalog.allocate_file_id());
        catalog.next_ids.file = catalog.next_ids.file.max(FileId(manifest_file.0 + 1));
        catalog.clean_close = None;
        // The copy has a log of its own, without readers.
        catalog.retained.clear();
        Ok(DatabaseImage {
            catalog,
            identity: log.runtime.identity,
            last_seq: next.prev(),
            first_unflushed,
            edit: edits + 1,
            logs,
            log: log_file,
            manifest: manifest_file,
            _pinned_views: pinned_views,
            _pinned_prepared: pinned_prepared,
        })
    }

    /// Returns the database id.
    pub fn database(&self) -> u64 {
        self.identity.database
    }
    /// Returns the tables and value logs, each once.
    pub fn files(&self) -> Vec<DataFile> {
        let mut all = BTreeMap::new();
        let families = || self.catalog.families.values();
        let prepared = || self.catalog.prepared_files();
        let tables = families().flat_map(|f| f.tables.values().map(|t| &t.meta));
        for t in tables.chain(prepared().flat_map(|f| &f.tables)) {
            let (bytes, checksum) = (t.summary.bytes, t.summary.checksum);
            all.insert(t.id, DataFile { id: t.id, kind: FileKind::Klog, bytes, checksum });
        }
        let vlogs = families().flat_map(|f| f.vlogs.values());
        for v in vlogs.chain(prepared().flat_map(|f| &f.vlogs)) {
            let (bytes, checksum) = (v.bytes, v.checksum);
            all.insert(v.id, DataFile { id: v.id, kind: FileKind::Vlog, bytes, checksum });
        }
        all.into_values().collect()
    }

    /// Writes and syncs a new log with the operations that are not in tables. Returns its file id
    /// and length.
    pub fn write_log(&mut self, dir: &dyn Dir, file: &str) -> Result<(FileId, u64)> {
        let mut out: Option<LogWriter> = None;
        let after_last = self.last_seq.plus(1);
        let (mut first, mut next) = (after_last, after_last);
        for log in &mut self.logs {
            loop {
                let record = match log.next_record()? {
                    NextLogRecord::Record(r) => r,
                    NextLogRecord::End => break,
                    NextLogRecord::Bad(bad) => return Err(bad.error),
                };
                let (lsn, end) = (record.header.first_seq(), record.header.end_seq());
                if record.header.kind == RecordKind::Close || end <= self.first_unflushed {
                    continue;
                }
                let writer = match &mut out {
                    Some(writer) => writer,
                    None => {
                        (first, next) = (lsn, lsn);
                        out.insert(create_log(dir, file, self.identity, self.log, lsn)?)
                    }
                };
                if lsn != next {
                    return Err(Error::internal(format!(
                        "the log continues at {lsn} instead of {next}"
                    )));
                }
                // As at open, records of the copy name no manifest edit.
                let stamp = RecordStamp { lsn: lsn.0, durable_lsn: lsn.0 - 1, manifest_edits: 0 };
                let kind = record.header.kind;
                let mut copy =
                    EncodedRecord::from_payload(kind, &record.payload, record.header.lsn_count);
                writer.append(stamp, &mut [&mut copy])?;
                next = end;
            }
        }
        if next != after_last {
            return Err(Error::internal(format!("the log ends at {next} instead of {after_last}")));
        }
        let writer = match out {
            Some(writer) => writer,
            None => create_log(dir, file, self.identity, self.log, first)?,
        };
        writer.file().sync()?;
        check!(
            first <= self.first_unflushed && self.first_unflushed <= after_last,
            "a copied log has every operation that is not in tables",
            first,
            self.first_unflushed,
            after_last
        );
        self.catalog.logs = vec![(self.log, first)];
        self.catalog.discard_old_events();
        self.catalog.durable_seq = self.last_seq;
        Ok((self.log, writer.offset()))
    }

    /// Writes and syncs the manifest; must follow [`DatabaseImage::write_log`]. Returns its file id
    /// and length.
    pub fn write_manifest(&self, dir: &dyn Dir, file: &str) -> Result<(FileId, u64)> {
        check!(
            self.catalog.logs.len() == 1 && self.catalog.logs[0].0 == self.log,
            "the manifest of a copy names the log of the copy",
            self.catalog.logs,
            self.log
        );
        let writer =
            write_snapshot_file(dir, file, self.identity, self.manifest, self.edit, &self.catalog)?;
        Ok((self.manifest, writer.offset()))
    }
}

fn create_log(
    dir: &dyn Dir,
    file: &str,
    identity: DatabaseIdentity,
    id: FileId,
    first: SeqNo,
) -> Result<LogWriter> {
    let header = FileHeader {
        kind: FileKind::Wal,
        database: identity.database,
        file: id,
        a: first.0,
        b: identity.boot,
    };
    LogWriter::create(dir, file, &header)
}
