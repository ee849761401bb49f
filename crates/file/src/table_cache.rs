//! Cache of open table readers, and the entry point of this crate: opens each klog and vlog once,
//! keeps the readers by file number, and creates writers. Which files should exist is defined by
//! the manifest, not here.
//!
//! Invariant: a file is opened (and so verified) outside the lock; if two threads open it at once,
//! one reader is kept.

use crate::block_cache::BlockCache;
use crate::compression::Compression;
use crate::handle_cache::{FileHandleCache, HandleLimit};
use crate::klog::{KlogOptions, KlogReader, KlogSummary, KlogWriter};
use crate::limits::TABLE_BUFFER_BYTES;
use crate::vlog::{StreamedValueWriter, VlogReader, VlogWriter};
use perigee_base::{Bytes, Counters, Error, FileId, KeyComparator, Result};
use perigee_env::Dir;
use perigee_env::fs::OpenFileLimiter;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};

type ReaderMap<R> = RwLock<BTreeMap<FileId, Arc<R>>>;

/// The table files of one database directory.
#[derive(Debug)]
pub struct TableCache {
    dir: Arc<dyn Dir>,
    database: u64,
    cache: Arc<BlockCache>,
    counters: Arc<Counters>,
    klogs: ReaderMap<KlogReader>,
    vlogs: ReaderMap<VlogReader>,
    file_handles: Arc<FileHandleCache>,
    /// Memory of the open klog readers, in bytes: indexes and filters.
    klog_memory_bytes: AtomicU64,
    /// The part of `klog_memory_bytes` used by filters.
    filter_memory_bytes: AtomicU64,
    /// Bytes that a writer buffers before it appends to its file.
    buffer_bytes: usize,
}

impl TableCache {
    /// Creates an empty cache for the files of `dir`, without a limit on open files.
    pub fn new(
        dir: Arc<dyn Dir>,
        database: u64,
        cache: Arc<BlockCache>,
        counters: Arc<Counters>,
    ) -> TableCache {
        let handles = FileHandleCache::new(
            Arc::clone(&dir),
            HandleLimit::PerDirectory(usize::MAX),
            &OpenFileLimiter::default(),
        );
        Self::with_file_handles(dir, database, cache, counters, handles)
    }
    /// Like [`TableCache::new`]; files of `dir` are opened through `handles`.
    pub fn with_file_handles(
        dir: Arc<dyn Dir>,
        database: u64,
        cache: Arc<BlockCache>,
        counters: Arc<Counters>,
        handles: Arc<FileHandleCache>,
    ) -> TableCache {
        let (klogs, vlogs, klog_memory_bytes, filter_memory_bytes) = Default::default();
        let buffer_bytes = TABLE_BUFFER_BYTES;
        TableCache {
            dir,
            database,
            cache,
            counters,
            klogs,
            vlogs,
            file_handles: handles,
            klog_memory_bytes,
            filter_memory_bytes,
            buffer_bytes,
        }
    }
    /// Sets how many bytes writers buffer before they append, at most the default.
    #[must_use]
    pub fn with_buffer_bytes(self, bytes: usize) -> TableCache {
        TableCache { buffer_bytes: bytes.min(TABLE_BUFFER_BYTES), ..self }
    }

    /// Returns the reader of a klog; opens it at the first call.
    pub fn klog_reader(&self, id: FileId, bytes: u64) -> Result<Arc<KlogReader>> {
        let (reader, new) = get_or_open(&self.klogs, id, || {
            let (cache, counters) = (self.cache.clone(), self.counters.clone());
            KlogReader::open_cached(
                &self.file_handles,
                id,
                self.database,
                Bytes(bytes),
                cache,
                counters,
            )
        })?;
        if new {
            self.klog_memory_bytes.fetch_add(reader.memory_bytes(), Relaxed);
            self.filter_memory_bytes.fetch_add(reader.filter_bytes(), Relaxed);
        }
        check_same_length(id, reader.bytes(), bytes)?;
        Ok(reader)
    }

    /// Returns the reader of a vlog; opens it at the first call.
    pub fn vlog_reader(&self, id: FileId, bytes: u64) -> Result<Arc<VlogReader>> {
        let open = || {
            VlogReader::open_cached(
                &self.file_handles,
                id,
                self.database,
                Bytes(bytes),
                self.counters.clone(),
            )
        };
        let (reader, _) = get_or_open(&self.vlogs, id, open)?;
        check_same_length(id, reader.bytes(), bytes)?;
        Ok(reader)
    }

    /// Builds a reader for a klog that could not be opened: every read of a key in its range fails
    /// with `cause`.
    pub fn placeholder_klog(
        &self,
        id: FileId,
        summary: &KlogSummary,
        comparator: KeyComparator,
        cause: Error,
    ) -> Result<KlogReader> {
        let (cache, counters) = (self.cache.clone(), self.counters.clone());
        KlogReader::placeholder(id, self.database, summary, comparator, cause, cache, counters)
    }
    /// Builds a reader for a vlog that could not be opened: every read fails with `cause`.
    pub fn placeholder_vlog(&self, id: FileId, bytes: u64, cause: Error) -> VlogReader {
        VlogReader::placeholder(id, self.database, Bytes(bytes), cause, self.counters.clone())
    }

