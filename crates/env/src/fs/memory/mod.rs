//! A simulated disk: what a power cut, a crash of the process, a full disk and a failing device leave behind,
//! chosen by a seed. It works inside a [`crate::sim::World`], where every call may switch threads, and on
//! ordinary threads alike.
//!
//! Contents become durable by a file's sync, names by their directory's; nothing else does. Each mutating call
//! (append, allocation, truncate, sync, create, rename, remove, directory sync, move) is counted, and can be made to fail
//! or to be the last one before a crash. A successful call takes effect in one instant; a file's sync covers
//! the contents at its call and makes them durable at its return.

mod pages;
mod names;
mod handles;
mod crash;
mod image;

pub use super::fault::Fault;
pub use crash::Crash;

use super::fault::{Faults, Op, Verdict, crash_error};
use super::open_files::{OpenFiles, too_many_error};
use super::{Dir, Fs, OpenDir};
use crate::rand::Seeded;
use crate::sched;
use handles::SimDir;
use names::{DirId, Entry, ROOT_DIR, Tree};
use perigee_base::{Error, ErrorKind, Result};
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Component, Path};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A simulated disk with several directories, below `/` (relative paths start there too).
pub struct SimDisk {
    core: Arc<Core>,
}

/// What the disk shares with its open handles.
struct Core {
    state: Mutex<State>,
    files: Arc<OpenFiles>,
}

struct State {
    rng: Seeded,
    boot_id: u64,
    tree: Tree,
    /// Numbers of the locked files.
    locks: BTreeSet<u64>,
    faults: Faults,
    capacity: u64,
    /// Whether files can be linked.
    links: bool,
    /// Open files (locks too), and how many there may be.
    handles: usize,
    handles_max: Option<usize>,
}

/// How a mutating call ends: whether it takes effect, and what the caller is told.
struct Outcome {
    applies: bool,
    error: Option<Error>,
}

impl SimDisk {
    /// An empty disk. The seed decides everything that a fault or crash leaves open.
    pub fn new(seed: u64) -> Arc<SimDisk> {
        let mut rng = Seeded::new(seed);
        let boot_id = rng.next_u64();
        Self::from_parts(rng, boot_id, Tree::new())
    }

    fn from_parts(rng: Seeded, boot_id: u64, tree: Tree) -> Arc<SimDisk> {
        let (locks, faults) = (BTreeSet::new(), Faults::default());
        let (capacity, links) = (u64::MAX, true);
        let state =
            State { rng, boot_id, tree, locks, faults, capacity, links, handles: 0, handles_max: None };
        Arc::new(SimDisk { core: Arc::new(Core { state: Mutex::new(state), files: Arc::default() }) })
    }

    /// Mutating calls so far.
    pub fn io_count(&self) -> u64 {
        self.core.state().faults.calls()
    }

    /// The `n`-th mutating call from now (1 is the next) is applied in part or not at all; it and every later
    /// call, reads too, fail with kind `Io` and the message "simulated crash". 0 crashes at once.
    pub fn crash_at(&self, n: u64) {
        self.core.state().faults.crash_at(n);
    }

    /// Whether that has happened.
    pub fn crashed(&self) -> bool {
        self.core.state().faults.crashed()
    }

    /// The `n`-th mutating call from now, or the first one after it that `fault` can hit, fails. If `sticky`,
    /// so does every later one that it can hit, until [`SimDisk::heal`].
    pub fn fail_at(&self, n: u64, fault: Fault, sticky: bool) {
        self.core.state().faults.fail_at(n, fault, sticky);
    }

    /// The next `times` reads of files whose name ends in `name_suffix` fail.
    pub fn fail_reads(&self, name_suffix: &str, times: u64) {
        self.core.state().faults.fail_reads(name_suffix, times);
    }

    /// Ends every planned fault. What was lost stays lost.
    pub fn heal(&self) {
        self.core.state().faults.heal();
    }

    /// From now on appends that make all files together longer than this fail with `NoSpace`; a prefix may be
    /// written. `u64::MAX` lifts the limit.
    pub fn set_capacity(&self, bytes: u64) {
        self.core.state().capacity = bytes;
    }

    /// Whether files can have a second name, as they cannot across file systems (default true).
    pub fn set_links(&self, possible: bool) {
        self.core.state().links = possible;
    }
}

impl SimDisk {
    /// Sets the number of files that may be open at once; more are refused as a process's limit does (`EMFILE`). Those that are open stay
    /// so.
    pub fn set_open_files(&self, limit: Option<usize>) {
        self.core.state().handles_max = limit;
    }

    /// Files that are open now, locks among them.
    pub fn open_handles(&self) -> usize {
        self.core.state().handles
    }
}

