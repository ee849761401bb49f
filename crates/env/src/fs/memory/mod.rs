//! A simulated disk: models what a power failure, a process crash, a full disk and a failing device
//! leave behind, chosen by a seed. Works inside a [`crate::sim::SimWorld`], where every call may
//! switch threads, and on ordinary threads.
//!
//! Contents become durable by a sync of the file, names by a sync of the directory, and by nothing
//! else. Each mutating call (append, allocation, truncate, sync, create, rename, remove, directory
//! sync, move, link) is counted, and can be made to fail or to be the last one before a crash. A
//! successful call takes effect atomically; the sync of a file covers its contents at the call and
//! makes them durable at the return.

mod pages;
mod dir_tree;
mod handles;
mod crash;
mod image;

pub use super::fault::Fault;
pub use crash::Crash;

use super::fault::{FaultInjector, FaultVerdict, MutatingCall, crash_error};
use super::open_file_limiter::{OpenFileLimiter, too_many_files_error};
use super::{Dir, DirOpenMode, Fs};
use crate::rand::SeededRng;
use crate::sched;
use dir_tree::{DirId, ROOT_DIR, SimDirEntry, SimDirTree};
use handles::SimDir;
use perigee_base::{Error, ErrorKind, Result};
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Component, Path};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A simulated disk with directories below `/` (relative paths are resolved from `/` too).
pub struct SimDisk {
    core: Arc<SimDiskCore>,
}

/// State shared with open handles.
struct SimDiskCore {
    state: Mutex<SimDiskState>,
    files: Arc<OpenFileLimiter>,
}

struct SimDiskState {
    rng: SeededRng,
    boot_id: u64,
    tree: SimDirTree,
    /// Numbers of locked files.
    locks: BTreeSet<u64>,
    faults: FaultInjector,
    capacity: u64,
    /// True if files can be linked.
    links_supported: bool,
    /// Number of open files, including locks.
    open_handles: usize,
    open_handles_max: Option<usize>,
}

/// Outcome of a mutating call: whether it takes effect, and its error.
struct CallOutcome {
    applies: bool,
    error: Option<Error>,
}

impl SimDisk {
    /// Creates an empty disk. The seed decides everything that a fault or crash leaves open.
    pub fn new(seed: u64) -> Arc<SimDisk> {
        let mut rng = SeededRng::new(seed);
        let boot_id = rng.next_u64();
        Self::from_parts(rng, boot_id, SimDirTree::new())
    }

    fn from_parts(rng: SeededRng, boot_id: u64, tree: SimDirTree) -> Arc<SimDisk> {
        let (locks, faults) = (BTreeSet::new(), FaultInjector::default());
        let (capacity, links) = (u64::MAX, true);
        let state = SimDiskState {
            rng,
            boot_id,
            tree,
            locks,
            faults,
            capacity,
            links_supported: links,
            open_handles: 0,
            open_handles_max: None,
        };
        Arc::new(SimDisk {
            core: Arc::new(SimDiskCore { state: Mutex::new(state), files: Arc::default() }),
        })
    }

    /// Returns the number of mutating calls so far.
    pub fn mutating_calls(&self) -> u64 {
        self.core.state().faults.call_count()
    }

    /// Crashes at the `n`-th mutating call from now (1 is the next): it is applied partially or not
    /// at all; it and every later call, including reads, fail with kind `Io` and the message
    /// "simulated crash". 0 crashes at once.
    pub fn crash_at(&self, n: u64) {
        self.core.state().faults.crash_at(n);
    }

    /// Returns true after a planned crash has happened.
    pub fn crashed(&self) -> bool {
        self.core.state().faults.crashed()
    }

    /// Makes the `n`-th mutating call from now, or the first later one that `fault` applies to,
    /// fail. If `sticky`, every later call that it applies to fails too, until
    /// [`SimDisk::clear_faults`].
    pub fn fail_at(&self, n: u64, fault: Fault, sticky: bool) {
        self.core.state().faults.fail_at(n, fault, sticky);
    }

