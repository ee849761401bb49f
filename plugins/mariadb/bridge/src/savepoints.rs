//! Savepoints by number: set again they move, and each is released by itself. A savepoint of the
//! engine is released with all later ones, so one that is released out of order stays set there
//! until the later ones are gone.

use crate::status::{Result, Status};
use perigee::Txn;

#[derive(Clone, Copy, Debug)]
struct Savepoint {
    number: u64,
    /// Its name in the engine; names are not reused within a transaction.
    name: u64,
    is_released: bool,
}

/// The savepoints of a transaction, from the oldest to the newest.
#[derive(Debug, Default)]
pub struct Savepoints {
    all: Vec<Savepoint>,
    last_name: u64,
}

/// Calls `work` with the name as text.
fn with_name<T>(name: u64, work: impl FnOnce(&str) -> T) -> T {
    let digit = |i: u32| b"0123456789abcdef"[(name >> (60 - 4 * i) & 15) as usize];
    let digits: [u8; 16] = std::array::from_fn(|i| digit(i as u32));
    work(std::str::from_utf8(&digits).unwrap_or_default())
}

impl Savepoints {
    /// Returns true if the engine has no savepoint of the transaction.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
    /// Forgets all savepoints, at the end of the transaction.
    pub fn clear(&mut self) {
        self.all.clear();
    }
    fn find(&self, number: u64) -> Option<usize> {
        self.all.iter().rposition(|s| s.number == number && !s.is_released)
    }
    /// Sets a savepoint, or moves it to the current end of the writes.
    pub fn set(&mut self, txn: &Txn, number: u64) -> Result<()> {
        if let Some(at) = self.find(number) {
            self.release_at(txn, at)?;
        }
        let name = self.last_name + 1;
        with_name(name, |name| txn.savepoint(name))?;
        self.last_name = name;
        self.all.push(Savepoint { number, name, is_released: false });
        Ok(())
    }
    /// Rolls back to a savepoint, which stays set; later ones are gone.
    pub fn roll_back_to(&mut self, txn: &Txn, number: u64) -> Result<()> {
        let at = self.find(number).ok_or_else(missing)?;
        with_name(self.all[at].name, |name| txn.rollback_to(name))?;
        self.all.truncate(at + 1);
        Ok(())
    }
    /// Releases a savepoint; later ones stay set.
    pub fn release(&mut self, txn: &Txn, number: u64) -> Result<()> {
        let at = self.find(number).ok_or_else(missing)?;
        self.release_at(txn, at)
    }
    fn release_at(&mut self, txn: &Txn, at: usize) -> Result<()> {
        self.all[at].is_released = true;
        let kept = self.all.iter().rposition(|s| !s.is_released).map_or(0, |last| last + 1);
        if let Some(first) = self.all.get(kept) {
            with_name(first.name, |name| txn.release_savepoint(name))?;
            self.all.truncate(kept);
        }
        Ok(())
    }
}

#[cold]
fn missing() -> Status {
    Status::INVALID.with_message("the transaction has no such savepoint")
}
