//! Objects behind handles: databases and column families. Both are shared by threads.
//!
//! Invariant: a column family's handle is valid as long as the family is in its database's list;
//! closing the database empties the list.

use crate::abi::{CommitHookFn, FamilyConfig, SYNC_NONE};
use crate::code::{Code, INVALID_ARGS, INVALID_DB, Result};
use crate::commit_hook::UserCommitHook;
use crate::comparator::UserComparator;
use crate::{catalog, comparator, config, log};
use perigee::{Db, DirectoryLock, Durability, Error, ErrorKind, KeyComparator, Options};
use perigee_c_boundary::handle::{HandleTable, PinnedValue};
use std::ffi::{c_int, c_void};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

/// Open databases.
pub static DATABASES: HandleTable<Arc<Database>> = HandleTable::new(1);
/// Their column families.
pub static FAMILIES: HandleTable<Arc<Family>> = HandleTable::new(2);

/// A comparator that a program registered with a database.
#[derive(Clone)]
pub struct RegisteredComparator {
    /// Name as registered.
    pub name: String,
    /// The function with its context.
    pub function: UserComparator,
    /// The engine's comparator, once a column family uses it.
    pub comparator: Option<KeyComparator>,
}

/// An open database. If column families have comparators that are not registered yet, the engine is
/// opened once they are.
pub struct Database {
    /// Unique id, never reused.
    pub id: u64,
    /// Database directory.
    pub path: PathBuf,
    engine: OnceLock<Db>,
    /// Set while the engine waits for a comparator.
    waiting_for_comparator: AtomicBool,
    /// Lock of the directory, held while the engine waits for comparators.
    directory_lock: Mutex<DirectoryLock>,
    /// Options for opening the engine.
    options: Mutex<Option<Options>>,
    /// Comparators registered by the program.
    pub comparators: RwLock<Vec<RegisteredComparator>>,
    /// Column families, oldest first.
    pub families: RwLock<Vec<Arc<Family>>>,
    /// Serializes changes of column families.
    pub family_changes: Mutex<()>,
    /// Size of the shared memtable, if configured.
    pub unified_memtable_bytes: Option<usize>,
    /// Minimum durability of every commit.
    pub durability: Durability,
    /// Whether a close waits for compactions.
    pub finish_compactions: bool,
    /// The log file, if configured.
    pub log_path: Option<PathBuf>,
    /// Number of column families with a hook: while it is not 0, new transactions are not spilled.
    pub hook_count: AtomicUsize,
    /// Whether a block cache was configured.
    pub has_block_cache: bool,
    /// Physical memory of the machine, and how much of it was free when the database was opened.
    pub machine_memory: (u64, u64),
}

/// Settings as passed by the program; the pointers in them are only returned.
#[derive(Clone, Copy)]
pub struct StoredConfig(pub FamilyConfig);

// SAFETY: the pointers are never dereferenced.
unsafe impl Send for StoredConfig {}
// SAFETY: as above.
unsafe impl Sync for StoredConfig {}

/// A column family.
pub struct Family {
    /// The database it belongs to.
    pub database: Arc<Database>,
    /// The engine's column family.
    pub inner: perigee::Family,
    name: RwLock<String>,
    stored_config: RwLock<StoredConfig>,
    sync_mode: AtomicI32,
    sync_interval_us: AtomicU64,
    /// Handle of this column family.
    pub handle: OnceLock<usize>,
    hook: Mutex<Option<Arc<UserCommitHook>>>,
    /// Whether a hook is set.
    pub has_hook: AtomicBool,
}

fn clone_locked<T: Clone>(lock: &RwLock<T>) -> T {
    lock.read().unwrap_or_else(PoisonError::into_inner).clone()
}

fn measure_machine_memory() -> (u64, u64) {
    // SAFETY: `sysconf` has no preconditions.
    let [pages, free, size] = [libc::_SC_PHYS_PAGES, libc::_SC_AVPHYS_PAGES, libc::_SC_PAGESIZE]
        .map(|q| unsafe { libc::sysconf(q) });
    let of =
        |n: i64| u64::try_from(n).unwrap_or(0).saturating_mul(u64::try_from(size).unwrap_or(0));
    (of(pages), of(free))
}

