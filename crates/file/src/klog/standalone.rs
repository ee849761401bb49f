//! Tables outside a database: klogs under a name of their own, of file 0 of nobody's family, all
//! entries under number 0 and with their values beside them.

use super::reader::KlogReader;
use super::writer::{KlogOptions, KlogWriter};
use crate::block_cache::BlockCache;
use crate::table_file_reader::TableFileReader;
use perigee_base::{FamilyId, FileId, Result};
use perigee_env::Dir;
use std::sync::Arc;

/// What stands in the header where the database's id would be.
pub const DATABASE: u64 = u64::from_be_bytes(*b"peritabl");
const FILE: FileId = FileId(0);

/// A writer of a standalone table called `name`; `options` say the order and the format.
pub fn create(dir: &dyn Dir, name: &str, options: KlogOptions) -> Result<KlogWriter> {
    let options = KlogOptions { database: DATABASE, family: FamilyId::NONE, ..options };
    KlogWriter::create_named(dir, name, FILE, options)
}

/// Opens a standalone table, and verifies everything but its data blocks.
pub fn open(dir: &dyn Dir, name: &str) -> Result<KlogReader> {
    let file = dir.open(name).map_err(|e| e.in_file(name))?;
    let bytes = file.len().map_err(|e| e.in_file(name))?;
    let input = TableFileReader::from_file(file, FILE, name.to_owned(), bytes)?;
    // No cache: all standalone tables are file 0.
    let cache = Arc::new(BlockCache::new(0));
    KlogReader::from_file(input, DATABASE, cache, Arc::default())
}

impl KlogReader {
    /// The file's name.
    pub fn name(&self) -> &str {
        self.input.name()
    }
    /// [`KlogReader::verify`] for a table whose whole-file checksum nobody kept: every part has one
    /// of its own.
    pub fn verify_without_checksum(&self, progress: &mut dyn FnMut(u64)) -> Result<()> {
        self.verify_with_checksum(None, &mut super::verify::pace_from_progress(progress))
    }
}
