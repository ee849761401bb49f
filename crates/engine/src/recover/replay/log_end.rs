//! Where the log ends: distinguishes a torn end from damage, and checks that the log reaches as far
//! as the manifest and the tables require.

use super::{LogReplay, open_log};
use crate::catalog::manifest::CatalogFamily;
use perigee_base::bug::Bug;
use perigee_base::{Error, ErrorKind, FileKind, Result, SeqNo, bug};
use perigee_file::filename;
use perigee_file::log::{LogReader, NextLogRecord};
use perigee_tree::AddedTable;

impl LogReplay<'_> {
    /// Distinguishes damage from a torn end of the log, by the rules of `docs/format/log.md`.
    pub(super) fn check_torn_end(
        &mut self,
        i: usize,
        log: &LogReader,
        same_boot: bool,
        cut_short: bool,
        why: Error,
    ) -> Result<bool> {
        let mut watermark = self.manifest.catalog.durable_seq;
        if let Some(behind) = log.find_records_after_bad()? {
            watermark = watermark.max(SeqNo(behind.durable_lsn));
            self.newest_edit = self.newest_edit.max(behind.manifest_edits);
        }
        let mut cut = log.end() - log.offset();
        for j in i + 1..self.manifest.catalog.logs.len() {
            let (durable, bytes) = self.durable_watermark(j)?;
            watermark = watermark.max(durable);
            cut += bytes;
        }
        let damage = watermark >= self.result.next_lsn || (same_boot && !cut_short);
        if damage && !bug::is_active(Bug::TruncateDamagedLog) {
            return Err(why);
        }
        self.note_cut(i, log, cut, &why);
        Ok(false)
    }

    /// Records that `bytes` bytes from here on are ignored, and why.
    pub(super) fn note_cut(&mut self, i: usize, log: &LogReader, bytes: u64, why: &Error) {
        self.result.cut_bytes += bytes;
        let why =
            format!("{}: {} at offset {}; ", self.segment_name(i), why.message(), log.offset());
        self.result.cut_reason.push_str(&why);
    }

    /// Returns the highest durable LSN recorded in a segment, and its length.
    fn durable_watermark(&mut self, j: usize) -> Result<(SeqNo, u64)> {
        let mut log = self.open_segment(j)?;
        let mut durable = SeqNo::ZERO;
        loop {
            match log.next_record()? {
                NextLogRecord::Record(r) => {
                    durable = durable.max(SeqNo(r.header.durable_lsn));
                    self.newest_edit = self.newest_edit.max(r.header.manifest_edits);
                }
                NextLogRecord::End => return Ok((durable, log.end())),
                NextLogRecord::Bad(_) => {
                    let behind = log.find_records_after_bad()?;
                    self.newest_edit = self.newest_edit.max(behind.map_or(0, |b| b.manifest_edits));
                    return Ok((
                        durable.max(SeqNo(behind.map_or(0, |b| b.durable_lsn))),
                        log.end(),
                    ));
                }
            }
        }
    }

    /// Checks segments that the manifest does not list: copies from an unfinished open, or removed
    /// ones. If one records more edits than the manifest holds, the manifest has lost edits.
    pub(super) fn check_unlisted(&mut self) -> Result<()> {
        for file in self.dir.list()? {
            let Some((id, FileKind::Wal)) = filename::parse_file_name(&file) else { continue };
            let catalog = &self.manifest.catalog;
            if catalog.logs.iter().any(|(known, _)| *known == id)
                || catalog.retained.iter().any(|s| s.id == id)
            {
                continue;
            }
            match open_log(self.dir, &file, id, self.manifest.database) {
                Ok(log) => self.note_unlisted_edits(log)?,
                Err(e) if e.kind() == ErrorKind::Corruption => {}
                Err(e) => return Err(e),
            }
        }
        if self.newest_edit > self.manifest.last_edit && self.newest_edit > (self.mode.edits_now)()?
        {
            return Err(Error::corruption("the manifest has lost its last edits")
                .in_file(filename::MANIFEST)
                .expected(
                    format_args!("edit {}", self.newest_edit),
                    format_args!("edit {}", self.manifest.last_edit),
                ));
        }
        Ok(())
    }

    fn note_unlisted_edits(&mut self, mut log: LogReader) -> Result<()> {
        loop {
            match log.next_record()? {
                NextLogRecord::Record(r) => {
                    self.newest_edit = self.newest_edit.max(r.header.manifest_edits)
                }
                NextLogRecord::End => return Ok(()),
                NextLogRecord::Bad(_) => {
                    self.newest_edit = self
                        .newest_edit
                        .max(log.find_records_after_bad()?.map_or(0, |b| b.manifest_edits));
                    return Ok(());
                }
            }
        }
    }

    /// Checks that the log reaches at least as far as tables, manifest and clean close require.
    pub(super) fn check_end(&self) -> Result<()> {
        let c = &self.manifest.catalog;
        let newest = |t: &AddedTable| t.meta.global_seq.unwrap_or(t.meta.summary.largest_seq);
        let largest = |f: &CatalogFamily| f.tables.values().map(|t| newest(t)).max();
        let ahead = c
            .families
            .values()
            .any(|f| f.flushed.max(largest(f).unwrap_or_default()) >= self.result.next_lsn);
        if ahead {
            return Err(Error::corruption("tables hold operations after the end of the log")
                .in_file(filename::MANIFEST));
        }
        // Empty spare segments do not count: their first LSN is not known.
        let known = c.logs.iter().take_while(|(_, lsn)| *lsn > SeqNo::ZERO).count();
        let Some((id, _)) = c.logs.get(self.last_segment.max(known.saturating_sub(1))) else {
            return Ok(());
        };
        let file = filename::file_name(*id, FileKind::Wal);
        if self.result.next_lsn <= c.durable_seq && !self.limit_reached {
            return Err(Error::corruption("the log ends before operations that were durable")
                .in_file(file)
                .expected(
                    format_args!("operation {}", c.durable_seq),
                    format_args!("operation {}", self.result.next_lsn.prev()),
                ));
        }
        if let Some(clean) = c.clean_close {
            let len = self.dir.file_len(&file)?.unwrap_or(0);
            let is_complete = clean.bytes == self.last_record_end;
            if !is_complete
                || (clean.log, clean.bytes, clean.last_seq)
                    != (*id, len, self.result.next_lsn.prev())
            {
                return Err(Error::corruption("the log was changed after the clean close")
                    .at(file, len.min(clean.bytes))
                    .expected(format_args!("{} bytes", clean.bytes), len));
            }
        }
        Ok(())
    }
}
