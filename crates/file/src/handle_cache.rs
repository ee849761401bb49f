//! A bounded cache of open file handles for one directory.
//!
//! Up to half of the limit are pinned: they stay open as long as their readers, which use them
//! without taking the cache lock. (They are closed early only if the process runs out of file
//! descriptors and nothing else is idle.) Readers of all other files look up the handle at each
//! read from disk; when too many files are open, those not used recently are closed (CLOCK). The
//! limit applies to this directory, or to all databases of the process together ([`HandleLimit`]).
//! Independent of file contents.
//!
//! Invariants:
//! 1. A file in use is not closed, so the limit can be exceeded while more files are in use at
//!    once.
//! 2. Files are opened and closed outside the lock.
//! 3. Under a process-wide limit each open file is counted exactly once, by the code that adds it
//!    to or removes it from the maps.

use perigee_base::{FileId, Result};
use perigee_env::fs::{IdleFileHolder, OpenFileLimiter};
use perigee_env::{Dir, RandomAccessFile};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};

/// The open files of one directory.
#[derive(Debug)]
pub struct FileHandleCache {
    dir: Arc<dyn Dir>,
    limit: HandleLimit,
    open_files: Mutex<OpenHandles>,
    files_opened: AtomicU64,
}

/// Limit on the number of open files.
#[derive(Clone, Debug)]
pub enum HandleLimit {
    /// At most this many files (at least one) of this directory, whatever other databases have
    /// open.
    PerDirectory(usize),
    /// All databases of the process share one limit.
    ProcessWide(Arc<OpenFileLimiter>),
}

#[derive(Debug, Default)]
struct OpenHandles {
    /// Pinned files, by pin id.
    pinned: BTreeMap<u64, Arc<PinnedFileSlot>>,
    /// The next pin id.
    next_pin_id: u64,
    /// Unpinned files, each with its CLOCK reference bit.
    files: BTreeMap<FileId, (Arc<dyn RandomAccessFile>, bool)>,
    /// The order in which the CLOCK hand visits the files.
    clock_queue: VecDeque<FileId>,
    /// The database is closed: nothing is open, and nothing will be opened.
    closed: bool,
}

/// A pinned file; `None` while it is being opened, and after it was closed to free descriptors. The
/// lock guards only the pointer.
type PinnedFileSlot = RwLock<Option<Arc<dyn RandomAccessFile>>>;

/// Takes the file out of the slot unless it is in use.
fn take_idle(slot: &PinnedFileSlot) -> Option<Arc<dyn RandomAccessFile>> {
    let mut slot = slot.write().unwrap_or_else(PoisonError::into_inner);
    slot.take_if(|file| Arc::strong_count(file) == 1)
}

/// A file that stays open as long as its reader.
#[derive(Debug)]
pub struct PinnedFile {
    slot: Arc<PinnedFileSlot>,
    pin_id: u64,
    cache: Arc<FileHandleCache>,
}

impl PinnedFile {
    /// Returns the file unless it was closed to free descriptors.
    #[inline]
    pub fn file(&self) -> Option<Arc<dyn RandomAccessFile>> {
        self.slot.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
    /// Returns the cache, which reopens the file if it was closed.
    pub fn cache(&self) -> &FileHandleCache {
        &self.cache
    }
}

impl Drop for PinnedFile {
    fn drop(&mut self) {
        let removed = self.cache.lock().pinned.remove(&self.pin_id);
        self.cache.count_unpinned(usize::from(removed.is_some()));
    }
}

impl FileHandleCache {
    /// Creates a cache for files of `dir`, and registers it with `files`, which may close its idle
    /// files.
    pub fn new(
        dir: Arc<dyn Dir>,
        limit: HandleLimit,
        files: &OpenFileLimiter,
    ) -> Arc<FileHandleCache> {
        let handles = Arc::new(FileHandleCache {
            dir,
            limit,
            open_files: Mutex::default(),
            files_opened: AtomicU64::new(0),
        });
        let weak: Weak<FileHandleCache> = Arc::downgrade(&handles);
        files.register(weak);
        handles
    }

    fn lock(&self) -> MutexGuard<'_, OpenHandles> {
        self.open_files.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Returns the limit that applies to this directory alone.
    fn directory_limit(&self) -> usize {
        match &self.limit {
            HandleLimit::PerDirectory(files) => (*files).max(1),
            HandleLimit::ProcessWide(_) => usize::MAX,
        }
    }
    fn process_limiter(&self) -> Option<&OpenFileLimiter> {
        match &self.limit {
            HandleLimit::PerDirectory(_) => None,
            HandleLimit::ProcessWide(files) => Some(files),
        }
    }

