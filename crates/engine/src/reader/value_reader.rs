//! Reads of one value in parts.

use super::{Reader, TxnLookup};
use crate::catalog::family::FamilyState;
use crate::engine::Engine;
use crate::txn::EngineTxn;
use perigee_base::limits::ZSTD_RATIO_MAX;
use perigee_base::{Error, PinnedSlice, Result, SeqNo, VlogPointer};
use perigee_file::{ChunkReader, EntryValue};
use perigee_tree::{View, Vlog, read};
use std::sync::Arc;

/// Where the bytes of a value are read.
#[derive(Debug)]
enum OpenValue {
    /// It is in memory.
    Pinned(PinnedSlice),
    /// It is in a value log, which this keeps from being deleted.
    Separated { chunks: Box<ChunkReader>, vlog: Arc<Vlog> },
}

impl OpenValue {
    fn in_vlog(vlog: &Arc<Vlog>, p: VlogPointer) -> Result<OpenValue> {
        check!(
            vlog.meta.id == p.file,
            "a value is read in the value log of its pointer",
            vlog.meta.id,
            p
        );
        let chunks = Box::new(ChunkReader::new(Arc::clone(&vlog.reader), p)?);
        Ok(OpenValue::Separated { chunks, vlog: Arc::clone(vlog) })
    }
    /// Opens the live value of a key for a reader at `at`.
    fn find(view: &View, key: &[u8], at: SeqNo) -> Result<Option<OpenValue>> {
        Ok(match read::lookup_live(view, key, at)? {
            None => None,
            Some(EntryValue::Pointer(p) | EntryValue::PointerExpiring(p, _)) => {
                let vlog = view.version.vlogs.get(&p.file).ok_or_else(|| {
                    let text = format!("a table references value log {}, which is missing", p.file);
                    Error::corruption(text)
                })?;
                Some(OpenValue::in_vlog(vlog, p)?)
            }
            Some(found) => Some(OpenValue::Pinned(read::read_value(view, key, at, found)?)),
        })
    }
    /// Opens a live value that a transaction wrote itself.
    fn find_own(txn: &EngineTxn, family: &FamilyState, found: EntryValue) -> Result<OpenValue> {
        match found {
            EntryValue::Pointer(p) | EntryValue::PointerExpiring(p, _) => {
                OpenValue::in_vlog(&txn.own_vlog(family, &p)?, p)
            }
            found => txn.own_value(family, found).map(OpenValue::Pinned),
        }
    }
}

/// A value that is read in parts. Later writes do not change what it reads; what it reads is not
/// deleted from the disk before it is dropped.
#[derive(Debug)]
pub struct EngineValueReader {
    // Dropped before the engine, which deletes files that have no holder when it is closed.
    value: OpenValue,
    engine: Arc<Engine>,
}

/// Deletes the file of the value, if it was only kept for this reader.
impl Drop for EngineValueReader {
    fn drop(&mut self) {
        let OpenValue::Separated { vlog, .. } = &self.value else { return };
        let vlog = Arc::downgrade(vlog);
        self.value = OpenValue::Pinned(PinnedSlice::from(Vec::new()));
        if vlog.strong_count() == 0 && self.engine.check_open().is_ok() {
            let _ = self.engine.catalog.delete_unreferenced();
        }
    }
}

impl EngineValueReader {
    /// Returns the length of the value.
    pub fn value_bytes(&self) -> u64 {
        match &self.value {
            OpenValue::Pinned(value) => value.len() as u64,
            OpenValue::Separated { chunks, .. } => chunks.value_bytes(),
        }
    }
    /// Returns the bytes from `position` on, as many as are available at once: up to 1 MiB of a
    /// value in a value log; none at the end of the value.
    ///
    /// # Errors
    /// `Closed`, unless the value is in memory; `Io`, `Corruption`: other parts of the value can
    /// still be read.
    pub fn part_at(&mut self, position: u64) -> Result<&[u8]> {
        match &mut self.value {
            OpenValue::Pinned(value) => {
                let start = usize::try_from(position).unwrap_or(usize::MAX).min(value.len());
                Ok(&value[start..])
            }
            OpenValue::Separated { chunks, vlog } => {
                self.engine.check_open()?;
                check!(
                    chunks.value_bytes() <= vlog.meta.bytes.saturating_mul(ZSTD_RATIO_MAX as u64),
                    "a value fits into its file",
                    vlog.meta
                );
                chunks.part_at(position)
            }
        }
    }
}

impl Reader<'_> {
    /// Opens the value of `key`, to read it in parts.
    ///
    /// # Errors
    /// Those of [`Reader::get`].
    pub fn open_value(&mut self, key: &[u8]) -> Result<Option<EngineValueReader>> {
        let started = self.start_point_read();
        let value = match self.overlay {
            None => OpenValue::find(&self.view, key, self.sequence)?,
            Some(_) => {
                let found: TxnLookup = self.lookup_own(key)?;
                self.read_own(key, found, OpenValue::find_own, OpenValue::find)?
            }
        };
        self.finish_point_read(started, value.is_some());
        Ok(value.map(|value| EngineValueReader { value, engine: Arc::clone(self.engine) }))
    }
}
