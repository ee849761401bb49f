//! Adapter for TidesDB, through a shared library that the user names (`--tidesdb-lib`): no part of
//! it is built or shipped here.
//!
//! The library's C interface has no version call: the major version is taken from the file name
//! (`libtidesdb.so.9.3.14`, links followed), and the defaults that it returns must be plausible in
//! the layout below; otherwise the library is refused. Every return code is checked: anything but
//! success, or "not found" where that is an answer, is an error.

use crate::engine::{
    Cursor, EffectiveOptions, Engine, Result, Session, Sink, TtlSupport, TxnConflict, TxnOps,
};
use crate::settings::{Compression, Level, Settings, Sync as SyncChoice, human_bytes};
use libloading::Library;
use std::ffi::{CString, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::path::Path;
use std::ptr;
use std::time::{Duration, SystemTime};

/// Oldest major version with this layout.
const OLDEST_MAJOR: u32 = 9;
const NOT_FOUND: c_int = -3;
const CONFLICT: c_int = -7;
/// TidesDB's numbers of two isolation levels.
const SNAPSHOT: c_int = 3;
const SERIALIZABLE: c_int = 4;
const LOG_FATAL: c_int = 4;
const LZ4: c_int = 2;
/// Reads per transaction before it is renewed, as in its own benchmark.
const READS_PER_TXN: u32 = 1000;
/// Spare bytes for fields that a newer version may have appended to structures returned by value.
const TRAILING_BYTES: usize = 1024;

/// `tidesdb_config_t` of version 9.
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
    spare: MaybeUninit<[u8; TRAILING_BYTES]>,
}

/// `tidesdb_column_family_config_t` of version 9.
#[repr(C)]
struct FamilyConfig {
    name: [c_char; 128],
    write_buffer: usize,
    level_ratio: usize,
    min_levels: c_int,
    dividing_level_offset: c_int,
    value_threshold: usize,
    compression: c_int,
    bloom: c_int,
    bloom_rate: f64,
    block_indexes: c_int,
    index_sample: c_int,
    index_prefix: c_int,
    sync: c_int,
    sync_interval_us: u64,
    comparator: [c_char; 64],
    comparator_context: [c_char; 256],
    comparator_cached: *mut c_void,
    comparator_context_cached: *mut c_void,
    skip_list_levels: c_int,
    skip_list_probability: f32,
    isolation: c_int,
    min_disk: u64,
    l1_trigger: c_int,
    l0_stall: c_int,
    tombstone_density: f64,
    tombstone_entries: u64,
    btree: c_int,
    hook: *mut c_void,
    hook_context: *mut c_void,
    object_bytes: usize,
    object_lazy: c_int,
    object_prefetch: c_int,
    spare: MaybeUninit<[u8; TRAILING_BYTES]>,
}

type Bytes = *mut u8;
type Handle = *mut c_void;

/// Declares the functions that are used, by their names without `tidesdb_`.
macro_rules! interface {
    ($($name:ident: $type:ty,)*) => {
        struct Api {
            $($name: $type,)*
            /// Keeps the functions loaded; last field, so that it is dropped last.
            _library: Library,
        }
        impl Api {
            fn load(library: Library) -> Result<Api> {
                // SAFETY: in the public C interface of version 9 and newer, each name has the type
                // given beside it.
                unsafe {
                    Ok(Api {
                        $($name: *library.get::<$type>(concat!("tidesdb_", stringify!($name)).as_bytes())?,)*
                        _library: library,
                    })
                }
            }
        }
    };
}