impl Fs for SimDisk {
    fn open_dir(&self, path: &Path, mode: OpenDir) -> Result<Arc<dyn Dir>> {
        sched::io_point();
        let mut state = self.core.state();
        state.faults.check_alive()?;
        let names = components(path)?;
        let Some((last, parents)) = names.split_last() else {
            return Ok(SimDir::shared(&self.core, path, ROOT_DIR));
        };
        let parent = state.walk(parents).map_err(|e| {
            let what = format!("open directory {}: its parent", path.display());
            let kind = e.kind();
            e.wrap(kind, &what)
        })?;
        let id = match (state.tree.get(parent, last), mode) {
            (Some(Entry::Dir(id)), _) => *id,
            (Some(Entry::File(_)), _) => {
                return Err(Error::invalid(format!("{} is a file, not a directory", path.display())));
            }
            (None, OpenDir::Existing) => {
                return Err(Error::new(ErrorKind::NotFound, format!("no directory {}", path.display())));
            }
            (None, OpenDir::CreateIfMissing) => {
                let outcome = state.decide(Op::Create, "create directory")?;
                outcome.finish(|| {
                    let id = state.tree.make_dir(parent, last);
                    state.tree.sync(parent);
                    id
                })?
            }
        };
        Ok(SimDir::shared(&self.core, path, id))
    }

    fn boot_id(&self) -> u64 {
        self.core.state().boot_id
    }

    fn open_files(&self) -> Option<u64> {
        self.core.state().handles_max.map(|n| n as u64)
    }

    fn files(&self) -> Arc<OpenFiles> {
        Arc::clone(&self.core.files)
    }

    fn rename_dir(&self, from: &Path, to: &Path) -> Result<()> {
        sched::io_point();
        let mut state = self.core.state();
        state.faults.check_alive()?;
        let (source, target) = (components(from)?, components(to)?);
        let (Some((old, parent)), Some((new, other))) = (source.split_last(), target.split_last()) else {
            return Err(Error::invalid("the root cannot be renamed"));
        };
        if parent != other {
            return Err(Error::invalid("a directory is renamed inside its parent only"));
        }
        let parent = state.walk(parent)?;
        let Some(Entry::Dir(id)) = state.tree.get(parent, old).cloned() else {
            return Err(Error::new(ErrorKind::NotFound, format!("no directory {}", from.display())));
        };
        let free = match state.tree.get(parent, new) {
            None => true,
            Some(Entry::Dir(there)) => state.tree.entries(*there).next().is_none(),
            Some(Entry::File(_)) => false,
        };
        if !free {
            let text = format!("{} exists and is not empty", to.display());
            return Err(Error::new(ErrorKind::AlreadyExists, text));
        }
        let outcome = state.decide(Op::Rename, "rename directory")?;
        let done = outcome.finish(|| {
            state.tree.rename(parent, new, Entry::Dir(id));
            state.tree.sync(parent);
        });
        drop(state);
        sched::io_point();
        done
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        sched::io_point();
        let mut state = self.core.state();
        state.faults.check_alive()?;
        let names = components(path)?;
        let Some((last, parents)) = names.split_last() else {
            return Err(Error::invalid("the root cannot be removed"));
        };
        let parent = state.walk(parents)?;
        match state.tree.get(parent, last) {
            Some(Entry::Dir(id)) if state.tree.entries(*id).next().is_none() => {}
            Some(_) => {
                let text = format!("{} is not an empty directory", path.display());
                return Err(Error::new(ErrorKind::AlreadyExists, text));
            }
            None => return Err(Error::new(ErrorKind::NotFound, format!("no directory {}", path.display()))),
        }
        let outcome = state.decide(Op::Remove, "remove directory")?;
        outcome.finish(|| state.tree.remove(parent, last))
    }
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimDisk({} files)", self.core.state().tree.files().len())
    }
}

impl Core {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Refuses one more open file than there may be.
    fn check_handles(&self, doing: &str) -> Result<()> {
        match self.handles_max {
            Some(max) if self.handles >= max => Err(too_many_error(doing)),
            _ => Ok(()),
        }
    }

    /// Counts a mutating call that touches names or metadata, and decides about it.
    fn decide(&mut self, op: Op, doing: &str) -> Result<Outcome> {
        Ok(match self.faults.next(op)? {
            Verdict::Go => Outcome { applies: true, error: None },
            Verdict::Fail(fault) => Outcome { applies: false, error: Some(fault.error(doing)) },
            Verdict::Crash => Outcome { applies: self.rng.chance(0.5), error: Some(crash_error()) },
        })
    }

    fn walk(&self, names: &[&str]) -> Result<DirId> {
        names.iter().try_fold(ROOT_DIR, |dir, name| match self.tree.get(dir, name) {
            Some(Entry::Dir(id)) => Ok(*id),
            Some(Entry::File(_)) => Err(Error::invalid(format!("{name} is a file, not a directory"))),
            None => Err(Error::new(ErrorKind::NotFound, format!("{name} does not exist"))),
        })
    }

    fn total_bytes(&self) -> u64 {
        self.tree.distinct_files().iter().map(|f| f.pages().len() as u64).sum()
    }
}

impl Outcome {
    /// Carries the call out if it takes effect, and tells its result.
    fn finish<T>(self, apply: impl FnOnce() -> T) -> Result<T> {
        if let Some(error) = self.error {
            if self.applies {
                apply();
            }
            return Err(error);
        }
        Ok(apply())
    }
}

/// The names of a path, from `/`.
fn components(path: &Path) -> Result<Vec<&str>> {
    let wrong = || Error::invalid(format!("{} is not a path of the simulated disk", path.display()));
    let mut names = Vec::new();
    for part in path.components() {
        match part {
            Component::RootDir | Component::CurDir => {}
            Component::Normal(name) => names.push(name.to_str().ok_or_else(wrong)?),
            _ => return Err(wrong()),
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests;
