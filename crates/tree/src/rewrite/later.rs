//! Outputs that are synced together: tables of one rewrite or small ones of many, side by side. Must not know whose they are.
//!
//! They are synced in steps, so that neither their number nor their bytes make the end of a job long.
//!
//! Invariant: an output that was left here is worth nothing before [`Later::finish`] has returned `Ok`.

use super::again;
use crate::version::{TableMeta, VlogMeta};
use perigee_base::{Error, Result};
use perigee_env::Append;
use perigee_file::Shelf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// So many files, or files of so many bytes, are synced without waiting for more. They are open until then.
const FILES_MAX: usize = 64;
const BYTES_MAX: u64 = 8 << 20;

#[derive(Debug, Default)]
struct Left {
    files: Vec<Arc<dyn Append>>,
    bytes: u64,
    /// A step failed: nothing that was ever left here is worth anything.
    failed: Option<Error>,
}

/// Files that are written and not synced. The mutex guards the list; no I/O inside.
#[derive(Debug, Default)]
pub struct Later(Mutex<Left>);

impl Later {
    fn left(&self) -> MutexGuard<'_, Left> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Takes finished files; syncs them if there are enough.
    pub(super) fn take(&self, shelf: &Shelf, files: Vec<Arc<dyn Append>>) -> Result<()> {
        let mut left = self.left();
        left.bytes += files.iter().map(|f| f.len()).sum::<u64>();
        left.files.extend(files);
        let due = left.files.len() >= FILES_MAX || left.bytes >= BYTES_MAX;
        drop(left);
        if due { self.sync(shelf) } else { Ok(()) }
    }
    fn sync(&self, shelf: &Shelf) -> Result<()> {
        let Left { files, failed, .. } = std::mem::take(&mut *self.left());
        let synced = failed.map_or(Ok(()), Err).and_then(|()| shelf.dir().sync_files(&files));
        self.left().failed = synced.clone().err();
        synced
    }
    /// Syncs them all, then (if `verify`) reads the outputs again, from their first byte to their last.
    ///
    /// # Errors
    /// Then all of the outputs are worthless.
    pub fn finish<'a>(
        &self,
        shelf: &Shelf,
        outputs: impl Iterator<Item = (&'a [TableMeta], &'a [VlogMeta])>,
        verify: bool,
    ) -> Result<()> {
        self.sync(shelf)?;
        for (tables, vlogs) in outputs.filter(|_| verify) {
            tables.iter().try_for_each(|t| again::table(shelf, t))?;
            vlogs.iter().try_for_each(|v| again::vlog(shelf, v))?;
        }
        Ok(())
    }
}