interface! {
    init: unsafe extern "C" fn(Handle, Handle, Handle, Handle) -> c_int,
    default_config: unsafe extern "C" fn() -> Config,
    default_column_family_config: unsafe extern "C" fn() -> FamilyConfig,
    open: unsafe extern "C" fn(*const Config, *mut Handle) -> c_int,
    close: unsafe extern "C" fn(Handle) -> c_int,
    create_column_family: unsafe extern "C" fn(Handle, *const c_char, *const FamilyConfig) -> c_int,
    get_column_family: unsafe extern "C" fn(Handle, *const c_char) -> Handle,
    txn_begin: unsafe extern "C" fn(Handle, *mut Handle) -> c_int,
    txn_begin_with_isolation: unsafe extern "C" fn(Handle, c_int, *mut Handle) -> c_int,
    txn_put: unsafe extern "C" fn(Handle, Handle, *const u8, usize, *const u8, usize, i64) -> c_int,
    txn_delete: unsafe extern "C" fn(Handle, Handle, *const u8, usize) -> c_int,
    txn_get: unsafe extern "C" fn(Handle, Handle, *const u8, usize, *mut Bytes, *mut usize) -> c_int,
    txn_commit: unsafe extern "C" fn(Handle) -> c_int,
    txn_free: unsafe extern "C" fn(Handle),
    iter_new: unsafe extern "C" fn(Handle, Handle, *mut Handle) -> c_int,
    iter_seek: unsafe extern "C" fn(Handle, *const u8, usize) -> c_int,
    iter_seek_to_first: unsafe extern "C" fn(Handle) -> c_int,
    iter_next: unsafe extern "C" fn(Handle) -> c_int,
    iter_valid: unsafe extern "C" fn(Handle) -> c_int,
    iter_key: unsafe extern "C" fn(Handle, *mut Bytes, *mut usize) -> c_int,
    iter_value: unsafe extern "C" fn(Handle, *mut Bytes, *mut usize) -> c_int,
    iter_free: unsafe extern "C" fn(Handle),
    flush_memtable: unsafe extern "C" fn(Handle) -> c_int,
    is_flushing: unsafe extern "C" fn(Handle) -> c_int,
    is_compacting: unsafe extern "C" fn(Handle) -> c_int,
    sync_wal: unsafe extern "C" fn(Handle) -> c_int,
    free: unsafe extern "C" fn(Handle),
}

/// Fails with a description unless the return code is success.
fn check_code(code: c_int, what: &str) -> Result<()> {
    let why = match code {
        0 => return Ok(()),
        -1 => "out of memory",
        -2 => "invalid arguments",
        NOT_FOUND => "not found",
        -4 => "input or output failed",
        -5 => "corruption",
        -6 => "exists",
        -7 => "conflict",
        -8 => "too large",
        -9 => "memory limit",
        -10 => "invalid database",
        -12 => "locked",
        -13 => "read only",
        -14 => "busy",
        _ => "unknown",
    };
    Err(format!("{what}: {why} ({code})").into())
}

/// Like `check_code`, but "not found" is an answer: returns true if found.
fn check_found(code: c_int, what: &str) -> Result<bool> {
    if code == NOT_FOUND { Ok(false) } else { check_code(code, what).map(|()| true) }
}

/// Like `check_code`, but a conflict fails with [`TxnConflict`].
fn check_conflict(code: c_int, what: &str) -> Result<()> {
    if code == CONFLICT { Err(Box::new(TxnConflict)) } else { check_code(code, what) }
}

struct TidesDb {
    api: Api,
    level: Level,
    db: Handle,
    families: Vec<Handle>,
    version: String,
    ttl: Option<u64>,
    options: EffectiveOptions,
}

// SAFETY: the handles are those of a database and its column families, which the library documents
// as usable by all threads at once; transactions and iterators, which are not, never leave the
// session that created them.
unsafe impl Sync for TidesDb {}

/// Returns the version in the library's file name, links followed, and its major part.
fn version(lib: &Path) -> Result<(String, u32)> {
    let file =
        std::fs::canonicalize(lib).map_err(|e| format!("--tidesdb-lib {}: {e}", lib.display()))?;
    let name = file.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    let version = name.split_once(".so.").map(|(_, v)| v.to_owned()).unwrap_or_default();
    match version.split('.').next().and_then(|major| major.parse().ok()) {
        Some(major) if major >= OLDEST_MAJOR => Ok((version, major)),
        Some(major) => {
            Err(format!("{name}: major version {major}; {OLDEST_MAJOR} is the oldest supported")
                .into())
        }
        None => Ok(("unknown: the file name has none".into(), OLDEST_MAJOR)),
    }
}

