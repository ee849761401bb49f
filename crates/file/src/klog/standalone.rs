//! Standalone tables: klogs outside a database under arbitrary names, with file number 0 and no
//! column family; all entries have sequence number 0 and inline values.

use super::reader::KlogReader;
use super::writer::{KlogOptions, KlogWriter};
use crate::block_cache::BlockCache;
use crate::table_file_reader::TableFileReader;
use perigee_base::{FamilyId, FileId, Result};
use perigee_env::Dir;
use std::sync::Arc;

/// Value of the database id in the header of a standalone table.
pub const DATABASE: u64 = u64::from_be_bytes(*b"peritabl");
const FILE: FileId = FileId(0);

/// Creates a writer of a standalone table called `name`; its database id and column family in
/// `options` are overwritten.
pub fn create(dir: &dyn Dir, name: &str, options: KlogOptions) -> Result<KlogWriter> {
    let options = KlogOptions { database: DATABASE, family: FamilyId::NONE, ..options };
    KlogWriter::create_named(dir, name, FILE, options)
}

/// Opens a standalone table and verifies everything but its data blocks.
pub fn open(dir: &dyn Dir, name: &str) -> Result<KlogReader> {
    let file = dir.open(name).map_err(|e| e.in_file(name))?;
    let bytes = file.len().map_err(|e| e.in_file(name))?;
    let input = TableFileReader::from_file(file, FILE, name.to_owned(), bytes)?;
    // Caching is off, because all standalone tables have file number 0.
    let cache = Arc::new(BlockCache::new(0));
    KlogReader::from_file(input, DATABASE, cache, Arc::default())
}

impl KlogReader {
    /// Returns the file name.
    pub fn name(&self) -> &str {
        self.input.name()
    }
    /// [`KlogReader::verify`] for a table whose whole-file checksum was not recorded: every part
    /// has its own checksum.
    pub fn verify_without_checksum(&self, progress: &mut dyn FnMut(u64)) -> Result<()> {
        self.verify_with_checksum(None, false, &mut super::verify::pace_from_progress(progress))
    }
}
