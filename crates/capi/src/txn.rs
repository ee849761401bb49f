//! Transactions: used by one thread at a time. A finished transaction returns errors until it is
//! reset.

use crate::abi::{Handle, READ_COMMITTED};
use crate::code::{BUSY, CONFLICT, Code, INVALID_ARGS, NOT_FOUND, Result, key_not_found};
use crate::ffi::{bytes, call, key, out_param, text};
use crate::state::{Database, FAMILIES, Family, database};
use crate::{alloc, config};
use perigee::{Durability, Isolation, Slice, TxnOptions, limits};
use perigee_c_boundary::handle::HandleTable;
use std::ffi::{c_char, c_int};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Transactions that were begun and not freed.
pub static TXNS: HandleTable<Box<Txn>> = HandleTable::new(3);

#[derive(Clone, Copy, PartialEq, Eq)]
enum TxnState {
    Active,
    Committed,
    RolledBack,
    /// The commit was refused.
    Failed(Code),
}

/// A transaction.
pub struct Txn {
    database: Arc<Database>,
    inner: perigee::Txn,
    isolation: Isolation,
    /// Whether it was begun while a column family had a hook.
    began_with_hook: bool,
    /// Options it was begun with.
    options: TxnOptions,
    state: TxnState,
    /// Strongest durability of the column families it wrote to.
    durability: Durability,
    /// Column families by handle, so that each is resolved once.
    families: Vec<(usize, Arc<Family>)>,
    /// Names of savepoints and the engine's ids for them.
    savepoints: Vec<(String, u64)>,
    next_savepoint: u64,
}

impl Txn {
    /// Begins a transaction.
    pub fn begin(
        database: &Arc<Database>,
        isolation: Isolation,
        options: TxnOptions,
    ) -> Result<Box<Txn>> {
        let kept = options.isolation(isolation);
        // A hook receives operations, which a spilled transaction does not keep.
        let hooked = database.hook_count.load(Relaxed) > 0;
        let options = if hooked { kept.clone().spill_bytes(u64::MAX) } else { kept.clone() };
        Ok(Box::new(Txn {
            inner: database.engine()?.begin(options)?,
            database: Arc::clone(database),
            isolation,
            began_with_hook: hooked,
            options: kept,
            state: TxnState::Active,
            durability: database.durability,
            families: Vec::new(),
            savepoints: Vec::new(),
            next_savepoint: 0,
        }))
    }

    /// Returns the index of a column family in the list.
    #[inline]
    fn family_index(&mut self, cf: Handle) -> Result<usize> {
        let cf = cf as usize;
        if let Some(i) = self.families.iter().position(|(h, _)| *h == cf)
            && FAMILIES.is_valid(cf)
        {
            return Ok(i);
        }
        let family = Arc::clone(&*FAMILIES.pin(cf)?);
        if !Arc::ptr_eq(&family.database, &self.database) {
            return Err(INVALID_ARGS.with_message(
                "the column family belongs to another database than the transaction",
            ));
        }
        self.families.push((cf, family));
        Ok(self.families.len() - 1)
    }

    fn check_active(&self) -> Result<()> {
        match self.state {
            TxnState::Active => Ok(()),
            TxnState::Failed(CONFLICT) => Err(CONFLICT.with_message(
                "the transaction conflicts with another one: roll it back or reset it",
            )),
            _ => {
                Err(INVALID_ARGS
                    .with_message("the transaction has ended: reset it or begin another"))
            }
        }
    }

    /// Writes to a column family.
    #[inline]
    pub fn write(
        &mut self,
        cf: Handle,
        write: impl FnOnce(&perigee::Txn, &perigee::Family) -> perigee::Result<()>,
    ) -> Result<()> {
        self.check_active()?;
        let at = self.family_index(cf)?;
        let family = &self.families[at].1;
        write(&self.inner, &family.inner)?;
        self.durability = config::stronger_durability(self.durability, family.durability());
        Ok(())
    }

    /// Returns true if a commit hook may need the operations of the transaction, which are then kept
    /// in memory.
    pub fn needs_operations(&self) -> bool {
        self.began_with_hook || self.database.hook_count.load(Relaxed) > 0
    }
    /// Reads from a column family.
    #[inline]
    pub fn read<T>(
        &mut self,
        cf: Handle,
        read: impl FnOnce(&perigee::Txn, &perigee::Family) -> perigee::Result<T>,
    ) -> Result<T> {
        self.check_active()?;
        let at = self.family_index(cf)?;
        Ok(read(&self.inner, &self.families[at].1.inner)?)
    }

    /// Commits. Returns the sequence number of the last operation.
    pub fn commit(&mut self) -> Result<u64> {
        self.check_active()?;
        self.savepoints.clear();
        match self.inner.commit_in_place(Some(self.durability)) {
            Ok(seq) => {
                self.state = TxnState::Committed;
                Ok(seq)
            }
            Err(e) => {
                // No operation was applied. `BUSY` would suggest to retry the same commit, so it is
                // returned as a conflict.
                let code = Some(Code::from(e)).filter(|c| *c != BUSY).unwrap_or(CONFLICT);
                self.state = TxnState::Failed(code);
                Err(code)
            }
        }
    }

