//! Deferred syncs: outputs of one rewrite, or small outputs of many, are synced together and in
//! parallel. Independent of the jobs that own them.
//!
//! Files are synced in steps, so that neither their number nor their bytes make the end of a job
//! long.
//!
//! Invariant: an output handed over here must not be used before [`DeferredSync::finish`] has
//! returned `Ok`.

use super::output_verification;
use crate::limits::{DEFERRED_BYTES_MAX, DEFERRED_FILES_MAX};
use crate::version::{TableMeta, VlogMeta};
use perigee_base::{Error, Result};
use perigee_env::WritableFile;
use perigee_file::TableCache;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Debug, Default)]
struct DeferredFiles {
    files: Vec<Arc<dyn WritableFile>>,
    bytes: u64,
    /// Error of a failed step: all outputs handed over so far and later are unusable.
    failed: Option<Error>,
}

/// Files that are written but not synced. The mutex guards the list; no I/O while it is held.
#[derive(Debug, Default)]
pub struct DeferredSync(Mutex<DeferredFiles>);

impl DeferredSync {
    fn lock_files(&self) -> MutexGuard<'_, DeferredFiles> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Adds finished files; syncs all files if there are enough.
    pub(super) fn add_files(
        &self,
        table_cache: &TableCache,
        files: Vec<Arc<dyn WritableFile>>,
    ) -> Result<()> {
        let mut deferred = self.lock_files();
        deferred.bytes += files.iter().map(|f| f.len()).sum::<u64>();
        deferred.files.extend(files);
        let due =
            deferred.files.len() >= DEFERRED_FILES_MAX || deferred.bytes >= DEFERRED_BYTES_MAX;
        drop(deferred);
        if due { self.sync_files(table_cache) } else { Ok(()) }
    }
    fn sync_files(&self, table_cache: &TableCache) -> Result<()> {
        let (files, failed) = {
            let mut deferred = self.lock_files();
            deferred.bytes = 0;
            (std::mem::take(&mut deferred.files), deferred.failed.clone())
        };
        let synced = failed.map_or(Ok(()), Err).and_then(|()| table_cache.dir().sync_files(&files));
        if let Err(e) = &synced {
            self.lock_files().failed.get_or_insert_with(|| e.clone());
        }
        synced
    }
    /// Syncs all files, then, if `verify`, reads the outputs back in full and verifies them: tables,
    /// value logs, and true if blocks of the tables are to be cached.
    ///
    /// # Errors
    /// If any file fails; all of the outputs are then unusable.
    pub fn finish<'a>(
        &self,
        table_cache: &TableCache,
        outputs: impl Iterator<Item = (&'a [TableMeta], &'a [VlogMeta], bool)>,
        verify: bool,
    ) -> Result<()> {
        self.sync_files(table_cache)?;
        for (tables, vlogs, fill_cache) in outputs.filter(|_| verify) {
            let verify_table = |t| output_verification::verify_table(table_cache, t, fill_cache);
            tables.iter().try_for_each(verify_table)?;
            vlogs.iter().try_for_each(|v| output_verification::verify_vlog(table_cache, v))?;
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

    /// A file whose sync signals that it has begun, waits for a signal to end, and then succeeds or
    /// fails.
    #[derive(Debug)]
    struct SlowSyncFile {
        begun: Mutex<Sender<()>>,
        may_end: Mutex<Receiver<()>>,
        fails: bool,
    }

    impl WritableFile for SlowSyncFile {
        fn append(&self, _: &[&[u8]]) -> Result<()> {
            Ok(())
        }
        fn len(&self) -> u64 {
            DEFERRED_BYTES_MAX
        }
        fn truncate(&self, _: u64) -> Result<()> {
            Ok(())
        }
        fn sync(&self) -> Result<()> {
            self.begun.lock().unwrap().send(()).unwrap();
            self.may_end.lock().unwrap().recv().unwrap();
            if self.fails { Err(Error::new(ErrorKind::Io, "a sync failed")) } else { Ok(()) }
        }
    }

    fn slow_sync_file(fails: bool) -> (Arc<dyn WritableFile>, Receiver<()>, Sender<()>) {
        let ((begun, has_begun), (end, may_end)) = (channel(), channel());
        let file = SlowSyncFile { begun: Mutex::new(begun), may_end: Mutex::new(may_end), fails };
        (Arc::new(file), has_begun, end)
    }

    /// Regression test: two merges sync at the same time; the successful one ended later, and
    /// `finish` no longer returned the failure of the other.
    #[test]
    fn failed_sync_step_fails_finish() {
        let dir = SimDisk::new(1).open_dir(Path::new("/db"), DirOpenMode::CreateIfMissing).unwrap();
        let table_cache =
            TableCache::new(dir, 1, Arc::new(BlockCache::new(1 << 16)), Arc::default());
        let deferred_sync = DeferredSync::default();
        let (bad, bad_begun, end_bad) = slow_sync_file(true);
        let (good, good_begun, end_good) = slow_sync_file(false);
        std::thread::scope(|s| {
            let one = s.spawn(|| deferred_sync.add_files(&table_cache, vec![bad]));
            bad_begun.recv().unwrap();
            let other = s.spawn(|| deferred_sync.add_files(&table_cache, vec![good]));
            good_begun.recv().unwrap();
            end_bad.send(()).unwrap();
            assert!(one.join().unwrap().is_err());
            end_good.send(()).unwrap();
            assert!(other.join().unwrap().is_ok());
        });
        assert!(
            deferred_sync.finish(&table_cache, std::iter::empty(), false).is_err(),
            "finish must return the failure"
        );
    }
}