impl Database {
    /// Creates a database whose engine is not open yet.
    pub fn new(
        path: PathBuf,
        options: Options,
        c: &crate::abi::Config,
        log: Option<PathBuf>,
    ) -> Result<Database> {
        static IDS: AtomicU64 = AtomicU64::new(1);
        let unified = match c.unified_memtable_write_buffer_size {
            0 => config::DEFAULT_FAMILY_CONFIG.write_buffer_size,
            bytes => bytes,
        };
        Ok(Database {
            id: IDS.fetch_add(1, Relaxed),
            path,
            engine: OnceLock::new(),
            waiting_for_comparator: AtomicBool::new(false),
            directory_lock: Mutex::default(),
            options: Mutex::new(Some(options)),
            comparators: RwLock::default(),
            families: RwLock::default(),
            family_changes: Mutex::default(),
            unified_memtable_bytes: (c.unified_memtable != 0).then_some(unified),
            durability: config::unified_durability(c)?,
            finish_compactions: c.finish_compactions_on_close != 0,
            log_path: log,
            hook_count: AtomicUsize::new(0),
            has_block_cache: c.block_cache_size > 0,
            machine_memory: measure_machine_memory(),
        })
    }

    /// Returns the engine, and opens it if it was waiting for comparators.
    #[inline]
    pub fn engine(self: &Arc<Self>) -> Result<&Db> {
        match self.engine.get() {
            Some(engine) => Ok(engine),
            None => self.open_engine(),
        }
    }

    /// Opens the engine.
    ///
    /// # Errors
    /// `INVALID_ARGS` if a column family's comparator is not registered: the database waits for it.
    /// After any error the next call tries again.
    #[cold]
    pub fn open_engine(self: &Arc<Self>) -> Result<&Db> {
        let mut options = self.options.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(engine) = self.engine.get() {
            return Ok(engine);
        }
        let Some(given) = options.as_mut() else {
            return Err(INVALID_DB.with_message("the database is closed"));
        };
        let mut kept = self.directory_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let engine = loop {
            let e = match kept.open(&self.path, given.clone()) {
                Ok(engine) => break engine,
                Err(e) => e,
            };
            let missing = missing_comparator(&e);
            let known =
                missing.map(|stored| self.resolve_stored_comparator(stored)).transpose()?.flatten();
            match known.filter(|comparator| !given.comparators.contains(comparator)) {
                Some(comparator) => given.comparators.push(comparator),
                None => {
                    self.waiting_for_comparator.store(missing.is_some(), Relaxed);
                    if missing.is_none() {
                        *kept = DirectoryLock::default();
                    }
                    return Err(e.into());
                }
            }
        };
        let listed = catalog::load_families(&engine, self.unified_memtable_bytes).and_then(|all| {
            let made =
                all.into_iter().map(|(inner, name, c)| Arc::new(Family::new(self, inner, name, c)));
            made.map(|family| publish_handle(&family).map(|()| family)).collect::<Result<Vec<_>>>()
        });
        match listed {
            Ok(families) => {
                *self.families.write().unwrap_or_else(PoisonError::into_inner) = families
            }
            Err(e) => {
                let _ = engine.close();
                return Err(e);
            }
        }
        *options = None;
        self.waiting_for_comparator.store(false, Relaxed);
        let engine = self.engine.get_or_init(|| engine);
        self.update_min_free_space();
        Ok(engine)
    }

    /// Returns true if the engine waits for comparators.
    pub fn is_waiting(&self) -> bool {
        self.engine.get().is_none() && self.waiting_for_comparator.load(Relaxed)
    }

    /// Returns the names of the column families, oldest first. While the engine waits for
    /// comparators they are read from the manifest; `default` is then listed only if tables contain
    /// entries of it.
    pub fn family_names(self: &Arc<Self>) -> Result<Vec<String>> {
        match self.engine() {
            Ok(_) => Ok(self.all_families().iter().map(|f| f.name()).collect()),
            Err(_) if self.is_waiting() => {
                let options = self.options.lock().unwrap_or_else(PoisonError::into_inner);
                let env = options.as_ref().map_or_else(perigee::env::Env::real, |o| o.env.clone());
                Ok(catalog::visible_names(&perigee::list_families(&env, &self.path)?))
            }
            Err(e) => Err(e),
        }
    }

