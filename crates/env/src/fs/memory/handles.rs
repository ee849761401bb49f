//! Open directories and files of the simulated disk.
//!
//! Every call passes a switch point before it takes the disk's lock; mutating ones pass another after they
//! took effect, so that other threads can run before the caller learns the result.

use super::names::{DirId, Entry, File};
use super::{Core, State, components};
use crate::fs::fault::{Fault, Op, Verdict, crash_error};
use crate::fs::{Append, Dir, DirLock, ReadAt, name};
use crate::sched;
use perigee_base::{Error, ErrorKind, Result};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard};

pub(super) struct SimDir {
    core: Arc<Core>,
    path: PathBuf,
    id: DirId,
}

impl SimDir {
    pub fn shared(core: &Arc<Core>, path: &Path, id: DirId) -> Arc<dyn Dir> {
        Arc::new(SimDir { core: core.clone(), path: path.to_owned(), id })
    }

    /// A yield point, then the disk, if it still works.
    fn enter(&self) -> Result<MutexGuard<'_, State>> {
        sched::io_point();
        let state = self.core.state();
        state.faults.check_alive()?;
        Ok(state)
    }

    fn entry(&self, state: &State, name: &str) -> Result<Option<Entry>> {
        name::check(name)?;
        Ok(state.tree.get(self.id, name).cloned())
    }

    /// The regular file called `name`.
    fn file(&self, state: &State, name: &str) -> Result<Arc<File>> {
        match self.entry(state, name)? {
            Some(Entry::File(f)) => Ok(f),
            Some(Entry::Dir(_)) => Err(Error::invalid("not a regular file").in_file(name)),
            None => Err(Error::new(ErrorKind::NotFound, "no such file").in_file(name)),
        }
    }

    fn check_free(&self, state: &State, dir: DirId, name: &str) -> Result<()> {
        match state.tree.get(dir, name) {
            Some(_) => Err(Error::new(ErrorKind::AlreadyExists, "the name is taken").in_file(name)),
            None => Ok(()),
        }
    }

    fn appender(&self, state: &mut State, file: Arc<File>, name: &str) -> Arc<dyn Append> {
        let len = AtomicU64::new(file.pages().len() as u64);
        state.handles += 1;
        Arc::new(SimAppend { core: self.core.clone(), file, name: name.to_owned(), len })
    }

    /// The directory `name` inside this one, created if missing.
    fn make_subdir(&self, state: &mut State, name: &str) -> Result<DirId> {
        match self.entry(state, name)? {
            Some(Entry::Dir(id)) => Ok(id),
            Some(Entry::File(_)) => Err(Error::invalid("a file, not a directory").in_file(name)),
            None => {
                let outcome = state.decide(Op::Create, "create directory")?;
                outcome.finish(|| state.tree.make_dir(self.id, name)).map_err(|e| e.in_file(name))
            }
        }
    }
}

impl Dir for SimDir {
    fn path(&self) -> &Path {
        &self.path
    }

    fn is_at(&self, path: &Path) -> Result<bool> {
        let state = self.enter()?;
        match state.walk(&components(path)?) {
            Ok(id) => Ok(id == self.id),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
            Err(e) => Err(e),
        }
    }

    fn list(&self) -> Result<Vec<String>> {
        let state = self.enter()?;
        let files = state.tree.entries(self.id).filter(|(_, e)| e.file().is_some());
        Ok(files.map(|(name, _)| name.clone()).collect())
    }

    fn list_others(&self) -> Result<Vec<String>> {
        let state = self.enter()?;
        let others = state.tree.entries(self.id).filter(|(_, e)| e.file().is_none());
        Ok(others.map(|(name, _)| name.clone()).collect())
    }

    fn free_space(&self) -> Result<u64> {
        let state = self.enter()?;
        Ok(if state.capacity == u64::MAX {
            u64::MAX
        } else {
            state.capacity.saturating_sub(state.total_bytes())
        })
    }

