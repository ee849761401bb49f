//! The database: open, close, sync, checkpoint, and read views.

use crate::ffi::{self, PANICKED};
use crate::keys::ServerKeys;
use crate::registry::Registry;
use crate::spawn::ServerSpawn;
use crate::status::{Result, Status};
use perigee::env::Env;
use perigee::{Db, LogLevel, Options};
use std::ffi::{CStr, OsStr, c_char};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Options of an open, `pgb_engine_options` in C.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)] // Documented in `bridge.h`.
pub struct EngineOptions {
    pub memory_budget: u64,
    pub max_open_files: u64,
    pub background_threads: u32,
    pub log_to_stderr: u8,
    pub keys: ServerKeys,
}

/// When a commit is durable, `pgb_durability` in C.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct Durability(pub u32);

impl Durability {
    /// Synced before the call returns.
    pub const SYNC: Durability = Durability(0);
    /// Synced about once a second.
    pub const INTERVAL: Durability = Durability(1);
    /// Not synced.
    pub const NO_SYNC: Durability = Durability(2);

    /// Returns the engine's durability; unknown values sync.
    #[inline]
    pub fn to_engine(self) -> perigee::Durability {
        match self.0 {
            1 => perigee::Durability::Interval(std::time::Duration::from_secs(1)),
            2 => perigee::Durability::None,
            _ => perigee::Durability::Full,
        }
    }
}

/// What all objects of a database share.
#[derive(Debug)]
pub struct Shared {
    /// The database.
    pub db: Db,
    pub(crate) registry: Registry,
    /// Set by a panic: later calls are refused.
    failed: AtomicBool,
}

impl Shared {
    /// Returns true if a call has panicked.
    #[inline]
    pub fn has_failed(&self) -> bool {
        self.failed.load(Relaxed)
    }
    /// Refuses later calls, after a panic.
    #[cold]
    pub fn fail(&self) -> Status {
        self.failed.store(true, Relaxed);
        Status::INTERNAL.with_message(PANICKED)
    }
}

/// A database, `pgb_engine` in C.
#[derive(Debug)]
pub struct Engine {
    /// What its objects share.
    pub shared: Arc<Shared>,
}

/// A read view of all tables, `pgb_snapshot` in C.
#[derive(Debug)]
pub struct Snapshot {
    pub(crate) snapshot: perigee::Snapshot,
}

/// Returns a path passed by C++.
///
/// # Safety
/// `path` is null or points to a NUL-terminated string that is not modified during `'a`.
unsafe fn path<'a>(path: *const c_char) -> Result<&'a Path> {
    if path.is_null() {
        return Err(Status::INVALID.with_message("the path is null"));
    }
    // SAFETY: not null, and guaranteed by the caller.
    let bytes = unsafe { CStr::from_ptr(path) }.to_bytes();
    Ok(Path::new(OsStr::from_bytes(bytes)))
}

/// Writes a line of the info log to the error log of the server.
fn log_line(level: LogLevel, line: &str) {
    let _ = writeln!(std::io::stderr(), "PERIGEE: [{}] {line}", level.name());
}

fn open(path: &Path, options: &EngineOptions) -> Result<Engine> {
    // The engine uses half of the cores for the parallel merges of a compaction.
    let cores = options.background_threads as usize * 2;
    let env = Env { spawn: Arc::new(ServerSpawn { cores }), ..Env::real() };
    let mut all = Options::in_env(env)
        .memory_budget(options.memory_budget)
        .max_open_files(u32::try_from(options.max_open_files).unwrap_or(u32::MAX))
        .encryption(Arc::new(options.keys));
    if options.log_to_stderr != 0 {
        all = all.log_listener(LogLevel::Warn, log_line);
    }
    let db = Db::open(path, all)?;
    let registry = Registry::open(&db).inspect_err(|_| drop(db.close()))?;
    Ok(Engine { shared: Arc::new(Shared { db, registry, failed: AtomicBool::new(false) }) })
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_engine_open(
    path: *const c_char,
    options: *const EngineOptions,
    out: *mut *mut Engine,
) -> Status {
    ffi::call_without_engine(|| {
        // SAFETY: guaranteed by the caller.
        let (path, options) = unsafe { (self::path(path)?, ffi::object(options)?) };
        let engine = Box::new(open(path, options)?);
        // SAFETY: guaranteed by the caller.
        unsafe { ffi::store(out, Box::into_raw(engine)) }
    })
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_engine_close(engine: *mut Engine) -> Status {
    ffi::call_without_engine(|| {
        if engine.is_null() {
            return Ok(());
        }
        // SAFETY: came from `pgb_engine_open`, and is not used again.
        let engine = unsafe { Box::from_raw(engine) };
        Ok(engine.shared.db.close()?)
    })
}

/// Runs a call on a database.
///
/// # Safety
/// `engine` is null or points to an open database.
#[inline]
pub(crate) unsafe fn with_engine(
    engine: *const Engine,
    work: impl FnOnce(&Arc<Shared>) -> Result<()>,
) -> Status {
    // SAFETY: guaranteed by the caller.
    match unsafe { ffi::object(engine) } {
        Ok(engine) => ffi::call(&engine.shared, || work(&engine.shared)),
        Err(status) => status,
    }
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_engine_sync(engine: *mut Engine) -> Status {
    // SAFETY: guaranteed by the caller.
    unsafe { with_engine(engine, |shared| Ok(shared.db.sync()?)) }
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_engine_checkpoint(
    engine: *mut Engine,
    directory: *const c_char,
) -> Status {
    let work = |shared: &Arc<Shared>| {
        // SAFETY: guaranteed by the caller.
        let directory = unsafe { path(directory) }?;
        shared.db.backups().checkpoint(directory)?;
        Ok(())
    };
    // SAFETY: guaranteed by the caller.
    unsafe { with_engine(engine, work) }
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_snapshot_take(engine: *mut Engine, out: *mut *mut Snapshot) -> Status {
    let work = |shared: &Arc<Shared>| {
        let snapshot = Box::new(Snapshot { snapshot: shared.db.snapshot()? });
        // SAFETY: guaranteed by the caller.
        unsafe { ffi::store(out, Box::into_raw(snapshot)) }
    };
    // SAFETY: guaranteed by the caller.
    unsafe { with_engine(engine, work) }
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_snapshot_release(snapshot: *mut Snapshot) {
    // SAFETY: guaranteed by the caller.
    unsafe { ffi::release(snapshot) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_after_a_panic_are_refused() {
        let dir = std::env::temp_dir().join(format!("perigee-bridge-panic-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        let options = EngineOptions {
            memory_budget: 32 << 20,
            max_open_files: 0,
            background_threads: 0,
            log_to_stderr: 0,
            keys: ServerKeys::NONE,
        };
        let engine = Box::into_raw(Box::new(open(&dir, &options).unwrap()));
        // SAFETY: the engine is open until it is closed below.
        unsafe {
            assert_eq!(pgb_engine_sync(engine), Status::OK);
            assert_eq!(with_engine(engine, |_| panic!("a test")), Status::INTERNAL);
            assert!(crate::status::last_error().contains("panicked"));
            assert_eq!(pgb_engine_sync(engine), Status::INTERNAL);
            let mut snapshot = std::ptr::null_mut();
            assert_eq!(pgb_snapshot_take(engine, &raw mut snapshot), Status::INTERNAL);
            assert_eq!(pgb_engine_close(engine), Status::OK);
        }
        // A panic left nothing behind that keeps the database from opening.
        let engine = open(&dir, &options).unwrap();
        engine.shared.db.close().unwrap();
        let _ = std::fs::remove_dir_all(&dir);
    }
}
