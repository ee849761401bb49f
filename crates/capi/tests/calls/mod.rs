//! An interpreter of call sequences: reads bytes as calls of the C API over two databases in one
//! directory, with valid, stale, wrong and invented handles. It checks that nothing crashes, that
//! codes are public ones, that calls with invalid handles fail and calls with valid ones succeed,
//! and that reads return committed data.
//!
//! `tests/calls_smoke.rs` runs it over fixed seeds, the fuzz target `fuzz/fuzz_targets/capi.rs`
//! over arbitrary input.
#![allow(unsafe_code)] // It calls the API as a C program does.

mod input;
mod model;
mod invalid_handles;

use input::Input;
use model::{Entries, Family, Model, Txn, Write};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use tidesdb::abi::Handle;
use tidesdb::{database::*, families::*, iter::*, maintenance::*, stats::*, txn::*};

const SUCCESS: c_int = 0;
const NOT_FOUND: c_int = -3;
const EXISTS: c_int = -6;
const CONFLICT: c_int = -7;
const LAST: c_int = -15;

/// Runs the bytes as calls, in an empty directory, which the caller removes.
pub fn run(bytes: &[u8], dir: &Path) {
    let mut world = CallInterpreter::new(dir);
    let mut input = Input::new(bytes);
    world.open(0);
    while !input.is_over() {
        world.step(&mut input);
    }
    world.finish();
}

struct Iter {
    handle: Handle,
    db: usize,
    /// Whether its database is still the one it was created in. Afterwards it may keep its
    /// position, but its calls fail.
    live: bool,
}

struct CallInterpreter {
    dir: PathBuf,
    dbs: [Handle; 2],
    families: Vec<Family>,
    txns: Vec<Txn>,
    iters: Vec<Iter>,
    /// Invalid handles: closed, freed, dropped.
    stale: Vec<Handle>,
    model: Model,
    copies: usize,
}

/// Checks that a code is a public one, and returns it.
fn assert_public_code(code: c_int) -> c_int {
    assert!((LAST..=SUCCESS).contains(&code), "{code} is not a code of the API");
    code
}

/// Checks the code of a call that must succeed.
fn assert_success(code: c_int, what: &str) {
    assert_eq!(assert_public_code(code), SUCCESS, "{what}: {}", tidesdb::code::last_error());
}

/// Returns true if an operation of a transaction succeeded, and false on a conflict. A conflict is
/// possible at any time: the column family may be newer than its snapshot.
fn succeeded_or_conflicted(code: c_int, what: &str) -> bool {
    if assert_public_code(code) != CONFLICT {
        assert_success(code, what);
    }
    code == SUCCESS
}

fn text(name: &CStr) -> String {
    String::from_utf8(name.to_bytes().to_vec()).unwrap()
}

impl CallInterpreter {
    fn new(dir: &Path) -> Self {
        Self {
            dir: dir.to_path_buf(),
            dbs: [null_mut(); 2],
            families: Vec::new(),
            txns: Vec::new(),
            iters: Vec::new(),
            stale: Vec::new(),
            model: Model::default(),
            copies: 0,
        }
    }

    fn step(&mut self, input: &mut Input) {
        match input.byte() % 40 {
            0 => self.open(1),
            1 if input.byte() < 40 => self.reopen(input.below(2)),
            2 | 3 => self.create(input),
            4 => self.drop_family(input),
            5 => self.rename(input),
            6 if input.byte() < 100 => self.clone_family(input),
            7 | 8 => self.begin(input),
            9..=15 => self.put(input),
            16 | 17 => self.delete(input),
            18 | 19 => self.get(input),
            20 | 21 => self.commit(input),
            22 => self.rollback_or_free(input),
            23 => self.reset(input),
            24 | 25 => self.savepoint(input),
            26 | 27 => self.iterate(input),
            28 => self.maintain(input),
            29 => self.statistics(input),
            30 | 31 => self.check_key(input),
            32 => self.check_all(input.below(2)),
            33 if input.byte() < 60 => self.copy(input),
            34..=37 => self.call_with_invalid_handle(input),
            _ => self.look_up_random_name(input),
        }
    }