    /// Creates a klog writer; `options.database` is overwritten.
    pub fn klog_writer(&self, id: FileId, options: KlogOptions) -> Result<KlogWriter> {
        let options = KlogOptions { database: self.database, ..options };
        let mut writer = KlogWriter::create(&*self.dir, id, options)?;
        writer.set_buffer_bytes(self.buffer_bytes);
        Ok(writer)
    }
    /// Creates a vlog writer.
    pub fn vlog_writer(&self, id: FileId, compression: Compression) -> Result<VlogWriter> {
        let mut writer = VlogWriter::create(&*self.dir, id, self.database, compression)?;
        writer.set_buffer_bytes(self.buffer_bytes);
        Ok(writer)
    }
    /// Creates a writer of one value with a vlog of its own.
    pub fn streamed_value_writer(
        &self,
        id: FileId,
        compression: Compression,
    ) -> Result<StreamedValueWriter> {
        let mut writer =
            VlogWriter::create_for_one_value(&*self.dir, id, self.database, compression)?;
        writer.set_buffer_bytes(self.buffer_bytes);
        Ok(StreamedValueWriter::new(writer))
    }

    /// Drops the readers of a file and its cached blocks. A thread that still holds a reader can
    /// continue to use it.
    pub fn evict(&self, id: FileId) {
        if let Some(removed) =
            self.klogs.write().unwrap_or_else(PoisonError::into_inner).remove(&id)
        {
            self.klog_memory_bytes.fetch_sub(removed.memory_bytes(), Relaxed);
            self.filter_memory_bytes.fetch_sub(removed.filter_bytes(), Relaxed);
            removed.evict_blocks();
        }
        self.vlogs.write().unwrap_or_else(PoisonError::into_inner).remove(&id);
        self.file_handles.evict(id);
    }

    /// Returns the memory of the indexes, filters and block slots of all open tables, in bytes.
    pub fn resident_bytes(&self) -> u64 {
        self.klog_memory_bytes.load(Relaxed) + self.cache.slot_bytes()
    }
    /// Returns the part of [`TableCache::resident_bytes`] used by filters.
    pub fn filter_bytes(&self) -> u64 {
        self.filter_memory_bytes.load(Relaxed)
    }
    /// Returns the number of open klogs.
    pub fn open_table_count(&self) -> usize {
        self.klogs.read().unwrap_or_else(PoisonError::into_inner).len()
    }
    /// Returns the cache of file handles.
    pub fn file_handles(&self) -> &Arc<FileHandleCache> {
        &self.file_handles
    }

    /// Returns the directory.
    pub fn dir(&self) -> &Arc<dyn Dir> {
        &self.dir
    }
    /// Returns the block cache.
    pub fn cache(&self) -> &Arc<BlockCache> {
        &self.cache
    }
    /// Returns the counters.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }
    /// Returns the database id.
    pub fn database(&self) -> u64 {
        self.database
    }
}

/// Returns the cached reader or opens a new one; the flag is true if the new reader was cached.
fn get_or_open<R>(
    readers: &ReaderMap<R>,
    id: FileId,
    open: impl FnOnce() -> Result<R>,
) -> Result<(Arc<R>, bool)> {
    if let Some(r) = readers.read().unwrap_or_else(PoisonError::into_inner).get(&id) {
        return Ok((r.clone(), false));
    }
    let opened = Arc::new(open()?);
    let kept = readers
        .write()
        .unwrap_or_else(PoisonError::into_inner)
        .entry(id)
        .or_insert(opened.clone())
        .clone();
    let new = Arc::ptr_eq(&kept, &opened);
    Ok((kept, new))
}

/// Fails if the file was opened with another length. File numbers are never reused and files never
/// change, so this is a bug.
fn check_same_length(id: FileId, open: u64, requested: u64) -> Result<()> {
    if open == requested {
        return Ok(());
    }
    Err(Error::internal(format!("file {id} was opened with another length"))
        .expected(open, requested))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TestDir, TestEntry};
    use perigee_base::{ErrorKind, FamilyId, KeyComparator, SeqNo, checksum};

    #[test]
    fn readers_are_cached_until_evicted() {
        let cache = Arc::new(BlockCache::new(1 << 20));
        let tables = TableCache::new(TestDir::new(), 77, cache.clone(), Arc::default());
        let options = KlogOptions {
            database: 0,
            family: FamilyId(2),
            comparator: KeyComparator::Bytes,
            block_bytes: 4096,
            compression: Compression::Lz4,
            filter_bits: 10,
        };
        let mut w = tables.klog_writer(FileId(1), options).unwrap();
        w.add(TestEntry::put(b"k", 1, b"v").as_ref()).unwrap();
        let s = w.finish().unwrap();
        let a = tables.klog_reader(FileId(1), s.bytes).unwrap();
        assert!(Arc::ptr_eq(&a, &tables.klog_reader(FileId(1), s.bytes).unwrap()));
        assert!(a.get(b"k", checksum::key_hash(b"k"), SeqNo::MAX).unwrap().is_some());
        assert!(cache.used_bytes() > 0);
        tables.evict(FileId(1));
        assert_eq!(cache.used_bytes(), 0);
        assert!(!Arc::ptr_eq(&a, &tables.klog_reader(FileId(1), s.bytes).unwrap()));
        tables.evict(FileId(1));
        assert!(tables.klog_reader(FileId(1), s.bytes + 1).unwrap_err().is_corruption());
        assert_eq!(tables.vlog_reader(FileId(1), 72).unwrap_err().kind(), ErrorKind::NotFound);
        let mut w = tables.vlog_writer(FileId(2), Compression::None).unwrap();
        let p = w.append(b"value").unwrap();
        let s = w.finish().unwrap();
        assert_eq!(
            &tables.vlog_reader(FileId(2), s.bytes).unwrap().read(&p).unwrap()[..],
            b"value"
        );
    }
}
