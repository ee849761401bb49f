//! Calls for column families: create, drop, rename, clone, list, configure.

use crate::abi::*;
use crate::code::{CORRUPTION, EXISTS, INVALID_ARGS, IO, NOT_FOUND, Result};
use crate::ffi::{call, call_or, out_param, struct_param, text};
use crate::state::{Database, Family, database, family, publish_handle};
use crate::{alloc, catalog, config, ini, log};
use perigee::{Db, FamilyOptions};
use std::ffi::{c_char, c_int, c_void};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::sync::{Arc, MutexGuard, PoisonError};

/// Serializes changes of column families.
fn lock_family_changes(db: &Arc<Database>) -> Result<(&Db, MutexGuard<'_, ()>)> {
    let engine = db.engine()?;
    Ok((engine, db.family_changes.lock().unwrap_or_else(PoisonError::into_inner)))
}

fn family_not_found(name: &str) -> crate::code::Code {
    NOT_FOUND.with_text(format!("the column family {name:?} does not exist"))
}

fn family_exists(name: &str) -> crate::code::Code {
    EXISTS.with_text(format!("the column family {name:?} already exists"))
}

fn log_ignored_settings(name: &str, c: &FamilyConfig) {
    let notes = config::ignored_family_settings(c);
    if !notes.is_empty() {
        let all = notes.join(", ");
        log::info(&format!(
            "column family {name:?}: settings without effect on this engine: {all}"
        ));
    }
}

/// Adds an existing column family of the engine to the list.
fn add_family(
    db: &Arc<Database>,
    inner: perigee::Family,
    name: &str,
    c: FamilyConfig,
) -> Result<Arc<Family>> {
    let family = Arc::new(Family::new(db, inner, name.to_owned(), c));
    publish_handle(&family)?;
    db.families.write().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&family));
    db.update_min_free_space();
    Ok(family)
}

fn create_family(db: &Arc<Database>, name: &str, given: &FamilyConfig) -> Result<()> {
    catalog::check_name(name)?;
    let comparator = config::comparator_name(given)?;
    if db.unified_memtable_bytes.is_some() && !comparator.is_empty() && comparator != "memcmp" {
        return Err(INVALID_ARGS.with_message(
            "comparator_name: with a memtable shared by all column families (unified_memtable) \
             only memcmp is possible",
        ));
    }
    let options: FamilyOptions =
        config::family_options(given, db.find_comparator(&comparator)?, db.unified_memtable_bytes)?;
    let (engine, _one) = lock_family_changes(db)?;
    if db.family(name).is_some() {
        return Err(family_exists(name));
    }
    log_ignored_settings(name, given);
    let kept = FamilyConfig {
        comparator_fn_cached: null_mut(),
        comparator_ctx_cached: null_mut(),
        ..*given
    };
    // Refuse settings that cannot be stored before creating anything.
    ini::write_section(name, &kept)?;
    let made = engine.create_family(&catalog::engine_name(name), options)?;
    catalog::store_settings(engine, name, made.id(), &kept)?;
    let family = add_family(db, made, name, kept)?;
    if given.commit_hook_fn.is_some() {
        family.set_hook(given.commit_hook_fn, given.commit_hook_ctx);
    }
    Ok(())
}

/// Creates a column family.
///
/// # Safety
/// `name` is null or a NUL-terminated string, `config` is null or points to a valid structure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_create_column_family(
    db: Handle,
    name: *const c_char,
    config: *const FamilyConfig,
) -> c_int {
    call(|| {
        let db = database(db)?;
        // SAFETY: guaranteed by the caller.
        unsafe { create_family(&db, text(name)?, struct_param(config)?) }
    })
}

/// Removes a column family from the list and from the engine.
fn remove_family(db: &Arc<Database>, engine: &Db, family: &Arc<Family>) -> Result<()> {
    let name = family.name();
    let inside = family.inner.name();
    if inside == "default" {
        // The engine's default family cannot be dropped; while it is empty it is not visible.
        engine.admin().clear_family(&inside)?;
    } else {
        engine.drop_family(&inside)?;
    }
    db.families.write().unwrap_or_else(PoisonError::into_inner).retain(|f| !Arc::ptr_eq(f, family));
    family.invalidate();
    db.update_min_free_space();
    catalog::delete_settings(engine, &name)
}

