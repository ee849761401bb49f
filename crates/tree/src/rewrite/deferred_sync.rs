//! Outputs that are synced together: tables of one rewrite or small ones of many, side by side.
//! Must not know whose they are.
//!
//! They are synced in steps, so that neither their number nor their bytes make the end of a job
//! long.
//!
//! Invariant: an output that was left here is worth nothing before [`Later::finish`] has returned
//! `Ok`.

use super::output_verification;
use crate::version::{TableMeta, VlogMeta};
use perigee_base::{Error, Result};
use perigee_env::WritableFile;
use perigee_file::TableCache;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// So many files, or files of so many bytes, are synced without waiting for more. They are open
/// until then.
const FILES_MAX: usize = 64;
const BYTES_MAX: u64 = 8 << 20;

#[derive(Debug, Default)]
struct DeferredFiles {
    files: Vec<Arc<dyn WritableFile>>,
    bytes: u64,
    /// A step failed: nothing that was ever left here is worth anything.
    failed: Option<Error>,
}

/// Files that are written and not synced. The mutex guards the list; no I/O inside.
#[derive(Debug, Default)]
pub struct DeferredSync(Mutex<DeferredFiles>);

impl DeferredSync {
    fn lock_files(&self) -> MutexGuard<'_, DeferredFiles> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Takes finished files; syncs them if there are enough.
    pub(super) fn add_files(
        &self,
        shelf: &TableCache,
        files: Vec<Arc<dyn WritableFile>>,
    ) -> Result<()> {
        let mut left = self.lock_files();
        left.bytes += files.iter().map(|f| f.len()).sum::<u64>();
        left.files.extend(files);
        let due = left.files.len() >= FILES_MAX || left.bytes >= BYTES_MAX;
        drop(left);
        if due { self.sync_files(shelf) } else { Ok(()) }
    }
    fn sync_files(&self, shelf: &TableCache) -> Result<()> {
        let (files, failed) = {
            let mut left = self.lock_files();
            left.bytes = 0;
            (std::mem::take(&mut left.files), left.failed.clone())
        };
        let synced = failed.map_or(Ok(()), Err).and_then(|()| shelf.dir().sync_files(&files));
        if let Err(e) = &synced {
            self.lock_files().failed.get_or_insert_with(|| e.clone());
        }
        synced
    }
    /// Syncs them all, then (if `verify`) reads the outputs again, from their first byte to their
    /// last.
    ///
    /// # Errors
    /// Then all of the outputs are worthless.
    pub fn finish<'a>(
        &self,
        shelf: &TableCache,
        outputs: impl Iterator<Item = (&'a [TableMeta], &'a [VlogMeta])>,
        verify: bool,
    ) -> Result<()> {
        self.sync_files(shelf)?;
        for (tables, vlogs) in outputs.filter(|_| verify) {
            tables.iter().try_for_each(|t| output_verification::verify_table(shelf, t))?;
            vlogs.iter().try_for_each(|v| output_verification::verify_vlog(shelf, v))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perigee_base::ErrorKind;
    use perigee_env::fs::memory::SimDisk;
    use perigee_env::{DirOpenMode, Fs};
    use perigee_file::BlockCache;
    use std::path::Path;
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// A file whose sync tells that it has begun, waits until it may end, and ends so.
    #[derive(Debug)]
    struct SlowSyncFile {
        begun: Mutex<Sender<()>>,
        go_on: Mutex<Receiver<()>>,
        fails: bool,
    }

    impl WritableFile for SlowSyncFile {
        fn append(&self, _: &[&[u8]]) -> Result<()> {
            Ok(())
        }
        fn len(&self) -> u64 {
            BYTES_MAX
        }
        fn truncate(&self, _: u64) -> Result<()> {
            Ok(())
        }
        fn sync(&self) -> Result<()> {
            self.begun.lock().unwrap().send(()).unwrap();
            self.go_on.lock().unwrap().recv().unwrap();
            if self.fails { Err(Error::new(ErrorKind::Io, "a sync failed")) } else { Ok(()) }
        }
    }

    fn slow_sync_file(fails: bool) -> (Arc<dyn WritableFile>, Receiver<()>, Sender<()>) {
        let ((begun, has_begun), (let_go, go_on)) = (channel(), channel());
        let file = SlowSyncFile { begun: Mutex::new(begun), go_on: Mutex::new(go_on), fails };
        (Arc::new(file), has_begun, let_go)
    }

    /// Two merges sync at once; the one that succeeds ends later, and made the end of the job
    /// forget that the other had failed.
    #[test]
    fn failed_sync_step_fails_finish() {
        let dir = SimDisk::new(1).open_dir(Path::new("/db"), DirOpenMode::CreateIfMissing).unwrap();
        let shelf = TableCache::new(dir, 1, Arc::new(BlockCache::new(1 << 16)), Arc::default());
        let later = DeferredSync::default();
        let (bad, bad_begun, end_bad) = slow_sync_file(true);
        let (good, good_begun, end_good) = slow_sync_file(false);
        std::thread::scope(|s| {
            let one = s.spawn(|| later.add_files(&shelf, vec![bad]));
            bad_begun.recv().unwrap();
            let other = s.spawn(|| later.add_files(&shelf, vec![good]));
            good_begun.recv().unwrap();
            end_bad.send(()).unwrap();
            assert!(one.join().unwrap().is_err());
            end_good.send(()).unwrap();
            assert!(other.join().unwrap().is_ok());
        });
        assert!(later.finish(&shelf, std::iter::empty(), false).is_err(), "it is worth nothing");
    }
}
