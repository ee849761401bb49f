//! The calls about families: make, drop, rename, clone, list, configure.

use crate::abi::*;
use crate::border::{call, given, out, text, value};
use crate::code::{CORRUPTION, EXISTS, INVALID_ARGS, IO, NOT_FOUND, Result};
use crate::state::{Database, Family, announce, database, family};
use crate::{alloc, catalog, config, ini, log};
use perigee::{Db, FamilyOptions};
use std::ffi::{c_char, c_int, c_void};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::sync::{Arc, MutexGuard, PoisonError};

/// Changes of families are made one after the other.
fn changing(db: &Arc<Database>) -> Result<(&Db, MutexGuard<'_, ()>)> {
    let engine = db.engine()?;
    Ok((engine, db.changing.lock().unwrap_or_else(PoisonError::into_inner)))
}

fn missing(name: &str) -> crate::code::Code {
    NOT_FOUND.with(format!("there is no column family {name:?}"))
}

fn exists(name: &str) -> crate::code::Code {
    EXISTS.with(format!("there is a column family {name:?} already"))
}

fn tell_of(name: &str, c: &FamilyConfig) {
    let notes = config::notes(c);
    if !notes.is_empty() {
        let all = notes.join(", ");
        log::info(&format!("family {name:?}: kept and reported, without effect on this engine: {all}"));
    }
}

/// Takes a family that exists in the engine into the list.
fn enlist(db: &Arc<Database>, inner: perigee::Family, name: &str, c: FamilyConfig) -> Result<Arc<Family>> {
    let family = Arc::new(Family::new(db, inner, name.to_owned(), c));
    announce(&family)?;
    db.families.write().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&family));
    db.keep_free();
    Ok(family)
}

fn create(db: &Arc<Database>, name: &str, given: &FamilyConfig) -> Result<()> {
    catalog::check_name(name)?;
    let comparator = config::comparator(given)?;
    if db.unified.is_some() && !comparator.is_empty() && comparator != "memcmp" {
        return Err(INVALID_ARGS.because(
            "comparator_name: one memtable for all families (unified_memtable) has one order, memcmp",
        ));
    }
    let options: FamilyOptions = config::family_options(given, db.order(&comparator)?, db.unified)?;
    let (engine, _one) = changing(db)?;
    if db.family(name).is_some() {
        return Err(exists(name));
    }
    tell_of(name, given);
    let kept = FamilyConfig { comparator_fn_cached: null_mut(), comparator_ctx_cached: null_mut(), ..*given };
    ini::write(name, &kept)?; // Settings that cannot be stored are refused before anything is made.
    let made = engine.create_family(&catalog::inside(name), options)?;
    catalog::store(engine, name, made.id(), &kept)?;
    let family = enlist(db, made, name, kept)?;
    if given.commit_hook_fn.is_some() {
        family.set_hook(given.commit_hook_fn, given.commit_hook_ctx);
    }
    Ok(())
}

/// Makes a family.
///
/// # Safety
/// `name` is null or text, `config` null or a whole structure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_create_column_family(
    db: Handle,
    name: *const c_char,
    config: *const FamilyConfig,
) -> c_int {
    call(|| {
        let db = database(db)?;
        // SAFETY: says the caller.
        unsafe { create(&db, text(name)?, given(config)?) }
    })
}

/// Takes a family out of the list, and away.
fn remove(db: &Arc<Database>, engine: &Db, family: &Arc<Family>) -> Result<()> {
    let name = family.name();
    let inside = family.inner.name();
    if inside == "default" {
        // The engine's own cannot go; empty it is not seen.
        engine.clear_family(&inside)?;
    } else {
        engine.drop_family(&inside)?;
    }
    db.families.write().unwrap_or_else(PoisonError::into_inner).retain(|f| !Arc::ptr_eq(f, family));
    family.retire();
    db.keep_free();
    catalog::forget(engine, &name)
}

