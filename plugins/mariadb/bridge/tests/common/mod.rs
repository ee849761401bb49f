//! Safe wrappers of the C functions for tests: objects are released when they are dropped.
#![allow(unsafe_code)] // The functions under test are C functions.
#![allow(dead_code)] // Each test file uses a part.
#![allow(clippy::unwrap_used)] // Test code.

use perigee_mariadb_bridge::engine::*;
use perigee_mariadb_bridge::ffi::Slice;
use perigee_mariadb_bridge::levels::*;
use perigee_mariadb_bridge::load::*;
use perigee_mariadb_bridge::locks::*;
use perigee_mariadb_bridge::read::*;
use perigee_mariadb_bridge::report::*;
use perigee_mariadb_bridge::status::{self, Status};
use perigee_mariadb_bridge::table::*;
use perigee_mariadb_bridge::two_phase::*;
use perigee_mariadb_bridge::txn::*;
use std::ffi::{CString, c_char, c_void};
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};

pub const SHARED: u32 = 0;
pub const EXCLUSIVE: u32 = 1;
pub const GAP: u32 = 2;
pub const INSERT: u32 = 3;

/// Result of a call: the message of the last error is part of a failed unwrap.
pub type Result<T> = std::result::Result<T, Status>;

fn check(status: Status) -> Result<()> {
    if status == Status::OK {
        return Ok(());
    }
    // Kept by the test harness for a test that fails.
    println!("status {}: {}", status.0, status::last_error());
    Err(status)
}

/// A directory that is deleted when it is dropped.
pub struct TempDir(PathBuf);

