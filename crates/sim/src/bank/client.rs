//! A client of the bank: transfers, tickets, rolled-back savepoints and audits; and disturbances:
//! flushes, compactions, transactions ended from another thread.

use super::bank_ledger::{
    ACCOUNTS, AttemptWrites, BankItem, BankLedger, CommitId, FAMILIES, OPENING, PrivateWrite,
    TICKETS, counter_key, journal_key,
};
use super::bank_ledger::{ItemChange, encode_value, parse_value};
use crate::history::Bytes;
use crate::ledger::Contents;
use crate::rng::Rng;
use crate::runner::lock_mutex;
use crate::session::commit_outcome;
use perigee::env::Env;
use perigee::{
    Db, Durability, Error, ErrorKind, Family, Isolation, LockMode, Result, Slice, Txn, TxnHandle,
    TxnOptions, WriteBatch, WriteOptions,
};
use perigee_env::fs::memory::SimDisk;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Approximate number of journal entries that a writer keeps.
const JOURNAL_LEN: usize = 12;
/// Lock timeout. Reached only if a lock was never granted.
const LOCK_TIMEOUT: Duration = Duration::from_secs(3600);

/// State shared by all clients.
pub struct Bank {
    /// Database under test.
    pub db: Db,
    /// Column families of the bank.
    pub families: Vec<Family>,
    /// Simulated environment.
    pub env: Env,
    /// Simulated disk.
    pub disk: Arc<SimDisk>,
    /// Record of what was acknowledged.
    pub ledger: Arc<Mutex<BankLedger>>,
    /// Durability of the database.
    pub durability: Durability,
    /// If set, clients also lock what they read and use isolation levels below repeatable read;
    /// otherwise all clients use repeatable read or higher.
    pub lock_reads: bool,
    /// Current transaction of each client, for aborts from another thread, with a flag that says
    /// whether an abort succeeded.
    pub running_txns: Vec<Mutex<Option<(TxnHandle, Arc<AtomicBool>)>>>,
    /// First failure.
    pub failure: Mutex<Option<String>>,
}

/// How the client ends a transaction, unless a database error ends it.
enum TxnDecision {
    Commit,
    RollBack,
}

/// Returns true if the transaction lost to others and had no effect.
fn is_aborted(e: &Error) -> bool {
    matches!(e.kind(), ErrorKind::Conflict | ErrorKind::Busy | ErrorKind::Aborted)
}

fn violation_error(text: impl Into<String>) -> Error {
    Error::internal(text.into())
}

impl Bank {
    fn record_failure(&self, text: String) {
        if !self.disk.crashed() {
            lock_mutex(&self.failure).get_or_insert(text);
        }
    }

    /// Opens the accounts if they do not exist.
    pub fn open_accounts(&self) -> Result<()> {
        if self.families[0].contains(BankItem::Account(0, 0).key())? {
            return Ok(());
        }
        let number = lock_mutex(&self.ledger).next_attempt(0);
        let mut draft = AttemptWrites::default();
        let mut add = |item, family, amount| {
            draft.changes.push(ItemChange {
                item,
                previous: None,
                family,
                value: encode_value((0, number), amount, 0),
            });
        };
        (0..FAMILIES.len())
            .for_each(|f| (0..ACCOUNTS).for_each(|n| add(BankItem::Account(f, n), f, OPENING)));
        (0..TICKETS).for_each(|n| add(BankItem::Ticket(n), usize::from(n) % FAMILIES.len(), 0));
        let txn = self.db.begin(TxnOptions::new())?;
        for change in &draft.changes {
            txn.put(&self.families[change.family], change.item.key(), &change.value)?;
        }
        self.families.iter().try_for_each(|f| txn.put(f, counter_key(0), number.to_string()))?;
        self.commit_and_record((0, number), draft, self.durability, || txn.commit())
    }