    /// Prepares the transaction: makes it durable without a decision. It then belongs to the
    /// database.
    pub fn prepare(&mut self, gid: &[u8]) -> Result<()> {
        self.check_active()?;
        self.inner.prepare(gid)?;
        self.savepoints.clear();
        self.state = TxnState::Committed;
        Ok(())
    }

    fn roll_back(&mut self) -> Result<()> {
        match self.state {
            TxnState::Committed => {
                return Err(INVALID_ARGS.with_message("the transaction is already committed"));
            }
            TxnState::Active => self.inner.rollback_in_place(),
            _ => {}
        }
        self.savepoints.clear();
        self.state = TxnState::RolledBack;
        Ok(())
    }

    fn reset(&mut self, isolation: Isolation) -> Result<()> {
        if self.state == TxnState::Active {
            return Err(INVALID_ARGS
                .with_message("the transaction is still active: commit it or roll it back"));
        }
        self.families.retain(|(h, _)| FAMILIES.is_valid(*h));
        if isolation == self.isolation
            && self.began_with_hook == (self.database.hook_count.load(Relaxed) > 0)
        {
            self.inner.reset()?;
        } else {
            let next = Txn::begin(&self.database, isolation, self.options.clone())?;
            let families = std::mem::take(&mut self.families);
            *self = Txn { families, ..*next };
        }
        self.state = TxnState::Active;
        self.durability = self.database.durability;
        self.savepoints.clear();
        Ok(())
    }

    fn savepoint(&mut self, name: &str) -> Result<()> {
        self.check_active()?;
        let id = self.next_savepoint;
        self.inner.savepoint(id.to_string())?;
        self.next_savepoint += 1;
        match self.savepoints.iter_mut().find(|(n, _)| n == name) {
            // A moved savepoint keeps its position in the list, as in TidesDB.
            Some((_, at)) => *at = id,
            None => self.savepoints.push((name.to_owned(), id)),
        }
        Ok(())
    }

    fn find_savepoint(&self, name: &str) -> Result<usize> {
        self.check_active()?;
        let found = self.savepoints.iter().position(|(n, _)| n == name);
        found.ok_or_else(|| NOT_FOUND.with_text(format!("the savepoint {name:?} does not exist")))
    }

    fn roll_back_to(&mut self, name: &str) -> Result<()> {
        let at = self.find_savepoint(name)?;
        let id = self.savepoints[at].1;
        self.inner.rollback_to(id.to_string())?;
        // The savepoint itself is removed, as in TidesDB.
        self.inner.release_savepoint(id.to_string())?;
        self.savepoints.truncate(at);
        self.savepoints.retain(|(_, other)| *other < id);
        Ok(())
    }

    fn release(&mut self, name: &str) -> Result<()> {
        let at = self.find_savepoint(name)?;
        let (_, id) = self.savepoints.remove(at);
        // The engine's release also removes later savepoints: so only the last one is released
        // there; keeping the others costs nothing.
        if self.savepoints.iter().all(|(_, other)| *other < id) {
            self.inner.release_savepoint(id.to_string())?;
        }
        Ok(())
    }
}

/// Begins a transaction.
///
/// # Safety
/// `txn` is null or valid for writing a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_txn_begin(db: Handle, txn: *mut Handle) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { tidesdb_txn_begin_with_isolation(db, READ_COMMITTED, txn) }
}

/// Begins a transaction at an isolation level.
///
/// # Safety
/// `txn` is null or valid for writing a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_txn_begin_with_isolation(
    db: Handle,
    isolation: c_int,
    txn: *mut Handle,
) -> c_int {
    call(|| {
        let db = database(db)?;
        // SAFETY: guaranteed by the caller.
        let place = unsafe { out_param(txn) }?;
        *place = null_mut();
        *place =
            TXNS.insert(Txn::begin(&db, config::isolation_from_c(isolation)?, TxnOptions::new())?)?
                as Handle;
        Ok(())
    })
}

/// Puts a value with an expiry in C's format.
#[inline]
pub fn put_until(
    t: &perigee::Txn,
    f: &perigee::Family,
    key: &[u8],
    value: &[u8],
    ttl: libc::time_t,
) -> perigee::Result<()> {
    match ttl {
        ..=0 => t.put(f, key, value),
        _ => t.put_until(f, key, value, ttl.cast_unsigned().saturating_mul(1000)),
    }
}

/// Sets a key to a value. `ttl` is the expiry in seconds since 1970; 0 or less: never.
///
/// # Safety
/// Key and value are null or valid for the given sizes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_txn_put(
    txn: Handle,
    cf: Handle,
    key_: *const u8,
    key_size: usize,
    value: *const u8,
    value_size: usize,
    ttl: libc::time_t,
) -> c_int {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let (key, value) =
            unsafe { (key(key_, key_size)?, bytes(value, value_size, limits::VALUE_BYTES_MAX)?) };
        TXNS.lock(txn as usize)?.write(cf, |t, f| put_until(t, f, key, value, ttl))
    })
}

