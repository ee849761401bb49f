//! Selects the sealed memtables that one job flushes, and tracks the progress of each. Small
//! memtables of many column families share the fixed costs of a flush: the syncs of directory and
//! log, the edit with its sync, and a check of every column family. Their tables are synced in
//! parallel. Small compactions use the same mechanism ([`build_all`]).

use crate::catalog::Catalog;
use crate::catalog::family::FamilyState;
use crate::limits::{FLUSH_GROUP_BYTES_MAX, FLUSH_MEMTABLES_MAX};
use crate::maintenance::parallel_tasks::run_tasks;
use crate::resources::Resources;
use perigee_base::Result;
use perigee_tree::rewrite::{CreatedFiles, DeferredSync, RewriteOutput};
use perigee_tree::{Memtable, VersionEdit};
use std::sync::Arc;

/// Number of tasks whose files are synced in parallel. The files stay open until then.
const SYNC_BATCH_TASKS: usize = 64;

/// The flush of one memtable, as part of a job.
#[derive(Debug)]
pub struct FlushTask {
    /// The column family.
    pub family: Arc<FamilyState>,
    /// The name of the column family when the job started.
    pub name: Arc<str>,
    /// The oldest sealed memtable of the column family.
    pub memtable: Arc<Memtable>,
    /// The files created so far.
    pub created: CreatedFiles,
    /// The tables, once they are synced.
    pub built: Option<BuiltTables>,
    /// True once the edit that adds the tables is installed.
    pub installed: bool,
}

/// The tables built from one memtable or compaction, not yet installed.
#[derive(Debug)]
pub struct BuiltTables {
    /// The version edit that adds them.
    pub edit: VersionEdit,
    /// The tables and value logs written.
    pub output: RewriteOutput,
    /// Duration of the build, in microseconds.
    pub elapsed_us: u64,
}

/// One part of a job that builds tables.
pub trait BuildTask {
    /// Returns the tables, once they are synced.
    fn built(&self) -> Option<&BuiltTables>;
    /// Sets the built tables; `None` if their sync failed.
    fn set_built(&mut self, built_tables: Option<BuiltTables>);
}

impl BuildTask for FlushTask {
    fn built(&self) -> Option<&BuiltTables> {
        self.built.as_ref()
    }
    fn set_built(&mut self, built_tables: Option<BuiltTables>) {
        self.built = built_tables;
    }
}

impl FlushTask {
    /// Creates a task with nothing built.
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
    /// Returns true if the memtable still awaits its flush.
    pub fn is_pending(&self) -> bool {
        self.family.awaits_flush(&self.memtable)
    }
}

/// Selects the oldest sealed memtable of all column families and the next ones by age, one per
/// column family, as long as they are small together.
pub fn select_oldest(catalog: &Catalog) -> Vec<FlushTask> {
    let sealed = |f: Arc<FamilyState>| {
        f.tree.view().immutables.last().map(|m| (m.first_seq(), Arc::clone(m), f))
    };
    let mut all: Vec<_> = catalog.families().all().into_iter().filter_map(sealed).collect();
    all.sort_unstable_by_key(|(seq, _, _)| *seq);
    all.truncate(job_len(all.iter().map(|(_, m, _)| m.bytes())));
    all.into_iter().map(|(_, memtable, family)| FlushTask::new(family, memtable)).collect()
}

/// Returns how many memtables of these sizes, oldest first, one job flushes.
fn job_len(mut sizes: impl Iterator<Item = u64>) -> usize {
    let Some(mut sum) = sizes.next() else { return 0 };
    1 + sizes
        .take(FLUSH_MEMTABLES_MAX - 1)
        .take_while(|bytes| {
            sum += bytes;
            sum <= FLUSH_GROUP_BYTES_MAX
        })
        .count()
}

/// Builds the tables of every task with `make`, on up to `threads` threads; `make` leaves syncs to
/// the [`DeferredSync`]. After an error, the tasks whose tables are complete and synced have them
/// set ([`BuildTask::set_built`]), the others do not.
pub fn build_all<P: BuildTask + Send>(
    resources: &Resources,
    group: &mut [P],
    threads: usize,
    make: impl Fn(&mut P, &DeferredSync) -> Result<BuiltTables> + Sync,
) -> Result<()> {
    for slice in group.chunks_mut(SYNC_BATCH_TASKS) {
        let deferred = DeferredSync::default();
        let built = run_tasks(&resources.runtime, slice, threads, |m| {
            let built_tables = make(m, &deferred)?;
            m.set_built(Some(built_tables));
            Ok(())
        });
        let outputs = slice.iter().filter_map(|m| m.built()).map(|m| &m.output);
        let files = outputs.map(|o| (&o.tables[..], &o.vlogs[..], o.fill_cache));
        let synced = deferred.finish(
            resources.table_cache(),
            files,
            resources.runtime.settings.verify_outputs,
        );
        if synced.is_err() {
            slice.iter_mut().for_each(|m| m.set_built(None));
        }
        built.and(synced)?;
        check!(
            slice.iter().all(|m| m.built().is_some()),
            "every task of a group that did not fail was built",
            slice.len()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_small_memtables_and_isolates_large() {
        let n = |sizes: &[u64]| job_len(sizes.iter().copied());
        assert_eq!((n(&[]), n(&[9 << 20]), n(&[9 << 20, 1])), (0, 1, 1));
        assert_eq!(n(&[1 << 20, 2 << 20, 1 << 20, 1]), 3);
        assert_eq!(n(&[1, 5 << 20, 1]), 1, "oldest first: no memtable waits for younger ones");
        assert_eq!(n(&vec![300; 5000]), FLUSH_MEMTABLES_MAX);
    }
}
