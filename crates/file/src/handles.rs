//! Open files, bounded. Half of them stay open as long as their readers, who then find them without asking anybody (unless the
//! process runs out of files and nothing else is idle); the readers of all others ask here at each read from disk, and files
//! that were not asked for lately are closed when there are too many: in this directory, or in all databases of the process together ([`Limit`]). Must not know what the bytes mean.
//!
//! Invariants: 1. a file in use is not closed, so there may be more than the limit while more are in use at once;
//! 2. files are opened and closed outside the lock; 3. what is open under a shared limit is counted there once, by
//! whoever adds it to, or takes it out of, the list.

use perigee_base::{FileId, Result};
use perigee_env::fs::open_files::{IdleFiles, OpenFiles};
use perigee_env::{Dir, ReadAt};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};

/// The open files of one directory.
#[derive(Debug)]
pub struct Handles {
    dir: Arc<dyn Dir>,
    limit: Limit,
    open: Mutex<Open>,
    opened: AtomicU64,
}

/// How many files may be open.
#[derive(Clone, Debug)]
pub enum Limit {
    /// So many of this directory (at least one), whatever others have open.
    Own(usize),
    /// What all databases of the process have open together stays within their limit.
    Shared(Arc<OpenFiles>),
}

#[derive(Debug, Default)]
struct Open {
    /// Files that stay open with their readers, by number.
    kept: BTreeMap<u64, Arc<Slot>>,
    /// The number of the next.
    next: u64,
    /// The others, each with whether it was asked for since the hand passed.
    files: BTreeMap<FileId, (Arc<dyn ReadAt>, bool)>,
    /// The order in which the hand passes.
    queue: VecDeque<FileId>,
    /// Nothing is open any more, nor will be: the database is closed.
    closed: bool,
}

/// A file that stays open; nothing while it is being opened, and after it was closed for others. The lock guards the pointer.
type Slot = RwLock<Option<Arc<dyn ReadAt>>>;

/// Closes the file, unless it is in use.
fn take_idle(slot: &Slot) -> Option<Arc<dyn ReadAt>> {
    let mut slot = slot.write().unwrap_or_else(PoisonError::into_inner);
    slot.take_if(|file| Arc::strong_count(file) == 1)
}

/// A file that stays open with its reader.
#[derive(Debug)]
pub struct Kept {
    slot: Arc<Slot>,
    number: u64,
    handles: Arc<Handles>,
}

