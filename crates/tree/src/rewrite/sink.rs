//! Where entries go: tables and value logs, cut as told, each finished file synced and (option) read again.

use super::again;
use super::later::Later;
use crate::version::{TableMeta, VlogMeta};
use perigee_base::bug::{self, Bug};
use perigee_base::cut::{Cut, CutRef};
use perigee_base::key::VlogPointer;
use perigee_base::{EntryRef, FileId, Result};
use perigee_env::Append;
use perigee_file::block::frame::Frame;
use perigee_file::{Block, Fragments, KlogOptions, KlogWriter, Shelf, VlogWriter};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A value log is cut here.
const VLOG_BYTES_CUT: u64 = 256 << 20;

/// Every file that a job has created so far, whatever became of the job.
#[derive(Debug, Default)]
pub struct Created(pub Vec<FileId>);

/// Writes the outputs of one job.
pub struct Sink<'a> {
    shelf: &'a Shelf,
    ids: &'a AtomicU64,
    options: KlogOptions,
    verify: bool,
    created: &'a mut Created,
    klog: Option<(FileId, KlogWriter)>,
    vlog: Option<(FileId, VlogWriter)>,
    /// Who syncs finished files, if not this.
    later: Option<&'a Later>,
    /// Range tombstones for all outputs, where the last table was cut, and how many reached over cuts.
    ranges: Fragments,
    cut_at: Cut,
    over: u64,
    /// Finished tables.
    pub tables: Vec<TableMeta>,
    /// Finished value logs.
    pub vlogs: Vec<VlogMeta>,
    /// Write calls of the finished files.
    pub write_calls: u64,
}

impl<'a> Sink<'a> {
    /// An empty sink. File ids come from `ids`.
    pub fn new(
        shelf: &'a Shelf,
        ids: &'a AtomicU64,
        options: KlogOptions,
        verify: bool,
        created: &'a mut Created,
    ) -> Sink<'a> {
        Sink {
            shelf,
            ids,
            options,
            verify,
            created,
            klog: None,
            vlog: None,
            later: None,
            ranges: Fragments::default(),
            cut_at: Cut::First,
            over: 0,
            tables: Vec::new(),
            vlogs: Vec::new(),
            write_calls: 0,
        }
    }

    /// Finished files are left to `later`, if there is one: neither synced nor read again here.
    #[must_use]
    pub fn leaving_syncs_to(self, later: Option<&'a Later>) -> Sink<'a> {
        Sink { verify: self.verify && later.is_none(), later, ..self }
    }

    fn leave(&self, files: Option<Vec<Arc<dyn Append>>>) -> Result<()> {
        if let (Some(later), Some(files)) = (self.later, files) {
            later.take(self.shelf, files)
        } else {
            Ok(())
        }
    }

    fn next_id(&self) -> FileId {
        FileId(self.ids.fetch_add(1, Relaxed))
    }

    /// Bytes of the table being written, and of its index.
    pub fn pending(&self) -> (u64, usize) {
        self.klog.as_ref().map_or((0, 0), |(_, k)| (k.bytes_written(), k.pending_index_bytes()))
    }

    /// Bytes written so far, buffers included.
    pub fn written(&self) -> u64 {
        let finished: u64 = self.tables.iter().map(|t| t.summary.bytes).sum();
        let logs: u64 = self.vlogs.iter().map(|v| v.bytes).sum();
        let open = self.vlog.as_ref().map_or(0, |(_, v)| v.bytes_written());
        finished + logs + open + self.pending().0
    }

    /// Bytes written so far, and the memory that the open files hold.
    pub fn taken(&self) -> (u64, u64) {
        let klog = self.klog.as_ref().map_or(0, |(_, k)| k.memory_bytes());
        let vlog = self.vlog.as_ref().map_or(0, |(_, v)| v.memory_bytes());
        (self.written(), klog + vlog)
    }

    /// Writes a value to the value log.
    pub fn separate(&mut self, value: &[u8]) -> Result<VlogPointer> {
        if self.vlog.as_ref().is_some_and(|(_, v)| v.bytes_written() >= VLOG_BYTES_CUT) {
            self.finish_vlog()?;
        }
        if self.vlog.is_none() {
            let id = self.next_id();
            self.vlog = Some((id, self.shelf.vlog_writer(id, self.options.compression)?));
            self.created.0.push(id);
        }
        let (_, vlog) = self.vlog.as_mut().expect("made above");
        vlog.append(value)
    }

    /// Adds an entry to the current table.
    pub fn add(&mut self, e: EntryRef<'_>) -> Result<()> {
        self.open_klog()?.add(e)
    }

    /// Whether the current table takes a block as it is stored; see [`KlogWriter::takes`].
    pub fn takes(&self, block: &Block, stored: &Frame<'_>, many: bool) -> bool {
        match &self.klog {
            Some((_, klog)) => klog.takes(block, stored, many),
            None => KlogWriter::would_take(&self.options, block, stored),
        }
    }
    /// Adds all entries of a block to the current table.
    pub fn add_block(&mut self, block: &Block, stored: &Frame<'_>) -> Result<()> {
        self.open_klog()?.add_block(block, stored)
    }

    /// The range tombstones that go into the tables, each into those that it covers a part of.
    pub fn set_ranges(&mut self, ranges: Fragments) {
        self.ranges = ranges;
    }
    /// How many range tombstones the tables must have, counted once for each fragment in each table.
    pub fn ranges_expected(&self) -> u64 {
        self.ranges.pairs() + self.over
    }

    fn open_klog(&mut self) -> Result<&mut KlogWriter> {
        if self.klog.is_none() {
            let id = self.next_id();
            self.klog = Some((id, self.shelf.klog_writer(id, self.options.clone())?));
            self.created.0.push(id);
        }
        Ok(&mut self.klog.as_mut().expect("made above").1)
    }

    /// Ends the current table; everything that follows lies behind `at`. Range tombstones that reach over it are cut in
    /// two.
    pub fn cut(&mut self, at: CutRef<'_>) -> Result<()> {
        let order = self.options.order;
        let (mine, over) = self.ranges.between(order, self.cut_at.as_ref(), at);
        self.over += over;
        self.cut_at = at.to_cut();
        if bug::on(Bug::RangeLostAtCut) && over > 0 {
            self.ranges = self.ranges.between(order, CutRef::First, at).0;
        }
        if !mine.is_empty() {
            self.open_klog()?.set_ranges(mine);
        }
        let Some((id, klog)) = self.klog.take() else { return Ok(()) };
        self.write_calls += klog.appends() + 1;
        let mut left = self.later.map(|_| Vec::new());
        let summary = klog.finish_and_sync(left.as_mut())?;
        self.leave(left)?;
        let table = TableMeta { id, summary, stamp: None };
        if self.verify {
            again::table(self.shelf, &table)?;
        }
        self.tables.push(table);
        Ok(())
    }

    fn finish_vlog(&mut self) -> Result<()> {
        let Some((id, vlog)) = self.vlog.take() else { return Ok(()) };
        self.write_calls += vlog.appends() + 1;
        let mut left = self.later.map(|_| Vec::new());
        let s = vlog.finish_and_sync(left.as_mut())?;
        self.leave(left)?;
        let vlog = VlogMeta { id, bytes: s.bytes, checksum: s.checksum };
        if self.verify {
            again::vlog(self.shelf, &vlog)?;
        }
        self.vlogs.push(vlog);
        Ok(())
    }

    /// Ends everything.
    pub fn finish(&mut self) -> Result<()> {
        self.finish_vlog()?;
        self.cut(CutRef::Last)
    }
}