impl TempDir {
    pub fn new() -> TempDir {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("perigee-bridge-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        TempDir(path)
    }
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A database. Its objects must be dropped before it.
pub struct Db(*mut Engine);

// SAFETY: a database, its tables and snapshots are used by all threads.
unsafe impl Send for Db {}
// SAFETY: see above.
unsafe impl Sync for Db {}

extern "C" fn collect_text(arg: *mut c_void, text: *const c_char, size: usize) {
    // SAFETY: `arg` is the vector of the caller, `text` has `size` bytes.
    let (all, text) =
        unsafe { (&mut *arg.cast::<Vec<String>>(), Slice { data: text.cast(), size }.bytes()) };
    all.push(String::from_utf8(text.to_vec()).unwrap());
}

extern "C" fn collect_bytes(arg: *mut c_void, data: *const u8, size: usize) {
    // SAFETY: `arg` is the vector of the caller, `data` has `size` bytes.
    let (all, bytes) = unsafe { (&mut *arg.cast::<Vec<Vec<u8>>>(), Slice { data, size }.bytes()) };
    all.push(bytes.to_vec());
}

fn text_of(slice: Slice) -> String {
    // SAFETY: what a report passes is valid during the call.
    String::from_utf8(unsafe { slice.bytes() }.to_vec()).unwrap()
}

extern "C" fn collect_level(arg: *mut c_void, level: *const LevelStats) {
    // SAFETY: `arg` is the vector of the caller, `level` a record.
    let (all, l) = unsafe { (&mut *arg.cast::<Vec<(String, u32, u64)>>(), &*level) };
    all.push((text_of(l.table), l.level, l.entries));
}

extern "C" fn collect_job(arg: *mut c_void, job: *const JobRecord) {
    // SAFETY: `arg` is the vector of the caller, `job` a record.
    let (all, j) = unsafe { (&mut *arg.cast::<Vec<[String; 4]>>(), &*job) };
    all.push([text_of(j.kind), text_of(j.table), text_of(j.state), text_of(j.input_levels)]);
}

extern "C" fn collect_option(arg: *mut c_void, option: *const TableOption) {
    // SAFETY: `arg` is the vector of the caller, `option` a record.
    let (all, o) = unsafe { (&mut *arg.cast::<Vec<[String; 4]>>(), &*option) };
    all.push([text_of(o.table), text_of(o.family), text_of(o.name), text_of(o.value)]);
}

extern "C" fn collect_counter(arg: *mut c_void, name: *const c_char, value: u64) {
    // SAFETY: `arg` is the vector of the caller, `name` a string.
    let (all, name) =
        unsafe { (&mut *arg.cast::<Vec<(String, u64)>>(), std::ffi::CStr::from_ptr(name)) };
    all.push((name.to_str().unwrap().to_owned(), value));
}

/// A lock wait: who waits, for whom, table, key, end of the range, mode.
pub type LockWait = (u64, Vec<u64>, String, Vec<u8>, Option<Vec<u8>>, u32);

/// Copies a lock wait.
///
/// # Safety
/// `wait` is a wait that the bridge reports.
pub unsafe fn copy_lock_wait(wait: &LockWaitInfo) -> LockWait {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let blocking = std::slice::from_raw_parts(wait.blocking, wait.blocking_count).to_vec();
        let table = Slice { data: wait.table.cast(), size: wait.table_size }.bytes().to_vec();
        let end = (!wait.range_end.data.is_null()).then(|| wait.range_end.bytes().to_vec());
        let (table, key) = (String::from_utf8(table).unwrap(), wait.key.bytes().to_vec());
        (wait.waiting, blocking, table, key, end, wait.mode)
    }
}

extern "C" fn collect_lock_wait(arg: *mut c_void, wait: *const LockWaitInfo) {
    // SAFETY: `arg` is the vector of the caller, `wait` is valid.
    unsafe { (*arg.cast::<Vec<LockWait>>()).push(copy_lock_wait(&*wait)) }
}

extern "C" fn collect_lock_count(arg: *mut c_void, owner: u64, count: u64) {
    // SAFETY: `arg` is the vector of the caller.
    unsafe { (*arg.cast::<Vec<(u64, u64)>>()).push((owner, count)) }
}

impl Db {
    pub fn lock_waits(&self) -> Vec<LockWait> {
        let mut all: Vec<LockWait> = Vec::new();
        // SAFETY: the database is open, and the vector outlives the call.
        check(unsafe { pgb_lock_waits(self.0, collect_lock_wait, (&raw mut all).cast()) }).unwrap();
        all
    }
    pub fn lock_counts(&self) -> Vec<(u64, u64)> {
        let mut all: Vec<(u64, u64)> = Vec::new();
        let arg = (&raw mut all).cast();
        // SAFETY: the database is open, and the vector outlives the call.
        check(unsafe { pgb_lock_counts(self.0, collect_lock_count, arg) }).unwrap();
        all
    }
    pub fn listen(&self, wait_began: WaitBeganFn, deadlock: DeadlockFn) -> Result<()> {
        // SAFETY: the database is open.
        check(unsafe { pgb_set_lock_listener(self.0, wait_began, deadlock) })
    }
    pub fn open(dir: &Path) -> Db {
        let options = EngineOptions {
            memory_budget: 64 << 20,
            max_open_files: 0,
            background_threads: 1,
            log_to_stderr: 0,
            keys: perigee_mariadb_bridge::keys::ServerKeys::NONE,
        };
        let (path, mut out) = (CString::new(dir.to_str().unwrap()).unwrap(), null_mut());
        // SAFETY: all pointers are valid.
        check(unsafe { pgb_engine_open(path.as_ptr(), &raw const options, &raw mut out) }).unwrap();
        Db(out)
    }
    pub fn sync(&self) -> Result<()> {
        // SAFETY: the database is open.
        check(unsafe { pgb_engine_sync(self.0) })
    }
    pub fn checkpoint(&self, dir: &Path) -> Result<()> {
        let path = CString::new(dir.to_str().unwrap()).unwrap();
        // SAFETY: the database is open.
        check(unsafe { pgb_engine_checkpoint(self.0, path.as_ptr()) })
    }
    pub fn status_text(&self) -> String {
        let mut all: Vec<String> = Vec::new();
        // SAFETY: `collect_text` gets its vector.
        let done = unsafe { pgb_engine_status_text(self.0, collect_text, (&raw mut all).cast()) };
        check(done).unwrap();
        all.remove(0)
    }
    pub fn status_json(&self) -> String {
        let mut all: Vec<String> = Vec::new();
        // SAFETY: `collect_text` gets its vector.
        let done = unsafe { pgb_engine_status_json(self.0, collect_text, (&raw mut all).cast()) };
        check(done).unwrap();
        all.remove(0)
    }
    pub fn counters(&self) -> Vec<(String, u64)> {
        let mut all: Vec<(String, u64)> = Vec::new();
        // SAFETY: `collect_counter` gets its vector.
        let done = unsafe { pgb_engine_counters(self.0, collect_counter, (&raw mut all).cast()) };
        check(done).unwrap();
        all
    }
    /// Returns table, level and entries.
    pub fn levels(&self) -> Vec<(String, u32, u64)> {
        let mut all: Vec<(String, u32, u64)> = Vec::new();
        // SAFETY: `collect_level` gets its vector.
        let done = unsafe { pgb_engine_levels(self.0, collect_level, (&raw mut all).cast()) };
        check(done).unwrap();
        all
    }
    /// Returns kind, table, state and input levels.
    pub fn jobs(&self) -> Vec<[String; 4]> {
        let mut all: Vec<[String; 4]> = Vec::new();
        // SAFETY: `collect_job` gets its vector.
        let done = unsafe { pgb_engine_jobs(self.0, collect_job, (&raw mut all).cast()) };
        check(done).unwrap();
        all
    }
    /// Returns table, column family, option and value.
    pub fn options(&self) -> Vec<[String; 4]> {
        let mut all: Vec<[String; 4]> = Vec::new();
        // SAFETY: `collect_option` gets its vector.
        let done =
            unsafe { pgb_engine_options_list(self.0, collect_option, (&raw mut all).cast()) };
        check(done).unwrap();
        all
    }
    pub fn create_with(&self, name: &str, options: TableOptions) -> Result<TestTable> {
        let (text, mut out) = (name.as_ptr().cast(), null_mut());
        // SAFETY: all pointers are valid.
        check(unsafe {
            pgb_table_create(self.0, text, name.len(), &raw const options, &raw mut out)
        })?;
        Ok(TestTable(out))
    }
    pub fn create(&self, name: &str) -> TestTable {
        self.create_with(name, TableOptions::default()).unwrap()
    }
    pub fn table(&self, name: &str) -> Result<TestTable> {
        let mut out = null_mut();
        // SAFETY: all pointers are valid.
        check(unsafe { pgb_table_open(self.0, name.as_ptr().cast(), name.len(), &raw mut out) })?;
        Ok(TestTable(out))
    }
    pub fn drop_table(&self, name: &str) -> Result<()> {
        // SAFETY: all pointers are valid.
        check(unsafe { pgb_table_drop(self.0, name.as_ptr().cast(), name.len()) })
    }
    pub fn clear_table(&self, name: &str) -> Result<()> {
        // SAFETY: all pointers are valid.
        check(unsafe { pgb_table_clear(self.0, name.as_ptr().cast(), name.len()) })
    }
    pub fn rename_table(&self, from: &str, to: &str) -> Result<()> {
        // SAFETY: all pointers are valid.
        check(unsafe {
            pgb_table_rename(self.0, from.as_ptr().cast(), from.len(), to.as_ptr().cast(), to.len())
        })
    }
    pub fn tables(&self) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        // SAFETY: `collect_text` gets its vector.
        check(unsafe { pgb_tables_list(self.0, collect_text, (&raw mut all).cast()) }).unwrap();
        all.sort();
        all
    }
    pub fn snapshot(&self) -> View {
        let mut out = null_mut();
        // SAFETY: all pointers are valid.
        check(unsafe { pgb_snapshot_take(self.0, &raw mut out) }).unwrap();
        View(out)
    }
    pub fn begin(&self, lock_timeout_ms: u64) -> Session {
        let mut out = null_mut();
        // SAFETY: all pointers are valid.
        check(unsafe { pgb_trx_begin(self.0, lock_timeout_ms * 1000, &raw mut out) }).unwrap();
        Session { trx: out, buffer: pgb_buffer_new() }
    }
    pub fn commit_prepared(&self, gid: &str, durability: Durability) -> Result<()> {
        // SAFETY: the database is open.
        check(unsafe { pgb_commit_prepared(self.0, Slice::new(gid.as_bytes()), durability) })
    }
    pub fn rollback_prepared(&self, gid: &str) -> Result<()> {
        // SAFETY: the database is open.
        check(unsafe { pgb_rollback_prepared(self.0, Slice::new(gid.as_bytes())) })
    }
    pub fn prepared(&self) -> Vec<Vec<u8>> {
        let mut all: Vec<Vec<u8>> = Vec::new();
        // SAFETY: `collect_bytes` gets its vector.
        check(unsafe { pgb_prepared_list(self.0, collect_bytes, (&raw mut all).cast()) }).unwrap();
        all
    }
    /// Commits entries.
    pub fn fill(&self, table: &TestTable, entries: &[(&str, &str)]) {
        let trx = self.begin(1000);
        for (key, value) in entries {
            trx.put(table, key, value).unwrap();
        }
        trx.commit().unwrap();
    }
}

