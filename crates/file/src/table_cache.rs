//! The shelf: the door of this crate. Opens readers once and keeps them by file number, hands out
//! writers. Must not know which files should exist: that is the manifest's.
//!
//! Invariant: a file is opened (and so verified) outside the lock; of two that open it at once one
//! reader stays.

use crate::block_cache::BlockCache;
use crate::compression::CompressionMethod;
use crate::handle_cache::{FileHandleCache, HandleLimit};
use crate::klog::{KlogOptions, KlogReader, KlogSummary, KlogWriter};
use crate::table_file_writer::BUFFER_BYTES;
use crate::vlog::{VlogReader, VlogWriter};
use perigee_base::stats::Counters;
use perigee_base::{Error, FileId, KeyComparator, Result};
use perigee_env::Dir;
use perigee_env::fs::open_file_limiter::OpenFileLimiter;
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
    /// Bytes that the klog readers hold: indexes and filters.
    klog_memory_bytes: AtomicU64,
    /// The filters' part of it.
    filter_memory_bytes: AtomicU64,
    /// Bytes that writers gather.
    buffer_bytes: usize,
}

impl TableCache {
    /// An empty shelf over `dir`.
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
    /// The same, with files of `dir` that are opened through `handles`.
    pub fn with_file_handles(
        dir: Arc<dyn Dir>,
        database: u64,
        cache: Arc<BlockCache>,
        counters: Arc<Counters>,
        handles: Arc<FileHandleCache>,
    ) -> TableCache {
        let (klogs, vlogs, resident, filters) = Default::default();
        let buffer_bytes = BUFFER_BYTES;
        TableCache {
            dir,
            database,
            cache,
            counters,
            klogs,
            vlogs,
            file_handles: handles,
            klog_memory_bytes: resident,
            filter_memory_bytes: filters,
            buffer_bytes,
        }
    }
    /// The same; writers gather at most so many bytes before they call the file system.
    #[must_use]
    pub fn with_buffer_bytes(self, bytes: usize) -> TableCache {
        TableCache { buffer_bytes: bytes.min(BUFFER_BYTES), ..self }
    }

    /// The reader of a klog, opened at the first call.
    pub fn klog_reader(&self, id: FileId, bytes: u64) -> Result<Arc<KlogReader>> {
        let (reader, new) = get_or_open(&self.klogs, id, || {
            let (cache, counters) = (self.cache.clone(), self.counters.clone());
            KlogReader::open_cached(&self.file_handles, id, self.database, bytes, cache, counters)
        })?;
        if new {
            self.klog_memory_bytes.fetch_add(reader.memory_bytes(), Relaxed);
            self.filter_memory_bytes.fetch_add(reader.filter_bytes(), Relaxed);
        }
        check_same_length(id, reader.summary().bytes, bytes)?;
        Ok(reader)
    }

    /// The reader of a vlog, opened at the first call.
    pub fn vlog_reader(&self, id: FileId, bytes: u64) -> Result<Arc<VlogReader>> {
        let open = || {
            VlogReader::open_cached(
                &self.file_handles,
                id,
                self.database,
                bytes,
                self.counters.clone(),
            )
        };
        let (reader, _) = get_or_open(&self.vlogs, id, open)?;
        check_same_length(id, reader.bytes(), bytes)?;
        Ok(reader)
    }

    /// Stands for a klog that could not be opened: every key in its range answers with the reason.
    pub fn placeholder_klog(
        &self,
        id: FileId,
        summary: &KlogSummary,
        order: KeyComparator,
        why: Error,
    ) -> Result<KlogReader> {
        let shared = (self.cache.clone(), self.counters.clone());
        KlogReader::placeholder((id, self.database), summary, order, why, shared)
    }
    /// Stands for a vlog that could not be opened.
    pub fn placeholder_vlog(&self, id: FileId, bytes: u64, why: Error) -> VlogReader {
        VlogReader::placeholder(id, self.database, bytes, why, self.counters.clone())
    }

    /// A writer of a new klog; `options.database` is filled in.
    pub fn klog_writer(&self, id: FileId, options: KlogOptions) -> Result<KlogWriter> {
        let options = KlogOptions { database: self.database, ..options };
        let mut writer = KlogWriter::create(&*self.dir, id, options)?;
        writer.set_buffer_bytes(self.buffer_bytes);
        Ok(writer)
    }
    /// A writer of a new vlog.
    pub fn vlog_writer(&self, id: FileId, compression: CompressionMethod) -> Result<VlogWriter> {
        let mut writer = VlogWriter::create(&*self.dir, id, self.database, compression)?;
        writer.set_buffer_bytes(self.buffer_bytes);
        Ok(writer)
    }