    /// Returns the comparator for a stored name, if the program registered it.
    fn resolve_stored_comparator(&self, stored: &str) -> Result<Option<KeyComparator>> {
        let name = comparator::name_from_stored(stored);
        let mut all = self.comparators.write().unwrap_or_else(PoisonError::into_inner);
        let Some(own) = all.iter_mut().find(|r| r.name == name) else { return Ok(None) };
        let comparator = comparator::register(self.id, stored, own.function)?;
        own.comparator = Some(comparator);
        Ok(Some(comparator))
    }

    /// Registers a comparator, and opens the engine if it was waiting for it.
    pub fn register_comparator(self: &Arc<Self>, registered: RegisteredComparator) -> Result<()> {
        {
            let mut all = self.comparators.write().unwrap_or_else(PoisonError::into_inner);
            if all.iter().any(|r| r.name == registered.name) {
                return Err(
                    INVALID_ARGS.with_message("a comparator of that name is already registered")
                );
            }
            all.push(registered);
        }
        match self.engine() {
            Err(_) if self.is_waiting() => {
                log::info(&format!(
                    "still waiting for a comparator: {}",
                    crate::code::last_error()
                ));
                Ok(())
            }
            opened => opened.map(drop),
        }
    }

    /// Returns the comparator of that name.
    pub fn find_comparator(self: &Arc<Self>, comparator: &str) -> Result<KeyComparator> {
        if let Some((comparator, _)) = comparator::built_in_comparator(comparator) {
            return Ok(comparator);
        }
        let engine = self.engine()?;
        let mut all = self.comparators.write().unwrap_or_else(PoisonError::into_inner);
        let Some(own) = all.iter_mut().find(|r| r.name == comparator) else {
            return Err(INVALID_ARGS.with_text(format!(
                "the comparator {comparator:?} is not registered: call \
                 tidesdb_register_comparator first"
            )));
        };
        if let Some(comparator) = own.comparator {
            return Ok(comparator);
        }
        let comparator = comparator::register(
            self.id,
            &comparator::unique_stored_name(comparator),
            own.function,
        )?;
        engine.admin().register_comparator(comparator);
        own.comparator = Some(comparator);
        Ok(comparator)
    }

    /// Returns the column family of that name.
    pub fn family(&self, name: &str) -> Option<Arc<Family>> {
        let families = self.families.read().unwrap_or_else(PoisonError::into_inner);
        families
            .iter()
            .find(|f| *f.name.read().unwrap_or_else(PoisonError::into_inner) == name)
            .cloned()
    }

    /// Returns all column families.
    pub fn all_families(&self) -> Vec<Arc<Family>> {
        clone_locked(&self.families)
    }

    /// Sets the engine's minimum free space to the largest value of all column families.
    pub fn update_min_free_space(&self) {
        let most = self.all_families().iter().map(|f| f.config().min_disk_space).max();
        if let Some(engine) = self.engine.get() {
            engine.admin().set_min_free_space(most.unwrap_or(0));
        }
    }

    /// Closes the database. Handles of its objects return errors from then on.
    pub fn close(&self) -> Result<()> {
        *self.options.lock().unwrap_or_else(PoisonError::into_inner) = None;
        *self.directory_lock.lock().unwrap_or_else(PoisonError::into_inner) =
            DirectoryLock::default();
        let families =
            std::mem::take(&mut *self.families.write().unwrap_or_else(PoisonError::into_inner));
        for family in families {
            family.invalidate();
        }
        let done = self.engine.get().map_or(Ok(()), |engine| {
            // Flush as TidesDB does, so that the next open has nothing to replay and no column
            // family's few entries keep the shared log. Entries that cannot be flushed stay in that
            // log.
            if let Err(e) = engine.admin().flush()
                && e.kind() != perigee::ErrorKind::ReadOnly
            {
                log::warn(&format!(
                    "the memtables could not be flushed and will be replayed from the log at the \
                     next open: {e}"
                ));
            }
            if self.finish_compactions {
                // Compactions that cannot be finished are restarted after the next open.
                let _ = engine.admin().wait_idle();
            }
            engine.close()
        });
        comparator::unregister_owner(self.id);
        if let Some(path) = &self.log_path {
            log::stop_logging_to(path);
        }
        Ok(done?)
    }
}

/// Returns the stored name of the comparator that an open did not find.
fn missing_comparator(e: &perigee::Error) -> Option<&str> {
    e.got_value().filter(|_| e.expected_value() == Some(perigee::REGISTERED_COMPARATOR))
}