    /// Makes the next `times` reads of files whose name ends in `name_suffix` fail.
    pub fn fail_reads(&self, name_suffix: &str, times: u64) {
        self.core.state().faults.fail_reads(name_suffix, times);
    }

    /// Removes all planned faults. Lost data stays lost.
    pub fn clear_faults(&self) {
        self.core.state().faults.clear_faults();
    }

    /// Limits the total length of all files, in bytes: appends beyond it fail with `NoSpace` and
    /// may write a prefix. `u64::MAX` removes the limit.
    pub fn set_capacity(&self, bytes: u64) {
        self.core.state().capacity = bytes;
    }

    /// Sets whether files can be linked (default true); false simulates directories on different
    /// file systems.
    pub fn set_links_supported(&self, possible: bool) {
        self.core.state().links_supported = possible;
    }
}

impl SimDisk {
    /// Sets the number of files that may be open at once; further opens fail as at the limit of a
    /// process (`EMFILE`). Open files stay open.
    pub fn set_open_file_limit(&self, limit: Option<usize>) {
        self.core.state().open_handles_max = limit;
    }

    /// Returns the number of open files, including locks.
    pub fn open_handles(&self) -> usize {
        self.core.state().open_handles
    }
}

impl Fs for SimDisk {
    fn open_dir(&self, path: &Path, mode: DirOpenMode) -> Result<Arc<dyn Dir>> {
        sched::io_yield_point();
        let mut state = self.core.state();
        state.faults.check_alive()?;
        let names = path_components(path)?;
        let Some((last, parents)) = names.split_last() else {
            return Ok(SimDir::new_arc(&self.core, path, ROOT_DIR));
        };
        let parent = state.resolve_path(parents).map_err(|e| {
            let what = format!("open directory {}: its parent", path.display());
            let kind = e.kind();
            e.wrap(kind, &what)
        })?;
        let id = match (state.tree.get(parent, last), mode) {
            (Some(SimDirEntry::Dir(id)), _) => *id,
            (Some(SimDirEntry::File(_)), _) => {
                return Err(Error::invalid(format!(
                    "{} is a file, not a directory",
                    path.display()
                )));
            }
            (None, DirOpenMode::Existing) => {
                return Err(Error::new(
                    ErrorKind::NotFound,
                    format!("directory {} does not exist", path.display()),
                ));
            }
            (None, DirOpenMode::CreateIfMissing) => {
                let outcome = state.decide_call(MutatingCall::Create, "create directory")?;
                outcome.apply_with(|| {
                    let id = state.tree.make_dir(parent, last);
                    state.tree.sync(parent);
                    id
                })?
            }
        };
        Ok(SimDir::new_arc(&self.core, path, id))
    }

    fn boot_id(&self) -> u64 {
        self.core.state().boot_id
    }

    fn open_file_limit(&self) -> Option<u64> {
        self.core.state().open_handles_max.map(|n| n as u64)
    }

    fn open_file_limiter(&self) -> Arc<OpenFileLimiter> {
        Arc::clone(&self.core.files)
    }

