//! Outputs that somebody else syncs: small tables of many rewrites, side by side. Must not know whose they are.
//!
//! Invariant: an output that was left here is worth nothing before [`Later::finish`] has returned `Ok`.

use super::again;
use crate::version::{TableMeta, VlogMeta};
use perigee_base::Result;
use perigee_env::Append;
use perigee_file::Shelf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Files that are written and not synced. The mutex guards the list; no I/O inside.
#[derive(Debug, Default)]
pub struct Later(Mutex<Vec<Arc<dyn Append>>>);

impl Later {
    fn files(&self) -> MutexGuard<'_, Vec<Arc<dyn Append>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Takes finished files.
    pub(super) fn take(&self, files: Vec<Arc<dyn Append>>) {
        self.files().extend(files);
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
        let files = std::mem::take(&mut *self.files());
        shelf.dir().sync_files(&files)?;
        drop(files);
        for (tables, vlogs) in outputs.filter(|_| verify) {
            tables.iter().try_for_each(|t| again::table(shelf, t))?;
            vlogs.iter().try_for_each(|v| again::vlog(shelf, v))?;
        }
        Ok(())
    }
}
