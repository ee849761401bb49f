//! Tables: column families with a name, options and a time to live.

use crate::engine::{Durability, Engine, Shared, with_engine};
use crate::ffi::{self, Slice, TextFn};
use crate::registry::SharedTtl;
use crate::status::{Result, Status, write_error};
use perigee::limits::INLINE_VALUE_BYTES_MAX;
use perigee::{Compression, Error, ErrorKind, Family, FamilyOptions, WriteBatch, WriteOptions};
use std::ffi::{c_char, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Options of a table, `pgb_table_options` in C.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)] // Documented in `bridge.h`.
pub struct TableOptions {
    pub compression: u8,
    pub has_ttl: u8,
    pub ttl_seconds: u64,
    pub value_threshold: u64,
}

/// Statistics of a table, `pgb_table_stats` in C.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)] // Documented in `bridge.h`.
pub struct TableStats {
    pub entries: u64,
    pub disk_bytes: u64,
    pub memory_bytes: u64,
    pub files: u64,
    pub levels: u32,
}

/// Expiry time of an entry that does not expire, `PGB_NEVER` in C.
pub(crate) const NEVER: u64 = u64::MAX;

/// A table, `pgb_table` in C.
#[derive(Debug)]
pub struct Table {
    pub(crate) shared: Arc<Shared>,
    pub(crate) family: Family,
    ttl: SharedTtl,
}

impl Table {
    fn new(shared: &Arc<Shared>, family: Family) -> Box<Table> {
        let ttl = shared.registry.ttl(&family);
        Box::new(Table { shared: Arc::clone(shared), family, ttl })
    }
    /// Returns how long an entry that is written now lives; `None`: it does not expire. Metadata,
    /// whose keys begin with 0, never expires.
    #[inline]
    pub(crate) fn ttl_of(&self, key: &[u8]) -> Option<Duration> {
        match self.ttl.load(Relaxed) {
            0 => None,
            seconds => (key.first() != Some(&0)).then(|| Duration::from_secs(seconds)),
        }
    }
}

/// Compression of tables that choose none. Files are 0.5 to 0.95 times as large as with LZ4, writes
/// and cached reads as fast; reads from files are up to a fifth slower.
const DEFAULT_COMPRESSION: Compression = Compression::Zstd(1);

/// Returns the engine's options; what `options` does not set is taken from `base`.
fn family_options(options: &TableOptions, base: FamilyOptions) -> Result<FamilyOptions> {
    let default = FamilyOptions::new();
    let compression = match options.compression {
        0 => DEFAULT_COMPRESSION,
        1 => Compression::None,
        2 => Compression::Lz4,
        3 => Compression::Zstd(3),
        _ => return Err(Status::INVALID.with_message("unknown compression")),
    };
    let value_threshold = match options.value_threshold {
        0 => default.value_threshold,
        bytes => usize::try_from(bytes).map_or(INLINE_VALUE_BYTES_MAX, |n| n),
    };
    let value_threshold = value_threshold.min(INLINE_VALUE_BYTES_MAX);
    Ok(base.compression(compression).value_threshold(value_threshold))
}

fn ttl_seconds(options: &TableOptions) -> u64 {
    // A time to live of 0 would be none at all.
    if options.has_ttl != 0 { options.ttl_seconds.max(1) } else { 0 }
}

