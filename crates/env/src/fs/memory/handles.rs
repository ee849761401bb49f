//! Open directories and files of the simulated disk.
//!
//! Every call has a yield point before it takes the lock of the disk; mutating calls have another
//! one after they took effect, so that other threads can run before the caller learns the result.

use super::dir_tree::{DirId, SimDirEntry, SimFile};
use super::{SimDiskCore, SimDiskState, path_components};
use crate::fs::fault::{Fault, FaultVerdict, MutatingCall, crash_error};
use crate::fs::{Dir, DirLock, RandomAccessFile, WritableFile, file_name};
use crate::sched;
use perigee_base::{Error, ErrorKind, Result};
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard};

pub(super) struct SimDir {
    core: Arc<SimDiskCore>,
    path: PathBuf,
    id: DirId,
}

impl SimDir {
    pub fn new_arc(core: &Arc<SimDiskCore>, path: &Path, id: DirId) -> Arc<dyn Dir> {
        Arc::new(SimDir { core: core.clone(), path: path.to_owned(), id })
    }

    /// Passes a yield point and locks the disk. Fails after a simulated crash.
    fn lock_state(&self) -> Result<MutexGuard<'_, SimDiskState>> {
        sched::io_yield_point();
        let state = self.core.state();
        state.faults.check_alive()?;
        Ok(state)
    }

    fn find_entry(&self, state: &SimDiskState, name: &str) -> Result<Option<SimDirEntry>> {
        file_name::check_file_name(name)?;
        Ok(state.tree.get(self.id, name).cloned())
    }

    /// Returns the regular file `name`.
    fn find_file(&self, state: &SimDiskState, name: &str) -> Result<Arc<SimFile>> {
        match self.find_entry(state, name)? {
            Some(SimDirEntry::File(f)) => Ok(f),
            Some(SimDirEntry::Dir(_)) => {
                Err(Error::invalid("it is not a regular file").in_file(name))
            }
            None => Err(Error::new(ErrorKind::NotFound, "the file does not exist").in_file(name)),
        }
    }

    fn check_name_free(&self, state: &SimDiskState, dir: DirId, name: &str) -> Result<()> {
        match state.tree.get(dir, name) {
            Some(_) => {
                Err(Error::new(ErrorKind::AlreadyExists, "the name already exists").in_file(name))
            }
            None => Ok(()),
        }
    }

    fn open_writable(
        &self,
        state: &mut SimDiskState,
        file: Arc<SimFile>,
        name: &str,
    ) -> Arc<dyn WritableFile> {
        let len = AtomicU64::new(file.pages().len() as u64);
        check!(
            state.open_handles_max.is_none_or(|max| state.open_handles < max),
            "a file is opened below the limit of open files",
            state.open_handles
        );
        state.open_handles += 1;
        Arc::new(SimWritableFile { core: self.core.clone(), file, name: name.to_owned(), len })
    }

    /// Returns the subdirectory `name`, created if missing.
    fn make_subdir(&self, state: &mut SimDiskState, name: &str) -> Result<DirId> {
        match self.find_entry(state, name)? {
            Some(SimDirEntry::Dir(id)) => Ok(id),
            Some(SimDirEntry::File(_)) => {
                Err(Error::invalid("it is a file, not a directory").in_file(name))
            }
            None => {
                let outcome = state.decide_call(MutatingCall::Create, "create directory")?;
                outcome
                    .apply_with(|| state.tree.make_dir(self.id, name))
                    .map_err(|e| e.in_file(name))
            }
        }
    }
}

impl Dir for SimDir {
    fn path(&self) -> &Path {
        &self.path
    }

    fn is_located_at(&self, path: &Path) -> Result<bool> {
        let state = self.lock_state()?;
        match state.resolve_path(&path_components(path)?) {
            Ok(id) => Ok(id == self.id),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
            Err(e) => Err(e),
        }
    }

    fn list(&self) -> Result<Vec<String>> {
        let state = self.lock_state()?;
        let files = state.tree.entries(self.id).filter(|(_, e)| e.file().is_some());
        Ok(files.map(|(name, _)| name.clone()).collect())
    }

    fn list_non_files(&self) -> Result<Vec<String>> {
        let state = self.lock_state()?;
        let others = state.tree.entries(self.id).filter(|(_, e)| e.file().is_none());
        Ok(others.map(|(name, _)| name.clone()).collect())
    }

    fn free_space(&self) -> Result<u64> {
        let state = self.lock_state()?;
        Ok(if state.capacity == u64::MAX {
            u64::MAX
        } else {
            state.capacity.saturating_sub(state.total_bytes())
        })
    }