/// Refuses a library whose defaults are implausible in the layouts of this file.
fn check_layout(config: &Config, family: &FamilyConfig) -> Result<()> {
    let sizes = |bytes: usize| (64 << 10..=64 << 30).contains(&bytes);
    let right = sizes(config.block_cache)
        && (0..=4).contains(&config.log_level)
        && (0..=256).contains(&config.compaction_threads)
        && (0..=1).contains(&config.finish_compactions_on_close)
        && sizes(family.write_buffer)
        && (2..=100).contains(&family.level_ratio)
        && (0..=4).contains(&family.compression)
        && (0.000_001..0.5).contains(&family.bloom_rate)
        && (0.01..0.9).contains(&family.skip_list_probability)
        && (0..=4).contains(&family.isolation)
        && (0..=1).contains(&family.btree);
    if right {
        Ok(())
    } else {
        Err("refused: this library's structures do not have the layout of version 9".into())
    }
}

pub fn open(dir: &Path, settings: &Settings) -> Result<Box<dyn Engine>> {
    let lib = settings.tidesdb_lib.as_deref().ok_or("name the library: --tidesdb-lib PATH")?;
    let (version, major) = version(lib)?;
    // SAFETY: loading runs the library's initializers; the user named this file as the TidesDB
    // library.
    let api = Api::load(unsafe { Library::new(lib) }?)?;
    // SAFETY: null pointers select the system's allocator; a second call in a process returns -1
    // and changes nothing.
    unsafe { (api.init)(ptr::null_mut(), ptr::null_mut(), ptr::null_mut(), ptr::null_mut()) };
    // SAFETY: both return a structure by value that is too large for registers: the caller provides
    // the memory, here with `TRAILING_BYTES` more than version 9 fills, which may stay
    // uninitialized.
    let (mut config, mut family) =
        unsafe { ((api.default_config)(), (api.default_column_family_config)()) };
    check_layout(&config, &family)?;
    std::fs::create_dir_all(dir)?;
    let path = CString::new(dir.to_str().ok_or("a path that is not UTF-8")?)?;
    config.path = path.as_ptr();
    (config.flush_threads, config.compaction_threads) = (4, 4);
    config.log_level = LOG_FATAL;
    config.block_cache = usize::try_from(settings.cache)?;
    family.write_buffer = usize::try_from(settings.memtable_per_family())?;
    family.compression = if settings.compression == Compression::None { 0 } else { LZ4 };
    family.bloom = 1;
    family.bloom_rate = 0.01;
    family.sync = c_int::from(settings.sync == SyncChoice::Full);
    let effective = effective_options(settings, &family, major, &version);
    let mut db = ptr::null_mut();
    // SAFETY: the configuration and the path in it live until the call returns; the library copies
    // what it keeps.
    check_code(unsafe { (api.open)(&raw const config, &raw mut db) }, "open")?;
    let mut tides = TidesDb {
        api,
        level: settings.level,
        db,
        families: Vec::new(),
        version,
        ttl: settings.shape.ttl,
        options: effective,
    };
    for f in 0..settings.families() {
        let made = tides.family(&format!("bench{f}"), &family)?;
        tides.families.push(made);
    }
    Ok(Box::new(tides))
}

fn effective_options(
    settings: &Settings,
    family: &FamilyConfig,
    major: u32,
    version: &str,
) -> EffectiveOptions {
    let mut effective = EffectiveOptions::new();
    let mut say = |k: &str, v: String| effective.insert(k.to_owned(), v);
    let sync = if settings.sync == SyncChoice::Full { "FULL" } else { "NONE" };
    say("durability", format!("log, sync mode {sync}"));
    say("memtable", human_bytes(settings.memtable_per_family()));
    say("cache", format!("{} of blocks, and the page cache", human_bytes(settings.cache)));
    say("compression", format!("{:?}", settings.compression));
    say("filter", format!("Bloom, false positive rate {} (10 bits per key)", family.bloom_rate));
    say("background jobs", "4 for flushes, 4 for compactions".into());
    say("isolation", "read committed (its default)".into());
    say("reads", format!("{READS_PER_TXN} with each transaction"));
    say(
        "layout",
        format!(
            "of major version {OLDEST_MAJOR}, in a library of major version {major} ({version})"
        ),
    );
    if let Some(seconds) = settings.shape.ttl {
        say("time to live", format!("{seconds} s, rounded up to the next whole second"));
    }
    effective
}