impl Drop for Db {
    fn drop(&mut self) {
        // SAFETY: its objects were dropped.
        let closed = unsafe { pgb_engine_close(self.0) };
        assert!(closed == Status::OK || std::thread::panicking(), "{}", status::last_error());
    }
}

/// A table.
pub struct TestTable(pub *mut Table);

// SAFETY: a table is used by all threads.
unsafe impl Send for TestTable {}
// SAFETY: see above.
unsafe impl Sync for TestTable {}

impl TestTable {
    pub fn put_direct(&self, key: &str, value: &str) -> Result<()> {
        let (key, value) = (Slice::new(key.as_bytes()), Slice::new(value.as_bytes()));
        // SAFETY: the table is open.
        check(unsafe { pgb_put_direct(self.0, key, value, Durability::NO_SYNC) })
    }
    pub fn delete_range_direct(&self, begin: &str, end: &str) -> Result<()> {
        let (begin, end) = (Slice::new(begin.as_bytes()), Slice::new(end.as_bytes()));
        // SAFETY: the table is open.
        check(unsafe { pgb_delete_range_direct(self.0, begin, end, Durability::SYNC) })
    }
    pub fn set_options(&self, options: TableOptions) -> Result<()> {
        // SAFETY: the table is open.
        check(unsafe { pgb_table_set_options(self.0, &raw const options) })
    }
    pub fn compact(&self) -> Result<()> {
        // SAFETY: the table is open.
        check(unsafe { pgb_table_compact(self.0) })
    }
    pub fn flush(&self) -> Result<()> {
        // SAFETY: the table is open.
        check(unsafe { pgb_table_flush(self.0) })
    }
    pub fn stats(&self) -> TableStats {
        let mut stats = TableStats::default();
        // SAFETY: the table is open.
        check(unsafe { pgb_table_stats_get(self.0, &raw mut stats) }).unwrap();
        stats
    }
    pub fn estimate(&self, begin: &str, end: &str) -> (u64, u64) {
        let (mut entries, mut bytes) = (0, 0);
        let (begin, end) = (Slice::new(begin.as_bytes()), Slice::new(end.as_bytes()));
        // SAFETY: the table is open.
        let done =
            unsafe { pgb_estimate_range(self.0, begin, end, &raw mut entries, &raw mut bytes) };
        check(done).unwrap();
        (entries, bytes)
    }
    /// Reads the newest committed value.
    pub fn get(&self, key: &str) -> Result<String> {
        self.get_at(None, key)
    }
    pub fn get_at(&self, view: Option<&View>, key: &str) -> Result<String> {
        let (view, buffer) = (view.map_or(null_mut(), |v| v.0), pgb_buffer_new());
        // SAFETY: the objects are live.
        unsafe {
            let found = get(null_mut(), view, self, key, buffer);
            pgb_buffer_free(buffer);
            found
        }
    }
    pub fn load(&self) -> Result<TestLoad> {
        let mut out = null_mut();
        // SAFETY: the table is open.
        check(unsafe { pgb_load_begin(self.0, &raw mut out) })?;
        Ok(TestLoad(out))
    }
    pub fn scan(&self) -> Vec<String> {
        TestCursor::open(null_mut(), None, self, "", None).unwrap().keys()
    }
}

