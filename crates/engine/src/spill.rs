//! What transactions cannot keep in memory: runs of tables of their own on a caller's thread, invisible until the commit, which
//! makes one run of them for each family and publishes that as a load is published.
//!
//! Invariant: a file here is named by nobody else. What is not needed any more is retired, because cursors of the transaction may
//! still read it; what a crash leaves is an orphan of the next open.

use crate::core::Core;
use crate::family::Family;
use crate::jobs::flush::{discard, setting};
use crate::load::publish::{Asked, Part, publish_if};
use crate::load::{LoadPace, Working};
use crate::txn::runs::Runs;
use crate::txn::validate::Conditions;
use perigee_base::{Error, ErrorKind, FamilyId, FileId, Result, RunId, SeqNo};
use perigee_tree::bulk::Spill;
use perigee_tree::bulk::spill::{Finished, Numbers, Spent};
use perigee_tree::own::Spilled;
use perigee_tree::rewrite::{Created, Setting};
use perigee_tree::{Memtable, Run, Table, TableMeta, Version};
use std::sync::Arc;

/// What one family gets.
#[derive(Debug)]
struct Mine {
    family: Arc<Family>,
    spill: Spill,
    picture: Arc<Spilled>,
}

/// The runs of one transaction.
#[derive(Debug)]
pub struct Files {
    core: Arc<Core>,
    families: Vec<Mine>,
    /// Memory of the transaction, as the budget knows it.
    held: u64,
}

impl Files {
    /// None yet.
    pub fn new(core: &Arc<Core>) -> Files {
        Files { core: Arc::clone(core), families: Vec::new(), held: 0 }
    }

    fn mine(&mut self, id: FamilyId) -> Result<&mut Mine> {
        let at = match self.families.iter().position(|m| m.family.id == id) {
            Some(at) => at,
            None => {
                let family = self.core.families.by_id(id).ok_or_else(|| {
                    let text = format!("the transaction writes to family {id}, which was dropped");
                    Error::new(ErrorKind::NotFound, text)
                })?;
                let spill = Spill::new(family.tree.order());
                self.families.push(Mine { family, picture: spill.picture(), spill });
                self.families.len() - 1
            }
        };
        self.families[at].family.check()?;
        Ok(&mut self.families[at])
    }

    /// Adds a memtable to the runs of its family, which are merged before if there are many.
    fn add_one(&mut self, id: FamilyId, memtable: &Arc<Memtable>, numbers: &Numbers) -> Result<()> {
        let core = Arc::clone(&self.core);
        let mine = self.mine(id)?;
        while mine.spill.is_crowded() {
            mine.rewrite(&core, 0, |spill, setting, created| spill.merge_newest(numbers, setting, created))?;
        }
        mine.rewrite(&core, memtable.bytes(), |spill, setting, created| {
            spill.add(memtable, numbers, setting, created)
        })
    }

    /// The tables of all families as they will be.
    fn finish(&mut self, numbers: &Numbers, created: &mut Created) -> Result<Vec<Part>> {
        let core = Arc::clone(&self.core);
        let mut parts = Vec::new();
        for mine in &mut self.families {
            mine.family.check()?;
            let family = Arc::clone(&mine.family);
            let Finished { tables, vlogs, open } =
                mine.build(&core, |spill, setting| spill.finish(numbers, setting, created))?;
            if !tables.is_empty() {
                parts.push(Part { family, tables, vlogs, open });
            }
        }
        Ok(parts)
    }

    /// Lets go of the files, but for value logs that are in `kept`.
    fn let_go(&mut self, kept: &[FileId]) {
        // Once the database is closed the files are not ours any more.
        let Ok(_working) = Working::start(&self.core) else { return };
        for mine in self.families.drain(..) {
            let Mine { spill, picture, .. } = mine;
            drop(picture);
            retire(&self.core, spill.take_all(kept));
        }
        let _ = self.core.retire.sweep(&self.core.shelf);
    }
}

