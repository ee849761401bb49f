//! The calls that open, close and configure: `tidesdb_init`, `tidesdb_open`, defaults, comparators.

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

/// Names the allocator of what the library gives away. 0; -1 if that was done already.
#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_init(
    malloc: Option<Malloc>,
    calloc: Option<Calloc>,
    realloc: Option<Realloc>,
    free: Option<Free>,
) -> c_int {
    if alloc::init(malloc, calloc, realloc, free) { 0 } else { -1 }
}

/// Initializes with C's allocator, if nobody has initialized.
#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_ensure_initialized() {
    alloc::ensure_initialized();
}

/// Back to C's allocator. Databases stay open.
#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_finalize() {
    alloc::finalize();
}

/// Gives back memory that the library gave.
///
/// # Safety
/// `ptr` is null, or was given by the library and not given back yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_free(ptr: *mut c_void) {
    // SAFETY: says the caller.
    unsafe { alloc::release(ptr) }
}

/// Settings of a database to start from.
#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_default_config() -> Config {
    config::DEFAULT_CONFIG
}

/// Settings of a family to start from.
#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_default_column_family_config() -> FamilyConfig {
    config::DEFAULT_FAMILY_CONFIG
}

/// Settings of an object store to start from.
#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_objstore_default_config() -> ObjectStoreConfig {
    config::DEFAULT_OBJECT_STORE_CONFIG
}

/// Whether a compression can be used: all that have a number can.
#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_compression_available(algorithm: c_int) -> c_int {
    c_int::from((COMPRESS_NONE..=COMPRESS_LZ4_FAST).contains(&algorithm))
}

/// Asks for so many open files (0 or less: asks how many there may be). How many there may be then.
#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_raise_open_file_limit(desired: c_long) -> c_long {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a place for the answer.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return -1;
    }
    let wanted = libc::rlim_t::try_from(desired).unwrap_or(0).min(limit.rlim_max);
    if wanted > limit.rlim_cur {
        let raised = libc::rlimit { rlim_cur: wanted, ..limit };
        // SAFETY: a whole structure.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) } == 0 {
            limit = raised;
        }
    }
    c_long::try_from(limit.rlim_cur).unwrap_or(c_long::MAX)
}

/// What the engine does is said in the log, from this level on.
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
            // An open that waits for a comparator is no error.
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
    // SAFETY: the path is null or text, as the interface says.
    let path = unsafe { text(c.db_path) }?;
    if path.is_empty() {
        return Err(INVALID_ARGS.with_message("db_path: a directory"));
    }
    if !c.object_store.is_null() {
        return Err(INVALID_ARGS.with_message(
            "object_store: this library keeps databases on local disks only; leave the field null (nothing was opened)",
        ));
    }
    let options = with_log_listener(with(config::database_options(c)?)?, c.log_level);
    log::set_level(c.log_level);
    let path = PathBuf::from(path);
    let log_file = (c.log_to_file != 0).then(|| path.join("LOG"));
    let database = Arc::new(Database::new(path, options, c, log_file)?);
    // The file is in the directory, which an open that fails must not leave behind.
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
        log::info(&format!(
            "without effect, because this engine sees to it by itself: {}",
            notes.join(", ")
        ));
    }
    match opened {
        Err(e) if !there => return Err(e),
        Err(_) => log::info(&format!(
            "the database is opened when its comparators are registered: {}",
            crate::code::last_error()
        )),
        Ok(()) => {}
    }
    DATABASES.insert(database)
}

/// Opens a database, or makes one.
///
/// # Safety
/// `config` is null or a whole structure, `db` null or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_open(config: *const Config, db: *mut Handle) -> c_int {
    alloc::ensure_initialized();
    crate::log_write::connect();
    let code = call(|| {
        // SAFETY: says the caller.
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

/// Closes a database: every handle of it and of what is in it is no good any more, transactions and
/// iterators but for freeing.
#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_close(db: Handle) -> c_int {
    call(|| {
        if db.is_null() {
            return Err(INVALID_ARGS.with_message("a null pointer where a database is needed"));
        }
        if in_hook() {
            return Err(INVALID_ARGS.with_message("a commit hook may not close databases"));
        }
        DATABASES.remove(db as usize).map_err(database_closed)?.close()
    })
}

/// Makes a comparator known to a database. The function must be a total order, the same whenever
/// the program runs.
///
/// # Safety
/// `name` and `ctx_str` are null or text; `fn_` compares keys, on any thread, until the database is
/// closed.
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
        // SAFETY: says the caller.
        let name = unsafe { text(name) }?;
        let function = fn_.ok_or_else(|| {
            INVALID_ARGS.with_message("a null pointer where a comparator is needed")
        })?;
        comparator::check_name(name)?;
        // SAFETY: says the caller.
        if !ctx_str.is_null() && unsafe { CStr::from_ptr(ctx_str) }.count_bytes() >= CONTEXT_BYTES {
            return Err(INVALID_ARGS
                .with_message("the text of a comparator's context has at most 255 bytes"));
        }
        if comparator::built_in_comparator(name).is_some() {
            return Err(
                INVALID_ARGS.with_message("a comparator of that name is registered already")
            );
        }
        let function = UserComparator { call: function, context: ctx };
        db.register_comparator(RegisteredComparator {
            name: name.to_owned(),
            function,
            order: None,
        })
    })
}