    fn file_len(&self, name: &str) -> Result<Option<u64>> {
        let state = self.enter()?;
        match self.file(&state, name) {
            Ok(file) => Ok(Some(file.pages().len() as u64)),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn create(&self, name: &str) -> Result<Arc<dyn Append>> {
        name::check(name)?;
        let mut state = self.enter()?;
        state.check_handles("create").map_err(|e| e.in_file(name))?;
        self.check_free(&state, self.id, name)?;
        let outcome = state.decide(Op::Create, "create")?;
        let made = outcome.finish(|| state.tree.create(self.id, name)).map_err(|e| e.in_file(name));
        let made = made.map(|file| self.appender(&mut state, file, name));
        drop(state);
        sched::io_point();
        made
    }

    fn append_to(&self, name: &str) -> Result<Arc<dyn Append>> {
        let mut state = self.enter()?;
        state.check_handles("open").map_err(|e| e.in_file(name))?;
        let file = self.file(&state, name)?;
        Ok(self.appender(&mut state, file, name))
    }

    fn open(&self, name: &str) -> Result<Arc<dyn ReadAt>> {
        let mut state = self.enter()?;
        state.check_handles("open").map_err(|e| e.in_file(name))?;
        let file = self.file(&state, name)?;
        state.handles += 1;
        Ok(Arc::new(SimRead { core: self.core.clone(), file, name: name.to_owned() }))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        name::check(to)?;
        let mut state = self.enter()?;
        let file = self.file(&state, from)?;
        if matches!(state.tree.get(self.id, to), Some(Entry::Dir(_))) {
            return Err(Error::invalid(format!("rename {from}: the target is a directory")).in_file(to));
        }
        let outcome = state.decide(Op::Rename, "rename")?;
        let done = outcome.finish(|| {
            if from != to {
                state.tree.rename(self.id, to, Entry::File(file));
            }
        });
        drop(state);
        sched::io_point();
        done.map_err(|e| e.in_file(from))
    }

    fn remove(&self, name: &str) -> Result<()> {
        let mut state = self.enter()?;
        self.file(&state, name)?;
        let outcome = state.decide(Op::Remove, "remove")?;
        let done = outcome.finish(|| state.tree.remove(self.id, name));
        drop(state);
        sched::io_point();
        done.map_err(|e| e.in_file(name))
    }

    fn sync(&self) -> Result<()> {
        let mut state = self.enter()?;
        let done = match state.faults.next(Op::DirSync)? {
            Verdict::Go => {
                state.tree.sync(self.id);
                Ok(())
            }
            Verdict::Fail(fault) => {
                // The journal gave up: what it held may never be written.
                if state.rng.chance(0.5) {
                    state.tree.forget_pending(self.id);
                }
                Err(fault.error("sync directory"))
            }
            Verdict::Crash => {
                let pending = state.tree.pending_len(self.id);
                let written = state.rng.index(pending + 1);
                state.tree.sync_prefix(self.id, written);
                Err(crash_error())
            }
        };
        drop(state);
        sched::io_point();
        done
    }

    fn lock(&self, name: &str) -> Result<Box<dyn DirLock>> {
        let mut state = self.enter()?;
        state.check_handles("lock").map_err(|e| e.in_file(name))?;
        let file = match self.entry(&state, name)? {
            Some(Entry::File(file)) => file,
            Some(Entry::Dir(_)) => return Err(Error::invalid("not a regular file").in_file(name)),
            None => {
                let outcome = state.decide(Op::Create, "create")?;
                outcome.finish(|| state.tree.create(self.id, name)).map_err(|e| e.in_file(name))?
            }
        };
        if !state.locks.insert(file.id) {
            return Err(crate::fs::locked_error(&self.path.join(name)));
        }
        state.handles += 1;
        Ok(Box::new(SimLock { core: self.core.clone(), id: file.id }))
    }

    fn subdir(&self, name: &str) -> Result<Arc<dyn Dir>> {
        let mut state = self.enter()?;
        let id = self.make_subdir(&mut state, name)?;
        drop(state);
        Ok(SimDir::shared(&self.core, &self.path.join(name), id))
    }

    fn move_into(&self, name: &str, subdir: &str) -> Result<()> {
        let mut state = self.enter()?;
        self.file(&state, name)?;
        let to = self.make_subdir(&mut state, subdir)?;
        self.check_free(&state, to, name)?;
        let outcome = state.decide(Op::MoveInto, "move")?;
        let done = outcome.finish(|| state.tree.move_into(self.id, name, to));
        drop(state);
        sched::io_point();
        done.map_err(|e| e.in_file(name))
    }

    fn link_into(&self, name: &str, target: &dyn Dir) -> Result<bool> {
        let mut state = self.enter()?;
        let file = self.file(&state, name)?;
        if !state.links {
            return Ok(false);
        }
        let to = state.walk(&super::components(target.path())?)?;
        self.check_free(&state, to, name)?;
        let outcome = state.decide(Op::Link, "link")?;
        let done = outcome.finish(|| state.tree.link(to, name, Entry::File(file)));
        drop(state);
        sched::io_point();
        done.map(|()| true).map_err(|e| e.in_file(name))
    }
}

impl fmt::Debug for SimDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimDir({})", self.path.display())
    }
}