    /// Drops a reader and its cached blocks. Whoever still holds the reader may go on with it.
    pub fn evict(&self, id: FileId) {
        if let Some(gone) = self.klogs.write().unwrap_or_else(PoisonError::into_inner).remove(&id) {
            self.klog_memory_bytes.fetch_sub(gone.memory_bytes(), Relaxed);
            self.filter_memory_bytes.fetch_sub(gone.filter_bytes(), Relaxed);
            gone.evict_blocks();
        }
        self.vlogs.write().unwrap_or_else(PoisonError::into_inner).remove(&id);
        self.file_handles.evict(id);
    }

    /// Bytes of the indexes and filters of all open tables.
    pub fn resident_bytes(&self) -> u64 {
        self.klog_memory_bytes.load(Relaxed) + self.cache.slot_bytes()
    }
    /// The filters' part of [`TableCache::resident_bytes`].
    pub fn filter_bytes(&self) -> u64 {
        self.filter_memory_bytes.load(Relaxed)
    }
    /// Tables that are open.
    pub fn open_table_count(&self) -> usize {
        self.klogs.read().unwrap_or_else(PoisonError::into_inner).len()
    }
    /// The open files.
    pub fn file_handles(&self) -> &Arc<FileHandleCache> {
        &self.file_handles
    }

    /// The directory.
    pub fn dir(&self) -> &Arc<dyn Dir> {
        &self.dir
    }
    /// The block cache.
    pub fn cache(&self) -> &Arc<BlockCache> {
        &self.cache
    }
    /// The counters.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }
    /// The database's id.
    pub fn database(&self) -> u64 {
        self.database
    }
}

/// The kept reader, or a new one; and whether it is new here.
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

/// Numbers are never reused and files never change, so two lengths for one number are a bug.
fn check_same_length(id: FileId, open: u64, asked: u64) -> Result<()> {
    if open == asked {
        return Ok(());
    }
    Err(Error::internal(format!("file {id} was opened with another length")).expected(open, asked))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TestDir, TestEntry};
    use perigee_base::{ErrorKind, FamilyId, KeyComparator, SeqNo, checksum};

    #[test]
    fn readers_are_cached_until_evicted() {
        let cache = Arc::new(BlockCache::new(1 << 20));
        let shelf = TableCache::new(TestDir::new(), 77, cache.clone(), Arc::default());
        let options = KlogOptions {
            database: 0,
            family: FamilyId(2),
            comparator: KeyComparator::Bytes,
            block_bytes: 4096,
            compression: CompressionMethod::Lz4,
            filter_bits: 10,
        };
        let mut w = shelf.klog_writer(FileId(1), options).unwrap();
        w.add(TestEntry::put(b"k", 1, b"v").as_ref()).unwrap();
        let s = w.finish().unwrap();
        let a = shelf.klog_reader(FileId(1), s.bytes).unwrap();
        assert!(Arc::ptr_eq(&a, &shelf.klog_reader(FileId(1), s.bytes).unwrap()));
        assert!(a.get(b"k", checksum::key_hash(b"k"), SeqNo::MAX).unwrap().is_some());
        assert!(cache.used_bytes() > 0);
        shelf.evict(FileId(1));
        assert_eq!(cache.used_bytes(), 0);
        assert!(!Arc::ptr_eq(&a, &shelf.klog_reader(FileId(1), s.bytes).unwrap()));
        shelf.evict(FileId(1));
        assert!(shelf.klog_reader(FileId(1), s.bytes + 1).unwrap_err().is_corruption());
        assert_eq!(shelf.vlog_reader(FileId(1), 72).unwrap_err().kind(), ErrorKind::NotFound);
        let mut w = shelf.vlog_writer(FileId(2), CompressionMethod::None).unwrap();
        let p = w.append(b"value").unwrap();
        let s = w.finish().unwrap();
        assert_eq!(&shelf.vlog_reader(FileId(2), s.bytes).unwrap().read(&p).unwrap()[..], b"value");
    }
}
