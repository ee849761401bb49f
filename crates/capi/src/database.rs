//! Calls that open, close and configure databases: `tidesdb_init`, `tidesdb_open`, defaults,
//! comparators, copies.

use crate::abi::*;
use crate::alloc::{self, Calloc, Free, Malloc, Realloc};
use crate::code::{Code, EXISTS, INVALID_ARGS, IO, NOT_FOUND};
use crate::comparator::{self, UserComparator};
use crate::ffi::{call, in_hook, out_param, struct_param, text};
use crate::state::{DATABASES, Database, RegisteredComparator, database, database_closed};
use crate::{config, log};
use perigee::{LogLevel, Options};
use std::ffi::{CStr, c_char, c_int, c_long, c_void};
use std::path::PathBuf;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::PoisonError;

/// Sets the allocator for memory returned to the program. Returns 0, or -1 if it was set before.
#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_init(
    malloc: Option<Malloc>,
    calloc: Option<Calloc>,
    realloc: Option<Realloc>,
    free: Option<Free>,
) -> c_int {
    if alloc::init(malloc, calloc, realloc, free) { 0 } else { -1 }
}

/// Initializes the library with C's allocator if it is not initialized yet.
#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_ensure_initialized() {
    alloc::ensure_initialized();
}

/// Resets the allocator to C's. Databases stay open.
#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_finalize() {
    alloc::finalize();
}

/// Frees memory that the library returned.
///
/// # Safety
/// `ptr` is null, or was returned by the library and not freed yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_free(ptr: *mut c_void) {
    // SAFETY: guaranteed by the caller.
    unsafe { alloc::release(ptr) }
}

/// Returns the default settings of a database.
#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_default_config() -> Config {
    config::DEFAULT_CONFIG
}

/// Returns the default settings of a column family.
#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_default_column_family_config() -> FamilyConfig {
    config::DEFAULT_FAMILY_CONFIG
}

/// Returns the default settings of an object store.
#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_objstore_default_config() -> ObjectStoreConfig {
    config::DEFAULT_OBJECT_STORE_CONFIG
}

/// Returns 1 if a compression algorithm is available: all with a known number are.
#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_compression_available(algorithm: c_int) -> c_int {
    c_int::from((COMPRESS_NONE..=COMPRESS_LZ4_FAST).contains(&algorithm))
}

/// Raises the limit of open files to `desired`, if positive. Returns the limit in effect.
#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_raise_open_file_limit(desired: c_long) -> c_long {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is valid for writing.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return -1;
    }
    let wanted = libc::rlim_t::try_from(desired).unwrap_or(0).min(limit.rlim_max);
    if wanted > limit.rlim_cur {
        let raised = libc::rlimit { rlim_cur: wanted, ..limit };
        // SAFETY: a valid structure.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) } == 0 {
            limit = raised;
        }
    }
    c_long::try_from(limit.rlim_cur).unwrap_or(c_long::MAX)
}

/// Writes the engine's log lines from this level on to the library's log.
fn with_log_listener(options: Options, level: c_int) -> Options {
    let least = match level {
        LOG_DEBUG => LogLevel::Debug,
        LOG_INFO => LogLevel::Info,
        LOG_WARN => LogLevel::Warn,
        LOG_NONE => return options,
        _ => LogLevel::Error,
    };
    options.log_listener(least, |level, line| {
        let level = match level {
            // An open that waits for a comparator is not an error.
            _ if line.contains(perigee::REGISTERED_COMPARATOR) => LOG_DEBUG,
            LogLevel::Error => LOG_ERROR,
            LogLevel::Warn => LOG_WARN,
            LogLevel::Info => LOG_INFO,
            _ => LOG_DEBUG,
        };
        if log::is_enabled(level) {
            log::log_from_source(level, "perigee", 0, line);
        }
    })
}

