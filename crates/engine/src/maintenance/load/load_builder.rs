//! Builds a bulk load: entries in any order, on a caller's thread, invisible until the load is
//! published.

use super::publish::{LoadedTables, publish_tables};
use super::{LoadGuard, LoadPace};
use crate::catalog::family::FamilyState;
use crate::catalog::install::discard_outputs;
use crate::maintenance::Maintenance;
use crate::maintenance::parallel_tasks::run_tasks;
use crate::resources::Resources;
use perigee_base::{Error, Expiry, FileKind, Result, SeqNo, limits};
use perigee_file::filename;
use perigee_tree::bulk::{LoadBuffer, LoadRunSet};
use perigee_tree::rewrite::{CreatedFiles, RewriteContext};
use perigee_tree::{TableMeta, Version, VlogMeta};
use std::sync::Arc;

/// The progress of a load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadStatus {
    /// Entries added so far.
    pub entries: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// Sorted runs on disk.
    pub runs: usize,
}

/// Builds tables for one column family. If it is dropped before it is published, it removes its
/// files.
#[derive(Debug)]
pub struct LoadBuilder {
    maintenance: Arc<Maintenance>,
    family: Arc<FamilyState>,
    chunk: LoadBuffer,
    runs: LoadRunSet,
    created: CreatedFiles,
    memory_bytes: usize,
    /// Memory of the chunk as charged to the budget: it is reused for every run.
    held_bytes: u64,
    status: LoadStatus,
    /// The tables, if they are built but not published.
    built: Option<LoadedTables>,
    published_at: Option<SeqNo>,
}

impl LoadBuilder {
    /// Creates an empty load.
    pub fn new(maintenance: &Arc<Maintenance>, family: &Arc<FamilyState>) -> Result<LoadBuilder> {
        maintenance.runtime.health.check_writable()?;
        family.check_not_dropped()?;
        let comparator = family.tree.comparator();
        Ok(LoadBuilder {
            maintenance: Arc::clone(maintenance),
            family: Arc::clone(family),
            chunk: LoadBuffer::new(comparator),
            runs: LoadRunSet::new(comparator),
            created: CreatedFiles::default(),
            memory_bytes: maintenance.resources.bulk_load_bytes(64 << 20),
            held_bytes: 0,
            status: LoadStatus::default(),
            built: None,
            published_at: None,
        })
    }
    /// Sets how many bytes of entries are buffered before they are sorted and written, limited to
    /// the share of a load in the memory budget.
    pub fn set_memory_bytes(&mut self, bytes: usize) {
        self.memory_bytes = self.maintenance.resources.bulk_load_bytes(bytes);
    }
    /// Returns the progress.
    pub fn status(&self) -> LoadStatus {
        LoadStatus { runs: self.runs.run_count(), ..self.status }
    }

    /// Adds an entry, which may expire. Returns true if that caused a write to disk. After an error
    /// other than `InvalidArgument` the load cannot be continued.
    pub fn put(&mut self, key: &[u8], value: &[u8], expiry: Option<Expiry>) -> Result<bool> {
        if self.built.is_some() || self.published_at.is_some() {
            return Err(Error::invalid("the load is finished: start another one"));
        }
        if key.len() > limits::KEY_BYTES_MAX {
            return Err(Error::invalid("the key is too long")
                .expected(format_args!("at most {} bytes", limits::KEY_BYTES_MAX), key.len()));
        }
        if value.len() > limits::VALUE_BYTES_MAX {
            return Err(Error::invalid("the value is too long")
                .expected(format_args!("at most {} bytes", limits::VALUE_BYTES_MAX), value.len()));
        }
        self.chunk.push(key, value, expiry)?;
        self.status.entries += 1;
        self.status.bytes += (key.len() + value.len()) as u64;
        self.charge_memory();
        if self.chunk.used_bytes() < self.memory_bytes {
            return Ok(false);
        }
        self.spill_chunk()?;
        Ok(true)
    }

    /// Updates the memory budget when the chunk has grown by a step.
    fn charge_memory(&mut self) {
        let now = self.chunk.allocated_bytes() as u64;
        if now > self.held_bytes + self.maintenance.resources.charge_step() {
            self.maintenance.resources.charge(&mut self.held_bytes, now);
        }
    }

    /// Sorts the buffered entries and writes them to a run, on several threads if there are many.
    fn write_chunk(&mut self) -> Result<()> {
        let _working = LoadGuard::start(&self.maintenance)?;
        self.family.check_not_dropped()?;
        if self.chunk.is_empty() {
            return Ok(());
        }
        let used_bytes = self.chunk.used_bytes();
        self.maintenance.resources.check_free_space_for_load(used_bytes as u64)?;
        let Maintenance { resources, catalog, runtime, .. } = &*self.maintenance;
        let (family, runs) = (&self.family, &self.runs);
        let threads = resources.load_parts(used_bytes, family.settings().target_file_bytes);
        let run = runs.choose_run(&self.chunk);
        let mut parts = self.chunk.divide(threads);
        let sort_bytes: usize = parts.iter().map(|part| part.allocated_bytes()).sum();
        let chunk_bytes = self.chunk.allocated_bytes() as u64;
        resources.charge(&mut self.held_bytes, chunk_bytes + sort_bytes as u64);
        let empty = Version::empty(family.tree.comparator());
        let written = run_tasks(runtime, &mut parts, threads, |part| {
            let pace = LoadPace::new(resources);
            let context = catalog.rewrite_context(family, &empty, &pace, SeqNo::ZERO);
            runs.write_part(run, part, context)
        });
        let (mut created, mut outputs) = (CreatedFiles::default(), Vec::with_capacity(parts.len()));
        for part in parts {
            created.0.extend(part.created.0);
            outputs.extend(part.output);
        }
        resources.charge(&mut self.held_bytes, chunk_bytes);
        written.inspect_err(|_| discard_outputs(catalog, &created))?;
        self.created.0.extend(created.0);
        self.runs.add_parts(run, outputs.into_iter());
        self.chunk.clear();
        Ok(())
    }

