//! The shelf: the door of this crate. Opens and keeps readers by id, hands out writers.

use crate::cache::BlockCache;
use crate::compress::Codec;
use crate::klog::{KlogOptions, KlogReader, KlogWriter};
use crate::vlog::{VlogReader, VlogWriter};
use perigee_base::stats::Counters;
use perigee_base::{FamilyId, FileId, Result};
use perigee_env::Dir;
use std::sync::Arc;

/// The table files of one database directory.
#[derive(Debug)]
pub struct Shelf {}

impl Shelf {
    /// An empty shelf over `dir`.
    pub fn new(
        _dir: Arc<dyn Dir>,
        _database: u64,
        _cache: Arc<BlockCache>,
        _counters: Arc<Counters>,
    ) -> Shelf {
        todo!()
    }
    /// The directory.
    pub fn dir(&self) -> &Arc<dyn Dir> {
        todo!()
    }
    /// The reader of a klog, opened at the first call.
    pub fn klog(&self, _id: FileId, _family: FamilyId, _bytes: u64) -> Result<Arc<KlogReader>> {
        todo!()
    }
    /// The reader of a vlog, opened at the first call.
    pub fn vlog(&self, _id: FileId, _bytes: u64) -> Result<Arc<VlogReader>> {
        todo!()
    }
    /// A writer of a new klog; `options.database` is filled in.
    pub fn klog_writer(&self, _id: FileId, _options: KlogOptions) -> Result<KlogWriter> {
        todo!()
    }
    /// A writer of a new vlog.
    pub fn vlog_writer(&self, _id: FileId, _codec: Codec) -> Result<VlogWriter> {
        todo!()
    }
    /// Drops a reader and its cached blocks.
    pub fn forget(&self, _id: FileId) {
        todo!()
    }
    /// The block cache.
    pub fn cache(&self) -> &Arc<BlockCache> {
        todo!()
    }
    /// The counters.
    pub fn counters(&self) -> &Arc<Counters> {
        todo!()
    }
    /// The database's id.
    pub fn database(&self) -> u64 {
        todo!()
    }
}
