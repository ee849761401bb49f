//! Writes entries to tables and value logs, cut at given boundaries; each finished file is synced
//! and, as an option, verified.

use super::deferred_sync::DeferredSync;
use super::output_verification;
use super::pacer::OutputBytes;
use crate::version::{TableMeta, VlogMeta};
use perigee_base::bug::Bug;
use perigee_base::{EntryRef, FileId, KeyBoundary, KeyBoundaryRef, Result, VlogPointer, bug};
use perigee_env::WritableFile;
use perigee_file::{
    Frame, KlogOptions, KlogWriter, RangeTombstones, TableBlock, TableCache, VlogWriter,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Size at which a value log is finished.
const VLOG_BYTES_CUT: u64 = 256 << 20;

/// Files that a job has created so far, even if it fails.
#[derive(Debug, Default)]
pub struct CreatedFiles(pub Vec<FileId>);

/// Writes the outputs of one job.
pub struct OutputWriter<'a> {
    table_cache: &'a TableCache,
    next_file_id: &'a AtomicU64,
    options: KlogOptions,
    verify: bool,
    /// True to cache blocks of tables when they are verified.
    pub fill_cache: bool,
    created: &'a mut CreatedFiles,
    klog: Option<(FileId, KlogWriter)>,
    vlog: Option<(FileId, VlogWriter)>,
    /// Syncs finished files instead of this writer, if set.
    deferred_sync: Option<&'a DeferredSync>,
    /// Range tombstones for all outputs, the boundary at which the last table was cut, and the
    /// number of range tombstones that were split at cuts.
    ranges: RangeTombstones,
    last_cut: KeyBoundary,
    ranges_split: u64,
    /// Finished tables.
    pub tables: Vec<TableMeta>,
    /// Finished value logs.
    pub vlogs: Vec<VlogMeta>,
    /// Number of write calls of the finished files.
    pub write_calls: u64,
}

