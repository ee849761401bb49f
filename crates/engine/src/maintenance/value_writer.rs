//! A value that is written in parts: directly to a value log of its own, so that neither the log
//! nor memory holds it, unless it turns out to be short. It becomes visible with the transaction
//! that puts it ([`EngineTxn::put_separated`](crate::txn::EngineTxn::put_separated)).
//!
//! Invariant: until a transaction has taken the file, it belongs to the writer, which removes it
//! after an error and when it is dropped. After a crash it is an orphan: the next open moves it to
//! `trash/`.

use super::load::{LoadGuard, LoadPace};
use crate::catalog::family::FamilyState;
use crate::catalog::install::discard_outputs;
use crate::limits::{PACED_VALUE_BYTES, STREAMED_VALUE_BYTES_MIN};
use crate::maintenance::Maintenance;
use perigee_base::{Error, FileId, Result};
use perigee_file::{StreamedValueWriter, WrittenValue};
use perigee_tree::rewrite::{CreatedFiles, RewritePacer, RewriteProgress};
use std::sync::Arc;

/// A value that is complete.
#[derive(Debug)]
pub enum FinishedValue {
    /// It is short: put it like any other.
    Short(Vec<u8>),
    /// It is in a file of its own, which the holder of this owns.
    InFile(WrittenValue),
}

/// A value being written.
#[derive(Debug)]
pub struct EngineValueWriter {
    maintenance: Arc<Maintenance>,
    family: Arc<FamilyState>,
    /// The value, until it is long enough for a file.
    start: Vec<u8>,
    file: Option<ValueFile>,
    /// Values of at most this many bytes are logged.
    logged_bytes_max: usize,
    /// An append failed, so the value is incomplete.
    has_failed: bool,
    /// Bytes of memory as charged to the budget.
    held_bytes: u64,
}

/// The file of a value.
#[derive(Debug)]
struct ValueFile {
    id: FileId,
    /// `None` once the value is finished.
    stream: Option<StreamedValueWriter>,
    /// The stored bytes for which the rate limit was asked.
    paced_bytes: u64,
}

impl EngineValueWriter {
    /// Begins a value of a column family.
    ///
    /// # Errors
    /// `Closed`, `Poisoned`; `NotFound` if the column family was dropped.
    pub fn new(
        maintenance: &Arc<Maintenance>,
        family: &Arc<FamilyState>,
    ) -> Result<EngineValueWriter> {
        maintenance.runtime.health.check_writable()?;
        family.check_not_dropped()?;
        Ok(EngineValueWriter {
            maintenance: Arc::clone(maintenance),
            family: Arc::clone(family),
            start: Vec::new(),
            file: None,
            logged_bytes_max: STREAMED_VALUE_BYTES_MIN,
            has_failed: false,
            held_bytes: 0,
        })
    }
    /// Lowers the length up to which the value is logged instead of written to a file. Before the
    /// first part.
    pub fn set_logged_bytes_max(&mut self, bytes: usize) {
        self.logged_bytes_max = bytes.min(STREAMED_VALUE_BYTES_MIN);
    }
    /// Returns the length of the value so far.
    pub fn value_bytes(&self) -> u64 {
        let stream = self.file.as_ref().and_then(|file| file.stream.as_ref());
        stream.map_or(self.start.len() as u64, StreamedValueWriter::value_bytes)
    }