    fn open(&mut self, db: usize) {
        let path = CString::new(self.dir.join(format!("db{db}")).to_str().unwrap()).unwrap();
        let mut config = tidesdb_default_config();
        config.db_path = path.as_ptr().cast_mut();
        config.log_level = 99;
        config.block_cache_size = 1 << 20;
        let mut handle = null_mut();
        // SAFETY: called as by a C program.
        let code = unsafe { tidesdb_open(&config, &mut handle) };
        if self.dbs[db].is_null() {
            assert_success(code, "open");
            self.dbs[db] = handle;
        } else {
            assert_ne!(assert_public_code(code), SUCCESS, "an open database was opened again");
        }
    }

    /// Closes a database with open objects. All their handles become stale, and its data must exist
    /// after the reopen.
    fn reopen(&mut self, db: usize) {
        if self.dbs[db].is_null() {
            return;
        }
        assert_success(tidesdb_close(self.dbs[db]), "close");
        let of_db = |d: usize| d == db;
        self.stale.push(std::mem::replace(&mut self.dbs[db], null_mut()));
        self.stale.extend(self.families.iter().filter(|f| of_db(f.db)).map(|f| f.handle));
        self.families.retain(|f| !of_db(f.db));
        self.stale.extend(self.txns.iter().filter(|t| of_db(t.db)).map(|t| t.handle));
        self.txns.retain(|t| !of_db(t.db));
        self.iters.iter_mut().filter(|i| of_db(i.db)).for_each(|i| i.live = false);
        self.open(db);
        self.check_all(db);
    }

    fn random_family(&self, input: &mut Input) -> Option<&Family> {
        let n = input.below(self.families.len());
        self.families.get(n)
    }

    /// Returns an active transaction, and a column family of its database.
    fn random_txn_and_family(&self, input: &mut Input) -> Option<(usize, Handle, usize)> {
        let open: Vec<usize> = (0..self.txns.len()).filter(|n| self.txns[*n].open).collect();
        let txn = *open.get(input.below(open.len()))?;
        let of_db: Vec<&Family> =
            self.families.iter().filter(|f| f.db == self.txns[txn].db).collect();
        let family = of_db.get(input.below(of_db.len()))?;
        Some((txn, family.handle, family.id))
    }

    fn create(&mut self, input: &mut Input) {
        let (db, name) = (input.below(2), input.name());
        if self.dbs[db].is_null() {
            return;
        }
        let mut config = tidesdb_default_column_family_config();
        config.compression_algorithm = (input.byte() % 5).into();
        config.use_btree = (input.byte() & 1).into();
        config.klog_value_threshold = usize::from(input.byte());
        // SAFETY: called as by a C program.
        let code = assert_public_code(unsafe {
            tidesdb_create_column_family(self.dbs[db], name.as_ptr(), &config)
        });
        let name = text(&name);
        let sound = !name.is_empty() && !name.contains('/') && name != ".." && name.len() < 128;
        match self.model.id(db, &name) {
            Some(_) => assert_eq!(code, EXISTS, "{name} was created twice"),
            None if name.starts_with("family") => assert_success(code, "create"),
            None => assert!(sound || code != SUCCESS, "{name:?} was accepted"),
        }
        if code == SUCCESS {
            self.model.create(db, &name, Entries::new());
            self.look_up_name(db, &name);
        }
    }

    fn look_up_name(&mut self, db: usize, name: &str) {
        let c_name = CString::new(name).unwrap();
        // SAFETY: called as by a C program.
        let handle = unsafe { tidesdb_get_column_family(self.dbs[db], c_name.as_ptr()) };
        let id = self.model.id(db, name).filter(|_| !self.dbs[db].is_null());
        assert_eq!(
            handle.is_null(),
            id.is_none(),
            "{name} exists only in the library or only in the model"
        );
        if let Some(id) = id
            && !self.families.iter().any(|f| f.handle == handle)
        {
            self.families.push(Family { handle, db, id });
        }
    }

    fn look_up_random_name(&mut self, input: &mut Input) {
        let (db, name) = (input.below(2), text(&input.name()));
        self.look_up_name(db, &name);
    }

    fn mark_stale(&mut self, id: usize) {
        self.stale.extend(self.families.iter().filter(|f| f.id == id).map(|f| f.handle));
        self.families.retain(|f| f.id != id);
        self.model.drop_id(id);
    }