/// Drops a column family with its data.
///
/// # Safety
/// `name` is null or a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_drop_column_family(db: Handle, name: *const c_char) -> c_int {
    call(|| {
        let db = database(db)?;
        // SAFETY: guaranteed by the caller.
        let name = unsafe { text(name) }?;
        let (engine, _one) = lock_family_changes(&db)?;
        remove_family(&db, engine, &db.family(name).ok_or_else(|| family_not_found(name))?)
    })
}

/// Drops a column family with its data.
#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_delete_column_family(db: Handle, cf: Handle) -> c_int {
    call(|| {
        let (db, cf) = (database(db)?, family(cf)?);
        if !Arc::ptr_eq(&db, &cf.database) {
            return Err(INVALID_ARGS.with_message("the column family belongs to another database"));
        }
        let (engine, _one) = lock_family_changes(&db)?;
        if !db.all_families().iter().any(|f| Arc::ptr_eq(f, &cf)) {
            return Err(family_not_found(&cf.name()));
        }
        remove_family(&db, engine, &cf)
    })
}

/// Renames a column family; its handle stays valid.
///
/// # Safety
/// The names are null or NUL-terminated strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_rename_column_family(
    db: Handle,
    old_name: *const c_char,
    new_name: *const c_char,
) -> c_int {
    call(|| {
        let db = database(db)?;
        // SAFETY: guaranteed by the caller.
        let (old, new) = unsafe { (text(old_name)?, text(new_name)?) };
        catalog::check_name(new)?;
        let (engine, _one) = lock_family_changes(&db)?;
        let family = db.family(old).ok_or_else(|| family_not_found(old))?;
        if old == new {
            return Ok(());
        }
        if db.family(new).is_some() {
            return Err(family_exists(new));
        }
        let inside = family.inner.name();
        if inside == "default" {
            return Err(INVALID_ARGS.with_message(
                "the column family \"default\" was written from Rust and cannot be renamed",
            ));
        }
        catalog::store_settings(engine, new, family.inner.id(), &family.config())?;
        engine.admin().rename_family(&inside, &catalog::engine_name(new))?;
        family.rename(new);
        catalog::delete_settings(engine, old)
    })
}

/// Creates a second column family with the same entries and settings.
///
/// # Safety
/// The names are null or NUL-terminated strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_clone_column_family(
    db: Handle,
    src_name: *const c_char,
    dst_name: *const c_char,
) -> c_int {
    call(|| {
        let db = database(db)?;
        // SAFETY: guaranteed by the caller.
        let (from, to) = unsafe { (text(src_name)?, text(dst_name)?) };
        catalog::check_name(to)?;
        if from == to {
            return Err(INVALID_ARGS.with_message("source and clone must have different names"));
        }
        let (engine, _one) = lock_family_changes(&db)?;
        let source = db.family(from).ok_or_else(|| family_not_found(from))?;
        if db.family(to).is_some() {
            return Err(family_exists(to));
        }
        let c =
            FamilyConfig { commit_hook_fn: None, commit_hook_ctx: null_mut(), ..source.config() };
        let made = engine.admin().clone_family(&source.inner.name(), &catalog::engine_name(to))?;
        catalog::store_settings(engine, to, made.id(), &c)?;
        add_family(&db, made, to, c).map(drop)
    })
}

/// Returns the column family of that name; null if it does not exist.
///
/// # Safety
/// `name` is null or a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_get_column_family(db: Handle, name: *const c_char) -> Handle {
    call_or(null_mut(), || {
        let db = database(db)?;
        // SAFETY: guaranteed by the caller.
        let name = unsafe { text(name) }?;
        if let Err(e) = db.engine() {
            log::error(&crate::code::last_error());
            return Err(e);
        }
        let family = db.family(name).ok_or_else(|| family_not_found(name))?;
        Ok(family.handle.get().map_or(null_mut(), |h| *h as Handle))
    })
}

/// Returns the names of all column families: an array and its strings, each to be freed by the
/// caller.
///
/// # Safety
/// `names` and `count` are null or valid for writing the results.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_list_column_families(
    db: Handle,
    names: *mut *mut *mut c_char,
    count: *mut c_int,
) -> c_int {
    call(|| {
        let db = database(db)?;
        // SAFETY: guaranteed by the caller.
        let (names, count) = unsafe { (out_param(names)?, out_param(count)?) };
        let all = db.family_names()?;
        (*names, *count) = (null_mut(), 0);
        if all.is_empty() {
            return Ok(());
        }
        let array = alloc::allocate(all.len() * size_of::<*mut c_char>())?.cast::<*mut c_char>();
        for (i, family) in all.iter().enumerate() {
            let name = alloc::copy_text(family);
            // SAFETY: the array has an element for each name; strings allocated so far are freed if
            // memory runs out.
            unsafe {
                match name {
                    Ok(name) => array.add(i).write(name.cast()),
                    Err(e) => {
                        (0..i).for_each(|j| alloc::release(array.add(j).read().cast()));
                        alloc::release(array.cast());
                        return Err(e);
                    }
                }
            }
        }
        (*names, *count) = (array, all.len() as c_int);
        Ok(())
    })
}