    fn file_len(&self, name: &str) -> Result<Option<u64>> {
        let state = self.lock_state()?;
        match self.find_file(&state, name) {
            Ok(file) => Ok(Some(file.pages().len() as u64)),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn create(&self, name: &str) -> Result<Arc<dyn WritableFile>> {
        file_name::check_file_name(name)?;
        let mut state = self.lock_state()?;
        state.check_handles("create").map_err(|e| e.in_file(name))?;
        self.check_name_free(&state, self.id, name)?;
        let outcome = state.decide_call(MutatingCall::Create, "create")?;
        let made =
            outcome.apply_with(|| state.tree.create(self.id, name)).map_err(|e| e.in_file(name));
        let made = made.map(|file| self.open_writable(&mut state, file, name));
        drop(state);
        sched::io_yield_point();
        made
    }

    fn append_to(&self, name: &str) -> Result<Arc<dyn WritableFile>> {
        let mut state = self.lock_state()?;
        state.check_handles("open").map_err(|e| e.in_file(name))?;
        let file = self.find_file(&state, name)?;
        Ok(self.open_writable(&mut state, file, name))
    }

    fn open(&self, name: &str) -> Result<Arc<dyn RandomAccessFile>> {
        let mut state = self.lock_state()?;
        state.check_handles("open").map_err(|e| e.in_file(name))?;
        let file = self.find_file(&state, name)?;
        state.open_handles += 1;
        Ok(Arc::new(SimRandomAccessFile { core: self.core.clone(), file, name: name.to_owned() }))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        file_name::check_file_name(to)?;
        let mut state = self.lock_state()?;
        let file = self.find_file(&state, from)?;
        if matches!(state.tree.get(self.id, to), Some(SimDirEntry::Dir(_))) {
            return Err(
                Error::invalid(format!("rename {from}: the target is a directory")).in_file(to)
            );
        }
        let outcome = state.decide_call(MutatingCall::Rename, "rename")?;
        let done = outcome.apply_with(|| {
            if from != to {
                state.tree.rename(self.id, to, SimDirEntry::File(file));
            }
        });
        drop(state);
        sched::io_yield_point();
        done.map_err(|e| e.in_file(from))
    }

    fn remove(&self, name: &str) -> Result<()> {
        let mut state = self.lock_state()?;
        self.find_file(&state, name)?;
        let outcome = state.decide_call(MutatingCall::Remove, "remove")?;
        let done = outcome.apply_with(|| state.tree.remove(self.id, name));
        drop(state);
        sched::io_yield_point();
        done.map_err(|e| e.in_file(name))
    }

    fn sync(&self) -> Result<()> {
        let mut state = self.lock_state()?;
        let done = match state.faults.decide_call(MutatingCall::DirSync)? {
            FaultVerdict::Proceed => {
                state.tree.sync(self.id);
                Ok(())
            }
            FaultVerdict::Fail(fault) => {
                // The journal failed: its contents may never be written.
                if state.rng.chance(0.5) {
                    state.tree.drop_pending(self.id);
                }
                Err(fault.error("sync directory"))
            }
            FaultVerdict::Crash => {
                let pending = state.tree.pending_len(self.id);
                let written = state.rng.index(pending + 1);
                state.tree.sync_prefix(self.id, written);
                Err(crash_error())
            }
        };
        drop(state);
        sched::io_yield_point();
        done
    }

    fn lock(&self, name: &str) -> Result<Box<dyn DirLock>> {
        let mut state = self.lock_state()?;
        state.check_handles("lock").map_err(|e| e.in_file(name))?;
        let file = match self.find_entry(&state, name)? {
            Some(SimDirEntry::File(file)) => file,
            Some(SimDirEntry::Dir(_)) => {
                return Err(Error::invalid("it is not a regular file").in_file(name));
            }
            None => {
                let outcome = state.decide_call(MutatingCall::Create, "create")?;
                outcome
                    .apply_with(|| state.tree.create(self.id, name))
                    .map_err(|e| e.in_file(name))?
            }
        };
        if !state.locks.insert(file.id) {
            return Err(crate::fs::locked_error(&self.path.join(name)));
        }
        state.open_handles += 1;
        Ok(Box::new(SimLock { core: self.core.clone(), id: file.id }))
    }

    fn subdir(&self, name: &str) -> Result<Arc<dyn Dir>> {
        let mut state = self.lock_state()?;
        let id = self.make_subdir(&mut state, name)?;
        drop(state);
        Ok(SimDir::new_arc(&self.core, &self.path.join(name), id))
    }

    fn move_into(&self, name: &str, subdir: &str) -> Result<()> {
        let mut state = self.lock_state()?;
        self.find_file(&state, name)?;
        let to = self.make_subdir(&mut state, subdir)?;
        self.check_name_free(&state, to, name)?;
        let outcome = state.decide_call(MutatingCall::MoveInto, "move")?;
        let done = outcome.apply_with(|| state.tree.move_into(self.id, name, to));
        drop(state);
        sched::io_yield_point();
        done.map_err(|e| e.in_file(name))
    }

    fn link_into(&self, name: &str, target: &dyn Dir) -> Result<bool> {
        let mut state = self.lock_state()?;
        let file = self.find_file(&state, name)?;
        if !state.links_supported {
            return Ok(false);
        }
        let to = state.resolve_path(&super::path_components(target.path())?)?;
        self.check_name_free(&state, to, name)?;
        let outcome = state.decide_call(MutatingCall::Link, "link")?;
        let done = outcome.apply_with(|| state.tree.link(to, name, SimDirEntry::File(file)));
        drop(state);
        sched::io_yield_point();
        done.map(|()| true).map_err(|e| e.in_file(name))
    }
}

impl fmt::Debug for SimDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimDir({})", self.path.display())
    }
}

