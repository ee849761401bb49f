//! Spilled writes of transactions that exceed their memory: runs of private tables, written on the
//! caller's thread and invisible until the commit, which merges them into one run per column family
//! and publishes it like a bulk load.
//!
//! Invariant: these files are referenced by this transaction only. Files that are no longer needed
//! become obsolete files, because cursors of the transaction may still read them; after a crash,
//! the next open removes them as orphans.

use crate::catalog::Catalog;
use crate::catalog::family::FamilyState;
use crate::catalog::install::discard_outputs;
use crate::maintenance::Maintenance;
use crate::maintenance::load::publish::{LoadedTables, SpilledCommit, publish_tables_if};
use crate::maintenance::load::{LoadGuard, LoadPace};
use crate::maintenance::prepared_spill;
use crate::resources::Resources;
use crate::txn::spill_store::{SeparatedEntry, SpillStore, SpilledPrepare};
use crate::txn::validate::{CommitConditions, SpilledWriteCheck};
use perigee_base::{EntryRef, Error, ErrorKind, FamilyId, FileId, Result, RunId, SeqNo, ValueRef};
use perigee_file::WrittenValue;
use perigee_tree::bulk::{ObsoleteSpillFiles, SpillOutput, SpillRunSet, TxnSeqInfo};
use perigee_tree::rewrite::{CreatedFiles, RewriteContext};
use perigee_tree::{Memtable, OverlayRuns, Run, Table, TableMeta, Version, VlogMeta};
use std::sync::Arc;

/// The spilled writes to one column family.
#[derive(Debug)]
struct FamilySpill {
    family: Arc<FamilyState>,
    spill: SpillRunSet,
    spilled_runs: Arc<OverlayRuns>,
}

/// The spilled runs of one transaction.
#[derive(Debug)]
pub struct TxnSpillFiles {
    maintenance: Arc<Maintenance>,
    families: Vec<FamilySpill>,
    /// Bytes of memory of the transaction, as accounted in the memory budget.
    held_bytes: u64,
}

impl TxnSpillFiles {
    /// Creates an empty store.
    pub fn new(maintenance: &Arc<Maintenance>) -> TxnSpillFiles {
        TxnSpillFiles { maintenance: Arc::clone(maintenance), families: Vec::new(), held_bytes: 0 }
    }

