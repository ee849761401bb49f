//! The vlog: separated values.

use crate::compress::Codec;
use perigee_base::key::VlogPointer;
use perigee_base::stats::Counters;
use perigee_base::{FileId, Result, Shared};
use perigee_env::Dir;
use std::sync::Arc;

/// What a finished vlog is, for the manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VlogSummary {
    /// Length of the file.
    pub bytes: u64,
    /// Checksum of the whole file.
    pub checksum: u64,
}

/// Writes one vlog.
#[derive(Debug)]
pub struct VlogWriter {}

impl VlogWriter {
    /// Creates the file.
    pub fn create(_dir: &dyn Dir, _id: FileId, _database: u64, _codec: Codec) -> Result<VlogWriter> {
        todo!()
    }
    /// Appends a value (never an empty one) and says where it lies.
    pub fn append(&mut self, _value: &[u8]) -> Result<VlogPointer> {
        todo!()
    }
    /// Bytes of the file so far.
    pub fn bytes_written(&self) -> u64 {
        todo!()
    }
    /// Writes the rest and syncs the file; the directory is the caller's.
    pub fn finish(self) -> Result<VlogSummary> {
        todo!()
    }
}

/// Reads one vlog.
#[derive(Debug)]
pub struct VlogReader {}

impl VlogReader {
    /// Opens a vlog of `bytes` bytes.
    pub fn open(
        _dir: &dyn Dir,
        _id: FileId,
        _database: u64,
        _bytes: u64,
        _counters: Arc<Counters>,
    ) -> Result<VlogReader> {
        todo!()
    }
    /// The value that a pointer names.
    pub fn read(&self, _p: &VlogPointer) -> Result<Shared> {
        todo!()
    }
    /// Reads and checks every byte.
    pub fn verify(&self, _checksum: u64, _progress: &mut dyn FnMut(u64)) -> Result<()> {
        todo!()
    }
}