    /// Returns the file, opening it if necessary.
    pub fn get_or_open(&self, id: FileId, name: &str) -> Result<Arc<dyn RandomAccessFile>> {
        if let Some((file, touched)) = self.lock().files.get_mut(&id) {
            *touched = true;
            return Ok(Arc::clone(file));
        }
        let file = self.open_file(name)?;
        // Counted before another thread can find the file in the map and remove it.
        self.process_limiter().into_iter().for_each(|files| files.count_opened(1));
        let mut open = self.lock();
        if open.closed || open.files.contains_key(&id) {
            drop(open);
            self.count_closed(1);
            return Ok(file);
        }
        let closing = open.insert(id, &file, self.directory_limit());
        drop(open);
        drop(closing);
        self.process_limiter().into_iter().for_each(OpenFileLimiter::enforce_limit);
        Ok(file)
    }

    /// Opens the file and pins it; returns `None` if half of the limit is already pinned.
    pub fn pin(self: &Arc<Self>, name: &str) -> Result<Option<PinnedFile>> {
        let mut open = self.lock();
        if open.closed
            || open.pinned.len() >= self.directory_limit() / 2
            || !self.process_limiter().is_none_or(OpenFileLimiter::try_pin)
        {
            return Ok(None);
        }
        let (slot, pin_id) = (Arc::<PinnedFileSlot>::default(), open.next_pin_id);
        open.next_pin_id += 1;
        let before = open.pinned.insert(pin_id, Arc::clone(&slot));
        check!(before.is_none(), "a pin has a number of its own", pin_id);
        let closing = open.evict_idle_to_limit(self.directory_limit());
        drop(open);
        drop(closing);
        let pinned = PinnedFile { slot, pin_id, cache: Arc::clone(self) };
        self.process_limiter().into_iter().for_each(OpenFileLimiter::enforce_limit);
        let file = self.open_file(name)?;
        *pinned.slot.write().unwrap_or_else(PoisonError::into_inner) = Some(file);
        Ok(Some(pinned))
    }

    /// Counts pinned files that are now closed.
    fn count_unpinned(&self, files: usize) {
        self.process_limiter().into_iter().for_each(|shared| shared.unpin(files));
    }

    fn open_file(&self, name: &str) -> Result<Arc<dyn RandomAccessFile>> {
        let file = self.dir.open(name).map_err(|e| e.in_file(name))?;
        self.files_opened.fetch_add(1, Relaxed);
        Ok(file)
    }

    /// Counts files that are now closed.
    fn count_closed(&self, files: usize) {
        self.process_limiter().into_iter().for_each(|shared| shared.count_closed(files));
    }

    /// Closes a file that is no longer needed; a pinned file stays open with its reader.
    pub fn evict(&self, id: FileId) {
        let removed = self.lock().files.remove(&id);
        self.count_closed(usize::from(removed.is_some()));
    }
    /// Drops all handles when the directory is closed. Files still pinned by readers no longer
    /// count.
    pub fn close_all(&self) {
        let mut open = self.lock();
        if std::mem::replace(&mut open.closed, true) {
            return;
        }
        let (unpinned, pinned) =
            (std::mem::take(&mut open.files), std::mem::take(&mut open.pinned));
        drop(open);
        self.count_closed(unpinned.len());
        self.count_unpinned(pinned.len());
    }
    /// Returns the number of open files.
    pub fn open_count(&self) -> usize {
        let open = self.lock();
        open.files.len() + open.pinned.len()
    }
    /// Returns the limit: that of all databases of the process together if they share one.
    pub fn limit(&self) -> usize {
        self.process_limiter().map_or(self.directory_limit(), OpenFileLimiter::limit)
    }
    /// Returns how often a file was opened.
    pub fn files_opened(&self) -> u64 {
        self.files_opened.load(Relaxed)
    }
}

impl IdleFileHolder for FileHandleCache {
    fn idle_count(&self) -> usize {
        self.open_count()
    }
    fn close_idle(&self, n: usize) -> usize {
        let mut open = self.lock();
        let total = open.files.len() + open.pinned.len();
        let closing = open.evict_idle_to_limit(total.saturating_sub(n));
        let mut pinned = Vec::new();
        if closing.len() < n {
            open.pinned.retain(|_, slot| {
                let idle = if closing.len() + pinned.len() < n { take_idle(slot) } else { None };
                idle.is_none_or(|file| {
                    pinned.push(file);
                    false
                })
            });
        }
        drop(open);
        self.count_closed(closing.len());
        self.count_unpinned(pinned.len());
        check!(
            closing.len() + pinned.len() <= n.max(closing.len()),
            "no more pinned files are closed than requested",
            n
        );
        closing.len() + pinned.len()
    }
}

impl Drop for FileHandleCache {
    fn drop(&mut self) {
        self.close_all();
    }
}

impl OpenHandles {
    /// Adds a file; returns the files that were evicted for it.
    fn insert(
        &mut self,
        id: FileId,
        file: &Arc<dyn RandomAccessFile>,
        limit: usize,
    ) -> Vec<Arc<dyn RandomAccessFile>> {
        let closing = self.evict_idle_to_limit(limit.saturating_sub(1));
        let before = self.files.insert(id, (Arc::clone(file), false));
        check!(before.is_none(), "a file has one handle in the cache", id);
        self.clock_queue.push_back(id);
        check!(
            self.clock_queue.len() >= self.files.len(),
            "every cached handle is in the queue of the clock",
            self.files.len()
        );
        closing
    }