    fn family_spill(&mut self, id: FamilyId) -> Result<&mut FamilySpill> {
        let at = match self.families.iter().position(|m| m.family.id == id) {
            Some(at) => at,
            None => {
                let family = self.maintenance.catalog.families().by_id(id).ok_or_else(|| {
                    let text =
                        format!("the transaction writes to column family {id}, which was dropped");
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

    /// Adds `bytes` to the runs of a column family with `add`, merging runs first if there are
    /// many.
    fn add_run(
        &mut self,
        id: FamilyId,
        bytes: u64,
        seqs: &TxnSeqInfo,
        add: impl FnOnce(&mut SpillRunSet, RewriteContext<'_>, &mut CreatedFiles) -> Result<()>,
    ) -> Result<()> {
        let maintenance = Arc::clone(&self.maintenance);
        let mine = self.family_spill(id)?;
        while mine.spill.needs_merge() {
            mine.update_runs(&maintenance.catalog, 0, |spill, setting, created| {
                spill.merge_newest(seqs, setting, created)
            })?;
        }
        mine.update_runs(&maintenance.catalog, bytes, add)
    }

    /// Returns the final tables of all column families.
    fn finish(
        &mut self,
        seqs: &TxnSeqInfo,
        created: &mut CreatedFiles,
    ) -> Result<Vec<LoadedTables>> {
        let maintenance = Arc::clone(&self.maintenance);
        let mut parts = Vec::new();
        for mine in &mut self.families {
            mine.family.check_not_dropped()?;
            let family = Arc::clone(&mine.family);
            let SpillOutput { tables, vlogs, open_vlogs: open } = mine
                .with_rewrite_context(&maintenance.catalog, |spill, setting| {
                    spill.finish(seqs, setting, created)
                })?;
            if !tables.is_empty() {
                parts.push(LoadedTables { family, tables, vlogs, open });
            }
        }
        Ok(parts)
    }

    /// Removes the final tables after an error. If it is unknown whether the edit was written, no
    /// file may be deleted.
    fn discard(&mut self, created: &CreatedFiles) {
        discard_outputs(&self.maintenance.catalog, created);
        if self.maintenance.runtime.health.poisoned().is_some() {
            self.families.clear();
        }
    }

    /// Makes the files obsolete, except the value logs in `kept`.
    fn release_files(&mut self, kept: &[FileId]) {
        // Once the database is closed, its files must not be touched.
        let Ok(_working) = LoadGuard::start(&self.maintenance) else { return };
        for mine in self.families.drain(..) {
            let FamilySpill { spill, spilled_runs, .. } = mine;
            drop(spilled_runs);
            retire_files(&self.maintenance.catalog, spill.into_obsolete(kept));
        }
        let _ = self.maintenance.catalog.delete_unreferenced();
    }
}

impl FamilySpill {
    /// Calls `work` with the context of a rewrite.
    fn with_rewrite_context<T>(
        &mut self,
        catalog: &Catalog,
        work: impl FnOnce(&mut SpillRunSet, RewriteContext<'_>) -> Result<T>,
    ) -> Result<T> {
        let empty = Version::empty(self.family.tree.comparator());
        let pace = LoadPace::new(&catalog.resources);
        work(&mut self.spill, catalog.rewrite_context(&self.family, &empty, &pace, SeqNo::ZERO))
    }
    /// Changes the runs; files that are no longer needed become obsolete. After an error nothing
    /// has changed, and new files are discarded.
    fn update_runs(
        &mut self,
        catalog: &Catalog,
        bytes: u64,
        work: impl FnOnce(&mut SpillRunSet, RewriteContext<'_>, &mut CreatedFiles) -> Result<()>,
    ) -> Result<()> {
        LoadPace::new(&catalog.resources).check_free_space(bytes)?;
        let mut created = CreatedFiles::default();
        let done =
            self.with_rewrite_context(catalog, |spill, setting| work(spill, setting, &mut created));
        if done.is_err() {
            discard_outputs(catalog, &created);
        }
        self.retire_spent(catalog);
        done
    }
    fn retire_spent(&mut self, catalog: &Catalog) {
        let obsolete = self.spill.take_obsolete();
        self.spilled_runs = self.spill.spilled_runs();
        retire_files(catalog, obsolete);
        let _ = catalog.delete_unreferenced();
    }
}

fn retire_files(catalog: &Catalog, obsolete: ObsoleteSpillFiles) {
    catalog.retire_unpublished(&obsolete.tables, &obsolete.vlogs);
}

impl SpillStore for TxnSpillFiles {
    fn set_memory_bytes(&mut self, bytes: u64) {
        self.maintenance.resources.charge(&mut self.held_bytes, bytes);
    }

    fn spilled_in(&self, family: FamilyId) -> Option<Arc<OverlayRuns>> {
        self.families.iter().find(|m| m.family.id == family).map(|m| Arc::clone(&m.spilled_runs))
    }

    fn add_runs(
        &mut self,
        memtables: &[(FamilyId, Arc<Memtable>)],
        seqs: &TxnSeqInfo,
    ) -> Result<()> {
        let maintenance = Arc::clone(&self.maintenance);
        let _working = LoadGuard::start(&maintenance)?;
        check_slow!(
            memtables.iter().all(|(_, m)| !m.is_empty()),
            "each memtable that is spilled has entries",
            memtables.len()
        );
        let first = memtables.iter().map(|(_, m)| m.first_seq()).min().unwrap_or_default();
        let added = memtables.iter().try_for_each(|(id, m)| {
            self.add_run(*id, m.bytes(), seqs, |spill, setting, created| {
                spill.write_run(m, seqs, setting, created)
            })
        });
        maintenance.resources.add_freed_bytes(memtables.iter().map(|(_, m)| m.bytes()).sum());
        maintenance.resources.release_freed_memory();
        added.map_err(|e| {
            self.roll_back_from(first);
            let kind = e.kind();
            e.wrap(
                kind,
                "the writes of a transaction that exceeds its memory could not be written to files",
            )
        })
    }

    fn add_separated(
        &mut self,
        family: FamilyId,
        entry: SeparatedEntry<'_>,
        seqs: &TxnSeqInfo,
    ) -> Result<()> {
        let maintenance = Arc::clone(&self.maintenance);
        let _working = LoadGuard::start(&maintenance)?;
        let SeparatedEntry { key, seq, expiry, value: WrittenValue { pointer, vlog } } = entry;
        check!(
            pointer.offset + pointer.stored_bytes == vlog.bytes,
            "the file of a value holds nothing else",
            pointer,
            vlog
        );
        let meta = VlogMeta { id: pointer.file, bytes: vlog.bytes, checksum: vlog.checksum };
        let entry = EntryRef { key, seq, value: ValueRef::pointer(*pointer, expiry) };
        self.add_run(family, key.len() as u64, seqs, |spill, setting, created| {
            spill.add_separated(entry, meta, seqs, setting, created)
        })
    }

    fn roll_back_from(&mut self, number: SeqNo) {
        let maintenance = Arc::clone(&self.maintenance);
        let Ok(_working) = LoadGuard::start(&maintenance) else { return };
        for mine in &mut self.families {
            mine.spill.roll_back_to(number);
            mine.retire_spent(&maintenance.catalog);
        }
    }

    fn commit_spilled(
        mut self: Box<Self>,
        seqs: &TxnSeqInfo,
        conditions: Option<Box<CommitConditions>>,
        operations: usize,
    ) -> Result<SeqNo> {
        let maintenance = Arc::clone(&self.maintenance);
        let _working = LoadGuard::start(&maintenance)?;
        let (mut created, mut conditions) = (CreatedFiles::default(), conditions);
        let published = self.finish(seqs, &mut created).and_then(|parts| {
            let spilled = parts
                .iter()
                .map(|p| open_tables(&maintenance.resources, p))
                .collect::<Result<Vec<_>>>()?;
            let (conditions, prepared) = (conditions.as_deref_mut(), SpilledWriteCheck::default());
            let mut commit = SpilledCommit::OnePhase { conditions, spilled: &spilled, prepared };
            commit.check_conflicts(&maintenance.catalog)?;
            let seq = publish_tables_if(&maintenance, &parts, Some(commit))?;
            let kept =
                parts.iter().flat_map(|p| p.open.iter().map(|v| v.meta.id)).collect::<Vec<_>>();
            parts.iter().for_each(|p| p.family.counters.loaded_bytes.add(p.user_bytes()));
            Ok((seq, kept, parts.iter().map(LoadedTables::user_bytes).sum()))
        });
        match published {
            Ok((seq, kept, bytes)) => {
                self.release_files(&kept);
                maintenance.runtime.counters.commits.add(1);
                maintenance.runtime.counters.operations.add(operations as u64);
                maintenance.runtime.counters.user_bytes_written.add(bytes);
                Ok(seq)
            }
            Err(e) => {
                self.discard(&created);
                Err(e)
            }
        }
    }

    fn prepare_spilled(
        mut self: Box<Self>,
        seqs: &TxnSeqInfo,
        mut request: SpilledPrepare<'_>,
    ) -> Result<()> {
        let maintenance = Arc::clone(&self.maintenance);
        let (working, mut created) = (LoadGuard::start(&maintenance), CreatedFiles::default());
        let built = working.as_ref().map_err(Error::clone).and_then(|_| {
            let parts = self.finish(seqs, &mut created)?;
            let built = prepared_spill::build_prepared(&maintenance, &parts, &request)?;
            Ok((parts, built))
        });
        let (owner, mut txn_locks) = request.locks;
        let (parts, (prepared, tables)) = built.inspect_err(|_| {
            maintenance.txns.release_locks(owner, &mut txn_locks);
            self.discard(&created);
        })?;
        prepared.set_locks(txn_locks);
        maintenance.resources.charge(&mut 0, prepared.memory_bytes());
        let conditions = request.conditions.take();
        let installed =
            prepared_spill::install_prepared(&maintenance, &prepared, tables, conditions);
        installed.inspect_err(|_| {
            maintenance.txns.prepared_txns().remove(&prepared);
            maintenance.txns.end_prepared(&prepared);
            self.discard(&created);
        })?;
        let kept = parts.iter().flat_map(|p| p.open.iter().map(|v| v.meta.id)).collect::<Vec<_>>();
        self.release_files(&kept);
        Ok(())
    }
}

/// Opens the final tables of a column family as a run, to check them for conflicts with other
/// writes.
fn open_tables(resources: &Resources, part: &LoadedTables) -> Result<(Arc<FamilyState>, Arc<Run>)> {
    let comparator = part.family.tree.comparator();
    let table = |meta: &TableMeta| {
        let reader = resources.table_cache().klog_reader(meta.id, meta.summary.bytes)?;
        Ok(Arc::new(Table { meta: meta.clone(), reader }))
    };
    let tables = part.tables.iter().map(table).collect::<Result<_>>()?;
    Ok((Arc::clone(&part.family), Arc::new(Run::new(RunId(0), tables, comparator))))
}

impl Drop for TxnSpillFiles {
    fn drop(&mut self) {
        self.maintenance.resources.discharge(&mut self.held_bytes);
        self.release_files(&[]);
    }
}