    fn drop_family(&mut self, input: &mut Input) {
        if input.byte() & 1 == 0 {
            let Some(Family { handle, db, id }) = self.random_family(input) else { return };
            let (id, code) = (*id, tidesdb_delete_column_family(self.dbs[*db], *handle));
            assert_success(code, "delete a column family");
            return self.mark_stale(id);
        }
        let (db, name) = (input.below(2), input.name());
        // SAFETY: called as by a C program.
        let code =
            assert_public_code(unsafe { tidesdb_drop_column_family(self.dbs[db], name.as_ptr()) });
        let id = self.model.id(db, &text(&name));
        assert_eq!(code == SUCCESS, id.is_some(), "drop {name:?}: {code}");
        if let Some(id) = id {
            self.mark_stale(id);
        }
    }

    fn rename(&mut self, input: &mut Input) {
        let (db, old, new) = (input.below(2), input.name(), input.name());
        // SAFETY: called as by a C program.
        let code = assert_public_code(unsafe {
            tidesdb_rename_column_family(self.dbs[db], old.as_ptr(), new.as_ptr())
        });
        if code == SUCCESS && old != new {
            self.model.rename(db, &text(&old), &text(&new));
        }
    }

    fn clone_family(&mut self, input: &mut Input) {
        let (db, from, to) = (input.below(2), input.name(), input.name());
        // SAFETY: called as by a C program.
        let code = assert_public_code(unsafe {
            tidesdb_clone_column_family(self.dbs[db], from.as_ptr(), to.as_ptr())
        });
        if code == SUCCESS {
            let source =
                self.model.id(db, &text(&from)).expect("a missing column family was cloned");
            let entries = self.model.entries(source).unwrap().clone();
            self.model.create(db, &text(&to), entries);
        }
    }

    fn begin(&mut self, input: &mut Input) {
        let (db, level) = (input.below(2), c_int::from(input.byte() % 6) - 1);
        if self.txns.len() > 12 {
            return;
        }
        let mut handle = null_mut();
        // SAFETY: called as by a C program.
        let code = assert_public_code(unsafe {
            tidesdb_txn_begin_with_isolation(self.dbs[db], level, &mut handle)
        });
        let may = !self.dbs[db].is_null() && level >= 0;
        assert_eq!(code == SUCCESS, may, "begin at level {level}: {code}");
        if may {
            self.txns.push(Txn {
                handle,
                db,
                open: true,
                writes: Vec::new(),
                savepoints: Vec::new(),
                drops: self.model.drops,
            });
        }
    }

    fn put(&mut self, input: &mut Input) {
        let Some((txn, family, id)) = self.random_txn_and_family(input) else { return };
        let (key, value, ttl) = (input.key(), input.value(), input.byte());
        let expires = if ttl < 240 { -1 } else { 1_000_000_000 };
        let handle = self.txns[txn].handle;
        // SAFETY: called as by a C program; an empty value has a pointer, too.
        let code = unsafe {
            tidesdb_txn_put(
                handle,
                family,
                key.as_ptr(),
                key.len(),
                value.as_ptr(),
                value.len(),
                expires,
            )
        };
        if succeeded_or_conflicted(code, "put") {
            let value = (expires == -1).then_some(value);
            self.txns[txn].writes.push(Write { family: id, key, value });
        }
    }

    fn delete(&mut self, input: &mut Input) {
        let Some((txn, family, id)) = self.random_txn_and_family(input) else { return };
        let (key, handle) = (input.key(), self.txns[txn].handle);
        // SAFETY: called as by a C program.
        let code = unsafe { tidesdb_txn_delete(handle, family, key.as_ptr(), key.len()) };
        if succeeded_or_conflicted(code, "delete") {
            self.txns[txn].writes.push(Write { family: id, key, value: None });
        }
    }

    /// Reads a key through a transaction; an error is a conflict.
    fn read(txn: Handle, family: Handle, key: &[u8], track: bool) -> Result<Option<Vec<u8>>, ()> {
        let (mut value, mut size) = (null_mut(), 0);
        let call = if track { tidesdb_txn_get } else { tidesdb_txn_get_notrack };
        // SAFETY: called as by a C program.
        let code = assert_public_code(unsafe {
            call(txn, family, key.as_ptr(), key.len(), &mut value, &mut size)
        });
        if code == NOT_FOUND {
            return Ok(None);
        }
        if !succeeded_or_conflicted(code, "get") {
            return Err(());
        }
        // SAFETY: the library returned `size` bytes, which the caller frees.
        let bytes = unsafe { std::slice::from_raw_parts(value, size) }.to_vec();
        // SAFETY: as above.
        unsafe { tidesdb_free(value.cast::<c_void>()) };
        Ok(Some(bytes))
    }

