//! Open files, bounded. Half of them stay open as long as their readers, who then find them without
//! asking anybody (unless the process runs out of files and nothing else is idle); the readers of
//! all others ask here at each read from disk, and files that were not asked for lately are closed
//! when there are too many: in this directory, or in all databases of the process together
//! ([`HandleLimit`]). Must not know what the bytes mean.
//!
//! Invariants: 1. a file in use is not closed, so there may be more than the limit while more are
//! in use at once;
//! 2. files are opened and closed outside the lock; 3. what is open under a shared limit is counted
//!    there once, by whoever adds it to, or takes it out of, the list.

use perigee_base::{FileId, Result};
use perigee_env::fs::open_file_limiter::{IdleFileHolder, OpenFileLimiter};
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

/// How many files may be open.
#[derive(Clone, Debug)]
pub enum HandleLimit {
    /// So many of this directory (at least one), whatever others have open.
    PerDirectory(usize),
    /// What all databases of the process have open together stays within their limit.
    ProcessWide(Arc<OpenFileLimiter>),
}

#[derive(Debug, Default)]
struct OpenHandles {
    /// Files that stay open with their readers, by number.
    pinned: BTreeMap<u64, Arc<PinnedFileSlot>>,
    /// The number of the next.
    next_pin_id: u64,
    /// The others, each with whether it was asked for since the hand passed.
    files: BTreeMap<FileId, (Arc<dyn RandomAccessFile>, bool)>,
    /// The order in which the hand passes.
    clock_queue: VecDeque<FileId>,
    /// Nothing is open any more, nor will be: the database is closed.
    closed: bool,
}

/// A file that stays open; nothing while it is being opened, and after it was closed for others.
/// The lock guards the pointer.
type PinnedFileSlot = RwLock<Option<Arc<dyn RandomAccessFile>>>;

/// Closes the file, unless it is in use.
fn take_idle(slot: &PinnedFileSlot) -> Option<Arc<dyn RandomAccessFile>> {
    let mut slot = slot.write().unwrap_or_else(PoisonError::into_inner);
    slot.take_if(|file| Arc::strong_count(file) == 1)
}

/// A file that stays open with its reader.
#[derive(Debug)]
pub struct PinnedFile {
    slot: Arc<PinnedFileSlot>,
    pin_id: u64,
    cache: Arc<FileHandleCache>,
}

impl PinnedFile {
    /// The file, if it was not closed for others.
    #[inline]
    pub fn file(&self) -> Option<Arc<dyn RandomAccessFile>> {
        self.slot.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
    /// Where the file is found then.
    pub fn cache(&self) -> &FileHandleCache {
        &self.cache
    }
}

impl Drop for PinnedFile {
    fn drop(&mut self) {
        let gone = self.cache.lock().pinned.remove(&self.pin_id);
        self.cache.count_unpinned(usize::from(gone.is_some()));
    }
}

impl FileHandleCache {
    /// For files of `dir`. Those that are idle are closed when `files` of them all must give way.
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
    /// The limit of this directory alone.
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