/// Opens a database; `with` adds to its options.
pub fn open_database(
    c: &Config,
    with: impl FnOnce(Options) -> Result<Options, Code>,
) -> Result<usize, Code> {
    // SAFETY: the path is null or a NUL-terminated string, as the interface requires.
    let path = unsafe { text(c.db_path) }?;
    if path.is_empty() {
        return Err(INVALID_ARGS.with_message("db_path must name a directory"));
    }
    if !c.object_store.is_null() {
        return Err(INVALID_ARGS.with_message(
            "object_store: only databases on local disks are supported; set the field to null (no \
             database was opened)",
        ));
    }
    let options = with_log_listener(with(config::database_options(c)?)?, c.log_level);
    log::set_level(c.log_level);
    let path = PathBuf::from(path);
    let log_file = (c.log_to_file != 0).then(|| path.join("LOG"));
    let database = Arc::new(Database::new(path, options, c, log_file)?);
    // The log file is in the database directory, which a failed open must not leave behind.
    if database.log_path.is_some() {
        log::start_buffering();
    }
    let opened = database.open_engine().map(drop);
    let there = opened.is_ok() || database.is_waiting();
    if let Some(file) = &database.log_path {
        if there {
            log::log_to_file(file, c.log_truncation_at as u64);
        } else {
            log::flush_buffered();
        }
    }
    let notes = config::ignored_database_settings(c);
    if !notes.is_empty() {
        log::info(&format!("settings without effect on this engine: {}", notes.join(", ")));
    }
    match opened {
        Err(e) if !there => return Err(e),
        Err(_) => log::info(&format!(
            "the database will be opened when its comparators are registered: {}",
            crate::code::last_error()
        )),
        Ok(()) => {}
    }
    Ok(DATABASES.insert(database)?)
}

/// Opens a database, and creates it if it does not exist.
///
/// # Safety
/// `config` is null or points to a valid structure, `db` null or valid for writing a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_open(config: *const Config, db: *mut Handle) -> c_int {
    alloc::ensure_initialized();
    crate::log_write::connect();
    let code = call(|| {
        // SAFETY: guaranteed by the caller.
        let (c, place) = unsafe { (struct_param(config)?, out_param(db)?) };
        *place = null_mut();
        *place = open_database(c, Ok)? as Handle;
        Ok(())
    });
    if code != 0 && !config.is_null() {
        log::error(&format!("the database was not opened ({code}): {}", crate::code::last_error()));
    }
    code
}

/// Closes a database. All handles of it and of its objects become invalid; transactions and
/// iterators can only be freed.
#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_close(db: Handle) -> c_int {
    call(|| {
        if db.is_null() {
            return Err(INVALID_ARGS.with_message("the database handle is null"));
        }
        if in_hook() {
            return Err(INVALID_ARGS.with_message("a commit hook must not close a database"));
        }
        DATABASES.remove(db as usize).map_err(database_closed)?.close()
    })
}

/// Registers a comparator with a database. The function must be a total order, and the same one
/// each time the program runs.
///
/// # Safety
/// `name` and `ctx_str` are null or NUL-terminated strings; `fn_` can compare keys on any thread
/// until the database is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_register_comparator(
    db: Handle,
    name: *const c_char,
    fn_: Option<ComparatorFn>,
    ctx_str: *const c_char,
    ctx: *mut c_void,
) -> c_int {
    call(|| {
        let db = database(db)?;
        // SAFETY: guaranteed by the caller.
        let name = unsafe { text(name) }?;
        let function =
            fn_.ok_or_else(|| INVALID_ARGS.with_message("the comparator function is null"))?;
        comparator::check_name(name)?;
        // SAFETY: guaranteed by the caller.
        if !ctx_str.is_null() && unsafe { CStr::from_ptr(ctx_str) }.count_bytes() >= CONTEXT_BYTES {
            return Err(INVALID_ARGS
                .with_message("the context string of a comparator must have at most 255 bytes"));
        }
        if comparator::built_in_comparator(name).is_some() {
            return Err(
                INVALID_ARGS.with_message("a comparator of that name is already registered")
            );
        }
        let function = UserComparator { call: function, context: ctx };
        db.register_comparator(RegisteredComparator {
            name: name.to_owned(),
            function,
            comparator: None,
        })
    })
}