/// Drops a family with all that is in it.
///
/// # Safety
/// `name` is null or text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_drop_column_family(db: Handle, name: *const c_char) -> c_int {
    call(|| {
        let db = database(db)?;
        // SAFETY: says the caller.
        let name = unsafe { text(name) }?;
        let (engine, _one) = changing(&db)?;
        remove(&db, engine, &db.family(name).ok_or_else(|| missing(name))?)
    })
}

/// Drops a family with all that is in it.
#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_delete_column_family(db: Handle, cf: Handle) -> c_int {
    call(|| {
        let (db, cf) = (database(db)?, family(cf)?);
        if !Arc::ptr_eq(&db, &cf.database) {
            return Err(INVALID_ARGS.because("the column family is of another database"));
        }
        let (engine, _one) = changing(&db)?;
        if !db.all().iter().any(|f| Arc::ptr_eq(f, &cf)) {
            return Err(missing(&cf.name()));
        }
        remove(&db, engine, &cf)
    })
}

/// Gives a family another name; its handle stays.
///
/// # Safety
/// The names are null or text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_rename_column_family(
    db: Handle,
    old_name: *const c_char,
    new_name: *const c_char,
) -> c_int {
    call(|| {
        let db = database(db)?;
        // SAFETY: says the caller.
        let (old, new) = unsafe { (text(old_name)?, text(new_name)?) };
        catalog::check_name(new)?;
        let (engine, _one) = changing(&db)?;
        let family = db.family(old).ok_or_else(|| missing(old))?;
        if old == new {
            return Ok(());
        }
        if db.family(new).is_some() {
            return Err(exists(new));
        }
        let inside = family.inner.name();
        if inside == "default" {
            return Err(
                INVALID_ARGS.because("the family \"default\" that was written from Rust keeps its name")
            );
        }
        catalog::store(engine, new, family.inner.id(), &family.config())?;
        engine.rename_family(&inside, &catalog::inside(new))?;
        family.rename(new);
        catalog::forget(engine, old)
    })
}

/// Makes a second family with the same entries and settings.
///
/// # Safety
/// The names are null or text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_clone_column_family(
    db: Handle,
    src_name: *const c_char,
    dst_name: *const c_char,
) -> c_int {
    call(|| {
        let db = database(db)?;
        // SAFETY: says the caller.
        let (from, to) = unsafe { (text(src_name)?, text(dst_name)?) };
        catalog::check_name(to)?;
        if from == to {
            return Err(INVALID_ARGS.because("source and clone need different names"));
        }
        let (engine, _one) = changing(&db)?;
        let source = db.family(from).ok_or_else(|| missing(from))?;
        if db.family(to).is_some() {
            return Err(exists(to));
        }
        let c = FamilyConfig { commit_hook_fn: None, commit_hook_ctx: null_mut(), ..source.config() };
        let made = engine.clone_family(&source.inner.name(), &catalog::inside(to))?;
        catalog::store(engine, to, made.id(), &c)?;
        enlist(&db, made, to, c).map(drop)
    })
}

/// The family of that name; null if there is none.
///
/// # Safety
/// `name` is null or text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_get_column_family(db: Handle, name: *const c_char) -> Handle {
    value(null_mut(), || {
        let db = database(db)?;
        // SAFETY: says the caller.
        let name = unsafe { text(name) }?;
        if let Err(e) = db.engine() {
            log::error(&crate::code::last_error());
            return Err(e);
        }
        let family = db.family(name).ok_or_else(|| missing(name))?;
        Ok(family.handle.get().map_or(null_mut(), |h| *h as Handle))
    })
}