impl Kept {
    /// The file, if it was not closed for others.
    #[inline]
    pub fn file(&self) -> Option<Arc<dyn ReadAt>> {
        self.slot.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
    /// Where the file is found then.
    pub fn handles(&self) -> &Handles {
        &self.handles
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let gone = self.handles.lock().kept.remove(&self.number);
        self.handles.released(usize::from(gone.is_some()));
    }
}

impl Handles {
    /// For files of `dir`. Those that are idle are closed when `files` of them all must give way.
    pub fn new(dir: Arc<dyn Dir>, limit: Limit, files: &OpenFiles) -> Arc<Handles> {
        let handles = Arc::new(Handles { dir, limit, open: Mutex::default(), opened: AtomicU64::new(0) });
        let weak: Weak<Handles> = Arc::downgrade(&handles);
        files.join(weak);
        handles
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// The limit of this directory alone.
    fn own(&self) -> usize {
        match &self.limit {
            Limit::Own(files) => (*files).max(1),
            Limit::Shared(_) => usize::MAX,
        }
    }
    fn shared(&self) -> Option<&OpenFiles> {
        match &self.limit {
            Limit::Own(_) => None,
            Limit::Shared(files) => Some(files),
        }
    }

    /// The file, opened if it is not open.
    pub fn file(&self, id: FileId, name: &str) -> Result<Arc<dyn ReadAt>> {
        if let Some((file, touched)) = self.lock().files.get_mut(&id) {
            *touched = true;
            return Ok(Arc::clone(file));
        }
        let file = self.open(name)?;
        // Counted before anybody can find it, and take it out.
        self.shared().into_iter().for_each(|files| files.add(1));
        let mut open = self.lock();
        if open.closed || open.files.contains_key(&id) {
            drop(open);
            self.gone(1);
            return Ok(file);
        }
        let closing = open.insert(id, &file, self.own());
        drop(open);
        drop(closing);
        self.shared().into_iter().for_each(OpenFiles::settle);
        Ok(file)
    }

    /// The file, opened to stay so, if less than half of the files do.
    pub fn keep(self: &Arc<Self>, name: &str) -> Result<Option<Kept>> {
        let mut open = self.lock();
        if open.closed || open.kept.len() >= self.own() / 2 || !self.shared().is_none_or(OpenFiles::keep) {
            return Ok(None);
        }
        let (slot, number) = (Arc::<Slot>::default(), open.next);
        open.next += 1;
        open.kept.insert(number, Arc::clone(&slot));
        let closing = open.make_room(self.own());
        drop(open);
        drop(closing);
        let kept = Kept { slot, number, handles: Arc::clone(self) };
        self.shared().into_iter().for_each(OpenFiles::settle);
        let file = self.open(name)?;
        *kept.slot.write().unwrap_or_else(PoisonError::into_inner) = Some(file);
        Ok(Some(kept))
    }

    /// Counts files that stayed open and are closed now.
    fn released(&self, files: usize) {
        self.shared().into_iter().for_each(|shared| shared.release(files));
    }

    fn open(&self, name: &str) -> Result<Arc<dyn ReadAt>> {
        let file = self.dir.open(name).map_err(|e| e.in_file(name))?;
        self.opened.fetch_add(1, Relaxed);
        Ok(file)
    }

    /// Counts files that are closed now.
    fn gone(&self, files: usize) {
        self.shared().into_iter().for_each(|shared| shared.sub(files));
    }

    /// Closes a file that will not be asked for again, unless its reader keeps it.
    pub fn forget(&self, id: FileId) {
        let gone = self.lock().files.remove(&id);
        self.gone(usize::from(gone.is_some()));
    }
    /// Forgets every file, when the directory is closed; files that stay with their readers do not count any more.
    pub fn close(&self) {
        let mut open = self.lock();
        if std::mem::replace(&mut open.closed, true) {
            return;
        }
        let (gone, kept) = (std::mem::take(&mut open.files), std::mem::take(&mut open.kept));
        drop(open);
        self.gone(gone.len());
        self.released(kept.len());
    }
    /// How many are open.
    pub fn count(&self) -> usize {
        let open = self.lock();
        open.files.len() + open.kept.len()
    }
    /// How many are kept open at most, of all databases of the process where they share a limit.
    pub fn limit(&self) -> usize {
        self.shared().map_or(self.own(), OpenFiles::limit)
    }
    /// How often a file was opened.
    pub fn opened(&self) -> u64 {
        self.opened.load(Relaxed)
    }
}

impl IdleFiles for Handles {
    fn idle(&self) -> usize {
        self.count()
    }
    fn close_idle(&self, n: usize) -> usize {
        let mut open = self.lock();
        let all = open.files.len() + open.kept.len();
        let closing = open.make_room(all.saturating_sub(n));
        let mut kept = Vec::new();
        if closing.len() < n {
            open.kept.retain(|_, slot| {
                let idle = if closing.len() + kept.len() < n { take_idle(slot) } else { None };
                idle.is_none_or(|file| {
                    kept.push(file);
                    false
                })
            });
        }
        drop(open);
        self.gone(closing.len());
        self.released(kept.len());
        closing.len() + kept.len()
    }
}

impl Drop for Handles {
    fn drop(&mut self) {
        self.close();
    }
}

impl Open {
    /// Adds a file; returns those that give way.
    fn insert(&mut self, id: FileId, file: &Arc<dyn ReadAt>, limit: usize) -> Vec<Arc<dyn ReadAt>> {
        let closing = self.make_room(limit.saturating_sub(1));
        self.files.insert(id, (Arc::clone(file), false));
        self.queue.push_back(id);
        closing
    }