    /// Removes files that are not in use until at most `limit` are open; returns them.
    fn evict_idle_to_limit(&mut self, limit: usize) -> Vec<Arc<dyn RandomAccessFile>> {
        let mut closing = Vec::new();
        // Two passes: the first clears every reference bit.
        let mut steps = self.clock_queue.len() * 2;
        while self.files.len() + self.pinned.len() > limit && steps > 0 {
            steps -= 1;
            let Some(next) = self.clock_queue.pop_front() else { break };
            match self.files.get_mut(&next) {
                None => {}
                Some((file, touched)) if *touched || Arc::strong_count(file) > 1 => {
                    *touched = false;
                    self.clock_queue.push_back(next);
                }
                Some(_) => closing.extend(self.files.remove(&next).map(|(file, _)| file)),
            }
        }
        closing
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestDir;

    fn with_directory_limit(dir: Arc<dyn Dir>, limit: usize) -> Arc<FileHandleCache> {
        FileHandleCache::new(dir, HandleLimit::PerDirectory(limit), &OpenFileLimiter::default())
    }

    #[test]
    fn directories_share_process_wide_limit() {
        let files = Arc::new(OpenFileLimiter::default());
        files.set_limit(8);
        let all: Vec<_> = (0..3)
            .map(|_| {
                let dir = TestDir::new();
                (0..20).for_each(|i| drop(dir.create(&format!("{i}")).unwrap()));
                FileHandleCache::new(dir, HandleLimit::ProcessWide(Arc::clone(&files)), &files)
            })
            .collect();
        let open = || all.iter().map(|h| h.open_count()).sum::<usize>();
        for i in 0..20 {
            all[0].get_or_open(FileId(i), &format!("{i}")).unwrap();
        }
        assert_eq!((open(), all[0].limit()), (8, 8), "a single directory may use the whole limit");
        for i in 0..20 {
            for handles in &all {
                handles.get_or_open(FileId(i), &format!("{i}")).unwrap();
                assert!(open() <= 8);
            }
        }
        assert!(
            all.iter().all(|h| (1..=4).contains(&h.open_count())),
            "files of the directories with the most open ones were closed"
        );
        let pinned: Vec<_> = (0..3).filter_map(|i| all[i].pin("0").unwrap()).collect();
        assert_eq!((pinned.len(), open()), (3, 8), "unpinned files were closed");
        let more = [all[0].pin("1").unwrap(), all[1].pin("1").unwrap()];
        assert!(more[0].is_some() && more[1].is_none(), "at most half of the limit may be pinned");
        all[0].close_all();
        assert!(all[0].open_count() == 0 && all[0].pin("2").unwrap().is_none());
        assert!(all[1].pin("2").unwrap().is_some(), "closed files do not count");
        drop((pinned, more));
        drop(all);
        for _ in 0..4 {
            assert!(files.try_pin(), "the whole limit is free again");
        }
        assert!(!files.try_pin());
    }

    #[test]
    fn idle_files_are_reclaimed() {
        let dir = TestDir::new();
        (0..20).for_each(|i| drop(dir.create(&format!("{i}")).unwrap()));
        let files = OpenFileLimiter::default();
        let handles = FileHandleCache::new(dir, HandleLimit::PerDirectory(100), &files);
        let in_use = handles.get_or_open(FileId(0), "0").unwrap();
        for i in 0..10 {
            handles.get_or_open(FileId(i), &format!("{i}")).unwrap();
        }
        assert_eq!((files.close_idle_files(4), handles.open_count()), (4, 6));
        assert_eq!(
            (files.close_idle_files(100), handles.open_count()),
            (5, 1),
            "the file in use stays open"
        );
        drop(in_use);
        assert_eq!((files.close_idle_files(100), files.close_idle_files(100)), (1, 0));
        // Pinned files are closed last, and are reopened on demand.
        let pinned: Vec<_> = (0..3).filter_map(|i| handles.pin(&format!("{i}")).unwrap()).collect();
        handles.get_or_open(FileId(9), "9").unwrap();
        let in_use = pinned[1].file();
        assert_eq!((files.close_idle_files(1), handles.open_count()), (1, 3));
        assert_eq!((files.close_idle_files(100), handles.open_count()), (2, 1));
        assert!(pinned[0].file().is_none() && in_use.is_some() && pinned[1].file().is_some());
        pinned[0].cache().get_or_open(FileId(0), "0").unwrap();
        drop((pinned, in_use));
        assert_eq!(handles.open_count(), 1);
    }

    #[test]
    fn limit_holds_except_for_files_in_use() {
        let dir = TestDir::new();
        for i in 0..20 {
            dir.create(&format!("{i}")).unwrap();
        }
        let handles = with_directory_limit(dir, 4);
        let in_use = handles.get_or_open(FileId(0), "0").unwrap();
        for round in 0..3 {
            for i in 1..20 {
                handles.get_or_open(FileId(i), &format!("{i}")).unwrap();
                assert!(handles.open_count() <= 4, "round {round}");
            }
        }
        let before = handles.files_opened();
        assert!(
            Arc::ptr_eq(&in_use, &handles.get_or_open(FileId(0), "0").unwrap()),
            "it stayed open"
        );
        assert_eq!(handles.files_opened(), before);
        let many: Vec<_> =
            (1..10).map(|i| handles.get_or_open(FileId(i), &format!("{i}")).unwrap()).collect();
        assert!(handles.open_count() >= many.len(), "the limit is exceeded while files are in use");
        drop((many, in_use));
        handles.get_or_open(FileId(11), "11").unwrap();
        assert!(handles.open_count() <= 4);
        handles.evict(FileId(11));
        assert!(handles.get_or_open(FileId(30), "30").is_err());
    }

    #[test]
    fn at_most_half_of_limit_may_be_pinned() {
        let dir = TestDir::new();
        for i in 0..20 {
            dir.create(&format!("{i}")).unwrap();
        }
        let handles = with_directory_limit(dir, 4);
        for i in 0..4 {
            handles.get_or_open(FileId(i), &format!("{i}")).unwrap();
        }
        let pin = |i: u64| handles.pin(&format!("{i}")).unwrap();
        let pinned = [pin(10), pin(11)];
        assert!(pinned.iter().all(Option::is_some) && pin(12).is_none());
        assert_eq!(handles.open_count(), 4, "unpinned files were closed");
        for i in 0..20 {
            handles.get_or_open(FileId(i), &format!("{i}")).unwrap();
            assert!(handles.open_count() <= 4);
        }
        drop(pinned);
        assert!(
            handles.pin("30").is_err() && handles.open_count() == 2,
            "a file that could not be opened does not count"
        );
        assert!(pin(13).is_some());
        assert!(with_directory_limit(TestDir::new(), 1).pin("0").unwrap().is_none());
    }

    #[test]
    fn recently_used_file_stays_open() {
        let dir = TestDir::new();
        for i in 0..200 {
            dir.create(&format!("{i}")).unwrap();
        }
        let handles = with_directory_limit(dir, 4);
        for i in 1..200 {
            handles.get_or_open(FileId(0), "0").unwrap();
            handles.get_or_open(FileId(i), &format!("{i}")).unwrap();
        }
        assert_eq!(handles.files_opened(), 200, "file 0 was opened once");
    }
}
