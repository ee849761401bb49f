//! Open files, bounded. Half of them stay open as long as their readers, who then find them without asking anybody; the
//! readers of all others ask here at each read from disk, and files that were not asked for lately are closed when there are
//! too many. Must not know what the bytes mean.
//!
//! Invariants: 1. a file in use is not closed, so there may be more than the limit while more are in use at once;
//! 2. files are opened and closed outside the lock.

use perigee_base::{FileId, Result};
use perigee_env::{Dir, ReadAt};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The open files of one directory.
#[derive(Debug)]
pub struct Handles {
    dir: Arc<dyn Dir>,
    limit: usize,
    open: Mutex<Open>,
    opened: AtomicU64,
}

#[derive(Debug, Default)]
struct Open {
    /// Files that stay open with their readers.
    kept: usize,
    /// The others, each with whether it was asked for since the hand passed.
    files: BTreeMap<FileId, (Arc<dyn ReadAt>, bool)>,
    /// The order in which the hand passes.
    queue: VecDeque<FileId>,
}

/// A file that stays open.
#[derive(Debug)]
pub struct Kept {
    /// The file.
    pub file: Arc<dyn ReadAt>,
    handles: Arc<Handles>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.handles.lock().kept -= 1;
    }
}

impl Handles {
    /// At most `limit` open files (at least one) of `dir`.
    pub fn new(dir: Arc<dyn Dir>, limit: usize) -> Handles {
        Handles { dir, limit: limit.max(1), open: Mutex::default(), opened: AtomicU64::new(0) }
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file, opened if it is not open.
    pub fn file(&self, id: FileId, name: &str) -> Result<Arc<dyn ReadAt>> {
        if let Some((file, touched)) = self.lock().files.get_mut(&id) {
            *touched = true;
            return Ok(Arc::clone(file));
        }
        let file = self.open(name)?;
        let closing = self.lock().insert(id, &file, self.limit);
        drop(closing);
        Ok(file)
    }

    /// The file, opened to stay so, if less than half of the files do.
    pub fn keep(self: &Arc<Self>, name: &str) -> Result<Option<Kept>> {
        let mut open = self.lock();
        if open.kept >= self.limit / 2 {
            return Ok(None);
        }
        open.kept += 1;
        let closing = open.make_room(self.limit);
        drop(open);
        drop(closing);
        match self.open(name) {
            Ok(file) => Ok(Some(Kept { file, handles: Arc::clone(self) })),
            Err(e) => {
                self.lock().kept -= 1;
                Err(e)
            }
        }
    }

    fn open(&self, name: &str) -> Result<Arc<dyn ReadAt>> {
        let file = self.dir.open(name).map_err(|e| e.in_file(name))?;
        self.opened.fetch_add(1, Relaxed);
        Ok(file)
    }

    /// Closes a file that will not be asked for again, unless its reader keeps it.
    pub fn forget(&self, id: FileId) {
        let gone = self.lock().files.remove(&id);
        drop(gone);
    }
    /// How many are open.
    pub fn count(&self) -> usize {
        let open = self.lock();
        open.files.len() + open.kept
    }
    /// How many are kept open at most.
    pub fn limit(&self) -> usize {
        self.limit
    }
    /// How often a file was opened.
    pub fn opened(&self) -> u64 {
        self.opened.load(Relaxed)
    }
}

impl Open {
    /// Adds a file; returns those that give way.
    fn insert(&mut self, id: FileId, file: &Arc<dyn ReadAt>, limit: usize) -> Vec<Arc<dyn ReadAt>> {
        let closing = self.make_room(limit.saturating_sub(1));
        if self.files.insert(id, (Arc::clone(file), false)).is_none() {
            self.queue.push_back(id);
        }
        closing
    }

    /// Takes files out until there are at most `limit`, but for those in use; returns them.
    fn make_room(&mut self, limit: usize) -> Vec<Arc<dyn ReadAt>> {
        let mut closing = Vec::new();
        // Two rounds: the first clears every mark.
        let mut steps = self.queue.len() * 2;
        while self.files.len() + self.kept > limit && steps > 0 {
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

    #[test]
    fn few_stay_open_and_those_in_use_do() {
        let dir = TestDir::new();
        for i in 0..20 {
            dir.create(&format!("{i}")).unwrap();
        }
        let handles = Handles::new(dir, 4);
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
        let handles = Arc::new(Handles::new(dir, 4));
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
        assert!(Arc::new(Handles::new(TestDir::new(), 1)).keep("0").unwrap().is_none());
    }

    #[test]
    fn what_is_asked_for_again_stays() {
        let dir = TestDir::new();
        for i in 0..200 {
            dir.create(&format!("{i}")).unwrap();
        }
        let handles = Handles::new(dir, 4);
        for i in 1..200 {
            handles.file(FileId(0), "0").unwrap();
            handles.file(FileId(i), &format!("{i}")).unwrap();
        }
        assert_eq!(handles.opened(), 200, "file 0 was opened once");
    }
}