impl Drop for TestTable {
    fn drop(&mut self) {
        // SAFETY: not used again.
        unsafe { pgb_table_release(self.0) }
    }
}

unsafe fn get(
    trx: *mut Trx,
    view: *mut Snapshot,
    table: &TestTable,
    key: &str,
    buffer: *mut Buffer,
) -> Result<String> {
    let mut value = Slice::NULL;
    let key = Slice::new(key.as_bytes());
    // SAFETY: guaranteed by the caller; the value is copied while it is pinned.
    unsafe {
        check(pgb_get(trx, view, table.0, key, buffer, &raw mut value))?;
        Ok(String::from_utf8(value.bytes().to_vec()).unwrap())
    }
}

/// A read view.
pub struct View(pub *mut Snapshot);

// SAFETY: a snapshot is used by all threads.
unsafe impl Send for View {}
// SAFETY: see above.
unsafe impl Sync for View {}

impl Drop for View {
    fn drop(&mut self) {
        // SAFETY: not used again.
        unsafe { pgb_snapshot_release(self.0) }
    }
}

/// A transaction object with a buffer.
pub struct Session {
    trx: *mut Trx,
    buffer: *mut Buffer,
}

// SAFETY: a transaction is used by one thread at a time.
unsafe impl Send for Session {}