/// Creates the handle of a column family.
pub fn publish_handle(family: &Arc<Family>) -> Result<()> {
    let handle = FAMILIES.insert(Arc::clone(family))?;
    let _ = family.handle.set(handle);
    Ok(())
}

impl Family {
    /// Wraps an engine's column family under its C name.
    pub fn new(
        database: &Arc<Database>,
        inner: perigee::Family,
        name: String,
        c: FamilyConfig,
    ) -> Family {
        let family = Family {
            database: Arc::clone(database),
            inner,
            name: RwLock::new(name),
            stored_config: RwLock::new(StoredConfig(c)),
            sync_mode: AtomicI32::new(SYNC_NONE),
            sync_interval_us: AtomicU64::new(0),
            handle: OnceLock::new(),
            hook: Mutex::default(),
            has_hook: AtomicBool::new(false),
        };
        family.set_config(c);
        family
    }
    /// Returns the name.
    pub fn name(&self) -> String {
        clone_locked(&self.name)
    }
    /// Changes the name.
    pub fn rename(&self, name: &str) {
        name.clone_into(&mut self.name.write().unwrap_or_else(PoisonError::into_inner));
    }
    /// Returns the settings, with the current name.
    pub fn config(&self) -> FamilyConfig {
        let mut c = self.stored_config.read().unwrap_or_else(PoisonError::into_inner).0;
        // The name was checked when it was set.
        let _ = crate::ffi::set_field(&mut c.name, &self.name());
        c
    }
    /// Replaces the settings.
    pub fn set_config(&self, c: FamilyConfig) {
        self.sync_interval_us.store(c.sync_interval_us, Relaxed);
        self.sync_mode.store(c.sync_mode, Relaxed);
        self.stored_config.write().unwrap_or_else(PoisonError::into_inner).0 = c;
    }
    /// Returns the durability of commits to this column family.
    #[inline]
    pub fn durability(&self) -> Durability {
        let own: c_int = self.sync_mode.load(Relaxed);
        let own = if own == SYNC_NONE {
            Durability::None
        } else {
            config::durability_from_c(own, self.sync_interval_us.load(Relaxed))
                .unwrap_or(Durability::Full)
        };
        config::stronger_durability(own, self.database.durability)
    }
    /// Sets or removes the commit hook. When this returns, the previous hook is not running.
    pub fn set_hook(&self, call: Option<CommitHookFn>, context: *mut c_void) {
        let hook = call.map(|call| Arc::new(UserCommitHook::new(call, context)));
        let before = {
            let mut now = self.hook.lock().unwrap_or_else(PoisonError::into_inner);
            match &hook {
                Some(hook) => {
                    let hook = Arc::clone(hook);
                    self.inner.on_commit(move |event| hook.notify(event));
                }
                None => self.inner.clear_commit_hook(),
            }
            match (self.has_hook.swap(hook.is_some(), Relaxed), hook.is_some()) {
                (false, true) => drop(self.database.hook_count.fetch_add(1, Relaxed)),
                (true, false) => drop(self.database.hook_count.fetch_sub(1, Relaxed)),
                _ => {}
            }
            std::mem::replace(&mut *now, hook)
        };
        if let Some(before) = before {
            before.disable();
        }
    }
    /// Invalidates the handle.
    pub fn invalidate(&self) {
        if let Some(handle) = self.handle.get() {
            drop(FAMILIES.remove(*handle));
        }
        self.set_hook(None, std::ptr::null_mut());
    }
}

/// Returns the database of a handle.
#[inline]
pub fn database(handle: crate::abi::Handle) -> Result<PinnedValue<'static, Arc<Database>>> {
    if handle.is_null() {
        return Err(INVALID_ARGS.with_message("the database handle is null"));
    }
    DATABASES.pin(handle as usize).map_err(database_closed)
}

/// Returns the error for an invalid database handle; in a forked child its specific cause is kept.
pub fn database_closed(why: Error) -> Code {
    if why.kind() == ErrorKind::Closed {
        return why.into();
    }
    INVALID_DB.with_message("the database is already closed, or the handle is not a database")
}

/// Returns the column family of a handle.
#[inline]
pub fn family(handle: crate::abi::Handle) -> Result<Arc<Family>> {
    Ok(FAMILIES.pin(handle as usize).map(|f| Arc::clone(&f))?)
}
