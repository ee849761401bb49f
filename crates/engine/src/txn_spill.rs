//! What transactions cannot keep in memory: runs of tables of their own on a caller's thread,
//! invisible until the commit, which makes one run of them for each family and publishes that as a
//! load is published.
//!
//! Invariant: a file here is named by nobody else. What is not needed any more is retired, because
//! cursors of the transaction may still read it; what a crash leaves is an orphan of the next open.

use crate::core::EngineCore;
use crate::family::FamilyState;
use crate::jobs::flush::{discard_outputs, rewrite_setting};
use crate::load::publish::{LoadedTables, SpilledCommit, publish_tables_if};
use crate::load::{LoadGuard, LoadPace};
use crate::txn::spill_store::SpillStore;
use crate::txn::validate::CommitConditions;
use perigee_base::{Error, ErrorKind, FamilyId, FileId, Result, RunId, SeqNo};
use perigee_tree::bulk::SpillRunSet;
use perigee_tree::bulk::spill_runs::{ObsoleteSpillFiles, SpillOutput, TxnSeqInfo};
use perigee_tree::rewrite::{CreatedFiles, RewriteContext};
use perigee_tree::txn_overlay::OverlayRuns;
use perigee_tree::{Memtable, Run, Table, TableMeta, Version};
use std::sync::Arc;

/// What one family gets.
#[derive(Debug)]
struct FamilySpill {
    family: Arc<FamilyState>,
    spill: SpillRunSet,
    spilled_runs: Arc<OverlayRuns>,
}

/// The runs of one transaction.
#[derive(Debug)]
pub struct TxnSpillFiles {
    core: Arc<EngineCore>,
    families: Vec<FamilySpill>,
    /// Memory of the transaction, as the budget knows it.
    held: u64,
}

impl TxnSpillFiles {
    /// None yet.
    pub fn new(core: &Arc<EngineCore>) -> TxnSpillFiles {
        TxnSpillFiles { core: Arc::clone(core), families: Vec::new(), held: 0 }
    }

    fn family_spill(&mut self, id: FamilyId) -> Result<&mut FamilySpill> {
        let at = match self.families.iter().position(|m| m.family.id == id) {
            Some(at) => at,
            None => {
                let family = self.core.families.by_id(id).ok_or_else(|| {
                    let text = format!("the transaction writes to family {id}, which was dropped");
                    Error::new(ErrorKind::NotFound, text)
                })?;
                let spill = SpillRunSet::new(family.tree.comparator());
                self.families.push(FamilySpill {
                    family,
                    spilled_runs: spill.spilled_runs(),
                    spill,
                });
                self.families.len() - 1
            }
        };
        self.families[at].family.check_not_dropped()?;
        Ok(&mut self.families[at])
    }

    /// Adds a memtable to the runs of its family, which are merged before if there are many.
    fn add_memtable(
        &mut self,
        id: FamilyId,
        memtable: &Arc<Memtable>,
        numbers: &TxnSeqInfo,
    ) -> Result<()> {
        let core = Arc::clone(&self.core);
        let mine = self.family_spill(id)?;
        while mine.spill.needs_merge() {
            mine.update_runs(&core, 0, |spill, setting, created| {
                spill.merge_newest(numbers, setting, created)
            })?;
        }
        mine.update_runs(&core, memtable.bytes(), |spill, setting, created| {
            spill.write_run(memtable, numbers, setting, created)
        })
    }

    /// The tables of all families as they will be.
    fn finish(
        &mut self,
        numbers: &TxnSeqInfo,
        created: &mut CreatedFiles,
    ) -> Result<Vec<LoadedTables>> {
        let core = Arc::clone(&self.core);
        let mut parts = Vec::new();
        for mine in &mut self.families {
            mine.family.check_not_dropped()?;
            let family = Arc::clone(&mine.family);
            let SpillOutput { tables, vlogs, open_vlogs: open } = mine
                .with_rewrite_setting(&core, |spill, setting| {
                    spill.finish(numbers, setting, created)
                })?;
            if !tables.is_empty() {
                parts.push(LoadedTables { family, tables, vlogs, open });
            }
        }
        Ok(parts)
    }

    /// Lets go of the files, but for value logs that are in `kept`.
    fn release_files(&mut self, kept: &[FileId]) {
        // Once the database is closed the files are not ours any more.
        let Ok(_working) = LoadGuard::start(&self.core) else { return };
        for mine in self.families.drain(..) {
            let FamilySpill { spill, spilled_runs: picture, .. } = mine;
            drop(picture);
            retire_files(&self.core, spill.into_obsolete(kept));
        }
        let _ = self.core.obsolete_files.delete_unreferenced(&self.core.table_cache);
    }
}

