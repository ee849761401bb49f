//! TidesDB's C interface, from a library that the user names: layouts of version 9.3, functions by
//! name, handles that are freed. All foreign calls of the importer are here; what they mean for an
//! import is not known.
//!
//! Invariant: a handle lives in one object, which keeps what it belongs to alive and frees it once.
//! An iterator's bytes are borrowed from it, and it cannot move while they are.

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
/// Room for fields that another version may have added at the end of what it returns by value.
const TRAILING_BYTES: usize = 1024;
/// Its room for a family's name, and for that of a comparator.
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

/// The beginning of what `get_stats` gives.
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
/// How long a flush may take.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(600);
type Bytes = *mut u8;

/// The functions that are used, by their names without `tidesdb_`.
macro_rules! interface {
    ($($name:ident: $type:ty,)*) => {
        /// The library, loaded.
        pub struct Library {
            $($name: $type,)*
            /// Keeps the functions where they are; last, so that it is dropped last.
            _loaded: Loaded,
        }
        const NAMES: &[&str] = &[$(concat!("tidesdb_", stringify!($name))),*];
        impl Library {
            fn bind(loaded: Loaded) -> std::result::Result<Library, libloading::Error> {
                // SAFETY: each name has in the public C interface of version 9 the type given
                // beside it.
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

/// What a return code means.
fn check_code(code: c_int, what: &str) -> Result<()> {
    let why = match code {
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
    Err(Failure::other(kind, format!("TidesDB's library: {what}: {why} ({code})")))
}

fn text(chars: &[c_char]) -> String {
    let bytes: Vec<u8> =
        chars.iter().take_while(|c| **c != 0).map(|c| c.to_ne_bytes()[0]).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

impl FamilyConfig {
    /// The name of its comparator.
    pub fn comparator(&self) -> String {
        text(&self.comparator)
    }
    /// What its comparator was told.
    pub fn comparator_context(&self) -> String {
        text(&self.comparator_context)
    }
    /// The same without what belongs to a database, and with a built-in comparator.
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
    /// Whether it makes sense in this layout.
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
    /// Loads a library and makes sure that it is TidesDB's, of a version whose layouts are known.
    pub fn load(path: &Path) -> Result<Rc<Library>> {
        let file = std::fs::canonicalize(path).map_err(|e| Failure::file("open", path, &e))?;
        let shown = show_path(path);
        let wrong = |why: String| {
            Failure::usage(format!("--tidesdb-lib {shown}: {why}")).hint(
                "give the path of TidesDB's shared library, such as /usr/local/lib/libtidesdb.so.9",
            )
        };
        check_version(&file).map_err(wrong)?;
        // SAFETY: loading runs the library's initialisers; the user named this file as TidesDB's.
        let loaded =
            unsafe { Loaded::new(&file) }.map_err(|e| wrong(format!("cannot be loaded: {e}")))?;
        let has = |name: &str| {
            // SAFETY: only whether the name is there is asked, nothing is called.
            unsafe { loaded.get::<Handle>(name.as_bytes()) }.is_ok()
        };
        if has("perigee_version") {
            return Err(Failure::usage(format!("--tidesdb-lib {shown} is Perigee's own library")).hint(
                "what it wrote is a Perigee database already: open it as such, there is nothing to import",
            ));
        }
        let missing: Vec<&str> = NAMES.iter().copied().filter(|name| !has(name)).collect();
        if !missing.is_empty() {
            return Err(wrong(format!(
                "is not TidesDB's library: it has no {}",
                missing.join(", ")
            )));
        }
        let library = Library::bind(loaded).map_err(|e| wrong(format!("cannot be used: {e}")))?;
        // SAFETY: null pointers ask for the system's allocator; a second call in a process answers
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
            return Err(wrong("its structures are not laid out as those of version 9.3".into()));
        }
        Ok(Rc::new(library))
    }

    fn defaults(&self) -> (Config, Padded) {
        // SAFETY: both return a structure by value, too large for registers: the caller gives the
        // room, here `SPARE` bytes more than version 9.3 fills. Every field is valid whatever its
        // bytes; those of the rest are never read.
        unsafe { ((self.default_config)(), (self.default_column_family_config)()) }
    }

    /// Opens a database, or makes one.
    pub fn open(self: &Rc<Library>, dir: &Path, unified: bool) -> Result<Database> {
        let path = CString::new(dir.as_os_str().as_bytes())
            .map_err(|_| Failure::usage("a path with a NUL byte in it"))?;
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

/// The major version is in the file's name, where the library has no call for it.
fn check_version(file: &Path) -> std::result::Result<(), String> {
    let name = file.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    let major = name.split_once(".so.").and_then(|(_, v)| v.split('.').next()?.parse::<u32>().ok());
    match major {
        None | Some(9) => Ok(()),
        Some(other) => Err(format!("{name} is of major version {other}; only 9 is understood")),
    }
}

/// An open database, closed when dropped.
pub struct Database {
    library: Rc<Library>,
    db: Handle,
}

impl Drop for Database {
    fn drop(&mut self) {
        // SAFETY: the database is open, nothing that belongs to it is left: walks end before they
        // return.
        unsafe { (self.library.close)(self.db) };
    }
}

fn c_string(name: &str) -> Result<CString> {
    CString::new(name).map_err(|_| Failure::usage("a name with a NUL byte in it"))
}

impl Database {
    /// The names of its families.
    pub fn family_names(&self) -> Result<Vec<Vec<u8>>> {
        let (mut names, mut count) = (ptr::null_mut(), 0);
        // SAFETY: the database is open; both places are written.
        let code =
            unsafe { (self.library.list_column_families)(self.db, &raw mut names, &raw mut count) };
        check_code(code, "list the column families")?;
        let mut all = Vec::new();
        for i in 0..usize::try_from(count).unwrap_or(0) {
            // SAFETY: on success `names` are `count` strings that end in NUL, each ours to free.
            unsafe {
                let name = *names.add(i);
                all.push(CStr::from_ptr(name).to_bytes().to_vec());
                (self.library.free)(name.cast());
            }
        }
        if !names.is_null() {
            // SAFETY: so is the array; nothing of it is used any more.
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
                format!("TidesDB's library does not find the family {name:?}"),
            ));
        }
        Ok(family)
    }

    /// The settings of a family, and about how many entries it has.
    pub fn stats(&self, name: &str) -> Result<(FamilyConfig, u64)> {
        let family = self.family(name)?;
        let mut stats = ptr::null_mut();
        // SAFETY: the family belongs to this open database.
        check_code(unsafe { (self.library.get_stats)(family, &raw mut stats) }, "get_stats")?;
        // SAFETY: on success it is a structure that begins as `Stats`, with a configuration in it;
        // freed here, once.
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
                    "the settings of the family {name:?} make no sense in the layout of version 9.3"
                ),
            )),
        }
    }

    /// Makes a family with the settings of another, under a built-in comparator.
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

    /// Puts entries in one transaction; the end of each in seconds since 1970, -1 for none.
    pub fn put(&self, family: &str, entries: &[(Vec<u8>, Vec<u8>, i64)]) -> Result<()> {
        let family = self.family(family)?;
        let txn = TidesTxn::begin(self)?;
        for (key, value, until) in entries {
            // SAFETY: transaction and family belong to this open database; key and value live until
            // the call has copied them.
            let code = unsafe {
                let (v, n) = (value.as_ptr(), value.len());
                (self.library.txn_put)(txn.txn, family, key.as_ptr(), key.len(), v, n, *until)
            };
            check_code(code, "txn_put")?;
        }
        // SAFETY: the transaction was begun above and is freed when dropped.
        check_code(unsafe { (self.library.txn_commit)(txn.txn) }, "txn_commit")
    }

    /// Flushes a family, and waits until no flush is under way.
    pub fn flush(&self, family: &str) -> Result<()> {
        let family = self.family(family)?;
        // SAFETY: the family belongs to this open database.
        check_code(unsafe { (self.library.flush_memtable)(family) }, "flush_memtable")?;
        let started = Instant::now();
        // SAFETY: as above.
        while unsafe { (self.library.is_flushing)(family) } != 0 {
            if started.elapsed() > FLUSH_TIMEOUT {
                return Err(Failure::other("TidesDB", "TidesDB's library does not end a flush"));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Goes over a family from its first entry to its last, or the other way, showing the iterator
    /// at each.
    pub fn for_each_position(
        &self,
        family: &str,
        way: ScanDirection,
        visit: &mut dyn FnMut(&IterPosition<'_>) -> Result<()>,
    ) -> Result<()> {
        let library = &self.library;
        let (begin, step) = match way {
            ScanDirection::Forward => (library.iter_seek_to_first, library.iter_next),
            ScanDirection::Backward => (library.iter_seek_to_last, library.iter_prev),
        };
        let family = self.family(family)?;
        let txn = TidesTxn::begin(self)?;
        let mut iter = ptr::null_mut();
        // SAFETY: transaction and family belong to this open database.
        check_code(unsafe { (self.library.iter_new)(txn.txn, family, &raw mut iter) }, "iter_new")?;
        let walk = TidesIter { iter, txn };
        // SAFETY: the iterator was made above and lives until `walk` is dropped.
        let mut there =
            check_found(unsafe { begin(walk.iter) }, "seek to the first entry of a walk")?;
        // SAFETY: as above.
        while there && unsafe { (self.library.iter_valid)(walk.iter) } != 0 {
            let at = IterPosition {
                key: walk.get_bytes(self.library.iter_key, "iter_key")?,
                value: walk.get_bytes(self.library.iter_value, "iter_value")?,
                iter: walk.iter.cast_const().cast(),
            };
            visit(&at)?;
            // SAFETY: as above; nothing of the entry before is used any more.
            there = check_found(unsafe { step(walk.iter) }, "go to the next entry")?;
        }
        Ok(())
    }
}

/// As `success`, where "not found" is an answer: whether it was found.
fn check_found(code: c_int, what: &str) -> Result<bool> {
    if code == NOT_FOUND { Ok(false) } else { check_code(code, what).map(|()| true) }
}

/// A transaction, freed when dropped; what was not committed is rolled back.
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
        // SAFETY: begun by `begin`, freed here only.
        unsafe { (self.library.txn_free)(self.txn) };
    }
}

struct TidesIter<'d> {
    iter: Handle,
    /// Outlives the iterator: `drop` frees that first.
    txn: TidesTxn<'d>,
}

impl Drop for TidesIter<'_> {
    fn drop(&mut self) {
        // SAFETY: made by `iter_new`, freed here only, before its transaction.
        unsafe { (self.txn.library.iter_free)(self.iter) };
    }
}

type IterGetter = unsafe extern "C" fn(Handle, *mut Bytes, *mut usize) -> c_int;

impl TidesIter<'_> {
    fn get_bytes(&self, get: IterGetter, what: &str) -> Result<&[u8]> {
        let (mut bytes, mut len) = (ptr::null_mut(), 0);
        // SAFETY: the iterator lives as long as `self`, and is valid as was asked before.
        check_code(unsafe { get(self.iter, &raw mut bytes, &raw mut len) }, what)?;
        if bytes.is_null() {
            return Ok(&[]);
        }
        // SAFETY: on success `len` bytes at `bytes` belong to the iterator, which cannot move while
        // they are borrowed.
        Ok(unsafe { std::slice::from_raw_parts(bytes, len) })
    }
}

/// The direction of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanDirection {
    Forward,
    Backward,
}

/// Where an iterator stands.
pub struct IterPosition<'a> {
    pub key: &'a [u8],
    pub value: &'a [u8],
    /// The iterator itself.
    pub iter: *const u8,
}

impl IterPosition<'_> {
    /// When the entry ends, as the library keeps it; `None`: not there, where `calibrate` found it
    /// for others. The chain must be of the library that this iterator is of, for families with the
    /// settings of this one's.
    pub fn read_expiry(&self, chain: &ExpiryChain) -> Option<i64> {
        // SAFETY: the iterator stands on an entry, whose key is the one that it gave; the rest is
        // what the caller was asked for.
        unsafe { chain.read_expiry(self.iter, self.key.as_ptr()) }
    }
}