/// Ends lock waits of a session from another thread.
#[derive(Clone, Copy)]
pub struct Killer(*mut Trx);

// SAFETY: `pgb_trx_cancel_wait` is thread-safe.
unsafe impl Send for Killer {}

impl Killer {
    pub fn kill(self) {
        // SAFETY: tests drop sessions after the killers.
        unsafe { pgb_trx_cancel_wait(self.0) }
    }
}

impl Session {
    pub fn killer(&self) -> Killer {
        Killer(self.trx)
    }
    pub fn set_lock_timeout(&self, ms: u64) {
        // SAFETY: the transaction is live.
        unsafe { pgb_trx_set_lock_timeout(self.trx, ms * 1000) }
    }
    pub fn lock_owner(&self) -> u64 {
        // SAFETY: the transaction is live.
        unsafe { pgb_trx_lock_owner(self.trx) }
    }
    pub fn writes(&self) -> u64 {
        // SAFETY: the transaction is live.
        unsafe { pgb_trx_writes(self.trx) }
    }
    pub fn put(&self, table: &TestTable, key: &str, value: &str) -> Result<()> {
        self.put_until(table, key, value, 0)
    }
    pub fn put_until(&self, table: &TestTable, key: &str, value: &str, at: u64) -> Result<()> {
        let (key, value) = (Slice::new(key.as_bytes()), Slice::new(value.as_bytes()));
        // SAFETY: the objects are live.
        check(unsafe { pgb_trx_put(self.trx, table.0, key, value, at) })
    }
    pub fn put_locked(&self, table: &TestTable, key: &str, value: &str) -> Result<()> {
        let (key, value) = (Slice::new(key.as_bytes()), Slice::new(value.as_bytes()));
        // SAFETY: the objects are live.
        check(unsafe { pgb_trx_put_locked(self.trx, table.0, key, value, 0) })
    }
    pub fn delete(&self, table: &TestTable, key: &str) -> Result<()> {
        // SAFETY: the objects are live.
        check(unsafe { pgb_trx_delete(self.trx, table.0, Slice::new(key.as_bytes())) })
    }
    pub fn delete_locked(&self, table: &TestTable, key: &str) -> Result<()> {
        // SAFETY: the objects are live.
        check(unsafe { pgb_trx_delete_locked(self.trx, table.0, Slice::new(key.as_bytes())) })
    }
    pub fn lock(&self, table: &TestTable, key: &str, mode: u32) -> Result<()> {
        // SAFETY: the objects are live.
        check(unsafe { pgb_lock_key(self.trx, table.0, Slice::new(key.as_bytes()), mode) })
    }
    pub fn lock_range(
        &self,
        table: &TestTable,
        begin: &str,
        end: Option<&str>,
        mode: u32,
    ) -> Result<()> {
        let begin = Slice::new(begin.as_bytes());
        let end = end.map_or(Slice::NULL, |end| Slice::new(end.as_bytes()));
        // SAFETY: the objects are live.
        check(unsafe { pgb_lock_range(self.trx, table.0, begin, end, mode) })
    }
    pub fn unlock(&self, table: &TestTable, key: &str) -> Result<()> {
        // SAFETY: the objects are live.
        check(unsafe { pgb_unlock_key(self.trx, table.0, Slice::new(key.as_bytes())) })
    }
    pub fn get(&self, table: &TestTable, key: &str) -> Result<String> {
        // SAFETY: the objects are live.
        unsafe { get(self.trx, null_mut(), table, key, self.buffer) }
    }
    pub fn get_at(&self, view: &View, table: &TestTable, key: &str) -> Result<String> {
        // SAFETY: the objects are live.
        unsafe { get(self.trx, view.0, table, key, self.buffer) }
    }
    pub fn get_locked(&self, table: &TestTable, key: &str, mode: u32) -> Result<String> {
        let (mut value, key) = (Slice::NULL, Slice::new(key.as_bytes()));
        // SAFETY: the objects are live; the value is copied while it is pinned.
        unsafe {
            let found = pgb_get_locked(self.trx, table.0, key, mode, self.buffer, &raw mut value);
            check(found)?;
            Ok(String::from_utf8(value.bytes().to_vec()).unwrap())
        }
    }
    pub fn cursor(&self, view: Option<&View>, table: &TestTable) -> TestCursor {
        TestCursor::open(self.trx, view, table, "", None).unwrap()
    }
    pub fn savepoint(&self, number: u64) -> Result<()> {
        // SAFETY: the transaction is live.
        check(unsafe { pgb_trx_savepoint(self.trx, number) })
    }
    pub fn rollback_to(&self, number: u64) -> Result<()> {
        // SAFETY: the transaction is live.
        check(unsafe { pgb_trx_rollback_to(self.trx, number) })
    }
    pub fn release(&self, number: u64) -> Result<()> {
        // SAFETY: the transaction is live.
        check(unsafe { pgb_trx_release_savepoint(self.trx, number) })
    }
    pub fn commit(&self) -> Result<()> {
        self.commit_with(Durability::NO_SYNC)
    }
    pub fn commit_with(&self, durability: Durability) -> Result<()> {
        // SAFETY: the transaction is live.
        check(unsafe { pgb_trx_commit(self.trx, durability) })
    }
    pub fn rollback(&self) {
        // SAFETY: the transaction is live.
        unsafe { pgb_trx_rollback(self.trx) }
    }
    pub fn prepare(&self, gid: &str) -> Result<()> {
        // SAFETY: the transaction is live.
        check(unsafe { pgb_trx_prepare(self.trx, Slice::new(gid.as_bytes())) })
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // SAFETY: not used again.
        unsafe {
            pgb_trx_free(self.trx);
            pgb_buffer_free(self.buffer);
        }
    }
}