/// The comparator of that name.
///
/// # Safety
/// `name` is null or text; `fn_` and `ctx` are null or places for answers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_get_comparator(
    db: Handle,
    name: *const c_char,
    fn_: *mut Option<ComparatorFn>,
    ctx: *mut *mut c_void,
) -> c_int {
    call(|| {
        let db = database(db)?;
        // SAFETY: says the caller.
        let name = unsafe { text(name) }?;
        let registered = db.comparators.read().unwrap_or_else(PoisonError::into_inner);
        let own = registered.iter().find(|r| r.name == name).map(|r| r.function);
        let built_in = comparator::built_in_comparator(name).filter(|_| !name.is_empty());
        let found = own
            .or(built_in.map(|(_, call)| UserComparator { call, context: null_mut() }))
            .ok_or_else(|| NOT_FOUND.with_message("no comparator of that name is registered"))?;
        // SAFETY: says the caller.
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

/// An independent copy of the database in `dir`, which must be missing or empty.
fn checkpoint(db: Handle, dir: *const c_char, shared: bool) -> c_int {
    call(|| {
        let db = database(db)?;
        // SAFETY: the interface asks for text.
        let dir = unsafe { text(dir) }?;
        if dir.is_empty() {
            return Err(INVALID_ARGS.with_message("a directory is needed"));
        }
        let dir = std::path::Path::new(dir);
        if std::fs::read_dir(dir).is_ok_and(|mut d| d.next().is_some()) {
            return Err(EXISTS.with_message("the directory is not empty"));
        }
        db.engine()?.checkpoint(dir)?;
        if !shared {
            copy_linked_files(dir).map_err(|e| IO.with_text(format!("{}: {e}", dir.display())))?;
        }
        Ok(())
    })
}

/// Gives every file of a checkpoint bytes of its own. Whenever it stops, what is there is a whole
/// database.
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

/// Copies the database into `dir`, which must be missing or empty, byte by byte, while it is in
/// use.
///
/// # Safety
/// `dir` is null or text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_backup(db: Handle, dir: *mut c_char) -> c_int {
    checkpoint(db, dir, false)
}

/// The same with hard links where the file system has them.
///
/// # Safety
/// `checkpoint_dir` is null or text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_checkpoint(db: Handle, checkpoint_dir: *const c_char) -> c_int {
    checkpoint(db, checkpoint_dir, true)
}

/// A database that follows another through an object store: there are none.
#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_promote_to_primary(db: Handle) -> c_int {
    call(|| {
        let _db = database(db)?;
        Err(INVALID_ARGS.with_message("the database is no replica"))
    })
}

/// The connector that there is: one that `tidesdb_open` refuses by name.
static UNSUPPORTED_STORE: c_int = 0;

/// A connector to a directory.
///
/// # Safety
/// `root_dir` is null or text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_objstore_fs_create(root_dir: *const c_char) -> Handle {
    if root_dir.is_null() {
        return null_mut();
    }
    log::warn("object stores are not there yet: tidesdb_open refuses this connector");
    (&raw const UNSUPPORTED_STORE).cast_mut().cast()
}

fn s3_unsupported() -> Handle {
    log::error(
        "this library has no S3 connector yet: a database on local disks is opened without one",
    );
    let _ = INVALID_ARGS.with_message("this library has no S3 connector yet");
    null_mut()
}

/// A connector to S3: there is none yet, and the answer is null.
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

/// The same, with all that can be said of it.
#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_objstore_s3_create_config(_config: *const S3Config) -> Handle {
    s3_unsupported()
}