impl Mine {
    /// Works with what a rewrite needs to know.
    fn build<T>(
        &mut self,
        core: &Core,
        work: impl FnOnce(&mut Spill, Setting<'_>) -> Result<T>,
    ) -> Result<T> {
        let empty = Version::empty(self.family.tree.order());
        let pace = LoadPace::new(core);
        work(&mut self.spill, setting(core, &self.family, &empty, &pace, SeqNo::ZERO))
    }
    /// Changes the runs; what is left over goes, also after an error, when nothing has changed.
    fn rewrite(
        &mut self,
        core: &Core,
        bytes: u64,
        work: impl FnOnce(&mut Spill, Setting<'_>, &mut Created) -> Result<()>,
    ) -> Result<()> {
        LoadPace::new(core).room(bytes)?;
        let mut created = Created::default();
        let done = self.build(core, |spill, setting| work(spill, setting, &mut created));
        if done.is_err() {
            discard(core, &created);
        }
        self.changed(core);
        done
    }
    fn changed(&mut self, core: &Core) {
        let spent = self.spill.take_spent();
        self.picture = self.spill.picture();
        retire(core, spent);
        let _ = core.retire.sweep(&core.shelf);
    }
}

fn retire(core: &Core, spent: Spent) {
    core.retire.spent(&spent.tables, &spent.vlogs);
}

impl Runs for Files {
    fn holds(&mut self, bytes: u64) {
        self.core.memory.load_holds(&mut self.held, bytes);
        self.core.jobs_hold();
    }

    fn of(&self, family: FamilyId) -> Option<Arc<Spilled>> {
        self.families.iter().find(|m| m.family.id == family).map(|m| Arc::clone(&m.picture))
    }

    fn add(&mut self, memtables: &[(FamilyId, Arc<Memtable>)], numbers: &Numbers) -> Result<()> {
        let core = Arc::clone(&self.core);
        let _working = Working::start(&core)?;
        let first = memtables.iter().map(|(_, m)| m.first_seq()).min().unwrap_or_default();
        let added = memtables.iter().try_for_each(|(id, m)| self.add_one(*id, m, numbers));
        core.memory.freed(memtables.iter().map(|(_, m)| m.bytes()).sum());
        core.give_back();
        added.map_err(|e| {
            self.roll_back(first);
            let kind = e.kind();
            e.wrap(kind, "what a transaction cannot keep in memory could not be written to files")
        })
    }

    fn roll_back(&mut self, number: SeqNo) {
        let core = Arc::clone(&self.core);
        let Ok(_working) = Working::start(&core) else { return };
        for mine in &mut self.families {
            mine.spill.roll_back(number);
            mine.changed(&core);
        }
    }

    fn commit(
        mut self: Box<Self>,
        numbers: &Numbers,
        conditions: Option<Box<Conditions>>,
        operations: usize,
    ) -> Result<SeqNo> {
        let core = Arc::clone(&self.core);
        let _working = Working::start(&core)?;
        let (mut created, mut conditions) = (Created::default(), conditions);
        let published = self.finish(numbers, &mut created).and_then(|parts| {
            let spilled = parts.iter().map(|p| open(&core, p)).collect::<Result<Vec<_>>>()?;
            let mut asked = Asked { conditions: conditions.as_deref_mut(), spilled: &spilled };
            asked.check(&core)?;
            let seq = publish_if(&core, &parts, Some(asked))?;
            let kept = parts.iter().flat_map(|p| p.open.iter().map(|v| v.meta.id)).collect::<Vec<_>>();
            parts.iter().for_each(|p| p.family.figures.loaded_bytes.add(p.user_bytes()));
            Ok((seq, kept, parts.iter().map(Part::user_bytes).sum()))
        });
        match published {
            Ok((seq, kept, bytes)) => {
                self.let_go(&kept);
                core.counters.commits.add(1);
                core.counters.operations.add(operations as u64);
                core.counters.user_bytes_written.add(bytes);
                Ok(seq)
            }
            Err(e) => {
                discard(&core, &created);
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
fn open(core: &Core, part: &Part) -> Result<(Arc<Family>, Arc<Run>)> {
    let order = part.family.tree.order();
    let table = |meta: &TableMeta| {
        let reader = core.shelf.klog(meta.id, meta.summary.bytes)?;
        Ok(Arc::new(Table { meta: meta.clone(), reader }))
    };
    let tables = part.tables.iter().map(table).collect::<Result<_>>()?;
    Ok((Arc::clone(&part.family), Arc::new(Run::new(RunId(0), tables, order))))
}

impl Drop for Files {
    fn drop(&mut self) {
        self.core.memory.freed(self.held);
        self.holds(0);
        self.let_go(&[]);
    }
}