    /// Takes files out until there are at most `limit`, but for those in use; returns them.
    fn make_room(&mut self, limit: usize) -> Vec<Arc<dyn ReadAt>> {
        let mut closing = Vec::new();
        // Two rounds: the first clears every mark.
        let mut steps = self.queue.len() * 2;
        while self.files.len() + self.kept.len() > limit && steps > 0 {
            steps -= 1;
            let Some(next) = self.queue.pop_front() else { break };
            match self.files.get_mut(&next) {
                None => {}
                Some((file, touched)) if *touched || Arc::strong_count(file) > 1 => {
                    *touched = false;
                    self.queue.push_back(next);
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

    fn own(dir: Arc<dyn Dir>, limit: usize) -> Arc<Handles> {
        Handles::new(dir, Limit::Own(limit), &OpenFiles::default())
    }

    #[test]
    fn several_directories_share_one_limit() {
        let files = Arc::new(OpenFiles::default());
        files.set_limit(8);
        let all: Vec<_> = (0..3)
            .map(|_| {
                let dir = TestDir::new();
                (0..20).for_each(|i| drop(dir.create(&format!("{i}")).unwrap()));
                Handles::new(dir, Limit::Shared(Arc::clone(&files)), &files)
            })
            .collect();
        let open = || all.iter().map(|h| h.count()).sum::<usize>();
        for i in 0..20 {
            all[0].file(FileId(i), &format!("{i}")).unwrap();
        }
        assert_eq!((open(), all[0].limit()), (8, 8), "one alone has all of it");
        for i in 0..20 {
            for handles in &all {
                handles.file(FileId(i), &format!("{i}")).unwrap();
                assert!(open() <= 8);
            }
        }
        assert!(all.iter().all(|h| (1..=4).contains(&h.count())), "those with the most gave way");
        let kept: Vec<_> = (0..3).filter_map(|i| all[i].keep("0").unwrap()).collect();
        assert_eq!((kept.len(), open()), (3, 8), "others gave way");
        let more = [all[0].keep("1").unwrap(), all[1].keep("1").unwrap()];
        assert!(more[0].is_some() && more[1].is_none(), "half of the limit at most");
        all[0].close();
        assert!(all[0].count() == 0 && all[0].keep("2").unwrap().is_none());
        assert!(all[1].keep("2").unwrap().is_some(), "what was closed does not count");
        drop((kept, more));
        drop(all);
        for _ in 0..4 {
            assert!(files.keep(), "all of it is free again");
        }
        assert!(!files.keep());
    }

    #[test]
    fn idle_files_are_closed_for_others() {
        let dir = TestDir::new();
        (0..20).for_each(|i| drop(dir.create(&format!("{i}")).unwrap()));
        let files = OpenFiles::default();
        let handles = Handles::new(dir, Limit::Own(100), &files);
        let used = handles.file(FileId(0), "0").unwrap();
        for i in 0..10 {
            handles.file(FileId(i), &format!("{i}")).unwrap();
        }
        assert_eq!((files.reclaim(4), handles.count()), (4, 6));
        assert_eq!((files.reclaim(100), handles.count()), (5, 1), "not the one in use");
        drop(used);
        assert_eq!((files.reclaim(100), files.reclaim(100)), (1, 0));
        // Those that stay with their readers come last, and are found again when they are asked for.
        let kept: Vec<_> = (0..3).filter_map(|i| handles.keep(&format!("{i}")).unwrap()).collect();
        handles.file(FileId(9), "9").unwrap();
        let used = kept[1].file();
        assert_eq!((files.reclaim(1), handles.count()), (1, 3));
        assert_eq!((files.reclaim(100), handles.count()), (2, 1));
        assert!(kept[0].file().is_none() && used.is_some() && kept[1].file().is_some());
        kept[0].handles().file(FileId(0), "0").unwrap();
        drop((kept, used));
        assert_eq!(handles.count(), 1);
    }

    #[test]
    fn few_stay_open_and_those_in_use_do() {
        let dir = TestDir::new();
        for i in 0..20 {
            dir.create(&format!("{i}")).unwrap();
        }
        let handles = own(dir, 4);
        let used = handles.file(FileId(0), "0").unwrap();
        for round in 0..3 {
            for i in 1..20 {
                handles.file(FileId(i), &format!("{i}")).unwrap();
                assert!(handles.count() <= 4, "round {round}");
            }
        }
        let before = handles.opened();
        assert!(Arc::ptr_eq(&used, &handles.file(FileId(0), "0").unwrap()), "it was in use");
        assert_eq!(handles.opened(), before);
        let many: Vec<_> = (1..10).map(|i| handles.file(FileId(i), &format!("{i}")).unwrap()).collect();
        assert!(handles.count() >= many.len(), "more than the limit while in use");
        drop((many, used));
        handles.file(FileId(11), "11").unwrap();
        assert!(handles.count() <= 4);
        handles.forget(FileId(11));
        assert!(handles.file(FileId(30), "30").is_err());
    }

    #[test]
    fn half_of_them_may_stay_with_their_readers() {
        let dir = TestDir::new();
        for i in 0..20 {
            dir.create(&format!("{i}")).unwrap();
        }
        let handles = own(dir, 4);
        for i in 0..4 {
            handles.file(FileId(i), &format!("{i}")).unwrap();
        }
        let keep = |i: u64| handles.keep(&format!("{i}")).unwrap();
        let kept = [keep(10), keep(11)];
        assert!(kept.iter().all(Option::is_some) && keep(12).is_none());
        assert_eq!(handles.count(), 4, "others gave way");
        for i in 0..20 {
            handles.file(FileId(i), &format!("{i}")).unwrap();
            assert!(handles.count() <= 4);
        }
        drop(kept);
        assert!(
            handles.keep("30").is_err() && handles.count() == 2,
            "what could not be opened does not count"
        );
        assert!(keep(13).is_some());
        assert!(own(TestDir::new(), 1).keep("0").unwrap().is_none());
    }

    #[test]
    fn what_is_asked_for_again_stays() {
        let dir = TestDir::new();
        for i in 0..200 {
            dir.create(&format!("{i}")).unwrap();
        }
        let handles = own(dir, 4);
        for i in 1..200 {
            handles.file(FileId(0), "0").unwrap();
            handles.file(FileId(i), &format!("{i}")).unwrap();
        }
        assert_eq!(handles.opened(), 200, "file 0 was opened once");
    }
}