    fn get(&mut self, input: &mut Input) {
        let Some((txn, family, id)) = self.random_txn_and_family(input) else { return };
        let key = input.key();
        let track = input.byte() & 1 == 0;
        let Ok(found) = Self::read(self.txns[txn].handle, family, &key, track) else { return };
        if let Some(own) = self.txns[txn].last_write(id, &key) {
            assert_eq!(found, own.value, "a transaction's own write");
        }
        // SAFETY: called as by a C program.
        let there =
            unsafe { tidesdb_txn_contains(self.txns[txn].handle, family, key.as_ptr(), key.len()) };
        assert_eq!(assert_public_code(there) == SUCCESS, found.is_some(), "contains and get");
    }

    fn commit(&mut self, input: &mut Input) {
        let n = input.below(self.txns.len());
        let Some(txn) = self.txns.get_mut(n) else { return };
        let code = assert_public_code(tidesdb_txn_commit(txn.handle));
        assert!(txn.open || code != SUCCESS, "a transaction was committed twice");
        // It may have used a column family that was dropped since.
        let dropped = self.model.drops > txn.drops;
        assert!(!txn.open || dropped || code == SUCCESS || code == CONFLICT, "commit: {code}");
        if txn.open && code == SUCCESS {
            self.model.apply(&txn.writes);
        }
        if code == SUCCESS {
            txn.clear(false);
        } else {
            tidesdb_txn_rollback(txn.handle);
            txn.clear(false);
        }
    }

    fn rollback_or_free(&mut self, input: &mut Input) {
        let n = input.below(self.txns.len());
        let Some(txn) = self.txns.get_mut(n) else { return };
        if input.byte() & 1 == 0 {
            let code = assert_public_code(tidesdb_txn_rollback(txn.handle));
            assert!(!txn.open || code == SUCCESS, "rollback: {code}");
            return txn.clear(false);
        }
        tidesdb_txn_free(txn.handle);
        self.stale.push(txn.handle);
        self.txns.remove(n);
    }

    fn reset(&mut self, input: &mut Input) {
        let n = input.below(self.txns.len());
        let level = c_int::from(input.byte() % 6);
        let Some(txn) = self.txns.get_mut(n) else { return };
        let code = assert_public_code(tidesdb_txn_reset(txn.handle, level));
        assert_eq!(code == SUCCESS, !txn.open && level < 5, "reset to {level}: {code}");
        if code == SUCCESS {
            txn.clear(true);
            txn.drops = self.model.drops;
        }
    }

    fn savepoint(&mut self, input: &mut Input) {
        let n = input.below(self.txns.len());
        let (name, what) = (format!("s{}", input.byte() % 3), input.byte() % 3);
        let Some(txn) = self.txns.get_mut(n) else { return };
        let (c_name, at) = (
            CString::new(name.as_str()).unwrap(),
            txn.savepoints.iter().position(|(s, _)| *s == name),
        );
        let call = [
            tidesdb_txn_savepoint,
            tidesdb_txn_rollback_to_savepoint,
            tidesdb_txn_release_savepoint,
        ];
        // SAFETY: called as by a C program.
        let code =
            assert_public_code(unsafe { call[usize::from(what)](txn.handle, c_name.as_ptr()) });
        assert_eq!(
            code == SUCCESS,
            txn.open && (what == 0 || at.is_some()),
            "savepoint {what}: {code}"
        );
        match (what, at) {
            _ if code != SUCCESS => {}
            // An existing name is moved. Whether it keeps its position is unspecified, so
            // savepoints after it are removed from the model only at a rollback to it.
            (0, Some(at)) => txn.savepoints[at].1 = txn.writes.len(),
            (0, None) => txn.savepoints.push((name, txn.writes.len())),
            (1, Some(at)) => {
                txn.writes.truncate(txn.savepoints[at].1);
                txn.savepoints.truncate(at);
            }
            (_, Some(at)) => drop(txn.savepoints.remove(at)),
            (_, None) => {}
        }
    }