impl TidesDb {
    /// Returns the column family of that name, created if absent.
    fn family(&self, name: &str, config: &FamilyConfig) -> Result<Handle> {
        let name = CString::new(name)?;
        // SAFETY: the database is open; the name and the configuration live until the calls return.
        unsafe {
            let there = (self.api.get_column_family)(self.db, name.as_ptr());
            if !there.is_null() {
                return Ok(there);
            }
            check_code(
                (self.api.create_column_family)(self.db, name.as_ptr(), ptr::from_ref(config)),
                "create_column_family",
            )?;
            let made = (self.api.get_column_family)(self.db, name.as_ptr());
            if made.is_null() {
                Err("a column family just created is not there".into())
            } else {
                Ok(made)
            }
        }
    }
}

impl Engine for TidesDb {
    fn version(&self) -> String {
        self.version.clone()
    }
    fn effective_options(&self) -> EffectiveOptions {
        self.options.clone()
    }
    fn with_session(&self, work: &mut dyn FnMut(&mut dyn Session) -> Result<()>) -> Result<()> {
        work(&mut TidesSession { tides: self, read_txn: None, reads: 0 })
    }
    fn wait_idle(&self) -> Result<()> {
        for family in &self.families {
            // SAFETY: the handle is that of a column family of this open database.
            check_code(unsafe { (self.api.flush_memtable)(*family) }, "flush_memtable")?;
        }
        let mut quiet = 0;
        // Ten consecutive idle checks count as idle, because flushes trigger compactions.
        while quiet < 10 {
            // SAFETY: as above.
            let at_work =
                |f: &Handle| unsafe { (self.api.is_flushing)(*f) + (self.api.is_compacting)(*f) } != 0;
            quiet = if self.families.iter().any(at_work) { 0 } else { quiet + 1 };
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
    fn close(mut self: Box<Self>) -> Result<()> {
        for family in &self.families {
            // SAFETY: the handle is that of a column family of this open database.
            check_code(unsafe { (self.api.sync_wal)(*family) }, "sync_wal")?;
        }
        let db = std::mem::replace(&mut self.db, ptr::null_mut());
        // SAFETY: the database is open, no session is left, and `drop` will find a null pointer.
        check_code(unsafe { (self.api.close)(db) }, "close")
    }
    fn ttl_support(&self) -> TtlSupport {
        if self.ttl.is_some() { TtlSupport::OnRead } else { TtlSupport::None }
    }
    fn supports_level(&self, level: Level) -> bool {
        level != Level::Locks
    }
    fn max_value_bytes(&self) -> u64 {
        u64::from(u32::MAX)
    }
}

impl Drop for TidesDb {
    fn drop(&mut self) {
        if !self.db.is_null() {
            // SAFETY: the database is open and no longer in use; an earlier error has already been
            // returned.
            unsafe { (self.api.close)(self.db) };
        }
    }
}

/// A transaction, freed when dropped; uncommitted writes are rolled back.
struct TidesTxn<'e> {
    api: &'e Api,
    txn: Handle,
}

impl<'e> TidesTxn<'e> {
    fn begin(tides: &'e TidesDb) -> Result<TidesTxn<'e>> {
        let mut txn = ptr::null_mut();
        // SAFETY: the database is open as long as `tides` is borrowed.
        check_code(unsafe { (tides.api.txn_begin)(tides.db, &raw mut txn) }, "txn_begin")?;
        Ok(TidesTxn { api: &tides.api, txn })
    }
    /// Begins a transaction of the settings' level.
    fn begin_at_level(tides: &'e TidesDb) -> Result<TidesTxn<'e>> {
        let level = if tides.level == Level::Serializable { SERIALIZABLE } else { SNAPSHOT };
        let mut txn = ptr::null_mut();
        // SAFETY: as in `begin`.
        let code = unsafe { (tides.api.txn_begin_with_isolation)(tides.db, level, &raw mut txn) };
        check_code(code, "txn_begin_with_isolation")?;
        Ok(TidesTxn { api: &tides.api, txn })
    }
    /// Calls `see` with the value of `key`, which is valid only during the call.
    fn get(&self, cf: Handle, key: &[u8], see: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        let (mut value, mut len) = (ptr::null_mut(), 0);
        // SAFETY: transaction and column family belong to one open database; the key lives until
        // the call returns.
        let code = unsafe {
            (self.api.txn_get)(self.txn, cf, key.as_ptr(), key.len(), &raw mut value, &raw mut len)
        };
        if !check_found(code, "txn_get")? {
            see(None);
            return Ok(());
        }
        // SAFETY: on success `value` is a block of `len` bytes from the library's allocator, which
        // this function owns and frees once.
        unsafe {
            see(Some(if len == 0 { &[] } else { std::slice::from_raw_parts(value, len) }));
            (self.api.free)(value.cast());
        }
        Ok(())
    }
}

impl Drop for TidesTxn<'_> {
    fn drop(&mut self) {
        // SAFETY: begun by `begin` and freed only here.
        unsafe { (self.api.txn_free)(self.txn) };
    }
}

struct TidesSession<'e> {
    tides: &'e TidesDb,
    /// Transaction of the last reads.
    read_txn: Option<TidesTxn<'e>>,
    reads: u32,
}

struct TidesWriteTxn<'e> {
    txn: TidesTxn<'e>,
    tides: &'e TidesDb,
    /// Expiry time of this batch's entries in seconds since 1970, or 0.
    expires_at: i64,
}