    /// The file, opened if it is not open.
    pub fn get_or_open(&self, id: FileId, name: &str) -> Result<Arc<dyn RandomAccessFile>> {
        if let Some((file, touched)) = self.lock().files.get_mut(&id) {
            *touched = true;
            return Ok(Arc::clone(file));
        }
        let file = self.open_file(name)?;
        // Counted before anybody can find it, and take it out.
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

    /// The file, opened to stay so, if less than half of the files do.
    pub fn pin(self: &Arc<Self>, name: &str) -> Result<Option<PinnedFile>> {
        let mut open = self.lock();
        if open.closed
            || open.pinned.len() >= self.directory_limit() / 2
            || !self.process_limiter().is_none_or(OpenFileLimiter::try_pin)
        {
            return Ok(None);
        }
        let (slot, number) = (Arc::<PinnedFileSlot>::default(), open.next_pin_id);
        open.next_pin_id += 1;
        open.pinned.insert(number, Arc::clone(&slot));
        let closing = open.make_room(self.directory_limit());
        drop(open);
        drop(closing);
        let kept = PinnedFile { slot, pin_id: number, cache: Arc::clone(self) };
        self.process_limiter().into_iter().for_each(OpenFileLimiter::enforce_limit);
        let file = self.open_file(name)?;
        *kept.slot.write().unwrap_or_else(PoisonError::into_inner) = Some(file);
        Ok(Some(kept))
    }

    /// Counts files that stayed open and are closed now.
    fn count_unpinned(&self, files: usize) {
        self.process_limiter().into_iter().for_each(|shared| shared.unpin(files));
    }

    fn open_file(&self, name: &str) -> Result<Arc<dyn RandomAccessFile>> {
        let file = self.dir.open(name).map_err(|e| e.in_file(name))?;
        self.files_opened.fetch_add(1, Relaxed);
        Ok(file)
    }

    /// Counts files that are closed now.
    fn count_closed(&self, files: usize) {
        self.process_limiter().into_iter().for_each(|shared| shared.count_closed(files));
    }

    /// Closes a file that will not be asked for again, unless its reader keeps it.
    pub fn evict(&self, id: FileId) {
        let gone = self.lock().files.remove(&id);
        self.count_closed(usize::from(gone.is_some()));
    }
    /// Forgets every file, when the directory is closed; files that stay with their readers do not
    /// count any more.
    pub fn close_all(&self) {
        let mut open = self.lock();
        if std::mem::replace(&mut open.closed, true) {
            return;
        }
        let (gone, kept) = (std::mem::take(&mut open.files), std::mem::take(&mut open.pinned));
        drop(open);
        self.count_closed(gone.len());
        self.count_unpinned(kept.len());
    }
    /// How many are open.
    pub fn open_count(&self) -> usize {
        let open = self.lock();
        open.files.len() + open.pinned.len()
    }
    /// How many are kept open at most, of all databases of the process where they share a limit.
    pub fn limit(&self) -> usize {
        self.process_limiter().map_or(self.directory_limit(), OpenFileLimiter::limit)
    }
    /// How often a file was opened.
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
        let all = open.files.len() + open.pinned.len();
        let closing = open.make_room(all.saturating_sub(n));
        let mut kept = Vec::new();
        if closing.len() < n {
            open.pinned.retain(|_, slot| {
                let idle = if closing.len() + kept.len() < n { take_idle(slot) } else { None };
                idle.is_none_or(|file| {
                    kept.push(file);
                    false
                })
            });
        }
        drop(open);
        self.count_closed(closing.len());
        self.count_unpinned(kept.len());
        closing.len() + kept.len()
    }
}

impl Drop for FileHandleCache {
    fn drop(&mut self) {
        self.close_all();
    }
}

impl OpenHandles {
    /// Adds a file; returns those that give way.
    fn insert(
        &mut self,
        id: FileId,
        file: &Arc<dyn RandomAccessFile>,
        limit: usize,
    ) -> Vec<Arc<dyn RandomAccessFile>> {
        let closing = self.make_room(limit.saturating_sub(1));
        self.files.insert(id, (Arc::clone(file), false));
        self.clock_queue.push_back(id);
        closing
    }