    fn rename_dir(&self, from: &Path, to: &Path) -> Result<()> {
        sched::io_yield_point();
        let mut state = self.core.state();
        state.faults.check_alive()?;
        let (source, target) = (path_components(from)?, path_components(to)?);
        let (Some((old, parent)), Some((new, other))) = (source.split_last(), target.split_last())
        else {
            return Err(Error::invalid("the root directory cannot be renamed"));
        };
        if parent != other {
            return Err(Error::invalid("a directory can be renamed only within its parent"));
        }
        let parent = state.resolve_path(parent)?;
        let Some(SimDirEntry::Dir(id)) = state.tree.get(parent, old).cloned() else {
            return Err(Error::new(
                ErrorKind::NotFound,
                format!("directory {} does not exist", from.display()),
            ));
        };
        let free = match state.tree.get(parent, new) {
            None => true,
            Some(SimDirEntry::Dir(target_id)) => state.tree.entries(*target_id).next().is_none(),
            Some(SimDirEntry::File(_)) => false,
        };
        if !free {
            let text = format!("{} exists and is not empty", to.display());
            return Err(Error::new(ErrorKind::AlreadyExists, text));
        }
        let outcome = state.decide_call(MutatingCall::Rename, "rename directory")?;
        let done = outcome.apply_with(|| {
            state.tree.rename(parent, new, SimDirEntry::Dir(id));
            state.tree.sync(parent);
        });
        drop(state);
        sched::io_yield_point();
        done
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        sched::io_yield_point();
        let mut state = self.core.state();
        state.faults.check_alive()?;
        let names = path_components(path)?;
        let Some((last, parents)) = names.split_last() else {
            return Err(Error::invalid("the root directory cannot be removed"));
        };
        let parent = state.resolve_path(parents)?;
        match state.tree.get(parent, last) {
            Some(SimDirEntry::Dir(id)) if state.tree.entries(*id).next().is_none() => {}
            Some(_) => {
                let text = format!("{} is not an empty directory", path.display());
                return Err(Error::new(ErrorKind::AlreadyExists, text));
            }
            None => {
                return Err(Error::new(
                    ErrorKind::NotFound,
                    format!("directory {} does not exist", path.display()),
                ));
            }
        }
        let outcome = state.decide_call(MutatingCall::Remove, "remove directory")?;
        outcome.apply_with(|| state.tree.remove(parent, last))
    }
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimDisk({} files)", self.core.state().tree.files().len())
    }
}

impl SimDiskCore {
    fn state(&self) -> MutexGuard<'_, SimDiskState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SimDiskState {
    /// Fails with `EMFILE` if the limit of open files is reached.
    fn check_handles(&self, doing: &str) -> Result<()> {
        match self.open_handles_max {
            Some(max) if self.open_handles >= max => Err(too_many_files_error(doing)),
            _ => Ok(()),
        }
    }

    /// Counts a mutating call that changes names or metadata, and decides its outcome.
    fn decide_call(&mut self, op: MutatingCall, doing: &str) -> Result<CallOutcome> {
        Ok(match self.faults.decide_call(op)? {
            FaultVerdict::Proceed => CallOutcome { applies: true, error: None },
            FaultVerdict::Fail(fault) => {
                CallOutcome { applies: false, error: Some(fault.error(doing)) }
            }
            FaultVerdict::Crash => {
                CallOutcome { applies: self.rng.chance(0.5), error: Some(crash_error()) }
            }
        })
    }

    /// Counts a handle as closed.
    fn close_handle(&mut self) {
        check!(self.open_handles > 0, "a handle that is closed was open", self.boot_id);
        self.open_handles -= 1;
    }

    fn resolve_path(&self, names: &[&str]) -> Result<DirId> {
        names.iter().try_fold(ROOT_DIR, |dir, name| match self.tree.get(dir, name) {
            Some(SimDirEntry::Dir(id)) => Ok(*id),
            Some(SimDirEntry::File(_)) => {
                Err(Error::invalid(format!("{name} is a file, not a directory")))
            }
            None => Err(Error::new(ErrorKind::NotFound, format!("{name} does not exist"))),
        })
    }

    fn total_bytes(&self) -> u64 {
        self.tree.distinct_files().iter().map(|f| f.pages().len() as u64).sum()
    }
}

impl CallOutcome {
    /// Applies the call if it takes effect, and returns its result.
    fn apply_with<T>(self, apply: impl FnOnce() -> T) -> Result<T> {
        check!(self.applies || self.error.is_some(), "a call without an effect fails");
        if let Some(error) = self.error {
            if self.applies {
                apply();
            }
            return Err(error);
        }
        Ok(apply())
    }
}

/// Splits a path into its components below `/`.
fn path_components(path: &Path) -> Result<Vec<&str>> {
    let wrong =
        || Error::invalid(format!("{} is not a path of the simulated disk", path.display()));
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