impl Sink for TidesWriteTxn<'_> {
    fn put(&mut self, family: usize, key: &[u8], value: &[u8]) -> Result<()> {
        let cf = self.tides.families[family];
        // SAFETY: transaction and column family belong to this open database; key and value live
        // until the call has copied them.
        let code = unsafe {
            (self.txn.api.txn_put)(
                self.txn.txn,
                cf,
                key.as_ptr(),
                key.len(),
                value.as_ptr(),
                value.len(),
                self.expires_at,
            )
        };
        check_code(code, "txn_put")
    }
    fn delete(&mut self, family: usize, key: &[u8]) -> Result<()> {
        let cf = self.tides.families[family];
        // SAFETY: as for `put`.
        let code = unsafe { (self.txn.api.txn_delete)(self.txn.txn, cf, key.as_ptr(), key.len()) };
        check_code(code, "txn_delete")
    }
}

impl Session for TidesSession<'_> {
    fn write(
        &mut self,
        _n: usize,
        fill: &mut dyn FnMut(&mut dyn Sink) -> Result<()>,
    ) -> Result<()> {
        // The library takes an expiry time in whole seconds: rounded up, so that no entry expires
        // early.
        let until = match self.tides.ttl {
            Some(ttl) => {
                SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs() + ttl + 1
            }
            None => 0,
        };
        let txn = TidesTxn::begin(self.tides)?;
        let mut writing =
            TidesWriteTxn { txn, tides: self.tides, expires_at: i64::try_from(until)? };
        fill(&mut writing)?;
        // SAFETY: the transaction was begun above and is freed when `writing` is dropped.
        check_code(unsafe { (self.tides.api.txn_commit)(writing.txn.txn) }, "txn_commit")
    }
    fn get(&mut self, family: usize, key: &[u8], see: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        if self.reads.is_multiple_of(READS_PER_TXN) {
            self.read_txn = None;
        }
        self.reads = self.reads.wrapping_add(1);
        let txn = match &self.read_txn {
            Some(txn) => txn,
            None => self.read_txn.insert(TidesTxn::begin(self.tides)?),
        };
        txn.get(self.tides.families[family], key, see)
    }
    fn with_cursor(
        &mut self,
        family: usize,
        work: &mut dyn FnMut(&mut dyn Cursor) -> Result<()>,
    ) -> Result<()> {
        let txn = TidesTxn::begin(self.tides)?;
        let mut iter = ptr::null_mut();
        let cf = self.tides.families[family];
        // SAFETY: transaction and column family belong to this open database.
        check_code(unsafe { (txn.api.iter_new)(txn.txn, cf, &raw mut iter) }, "iter_new")?;
        let mut cursor = TidesCursor { iter, txn };
        work(&mut cursor)
    }
    fn run_txn(&mut self, work: &mut dyn FnMut(&mut dyn TxnOps) -> Result<()>) -> Result<()> {
        let mut writing = TidesWriteTxn {
            txn: TidesTxn::begin_at_level(self.tides)?,
            tides: self.tides,
            expires_at: 0,
        };
        work(&mut writing)?;
        // SAFETY: the transaction was begun above and is freed when `writing` is dropped.
        check_conflict(unsafe { (self.tides.api.txn_commit)(writing.txn.txn) }, "txn_commit")
    }
}