    /// Commits and records the result in the ledger.
    fn commit_and_record(
        &self,
        (writer, number): CommitId,
        draft: AttemptWrites,
        durability: Durability,
        commit: impl FnOnce() -> Result<u64>,
    ) -> Result<()> {
        let booked = lock_mutex(&self.ledger).begin_attempt(writer, draft);
        if booked != number {
            return Err(violation_error(format!(
                "driver: attempt {number} was recorded as {booked}"
            )));
        }
        let (seq, result) = match commit() {
            Ok(seq) => (Some(seq), Ok(())),
            Err(e) => (None, Err(e)),
        };
        // A commit with interval durability counts by its time; other unsynced commits need not
        // survive.
        let now = match durability {
            Durability::Interval(_) => self.env.clock.monotonic_us(),
            _ => u64::MAX,
        };
        lock_mutex(&self.ledger).end_attempt(
            (writer, number),
            (commit_outcome(&result), seq),
            durability == Durability::Full,
            now,
        );
        result
    }
}

/// One client.
pub struct BankClient<'a> {
    bank: &'a Bank,
    writer: usize,
    rng: Rng,
}

impl<'a> BankClient<'a> {
    /// Creates client `me`, which is also the writer of that number.
    pub fn new(bank: &'a Bank, me: usize, seed: u64) -> BankClient<'a> {
        BankClient { bank, writer: me, rng: Rng::new(seed) }
    }

    /// Runs this many transactions, or fewer if the machine crashes.
    pub fn run(&mut self, transactions: usize) {
        for _ in 0..transactions {
            if self.bank.disk.crashed() || lock_mutex(&self.bank.failure).is_some() {
                return;
            }
            if let Err(e) =
                self.run_random_op().or_else(|e| if is_aborted(&e) { Ok(()) } else { Err(e) })
            {
                return self.bank.record_failure(format!("client {}: {e}", self.writer));
            }
        }
    }

    fn run_random_op(&mut self) -> Result<()> {
        let (db, ledger) = (&self.bank.db, &self.bank.ledger);
        match self.rng.weighted(&[70, 15, 6, 2, 1, 2, 4, 6]) {
            0 => self.run_txn(),
            1 => self.check_all_balances(),
            2 => self.commit_batch(),
            3 => db.admin().flush(),
            4 => db.admin().compact(),
            5 => {
                let moment = lock_mutex(ledger).advance_clock();
                db.sync()?;
                lock_mutex(ledger).mark_synced(moment);
                Ok(())
            }
            6 => {
                self.bank.env.clock.sleep_us(self.rng.log_uniform(2000));
                Ok(())
            }
            _ => {
                self.abort_random_txn();
                Ok(())
            }
        }
    }

    fn abort_random_txn(&mut self) {
        let slot = self.rng.index(self.bank.running_txns.len());
        let running = lock_mutex(&self.bank.running_txns[slot]).clone();
        if let Some((handle, ended)) = running
            && handle.abort()
        {
            ended.store(true, SeqCst);
        }
    }

    fn next_commit_id(&self) -> CommitId {
        (self.writer, lock_mutex(&self.bank.ledger).next_attempt(self.writer))
    }

    fn random_durability(&mut self) -> Option<Durability> {
        match self.rng.below(6) {
            0 => Some(Durability::Full),
            1 => Some(Durability::None),
            _ => None,
        }
    }

    fn random_options(&mut self) -> TxnOptions {
        use Isolation::{ReadCommitted, ReadUncommitted, RepeatableRead, Serializable, Snapshot};
        let locked = self.bank.lock_reads;
        let level = match locked {
            true => self.rng.pick(&[
                ReadUncommitted,
                ReadCommitted,
                RepeatableRead,
                Snapshot,
                Serializable,
            ]),
            false => self.rng.pick(&[RepeatableRead, Snapshot, Snapshot, Serializable]),
        };
        // Some get almost no memory: their writes are spilled to files and committed as a load.
        let memory = if self.rng.percent(20) { self.rng.pick(&[1, 300, 900]) } else { u64::MAX };
        TxnOptions::new()
            .isolation(level)
            .spill_bytes(memory)
            .pessimistic(locked || self.rng.percent(40))
            .lock_timeout(self.rng.pick(&[
                Duration::ZERO,
                Duration::from_micros(100),
                LOCK_TIMEOUT,
                LOCK_TIMEOUT,
            ]))
    }

    fn run_txn(&mut self) -> Result<()> {
        let (options, durability) = (self.random_options(), self.random_durability());
        let patient = options.lock_timeout == LOCK_TIMEOUT;
        let txn = self.bank.db.begin(options)?;
        for _ in 0..self.rng.between(1, 2) {
            match self.attempt_txn(&txn, durability) {
                Err(e) if patient && e.kind() == ErrorKind::Busy => {
                    return Err(violation_error(format!("the wait for a lock did not end: {e}")));
                }
                Err(e) if is_aborted(&e) => txn.reset()?,
                other => return other,
            }
        }
        Ok(())
    }

    fn attempt_txn(&mut self, txn: &Txn, durability: Option<Durability>) -> Result<()> {
        let (bank, id) = (self.bank, self.next_commit_id());
        let ended = Arc::new(AtomicBool::new(false));
        *lock_mutex(&bank.running_txns[self.writer]) = Some((txn.handle(), Arc::clone(&ended)));
        let mut draft = AttemptWrites::default();
        if matches!(self.fill_txn(txn, id, &mut draft)?, TxnDecision::RollBack) {
            txn.rollback_in_place();
            return Ok(());
        }
        let required = durability.unwrap_or(bank.durability);
        let syncs_after_commit = required == Durability::Full && self.rng.percent(40);
        let done = bank.commit_and_record(id, draft, required, || {
            if !syncs_after_commit {
                return txn.commit_in_place(durability);
            }
            let seq = txn.commit_in_place(Some(Durability::None))?;
            bank.db.sync_up_to(seq)?;
            Ok(seq)
        });
        *lock_mutex(&bank.running_txns[self.writer]) = None;
        if done.is_ok() && (ended.load(SeqCst) || txn.handle().abort()) {
            return Err(violation_error(
                "a transaction committed although another thread had aborted it",
            ));
        }
        done
    }

    /// Fills the transaction with writes, ending with those that every transaction makes: counters
    /// and a journal entry.
    fn fill_txn(
        &mut self,
        txn: &Txn,
        id: CommitId,
        draft: &mut AttemptWrites,
    ) -> Result<TxnDecision> {
        for _ in 0..self.rng.between(1, 3) {
            match self.rng.below(10) {
                0..=4 => self.transfer(txn, id, draft)?,
                5 | 6 => self.move_ticket(txn, id, draft)?,
                7 if self.rng.percent(50) => self.write_and_roll_back(txn, id, draft)?,
                7 => self.lock_and_roll_back(txn)?,
                8 => {
                    txn.savepoint("kept")?;
                    self.transfer(txn, id, draft)?;
                    txn.release_savepoint("kept")?;
                }
                _ => self.bank.env.clock.sleep_us(self.rng.log_uniform(200)),
            }
        }
        if self.rng.percent(4) {
            return Ok(TxnDecision::RollBack);
        }
        self.write_journal(id, draft, |own| match own {
            PrivateWrite::Put(f, key, value) => txn.put(&self.bank.families[*f], key, value),
            PrivateWrite::DeleteRange(f, from, to) => {
                txn.delete_range(&self.bank.families[*f], &from[..]..&to[..])
            }
        })?;
        for f in &self.bank.families {
            txn.put(f, counter_key(self.writer), id.1.to_string())?;
        }
        Ok(TxnDecision::Commit)
    }

    /// Writes to the writer's own keys.
    fn write_journal(
        &self,
        id: CommitId,
        draft: &mut AttemptWrites,
        mut write: impl FnMut(&PrivateWrite) -> Result<()>,
    ) -> Result<()> {
        let mut rng = self.rng.clone();
        let mut all = Vec::new();
        for f in 0..FAMILIES.len() {
            if rng.percent(60) {
                all.push(PrivateWrite::Put(
                    f,
                    journal_key(id.0, id.1),
                    vec![b'.'; rng.between(0, 120)],
                ));
            }
            if rng.percent(10) && id.1 > JOURNAL_LEN {
                all.push(PrivateWrite::DeleteRange(
                    f,
                    journal_key(id.0, 0),
                    journal_key(id.0, id.1 - JOURNAL_LEN),
                ));
            }
        }
        for own in all {
            write(&own)?;
            draft.private.push(own);
        }
        Ok(())
    }

    /// Commits a batch without a transaction, under the same rules.
    fn commit_batch(&mut self) -> Result<()> {
        let (id, durability) = (self.next_commit_id(), self.random_durability());
        let (mut batch, mut draft) = (WriteBatch::new(), AttemptWrites::default());
        self.write_journal(id, &mut draft, |own| match own {
            PrivateWrite::Put(f, key, value) => batch.put(&self.bank.families[*f], key, value),
            PrivateWrite::DeleteRange(f, from, to) => {
                batch.delete_range(&self.bank.families[*f], &from[..]..&to[..])
            }
        })?;
        for f in &self.bank.families {
            batch.put(f, counter_key(self.writer), id.1.to_string())?;
        }
        let options = durability.map_or(WriteOptions::new(), |d| WriteOptions::new().durability(d));
        let effective = durability.unwrap_or(self.bank.durability);
        self.bank
            .commit_and_record(id, draft, effective, || self.bank.db.write_with(batch, options))
    }

    /// Reads a key that is about to be changed, so that no other writer can change it in between.
    fn read_for_update(&mut self, txn: &Txn, family: usize, key: &[u8]) -> Result<Option<Slice>> {
        let f = &self.bank.families[family];
        match self.rng.below(10) {
            0..=3 => txn.get_for_update(f, key, LockMode::Exclusive),
            4 | 5 => txn.get_for_update(f, key, LockMode::Shared),
            6 => {
                txn.lock(f, key, LockMode::Exclusive)?;
                txn.get_pinned(f, key)
            }
            7 => {
                txn.lock_range(f, &key[..1]..=key, LockMode::Exclusive)?;
                let mut found = txn.prefix(f, &key[..1])?.rev();
                found
                    .find_map(|e| e.map(|(k, v)| (k[..] == *key).then_some(v)).transpose())
                    .transpose()
            }
            _ if self.bank.lock_reads => txn.get_for_update(f, key, LockMode::Exclusive),
            8 => txn.get_pinned(f, key),
            _ => {
                let mut found = txn.range(f, &b"a"[..]..=key)?;
                found
                    .find_map(|e| e.map(|(k, v)| (k[..] == *key).then_some(v)).transpose())
                    .transpose()
            }
        }
    }

    fn put(&mut self, txn: &Txn, family: usize, key: &[u8], value: &[u8]) -> Result<()> {
        let f = &self.bank.families[family];
        match self.rng.below(6) {
            0 => txn.put_with_ttl(f, key, value, Duration::from_secs(3600 * 24 * 365)),
            1 => {
                txn.delete(f, key)?;
                txn.put(f, key, value)
            }
            _ => txn.put(f, key, value),
        }
    }

    fn transfer(&mut self, txn: &Txn, id: CommitId, draft: &mut AttemptWrites) -> Result<()> {
        let n = FAMILIES.len() * usize::from(ACCOUNTS);
        let (from, to) = (self.rng.index(n), self.rng.index(n));
        if from == to {
            return Ok(());
        }
        let amount = self.rng.between(1, 20) as i64;
        for (at, amount) in [(from, -amount), (to, amount)] {
            let (family, number) = (at % FAMILIES.len(), (at / FAMILIES.len()) as u8);
            let item = BankItem::Account(family, number);
            let old = self.read_for_update(txn, family, &item.key())?;
            let old = old.ok_or_else(|| violation_error(format!("{item:?} is not there")))?;
            let (before, balance) = parse_value(&old).map_err(violation_error)?;
            let new = encode_value(id, balance + amount, self.rng.between(0, 60));
            self.put(txn, family, &item.key(), &new)?;
            draft.record_change(item, before, id, family, new);
        }
        Ok(())
    }

    fn move_ticket(&mut self, txn: &Txn, id: CommitId, draft: &mut AttemptWrites) -> Result<()> {
        let item = BankItem::Ticket(self.rng.below(u64::from(TICKETS)) as u8);
        let first = self.rng.index(FAMILIES.len());
        let mut places = Vec::new();
        for i in 0..FAMILIES.len() {
            let family = (first + i) % FAMILIES.len();
            places.extend(self.read_for_update(txn, family, &item.key())?.map(|v| (family, v)));
        }
        let [(from, old)] = &places[..] else {
            return Err(violation_error(format!(
                "{item:?} is in {} column families at once",
                places.len()
            )));
        };
        let (before, moves) = parse_value(old).map_err(violation_error)?;
        let to = (from + self.rng.between(1, FAMILIES.len() - 1)) % FAMILIES.len();
        let (f, key) = (&self.bank.families[*from], item.key());
        match self.rng.below(3) {
            0 => txn.delete_range(f, &key[..]..=&key[..])?,
            1 => txn.delete_prefix(f, &key)?,
            _ => txn.delete(f, &key)?,
        }
        let new = encode_value(id, moves + 1, 0);
        self.put(txn, to, &key, &new)?;
        draft.record_change(item, before, id, to, new);
        Ok(())
    }

    /// Writes values that must never become visible and rolls them back.
    fn write_and_roll_back(
        &mut self,
        txn: &Txn,
        id: CommitId,
        draft: &mut AttemptWrites,
    ) -> Result<()> {
        txn.savepoint("back")?;
        let kept = draft.clone();
        for _ in 0..self.rng.between(1, 4) {
            let f = &self.bank.families[self.rng.index(FAMILIES.len())];
            match self.rng.below(6) {
                0 => txn.put(f, "g/ghost", "rolled back")?,
                1 => txn.put(f, BankItem::Account(0, self.rng.below(4) as u8).key(), "ghost")?,
                2 => txn.delete_prefix(f, "a/")?,
                3 => txn.delete(f, BankItem::Ticket(0).key())?,
                4 => txn.savepoint("inner")?,
                _ => self.transfer(txn, id, draft).or_else(|e| {
                    // A merge may fail on the transaction's own invalid operand.
                    if e.kind() == ErrorKind::Internal { Ok(()) } else { Err(e) }
                })?,
            }
        }
        txn.rollback_to("back")?;
        *draft = kept;
        Ok(())
    }

    /// Locks a key that no other client locks and rolls back: afterwards the lock must be free, and
    /// it must not have been free before.
    fn lock_and_roll_back(&self, txn: &Txn) -> Result<()> {
        let f = &self.bank.families[0];
        let key = format!("p/{}", self.writer);
        let is_free = || {
            let probe = self.bank.db.begin(TxnOptions::new().lock_timeout(Duration::ZERO))?;
            match probe.lock(f, &key, LockMode::Exclusive) {
                Err(e) if e.kind() == ErrorKind::Busy => Ok(false),
                other => other.map(|()| true),
            }
        };
        txn.savepoint("lock")?;
        txn.lock(f, &key, LockMode::Shared)?;
        let held = !is_free()?;
        txn.rollback_to("lock")?;
        if !held || !is_free()? {
            return Err(violation_error(format!(
                "a lock taken after a savepoint: held before the rollback to it: {held}"
            )));
        }
        txn.release_savepoint("lock")
    }

    /// Reads everything in one snapshot and checks it against the ledger.
    fn check_all_balances(&mut self) -> Result<()> {
        let level = self.rng.pick(&[
            Isolation::RepeatableRead,
            Isolation::Snapshot,
            Isolation::Serializable,
        ]);
        let read_only = self.rng.percent(60);
        let least = lock_mutex(&self.bank.ledger).acked_prefixes();
        let txn = self.bank.db.begin(TxnOptions::new().isolation(level).read_only(read_only))?;
        let mut found = Contents::new();
        let first = self.rng.index(FAMILIES.len());
        for i in 0..FAMILIES.len() {
            let at = (first + i) % FAMILIES.len();
            let iter = txn.iter(&self.bank.families[at])?;
            let entries: Vec<_> =
                if self.rng.percent(40) { iter.rev().collect() } else { iter.collect() };
            let entries: Result<Vec<(Slice, Slice)>> = entries.into_iter().collect();
            let owned = entries?
                .iter()
                .map(|(k, v)| (k.to_vec(), v.to_vec()))
                .collect::<Vec<(Bytes, Bytes)>>();
            found.insert(FAMILIES[at].to_string(), owned.into_iter().collect());
            self.bank.env.clock.sleep_us(self.rng.below(30));
        }
        lock_mutex(&self.bank.ledger)
            .check_read(&found, &least)
            .map_err(|e| violation_error(format!("an audit: {e}")))?;
        txn.commit().map(drop)
    }
}