/// The names of all families: an array and its texts, each to be given back.
///
/// # Safety
/// `names` and `count` are null or places for answers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_list_column_families(
    db: Handle,
    names: *mut *mut *mut c_char,
    count: *mut c_int,
) -> c_int {
    call(|| {
        let db = database(db)?;
        // SAFETY: says the caller.
        let (names, count) = unsafe { (out(names)?, out(count)?) };
        let all = db.names()?;
        (*names, *count) = (null_mut(), 0);
        if all.is_empty() {
            return Ok(());
        }
        let array = alloc::take(all.len() * size_of::<*mut c_char>())?.cast::<*mut c_char>();
        for (i, family) in all.iter().enumerate() {
            let name = alloc::copy_text(family);
            // SAFETY: the array has a place for each; what was made before is given back if memory ends.
            unsafe {
                match name {
                    Ok(name) => array.add(i).write(name.cast()),
                    Err(e) => {
                        (0..i).for_each(|j| alloc::give_back(array.add(j).read().cast()));
                        alloc::give_back(array.cast());
                        return Err(e);
                    }
                }
            }
        }
        (*names, *count) = (array, all.len() as c_int);
        Ok(())
    })
}

/// Gives a family other settings; the order of keys and the form of tables stay.
///
/// # Safety
/// `new_config` is null or a whole structure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_cf_update_runtime_config(
    cf: Handle,
    new_config: *const FamilyConfig,
    persist_to_disk: c_int,
) -> c_int {
    call(|| {
        let cf = family(cf)?;
        // SAFETY: says the caller.
        let new = unsafe { given(new_config) }?;
        let (engine, _one) = changing(&cf.database)?;
        let now = cf.inner.options();
        let wanted = config::family_options(new, now.order, cf.database.unified)?;
        let c = config::updated(&cf.config(), new);
        tell_of(&cf.name(), &c);
        let wanted = catalog::applied(&now, &wanted);
        if wanted != now {
            cf.inner.set_options(wanted)?;
        }
        cf.set_hook(new.commit_hook_fn, new.commit_hook_ctx);
        cf.set_config(c);
        cf.database.keep_free();
        // What is stored holds after the next open, what is not until then.
        if persist_to_disk != 0 { catalog::store(engine, &cf.name(), cf.inner.id(), &c) } else { Ok(()) }
    })
}

/// Sets the commit hook of a family; null takes it away.
///
/// # Safety
/// `fn_` may be called with `ctx` on any thread that commits, until it is taken away or the database is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_cf_set_commit_hook(
    cf: Handle,
    fn_: Option<CommitHook>,
    ctx: *mut c_void,
) -> c_int {
    call(|| {
        let cf = family(cf)?;
        cf.set_hook(fn_, ctx);
        cf.set_config(FamilyConfig { commit_hook_fn: fn_, commit_hook_ctx: ctx, ..cf.config() });
        Ok(())
    })
}

/// Reads settings of a family from a file.
///
/// # Safety
/// The texts are null or text, `config` null or a place for a structure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_cf_config_load_from_ini(
    ini_file: *const c_char,
    section_name: *const c_char,
    config: *mut FamilyConfig,
) -> c_int {
    call(|| {
        // SAFETY: says the caller.
        let (file, section) = unsafe { (text(ini_file)?, text(section_name)?) };
        if config.is_null() {
            return Err(INVALID_ARGS.because("a null pointer where an answer is to be put"));
        }
        let mut c = config::FAMILY;
        let bytes = std::fs::read(file).map_err(|e| IO.with(format!("{file}: {e}")))?;
        let all = String::from_utf8(bytes).map_err(|_| CORRUPTION.with(format!("{file}: not text")))?;
        ini::read(&all, section, &mut c)?;
        // SAFETY: says the caller; what was there is not read.
        unsafe { config.write(c) };
        Ok(())
    })
}

/// Writes settings of a family into a file, whose contents they become.
///
/// # Safety
/// The texts are null or text, `config` null or a whole structure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_cf_config_save_to_ini(
    ini_file: *const c_char,
    section_name: *const c_char,
    config: *const FamilyConfig,
) -> c_int {
    call(|| {
        // SAFETY: says the caller.
        let (file, section, c) = unsafe { (text(ini_file)?, text(section_name)?, given(config)?) };
        let all = ini::write(section, c)?;
        replace(Path::new(file), &all).map_err(|e| IO.with(format!("{file}: {e}")))
    })
}

/// The whole file or the one before.
fn replace(file: &Path, contents: &str) -> std::io::Result<()> {
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