    fn iterate(&mut self, input: &mut Input) {
        if self.iters.len() < 8 && input.byte() & 1 == 0 {
            let Some((txn, family, _)) = self.random_txn_and_family(input) else { return };
            let mut it = null_mut();
            // SAFETY: called as by a C program.
            let code = unsafe { tidesdb_iter_new(self.txns[txn].handle, family, &mut it) };
            if succeeded_or_conflicted(code, "iterator") {
                self.iters.push(Iter { handle: it, db: self.txns[txn].db, live: true });
            }
        }
        let n = input.below(self.iters.len());
        let Some(Iter { handle: it, live, .. }) = self.iters.get(n) else { return };
        let (it, live) = (*it, *live);
        for _ in 0..input.byte() % 12 {
            let key = input.key();
            // SAFETY: called as by a C program; borrowed data is read before the next call.
            assert_public_code(unsafe {
                match input.byte() % 8 {
                    0 => tidesdb_iter_seek(it, key.as_ptr(), key.len()),
                    1 => tidesdb_iter_seek_for_prev(it, key.as_ptr(), key.len()),
                    2 => tidesdb_iter_seek_to_first(it),
                    3 => tidesdb_iter_seek_to_last(it),
                    4 | 5 => tidesdb_iter_next(it),
                    _ => tidesdb_iter_prev(it),
                }
            });
            let (mut key, mut key_size, mut value, mut value_size) = (null_mut(), 0, null_mut(), 0);
            // SAFETY: as above.
            let code = assert_public_code(unsafe {
                tidesdb_iter_key_value(it, &mut key, &mut key_size, &mut value, &mut value_size)
            });
            let valid = tidesdb_iter_valid(it) == 1;
            assert!(!live || (code == SUCCESS) == valid, "valid: {valid}, entry: {code}");
            if code == SUCCESS {
                // SAFETY: borrowed until the next step.
                let (key, value) = unsafe {
                    (
                        std::slice::from_raw_parts(key, key_size),
                        std::slice::from_raw_parts(value, value_size),
                    )
                };
                assert!(!key.is_empty());
                std::hint::black_box((key.to_vec(), value.to_vec()));
            }
        }
        if input.byte() < 80 {
            tidesdb_iter_free(it);
            self.stale.push(self.iters.remove(n).handle);
        }
    }

    fn maintain(&mut self, input: &mut Input) {
        let (a, b, what) = (input.key(), input.key(), input.byte() % 6);
        let Some(Family { handle: cf, db, .. }) = self.random_family(input) else { return };
        // SAFETY: called as by a C program.
        let code = unsafe {
            match what {
                0 => tidesdb_flush_memtable(*cf),
                1 => tidesdb_purge_cf(*cf),
                2 => tidesdb_compact_range(*cf, a.as_ptr(), a.len(), b.as_ptr(), b.len()),
                3 => tidesdb_sync_wal(*cf),
                4 => tidesdb_compact(*cf),
                _ => tidesdb_purge(self.dbs[*db]),
            }
        };
        // Swapped bounds are an error.
        assert!(
            what == 2 || code == SUCCESS,
            "maintenance {what}: {code}: {}",
            tidesdb::code::last_error()
        );
        assert_public_code(code);
    }

    fn statistics(&mut self, input: &mut Input) {
        let (mut stats, mut cost, mut count) = (null_mut(), 0.0, 0);
        let (a, b) = (input.key(), input.key());
        let Some(Family { handle: cf, db, .. }) = self.random_family(input) else { return };
        let (mut all, mut cache) =
            (Box::<tidesdb::abi::DbStats>::new_uninit(), std::mem::MaybeUninit::uninit());
        // SAFETY: called as by a C program.
        unsafe {
            assert_success(tidesdb_get_stats(*cf, &mut stats), "statistics");
            tidesdb_free_stats(stats);
            assert_success(
                tidesdb_get_db_stats(self.dbs[*db], all.as_mut_ptr()),
                "statistics of the database",
            );
            assert_success(
                tidesdb_get_cache_stats(self.dbs[*db], cache.as_mut_ptr()),
                "statistics of the cache",
            );
            assert_success(
                tidesdb_range_cost(*cf, a.as_ptr(), a.len(), b.as_ptr(), b.len(), &mut cost),
                "cost",
            );
            assert_success(tidesdb_cf_estimate_cardinality(*cf, &mut count), "cardinality");
        }
        assert!(cost >= 0.0);
    }

