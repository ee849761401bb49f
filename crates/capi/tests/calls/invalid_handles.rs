//! Calls with stale handles, handles of another kind and invented ones: each must fail without
//! effect.

use super::input::Input;
use super::{CallInterpreter, assert_public_code};
use std::ffi::c_int;
use std::ptr::null_mut;
use tidesdb::abi::Handle;
use tidesdb::{database::*, families::*, iter::*, maintenance::*, stats::*, txn::*};

impl CallInterpreter {
    /// Returns a handle that is invalid, or valid for another kind than `kind` (0 database, 1
    /// column family, 2 transaction, 3 iterator).
    fn pick_invalid_handle(&self, input: &mut Input, kind: usize) -> Handle {
        let mut all = self.stale.clone();
        let good_elsewhere: [(usize, Vec<Handle>); 4] = [
            (0, self.dbs.to_vec()),
            (1, self.families.iter().map(|f| f.handle).collect()),
            (2, self.txns.iter().map(|t| t.handle).collect()),
            (3, self.iters.iter().map(|i| i.handle).collect()),
        ];
        all.extend(good_elsewhere.iter().filter(|(k, _)| *k != kind).flat_map(|(_, h)| h));
        let made_up =
            [0, 1, 8, 0xdead_beef, usize::MAX, 0xdead_beef_dead_beef, 1 << 46, (1 << 47) - 16];
        let n = input.below(all.len() + made_up.len());
        // A number derived from a valid handle is most likely to be mistaken for one.
        let near = |h: Handle| {
            if input.byte() < 200 {
                h
            } else {
                h.wrapping_byte_add(usize::from(input.byte()) << 16)
            }
        };
        let chosen = all.get(n).copied().map_or(made_up[n.min(made_up.len() - 1)] as Handle, near);
        let is_good = good_elsewhere[kind].1.contains(&chosen) && !chosen.is_null();
        if is_good { null_mut() } else { chosen }
    }

    pub fn call_with_invalid_handle(&mut self, input: &mut Input) {
        let what = input.byte() % 32;
        let code = match what {
            0..=8 => self.call_with_invalid_database(input, what),
            9..=17 => self.call_with_invalid_family(input, what),
            18..=25 => self.call_with_invalid_txn(input, what),
            _ => self.call_with_invalid_iterator(input, what),
        };
        assert_ne!(assert_public_code(code), 0, "call {what} succeeded with an invalid handle");
    }

    fn call_with_invalid_database(&mut self, input: &mut Input, what: u8) -> c_int {
        let (db, mut out, name) = (self.pick_invalid_handle(input, 0), null_mut(), input.name());
        // SAFETY: called as by a C program, except for the handle.
        unsafe {
            match what {
                0 => tidesdb_close(db),
                1 => tidesdb_txn_begin(db, &mut out),
                2 => tidesdb_create_column_family(
                    db,
                    name.as_ptr(),
                    &tidesdb_default_column_family_config(),
                ),
                3 => tidesdb_drop_column_family(db, name.as_ptr()),
                4 => tidesdb_purge(db),
                5 => tidesdb_rename_column_family(db, name.as_ptr(), name.as_ptr()),
                6 => tidesdb_cancel_background_work(db),
                7 => tidesdb_promote_to_primary(db),
                _ => -c_int::from(tidesdb_get_column_family(db, name.as_ptr()).is_null()),
            }
        }
    }

    fn call_with_invalid_family(&mut self, input: &mut Input, what: u8) -> c_int {
        let (cf, mut stats, mut it) = (self.pick_invalid_handle(input, 1), null_mut(), null_mut());
        let n = input.below(self.txns.len());
        let txn = self.txns.get(n).map_or(null_mut(), |t| t.handle);
        let key = input.key();
        // SAFETY: called as by a C program, except for the handle.
        unsafe {
            match what {
                9 => tidesdb_txn_put(txn, cf, key.as_ptr(), key.len(), key.as_ptr(), key.len(), -1),
                10 => tidesdb_txn_delete(txn, cf, key.as_ptr(), key.len()),
                11 => tidesdb_txn_contains(txn, cf, key.as_ptr(), key.len()),
                12 => tidesdb_iter_new(txn, cf, &mut it),
                13 => tidesdb_flush_memtable(cf),
                14 => tidesdb_purge_cf(cf),
                15 => tidesdb_get_stats(cf, &mut stats),
                16 => tidesdb_cf_set_commit_hook(cf, None, null_mut()),
                _ => tidesdb_delete_column_family(self.dbs[0], cf),
            }
        }
    }

    fn call_with_invalid_txn(&mut self, input: &mut Input, what: u8) -> c_int {
        let (txn, mut it) = (self.pick_invalid_handle(input, 2), null_mut());
        let n = input.below(self.families.len());
        let cf = self.families.get(n).map_or(null_mut(), |f| f.handle);
        let key = input.key();
        // SAFETY: called as by a C program, except for the handle.
        unsafe {
            match what {
                18 => {
                    tidesdb_txn_put(txn, cf, key.as_ptr(), key.len(), key.as_ptr(), key.len(), -1)
                }
                19 => tidesdb_txn_commit(txn),
                // A transaction whose database was closed may be rolled back: it is rolled back
                // already.
                20 => -c_int::from(assert_public_code(tidesdb_txn_rollback(txn)) <= 0),
                21 => tidesdb_txn_reset(txn, 1),
                22 => tidesdb_iter_new(txn, cf, &mut it),
                23 => tidesdb_txn_savepoint(txn, c"s".as_ptr()),
                24 => tidesdb_txn_delete(txn, cf, key.as_ptr(), key.len()),
                _ => {
                    tidesdb_txn_free(txn);
                    -1
                }
            }
        }
    }

    fn call_with_invalid_iterator(&mut self, input: &mut Input, what: u8) -> c_int {
        let (it, key) = (self.pick_invalid_handle(input, 3), input.key());
        let (mut out, mut size) = (null_mut(), 0);
        // SAFETY: called as by a C program, except for the handle.
        unsafe {
            match what {
                26 => tidesdb_iter_seek(it, key.as_ptr(), key.len()),
                27 => tidesdb_iter_next(it),
                28 => tidesdb_iter_prev(it),
                29 => tidesdb_iter_key(it, &mut out, &mut size),
                30 => tidesdb_iter_valid(it) - 1,
                _ => {
                    tidesdb_iter_free(it);
                    -1
                }
            }
        }
    }
}
