//! Reports of lock waits, locks and deadlocks of all transactions.

use crate::engine::{Engine, Shared, with_engine};
use crate::ffi::Slice;
use crate::status::{Result, Status};
use perigee::LockMode;
use perigee::locks::{Deadlock, LockListener, LockWait};
use std::ffi::{c_char, c_void};
use std::sync::Arc;

/// A wait for a lock, `pgb_lock_wait` in C.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)] // Documented in `bridge.h`.
pub struct LockWaitInfo {
    pub waiting: u64,
    pub blocking: *const u64,
    pub blocking_count: usize,
    pub table: *const c_char,
    pub table_size: usize,
    pub key: Slice,
    pub range_end: Slice,
    pub mode: u32,
    pub waited_us: u64,
}

/// Receives a wait, `pgb_lock_wait_fn` in C.
pub type LockWaitFn = unsafe extern "C" fn(*mut c_void, *const LockWaitInfo);
/// Receives the number of locks of an owner, `pgb_lock_count_fn` in C.
pub type LockCountFn = unsafe extern "C" fn(*mut c_void, u64, u64);
/// Receives a wait that begins, `pgb_wait_began_fn` in C.
pub type WaitBeganFn = unsafe extern "C" fn(u64, *const u64, usize);
/// Receives a deadlock, `pgb_deadlock_fn` in C.
pub type DeadlockFn = unsafe extern "C" fn(*const LockWaitInfo, usize, u64);

fn mode_number(mode: LockMode) -> u32 {
    match mode {
        LockMode::Exclusive => 1,
        LockMode::Gap => 2,
        LockMode::Insert => 3,
        _ => 0,
    }
}

/// Returns a wait in a form for C, which points into `wait` and `table`.
fn wait_info(wait: &LockWait, table: &str) -> LockWaitInfo {
    LockWaitInfo {
        waiting: wait.waiting,
        blocking: wait.blocking.as_ptr(),
        blocking_count: wait.blocking.len(),
        table: table.as_ptr().cast(),
        table_size: table.len(),
        key: Slice::new(&wait.key),
        range_end: wait.range_end.as_deref().map_or(Slice::NULL, Slice::new),
        mode: mode_number(wait.mode),
        waited_us: u64::try_from(wait.waited.as_micros()).unwrap_or(u64::MAX),
    }
}

fn table_name(shared: &Shared, family: &str) -> String {
    let name = shared.registry.table_name(family.to_owned());
    name.ok().flatten().unwrap_or_else(|| family.to_owned())
}

/// Passes waits and deadlocks on to the plugin.
struct PluginListener {
    /// The database outlives its listener's calls.
    shared: std::sync::Weak<Shared>,
    wait_began: WaitBeganFn,
    deadlock: DeadlockFn,
}

impl LockListener for PluginListener {
    fn wait_began(&self, waiting: u64, blocking: &[u64]) {
        // SAFETY: the functions were passed to `pgb_set_lock_listener` for the life of the database.
        unsafe { (self.wait_began)(waiting, blocking.as_ptr(), blocking.len()) };
    }
    fn deadlock_resolved(&self, deadlock: &Deadlock) {
        let Some(shared) = self.shared.upgrade() else { return };
        let names: Vec<String> =
            deadlock.waits.iter().map(|wait| table_name(&shared, &wait.family)).collect();
        let waits: Vec<LockWaitInfo> =
            deadlock.waits.iter().zip(&names).map(|(wait, name)| wait_info(wait, name)).collect();
        // SAFETY: as above; the waits are valid during the call.
        unsafe { (self.deadlock)(waits.as_ptr(), waits.len(), deadlock.victim) };
    }
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_set_lock_listener(
    engine: *mut Engine,
    wait_began: WaitBeganFn,
    deadlock: DeadlockFn,
) -> Status {
    let work = |shared: &Arc<Shared>| {
        let shared_ref = Arc::downgrade(shared);
        let listener = PluginListener { shared: shared_ref, wait_began, deadlock };
        Ok(shared.db.admin().set_lock_listener(Arc::new(listener))?)
    };
    // SAFETY: guaranteed by the caller.
    unsafe { with_engine(engine, work) }
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_lock_waits(
    engine: *mut Engine,
    report: LockWaitFn,
    arg: *mut c_void,
) -> Status {
    let work = |shared: &Arc<Shared>| -> Result<()> {
        for wait in shared.db.admin().lock_waits() {
            let table = table_name(shared, &wait.family);
            let info = wait_info(&wait, &table);
            // SAFETY: guaranteed by the caller; the wait is valid during the call.
            unsafe { report(arg, &raw const info) };
        }
        Ok(())
    };
    // SAFETY: guaranteed by the caller.
    unsafe { with_engine(engine, work) }
}

/// See `bridge.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgb_lock_counts(
    engine: *mut Engine,
    report: LockCountFn,
    arg: *mut c_void,
) -> Status {
    let work = |shared: &Arc<Shared>| {
        for (owner, count) in shared.db.admin().lock_counts() {
            // SAFETY: guaranteed by the caller.
            unsafe { report(arg, owner, count) };
        }
        Ok(())
    };
    // SAFETY: guaranteed by the caller.
    unsafe { with_engine(engine, work) }
}