    fn copy(&mut self, input: &mut Input) {
        let (db, checkpoint) = (input.below(2), input.byte() & 1 == 0);
        self.copies += 1;
        let path =
            CString::new(self.dir.join(format!("copy{}", self.copies)).to_str().unwrap()).unwrap();
        // SAFETY: called as by a C program.
        let code = assert_public_code(unsafe {
            if checkpoint {
                tidesdb_checkpoint(self.dbs[db], path.as_ptr())
            } else {
                tidesdb_backup(self.dbs[db], path.as_ptr().cast_mut())
            }
        });
        assert_eq!(code == SUCCESS, !self.dbs[db].is_null(), "copy: {code}");
    }

    /// Begins a transaction that reads the committed state.
    fn new_txn(&self, db: usize) -> Handle {
        let mut txn = null_mut();
        // SAFETY: called as by a C program.
        assert_success(unsafe { tidesdb_txn_begin(self.dbs[db], &mut txn) }, "begin");
        txn
    }

    fn check_key(&mut self, input: &mut Input) {
        let key = input.key();
        let Some(Family { handle, db, id }) = self.random_family(input) else { return };
        let txn = self.new_txn(*db);
        let expected = self.model.entries(*id).and_then(|e| e.get(&key)).cloned();
        assert_eq!(Self::read(txn, *handle, &key, true), Ok(expected), "{key:?}");
        tidesdb_txn_free(txn);
    }

    /// Compares all column families by name, and all their entries in order, with the model.
    fn check_all(&mut self, db: usize) {
        if self.dbs[db].is_null() {
            return;
        }
        let (mut names, mut count) = (null_mut::<*mut c_char>(), 0);
        // SAFETY: called as by a C program; the caller frees the names.
        let mut listed = unsafe {
            assert_success(
                tidesdb_list_column_families(self.dbs[db], &mut names, &mut count),
                "list",
            );
            let all: Vec<_> = (0..count as usize).map(|i| *names.add(i)).collect();
            let texts: Vec<_> = all.iter().map(|n| text(CStr::from_ptr(*n))).collect();
            all.into_iter().for_each(|n| tidesdb_free(n.cast()));
            tidesdb_free(names.cast());
            texts
        };
        listed.sort();
        assert_eq!(listed, self.model.names(db));
        for name in listed {
            self.look_up_name(db, &name);
            let id = self.model.id(db, &name).unwrap();
            let family = self.families.iter().find(|f| f.id == id).unwrap().handle;
            let txn = self.new_txn(db);
            let found = Self::scan(txn, family);
            tidesdb_txn_free(txn);
            let expected: Vec<_> = self.model.entries(id).unwrap().clone().into_iter().collect();
            assert_eq!(found, expected, "{name}");
        }
    }

    fn scan(txn: Handle, family: Handle) -> Vec<(Vec<u8>, Vec<u8>)> {
        let (mut it, mut all) = (null_mut(), Vec::new());
        // SAFETY: called as by a C program; borrowed data is copied before the next step.
        unsafe {
            assert_success(tidesdb_iter_new(txn, family, &mut it), "iterator");
            tidesdb_iter_seek_to_first(it);
            while tidesdb_iter_valid(it) == 1 {
                let (mut key, mut key_size, mut value, mut value_size) =
                    (null_mut(), 0, null_mut(), 0);
                assert_success(
                    tidesdb_iter_key_value(
                        it,
                        &mut key,
                        &mut key_size,
                        &mut value,
                        &mut value_size,
                    ),
                    "entry",
                );
                let copy = |p: *mut u8, n: usize| std::slice::from_raw_parts(p, n).to_vec();
                all.push((copy(key, key_size), copy(value, value_size)));
                tidesdb_iter_next(it);
            }
            tidesdb_iter_free(it);
        }
        all
    }

    fn finish(&mut self) {
        for db in 0..2 {
            self.check_all(db);
            if !self.dbs[db].is_null() {
                assert_success(tidesdb_close(self.dbs[db]), "close");
            }
        }
        // Objects that were open when their database was closed must still be freed; freeing twice
        // has no effect.
        for handle in std::mem::take(&mut self.stale) {
            tidesdb_txn_free(handle);
            tidesdb_iter_free(handle);
        }
        self.txns.iter().for_each(|t| tidesdb_txn_free(t.handle));
        self.iters.iter().for_each(|i| tidesdb_iter_free(i.handle));
    }
}