/// A cursor; each move returns the entry as text.
pub struct TestCursor(*mut Cursor);

type Entry = Result<(String, String)>;

impl TestCursor {
    pub fn open(
        trx: *mut Trx,
        view: Option<&View>,
        table: &TestTable,
        begin: &str,
        end: Option<&str>,
    ) -> Result<TestCursor> {
        let (view, mut out) = (view.map_or(null_mut(), |v| v.0), null_mut());
        let begin = Slice::new(begin.as_bytes());
        let end = end.map_or(Slice::NULL, |end| Slice::new(end.as_bytes()));
        // SAFETY: the objects are live.
        check(unsafe { pgb_cursor_open(trx, view, table.0, begin, end, &raw mut out) })?;
        Ok(TestCursor(out))
    }
    fn entry(&self, go: impl FnOnce(*mut Cursor, *mut Slice, *mut Slice) -> Status) -> Entry {
        let (mut key, mut value) = (Slice::NULL, Slice::NULL);
        check(go(self.0, &raw mut key, &raw mut value))?;
        // SAFETY: the entry is copied before the next move.
        let text = |s: Slice| String::from_utf8(unsafe { s.bytes() }.to_vec()).unwrap();
        Ok((text(key), text(value)))
    }
    pub fn first(&self) -> Entry {
        // SAFETY: the cursor is open.
        self.entry(|c, k, v| unsafe { pgb_cursor_first(c, k, v) })
    }
    pub fn last(&self) -> Entry {
        // SAFETY: the cursor is open.
        self.entry(|c, k, v| unsafe { pgb_cursor_last(c, k, v) })
    }
    pub fn next(&self) -> Entry {
        // SAFETY: the cursor is open.
        self.entry(|c, k, v| unsafe { pgb_cursor_next(c, k, v) })
    }
    pub fn prev(&self) -> Entry {
        // SAFETY: the cursor is open.
        self.entry(|c, k, v| unsafe { pgb_cursor_prev(c, k, v) })
    }
    pub fn seek(&self, key: &str) -> Entry {
        // SAFETY: the cursor is open.
        self.entry(|c, k, v| unsafe { pgb_cursor_seek(c, Slice::new(key.as_bytes()), k, v) })
    }
    pub fn seek_prev(&self, key: &str) -> Entry {
        // SAFETY: the cursor is open.
        self.entry(|c, k, v| unsafe { pgb_cursor_seek_prev(c, Slice::new(key.as_bytes()), k, v) })
    }
    /// Returns all keys.
    pub fn keys(&self) -> Vec<String> {
        let mut keys = Vec::new();
        let mut entry = self.first();
        while let Ok((key, _)) = entry {
            keys.push(key);
            entry = self.next();
        }
        assert_eq!(entry.unwrap_err(), Status::NOT_FOUND);
        keys
    }
}

impl Drop for TestCursor {
    fn drop(&mut self) {
        // SAFETY: not used again.
        unsafe { pgb_cursor_close(self.0) }
    }
}

/// A bulk load, aborted when it is dropped.
pub struct TestLoad(*mut Load);

impl TestLoad {
    pub fn put(&self, key: &str, value: &str) -> Result<()> {
        let (key, value) = (Slice::new(key.as_bytes()), Slice::new(value.as_bytes()));
        // SAFETY: the load is live.
        check(unsafe { pgb_load_put(self.0, key, value, 0) })
    }
    pub fn finish(mut self) -> Result<()> {
        let load = std::mem::replace(&mut self.0, null_mut());
        // SAFETY: not used again.
        check(unsafe { pgb_load_finish(load) })
    }
}

impl Drop for TestLoad {
    fn drop(&mut self) {
        // SAFETY: not used again.
        unsafe { pgb_load_abort(self.0) }
    }
}
