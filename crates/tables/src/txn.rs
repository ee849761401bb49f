//! [`TableTxn`]: a transaction over tables. All writes of rows and index entries go through
//! [`TableTxn::write_row`].

use crate::binding::Binding;
use crate::error::{Error, ErrorKind, Result};
use crate::index_entry::{IndexEntry, read_row_key};
use crate::key::read_values;
use crate::table_state::TableState;
use crate::value::DisplayTuple;
use perigee::{Db, Isolation, Txn, TxnOptions};
use std::sync::{Arc, Mutex, PoisonError};

/// A transaction over any number of tables: [`TableDb::write_tables`](crate::TableDb::write_tables)
/// passes it to a closure, [`TableDb::begin_tables`](crate::TableDb::begin_tables) begins one that
/// ends with [`TableTxn::commit`]. Reads see its writes.
///
/// At repeatable read, the default, all reads see the state at its beginning, and its commit
/// conflicts if another one has changed a row since that it wrote or read by key.
///
/// ```
/// # use perigee_tables::*;
/// # let db = perigee::example_db()?;
/// #[derive(Row)]
/// struct Account {
///     #[key]
///     owner: String,
///     cents: i64,
/// }
/// let accounts = db.table::<Account>("accounts")?;
/// accounts.put(&Account { owner: "ann".into(), cents: 100 })?;
/// accounts.put(&Account { owner: "bob".into(), cents: 0 })?;
/// db.write_tables(|tx| {
///     tx.on(&accounts).update("ann", |a| a.cents -= 30)?;
///     tx.on(&accounts).update("bob", |a| a.cents += 30)?;
///     Ok(())
/// })?;
/// assert_eq!(accounts.get("bob")?.map(|a| a.cents), Some(30));
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct TableTxn<'a> {
    txn: TxnRef<'a>,
    /// Bindings of the tables used so far. Only at repeatable read: at other levels each use locks
    /// the schema again, because a rollback to a savepoint releases the lock. The lock is held for
    /// a search only.
    bindings: Mutex<Vec<TxnBinding>>,
}

/// The binding of a table in a transaction.
#[derive(Debug)]
struct TxnBinding {
    state: Arc<TableState>,
    /// True if no bulk load of the table runs.
    for_write: bool,
    binding: Arc<Binding>,
}

#[derive(Debug)]
enum TxnRef<'a> {
    Borrowed(&'a Txn),
    Owned(Box<Txn>),
}

/// Returns `options` with the isolation level of tables, if they set none.
pub fn table_txn_options(options: TxnOptions) -> TxnOptions {
    match options.isolation {
        Some(_) => options,
        None => options.isolation(Isolation::RepeatableRead),
    }
}