impl FamilySpill {
    /// Works with what a rewrite needs to know.
    fn with_rewrite_setting<T>(
        &mut self,
        core: &EngineCore,
        work: impl FnOnce(&mut SpillRunSet, RewriteContext<'_>) -> Result<T>,
    ) -> Result<T> {
        let empty = Version::empty(self.family.tree.comparator());
        let pace = LoadPace::new(core);
        work(&mut self.spill, rewrite_setting(core, &self.family, &empty, &pace, SeqNo::ZERO))
    }
    /// Changes the runs; what is left over goes, also after an error, when nothing has changed.
    fn update_runs(
        &mut self,
        core: &EngineCore,
        bytes: u64,
        work: impl FnOnce(&mut SpillRunSet, RewriteContext<'_>, &mut CreatedFiles) -> Result<()>,
    ) -> Result<()> {
        LoadPace::new(core).check_free_space(bytes)?;
        let mut created = CreatedFiles::default();
        let done =
            self.with_rewrite_setting(core, |spill, setting| work(spill, setting, &mut created));
        if done.is_err() {
            discard_outputs(core, &created);
        }
        self.retire_spent(core);
        done
    }
    fn retire_spent(&mut self, core: &EngineCore) {
        let spent = self.spill.take_obsolete();
        self.spilled_runs = self.spill.spilled_runs();
        retire_files(core, spent);
        let _ = core.obsolete_files.delete_unreferenced(&core.table_cache);
    }
}

fn retire_files(core: &EngineCore, spent: ObsoleteSpillFiles) {
    core.obsolete_files.add_unpublished(&spent.tables, &spent.vlogs);
}

impl SpillStore for TxnSpillFiles {
    fn set_memory_bytes(&mut self, bytes: u64) {
        self.core.memory_budget.set_load_bytes(&mut self.held, bytes);
        self.core.update_job_memory();
    }

    fn spilled_in(&self, family: FamilyId) -> Option<Arc<OverlayRuns>> {
        self.families.iter().find(|m| m.family.id == family).map(|m| Arc::clone(&m.spilled_runs))
    }

    fn add_runs(
        &mut self,
        memtables: &[(FamilyId, Arc<Memtable>)],
        numbers: &TxnSeqInfo,
    ) -> Result<()> {
        let core = Arc::clone(&self.core);
        let _working = LoadGuard::start(&core)?;
        let first = memtables.iter().map(|(_, m)| m.first_seq()).min().unwrap_or_default();
        let added = memtables.iter().try_for_each(|(id, m)| self.add_memtable(*id, m, numbers));
        core.memory_budget.add_freed_bytes(memtables.iter().map(|(_, m)| m.bytes()).sum());
        core.release_freed_memory();
        added.map_err(|e| {
            self.roll_back_from(first);
            let kind = e.kind();
            e.wrap(kind, "what a transaction cannot keep in memory could not be written to files")
        })
    }

    fn roll_back_from(&mut self, number: SeqNo) {
        let core = Arc::clone(&self.core);
        let Ok(_working) = LoadGuard::start(&core) else { return };
        for mine in &mut self.families {
            mine.spill.roll_back_to(number);
            mine.retire_spent(&core);
        }
    }

    fn commit_spilled(
        mut self: Box<Self>,
        numbers: &TxnSeqInfo,
        conditions: Option<Box<CommitConditions>>,
        operations: usize,
    ) -> Result<SeqNo> {
        let core = Arc::clone(&self.core);
        let _working = LoadGuard::start(&core)?;
        let (mut created, mut conditions) = (CreatedFiles::default(), conditions);
        let published = self.finish(numbers, &mut created).and_then(|parts| {
            let spilled =
                parts.iter().map(|p| open_tables(&core, p)).collect::<Result<Vec<_>>>()?;
            let mut asked =
                SpilledCommit { conditions: conditions.as_deref_mut(), spilled: &spilled };
            asked.check_conflicts(&core)?;
            let seq = publish_tables_if(&core, &parts, Some(asked))?;
            let kept =
                parts.iter().flat_map(|p| p.open.iter().map(|v| v.meta.id)).collect::<Vec<_>>();
            parts.iter().for_each(|p| p.family.counters.loaded_bytes.add(p.user_bytes()));
            Ok((seq, kept, parts.iter().map(LoadedTables::user_bytes).sum()))
        });
        match published {
            Ok((seq, kept, bytes)) => {
                self.release_files(&kept);
                core.counters.commits.add(1);
                core.counters.operations.add(operations as u64);
                core.counters.user_bytes_written.add(bytes);
                Ok(seq)
            }
            Err(e) => {
                discard_outputs(&core, &created);
                // Where nobody knows whether the edit was written, nothing goes.
                if core.health.poisoned().is_some() {
                    self.families.clear();
                }
                Err(e)
            }
        }
    }
}

/// The final tables of a family as a run, to be asked whether they meet what others have written.
fn open_tables(core: &EngineCore, part: &LoadedTables) -> Result<(Arc<FamilyState>, Arc<Run>)> {
    let order = part.family.tree.comparator();
    let table = |meta: &TableMeta| {
        let reader = core.table_cache.klog_reader(meta.id, meta.summary.bytes)?;
        Ok(Arc::new(Table { meta: meta.clone(), reader }))
    };
    let tables = part.tables.iter().map(table).collect::<Result<_>>()?;
    Ok((Arc::clone(&part.family), Arc::new(Run::new(RunId(0), tables, order))))
}

impl Drop for TxnSpillFiles {
    fn drop(&mut self) {
        self.core.memory_budget.add_freed_bytes(self.held);
        self.set_memory_bytes(0);
        self.release_files(&[]);
    }
}
