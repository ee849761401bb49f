//! Levels of tables, flushes and compactions, and options of column families, for
//! information_schema.

use crate::engine::{Engine, Shared, with_engine};
use crate::ffi::Slice;
use crate::status::{Result, Status};
use perigee::stats::JobStats;
use std::ffi::c_void;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// One level of a table, `pgb_level_stats` in C.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)] // Documented in `bridge.h`.
pub struct LevelStats {
    pub table: Slice,
    pub level: u32,
    pub runs: u64,
    pub files: u64,
    pub bytes: u64,
    pub entries: u64,
    pub tombstones: u64,
    pub raw_bytes: u64,
}

/// A flush or compaction, `pgb_job_stats` in C.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)] // Documented in `bridge.h`.
pub struct JobRecord {
    pub kind: Slice,
    pub table: Slice,
    pub reason: Slice,
    pub state: Slice,
    pub input_levels: Slice,
    pub output_level: u32,
    pub input_files: u64,
    pub input_bytes: u64,
    pub done_bytes: u64,
    pub output_bytes: u64,
    pub elapsed_us: u64,
    pub age_us: u64,
}

/// An option of the column family of a table, `pgb_table_option` in C.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)] // Documented in `bridge.h`.
pub struct TableOption {
    pub table: Slice,
    pub family: Slice,
    pub name: Slice,
    pub value: Slice,
    pub is_default: u8,
}

/// Receives a level, `pgb_level_fn` in C.
pub type LevelFn = unsafe extern "C" fn(*mut c_void, *const LevelStats);
/// Receives a job, `pgb_job_fn` in C.
pub type JobFn = unsafe extern "C" fn(*mut c_void, *const JobRecord);
/// Receives an option, `pgb_option_fn` in C.
pub type OptionFn = unsafe extern "C" fn(*mut c_void, *const TableOption);

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_engine_levels(
    engine: *mut Engine,
    report: LevelFn,
    arg: *mut c_void,
) -> Status {
    let work = |shared: &Arc<Shared>| {
        for family in shared.db.admin().stats().families {
            // Otherwise it is no table, or was dropped in the meantime.
            let Ok(Some(table)) = shared.registry.table_name(family.name) else { continue };
            for level in family.levels.iter().filter(|level| level.files > 0) {
                let record = LevelStats {
                    table: Slice::new(table.as_bytes()),
                    level: level.level.into(),
                    runs: level.runs as u64,
                    files: level.files as u64,
                    bytes: level.bytes,
                    entries: level.entries,
                    tombstones: level.tombstones,
                    raw_bytes: level.raw_key_bytes + level.raw_value_bytes,
                };
                // SAFETY: guaranteed by the caller; the record is valid during the call.
                unsafe { report(arg, &raw const record) };
            }
        }
        Ok(())
    };
    // SAFETY: guaranteed by the caller.
    unsafe { with_engine(engine, work) }
}

/// Returns the value of an option without the quotes of the options file.
fn unquoted(value: &str) -> String {
    value.strip_prefix('"').and_then(|v| v.strip_suffix('"')).unwrap_or(value).to_owned()
}

/// Returns the name of the table in the column family of a job, followed by the text that the
/// engine adds if there are more of them.
fn table_of_job(shared: &Shared, families: &str) -> Result<String> {
    let (family, more) = match families.find(" and ") {
        Some(at) => families.split_at(at),
        None => (families, ""),
    };
    let table = shared.registry.table_name(family.to_owned()).unwrap_or(None);
    Ok(table.unwrap_or_else(|| family.to_owned()) + more)
}

/// Passes a job to C++.
///
/// # Safety
/// `report` can be called with `arg`.
unsafe fn report_job(
    shared: &Shared,
    job: &JobStats,
    (state, age_us): (&str, u64),
    (report, arg): (JobFn, *mut c_void),
) -> Result<()> {
    let table = table_of_job(shared, &job.family)?;
    let mut levels = String::new();
    for level in &job.from {
        let separator = if levels.is_empty() { "" } else { "," };
        let _ = write!(levels, "{separator}{level}");
    }
    let record = JobRecord {
        kind: Slice::new(job.kind.as_bytes()),
        table: Slice::new(table.as_bytes()),
        reason: Slice::new(job.reason.as_bytes()),
        state: Slice::new(state.as_bytes()),
        input_levels: Slice::new(levels.as_bytes()),
        output_level: job.to.into(),
        input_files: job.files as u64,
        input_bytes: job.bytes,
        done_bytes: job.bytes_done,
        output_bytes: job.bytes_written,
        elapsed_us: job.elapsed_us,
        age_us,
    };
    // SAFETY: guaranteed by the caller; the record is valid during the call.
    unsafe { report(arg, &raw const record) };
    Ok(())
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_engine_jobs(
    engine: *mut Engine,
    report: JobFn,
    arg: *mut c_void,
) -> Status {
    let work = |shared: &Arc<Shared>| {
        let admin = shared.db.admin();
        for job in &admin.stats().running_jobs {
            // SAFETY: guaranteed by the caller.
            unsafe { report_job(shared, job, ("running", 0), (report, arg)) }?;
        }
        for finished in &admin.finished_jobs() {
            let state = if finished.is_complete { "finished" } else { "failed" };
            let end = (state, finished.age_us);
            // SAFETY: guaranteed by the caller.
            unsafe { report_job(shared, &finished.job, end, (report, arg)) }?;
        }
        Ok(())
    };
    // SAFETY: guaranteed by the caller.
    unsafe { with_engine(engine, work) }
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_engine_options_list(
    engine: *mut Engine,
    report: OptionFn,
    arg: *mut c_void,
) -> Status {
    let work = |shared: &Arc<Shared>| {
        for family in shared.db.families() {
            // Otherwise it is no table, or was dropped in the meantime.
            let Ok(Some(table)) = shared.registry.table_name(family.clone()) else { continue };
            let Ok(handle) = shared.db.family(&family) else { continue };
            let ttl_seconds = shared.registry.ttl(&handle).load(Relaxed);
            let ttl = ("ttl_seconds", ttl_seconds.to_string(), ttl_seconds == 0);
            let options = handle.options().values().into_iter();
            let options = options.map(|o| (o.name, unquoted(&o.value), o.value == o.default));
            for (name, value, is_default) in options.chain([ttl]) {
                let record = TableOption {
                    table: Slice::new(table.as_bytes()),
                    family: Slice::new(family.as_bytes()),
                    name: Slice::new(name.as_bytes()),
                    value: Slice::new(value.as_bytes()),
                    is_default: u8::from(is_default),
                };
                // SAFETY: guaranteed by the caller; the record is valid during the call.
                unsafe { report(arg, &raw const record) };
            }
        }
        Ok(())
    };
    // SAFETY: guaranteed by the caller.
    unsafe { with_engine(engine, work) }
}