struct SimLock {
    core: Arc<Core>,
    id: u64,
}

impl DirLock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        let mut state = self.core.state();
        state.locks.remove(&self.id);
        state.handles -= 1;
    }
}

impl fmt::Debug for SimLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimLock({})", self.id)
    }
}

struct SimAppend {
    core: Arc<Core>,
    file: Arc<File>,
    name: String,
    /// Bytes of the appends that succeeded. The file may be longer after one that failed.
    len: AtomicU64,
}

impl SimAppend {
    fn write(&self, mut offset: usize, parts: &[&[u8]], mut limit: usize) {
        let mut pages = self.file.pages();
        for part in parts {
            let part = &part[..part.len().min(limit)];
            pages.write_at(offset, part);
            offset += part.len();
            limit -= part.len();
        }
    }

    /// Bytes of an append of `total` at `offset` that the disk has room for.
    fn room(&self, state: &State, offset: usize, total: usize) -> usize {
        if state.capacity == u64::MAX {
            return total;
        }
        let free = state.capacity.saturating_sub(state.total_bytes());
        let overwritten = self.file.pages().len().saturating_sub(offset);
        total.min(overwritten.saturating_add(usize::try_from(free).unwrap_or(usize::MAX)))
    }

    fn append_now(&self, parts: &[&[u8]]) -> Result<()> {
        let mut state = self.core.state();
        let total: usize = parts.iter().map(|p| p.len()).sum();
        let offset = self.len.load(Ordering::Acquire) as usize;
        let verdict = state.faults.next(Op::Append)?;
        let room = self.room(&state, offset, total);
        let error = match verdict {
            Verdict::Go if room == total => {
                self.write(offset, parts, total);
                self.len.store((offset + total) as u64, Ordering::Release);
                return Ok(());
            }
            Verdict::Go => Fault::Enospc.error("append"),
            Verdict::Fail(fault) => fault.error("append"),
            Verdict::Crash => crash_error(),
        };
        let written = state.rng.index(room + 1);
        self.write(offset, parts, written);
        Err(error.at(&self.name, offset as u64))
    }

    fn allocate_now(&self, len: u64) -> Result<bool> {
        let mut state = self.core.state();
        let now = self.file.pages().len() as u64;
        if len <= now {
            return Ok(true);
        }
        let outcome = state.decide(Op::Allocate, "allocate")?;
        if state.capacity != u64::MAX && len - now > state.capacity.saturating_sub(state.total_bytes()) {
            return Err(Fault::Enospc.error("allocate"));
        }
        outcome.finish(|| self.file.pages().extend(len as usize))?;
        Ok(true)
    }

