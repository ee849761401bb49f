//! A load in the making: entries in any order, on a caller's thread, invisible until it is published.

use super::publish::{Part, publish};
use super::{LoadPace, Working};
use crate::core::Core;
use crate::family::Family;
use crate::jobs::flush::{discard, setting};
use crate::memory;
use perigee_base::format::FileKind;
use perigee_base::{Error, Expiry, FileId, Result, SeqNo, limits};
use perigee_file::name;
use perigee_tree::Version;
use perigee_tree::bulk::{Chunk, Pile};
use perigee_tree::rewrite::{Created, Setting};
use std::sync::Arc;

/// How far a load is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Entries given so far.
    pub entries: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// Sorted runs on disk.
    pub runs: usize,
}

/// Builds tables for one family. Dropped before it is published, it leaves nothing.
#[derive(Debug)]
pub struct Load {
    core: Arc<Core>,
    family: Arc<Family>,
    chunk: Chunk,
    pile: Pile,
    created: Created,
    memory_bytes: usize,
    /// Memory of the chunk, as the budget knows it: it is kept from run to run.
    held: u64,
    progress: Progress,
    /// Built, not yet published.
    ready: Option<Part>,
    done: Option<SeqNo>,
}

impl Load {
    /// An empty load.
    pub fn new(core: &Arc<Core>, family: &Arc<Family>) -> Result<Load> {
        core.health.check_writable()?;
        family.check()?;
        let order = family.tree.order();
        Ok(Load {
            core: Arc::clone(core),
            family: Arc::clone(family),
            chunk: Chunk::new(order),
            pile: Pile::new(order),
            created: Created::default(),
            memory_bytes: memory::load_bytes(core.memory.budget, 64 << 20),
            held: 0,
            progress: Progress::default(),
            ready: None,
            done: None,
        })
    }
    /// Entries are gathered up to so many bytes before they are sorted and written; never more than the budget has for a load.
    pub fn set_memory_bytes(&mut self, bytes: usize) {
        self.memory_bytes = memory::load_bytes(self.core.memory.budget, bytes);
    }
    /// How far it is.
    pub fn progress(&self) -> Progress {
        Progress { runs: self.pile.runs(), ..self.progress }
    }

    /// Adds an entry, which may expire; whether it led to a write to disk. After an error other than `InvalidArgument` the load
    /// is of no more use.
    pub fn put(&mut self, key: &[u8], value: &[u8], expiry: Option<Expiry>) -> Result<bool> {
        if self.ready.is_some() || self.done.is_some() {
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
        self.progress.entries += 1;
        self.progress.bytes += (key.len() + value.len()) as u64;
        self.count();
        if self.chunk.memory_bytes() < self.memory_bytes {
            return Ok(false);
        }
        self.spill()?;
        Ok(true)
    }

    /// Tells the budget when the chunk has grown by a step.
    fn count(&mut self) {
        let now = self.chunk.held_bytes() as u64;
        if now > self.held + memory::step(self.core.memory.budget) {
            self.core.memory.load_holds(&mut self.held, now);
            self.core.jobs_hold();
        }
    }

    /// Works on the pile with what a rewrite needs to know.
    fn rewrite(
        &mut self,
        work: impl FnOnce(&mut Pile, &mut Chunk, Setting<'_>, &mut Created) -> Result<()>,
    ) -> Result<()> {
        let _working = Working::start(&self.core)?;
        self.family.check()?;
        let empty = Version::empty(self.family.tree.order());
        let pace = LoadPace::new(&self.core);
        pace.room(self.chunk.memory_bytes() as u64)?;
        let setting = setting(&self.core, &self.family, &empty, &pace, SeqNo::ZERO);
        work(&mut self.pile, &mut self.chunk, setting, &mut self.created)?;
        let spent = self.pile.take_spent();
        remove(&self.core, &spent);
        self.created.0.retain(|id| !spent.contains(id));
        Ok(())
    }

    fn spill(&mut self) -> Result<()> {
        self.rewrite(|pile, chunk, setting, created| pile.add(chunk, setting, created))?;
        while self.pile.is_crowded() {
            self.rewrite(|pile, _, setting, created| pile.merge_newest(setting, created))?;
        }
        Ok(())
    }

    /// Sorts and merges what is left; nothing is visible yet.
    pub fn build(&mut self) -> Result<&Part> {
        if self.ready.is_none() {
            self.rewrite(|pile, chunk, setting, created| {
                pile.add(chunk, setting.clone(), created)?;
                pile.merge_all(setting, created)
            })?;
            let (tables, vlogs) = self.pile.take();
            let spent = self.pile.take_spent();
            remove(&self.core, &spent);
            self.created.0.retain(|id| !spent.contains(id));
            self.ready = Some(Part { family: Arc::clone(&self.family), tables, vlogs, open: Vec::new() });
        }
        self.ready.as_ref().ok_or_else(|| Error::internal("a load was built but is not ready"))
    }

    /// It is published.
    fn published(&mut self, seq: SeqNo) {
        self.done = Some(seq);
        self.created.0.clear();
    }
}

/// Makes loads of different families visible together, wholly, and durable; their sequence number. After `Busy` it may be
/// called again.
pub fn finish(core: &Arc<Core>, loads: &mut [&mut Load]) -> Result<SeqNo> {
    let mut parts: Vec<Part> = Vec::new();
    for load in loads.iter_mut() {
        if let Some(seq) = load.done {
            return Err(Error::invalid(format!("the load is finished already, as number {seq}")));
        }
        if !Arc::ptr_eq(core, &load.core) {
            return Err(Error::invalid("a load belongs to another database"));
        }
        let part = load.build()?;
        if parts.iter().any(|p| p.family.id == part.family.id) {
            return Err(Error::invalid(format!(
                "two loads of the family {:?} at once: put everything into one",
                part.family.name()
            )));
        }
        parts.push(part.clone());
    }
    let _working = Working::start(core)?;
    parts.retain(|p| !p.tables.is_empty());
    let seq = if parts.is_empty() { core.visible() } else { publish(core, &parts)? };
    loads.iter_mut().for_each(|l| l.published(seq));
    Ok(seq)
}

impl Drop for Load {
    fn drop(&mut self) {
        self.core.memory.freed(self.held);
        self.core.memory.load_holds(&mut self.held, 0);
        self.core.jobs_hold();
        // Once the database is closed the files are not ours any more: they are orphans of the next open.
        if self.done.is_none()
            && let Ok(_working) = Working::start(&self.core)
        {
            discard(&self.core, &self.created);
        }
    }
}

/// Removes files that merges have emptied. What cannot be removed now is an orphan of the next open.
fn remove(core: &Core, spent: &[FileId]) {
    for id in spent {
        core.shelf.forget(*id);
        for kind in [FileKind::Klog, FileKind::Vlog] {
            let _ = core.dir.remove(&name::file_name(*id, kind));
        }
    }
}