    /// Appends a part of the value. After an error the value cannot be finished any more, and its
    /// file is gone.
    ///
    /// # Errors
    /// `InvalidArgument` if the value becomes too long; `NoSpace`, `Io`, `Closed`.
    pub fn append(&mut self, part: &[u8]) -> Result<()> {
        self.check_usable()?;
        let bytes = self.value_bytes().saturating_add(part.len() as u64);
        let appended = StreamedValueWriter::check_value_bytes(bytes)
            .and_then(|()| self.append_unchecked(part));
        if appended.is_err() {
            self.has_failed = true;
            self.discard();
        }
        appended
    }
    fn check_usable(&self) -> Result<()> {
        if self.has_failed {
            return Err(Error::invalid(
                "an earlier write of this value failed: begin it again with another writer",
            ));
        }
        Ok(())
    }
    fn append_unchecked(&mut self, part: &[u8]) -> Result<()> {
        let is_short = self.start.len() + part.len() <= self.logged_bytes_max;
        check!(
            self.file.is_none() || self.start.is_empty(),
            "the bytes of a value are in memory or in its file",
            self.start.len()
        );
        if self.file.is_none() && is_short {
            self.start.extend_from_slice(part);
            return Ok(());
        }
        let maintenance = Arc::clone(&self.maintenance);
        let _working = LoadGuard::start(&maintenance)?;
        self.family.check_not_dropped()?;
        if self.file.is_none() {
            let start = std::mem::take(&mut self.start);
            self.create_file()?;
            self.append_to_file(&start)?;
        }
        part.chunks(PACED_VALUE_BYTES).try_for_each(|piece| self.append_to_file(piece))
    }
    fn create_file(&mut self) -> Result<()> {
        let catalog = &self.maintenance.catalog;
        let id = catalog.allocate_file_id();
        let compression =
            self.family.klog_options(self.maintenance.runtime.identity.database).compression;
        let stream = catalog.resources.table_cache().streamed_value_writer(id, compression)?;
        let stream = Some(stream);
        self.file = Some(ValueFile { id, stream, paced_bytes: 0 });
        Ok(())
    }
    fn append_to_file(&mut self, piece: &[u8]) -> Result<()> {
        let Some(ValueFile { stream: Some(stream), paced_bytes, .. }) = &mut self.file else {
            return Err(Error::internal("a part is appended to a value that was finished"));
        };
        let resources = &self.maintenance.resources;
        let pace = LoadPace::new(resources);
        pace.check_free_space(piece.len() as u64)?;
        stream.append(piece)?;
        resources.charge(&mut self.held_bytes, stream.memory_bytes());
        check!(
            stream.stored_bytes() >= *paced_bytes,
            "the file of a value grows",
            stream.stored_bytes(),
            paced_bytes
        );
        let written_bytes = stream.stored_bytes() - *paced_bytes;
        *paced_bytes += written_bytes;
        pace.throttle(RewriteProgress { written_bytes, ..RewriteProgress::default() })
    }

    /// Ends the value; with `take` a transaction puts it, and owns its file from then on. After an
    /// error the file is removed.
    ///
    /// # Errors
    /// Those of [`EngineValueWriter::append`] and of `take`.
    pub fn finish(mut self, take: impl FnOnce(&FinishedValue) -> Result<()>) -> Result<()> {
        self.check_usable()?;
        let value = match &mut self.file {
            None => FinishedValue::Short(std::mem::take(&mut self.start)),
            Some(file) => {
                let _working = LoadGuard::start(&self.maintenance)?;
                let stream = file
                    .stream
                    .take()
                    .ok_or_else(|| Error::internal("a value is finished twice"))?;
                FinishedValue::InFile(stream.finish()?)
            }
        };
        take(&value)?;
        check!(
            self.file.as_ref().is_none_or(|file| file.stream.is_none()),
            "a value that a transaction has taken is complete",
            self.held_bytes
        );
        // It belongs to the transaction.
        self.file = None;
        Ok(())
    }

    /// Removes the file.
    fn discard(&mut self) {
        self.start = Vec::new();
        let Some(file) = self.file.take() else { return };
        // Once the database is closed, its files must not be touched.
        let Ok(_working) = LoadGuard::start(&self.maintenance) else { return };
        drop(file.stream);
        discard_outputs(&self.maintenance.catalog, &CreatedFiles(vec![file.id]));
    }
}

impl Drop for EngineValueWriter {
    fn drop(&mut self) {
        self.discard();
        self.maintenance.resources.discharge(&mut self.held_bytes);
    }
}