    fn rewrite_now(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut state = self.core.state();
        if offset + bytes.len() as u64 > self.len.load(Ordering::Acquire) {
            return Err(Error::invalid("rewrite beyond the end").at(&self.name, offset));
        }
        let verdict = state.faults.next(Op::Append)?;
        let (written, done) = match verdict {
            Verdict::Go => (bytes.len(), Ok(())),
            Verdict::Fail(fault) => (state.rng.index(bytes.len() + 1), Err(fault.error("rewrite"))),
            Verdict::Crash => (state.rng.index(bytes.len() + 1), Err(crash_error())),
        };
        self.write(offset as usize, &[bytes], written);
        done.map_err(|e| e.at(&self.name, offset))
    }

    fn truncate_now(&self, len: u64) -> Result<()> {
        let mut state = self.core.state();
        if len > self.len.load(Ordering::Acquire) {
            return Err(Error::invalid("truncate beyond the end").at(&self.name, len));
        }
        let outcome = state.decide(Op::Truncate, "truncate")?;
        outcome.finish(|| {
            self.file.pages().truncate(len as usize);
            self.len.store(len, Ordering::Release);
        })
    }

    /// The first half of a sync: the moment that it covers.
    fn begin_sync(&self) -> Result<super::pages::SyncPoint> {
        let mut state = self.core.state();
        let verdict = state.faults.next(Op::Sync)?;
        let mut pages = self.file.pages();
        match verdict {
            Verdict::Go => Ok(pages.sync_point()),
            Verdict::Fail(fault) => {
                if state.rng.chance(0.5) {
                    pages.forget_dirty()
                } else {
                    pages.revert()
                }
                // Never NoSpace: the caller must not try this file again.
                Err(fault.error("sync").wrap(ErrorKind::Io, "sync failed"))
            }
            Verdict::Crash => {
                if state.rng.chance(0.5) {
                    let point = pages.sync_point();
                    pages.sync_done(point);
                }
                Err(crash_error())
            }
        }
    }
}

impl Append for SimAppend {
    fn append(&self, parts: &[&[u8]]) -> Result<()> {
        sched::io_point();
        let done = self.append_now(parts);
        sched::io_point();
        done
    }

    fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    fn allocate(&self, len: u64) -> Result<bool> {
        sched::io_point();
        let done = self.allocate_now(len);
        sched::io_point();
        done.map_err(|e| e.in_file(&self.name))
    }

    fn rewrite(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        sched::io_point();
        let done = self.rewrite_now(offset, bytes);
        sched::io_point();
        done
    }

    fn truncate(&self, len: u64) -> Result<()> {
        sched::io_point();
        let done = self.truncate_now(len);
        sched::io_point();
        done.map_err(|e| e.in_file(&self.name))
    }

    fn sync(&self) -> Result<()> {
        sched::io_point();
        let point = self.begin_sync().map_err(|e| e.in_file(&self.name))?;
        // Others append while the device works.
        sched::io_point();
        let state = self.core.state();
        state.faults.check_alive()?;
        self.file.pages().sync_done(point);
        drop(state);
        sched::io_point();
        Ok(())
    }
}

impl Drop for SimAppend {
    fn drop(&mut self) {
        self.core.state().handles -= 1;
    }
}

impl Drop for SimRead {
    fn drop(&mut self) {
        self.core.state().handles -= 1;
    }
}

impl fmt::Debug for SimAppend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimAppend({})", self.name)
    }
}

struct SimRead {
    core: Arc<Core>,
    file: Arc<File>,
    name: String,
}

impl ReadAt for SimRead {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        sched::io_point();
        self.core.state().faults.next_read(&self.name)?;
        let pages = self.file.pages();
        let start = usize::try_from(offset).ok();
        let range = start.and_then(|s| Some(s..s.checked_add(buf.len())?));
        match range.and_then(|r| pages.bytes().get(r)) {
            Some(bytes) => {
                buf.copy_from_slice(bytes);
                Ok(())
            }
            None => Err(crate::fs::ends_early(&self.name, offset, buf.len(), pages.len() as u64)),
        }
    }

    fn len(&self) -> Result<u64> {
        sched::io_point();
        self.core.state().faults.check_alive()?;
        Ok(self.file.pages().len() as u64)
    }
}

impl fmt::Debug for SimRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimRead({})", self.name)
    }
}