    /// Takes files out until there are at most `limit`, but for those in use; returns them.
    fn make_room(&mut self, limit: usize) -> Vec<Arc<dyn RandomAccessFile>> {
        let mut closing = Vec::new();
        // Two rounds: the first clears every mark.
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
        assert_eq!((open(), all[0].limit()), (8, 8), "one alone has all of it");
        for i in 0..20 {
            for handles in &all {
                handles.get_or_open(FileId(i), &format!("{i}")).unwrap();
                assert!(open() <= 8);
            }
        }
        assert!(
            all.iter().all(|h| (1..=4).contains(&h.open_count())),
            "those with the most gave way"
        );
        let kept: Vec<_> = (0..3).filter_map(|i| all[i].pin("0").unwrap()).collect();
        assert_eq!((kept.len(), open()), (3, 8), "others gave way");
        let more = [all[0].pin("1").unwrap(), all[1].pin("1").unwrap()];
        assert!(more[0].is_some() && more[1].is_none(), "half of the limit at most");
        all[0].close_all();
        assert!(all[0].open_count() == 0 && all[0].pin("2").unwrap().is_none());
        assert!(all[1].pin("2").unwrap().is_some(), "what was closed does not count");
        drop((kept, more));
        drop(all);
        for _ in 0..4 {
            assert!(files.try_pin(), "all of it is free again");
        }
        assert!(!files.try_pin());
    }

    #[test]
    fn idle_files_are_reclaimed() {
        let dir = TestDir::new();
        (0..20).for_each(|i| drop(dir.create(&format!("{i}")).unwrap()));
        let files = OpenFileLimiter::default();
        let handles = FileHandleCache::new(dir, HandleLimit::PerDirectory(100), &files);
        let used = handles.get_or_open(FileId(0), "0").unwrap();
        for i in 0..10 {
            handles.get_or_open(FileId(i), &format!("{i}")).unwrap();
        }
        assert_eq!((files.close_idle_files(4), handles.open_count()), (4, 6));
        assert_eq!(
            (files.close_idle_files(100), handles.open_count()),
            (5, 1),
            "not the one in use"
        );
        drop(used);
        assert_eq!((files.close_idle_files(100), files.close_idle_files(100)), (1, 0));
        // Those that stay with their readers come last, and are found again when they are asked
        // for.
        let kept: Vec<_> = (0..3).filter_map(|i| handles.pin(&format!("{i}")).unwrap()).collect();
        handles.get_or_open(FileId(9), "9").unwrap();
        let used = kept[1].file();
        assert_eq!((files.close_idle_files(1), handles.open_count()), (1, 3));
        assert_eq!((files.close_idle_files(100), handles.open_count()), (2, 1));
        assert!(kept[0].file().is_none() && used.is_some() && kept[1].file().is_some());
        kept[0].cache().get_or_open(FileId(0), "0").unwrap();
        drop((kept, used));
        assert_eq!(handles.open_count(), 1);
    }

    #[test]
    fn limit_holds_except_for_files_in_use() {
        let dir = TestDir::new();
        for i in 0..20 {
            dir.create(&format!("{i}")).unwrap();
        }
        let handles = with_directory_limit(dir, 4);
        let used = handles.get_or_open(FileId(0), "0").unwrap();
        for round in 0..3 {
            for i in 1..20 {
                handles.get_or_open(FileId(i), &format!("{i}")).unwrap();
                assert!(handles.open_count() <= 4, "round {round}");
            }
        }
        let before = handles.files_opened();
        assert!(Arc::ptr_eq(&used, &handles.get_or_open(FileId(0), "0").unwrap()), "it was in use");
        assert_eq!(handles.files_opened(), before);
        let many: Vec<_> =
            (1..10).map(|i| handles.get_or_open(FileId(i), &format!("{i}")).unwrap()).collect();
        assert!(handles.open_count() >= many.len(), "more than the limit while in use");
        drop((many, used));
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
        let keep = |i: u64| handles.pin(&format!("{i}")).unwrap();
        let kept = [keep(10), keep(11)];
        assert!(kept.iter().all(Option::is_some) && keep(12).is_none());
        assert_eq!(handles.open_count(), 4, "others gave way");
        for i in 0..20 {
            handles.get_or_open(FileId(i), &format!("{i}")).unwrap();
            assert!(handles.open_count() <= 4);
        }
        drop(kept);
        assert!(
            handles.pin("30").is_err() && handles.open_count() == 2,
            "what could not be opened does not count"
        );
        assert!(keep(13).is_some());
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
