//! Which sealed memtables one job flushes, and how far each of them is. Small memtables of many
//! families share what a flush costs beside its table: the syncs of directory and log, the edit and
//! its sync, and a look at every family. Their tables are synced side by side. Small compactions do
//! the same ([`build`]).

use crate::core::EngineCore;
use crate::family::FamilyState;
use perigee_base::Result;
use perigee_tree::rewrite::{CreatedFiles, DeferredSync, RewriteOutput};
use perigee_tree::{Memtable, VersionEdit};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Most memtables of one job: so many tables are written in vain if its edit fails.
const JOB_MEMTABLES_MAX: usize = 512;
/// Most bytes of them together, unless the first is larger: then it goes alone.
const JOB_BYTES_MAX: u64 = 4 << 20;
/// So many are synced side by side. Their files are open until then.
const SYNC_BATCH_TASKS: usize = 64;

/// A memtable on its way into a table.
#[derive(Debug)]
pub struct FlushTask {
    /// Its family.
    pub family: Arc<FamilyState>,
    /// The family's name when the job began.
    pub name: Arc<str>,
    /// The oldest sealed memtable of the family.
    pub memtable: Arc<Memtable>,
    /// The files that were made of it.
    pub created: CreatedFiles,
    /// What they hold, once they are synced.
    pub built: Option<BuiltTables>,
    /// Whether the edit that names them was installed.
    pub installed: bool,
}

/// A memtable as tables, not installed.
#[derive(Debug)]
pub struct BuiltTables {
    /// Says so to the manifest.
    pub edit: VersionEdit,
    /// What was written.
    pub output: RewriteOutput,
    /// How long it took.
    pub elapsed_us: u64,
}

/// What a job of several makes one of.
pub trait BuildTask {
    /// Its tables, once they are synced.
    fn built(&self) -> Option<&BuiltTables>;
    /// They are, or they are worthless.
    fn set_built(&mut self, made: Option<BuiltTables>);
}

impl BuildTask for FlushTask {
    fn built(&self) -> Option<&BuiltTables> {
        self.built.as_ref()
    }
    fn set_built(&mut self, made: Option<BuiltTables>) {
        self.built = made;
    }
}

impl FlushTask {
    /// Nothing made yet.
    pub fn new(family: Arc<FamilyState>, memtable: Arc<Memtable>) -> FlushTask {
        let name = family.name();
        FlushTask {
            family,
            name,
            memtable,
            created: CreatedFiles::default(),
            built: None,
            installed: false,
        }
    }
    /// Whether the memtable still waits for its flush.
    pub fn is_pending(&self) -> bool {
        self.family.awaits_flush(&self.memtable)
    }
}

/// The oldest sealed memtable of all families, and those next in age, one of each family, that are
/// small together with it.
pub fn select_oldest(core: &EngineCore) -> Vec<FlushTask> {
    let sealed = |f: Arc<FamilyState>| {
        f.tree.view().immutables.last().map(|m| (m.first_seq(), Arc::clone(m), f))
    };
    let mut all: Vec<_> = core.families.all().into_iter().filter_map(sealed).collect();
    all.sort_unstable_by_key(|(seq, _, _)| *seq);
    all.truncate(job_len(all.iter().map(|(_, m, _)| m.bytes())));
    all.into_iter().map(|(_, memtable, family)| FlushTask::new(family, memtable)).collect()
}

/// How many of memtables of these sizes, the oldest first, go together.
fn job_len(mut sizes: impl Iterator<Item = u64>) -> usize {
    let Some(mut sum) = sizes.next() else { return 0 };
    1 + sizes
        .take(JOB_MEMTABLES_MAX - 1)
        .take_while(|bytes| {
            sum += bytes;
            sum <= JOB_BYTES_MAX
        })
        .count()
}

/// Makes the tables of all with `make`, by so many threads, which is given somebody to leave syncs
/// to. After an error those that are whole and synced have been told ([`Piece::set_built`]), the
/// others have not.
pub fn build_all<P: BuildTask + Send>(
    core: &EngineCore,
    group: &mut [P],
    threads: usize,
    make: impl Fn(&mut P, &DeferredSync) -> Result<BuiltTables> + Sync,
) -> Result<()> {
    for slice in group.chunks_mut(SYNC_BATCH_TASKS) {
        let later = DeferredSync::default();
        let built = run_parallel(core, slice, threads, |m| {
            let made = make(m, &later)?;
            m.set_built(Some(made));
            Ok(())
        });
        let outputs = slice.iter().filter_map(|m| m.built()).map(|m| &m.output);
        let files = outputs.map(|o| (&o.tables[..], &o.vlogs[..]));
        let synced = later.finish(&core.table_cache, files, core.settings.verify_outputs);
        if synced.is_err() {
            slice.iter_mut().for_each(|m| m.set_built(None));
        }
        built.and(synced)?;
    }
    Ok(())
}

/// Does each with `act`, by so many threads; after the first error no other is begun.
fn run_parallel<P: Send>(
    core: &EngineCore,
    group: &mut [P],
    threads: usize,
    act: impl Fn(&mut P) -> Result<()> + Sync,
) -> Result<()> {
    let (threads, rest, failed) =
        (threads.min(group.len()), Mutex::new(group.iter_mut()), OnceLock::new());
    let next = || rest.lock().unwrap_or_else(PoisonError::into_inner).next();
    core.env.spawn.run_parallel(threads, &|| {
        while failed.get().is_none() {
            let Some(piece) = next() else { return };
            if let Err(e) = act(piece) {
                let _ = failed.set(e);
            }
        }
    });
    failed.into_inner().map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_small_memtables_and_isolates_large() {
        let n = |sizes: &[u64]| job_len(sizes.iter().copied());
        assert_eq!((n(&[]), n(&[9 << 20]), n(&[9 << 20, 1])), (0, 1, 1));
        assert_eq!(n(&[1 << 20, 2 << 20, 1 << 20, 1]), 3);
        assert_eq!(n(&[1, 5 << 20, 1]), 1, "in the order of age: none waits behind younger ones");
        assert_eq!(n(&vec![300; 5000]), JOB_MEMTABLES_MAX);
    }
}
