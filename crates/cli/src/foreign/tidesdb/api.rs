//! Bindings of TidesDB's C interface, loaded from a library that the user specifies: structure
//! layouts of version 9.3, functions by name, handles that are freed. Contains all foreign calls of
//! the importer.
//!
//! Invariants: each handle is owned by one object, which keeps its parent alive and frees it
//! exactly once. The bytes of an iterator are borrowed from it, so it cannot advance while they are
//! in use.

use super::expiry_chain::ExpiryChain;
use crate::failure::{Failure, Result, show_path};
use libloading::Library as Loaded;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::rc::Rc;
use std::time::{Duration, Instant};

const NOT_FOUND: c_int = -3;
const LOCKED: c_int = -12;
const LOG_NONE: c_int = 99;
/// Space for fields that another version may have appended to structures returned by value.
const TRAILING_BYTES: usize = 1024;
/// Sizes of the buffers for the name of a column family and of a comparator.
const NAME_BYTES: usize = 128;
const COMPARATOR_BYTES: usize = 64;

/// The database configuration.
#[repr(C)]
struct Config {
    path: *const c_char,
    flush_threads: c_int,
    compaction_threads: c_int,
    log_level: c_int,
    block_cache: usize,
    max_open_tables: usize,
    log_to_file: c_int,
    log_truncation: usize,
    max_memory: usize,
    unified_memtable: c_int,
    unified_buffer: usize,
    unified_levels: c_int,
    unified_probability: f32,
    unified_sync: c_int,
    unified_interval_us: u64,
    object_store: *mut c_void,
    object_store_config: *mut c_void,
    max_concurrent_flushes: c_int,
    finish_compactions_on_close: c_int,
    spare: [u8; TRAILING_BYTES],
}

/// The configuration of a column family.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FamilyConfig {
    name: [c_char; NAME_BYTES],
    pub write_buffer: usize,
    pub level_ratio: usize,
    pub min_levels: c_int,
    pub dividing_level_offset: c_int,
    pub value_threshold: usize,
    pub compression: c_int,
    pub bloom: c_int,
    pub bloom_rate: f64,
    pub block_indexes: c_int,
    pub index_sample: c_int,
    pub index_prefix: c_int,
    pub sync: c_int,
    pub sync_interval_us: u64,
    comparator: [c_char; COMPARATOR_BYTES],
    comparator_context: [c_char; 256],
    comparator_cached: *mut c_void,
    comparator_context_cached: *mut c_void,
    pub skip_list_levels: c_int,
    pub skip_list_probability: f32,
    pub isolation: c_int,
    pub min_disk: u64,
    pub l1_trigger: c_int,
    pub l0_stall: c_int,
    pub tombstone_density: f64,
    pub tombstone_entries: u64,
    pub btree: c_int,
    hook: *mut c_void,
    hook_context: *mut c_void,
    object_bytes: usize,
    pub object_lazy: c_int,
    pub object_prefetch: c_int,
}

#[repr(C)]
struct Padded {
    family: FamilyConfig,
    spare: [u8; TRAILING_BYTES],
}

/// The first fields of the structure that `get_stats` returns.
#[repr(C)]
struct Stats {
    levels: c_int,
    memtable: usize,
    level_sizes: *mut usize,
    level_tables: *mut c_int,
    config: *const FamilyConfig,
    total_keys: u64,
}

type Handle = *mut c_void;
/// Maximum duration of a flush.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(600);
type Bytes = *mut u8;

/// Defines the functions that are used, by their names without `tidesdb_`.
macro_rules! interface {
    ($($name:ident: $type:ty,)*) => {
        /// The loaded library.
        pub struct Library {
            $($name: $type,)*
            /// Keeps the functions mapped; the last field, so that it is dropped last.
            _loaded: Loaded,
        }
        const NAMES: &[&str] = &[$(concat!("tidesdb_", stringify!($name))),*];
        impl Library {
            fn bind(loaded: Loaded) -> std::result::Result<Library, libloading::Error> {
                // SAFETY: in the public C interface of version 9, each function has the type given
                // next to its name.
                unsafe {
                    Ok(Library {
                        $($name: *loaded.get::<$type>(concat!("tidesdb_", stringify!($name)).as_bytes())?,)*
                        _loaded: loaded,
                    })
                }
            }
        }
    };
}