/// Changes the settings of a column family; comparator and table format are kept.
///
/// # Safety
/// `new_config` is null or points to a valid structure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_cf_update_runtime_config(
    cf: Handle,
    new_config: *const FamilyConfig,
    persist_to_disk: c_int,
) -> c_int {
    call(|| {
        let cf = family(cf)?;
        // SAFETY: guaranteed by the caller.
        let new = unsafe { struct_param(new_config) }?;
        let (engine, _one) = lock_family_changes(&cf.database)?;
        let now = cf.inner.options();
        let wanted =
            config::family_options(new, now.comparator, cf.database.unified_memtable_bytes)?;
        let c = config::merge_runtime_config(&cf.config(), new);
        log_ignored_settings(&cf.name(), &c);
        let wanted = catalog::apply_options(&now, &wanted);
        if wanted != now {
            cf.inner.set_options(wanted)?;
        }
        cf.set_hook(new.commit_hook_fn, new.commit_hook_ctx);
        cf.set_config(c);
        cf.database.update_min_free_space();
        // Stored settings survive a reopen; if storing fails, the new settings apply until the next
        // open.
        if persist_to_disk != 0 {
            catalog::store_settings(engine, &cf.name(), cf.inner.id(), &c)
        } else {
            Ok(())
        }
    })
}

/// Sets the commit hook of a column family; null removes it.
///
/// # Safety
/// `fn_` may be called with `ctx` on any committing thread, until it is removed or the database is
/// closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_cf_set_commit_hook(
    cf: Handle,
    fn_: Option<CommitHookFn>,
    ctx: *mut c_void,
) -> c_int {
    call(|| {
        let cf = family(cf)?;
        cf.set_hook(fn_, ctx);
        cf.set_config(FamilyConfig { commit_hook_fn: fn_, commit_hook_ctx: ctx, ..cf.config() });
        Ok(())
    })
}

/// Reads the settings of a column family from a file.
///
/// # Safety
/// The texts are null or NUL-terminated strings, `config` null or valid for writing a structure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_cf_config_load_from_ini(
    ini_file: *const c_char,
    section_name: *const c_char,
    config: *mut FamilyConfig,
) -> c_int {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let (file, section) = unsafe { (text(ini_file)?, text(section_name)?) };
        if config.is_null() {
            return Err(INVALID_ARGS.with_message("the pointer for the result is null"));
        }
        let mut c = config::DEFAULT_FAMILY_CONFIG;
        let bytes = std::fs::read(file).map_err(|e| IO.with_text(format!("{file}: {e}")))?;
        let all = String::from_utf8(bytes)
            .map_err(|_| CORRUPTION.with_text(format!("{file}: not UTF-8")))?;
        ini::read_section(&all, section, &mut c)?;
        // SAFETY: guaranteed by the caller; the old contents are not read.
        unsafe { config.write(c) };
        Ok(())
    })
}

/// Writes the settings of a column family to a file, replacing its contents.
///
/// # Safety
/// The texts are null or NUL-terminated strings, `config` is null or points to a valid structure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_cf_config_save_to_ini(
    ini_file: *const c_char,
    section_name: *const c_char,
    config: *const FamilyConfig,
) -> c_int {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let (file, section, c) =
            unsafe { (text(ini_file)?, text(section_name)?, struct_param(config)?) };
        let all = ini::write_section(section, c)?;
        replace_file(Path::new(file), &all).map_err(|e| IO.with_text(format!("{file}: {e}")))
    })
}

/// Writes the file atomically: afterwards it has the new or the old contents.
fn replace_file(file: &Path, contents: &str) -> std::io::Result<()> {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let dir = file
        .parent()
        .filter(|d| !d.as_os_str().is_empty())
        .map_or_else(|| PathBuf::from("."), Path::to_owned);
    let new = dir.join(name);
    let mut to = std::fs::File::create(&new)?;
    to.write_all(contents.as_bytes())?;
    to.sync_all()?;
    std::fs::rename(&new, file)?;
    std::fs::File::open(&dir)?.sync_all()
}