struct SimLock {
    core: Arc<SimDiskCore>,
    id: u64,
}

impl DirLock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        let mut state = self.core.state();
        check!(state.locks.remove(&self.id), "a lock is held until it is dropped", self.id);
        state.close_handle();
    }
}

impl fmt::Debug for SimLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimLock({})", self.id)
    }
}

struct SimWritableFile {
    core: Arc<SimDiskCore>,
    file: Arc<SimFile>,
    name: String,
    /// Bytes appended successfully. The file may be longer after a failed append, and shorter after
    /// a failed sync, which may drop unsynced pages.
    len: AtomicU64,
}

impl SimWritableFile {
    fn write(&self, mut offset: usize, parts: &[&[u8]], mut limit: usize) {
        let mut pages = self.file.pages();
        for part in parts {
            let part = &part[..part.len().min(limit)];
            pages.write_at(offset, part);
            offset += part.len();
            limit -= part.len();
        }
    }

    /// Returns how many bytes of an append of `total` bytes at `offset` fit on the disk.
    fn writable_bytes(&self, state: &SimDiskState, offset: usize, total: usize) -> usize {
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
        let verdict = state.faults.decide_call(MutatingCall::Append)?;
        let writable = self.writable_bytes(&state, offset, total);
        let error = match verdict {
            FaultVerdict::Proceed if writable == total => {
                self.write(offset, parts, total);
                check_slow!(
                    self.file.pages().len() >= offset + total,
                    "appended bytes are in the file",
                    self.name,
                    offset,
                    total
                );
                self.len.store((offset + total) as u64, Ordering::Release);
                return Ok(());
            }
            FaultVerdict::Proceed => Fault::Enospc.error("append"),
            FaultVerdict::Fail(fault) => fault.error("append"),
            FaultVerdict::Crash => crash_error(),
        };
        let written = state.rng.index(writable + 1);
        check!(written <= total, "a failed append writes a prefix", written, total);
        self.write(offset, parts, written);
        Err(error.at(&self.name, offset as u64))
    }

    fn allocate_now(&self, len: u64) -> Result<bool> {
        let mut state = self.core.state();
        let now = self.file.pages().len() as u64;
        if len <= now {
            return Ok(true);
        }
        let outcome = state.decide_call(MutatingCall::Allocate, "allocate")?;
        if state.capacity != u64::MAX
            && len - now > state.capacity.saturating_sub(state.total_bytes())
        {
            return Err(Fault::Enospc.error("allocate"));
        }
        outcome.apply_with(|| self.file.pages().extend(len as usize))?;
        check_slow!(
            self.file.pages().len() as u64 >= len,
            "allocated space is in the file",
            self.name,
            len
        );
        Ok(true)
    }

    fn overwrite_now(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut state = self.core.state();
        if offset + bytes.len() as u64 > self.len.load(Ordering::Acquire) {
            return Err(
                Error::invalid("overwrite beyond the end of the file").at(&self.name, offset)
            );
        }
        let verdict = state.faults.decide_call(MutatingCall::Append)?;
        let (written, done) = match verdict {
            FaultVerdict::Proceed => (bytes.len(), Ok(())),
            FaultVerdict::Fail(fault) => {
                (state.rng.index(bytes.len() + 1), Err(fault.error("overwrite")))
            }
            FaultVerdict::Crash => (state.rng.index(bytes.len() + 1), Err(crash_error())),
        };
        check!(written <= bytes.len(), "a failed overwrite writes a prefix", self.name, written);
        self.write(offset as usize, &[bytes], written);
        done.map_err(|e| e.at(&self.name, offset))
    }

