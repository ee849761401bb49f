//! A load in the making: entries in any order, on a caller's thread, invisible until it is
//! published.

use super::publish::{LoadedTables, publish_tables};
use super::{LoadGuard, LoadPace};
use crate::core::EngineCore;
use crate::family::FamilyState;
use crate::jobs::flush::{discard_outputs, rewrite_setting};
use crate::memory_budget;
use perigee_base::file_header::FileKind;
use perigee_base::{Error, Expiry, FileId, Result, SeqNo, limits};
use perigee_file::filename;
use perigee_tree::Version;
use perigee_tree::bulk::{LoadBuffer, LoadRunSet};
use perigee_tree::rewrite::{CreatedFiles, RewriteContext};
use std::sync::Arc;

/// How far a load is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadStatus {
    /// Entries given so far.
    pub entries: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// Sorted runs on disk.
    pub runs: usize,
}

/// Builds tables for one family. Dropped before it is published, it leaves nothing.
#[derive(Debug)]
pub struct LoadBuilder {
    core: Arc<EngineCore>,
    family: Arc<FamilyState>,
    chunk: LoadBuffer,
    pile: LoadRunSet,
    created: CreatedFiles,
    memory_bytes: usize,
    /// Memory of the chunk, as the budget knows it: it is kept from run to run.
    held_bytes: u64,
    status: LoadStatus,
    /// Built, not yet published.
    built: Option<LoadedTables>,
    published_at: Option<SeqNo>,
}

impl LoadBuilder {
    /// An empty load.
    pub fn new(core: &Arc<EngineCore>, family: &Arc<FamilyState>) -> Result<LoadBuilder> {
        core.health.check_writable()?;
        family.check_not_dropped()?;
        let order = family.tree.comparator();
        Ok(LoadBuilder {
            core: Arc::clone(core),
            family: Arc::clone(family),
            chunk: LoadBuffer::new(order),
            pile: LoadRunSet::new(order),
            created: CreatedFiles::default(),
            memory_bytes: memory_budget::bulk_load_bytes(core.memory_budget.limit, 64 << 20),
            held_bytes: 0,
            status: LoadStatus::default(),
            built: None,
            published_at: None,
        })
    }
    /// Entries are gathered up to so many bytes before they are sorted and written; never more than
    /// the budget has for a load.
    pub fn set_memory_bytes(&mut self, bytes: usize) {
        self.memory_bytes = memory_budget::bulk_load_bytes(self.core.memory_budget.limit, bytes);
    }
    /// How far it is.
    pub fn status(&self) -> LoadStatus {
        LoadStatus { runs: self.pile.run_count(), ..self.status }
    }

    /// Adds an entry, which may expire; whether it led to a write to disk. After an error other
    /// than `InvalidArgument` the load is of no more use.
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

    /// Tells the budget when the chunk has grown by a step.
    fn charge_memory(&mut self) {
        let now = self.chunk.allocated_bytes() as u64;
        if now > self.held_bytes + memory_budget::rebalance_step(self.core.memory_budget.limit) {
            self.core.memory_budget.set_load_bytes(&mut self.held_bytes, now);
            self.core.update_job_memory();
        }
    }

    /// Works on the pile with what a rewrite needs to know.
    fn rewrite_pile(
        &mut self,
        work: impl FnOnce(
            &mut LoadRunSet,
            &mut LoadBuffer,
            RewriteContext<'_>,
            &mut CreatedFiles,
        ) -> Result<()>,
    ) -> Result<()> {
        let _working = LoadGuard::start(&self.core)?;
        self.family.check_not_dropped()?;
        let empty = Version::empty(self.family.tree.comparator());
        let pace = LoadPace::new(&self.core);
        pace.check_free_space(self.chunk.used_bytes() as u64)?;
        let setting = rewrite_setting(&self.core, &self.family, &empty, &pace, SeqNo::ZERO);
        work(&mut self.pile, &mut self.chunk, setting, &mut self.created)?;
        let spent = self.pile.take_obsolete();
        remove_files(&self.core, &spent);
        self.created.0.retain(|id| !spent.contains(id));
        Ok(())
    }

    fn spill_chunk(&mut self) -> Result<()> {
        self.rewrite_pile(|pile, chunk, setting, created| pile.write_run(chunk, setting, created))?;
        while self.pile.needs_merge() {
            self.rewrite_pile(|pile, _, setting, created| pile.merge_newest(setting, created))?;
        }
        Ok(())
    }

    /// Sorts and merges what is left; nothing is visible yet.
    pub fn build_tables(&mut self) -> Result<&LoadedTables> {
        if self.built.is_none() {
            self.rewrite_pile(|pile, chunk, setting, created| {
                pile.write_run(chunk, setting.clone(), created)?;
                pile.merge_all(setting, created)
            })?;
            let (tables, vlogs) = self.pile.take_outputs();
            let spent = self.pile.take_obsolete();
            remove_files(&self.core, &spent);
            self.created.0.retain(|id| !spent.contains(id));
            self.built = Some(LoadedTables {
                family: Arc::clone(&self.family),
                tables,
                vlogs,
                open: Vec::new(),
            });
        }
        self.built.as_ref().ok_or_else(|| Error::internal("a load was built but is not ready"))
    }

    /// It is published.
    fn mark_published(&mut self, seq: SeqNo) {
        self.published_at = Some(seq);
        self.created.0.clear();
    }
}

/// Makes loads of different families visible together, wholly, and durable; their sequence number.
/// After `Busy` it may be called again.
pub fn finish_loads(core: &Arc<EngineCore>, loads: &mut [&mut LoadBuilder]) -> Result<SeqNo> {
    let mut parts: Vec<LoadedTables> = Vec::new();
    for load in loads.iter_mut() {
        if let Some(seq) = load.published_at {
            return Err(Error::invalid(format!("the load is finished already, as number {seq}")));
        }
        if !Arc::ptr_eq(core, &load.core) {
            return Err(Error::invalid("a load belongs to another database"));
        }
        let part = load.build_tables()?;
        if parts.iter().any(|p| p.family.id == part.family.id) {
            return Err(Error::invalid(format!(
                "two loads of the family {:?} at once: put everything into one",
                part.family.name()
            )));
        }
        parts.push(part.clone());
    }
    let _working = LoadGuard::start(core)?;
    parts.retain(|p| !p.tables.is_empty());
    let seq = if parts.is_empty() { core.visible_seq() } else { publish_tables(core, &parts)? };
    loads.iter_mut().for_each(|l| l.mark_published(seq));
    Ok(seq)
}

impl Drop for LoadBuilder {
    fn drop(&mut self) {
        self.core.memory_budget.add_freed_bytes(self.held_bytes);
        self.core.memory_budget.set_load_bytes(&mut self.held_bytes, 0);
        self.core.update_job_memory();
        // Once the database is closed the files are not ours any more: they are orphans of the next
        // open.
        if self.published_at.is_none()
            && let Ok(_working) = LoadGuard::start(&self.core)
        {
            discard_outputs(&self.core, &self.created);
        }
    }
}

/// Removes files that merges have emptied. What cannot be removed now is an orphan of the next
/// open.
fn remove_files(core: &EngineCore, spent: &[FileId]) {
    for id in spent {
        core.table_cache.evict(*id);
        for kind in [FileKind::Klog, FileKind::Vlog] {
            let _ = core.dir.remove(&filename::file_name(*id, kind));
        }
    }
}