interface! {
    init: unsafe extern "C" fn(Handle, Handle, Handle, Handle) -> c_int,
    default_config: unsafe extern "C" fn() -> Config,
    default_column_family_config: unsafe extern "C" fn() -> Padded,
    open: unsafe extern "C" fn(*const Config, *mut Handle) -> c_int,
    close: unsafe extern "C" fn(Handle) -> c_int,
    create_column_family: unsafe extern "C" fn(Handle, *const c_char, *const Padded) -> c_int,
    get_column_family: unsafe extern "C" fn(Handle, *const c_char) -> Handle,
    list_column_families: unsafe extern "C" fn(Handle, *mut *mut *mut c_char, *mut c_int) -> c_int,
    get_stats: unsafe extern "C" fn(Handle, *mut *mut Stats) -> c_int,
    free_stats: unsafe extern "C" fn(*mut Stats),
    txn_begin: unsafe extern "C" fn(Handle, *mut Handle) -> c_int,
    txn_put: unsafe extern "C" fn(Handle, Handle, *const u8, usize, *const u8, usize, i64) -> c_int,
    txn_commit: unsafe extern "C" fn(Handle) -> c_int,
    txn_free: unsafe extern "C" fn(Handle),
    iter_new: unsafe extern "C" fn(Handle, Handle, *mut Handle) -> c_int,
    iter_seek_to_first: unsafe extern "C" fn(Handle) -> c_int,
    iter_seek_to_last: unsafe extern "C" fn(Handle) -> c_int,
    iter_next: unsafe extern "C" fn(Handle) -> c_int,
    iter_prev: unsafe extern "C" fn(Handle) -> c_int,
    iter_valid: unsafe extern "C" fn(Handle) -> c_int,
    iter_key: unsafe extern "C" fn(Handle, *mut Bytes, *mut usize) -> c_int,
    iter_value: unsafe extern "C" fn(Handle, *mut Bytes, *mut usize) -> c_int,
    iter_free: unsafe extern "C" fn(Handle),
    flush_memtable: unsafe extern "C" fn(Handle) -> c_int,
    is_flushing: unsafe extern "C" fn(Handle) -> c_int,
    free: unsafe extern "C" fn(Handle),
}

/// Converts a return code to a result; `what` names the call in the message.
fn check_code(code: c_int, what: &str) -> Result<()> {
    let reason = match code {
        0 => return Ok(()),
        -1 => "out of memory",
        -2 => "invalid arguments",
        NOT_FOUND => "not found",
        -4 => "input or output failed",
        -5 => "corruption",
        -6 => "exists",
        -8 => "too large",
        -9 => "memory limit",
        -10 => "invalid database",
        LOCKED => "locked by another process",
        -13 => "read only",
        -14 => "busy",
        _ => "unknown",
    };
    let kind = if code == LOCKED { "locked" } else { "TidesDB" };
    Err(Failure::other(kind, format!("TidesDB's library: {what}: {reason} ({code})")))
}