    fn truncate_now(&self, len: u64) -> Result<()> {
        let mut state = self.core.state();
        if len > self.len.load(Ordering::Acquire) {
            return Err(Error::invalid("truncate beyond the end of the file").at(&self.name, len));
        }
        let outcome = state.decide_call(MutatingCall::Truncate, "truncate")?;
        outcome.apply_with(|| {
            self.file.pages().truncate(len as usize);
            self.len.store(len, Ordering::Release);
        })
    }

    /// Starts a sync; returns the state that it covers.
    fn begin_sync(&self) -> Result<super::pages::SyncPoint> {
        let mut state = self.core.state();
        let verdict = state.faults.decide_call(MutatingCall::Sync)?;
        let mut pages = self.file.pages();
        match verdict {
            FaultVerdict::Proceed => Ok(pages.begin_sync()),
            FaultVerdict::Fail(fault) => {
                if state.rng.chance(0.5) {
                    pages.drop_dirty()
                } else {
                    pages.revert_to_media()
                }
                // Never `NoSpace`: the caller must not retry.
                Err(fault.error("sync").wrap(ErrorKind::Io, "sync failed"))
            }
            FaultVerdict::Crash => {
                if state.rng.chance(0.5) {
                    let point = pages.begin_sync();
                    pages.finish_sync(point);
                }
                Err(crash_error())
            }
        }
    }
}

impl WritableFile for SimWritableFile {
    fn append(&self, parts: &[&[u8]]) -> Result<()> {
        sched::io_yield_point();
        let done = self.append_now(parts);
        sched::io_yield_point();
        done
    }

    fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    fn allocate(&self, len: u64) -> Result<bool> {
        sched::io_yield_point();
        let done = self.allocate_now(len);
        sched::io_yield_point();
        done.map_err(|e| e.in_file(&self.name))
    }

    fn overwrite(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        sched::io_yield_point();
        let done = self.overwrite_now(offset, bytes);
        sched::io_yield_point();
        done
    }

    fn truncate(&self, len: u64) -> Result<()> {
        sched::io_yield_point();
        let done = self.truncate_now(len);
        sched::io_yield_point();
        done.map_err(|e| e.in_file(&self.name))
    }

    /// Makes nothing durable: only a sync does.
    fn write_back(&self, _: Range<u64>, _: Range<u64>) -> Result<()> {
        Ok(())
    }
    fn sync(&self) -> Result<()> {
        sched::io_yield_point();
        let point = self.begin_sync().map_err(|e| e.in_file(&self.name))?;
        // Other threads may append while the device is busy.
        sched::io_yield_point();
        let state = self.core.state();
        state.faults.check_alive()?;
        self.file.pages().finish_sync(point);
        drop(state);
        sched::io_yield_point();
        Ok(())
    }
}

impl Drop for SimWritableFile {
    fn drop(&mut self) {
        self.core.state().close_handle();
    }
}

impl Drop for SimRandomAccessFile {
    fn drop(&mut self) {
        self.core.state().close_handle();
    }
}

impl fmt::Debug for SimWritableFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimWritableFile({})", self.name)
    }
}

struct SimRandomAccessFile {
    core: Arc<SimDiskCore>,
    file: Arc<SimFile>,
    name: String,
}

impl RandomAccessFile for SimRandomAccessFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        sched::io_yield_point();
        self.core.state().faults.decide_read(&self.name)?;
        let pages = self.file.pages();
        let start = usize::try_from(offset).ok();
        let range = start.and_then(|s| Some(s..s.checked_add(buf.len())?));
        match range.and_then(|r| pages.bytes().get(r)) {
            Some(bytes) => {
                buf.copy_from_slice(bytes);
                Ok(())
            }
            None => {
                Err(crate::fs::short_file_error(&self.name, offset, buf.len(), pages.len() as u64))
            }
        }
    }

    fn len(&self) -> Result<u64> {
        sched::io_yield_point();
        self.core.state().faults.check_alive()?;
        Ok(self.file.pages().len() as u64)
    }
}

impl fmt::Debug for SimRandomAccessFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimRandomAccessFile({})", self.name)
    }
}