/// Returns the registered comparator of that name.
///
/// # Safety
/// `name` is null or a NUL-terminated string; `fn_` and `ctx` are null or valid for writing the
/// results.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_get_comparator(
    db: Handle,
    name: *const c_char,
    fn_: *mut Option<ComparatorFn>,
    ctx: *mut *mut c_void,
) -> c_int {
    call(|| {
        let db = database(db)?;
        // SAFETY: guaranteed by the caller.
        let name = unsafe { text(name) }?;
        let registered = db.comparators.read().unwrap_or_else(PoisonError::into_inner);
        let own = registered.iter().find(|r| r.name == name).map(|r| r.function);
        let built_in = comparator::built_in_comparator(name).filter(|_| !name.is_empty());
        let found = own
            .or(built_in.map(|(_, call)| UserComparator { call, context: null_mut() }))
            .ok_or_else(|| NOT_FOUND.with_message("no comparator of that name is registered"))?;
        // SAFETY: guaranteed by the caller.
        unsafe {
            if let Some(place) = fn_.as_mut() {
                *place = Some(found.call);
            }
            if let Some(place) = ctx.as_mut() {
                *place = found.context;
            }
        }
        Ok(())
    })
}

/// Copies the database into `dir`, which must be missing or empty.
fn checkpoint(db: Handle, dir: *const c_char, shared: bool) -> c_int {
    call(|| {
        let db = database(db)?;
        // SAFETY: the interface requires null or a NUL-terminated string.
        let dir = unsafe { text(dir) }?;
        if dir.is_empty() {
            return Err(INVALID_ARGS.with_message("the target directory is missing"));
        }
        let dir = std::path::Path::new(dir);
        if std::fs::read_dir(dir).is_ok_and(|mut d| d.next().is_some()) {
            return Err(EXISTS.with_message("the directory is not empty"));
        }
        db.engine()?.backups().checkpoint(dir)?;
        if !shared {
            copy_linked_files(dir).map_err(|e| IO.with_text(format!("{}: {e}", dir.display())))?;
        }
        Ok(())
    })
}

/// Replaces the hard links of a checkpoint with copies. At any interruption the directory is a
/// complete database.
fn copy_linked_files(dir: &std::path::Path) -> std::io::Result<()> {
    use std::os::unix::fs::MetadataExt;
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        let meta = std::fs::symlink_metadata(&path)?;
        if meta.is_dir() {
            copy_linked_files(&path)?;
        } else if meta.is_file() && meta.nlink() > 1 {
            let copy = path.with_extension("copying");
            std::fs::copy(&path, &copy)?;
            std::fs::File::open(&copy)?.sync_all()?;
            std::fs::rename(&copy, &path)?;
        }
    }
    std::fs::File::open(dir)?.sync_all()
}

/// Copies the database into `dir`, which must be missing or empty, without hard links and while it
/// is in use.
///
/// # Safety
/// `dir` is null or a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_backup(db: Handle, dir: *mut c_char) -> c_int {
    checkpoint(db, dir, false)
}

/// Like [`tidesdb_backup`], but with hard links if the file system supports them.
///
/// # Safety
/// `checkpoint_dir` is null or a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_checkpoint(db: Handle, checkpoint_dir: *const c_char) -> c_int {
    checkpoint(db, checkpoint_dir, true)
}

/// Promotes a replica on an object store: fails, because replicas are not supported.
#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_promote_to_primary(db: Handle) -> c_int {
    call(|| {
        let _db = database(db)?;
        Err(INVALID_ARGS.with_message("the database is not a replica"))
    })
}

/// Handle of the only connector, which `tidesdb_open` refuses by name.
static UNSUPPORTED_STORE: c_int = 0;

/// Returns a connector to a directory.
///
/// # Safety
/// `root_dir` is null or a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_objstore_fs_create(root_dir: *const c_char) -> Handle {
    if root_dir.is_null() {
        return null_mut();
    }
    log::warn("object stores are not supported yet: tidesdb_open refuses this connector");
    (&raw const UNSUPPORTED_STORE).cast_mut().cast()
}

fn s3_unsupported() -> Handle {
    log::error("S3 is not supported yet: open a database on a local disk without a connector");
    let _ = INVALID_ARGS.with_message("S3 is not supported yet");
    null_mut()
}

/// Creates an S3 connector: returns null, because S3 is not supported yet.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
pub extern "C" fn tidesdb_objstore_s3_create(
    _endpoint: *const c_char,
    _bucket: *const c_char,
    _prefix: *const c_char,
    _access_key: *const c_char,
    _secret_key: *const c_char,
    _region: *const c_char,
    _use_ssl: c_int,
    _use_path_style: c_int,
) -> Handle {
    s3_unsupported()
}

/// Like `tidesdb_objstore_s3_create`, with all settings.
#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_objstore_s3_create_config(_config: *const S3Config) -> Handle {
    s3_unsupported()
}