fn text(chars: &[c_char]) -> String {
    let bytes: Vec<u8> =
        chars.iter().take_while(|c| **c != 0).map(|c| c.to_ne_bytes()[0]).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

impl FamilyConfig {
    /// Returns the name of the comparator.
    pub fn comparator(&self) -> String {
        text(&self.comparator)
    }
    /// Returns the context string of the comparator.
    pub fn comparator_context(&self) -> String {
        text(&self.comparator_context)
    }
    /// Returns a copy with a built-in comparator and without pointers into a database.
    fn with_built_in_comparator(mut self, comparator: &str) -> FamilyConfig {
        (self.comparator_cached, self.comparator_context_cached) =
            (ptr::null_mut(), ptr::null_mut());
        (self.hook, self.hook_context) = (ptr::null_mut(), ptr::null_mut());
        (self.comparator, self.comparator_context) = ([0; COMPARATOR_BYTES], [0; 256]);
        for (to, from) in self.comparator.iter_mut().zip(comparator.bytes()) {
            *to = c_char::from_ne_bytes([from]);
        }
        self
    }
    /// Returns true if the values are plausible, which confirms that the layout is right.
    fn is_plausible(&self) -> bool {
        (1..=1 << 40).contains(&self.write_buffer)
            && (1..=1_000_000).contains(&self.level_ratio)
            && (0..=4).contains(&self.compression)
            && (0..=1).contains(&self.bloom)
            && (0.0..=1.0).contains(&self.bloom_rate)
            && (0..=2).contains(&self.sync)
            && (0.0..=1.0).contains(&self.skip_list_probability)
            && (0..=4).contains(&self.isolation)
            && (0..=1).contains(&self.btree)
    }
}

impl Library {
    /// Loads a library and checks that it is TidesDB's, in a version with known layouts.
    pub fn load(path: &Path) -> Result<Rc<Library>> {
        let file = std::fs::canonicalize(path).map_err(|e| Failure::file("open", path, &e))?;
        let shown = show_path(path);
        let invalid = |reason: String| {
            Failure::usage(format!("--tidesdb-lib {shown}: {reason}")).hint(
                "specify the path of TidesDB's shared library, such as \
                 /usr/local/lib/libtidesdb.so.9",
            )
        };
        check_version(&file).map_err(invalid)?;
        // SAFETY: loading runs the library's initializers; the user specified this file as
        // TidesDB's library.
        let loaded =
            unsafe { Loaded::new(&file) }.map_err(|e| invalid(format!("cannot be loaded: {e}")))?;
        let has = |name: &str| {
            // SAFETY: the symbol is only looked up, not called.
            unsafe { loaded.get::<Handle>(name.as_bytes()) }.is_ok()
        };
        if has("perigee_version") {
            return Err(Failure::usage(format!("--tidesdb-lib {shown} is Perigee's own library"))
                .hint(
                    "databases that it wrote are Perigee databases: open them directly, there is \
                 nothing to import",
                ));
        }
        let missing: Vec<&str> = NAMES.iter().copied().filter(|name| !has(name)).collect();
        if !missing.is_empty() {
            return Err(invalid(format!(
                "is not TidesDB's library: it has no {}",
                missing.join(", ")
            )));
        }
        let library = Library::bind(loaded).map_err(|e| invalid(format!("cannot be used: {e}")))?;
        // SAFETY: null pointers select the system's allocator; a second call in a process returns
        // -1 and changes nothing.
        unsafe {
            (library.init)(ptr::null_mut(), ptr::null_mut(), ptr::null_mut(), ptr::null_mut())
        };
        let (config, family) = library.defaults();
        let sane = (0..=256).contains(&config.compaction_threads)
            && (0..=1).contains(&config.unified_memtable)
            && (0..=1).contains(&config.finish_compactions_on_close)
            && config.object_store.is_null();
        if !(sane && family.family.is_plausible()) {
            return Err(invalid("its structures are not laid out as in version 9.3".into()));
        }
        Ok(Rc::new(library))
    }

    fn defaults(&self) -> (Config, Padded) {
        // SAFETY: both return a structure by value that is too large for registers: the caller
        // provides the memory, here `TRAILING_BYTES` more than version 9.3 fills. Every field is
        // valid for any bytes; the trailing bytes are never read.
        unsafe { ((self.default_config)(), (self.default_column_family_config)()) }
    }

    /// Opens a database, creating it if it does not exist.
    pub fn open(self: &Rc<Library>, dir: &Path, unified: bool) -> Result<Database> {
        let path = CString::new(dir.as_os_str().as_bytes())
            .map_err(|_| Failure::usage("the path contains a NUL byte"))?;
        let (mut config, _) = self.defaults();
        config.path = path.as_ptr();
        config.log_level = LOG_NONE;
        config.unified_memtable = c_int::from(unified);
        let mut db = ptr::null_mut();
        // SAFETY: the configuration and the path in it live until the call returns; the library
        // copies what it keeps.
        check_code(unsafe { (self.open)(&raw const config, &raw mut db) }, "open")?;
        Ok(Database { library: Rc::clone(self), db })
    }
}

/// Checks the major version in the file name; the library has no function that returns it.
fn check_version(file: &Path) -> std::result::Result<(), String> {
    let name = file.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    let major = name.split_once(".so.").and_then(|(_, v)| v.split('.').next()?.parse::<u32>().ok());
    match major {
        None | Some(9) => Ok(()),
        Some(other) => Err(format!("{name} is of major version {other}; only 9 is supported")),
    }
}

/// An open database, closed when dropped.
pub struct Database {
    library: Rc<Library>,
    db: Handle,
}

impl Drop for Database {
    fn drop(&mut self) {
        // SAFETY: the database is open, and no iterator or transaction of it is left: they are
        // freed by the functions that create them.
        unsafe { (self.library.close)(self.db) };
    }
}

fn c_string(name: &str) -> Result<CString> {
    CString::new(name).map_err(|_| Failure::usage("the name contains a NUL byte"))
}

impl Database {
    /// Returns the names of the column families.
    pub fn family_names(&self) -> Result<Vec<Vec<u8>>> {
        let (mut names, mut count) = (ptr::null_mut(), 0);
        // SAFETY: the database is open; both out-parameters are valid for writes.
        let code =
            unsafe { (self.library.list_column_families)(self.db, &raw mut names, &raw mut count) };
        check_code(code, "list the column families")?;
        let mut all = Vec::new();
        for i in 0..usize::try_from(count).unwrap_or(0) {
            // SAFETY: on success `names` is an array of `count` NUL-terminated strings, which the
            // caller must free.
            unsafe {
                let name = *names.add(i);
                all.push(CStr::from_ptr(name).to_bytes().to_vec());
                (self.library.free)(name.cast());
            }
        }
        if !names.is_null() {
            // SAFETY: the caller must free the array as well; it is not used afterwards.
            unsafe { (self.library.free)(names.cast()) };
        }
        Ok(all)
    }

    fn family(&self, name: &str) -> Result<Handle> {
        let c_name = c_string(name)?;
        // SAFETY: the database is open, the name lives until the call returns.
        let family = unsafe { (self.library.get_column_family)(self.db, c_name.as_ptr()) };
        if family.is_null() {
            return Err(Failure::other(
                "TidesDB",
                format!("TidesDB's library has no open column family {name:?}"),
            ));
        }
        Ok(family)
    }

    /// Returns the settings of a column family and its approximate number of entries.
    pub fn stats(&self, name: &str) -> Result<(FamilyConfig, u64)> {
        let family = self.family(name)?;
        let mut stats = ptr::null_mut();
        // SAFETY: the family belongs to this open database.
        check_code(unsafe { (self.library.get_stats)(family, &raw mut stats) }, "get_stats")?;
        // SAFETY: on success it is a structure that begins with the fields of `Stats`, with a
        // pointer to a configuration; freed here, once.
        let (config, keys) = unsafe {
            let found =
                ((!(*stats).config.is_null()).then(|| *(*stats).config), (*stats).total_keys);
            (self.library.free_stats)(stats);
            found
        };
        match config {
            Some(config) if config.is_plausible() => Ok((config, keys)),
            _ => Err(Failure::other(
                "TidesDB",
                format!(
                    "the settings of the column family {name:?} are implausible in the layout of \
                     version 9.3"
                ),
            )),
        }
    }

    /// Creates a column family with the settings of another, but a built-in comparator.
    pub fn create_family_like(
        &self,
        name: &str,
        settings: FamilyConfig,
        comparator: &str,
    ) -> Result<()> {
        let (_, mut config) = self.library.defaults();
        config.family = settings.with_built_in_comparator(comparator);
        let name = c_string(name)?;
        // SAFETY: the database is open, name and configuration live until the call returns.
        let code = unsafe {
            (self.library.create_column_family)(self.db, name.as_ptr(), &raw const config)
        };
        check_code(code, "create a column family")
    }

    /// Puts entries (key, value, expiry time) in one transaction. The expiry time is in seconds
    /// since the Unix epoch, -1 for none.
    pub fn put(&self, family: &str, entries: &[(Vec<u8>, Vec<u8>, i64)]) -> Result<()> {
        let family = self.family(family)?;
        let txn = TidesTxn::begin(self)?;
        for (key, value, expiry) in entries {
            // SAFETY: transaction and family belong to this open database; key and value live until
            // the call has copied them.
            let code = unsafe {
                let (v, n) = (value.as_ptr(), value.len());
                (self.library.txn_put)(txn.txn, family, key.as_ptr(), key.len(), v, n, *expiry)
            };
            check_code(code, "txn_put")?;
        }
        // SAFETY: the transaction was begun above and is freed when dropped.
        check_code(unsafe { (self.library.txn_commit)(txn.txn) }, "txn_commit")
    }

    /// Flushes a column family and waits until no flush is running.
    pub fn flush(&self, family: &str) -> Result<()> {
        let family = self.family(family)?;
        // SAFETY: the family belongs to this open database.
        check_code(unsafe { (self.library.flush_memtable)(family) }, "flush_memtable")?;
        let started = Instant::now();
        // SAFETY: as above.
        while unsafe { (self.library.is_flushing)(family) } != 0 {
            if started.elapsed() > FLUSH_TIMEOUT {
                return Err(Failure::other("TidesDB", "TidesDB's library does not finish a flush"));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Iterates over a column family in the given direction and calls `visit` at each entry.
    pub fn for_each_position(
        &self,
        family: &str,
        direction: ScanDirection,
        visit: &mut dyn FnMut(&IterPosition<'_>) -> Result<()>,
    ) -> Result<()> {
        let library = &self.library;
        let (begin, step) = match direction {
            ScanDirection::Forward => (library.iter_seek_to_first, library.iter_next),
            ScanDirection::Backward => (library.iter_seek_to_last, library.iter_prev),
        };
        let family = self.family(family)?;
        let txn = TidesTxn::begin(self)?;
        let mut iter = ptr::null_mut();
        // SAFETY: transaction and family belong to this open database.
        check_code(unsafe { (self.library.iter_new)(txn.txn, family, &raw mut iter) }, "iter_new")?;
        let iter = TidesIter { iter, txn };
        // SAFETY: the iterator was created above and lives until `iter` is dropped.
        let mut found = check_found(unsafe { begin(iter.iter) }, "seek to the first entry")?;
        // SAFETY: as above.
        while found && unsafe { (self.library.iter_valid)(iter.iter) } != 0 {
            let position = IterPosition {
                key: iter.get_bytes(self.library.iter_key, "iter_key")?,
                value: iter.get_bytes(self.library.iter_value, "iter_value")?,
                iter: iter.iter.cast_const().cast(),
            };
            visit(&position)?;
            // SAFETY: as above; the bytes of the previous entry are no longer borrowed.
            found = check_found(unsafe { step(iter.iter) }, "go to the next entry")?;
        }
        Ok(())
    }
}

/// Like [`check_code`], but returns false for "not found" instead of an error.
fn check_found(code: c_int, what: &str) -> Result<bool> {
    if code == NOT_FOUND { Ok(false) } else { check_code(code, what).map(|()| true) }
}

/// A transaction, freed when dropped; without a commit it is rolled back.
struct TidesTxn<'d> {
    library: &'d Library,
    txn: Handle,
}

impl<'d> TidesTxn<'d> {
    fn begin(db: &'d Database) -> Result<TidesTxn<'d>> {
        let mut txn = ptr::null_mut();
        // SAFETY: the database is open as long as it is borrowed.
        check_code(unsafe { (db.library.txn_begin)(db.db, &raw mut txn) }, "txn_begin")?;
        Ok(TidesTxn { library: &db.library, txn })
    }
}

impl Drop for TidesTxn<'_> {
    fn drop(&mut self) {
        // SAFETY: created by `begin`, freed only here.
        unsafe { (self.library.txn_free)(self.txn) };
    }
}

struct TidesIter<'d> {
    iter: Handle,
    /// Outlives the iterator, which `drop` frees first.
    txn: TidesTxn<'d>,
}

impl Drop for TidesIter<'_> {
    fn drop(&mut self) {
        // SAFETY: created by `iter_new`, freed only here, before its transaction.
        unsafe { (self.txn.library.iter_free)(self.iter) };
    }
}

type IterGetter = unsafe extern "C" fn(Handle, *mut Bytes, *mut usize) -> c_int;

impl TidesIter<'_> {
    fn get_bytes(&self, get: IterGetter, what: &str) -> Result<&[u8]> {
        let (mut bytes, mut len) = (ptr::null_mut(), 0);
        // SAFETY: the iterator lives as long as `self`; the caller has checked that it is valid.
        check_code(unsafe { get(self.iter, &raw mut bytes, &raw mut len) }, what)?;
        if bytes.is_null() {
            return Ok(&[]);
        }
        // SAFETY: on success the `len` bytes at `bytes` belong to the iterator, which cannot
        // advance while they are borrowed.
        Ok(unsafe { std::slice::from_raw_parts(bytes, len) })
    }
}

/// The direction of an iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanDirection {
    Forward,
    Backward,
}

/// The entry at the current position of an iterator.
pub struct IterPosition<'a> {
    pub key: &'a [u8],
    pub value: &'a [u8],
    /// The iterator itself.
    pub iter: *const u8,
}

impl IterPosition<'_> {
    /// Returns the expiry time of the entry as stored by the library; `None` if it is not where
    /// `calibrate` found it for other entries. The chain must have been found with the library of
    /// this iterator, for column families with the same settings.
    pub fn read_expiry(&self, chain: &ExpiryChain) -> Option<i64> {
        // SAFETY: the iterator is at an entry and returned this key; the caller guarantees the
        // rest, as documented above.
        unsafe { chain.read_expiry(self.iter, self.key.as_ptr()) }
    }
}