fn create(shared: &Arc<Shared>, name: &str, options: &TableOptions) -> Result<Box<Table>> {
    let family_options = family_options(options, FamilyOptions::new())?;
    let family = shared.registry.create_table(&shared.db, name, family_options)?;
    if let Err(status) = shared.registry.set_ttl(&family, ttl_seconds(options)) {
        // The message of the first error is the one to report.
        let text = crate::status::last_error();
        let _ = shared.registry.drop_table(&shared.db, name);
        return Err(status.with_text(text));
    }
    Ok(Table::new(shared, family))
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_table_create(
    engine: *mut Engine,
    name: *const c_char,
    size: usize,
    options: *const TableOptions,
    out: *mut *mut Table,
) -> Status {
    let work = |shared: &Arc<Shared>| {
        // SAFETY: guaranteed by the caller.
        let (name, options) = unsafe { (ffi::name(name, size)?, ffi::object(options)?) };
        let table = create(shared, name, options)?;
        // SAFETY: guaranteed by the caller.
        unsafe { ffi::store(out, Box::into_raw(table)) }
    };
    // SAFETY: guaranteed by the caller.
    unsafe { with_engine(engine, work) }
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_table_open(
    engine: *mut Engine,
    name: *const c_char,
    size: usize,
    out: *mut *mut Table,
) -> Status {
    let work = |shared: &Arc<Shared>| {
        // SAFETY: guaranteed by the caller.
        let name = unsafe { ffi::name(name, size) }?;
        let family = shared.registry.open_table(&shared.db, name)?;
        // SAFETY: guaranteed by the caller.
        unsafe { ffi::store(out, Box::into_raw(Table::new(shared, family))) }
    };
    // SAFETY: guaranteed by the caller.
    unsafe { with_engine(engine, work) }
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_table_release(table: *mut Table) {
    // SAFETY: guaranteed by the caller.
    unsafe { ffi::release(table) }
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_table_drop(
    engine: *mut Engine,
    name: *const c_char,
    size: usize,
) -> Status {
    let work = |shared: &Arc<Shared>| {
        // SAFETY: guaranteed by the caller.
        let name = unsafe { ffi::name(name, size) }?;
        shared.registry.drop_table(&shared.db, name)
    };
    // SAFETY: guaranteed by the caller.
    unsafe { with_engine(engine, work) }
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_table_rename(
    engine: *mut Engine,
    from: *const c_char,
    from_size: usize,
    to: *const c_char,
    to_size: usize,
) -> Status {
    let work = |shared: &Arc<Shared>| {
        // SAFETY: guaranteed by the caller.
        let (from, to) = unsafe { (ffi::name(from, from_size)?, ffi::name(to, to_size)?) };
        shared.registry.rename_table(&shared.db, from, to)
    };
    // SAFETY: guaranteed by the caller.
    unsafe { with_engine(engine, work) }
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_table_clear(
    engine: *mut Engine,
    name: *const c_char,
    size: usize,
) -> Status {
    let work = |shared: &Arc<Shared>| {
        // SAFETY: guaranteed by the caller.
        let name = unsafe { ffi::name(name, size) }?;
        let family = shared.registry.open_table(&shared.db, name)?;
        Ok(shared.db.admin().clear_family(&family.name())?)
    };
    // SAFETY: guaranteed by the caller.
    unsafe { with_engine(engine, work) }
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_tables_list(
    engine: *mut Engine,
    report: TextFn,
    arg: *mut c_void,
) -> Status {
    let work = |shared: &Arc<Shared>| {
        for family in shared.db.families() {
            if let Some(name) = shared.registry.table_name(family)? {
                // SAFETY: guaranteed by the caller; the text is valid during the call.
                unsafe { report(arg, name.as_ptr().cast(), name.len()) };
            }
        }
        Ok(())
    };
    // SAFETY: guaranteed by the caller.
    unsafe { with_engine(engine, work) }
}

/// Runs a call on a table.
///
/// # Safety
/// `table` is null or points to an open table.
#[inline]
pub(crate) unsafe fn with_table(
    table: *const Table,
    work: impl FnOnce(&Table) -> Result<()>,
) -> Status {
    // SAFETY: guaranteed by the caller.
    match unsafe { ffi::object(table) } {
        Ok(table) => ffi::call(&table.shared, || work(table)),
        Err(status) => status,
    }
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_table_set_options(
    table: *mut Table,
    options: *const TableOptions,
) -> Status {
    let work = |table: &Table| {
        // SAFETY: guaranteed by the caller.
        let options = unsafe { ffi::object(options) }?;
        let before = table.family.options();
        let after = family_options(options, before.clone())?;
        if after != before {
            table.family.set_options(after)?;
        }
        table.shared.registry.set_ttl(&table.family, ttl_seconds(options))
    };
    // SAFETY: guaranteed by the caller.
    unsafe { with_table(table, work) }
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_table_compact(table: *mut Table) -> Status {
    // SAFETY: guaranteed by the caller.
    unsafe { with_table(table, |table| Ok(table.family.compact()?)) }
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_table_flush(table: *mut Table) -> Status {
    // SAFETY: guaranteed by the caller.
    unsafe { with_table(table, |table| Ok(table.family.flush()?)) }
}

fn stats(table: &Table) -> Result<TableStats> {
    let s = table.family.stats()?;
    let tombstones =
        s.memtables.tombstones + s.levels.iter().map(|level| level.tombstones).sum::<u64>();
    let tables = s.levels.iter().map(|level| level.files).sum::<usize>();
    Ok(TableStats {
        // Each tombstone hides one older entry.
        entries: s.entries().saturating_sub(2 * tombstones),
        disk_bytes: s.levels.iter().map(|level| level.bytes).sum::<u64>() + s.vlogs.bytes,
        memory_bytes: s.memtable.bytes + s.immutable_memtables.bytes,
        files: (tables + s.vlogs.files) as u64,
        levels: s.levels.len() as u32,
    })
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_table_stats_get(table: *mut Table, out: *mut TableStats) -> Status {
    // SAFETY: guaranteed by the caller.
    unsafe { with_table(table, |table| ffi::store(out, stats(table)?)) }
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_estimate_range(
    table: *mut Table,
    begin: Slice,
    end: Slice,
    entries: *mut u64,
    bytes: *mut u64,
) -> Status {
    let work = |table: &Table| {
        // SAFETY: guaranteed by the caller.
        let range = unsafe { ffi::range(begin, end) };
        let estimate = table.family.estimate_range::<&[u8]>(range)?;
        // SAFETY: guaranteed by the caller.
        unsafe {
            ffi::store(entries, estimate.keys)?;
            ffi::store(bytes, estimate.disk_bytes + estimate.memory_bytes)
        }
    };
    // SAFETY: guaranteed by the caller.
    unsafe { with_table(table, work) }
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_put_direct(
    table: *mut Table,
    key: Slice,
    value: Slice,
    durability: Durability,
) -> Status {
    let work = |table: &Table| {
        // SAFETY: guaranteed by the caller.
        let (key, value) = unsafe { (key.bytes(), value.bytes()) };
        let options = WriteOptions::new().durability(durability.to_engine());
        let put = table.family.put_with(key, value, options);
        put.map_err(|e| direct_write_error(e, key.len(), value.len()))
    };
    // SAFETY: guaranteed by the caller.
    unsafe { with_table(table, work) }
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_delete_range_direct(
    table: *mut Table,
    begin: Slice,
    end: Slice,
    durability: Durability,
) -> Status {
    let work = |table: &Table| {
        // SAFETY: guaranteed by the caller.
        let range = unsafe { ffi::range(begin, end) };
        let mut batch = WriteBatch::new();
        batch.delete_range::<&[u8]>(&table.family, range)?;
        let options = WriteOptions::new().durability(durability.to_engine());
        let deleted = table.shared.db.write_with(batch, options);
        deleted.map_err(|e| direct_write_error(e, begin.size, 0))?;
        Ok(())
    };
    // SAFETY: guaranteed by the caller.
    unsafe { with_table(table, work) }
}

/// Maps the error of a write outside of a transaction.
#[cold]
fn direct_write_error(e: Error, key_bytes: usize, value_bytes: usize) -> Status {
    match e.kind() {
        // A prepared transaction wrote the key.
        ErrorKind::Conflict => Status::LOCK_TIMEOUT.with_error(e),
        _ => write_error(e, key_bytes, value_bytes),
    }
}