    /// Merges runs by `merge`, on the caller's thread.
    fn merge_runs(
        &mut self,
        merge: impl FnOnce(&mut LoadRunSet, RewriteContext<'_>, &mut CreatedFiles) -> Result<()>,
    ) -> Result<()> {
        let _working = LoadGuard::start(&self.maintenance)?;
        self.family.check_not_dropped()?;
        let empty = Version::empty(self.family.tree.comparator());
        let pace = LoadPace::new(&self.maintenance.resources);
        let context =
            self.maintenance.catalog.rewrite_context(&self.family, &empty, &pace, SeqNo::ZERO);
        merge(&mut self.runs, context, &mut self.created)?;
        remove_obsolete(&self.maintenance.resources, &mut self.runs, &mut self.created);
        Ok(())
    }

    fn spill_chunk(&mut self) -> Result<()> {
        self.write_chunk()?;
        check!(
            self.chunk.used_bytes() == 0,
            "the entries of a load are buffered or in a run",
            self.chunk.used_bytes()
        );
        while self.runs.needs_merge() {
            self.merge_runs(|runs, context, created| runs.merge_newest(context, created))?;
        }
        Ok(())
    }

    /// Sorts and merges the remaining entries; nothing becomes visible.
    pub fn build_tables(&mut self) -> Result<&LoadedTables> {
        if self.built.is_none() {
            self.write_chunk()?;
            self.merge_runs(|runs, context, created| runs.merge_all(context, created))?;
            let (tables, vlogs) = self.runs.take_outputs();
            remove_obsolete(&self.maintenance.resources, &mut self.runs, &mut self.created);
            self.check_outputs(&tables, &vlogs);
            self.built = Some(LoadedTables {
                family: Arc::clone(&self.family),
                tables,
                vlogs,
                open: Vec::new(),
            });
        }
        self.built.as_ref().ok_or_else(|| Error::internal("a load was built but is not ready"))
    }

    /// Builds the tables, and returns the number of distinct keys in them.
    pub fn prepare(&mut self) -> Result<u64> {
        if let Some(seq) = self.published_at {
            return Err(finished_error(seq));
        }
        Ok(self.build_tables()?.tables.iter().map(|t| t.summary.entries).sum())
    }

    fn check_outputs(&self, tables: &[TableMeta], vlogs: &[VlogMeta]) {
        let mut ids = tables.iter().map(|t| t.id).chain(vlogs.iter().map(|v| v.id));
        check_slow!(
            ids.all(|id| self.created.0.contains(&id)),
            "a load that is dropped removes all of its files",
            self.created
        );
        check_slow!(
            tables.iter().all(|t| t.global_seq.is_none() && t.summary.largest_seq == SeqNo::ZERO),
            "the entries of a load have no sequence number before it is published",
            tables.len()
        );
    }

    /// Marks the load as published at `seq`.
    fn mark_published(&mut self, seq: SeqNo) {
        check!(self.published_at.is_none(), "a load is published once", self.published_at, seq);
        self.published_at = Some(seq);
        self.created.0.clear();
    }
}

fn finished_error(seq: SeqNo) -> Error {
    Error::invalid(format!("the load is already finished, with sequence number {seq}"))
}

/// Publishes loads of different column families atomically and durably. Returns their sequence
/// number. May be called again after `Busy`.
pub fn finish_loads(
    maintenance: &Arc<Maintenance>,
    loads: &mut [&mut LoadBuilder],
) -> Result<SeqNo> {
    let mut all_tables: Vec<LoadedTables> = Vec::new();
    for load in loads.iter_mut() {
        if let Some(seq) = load.published_at {
            return Err(finished_error(seq));
        }
        if !Arc::ptr_eq(maintenance, &load.maintenance) {
            return Err(Error::invalid("a load belongs to another database"));
        }
        let tables = load.build_tables()?;
        if all_tables.iter().any(|p| p.family.id == tables.family.id) {
            return Err(Error::invalid(format!(
                "two loads for the column family {:?}: put all entries into one",
                tables.family.name()
            )));
        }
        all_tables.push(tables.clone());
    }
    let _working = LoadGuard::start(maintenance)?;
    all_tables.retain(|p| !p.tables.is_empty());
    let seq = if all_tables.is_empty() {
        maintenance.catalog.visible_seq()
    } else {
        publish_tables(maintenance, &all_tables)?
    };
    loads.iter_mut().for_each(|l| l.mark_published(seq));
    Ok(seq)
}

impl Drop for LoadBuilder {
    fn drop(&mut self) {
        self.maintenance.resources.discharge(&mut self.held_bytes);
        // Once the database is closed, the files must not be touched: the next open treats them as
        // orphans.
        if self.published_at.is_none()
            && let Ok(_working) = LoadGuard::start(&self.maintenance)
        {
            discard_outputs(&self.maintenance.catalog, &self.created);
        }
    }
}

/// Removes the files whose entries were merged into others. One that cannot be removed now is an
/// orphan, removed at the next open.
fn remove_obsolete(resources: &Resources, runs: &mut LoadRunSet, created: &mut CreatedFiles) {
    let obsolete = runs.take_obsolete();
    for id in &obsolete {
        resources.table_cache().evict(*id);
        for kind in [FileKind::Klog, FileKind::Vlog] {
            let _ = resources.runtime.dir.remove(&filename::file_name(*id, kind));
        }
    }
    created.0.retain(|id| !obsolete.contains(id));
}