/// Runs `work` in a transaction and commits it; repeats both after a conflict.
pub fn run_table_txn<T>(
    db: &Db,
    options: TxnOptions,
    mut work: impl FnMut(&TableTxn<'_>) -> Result<T>,
) -> Result<T> {
    db.write_txn(table_txn_options(options), |txn| {
        let tx = TableTxn::over(txn);
        let result = work(&tx)?;
        tx.before_commit();
        Ok(result)
    })
}

impl<'a> TableTxn<'a> {
    /// Returns the tables' view of a transaction of the engine, for programs that also use column
    /// families. Commit with [`TableTxn::commit`] of a transaction from
    /// [`TableDb::begin_tables`](crate::TableDb::begin_tables), or `txn` itself.
    ///
    /// ```
    /// # use perigee_tables::*;
    /// # use perigee::{Isolation, TxnOptions};
    /// # let db = perigee::example_db()?;
    /// let users = db.create_dyn_table("users", Schema::new().key("id", ColumnType::U32))?;
    /// let txn = db.begin(TxnOptions::new().isolation(Isolation::Snapshot))?;
    /// txn.put(&db.default_family(), "last user", "7")?;
    /// TableTxn::over(&txn).on(&users).insert(&vec![Value::U32(7)])?;
    /// txn.commit()?;
    /// assert!(users.contains([Value::U32(7)])?);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn over(txn: &'a Txn) -> TableTxn<'a> {
        TableTxn { txn: TxnRef::Borrowed(txn), bindings: Mutex::default() }
    }
    pub(crate) fn begin(db: &Db, options: TxnOptions) -> Result<TableTxn<'static>> {
        let txn = db.begin(table_txn_options(options))?;
        Ok(TableTxn { txn: TxnRef::Owned(Box::new(txn)), bindings: Mutex::default() })
    }
    /// Returns the transaction of the engine, for savepoints, locks and column families.
    ///
    /// ```
    /// # use perigee_tables::*;
    /// # let db = perigee::example_db()?;
    /// let tx = db.begin_tables(Default::default())?;
    /// tx.engine_txn().savepoint("before")?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn engine_txn(&self) -> &Txn {
        match &self.txn {
            TxnRef::Borrowed(txn) => txn,
            TxnRef::Owned(txn) => txn,
        }
    }
    /// Commits a transaction from [`TableDb::begin_tables`](crate::TableDb::begin_tables), and
    /// returns the sequence number of its last operation. Dropping it instead rolls it back.
    ///
    /// ```
    /// # use perigee_tables::*;
    /// # let db = perigee::example_db()?;
    /// let users = db.create_dyn_table("users", Schema::new().key("id", ColumnType::U32))?;
    /// let tx = db.begin_tables(Default::default())?;
    /// tx.on(&users).insert(&vec![Value::U32(7)])?;
    /// assert!(!users.contains([Value::U32(7)])?);
    /// tx.commit()?;
    /// assert!(users.contains([Value::U32(7)])?);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `Conflict`: another commit came first; begin again. `InvalidArgument` for a transaction of
    /// [`TableTxn::over`] or of a closure, which its owner commits.
    pub fn commit(self) -> Result<u64> {
        self.before_commit();
        match self.txn {
            TxnRef::Owned(txn) => Ok(txn.commit()?),
            TxnRef::Borrowed(_) => Err(Error::invalid(
                "the owner of this transaction commits it, not TableTxn::commit",
            )),
        }
    }
    /// Called once before each commit. Together with [`TableTxn::write_row`] this is the place for
    /// a cache of rows to invalidate what the transaction has written, before the commit is
    /// visible.
    fn before_commit(&self) {}

    /// Returns the binding of a table in this transaction.
    pub(crate) fn binding(&self, state: &Arc<TableState>, for_write: bool) -> Result<Arc<Binding>> {
        let txn = self.engine_txn();
        if txn.isolation() != Isolation::RepeatableRead {
            return self.read_binding(state, for_write);
        }
        let bindings = self.bindings.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |b: &&TxnBinding| Arc::ptr_eq(&b.state, state) && (b.for_write || !for_write);
        if let Some(known) = bindings.iter().find(fits) {
            return Ok(Arc::clone(&known.binding));
        }
        drop(bindings);
        let binding = self.read_binding(state, for_write)?;
        let known =
            TxnBinding { state: Arc::clone(state), for_write, binding: Arc::clone(&binding) };
        self.bindings.lock().unwrap_or_else(PoisonError::into_inner).push(known);
        Ok(binding)
    }
    fn read_binding(&self, state: &TableState, for_write: bool) -> Result<Arc<Binding>> {
        let txn = self.engine_txn();
        if for_write { state.binding_for_write(txn) } else { state.binding_in(txn) }
    }

    /// Writes a row and its index entries, or deletes them: the only function that writes rows,
    /// except for bulk loads.
    pub(crate) fn write_row(&self, write: &RowWrite<'_>) -> Result<()> {
        let RowWrite { state, key, row, old_entries, new_entries, expires_at_ms, .. } = *write;
        let (txn, family) = (self.engine_txn(), &state.family);
        let fails = |e| state.engine_error(e);
        for entry in old_entries.iter().filter(|old| !new_entries.contains(old)) {
            if entry.exclusive && !write.binding.indexes[entry.index].ready {
                self.delete_entry_during_build(write, entry)?;
            } else {
                txn.delete(family, &entry.key).map_err(fails)?;
            }
        }
        for entry in new_entries {
            let was_there = old_entries.contains(entry);
            if was_there && !write.expiry_changes {
                continue;
            }
            // While an index is being built, the entry of the old row may be missing or that of
            // another row.
            if entry.exclusive && (!was_there || !write.binding.indexes[entry.index].ready) {
                self.check_unique(write, entry)?;
            }
            match expires_at_ms {
                Some(ms) => txn.put_until(family, &entry.key, &entry.value, ms),
                None => txn.put(family, &entry.key, &entry.value),
            }
            .map_err(|e| fails(e).in_index(&write.binding.indexes[entry.index].name))?;
        }
        let written = match (row, expires_at_ms) {
            (None, _) => txn.delete(family, key),
            (Some(row), None) => txn.put(family, key, row),
            (Some(row), Some(ms)) => txn.put_until(family, key, row, ms),
        };
        written.map_err(fails)
    }
    /// Deletes an entry of a unique index that is being built, if it belongs to this row. An entry
    /// of another row is written again, unchanged: every write of the entry conflicts with the
    /// backfill, whatever the isolation level (see [`crate::index_build`]).
    fn delete_entry_during_build(&self, write: &RowWrite<'_>, entry: &IndexEntry) -> Result<()> {
        let RowWrite { state, .. } = *write;
        let (txn, family) = (self.engine_txn(), &state.family);
        let fails = |e| state.engine_error(e);
        let found = txn.family(family).get_with_ttl(&entry.key).map_err(fails)?;
        let other = found.filter(|found| found.value[..] != entry.value);
        match other.map(|other| (other.value, other.expires_at_ms)) {
            None => txn.delete(family, &entry.key),
            Some((value, None)) => txn.put(family, &entry.key, value),
            Some((value, Some(ms))) => txn.put_until(family, &entry.key, value, ms),
        }
        .map_err(fails)
    }
    /// Checks that no other row has the entry.
    pub(crate) fn check_unique(&self, write: &RowWrite<'_>, entry: &IndexEntry) -> Result<()> {
        let RowWrite { state, binding, key, .. } = *write;
        let found = self.engine_txn().get_pinned(&state.family, &entry.key);
        let Some(value) = found.map_err(|e| state.engine_error(e))? else { return Ok(()) };
        let plan = &binding.indexes[entry.index];
        // The key of the entry is the same, so the rows differ if the rest of their key does.
        if value[..] == entry.value {
            return Ok(());
        }
        let mut other = Vec::new();
        if read_row_key(plan, &binding.key, &entry.key, &value, &mut other).is_err() {
            return Err(state.damaged("an index entry is damaged").in_index(&plan.name));
        }
        let show = |key: &[u8]| match read_values(&key[1..], &binding.key) {
            Ok(values) => DisplayTuple(&values).to_string(),
            Err(_) => "?".to_owned(),
        };
        let text = format!(
            "row {} has the same values in a unique index: change them, or delete that row first",
            show(&other)
        );
        let error = Error::new(ErrorKind::UniqueViolation, text).in_index(&plan.name);
        Err(error.in_table(&state.name).with_key(show(key)))
    }
}

/// A write of one row with its index entries.
#[derive(Clone, Copy, Debug)]
pub struct RowWrite<'a> {
    pub state: &'a TableState,
    pub binding: &'a Binding,
    /// The key, with the index number.
    pub key: &'a [u8],
    /// The encoded row; `None` deletes it.
    pub row: Option<&'a [u8]>,
    pub old_entries: &'a [IndexEntry],
    pub new_entries: &'a [IndexEntry],
    /// In milliseconds since 1970; `None`: never.
    pub expires_at_ms: Option<u64>,
    /// False if the old row, if any, and the new one expire at the same time.
    pub expiry_changes: bool,
}