/// Reads a key into memory for C.
///
/// # Safety
/// The key is null or valid for the given size; the others are null or valid for writing the
/// results.
#[inline]
pub unsafe fn get(
    txn: Handle,
    cf: Handle,
    key_: *const u8,
    key_size: usize,
    value: *mut *mut u8,
    value_size: *mut usize,
    read: impl FnOnce(&perigee::Txn, &perigee::Family, &[u8]) -> perigee::Result<Option<Slice>>,
) -> c_int {
    call(|| {
        // SAFETY: the caller passes on the guarantees of its own caller.
        let (key, place, size) =
            unsafe { (key(key_, key_size)?, out_param(value)?, out_param(value_size)?) };
        let mut txn = TXNS.lock(txn as usize)?;
        let found = txn.read(cf, |t, f| read(t, f, key))?.ok_or_else(key_not_found)?;
        *place = alloc::copy_bytes(&found)?;
        *size = found.len();
        Ok(())
    })
}

/// Returns the value of a key, to be freed by the caller.
///
/// # Safety
/// The key is null or valid for the given size; the others are null or valid for writing the
/// results.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_txn_get(
    txn: Handle,
    cf: Handle,
    key: *const u8,
    key_size: usize,
    value: *mut *mut u8,
    value_size: *mut usize,
) -> c_int {
    // SAFETY: the caller's guarantees are passed on.
    unsafe { get(txn, cf, key, key_size, value, value_size, |t, f, key| t.get_pinned(f, key)) }
}

/// Like [`tidesdb_txn_get`], but the read is not validated at commit.
///
/// # Safety
/// As [`tidesdb_txn_get`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_txn_get_notrack(
    txn: Handle,
    cf: Handle,
    key: *const u8,
    key_size: usize,
    value: *mut *mut u8,
    value_size: *mut usize,
) -> c_int {
    // SAFETY: the caller's guarantees are passed on.
    unsafe { get(txn, cf, key, key_size, value, value_size, |t, f, key| t.get_untracked(f, key)) }
}

/// Returns whether a key exists; the read is not validated at commit.
///
/// # Safety
/// The key is null or valid for the given size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_txn_contains(
    txn: Handle,
    cf: Handle,
    key_: *const u8,
    key_size: usize,
) -> c_int {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let key = unsafe { key(key_, key_size) }?;
        let mut txn = TXNS.lock(txn as usize)?;
        let there = txn.read(cf, |t, f| t.contains_untracked(f, key))?;
        if there { Ok(()) } else { Err(key_not_found()) }
    })
}

/// Deletes a key.
///
/// # Safety
/// The key is null or valid for the given size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_txn_delete(
    txn: Handle,
    cf: Handle,
    key_: *const u8,
    key_size: usize,
) -> c_int {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let key = unsafe { key(key_, key_size) }?;
        TXNS.lock(txn as usize)?.write(cf, |t, f| t.delete(f, key))
    })
}

/// Deletes a key that was put at most once since its last delete.
///
/// # Safety
/// The key is null or valid for the given size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_txn_single_delete(
    txn: Handle,
    cf: Handle,
    key_: *const u8,
    key_size: usize,
) -> c_int {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let key = unsafe { key(key_, key_size) }?;
        TXNS.lock(txn as usize)?.write(cf, |t, f| t.single_delete(f, key))
    })
}

/// Commits a transaction.
#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_txn_commit(txn: Handle) -> c_int {
    call(|| TXNS.lock(txn as usize)?.commit().map(drop))
}

/// Rolls a transaction back.
#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_txn_rollback(txn: Handle) -> c_int {
    call(|| TXNS.lock(txn as usize)?.roll_back())
}

/// Restarts a finished transaction on the current state.
#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_txn_reset(txn: Handle, isolation: c_int) -> c_int {
    call(|| {
        let mut txn = TXNS.lock(txn as usize)?;
        txn.reset(config::isolation_from_c(isolation)?)
    })
}

/// Frees a transaction; an active one is rolled back.
#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_txn_free(txn: Handle) {
    call(|| Ok(TXNS.remove(txn as usize).map(drop)?));
}

/// Sets a savepoint; an existing one of that name is moved.
///
/// # Safety
/// `name` is null or a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_txn_savepoint(txn: Handle, name: *const c_char) -> c_int {
    // SAFETY: guaranteed by the caller.
    call(|| TXNS.lock(txn as usize)?.savepoint(unsafe { text(name) }?))
}

/// Rolls back to a savepoint and removes it.
///
/// # Safety
/// `name` is null or a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_txn_rollback_to_savepoint(
    txn: Handle,
    name: *const c_char,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    call(|| TXNS.lock(txn as usize)?.roll_back_to(unsafe { text(name) }?))
}

/// Removes a savepoint and keeps the writes.
///
/// # Safety
/// `name` is null or a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_txn_release_savepoint(txn: Handle, name: *const c_char) -> c_int {
    // SAFETY: guaranteed by the caller.
    call(|| TXNS.lock(txn as usize)?.release(unsafe { text(name) }?))
}