impl<'a> OutputWriter<'a> {
    /// Creates a writer without outputs. File ids are taken from `next_file_id`.
    pub fn new(
        table_cache: &'a TableCache,
        next_file_id: &'a AtomicU64,
        options: KlogOptions,
        verify: bool,
        created: &'a mut CreatedFiles,
    ) -> OutputWriter<'a> {
        OutputWriter {
            table_cache,
            next_file_id,
            options,
            verify,
            fill_cache: false,
            created,
            klog: None,
            vlog: None,
            deferred_sync: None,
            ranges: RangeTombstones::default(),
            last_cut: KeyBoundary::First,
            ranges_split: 0,
            tables: Vec::new(),
            vlogs: Vec::new(),
            write_calls: 0,
        }
    }

    /// Leaves finished files to `deferred_sync`, if given: they are neither synced nor verified
    /// here.
    #[must_use]
    pub fn with_deferred_sync(self, deferred_sync: Option<&'a DeferredSync>) -> OutputWriter<'a> {
        OutputWriter { verify: self.verify && deferred_sync.is_none(), deferred_sync, ..self }
    }

    fn defer_sync(&self, files: Option<Vec<Arc<dyn WritableFile>>>) -> Result<()> {
        if let (Some(deferred_sync), Some(files)) = (self.deferred_sync, files) {
            deferred_sync.add_files(self.table_cache, files)
        } else {
            Ok(())
        }
    }

    fn new_file_id(&self) -> FileId {
        FileId(self.next_file_id.fetch_add(1, Relaxed))
    }

    /// Bytes of the table being written, and of its index.
    pub fn pending_bytes(&self) -> (u64, usize) {
        self.klog
            .as_ref()
            .map_or((0, 0), |(_, k)| (k.estimated_file_bytes(), k.pending_index_bytes()))
    }

    /// Bytes written so far, including buffered bytes.
    pub fn written_bytes(&self) -> u64 {
        let finished: u64 = self.tables.iter().map(|t| t.summary.bytes).sum();
        let logs: u64 = self.vlogs.iter().map(|v| v.bytes).sum();
        let open = self.vlog.as_ref().map_or(0, |(_, v)| v.bytes_written());
        finished + logs + open + self.pending_bytes().0
    }

    /// Returns the bytes written so far, and the memory that the open files hold.
    pub fn output_bytes(&self) -> OutputBytes {
        let klog = self.klog.as_ref().map_or(0, |(_, k)| k.memory_bytes());
        let vlog = self.vlog.as_ref().map_or(0, |(_, v)| v.memory_bytes());
        OutputBytes { written: self.written_bytes(), memory: klog + vlog }
    }

    /// Writes a value to the value log.
    pub fn write_to_vlog(&mut self, value: &[u8]) -> Result<VlogPointer> {
        if self.vlog.as_ref().is_some_and(|(_, v)| v.bytes_written() >= VLOG_BYTES_CUT) {
            self.finish_vlog()?;
        }
        if self.vlog.is_none() {
            let id = self.new_file_id();
            self.vlog = Some((id, self.table_cache.vlog_writer(id, self.options.compression)?));
            self.created.0.push(id);
        }
        let (id, vlog) = self.vlog.as_mut().expect("created above");
        let pointer = vlog.append(value)?;
        check_slow!(
            pointer.file == *id && pointer.value_bytes == value.len() as u64,
            "a pointer leads to the value that was written",
            pointer,
            value.len()
        );
        Ok(pointer)
    }

    /// Adds an entry to the current table.
    pub fn add_entry(&mut self, e: EntryRef<'_>) -> Result<()> {
        self.open_klog()?.add(e)
    }

    /// Returns true if the current table can take a block as it is stored; see
    /// [`KlogWriter::accepts_block`].
    pub fn accepts_block(&self, block: &TableBlock, stored: &Frame<'_>, many: bool) -> bool {
        match &self.klog {
            Some((_, klog)) => klog.accepts_block(block, stored, many),
            None => KlogWriter::would_accept_block(&self.options, block, stored),
        }
    }
    /// Adds all entries of a block to the current table.
    pub fn copy_block(&mut self, block: &TableBlock, stored: &Frame<'_>) -> Result<()> {
        self.open_klog()?.copy_block(block, stored)
    }

    /// Sets the range tombstones; each goes into all tables that it overlaps.
    pub fn set_range_tombstones(&mut self, ranges: RangeTombstones) {
        self.ranges = ranges;
    }
    /// Number of range tombstones that the tables must contain, counted per fragment and table.
    pub fn ranges_expected(&self) -> u64 {
        self.ranges.tombstone_count() + self.ranges_split
    }

    fn open_klog(&mut self) -> Result<&mut KlogWriter> {
        if self.klog.is_none() {
            let id = self.new_file_id();
            self.klog = Some((id, self.table_cache.klog_writer(id, self.options.clone())?));
            self.created.0.push(id);
        }
        Ok(&mut self.klog.as_mut().expect("created above").1)
    }

    /// Finishes the current table; all following keys lie after `at`. Range tombstones that extend
    /// beyond `at` are split.
    pub fn finish_table(&mut self, at: KeyBoundaryRef<'_>) -> Result<()> {
        let comparator = self.options.comparator;
        check_slow!(
            self.last_cut.as_ref().cmp(comparator, at).is_lt(),
            "tables end in key order",
            self.last_cut,
            at
        );
        let (clipped, split) = self.ranges.clip_to_range(comparator, self.last_cut.as_ref(), at);
        self.last_cut = at.to_boundary();
        if bug::is_active(Bug::RangeLostAtTableEnd) && split > 0 {
            self.ranges = self.ranges.clip_to_range(comparator, KeyBoundaryRef::First, at).0;
        } else {
            self.ranges_split += split;
        }
        if !clipped.is_empty() {
            self.open_klog()?.set_range_tombstones(clipped);
        }
        let Some((id, klog)) = self.klog.take() else { return Ok(()) };
        self.write_calls += klog.append_calls() + 1;
        let mut to_sync = self.deferred_sync.map(|_| Vec::new());
        let summary = klog.finish_with_deferred_sync(to_sync.as_mut())?;
        self.defer_sync(to_sync)?;
        let table = TableMeta { id, summary: summary.into(), global_seq: None };
        if self.verify {
            output_verification::verify_table(self.table_cache, &table, self.fill_cache)?;
        }
        check!(
            self.tables.last().is_none_or(|before| before.id < id),
            "later tables have larger file numbers",
            id
        );
        self.tables.push(table);
        Ok(())
    }

    fn finish_vlog(&mut self) -> Result<()> {
        let Some((id, vlog)) = self.vlog.take() else { return Ok(()) };
        self.write_calls += vlog.append_calls() + 1;
        let mut to_sync = self.deferred_sync.map(|_| Vec::new());
        let s = vlog.finish_with_deferred_sync(to_sync.as_mut())?;
        self.defer_sync(to_sync)?;
        let vlog = VlogMeta { id, bytes: s.bytes, checksum: s.checksum };
        if self.verify {
            output_verification::verify_vlog(self.table_cache, &vlog)?;
        }
        check!(
            self.vlogs.last().is_none_or(|before| before.id < id),
            "later value logs have larger file numbers",
            id
        );
        self.vlogs.push(vlog);
        Ok(())
    }

    /// Finishes the open files.
    pub fn finish(&mut self) -> Result<()> {
        self.finish_vlog()?;
        self.finish_table(KeyBoundaryRef::Last)
    }
}