impl TxnOps for TidesWriteTxn<'_> {
    fn get(
        &mut self,
        family: usize,
        key: &[u8],
        _change: bool,
        see: &mut dyn FnMut(Option<&[u8]>),
    ) -> Result<()> {
        self.txn.get(self.tides.families[family], key, see)
    }
    fn put(&mut self, family: usize, key: &[u8], value: &[u8]) -> Result<()> {
        Sink::put(self, family, key, value)
    }
}

struct TidesCursor<'e> {
    iter: Handle,
    /// Outlives the iterator: `drop` frees the iterator first.
    txn: TidesTxn<'e>,
}

impl Drop for TidesCursor<'_> {
    fn drop(&mut self) {
        // SAFETY: created by `iter_new` and freed only here, before its transaction.
        unsafe { (self.txn.api.iter_free)(self.iter) };
    }
}

/// Getter of the iterator's current key or value. The bytes belong to the iterator until it moves
/// or is freed.
type IterGetter = unsafe extern "C" fn(Handle, *mut Bytes, *mut usize) -> c_int;

impl TidesCursor<'_> {
    fn get_bytes(&self, get: IterGetter, what: &str) -> Result<&[u8]> {
        let (mut bytes, mut len) = (ptr::null_mut(), 0);
        // SAFETY: the iterator lives as long as `self`, and the caller has checked that it is
        // valid.
        check_code(unsafe { get(self.iter, &raw mut bytes, &raw mut len) }, what)?;
        if len == 0 {
            return Ok(&[]);
        }
        // SAFETY: on success `len` bytes at `bytes` belong to the iterator, which cannot move while
        // `self` is borrowed.
        Ok(unsafe { std::slice::from_raw_parts(bytes, len) })
    }
}

impl Cursor for TidesCursor<'_> {
    fn scan(&mut self, key: &[u8], see: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        let api = self.txn.api;
        // SAFETY: the iterator lives as long as `self`; the key lives until the call returns.
        let code = unsafe {
            if key.is_empty() {
                (api.iter_seek_to_first)(self.iter)
            } else {
                (api.iter_seek)(self.iter, key.as_ptr(), key.len())
            }
        };
        let mut there = check_found(code, "iter_seek")?;
        // SAFETY: as above.
        while there && unsafe { (api.iter_valid)(self.iter) } != 0 {
            if !see(
                self.get_bytes(api.iter_key, "iter_key")?,
                self.get_bytes(api.iter_value, "iter_value")?,
            ) {
                break;
            }
            // SAFETY: as above; the previous entry's bytes are no longer used.
            there = check_found(unsafe { (api.iter_next)(self.iter) }, "iter_next")?;
        }
        Ok(())
    }
}
